/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of CUDA's driver: what tests do with it, and what it refuses. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/cuda_fixture.h"
#include "tests/unit/program.h"

enum { PAGE = CUDA_FIXTURE_PAGE, SIZE = 4 << 20 };

static void leaks_are(const char *text)
{
	ck_assert_str_eq(cuda_fake->leaks(), text);
}

/* ---- failures and settings */

static const struct {
	const char *name;
	unsigned nth, times;
	const char *expected; /* of eight calls of cuMemAlloc(): x fails */
} failures[] = {
	{ "cuMemAlloc", 1, 1, "x......." },
	{ "cuMemAlloc", 3, 1, "..x....." },
	{ "cuMemAlloc", 2, 3, ".xxx...." },
	{ "cuMemAlloc", 4, 0, "...xxxxx" },
	{ "cuMemAllocHost", 1, 1, "........" },
	{ NULL, 2, 2, ".xx....." },
};

START_LOOP_TEST(failing_calls, ROWS(failures))
{
	cu_deviceptr addresses[8];
	char seen[9] = "";

	cuda_fake->fail_call(
		failures[_i].name, failures[_i].nth, CUDA_ERROR_UNKNOWN, failures[_i].times);
	for (unsigned i = 0; i < 8; i++) {
		addresses[i] = 0;
		cu_result result = cu.cuMemAlloc(&addresses[i], SIZE);
		ck_assert(result == CUDA_SUCCESS || result == CUDA_ERROR_UNKNOWN);
		seen[i] = result == CUDA_SUCCESS ? '.' : 'x';
	}
	ck_assert_str_eq(seen, failures[_i].expected);
	ck_assert_uint_eq(cuda_fake->calls("cuMemAlloc"), 8);
	if (strchr(seen, 'x'))
		ck_assert_str_eq(cuda_fake->failed(), "cuMemAlloc");
	else
		ck_assert_ptr_null(cuda_fake->failed());
	cuda_fake->fail_call(NULL, 0, 0, 0);
	for (unsigned i = 0; i < 8; i++)
		ck_cu_ok(cu.cuMemFree(addresses[i]));
}
END_TEST

START_TEST(leaks)
{
	cu_deviceptr address;
	cu_stream streams[2];
	cu_event event;
	cu_module module;

	leaks_are("1 retained primary context");
	ck_cu_ok(cu.cuMemAlloc(&address, SIZE));
	ck_cu_ok(cu.cuStreamCreate(&streams[0], 0));
	ck_cu_ok(cu.cuStreamCreate(&streams[1], 0));
	ck_cu_ok(cu.cuEventCreate(&event, 0));
	ck_cu_ok(cu.cuModuleLoadData(&module, "any"));
	leaks_are("1 allocation, 1 retained primary context, 2 streams, 1 event, 1 module");
	ck_assert_uint_eq(cuda_fake->live(FAKE_CUDA_STREAM), 2);
	ck_assert_uint_eq(cuda_fake->live(FAKE_CUDA_KINDS), 6);
	/* A context takes with it what is its own. */
	ck_cu_ok(cu.cuDevicePrimaryCtxRelease(0));
	leaks_are("");
	ck_cu_ok(cu.cuDevicePrimaryCtxRetain(&cuda_context, 0));
}
END_TEST

