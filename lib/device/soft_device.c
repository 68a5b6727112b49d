/* SPDX-License-Identifier: BSD-3-Clause */
/* Software devices: opened over a port, closed, described. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/dpdk/dpdk.h"
#include "drivers/local/local.h"
#include "drivers/packet/packet.h"
#include "drivers/raw/raw.h"
#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/base/settings.h"
#include "lib/device/soft.h"

enum {
	MAX_CQ_DEPTH = 65536,
	MAX_WR = 16384,
	MIN_PAYLOAD = 256, /* of a path MTU that the caller did not choose */
};

static_assert((int)LOCAL_MAX_PAYLOAD == (int)WIRE_MAX_MTU, "the local fabric carries it");

static void guard_lock(void *arg)
{
	guard_enter_first(arg);
}

static void guard_unlock(void *arg)
{
	guard_leave(arg);
}

/* Sets the addresses: configured for a network port, claimed on the local fabric. The link-local
 * address follows from the MAC address, which a network port reports later. `mac` is that of the
 * local fabric. */
static int take_addresses(struct soft_device *device, const struct frl_device_config *config,
	struct engine_config *engine, uint8_t mac[6])
{
	struct gid_table *gids = &engine->gids;
	int rc;

	if (!config->port) {
		rc = fabric_claim_address(device, &gids->gids[1].ip, mac);
		if (rc)
			return rc;
		gids->gids[1].prefix_len = 16;
		gids->n = 2;
		return 0;
	}
	rc = parse_addresses(config->ip, gids);
	if (!rc && config->gateway)
		rc = parse_gateways(config->gateway, gids, &engine->neighbors);
	return rc;
}

/*
 * Returns the largest path MTU that this end wants. The local fabric is most efficient with
 * packets longer than a network's. Applications that hold packet buffers want many short ones,
 * since each has room for any packet.
 */
static uint32_t wanted_mtu(const struct frl_device_config *config)
{
	if (config->path_mtu)
		return config->path_mtu;
	return config->port || config->held_frames ? WIRE_IBTA_MTU : WIRE_MAX_MTU;
}

static int open_nic_port(struct soft_device *device, const struct frl_device_config *config,
	const struct gid_table *gids, const uint8_t mac[6], int socket)
{
	struct nic_config port = {
		.text = config->port,
		.has_socket = socket >= 0,
		.socket = socket,
		.gids = gids,
		.max_payload = wanted_mtu(config),
		.min_payload = config->path_mtu ? config->path_mtu : MIN_PAYLOAD,
		.max_kept = config->held_frames,
	};

	memcpy(port.mac, mac, sizeof(port.mac));
	return raw_is_port(config->port) ? raw_port_open(&port, &device->port)
					 : packet_port_open(&port, &device->port);
}

/* Returns enum frl_capability of a device whose port needs no ICRC. */
static uint32_t capabilities(const struct frl_device_config *config)
{
	return config->icrc == FRL_ICRC_AUTO ? FRL_CAP_NO_ICRC : 0;
}

static int open_local_port(
	struct soft_device *device, const struct frl_device_config *config, const uint8_t mac[6])
{
	struct local_port_config port = {
		.max_payload = wanted_mtu(config),
		.max_kept = config->held_frames,
		.features = capabilities(config),
		.guard = { guard_lock, guard_unlock, &device->base.guard },
	};

	memcpy(port.mac, mac, sizeof(port.mac));
	return local_port_open(&port, &device->port);
}

static int open_dpdk_port(struct soft_device *device, const struct frl_device_config *config,
	const struct gid_table *gids, const uint8_t mac[6])
{
	const struct settings *settings = settings_get();
	struct dpdk_port_config port = {
		.devargs = config->port,
		.gids = gids,
		.max_payload = wanted_mtu(config),
		.min_payload = config->path_mtu ? config->path_mtu : MIN_PAYLOAD,
		.max_kept = config->held_frames,
		.eal_args = settings->eal_args,
	};

	memcpy(port.mac, mac, sizeof(port.mac));
	return dpdk_port_open(&port, &device->port);
}

static int open_port(struct soft_device *device, const struct frl_device_config *config,
	const struct gid_table *gids, const uint8_t mac[6], int socket)
{
	if (!config->port)
		return open_local_port(device, config, mac);
	if (raw_is_port(config->port) || packet_is_port(config->port))
		return open_nic_port(device, config, gids, mac, socket);
	return open_dpdk_port(device, config, gids, mac);
}

