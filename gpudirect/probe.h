/* SPDX-License-Identifier: BSD-3-Clause */
/* What this machine has for GPU memory besides CUDA. Any thread. */
#ifndef FERRULE_GPUDIRECT_PROBE_H
#define FERRULE_GPUDIRECT_PROBE_H

#include <stdbool.h>

/* Whether an ordinary registration with a NIC takes device pointers: nvidia-peermem, or its
 * predecessor nv_peer_mem, is loaded and has announced itself to the kernel's RDMA. */
bool probe_has_peermem(void);

/* For tests: /sys is looked for below this folder; NULL: no more. It stays the caller's. */
void probe_set_root(const char *root);

#endif
