/* SPDX-License-Identifier: BSD-3-Clause */
/* The double's exports, under the names of NVIDIA's library. */
#ifndef FERRULE_TESTS_FAKES_CUDA_FAKE_EXPORTS_H
#define FERRULE_TESTS_FAKES_CUDA_FAKE_EXPORTS_H

#include "tests/fakes/cuda/driver.h"

#define DRIVER_CALL(name, exported, since, until, args) \
	__attribute__((visibility("default"))) cu_result exported args;
#include "tests/fakes/cuda/driver_calls.h"
#undef DRIVER_CALL

__attribute__((visibility("default"))) cu_result cuGetProcAddress(
	const char *symbol, void **ret_function, int version, uint64_t flags);
__attribute__((visibility("default"))) cu_result cuGetProcAddress_v2(const char *symbol,
	void **ret_function, int version, uint64_t flags, cu_proc_status *ret_status);

#endif
