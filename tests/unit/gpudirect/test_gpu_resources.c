/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts, and host memory that a GPU reaches: on the double of the driver. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gpudirect/host.h"
#include "tests/fixtures/gpu_fixture.h"
#include "tests/fixtures/program.h"

/* ---- contexts */

START_TEST(one_struct_for_a_context)
{
	struct gpu *gpu = hold(0), *same = NULL, *other = NULL;
	cu_context own = own_context();

	ck_assert(gpu->is_primary);
	is_ok(gpu_hold(gpu->context, 0, &same));
	ck_assert_ptr_eq(gpu, same);
	is_ok(gpu_hold(own, 0, &other));
	ck_assert_ptr_ne(gpu, other);
	ck_assert(!other->is_primary);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_RETAIN), 1);
	gpu_hold_again(gpu);
	gpu_release(gpu);
	gpu_release(gpu);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_RETAIN), 1);
	gpu_release(same);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_RETAIN), 0);
	gpu_release(other);
	gpu_release(NULL);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
}
END_TEST

/* The runtime's context is the primary one: it is kept while it is in use. */
START_TEST(primary_by_its_handle)
{
	struct gpu *gpu = NULL;
	cu_context context;

	ck_assert_int_eq(cu.cuInit(0), 0);
	ck_assert_int_eq(cu.cuDevicePrimaryCtxRetain(&context, 0), 0);
	is_ok(gpu_hold(context, 0, &gpu));
	ck_assert(gpu->is_primary);
	ck_assert_int_eq(cu.cuDevicePrimaryCtxRelease(0), 0);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_RETAIN), 1);
	gpu_release(gpu);
}
END_TEST

START_TEST(no_primary_is_made_to_look_at_another)
{
	cu_context own = own_context();
	struct gpu *gpu = NULL;
	unsigned int flags;
	int is_active = 1;

	is_ok(gpu_hold(own, 0, &gpu));
	ck_assert_int_eq(cu.cuDevicePrimaryCtxGetState(0, &flags, &is_active), 0);
	ck_assert_int_eq(is_active, 0);
	gpu_release(gpu);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
}
END_TEST

START_TEST(scopes_nest_and_leave_no_trace)
{
	struct gpu *gpu = hold(0), *other = NULL;
	cu_context own = own_context(), current;
	struct gpu_scope outer, inner;

	is_ok(gpu_hold(own, 0, &other));
	ck_assert_int_eq(cu.cuCtxPushCurrent(own), 0);
	is_ok(gpu_enter(gpu, &outer));
	ck_assert_int_eq(cu.cuCtxGetCurrent(&current), 0);
	ck_assert_ptr_eq(current, gpu->context);
	ck_assert_int_eq(fake->capture_mode(), CU_STREAM_CAPTURE_MODE_RELAXED);
	is_ok(gpu_enter(other, &inner));
	ck_assert_int_eq(cu.cuCtxGetCurrent(&current), 0);
	ck_assert_ptr_eq(current, own);
	ck_assert_uint_eq(fake->context_depth(), 3);
	gpu_leave(&inner);
	ck_assert_int_eq(fake->capture_mode(), CU_STREAM_CAPTURE_MODE_RELAXED);
	gpu_leave(&outer);
	ck_assert_int_eq(fake->capture_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL);
	ck_assert_int_eq(cu.cuCtxGetCurrent(&current), 0);
	ck_assert_ptr_eq(current, own);
	ck_assert_uint_eq(fake->context_depth(), 1);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&current), 0);
	gpu_release(gpu);
	gpu_release(other);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
}
END_TEST

/* A later context at the same address is another one. */
START_TEST(context_that_is_gone)
{
	cu_context own = own_context(), later;
	struct gpu *gpu = NULL, *other = NULL;
	struct gpu_scope scope;

	is_ok(gpu_hold(own, 0, &gpu));
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	is_refused(gpu_enter(gpu, &scope), -ENODEV, "gone");
	later = own_context();
	ck_assert_ptr_eq(later, own);
	is_refused(gpu_enter(gpu, &scope), -ENODEV, "gone");
	is_ok(gpu_hold(later, 0, &other));
	ck_assert_ptr_ne(gpu, other);
	is_ok(gpu_enter(other, &scope));
	gpu_leave(&scope);
	gpu_release(gpu);
	gpu_release(other);
	ck_assert_int_eq(cu.cuCtxDestroy(later), 0);
}
END_TEST

