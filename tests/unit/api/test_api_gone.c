/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers and queue pairs that go away: no call waits for ever, and no resource leaks. */
#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/patience.h"
#include "tests/fixtures/program.h"

static void post_one(struct end *end, uint32_t length)
{
	struct frl_sge sge = { end->memory, length, frl_mr_lkey(end->mr) };
	struct frl_send_wr wr = {
		.wr_id = 7,
		.opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
	};

	ck_assert_int_eq(frl_post_send(end->qp, &wr, 1, NULL), 1);
}

/* Software answers that the queue pair does not exist any more; hardware stays silent. */
static enum frl_wc_status no_answer(void)
{
	return test_port() ? FRL_WC_RETRY_EXC_ERR : FRL_WC_REM_OP_ERR;
}

/* The link lives, and so does the wait for an answer: one must come. */
START_LOOP_TEST(send_to_a_destroyed_queue_pair, 2)
{
	start(_i, FRL_PROGRESS_INLINE);
	frl_qp_destroy(b.qp);
	b.qp = NULL;
	post_one(&a, MESSAGE);
	expect(&a, 7, no_answer());
}
END_TEST

START_LOOP_TEST(send_to_a_failed_queue_pair, 2)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };

	start(_i, FRL_PROGRESS_INLINE);
	ok(frl_qp_modify(b.qp, &attr, FRL_QP_STATE));
	post_one(&a, MESSAGE);
	expect(&a, 7, no_answer());
}
END_TEST

/* More peers, one after the other, than a process can have links at a time. */
START_TEST(many_peers)
{
	open_end(&a, false, FRL_PROGRESS_INLINE);
	for (int i = 0; i < 40; i++) {
		open_end(&b, false, FRL_PROGRESS_INLINE);
		connect_both();
		close_end(&b);
		frl_qp_destroy(a.qp);
		a.qp = add_qp(&a);
		ok(frl_qp_endpoint(a.qp, &a.mine));
	}
}
END_TEST

/* A request that was acknowledged before the peer went is a success, however late it is polled. */
START_LOOP_TEST(last_message_before_closing, 2)
{
	struct frl_sge sge;
	struct frl_recv_wr wr = { .wr_id = 9, .sge = &sge, .n_sge = 1 };
	struct frl_wc wc;
	int n = 0;

	start(_i, FRL_PROGRESS_INLINE);
	sge = (struct frl_sge){ b.memory, MEMORY, frl_mr_lkey(b.mr) };
	ck_assert_int_eq(frl_post_recv(b.qp, &wr, 1, NULL), 1);
	post_one(&a, MESSAGE);
	for (int i = 0; i < 1000 && n == 0; i++) {
		frl_progress(a.device);
		n = frl_poll_cq(b.cq, 1, &wc);
		if (n == 1)
			break;
	}
	ck_assert_int_eq(n, 1);
	frl_progress(b.device); /* the acknowledgement */
	close_end(&b);
	for (uint64_t limit_ns = hang_limit_ns();
		(n = frl_poll_cq(a.cq, 1, &wc)) == 0 && may_wait(limit_ns);)
		;
	ck_assert_int_eq(n, 1);
	ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
}
END_TEST

START_LOOP_TEST(odd_addresses, 7)
{
	static const char *const bad[] = { "::ffff:10.1.1.1/120", "0.0.0.0/0", "224.0.0.1/8",
		"127.0.0.1/8", "::/64", "::1/128", "ff02::1/64" };
	struct frl_device_config config;
	struct frl_device *device;

	frl_device_config_init(&config);
	config.port = "net_null0";
	config.ip = bad[_i];
	refused(frl_device_open(&config, &device), -EINVAL, bad[_i]);
}
END_TEST

static void receive_one(void)
{
	post_recv(9, 0, MEMORY, false);
	post_one(&a, MESSAGE);
}

/* ---- queue pairs that are reset, and what their peers have under way or post later */

enum moment { POSTED_AFTER, POSTED_BEFORE, SEEN_BEFORE };

static const struct {
	enum moment moment;
	enum frl_wr_opcode opcode;
} requests[] = {
	{ POSTED_AFTER, FRL_WR_SEND }, { POSTED_AFTER, FRL_WR_RDMA_WRITE },
	{ POSTED_AFTER, FRL_WR_RDMA_READ }, { POSTED_BEFORE, FRL_WR_SEND },
	{ POSTED_BEFORE, FRL_WR_RDMA_WRITE }, { POSTED_BEFORE, FRL_WR_RDMA_READ },
	{ SEEN_BEFORE, FRL_WR_SEND }, /* there is no receive for it */
};

static void move_to(struct frl_qp *qp, enum frl_qp_state state)
{
	const struct frl_qp_attr attr = { .state = state };

	ok(frl_qp_modify(qp, &attr, FRL_QP_STATE));
}

