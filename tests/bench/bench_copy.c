/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Speed of the copies of the data path by the distance between the buffers. Some processors are
 * slow if it is small modulo 4096. Prints GB/s as JSON, memcpy() beside them: {"copy": {"bytes":
 * {"offset": GB/s}}}. Medians of rounds in which the offsets take turns.
 *
 *	bench_copy [--quick]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/memory/copy.h"

enum {
	ROUNDS = 21,
	ROUND_NS = 200000, /* minimum duration of a measurement */
	PAGE = 4096,
};

static const struct {
	const char *name;
	void (*copy)(void *dst, const void *src, size_t n);
} copies[] = {
	{ "bulk", copy_bulk },
	{ "in order", copy_in_order },
	{ "non-temporal", copy_nontemporal },
};

static void call_memcpy(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
}

static const size_t sizes[] = { 16 << 10, 64 << 10, 1 << 20, 16 << 20 };
static const size_t offsets[] = { 0, 16, 64, 4080 };

enum {
	COPIES = sizeof(copies) / sizeof(copies[0]),
	SIZES = sizeof(sizes) / sizeof(sizes[0]),
	OFFSETS = sizeof(offsets) / sizeof(offsets[0]),
	LARGEST = 16 << 20,
};

static double measure(
	void (*copy)(void *, const void *, size_t), uint8_t *dst, const uint8_t *src, size_t n)
{
	uint64_t start = clock_now_ns(), now;
	size_t done = 0;

	do {
		copy(dst, src, n);
		__asm__ volatile("" ::: "memory");
		done += n;
		now = clock_now_ns();
	} while (now - start < ROUND_NS);
	return (double)done / (double)(now - start);
}

static int compare(const void *left, const void *right)
{
	double p = *(const double *)left, q = *(const double *)right;

	return (p > q) - (p < q);
}

/* Prints the medians of one copy and size. The source, or else the destination, is moved by the
 * offset; the slower way counts. */
static void bench(void (*copy)(void *, const void *, size_t), size_t n, int rounds, uint8_t *dst,
	const uint8_t *src)
{
	static double speed[OFFSETS][2][ROUNDS];

	for (int round = 0; round < rounds; round++)
		for (unsigned i = 0; i < OFFSETS; i++) {
			speed[i][0][round] = measure(copy, dst, src + offsets[i], n);
			speed[i][1][round] = measure(copy, dst + offsets[i], src, n);
		}
	for (unsigned i = 0; i < OFFSETS; i++) {
		double *one = speed[i][0], *other = speed[i][1];

		qsort(one, (size_t)rounds, sizeof(double), compare);
		qsort(other, (size_t)rounds, sizeof(double), compare);
		printf("%s\"%zu\": %.2f", i ? ", " : "", offsets[i],
			one[rounds / 2] < other[rounds / 2] ? one[rounds / 2] : other[rounds / 2]);
	}
}

static void bench_sizes(const char *name, void (*copy)(void *, const void *, size_t), int rounds,
	uint8_t *dst, const uint8_t *src)
{
	printf("\"%s\": {", name);
	for (unsigned i = 0; i < SIZES; i++) {
		printf("%s\n  \"%zu\": {", i ? "," : "", sizes[i]);
		bench(copy, sizes[i], rounds, dst, src);
		printf("}");
	}
	printf("}");
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 && strcmp(argv[1], "--quick") == 0 ? 1 : ROUNDS;
	uint8_t *dst = aligned_alloc(PAGE, LARGEST + PAGE);
	uint8_t *src = aligned_alloc(PAGE, LARGEST + PAGE);

	if (!dst || !src)
		return 1;
	memset(dst, 1, LARGEST + PAGE);
	memset(src, 2, LARGEST + PAGE);
	printf("{");
	for (unsigned i = 0; i < COPIES; i++) {
		bench_sizes(copies[i].name, copies[i].copy, rounds, dst, src);
		printf(",\n");
	}
	bench_sizes("memcpy", call_memcpy, rounds, dst, src);
	printf("}\n");
	free(dst);
	free(src);
	return 0;
}
