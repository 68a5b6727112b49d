/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of GPUs and the NCCL plugin: devices that report to take it, registrations, messages and
 * flushes. NICs are those of tests/fakes/verbs/fake_verbs.h, the GPU is the double of the driver: a
 * pass says nothing about a real one.
 */
#include <stdlib.h>

#include "tests/unit/nccl/nccl_gpu_fixture.h"

enum {
	PTR_GPU = NCCL_PTR_CUDA | NCCL_PTR_DMABUF,
	CALLS = 24,
};

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
	{ "1", NULL, "verbs:nic0", "124=0", 0, 0, "nic0 does not accept GPU memory.*dma-buf" },
	/* It does not order a NIC's writes. */
	{ NULL, NULL, "verbs:nic0", "118=0", PTR_GPU, 1, NULL },
	{ NULL, NULL, "local", NULL, 0, 0, NULL },
	{ "0", NULL, "local", NULL, 0, 0, NULL },
	{ "1", NULL, "local", NULL, NCCL_PTR_CUDA, 0, NULL },
	{ "1", "mapped", "local", "118=0", NCCL_PTR_CUDA, 0, NULL },
	/* Too old for kernels, and just not: a T4. */
	{ "1", NULL, "local", "75=7", 0, 0,
		"local does not accept GPU memory.*compute capability 7.0" },
	{ "1", NULL, "local", "75=7,76=5", NCCL_PTR_CUDA, 0, NULL },
	{ "1", "dma-buf", "local", NULL, 0, 0,
		"local does not accept GPU memory, though FERRULE_GPU=1: .*FRL_GPU_TIER=dma-buf" },
	{ "1", "off", "local", NULL, 0, 0, "local does not accept GPU memory.*FRL_GPU_TIER=off" },
	{ "1", "mapped", "verbs:nic0", NULL, 0, 0,
		"nic0 does not accept GPU memory.*FRL_GPU_TIER=mapped" },
};

START_LOOP_TEST(pointers, ROWS(rows))
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

#define IS_LAZY                                                                               \
	"local does not accept GPU memory, though FERRULE_GPU=1: CUDA loads modules lazily, " \
	"which "                                                                              \
	"can deadlock .*set CUDA_MODULE_LOADING=EAGER before the process starts, or "         \
	"FERRULE_GPU=force to accept the risk$"
#define FLUSHES_LAZILY "nic0: flushes of GPU memory call CUDA, .*set CUDA_MODULE_LOADING=EAGER"

/* How CUDA loads modules matters where Ferrule's kernels move the payload. */
static const struct {
	const char *gpu, *tier, *devices;
	const char *names[2], *values[2]; /* of the environment: the driver */
	int pointers;
	const char *logged;
} loading_rows[] = {
	{ "1", NULL, "local", { "FAKE_CUDA_LOADING" }, { "lazy" }, 0, IS_LAZY },
	{ "1", NULL, "local", { "FAKE_CUDA_LOADING" }, { "eager" }, NCCL_PTR_CUDA, NULL },
	{ "force", NULL, "local", { "FAKE_CUDA_LOADING" }, { "lazy" }, NCCL_PTR_CUDA, NULL },
	{ NULL, NULL, "local", { "FAKE_CUDA_LOADING" }, { "lazy" }, 0, NULL },
	/* A reason of NICs' is none here. */
	{ "1", NULL, "local", { "FAKE_CUDA_LOADING", "FAKE_CUDA_ATTRIBUTES" }, { "lazy", "124=0" },
		0, IS_LAZY },
	/* The driver's default, and what users set. */
	{ "1", NULL, "local", { NULL }, { NULL }, 0, IS_LAZY },
	{ "1", NULL, "local", { "CUDA_MODULE_LOADING" }, { "EAGER" }, NCCL_PTR_CUDA, NULL },
	/* A driver that cannot say has no lazy loading. */
	{ "1", NULL, "local", { "FAKE_CUDA_LOADING", "FAKE_CUDA_MISSING" },
		{ "lazy", "cuModuleGetLoadingMode" }, NCCL_PTR_CUDA, NULL },
	{ NULL, NULL, "verbs:nic0", { "FAKE_CUDA_LOADING" }, { "lazy" }, PTR_GPU, NULL },
	{ "1", NULL, "verbs:nic0", { "FAKE_CUDA_LOADING" }, { "lazy" }, PTR_GPU, NULL },
	{ NULL, NULL, "verbs:nic0;verbs:nic1", { "FAKE_CUDA_LOADING", "FAKE_CUDA_ATTRIBUTES" },
		{ "lazy", "118=0" }, PTR_GPU, FLUSHES_LAZILY },
	{ NULL, NULL, "verbs:nic0", { "FAKE_CUDA_LOADING", "FAKE_CUDA_ATTRIBUTES" },
		{ "eager", "118=0" }, PTR_GPU, NULL },
};

