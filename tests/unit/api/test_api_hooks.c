/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: functions that take the events of a channel or of a device, and threads
 * that are cancelled while they wait for events. */
#include "lib/device/soft.h"
#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"

#include <poll.h>
#include <stdatomic.h>

enum {
	ROUNDS = 100,
/* gcc's AddressSanitizer takes the stack of a cancelled thread for one in use. */
#ifdef __SANITIZE_ADDRESS__
	MAY_CANCEL = 0,
#else
	MAY_CANCEL = 1,
#endif
};

static struct frl_comp_channel *channel;
static atomic_int calls;
static atomic_bool is_ended; /* no call may follow */
static struct frl_async_event last;

static void count_cq(struct frl_cq *cq, void *arg)
{
	ck_assert(!atomic_load(&is_ended));
	ck_assert_ptr_eq(cq, b.cq);
	ck_assert_ptr_eq(arg, &b);
	atomic_fetch_add(&calls, 1);
}

static void count_async(const struct frl_async_event *event, void *arg)
{
	ck_assert(!atomic_load(&is_ended));
	ck_assert_ptr_eq(arg, &b);
	last = *event;
	atomic_fetch_add(&calls, 1);
}

static bool readable(int fd)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	return poll(&event, 1, 0) == 1;
}

/* b completes into a queue with a channel. */
static void start_on_channel(void)
{
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	frl_qp_destroy(b.qp);
	ok(frl_cq_destroy(b.cq));
	ok(frl_comp_channel_create(b.device, &channel));
	ok(frl_cq_create_on_channel(b.device, 4 * DEPTH, channel, &b, &b.cq));
	b.qp = add_qp(&b);
	ok(frl_qp_endpoint(b.qp, &b.mine));
	connect_both();
	atomic_store(&calls, 0);
	atomic_store(&is_ended, false);
}

static void finish_on_channel(void)
{
	frl_qp_destroy(b.qp);
	ok(frl_cq_destroy(b.cq));
	ok(frl_comp_channel_destroy(channel));
	b.qp = NULL;
	b.cq = NULL;
	finish();
}

/* Sends one message, and takes its completions at both ends. */
static void send_one(void)
{
	struct frl_sge sge = sge_of(&a, 0, 64);
	struct frl_send_wr wr = send_wr(1, FRL_WR_SEND, &sge);

	post_recv(2, 0, 64, false);
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
	expect(&b, 2, FRL_WC_SUCCESS);
}

static int kept(void)
{
	struct frl_cq *cq;

	return frl_get_cq_event(channel, 0, &cq);
}

START_TEST(refused_arguments)
{
	SOFTWARE_ONLY("the function of a channel is of software devices");
	start(false, FRL_PROGRESS_INLINE);
	refused(frl_comp_channel_on_event(NULL, count_cq, NULL), -EINVAL, "channel");
	refused(frl_device_on_event(NULL, count_async, NULL), -EINVAL, "device");
}
END_TEST

/* One call for each request, even if nobody looks at the queue in between. */
START_TEST(completions)
{
	SOFTWARE_ONLY("the function of a channel is of software devices");
	start_on_channel();
	ok(frl_comp_channel_on_event(channel, count_cq, &b));
	send_one();
	ck_assert_int_eq(atomic_load(&calls), 0);
	for (int i = 1; i <= 5; i++) {
		ok(frl_req_notify_cq(b.cq, false));
		send_one();
		ck_assert_int_eq(atomic_load(&calls), i);
		send_one();
		ck_assert_int_eq(atomic_load(&calls), i);
	}
	ck_assert(!readable(frl_comp_channel_fd(channel)));
	ck_assert_int_eq(kept(), -EAGAIN);
	finish_on_channel();
}
END_TEST

/* Events that were kept are passed on; those after the end are kept again. */
START_TEST(kept_before_and_after)
{
	SOFTWARE_ONLY("the function of a channel is of software devices");
	start_on_channel();
	ok(frl_req_notify_cq(b.cq, false));
	send_one();
	ck_assert(readable(frl_comp_channel_fd(channel)));
	ok(frl_comp_channel_on_event(channel, count_cq, &b));
	ck_assert_int_eq(atomic_load(&calls), 1);
	ck_assert(!readable(frl_comp_channel_fd(channel)));
	ck_assert_int_eq(kept(), -EAGAIN);
	ok(frl_comp_channel_on_event(channel, NULL, NULL));
	ok(frl_req_notify_cq(b.cq, false));
	send_one();
	ck_assert_int_eq(atomic_load(&calls), 1);
	ck_assert(readable(frl_comp_channel_fd(channel)));
	ck_assert_int_eq(kept(), 0);
	/* An event that is kept stays while there is no function. */
	ok(frl_req_notify_cq(b.cq, false));
	send_one();
	ok(frl_comp_channel_on_event(channel, NULL, NULL));
	ck_assert(readable(frl_comp_channel_fd(channel)));
	ck_assert_int_eq(kept(), 0);
	finish_on_channel();
}
END_TEST

