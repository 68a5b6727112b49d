/* SPDX-License-Identifier: BSD-3-Clause */
/* Detects the machine's support for GPU memory besides CUDA. Callable from any thread. */
#ifndef FERRULE_GPUDIRECT_PROBE_H
#define FERRULE_GPUDIRECT_PROBE_H

#include <stdbool.h>

/* Returns whether a NIC can register device pointers directly: nvidia-peermem, or its predecessor
 * nv_peer_mem, is loaded and registered with the kernel's RDMA subsystem. */
bool probe_has_peermem(void);

/* For tests: looks for /sys below this folder; NULL restores the default. The caller keeps
 * ownership of the string. */
void probe_set_root(const char *root);

#endif
