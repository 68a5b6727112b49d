/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Responder of RC: classifies a request packet, then acts on the verdict. The order of the checks
 * is that of IBTA volume 1, 9.7.4.1 (figure 89 and following).
 *
 * Answers leave in PSN order: responses to READs and atomics (see responder_resources.c), and one
 * ACK or NAK, which waits for the responses before it. An ACK sent too early would tell the
 * requester that the responses before it are lost.
 */
#include "lib/protocol/fast_path.h"

enum {
	ACK_EVERY = 64, /* packets; some peers stop at a number of unacknowledged packets */
	POSITIVE = AETH_ACK | AETH_CREDITS_NONE,
};

enum verdict {
	ACCEPT,
	DUPLICATE,
	GAP,              /* the first packet ahead of the expected one: NAK */
	GAP_REPEATED,     /* further ones: no answer (9.7.5.2.8) */
	NOT_READY,        /* no receive request */
	INVALID_SEQUENCE, /* opcode out of sequence, or not allowed */
	INVALID_REQUEST,
	TOO_LONG, /* for the receive request, or not a multiple of its element size */
	ACCESS_ERROR,
	OPERATIONAL_ERROR, /* the memory of the receive request is gone */
};

/* Returns the access right of the queue pair that the request needs. */
static uint32_t access_needed(const struct wire_packet *packet)
{
	switch (packet->op->operation) {
	case OPERATION_WRITE: return FRL_ACCESS_REMOTE_WRITE;
	case OPERATION_READ: return FRL_ACCESS_REMOTE_READ;
	case OPERATION_ATOMIC: return FRL_ACCESS_REMOTE_ATOMIC;
	default: return 0;
	}
}

static enum verdict classify_send(const struct qp *qp, const struct wire_packet *packet)
{
	switch (message_check_receive(qp, packet)) {
	case RECEIVE_FITS: break;
	case RECEIVE_TOO_LONG: return TOO_LONG;
	case RECEIVE_MEMORY_GONE: return OPERATIONAL_ERROR;
	}
	return ACCEPT;
}

/* Without payload the address is not checked (C9-88). */
static enum verdict classify_read(const struct qp *qp, const struct wire_packet *packet)
{
	const struct reth *reth = &packet->h.reth;

	if (packet->payload_len || reth->dma_length > WIRE_MAX_MESSAGE ||
		packets_for(reth->dma_length, qp->path_mtu) > MAX_QUEUED_PACKETS)
		return INVALID_REQUEST;
	if (reth->dma_length &&
		!region_remote(qp->regions, qp->pd, qp, reth->rkey, reth->va, reth->dma_length,
			FRL_ACCESS_REMOTE_READ))
		return ACCESS_ERROR;
	return ACCEPT;
}

static const struct region *atomic_region(const struct qp *qp, const struct atomic_eth *atomic)
{
	return region_remote(qp->regions, qp->pd, qp, atomic->rkey, atomic->va, ATOMIC_SIZE,
		FRL_ACCESS_REMOTE_ATOMIC);
}

static enum verdict classify_atomic(const struct qp *qp, const struct wire_packet *packet)
{
	const struct atomic_eth *atomic = &packet->h.atomic;
	const struct region *region;

	if (packet->payload_len)
		return INVALID_REQUEST;
	region = atomic_region(qp, atomic);
	if (!region)
		return ACCESS_ERROR;
	/* Aligned both in the peer's address space and in memory (9.4.5). */
	if ((atomic->va | (uintptr_t)region_memory(region, atomic->va)) % ATOMIC_SIZE != 0)
		return INVALID_REQUEST;
	return ACCEPT;
}

/* No side effects. */
static enum verdict classify(const struct qp *qp, const struct wire_packet *packet)
{
	const struct responder *r = &qp->responder;
	int32_t ahead = psn_diff(packet->h.bth.psn, r->epsn);
	enum responder_message kind = message_kind(packet);
	bool first = packet->op->flags & OPCODE_FIRST;

