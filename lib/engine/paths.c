/* SPDX-License-Identifier: BSD-3-Clause */
/* Paths of connected queue pairs and address handles. */
#include "lib/engine/stages.h"

#include <errno.h>
#include <string.h>

#include "lib/engine/offload/hooks.h"

enum {
	DEFAULT_HOP_LIMIT = 64,
	MAX_SERVICE_LEVEL = 7,
	MAX_FLOW_LABEL = 0xfffff,
};

/* Parts of a path that are not in the attributes. */
struct route {
	uint16_t link;
	int neighbor; /* with a user added, or -1 */
	bool known;   /* `dmac` is resolved */
	uint8_t dmac[6];
};

static const uint8_t no_mac[6];

/* Returns true for an address of a single host: not unspecified, loopback or multicast. */
static bool is_host_address(const struct frl_ip *ip)
{
	static const struct frl_ip unspecified, loopback = { { [15] = 1 } };
	uint8_t first = ip->bytes[12];

	if (ip_is_v4(ip))
		return first != 0 && first != 127 && first < 224;
	return !ip_is_multicast(ip) && !ip_equal(ip, &unspecified) && !ip_equal(ip, &loopback);
}

static bool is_own(const struct engine *e, const struct frl_ah_attr *attr)
{
	return gid_find(&e->gids, &attr->dgid, e->gids.gids[attr->sgid_index].vlan) >= 0;
}

bool engine_is_for_all_links(const struct engine *e, const struct frl_ah_attr *attr)
{
	return e->port->caps.on_demand && ip_is_multicast(&attr->dgid) &&
		mac_equal(attr->dmac, no_mac);
}

/* Returns what is wrong with the attributes, or NULL. */
static const char *check_attr(const struct engine *e, const struct frl_ah_attr *attr)
{
	const struct port_ops *ops = e->port->ops;

	if (attr->sgid_index >= e->gids.n)
		return "the device has no GID at sgid_index";
	if (ip_is_v4(&attr->dgid) != ip_is_v4(&e->gids.gids[attr->sgid_index].ip))
		return "dgid is not of the same family as the GID at sgid_index";
	if (!ip_is_multicast(&attr->dgid) && !is_host_address(&attr->dgid))
		return "dgid is not a host address";
	if (attr->sl > MAX_SERVICE_LEVEL)
		return "sl is larger than 7";
	if (attr->flow_label > MAX_FLOW_LABEL)
		return "flow_label has more than 20 bits";
	if (is_own(e, attr) || engine_is_for_all_links(e, attr))
		return NULL;
	if (e->port->caps.on_demand &&
		(attr->link >= PORT_MAX_LINKS ||
			ops->link_state(e->port, attr->link) == PORT_LINK_CLOSED))
		return "no such link";
	if (ip_is_multicast(&attr->dgid))
		return NULL;
	if (attr->dmac[0] & 1)
		return "dmac is the address of a group";
	if (e->port->caps.on_demand && mac_equal(attr->dmac, no_mac))
		return "dmac is missing: the local fabric has no address resolution";
	return NULL;
}

static int resolve(struct engine *e, const struct frl_ah_attr *attr, uint64_t now_ns,
	struct route *route, const char **ret_why)
{
	struct frl_ip hop;

	if (!neighbors_next_hop(&e->neighbors, attr->sgid_index, &attr->dgid, &hop)) {
		*ret_why = "dgid is not in a subnet of this port and there is no gateway: check "
			   "the addresses and prefix lengths, or give a gateway";
		return -EHOSTUNREACH;
	}
	route->neighbor = neighbors_get(&e->neighbors, &hop, attr->sgid_index, now_ns);
	if (route->neighbor < 0) {
		*ret_why = "too many neighbors are in use";
		return -ENOMEM;
	}
	route->known = neighbors_mac(&e->neighbors, route->neighbor, route->dmac);
	return 0;
}

/* Fills `route` from attributes that were checked. */
static int find_route(struct engine *e, const struct frl_ah_attr *attr, uint64_t now_ns,
	struct route *route, const char **ret_why)
{
	int rc = 0;

	*route = (struct route){ .neighbor = -1, .known = true };
	if (e->port->caps.on_demand)
		route->link = attr->link;
	if (is_own(e, attr)) {
		route->link = ENGINE_LOOP_LINK;
		memcpy(route->dmac, e->port->caps.mac, sizeof(route->dmac));
	} else if (ip_is_multicast(&attr->dgid)) {
		if (engine_is_for_all_links(e, attr))
			route->link = ENGINE_GROUP_LINK;
		wire_multicast_mac(&attr->dgid, route->dmac);
	} else if (!mac_equal(attr->dmac, no_mac)) {
		memcpy(route->dmac, attr->dmac, sizeof(route->dmac));
	} else {
		rc = resolve(e, attr, now_ns, route, ret_why);
	}
	if (rc || !engine_use_link(e, route->link))
		return rc;
	neighbors_put(&e->neighbors, route->neighbor);
	*ret_why = "no memory for the link's queue, or no such link";
	return -ENOMEM;
}

