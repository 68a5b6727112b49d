/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ports take memory of GPUs: NICs that reach it by themselves, and with FERRULE_GPU=1
 * software ports, whose payload kernels of Ferrule move. NCCL says of no pointer which GPU it is
 * of before it registers it, so a port takes them only if all GPUs that this process sees will do.
 *
 * Software ports take none where CUDA loads modules lazily. A first launch of the application then
 * holds the context's lock while it waits for what runs. NCCL's kernels run until Ferrule's next
 * launch, and that waits for the lock.
 */
#ifndef FERRULE_NCCL_GPU_H
#define FERRULE_NCCL_GPU_H

#include <stdbool.h>

#include "nccl/ports.h"

/* What all GPUs of the process have in common. */
struct net_gpus {
	bool exports_dmabuf, has_peermem, has_kernels;
	bool needs_flush;  /* one of them does, at least */
	bool is_lazy;      /* CUDA loads modules lazily */
	char why_not[512]; /* the first reason that a GPU, or the library, has given; or "" */
};

/* Asks the library, which looks at CUDA. NCCL has initialized that by the time that it asks plugins
 * for devices. */
void net_gpus_look(struct net_gpus *ret_gpus);

/* Whether anything of what the settings allow depends on GPUs: if not, CUDA is not looked at. */
bool net_port_may_take_gpus(const struct port_info *port);

/* A line in the log if that is so because FERRULE_GPU=1 and FRL_GPU_TIER exclude each other. */
void net_port_explain_setting(const struct port_info *port);

/* Sets port->pointers, of NCCL_PTR_*, and what goes with them; says in the log what comes of it,
 * where that is not what everybody has. */
void net_port_take_gpus(struct port_info *port, const struct net_gpus *gpus);

/* Sets port->unpacks, of all ports or of none: NCCL goes by one device for all. With
 * FERRULE_UNPACK=1 it is said in the log what comes of it, and why. */
void net_ports_choose_unpack(struct port_info *ports, int n);

#endif
