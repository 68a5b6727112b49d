/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers and retries of the requester. Other files report events; only recovery.c sets deadlines.
 * IBTA volume 1, 9.7.6.1 and 9.7.5.2.8.
 *
 * Timers, for RC only:
 *
 * - Local ACK timeout: runs while packets are unacknowledged or responses are missing, except
 *   during an RNR wait. The first packet sent starts it, also a packet that the port had no room
 *   for. Progress restarts it. On expiry everything unacknowledged is sent again, and a retry is
 *   used up. Consecutive timeouts double it, up to 16 times, so that a busy peer is not flooded.
 *
 * - Probe: runs within the ACK timeout and does not change it. If nothing is acknowledged for two
 *   round trips, the oldest unacknowledged packet is sent once more with AckReq. Further probes
 *   follow after twice that time, four times, and so on, until a round trip is measured. A probe
 *   uses up no retry. If the packet was a duplicate, the ACK covers everything received before. If
 *   the ACK ends with the probe, the packet was missing, and later ones may be missing, too. If no
 *   other ACK follows for a round trip (at least 1 ms), everything unacknowledged is sent again.
 *   While a READ or atomic is outstanding there is no such retransmission. The second such ACK in
 *   a row and later ones then leave the ACK timeout running. Its expiry uses up no retry in that
 *   case.
 *   No probes are sent on lossless links, for READs and atomics (whose responses may be long), for
 *   payload that must be fetched first, or before a round trip was measured.
 *
 * - RNR wait: from a receiver-not-ready NAK until its time has passed, or until the window moves
 *   past the refused packet.
 */
#ifndef FERRULE_PROTOCOL_RECOVERY_H
#define FERRULE_PROTOCOL_RECOVERY_H

#include "lib/protocol/qp.h"

void recovery_init(struct qp *qp);
void recovery_on_sent(struct qp *qp, uint64_t now_ns);
/* `una` moved. */
void recovery_on_progress(struct qp *qp, uint64_t now_ns);
/* The packet at `una`, or its response, was lost: a NAK reports or a response implies it. Returns
 * false if this causes no retransmission. */
bool recovery_on_loss(struct qp *qp, uint64_t now_ns);
/* A probe of the packet at `una` was sent. */
void recovery_on_probe(struct qp *qp);
/* A sequence NAK asks for the packet `psn`. Everything before it was received. */
void recovery_on_nak(struct qp *qp, struct psn psn, uint64_t now_ns);
/* The response at `una` arrived and was dropped here for lack of room: requests it again. Uses up
 * no retry. */
void recovery_repeat(struct qp *qp, uint64_t now_ns);
/* The packet `psn` found no receive request. It is at `una`, or responses before it are missing. */
void recovery_on_rnr_nak(struct qp *qp, struct psn psn, uint8_t timer_code, uint64_t now_ns);
void recovery_stop(struct qp *qp);
/* Returns how long an unanswered packet is retried; 0: without limit. */
uint64_t recovery_gives_up_after(const struct qp *qp);

static inline bool recovery_waits_for_receiver(const struct qp *qp)
{
	return qp->recovery.rnr_deadline_ns != DEADLINE_NONE;
}

#endif
