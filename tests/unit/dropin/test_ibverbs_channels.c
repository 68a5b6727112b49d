/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: completion channels behave as the kernel's descriptors do. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <unistd.h>

static void start_channels(void)
{
	start(&(struct wants){ .has_channel = true });
}

static void notify(int solicited_only)
{
	ok(ibv_req_notify_cq(b.cq, solicited_only));
}

/* A message to b, which completes there. */
static void send_one(unsigned flags)
{
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);

	wr.send_flags |= flags;
	post_recv(&b, 2, 0, 0);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&b, 2, IBV_WC_SUCCESS);
}

static void set_nonblocking(int fd)
{
	ok(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0);
}

/* Fetches one event of b's queue; `fetched` counts those to acknowledge. */
static int fetch(void)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	int rc = ibv_get_cq_event(b.channel, &cq, &context);

	if (rc == 0) {
		ck_assert_ptr_eq(cq, b.cq);
		ck_assert_ptr_eq(context, &b);
	}
	return rc;
}

static void fetch_and_ack(void)
{
	ok(fetch());
	ibv_ack_cq_events(b.cq, 1);
}

static void expect_no_comp_event(void)
{
	ck_assert(!is_readable(b.channel->fd));
}

/* One event for each request, however many completions come. */
START_TEST(one_event)
{
	start_channels();
	send_one(0);
	expect_no_comp_event();
	notify(0);
	expect_no_comp_event();
	send_one(0);
	ck_assert(is_readable(b.channel->fd));
	send_one(0);
	fetch_and_ack();
	expect_no_comp_event();
	notify(0);
	send_one(0);
	notify(0);
	send_one(0);
	fetch_and_ack();
	fetch_and_ack();
	expect_no_comp_event();
	finish();
}
END_TEST

/* Completions that are in the queue already raise no event. */
START_TEST(completion_before_request)
{
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);

	start_channels();
	post_recv(&b, 2, 0, 0);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	notify(0);
	expect_no_comp_event();
	expect(&b, 2, IBV_WC_SUCCESS);
	send_one(0);
	fetch_and_ack();
	finish();
}
END_TEST

START_TEST(solicited)
{
	start_channels();
	notify(1);
	send_one(0);
	expect_no_comp_event();
	send_one(IBV_SEND_SOLICITED);
	fetch_and_ack();
	/* A request for all overrides one for solicited ones, and not the reverse. */
	notify(0);
	notify(1);
	send_one(0);
	fetch_and_ack();
	/* Failed receives are solicited. */
	notify(1);
	post_recv(&b, 3, 0, 0);
	ok(to_state(b.qp, IBV_QPS_ERR));
	fetch_and_ack();
	finish();
}
END_TEST

/* Hardware accepts the request, and there is nothing to notify. */
START_TEST(queue_without_channel)
{
	start(&(struct wants){ 0 });
	ok(ibv_req_notify_cq(b.cq, 0));
	ok(ibv_req_notify_cq(b.cq, 1));
	finish();
}
END_TEST

START_TEST(nonblocking)
{
	start_channels();
	set_nonblocking(b.channel->fd);
	refused_minus1(EAGAIN, fetch());
	notify(0);
	send_one(0);
	fetch_and_ack();
	refused_minus1(EAGAIN, fetch());
	finish();
}
END_TEST

START_TEST(level_triggered)
{
	struct epoll_event event = { .events = EPOLLIN };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	start_channels();
	ok(epoll_ctl(epoll, EPOLL_CTL_ADD, b.channel->fd, &event));
	ck_assert_int_eq(epoll_wait(epoll, &event, 1, 0), 0);
	for (int i = 0; i < 2; i++) {
		notify(0);
		send_one(0);
	}
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(epoll_wait(epoll, &event, 1, HANG_MS), 1);
		ck_assert_int_eq(epoll_wait(epoll, &event, 1, 0), 1);
		fetch_and_ack();
	}
	ck_assert_int_eq(epoll_wait(epoll, &event, 1, 0), 0);
	close(epoll);
	finish();
}
END_TEST

/* Each event raises an edge, also while earlier ones have not been fetched. */
START_TEST(edge_triggered)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	start_channels();
	set_nonblocking(b.channel->fd);
	ok(epoll_ctl(epoll, EPOLL_CTL_ADD, b.channel->fd, &event));
	for (int i = 0; i < 3; i++) {
		notify(0);
		send_one(0);
		ck_assert_int_eq(epoll_wait(epoll, &event, 1, HANG_MS), 1);
		ck_assert_int_eq(epoll_wait(epoll, &event, 1, 0), 0);
	}
	for (int i = 0; i < 3; i++)
		fetch_and_ack();
	refused_minus1(EAGAIN, fetch());
	notify(0);
	send_one(0);
	ck_assert_int_eq(epoll_wait(epoll, &event, 1, HANG_MS), 1);
	fetch_and_ack();
	close(epoll);
	finish();
}
END_TEST

