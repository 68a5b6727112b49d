/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting, failing, and packets that are dropped at once. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <errno.h>
#include <string.h>

static const struct wr_objects none;

static int post_send(struct fixture *f, const struct frl_send_wr *wr)
{
	const char *why = NULL;

	return qp_post_send(&f->qp, wr, &none, &why);
}

static void post_send_fails(struct fixture *f, const struct frl_send_wr *wr, int error)
{
	static struct requester before;
	const char *why = NULL;

	before = f->qp.requester;
	ck_assert_int_eq(qp_post_send(&f->qp, wr, &none, &why), error);
	ck_assert_ptr_nonnull(why);
	ck_assert_mem_eq(&before, &f->qp.requester, sizeof(before));
	expect_no_wc(&f->send_cq);
	expect_silence(f);
}

static void post_recv_fails(struct fixture *f, const struct frl_recv_wr *wr, int error)
{
	uint32_t tail = f->qp.responder.queue.tail;
	const char *why = NULL;

	ck_assert_int_eq(qp_post_recv(&f->qp, wr, &why), error);
	ck_assert_ptr_nonnull(why);
	ck_assert_uint_eq(f->qp.responder.queue.tail, tail);
	expect_no_wc(&f->recv_cq);
}

enum key { LOCAL, READ_ONLY, FOREIGN, STALE };

static uint32_t key_of(const struct fixture *f, enum key key)
{
	const uint32_t keys[] = { f->local.key, f->read_only.key, f->foreign.key,
		f->local.key + 0x10000 };

	return keys[key];
}

/* One element at memory + offset. */
static const struct element_row {
	enum key key;
	int32_t offset;
	uint32_t length;
	bool send_ok;
	bool recv_ok;
} element_rows[] = {
	{ LOCAL, 0, F_MEMORY, true, true },
	{ LOCAL, F_MEMORY, 0, true, true },
	{ LOCAL, 1, F_MEMORY, false, false },
	{ LOCAL, -1, 1, false, false },
	{ LOCAL, F_MEMORY, 1, false, false },
	{ LOCAL, F_MEMORY - 1, 2, false, false },
	{ LOCAL, F_MEMORY - 1, 1, true, true },
	{ READ_ONLY, 0, 10, true, false },
	{ FOREIGN, 0, 10, false, false },
	{ STALE, 0, 10, false, false },
	{ STALE, 0, 0, true, true }, /* without bytes the key means nothing */
	{ LOCAL, 0, UINT32_MAX, false, false },
};

START_LOOP_TEST(elements, ROWS(element_rows))
{
	const struct element_row *row = &element_rows[_i];
	struct fixture *f = fixture_new(NULL);
	struct frl_sge sge[2] = { { f->memory, 8, f->local.key },
		{ (uint8_t *)((uintptr_t)f->memory + (uintptr_t)row->offset), row->length,
			key_of(f, row->key) } };

	for (int n = 1; n <= 2; n++) { /* alone, and behind a good one */
		struct frl_send_wr send = { .sge = sge + 2 - n, .n_sge = n };
		struct frl_recv_wr recv = { .sge = sge + 2 - n, .n_sge = n };
		const char *why;

		if (row->recv_ok)
			ck_assert_int_eq(qp_post_recv(&f->qp, &recv, &why), 0);
		else
			post_recv_fails(f, &recv, -EINVAL);
		if (!row->send_ok)
			post_send_fails(f, &send, -EINVAL);
		else
			ck_assert_int_eq(post_send(f, &send), 0);
	}
}
END_TEST

