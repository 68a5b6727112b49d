/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wire types: every instruction set bit for bit against plain C, the format of blocks, and the
 * error of each element against the bounds of ferrule/reduce.h, on random, awkward and exact
 * inputs.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "lib/reduce/element.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/reduce_fixture.h"

enum { MAX_COUNT = 700, ROOM = MAX_COUNT * 4 + 128, N_LOOPS = MAX_KERNELS * FRL_WIRES };

/* The kind of inputs of one check. */
enum kind {
	NORMAL,       /* Gaussian-like */
	EXPONENTS,    /* every magnitude that there is */
	HUGE_NUMBERS, /* near the largest */
	TINY_NUMBERS, /* denormal, or nearly */
	SPREAD,       /* one large element in a block of small ones */
	SPECIAL,      /* with NaN and infinities */
	ANY_BITS,
	KINDS
};

static float normal(struct random_state *random)
{
	double sum = 0;

	for (int i = 0; i < 12; i++)
		sum += (double)(random_u64(random) >> 11) * 0x1p-53;
	return (float)(sum - 6);
}

static float input(enum kind kind, size_t i, struct random_state *random)
{
	float x = normal(random);

	switch (kind) {
	case NORMAL: break;
	case EXPONENTS: return ldexpf(x, (int)random_below(random, 250) - 125);
	case HUGE_NUMBERS: return ldexpf(x / 8, 128);
	case TINY_NUMBERS: return ldexpf(x, -118 - (int)random_below(random, 32));
	case SPREAD: return i % 97 == 5 ? ldexpf(x, 12) : x;
	case SPECIAL: return i % 150 == 7 ? (i % 4 ? INFINITY : NAN) : x;
	case ANY_BITS: return element_value_f32((uint32_t)random_u64(random));
	case KINDS: break;
	}
	return x;
}

static void fill(float *x, size_t count, enum kind kind, struct random_state *random)
{
	for (size_t i = 0; i < count; i++)
		x[i] = input(kind, i, random);
}

static size_t pick(size_t n, size_t count)
{
	return n < 300 ? n : n * 13 % count;
}

/* ---- all instruction sets give the same */

START_LOOP_TEST(as_plain_c, N_LOOPS)
{
	const struct reduce_kernels *kernels = kernels_at(_i / FRL_WIRES);
	int wire = _i % FRL_WIRES;
	static uint8_t fast[ROOM], plain[ROOM];
	static float x[MAX_COUNT], y[MAX_COUNT], decoded[MAX_COUNT + 1], expected[MAX_COUNT + 1];
	struct random_state random;

	random_seed(&random, 5);
	for (size_t n = 0; kernels && kernels->encode[wire] && n < 350 * KINDS; n++) {
		size_t count = pick(n / KINDS, MAX_COUNT), at = n % 67, over;
		size_t bytes = frl_wire_size((enum frl_wire)wire, count);

		fill(x, count, (enum kind)(n % KINDS), &random);
		fill(y, count, NORMAL, &random);
		memset(fast, 0x5a, ROOM);
		memset(plain, 0x5a, ROOM);
		over = reduce_plain.encode[wire](plain + at, x, count);
		ck_assert_uint_eq(kernels->encode[wire](fast + at, x, count), over);
		ck_assert_msg(memcmp(fast, plain, ROOM) == 0, "encode: kind %zu, %zu elements",
			n % KINDS, count);
		if (n % 5 == 0) /* whatever bytes arrive */
			for (size_t i = 0; i < bytes; i++)
				plain[at + i] = (uint8_t)random_u64(&random);
		decoded[count] = expected[count] = 77;
		reduce_plain.decode[wire](expected, plain + at, count);
		kernels->decode[wire](decoded, plain + at, count);
		ck_assert_msg(memcmp(decoded, expected, (count + 1) * 4) == 0,
			"decode: kind %zu, %zu elements", n % KINDS, count);
		reduce_plain.decode_add[wire](expected, y, plain + at, count);
		memcpy(decoded, y, count * 4);
		kernels->decode_add[wire](decoded, decoded, plain + at, count);
		ck_assert_msg(memcmp(decoded, expected, (count + 1) * 4) == 0,
			"decode and add: kind %zu, %zu elements", n % KINDS, count);
	}
}
END_TEST