static void describe_limits(struct frl_device_attr *attr)
{
	/* Numbers 0 and 1 (the GSI) are not available. */
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
	attr->reduces_on_receive = true;
	attr->has_atomics = true;
}

static void describe(struct soft_device *device, const struct frl_device_config *config,
	const struct gid_table *gids)
{
	const struct port_caps *caps = &device->port->caps;
	struct frl_device_attr *attr = &device->base.attr;
	uint32_t mtu = wire_largest_mtu(caps->max_frame);

	attr->ip = gids->gids[1].ip;
	attr->n_gids = gids->n;
	device->base.gids = *gids;
	memcpy(attr->mac, caps->mac, sizeof(attr->mac));
	attr->path_mtu = config->path_mtu && config->path_mtu < mtu ? config->path_mtu : mtu;
	attr->held_frames = caps->has_far ? 0 : caps->max_kept;
	attr->speed_mbps = caps->speed_mbps;
	attr->lossless = caps->lossless;
	attr->local_fabric = caps->on_demand;
	snprintf(attr->port, sizeof(attr->port), "%s", config->port ? config->port : caps->kind);
	if (caps->on_demand || caps->has_far)
		device->base.capabilities = capabilities(config);
	device->base.has_far = caps->has_far;
	device->base.far_gpu = caps->far_gpu;
	describe_limits(attr);
}

/* Completes the engine's configuration and creates the engine. */
static int start_engine(struct soft_device *device, const struct frl_device_config *config,
	struct engine_config *engine)
{
	int rc = add_link_local(&engine->gids, device->port->caps.mac);

	if (rc)
		return rc;
	describe(device, config, &engine->gids);
	if (engine->qpn_count && engine->qpn_count < device->base.attr.max_qp)
		device->base.attr.max_qp = engine->qpn_count;
	engine->port = device->port;
	engine->pkey = PKEY_DEFAULT;
	engine->mtu = device->base.attr.path_mtu;
	rc = engine_init(&device->engine, engine);
	if (rc)
		frl_fail(rc, "no memory for a device");
	return rc;
}

static int start_progress(struct soft_device *device, enum frl_progress progress)
{
	int rc;

	if (progress == FRL_PROGRESS_AUTO)
		progress = device->base.attr.local_fabric ? FRL_PROGRESS_INLINE
							  : FRL_PROGRESS_THREAD;
	if (progress == FRL_PROGRESS_INLINE)
		return 0;
	device_enter(&device->base);
	rc = soft_start_thread(&device->base);
	device_leave(&device->base);
	return rc;
}

static void free_device(struct soft_device *device)
{
	if (device->listen_fd >= 0)
		close(device->listen_fd);
	unmap_mark_close(&device->marks);
	if (device->claim_fd >= 0)
		close(device->claim_fd);
	if (device->groups_fd >= 0)
		close(device->groups_fd);
	sem_destroy(&device->wake);
	sleep_fini(device);
	device_fini(&device->base);
	free(device);
}

static void stop_engine(struct soft_device *device)
{
	engine_fini(&device->engine);
	device->port->ops->close(device->port);
	engine_port_closed(&device->engine);
}

static void close_device(struct frl_device *base)
{
	struct soft_device *device = soft_device(base);

	soft_stop_thread(device);
	if (base->attr.local_fabric)
		fabric_stop(device);
	stop_engine(device);
	free_device(device);
}

static void query(struct frl_device *base, struct frl_device_attr *attr)
{
	const struct soft_device *device = soft_device(base);
	bool is_up = attr->local_fabric || device->engine.port_up;

	/* The local fabric is always up; its links come and go. */
	attr->port_state = is_up ? FRL_PORT_ACTIVE : FRL_PORT_DOWN;
}

static void stats(struct frl_device *base, struct frl_stats *ret_stats)
{
	struct soft_device *device = soft_device(base);
	struct port_stats port = { 0 };

	device_enter(base);
	*ret_stats = device->engine.stats;
	device->port->ops->stats(device->port, &port);
	device_leave(base);
	ret_stats->drop_port = port.rx_dropped + port.tx_dropped;
}

