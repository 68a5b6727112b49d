/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/world.h"

#include "tests/sim/common/fail.h"
#include "tests/sim/oracle/oracle.h"
#include "tests/sim/workload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAX_IDLE_POLLS = 100,
	MAX_EVENTS = 4000000,
	FULL_CHECK_ONE_IN = 2048, /* events: every byte of all memory is compared */
	EXTRA_POLL_ONE_IN = 8,
	RETRY_POLL_NS = 1000,
	NAP_ONE_IN = 64,
	NAP_LONGEST_NS = 10000000,
	LINK_CHECK_NS = 500000,
	LINK_DOWN_SEEN_NS = 2000000,
	LOOP_ONE_IN = 8,
};

#define VIRTUAL_TIME_MAX_NS UINT64_C(600000000000)

void world_poll_at(struct node *node, uint64_t at_ns)
{
	if (at_ns < node->poll_at_ns)
		node->poll_at_ns = at_ns;
}

static bool engine_holds_packets(const struct engine *engine)
{
	return engine_link_queued(engine, 0) || engine_link_queued(engine, ENGINE_LOOP_LINK);
}

static void poll_node(struct node *node)
{
	struct world *world = node->world;
	uint64_t now_ns = world->clock.now_ns, deadline;
	uint32_t moved;

	node->poll_at_ns = CLOCK_NEVER;
	if (world->config.naps && !world->closing && random_below(&world->random, NAP_ONE_IN) == 0)
		node->nap_until_ns = now_ns + random_below(&world->random, NAP_LONGEST_NS);
	node->port.refused = false;
	scenario_pace_offload(node);
	moved = engine_poll(&node->engine, now_ns);
	trace_number(&world->trace, (uint64_t)node->index << 32 | moved);
	oracle_check_node(node);
	deadline = engine_next_deadline(&node->engine);
	if (moved || sim_port_has_rx(&node->port))
		world_poll_at(node,
			now_ns + 1 + random_below(&world->random, world->config.poll_latency_ns));
	else if (engine_holds_packets(&node->engine) || deadline <= now_ns)
		world_poll_at(node, now_ns + RETRY_POLL_NS);
	if (node->port.state == PORT_LINK_DOWN && !world->closing)
		world_poll_at(node, now_ns + LINK_CHECK_NS);
	node->idle_polls = !moved && deadline <= now_ns ? node->idle_polls + 1 : 0;
	SIM_CHECK(
		node->idle_polls < MAX_IDLE_POLLS, "%s: a deadline that does not pass", node->name);
	world->tally->refused += node->port.refused;
}

static uint64_t awake_due(const struct node *node)
{
	uint64_t deadline = engine_next_deadline(&node->engine);

	/* A time that has passed waits for the poll that is already planned. */
	if (deadline <= node->world->clock.now_ns && node->poll_at_ns != CLOCK_NEVER)
		return node->poll_at_ns;
	return deadline < node->poll_at_ns ? deadline : node->poll_at_ns;
}

static uint64_t node_due(const struct node *node)
{
	uint64_t due;

	if (node->frozen)
		return CLOCK_NEVER;
	due = awake_due(node);
	return due == CLOCK_NEVER || due > node->nap_until_ns ? due : node->nap_until_ns;
}

static void extra_polls(struct world *world)
{
	struct node *node;

	if (random_below(&world->random, EXTRA_POLL_ONE_IN))
		return;
	node = &world->nodes[random_below(&world->random, world->config.n_nodes)];
	if (!node->frozen && node->nap_until_ns <= world->clock.now_ns)
		poll_node(node);
}

/* Prints the ends that prevent the end of the world. */
static void print_waiting(const struct world *world)
{
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		const struct endpoint *endpoint = &world->endpoints[i];

		if (endpoint_done(endpoint))
			continue;
		fprintf(stderr,
			"endpoint %u: %s%s on %s, type %d, fault %s: requests %u, posted %u, "
			"over %u, polled %u; message %u of %u of the peer, receives polled %u\n",
			i, frl_qp_state_str(endpoint->qp->core.state),
			endpoint->shares ? " (shared receives)" : "", endpoint->node->name,
			endpoint->type, fault_names[world->config.fault],
			endpoint->script.n_messages, endpoint->send.posted, endpoint->acked,
			endpoint->send.polled, endpoint->message, endpoint->peer->script.n_messages,
			endpoint->recv.polled);
	}
}