static void post_request(struct frl_qp *qp, enum frl_wr_opcode opcode)
{
	struct frl_sge sge = sge_of(&a, 0, MESSAGE);
	struct frl_send_wr wr = send_wr(7, opcode, &sge);

	post_on(qp, &wr);
}

/* Some must be sent again first, when the ACK timer fires. */
static void expect_on(struct frl_qp *qp, enum frl_wc_status status)
{
	uint64_t hang_ns = hang_limit_ns();
	struct frl_wc wc;
	int n = 0;

	while (n == 0 && clock_now_ns() < hang_ns) {
		n = frl_poll_cq(a.cq, 1, &wc);
		frl_progress(b.device);
	}
	ck_assert_msg(n == 1, "no completion");
	ck_assert_uint_eq(wc.wr_id, 7);
	ck_assert_msg(wc.status == status, "%s", frl_wc_status_str(wc.status));
	ck_assert_uint_eq(wc.qp_num, frl_qp_num(qp));
}

/* Ends b's end of the connection, by `end`, around the request. */
static void request_around(int i, void (*end)(void))
{
	struct frl_qp *qp = a.qp;

	if (requests[i].moment == POSTED_AFTER)
		end();
	post_request(qp, requests[i].opcode);
	if (requests[i].moment == SEEN_BEFORE)
		frl_progress(b.device);
	if (requests[i].moment != POSTED_AFTER)
		end();
	expect_on(qp, no_answer());
}

static void reset_b(void)
{
	move_to(b.qp, FRL_QPS_RESET);
}

/* Another one of the same peer, over the same link. */
static void connect_b_anew(void)
{
	reset_b();
	a.qp = add_qp(&a);
	ok(frl_qp_endpoint(a.qp, &a.mine));
	ok(frl_qp_endpoint(b.qp, &b.mine));
	connect_both();
}

START_LOOP_TEST(send_to_a_reset_queue_pair, ROWS(requests))
{
	SOFTWARE_ONLY_IF(
		requests[_i].moment != POSTED_AFTER, "hardware may answer before the reset");
	start(true, FRL_PROGRESS_INLINE);
	request_around(_i, reset_b);
}
END_TEST

/* The new connection is unaffected. */
START_LOOP_TEST(send_to_a_queue_pair_connected_anew, ROWS(requests))
{
	struct frl_qp *old;

	SOFTWARE_ONLY("hardware does not tell queue pairs of a peer apart");
	start(true, FRL_PROGRESS_INLINE);
	old = a.qp;
	request_around(_i, connect_b_anew);
	ck_assert_ptr_ne(a.qp, old);
	receive_one();
	expect(&b, 9, FRL_WC_SUCCESS);
	expect(&a, 7, FRL_WC_SUCCESS);
	frl_qp_destroy(old);
}
END_TEST

/* However many others have ended since, at both ends. */
START_TEST(send_to_a_queue_pair_that_went_long_ago)
{
	enum { OTHERS = 300 };
	struct frl_qp *qp, *others[OTHERS];

	SOFTWARE_ONLY("hardware keeps silent");
	start(false, FRL_PROGRESS_INLINE);
	qp = a.qp;
	frl_qp_destroy(b.qp);
	for (int i = 0; i < OTHERS; i++) {
		a.qp = others[i] = add_qp(&a);
		b.qp = add_qp(&b);
		ok(frl_qp_endpoint(a.qp, &a.mine));
		ok(frl_qp_endpoint(b.qp, &b.mine));
		connect_both();
		frl_qp_destroy(b.qp);
	}
	b.qp = NULL;
	a.qp = qp;
	post_one(&a, MESSAGE);
	expect_on(a.qp, no_answer());
	for (int i = 0; i < OTHERS; i++)
		frl_qp_destroy(others[i]);
}
END_TEST

/* In the middle of an answer of many packets. */
START_LOOP_TEST(read_from_a_queue_pair_that_goes, 2)
{
	enum { LONG = 4 << 20, PATH_MTU = 256 };
	struct frl_sge sge = { .length = LONG };
	struct frl_mr *from, *to;
	struct frl_send_wr wr;
	uint8_t *memory[2] = { frl_mem_alloc(LONG), frl_mem_alloc(LONG) };

	SOFTWARE_ONLY("hardware keeps silent");
	open_end_with(&a, false, FRL_PROGRESS_INLINE, PATH_MTU, 0);
	open_end_with(&b, false, FRL_PROGRESS_INLINE, PATH_MTU, 0);
	connect_both();
	ok(frl_reg_mr(a.pd, memory[0], LONG, ALL_ACCESS, &to));
	ok(frl_reg_mr(b.pd, memory[1], LONG, ALL_ACCESS, &from));
	wr = send_wr(7, FRL_WR_RDMA_READ, &sge);
	sge.addr = memory[0];
	sge.lkey = frl_mr_lkey(to);
	wr.remote_addr = (uintptr_t)memory[1];
	wr.rkey = frl_mr_rkey(from);
	post_on(a.qp, &wr);
	frl_progress(b.device);
	frl_progress(a.device);
	if (_i) {
		reset_b();
	} else {
		frl_qp_destroy(b.qp);
		b.qp = NULL;
	}
	expect_on(a.qp, no_answer());
	ok(frl_dereg_mr(to));
	ok(frl_dereg_mr(from));
	finish();
	frl_mem_free(memory[0], LONG);
	frl_mem_free(memory[1], LONG);
}
END_TEST

