/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/process/backoff.h"

#include <sched.h>
#include <time.h>

#include "lib/base/clock.h"

enum {
	SPIN_ROUNDS = 200,   /* idle rounds before yielding */
	YIELD_ROUNDS = 2000, /* further rounds before sleeping */
	SPIN_LOOKS = 50,
	SLEEP_MIN_US = 10,
	/* Each long sleep lasts about 1/64 of the time waited before it. */
	LONG_SHARE = 64,
	/* A longer yield is taken for the turn of another thread on this processor ... */
	LONG_YIELD_NS = 2000,
	/* ... and a still longer one for that of a thread that would have gone on. */
	CROWDED_YIELD_NS = 100000,
	QUICK_YIELDS = 16, /* this many fast yields in a row: no other thread is runnable */
};

/*
 * Spinning is right while the awaited thread runs on another processor, and wrong when that thread
 * needs this processor. The duration of a yield shows whether another thread was runnable.
 */
static _Thread_local struct {
	bool oversubscribed;
	bool crowded;   /* by the last yield */
	unsigned quick; /* consecutive yields that returned at once */
	unsigned tests; /* tests since the last yield */
} processor;

static void yield(void)
{
	uint64_t start = clock_now_ns(), taken_ns;

	sched_yield();
	taken_ns = clock_now_ns() - start;
	processor.crowded = taken_ns > CROWDED_YIELD_NS;
	if (taken_ns > LONG_YIELD_NS) {
		processor.oversubscribed = true;
		processor.quick = 0;
	} else if (processor.oversubscribed && ++processor.quick == QUICK_YIELDS) {
		processor.oversubscribed = false;
		processor.quick = 0;
	}
}

void frl_backoff_reset(struct frl_backoff *backoff)
{
	backoff->rounds = 0;
	backoff->sleep_us = SLEEP_MIN_US;
}

/* Marks a spin loop for the processor. */
static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void nap(struct frl_backoff *backoff, uint32_t max_us)
{
	struct timespec pause = { 0 };

	/* The sleep time is zero when the caller cleared the struct instead of resetting it. */
	if (backoff->sleep_us < SLEEP_MIN_US)
		backoff->sleep_us = SLEEP_MIN_US;
	if (backoff->sleep_us > max_us)
		backoff->sleep_us = max_us;
	pause.tv_nsec = (long)backoff->sleep_us * 1000;
	nanosleep(&pause, NULL);
	if (backoff->sleep_us < BACKOFF_US / 2)
		backoff->sleep_us *= 2;
	else if (backoff->sleep_us < BACKOFF_US)
		backoff->sleep_us = BACKOFF_US;
	else
		backoff->sleep_us += backoff->sleep_us / LONG_SHARE;
	if (backoff->sleep_us > max_us)
		backoff->sleep_us = max_us;
}

bool backoff_is_spinning(const struct frl_backoff *backoff)
{
	return backoff->rounds < SPIN_ROUNDS && !processor.oversubscribed;
}

void backoff_idle(struct frl_backoff *backoff, uint32_t max_us)
{
	if (backoff_is_spinning(backoff)) {
		backoff->rounds++;
		relax();
	} else if (backoff->rounds < SPIN_ROUNDS + YIELD_ROUNDS) {
		backoff->rounds++;
		yield();
	} else {
		nap(backoff, max_us);
	}
}

void frl_backoff_idle(struct frl_backoff *backoff)
{
	backoff_idle(backoff, BACKOFF_US);
}

void backoff_test(void)
{
	if (!processor.oversubscribed && ++processor.tests < SPIN_ROUNDS)
		return;
	processor.tests = 0;
	yield();
}

bool backoff_is_long(const struct frl_backoff *backoff)
{
	return backoff->sleep_us >= BACKOFF_US;
}

bool backoff_is_crowded(void)
{
	return processor.crowded;
}

void backoff_lengthen(struct frl_backoff *backoff)
{
	backoff->rounds = SPIN_ROUNDS + YIELD_ROUNDS;
	backoff->sleep_us = BACKOFF_US;
}

bool backoff_spin(bool (*has_arrived)(void *arg), void *arg)
{
	for (int i = 0; i < SPIN_LOOKS; i++) {
		if (has_arrived(arg))
			return true;
		relax();
	}
	return false;
}
