/* SPDX-License-Identifier: BSD-3-Clause */
/* How Ferrule finds CUDA's driver, and its errors when there is none, an old one, or one that does
 * not work. Against the double of the driver. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>

#include "gpudirect/cuda/cuda.h"
#include "lib/base/error.h"
#include "tests/fakes/cuda/fake_libcuda.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/run_self.h"

enum { TEXT = 4096, THREADS = 8, ROUNDS = 20, SKIPPED = 77 };

static const struct fake_cuda *fake;

static void set_up(void)
{
	fake = fake_cuda_find();
	ck_assert_ptr_nonnull(fake);
	fake->reset();
	cuda_reset();
	frl_fail(-EINVAL, "nothing yet");
}

static void check_says(const char *words)
{
	ck_assert_msg(strstr(frl_last_error(), words), "it does not say \"%s\": %s", words,
		frl_last_error());
}

/* ---- is it loaded? In processes of their own. */

static int say(const char *what)
{
	puts(what);
	return EXIT_FAILURE;
}

static int run_is_loaded(void)
{
	void *library;

	if (cuda_is_loaded() || cuda_is_loaded())
		return say("true before anybody has loaded it");
	if (!dlopen("libresolv.so.2", RTLD_NOW) || cuda_is_loaded())
		return say("true, or no libresolv.so.2");
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library || !cuda_is_loaded())
		return say("false after it was loaded");
	dlclose(library);
	if (!cuda_is_loaded() || !dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD))
		return say("it could be unloaded");
	return EXIT_SUCCESS;
}

/* Ferrule's own loading counts as well. */
static int run_is_loaded_by_get(void)
{
	const struct cuda_api *cuda;

	if (cuda_is_loaded())
		return say("true before anybody has loaded it");
	if (cuda_get(&cuda) || !cuda_is_loaded())
		return say(frl_last_error());
	return EXIT_SUCCESS;
}

static int run_none(void)
{
	const struct cuda_api *cuda = NULL;

	if (dlopen("libcuda.so.1", RTLD_NOW))
		return SKIPPED; /* a driver is installed */
	if (cuda_is_loaded() || cuda_get(&cuda) != -ENOSYS || cuda_look(&cuda) != -ENOSYS || cuda)
		return say("it has found something");
	puts(frl_last_error());
	return EXIT_SUCCESS;
}

/* Assumptions about any driver, NVIDIA's as well. */
static int run_any_driver(void)
{
	const struct cuda_api *cuda;
	unsigned int type;
	int n = 0;

	if (cuda_look(&cuda))
		return say(frl_last_error());
	if (cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		    (cu_deviceptr)(uintptr_t)&type) != CUDA_ERROR_NOT_INITIALIZED)
		return say("looking has initialized it, or it does not say that it is not");
	if (cuda_get(&cuda))
		return say(frl_last_error());
	if (cuda->cuDeviceGetCount(&n) != CUDA_SUCCESS || n < 1)
		return say("devices cannot be counted");
	if (cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		    (cu_deviceptr)(uintptr_t)&type) == CUDA_ERROR_NOT_INITIALIZED)
		return say("it says that it is not initialized");
	return EXIT_SUCCESS;
}

static const struct {
	const char *argument;
	int (*run)(void);
} runs[] = {
	{ "is-loaded", run_is_loaded },
	{ "is-loaded-by-get", run_is_loaded_by_get },
	{ "none", run_none },
	{ "any-driver", run_any_driver },
};

START_TEST(loaded_is_noticed)
{
	const char *folder = getenv("LD_LIBRARY_PATH");
	char text[TEXT];

	ck_assert_msg(
		run_self("is-loaded", "LD_LIBRARY_PATH", folder, text, TEXT) == 0, "%s", text);
	ck_assert_msg(run_self("is-loaded-by-get", "LD_LIBRARY_PATH", folder, text, TEXT) == 0,
		"%s", text);
}
END_TEST