START_TEST(context_that_is_gone_with_an_older_driver)
{
	struct gpu_scope scope;
	struct gpu *gpu = NULL;
	cu_context own;

	fake->set_missing("cuCtxGetId");
	own = own_context();
	is_ok(gpu_hold(own, 0, &gpu));
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	is_refused(gpu_enter(gpu, &scope), -ENODEV, "gone");
	gpu_release(gpu);
}
END_TEST

START_TEST(capture_in_another_thread)
{
	struct fake_cuda_stats stats;
	struct gpu *gpu;

	ck_assert_int_eq(cu.cuInit(0), 0);
	fake->set_capture(true);
	gpu = hold(0);
	is_ok(gpu_host_map(gpu, memory, PAGE));
	gpu_host_unmap(gpu, memory, PAGE);
	gpu_release(gpu);
	fake->stats(&stats);
	ck_assert_uint_eq(stats.captures_broken, 0);
	fake->set_capture(false);
}
END_TEST

START_TEST(no_such_gpu)
{
	struct gpu *gpu = NULL;

	ck_assert_int_ne(gpu_hold(NULL, 7, &gpu), 0);
	ck_assert_ptr_null(gpu);
}
END_TEST

/* ---- host memory */

/* Whether the GPU sees exactly these pages, in order, at one address each. */
static void sees(const struct gpu *gpu, const unsigned counts[PAGES])
{
	for (unsigned i = 0; i < PAGES; i++) {
		const uint8_t *page = memory + (size_t)i * PAGE;
		uint64_t seen = gpu_host_address(gpu, page + 5, 100);

		ck_assert_msg((seen != 0) == (counts[i] != 0), "page %u: %u, seen %d", i, counts[i],
			seen != 0);
		if (seen)
			ck_assert_uint_eq(seen % PAGE, 5);
	}
}

static const struct {
	unsigned start, length; /* bytes */
	unsigned first, end;    /* pages */
} ranges[] = {
	{ 0, PAGE, 0, 1 },
	{ 10, 1, 0, 1 },
	{ PAGE - 1, 2, 0, 2 },
	{ 5 * PAGE, 10 * PAGE, 5, 15 },
	{ 5 * PAGE + 1, 10 * PAGE, 5, 16 },
};

START_LOOP_TEST(rounded_to_pages, 2 * ROWS(ranges))
{
	struct gpu *gpu = hold(0);
	unsigned counts[PAGES] = { 0 };

	fake->set_host_apart(_i >= (int)(sizeof(ranges) / sizeof(ranges[0])));
	_i %= (int)(sizeof(ranges) / sizeof(ranges[0]));
	is_ok(gpu_host_map(gpu, memory + ranges[_i].start, ranges[_i].length));
	for (unsigned i = ranges[_i].first; i < ranges[_i].end; i++)
		counts[i] = 1;
	sees(gpu, counts);
	ck_assert_uint_ne(gpu_host_address(gpu, memory + (size_t)ranges[_i].first * PAGE,
				  (size_t)(ranges[_i].end - ranges[_i].first) * PAGE),
		0);
	ck_assert_uint_eq(gpu_host_address(gpu, memory + (size_t)ranges[_i].first * PAGE,
				  (size_t)(ranges[_i].end - ranges[_i].first) * PAGE + 1),
		0);
	ck_assert_uint_eq(gpu_host_address(gpu, memory, SIZE_MAX), 0);
	gpu_host_unmap(gpu, memory + ranges[_i].start, ranges[_i].length);
	gpu_release(gpu);
}
END_TEST

