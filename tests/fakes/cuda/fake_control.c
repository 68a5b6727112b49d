/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: the functions for tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tests/fakes/cuda/fake_internal.h"

enum { EXIT_LEAKS = 86 };

static void lock(void)
{
	pthread_mutex_lock(&fake.lock);
	fake_settings();
}

static void unlock(void)
{
	pthread_mutex_unlock(&fake.lock);
}

/* ---- settings */

static void attributes_of(const char *text)
{
	int attribute, value, used;

	while (text && sscanf(text, "%d=%d%n", &attribute, &value, &used) == 2) {
		fake_set_attribute(-1, attribute, value);
		text += used;
		text += *text == ',';
	}
}

static void failures_of(const char *text)
{
	unsigned nth, times;
	int result, used;
	char name[64];

	while (text &&
		sscanf(text, "%63[^:]:%u:%d:%u%n", name, &nth, &result, &times, &used) == 4) {
		fake_fail_call(name, nth, result, times);
		text += used;
		text += *text == ',';
	}
}

static long number_of(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text && text[0] ? strtol(text, NULL, 10) : otherwise;
}

/* CUDA_MODULE_LOADING is the driver's own setting. */
static cu_module_loading_mode loading_of_environment(void)
{
	const char *text = getenv("FAKE_CUDA_LOADING");

	if (!text || !*text)
		text = getenv("CUDA_MODULE_LOADING");
	if (text && strcasecmp(text, "eager") == 0)
		return CU_MODULE_EAGER_LOADING;
	return text && strcasecmp(text, "lazy") == 0 ? CU_MODULE_LAZY_LOADING : 0;
}

void fake_settings(void)
{
	if (fake.is_set)
		return;
	fake.is_set = true;
	fake.number++;
	fake.n_devices = (int)number_of("FAKE_CUDA_DEVICES", 1);
	if (fake.n_devices > FAKE_CUDA_MAX_DEVICES)
		fake.n_devices = FAKE_CUDA_MAX_DEVICES;
	fake.version = (int)number_of("FAKE_CUDA_VERSION", 13000);
	fake.loading = loading_of_environment();
	fake.memory = (uint64_t)number_of("FAKE_CUDA_MEMORY", 1024) << 20;
	fake.is_host_apart = number_of("FAKE_CUDA_HOST_APART", 0) != 0;
	fake.delay_us = (unsigned)number_of("FAKE_CUDA_DELAY_US", 0);
	fake.random = (uint64_t)number_of("FAKE_CUDA_SEED", 1) * 0x9e3779b97f4a7c15ull | 1;
	fake.tells_leaks = number_of("FAKE_CUDA_LEAKS", 0) != 0;
	fake.host_limit = UINT64_MAX;
	fake.is_pcie = false;
	fake.is_one_id = false;
	fake_failures_reset();
	fake_attributes_reset();
	attributes_of(getenv("FAKE_CUDA_ATTRIBUTES"));
	failures_of(getenv("FAKE_CUDA_FAIL"));
	fake_set_missing(getenv("FAKE_CUDA_MISSING"));
}

static void reset(void)
{
	lock();
	fake.is_held = false;
	fake_worker_stop();
	fake_contexts_reset();
	fake_virtual_reset();
	fake_memory_drop(NULL);
	fake_exports_reset();
	memset(&fake.stats, 0, sizeof(fake.stats));
	memset(fake.devices, 0, sizeof(fake.devices));
	fake.fault[0] = '\0';
	fake.is_capture_elsewhere = false;
	__atomic_store_n(&fake.owner, 0, __ATOMIC_RELAXED);
	fake.is_set = false;
	fake_settings();
	unlock();
}

/* Settings that are one word each. */
#define SETTER(name, type, expression) \
	static void name(type value)   \
	{                              \
		lock();                \
		expression;            \
		unlock();              \
	}

SETTER(set_devices, int, fake.n_devices = value)
SETTER(set_version, int, fake.version = value)
SETTER(set_memory, uint64_t, fake.memory = value)
SETTER(set_host_apart, bool, fake.is_host_apart = value)
SETTER(set_host_limit, uint64_t, fake.host_limit = value)
SETTER(set_pcie, bool, fake.is_pcie = value)
SETTER(set_one_id, bool, fake.is_one_id = value)
SETTER(set_missing, const char *, fake_set_missing(value))
SETTER(set_delay, unsigned, fake.delay_us = value)
SETTER(set_seed, uint64_t, fake.random = value * 0x9e3779b97f4a7c15ull | 1)
SETTER(set_capture, bool, fake.is_capture_elsewhere = value)

