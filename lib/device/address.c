/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses the addresses and gateways of a network port. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/base/net/ip.h"
#include "lib/device/soft.h"

enum {
	MAX_VLAN = 4094,
	/* The longest IPv6 address, "/128@4094", NUL. */
	WORD_SIZE = INET6_ADDRSTRLEN + 16,
};

/* Returns true for an address of a single host: not unspecified, loopback or multicast. */
static bool is_host_address(const struct frl_ip *ip)
{
	static const struct frl_ip unspecified, loopback = { { [15] = 1 } };
	uint8_t first = ip->bytes[12];

	if (ip_is_v4(ip))
		return first != 0 && first != 127 && first < 224;
	return !ip_equal(ip, &unspecified) && !ip_equal(ip, &loopback) && !ip_is_multicast(ip);
}

static int parse_host(const char *word, struct frl_ip *ret_ip, uint8_t *ret_prefix_len)
{
	int rc = parse_ip(word, ret_ip, ret_prefix_len);

	if (!rc && !is_host_address(ret_ip))
		return frl_fail(-EINVAL, "%s is not a host address", word);
	return rc;
}

/* Copies the next word of a comma-separated list. *text is then after it, or NULL after the last.
 */
static int next_word(const char **text, char word[WORD_SIZE])
{
	size_t len = strcspn(*text, ",");

	if (len >= WORD_SIZE)
		return frl_fail(-EINVAL,
			"'%s' is no IP address: give one like 10.1.1.1/24 or fd00::1/64", *text);
	memcpy(word, *text, len);
	word[len] = '\0';
	*text = (*text)[len] ? *text + len + 1 : NULL;
	return 0;
}

static int parse_address(char *word, struct frl_gid *ret_gid)
{
	char *at = strchr(word, '@');
	unsigned long vlan = 0;

	if (at) {
		if (!parse_digits(at + 1, MAX_VLAN, &vlan) || vlan == 0)
			return frl_fail(-EINVAL,
				"'%s' has a bad VLAN: behind the @ must be a number from 1 to %d",
				word, MAX_VLAN);
		*at = '\0';
	}
	ret_gid->vlan = (uint16_t)vlan;
	return parse_host(word, &ret_gid->ip, &ret_gid->prefix_len);
}

int parse_addresses(const char *text, struct gid_table *ret_gids)
{
	struct gid_table gids = { .n = 1 };
	char word[WORD_SIZE];

	for (const char *rest = text; rest;) {
		struct frl_gid gid = { 0 };
		int rc = next_word(&rest, word);

		if (!rc)
			rc = parse_address(word, &gid);
		if (rc)
			return rc;
		if (gid_find(&gids, &gid.ip, gid.vlan) >= 0)
			return frl_fail(-EINVAL, "address %s is given twice", format_ip(&gid.ip));
		if (gids.n == FRL_MAX_GIDS)
			return frl_fail(-EINVAL,
				"'%s' has too many addresses: a port can have %d and its "
				"link-local address",
				text, FRL_MAX_GIDS - 1);
		gids.gids[gids.n++] = gid;
	}
	*ret_gids = gids;
	return 0;
}

static int check_gateway(const struct gid_table *gids, const struct frl_ip *gateway)
{
	static const struct frl_gid link_local = { { { 0xfe, 0x80 } }, 64, 0 };
	bool has_family = false;

	for (unsigned i = 1; i < gids->n; i++) {
		const struct frl_gid *gid = &gids->gids[i];

		has_family |= ip_is_v4(&gid->ip) == ip_is_v4(gateway);
		if (ip_equal(&gid->ip, gateway))
			return frl_fail(-EINVAL, "gateway %s is this port's own address",
				format_ip(gateway));
	}
	if (!has_family)
		return frl_fail(-EINVAL,
			"gateway %s is of another address family than all addresses",
			format_ip(gateway));
	if (in_subnet(&link_local, gateway))
		return 0;
	for (unsigned i = 1; i < gids->n; i++)
		if (in_subnet(&gids->gids[i], gateway))
			return 0;
	return frl_fail(-EINVAL,
		"gateway %s is in no subnet of this port's addresses: check their prefix lengths",
		format_ip(gateway));
}

int parse_gateways(const char *text, const struct gid_table *gids, struct neighbors_config *ret)
{
	char word[WORD_SIZE];

	for (const char *rest = text; rest;) {
		struct frl_ip ip;
		int rc = next_word(&rest, word);
		bool v6;

		if (!rc)
			rc = parse_host(word, &ip, NULL);
		if (!rc)
			rc = check_gateway(gids, &ip);
		if (rc)
			return rc;
		v6 = !ip_is_v4(&ip);
		if (ret->has_gateway[v6])
			return frl_fail(-EINVAL,
				"'%s' has two gateways of one family: there can be one for IPv4 "
				"and one for IPv6",
				text);
		ret->has_gateway[v6] = true;
		ret->gateway[v6] = ip;
	}
	return 0;
}

int add_link_local(struct gid_table *gids, const uint8_t mac[6])
{
	struct frl_gid gid = { gid_link_local(mac), 64, 0 };

	/* Not in the table during the search. */
	gids->gids[0] = (struct frl_gid){ 0 };
	if (gid_find(gids, &gid.ip, gid.vlan) >= 0)
		return frl_fail(-EINVAL,
			"address %s is the port's link-local address, which is always set: "
			"remove it",
			format_ip(&gid.ip));
	gids->gids[0] = gid;
	return 0;
}
