/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks: memory that the communicator keeps for runs on GPU memory. A block is scratch or a ring
 * in GPU memory, or a bounce buffer in host memory that the GPU can access.
 *
 * Allocating from the CUDA driver is slow. Freeing may wait until the GPU is idle, that is for
 * kernels of the application, which may wait for this rank. Blocks are therefore kept, with their
 * registrations, for later runs. They are freed when memory runs out and when the communicator is
 * destroyed.
 */
#include <errno.h>
#include <stdlib.h>

#include "collectives/communicator/communicator.h"
#include "collectives/gpu/compute.h"
#include "gpudirect/alloc.h"
#include "gpudirect/gpu.h"
#include "gpudirect/host.h"
#include "lib/base/error.h"

enum {
	BLOCK_LEAST = 64 << 10,
	ROUNDED_MOST = 256 << 20, /* bytes; longer blocks are not rounded up */
};

/* ---- one block */

static int get_memory(struct block *block)
{
	struct gpu *gpu = block->compute->gpu;
	int err;

	if (block->is_on_gpu)
		return gpu_alloc(gpu, block->bytes, &block->base);
	block->base = frl_mem_alloc(block->bytes);
	if (!block->base)
		return -ENOMEM;
	err = gpu_host_map(gpu, block->base, block->bytes);
	if (!err)
		return 0;
	frl_mem_free(block->base, block->bytes);
	block->base = NULL;
	return err;
}

static void give_memory_back(struct block *block)
{
	struct gpu *gpu = block->compute->gpu;

	if (block->is_on_gpu) {
		gpu_free(gpu, block->base);
		return;
	}
	gpu_host_unmap(gpu, block->base, block->bytes);
	frl_mem_free(block->base, block->bytes);
}

/* Returns false if a device still uses a registration. Its memory is then leaked on purpose. */
static bool deregister(const struct block *block)
{
	const struct frl_comm *comm = block->compute->comm;
	bool is_done = true;

	for (unsigned rail = 0; rail < comm->n_rails; rail++) {
		is_done = rail_end_registration(comm, rail, block->mr[rail]) == 0 && is_done;
	}
	return is_done;
}

static void block_free(struct block *block)
{
	if (deregister(block))
		give_memory_back(block);
	free(block);
}

static int block_new(
	struct compute *compute, bool is_on_gpu, size_t bytes, struct block **ret_block)
{
	struct block *block = calloc(1, sizeof(*block));
	int err;

	if (!block)
		return frl_fail(-ENOMEM, "no memory for an operation");
	block->compute = compute;
	block->is_on_gpu = is_on_gpu;
	block->bytes = bytes;
	err = get_memory(block);
	if (err) {
		free(block);
		return err;
	}
	*ret_block = block;
	return 0;
}

/* ---- idle blocks */

/* Rounds up to a power of two, so that runs of similar size can share a block. */
static size_t size_of(size_t bytes)
{
	size_t size = BLOCK_LEAST;

	if (bytes > ROUNDED_MOST)
		return bytes;
	while (size < bytes)
		size *= 2;
	return size;
}

/* Returns the shortest idle block that is long enough, or NULL. */
static struct block *find_idle(struct compute *compute, bool is_on_gpu, size_t bytes)
{
	struct block **best = NULL, *block;

	for (struct block **at = &compute->idle_blocks; *at; at = &(*at)->next) {
		block = *at;
		if (block->is_on_gpu == is_on_gpu && block->bytes >= bytes &&
			(!best || block->bytes < (*best)->bytes))
			best = at;
	}
	if (!best)
		return NULL;
	block = *best;
	*best = block->next;
	return block;
}

/* Returns whether a block was freed. */
static bool free_idle(struct compute *compute)
{
	bool had_some = compute->idle_blocks;

	while (compute->idle_blocks) {
		struct block *block = compute->idle_blocks;

		compute->idle_blocks = block->next;
		block_free(block);
	}
	return had_some;
}

/* Frees all idle blocks, and trims the registration caches: a cached registration pins memory
 * that the application has freed. */
static bool free_all_idle(struct frl_comm *comm)
{
	bool had_some = false;

	comm->hooks->give_idle(comm);
	for (unsigned i = 0; i < comm->n_rails; i++) {
		frl_mr_cache_trim(comm->rails[i].cache);
		had_some = had_some || comm->rails[i].cache;
	}
	for (struct compute *compute = comm->computes; compute; compute = compute->next)
		had_some = free_idle(compute) || had_some;
	return had_some;
}

int block_get(struct compute *compute, bool is_on_gpu, size_t bytes, struct block **ret_block)
{
	struct block *block = find_idle(compute, is_on_gpu, bytes);
	int err;

	if (block) {
		*ret_block = block;
		return 0;
	}
	err = block_new(compute, is_on_gpu, size_of(bytes), ret_block);
	if (err == -ENOMEM && free_all_idle(compute->comm))
		err = block_new(compute, is_on_gpu, size_of(bytes), ret_block);
	/* The rounded size may be too large; the exact size may fit. */
	if (err == -ENOMEM && size_of(bytes) > bytes)
		err = block_new(compute, is_on_gpu, bytes, ret_block);
	return err;
}

int block_look(struct block *block)
{
	block->mapped = gpu_host_address(block->compute->gpu, block->base, block->bytes);
	return block->mapped ? 0
			     : frl_fail(-EIO,
				       "GPU %d can no longer access host memory that was mapped "
				       "for it: was its context reset?",
				       block->compute->gpu->ordinal);
}

int block_register(struct block *block)
{
	struct frl_comm *comm = block->compute->comm;
	int err = 0;

	for (unsigned rail = 0; rail < comm->n_rails && !err; rail++) {
		if (!block->mr[rail])
			err = rail_register(comm, rail, PLAN_SCRATCH, block->base, block->bytes,
				&block->mr[rail]);
	}
	return err;
}

void block_put(struct block *block)
{
	if (!block)
		return;
	block->next = block->compute->idle_blocks;
	block->compute->idle_blocks = block;
}

void compute_anchor(struct compute *compute)
{
	if (compute->is_anchored)
		return;
	compute->is_anchored = true;
	if (block_get(compute, true, BLOCK_LEAST, &compute->anchor) == 0)
		block_register(compute->anchor);
}

void blocks_free(struct compute *compute)
{
	block_put(compute->anchor);
	compute->anchor = NULL;
	free_idle(compute);
}
