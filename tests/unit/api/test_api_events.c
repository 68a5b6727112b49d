/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: completion channels and asynchronous events. */
#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"

#include <poll.h>
#include <stdatomic.h>

enum {
	ROUNDS = 200,
	FETCHERS = 4,
};

static const char RXE_TELLS_NOTHING[] = "rxe has no events about connections";

static struct frl_comp_channel *channel;

static bool readable(int fd)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	return poll(&event, 1, 0) == 1;
}

static bool becomes_readable(int fd)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	return poll(&event, 1, soon_ms()) == 1;
}

/* b completes into a queue with a channel. */
static void start_on_channel(void)
{
	struct frl_cq *plain;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	frl_qp_destroy(b.qp);
	plain = b.cq;
	ok(frl_comp_channel_create(b.device, &channel));
	ok(frl_cq_create_on_channel(b.device, 4 * DEPTH, channel, &b, &b.cq));
	ck_assert_ptr_eq(frl_cq_context(b.cq), &b);
	ok(frl_cq_destroy(plain));
	b.qp = add_qp(&b);
	ok(frl_qp_endpoint(b.qp, &b.mine));
	connect_both();
}

static void finish_on_channel(void)
{
	struct frl_comp_channel *last = channel;

	refused(frl_comp_channel_destroy(channel), -EBUSY, "completion queues");
	frl_qp_destroy(b.qp);
	b.qp = NULL;
	ok(frl_cq_destroy(b.cq));
	b.cq = NULL;
	channel = NULL;
	refused(frl_device_close(b.device), -EBUSY, "channels");
	ok(frl_comp_channel_destroy(last));
	finish();
}

static void send_one(uint64_t wr_id, uint32_t flags)
{
	struct frl_sge sge = { a.memory, 64, frl_mr_lkey(a.mr) };
	struct frl_send_wr wr = send_wr(wr_id, FRL_WR_SEND, &sge);

	wr.flags |= flags;
	post_send(&wr);
	expect(&a, wr_id, FRL_WC_SUCCESS);
}

/* Without polling: the progress thread does it. */
static int cq_event(int timeout_ms)
{
	struct frl_cq *cq = NULL;
	int rc = frl_get_cq_event(channel, timeout_ms, &cq);

	if (rc == 0)
		ck_assert_ptr_eq(cq, b.cq);
	return rc;
}

static void drain(uint64_t first, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		expect(&b, first + i, FRL_WC_SUCCESS);
}

START_TEST(notify)
{
	struct frl_comp_channel *none = NULL;
	int fd;

	refused(frl_comp_channel_create(NULL, &none), -EINVAL, "device");
	ok(frl_comp_channel_destroy(NULL));
	start_on_channel();
	refused(frl_comp_channel_create(b.device, NULL), -EINVAL, "ret_channel");
	refused(frl_cq_create_on_channel(a.device, 1, channel, NULL, &a.cq), -EINVAL, "another");
	refused(frl_req_notify_cq(a.cq, false), -EINVAL, "channel");
	fd = frl_comp_channel_fd(channel);
	for (uint64_t i = 0; i < 6; i++)
		post_recv(i, 0, 64, false);
	/* No event was requested. */
	send_one(10, 0);
	drain(0, 1);
	ck_assert(!readable(fd));
	ck_assert_int_eq(cq_event(0), -EAGAIN);
	/* One event for one request. */
	ok(frl_req_notify_cq(b.cq, false));
	ck_assert_int_eq(cq_event(SHORT_MS), -EAGAIN);
	send_one(11, 0);
	send_one(12, FRL_SEND_SOLICITED);
	ck_assert_int_eq(cq_event(HANG_MS), 0);
	ck_assert(!readable(fd));
	ck_assert_int_eq(cq_event(SHORT_MS), -EAGAIN);
	drain(1, 2);
	/* Solicited: only completions with the flag. */
	ok(frl_req_notify_cq(b.cq, true));
	send_one(13, 0);
	drain(3, 1);
	ck_assert_int_eq(cq_event(SHORT_MS), -EAGAIN);
	send_one(14, FRL_SEND_SOLICITED);
	ck_assert_int_eq(cq_event(HANG_MS), 0);
	drain(4, 1);
	/* A request for all events overrides one for solicited events. */
	ok(frl_req_notify_cq(b.cq, false));
	ok(frl_req_notify_cq(b.cq, true));
	send_one(15, 0);
	ck_assert_int_eq(cq_event(HANG_MS), 0);
	finish_on_channel();
}
END_TEST

