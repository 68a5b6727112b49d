/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/engine/engine.h"
#include "lib/engine/offload/hooks.h"
#include "lib/engine/stages.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/wire/ether.h"

enum {
	REGIONS_FIRST = 256,                   /* initial slots of the region table */
	LINK_CHECK_INTERVAL_NS = 1000000,      /* on the local fabric */
	CARRIER_CHECK_INTERVAL_NS = 100000000, /* on Ethernet */
	NOT_A_QPN_BELOW = 2,                   /* 0 is invalid, 1 is the GSI */
	OFFLOADS_CHECK_NS = 20000,             /* shorter than a GPU launch */
};

static_assert((int)ENGINE_MAX_QPS == (int)PORT_FLOWS,
	"no two entries of qps[] are the same flow to a port");

static void init_addresses(struct engine *e, const struct engine_config *config)
{
	struct neighbors_config neighbors = config->neighbors;

	e->gids = config->gids;
	neighbors.gids = &e->gids;
	memcpy(neighbors.mac, e->port->caps.mac, sizeof(neighbors.mac));
	neighbors_init(&e->neighbors, &neighbors);
	groups_init(&e->groups, e->port->caps.on_demand);
}

/* A network port has one link, which also carries ARP and ICMP. Links of the local fabric are
 * added later. */
static int init_port(struct engine *e)
{
	const struct port *port = e->port;

	e->port_up = port->caps.on_demand || port->ops->link_state(e->port, 0) == PORT_LINK_UP;
	if (port->caps.on_demand)
		return 0;
	e->scratch_size = port->caps.max_frame + VLAN_LEN;
	e->scratch = malloc(e->scratch_size);
	if (!e->scratch)
		return -ENOMEM;
	return engine_use_link(e, 0);
}

int engine_init(struct engine *e, const struct engine_config *config)
{
	struct region **slots;

	*e = (struct engine){
		.port = config->port,
		.pkey = config->pkey,
		.mtu = config->mtu,
		.next_deadline_ns = DEADLINE_NONE,
		.qp_cursor = config->qpn_count ? 0 : NOT_A_QPN_BELOW,
		.qpn_first = config->qpn_first,
		.qpn_count = config->qpn_count,
	};
	assert(config->gids.n <= FRL_MAX_GIDS);
	init_addresses(e, config);
	random_seed(&e->random, config->seed);
	list_init(&e->ready);
	list_init(&e->timed);
	list_init(&e->ahs);
	event_queues_init(&e->events);
	event_source_init(&e->port_events, EVENT_OF_PORT, NULL);
	e->qps = calloc(ENGINE_MAX_QPS, sizeof(e->qps[0]));
	if (!e->qps)
		return -ENOMEM;
	slots = malloc(REGIONS_FIRST * sizeof(slots[0]));
	if (!slots)
		goto err_free_qps;
	region_table_extend(&e->regions, slots, REGIONS_FIRST);
	if (init_port(e))
		goto err_free_slots;
	return 0;

err_free_slots:
	free(e->scratch);
	free(slots);
err_free_qps:
	free(e->qps);
	return -ENOMEM;
}

void engine_fini(struct engine *e)
{
	if (e->offloads)
		e->offloads->fini(e);
	for (uint16_t i = 0; i < ENGINE_LINKS; i++) {
		free(e->tx[i]);
		engine_drop_time_wait(e, i);
	}
	free(e->scratch);
	free(e->regions.slots);
	free(e->qps);
}

void engine_port_closed(struct engine *e)
{
	if (e->offloads)
		e->offloads->port_closed(e);
}

int engine_use_link(struct engine *e, uint16_t link)
{
	if (link >= ENGINE_LINKS)
		return -EINVAL;
	if (!e->tx[link])
		e->tx[link] = calloc(1, sizeof(*e->tx[link]));
	if (!e->tx[link])
		return -ENOMEM;
	/* A new user of a link that is down must also see the link-down event. */
	e->tx[link]->down = false;
	if (link < PORT_MAX_LINKS && link >= e->n_links)
		e->n_links = link + 1;
	return 0;
}

