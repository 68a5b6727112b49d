/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CRC by carry-less multiplication, for blocks of the width that lib/wire/icrc_lanes.h has for
 * the file that includes this one. Private to lib/wire. Reads nothing beside the bytes it is given.
 * Any thread.
 *
 * A block that is `d` bits before another has x^d times its weight. It is folded onto the other by
 * multiplying both halves of its lanes by a 32-bit remainder, which changes nothing modulo the
 * polynomial. The last block is folded lane by lane to 128 bits, which are divided (Barrett).
 * Leading zeros do not change the CRC. Headers of any length are therefore some blocks that end
 * where the payload begins.
 */
#ifndef FERRULE_WIRE_ICRC_FOLD_H
#define FERRULE_WIRE_ICRC_FOLD_H

#include <assert.h>

#include "lib/base/bytes.h"
#include "lib/wire/icrc_kernels.h"
#include "lib/wire/icrc_lanes.h"
#include "lib/wire/packet.h"

enum { CHUNK = 512 }; /* bytes of a step of loops: a multiple of WIDE blocks */

/* Folds the first `n` blocks of `v` onto the next `n`, and keeps these. */
ICRC_FN void fold_half(block v[WIDE], int n)
{
#pragma GCC unroll 8
	for (int i = 0; i < n; i++)
		v[i] = fold(v[i], fold_by((size_t)n * BLOCK), v[i + n]);
}

/* Folds the WIDE blocks of `v` onto the last one. */
ICRC_FN block fold_wide(block v[WIDE])
{
	static_assert(WIDE == 4 || WIDE == 8, "all halves are here");
	if (WIDE == 8)
		fold_half(v, 4);
	fold_half(v, 2);
	fold_half(v, 1);
	return v[0];
}

/* Folds each of WIDE blocks onto the block WIDE positions after it, for `n` bytes. `n` is constant,
 * so the loop is unrolled. */
ICRC_FN void fold_all(block v[WIDE], const uint8_t *p, size_t n)
{
	const uint64_t *by = fold_by(WIDE * BLOCK);

#pragma GCC unroll 32
	for (size_t i = 0; i < n / BLOCK; i++)
		v[i % WIDE] = fold(v[i % WIDE], by, load(p + i * BLOCK));
}

/* Folds `acc` and the `n` bytes after it; `n` is a multiple of CHUNK and not 0. */
ICRC_FN block fold_long(block acc, const uint8_t *p, size_t n)
{
	block v[WIDE];

	v[0] = fold(acc, fold_by(BLOCK), load(p));
#pragma GCC unroll 8
	for (int i = 1; i < WIDE; i++)
		v[i] = load(p + i * BLOCK);
	fold_all(v, p + WIDE * BLOCK, CHUNK - WIDE * BLOCK);
#pragma GCC unroll 8
	for (size_t at = CHUNK; at != n; at += CHUNK)
		fold_all(v, p + at, CHUNK);
	return fold_wide(v);
}

/* Returns the inverted remainder of all bytes up to the end of `x`. */
ICRC_FN uint32_t divide(block x)
{
	const __m128i by = load_lane(fold_divisors);
	__m128i last = fold_lanes(x), q;

	last = _mm_xor_si128(_mm_clmulepi64_si128(last, by, 0x00), _mm_srli_si128(last, 8));
	q = _mm_clmulepi64_si128(last, by, 0x10);
	q = _mm_clmulepi64_si128(q, load_lane(fold_polynomial), 0x00);
	return ~(uint32_t)_mm_extract_epi32(_mm_xor_si128(q, last), 2);
}

