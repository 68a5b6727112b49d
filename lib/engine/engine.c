/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/engine/engine.h"
#include "lib/engine/stages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	REGIONS_FIRST = 256, /* slots of the memory table at the start */
	LINK_CHECK_INTERVAL_NS = 1000000,
	NOT_A_QPN_BELOW = 2, /* 0 is invalid, 1 is the GSI */
};

int engine_init(struct engine *e, const struct engine_config *config)
{
	struct region **slots;

	*e = (struct engine){
		.port = config->port,
		.ip = config->neighbors.ip,
		.next_deadline_ns = DEADLINE_NONE,
		.qp_cursor = NOT_A_QPN_BELOW,
	};
	neighbors_init(&e->neighbors, &config->neighbors);
	random_seed(&e->random, config->seed);
	list_init(&e->ready);
	e->qps = calloc(ENGINE_MAX_QPS, sizeof(e->qps[0]));
	if (!e->qps)
		return -ENOMEM;
	slots = malloc(REGIONS_FIRST * sizeof(slots[0]));
	if (!slots)
		goto err_free_qps;
	region_table_extend(&e->regions, slots, REGIONS_FIRST);
	/* Ports without links on demand use link 0 also for ARP. */
	if (!config->port->caps.on_demand && engine_use_link(e, 0))
		goto err_free_slots;
	return 0;

err_free_slots:
	free(slots);
err_free_qps:
	free(e->qps);
	return -ENOMEM;
}

void engine_fini(struct engine *e)
{
	for (unsigned i = 0; i < PORT_MAX_LINKS; i++)
		free(e->tx[i]);
	free(e->regions.slots);
	free(e->qps);
}

int engine_use_link(struct engine *e, uint16_t link)
{
	if (link >= PORT_MAX_LINKS)
		return -EINVAL;
	if (!e->tx[link])
		e->tx[link] = calloc(1, sizeof(*e->tx[link]));
	if (!e->tx[link])
		return -ENOMEM;
	if (link >= e->n_links)
		e->n_links = link + 1;
	return 0;
}

int engine_add_qp(struct engine *e, struct engine_qp *qp, struct qp_config *config)
{
	uint32_t high = (uint32_t)random_u64(&e->random) << ENGINE_QP_INDEX_BITS;

	if (e->n_qps == ENGINE_MAX_QPS - NOT_A_QPN_BELOW)
		return -ENOSPC;
	while (e->qps[e->qp_cursor])
		e->qp_cursor = e->qp_cursor + 1 < ENGINE_MAX_QPS ? e->qp_cursor + 1
								 : NOT_A_QPN_BELOW;
	config->qpn = (high | e->qp_cursor) & (QPN_MULTICAST >> 1);
	config->regions = &e->regions;
	config->stats = &e->stats;
	qp_init(&qp->core, config);
	list_init(&qp->ready);
	e->qps[e->qp_cursor] = qp;
	if (e->qp_cursor >= e->qp_end)
		e->qp_end = e->qp_cursor + 1;
	e->qp_cursor = e->qp_cursor + 1 < ENGINE_MAX_QPS ? e->qp_cursor + 1 : NOT_A_QPN_BELOW;
	e->n_qps++;
	return 0;
}

/*
 * The requests of a queue pair that has left RTS are over, and their memory is the application's as
 * soon as the guard is released: nothing of it may be sent any more, or be taken by a peer that
 * reads it in place. Without an ICRC nobody could tell that it has changed.
 */
static void end_sending(struct engine *e, struct engine_qp *qp)
{
	if (!qp->sending)
		return;
	qp->sending = false;
	engine_withdraw(e, qp->link, qp->core.qpn);
	if (e->port->caps.in_place)
		e->port->ops->revoke(e->port, qp->link, qp->core.qpn);
}

void engine_update(struct engine *e, struct engine_qp *qp)
{
	uint64_t deadline = qp_next_deadline(&qp->core);

	if (qp->core.state == FRL_QPS_RTS)
		qp->sending = true;
	else
		end_sending(e, qp);
	if (list_empty(&qp->ready) && qp_wants_output(&qp->core))
		list_add_tail(&e->ready, &qp->ready);
	/* A later deadline may be noted too early: finding nothing due costs one walk and mends
	 * it. */
	if (deadline < e->next_deadline_ns)
		e->next_deadline_ns = deadline;
}

/*
 * A link that tells of its peer's death keeps requests waiting for as long as that lives. So it
 * must hear that the other end of a connection is gone: its queue pair's number goes on answering.
 */
static void bury(struct engine *e, const struct engine_qp *qp)
{
	if (!qp->core.unlimited_retry || qp->core.state < FRL_QPS_RTR)
		return;
	e->graves[e->next_grave++ % ENGINE_GRAVES] = (struct engine_grave){
		.qpn = qp->core.qpn,
		.dest_qpn = qp->core.dest_qpn,
		.link = qp->link,
		.has_icrc = !(qp->core.capabilities & FRL_CAP_NO_ICRC),
		.path = qp->path,
	};
}

void engine_remove_qp(struct engine *e, struct engine_qp *qp)
{
	end_sending(e, qp);
	bury(e, qp);
	list_remove(&qp->ready);
	e->qps[qp->core.qpn & (ENGINE_MAX_QPS - 1)] = NULL;
	e->n_qps--;
}

