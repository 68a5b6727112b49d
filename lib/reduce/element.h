/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element types and operations, one element at a time: conversions between float32 and the shorter
 * floats, sum, product, maximum, minimum, scaling. ferrule/reduce.h defines the results. Plain C
 * that is also CUDA, without library calls. The loops of all instruction sets and of GPUs are
 * compiled from this file.
 *
 * The results must be bitwise the same everywhere. Nothing here depends on denormal operands being
 * respected where a shorter float is denormal. There is always an integer step between a
 * multiplication and an addition; otherwise compilers may contract them to one operation that
 * rounds once.
 */
#ifndef FERRULE_REDUCE_ELEMENT_H
#define FERRULE_REDUCE_ELEMENT_H

#include <stdint.h>

#ifdef __CUDACC__
#define FRL_ELEMENT static __host__ __device__ __forceinline__
#else
#define FRL_ELEMENT static inline __attribute__((always_inline, unused))
#endif

/* The canonical NaN of each type. */
#define ELEMENT_NAN_F16  0x7e00u
#define ELEMENT_NAN_BF16 0x7fc0u
#define ELEMENT_NAN_E4M3 0x7fu
#define ELEMENT_NAN_E5M2 0x7eu
#define ELEMENT_NAN_F32  0x7fc00000u
#define ELEMENT_NAN_F64  0x7ff8000000000000u

#define ELEMENT_INF_F32 0x7f800000u /* larger without its sign: NaN */

FRL_ELEMENT uint32_t element_bits_f32(float x)
{
	union {
		float value;
		uint32_t bits;
	} u;

	u.value = x;
	return u.bits;
}

FRL_ELEMENT float element_value_f32(uint32_t bits)
{
	union {
		uint32_t bits;
		float value;
	} u;

	u.bits = bits;
	return u.value;
}

FRL_ELEMENT uint64_t element_bits_f64(double x)
{
	union {
		double value;
		uint64_t bits;
	} u;

	u.value = x;
	return u.bits;
}

FRL_ELEMENT double element_value_f64(uint64_t bits)
{
	union {
		uint64_t bits;
		double value;
	} u;

	u.bits = bits;
	return u.value;
}

/* Without a branch, since a branch keeps compilers from vectorizing a loop. */
FRL_ELEMENT uint32_t element_choose(int condition, uint32_t x, uint32_t otherwise)
{
	return otherwise ^ ((x ^ otherwise) & -(uint32_t)condition);
}

FRL_ELEMENT uint64_t element_choose_64(int condition, uint64_t x, uint64_t otherwise)
{
	return otherwise ^ ((x ^ otherwise) & -(uint64_t)condition);
}

/* ---- conversions */

/*
 * Converts a float with `mantissa` bits of mantissa and exponents biased by `bias`, without its
 * sign, to float32 bits. All exponents must be those of numbers.
 */
FRL_ELEMENT uint32_t element_widen(uint32_t magnitude, int mantissa, int bias)
{
	float unit = element_value_f32((uint32_t)(128 - bias - mantissa) << 23);
	uint32_t denormal = element_bits_f32((float)(int32_t)magnitude * unit);
	uint32_t normal = (magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23);

	return element_choose(magnitude < 1u << mantissa, denormal, normal);
}

/*
 * The reverse, for a magnitude that is no NaN: rounds to nearest even, without an upper limit of
 * the exponent. A normal number is rounded by a carry out of the removed bits; a denormal one by
 * adding a number whose last bit is the denormals' unit.
 */
FRL_ELEMENT uint32_t element_narrow(uint32_t magnitude, int mantissa, int bias)
{
	int cut = 23 - mantissa;
	uint32_t half = (1u << (cut - 1)) - 1;
	uint32_t unit = (uint32_t)(128 - bias + cut) << 23;
	uint32_t normal = ((magnitude + half + (magnitude >> cut & 1)) >> cut) -
		((uint32_t)(127 - bias) << mantissa);
	uint32_t denormal = element_bits_f32(
				    element_value_f32(magnitude) + element_value_f32(unit)) -
		unit;

	return element_choose(magnitude < (uint32_t)(128 - bias) << 23, denormal, normal);
}

/* For loops that handle all floats alike. */
FRL_ELEMENT float element_from_f32(float x)
{
	return x;
}

FRL_ELEMENT float element_from_f16(uint16_t x)
{
	uint32_t sign = (uint32_t)(x & 0x8000) << 16, magnitude = x & 0x7fff;
	uint32_t quiet = element_choose(magnitude > 0x7c00, 0x400000, 0);
	uint32_t special = ELEMENT_INF_F32 | magnitude << 13 | quiet;
	uint32_t bits = element_widen(magnitude, 10, 15);

	return element_value_f32(sign | element_choose(magnitude >= 0x7c00, special, bits));
}

