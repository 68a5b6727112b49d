/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/endpoint.h"

#include "tests/sim/common/fail.h"
#include "tests/sim/oracle/oracle.h"
#include "tests/sim/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t power_of_two(uint32_t n)
{
	uint32_t power = 1;

	while (power < n)
		power *= 2;
	return power;
}

static struct sim_cq *cq_create(struct endpoint *endpoint, struct sim_cq *cq, uint32_t entries)
{
	entries = power_of_two(entries);
	SIM_CHECK(entries <= ENDPOINT_CQ, "a queue of %u completions", entries);
	cq_init(&cq->cq, sim_alloc(entries, sizeof(struct frl_wc)), entries,
		&endpoint->node->engine.events);
	return cq;
}

static void choose_cqs(struct endpoint *endpoint)
{
	uint32_t n_send = endpoint->lazy ? 1 : endpoint->n_send;
	uint32_t n_recv = endpoint->lazy ? 1 : endpoint->inbox->n;
	struct sim_cq *shared = &endpoint->node->shared_cq;

	if (endpoint->world->config.shared_cqs) {
		if (!shared->cq.entries)
			cq_create(endpoint, shared, endpoint->lazy ? 2 : 1024);
		endpoint->send_cq = endpoint->recv_cq = shared;
	} else if (random_below(&endpoint->world->random, 2)) {
		endpoint->send_cq = cq_create(endpoint, &endpoint->own_cqs[0], n_send + n_recv);
		endpoint->recv_cq = endpoint->send_cq;
	} else {
		endpoint->send_cq = cq_create(endpoint, &endpoint->own_cqs[0], n_send);
		endpoint->recv_cq = cq_create(endpoint, &endpoint->own_cqs[1], n_recv);
	}
}

static void init_counter(struct endpoint *endpoint, uint32_t access)
{
	struct node *node = endpoint->node;
	struct port *port = &node->port.base;
	struct region *region = &endpoint->counter;
	struct port_mem *mem;

	*region = (struct region){
		.addr = (uint8_t *)&node->counter,
		.length = sizeof(node->counter),
		.iova = (uintptr_t)&node->counter,
		.access = access,
		.pd = endpoint->pd,
	};
	SIM_CHECK(port->ops->mem_map(port, region->addr, region->length, &mem) == 0, "mem_map");
	region->port_mem = mem;
	SIM_CHECK(engine_add_region(&node->engine, region) == 0, "add_region");
}

static void init_memory(struct endpoint *endpoint, uint32_t longest)
{
	const uint32_t rights = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE |
		FRL_ACCESS_REMOTE_READ | FRL_ACCESS_REMOTE_ATOMIC;
	struct random_state *random = &endpoint->world->random;
	struct node *node = endpoint->node;
	struct engine *engine = &node->engine;

	if (endpoint->shares) {
		endpoint->inbox = &node->inbox;
		endpoint->pd = &node->pd;
	} else {
		endpoint->inbox = &endpoint->own_inbox;
		endpoint->pd = &endpoint->own_pd;
		inbox_init(endpoint->inbox, node, endpoint->pd, endpoint->n_recv, longest, random);
	}
	endpoint->slot_size = script_slot_size(longest);
	memory_init(&endpoint->target, engine, endpoint->pd,
		endpoint->window_size + SCRIPT_COUNTERS * SCRIPT_ATOMIC,
		rights | FRL_ACCESS_MW_BIND, random);
	memory_init(&endpoint->source, engine, endpoint->pd, endpoint->n_send * endpoint->slot_size,
		0, random);
	memory_init(&endpoint->results, engine, endpoint->pd,
		endpoint->n_send * endpoint->slot_size, FRL_ACCESS_LOCAL_WRITE, random);
	if (!endpoint->lawless)
		init_counter(endpoint, rights);
}

static void init_windows(struct endpoint *endpoint)
{
	endpoint->n_windows = endpoint->script.n_local;
	endpoint->windows = sim_alloc(endpoint->n_windows, sizeof(struct window));
	for (uint32_t i = 0; i < endpoint->n_windows; i++) {
		struct region *region = &endpoint->windows[i].region;

		region->is_window = true;
		region->pd = endpoint->pd;
		SIM_CHECK(engine_add_region(&endpoint->node->engine, region) == 0, "add_region");
		endpoint->windows[i].key = region->key;
	}
}

