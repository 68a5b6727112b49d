/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element types, operations and wire types, and the element-wise code that receives and
 * collectives share. No state; any thread.
 *
 * What an operation gives is defined for every pair of elements, so that it is bitwise the same on
 * every processor and whatever the order of the two operands:
 *
 * Integers wrap. float32 and float64 are as IEEE 754 has them, rounded to nearest even.
 *
 * float16, bfloat16 and the two float8 are computed in float32 and rounded once, to nearest even.
 * What is too large becomes infinite in float16 and bfloat16, and the largest finite number (448,
 * 57344) in float8, as the conversions of GPUs that saturate have it; infinite operands of
 * float8_e5m2 stay infinite.
 *
 * MAX and MIN of floats are as C's fmax() and fmin(): a NaN operand is ignored unless both are; and
 * -0 is less than +0.
 *
 * Every result that is NaN is the same one: positive, quiet, no payload (0x7fc00000 in float32,
 * 0x7e00 in float16, 0x7fc0 in bfloat16, 0x7f in float8_e4m3, 0x7e in float8_e5m2).
 *
 * Denormal numbers are not flushed to zero, unless the calling thread has told the processor to.
 * The rounding mode is the default one.
 *
 * Sources: IEEE 754-2019; Micikevicius et al., "FP8 Formats for Deep Learning", arXiv 2209.05433.
 */
#ifndef FERRULE_REDUCE_H
#define FERRULE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbered as NCCL numbers them. */
enum frl_dtype {
	FRL_INT8,
	FRL_UINT8,
	FRL_INT32,
	FRL_UINT32,
	FRL_INT64,
	FRL_UINT64,
	FRL_FLOAT16,
	FRL_FLOAT32,
	FRL_FLOAT64,
	FRL_BFLOAT16,
	FRL_FLOAT8_E4M3, /* 4 bits of exponent, 3 of mantissa; no infinity, one NaN of each sign */
	FRL_FLOAT8_E5M2,
	FRL_DTYPES /* how many there are */
};

enum frl_op {
	FRL_SUM,
	FRL_PROD,
	FRL_MAX,
	FRL_MIN,
	FRL_AVG,        /* the sum, divided by the number of ranks */
	FRL_PREMUL_SUM, /* the sum of products of each rank's input with a scalar of its own */
	FRL_OPS         /* how many there are */
};

/* How elements of float32 travel. */
enum frl_wire {
	FRL_WIRE_SAME, /* as they are */
	FRL_WIRE_FLOAT16,
	FRL_WIRE_BFLOAT16,
	FRL_WIRE_INT8, /* blocks of FRL_WIRE_BLOCK with a scale */
	FRL_WIRES      /* how many there are */
};

/* Elements of a block of FRL_WIRE_INT8, which is 2 bytes of scale and then a byte an element. */
enum { FRL_WIRE_BLOCK = 128 };

/* Bytes of one element; 0 for a value that is no type. */
FRL_API size_t frl_dtype_size(enum frl_dtype dtype);

/* "float32", "float8_e4m3", ...; "sum", "premul_sum", ...; "same", "float16", "bfloat16", "int8".
 * NULL for a value that is none. */
FRL_API const char *frl_dtype_name(enum frl_dtype dtype);
FRL_API const char *frl_op_name(enum frl_op op);
FRL_API const char *frl_wire_name(enum frl_wire wire);

/*
 * The value of a name, whatever the case of its letters; other names that are in use are taken as
 * well ("f32", "float", "half", "bf16", "e4m3", "product", "average"). -EINVAL when there is none.
 */
FRL_API int frl_dtype_parse(const char *name, enum frl_dtype *ret_dtype);
FRL_API int frl_op_parse(const char *name, enum frl_op *ret_op);
FRL_API int frl_wire_parse(const char *name, enum frl_wire *ret_wire);

/* Whether frl_reduce_local() has it: SUM, PROD, MAX and MIN. AVG and PREMUL_SUM are sums that are
 * scaled afterwards or before. */
FRL_API bool frl_op_is_elementwise(enum frl_op op);

