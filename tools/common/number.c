/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/common/number.h"

#include <math.h>
#include <string.h>

static const struct {
	int exponent, mantissa; /* bits; 0: not a float */
} formats[FRL_DTYPES] = {
	[FRL_FLOAT16] = { 5, 10 },
	[FRL_FLOAT32] = { 8, 23 },
	[FRL_FLOAT64] = { 11, 52 },
	[FRL_BFLOAT16] = { 8, 7 },
	[FRL_FLOAT8_E4M3] = { 4, 3 },
	[FRL_FLOAT8_E5M2] = { 5, 2 },
};

uint64_t number_load(const void *at, size_t size)
{
	uint16_t two;
	uint32_t four;
	uint64_t eight;

	switch (size) {
	case 1: return *(const uint8_t *)at;
	case 2: memcpy(&two, at, sizeof(two)); return two;
	case 4: memcpy(&four, at, sizeof(four)); return four;
	}
	memcpy(&eight, at, sizeof(eight));
	return eight;
}

void number_store(void *at, size_t size, uint64_t bits)
{
	uint16_t two = (uint16_t)bits;
	uint32_t four = (uint32_t)bits;

	switch (size) {
	case 1: *(uint8_t *)at = (uint8_t)bits; return;
	case 2: memcpy(at, &two, sizeof(two)); return;
	case 4: memcpy(at, &four, sizeof(four)); return;
	}
	memcpy(at, &bits, sizeof(bits));
}

bool number_is_float(enum frl_dtype dtype)
{
	return formats[dtype].exponent != 0;
}

bool number_is_signed(enum frl_dtype dtype)
{
	return dtype == FRL_INT8 || dtype == FRL_INT32 || dtype == FRL_INT64;
}

int64_t number_extend(enum frl_dtype dtype, uint64_t bits)
{
	unsigned unused = 64 - 8 * (unsigned)frl_dtype_size(dtype);

	/* Shift up, then down: the arithmetic shift extends the sign. */
	if (number_is_signed(dtype))
		return (int64_t)(bits << unused) >> unused;
	return (int64_t)(bits << unused >> unused);
}

int number_precision(enum frl_dtype dtype)
{
	return formats[dtype].mantissa + 1;
}

static int bias(enum frl_dtype dtype)
{
	return (1 << (formats[dtype].exponent - 1)) - 1;
}

int number_min_exponent(enum frl_dtype dtype)
{
	return 1 - bias(dtype) - formats[dtype].mantissa;
}

int number_max_exponent(enum frl_dtype dtype)
{
	/* Types without infinities use the last exponent for numbers. */
	return bias(dtype) + (dtype == FRL_FLOAT8_E4M3);
}

long double number_decode(enum frl_dtype dtype, uint64_t bits)
{
	int mantissa_bits = formats[dtype].mantissa, exponent_bits = formats[dtype].exponent;
	uint64_t one = (uint64_t)1 << mantissa_bits, mantissa = bits & (one - 1);
	int last = (1 << exponent_bits) - 1, exponent = (int)(bits >> mantissa_bits) & last;
	bool negative = bits >> (mantissa_bits + exponent_bits) & 1;
	long double value;

	if (exponent == last && dtype != FRL_FLOAT8_E4M3)
		value = mantissa ? NAN : INFINITY;
	else if (exponent == last && mantissa == one - 1)
		value = NAN;
	else if (exponent == 0)
		value = ldexpl((long double)mantissa, number_min_exponent(dtype));
	else
		value = ldexpl(
			(long double)(mantissa | one), number_min_exponent(dtype) + exponent - 1);
	return negative ? -value : value;
}

uint64_t number_encode(enum frl_dtype dtype, long double value)
{
	int mantissa_bits = formats[dtype].mantissa, exponent_bits = formats[dtype].exponent;
	uint64_t last = (((uint64_t)1 << exponent_bits) - 1) << mantissa_bits;
	uint64_t sign = (uint64_t)(signbit(value) != 0) << (mantissa_bits + exponent_bits);
	int exponent;

	if (isnan(value))
		return dtype == FRL_FLOAT8_E4M3 ? 0x7f : last | (uint64_t)1 << (mantissa_bits - 1);
	if (isinf(value))
		return sign | last;
	value = fabsl(value);
	if (value < ldexpl(1, number_min_exponent(dtype) + mantissa_bits)) /* zero and denormals */
		return sign | (uint64_t)ldexpl(value, -number_min_exponent(dtype));
	frexpl(value, &exponent);
	/* The hidden bit adds 1 to the exponent. */
	return sign |
		(((uint64_t)(exponent - 2 + bias(dtype)) << mantissa_bits) +
			(uint64_t)ldexpl(value, mantissa_bits + 1 - exponent));
}

long double number_truncate(enum frl_dtype dtype, long double value)
{
	int exponent, unit;

	if (value == 0)
		return value;
	frexpl(value, &exponent);
	unit = exponent - number_precision(dtype);
	if (unit < number_min_exponent(dtype))
		unit = number_min_exponent(dtype);
	return ldexpl(truncl(ldexpl(value, -unit)), unit);
}
