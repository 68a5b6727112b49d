/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: completion queues, extended ones, and their depth. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

/* Sends `n` messages, each with its number as immediate data, which complete at both ends. */
static void send_numbers(uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++) {
		struct ibv_sge sge = sge_of(&a, 0, i + 1);
		struct ibv_send_wr wr = request(i, IBV_WR_SEND_WITH_IMM, &sge);

		wr.imm_data = htonl(i);
		post_recv(&b, 100 + i, 0, 64);
		post(&a, &wr);
		expect(&a, i, IBV_WC_SUCCESS);
	}
}

static struct ibv_cq_ex *extended(const struct end *end)
{
	return (struct ibv_cq_ex *)(void *)end->cq;
}

static int start_poll(const struct end *end)
{
	struct ibv_poll_cq_attr attr = { 0 };

	return ibv_start_poll(extended(end), &attr);
}

/* The completion of the receive with this number. */
static void check_current(struct ibv_cq_ex *cq, uint32_t i)
{
	ck_assert_uint_eq(cq->wr_id, 100 + i);
	ck_assert_int_eq(cq->status, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_wc_read_opcode(cq), IBV_WC_RECV);
	ck_assert_uint_eq(ibv_wc_read_vendor_err(cq), 0);
	ck_assert_uint_eq(ibv_wc_read_byte_len(cq), i + 1);
	ck_assert_uint_eq(ibv_wc_read_imm_data(cq), htonl(i));
	ck_assert_uint_eq(ibv_wc_read_qp_num(cq), b.qp->qp_num);
	ck_assert_uint_eq(ibv_wc_read_wc_flags(cq), IBV_WC_WITH_IMM);
	ck_assert_uint_eq(ibv_wc_read_slid(cq), 0);
	ck_assert_uint_eq(ibv_wc_read_sl(cq), 0);
	ck_assert_uint_eq(ibv_wc_read_dlid_path_bits(cq), 0);
}

START_TEST(extended_polling)
{
	struct ibv_poll_cq_attr bad = { .comp_mask = 1 };

	start(&(struct wants){ .has_cq_ex = true });
	ck_assert_int_eq(start_poll(&b), ENOENT);
	/* A poll that has not started needs no end. */
	ck_assert_int_eq(start_poll(&b), ENOENT);
	send_numbers(0, 3);
	ck_assert_int_eq(ibv_start_poll(extended(&b), &bad), EINVAL);
	ok(start_poll(&b));
	check_current(extended(&b), 0);
	ok(ibv_next_poll(extended(&b)));
	check_current(extended(&b), 1);
	ibv_end_poll(extended(&b));
	ok(start_poll(&b));
	check_current(extended(&b), 2);
	ck_assert_int_eq(ibv_next_poll(extended(&b)), ENOENT);
	ibv_end_poll(extended(&b));
	ck_assert_int_eq(start_poll(&b), ENOENT);
	finish();
}
END_TEST

/* Both ways of polling take from one queue, in order. */
START_TEST(mixed_polling)
{
	struct ibv_wc wc[4];

	start(&(struct wants){ .has_cq_ex = true });
	send_numbers(0, 5);
	ok(start_poll(&b));
	check_current(extended(&b), 0);
	ibv_end_poll(extended(&b));
	ck_assert_int_eq(ibv_poll_cq(b.cq, 2, wc), 2);
	ck_assert_uint_eq(wc[0].wr_id, 101);
	ck_assert_uint_eq(wc[1].wr_id, 102);
	ok(start_poll(&b));
	check_current(extended(&b), 3);
	ibv_end_poll(extended(&b));
	ck_assert_int_eq(ibv_poll_cq(b.cq, 4, wc), 1);
	ck_assert_uint_eq(wc[0].wr_id, 104);
	ck_assert_int_eq(start_poll(&b), ENOENT);
	finish();
}
END_TEST

/* A failed request, and opcodes of the other end. */
START_TEST(extended_failure)
{
	struct ibv_send_wr wr = request(7, IBV_WR_RDMA_WRITE, NULL);

	start(&(struct wants){ .has_cq_ex = true });
	post(&a, &wr);
	for (uint64_t limit_ns = hang_limit_ns(); start_poll(&a) && may_wait(limit_ns);)
		;
	ck_assert_uint_eq(extended(&a)->wr_id, 7);
	ck_assert_int_eq(ibv_wc_read_opcode(extended(&a)), IBV_WC_RDMA_WRITE);
	ibv_end_poll(extended(&a));
	ok(to_state(a.qp, IBV_QPS_ERR));
	wr.wr_id = 8;
	post(&a, &wr);
	ok(start_poll(&a));
	ck_assert_uint_eq(extended(&a)->wr_id, 8);
	ck_assert_int_eq(extended(&a)->status, IBV_WC_WR_FLUSH_ERR);
	ck_assert_uint_eq(ibv_wc_read_qp_num(extended(&a)), a.qp->qp_num);
	ibv_end_poll(extended(&a));
	finish();
}
END_TEST