START_TEST(counts_and_sizes)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256 });
	struct frl_sge sge[FRL_MAX_SGE + 1];
	const char *why;

	for (int i = 0; i <= FRL_MAX_SGE; i++)
		sge[i] = (struct frl_sge){ f->huge.addr, 1u << 30, f->huge.key };
	post_send_fails(f, &(struct frl_send_wr){ .sge = sge, .n_sge = FRL_MAX_SGE + 1 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .sge = sge, .n_sge = -1 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .n_sge = 1 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .sge = sge, .n_sge = 3 }, -EINVAL); /* 3 GiB */
	post_recv_fails(f, &(struct frl_recv_wr){ .sge = sge, .n_sge = FRL_MAX_SGE + 1 }, -EINVAL);
	post_recv_fails(f, &(struct frl_recv_wr){ .sge = sge, .n_sge = -1 }, -EINVAL);
	post_recv_fails(f, &(struct frl_recv_wr){ .n_sge = 1 }, -EINVAL);
	post_recv_fails(f, &(struct frl_recv_wr){ .sge = sge, .n_sge = 3 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .opcode = (enum frl_wr_opcode)10 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .opcode = (enum frl_wr_opcode) - 1 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .flags = 16 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .flags = 0x102 }, -EINVAL);
	/* 2^31 bytes are 2^23 packets of 256, which PSNs cannot tell apart. */
	post_send_fails(f, &(struct frl_send_wr){ .sge = sge, .n_sge = 2 }, -EINVAL);
	ck_assert_int_eq(
		qp_post_recv(&f->qp, &(struct frl_recv_wr){ .sge = sge, .n_sge = 2 }, &why), 0);
	sge[1].length -= 256;
	ck_assert_int_eq(post_send(f, &(struct frl_send_wr){ .sge = sge, .n_sge = 2 }), 0);
	ck_assert_uint_gt(qp_output(&f->qp, f->out, 1, 0), 0);
	/* One more packet does not fit beside it. */
	ck_assert_int_eq(post_send(f, &(struct frl_send_wr){ 0 }), -ENOMEM);
	f = fixture_new(&(struct fixture_config){ .mtu = 512 });
	sge[0].lkey = sge[1].lkey = f->huge.key;
	sge[1].length = 1u << 30;
	ck_assert_int_eq(post_send(f, &(struct frl_send_wr){ .sge = sge, .n_sge = 2 }), 0);
}
END_TEST

START_TEST(queues_fill_up)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .n_send = 4, .n_recv = 8 });

	f->qp.requester.head = f->qp.requester.tail = f->qp.requester.current = UINT32_MAX - 1;
	f->qp.responder.queue.head = f->qp.responder.queue.tail = UINT32_MAX - 1;
	for (uint32_t i = 0; i < 4; i++)
		fixture_send(f, i, FRL_WR_SEND, 10);
	for (uint32_t i = 0; i < 8; i++)
		fixture_recv(f, i, 0, 10);
	fixture_output(f);
	post_send_fails(f, &(struct frl_send_wr){ 0 }, -ENOMEM);
	post_recv_fails(f, &(struct frl_recv_wr){ 0 }, -ENOMEM);
	fixture_ack(f, 0x1f, 0);
	fixture_arrive(f, OP_SEND_ONLY, 0, 10);
	fixture_output(f);
	fixture_send(f, 4, FRL_WR_SEND, 10);
	fixture_recv(f, 8, 0, 10);
	fixture_output(f);
	fixture_ack(f, 0x1f, 4);
	for (uint32_t i = 0; i < 5; i++)
		expect_wc(&f->send_cq, i, FRL_WC_SUCCESS);
	expect_wc(&f->recv_cq, 0, FRL_WC_SUCCESS);
	/* Without a receive queue. */
	f->qp.responder.queue.head = f->qp.responder.queue.tail = f->qp.responder.queue.size = 0;
	post_recv_fails(f, &(struct frl_recv_wr){ 0 }, -ENOMEM);
}
END_TEST

