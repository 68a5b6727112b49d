/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the network interface of an RDMA device's port. libibverbs reports it only with RoCE
 * addresses, which a device has none of when it is used here. Therefore use sysfs, where both are
 * below one PCI device.
 */
#include "drivers/raw/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/error.h"

enum { PATH_SIZE = IBV_SYSFS_PATH_MAX + 320, WORD_SIZE = 64 };

/* Reads the first line of a file of the interface. Returns false if there is none. */
static bool read_word(
	const char *folder, const char *interface, const char *file, char ret_word[WORD_SIZE])
{
	char path[PATH_SIZE];
	FILE *from;

	snprintf(path, sizeof(path), "%.280s/%.20s/%.20s", folder, interface, file);
	from = fopen(path, "re");
	if (!from)
		return false;
	if (!fgets(ret_word, WORD_SIZE, from))
		ret_word[0] = '\0';
	fclose(from);
	ret_word[strcspn(ret_word, "\n")] = '\0';
	return true;
}

/* Returns the port number of an interface on its device, from 0 on. */
static unsigned long port_of(const char *folder, const char *interface)
{
	char word[WORD_SIZE];
	unsigned long number = 0;

	if (!read_word(folder, interface, "dev_port", word) || sscanf(word, "%lu", &number) != 1)
		return 0;
	return number;
}

/* Returns the number of interfaces, and the names of up to two. A NIC with representors of its
 * functions has several. */
static unsigned find(const char *folder, uint8_t num, char ret_names[2][IF_NAMESIZE])
{
	DIR *dir = opendir(folder);
	const struct dirent *entry;
	unsigned n = 0;

	while (dir && n < 2 && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || strlen(entry->d_name) >= IF_NAMESIZE ||
			port_of(folder, entry->d_name) + 1 != num)
			continue;
		snprintf(ret_names[n++], IF_NAMESIZE, "%.15s", entry->d_name);
	}
	if (dir)
		closedir(dir);
	return n;
}

static bool read_mac(const char *folder, const char *interface, uint8_t ret_mac[6])
{
	char word[WORD_SIZE];
	unsigned b[6];

	if (!read_word(folder, interface, "address", word) ||
		sscanf(word, "%2x:%2x:%2x:%2x:%2x:%2x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]) !=
			6)
		return false;
	for (int i = 0; i < 6; i++)
		ret_mac[i] = (uint8_t)b[i];
	return true;
}

static bool read_mtu(const char *folder, const char *interface, uint32_t *ret_mtu)
{
	char word[WORD_SIZE];
	unsigned mtu;

	if (!read_word(folder, interface, "mtu", word) || sscanf(word, "%u", &mtu) != 1)
		return false;
	*ret_mtu = mtu;
	return true;
}

int raw_netdev_open(const char *path, uint8_t num, const char *name, struct raw_netdev *ret_netdev)
{
	char folder[IBV_SYSFS_PATH_MAX + 16], state[PATH_SIZE], names[2][IF_NAMESIZE];
	struct raw_netdev *netdev = ret_netdev;
	unsigned n;

	snprintf(folder, sizeof(folder), "%s/device/net", path);
	n = find(folder, num, names);
	if (n > 1)
		return frl_fail(-ENOTSUP,
			"%s has several network interfaces (%s, %s), as in switchdev mode: use a "
			"virtual function or subfunction, which has one",
			name, names[0], names[1]);
	if (n == 0)
		return frl_fail(-ENODEV,
			"%s has no network interface in this network namespace (none in %s with "
			"dev_port %d): raw packets need its MAC address and MTU",
			name, folder, num - 1);
	memcpy(netdev->name, names[0], sizeof(netdev->name));
	if (!read_mac(folder, netdev->name, netdev->mac) ||
		!read_mtu(folder, netdev->name, &netdev->mtu))
		return frl_fail(-ENODEV, "%s: %s/%s lacks a MAC address or an MTU", name, folder,
			netdev->name);
	snprintf(state, sizeof(state), "%.280s/%.20s/operstate", folder, netdev->name);
	netdev->carrier_fd = open(state, O_RDONLY | O_CLOEXEC);
	if (netdev->carrier_fd < 0)
		return frl_fail(-errno, "%s: cannot read %s: %s", name, state, frl_strerror(errno));
	return 0;
}

void raw_netdev_close(struct raw_netdev *netdev)
{
	if (netdev->carrier_fd >= 0)
		close(netdev->carrier_fd);
	netdev->carrier_fd = -1;
}

bool raw_netdev_is_up(const struct raw_netdev *netdev)
{
	char state[16];
	ssize_t n = pread(netdev->carrier_fd, state, sizeof(state), 0);

	return n >= 2 &&
		(strncmp(state, "up", 2) == 0 || (n >= 7 && !strncmp(state, "unknown", 7)));
}
