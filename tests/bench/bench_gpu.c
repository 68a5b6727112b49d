/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures how kernels move packets on GPU 0, in one run over the same bus: the bandwidth of
 * gathering packets from host memory into a tensor with addition, of gathering a tensor into
 * packets, of a copy engine, and of a kernel with long pieces. Also measures launches, packets a
 * second, and launches while another thread waits in the driver.
 *
 *	bench_gpu [--quick]
 *
 * Prints markdown. Skipped (status 77) without a GPU, with the reason. With --quick on the double
 * of the driver it only shows that it works, and prints no numbers.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferrule/gpu.h>
#include <ferrule/reduce.h>

#include "gpudirect/kernels/batch.h"
#include "gpudirect/gpu.h"
#include "gpudirect/host.h"
#include "gpudirect/queue.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/random.h"
#include "tests/fakes/cuda/fake_libcuda.h"

enum {
	SKIPPED = 77,
	PACKET = 4096,
	POOL = 64 << 20, /* bytes, of packets and of the tensor */
	TOTAL = 1 << 30, /* bytes moved for one number */
	QUICK_TOTAL = 4 << 20,
	AHEAD = 4, /* launches and copies in flight */
	ROUNDS = 7,
	LAUNCHES = 2000,
	TARGET = 90, /* percent of the copy engine, */
	TARGET_FROM = 1 << 20,
	LEAST_WAIT_NS = 20000000, /* wait of the freeing thread that counts */
	BUSY = 64,                /* launches of POOL bytes each: some 100 ms */
};

static const size_t sizes[] = { 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20 };
enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

struct bench {
	struct gpu *gpu;
	struct gpu_queue *queue;
	uint8_t *pool; /* host */
	uint64_t packets;
	cu_deviceptr tensor;
	uint32_t *order; /* packets come from anywhere in the pool */
	size_t total;
	int rounds;
};

/* Operation of a row on the bytes of a size. */
enum way { GATHER_REDUCE, LONG_REDUCE, SCATTER, WAYS };

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "bench_gpu: %s: %s\n", what, frl_last_error());
	exit(1);
}

static void must(int rc, const char *what)
{
	if (rc)
		die(what);
}

static void must_cuda(cu_result result, const char *call)
{
	if (result != CUDA_SUCCESS)
		must(cuda_fail(result, call, NULL), call);
}

static void wait_for(struct bench *b, uint64_t ticket)
{
	const char *why;

	while (gpu_queue_done(b->queue) < ticket)
		;
	if (gpu_queue_error(b->queue, &why)) {
		fprintf(stderr, "bench_gpu: %s\n", why);
		exit(1);
	}
}

static uint64_t add(struct bench *b, const struct gpu_work *work)
{
	uint64_t ticket;

	/* There is no room until some are done. */
	while (!(ticket = gpu_queue_add(b->queue, work))) {
		const char *why;

		if (gpu_queue_error(b->queue, &why)) {
			fprintf(stderr, "bench_gpu: %s\n", why);
			exit(1);
		}
		gpu_queue_launch(b->queue);
		gpu_queue_done(b->queue);
	}
	return ticket;
}

static uint64_t add_packet(struct bench *b, enum way way, size_t at, size_t length)
{
	uint64_t packet = b->packets + (uint64_t)b->order[at / PACKET] * PACKET;
	struct gpu_work work = { .dtype = FRL_FLOAT32, .op = FRL_SUM };

	if (way == SCATTER) {
		work.action = GPU_COPY;
		work.dst = packet;
		work.src = b->tensor + at;
		work.count = length;
	} else {
		work.action = GPU_REDUCE;
		work.dst = work.operand = b->tensor + at;
		work.src = way == GATHER_REDUCE ? packet : b->packets + at;
		work.count = length / sizeof(float);
	}
	return add(b, &work);
}

/* Adds one launch, or as many as the pieces need. */
static uint64_t add_bytes(struct bench *b, enum way way, size_t at, size_t size)
{
	size_t step = way == LONG_REDUCE ? size : PACKET;
	uint64_t ticket = 0;

	for (size_t done = 0; done < size; done += step)
		ticket = add_packet(b, way, at + done, step);
	gpu_queue_launch(b->queue);
	return ticket;
}

