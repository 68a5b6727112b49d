/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening, closing and describing devices. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/verbs/verbs.h"
#include "lib/api/memory/memory_gpu.h"
#include "lib/api/objects.h"
#include "lib/api/publish/publish.h"
#include "lib/base/settings.h"
#include "lib/device/soft.h"

void frl_device_config_init(struct frl_device_config *config)
{
	const struct settings *settings = settings_get();

	*config = (struct frl_device_config){
		.path_mtu = (uint32_t)settings->path_mtu,
		.held_frames = (uint32_t)settings->held_frames,
	};
	if (*settings->fabric)
		config->fabric = settings->fabric;
	if (strcmp(settings->progress, "inline") == 0)
		config->progress = FRL_PROGRESS_INLINE;
	else if (strcmp(settings->progress, "thread") == 0)
		config->progress = FRL_PROGRESS_THREAD;
	if (strcmp(settings->icrc, "always") == 0)
		config->icrc = FRL_ICRC_ALWAYS;
}

/* Returns whether the configuration needs a port of a daemon's fabric. */
static bool is_leased(const struct frl_device_config *config)
{
	return config->fabric && *config->fabric && strcmp(config->fabric, "local") != 0;
}

static void warn_of_settings(void)
{
	static atomic_flag done = ATOMIC_FLAG_INIT;

	if (!(settings_ignored() || settings_misspelling()) || atomic_flag_test_and_set(&done))
		return;
	if (settings_ignored())
		frl_log(FRL_LOG_WARNING,
			"ignored, since this program has more rights than its user (setcap, "
			"setuid): %s; a port leased from ferruled needs no rights",
			settings_ignored());
	if (settings_misspelling())
		frl_log(FRL_LOG_WARNING, "settings: %s", settings_misspelling());
}

static int check_config(const struct frl_device_config *config)
{
	uint32_t mtu = config->path_mtu;

	if (settings_error())
		return frl_fail(-EINVAL, "%s", settings_error());
	if (mtu && (mtu < 256 || mtu > WIRE_MAX_MTU || (mtu & (mtu - 1))))
		return frl_fail(-EINVAL,
			"path MTU %u (path_mtu, FRL_PATH_MTU): it must be a power of two from 256 "
			"to %d",
			mtu, WIRE_MAX_MTU);
	if ((unsigned)config->progress > FRL_PROGRESS_THREAD ||
		(unsigned)config->icrc > FRL_ICRC_ALWAYS)
		return frl_fail(-EINVAL, "unknown value of progress (%d) or icrc (%d)",
			(int)config->progress, (int)config->icrc);
	if (config->held_frames > FRL_MAX_HELD_FRAMES)
		return frl_fail(-EINVAL, "%u held_frames: a device has at most %d",
			config->held_frames, FRL_MAX_HELD_FRAMES);
	if (is_leased(config) && (config->port || config->ip || config->gateway))
		return frl_fail(-EINVAL,
			"a port of fabric '%s' (fabric, FRL_FABRIC) comes with its addresses: give "
			"the fabric, or port, IP address and gateway",
			config->fabric);
	if (config->peer && !verbs_is_port(config->port))
		return frl_fail(-EINVAL,
			"peer selects a device of libibverbs: give port \"verbs\", or no peer");
	if (verbs_is_port(config->port) && config->gateway)
		return frl_fail(-EINVAL, "port '%s' uses the kernel's routes: give no gateway",
			config->port);
	if (config->port && !config->ip && !verbs_is_port(config->port))
		return frl_fail(-EINVAL,
			"port '%s' needs an IP address of its own, like 10.1.1.1/24", config->port);
	if (!config->port && !is_leased(config) && (config->ip || config->gateway))
		return frl_fail(-EINVAL,
			"an IP address or gateway needs a port; the local fabric gives "
			"out its own addresses");
	return 0;
}

/* Fills in the configuration from the lease, which keeps the texts. */
static int apply_lease(const struct publication *publication, struct frl_device_config *config,
	struct soft_open *open)
{
	const Ctl__Lease *lease = publication_lease(publication);

	if (!*lease->devargs || !*lease->ip)
		return frl_fail(-EPROTO,
			"the control daemon's lease of a port on '%s' lacks the device or its "
			"address: use the same release of both",
			config->fabric);
	config->port = lease->devargs;
	config->ip = lease->ip;
	config->gateway = *lease->gateway ? lease->gateway : NULL;
	if (!config->path_mtu || (lease->path_mtu && lease->path_mtu < config->path_mtu))
		config->path_mtu = lease->path_mtu;
	if (lease->mac.len)
		memcpy(open->mac, lease->mac.data, 6);
	open->socket = publication_socket(publication);
	open->qpn_first = lease->qpn_first;
	open->qpn_count = lease->qpn_count;
	config->fabric = NULL;
	return check_config(config);
}

static int open_verbs(const struct frl_device_config *config, struct frl_device **ret_device)
{
	const struct verbs_open open = {
		.port = config->port,
		.ip = config->ip,
		.peer = config->peer,
		.path_mtu = config->path_mtu,
	};

	return verbs_device_open(&open, ret_device);
}