static uint32_t next_index(uint32_t index)
{
	return index + 1 < ENGINE_MAX_QPS ? index + 1 : NOT_A_QPN_BELOW;
}

/* Picks the next free number of the configured range. At most ENGINE_MAX_QPS numbers are tried, as
 * slots are shared. */
static int choose_own_qpn(struct engine *e, uint32_t *ret_qpn)
{
	for (uint32_t i = 0; i < e->qpn_count && i < ENGINE_MAX_QPS; i++) {
		uint32_t qpn = e->qpn_first + e->qp_cursor;
		uint32_t index = qpn & (ENGINE_MAX_QPS - 1);

		e->qp_cursor = (e->qp_cursor + 1) % e->qpn_count;
		if (qpn >= QPN_MULTICAST || index < NOT_A_QPN_BELOW || e->qps[index])
			continue;
		*ret_qpn = qpn;
		e->n_qps++;
		return 0;
	}
	return -ENOSPC;
}

/* Picks a number with the low bits of a free slot. -ENOSPC. */
static int choose_qpn(struct engine *e, uint32_t *ret_qpn)
{
	uint32_t high = (uint32_t)random_u64(&e->random) << ENGINE_QP_INDEX_BITS;

	if (e->qpn_count)
		return choose_own_qpn(e, ret_qpn);
	if (e->n_qps == ENGINE_MAX_QPS - NOT_A_QPN_BELOW)
		return -ENOSPC;
	while (e->qps[e->qp_cursor])
		e->qp_cursor = next_index(e->qp_cursor);
	*ret_qpn = (high | e->qp_cursor) & (QPN_MULTICAST >> 1);
	e->qp_cursor = next_index(e->qp_cursor);
	e->n_qps++;
	return 0;
}

int engine_add_qp(struct engine *e, struct engine_qp *qp, struct qp_config *config)
{
	uint32_t index;
	int rc;

	*qp = (struct engine_qp){ .path.neighbor = -1, .pending_neighbor = -1 };
	if (e->offloads) {
		rc = e->offloads->add_qp(e, qp, config);
		if (rc)
			return rc;
	}
	if (config->type == FRL_QPT_GSI)
		rc = e->qps[QPN_GSI] ? -EBUSY : 0;
	else
		rc = choose_qpn(e, &config->qpn);
	if (rc) {
		if (e->offloads)
			e->offloads->remove_qp(e, qp);
		return rc;
	}
	if (config->type == FRL_QPT_GSI)
		config->qpn = QPN_GSI;
	config->pkey = e->pkey;
	config->port_mtu = e->mtu;
	config->regions = &e->regions;
	config->stats = &e->stats;
	config->queues = &e->events;
	/* A small window is kept exactly. */
	config->slack = e->port->caps.max_batch && config->window >= 4 * ENGINE_EMIT_QUANTUM
		? ENGINE_EMIT_QUANTUM - 1
		: 0;
	qp_init(&qp->core, config);
	list_init(&qp->ready);
	list_init(&qp->timed);
	index = config->qpn & (ENGINE_MAX_QPS - 1);
	e->qps[index] = qp;
	if (index >= e->qp_end)
		e->qp_end = index + 1;
	return 0;
}

/*
 * Withdraws the requests of a queue pair that cannot send any more. Their memory returns to the
 * application when the guard is released, so it must not be sent or read in place any more.
 * Without an ICRC the peer could not detect that it has changed.
 */
static void end_sending(struct engine *e, struct engine_qp *qp)
{
	if (!qp->sending)
		return;
	qp->sending = false;
	engine_withdraw(e, qp);
}

static void note_failure(const struct engine *e, struct engine_qp *qp)
{
	if (qp->core.state != FRL_QPS_ERR)
		qp->failed_ns = 0;
	else if (!qp->failed_ns)
		qp->failed_ns = e->now_ns;
}