START_TEST(any_driver)
{
	char text[TEXT];

	ck_assert_msg(run_self("any-driver", "LD_LIBRARY_PATH", getenv("LD_LIBRARY_PATH"), text,
			      TEXT) == 0,
		"%s", text);
}
END_TEST

START_TEST(machine_without_cuda)
{
	char text[TEXT];
	int status = run_self("none", "LD_LIBRARY_PATH", NULL, text, TEXT);

	if (status == SKIPPED)
		return;
	ck_assert_msg(status == 0, "%d: %s", status, text);
	ck_assert_msg(strstr(text, "no CUDA here: libcuda.so.1: ") &&
			strstr(text, "install NVIDIA's driver"),
		"%s", text);
}
END_TEST

/* ---- versions and functions */

START_TEST(all_functions_are_found)
{
	const struct cuda_api *cuda = NULL;

	ck_assert_int_eq(cuda_get(&cuda), 0);
	ck_assert_int_eq(cuda->version, 13000);
#define CUDA_CALL(name, version, args) ck_assert_msg(cuda->name != NULL, #name);
#include "gpudirect/cuda/cuda_calls.inc"
#undef CUDA_CALL
	ck_assert_str_eq(frl_last_error(), "nothing yet");
}
END_TEST

static const struct {
	int version;
	int err;
	bool has_id, has_dma_buf;
	const char *words;
} version_rows[] = {
	{ 4000, -ENOSYS, false, false, "driver is that of CUDA 4.0; Ferrule needs" },
	{ 10020, -ENOSYS, false, false, "CUDA 10.2" },
	{ 11020, -ENOSYS, false, false, "CUDA 11.2; Ferrule needs the driver of CUDA 11.3" },
	{ 11030, 0, false, false, NULL },
	{ 11060, 0, false, false, NULL },
	{ 11070, 0, false, true, NULL },
	{ 11080, 0, false, true, NULL },
	{ 12000, 0, true, true, NULL },
	{ 13000, 0, true, true, NULL },
	{ 99990, 0, true, true, NULL },
};

START_TEST(versions)
{
	const struct cuda_api *cuda = NULL;

	fake->set_version(version_rows[_i].version);
	ck_assert_int_eq(cuda_get(&cuda), version_rows[_i].err);
	if (version_rows[_i].err) {
		ck_assert_ptr_null(cuda);
		check_says(version_rows[_i].words);
		/* The kind of the library does not change. */
		fake->set_version(13000);
		ck_assert_int_eq(cuda_get(&cuda), version_rows[_i].err);
		ck_assert_int_eq(cuda_look(&cuda), version_rows[_i].err);
		check_says(version_rows[_i].words);
		ck_assert_uint_eq(fake->calls("cuInit"), 0);
		return;
	}
	ck_assert_int_eq(cuda->version, version_rows[_i].version);
	ck_assert_int_eq(cuda->cuCtxGetId != NULL, version_rows[_i].has_id);
	ck_assert_int_eq(cuda->cuMemGetHandleForAddressRange != NULL, version_rows[_i].has_dma_buf);
	ck_assert_ptr_nonnull(cuda->cuLaunchKernel);
}
END_TEST

static const struct {
	const char *name;
	bool is_optional;
} function_rows[] = {
#define CUDA_CALL(name, version, args)     { #name, false },
#define CUDA_OPTIONAL(name, version, args) { #name, true },
#include "gpudirect/cuda/cuda_calls.inc"
#undef CUDA_OPTIONAL
#undef CUDA_CALL
};

