/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/qp.h"

#include "lib/protocol/qp_internal.h"
#include "lib/protocol/recovery.h"

/* Allocates parts of a block of memory. Without a block it computes the size. */
struct arena {
	uint8_t *base;
	size_t used;
};

static void *carve(struct arena *arena, size_t size)
{
	void *piece = arena->base ? arena->base + arena->used : NULL;

	arena->used += (size + 15) & ~(size_t)15;
	return piece;
}

static uint8_t transport_of(enum frl_qp_type type)
{
	switch (type) {
	case FRL_QPT_RC: return TRANSPORT_RC;
	case FRL_QPT_UC: return TRANSPORT_UC;
	default: return TRANSPORT_UD;
	}
}

static bool is_datagram_type(enum frl_qp_type type)
{
	return type == FRL_QPT_UD || type == FRL_QPT_GSI;
}

static uint32_t slots_for(uint32_t size)
{
	uint32_t slots = 1;

	while (slots < size)
		slots *= 2;
	return slots;
}

/* Lays out the memory of the send queue's slots. `wqes` is NULL while only computing the size. */
static void lay_out_slots(
	const struct qp_config *config, struct arena *arena, struct send_wqe *wqes, uint32_t slots)
{
	bool datagram = is_datagram_type(config->type);
	struct frl_sge *sges = carve(arena, slots * config->max_send_sge * sizeof(*sges));
	uint8_t *inline_data = carve(arena, (size_t)slots * config->max_inline);
	struct datagram_target *targets = carve(arena, datagram ? slots * sizeof(*targets) : 0);

	for (uint32_t i = 0; wqes && i < slots; i++) {
		wqes[i].sge = sges + (size_t)i * config->max_send_sge;
		wqes[i].inline_data = inline_data + (size_t)i * config->max_inline;
		if (datagram)
			wqes[i].target = targets + i;
	}
}

/* `qp` is NULL while only computing the size. */
static void lay_out(const struct qp_config *config, struct arena *arena, struct qp *qp)
{
	uint32_t slots = slots_for(config->max_send_wr);
	uint32_t n_recv = config->srq ? 0 : config->max_recv_wr;
	struct send_wqe *wqes = carve(arena, slots * sizeof(*wqes));
	struct responder_resource *resource = carve(
		arena, config->type == FRL_QPT_RC ? FRL_MAX_RD_ATOMIC * sizeof(*resource) : 0);
	struct frl_sge *srq_sge = carve(arena, config->srq ? FRL_MAX_SGE * sizeof(*srq_sge) : 0);
	void *queue = carve(arena, recv_queue_storage(n_recv, config->max_recv_sge));

	lay_out_slots(config, arena, qp ? wqes : NULL, slots);
	if (!qp)
		return;
	qp->requester.wqes = wqes;
	qp->requester.mask = slots - 1;
	qp->requester.size = config->max_send_wr;
	qp->responder.resources = resource;
	qp->responder.srq_wqe.sge = srq_sge;
	recv_queue_init(&qp->responder.queue, queue, n_recv, config->max_recv_sge, config->pd,
		config->regions);
	qp->responder.queue.as_hardware = config->as_hardware;
}

size_t qp_storage_size(const struct qp_config *config)
{
	struct arena arena = { 0 };

	lay_out(config, &arena, NULL);
	return arena.used;
}

void qp_init(struct qp *qp, const struct qp_config *config)
{
	struct arena arena = { .base = config->storage };

	*qp = (struct qp){
		.state = FRL_QPS_RESET,
		.type = config->type,
		.qpn = config->qpn,
		.path_mtu = is_datagram_type(config->type) ? config->port_mtu : 0,
		.pkey = config->pkey,
		.transport = transport_of(config->type),
		.pd = config->pd,
		.send_cq = config->send_cq,
		.recv_cq = config->recv_cq,
		.regions = config->regions,
		.stats = config->stats,
		.queues = config->queues,
		.max_send_sge = config->max_send_sge,
		.max_inline = config->max_inline,
		.sq_sig_all = config->sq_sig_all,
		.unlimited_retry = config->unlimited_retry,
		.as_hardware = config->as_hardware,
		.requester.window = config->window,
		.requester.slack = config->slack,
		.responder.srq = config->srq,
	};
	lay_out(config, &arena, qp);
	event_source_init(&qp->events, EVENT_OF_QP, NULL);
	recovery_stop(qp);
}

void qp_flush_one(struct qp *qp, struct cq *cq, uint64_t wr_id, uint32_t placed)
{
	struct frl_wc wc = {
		.wr_id = wr_id,
		.status = FRL_WC_WR_FLUSH_ERR,
		.byte_len = placed,
		.qp_num = qp->qpn,
	};

	qp_complete(qp, cq, &wc, false);
}

void qp_forget_completions(struct qp *qp)
{
	if (!qp->as_hardware)
		return;
	cq_remove(qp->send_cq, qp->qpn);
	if (qp->recv_cq != qp->send_cq)
		cq_remove(qp->recv_cq, qp->qpn);
	qp->held_slots = 0;
}

