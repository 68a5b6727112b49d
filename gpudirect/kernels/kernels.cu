/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel: gpudirect/kernels/work_body.h for GPUs, and the completion word for the processor.
 * `ferrule_work` has its batch as a parameter.
 *
 * With FERRULE_MANY this file defines `ferrule_work_many` instead, which has a larger parameter
 * with more pieces. It is a separate image, because drivers before CUDA 12.1 may reject an image
 * that contains such a kernel.
 *
 * One kernel handles all kinds of work, so that one launch can mix pieces of any kind. The code
 * selects the operation for each vector, inside the loop. The load and store code therefore exists
 * once instead of once for each type and operation, compilation takes seconds, and the kernel uses
 * only the registers of its largest case.
 */
#include "gpudirect/kernels/work_body.h"

/*
 * Runs a block's part of its batch. The last block to finish writes the completion word. The
 * barrier and the fence order all writes of a block before its first thread increments the counter.
 * The last block's own fence orders all writes before the completion word, for observers on the
 * processor or the bus.
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
