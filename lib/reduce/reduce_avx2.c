/* SPDX-License-Identifier: BSD-3-Clause */
/* AVX2 and F16C: vectors of 8 float32. The shorter floats are widened to them and rounded back. */
#include "lib/reduce/kernels.h"

#include <cpuid.h>
#include <immintrin.h>

#define LOOP_TARGET __attribute__((target("avx2,f16c")))
#include "lib/reduce/lanes.h"
#include "lib/reduce/loops.h"
#include "lib/reduce/wire_loops.h"

#define LANES_FN LOOP_TARGET static inline __attribute__((always_inline))

enum { LANES = 8 };

typedef __m256 lanes;

LANES_FN lanes lanes_all(float x)
{
	return _mm256_set1_ps(x);
}

/* Selects `x` in lanes where `mask` is all ones, `other` where it is zero. */
LANES_FN __m256i choose(__m256i mask, __m256i x, __m256i other)
{
	return _mm256_blendv_epi8(other, x, mask);
}

LANES_FN lanes lanes_nan(void)
{
	return _mm256_castsi256_ps(_mm256_set1_epi32(ELEMENT_NAN_F32));
}

LANES_FN lanes canonical(lanes x)
{
	return _mm256_blendv_ps(x, lanes_nan(), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

LANES_FN lanes lanes_add(lanes a, lanes b)
{
	return _mm256_add_ps(a, b);
}

LANES_FN lanes lanes_sum(lanes a, lanes b)
{
	return canonical(lanes_add(a, b));
}

LANES_FN bool any_nan(const lanes x[4])
{
	lanes low = _mm256_cmp_ps(x[0], x[1], _CMP_UNORD_Q);
	lanes high = _mm256_cmp_ps(x[2], x[3], _CMP_UNORD_Q);

	return __builtin_expect(_mm256_movemask_ps(_mm256_or_ps(low, high)), 0);
}

/* For fewer than LANES elements. */
LANES_FN void sum_some(any_f32 *dst, const any_f32 *a, const any_f32 *b, size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] = element_sum_f32(a[i], b[i]);
}

LANES_FN lanes lanes_prod(lanes a, lanes b)
{
	return canonical(_mm256_mul_ps(a, b));
}

LANES_FN lanes lanes_quotient(lanes a, lanes b)
{
	return canonical(_mm256_div_ps(a, b));
}

LANES_FN __m256i magnitude_of(lanes x)
{
	return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

/* Not a float comparison: clang would narrow it to float16, lane by lane, if the operands were
 * widened from float16. */
LANES_FN lanes is_nan(lanes x)
{
	return _mm256_castsi256_ps(
		_mm256_cmpgt_epi32(magnitude_of(x), _mm256_set1_epi32(ELEMENT_INF_F32)));
}

/* The instruction returns the second operand for two zeros, and for a NaN and a number. */
LANES_FN lanes lanes_max(lanes a, lanes b)
{
	lanes nan_a = is_nan(a), nan_b = is_nan(b);
	lanes p = _mm256_blendv_ps(a, b, nan_a), q = _mm256_blendv_ps(b, a, nan_b);
	lanes max = _mm256_and_ps(_mm256_max_ps(p, q), _mm256_max_ps(q, p));

	return _mm256_blendv_ps(max, lanes_nan(), _mm256_and_ps(nan_a, nan_b));
}

LANES_FN lanes lanes_min(lanes a, lanes b)
{
	lanes nan_a = is_nan(a), nan_b = is_nan(b);
	lanes p = _mm256_blendv_ps(a, b, nan_a), q = _mm256_blendv_ps(b, a, nan_b);
	lanes min = _mm256_or_ps(_mm256_min_ps(p, q), _mm256_min_ps(q, p));

	return _mm256_blendv_ps(min, lanes_nan(), _mm256_and_ps(nan_a, nan_b));
}

/* Returns the lower half of each lane; no value exceeds a half. */
LANES_FN __m128i halves(__m256i x)
{
	return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

/* Stores the lowest byte of each lane. */
LANES_FN void store_bytes(void *p, __m256i x)
{
	__m128i words = halves(_mm256_and_si256(x, _mm256_set1_epi32(0xff)));

	_mm_storel_epi64(p, _mm_packus_epi16(words, words));
}

/* ---- loads and stores of each type; stored values are canonical */

LANES_FN lanes load_f32(const void *p)
{
	return _mm256_loadu_ps(p);
}

LANES_FN void store_f32(void *p, lanes x)
{
	_mm256_storeu_ps(p, x);
}

/* Non-temporal; aligned. */
LANES_FN void stream_f32(void *p, lanes x)
{
	_mm256_stream_ps(p, x);
}

LANES_FN lanes load_f16(const void *p)
{
	return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

LANES_FN void store_f16(void *p, lanes x)
{
	_mm_storeu_si128(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

LANES_FN lanes load_bf16(const void *p)
{
	__m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));

	return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

/* The upper half of each lane is the bfloat16. */
LANES_FN __m256i round_bf16(lanes x)
{
	__m256i bits = _mm256_castps_si256(x);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));

	return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}

LANES_FN void store_bf16(void *p, lanes x)
{
	_mm_storeu_si128(p, halves(_mm256_srli_epi32(round_bf16(x), 16)));
}

LANES_FN lanes even_of(lanes pairs)
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}

LANES_FN lanes odd_of(lanes pairs)
{
	return _mm256_and_ps(pairs, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000)));
}

