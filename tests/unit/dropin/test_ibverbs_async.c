/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: asynchronous events, their contexts and acknowledgements. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <unistd.h>

static const struct wants with_srq = { .has_srq = true };

/* Raises LAST_WQE_REACHED at the end. */
static void raise_last(struct end *end)
{
	ok(to_state(end->qp, IBV_QPS_ERR));
}

static void set_nonblocking(struct ibv_context *context)
{
	int flags = fcntl(context->async_fd, F_GETFL);

	ck_assert_int_ge(flags, 0);
	ck_assert(!(flags & O_NONBLOCK));
	ok(fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK));
}

/* An opened device has no events. */
START_TEST(nonblocking)
{
	struct ibv_async_event event;

	start(&with_srq);
	set_nonblocking(a.context);
	refused_minus1(EAGAIN, ibv_get_async_event(a.context, &event));
	raise_last(&a);
	ok(ibv_get_async_event(a.context, &event));
	ck_assert_int_eq(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
	ibv_ack_async_event(&event);
	refused_minus1(EAGAIN, ibv_get_async_event(a.context, &event));
	finish();
}
END_TEST

/* Each context has the events of its own objects, although all share the device. */
START_TEST(by_context)
{
	struct ibv_context *third;
	struct ibv_async_event event;

	start(&with_srq);
	third = open_context();
	raise_last(&b);
	expect_no_event(a.context);
	expect_no_event(third);
	event = next_event(b.context, IBV_EVENT_QP_LAST_WQE_REACHED);
	ck_assert_ptr_eq(event.element.qp, b.qp);
	ibv_ack_async_event(&event);
	ok(ibv_close_device(third));
	finish();
}
END_TEST

/* An object keeps one event of each type until it is fetched. */
START_TEST(several_types)
{
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);
	struct ibv_async_event event;

	start_half(&with_srq);
	post_recv(&b, 2, 0, 0);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&b, 2, IBV_WC_SUCCESS);
	raise_last(&b);
	event = next_event(b.context, IBV_EVENT_COMM_EST);
	ibv_ack_async_event(&event);
	event = next_event(b.context, IBV_EVENT_QP_LAST_WQE_REACHED);
	ibv_ack_async_event(&event);
	expect_no_event(b.context);
	finish();
}
END_TEST

START_TEST(edge_triggered)
{
	struct epoll_event edge = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct ibv_async_event event;

	open_ends(&(struct wants){ .has_srq = true, .one_context = true });
	connect_qps(a.qp, b.qp);
	ok(epoll_ctl(epoll, EPOLL_CTL_ADD, a.context->async_fd, &edge));
	ck_assert_int_eq(epoll_wait(epoll, &edge, 1, 0), 0);
	raise_last(&a);
	ck_assert_int_eq(epoll_wait(epoll, &edge, 1, HANG_MS), 1);
	raise_last(&b);
	ck_assert_int_eq(epoll_wait(epoll, &edge, 1, HANG_MS), 1);
	for (int i = 0; i < 2; i++) {
		event = next_event(a.context, IBV_EVENT_QP_LAST_WQE_REACHED);
		ck_assert_ptr_eq(event.element.qp, i ? b.qp : a.qp);
		ibv_ack_async_event(&event);
	}
	expect_no_event(a.context);
	close(epoll);
	finish();
}
END_TEST

/* Events that were not fetched are gone with their object. */
START_TEST(event_of_destroyed_object)
{
	struct ibv_async_event event;

	start(&with_srq);
	raise_last(&a);
	ck_assert(is_readable(a.context->async_fd));
	destroy_qp(&a);
	expect_no_event(a.context);
	set_nonblocking(a.context);
	refused_minus1(EAGAIN, ibv_get_async_event(a.context, &event));
	finish();
}
END_TEST

/* ---- threads */

static atomic_bool is_done;
static atomic_int tid;

static void *destroy_in_thread(void *arg)
{
	atomic_store(&tid, gettid());
	if (arg == &a.qp)
		ok(ibv_destroy_qp(a.qp));
	else
		ok(ibv_destroy_srq(a.srq));
	atomic_store(&is_done, true);
	return NULL;
}

static pthread_t start_thread(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	atomic_store(&tid, 0);
	atomic_store(&is_done, false);
	ok(pthread_create(&thread, NULL, fn, arg));
	return thread;
}

static void expect_waiting(void)
{
	await_sleep(&tid);
	ck_assert(!atomic_load(&is_done));
}

/* A thread destroys the queue pair or the shared receive queue, and waits until the event that is
 * returned is acknowledged. */
static struct ibv_async_event start_destroying(bool srq, pthread_t *ret_thread)
{
	struct ibv_srq_attr limit = { .srq_limit = 1 };
	struct ibv_async_event event;

	start(&with_srq);
	if (srq) {
		ok(ibv_modify_srq(a.srq, &limit, IBV_SRQ_LIMIT));
		sync_ends(&b, &a);
		event = next_event(a.context, IBV_EVENT_SRQ_LIMIT_REACHED);
		destroy_qp(&a);
	} else {
		raise_last(&a);
		event = next_event(a.context, IBV_EVENT_QP_LAST_WQE_REACHED);
	}
	*ret_thread = start_thread(destroy_in_thread, srq ? NULL : &a.qp);
	expect_waiting();
	return event;
}

/* An object lives until its events that were fetched are acknowledged. */
START_LOOP_TEST(destroy_waits, 2)
{
	pthread_t thread;
	struct ibv_async_event event = start_destroying(_i, &thread);

	ibv_ack_async_event(&event);
	ok(pthread_join(thread, NULL));
	ck_assert(atomic_load(&is_done));
	if (_i)
		a.srq = NULL;
	else
		a.qp = NULL;
	finish();
}
END_TEST

/* The event can still be acknowledged, and another call destroys the object. */
START_LOOP_TEST(destroy_is_cancelled, CAN_CANCEL ? 2 : 0)
{
	pthread_t thread;
	struct ibv_async_event event = start_destroying(_i, &thread);
	void *result;

	ok(pthread_cancel(thread));
	ok(pthread_join(thread, &result));
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ibv_ack_async_event(&event);
	finish();
}
END_TEST

static void *get_in_thread(void *arg)
{
	struct ibv_async_event *event = arg;

	atomic_store(&tid, gettid());
	ok(ibv_get_async_event(a.context, event));
	atomic_store(&is_done, true);
	return NULL;
}

/* A thread that sleeps in the call is woken, and can be cancelled. */
START_LOOP_TEST(blocking, CAN_CANCEL ? 2 : 1)
{
	struct ibv_async_event event;
	pthread_t thread;
	void *result;

	start(&with_srq);
	thread = start_thread(get_in_thread, &event);
	expect_waiting();
	if (_i) {
		ok(pthread_cancel(thread));
		ok(pthread_join(thread, &result));
		ck_assert_ptr_eq(result, PTHREAD_CANCELED);
		raise_last(&a);
		event = next_event(a.context, IBV_EVENT_QP_LAST_WQE_REACHED);
	} else {
		raise_last(&a);
		ok(pthread_join(thread, NULL));
		ck_assert_int_eq(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
	}
	ck_assert_ptr_eq(event.element.qp, a.qp);
	ibv_ack_async_event(&event);
	finish();
}
END_TEST

TEST_FILE(ibverbs_async)
