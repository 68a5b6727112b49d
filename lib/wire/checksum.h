/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Internet checksum (RFC 1071). Sums are taken over the bytes as they lie in memory, so that a
 * folded sum is stored with memcpy() whatever the byte order of the machine. Any thread.
 */
#ifndef FERRULE_WIRE_CHECKSUM_H
#define FERRULE_WIRE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/addr.h"

/* Adds `len` bytes to a sum; only the last piece may have an odd number. */
static inline uint64_t checksum_add(uint64_t sum, const void *data, size_t len)
{
	const uint8_t *p = data;
	uint32_t word;

	for (; len >= sizeof(word); p += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		sum += word;
	}
	word = 0;
	memcpy(&word, p, len);
	return sum + word;
}

/* The 16-bit sum; 0xffff over data that contain their own checksum when that is right. */
static inline uint16_t checksum_fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* Stores a sum's checksum in the two bytes that were zero in it. */
static inline void checksum_store(uint8_t at[2], uint64_t sum)
{
	uint16_t checksum = (uint16_t)~checksum_fold(sum);

	memcpy(at, &checksum, sizeof(checksum));
}

/* The sum of the pseudo header of UDP or ICMPv6 over either IP (RFC 768; RFC 8200, 8.1). */
static inline uint64_t checksum_pseudo(
	const struct frl_ip *src, const struct frl_ip *dst, uint8_t protocol, uint16_t length)
{
	const uint8_t rest[4] = { (uint8_t)(length >> 8), (uint8_t)length, 0, protocol };
	size_t skip = ip_is_v4(src) ? 12 : 0;
	uint64_t sum = checksum_add(0, rest, sizeof(rest));

	sum = checksum_add(sum, src->bytes + skip, sizeof(src->bytes) - skip);
	return checksum_add(sum, dst->bytes + skip, sizeof(dst->bytes) - skip);
}

#endif
