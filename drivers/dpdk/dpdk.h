/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports over DPDK: any ethdev by its devargs.
 *
 * EAL starts with the first port, once a process, in a thread of its own (so that the caller's CPU
 * affinity stays as it is), without root, huge pages, PCI or telemetry unless configured otherwise.
 * It cannot be restarted and lives until the process ends.
 */
#ifndef FERRULE_DRIVERS_DPDK_DPDK_H
#define FERRULE_DRIVERS_DPDK_DPDK_H

#include "drivers/port.h"
#include "lib/base/gids.h"

struct dpdk_port_config {
	/* Devargs of one ethdev ("net_af_packet0,iface=veth0"), or a PCI address. */
	const char *devargs;
	/* The MAC to give the device; zero: it keeps its own. */
	uint8_t mac[6];
	/* The port's addresses, whose VLANs a device by devargs is to let in. NULL: none. Read
	 * during the open only. */
	const struct gid_table *gids;
	/* The longest RoCE payload wanted, bytes, a power of two; what the port's MTU cannot carry
	 * is halved, down to `min_payload`. Buffers are sized for the result, see caps.max_frame.
	 */
	uint32_t max_payload;
	uint32_t min_payload;
	/* caps.max_kept: the port gets so many packet buffers more. */
	uint32_t max_kept;
	/* Further EAL arguments, from the settings; used by the first port. */
	const char *eal_args;
};

/*
 * Opens a port, by the module with this driver, which is loaded if need be. Errors are negative
 * errno with frl_last_error() naming the cause and the remedy: -ENODEV (no such interface, bad
 * devargs, no DPDK), -EPERM, -ENOMEM, -EMSGSIZE (the interface's MTU cannot carry min_payload),
 * -ENOTSUP (another MAC). Any thread; blocks for as long as EAL takes to start.
 */
int dpdk_port_open(const struct dpdk_port_config *config, struct port **ret_port);

/* The same in the module itself. */
int dpdk_driver_open(const struct dpdk_port_config *config, struct port **ret_port);

#endif
