/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory kind of an operation's buffers. In a process without CUDA they are host memory. With
 * CUDA, the driver is asked about every buffer, since an address may have become GPU memory.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/gpu/memory_kind.h"

#include "collectives/communicator/communicator.h"
#include "collectives/communicator/operation.h"
#include "collectives/gpu/compute.h"
#include "collectives/plan/shapes.h"
#include "gpudirect/memory.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"

static const char *const names[] = { [PLAN_SEND] = "send", [PLAN_RECV] = "receive" };

/* Finds the kind of one buffer's memory. Fails with -ENOTSUP for managed memory. */
static int find_kind(const struct frl_collective *c, enum plan_buffer buffer, const void *addr,
	size_t bytes, struct gpu_memory *ret_memory)
{
	char why[ERROR_TEXT];
	int err = gpu_memory_look(addr, bytes, ret_memory);

	if (err) {
		snprintf(why, sizeof(why), "%s", frl_last_error());
		return frl_fail(err, "%s: the %s buffer, %zu bytes at %p: %s",
			frl_coll_name(c->coll), names[buffer], bytes, addr, why);
	}
	if (ret_memory->kind == GPU_MEMORY_MANAGED)
		return frl_fail(-ENOTSUP,
			"%s: the %s buffer is managed memory, which CUDA moves between GPU and "
			"host at any time: use cudaMalloc(), or host memory",
			frl_coll_name(c->coll), names[buffer]);
	return 0;
}

/* Memory without a context (pools, mappings) is used in the context of the other buffer. */
static int find_compute(struct memory_kinds *kinds, struct frl_comm *comm,
	const struct frl_collective *c, const struct gpu_memory memory[2])
{
	const struct gpu_memory *first = &memory[kinds->on_gpu[PLAN_SEND] ? PLAN_SEND : PLAN_RECV];
	cu_context context = first->context;
	int err;

	if (kinds->on_gpu[PLAN_SEND] && kinds->on_gpu[PLAN_RECV]) {
		const struct gpu_memory *other = &memory[PLAN_RECV];

		if (first->ordinal != other->ordinal)
			return frl_fail(-EINVAL,
				"%s: the send buffer is memory of GPU %d and the receive buffer of "
				"GPU %d: both must be of one GPU",
				frl_coll_name(c->coll), first->ordinal, other->ordinal);
		if (context && other->context && context != other->context)
			return frl_fail(-EINVAL,
				"%s: the buffers are of two CUDA contexts of GPU %d: both must be "
				"of one",
				frl_coll_name(c->coll), first->ordinal);
		if (!context)
			context = other->context;
	}
	if (strcmp(settings_get()->gpu_tier, "off") == 0)
		return frl_fail(-ENOTSUP,
			"%s: a buffer is memory of GPU %d, which FRL_GPU_TIER=off refuses",
			frl_coll_name(c->coll), first->ordinal);
	err = compute_get(comm, context, first->ordinal, &kinds->compute);
	return err ? err : compute_need_queue(kinds->compute);
}

/* Checks access rights: a kernel that violates them ends CUDA for the whole process. */
static int check_rights(const struct memory_kinds *kinds, const struct operation *operation,
	const struct frl_collective *c, const struct gpu_memory memory[2])
{
	const void *const addrs[] = { [PLAN_SEND] = c->send, [PLAN_RECV] = c->recv };
	int err = 0;

	for (int i = PLAN_SEND; i <= PLAN_RECV && !err; i++) {
		if (kinds->on_gpu[i])
			err = gpu_memory_check_rights(kinds->compute->gpu, &memory[i], addrs[i],
				operation->bytes[i], i == PLAN_RECV);
	}
	return err;
}

static int find_buffers(struct memory_kinds *kinds, struct frl_comm *comm,
	const struct operation *operation, const struct frl_collective *c)
{
	const void *const addrs[] = { [PLAN_SEND] = c->send, [PLAN_RECV] = c->recv };
	struct gpu_memory memory[2];
	int err;

	for (int i = PLAN_SEND; i <= PLAN_RECV; i++) {
		enum plan_buffer buffer = (enum plan_buffer)i;

		if (operation->bytes[i] == 0)
			continue;
		err = find_kind(c, buffer, addrs[i], operation->bytes[i], &memory[i]);
		if (err)
			return err;
		kinds->on_gpu[i] = memory[i].kind != GPU_MEMORY_HOST;
	}
	if (!kinds->on_gpu[PLAN_SEND] && !kinds->on_gpu[PLAN_RECV])
		return 0;
	err = find_compute(kinds, comm, c, memory);
	return err ? err : check_rights(kinds, operation, c, memory);
}

int memory_kinds_find(struct memory_kinds *ret_kinds, struct frl_comm *comm,
	const struct operation *operation, const struct frl_collective *c, bool has_cuda)
{
	int err;

	*ret_kinds = (struct memory_kinds){ 0 };
	if (!c->on_stream && !has_cuda)
		return 0;
	err = find_buffers(ret_kinds, comm, operation, c);
	if (err || !c->on_stream || operation->is_empty)
		return err;
	err = stream_wait_make(comm, c->stream, ret_kinds->compute, &ret_kinds->stream_wait);
	/* A rank without elements waits for nothing, even if the collective has elements on
	 * others. */
	if (err == -EINVAL && shape_has_pieces(c->coll) && operation->bytes[PLAN_SEND] == 0 &&
		operation->bytes[PLAN_RECV] == 0)
		return 0;
	return err;
}
