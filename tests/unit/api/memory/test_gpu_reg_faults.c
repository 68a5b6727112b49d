/* SPDX-License-Identifier: BSD-3-Clause */
/* Each call of the driver, and each of libibverbs, fails once while GPU memory is registered,
 * flushed and deregistered: it is reported, nothing is left, and the next try works. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixtures/gpu_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/verbs_fixture.h"

enum { REMOTE = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, MOST_CALLS = 200 };

static struct frl_device *device;
static struct frl_pd *pd;
static cu_context own;

/* The possible failures, and their results. */
static const cu_result results[] = { CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE,
	CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_UNKNOWN,
	CUDA_ERROR_ILLEGAL_ADDRESS };

static void open_on(bool is_hardware)
{
	gpu_setup();
	/* A flush is called for. */
	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
		CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE);
	if (is_hardware)
		verbs_plug(&(struct verbs_wants){ 0 });
	if (is_hardware)
		verbs_ok(verbs_open("verbs:one", &device));
	else
		verbs_ok(frl_device_open(NULL, &device));
	verbs_ok(frl_pd_create(device, &pd));
	own = own_context();
}

static void close_it(void)
{
	verbs_ok(frl_pd_destroy(pd));
	verbs_ok(frl_device_close(device));
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
}

static void open_verbs(void)
{
	open_on(true);
}

static void close_verbs(void)
{
	close_it();
	ck_assert_str_eq(fake_verbs_leaks(), "");
	fake_verbs_reset();
	gpu_teardown();
}

static void open_soft(void)
{
	open_on(false);
}

static void close_soft(void)
{
	close_it();
	gpu_teardown();
}

/* Returns true if all of it worked. */
static bool use(cu_deviceptr address)
{
	struct frl_mr *mr = NULL;
	int rc = frl_reg_mr(pd, at(address + 100), 5000, REMOTE, &mr);

	if (rc) {
		ck_assert_str_ne(frl_last_error(), "");
		ck_assert_ptr_null(mr);
		return false;
	}
	rc = frl_mr_flush(mr);
	verbs_ok(frl_dereg_mr(mr));
	return rc == 0;
}

/* State that must be the same after it as before. */
static const enum fake_cuda_kind kinds[] = { FAKE_CUDA_ALLOCATION, FAKE_CUDA_HOST,
	FAKE_CUDA_REGISTRATION, FAKE_CUDA_RETAIN, FAKE_CUDA_STREAM, FAKE_CUDA_EVENT,
	FAKE_CUDA_MODULE };

/* An object stays if the driver does not end it, or does not allow it. */
static bool is_an_end(const char *function)
{
	static const char *const endings[] = { "Destroy", "Release", "Unload", "Free",
		"PushCurrent" };

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
		if (function && strstr(function, endings[i]))
			return true;
	return false;
}

static void fail_each_call(cu_result result)
{
	cu_deviceptr address = allocate(own, 4 * MIB);
	unsigned n_failed = 0, left[ROWS(kinds)] = { 0 };
	const char *failed;

	/* Detected properties of the driver are kept, and so is a failed detection. */
	ck_assert_msg(use(address), "%s", frl_last_error());
	left[0] = 1;
	for (unsigned n = 1; n < MOST_CALLS; n++) {
		fake->fail_call(NULL, n, result, 1);
		use(address);
		failed = fake->failed();
		if (failed)
			n_failed++;
		fake->fail_call(NULL, 0, 0, 0);
		ck_assert_uint_eq(fake->context_depth(), 0);
		ck_assert_int_eq(fake->capture_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL);
		ck_assert_uint_eq(fake->live(FAKE_CUDA_FD), 0);
		ck_assert_msg(use(address), "after %s: %s", failed, frl_last_error());
		for (unsigned i = 0; i < ROWS(kinds); i++) {
			unsigned live = fake->live(kinds[i]);

			ck_assert_msg(live <= left[i] || is_an_end(failed), "after %s: %s", failed,
				fake->leaks());
			left[i] = live;
		}
	}
	ck_assert_uint_gt(n_failed, 3);
	release(own, address);
	/* Objects that the driver did not end go with the context. */
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	fake->reset();
	cuda_reset();
	own = own_context();
}

START_TEST(driver)
{
	fail_each_call(results[_i]);
}
END_TEST

START_TEST(libibverbs)
{
	static const int errors[] = { ENOMEM, EINVAL, EOPNOTSUPP, EIO };
	cu_deviceptr address = allocate(own, 4 * MIB);
	unsigned n_failed = 0;

	for (int n = 1; n < 20; n++) {
		fake_verbs_fail_nth_made(n, errors[_i]);
		n_failed += !use(address);
		fake_verbs_fail_nth_made(0, 0);
		ck_assert_uint_eq(fake->live(FAKE_CUDA_FD), 0);
		ck_assert_msg(use(address), "%s", frl_last_error());
		ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MR), 0);
	}
	ck_assert_uint_gt(n_failed, 0);
	release(own, address);
}
END_TEST

/* An application whose memory cannot be pinned gets the requested size. */
START_TEST(no_memory_to_pin)
{
	cu_deviceptr address = allocate(own, 4 * MIB);
	struct frl_mr *mr = NULL;

	fake->set_host_limit(100000);
	verbs_refused(frl_reg_mr(pd, at(address), 5000, REMOTE, &mr), -ENOMEM, "bytes of host");
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 0);
	fake->set_host_limit(UINT64_MAX);
	ck_assert_msg(use(address), "%s", frl_last_error());
	release(own, address);
}
END_TEST

TEST_MAIN(gpu_reg_faults)
{
	Suite *suite = suite_create("gpu_reg_faults");
	TCase *verbs = tcase_create("verbs"), *soft = tcase_create("software");

	if (!gpu_is_fake())
		return 77;
	tcase_add_checked_fixture(verbs, open_verbs, close_verbs);
	tcase_add_loop_test(verbs, driver, 0, ROWS(results));
	tcase_add_loop_test(verbs, libibverbs, 0, 4);
	suite_add_tcase(suite, verbs);
	tcase_add_checked_fixture(soft, open_soft, close_soft);
	tcase_add_loop_test(soft, driver, 0, ROWS(results));
	tcase_add_test(soft, no_memory_to_pin);
	suite_add_tcase(suite, soft);
	return run_suite_unforked(suite);
}
