/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks across settings: overlapping ranges, unreachable gateways, TCP without TLS. Also the
 * warnings.
 */
#include "daemon/config/read.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_SIZE = 160 };

/* ---- TLS */

bool config_lacks_tls(const struct config *config)
{
	return config->listen_address && !config->tls_certificate && !config->insecure;
}

static bool check_tls(
	struct config_reader *reader, const config_setting_t *root, const struct config *config)
{
	const char *names[] = { "tls_certificate", "tls_key", "tls_ca" };
	const char *values[] = { config->tls_certificate, config->tls_key, config->tls_ca };
	const char *there = NULL, *missing = NULL;
	int i;

	for (i = 0; i < 3; i++) {
		if (values[i])
			there = names[i];
		else
			missing = names[i];
	}
	if (there && missing)
		return refuse(reader, config_setting_get_member(root, there),
			"comes without %s; must be all three of tls_certificate, tls_key and "
			"tls_ca, or none",
			missing);
	if (!config_lacks_tls(config))
		return true;
	return refuse(reader, config_setting_get_member(root, "listen_address"),
		"is %s, and there is no TLS; must come with tls_certificate, tls_key and tls_ca, "
		"or insecure = true",
		config->listen_address);
}

/* ---- overlapping ranges */

/* An exclusive resource: a device, by its name, or a range of addresses or MAC addresses. */
struct claim {
	uint8_t first[256], last[256]; /* compared byte by byte; a device has one name */
	const config_setting_t *setting;
};

struct claims {
	struct claim *claim;
	size_t count;
};

static int compare_claims(const void *a, const void *b)
{
	const struct claim *one = a, *other = b;

	return memcmp(one->first, other->first, sizeof(one->first) + sizeof(one->last));
}

static bool refuse_claim(
	struct config_reader *reader, const struct claim *one, const struct claim *other)
{
	const config_setting_t *earlier = one->setting, *later = other->setting;
	char name[NAME_SIZE] = "";

	if (config_setting_source_line(earlier) > config_setting_source_line(later)) {
		earlier = other->setting;
		later = one->setting;
	}
	setting_name(earlier, name, sizeof(name));
	return refuse(reader, later, "overlaps with %s (line %u); must not", name,
		(unsigned)config_setting_source_line(earlier));
}

static bool check_overlap(struct config_reader *reader, struct claims *claims)
{
	const struct claim *widest = claims->claim;
	size_t i;

	if (!claims->count)
		return true;
	qsort(claims->claim, claims->count, sizeof(*claims->claim), compare_claims);
	for (i = 1; i < claims->count; i++) {
		const struct claim *claim = &claims->claim[i];

		if (memcmp(claim->first, widest->last, sizeof(claim->first)) <= 0)
			return refuse_claim(reader, widest, claim);
		widest = claim;
	}
	return true;
}

/* Writes "0000:3b:00.0" for a PCI device, without options. Other devargs are compared as a
 * whole. */
static void claim_device(struct claim *claim, const char *devargs)
{
	unsigned domain, bus, slot, function;
	bool is_pci = false;
	int length = 0;

	/* Devargs have at most 255 characters. */
	if (sscanf(devargs, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &length) == 4 ||
		(domain = 0,
			sscanf(devargs, "%2x:%2x.%1x%n", &bus, &slot, &function, &length) == 3))
		is_pci = devargs[length] == '\0' || devargs[length] == ',';
	if (is_pci)
		snprintf((char *)claim->first, sizeof(claim->first), "%04x:%02x:%02x.%x", domain,
			bus, slot, function);
	else
		snprintf((char *)claim->first, sizeof(claim->first), "%s", devargs);
	memcpy(claim->last, claim->first, sizeof(claim->last));
}

static void claim_macs(struct claim *claim, const uint8_t first[6], uint32_t count)
{
	uint64_t last = 0;
	int i;

	for (i = 0; i < 6; i++)
		last = last << 8 | first[i];
	last += count - 1;
	memcpy(claim->first, first, 6);
	for (i = 0; i < 6; i++)
		claim->last[5 - i] = (uint8_t)(last >> 8 * i);
}

static struct claim *add_claim(struct claims *claims, const config_setting_t *setting)
{
	struct claim *claim = &claims->claim[claims->count++];

	memset(claim, 0, sizeof(*claim));
	claim->setting = setting;
	return claim;
}

/* ---- the three kinds of resources; `claims` has room for all */

