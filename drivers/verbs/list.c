/* SPDX-License-Identifier: BSD-3-Clause */
/* All ports of all RDMA devices: lists them, and finds the requested one. */
#include "drivers/verbs/internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/net/ip.h"

static const char prefix[] = "verbs";
static const char sysfs[] = "/sys/class/infiniband";
static const char sysfs_files[] = "/sys/class/infiniband_verbs";
static const char none_there[] =
	"no RDMA devices: load the card's driver (mlx5_ib, ...), or create a software device: rdma "
	"link add rxe0 type rxe netdev INTERFACE";

bool verbs_is_port(const char *port)
{
	size_t len = sizeof(prefix) - 1;

	return port && strncmp(port, prefix, len) == 0 && (!port[len] || port[len] == ':');
}

static int no_devices(int err)
{
	if (err == ELIBACC)
		return frl_fail(-ENODEV,
			"RDMA NICs need libibverbs.so.1, which cannot be opened (%s): install "
			"rdma-core (ibverbs-providers)",
			verbs_load_reason);
	if (err == ELIBBAD)
		return frl_fail(-ENODEV,
			"libibverbs.so.1 is too old for Ferrule (%s): install rdma-core 35 or "
			"later",
			verbs_load_reason);
	if (err == ENOSYS || err == ENOENT)
		return frl_fail(-ENODEV,
			"this kernel has no RDMA devices for programs: modprobe ib_uverbs, and "
			"the driver of the card (mlx5_ib, ...) or rdma_rxe");
	return verbs_fail(err, "cannot list the RDMA devices");
}

/* Under ferrule-run, libibverbs is Ferrule's own, whose devices are software. */
static bool is_dropin(const struct ibv_device *device)
{
	return device && strncmp(device->dev_name, "uverbs_frl", strlen("uverbs_frl")) == 0;
}

/* Free the list with ibv_free_device_list(). */
static int get_devices(struct ibv_device ***ret_list)
{
	struct ibv_device **list;

	errno = 0;
	list = ibv_get_device_list(NULL);
	if (!list)
		return no_devices(verbs_null_errno());
	if (is_dropin(list[0])) {
		ibv_free_device_list(list);
		return frl_fail(-ENODEV,
			"this program runs over Ferrule's libibverbs (ferrule-run), which has no "
			"RDMA NICs: start it without ferrule-run");
	}
	*ret_list = list;
	return 0;
}

/* ---- devices that the kernel has but libibverbs does not list */

static bool is_listed(struct ibv_device **list, const char *name)
{
	for (; list && *list; list++)
		if (strcmp(ibv_get_device_name(*list), name) == 0)
			return true;
	return false;
}

/* Returns the next device in the folder. False: there is none. */
static bool next_unlisted(DIR *dir, struct ibv_device **list, char ret_name[DEVICE_NAME])
{
	const struct dirent *entry;

	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || is_listed(list, entry->d_name))
			continue;
		snprintf(ret_name, DEVICE_NAME, "%.63s", entry->d_name);
		return true;
	}
	return false;
}

/* Returns true if the file, such as "uverbs0", belongs to the device. */
static bool is_file_of(const char *file, const char *name)
{
	char path[sizeof(sysfs_files) + 280], found[DEVICE_NAME] = "";
	FILE *from;

	snprintf(path, sizeof(path), "%s/%.255s/ibdev", sysfs_files, file);
	from = fopen(path, "re");
	if (!from)
		return false;
	if (!fgets(found, sizeof(found), from))
		found[0] = '\0';
	fclose(from);
	found[strcspn(found, "\n")] = '\0';
	return strcmp(found, name) == 0;
}

/* libibverbs omits devices whose file it cannot open, and devices without a provider. */
static void explain_unlisted(const char *name, char *text, size_t size)
{
	char path[300] = "";
	const struct dirent *entry = NULL;
	DIR *dir = opendir(sysfs_files);

	while (dir && (entry = readdir(dir)) && !is_file_of(entry->d_name, name))
		;
	if (entry)
		snprintf(path, sizeof(path), "/dev/infiniband/%.255s", entry->d_name);
	if (dir)
		closedir(dir);
	if (!*path)
		snprintf(text, size,
			"there is no /dev/infiniband/uverbs* for %.60s: modprobe ib_uverbs", name);
	else if (access(path, F_OK))
		snprintf(text, size,
			"there is no %.60s for %.60s: a container needs --device=/dev/infiniband",
			path, name);
	else
		snprintf(text, size,
			"libibverbs does not support %.60s: install the provider of its driver "
			"(ibverbs-providers)",
			name);
}