/* Flushed requests raise an event for waiters for solicited ones, too. */
START_TEST(errors_are_solicited)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };

	start_on_channel();
	post_recv(1, 0, 64, false);
	ok(frl_req_notify_cq(b.cq, true));
	ok(frl_qp_modify(b.qp, &attr, FRL_QP_STATE));
	ck_assert(becomes_readable(frl_comp_channel_fd(channel)));
	ck_assert_int_eq(cq_event(0), 0);
	expect(&b, 1, FRL_WC_WR_FLUSH_ERR);
	finish_on_channel();
}
END_TEST

/* A destroyed object raises no more events, and leaves no readable descriptor. */
START_TEST(events_go_with_their_queue)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	struct frl_cq *cq;

	start_on_channel();
	post_recv(1, 0, 64, false);
	ok(frl_req_notify_cq(b.cq, false));
	ok(frl_qp_modify(b.qp, &attr, FRL_QP_STATE));
	ck_assert(becomes_readable(frl_comp_channel_fd(channel)));
	frl_qp_destroy(b.qp);
	b.qp = NULL;
	ok(frl_cq_destroy(b.cq));
	ck_assert(!readable(frl_comp_channel_fd(channel)));
	ck_assert_int_eq(frl_get_cq_event(channel, 0, &cq), -EAGAIN);
	ok(frl_cq_create_on_channel(b.device, 1, channel, NULL, &b.cq));
	finish_on_channel();
}
END_TEST

/* Request, poll once more, sleep: nothing is lost, and the sleeper is woken. */
static void *answer(void *arg)
{
	struct frl_sge sge = { b.memory, 64, frl_mr_lkey(b.mr) };
	struct frl_send_wr wr = {
		.opcode = FRL_WR_SEND,
		.sge = &sge,
		.n_sge = 1,
	};
	struct frl_wc wc;

	for (int done = 0; done < ROUNDS;) {
		struct frl_cq *cq;
		int n;

		ok(frl_req_notify_cq(b.cq, false));
		n = frl_poll_cq(b.cq, 1, &wc);
		if (n == 0) {
			ok(frl_get_cq_event(channel, HANG_MS, &cq));
			n = frl_poll_cq(b.cq, 1, &wc);
		}
		if (n == 0)
			continue; /* the event was for what was polled then */
		ck_assert_int_eq(n, 1);
		ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
		post_recv(0, 0, 64, false);
		post_on(b.qp, &wr);
		done++;
	}
	return NULL;
}

START_TEST(ping_pong)
{
	struct frl_sge sge, into;
	struct frl_recv_wr recv = { .wr_id = 2, .sge = &into, .n_sge = 1 };
	struct frl_send_wr wr;
	pthread_t thread;
	struct frl_wc wc;

	start_on_channel();
	sge = (struct frl_sge){ a.memory, 64, frl_mr_lkey(a.mr) };
	into = (struct frl_sge){ a.memory + 64, 64, frl_mr_lkey(a.mr) };
	wr = send_wr(1, FRL_WR_SEND, &sge);
	wr.flags = 0;
	post_recv(0, 0, 64, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, answer, NULL), 0);
	for (int i = 0; i < ROUNDS; i++) {
		ck_assert_int_eq(frl_post_recv(a.qp, &recv, 1, NULL), 1);
		wr.flags = i % 8 == 7 ? FRL_SEND_SIGNALED : 0;
		post_send(&wr);
		for (int n = 0; n < (wr.flags ? 2 : 1); n++) {
			ck_assert_int_eq(frl_cq_wait(a.cq, 1, &wc, HANG_MS), 1);
			ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
		}
	}
	pthread_join(thread, NULL);
	finish_on_channel();
}
END_TEST

/* Several threads fetch from one channel: each event goes to one of them, once. */
static atomic_int fetched;

static void *fetch(void *arg)
{
	uint64_t limit_ns = hang_limit_ns();
	struct frl_cq *cq;

	while (atomic_load(&fetched) < DEPTH && may_wait(limit_ns)) {
		struct frl_wc wc;

		if (frl_get_cq_event(channel, SHORT_MS, &cq))
			continue;
		ok(frl_req_notify_cq(cq, false));
		while (frl_poll_cq(cq, 1, &wc) == 1)
			atomic_fetch_add(&fetched, 1);
	}
	return NULL;
}