static double measure_kernel(struct bench *b, enum way way, size_t size)
{
	uint64_t tickets[AHEAD] = { 0 }, start = clock_now_ns();
	size_t n = b->total / size;

	for (size_t i = 0; i < n; i++) {
		wait_for(b, tickets[i % AHEAD]);
		tickets[i % AHEAD] = add_bytes(b, way, i * size % POOL, size);
	}
	for (int i = 0; i < AHEAD; i++)
		wait_for(b, tickets[i]);
	return (double)(n * size) / (double)(clock_now_ns() - start);
}

/* The upper limit: bandwidth of the bus for a plain copy. */
static double measure_copy(struct bench *b, bool to_gpu, size_t size)
{
	const struct cuda_api *cuda = b->gpu->cuda;
	size_t n = b->total / size;
	uint64_t start;
	cu_stream stream;

	must_cuda(cuda->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0),
		"cuStreamCreateWithPriority");
	start = clock_now_ns();
	for (size_t i = 0; i < n; i++) {
		size_t at = i * size % POOL;

		must_cuda(
			to_gpu ? cuda->cuMemcpyHtoDAsync(b->tensor + at, b->pool + at, size, stream)
			       : cuda->cuMemcpyDtoHAsync(
					 b->pool + at, b->tensor + at, size, stream),
			"cuMemcpyAsync");
	}
	must_cuda(cuda->cuStreamSynchronize(stream), "cuStreamSynchronize");
	start = clock_now_ns() - start;
	must_cuda(cuda->cuStreamDestroy(stream), "cuStreamDestroy");
	return (double)(n * size) / (double)start;
}

static int compare(const void *left, const void *right)
{
	double p = *(const double *)left, q = *(const double *)right;

	return (p > q) - (p < q);
}

static double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), compare);
	return values[n / 2];
}

/* Returns the number of launches of gather-reduce. */
static size_t launches_of(const struct bench *b, size_t size)
{
	size_t most = gpu_queue_max_pieces(b->queue);

	return (size / PACKET + most - 1) / most;
}

/* Compares gather-reduce with its target: a share of the copy engine, from TARGET_FROM bytes on. */
static void judge(double least)
{
	printf("\nGather-reduce is %.0f %% of the copy engine at least, from %d KiB on; %d %% are "
	       "wanted: %s.\n",
		least * 100, TARGET_FROM >> 10, TARGET, least * 100 < TARGET ? "not met" : "met");
}

/* Runs all ways in turns; the first round is a warm-up. */
static void bench_bandwidth(struct bench *b, bool is_gpu)
{
	double least = 1e9;

	for (int s = 0; s < N_SIZES; s++) {
		double by[WAYS + 2][ROUNDS], is[WAYS + 2];

		for (int round = -1; round < b->rounds; round++) {
			int at = round < 0 ? 0 : round;

			for (int way = 0; way < WAYS; way++)
				by[way][at] = measure_kernel(b, (enum way)way, sizes[s]);
			by[WAYS][at] = measure_copy(b, true, sizes[s]);
			by[WAYS + 1][at] = measure_copy(b, false, sizes[s]);
		}
		for (int i = 0; i < WAYS + 2; i++)
			is[i] = median(by[i], b->rounds);
		if (sizes[s] >= TARGET_FROM && is[GATHER_REDUCE] / is[WAYS] < least)
			least = is[GATHER_REDUCE] / is[WAYS];
		if (is_gpu)
			printf("| %zu KiB | %zu | %.1f | %.1f | %.1f | %.0f %% | %.0f %% | %.1f | "
			       "%.1f | "
			       "%.0f %% |\n",
				sizes[s] >> 10, launches_of(b, sizes[s]), is[GATHER_REDUCE],
				is[LONG_REDUCE], is[WAYS], is[GATHER_REDUCE] / is[WAYS] * 100,
				is[GATHER_REDUCE] / is[LONG_REDUCE] * 100, is[SCATTER],
				is[WAYS + 1], is[SCATTER] / is[WAYS + 1] * 100);
	}
	if (is_gpu)
		judge(least);
}

/* Moves one packet of this many bytes, and waits until its end is seen. */
static void bench_launch(struct bench *b, bool is_gpu, size_t bytes)
{
	enum { MOST = LAUNCHES };
	static double calls[MOST], trips[MOST];
	int n = b->total == TOTAL ? MOST : 20;

	for (int i = 0; i < n; i++) {
		uint64_t start = clock_now_ns(), ticket = add_packet(b, GATHER_REDUCE, 0, bytes);

		gpu_queue_launch(b->queue);
		calls[i] = (double)(clock_now_ns() - start) / 1e3;
		wait_for(b, ticket);
		trips[i] = (double)(clock_now_ns() - start) / 1e3;
	}
	if (is_gpu)
		printf("| %zu B | %.2f | %.2f |\n", bytes, median(calls, n), median(trips, n));
}

