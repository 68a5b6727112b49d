/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Internet checksum (RFC 1071). Sums are taken over bytes in memory order, so a folded sum is
 * stored with memcpy() on machines of any byte order. Any thread.
 */
#ifndef FERRULE_WIRE_CHECKSUM_H
#define FERRULE_WIRE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/net/addr.h"

/* Adds `len` bytes to a sum; only the last part may have an odd length. */
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

/* Returns the 16-bit sum. It is 0xffff for data that contain their own correct checksum. */
static inline uint16_t checksum_fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* Stores the checksum of a sum in two bytes that were zero when summed. */
static inline void checksum_store(uint8_t at[2], uint64_t sum)
{
	uint16_t checksum = (uint16_t)~checksum_fold(sum);

	memcpy(at, &checksum, sizeof(checksum));
}

/* Returns the sum of the pseudo header of UDP or ICMPv6 (RFC 768; RFC 8200, 8.1). */
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