void qp_complete(struct qp *qp, struct cq *cq, const struct frl_wc *wc, bool solicited)
{
	if (cq_push(cq, wc, solicited))
		return;
	qp->stats->cq_overruns++;
	qp_explain(qp, "its completion queue overran: make it larger, or poll more often");
	/* The event replaces the completion that is lost. */
	event_raise(qp->queues, &qp->events, FRL_EVENT_QP_FATAL);
	qp_fail(qp, FRL_WC_WR_FLUSH_ERR);
}

/* Completes all send requests: the one at `position` with `status`, the others flushed. */
static void flush_sends(struct qp *qp, uint32_t position, enum frl_wc_status status)
{
	struct requester *r = &qp->requester;

	while (r->head != r->tail) {
		struct frl_wc wc = {
			.wr_id = send_wqe_at(r, r->head)->wr_id,
			.status = r->head == position ? status : FRL_WC_WR_FLUSH_ERR,
			.qp_num = qp->qpn,
		};

		r->head++;
		qp_complete_send(qp, &wc);
	}
	r->current = r->head;
	r->una = r->next = r->sent_end = r->end;
	r->outstanding = 0;
	r->blocked = false;
	r->draining = false;
}

void qp_note_psns(const struct qp *qp, struct frl_qp_attr *attr)
{
	if (qp->type != FRL_QPT_RC)
		return;
	if (qp->state == FRL_QPS_RTR || qp_sends(qp))
		attr->rq_psn = qp->responder.epsn.value;
	if (qp_sends(qp))
		attr->sq_psn = qp->requester.una.value;
}

/* Pending responses to READs and atomics are kept. */
static void enter_error(struct qp *qp, uint32_t position, enum frl_wc_status status)
{
	bool is_reported = status == FRL_WC_WR_FLUSH_ERR ||
		qp->requester.head != qp->requester.tail;

	if (status != FRL_WC_WR_FLUSH_ERR && !qp->error)
		qp->error_status = status;
	qp_note_psns(qp, &qp->attr);
	/* State first: the completions below may overrun their queue and recurse. */
	qp->state = FRL_QPS_ERR;
	qp->attr.state = FRL_QPS_ERR;
	qp->responder.ack_pending = false;
	qp->responder.message = MESSAGE_NONE;
	recovery_stop(qp);
	if (!is_reported)
		event_raise(qp->queues, &qp->events, FRL_EVENT_QP_FATAL);
	flush_sends(qp, position, status);
	receive_flush(qp);
	if (qp->responder.srq)
		event_raise(qp->queues, &qp->events, FRL_EVENT_QP_LAST_WQE_REACHED);
}

static bool can_fail(const struct qp *qp)
{
	return qp->state != FRL_QPS_RESET && qp->state != FRL_QPS_ERR;
}

void qp_fail_at(struct qp *qp, uint32_t position, enum frl_wc_status status)
{
	if (!can_fail(qp))
		return;
	resource_reset(qp);
	enter_error(qp, position, status);
}

void qp_fail_refused(struct qp *qp)
{
	if (can_fail(qp))
		enter_error(qp, qp->requester.head, FRL_WC_WR_FLUSH_ERR);
}

void qp_fail(struct qp *qp, enum frl_wc_status status)
{
	qp_fail_at(qp, qp->requester.head, status);
}

void qp_explain(struct qp *qp, const char *sentence)
{
	if (!qp->error && qp->error_status == FRL_WC_SUCCESS)
		qp->error = sentence;
}

void qp_fail_send(struct qp *qp, enum frl_wc_status status)
{
	if (qp->type == FRL_QPT_RC) {
		qp_fail(qp, status);
		return;
	}
	if (!qp_sends(qp))
		return;
	qp->error_status = status;
	qp->state = FRL_QPS_SQE;
	qp->attr.state = FRL_QPS_SQE;
	flush_sends(qp, qp->requester.head, status);
}

void qp_established(struct qp *qp)
{
	qp->comm_est = true;
	event_raise(qp->queues, &qp->events, FRL_EVENT_COMM_EST);
}

/* P_Keys match if equal without the membership bit, and not both limited members (IBTA 10.9.3). */
static bool pkey_matches(uint16_t a, uint16_t b)
{
	return ((a ^ b) & 0x7fff) == 0 && ((a | b) & 0x8000);
}

static bool receives(const struct qp *qp)
{
	return qp->state >= FRL_QPS_RTR && qp->state <= FRL_QPS_SQE;
}

static void drop_by_state(struct qp *qp, const struct wire_packet *packet)
{
	qp->stats->drop_qp_state++;
	if (qp->type == FRL_QPT_RC && qp->state == FRL_QPS_ERR && qp->unlimited_retry &&
		opcode_transport(packet->h.bth.opcode) == TRANSPORT_RC &&
		!(packet->op->flags & OPCODE_RESPONSE) && ip_equal(&packet->src_ip, &qp->remote_ip))
		responder_refuse_late(qp, packet);
}

