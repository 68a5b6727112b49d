/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A packet socket for another process, which needs no capability to use it. It is bound to the
 * interface, and its filter accepts only the frames of a lease. The filter is locked: no process
 * can change it. The process can send any frame, on any interface of the network namespace. Any
 * thread. No call waits for the network or for the kernel's lock of interfaces.
 */
#ifndef FERRULE_DRIVERS_PACKET_SOCKET_H
#define FERRULE_DRIVERS_PACKET_SOCKET_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/net/gids.h"

struct packet_lease {
	const char *port; /* "packet:eth0" */
	/* The lease's addresses from index 1 on, all on the same VLAN. */
	const struct gid_table *gids;
	const uint8_t *mac; /* a MAC that no other lease has; NULL: the interface's */
};

/*
 * Returns the descriptor. *ret_id is the socket's inode number, under which /proc/net/packet lists
 * it while any process holds it. Returns a negative errno on failure with a text in `why`:
 * -EADDRINUSE (the kernel has one of the addresses), -EPERM (CAP_NET_RAW), -ENODEV, -EINVAL.
 */
int packet_lease_socket(const struct packet_lease *lease, uint64_t *ret_id, char *why, size_t size);

#endif
