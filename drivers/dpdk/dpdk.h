/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports over DPDK: any ethdev by its devargs.
 *
 * EAL starts with the first port, once per process. It starts in a thread of its own, which keeps
 * the caller's CPU affinity unchanged. Unless configured otherwise, it runs without root, huge
 * pages, PCI or telemetry. It cannot be restarted and lives until the process ends.
 */
#ifndef FERRULE_DRIVERS_DPDK_DPDK_H
#define FERRULE_DRIVERS_DPDK_DPDK_H

#include "drivers/port.h"
#include "lib/base/net/gids.h"

struct dpdk_port_config {
	/* Devargs of one ethdev ("net_af_packet0,iface=veth0"), or a PCI address. */
	const char *devargs;
	/* The MAC to set, or zero: the device keeps its own. */
	uint8_t mac[6];
	/* The port's addresses. A device by devargs must receive their VLANs. NULL: none. Read only
	 * during the open. */
	const struct gid_table *gids;
	/* The longest RoCE payload wanted, in bytes, a power of two. If the port's MTU is too
	 * small, it is halved, down to `min_payload`. Buffers are sized for the result, see
	 * caps.max_frame. */
	uint32_t max_payload;
	uint32_t min_payload;
	/* caps.max_kept: this many additional packet buffers. */
	uint32_t max_kept;
	/* Additional EAL arguments from the settings. Used by the first port. */
	const char *eal_args;
};

/*
 * Opens a port through the module with this driver, which is loaded if necessary. Returns a
 * negative errno on failure, and frl_last_error() names the cause and the remedy: -ENODEV (no such
 * interface, bad devargs, no DPDK), -EPERM, -ENOMEM, -EMSGSIZE (the interface's MTU cannot carry
 * min_payload), -ENOTSUP (another MAC). Any thread. Blocks while EAL starts.
 */
int dpdk_port_open(const struct dpdk_port_config *config, struct port **ret_port);

/* Implements dpdk_port_open() in the module. */
int dpdk_driver_open(const struct dpdk_port_config *config, struct port **ret_port);

#endif
