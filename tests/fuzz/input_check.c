/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fuzz/input_state.h"

#include <string.h>

/* Placements. */

static bool is_registered(const struct region *region)
{
	for (unsigned i = 0; i < REGIONS; i++)
		if (s.regions[i] == region)
			return region && region_find(&s.table, region->key) == region;
	return false;
}

static bool inside(const struct region *region, const uint8_t *addr, uint64_t length)
{
	return addr >= region->addr && length <= region->length &&
		(uint64_t)(addr - region->addr) <= region->length - length;
}

/* Memory that exists may be touched. */
static bool exists(const uint8_t *addr)
{
	return addr >= (const uint8_t *)areas && addr < (const uint8_t *)(areas + AREAS);
}

static bool in_elements(uint32_t id, const struct placement *p)
{
	const struct request *request = &s.requests[id];
	uint64_t va = p->region->iova + (uint64_t)(p->dst - p->region->addr);

	MUST(id < s.n_requests);
	for (int i = 0; i < request->n_sge; i++) {
		const struct frl_sge *sge = &request->sge[i];

		if (sge->lkey == p->region->key && va >= (uintptr_t)sge->addr &&
			va - (uintptr_t)sge->addr + p->length <= sge->length)
			return true;
	}
	return false;
}

/* Access was granted: by an element of the request, or by rights of the peer. */
static void check_right(const struct placement *p, uint8_t operation, uint32_t head)
{
	const struct responder *r = &s.qp.responder;
	bool found = false;

	MUST(p->length && is_registered(p->region) && p->region->pd == &pds[0]);
	MUST(inside(p->region, p->dst, p->length));
	if (operation == OPERATION_WRITE) {
		MUST(p->region->access & FRL_ACCESS_REMOTE_WRITE);
		MUST(s.qp.attr.access_flags & FRL_ACCESS_REMOTE_WRITE);
		MUST(!p->region->is_window || p->region->qp == &s.qp);
		return;
	}
	MUST(!p->region->is_window && (p->region->access & FRL_ACCESS_LOCAL_WRITE));
	if (operation == OPERATION_SEND) {
		MUST(r->recv && in_elements((uint32_t)r->recv->wr_id, p));
		return;
	}
	MUST(operation == OPERATION_READ_RESPONSE || operation == OPERATION_ATOMIC_ACK);
	for (uint32_t at = head; at != s.qp.requester.tail && !found; at++) {
		uint32_t id = s.sends.ids[at % POSITIONS];

		found = wr_has_response(s.requests[id].opcode) && in_elements(id, p);
	}
	MUST(found);
}

static void carry_out(const struct placement *p)
{
	const struct frl_recv_action *action = p->action;
	size_t size;

	if (!exists(p->dst))
		return;
	if (!action) {
		memcpy(p->dst, p->payload, p->length);
		return;
	}
	size = frl_dtype_size(action->dtype);
	MUST(size && p->length % size == 0 && action->type == FRL_ACTION_REDUCE);
	MUST(s.qp.type == FRL_QPT_RC && p->src);
	if (exists(p->src))
		frl_reduce_local_plain(
			p->dst, p->src, p->payload, p->length / size, action->dtype, action->op);
}

static void check_atomic(const struct atomic_op *op)
{
	uint8_t *addr = (uint8_t *)op->addr;

	MUST(s.qp.type == FRL_QPT_RC && (uintptr_t)addr % 8 == 0);
	MUST(is_registered(op->region) && op->region->pd == &pds[0]);
	MUST(inside(op->region, addr, 8));
	MUST(op->region->access & s.qp.attr.access_flags & FRL_ACCESS_REMOTE_ATOMIC);
	MUST(!op->region->is_window || op->region->qp == &s.qp);
	if (!exists(addr))
		return;
	*op->ret_original = *op->addr;
	if (!op->compare_swap)
		*op->addr += op->swap_add;
	else if (*op->addr == op->compare)
		*op->addr = op->swap_add;
}

