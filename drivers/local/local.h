/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports of the local fabric: links made on demand between processes of one machine, through shared
 * memory. They need neither DPDK, nor a NIC, nor a privilege.
 */
#ifndef FERRULE_DRIVERS_LOCAL_LOCAL_H
#define FERRULE_DRIVERS_LOCAL_LOCAL_H

#include "drivers/port.h"

enum {
	/* Largest RoCE payload of a packet. On a network the limit is 4096 bytes. */
	LOCAL_MAX_PAYLOAD = 16384,
};

struct local_port_config {
	uint8_t mac[6]; /* MAC of the port, used on its links */
	/* The longest RoCE payload, in bytes, a power of two. Buffers are sized for it, see
	 * caps.max_frame. */
	uint32_t max_payload;
	/* caps.max_kept: this many additional packet buffers. */
	uint32_t max_kept;
	/* Bits of the caller's choice that the ends of a link exchange, see port_ops.link_features.
	 */
	uint32_t features;
	struct port_guard guard;
};

/* Returns true for an address of the local fabric: 169.254.1.0 to 169.254.254.255 (RFC 3927). */
bool local_is_address(const struct frl_ip *ip);
/* Sets the MAC address of the device that has an address of the local fabric. */
void local_mac(const struct frl_ip *ip, uint8_t ret_mac[6]);

/*
 * Listens for devices that want to be introduced to the device with this address. Returns a socket
 * for struct port_introductions. -EADDRINUSE, or another errno; sets no error text.
 */
int local_listen(const struct frl_ip *ip);

/*
 * Opens a port. Returns -EINVAL (invalid payload length) or -ENOMEM, with frl_last_error(). Any
 * thread.
 */
int local_port_open(const struct local_port_config *config, struct port **ret_port);

#endif