FRL_ELEMENT uint16_t element_to_f16(float x)
{
	uint32_t sign = element_bits_f32(x) >> 16 & 0x8000;
	uint32_t magnitude = element_bits_f32(x) & 0x7fffffff;
	uint32_t bits = element_narrow(magnitude, 10, 15);

	bits = element_choose(magnitude >= 0x47800000, 0x7c00, bits); /* 65536 */
	return (uint16_t)element_choose(magnitude > ELEMENT_INF_F32, ELEMENT_NAN_F16, sign | bits);
}

FRL_ELEMENT float element_from_bf16(uint16_t x)
{
	return element_value_f32((uint32_t)x << 16);
}

FRL_ELEMENT uint16_t element_to_bf16(float x)
{
	uint32_t bits = element_bits_f32(x);
	uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

	return (uint16_t)element_choose(
		(bits & 0x7fffffff) > ELEMENT_INF_F32, ELEMENT_NAN_BF16, rounded);
}

FRL_ELEMENT float element_from_e4m3(uint8_t x)
{
	uint32_t sign = (uint32_t)(x & 0x80) << 24, magnitude = x & 0x7f;
	uint32_t bits = sign | element_widen(magnitude, 3, 7);

	return element_value_f32(element_choose(magnitude == 0x7f, ELEMENT_NAN_F32, bits));
}

/* Saturates. An infinity becomes NaN, as the type has none. */
FRL_ELEMENT uint8_t element_to_e4m3(float x)
{
	uint32_t sign = element_bits_f32(x) >> 24 & 0x80;
	uint32_t magnitude = element_bits_f32(x) & 0x7fffffff;
	uint32_t bits = element_narrow(magnitude, 3, 7);

	bits = element_choose(magnitude >= 0x43e00000, 0x7e, bits); /* 448 */
	return (uint8_t)element_choose(magnitude >= ELEMENT_INF_F32, ELEMENT_NAN_E4M3, sign | bits);
}

FRL_ELEMENT float element_from_e5m2(uint8_t x)
{
	return element_from_f16((uint16_t)(x << 8));
}

/* Saturates, but keeps infinities. */
FRL_ELEMENT uint8_t element_to_e5m2(float x)
{
	uint32_t sign = element_bits_f32(x) >> 24 & 0x80;
	uint32_t magnitude = element_bits_f32(x) & 0x7fffffff;
	uint32_t bits = element_narrow(magnitude, 2, 15);

	bits = element_choose(magnitude >= 0x47600000, 0x7b, bits); /* 57344 */
	bits = element_choose(magnitude == ELEMENT_INF_F32, 0x7c, bits);
	return (uint8_t)element_choose(magnitude > ELEMENT_INF_F32, ELEMENT_NAN_E5M2, sign | bits);
}

/* ---- float32 and float64 */

/* The bits of equal operands matter only for the two zeros in max and min. */
#define ELEMENT_FLOAT(name, type, bits_type, nan, choose)                                 \
	FRL_ELEMENT type element_canonical_##name(type x)                                 \
	{                                                                                 \
		return element_value_##name(choose(x != x, nan, element_bits_##name(x))); \
	}                                                                                 \
	FRL_ELEMENT type element_sum_##name(type a, type b)                               \
	{                                                                                 \
		return element_canonical_##name(a + b);                                   \
	}                                                                                 \
	FRL_ELEMENT type element_prod_##name(type a, type b)                              \
	{                                                                                 \
		return element_canonical_##name(a * b);                                   \
	}                                                                                 \
	FRL_ELEMENT type element_max_##name(type a, type b)                               \
	{                                                                                 \
		bits_type p = element_bits_##name(a), q = element_bits_##name(b);         \
		bits_type bits = choose(a > b, p, q);                                     \
		bits = choose(a == b, p & q, bits);                                       \
		bits = choose(b != b, p, bits);                                           \
		return element_canonical_##name(element_value_##name(bits));              \
	}                                                                                 \
	FRL_ELEMENT type element_min_##name(type a, type b)                               \
	{                                                                                 \
		bits_type p = element_bits_##name(a), q = element_bits_##name(b);         \
		bits_type bits = choose(a < b, p, q);                                     \
		bits = choose(a == b, p | q, bits);                                       \
		bits = choose(b != b, p, bits);                                           \
		return element_canonical_##name(element_value_##name(bits));              \
	}                                                                                 \
	FRL_ELEMENT type element_quotient_##name(type a, uint32_t n)                      \
	{                                                                                 \
		return element_canonical_##name(a / (type)n);                             \
	}

ELEMENT_FLOAT(f32, float, uint32_t, ELEMENT_NAN_F32, element_choose)
ELEMENT_FLOAT(f64, double, uint64_t, ELEMENT_NAN_F64, element_choose_64)

/* ---- shorter floats */

#define ELEMENT_NARROW_OP(name, type, op)                                                    \
	FRL_ELEMENT type element_##op##_##name(type a, type b)                               \
	{                                                                                    \
		return element_to_##name(                                                    \
			element_##op##_f32(element_from_##name(a), element_from_##name(b))); \
	}

