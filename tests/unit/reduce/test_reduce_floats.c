/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shorter floats: each value of each type is converted and compared with what its definition
 * gives in float64; rounding is tried at and beside every midpoint; every operation of every
 * instruction set runs over all values, paired with all (8 bits) or with several (16 bits), and is
 * compared with plain C, which is compared with the definition.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "lib/reduce/element.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/reduce_fixture.h"

enum { MAX_VALUES = 65536, MAX_PARTNERS = 256 };

static const struct format {
	enum frl_dtype dtype;
	int mantissa, bias, bits;
	uint32_t nan, largest; /* largest: the bits of the largest finite number */
	bool saturates, has_infinity;
} formats[] = {
	{ FRL_FLOAT16, 10, 15, 16, 0x7e00, 0x7bff, false, true },
	{ FRL_BFLOAT16, 7, 127, 16, 0x7fc0, 0x7f7f, false, true },
	{ FRL_FLOAT8_E4M3, 3, 7, 8, 0x7f, 0x7e, true, false },
	{ FRL_FLOAT8_E5M2, 2, 15, 8, 0x7e, 0x7b, true, true },
};

static uint32_t sign_bit(const struct format *format)
{
	return 1u << (format->bits - 1);
}

/* ---- the definition, in float64 */

static double value_of(const struct format *format, uint32_t x)
{
	uint32_t magnitude = x & (sign_bit(format) - 1);
	int exponent = (int)(magnitude >> format->mantissa);
	uint32_t fraction = magnitude & ((1u << format->mantissa) - 1);
	double value;

	if (magnitude > format->largest)
		value = format->has_infinity && magnitude == format->largest + 1 ? INFINITY : NAN;
	else if (exponent == 0)
		value = ldexp(fraction, 1 - format->bias - format->mantissa);
	else
		value = ldexp(fraction + (1u << format->mantissa),
			exponent - format->bias - format->mantissa);
	return x & sign_bit(format) ? -value : value;
}

static uint32_t bits_of(const struct format *format, double x)
{
	uint32_t sign = signbit(x) ? sign_bit(format) : 0;
	double magnitude = fabs(x), unit;
	int exponent;

	if (isnan(x) || (isinf(x) && !format->has_infinity))
		return format->nan;
	if (isinf(x))
		return sign | (format->largest + 1);
	frexp(magnitude, &exponent); /* magnitude < 2^exponent */
	exponent = exponent - 1 < 1 - format->bias ? 1 - format->bias : exponent - 1;
	unit = ldexp(1, exponent - format->mantissa);
	magnitude = nearbyint(magnitude / unit) * unit;
	if (magnitude > value_of(format, format->largest))
		return sign | (format->largest + (format->saturates ? 0 : 1));
	if (magnitude < ldexp(1, 1 - format->bias))
		return sign | (uint32_t)ldexp(magnitude, format->bias - 1 + format->mantissa);
	frexp(magnitude, &exponent);
	return sign | ((uint32_t)(exponent - 1 + format->bias) << format->mantissa) |
		((uint32_t)ldexp(magnitude, format->mantissa - exponent + 1) &
			((1u << format->mantissa) - 1));
}

/* ---- plain C */

static float widen(enum frl_dtype dtype, uint32_t x)
{
	switch (dtype) {
	case FRL_FLOAT16: return element_from_f16((uint16_t)x);
	case FRL_BFLOAT16: return element_from_bf16((uint16_t)x);
	case FRL_FLOAT8_E4M3: return element_from_e4m3((uint8_t)x);
	default: return element_from_e5m2((uint8_t)x);
	}
}

static uint32_t narrow(enum frl_dtype dtype, float x)
{
	switch (dtype) {
	case FRL_FLOAT16: return element_to_f16(x);
	case FRL_BFLOAT16: return element_to_bf16(x);
	case FRL_FLOAT8_E4M3: return element_to_e4m3(x);
	default: return element_to_e5m2(x);
	}
}

START_LOOP_TEST(all_values, ROWS(formats))
{
	const struct format *format = &formats[_i];

	for (uint32_t x = 0; x < 1u << format->bits; x++) {
		double expected = value_of(format, x);
		float value = widen(format->dtype, x);

		if (isnan(expected) ? !isnan(value) : (double)value != expected)
			ck_abort_msg("%#x is %a, not %a", x, expected, (double)value);
		if (!isnan(expected) && narrow(format->dtype, value) != x)
			ck_abort_msg("%#x comes back as %#x", x, narrow(format->dtype, value));
		if (isnan(expected) && narrow(format->dtype, value) != format->nan)
			ck_abort_msg("%#x does not become the canonical NaN", x);
	}
}
END_TEST

static void check_rounding(const struct format *format, float x)
{
	uint32_t expected = bits_of(format, (double)x), got = narrow(format->dtype, x);

	if (got != expected)
		ck_abort_msg("%a becomes %#x, not %#x", (double)x, got, expected);
}

/* At every value and at every midpoint, and one float32 to each side of both. */
START_LOOP_TEST(rounding, ROWS(formats))
{
	const struct format *format = &formats[_i];
	struct random_state random;

	for (uint32_t x = 0; x < sign_bit(format); x++) {
		float low = widen(format->dtype, x), high = widen(format->dtype, x + 1);
		float points[2] = { low, (float)(((double)low + (double)high) / 2) };

		for (int i = 0; i < 2; i++) {
			check_rounding(format, points[i]);
			check_rounding(format, -points[i]);
			check_rounding(format, nextafterf(points[i], INFINITY));
			check_rounding(format, nextafterf(points[i], -INFINITY));
		}
	}
	random_seed(&random, 3);
	for (int i = 0; i < 1000000; i++)
		check_rounding(format, element_value_f32((uint32_t)random_u64(&random)));
	check_rounding(format, 3.4028235e38f);
	check_rounding(format, -3.4028235e38f);
	check_rounding(format, INFINITY);
	check_rounding(format, -INFINITY);
}
END_TEST