static inline void dispatch(struct qp *qp, const struct wire_packet *packet,
	struct placements *placements, uint64_t now_ns)
{
	if (qp->type == FRL_QPT_RC) {
		if (!(packet->op->flags & OPCODE_RESPONSE))
			responder_input(qp, packet, placements);
		else if (qp_sends(qp))
			completer_input(qp, packet, placements, now_ns);
		else
			qp->stats->stale_acks++;
	} else if (qp->type == FRL_QPT_UC) {
		unreliable_input(qp, packet, placements);
	} else {
		datagram_input(qp, packet, placements);
	}
}

void qp_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements,
	uint64_t now_ns)
{
	placements->count = 0;
	placements->completes = COMPLETES_NONE;
	placements->atomic.addr = NULL;
	if (packet->op->operation == OPERATION_CNP) {
		/* Counted only; there is no rate control. */
		qp->stats->cnps_received++;
		return;
	}
	if (!receives(qp)) {
		drop_by_state(qp, packet);
		return;
	}
	if (opcode_transport(packet->h.bth.opcode) != qp->transport) {
		qp->stats->drop_bad_opcode++;
		return;
	}
	if (!pkey_matches(packet->h.bth.pkey, qp->pkey)) {
		qp->stats->drop_bad_pkey++;
		return;
	}
	if ((qp->type == FRL_QPT_RC || !qp_is_datagram(qp)) &&
		!ip_equal(&packet->src_ip, &qp->remote_ip)) {
		qp->stats->drop_wrong_peer++;
		return;
	}
	qp->counts.rx_packets++;
	qp->counts.rx_bytes += packet->payload_len;
	qp->counts.last_rx_ns = now_ns;
	dispatch(qp, packet, placements, now_ns);
}

void qp_placed(struct qp *qp, const struct wire_packet *packet, const struct placements *placements,
	uint64_t now_ns)
{
	if (placements->completes == COMPLETES_MESSAGE)
		message_placed(qp, packet);
	else if (placements->completes == COMPLETES_DATAGRAM)
		datagram_placed(qp, packet);
	else
		requester_response_placed(qp, now_ns);
}

/* `received`: payload bytes of the packet for the current receive request. */
static void fail_payload(
	struct qp *qp, struct placements *placements, uint32_t received, enum frl_wc_status status)
{
	bool completes = placements->completes == COMPLETES_MESSAGE ||
		placements->completes == COMPLETES_DATAGRAM;
	struct frl_wc wc = { .status = status };

	if (received)
		wc.byte_len = receive_placed(qp) - received;
	/* A WRITE with immediate data consumes a receive request when it completes. */
	if (completes)
		receive_take(qp);
	if (received || completes)
		receive_complete(qp, &wc, false);
	placements->completes = COMPLETES_NONE;
	qp_fail(qp, status);
}

void qp_payload_lost(struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	bool receives = qp->type == FRL_QPT_RC && packet->op->operation == OPERATION_SEND;

	fail_payload(qp, placements, receives ? packet->payload_len : 0, FRL_WC_REM_ABORT_ERR);
}

void qp_payload_refused(struct qp *qp, struct placements *placements, const char *why)
{
	qp_explain(qp, why);
	fail_payload(qp, placements, 0, FRL_WC_LOC_PROT_ERR);
}

void qp_memory_gone(struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	placements->completes = COMPLETES_NONE;
	if (qp->type != FRL_QPT_RC)
		unreliable_memory_gone(qp, packet);
	else if (packet->op->flags & OPCODE_RESPONSE)
		qp_fail(qp, FRL_WC_LOC_PROT_ERR);
	else
		responder_memory_gone(qp, packet);
}

bool qp_wants_output(const struct qp *qp)
{
	return (qp->type == FRL_QPT_RC && responder_wants_output(qp)) ||
		(qp_sends(qp) && requester_wants_output(qp));
}

/* Returns how many of `max` packets may be responses. A peer that reads without end must not block
 * this end's own requests. */
static uint32_t answers_share(struct qp *qp, uint32_t max)
{
	if (!qp_sends(qp) || !requester_wants_output(qp))
		return max;
	if (max > 1)
		return max - (max + 3) / 4;
	qp->answers_turn = !qp->answers_turn;
	return qp->answers_turn ? max : 0;
}

static void count_output(struct qp *qp, const struct packet_out out[], uint32_t n, uint64_t now_ns)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += out[i].payload_len;
	qp->counts.tx_packets += n;
	qp->counts.tx_bytes += bytes;
	qp->counts.last_tx_ns = now_ns;
}

uint32_t qp_output(struct qp *qp, struct packet_out out[], uint32_t max, uint64_t now_ns)
{
	uint32_t n = 0;

	/* Responses come first. A queue pair in ERR may still have some. */
	if (qp->type == FRL_QPT_RC && responder_wants_output(qp))
		n = responder_output(qp, out, answers_share(qp, max));
	if (qp_sends(qp) && n < max)
		n += requester_output(qp, out + n, max - n, now_ns);
	if (n)
		count_output(qp, out, n, now_ns);
	return n;
}

const struct datagram_target *qp_next_target(const struct qp *qp)
{
	const struct requester *r = &qp->requester;

	if (!qp_sends(qp) || !requester_wants_output(qp))
		return NULL;
	return send_wqe_at(r, r->current)->target;
}