#define ELEMENT_NARROW(name, type)                                                         \
	ELEMENT_NARROW_OP(name, type, sum)                                                 \
	ELEMENT_NARROW_OP(name, type, prod)                                                \
	ELEMENT_NARROW_OP(name, type, max)                                                 \
	ELEMENT_NARROW_OP(name, type, min)                                                 \
	FRL_ELEMENT type element_quotient_##name(type a, uint32_t n)                       \
	{                                                                                  \
		return element_to_##name(element_quotient_f32(element_from_##name(a), n)); \
	}

ELEMENT_NARROW(f16, uint16_t)
ELEMENT_NARROW(bf16, uint16_t)
ELEMENT_NARROW(e4m3, uint8_t)
ELEMENT_NARROW(e5m2, uint8_t)

/* ---- integers */

/* `modular` is unsigned and at least as wide as int: arithmetic wraps, since signed overflow is
 * undefined. Quotients are computed in `wide` and truncated to `whole`. Where `wide` is a float,
 * for its vector division, its mantissa is longer than the integers, so no quotient is rounded up.
 */
#define ELEMENT_INTEGER(name, type, modular, wide, whole)            \
	FRL_ELEMENT type element_sum_##name(type a, type b)          \
	{                                                            \
		return (type)((modular)a + (modular)b);              \
	}                                                            \
	FRL_ELEMENT type element_prod_##name(type a, type b)         \
	{                                                            \
		return (type)((modular)a * (modular)b);              \
	}                                                            \
	FRL_ELEMENT type element_max_##name(type a, type b)          \
	{                                                            \
		return a > b ? a : b;                                \
	}                                                            \
	FRL_ELEMENT type element_min_##name(type a, type b)          \
	{                                                            \
		return a < b ? a : b;                                \
	}                                                            \
	FRL_ELEMENT type element_quotient_##name(type a, uint32_t n) \
	{                                                            \
		return (type)(whole)((wide)a / (wide)n);             \
	}

ELEMENT_INTEGER(i8, int8_t, uint32_t, float, int32_t)
ELEMENT_INTEGER(u8, uint8_t, uint32_t, float, int32_t)
ELEMENT_INTEGER(i32, int32_t, uint32_t, double, int32_t)
ELEMENT_INTEGER(u32, uint32_t, uint32_t, double, int64_t)
ELEMENT_INTEGER(i64, int64_t, uint64_t, int64_t, int64_t)
ELEMENT_INTEGER(u64, uint64_t, uint64_t, uint64_t, uint64_t)

/* ---- wire types */

/* Finite numbers from `limit` on (as bits) would become infinite; they become `largest`. */
#define ELEMENT_LIMIT_F16    0x477ff000u /* 65520 */
#define ELEMENT_LARGEST_F16  0x477fe000u /* 65504 */
#define ELEMENT_LIMIT_BF16   0x7f7f8000u
#define ELEMENT_LARGEST_BF16 0x7f7f0000u

FRL_ELEMENT int element_is_over(float x, uint32_t limit)
{
	uint32_t magnitude = element_bits_f32(x) & 0x7fffffff;

	return (int)(magnitude >= limit) & (int)(magnitude < ELEMENT_INF_F32);
}

FRL_ELEMENT float element_saturate(float x, uint32_t limit, uint32_t largest)
{
	uint32_t bits = element_bits_f32(x);

	return element_value_f32(
		element_choose(element_is_over(x, limit), (bits & 0x80000000) | largest, bits));
}

/*
 * Returns the scale of a block of int8, as bfloat16: amax / 127 rounded up, or NaN. `amax` are the
 * bits of the block's largest magnitude; NaNs and infinities are larger than all numbers. The
 * scale is at least 2^-126, so there are no denormal numbers and the inverse is finite. A block of
 * zeros is no special case.
 */
FRL_ELEMENT uint16_t element_block_scale(uint32_t amax)
{
	uint32_t bits = element_bits_f32(element_value_f32(amax) / 127.0f);

	bits = (bits + 0xffff) >> 16;
	bits = bits < 0x0080 ? 0x0080 : bits;
	return (uint16_t)(amax >= ELEMENT_INF_F32 ? ELEMENT_NAN_BF16 : bits);
}

/* Rounds x / scale to the nearest integer, ties to even; `inverse` is 1 / scale. Magnitudes are at
 * most 127, so the addition leaves a last bit of 1. */
FRL_ELEMENT int8_t element_to_block(float x, float inverse)
{
	uint32_t bits = element_bits_f32(x * inverse);
	float magnitude = element_value_f32(bits & 0x7fffffff) + 8388608.0f;
	int32_t integer = (int32_t)(element_bits_f32(magnitude) - 0x4b000000);

	return (int8_t)(bits >> 31 ? -integer : integer);
}

/* Exact, so contraction with an addition makes no difference. */
FRL_ELEMENT float element_from_block(int8_t x, float scale)
{
	return (float)x * scale;
}

#endif
