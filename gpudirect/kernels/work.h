/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The byte operations that a GPU performs: a list of pieces of work, and the code for one thread's
 * share of a piece. Plain C that is also CUDA: kernels.cu compiles this code for GPUs, and the
 * tests compile it for the processor. Element formats are those of lib/reduce/element.h, so results
 * are bitwise equal to the processor's.
 */
#ifndef FERRULE_GPUDIRECT_WORK_H
#define FERRULE_GPUDIRECT_WORK_H

#include <stdint.h>

enum gpu_action {
	GPU_COPY,          /* dst = src; `count` is in bytes, dtype is ignored */
	GPU_REDUCE,        /* dst = op(operand, src) */
	GPU_SCALE,         /* dst = src * scalar */
	GPU_DIVIDE,        /* dst = src / divisor */
	GPU_ENCODE,        /* dst = src (float32), encoded in the wire format */
	GPU_DECODE,        /* dst = decoded src, float32 */
	GPU_DECODE_REDUCE, /* dst = op(operand, decoded src), float32 */
	GPU_ACTIONS
};

/* One piece. All addresses are GPU addresses, with any alignment. `dst` may equal `operand`, or
 * `src` if no encoding is involved; other overlaps are not allowed. If `also` is not 0, the result
 * is also written there (the next hop's packet). */
struct gpu_work {
	uint64_t dst;
	uint64_t src;
	uint64_t operand;
	uint64_t also;
	uint64_t count; /* elements */
	uint8_t action; /* enum gpu_action */
	uint8_t dtype;  /* enum frl_dtype */
	uint8_t op;     /* enum frl_op, element-wise */
	uint8_t wire;   /* enum frl_wire */
	uint32_t divisor;
	uint8_t scalar[8];
	uint64_t reserved;
};

#endif
