/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/launch_ring.h"

#include <assert.h>
#include <string.h>

#include "gpudirect/image.h"

static_assert(offsetof(struct gpu_batch, n_pieces) % 8 == 0 &&
		offsetof(struct gpu_batch, n_blocks) == offsetof(struct gpu_batch, n_pieces) + 4,
	"they are read and written as one");
static_assert(offsetof(struct gpu_batch, pieces) % 8 == 0, "what is ahead is whole words");
static_assert(
	offsetof(struct gpu_batch, first_block) == offsetof(struct gpu_batch_many, first_block),
	"what is ahead is the same in both");

static struct ring_launcher *of(struct launcher *launcher)
{
	return (struct ring_launcher *)launcher;
}

/* In the context. The state is set in the stream itself, ahead of all that uses it. */
static cu_result begin(struct ring_launcher *own, struct gpu *gpu, const char **ret_call)
{
	/* Where batch GPU_RING_SLOTS comes: this is read before there is the first one. */
	struct gpu_ring_state *initial = (void *)own->ring->slots;
	cu_result result = launcher_begin(&own->base, ret_call);

	if (result)
		return result;
	*ret_call = "cuMemAlloc";
	result = gpu->cuda->cuMemAlloc(&own->state, sizeof(*initial));
	if (result)
		return result;
	initial->next = UINT64_C(1) << GPU_RING_UNIT_BITS;
	*ret_call = "cuMemcpyHtoDAsync";
	return gpu->cuda->cuMemcpyHtoDAsync(
		own->state, initial, sizeof(*initial), own->base.stream);
}

static int map(struct ring_launcher *own, struct gpu *gpu)
{
	void *ring = NULL;
	int rc = launcher_map(gpu, sizeof(*own->ring), &ring, &own->ring_address);

	if (!rc)
		own->ring = ring;
	return rc;
}

int launch_ring_make(struct ring_launcher *own, const struct launcher_ops *ops, struct gpu *gpu)
{
	uint32_t processors = (uint32_t)gpu->caps.multiprocessors;
	struct gpu_scope scope;
	const char *call;
	cu_result result;
	int rc = image_load_ring(gpu, &own->function);

	if (rc)
		return rc;
	own->next = 1;
	own->n_blocks = processors < GPU_RING_BLOCKS ? processors : GPU_RING_BLOCKS;
	rc = launcher_prepare(&own->base, ops, gpu);
	if (!rc)
		rc = map(own, gpu);
	if (!rc)
		rc = gpu_enter(gpu, &scope);
	if (rc)
		return rc;
	result = begin(own, gpu, &call);
	if (result) {
		rc = cuda_fail(result, call, "making a queue of work for a GPU");
		launcher_end(&own->base, 0, true);
	}
	gpu_leave(&scope);
	return rc;
}

void launch_ring_end(struct ring_launcher *own)
{
	struct gpu_scope scope;

	if (gpu_enter(own->base.gpu, &scope))
		return;
	launcher_end(&own->base, 0, true);
	gpu_leave(&scope);
}

void launch_ring_unmake(struct launcher *launcher)
{
	if (of(launcher)->state)
		launcher->gpu->cuda->cuMemFree(of(launcher)->state);
}

void launch_ring_forget(struct ring_launcher *own)
{
	if (launcher_forget(&own->base))
		launcher_unmap(own->base.gpu, own->ring, sizeof(*own->ring));
}

/* A block that is late may look at a head that is filled in anew, and then sees that it is too late
 * (ring_take()): so its words are stored as such. */
uint64_t launch_ring_fill(
	struct ring_launcher *own, uint64_t number, struct launch *open, uint64_t sequence)
{
	struct gpu_batch *slot = &own->ring->slots[number % GPU_RING_SLOTS];
	struct gpu_batch_many *batch = &open->batch;
	const size_t word = offsetof(struct gpu_batch, n_pieces) / sizeof(uint64_t);
	uint64_t words[offsetof(struct gpu_batch, pieces) / sizeof(uint64_t)];

	assert(batch->n_pieces <= GPU_BATCH_PIECES);
	launch_deal(open, own->n_blocks);
	batch->done = launcher_done_address(&own->base);
	batch->sequence = sequence;
	memcpy(slot->pieces, batch->pieces, batch->n_pieces * sizeof(batch->pieces[0]));
	memcpy(words, batch, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (i != word)
			__atomic_store_n((uint64_t *)(void *)slot + i, words[i], __ATOMIC_RELAXED);
	return words[word];
}

cu_result launch_ring_kernel(struct ring_launcher *own, const struct gpu_ring_call *call)
{
	struct gpu_ring_call parameter = *call;
	void *parameters[] = { &parameter };

	parameter.ring = own->ring_address;
	parameter.state = own->state;
	return own->base.gpu->cuda->cuLaunchKernel(own->function, own->n_blocks, 1, 1,
		GPU_BLOCK_THREADS, 1, 1, 0, own->base.stream, parameters, NULL);
}

bool launch_ring_is_own(const struct ring_launcher *own)
{
	return launcher_is_own(&own->base);
}
