/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/gpu_fixture.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include <sys/mman.h>

#include "lib/base/error.h"

const struct fake_cuda *fake;
uint8_t *memory;

bool gpu_is_fake(void)
{
	if (fake_cuda_find())
		return true;
	printf("skipped: libcuda.so.1 is not the double of the tests\n");
	return false;
}

void gpu_setup(void)
{
	const char *lacks;

	fake = fake_cuda_find();
	ck_assert_ptr_nonnull(fake);
	ck_assert_msg(driver_load(&cu, &lacks), "the double lacks %s", lacks);
	fake->reset();
	cuda_forget();
	memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
}

void gpu_teardown(void)
{
	ck_assert_str_eq(fake->leaks(), "");
	ck_assert_uint_eq(fake->context_depth(), 0);
	ck_assert_int_eq(fake->capture_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL);
	munmap(memory, (size_t)PAGES * PAGE);
	fake->reset();
	cuda_forget();
}

void is_ok(int rc)
{
	ck_assert_msg(rc == 0, "%d: %s", rc, frl_last_error());
}

void is_refused(int rc, int want, const char *word)
{
	ck_assert_msg(rc == want, "%d instead of %d: %s", rc, want, frl_last_error());
	ck_assert_msg(strstr(frl_last_error(), word), "no '%s' in '%s'", word, frl_last_error());
}

struct gpu *hold(int ordinal)
{
	struct gpu *gpu = NULL;

	is_ok(gpu_hold(NULL, ordinal, &gpu));
	return gpu;
}

cu_context own_context(void)
{
	cu_context context;

	ck_assert_int_eq(cu.cuInit(0), 0);
	ck_assert_int_eq(cu.cuCtxCreate(&context, 0, 0), 0);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&context), 0);
	return context;
}

cu_deviceptr allocate(cu_context context, size_t size)
{
	cu_deviceptr at = 0;

	ck_assert_int_eq(cu.cuCtxPushCurrent(context), 0);
	ck_assert_int_eq(cu.cuMemAlloc(&at, size), 0);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&context), 0);
	return at;
}

void release(cu_context context, cu_deviceptr at)
{
	ck_assert_int_eq(cu.cuCtxPushCurrent(context), 0);
	ck_assert_int_eq(cu.cuMemFree(at), 0);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&context), 0);
}

void *at(cu_deviceptr address)
{
	return (void *)(uintptr_t)address;
}
