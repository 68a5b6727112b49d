/* SPDX-License-Identifier: BSD-3-Clause */
/* AVX-512: vectors of 16 float32. The shorter floats are widened to them and rounded back. */
#include "lib/reduce/kernels.h"

#include <immintrin.h>

#define LOOP_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#include "lib/reduce/lanes.h"
#include "lib/reduce/loops.h"
#include "lib/reduce/wire_loops.h"

#define LANES_FN LOOP_TARGET static inline __attribute__((always_inline))

enum { LANES = 16 };

typedef __m512 lanes;

LANES_FN lanes lanes_all(float x)
{
	return _mm512_set1_ps(x);
}

LANES_FN lanes lanes_nan(void)
{
	return _mm512_castsi512_ps(_mm512_set1_epi32(ELEMENT_NAN_F32));
}

LANES_FN lanes canonical(lanes x)
{
	return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), lanes_nan());
}

LANES_FN lanes lanes_add(lanes a, lanes b)
{
	return _mm512_add_ps(a, b);
}

LANES_FN lanes lanes_sum(lanes a, lanes b)
{
	return canonical(lanes_add(a, b));
}

LANES_FN bool any_nan(const lanes x[4])
{
	__mmask16 low = _mm512_cmp_ps_mask(x[0], x[1], _CMP_UNORD_Q);
	__mmask16 high = _mm512_cmp_ps_mask(x[2], x[3], _CMP_UNORD_Q);

	return __builtin_expect(!_mm512_kortestz(low, high), 0);
}

/* For fewer than LANES elements. */
LANES_FN void sum_some(any_f32 *dst, const any_f32 *a, const any_f32 *b, size_t count)
{
	__mmask16 mask = (__mmask16)((1u << count) - 1);

	_mm512_mask_storeu_ps(dst, mask,
		lanes_sum(_mm512_maskz_loadu_ps(mask, a), _mm512_maskz_loadu_ps(mask, b)));
}

LANES_FN lanes lanes_prod(lanes a, lanes b)
{
	return canonical(_mm512_mul_ps(a, b));
}

LANES_FN lanes lanes_quotient(lanes a, lanes b)
{
	return canonical(_mm512_div_ps(a, b));
}

/* Not a float comparison: clang would narrow it to float16, lane by lane, if the operands were
 * widened from float16. */
LANES_FN __mmask16 is_nan(lanes x)
{
	return _mm512_fpclass_ps_mask(x, 0x81);
}

/* The instruction returns the second operand for two zeros, and for a NaN and a number. */
LANES_FN lanes lanes_max(lanes a, lanes b)
{
	__mmask16 nan_a = is_nan(a), nan_b = is_nan(b);
	lanes p = _mm512_mask_mov_ps(a, nan_a, b), q = _mm512_mask_mov_ps(b, nan_b, a);
	lanes max = _mm512_and_ps(_mm512_max_ps(p, q), _mm512_max_ps(q, p));

	return _mm512_mask_mov_ps(max, nan_a & nan_b, lanes_nan());
}

LANES_FN lanes lanes_min(lanes a, lanes b)
{
	__mmask16 nan_a = is_nan(a), nan_b = is_nan(b);
	lanes p = _mm512_mask_mov_ps(a, nan_a, b), q = _mm512_mask_mov_ps(b, nan_b, a);
	lanes min = _mm512_or_ps(_mm512_min_ps(p, q), _mm512_min_ps(q, p));

	return _mm512_mask_mov_ps(min, nan_a & nan_b, lanes_nan());
}

/* Stores the lowest byte of each lane. */
LANES_FN void store_bytes(void *p, __m512i x)
{
	_mm_storeu_si128(p, _mm512_cvtepi32_epi8(x));
}

/* ---- loads and stores of each type; stored values are canonical */

LANES_FN lanes load_f32(const void *p)
{
	return _mm512_loadu_ps(p);
}

LANES_FN void store_f32(void *p, lanes x)
{
	_mm512_storeu_ps(p, x);
}

/* Non-temporal; aligned. */
LANES_FN void stream_f32(void *p, lanes x)
{
	_mm512_stream_ps(p, x);
}

LANES_FN lanes load_f16(const void *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

LANES_FN void store_f16(void *p, lanes x)
{
	_mm256_storeu_si256(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

LANES_FN lanes load_bf16(const void *p)
{
	__m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));

	return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

/* The upper half of each lane is the bfloat16. */
LANES_FN __m512i round_bf16(lanes x)
{
	__m512i bits = _mm512_castps_si512(x);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));

	return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}

LANES_FN void store_bf16(void *p, lanes x)
{
	_mm256_storeu_si256(p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_bf16(x), 16)));
}

LANES_FN lanes even_of(lanes pairs)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}

LANES_FN lanes odd_of(lanes pairs)
{
	return _mm512_and_ps(pairs, _mm512_castsi512_ps(_mm512_set1_epi32((int)0xffff0000)));
}

LANES_FN void store_pairs(void *p, lanes even, lanes odd)
{
	_mm512_storeu_si512(p,
		_mm512_mask_blend_epi16(
			0xaaaaaaaa, _mm512_srli_epi32(round_bf16(even), 16), round_bf16(odd)));
}

/* The exponent is that of float16, so the eight bits are its upper half. */
LANES_FN lanes load_e5m2(const void *p)
{
	__m256i bits = _mm256_cvtepu8_epi16(_mm_loadu_si128(p));

	return _mm512_cvtph_ps(_mm256_slli_epi16(bits, 8));
}

