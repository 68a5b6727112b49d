/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The set-up of a software port for a GPU at init, before NCCL's kernels run: calls of the driver
 * that load, map or allocate may wait for these.
 */
#include <stdlib.h>

#include "nccl/devices.h"
#include "tests/unit/nccl/nccl_gpu_fixture.h"

/* Calls that may wait for running work, or hold the driver's locks for long. */
static const char *const setting_up[] = { "cuModuleLoadData", "cuModuleGetFunction",
	"cuMemHostRegister", "cuMemAlloc", "cuStreamCreateWithPriority", "cuEventCreate",
	"cuDevicePrimaryCtxRetain" };

static void count_calls(unsigned counts[ROWS(setting_up)])
{
	for (int i = 0; i < ROWS(setting_up); i++)
		counts[i] = fake->calls(setting_up[i]);
}

static void expect_no_calls_since(const unsigned counts[ROWS(setting_up)])
{
	for (int i = 0; i < ROWS(setting_up); i++)
		ck_assert_msg(fake->calls(setting_up[i]) == counts[i], "%u calls of %s",
			fake->calls(setting_up[i]) - counts[i], setting_up[i]);
}

static void set_local(const char *gpu)
{
	setenv("FERRULE_DEVICES", "local", 1);
	if (gpu)
		setenv("FERRULE_GPU", gpu, 1);
}

static bool is_open(void)
{
	return net_port_at(net_device_at(NIC), 0)->device != NULL;
}

static int register_end(struct end *end)
{
	return ncclNetPlugin_v12.reg_mr(
		end->comm, pointer(end->memory), BYTES, NCCL_PTR_CUDA, &end->mr);
}

/* Connects, registers and moves data: nothing more is set up. */
static void use_what_is_there(void)
{
	cu_deviceptr sent = take_memory(BYTES), received = take_memory(BYTES);
	unsigned counts[ROWS(setting_up)];
	struct pair pair;

	count_calls(counts);
	ck_assert(connect_pair(&pair));
	pair.sender.memory = sent;
	pair.receiver.memory = received;
	ck_assert_msg(register_end(&pair.sender) == NCCL_SUCCESS, "%s", warnings);
	ck_assert_msg(register_end(&pair.receiver) == NCCL_SUCCESS, "%s", warnings);
	transfer(&pair, 100000);
	expect_no_calls_since(counts);
	close_pair(&pair);
}

START_TEST(set_up_at_init)
{
	set_local("1");
	begin();
	ck_assert(is_open());
	ck_assert_uint_gt(fake->calls("cuMemHostRegister"), 0);
	use_what_is_there();
	end();
}
END_TEST

/* A kernel of NCCL's waits for the network in the same context, and modules are loaded lazily: the
 * set-up at init is enough for a connection. Setting up now would not end. */
START_TEST(beside_a_kernel_that_waits)
{
	cu_deviceptr memory;
	cu_stream stream;

	set_local("force");
	setenv("FAKE_CUDA_LOADING", "lazy", 1);
	begin();
	memory = take_memory(BYTES);
	ck_assert_int_eq(
		cuda->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
	fake->hold_stream(stream, true);
	ck_assert_int_eq(
		cuda->cuMemcpyHtoDAsync(memory, &stream, sizeof(stream), stream), CUDA_SUCCESS);
	use_what_is_there();
	ck_assert_uint_eq(fake->queued(), 1);
	fake->hold_stream(stream, false);
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->cuStreamDestroy(stream), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->cuMemFree(memory), CUDA_SUCCESS);
	ck_assert_str_eq(warnings, "");
	end();
}
END_TEST

/* Nothing is opened or set up where the payload is not moved by a GPU's kernels. */
static const struct {
	const char *gpu, *devices, *loading;
} idle_rows[] = {
	{ NULL, "local", "eager" },
	{ "0", "local", "eager" },
	{ "1", "local", "lazy" },
	{ "1", "verbs:nic0", "eager" },
};

START_LOOP_TEST(idle, ROWS(idle_rows))
{
	set_local(idle_rows[_i].gpu);
	setenv("FERRULE_DEVICES", idle_rows[_i].devices, 1);
	setenv("FAKE_CUDA_LOADING", idle_rows[_i].loading, 1);
	begin();
	ck_assert(!is_open());
	ck_assert_uint_eq(fake->calls("cuModuleLoadData"), 0);
	ck_assert_uint_eq(fake->calls("cuMemHostRegister"), 0);
	ck_assert_uint_eq(fake->calls("cuMemAlloc"), 0);
	end();
}
END_TEST

