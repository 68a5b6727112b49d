/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/reduce/kernels.h"

#include <immintrin.h>

enum { LANES = 8 };

static __attribute__((target("avx2"))) void sum_f32(
	void *dst, const void *a, const void *b, size_t count)
{
	float *out = dst;
	const float *x = a;
	const float *y = b;
	size_t i = 0;

	for (; i + 4 * LANES <= count; i += 4 * LANES) {
		__m256 s0 = _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i));
		__m256 s1 = _mm256_add_ps(
			_mm256_loadu_ps(x + i + LANES), _mm256_loadu_ps(y + i + LANES));
		__m256 s2 = _mm256_add_ps(
			_mm256_loadu_ps(x + i + 2 * LANES), _mm256_loadu_ps(y + i + 2 * LANES));
		__m256 s3 = _mm256_add_ps(
			_mm256_loadu_ps(x + i + 3 * LANES), _mm256_loadu_ps(y + i + 3 * LANES));

		_mm256_storeu_ps(out + i, s0);
		_mm256_storeu_ps(out + i + LANES, s1);
		_mm256_storeu_ps(out + i + 2 * LANES, s2);
		_mm256_storeu_ps(out + i + 3 * LANES, s3);
	}
	for (; i + LANES <= count; i += LANES)
		_mm256_storeu_ps(
			out + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
	reduce_plain.fn[FRL_FLOAT32][FRL_SUM](out + i, x + i, y + i, count - i);
}

static bool supported(void)
{
	return __builtin_cpu_supports("avx2");
}

const struct reduce_kernels reduce_avx2 = {
	.name = "avx2",
	.supported = supported,
	.fn = { [FRL_FLOAT32] = { [FRL_SUM] = sum_f32 } },
};
