/* SPDX-License-Identifier: BSD-3-Clause */
/* Work that is done within the call and needs no further call. */
#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/stopped_clock.h"

enum {
	SIZE = 8,
	STREAM = 1000,
	RARELY = 4,          /* polls, */
	RARELY_MS = 15,      /* with so much time in between: more than a tick of the kernel's */
	POLLS = 1000,        /* that are enough to look at the clock once */
	ACK_TIMEOUT_MS = 300 /* a little more than the local fabric's */
};

static void post_to(struct frl_qp *qp, const struct end *end, uint64_t wr_id, unsigned flags)
{
	struct frl_sge sge = { end->memory, SIZE, frl_mr_lkey(end->mr) };
	struct frl_send_wr wr = {
		.wr_id = wr_id,
		.opcode = FRL_WR_SEND,
		.flags = flags,
		.sge = &sge,
		.n_sge = 1,
	};

	ck_assert_int_eq(frl_post_send(qp, &wr, 1, NULL), 1);
}

static void receive_at(struct end *end, uint64_t wr_id)
{
	struct frl_sge sge = { end->memory + 1000, SIZE, frl_mr_lkey(end->mr) };
	struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };

	ck_assert_int_eq(frl_post_recv(end->qp, &wr, 1, NULL), 1);
}

/* Drives this end alone until the completion is there. */
static void expect_alone(struct end *end, uint64_t wr_id)
{
	uint64_t limit_ns = hang_limit_ns();
	struct frl_wc wc;
	int n = 0;

	while (n == 0 && may_wait(limit_ns))
		n = frl_poll_cq(end->cq, 1, &wc);
	ck_assert_int_eq(n, 1);
	ck_assert_uint_eq(wc.wr_id, wr_id);
	ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
}

/* The sender makes no further call before its message arrives. The receiver, which has it, makes
 * none before the sender gets the acknowledgement. */
START_TEST(message_and_answer)
{
	start(false, FRL_PROGRESS_INLINE);
	receive_at(&b, 1);
	post_to(a.qp, &a, 2, FRL_SEND_SIGNALED);
	expect_alone(&b, 1);
	expect_alone(&a, 2);
}
END_TEST

/* A queue pair of `a` that has failed, with a queue of its own: requests posted to it complete. */
static struct frl_qp *add_failed_qp(struct frl_cq **ret_cq)
{
	const struct frl_qp_attr init = { .state = FRL_QPS_INIT, .port_num = 1 };
	const struct frl_qp_attr failed = { .state = FRL_QPS_ERR };
	struct frl_qp_config config = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH };
	struct frl_qp *qp;

	ok(frl_cq_create(a.device, DEPTH, ret_cq));
	config.send_cq = config.recv_cq = *ret_cq;
	ok(frl_qp_create(a.pd, &config, &qp));
	ok(frl_qp_modify(
		qp, &init, FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS));
	ok(frl_qp_modify(qp, &failed, FRL_QP_STATE));
	return qp;
}

static void take_own(struct frl_qp *qp, struct frl_cq *cq)
{
	struct frl_wc wc;

	post_to(qp, &a, 3, 0);
	ck_assert_int_eq(frl_poll_cq(cq, 1, &wc), 1);
	ck_assert_int_eq(wc.status, FRL_WC_WR_FLUSH_ERR);
}

/* An application that makes completions of its own all the time still drives the device. */
START_TEST(never_empty_queue)
{
	struct frl_cq *cq;
	struct frl_qp *qp;
	struct frl_wc wc;
	int n = 0;

	start(false, FRL_PROGRESS_INLINE);
	qp = add_failed_qp(&cq);
	receive_at(&a, 1);
	post_to(b.qp, &b, 2, FRL_SEND_SIGNALED);
	for (uint64_t limit_ns = hang_limit_ns(); n == 0 && may_wait(limit_ns);) {
		take_own(qp, cq);
		n = frl_poll_cq(b.cq, 1, &wc);
	}
	ck_assert_int_eq(n, 1);
	ck_assert_uint_eq(wc.wr_id, 2);
	expect(&a, 1, FRL_WC_SUCCESS);
	frl_qp_destroy(qp);
	ok(frl_cq_destroy(cq));
}
END_TEST

