/* SPDX-License-Identifier: BSD-3-Clause */
/* All types and operations in plain C, for any processor. Reference for tests of the other tables.
 */
#include "lib/reduce/kernels.h"

#include "lib/reduce/loops.h"
#include "lib/reduce/wire_loops.h"

LOOP_ALL(i8)
LOOP_ALL(u8)
LOOP_ALL(i32)
LOOP_ALL(u32)
LOOP_ALL(i64)
LOOP_ALL(u64)
LOOP_ALL(f16)
LOOP_ALL(f32)
LOOP_ALL(f64)
LOOP_ALL(bf16)
LOOP_ALL(e4m3)
LOOP_ALL(e5m2)

WIRE_LOOPS_SAME
WIRE_LOOPS_NARROW(f16, F16)
WIRE_LOOPS_NARROW(bf16, BF16)
WIRE_LOOPS_BLOCKS(encode_block, decode_block, decode_add_block)

static bool always(void)
{
	return true;
}

const struct reduce_kernels reduce_plain = {
	.name = "plain",
	.supported = always,
	LOOP_ROWS(FRL_INT8, i8),
	LOOP_ROWS(FRL_UINT8, u8),
	LOOP_ROWS(FRL_INT32, i32),
	LOOP_ROWS(FRL_UINT32, u32),
	LOOP_ROWS(FRL_INT64, i64),
	LOOP_ROWS(FRL_UINT64, u64),
	LOOP_ROWS(FRL_FLOAT16, f16),
	LOOP_ROWS(FRL_FLOAT32, f32),
	LOOP_ROWS(FRL_FLOAT64, f64),
	LOOP_ROWS(FRL_BFLOAT16, bf16),
	LOOP_ROWS(FRL_FLOAT8_E4M3, e4m3),
	LOOP_ROWS(FRL_FLOAT8_E5M2, e5m2),
	WIRE_ROWS(FRL_WIRE_SAME, same),
	WIRE_ROWS(FRL_WIRE_FLOAT16, f16),
	WIRE_ROWS(FRL_WIRE_BFLOAT16, bf16),
	WIRE_ROWS(FRL_WIRE_INT8, blocks),
};
