/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ports a process can use, as FERRULE_DEVICES says or as they are found, without opening one:
 * NCCL asks every plugin for its devices, and uses one. The list is made once and stays.
 */
#ifndef FERRULE_NCCL_PORTS_H
#define FERRULE_NCCL_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_MAX_PORTS = 32 };

struct port_info {
	char name[64]; /* for NCCL, unlike all others: "local", "mlx5_0" */
	/* What frl_device_open() is given; "": NULL. */
	char fabric[64];
	char port[160];
	char ip[128];
	char gateway[64];
	char pci_path[256]; /* in /sys; "": none */
	uint64_t guid;      /* ports of one card have the same */
	int port_number;
	int speed_mbps; /* 0: not known before it is opened */
	float step_us;  /* a message takes so much longer than NCCL assumes: the tuner's */
	bool is_hardware;
	bool takes_dmabuf;
	int pointers;     /* NCCL_PTR_* that it takes besides the host's; gpu.h sets them, */
	bool needs_flush; /* and this: what has come is to be flushed */
	bool unpacks;     /* unpack.h: NCCL's kernels may fetch what comes out of its packets */
};

/*
 * Fills in up to NET_MAX_PORTS ports: those that are `wanted`, or if that is "" what there is,
 * which is the local fabric only with `offers_local`. -EINVAL: FERRULE_DEVICES makes no sense;
 * -ENODEV: none is usable; `why` is a sentence then.
 */
int net_ports_find(const char *wanted, bool offers_local, struct port_info ports[NET_MAX_PORTS],
	int *ret_n, char *why, size_t size);

#endif
