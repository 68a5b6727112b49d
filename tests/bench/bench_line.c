/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures how long a cache line takes from one processor to another: two threads, on the first two
 * processors that this process may use, write it in turns. Prints nanoseconds, one way, the median
 * of many batches. tests/bench/run.sh repeats runs during which that changed: the hypervisor of a
 * virtual machine may move its processors to cores without a common cache.
 *
 *	bench_line
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"

enum {
	BATCHES = 101,
	PASSES = 100,   /* of a batch, each way */
	WARM_UP = 5,    /* batches */
	LIMIT_MS = 500, /* after which no batch begins, once one was measured */
	NS_PER_MS = 1000000,
	END = -1,
};

static _Alignas(128) _Atomic int line;
static int cpus[2];

static void fail(const char *what, int err)
{
	fprintf(stderr, "bench_line: %s: %s\n", what, strerror(err));
	exit(1);
}

/* On busy processors this takes long: the other thread does not run all the time. */
static void wait_for(int value)
{
	int now;

	while ((now = atomic_load_explicit(&line, memory_order_acquire)) != value && now != END)
		;
}

static void pin(int cpu)
{
	cpu_set_t set;
	int err;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	err = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	if (err)
		fail("cannot choose a processor", err);
}

/* Answers each odd number with the next even one. */
static void *answer(void *unused)
{
	(void)unused;
	pin(cpus[1]);
	for (int next = 1; atomic_load(&line) != END; next += 2) {
		int expected = next;

		wait_for(next);
		/* Does not overwrite END. */
		atomic_compare_exchange_strong(&line, &expected, next + 1);
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t measure(void)
{
	uint64_t took[BATCHES], start_ns = clock_now_ns();
	size_t n = 0;
	int next = 1;

	for (int batch = 0; batch < WARM_UP + BATCHES; batch++) {
		uint64_t began_ns = clock_now_ns();

		for (int i = 0; i < PASSES; i++, next += 2) {
			atomic_store_explicit(&line, next, memory_order_release);
			wait_for(next + 1);
		}
		if (batch >= WARM_UP)
			took[n++] = clock_now_ns() - began_ns;
		if (n > 0 && clock_now_ns() - start_ns > (uint64_t)LIMIT_MS * NS_PER_MS)
			break;
	}
	atomic_store(&line, END);
	qsort(took, n, sizeof(*took), compare);
	return took[n / 2] / (2 * PASSES);
}

int main(void)
{
	pthread_t thread;
	cpu_set_t set;
	int n = 0, err;
	uint64_t ns;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		fail("cannot tell which processors may be used", errno);
	for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
		if (CPU_ISSET((size_t)cpu, &set))
			cpus[n++] = cpu;
	if (n < 2) {
		fprintf(stderr, "bench_line: needs two processors\n");
		return 77;
	}
	err = pthread_create(&thread, NULL, answer, NULL);
	if (err)
		fail("cannot create a thread", err);
	pin(cpus[0]);
	ns = measure();
	pthread_join(thread, NULL);
	printf("%llu\n", (unsigned long long)ns);
	return 0;
}
