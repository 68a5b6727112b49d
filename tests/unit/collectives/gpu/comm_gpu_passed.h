/* SPDX-License-Identifier: BSD-3-Clause */
/* A part of test_comm_gpu. */
#ifndef FERRULE_TESTS_UNIT_COLLECTIVES_GPU_COMM_GPU_PASSED_H
#define FERRULE_TESTS_UNIT_COLLECTIVES_GPU_COMM_GPU_PASSED_H

#include "tests/fixtures/program.h"

void comm_gpu_add_passed(Suite *suite);

#endif
