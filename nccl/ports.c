/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * FERRULE_DEVICES is a list of ports, separated by ';':
 *
 *	local                        the local fabric
 *	verbs:mlx5_0                 all ports of a NIC; "verbs": all usable NICs
 *	verbs:mlx5_0/2 ip=10.1.0.1   one port, with the interface's address to use
 *	fabric:roce                  a port that the control daemon leases
 *	net_af_packet0,iface=eth1 ip=10.1.0.1/24 [gateway=10.1.0.254]
 *	                             a DPDK port: devargs or a PCI address
 *
 * A port may be followed by speed=MBIT, the link's speed. If FERRULE_DEVICES is not set, the plugin
 * uses the fabric of FRL_FABRIC; else hardware; else the local fabric, if the plugin was selected
 * by name. The local fabric connects only processes of one host, so NCCL is not offered it
 * together with other ports.
 */
#include "nccl/ports.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferrule/device.h>

#include "lib/base/net/devargs.h"
#include "lib/base/net/link_speed.h"
#include "nccl/log.h"

enum {
	ITEM = 512,
	/* The local fabric moves about 12 GB/s between two processes:
	 * docs/reference/performance.md. */
	LOCAL_MBPS = 100000,
	MAX_MBPS = 10000000,
};

/*
 * Half a round trip of 8 bytes, minus the 2.7 us that NCCL assumes for a step of LL between hosts
 * (docs/reference/performance-nccl.md).
 */
static const float local_step_us = 2, software_step_us = 9;

struct finding {
	struct port_info *ports;
	int n;
	char *why;
	size_t size;
};

static uint64_t hash(const char *text, size_t length)
{
	uint64_t value = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	while (length--)
		value = (value ^ (unsigned char)*text++) * UINT64_C(0x100000001b3);
	return value;
}

/* The functions of a PCI device, such as "...0000:3b:00.1", are one card. */
static uint64_t guid_of(const struct port_info *port)
{
	const char *dot = strrchr(port->pci_path, '.');

	if (!*port->pci_path)
		return hash(port->name, strlen(port->name));
	return hash(port->pci_path, dot ? (size_t)(dot - port->pci_path) : strlen(port->pci_path));
}

static void find_pci(const char *address, struct port_info *port)
{
	char link[128], path[PATH_MAX];

	snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s%.40s",
		strlen(address) == strlen("3b:00.0") ? "0000:" : "", address);
	if (realpath(link, path) && strlen(path) < sizeof(port->pci_path))
		memcpy(port->pci_path, path, strlen(path) + 1);
}

/* Fills in the properties of a DPDK port that are known before it is opened. */
static void describe_software(struct port_info *port)
{
	char name[IF_NAMESIZE];

	devargs_interface(port->port, name);
	if (name[0]) {
		if (!port->speed_mbps)
			port->speed_mbps = (int)link_speed_mbps(name);
		snprintf(port->name, sizeof(port->name), "%s", name);
	} else {
		snprintf(port->name, sizeof(port->name), "%.*s", (int)strcspn(port->port, ", "),
			port->port);
		find_pci(port->name, port);
	}
	port->step_us = software_step_us;
}

static struct port_info *new_port(struct finding *finding)
{
	if (finding->n == NET_MAX_PORTS) {
		snprintf(
			finding->why, finding->size, "there are more than %d ports", NET_MAX_PORTS);
		return NULL;
	}
	finding->ports[finding->n] = (struct port_info){ .port_number = 1 };
	return &finding->ports[finding->n];
}

/* Makes the port's name unique, and appends the port to the list. */
static void take(struct finding *finding)
{
	struct port_info *port = &finding->ports[finding->n];
	char name[sizeof(port->name)];

	memcpy(name, port->name, sizeof(name));
	for (int i = 0, suffix = 1; i < finding->n; i++) {
		if (strcmp(finding->ports[i].name, port->name) != 0)
			continue;
		snprintf(port->name, sizeof(port->name), "%.52s.%d", name, suffix++);
		i = -1;
	}
	port->guid = guid_of(port);
	finding->n++;
}

