/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CRC, 64 bytes at a time, with carry-less multiplication of AVX-512.
 *
 * Bytes are polynomials over GF(2); the first bit is the highest power. All numbers here are
 * bit-reversed: bit 0 of a register is its highest power. A block of 64 bytes that is `d` bits
 * before another has x^d times its weight. It is folded onto the other by multiplying both halves
 * of its four lanes by a 32-bit remainder, which changes nothing modulo the polynomial. The last
 * block is folded lane by lane to 128 bits, which are divided (Barrett). Leading zeros do not
 * change the CRC. Headers of any length are therefore one or two blocks that end where the payload
 * begins.
 */
#include "lib/wire/icrc_kernels.h"

#include <assert.h>
#include <immintrin.h>

#include "lib/wire/packet.h"

#define TARGET "avx512f,avx512bw,avx512vl,pclmul,vpclmulqdq"
#define FN     __attribute__((target(TARGET))) static inline __attribute__((always_inline))

enum {
	BLOCK = 64,
	WIDE = 8, /* blocks that are folded in parallel, since a product takes several cycles */
	LEAST = IPV4_LEN + UDP_LEN + BTH_LEN, /* minimum length of the headers */
};

/* Factors for the two halves of a lane: x^(d + 32) and x^(d - 32). */
static const uint64_t by_512[] = { 0x154442bd4, 0x1c6e41596 };
static const uint64_t by_1024[] = { 0x1e88ef372, 0x14a7fe880 };
static const uint64_t by_2048[] = { 0x11542778a, 0x1322d1430 };
static const uint64_t by_4096[] = { 0x1072db28, 0x1d741f35c };
/* The same for each lane of a block, to fold it onto the last lane, which stays. */
static const uint64_t by_lane[] = { 0x03db1ecdc, 0x174359406, 0x0f1da05aa, 0x15a546366, 0x1751997d0,
	0x0ccaa009e, 0, 0 };
/* x^96; x^96 divided by the polynomial without its last bit; the polynomial. */
static const uint64_t divisors[] = { 0x0ccaa009e, 0xb4e5b025f7011641 };
static const uint64_t polynomial[] = { 0x1db710641, 0 };

/*
 * Masks for the block that ends with the headers, at any offset: byte i of the headers is at BLOCK
 * + i. `set` are the fields that routers change; `inverted` is the state after the link header.
 */
struct mask {
	uint8_t set[BLOCK + WIRE_MAX_HEADERS];
	uint8_t inverted[BLOCK + WIRE_MAX_HEADERS];
};

#define STATE                                                                              \
	{                                                                                  \
		[BLOCK] = 0xe3, [BLOCK + 1] = 0x20, [BLOCK + 2] = 0xbb, [BLOCK + 3] = 0xde \
	}

static const struct mask mask_ipv4 = {
	.set = {
		[BLOCK + 1] = 0xff, /* type of service */
		[BLOCK + 8] = 0xff, /* time to live */
		[BLOCK + 10] = 0xff, [BLOCK + 11] = 0xff, /* header checksum */
		[BLOCK + IPV4_LEN + 6] = 0xff, [BLOCK + IPV4_LEN + 7] = 0xff, /* UDP checksum */
		[BLOCK + IPV4_LEN + UDP_LEN + 4] = 0xff, /* FECN, BECN, reserved */
	},
	.inverted = STATE,
};

static const struct mask mask_ipv6 = {
	.set = {
		[BLOCK] = 0x0f, /* traffic class and flow label */
		[BLOCK + 1] = 0xff, [BLOCK + 2] = 0xff, [BLOCK + 3] = 0xff,
		[BLOCK + 7] = 0xff, /* hop limit */
		[BLOCK + IPV6_LEN + 6] = 0xff, [BLOCK + IPV6_LEN + 7] = 0xff, /* UDP checksum */
		[BLOCK + IPV6_LEN + UDP_LEN + 4] = 0xff, /* FECN, BECN, reserved */
	},
	.inverted = STATE,
};

/* IPv4 headers in one block: the bytes that are kept (bit i: byte i), and the values of the others
 * including the state, at the offset as above. */
