/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Responder resources: READs and atomics, kept to send their responses and to answer duplicate
 * requests. A READ is executed again for a duplicate; an atomic is executed only once (9.4.5).
 *
 *	 saved_tail - FRL_MAX_RD_ATOMIC          first pending             saved_tail
 *	----|--------------------------------------|-------------------------|----
 *	    | kept for duplicates                  | responses to be sent,   |
 *	    |                                      | oldest PSN first        |
 *
 * All slots of the ring stay in use, whatever max_dest_rd_atomic (n_saved) is. That limits how
 * many may wait for their first response. A replay is pending wherever its entry is.
 */
#include "lib/protocol/qp_internal.h"

#include <assert.h>
#include <string.h>

enum { SLOT_MASK = FRL_MAX_RD_ATOMIC - 1 };

_Static_assert((FRL_MAX_RD_ATOMIC & SLOT_MASK) == 0, "positions in the ring run freely");

/*
 * Converts the PSN of an arriving packet to an ordinal. Entries may be of any age, but psn_diff()
 * is valid only for distances below 2^23. Arriving PSNs are compared with the expected PSN first.
 */
static uint64_t ordinal_of(const struct responder *r, struct psn psn)
{
	return r->ordinal + (uint64_t)(int64_t)psn_diff(psn, r->epsn);
}

static struct saved_request *slot_at(const struct responder *r, uint32_t position)
{
	return &r->saved[position & SLOT_MASK];
}

/* Returns the pending entry with the oldest PSN, or NULL. */
static struct saved_request *oldest_pending(const struct responder *r)
{
	if (r->n_pending == 0)
		return 0;
	for (uint32_t at = r->saved_cursor; at != r->saved_tail; at++) {
		struct saved_request *saved = slot_at(r, at);

		if (saved->pending)
			return saved;
	}
	return 0;
}

bool saved_has_room(const struct qp *qp)
{
	const struct responder *r = &qp->responder;
	uint32_t waiting = 0;

	if (r->n_pending < r->n_saved)
		return true;
	for (uint32_t i = 0; i < FRL_MAX_RD_ATOMIC; i++)
		waiting += r->saved[i].pending && !r->saved[i].answered;
	return waiting < r->n_saved;
}

struct saved_request *saved_add(struct qp *qp)
{
	struct responder *r = &qp->responder;
	struct saved_request *saved = slot_at(r, r->saved_tail);

	assert(saved_has_room(qp));
	/* An entry that is replaced was answered once. */
	r->n_pending -= saved->pending;
	*saved = (struct saved_request){ 0 };
	if (r->saved_tail - r->saved_cursor == FRL_MAX_RD_ATOMIC)
		r->saved_cursor++;
	r->saved_tail++;
	return saved;
}

static uint32_t position_of(const struct responder *r, const struct saved_request *saved)
{
	uint32_t newer = (r->saved_tail - 1 - (uint32_t)(saved - r->saved)) & SLOT_MASK;

	return r->saved_tail - 1 - newer;
}

/* Schedules the response packets [psn, end). */
static void start(struct responder *r, struct saved_request *saved, struct psn psn, struct psn end)
{
	uint32_t position = position_of(r, saved);

	if ((int32_t)(position - r->saved_cursor) < 0)
		r->saved_cursor = position;
	r->n_pending += !saved->pending;
	saved->pending = true;
	saved->next = saved->reply_first = psn;
	saved->reply_end = end;
}

void saved_start(struct qp *qp, struct saved_request *saved)
{
	saved->reply_length = saved->length;
	start(&qp->responder, saved, saved->first_psn, psn_add(saved->first_psn, saved->packets));
}

uint32_t qp_saved_psns(const struct qp *qp)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < FRL_MAX_RD_ATOMIC; i++)
		n += qp->responder.saved[i].packets;
	return n;
}

bool saved_newer(const struct qp *qp, struct psn psn)
{
	const struct responder *r = &qp->responder;
	const struct saved_request *newest = slot_at(r, r->saved_tail - 1);

	return newest->packets && (int64_t)(newest->first_ordinal - ordinal_of(r, psn)) > 0;
}

/* Returns the entry with this PSN, which must be within 2^23 of the expected PSN, or NULL. */
static struct saved_request *find(const struct responder *r, struct psn psn)
{
	uint64_t ordinal = ordinal_of(r, psn);

	for (uint32_t i = 0; i < FRL_MAX_RD_ATOMIC; i++) {
		struct saved_request *saved = &r->saved[i];

		if (ordinal - saved->first_ordinal < saved->packets)
			return saved;
	}
	return 0;
}

/* Computes where a duplicate of the READ, or of its tail, starts. Returns false if it differs from
 * the original request. */
static bool read_offset(const struct qp *qp, const struct saved_request *saved,
	const struct wire_packet *packet, uint32_t *ret_offset)
{
	const struct reth *reth = &packet->h.reth;
	uint32_t k = (uint32_t)psn_diff(packet->h.bth.psn, saved->first_psn);
	uint32_t offset = k * qp->path_mtu;

	/* Without bytes there is no key to compare: only an empty READ has an empty duplicate. */
	if (reth->dma_length == 0 && saved->length != 0)
		return false;
	if (reth->dma_length > saved->length - offset)
		return false;
	if (reth->dma_length && (reth->rkey != saved->rkey || reth->va != saved->va + offset))
		return false;
	*ret_offset = offset;
	return true;
}

