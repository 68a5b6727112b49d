/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices: opened over a port, closed, described. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/dpdk/dpdk.h"
#include "lib/api/objects.h"
#include "lib/api/publish.h"
#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/base/settings.h"

void frl_device_config_init(struct frl_device_config *config)
{
	const struct settings *settings = settings_get();

	*config = (struct frl_device_config){ .path_mtu = (uint32_t)settings->path_mtu };
	if (*settings->fabric)
		config->fabric = settings->fabric;
	if (strcmp(settings->progress, "inline") == 0)
		config->progress = FRL_PROGRESS_INLINE;
	else if (strcmp(settings->progress, "thread") == 0)
		config->progress = FRL_PROGRESS_THREAD;
	if (strcmp(settings->icrc, "always") == 0)
		config->icrc = FRL_ICRC_ALWAYS;
}

static void guard_lock(void *arg)
{
	guard_enter_first(arg);
}

static void guard_unlock(void *arg)
{
	guard_leave(arg);
}

/* A port of a fabric of the control daemon's is wanted. */
static bool is_leased(const struct frl_device_config *config)
{
	return config->fabric && *config->fabric && strcmp(config->fabric, "local") != 0;
}

static int check_config(const struct frl_device_config *config)
{
	uint32_t mtu = config->path_mtu;

	if (settings_error())
		return frl_fail(-EINVAL, "%s", settings_error());
	if (mtu && (mtu < 256 || mtu > WIRE_MAX_MTU || (mtu & (mtu - 1))))
		return frl_fail(-EINVAL,
			"path MTU %u (path_mtu, FRL_PATH_MTU): it must be 256, 512, 1024, 2048 or "
			"4096",
			mtu);
	if ((unsigned)config->progress > FRL_PROGRESS_THREAD ||
		(unsigned)config->icrc > FRL_ICRC_ALWAYS)
		return frl_fail(-EINVAL, "unknown value of progress (%d) or icrc (%d)",
			(int)config->progress, (int)config->icrc);
	if (is_leased(config) && (config->port || config->ip || config->gateway))
		return frl_fail(-EINVAL,
			"a port of fabric '%s' (fabric, FRL_FABRIC) comes with its addresses: give "
			"the fabric, or port, IP address and gateway",
			config->fabric);
	if (config->port && !config->ip)
		return frl_fail(-EINVAL,
			"port '%s' needs an IP address of its own, like 10.1.1.1/24", config->port);
	if (!config->port && !is_leased(config) && (config->ip || config->gateway))
		return frl_fail(-EINVAL,
			"an IP address or gateway needs a port; the local fabric gives "
			"out its own addresses");
	return 0;
}

/* Addresses: given for a network port, claimed on the local fabric. The link-local one follows from
 * the MAC, which a network port tells later; `mac` is that of the local fabric. */
static int take_addresses(struct frl_device *device, const struct frl_device_config *config,
	struct engine_config *engine, uint8_t mac[6])
{
	struct gid_table *gids = &engine->gids;
	int rc;

	if (!config->port) {
		rc = fabric_claim_address(&gids->gids[1].ip, mac);
		if (rc < 0)
			return rc;
		device->claim_fd = rc;
		gids->gids[1].prefix_len = 16;
		gids->n = 2;
		return 0;
	}
	rc = parse_addresses(config->ip, gids);
	if (!rc && config->gateway)
		rc = parse_gateways(config->gateway, gids, &engine->neighbors);
	return rc;
}

static int open_port(
	struct frl_device *device, const struct frl_device_config *config, const uint8_t mac[6])
{
	const struct settings *settings = settings_get();
	struct dpdk_port_config port = {
		.devargs = config->port,
		.max_payload = config->path_mtu ? config->path_mtu : WIRE_MAX_MTU,
		.min_payload = config->path_mtu ? config->path_mtu : 256,
		.eal_mem_mb = (uint32_t)settings->eal_mem_mb,
		.eal_args = settings->eal_args,
		.guard = { guard_lock, guard_unlock, &device->guard },
	};

