/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures MPI_Allreduce of float32 sums by size, out of place and in place, with the columns and
 * definitions of nccl-tests and of `ferrule-bench`: warm-up, a barrier, consecutive iterations,
 * mean over iterations and ranks. Bus bandwidth is 2(n-1)/n times size by time. Results are checked
 * before they are timed.
 *
 *	mpi_allreduce [--min BYTES] [--max BYTES] [--factor N] [--in-place both|off]
 *		[--malloc]
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 5, WARM_UP_FACTOR = 4, MIN_ITERATIONS = 5, MAX_ITERATIONS = 200000 };

static const double TARGET_SECONDS = 0.2;   /* duration of a size's timed iterations */
static const double WARM_UP_SECONDS = 0.01; /* minimum duration of its last warm-up */

static size_t parse_bytes(const char *text)
{
	char *end;
	size_t value = strtoull(text, &end, 10);

	if (*end == 'K')
		value <<= 10;
	else if (*end == 'M')
		value <<= 20;
	else if (*end == 'G')
		value <<= 30;
	return value;
}

/* Returns an element whose sums are exact in float32, so every order gives the same bits. */
static float element(int rank, size_t i)
{
	return (float)((i * 7 + (size_t)rank * 13) % 1021);
}

static void reduce_once(const float *send, float *recv, int count, bool in_place)
{
	MPI_Allreduce(
		in_place ? MPI_IN_PLACE : send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static long wrong_elements(const float *send, float *recv, int count, bool in_place)
{
	int ranks;
	long wrong = 0;

	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	memcpy(recv, send, (size_t)count * sizeof(*recv));
	reduce_once(send, recv, count, in_place);
	for (int i = 0; i < count; i++) {
		float sum = 0;

		for (int rank = 0; rank < ranks; rank++)
			sum += element(rank, (size_t)i);
		wrong += recv[i] != sum;
	}
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	return wrong;
}

static double seconds_each(const float *send, float *recv, int count, bool in_place, int iterations)
{
	double start;

	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	for (int i = 0; i < iterations; i++)
		reduce_once(send, recv, count, in_place);
	return (MPI_Wtime() - start) / iterations;
}

static double measure(const float *send, float *recv, int count, bool in_place)
{
	double seconds;
	int iterations;
	int ranks;

	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (iterations = WARM_UP;; iterations *= WARM_UP_FACTOR) {
		seconds = seconds_each(send, recv, count, in_place, iterations);
		MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
		if (seconds * iterations >= WARM_UP_SECONDS || iterations >= MAX_ITERATIONS)
			break;
	}
	iterations = seconds * MAX_ITERATIONS < TARGET_SECONDS ? MAX_ITERATIONS
							       : (int)(TARGET_SECONDS / seconds);
	if (iterations < MIN_ITERATIONS)
		iterations = MIN_ITERATIONS;
	seconds = seconds_each(send, recv, count, in_place, iterations);
	MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return seconds / ranks;
}

static void print_block(size_t size, double seconds, long wrong)
{
	double algbw = (double)size / seconds / 1e9;
	int ranks;

	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	printf("   %9.2f %7.3f %7.3f %7ld", seconds * 1e6, algbw, algbw * 2 * (ranks - 1) / ranks,
		wrong);
}

/* MPI recommends the memory of MPI_Alloc_mem() for communication. It aborts on failure. */
static float *get_buffer(size_t size, bool is_malloc)
{
	float *buffer = NULL;

	if (!is_malloc) {
		MPI_Alloc_mem((MPI_Aint)size, MPI_INFO_NULL, &buffer);
		return buffer;
	}
	buffer = malloc(size);
	if (!buffer)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return buffer;
}

static void put_buffer(float *buffer, bool is_malloc)
{
	if (is_malloc)
		free(buffer);
	else
		MPI_Free_mem(buffer);
}

static void sweep(size_t min, size_t max, size_t factor, int last_place, bool is_malloc)
{
	float *send = get_buffer(max, is_malloc), *recv = get_buffer(max, is_malloc);
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0)
		printf("# size count type redop, then out of place and in place: time(us) "
		       "algbw(GB/s) busbw(GB/s) #wrong\n");
	for (size_t size = min; size <= max; size *= factor) {
		int count = (int)(size / sizeof(float));

		for (int i = 0; i < count; i++)
			send[i] = element(rank, (size_t)i);
		if (rank == 0)
			printf("  %10zu %12d %6s %5s", size, count, "float", "sum");
		for (int in_place = 0; in_place <= last_place; in_place++) {
			long wrong = wrong_elements(send, recv, count, in_place);
			double seconds = measure(send, recv, count, in_place);

			if (rank == 0)
				print_block(size, seconds, wrong);
		}
		if (rank == 0)
			printf("\n");
		fflush(stdout);
	}
	put_buffer(recv, is_malloc);
	put_buffer(send, is_malloc);
}

int main(int argc, char **argv)
{
	size_t min = 1024;
	size_t max = 64 << 20;
	size_t factor = 2;
	int last_place = 1;
	bool is_malloc = false;

	MPI_Init(&argc, &argv);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--min") == 0 && i + 1 < argc) {
			min = parse_bytes(argv[++i]);
		} else if (strcmp(argv[i], "--max") == 0 && i + 1 < argc) {
			max = parse_bytes(argv[++i]);
		} else if (strcmp(argv[i], "--factor") == 0 && i + 1 < argc) {
			factor = parse_bytes(argv[++i]);
		} else if (strcmp(argv[i], "--in-place") == 0 && i + 1 < argc) {
			last_place = strcmp(argv[++i], "off") != 0;
		} else if (strcmp(argv[i], "--malloc") == 0) {
			is_malloc = true;
		} else {
			fprintf(stderr, "unknown argument %s\n", argv[i]);
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
	}
	sweep(min < sizeof(float) ? sizeof(float) : min, max, factor < 2 ? 2 : factor, last_place,
		is_malloc);
	MPI_Finalize();
	return 0;
}
