/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a job of NCCL, all on GPU 0: collectives with results checked to the last element, or
 * (--bench) an allreduce timed, or (--die) one rank that ends in the middle. --lives makes several
 * communicators, one after the other. --about prints the installed versions. Each run prints which
 * libnccl the process has loaded. nccl.sh builds it with the CUDA toolkit and runs it. It knows
 * nothing of plugins.
 *
 * Exit status: 0 success, 1 a wrong result, 2 usage or CUDA, 3 NCCL reported an error, 4 with
 * --die: NCCL reported the expected error after the other rank's death.
 */
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

enum {
	MAX_ELEMENTS = 1 << 23,
	ITERATIONS = 20,
	WARM_UP = 3,
	MAX_SIZES = 16,
	LIFE = 5,
	MAX_LIVES = 9
};

static int rank, n_ranks;
static const char *id_path;
static size_t bench_bytes[MAX_SIZES];
static int n_sizes;
static bool dies, is_about;
static size_t most = MAX_ELEMENTS; /* elements of the largest checked operation */
static int lives = 1;              /* communicators, one after the other */
static int lived;                  /* allreduces that were done before one rank died */
static double last_result;         /* when the last of them was there */

static ncclComm_t comm;
static cudaStream_t stream;
static float *device_in, *device_out;
static float *host;

#define CUDA(call)                                                                      \
	do {                                                                            \
		cudaError_t error_ = (call);                                            \
		if (error_ != cudaSuccess) {                                            \
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_)); \
			exit(2);                                                        \
		}                                                                       \
	} while (0)
#define NCCL(call) check_nccl((call), #call)

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns the exit status. Any call after the other rank's death may report it. */
static int tell(ncclResult_t result, const char *what)
{
	fprintf(stderr, "rank %d: %s: %s (%s)\n", rank, what, ncclGetErrorString(result),
		ncclGetLastError(comm));
	if (!dies || lived < LIFE)
		return 3;
	printf("noticed after allreduce %d, %.1f s later\n", lived, seconds() - last_result);
	fflush(stdout);
	return 4;
}

static void check_nccl(ncclResult_t result, const char *what)
{
	if (result != ncclSuccess && result != ncclInProgress)
		exit(tell(result, what));
}

/* Waits until the stream is empty, or NCCL reports that it never will be. */
static void finish(void)
{
	cudaError_t state;
	ncclResult_t result = ncclSuccess;
	int status;

	while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady) {
		NCCL(ncclCommGetAsyncError(comm, &result));
		if (result != ncclSuccess && result != ncclInProgress) {
			status = tell(result, "asynchronous error");
			ncclCommAbort(comm);
			exit(status);
		}
		usleep(50);
	}
	CUDA(state);
}

/* Whole numbers, so that sums are exact in any order. */
static float value(int of, size_t index)
{
	return (float)((index * 7 + (size_t)of * 13) % 101);
}

static float sum(size_t index)
{
	float total = 0;

	for (int i = 0; i < n_ranks; i++)
		total += value(i, index);
	return total;
}

/* Copies the first `n` elements to the GPU and fills the result's memory with garbage. */
static void prepare(size_t n)
{
	for (size_t i = 0; i < n; i++)
		host[i] = value(rank, i);
	CUDA(cudaMemcpy(device_in, host, n * sizeof(float), cudaMemcpyHostToDevice));
	CUDA(cudaMemset(device_out, 0xff, (size_t)MAX_ELEMENTS * sizeof(float)));
}

static void fetch(size_t n)
{
	finish();
	CUDA(cudaMemcpy(host, device_out, n * sizeof(float), cudaMemcpyDeviceToHost));
}

static void expect(const char *what, size_t n, size_t index, float is, float should)
{
	if (is == should)
		return;
	fprintf(stderr, "rank %d: %s of %zu: element %zu is %g, not %g\n", rank, what, n, index,
		(double)is, (double)should);
	exit(1);
}

static void all_reduce(size_t n)
{
	prepare(n);
	NCCL(ncclAllReduce(device_in, device_out, n, ncclFloat, ncclSum, comm, stream));
	fetch(n);
	for (size_t i = 0; i < n; i++)
		expect("AllReduce", n, i, host[i], sum(i));
}

static void all_gather(size_t n)
{
	size_t each = n / (size_t)n_ranks;

	prepare(each);
	NCCL(ncclAllGather(device_in, device_out, each, ncclFloat, comm, stream));
	fetch(each * (size_t)n_ranks);
	for (size_t i = 0; i < each * (size_t)n_ranks; i++)
		expect("AllGather", n, i, host[i], value((int)(i / each), i % each));
}

static void reduce_scatter(size_t n)
{
	size_t each = n / (size_t)n_ranks;

	prepare(each * (size_t)n_ranks);
	NCCL(ncclReduceScatter(device_in, device_out, each, ncclFloat, ncclSum, comm, stream));
	fetch(each);
	for (size_t i = 0; i < each; i++)
		expect("ReduceScatter", n, i, host[i], sum((size_t)rank * each + i));
}