	memcpy(port.mac, mac, sizeof(port.mac));
	return dpdk_port_open(&port, &device->port);
}

static void describe_limits(struct frl_device_attr *attr)
{
	/* Numbers 0 and 1 are no queue pair's but the GSI's. */
	attr->max_qp = ENGINE_MAX_QPS - 2;
	attr->max_qp_wr = MAX_WR;
	attr->max_sge = FRL_MAX_SGE;
	attr->max_inline = FRL_MAX_INLINE;
	attr->max_cqe = MAX_CQ_DEPTH;
	attr->max_mr = REGION_MAX;
	attr->max_mw = REGION_MAX;
	attr->max_mr_size = SIZE_MAX;
	attr->max_msg_size = WIRE_MAX_MESSAGE;
	attr->max_srq_wr = MAX_WR;
	attr->max_srq_sge = FRL_MAX_SGE;
	attr->max_rd_atomic = FRL_MAX_RD_ATOMIC;
	attr->max_mcast_groups = GROUPS_MAX;
	attr->max_mcast_attach = GROUP_ATTACHMENTS_MAX;
	attr->n_pkeys = 1;
}

static void describe(struct frl_device *device, const struct frl_device_config *config,
	const struct gid_table *gids)
{
	const struct port_caps *caps = &device->port->caps;
	struct frl_device_attr *attr = &device->attr;
	uint32_t mtu = wire_largest_mtu(caps->max_frame);

	attr->ip = gids->gids[1].ip;
	attr->n_gids = gids->n;
	memcpy(attr->mac, caps->mac, sizeof(attr->mac));
	attr->path_mtu = config->path_mtu && config->path_mtu < mtu ? config->path_mtu : mtu;
	attr->lossless = caps->lossless;
	attr->local_fabric = caps->on_demand;
	snprintf(attr->port, sizeof(attr->port), "%s", config->port ? config->port : caps->kind);
	if (caps->on_demand && config->icrc == FRL_ICRC_AUTO)
		device->capabilities |= FRL_CAP_NO_ICRC;
	describe_limits(attr);
}

/* What the engine is to know, and the engine itself. */
static int start_engine(struct frl_device *device, const struct frl_device_config *config,
	struct engine_config *engine)
{
	int rc = add_link_local(&engine->gids, device->port->caps.mac);

	if (rc)
		return rc;
	describe(device, config, &engine->gids);
	if (engine->qpn_count && engine->qpn_count < device->attr.max_qp)
		device->attr.max_qp = engine->qpn_count;
	engine->port = device->port;
	engine->pkey = PKEY_DEFAULT;
	engine->mtu = device->attr.path_mtu;
	rc = engine_init(&device->engine, engine);
	if (rc)
		frl_fail(rc, "no memory for a device");
	return rc;
}

static int start_progress(struct frl_device *device, enum frl_progress progress)
{
	int rc;

	if (progress == FRL_PROGRESS_AUTO)
		progress = device->attr.local_fabric ? FRL_PROGRESS_INLINE : FRL_PROGRESS_THREAD;
	if (progress == FRL_PROGRESS_INLINE)
		return 0;
	device_enter(device);
	rc = device_start_thread(device);
	device_leave(device);
	return rc;
}

static struct frl_device *new_device(void)
{
	struct frl_device *device = calloc(1, sizeof(*device));

	if (!device)
		return NULL;
	guard_init(&device->guard);
	sem_init(&device->wake, 0, 0);
	atomic_init(&device->asked_at, UINT_MAX / 2); /* long ago */
	device->claim_fd = -1;
	device->async.fd = -1;
	for (size_t i = 0; i < NONCE_SIZE; i += sizeof(uint64_t)) {
		uint64_t bits = random_entropy();

		memcpy(device->nonce + i, &bits, sizeof(bits));
	}
	return device;
}

