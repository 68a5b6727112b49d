/* SPDX-License-Identifier: BSD-3-Clause */
/* The addresses of a port, in the order of its GID table. Filled when the device is opened. */
#ifndef FERRULE_BASE_GIDS_H
#define FERRULE_BASE_GIDS_H

#include <ferrule/address.h>

#include "lib/base/net/addr.h"

struct gid_table {
	unsigned n;
	struct frl_gid gids[FRL_MAX_GIDS];
};

/* Returns the link-local address for an Ethernet address: fe80::/64, EUI-64 (RFC 4291, appendix
 * A). */
static inline struct frl_ip gid_link_local(const uint8_t mac[6])
{
	return (struct frl_ip){ { 0xfe, 0x80, [8] = mac[0] ^ 0x02, [9] = mac[1], [10] = mac[2],
		[11] = 0xff, [12] = 0xfe, [13] = mac[3], [14] = mac[4], [15] = mac[5] } };
}

/* Returns the index of an address on a VLAN (0: untagged), or -1. */
static inline int gid_find(const struct gid_table *table, const struct frl_ip *ip, uint16_t vlan)
{
	for (unsigned i = 0; i < table->n; i++)
		if (table->gids[i].vlan == vlan && ip_equal(&table->gids[i].ip, ip))
			return (int)i;
	return -1;
}

/* Returns the index of an address on any VLAN, or -1. */
static inline int gid_find_any(const struct gid_table *table, const struct frl_ip *ip)
{
	for (unsigned i = 0; i < table->n; i++)
		if (ip_equal(&table->gids[i].ip, ip))
			return (int)i;
	return -1;
}

#endif
