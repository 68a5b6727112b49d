/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/net/ip.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/net/addr.h"
#include "lib/base/error.h"
#include "lib/base/thread_text.h"

bool parse_digits(const char *text, unsigned long max, unsigned long *ret_number)
{
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	*ret_number = strtoul(text, &end, 10);
	return !*end && *ret_number <= max;
}

int parse_ip(const char *text, struct frl_ip *ret_ip, uint8_t *ret_prefix_len)
{
	const char *slash = strchr(text, '/');
	size_t len = slash ? (size_t)(slash - text) : strlen(text);
	char address[INET6_ADDRSTRLEN];
	struct frl_ip ip;
	uint8_t v4[4];
	unsigned long bits;
	bool is_v4;

	if (len >= sizeof(address))
		goto err_bad;
	memcpy(address, text, len);
	address[len] = '\0';
	is_v4 = inet_pton(AF_INET, address, v4) == 1;
	if (is_v4)
		ip = ip_from_v4(v4);
	else if (inet_pton(AF_INET6, address, ip.bytes) != 1 || ip_is_v4(&ip))
		goto err_bad; /* a mapped address would make prefix lengths ambiguous */
	bits = is_v4 ? 32 : 128;
	if (slash && !parse_digits(slash + 1, bits, &bits))
		goto err_bad;
	*ret_ip = ip;
	if (ret_prefix_len)
		*ret_prefix_len = (uint8_t)bits;
	return 0;

err_bad:
	return frl_fail(
		-EINVAL, "'%s' is no IP address: give one like 10.1.1.1/24 or fd00::1/64", text);
}

const char *format_ip(const struct frl_ip *ip)
{
	char *text = thread_text(THREAD_TEXT_IP);

	if (!text)
		return "(no memory for an address)";
	if (ip_is_v4(ip))
		return inet_ntop(AF_INET, ip->bytes + 12, text, THREAD_TEXT_SIZE);
	return inet_ntop(AF_INET6, ip->bytes, text, THREAD_TEXT_SIZE);
}

bool in_subnet(const struct frl_gid *gid, const struct frl_ip *ip)
{
	unsigned bits = gid->prefix_len + (ip_is_v4(&gid->ip) ? 96u : 0u);
	unsigned whole = bits / 8, rest = bits % 8;

	if (ip_is_v4(&gid->ip) != ip_is_v4(ip) || memcmp(gid->ip.bytes, ip->bytes, whole) != 0)
		return false;
	return rest == 0 || (gid->ip.bytes[whole] ^ ip->bytes[whole]) >> (8 - rest) == 0;
}
