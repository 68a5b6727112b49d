/* SPDX-License-Identifier: BSD-3-Clause */
/* How a queue pair gets from its peer's endpoint to RTS. */
#include <errno.h>
#include <string.h>

#include "lib/api/endpoint.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	DEFAULT_TIMEOUT = 14,          /* 67 ms */
	DEFAULT_TIMEOUT_LOSSLESS = 16, /* 268 ms: only for what came before the peer was ready */
	DEFAULT_TIMEOUT_MS = 10000,
	DEFAULT_RD_ATOMIC = 16,
	NS_PER_MS = 1000000,
};

/* A connection that is being made. */
struct connecting {
	struct frl_qp *qp;
	struct endpoint remote;
	struct frl_ip remote_ip; /* the one of its addresses that was chosen */
	bool loop;               /* the peer is this device */
	const struct frl_connect_config *config;
	struct patience patience;
	struct frl_qp_attr attr;
};

int frl_qp_endpoint(struct frl_qp *qp, struct frl_endpoint *ret_endpoint)
{
	struct frl_device *device;
	struct endpoint endpoint;
	enum frl_qp_state state;

	if (!qp || !ret_endpoint)
		return frl_fail(-EINVAL, "frl_qp_endpoint: qp and ret_endpoint are required");
	if (qp_is_datagram(&qp->engine.core))
		return frl_fail(-EINVAL,
			"queue pair 0x%x is not connected to another one: tell its number, Q_Key "
			"and a GID of the device to whom it may concern",
			qp->engine.core.qpn);
	device = qp->pd->device;
	device_enter(device);
	state = qp->engine.core.state;
	if (state == FRL_QPS_RESET && !qp->has_endpoint) {
		qp->local_psn = (uint32_t)random_u64(&device->engine.random) & PSN_MASK;
		qp->has_endpoint = true;
	}
	device_leave(device);
	if (state != FRL_QPS_RESET)
		return frl_fail(-EINVAL,
			"queue pair 0x%x is in %s: it must be in RESET to be connected",
			qp->engine.core.qpn, frl_qp_state_str(state));
	endpoint_describe(qp, &endpoint);
	endpoint_encode(&endpoint, ret_endpoint);
	return 0;
}

void frl_connect_config_init(struct frl_device *device, struct frl_connect_config *config)
{
	*config = (struct frl_connect_config){
		.access_flags = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ |
			FRL_ACCESS_REMOTE_ATOMIC,
		.timeout = device->attr.lossless ? DEFAULT_TIMEOUT_LOSSLESS : DEFAULT_TIMEOUT,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
		.max_rd_atomic = DEFAULT_RD_ATOMIC,
		.timeout_ms = DEFAULT_TIMEOUT_MS,
	};
}

/* What the two ends must have in common, and which addresses they use. */
static int check_pair(struct connecting *c)
{
	const struct frl_device *device = c->qp->pd->device;
	const struct endpoint *remote = &c->remote;
	unsigned own_index, remote_index;
	struct endpoint own;

	endpoint_describe(c->qp, &own);
	if (remote->local_fabric != own.local_fabric)
		return frl_fail(-EPROTO,
			"one end is on the local fabric, the other on a network port: "
			"give both a port, or neither");
	if (remote->type != own.type)
		return frl_fail(-EPROTO,
			"the ends' queue pairs are not of one type: this one is %d, the peer's %d",
			(int)own.type, (int)remote->type);
	if (!endpoint_choose(&own, remote, &own_index, &remote_index))
		return frl_fail(-EPROTO, "one end has an IPv4 address, the other an IPv6 address");
	c->remote_ip = remote->addresses[remote_index].ip;
	c->loop = memcmp(remote->nonce, device->nonce, NONCE_SIZE) == 0;
	if (c->loop != ip_equal(&c->remote_ip, &own.addresses[own_index].ip))
		return frl_fail(-EPROTO, "the peer %s has the address of this device",
			format_ip(&c->remote_ip));
	c->attr.ah.dgid = c->remote_ip;
	c->attr.ah.sgid_index = (uint8_t)(own_index + 1);
	c->attr.ah.traffic_class = c->config->traffic_class;
	return 0;
}