	if (ahead < 0)
		return DUPLICATE;
	if (ahead > 0)
		return r->nak_sent ? GAP_REPEATED : GAP;
	if (r->message != (first ? MESSAGE_NONE : kind))
		return INVALID_SEQUENCE;
	if (access_needed(packet) & ~qp->attr.access_flags)
		return INVALID_SEQUENCE;
	if (kind == MESSAGE_NONE && !resource_has_room(qp))
		return INVALID_SEQUENCE;
	if ((packet->op->flags & OPCODE_TAKES_RECV) && !receive_available(qp))
		return NOT_READY;
	switch (packet->op->operation) {
	case OPERATION_READ: return classify_read(qp, packet);
	case OPERATION_ATOMIC: return classify_atomic(qp, packet);
	case OPERATION_UNSUPPORTED: return INVALID_SEQUENCE;
	default: break;
	}
	if (!message_length_fits(qp, packet))
		return INVALID_REQUEST;
	if (kind == MESSAGE_SEND)
		return classify_send(qp, packet);
	return message_may_write(qp, packet) ? ACCEPT : ACCESS_ERROR;
}

static void answer(struct qp *qp, uint8_t syndrome, struct psn psn)
{
	struct responder *r = &qp->responder;

	r->ack_pending = true;
	r->ack_syndrome = syndrome;
	r->ack_psn = psn;
	r->unacked = 0;
}

static bool nak_pending(const struct responder *r)
{
	return r->ack_pending && (r->ack_syndrome & AETH_TYPE_MASK) != AETH_ACK;
}

void responder_refuse(
	struct qp *qp, enum nak_code code, enum frl_wc_status recv_status, struct psn psn)
{
	static const enum frl_event_type events[] = {
		[NAK_INVALID_REQUEST] = FRL_EVENT_QP_REQ_ERR,
		[NAK_REMOTE_ACCESS] = FRL_EVENT_QP_ACCESS_ERR,
		[NAK_REMOTE_OPERATIONAL] = FRL_EVENT_QP_FATAL,
	};
	static const char *const reasons[] = {
		[NAK_INVALID_REQUEST] =
			"the peer sent an invalid request: access flags forbid it, more "
			"READs than agreed, or longer than the receive",
		[NAK_REMOTE_ACCESS] =
			"the peer requested memory that it may not access: wrong key, "
			"range or access rights, or unmapped memory",
		[NAK_REMOTE_OPERATIONAL] =
			"the memory of a posted receive is gone: it was deregistered or unmapped "
			"too early",
	};

	qp_explain(qp, reasons[code]);
	if (recv_status != FRL_WC_SUCCESS && receive_available(qp)) {
		struct frl_wc wc = { .status = recv_status, .byte_len = receive_placed(qp) };

		receive_take(qp);
		receive_complete(qp, &wc, false);
	} else if (qp->state != FRL_QPS_ERR)
		event_raise(qp->queues, &qp->events, events[code]);
	qp_fail_refused(qp);
	answer(qp, AETH_NAK | code, psn);
	qp->stats->naks_sent_fatal++;
}

/* Accepts `packets` PSNs. `last`: they end a message. */
static void advance(struct responder *r, uint32_t packets, bool last)
{
	r->epsn = psn_add(r->epsn, packets);
	r->ordinal += packets;
	r->nak_sent = false;
	if (last)
		r->msn = (r->msn + 1) & PSN_MASK;
}

/* Schedules an ACK if the accepted packet of a message needs one. */
static inline void acknowledge_when_due(struct qp *qp, const struct wire_packet *packet)
{
	struct responder *r = &qp->responder;

	r->unacked++;
	/* A pending NAK refused this very packet and must not be sent any more. */
	if (packet->h.bth.ack_request || nak_pending(r) || r->unacked >= ACK_EVERY)
		answer(qp, POSITIVE, packet->h.bth.psn);
}

