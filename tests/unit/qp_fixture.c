/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/qp_fixture.h"

#include <stdlib.h>
#include <string.h>

const uint32_t fixture_mask_init = FRL_QP_STATE | FRL_QP_ACCESS_FLAGS;
const uint32_t fixture_mask_rtr = FRL_QP_STATE | FRL_QP_PATH | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
	FRL_QP_RQ_PSN | FRL_QP_MIN_RNR_TIMER;
const uint32_t fixture_mask_rts = FRL_QP_STATE | FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT |
	FRL_QP_RNR_RETRY;

static const struct frl_ip peer_ip = { { [10] = 0xff, [11] = 0xff, 10, 9, 0, 2 } };
static int pd, other_pd;

void fixture_attr(const struct fixture_config *config, struct frl_qp_attr *ret_attr)
{
	*ret_attr = (struct frl_qp_attr){
		.access_flags = config->no_remote_write ? 0 : FRL_ACCESS_REMOTE_WRITE,
		.remote_ip = peer_ip,
		.path_mtu = config->mtu ? config->mtu : 1024,
		.dest_qpn = F_PEER_QPN,
		.rq_psn = config->rq_psn,
		.sq_psn = config->sq_psn,
		.min_rnr_timer = 14,
		.timeout = config->no_timeout ? 0 : 4,
		.retry_cnt = config->retry_cnt,
		.rnr_retry = config->rnr_retry,
	};
}

void fixture_bring_up(struct fixture *f, const struct fixture_config *config)
{
	enum frl_qp_state state = config->state ? config->state : FRL_QPS_RTS;
	static const enum frl_qp_state steps[] = { FRL_QPS_INIT, FRL_QPS_RTR, FRL_QPS_RTS };
	const uint32_t masks[] = { fixture_mask_init, fixture_mask_rtr, fixture_mask_rts };
	const char *why = NULL;
	struct frl_qp_attr attr;

	fixture_attr(config, &attr);
	for (int i = 0; i < 3; i++) {
		attr.state = steps[i];
		ck_assert_int_eq(qp_modify(&f->qp, &attr, masks[i], &why), 0);
		if (state == steps[i])
			return;
	}
	attr.state = state;
	ck_assert_int_eq(qp_modify(&f->qp, &attr, FRL_QP_STATE, &why), 0);
}

static void add_region(struct fixture *f, struct region *region, uint32_t access, const void *of)
{
	static uint32_t random = 0x1234;

	*region = (struct region){
		.addr = f->memory, .length = F_MEMORY, .access = access, .pd = of
	};
	ck_assert(region_add(&f->table, region, random++));
}

struct fixture *fixture_new(const struct fixture_config *config)
{
	static const struct fixture_config defaults;
	static struct fixture storage;
	struct fixture *f = &storage;

	if (!config)
		config = &defaults;
	memset(f, 0, sizeof(*f));
	for (unsigned i = 0; i < sizeof(f->peer); i++)
		f->peer[i] = (uint8_t)(i * 7 + 1);
	cq_init(&f->send_cq, f->send_wc, config->n_cq ? config->n_cq : F_CQ);
	cq_init(&f->recv_cq, f->recv_wc, config->n_cq ? config->n_cq : F_CQ);
	region_table_extend(&f->table, f->slots, F_SLOTS);
	add_region(f, &f->local, FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, &pd);
	add_region(f, &f->read_only, 0, &pd);
	add_region(f, &f->foreign, FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, &other_pd);
	add_region(f, &f->huge, FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, &pd);
	f->huge.addr = (uint8_t *)(uintptr_t)0x100000000;
	f->huge.length = UINT64_C(1) << 32;
	qp_init(&f->qp,
		&(struct qp_config){
			.qpn = F_QPN,
			.pd = &pd,
			.send_cq = &f->send_cq,
			.recv_cq = &f->recv_cq,
			.regions = &f->table,
			.stats = &f->stats,
			.send_wqes = f->send_wqes,
			.n_send = config->n_send ? config->n_send : F_QUEUE,
			.recv_wqes = f->recv_wqes,
			.n_recv = config->n_recv ? config->n_recv : F_QUEUE,
			.window = config->window ? config->window : F_WINDOW,
			.unlimited_retry = config->unlimited_retry,
		});
	f->now_ns = 1000000;
	fixture_bring_up(f, config);
	return f;
}

static void post(struct fixture *f, const struct frl_send_wr *wr)
{
	const char *why = "";
	int rc = qp_post_send(&f->qp, wr, &why);

	ck_assert_msg(rc == 0, "qp_post_send: %s", why);
	check_invariants(f);
}