static void bench_packets(struct bench *b, bool is_gpu, size_t bytes)
{
	size_t n = b->total / PACKET;
	struct gpu_queue_stats before, after;
	uint64_t ticket = 0, start = clock_now_ns();
	double seconds;

	gpu_queue_stats(b->queue, &before);
	for (size_t i = 0; i < n; i++)
		ticket = add_packet(b, GATHER_REDUCE, i * PACKET % POOL, bytes);
	gpu_queue_launch(b->queue);
	wait_for(b, ticket);
	seconds = (double)(clock_now_ns() - start) * 1e-9;
	gpu_queue_stats(b->queue, &after);
	if (is_gpu)
		printf("| %zu B | %.2f | %.0f |\n", bytes, (double)n / seconds / 1e6,
			(double)n / (double)(after.launches - before.launches));
}

/* ---- beside a thread that the driver keeps waiting */

struct freeing {
	struct bench *bench;
	cu_deviceptr memory;
	_Atomic bool is_begun, is_over;
	uint64_t ns; /* duration */
};

static void *free_memory(void *arg)
{
	struct freeing *freeing = arg;
	struct gpu *gpu = freeing->bench->gpu;
	struct gpu_scope scope;
	uint64_t start;

	must(gpu_enter(gpu, &scope), "context");
	start = clock_now_ns();
	freeing->is_begun = true;
	must_cuda(gpu->cuda->cuMemFree(freeing->memory), "cuMemFree");
	freeing->ns = clock_now_ns() - start;
	freeing->is_over = true;
	gpu_leave(&scope);
	return NULL;
}

/* Measures launches while another thread waits in cuMemFree() for long kernels of another stream.
 * If the driver holds its locks meanwhile, a launch takes as long as that wait. */
static void bench_beside_free(struct bench *b, bool is_gpu)
{
	static double calls[LAUNCHES];
	struct freeing freeing = { .bench = b };
	struct gpu_work busy = { .action = GPU_COPY,
		.dst = b->tensor + PACKET,
		.src = b->packets + PACKET,
		.count = POOL - PACKET };
	struct gpu_queue *other;
	pthread_t thread;
	const char *why;
	int n = 0;

	must(gpu_queue_new(b->gpu, &other), "queue");
	must_cuda(b->gpu->cuda->cuMemAlloc(&freeing.memory, PACKET), "cuMemAlloc");
	for (int i = 0; i < (is_gpu ? BUSY : 1); i++) {
		while (!gpu_queue_add(other, &busy))
			if (gpu_queue_error(other, &why)) {
				fprintf(stderr, "bench_gpu: %s\n", why);
				exit(1);
			}
		gpu_queue_launch(other);
	}
	must(-pthread_create(&thread, NULL, free_memory, &freeing), "thread");
	while (!freeing.is_begun)
		;
	do {
		uint64_t start = clock_now_ns(), ticket = add_packet(b, GATHER_REDUCE, 0, 64);

		gpu_queue_launch(b->queue);
		calls[n++] = (double)(clock_now_ns() - start) / 1e3;
		wait_for(b, ticket);
	} while (n < LAUNCHES && !freeing.is_over);
	pthread_join(thread, NULL);
	gpu_queue_free(other);
	qsort(calls, (size_t)n, sizeof(*calls), compare);
	if (is_gpu)
		printf("| %.1f | %d | %.2f | %.2f |\n", (double)freeing.ns / 1e6, n, calls[n / 2],
			calls[n - 1]);
	if (is_gpu && freeing.ns < LEAST_WAIT_NS)
		printf("\ncuMemFree() has not waited for the %d copies: the row above says "
		       "nothing.\n",
			BUSY);
}

