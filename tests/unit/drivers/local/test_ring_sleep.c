/* SPDX-License-Identifier: BSD-3-Clause */
/* The rings of local links: a consumer that sleeps is woken, and waking never blocks. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drivers/local/ring.h"
#include "drivers/local/wake.h"
#include "lib/base/clock.h"
#include "tests/fixtures/program.h"
#include "tests/unit/drivers/local/ring_fixture.h"

enum {
	WAKES = 20000, /* more than a sleeper's descriptor takes */
	NAPS = 20000,
	RACES = 1000000,
	RACES_LEAST = 1000,
	RACE_NS = 2000000000,
};

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	return poll(&event, 1, timeout_ms) == 1;
}

/* Woken once each time it falls asleep, and never when it is awake. */
START_TEST(woken_once)
{
	ck_assert(!ring_must_wake(&tx));
	ring_set_asleep(&rx, true);
	ck_assert(ring_must_wake(&tx));
	ck_assert(!ring_must_wake(&tx));
	ring_set_asleep(&rx, true);
	ring_set_asleep(&rx, false);
	ck_assert(!ring_must_wake(&tx));
}
END_TEST

struct sleeper {
	int fd; /* the producer's own */
	uint32_t name;
	atomic_uint seen; /* frames that the consumer has taken */
};

/* One frame at a time, each as soon as the consumer, who has the one before, falls asleep. */
static void *wake_consumer(void *arg)
{
	struct sleeper *sleeper = arg;
	uint8_t byte = 1, *rest;

	for (uint32_t n = 0; n < NAPS; n++) {
		while (atomic_load_explicit(&sleeper->seen, memory_order_relaxed) < n)
			if (mix(n) % 64 == 0)
				sched_yield();
		/* So that it arrives before the consumer checks, after that, or just then. */
		for (uint32_t i = mix(~n) % 1024; i > 0; i--)
			atomic_load_explicit(&sleeper->seen, memory_order_relaxed);
		if (ring_begin(&tx, &byte, 1, 0, &rest))
			return NULL; /* which the consumer waits for in vain */
		ring_show(&tx);
		if (ring_must_wake(&tx))
			wake_up(sleeper->fd, sleeper->name);
	}
	return NULL;
}

START_TEST(no_lost_wakeup)
{
	struct sleeper sleeper = { 0 };
	pthread_t producer;
	uint32_t name;
	int fd = wake_open(&sleeper.name);
	uint32_t slept = 0;

	sleeper.fd = wake_open(&name);
	ck_assert(fd >= 0 && sleeper.fd >= 0);
	ck_assert_int_eq(pthread_create(&producer, NULL, wake_consumer, &sleeper), 0);
	for (uint32_t n = 0; n < NAPS; n++) {
		for (;;) {
			ring_set_asleep(&rx, true);
			ring_fence();
			if (ring_look(&rx, RING_MAX_FRAME) != -EAGAIN)
				break;
			/* Nothing else ends this. */
			ck_assert_msg(is_readable(fd, HANG_MS), "frame %u: not woken", n);
			wake_drain(fd);
			slept++;
		}
		ring_set_asleep(&rx, false);
		ring_take(&rx, got);
		atomic_store_explicit(&sleeper.seen, n + 1, memory_order_relaxed);
	}
	pthread_join(producer, NULL);
	ck_assert_uint_gt(slept, 0);
	close(fd);
	close(sleeper.fd);
}
END_TEST

/* Both as nearly at the same time as possible: the consumer falls asleep and checks, the producer
 * publishes a frame and asks. One of them sees the other's action. Rounds take long on a busy
 * processor: then there are fewer. */
static struct {
	atomic_uint round;    /* that both may begin */
	atomic_uint done;     /* that the producer has ended */
	atomic_bool is_woken; /* what the producer has found in it */
	atomic_bool is_over;
} race;

