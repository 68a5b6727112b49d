/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public interface: a thread that waits for long sleeps, and its event wakes it. Nothing else
 * ends a sleep here: devices do not check by themselves after a while, so a lost wake-up hangs the
 * test.
 */
/* Before the fixture's `a` and `b`. */
#include "lib/device/soft.h"
#include "lib/base/clock.h"
#include "lib/engine/engine.h"

#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"

#include <poll.h>
#include <stdatomic.h>

enum {
	NET_NS = 50000000, /* as in lib/device/sleep.c: at most so long, for nothing else */
	AWAKE_MS = 500,    /* for what is likely to */
	ROUNDS = 20,
	CROWD = 6,      /* more than can sleep at a time */
	RNR_TIMER = 24, /* 41 ms */
};

static atomic_int asleep;                  /* threads that only what comes will wake */
static atomic_int woken;                   /* times that it has */
static atomic_bool is_held;                /* who was woken does not go on */
static _Thread_local uint64_t deadline_ns; /* the engine's, that this thread has asked for last */
static _Thread_local void (*before_waking)(void); /* in the thread that was woken */

static bool is_watching; /* this file runs: the others of its program sleep as in real life */

uint64_t __real_engine_next_deadline(const struct engine *engine);
uint64_t __wrap_engine_next_deadline(const struct engine *engine);

uint64_t __wrap_engine_next_deadline(const struct engine *engine)
{
	if (!is_watching)
		return __real_engine_next_deadline(engine);
	deadline_ns = __real_engine_next_deadline(engine);
	return deadline_ns;
}

int __real_ppoll(
	struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *signals);
int __wrap_ppoll(
	struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *signals);

static void sleep_ms(long ms)
{
	const struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

/* The net ends it, not the engine's deadline. A thread that was held up may take one for the other;
 * then that sleep is as in real life. */
static bool is_by_net(const struct timespec *timeout)
{
	return timeout && timeout->tv_sec == 0 && timeout->tv_nsec <= NET_NS &&
		deadline_ns > clock_now_ns() + (uint64_t)timeout->tv_nsec;
}

static void hold(void)
{
	uint64_t limit_ns = hang_limit_ns();

	while (atomic_load(&is_held)) {
		if (!may_wait(limit_ns)) {
			fprintf(stderr, "nobody has done without the thread that is held\n");
			abort();
		}
		sleep_ms(1);
	}
}

int __wrap_ppoll(
	struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *signals)
{
	const struct timespec long_time = { .tv_sec = HANG_S };
	int rc;

	if (!is_watching || !is_by_net(timeout))
		return __real_ppoll(fds, n, timeout, signals);
	atomic_fetch_add(&asleep, 1);
	rc = __real_ppoll(fds, n, &long_time, signals);
	if (rc == 0) {
		fprintf(stderr, "nobody has woken a thread that sleeps\n");
		abort();
	}
	atomic_fetch_sub(&asleep, 1);
	atomic_fetch_add(&woken, 1);
	hold();
	if (before_waking)
		before_waking();
	return rc;
}

static void await_sleepers(int n)
{
	uint64_t limit_ns = hang_limit_ns();

	while (atomic_load(&asleep) < n && may_wait(limit_ns))
		sleep_ms(1);
	ck_assert_int_ge(atomic_load(&asleep), n);
}

static bool is_woken_within(int ms, int before)
{
	for (int i = 0; atomic_load(&woken) == before && i < ms; i++)
		sleep_ms(1);
	return atomic_load(&woken) > before;
}

/* ---- somebody who waits */

struct waiter {
	pthread_t thread;
	struct end *end;
	int n;
	struct frl_wc wc;
};

static void *wait_main(void *arg)
{
	struct waiter *waiter = arg;

	waiter->n = frl_cq_wait(waiter->end->cq, 1, &waiter->wc, HANG_MS);
	return NULL;
}

static void begin_wait(struct waiter *waiter, struct end *end)
{
	*waiter = (struct waiter){ .end = end };
	ck_assert_int_eq(pthread_create(&waiter->thread, NULL, wait_main, waiter), 0);
}

static void end_wait(struct waiter *waiter, uint64_t wr_id, enum frl_wc_status status)
{
	pthread_join(waiter->thread, NULL);
	ck_assert_int_eq(waiter->n, 1);
	ck_assert_uint_eq(waiter->wc.wr_id, wr_id);
	ck_assert_int_eq(waiter->wc.status, status);
}

static void send_from(struct end *end, uint64_t wr_id)
{
	struct frl_sge sge = sge_of(end, 0, 64);
	struct frl_send_wr wr = { .wr_id = wr_id,
		.opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1 };

	post_on(end->qp, &wr);
}

static void receive_at(struct end *end, uint64_t wr_id)
{
	struct frl_sge sge = sge_of(end, 0, 64);
	struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };

	ck_assert_msg(frl_post_recv(end->qp, &wr, 1, NULL) == 1, "%s", frl_last_error());
}