/* The processor reads the bytes that a GPU writes there. */
START_TEST(seen_at_the_right_place)
{
	struct gpu *gpu = hold(0);
	struct gpu_scope scope;
	uint64_t seen;

	fake->set_host_apart(true);
	is_ok(gpu_host_map(gpu, memory + 3 * PAGE, 4 * PAGE));
	is_ok(gpu_host_map(gpu, memory + 5 * PAGE, 6 * PAGE));
	for (unsigned i = 3; i < 11; i++) {
		seen = gpu_host_address(gpu, memory + i * PAGE + 7, 9);
		ck_assert_uint_ne(seen, 0);
		is_ok(gpu_enter(gpu, &scope));
		ck_assert_int_eq(cu.cuMemsetD8(seen, (unsigned char)i, 9), 0);
		gpu_leave(&scope);
		ck_assert_uint_eq(memory[i * PAGE + 6], 0);
		ck_assert_uint_eq(memory[i * PAGE + 7], i);
		ck_assert_uint_eq(memory[i * PAGE + 15], i);
		ck_assert_uint_eq(memory[i * PAGE + 16], 0);
	}
	gpu_host_unmap(gpu, memory + 5 * PAGE, 6 * PAGE);
	gpu_host_unmap(gpu, memory + 3 * PAGE, 4 * PAGE);
	gpu_release(gpu);
}
END_TEST

/* Adjacent ranges are one range for the caller, if they are one for the GPU. */
START_TEST(across_a_seam)
{
	struct gpu *gpu = hold(0);

	is_ok(gpu_host_map(gpu, memory + 2 * PAGE, PAGE));
	is_ok(gpu_host_map(gpu, memory + PAGE, PAGE));
	ck_assert_uint_ne(gpu_host_address(gpu, memory + PAGE + 1, 2 * PAGE - 1), 0);
	gpu_host_unmap(gpu, memory + 2 * PAGE, PAGE);
	ck_assert_uint_eq(gpu_host_address(gpu, memory + PAGE + 1, PAGE), 0);
	ck_assert_uint_ne(gpu_host_address(gpu, memory + PAGE + 1, PAGE - 1), 0);
	gpu_host_unmap(gpu, memory + PAGE, PAGE);
	gpu_release(gpu);
}
END_TEST

/* Any ranges, mapped and unmapped in any order by two GPUs, among some that the application has
 * registered: against counts by page. */
START_LOOP_TEST(any_ranges, 12)
{
	struct {
		unsigned gpu, first, n;
	} mapped[200];
	unsigned counts[2][PAGES] = { { 0 } }, n_mapped = 0, seed = (unsigned)_i + 1;
	struct gpu *gpus[2];

	fake->set_devices(2);
	fake->set_host_apart(_i & 1);
	gpus[0] = hold(0);
	gpus[1] = hold(1);
	ck_assert_int_eq(cu.cuCtxPushCurrent(gpus[0]->context), 0);
	for (unsigned i = 0; _i % 3 == 0 && i < PAGES; i += 9)
		ck_assert_int_eq(
			cu.cuMemHostRegister(memory + (size_t)i * PAGE, 2 * PAGE,
				CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
			0);
	for (unsigned round = 0; round < 400; round++) {
		unsigned which = (unsigned)rand_r(&seed) % 2, first, n, change = 1;
		bool is_map = n_mapped == 0 || (n_mapped < 200 && rand_r(&seed) % 2);

		first = (unsigned)rand_r(&seed) % PAGES;
		n = 1 + (unsigned)rand_r(&seed) % (PAGES - first);
		if (is_map) {
			is_ok(gpu_host_map(
				gpus[which], memory + (size_t)first * PAGE, (size_t)n * PAGE));
			mapped[n_mapped].gpu = which;
			mapped[n_mapped].first = first;
			mapped[n_mapped++].n = n;
		} else {
			unsigned at_index = (unsigned)rand_r(&seed) % n_mapped;

			which = mapped[at_index].gpu;
			first = mapped[at_index].first;
			n = mapped[at_index].n;
			mapped[at_index] = mapped[--n_mapped];
			gpu_host_unmap(
				gpus[which], memory + (size_t)first * PAGE, (size_t)n * PAGE);
			change = (unsigned)-1;
		}
		for (unsigned i = first; i < first + n; i++)
			counts[which][i] += change;
		for (unsigned i = 0; i < PAGES; i++)
			if (counts[which][i])
				ck_assert_uint_ne(gpu_host_address(gpus[which],
							  memory + (size_t)i * PAGE, PAGE),
					0);
	}
	while (n_mapped--)
		gpu_host_unmap(gpus[mapped[n_mapped].gpu],
			memory + (size_t)mapped[n_mapped].first * PAGE,
			(size_t)mapped[n_mapped].n * PAGE);
	memset(counts, 0, sizeof(counts));
	sees(gpus[0], counts[0]);
	sees(gpus[1], counts[1]);
	for (unsigned i = 0; _i % 3 == 0 && i < PAGES; i += 9)
		ck_assert_int_eq(cu.cuMemHostUnregister(memory + (size_t)i * PAGE), 0);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&(cu_context){ NULL }), 0);
	gpu_release(gpus[0]);
	gpu_release(gpus[1]);
}
END_TEST

