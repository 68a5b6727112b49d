/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs find RDMA devices of the kernel in /dev/infiniband and /sys/class/infiniband, and some
 * do so for devices of libibverbs, too: UCX ignores a device without a device file, and reads the
 * types and interfaces of its GIDs; NCCL reads the link to the PCI device.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <ferrule/address.h>

#include "tools/run/run.h"

#define FILES          "/dev/infiniband"
#define FILE_NAME      "uverbs_frl"
#define ATTRIBUTES     "/sys/class/infiniband"
#define ATTRIBUTE_NAME "frl"
#define DEVICE         ATTRIBUTES "/" ATTRIBUTE_NAME "%u"
#define PORT           DEVICE "/ports/1"

/* Room for the longest path. */
enum { ROOM = 128 };

/* Makes PARENT/infiniband writable, with its entries but `ours`. */
static int open_folder(const char *parent, const char *folder, const char *ours)
{
	struct stat st;
	int rc;

	if (stat(folder, &st) == 0)
		return cover_folder(folder, ours);
	rc = cover_folder(parent, NULL);
	if (!rc && mkdir(folder, 0755))
		rc = refused("making", folder);
	if (!rc && mount(folder, folder, NULL, MS_BIND, NULL))
		rc = refused("binding", folder);
	return rc ? rc : seal_folder(parent);
}

/* ---- device files */

/* The null device: UCX wants a character device that it may read and write. */
static bool has_file(unsigned i)
{
	char path[ROOM];
	struct stat st;

	snprintf(path, sizeof(path), FILES "/" FILE_NAME "%u", i);
	return stat(path, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3) &&
		access(path, R_OK | W_OK) == 0;
}

static bool has_files(const struct device_list *list)
{
	for (unsigned i = 0; i < list->n; i++)
		if (!has_file(i))
			return false;
	return true;
}

static int make_files(const struct device_list *list)
{
	int rc = open_folder("/dev", FILES, FILE_NAME);

	for (unsigned i = 0; i < list->n && !rc; i++) {
		char path[ROOM];

		snprintf(path, sizeof(path), FILES "/" FILE_NAME "%u", i);
		if (mknod(path, S_IFREG | 0600, 0))
			rc = refused("making", path);
		else if (mount("/dev/null", path, NULL, MS_BIND, NULL))
			rc = refused("binding /dev/null to", path);
	}
	return rc ? rc : seal_folder(FILES);
}

/* ---- attributes */

static bool has_attributes(unsigned i, const char *interface)
{
	char path[ROOM], text[IFNAMSIZ + 1] = "";
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), DEVICE "/node_type", i);
	if (access(path, F_OK))
		return false;
	snprintf(path, sizeof(path), PORT "/gid_attrs/ndevs/0", i);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return strcmp(text, interface) == 0;
}

static bool has_all_attributes(const struct device_list *list)
{
	for (unsigned i = 0; i < list->n; i++)
		if (!has_attributes(i, list->interface[i]))
			return false;
	return true;
}

static int make_attribute(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	int n;

	if (fd < 0)
		return refused("making", path);
	n = dprintf(fd, "%s\n", text);
	close(fd);
	return n < 0 ? refused("writing", path) : 0;
}

/* The GIDs exist once the device is open: each number has a type and an interface. */
static int make_gid_attributes(unsigned device, const char *interface)
{
	char path[ROOM];
	int rc = 0;

	for (unsigned i = 0; i < FRL_MAX_GIDS && !rc; i++) {
		snprintf(path, sizeof(path), PORT "/gid_attrs/types/%u", device, i);
		rc = make_attribute(path, "RoCE v2");
		snprintf(path, sizeof(path), PORT "/gid_attrs/ndevs/%u", device, i);
		if (!rc && *interface)
			rc = make_attribute(path, interface);
	}
	return rc;
}

/* Links to the interface's PCI device, if it has one. */
static int link_device(unsigned device, const char *interface)
{
	char path[ROOM], target[ROOM];

	snprintf(path, sizeof(path), "/sys/class/net/%s/device", interface);
	if (!*interface || access(path, F_OK))
		return 0;
	snprintf(target, sizeof(target), "../../net/%s/device", interface);
	snprintf(path, sizeof(path), DEVICE "/device", device);
	return symlink(target, path) ? refused("making the link", path) : 0;
}

static int make_attributes(unsigned device, const char *interface)
{
	static const char *const folders[] = { "", "/ports", "/ports/1", "/ports/1/gid_attrs",
		"/ports/1/gid_attrs/types", "/ports/1/gid_attrs/ndevs" };
	char path[ROOM];
	int rc = 0;

	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]) && !rc; i++) {
		snprintf(path, sizeof(path), DEVICE "%s", device, folders[i]);
		if (mkdir(path, 0755))
			rc = refused("making", path);
	}
	snprintf(path, sizeof(path), DEVICE "/node_type", device);
	if (!rc)
		rc = make_attribute(path, "1: CA");
	if (!rc)
		rc = make_gid_attributes(device, interface);
	return rc ? rc : link_device(device, interface);
}

static int make_all_attributes(const struct device_list *list)
{
	int rc = open_folder("/sys/class", ATTRIBUTES, ATTRIBUTE_NAME);

	for (unsigned i = 0; i < list->n && !rc; i++)
		rc = make_attributes(i, list->interface[i]);
	return rc ? rc : seal_folder(ATTRIBUTES);
}

int show_devices(bool uverbs, bool sysfs)
{
	struct device_list list;
	mode_t mask;
	int rc;

	read_devices(&list);
	uverbs = uverbs && !has_files(&list);
	sysfs = sysfs && !has_all_attributes(&list);
	if (!uverbs && !sysfs)
		return 0;
	rc = enter_namespace();
	if (rc)
		return rc;
	mask = umask(022);
	if (uverbs)
		rc = make_files(&list);
	if (sysfs && !rc)
		rc = make_all_attributes(&list);
	umask(mask);
	leave_capabilities();
	return rc;
}