START_TEST(environment)
{
	cu_device_attribute attribute = CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED;
	cu_get_proc_address_v2 get;
	cu_deviceptr address;
	int value;
	void *at;

	*(void **)(void *)&get = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
	setenv("FAKE_CUDA_DEVICES", "3", 1);
	setenv("FAKE_CUDA_VERSION", "12020", 1);
	setenv("FAKE_CUDA_MEMORY", "8", 1);
	setenv("FAKE_CUDA_ATTRIBUTES", "124=0,116=7", 1);
	setenv("FAKE_CUDA_MISSING", "cuCtxGetId,cuMemAlloc", 1);
	setenv("FAKE_CUDA_FAIL", "cuMemAlloc:2:2:1,cuMemFree:1:1:1", 1);
	cuda_fake->reset();
	ck_cu_ok(cu.cuInit(0));
	ck_cu_ok(cu.cuDeviceGetCount(&value));
	ck_assert_int_eq(value, 3);
	ck_cu_ok(cu.cuDriverGetVersion(&value));
	ck_assert_int_eq(value, 12020);
	ck_cu_ok(cu.cuDeviceGetAttribute(&value, attribute, 2));
	ck_assert_int_eq(value, 0);
	ck_cu_ok(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1));
	ck_assert_int_eq(value, 7);
	ck_cu_ok(get("cuMemFree", &at, 12000, 0, NULL));
	ck_cu(get("cuMemAlloc", &at, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
	ck_cu(get("cuCtxGetId", &at, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
	ck_cu_ok(cu.cuDevicePrimaryCtxRetain(&cuda_context, 0));
	ck_cu_ok(cu.cuCtxPushCurrent(cuda_context));
	ck_cu_ok(cu.cuMemAlloc(&address, 6 << 20));
	ck_cu(cu.cuMemAlloc(&address, 1), CUDA_ERROR_OUT_OF_MEMORY); /* the failure */
	ck_cu(cu.cuMemAlloc(&address, 4 << 20), CUDA_ERROR_OUT_OF_MEMORY);
	ck_cu(cu.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
	ck_cu_ok(cu.cuMemFree(address));
	unsetenv("FAKE_CUDA_DEVICES");
	unsetenv("FAKE_CUDA_VERSION");
	unsetenv("FAKE_CUDA_MEMORY");
	unsetenv("FAKE_CUDA_ATTRIBUTES");
	unsetenv("FAKE_CUDA_MISSING");
	unsetenv("FAKE_CUDA_FAIL");
}
END_TEST

/* The double's own setting, the driver's, and the driver's default. */
static const struct {
	const char *fake, *cuda;
	int version;
	cu_module_loading_mode mode;
} loadings[] = {
	{ NULL, NULL, 12010, CU_MODULE_EAGER_LOADING },
	{ NULL, NULL, 12020, CU_MODULE_LAZY_LOADING },
	{ NULL, "DEFAULT", 13000, CU_MODULE_LAZY_LOADING },
	{ NULL, "EAGER", 13000, CU_MODULE_EAGER_LOADING },
	{ NULL, "LAZY", 12010, CU_MODULE_LAZY_LOADING },
	{ "eager", "LAZY", 13000, CU_MODULE_EAGER_LOADING },
	{ "lazy", NULL, 12010, CU_MODULE_LAZY_LOADING },
};

static void set_or_unset(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

START_LOOP_TEST(loading_modes, ROWS(loadings))
{
	cu_module_loading_mode mode = 0;

	set_or_unset("FAKE_CUDA_LOADING", loadings[_i].fake);
	set_or_unset("CUDA_MODULE_LOADING", loadings[_i].cuda);
	cuda_fake->reset();
	cuda_fake->set_version(loadings[_i].version);
	ck_cu(cu.cuModuleGetLoadingMode(&mode), CUDA_ERROR_NOT_INITIALIZED);
	ck_cu_ok(cu.cuInit(0));
	ck_cu_ok(cu.cuModuleGetLoadingMode(&mode));
	ck_assert_int_eq(mode, loadings[_i].mode);
	ck_cu(cu.cuModuleGetLoadingMode(NULL), CUDA_ERROR_INVALID_VALUE);
	unsetenv("FAKE_CUDA_LOADING");
	unsetenv("CUDA_MODULE_LOADING");
	cuda_setup();
}
END_TEST

START_TEST(no_devices)
{
	cuda_fake->reset();
	cuda_fake->set_devices(0);
	ck_cu(cu.cuInit(0), CUDA_ERROR_NO_DEVICE);
	ck_cu(cu.cuDevicePrimaryCtxRetain(&cuda_context, 0), CUDA_ERROR_NOT_INITIALIZED);
	cuda_setup();
}
END_TEST

static const struct {
	int driver, asked;
	const char *name;
	bool is_found;
} versions[] = {
	{ 13000, 12000, "cuCtxGetId", true },
	{ 13000, 11080, "cuCtxGetId", false },
	{ 11080, 11080, "cuCtxGetId", false },
	{ 11060, 11060, "cuMemGetHandleForAddressRange", false },
	{ 11070, 11070, "cuMemGetHandleForAddressRange", true },
	{ 13000, 2000, "cuCtxSynchronize", true },
};

START_LOOP_TEST(old_drivers, ROWS(versions))
{
	cu_get_proc_address get;
	void *at = NULL;

	*(void **)(void *)&get = dlsym(RTLD_DEFAULT, "cuGetProcAddress");
	cuda_fake->set_version(versions[_i].driver);
	ck_cu(get(versions[_i].name, &at, versions[_i].asked, 0),
		versions[_i].is_found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
	ck_assert(!!at == versions[_i].is_found);
}
END_TEST

START_TEST(after_a_fork)
{
	int status = 0, n;
	pid_t child = fork();

	if (child == 0)
		_exit(cu.cuDeviceGetCount(&n));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), CUDA_ERROR_NOT_INITIALIZED);
}
END_TEST

/* What this program does when it is started with an argument. */
static int leave_something(bool is_freed)
{
	const char *lacks;
	cu_context own;
	cu_deviceptr address;

	if (!driver_load(&cu, &lacks) || cu.cuInit(0) != CUDA_SUCCESS ||
		cu.cuCtxCreate(&own, 0, 0) != CUDA_SUCCESS ||
		cu.cuMemAlloc(&address, SIZE) != CUDA_SUCCESS)
		return 1;
	return is_freed ? cu.cuCtxDestroy(own) : 0;
}

static const struct {
	const char *tells, *argument;
	int status;
} endings[] = {
	{ "1", "leave", 86 },
	{ "1", "free", 0 },
	{ "0", "leave", 0 },
};

START_LOOP_TEST(left_at_exit, ROWS(endings))
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		setenv("FAKE_CUDA_LEAKS", endings[_i].tells, 1);
		test_exec(endings[_i].argument);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), endings[_i].status);
}
END_TEST

/* ---- memory */

/* A system call tells without a crash. */
START_TEST(not_the_processors)
{
	cu_deviceptr addresses[3];
	int ends[2];

	ck_cu_ok(cu.cuMemAlloc(&addresses[0], SIZE));
	ck_cu_ok(cu.cuMemAlloc(&addresses[1], 100));
	ck_cu_ok(cuda_fake->make_virtual(0, SIZE, 1, true, &addresses[2]));
	ck_assert_int_eq(pipe(ends), 0);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(write(ends[1], (void *)(uintptr_t)addresses[i], 1), -1);
		ck_assert_int_eq(errno, EFAULT);
	}
	close(ends[0]);
	close(ends[1]);
	ck_cu_ok(cu.cuMemFree(addresses[0]));
	ck_cu_ok(cu.cuMemFree(addresses[1]));
	ck_cu_ok(cuda_fake->free_virtual(addresses[2]));
}
END_TEST

