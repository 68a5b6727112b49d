/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plugin with memory of GPUs: the double of CUDA's driver in the state in which NCCL calls
 * init, and a connection of the process with itself. NICs are those of
 * tests/fakes/verbs/fake_verbs.h.
 */
#ifndef FERRULE_TESTS_UNIT_NCCL_NCCL_GPU_FIXTURE_H
#define FERRULE_TESTS_UNIT_NCCL_NCCL_GPU_FIXTURE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpudirect/cuda/cuda.h"
#include "nccl/connect/setup.h"
#include "nccl/api/tables.h"
#include "tests/fakes/cuda/fake_libcuda.h"
#include "tests/fixtures/bootstrap_fixture.h"
#include "tests/unit/nccl/nccl_log.h"
#include "tests/unit/nccl/nccl_verbs_fixture.h"
#include "tests/fixtures/program.h"

enum {
	BYTES = 3 << 20,
	TAG = 5,
	NIC = 0, /* the first device */
};

static const struct fake_cuda *fake;
static const struct cuda_api *cuda;
static cu_context context;
static void *net;

/* NCCL's calls before it asks a plugin for anything. */
static inline void start_cuda(void)
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

static inline void start_plugin(void)
{
	warnings[0] = '\0';
	plug_in(64, false);
	ck_assert_int_eq(ncclNetPlugin_v12.init(&net, 1, NULL, take_line, NULL), NCCL_SUCCESS);
}

static inline void begin(void)
{
	start_cuda();
	start_plugin();
}

static inline void end(void)
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

static inline cu_deviceptr take_memory(size_t size)
{
	cu_deviceptr address;

	ck_assert_int_eq(cuda->cuMemAlloc(&address, size), CUDA_SUCCESS);
	return address;
}

static inline void *pointer(cu_deviceptr address)
{
	return (void *)(uintptr_t)address;
}

/* ---- messages */

struct end {
	void *comm, *mr, *request;
	cu_deviceptr memory;
};

struct pair {
	struct end sender, receiver;
};

static inline bool connect_pair(struct pair *pair)
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
static inline int give_memory(struct end *end, bool is_dmabuf)
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

static inline void open_pair(struct pair *pair, bool is_dmabuf)
{
	ck_assert(connect_pair(pair));
	ck_assert_msg(give_memory(&pair->sender, is_dmabuf) == NCCL_SUCCESS, "%s", warnings);
	ck_assert_msg(give_memory(&pair->receiver, is_dmabuf) == NCCL_SUCCESS, "%s", warnings);
}

static inline void close_end(struct end *end)
{
	if (end->mr)
		ck_assert_int_eq(ncclNetPlugin_v12.dereg_mr(end->comm, end->mr), NCCL_SUCCESS);
	if (end->memory)
		ck_assert_int_eq(cuda->cuMemFree(end->memory), CUDA_SUCCESS);
	if (end->comm)
		ck_assert_int_eq(ncclNetPlugin_v12.close_send(end->comm), NCCL_SUCCESS);
}

static inline void close_pair(struct pair *pair)
{
	close_end(&pair->sender);
	close_end(&pair->receiver);
}

static inline void await(struct end *end)
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

static inline void post(struct pair *pair, size_t size)
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

static inline void transfer(struct pair *pair, size_t size)
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

#endif
