/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Responder resources: READs and atomics, kept to send their responses and to answer duplicate
 * requests. A READ is executed again for a duplicate; an atomic is executed only once (9.4.5).
 *
 *	 resource_tail - FRL_MAX_RD_ATOMIC          first pending             resource_tail
 *	----|--------------------------------------|-------------------------|----
 *	    | kept for duplicates                  | responses to be sent,   |
 *	    |                                      | oldest PSN first        |
 *
 * All slots of the ring stay in use, whatever max_dest_rd_atomic (n_resources) is. That limits how
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

static struct responder_resource *slot_at(const struct responder *r, uint32_t position)
{
	return &r->resources[position & SLOT_MASK];
}

/* Returns the pending entry with the oldest PSN, or NULL. */
static struct responder_resource *oldest_pending(const struct responder *r)
{
	if (r->n_pending == 0)
		return 0;
	for (uint32_t at = r->resource_cursor; at != r->resource_tail; at++) {
		struct responder_resource *resource = slot_at(r, at);

		if (resource->pending)
			return resource;
	}
	return 0;
}

bool resource_has_room(const struct qp *qp)
{
	const struct responder *r = &qp->responder;
	uint32_t waiting = 0;

	if (r->n_pending < r->n_resources)
		return true;
	for (uint32_t i = 0; i < FRL_MAX_RD_ATOMIC; i++)
		waiting += r->resources[i].pending && !r->resources[i].answered;
	return waiting < r->n_resources;
}

struct responder_resource *resource_add(struct qp *qp)
{
	struct responder *r = &qp->responder;
	struct responder_resource *resource = slot_at(r, r->resource_tail);

	assert(resource_has_room(qp));
	/* An entry that is replaced was answered once. */
	r->n_pending -= resource->pending;
	*resource = (struct responder_resource){ 0 };
	if (r->resource_tail - r->resource_cursor == FRL_MAX_RD_ATOMIC)
		r->resource_cursor++;
	r->resource_tail++;
	return resource;
}

void resource_withdraw(struct qp *qp)
{
	struct responder *r = &qp->responder;
	struct responder_resource *resource = slot_at(r, r->resource_tail - 1);

	r->n_pending -= resource->pending;
	*resource = (struct responder_resource){ 0 };
}

static uint32_t position_of(const struct responder *r, const struct responder_resource *resource)
{
	uint32_t newer = (r->resource_tail - 1 - (uint32_t)(resource - r->resources)) & SLOT_MASK;

	return r->resource_tail - 1 - newer;
}

/* Schedules the response packets [psn, end). */
static void start(
	struct responder *r, struct responder_resource *resource, struct psn psn, struct psn end)
{
	uint32_t position = position_of(r, resource);

	if ((int32_t)(position - r->resource_cursor) < 0)
		r->resource_cursor = position;
	r->n_pending += !resource->pending;
	resource->pending = true;
	resource->next = resource->reply_first = psn;
	resource->reply_end = end;
}

void resource_start(struct qp *qp, struct responder_resource *resource)
{
	resource->reply_length = resource->length;
	start(&qp->responder, resource, resource->first_psn,
		psn_add(resource->first_psn, resource->packets));
}

uint32_t qp_resource_psns(const struct qp *qp)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < FRL_MAX_RD_ATOMIC; i++)
		n += qp->responder.resources[i].packets;
	return n;
}

bool resource_newer(const struct qp *qp, struct psn psn)
{
	const struct responder *r = &qp->responder;
	const struct responder_resource *newest = slot_at(r, r->resource_tail - 1);

	return newest->packets && (int64_t)(newest->first_ordinal - ordinal_of(r, psn)) > 0;
}

/* Returns the entry with this PSN, which must be within 2^23 of the expected PSN, or NULL. */
static struct responder_resource *find(const struct responder *r, struct psn psn)
{
	uint64_t ordinal = ordinal_of(r, psn);

	for (uint32_t i = 0; i < FRL_MAX_RD_ATOMIC; i++) {
		struct responder_resource *resource = &r->resources[i];

		if (ordinal - resource->first_ordinal < resource->packets)
			return resource;
	}
	return 0;
}

/* Computes where a duplicate of the READ, or of its tail, starts. Returns false if it differs from
 * the original request. */
static bool read_offset(const struct qp *qp, const struct responder_resource *resource,
	const struct wire_packet *packet, uint32_t *ret_offset)
{
	const struct reth *reth = &packet->h.reth;
	uint32_t k = (uint32_t)psn_diff(packet->h.bth.psn, resource->first_psn);
	uint32_t offset = k * qp->path_mtu;

	/* Without bytes there is no key to compare: only an empty READ has an empty duplicate. */
	if (reth->dma_length == 0 && resource->length != 0)
		return false;
	if (reth->dma_length > resource->length - offset)
		return false;
	if (reth->dma_length && (reth->rkey != resource->rkey || reth->va != resource->va + offset))
		return false;
	*ret_offset = offset;
	return true;
}