START_TEST(many_fetchers)
{
	pthread_t threads[FETCHERS];

	start_on_channel();
	atomic_store(&fetched, 0);
	for (uint64_t i = 0; i < DEPTH; i++)
		post_recv(i, 0, 64, false);
	ok(frl_req_notify_cq(b.cq, false));
	for (int i = 0; i < FETCHERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, fetch, NULL), 0);
	for (uint64_t i = 0; i < DEPTH; i++)
		send_one(i, 0);
	for (int i = 0; i < FETCHERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(atomic_load(&fetched), DEPTH);
	ck_assert(!readable(frl_comp_channel_fd(channel)));
	finish_on_channel();
}
END_TEST

/* Takes the event of b, which must be the next one. */
static struct frl_async_event async(enum frl_event_type type)
{
	struct frl_async_event event = { 0 };
	int rc = frl_get_async_event(b.device, soon_ms(), &event);

	ck_assert_msg(rc == 0 && event.type == type, "%s instead of %s",
		rc ? "nothing" : frl_event_type_str(event.type), frl_event_type_str(type));
	return event;
}

static void no_async(void)
{
	struct frl_async_event event;

	ck_assert_int_eq(frl_get_async_event(b.device, 0, &event), -EAGAIN);
}

START_TEST(waiting)
{
	struct frl_async_event event;
	struct timespec from, to;
	int fd;

	start(false, FRL_PROGRESS_INLINE);
	clock_gettime(CLOCK_MONOTONIC, &from);
	ck_assert_int_eq(frl_get_async_event(b.device, SHORT_MS, &event), -EAGAIN);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ck_assert_int_ge((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000,
		SHORT_MS - 1);
	fd = frl_async_fd(b.device);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(frl_async_fd(b.device), fd);
	ck_assert(!readable(fd));
}
END_TEST

/* The queue pair that is connected by hand stays in RTR: an arrival there raises one event. */
START_TEST(established)
{
	struct frl_qp_attr attr, own, reset = { .state = FRL_QPS_RESET };
	struct frl_sge sge;
	struct frl_send_wr wr;

	SOFTWARE_ONLY_IF(is_rxe(), RXE_TELLS_NOTHING);
	start(false, FRL_PROGRESS_INLINE);
	frl_qp_query(b.qp, &attr);
	own = attr;
	ok(frl_qp_modify(b.qp, &reset, FRL_QP_STATE));
	no_async();
	attr.state = FRL_QPS_INIT;
	ok(frl_qp_modify(
		b.qp, &attr, FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS));
	attr.state = FRL_QPS_RTR;
	ok(frl_qp_modify(b.qp, &attr,
		FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN |
			FRL_QP_MIN_RNR_TIMER | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_CAPABILITIES));
	sge = (struct frl_sge){ a.memory, 100, frl_mr_lkey(a.mr) };
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	post_send(&wr);
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
	expect(&a, 1, FRL_WC_SUCCESS);
	ck_assert_ptr_eq(async(FRL_EVENT_COMM_EST).qp, b.qp);
	no_async();
	own.state = FRL_QPS_RTS;
	ok(frl_qp_modify(b.qp, &own,
		FRL_QP_STATE | FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT |
			FRL_QP_RNR_RETRY | FRL_QP_MAX_QP_RD_ATOMIC));
}
END_TEST

START_TEST(drained)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_SQD, .en_sqd_async_notify = true };
	struct frl_sge sge;
	struct frl_send_wr wr;
	struct frl_wc wc;
	int fd;

	start(false, FRL_PROGRESS_INLINE);
	fd = frl_async_fd(b.device);
	sge = (struct frl_sge){ b.memory, MESSAGE, frl_mr_lkey(b.mr) };
	wr = (struct frl_send_wr){
		.wr_id = 1,
		.opcode = FRL_WR_RDMA_WRITE,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
		.remote_addr = (uintptr_t)a.memory,
		.rkey = frl_mr_rkey(a.mr),
	};
	post_on(b.qp, &wr);
	frl_progress(b.device);
	ok(frl_qp_modify(b.qp, &attr, FRL_QP_STATE | FRL_QP_EN_SQD_ASYNC_NOTIFY));
	wr.wr_id = 2;
	post_on(b.qp, &wr); /* waits */
	expect(&b, 1, FRL_WC_SUCCESS);
	ck_assert(becomes_readable(fd));
	ck_assert_ptr_eq(async(FRL_EVENT_SQ_DRAINED).qp, b.qp);
	ck_assert(!readable(fd));
	no_async();
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(frl_poll_cq(b.cq, 1, &wc), 0);
	frl_qp_query(b.qp, &attr);
	ck_assert(attr.state == FRL_QPS_SQD && !attr.sq_draining);
	attr.state = FRL_QPS_RTS;
	ok(frl_qp_modify(b.qp, &attr, FRL_QP_STATE));
	/* rxe ignores requests that were posted meanwhile until more are posted. */
	wr.wr_id = 3;
	if (is_rxe())
		post_on(b.qp, &wr);
	expect(&b, 2, FRL_WC_SUCCESS);
	if (is_rxe())
		expect(&b, 3, FRL_WC_SUCCESS);
}
END_TEST