START_TEST(inline_sizes)
{
	struct fixture *f = fixture_new(NULL);
	struct frl_sge sge[4] = { { f->peer, 80, 0 }, { f->peer, 80, 0 }, { f->peer, 80, 0 },
		{ f->peer, 17, 0 } };
	struct frl_send_wr wr = {
		.opcode = FRL_WR_SEND, .flags = FRL_SEND_INLINE, .sge = sge, .n_sge = 4
	};

	post_send_fails(f, &wr, -EINVAL);
	sge[0].length = UINT32_MAX - 100;
	post_send_fails(f, &wr, -EINVAL);
	wr.n_sge = FRL_MAX_SGE + 1;
	post_send_fails(f, &wr, -EINVAL);
	wr.n_sge = -1;
	post_send_fails(f, &wr, -EINVAL);
	wr.n_sge = 1;
	wr.sge = NULL;
	post_send_fails(f, &wr, -EINVAL);
	wr.sge = sge;
	sge[0].length = FRL_MAX_INLINE;
	ck_assert_int_eq(post_send(f, &wr), 0);
	wr.n_sge = 0;
	ck_assert_int_eq(post_send(f, &wr), 0);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_out(f, 1, OP_SEND_ONLY, 1, 0, true);
}
END_TEST

START_TEST(reduce_rules)
{
	struct fixture *f = fixture_new(NULL);
	struct frl_sge sge[2] = { { f->memory, 40, f->local.key },
		{ f->memory + 100, 24, f->local.key } };
	struct frl_recv_wr good = {
		.sge = sge,
		.n_sge = 2,
		.action = { .type = FRL_ACTION_REDUCE, .dtype = FRL_FLOAT32 },
	};
	struct frl_recv_wr wr;
	const char *why;

	ck_assert_int_eq(qp_post_recv(&f->qp, &good, &why), 0);
	good.action.src = f->memory + F_MEMORY - 64;
	good.action.src_lkey = f->read_only.key; /* is only read */
	ck_assert_int_eq(qp_post_recv(&f->qp, &good, &why), 0);
	wr = good;
	wr.action.src = f->memory + F_MEMORY - 63;
	post_recv_fails(f, &wr, -EINVAL);
	wr = good;
	wr.action.src_lkey = f->foreign.key;
	post_recv_fails(f, &wr, -EINVAL);
	wr.action.src_lkey = 0;
	post_recv_fails(f, &wr, -EINVAL);
	wr = good;
	wr.action.type = (enum frl_action_type)2;
	post_recv_fails(f, &wr, -EINVAL);
	wr = good;
	wr.action.dtype = FRL_DTYPES;
	post_recv_fails(f, &wr, -EINVAL);
	wr = good;
	wr.action.op = FRL_OPS;
	post_recv_fails(f, &wr, -EINVAL);
	wr.action.op = (enum frl_op) - 1;
	post_recv_fails(f, &wr, -EINVAL);
	/* Each element of the list holds whole numbers, not only their sum. */
	wr = good;
	sge[0].length = 38;
	sge[1].length = 26;
	post_recv_fails(f, &wr, -EINVAL);
	wr.action.type = FRL_ACTION_COPY;
	ck_assert_int_eq(qp_post_recv(&f->qp, &wr, &why), 0);
}
END_TEST

START_TEST(states_that_take_requests)
{
	static const struct {
		enum frl_qp_state state;
		bool send, recv;
	} rows[] = { { FRL_QPS_INIT, false, true }, { FRL_QPS_RTR, false, true },
		{ FRL_QPS_RTS, true, true } };
	struct frl_send_wr send = { .wr_id = 5, .opcode = FRL_WR_SEND };
	struct frl_recv_wr recv = { .wr_id = 6 };
	struct fixture *f;
	const char *why;

	for (unsigned i = 0; i < 3; i++) {
		f = fixture_new(&(struct fixture_config){ .state = rows[i].state });
		if (rows[i].send)
			ck_assert_int_eq(post_send(f, &send), 0);
		else
			post_send_fails(f, &send, -EINVAL);
		ck_assert_int_eq(qp_post_recv(&f->qp, &recv, &why), 0);
	}
	f = fixture_new(&(struct fixture_config){ .state = FRL_QPS_ERR });
	ck_assert_int_eq(post_send(f, &send), 0);
	ck_assert_int_eq(qp_post_recv(&f->qp, &recv, &why), 0);
	expect_wc(&f->send_cq, 5, FRL_WC_WR_FLUSH_ERR);
	expect_wc(&f->recv_cq, 6, FRL_WC_WR_FLUSH_ERR);
	expect_silence(f);
	ck_assert_int_eq(qp_modify(&f->qp, &(struct frl_qp_attr){ 0 }, FRL_QP_STATE, &why), 0);
	post_send_fails(f, &send, -EINVAL);
	post_recv_fails(f, &recv, -EINVAL);
}
END_TEST