static void init_path(const struct engine *e, const struct frl_ah_attr *attr,
	const struct route *route, uint16_t udp_src_port, struct wire_path *path)
{
	const struct frl_gid *gid = &e->gids.gids[attr->sgid_index];
	struct wire_path_config config = {
		.src_ip = gid->ip,
		.dst_ip = attr->dgid,
		.vlan = gid->vlan,
		.priority = gid->vlan ? attr->sl : 0,
		.traffic_class = attr->traffic_class,
		.hop_limit = attr->hop_limit ? attr->hop_limit : DEFAULT_HOP_LIMIT,
		.flow_label = attr->flow_label,
		.udp_src_port = udp_src_port,
	};

	memcpy(config.src_mac, e->port->caps.mac, sizeof(config.src_mac));
	memcpy(config.dst_mac, route->dmac, sizeof(config.dst_mac));
	wire_path_init(path, &config);
}

void engine_clear_path(struct engine *e, struct engine_qp *qp)
{
	neighbors_put(&e->neighbors, qp->pending_neighbor);
	qp->pending_neighbor = -1;
}

void release_path(struct engine *e, struct engine_qp *qp)
{
	engine_clear_path(e, qp);
	neighbors_put(&e->neighbors, qp->path.neighbor);
	qp->path = (struct engine_path){ .neighbor = -1 };
}

/* Takes over the neighbor entry that was requested. */
static void set_path(struct engine *e, struct engine_qp *qp, const struct route *route)
{
	const struct frl_qp_attr *own = &qp->core.attr;

	/* Requests queued for the old path are sent again. UC and datagrams leave by the old path.
	 */
	if (qp->sending && qp->core.type == FRL_QPT_RC && qp->path.link != route->link)
		engine_withdraw(e, qp);
	init_path(e, &own->ah, route,
		e->port->caps.on_demand
			? engine_fabric_port(qp->core.qpn)
			: wire_udp_src_port(own->ah.flow_label, qp->core.qpn, own->dest_qpn),
		&qp->path.wire);
	qp->path.link = route->link;
	neighbors_put(&e->neighbors, qp->path.neighbor);
	qp->path.neighbor = qp->pending_neighbor;
	qp->pending_neighbor = -1;
}

static const char *check_modify(const struct engine *e, const struct engine_qp *qp,
	const struct frl_qp_attr *attr, uint32_t mask)
{
	const char *why = qp_check_modify(&qp->core, attr, mask);

	if (why)
		return why;
	if ((mask & FRL_QP_PATH_MTU) && attr->path_mtu > e->mtu)
		return "path_mtu is larger than the device's";
	if ((mask & FRL_QP_CAPABILITIES) && (attr->capabilities & FRL_CAP_NO_ICRC) &&
		!e->port->caps.on_demand && !e->port->caps.lossless && !e->port->caps.has_far)
		return "NO_ICRC is for the local fabric, and for ports that receive into GPU "
		       "memory: on other networks every packet has an ICRC";
	if (!(mask & FRL_QP_AV))
		return NULL;
	if (ip_is_multicast(&attr->ah.dgid))
		return "dgid is a multicast group: only datagrams go there";
	return check_attr(e, &attr->ah);
}

/* Returns true if packets of that MTU would not arrive. */
static bool is_too_long_for(const struct engine *e, uint16_t link, uint32_t path_mtu)
{
	uint32_t frame = 0;

	if (e->port->ops->link_frame && link != ENGINE_LOOP_LINK)
		frame = e->port->ops->link_frame(e->port, link);
	return frame && path_mtu > wire_largest_mtu(frame);
}

static bool needs_port(enum frl_qp_state state)
{
	return state != FRL_QPS_RESET && state != FRL_QPS_INIT && state != FRL_QPS_ERR;
}

