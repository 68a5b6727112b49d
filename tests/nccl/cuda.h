/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of GPU 0 for the harness, as NCCL would have it: by libcuda.so.1, whatever that is. Any
 * thread; not in a process that forks others afterwards.
 */
#ifndef TESTS_NCCL_CUDA_H
#define TESTS_NCCL_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* fail(), or skip() the row where there is no CUDA. */
uint8_t *cuda_alloc(size_t size);
void cuda_free(uint8_t *memory);
void cuda_give(uint8_t *to, const void *from, size_t size);
void cuda_take(void *to, const uint8_t *from, size_t size);

/* The GPU is the calling thread's current one, until it is unset. False: there is no CUDA. */
bool cuda_set_current(void);
void cuda_unset_current(void);

/* Waits for all that the GPU does, and fails if it has failed: a kernel has touched memory that is
 * not there any more. */
void cuda_check(void);

#endif
