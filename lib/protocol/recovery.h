/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens when an answer does not come: timers and retry counts of the requester. Others
 * report events; only recovery.c knows which deadline moves. IBTA volume 1, 9.7.6.1 and 9.7.5.2.8.
 *
 * Timers, of RC only:
 *   local ACK timeout  runs while packets are unacknowledged or responses missing, and no RNR wait
 *                      is on; started by the first packet sent, or by one that the port had no
 *                      room for, restarted by progress. When it fires, everything unacked is
 *                      sent again and a retry is used up. It doubles with each firing in a row,
 *                      up to 16 times, so that a peer that does something else is not flooded.
 *   probe              inside the ACK timeout, which it leaves as it is: when nothing is
 *                      acknowledged for two round trips, the oldest packet that is not is sent
 *                      once more and asks for an acknowledgement; then after twice, four times as
 *                      long, and so on. It uses up no retry. What was a duplicate is acknowledged,
 *                      with all that came before it. If it is the one that was missing, all that
 *                      was sent before it is lost as well: what a peer takes comes in order. So
 *                      when the acknowledgement ends with the probe, and nothing more comes for a
 *                      round trip (and at least 1 ms), all that is not acknowledged is sent again.
 *                      Not while a READ or atomic is outstanding: then the second such
 *                      acknowledgement in a row, and those behind it, leave the ACK timeout as it
 *                      is, and that uses up no retry. The next wait is doubled until a round trip
 *                      could be measured. Not where nothing is lost on the way, not for READs and
 *                      atomics, whose answers may be long, nor for payload that has to be fetched
 *                      first, and not before there is a round trip time.
 *   RNR wait           from a receiver-not-ready NAK until the time it asked for has passed, or the
 *                      window moves over what was refused.
 */
#ifndef FERRULE_PROTOCOL_RECOVERY_H
#define FERRULE_PROTOCOL_RECOVERY_H

#include "lib/protocol/qp.h"

void recovery_init(struct qp *qp);
void recovery_on_sent(struct qp *qp, uint64_t now_ns);
/* `una` moved. */
void recovery_on_progress(struct qp *qp, uint64_t now_ns);
/* The packet at `una`, or the response to it, was lost: a NAK says so, or an answer implies it.
 * False: nothing is to be sent again because of that. */
bool recovery_on_loss(struct qp *qp, uint64_t now_ns);
/* The packet at `una` has been sent once more because a probe was due. */
void recovery_on_probe(struct qp *qp);
/* The peer asks for the packet `psn`; everything before it has been taken. */
void recovery_on_nak(struct qp *qp, struct psn psn, uint64_t now_ns);
/* The response at `una` came and was thrown away here, for want of room: it is asked for again.
 * Neither the peer nor the network is to blame. */
void recovery_repeat(struct qp *qp, uint64_t now_ns);
/* The packet `psn` found no receive request; it is at `una`, or responses are missing before it. */
void recovery_on_rnr_nak(struct qp *qp, struct psn psn, uint8_t timer_code, uint64_t now_ns);
void recovery_stop(struct qp *qp);
/* How long a packet that is never answered is tried; 0: for ever. */
uint64_t recovery_gives_up_after(const struct qp *qp);

static inline bool recovery_waits_for_receiver(const struct qp *qp)
{
	return qp->recovery.rnr_deadline_ns != DEADLINE_NONE;
}

#endif