void endpoint_init(struct endpoint *endpoint, uint32_t longest)
{
	struct qp_config config;

	init_memory(endpoint, longest);
	init_windows(endpoint);
	choose_cqs(endpoint);
	endpoint->recv_request = ENDPOINT_NO_RECV;
	endpoint->qp = sim_alloc(1, sizeof(*endpoint->qp));
	config = (struct qp_config){
		.type = endpoint->type,
		.pkey = PKEY_DEFAULT,
		.pd = endpoint->pd,
		.send_cq = &endpoint->send_cq->cq,
		.recv_cq = &endpoint->recv_cq->cq,
		.srq = endpoint->inbox->srq,
		.max_send_wr = endpoint->n_send,
		.max_recv_wr = endpoint->shares ? 0 : endpoint->n_recv,
		.max_send_sge = FRL_MAX_SGE,
		.max_recv_sge = FRL_MAX_SGE,
		.max_inline = FRL_MAX_INLINE,
		.sq_sig_all = endpoint->sig_all,
		.window = endpoint->window,
		.unlimited_retry = endpoint->patient,
	};
	endpoint->storage = sim_alloc(1, qp_storage_size(&config));
	config.storage = endpoint->storage;
	SIM_CHECK(engine_add_qp(&endpoint->node->engine, endpoint->qp, &config) == 0, "add_qp");
	endpoint->qpn = endpoint->qp->core.qpn;
}

/* Returns false to try again. */
static bool try_modify(struct endpoint *endpoint, enum frl_qp_state state, uint32_t mask)
{
	const char *why = "";
	int rc;

	endpoint->attr.state = state;
	rc = engine_modify_qp(&endpoint->node->engine, endpoint->qp, &endpoint->attr,
		FRL_QP_STATE | mask, endpoint->world->clock.now_ns, &why);
	SIM_CHECK(rc == 0 || rc == -EAGAIN, "endpoint %u to %d: %s", endpoint->index, state, why);
	engine_update(&endpoint->node->engine, endpoint->qp);
	return rc == 0;
}

static void modify(struct endpoint *endpoint, enum frl_qp_state state, uint32_t mask)
{
	SIM_CHECK(try_modify(endpoint, state, mask), "endpoint %u to %d: not now", endpoint->index,
		state);
}

static bool make_handle(struct endpoint *endpoint, struct engine_ah *ah, bool *added,
	const struct frl_ah_attr *attr)
{
	struct engine *engine = &endpoint->node->engine;
	const char *why = "";
	int rc;

	if (*added)
		return engine_ah_ready(engine, ah);
	ah->core.pd = endpoint->pd;
	rc = engine_add_ah(engine, ah, attr, endpoint->world->clock.now_ns, &why);
	SIM_CHECK(rc == 0 || rc == -EAGAIN, "endpoint %u: no address handle: %s", endpoint->index,
		why);
	*added = true;
	return rc == 0;
}

static bool prepare_datagrams(struct endpoint *endpoint)
{
	struct frl_ah_attr group = endpoint->attr.ah;
	const char *why = "";

	/* On the local fabric, its MAC address says that the link is chosen. */
	group.dgid = world_group(ip_is_v4(&group.dgid));
	if (!make_handle(endpoint, &endpoint->ah, &endpoint->has_ah, &endpoint->attr.ah))
		return false;
	if (!make_handle(endpoint, &endpoint->group_ah, &endpoint->has_group_ah, &group))
		return false;
	modify(endpoint, FRL_QPS_INIT, FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_QKEY);
	modify(endpoint, FRL_QPS_RTR, 0);
	SIM_CHECK(engine_attach(&endpoint->node->engine, endpoint->qp, &group.dgid,
			  endpoint->world->clock.now_ns, &why) == 0,
		"endpoint %u: no group: %s", endpoint->index, why);
	return true;
}

bool endpoint_connect(struct endpoint *endpoint)
{
	uint32_t mask = FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN |
		FRL_QP_CAPABILITIES;

	if (endpoint->type == FRL_QPT_UD)
		return prepare_datagrams(endpoint);
	if (endpoint->qp->core.state == FRL_QPS_RESET)
		modify(endpoint, FRL_QPS_INIT,
			FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS);
	if (endpoint_is_reliable(endpoint))
		mask |= FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER;
	return try_modify(endpoint, FRL_QPS_RTR, mask);
}

