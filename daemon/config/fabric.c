/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values of ferruled.conf that describe a fabric: its ports, and what a lease gets with a port.
 */
#include "daemon/config/read.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FABRICS_MOST = 64,
	FABRIC_NAME_LONGEST = 63,
	PORTS_MOST = 1024,
	RANGES_MOST = 4,
	DEVARGS_LONGEST = 255,
	RANGE_LONGEST = 100,
	MACS_MOST = 65536,
	V4_BYTES = 12, /* of a mapped address, before the IPv4 address */
};

bool read_fabrics(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config *config = target;
	int length = read_length(reader, row, setting, 0, FABRICS_MOST);
	int i;

	if (length < 0)
		return false;
	config->fabrics = calloc((size_t)length + 1, sizeof(*config->fabrics));
	if (!config->fabrics)
		return no_memory(reader, setting);
	for (i = 0; i < length; i++) {
		const config_setting_t *entry = config_setting_get_elem(setting, (unsigned)i);
		struct config_fabric *fabric = &config->fabrics[config->n_fabrics++];

		if (config_setting_type(entry) != CONFIG_TYPE_GROUP)
			return refuse(
				reader, entry, "must be a group, { name = ...; ports = ...; }");
		if (!read_fabric(reader, entry, fabric))
			return false;
		if (!fabric->name)
			return refuse(reader, entry, "has no name; must have one: name = \"...\";");
		if (!fabric->n_ports)
			return refuse(reader, entry, "has no ports; must have at least one");
		if (!fabric->n_addresses)
			return refuse(
				reader, entry, "has no addresses; must have at least one range");
	}
	return true;
}

bool read_fabric_name(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config_fabric *fabric = target;
	const char *text = read_text(reader, row, setting, 1, FABRIC_NAME_LONGEST);
	const char *p;

	if (!text)
		return false;
	if (strcmp(text, "local") == 0)
		return refuse(
			reader, setting, "is the name of the local fabric; must be another name");
	for (p = text; *p; p++) {
		if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
			return refuse(reader, setting, "is \"%s\"; must be %s", text, row->range);
	}
	return keep_text(reader, setting, text, &fabric->name);
}

/* ---- ports */

bool read_devargs(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config_port *port = target;
	const char *text = read_text(reader, row, setting, 1, DEVARGS_LONGEST);

	return text && keep_text(reader, setting, text, &port->devargs);
}

/* Parses "02:00:00:00:00:01". The rest of the text is returned in *ret_rest. */
static bool parse_mac(const char *text, uint8_t mac[6], const char **ret_rest)
{
	int i;

	for (i = 0; i < 6; i++) {
		char digits[3] = { text[0], text[0] ? text[1] : '\0' };

		if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1]))
			return false;
		mac[i] = (uint8_t)strtoul(digits, NULL, 16);
		text += 2;
		if (i < 5 && *text++ != ':')
			return false;
	}
	*ret_rest = text;
	return true;
}

static uint64_t mac_number(const uint8_t mac[6])
{
	uint64_t number = 0;
	int i;

	for (i = 0; i < 6; i++)
		number = number << 8 | mac[i];
	return number;
}

/* The lowest bit of the first byte marks multicast. Zero is not an address. */
static bool is_unicast_mac(const uint8_t mac[6])
{
	return !(mac[0] & 1) && mac_number(mac);
}

bool read_mac(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config_port *port = target;
	const char *text = read_text(reader, row, setting, 0, RANGE_LONGEST);
	const char *rest;

	if (!text || !text[0])
		return text;
	if (!parse_mac(text, port->mac, &rest) || *rest)
		return refuse(
			reader, setting, "is \"%s\"; must be six bytes like %s", text, row->range);
	if (!is_unicast_mac(port->mac))
		return refuse(reader, setting,
			"\"%s\" is not a unicast address; must have an even first byte", text);
	port->has_mac = true;
	return true;
}

