/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which requests and packets take a fast path. Each decision is made here and nowhere else. The
 * general path takes all of them, too, with the same packets, placements and state, which
 * tests/unit/test_plain_receive.c checks. Private to lib/protocol.
 */
#ifndef FERRULE_PROTOCOL_PLAIN_H
#define FERRULE_PROTOCOL_PLAIN_H

#include "lib/protocol/qp_internal.h"

/*
 * Receiving: a WRITE without immediate, or a part of one, that is next in order and has as many
 * bytes as its place in the message requires, at least one. The opcode says whether it is the
 * `first` and the `last` packet. The general path, take_request(), also takes empty WRITEs and all
 * other opcodes, answers repetitions and gaps, and refuses what is wrong.
 */
static inline bool is_plain_write(
	const struct qp *qp, const struct wire_packet *packet, bool first, bool last)
{
	const struct responder *r = &qp->responder;
	uint32_t length = packet->payload_len;
	uint32_t left = first ? packet->h.reth.dma_length : r->write_length - r->offset;

	return psn_equal(packet->h.bth.psn, r->epsn) &&
		(qp->attr.access_flags & FRL_ACCESS_REMOTE_WRITE) &&
		r->message == (first ? MESSAGE_NONE : MESSAGE_WRITE) &&
		(last ? length == left && length <= qp->path_mtu
		      : length < left && length == qp->path_mtu && left <= WIRE_MAX_MESSAGE) &&
		length;
}

#endif
