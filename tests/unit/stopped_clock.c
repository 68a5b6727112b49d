/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/stopped_clock.h"

#include <stdatomic.h>
#include <time.h>

enum { NS_PER_MS = 1000000, NS_PER_S = 1000000000 };

static _Atomic(uint64_t) stopped_ns; /* 0: it runs */
static _Atomic(uint64_t) ahead_ns;   /* of the kernel's, while it runs */

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);

static uint64_t kernel_ns(void)
{
	struct timespec now;

	__real_clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
	uint64_t at_ns = atomic_load(&stopped_ns);
	int err = __real_clock_gettime(id, now);

	if (err || (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE))
		return err;
	if (at_ns == 0)
		at_ns = (uint64_t)now->tv_sec * NS_PER_S + (uint64_t)now->tv_nsec +
			atomic_load(&ahead_ns);
	now->tv_sec = (time_t)(at_ns / NS_PER_S);
	now->tv_nsec = (long)(at_ns % NS_PER_S);
	return 0;
}

void clock_stop(void)
{
	atomic_store(&stopped_ns, kernel_ns() + atomic_load(&ahead_ns));
}

void clock_advance_ms(uint64_t ms)
{
	atomic_fetch_add(&stopped_ns, ms * NS_PER_MS);
}

void clock_go_on(void)
{
	uint64_t at_ns = atomic_load(&stopped_ns), now_ns = kernel_ns() + atomic_load(&ahead_ns);

	if (at_ns > now_ns)
		atomic_fetch_add(&ahead_ns, at_ns - now_ns);
	atomic_store(&stopped_ns, 0);
}
