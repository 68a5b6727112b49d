/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of GPUs and the NCCL plugin: which devices say that they take it, registrations, messages
 * and flushes. NICs are those of tests/unit/fake_verbs.h, the GPU is the double of the driver: what
 * passes here says nothing about a real one.
 */
#include <check.h>
#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpudirect/cuda.h"
#include "nccl/comm.h"
#include "nccl/setup.h"
#include "nccl/tables.h"
#include "tests/fake_libcuda/fake_libcuda.h"
#include "tests/unit/bootstrap_fixture.h"
#include "tests/unit/nccl_log.h"
#include "tests/unit/nccl_verbs_fixture.h"
#include "tests/unit/program.h"

enum {
	BYTES = 3 << 20,
	TAG = 5,
	NIC = 0, /* device */
	PTR_GPU = NCCL_PTR_CUDA | NCCL_PTR_DMABUF,
	CALLS = 24,
};

static const struct fake_cuda *fake;
static const struct cuda_api *cuda;
static cu_context context;
static void *net;

static void expect_logged(const char *pattern)
{
	regex_t regex;
	int rc;

	ck_assert_int_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB | REG_NEWLINE), 0);
	pthread_mutex_lock(&log_lock);
	rc = regexec(&regex, warnings, 0, NULL, 0);
	pthread_mutex_unlock(&log_lock);
	regfree(&regex);
	ck_assert_msg(rc == 0, "'%s' does not match: %s", pattern, warnings);
}

