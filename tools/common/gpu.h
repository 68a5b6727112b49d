/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory for the tools, through CUDA's driver API. libcuda.so.1 is loaded at the first use, so
 * that the tools are built and run without CUDA. Other programs include cuda.h and call the same
 * functions. Each call makes the device's primary context current while it runs.
 *
 * Any thread may call these functions, but not in a parent that later forks ranks: its children
 * cannot use CUDA.
 */
#ifndef FERRULE_TOOLS_COMMON_GPU_H
#define FERRULE_TOOLS_COMMON_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_memory {
	uint8_t *data; /* GPU memory, for Ferrule; the processor must not access it */
	uint8_t *host; /* host copy of the same size, initially zero */
	size_t size;
	int gpu;
};

/* The kind of memory of a tool's buffers. */
struct mem_option {
	bool is_gpu;
	int gpu; /* -1: the rank's number modulo the number of GPUs */
};

#define MEM_HELP                                                                                  \
	"  --mem WHERE         host (default), cuda (the GPU with the rank's number modulo the\n" \
	"                      number of GPUs), or cuda:N (GPU N)\n"

/*
 * All functions print what failed and return 0 or a negative errno; mem_option() returns 0 or
 * EXIT_USAGE.
 */

int mem_option(const char *text, struct mem_option *ret_option);

/* Finds the GPU of a rank. Returns -ENODEV if there is none. */
int gpu_of(const struct mem_option *option, int rank, int *ret_gpu);

/* Makes a GPU current in the calling thread, as cudaSetDevice() does. Streams need it. */
int gpu_use(int gpu);

int gpu_alloc(int gpu, size_t size, struct gpu_memory *ret_memory);
/* Frees GPU memory that nothing uses any more. An all-zero struct is fine. */
void gpu_free(struct gpu_memory *memory);

/*
 * Copies `size` bytes at `offset` from the host copy to the GPU (give), or back (take). Waits for
 * the copy.
 */
int gpu_give(const struct gpu_memory *memory, size_t offset, size_t size);
int gpu_take(const struct gpu_memory *memory, size_t offset, size_t size);

/* Creates a CUstream that does not wait for other streams. */
int gpu_stream_create(int gpu, void **ret_stream);
/* Waits for the work in the stream, then destroys it. */
void gpu_stream_destroy(int gpu, void *stream);
/*
 * Starts to copy the whole host copy to the GPU, in the stream. `host` must not change until the
 * copy is done.
 */
int gpu_give_later(const struct gpu_memory *memory, void *stream);

#endif
