/* SPDX-License-Identifier: BSD-3-Clause */
/* The fixture of the files of test_gpu_launch. */
#ifndef FERRULE_TESTS_UNIT_GPU_LAUNCH_H
#define FERRULE_TESTS_UNIT_GPU_LAUNCH_H

#include <check.h>

#include "tests/unit/gpu_queue_fixture.h"
#include "tests/unit/program.h"

enum { MODES = 2 }; /* memop, persistent */

/* queue_begin(). Loops count modes first: the rest of the index. */
int launch_begin(int index);
/* One more in the first number of the GPU's memory, as a batch of its own: done twice or not at all
 * shows. */
void launch_count(void);
int launch_counted(void);
void launch_count_from(int n);
/* Something waits on the GPU for more work: in the stream, or in a kernel that stays. The number of
 * batches that this took. */
uint64_t launch_arm(void);
/* Nothing is on the GPU any more, within HANG_S. */
bool launch_is_quiet_soon(void);

/* gpu_launch_process.c's. */
void launch_add_process_tests(Suite *suite);
/* gpu_launch_ring.c's, which need no driver. */
void launch_add_ring_tests(Suite *suite);

#endif
