/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Assumptions of Ferrule, and of the double of CUDA's driver, about the driver: the library,
 * contexts and memory. The same binary runs on a GPU and on the double.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/gpudirect/cuda_fixture.h"
#include "tests/fixtures/program.h"

enum { PAGE = CUDA_FIXTURE_PAGE, SIZE = 4 << 20 };

/* ---- the library */

START_TEST(procs)
{
	cu_get_proc_address_v2 get;
	cu_result (*count)(int *) = NULL;
	cu_proc_status status = -1;
	int version, n = -1;
	void *at = &n;

	*(void **)(void *)&get = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
	ck_assert_ptr_nonnull(get);
	ck_cu_ok(cu.cuDriverGetVersion(&version));
	ck_assert_int_ge(version, 11030);
	ck_cu_ok(get("cuDeviceGetCount", (void **)(void *)&count, 2000, 0, &status));
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SUCCESS);
	ck_cu_ok(count(&n));
	ck_assert_int_ge(n, 1);
	/* For any result, there is no such function. */
	get("cuNoSuchFunction", &at, version, 0, &status);
	ck_assert_ptr_null(at);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	/* Base names only. */
	at = &n;
	get("cuMemAlloc_v2", &at, version, 0, &status);
	ck_assert_ptr_null(at);
	at = &n;
	get("cuMemHostRegister", &at, 2000, 0, &status);
	ck_assert_int_ne(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	ck_assert(at != (void *)cu.cuMemHostRegister);
	ck_cu(get("cuInit", &at, version + 1000, 0, &status), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(devices)
{
	cu_uuid uuid, again;
	cu_device device;
	size_t bytes = 0;
	char text[64];
	int n, value;

	ck_cu_ok(cu.cuDeviceGetCount(&n));
	ck_cu(cu.cuDeviceGet(&device, n), CUDA_ERROR_INVALID_DEVICE);
	ck_cu(cu.cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
	ck_cu_ok(cu.cuDeviceGet(&device, 0));
	ck_cu_ok(cu.cuDeviceGetName(text, sizeof(text), device));
	ck_assert_int_gt(strlen(text), 0);
	ck_cu_ok(cu.cuDeviceGetPCIBusId(text, sizeof(text), device));
	ck_assert_int_eq(strlen(text), 12);
	ck_cu_ok(cu.cuDeviceGetUuid(&uuid, device));
	ck_cu_ok(cu.cuDeviceGetUuid(&again, device));
	ck_assert_mem_eq(&uuid, &again, sizeof(uuid));
	ck_cu_ok(cu.cuDeviceTotalMem(&bytes, device));
	ck_assert_uint_gt(bytes, 64u << 20);
	ck_cu_ok(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device));
	ck_assert_int_eq(value, 1);
	ck_cu(cu.cuDeviceGetAttribute(&value, 9999, device), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* The driver reports how it loads modules, and CUDA_MODULE_LOADING decides. */
START_TEST(loading_mode)
{
	const char *wanted = getenv("CUDA_MODULE_LOADING");
	cu_module_loading_mode mode = 0;

	ck_cu_ok(cu.cuModuleGetLoadingMode(&mode));
	ck_assert(mode == CU_MODULE_EAGER_LOADING || mode == CU_MODULE_LAZY_LOADING);
	if (wanted && strcmp(wanted, "EAGER") == 0)
		ck_assert_int_eq(mode, CU_MODULE_EAGER_LOADING);
}
END_TEST

START_TEST(names)
{
	const char *name = NULL;

	ck_cu_ok(cu.cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
	ck_assert_str_eq(name, "CUDA_ERROR_OUT_OF_MEMORY");
	ck_cu_ok(cu.cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &name));
	ck_assert_ptr_nonnull(name);
	ck_cu(cu.cuGetErrorName(4711, &name), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* ---- contexts */

START_TEST(no_context)
{
	cu_deviceptr address;
	cu_stream stream;
	cu_context now;
	cu_event event;
	void *host = cuda_pages(PAGE);
	size_t size;

	ck_cu_ok(cu.cuCtxPopCurrent(&now));
	ck_assert_ptr_eq(now, cuda_context);
	ck_cu_ok(cu.cuCtxGetCurrent(&now));
	ck_assert_ptr_null(now);
	ck_cu(cu.cuMemAlloc(&address, SIZE), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu(cu.cuMemHostRegister(host, PAGE, 0), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu(cu.cuMemAllocHost(&host, PAGE), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu(cu.cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu(cu.cuEventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu(cu.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu(cu.cuMemGetInfo(&size, &size), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu(cu.cuCtxPopCurrent(&now), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu_ok(cu.cuCtxPushCurrent(cuda_context));
	munmap(host, PAGE);
}
END_TEST

START_TEST(primary)
{
	unsigned long long id, id_again;
	cu_context again;
	cu_device device;
	unsigned flags;
	int is_active;

	ck_cu_ok(cu.cuDevicePrimaryCtxRetain(&again, 0));
	ck_assert_ptr_eq(again, cuda_context);
	ck_cu_ok(cu.cuCtxGetId(cuda_context, &id));
	ck_cu_ok(cu.cuCtxGetId(NULL, &id_again));
	ck_assert_uint_eq(id, id_again);
	ck_cu_ok(cu.cuDevicePrimaryCtxRelease(0));
	ck_cu_ok(cu.cuDevicePrimaryCtxGetState(0, &flags, &is_active));
	ck_assert_int_eq(is_active, 1);
	ck_cu_ok(cu.cuCtxGetDevice(&device));
	ck_assert_int_eq(device, 0);
}
END_TEST

/* The last release ends it: the current context is unusable, though it stays on the stack. */
START_TEST(primary_ends)
{
	cu_deviceptr address;
	unsigned flags;
	int is_active;

	ck_cu_ok(cu.cuDevicePrimaryCtxRelease(0));
	ck_cu_ok(cu.cuDevicePrimaryCtxGetState(0, &flags, &is_active));
	ck_assert_int_eq(is_active, 0);
	ck_assert_int_ne(cu.cuMemAlloc(&address, SIZE), CUDA_SUCCESS);
	ck_cu(cu.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu_ok(cu.cuDevicePrimaryCtxRetain(&cuda_context, 0));
	ck_cu_ok(cu.cuCtxSetCurrent(cuda_context));
	ck_cu_ok(cu.cuMemAlloc(&address, SIZE));
	ck_cu_ok(cu.cuMemFree(address));
}
END_TEST

START_TEST(contexts_have_ids)
{
	unsigned long long ids[4];
	cu_context made, popped;

	for (unsigned i = 0; i < 4; i++) {
		ck_cu_ok(cu.cuCtxCreate(&made, 0, 0));
		ck_cu_ok(cu.cuCtxGetId(made, &ids[i]));
		ck_cu_ok(cu.cuCtxPopCurrent(&popped));
		ck_assert_ptr_eq(popped, made);
		ck_cu_ok(cu.cuCtxDestroy(made));
		for (unsigned j = 0; j < i; j++)
			ck_assert_uint_ne(ids[i], ids[j]);
	}
}
END_TEST

/* One that is current to the thread that destroys it is popped. */
START_TEST(destroy_pops)
{
	cu_context made, now;

	ck_cu_ok(cu.cuCtxCreate(&made, 0, 0));
	ck_cu_ok(cu.cuCtxGetCurrent(&now));
	ck_assert_ptr_eq(now, made);
	ck_cu_ok(cu.cuCtxDestroy(made));
	ck_cu_ok(cu.cuCtxGetCurrent(&now));
	ck_assert_ptr_eq(now, cuda_context);
}
END_TEST

/* Its memory goes with it; that of pools does not. */
START_TEST(destroy_frees)
{
	cu_deviceptr address, of_pool;
	cu_context made;
	int type;

	ck_cu_ok(cu.cuCtxCreate(&made, 0, 0));
	ck_cu_ok(cu.cuMemAlloc(&address, SIZE));
	ck_cu_ok(cu.cuMemAllocAsync(&of_pool, SIZE, NULL));
	ck_cu_ok(cu.cuCtxSynchronize());
	ck_cu_ok(cu.cuCtxDestroy(made));
	ck_cu(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
		CUDA_ERROR_INVALID_VALUE);
	ck_cu_ok(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, of_pool));
	ck_cu_ok(cu.cuMemFree(of_pool));
}
END_TEST

static atomic_int meeting;
static cu_context shared;

static void *has_it_current(void *unused)
{
	cu_deviceptr address;

	ck_cu_ok(cu.cuCtxSetCurrent(shared));
	atomic_store(&meeting, 1);
	while (atomic_load(&meeting) < 2)
		cuda_nap();
	ck_cu(cu.cuMemAlloc(&address, SIZE), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ck_cu_ok(cu.cuCtxPopCurrent(NULL));
	return unused;
}

START_TEST(destroyed_elsewhere)
{
	pthread_t thread;

	atomic_store(&meeting, 0);
	ck_cu_ok(cu.cuCtxCreate(&shared, 0, 0));
	ck_cu_ok(cu.cuCtxPopCurrent(NULL));
	ck_assert_int_eq(pthread_create(&thread, NULL, has_it_current, NULL), 0);
	while (atomic_load(&meeting) < 1)
		cuda_nap();
	ck_cu_ok(cu.cuCtxDestroy(shared));
	atomic_store(&meeting, 2);
	pthread_join(thread, NULL);
}
END_TEST

/* ---- what has ended: NVIDIA documents that the result is undefined, so in a process of its own */

static bool is_no_context(cu_result result)
{
	return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT ||
		result == CUDA_ERROR_INVALID_HANDLE;
}

static const char *own_is_told(void)
{
	unsigned long long id;
	cu_context made;
	cu_result result;

	if (cu.cuCtxCreate(&made, 0, 0) || cu.cuCtxGetId(made, &id) || cu.cuCtxPopCurrent(NULL) ||
		cu.cuCtxDestroy(made))
		return "no context";
	result = cu.cuCtxGetId(made, &id);
	if (!is_no_context(result))
		return "cuCtxGetId() takes it";
	result = cu.cuCtxPushCurrent(made);
	return is_no_context(result) ? NULL : "cuCtxPushCurrent() takes it";
}

/* cudaDeviceReset(): the handle may be the same, the context is another one. */
static const char *primary_is_told(void)
{
	unsigned long long before, after = 0;
	cu_context made, again;
	cu_result result;

	if (cu.cuDevicePrimaryCtxRetain(&made, 0) || cu.cuCtxGetId(made, &before) ||
		cu.cuDevicePrimaryCtxReset(0))
		return "no context";
	result = cu.cuCtxGetId(made, &after);
	if (result ? !is_no_context(result) : after == before)
		return "cuCtxGetId() takes it";
	if (cu.cuDevicePrimaryCtxRetain(&again, 0))
		return "no context after it";
	result = cu.cuCtxGetId(made, &after);
	if (result ? !is_no_context(result) : after == before)
		return "the context after it has the same number";
	return NULL;
}

static const struct {
	const char *name;
	const char *(*why_not)(void);
} ended[] = { { "own", own_is_told }, { "primary", primary_is_told } };

/* In the child. */
static int look_at_ended(const char *name)
{
	const char *lacks, *why = "no such row";

	if (!driver_load(&cu, &lacks) || cu.cuInit(0))
		why = "no driver";
	else
		for (size_t i = 0; i < sizeof(ended) / sizeof(ended[0]); i++)
			if (strcmp(ended[i].name, name) == 0)
				why = ended[i].why_not();
	if (why)
		printf("%s: %s\n", name, why);
	fflush(stdout);
	_exit(why != NULL);
}

START_LOOP_TEST(ended_contexts_are_told, ROWS(ended))
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		test_exec(ended[_i].name);
		_exit(99);
	}
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
		"the handle of a context that has ended (%s): status 0x%x", ended[_i].name,
		(unsigned)status);
}
END_TEST

/* ---- memory */

static unsigned long long id_of(cu_deviceptr address)
{
	unsigned long long id = 0;

	ck_cu_ok(cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
	return id;
}

START_LOOP_TEST(buffer_ids, 4)
{
	static const size_t sizes[] = { 1, 1000, 65536, SIZE };
	unsigned long long last = 0, id;
	cu_deviceptr address;

	for (unsigned i = 0; i < 32; i++) {
		ck_cu_ok(cu.cuMemAlloc(&address, sizes[_i]));
		id = id_of(address);
		ck_assert_uint_ne(id, 0);
		ck_assert_uint_ne(id, last);
		ck_assert_uint_eq(id_of(address + sizes[_i] - 1), id);
		last = id;
		ck_cu_ok(cu.cuMemFree(address));
	}
}
END_TEST

START_TEST(extents)
{
	cu_deviceptr address, base = 0;
	size_t size = 0;
	void *ordinary = malloc(64);

	ck_cu_ok(cu.cuMemAlloc(&address, SIZE));
	ck_assert_uint_eq(address % 256, 0);
	ck_cu_ok(cu.cuMemGetAddressRange(&base, &size, address + 12345));
	ck_assert_uint_eq(base, address);
	ck_assert_uint_eq(size, SIZE);
	ck_cu_ok(cu.cuMemGetAddressRange(&base, NULL, address));
	ck_cu_ok(cu.cuMemGetAddressRange(NULL, &size, address));
	ck_assert_int_ne(
		cu.cuMemGetAddressRange(&base, &size, (cu_deviceptr)(uintptr_t)ordinary), 0);
	ck_cu(cu.cuMemFree(address + 256), CUDA_ERROR_INVALID_VALUE);
	ck_cu_ok(cu.cuMemFree(address));
	ck_cu(cu.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
	ck_cu_ok(cu.cuMemFree(0));
	ck_cu(cu.cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cu(cu.cuMemAlloc(&address, (size_t)1 << 46), CUDA_ERROR_OUT_OF_MEMORY);
	free(ordinary);
}
END_TEST

START_TEST(copies)
{
	uint8_t in[5000], out[5000];
	cu_deviceptr address;

	for (unsigned i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i * 7);
	ck_cu_ok(cu.cuMemAlloc(&address, 20000));
	ck_cu_ok(cu.cuMemsetD8(address, 0x5a, 20000));
	ck_cu_ok(cu.cuMemcpyHtoD(address + 3, in, sizeof(in)));
	ck_cu_ok(cu.cuMemcpyDtoD(address + 10001, address + 3, sizeof(in)));
	ck_cu_ok(cu.cuMemcpyDtoH(out, address + 10001, sizeof(out)));
	ck_assert_mem_eq(in, out, sizeof(in));
	ck_cu_ok(cu.cuMemcpyDtoH(out, address, 4));
	ck_assert_mem_eq(out, "\x5a\x5a\x5a\x00", 4);
	ck_cu_ok(cu.cuMemcpyDtoH(out, address, 0));
	ck_cu_ok(cu.cuMemFree(address));
}
END_TEST

/* With an argument: that row of what has ended. */
TEST_MAIN(cuda_rules)
{
	return argc > 1 ? look_at_ended(argv[1]) : cuda_main(all_tests(cuda_setup, cuda_teardown));
}
