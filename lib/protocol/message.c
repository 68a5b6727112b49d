/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Received SENDs and WRITEs, of RC and UC: checks of a packet, and how it is accepted. The state
 * of the message is in struct responder.
 */
#include "lib/protocol/qp_internal.h"

enum responder_message message_kind(const struct wire_packet *packet)
{
	switch (packet->op->operation) {
	case OPERATION_SEND: return MESSAGE_SEND;
	case OPERATION_WRITE: return MESSAGE_WRITE;
	default: return MESSAGE_NONE;
	}
}

/* C9-92 and following: first and middle packets carry one MTU, last ones 1 byte to one MTU. */
static bool payload_fits_position(const struct qp *qp, const struct wire_packet *packet)
{
	uint32_t length = packet->payload_len;

	if (!(packet->op->flags & OPCODE_LAST))
		return length == qp->path_mtu;
	if (packet->op->flags & OPCODE_FIRST)
		return length <= qp->path_mtu;
	return length >= 1 && length <= qp->path_mtu;
}

bool message_length_fits(const struct qp *qp, const struct wire_packet *packet)
{
	const struct responder *r = &qp->responder;
	bool first = packet->op->flags & OPCODE_FIRST;
	uint32_t total = first ? packet->h.reth.dma_length : r->write_length;
	uint32_t done = first ? 0 : r->offset;

	if (!payload_fits_position(qp, packet))
		return false;
	if (packet->op->operation == OPERATION_SEND)
		return true;
	/* All packets together must have the length of the RETH. */
	if (total > WIRE_MAX_MESSAGE)
		return false;
	if (packet->op->flags & OPCODE_LAST)
		return total - done == packet->payload_len;
	return total - done > packet->payload_len;
}

enum receive_verdict message_check_receive(const struct qp *qp, const struct wire_packet *packet)
{
	uint32_t offset = packet->op->flags & OPCODE_FIRST ? 0 : qp->responder.offset;

	return receive_check(qp, receive_peek(qp), offset, packet->payload_len);
}

/* Returns the region of a WRITE's payload, or NULL if the WRITE is not allowed. The first packet
 * checks the whole range. The region may be gone when later packets arrive. */
static const struct region *write_region(const struct qp *qp, const struct wire_packet *packet)
{
	const struct responder *r = &qp->responder;
	bool first = packet->op->flags & OPCODE_FIRST;
	uint64_t va = first ? packet->h.reth.va : r->write_va;
	uint32_t rkey = first ? packet->h.reth.rkey : r->write_rkey;
	uint32_t length = first ? packet->h.reth.dma_length : r->write_length;

	return region_remote(qp->regions, qp->pd, qp, rkey, va, length, FRL_ACCESS_REMOTE_WRITE);
}

/* Without payload the address is not checked (C9-88). */
bool message_may_write(const struct qp *qp, const struct wire_packet *packet)
{
	bool first = packet->op->flags & OPCODE_FIRST;
	uint32_t length = first ? packet->h.reth.dma_length : qp->responder.write_length;

	return length == 0 || write_region(qp, packet);
}

static void start(struct qp *qp, const struct wire_packet *packet)
{
	struct responder *r = &qp->responder;

	r->message = message_kind(packet);
	r->offset = 0;
	if (r->message == MESSAGE_WRITE) {
		r->write_va = packet->h.reth.va;
		r->write_rkey = packet->h.reth.rkey;
		r->write_length = packet->h.reth.dma_length;
	} else
		receive_take(qp);
}

static void place_write(
	const struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	const struct responder *r = &qp->responder;
	const struct region *region;

	if (packet->payload_len == 0)
		return;
	/* message_may_write() has checked it. Its memory may be gone since. */
	region = region_find(qp->regions, r->write_rkey);
	placements->list[placements->count++] = (struct placement){
		.dst = region_memory(region, r->write_va + r->offset),
		.payload = packet->payload,
		.length = packet->payload_len,
		.region = region,
		.may_fault = region_may_unmap(region),
	};
}

void message_placed(struct qp *qp, const struct wire_packet *packet)
{
	struct frl_wc wc = {
		.status = FRL_WC_SUCCESS,
		.opcode = FRL_WC_RECV,
		.byte_len = qp->responder.offset,
	};

	if (packet->op->operation == OPERATION_WRITE)
		wc.opcode = FRL_WC_RECV_RDMA_WITH_IMM;
	if (packet->op->headers & HEADER_IMMDT) {
		wc.flags = FRL_WC_WITH_IMM;
		wc.imm_data = packet->h.imm_data;
	} else if (packet->op->headers & HEADER_IETH) {
		wc.flags = FRL_WC_WITH_INV;
		wc.invalidated_rkey = packet->h.invalidate_rkey;
		region_invalidate(qp->regions, wc.invalidated_rkey, qp);
	}
	if (!qp->responder.recv)
		receive_take(qp);
	receive_complete(qp, &wc, packet->h.bth.solicited);
}

void message_accept(struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	struct responder *r = &qp->responder;
	bool send = packet->op->operation == OPERATION_SEND;

	if (packet->op->flags & OPCODE_FIRST)
		start(qp, packet);
	if (send)
		receive_place(qp, placements, r->offset, packet->payload, packet->payload_len);
	else
		place_write(qp, packet, placements);
	r->offset += packet->payload_len;
	qp_accepted(qp);
	if (!(packet->op->flags & OPCODE_LAST))
		return;
	r->message = MESSAGE_NONE;
	if (send || (packet->op->headers & HEADER_IMMDT))
		placements->completes = COMPLETES_MESSAGE;
}