static void broadcast(size_t n)
{
	for (int root = 0; root < n_ranks; root++) {
		prepare(n);
		NCCL(ncclBroadcast(device_in, device_out, n, ncclFloat, root, comm, stream));
		fetch(n);
		for (size_t i = 0; i < n; i++)
			expect("Broadcast", n, i, host[i], value(root, i));
	}
}

/* Sends to the next rank, receives from the one before. */
static void send_recv(size_t n)
{
	int next = (rank + 1) % n_ranks, before = (rank + n_ranks - 1) % n_ranks;

	prepare(n);
	NCCL(ncclGroupStart());
	NCCL(ncclSend(device_in, n, ncclFloat, next, comm, stream));
	NCCL(ncclRecv(device_out, n, ncclFloat, before, comm, stream));
	NCCL(ncclGroupEnd());
	fetch(n);
	for (size_t i = 0; i < n; i++)
		expect("Send/Recv", n, i, host[i], value(before, i));
}

static void all_to_all(size_t n)
{
	size_t each = n / (size_t)n_ranks;

	prepare(each * (size_t)n_ranks);
	NCCL(ncclGroupStart());
	for (int i = 0; i < n_ranks; i++) {
		NCCL(ncclSend(device_in + (size_t)i * each, each, ncclFloat, i, comm, stream));
		NCCL(ncclRecv(device_out + (size_t)i * each, each, ncclFloat, i, comm, stream));
	}
	NCCL(ncclGroupEnd());
	fetch(each * (size_t)n_ranks);
	for (size_t i = 0; i < each * (size_t)n_ranks; i++)
		expect("alltoall", n, i, host[i],
			value((int)(i / each), (size_t)rank * each + i % each));
}

static void check(void)
{
	static const struct {
		const char *name;
		void (*run)(size_t n);
	} all[] = {
		{ "AllReduce", all_reduce },
		{ "AllGather", all_gather },
		{ "ReduceScatter", reduce_scatter },
		{ "Broadcast", broadcast },
		{ "Send/Recv", send_recv },
		{ "alltoall", all_to_all },
	};
	/* Counts from one element a rank to many slices of the ring. */
	const size_t counts[] = { (size_t)n_ranks, 1000, 65537, 1 << 20, MAX_ELEMENTS };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		double start = seconds();

		for (size_t j = 0; j < sizeof(counts) / sizeof(counts[0]); j++)
			if (counts[j] <= most)
				all[i].run(counts[j]);
		/* Printed early, in case a later step hangs. */
		printf("rank %d: %s: right, %.1f s\n", rank, all[i].name, seconds() - start);
		fflush(stdout);
	}
}

static void bench(size_t bytes)
{
	size_t n = bytes / sizeof(float);
	double start = 0, each;

	prepare(n);
	for (int i = 0; i < WARM_UP + ITERATIONS; i++) {
		if (i == WARM_UP) {
			finish();
			start = seconds();
		}
		NCCL(ncclAllReduce(device_in, device_out, n, ncclFloat, ncclSum, comm, stream));
	}
	finish();
	each = (seconds() - start) / ITERATIONS;
	if (rank == 0)
		printf("allreduce %zu bytes %.1f us busbw %.4f GB/s\n", bytes, each * 1e6,
			(double)bytes * 2 * (n_ranks - 1) / n_ranks / each / 1e9);
}

/* Rank 1 exits without notice; NCCL must report it to the others. */
static void die(void)
{
	prepare(MAX_ELEMENTS);
	for (int i = 0; i < 1000; i++) {
		if (rank == 1 && lived == LIFE) {
			/* The data for as many results of the other rank is on its way. */
			usleep(200000);
			_exit(0);
		}
		NCCL(ncclAllReduce(
			device_in, device_out, MAX_ELEMENTS, ncclFloat, ncclSum, comm, stream));
		finish();
		lived++;
		last_result = seconds();
	}
	fprintf(stderr, "rank %d: nobody was missed\n", rank);
	exit(1);
}

/* Prints a library that the process has loaded. */
static int say_if_nccl(struct dl_phdr_info *library, size_t size, void *ctx)
{
	const char *name = strrchr(library->dlpi_name, '/');
	char path[PATH_MAX];

	if (name && strncmp(name, "/libnccl.so", 11) == 0 && realpath(library->dlpi_name, path)) {
		printf("loaded: %s\n", path);
		*(bool *)ctx = true;
	}
	return 0;
}

static void say_nccl(void)
{
	bool is_there = false;
	int nccl = 0;

	NCCL(ncclGetVersion(&nccl));
	printf("NCCL %d.%d.%d\n", nccl / 10000, nccl / 100 % 100, nccl % 100);
	dl_iterate_phdr(say_if_nccl, &is_there);
	if (!is_there)
		puts("loaded: no libnccl.so: it is linked statically");
	fflush(stdout);
}