enum { WITHOUT_LAST, NOT_FETCHED, WITH_LAST, SHARED_QUEUES };

START_LOOP_TEST(shared_queue, SHARED_QUEUES)
{
	struct frl_srq_config config = { .max_wr = 4, .limit = 3 };
	const struct frl_qp_attr error = { .state = FRL_QPS_ERR };
	struct frl_qp_config qp_config;
	struct frl_recv_wr recv = { .n_sge = 1 };
	struct frl_sge sge;
	struct frl_srq *srq;

	SOFTWARE_ONLY_IF(_i == WITH_LAST && is_rxe(), RXE_TELLS_NOTHING);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	ok(frl_srq_create(b.pd, &config, &srq));
	frl_qp_destroy(b.qp);
	qp_config = (struct frl_qp_config){
		.send_cq = b.cq, .recv_cq = b.cq, .srq = srq, .max_send_wr = DEPTH
	};
	ok(frl_qp_create(b.pd, &qp_config, &b.qp));
	ok(frl_qp_endpoint(b.qp, &b.mine));
	connect_both();
	sge = (struct frl_sge){ b.memory, 64, frl_mr_lkey(b.mr) };
	recv.sge = &sge;
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(frl_post_srq_recv(srq, &recv, 1, NULL), 1);
	send_one(1, 0);
	expect(&b, 0, FRL_WC_SUCCESS);
	no_async(); /* three are left */
	send_one(1, 0);
	expect(&b, 0, FRL_WC_SUCCESS);
	ck_assert_ptr_eq(async(FRL_EVENT_SRQ_LIMIT_REACHED).srq, srq);
	frl_srq_query(srq, &config);
	ck_assert_uint_eq(config.limit, 0);
	send_one(1, 0);
	expect(&b, 0, FRL_WC_SUCCESS);
	no_async();
	ok(frl_srq_set_limit(srq, 1));
	send_one(1, 0);
	expect(&b, 0, FRL_WC_SUCCESS);
	if (_i == NOT_FETCHED) /* it goes with its queue */
		ck_assert(becomes_readable(frl_async_fd(b.device)));
	else
		async(FRL_EVENT_SRQ_LIMIT_REACHED);
	ok(frl_qp_modify(b.qp, &error, FRL_QP_STATE));
	if (_i == WITH_LAST)
		ck_assert_ptr_eq(async(FRL_EVENT_QP_LAST_WQE_REACHED).qp, b.qp);
	frl_qp_destroy(b.qp);
	b.qp = NULL;
	ok(frl_srq_destroy(srq));
	no_async();
	if (_i == NOT_FETCHED)
		ck_assert(!readable(frl_async_fd(b.device)));
}
END_TEST