START_TEST(registered_by_the_application)
{
	struct gpu *gpu = hold(0);
	cu_context context;

	ck_assert_int_eq(cu.cuCtxPushCurrent(gpu->context), 0);
	ck_assert_int_eq(cu.cuMemHostRegister(memory + 4 * PAGE, 3 * PAGE,
				 CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
		0);
	is_ok(gpu_host_map(gpu, memory + 2 * PAGE, 8 * PAGE));
	ck_assert_uint_ne(gpu_host_address(gpu, memory + 2 * PAGE, 8 * PAGE), 0);
	gpu_host_unmap(gpu, memory + 2 * PAGE, 8 * PAGE);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 1);
	/* It can end its own registrations, and then they are ours to register. */
	ck_assert_int_eq(cu.cuMemHostUnregister(memory + 4 * PAGE), 0);
	is_ok(gpu_host_map(gpu, memory + 2 * PAGE, 8 * PAGE));
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 1);
	gpu_host_unmap(gpu, memory + 2 * PAGE, 8 * PAGE);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&context), 0);
	gpu_release(gpu);
}
END_TEST

/* Registered for another context alone. */
START_TEST(registered_for_others)
{
	struct gpu *gpu = hold(0);
	cu_context own = own_context();

	ck_assert_int_eq(cu.cuCtxPushCurrent(own), 0);
	ck_assert_int_eq(
		cu.cuMemHostRegister(memory + PAGE, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP), 0);
	is_refused(gpu_host_map(gpu, memory, 4 * PAGE), -EBUSY, "CU_MEMHOSTREGISTER_PORTABLE");
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 1);
	ck_assert_int_eq(cu.cuMemHostUnregister(memory + PAGE), 0);
	is_ok(gpu_host_map(gpu, memory, 4 * PAGE));
	gpu_host_unmap(gpu, memory, 4 * PAGE);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	gpu_release(gpu);
}
END_TEST

/* It stays registered while one of them needs it, and the context in which it is. */
START_TEST(two_gpus_and_one_registration)
{
	struct gpu *one, *two;

	fake->set_devices(2);
	one = hold(0);
	two = hold(1);
	is_ok(gpu_host_map(one, memory, 4 * PAGE));
	is_ok(gpu_host_map(two, memory + PAGE, PAGE));
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 1);
	gpu_host_unmap(one, memory, 4 * PAGE);
	gpu_release(one);
	ck_assert_uint_ne(gpu_host_address(two, memory + PAGE, PAGE), 0);
	gpu_host_unmap(two, memory + PAGE, PAGE);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 0);
	gpu_release(two);
}
END_TEST

