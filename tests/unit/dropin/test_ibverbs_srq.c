/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: shared receive queues. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <errno.h>
#include <string.h>

static void send_one(uint64_t wr_id)
{
	struct ibv_send_wr wr = request(wr_id, IBV_WR_SEND, NULL);

	post(&a, &wr);
	expect(&a, wr_id, IBV_WC_SUCCESS);
}

static uint32_t limit_of(struct ibv_srq *srq)
{
	struct ibv_srq_attr attr;

	memset(&attr, 0xee, sizeof(attr));
	ok(ibv_query_srq(srq, &attr));
	ck_assert_uint_eq(attr.max_wr, DEPTH);
	ck_assert_uint_eq(attr.max_sge, 4);
	return attr.srq_limit;
}

START_TEST(members)
{
	struct ibv_srq_init_attr attr = {
		.srq_context = &attr,
		.attr = { .max_wr = DEPTH, .max_sge = 0, .srq_limit = 7 },
	};
	struct ibv_srq *srq;

	open_ends(&(struct wants){ 0 });
	srq = ibv_create_srq(a.pd, &attr);
	made(srq);
	ck_assert_ptr_eq(srq->srq_context, &attr);
	ck_assert_ptr_eq(srq->pd, a.pd);
	ck_assert_ptr_eq(srq->context, a.context);
	ck_assert_uint_ge(attr.attr.max_sge, 1);
	ck_assert_uint_ge(attr.attr.max_wr, DEPTH);
	ok(ibv_destroy_srq(srq));
	attr.attr.max_wr = 1 << 20;
	refused_null(EINVAL, ibv_create_srq(a.pd, &attr));
	attr.attr.max_wr = DEPTH;
	attr.attr.max_sge = 1000;
	refused_null(EINVAL, ibv_create_srq(a.pd, &attr));
	finish();
}
END_TEST

/* Receives are taken by whichever queue pair needs one, in their order. */
START_TEST(two_queue_pairs)
{
	struct ibv_qp *first, *second;
	const struct wants wants = { .has_srq = true };

	open_ends(&wants);
	connect_qps(a.qp, b.qp);
	first = create_qp(&a, &wants);
	second = create_qp(&b, &wants);
	made(first);
	made(second);
	connect_qps(first, second);
	for (uint64_t i = 0; i < 4; i++)
		post_recv(&b, i, 0, 8);
	for (uint64_t i = 0; i < 4; i++) {
		struct ibv_send_wr wr = request(9, IBV_WR_SEND, NULL), *bad;
		struct ibv_wc wc;

		ok(ibv_post_send(i % 2 ? first : a.qp, &wr, &bad));
		ck_assert_int_eq(next_wc(&a).status, IBV_WC_SUCCESS);
		wc = next_wc(&b);
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		ck_assert_uint_eq(wc.wr_id, i);
		ck_assert_uint_eq(wc.qp_num, i % 2 ? second->qp_num : b.qp->qp_num);
	}
	refused(EBUSY, ibv_destroy_srq(b.srq));
	ok(ibv_destroy_qp(first));
	ok(ibv_destroy_qp(second));
	finish();
}
END_TEST

/* The event comes once, and disarms the limit. */
START_TEST(limit)
{
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	struct ibv_async_event event;

	start(&(struct wants){ .has_srq = true });
	ck_assert_uint_eq(limit_of(b.srq), 0);
	for (uint64_t i = 0; i < 6; i++)
		post_recv(&b, i, 0, 8);
	ok(ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT));
	ck_assert_uint_eq(limit_of(b.srq), 3);
	for (uint64_t i = 0; i < 3; i++) {
		send_one(1);
		expect(&b, i, IBV_WC_SUCCESS);
		expect_no_event(b.context);
	}
	send_one(1);
	expect(&b, 3, IBV_WC_SUCCESS);
	event = next_event(b.context, IBV_EVENT_SRQ_LIMIT_REACHED);
	ck_assert_ptr_eq(event.element.srq, b.srq);
	ibv_ack_async_event(&event);
	ck_assert_uint_eq(limit_of(b.srq), 0);
	send_one(1);
	expect(&b, 4, IBV_WC_SUCCESS);
	expect_no_event(b.context);
	expect_no_event(a.context);
	finish();
}
END_TEST

START_TEST(refused_changes)
{
	struct ibv_srq_attr attr = { .srq_limit = DEPTH + 1, .max_wr = 2 * DEPTH };

	start(&(struct wants){ .has_srq = true });
	refused(EINVAL, ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT));
	refused(EOPNOTSUPP, ibv_modify_srq(b.srq, &attr, IBV_SRQ_MAX_WR));
	ok(ibv_modify_srq(b.srq, &attr, 0));
	ck_assert_uint_eq(limit_of(b.srq), 0);
	finish();
}
END_TEST

/* Queue pairs with a shared queue have no receives of their own. */
START_TEST(own_receives)
{
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad = NULL;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	start(&(struct wants){ .has_srq = true });
	ck_assert_int_ne(ibv_post_recv(b.qp, &recv, &bad), 0);
	ck_assert_ptr_eq(bad, &recv);
	ok(ibv_query_qp(b.qp, &attr, IBV_QP_CAP, &init));
	ck_assert_ptr_eq(init.srq, b.srq);
	ck_assert_uint_eq(attr.cap.max_recv_wr, 0);
	finish();
}
END_TEST

/* By the extended call; other types are refused. */
START_TEST(extended_creation)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_BASIC,
	};
	struct ibv_srq *srq;
	uint32_t num;

	open_ends(&(struct wants){ 0 });
	attr.pd = a.pd;
	srq = ibv_create_srq_ex(a.context, &attr);
	made(srq);
	refused(EOPNOTSUPP, ibv_get_srq_num(srq, &num));
	ok(ibv_destroy_srq(srq));
	attr.srq_type = IBV_SRQT_XRC;
	refused_null(EOPNOTSUPP, ibv_create_srq_ex(a.context, &attr));
	attr.srq_type = IBV_SRQT_TM;
	refused_null(EOPNOTSUPP, ibv_create_srq_ex(a.context, &attr));
	finish();
}
END_TEST

TEST_FILE(ibverbs_srq)
