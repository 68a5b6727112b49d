/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Permutes sixteen bytes at once. Swaps several header fields with one instruction if the
 * processor has one (SSSE3, NEON). Any alignment. Any thread.
 */
#ifndef FERRULE_WIRE_LANES_H
#define FERRULE_WIRE_LANES_H

#include <stdint.h>
#include <string.h>

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint64_t words16 __attribute__((vector_size(16)));

static inline bytes16 load16(const void *p)
{
	bytes16 bytes;

	memcpy(&bytes, p, sizeof(bytes));
	return bytes;
}

static inline void store16(void *p, bytes16 bytes)
{
	memcpy(p, &bytes, sizeof(bytes));
}

/* Byte i of the result is the byte of `bytes` at the index given by argument i, 0 to 15. */
#define order16(bytes, ...) __builtin_shufflevector(bytes, bytes, __VA_ARGS__)

#endif
