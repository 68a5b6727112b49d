/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Explains in sentences what a queue pair waits for. Pure: takes the reports of both ends, and
 * writes text.
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

/* The progress of packets in one direction, from the PSNs of both ends. */
struct why_direction {
	bool disagree;    /* the receiver expects none of the PSNs that the sender may still send */
	uint32_t missing; /* sent, not accepted: lost, or under way */
	uint32_t unacked; /* accepted, but not acknowledged to the sender */
};

/* `send_psn`, `acked_psn`: of the sender; `recv_psn`: of the receiver. */
struct why_direction why_compare(uint32_t send_psn, uint32_t acked_psn, uint32_t recv_psn);

struct why {
	char lines[WHY_LINES][WHY_TEXT];
	unsigned n_lines;
	char diagnosis[WHY_TEXT];
};

/* `conn` and `peer` may be NULL. Without `peer`, `peer_error` is the reason. */
void why_explain(struct why *why, const Ctl__QpInfo *qp, const Ctl__ConnInfo *conn,
	const Ctl__QpInfo *peer, const char *peer_error);

#endif