START_TEST(overrun)
{
	struct frl_cq *small, *roomy;
	struct frl_wc wc;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	ok(frl_cq_create(b.device, 1, &small));
	frl_qp_destroy(b.qp);
	roomy = b.cq;
	b.cq = small;
	b.qp = add_qp(&b);
	ok(frl_qp_endpoint(b.qp, &b.mine));
	connect_both();
	post_recv(1, 0, 64, false);
	post_recv(2, 0, 64, false);
	send_one(1, 0);
	for (int i = 0; i < 100; i++) {
		struct frl_sge sge = { a.memory, 64, frl_mr_lkey(a.mr) };
		struct frl_send_wr wr = send_wr(2, FRL_WR_SEND, &sge);

		if (i == 0)
			post_send(&wr);
		frl_progress(a.device);
		frl_progress(b.device);
	}
	ck_assert_ptr_eq(async(FRL_EVENT_CQ_ERR).cq, small);
	/* First the requests that fitted. */
	ck_assert(test_port() || frl_poll_cq(small, 0, NULL) == 0);
	ck_assert_int_eq(frl_poll_cq(small, 1, &wc), 1);
	ck_assert_int_eq(wc.wr_id, 1);
	refused(frl_poll_cq(small, 0, NULL), -EOVERFLOW, "overran");
	refused(frl_poll_cq(small, 1, &wc), -EOVERFLOW, "overran");
	frl_qp_destroy(b.qp);
	b.qp = NULL;
	ok(frl_cq_destroy(b.cq));
	b.cq = roomy;
	no_async();
}
END_TEST

/* A forbidden request of the peer, when no receive request can report it. */
START_LOOP_TEST(refusals, 2)
{
	struct frl_sge sge;
	struct frl_send_wr wr;

	SOFTWARE_ONLY_IF(is_rxe(), RXE_TELLS_NOTHING);
	start(false, FRL_PROGRESS_INLINE);
	sge = (struct frl_sge){ a.memory, 64, frl_mr_lkey(a.mr) };
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	if (_i == 0)
		wr.rkey ^= 1 << 20;
	if (_i == 1) {
		struct frl_qp_attr attr = { .access_flags = 0 };

		ok(frl_qp_modify(b.qp, &attr, FRL_QP_ACCESS_FLAGS));
	}
	post_send(&wr);
	expect(&a, 1, _i ? FRL_WC_REM_INV_REQ_ERR : FRL_WC_REM_ACCESS_ERR);
	ck_assert_ptr_eq(async(_i ? FRL_EVENT_QP_REQ_ERR : FRL_EVENT_QP_ACCESS_ERR).qp, b.qp);
	no_async();
}
END_TEST

/* A thread sleeps until it happens. */
static void *await(void *arg)
{
	struct frl_async_event event = { 0 };

	ok(frl_get_async_event(b.device, HANG_MS, &event));
	ck_assert_int_eq(event.type, FRL_EVENT_QP_ACCESS_ERR);
	return NULL;
}

START_TEST(sleeper)
{
	struct frl_sge sge;
	struct frl_send_wr wr;
	pthread_t thread;
	struct frl_wc wc;

	SOFTWARE_ONLY_IF(is_rxe(), RXE_TELLS_NOTHING);
	start(false, FRL_PROGRESS_INLINE);
	ck_assert_int_eq(pthread_create(&thread, NULL, await, NULL), 0);
	sge = (struct frl_sge){ a.memory, 64, frl_mr_lkey(a.mr) };
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	wr.rkey ^= 1 << 20;
	post_send(&wr);
	/* b is driven by its thread, which waiting has started. */
	ck_assert_int_eq(frl_cq_wait(a.cq, 1, &wc, HANG_MS), 1);
	ck_assert_int_eq(wc.status, FRL_WC_REM_ACCESS_ERR);
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(names)
{
	for (int type = 0; type <= 20; type++)
		ck_assert_ptr_nonnull(frl_event_type_str((enum frl_event_type)type));
	ck_assert_str_eq(frl_event_type_str(FRL_EVENT_SQ_DRAINED), "SQ_DRAINED");
	ck_assert_str_eq(frl_qp_state_str(FRL_QPS_SQD), "SQD");
	ck_assert_str_eq(frl_qp_state_str(FRL_QPS_SQE), "SQE");
	for (int status = 0; status <= 21; status++)
		ck_assert(*frl_wc_status_str((enum frl_wc_status)status));
	/* A peer that is stopped: the log names the setting that makes others wait for it. */
	ck_assert_ptr_nonnull(strstr(frl_wc_status_str(FRL_WC_RETRY_EXC_ERR), "FRL_ACK_TIMEOUT"));
}
END_TEST

TEST_MAIN(api_events)
{
	return run_rows(all_tests(NULL, close_ends));
}
