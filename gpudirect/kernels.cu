/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel: gpudirect/work_body.h for GPUs, and the word that tells the processor.
 *
 * One kernel for everything, so that pieces of any kind go together in one launch. What an element
 * needs is chosen for each vector, inside of the loop: then the code that loads and stores is there
 * once instead of once for each type and operation, all together takes seconds to compile, and the
 * registers are those of the largest case alone.
 */
#include "gpudirect/work_body.h"

/*
 * The last block that is through tells. A block's first thread orders what all of its threads wrote
 * before its own counting: the barrier and the fence together do that for whoever looks at the
 * count, and the last one's fence for whoever looks at the word, on the processor or a bus.
 */
extern "C" __global__ void __launch_bounds__(GPU_BLOCK_THREADS)
	ferrule_work(const __grid_constant__ struct gpu_batch batch)
{
	gpu_batch_share(&batch, blockIdx.x, threadIdx.x);
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