START_LOOP_TEST(addresses_come_again, 2)
{
	static const size_t sizes[] = { 100, SIZE };
	cu_deviceptr first, again, behind;
	unsigned long long id, id_again;
	cu_context made, made_again;

	ck_cu_ok(cu.cuMemAlloc(&first, sizes[_i]));
	ck_cu_ok(cu.cuMemAlloc(&behind, sizes[_i]));
	ck_assert_uint_ge(behind, first + sizes[_i]);
	ck_cu_ok(cu.cuMemFree(first));
	ck_cu_ok(cu.cuMemAlloc(&again, sizes[_i]));
	ck_assert_uint_eq(again, first);
	ck_cu_ok(cu.cuMemFree(again));
	ck_cu_ok(cu.cuMemFree(behind));
	ck_cu_ok(cu.cuCtxCreate(&made, 0, 0));
	ck_cu_ok(cu.cuCtxGetId(made, &id));
	ck_cu_ok(cu.cuCtxDestroy(made));
	ck_cu_ok(cu.cuCtxCreate(&made_again, 0, 0));
	ck_cu_ok(cu.cuCtxGetId(made_again, &id_again));
	ck_cu_ok(cu.cuCtxDestroy(made_again));
	ck_assert_ptr_eq(made, made_again);
	ck_assert_uint_ne(id, id_again);
}
END_TEST

