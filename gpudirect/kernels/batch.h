/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parameter of one launch of `ferrule_work` or `ferrule_work_many`: pieces of work, by value,
 * and the address of the completion word. The launch copies a kernel's parameters, so the caller
 * need not keep the batch. Plain C that is also CUDA.
 *
 * Blocks of GPU_BLOCK_THREADS threads are assigned to the pieces: piece i has the blocks from
 * first_block[i] up to, but not including, first_block[i + 1]. Blocks and threads may run in any
 * order. No block waits for another block, and no piece of a batch touches bytes that another piece
 * writes.
 */
#ifndef FERRULE_GPUDIRECT_BATCH_H
#define FERRULE_GPUDIRECT_BATCH_H

#include <stdint.h>

#include <ferrule/reduce.h>

#include "gpudirect/kernels/work.h"

#ifdef __CUDACC__
#define GPU_BOTH static __host__ __device__ __forceinline__
#else
#define GPU_BOTH static inline __attribute__((unused))
#endif

enum {
	GPU_BATCH_PIECES = 60,   /* kernel parameters: at most 4096 bytes before CUDA 12.1, */
	GPU_BATCH_MANY = 480,    /* and 32764 bytes since CUDA 12.1 */
	GPU_BLOCK_THREADS = 256, /* a vector of 16 bytes a thread: a packet of 4 KiB */
	GPU_WIRE_BLOCK_BYTES = 2 + FRL_WIRE_BLOCK,
};

/* The only parameter of `ferrule_work`. All addresses are GPU addresses. */
struct gpu_batch {
	uint64_t done;     /* address of a uint64_t in host memory that the GPU can access: */
	uint64_t sequence; /* written to `done` by the last block, after all results are visible */
	uint64_t counter;  /* address of a uint32_t in GPU memory: 0 before and after each launch */
	uint32_t n_pieces;
	uint32_t n_blocks; /* blocks in the launch's grid: first_block[n_pieces] */
	uint16_t first_block[GPU_BATCH_PIECES + 1];
	struct gpu_work pieces[GPU_BATCH_PIECES];
};

/* The parameter of `ferrule_work_many`. A launch copies its whole parameter, so small batches use
 * the smaller struct. The fields before the pieces are the same in both structs. */
struct gpu_batch_many {
	uint64_t done;
	uint64_t sequence;
	uint64_t counter;
	uint32_t n_pieces;
	uint32_t n_blocks;
	uint16_t first_block[GPU_BATCH_MANY + 1];
	struct gpu_work pieces[GPU_BATCH_MANY];
};

/* Returns the bytes of one element, or 0 if `dtype` is not a valid type. */
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

/* Same as frl_wire_size(). */
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

/* Returns how many bytes a piece writes at `dst`, and also at `also` if that is set. */
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

/* Returns how many bytes a piece reads at `src`. */
GPU_BOTH uint64_t gpu_work_src_bytes(const struct gpu_work *work)
{
	switch (work->action) {
	case GPU_ENCODE: return work->count * 4;
	case GPU_DECODE:
	case GPU_DECODE_REDUCE: return gpu_wire_bytes(work->wire, work->count);
	default: return gpu_work_dst_bytes(work);
	}
}

/* Returns how many bytes a piece reads at `operand`; 0 if the action does not use `operand`. */
GPU_BOTH uint64_t gpu_work_operand_bytes(const struct gpu_work *work)
{
	if (work->action == GPU_REDUCE || work->action == GPU_DECODE_REDUCE)
		return gpu_work_dst_bytes(work);
	return 0;
}

#endif