void engine_update(struct engine *e, struct engine_qp *qp)
{
	uint64_t deadline = qp_next_deadline(&qp->core);

	if (qp_sends(&qp->core)) {
		qp->sending = true;
	} else {
		end_sending(e, qp);
		note_failure(e, qp);
		if (e->offloads && qp->failed_ns)
			e->offloads->fail_qp(e, qp);
	}
	if (list_empty(&qp->ready) && qp_wants_output(&qp->core))
		list_add_tail(&e->ready, &qp->ready);
	/* A deadline that moves later is not updated here. One visit then finds nothing to do and
	 * corrects it. */
	if (deadline < e->next_deadline_ns) {
		uint64_t look_ns = qp_next_look(&qp->core, e->next_probes_ns);

		if (look_ns < e->next_deadline_ns)
			e->next_deadline_ns = look_ns;
	}
	if (deadline != DEADLINE_NONE && list_empty(&qp->timed))
		list_add_tail(&e->timed, &qp->timed);
}

void engine_remove_qp(struct engine *e, struct engine_qp *qp)
{
	end_sending(e, qp);
	engine_enter_time_wait(e, qp);
	groups_detach_all(&e->groups, qp);
	release_path(e, qp);
	list_remove(&qp->ready);
	list_remove(&qp->timed);
	if (e->offloads)
		e->offloads->remove_qp(e, qp);
	list_remove(&qp->core.events.node);
	e->qps[qp->core.qpn & (ENGINE_MAX_QPS - 1)] = NULL;
	if (qp->core.qpn != QPN_GSI)
		e->n_qps--;
}

int engine_resize_cq(struct engine *e, struct cq *cq, struct frl_wc *entries, uint32_t count,
	struct frl_wc **ret_before)
{
	int rc = e->offloads ? e->offloads->resize_cq(cq, count) : 0;

	if (!rc)
		*ret_before = cq_move(cq, entries, count);
	return rc;
}

void engine_remove_cq(struct engine *e, struct cq *cq)
{
	list_remove(&cq->notify);
	list_remove(&cq->events.node);
	if (e->offloads)
		e->offloads->remove_cq(cq);
}

int engine_attach(struct engine *e, struct engine_qp *qp, const struct frl_ip *group,
	uint64_t now_ns, const char **ret_why)
{
	int rc;

	if (qp->core.type != FRL_QPT_UD) {
		*ret_why = "only UD queue pairs can be attached to a multicast group";
		return -EINVAL;
	}
	if (!ip_is_multicast(group)) {
		*ret_why = "not a multicast group: use 224.0.0.0 to 239.255.255.255, or "
			   "ff00::/8";
		return -EINVAL;
	}
	rc = groups_attach(&e->groups, group, qp, now_ns);
	if (rc)
		*ret_why = "too many groups, or too many queue pairs attached to them";
	return rc;
}

int engine_detach(
	struct engine *e, struct engine_qp *qp, const struct frl_ip *group, const char **ret_why)
{
	if (groups_detach(&e->groups, group, qp))
		return 0;
	*ret_why = "the queue pair is not attached to that group";
	return -EINVAL;
}

int engine_add_region(struct engine *e, struct region *region)
{
	struct region_table *t = &e->regions;
	struct region **slots, **old = t->slots;

	if (t->used == t->capacity) {
		if (t->capacity == REGION_MAX)
			return -ENOSPC;
		slots = malloc(2 * t->capacity * sizeof(slots[0]));
		if (!slots)
			return -ENOMEM;
		region_table_extend(t, slots, 2 * t->capacity);
		free(old);
	}
	region_add(t, region, random_u64(&e->random) & 0xffff);
	return 0;
}

void engine_release_region(struct engine *e, const struct region *region)
{
	if (e->offloads)
		e->offloads->release_region(e, region);
}

void engine_remove_region(struct engine *e, struct region *region)
{
	engine_release_region(e, region);
	region_remove(&e->regions, region);
}