/* `publication` has the lease, or is NULL. */
static int open_port(const struct frl_device_config *wanted, struct publication *publication,
	struct frl_device **ret_device)
{
	struct frl_device_config config = *wanted;
	struct soft_open open = { .config = &config, .socket = -1 };
	int rc = 0;

	if (publication)
		rc = apply_lease(publication, &config, &open);
	if (rc)
		return rc;
	/* FRL_PATH_MTU may be meant for the local fabric: others then use their default (0). */
	if (config.port && config.path_mtu > WIRE_IBTA_MTU)
		config.path_mtu = 0;
	rc = verbs_is_port(config.port) ? open_verbs(&config, ret_device)
					: soft_device_open(&open, ret_device);
	if (publication)
		publication_close_socket(publication);
	if (rc)
		return rc;
	rc = device_attach_far(*ret_device);
	if (rc) {
		char why[ERROR_TEXT_MAX];

		error_save(why);
		(*ret_device)->ops->close(*ret_device);
		error_restore(why);
	}
	return rc;
}

static void close_device(struct frl_device *device)
{
	struct publication *publication = device->publication;

	publish_close(device);
	device_detach_far(device);
	device->ops->close(device);
	publish_drop(publication);
}

/* Records this host: links of the local fabric have names in this network namespace. */
static void record_host(struct frl_device *device)
{
	uint8_t id[HOST_ID_SIZE];

	if (device->attr.local_fabric && host_id(id))
		memcpy(device->host, id, sizeof(id));
}

static int open_device(const struct frl_device_config *wanted, struct frl_device **ret_device)
{
	struct publication *publication = NULL;
	int rc = is_leased(wanted) ? publish_lease(wanted->fabric, &publication) : 0;
	struct frl_device *device;

	if (!rc)
		rc = open_port(wanted, publication, &device);
	if (rc) {
		publish_drop(publication);
		return rc;
	}
	if (publication)
		snprintf(device->attr.fabric, sizeof(device->attr.fabric), "%s", wanted->fabric);
	record_host(device);
	device->publication = publication;
	rc = publish_device(device, publication);
	if (rc)
		close_device(device);
	else
		*ret_device = device;
	return rc;
}

int frl_device_open(const struct frl_device_config *config, struct frl_device **ret_device)
{
	struct frl_device_config defaults;
	struct frl_device *device = NULL;
	int rc;

	if (!config) {
		frl_device_config_init(&defaults);
		config = &defaults;
	}
	if (!ret_device)
		return frl_fail(-EINVAL, "frl_device_open: ret_device is required");
	warn_of_settings();
	rc = check_config(config);
	if (rc)
		return rc;
	rc = open_device(config, &device);
	if (rc)
		return rc;
	frl_log(FRL_LOG_INFO, "device %s, address %s, path MTU %u, %s", device->attr.port,
		format_ip(&device->attr.ip), device->attr.path_mtu, device->ops->kind);
	*ret_device = device;
	return 0;
}

int frl_device_close(struct frl_device *device)
{
	unsigned objects;

	if (!device)
		return 0;
	device_enter(device);
	objects = device->objects;
	device_leave(device);
	if (objects)
		return frl_fail(-EBUSY,
			"the device still has %u protection domains, completion queues, channels, "
			"listeners and connections",
			objects);
	close_device(device);
	return 0;
}

void frl_device_query(struct frl_device *device, struct frl_device_attr *ret_attr)
{
	device_enter(device);
	*ret_attr = device->attr;
	device->ops->query(device, ret_attr);
	device_leave(device);
}

int frl_query_gid(struct frl_device *device, unsigned index, struct frl_gid *ret_gid)
{
	/* The table never changes after the device is opened. */
	const struct gid_table *gids = device ? &device->gids : NULL;

	if (!device || !ret_gid)
		return frl_fail(-EINVAL, "frl_query_gid: device and ret_gid are required");
	if (index >= gids->n)
		return frl_fail(
			-ENOENT, "the device has %u GIDs: there is no number %u", gids->n, index);
	*ret_gid = gids->gids[index];
	return 0;
}

void frl_device_stats(struct frl_device *device, struct frl_stats *ret_stats)
{
	device->ops->stats(device, ret_stats);
}

int frl_progress(struct frl_device *device)
{
	uint32_t moved;

	/* Before the guard: makes a progress thread release the guard. */
	if (device->ops->note_poll)
		device->ops->note_poll(device);
	device_enter(device);
	moved = device_poll(device);
	device_leave(device);
	return (int)moved;
}

int frl_device_list(struct frl_device_info **ret_infos, size_t *ret_n)
{
	if (!ret_infos || !ret_n)
		return frl_fail(-EINVAL, "frl_device_list: ret_infos and ret_n are required");
	return verbs_list(ret_infos, ret_n);
}

void frl_device_list_free(struct frl_device_info *infos)
{
	free(infos);
}
