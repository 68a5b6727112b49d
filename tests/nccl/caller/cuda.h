/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of GPU 0 for the harness, allocated as NCCL does it: by libcuda.so.1, real or double. Any
 * thread; not in a process that forks later.
 */
#ifndef TESTS_NCCL_CUDA_H
#define TESTS_NCCL_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Calls fail(), or skip() where there is no CUDA. */
uint8_t *cuda_alloc(size_t size);
void cuda_free(uint8_t *memory);
void cuda_give(uint8_t *to, const void *from, size_t size);
void cuda_take(void *to, const uint8_t *from, size_t size);

/* Makes the GPU the calling thread's current one, until it is unset. Returns false without CUDA. */
bool cuda_set_current(void);
void cuda_unset_current(void);

/* Waits for all work of the GPU. Fails if work failed: a kernel has touched memory that is
 * freed. */
void cuda_check(void);

#endif