/* Ethernet: in one subnet the peer has told its MAC address already, unless it left that to ARP. */
static int find_way(struct connecting *c)
{
	struct frl_device *device = c->qp->pd->device;
	struct frl_ip hop;
	bool reachable;

	device_enter(device);
	reachable = neighbors_next_hop(
		&device->engine.neighbors, c->attr.ah.sgid_index, &c->remote_ip, &hop);
	device_leave(device);
	if (!reachable)
		return frl_fail(-EHOSTUNREACH,
			"%s is not in the subnet of this port and there is no gateway: check the "
			"addresses and prefix lengths, or give a gateway",
			format_ip(&c->remote_ip));
	if (ip_equal(&hop, &c->remote_ip))
		memcpy(c->attr.ah.dmac, c->remote.mac, sizeof(c->attr.ah.dmac));
	return 0;
}

/* A link that is being opened. */
struct opening {
	const struct connecting *c;
	uint64_t next_try_ns;
	int link;
};

static int try_link(struct frl_device *device, void *arg)
{
	struct opening *o = arg;
	const struct endpoint *remote = &o->c->remote;
	uint64_t now_ns = clock_now_ns();

	if (now_ns < o->next_try_ns)
		return -EAGAIN;
	o->next_try_ns = now_ns + NS_PER_MS;
	o->link = fabric_link_open(device, &o->c->remote_ip, remote->mac, remote->nonce);
	if (o->link == -EADDRINUSE)
		return -EAGAIN;
	return o->link < 0 ? o->link : 0;
}

/* A link that was closed a moment ago holds its name a little longer. */
static int open_link(const struct connecting *c)
{
	struct opening opening = { .c = c };
	int rc = device_wait(c->qp->pd->device, try_link, &opening, &c->patience);

	if (rc == -ETIMEDOUT)
		return frl_fail(-ETIMEDOUT,
			"an earlier link to the peer %s is still not gone after %d ms: wait for "
			"longer (timeout_ms), and see that both ends have closed it",
			format_ip(&c->remote_ip), c->config->timeout_ms);
	return rc ? rc : opening.link;
}

static int open_path(struct connecting *c)
{
	int link;

	if (!c->remote.local_fabric)
		return find_way(c);
	memcpy(c->attr.ah.dmac, c->remote.mac, sizeof(c->attr.ah.dmac));
	if (c->loop)
		return 0;
	link = open_link(c);
	if (link < 0)
		return link;
	c->attr.ah.link = (uint16_t)link;
	return 0;
}

static void set_attributes(struct connecting *c)
{
	const struct frl_device *device = c->qp->pd->device;
	const struct frl_connect_config *config = c->config;
	uint32_t mtu = device->attr.path_mtu;
	struct frl_qp_attr *attr = &c->attr;

	attr->access_flags = config->access_flags;
	attr->port_num = 1;
	attr->path_mtu = c->remote.path_mtu < mtu ? c->remote.path_mtu : mtu;
	attr->capabilities = c->remote.capabilities & device->capabilities;
	attr->dest_qpn = c->remote.qpn;
	attr->rq_psn = c->remote.psn;
	attr->sq_psn = c->qp->local_psn;
	attr->max_rd_atomic = config->max_rd_atomic;
	attr->max_dest_rd_atomic = config->max_rd_atomic;
	attr->min_rnr_timer = config->min_rnr_timer;
	attr->timeout = config->timeout;
	attr->retry_cnt = config->retry_cnt;
	attr->rnr_retry = config->rnr_retry;
}

/* The queue pair is ready before the link is, so that nothing which the peer sends is missed. */
static int to_rts(struct connecting *c)
{
	const bool rc = c->qp->engine.core.type == FRL_QPT_RC;
	const struct {
		enum frl_qp_state state;
		uint32_t mask, rc_mask; /* of every type; of RC besides */
	} steps[] = {
		{ FRL_QPS_INIT, FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS, 0 },
		{ FRL_QPS_RTR,
			FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN |
				FRL_QP_CAPABILITIES,
			FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER },
		{ FRL_QPS_RTS, FRL_QP_SQ_PSN,
			FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
				FRL_QP_MAX_QP_RD_ATOMIC },
	};

	set_attributes(c);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		uint32_t mask = FRL_QP_STATE | steps[i].mask | (rc ? steps[i].rc_mask : 0);
		int err;

		c->attr.state = steps[i].state;
		err = modify_qp(c->qp, &c->attr, mask, &c->patience);
		if (err)
			return err;
	}
	return 0;
}

