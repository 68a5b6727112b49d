/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of devices. FRL_VERBS_DEVICES names them, separated by ";": they are frl0, frl1, ...
 *
 *	local                          the local fabric
 *	fabric:NAME                    a port leased from the control daemon
 *	packet:INTERFACE=ADDRESS,...   an Ethernet interface of the kernel
 *
 * Listing opens nothing: addresses are claimed when a device is opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dropin/ibverbs/dropin.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"

static struct {
	pthread_once_t once;
	struct dropin_device devices[DROPIN_MAX_DEVICES];
	unsigned n;
	int error;  /* an errno: why there are none */
	char *text; /* the devices point into it */
} all = { .once = PTHREAD_ONCE_INIT };

/* ---- FRL_VERBS_DEVICES */

void device_set_interface(struct dropin_device *device, const char *port)
{
	const char *name = port + strlen("packet:");
	size_t len = strcspn(name, ",");

	if (strncmp(port, "packet:", strlen("packet:")) == 0 && len < sizeof(device->interface))
		snprintf(device->interface, sizeof(device->interface), "%.*s", (int)len, name);
}

static int fill_packet(struct dropin_device *device, char *text)
{
	/* The last one: options of the port have such, too. */
	char *equals = strrchr(text, '=');

	if (!equals || equals == text + strlen("packet:") || !equals[1])
		return frl_fail(-EINVAL,
			"FRL_VERBS_DEVICES: \"%s\" names no interface and address: write "
			"packet:eth1=10.1.1.1/24",
			text);
	*equals = '\0';
	device->interface[0] = '\0';
	device_set_interface(device, text);
	if (!device->interface[0])
		return frl_fail(-EINVAL,
			"FRL_VERBS_DEVICES: \"%s\" is no port of a network interface: names have "
			"at most 15 characters",
			text);
	device->port = text;
	device->ip = equals + 1;
	return 0;
}

/* `text` stays allocated. */
static int fill_device(struct dropin_device *device, char *text)
{
	snprintf(device->interface, sizeof(device->interface), "lo");
	if (strcmp(text, "local") == 0) {
		device->fabric = "local";
		return 0;
	}
	/* The lease names the interface. */
	if (strncmp(text, "fabric:", 7) == 0 && text[7]) {
		device->interface[0] = '\0';
		device->fabric = text + 7;
		return 0;
	}
	if (strncmp(text, "packet:", 7) == 0)
		return fill_packet(device, text);
	return frl_fail(-EINVAL,
		"FRL_VERBS_DEVICES: \"%s\" is no device: local, fabric:NAME and "
		"packet:INTERFACE=ADDRESS are, separated by \";\"",
		text);
}

/* ---- identity */

/* FNV-1a by Fowler, Noll and Vo: equal in all processes of a machine, unlike a keyed hash. */
static uint64_t mix_bytes(uint64_t hash, const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/* The GUID is wanted before the device has an address: it follows from this boot, the network
 * namespace and the device's number. */
static uint64_t guid_of(unsigned index)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	struct stat net = { 0 };
	char boot[64];
	ssize_t n = fd < 0 ? 0 : read(fd, boot, sizeof(boot));

	if (fd >= 0)
		close(fd);
	if (n > 0)
		hash = mix_bytes(hash, boot, (size_t)n);
	if (stat("/proc/self/ns/net", &net) == 0)
		hash = mix_bytes(hash, &net.st_ino, sizeof(net.st_ino));
	hash = mix_bytes(hash, &index, sizeof(index));
	/* A locally administered EUI-64. */
	return (hash & ~(UINT64_C(3) << 56)) | UINT64_C(2) << 56;
}

static void name_device(struct dropin_device *device, unsigned index)
{
	struct ibv_device *ibv = &device->ibv;

	ibv->node_type = IBV_NODE_CA;
	ibv->transport_type = IBV_TRANSPORT_IB;
	snprintf(ibv->name, sizeof(ibv->name), "frl%u", index);
	snprintf(ibv->dev_name, sizeof(ibv->dev_name), "uverbs_frl%u", index);
	/* As a kernel's device has them; `ferrule-run --sysfs` makes the second one. */
	snprintf(ibv->dev_path, sizeof(ibv->dev_path), "/sys/class/infiniband_verbs/uverbs_frl%u",
		index);
	snprintf(ibv->ibdev_path, sizeof(ibv->ibdev_path), "/sys/class/infiniband/frl%u", index);
	device->guid = guid_of(index);
	pthread_mutex_init(&device->contexts_mutex, NULL);
	list_init(&device->contexts);
}

/* ---- the list */

static int add_device(char *text)
{
	struct dropin_device *device = &all.devices[all.n];
	int rc;

	if (all.n == DROPIN_MAX_DEVICES)
		return frl_fail(
			-EINVAL, "FRL_VERBS_DEVICES: more than %d devices", DROPIN_MAX_DEVICES);
	rc = fill_device(device, text);
	if (rc)
		return rc;
	name_device(device, all.n);
	all.n++;
	return 0;
}

static int read_devices(void)
{
	const char *wanted = settings_get()->verbs_devices, *fabric = settings_get()->fabric;
	char *text = NULL, *rest, *item;
	int rc = 0;

	if (settings_error())
		return frl_fail(-EINVAL, "%s", settings_error());
	if (*wanted)
		text = strdup(wanted);
	else if (*fabric && strcmp(fabric, "local") != 0)
		rc = asprintf(&text, "fabric:%s", fabric) < 0 ? -ENOMEM : 0;
	else
		text = strdup("local");
	if (rc || !text)
		return frl_fail(-ENOMEM, "no memory for the list of devices");
	all.text = text;
	for (item = strtok_r(text, ";", &rest); item && !rc; item = strtok_r(NULL, ";", &rest))
		rc = add_device(item);
	return rc;
}

static void make_devices(void)
{
	int rc = read_devices();

	if (!rc)
		return;
	frl_log(FRL_LOG_WARNING, "%s", frl_last_error());
	all.error = -rc;
	all.n = 0;
}

struct dropin_device *devices_get(unsigned *ret_n)
{
	pthread_once(&all.once, make_devices);
	*ret_n = all.n;
	return all.devices;
}

/* ---- public functions */

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	unsigned n;
	struct dropin_device *devices = devices_get(&n);
	struct ibv_device **list;

	if (num_devices)
		*num_devices = 0;
	if (all.error) {
		errno = all.error;
		return NULL;
	}
	list = calloc(n + 1, sizeof(struct ibv_device *));
	if (!list)
		return NULL;
	for (unsigned i = 0; i < n; i++)
		list[i] = &devices[i].ibv;
	if (num_devices)
		*num_devices = (int)n;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return htobe64(dropin_device(device)->guid);
}

int ibv_get_device_index(struct ibv_device *device)
{
	return (int)(dropin_device(device) - all.devices);
}
