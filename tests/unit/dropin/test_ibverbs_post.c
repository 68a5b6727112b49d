/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: requests that are refused, and requests that fail. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <errno.h>
#include <string.h>

/* ---- refused by the call */

/* The requests before the bad one are posted, those after it are not. */
START_LOOP_TEST(bad_request, 3)
{
	static const int places[] = { 0, 7, 37 }; /* in the third part of what is converted */
	struct ibv_send_wr wr[40], *bad = NULL;
	struct ibv_sge sge;
	int place = places[_i];

	start(&(struct wants){ 0 });
	sge = sge_of(&a, 0, 8);
	for (int i = 0; i < ROWS(wr); i++) {
		wr[i] = request((uint64_t)i, IBV_WR_RDMA_WRITE, &sge);
		aim(&wr[i], &b, 0);
		wr[i].next = i + 1 < ROWS(wr) ? &wr[i + 1] : NULL;
	}
	wr[place].num_sge = 17;
	refused(EINVAL, ibv_post_send(a.qp, wr, &bad));
	ck_assert_ptr_eq(bad, &wr[place]);
	for (int i = 0; i < place; i++)
		expect(&a, (uint64_t)i, IBV_WC_SUCCESS);
	sync_ends(&a, &b);
	expect_none(&a);
	finish();
}
END_TEST

START_LOOP_TEST(bad_receive, 2)
{
	struct ibv_recv_wr wr[20], *bad = NULL;
	struct ibv_sge sge;

	start(&(struct wants){ .has_srq = _i });
	sge = sge_of(&b, 0, 8);
	for (int i = 0; i < ROWS(wr); i++)
		wr[i] = (struct ibv_recv_wr){ (uint64_t)i, i + 1 < ROWS(wr) ? &wr[i + 1] : NULL,
			&sge, 1 };
	wr[18].num_sge = 5;
	refused(EINVAL, b.srq ? ibv_post_srq_recv(b.srq, wr, &bad) : ibv_post_recv(b.qp, wr, &bad));
	ck_assert_ptr_eq(bad, &wr[18]);
	for (int i = 0; i < 18; i++) {
		struct ibv_send_wr send = request(100, IBV_WR_SEND, NULL);

		post(&a, &send);
		expect(&a, 100, IBV_WC_SUCCESS);
		expect(&b, (uint64_t)i, IBV_WC_SUCCESS);
	}
	sync_ends(&a, &b);
	finish();
}
END_TEST

START_TEST(refused_requests)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge, two[2];
	uint8_t data[65];

	start(&(struct wants){ .max_inline = 64, .max_sge = 1 });
	sge = two[0] = two[1] = sge_of(&a, 0, 8);
	wr = request(1, (enum ibv_wr_opcode)77, &sge);
	refused_send(&a, &wr, EINVAL);
	wr = request(1, IBV_WR_SEND, two);
	wr.num_sge = 2;
	refused_send(&a, &wr, EINVAL);
	wr.num_sge = -1;
	refused_send(&a, &wr, EINVAL);
	/* Inline: too long, or not for this operation. */
	sge = (struct ibv_sge){ (uintptr_t)data, sizeof(data), 0 };
	wr = request(1, IBV_WR_SEND, &sge);
	wr.send_flags |= IBV_SEND_INLINE;
	refused_send(&a, &wr, EINVAL);
	sge = sge_of(&a, 0, 8);
	wr = request(1, IBV_WR_RDMA_READ, &sge);
	wr.send_flags |= IBV_SEND_INLINE;
	aim(&wr, &b, 0);
	refused_send(&a, &wr, EINVAL);
	/* Atomics: 8 bytes, aligned. */
	wr = request(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
	aim(&wr, &b, 4);
	refused_send(&a, &wr, EINVAL);
	sge = sge_of(&a, 0, 4);
	aim(&wr, &b, 0);
	refused_send(&a, &wr, EINVAL);
	sync_ends(&a, &b);
	finish();
}
END_TEST

/* READs, atomics and invalidation are of RC. */
START_TEST(refused_by_type)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV };

	start(&(struct wants){ .type = IBV_QPT_UC });
	for (int i = 0; i < ROWS(opcodes); i++) {
		struct ibv_sge sge = sge_of(&a, 0, 8);
		struct ibv_send_wr wr = request(1, opcodes[i], &sge);

		aim(&wr, &b, 0);
		refused_send(&a, &wr, EINVAL);
	}
	finish();
}
END_TEST

START_TEST(full_send_queue)
{
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);

	/* Without receives at the peer nothing completes. */
	start(&(struct wants){ .max_send_wr = 8 });
	for (int i = 0; i < 8; i++)
		post(&a, &wr);
	refused_send(&a, &wr, ENOMEM);
	for (int i = 0; i < 8; i++)
		post_recv(&b, 2, 0, 0);
	for (int i = 0; i < 8; i++) {
		expect(&a, 1, IBV_WC_SUCCESS);
		expect(&b, 2, IBV_WC_SUCCESS);
	}
	sync_ends(&a, &b);
	finish();
}
END_TEST