int engine_modify_qp(struct engine *e, struct engine_qp *qp, const struct frl_qp_attr *attr,
	uint32_t mask, uint64_t now_ns, const char **ret_why)
{
	const char *why = check_modify(e, qp, attr, mask);
	struct route route;
	int rc;

	if (why) {
		*ret_why = why;
		return -EINVAL;
	}
	if (e->revoked && (mask & FRL_QP_STATE) && needs_port(attr->state)) {
		*ret_why = "the device has lost its addresses: open another device";
		return -ENETDOWN;
	}
	if (mask & FRL_QP_AV) {
		rc = find_route(e, &attr->ah, now_ns, &route, ret_why);
		if (rc)
			return rc;
		/* The new entry was taken first: it may be the same, and must survive. */
		neighbors_put(&e->neighbors, qp->pending_neighbor);
		qp->pending_neighbor = route.neighbor;
		if (!route.known) {
			*ret_why = "the next hop has not answered yet";
			return -EAGAIN;
		}
	}
	if ((mask & FRL_QP_AV) && (mask & FRL_QP_PATH_MTU) &&
		is_too_long_for(e, route.link, attr->path_mtu)) {
		*ret_why = "path_mtu is larger than that of the device at the link's other end";
		return -EINVAL;
	}
	/* Before the reset erases the peer. */
	if ((mask & FRL_QP_STATE) && attr->state == FRL_QPS_RESET)
		engine_enter_time_wait(e, qp);
	rc = qp_modify(&qp->core, attr, mask, ret_why);
	if (rc)
		return rc;
	if (mask & FRL_QP_AV)
		set_path(e, qp, &route);
	engine_update(e, qp);
	if (qp->core.state == FRL_QPS_RESET) {
		release_path(e, qp);
		memset(qp->trials, 0, sizeof(qp->trials));
		if (e->offloads)
			e->offloads->reset_qp(e, qp);
	}
	return 0;
}

int engine_add_ah(struct engine *e, struct engine_ah *ah, const struct frl_ah_attr *attr,
	uint64_t now_ns, const char **ret_why)
{
	const char *why = check_attr(e, attr);
	struct route route;
	int rc;

	list_init(&ah->node);
	ah->neighbor = -1;
	if (why) {
		*ret_why = why;
		return -EINVAL;
	}
	rc = find_route(e, attr, now_ns, &route, ret_why);
	if (rc)
		return rc;
	ah->core.link = route.link;
	ah->core.flow_label = attr->flow_label;
	init_path(e, attr, &route, 0, &ah->core.path);
	ah->neighbor = route.neighbor;
	list_add_tail(&e->ahs, &ah->node);
	if (route.known)
		return 0;
	*ret_why = "the next hop has not answered yet";
	return -EAGAIN;
}

bool engine_ah_ready(const struct engine *e, const struct engine_ah *ah)
{
	uint8_t mac[6];

	return ah->neighbor < 0 || neighbors_mac(&e->neighbors, ah->neighbor, mac);
}

void engine_remove_ah(struct engine *e, struct engine_ah *ah)
{
	list_remove(&ah->node);
	neighbors_put(&e->neighbors, ah->neighbor);
	ah->neighbor = -1;
}

static void follow(const struct engine *e, int neighbor, struct wire_path *path)
{
	uint8_t mac[6];

	if (neighbor >= 0 && neighbors_mac(&e->neighbors, neighbor, mac))
		wire_path_set_dst_mac(path, mac);
}

void follow_neighbors(struct engine *e)
{
	struct engine_qp *qp;

	if (e->seen_neighbors == e->neighbors.generation)
		return;
	e->seen_neighbors = e->neighbors.generation;
	for (uint32_t i = 0; (qp = engine_next_qp(e, &i));)
		follow(e, qp->path.neighbor, &qp->path.wire);
	for (struct list *node = e->ahs.next; node != &e->ahs; node = node->next) {
		struct engine_ah *ah = container_of(node, struct engine_ah, node);

		follow(e, ah->neighbor, &ah->core.path);
	}
}

/* Redirects datagrams that are posted and not yet sent. */
static void clear_targets(struct qp *qp, uint16_t link)
{
	struct requester *r = &qp->requester;

	for (uint32_t i = r->head; i != r->tail; i++) {
		struct datagram_target *target = r->wqes[i & r->mask].target;

		if (target->link == link)
			target->link = ENGINE_NO_LINK;
	}
}

void forget_link(struct engine *e, uint16_t link)
{
	struct engine_qp *qp;

	for (struct list *node = e->ahs.next; node != &e->ahs; node = node->next) {
		struct engine_ah *ah = container_of(node, struct engine_ah, node);

		if (ah->core.link == link)
			ah->core.link = ENGINE_NO_LINK;
	}
	for (uint32_t i = 0; (qp = engine_next_qp(e, &i));)
		if (qp_is_datagram(&qp->core))
			clear_targets(&qp->core, link);
}