/* ---- rows */

START_TEST(message)
{
	struct waiter waiter;

	start(false, FRL_PROGRESS_INLINE);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		receive_at(&b, i);
		begin_wait(&waiter, &b);
		await_sleepers(1);
		send_from(&a, 100 + i);
		end_wait(&waiter, i, FRL_WC_SUCCESS);
		expect(&a, 100 + i, FRL_WC_SUCCESS);
	}
}
END_TEST

/* Each message wakes one of them, whichever of them sleep and whichever only poll sometimes. */
START_TEST(crowd)
{
	struct waiter waiters[CROWD];
	uint64_t sum = 0;

	start(false, FRL_PROGRESS_INLINE);
	for (uint64_t i = 0; i < CROWD; i++) {
		receive_at(&b, 1u << i);
		begin_wait(&waiters[i], &b);
	}
	await_sleepers(4);
	for (uint64_t i = 0; i < CROWD; i++) {
		sleep_ms(i % 2 ? 5 : 0);
		send_from(&a, 100 + i);
		expect(&a, 100 + i, FRL_WC_SUCCESS);
	}
	for (int i = 0; i < CROWD; i++) {
		pthread_join(waiters[i].thread, NULL);
		ck_assert_int_eq(waiters[i].n, 1);
		sum += waiters[i].wc.wr_id;
	}
	ck_assert_uint_eq(sum, (1u << CROWD) - 1);
}
END_TEST

/* Another pair on the devices of a and b. */
static void open_second(struct end *end, struct end *of)
{
	*end = *of;
	ok(frl_cq_create(end->device, DEPTH, &end->cq));
	end->qp = add_qp(end);
	ok(frl_qp_endpoint(end->qp, &end->mine));
}

static void connect_second(struct end *first, struct end *second)
{
	pthread_t thread;

	first->theirs = second->mine;
	second->theirs = first->mine;
	ck_assert_int_eq(pthread_create(&thread, NULL, connect_end, first), 0);
	connect_end(second);
	pthread_join(thread, NULL);
	ok(first->rc);
	ok(second->rc);
}

static void close_second(struct end *end)
{
	frl_qp_destroy(end->qp);
	ok(frl_cq_destroy(end->cq));
}

/* Two wait for different things. The one that is done does not come back. */
START_TEST(two_queues)
{
	struct waiter one, other;
	struct end a2, b2;

	start(false, FRL_PROGRESS_INLINE);
	open_second(&a2, &a);
	open_second(&b2, &b);
	connect_second(&a2, &b2);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		receive_at(&b, i);
		receive_at(&b2, 200 + i);
		begin_wait(&one, i % 2 ? &b : &b2);
		await_sleepers(1);
		begin_wait(&other, i % 2 ? &b2 : &b);
		await_sleepers(2);
		send_from(&a, 100 + i);
		pthread_join(i % 2 ? one.thread : other.thread, NULL);
		send_from(&a2, 300 + i);
		pthread_join(i % 2 ? other.thread : one.thread, NULL);
		ck_assert_int_eq(one.n, 1);
		ck_assert_int_eq(other.n, 1);
		ck_assert_uint_eq(one.wc.wr_id + other.wc.wr_id, 200 + 2 * i);
		expect(&a, 100 + i, FRL_WC_SUCCESS);
		expect(&a2, 300 + i, FRL_WC_SUCCESS);
	}
	close_second(&a2);
	close_second(&b2);
}
END_TEST

