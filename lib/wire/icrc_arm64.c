/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CRC with the instructions of arm64 for it, eight bytes each. Three streams are computed in
 * turns, since an instruction takes several cycles. A product of polynomials (PMULL) then moves the
 * CRC of each stream to the end of the last one: with a factor of x^(d - 33) for d bits, and the
 * CRC instruction as the division. Numbers are bit-reversed: bit 0 is the highest power.
 *
 * That is three instructions for 16 bytes. Folding with PMULL, as on x86, takes three and a half
 * with the three-way XOR of newer processors, and four and a half without.
 */
#include <assert.h>
#include <sys/auxv.h>

#include "lib/wire/icrc_kernels.h"

/* Bytes of a stream. Three long ones are 64 bytes less than the largest MTU. */
enum {
	LONG = 1344,
	SHORT = 336,
	STEP = 112, /* of a round of the loop */
};

/* For the streams that are two lengths and one length before the end. */
struct factors {
	uint64_t two, one;
};

static const struct factors short_factors = { 0xd8110ff1, 0x1c63267b };
static const struct factors long_factors = { 0x632d78c5, 0xb46f7cff };

/* Assembly, because clang 14 has the intrinsics only where all of a file may use them. */
#define CRC_INSTRUCTION(name, type, format)                                   \
	static inline uint32_t name(uint32_t crc, type value)                 \
	{                                                                     \
		__asm__(".arch_extension crc\n\t" #name " %w0, %w0, %" format \
			: "+r"(crc)                                           \
			: "r"(value));                                        \
		return crc;                                                   \
	}

CRC_INSTRUCTION(crc32x, uint64_t, "1")
CRC_INSTRUCTION(crc32w, uint32_t, "w1")
CRC_INSTRUCTION(crc32b, uint8_t, "w1")

typedef uint64_t lane __attribute__((vector_size(16)));

/* Returns the product of two polynomials of 32 bits. */
static inline uint64_t multiply(uint32_t a, uint64_t b)
{
	lane x = { a }, y = { b };

	__asm__(".arch_extension aes\n\tpmull %0.1q, %0.1d, %1.1d" : "+w"(x) : "w"(y));
	return x[0];
}

/* Adds 16 bytes and moves the pointer behind them. One instruction loads them, which GCC does not
 * find. */
static inline uint32_t add_pair(uint32_t crc, const uint8_t **p)
{
	uint64_t first, second;

	__asm__ volatile("ldp %0, %1, [%2], #16"
			 : "=&r"(first), "=&r"(second), "+r"(*p)
			 :
			 : "memory");
	return crc32x(crc32x(crc, first), second);
}

static inline uint64_t load64(const uint8_t *p)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

static inline uint32_t load32(const uint8_t *p)
{
	uint32_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

/* Adds three streams of `n` bytes. */
static inline uint32_t add_streams(
	uint32_t a, const uint8_t *p, size_t n, const struct factors *factors)
{
	const uint8_t *q = p + n, *r = q + n, *end = q;
	uint32_t b = 0, c = 0;

	while (p != end) {
#pragma GCC unroll 7
		for (int i = 0; i < STEP / 16; i++) {
			a = add_pair(a, &p);
			b = add_pair(b, &q);
			c = add_pair(c, &r);
		}
	}
	return c ^ crc32x(0, multiply(a, factors->two) ^ multiply(b, factors->one));
}

/* Adds any number of bytes, one after the other. */
static inline uint32_t add_bytes(uint32_t crc, const uint8_t *p, size_t n)
{
	for (; n >= 16; n -= 16)
		crc = add_pair(crc, &p);
	if (n & 8) {
		crc = crc32x(crc, load64(p));
		p += 8;
	}
	if (n & 4) {
		crc = crc32w(crc, load32(p));
		p += 4;
	}
	for (n &= 3; n > 0; n--)
		crc = crc32b(crc, *p++);
	return crc;
}

/* Adds a payload. Returns the CRC. */
static inline uint32_t finish(uint32_t crc, const uint8_t *p, size_t n)
{
	for (; n >= 3 * LONG; p += 3 * LONG, n -= 3 * LONG)
		crc = add_streams(crc, p, LONG, &long_factors);
	for (; n >= 3 * SHORT; p += 3 * SHORT, n -= 3 * SHORT)
		crc = add_streams(crc, p, SHORT, &short_factors);
	return ~add_bytes(crc, p, n);
}

/* Adds headers, without the fields that routers change. */
static inline uint32_t add_headers(uint32_t crc, const uint8_t *l3, size_t len)
{
	const uint8_t *end = l3 + len;

	if (l3[0] >> 4 == 4) {
		crc = crc32x(crc, load64(l3) | 0xff00);         /* type of service */
		crc = crc32x(crc, load64(l3 + 8) | 0xffff00ff); /* time to live, checksum */
		crc = crc32x(crc, load64(l3 + 16));
		crc = crc32x(crc, load64(l3 + 24) | 0xffff0000); /* UDP checksum */
		crc = crc32x(crc, load64(l3 + 32) | 0xff);       /* FECN, BECN, reserved */
		l3 += IPV4_LEN + UDP_LEN + BTH_LEN;
	} else {
		/* Traffic class, flow label, hop limit. */
		crc = crc32x(crc, load64(l3) | 0xff000000ffffff0f);
		for (int at = 8; at < IPV6_LEN; at += 8)
			crc = crc32x(crc, load64(l3 + at));
		l3 += IPV6_LEN;
		crc = crc32x(crc, load64(l3) | 0xffff000000000000); /* UDP checksum */
		crc = crc32x(crc, load64(l3 + 8) | 0xff00000000);   /* FECN, BECN, reserved */
		crc = crc32w(crc, load32(l3 + 16));
		l3 += UDP_LEN + BTH_LEN;
	}
	return add_bytes(crc, l3, (size_t)(end - l3));
}

static bool supported(void)
{
	const unsigned long needed = HWCAP_CRC32 | HWCAP_PMULL;

	return (getauxval(AT_HWCAP) & needed) == needed;
}

static uint32_t update(uint32_t crc, const void *data, size_t len)
{
	return finish(~crc, data, len);
}

static uint32_t whole(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	assert(headers_len >= IPV4_LEN + UDP_LEN + BTH_LEN && headers_len <= WIRE_MAX_HEADERS);
	return finish(add_headers(~CRC_OF_MASKED_LRH, l3, headers_len), payload, payload_len);
}

const struct icrc_kernel icrc_arm64 = {
	.name = "arm64",
	.supported = supported,
	.update = update,
	.whole = whole,
};