static const struct device_ops soft_ops = {
	.kind = "software",
	.pd_size = sizeof(struct frl_pd),
	.mr_size = sizeof(struct soft_mr),
	.fragments_size = sizeof(struct soft_fragments),
	.mw_size = sizeof(struct soft_mw),
	.ah_size = sizeof(struct soft_ah),
	.channel_size = sizeof(struct soft_channel),
	.cq_size = sizeof(struct soft_cq),
	.srq_size = sizeof(struct soft_srq),
	.qp_size = sizeof(struct soft_qp),
	.close = close_device,
	.leaving = soft_leaving,
	.poll = soft_poll,
	.start_thread = soft_start_thread,
	.expect_sleep = soft_expect_sleep,
	.watch = soft_watch,
	.unwatch = soft_unwatch,
	.sleep = soft_sleep,
	.note_poll = soft_note_poll,
	.query = query,
	.stats = stats,
	.find_qp = soft_find_qp,
	.describe_qps = soft_describe_qps,
	.revoke = soft_revoke,
	.mr_reg = soft_mr_reg,
	.mr_rereg = soft_mr_rereg,
	.mr_dereg = soft_mr_dereg,
	.mr_map_far = soft_mr_map_far,
	.offload_attach = soft_offload_attach,
	.offload_detach = soft_offload_detach,
	.mw_alloc = soft_mw_alloc,
	.mw_dealloc = soft_mw_dealloc,
	.mw_rkey = soft_mw_rkey,
	.fragments_create = soft_fragments_create,
	.fragments_destroy = soft_fragments_destroy,
	.fragments_memory = soft_fragments_memory,
	.fragments_arm = soft_fragments_arm,
	.fragments_count = soft_fragments_count,
	.fragments_release = soft_fragments_release,
	.ah_create = soft_ah_create,
	.ah_destroy = soft_ah_destroy,
	.channel_create = soft_channel_create,
	.channel_destroy = soft_channel_destroy,
	.channel_take = soft_channel_take,
	.channel_divert = soft_channel_divert,
	.cq_create = soft_cq_create,
	.cq_destroy = soft_cq_destroy,
	.cq_resize = soft_cq_resize,
	.req_notify = soft_req_notify,
	.poll_cq = soft_poll_cq,
	.srq_create = soft_srq_create,
	.srq_destroy = soft_srq_destroy,
	.srq_set_limit = soft_srq_set_limit,
	.srq_limit = soft_srq_limit,
	.srq_post = soft_srq_post,
	.qp_create = soft_qp_create,
	.qp_destroy = soft_qp_destroy,
	.qp_modify = soft_qp_modify,
	.qp_unanswered = soft_qp_unanswered,
	.qp_clear_path = soft_qp_clear_path,
	.qp_state = soft_qp_state,
	.qp_query = soft_qp_query,
	.qp_fail = soft_qp_fail,
	.qp_describe_error = soft_qp_describe_error,
	.attach_mcast = soft_attach_mcast,
	.detach_mcast = soft_detach_mcast,
	.post_send = soft_post_send,
	.post_send_all = soft_post_send_all,
	.post_recv = soft_post_recv,
	.find_route = soft_find_route,
	.link_open = soft_link_open,
	.link_state = soft_link_state,
	.link_release = soft_link_release,
};

static struct soft_device *new_device(void)
{
	struct soft_device *device = calloc(1, sizeof(*device));

	if (!device)
		return NULL;
	device_init(&device->base, &soft_ops, &device->engine.events.async);
	sem_init(&device->wake, 0, 0);
	sleep_init(device);
	atomic_init(&device->sleep_polls, UINT_MAX / 2); /* long ago */
	device->claim_fd = device->listen_fd = device->groups_fd = -1;
	list_init(&device->searches);
	return device;
}

/* Opens the port and creates the engine. */
static int start_device(struct soft_device *device, const struct soft_open *wanted)
{
	struct engine_config engine = {
		.seed = random_entropy(),
		.qpn_first = wanted->qpn_first,
		.qpn_count = wanted->qpn_count,
	};
	uint8_t mac[6];
	int rc;

	memcpy(mac, wanted->mac, sizeof(mac));
	rc = take_addresses(device, wanted->config, &engine, mac);
	if (!rc)
		rc = open_port(device, wanted->config, &engine.gids, mac, wanted->socket);
	if (rc)
		return rc;
	rc = start_engine(device, wanted->config, &engine);
	if (rc) {
		device->port->ops->close(device->port);
		return rc;
	}
	if (device->base.attr.local_fabric)
		rc = fabric_start(device);
	if (rc)
		stop_engine(device);
	return rc;
}

int soft_device_open(const struct soft_open *wanted, struct frl_device **ret_device)
{
	struct soft_device *device = new_device();
	int rc;

	if (!device)
		return frl_fail(-ENOMEM, "no memory for a device");
	rc = start_device(device, wanted);
	if (rc) {
		free_device(device);
		return rc;
	}
	rc = start_progress(device, wanted->config->progress);
	if (rc) {
		close_device(&device->base);
		return rc;
	}
	*ret_device = &device->base;
	return 0;
}
