/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports over an Ethernet interface of the kernel, by a packet socket: "packet:eth0". Consecutive
 * packets of one queue pair are handed to the kernel, and taken from it, as one frame of up to 64
 * KiB that the kernel or the NIC cuts into those packets (UDP segmentation offload); on the wire
 * they are what every RoCE device sends. Payload is copied once at either end, by the kernel.
 *
 * The kernel keeps the interface: Ferrule's addresses are others than the kernel's.
 */
#ifndef FERRULE_DRIVERS_PACKET_PACKET_H
#define FERRULE_DRIVERS_PACKET_PACKET_H

#include <stdbool.h>
#include <stdint.h>

#include "drivers/port.h"
#include "lib/base/gids.h"

struct packet_port_config {
	/* "packet:IFACE[,gso=off]": the interface in this network namespace; gso=off: every packet
	 * goes to the kernel on its own. */
	const char *text;
	/* That of the port's lease, which must be the interface's own; zero: that one. */
	uint8_t mac[6];
	/* The port's addresses: what the socket lets in. The first is the link-local one, which
	 * need not be filled in yet: it follows from the MAC. Read during the open only. */
	const struct gid_table *gids;
	/* The longest RoCE payload wanted, bytes, a power of two; what the interface's MTU cannot
	 * carry is halved, down to `min_payload`. */
	uint32_t max_payload;
	uint32_t min_payload;
	/* caps.max_kept: so many packet buffers more. */
	uint32_t max_kept;
};

/* Whether the text of a port, which may be NULL, names one of these. */
bool packet_is_port(const char *port);

/*
 * Opens a port; it is closed by its ops. Errors are negative errno with frl_last_error() naming the
 * cause and the remedy: -EINVAL (text), -ENODEV (no such interface, or not Ethernet), -EPERM
 * (CAP_NET_RAW), -EMSGSIZE (MTU), -ENOTSUP (another MAC), -ENOMEM. Any thread.
 */
int packet_port_open(const struct packet_port_config *config, struct port **ret_port);

#endif