/* In ERR posting into a full completion queue counts and ends. */
START_TEST(flush_into_a_full_queue)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .n_cq = 2 });

	for (uint32_t i = 0; i < 6; i++)
		fixture_send(f, i, FRL_WR_SEND, 10);
	qp_fail(&f->qp, FRL_WC_REM_ABORT_ERR);
	check_invariants(f);
	ck_assert_uint_eq(f->stats.cq_overruns, 4);
	ck_assert_int_eq(post_send(f, &(struct frl_send_wr){ 0 }), 0);
	ck_assert_uint_eq(f->stats.cq_overruns, 5);
	expect_wc(&f->send_cq, 0, FRL_WC_REM_ABORT_ERR);
	expect_wc(&f->send_cq, 1, FRL_WC_WR_FLUSH_ERR);
	expect_no_wc(&f->send_cq);
}
END_TEST

START_TEST(failing)
{
	struct fixture *f = fixture_new(NULL);

	qp_fail(&f->qp, FRL_WC_REM_ABORT_ERR); /* nothing posted: nobody to tell */
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_no_wc(&f->send_cq);
	expect_event(&f->qp.events, FRL_EVENT_QP_FATAL); /* but by an event */
	f = fixture_new(NULL);
	fixture_send_flags(f, 1, 10, 0);
	fixture_send_flags(f, 2, 10, 0);
	fixture_recv(f, 3, 0, 10);
	fixture_recv(f, 4, 0, 10);
	fixture_output(f);
	qp_fail(&f->qp, FRL_WC_REM_ABORT_ERR);
	qp_fail(&f->qp, FRL_WC_FATAL_ERR); /* once is enough */
	expect_wc(&f->send_cq, 1, FRL_WC_REM_ABORT_ERR);
	expect_wc(&f->send_cq, 2, FRL_WC_WR_FLUSH_ERR);
	expect_no_wc(&f->send_cq);
	expect_wc(&f->recv_cq, 3, FRL_WC_WR_FLUSH_ERR);
	expect_wc(&f->recv_cq, 4, FRL_WC_WR_FLUSH_ERR);
	expect_no_wc(&f->recv_cq);
	expect_no_event(&f->qp.events);
	fixture_ack(f, 0x1f, 0);
	ck_assert_uint_eq(f->stats.drop_qp_state, 1);
	check_invariants(f);
	expect_no_wc(&f->send_cq);
}
END_TEST