/* The request of a response was in the queue, and these are its bytes. */
static void check_response(const struct wire_packet *packet, uint32_t head)
{
	const struct requester *r = &s.qp.requester;

	for (; head != r->tail; head++) {
		const struct send_wqe *wqe = send_wqe_at(r, head);
		int32_t k = psn_diff(packet->h.bth.psn, wqe->first_psn);
		uint32_t left = wqe->length - (uint32_t)k * s.qp.path_mtu;

		if (k < 0 || k >= (int32_t)wqe->packets)
			continue;
		MUST(wr_has_response(wqe->opcode));
		if (wqe->opcode == FRL_WR_RDMA_READ)
			MUST(packet->payload_len == (left < s.qp.path_mtu ? left : s.qp.path_mtu));
		return;
	}
	MUST(!"a response to a request that was posted");
}

void check_placements(
	const struct placements *placements, const struct wire_packet *packet, uint32_t head)
{
	bool atomic = packet->op->operation == OPERATION_ATOMIC_ACK;
	const uint8_t *payload = atomic ? (const uint8_t *)&placements->value : packet->payload;
	uint32_t header = 0, length = 0;

	MUST(placements->count <= FRL_MAX_SGE + 1);
	for (uint32_t i = 0; i < placements->count; i++) {
		const struct placement *p = &placements->list[i];

		check_right(p, packet->op->operation, head);
		if (qp_is_datagram(&s.qp) && header < WIRE_GRH_LEN) {
			MUST(p->payload == placements->grh + header);
			header += p->length;
		} else {
			MUST(p->payload == payload + length);
			length += p->length;
		}
		carry_out(p);
	}
	MUST(header == 0 || header == WIRE_GRH_LEN);
	if (length && !atomic && !qp_is_datagram(&s.qp))
		MUST(packet->op->flags & OPCODE_LAST ? length <= s.qp.path_mtu
						     : length == s.qp.path_mtu);
	if (placements->count && (packet->op->flags & OPCODE_RESPONSE))
		check_response(packet, head);
	if (placements->count)
		MUST(length == (atomic ? ATOMIC_SIZE : packet->payload_len));
	if (placements->atomic.addr) {
		MUST(placements->count == 0);
		check_atomic(&placements->atomic);
	}
}

void check_read(const struct reth *reth)
{
	const struct region *region = region_find(&s.table, reth->rkey);

	MUST(s.qp.attr.access_flags & FRL_ACCESS_REMOTE_READ);
	if (reth->dma_length == 0)
		return;
	MUST(is_registered(region) && region->pd == &pds[0]);
	MUST(region->access & FRL_ACCESS_REMOTE_READ);
	MUST(!region->is_window || region->qp == &s.qp);
	MUST(inside(region, region_memory(region, reth->va), reth->dma_length));
}

/* Packets. */

static void check_pieces(const struct packet_out *out)
{
	uint32_t sum = 0;
	uint8_t all = 0;

	MUST(out->n_pieces <= FRL_MAX_SGE);
	for (uint32_t i = 0; i < out->n_pieces; i++) {
		const struct packet_piece *piece = &out->pieces[i];

		MUST(piece->length);
		sum += piece->length;
		if (piece->region) {
			MUST(is_registered(piece->region) && piece->region->pd == &pds[0]);
			MUST(inside(piece->region, piece->addr, piece->length));
			MUST(!piece->region->is_window);
			if (!exists(piece->addr))
				continue;
		} else {
			MUST(!out->response);
		}
		/* Reads both ends: the sanitizer checks the access. */
		all |= piece->addr[0] | piece->addr[piece->length - 1];
	}
	MUST(sum == out->payload_len && (all || !all));
}

