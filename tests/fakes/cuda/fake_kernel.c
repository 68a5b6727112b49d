/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: the kernel ferrule_work, one thread of its grid after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpudirect/kernels/work_body.h"
#include "tests/fakes/cuda/fake_internal.h"

static bool reach(const struct fake_context *context, uint64_t *address, uint64_t size,
	bool is_written, const char *what, unsigned piece)
{
	char text[64];
	uint8_t *at;

	snprintf(text, sizeof(text), "%s of piece %u of ferrule_work", what, piece);
	at = fake_reach(context, *address, size, is_written, text);
	*address = (uint64_t)(uintptr_t)at;
	return at != NULL;
}

static bool pieces_translate(
	const struct fake_context *context, struct gpu_work *pieces, uint32_t n_pieces)
{
	for (uint32_t i = 0; i < n_pieces; i++) {
		struct gpu_work *work = &pieces[i];
		uint64_t operand = gpu_work_operand_bytes(work);

		if (!reach(context, &work->src, gpu_work_src_bytes(work), false, "the source", i) ||
			!reach(context, &work->dst, gpu_work_dst_bytes(work), true, "the target",
				i) ||
			(work->also &&
				!reach(context, &work->also, gpu_work_dst_bytes(work), true,
					"the second target", i)) ||
			(operand > 0 &&
				!reach(context, &work->operand, operand, false, "the operand", i)))
			return false;
	}
	return true;
}

bool fake_kernel_translate(const struct fake_context *context, struct gpu_batch_many *batch)
{
	return pieces_translate(context, batch->pieces, batch->n_pieces) &&
		reach(context, &batch->done, 8, true, "the word that says done", 0) &&
		(batch->n_blocks == 1 ||
			reach(context, &batch->counter, 4, true, "the counter of blocks", 0));
}

/* Visits 0 to n - 1 once, in an order that looks random: by a step that has no common divisor with
 * n. */
struct order {
	uint64_t n, at, step;
};

static uint64_t divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static struct order order_begin(uint64_t n, uint64_t seed)
{
	struct order order = { n, seed % n, (seed >> 20) % n };

	while (order.step == 0 || divisor(order.step, n) != 1)
		order.step = order.step % n + 1;
	return order;
}

static uint64_t order_next(struct order *order)
{
	uint64_t at = order->at;

	order->at = (order->at + order->step) % order->n;
	return at;
}

void fake_kernel_run(
	const struct gpu_batch_many *batch, unsigned grid, unsigned block, uint64_t seed)
{
	uint32_t *counter = (uint32_t *)(uintptr_t)batch->counter;
	uint64_t *done = (uint64_t *)(uintptr_t)batch->done;
	struct order blocks = order_begin(grid, seed);

	for (unsigned i = 0; i < grid; i++) {
		uint32_t at = (uint32_t)order_next(&blocks);
		struct order threads = order_begin(block, seed / (at + 1) + at);

		for (unsigned j = 0; j < block; j++)
			gpu_pieces_share(batch->pieces, batch->first_block, batch->n_pieces, at,
				(uint32_t)order_next(&threads));
		/* As in kernels.cu: the last thread to count reports completion. */
		if (grid > 1 && (*counter)++ != grid - 1)
			continue;
		if (grid > 1)
			*counter = 0;
		__atomic_store_n(done, batch->sequence, __ATOMIC_RELEASE);
	}
}