static void accept_message(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	struct responder *r = &qp->responder;

	/* The message cannot complete as its sender requested (9.9.3, class J). Otherwise the key
	 * becomes invalid when the payload is placed. */
	if ((packet->op->headers & HEADER_IETH) &&
		!region_may_invalidate(qp->regions, packet->h.invalidate_rkey, qp)) {
		responder_refuse(qp, NAK_REMOTE_ACCESS, FRL_WC_REM_INV_REQ_ERR, packet->h.bth.psn);
		return;
	}
	advance(r, 1, packet->op->flags & OPCODE_LAST);
	message_accept(qp, packet, placements);
	/* If qp_placed() finds the completion queue full, no answer is sent (9.9.3). */
	acknowledge_when_due(qp, packet);
}

/* A READ or atomic counts as executed now. Its response acknowledges everything before it. */
static struct responder_resource *accept_resource(
	struct qp *qp, const struct wire_packet *packet, uint32_t packets)
{
	struct responder *r = &qp->responder;
	struct responder_resource *resource = resource_add(qp);

	resource->first_ordinal = r->ordinal;
	advance(r, packets, true);
	resource->first_psn = packet->h.bth.psn;
	resource->packets = packets;
	resource->msn = r->msn;
	r->ack_pending = false;
	r->unacked = 0;
	qp_accepted(qp);
	return resource;
}

static void accept_read(struct qp *qp, const struct wire_packet *packet)
{
	const struct reth *reth = &packet->h.reth;
	struct responder_resource *resource = accept_resource(
		qp, packet, packets_for(reth->dma_length, qp->path_mtu));

	resource->atomic = false;
	resource->va = reth->va;
	resource->rkey = reth->rkey;
	resource->length = reth->dma_length;
	resource_start(qp, resource);
	qp->stats->reads_served++;
}

static void accept_atomic(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	const struct atomic_eth *atomic = &packet->h.atomic;
	/* classify_atomic() has checked it. Its memory may be gone since. */
	const struct region *region = region_find(qp->regions, atomic->rkey);
	struct responder_resource *resource = accept_resource(qp, packet, 1);

	resource->atomic = true;
	resource_start(qp, resource);
	placements->atomic = (struct atomic_op){
		.addr = (uint64_t *)(void *)region_memory(region, atomic->va),
		.compare_swap = packet->h.bth.opcode == OP_CMP_SWAP,
		.compare = atomic->compare,
		.swap_add = atomic->swap_add,
		.region = region,
		.ret_original = &resource->original,
	};
	qp->stats->atomics_executed++;
}

static void accept_packet(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	switch (packet->op->operation) {
	case OPERATION_READ: accept_read(qp, packet); break;
	case OPERATION_ATOMIC: accept_atomic(qp, packet, placements); break;
	default: accept_message(qp, packet, placements); break;
	}
}

/*
 * Acknowledges a duplicate, normally with the PSN of the last accepted packet (9.7.5.1). If READs
 * or atomics came after the duplicate, such an ACK would imply that their responses are lost;
 * Linux even takes a READ's own PSN for a response. Only the duplicate is acknowledged then.
 */
static void acknowledge_again(struct qp *qp, struct psn psn)
{
	struct responder *r = &qp->responder;

	if (!resource_newer(qp, psn))
		psn = psn_add(r->epsn, PSN_MASK);
	/* A pending NAK has a later PSN and acknowledges the same packets. */
	if (!r->ack_pending || psn_diff(psn, r->ack_psn) > 0)
		answer(qp, POSITIVE, psn);
}

void responder_request_again(struct qp *qp)
{
	struct responder *r = &qp->responder;

	r->nak_sent = true;
	qp->stats->naks_sent_seq++;
	answer(qp, AETH_NAK | NAK_SEQUENCE, r->epsn);
}

static void repeat(struct qp *qp, const struct wire_packet *packet)
{
	qp->stats->duplicates++;
	if (packet->op->operation == OPERATION_UNSUPPORTED)
		qp->stats->drop_no_replay++;
	else if (message_kind(packet) == MESSAGE_NONE)
		resource_replay(qp, packet);
	else
		acknowledge_again(qp, packet->h.bth.psn);
}

