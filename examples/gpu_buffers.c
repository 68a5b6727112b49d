/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sum vectors that are in GPU memory: Ferrule takes device pointers wherever it takes addresses.
 *
 * The program loads CUDA's driver at run time, so that it compiles without CUDA. Your own program
 * includes cuda.h, or uses cudaMalloc() and cudaMemcpy(). Without a GPU that Ferrule can use, the
 * program says why and exits with status 77.
 *
 * Build:   cc -o gpu_buffers gpu_buffers.c $(pkg-config --cflags --libs ferrule)
 * Run:     export FRL_JOB=gpu FRL_RANKS=2
 *          FRL_RANK=0 ./gpu_buffers &
 *          FRL_RANK=1 ./gpu_buffers
 * Prints:  rank 0: on GPU 0 (...) the sum is 3 in all 1000000 elements
 *          rank 1: on GPU 1 (...) the sum is 3 in all 1000000 elements
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <ferrule/ferrule.h>

enum { ELEMENTS = 1000000, JOIN_MS = 30000, EXIT_SKIPPED = 77 };

static float host[ELEMENTS];

/* Functions of CUDA's driver, as cuda.h declares them. */
typedef unsigned long long device_ptr;
static struct {
	int (*init)(unsigned flags);
	int (*retain_context)(void **ret_context, int gpu);
	int (*use_context)(void *context);
	int (*alloc)(device_ptr *ret_ptr, size_t size);
	int (*free)(device_ptr ptr);
	int (*copy_to_gpu)(device_ptr to, const void *from, size_t size);
	int (*copy_to_host)(void *to, device_ptr from, size_t size);
} cuda;

/* Ends the program if a call failed. The library says what failed, why, and what to do. */
static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "gpu_buffers: %s: %s\n", what, frl_last_error());
	exit(EXIT_FAILURE);
}

static void check_cuda(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "gpu_buffers: %s: CUDA error %d\n", what, result);
	exit(EXIT_FAILURE);
}

/* ISO C has no conversion from an object pointer to a function pointer; dlsym() needs this one. */
static void load(void *library, const char *name, void *ret_function)
{
	*(void **)ret_function = dlsym(library, name);
	if (!*(void **)ret_function) {
		fprintf(stderr, "gpu_buffers: %s\n", dlerror());
		exit(EXIT_FAILURE);
	}
}

/* Makes a GPU current in this thread. */
static void use_gpu(int gpu)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;

	if (!library) {
		fprintf(stderr, "gpu_buffers: %s\n", dlerror());
		exit(EXIT_FAILURE);
	}
	load(library, "cuInit", &cuda.init);
	load(library, "cuDevicePrimaryCtxRetain", &cuda.retain_context);
	load(library, "cuCtxSetCurrent", &cuda.use_context);
	load(library, "cuMemAlloc_v2", &cuda.alloc);
	load(library, "cuMemFree_v2", &cuda.free);
	load(library, "cuMemcpyHtoD_v2", &cuda.copy_to_gpu);
	load(library, "cuMemcpyDtoH_v2", &cuda.copy_to_host);
	check_cuda(cuda.init(0), "initialize");
	check_cuda(cuda.retain_context(&context, gpu), "get the GPU's context");
	check_cuda(cuda.use_context(context), "use the GPU");
}

/* Chooses a GPU for a rank. Ends the program with EXIT_SKIPPED if there is none. */
static struct frl_gpu_info choose_gpu(int rank)
{
	struct frl_gpu_info *gpus, gpu;
	size_t n;

	check(frl_gpu_list(&gpus, &n), "list the GPUs");
	gpu = gpus[(size_t)rank % n];
	frl_gpu_list_free(gpus);
	if (gpu.usable && gpu.has_kernels)
		return gpu;
	printf("SKIP: no GPU can be used: %s\n", gpu.reason);
	exit(EXIT_SKIPPED);
}

int main(void)
{
	const size_t size = sizeof(host);
	struct frl_gpu_info gpu;
	struct frl_bootstrap job;
	struct frl_device *device;
	struct frl_comm *comm;
	device_ptr vector;
	float expected;

	check(frl_bootstrap_from_environment(JOIN_MS, &job), "join the job");
	gpu = choose_gpu(job.rank);
	use_gpu(gpu.ordinal);
	check_cuda(cuda.alloc(&vector, size), "allocate GPU memory");
	for (int i = 0; i < ELEMENTS; i++)
		host[i] = (float)(job.rank + 1);
	check_cuda(cuda.copy_to_gpu(vector, host, size), "copy to the GPU");

	check(frl_device_open(NULL, &device), "open a device");
	check(frl_comm_create(device, &job, &comm), "create a communicator");
	/* The vector is ready. If a stream still writes it, use frl_start() with on_stream. */
	check(frl_allreduce(comm, (void *)vector, (void *)vector, ELEMENTS, FRL_FLOAT32, FRL_SUM),
		"sum");

	check_cuda(cuda.copy_to_host(host, vector, size), "copy from the GPU");
	expected = (float)(job.ranks * (job.ranks + 1) / 2); /* 1 + 2 + ... + ranks */
	for (int i = 0; i < ELEMENTS; i++) {
		if (host[i] != expected) {
			fprintf(stderr, "rank %d: element %d is %g\n", job.rank, i, host[i]);
			return EXIT_FAILURE;
		}
	}
	printf("rank %d: on GPU %d (%s) the sum is %g in all %d elements\n", job.rank, gpu.ordinal,
		gpu.name, expected, ELEMENTS);

	/* First the communicator and the device, which use the memory; then the memory. */
	frl_comm_destroy(comm);
	check(frl_device_close(device), "close the device");
	check_cuda(cuda.free(vector), "free GPU memory");
	job.close(job.ctx);
	return EXIT_SUCCESS;
}