static void set_attribute(int ordinal, cu_device_attribute attribute, int value)
{
	lock();
	fake_set_attribute(ordinal, attribute, value);
	unlock();
}

static void fail_call(const char *name, unsigned nth, cu_result result, unsigned times)
{
	lock();
	fake_fail_call(name, nth, result, times);
	unlock();
}

/* Questions. */
#define QUESTION(name, type, argument, expression) \
	static type name(argument)                 \
	{                                          \
		type value;                        \
		lock();                            \
		value = expression;                \
		unlock();                          \
		return value;                      \
	}

QUESTION(failed, const char *, void, fake_failed())
QUESTION(calls, unsigned, const char *of, fake_calls(of))
QUESTION(step, unsigned, unsigned n, fake_step(n))
QUESTION(queued, unsigned, void, fake_queued())
QUESTION(fault, const char *, void, fake.fault)
QUESTION(context_depth, unsigned, void, fake_context_depth())
QUESTION(capture_mode, int, void, fake_capture_mode())
QUESTION(free_virtual, cu_result, cu_deviceptr address, fake_free_virtual(address))

/* ---- work */

static void hold(bool is_held)
{
	lock();
	fake.is_held = is_held;
	fake_worker_pause();
	unlock();
}

static void hold_stream(cu_stream handle, bool is_held)
{
	lock();
	for (struct fake_stream *s = fake.streams; s; s = s->next)
		if ((cu_stream)(void *)s == handle)
			s->is_held = is_held;
	fake_worker_pause();
	unlock();
}

static void settle(void)
{
	lock();
	fake_settle();
	unlock();
}

static void kill_context(cu_context handle, cu_result result)
{
	struct fake_context *context;

	lock();
	fake_worker_pause();
	context = fake_context_of(handle);
	if (context)
		fake_fatal(context, result);
	unlock();
}

/* ---- memory */

static void *look(cu_deviceptr address, size_t size)
{
	void *at;

	lock();
	at = fake_find_bytes(NULL, address, size, false);
	unlock();
	return at;
}

static bool read_device(void *dst, cu_deviceptr src, size_t size)
{
	uint8_t *at;

	lock();
	fake_worker_pause();
	at = fake_find_bytes(NULL, src, size, false);
	if (at)
		memcpy(dst, at, size);
	unlock();
	return at != NULL;
}

static bool write_device(cu_deviceptr dst, const void *src, size_t size)
{
	uint8_t *at;

	lock();
	fake_worker_pause();
	at = fake_find_bytes(NULL, dst, size, false);
	if (at)
		memcpy(at, src, size);
	unlock();
	return at != NULL;
}

static cu_result make_virtual(
	int ordinal, size_t reserved, unsigned n, bool is_rdma_capable, cu_deviceptr *ret_address)
{
	cu_result result;

	lock();
	result = fake.owner == 0
		? CUDA_ERROR_NOT_INITIALIZED
		: fake_make_virtual(ordinal, reserved, n, is_rdma_capable, ret_address);
	unlock();
	return result;
}

static bool dma_buf(int fd, cu_deviceptr *ret_address, size_t *ret_size)
{
	bool is_one;

	lock();
	is_one = fake_dma_buf(fd, ret_address, ret_size);
	unlock();
	return is_one;
}

/* ---- what is left */

static const char *const names[FAKE_CUDA_KINDS] = {
	[FAKE_CUDA_ALLOCATION] = "allocation",
	[FAKE_CUDA_HOST] = "host allocation",
	[FAKE_CUDA_REGISTRATION] = "registration",
	[FAKE_CUDA_HANDLE] = "memory handle",
	[FAKE_CUDA_RESERVATION] = "address reservation",
	[FAKE_CUDA_CONTEXT] = "context",
	[FAKE_CUDA_RETAIN] = "retained primary context",
	[FAKE_CUDA_STREAM] = "stream",
	[FAKE_CUDA_EVENT] = "event",
	[FAKE_CUDA_MODULE] = "module",
	[FAKE_CUDA_FD] = "dma-buf descriptor",
};