/* Returns `status` if the packet is for a receive request (9.9.3, class C), else SUCCESS. */
static enum frl_wc_status current_receive(
	const struct qp *qp, const struct wire_packet *packet, enum frl_wc_status status)
{
	bool takes = packet->op->flags & OPCODE_TAKES_RECV;

	return takes || qp->responder.recv ? status : FRL_WC_SUCCESS;
}

static __attribute__((noinline)) void take_request(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	struct responder *r = &qp->responder;
	struct psn psn = packet->h.bth.psn;

	switch (classify(qp, packet)) {
	case ACCEPT: accept_packet(qp, packet, placements); break;
	case DUPLICATE: repeat(qp, packet); break;
	case GAP:
		r->nak_sent = true;
		qp->stats->out_of_sequence++;
		qp->stats->naks_sent_seq++;
		answer(qp, AETH_NAK | NAK_SEQUENCE, r->epsn);
		break;
	case GAP_REPEATED: qp->stats->out_of_sequence++; break;
	case NOT_READY:
		r->nak_sent = true;
		qp->stats->naks_sent_rnr++;
		qp->counts.rnr_sent++;
		answer(qp, AETH_RNR_NAK | qp->attr.min_rnr_timer, r->epsn);
		break;
	case INVALID_SEQUENCE:
		responder_refuse(qp, NAK_INVALID_REQUEST,
			r->recv ? FRL_WC_REM_INV_REQ_ERR : FRL_WC_SUCCESS, psn);
		break;
	case INVALID_REQUEST:
		responder_refuse(qp, NAK_INVALID_REQUEST,
			current_receive(qp, packet, FRL_WC_REM_INV_REQ_ERR), psn);
		break;
	case TOO_LONG: responder_refuse(qp, NAK_INVALID_REQUEST, FRL_WC_LOC_LEN_ERR, psn); break;
	case ACCESS_ERROR:
		responder_refuse(qp, NAK_REMOTE_ACCESS,
			current_receive(qp, packet, FRL_WC_REM_ACCESS_ERR), psn);
		break;
	case OPERATIONAL_ERROR:
		responder_refuse(qp, NAK_REMOTE_OPERATIONAL, FRL_WC_LOC_PROT_ERR, psn);
		break;
	}
}

/* Accepts a WRITE packet on the fast path. Returns false if take_request() must handle it. */
static inline bool write_fast(struct qp *qp, const struct wire_packet *packet,
	struct placements *placements, bool first, bool last)
{
	struct responder *r = &qp->responder;
	const struct reth *reth = &packet->h.reth;
	uint64_t va = first ? reth->va : r->write_va;
	uint32_t rkey = first ? reth->rkey : r->write_rkey;
	uint32_t length = packet->payload_len;
	uint32_t total = first ? reth->dma_length : r->write_length;
	uint32_t done = first ? 0 : r->offset;
	const struct region *region;

	if (!takes_fast_write(qp, packet, first, last))
		return false;
	region = region_remote(qp->regions, qp->pd, qp, rkey, va, total, FRL_ACCESS_REMOTE_WRITE);
	if (!region)
		return false;
	if (first && !last) {
		r->write_va = va;
		r->write_rkey = rkey;
		r->write_length = total;
	}
	/* A WRITE of one packet leaves no message state. */
	if (!first || !last) {
		r->message = last ? MESSAGE_NONE : MESSAGE_WRITE;
		r->offset = done + length;
	}
	placements->count = 1;
	placements->list[0] = (struct placement){
		.dst = region_memory(region, va + done),
		.payload = packet->payload,
		.length = length,
		.region = region,
		.may_fault = region_may_unmap(region),
	};
	advance(r, 1, last);
	acknowledge_when_due(qp, packet);
	qp_accepted(qp);
	return true;
}

