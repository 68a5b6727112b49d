/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/staged.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpudirect/gpu.h"
#include "gpudirect/host.h"
#include "lib/base/error.h"

enum {
	/* Pieces are cut at multiples of this: encodings of what lies between two such places are
	 * parts of the whole one. */
	UNIT = FRL_WIRE_BLOCK,
	ALIGNMENT = 64,
};

/* A plan while it is made. */
struct maker {
	struct staged_plan *plan;
	const struct gpu *gpu;
	uint8_t *scratch;
	size_t size, used; /* of the scratch, by slices that are in no call yet: */
	uint32_t first;    /* those from here on */
	void *owner;
	bool has_memory;
};

/* ---- lists that grow */

/* One more entry, all zeros; NULL: no memory. */
static void *extend(struct maker *m, void **entries, uint32_t *n, uint32_t *room, size_t size)
{
	uint8_t *all = *entries;

	if (*n == *room) {
		uint32_t more = *room ? *room * 2 : GPU_BATCH_PIECES + 2;

		all = realloc(all, more * size);
		if (!all) {
			m->has_memory = false;
			return NULL;
		}
		*entries = all;
		*room = more;
	}
	return memset(all + (*n)++ * size, 0, size);
}

static void add_op(struct maker *m, struct staged_op op)
{
	struct staged_plan *plan = m->plan;
	void *ops = plan->ops;
	struct staged_op *entry = extend(m, &ops, &plan->n_ops, &plan->room_ops, sizeof(*entry));

	plan->ops = ops;
	if (entry)
		*entry = op;
}

static struct staged_slice *add_slice(struct maker *m)
{
	struct staged_plan *plan = m->plan;
	void *slices = plan->slices;
	struct staged_slice *entry = extend(
		m, &slices, &plan->n_slices, &plan->room_slices, sizeof(*entry));

	plan->slices = slices;
	return entry;
}

static struct staged_call *add_call(struct maker *m)
{
	struct staged_plan *plan = m->plan;
	void *calls = plan->calls;
	struct staged_call *entry = extend(
		m, &calls, &plan->n_calls, &plan->room_calls, sizeof(*entry));

	plan->calls = calls;
	return entry;
}

/* ---- calls */

static void store(struct maker *m, uint64_t dst, const uint8_t *src, size_t bytes)
{
	if (dst)
		add_op(m,
			(struct staged_op){ .kind = STAGED_TO_GPU,
				.dst = dst,
				.src = (uintptr_t)src,
				.bytes = bytes });
}

/* The slices since the last one get theirs, and their results go where they are to be. */
static void close_call(struct maker *m, uint64_t sequence)
{
	struct staged_plan *plan = m->plan;
	struct staged_call *call = add_call(m);

	if (!call)
		return;
	*call = (struct staged_call){
		.owner = m->owner, .first = m->first, .end = plan->n_slices, .sequence = sequence
	};
	add_op(m, (struct staged_op){ .kind = STAGED_CALL, .call = plan->n_calls - 1 });
	for (uint32_t i = m->first; i < plan->n_slices; i++) {
		const struct staged_slice *slice = &plan->slices[i];
		size_t bytes = gpu_work_dst_bytes(&slice->work);

		store(m, slice->work.dst, slice->dst, bytes);
		store(m, slice->work.also, slice->dst, bytes);
	}
	m->first = plan->n_slices;
	m->used = 0;
}

/* ---- what is computed */