/* More completions than the drop-in converts at once, and fewer than asked for. */
START_TEST(many_at_once)
{
	struct ibv_wc wc[60];
	int n;

	start(&(struct wants){ 0 });
	send_numbers(0, 50);
	ck_assert_int_eq(ibv_poll_cq(b.cq, 0, wc), 0);
	n = ibv_poll_cq(b.cq, 33, wc);
	ck_assert_int_eq(n, 33);
	n += ibv_poll_cq(b.cq, 60 - n, wc + n);
	ck_assert_int_eq(n, 50);
	for (uint32_t i = 0; i < 50; i++) {
		ck_assert_uint_eq(wc[i].wr_id, 100 + i);
		ck_assert_uint_eq(wc[i].imm_data, htonl(i));
	}
	expect_none(&b);
	finish();
}
END_TEST

START_TEST(refused_creations)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 1, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_device_attr device;
	struct ibv_cq_ex *cq;

	open_ends(&(struct wants){ 0 });
	ok(ibv_query_device(a.context, &device));
	refused_null(EINVAL, ibv_create_cq(a.context, 0, NULL, NULL, 0));
	refused_null(EINVAL, ibv_create_cq(a.context, -1, NULL, NULL, 0));
	refused_null(EINVAL, ibv_create_cq(a.context, device.max_cqe + 1, NULL, NULL, 0));
	refused_null(EINVAL, ibv_create_cq(a.context, 1, NULL, NULL, 1));
	refused_null(EINVAL, ibv_create_cq(a.context, 1, NULL, NULL, -1));
	attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	refused_null(EOPNOTSUPP, ibv_create_cq_ex(a.context, &attr));
	attr.wc_flags = 0;
	attr.cqe = 0;
	refused_null(EINVAL, ibv_create_cq_ex(a.context, &attr));
	attr.cqe = 1;
	attr.comp_vector = 1;
	refused_null(EINVAL, ibv_create_cq_ex(a.context, &attr));
	attr.comp_vector = 0;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq = ibv_create_cq_ex(a.context, &attr);
	made(cq);
	ok(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	finish();
}
END_TEST

START_TEST(members)
{
	struct ibv_modify_cq_attr attr = { 0 };

	open_ends(&(struct wants){ .has_channel = true, .cqe = 33 });
	ck_assert_int_ge(a.cq->cqe, 33);
	ck_assert_ptr_eq(a.cq->context, a.context);
	ck_assert_ptr_eq(a.cq->channel, a.channel);
	ck_assert_ptr_eq(a.cq->cq_context, &a);
	ck_assert_int_eq(a.channel->refcnt, 1);
	refused(EBUSY, ibv_destroy_cq(a.cq));
	refused(EOPNOTSUPP, ibv_modify_cq(a.cq, &attr));
	finish();
}
END_TEST

/* Entries stay; a queue cannot become smaller than what it has. */
START_TEST(resize)
{
	start(&(struct wants){ .cqe = 8 });
	send_numbers(0, 5);
	refused(EINVAL, ibv_resize_cq(b.cq, 0));
	refused(EINVAL, ibv_resize_cq(b.cq, 1 << 24));
	refused(EINVAL, ibv_resize_cq(b.cq, 1));
	ok(ibv_resize_cq(b.cq, 40));
	ck_assert_int_ge(b.cq->cqe, 40);
	send_numbers(5, 30);
	for (uint32_t i = 0; i < 35; i++)
		expect(&b, 100 + i, IBV_WC_SUCCESS);
	ok(ibv_resize_cq(b.cq, 1));
	send_numbers(0, 1);
	expect(&b, 100, IBV_WC_SUCCESS);
	expect_none(&b);
	finish();
}
END_TEST

/* An overrun is reported, and ends the queue pairs. */
START_TEST(overrun)
{
	struct ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, NULL);
	struct ibv_async_event event;
	struct ibv_wc wc;
	int n;

	start(&(struct wants){ .cqe = 1 });
	for (int i = 0; i < 20; i++)
		post(&a, &wr);
	event = next_event(a.context, IBV_EVENT_CQ_ERR);
	ck_assert_ptr_eq(event.element.cq, a.cq);
	ibv_ack_async_event(&event);
	while ((n = ibv_poll_cq(a.cq, 1, &wc)) == 1)
		ck_assert_uint_eq(wc.wr_id, 1);
	ck_assert_int_lt(n, 0);
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_ERR);
	/* The queue pair has an event as well; destroying it takes the event back. */
	destroy_qp(&a);
	expect_no_event(a.context);
	finish();
}
END_TEST

TEST_FILE(ibverbs_cq)
