/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/api/connect/connecting.h"

#include <errno.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/net/addr.h"
#include "lib/base/limit.h"

enum {
	NS_PER_MS = 1000000,
};

void connecting_terms(const struct frl_qp *qp, const struct frl_connect_config *config,
	struct frl_qp_attr *ret_terms)
{
	const struct frl_device *device = qp->pd->device;

	*ret_terms = (struct frl_qp_attr){
		.access_flags = config->access_flags,
		.ah.traffic_class = config->traffic_class,
		.path_mtu = device->attr.path_mtu,
		.max_rd_atomic = config->max_rd_atomic,
		.max_dest_rd_atomic = config->max_rd_atomic,
		.min_rnr_timer = config->min_rnr_timer,
		.timeout = config->timeout,
		.retry_cnt = config->retry_cnt,
		.rnr_retry = config->rnr_retry,
		.capabilities = device->capabilities,
	};
}

/* Refuse a queue pair in use, and one that another thread connects. */
int connecting_claim(struct frl_qp *qp)
{
	struct frl_device *device = qp->pd->device;
	bool has_endpoint, connecting;
	enum frl_qp_state state;

	device_enter(device);
	state = qp_state(qp);
	has_endpoint = qp->has_endpoint;
	connecting = qp->connecting;
	if (state == FRL_QPS_RESET && has_endpoint)
		qp->connecting = true;
	device_leave(device);
	if (connecting)
		return frl_fail(-EINVAL, "queue pair 0x%x: it is being connected already", qp->num);
	if (state != FRL_QPS_RESET)
		return frl_fail(-EINVAL,
			"queue pair 0x%x is in %s: it must be in RESET to be connected", qp->num,
			frl_qp_state_str(state));
	if (!has_endpoint)
		return frl_fail(-EINVAL,
			"queue pair 0x%x: call frl_qp_endpoint() first and give the "
			"result to the peer",
			qp->num);
	return 0;
}

void connecting_unclaim(struct frl_qp *qp)
{
	device_enter(qp->pd->device);
	qp->connecting = false;
	device_leave(qp->pd->device);
}

/* Several processes may share a hardware port, and then share its addresses. */
static bool is_same_hardware(const struct frl_device *device, const struct endpoint *remote)
{
	return device->ops->is_hardware &&
		memcmp(remote->mac, device->attr.mac, sizeof(remote->mac)) == 0;
}

/* Links of the local fabric exist only within one kernel and one network namespace. */
static bool is_out_of_reach(const struct endpoint *own, const struct endpoint *remote)
{
	static const uint8_t unknown[ENDPOINT_HOST_SIZE];

	return own->local_fabric && memcmp(own->host, unknown, sizeof(unknown)) != 0 &&
		memcmp(remote->host, unknown, sizeof(unknown)) != 0 &&
		memcmp(own->host, remote->host, sizeof(own->host)) != 0;
}

/* Checks what both ends must have in common, and chooses their addresses. */
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
	if (is_out_of_reach(&own, remote))
		return frl_fail(-EHOSTUNREACH,
			"the peer is on another host or network namespace, which the local fabric "
			"does not reach: set FRL_FABRIC, or name a port (packet:eth0)");
	if (remote->type != own.type)
		return frl_fail(-EPROTO,
			"the ends' queue pairs are not of one type: this one is %d, the peer's %d",
			(int)own.type, (int)remote->type);
	if (!endpoint_choose(&own, remote, &own_index, &remote_index))
		return frl_fail(-EPROTO, "one end has an IPv4 address, the other an IPv6 address");
	c->remote_ip = remote->addresses[remote_index].ip;
	c->loop = memcmp(remote->nonce, device->nonce, NONCE_SIZE) == 0;
	if (c->loop != ip_equal(&c->remote_ip, &own.addresses[own_index].ip) &&
		!is_same_hardware(device, remote))
		return frl_fail(-EPROTO, "the peer %s has the address of this device",
			format_ip(&c->remote_ip));
	c->attr.ah.dgid = c->remote_ip;
	c->attr.ah.sgid_index = (uint8_t)(own_index + 1);
	return 0;
}

static void set_attributes(struct connecting *c, const struct frl_qp_attr *terms)
{
	const struct endpoint *remote = &c->remote;

	c->attr = *terms;
	c->attr.ah = (struct frl_ah_attr){
		.traffic_class = terms->ah.traffic_class,
		.hop_limit = DEFAULT_HOP_LIMIT,
	};
	c->attr.port_num = 1;
	if (remote->path_mtu < c->attr.path_mtu)
		c->attr.path_mtu = remote->path_mtu;
	if (remote->max_rd_atomic && remote->max_rd_atomic < c->attr.max_rd_atomic)
		c->attr.max_rd_atomic = remote->max_rd_atomic;
	c->attr.capabilities &= remote->capabilities;
	c->attr.dest_qpn = remote->qpn;
	c->attr.rq_psn = remote->psn;
	c->attr.sq_psn = c->qp->local_psn;
}

int connecting_begin(struct connecting *c, struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_qp_attr *terms)
{
	int rc;

	*c = (struct connecting){ .qp = qp };
	rc = endpoint_decode(remote, &c->remote);
	if (rc)
		return rc;
	set_attributes(c, terms);
	return check_pair(c);
}

