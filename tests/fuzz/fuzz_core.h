/* SPDX-License-Identifier: BSD-3-Clause */
/* The entry that libFuzzer calls. Always returns 0. */
#ifndef FERRULE_TESTS_FUZZ_FUZZ_CORE_H
#define FERRULE_TESTS_FUZZ_FUZZ_CORE_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
