/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory kind of an operation's buffers. A process without CUDA is asked nothing more. With
 * CUDA, the driver is asked about every buffer, since an address may have become GPU memory.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator.h"
#include "collectives/compute.h"
#include "collectives/shapes.h"
#include "gpudirect/memory.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"

static const char *const names[] = { [PLAN_SEND] = "send", [PLAN_RECV] = "receive" };

static int look_at(const struct frl_collective *c, enum plan_buffer buffer, const void *addr,
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
static int find_compute(struct where *where, struct frl_comm *comm, const struct frl_collective *c,
	const struct gpu_memory memory[2])
{
	const struct gpu_memory *first = &memory[where->on_gpu[PLAN_SEND] ? PLAN_SEND : PLAN_RECV];
	cu_context context = first->context;
	int err;

	if (where->on_gpu[PLAN_SEND] && where->on_gpu[PLAN_RECV]) {
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
	err = compute_get(comm, context, first->ordinal, &where->compute);
	return err ? err : compute_need_queue(where->compute);
}

/* Checks access rights: a kernel that violates them ends CUDA for the whole process. */
static int check_rights(const struct where *where, const struct operation *operation,
	const struct frl_collective *c, const struct gpu_memory memory[2])
{
	const void *const addrs[] = { [PLAN_SEND] = c->send, [PLAN_RECV] = c->recv };
	int err = 0;

	for (int i = PLAN_SEND; i <= PLAN_RECV && !err; i++) {
		if (where->on_gpu[i])
			err = gpu_memory_check_rights(where->compute->gpu, &memory[i], addrs[i],
				operation->bytes[i], i == PLAN_RECV);
	}
	return err;
}

static int find_buffers(struct where *where, struct frl_comm *comm,
	const struct operation *operation, const struct frl_collective *c)
{
	const void *const addrs[] = { [PLAN_SEND] = c->send, [PLAN_RECV] = c->recv };
	struct gpu_memory memory[2];
	int err;

	for (int i = PLAN_SEND; i <= PLAN_RECV; i++) {
		enum plan_buffer buffer = (enum plan_buffer)i;

		if (operation->bytes[i] == 0)
			continue;
		err = look_at(c, buffer, addrs[i], operation->bytes[i], &memory[i]);
		if (err)
			return err;
		where->on_gpu[i] = memory[i].kind != GPU_MEMORY_HOST;
	}
	if (!where->on_gpu[PLAN_SEND] && !where->on_gpu[PLAN_RECV])
		return 0;
	err = find_compute(where, comm, c, memory);
	return err ? err : check_rights(where, operation, c, memory);
}

int where_find(struct where *ret_where, struct frl_comm *comm, const struct operation *operation,
	const struct frl_collective *c, bool has_cuda)
{
	int err;

	*ret_where = (struct where){ 0 };
	if (!c->on_stream && !has_cuda)
		return 0;
	err = find_buffers(ret_where, comm, operation, c);
	if (err || !c->on_stream || operation->is_empty)
		return err;
	err = gate_make(comm, c->stream, ret_where->compute, &ret_where->gate);
	/* A rank without elements waits for nothing, even if the collective has elements on
	 * others. */
	if (err == -EINVAL && shape_has_pieces(c->coll) && operation->bytes[PLAN_SEND] == 0 &&
		operation->bytes[PLAN_RECV] == 0)
		return 0;
	return err;
}