bool read_ports(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config_fabric *fabric = target;
	int length = read_length(reader, row, setting, 1, PORTS_MOST);
	int i;

	if (length < 0)
		return false;
	fabric->ports = calloc((size_t)length, sizeof(*fabric->ports));
	if (!fabric->ports)
		return no_memory(reader, setting);
	for (i = 0; i < length; i++) {
		const config_setting_t *entry = config_setting_get_elem(setting, (unsigned)i);
		struct config_port *port = &fabric->ports[fabric->n_ports++];
		int type = config_setting_type(entry);

		if (type == CONFIG_TYPE_STRING) {
			if (!read_devargs(reader, row, entry, port))
				return false;
			continue;
		}
		if (type != CONFIG_TYPE_GROUP)
			return refuse(reader, entry,
				"must be devargs in quotes, or { devargs = ...; mac = ...; }");
		if (!read_port(reader, entry, port))
			return false;
		if (!port->devargs)
			return refuse(reader, entry,
				"has no devargs; must name a device: devargs = \"...\";");
	}
	return true;
}

bool read_mac_pool(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config_fabric *fabric = target;
	const char *text = read_text(reader, row, setting, 0, RANGE_LONGEST);
	uint8_t last[6];
	const char *rest;
	uint64_t count;

	if (!text || !text[0])
		return text;
	if (!parse_mac(text, fabric->mac_first, &rest) || *rest != '-' ||
		!parse_mac(rest + 1, last, &rest) || *rest)
		return refuse(reader, setting,
			"is \"%s\"; must be like \"02:00:00:00:00:01-02:00:00:00:00:20\"", text);
	if (!is_unicast_mac(fabric->mac_first) || !is_unicast_mac(last))
		return refuse(reader, setting,
			"\"%s\" has no unicast addresses; must have an even first byte", text);
	if (mac_number(last) < mac_number(fabric->mac_first))
		return refuse(reader, setting, "\"%s\" ends before it starts; must be %s", text,
			row->range);
	count = mac_number(last) - mac_number(fabric->mac_first) + 1;
	if (count > MACS_MOST)
		return refuse(reader, setting, "\"%s\" has too many addresses; must be at most %d",
			text, MACS_MOST);
	fabric->n_macs = (uint32_t)count;
	fabric->has_macs = true;
	return true;
}

/* ---- addresses */

bool same_subnet(const struct frl_ip *a, const struct frl_ip *b, uint8_t prefix_len)
{
	return in_subnet(&(struct frl_gid){ .ip = *a, .prefix_len = prefix_len }, b);
}

/* Returns why no port can have this address, or NULL. */
static const char *why_unusable(const struct frl_ip *ip)
{
	static const struct frl_ip zero;
	const uint8_t *v4 = ip->bytes + V4_BYTES;

	if (ip_is_v4(ip)) {
		if (v4[0] == 0 || v4[0] == 127 || v4[0] >= 224)
			return "cannot be the address of a port";
		if (v4[0] == 169 && v4[1] == 254)
			return "belongs to the local fabric";
		return NULL;
	}
	if (ip->bytes[0] == 0xff || memcmp(ip, &zero, 15) == 0)
		return "cannot be the address of a port";
	if (ip->bytes[0] == 0xfe && (ip->bytes[1] & 0xc0) == 0x80)
		return "is link-local; ports derive those from their MAC address";
	return NULL;
}

/* The first address of an IPv4 subnet is its name, the last one its broadcast address. */
static bool is_edge_of_subnet(const struct frl_ip *ip, uint8_t prefix_len)
{
	const uint8_t *v4 = ip->bytes + V4_BYTES;
	uint32_t value = (uint32_t)v4[0] << 24 | (uint32_t)v4[1] << 16 | (uint32_t)v4[2] << 8 |
		v4[3];
	uint32_t host;

	if (!ip_is_v4(ip) || prefix_len > 30)
		return false;
	host = UINT32_MAX >> prefix_len;
	return (value & host) == 0 || (value & host) == host;
}

