/* SPDX-License-Identifier: BSD-3-Clause */
/* Destinations of datagrams. IBTA volume 1, 11.2.2. */
#ifndef FERRULE_PROTOCOL_DATAGRAM_H
#define FERRULE_PROTOCOL_DATAGRAM_H

#include <stdint.h>

#include "lib/wire/packet.h"

/* An address handle: headers without the UDP source port, which depends on both queue pairs. */
struct address_handle {
	const void *pd;
	uint16_t link; /* of the port, or the loopback link */
	uint32_t flow_label;
	struct wire_path path;
};

/* Copy for one request, so the request outlives the handle. */
struct datagram_target {
	struct wire_path path;
	uint16_t link;
	uint32_t qpn;
	uint32_t qkey;
};

#endif