/* As decoding and then reducing; but with int8 no NaN is ignored. */
START_LOOP_TEST(decode_and_reduce, PAIRS(FRL_WIRES, FRL_AVG))
{
	enum frl_wire wire = (enum frl_wire)(_i % FRL_WIRES);
	enum frl_op op = (enum frl_op)(_i / FRL_WIRES);
	bool keeps_nan = wire == FRL_WIRE_INT8 && (op == FRL_MAX || op == FRL_MIN);
	static float x[3000], y[3000], expected[3000], got[3001];
	static uint8_t encoded[sizeof(x) + 1];
	struct random_state random;

	random_seed(&random, (uint64_t)_i);
	for (size_t n = 0; n < 300; n++) {
		size_t count = random_below(&random, 3000), at = n % 2;

		fill(x, count, (enum kind)(n % KINDS), &random);
		fill(y, count, (enum kind)(n / KINDS % KINDS), &random);
		frl_wire_encode(encoded + at, x, count, wire);
		frl_wire_decode(x, encoded + at, count, wire);
		frl_reduce_local_plain(expected, y, x, count, FRL_FLOAT32, op);
		for (size_t i = 0; i < count && keeps_nan; i++)
			if (isnan(x[i]) || isnan(y[i]))
				memcpy(&expected[i], &(uint32_t){ 0x7fc00000 }, 4);
		got[count] = 77;
		memcpy(got, y, count * 4);
		frl_wire_decode_reduce(got, got, encoded + at, count, wire, op);
		ck_assert_msg(memcmp(got, expected, count * 4) == 0 && got[count] == 77,
			"wire %d, operation %d: kinds %zu and %zu, %zu elements", wire, op,
			n % KINDS, n / KINDS % KINDS, count);
	}
	got[0] = 5;
	frl_wire_decode_reduce(got, got, encoded, 1, wire, FRL_AVG);
	frl_wire_decode_reduce(got, got, encoded, 1, FRL_WIRES, op);
	ck_assert_float_eq(got[0], 5);
}
END_TEST

/* All values of the two that are floats. */
START_LOOP_TEST(all_halves, 2 * MAX_KERNELS)
{
	static uint16_t halves[65536];
	static float expected[65536], decoded[65536];
	const struct reduce_kernels *kernels = kernels_at(_i / 2);
	int wire = _i % 2 ? FRL_WIRE_FLOAT16 : FRL_WIRE_BFLOAT16;

	for (uint32_t i = 0; i < 65536; i++)
		halves[i] = (uint16_t)i;
	if (!kernels || !kernels->decode[wire])
		return;
	reduce_plain.decode[wire](expected, halves, 65536);
	kernels->decode[wire](decoded, halves, 65536);
	ck_assert(memcmp(decoded, expected, sizeof(expected)) == 0);
}
END_TEST

/* Exactly allocated, so that the address sanitizer sees a load or store past the elements. */
START_LOOP_TEST(no_byte_outside, FRL_WIRES)
{
	for (size_t count = 1; count < 300; count++) {
		uint8_t *wire = malloc(frl_wire_size((enum frl_wire)_i, count));
		float *x = calloc(count, sizeof(float)), *y = calloc(count, sizeof(float));

		ck_assert(wire && x && y);
		x[count - 1] = 1;
		ck_assert_uint_eq(frl_wire_encode(wire, x, count, (enum frl_wire)_i), 0);
		frl_wire_decode(y, wire, count, (enum frl_wire)_i);
		ck_assert_float_eq_tol(y[0], x[0], 0.01);
		frl_wire_decode_add(y, y, wire, count, (enum frl_wire)_i);
		ck_assert_float_eq_tol(y[count - 1], 2, 0.02);
		free(wire);
		free(x);
		free(y);
	}
}
END_TEST