START_LOOP_TEST(loading, ROWS(loading_rows))
{
	struct nccl_properties_v12 is;

	unsetenv("FAKE_CUDA_LOADING");
	unsetenv("CUDA_MODULE_LOADING");
	setenv("FERRULE_DEVICES", loading_rows[_i].devices, 1);
	if (loading_rows[_i].gpu)
		setenv("FERRULE_GPU", loading_rows[_i].gpu, 1);
	if (loading_rows[_i].tier)
		setenv("FRL_GPU_TIER", loading_rows[_i].tier, 1);
	for (int k = 0; k < 2; k++)
		if (loading_rows[_i].names[k])
			setenv(loading_rows[_i].names[k], loading_rows[_i].values[k], 1);
	begin();
	ck_assert_int_eq(ncclNetPlugin_v12.get_properties(NIC, &is), NCCL_SUCCESS);
	ck_assert_int_eq(is.ptr_support, NCCL_PTR_HOST | loading_rows[_i].pointers);
	if (loading_rows[_i].logged) {
		expect_logged(loading_rows[_i].logged);
		/* It is said once. */
		ck_assert_ptr_eq(strchr(warnings, '\n'), warnings + strlen(warnings) - 1);
	} else {
		ck_assert_str_eq(warnings, "");
	}
	end();
}
END_TEST

/* FERRULE_GPU is 0, 1 or force. */
START_LOOP_TEST(bad_setting, 3)
{
	static const char *const values[] = { "2", "Force", "01" };

	setenv("FERRULE_DEVICES", "local", 1);
	setenv("FERRULE_GPU", values[_i], 1);
	start_cuda();
	plug_in(64, false);
	ck_assert_int_ne(ncclNetPlugin_v12.init(&net, 1, NULL, take_line, NULL), NCCL_SUCCESS);
	expect_logged("FERRULE_GPU is \"[^\"]+\"; it may be 0, 1 or force");
	fake_verbs_reset();
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

	unsetenv("FERRULE_DEVICES");
	setenv("FAKE_CUDA_DEVICES", "0", 1);
	setenv("FERRULE_GPU", "1", 1);
	fake = fake_cuda_find();
	ck_assert_ptr_nonnull(fake);
	fake->reset();
	start_plugin();
	ck_assert_int_eq(ncclNetPlugin_v12.get_properties(NIC, &is), NCCL_SUCCESS);
	ck_assert_int_eq(is.ptr_support, NCCL_PTR_HOST);
	expect_logged("nic0 does not accept GPU memory, though FERRULE_GPU=1: .*(GPU|CUDA)");
	ck_assert_int_eq(ncclNetPlugin_v12.finalize(net), NCCL_SUCCESS);
	fake_verbs_reset();
}
END_TEST

/* A user that did not ask for GPUs gets no CUDA started. */
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

START_LOOP_TEST(messages, 2)
{
	static const size_t sizes[] = { 0, 1, 4097, 16385, 1000003, BYTES };
	struct pair pair;

	begin();
	open_pair(&pair, _i);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		transfer(&pair, sizes[i]);
	close_pair(&pair);
	end();
}
END_TEST

/* Writes that a GPU does not order by itself are flushed, and nothing else. */
START_LOOP_TEST(flush, 2)
{
	static const char *const attributes[] = { "118=0,117=1", "118=200" };
	struct fake_cuda_stats before, after;
	struct pair pair;
	void *data, *request = &pair;
	int size = 1000;

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
	expect_logged("cannot flush data received in a GPU's memory: .*CUDA_ERROR_UNKNOWN");
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

	setenv("FERRULE_GPU", "0", 1);
	begin();
	ck_assert(connect_pair(&pair));
	pair.sender.memory = take_memory(BYTES);
	ck_assert_int_eq(ncclNetPlugin_v12.reg_mr(pair.sender.comm, pointer(pair.sender.memory),
				 BYTES, NCCL_PTR_CUDA, &mr),
		NCCL_INVALID_USAGE);
	expect_logged("cannot register GPU memory of type 2 with nic0");
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

/* Any call may fail, with an error or without effect; nothing stays, and all works afterwards. */
START_LOOP_TEST(calls, CALLS)
{
	struct pair pair;
	int rc;

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

/* A software port's set-up for a GPU goes with the port, not with the last region, which would wait
 * for the GPU. */
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

/* A failed deregistration must not count as done. */
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
	expect_logged("cannot deregister GPU memory, which must not be freed");
	fake->hold(false);
	pair.sender.memory = 0;
	close_pair(&pair);
	ck_assert_int_eq(ncclNetPlugin_v12.finalize(net), NCCL_SUCCESS);
	expect_logged("local stays open with its memory: ");
}
END_TEST

TEST_MAIN(nccl_gpu)
{
	if (!fake_cuda_find()) {
		printf("SKIP: it needs the double of CUDA's driver, to have it fail\n");
		return 77;
	}
	set_socket_path();
	setenv("FERRULE_DEVICES", "verbs:nic0", 1);
	setenv("FERRULE_TIMEOUT_S", "1", 1);
	/* As users have to; no row may pass by a default that newer drivers do not have. */
	setenv("FAKE_CUDA_LOADING", "eager", 1);
	/* Settings are read once in a process. */
	return run_with_daemon(run_suite_forked, all_tests(NULL, NULL));
}