static void check_answer(const struct packet_out *out)
{
	uint8_t syndrome = out->h.aeth.syndrome, value = syndrome & AETH_VALUE_MASK;

	MUST(s.qp.type == FRL_QPT_RC && out->h.aeth.msn <= PSN_MASK && !out->target);
	MUST(!out->h.bth.ack_request && !out->h.bth.solicited);
	switch (syndrome & ~AETH_VALUE_MASK) {
	case AETH_ACK: MUST(value == AETH_CREDITS_NONE); break;
	case AETH_RNR_NAK: break; /* any time; the attribute may have changed since */
	case AETH_NAK: MUST(value <= NAK_REMOTE_OPERATIONAL); break;
	default: MUST(!"a reserved type of syndrome");
	}
	if (out->h.bth.opcode != OP_ACKNOWLEDGE)
		MUST(syndrome == (AETH_ACK | AETH_CREDITS_NONE) && out->response);
	/* A link that reports dead peers refuses late requests, too. */
	if (s.qp.unlimited_retry)
		return;
	MUST(psn_diff(out->h.bth.psn, s.qp.responder.epsn) <= 0);
	if ((syndrome & AETH_TYPE_MASK) == AETH_ACK)
		MUST(!psn_equal(out->h.bth.psn, s.qp.responder.epsn));
}

/* Returns the request of this packet while it is in the queue. */
static const struct send_wqe *request_at(struct psn psn)
{
	const struct requester *r = &s.qp.requester;

	for (uint32_t at = r->head; at != r->tail; at++) {
		const struct send_wqe *wqe = send_wqe_at(r, at);
		int32_t k = psn_diff(psn, wqe->first_psn);

		if (k >= 0 && k < (int32_t)wqe->packets)
			return wqe;
	}
	return NULL;
}

static void check_request(const struct packet_out *out, const struct send_wqe *wqe)
{
	const struct opcode_info *op = &opcode_table[out->h.bth.opcode];
	uint32_t k = (uint32_t)psn_diff(out->h.bth.psn, wqe->first_psn);
	uint32_t offset = k * s.qp.path_mtu, left = wqe->length - offset;
	const struct request *request = &s.requests[wqe->wr_id];

	MUST(wqe->wr_id < s.n_requests && request->send && wqe->opcode == request->opcode);
	if (wr_has_response(wqe->opcode)) {
		MUST(out->payload_len == 0 && out->n_pieces == 0 && out->h.bth.ack_request);
		if (wqe->opcode != FRL_WR_RDMA_READ) {
			MUST(op->operation == OPERATION_ATOMIC && k == 0);
			return;
		}
		MUST(op->operation == OPERATION_READ && out->h.reth.dma_length == left);
		MUST(out->h.reth.va == wqe->remote_addr + offset);
		return;
	}
	MUST(!!(op->flags & OPCODE_FIRST) == (k == 0));
	MUST(!!(op->flags & OPCODE_LAST) == (k + 1 == wqe->packets));
	MUST(out->payload_len == (left < s.qp.path_mtu ? left : s.qp.path_mtu));
	if (op->operation == OPERATION_WRITE) {
		MUST(wqe->opcode <= FRL_WR_RDMA_WRITE_WITH_IMM);
		if (k == 0)
			MUST(out->h.reth.dma_length == wqe->length);
	} else {
		MUST(op->operation == OPERATION_SEND);
	}
	if (op->headers & (HEADER_IMMDT | HEADER_IETH))
		MUST(out->h.imm_data == wqe->imm_data);
}

/* Cut as a peer or a newer kernel expects the segments of a message. */
static void check_segment(const struct packet_out *out, const struct opcode_info *op)
{
	bool message = op->operation == OPERATION_SEND || op->operation == OPERATION_WRITE ||
		op->operation == OPERATION_READ_RESPONSE;

	MUST(out->payload_len <= s.qp.path_mtu);
	if (!message)
		MUST(out->payload_len == 0);
	else if (!(op->flags & OPCODE_LAST))
		MUST(out->payload_len == s.qp.path_mtu);
	else if (!(op->flags & OPCODE_FIRST))
		MUST(out->payload_len >= 1);
	if (op->headers & HEADER_RETH)
		MUST(out->h.reth.dma_length <= WIRE_MAX_MESSAGE);
}