/* Runs the next event. Returns false if there is none. */
static bool step(struct world *world)
{
	uint64_t at_ns = clock_next(&world->clock);
	struct node *due = NULL;

	for (uint32_t i = 0; i < world->config.n_nodes; i++) {
		uint64_t node_ns = node_due(&world->nodes[i]);

		if (node_ns < at_ns) {
			at_ns = node_ns;
			due = &world->nodes[i];
		}
	}
	if (at_ns == CLOCK_NEVER)
		return false;
	if (++world->events >= MAX_EVENTS || at_ns >= VIRTUAL_TIME_MAX_NS)
		print_waiting(world);
	SIM_CHECK(world->events < MAX_EVENTS, "it does not end");
	SIM_CHECK(at_ns < VIRTUAL_TIME_MAX_NS, "it takes too long");
	if (!due) {
		clock_step(&world->clock);
	} else {
		if (world->clock.now_ns < at_ns)
			world->clock.now_ns = at_ns;
		poll_node(due);
	}
	extra_polls(world);
	if (world->events % FULL_CHECK_ONE_IN == 0)
		for (uint32_t i = 0; i < world->n_endpoints; i++)
			oracle_check_memory(&world->endpoints[i]);
	return true;
}

static void choose_nodes(struct world *world)
{
	struct random_state *random = &world->random;

	for (uint32_t i = 0; i < world->n_endpoints; i += 2) {
		uint64_t a = random_below(random, world->config.n_nodes);
		uint64_t b = random_below(random, world->config.n_nodes - 1);
		bool loop = random_below(random, LOOP_ONE_IN) == 0 &&
			(i > 0 || world->config.fault == FAULT_NONE);

		world->endpoints[i].node = &world->nodes[a];
		world->endpoints[i + 1].node = &world->nodes[loop ? a : b < a ? b : b + 1];
	}
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		world->endpoints[i].world = world;
		world->endpoints[i].index = i;
		world->endpoints[i].peer = &world->endpoints[i ^ 1];
	}
}

static void create_endpoints(struct world *world)
{
	world->n_endpoints = 2 * world->config.n_connections;
	world->qkey = (uint32_t)random_u64(&world->random) & INT32_MAX;
	choose_nodes(world);
	for (uint32_t i = 0; i < world->n_endpoints; i++)
		scenario_endpoint(world, &world->endpoints[i]);
	scenario_scripts(world);
	scenario_doom(world);
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		struct endpoint *endpoint = &world->endpoints[i];

		endpoint_init(endpoint, world->config.longest);
		endpoint->n_recv_total = endpoint->peer->script.n_recvs +
			(uint32_t)random_below(&world->random, 3);
		/* Their number and frequency are unknown. */
		if (!endpoint_is_reliable(endpoint) || endpoint->lawless)
			endpoint->n_recv_total = UINT32_MAX;
	}
}

/* The address of the peer. Its MAC address comes from the neighbour table, or is known. */
static void address_peer(struct endpoint *endpoint)
{
	struct endpoint *peer = endpoint->peer;
	struct frl_ah_attr *ah = &endpoint->attr.ah;

	ah->dgid = peer->node->gids.gids[peer->attr.ah.sgid_index].ip;
	if (!endpoint->world->config.resolve)
		memcpy(ah->dmac, peer->node->port.config.mac, 6);
	endpoint->attr.dest_qpn = peer->qpn;
	endpoint->attr.rq_psn = peer->attr.sq_psn;
}

static void check_address(const struct endpoint *endpoint)
{
	const uint8_t *mac = endpoint->type == FRL_QPT_UD ? endpoint->ah.core.path.headers
							  : endpoint->qp->path.wire.headers;

	SIM_CHECK(memcmp(mac, endpoint->peer->node->port.config.mac, 6) == 0,
		"endpoint %u: a wrong MAC address", endpoint->index);
}

static void connect_endpoints(struct world *world)
{
	for (uint32_t i = 0; i < world->config.n_nodes; i++)
		world->nodes[i].ready = true;
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		struct endpoint *endpoint = &world->endpoints[i];

		address_peer(endpoint);
		while (!endpoint_connect(endpoint))
			SIM_CHECK(step(world), "endpoint %u: nobody asks for the address", i);
		check_address(endpoint);
		world->tally->routes[endpoint->attr.ah.sgid_index]++;
	}
	for (uint32_t i = 0; i < world->n_endpoints; i++)
		workload_start(&world->endpoints[i]);
	network_start(world);
	if (world->config.spoofs)
		spoofer_start(world);
}

