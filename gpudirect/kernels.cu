/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel: gpudirect/work_body.h for GPUs, and the word that tells the processor. `ferrule_work`
 * has its batch as a parameter.
 *
 * With FERRULE_MANY it is `ferrule_work_many` instead, which takes more pieces in a larger parameter.
 * That is an image of its own, as drivers before CUDA 12.1 may refuse one that has such a kernel.
 *
 * One kernel for every kind of work, so that pieces of any kind go together in one launch. What an element
 * needs is chosen for each vector, inside of the loop: then the code that loads and stores is there
 * once instead of once for each type and operation, all together takes seconds to compile, and the
 * registers are those of the largest case alone.
 */
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
#endif
