/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a GPU for the tools, by CUDA's driver API: libcuda.so.1 is loaded when it is first
 * asked for, so they are built and run without CUDA. A program of your own includes cuda.h and
 * calls the same functions. Each call makes the device's primary context current for its time. Any
 * thread, but not in a parent that forks ranks afterwards: children cannot use CUDA then.
 */
#ifndef FERRULE_TOOLS_COMMON_GPU_H
#define FERRULE_TOOLS_COMMON_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_memory {
	uint8_t *data; /* the GPU's: what Ferrule is given; the processor must not touch it */
	uint8_t *host; /* a copy for the processor, of the same size, zeroed at first */
	size_t size;
	int gpu;
};

/* Where a program's buffers lie. */
struct mem_option {
	bool is_gpu;
	int gpu; /* -1: the one of the rank's number, and again from the first */
};

#define MEM_HELP                                                                                  \
	"  --mem WHERE         host (default), or cuda: memory of a GPU, the one of the rank's\n" \
	"                      number (again from the first if there are fewer); cuda:N: of GPU " \
	"N\n"

/* All of these say what is wrong themselves and return 0 or a negative errno; mem_option() 0 or
 * EXIT_USAGE. */

int mem_option(const char *text, struct mem_option *ret_option);

/* Which GPU it is for that rank. -ENODEV. */
int gpu_of(const struct mem_option *option, int rank, int *ret_gpu);

/* The calling thread uses that GPU from now on, as after cudaSetDevice(). What is done with streams
 * needs it. */
int gpu_use(int gpu);

int gpu_alloc(int gpu, size_t size, struct gpu_memory *ret_memory);
/* Nothing refers to it any more. What was never allocated is fine. */
void gpu_free(struct gpu_memory *memory);

/* Copies `size` bytes from `offset` on, the processor's copy to the GPU or the reverse. Waits until
 * that is done. */
int gpu_give(const struct gpu_memory *memory, size_t offset, size_t size);
int gpu_take(const struct gpu_memory *memory, size_t offset, size_t size);

/* A CUstream of that GPU which waits for no other one. */
int gpu_stream_create(int gpu, void **ret_stream);
/* Waits for what is queued there. */
void gpu_stream_destroy(int gpu, void *stream);
/* Begins to copy all of it to the GPU, in the stream; `host` stays as it is until that is done. */
int gpu_give_later(const struct gpu_memory *memory, void *stream);

#endif