static const config_setting_t *fabric_setting(
	const config_setting_t *root, size_t fabric, const char *name)
{
	config_setting_t *fabrics = config_setting_get_member(root, "fabrics");

	return config_setting_get_member(config_setting_get_elem(fabrics, (unsigned)fabric), name);
}

/* Returns the `member` of a port that is a group, else the port itself. */
static const config_setting_t *port_setting(
	const config_setting_t *root, size_t fabric, size_t port, const char *member)
{
	config_setting_t *setting = config_setting_get_elem(
		fabric_setting(root, fabric, "ports"), (unsigned)port);

	if (config_setting_type(setting) != CONFIG_TYPE_GROUP)
		return setting;
	return config_setting_get_member(setting, member);
}

static bool check_ports(struct config_reader *reader, const config_setting_t *root,
	const struct config *config, struct claims *claims)
{
	size_t i, k;

	claims->count = 0;
	for (i = 0; i < config->n_fabrics; i++) {
		for (k = 0; k < config->fabrics[i].n_ports; k++)
			claim_device(add_claim(claims, port_setting(root, i, k, "devargs")),
				config->fabrics[i].ports[k].devargs);
	}
	return check_overlap(reader, claims);
}

static bool check_macs(struct config_reader *reader, const config_setting_t *root,
	const struct config *config, struct claims *claims)
{
	size_t i, k;

	claims->count = 0;
	for (i = 0; i < config->n_fabrics; i++) {
		const struct config_fabric *fabric = &config->fabrics[i];

		if (fabric->has_macs)
			claim_macs(add_claim(claims, fabric_setting(root, i, "mac_pool")),
				fabric->mac_first, fabric->n_macs);
		for (k = 0; k < fabric->n_ports; k++) {
			if (fabric->ports[k].has_mac)
				claim_macs(add_claim(claims, port_setting(root, i, k, "mac")),
					fabric->ports[k].mac, 1);
		}
	}
	return check_overlap(reader, claims);
}

static bool check_addresses(struct config_reader *reader, const config_setting_t *root,
	const struct config *config, struct claims *claims)
{
	size_t i, k;

	claims->count = 0;
	for (i = 0; i < config->n_fabrics; i++) {
		const config_setting_t *list = fabric_setting(root, i, "addresses");

		for (k = 0; k < config->fabrics[i].n_addresses; k++) {
			const struct config_range *range = &config->fabrics[i].addresses[k];
			struct claim *claim = add_claim(
				claims, config_setting_get_elem(list, (unsigned)k));

			memcpy(claim->first, range->first.bytes, sizeof(range->first.bytes));
			memcpy(claim->last, range->last.bytes, sizeof(range->last.bytes));
		}
	}
	return check_overlap(reader, claims);
}

static bool check_claims(
	struct config_reader *reader, const config_setting_t *root, const struct config *config)
{
	struct claims claims = { 0 };
	size_t most = 0, i;
	bool ok;

	for (i = 0; i < config->n_fabrics; i++)
		most += 1 + config->fabrics[i].n_ports + config->fabrics[i].n_addresses;
	claims.claim = calloc(most + 1, sizeof(*claims.claim));
	if (!claims.claim)
		return no_memory(reader, root);
	ok = check_ports(reader, root, config, &claims) &&
		check_macs(reader, root, config, &claims) &&
		check_addresses(reader, root, config, &claims);
	free(claims.claim);
	return ok;
}

/* ---- fabrics */

static bool check_names(
	struct config_reader *reader, const config_setting_t *root, const struct config *config)
{
	size_t i, k;

	for (i = 0; i < config->n_fabrics; i++) {
		for (k = 0; k < i; k++) {
			if (strcmp(config->fabrics[i].name, config->fabrics[k].name) == 0)
				return refuse(reader, fabric_setting(root, i, "name"),
					"another fabric has the name \"%s\"; must be unique",
					config->fabrics[i].name);
		}
	}
	return true;
}

/* Leases send to the gateway: it must be in one of their subnets, and no lease may get its
 * address. */