START_TEST(limits)
{
	cu_deviceptr address;
	size_t left, total;
	void *host = cuda_pages(SIZE), *other;

	cuda_fake->set_memory(16 << 20);
	ck_cu(cu.cuMemAlloc(&address, 32 << 20), CUDA_ERROR_OUT_OF_MEMORY);
	ck_cu_ok(cu.cuMemAlloc(&address, 10 << 20));
	ck_cu_ok(cu.cuMemGetInfo(&left, &total));
	ck_assert_uint_eq(left, 6 << 20);
	ck_assert_uint_eq(total, 16 << 20);
	ck_cu_ok(cu.cuMemFree(address));
	cuda_fake->set_host_limit(SIZE);
	ck_cu_ok(cu.cuMemHostRegister(host, SIZE, 0));
	ck_cu(cu.cuMemAllocHost(&other, PAGE), CUDA_ERROR_OUT_OF_MEMORY);
	ck_cu_ok(cu.cuMemHostUnregister(host));
	ck_cu_ok(cu.cuMemAllocHost(&other, PAGE));
	ck_cu_ok(cu.cuMemFreeHost(other));
	munmap(host, SIZE);
}
END_TEST

START_TEST(host_apart)
{
	enum { MAPPED = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP };
	uint8_t *host = cuda_pages(2 * PAGE);
	cu_deviceptr at, back = 0;
	void *is = NULL;

	cuda_fake->set_host_apart(true);
	ck_cu_ok(cu.cuMemHostRegister(host, 2 * PAGE, MAPPED));
	ck_cu_ok(cu.cuMemHostGetDevicePointer(&at, host + 5, 0));
	ck_assert_uint_ne(at, (cu_deviceptr)(uintptr_t)host + 5);
	ck_cu_ok(cu.cuMemsetD8(at, 9, 10));
	ck_assert_uint_eq(host[4], 1);
	ck_assert_uint_eq(host[5], 9);
	ck_assert_uint_eq(host[15], 1);
	/* By the host's address, a GPU does not get there. */
	ck_cu(cu.cuMemsetD8((cu_deviceptr)(uintptr_t)host, 9, 10), CUDA_ERROR_INVALID_VALUE);
	ck_cu_ok(cu.cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
	ck_assert_ptr_eq(is, host + 5);
	ck_cu_ok(cu.cuPointerGetAttribute(
		&back, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (cu_deviceptr)(uintptr_t)host + 5));
	ck_assert_uint_eq(back, at);
	ck_cu_ok(cu.cuMemHostUnregister(host));
	munmap(host, 2 * PAGE);
}
END_TEST

/* Where a dma-buf begins in its file is where its descriptor stands. */
START_LOOP_TEST(dma_buf, 2)
{
	static const size_t sizes[] = { SIZE, 60000 };
	cu_deviceptr address, range, is;
	uint8_t bytes[64];
	size_t size;
	uint8_t *at;
	off_t offset;
	int fd = -1;

	ck_cu_ok(cu.cuMemAlloc(&address, sizes[_i]));
	range = address / PAGE * PAGE + 3 * PAGE;
	ck_cu_ok(cu.cuMemGetHandleForAddressRange(
		&fd, range, 2 * PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	ck_assert_uint_eq(cuda_fake->live(FAKE_CUDA_FD), 1);
	ck_assert(cuda_fake->dma_buf(fd, &is, &size));
	ck_assert_uint_eq(is, range);
	ck_assert_uint_eq(size, 2 * PAGE);
	ck_assert(!cuda_fake->dma_buf(0, &is, &size));
	offset = lseek(fd, 0, SEEK_CUR);
	at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_cu_ok(cu.cuMemsetD8(range + 10, 0x77, 30));
	ck_assert_uint_eq(at[10], 0x77);
	ck_assert_uint_eq(at[39], 0x77);
	ck_assert_uint_ne(at[40], 0x77);
	memset(at + PAGE, 0x66, 64);
	ck_cu_ok(cu.cuMemcpyDtoH(bytes, range + PAGE, 64));
	ck_assert_uint_eq(bytes[63], 0x66);
	munmap(at, 2 * PAGE);
	close(fd);
	ck_assert_uint_eq(cuda_fake->live(FAKE_CUDA_FD), 0);
	ck_cu_ok(cu.cuMemFree(address));
}
END_TEST

static const struct {
	const char *name;
	cu_device_attribute attribute;
	unsigned long long flags;
	bool is_pcie, is_virtual, is_capable;
	size_t size;
	cu_result result;
} exports[] = {
	{ "no dma-bufs", CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0, false, false, true, PAGE,
		CUDA_ERROR_NOT_SUPPORTED },
	{ "PCIe", 0, 1, false, false, true, PAGE, CUDA_ERROR_NOT_SUPPORTED },
	{ "PCIe works", 0, 1, true, false, true, PAGE, CUDA_SUCCESS },
	{ "no such flag", 0, 2, true, false, true, PAGE, CUDA_ERROR_INVALID_VALUE },
	{ "beyond the end", 0, 0, false, false, true, SIZE + PAGE, CUDA_ERROR_INVALID_VALUE },
	{ "of one handle", 0, 0, false, true, true, FAKE_CUDA_BLOCK, CUDA_SUCCESS },
	{ "not for NICs", 0, 0, false, true, false, PAGE, CUDA_ERROR_NOT_SUPPORTED },
	{ "of two handles", 0, 0, false, true, true, SIZE, CUDA_ERROR_INVALID_VALUE },
};

START_LOOP_TEST(exporting, ROWS(exports))
{
	cu_deviceptr address;
	int fd = -1;

	if (exports[_i].attribute)
		cuda_fake->set_attribute(-1, exports[_i].attribute, 0);
	cuda_fake->set_pcie(exports[_i].is_pcie);
	if (exports[_i].is_virtual)
		ck_cu_ok(cuda_fake->make_virtual(0, 2 * SIZE, 2, exports[_i].is_capable, &address));
	else
		ck_cu_ok(cu.cuMemAlloc(&address, SIZE));
	ck_cu(cu.cuMemGetHandleForAddressRange(&fd, address, exports[_i].size,
		      CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, exports[_i].flags),
		exports[_i].result);
	ck_assert_int_eq(fd >= 0, exports[_i].result == CUDA_SUCCESS);
	if (fd >= 0)
		close(fd);
	if (exports[_i].is_virtual)
		ck_cu_ok(cuda_fake->free_virtual(address));
	else
		ck_cu_ok(cu.cuMemFree(address));
}
END_TEST

START_TEST(several_devices)
{
	cu_deviceptr first, second;
	cu_context contexts[2];
	int ordinal;

	cuda_fake->reset();
	cuda_fake->set_devices(2);
	ck_cu_ok(cu.cuInit(0));
	ck_cu_ok(cu.cuDevicePrimaryCtxRetain(&contexts[0], 0));
	ck_cu_ok(cu.cuDevicePrimaryCtxRetain(&contexts[1], 1));
	ck_assert_ptr_ne(contexts[0], contexts[1]);
	ck_cu_ok(cu.cuCtxPushCurrent(contexts[0]));
	ck_cu_ok(cu.cuMemAlloc(&first, SIZE));
	ck_cu_ok(cu.cuCtxPushCurrent(contexts[1]));
	ck_cu_ok(cu.cuMemAlloc(&second, SIZE));
	ck_cu_ok(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, second));
	ck_assert_int_eq(ordinal, 1);
	/* Memory of one context is not the other's. */
	ck_cu(cu.cuMemsetD8(first, 0, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(cuda_fake->context_depth(), 2);
	ck_cu_ok(cu.cuMemFree(first));
	ck_cu_ok(cu.cuMemFree(second));
	ck_cu_ok(cu.cuCtxPopCurrent(NULL));
	ck_cu_ok(cu.cuDevicePrimaryCtxRelease(1));
}
END_TEST

TEST_MAIN(fake_cuda)
{
	if (argc > 1)
		return leave_something(strcmp(argv[1], "free") == 0);
	return cuda_double_main(all_tests(cuda_setup, cuda_teardown));
}