static int bad_item(struct finding *finding, const char *item, const char *why)
{
	snprintf(finding->why, finding->size, "FERRULE_DEVICES: \"%.100s\": %s", item, why);
	return -EINVAL;
}

static int add_hardware(struct finding *finding, const struct frl_device_info *info,
	const struct port_info *options)
{
	const char *name = strchr(info->name, ':'), *slash;
	struct port_info *port = new_port(finding);

	if (!port)
		return -EINVAL;
	port->is_hardware = true;
	port->takes_dmabuf = info->takes_dmabuf;
	memcpy(port->ip, options->ip, sizeof(port->ip));
	snprintf(port->port, sizeof(port->port), "%s", info->name);
	snprintf(port->name, sizeof(port->name), "%s", name ? name + 1 : info->name);
	slash = strchr(port->name, '/');
	if (slash)
		port->port_number = atoi(slash + 1);
	if (*info->pci)
		find_pci(info->pci, port);
	port->speed_mbps = options->speed_mbps ? options->speed_mbps : (int)info->speed_mbps;
	take(finding);
	return 0;
}

/* The ports of a multi-port device have numbered names. For a single-port device, the suffix "/1"
 * is also accepted. */
static bool is_wanted(const char *name, const char *wanted)
{
	size_t length = strlen(wanted);

	if (strncmp(name, wanted, length) == 0 && (!name[length] || name[length] == '/'))
		return true;
	length = strlen(name);
	return strncmp(wanted, name, length) == 0 && strcmp(wanted + length, "/1") == 0;
}

/* `wanted` is a device or port name, or "verbs" for all usable ports. */
static int find_hardware(
	struct finding *finding, const char *wanted, const struct port_info *options)
{
	bool all = strcmp(wanted, "verbs") == 0;
	struct frl_device_info *infos;
	int err, found = 0;
	size_t n;

	err = frl_device_list(&infos, &n);
	if (err) {
		snprintf(finding->why, finding->size, "%s", frl_last_error());
		return err;
	}
	snprintf(finding->why, finding->size, "there is no RDMA device%s%s", all ? "" : " ",
		all ? "" : wanted);
	for (size_t i = 0; i < n && !err; i++) {
		if (!all && !is_wanted(infos[i].name, wanted))
			continue;
		if (all && finding->n == NET_MAX_PORTS) {
			net_log_warning("there are more than %d ports: %s and later ones are "
					"ignored; choose ports by FERRULE_DEVICES",
				NET_MAX_PORTS, infos[i].name);
			break;
		}
		if (!infos[i].usable) {
			/* The reason includes the name. */
			snprintf(finding->why, finding->size, "%s", infos[i].reason);
			net_log_info("%s", finding->why);
			continue;
		}
		err = add_hardware(finding, &infos[i], options);
		found++;
	}
	frl_device_list_free(infos);
	if (!err && found > 1 && *options->ip)
		return bad_item(
			finding, wanted, "the address needs one port of the device: name the port");
	return err || found ? err : -ENODEV;
}

static int add_local(struct finding *finding, int speed)
{
	struct port_info *port = new_port(finding);

	if (!port)
		return -EINVAL;
	snprintf(port->name, sizeof(port->name), "local");
	snprintf(port->fabric, sizeof(port->fabric), "local");
	port->speed_mbps = speed ? speed : LOCAL_MBPS;
	port->step_us = local_step_us;
	take(finding);
	return 0;
}

static int add_fabric(struct finding *finding, const char *name, int speed)
{
	struct port_info *port;

	if (strcmp(name, "local") == 0)
		return add_local(finding, speed);
	port = new_port(finding);
	if (!port)
		return -EINVAL;
	snprintf(port->name, sizeof(port->name), "%s", name);
	snprintf(port->fabric, sizeof(port->fabric), "%s", name);
	port->speed_mbps = speed;
	port->step_us = software_step_us;
	take(finding);
	return 0;
}