void endpoint_start(struct endpoint *endpoint)
{
	uint32_t mask = FRL_QP_SQ_PSN;

	if (endpoint_is_reliable(endpoint))
		mask |= FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
			FRL_QP_MAX_QP_RD_ATOMIC;
	modify(endpoint, FRL_QPS_RTS, mask);
}

/* The first packet of the first request that has sent none. */
static uint32_t first_unsent(const struct endpoint *endpoint)
{
	const struct requester *r = &endpoint->qp->core.requester;
	uint32_t sent = (uint32_t)psn_diff(r->sent_end, psn_make(endpoint->attr.sq_psn));

	for (uint32_t i = endpoint->acked; i < endpoint->script.n_messages; i++) {
		const struct message *message = &endpoint->script.messages[i];

		if (message->n_packets && message->first_packet >= sent)
			return message->first_packet;
	}
	return endpoint->script.n_packets;
}

void endpoint_drain(struct endpoint *endpoint)
{
	struct drain *drain = &endpoint->drain;
	struct frl_qp_attr attr;

	if (endpoint->qp->core.state == FRL_QPS_RTS && drain->wanted &&
		endpoint->send.posted >= drain->after) {
		drain->wanted = false;
		drain->started = true;
		drain->limit = first_unsent(endpoint);
		endpoint->attr.en_sqd_async_notify = drain->notify;
		modify(endpoint, FRL_QPS_SQD, FRL_QP_EN_SQD_ASYNC_NOTIFY);
		return;
	}
	if (endpoint->qp->core.state != FRL_QPS_SQD)
		return;
	qp_query(&endpoint->qp->core, &attr);
	if (attr.sq_draining)
		return;
	SIM_CHECK(drain->notified == drain->notify,
		"endpoint %u: drained, and was not told, or was not to be told", endpoint->index);
	endpoint->world->tally->drains++;
	endpoint->world->tally->drains_told += drain->notified;
	if (endpoint_is_reliable(endpoint) && random_below(&endpoint->world->random, 2)) {
		endpoint->attr.min_rnr_timer = 1;
		modify(endpoint, FRL_QPS_SQD, FRL_QP_MIN_RNR_TIMER);
	}
	modify(endpoint, FRL_QPS_RTS, 0);
}

void endpoint_to_error(struct endpoint *endpoint)
{
	endpoint->app_error = true;
	modify(endpoint, FRL_QPS_ERR, 0);
}

/* Posted requests must not be read any more: they are freed. */
void endpoint_remove_qp(struct endpoint *endpoint)
{
	const struct recv_wqe *taken;

	if (endpoint->removed)
		return;
	/* A receive of a shared queue that was taken for an unfinished message is lost with the
	 * message. */
	taken = endpoint->qp->core.responder.recv;
	if (endpoint->shares && taken)
		inbox_slot(endpoint->inbox, (uint32_t)taken->wr_id)->state = INBOX_FREE;
	endpoint->removed = true;
	engine_remove_qp(&endpoint->node->engine, endpoint->qp);
	free(endpoint->qp);
	free(endpoint->storage);
	endpoint->qp = NULL;
}

void endpoint_fini(struct endpoint *endpoint)
{
	struct engine *engine = &endpoint->node->engine;

	endpoint_remove_qp(endpoint);
	if (endpoint->has_ah)
		engine_remove_ah(engine, &endpoint->ah);
	if (endpoint->has_group_ah)
		engine_remove_ah(engine, &endpoint->group_ah);
	for (uint32_t i = 0; i < endpoint->n_windows; i++)
		engine_remove_region(engine, &endpoint->windows[i].region);
	free(endpoint->windows);
	if (!endpoint->shares)
		inbox_fini(endpoint->inbox);
	memory_fini(&endpoint->target);
	memory_fini(&endpoint->source);
	memory_fini(&endpoint->results);
	if (endpoint->counter.port_mem) {
		engine_remove_region(engine, &endpoint->counter);
		engine->port->ops->mem_unmap(engine->port, endpoint->counter.port_mem);
	}
	for (int i = 0; i < 2; i++) {
		if (endpoint->own_cqs[i].cq.entries)
			engine_remove_cq(engine, &endpoint->own_cqs[i].cq);
		free(endpoint->own_cqs[i].cq.entries);
	}
	script_fini(&endpoint->script);
}

