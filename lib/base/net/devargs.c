/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/net/devargs.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Arguments that name the interface, by the prefix of a vdev's name. */
static const struct {
	const char *start;
	const char *keys[2];
} vdevs[] = {
	{ "net_af_packet", { "iface" } },
	{ "eth_af_packet", { "iface" } },
	{ "net_af_xdp", { "iface" } },
	{ "net_pcap", { "iface", "tx_iface" } },
	{ "eth_pcap", { "iface", "tx_iface" } },
	/* net_tap's "iface" names the tap device that it creates. */
	{ "net_tap", { "remote" } },
};

enum { VDEVS = sizeof(vdevs) / sizeof(vdevs[0]) };

static const char packet[] = "packet:";

/* Returns the value of KEY, or NULL. A comma or a space ends the value. */
static const char *value_of(const char *devargs, const char *key)
{
	size_t len = strlen(key);

	for (const char *at = strpbrk(devargs, ", "); at && *at == ','; at = strpbrk(at + 1, ", "))
		if (strncmp(at + 1, key, len) == 0 && at[1 + len] == '=')
			return at + 1 + len + 1;
	return NULL;
}

static const char *find(const char *devargs)
{
	const char *value = NULL;

	if (strncmp(devargs, packet, strlen(packet)) == 0)
		return devargs + strlen(packet);
	for (int i = 0; i < VDEVS; i++) {
		if (strncmp(devargs, vdevs[i].start, strlen(vdevs[i].start)) != 0)
			continue;
		for (int key = 0; key < 2 && vdevs[i].keys[key] && !value; key++)
			value = value_of(devargs, vdevs[i].keys[key]);
	}
	return value;
}

int devargs_interface(const char *devargs, char ret_name[IF_NAMESIZE])
{
	const char *value = find(devargs);
	size_t len;

	ret_name[0] = '\0';
	if (!value)
		return 0;
	len = strcspn(value, ", ");
	if (len == 0 || len >= IF_NAMESIZE)
		return -ENODEV;
	memcpy(ret_name, value, len);
	ret_name[len] = '\0';
	return 0;
}
