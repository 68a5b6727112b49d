/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests that call CUDA's driver as an application does, NVIDIA's or the double. */
#ifndef FERRULE_TESTS_UNIT_GPUDIRECT_CUDA_FIXTURE_H
#define FERRULE_TESTS_UNIT_GPUDIRECT_CUDA_FIXTURE_H

#include <check.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/fakes/cuda/fake_libcuda.h"
#include "tests/fixtures/cuda_driver.h"

enum { CUDA_FIXTURE_PAGE = 4096 };

extern const struct fake_cuda *cuda_fake; /* NULL: this is a GPU */
extern cu_context cuda_context;           /* the primary one of device 0 */

const char *cuda_name(cu_result result);

#define ck_cu(call, wants)                                                              \
	do {                                                                            \
		cu_result result_ = call;                                               \
		ck_assert_msg(result_ == (wants), #call " is %d (%s), not %d", result_, \
			cuda_name(result_), (int)(wants));                              \
	} while (0)
#define ck_cu_ok(call) ck_cu(call, CUDA_SUCCESS)

/* Setup and teardown of each test: the primary context is current, and at the end nothing is left
 * with the double. */
void cuda_setup(void);
void cuda_teardown(void);

/* Runs the suite in this process, for a GPU cannot be used after a fork. 77: there is none. */
int cuda_main(Suite *suite);
/* The same for tests of the double itself. */
int cuda_double_main(Suite *suite);

/* Host memory, written to. */
void *cuda_pages(size_t size);
void cuda_nap(void);

/* Work that does not end before the test allows it: for cuLaunchHostFunc(). */
struct cuda_gate {
	atomic_bool is_reached, is_open;
};
void cuda_gate(void *gate);
void cuda_gate_reached(struct cuda_gate *gate);
/* The same: counts an atomic_int up. */
void cuda_count(void *count);

#endif