static void await(atomic_uint *count, uint32_t n)
{
	for (uint32_t i = 1; atomic_load_explicit(count, memory_order_acquire) < n; i++)
		if (i % 1024 == 0)
			sched_yield();
}

static void *show_in_race(void *arg)
{
	uint8_t byte = 1, *rest;

	for (uint32_t n = 1; n <= RACES; n++) {
		int err = ring_begin(&tx, &byte, 1, 0, &rest);

		await(&race.round, n);
		if (atomic_load_explicit(&race.is_over, memory_order_relaxed))
			return NULL;
		for (uint32_t i = mix(n) % 64; i > 0; i--)
			atomic_signal_fence(memory_order_seq_cst);
		if (!err)
			ring_show(&tx);
		atomic_store_explicit(&race.is_woken, ring_must_wake(&tx), memory_order_relaxed);
		atomic_store_explicit(&race.done, n, memory_order_release);
	}
	return NULL;
}

START_TEST(either_sees)
{
	uint64_t end_ns = clock_now_ns() + RACE_NS;
	uint32_t seen = 0, woken = 0, n;
	pthread_t producer;

	ck_assert_int_eq(pthread_create(&producer, NULL, show_in_race, NULL), 0);
	for (n = 1; n <= RACES_LEAST || (n <= RACES && clock_now_ns() < end_ns); n++) {
		bool is_woken, is_seen;

		ring_set_asleep(&rx, false);
		atomic_store_explicit(&race.round, n, memory_order_release);
		for (uint32_t i = mix(~n) % 64; i > 0; i--)
			atomic_signal_fence(memory_order_seq_cst);
		ring_set_asleep(&rx, true);
		ring_fence();
		is_seen = ring_look(&rx, RING_MAX_FRAME) == 1;
		await(&race.done, n);
		is_woken = atomic_load_explicit(&race.is_woken, memory_order_relaxed);
		ck_assert_msg(is_seen || is_woken, "race %u: it sleeps for ever", n);
		seen += is_seen;
		woken += is_woken;
		ck_assert_int_eq(ring_look(&rx, RING_MAX_FRAME), 1);
		ring_take(&rx, got);
	}
	atomic_store(&race.is_over, true);
	atomic_store(&race.round, n);
	pthread_join(producer, NULL);
	ck_assert_uint_gt(seen + woken, 0);
}
END_TEST

/* Waking never blocks, whoever has the name and whatever happens to that one. */
START_TEST(waking)
{
	uint32_t name, other;
	int fd = wake_open(&name), from = wake_open(&other);

	ck_assert(fd >= 0 && from >= 0 && name && other && name != other);
	ck_assert(!is_readable(fd, 0));
	wake_up(from, name);
	ck_assert(is_readable(fd, 0));
	wake_drain(fd);
	ck_assert(!is_readable(fd, 0));
	/* Itself. */
	wake_up(fd, name);
	ck_assert(is_readable(fd, 0));
	/* Much more than it takes; it is readable all the same, and again when it is empty. */
	for (int i = 0; i < WAKES; i++)
		wake_up(from, name);
	ck_assert(is_readable(fd, 0));
	for (int i = 0; i < WAKES && is_readable(fd, 0); i++)
		wake_drain(fd);
	wake_up(from, name);
	ck_assert(is_readable(fd, 0));
	/* Nobody. */
	close(fd);
	wake_up(from, name);
	wake_up(from, 0);
	wake_up(-1, other);
	ck_assert(!is_readable(from, 0));
	close(from);
	ck_assert_uint_eq(wake_check(UINT32_MAX), UINT32_MAX);
	ck_assert_uint_eq(wake_check(UINT64_C(1) << 32 | name), 0);
}
END_TEST

