/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/unit/gpudirect/cuda_fixture.h"
#include "tests/fixtures/program.h"

const struct fake_cuda *cuda_fake;
cu_context cuda_context;

const char *cuda_name(cu_result result)
{
	const char *name = NULL;

	return cu.cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "?";
}

void cuda_setup(void)
{
	if (cuda_fake)
		cuda_fake->reset();
	ck_cu_ok(cu.cuInit(0));
	ck_cu_ok(cu.cuDevicePrimaryCtxRetain(&cuda_context, 0));
	ck_cu_ok(cu.cuCtxPushCurrent(cuda_context));
}

void cuda_teardown(void)
{
	ck_cu_ok(cu.cuCtxPopCurrent(NULL));
	if (cuda_fake) {
		ck_assert_str_eq(cuda_fake->leaks(), "1 retained primary context");
		ck_assert_uint_eq(cuda_fake->context_depth(), 0);
	}
	ck_cu_ok(cu.cuDevicePrimaryCtxRelease(0));
}

static int run(Suite *suite, bool wants_double)
{
	const char *lacks;

	if (!driver_load(&cu, &lacks)) {
		printf("skipped: libcuda.so.1 %s %s\n", lacks ? "lacks" : "cannot be loaded",
			lacks ? lacks : "here");
		return TEST_SKIPPED;
	}
	cuda_fake = fake_cuda_find();
	if (wants_double && !cuda_fake) {
		printf("skipped: this libcuda.so.1 is not the double\n");
		return TEST_SKIPPED;
	}
	printf("running on %s\n", cuda_fake ? "the double of CUDA's driver" : "a GPU");
	return run_suite_unforked(suite);
}

int cuda_main(Suite *suite)
{
	return run(suite, false);
}

int cuda_double_main(Suite *suite)
{
	return run(suite, true);
}

void *cuda_pages(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	memset(at, 1, size);
	return at;
}

void cuda_nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

void cuda_gate(void *data)
{
	struct cuda_gate *gate = data;

	atomic_store(&gate->is_reached, true);
	while (!atomic_load(&gate->is_open))
		cuda_nap();
}

void cuda_gate_reached(struct cuda_gate *gate)
{
	while (!atomic_load(&gate->is_reached))
		cuda_nap();
}

void cuda_count(void *count)
{
	atomic_fetch_add((atomic_int *)count, 1);
}