static size_t round_up(uint64_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint8_t *take(struct maker *m, uint64_t bytes)
{
	uint8_t *at = m->scratch + m->used;

	m->used += round_up(bytes);
	return at;
}

/* How many of the `left` elements the scratch has room for: a multiple of UNIT, or all. */
static uint64_t fitting(const struct maker *m, struct gpu_work work, uint64_t left)
{
	size_t room = m->size - m->used, each;

	work.count = left;
	if (round_up(gpu_work_src_bytes(&work)) + round_up(gpu_work_operand_bytes(&work)) +
			round_up(gpu_work_dst_bytes(&work)) <=
		room)
		return left;
	work.count = UNIT;
	each = gpu_work_src_bytes(&work) + gpu_work_operand_bytes(&work) +
		gpu_work_dst_bytes(&work);
	return room < 3 * ALIGNMENT ? 0 : (room - 3 * ALIGNMENT) / each * UNIT;
}

/* Where the processor finds what a slice reads. Host memory is read as it lies, but for float32 of
 * the wire's types, which has to be aligned: that is copied, as *ret_copy. */
static const uint8_t *load(
	struct maker *m, uint64_t address, uint64_t bytes, bool is_wire, const uint8_t **ret_copy)
{
	const uint8_t *host = gpu_host_pointer(m->gpu, address, bytes);
	uint8_t *at;

	if (host && !is_wire)
		return host;
	at = take(m, bytes);
	*ret_copy = host;
	if (!host)
		add_op(m,
			(struct staged_op){ .kind = STAGED_TO_HOST,
				.dst = (uintptr_t)at,
				.src = address,
				.bytes = bytes });
	return at;
}

/* Elements of a piece, from `first` on. */
static void cut(struct maker *m, const struct gpu_work *work, uint64_t first, uint64_t count)
{
	bool is_wire = work->action >= GPU_ENCODE;
	struct staged_slice *slice = add_slice(m);
	struct gpu_work before = *work;
	uint64_t dst, operand, bytes;

	if (!slice)
		return;
	before.count = first;
	slice->work = *work;
	slice->work.count = count;
	dst = work->dst + gpu_work_dst_bytes(&before);
	operand = gpu_work_operand_bytes(&slice->work);
	bytes = gpu_work_dst_bytes(&slice->work);
	slice->src = load(m, work->src + gpu_work_src_bytes(&before),
		gpu_work_src_bytes(&slice->work), is_wire, &slice->copy[0]);
	if (operand)
		slice->operand = load(m, work->operand + gpu_work_operand_bytes(&before), operand,
			is_wire, &slice->copy[1]);
	slice->dst = take(m, bytes);
	slice->host[0] = gpu_host_pointer(m->gpu, dst, bytes);
	slice->work.dst = slice->host[0] ? 0 : dst;
	slice->work.also = 0;
	if (!work->also)
		return;
	dst = work->also + gpu_work_dst_bytes(&before);
	slice->host[1] = gpu_host_pointer(m->gpu, dst, bytes);
	slice->work.also = slice->host[1] ? 0 : dst;
}

/* What leaves its target as it is does so here, too. */
static bool does_nothing(const struct gpu_work *work)
{
	return (work->action == GPU_DIVIDE && work->divisor == 0) || !gpu_work_dst_bytes(work);
}

static void compute(struct maker *m, const struct gpu_work *work)
{
	uint64_t first = 0, n;

	while (first < work->count && m->has_memory) {
		n = fitting(m, *work, work->count - first);
		if (n)
			cut(m, work, first, n);
		else
			close_call(m, 0);
		first += n;
	}
}

/* ---- what is copied */

static void copy(struct maker *m, const struct gpu_work *work, uint64_t target)
{
	uint8_t *dst = gpu_host_pointer(m->gpu, target, work->count);
	const uint8_t *src = gpu_host_pointer(m->gpu, work->src, work->count);
	struct staged_op op = { .bytes = work->count,
		.kind = dst   ? STAGED_TO_HOST
			: src ? STAGED_TO_GPU
			      : STAGED_ON_GPU,
		.dst = dst ? (uintptr_t)dst : target,
		.src = src ? (uintptr_t)src : work->src };
	struct staged_slice *slice;

	if (target == work->src)
		return;
	if (!dst || !src) {
		add_op(m, op);
		return;
	}
	slice = add_slice(m);
	if (!slice)
		return;
	slice->work.action = GPU_COPY;
	slice->work.count = work->count;
	slice->src = src;
	slice->host[0] = dst;
}

/* ---- plans */

int staged_plan_make(struct staged_plan *plan, const struct gpu *gpu, const struct gpu_work *pieces,
	uint32_t n_pieces, uint8_t *scratch, size_t scratch_bytes, uint64_t sequence, void *owner)
{
	struct maker m = { .plan = plan,
		.gpu = gpu,
		.scratch = scratch,
		.size = scratch_bytes,
		.owner = owner,
		.has_memory = true };

	plan->n_ops = plan->n_slices = plan->n_calls = 0;
	for (uint32_t i = 0; i < n_pieces; i++) {
		const struct gpu_work *work = &pieces[i];

		if (does_nothing(work))
			continue;
		if (work->action != GPU_COPY) {
			compute(&m, work);
			continue;
		}
		copy(&m, work, work->dst);
		if (work->also)
			copy(&m, work, work->also);
	}
	if (m.first < plan->n_slices)
		close_call(&m, 0);
	close_call(&m, sequence);
	for (uint32_t i = 0; i < plan->n_calls; i++)
		plan->calls[i].plan = plan;
	return m.has_memory ? 0 : frl_fail(-ENOMEM, "no memory for copies to and from a GPU");
}

void staged_plan_free(struct staged_plan *plan)
{
	free(plan->ops);
	free(plan->slices);
	free(plan->calls);
	*plan = (struct staged_plan){ 0 };
}

/* ---- calls, in a thread of the driver's */

static void compute_slice(const struct staged_slice *slice)
{
	const struct gpu_work *work = &slice->work;
	enum frl_dtype dtype = (enum frl_dtype)work->dtype;
	enum frl_wire wire = (enum frl_wire)work->wire;
	enum frl_op op = (enum frl_op)work->op;
	const void *src = slice->src, *operand = slice->operand;
	void *dst = slice->dst;
	size_t count = work->count;

	switch (work->action) {
	case GPU_REDUCE: frl_reduce_local(dst, operand, src, count, dtype, op); break;
	case GPU_SCALE: frl_scale_local(dst, src, count, dtype, work->scalar); break;
	case GPU_DIVIDE: frl_divide_local(dst, src, count, dtype, work->divisor); break;
	case GPU_ENCODE: frl_wire_encode(dst, src, count, wire); break;
	case GPU_DECODE: frl_wire_decode(dst, src, count, wire); break;
	case GPU_DECODE_REDUCE: frl_wire_decode_reduce(dst, operand, src, count, wire, op); break;
	default: break;
	}
}

static void run_slice(const struct staged_slice *slice)
{
	const struct gpu_work *work = &slice->work;
	const uint8_t *result = slice->dst ? slice->dst : slice->src;

	if (slice->copy[0])
		memcpy((void *)slice->src, slice->copy[0], gpu_work_src_bytes(work));
	if (slice->copy[1])
		memcpy((void *)slice->operand, slice->copy[1], gpu_work_operand_bytes(work));
	compute_slice(slice);
	for (int i = 0; i < 2; i++) {
		if (slice->host[i])
			memcpy(slice->host[i], result, gpu_work_dst_bytes(work));
	}
}

void staged_run(const struct staged_call *call)
{
	for (uint32_t i = call->first; i < call->end; i++)
		run_slice(&call->plan->slices[i]);
}