/* Two queues of one channel: each event names its queue. */
START_TEST(two_queues)
{
	struct ibv_cq *cq, *other;
	struct ibv_qp_init_attr attr;
	struct ibv_wc wc;
	struct ibv_qp *qp;
	void *context;

	start_channels();
	other = ibv_create_cq(b.context, 16, &other, b.channel, 0);
	made(other);
	attr = (struct ibv_qp_init_attr){ .send_cq = other, .recv_cq = other };
	attr.qp_type = IBV_QPT_RC;
	qp = ibv_create_qp(b.pd, &attr);
	made(qp);
	connect_qps(qp, qp);
	ok(ibv_req_notify_cq(other, 0));
	notify(0);
	send_one(0);
	ok(to_state(qp, IBV_QPS_ERR));
	{
		struct ibv_send_wr wr = request(9, IBV_WR_SEND, NULL), *bad;

		ok(ibv_post_send(qp, &wr, &bad));
	}
	ok(ibv_get_cq_event(b.channel, &cq, &context));
	ck_assert_ptr_eq(cq, b.cq);
	ck_assert_ptr_eq(context, &b);
	ok(ibv_get_cq_event(b.channel, &cq, &context));
	ck_assert_ptr_eq(cq, other);
	ck_assert_ptr_eq(context, &other);
	ck_assert_int_eq(ibv_poll_cq(other, 1, &wc), 1);
	ibv_ack_cq_events(b.cq, 1);
	ibv_ack_cq_events(other, 1);
	ok(ibv_destroy_qp(qp));
	refused(EBUSY, ibv_destroy_comp_channel(b.channel));
	ok(ibv_destroy_cq(other));
	refused(EBUSY, ibv_destroy_comp_channel(b.channel));
	finish();
}
END_TEST

/* Events that the program has not fetched are gone with their queue. */
START_LOOP_TEST(events_of_destroyed_queue, 2)
{
	struct ibv_cq *other;

	start_channels();
	set_nonblocking(b.channel->fd);
	other = ibv_create_cq(b.context, 16, NULL, b.channel, 0);
	made(other);
	for (int i = 0; i < 3; i++) {
		notify(0);
		send_one(0);
	}
	if (_i) {
		ok(fetch());
		ibv_ack_cq_events(b.cq, 1);
	}
	destroy_qp(&b);
	ok(ibv_destroy_cq(b.cq));
	b.cq = NULL;
	expect_no_comp_event();
	refused_minus1(EAGAIN, fetch());
	ok(ibv_destroy_cq(other));
	finish();
}
END_TEST

/* ---- threads */

static atomic_bool is_done;
static atomic_int waiter_tid, handled;

static void *fetch_in_thread(void *arg)
{
	int *ret = arg;

	atomic_store(&waiter_tid, gettid());
	*ret = fetch() ? errno : 0;
	atomic_store(&is_done, true);
	return NULL;
}

static pthread_t start_fetching(int *ret)
{
	pthread_t thread;

	atomic_store(&waiter_tid, 0);
	atomic_store(&is_done, false);
	ok(pthread_create(&thread, NULL, fetch_in_thread, ret));
	await_sleep(&waiter_tid);
	ck_assert(!atomic_load(&is_done));
	return thread;
}

START_TEST(blocking)
{
	pthread_t thread;
	int error = -1;

	start_channels();
	notify(0);
	thread = start_fetching(&error);
	send_one(0);
	ok(pthread_join(thread, NULL));
	ck_assert_int_eq(error, 0);
	ibv_ack_cq_events(b.cq, 1);
	finish();
}
END_TEST

static void count_signal(int number)
{
	atomic_fetch_add(&handled, 1);
}

/* The handler's flags say whether the wait goes on. */
START_LOOP_TEST(signals, 2)
{
	const struct sigaction action = {
		.sa_handler = count_signal,
		.sa_flags = _i ? SA_RESTART : 0,
	};
	pthread_t thread;
	int error = -1;

	start_channels();
	atomic_store(&handled, 0);
	ok(sigaction(SIGUSR1, &action, NULL));
	notify(0);
	thread = start_fetching(&error);
	/* It wakes the thread before it returns. */
	ok(pthread_kill(thread, SIGUSR1));
	if (_i) {
		await_sleep(&waiter_tid);
		ck_assert(!atomic_load(&is_done));
		send_one(0);
	}
	ok(pthread_join(thread, NULL));
	ck_assert_int_eq(atomic_load(&handled), 1);
	ck_assert_int_eq(error, _i ? 0 : EINTR);
	if (!_i) {
		send_one(0);
		ok(fetch());
	}
	ibv_ack_cq_events(b.cq, 1);
	finish();
}
END_TEST