/* ---- the list */

struct infos {
	struct frl_device_info *infos;
	size_t n, room;
};

static int add_info(struct infos *all, const struct frl_device_info *info)
{
	if (all->n == all->room) {
		size_t room = all->room ? 2 * all->room : 4;
		struct frl_device_info *more = realloc(all->infos, room * sizeof(*more));

		if (!more)
			return frl_fail(-ENOMEM, "no memory for a list of devices");
		all->infos = more;
		all->room = room;
	}
	all->infos[all->n++] = *info;
	return 0;
}

static int add_ports(struct infos *all, struct ibv_device *device)
{
	struct verbs_port port;
	int rc;

	verbs_port_open(device, 1, &port);
	rc = add_info(all, &port.info);
	for (unsigned num = 2; !rc && num <= port.n_ports; num++) {
		verbs_port_turn(&port, (uint8_t)num);
		rc = add_info(all, &port.info);
	}
	verbs_port_close(&port);
	return rc;
}

/* Adds devices that the kernel has but libibverbs omits. */
static int add_unknown(struct infos *all, struct ibv_device **list)
{
	struct frl_device_info info = { .kind = "verbs", .port_state = FRL_PORT_DOWN };
	DIR *dir = opendir(sysfs);
	char name[DEVICE_NAME];
	int rc = 0;

	while (!rc && dir && next_unlisted(dir, list, name)) {
		snprintf(info.name, sizeof(info.name), "verbs:%.50s", name);
		explain_unlisted(name, info.reason, sizeof(info.reason));
		rc = add_info(all, &info);
	}
	if (dir)
		closedir(dir);
	return rc;
}

/* Adds an entry that says that there is no device, and why. */
static int add_nothing(struct infos *all, const char *why)
{
	struct frl_device_info info = { .kind = "verbs", .port_state = FRL_PORT_DOWN };

	snprintf(info.name, sizeof(info.name), "%s", prefix);
	snprintf(info.reason, sizeof(info.reason), "%s", why);
	return add_info(all, &info);
}

int verbs_list(struct frl_device_info **ret_infos, size_t *ret_n)
{
	struct ibv_device **list = NULL;
	struct infos all = { 0 };
	char why[REASON_SIZE];
	int rc = get_devices(&list);

	if (rc == -ENOMEM)
		return rc;
	snprintf(why, sizeof(why), "%s", rc ? frl_last_error() : none_there);
	rc = 0;
	for (size_t i = 0; list && list[i] && !rc; i++)
		rc = add_ports(&all, list[i]);
	if (!rc)
		rc = add_unknown(&all, list);
	if (!rc && all.n == 0)
		rc = add_nothing(&all, why);
	if (list)
		ibv_free_device_list(list);
	if (rc) {
		free(all.infos);
		return rc;
	}
	*ret_infos = all.infos;
	*ret_n = all.n;
	return 0;
}

/* ---- the requested port */

/* The parsed request. */
struct wanted {
	char device[DEVICE_NAME]; /* "": any */
	uint8_t port;             /* 0: any */
	const struct frl_ip *ip;
	const struct verbs_route *route;
};

static int parse_name(const char *text, struct wanted *ret)
{
	const char *name = text + sizeof(prefix) - 1, *slash;
	unsigned long port = 0;
	size_t len;

	if (!*name)
		return 0;
	slash = strchr(++name, '/');
	len = slash ? (size_t)(slash - name) : strlen(name);
	if (len == 0 || len >= sizeof(ret->device) ||
		(slash && (!parse_digits(slash + 1, 255, &port) || port == 0)))
		return frl_fail(-EINVAL,
			"'%s': hardware is named like verbs:mlx5_0, port 2 of it verbs:mlx5_0/2, "
			"the first that is usable verbs",
			text);
	memcpy(ret->device, name, len);
	ret->device[len] = '\0';
	ret->port = (uint8_t)port;
	return 0;
}

