/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/endpoint.h"

#include "tests/sim/fail.h"
#include "tests/sim/world.h"

#include <stdlib.h>
#include <string.h>

enum {
	CANARY = 0xc5,
};

static uint32_t power_of_two(uint32_t n)
{
	uint32_t power = 1;

	while (power < n)
		power *= 2;
	return power;
}

/* Registers what is between the guards, under several keys. */
static void memory_init(
	struct endpoint *endpoint, struct sim_memory *memory, uint32_t size, uint32_t access)
{
	struct port *port = &endpoint->node->port.base;

	memory->size = size + 2 * ENDPOINT_GUARD;
	memory->bytes = sim_alloc(memory->size, 1);
	memory->shadow = sim_alloc(memory->size, 1);
	memset(memory->bytes, CANARY, ENDPOINT_GUARD);
	memset(memory->bytes + ENDPOINT_GUARD + size, CANARY, ENDPOINT_GUARD);
	memset(memory->shadow, CANARY, ENDPOINT_GUARD);
	memset(memory->shadow + ENDPOINT_GUARD + size, CANARY, ENDPOINT_GUARD);
	memory->n_keys = 1 + (uint32_t)random_below(&endpoint->world->random, ENDPOINT_KEYS);
	for (uint32_t i = 0; i < memory->n_keys; i++) {
		struct region *region = &memory->regions[i];
		struct port_mem *mem;

		*region = (struct region){
			.addr = memory->bytes + ENDPOINT_GUARD,
			.length = size,
			.access = access,
			.pd = &endpoint->pd,
		};
		SIM_CHECK(port->ops->mem_map(port, region->addr, size, &mem) == 0, "mem_map");
		region->port_mem = mem;
		SIM_CHECK(engine_add_region(&endpoint->node->engine, region) == 0, "add_region");
	}
	memory->registered = true;
}

static void memory_fini(struct endpoint *endpoint, struct sim_memory *memory)
{
	struct port *port = &endpoint->node->port.base;

	endpoint_deregister(endpoint, memory);
	for (uint32_t i = 0; i < memory->n_keys; i++) {
		SIM_CHECK(!engine_region_queued(&endpoint->node->engine, &memory->regions[i]),
			"endpoint %u: its memory is still queued", endpoint->index);
		SIM_CHECK(port->ops->mem_idle(port, memory->regions[i].port_mem),
			"endpoint %u: its memory is still being sent", endpoint->index);
		port->ops->mem_unmap(port, memory->regions[i].port_mem);
	}
	free(memory->bytes);
	free(memory->shadow);
}

static struct sim_cq *cq_create(struct sim_cq *cq, uint32_t entries)
{
	entries = power_of_two(entries);
	cq_init(&cq->cq, sim_alloc(entries, sizeof(struct frl_wc)), entries);
	return cq;
}

static void choose_cqs(struct endpoint *endpoint)
{
	uint32_t n_send = endpoint->lazy ? 1 : endpoint->n_send;
	uint32_t n_recv = endpoint->lazy ? 1 : endpoint->n_recv;
	struct sim_cq *shared = &endpoint->node->shared_cq;

	if (endpoint->world->config.shared_cqs) {
		if (!shared->cq.entries)
			cq_create(shared, endpoint->lazy ? 2 : 1024);
		endpoint->send_cq = endpoint->recv_cq = shared;
	} else if (random_below(&endpoint->world->random, 2)) {
		endpoint->send_cq = cq_create(&endpoint->own_cqs[0], n_send + n_recv);
		endpoint->recv_cq = endpoint->send_cq;
	} else {
		endpoint->send_cq = cq_create(&endpoint->own_cqs[0], n_send);
		endpoint->recv_cq = cq_create(&endpoint->own_cqs[1], n_recv);
	}
}

static void fill_operands(struct endpoint *endpoint)
{
	for (uint32_t i = 0; i + 4 <= endpoint->slot_size; i += 4) {
		float value = (float)(i % 4093) / 8;

		memcpy(endpoint->target.bytes + endpoint->src_offset + i, &value, sizeof(value));
		memcpy(endpoint->target.shadow + endpoint->src_offset + i, &value, sizeof(value));
	}
}

void endpoint_init(struct endpoint *endpoint, uint32_t longest)
{
	uint32_t slots = endpoint->n_recv * (endpoint->slot_size = script_slot_size(longest));
	struct qp_config config;

	endpoint->window_offset = ENDPOINT_GUARD + slots;
	endpoint->src_offset = endpoint->window_offset + endpoint->window_size;
	memory_init(endpoint, &endpoint->target,
		slots + endpoint->window_size + endpoint->slot_size,
		FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE);
	memory_init(endpoint, &endpoint->source, endpoint->n_send * endpoint->slot_size, 0);
	fill_operands(endpoint);
	choose_cqs(endpoint);
	endpoint->qp = sim_alloc(1, sizeof(*endpoint->qp));
	endpoint->send_wqes = sim_alloc(endpoint->n_send, sizeof(struct send_wqe));
	endpoint->recv_wqes = sim_alloc(endpoint->n_recv, sizeof(struct recv_wqe));
	config = (struct qp_config){
		.pd = &endpoint->pd,
		.send_cq = &endpoint->send_cq->cq,
		.recv_cq = &endpoint->recv_cq->cq,
		.send_wqes = endpoint->send_wqes,
		.n_send = endpoint->n_send,
		.recv_wqes = endpoint->recv_wqes,
		.n_recv = endpoint->n_recv,
		.window = endpoint->window,
		.unlimited_retry = endpoint->patient,
	};
	SIM_CHECK(engine_add_qp(&endpoint->node->engine, endpoint->qp, &config) == 0, "add_qp");
}

