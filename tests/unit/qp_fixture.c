/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/qp_fixture.h"

#include <string.h>

static const struct frl_ip peer_ip = { { [10] = 0xff, [11] = 0xff, 10, 9, 0, 2 } };
static const struct frl_ip own_ip = { { [10] = 0xff, [11] = 0xff, 10, 9, 0, 1 } };
static int pd, other_pd;

static bool is_datagram(enum frl_qp_type type)
{
	return type == FRL_QPT_UD || type == FRL_QPT_GSI;
}

void fixture_attr(const struct fixture_config *config, struct frl_qp_attr *ret_attr)
{
	uint8_t rd = config->max_rd_atomic, dest_rd = config->max_dest_rd_atomic;

	*ret_attr = (struct frl_qp_attr){
		.access_flags = F_ACCESS & ~config->deny,
		.port_num = 1,
		.qkey = config->type == FRL_QPT_GSI ? QKEY_GSI : F_QKEY,
		.ah.dgid = peer_ip,
		.ah.sgid_index = 1,
		.path_mtu = config->mtu ? config->mtu : 1024,
		.dest_qpn = F_PEER_QPN,
		.rq_psn = config->rq_psn,
		.sq_psn = config->sq_psn,
		.max_rd_atomic = config->no_rd_atomic ? 0
			: rd                          ? rd
						      : F_RD_ATOMIC,
		.max_dest_rd_atomic = config->no_rd_atomic ? 0
			: dest_rd                          ? dest_rd
							   : F_RD_ATOMIC,
		.min_rnr_timer = 14,
		.timeout = config->no_timeout ? 0 : 4,
		.retry_cnt = config->retry_cnt,
		.rnr_retry = config->rnr_retry,
	};
}

uint32_t fixture_mask(enum frl_qp_type type, enum frl_qp_state state)
{
	const uint32_t connected = FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN;
	const uint32_t reliable_rtr = FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER;
	const uint32_t reliable_rts = FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
		FRL_QP_MAX_QP_RD_ATOMIC;
	bool rc = !type || type == FRL_QPT_RC;

	switch (state) {
	case FRL_QPS_INIT:
		return FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT |
			(is_datagram(type) ? FRL_QP_QKEY : FRL_QP_ACCESS_FLAGS);
	case FRL_QPS_RTR:
		return FRL_QP_STATE | (is_datagram(type) ? 0 : connected) | (rc ? reliable_rtr : 0);
	case FRL_QPS_RTS: return FRL_QP_STATE | FRL_QP_SQ_PSN | (rc ? reliable_rts : 0);
	default: return FRL_QP_STATE;
	}
}

void fixture_move(struct fixture *f, enum frl_qp_state state)
{
	struct frl_qp_attr attr = { .state = state };
	const char *why = "";

	ck_assert_msg(qp_modify(&f->qp, &attr, FRL_QP_STATE, &why) == 0, "qp_modify: %s", why);
	check_invariants(f);
}

void fixture_bring_up(struct fixture *f, const struct fixture_config *config)
{
	enum frl_qp_state state = config->state ? config->state : FRL_QPS_RTS;
	static const enum frl_qp_state steps[] = { FRL_QPS_INIT, FRL_QPS_RTR, FRL_QPS_RTS };
	const char *why = "";
	struct frl_qp_attr attr;

	fixture_attr(config, &attr);
	for (int i = 0; i < 3; i++) {
		attr.state = steps[i];
		ck_assert_msg(
			qp_modify(&f->qp, &attr, fixture_mask(config->type, steps[i]), &why) == 0,
			"qp_modify: %s", why);
		if (state == steps[i])
			return;
	}
	fixture_move(f, state);
}

static void add_region(struct fixture *f, struct region *region, uint32_t access, const void *of)
{
	if (!region->addr && !region->is_window)
		*region = (struct region){ .addr = f->memory, .length = F_MEMORY };
	if (!region->iova)
		region->iova = (uintptr_t)region->addr;
	region->access = access;
	region->pd = of;
	ck_assert(region_add(&f->table, region, 0x1234 + f->table.used));
}

