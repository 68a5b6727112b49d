/* SPDX-License-Identifier: BSD-3-Clause */
/* What two ends tell each other, and how a queue pair gets from there to RTS. */
#include <errno.h>
#include <string.h>

#include "lib/api/objects.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	ENDPOINT_MAGIC = 0x46524c45, /* "FRLE" */
	ENDPOINT_VERSION = 1,
	ENDPOINT_LOCAL_FABRIC = 1 << 0,

	/* Offsets; all numbers are big-endian, the rest is zero. */
	AT_MAGIC = 0,
	AT_VERSION = 4,
	AT_FLAGS = 6,
	AT_QPN = 8,
	AT_PSN = 12,
	AT_MAC = 16,
	AT_MTU = 22,
	AT_IP = 24,
	AT_CAPABILITIES = 40,
	AT_NONCE = 44,

	DEFAULT_TIMEOUT = 14,          /* 67 ms */
	DEFAULT_TIMEOUT_LOSSLESS = 16, /* 268 ms: only for what came before the peer was ready */
	DEFAULT_TIMEOUT_MS = 10000,
	HOP_LIMIT = 64,
	NS_PER_MS = 1000000,
};

/* An endpoint as it is worked with; the first PSN is the one that its owner sends. */
struct endpoint {
	bool local_fabric;
	uint32_t qpn;
	uint32_t psn;
	uint8_t mac[6];
	uint32_t path_mtu;
	struct frl_ip ip;
	uint32_t capabilities;
	uint8_t nonce[NONCE_SIZE];
};

int frl_qp_endpoint(struct frl_qp *qp, struct frl_endpoint *ret_endpoint)
{
	struct frl_device *device = qp->pd->device;
	uint8_t *out = ret_endpoint->bytes;
	enum frl_qp_state state;

	guard_enter(&device->guard);
	state = qp->engine.core.state;
	if (state == FRL_QPS_RESET && !qp->has_endpoint) {
		qp->local_psn = (uint32_t)random_u64(&device->engine.random) & PSN_MASK;
		qp->has_endpoint = true;
	}
	guard_leave(&device->guard);
	if (state != FRL_QPS_RESET)
		return frl_fail(-EINVAL,
			"queue pair 0x%x is in %s: it must be in RESET to be connected",
			qp->engine.core.qpn, frl_qp_state_str(state));
	memset(out, 0, FRL_ENDPOINT_SIZE);
	put_be32(out + AT_MAGIC, ENDPOINT_MAGIC);
	put_be16(out + AT_VERSION, ENDPOINT_VERSION);
	put_be16(out + AT_FLAGS, device->attr.local_fabric ? ENDPOINT_LOCAL_FABRIC : 0);
	put_be32(out + AT_QPN, qp->engine.core.qpn);
	put_be32(out + AT_PSN, qp->local_psn);
	memcpy(out + AT_MAC, device->attr.mac, sizeof(device->attr.mac));
	put_be16(out + AT_MTU, (uint16_t)device->attr.path_mtu);
	memcpy(out + AT_IP, device->attr.ip.bytes, sizeof(device->attr.ip.bytes));
	put_be32(out + AT_CAPABILITIES, device->capabilities);
	memcpy(out + AT_NONCE, device->nonce, NONCE_SIZE);
	return 0;
}

static int parse_endpoint(const struct frl_endpoint *from, struct endpoint *ret)
{
	const uint8_t *in = from->bytes;
	uint32_t mtu = get_be16(in + AT_MTU);

	if (get_be32(in + AT_MAGIC) != ENDPOINT_MAGIC)
		return frl_fail(-EPROTO, "the peer's endpoint is none of Ferrule");
	if (get_be16(in + AT_VERSION) != ENDPOINT_VERSION)
		return frl_fail(-EPROTO,
			"the peer's endpoint has version %u, this library speaks %d: use the same "
			"release "
			"on both ends",
			get_be16(in + AT_VERSION), ENDPOINT_VERSION);
	*ret = (struct endpoint){
		.local_fabric = get_be16(in + AT_FLAGS) & ENDPOINT_LOCAL_FABRIC,
		.qpn = get_be32(in + AT_QPN),
		.psn = get_be32(in + AT_PSN),
		.path_mtu = mtu,
		.capabilities = get_be32(in + AT_CAPABILITIES),
	};
	memcpy(ret->mac, in + AT_MAC, sizeof(ret->mac));
	memcpy(ret->ip.bytes, in + AT_IP, sizeof(ret->ip.bytes));
	memcpy(ret->nonce, in + AT_NONCE, NONCE_SIZE);
	if (mtu < 256 || mtu > WIRE_MAX_MTU || (mtu & (mtu - 1)) || ret->psn > PSN_MASK ||
		ret->qpn == 0 || ret->qpn >= QPN_MULTICAST)
		return frl_fail(-EPROTO,
			"the peer's endpoint is damaged: QPN 0x%x, PSN 0x%x, MTU %u", ret->qpn,
			ret->psn, mtu);
	return 0;
}

