/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides which ports accept GPU memory: NICs that access it directly, and with FERRULE_GPU=1 also
 * software ports, whose payload Ferrule's kernels move. NCCL does not say which GPU owns a pointer
 * until it registers the pointer. So a port accepts GPU memory only if it supports all GPUs that
 * this process sees.
 *
 * Software ports do not accept GPU memory if CUDA loads modules lazily. In that case an
 * application's first launch holds the context's lock while it waits for running kernels. NCCL's
 * kernels run until Ferrule's next launch, which waits for the lock: a deadlock.
 */
#ifndef FERRULE_NCCL_GPU_H
#define FERRULE_NCCL_GPU_H

#include <stdbool.h>

#include "nccl/ports.h"

/* Properties that all GPUs of the process have. */
struct net_gpus {
	bool exports_dmabuf, has_peermem, has_kernels;
	bool needs_flush;  /* at least one of them needs it */
	bool is_lazy;      /* CUDA loads modules lazily */
	char why_not[512]; /* the first reason from a GPU or the library; or "" */
};

/* Queries the GPUs through the library. NCCL has initialized CUDA before it queries plugins for
 * devices. */
void net_gpus_query(struct net_gpus *ret_gpus);

/* Returns whether the settings allow GPU memory for the port. If no port may use it, CUDA is not
 * queried. */
bool net_port_may_use_gpus(const struct port_info *port);

/* Logs a line if GPU memory is refused because FERRULE_GPU=1 and FRL_GPU_TIER exclude each
 * other. */
void net_port_explain_setting(const struct port_info *port);

/* Sets port->pointers (NCCL_PTR_*) and related fields. Logs the result if it differs from the usual
 * one. */
void net_port_set_gpus(struct port_info *port, const struct net_gpus *gpus);

/* Sets port->unpacks for all ports or for none, because NCCL applies one device's property to all
 * devices. With FERRULE_UNPACK=1 the log has the result and the reason. */
void net_ports_choose_unpack(struct port_info *ports, int n);

#endif