/* A completion that another thread has made, without any outside event. */
START_TEST(other_thread)
{
	const struct frl_qp_attr failed = { .state = FRL_QPS_ERR };
	struct waiter waiter;

	start(false, FRL_PROGRESS_INLINE);
	receive_at(&b, 1);
	begin_wait(&waiter, &b);
	await_sleepers(1);
	ok(frl_qp_modify(b.qp, &failed, FRL_QP_STATE));
	end_wait(&waiter, 1, FRL_WC_WR_FLUSH_ERR);
}
END_TEST

/* A request that another thread posts, and does not send with the call, is sent without a further
 * call of that thread: leaving a device wakes a thread that has work. */
START_TEST(posted)
{
	struct waiter waiter;
	struct frl_stats stats;
	uint64_t before;
	int woken_before;

	start(false, FRL_PROGRESS_INLINE);
	receive_at(&b, 1);
	begin_wait(&waiter, &b);
	frl_device_stats(b.device, &stats);
	before = stats.tx_packets;
	for (uint64_t i = 0; i < DEPTH; i++)
		receive_at(&a, i);
	await_sleepers(1);
	woken_before = atomic_load(&woken);
	for (uint64_t i = 0; i < DEPTH; i++)
		send_from(&b, 100 + i);
	/* Nobody drives `a`: it answers nothing. */
	ck_assert(is_woken_within(HANG_MS, woken_before));
	await_sleepers(1);
	frl_device_stats(b.device, &stats);
	ck_assert_uint_ge(stats.tx_packets, before + DEPTH);
	for (uint64_t i = 0; i < DEPTH; i++)
		expect(&a, i, FRL_WC_SUCCESS);
	end_wait(&waiter, 100, FRL_WC_SUCCESS);
}
END_TEST

static void *connect_a_to_be_slow(void *arg)
{
	struct frl_connect_config config;

	frl_connect_config_init(a.device, &config);
	config.timeout_ms = HANG_MS;
	config.min_rnr_timer = RNR_TIMER;
	a.rc = frl_qp_connect(a.qp, &a.theirs, &config);
	return NULL;
}

/* The receiver is not ready, and gives a time: then the request is sent again. */
START_TEST(deadline)
{
	uint64_t limit_ns = hang_limit_ns();
	struct frl_stats stats;
	struct waiter waiter;
	pthread_t thread;

	open_end(&a, false, FRL_PROGRESS_THREAD);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	a.theirs = b.mine;
	b.theirs = a.mine;
	ck_assert_int_eq(pthread_create(&thread, NULL, connect_a_to_be_slow, NULL), 0);
	connect_end(&b);
	pthread_join(thread, NULL);
	ok(a.rc);
	ok(b.rc);
	send_from(&b, 1);
	begin_wait(&waiter, &b);
	do {
		sleep_ms(1);
		frl_device_stats(b.device, &stats);
	} while (stats.naks_received_rnr < 3 && may_wait(limit_ns));
	ck_assert_uint_ge(stats.naks_received_rnr, 3);
	receive_at(&a, 2);
	end_wait(&waiter, 1, FRL_WC_SUCCESS);
}
END_TEST

/* The peer goes while all threads sleep, and its link with it. */
START_TEST(peer_goes)
{
	struct waiter waiter;

	start(false, FRL_PROGRESS_INLINE);
	receive_at(&b, 1);
	begin_wait(&waiter, &b);
	await_sleepers(1);
	close_end(&a);
	end_wait(&waiter, 1, FRL_WC_WR_FLUSH_ERR);
}
END_TEST

