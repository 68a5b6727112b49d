/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/gpu/bounce.h"

#include <errno.h>
#include <stdlib.h>

#include "collectives/communicator/communicator.h"
#include "collectives/gpu/compute.h"
#include "lib/base/error.h"

enum { PIECE = 16 << 20 }; /* bytes per copy, at most */

/* ---- written ranges */

static int compare(const void *a, const void *b)
{
	const struct written *x = a, *y = b;

	if (x->buffer != y->buffer)
		return x->buffer < y->buffer ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Merges ranges that touch or overlap. */
static uint32_t merge(struct written *all, uint32_t n)
{
	uint32_t merged = 0;

	for (uint32_t i = 1; i < n; i++) {
		struct written *last = &all[merged];
		size_t end = last->offset + last->bytes;

		if (all[i].buffer != last->buffer || all[i].offset > end) {
			all[++merged] = all[i];
			continue;
		}
		if (all[i].offset + all[i].bytes > end)
			last->bytes = all[i].offset + all[i].bytes - last->offset;
	}
	return n > 0 ? merged + 1 : 0;
}

/* Finds the written ranges at first use. Memory between received pieces must not be overwritten. */
static int find_written(struct schedule *schedule)
{
	const struct plan *plan = &schedule->plan;
	struct written *all;
	uint32_t n = 0;

	if (schedule->written)
		return 0;
	all = calloc((size_t)plan->n_steps + 1, sizeof(*all));
	if (!all)
		return frl_fail(-ENOMEM, "no memory for a plan");
	for (uint32_t i = 0; i < plan->n_steps; i++) {
		const struct plan_step *step = &plan->steps[i];

		if (step->kind == PLAN_SENDS || step->target.buffer == PLAN_SCRATCH)
			continue;
		all[n++] = (struct written){ .buffer = step->target.buffer,
			.offset = step->target.offset,
			.bytes = schedule_bytes(schedule, &step->target, step->count) };
	}
	qsort(all, n, sizeof(*all), compare);
	schedule->n_written = merge(all, n);
	schedule->written = all;
	return 0;
}

/* ---- copies */

/* Gets a block for a number of bytes. block_look() is needed because a kernel that accesses
 * unmapped memory would end CUDA for the whole process. */
static int get_copy(struct compute *compute, size_t bytes, struct block **ret_block)
{
	struct block *block;
	int err = block_get(compute, false, bytes, &block);

	if (err)
		return err;
	err = block_look(block);
	if (err)
		block_put(block);
	else
		*ret_block = block;
	return err;
}

/* In place, one block holds both buffers at their distance. */
static int make_joint(struct run *run, struct bounce *bounce)
{
	uintptr_t send = (uintptr_t)run->base[PLAN_SEND], recv = (uintptr_t)run->base[PLAN_RECV];
	uintptr_t begin = send < recv ? send : recv;
	uintptr_t send_end = send + run->bytes[PLAN_SEND], recv_end = recv + run->bytes[PLAN_RECV];
	uintptr_t end = send_end > recv_end ? send_end : recv_end;
	struct block *block;
	int err = get_copy(bounce->compute, end - begin, &block);

	if (err)
		return err;
	bounce->blocks[0] = block;
	bounce->memory[PLAN_SEND] = run->base[PLAN_SEND];
	bounce->memory[PLAN_RECV] = run->base[PLAN_RECV];
	run->base[PLAN_SEND] = block->base + (send - begin);
	run->base[PLAN_RECV] = block->base + (recv - begin);
	return 0;
}

static int make_single(struct run *run, struct bounce *bounce, enum plan_buffer buffer)
{
	struct block *block;
	int err = get_copy(bounce->compute, run->bytes[buffer], &block);

	if (err)
		return err;
	bounce->blocks[buffer] = block;
	bounce->memory[buffer] = run->base[buffer];
	run->base[buffer] = block->base;
	return 0;
}

/* Registers a bounce buffer that large messages use. */
static int register_bounce(struct run *run, enum plan_buffer buffer, struct block *block)
{
	int err;

	if (!run->schedule || !run->schedule->in_bulk[buffer])
		return 0;
	err = block_register(block);
	if (!err)
		run_borrow(run, buffer, block->mr);
	return err;
}

int bounce_make(struct run *run, struct compute *compute, const bool on_gpu[2], bool in_place)
{
	struct bounce *bounce = calloc(1, sizeof(*bounce));
	int err = bounce ? 0 : frl_fail(-ENOMEM, "no memory for an operation");

	if (err)
		return err;
	bounce->compute = compute;
	run->bounce = bounce;
	if (run->schedule)
		err = find_written(run->schedule);
	if (!err && in_place)
		err = make_joint(run, bounce);
	for (int i = PLAN_SEND; i <= PLAN_RECV && !err && !in_place; i++) {
		if (on_gpu[i])
			err = make_single(run, bounce, (enum plan_buffer)i);
	}
	for (int i = PLAN_SEND; i <= PLAN_RECV && !err; i++) {
		if (bounce->memory[i])
			err = register_bounce(
				run, (enum plan_buffer)i, bounce->blocks[in_place ? 0 : i]);
	}
	return err;
}

void bounce_free(struct run *run)
{
	struct bounce *bounce = run->bounce;

	if (!bounce)
		return;
	block_put(bounce->blocks[0]);
	block_put(bounce->blocks[1]);
	free(bounce);
	run->bounce = NULL;
}

/* ---- copying */

static void finish(struct run *run)
{
	if (run->bounce->is_copying_out)
		request_run_done(run->request);
	else
		run->comm->hooks->open_run(run);
}

static void copies_done(const struct gpu_task *task)
{
	finish(task->run);
}

/* Returns the GPU's address of a position in a bounce buffer. */
static uint64_t mapped_at(const struct bounce *bounce, enum plan_buffer buffer, const uint8_t *at)
{
	const struct block *block = bounce->blocks[buffer] ? bounce->blocks[buffer]
							   : bounce->blocks[0];

	return block->mapped + (uint64_t)(at - block->base);
}

/* Adds a copy of the next piece. Returns false if the queue is full. */
static bool move_piece(struct run *run)
{
	struct bounce *bounce = run->bounce;
	const struct written *range = &bounce->all[bounce->next];
	size_t offset = range->offset + bounce->begun, left = range->bytes - bounce->begun;
	size_t bytes = left < PIECE ? left : PIECE;
	uint64_t device = (uint64_t)(uintptr_t)(bounce->memory[range->buffer] + offset);
	uint64_t mapped = mapped_at(bounce, range->buffer, run->base[range->buffer] + offset);
	const struct gpu_work work = {
		.dst = bounce->is_copying_out ? device : mapped,
		.src = bounce->is_copying_out ? mapped : device,
		.count = bytes,
		.action = GPU_COPY,
	};
	struct gpu_task task = { .run = run };

	if (bytes == left && bounce->next + 1 == bounce->n)
		task.done = copies_done;
	if (!compute_add(bounce->compute, &work, &task))
		return false;
	bounce->begun += bytes;
	if (bytes == left) {
		bounce->next++;
		bounce->begun = 0;
	}
	return true;
}

static bool is_copied(const struct bounce *bounce)
{
	return bounce->memory[bounce->all[bounce->next].buffer] != NULL;
}

/* Returns false if the queue is full; the copies are continued later. */
static bool move(struct run *run)
{
	struct bounce *bounce = run->bounce;

	while (bounce->next < bounce->n) {
		if (!move_piece(run))
			return false;
	}
	return true;
}

/* Ranges in the caller's host memory need no copies. Ranges are sorted by buffer, so these are
 * at one of the two ends. */
static void begin(struct run *run, bool is_copying_out, const struct written *all, uint32_t n)
{
	struct bounce *bounce = run->bounce;
	struct frl_comm *comm = run->comm;
	struct run **end = &comm->moving;

	bounce->is_copying_out = is_copying_out;
	bounce->all = all;
	bounce->n = n;
	bounce->next = 0;
	bounce->begun = 0;
	while (bounce->next < bounce->n && !is_copied(bounce))
		bounce->next++;
	while (bounce->n > bounce->next && !bounce->memory[all[bounce->n - 1].buffer])
		bounce->n--;
	if (bounce->next == bounce->n) {
		finish(run);
		return;
	}
	if (!comm->moving && move(run))
		return;
	while (*end)
		end = &(*end)->bounce->next_moving;
	bounce->next_moving = NULL;
	*end = run;
}

void bounce_copy_in(struct run *run)
{
	struct bounce *bounce = run->bounce;

	bounce->self = (struct written){ .buffer = PLAN_SEND, .bytes = run->bytes[PLAN_SEND] };
	begin(run, false, &bounce->self, bounce->memory[PLAN_SEND] && bounce->self.bytes > 0);
}

void bounce_copy_out(struct run *run)
{
	struct bounce *bounce = run->bounce;

	bounce->self = (struct written){ .buffer = PLAN_RECV, .bytes = run->bytes[PLAN_RECV] };
	if (run->schedule)
		begin(run, true, run->schedule->written, run->schedule->n_written);
	else
		begin(run, true, &bounce->self, bounce->self.bytes > 0);
}

int bounce_continue_all(struct frl_comm *comm)
{
	int events = 0;

	while (comm->moving && move(comm->moving)) {
		comm->moving = comm->moving->bounce->next_moving;
		events++;
	}
	return events;
}