START_TEST_IF(cancelled, CAN_CANCEL)
{
	pthread_t thread;
	void *result;
	int error = -1;

	start_channels();
	notify(0);
	for (int i = 0; i < 5; i++) {
		thread = start_fetching(&error);
		ok(pthread_cancel(thread));
		ok(pthread_join(thread, &result));
		ck_assert_ptr_eq(result, PTHREAD_CANCELED);
		ck_assert_int_eq(error, -1);
	}
	thread = start_fetching(&error);
	send_one(0);
	ok(pthread_join(thread, NULL));
	ck_assert_int_eq(error, 0);
	ibv_ack_cq_events(b.cq, 1);
	finish();
}
END_TEST

/* Posts and polls while a cancellation is pending. The event wakes nobody, but is counted. */
static void *work_while_cancelled(void *arg)
{
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL), *bad;
	struct ibv_recv_wr recv = { .wr_id = 2 }, *bad_recv;
	struct ibv_wc wc;
	int errors;

	/* Checks write to a pipe, which is a cancellation point. */
	pthread_cancel(pthread_self());
	errors = ibv_req_notify_cq(b.cq, 0) | ibv_post_recv(b.qp, &recv, &bad_recv) |
		ibv_post_send(a.qp, &wr, &bad);
	while (!errors && ibv_poll_cq(a.cq, 1, &wc) == 0)
		;
	while (!errors && ibv_poll_cq(b.cq, 1, &wc) == 0)
		;
	*(bool *)arg = !errors;
	pthread_testcancel();
	return NULL;
}

/* With a NIC these functions are no cancellation points. Locks would stay locked. */
START_TEST_IF(cancelled_at_work, CAN_CANCEL)
{
	bool is_complete = false;
	pthread_t thread;
	void *result;

	start_channels();
	ok(pthread_create(&thread, NULL, work_while_cancelled, &is_complete));
	ok(pthread_join(thread, &result));
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert(is_complete);
	ok(fetch());
	ibv_ack_cq_events(b.cq, 1);
	finish();
}
END_TEST

static void *destroy_in_thread(void *arg)
{
	atomic_store(&waiter_tid, gettid());
	ok(ibv_destroy_cq(b.cq));
	atomic_store(&is_done, true);
	return NULL;
}

/* The queue lives until all of its events that were fetched are acknowledged. */
START_TEST(destroy_waits)
{
	pthread_t thread;

	start_channels();
	for (int i = 0; i < 3; i++) {
		notify(0);
		send_one(0);
		ok(fetch());
	}
	ibv_ack_cq_events(b.cq, 1);
	destroy_qp(&b);
	atomic_store(&waiter_tid, 0);
	atomic_store(&is_done, false);
	ok(pthread_create(&thread, NULL, destroy_in_thread, NULL));
	await_sleep(&waiter_tid);
	ck_assert(!atomic_load(&is_done));
	ibv_ack_cq_events(b.cq, 1);
	await_sleep(&waiter_tid);
	ck_assert(!atomic_load(&is_done));
	ibv_ack_cq_events(b.cq, 1);
	ok(pthread_join(thread, NULL));
	ck_assert(atomic_load(&is_done));
	b.cq = NULL;
	finish();
}
END_TEST

/* The events can still be acknowledged, and another call destroys the queue. */
START_TEST_IF(destroy_is_cancelled, CAN_CANCEL)
{
	pthread_t thread;
	void *result;

	start_channels();
	notify(0);
	send_one(0);
	ok(fetch());
	destroy_qp(&b);
	atomic_store(&waiter_tid, 0);
	atomic_store(&is_done, false);
	ok(pthread_create(&thread, NULL, destroy_in_thread, NULL));
	await_sleep(&waiter_tid);
	ok(pthread_cancel(thread));
	ok(pthread_join(thread, &result));
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ibv_ack_cq_events(b.cq, 1);
	finish();
}
END_TEST

/* A program that sleeps on its channel only: no event is lost. */
START_TEST(ping_pong_by_events)
{
	enum { ROUNDS = 300 };
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);
	struct ibv_wc wc;

	start_channels();
	for (int i = 0; i < ROUNDS; i++) {
		notify(0);
		post_recv(&b, 2, 0, 0);
		post(&a, &wr);
		fetch_and_ack();
		ck_assert_int_eq(ibv_poll_cq(b.cq, 1, &wc), 1);
		ck_assert_uint_eq(wc.wr_id, 2);
		expect(&a, 1, IBV_WC_SUCCESS);
	}
	finish();
}
END_TEST

TEST_FILE(ibverbs_channels)