static __attribute__((noinline)) void take_write_part(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	bool taken;

	switch (packet->h.bth.opcode) {
	case OP_WRITE_FIRST: taken = write_fast(qp, packet, placements, true, false); break;
	case OP_WRITE_MIDDLE: taken = write_fast(qp, packet, placements, false, false); break;
	default: taken = write_fast(qp, packet, placements, false, true); break;
	}
	if (!taken)
		take_request(qp, packet, placements);
}

void responder_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	uint8_t opcode = packet->h.bth.opcode;

	if (opcode == OP_WRITE_ONLY) {
		if (!write_fast(qp, packet, placements, true, true))
			take_request(qp, packet, placements);
	} else if (opcode >= OP_WRITE_FIRST && opcode <= OP_WRITE_LAST) {
		take_write_part(qp, packet, placements);
	} else {
		take_request(qp, packet, placements);
	}
}

void responder_memory_gone(struct qp *qp, const struct wire_packet *packet)
{
	struct responder *r = &qp->responder;
	struct psn psn = packet->h.bth.psn;
	bool send = packet->op->operation == OPERATION_SEND;

	if (qp->state == FRL_QPS_ERR)
		return;
	if (packet->op->flags & OPCODE_LAST)
		r->msn = (r->msn - 1) & PSN_MASK;
	if (packet->op->operation == OPERATION_ATOMIC)
		resource_withdraw(qp);
	if (send) {
		r->offset -= packet->payload_len;
		responder_refuse(qp, NAK_REMOTE_OPERATIONAL, FRL_WC_LOC_PROT_ERR, psn);
	} else {
		responder_refuse(qp, NAK_REMOTE_ACCESS,
			current_receive(qp, packet, FRL_WC_REM_ACCESS_ERR), psn);
	}
}

void qp_response_gone(struct qp *qp, struct psn psn)
{
	if (qp->type != FRL_QPT_RC || qp->state == FRL_QPS_RESET || qp->state == FRL_QPS_INIT)
		return;
	/* A NAK that waits is for a later request. */
	resource_reset(qp);
	responder_refuse(qp, NAK_REMOTE_ACCESS, FRL_WC_SUCCESS, psn);
}

/* On a link that reports a dead peer, requests have no timeout. The peer must learn that this end
 * has failed. */
void responder_refuse_late(struct qp *qp, const struct wire_packet *packet)
{
	if (!qp->responder.ack_pending)
		answer(qp, AETH_NAK | NAK_REMOTE_OPERATIONAL, packet->h.bth.psn);
}

static void make_answer(
	struct packet_out *out, uint32_t dest_qpn, struct psn psn, uint8_t syndrome, uint32_t msn)
{
	out->h = (struct wire_headers){
		.bth = {
			.opcode = OP_ACKNOWLEDGE,
			.migrated = true,
			.pkey = PKEY_DEFAULT,
			.dest_qpn = dest_qpn,
			.psn = psn,
		},
		.aeth = { syndrome, msn },
	};
	out->payload_len = 0;
	out->n_pieces = 0;
	out->response = false;
	out->target = NULL;
}

void qp_refusal(struct packet_out *out, uint32_t dest_qpn, struct psn psn)
{
	make_answer(out, dest_qpn, psn, AETH_NAK | NAK_REMOTE_OPERATIONAL, 0);
}

/* Also true in ERR: a queue pair that refuses a request sends earlier responses first. One that
 * failed for other reasons has at most the NAK of responder_refuse_late() to send. */
bool responder_wants_output(const struct qp *qp)
{
	const struct responder *r = &qp->responder;

	return r->ack_pending || r->n_pending;
}

uint32_t responder_output(struct qp *qp, struct packet_out out[], uint32_t max)
{
	struct responder *r = &qp->responder;
	uint32_t n = 0;

	while (n < max && responder_wants_output(qp)) {
		if (r->ack_pending ? resource_pending_until(qp, r->ack_psn) : r->n_pending) {
			n += resource_output(qp, &out[n]);
			continue;
		}
		make_answer(&out[n++], qp->dest_qpn, r->ack_psn, r->ack_syndrome, r->msn);
		r->ack_pending = false;
		qp->stats->tx_acks++;
	}
	return n;
}
