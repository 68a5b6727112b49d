/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs of the double of the driver, and what an application does with them. */
#ifndef FERRULE_TESTS_UNIT_GPU_FIXTURE_H
#define FERRULE_TESTS_UNIT_GPU_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "gpudirect/gpu.h"
#include "tests/fake_libcuda/fake_libcuda.h"
#include "tests/unit/cuda_driver.h"

enum { PAGE = 4096, PAGES = 64, MIB = 1 << 20 };

extern const struct fake_cuda *fake;
extern uint8_t *memory; /* PAGES pages of the processor's */

/* False, and why: the library that is found is not the double. */
bool gpu_is_fake(void);
/* A driver as it is after it was loaded. */
void gpu_setup(void);
/* Nothing may be left. */
void gpu_teardown(void);

/* 0, with the last error's text if not. */
void is_ok(int rc);
/* `want`, with a sentence that has `word` in it. */
void is_refused(int rc, int want, const char *word);

struct gpu *hold(int ordinal);
/* A context of the application's, current nowhere. */
cu_context own_context(void);
cu_deviceptr allocate(cu_context context, size_t size);
void release(cu_context context, cu_deviceptr address);
/* The pointer that an application has. */
void *at(cu_deviceptr address);

#endif
