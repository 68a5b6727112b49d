/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports over one network interface, of which link 0 is the only one: what their drivers share. Any
 * thread.
 */
#ifndef FERRULE_DRIVERS_NIC_H
#define FERRULE_DRIVERS_NIC_H

#include <stdbool.h>
#include <stdint.h>

#include "drivers/port.h"
#include "lib/base/gids.h"

struct nic_config {
	const char *text; /* the port's, as its driver has it */
	/* A packet socket that the control daemon has opened for this port, with its filter. It
	 * stays the caller's. */
	bool has_socket;
	int socket;
	/* That of the port's lease; of ports of raw packets it must be the interface's own. Zero:
	 * the interface's. */
	uint8_t mac[6];
	/* The port's addresses: what it is to let in. The first is the link-local one, which need
	 * not be filled in yet: it follows from the MAC. Read during the open only. */
	const struct gid_table *gids;
	/* The longest RoCE payload wanted, bytes, a power of two; what the interface's MTU cannot
	 * carry is halved, down to `min_payload`. */
	uint32_t max_payload;
	uint32_t min_payload;
	/* caps.max_kept: so many packet buffers more. */
	uint32_t max_kept;
};

/* For the ops table. -ENOTSUP, with a sentence. */
int nic_link_open(struct port *port, const struct port_link_request *request);
void nic_link_close(struct port *port, uint16_t link);

/* Makes do with a shorter payload than wanted where the interface's MTU asks for it: halves
 * `max_payload`, down to `min_payload`. -EMSGSIZE, with what to do. */
int nic_fit_payload(
	const char *interface, uint32_t mtu, uint32_t min_payload, uint32_t *max_payload);
/* caps.max_frame: nobody sends longer ones. */
uint32_t nic_max_frame(uint32_t mtu, uint32_t max_payload);

/* The end of an open, which came to `rc`: hands the port out, or closes what there is of it, and
 * frl_last_error() still tells why. Returns `rc`. */
int nic_opened(struct port *port, int rc, struct port **ret_port);

#endif