/* ---- bounds */

/* The largest magnitude in the block of element i. */
static double amax_of(const float *x, size_t count, size_t i)
{
	size_t first = i / FRL_WIRE_BLOCK * FRL_WIRE_BLOCK;
	double amax = 0;

	for (size_t j = first; j < count && j < first + FRL_WIRE_BLOCK; j++)
		amax = fmax(amax, fabs((double)x[j]));
	return amax;
}

static double bound(enum frl_wire wire, const float *x, size_t count, size_t i)
{
	double magnitude = fabs((double)x[i]), amax;

	switch (wire) {
	case FRL_WIRE_FLOAT16:
		return magnitude > 65504 ? magnitude - 65504 : fmax(magnitude * 0x1p-11, 0x1p-25);
	case FRL_WIRE_BFLOAT16: return fmax(magnitude * 0x1p-8, 0x1p-134);
	case FRL_WIRE_INT8:
		amax = amax_of(x, count, i);
		return fmax(amax / 254 * (1 + 0x1p-7), 0x1p-127) * (1 + 0x1p-14);
	default: return 0;
	}
}

static bool is_over(enum frl_wire wire, float x)
{
	double magnitude = fabs((double)x);

	return isfinite(x) &&
		((wire == FRL_WIRE_FLOAT16 && magnitude >= 65520) ||
			(wire == FRL_WIRE_BFLOAT16 && magnitude >= 0x1.ffp127));
}

START_LOOP_TEST(error_of_each_element, PAIRS(FRL_WIRES, SPECIAL))
{
	enum frl_wire wire = (enum frl_wire)(_i % FRL_WIRES);
	enum kind kind = (enum kind)(_i / FRL_WIRES);
	static float x[MAX_COUNT], y[MAX_COUNT];
	static uint8_t encoded[ROOM];
	struct random_state random;

	random_seed(&random, 6);
	for (int round = 0; round < 300; round++) {
		size_t count = 1 + random_below(&random, MAX_COUNT), over = 0;

		fill(x, count, kind, &random);
		for (size_t i = 0; i < count; i++)
			over += is_over(wire, x[i]);
		ck_assert_uint_eq(frl_wire_encode(encoded, x, count, wire), over);
		frl_wire_decode(y, encoded, count, wire);
		for (size_t i = 0; i < count; i++)
			if (fabs((double)y[i] - (double)x[i]) > bound(wire, x, count, i))
				ck_abort_msg("%a of %zu elements is decoded as %a", (double)x[i],
					count, (double)y[i]);
	}
}
END_TEST

/* The least bfloat16 that is amax / 127 or more, and no denormal one. */
static bool is_scale(uint16_t bits, double amax)
{
	double scale = (double)element_from_bf16(bits);
	double lower = (double)element_from_bf16((uint16_t)(bits - 1));

	return bits >= 0x80 && scale * 127 >= amax && (bits == 0x80 || lower * 127 < amax);
}

/* Two elements, with nearly every amax. */
START_TEST(every_scale)
{
	float x[2], y[2];
	uint8_t encoded[4];

	for (uint32_t bits = 0; bits < 0x7f800000; bits += bits % 65536 ? 65533 : 3) {
		x[0] = element_value_f32(bits);
		x[1] = -x[0] * 0.37f;
		frl_wire_encode(encoded, x, 2, FRL_WIRE_INT8);
		if (!is_scale((uint16_t)(encoded[0] | encoded[1] << 8), (double)x[0]))
			ck_abort_msg("the scale of amax %a", (double)x[0]);
		frl_wire_decode(y, encoded, 2, FRL_WIRE_INT8);
		for (size_t i = 0; i < 2; i++)
			if (!(fabs((double)y[i] - (double)x[i]) <= bound(FRL_WIRE_INT8, x, 2, i)))
				ck_abort_msg("amax %a: %a is decoded as %a", (double)x[0],
					(double)x[i], (double)y[i]);
	}
}
END_TEST

/* ---- the format */

