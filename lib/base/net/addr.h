/* SPDX-License-Identifier: BSD-3-Clause */
/* MAC and IP addresses. IPv4 addresses are stored as ::ffff:a.b.c.d, as in a GID. */
#ifndef FERRULE_BASE_ADDR_H
#define FERRULE_BASE_ADDR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <ferrule/address.h>

static inline bool ip_is_v4(const struct frl_ip *ip)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(ip->bytes, prefix, sizeof(prefix)) == 0;
}

static inline bool ip_equal(const struct frl_ip *a, const struct frl_ip *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* Converts the four bytes of an IPv4 address in network byte order. */
static inline struct frl_ip ip_from_v4(const uint8_t bytes[4])
{
	struct frl_ip ip = { { [10] = 0xff, [11] = 0xff } };

	memcpy(ip.bytes + 12, bytes, 4);
	return ip;
}

/* A multicast group, of either family. */
static inline bool ip_is_multicast(const struct frl_ip *ip)
{
	return ip_is_v4(ip) ? ip->bytes[12] >> 4 == 0xe : ip->bytes[0] == 0xff;
}

/* fe80::/10 (RFC 4291, 2.5.6). */
static inline bool ip_is_link_local(const struct frl_ip *ip)
{
	return ip->bytes[0] == 0xfe && ip->bytes[1] >> 6 == 2;
}

static inline bool mac_equal(const uint8_t a[6], const uint8_t b[6])
{
	return memcmp(a, b, 6) == 0;
}

#endif