static void about(void)
{
	struct cudaDeviceProp gpu;
	int driver = 0, runtime = 0, rdma = 0;

	say_nccl();
	CUDA(cudaDriverGetVersion(&driver));
	CUDA(cudaRuntimeGetVersion(&runtime));
	CUDA(cudaGetDeviceProperties(&gpu, 0));
	CUDA(cudaDeviceGetAttribute(&rdma, cudaDevAttrGPUDirectRDMASupported, 0));
	printf("CUDA %d.%d, the driver's %d.%d\n", runtime / 1000, runtime / 10 % 100,
		driver / 1000, driver / 10 % 100);
	printf("GPU 0: %s\n", gpu.name);
	/* NCCL registers memory of GPUs with a plugin only where this is 1. */
	printf("GPUDirect RDMA: %d\n", rdma);
}

/* Rank 0 publishes the id in a file for each communicator, by rename. */
static void share_id(ncclUniqueId *id, int life)
{
	char path[PATH_MAX], fresh[PATH_MAX + 8];
	FILE *file;

	snprintf(path, sizeof(path), "%s.%d", id_path, life);
	if (rank == 0) {
		NCCL(ncclGetUniqueId(id));
		snprintf(fresh, sizeof(fresh), "%s.new", path);
		file = fopen(fresh, "wb");
		if (!file || fwrite(id, sizeof(*id), 1, file) != 1 || fclose(file) ||
			rename(fresh, path)) {
			perror(path);
			exit(2);
		}
		return;
	}
	for (double until = seconds() + 60; seconds() < until; usleep(10000)) {
		file = fopen(path, "rb");
		if (!file)
			continue;
		if (fread(id, sizeof(*id), 1, file) == 1) {
			fclose(file);
			return;
		}
		fclose(file);
	}
	fprintf(stderr, "rank %d: there is no id in %s\n", rank, path);
	exit(2);
}

/* Sizes of the timed allreduce: "4096,1048576". */
static bool read_sizes(const char *text)
{
	char *end;

	for (;; text = end + 1) {
		unsigned long size = strtoul(text, &end, 10);

		if (end == text || n_sizes == MAX_SIZES || size < sizeof(float) ||
			size > (unsigned long)MAX_ELEMENTS * sizeof(float))
			return false;
		bench_bytes[n_sizes++] = size;
		if (*end != ',')
			return !*end;
	}
}

static bool read_arguments(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--die") == 0)
			dies = true;
		else if (strcmp(argv[i], "--about") == 0)
			is_about = true;
		else if (i + 1 < argc && strcmp(argv[i], "--rank") == 0)
			rank = atoi(argv[++i]);
		else if (i + 1 < argc && strcmp(argv[i], "--ranks") == 0)
			n_ranks = atoi(argv[++i]);
		else if (i + 1 < argc && strcmp(argv[i], "--id") == 0)
			id_path = argv[++i];
		else if (i + 1 < argc && strcmp(argv[i], "--most") == 0)
			most = strtoul(argv[++i], NULL, 10);
		else if (i + 1 < argc && strcmp(argv[i], "--lives") == 0)
			lives = atoi(argv[++i]);
		else if (i + 1 < argc && strcmp(argv[i], "--bench") == 0 && read_sizes(argv[i + 1]))
			i++;
		else
			return false;
	}
	return is_about ||
		(id_path && n_ranks >= 2 && rank >= 0 && rank < n_ranks && most && lives >= 1 &&
			lives <= MAX_LIVES);
}

/* Runs one communicator from its creation to its end. */
static void live(int life)
{
	ncclUniqueId id;

	share_id(&id, life);
	NCCL(ncclCommInitRank(&comm, n_ranks, id, rank));
	if (dies)
		die();
	else if (!n_sizes)
		check();
	for (int i = 0; i < n_sizes; i++)
		bench(bench_bytes[i]);
	NCCL(ncclCommDestroy(comm));
	comm = NULL;
	printf("rank %d: communicator %d has ended\n", rank, life + 1);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (!read_arguments(argc, argv)) {
		fputs("nccl_check --about\n"
		      "nccl_check --rank R --ranks N --id FILE [--most ELEMENTS] [--lives N]\n"
		      "           [--bench BYTES,... | --die]\n",
			stderr);
		return 2;
	}
	if (is_about) {
		about();
		return 0;
	}
	host = malloc((size_t)MAX_ELEMENTS * sizeof(float));
	if (!host)
		return 2;
	CUDA(cudaSetDevice(0));
	CUDA(cudaStreamCreate(&stream));
	CUDA(cudaMalloc((void **)&device_in, (size_t)MAX_ELEMENTS * sizeof(float)));
	CUDA(cudaMalloc((void **)&device_out, (size_t)MAX_ELEMENTS * sizeof(float)));
	if (rank == 0)
		say_nccl();
	for (int life = 0; life < lives; life++)
		live(life);
	CUDA(cudaFree(device_in));
	CUDA(cudaFree(device_out));
	free(host);
	return 0;
}