#define BIT(i) (UINT64_C(1) << (i))
static const uint64_t ipv4_kept = ~(BIT(1) | BIT(8) | BIT(10) | BIT(11) | BIT(IPV4_LEN + 6) |
	BIT(IPV4_LEN + 7) | BIT(IPV4_LEN + UDP_LEN + 4));
static const uint8_t ipv4_others[2 * BLOCK] = {
	[BLOCK] = 0xe3,
	[BLOCK + 1] = 0x20 ^ 0xff,
	[BLOCK + 2] = 0xbb,
	[BLOCK + 3] = 0xde,
	[BLOCK + 8] = 0xff,
	[BLOCK + 10] = 0xff,
	[BLOCK + 11] = 0xff,
	[BLOCK + IPV4_LEN + 6] = 0xff,
	[BLOCK + IPV4_LEN + 7] = 0xff,
	[BLOCK + IPV4_LEN + UDP_LEN + 4] = 0xff,
};

FN __m512i load(const void *p)
{
	return _mm512_loadu_si512(p);
}

FN __m512i lanes(const uint64_t pair[2])
{
	return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)pair));
}

FN __m512i xor3(__m512i a, __m512i b, __m512i c)
{
	return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

/* Folds `block` onto `next`; `k` is for the distance between them. */
FN __m512i fold(__m512i block, __m512i k, __m512i next)
{
	return xor3(_mm512_clmulepi64_epi128(block, k, 0x00),
		_mm512_clmulepi64_epi128(block, k, 0x11), next);
}

/* Folds the WIDE blocks of `v` onto the last one. */
FN __m512i fold_wide(const __m512i v[WIDE])
{
	__m512i k = lanes(by_2048);
	__m512i a = fold(v[0], k, v[4]), b = fold(v[1], k, v[5]);
	__m512i c = fold(v[2], k, v[6]), d = fold(v[3], k, v[7]);

	k = lanes(by_1024);
	return fold(fold(a, k, c), lanes(by_512), fold(b, k, d));
}

/* Folds each of WIDE blocks onto the block WIDE positions after it. */
FN void fold_all(__m512i v[WIDE], __m512i k, const uint8_t *p)
{
#pragma GCC unroll 8
	for (int i = 0; i < WIDE; i++)
		v[i] = fold(v[i], k, load(p + i * BLOCK));
}

/* Folds `acc` and the `n` bytes after it; `n` is a multiple of WIDE blocks and not 0. */
FN __m512i fold_long(__m512i acc, const uint8_t *p, size_t n)
{
	const __m512i k = lanes(by_4096);
	__m512i v[WIDE];

	v[0] = fold(acc, lanes(by_512), load(p));
#pragma GCC unroll 8
	for (int i = 1; i < WIDE; i++)
		v[i] = load(p + i * BLOCK);
#pragma GCC unroll 8
	for (size_t at = WIDE * BLOCK; at != n; at += WIDE * BLOCK)
		fold_all(v, k, p + at);
	return fold_wide(v);
}

/* Returns the inverted remainder of all bytes up to the end of `block`. */
FN uint32_t divide(__m512i block)
{
	const __m128i by = _mm_loadu_si128((const __m128i *)(const void *)divisors);
	const __m512i k = load(by_lane);
	__m512i moved = _mm512_xor_si512(
		_mm512_clmulepi64_epi128(block, k, 0x00), _mm512_clmulepi64_epi128(block, k, 0x11));
	__m256i half = _mm256_xor_si256(
		_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64(moved, 1));
	__m128i x = _mm_ternarylogic_epi64(_mm256_castsi256_si128(half),
		_mm256_extracti128_si256(half, 1), _mm512_extracti32x4_epi32(block, 3), 0x96);
	__m128i q;

	x = _mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_srli_si128(x, 8));
	q = _mm_clmulepi64_si128(x, by, 0x10);
	q = _mm_clmulepi64_si128(
		q, _mm_loadu_si128((const __m128i *)(const void *)polynomial), 0x00);
	return ~(uint32_t)_mm_extract_epi32(_mm_xor_si128(q, x), 2);
}