/* Chooses the address of a port that was examined with result `looked`. */
static int choose(const struct wanted *wanted, struct verbs_port *port, int looked)
{
	int rc = looked;

	if (!rc)
		rc = verbs_choose_gid(port, wanted->ip, wanted->route);
	/* A request that names the device takes precedence over the kernel's route. */
	if (!looked && rc && *wanted->device && !wanted->ip && wanted->route)
		rc = verbs_choose_family(port, &wanted->route->peer);
	return rc;
}

/* Opens the first suitable port of the device, or explains why the first one is unsuitable. */
static int try_device(
	struct ibv_device *device, const struct wanted *wanted, struct verbs_port *port)
{
	int looked = verbs_port_open(device, wanted->port ? wanted->port : 1, port);
	int rc = choose(wanted, port, looked);

	if (rc && !wanted->port && port->n_ports > 1) {
		char why[REASON_SIZE];

		snprintf(why, sizeof(why), "%s", frl_last_error());
		for (unsigned num = 2; num <= port->n_ports; num++)
			if (!choose(wanted, port, verbs_port_turn(port, (uint8_t)num)))
				return 0;
		rc = frl_fail(rc, "%s", why);
	}
	if (rc)
		verbs_port_close(port);
	return rc;
}

/* Returns true if the kernel has the requested device, or any device if none is named. */
static bool find_unlisted(struct ibv_device **list, const char *wanted, char ret_name[DEVICE_NAME])
{
	DIR *dir = opendir(sysfs);
	bool is_there = false;

	while (dir && !is_there && next_unlisted(dir, list, ret_name))
		is_there = !*wanted || strcmp(wanted, ret_name) == 0;
	if (dir)
		closedir(dir);
	return is_there;
}

static int not_found(struct ibv_device **list, const struct wanted *wanted)
{
	char names[REASON_SIZE] = "", unlisted[DEVICE_NAME];
	size_t len = 0;

	if (find_unlisted(list, wanted->device, unlisted)) {
		explain_unlisted(unlisted, names, sizeof(names));
		return frl_fail(-ENODEV, "%s", names);
	}
	for (size_t i = 0; list[i] && len < sizeof(names) - DEVICE_NAME; i++)
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", i ? ", " : "",
			ibv_get_device_name(list[i]));
	if (!*names)
		return frl_fail(-ENODEV, "%s", none_there);
	return frl_fail(-ENODEV, "there is no RDMA device '%s', but %s", wanted->device, names);
}

static int find(struct ibv_device **list, const struct wanted *wanted, struct verbs_port *port)
{
	char why[2 * REASON_SIZE] = "";
	size_t len = 0;
	int rc = 0;

	for (; *list; list++) {
		if (*wanted->device && strcmp(ibv_get_device_name(*list), wanted->device) != 0)
			continue;
		rc = try_device(*list, wanted, port);
		if (!rc || *wanted->device)
			return rc;
		if (len < sizeof(why))
			len += (size_t)snprintf(
				why + len, sizeof(why) - len, "; %s", frl_last_error());
	}
	if (!rc)
		return 1;
	return frl_fail(
		-ENODEV, "no RDMA device is usable%s%s", wanted->route ? " for the peer" : "", why);
}

int verbs_port_find(const struct verbs_open *asked, struct verbs_port *ret_port)
{
	struct wanted wanted = { 0 };
	struct verbs_route route;
	struct ibv_device **list = NULL;
	struct frl_ip ip;
	int rc = parse_name(asked->port, &wanted);

	if (!rc && asked->ip) {
		rc = parse_ip(asked->ip, &ip, NULL);
		wanted.ip = &ip;
	}
	if (!rc && asked->peer) {
		rc = verbs_find_route(asked->peer, &route);
		wanted.route = &route;
	}
	if (!rc)
		rc = get_devices(&list);
	if (rc)
		return rc;
	rc = find(list, &wanted, ret_port);
	if (rc == 1)
		rc = not_found(list, &wanted);
	ibv_free_device_list(list);
	return rc;
}

int verbs_context_find(const char *name, struct ibv_context **ret_context)
{
	struct wanted wanted = { 0 };
	struct ibv_device **list = NULL, **at;
	int rc = get_devices(&list);

	if (rc)
		return rc;
	snprintf(wanted.device, sizeof(wanted.device), "%s", name);
	for (at = list; *at && strcmp(ibv_get_device_name(*at), name) != 0; at++)
		;
	rc = *at ? verbs_open_context(*at, name, ret_context) : not_found(list, &wanted);
	ibv_free_device_list(list);
	return rc;
}