/* Parses "FIRST-LAST/PREFIX" or "ADDRESS/PREFIX". */
static bool parse_range(const char *text, struct config_range *ret)
{
	char copy[RANGE_LONGEST + 1];
	char *last, *prefix, *end;
	unsigned long length;

	snprintf(copy, sizeof(copy), "%s", text);
	prefix = strchr(copy, '/');
	if (!prefix || !isdigit((unsigned char)prefix[1]))
		return false;
	*prefix++ = '\0';
	length = strtoul(prefix, &end, 10);
	last = strchr(copy, '-');
	if (last)
		*last++ = '\0';
	if (*end || !parse_address(copy, &ret->first) ||
		!parse_address(last ? last : copy, &ret->last))
		return false;
	if (length < 1 || length > (ip_is_v4(&ret->first) ? 32 : 128))
		return false;
	ret->prefix_len = (uint8_t)length;
	return true;
}

static bool read_range(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, struct config_range *range)
{
	const char *text = read_text(reader, row, setting, 1, RANGE_LONGEST);
	const char *why;

	if (!text)
		return false;
	if (!parse_range(text, range))
		return refuse(reader, setting,
			"is \"%s\"; must be like \"10.1.0.10-10.1.0.50/24\" or \"10.1.0.9/24\"",
			text);
	if (!same_subnet(&range->first, &range->last, range->prefix_len))
		return refuse(
			reader, setting, "\"%s\" is in several subnets; must be in one", text);
	if (memcmp(&range->first, &range->last, sizeof(range->first)) > 0)
		return refuse(reader, setting,
			"\"%s\" ends before it starts; the lower address must come first", text);
	why = why_unusable(&range->first);
	if (!why)
		why = why_unusable(&range->last);
	if (why)
		return refuse(reader, setting, "\"%s\" %s; must be unicast", text, why);
	if (is_edge_of_subnet(&range->first, range->prefix_len) ||
		is_edge_of_subnet(&range->last, range->prefix_len))
		return refuse(reader, setting,
			"\"%s\" has the subnet's first or last address; must be between them",
			text);
	return true;
}

bool read_addresses(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config_fabric *fabric = target;
	int length = read_length(reader, row, setting, 1, RANGES_MOST);
	int i;

	if (length < 0)
		return false;
	fabric->addresses = calloc((size_t)length, sizeof(*fabric->addresses));
	if (!fabric->addresses)
		return no_memory(reader, setting);
	for (i = 0; i < length; i++) {
		const config_setting_t *entry = config_setting_get_elem(setting, (unsigned)i);

		if (!read_range(reader, row, entry, &fabric->addresses[fabric->n_addresses++]))
			return false;
	}
	return true;
}

uint64_t config_range_size(const struct config_range *range)
{
	uint64_t difference = 0;

	for (int i = 0; i < 16; i++) {
		if (difference >> 56)
			return UINT64_MAX;
		difference = (difference << 8) + range->last.bytes[i] - range->first.bytes[i];
	}
	return difference == UINT64_MAX ? difference : difference + 1;
}

/* Whether the gateways are in a subnet is checked once all settings are known. */
bool read_gateway(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config_fabric *fabric = target;
	const char *text = read_text(reader, row, setting, 0, RANGE_LONGEST);
	char copy[RANGE_LONGEST + 1];
	struct frl_ip first, second;
	char *comma;

	if (!text || !text[0])
		return text;
	snprintf(copy, sizeof(copy), "%s", text);
	comma = strchr(copy, ',');
	if (comma)
		*comma++ = '\0';
	if (!parse_address(copy, &first) || (comma && !parse_address(comma, &second)))
		return refuse(reader, setting, "is \"%s\"; must be like \"10.1.0.1\"", text);
	if (comma && ip_is_v4(&first) == ip_is_v4(&second))
		return refuse(reader, setting,
			"\"%s\" has two of one family; must be one IPv4 and one IPv6 address",
			text);
	return keep_text(reader, setting, text, &fabric->gateway);
}

bool read_path_mtu(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config_fabric *fabric = target;
	long long value = -1;

	if (config_setting_type(setting) == CONFIG_TYPE_INT)
		value = config_setting_get_int(setting);
	switch (value) {
	case 0:
	case 256:
	case 512:
	case 1024:
	case 2048:
	case 4096: fabric->path_mtu = (uint32_t)value; return true;
	default: return refuse(reader, setting, "must be one of %s", row->range);
	}
}
