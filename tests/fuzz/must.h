/* SPDX-License-Identifier: BSD-3-Clause */
/* Conditions of the fuzz targets: a fuzzer notices abort(). */
#ifndef FERRULE_TESTS_FUZZ_MUST_H
#define FERRULE_TESTS_FUZZ_MUST_H

#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                        \
		}                                                                       \
	} while (0)

#endif