START_TEST(missing_functions)
{
	const char *name = function_rows[_i].name;
	const struct cuda_api *cuda = NULL;
	unsigned missing = 0;

	fake->set_missing(name);
	if (function_rows[_i].is_optional) {
		ck_assert_int_eq(cuda_get(&cuda), 0);
#define CUDA_CALL(function, version, args)         \
	if (!cuda->function) {                     \
		ck_assert_str_eq(#function, name); \
		missing++;                         \
	}
#include "gpudirect/cuda/cuda_calls.inc"
#undef CUDA_CALL
		ck_assert_uint_eq(missing, 1);
		return;
	}
	ck_assert_int_eq(cuda_get(&cuda), -ENOSYS);
	check_says(name);
	check_says("CUDA 13.0, but has no ");
	check_says("update NVIDIA's driver");
	ck_assert_int_eq(cuda_look(&cuda), -ENOSYS);
	ck_assert_ptr_null(cuda);
}
END_TEST

START_TEST(a_library_that_cannot_tell_its_version)
{
	const struct cuda_api *cuda = NULL;

	fake->fail_call("cuDriverGetVersion", 1, CUDA_ERROR_STUB_LIBRARY, 1);
	ck_assert_int_eq(cuda_get(&cuda), -ENOSYS);
	check_says("cuDriverGetVersion: CUDA_ERROR_STUB_LIBRARY (34): ");
	check_says("stubs");
	ck_assert_ptr_null(cuda);
}
END_TEST

/* ---- cuInit() */

static const struct {
	cu_result result;
	int err;
	bool is_kept;
	const char *words;
} init_rows[] = {
	{ CUDA_ERROR_NO_DEVICE, -ENODEV, false, "CUDA_VISIBLE_DEVICES" },
	{ CUDA_ERROR_INVALID_DEVICE, -ENODEV, false, "CUDA_VISIBLE_DEVICES" },
	{ CUDA_ERROR_STUB_LIBRARY, -ENOSYS, true, "LD_LIBRARY_PATH" },
	{ CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, -ENOTSUP, true, "update" },
	{ CUDA_ERROR_DEVICE_NOT_LICENSED, -EPERM, true, "license" },
	{ CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, -ENODEV, true, "reboot" },
	{ CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, -ENODEV, true, "compatibility package" },
	{ CUDA_ERROR_SYSTEM_NOT_READY, -EBUSY, false, "nvidia-fabricmanager" },
	{ CUDA_ERROR_DEVICE_UNAVAILABLE, -EBUSY, false, "nvidia-smi -c DEFAULT" },
	{ CUDA_ERROR_MPS_CONNECTION_FAILED, -EBUSY, false, "CUDA_MPS_PIPE_DIRECTORY" },
	{ CUDA_ERROR_MPS_SERVER_NOT_READY, -EBUSY, false, "nvidia-cuda-mps-control" },
	{ CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, -EBUSY, false, "clients" },
	{ CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, -EBUSY, false, "connections" },
	{ CUDA_ERROR_MPS_RPC_FAILURE, -EIO, false, "MPS" },
	{ CUDA_ERROR_NOT_INITIALIZED, -ENODEV, false, "fork()" },
	{ CUDA_ERROR_OPERATING_SYSTEM, -EIO, false, "ulimit -n" },
	{ CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM, false, "memory" },
	{ CUDA_ERROR_UNKNOWN, -EIO, false, "nvidia-uvm" },
	{ 4242, -EIO, false, "unknown error (4242)" },
};

START_TEST(cuinit_fails)
{
	const struct cuda_api *cuda = NULL;
	bool is_kept = init_rows[_i].is_kept;

	fake->fail_call("cuInit", 1, init_rows[_i].result, 1);
	ck_assert_int_eq(cuda_get(&cuda), init_rows[_i].err);
	check_says("cuInit: ");
	check_says(cuda_result_name(init_rows[_i].result));
	check_says(init_rows[_i].words);
	ck_assert_ptr_null(cuda);
	frl_fail(-EINVAL, "nothing yet");
	ck_assert_int_eq(cuda_get(&cuda), is_kept ? init_rows[_i].err : 0);
	ck_assert_uint_eq(fake->calls("cuInit"), is_kept ? 1 : 2);
	if (is_kept)
		check_says(init_rows[_i].words);
	/* Queries of pointers work all the same. */
	ck_assert_int_eq(cuda_look(&cuda), 0);
	ck_assert_ptr_nonnull(cuda);
}
END_TEST

START_TEST(looking_initializes_nothing)
{
	const struct cuda_api *cuda = NULL;
	unsigned int type;

	ck_assert_ptr_null(cuda_if_looked());
	ck_assert_int_eq(cuda_look(&cuda), 0);
	ck_assert_ptr_eq(cuda_if_looked(), cuda);
	ck_assert_int_eq(cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				 (cu_deviceptr)(uintptr_t)&type),
		CUDA_ERROR_NOT_INITIALIZED);
	ck_assert_uint_eq(fake->calls("cuInit"), 0);
	ck_assert_int_eq(cuda_get(&cuda), 0);
	ck_assert_int_eq(cuda_get(&cuda), 0);
	ck_assert_uint_eq(fake->calls("cuInit"), 1);
}
END_TEST