START_TEST(what_cannot_be_mapped)
{
	struct gpu *gpu = hold(0);

	is_refused(gpu_host_map(gpu, memory, 0), -EINVAL, "not a valid range");
	is_refused(gpu_host_map(gpu, memory, SIZE_MAX), -EINVAL, "not a valid range");
	fake->set_host_limit(4 * PAGE);
	is_ok(gpu_host_map(gpu, memory, 2 * PAGE));
	is_refused(gpu_host_map(gpu, memory, 8 * PAGE), -ENOMEM, "24576 bytes");
	ck_assert_uint_ne(gpu_host_address(gpu, memory, 2 * PAGE), 0);
	ck_assert_uint_eq(gpu_host_address(gpu, memory, 3 * PAGE), 0);
	gpu_host_unmap(gpu, memory, 8 * PAGE); /* was not mapped */
	gpu_host_unmap(gpu, memory, 2 * PAGE);
	/* There is room for the pages before those of another one, not for those behind: then
	 * everything is as before. */
	is_ok(gpu_host_map(gpu, memory + 2 * PAGE, PAGE));
	is_refused(gpu_host_map(gpu, memory, 8 * PAGE), -ENOMEM, "20480 bytes");
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 1);
	gpu_host_unmap(gpu, memory + 2 * PAGE, PAGE);
	gpu_release(gpu);
	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 0);
	gpu = hold(0);
	is_refused(gpu_host_map(gpu, memory, PAGE), -ENOTSUP, "HOST_REGISTER_SUPPORTED");
	gpu_release(gpu);
}
END_TEST

/* Any call may fail: nothing is left, and it works afterwards. */
START_TEST(each_call_fails_once)
{
	bool has_failed = true;

	for (unsigned n = 1; has_failed; n++) {
		struct gpu *gpu = NULL;
		int rc;

		ck_assert_uint_lt(n, 100);
		fake->fail_call(NULL, n, CUDA_ERROR_OUT_OF_MEMORY, 1);
		rc = gpu_hold(NULL, 0, &gpu);
		if (!rc) {
			rc = gpu_host_map(gpu, memory, 4 * PAGE);
			if (!rc)
				rc = gpu_host_map(gpu, memory + 2 * PAGE, 6 * PAGE);
			has_failed = fake->failed() != NULL;
			fake->fail_call(NULL, 0, 0, 0);
			gpu_host_unmap(gpu, memory, 4 * PAGE);
			gpu_host_unmap(gpu, memory + 2 * PAGE, 6 * PAGE);
			gpu_release(gpu);
		}
		ck_assert_str_eq(fake->leaks(), "");
		ck_assert_uint_eq(fake->context_depth(), 0);
		fake->reset();
		cuda_reset();
	}
}
END_TEST

/* Packets are looked for while other memory comes and goes. */
static atomic_bool is_over;

static void *look_up_often(void *arg)
{
	const struct gpu *gpu = arg;
	uint64_t fixed = gpu_host_address(gpu, memory + 20 * PAGE, PAGE);
	uint64_t n = 0;

	while (!atomic_load(&is_over)) {
		uint64_t seen = gpu_host_address(gpu, memory + 20 * PAGE + 3, PAGE - 3);
		uint64_t other = gpu_host_address(gpu, memory + 40 * PAGE, PAGE);

		if (seen != fixed + 3 || (other && other != (uintptr_t)memory + 40 * PAGE))
			return (void *)"a wrong address";
		n++;
	}
	return n ? NULL : (void *)"nothing was looked up";
}

START_TEST(looked_up_while_it_changes)
{
	struct gpu *gpu = hold(0);
	pthread_t thread;
	void *why;

	is_ok(gpu_host_map(gpu, memory + 20 * PAGE, PAGE));
	atomic_store(&is_over, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, look_up_often, gpu), 0);
	for (int round = 0; round < 300; round++) {
		for (unsigned i = 0; i < PAGES; i += 2)
			is_ok(gpu_host_map(gpu, memory + (size_t)i * PAGE, PAGE));
		for (unsigned i = 0; i < PAGES; i += 2)
			gpu_host_unmap(gpu, memory + (size_t)i * PAGE, PAGE);
	}
	atomic_store(&is_over, true);
	ck_assert_int_eq(pthread_join(thread, &why), 0);
	ck_assert_msg(!why, "%s", (const char *)why);
	gpu_host_unmap(gpu, memory + 20 * PAGE, PAGE);
	gpu_release(gpu);
}
END_TEST

TEST_MAIN(gpu_resources)
{
	if (!gpu_is_fake())
		return 77;
	return run_suite(all_tests(gpu_setup, gpu_teardown));
}
