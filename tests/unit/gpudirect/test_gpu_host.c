/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory that a GPU reaches, when contexts end, and when the driver does not release it: on
 * the double of the driver. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "gpudirect/host.h"
#include "tests/fixtures/gpu_fixture.h"
#include "tests/fixtures/program.h"

/* The GPU writes there, and the processor reads it. */
static void reaches(struct gpu *gpu, uint8_t *at_byte)
{
	static uint8_t value;
	uint64_t seen = gpu_host_address(gpu, at_byte, 1);
	struct gpu_scope scope;

	ck_assert_uint_ne(seen, 0);
	is_ok(gpu_enter(gpu, &scope));
	ck_assert_int_eq(cu.cuMemsetD8(seen, ++value, 1), 0);
	gpu_leave(&scope);
	ck_assert_uint_eq(*at_byte, value);
}

/* The application is done with the context that asked first, and ends it: others go on. */
START_LOOP_TEST(one_context_ends_and_others_stay, 4)
{
	cu_context own = own_context(), other = own_context();
	struct gpu *first = NULL, *second = NULL;

	fake->set_host_apart(_i & 1);
	is_ok(gpu_hold(own, 0, &first));
	is_ok(gpu_hold(_i & 2 ? other : NULL, 0, &second));
	is_ok(gpu_host_map(first, memory, 4 * PAGE));
	is_ok(gpu_host_map(second, memory + PAGE, PAGE));
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 1);
	gpu_host_unmap(first, memory, 4 * PAGE);
	gpu_release(first);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 1);
	reaches(second, memory + PAGE + 7);
	is_ok(gpu_host_map(second, memory + PAGE, 2 * PAGE));
	reaches(second, memory + 2 * PAGE + 7);
	gpu_host_unmap(second, memory + PAGE, 2 * PAGE);
	gpu_host_unmap(second, memory + PAGE, PAGE);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 0);
	gpu_release(second);
	ck_assert_int_eq(cu.cuCtxDestroy(other), 0);
}
END_TEST

/* It ends while it has memory mapped: that is of no harm to the others either. */
START_TEST(context_ends_too_early)
{
	cu_context own = own_context();
	struct gpu *first = NULL, *second = hold(0);

	is_ok(gpu_hold(own, 0, &first));
	is_ok(gpu_host_map(first, memory, 4 * PAGE));
	is_ok(gpu_host_map(second, memory, PAGE));
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	reaches(second, memory);
	gpu_host_unmap(first, memory, 4 * PAGE);
	gpu_release(first);
	reaches(second, memory);
	gpu_host_unmap(second, memory, PAGE);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 0);
	gpu_release(second);
}
END_TEST

/* The earlier registration is gone, though it has not been released. */
START_TEST(after_a_reset)
{
	struct gpu *before = hold(0), *after;

	is_ok(gpu_host_map(before, memory, 4 * PAGE));
	ck_assert_int_eq(cu.cuDevicePrimaryCtxReset(0), 0);
	after = hold(0);
	ck_assert_ptr_ne(before, after);
	is_refused(gpu_host_map(after, memory + PAGE, PAGE), -EBUSY, "frl_mr_cache_trim");
	ck_assert_uint_eq(gpu_host_address(after, memory + PAGE, 1), 0);
	/* Other memory is not concerned. */
	is_ok(gpu_host_map(after, memory + 8 * PAGE, PAGE));
	gpu_host_unmap(after, memory + 8 * PAGE, PAGE);
	gpu_host_unmap(before, memory, 4 * PAGE);
	gpu_release(before);
	is_ok(gpu_host_map(after, memory, 4 * PAGE));
	reaches(after, memory + 3 * PAGE);
	gpu_host_unmap(after, memory, 4 * PAGE);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 0);
	gpu_release(after);
}
END_TEST

/* Other memory may be there by then: the registration is ended first, or nothing is used. */
START_TEST(driver_does_not_let_go)
{
	struct gpu *gpu = hold(0);

	is_ok(gpu_host_map(gpu, memory, 4 * PAGE));
	fake->fail_call("cuMemHostUnregister", 1, CUDA_ERROR_UNKNOWN, 1);
	gpu_host_unmap(gpu, memory, 4 * PAGE);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 1);
	ck_assert_uint_eq(gpu_host_address(gpu, memory, 1), 0);
	is_ok(gpu_host_map(gpu, memory + 2 * PAGE, 4 * PAGE));
	ck_assert_uint_eq(gpu_host_address(gpu, memory, 1), 0);
	gpu_host_unmap(gpu, memory + 2 * PAGE, 4 * PAGE);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 0);
	is_ok(gpu_host_map(gpu, memory, 4 * PAGE));
	fake->fail_call("cuMemHostUnregister", 1, CUDA_ERROR_UNKNOWN, 2);
	gpu_host_unmap(gpu, memory, 4 * PAGE);
	is_refused(gpu_host_map(gpu, memory + 3 * PAGE, 4 * PAGE), -EBUSY, "old registration");
	ck_assert_uint_eq(gpu_host_address(gpu, memory + 3 * PAGE, 1), 0);
	is_ok(gpu_host_map(gpu, memory, 4 * PAGE));
	reaches(gpu, memory);
	gpu_host_unmap(gpu, memory, 4 * PAGE);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 0);
	gpu_release(gpu);
}
END_TEST

TEST_MAIN(gpu_host)
{
	if (!gpu_is_fake())
		return 77;
	return run_suite(all_tests(gpu_setup, gpu_teardown));
}