static bool has_gone(const struct endpoint *endpoint)
{
	return endpoint->removed || endpoint->node->frozen ||
		endpoint->qp->core.state == FRL_QPS_ERR;
}

static bool receives_done(const struct endpoint *endpoint)
{
	/* A result that the peer must give is due when the peer has sent it. */
	if (!endpoint_is_reliable(endpoint) || endpoint->silent || endpoint->lazy ||
		endpoint->lawless || has_gone(endpoint->peer))
		return true;
	if (endpoint->shares)
		return endpoint->accepted == endpoint->peer->script.n_packets;
	return endpoint->recv.polled >= endpoint->peer->script.n_recvs;
}

bool endpoint_done(const struct endpoint *endpoint)
{
	if (endpoint->removed || endpoint->node->frozen)
		return true;
	if (endpoint->qp->core.state == FRL_QPS_ERR)
		return endpoint->lazy || endpoint->send_cq->cq.overrun ||
			endpoint->recv_cq->cq.overrun ||
			(endpoint->send.polled == endpoint->send.last &&
				(endpoint->shares || endpoint->recv.polled == endpoint->recv.last));
	if (endpoint->send.posted < endpoint->script.n_messages)
		return false;
	if (endpoint->lazy ? endpoint->acked < endpoint->send.posted
			   : endpoint->send.polled < endpoint->send.posted)
		return false;
	return receives_done(endpoint);
}

uint64_t endpoint_wr_id(const struct endpoint *endpoint, bool recv, uint32_t sequence)
{
	uint64_t whose = recv && endpoint->shares ? ENDPOINT_OF_SRQ : endpoint->index;

	return (uint64_t)recv << 63 | whose << 32 | sequence;
}

struct endpoint *endpoint_of(struct node *node, const struct frl_wc *wc)
{
	struct world *world = node->world;
	uint64_t index = wc->wr_id << 1 >> 33;

	for (uint32_t i = 0; i < world->n_endpoints && index == ENDPOINT_OF_SRQ; i++)
		if (world->endpoints[i].qpn == wc->qp_num && world->endpoints[i].node == node)
			return &world->endpoints[i];
	SIM_CHECK(index < world->n_endpoints, "a completion of nobody: %llx",
		(unsigned long long)wc->wr_id);
	return &world->endpoints[index];
}

/* A slot is the application's again: only repetitions still refer to it. */
static void reuse_slots(struct endpoint *endpoint, uint32_t from, uint32_t to)
{
	for (; from != to; from++) {
		memory_fill(&endpoint->source, send_slot(endpoint, from), SIM_PORT_AFTER_USE,
			endpoint->slot_size);
		memory_fill(&endpoint->results, send_slot(endpoint, from), SIM_PORT_AFTER_USE,
			endpoint->slot_size);
	}
}

static bool poll_one(struct endpoint *endpoint, struct sim_cq *cq)
{
	struct progress *progress;
	struct endpoint *of;
	struct frl_wc wc;

	if (!cq_pop(&cq->cq, &wc))
		return false;
	of = endpoint_of(endpoint->node, &wc);
	oracle_check_polled(of, &wc);
	progress = wc_is_recv(&wc) ? &of->recv : &of->send;
	if (wc_is_recv(&wc))
		inbox_slot(of->inbox, wc_sequence(&wc))->state = INBOX_FREE;
	if (wc_is_recv(&wc) && of->shares) {
		progress->polled++;
		return true;
	}
	SIM_CHECK(wc_sequence(&wc) < progress->checked && wc_sequence(&wc) >= progress->polled,
		"endpoint %u: completion %u polled out of turn", of->index, wc_sequence(&wc));
	if (!wc_is_recv(&wc))
		reuse_slots(of, progress->polled, wc_sequence(&wc) + 1);
	progress->polled = wc_sequence(&wc) + 1;
	return true;
}

bool endpoint_poll(struct endpoint *endpoint, uint32_t max)
{
	bool some = false;

	for (uint32_t i = 0; i < max && poll_one(endpoint, endpoint->send_cq); i++)
		some = true;
	for (uint32_t i = 0; i < max && poll_one(endpoint, endpoint->recv_cq); i++)
		some = true;
	return some;
}
