/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the ports that a process can use, from FERRULE_DEVICES or by detection, without opening
 * any: NCCL asks every plugin for devices but uses only one plugin. The list is built once and does
 * not change.
 */
#ifndef FERRULE_NCCL_PORTS_H
#define FERRULE_NCCL_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_MAX_PORTS = 32 };

struct port_info {
	char name[64]; /* a unique name for NCCL: "local", "mlx5_0" */
	/* Arguments of frl_device_open(); "": NULL. */
	char fabric[64];
	char port[160];
	char ip[128];
	char gateway[64];
	char pci_path[256]; /* below /sys; "": none */
	uint64_t guid;      /* the same for all ports of one card */
	int port_number;
	int speed_mbps; /* 0: unknown until it is open */
	float step_us;  /* for the tuner: latency beyond NCCL's assumption */
	bool is_hardware;
	bool takes_dmabuf;
	int pointers;     /* set by gpu.h: supported NCCL_PTR_* besides NCCL_PTR_HOST, */
	bool needs_flush; /* and whether received data needs a flush */
	bool unpacks;     /* NCCL's kernels may read received data from packets (unpack.h) */
};

/*
 * Fills in up to NET_MAX_PORTS ports: the `wanted` ones, or all that are found if `wanted` is "".
 * The local fabric is then included only with `offers_local`. -EINVAL: FERRULE_DEVICES is not
 * valid. -ENODEV: no port is usable. On failure `why` is a sentence.
 */
int net_ports_find(const char *wanted, bool offers_local, struct port_info ports[NET_MAX_PORTS],
	int *ret_n, char *why, size_t size);

#endif