static void add_regions(struct fixture *f)
{
	const uint32_t all = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_MW_BIND | F_ACCESS;

	region_table_extend(&f->table, f->slots, F_SLOTS);
	add_region(f, &f->local, all, &pd);
	add_region(f, &f->read_only, 0, &pd);
	add_region(f, &f->foreign, all, &other_pd);
	f->huge.addr = (uint8_t *)(uintptr_t)0x100000000;
	f->huge.length = UINT64_C(1) << 32;
	add_region(f, &f->huge, all, &pd);
	f->moved = (struct region){ .addr = f->memory, .length = F_MEMORY, .iova = F_IOVA };
	add_region(f, &f->moved, all, &pd);
	f->window.is_window = true;
	add_region(f, &f->window, 0, &pd);
}

/* The headers of the peer's packets, and the path to it. */
static void make_headers(struct fixture *f)
{
	const struct wire_path_config config = { .src_mac = { 2, 0, 0, 0, 0, 1 },
		.dst_mac = { 2, 0, 0, 0, 0, 2 },
		.src_ip = own_ip,
		.dst_ip = peer_ip,
		.hop_limit = 64 };
	const struct wire_path_config back = {
		.src_ip = peer_ip, .dst_ip = own_ip, .hop_limit = 64, .udp_src_port = 0xc000
	};
	uint8_t frame[WIRE_MAX_HEADERS], trailer_len;
	const struct wire_headers h = { .bth.opcode = OP_ACKNOWLEDGE };
	struct wire_path path;

	wire_path_init(&path, &back);
	wire_encode(frame, &path, &h, 0, true, &trailer_len);
	memcpy(f->l3, frame + path.l3_offset, sizeof(f->l3));
	f->ah = (struct address_handle){ .pd = &pd, .link = F_AH_LINK, .flow_label = 0 };
	wire_path_init(&f->ah.path, &config);
}

static void make_srq(struct fixture *f, const struct fixture_config *config)
{
	uint32_t size = config->n_recv ? config->n_recv : F_QUEUE;
	uint32_t max_sge = config->max_recv_sge ? config->max_recv_sge : FRL_MAX_SGE;

	f->srq = (struct srq){ .limit = config->srq_limit, .queues = &f->queues };
	event_source_init(&f->srq.events, EVENT_OF_SRQ, NULL);
	ck_assert_uint_le(recv_queue_storage(size, max_sge), F_STORAGE);
	recv_queue_init(&f->srq.queue, f->srq_storage, size, max_sge, &pd, &f->table);
}

struct fixture *fixture_new(const struct fixture_config *config)
{
	static const struct fixture_config defaults;
	static struct fixture fixture;
	struct fixture *f = &fixture;
	struct qp_config qp_config;