START_LOOP_TEST(full_receive_queue, 2)
{
	struct ibv_recv_wr wr = { .wr_id = 5 }, *bad = NULL;

	start(&(struct wants){ .has_srq = _i });
	for (int i = 0; i < DEPTH; i++)
		post_recv(&b, 2, 0, 0);
	refused(ENOMEM,
		b.srq ? ibv_post_srq_recv(b.srq, &wr, &bad) : ibv_post_recv(b.qp, &wr, &bad));
	ck_assert_ptr_eq(bad, &wr);
	finish();
}
END_TEST

/* ---- failed requests */

START_TEST(message_too_long)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	start(&(struct wants){ 0 });
	sge = sge_of(&a, 0, 101);
	wr = request(1, IBV_WR_SEND, &sge);
	post_recv(&b, 2, 0, 100);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_REM_INV_REQ_ERR);
	expect(&b, 2, IBV_WC_LOC_LEN_ERR);
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_ERR);
	ck_assert_int_eq(state_of(b.qp), IBV_QPS_ERR);
	finish();
}
END_TEST

START_TEST(no_receive)
{
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);

	start(&(struct wants){ .rnr_retry = 1 });
	post(&a, &wr);
	expect(&a, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_ERR);
	ck_assert_int_eq(state_of(b.qp), IBV_QPS_RTS);
	finish();
}
END_TEST

/* The peer's queue pair does not receive: it is in RESET, or destroyed. */
START_LOOP_TEST(no_answer, 2)
{
	struct ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, NULL);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 1,
		.timeout = LEAST_TIMEOUT,
		.retry_cnt = 0,
	};

	open_ends(&(struct wants){ 0 });
	ok(to_init(a.qp, 0, 0));
	ok(to_rtr(a.qp, b.qp, 0));
	ok(ibv_modify_qp(a.qp, &attr, rts_mask(IBV_QPT_RC)));
	if (_i)
		destroy_qp(&b);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_ERR);
	finish();
}
END_TEST

static const struct access_row {
	enum ibv_wr_opcode opcode;
	int lacks;      /* right that the region or the queue pair lacks */
	int32_t offset; /* in the peer's memory */
	uint32_t length;
	bool wrong_key;
} access_rows[] = {
	{ IBV_WR_RDMA_WRITE, 0, 0, 8, true },
	{ IBV_WR_RDMA_READ, 0, 0, 8, true },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, 8, true },
	{ IBV_WR_RDMA_WRITE, 0, MEMORY - 7, 8, false },
	{ IBV_WR_RDMA_WRITE, 0, -1, 8, false },
	{ IBV_WR_RDMA_READ, 0, MEMORY - 4000, 5000, false },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, 0, MEMORY, 8, false },
	{ IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, 0, 8, false },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, IBV_ACCESS_REMOTE_WRITE, 0, 8, false },
	{ IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ, 0, 8, false },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC, 0, 8, false },
};

static void register_again(struct end *end, int rights)
{
	ok(ibv_dereg_mr(end->mr));
	end->mr = ibv_reg_mr(end->pd, end->memory, MEMORY, rights);
	made(end->mr);
}

/* The responder's queue pair fails with an event, or with the receive that the request has taken:
 * with the status of Linux' rxe. */
static void expect_responder_failed(const struct access_row *row)
{
	struct ibv_async_event event;

	if (row->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		expect(&b, 3, IBV_WC_REM_ACCESS_ERR);
		expect_no_event(b.context);
	} else {
		event = next_event(b.context, IBV_EVENT_QP_ACCESS_ERR);
		ck_assert_ptr_eq(event.element.qp, b.qp);
		ibv_ack_async_event(&event);
		expect(&b, 3, IBV_WC_WR_FLUSH_ERR);
	}
	ck_assert_int_eq(state_of(b.qp), IBV_QPS_ERR);
}

static void fail_access(const struct access_row *row)
{
	struct ibv_sge sge = sge_of(&a, 0, row->length);
	struct ibv_send_wr wr = request(1, row->opcode, &sge),
			   after = request(2, IBV_WR_SEND, NULL);

	aim(&wr, &b, (uint32_t)row->offset);
	if (row->wrong_key && row->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.rkey ^= 0x100;
	else if (row->wrong_key)
		wr.wr.rdma.rkey ^= 0x100;
	wr.next = &after;
	memset(a.memory, 0x55, row->length);
	post_recv(&b, 3, 0, 0);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
	expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_ERR);
	expect_responder_failed(row);
	expect_no_event(a.context);
	for (uint32_t i = 0; i < row->length; i++)
		ck_assert_uint_eq(a.memory[i], 0x55);
	for (uint32_t i = 0; i < MEMORY; i++)
		ck_assert_uint_eq(b.memory[i], 0);
}

