/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on GPU memory, checked against the same operation of the same communicator on host
 * memory: bit by bit, with the memory around the buffers. By CUDA's driver API alone, so that the
 * tests run on a GPU as well as on the double.
 */
#ifndef FERRULE_TESTS_UNIT_COLLECTIVES_GPU_COMM_GPU_FIXTURE_H
#define FERRULE_TESTS_UNIT_COLLECTIVES_GPU_COMM_GPU_FIXTURE_H

#include "gpudirect/gpu.h"
#include "tests/fakes/cuda/fake_libcuda.h"
#include "tests/unit/collectives/comm_fixture.h"

enum { SKIPPED = 77 };

/* The GPU of the tests, and the double's controls (NULL: it is a real one). */
extern struct gpu *test_gpu;
extern const struct fake_cuda *fake;

/* Returns false, with the reason on stderr, if there is neither a GPU nor the double. */
bool test_gpu_open(void);
/* Returns false, with the reason on stderr, if something is left with the double. */
bool test_gpu_close(void);

/* Ends the process if a call has not returned 0: libcheck cannot fail from the thread of a rank. */
void test_gpu_must(int got, const char *call);

#define MUST(call) test_gpu_must((call), #call)

/* GPU memory, and its bytes. */
void test_gpu_enter(struct gpu *gpu, struct gpu_scope *ret_scope);
uint8_t *test_gpu_alloc(size_t bytes);
uint8_t *test_gpu_alloc_in(struct gpu *gpu, size_t bytes);
void test_gpu_free(uint8_t *memory);
void test_gpu_put(uint8_t *to, const void *from, size_t bytes);
void test_gpu_get(void *to, const uint8_t *from, size_t bytes);

enum {
	SEND_ON_GPU = 1,
	RECV_ON_GPU = 2,
	ALL_ON_GPU = 3,
};

/* One operation of this rank; `c` without buffers. */
struct trial {
	struct frl_collective c;
	bool in_place;
	unsigned where; /* the buffers are; in place: all or none */
	size_t shift;   /* bytes by which they miss being aligned */
	unsigned seed;
};

/* Runs it twice and compares; complains. */
bool trial_run(struct rank *rank, const struct trial *trial);

#endif