/* Counted, and nothing else happens. */
START_TEST(drops)
{
	static const enum frl_qp_state silent[] = { FRL_QPS_INIT, FRL_QPS_ERR };
	struct wire_packet packet;
	struct fixture *f;

	for (unsigned i = 0; i < 2; i++) {
		f = fixture_new(&(struct fixture_config){ .state = silent[i] });
		fixture_arrive(f, OP_SEND_ONLY, 0, 10);
		fixture_ack(f, 0x1f, 0);
		ck_assert_uint_eq(f->stats.drop_qp_state, 2);
		expect_silence(f);
	}
	f = fixture_new(NULL);
	fixture_recv(f, 1, 0, 100);
	fixture_arrive(f, TRANSPORT_UC | OP_SEND_ONLY, 0, 10);
	fixture_arrive(f, TRANSPORT_UD | OP_SEND_ONLY, 0, 10);
	ck_assert_uint_eq(f->stats.drop_bad_opcode, 2);
	fixture_arrive(f, TRANSPORT_CNP | 1, 0, 16);
	ck_assert_uint_eq(f->stats.cnps_received, 1);
	packet = fixture_packet(f, OP_SEND_ONLY, 0, 10);
	packet.h.bth.pkey = 0x8001;
	fixture_input(f, &packet);
	packet.h.bth.pkey = 0;
	fixture_input(f, &packet);
	ck_assert_uint_eq(f->stats.drop_bad_pkey, 2);
	packet.h.bth.pkey = 0xffff;
	packet.src_ip.bytes[15]++;
	fixture_input(f, &packet);
	ck_assert_uint_eq(f->stats.drop_wrong_peer, 1);
	expect_silence(f);
	expect_no_wc(&f->recv_cq);
	packet = fixture_packet(f, OP_SEND_ONLY, 0, 10);
	packet.h.bth.pkey = 0x7fff; /* a limited member speaks to a full one */
	fixture_input(f, &packet);
	expect_answer(f, 0x1f, 0, 1);
	expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
}
END_TEST

/* An overrun fails the queue pair without a completion: two events tell. */
START_TEST(overrun)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .n_cq = 2 });

	for (uint32_t i = 0; i < 3; i++)
		fixture_send(f, i, FRL_WR_SEND, 10);
	fixture_output(f);
	fixture_ack(f, 0x1f, 2);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_event(&f->send_cq.events, FRL_EVENT_CQ_ERR);
	expect_event(&f->qp.events, FRL_EVENT_QP_FATAL);
	expect_no_event(&f->qp.events);
}
END_TEST

/* The first packet that a queue pair accepts in RTR, and only that. */
START_TEST(communication_established)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .state = FRL_QPS_RTR });
	struct wire_packet packet = fixture_packet(f, OP_SEND_ONLY, 0, 10);

	packet.h.bth.pkey = 1;
	fixture_input(f, &packet);
	expect_no_event(&f->qp.events);
	fixture_ack(f, 0x1f, 0);
	fixture_arrive(f, OP_SEND_ONLY, 5, 10);
	expect_no_event(&f->qp.events);
	fixture_recv(f, 1, 0, 10);
	fixture_arrive(f, OP_SEND_ONLY, 0, 10);
	expect_event(&f->qp.events, FRL_EVENT_COMM_EST);
	fixture_arrive(f, OP_WRITE_ONLY, 1, 0);
	expect_no_event(&f->qp.events);
	f = fixture_new(NULL);
	fixture_arrive(f, OP_WRITE_ONLY, 0, 0);
	expect_no_event(&f->qp.events);
}
END_TEST

/* A send request that fails takes UC and UD to SQE, where only the receive queue works. */
START_LOOP_TEST(send_queue_error, 3)
{
	static const enum frl_qp_type types[] = { FRL_QPT_UC, FRL_QPT_UD, FRL_QPT_GSI };
	struct fixture *f = fixture_new(&(struct fixture_config){ .type = types[_i] });
	struct frl_qp_attr attr = { .state = FRL_QPS_RTS };
	const char *why = "";

	fixture_recv(f, 9, 0, 100);
	for (uint32_t i = 1; i <= 3; i++)
		fixture_send(f, i, FRL_WR_SEND, 10);
	region_remove(&f->table, &f->local);
	fixture_output(f);
	ck_assert_int_eq(f->qp.state, FRL_QPS_SQE);
	expect_wc(&f->send_cq, 1, FRL_WC_LOC_PROT_ERR);
	expect_wc(&f->send_cq, 2, FRL_WC_WR_FLUSH_ERR);
	expect_wc(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR);
	expect_no_wc(&f->recv_cq);
	ck_assert_int_eq(post_send(f, &(struct frl_send_wr){ .wr_id = 4 }), 0);
	expect_wc(&f->send_cq, 4, FRL_WC_WR_FLUSH_ERR);
	expect_silence(f);
	ck_assert_int_eq(qp_modify(&f->qp, &attr, FRL_QP_STATE, &why), 0);
	ck_assert(region_add(&f->table, &f->local, 0x1234));
	fixture_send(f, 5, FRL_WR_SEND, 10);
	ck_assert_uint_eq(fixture_output(f), 1);
	fixture_transmitted(f, 1);
	expect_wc(&f->send_cq, 5, FRL_WC_SUCCESS);
}
END_TEST