/* A progress thread sleeps, does its work, and ends when it is stopped. */
START_TEST(progress_thread)
{
	struct frl_wc wc;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_THREAD);
	connect_both();
	receive_at(&b, 1);
	await_sleepers(1);
	send_from(&a, 2);
	/* The thread alone acknowledges it. */
	ck_assert_int_eq(frl_cq_wait(a.cq, 1, &wc, HANG_MS), 1);
	ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
	expect(&b, 1, FRL_WC_SUCCESS);
	await_sleepers(1);
	finish();
	ck_assert_int_eq(atomic_load(&asleep), 0);
}
END_TEST

/* An event, when the thread that waits for it and the progress thread sleep. */
static struct frl_comp_channel *channel;

static void *event_main(void *arg)
{
	struct frl_cq *cq = NULL;

	*(int *)arg = frl_get_cq_event(channel, HANG_MS, &cq);
	return NULL;
}

/* The waiter for the event does not need the progress thread, which is held in every other
 * round. */
START_TEST(event)
{
	int rc = -1, woken_before;
	struct frl_cq *plain;
	pthread_t thread;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	frl_qp_destroy(b.qp);
	plain = b.cq;
	ok(frl_comp_channel_create(b.device, &channel));
	ok(frl_cq_create_on_channel(b.device, 4 * DEPTH, channel, NULL, &b.cq));
	ok(frl_cq_destroy(plain));
	b.qp = add_qp(&b);
	ok(frl_qp_endpoint(b.qp, &b.mine));
	connect_both();
	for (uint64_t i = 0; i < ROUNDS; i++) {
		receive_at(&b, i);
		ok(frl_req_notify_cq(b.cq, false));
		if (i % 2)
			await_sleepers(1);
		atomic_store(&is_held, i % 2);
		ck_assert_int_eq(pthread_create(&thread, NULL, event_main, &rc), 0);
		if (i % 2 == 0)
			await_sleepers(1);
		woken_before = atomic_load(&woken);
		send_from(&a, 100 + i);
		pthread_join(thread, NULL);
		/* The next sleep is another one, unless the progress thread was awake already. */
		is_woken_within(AWAKE_MS, woken_before);
		atomic_store(&is_held, false);
		ck_assert_int_eq(rc, 0);
		expect(&b, i, FRL_WC_SUCCESS);
		expect(&a, 100 + i, FRL_WC_SUCCESS);
	}
	frl_qp_destroy(b.qp);
	b.qp = NULL;
	ok(frl_cq_destroy(b.cq));
	b.cq = NULL;
	ok(frl_comp_channel_destroy(channel));
}
END_TEST

static void serve(void)
{
	ck_assert_int_ge(frl_progress(b.device), 0);
}

static void *sleep_main(void *arg)
{
	struct awaited *awaited = arg;
	int before = atomic_load(&woken);

	before_waking = serve;
	while (atomic_load(&woken) == before)
		b.device->ops->sleep(b.device, awaited);
	return NULL;
}

/* If another thread was faster the wake-up was still needed, and the next sleep has no time
 * limit. */
START_TEST(served_by_another)
{
	struct awaited awaited = { .until_ns = UINT64_MAX };
	pthread_t thread;

	start(false, FRL_PROGRESS_INLINE);
	receive_at(&b, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_main, &awaited), 0);
	await_sleepers(1);
	send_from(&a, 2);
	pthread_join(thread, NULL);
	ck_assert(!awaited.was_spurious);
	expect(&b, 1, FRL_WC_SUCCESS);
	expect(&a, 2, FRL_WC_SUCCESS);
}
END_TEST

TEST_MAIN(api_sleep)
{
	is_watching = true;
	return run_rows(all_tests(NULL, close_ends));
}