static bool check_gateway(struct config_reader *reader, const config_setting_t *setting,
	const struct config *config, const struct config_fabric *fabric, const char *text)
{
	struct frl_ip gateway;
	bool reached = false;
	size_t i, k;

	if (!parse_address(text, &gateway))
		return refuse(reader, setting, "\"%s\" is not an address; must be one", text);
	for (k = 0; k < fabric->n_addresses; k++) {
		const struct config_range *range = &fabric->addresses[k];

		reached |= same_subnet(&range->first, &gateway, range->prefix_len);
	}
	if (!reached)
		return refuse(reader, setting,
			"%s is in no subnet of the fabric's addresses; must be in one", text);
	for (i = 0; i < config->n_fabrics; i++) {
		for (k = 0; k < config->fabrics[i].n_addresses; k++) {
			const struct config_range *range = &config->fabrics[i].addresses[k];

			if (memcmp(&gateway, &range->first, sizeof(gateway)) >= 0 &&
				memcmp(&gateway, &range->last, sizeof(gateway)) <= 0)
				return refuse(reader, setting,
					"%s is among the addresses that fabric %s leases; must not "
					"be",
					text, config->fabrics[i].name);
		}
	}
	return true;
}

static bool check_gateways(
	struct config_reader *reader, const config_setting_t *root, const struct config *config)
{
	size_t i;

	for (i = 0; i < config->n_fabrics; i++) {
		const config_setting_t *setting = fabric_setting(root, i, "gateway");
		char copy[128];
		char *comma;

		if (!config->fabrics[i].gateway)
			continue;
		snprintf(copy, sizeof(copy), "%s", config->fabrics[i].gateway);
		comma = strchr(copy, ',');
		if (comma)
			*comma++ = '\0';
		if (!check_gateway(reader, setting, config, &config->fabrics[i], copy) ||
			(comma &&
				!check_gateway(
					reader, setting, config, &config->fabrics[i], comma)))
			return false;
	}
	return true;
}

bool check_config(
	struct config_reader *reader, const config_setting_t *root, const struct config *config)
{
	return check_tls(reader, root, config) && check_names(reader, root, config) &&
		check_claims(reader, root, config) && check_gateways(reader, root, config);
}

/* ---- warnings */

struct warned {
	void (*say)(void *arg, const char *line);
	void *arg;
};

static void warn(const struct warned *to, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void warn(const struct warned *to, const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	to->say(to->arg, line);
}

static void warn_of_key(const struct warned *to, const char *path)
{
	struct stat key;

	/* A missing key is reported when it is loaded. */
	if (stat(path, &key) == 0 && (key.st_mode & (S_IRWXO | S_IWGRP)))
		warn(to,
			"tls_key: other users than the owner may read or write %s: chmod 640 or "
			"600",
			path);
}

/* Returns true if a numeric address is reachable from this host only. */
static bool is_loopback(const char *address)
{
	static const struct frl_ip v6 = { .bytes = { [15] = 1 } };
	struct frl_ip ip;

	if (!parse_address(address, &ip))
		return false;
	return ip_is_v4(&ip) ? ip.bytes[12] == 127 : memcmp(&ip, &v6, sizeof(ip)) == 0;
}

static void warn_of_addresses(const struct warned *to, const struct config *config)
{
	if (config->listen_address && config->insecure && !config->tls_key)
		warn(to,
			"insecure: anybody who can reach %s can connect to this host's processes, "
			"as any user",
			config->listen_address);
	if (config->metrics_address && !is_loopback(config->metrics_address))
		warn(to, "metrics_address: anybody who can reach %s can read the metrics",
			config->metrics_address);
}

static void warn_of_fabric(const struct warned *to, const struct config_fabric *fabric)
{
	size_t without_mac = 0;
	size_t i;

	for (i = 0; i < fabric->n_ports; i++)
		without_mac += !fabric->ports[i].has_mac;
	if (fabric->has_macs && fabric->n_macs < without_mac)
		warn(to, "fabric %s: %zu ports share %u MAC addresses: some can never be leased",
			fabric->name, without_mac, fabric->n_macs);
	for (i = 0; i < fabric->n_addresses; i++) {
		uint64_t count = config_range_size(&fabric->addresses[i]);

		if (count < fabric->n_ports)
			warn(to,
				"fabric %s: %zu ports share the %" PRIu64
				" addresses of its range %zu: some can never be leased",
				fabric->name, fabric->n_ports, count, i + 1);
	}
}

void config_warnings(
	const struct config *config, void (*say)(void *arg, const char *line), void *arg)
{
	const struct warned to = { .say = say, .arg = arg };
	size_t i;

	if (config->tls_key)
		warn_of_key(&to, config->tls_key);
	warn_of_addresses(&to, config);
	for (i = 0; i < config->n_fabrics; i++)
		warn_of_fabric(&to, &config->fabrics[i]);
}
