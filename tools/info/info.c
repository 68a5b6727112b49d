/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-info: lists devices and GPUs of this machine, and why some cannot be used. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "tools/common/common.h"
#include "tools/info/gpu_list.h"

static const char help[] =
	"Lists the devices of this machine that Ferrule can use, and its GPUs.\n"
	"\n"
	"  ferrule-info [--json] [NAME...]   all devices and GPUs, or only the named ones\n"
	"\n"
	"NAME is a port for --port of the other programs, local, gpu or gpu:N:\n"
	"  packet:eth0         an Ethernet interface of the kernel\n"
	"  verbs:mlx5_0        a port of an RDMA NIC\n"
	"  local               the local fabric, used without --port, for all processes here\n"
	"  gpu, gpu:0          all GPUs, or the first one that CUDA shows\n"
	"Ports of DPDK cannot be listed ('net_af_packet0,iface=eth0', a PCI address).\n"
	"\n"
	"  --json              print an array of objects\n"
	"  -h, --help          print this text\n"
	"  --version           print the version\n"
	"\n"
	"Exit status: 0 at least one of them is usable, 1 none is, a name is unknown, or a\n"
	"failure, 2 invalid usage.\n";

enum { OPT_VERSION = OPT_OWN, OPT_JSON, SPEED_SIZE = 24 };

static const char *ip_text(const struct frl_ip *ip, char text[static INET6_ADDRSTRLEN])
{
	static const uint8_t v4_prefix[12] = { [10] = 0xff, 0xff };
	static const struct frl_ip none;

	if (memcmp(ip, &none, sizeof(none)) == 0)
		return "-";
	if (memcmp(ip->bytes, v4_prefix, sizeof(v4_prefix)) == 0)
		return inet_ntop(AF_INET, ip->bytes + sizeof(v4_prefix), text, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, ip->bytes, text, INET6_ADDRSTRLEN);
}

static const char *speed_text(uint64_t mbps, char text[static SPEED_SIZE])
{
	if (!mbps)
		return "-";
	snprintf(text, SPEED_SIZE, "%g Gb/s", (double)mbps / 1000);
	return text;
}

static const char *known(const char *text)
{
	return *text ? text : "-";
}

static void print_info(const struct frl_device_info *info)
{
	char ip[INET6_ADDRSTRLEN], speed[SPEED_SIZE], mtu[16] = "-";

	if (info->path_mtu)
		snprintf(mtu, sizeof(mtu), "%" PRIu32, info->path_mtu);
	printf("%-20s %-8s %-6s %-24s %5s %10s %-10s %s\n", info->name,
		info->usable ? "usable" : "unusable",
		info->port_state == FRL_PORT_ACTIVE ? "active" : "down", ip_text(&info->ip, ip),
		mtu, speed_text(info->speed_mbps, speed), known(info->interface), known(info->pci));
	if (!info->usable)
		printf("    %s\n", info->reason);
}

/* Returns a string, or null for an unknown value. */
static json_t *json_text(const char *text)
{
	return *text && strcmp(text, "-") != 0 ? json_string(text) : json_null();
}

static json_t *json_info(const struct frl_device_info *info)
{
	char ip[INET6_ADDRSTRLEN];

	return json_pack("{s:s, s:s, s:b, s:o, s:b, s:o, s:I, s:I, s:o, s:o}", "name", info->name,
		"kind", info->kind, "usable", info->usable, "reason", json_text(info->reason),
		"active", info->port_state == FRL_PORT_ACTIVE, "address",
		json_text(ip_text(&info->ip, ip)), "path_mtu", (json_int_t)info->path_mtu,
		"speed_mbps", (json_int_t)info->speed_mbps, "interface", json_text(info->interface),
		"pci", json_text(info->pci));
}

/* Describes the local fabric as one of its devices reports it. */
static void describe_local(struct frl_device_info *info)
{
	struct frl_device_config config;
	struct frl_device_attr attr;
	struct frl_device *device;

	frl_device_config_init(&config);
	config.fabric = NULL;
	config.port = NULL;
	config.ip = NULL;
	config.gateway = NULL;
	config.progress = FRL_PROGRESS_INLINE;
	if (frl_device_open(&config, &device)) {
		snprintf(info->reason, sizeof(info->reason), "%s", frl_last_error());
		return;
	}
	frl_device_query(device, &attr);
	info->ip = attr.ip;
	info->path_mtu = attr.path_mtu;
	info->port_state = attr.port_state;
	info->usable = true;
	frl_device_close(device);
}

/*
 * Returns whether `asked` names the port `name`. "verbs" names all ports of hardware, and
 * "verbs:mlx5_0" all ports of that device. "verbs:mlx5_0/1" also names a device's only port, which
 * is listed without a number.
 */
static bool is_meant(const char *asked, const char *name)
{
	size_t length = strlen(asked), name_length = strlen(name);

	if (strncmp(asked, name, length) == 0)
		return !name[length] || name[length] == ':' || name[length] == '/';
	return strncmp(asked, name, name_length) == 0 && strcmp(asked + name_length, "/1") == 0;
}

/* Returns whether a device is to be shown: one of `names`, or any without names. */
static bool is_wanted(const char *name, char *const names[], int n_names)
{
	for (int i = 0; i < n_names; i++)
		if (is_meant(names[i], name))
			return true;
	return n_names == 0;
}

static bool is_listed(const char *name, const struct frl_device_info *infos, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_meant(name, infos[i].name))
			return true;
	return false;
}