void check_packet(const struct packet_out *out)
{
	static const uint8_t transports[] = { [FRL_QPT_GSI] = TRANSPORT_UD,
		[FRL_QPT_RC] = TRANSPORT_RC,
		[FRL_QPT_UC] = TRANSPORT_UC,
		[FRL_QPT_UD] = TRANSPORT_UD };
	const struct bth *bth = &out->h.bth;
	const struct opcode_info *op = &opcode_table[bth->opcode];
	const struct send_wqe *wqe;

	MUST(op->name && opcode_transport(bth->opcode) == transports[s.qp.type]);
	MUST(bth->migrated && bth->pkey == PKEY_DEFAULT && bth->version == 0);
	MUST(bth->psn.value <= PSN_MASK && bth->dest_qpn <= PSN_MASK && bth->dest_qpn);
	MUST(!!out->target == qp_is_datagram(&s.qp));
	if (!out->target)
		MUST(bth->dest_qpn == QPN_PEER);
	check_pieces(out);
	check_segment(out, op);
	if (op->flags & OPCODE_RESPONSE) {
		check_answer(out);
		return;
	}
	MUST(!out->response);
	if (out->target)
		MUST(out->h.deth.src_qpn == s.qp.qpn && out->target->link == 3);
	wqe = request_at(bth->psn);
	/* Requests behind it may have failed by now, which flushes all. */
	MUST(wqe || !qp_sends(&s.qp));
	if (wqe)
		check_request(out, wqe);
}

void check_order(const struct packet_out *last)
{
	const struct responder *q = &s.qp.responder;

	if (last->h.bth.opcode != OP_ACKNOWLEDGE || s.qp.unlimited_retry)
		return;
	for (int i = 0; i < FRL_MAX_RD_ATOMIC; i++)
		if (q->resources[i].pending)
			MUST(psn_diff(q->resources[i].next, last->h.bth.psn) > 0);
}

/* State. */

static void check_requester(void)
{
	const struct requester *r = &s.qp.requester;
	uint32_t outstanding = 0;
	bool reads = false;

	MUST(psn_diff(r->una, r->next) <= 0 && psn_diff(r->next, r->sent_end) <= 0);
	MUST(psn_diff(r->sent_end, r->end) <= 0);
	MUST(r->tail - r->head <= r->size && r->current - r->head <= r->tail - r->head);
	MUST(r->head != r->tail || psn_equal(r->una, r->end));
	for (uint32_t at = r->head; at != r->tail; at++) {
		const struct send_wqe *wqe = send_wqe_at(r, at);

		MUST(wqe->wr_id == s.sends.ids[at % POSITIONS]);
		if (at - r->head < r->current - r->head)
			outstanding += wr_has_response(wqe->opcode);
		reads |= wqe->opcode == FRL_WR_RDMA_READ;
	}
	MUST(r->outstanding == outstanding && outstanding <= s.qp.attr.max_rd_atomic);
	if (!qp_sends(&s.qp)) {
		MUST(r->head == r->tail && qp_next_deadline(&s.qp) == DEADLINE_NONE);
		return;
	}
	if (s.qp.type != FRL_QPT_RC) {
		MUST(qp_next_deadline(&s.qp) == DEADLINE_NONE);
		MUST((uint32_t)psn_diff(r->next, r->una) == s.untold);
		return;
	}
	/* READs may use as many PSNs as they need. */
	if (!reads)
		MUST((uint32_t)psn_diff(r->sent_end, r->una) <= r->window);
	if (!s.qp.recovery.ack_timeout_ns)
		return;
	/* Unacknowledged packets have a timer, and every wait is bounded. */
	if (!psn_equal(r->una, r->next))
		MUST(qp_next_deadline(&s.qp) != DEADLINE_NONE);
	if (r->head != (r->draining ? r->stop : r->tail))
		MUST(qp_wants_output(&s.qp) || qp_next_deadline(&s.qp) != DEADLINE_NONE);
}