LANES_FN void store_pairs(void *p, lanes even, lanes odd)
{
	__m256i low = _mm256_srli_epi32(round_bf16(even), 16);

	_mm256_storeu_si256(p, _mm256_blend_epi16(low, round_bf16(odd), 0xaa));
}

/* The exponent is that of float16, so the eight bits are its upper half. */
LANES_FN lanes load_e5m2(const void *p)
{
	__m128i bits = _mm_cvtepu8_epi16(_mm_loadl_epi64(p));

	return _mm256_cvtph_ps(_mm_slli_epi16(bits, 8));
}

/* Shifted to the exponent of float16, which divides the value by 2^8. */
LANES_FN lanes load_e4m3(const void *p)
{
	__m128i bits = _mm_cvtepi8_epi16(_mm_loadl_epi64(p));
	__m128i magnitude = _mm_and_si128(bits, _mm_set1_epi16(0x7f));
	__m128i sign = _mm_and_si128(bits, _mm_set1_epi16((short)0x8000));
	__m128i half = _mm_or_si128(sign, _mm_slli_epi16(magnitude, 7));
	__m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f));

	/* A NaN of float16 stays a NaN. */
	half = _mm_or_si128(half, _mm_and_si128(nan, _mm_set1_epi16(ELEMENT_NAN_F16)));
	return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
}

/* The same as element_narrow(). */
LANES_FN __m256i narrow(__m256i magnitude, int mantissa, int bias)
{
	const int cut = 23 - mantissa;
	const __m256i half = _mm256_set1_epi32((1 << (cut - 1)) - 1);
	const __m256i unit = _mm256_set1_epi32((128 - bias + cut) << 23);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, cut), _mm256_set1_epi32(1));
	__m256i normal = _mm256_sub_epi32(
		_mm256_srli_epi32(_mm256_add_epi32(magnitude, _mm256_add_epi32(half, odd)), cut),
		_mm256_set1_epi32((127 - bias) << mantissa));
	__m256i denormal = _mm256_sub_epi32(
		_mm256_castps_si256(
			_mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_castsi256_ps(unit))),
		unit);
	__m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32((128 - bias) << 23), magnitude);

	return choose(small, denormal, normal);
}

LANES_FN __m256i sign_of_byte(lanes x)
{
	return _mm256_and_si256(
		_mm256_srli_epi32(_mm256_castps_si256(x), 24), _mm256_set1_epi32(0x80));
}

/* NaN and infinity are larger than all numbers. */
LANES_FN void store_e4m3(void *p, lanes x)
{
	__m256i magnitude = magnitude_of(x);
	__m256i byte = _mm256_min_epu32(narrow(magnitude, 3, 7), _mm256_set1_epi32(0x7e));
	__m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(ELEMENT_INF_F32 - 1));

	byte = _mm256_or_si256(byte, sign_of_byte(x));
	store_bytes(p, choose(nan, _mm256_set1_epi32(ELEMENT_NAN_E4M3), byte));
}

LANES_FN void store_e5m2(void *p, lanes x)
{
	const __m256i inf = _mm256_set1_epi32(ELEMENT_INF_F32);
	__m256i magnitude = magnitude_of(x);
	__m256i byte = _mm256_min_epu32(narrow(magnitude, 2, 15), _mm256_set1_epi32(0x7b));

	byte = choose(_mm256_cmpeq_epi32(magnitude, inf), _mm256_set1_epi32(0x7c), byte);
	byte = _mm256_or_si256(byte, sign_of_byte(x));
	store_bytes(p,
		choose(_mm256_cmpgt_epi32(magnitude, inf), _mm256_set1_epi32(ELEMENT_NAN_E5M2),
			byte));
}

