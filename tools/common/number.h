/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-bench: elements of any type as bits and as numbers. Written for the checks of the
 * benchmark, so it shares nothing with the library's conversions. Pure.
 */
#ifndef FERRULE_TOOLS_COMMON_NUMBER_H
#define FERRULE_TOOLS_COMMON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/reduce.h>

/* The `size` bytes of an element (1, 2, 4 or 8), as a number in this machine's byte order. */
uint64_t number_load(const void *at, size_t size);
void number_store(void *at, size_t size, uint64_t bits);

bool number_is_float(enum frl_dtype dtype);
bool number_is_signed(enum frl_dtype dtype);

/* Integers: the value, extended to 64 bits as the type's signedness asks. */
int64_t number_extend(enum frl_dtype dtype, uint64_t bits);

/* Bits of the mantissa with the hidden one. Floats only, as everything below. */
int number_precision(enum frl_dtype dtype);

/* log2 of the smallest number above 0 and of the largest power of two. */
int number_min_exponent(enum frl_dtype dtype);
int number_max_exponent(enum frl_dtype dtype);

long double number_decode(enum frl_dtype dtype, uint64_t bits);

/* `value` must be a number of the type, or NaN, which gives the type's canonical one. */
uint64_t number_encode(enum frl_dtype dtype, long double value);

/* The next number of the type towards zero; `value` is within the type's range. */
long double number_truncate(enum frl_dtype dtype, long double value);

#endif