/* Ethernet: the route of the driver, or of the kernel. */
static int find_route(struct connecting *c)
{
	struct frl_device *device = c->qp->pd->device;

	if (!device->ops->find_route)
		return 0;
	return device->ops->find_route(device, &c->attr.ah, c->remote.mac);
}

/* The name of a closed link stays in use for a moment: try again. */
static int open_link(struct connecting *c)
{
	struct frl_device *device = c->qp->pd->device;
	const struct endpoint *remote = &c->remote;
	uint64_t now_ns = clock_now_ns();
	int link;

	if (now_ns < c->next_try_ns)
		return -EAGAIN;
	c->next_try_ns = now_ns + NS_PER_MS;
	link = device->ops->link_open(device, &c->remote_ip, remote->mac, remote->nonce);
	if (link == -EADDRINUSE)
		return -EAGAIN;
	if (link < 0)
		return link;
	c->has_link = true;
	c->attr.ah.link = (uint16_t)link;
	return 0;
}

static int open_path(struct connecting *c)
{
	if (!c->remote.local_fabric)
		return find_route(c);
	memcpy(c->attr.ah.dmac, c->remote.mac, sizeof(c->attr.ah.dmac));
	return c->loop ? 0 : open_link(c);
}

/* The transitions to RTS: required attributes of all types, and those of RC in addition. */
static const struct {
	enum frl_qp_state state;
	uint32_t mask, rc_mask;
} states[] = {
	{ FRL_QPS_INIT, FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS, 0 },
	{ FRL_QPS_RTR,
		FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN | FRL_QP_CAPABILITIES,
		FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER },
	{ FRL_QPS_RTS, FRL_QP_SQ_PSN,
		FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY | FRL_QP_MAX_QP_RD_ATOMIC },
};

enum { STATES = sizeof(states) / sizeof(states[0]) };

static uint32_t next_mask(const struct connecting *c)
{
	bool rc = c->qp->type == FRL_QPT_RC;

	return FRL_QP_STATE | states[c->next_state].mask | (rc ? states[c->next_state].rc_mask : 0);
}

static int to_rts(struct connecting *c)
{
	for (; c->next_state < STATES; c->next_state++) {
		int rc;

		c->attr.state = states[c->next_state].state;
		rc = modify_qp_once(c->qp, &c->attr, next_mask(c));
		if (rc)
			return rc;
	}
	return 0;
}

static int wait_for_peer(struct connecting *c)
{
	struct frl_device *device = c->qp->pd->device;
	int rc = c->has_link ? device->ops->link_state(device, c->attr.ah.link) : 0;

	if (rc == -ECONNRESET)
		frl_fail(rc,
			"the link to the peer %s went down while connecting: the peer has ended, "
			"or this process lacks memory (see the log)",
			format_ip(&c->remote_ip));
	return rc;
}

static int take_step(struct connecting *c)
{
	switch (c->stage) {
	case CONNECTING_LINK: return open_path(c);
	case CONNECTING_READY: return to_rts(c);
	case CONNECTING_PEER: return wait_for_peer(c);
	case CONNECTING_DONE:
	case CONNECTING_FAILED: break;
	}
	return 0;
}

int connecting_step(struct connecting *c)
{
	struct frl_device *device = c->qp->pd->device;

	while (c->stage < CONNECTING_DONE) {
		int rc = take_step(c);

		if (rc && rc != -EAGAIN)
			connecting_abandon(c);
		if (rc)
			return rc;
		c->stage++;
	}
	/* The queue pair now holds the link. */
	if (c->has_link)
		device->ops->link_release(device, c->attr.ah.link, false);
	c->has_link = false;
	return 0;
}

void connecting_abandon(struct connecting *c)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	struct frl_device *device = c->qp->pd->device;

	if (c->stage >= CONNECTING_DONE)
		return;
	c->stage = CONNECTING_FAILED;
	if (device->ops->qp_clear_path)
		device->ops->qp_clear_path(c->qp);
	if (!c->has_link)
		return;
	/*
	 * The queue pair is unusable, and maybe the link too. RESET has no transition to ERR, and
	 * needs none: a failed attempt would replace the reason of the failure.
	 */
	if (qp_state(c->qp) != FRL_QPS_RESET)
		(void)device->ops->qp_modify(c->qp, &attr, FRL_QP_STATE);
	device->ops->link_release(device, c->attr.ah.link, true);
	c->has_link = false;
}

int connecting_time_out(struct connecting *c, int timeout_ms)
{
	int rc = -ETIMEDOUT;

	if (c->stage == CONNECTING_LINK)
		frl_fail(rc,
			"an earlier link to the peer %s still exists after %d ms: raise "
			"timeout_ms, and check that both ends have closed it",
			format_ip(&c->remote_ip), timeout_ms);
	else if (c->stage == CONNECTING_READY)
		rc = c->qp->pd->device->ops->qp_unanswered(c->qp, &c->attr, next_mask(c));
	else
		frl_fail(rc,
			"the peer %s did not create its end of the link within %d ms: is it "
			"connecting too?",
			format_ip(&c->remote_ip), timeout_ms);
	connecting_abandon(c);
	return rc;
}
