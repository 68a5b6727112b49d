/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Predicates of the fast paths. A caller still takes the general path if there is no room in the
 * queue, or if the region does not allow the access. The general path gives the same result for
 * all of these requests: same packets, placements and state. test_fast_send.c and
 * test_fast_receive.c in tests/unit/protocol check that. Private to lib/protocol.
 */
#ifndef FERRULE_PROTOCOL_FAST_PATH_H
#define FERRULE_PROTOCOL_FAST_PATH_H

#include "lib/protocol/qp_internal.h"

enum {
	FAST_FLAGS = FRL_SEND_SIGNALED | FRL_SEND_SOLICITED,
	FAST_OPCODES = 1 << FRL_WR_SEND | 1 << FRL_WR_SEND_WITH_IMM | 1 << FRL_WR_SEND_WITH_INV |
		1 << FRL_WR_RDMA_WRITE | 1 << FRL_WR_RDMA_WRITE_WITH_IMM,
};

/*
 * Posting: SENDs and WRITEs of RC with payload in one element, neither inline nor fenced. The
 * general path, post(), also copies inline data, sums the elements, skips empty ones and stores
 * operands of other opcodes. It flushes requests after an error, and reports why one is refused.
 */
static inline bool takes_fast_post(const struct qp *qp, const struct frl_send_wr *wr)
{
	const struct frl_sge *sge = wr->sge;

	return qp->type == FRL_QPT_RC && qp_sends(qp) &&
		(unsigned)wr->opcode <= FRL_WR_SEND_WITH_INV && (FAST_OPCODES >> wr->opcode & 1) &&
		!(wr->flags & ~(uint32_t)FAST_FLAGS) && wr->n_sge == 1 && sge && sge->length &&
		qp->max_send_sge && region_local(qp->regions, qp->pd, sge, 0);
}

/*
 * Sending: packets of such a request that are sent for the first time. The general path,
 * build_packet(), also retransmits (which counts it and retains no payload), gathers several
 * elements, builds READs, atomics and datagrams, and fails a request whose region is gone.
 */
static inline bool takes_fast_output(const struct requester *r, const struct send_wqe *wqe)
{
	return wqe->fast && psn_equal(r->next, r->sent_end);
}

/*
 * Receiving: a WRITE packet without immediate data, next in order, with the length that its
 * position in the message requires, at least one byte. `first` and `last` come from the opcode.
 * The general path, take_request(), also handles empty WRITEs and all other opcodes, answers
 * duplicates and gaps, and refuses invalid requests.
 */
static inline bool takes_fast_write(
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