void fixture_send(struct fixture *f, uint64_t wr_id, enum frl_wr_opcode opcode, uint32_t length)
{
	struct frl_sge sge = { f->memory, length, f->local.key };

	post(f,
		&(struct frl_send_wr){ .wr_id = wr_id,
			.opcode = opcode,
			.flags = FRL_SEND_SIGNALED,
			.sge = &sge,
			.n_sge = 1,
			.imm_data = 0xabcd0000 + (uint32_t)wr_id,
			.remote_addr = 0x700000,
			.rkey = 0x55 });
}

void fixture_send_flags(struct fixture *f, uint64_t wr_id, uint32_t length, uint32_t flags)
{
	struct frl_sge sge = { f->memory, length, f->local.key };

	post(f, &(struct frl_send_wr){ .wr_id = wr_id, .flags = flags, .sge = &sge, .n_sge = 1 });
}

void fixture_recv(struct fixture *f, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct frl_sge sge = { f->memory + offset, length, f->local.key };
	struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };
	const char *why = "";

	ck_assert_msg(qp_post_recv(&f->qp, &wr, &why) == 0, "qp_post_recv: %s", why);
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

struct wire_packet fixture_packet(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length)
{
	return (struct wire_packet){
		.h.bth = { .opcode = opcode,
			.pkey = 0xffff,
			.dest_qpn = F_QPN,
			.psn = psn_make(psn),
			.ack_request = opcode_table[opcode].flags & OPCODE_LAST },
		.h.imm_data = 0x11223344,
		.op = &opcode_table[opcode],
		.src_ip = peer_ip,
		.payload = f->peer,
		.payload_len = length,
	};
}

static void check_placements(const struct fixture *f, const struct wire_packet *packet)
{
	const uint8_t *payload = packet->payload;

	ck_assert_uint_le(f->placements.count, FRL_MAX_SGE);
	for (uint32_t i = 0; i < f->placements.count; i++) {
		const struct placement *p = &f->placements.list[i];

		ck_assert_ptr_nonnull(p->region);
		ck_assert_uint_gt(p->length, 0);
		ck_assert(region_allows(p->region, &pd, (uintptr_t)p->dst, p->length, 0));
		ck_assert_ptr_eq(p->payload, payload);
		payload += p->length;
	}
	if (f->placements.count)
		ck_assert_ptr_eq(payload, packet->payload + packet->payload_len);
}

void fixture_input(struct fixture *f, const struct wire_packet *packet)
{
	qp_input(&f->qp, packet, &f->placements, f->now_ns);
	check_placements(f, packet);
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
	ck_assert_uint_eq(wc.qp_num, F_QPN);
}

void expect_no_wc(struct cq *cq)
{
	ck_assert_uint_eq(cq->tail - cq->head, 0);
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

void fixture_place(struct fixture *f)
{
	for (uint32_t i = 0; i < f->placements.count; i++) {
		const struct placement *p = &f->placements.list[i];

		if (p->action)
			frl_reduce_plain(p->dst, p->src, p->payload,
				p->length / frl_dtype_size(p->action->dtype), p->action->dtype,
				p->action->op);
		else
			memcpy(p->dst, p->payload, p->length);
	}
}

void check_invariants(const struct fixture *f)
{
	const struct requester *r = &f->qp.requester;
	const struct responder *q = &f->qp.responder;

	ck_assert_int_le(psn_diff(r->una, r->next), 0);
	ck_assert_int_le(psn_diff(r->next, r->sent_end), 0);
	ck_assert_int_le(psn_diff(r->sent_end, r->end), 0);
	ck_assert_uint_le((uint32_t)psn_diff(r->sent_end, r->una), r->window);
	ck_assert_uint_le(r->tail - r->head, r->mask + 1);
	ck_assert_uint_le(r->current - r->head, r->tail - r->head);
	ck_assert_uint_le(q->tail - q->head, q->size);
	ck_assert((r->head == r->tail) == psn_equal(r->una, r->end));
	ck_assert_int_eq(f->qp.state, f->qp.attr.state);
	if (f->qp.state == FRL_QPS_RTS && !psn_equal(r->next, r->end)) {
		const struct send_wqe *wqe = send_wqe_at(r, r->current);
		int32_t k = psn_diff(r->next, wqe->first_psn);

		ck_assert_int_ge(k, 0);
		ck_assert_int_lt(k, (int32_t)wqe->packets);
	}
	if (f->qp.state != FRL_QPS_RTS)
		ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	if (f->qp.state == FRL_QPS_ERR) {
		ck_assert_uint_eq(r->head, r->tail);
		ck_assert_uint_eq(q->head, q->tail);
	}
}

int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed;
}
