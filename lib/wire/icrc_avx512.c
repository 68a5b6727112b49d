/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CRC, 64 bytes at a time, with carry-less multiplication of AVX-512. Headers of any length are
 * one or two blocks that end where the payload begins, and are masked in registers.
 */
#define ICRC_BITS 512
#include "lib/wire/icrc_fold.h"

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

/* Masks a block of headers, or its end, with the mask at that offset. */
ICRC_FN block masked(block x, const struct mask *mask, size_t at)
{
	/* (a | b) ^ c */
	return _mm512_ternarylogic_epi64(x, load(mask->set + at), load(mask->inverted + at), 0x56);
}

static bool supported(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("pclmul") &&
		__builtin_cpu_supports("vpclmulqdq");
}

ICRC_TARGET static uint32_t update_avx512(uint32_t crc, const void *data, size_t len)
{
	return update(crc, data, len);
}

/* Handles any packet. */
ICRC_TARGET __attribute__((noinline)) static uint32_t whole_any(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	const struct mask *mask = l3[0] >> 4 == 4 ? &mask_ipv4 : &mask_ipv6;
	/* The block may start before the packet; those bytes are not read. */
	const uint8_t *last = (const uint8_t *)((uintptr_t)l3 + headers_len - BLOCK);
	__mmask64 present = ~UINT64_C(0) << (-headers_len % BLOCK);
	block acc;

	assert(headers_len >= LEAST && headers_len <= WIRE_MAX_HEADERS);
	if (headers_len <= BLOCK) {
		acc = masked(_mm512_maskz_loadu_epi8(present, last), mask, headers_len);
	} else {
		acc = masked(
			_mm512_maskz_loadu_epi8(present, last - BLOCK), mask, headers_len - BLOCK);
		acc = fold(acc, fold_by(BLOCK), masked(load(last), mask, headers_len));
	}
	return finish(acc, payload, payload_len);
}

/* Handles the common case: IPv4, headers in one block, the most common length. */
ICRC_TARGET static uint32_t whole_avx512(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	const uint8_t *last = (const uint8_t *)((uintptr_t)l3 + headers_len - BLOCK);
	block acc;

	if (payload_len != WIRE_IBTA_MTU || headers_len < LEAST || headers_len > BLOCK ||
		l3[0] >> 4 != 4)
		return whole_any(l3, headers_len, payload, payload_len);
	acc = _mm512_maskz_loadu_epi8(ipv4_kept << (-headers_len % BLOCK), last);
	acc = _mm512_xor_si512(acc, load(ipv4_others + headers_len));
	return divide(fold_long(acc, payload, WIRE_IBTA_MTU));
}

const struct icrc_kernel icrc_avx512 = {
	.name = "avx512",
	.supported = supported,
	.update = update_avx512,
	.whole = whole_avx512,
};
