/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares the element-wise functions with memcpy() of as many bytes, in the same run: for each
 * instruction set of this processor, memcpy's time divided by the function's (1.00: as fast). The
 * bytes are those of dst; for wire types those of float32. Medians of rounds in which all run in
 * turns.
 *
 *	bench_reduce [--quick] [--bytes N] [--type NAME]	N bytes, of one type or all
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/reduce/kernels.h"

enum {
	DEFAULT_BYTES = 256 * 1024, /* so that three buffers fit the second-level cache */
	ROUNDS = 41,
	ROUNDS_QUICK = 1,
	MAX_KERNELS = 8,
	ROUND_NS = 200000, /* minimum duration of a measurement */
};

static uint8_t *dst, *a, *b; /* aligned */
static size_t bytes = DEFAULT_BYTES;
static int rounds = ROUNDS;
static const char *only; /* the type to measure; NULL: all */
static const struct reduce_kernels *kernels[MAX_KERNELS];
static int n_kernels;

/* One function in one instruction set. */
struct job {
	enum { REDUCE, DIVIDE, ENCODE, DECODE, DECODE_ADD, COPY } kind;
	int dtype, op, wire;
	const struct reduce_kernels *kernels;
};

static bool exists(const struct job *job)
{
	switch (job->kind) {
	case REDUCE: return job->kernels->reduce[job->dtype][job->op];
	case DIVIDE: return job->kernels->divide[job->dtype];
	case ENCODE: return job->kernels->encode[job->wire];
	case DECODE: return job->kernels->decode[job->wire];
	case DECODE_ADD: return job->kernels->decode_add[job->wire];
	case COPY: break;
	}
	return true;
}

static void run_once(const struct job *job)
{
	size_t floats = bytes / sizeof(float);
	size_t count = job->kind <= DIVIDE ? bytes / frl_dtype_size((enum frl_dtype)job->dtype) : 0;

	switch (job->kind) {
	case REDUCE: job->kernels->reduce[job->dtype][job->op](dst, a, b, count); break;
	case DIVIDE: job->kernels->divide[job->dtype](dst, a, count, 3); break;
	case ENCODE: job->kernels->encode[job->wire](dst, a, floats); break;
	case DECODE: job->kernels->decode[job->wire](dst, b, floats); break;
	case DECODE_ADD: job->kernels->decode_add[job->wire](dst, a, b, floats); break;
	case COPY: memcpy(dst, a, bytes); break;
	}
	__asm__ volatile("" ::: "memory");
}

static double measure_ns(const struct job *job)
{
	uint64_t start = clock_now_ns(), now;
	unsigned int n = 0;

	do {
		run_once(job);
		n++;
		now = clock_now_ns();
	} while (now - start < ROUND_NS && rounds > ROUNDS_QUICK);
	return (double)(now - start) / n;
}

static int compare(const void *left, const void *right)
{
	double p = *(const double *)left, q = *(const double *)right;

	return (p > q) - (p < q);
}

/* Prints one line: the job with each instruction set. */
static void bench(const char *type, const char *what, struct job job)
{
	static double ratios[MAX_KERNELS][ROUNDS];
	const struct job copy = { .kind = COPY };

	if (only && strcmp(only, type) != 0)
		return;
	for (int round = -1; round < rounds; round++) {
		double copy_ns = measure_ns(&copy);

		for (int i = 0; i < n_kernels; i++) {
			job.kernels = kernels[i];
			if (exists(&job))
				ratios[i][round < 0 ? 0 : round] = copy_ns / measure_ns(&job);
		}
	}
	printf("%-12s %-10s", type, what);
	for (int i = 0; i < n_kernels; i++) {
		job.kernels = kernels[i];
		qsort(ratios[i], (size_t)rounds, sizeof(double), compare);
		if (exists(&job))
			printf(" %8.2f", ratios[i][rounds / 2]);
		else
			printf(" %8s", "-");
	}
	printf("\n");
	fflush(stdout);
}

/* Fills with numbers from 1 to 2, or any integers, to avoid denormal numbers and NaN. */
static void fill(uint8_t *p, int dtype, uint64_t seed)
{
	struct random_state random;
	size_t size = frl_dtype_size((enum frl_dtype)dtype);

	random_seed(&random, seed);
	for (size_t i = 0; i < bytes; i += size) {
		uint64_t bits = random_u64(&random);

		switch (dtype) {
		case FRL_FLOAT16: bits = (bits & 0x3ff) | 0x3c00; break;
		case FRL_FLOAT32: bits = (bits & 0x7fffff) | 0x3f800000; break;
		case FRL_FLOAT64: bits = bits >> 12 | 0x3ff0000000000000; break;
		case FRL_BFLOAT16: bits = (bits & 0x7f) | 0x3f80; break;
		case FRL_FLOAT8_E4M3: bits = (bits & 7) | 0x38; break;
		case FRL_FLOAT8_E5M2: bits = (bits & 3) | 0x3c; break;
		default: break;
		}
		memcpy(p + i, &bits, size);
	}
}

static void bench_all(void)
{
	for (int dtype = 0; dtype < FRL_DTYPES; dtype++) {
		const char *type = frl_dtype_name((enum frl_dtype)dtype);

		fill(a, dtype, 1);
		fill(b, dtype, 2);
		for (int op = 0; op < REDUCE_OPS; op++)
			bench(type, frl_op_name((enum frl_op)op),
				(struct job){ .kind = REDUCE, .dtype = dtype, .op = op });
		bench(type, "divide", (struct job){ .kind = DIVIDE, .dtype = dtype });
	}
	for (int wire = FRL_WIRE_FLOAT16; wire < FRL_WIRES; wire++) {
		const char *type = frl_wire_name((enum frl_wire)wire);

		fill(a, FRL_FLOAT32, 1);
		frl_wire_encode(b, (const float *)(const void *)a, bytes / sizeof(float),
			(enum frl_wire)wire);
		bench(type, "encode", (struct job){ .kind = ENCODE, .wire = wire });
		bench(type, "decode", (struct job){ .kind = DECODE, .wire = wire });
		bench(type, "decode+add", (struct job){ .kind = DECODE_ADD, .wire = wire });
	}
}

static bool parse(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--quick") == 0)
			rounds = ROUNDS_QUICK;
		else if (strcmp(argv[i], "--bytes") == 0 && i + 1 < argc)
			bytes = strtoul(argv[++i], NULL, 0) / 8 * 8;
		else if (strcmp(argv[i], "--type") == 0 && i + 1 < argc)
			only = argv[++i];
		else
			return false;
	}
	return bytes > 0;
}

int main(int argc, char **argv)
{
	if (!parse(argc, argv)) {
		fprintf(stderr, "usage: bench_reduce [--quick] [--bytes N] [--type NAME]\n");
		return 2;
	}
	dst = aligned_alloc(64, (bytes + 63) / 64 * 64);
	a = aligned_alloc(64, (bytes + 63) / 64 * 64);
	b = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (!dst || !a || !b)
		return 1;
	printf("%-12s %-10s", "type", "operation");
	for (int i = 0; reduce_all_kernels[i] && i < MAX_KERNELS; i++) {
		if (!reduce_all_kernels[i]->supported())
			continue;
		kernels[n_kernels++] = reduce_all_kernels[i];
		printf(" %8s", reduce_all_kernels[i]->name);
	}
	printf("\n");
	bench_all();
	free(dst);
	free(a);
	free(b);
	return 0;
}
