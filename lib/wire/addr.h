/* SPDX-License-Identifier: BSD-3-Clause */
/* MAC and IP addresses. IPv4 addresses are kept as ::ffff:a.b.c.d, as in a GID. */
#ifndef FERRULE_WIRE_ADDR_H
#define FERRULE_WIRE_ADDR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <ferrule/queue.h>

static inline bool ip_is_v4(const struct frl_ip *ip)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(ip->bytes, prefix, sizeof(prefix)) == 0;
}

static inline bool ip_equal(const struct frl_ip *a, const struct frl_ip *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* From the four bytes of an IPv4 address in network order. */
static inline struct frl_ip ip_from_v4(const uint8_t bytes[4])
{
	struct frl_ip ip = { { [10] = 0xff, [11] = 0xff } };

	memcpy(ip.bytes + 12, bytes, 4);
	return ip;
}

static inline bool mac_equal(const uint8_t a[6], const uint8_t b[6])
{
	return memcmp(a, b, 6) == 0;
}

#endif
