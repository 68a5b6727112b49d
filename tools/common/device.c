/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device options of the tools. A tool that can use several devices (rails) accepts --port, --ip,
 * --gateway and --fabric several times.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/common.h"

static int parse_progress(const char *value, enum frl_progress *ret_progress)
{
	static const char *const names[] = {
		[FRL_PROGRESS_AUTO] = "auto",
		[FRL_PROGRESS_INLINE] = "inline",
		[FRL_PROGRESS_THREAD] = "thread",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(value, names[i]) == 0) {
			*ret_progress = (enum frl_progress)i;
			return 0;
		}
	}
	return usage_error("--progress '%s': use auto, inline or thread", value);
}

static int too_many(const char *name)
{
	return usage_error("%s: at most %d are allowed", name, MAX_RAILS);
}

static int take_port(const char *value, struct device_options *o)
{
	if (o->n_ports == MAX_RAILS)
		return too_many("--port");
	for (int i = 0; i < o->n_ports; i++)
		if (strcmp(o->rails[i].port, value) == 0)
			return usage_error("--port %s is given twice", value);
	o->rails[o->n_ports++].port = value;
	return 0;
}

static int take_ip(const char *value, struct device_options *o)
{
	if (o->n_ips == MAX_RAILS)
		return too_many("--ip");
	o->rails[o->n_ips++].ip = value;
	return 0;
}

/* Adds a gateway to the --port before it. A port may have none. */
static int take_gateway(const char *value, struct device_options *o)
{
	struct device_rail *rail = &o->rails[o->n_ports > 0 ? o->n_ports - 1 : 0];

	if (rail->gateway)
		return usage_error("--gateway %s: each --port has at most one, after it", value);
	rail->gateway = value;
	return 0;
}

static int take_fabric(const char *value, struct device_options *o)
{
	if (o->n_fabrics == MAX_RAILS)
		return too_many("--fabric");
	if (!*value)
		return usage_error("--fabric: the name is empty");
	o->rails[o->n_fabrics++].fabric = value;
	return 0;
}

static int take_rails(const char *value, struct device_options *o)
{
	uint64_t number = 0;

	if (!parse_number(value, 1, MAX_RAILS, &number))
		return usage_error(
			"--rails '%s': not a whole number from 1 to %d", value, MAX_RAILS);
	o->n_rails = (int)number;
	return 0;
}

int device_option(int code, const char *value, struct device_options *options)
{
	switch (code) {
	case OPT_PORT: return take_port(value, options);
	case OPT_IP: return take_ip(value, options);
	case OPT_GATEWAY: return take_gateway(value, options);
	case OPT_FABRIC: return take_fabric(value, options);
	case OPT_RAILS: return take_rails(value, options);
	case OPT_PROGRESS: return parse_progress(value, &options->progress);
	case OPT_MTU:
		/* A power of two has one bit set. */
		if (parse_number(value, 256, 16384, &options->mtu) &&
			!(options->mtu & (options->mtu - 1)))
			return 0;
		return usage_error(
			"--mtu '%s': it must be a power of two from 256 to 16384", value);
	}
	return EXIT_USAGE;
}

int device_count(const struct device_options *options)
{
	if (options->n_ports > 0)
		return options->n_ports;
	if (options->n_rails > 0)
		return options->n_rails;
	return options->n_fabrics > 0 ? options->n_fabrics : 1;
}

static bool has_gateway(const struct device_options *o)
{
	for (int i = 0; i < MAX_RAILS; i++)
		if (o->rails[i].gateway)
			return true;
	return false;
}

/*
 * Returns whether the port is hardware, such as "verbs:mlx5_0". It uses the addresses that the
 * kernel has assigned to it, and several processes can share it.
 */
static bool is_hardware(const char *port)
{
	return strcmp(port, "verbs") == 0 || strncmp(port, "verbs:", 6) == 0;
}

static bool all_are_hardware(const struct device_options *o)
{
	for (int i = 0; i < o->n_ports; i++)
		if (!is_hardware(o->rails[i].port))
			return false;
	return true;
}

/* Checks that each port has an address. Hardware does not need one. */
static int check_addresses(const struct device_options *o)
{
	if (o->n_ports == o->n_ips || (o->n_ips == 0 && all_are_hardware(o)))
		return 0;
	if (o->n_ports == 1 && o->n_ips == 0)
		return usage_error("--port needs --ip, the address of the port");
	return usage_error("%d --port and %d --ip: each port needs its address, in the same order",
		o->n_ports, o->n_ips);
}

int device_options_check(const struct device_options *o, int most)
{
	if (o->n_ports == 0 && (o->n_ips > 0 || has_gateway(o)))
		return usage_error("--ip and --gateway need a --port");
	if (check_addresses(o))
		return EXIT_USAGE;
	if (o->n_ports > 0 && o->n_fabrics > 0)
		return usage_error("--port and --fabric exclude each other");
	if (o->n_rails > 0 && (o->n_ports > 0 || o->n_fabrics > 1))
		return usage_error("--rails is the number of devices of one kind: several --port "
				   "or --fabric have been counted");
	if (device_count(o) > most)
		return usage_error("this program uses one port");
	return 0;
}