static void free_device(struct frl_device *device)
{
	publish_drop(device->publication);
	if (device->claim_fd >= 0)
		close(device->claim_fd);
	if (device->async.fd >= 0)
		close(device->async.fd);
	sem_destroy(&device->wake);
	guard_fini(&device->guard);
	free(device);
}

static void close_device(struct frl_device *device)
{
	publish_close(device);
	device_stop_thread(device);
	engine_fini(&device->engine);
	device->port->ops->close(device->port);
	free_device(device);
}

/* What the daemon gave becomes what is configured; the texts are the lease's. */
static int take_lease(struct frl_device *device, struct frl_device_config *config,
	struct engine_config *engine, uint8_t mac[6])
{
	const Ctl__Lease *lease;
	int rc = publish_lease(config->fabric, &device->publication);

	if (rc)
		return rc;
	lease = publication_lease(device->publication);
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
		memcpy(mac, lease->mac.data, 6);
	engine->qpn_first = lease->qpn_first;
	engine->qpn_count = lease->qpn_count;
	snprintf(device->attr.fabric, sizeof(device->attr.fabric), "%s", config->fabric);
	config->fabric = NULL;
	return check_config(config);
}

/* Port and engine. */
static int start_device(struct frl_device *device, const struct frl_device_config *config,
	struct engine_config *engine, uint8_t mac[6])
{
	int rc = take_addresses(device, config, engine, mac);

	if (!rc)
		rc = open_port(device, config, mac);
	if (rc)
		return rc;
	rc = start_engine(device, config, engine);
	if (rc)
		device->port->ops->close(device->port);
	return rc;
}

static int open_device(struct frl_device *device, const struct frl_device_config *wanted)
{
	struct engine_config engine = { .seed = random_entropy() };
	struct frl_device_config config = *wanted;
	uint8_t mac[6] = { 0 };
	int rc = is_leased(wanted) ? take_lease(device, &config, &engine, mac) : 0;

	if (!rc)
		rc = start_device(device, &config, &engine, mac);
	if (rc) {
		free_device(device);
		return rc;
	}
	rc = start_progress(device, config.progress);
	if (!rc)
		rc = publish_device(device, device->publication);
	if (rc)
		close_device(device);
	return rc;
}

int frl_device_open(const struct frl_device_config *config, struct frl_device **ret_device)
{
	struct frl_device_config defaults;
	struct frl_device *device;
	int rc;

	if (!config) {
		frl_device_config_init(&defaults);
		config = &defaults;
	}
	if (!ret_device)
		return frl_fail(-EINVAL, "frl_device_open: ret_device is required");
	rc = check_config(config);
	if (rc)
		return rc;
	device = new_device();
	if (!device)
		return frl_fail(-ENOMEM, "no memory for a device");
	rc = open_device(device, config);
	if (rc)
		return rc;
	frl_log(FRL_LOG_INFO, "device %s, address %s, path MTU %u, %s", device->attr.port,
		format_ip(&device->attr.ip), device->attr.path_mtu,
		device->has_thread ? "progress thread" : "inline progress");
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
	*ret_attr = device->attr;
	device_enter(device);
	/* The local fabric as such is always there; its links come and go. */
	ret_attr->port_state = device->attr.local_fabric || device->engine.port_up ? FRL_PORT_ACTIVE
										   : FRL_PORT_DOWN;
	ret_attr->links_used = fabric_links_used(device);
	device_leave(device);
}

int frl_query_gid(struct frl_device *device, unsigned index, struct frl_gid *ret_gid)
{
	/* The table is made when the device is opened. */
	const struct gid_table *gids = device ? &device->engine.gids : NULL;

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
	struct port_stats port = { 0 };

	device_enter(device);
	*ret_stats = device->engine.stats;
	device->port->ops->stats(device->port, &port);
	device_leave(device);
	ret_stats->drop_port = port.rx_dropped + port.tx_dropped;
}