/* So does one that takes a completion now and then, with every one of them. */
START_TEST(rare_completions)
{
	struct frl_cq *cq;
	struct frl_qp *qp;

	start(false, FRL_PROGRESS_INLINE);
	qp = add_failed_qp(&cq);
	clock_stop();
	for (int i = 0; i < RARELY; i++) {
		receive_at(&a, 1);
		post_to(b.qp, &b, 2, FRL_SEND_SIGNALED);
		clock_advance_ms(RARELY_MS);
		take_own(qp, cq);
		expect_alone(&b, 2);
		expect(&a, 1, FRL_WC_SUCCESS);
	}
	clock_go_on();
	frl_qp_destroy(qp);
	ok(frl_cq_destroy(cq));
}
END_TEST

static uint64_t timeouts_of(const struct end *end)
{
	struct frl_stats stats;

	frl_device_stats(end->device, &stats);
	return stats.timeouts;
}

/* Nothing arrives, and time passes: one poll long after is enough to notice, and so is one of many
 * polls that rarely read the clock. */
START_TEST(nothing_but_time)
{
	struct frl_wc wc;

	SOFTWARE_ONLY("hardware has timers of its own");
	start(false, FRL_PROGRESS_INLINE);
	clock_stop();
	receive_at(&b, 1);
	post_to(a.qp, &a, 2, FRL_SEND_SIGNALED);
	ck_assert_int_eq(frl_poll_cq(a.cq, 1, &wc), 0);
	clock_advance_ms(ACK_TIMEOUT_MS);
	ck_assert_int_eq(frl_poll_cq(a.cq, 1, &wc), 0);
	ck_assert_uint_eq(timeouts_of(&a), 1);
	clock_advance_ms(2 * ACK_TIMEOUT_MS);
	for (int i = 0; i < POLLS && timeouts_of(&a) < 2; i++)
		ck_assert_int_eq(frl_poll_cq(a.cq, 1, &wc), 0);
	ck_assert_uint_eq(timeouts_of(&a), 2);
	clock_go_on();
	expect(&b, 1, FRL_WC_SUCCESS);
	expect(&a, 2, FRL_WC_SUCCESS);
}
END_TEST

/* The last one of several unsignaled messages requests the acknowledgement, however many are
 * posted, and one at a time or together. */
START_TEST(unsignaled_messages)
{
	struct frl_sge sge;
	struct frl_send_wr wr[DEPTH];
	struct frl_wc wc;

	start(false, FRL_PROGRESS_INLINE);
	sge = (struct frl_sge){ a.memory, SIZE, frl_mr_lkey(a.mr) };
	for (int i = 0; i < STREAM; i++) {
		int n = 1 + i % DEPTH;

		for (int k = 0; k < n; k++)
			wr[k] = (struct frl_send_wr){
				.wr_id = (uint64_t)k,
				.opcode = FRL_WR_RDMA_WRITE,
				.flags = k + 1 == n ? FRL_SEND_SIGNALED : 0,
				.sge = &sge,
				.n_sge = 1,
				.remote_addr = (uintptr_t)b.memory,
				.rkey = frl_mr_rkey(b.mr),
			};
		for (int k = 0; i & 1 && k < n; k++)
			ck_assert_int_eq(frl_post_send(a.qp, &wr[k], 1, NULL), 1);
		if (!(i & 1))
			ck_assert_int_eq(frl_post_send(a.qp, wr, n, NULL), n);
		ck_assert_int_eq(poll_both(&a, &wc), 1);
		ck_assert_uint_eq(wc.wr_id, (unsigned)n - 1);
		ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
	}
	/* Nothing is left that would wait for a timer. */
	ck_assert_int_eq(frl_poll_cq(a.cq, 1, &wc), 0);
	for (int k = 0; k < DEPTH; k++)
		wr[k].flags = 0;
	ck_assert_int_eq(frl_post_send(a.qp, wr, DEPTH / 2, NULL), DEPTH / 2);
	post_to(a.qp, &a, 5, FRL_SEND_SIGNALED);
	receive_at(&b, 6);
	expect(&b, 6, FRL_WC_SUCCESS);
	expect(&a, 5, FRL_WC_SUCCESS);
}
END_TEST

TEST_MAIN(api_prompt)
{
	return run_rows(all_tests(NULL, close_ends));
}