static bool finished(struct world *world)
{
	bool frozen = false;

	for (uint32_t i = 0; i < world->n_endpoints; i++)
		if (!endpoint_done(&world->endpoints[i]))
			return false;
	/* A silent end wakes up and finds its peer gone. */
	for (uint32_t i = 0; i < world->config.n_nodes; i++) {
		struct node *node = &world->nodes[i];

		frozen |= node->frozen;
		if (node->frozen)
			world_poll_at(node, world->clock.now_ns);
		node->frozen = false;
	}
	return !frozen;
}

/* An end that waited for an answer that could not come has the reason. */
static void check_reason(const struct world *world, const struct endpoint *endpoint)
{
	enum fault fault = world->config.fault;

	if (endpoint->removed || endpoint->app_error || !endpoint->send.failed)
		return;
	if (fault == FAULT_SILENT || fault == FAULT_NO_RECEIVES || fault == FAULT_QP_ERROR ||
		fault == FAULT_QP_REMOVED || fault == FAULT_DEREG_SOURCE)
		SIM_CHECK(
			endpoint->send.told, "endpoint %u: flushed for no reason", endpoint->index);
}

/* A link that is gone ends its connections soon, without a request. */
static void check_link_down(const struct world *world)
{
	if (world->config.fault != FAULT_LINK_DOWN)
		return;
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		const struct endpoint *endpoint = &world->endpoints[i];

		if (endpoint->node->port.state == PORT_LINK_DOWN && !endpoint->loop &&
			endpoint->type != FRL_QPT_UD &&
			world->clock.now_ns > world->fault_ns + LINK_DOWN_SEEN_NS)
			SIM_CHECK(endpoint->qp->core.state == FRL_QPS_ERR,
				"endpoint %u: lives on without a link", i);
	}
}

/* Nothing is under way. Engines keep querying their neighbours for ever. */
static bool is_quiet(const struct world *world)
{
	for (uint32_t i = 0; i < world->config.n_nodes; i++) {
		const struct node *node = &world->nodes[i];

		if (node->poll_at_ns != CLOCK_NEVER || sim_port_has_rx(&node->port) ||
			engine_holds_packets(&node->engine) || engine_offloads_busy(&node->engine))
			return false;
	}
	return clock_next(&world->clock) == CLOCK_NEVER;
}

static void close_world(struct world *world)
{
	check_link_down(world);
	world->closing = true;
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		struct endpoint *endpoint = &world->endpoints[i];

		check_reason(world, endpoint);
		if (endpoint->removed)
			continue;
		if (endpoint->qp->core.state != FRL_QPS_ERR)
			endpoint_to_error(endpoint);
		oracle_check_node(endpoint->node);
	}
	for (uint32_t i = 0; i < world->n_endpoints; i++)
		endpoint_poll(&world->endpoints[i], UINT32_MAX);
	while (!is_quiet(world))
		step(world);
	/* Frames on their way to memory are there by now, and so are their completions. */
	for (uint32_t i = 0; world->config.offloads && i < world->n_endpoints; i++)
		endpoint_poll(&world->endpoints[i], UINT32_MAX);
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		oracle_check_memory(&world->endpoints[i]);
		SIM_CHECK(!endpoint_poll(&world->endpoints[i], 1), "endpoint %u: a late completion",
			i);
	}
}

