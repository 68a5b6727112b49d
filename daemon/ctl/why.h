/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a queue pair waits for, in sentences. Pure: what both ends say about themselves comes in,
 * text goes out.
 */
#ifndef FERRULE_DAEMON_CTL_WHY_H
#define FERRULE_DAEMON_CTL_WHY_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/control/control.pb-c.h"

enum {
	WHY_LINES = 20,
	WHY_TEXT = 400,
};

/* How far the packets of one direction have come, by both ends' PSNs. */
struct why_direction {
	bool disagree;    /* the receiver expects none of what the sender may still send */
	uint32_t missing; /* sent, and not accepted: lost, or under way */
	uint32_t unheard; /* accepted, and the sender does not know it */
};

/* `send_psn`, `acked_psn` of the sender; `recv_psn` of the receiver. */
struct why_direction why_compare(uint32_t send_psn, uint32_t acked_psn, uint32_t recv_psn);

struct why {
	char lines[WHY_LINES][WHY_TEXT];
	unsigned n_lines;
	char diagnosis[WHY_TEXT];
};

/* `conn` and `peer` may be NULL; then `peer_error` says why there is no view of the peer's. */
void why_explain(struct why *why, const Ctl__QpInfo *qp, const Ctl__ConnInfo *conn,
	const Ctl__QpInfo *peer, const char *peer_error);

#endif
