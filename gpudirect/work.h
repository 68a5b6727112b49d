/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a GPU is asked to do with bytes: a list of pieces of work, and the code that does a share of
 * one. Plain C that is also CUDA: kernels.cu compiles these lines for GPUs, and the tests compile
 * them for the processor. Elements are as lib/reduce/element.h has them, so that results are
 * bitwise those of the processor.
 */
#ifndef FERRULE_GPUDIRECT_WORK_H
#define FERRULE_GPUDIRECT_WORK_H

#include <stdint.h>

enum gpu_action {
	GPU_COPY,          /* dst = src; `count` are bytes, dtype means nothing */
	GPU_REDUCE,        /* dst = op(operand, src) */
	GPU_SCALE,         /* dst = src * scalar */
	GPU_DIVIDE,        /* dst = src / divisor */
	GPU_ENCODE,        /* dst = src (float32) in the wire's format */
	GPU_DECODE,        /* the way back */
	GPU_DECODE_REDUCE, /* dst = op(operand, decoded src), float32 */
	GPU_ACTIONS
};

/* One piece. Addresses are the GPU's; any alignment; dst may be operand or, where no encoding is
 * involved, src, and overlaps nothing otherwise. `also`: the same bytes are written there, too (the
 * next hop's packet); 0: nowhere. */
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
