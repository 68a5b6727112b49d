/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel's network interface below a port: what has to be known of it. Any thread. */
#ifndef FERRULE_DRIVERS_INTERFACE_H
#define FERRULE_DRIVERS_INTERFACE_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/addr.h"

enum {
	/* Headers of a RoCE packet as the interface's MTU counts them: IPv6 40, UDP 8, BTH 12, RETH
	 * 16, immediate 4, ICRC 4. */
	MTU_OVERHEAD = 84,
	ETH_HEADER = 14,
	ETH_MIN_FRAME = 60, /* without FCS */
	VLAN_TAG = 4,
	MIN_PAYLOAD = 256,
	MAX_PAYLOAD = 4096, /* on a network */
};

/* Bytes behind the Ethernet header. -ENODEV, with a sentence. */
int interface_mtu(const char *name, uint32_t *ret_mtu);
/* Up, and with a carrier. */
bool interface_is_running(const char *name);
/* -EMSGSIZE, with what to do: `mtu` bytes do not carry packets of `max_payload` bytes. */
int interface_check_mtu(const char *name, uint32_t mtu, uint32_t max_payload);
/* Whether DPDK's net_af_packet can be started on it. -EPERM, with what to do. */
int interface_check_af_packet(const char *name);
/* Returns true if the kernel itself has this address, on any interface. */
bool interface_is_kernels(const struct frl_ip *ip);
/* A descriptor; the interface takes all multicast until it is closed. Or an errno, negative. */
int interface_take_multicast(const char *name);

#endif