/* Parses one option of a port: "ip=...". */
static int take_option(struct port_info *options, const char *word)
{
	char *end;
	long speed;

	if (strncmp(word, "ip=", 3) == 0) {
		snprintf(options->ip, sizeof(options->ip), "%s", word + 3);
	} else if (strncmp(word, "gateway=", 8) == 0) {
		snprintf(options->gateway, sizeof(options->gateway), "%s", word + 8);
	} else if (strncmp(word, "speed=", 6) == 0) {
		speed = strtol(word + 6, &end, 10);
		if (end == word + 6 || *end || speed < 1 || speed > MAX_MBPS)
			return -EINVAL;
		options->speed_mbps = (int)speed;
	} else {
		return -EINVAL;
	}
	return 0;
}

static int add_dpdk(struct finding *finding, const char *devargs, const struct port_info *options)
{
	struct port_info *port = new_port(finding);

	if (!port)
		return -EINVAL;
	*port = *options;
	port->port_number = 1;
	if ((size_t)snprintf(port->port, sizeof(port->port), "%s", devargs) >= sizeof(port->port))
		return bad_item(finding, devargs, "that is too long");
	if (!*port->ip)
		return bad_item(finding, devargs,
			"a DPDK port needs an address of its own: append ip=10.1.1.1/24");
	describe_software(port);
	take(finding);
	return 0;
}

/* Returns whether the kernel or the control daemon sets the port's addresses. */
static bool has_addresses(const char *port)
{
	return strcmp(port, "local") == 0 || strncmp(port, "fabric:", 7) == 0 ||
		strncmp(port, "verbs", 5) == 0;
}

static int add_item(struct finding *finding, char *item)
{
	struct port_info options = { .port_number = 1 };
	char *save = NULL, *port = strtok_r(item, " \t", &save);

	if (!port)
		return 0;
	for (char *word; (word = strtok_r(NULL, " \t", &save));)
		if (take_option(&options, word))
			return bad_item(finding, word,
				"a port's options are ip=ADDRESS/BITS, gateway=ADDRESS and "
				"speed=MBIT");
	if (strncmp(port, "verbs:", 6) == 0 && !*options.gateway)
		return find_hardware(finding, port, &options);
	if ((*options.ip || *options.gateway) && has_addresses(port))
		return bad_item(finding, port,
			"FERRULE_DEVICES sets ip= and gateway= only for one port of hardware");
	if (strcmp(port, "local") == 0)
		return add_local(finding, options.speed_mbps);
	if (strcmp(port, "verbs") == 0)
		return find_hardware(finding, port, &options);
	if (strncmp(port, "fabric:", 7) == 0)
		return add_fabric(finding, port + 7, options.speed_mbps);
	return add_dpdk(finding, port, &options);
}

static int find_wanted(struct finding *finding, const char *wanted)
{
	char item[ITEM];
	int err = 0;

	while (*wanted && !err) {
		size_t length = strcspn(wanted, ";");

		if (length >= sizeof(item))
			return bad_item(finding, wanted, "that is too long");
		memcpy(item, wanted, length);
		item[length] = '\0';
		err = add_item(finding, item);
		wanted += length;
		wanted += *wanted == ';';
	}
	return err;
}

static int find_any(struct finding *finding, bool offers_local)
{
	const struct port_info no_options = { .port_number = 1 };
	struct frl_device_config config;

	frl_device_config_init(&config);
	if (config.fabric)
		return add_fabric(finding, config.fabric, 0);
	if (find_hardware(finding, "verbs", &no_options) == 0)
		return 0;
	if (offers_local)
		return add_local(finding, 0);
	snprintf(finding->why, finding->size,
		"there is no RDMA device; for the local fabric set NCCL_NET_PLUGIN=ferrule or "
		"FERRULE_DEVICES=local");
	return -ENODEV;
}

int net_ports_find(const char *wanted, bool offers_local, struct port_info ports[NET_MAX_PORTS],
	int *ret_n, char *why, size_t size)
{
	struct finding finding = { .ports = ports, .why = why, .size = size };
	int err;

	snprintf(why, size, "FERRULE_DEVICES names no port");
	err = *wanted ? find_wanted(&finding, wanted) : find_any(&finding, offers_local);
	if (!err && !finding.n)
		err = -ENODEV;
	if (!err)
		*ret_n = finding.n;
	return err;
}