	if (!config)
		config = &defaults;
	memset(f, 0, sizeof(*f));
	for (unsigned i = 0; i < sizeof(f->peer); i++)
		f->peer[i] = (uint8_t)(i * 7 + 1);
	event_queues_init(&f->queues);
	cq_init(&f->send_cq, f->send_wc, config->n_cq ? config->n_cq : F_CQ, &f->queues);
	cq_init(&f->recv_cq, f->recv_wc, config->n_cq ? config->n_cq : F_CQ, &f->queues);
	add_regions(f);
	make_headers(f);
	if (config->srq)
		make_srq(f, config);
	qp_config = (struct qp_config){
		.type = config->type ? config->type : FRL_QPT_RC,
		.qpn = config->type == FRL_QPT_GSI ? QPN_GSI : F_QPN,
		.pkey = PKEY_DEFAULT,
		.port_mtu = config->mtu ? config->mtu : 1024,
		.pd = &pd,
		.send_cq = &f->send_cq,
		.recv_cq = &f->recv_cq,
		.srq = config->srq ? &f->srq : NULL,
		.regions = &f->table,
		.stats = &f->stats,
		.queues = &f->queues,
		.max_send_wr = config->n_send ? config->n_send : F_QUEUE,
		.max_recv_wr = config->srq ? 0
			: config->n_recv   ? config->n_recv
					   : F_QUEUE,
		.max_send_sge = config->max_send_sge ? config->max_send_sge : FRL_MAX_SGE,
		.max_recv_sge = config->max_recv_sge ? config->max_recv_sge : FRL_MAX_SGE,
		.max_inline = config->max_inline ? config->max_inline : FRL_MAX_INLINE,
		.sq_sig_all = config->sq_sig_all,
		.window = config->window ? config->window : F_WINDOW,
		.slack = config->slack,
		.unlimited_retry = config->unlimited_retry,
		.storage = f->storage,
	};
	ck_assert_uint_le(qp_storage_size(&qp_config), F_STORAGE);
	qp_init(&f->qp, &qp_config);
	f->now_ns = 1000000;
	fixture_bring_up(f, config);
	return f;
}

static int post(struct fixture *f, const struct frl_send_wr *wr, const struct wr_objects *objects,
	const char **ret_why)
{
	static const struct wr_objects none;
	int rc = qp_post_send(&f->qp, wr, objects ? objects : &none, ret_why);

	check_invariants(f);
	return rc;
}

void fixture_post(struct fixture *f, const struct frl_send_wr *wr, const struct wr_objects *objects)
{
	const char *why = "";

	ck_assert_msg(post(f, wr, objects, &why) == 0, "qp_post_send: %s", why);
}

int fixture_try_post(
	struct fixture *f, const struct frl_send_wr *wr, const struct wr_objects *objects)
{
	const char *why = NULL;
	int rc = post(f, wr, objects, &why);

	/* A refusal has a reason. */
	ck_assert_int_eq(rc != 0, why != NULL);
	return rc;
}

static void send_one(struct fixture *f, uint64_t wr_id, enum frl_wr_opcode opcode, uint32_t length,
	uint32_t flags)
{
	struct frl_sge sge = { f->memory, length, f->local.key };
	struct wr_objects objects = { .ah = qp_is_datagram(&f->qp) ? &f->ah : NULL };

	fixture_post(f,
		&(struct frl_send_wr){ .wr_id = wr_id,
			.opcode = opcode,
			.flags = flags,
			.sge = &sge,
			.n_sge = wr_is_local((uint8_t)opcode) ? 0 : 1,
			.imm_data = 0xabcd0000 + (uint32_t)wr_id,
			.remote_addr = 0x700000,
			.rkey = 0x55,
			.compare_add = UINT64_C(0x1111111111111111),
			.swap = UINT64_C(0x2222222222222222),
			.remote_qpn = F_PEER_QPN,
			.remote_qkey = F_QKEY },
		&objects);
}

void fixture_send(struct fixture *f, uint64_t wr_id, enum frl_wr_opcode opcode, uint32_t length)
{
	send_one(f, wr_id, opcode, length, FRL_SEND_SIGNALED);
}

void fixture_send_flags(struct fixture *f, uint64_t wr_id, uint32_t length, uint32_t flags)
{
	send_one(f, wr_id, FRL_WR_SEND, length, flags);
}

void fixture_recv(struct fixture *f, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct frl_sge sge = { f->memory + offset, length, f->local.key };
	struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };
	const char *why = "";
	int rc = f->qp.responder.srq ? recv_queue_post(&f->srq.queue, &wr, &why)
				     : qp_post_recv(&f->qp, &wr, &why);

	ck_assert_msg(rc == 0, "qp_post_recv: %s", why);
}

