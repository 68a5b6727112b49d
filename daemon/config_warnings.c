/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ferruled.conf may say, but had better not.
 */
#include "daemon/config_read.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

	/* That it is not there is for the one to say who needs it. */
	if (stat(path, &key) == 0 && (key.st_mode & (S_IRWXO | S_IWGRP)))
		warn(to, "tls_key: others than its owner may read or write %s: chmod 640 or 600",
			path);
}

static void warn_of_addresses(const struct warned *to, const struct config *config)
{
	if (config->listen_address && config->insecure && !config->tls_key)
		warn(to,
			"insecure: whoever reaches %s can connect to this host's processes, as any "
			"user",
			config->listen_address);
	if (config->metrics_address && !is_loopback(config->metrics_address))
		warn(to, "metrics_address: whoever reaches %s can read the metrics",
			config->metrics_address);
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