void saved_replay(struct qp *qp, const struct wire_packet *packet)
{
	struct responder *r = &qp->responder;
	struct saved_request *saved = find(r, packet->h.bth.psn);
	bool atomic = packet->op->operation == OPERATION_ATOMIC;
	uint32_t offset = 0;

	if (!saved || saved->atomic != atomic || packet->payload_len ||
		(!atomic && !read_offset(qp, saved, packet, &offset))) {
		qp->stats->drop_no_replay++;
		return;
	}
	qp->stats->replays++;
	saved->msn = r->msn;
	if (atomic)
		saved_start(qp, saved);
	else {
		uint32_t length = packet->h.reth.dma_length;

		saved->reply_length = offset + length;
		start(r, saved, packet->h.bth.psn,
			psn_add(packet->h.bth.psn, packets_for(length, qp->path_mtu)));
	}
}

bool saved_pending_until(const struct qp *qp, struct psn psn)
{
	const struct responder *r = &qp->responder;
	const struct saved_request *saved = oldest_pending(r);
	uint64_t next;

	if (!saved)
		return false;
	next = saved->first_ordinal + (uint32_t)psn_diff(saved->next, saved->first_psn);
	return (int64_t)(next - ordinal_of(r, psn)) <= 0;
}

static void finish(struct responder *r, struct saved_request *saved)
{
	r->saved_cursor = position_of(r, saved) + 1;
	saved->pending = false;
	saved->answered = true;
	r->n_pending--;
}

static uint8_t read_opcode(bool first, bool last)
{
	if (first)
		return last ? OP_READ_RESP_ONLY : OP_READ_RESP_FIRST;
	return last ? OP_READ_RESP_LAST : OP_READ_RESP_MIDDLE;
}

/* Fills in the headers of a response, without payload. Unused pieces are not cleared. */
static void make_response(const struct qp *qp, const struct saved_request *saved, uint8_t opcode,
	struct packet_out *out)
{
	out->h = (struct wire_headers){
		.bth = {
			.opcode = opcode,
			.migrated = true,
			.pkey = qp->pkey,
			.dest_qpn = qp->dest_qpn,
			.psn = saved->next,
		},
		.aeth = { AETH_ACK | AETH_CREDITS_NONE, saved->msn },
	};
	out->payload_len = 0;
	out->n_pieces = 0;
	out->response = true;
	out->target = 0;
}

/* A READ that fails in the middle gets a NAK in place of a response (9.7.5.2). A replay may fail
 * legitimately, since the region may be removed after the first response. */
static void give_up_read(struct qp *qp, struct saved_request *saved)
{
	struct psn psn = saved->next;

	if (saved->answered) {
		finish(&qp->responder, saved);
		qp->stats->drop_no_replay++;
		return;
	}
	saved_reset(qp);
	responder_refuse(qp, NAK_REMOTE_ACCESS, FRL_WC_SUCCESS, psn);
}

static bool output_read(struct qp *qp, struct saved_request *saved, struct packet_out *out)
{
	uint32_t offset = (uint32_t)psn_diff(saved->next, saved->first_psn) * qp->path_mtu;
	bool last = psn_equal(psn_next(saved->next), saved->reply_end);
	uint32_t length = last ? saved->reply_length - offset : qp->path_mtu;
	const struct region *region = 0;

	if (length) {
		region = region_remote(qp->regions, qp->pd, qp, saved->rkey, saved->va + offset,
			length, FRL_ACCESS_REMOTE_READ);
		if (!region) {
			give_up_read(qp, saved);
			return false;
		}
	}
	make_response(
		qp, saved, read_opcode(psn_equal(saved->next, saved->reply_first), last), out);
	if (length) {
		out->payload_len = length;
		out->n_pieces = 1;
		/* A window may be invalidated by the time the packet is sent. Its region cannot be
		 * gone. */
		out->pieces[0] = (struct packet_piece){
			.addr = region_memory(region, saved->va + offset),
			.length = length,
			.region = region->is_window ? region->parent : region,
		};
	}
	saved->next = psn_next(saved->next);
	if (last)
		finish(&qp->responder, saved);
	return true;
}

bool saved_output(struct qp *qp, struct packet_out *out)
{
	struct saved_request *saved = oldest_pending(&qp->responder);

	if (!saved->atomic)
		return output_read(qp, saved, out);
	make_response(qp, saved, OP_ATOMIC_ACK, out);
	out->h.atomic_original = saved->original;
	finish(&qp->responder, saved);
	return true;
}

void saved_reset(struct qp *qp)
{
	struct responder *r = &qp->responder;

	if (qp->type != FRL_QPT_RC)
		return;
	memset(r->saved, 0, FRL_MAX_RD_ATOMIC * sizeof(*r->saved));
	r->saved_tail = 0;
	r->saved_cursor = 0;
	r->n_pending = 0;
}