uint32_t fixture_output(struct fixture *f)
{
	bool wants = qp_wants_output(&f->qp);

	f->n_out = qp_output(&f->qp, f->out, F_OUT, f->now_ns);
	if (f->n_out)
		ck_assert(wants);
	ck_assert(!qp_wants_output(&f->qp));
	check_invariants(f);
	return f->n_out;
}

void fixture_transmitted(struct fixture *f, uint32_t packets)
{
	qp_transmitted(&f->qp, packets);
	check_invariants(f);
}

struct wire_packet fixture_packet(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length)
{
	struct wire_packet packet = {
		.h.bth = { .opcode = opcode,
			.pkey = 0xffff,
			.dest_qpn = f->qp.qpn,
			.psn = psn_make(psn),
			.ack_request = opcode_table[opcode].flags & OPCODE_LAST },
		.h.aeth.syndrome = AETH_ACK | AETH_CREDITS_NONE,
		.h.imm_data = 0x11223344,
		.op = &opcode_table[opcode],
		.src_ip = peer_ip,
		.dst_ip = own_ip,
		.l3 = f->l3,
		.headers_len = IPV4_LEN + UDP_LEN + BTH_LEN + opcode_table[opcode].headers_len,
		.payload = f->peer,
		.payload_len = length,
	};

	if (packet.op->headers & HEADER_DETH)
		packet.h.deth = (struct deth){ f->qp.qkey, F_PEER_QPN };
	return packet;
}

/* Payload comes whole and in order; of datagrams the header is before it, and what an atomic gives
 * is in `value`. */
static void check_placements(const struct fixture *f, const struct wire_packet *packet)
{
	const struct placements *all = &f->placements;
	uint32_t header = 0, value = 0, payload = 0;

	ck_assert_uint_le(all->count, FRL_MAX_SGE + 1);
	for (uint32_t i = 0; i < all->count; i++) {
		const struct placement *p = &all->list[i];

		ck_assert_ptr_nonnull(p->region);
		ck_assert_uint_gt(p->length, 0);
		ck_assert_ptr_eq(p->region->pd, &pd);
		ck_assert(p->dst >= p->region->addr && p->length <= p->region->length &&
			(size_t)(p->dst - p->region->addr) <= p->region->length - p->length);
		if (p->payload == all->grh + header && payload == 0 && header < WIRE_GRH_LEN) {
			header += p->length;
		} else if (p->payload == (const uint8_t *)&all->value + value) {
			value += p->length;
		} else {
			ck_assert_ptr_eq(p->payload, packet->payload + payload);
			payload += p->length;
		}
	}
	ck_assert(header == 0 || header == WIRE_GRH_LEN);
	ck_assert(value == 0 || value == ATOMIC_SIZE);
	ck_assert(payload == 0 || payload == packet->payload_len);
	if (header)
		ck_assert_uint_eq(payload, packet->payload_len);
}

void fixture_input_unplaced(struct fixture *f, const struct wire_packet *packet)
{
	f->packet = *packet;
	qp_input(&f->qp, packet, &f->placements, f->now_ns);
	check_placements(f, packet);
	check_invariants(f);
}

void fixture_input(struct fixture *f, const struct wire_packet *packet)
{
	fixture_input_unplaced(f, packet);
	if (!f->placements.completes)
		return;
	qp_placed(&f->qp, packet, &f->placements, f->now_ns);
	check_invariants(f);
}

void fixture_arrive(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length)
{
	struct wire_packet packet = fixture_packet(f, opcode, psn, length);

	fixture_input(f, &packet);
}

void fixture_arrive_write(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length,
	uint64_t va, uint32_t rkey, uint32_t dma_length)
{
	struct wire_packet packet = fixture_packet(f, opcode, psn, length);

	packet.h.reth = (struct reth){ va, rkey, dma_length };
	fixture_input(f, &packet);
}

void fixture_ack(struct fixture *f, uint8_t syndrome, uint32_t psn)
{
	struct wire_packet packet = fixture_packet(f, OP_ACKNOWLEDGE, psn, 0);

	packet.h.aeth.syndrome = syndrome;
	fixture_input(f, &packet);
	ck_assert_uint_eq(f->placements.count, 0);
}

