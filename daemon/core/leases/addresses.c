/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses and MAC addresses by their index in a fabric's ranges. */
#include <string.h>

#include "daemon/core/leases/leases.h"
#include "lib/base/bytes.h"

struct frl_ip range_at(const struct config_range *range, uint64_t index)
{
	struct frl_ip ip = range->first;
	uint64_t low = get_be64(ip.bytes + 8) + index;

	if (low < index)
		put_be64(ip.bytes, get_be64(ip.bytes) + 1);
	put_be64(ip.bytes + 8, low);
	return ip;
}

bool in_range(const struct config_range *range, const struct frl_ip *ip)
{
	return memcmp(ip, &range->first, sizeof(*ip)) >= 0 &&
		memcmp(ip, &range->last, sizeof(*ip)) <= 0;
}

/* ---- MAC addresses as numbers of 48 bits */

static uint64_t mac_number(const uint8_t mac[6])
{
	return (uint64_t)get_be16(mac) << 32 | get_be32(mac + 2);
}

void pool_mac(const struct config_fabric *fabric, uint64_t index, uint8_t mac[6])
{
	uint64_t number = mac_number(fabric->mac_first) + index;

	put_be16(mac, (uint16_t)(number >> 32));
	put_be32(mac + 2, (uint32_t)number);
}

bool pool_has_mac(const struct config_fabric *fabric, const uint8_t mac[6])
{
	return fabric->has_macs && mac_number(mac) - mac_number(fabric->mac_first) < fabric->n_macs;
}