static void check_float16(float x, uint16_t expected, size_t over)
{
	uint16_t got[40];
	float y[40];

	for (int i = 0; i < 40; i++)
		y[i] = x;
	ck_assert_uint_eq(frl_wire_encode(got, y, 40, FRL_WIRE_FLOAT16), over * 40);
	for (int i = 0; i < 40; i++)
		ck_assert_uint_eq(got[i], expected);
}

START_TEST(float16_saturates)
{
	check_float16(1.0f, 0x3c00, 0);
	check_float16(65504.0f, 0x7bff, 0);
	check_float16(65519.0f, 0x7bff, 0);
	check_float16(65520.0f, 0x7bff, 1);
	check_float16(-1e30f, 0xfbff, 1);
	check_float16(3.4028235e38f, 0x7bff, 1);
	check_float16(-INFINITY, 0xfc00, 0);
	check_float16(-NAN, 0x7e00, 0);
}
END_TEST

START_TEST(bfloat16_saturates)
{
	const float x[] = { 1.0f, 3.4028235e38f, -3.4028235e38f, INFINITY, NAN, 0x1.fefffep127f };
	const uint16_t expected[] = { 0x3f80, 0x7f7f, 0xff7f, 0x7f80, 0x7fc0, 0x7f7f };
	uint16_t got[6];

	ck_assert_uint_eq(frl_wire_encode(got, x, 6, FRL_WIRE_BFLOAT16), 2);
	ck_assert_mem_eq(got, expected, sizeof(expected));
}
END_TEST

/* 127 * 2^k is the largest: all multiples of 2^k are exact, and the bytes are known. */
START_TEST(blocks_of_known_bytes)
{
	float x[130], y[130];
	uint8_t encoded[134];

	for (int i = 0; i < 130; i++)
		x[i] = ldexpf((float)(i - 64) * (i == 127 ? -2 : 1), i < 128 ? -3 : 5);
	x[0] = ldexpf(-127, -3);
	x[129] = ldexpf(127, 5);
	ck_assert_uint_eq(frl_wire_size(FRL_WIRE_INT8, 130), 134);
	ck_assert_uint_eq(frl_wire_encode(encoded, x, 130, FRL_WIRE_INT8), 0);
	ck_assert_uint_eq(encoded[0] | encoded[1] << 8, 0x3e00); /* 2^-3 */
	ck_assert_int_eq((int8_t)encoded[2], -127);
	ck_assert_int_eq((int8_t)encoded[3], -63);
	ck_assert_int_eq((int8_t)encoded[2 + 127], -126);
	ck_assert_uint_eq(encoded[130] | encoded[131] << 8, 0x4200); /* 2^5 */
	ck_assert_int_eq((int8_t)encoded[132], 64);
	ck_assert_int_eq((int8_t)encoded[133], 127);
	frl_wire_decode(y, encoded, 130, FRL_WIRE_INT8);
	ck_assert_mem_eq(x, y, sizeof(x));
	frl_wire_decode_add(y, x, encoded, 130, FRL_WIRE_INT8);
	for (int i = 0; i < 130; i++)
		ck_assert_float_eq(y[i], 2 * x[i]);
}
END_TEST

/* To even, in whole blocks and in short ones. */
START_TEST(ties)
{
	static const float steps[] = { 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, 127 };
	static const int8_t expected[] = { 0, 2, 2, 0, -2, -2, 126, 127 };
	float x[136];
	uint8_t encoded[140];

	for (int i = 0; i < 136; i++)
		x[i] = steps[i % 8];
	frl_wire_encode(encoded, x, 136, FRL_WIRE_INT8);
	for (int i = 0; i < 136; i++)
		ck_assert_int_eq((int8_t)encoded[i < 128 ? 2 + i : 4 + i], expected[i % 8]);
}
END_TEST