void fixture_deadline(struct fixture *f)
{
	uint64_t deadline = qp_next_deadline(&f->qp);

	ck_assert_uint_ne(deadline, DEADLINE_NONE);
	ck_assert_uint_ge(deadline, f->now_ns);
	/* Not a moment too early. */
	qp_on_deadline(&f->qp, deadline - 1);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), deadline);
	f->now_ns = deadline;
	qp_on_deadline(&f->qp, f->now_ns);
	check_invariants(f);
}

void expect_wc(struct cq *cq, uint64_t wr_id, enum frl_wc_status status)
{
	struct frl_wc wc;

	ck_assert_msg(cq_pop(cq, &wc), "no completion for request %d", (int)wr_id);
	ck_assert_uint_eq(wc.wr_id, wr_id);
	ck_assert_int_eq(wc.status, status);
	ck_assert(wc.qp_num == F_QPN || wc.qp_num == QPN_GSI);
}

void expect_no_wc(struct cq *cq)
{
	ck_assert_uint_eq(cq->tail - cq->head, 0);
}

void expect_event(struct event_source *source, enum frl_event_type type)
{
	ck_assert(source->pending & UINT32_C(1) << type);
	ck_assert(!list_empty(&source->node));
	source->pending &= ~(UINT32_C(1) << type);
	if (!source->pending)
		list_remove(&source->node);
}

void expect_no_event(const struct event_source *source)
{
	ck_assert_uint_eq(source->pending, 0);
	ck_assert(list_empty(&source->node));
}

void expect_answer(struct fixture *f, uint8_t syndrome, uint32_t psn, uint32_t msn)
{
	ck_assert_uint_eq(fixture_output(f), 1);
	ck_assert_uint_eq(f->out[0].h.bth.opcode, OP_ACKNOWLEDGE);
	ck_assert_uint_eq(f->out[0].h.bth.dest_qpn, F_PEER_QPN);
	ck_assert_uint_eq(f->out[0].h.bth.pkey, 0xffff);
	ck_assert(!f->out[0].h.bth.ack_request);
	ck_assert_uint_eq(f->out[0].payload_len, 0);
	ck_assert_uint_eq(f->out[0].n_pieces, 0);
	ck_assert_uint_eq(f->out[0].h.aeth.syndrome, syndrome);
	ck_assert_uint_eq(f->out[0].h.bth.psn.value, psn & PSN_MASK);
	ck_assert_uint_eq(f->out[0].h.aeth.msn, msn & PSN_MASK);
}

void expect_silence(struct fixture *f)
{
	ck_assert_uint_eq(fixture_output(f), 0);
}

void expect_refused(struct fixture *f, uint8_t nak, uint32_t psn, uint32_t msn)
{
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	ck_assert_uint_eq(f->placements.count, 0);
	ck_assert_uint_eq(f->stats.naks_sent_fatal, 1);
	/* Sent once, and whatever comes later is dropped. */
	fixture_arrive(f, OP_SEND_ONLY, psn, 1);
	fixture_arrive(f, OP_SEND_ONLY, psn + 1, 1);
	fixture_arrive(f, OP_SEND_ONLY, psn - 1, 1);
	ck_assert_uint_eq(f->stats.drop_qp_state, 3);
	expect_answer(f, nak, psn, msn);
	expect_silence(f);
}

void expect_out(const struct fixture *f, uint32_t i, uint8_t opcode, uint32_t psn, uint32_t length,
	bool ack_request)
{
	ck_assert_uint_lt(i, f->n_out);
	ck_assert_uint_eq(f->out[i].h.bth.opcode, opcode);
	ck_assert_uint_eq(f->out[i].h.bth.psn.value, psn & PSN_MASK);
	ck_assert_uint_eq(f->out[i].payload_len, length);
	ck_assert_int_eq(f->out[i].h.bth.ack_request, ack_request);
}

