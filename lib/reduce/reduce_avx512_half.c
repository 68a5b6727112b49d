/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AVX-512 with float16 arithmetic: vectors of 32. A sum or product of two float16 is rounded once
 * here, and twice if computed in float32. The results are equal, because 24 bits of mantissa are
 * at least twice 11 plus 2 (Figueroa, "When is double rounding innocuous?", 1995).
 *
 * There is no such file for bfloat16: the conversion of avx512_bf16 flushes denormal numbers to
 * zero, and with a test for them it is slower than rounding with integers.
 */
#include "lib/reduce/kernels.h"

#include <cpuid.h>
#include <immintrin.h>

#define LOOP_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512fp16")))
#include "lib/reduce/loops.h"

#define HALVES_FN LOOP_TARGET static inline __attribute__((always_inline))

enum { HALVES = 32 };

HALVES_FN __m512h canonical(__m512h x)
{
	__mmask32 nan = _mm512_cmp_ph_mask(x, x, _CMP_UNORD_Q);

	return _mm512_castsi512_ph(_mm512_mask_mov_epi16(
		_mm512_castph_si512(x), nan, _mm512_set1_epi16(ELEMENT_NAN_F16)));
}

HALVES_FN __m512h halves_sum(__m512h a, __m512h b)
{
	return canonical(_mm512_add_ph(a, b));
}

HALVES_FN __m512h halves_prod(__m512h a, __m512h b)
{
	return canonical(_mm512_mul_ph(a, b));
}

HALVES_FN __m512h replace_nan(__m512h x, __m512h other)
{
	return _mm512_castsi512_ph(_mm512_mask_mov_epi16(_mm512_castph_si512(x),
		_mm512_cmp_ph_mask(x, x, _CMP_UNORD_Q), _mm512_castph_si512(other)));
}

/* The instruction returns the second operand for two zeros, and for a NaN and a number. */
HALVES_FN __m512h halves_max(__m512h a, __m512h b)
{
	__m512h p = replace_nan(a, b), q = replace_nan(b, a);
	__m512i max = _mm512_and_si512(
		_mm512_castph_si512(_mm512_max_ph(p, q)), _mm512_castph_si512(_mm512_max_ph(q, p)));
	__mmask32 nan = _mm512_cmp_ph_mask(p, q, _CMP_UNORD_Q);

	return _mm512_castsi512_ph(
		_mm512_mask_mov_epi16(max, nan, _mm512_set1_epi16(ELEMENT_NAN_F16)));
}

HALVES_FN __m512h halves_min(__m512h a, __m512h b)
{
	__m512h p = replace_nan(a, b), q = replace_nan(b, a);
	__m512i min = _mm512_or_si512(
		_mm512_castph_si512(_mm512_min_ph(p, q)), _mm512_castph_si512(_mm512_min_ph(q, p)));
	__mmask32 nan = _mm512_cmp_ph_mask(p, q, _CMP_UNORD_Q);

	return _mm512_castsi512_ph(
		_mm512_mask_mov_epi16(min, nan, _mm512_set1_epi16(ELEMENT_NAN_F16)));
}

#define HALVES_REDUCE(op, capitals)                                                             \
	LOOP_TARGET static void op##_f16(void *dst, const void *a, const void *b, size_t count) \
	{                                                                                       \
		any_f16 *out = dst;                                                             \
		const any_f16 *x = a, *y = b;                                                   \
		size_t i = 0;                                                                   \
		for (; i + HALVES <= count; i += HALVES)                                        \
			_mm512_storeu_ph(out + i,                                               \
				halves_##op(_mm512_loadu_ph(x + i), _mm512_loadu_ph(y + i)));   \
		if (i < count)                                                                  \
			reduce_plain.reduce[FRL_FLOAT16][capitals](                             \
				out + i, x + i, y + i, count - i);                              \
	}

HALVES_REDUCE(sum, FRL_SUM)
HALVES_REDUCE(prod, FRL_PROD)
HALVES_REDUCE(max, FRL_MAX)
HALVES_REDUCE(min, FRL_MIN)

/* Some compilers do not know the name of the feature. */
static bool supported(void)
{
	unsigned int a, b, c, d;

	return reduce_avx512.supported() && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
		(d & 1u << 23);
}

const struct reduce_kernels reduce_avx512_half = {
	.name = "avx512-half",
	.supported = supported,
	.reduce[FRL_FLOAT16] = { [FRL_SUM] = sum_f16,
		[FRL_PROD] = prod_f16,
		[FRL_MAX] = max_f16,
		[FRL_MIN] = min_f16 },
};