void device_peer(struct device_options *options, const char *host)
{
	bool has_bracket = *host == '[';
	const char *from = has_bracket ? host + 1 : host;
	size_t len = strcspn(from, has_bracket ? "]" : ":");

	/* Several colons: an IPv6 address without brackets, and without a port. */
	if (!has_bracket && from[len] && strchr(from + len + 1, ':'))
		len = strlen(from);
	if (len >= sizeof(options->peer))
		len = 0;
	memcpy(options->peer, from, len);
	options->peer[len] = '\0';
}

/* Replaces %r if there is a rank. The caller frees *ret_name. NULL stays NULL. */
static int name_of_rank(const char *pattern, int rank, char **ret_name)
{
	*ret_name = NULL;
	if (!pattern)
		return 0;
	*ret_name = rank < 0 ? strdup(pattern) : path_of_rank(pattern, rank);
	return *ret_name ? 0 : -ENOMEM;
}

/*
 * Opens the NIC on the route to the peer. Falls back to any NIC, because the peer's name may belong
 * to a network without one.
 */
static int open_for_peer(const struct device_options *options, struct frl_device_config *config,
	struct frl_device **ret_device)
{
	int rc = -ENODEV;

	if (config->port && is_hardware(config->port) && *options->peer) {
		config->peer = options->peer;
		rc = frl_device_open(config, ret_device);
		config->peer = NULL;
	}
	return rc ? frl_device_open(config, ret_device) : 0;
}

/* Warns of a port without a link: no packet arrives there until it has one. */
static void check_carrier(const char *name, struct frl_device *device)
{
	struct frl_device_attr attr;

	frl_device_query(device, &attr);
	if (!attr.local_fabric && attr.port_state == FRL_PORT_DOWN)
		say("%s has no link: check its cable, and that its interface is up", name);
}

static int open_rail(const struct device_options *options, struct frl_device_config *config,
	int number, struct frl_device **ret_device)
{
	const char *name = config->port ? config->port
		: config->fabric        ? config->fabric
					: "the device";
	int rc;

	if (options->mtu)
		config->path_mtu = (uint32_t)options->mtu;
	if (options->progress != FRL_PROGRESS_AUTO)
		config->progress = options->progress;
	rc = open_for_peer(options, config, ret_device);
	if (rc && device_count(options) > 1)
		say_failure(rc, "cannot open %s, rail %d", name, number);
	else if (rc)
		say_failure(rc, "cannot open %s", name);
	else
		check_carrier(name, *ret_device);
	return rc;
}

static bool begins_with(const char *line, const char *word)
{
	return strncmp(line, word, strlen(word)) == 0;
}

/*
 * Prints warnings and errors that no call returns. Skips lines of DPDK: they are about its
 * internals, and errors of calls contain what matters. Ranks usually share their settings, so only
 * rank 0 warns of them.
 */
static void say_line(enum frl_log_level level, const char *line, void *arg)
{
	const bool *is_first = arg;

	if (!begins_with(line, "dpdk: ") && (*is_first || !begins_with(line, "settings: ")))
		say("%s: %s", level == FRL_LOG_ERROR ? "error" : "warning", line);
}

int device_options_open(
	const struct device_options *options, int number, int rank, struct frl_device **ret_device)
{
	/* Devices of --rails have the same options. */
	const struct device_rail *rail = &options->rails[options->n_rails > 0 ? 0 : number];
	static bool is_first;
	struct frl_device_config config;
	char *port = NULL, *ip = NULL;
	int rc = name_of_rank(rail->port, rank, &port);

	if (!rc)
		rc = name_of_rank(rail->ip, rank, &ip);
	if (rc)
		say("no memory");
	/* frl_set_log() must be called before the first device is opened. */
	if (number == 0) {
		is_first = rank <= 0;
		frl_set_log(say_line, FRL_LOG_WARNING, &is_first);
	}
	frl_device_config_init(&config);
	if (rail->port) {
		config.fabric = NULL; /* FRL_FABRIC is the default for runs without options */
		config.port = port;
		config.ip = ip;
		config.gateway = rail->gateway;
	} else if (rail->fabric) {
		config.fabric = rail->fabric;
	}
	if (!rc)
		rc = open_rail(options, &config, number, ret_device);
	free(port);
	free(ip);
	return rc;
}

bool device_is_shared(const struct device_options *options)
{
	for (int i = 0; i < options->n_ports; i++)
		if (!strstr(options->rails[i].port, "%r") && !is_hardware(options->rails[i].port))
			return true;
	return false;
}