/*
 * dst[i] = op(a[i], b[i]) for `count` elements, by the fastest code that this processor has. Any
 * alignment; dst may be a or b, and must not overlap them otherwise. Does nothing for a type or an
 * operation that it does not have.
 */
FRL_API void frl_reduce_local(void *dst, const void *a, const void *b, size_t count,
	enum frl_dtype dtype, enum frl_op op);

/* The same in plain C: the reference for the fast ones, which give bitwise the same. */
FRL_API void frl_reduce_local_plain(void *dst, const void *a, const void *b, size_t count,
	enum frl_dtype dtype, enum frl_op op);

/*
 * dst[i] = src[i] * *scalar, which is one element of the type: for PREMUL_SUM. Rounds, wraps and
 * saturates as PROD does. Any alignment; dst may be src.
 */
FRL_API void frl_scale_local(
	void *dst, const void *src, size_t count, enum frl_dtype dtype, const void *scalar);

/*
 * dst[i] = src[i] / n, for AVG. Floats: divided in float32 (float64 in float64) by n as that type
 * has it, then rounded. Integers: of the sum as it wrapped, toward zero, as C does. Any alignment;
 * dst may be src. Does nothing when n is 0.
 */
FRL_API void frl_divide_local(
	void *dst, const void *src, size_t count, enum frl_dtype dtype, uint32_t n);

/*
 * Wire types: encodings of float32 that are shorter.
 *
 * SAME: 4 bytes an element, copied.
 *
 * FLOAT16: 2 bytes, rounded to nearest even. |error| <= 2^-11 |x|, or 2^-25 below 2^-14.
 *
 * BFLOAT16: 2 bytes, rounded to nearest even. |error| <= 2^-8 |x|, or 2^-134 below 2^-126.
 *
 * INT8: blocks of 128 elements, the last one may be shorter: a bfloat16 scale, then signed bytes;
 * x is decoded as scale * byte. The scale is the block's largest |x| (amax) / 127, rounded up, at
 * least 2^-126; bytes are rounded to nearest even. |error| <= scale * (1/2 + 2^-15), which is at
 * most amax/254 * (1 + 2^-7) * (1 + 2^-14), or 2^-127 * (1 + 2^-14) if that is larger. A block that
 * holds a NaN or an infinity is decoded as NaN throughout.
 *
 * FLOAT16 and BFLOAT16 keep infinities, and saturate finite numbers that would become infinite
 * (+-65504, +-(2^128 - 2^120)); frl_wire_encode() says how many those were (a GPU that encodes does
 * not count them: a collective tells nobody, on either). All numbers of more than one byte are
 * little-endian. The encoding of elements that begin at a multiple of
 * FRL_WIRE_BLOCK is a part of the encoding of all: from byte frl_wire_size(wire, first) on.
 */

/* Bytes of `count` encoded elements; 0 for a value that is no wire type. */
FRL_API size_t frl_wire_size(enum frl_wire wire, size_t count);

/*
 * Encodes `count` elements into frl_wire_size() bytes at dst, which do not overlap src. Returns how
 * many finite ones were too large for the type and were saturated.
 */
FRL_API size_t frl_wire_encode(void *dst, const float *src, size_t count, enum frl_wire wire);

/* The way back: dst[i] = decoded element i. dst and src do not overlap. Any bytes
 * can be decoded. */
FRL_API void frl_wire_decode(float *dst, const void *src, size_t count, enum frl_wire wire);

/* dst[i] = a[i] + decoded element i, as FRL_SUM adds. dst may be a; neither overlaps src. */
FRL_API void frl_wire_decode_add(
	float *dst, const float *a, const void *src, size_t count, enum frl_wire wire);

/*
 * dst[i] = op(a[i], decoded element i), as frl_reduce_local() does it. dst may be a; neither
 * overlaps src. MAX and MIN with INT8 differ in one thing: where an operand is NaN the result is
 * NaN, because the NaN may stand for a block whose numbers could not be encoded, and ignoring these
 * would give a wrong one. Does nothing for an operation that is not element by element.
 */
FRL_API void frl_wire_decode_reduce(float *dst, const float *a, const void *src, size_t count,
	enum frl_wire wire, enum frl_op op);

#ifdef __cplusplus
}
#endif
#endif
