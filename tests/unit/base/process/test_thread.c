/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the library's own: no signals, and the caller's state is unchanged. */
#include "tests/fixtures/program.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

#include "lib/base/process/thread.h"

enum { STACK = 1 << 18, USUAL = 1 << 21 };

static struct seen {
	sem_t is_over;
	bool blocks_all;
	int detach_state;
	size_t stack;
} seen;

static void *look(void *arg)
{
	struct seen *here = arg;
	pthread_attr_t attributes;
	sigset_t set;

	pthread_sigmask(SIG_BLOCK, NULL, &set);
	here->blocks_all = sigismember(&set, SIGTERM) && sigismember(&set, SIGUSR1) &&
		sigismember(&set, SIGALRM);
	pthread_getattr_np(pthread_self(), &attributes);
	pthread_attr_getdetachstate(&attributes, &here->detach_state);
	pthread_attr_getstacksize(&attributes, &here->stack);
	pthread_attr_destroy(&attributes);
	sem_post(&here->is_over);
	return arg;
}

START_LOOP_TEST(starts, 4)
{
	bool is_detached = _i % 2;
	size_t stack = _i / 2 ? STACK : 0;
	sigset_t before, after;
	pthread_t thread;
	void *result;

	sem_init(&seen.is_over, 0, 0);
	memset(&before, 0, sizeof(before));
	memset(&after, 0, sizeof(after));
	pthread_sigmask(SIG_BLOCK, NULL, &before);
	ck_assert_int_eq(thread_start(look, &seen, stack, is_detached ? NULL : &thread), 0);
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	ck_assert_mem_eq(&before, &after, sizeof(before));
	while (sem_wait(&seen.is_over))
		ck_assert_int_eq(errno, EINTR);
	ck_assert(seen.blocks_all);
	ck_assert_int_eq(
		seen.detach_state, is_detached ? PTHREAD_CREATE_DETACHED : PTHREAD_CREATE_JOINABLE);
	/* Sanitizers add to it. */
	ck_assert_uint_ge(seen.stack, stack);
	ck_assert_int_eq(seen.stack < USUAL, stack != 0);
	if (!is_detached) {
		ck_assert_int_eq(pthread_join(thread, &result), 0);
		ck_assert_ptr_eq(result, &seen);
	}
}
END_TEST

/* A stack of that size does not fit. */
START_TEST(cannot_start)
{
	ck_assert_int_eq(thread_start(look, &seen, (size_t)1 << 60, NULL), -EAGAIN);
}
END_TEST

TEST_FILE(thread)
