/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels: gpudirect/work_body.h for GPUs, and the word that tells the processor. `ferrule_work`
 * has its batch as a parameter, `ferrule_ring` takes batches out of host memory.
 *
 * With FERRULE_MANY it is `ferrule_work_many` instead, which takes more pieces in a larger parameter.
 * That is an image of its own, as drivers before CUDA 12.1 may refuse one that has such a kernel.
 *
 * One kernel for every kind of work, so that pieces of any kind go together in one launch. What an element
 * needs is chosen for each vector, inside of the loop: then the code that loads and stores is there
 * once instead of once for each type and operation, all together takes seconds to compile, and the
 * registers are those of the largest case alone.
 */
#include "gpudirect/ring_body.h"
#include "gpudirect/work_body.h"

/*
 * A block's part of its batch. The last block that is through tells. A block's first thread orders
 * what all of its threads wrote before its own counting: the barrier and the fence together do that
 * for whoever looks at the count, and the last one's fence for whoever looks at the word, on the
 * processor or a bus.
 */
template <typename Batch> static __device__ __forceinline__ void run_batch(const Batch &batch)
{
	gpu_pieces_share(
		batch.pieces, batch.first_block, batch.n_pieces, blockIdx.x, threadIdx.x);
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	__threadfence_system();
	if (batch.n_blocks > 1) {
		uint32_t *counter = (uint32_t *)batch.counter;

		if (atomicAdd(counter, 1) != batch.n_blocks - 1)
			return;
		*counter = 0;
		__threadfence_system();
	}
	*(volatile uint64_t *)batch.done = batch.sequence;
}

#ifdef FERRULE_MANY
extern "C" __global__ void __launch_bounds__(GPU_BLOCK_THREADS)
	ferrule_work_many(const __grid_constant__ struct gpu_batch_many batch)
{
	run_batch(batch);
}
#else
extern "C" __global__ void __launch_bounds__(GPU_BLOCK_THREADS)
	ferrule_work(const __grid_constant__ struct gpu_batch batch)
{
	run_batch(batch);
}

/* ---- batches out of host memory */

static __device__ __forceinline__ uint64_t ring_now(void)
{
	uint64_t now;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	return now;
}

/* For a block's first thread: waits for work, as long as that is allowed. 0: it is over. Both
 * limits are of the GPU's own clock, so that this ends whatever the processor does. A change of
 * what is next is work that came and went between two looks. */
static __device__ __forceinline__ uint64_t ring_wait(
	const struct gpu_ring_call *call, int is_first, uint64_t begun)
{
	uint64_t since = ring_now(), was = ring_load(&ring_state(call)->next);

	for (;;) {
		uint64_t next, now;

		if (ring_is_over(call, begun, ring_now()))
			return 0;
		next = ring_look(call, is_first);
		if (next != 0 || call->last != 0)
			return next;
		now = ring_now();
		next = ring_load(&ring_state(call)->next);
		if (next != was || ring_is_busy(call)) {
			was = next;
			since = now;
		}
		if (now - since >= call->idle_ns)
			return 0;
		__nanosleep(100);
	}
}

/* Words of a batch in host memory, each by a thread, into shared memory. */
static __device__ __forceinline__ void ring_fetch(uint64_t *to, const void *from, uint32_t n)
{
	if (threadIdx.x < n)
		to[threadIdx.x] = ring_load((const uint64_t *)from + threadIdx.x);
}

/*
 * A batch's head, and the piece that is worked on, are fetched into shared memory by many threads
 * at once: each load out of host memory takes a microsecond. What decides is said by the first
 * thread, between barriers.
 */
extern "C" __global__ void __launch_bounds__(GPU_BLOCK_THREADS)
	ferrule_ring(const __grid_constant__ struct gpu_ring_call call)
{
	__shared__ uint64_t head[offsetof(struct gpu_batch, pieces) / sizeof(uint64_t)];
	__shared__ struct gpu_work work;
	__shared__ uint64_t next;
	__shared__ uint32_t piece, is_mine;
	const struct gpu_batch *batch = (const struct gpu_batch *)head;
	int is_first = 0;
	uint64_t begun = 0;

	if (threadIdx.x == 0) {
		is_first = ring_enter(&call, ring_now(), &begun);
	}
	for (;;) {
		const struct gpu_batch *slot;
		uint32_t block;

		if (threadIdx.x == 0)
			next = ring_wait(&call, is_first, begun);
		__syncthreads();
		if (next == 0)
			break;
		slot = &ring_of(&call)->slots[(next >> GPU_RING_UNIT_BITS) % GPU_RING_SLOTS];
		ring_fetch(head, slot, sizeof(head) / sizeof(uint64_t));
		__syncthreads();
		if (threadIdx.x == 0)
			is_mine = ring_take(&call, next, batch->n_blocks);
		__syncthreads();
		if (!is_mine)
			continue;
		block = (uint32_t)(next & ((1U << GPU_RING_UNIT_BITS) - 1));
		if (threadIdx.x < batch->n_pieces && batch->first_block[threadIdx.x] <= block &&
			block < batch->first_block[threadIdx.x + 1])
			piece = threadIdx.x;
		__syncthreads();
		ring_fetch((uint64_t *)&work, &slot->pieces[piece],
			sizeof(work) / sizeof(uint64_t));
		__syncthreads();
		gpu_work_share(&work,
			(uint64_t)(block - batch->first_block[piece]) * GPU_BLOCK_THREADS +
				threadIdx.x,
			(uint64_t)(batch->first_block[piece + 1] - batch->first_block[piece]) *
				GPU_BLOCK_THREADS);
		__syncthreads();
		if (threadIdx.x == 0)
			ring_finish(&call, next, batch->n_blocks, batch->done, batch->sequence);
	}
	if (threadIdx.x == 0)
		ring_leave(&call, gridDim.x);
}
#endif