/* A caller without a context, which NCCL is not: the first registration sets the GPU up. */
START_TEST(no_context)
{
	cu_context popped;
	struct pair pair;

	set_local("1");
	start_cuda();
	ck_assert_int_eq(cuda->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
	start_plugin();
	ck_assert(!is_open());
	ck_assert_uint_eq(fake->calls("cuModuleLoadData"), 0);
	ck_assert_int_eq(cuda->cuCtxPushCurrent(context), CUDA_SUCCESS);
	open_pair(&pair, false);
	transfer(&pair, 100000);
	close_pair(&pair);
	ck_assert_str_eq(warnings, "");
	end();
}
END_TEST

/* A set-up that fails at init is tried again when memory is registered, and does not end the
 * job. */
START_LOOP_TEST(fails_at_init, 6)
{
	static const char *const failing[] = { "cuModuleLoadData", "cuMemAlloc",
		"cuMemHostRegister" };
	struct pair pair;

	set_local("1");
	start_cuda();
	fake->fail_call(failing[_i / 2], 1, CUDA_ERROR_OUT_OF_MEMORY, 0);
	start_plugin();
	expect_logged("local has no resources for GPU 0 yet; .*CUDA_ERROR_OUT_OF_MEMORY");
	ck_assert(connect_pair(&pair));
	fake->fail_call(NULL, 0, CUDA_SUCCESS, 0);
	pair.sender.memory = take_memory(BYTES);
	pair.receiver.memory = take_memory(BYTES);
	if (_i % 2) {
		fake->fail_call(failing[_i / 2], 1, CUDA_ERROR_OUT_OF_MEMORY, 0);
		ck_assert_int_ne(register_end(&pair.sender), NCCL_SUCCESS);
		expect_logged("cannot register [0-9]+ bytes at .*CUDA_ERROR_OUT_OF_MEMORY");
		fake->fail_call(NULL, 0, CUDA_SUCCESS, 0);
	}
	warnings[0] = '\0';
	ck_assert_msg(register_end(&pair.sender) == NCCL_SUCCESS, "%s", warnings);
	ck_assert_msg(register_end(&pair.receiver) == NCCL_SUCCESS, "%s", warnings);
	transfer(&pair, 100000);
	close_pair(&pair);
	ck_assert_str_eq(warnings, "");
	end();
}
END_TEST

/* A second communicator of the process, on another GPU. Tables before v11 have one init for both;
 * each communicator asks for properties. */
START_LOOP_TEST(second_gpu, 2)
{
	struct nccl_properties_v8 v8;
	cu_context first, second;
	void *other = NULL;
	unsigned loads;

	set_local("1");
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	begin();
	loads = fake->calls("cuModuleLoadData");
	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->cuCtxPushCurrent(second), CUDA_SUCCESS);
	if (_i == 0)
		ck_assert_int_eq(ncclNetPlugin_v12.init(&other, 2, NULL, take_line, NULL), 0);
	else
		ck_assert_int_eq(ncclNetPlugin_v8.get_properties(NIC, &v8), 0);
	/* As many as for the first one: the second image is not in all builds. */
	ck_assert_uint_gt(loads, 0);
	ck_assert_uint_eq(fake->calls("cuModuleLoadData"), 2 * loads);
	use_what_is_there();
	if (other)
		ck_assert_int_eq(ncclNetPlugin_v12.finalize(other), NCCL_SUCCESS);
	ck_assert_int_eq(cuda->cuCtxPopCurrent(&first), CUDA_SUCCESS);
	use_what_is_there();
	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
	ck_assert_str_eq(warnings, "");
	end();
}
END_TEST

TEST_MAIN(nccl_gpu_init)
{
	if (!fake_cuda_find()) {
		printf("SKIP: it needs the double of CUDA's driver, to count its calls\n");
		return 77;
	}
	set_socket_path();
	setenv("FERRULE_TIMEOUT_S", "1", 1);
	setenv("FAKE_CUDA_LOADING", "eager", 1);
	/* Settings are read once in a process. */
	return run_with_daemon(run_suite_forked, all_tests(NULL, NULL));
}