void engine_set_peer(struct engine *e, uint16_t link, const struct frl_ip *ip, const uint8_t mac[6])
{
	e->peers[link] = (struct engine_peer){ .known = true, .ips = { gid_link_local(mac), *ip } };
	/* Multicast packets go there, although the link may have no transmit queue. */
	if (link >= e->n_links)
		e->n_links = link + 1;
}

/*
 * Returns true if the queue pair does not notice that the peer's device is gone: as on a network,
 * it has no request that waits for an answer. Its next packets are discarded (tx.c).
 */
static bool survives_link(const struct engine *e, const struct engine_qp *qp)
{
	return e->port->caps.on_demand && qp->core.as_hardware &&
		(qp->core.type != FRL_QPT_RC || !qp_n_requests(&qp->core));
}

void engine_drop_link(struct engine *e, uint16_t link)
{
	struct tx_queue *q = e->tx[link];
	struct engine_qp *qp;

	/* Connections first: their outstanding requests complete with errors. */
	for (uint32_t i = 0; (qp = engine_next_qp(e, &i));) {
		if (!engine_is_connected(qp) || qp->path.link != link)
			continue;
		if (survives_link(e, qp))
			qp->path.link = ENGINE_NO_LINK;
		else
			qp_fail(&qp->core, FRL_WC_REM_ABORT_ERR);
		engine_update(e, qp);
	}
	/* Datagrams are lost, as on any network. */
	if (e->port->caps.on_demand)
		forget_link(e, link);
	if (q) {
		engine_drop_datagrams(e, q);
		engine_packets_taken(e, q, (uint16_t)(q->tail - q->head));
		q->blocked = q->drops = false;
	}
	if (e->offloads)
		e->offloads->drop_link(e, link);
	engine_drop_time_wait(e, link);
}

void engine_revoke(struct engine *e)
{
	if (e->revoked)
		return;
	e->revoked = true;
	e->port_up = false;
	engine_drop_link(e, 0);
	event_raise(&e->events, &e->port_events, FRL_EVENT_DEVICE_FATAL);
}

/* Fails all queue pairs of a completion queue that lost completions. */
static void check_overruns(struct engine *e)
{
	struct engine_qp *qp;

	if (e->stats.cq_overruns == e->seen_overruns)
		return;
	/* Flushing may overrun further queues, of queue pairs already visited. The next round
	 * handles them. */
	e->seen_overruns = e->stats.cq_overruns;
	for (uint32_t i = 0; (qp = engine_next_qp(e, &i));) {
		if (!qp->core.send_cq->overrun && !qp->core.recv_cq->overrun)
			continue;
		qp_explain(&qp->core, "its completion queue overran with another queue pair's");
		/* The event reports the failure, as the queue has no room for a completion. */
		if (qp->core.state != FRL_QPS_RESET && qp->core.state != FRL_QPS_ERR)
			event_raise(&e->events, &qp->core.events, FRL_EVENT_QP_FATAL);
		qp_fail(&qp->core, FRL_WC_WR_FLUSH_ERR);
		engine_update(e, qp);
	}
}

bool engine_link_used(const struct engine *e, uint16_t link)
{
	const struct engine_qp *qp;

	for (uint32_t i = 0; (qp = engine_next_qp(e, &i));)
		if (engine_is_connected(qp) && qp->core.state != FRL_QPS_ERR &&
			qp->path.link == link)
			return true;
	for (struct list *node = e->ahs.next; node != &e->ahs; node = node->next)
		if (container_of(node, struct engine_ah, node)->core.link == link)
			return true;
	return false;
}

bool engine_link_queued(const struct engine *e, uint16_t link)
{
	return (link < ENGINE_LINKS && e->tx[link] && e->tx[link]->head != e->tx[link]->tail) ||
		(e->offloads && e->offloads->link_queued(e, link));
}

bool engine_is_held_up(const struct engine *e, const struct engine_qp *qp)
{
	if (qp_is_datagram(&qp->core) || !engine_is_connected(qp) ||
		qp->path.link >= ENGINE_LOOP_LINK)
		return false;
	return !engine_has_room(e, qp->path.link) || !engine_has_link(e, qp);
}

