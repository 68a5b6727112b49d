/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loops of the wire types, like those of the operations in lib/reduce/loops.h: macros that define
 * static functions, functions for blocks of int8, and rows for the tables.
 */
#ifndef FERRULE_REDUCE_WIRE_LOOPS_H
#define FERRULE_REDUCE_WIRE_LOOPS_H

#include <string.h>

#include <ferrule/reduce.h>

#include "lib/reduce/loops.h"

enum { WIRE_BLOCK_BYTES = 2 + FRL_WIRE_BLOCK };

static inline void put_scale(uint8_t *p, uint16_t scale)
{
	p[0] = (uint8_t)scale;
	p[1] = (uint8_t)(scale >> 8);
}

static inline uint16_t get_scale(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

#define WIRE_LOOPS_SAME                                                                 \
	LOOP_TARGET static size_t encode_same(void *dst, const void *src, size_t count) \
	{                                                                               \
		memcpy(dst, src, count * sizeof(float));                                \
		return 0;                                                               \
	}                                                                               \
	LOOP_TARGET static void decode_same(void *dst, const void *src, size_t count)   \
	{                                                                               \
		memcpy(dst, src, count * sizeof(float));                                \
	}                                                                               \
	LOOP_TARGET static void decode_add_same(                                        \
		void *dst, const void *a, const void *src, size_t count)                \
	{                                                                               \
		sum_f32(dst, a, src, count);                                            \
	}

#define WIRE_LOOPS_NARROW(name, capitals)                                                     \
	LOOP_TARGET static size_t encode_##name(void *dst, const void *src, size_t count)     \
	{                                                                                     \
		any_##name *out = dst;                                                        \
		const any_f32 *x = src;                                                       \
		size_t over = 0;                                                              \
		for (size_t i = 0; i < count; i++) {                                          \
			out[i] = element_to_##name(element_saturate(                          \
				x[i], ELEMENT_LIMIT_##capitals, ELEMENT_LARGEST_##capitals)); \
			over += (size_t)element_is_over(x[i], ELEMENT_LIMIT_##capitals);      \
		}                                                                             \
		return over;                                                                  \
	}                                                                                     \
	LOOP_TARGET static void decode_##name(void *dst, const void *src, size_t count)       \
	{                                                                                     \
		any_f32 *out = dst;                                                           \
		const any_##name *x = src;                                                    \
		LOOP_INDEPENDENT                                                              \
		for (size_t i = 0; i < count; i++)                                            \
			out[i] = element_from_##name(x[i]);                                   \
	}                                                                                     \
	LOOP_TARGET static void decode_add_##name(                                            \
		void *dst, const void *a, const void *src, size_t count)                      \
	{                                                                                     \
		any_f32 *out = dst;                                                           \
		const any_f32 *x = a;                                                         \
		const any_##name *y = src;                                                    \
		LOOP_INDEPENDENT                                                              \
		for (size_t i = 0; i < count; i++)                                            \
			out[i] = element_sum_f32(x[i], element_from_##name(y[i]));            \
	}

/* ---- blocks of int8: a scale, then up to FRL_WIRE_BLOCK bytes */

LOOP_TARGET static inline void encode_block(uint8_t *dst, const any_f32 *src, size_t count)
{
	any_i8 *out = (any_i8 *)(dst + 2);
	const any_u32 *bits = (const any_u32 *)src;
	uint32_t amax = 0;
	uint16_t scale;
	float inverse;

	for (size_t i = 0; i < count; i++) {
		uint32_t magnitude = bits[i] & 0x7fffffff;

		amax = magnitude > amax ? magnitude : amax;
	}
	scale = element_block_scale(amax);
	put_scale(dst, scale);
	if (scale == ELEMENT_NAN_BF16) {
		memset(out, 0, count);
		return;
	}
	inverse = 1.0f / element_from_bf16(scale);
	LOOP_INDEPENDENT
	for (size_t i = 0; i < count; i++)
		out[i] = element_to_block(src[i], inverse);
}

LOOP_TARGET static inline void decode_block(any_f32 *dst, const uint8_t *src, size_t count)
{
	const any_i8 *x = (const any_i8 *)(src + 2);
	float scale = element_from_bf16(get_scale(src));

	LOOP_INDEPENDENT
	for (size_t i = 0; i < count; i++)
		dst[i] = element_from_block(x[i], scale);
}

LOOP_TARGET static inline void decode_add_block(
	any_f32 *dst, const any_f32 *a, const uint8_t *src, size_t count)
{
	const any_i8 *x = (const any_i8 *)(src + 2);
	float scale = element_from_bf16(get_scale(src));

	LOOP_INDEPENDENT
	for (size_t i = 0; i < count; i++)
		dst[i] = element_sum_f32(a[i], element_from_block(x[i], scale));
}

/* Uses a given function for whole blocks, which may be faster. */
#define WIRE_LOOPS_BLOCKS(whole_encode, whole_decode, whole_decode_add)                   \
	LOOP_TARGET static size_t encode_blocks(void *dst, const void *src, size_t count) \
	{                                                                                 \
		uint8_t *out = dst;                                                       \
		const any_f32 *x = src;                                                   \
		for (; count >= FRL_WIRE_BLOCK; count -= FRL_WIRE_BLOCK) {                \
			whole_encode(out, x, FRL_WIRE_BLOCK);                             \
			out += WIRE_BLOCK_BYTES;                                          \
			x += FRL_WIRE_BLOCK;                                              \
		}                                                                         \
		if (count)                                                                \
			encode_block(out, x, count);                                      \
		return 0;                                                                 \
	}                                                                                 \
	LOOP_TARGET static void decode_blocks(void *dst, const void *src, size_t count)   \
	{                                                                                 \
		any_f32 *out = dst;                                                       \
		const uint8_t *x = src;                                                   \
		for (; count >= FRL_WIRE_BLOCK; count -= FRL_WIRE_BLOCK) {                \
			whole_decode(out, x, FRL_WIRE_BLOCK);                             \
			out += FRL_WIRE_BLOCK;                                            \
			x += WIRE_BLOCK_BYTES;                                            \
		}                                                                         \
		if (count)                                                                \
			decode_block(out, x, count);                                      \
	}                                                                                 \
	LOOP_TARGET static void decode_add_blocks(                                        \
		void *dst, const void *a, const void *src, size_t count)                  \
	{                                                                                 \
		any_f32 *out = dst;                                                       \
		const any_f32 *x = a;                                                     \
		const uint8_t *y = src;                                                   \
		for (; count >= FRL_WIRE_BLOCK; count -= FRL_WIRE_BLOCK) {                \
			whole_decode_add(out, x, y, FRL_WIRE_BLOCK);                      \
			out += FRL_WIRE_BLOCK;                                            \
			x += FRL_WIRE_BLOCK;                                              \
			y += WIRE_BLOCK_BYTES;                                            \
		}                                                                         \
		if (count)                                                                \
			decode_add_block(out, x, y, count);                               \
	}

/* The entries of one wire type. */
#define WIRE_ROWS(wire, name)                                         \
	.encode[wire] = encode_##name, .decode[wire] = decode_##name, \
	.decode_add[wire] = decode_add_##name

#endif
