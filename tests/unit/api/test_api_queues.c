/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: lists of requests that are posted as a whole, and completion queues that
 * are resized. */
#include "tests/fixtures/api_fixture.h"

static void no_wc(struct end *end)
{
	struct frl_wc wc;

	for (int i = 0; i < 1000; i++) {
		frl_progress(b.device);
		ck_assert_int_eq(frl_poll_cq(end->cq, 1, &wc), 0);
	}
}

/* A list whose last request is bad, or finds no room, has no effect. */
START_TEST(all_or_none)
{
	const struct frl_qp_attr error = { .state = FRL_QPS_ERR };
	struct frl_send_wr list[DEPTH + 1];
	struct frl_sge sge, key;
	struct frl_mw *mw;
	uint32_t rkey;

	SOFTWARE_ONLY("hardware: test_verbs_data.c");
	start(false, FRL_PROGRESS_INLINE);
	refused(frl_post_send_all(NULL, list, 1), -EINVAL, "qp");
	refused(frl_post_send_all(a.qp, list, -1), -EINVAL, "0 or more");
	ok(frl_post_send_all(a.qp, NULL, 0));
	ok(frl_mw_alloc(a.pd, &mw));
	rkey = frl_mw_rkey(mw);
	sge = sge_of(&a, 0, 64);
	key = (struct frl_sge){ a.memory, 64, sge.lkey ^ 1 };
	for (uint64_t i = 0; i <= DEPTH; i++)
		list[i] = send_wr(i + 1, FRL_WR_RDMA_WRITE, &sge);
	refused(frl_post_send_all(a.qp, list, DEPTH + 1), -ENOMEM, "request 16");
	list[1].flags |= FRL_SEND_INLINE;
	list[2].opcode = FRL_WR_BIND_MW;
	list[2].bind = (struct frl_mw_bind){ .mw = mw,
		.mr = a.mr,
		.addr = (uintptr_t)a.memory,
		.length = 64,
		.rkey = frl_inc_rkey(rkey),
		.access = FRL_ACCESS_REMOTE_READ };
	list[3].sge = &key;
	refused(frl_post_send_all(a.qp, list, 4), -EINVAL, "request 3");
	no_wc(&a);
	ck_assert_uint_eq(frl_mw_rkey(mw), rkey);
	ck_assert_uint_eq(b.memory[0], 0x11);
	ok(frl_post_send_all(a.qp, list, 3));
	for (uint64_t i = 1; i <= 3; i++)
		expect(&a, i, FRL_WC_SUCCESS);
	ck_assert_uint_ne(frl_mw_rkey(mw), rkey);
	ck_assert_uint_eq(b.memory[63], a.memory[63]);
	ok(frl_qp_modify(a.qp, &error, FRL_QP_STATE));
	ok(frl_post_send_all(a.qp, list, 3));
	for (uint64_t i = 1; i <= 3; i++)
		expect(&a, i, FRL_WC_WR_FLUSH_ERR);
	frl_mw_dealloc(mw);
}
END_TEST

/* Three completions wait while their queue becomes deeper, and as small as they need. */
START_LOOP_TEST(resized, 2)
{
	uint32_t depths[] = { 8 * DEPTH, 3 };
	struct frl_device_attr attr;
	struct frl_sge sge;
	struct frl_wc wc[4];
	int n = 0;

	SOFTWARE_ONLY_IF(is_rxe() && _i, "rxe rounds the depth up");
	start(false, FRL_PROGRESS_INLINE);
	frl_device_query(a.device, &attr);
	refused(frl_cq_resize(NULL, 1), -EINVAL, "required");
	refused(frl_cq_resize(a.cq, 0), -EINVAL, "1 to");
	refused(frl_cq_resize(a.cq, attr.max_cqe + 1), -EINVAL, "1 to");
	sge = sge_of(&a, 0, 64);
	for (uint64_t i = 1; i <= 3; i++) {
		struct frl_send_wr wr = send_wr(i, FRL_WR_RDMA_WRITE, &sge);

		post_send(&wr);
	}
	for (int i = 0; i < 1000; i++) {
		frl_progress(b.device);
		frl_progress(a.device);
	}
	if (!test_port())
		refused(frl_cq_resize(a.cq, 2), -EINVAL, "3 entries");
	ok(frl_cq_resize(a.cq, depths[_i]));
	for (uint64_t limit_ns = hang_limit_ns(); n < 3 && may_wait(limit_ns);)
		n += frl_poll_cq(a.cq, 4 - n, wc + n);
	ck_assert_int_eq(n, 3);
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_uint_eq(wc[i].wr_id, i + 1);
	for (uint64_t i = 1; i <= 100; i++) {
		struct frl_send_wr wr = send_wr(i, FRL_WR_RDMA_WRITE, &sge);

		post_send(&wr);
		expect(&a, i, FRL_WC_SUCCESS);
	}
}
END_TEST

/* Another thread polls the queue meanwhile. */
static void *resize(void *arg)
{
	for (uint32_t i = 0; i < 200; i++)
		ok(frl_cq_resize(a.cq, 4 << i % 8));
	return arg;
}

START_TEST(resized_in_use)
{
	struct frl_sge sge;
	pthread_t thread;

	start(false, FRL_PROGRESS_INLINE);
	sge = sge_of(&a, 0, 64);
	ck_assert_int_eq(pthread_create(&thread, NULL, resize, NULL), 0);
	for (uint64_t i = 1; i <= 500; i++) {
		struct frl_send_wr wr = send_wr(i, FRL_WR_RDMA_WRITE, &sge);

		post_send(&wr);
		expect(&a, i, FRL_WC_SUCCESS);
	}
	pthread_join(thread, NULL);
}
END_TEST

TEST_MAIN(api_queues)
{
	return run_rows(all_tests(NULL, close_ends));
}
