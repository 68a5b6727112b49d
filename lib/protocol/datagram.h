/* SPDX-License-Identifier: BSD-3-Clause */
/* Where datagrams go. IBTA volume 1, 11.2.2. */
#ifndef FERRULE_PROTOCOL_DATAGRAM_H
#define FERRULE_PROTOCOL_DATAGRAM_H

#include <stdint.h>

#include "lib/wire/packet.h"

/* An address handle: headers but for the UDP source port, which depends on both queue pairs. */
struct address_handle {
	const void *pd;
	uint16_t link; /* the port's, or that of loopback */
	uint32_t flow_label;
	struct wire_path path;
};

/* The same for one request, which thus outlives the handle. */
struct datagram_target {
	struct wire_path path;
	uint16_t link;
	uint32_t qpn;
	uint32_t qkey;
};

#endif
