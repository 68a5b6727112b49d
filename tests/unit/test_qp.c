/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting, failing, and what is dropped at the door. */
#include "tests/unit/qp_fixture.h"

#include <errno.h>
#include <string.h>

static void post_send_fails(struct fixture *f, const struct frl_send_wr *wr, int error)
{
	static struct requester before;
	const char *why = NULL;

	before = f->qp.requester;
	ck_assert_int_eq(qp_post_send(&f->qp, wr, &why), error);
	ck_assert_ptr_nonnull(why);
	ck_assert_mem_eq(&before, &f->qp.requester, sizeof(before));
	expect_no_wc(&f->send_cq);
	expect_silence(f);
}

static void post_recv_fails(struct fixture *f, const struct frl_recv_wr *wr, int error)
{
	uint32_t tail = f->qp.responder.tail;
	const char *why = NULL;

	ck_assert_int_eq(qp_post_recv(&f->qp, wr, &why), error);
	ck_assert_ptr_nonnull(why);
	ck_assert_uint_eq(f->qp.responder.tail, tail);
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

START_TEST(elements)
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
			ck_assert_int_eq(qp_post_send(&f->qp, &send, &why), 0);
	}
}
END_TEST

START_TEST(counts_and_sizes)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256 });
	struct frl_sge sge[5];
	const char *why;

	for (int i = 0; i < 5; i++)
		sge[i] = (struct frl_sge){ f->huge.addr, 1u << 30, f->huge.key };
	post_send_fails(f, &(struct frl_send_wr){ .sge = sge, .n_sge = 5 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .sge = sge, .n_sge = -1 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .n_sge = 1 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .sge = sge, .n_sge = 3 }, -EINVAL); /* 3 GiB */
	post_recv_fails(f, &(struct frl_recv_wr){ .sge = sge, .n_sge = 5 }, -EINVAL);
	post_recv_fails(f, &(struct frl_recv_wr){ .sge = sge, .n_sge = -1 }, -EINVAL);
	post_recv_fails(f, &(struct frl_recv_wr){ .n_sge = 1 }, -EINVAL);
	post_recv_fails(f, &(struct frl_recv_wr){ .sge = sge, .n_sge = 3 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .opcode = (enum frl_wr_opcode)4 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .opcode = (enum frl_wr_opcode) - 1 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .flags = 8 }, -EINVAL);
	post_send_fails(f, &(struct frl_send_wr){ .flags = 0x101 }, -EINVAL);
	/* 2^31 bytes are 2^23 packets of 256, which PSNs cannot tell apart. */
	post_send_fails(f, &(struct frl_send_wr){ .sge = sge, .n_sge = 2 }, -EINVAL);
	ck_assert_int_eq(
		qp_post_recv(&f->qp, &(struct frl_recv_wr){ .sge = sge, .n_sge = 2 }, &why), 0);
	sge[1].length -= 256;
	ck_assert_int_eq(
		qp_post_send(&f->qp, &(struct frl_send_wr){ .sge = sge, .n_sge = 2 }, &why), 0);
	ck_assert_uint_gt(qp_output(&f->qp, f->out, 1, 0), 0);
	/* One more packet does not fit beside it. */
	ck_assert_int_eq(qp_post_send(&f->qp, &(struct frl_send_wr){ 0 }, &why), -ENOMEM);
	f = fixture_new(&(struct fixture_config){ .mtu = 512 });
	sge[0].lkey = sge[1].lkey = f->huge.key;
	sge[1].length = 1u << 30;
	ck_assert_int_eq(
		qp_post_send(&f->qp, &(struct frl_send_wr){ .sge = sge, .n_sge = 2 }, &why), 0);
}
END_TEST

START_TEST(queues_fill_up)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .n_send = 4, .n_recv = 8 });

	f->qp.requester.head = f->qp.requester.tail = f->qp.requester.current = UINT32_MAX - 1;
	f->qp.responder.head = f->qp.responder.tail = UINT32_MAX - 1;
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
	f->qp.responder.head = f->qp.responder.tail = f->qp.responder.size = 0;
	post_recv_fails(f, &(struct frl_recv_wr){ 0 }, -ENOMEM);
}
END_TEST

START_TEST(inline_sizes)
{
	struct fixture *f = fixture_new(NULL);
	struct frl_sge sge[4] = { { f->peer, 20, 0 }, { f->peer, 20, 0 }, { f->peer, 20, 0 },
		{ f->peer, 5, 0 } };
	struct frl_send_wr wr = { .flags = FRL_SEND_INLINE, .sge = sge, .n_sge = 4 };
	const char *why;

	post_send_fails(f, &wr, -EINVAL);
	sge[0].length = UINT32_MAX - 30;
	post_send_fails(f, &wr, -EINVAL);
	wr.n_sge = 5;
	post_send_fails(f, &wr, -EINVAL);
	wr.n_sge = -1;
	post_send_fails(f, &wr, -EINVAL);
	wr.n_sge = 1;
	wr.sge = NULL;
	post_send_fails(f, &wr, -EINVAL);
	wr.sge = sge;
	sge[0].length = 64;
	ck_assert_int_eq(qp_post_send(&f->qp, &wr, &why), 0);
	wr.n_sge = 0;
	ck_assert_int_eq(qp_post_send(&f->qp, &wr, &why), 0);
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
		.sge = sge, .n_sge = 2, .action = { .type = FRL_ACTION_REDUCE }
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
	struct frl_send_wr send = { .wr_id = 5 };
	struct frl_recv_wr recv = { .wr_id = 6 };
	struct fixture *f;
	const char *why;

	for (unsigned i = 0; i < 3; i++) {
		f = fixture_new(&(struct fixture_config){ .state = rows[i].state });
		if (rows[i].send)
			ck_assert_int_eq(qp_post_send(&f->qp, &send, &why), 0);
		else
			post_send_fails(f, &send, -EINVAL);
		ck_assert_int_eq(qp_post_recv(&f->qp, &recv, &why), 0);
	}
	f = fixture_new(&(struct fixture_config){ .state = FRL_QPS_ERR });
	ck_assert_int_eq(qp_post_send(&f->qp, &send, &why), 0);
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
	const char *why;

	for (uint32_t i = 0; i < 6; i++)
		fixture_send(f, i, FRL_WR_SEND, 10);
	qp_fail(&f->qp, FRL_WC_REM_ABORT_ERR);
	check_invariants(f);
	ck_assert_uint_eq(f->stats.cq_overruns, 4);
	ck_assert_int_eq(qp_post_send(&f->qp, &(struct frl_send_wr){ 0 }, &why), 0);
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
	fixture_arrive(f, TRANSPORT_CNP | 1, 0, 16);
	ck_assert_uint_eq(f->stats.drop_bad_opcode, 3);
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

int main(void)
{
	Suite *suite = suite_create("qp");
	TCase *tc = tcase_create("qp");

	tcase_add_loop_test(tc, elements, 0, sizeof(element_rows) / sizeof(element_rows[0]));
	tcase_add_test(tc, counts_and_sizes);
	tcase_add_test(tc, queues_fill_up);
	tcase_add_test(tc, inline_sizes);
	tcase_add_test(tc, reduce_rules);
	tcase_add_test(tc, states_that_take_requests);
	tcase_add_test(tc, flush_into_a_full_queue);
	tcase_add_test(tc, failing);
	tcase_add_test(tc, drops);
	tcase_add_test(tc, bad_rkey);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