/* A block with a NaN or an infinity is NaN, the blocks beside it are not. */
START_LOOP_TEST(not_a_number, 4)
{
	static const float special[] = { NAN, -NAN, INFINITY, -INFINITY };
	float x[300], y[300];
	uint8_t encoded[306];

	for (int i = 0; i < 300; i++)
		x[i] = i == 128 + _i * 31 ? special[_i] : (float)i;
	frl_wire_encode(encoded, x, 300, FRL_WIRE_INT8);
	for (int i = 0; i < 128; i++)
		ck_assert_uint_eq(encoded[130 + 2 + i], 0);
	frl_wire_decode(y, encoded, 300, FRL_WIRE_INT8);
	for (int i = 0; i < 300; i++)
		ck_assert_int_eq(!!isnan(y[i]), i >= 128 && i < 256);
	frl_wire_encode(encoded, x + 128, 100, FRL_WIRE_INT8); /* a short block */
	frl_wire_decode(y, encoded, 100, FRL_WIRE_INT8);
	for (int i = 0; i < 100; i++)
		ck_assert(isnan(y[i]));
}
END_TEST

START_TEST(zeros_and_denormal_numbers)
{
	float x[128] = { 0.0f, -0.0f }, y[128];
	uint8_t encoded[130];

	frl_wire_encode(encoded, x, 128, FRL_WIRE_INT8);
	for (int i = 2; i < 130; i++)
		ck_assert_uint_eq(encoded[i], 0);
	frl_wire_decode(y, encoded, 128, FRL_WIRE_INT8);
	for (int i = 0; i < 128; i++)
		ck_assert_float_eq(y[i], 0);
	x[5] = 1e-45f;
	x[6] = -0x1p-126f;
	frl_wire_encode(encoded, x, 128, FRL_WIRE_INT8);
	frl_wire_decode(y, encoded, 128, FRL_WIRE_INT8);
	ck_assert_float_eq(y[5], 0);
	ck_assert_float_eq(y[6], -0x1p-126f);
}
END_TEST

/* The encoding of a part that begins at a multiple of a block is a part of the encoding of all. */
START_LOOP_TEST(parts, FRL_WIRES)
{
	static float x[MAX_COUNT];
	static uint8_t whole[ROOM], part[ROOM];
	enum frl_wire wire = (enum frl_wire)_i;
	struct random_state random;

	random_seed(&random, 7);
	fill(x, MAX_COUNT, NORMAL, &random);
	frl_wire_encode(whole, x, MAX_COUNT, wire);
	for (size_t first = 0; first < MAX_COUNT; first += FRL_WIRE_BLOCK) {
		size_t count = MAX_COUNT - first;

		frl_wire_encode(part, x + first, count, wire);
		ck_assert_uint_eq(frl_wire_size(wire, MAX_COUNT),
			frl_wire_size(wire, first) + frl_wire_size(wire, count));
		ck_assert_mem_eq(
			whole + frl_wire_size(wire, first), part, frl_wire_size(wire, count));
	}
}
END_TEST

START_TEST(sizes_and_nonsense)
{
	float x = 1, y = 2;

	ck_assert_uint_eq(frl_wire_size(FRL_WIRE_SAME, 3), 12);
	ck_assert_uint_eq(frl_wire_size(FRL_WIRE_FLOAT16, 3), 6);
	ck_assert_uint_eq(frl_wire_size(FRL_WIRE_BFLOAT16, 3), 6);
	ck_assert_uint_eq(frl_wire_size(FRL_WIRE_INT8, 0), 0);
	ck_assert_uint_eq(frl_wire_size(FRL_WIRE_INT8, 1), 3);
	ck_assert_uint_eq(frl_wire_size(FRL_WIRE_INT8, 128), 130);
	ck_assert_uint_eq(frl_wire_size(FRL_WIRE_INT8, 129), 133);
	ck_assert_uint_eq(frl_wire_size(FRL_WIRES, 3), 0);
	ck_assert_uint_eq(frl_wire_encode(&y, &x, 1, FRL_WIRES), 0);
	frl_wire_decode(&y, &x, 1, FRL_WIRES);
	frl_wire_decode_add(&y, &x, &x, 1, (enum frl_wire) - 1);
	ck_assert_float_eq(y, 2);
}
END_TEST

TEST_FILE(wire_type)