static pthread_barrier_t all_there;

static void *get_main(void *arg)
{
	const struct cuda_api *cuda = NULL;

	pthread_barrier_wait(&all_there);
	if (cuda_is_loaded() && cuda_get(&cuda) == 0 && cuda->cuLaunchKernel)
		*(bool *)arg = true;
	return NULL;
}

START_TEST(many_threads_at_once)
{
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t threads[THREADS];
		bool is_done[THREADS] = { false };

		fake->reset();
		cuda_reset();
		pthread_barrier_init(&all_there, NULL, THREADS);
		for (int i = 0; i < THREADS; i++)
			ck_assert_int_eq(
				pthread_create(&threads[i], NULL, get_main, &is_done[i]), 0);
		for (int i = 0; i < THREADS; i++) {
			pthread_join(threads[i], NULL);
			ck_assert(is_done[i]);
		}
		pthread_barrier_destroy(&all_there);
		ck_assert_uint_eq(fake->calls("cuInit"), 1);
	}
}
END_TEST

/* ---- processes that were forked */

/* Runs in a child; its exit status: 0: as it should be. */
static int in_child(int (*run)(void))
{
	int status = -1;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(run());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static int child_of_ferrule(void)
{
	const struct cuda_api *cuda;
	cu_result result;
	int n;

	if (cuda_get(&cuda))
		return 1;
	result = cuda->cuDeviceGetCount(&n);
	if (result != CUDA_ERROR_NOT_INITIALIZED)
		return 2;
	if (cuda_fail(result, "cuDeviceGetCount", NULL) != -ENODEV)
		return 3;
	return strstr(frl_last_error(), "fork()") ? 0 : 4;
}

static int child_of_application(void)
{
	const struct cuda_api *cuda;

	if (cuda_get(&cuda) != -ENODEV)
		return 1;
	return strstr(frl_last_error(), "fork()") ? 0 : 2;
}

START_TEST(forked)
{
	const struct cuda_api *cuda;

	ck_assert_int_eq(cuda_get(&cuda), 0);
	ck_assert_int_eq(in_child(child_of_ferrule), 0);
	cuda_reset(); /* now it was somebody else's cuInit() */
	ck_assert_int_eq(in_child(child_of_application), 0);
}
END_TEST

/* ---- results */

static const struct {
	cu_result result;
	const char *name;
} result_rows[] = {
#define CUDA_RESULT(name, number) { number, #name },
#include "gpudirect/cuda/cuda_results.inc"
#undef CUDA_RESULT
};

static bool is_one_of(int err)
{
	static const int errors[] = { -ENOMEM, -EINVAL, -ENODEV, -ENOSYS, -EPERM, -ENOTSUP, -EBUSY,
		-EIO };

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i] == err)
			return true;
	return false;
}