static int print_json(const struct frl_device_info *infos, size_t n,
	const struct frl_gpu_info *gpus, size_t n_gpus)
{
	json_t *array = json_array();
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		rc |= json_array_append_new(array, json_info(&infos[i]));
	for (size_t i = 0; i < n_gpus; i++)
		rc |= json_array_append_new(array, json_gpu(&gpus[i]));
	if (!rc)
		rc = json_dumpf(array, stdout, JSON_INDENT(1));
	json_decref(array);
	putchar('\n');
	if (rc)
		say("no memory for the JSON text");
	return rc;
}

static void print_table(const struct frl_device_info *infos, size_t n)
{
	if (!n)
		return;
	printf("%-20s %-8s %-6s %-24s %5s %10s %-10s %s\n", "device", "", "port", "address", "MTU",
		"speed", "interface", "PCI");
	for (size_t i = 0; i < n; i++)
		print_info(&infos[i]);
}

/*
 * Lists all devices; the caller frees the array. The first entry is the local fabric, without a
 * description.
 */
static int get_all(struct frl_device_info **ret_infos, size_t *ret_n)
{
	static const struct frl_device_info local = {
		.name = "local", .kind = "software", .port_state = FRL_PORT_DOWN
	};
	struct frl_device_info *hardware, *all;
	size_t n;
	int rc = frl_device_list(&hardware, &n);

	if (rc) {
		say_failure(rc, "cannot list the devices");
		return rc;
	}
	all = malloc((n + 1) * sizeof(*all));
	if (all) {
		all[0] = local;
		memcpy(all + 1, hardware, n * sizeof(*all));
	} else {
		say("no memory for %zu devices", n);
	}
	frl_device_list_free(hardware);
	*ret_infos = all;
	*ret_n = n + 1;
	return all ? 0 : -ENOMEM;
}

/*
 * Lists the requested GPUs; free them with frl_gpu_list_free(). CUDA is loaded only if GPUs are
 * requested.
 */
static int get_gpus(
	char *const names[], int n_names, struct frl_gpu_info **ret_infos, size_t *ret_n)
{
	struct frl_gpu_info *infos = NULL;
	size_t n = 0, n_wanted = 0;
	bool is_asked = n_names == 0;
	char name[GPU_NAME_SIZE];
	int rc = 0;

	for (int i = 0; i < n_names; i++)
		is_asked |= is_meant("gpu", names[i]);
	if (is_asked)
		rc = frl_gpu_list(&infos, &n);
	if (rc)
		say_failure(rc, "cannot list the GPUs");
	for (size_t i = 0; i < n; i++)
		if (is_wanted(gpu_name(&infos[i], name), names, n_names))
			infos[n_wanted++] = infos[i];
	*ret_infos = infos;
	*ret_n = n_wanted;
	return rc;
}

static bool is_gpu(const char *asked, const struct frl_gpu_info *gpus, size_t n)
{
	char name[GPU_NAME_SIZE];

	for (size_t i = 0; i < n; i++)
		if (is_meant(asked, gpu_name(&gpus[i], name)))
			return true;
	return false;
}

/* Shows the requested devices and GPUs. Returns whether one of them is usable. */
static bool show(struct frl_device_info *infos, size_t n, struct frl_gpu_info *gpus, size_t n_gpus,
	bool as_json, int *rc)
{
	bool usable = false;

	for (size_t i = 0; i < n; i++)
		usable |= infos[i].usable;
	for (size_t i = 0; i < n_gpus; i++)
		usable |= gpus[i].usable;
	if (as_json) {
		*rc |= print_json(infos, n, gpus, n_gpus);
		return usable;
	}
	print_table(infos, n);
	if (n && n_gpus)
		putchar('\n');
	print_gpus(gpus, n_gpus);
	return usable;
}

static int list(char *const names[], int n_names, bool as_json)
{
	struct frl_device_info *infos;
	struct frl_gpu_info *gpus;
	size_t n, n_gpus, n_wanted = 0;
	bool usable;
	int rc = get_all(&infos, &n);

	if (rc)
		return EXIT_FAILURE;
	rc = get_gpus(names, n_names, &gpus, &n_gpus);
	for (int i = 0; i < n_names; i++) {
		if (is_listed(names[i], infos, n) || is_gpu(names[i], gpus, n_gpus))
			continue;
		say("there is no device %s", names[i]);
		rc = 1;
	}
	for (size_t i = 0; i < n; i++) {
		if (!is_wanted(infos[i].name, names, n_names))
			continue;
		if (i == 0)
			describe_local(&infos[i]);
		infos[n_wanted++] = infos[i];
	}
	usable = show(infos, n_wanted, gpus, n_gpus, as_json, &rc);
	frl_gpu_list_free(gpus);
	free(infos);
	return !rc && usable ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "json", no_argument, NULL, OPT_JSON },
		{ "version", no_argument, NULL, OPT_VERSION },
		{ NULL, 0, NULL, 0 },
	};
	bool as_json = false;
	int code;

	while ((code = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (code == '?')
			return EXIT_USAGE;
		if (code == OPT_JSON) {
			as_json = true;
			continue;
		}
		fputs(code == 'h' ? help : "ferrule-info " FERRULE_VERSION "\n", stdout);
		return finish_output(EXIT_SUCCESS);
	}
	return finish_output(list(argv + optind, argc - optind, as_json));
}