/* What only the port knows; NULL when all is well. */
static const char *check_against_port(
	const struct engine *e, const struct frl_qp_attr *attr, uint32_t mask)
{
	struct port *port = e->port;

	if ((mask & FRL_QP_PATH_MTU) && attr->path_mtu > wire_largest_mtu(port->caps.max_frame))
		return "path_mtu is larger than the port carries";
	if (!(mask & FRL_QP_PATH))
		return NULL;
	if (ip_is_v4(&attr->remote_ip) != ip_is_v4(&e->ip))
		return "remote_ip is of another family than the device's address";
	if (attr->link >= PORT_MAX_LINKS ||
		port->ops->link_state(port, attr->link) == PORT_LINK_CLOSED)
		return "no such link";
	return NULL;
}

int engine_modify_qp(struct engine *e, struct engine_qp *qp, const struct frl_qp_attr *attr,
	uint32_t mask, const char **ret_why)
{
	const char *why = qp_check_modify(&qp->core, attr, mask);
	const struct frl_qp_attr *own = &qp->core.attr;
	struct wire_path_config path;
	int rc;

	if (!why)
		why = check_against_port(e, attr, mask);
	if (why) {
		*ret_why = why;
		return -EINVAL;
	}
	if ((mask & FRL_QP_PATH) && engine_use_link(e, attr->link)) {
		*ret_why = "no memory for the link's queue";
		return -ENOMEM;
	}
	rc = qp_modify(&qp->core, attr, mask, ret_why);
	if (rc)
		return rc;
	if (mask & FRL_QP_PATH) {
		path = (struct wire_path_config){
			.src_ip = e->ip,
			.dst_ip = own->remote_ip,
			.traffic_class = own->traffic_class,
			.hop_limit = own->hop_limit,
			.udp_src_port = wire_udp_src_port(qp->core.qpn, own->dest_qpn),
		};
		memcpy(path.src_mac, e->port->caps.mac, sizeof(path.src_mac));
		memcpy(path.dst_mac, own->remote_mac, sizeof(path.dst_mac));
		wire_path_init(&qp->path, &path);
		qp->link = own->link;
	}
	engine_update(e, qp);
	return 0;
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

void engine_remove_region(struct engine *e, struct region *region)
{
	region_remove(&e->regions, region);
}

/* Walks the queue pairs: the one at *index or after it, and *index is then behind it. */
static struct engine_qp *next_qp(const struct engine *e, uint32_t *index)
{
	while (*index < e->qp_end) {
		struct engine_qp *qp = e->qps[(*index)++];

		if (qp)
			return qp;
	}
	return NULL;
}

static void fire_deadlines(struct engine *e, uint64_t now_ns)
{
	struct engine_qp *qp;

	if (now_ns < e->next_deadline_ns)
		return;
	e->next_deadline_ns = DEADLINE_NONE;
	for (uint32_t i = 0; (qp = next_qp(e, &i));) {
		if (qp_next_deadline(&qp->core) <= now_ns)
			qp_on_deadline(&qp->core, now_ns);
		engine_update(e, qp);
	}
}

void engine_drop_link(struct engine *e, uint16_t link)
{
	struct engine_qp *qp;

	if (e->tx[link])
		e->tx[link]->head = e->tx[link]->tail;
	for (uint32_t i = 0; (qp = next_qp(e, &i));) {
		if (qp->link != link || qp->core.state < FRL_QPS_RTR)
			continue;
		qp_fail(&qp->core, FRL_WC_REM_ABORT_ERR);
		engine_update(e, qp);
	}
}

/* A queue that lost completions is of no more use to any queue pair on it. */
static void check_overruns(struct engine *e)
{
	struct engine_qp *qp;

	if (e->stats.cq_overruns == e->seen_overruns)
		return;
	/* Flushing may overrun other queues, of queue pairs that were passed: the next round sees
	 * to them. */
	e->seen_overruns = e->stats.cq_overruns;
	for (uint32_t i = 0; (qp = next_qp(e, &i));) {
		if (!qp->core.send_cq->overrun && !qp->core.recv_cq->overrun)
			continue;
		qp_fail(&qp->core, FRL_WC_WR_FLUSH_ERR);
		engine_update(e, qp);
	}
}

bool engine_link_used(const struct engine *e, uint16_t link)
{
	const struct engine_qp *qp;

	for (uint32_t i = 0; (qp = next_qp(e, &i));) {
		if (qp->link == link &&
			(qp->core.state == FRL_QPS_RTR || qp->core.state == FRL_QPS_RTS))
			return true;
	}
	return false;
}

static void check_links(struct engine *e, uint64_t now_ns)
{
	/* On Ethernet timers tell. */
	if (!e->port->caps.on_demand || now_ns < e->next_link_check_ns)
		return;
	e->next_link_check_ns = now_ns + LINK_CHECK_INTERVAL_NS;
	for (uint16_t i = 0; i < e->n_links; i++)
		if (e->tx[i] && e->port->ops->link_state(e->port, i) == PORT_LINK_DOWN)
			engine_drop_link(e, i);
}

static void ask_neighbors(struct engine *e, uint64_t now_ns)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	size_t len;

	if (e->port->caps.on_demand || now_ns < neighbors_next_deadline(&e->neighbors))
		return;
	while ((len = neighbors_output(&e->neighbors, frame, now_ns)))
		engine_queue_frame(e, 0, frame, len);
}

uint32_t engine_poll(struct engine *e, uint64_t now_ns)
{
	uint32_t moved = receive_burst(e, now_ns);

	fire_deadlines(e, now_ns);
	ask_neighbors(e, now_ns);
	moved += emit_packets(e, now_ns);
	flush_tx(e);
	check_links(e, now_ns);
	check_overruns(e);
	return moved;
}

uint64_t engine_next_deadline(const struct engine *e)
{
	uint64_t ask = e->port->caps.on_demand ? UINT64_MAX
					       : neighbors_next_deadline(&e->neighbors);

	return ask < e->next_deadline_ns ? ask : e->next_deadline_ns;
}
