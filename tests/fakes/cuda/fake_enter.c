/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: the entry and exit of every call, and calls that are made to fail. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/cuda/fake_internal.h"

struct fake_world fake = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
};

enum { NAMES = 128, FAILURES = 16, NAME = 64 };

/* Call counts by name of the function. */
static struct {
	char name[NAME];
	unsigned calls;
} counts[NAMES];
static unsigned calls_of_any;

static struct failure {
	char name[NAME]; /* "": any function */
	unsigned in;     /* calls until then; 0: this one is not in use */
	unsigned times;  /* how many from then on; 0: all */
	bool has_begun;
	cu_result result;
} failures[FAILURES];
static char failed[NAME];

static void count(const char *name, bool is_quiet)
{
	if (!is_quiet)
		calls_of_any++;
	for (unsigned i = 0; i < NAMES; i++) {
		if (counts[i].name[0] == '\0')
			strncpy(counts[i].name, name, NAME - 1);
		if (strcmp(counts[i].name, name) == 0) {
			counts[i].calls++;
			return;
		}
	}
}

static cu_result failure_of(const char *name, bool is_quiet)
{
	cu_result result = CUDA_SUCCESS;

	for (unsigned i = 0; i < FAILURES; i++) {
		struct failure *f = &failures[i];

		if (f->in == 0 || (f->name[0] ? strcmp(f->name, name) != 0 : is_quiet))
			continue;
		if (!f->has_begun) {
			if (f->in > 1) {
				f->in--;
				continue;
			}
			f->has_begun = true;
		}
		if (result == CUDA_SUCCESS)
			result = f->result;
		if (f->times > 0 && --f->times == 0)
			f->in = 0;
	}
	if (result != CUDA_SUCCESS) {
		strncpy(failed, name, NAME - 1);
		failed[NAME - 1] = '\0';
	}
	return result;
}

static cu_result check(const char *name, unsigned needs)
{
	struct fake_context *context;
	cu_result result;

	/* Functions of the host that are part of work must not call CUDA. */
	if (fake_is_worker())
		return CUDA_ERROR_NOT_PERMITTED;
	count(name, needs & FAKE_QUIET);
	result = failure_of(name, needs & FAKE_QUIET);
	if (result != CUDA_SUCCESS)
		return result;
	if (!(needs & FAKE_NO_INIT) && fake.owner == 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (needs & FAKE_CONTEXTED) {
		result = fake_current(&context);
		if (result != CUDA_SUCCESS)
			return result;
		if (context->fatal != CUDA_SUCCESS)
			return context->fatal;
	}
	return needs & FAKE_UNSAFE ? fake_capture_check() : CUDA_SUCCESS;
}

cu_result fake_enter(const char *name, unsigned needs)
{
	/* After a fork, the state of the lock and of the threads is undefined. */
	pid_t owner = __atomic_load_n(&fake.owner, __ATOMIC_RELAXED);
	cu_result result;

	if (owner != 0 && owner != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&fake.lock);
	while (fake.n_keepers > 0 && !pthread_equal(fake.keeper, pthread_self()) &&
		!(needs & FAKE_NO_INIT))
		pthread_cond_wait(&fake.changed, &fake.lock);
	fake_settings();
	result = check(name, needs);
	if (result != CUDA_SUCCESS)
		pthread_mutex_unlock(&fake.lock);
	return result;
}

cu_result fake_leave(cu_result result)
{
	pthread_mutex_unlock(&fake.lock);
	return result;
}

cu_result fake_work_failure(void)
{
	count("work", true);
	return failure_of("work", true);
}

void fake_failures_reset(void)
{
	memset(counts, 0, sizeof(counts));
	memset(failures, 0, sizeof(failures));
	calls_of_any = 0;
	failed[0] = '\0';
}

void fake_fail_call(const char *name, unsigned nth, cu_result result, unsigned times)
{
	for (unsigned i = 0; nth == 0 && i < FAILURES; i++)
		if (!name || strcmp(failures[i].name, name) == 0)
			failures[i].in = 0;
	for (unsigned i = 0; nth > 0 && i < FAILURES; i++) {
		if (failures[i].in > 0)
			continue;
		failures[i] = (struct failure){ .in = nth, .times = times, .result = result };
		if (name)
			strncpy(failures[i].name, name, NAME - 1);
		return;
	}
}

const char *fake_failed(void)
{
	return failed[0] ? failed : NULL;
}

unsigned fake_calls(const char *name)
{
	if (!name)
		return calls_of_any;
	for (unsigned i = 0; i < NAMES && counts[i].name[0]; i++)
		if (strcmp(counts[i].name, name) == 0)
			return counts[i].calls;
	return 0;
}

/* xorshift64*: the same everywhere. */
uint64_t fake_random(void)
{
	fake.random ^= fake.random >> 12;
	fake.random ^= fake.random << 25;
	fake.random ^= fake.random >> 27;
	return fake.random * 0x2545f4914f6cdd1dull;
}