/* What NCCL has done before it asks a plugin for anything. */
static void start_cuda(void)
{
	cu_device device;

	fake = fake_cuda_find();
	ck_assert_msg(fake, "this libcuda.so.1 is not the double");
	fake->reset();
	ck_assert_int_eq(cuda_get(&cuda), 0);
	ck_assert_int_eq(cuda->cuDeviceGet(&device, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->cuCtxPushCurrent(context), CUDA_SUCCESS);
}

static void start_plugin(void)
{
	warnings[0] = '\0';
	plug_in(64, false);
	ck_assert_int_eq(ncclNetPlugin_v12.init(&net, 1, NULL, take_line, NULL), NCCL_SUCCESS);
}

static void begin(void)
{
	start_cuda();
	start_plugin();
}

static void end(void)
{
	cu_context gone;

	ck_assert_int_eq(ncclNetPlugin_v12.finalize(net), NCCL_SUCCESS);
	ck_assert_str_eq(fake_verbs_leaks(), "");
	fake_verbs_reset();
	ck_assert_int_eq(cuda->cuCtxPopCurrent(&gone), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
	ck_assert_str_eq(fake->leaks(), "");
	ck_assert_str_eq(fake->fault(), "");
}

static cu_deviceptr take_memory(size_t size)
{
	cu_deviceptr address;

	ck_assert_int_eq(cuda->cuMemAlloc(&address, size), CUDA_SUCCESS);
	return address;
}

static void *pointer(cu_deviceptr address)
{
	return (void *)(uintptr_t)address;
}

/* ---- which pointers */

static const struct row {
	const char *gpu, *tier; /* FERRULE_GPU, FRL_GPU_TIER; NULL: not set */
	const char *devices;
	const char *attributes; /* of the GPU */
	int pointers;
	int force_flush;
	const char *logged; /* a warning, or NULL */
} rows[] = {
	{ NULL, NULL, "verbs:nic0", NULL, PTR_GPU, 0, NULL },
	{ "1", NULL, "verbs:nic0", NULL, PTR_GPU, 0, NULL },
	{ "0", NULL, "verbs:nic0", NULL, 0, 0, NULL },
	{ NULL, "dma-buf", "verbs:nic0", NULL, PTR_GPU, 0, NULL },
	{ NULL, "off", "verbs:nic0", NULL, 0, 0, NULL },
	{ NULL, "mapped", "verbs:nic0", NULL, 0, 0, NULL },
	/* No dma-buf. */
	{ NULL, NULL, "verbs:nic0", "124=0", 0, 0, NULL },
	{ "1", NULL, "verbs:nic0", "124=0", 0, 0, "nic0 takes no memory of GPUs.*dma-buf" },
	/* It does not order a NIC's writes. */
	{ NULL, NULL, "verbs:nic0", "118=0", PTR_GPU, 1, NULL },
	{ NULL, NULL, "local", NULL, 0, 0, NULL },
	{ "0", NULL, "local", NULL, 0, 0, NULL },
	{ "1", NULL, "local", NULL, NCCL_PTR_CUDA, 0, NULL },
	{ "1", "mapped", "local", "118=0", NCCL_PTR_CUDA, 0, NULL },
	{ "1", "staged", "local", NULL, NCCL_PTR_CUDA, 0, NULL },
	/* Too old for kernels, and just not: a T4. */
	{ "1", "staged", "local", "75=7", NCCL_PTR_CUDA, 0, NULL },
	{ "1", NULL, "local", "75=7", 0, 0, "local takes no memory .*compute capability 7.0" },
	{ "1", NULL, "local", "75=7,76=5", NCCL_PTR_CUDA, 0, NULL },
	{ NULL, "staged", "local", NULL, 0, 0, NULL },
	{ "1", "staged", "verbs:nic0", NULL, 0, 0, "nic0 takes no memory .*FRL_GPU_TIER=staged" },
	{ "1", "dma-buf", "local", NULL, 0, 0,
		"local takes no memory of GPUs, though FERRULE_GPU=1: .*FRL_GPU_TIER=dma-buf" },
	{ "1", "off", "local", NULL, 0, 0, "local takes no memory .*FRL_GPU_TIER=off" },
	{ "1", "mapped", "verbs:nic0", NULL, 0, 0, "nic0 takes no memory .*FRL_GPU_TIER=mapped" },
};

START_TEST(pointers)
{
	const struct row *row = &rows[_i];
	struct nccl_properties_v6 v6;
	struct nccl_properties_v8 v8;
	struct nccl_properties_v12 is;

	setenv("FERRULE_DEVICES", row->devices, 1);
	if (row->gpu)
		setenv("FERRULE_GPU", row->gpu, 1);
	if (row->tier)
		setenv("FRL_GPU_TIER", row->tier, 1);
	if (row->attributes)
		setenv("FAKE_CUDA_ATTRIBUTES", row->attributes, 1);
	begin();
	ck_assert_int_eq(ncclNetPlugin_v12.get_properties(NIC, &is), NCCL_SUCCESS);
	ck_assert_int_eq(ncclNetPlugin_v8.get_properties(NIC, &v8), NCCL_SUCCESS);
	ck_assert_int_eq(ncclNetPlugin_v6.get_properties(NIC, &v6), NCCL_SUCCESS);
	ck_assert_int_eq(is.ptr_support, NCCL_PTR_HOST | row->pointers);
	ck_assert_int_eq(v8.ptr_support, is.ptr_support);
	ck_assert_int_eq(v6.ptr_support, is.ptr_support);
	ck_assert_int_eq(is.force_flush, row->force_flush);
	if (row->logged)
		expect_logged(row->logged);
	else
		ck_assert_str_eq(warnings, "");
	end();
}
END_TEST

/* A NIC that takes no dma-buf, alone and with one that does. */
START_TEST(unlike_nics)
{
	struct nccl_vdevice_v12 both = { .n = 2, .devices = { 0, 1 } };
	struct fake_verbs_device old;
	struct nccl_properties_v12 is;
	int fused;

	setenv("FERRULE_DEVICES", "verbs:nic0;verbs:old", 1);
	start_cuda();
	plug_in(64, false);
	fake_verbs_device_init(&old, "old", "10.0.9.1");
	old.has_dmabuf = false;
	fake_verbs_add(&old);
	ck_assert_int_eq(ncclNetPlugin_v12.init(&net, 1, NULL, take_line, NULL), NCCL_SUCCESS);
	ck_assert_int_eq(ncclNetPlugin_v12.get_properties(1, &is), NCCL_SUCCESS);
	ck_assert_int_eq(is.ptr_support, NCCL_PTR_HOST);
	ck_assert_int_eq(ncclNetPlugin_v12.make_vdevice(&fused, &both), NCCL_SUCCESS);
	ck_assert_int_eq(ncclNetPlugin_v12.get_properties(fused, &is), NCCL_SUCCESS);
	ck_assert_int_eq(is.ptr_support, NCCL_PTR_HOST);
	end();
}
END_TEST

/* Without a GPU, and where all may be asked of it. */
START_TEST(no_gpu)
{
	struct nccl_properties_v12 is;

	setenv("FAKE_CUDA_DEVICES", "0", 1);
	setenv("FERRULE_GPU", "1", 1);
	fake = fake_cuda_find();
	ck_assert_ptr_nonnull(fake);
	fake->reset();
	start_plugin();
	ck_assert_int_eq(ncclNetPlugin_v12.get_properties(NIC, &is), NCCL_SUCCESS);
	ck_assert_int_eq(is.ptr_support, NCCL_PTR_HOST);
	expect_logged("nic0 takes no memory of GPUs, though FERRULE_GPU=1: .*(GPU|CUDA)");
	ck_assert_int_eq(ncclNetPlugin_v12.finalize(net), NCCL_SUCCESS);
	fake_verbs_reset();
}
END_TEST

/* Who never asked for GPUs has no CUDA started. */
START_TEST(left_alone)
{
	struct nccl_properties_v12 is;

	setenv("FERRULE_DEVICES", "local", 1);
	fake = fake_cuda_find();
	ck_assert_ptr_nonnull(fake);
	fake->reset();
	start_plugin();
	ck_assert_int_eq(ncclNetPlugin_v12.get_properties(NIC, &is), NCCL_SUCCESS);
	ck_assert_int_eq(is.ptr_support, NCCL_PTR_HOST);
	ck_assert_uint_eq(fake->calls("cuInit"), 0);
	ck_assert_int_eq(ncclNetPlugin_v12.finalize(net), NCCL_SUCCESS);
	fake_verbs_reset();
}
END_TEST

/* ---- messages */

struct end {
	void *comm, *mr, *request;
	cu_deviceptr memory;
};

struct pair {
	struct end sender, receiver;
};

static bool connect_pair(struct pair *pair)
{
	uint64_t handle[NCCL_HANDLE_SIZE / 8] = { 0 }, until = now_ms() + HANG_MS;
	void *listener;
	int rc = ncclNetPlugin_v12.listen(net, NIC, handle, &listener);

	*pair = (struct pair){ .sender.comm = NULL };
	ck_assert_int_eq(rc, NCCL_SUCCESS);
	while (!rc && !(pair->sender.comm && pair->receiver.comm)) {
		ck_assert_msg(now_ms() < until, "no connection: %s", warnings);
		if (!pair->sender.comm)
			rc = ncclNetPlugin_v12.connect(net, NIC, handle, &pair->sender.comm, NULL);
		if (!rc && !pair->receiver.comm)
			rc = ncclNetPlugin_v12.accept(listener, &pair->receiver.comm, NULL);
	}
	ck_assert_int_eq(ncclNetPlugin_v12.close_listen(listener), NCCL_SUCCESS);
	return rc == NCCL_SUCCESS;
}

/* As NCCL does: by a descriptor of the memory, which it closes, or by the pointer alone. */
static int give_memory(struct end *end, bool is_dmabuf)
{
	int fd, rc;

	end->memory = take_memory(BYTES);
	if (!is_dmabuf)
		return ncclNetPlugin_v12.reg_mr(
			end->comm, pointer(end->memory), BYTES, NCCL_PTR_CUDA, &end->mr);
	ck_assert_int_eq(cuda->cuMemGetHandleForAddressRange(
				 &fd, end->memory, 4 << 20, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
		CUDA_SUCCESS);
	rc = ncclNetPlugin_v12.reg_mr_dmabuf(
		end->comm, pointer(end->memory), BYTES, NCCL_PTR_CUDA, 0, fd, &end->mr);
	ck_assert_int_eq(close(fd), 0);
	return rc;
}

static void open_pair(struct pair *pair, bool is_dmabuf)
{
	ck_assert(connect_pair(pair));
	ck_assert_msg(give_memory(&pair->sender, is_dmabuf) == NCCL_SUCCESS, "%s", warnings);
	ck_assert_msg(give_memory(&pair->receiver, is_dmabuf) == NCCL_SUCCESS, "%s", warnings);
}

static void close_end(struct end *end)
{
	if (end->mr)
		ck_assert_int_eq(ncclNetPlugin_v12.dereg_mr(end->comm, end->mr), NCCL_SUCCESS);
	if (end->memory)
		ck_assert_int_eq(cuda->cuMemFree(end->memory), CUDA_SUCCESS);
	if (end->comm)
		ck_assert_int_eq(ncclNetPlugin_v12.close_send(end->comm), NCCL_SUCCESS);
}

static void close_pair(struct pair *pair)
{
	close_end(&pair->sender);
	close_end(&pair->receiver);
}

static void await(struct end *end)
{
	uint64_t until = now_ms() + HANG_MS;
	int done = 0;

	while (end->request && !done) {
		ck_assert_msg(now_ms() < until, "no end: %s", warnings);
		ck_assert_msg(ncclNetPlugin_v12.test(end->request, &done, NULL) == NCCL_SUCCESS,
			"%s", warnings);
	}
	end->request = NULL;
}

static void post(struct pair *pair, size_t size)
{
	void *to = pointer(pair->receiver.memory);
	int tag = TAG;

	ck_assert_int_eq(ncclNetPlugin_v12.irecv(pair->receiver.comm, 1, &to, &size, &tag,
				 &pair->receiver.mr, NULL, &pair->receiver.request),
		NCCL_SUCCESS);
	ck_assert_int_eq(ncclNetPlugin_v12.isend(pair->sender.comm, pointer(pair->sender.memory),
				 size, TAG, pair->sender.mr, NULL, &pair->sender.request),
		NCCL_SUCCESS);
	ck_assert(pair->sender.request && pair->receiver.request);
}

static void transfer(struct pair *pair, size_t size)
{
	static uint8_t sent[BYTES], got[BYTES];

	for (size_t i = 0; i < BYTES; i++)
		sent[i] = (uint8_t)(i * 131 + size);
	memset(got, 0x5a, BYTES);
	ck_assert(fake->write(pair->sender.memory, sent, BYTES));
	ck_assert(fake->write(pair->receiver.memory, got, BYTES));
	post(pair, size);
	while (pair->receiver.request || pair->sender.request) {
		await(&pair->receiver);
		await(&pair->sender);
	}
	ck_assert(fake->read(got, pair->receiver.memory, BYTES));
	ck_assert_mem_eq(got, sent, size);
	for (size_t i = size; i < BYTES; i++)
		ck_assert_uint_eq(got[i], 0x5a);
}

START_TEST(messages)
{
	static const size_t sizes[] = { 0, 1, 4097, 16385, 1000003, BYTES };
	struct pair pair;

	setenv("FERRULE_DEVICES", "verbs:nic0", 1);
	begin();
	open_pair(&pair, _i);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		transfer(&pair, sizes[i]);
	close_pair(&pair);
	end();
}
END_TEST

/* What a GPU does not order by itself is flushed, and nothing else. */
START_TEST(flush)
{
	static const char *const attributes[] = { "118=0,117=1", "118=200" };
	struct fake_cuda_stats before, after;
	struct pair pair;
	void *data, *request = &pair;
	int size = 1000;

	setenv("FERRULE_DEVICES", "verbs:nic0", 1);
	setenv("FAKE_CUDA_ATTRIBUTES", attributes[_i], 1);
	begin();
	open_pair(&pair, true);
	transfer(&pair, 1000);
	fake->stats(&before);
	data = pointer(pair.receiver.memory);
	ck_assert_int_eq(ncclNetPlugin_v12.iflush(
				 pair.receiver.comm, 1, &data, &size, &pair.receiver.mr, &request),
		NCCL_SUCCESS);
	ck_assert_ptr_null(request);
	fake->stats(&after);
	ck_assert_uint_eq(after.flushes - before.flushes, _i == 0);
	size = 0;
	ck_assert_int_eq(ncclNetPlugin_v6.iflush(
				 pair.receiver.comm, 1, &data, &size, &pair.receiver.mr, &request),
		NCCL_SUCCESS);
	fake->stats(&before);
	ck_assert_uint_eq(before.flushes, after.flushes);
	close_pair(&pair);
	end();
}
END_TEST

START_TEST(failed_flush)
{
	struct pair pair;
	void *data, *request;
	int size = 1000;

	setenv("FERRULE_DEVICES", "verbs:nic0", 1);
	setenv("FAKE_CUDA_ATTRIBUTES", "118=0,117=1", 1);
	begin();
	open_pair(&pair, false);
	data = pointer(pair.receiver.memory);
	fake->fail_call("cuFlushGPUDirectRDMAWrites", 1, CUDA_ERROR_UNKNOWN, 0);
	fake->fail_call("cuMemcpyDtoHAsync", 1, CUDA_ERROR_UNKNOWN, 0);
	fake->fail_call("cuMemcpyDtoH", 1, CUDA_ERROR_UNKNOWN, 0);
	ck_assert_int_ne(ncclNetPlugin_v12.iflush(
				 pair.receiver.comm, 1, &data, &size, &pair.receiver.mr, &request),
		NCCL_SUCCESS);
	expect_logged("cannot flush what has come to a GPU: .*CUDA_ERROR_UNKNOWN");
	fake->fail_call(NULL, 0, CUDA_SUCCESS, 0);
	close_pair(&pair);
	end();
}
END_TEST

/* ---- what is refused */

START_TEST(refused)
{
	struct pair pair;
	void *mr = NULL;

	setenv("FERRULE_DEVICES", "verbs:nic0", 1);
	setenv("FERRULE_GPU", "0", 1);
	begin();
	ck_assert(connect_pair(&pair));
	pair.sender.memory = take_memory(BYTES);
	ck_assert_int_eq(ncclNetPlugin_v12.reg_mr(pair.sender.comm, pointer(pair.sender.memory),
				 BYTES, NCCL_PTR_CUDA, &mr),
		NCCL_INVALID_USAGE);
	expect_logged("memory of a GPU, of type 2, cannot be registered with nic0");
	ck_assert_int_eq(ncclNetPlugin_v12.reg_mr_dmabuf(pair.sender.comm,
				 pointer(pair.sender.memory), BYTES, NCCL_PTR_CUDA, 0, -1, &mr),
		NCCL_INVALID_USAGE);
	ck_assert_int_eq(ncclNetPlugin_v12.reg_mr(
				 pair.sender.comm, pointer(pair.sender.memory), BYTES, 3, &mr),
		NCCL_INVALID_USAGE);
	expect_logged("memory of type 3");
	ck_assert_ptr_null(mr);
	close_pair(&pair);
	end();
}
END_TEST

/* Any call may fail: an error, or nothing that matters; nothing stays, and all works afterwards. */
START_TEST(calls)
{
	struct pair pair;
	int rc;

	setenv("FERRULE_DEVICES", "verbs:nic0", 1);
	begin();
	ck_assert(connect_pair(&pair));
	fake->fail_call(NULL, (unsigned)_i + 2, CUDA_ERROR_UNKNOWN, 1);
	rc = give_memory(&pair.sender, false);
	fake->fail_call(NULL, 0, CUDA_SUCCESS, 0);
	if (rc) {
		ck_assert_ptr_null(pair.sender.mr);
		expect_logged(
			"cannot register [0-9]+ bytes at 0x[0-9a-f]+: .*(CUDA_ERROR_UNKNOWN|GPU)");
		ck_assert_int_eq(
			ncclNetPlugin_v12.reg_mr(pair.sender.comm, pointer(pair.sender.memory),
				BYTES, NCCL_PTR_CUDA, &pair.sender.mr),
			NCCL_SUCCESS);
	}
	ck_assert_int_eq(give_memory(&pair.receiver, false), NCCL_SUCCESS);
	transfer(&pair, 100000);
	close_pair(&pair);
	end();
}
END_TEST

/* Memory that was freed and allocated anew is at the same address, and something else. */
START_TEST(other_memory)
{
	struct pair pair;
	cu_deviceptr old;

	setenv("FERRULE_DEVICES", "verbs:nic0", 1);
	begin();
	open_pair(&pair, false);
	transfer(&pair, BYTES);
	ck_assert_int_eq(ncclNetPlugin_v12.dereg_mr(pair.receiver.comm, pair.receiver.mr), 0);
	pair.receiver.mr = NULL;
	old = pair.receiver.memory;
	ck_assert_int_eq(cuda->cuMemFree(old), CUDA_SUCCESS);
	ck_assert_int_eq(give_memory(&pair.receiver, false), NCCL_SUCCESS);
	ck_assert_uint_eq(pair.receiver.memory, old);
	transfer(&pair, 12345);
	close_pair(&pair);
	end();
}
END_TEST

/* What a software port has set up for a GPU does not go with the last region, which would wait for
 * the GPU, but with the port. */
START_TEST(stays_set_up)
{
	static const char *const waiting[] = { "cuMemFree", "cuMemFreeHost", "cuMemHostUnregister",
		"cuModuleUnload", "cuStreamSynchronize", "cuStreamDestroy" };
	enum { WAITING = sizeof(waiting) / sizeof(waiting[0]) };
	unsigned before[WAITING];
	struct pair pair;

	setenv("FERRULE_DEVICES", "local", 1);
	setenv("FERRULE_GPU", "1", 1);
	begin();
	open_pair(&pair, false);
	transfer(&pair, 100000);
	for (int i = 0; i < WAITING; i++)
		before[i] = fake->calls(waiting[i]);
	for (int i = 0; i < 2; i++) {
		struct end *end = i ? &pair.receiver : &pair.sender;

		ck_assert_int_eq(ncclNetPlugin_v12.dereg_mr(end->comm, end->mr), NCCL_SUCCESS);
		end->mr = NULL;
	}
	for (int i = 0; i < WAITING; i++)
		ck_assert_msg(fake->calls(waiting[i]) == before[i], "%s", waiting[i]);
	close_pair(&pair);
	ck_assert_str_eq(warnings, "");
	end();
}
END_TEST

/* Who cannot deregister must not be taken to have done so. */
START_TEST(busy)
{
	struct pair pair;
	void *mr;

	setenv("FERRULE_DEVICES", "local", 1);
	setenv("FERRULE_GPU", "1", 1);
	begin();
	open_pair(&pair, false);
	transfer(&pair, 100000);
	post(&pair, BYTES);
	fake->hold(true);
	for (int i = 0, done; i < 100; i++) {
		ck_assert_int_eq(ncclNetPlugin_v12.test(pair.sender.request, &done, NULL), 0);
		ck_assert_int_eq(ncclNetPlugin_v12.test(pair.receiver.request, &done, NULL), 0);
	}
	mr = pair.sender.mr;
	pair.sender.mr = NULL;
	ck_assert_int_eq(ncclNetPlugin_v12.dereg_mr(pair.sender.comm, mr), NCCL_SYSTEM_ERROR);
	expect_logged("cannot be deregistered, and must not be freed");
	fake->hold(false);
	pair.sender.memory = 0;
	close_pair(&pair);
	ck_assert_int_eq(ncclNetPlugin_v12.finalize(net), NCCL_SUCCESS);
	expect_logged("local stays open, and its memory in use: ");
}
END_TEST

TEST_MAIN(nccl_gpu)
{
	Suite *suite = suite_create("nccl_gpu");
	TCase *tcase = tcase_create("nccl_gpu");

	if (!fake_cuda_find()) {
		printf("SKIP: it needs the double of CUDA's driver, to have it fail\n");
		return 77;
	}
	set_socket_path();
	setenv("FERRULE_TIMEOUT_S", "1", 1);
	tcase_add_unchecked_fixture(tcase, start_daemon, stop_daemon);
	tcase_add_loop_test(tcase, pointers, 0, sizeof(rows) / sizeof(rows[0]));
	tcase_add_test(tcase, unlike_nics);
	tcase_add_test(tcase, no_gpu);
	tcase_add_test(tcase, left_alone);
	tcase_add_loop_test(tcase, messages, 0, 2);
	tcase_add_loop_test(tcase, flush, 0, 2);
	tcase_add_test(tcase, failed_flush);
	tcase_add_test(tcase, refused);
	tcase_add_loop_test(tcase, calls, 0, CALLS);
	tcase_add_test(tcase, other_memory);
	tcase_add_test(tcase, stays_set_up);
	tcase_add_test(tcase, busy);
	suite_add_tcase(suite, tcase);
	/* Settings are read once in a process. */
	return run_suite_forked(suite);
}