static void arrive_read(struct fixture *f, uint32_t psn, uint32_t length)
{
	struct wire_packet packet = fixture_packet(f, OP_READ_REQUEST, psn, 0);

	packet.h.reth = (struct reth){ fixture_va(f, 0), f->local.key, length };
	fixture_input(f, &packet);
}

/* A peer that reads without end, taking one packet at a time or many, leaves room for requests. */
START_LOOP_TEST(answers_leave_room, 2)
{
	struct fixture *f = fixture_new(NULL);
	uint32_t max = _i ? 8 : 1, psn = 0, sent = 0;

	for (uint32_t i = 0; i < 10; i++)
		fixture_send(f, i, FRL_WR_SEND, 10);
	for (uint32_t round = 0; round < 40; round++) {
		uint32_t n;

		while (f->qp.responder.n_pending < 2) {
			arrive_read(f, psn, 20 * 1024);
			psn += 20;
		}
		n = qp_output(&f->qp, f->out, max, f->now_ns);
		ck_assert_uint_eq(n, max);
		for (uint32_t i = 0; i < n; i++)
			sent += f->out[i].h.bth.opcode == OP_SEND_ONLY;
	}
	ck_assert_uint_eq(sent, 10);
}
END_TEST

/* Repetitions of a READ that was answered may come when its memory is gone. */
START_TEST(read_repeated_late)
{
	struct fixture *f = fixture_new(NULL);

	arrive_read(f, 0, 3000);
	ck_assert_uint_eq(fixture_output(f), 3);
	region_remove(&f->table, &f->local);
	arrive_read(f, 0, 3000);
	expect_silence(f);
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	ck_assert_uint_eq(f->stats.drop_no_replay, 1);
	ck_assert_uint_eq(f->qp.responder.n_pending, 0);
}
END_TEST

/* FLUSH and ATOMIC WRITE, which peers of a later version may try. */
START_LOOP_TEST(unsupported_operations, 2)
{
	struct fixture *f = fixture_new(NULL);
	struct wire_packet packet;

	packet = fixture_packet(f, (uint8_t)(0x1c + _i), 0, 28);
	fixture_input(f, &packet);
	expect_refused(f, 0x61, 0, 0);
	f = fixture_new(&(struct fixture_config){ .rq_psn = 1 });
	packet = fixture_packet(f, (uint8_t)(0x1c + _i), 0, 28);
	fixture_input(f, &packet); /* old */
	expect_silence(f);
}
END_TEST

/* rc_err_badrkey_w from the requester's side: WRITE, then SEND; NAK 2 for the first. */
START_TEST(bad_rkey)
{
	struct fixture *f = fixture_new(NULL);

	fixture_recv(f, 3, 0, 10);
	fixture_send(f, 1, FRL_WR_RDMA_WRITE, 3000);
	fixture_send(f, 2, FRL_WR_SEND, 10);
	fixture_output(f);
	fixture_ack(f, 0x62, 0);
	expect_wc(&f->send_cq, 1, FRL_WC_REM_ACCESS_ERR);
	expect_wc(&f->send_cq, 2, FRL_WC_WR_FLUSH_ERR);
	expect_wc(&f->recv_cq, 3, FRL_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_silence(f);
}
END_TEST

TEST_FILE(qp)