/* Shifted to the exponent of float16, which divides the value by 2^8. */
LANES_FN lanes load_e4m3(const void *p)
{
	__m256i bits = _mm256_cvtepi8_epi16(_mm_loadu_si128(p));
	__m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7f));
	__m256i sign = _mm256_and_si256(bits, _mm256_set1_epi16((short)0x8000));
	__m256i half = _mm256_or_si256(sign, _mm256_slli_epi16(magnitude, 7));
	__mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));

	return _mm512_mask_mov_ps(_mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f)), nan,
		_mm512_castsi512_ps(_mm512_set1_epi32(ELEMENT_NAN_F32)));
}

/* The same as element_narrow(). */
LANES_FN __m512i narrow(__m512i magnitude, int mantissa, int bias)
{
	const int cut = 23 - mantissa;
	const __m512i half = _mm512_set1_epi32((1 << (cut - 1)) - 1);
	const __m512i unit = _mm512_set1_epi32((128 - bias + cut) << 23);
	__m512i odd = _mm512_and_si512(
		_mm512_srli_epi32(magnitude, (unsigned)cut), _mm512_set1_epi32(1));
	__m512i normal = _mm512_sub_epi32(
		_mm512_srli_epi32(
			_mm512_add_epi32(magnitude, _mm512_add_epi32(half, odd)), (unsigned)cut),
		_mm512_set1_epi32((127 - bias) << mantissa));
	__mmask16 small = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32((128 - bias) << 23));

	return _mm512_mask_sub_epi32(normal, small,
		_mm512_castps_si512(
			_mm512_add_ps(_mm512_castsi512_ps(magnitude), _mm512_castsi512_ps(unit))),
		unit);
}

LANES_FN __m512i magnitude_of(lanes x)
{
	return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

LANES_FN __m512i sign_of_byte(lanes x)
{
	return _mm512_and_si512(
		_mm512_srli_epi32(_mm512_castps_si512(x), 24), _mm512_set1_epi32(0x80));
}

/* NaN and infinity are larger than all numbers. */
LANES_FN void store_e4m3(void *p, lanes x)
{
	__m512i magnitude = magnitude_of(x);
	__m512i byte = _mm512_min_epu32(narrow(magnitude, 3, 7), _mm512_set1_epi32(0x7e));
	__mmask16 nan = _mm512_cmpge_epi32_mask(magnitude, _mm512_set1_epi32(ELEMENT_INF_F32));

	byte = _mm512_mask_mov_epi32(
		_mm512_or_si512(byte, sign_of_byte(x)), nan, _mm512_set1_epi32(ELEMENT_NAN_E4M3));
	store_bytes(p, byte);
}

LANES_FN void store_e5m2(void *p, lanes x)
{
	__m512i magnitude = magnitude_of(x);
	__m512i byte = _mm512_min_epu32(narrow(magnitude, 2, 15), _mm512_set1_epi32(0x7b));
	__mmask16 infinite = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(ELEMENT_INF_F32));
	__mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(ELEMENT_INF_F32));

	byte = _mm512_mask_mov_epi32(byte, infinite, _mm512_set1_epi32(0x7c));
	byte = _mm512_mask_mov_epi32(
		_mm512_or_si512(byte, sign_of_byte(x)), nan, _mm512_set1_epi32(ELEMENT_NAN_E5M2));
	store_bytes(p, byte);
}

/* Adds the number of lanes that saturate to *over. */
LANES_FN lanes saturate(lanes x, uint32_t limit, uint32_t largest, size_t *over)
{
	__m512i bits = _mm512_castps_si512(x), magnitude = magnitude_of(x);
	__m512i sign = _mm512_andnot_si512(_mm512_set1_epi32(0x7fffffff), bits);
	__mmask16 mask = _mm512_cmpge_epi32_mask(magnitude, _mm512_set1_epi32((int)limit));

	mask = _mm512_mask_cmplt_epi32_mask(mask, magnitude, _mm512_set1_epi32(ELEMENT_INF_F32));
	*over += (size_t)__builtin_popcount(mask);
	return _mm512_castsi512_ps(
		_mm512_mask_or_epi32(bits, mask, sign, _mm512_set1_epi32((int)largest)));
}

/* ---- whole blocks of int8 */

LANES_FN void encode_whole_block(uint8_t *dst, const any_f32 *src, size_t count)
{
	__m512i amax = _mm512_setzero_si512();
	uint16_t scale;
	lanes inverse;

	for (size_t i = 0; i < count; i += LANES)
		amax = _mm512_max_epu32(amax, magnitude_of(load_f32(src + i)));
	scale = element_block_scale(_mm512_reduce_max_epu32(amax));
	put_scale(dst, scale);
	if (scale == ELEMENT_NAN_BF16) {
		memset(dst + 2, 0, count);
		return;
	}
	inverse = lanes_all(1.0f / element_from_bf16(scale));
	for (size_t i = 0; i < count; i += LANES)
		store_bytes(
			dst + 2 + i, _mm512_cvtps_epi32(_mm512_mul_ps(load_f32(src + i), inverse)));
}

LANES_FN lanes load_block(const void *p, lanes scale)
{
	__m512i bytes = _mm512_cvtepi8_epi32(_mm_loadu_si128(p));

	return _mm512_mul_ps(_mm512_cvtepi32_ps(bytes), scale);
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
LOOP_ALL(f64)
LANES_WIRE(FRL_WIRE_FLOAT16, f16, F16)
LANES_WIRE(FRL_WIRE_BFLOAT16, bf16, BF16)
WIRE_LOOPS_BLOCKS(encode_whole_block, decode_whole_block, decode_add_whole_block)

static bool supported(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const struct reduce_kernels reduce_avx512 = {
	.name = "avx512",
	.supported = supported,
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