void frl_connect_config_init(struct frl_device *device, struct frl_connect_config *config)
{
	*config = (struct frl_connect_config){
		.access_flags = FRL_ACCESS_REMOTE_WRITE,
		.timeout = device->attr.lossless ? DEFAULT_TIMEOUT_LOSSLESS : DEFAULT_TIMEOUT,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
		.timeout_ms = DEFAULT_TIMEOUT_MS,
	};
}

/*
 * Drives the engine until `ready`, which is called with the guard held, says so: 0. -ETIMEDOUT, or
 * what the caller's interrupt function said.
 */
static int wait_for(struct frl_device *device, bool (*ready)(struct frl_device *, void *),
	void *arg, const struct frl_connect_config *config)
{
	uint64_t now_ns = clock_now_ns(), ask_ns = now_ns;
	uint64_t limit = now_ns + (uint64_t)config->timeout_ms * NS_PER_MS;
	struct frl_backoff backoff;

	frl_backoff_reset(&backoff);
	for (;; now_ns = clock_now_ns()) {
		bool done;

		guard_enter(&device->guard);
		device_poll(device);
		done = ready(device, arg);
		guard_leave(&device->guard);
		if (done)
			return 0;
		if (now_ns >= limit)
			return -ETIMEDOUT;
		if (config->interrupt && now_ns >= ask_ns) {
			int rc = config->interrupt(config->interrupt_arg);

			if (rc < 0)
				return rc;
			ask_ns = now_ns + NS_PER_MS;
		}
		frl_backoff_idle(&backoff);
	}
}

static bool link_settled(struct frl_device *device, void *arg)
{
	const uint16_t *link = arg;

	return device->port->ops->link_state(device->port, *link) != PORT_LINK_CONNECTING;
}

struct resolution {
	struct frl_ip hop;
	uint8_t mac[6];
};

static bool resolved(struct frl_device *device, void *arg)
{
	struct resolution *r = arg;

	return neighbors_lookup(&device->engine.neighbors, &r->hop, r->mac, clock_now_ns());
}

/* Ethernet: the MAC address of the next hop. */
static int resolve(struct frl_device *device, const struct endpoint *remote,
	const struct frl_connect_config *config, uint8_t ret_mac[6])
{
	static const uint8_t no_mac[6];
	struct resolution r;
	bool reachable;
	int rc;

	guard_enter(&device->guard);
	reachable = neighbors_next_hop(&device->engine.neighbors, &remote->ip, &r.hop);
	guard_leave(&device->guard);
	if (!reachable)
		return frl_fail(-EHOSTUNREACH,
			"%s is not in the subnet of this port and there is no gateway: check the "
			"addresses and prefix lengths, or give a gateway",
			format_ip(&remote->ip));
	/* In one subnet the peer has told its address already, unless it left that to ARP. */
	if (ip_equal(&r.hop, &remote->ip) && !mac_equal(remote->mac, no_mac)) {
		memcpy(ret_mac, remote->mac, sizeof(remote->mac));
		return 0;
	}
	rc = wait_for(device, resolved, &r, config);
	guard_enter(&device->guard);
	neighbors_forget(&device->engine.neighbors, &r.hop);
	guard_leave(&device->guard);
	if (rc == -ETIMEDOUT)
		return frl_fail(-EHOSTUNREACH,
			"%s does not answer ARP or ND: check that it is on this port's network",
			format_ip(&r.hop));
	if (!rc)
		memcpy(ret_mac, r.mac, sizeof(r.mac));
	return rc;
}

static int check_pair(const struct frl_device *device, const struct endpoint *remote)
{
	if (remote->local_fabric != device->attr.local_fabric)
		return frl_fail(-EPROTO,
			"one end is on the local fabric, the other on a network port: "
			"give both a port, or neither");
	if (ip_equal(&remote->ip, &device->attr.ip))
		return frl_fail(-EINVAL, "a device cannot be connected to itself");
	if (ip_is_v4(&remote->ip) != ip_is_v4(&device->attr.ip))
		return frl_fail(-EPROTO, "one end has an IPv4 address, the other an IPv6 address");
	return 0;
}

/* A link that was closed a moment ago holds its name a little longer. */
static int open_link(struct frl_device *device, const struct endpoint *remote,
	const struct frl_connect_config *config)
{
	uint64_t limit = clock_now_ns() + (uint64_t)config->timeout_ms * NS_PER_MS;
	const struct timespec pause = { .tv_nsec = NS_PER_MS };
	int link;

	for (;;) {
		guard_enter(&device->guard);
		link = fabric_link_open(device, &remote->ip, remote->mac, remote->nonce);
		guard_leave(&device->guard);
		if (link != -EADDRINUSE || clock_now_ns() >= limit)
			return link;
		nanosleep(&pause, NULL);
	}
}