/* Proofs that a name belongs to a link's other end, right ones and wrong ones. */
START_TEST(proofs)
{
	uint32_t name, other, proof;
	int fd = wake_open(&name), stranger = wake_open(&other);
	int proof_fd = wake_open_proof(0, &proof);

	ck_assert(fd >= 0 && stranger >= 0 && proof_fd >= 0);
	ck_assert_uint_eq(wake_proven(proof_fd, name, "a link", true), 0);
	wake_prove(fd, proof, "a link", true);
	ck_assert_uint_eq(wake_proven(proof_fd, name, "a link", true), name);
	/* Once. */
	ck_assert_uint_eq(wake_proven(proof_fd, name, "a link", true), 0);
	/* Another link's, or its other end's. */
	wake_prove(fd, proof, "another link", true);
	wake_prove(fd, proof, "a link", false);
	ck_assert_uint_eq(wake_proven(proof_fd, name, "a link", true), 0);
	/* Another socket, and a socket that sends another one's name. */
	wake_prove(stranger, proof, "a link", true);
	ck_assert_uint_eq(wake_proven(proof_fd, name, "a link", true), 0);
	wake_prove(fd, proof, "a link", true);
	ck_assert_uint_eq(wake_proven(proof_fd, other, "a link", true), 0);
	/* Behind messages of others. */
	wake_up(stranger, proof);
	wake_prove(stranger, proof, "a link", true);
	wake_prove(fd, proof, "a link", true);
	ck_assert_uint_eq(wake_proven(proof_fd, name, "a link", true), name);
	/* No name, no socket. */
	ck_assert_uint_eq(wake_proven(proof_fd, 0, "a link", true), 0);
	ck_assert_uint_eq(wake_proven(-1, name, "a link", true), 0);
	wake_prove(-1, proof, "a link", true);
	wake_prove(fd, 0, "a link", true);
	ck_assert(!is_readable(proof_fd, 0));
	close(fd);
	close(stranger);
	close(proof_fd);
}
END_TEST

/* Names that the kernel gives to sockets whose owners choose none: ids of processes. */
START_TEST(names_to_come)
{
	ck_assert_uint_eq(wake_check(1), 0);
	ck_assert_uint_eq(wake_check((uint64_t)getpid()), 0);
	ck_assert_uint_eq(wake_check((1 << 22) - 1), 0);
	ck_assert_uint_eq(wake_check(1 << 22), 1 << 22);
}
END_TEST

/* A waiter that is woken again and again and never reads does not block others. */
START_TEST(wakes_others)
{
	uint32_t names[3];
	int fds[3];

	for (int i = 0; i < 3; i++) {
		fds[i] = wake_open(&names[i]);
		ck_assert_int_ge(fds[i], 0);
	}
	for (int i = 0; i < WAKES; i++)
		wake_up(fds[0], names[1]);
	wake_up(fds[0], names[2]);
	ck_assert(is_readable(fds[2], 0));
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}
END_TEST

/* This process would have to close descriptors that come along, which may take long. */
START_TEST(takes_no_descriptors)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);
	uint32_t name, other;
	int fd = wake_open(&name), from = wake_open(&other);
	struct iovec part = { .iov_base = (char[]){ 1 }, .iov_len = 1 };
	struct msghdr out = { .msg_name = &address,
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };

	ck_assert(fd >= 0 && from >= 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	out.msg_namelen = len;
	CMSG_FIRSTHDR(&out)->cmsg_level = SOL_SOCKET;
	CMSG_FIRSTHDR(&out)->cmsg_type = SCM_RIGHTS;
	CMSG_FIRSTHDR(&out)->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&out)), &from, sizeof(from));
	ck_assert_int_eq(sendmsg(from, &out, MSG_DONTWAIT), -1);
	ck_assert(!is_readable(fd, 0));
	/* The address was right. */
	out.msg_control = NULL;
	out.msg_controllen = 0;
	ck_assert_int_eq(sendmsg(from, &out, MSG_DONTWAIT), 1);
	ck_assert(is_readable(fd, 0));
	close(fd);
	close(from);
}
END_TEST

TEST_MAIN(ring_sleep)
{
	return run_suite(all_tests(ring_set_up, ring_tear_down));
}
