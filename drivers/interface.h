/* SPDX-License-Identifier: BSD-3-Clause */
/* Properties of the kernel network interface below a port. Any thread. */
#ifndef FERRULE_DRIVERS_INTERFACE_H
#define FERRULE_DRIVERS_INTERFACE_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/net/addr.h"

enum {
	/* Headers of a RoCE packet as the interface's MTU counts them: IPv6 40, UDP 8, BTH 12, RETH
	 * 16, immediate 4, ICRC 4. */
	MTU_OVERHEAD = 84,
	ETH_HEADER = 14,
	ETH_MIN_FRAME = 60, /* without FCS */
	VLAN_TAG = 4,
	MIN_PAYLOAD = 256,
	MAX_PAYLOAD = 4096, /* limit on a network */
};

/* Returns the bytes after the Ethernet header. -ENODEV sets the last error. */
int interface_mtu(const char *name, uint32_t *ret_mtu);
/* Returns true if the interface is up and has a carrier. */
bool interface_is_running(const char *name);
/* Returns -EMSGSIZE, with the remedy, if an MTU of `mtu` cannot carry packets of `max_payload`
 * bytes. */
int interface_check_mtu(const char *name, uint32_t mtu, uint32_t max_payload);
/* Checks that DPDK's net_af_packet can start on it. Returns -EPERM with the remedy. */
int interface_check_af_packet(const char *name);
/* Returns true if the kernel itself has this address, on any interface. */
bool interface_is_kernels(const struct frl_ip *ip);
/* Makes the interface receive all multicast until the returned descriptor is closed. Returns a
 * negative errno on failure. */
int interface_take_multicast(const char *name);

#endif