static int open_path(struct frl_device *device, const struct endpoint *remote,
	const struct frl_connect_config *config, struct frl_qp_attr *attr)
{
	int link;

	attr->remote_ip = remote->ip;
	attr->traffic_class = config->traffic_class;
	attr->hop_limit = HOP_LIMIT;
	if (!device->attr.local_fabric)
		return resolve(device, remote, config, attr->remote_mac);
	memcpy(attr->remote_mac, remote->mac, sizeof(remote->mac));
	link = open_link(device, remote, config);
	if (link < 0)
		return link;
	attr->link = (uint16_t)link;
	return 0;
}

/* The queue pair is ready before the link is, so that nothing which the peer sends is missed. */
static int to_rts(struct frl_qp *qp, const struct endpoint *remote,
	const struct frl_connect_config *config, struct frl_qp_attr *attr)
{
	const struct frl_device *device = qp->pd->device;
	uint32_t mtu = device->attr.path_mtu;
	int rc;

	attr->access_flags = config->access_flags;
	attr->path_mtu = remote->path_mtu < mtu ? remote->path_mtu : mtu;
	attr->capabilities = remote->capabilities & device->capabilities;
	attr->dest_qpn = remote->qpn;
	attr->rq_psn = remote->psn;
	attr->sq_psn = qp->local_psn;
	attr->min_rnr_timer = config->min_rnr_timer;
	attr->timeout = config->timeout;
	attr->retry_cnt = config->retry_cnt;
	attr->rnr_retry = config->rnr_retry;
	attr->state = FRL_QPS_INIT;
	rc = frl_qp_modify(qp, attr, FRL_QP_STATE | FRL_QP_ACCESS_FLAGS);
	if (rc)
		return rc;
	attr->state = FRL_QPS_RTR;
	rc = frl_qp_modify(qp, attr,
		FRL_QP_STATE | FRL_QP_PATH | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN |
			FRL_QP_MIN_RNR_TIMER | FRL_QP_CAPABILITIES);
	if (rc)
		return rc;
	attr->state = FRL_QPS_RTS;
	return frl_qp_modify(qp, attr,
		FRL_QP_STATE | FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT |
			FRL_QP_RNR_RETRY);
}

static int wait_for_link(struct frl_device *device, uint16_t link, const struct endpoint *remote,
	const struct frl_connect_config *config)
{
	enum port_link_state state;
	int rc = wait_for(device, link_settled, &link, config);

	if (rc == -ETIMEDOUT)
		return frl_fail(-ETIMEDOUT,
			"the peer %s did not make its end of the link within %d ms: is it "
			"connecting too?",
			format_ip(&remote->ip), config->timeout_ms);
	if (rc)
		return rc;
	guard_enter(&device->guard);
	state = device->port->ops->link_state(device->port, link);
	guard_leave(&device->guard);
	if (state != PORT_LINK_UP)
		return frl_fail(-ECONNRESET,
			"the link to the peer %s went down while connecting: the peer has ended, "
			"or this "
			"process has no memory for the link (the log says which)",
			format_ip(&remote->ip));
	return 0;
}

/* The queue pair is of no use, and perhaps the link neither. */
static void give_up(struct frl_qp *qp, uint16_t link)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	struct frl_device *device = qp->pd->device;
	const char *why;

	guard_enter(&device->guard);
	engine_modify_qp(&device->engine, &qp->engine, &attr, FRL_QP_STATE, &why);
	fabric_link_release(device, link);
	guard_leave(&device->guard);
}

int frl_qp_connect(struct frl_qp *qp, const struct frl_endpoint *endpoint,
	const struct frl_connect_config *config)
{
	struct frl_device *device = qp->pd->device;
	struct frl_connect_config defaults;
	struct frl_qp_attr attr = { 0 };
	struct endpoint remote;
	int rc;

	if (!config) {
		frl_connect_config_init(device, &defaults);
		config = &defaults;
	}
	if (!qp->has_endpoint)
		return frl_fail(-EINVAL,
			"queue pair 0x%x: call frl_qp_endpoint() first and give the "
			"result to the peer",
			qp->engine.core.qpn);
	if (config->timeout_ms < 0)
		return frl_fail(-EINVAL, "timeout_ms is negative");
	rc = parse_endpoint(endpoint, &remote);
	if (!rc)
		rc = check_pair(device, &remote);
	if (!rc)
		rc = open_path(device, &remote, config, &attr);
	if (rc)
		return rc;
	rc = to_rts(qp, &remote, config, &attr);
	if (!rc && device->attr.local_fabric)
		rc = wait_for_link(device, attr.link, &remote, config);
	if (rc && device->attr.local_fabric)
		give_up(qp, attr.link);
	return rc;
}
