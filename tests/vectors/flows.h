/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connections in a recorded file: for each queue pair that was sent RC requests, those requests
 * and what they were answered with, in the order in which they were seen. Packets with a wrong ICRC
 * or of another transport are left out.
 */
#ifndef FERRULE_TESTS_VECTORS_FLOWS_H
#define FERRULE_TESTS_VECTORS_FLOWS_H

#include "lib/wire/packet.h"

enum {
	FLOWS_MAX = 16,
	FLOW_PACKETS_MAX = 1024,
};

struct flow_packet {
	struct wire_packet packet; /* points into `frame` */
	uint8_t *frame;
	uint32_t position; /* in the file */
};

struct flow {
	struct frl_ip requester, responder;
	uint32_t responder_qpn;
	uint32_t mtu;     /* of the longest packet inside a message; 4096 if there is none */
	struct psn first; /* PSN of the first request */
	uint32_t psns;    /* that the requests use, from there on */
	uint32_t n_requests, n_answers;
	struct flow_packet requests[FLOW_PACKETS_MAX];
	struct flow_packet answers[FLOW_PACKETS_MAX];
};

struct flows {
	uint32_t n;
	struct flow flows[FLOWS_MAX];
};

/* Static storage, one file at a time. NULL: the file cannot be read, or has too much in it. */
struct flows *flows_load(const char *path);

/* How many PSNs a request packet uses. */
uint32_t flow_psns(const struct flow *flow, const struct wire_packet *request);

#endif
