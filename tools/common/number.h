/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Elements of any type as bits and as numbers. This code checks the library's conversions and
 * therefore shares nothing with them. Pure functions.
 */
#ifndef FERRULE_TOOLS_COMMON_NUMBER_H
#define FERRULE_TOOLS_COMMON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/reduce.h>

/* Load and store the `size` bytes of an element (1, 2, 4 or 8) as a number in host byte order. */
uint64_t number_load(const void *at, size_t size);
void number_store(void *at, size_t size, uint64_t bits);

bool number_is_float(enum frl_dtype dtype);
bool number_is_signed(enum frl_dtype dtype);

/* Extends an integer to 64 bits, with its sign if the type is signed. */
int64_t number_extend(enum frl_dtype dtype, uint64_t bits);

/*
 * Returns the bits of the mantissa, including the hidden one. This function and all below are for
 * floats only.
 */
int number_precision(enum frl_dtype dtype);

/* Return log2 of the smallest positive number, and of the largest power of two. */
int number_min_exponent(enum frl_dtype dtype);
int number_max_exponent(enum frl_dtype dtype);

long double number_decode(enum frl_dtype dtype, uint64_t bits);

/* Encodes a number of the type. NaN gives the type's canonical NaN. */
uint64_t number_encode(enum frl_dtype dtype, long double value);

/* Rounds `value`, which must be in the type's range, to a number of the type, toward zero. */
long double number_truncate(enum frl_dtype dtype, long double value);

#endif
