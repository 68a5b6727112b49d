/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Code shared by drivers of ports over one network interface, whose only link is link 0. Any
 * thread.
 */
#ifndef FERRULE_DRIVERS_NIC_H
#define FERRULE_DRIVERS_NIC_H

#include <stdbool.h>
#include <stdint.h>

#include "drivers/port.h"
#include "lib/base/net/gids.h"

struct nic_config {
	const char *text; /* text of the port, as its driver knows it */
	/* A packet socket with its filter that the control daemon has opened for this port. The
	 * caller keeps it. */
	bool has_socket;
	int socket;
	/* The MAC of the port's lease, or zero: the interface's MAC. Ports of raw packets require
	 * the interface's own. */
	uint8_t mac[6];
	/* The port's addresses, which it must receive. The first is the link-local address. It may
	 * be empty, because it follows from the MAC. Read only during the open. */
	const struct gid_table *gids;
	/* The longest RoCE payload wanted, in bytes, a power of two. If the interface's MTU is too
	 * small, it is halved, down to `min_payload`. */
	uint32_t max_payload;
	uint32_t min_payload;
	/* caps.max_kept: this many additional packet buffers. */
	uint32_t max_kept;
};

/* For the ops table. Returns -ENOTSUP and sets the last error. */
int nic_link_open(struct port *port, const struct port_link_request *request);
void nic_link_close(struct port *port, uint16_t link);

/* Halves `max_payload`, down to `min_payload`, until it fits the interface's MTU. Returns -EMSGSIZE
 * with the remedy if none fits. */
int nic_fit_payload(
	const char *interface, uint32_t mtu, uint32_t min_payload, uint32_t *max_payload);
/* Returns caps.max_frame. Peers send no longer frames. */
uint32_t nic_max_frame(uint32_t mtu, uint32_t max_payload);

/* Ends an open that resulted in `rc`: returns the port in *ret_port, or closes the incomplete port
 * and keeps frl_last_error(). Returns `rc`. */
int nic_opened(struct port *port, int rc, struct port **ret_port);

#endif