/* The same with `n` more bytes, fewer than a block. */
ICRC_TARGET __attribute__((noinline, unused)) static uint32_t divide_with_rest(
	block x, const uint8_t *p, size_t n)
{
	uint8_t room[3 * BLOCK], *bytes = room;

	/* GCC relies on an alignment that the address sanitizer breaks, for an initializer, too. */
	__asm__("" : "+r"(bytes));
	memset(bytes, 0, BLOCK);
	store(bytes + BLOCK, x);
	store(bytes + 2 * BLOCK, load_part(p, n));
	return divide(fold(load(bytes + n), fold_by(BLOCK), load(bytes + BLOCK + n)));
}

/* Returns the CRC of `acc` and a payload of `n` bytes. */
ICRC_FN uint32_t finish(block acc, const uint8_t *p, size_t n)
{
	const uint8_t *end;

	/* The most common length is a compile-time constant, so all loops are unrolled. */
	if (n == WIRE_IBTA_MTU)
		return divide(fold_long(acc, p, WIRE_IBTA_MTU));
	if (n >= CHUNK) {
		size_t wide = n & ~(size_t)(CHUNK - 1);

		acc = fold_long(acc, p, wide);
		p += wide;
		n -= wide;
	}
	for (end = p + (n & ~(size_t)(BLOCK - 1)); p != end; p += BLOCK)
		acc = fold(acc, fold_by(BLOCK), load(p));
	return n % BLOCK ? divide_with_rest(acc, p, n % BLOCK) : divide(acc);
}

/* icrc_update() */
ICRC_FN uint32_t update(uint32_t crc, const void *data, size_t len)
{
	if (len < BLOCK)
		return icrc_update_plain(crc, data, len);
	return finish(add_state(load(data), ~crc), (const uint8_t *)data + BLOCK, len - BLOCK);
}

enum {
	LEAST = IPV4_LEN + UDP_LEN + BTH_LEN, /* minimum length of the headers */
	ROOM = 128,                           /* for the longest headers, in blocks */
};

static_assert((int)WIRE_MAX_HEADERS <= (int)ROOM, "headers fit");

ICRC_FN void copy(uint8_t *to, const uint8_t *from, size_t len)
{
#pragma GCC unroll 2
	for (size_t at = 0; at < len; at += BLOCK)
		store(to + at, load(from + at));
}

/*
 * Masks a copy of the headers and returns it in the last block, with all before folded onto it.
 * `half` is constant, so that the headers are two copies of few instructions, which overlap.
 */
ICRC_FN block load_headers(const uint8_t *l3, size_t len, size_t half)
{
	uint8_t room[ROOM], *end = room + ROOM, *at = end - len;
	uint32_t word;
	block acc;

	memset(end - 2 * half, 0, half);
	copy(at, l3, half);
	copy(end - half, l3 + len - half, half);
	icrc_mask_headers(at);
	memcpy(&word, at, sizeof(word));
	word ^= ~CRC_OF_MASKED_LRH;
	memcpy(at, &word, sizeof(word));
	acc = load(end - 2 * half);
#pragma GCC unroll 4
	for (size_t i = 2 * half - BLOCK; i > 0; i -= BLOCK)
		acc = fold(acc, fold_by(BLOCK), load(end - i));
	return acc;
}

/* icrc_whole() of any packet. */
ICRC_TARGET __attribute__((noinline, unused)) static uint32_t whole_slow(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	block acc;

	assert(headers_len >= LEAST && headers_len <= WIRE_MAX_HEADERS);
	if (headers_len <= ROOM / 2)
		acc = load_headers(l3, headers_len, ROOM / 4);
	else
		acc = load_headers(l3, headers_len, ROOM / 2);
	return finish(acc, payload, payload_len);
}

/* icrc_whole(), with the common case inline: short headers, the most common length. */
ICRC_FN uint32_t whole(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	block acc;

	if (payload_len != WIRE_IBTA_MTU || headers_len < LEAST || headers_len > ROOM / 2)
		return whole_slow(l3, headers_len, payload, payload_len);
	acc = load_headers(l3, headers_len, ROOM / 4);
	return divide(fold_long(acc, payload, WIRE_IBTA_MTU));
}

#endif