/* ---- queue pairs that fail while another thread posts */

/* Bad requests are refused, with a reason that names the state, until the device's thread has put
 * the queue pair into ERR: there they are flushed. */
static void *post_until_it_failed(void *arg)
{
	struct frl_send_wr send = { .opcode = FRL_WR_SEND, .n_sge = -1 };
	struct frl_recv_wr recv = { .n_sge = -1 };
	bool receives = *(int *)arg;
	uint64_t hang_ns = hang_limit_ns();
	int rc;

	do {
		rc = receives ? frl_post_recv(a.qp, &recv, 1, NULL)
			      : frl_post_send(a.qp, &send, 1, NULL);
		ck_assert(rc == 1 || strstr(frl_last_error(), "(RTS)"));
	} while (rc < 0 && clock_now_ns() < hang_ns);
	ck_assert_int_eq(rc, 1);
	return NULL;
}

START_LOOP_TEST(posting_while_it_fails, 2)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	pthread_t thread;

	SOFTWARE_ONLY("no thread of the library changes the state");
	start(false, FRL_PROGRESS_THREAD);
	ck_assert_int_eq(pthread_create(&thread, NULL, post_until_it_failed, &_i), 0);
	ok(frl_qp_modify(b.qp, &attr, FRL_QP_STATE));
	post_one(&a, MESSAGE);
	pthread_join(thread, NULL);
}
END_TEST

/* ---- what one queue pair's end does to another one on the same link */

enum { APART = 512 }; /* numbers of queue pairs that once shared a counter of revocations */

static uint64_t dropped(const struct end *end)
{
	struct frl_stats stats;

	frl_device_stats(end->device, &stats);
	return stats.drop_port;
}

/* Only a receiver that reads the payload in place sees a byte that changes after the post. */
static bool is_read_in_place(void)
{
	a.memory[0] = 0;
	receive_one();
	a.memory[0] = 1;
	expect(&b, 9, FRL_WC_SUCCESS);
	expect(&a, 7, FRL_WC_SUCCESS);
	return b.memory[0] == 1;
}

static void connect_another(struct frl_qp *fillers[APART])
{
	uint32_t num = frl_qp_num(a.qp);
	int n = 0;

	do {
		ck_assert_int_lt(n, APART);
		a.qp = fillers[n++] = add_qp(&a);
	} while ((frl_qp_num(a.qp) - num) % APART);
	ck_assert_int_eq(n, APART);
	b.qp = add_qp(&b);
	ok(frl_qp_endpoint(a.qp, &a.mine));
	ok(frl_qp_endpoint(b.qp, &b.mine));
	connect_both();
}

/* Payload that a queue pair has in flight stays valid when another one is destroyed. */
START_TEST(others_keep_their_payload)
{
	struct frl_qp *mine, *theirs, *fillers[APART], *other;
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	uint64_t hang_ns;

	SOFTWARE_ONLY("payload is read in place on the local fabric only");
	start(true, FRL_PROGRESS_INLINE);
	hang_ns = hang_limit_ns();
	while (!is_read_in_place())
		ck_assert_msg(clock_now_ns() < hang_ns, "payload is copied");
	mine = a.qp;
	theirs = b.qp;
	connect_another(fillers);
	other = b.qp;
	a.qp = mine;
	b.qp = theirs;
	receive_one();
	for (int i = 0; i < APART; i++)
		frl_qp_destroy(fillers[i]);
	expect(&b, 9, FRL_WC_SUCCESS);
	expect(&a, 7, FRL_WC_SUCCESS);
	ck_assert_uint_eq(dropped(&b), 0);
	/* Its own payload does not. */
	receive_one();
	ok(frl_qp_modify(a.qp, &attr, FRL_QP_STATE));
	expect(&a, 7, FRL_WC_WR_FLUSH_ERR);
	frl_progress(b.device);
	ck_assert_uint_gt(dropped(&b), 0);
	frl_qp_destroy(other);
}
END_TEST

TEST_MAIN(api_gone)
{
	return run_rows(all_tests(NULL, close_ends));
}
