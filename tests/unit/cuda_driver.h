/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of CUDA's driver that the fixtures of GPU tests call. */
#ifndef FERRULE_TESTS_UNIT_CUDA_DRIVER_H
#define FERRULE_TESTS_UNIT_CUDA_DRIVER_H

#include "tests/fake_libcuda/driver.h"

extern struct driver cu;

#endif