/* ---- operations */

static float in_float32(int op, float a, float b)
{
	bool a_less = a < b || (a == b && signbit(a));

	switch (op) {
	case FRL_SUM: return a + b;
	case FRL_PROD: return a * b;
	case FRL_MAX: return isnan(a) || (!isnan(b) && a_less) ? b : a;
	default: return isnan(a) || (!isnan(b) && !a_less) ? b : a;
	}
}

static uint32_t get(const uint8_t *p, size_t size, size_t i)
{
	uint32_t x = 0;

	memcpy(&x, p + i * size, size);
	return x;
}

static void put(uint8_t *p, size_t size, size_t i, uint32_t x)
{
	memcpy(p + i * size, &x, size);
}

/* The second operands of all values: all of 8 bits, otherwise the edges and some of each
 * exponent. */
static int partners(const struct format *format, uint32_t list[MAX_PARTNERS])
{
	struct random_state random;
	int n = 0;

	random_seed(&random, 4);
	if (format->bits == 8) {
		for (; n < 256; n++)
			list[n] = (uint32_t)n;
		return n;
	}
	for (; n < 16; n++)
		list[n] = (uint32_t)edge_bits(format->dtype, (uint64_t)n);
	for (; n < 28; n++)
		list[n] = (uint32_t)random_below(&random, 65536);
	return n;
}

static uint8_t all[MAX_VALUES * 2], partner[MAX_VALUES * 2];
static uint8_t plain[MAX_VALUES * 2], fast[MAX_VALUES * 2];

static void check_definition(const struct format *format, int op, uint32_t y)
{
	size_t size = frl_dtype_size(format->dtype);

	for (uint32_t x = 0; x < 1u << format->bits; x++) {
		float a = (float)value_of(format, x), b = (float)value_of(format, y);
		uint32_t expected = bits_of(format, (double)in_float32(op, a, b));

		if (get(plain, size, x) != expected)
			ck_abort_msg("%s of %#x and %#x (%a and %a) is %#x, not %#x",
				frl_op_name((enum frl_op)op), x, y, (double)a, (double)b,
				get(plain, size, x), expected);
	}
}

START_LOOP_TEST(operations, PAIRS(ROWS(formats), REDUCE_OPS))
{
	const struct format *format = &formats[_i / REDUCE_OPS];
	int op = _i % REDUCE_OPS;
	size_t size = frl_dtype_size(format->dtype), count = (size_t)1 << format->bits;
	uint32_t list[MAX_PARTNERS];
	int n = partners(format, list);

	for (uint32_t x = 0; x < count; x++)
		put(all, size, x, x);
	for (int i = 0; i < n; i++) {
		for (size_t x = 0; x < count; x++)
			put(partner, size, x, list[i]);
		frl_reduce_local_plain(plain, all, partner, count, format->dtype, (enum frl_op)op);
		if (format->bits == 8 || i % 4 == 1)
			check_definition(format, op, list[i]);
		frl_reduce_local_plain(fast, partner, all, count, format->dtype, (enum frl_op)op);
		ck_assert_msg(memcmp(plain, fast, count * size) == 0, "operands swapped");
		for (int k = 0; k < MAX_KERNELS; k++) {
			const struct reduce_kernels *kernels = kernels_at(k);

			if (!kernels || !kernels->reduce[format->dtype][op])
				continue;
			kernels->reduce[format->dtype][op](fast, all, partner, count);
			for (uint32_t x = 0; memcmp(plain, fast, count * size) != 0; x++)
				if (get(plain, size, x) != get(fast, size, x))
					ck_abort_msg("%s: %#x and %#x", kernels->name, x, list[i]);
		}
	}
}
END_TEST

/* Scaling is the product; a quotient is rounded once after float32. */
START_LOOP_TEST(scaling, ROWS(formats))
{
	static const uint32_t divisors[] = { 1, 2, 3, 5, 7, 8, 1000, 65537, UINT32_MAX };
	const struct format *format = &formats[_i];
	size_t size = frl_dtype_size(format->dtype), count = (size_t)1 << format->bits;
	uint32_t list[MAX_PARTNERS];
	int n = partners(format, list);

	for (uint32_t x = 0; x < count; x++)
		put(all, size, x, x);
	for (int i = 0; i < n; i++) {
		for (size_t x = 0; x < count; x++)
			put(partner, size, x, list[i]);
		frl_reduce_local_plain(plain, all, partner, count, format->dtype, FRL_PROD);
		put(partner, size, 0, list[i]);
		frl_scale_local(fast, all, count, format->dtype, partner);
		ck_assert(memcmp(plain, fast, count * size) == 0);
	}
	for (size_t i = 0; i < sizeof(divisors) / sizeof(divisors[0]); i++) {
		frl_divide_local(fast, all, count, format->dtype, divisors[i]);
		for (uint32_t x = 0; x < count; x++) {
			float quotient = (float)value_of(format, x) / (float)divisors[i];
			uint32_t expected = bits_of(format, (double)quotient);

			if (get(fast, size, x) != expected)
				ck_abort_msg("%#x / %u is %#x, not %#x", x, divisors[i],
					get(fast, size, x), expected);
		}
	}
}
END_TEST

TEST_FILE(reduce_floats)