START_LOOP_TEST(region_refuses, ROWS(access_rows))
{
	start(&(struct wants){ 0 });
	register_again(&b, RIGHTS & ~access_rows[_i].lacks);
	fail_access(&access_rows[_i]);
	finish();
}
END_TEST

/* IBTA 9.7.4.1.3: the request is invalid if the queue pair lacks the right. */
START_LOOP_TEST(queue_pair_refuses, ROWS(access_rows))
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	if (!access_rows[_i].lacks)
		return;
	start(&(struct wants){ .rights = RIGHTS & ~access_rows[_i].lacks });
	sge = sge_of(&a, 0, 8);
	wr = request(1, access_rows[_i].opcode, &sge);
	aim(&wr, &b, 0);
	post_recv(&b, 3, 0, 0);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_REM_INV_REQ_ERR);
	ck_assert_int_eq(state_of(b.qp), IBV_QPS_ERR);
	finish();
}
END_TEST

/* Memory that was deregistered after a receive or request had been posted. */
START_TEST(deregistered_receive)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	start(&(struct wants){ 0 });
	sge = sge_of(&a, 0, 100);
	wr = request(1, IBV_WR_SEND, &sge);
	post_recv(&b, 2, 0, 100);
	register_again(&b, RIGHTS);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_REM_OP_ERR);
	expect(&b, 2, IBV_WC_LOC_PROT_ERR);
	finish();
}
END_TEST

START_TEST(deregistered_source)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	/* The request waits in SQD until its region is gone. */
	start(&(struct wants){ 0 });
	sge = sge_of(&a, 0, 100);
	wr = request(1, IBV_WR_RDMA_WRITE, &sge);
	aim(&wr, &b, 0);
	ok(to_state(a.qp, IBV_QPS_SQD));
	post(&a, &wr);
	register_again(&a, RIGHTS);
	ok(to_state(a.qp, IBV_QPS_RTS));
	expect(&a, 1, IBV_WC_LOC_PROT_ERR);
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_ERR);
	finish();
}
END_TEST

/* Elements that the request may not use: no region, another domain's, beyond the end, without the
 * right to write. The post accepts them, as that of a NIC does, and the request fails. */
START_LOOP_TEST(wrong_elements, 4)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	start(&(struct wants){ 0 });
	sge = sge_of(&a, 0, 8);
	wr = request(1, IBV_WR_SEND, &sge);
	switch (_i) {
	case 0: sge.lkey = a.mr->lkey ^ 0x100; break;
	case 1: sge.lkey = b.mr->lkey; break;
	case 2: sge.addr += MEMORY - 7; break;
	case 3:
		register_again(&a, IBV_ACCESS_REMOTE_READ);
		sge.lkey = a.mr->lkey;
		wr.opcode = IBV_WR_RDMA_READ;
		aim(&wr, &b, 0);
		break;
	}
	post_recv(&b, 2, 0, 8);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_LOC_PROT_ERR);
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_ERR);
	expect_none(&b);
	finish();
}
END_TEST

/* Both ends fail when the message arrives. */
START_LOOP_TEST(wrong_receive, 2)
{
	struct ibv_sge sge;
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);

	start(&(struct wants){ .has_srq = _i });
	sge = sge_of(&b, 0, 8);
	sge.lkey ^= 0x100;
	ok(b.srq ? ibv_post_srq_recv(b.srq, &recv, &bad) : ibv_post_recv(b.qp, &recv, &bad));
	sge = sge_of(&a, 0, 8);
	wr.sg_list = &sge;
	wr.num_sge = 1;
	post(&a, &wr);
	expect(&b, 2, IBV_WC_LOC_PROT_ERR);
	expect(&a, 1, IBV_WC_REM_OP_ERR);
	finish();
}
END_TEST

/* A request whose completion was not polled keeps its place, so that the completion queue cannot
 * overrun. */
START_TEST(unpolled_send_queue)
{
	struct ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, NULL), *bad;
	struct ibv_wc wc;

	start(&(struct wants){ .max_send_wr = 8, .cqe = 8 });
	aim(&wr, &b, 0);
	for (int i = 0; i < 100; i++) {
		int posted = 0, err;

		while (!(err = ibv_post_send(a.qp, &wr, &bad)))
			posted++;
		ck_assert_int_eq(err, ENOMEM);
		ck_assert_int_eq(posted, i ? 1 : 8);
		while (ibv_poll_cq(a.cq, 1, &wc) == 0)
			;
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	}
	for (int i = 0; i < 7; i++)
		expect(&a, 1, IBV_WC_SUCCESS);
	expect_none(&a);
	finish();
}
END_TEST

TEST_FILE(ibverbs_post)