void resource_replay(struct qp *qp, const struct wire_packet *packet)
{
	struct responder *r = &qp->responder;
	struct responder_resource *resource = find(r, packet->h.bth.psn);
	bool atomic = packet->op->operation == OPERATION_ATOMIC;
	uint32_t offset = 0;

	if (!resource || resource->atomic != atomic || packet->payload_len ||
		(!atomic && !read_offset(qp, resource, packet, &offset))) {
		qp->stats->drop_no_replay++;
		return;
	}
	qp->stats->replays++;
	resource->msn = r->msn;
	if (atomic)
		resource_start(qp, resource);
	else {
		uint32_t length = packet->h.reth.dma_length;

		resource->reply_length = offset + length;
		start(r, resource, packet->h.bth.psn,
			psn_add(packet->h.bth.psn, packets_for(length, qp->path_mtu)));
	}
}

bool resource_pending_until(const struct qp *qp, struct psn psn)
{
	const struct responder *r = &qp->responder;
	const struct responder_resource *resource = oldest_pending(r);
	uint64_t next;

	if (!resource)
		return false;
	next = resource->first_ordinal + (uint32_t)psn_diff(resource->next, resource->first_psn);
	return (int64_t)(next - ordinal_of(r, psn)) <= 0;
}

static void finish(struct responder *r, struct responder_resource *resource)
{
	r->resource_cursor = position_of(r, resource) + 1;
	resource->pending = false;
	resource->answered = true;
	r->n_pending--;
}

static uint8_t read_opcode(bool first, bool last)
{
	if (first)
		return last ? OP_READ_RESP_ONLY : OP_READ_RESP_FIRST;
	return last ? OP_READ_RESP_LAST : OP_READ_RESP_MIDDLE;
}

/* Fills in the headers of a response, without payload. Unused pieces are not cleared. */
static void make_response(const struct qp *qp, const struct responder_resource *resource,
	uint8_t opcode, struct packet_out *out)
{
	out->h = (struct wire_headers){
		.bth = {
			.opcode = opcode,
			.migrated = true,
			.pkey = qp->pkey,
			.dest_qpn = qp->dest_qpn,
			.psn = resource->next,
		},
		.aeth = { AETH_ACK | AETH_CREDITS_NONE, resource->msn },
	};
	out->payload_len = 0;
	out->n_pieces = 0;
	out->response = true;
	out->target = 0;
}

/* A READ that fails in the middle gets a NAK in place of a response (9.7.5.2). A replay may fail
 * legitimately, since the region may be removed after the first response. */
static void give_up_read(struct qp *qp, struct responder_resource *resource)
{
	struct psn psn = resource->next;

	if (resource->answered) {
		finish(&qp->responder, resource);
		qp->stats->drop_no_replay++;
		return;
	}
	resource_reset(qp);
	responder_refuse(qp, NAK_REMOTE_ACCESS, FRL_WC_SUCCESS, psn);
}

static bool output_read(struct qp *qp, struct responder_resource *resource, struct packet_out *out)
{
	uint32_t offset = (uint32_t)psn_diff(resource->next, resource->first_psn) * qp->path_mtu;
	bool last = psn_equal(psn_next(resource->next), resource->reply_end);
	uint32_t length = last ? resource->reply_length - offset : qp->path_mtu;
	const struct region *region = 0;

	if (length) {
		region = region_remote(qp->regions, qp->pd, qp, resource->rkey,
			resource->va + offset, length, FRL_ACCESS_REMOTE_READ);
		if (!region) {
			give_up_read(qp, resource);
			return false;
		}
	}
	make_response(qp, resource,
		read_opcode(psn_equal(resource->next, resource->reply_first), last), out);
	if (length) {
		out->payload_len = length;
		out->n_pieces = 1;
		/* A window may be invalidated by the time the packet is sent. Its region cannot be
		 * gone. */
		out->pieces[0] = (struct packet_piece){
			.addr = region_memory(region, resource->va + offset),
			.length = length,
			.region = region->is_window ? region->parent : region,
		};
	}
	resource->next = psn_next(resource->next);
	if (last)
		finish(&qp->responder, resource);
	return true;
}

bool resource_output(struct qp *qp, struct packet_out *out)
{
	struct responder_resource *resource = oldest_pending(&qp->responder);

	if (!resource->atomic)
		return output_read(qp, resource, out);
	make_response(qp, resource, OP_ATOMIC_ACK, out);
	out->h.atomic_original = resource->original;
	finish(&qp->responder, resource);
	return true;
}

void resource_reset(struct qp *qp)
{
	struct responder *r = &qp->responder;

	if (qp->type != FRL_QPT_RC)
		return;
	memset(r->resources, 0, FRL_MAX_RD_ATOMIC * sizeof(*r->resources));
	r->resource_tail = 0;
	r->resource_cursor = 0;
	r->n_pending = 0;
}