/* The same with `n` more bytes, fewer than a block. */
__attribute__((target(TARGET), noinline)) static uint32_t divide_with_rest(
	__m512i block, const uint8_t *p, size_t n)
{
	uint8_t room[3 * BLOCK], *bytes = room;
	__mmask64 mask = (UINT64_C(1) << n) - 1;

	/* GCC relies on an alignment that the address sanitizer breaks. */
	__asm__("" : "+r"(bytes));
	_mm512_storeu_si512(bytes, _mm512_setzero_si512());
	_mm512_storeu_si512(bytes + BLOCK, block);
	_mm512_storeu_si512(bytes + 2 * BLOCK, _mm512_maskz_loadu_epi8(mask, p));
	return divide(fold(load(bytes + n), lanes(by_512), load(bytes + BLOCK + n)));
}

/* Returns the CRC of `acc` and a payload of `n` bytes. */
FN uint32_t finish(__m512i acc, const uint8_t *p, size_t n)
{
	const __m512i k = lanes(by_512);
	const uint8_t *end;

	/* The most common length is a compile-time constant, so all loops are unrolled. */
	if (n == WIRE_IBTA_MTU)
		return divide(fold_long(acc, p, WIRE_IBTA_MTU));
	if (n >= WIDE * BLOCK) {
		size_t wide = n & ~(size_t)(WIDE * BLOCK - 1);

		acc = fold_long(acc, p, wide);
		p += wide;
		n -= wide;
	}
	for (end = p + (n & ~(size_t)(BLOCK - 1)); p != end; p += BLOCK)
		acc = fold(acc, k, load(p));
	return n % BLOCK ? divide_with_rest(acc, p, n % BLOCK) : divide(acc);
}

/* Masks a block of headers, or its end, with the mask at that offset. */
FN __m512i masked(__m512i block, const struct mask *mask, size_t at)
{
	/* (a | b) ^ c */
	return _mm512_ternarylogic_epi64(
		block, load(mask->set + at), load(mask->inverted + at), 0x56);
}

bool icrc_has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("pclmul") &&
		__builtin_cpu_supports("vpclmulqdq");
}

__attribute__((target(TARGET))) uint32_t icrc_update_avx512(
	uint32_t crc, const void *data, size_t len)
{
	if (len < BLOCK)
		return icrc_update_plain(crc, data, len);
	return finish(
		_mm512_xor_si512(load(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc))),
		(const uint8_t *)data + BLOCK, len - BLOCK);
}

/* Handles any packet. */
__attribute__((target(TARGET), noinline)) static uint32_t whole(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	const struct mask *mask = l3[0] >> 4 == 4 ? &mask_ipv4 : &mask_ipv6;
	/* The block may start before the packet; those bytes are not read. */
	const uint8_t *last = (const uint8_t *)((uintptr_t)l3 + headers_len - BLOCK);
	__mmask64 present = ~UINT64_C(0) << (-headers_len % BLOCK);
	__m512i acc;

	assert(headers_len >= LEAST && headers_len <= WIRE_MAX_HEADERS);
	if (headers_len <= BLOCK) {
		acc = masked(_mm512_maskz_loadu_epi8(present, last), mask, headers_len);
	} else {
		acc = masked(
			_mm512_maskz_loadu_epi8(present, last - BLOCK), mask, headers_len - BLOCK);
		acc = fold(acc, lanes(by_512), masked(load(last), mask, headers_len));
	}
	return finish(acc, payload, payload_len);
}

/* Handles the common case: IPv4, headers in one block, the most common length. */
__attribute__((target(TARGET))) uint32_t icrc_whole_avx512(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	const uint8_t *last = (const uint8_t *)((uintptr_t)l3 + headers_len - BLOCK);
	__m512i acc;

	if (payload_len != WIRE_IBTA_MTU || headers_len < LEAST || headers_len > BLOCK ||
		l3[0] >> 4 != 4)
		return whole(l3, headers_len, payload, payload_len);
	acc = _mm512_maskz_loadu_epi8(ipv4_kept << (-headers_len % BLOCK), last);
	acc = _mm512_xor_si512(acc, load(ipv4_others + headers_len));
	return divide(fold_long(acc, payload, WIRE_IBTA_MTU));
}