/* The library's thread makes the calls while the application sleeps. */
START_TEST(no_call_after_the_end)
{
	struct frl_sge sge;
	struct frl_send_wr wr;

	SOFTWARE_ONLY("the function of a channel is of software devices");
	start_on_channel();
	sge = sge_of(&a, 0, 64);
	wr = send_wr(1, FRL_WR_SEND, &sge);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t limit_ns = hang_limit_ns();

		atomic_store(&is_ended, false);
		atomic_store(&calls, 0);
		ok(frl_req_notify_cq(b.cq, false));
		ok(frl_comp_channel_on_event(channel, count_cq, &b));
		post_recv(2, 0, 64, false);
		post_send(&wr);
		while (i % 2 && atomic_load(&calls) == 0 && may_wait(limit_ns))
			frl_progress(a.device);
		ck_assert(i % 2 == 0 || atomic_load(&calls) == 1);
		ok(frl_comp_channel_on_event(channel, NULL, NULL));
		atomic_store(&is_ended, true);
		expect(&a, 1, FRL_WC_SUCCESS);
		expect(&b, 2, FRL_WC_SUCCESS);
		/* It was either passed on or kept. */
		ck_assert_int_eq(kept(), atomic_load(&calls) ? -EAGAIN : 0);
	}
	finish_on_channel();
}
END_TEST

static void write_without_right(void)
{
	struct frl_sge sge = sge_of(&a, 0, 64);
	struct frl_send_wr wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);

	wr.rkey ^= 1 << 20;
	post_send(&wr);
	expect(&a, 1, FRL_WC_REM_ACCESS_ERR);
}

enum { BEFORE, AFTER, ENDED, MOMENTS };

START_LOOP_TEST(async_events, MOMENTS)
{
	struct frl_device_attr attr;
	struct frl_async_event event;
	int fd;

	SOFTWARE_ONLY_IF(is_rxe(), "rxe has no events about connections");
	start(false, FRL_PROGRESS_INLINE);
	atomic_store(&calls, 0);
	atomic_store(&is_ended, false);
	if (_i == BEFORE)
		write_without_right();
	ok(frl_device_on_event(b.device, count_async, &b));
	frl_device_query(b.device, &attr);
	ck_assert(test_port() || attr.progresses);
	if (_i == ENDED) {
		ok(frl_device_on_event(b.device, NULL, NULL));
		atomic_store(&is_ended, true);
	}
	if (_i != BEFORE)
		write_without_right();
	if (_i == ENDED) {
		ck_assert_int_eq(atomic_load(&calls), 0);
		ok(frl_get_async_event(b.device, soon_ms(), &event));
		return;
	}
	for (uint64_t limit_ns = hang_limit_ns(); !atomic_load(&calls) && may_wait(limit_ns);)
		;
	ck_assert_int_eq(atomic_load(&calls), 1);
	ck_assert_int_eq(last.type, FRL_EVENT_QP_ACCESS_ERR);
	ck_assert_ptr_eq(last.qp, b.qp);
	ck_assert_ptr_null(last.cq);
	fd = frl_async_fd(b.device);
	ck_assert(!readable(fd));
	ck_assert_int_eq(frl_get_async_event(b.device, 0, &event), -EAGAIN);
}
END_TEST

static void *wait_for_cq(void *arg)
{
	struct frl_cq *cq;

	frl_get_cq_event(channel, HANG_MS, &cq);
	return arg;
}

static void *wait_for_async(void *arg)
{
	struct frl_async_event event;

	frl_get_async_event(b.device, HANG_MS, &event);
	return arg;
}

/* The progress thread does not yield to a waiter that is gone, and the device works. */
START_LOOP_TEST(cancelled_waiters, 2 * MAY_CANCEL)
{
	pthread_t thread;
	void *result;

	SOFTWARE_ONLY("software devices count the waiters");
	start_on_channel();
	for (int i = 0; i < 10; i++) {
		uint64_t limit_ns = hang_limit_ns();

		ck_assert_int_eq(
			pthread_create(&thread, NULL, _i ? wait_for_async : wait_for_cq, NULL), 0);
		while (!atomic_load(&soft_device(b.device)->watchers) && may_wait(limit_ns))
			;
		ck_assert_int_eq(pthread_cancel(thread), 0);
		pthread_join(thread, &result);
		ck_assert_ptr_eq(result, PTHREAD_CANCELED);
		ck_assert_uint_eq(atomic_load(&soft_device(b.device)->watchers), 0);
	}
	send_one();
	finish_on_channel();
}
END_TEST

static void *take_event(void *arg)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(before, NULL);
	*(int *)arg = kept();
	pthread_testcancel();
	return NULL;
}

/* A thread that has the guard is not cancelled. */
START_TEST_IF(cancelled_while_it_takes, MAY_CANCEL)
{
	pthread_t thread;
	void *result;
	int rc = 1;

	SOFTWARE_ONLY("hardware notifies a little later");
	start_on_channel();
	ok(frl_req_notify_cq(b.cq, false));
	send_one();
	ck_assert_int_eq(pthread_create(&thread, NULL, take_event, &rc), 0);
	pthread_join(thread, &result);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert_int_eq(rc, 0);
	send_one();
	finish_on_channel();
}
END_TEST

TEST_MAIN(api_hooks)
{
	return run_rows(all_tests(NULL, close_ends));
}