/* Reports a change of the carrier. Connections stay: the carrier may return, and timers detect
 * losses. */
static void check_carrier(struct engine *e)
{
	bool up = e->port->ops->link_state(e->port, 0) == PORT_LINK_UP;

	if (up == e->port_up)
		return;
	e->port_up = up;
	/* Only the last of the unread changes counts. */
	event_replace(&e->events, &e->port_events, up ? FRL_EVENT_PORT_ERR : FRL_EVENT_PORT_ACTIVE,
		up ? FRL_EVENT_PORT_ACTIVE : FRL_EVENT_PORT_ERR);
}

static void check_links(struct engine *e, uint64_t now_ns)
{
	bool on_demand = e->port->caps.on_demand;

	if (now_ns < e->next_link_check_ns)
		return;
	e->next_link_check_ns = now_ns +
		(on_demand ? LINK_CHECK_INTERVAL_NS : CARRIER_CHECK_INTERVAL_NS);
	if (!on_demand) {
		check_carrier(e);
		batch_report(e);
		return;
	}
	for (uint16_t i = 0; i < e->n_links; i++) {
		bool down = e->tx[i] && e->port->ops->link_state(e->port, i) == PORT_LINK_DOWN;

		if (down && !e->tx[i]->down)
			engine_drop_link(e, i);
		if (e->tx[i])
			e->tx[i]->down = down;
	}
}

static void send_neighbor_requests(struct engine *e, uint64_t now_ns)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	size_t len;

	while (engine_has_room(e, 0) && now_ns >= neighbors_next_deadline(&e->neighbors)) {
		len = neighbors_output(&e->neighbors, frame, now_ns);
		if (!len)
			break;
		engine_queue_frame(e, 0, frame, len);
	}
}

static void report_groups(struct engine *e, uint64_t now_ns)
{
	uint8_t frame[GROUP_MAX_FRAME];
	size_t len;

	while (engine_has_room(e, 0) && now_ns >= groups_next_deadline(&e->groups)) {
		len = groups_output(&e->groups, &e->gids, e->port->caps.mac, frame, now_ns);
		if (!len)
			break;
		engine_queue_frame(e, 0, frame, len);
	}
}

uint32_t engine_poll(struct engine *e, uint64_t now_ns)
{
	uint32_t moved = 0;

	e->now_ns = now_ns;
	if (e->offloads)
		moved = e->offloads->progress(e, now_ns);
	moved += receive_burst(e, now_ns);
	if (e->offloads)
		e->offloads->launch(e);
	follow_neighbors(e);
	fire_deadlines(e, now_ns);
	if (!e->port->caps.on_demand && !e->revoked) {
		send_neighbor_requests(e, now_ns);
		report_groups(e, now_ns);
	}
	moved += emit_packets(e, now_ns);
	flush_tx(e, now_ns);
	if (e->offloads)
		e->offloads->launch(e);
	if (!e->revoked)
		check_links(e, now_ns);
	check_overruns(e);
	return moved;
}

void engine_send(struct engine *e, uint64_t now_ns)
{
	e->now_ns = now_ns;
	emit_packets(e, now_ns);
	flush_tx(e, now_ns);
}

bool engine_offloads_busy(const struct engine *e)
{
	return e->offloads && e->offloads->is_busy(e);
}

uint64_t engine_next_deadline(const struct engine *e)
{
	uint64_t next = e->next_deadline_ns;

	if (engine_offloads_busy(e) && e->now_ns + OFFLOADS_CHECK_NS < next)
		next = e->now_ns + OFFLOADS_CHECK_NS;
	if (e->port->caps.on_demand || e->revoked)
		return next;
	if (neighbors_next_deadline(&e->neighbors) < next)
		next = neighbors_next_deadline(&e->neighbors);
	if (groups_next_deadline(&e->groups) < next)
		next = groups_next_deadline(&e->groups);
	return next;
}