uint64_t fixture_va(const struct fixture *f, uint32_t offset)
{
	return (uintptr_t)f->memory + offset;
}

uint32_t fixture_bind_window(struct fixture *f)
{
	const struct frl_mw_bind bind = {
		.addr = fixture_va(f, 0),
		.length = F_MEMORY,
		.rkey = frl_inc_rkey(f->window.key),
		.access = FRL_ACCESS_REMOTE_WRITE,
	};

	ck_assert(region_bind(&f->table, &f->window, &f->local, &bind, &f->qp));
	return bind.rkey;
}

void fixture_place(struct fixture *f)
{
	const struct atomic_op *atomic = &f->placements.atomic;

	for (uint32_t i = 0; i < f->placements.count; i++) {
		const struct placement *p = &f->placements.list[i];

		if (p->action)
			frl_reduce_local_plain(p->dst, p->src, p->payload,
				p->length / frl_dtype_size(p->action->dtype), p->action->dtype,
				p->action->op);
		else
			memcpy(p->dst, p->payload, p->length);
	}
	if (!atomic->addr)
		return;
	*atomic->ret_original = *atomic->addr;
	if (!atomic->compare_swap)
		*atomic->addr += atomic->swap_add;
	else if (*atomic->addr == atomic->compare)
		*atomic->addr = atomic->swap_add;
}

/* The position of `next` in the queue, and the packets in flight. */
static void check_requester(const struct fixture *f)
{
	const struct requester *r = &f->qp.requester;
	uint32_t outstanding = 0;
	bool reads = false;

	ck_assert_int_le(psn_diff(r->una, r->next), 0);
	ck_assert_int_le(psn_diff(r->next, r->sent_end), 0);
	ck_assert_int_le(psn_diff(r->sent_end, r->end), 0);
	ck_assert_uint_le(r->tail - r->head, r->size);
	ck_assert_uint_le(r->current - r->head, r->tail - r->head);
	if (r->head == r->tail)
		ck_assert(psn_equal(r->una, r->end));
	for (uint32_t at = r->head; at != r->tail; at++) {
		const struct send_wqe *wqe = send_wqe_at(r, at);

		if (at - r->head < r->current - r->head)
			outstanding += wr_has_response(wqe->opcode);
		reads |= wqe->opcode == FRL_WR_RDMA_READ;
	}
	ck_assert_uint_eq(r->outstanding, outstanding);
	ck_assert_uint_le(outstanding, f->qp.attr.max_rd_atomic);
	if (f->qp.type == FRL_QPT_RC && !reads)
		ck_assert_uint_le((uint32_t)psn_diff(r->sent_end, r->una), r->window + r->slack);
	if (r->current != r->tail && qp_sends(&f->qp)) {
		const struct send_wqe *wqe = send_wqe_at(r, r->current);
		int32_t k = psn_diff(r->next, wqe->first_psn);

		ck_assert_int_ge(k, 0);
		ck_assert_int_lt(k, wqe->packets ? (int32_t)wqe->packets : 1);
	} else if (qp_sends(&f->qp)) {
		ck_assert(psn_equal(r->next, r->end));
	}
}

void check_invariants(const struct fixture *f)
{
	const struct requester *r = &f->qp.requester;
	const struct recv_queue *q = &f->qp.responder.queue;

	check_requester(f);
	ck_assert_uint_le(q->tail - q->head, q->size);
	ck_assert_int_eq(f->qp.state, f->qp.attr.state);
	if (!qp_sends(&f->qp) || f->qp.type != FRL_QPT_RC)
		ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	if (f->qp.state == FRL_QPS_ERR || f->qp.state == FRL_QPS_SQE)
		ck_assert_uint_eq(r->head, r->tail);
	if (f->qp.state == FRL_QPS_ERR)
		ck_assert_uint_eq(q->head, q->tail);
}