static void modify(struct endpoint *endpoint, enum frl_qp_state state, uint32_t mask)
{
	const char *why = "";
	int rc;

	endpoint->attr.state = state;
	rc = engine_modify_qp(
		&endpoint->node->engine, endpoint->qp, &endpoint->attr, FRL_QP_STATE | mask, &why);
	SIM_CHECK(rc == 0, "endpoint %u to %d: %s", endpoint->index, state, why);
}

void endpoint_connect(struct endpoint *endpoint)
{
	modify(endpoint, FRL_QPS_INIT, FRL_QP_ACCESS_FLAGS);
	modify(endpoint, FRL_QPS_RTR,
		FRL_QP_PATH | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN |
			FRL_QP_MIN_RNR_TIMER | FRL_QP_CAPABILITIES);
}

void endpoint_start(struct endpoint *endpoint)
{
	modify(endpoint, FRL_QPS_RTS,
		FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY);
}

void endpoint_to_error(struct endpoint *endpoint)
{
	endpoint->app_error = true;
	modify(endpoint, FRL_QPS_ERR, 0);
}

/* What was posted must not be read any more: it is freed. */
void endpoint_remove_qp(struct endpoint *endpoint)
{
	if (endpoint->removed)
		return;
	endpoint->removed = true;
	engine_remove_qp(&endpoint->node->engine, endpoint->qp);
	free(endpoint->qp);
	free(endpoint->send_wqes);
	free(endpoint->recv_wqes);
	endpoint->qp = NULL;
}

void endpoint_deregister(struct endpoint *endpoint, struct sim_memory *memory)
{
	for (uint32_t i = 0; memory->registered && i < memory->n_keys; i++)
		engine_remove_region(&endpoint->node->engine, &memory->regions[i]);
	memory->registered = false;
}

void endpoint_fini(struct endpoint *endpoint)
{
	endpoint_remove_qp(endpoint);
	memory_fini(endpoint, &endpoint->target);
	memory_fini(endpoint, &endpoint->source);
	free(endpoint->own_cqs[0].cq.entries);
	free(endpoint->own_cqs[1].cq.entries);
	script_fini(&endpoint->script);
}

static bool all_polled(const struct progress *progress)
{
	return progress->polled == progress->posted;
}

static bool has_gone(const struct endpoint *endpoint)
{
	return endpoint->removed || endpoint->node->frozen ||
		endpoint->qp->core.state == FRL_QPS_ERR;
}

bool endpoint_done(const struct endpoint *endpoint)
{
	if (endpoint->removed || endpoint->node->frozen)
		return true;
	if (endpoint->qp->core.state == FRL_QPS_ERR)
		return endpoint->lazy || endpoint->send_cq->cq.overrun ||
			endpoint->recv_cq->cq.overrun ||
			(endpoint->send.polled == endpoint->send.last &&
				endpoint->recv.polled == endpoint->recv.last);
	if (endpoint->send.posted < endpoint->script.n_messages)
		return false;
	if (endpoint->lazy ? endpoint->acked < endpoint->send.posted : !all_polled(&endpoint->send))
		return false;
	return endpoint->silent || endpoint->lazy || has_gone(endpoint->peer) ||
		endpoint->recv.polled >= endpoint->peer->script.n_recvs;
}

uint64_t endpoint_wr_id(const struct endpoint *endpoint, bool recv, uint32_t sequence)
{
	return (uint64_t)recv << 63 | (uint64_t)endpoint->index << 32 | sequence;
}

struct endpoint *endpoint_of(struct world *world, const struct frl_wc *wc)
{
	uint64_t index = wc->wr_id << 1 >> 33;

	SIM_CHECK(index < world->n_endpoints, "a completion of nobody: %llx",
		(unsigned long long)wc->wr_id);
	return &world->endpoints[index];
}

/* A send slot is the application's again: what still refers to it is a repetition. */
static void reuse_slots(struct endpoint *endpoint, uint32_t from, uint32_t to)
{
	for (; from != to; from++)
		memset(memory_at(&endpoint->source, send_slot(endpoint, from)), SIM_PORT_AFTER_USE,
			endpoint->slot_size);
}

static bool poll_one(struct endpoint *endpoint, struct sim_cq *cq)
{
	struct progress *progress;
	struct endpoint *of;
	struct frl_wc wc;

	if (!cq_pop(&cq->cq, &wc))
		return false;
	of = endpoint_of(endpoint->world, &wc);
	progress = wc_is_recv(&wc) ? &of->recv : &of->send;
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