static int link_settled(struct frl_device *device, void *arg)
{
	const uint16_t *link = arg;

	return device->port->ops->link_state(device->port, *link) == PORT_LINK_CONNECTING ? -EAGAIN
											  : 0;
}

static int wait_for_link(struct connecting *c)
{
	struct frl_device *device = c->qp->pd->device;
	uint16_t link = c->attr.ah.link;
	enum port_link_state state;
	int rc = device_wait(device, link_settled, &link, &c->patience);

	if (rc == -ETIMEDOUT)
		return frl_fail(-ETIMEDOUT,
			"the peer %s did not make its end of the link within %d ms: is it "
			"connecting too?",
			format_ip(&c->remote_ip), c->config->timeout_ms);
	if (rc)
		return rc;
	device_enter(device);
	state = device->port->ops->link_state(device->port, link);
	device_leave(device);
	if (state != PORT_LINK_UP)
		return frl_fail(-ECONNRESET,
			"the link to the peer %s went down while connecting: the peer has ended, "
			"or this process has no memory for the link (the log says which)",
			format_ip(&c->remote_ip));
	return 0;
}

/* The link has its queue pair. Or else that is of no use, and perhaps the link neither. */
static void finish_link(const struct connecting *c, bool failed)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	struct frl_device *device = c->qp->pd->device;
	const char *why;

	device_enter(device);
	if (failed)
		engine_modify_qp(
			&device->engine, &c->qp->engine, &attr, FRL_QP_STATE, clock_now_ns(), &why);
	fabric_link_release(device, c->attr.ah.link, failed);
	device_leave(device);
}

static int connect_qp(struct connecting *c)
{
	bool has_link;
	int rc = check_pair(c);

	if (!rc)
		rc = open_path(c);
	if (rc)
		return rc;
	has_link = c->remote.local_fabric && !c->loop;
	rc = to_rts(c);
	if (!rc && has_link)
		rc = wait_for_link(c);
	if (has_link)
		finish_link(c, rc);
	return rc;
}

/* A queue pair that works is not to be touched, nor one that another thread connects. */
static int claim(struct frl_qp *qp)
{
	struct frl_device *device = qp->pd->device;
	bool has_endpoint, connecting;
	enum frl_qp_state state;

	device_enter(device);
	state = qp->engine.core.state;
	has_endpoint = qp->has_endpoint;
	connecting = qp->connecting;
	if (state == FRL_QPS_RESET && has_endpoint)
		qp->connecting = true;
	device_leave(device);
	if (connecting)
		return frl_fail(-EINVAL, "queue pair 0x%x: it is being connected already",
			qp->engine.core.qpn);
	if (state != FRL_QPS_RESET)
		return frl_fail(-EINVAL,
			"queue pair 0x%x is in %s: it must be in RESET to be connected",
			qp->engine.core.qpn, frl_qp_state_str(state));
	if (!has_endpoint)
		return frl_fail(-EINVAL,
			"queue pair 0x%x: call frl_qp_endpoint() first and give the "
			"result to the peer",
			qp->engine.core.qpn);
	return 0;
}

int frl_qp_connect(struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_connect_config *config)
{
	struct frl_connect_config defaults;
	struct connecting c = { .qp = qp };
	int rc;

	if (!qp || !remote)
		return frl_fail(-EINVAL, "frl_qp_connect: qp and remote are required");
	if (!config) {
		frl_connect_config_init(qp->pd->device, &defaults);
		config = &defaults;
	}
	if (config->timeout_ms < 0)
		return frl_fail(-EINVAL, "timeout_ms is negative");
	c.config = config;
	c.patience = (struct patience){ config->timeout_ms, config->interrupt,
		config->interrupt_arg };
	rc = claim(qp);
	if (rc)
		return rc;
	rc = endpoint_decode(remote, &c.remote);
	if (!rc)
		rc = connect_qp(&c);
	device_enter(qp->pd->device);
	qp->connecting = false;
	device_leave(qp->pd->device);
	return rc;
}