/* Adds the number of lanes that saturate to *over. */
LANES_FN lanes saturate(lanes x, uint32_t limit, uint32_t largest, size_t *over)
{
	__m256i magnitude = magnitude_of(x);
	__m256i sign = _mm256_andnot_si256(_mm256_set1_epi32(0x7fffffff), _mm256_castps_si256(x));
	__m256i mask = _mm256_andnot_si256(
		_mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(ELEMENT_INF_F32 - 1)),
		_mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32((int)limit - 1)));

	*over += (size_t)__builtin_popcount(
		(unsigned int)_mm256_movemask_ps(_mm256_castsi256_ps(mask)));
	return _mm256_castsi256_ps(choose(mask,
		_mm256_or_si256(sign, _mm256_set1_epi32((int)largest)), _mm256_castps_si256(x)));
}

/* ---- whole blocks of int8 */

LANES_FN uint32_t largest_of(__m256i x)
{
	__m128i y = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));

	y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0x4e));
	y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0xb1));
	return (uint32_t)_mm_cvtsi128_si32(y);
}

/* Writes the scale as bfloat16, then an int8 for each element. With a NaN or an infinity among the
 * elements the scale is NaN, and the int8 are zeros. */
LANES_FN void encode_whole_block(uint8_t *dst, const any_f32 *src, size_t count)
{
	__m256i amax = _mm256_setzero_si256();
	uint16_t scale;
	lanes inverse;

	for (size_t i = 0; i < count; i += LANES)
		amax = _mm256_max_epu32(amax, magnitude_of(load_f32(src + i)));
	scale = element_block_scale(largest_of(amax));
	put_scale(dst, scale);
	if (scale == ELEMENT_NAN_BF16) {
		memset(dst + 2, 0, count);
		return;
	}
	inverse = lanes_all(1.0f / element_from_bf16(scale));
	for (size_t i = 0; i < count; i += LANES)
		store_bytes(
			dst + 2 + i, _mm256_cvtps_epi32(_mm256_mul_ps(load_f32(src + i), inverse)));
}

LANES_FN lanes load_block(const void *p, lanes scale)
{
	__m256i bytes = _mm256_cvtepi8_epi32(_mm_loadl_epi64(p));

	return _mm256_mul_ps(_mm256_cvtepi32_ps(bytes), scale);
}

LANES_FN void decode_whole_block(any_f32 *dst, const uint8_t *src, size_t count)
{
	lanes scale = lanes_all(element_from_bf16(get_scale(src)));

	for (size_t i = 0; i < count; i += LANES)
		store_f32(dst + i, load_block(src + 2 + i, scale));
}

LANES_FN void decode_add_whole_block(
	any_f32 *dst, const any_f32 *a, const uint8_t *src, size_t count)
{
	lanes scale = lanes_all(element_from_bf16(get_scale(src)));

	for (size_t i = 0; i < count; i += LANES)
		store_f32(dst + i, lanes_sum(load_f32(a + i), load_block(src + 2 + i, scale)));
}

LANES_ALL(FRL_FLOAT16, f16)
LANES_SUM_F32
LANES_SUM_NONTEMPORAL_F32
LANES_OTHERS(FRL_FLOAT32, f32)
LANES_PAIRS
LANES_ALL(FRL_FLOAT8_E4M3, e4m3)
LANES_ALL(FRL_FLOAT8_E5M2, e5m2)
LOOP_ALL(i8)
LOOP_ALL(u8)
LOOP_ALL(i32)
LOOP_ALL(u32)
LOOP_ALL(i64)
LOOP_ALL(u64)
LOOP_ALL(f64)
LANES_WIRE(FRL_WIRE_FLOAT16, f16, F16)
LANES_WIRE(FRL_WIRE_BFLOAT16, bf16, BF16)
WIRE_LOOPS_BLOCKS(encode_whole_block, decode_whole_block, decode_add_whole_block)

static bool supported(void)
{
	unsigned int a, b, c, d;

	return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

const struct reduce_kernels reduce_avx2 = {
	.name = "avx2",
	.supported = supported,
	LOOP_ROWS(FRL_INT8, i8),
	LOOP_ROWS(FRL_UINT8, u8),
	LOOP_ROWS(FRL_INT32, i32),
	LOOP_ROWS(FRL_UINT32, u32),
	LOOP_ROWS(FRL_INT64, i64),
	LOOP_ROWS(FRL_UINT64, u64),
	LOOP_ROWS(FRL_FLOAT16, f16),
	LOOP_ROWS(FRL_FLOAT32, f32),
	.sum_nontemporal[FRL_FLOAT32] = sum_nontemporal_f32,
	LOOP_ROWS(FRL_FLOAT64, f64),
	LOOP_ROWS(FRL_BFLOAT16, bf16),
	LOOP_ROWS(FRL_FLOAT8_E4M3, e4m3),
	LOOP_ROWS(FRL_FLOAT8_E5M2, e5m2),
	WIRE_ROWS(FRL_WIRE_FLOAT16, f16),
	WIRE_ROWS(FRL_WIRE_BFLOAT16, bf16),
	WIRE_ROWS(FRL_WIRE_INT8, blocks),
};
