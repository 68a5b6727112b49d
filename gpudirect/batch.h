/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What one launch of `ferrule_work` or `ferrule_work_many` is given: pieces of work, by value, and
 * where it says that they are done. A kernel's parameters are copied by the launch, so that nothing
 * has to be kept for it. Plain C that is also CUDA.
 *
 * Blocks of GPU_BLOCK_THREADS threads are dealt out to the pieces: piece i has those from
 * first_block[i] up to, not including, first_block[i + 1]. Blocks and threads may run in any order:
 * none waits for another, and no piece of a batch touches what another one writes.
 */
#ifndef FERRULE_GPUDIRECT_BATCH_H
#define FERRULE_GPUDIRECT_BATCH_H

#include <stdint.h>

#include <ferrule/reduce.h>

#include "gpudirect/work.h"

#ifdef __CUDACC__
#define GPU_BOTH static __host__ __device__ __forceinline__
#else
#define GPU_BOTH static inline __attribute__((unused))
#endif

enum {
	GPU_BATCH_PIECES = 60,   /* parameters are 4096 bytes at most before CUDA 12.1, */
	GPU_BATCH_MANY = 480,    /* and 32764 bytes since */
	GPU_BLOCK_THREADS = 256, /* a vector of 16 bytes each: a packet of 4 KiB */
	GPU_WIRE_BLOCK_BYTES = 2 + FRL_WIRE_BLOCK,
};

/* The one parameter of `ferrule_work`. Addresses are the GPU's. */
struct gpu_batch {
	uint64_t done;     /* of a uint64_t in host memory that the GPU reaches: */
	uint64_t sequence; /* the last block writes this there, when all the rest is visible */
	uint64_t counter;  /* of a uint32_t in GPU memory that is 0, and is so again afterwards */
	uint32_t n_pieces;
	uint32_t n_blocks; /* of the launch's grid: first_block[n_pieces] */
	uint16_t first_block[GPU_BATCH_PIECES + 1];
	struct gpu_work pieces[GPU_BATCH_PIECES];
};

/* That of `ferrule_work_many`. A launch copies the whole of its parameter: few pieces go with the
 * smaller one. What is ahead of the pieces begins as it does there. */
struct gpu_batch_many {
	uint64_t done;
	uint64_t sequence;
	uint64_t counter;
	uint32_t n_pieces;
	uint32_t n_blocks;
	uint16_t first_block[GPU_BATCH_MANY + 1];
	struct gpu_work pieces[GPU_BATCH_MANY];
};

/* Bytes of an element; 0 for a value that is no type. */
GPU_BOTH uint32_t gpu_dtype_size(uint8_t dtype)
{
	switch (dtype) {
	case FRL_INT8:
	case FRL_UINT8:
	case FRL_FLOAT8_E4M3:
	case FRL_FLOAT8_E5M2: return 1;
	case FRL_FLOAT16:
	case FRL_BFLOAT16: return 2;
	case FRL_INT32:
	case FRL_UINT32:
	case FRL_FLOAT32: return 4;
	case FRL_INT64:
	case FRL_UINT64:
	case FRL_FLOAT64: return 8;
	default: return 0;
	}
}

/* As frl_wire_size(). */
GPU_BOTH uint64_t gpu_wire_bytes(uint8_t wire, uint64_t count)
{
	switch (wire) {
	case FRL_WIRE_SAME: return count * 4;
	case FRL_WIRE_FLOAT16:
	case FRL_WIRE_BFLOAT16: return count * 2;
	case FRL_WIRE_INT8: return count + (count + FRL_WIRE_BLOCK - 1) / FRL_WIRE_BLOCK * 2;
	default: return 0;
	}
}

/* How many bytes a piece writes at `dst`, and at `also` where it has one. */
GPU_BOTH uint64_t gpu_work_dst_bytes(const struct gpu_work *work)
{
	switch (work->action) {
	case GPU_COPY: return work->count;
	case GPU_REDUCE:
	case GPU_SCALE:
	case GPU_DIVIDE: return work->count * gpu_dtype_size(work->dtype);
	case GPU_ENCODE: return gpu_wire_bytes(work->wire, work->count);
	case GPU_DECODE:
	case GPU_DECODE_REDUCE: return work->count * 4;
	default: return 0;
	}
}

/* How many it reads at `src`. */
GPU_BOTH uint64_t gpu_work_src_bytes(const struct gpu_work *work)
{
	switch (work->action) {
	case GPU_ENCODE: return work->count * 4;
	case GPU_DECODE:
	case GPU_DECODE_REDUCE: return gpu_wire_bytes(work->wire, work->count);
	default: return gpu_work_dst_bytes(work);
	}
}

/* How many it reads at `operand`; 0: `operand` means nothing. */
GPU_BOTH uint64_t gpu_work_operand_bytes(const struct gpu_work *work)
{
	if (work->action == GPU_REDUCE || work->action == GPU_DECODE_REDUCE)
		return gpu_work_dst_bytes(work);
	return 0;
}

#endif