START_TEST(failures_have_texts)
{
	const struct cuda_api *cuda;
	char expected[128];

	ck_assert_str_eq(cuda_result_name(result_rows[_i].result), result_rows[_i].name);
	snprintf(expected, sizeof(expected), "trying: cuTest: %s (%d)", result_rows[_i].name,
		result_rows[_i].result);
	ck_assert(is_one_of(cuda_fail(result_rows[_i].result, "cuTest", "trying")));
	ck_assert_msg(
		strncmp(frl_last_error(), expected, strlen(expected)) == 0, "%s", frl_last_error());
	ck_assert_uint_lt(strlen(frl_last_error()), 400);
	/* Without an error of Ferrule the driver's text is used. */
	ck_assert_int_eq(cuda_look(&cuda), 0);
	cuda_fail(result_rows[_i].result, "cuTest", NULL);
	ck_assert_msg(strncmp(frl_last_error(), expected + strlen("trying: "),
			      strlen(expected) - strlen("trying: ")) == 0 &&
			strstr(frl_last_error(), "): "),
		"%s", frl_last_error());
}
END_TEST

START_TEST(unknown_results)
{
	ck_assert_str_eq(cuda_result_name(4242), "unknown error");
	ck_assert_int_eq(cuda_fail(4242, "cuTest", NULL), -EIO);
	ck_assert_str_eq(frl_last_error(), "cuTest: unknown error (4242)");
	ck_assert(!cuda_is_fatal(4242));
	ck_assert(!cuda_is_fatal(CUDA_SUCCESS));
}
END_TEST

START_TEST(fatal_results)
{
	/* Results after which cuda.h says that the process is in an inconsistent state, and results
	 * after which the context, the device's connection or CUDA itself is lost. */
	static const int fatal[] = { 3, 4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717,
		718, 719, 721, 806, 810, 911 };
	size_t n = 0;

	for (int result = 0; result < 2000; result++) {
		if (n < sizeof(fatal) / sizeof(fatal[0]) && fatal[n] == result) {
			ck_assert_msg(cuda_is_fatal(result), "%d is not", result);
			n++;
		} else {
			ck_assert_msg(!cuda_is_fatal(result), "%d is", result);
		}
	}
}
END_TEST

static TCase *make_tests(void)
{
	TCase *tests = tcase_create("double");

	tcase_add_checked_fixture(tests, set_up, NULL);
	tcase_add_test(tests, all_functions_are_found);
	tcase_add_loop_test(tests, versions, 0, sizeof(version_rows) / sizeof(version_rows[0]));
	tcase_add_loop_test(
		tests, missing_functions, 0, sizeof(function_rows) / sizeof(function_rows[0]));
	tcase_add_test(tests, a_library_that_cannot_tell_its_version);
	tcase_add_loop_test(tests, cuinit_fails, 0, sizeof(init_rows) / sizeof(init_rows[0]));
	tcase_add_test(tests, looking_initializes_nothing);
	tcase_add_test(tests, many_threads_at_once);
	tcase_add_test(tests, forked);
	tcase_add_loop_test(
		tests, failures_have_texts, 1, sizeof(result_rows) / sizeof(result_rows[0]));
	tcase_add_test(tests, unknown_results);
	tcase_add_test(tests, fatal_results);
	return tests;
}

/* Tests without the double's controls. */
static TCase *make_any_tests(void)
{
	TCase *tests = tcase_create("any");

	tcase_add_test(tests, loaded_is_noticed);
	tcase_add_test(tests, any_driver);
	tcase_add_test(tests, machine_without_cuda);
	return tests;
}

TEST_MAIN(cuda)
{
	Suite *suite;

	for (size_t i = 0; argc > 1 && i < sizeof(runs) / sizeof(runs[0]); i++)
		if (strcmp(argv[1], runs[i].argument) == 0)
			return runs[i].run();
	if (!dlopen("libcuda.so.1", RTLD_NOW)) {
		fprintf(stderr, "skipped: there is no libcuda.so.1\n");
		return SKIPPED;
	}
	suite = suite_create("cuda");
	suite_add_tcase(suite, make_any_tests());
	if (fake_cuda_find())
		suite_add_tcase(suite, make_tests());
	else
		fprintf(stderr, "left out: what needs the double of the driver\n");
	return run_suite(suite);
}