static void prepare(struct bench *b)
{
	struct random_state random;
	struct gpu_scope scope;

	must(gpu_hold(NULL, 0, &b->gpu), "GPU 0");
	b->pool = aligned_alloc(PACKET, POOL);
	b->order = calloc(POOL / PACKET, sizeof(*b->order));
	if (!b->pool || !b->order) {
		frl_fail(-ENOMEM, "no memory");
		die("buffers");
	}
	memset(b->pool, 0, POOL);
	random_seed(&random, 1);
	for (uint32_t i = 0; i < POOL / PACKET; i++) {
		uint32_t other = (uint32_t)random_below(&random, (uint64_t)i + 1);

		b->order[i] = b->order[other];
		b->order[other] = i;
	}
	must(gpu_host_map(b->gpu, b->pool, POOL), "packets");
	b->packets = gpu_host_address(b->gpu, b->pool, POOL);
	must(gpu_enter(b->gpu, &scope), "context");
	must_cuda(b->gpu->cuda->cuMemAlloc(&b->tensor, POOL), "cuMemAlloc");
	must_cuda(b->gpu->cuda->cuMemsetD8(b->tensor, 0, POOL), "cuMemsetD8");
	gpu_leave(&scope);
	must(gpu_queue_new(b->gpu, &b->queue), "queue");
}

static void finish(struct bench *b)
{
	struct gpu_scope scope;

	gpu_queue_free(b->queue);
	must(gpu_enter(b->gpu, &scope), "context");
	must_cuda(b->gpu->cuda->cuMemFree(b->tensor), "cuMemFree");
	gpu_leave(&scope);
	gpu_host_unmap(b->gpu, b->pool, POOL);
	gpu_release(b->gpu);
	free(b->pool);
	free(b->order);
}

static void run(struct bench *b, bool is_gpu)
{
	struct gpu_scope scope;

	must(gpu_enter(b->gpu, &scope), "context");
	if (is_gpu)
		printf("Packets of %d bytes, float32 sum; GB/s, medians of %d rounds in turns. "
		       "Kernels "
		       "move so many bytes together, %d times that ahead: a launch carries %u "
		       "packets "
		       "or long pieces at most. Copies are all queued ahead.\n\n"
		       "| bytes together | gather-reduce, launches | gather-reduce | long pieces | "
		       "copy engine | of the engine | of "
		       "long pieces | to packets | copy engine back | of it |\n"
		       "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
			PACKET, b->rounds, AHEAD, gpu_queue_max_pieces(b->queue));
	bench_bandwidth(b, is_gpu);
	if (is_gpu)
		printf("\n| one packet of | adding and launching, us | until it is seen, us |\n"
		       "|---:|---:|---:|\n");
	bench_launch(b, is_gpu, 64);
	bench_launch(b, is_gpu, PACKET);
	if (is_gpu)
		printf("\n| packets of | million a second | a launch |\n|---:|---:|---:|\n");
	bench_packets(b, is_gpu, 64);
	bench_packets(b, is_gpu, 1024);
	bench_packets(b, is_gpu, PACKET);
	if (is_gpu)
		printf("\n| another thread is in cuMemFree() for, ms | launches meanwhile | "
		       "adding and launching, us: median | longest |\n"
		       "|---:|---:|---:|---:|\n");
	bench_beside_free(b, is_gpu);
	gpu_leave(&scope);
}

/* Returns true if there is a GPU. Otherwise prints why not. */
static bool has_gpu(void)
{
	struct frl_gpu_info *infos;
	size_t n;
	bool has;

	must(frl_gpu_list(&infos, &n), "GPUs");
	has = n && infos[0].usable && infos[0].has_kernels;
	if (!has)
		printf("SKIP: GPU 0 cannot be used: %s\n", n ? infos[0].reason : "there is none");
	frl_gpu_list_free(infos);
	return has;
}

int main(int argc, char **argv)
{
	bool is_quick = argc == 2 && strcmp(argv[1], "--quick") == 0, is_gpu = !fake_cuda_find();
	struct bench b = { .total = is_quick ? QUICK_TOTAL : TOTAL,
		.rounds = is_quick ? 1 : ROUNDS };

	if (argc > 1 && !is_quick) {
		fprintf(stderr, "bench_gpu [--quick]\n");
		return 2;
	}
	if (!has_gpu())
		return SKIPPED;
	if (!is_gpu && !is_quick) {
		printf("SKIP: this libcuda.so.1 is the double of the driver, and no GPU\n");
		return SKIPPED;
	}
	prepare(&b);
	run(&b, is_gpu);
	finish(&b);
	if (!is_gpu)
		printf("it works on the double; there are no numbers, for that is no GPU\n");
	return 0;
}
