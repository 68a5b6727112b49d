/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/reduce/kernels.h"

#include <immintrin.h>
#include <stdint.h>

enum { LANES = 16 };

/* Fewer than LANES elements. */
static inline __attribute__((target("avx512f"))) void sum_f32_some(
	float *out, const float *x, const float *y, size_t count)
{
	__mmask16 mask = (__mmask16)((1u << count) - 1);

	_mm512_mask_storeu_ps(out, mask,
		_mm512_add_ps(_mm512_maskz_loadu_ps(mask, x), _mm512_maskz_loadu_ps(mask, y)));
}

static __attribute__((target("avx512f"))) void sum_f32(
	void *dst, const void *a, const void *b, size_t count)
{
	float *out = dst;
	const float *x = a;
	const float *y = b;
	size_t i = 0;

	/* A store across a cache line costs two, and here nearly all would be. */
	size_t head = -(uintptr_t)dst / sizeof(float) % LANES;

	if (head && head < count) {
		sum_f32_some(out, x, y, head);
		i = head;
	}
	for (; i + 4 * LANES <= count; i += 4 * LANES) {
		__m512 s0 = _mm512_add_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i));
		__m512 s1 = _mm512_add_ps(
			_mm512_loadu_ps(x + i + LANES), _mm512_loadu_ps(y + i + LANES));
		__m512 s2 = _mm512_add_ps(
			_mm512_loadu_ps(x + i + 2 * LANES), _mm512_loadu_ps(y + i + 2 * LANES));
		__m512 s3 = _mm512_add_ps(
			_mm512_loadu_ps(x + i + 3 * LANES), _mm512_loadu_ps(y + i + 3 * LANES));

		_mm512_storeu_ps(out + i, s0);
		_mm512_storeu_ps(out + i + LANES, s1);
		_mm512_storeu_ps(out + i + 2 * LANES, s2);
		_mm512_storeu_ps(out + i + 3 * LANES, s3);
	}
	for (; i + LANES <= count; i += LANES)
		_mm512_storeu_ps(
			out + i, _mm512_add_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i)));
	if (i < count)
		sum_f32_some(out + i, x + i, y + i, count - i);
}

static bool supported(void)
{
	return __builtin_cpu_supports("avx512f");
}

const struct reduce_kernels reduce_avx512 = {
	.name = "avx512",
	.supported = supported,
	.fn = { [FRL_FLOAT32] = { [FRL_SUM] = sum_f32 } },
};