static void count_ranges(unsigned n[FAKE_CUDA_KINDS])
{
	for (const struct fake_range *range = fake.ranges; range; range = range->next) {
		switch (range->kind) {
		case FAKE_DEVICE:
		case FAKE_POOL:
		case FAKE_MANAGED:
		case FAKE_MAPPING: n[FAKE_CUDA_ALLOCATION]++; break;
		case FAKE_HOST_ALLOCATED: n[FAKE_CUDA_HOST]++; break;
		case FAKE_HOST_REGISTERED: n[FAKE_CUDA_REGISTRATION]++; break;
		case FAKE_RESERVATION: n[FAKE_CUDA_RESERVATION]++; break;
		case FAKE_SHARED: break;
		}
	}
}

void fake_live(unsigned n[FAKE_CUDA_KINDS])
{
	memset(n, 0, sizeof(n[0]) * FAKE_CUDA_KINDS);
	count_ranges(n);
	for (const struct fake_block *block = fake.handles; block; block = block->next)
		n[FAKE_CUDA_HANDLE] += block->n_handles;
	for (unsigned i = 0; i < FAKE_CONTEXTS; i++) {
		const struct fake_context *context = &fake.contexts[i];

		if (context->is_alive && context->is_primary)
			n[FAKE_CUDA_RETAIN] += context->retained;
		else if (context->is_alive)
			n[FAKE_CUDA_CONTEXT]++;
	}
	for (const struct fake_stream *s = fake.streams; s; s = s->next)
		n[FAKE_CUDA_STREAM] += s->is_alive && s != s->context->legacy &&
			s != s->context->per_thread;
	for (const struct fake_event *event = fake.events; event; event = event->next)
		n[FAKE_CUDA_EVENT] += event->is_alive;
	for (const struct fake_module *module = fake.modules; module; module = module->next)
		n[FAKE_CUDA_MODULE]++;
	n[FAKE_CUDA_FD] = fake_export_count();
}

static unsigned live(enum fake_cuda_kind kind)
{
	unsigned n[FAKE_CUDA_KINDS], sum = 0;

	lock();
	fake_live(n);
	unlock();
	for (unsigned i = 0; i < FAKE_CUDA_KINDS; i++)
		if (kind == FAKE_CUDA_KINDS || kind == i)
			sum += n[i];
	return sum;
}

static const char *leaks_now(void)
{
	static char text[512];
	unsigned n[FAKE_CUDA_KINDS];
	size_t length = 0;

	fake_live(n);
	text[0] = '\0';
	for (unsigned i = 0; i < FAKE_CUDA_KINDS && length < sizeof(text); i++)
		if (n[i] > 0)
			length += (size_t)snprintf(text + length, sizeof(text) - length,
				"%s%u %s%s", length > 0 ? ", " : "", n[i], names[i],
				n[i] > 1 ? "s" : "");
	return text;
}

QUESTION(leaks, const char *, void, leaks_now())

static void stats(struct fake_cuda_stats *ret_stats)
{
	lock();
	*ret_stats = fake.stats;
	unlock();
}

const struct fake_cuda *fake_cuda_control(void)
{
	static const struct fake_cuda control = {
		.reset = reset,
		.set_devices = set_devices,
		.set_version = set_version,
		.set_memory = set_memory,
		.set_attribute = set_attribute,
		.set_host_apart = set_host_apart,
		.set_host_limit = set_host_limit,
		.set_pcie = set_pcie,
		.set_one_id = set_one_id,
		.set_missing = set_missing,
		.set_delay = set_delay,
		.set_seed = set_seed,
		.fail_call = fail_call,
		.failed = failed,
		.calls = calls,
		.hold = hold,
		.hold_stream = hold_stream,
		.step = step,
		.queued = queued,
		.settle = settle,
		.set_capture = set_capture,
		.kill = kill_context,
		.fault = fault,
		.read = read_device,
		.write = write_device,
		.look = look,
		.make_virtual = make_virtual,
		.free_virtual = free_virtual,
		.dma_buf = dma_buf,
		.live = live,
		.leaks = leaks,
		.stats = stats,
		.context_depth = context_depth,
		.capture_mode = capture_mode,
	};

	return &control;
}

/* At the end of the process nothing runs any more. A forked process has no such thread. */
__attribute__((destructor)) static void at_exit(void)
{
	const char *left;

	if (fake.owner == 0 || fake.owner != getpid())
		return;
	lock();
	fake_worker_stop();
	left = fake.tells_leaks ? leaks_now() : "";
	unlock();
	if (left[0]) {
		fprintf(stderr, "fake_libcuda: left at exit: %s\n", left);
		_exit(EXIT_LEAKS);
	}
}
