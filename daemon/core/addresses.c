/* SPDX-License-Identifier: BSD-3-Clause */
/* IP addresses as text, and what is in a fabric's ranges of addresses and of MACs. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/internal.h"
#include "lib/base/bytes.h"

static bool is_v4(const struct frl_ip *ip)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(ip->bytes, prefix, sizeof(prefix)) == 0;
}

bool address_parse(const char *text, struct frl_ip *ret_ip, uint8_t *ret_prefix_len)
{
	const char *slash = strchr(text, '/');
	size_t length = slash ? (size_t)(slash - text) : strlen(text);
	char host[INET6_ADDRSTRLEN], *end;
	unsigned long prefix_len;

	if (length >= sizeof(host))
		return false;
	memcpy(host, text, length);
	host[length] = '\0';
	memset(ret_ip, 0, sizeof(*ret_ip));
	if (inet_pton(AF_INET, host, ret_ip->bytes + 12) == 1)
		ret_ip->bytes[10] = ret_ip->bytes[11] = 0xff;
	else if (inet_pton(AF_INET6, host, ret_ip->bytes) != 1)
		return false;
	*ret_prefix_len = is_v4(ret_ip) ? 32 : 128;
	if (!slash)
		return true;
	prefix_len = strtoul(slash + 1, &end, 10);
	if (end == slash + 1 || *end || prefix_len > *ret_prefix_len)
		return false;
	*ret_prefix_len = (uint8_t)prefix_len;
	return true;
}

void address_print(const struct frl_ip *ip, char *out, size_t size)
{
	char text[INET6_ADDRSTRLEN] = "";

	if (is_v4(ip))
		inet_ntop(AF_INET, ip->bytes + 12, text, sizeof(text));
	else
		inet_ntop(AF_INET6, ip->bytes, text, sizeof(text));
	snprintf(out, size, "%s", text);
}

/* Ranges are within what the lower half of an address can count. */
static uint64_t low_half(const struct frl_ip *ip)
{
	return (uint64_t)get_be32(ip->bytes + 8) << 32 | get_be32(ip->bytes + 12);
}

uint64_t range_size(const struct config_range *range)
{
	uint64_t last = low_half(&range->last), first = low_half(&range->first);

	return last < first ? 0 : last - first == UINT64_MAX ? last - first : last - first + 1;
}

struct frl_ip range_at(const struct config_range *range, uint64_t index)
{
	struct frl_ip ip = range->first;
	uint64_t low = low_half(&range->first) + index;

	put_be32(ip.bytes + 8, (uint32_t)(low >> 32));
	put_be32(ip.bytes + 12, (uint32_t)low);
	return ip;
}

bool in_range(const struct config_range *range, const struct frl_ip *ip)
{
	return memcmp(ip->bytes, range->first.bytes, 8) == 0 &&
		low_half(ip) >= low_half(&range->first) && low_half(ip) <= low_half(&range->last);
}

/* ---- MACs are numbers of 48 bits */

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