static void check_counters(const struct node *node)
{
	const struct frl_stats *s = &node->engine.stats;

	SIM_CHECK(s->rx_packets == node->port.handed && s->rx_bytes == node->port.handed_bytes,
		"%s: frames in", node->name);
	if (node->port.state == PORT_LINK_UP)
		SIM_CHECK(
			s->tx_packets == node->port.taken && s->tx_bytes == node->port.taken_bytes,
			"%s: %" PRIu64 " frames out, %" PRIu64 " were taken; bytes %" PRIu64
			" and %" PRIu64,
			node->name, s->tx_packets, node->port.taken, s->tx_bytes,
			node->port.taken_bytes);
	SIM_CHECK(!engine_holds_packets(&node->engine), "%s: packets are stuck", node->name);
	if (node->miscounts)
		return;
	SIM_CHECK(s->rx_requests == node->rx_requests && s->atomics_executed == node->atomics,
		"%s: %" PRIu64 " requests accepted, %" PRIu64 " known", node->name, s->rx_requests,
		node->rx_requests);
	SIM_CHECK(s->bytes_placed == node->placed_bytes && s->bytes_reduced == node->reduced_bytes,
		"%s: %" PRIu64 " bytes placed, %" PRIu64 " known", node->name, s->bytes_placed,
		node->placed_bytes);
	SIM_CHECK(!engine_holds_packets(&node->engine), "%s: packets are stuck", node->name);
}

static void add_link(struct tally *tally, const struct link *link)
{
	const struct link_stats *s = &link->stats;

	tally->frames += s->sent;
	tally->lost += s->lost;
	tally->overflowed += s->overflowed;
	tally->reordered += s->reordered;
	tally->duplicated += s->duplicated;
	tally->corrupted += s->corrupted;
}

static void add_engine(struct tally *tally, const struct frl_stats *s)
{
	tally->bad_icrc += s->drop_bad_icrc;
	tally->rnr += s->naks_received_rnr;
	tally->seq_naks += s->naks_received_seq;
	tally->fatal_naks += s->naks_received_fatal;
	tally->timeouts += s->timeouts;
	tally->retransmits += s->retransmits;
	tally->duplicates += s->duplicates;
	tally->cq_overruns += s->cq_overruns;
	tally->neighbor_requests += s->neighbor_requests;
	tally->implied_naks += s->implied_naks;
	tally->replays += s->replays;
	tally->drop_no_replay += s->drop_no_replay;
	tally->stale_acks += s->stale_acks;
	tally->loopback += s->loopback_packets;
	tally->offload_placed += s->offload_placed;
	tally->offload_gathered += s->offload_gathered;
	tally->offload_waits += s->offload_waits;
}

static void add_port(struct tally *tally, const struct sim_port *port)
{
	tally->in_place += port->in_place;
	tally->in_place_late += port->in_place_late;
	tally->revoked += port->revoked;
	tally->payload_lost += port->lost;
}

static void world_fini(struct world *world)
{
	struct tally *tally = world->tally;

	oracle_check_chains(world);
	for (uint32_t i = 0; i < world->config.n_nodes; i++)
		world->nodes[i].ready = false;
	for (uint32_t i = 0; i < world->n_endpoints; i++)
		endpoint_fini(&world->endpoints[i]);
	for (uint32_t i = 0; i < world->config.n_nodes; i++) {
		struct node *node = &world->nodes[i];

		check_counters(node);
		add_link(tally, &node->up);
		add_link(tally, &node->down);
		add_engine(tally, &node->engine.stats);
		add_port(tally, &node->port);
		tally->offload_reduced += node->mock.reduced;
		node_fini(node);
	}
	SIM_CHECK(world->live_frames == 0, "%" PRIu64 " frames are left over", world->live_frames);
	clock_fini(&world->clock);
	tally->seeds++;
	tally->events += world->events;
	tally->faults[world->config.fault] += world->config.fault == FAULT_NONE ||
		world->fault_done;
}

uint64_t world_run_seed(uint64_t seed, bool verbose, struct tally *tally)
{
	struct world *world = sim_alloc(1, sizeof(*world));
	uint64_t hash;

	world->tally = tally;
	clock_init(&world->clock);
	sim_position.seed = seed;
	sim_position.now_ns = &world->clock.now_ns;
	trace_init(&world->trace, verbose, &world->clock.now_ns);
	random_seed(&world->random, seed * UINT64_C(0xd1342543de82ef95));
	scenario_choose(&world->config, &world->random);
	random_seed(&world->offload_random, seed * UINT64_C(0x9e3779b97f4a7c15));
	scenario_choose_offloads(world);
	for (uint32_t i = 0; i < world->config.n_nodes; i++)
		node_init(world, i);
	create_endpoints(world);
	connect_endpoints(world);
	while (!finished(world))
		SIM_CHECK(step(world), "it stops before its end");
	close_world(world);
	world_fini(world);
	hash = world->trace.hash;
	sim_position.now_ns = NULL;
	free(world);
	return hash;
}