static void check_resources(void)
{
	const struct responder *q = &s.qp.responder;
	uint32_t pending = 0, waiting = 0;

	if (s.qp.type != FRL_QPT_RC) {
		MUST(q->n_pending == 0 && !q->ack_pending);
		return;
	}
	MUST(q->resource_tail - q->resource_cursor <= FRL_MAX_RD_ATOMIC);
	for (uint32_t back = 1; back <= FRL_MAX_RD_ATOMIC; back++) {
		const struct responder_resource *resource =
			&q->resources[(q->resource_tail - back) % FRL_MAX_RD_ATOMIC];

		if (!resource->pending)
			continue;
		pending++;
		waiting += !resource->answered;
		MUST(back <= q->resource_tail - q->resource_cursor);
		MUST(psn_diff(resource->next, resource->reply_first) >= 0);
		MUST(psn_diff(resource->next, resource->reply_end) < 0);
		MUST(psn_diff(resource->reply_first, resource->first_psn) >= 0);
		MUST(psn_diff(resource->reply_end, resource->first_psn) <=
			(int32_t)resource->packets);
		MUST(resource->reply_length <= resource->length);
	}
	MUST(pending == q->n_pending && waiting <= s.max_resources);
}

static void check_responder(void)
{
	const struct responder *q = &s.qp.responder;

	MUST(q->queue.tail - q->queue.head <= q->queue.size && q->msn <= PSN_MASK);
	MUST(q->message == MESSAGE_NONE || s.qp.state >= FRL_QPS_RTR);
	MUST(q->unacked < 64);
	if (q->recv)
		MUST(q->recv == (q->srq ? &q->srq_wqe : recv_queue_front(&q->queue)));
	if (s.qp.state == FRL_QPS_ERR) {
		MUST(q->queue.head == q->queue.tail && !q->recv);
		MUST(q->message == MESSAGE_NONE || q->message == MESSAGE_DROPPED);
	}
	check_resources();
}

static void check_windows(void)
{
	uint32_t bound[REGIONS] = { 0 };

	for (unsigned i = 0; i < REGIONS; i++) {
		const struct region *region = s.regions[i];

		if (!region)
			continue;
		MUST(is_registered(region));
		if (!region->is_window || !region->parent) {
			MUST(!region->is_window || region->length == 0);
			continue;
		}
		MUST(inside(region->parent, region->addr, region->length));
		for (unsigned k = 0; k < REGIONS; k++)
			bound[k] += s.regions[k] == region->parent;
	}
	for (unsigned i = 0; i < REGIONS; i++)
		if (s.regions[i])
			MUST(s.regions[i]->windows == bound[i]);
}

static void check_guards(void)
{
	uint8_t sum = 0;

	for (int i = 0; i < AREAS; i++)
		for (int k = 0; k < GUARD; k++)
			sum |= (areas[i].before[k] ^ 0xe1) | (areas[i].after[k] ^ 0xe2);
	MUST(sum == 0);
}

void check_untouched(void)
{
	static const int those[] = { READ_ONLY, FOREIGN };

	for (int i = 0; i < 2; i++) {
		const uint8_t *bytes = areas[those[i]].bytes;

		MUST(bytes[0] == 0x5a && memcmp(bytes, bytes + 1, MEMORY - 1) == 0);
	}
}

void check_state(void)
{
	const struct requester *r = &s.qp.requester;
	struct frl_qp_attr attr;

	check_requester();
	check_responder();
	check_windows();
	check_guards();
	qp_query(&s.qp, &attr);
	MUST(attr.state == s.qp.state && attr.cur_state == s.qp.state);
	MUST(attr.sq_draining == (s.qp.state == FRL_QPS_SQD && r->head != r->stop));
	MUST(!s.qp.events.pending == list_empty(&s.qp.events.node));
}
