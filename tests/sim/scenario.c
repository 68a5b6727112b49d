/* SPDX-License-Identifier: BSD-3-Clause */
/* The world of a seed: its size and shape, the quality of its network, and its fault. */
#include "tests/sim/world.h"

enum {
	STANDS_LONGEST_NS = 8000000, /* an offload */
	FINITE_LOSS_PPM = 3000,      /* up to this, seven retries are enough for certain */
};

static uint32_t pick(struct random_state *random, const uint32_t *values, uint32_t n)
{
	return values[random_below(random, n)];
}

static bool one_in(struct random_state *random, uint64_t n)
{
	return random_below(random, n) == 0;
}

static void choose_network(struct world_config *config, struct random_state *random)
{
	static const uint32_t losses[] = { 0, 500, FINITE_LOSS_PPM, 20000, 60000, 150000 };
	static const uint32_t others[] = { 0, 0, 1000, 10000, 50000 };
	static const uint32_t gigabits[] = { 1, 10, 25, 100 };
	static const uint32_t queues[] = { 4, 16, 64, 1024 };
	struct link_config *link = &config->link;

	*link = (struct link_config){
		.delay_ns = random_below(random, one_in(random, 4) ? 50000 : 3000),
		.rate_bps = pick(random, gigabits, 4) * UINT64_C(1000000000),
		.queue_frames = 100000,
		.pad_short = one_in(random, 2),
	};
	config->clean = one_in(random, 5);
	if (config->clean)
		return;
	link->queue_frames = pick(random, queues, 4);
	link->loss_ppm = pick(random, losses, 6);
	link->reorder_ppm = pick(random, others, 5);
	link->reorder_ns = 100 + random_below(random, 20000);
	link->duplicate_ppm = pick(random, others, 5);
	link->corrupt_ppm = pick(random, others, 5);
	if (one_in(random, 4))
		link->loss_mask = random_u64(random) & random_u64(random);
}

static void choose_fault(struct world_config *config, struct random_state *random)
{
	if (one_in(random, 3)) {
		config->fault = (enum fault)(1 + random_below(random, FAULT_REVOKED - 1));
		config->fault_after = (uint32_t)random_below(random, 12);
	} else if (config->in_place && one_in(random, 2)) {
		config->fault = FAULT_REVOKED;
		config->fault_after = (uint32_t)random_below(random, 6);
	}
	/* A port whose link has a state is one of the local fabric, which has no ARP. */
	if (config->fault == FAULT_LINK_DOWN)
		config->resolve = false;
}

/* Retries are limited only if that many losses in a row do not happen. */
static bool must_be_patient(const struct world_config *config)
{
	const struct link_config *link = &config->link;

	return link->loss_ppm > FINITE_LOSS_PPM || link->loss_mask || link->queue_frames < 1024 ||
		link->corrupt_ppm > 1000 || link->reorder_ppm > 1000;
}

void scenario_choose(struct world_config *config, struct random_state *random)
{
	static const uint32_t longest[] = { 300, 2000, 9000, SCRIPT_LONGEST };
	static const uint32_t thinks[] = { 500, 5000, 50000, 300000 };
	static const uint32_t late[] = { 1, 1, 2, 6 };
	static const uint32_t depths[] = { 1, 4, 32, SIM_PORT_TX_RING };

	*config = (struct world_config){
		.n_nodes = one_in(random, 2) ? 2 : 2 + (uint32_t)random_below(random, 3),
		.n_connections = 1 + (uint32_t)random_below(random, WORLD_MAX_CONNECTIONS),
		.resolve = one_in(random, 4),
		.unreliable = one_in(random, 2),
		.srq = one_in(random, 3),
		.windows = one_in(random, 2),
		.shared_cqs = one_in(random, 3),
		.longest = pick(random, longest, 4),
		.think_ns = pick(random, thinks, 4),
		.late_receives = pick(random, late, 4),
		.poll_latency_ns = one_in(random, 2) ? 200 : 3000,
		.refuse_ppm = one_in(random, 3) ? 300000 : 0,
		.tx_depth = pick(random, depths, 4),
	};
	choose_network(config, random);
	config->no_icrc = config->clean && !one_in(random, 3);
	config->in_place = config->no_icrc && !one_in(random, 4);
	choose_fault(config, random);
	config->spoofs = config->fault == FAULT_SPOOFED || (!config->in_place && one_in(random, 6));
	config->patient = must_be_patient(config) || config->spoofs || one_in(random, 2);
	config->naps = config->in_place && config->fault != FAULT_LINK_DOWN && one_in(random, 2);
	config->flaps = config->patient && !config->in_place && config->fault == FAULT_NONE &&
		one_in(random, 6);
	config->link.corrupt_covered = config->unreliable;
	if (config->fault == FAULT_CQ_OVERRUN) {
		config->srq = false;
		/* In the middle of a burst only the engine knows which queue pairs are in ERR. */
		config->unreliable &= !config->shared_cqs;
	}
	if (config->fault == FAULT_DEREG_TARGET || config->fault == FAULT_DEREG_SOURCE)
		config->windows = false;
}

/* In-place frames have unknown bytes, and their arrival would be hard to predict. */
void scenario_choose_offloads(struct world *world)
{
	struct world_config *config = &world->config;

	config->offloads = one_in(&world->offload_random, 4) && !config->in_place;
}

void scenario_add_offload(struct node *node)
{
	static const uint32_t rooms[] = { 1, 20, 200, UINT32_MAX };
	struct world *world = node->world;
	struct random_state *random = &world->offload_random;
	struct mock_offload *mock = &node->mock;

	if (!world->config.offloads || one_in(random, 3))
		return;
	mock_offload_init(mock, random_u64(random));
	mock->room = pick(random, rooms, 4);
	mock->reaches_one_in = (uint32_t)random_below(random, 4);
	if (one_in(random, 3))
		mock->launch_room = (uint32_t)random_below(random, 40);
	node->has_offload = mock_offload_attach(mock, &node->engine) == 0;
}

void scenario_pace_offload(struct node *node)
{
	static const uint32_t speeds[] = { 0, 0, 1, 4, 32, UINT32_MAX };
	struct random_state *random = &node->world->offload_random;

	uint64_t now_ns = node->world->clock.now_ns;

	if (!node->has_offload)
		return;
	/* Sometimes nothing at all, for long enough that everything else must wait. */
	if (one_in(random, 400))
		node->stands_until_ns = now_ns + random_below(random, STANDS_LONGEST_NS);
	if (now_ns < node->stands_until_ns)
		node->mock.speed = 0;
	else if (one_in(random, 4))
		node->mock.speed = pick(random, speeds, 6);
}

/* Reliable ones only: for the others only the engine would know the dropped frames. */
static void choose_memories(struct endpoint *endpoint)
{
	struct random_state *random = &endpoint->world->offload_random;
	struct sim_memory *memories[] = { &endpoint->target, &endpoint->source, &endpoint->results,
		&endpoint->own_inbox.memory };

	if (!endpoint->node->has_offload || endpoint->type != FRL_QPT_RC || endpoint->lawless)
		return;
	for (int i = 0; i < 4; i++)
		if (!one_in(random, 3))
			memories[i]->mock = &endpoint->node->mock;
}

static uint32_t choose_psn(struct random_state *random)
{
	if (one_in(random, 2))
		return (PSN_MASK - (uint32_t)random_below(random, 100)) & PSN_MASK;
	return (uint32_t)random_u64(random) & PSN_MASK;
}

/* Both ends take shared properties from the first one. */
static void choose_pair(struct world *world, struct endpoint *endpoint)
{
	struct random_state *random = &world->random;
	const struct world_config *config = &world->config;
	const struct endpoint *first = &world->endpoints[endpoint->index & ~1u];
	uint64_t route = random_below(random, N_ROUTES);
	uint32_t size = config->longest + (uint32_t)random_below(random, 8192);

	endpoint->type = FRL_QPT_RC;
	if (config->unreliable && (endpoint->index > 1 || config->fault == FAULT_NONE) &&
		one_in(random, 2))
		endpoint->type = one_in(random, 2) ? FRL_QPT_UC : FRL_QPT_UD;
	endpoint->attr.path_mtu = 256u << random_below(random, 7);
	endpoint->attr.ah.sgid_index = (uint8_t)route;
	endpoint->window_size = (size + 7) & ~7u;
	if (endpoint != first) {
		endpoint->type = first->type;
		endpoint->attr.path_mtu = first->attr.path_mtu;
		endpoint->attr.ah.sgid_index = first->attr.ah.sgid_index;
		endpoint->window_size = first->window_size;
	}
	endpoint->lawless = config->fault == FAULT_SPOOFED && endpoint->index < 2;
	endpoint->loop = endpoint->node == endpoint->peer->node;
	/* Faults of the first pair concern receives of its own. */
	endpoint->shares = config->srq && one_in(random, 2) &&
		(config->fault == FAULT_NONE || endpoint->index > 1);
	endpoint->attr.max_rd_atomic = (uint8_t)(1 + random_below(random, 4));
	if (one_in(random, 4))
		endpoint->attr.max_rd_atomic = FRL_MAX_RD_ATOMIC;
	if (endpoint != first) {
		endpoint->attr.max_dest_rd_atomic = first->attr.max_rd_atomic;
		world->endpoints[endpoint->index - 1].attr.max_dest_rd_atomic =
			endpoint->attr.max_rd_atomic;
	}
}

static void choose_script(struct world *world, struct endpoint *endpoint)
{
	struct random_state *random = &world->random;
	const struct world_config *config = &world->config;
	const struct script_config script = {
		.id = random_u64(random),
		.type = endpoint->type,
		/* Datagrams have one packet. */
		.mtu = endpoint->type == FRL_QPT_UD ? WIRE_MAX_MTU : endpoint->attr.path_mtu,
		.n_messages = 1 + (uint32_t)random_below(random, 48),
		.longest = config->longest,
		.window_size = endpoint->window_size,
		.may_reduce = endpoint->type == FRL_QPT_RC && !endpoint->peer->shares,
		.windows = config->windows && !endpoint->lawless,
		.no_atomics = endpoint->peer->target.mock,
		.shared_counter = !endpoint->lawless && !endpoint->results.mock,
		.group = !endpoint->loop,
	};

	script_init(&endpoint->script, &script, random);
	endpoint->drain = (struct drain){
		.wanted = one_in(random, 6),
		.after = (uint32_t)random_below(random, script.n_messages),
		.notify = one_in(random, 2),
	};
}

static void choose_timers(struct world *world, struct endpoint *endpoint)
{
	struct random_state *random = &world->random;
	const struct world_config *config = &world->config;
	struct frl_qp_attr *attr = &endpoint->attr;

	attr->min_rnr_timer = (uint8_t)(1 + random_below(random, 14));
	if (one_in(random, 20))
		attr->min_rnr_timer = 0;
	attr->timeout = (uint8_t)(8 + random_below(random, 7));
	/* Only flows whose timer may fire in vain have short timeouts. */
	if (!config->patient)
		attr->timeout = 14;
	if (config->clean && config->fault == FAULT_NONE && !config->naps && !config->flaps &&
		!config->spoofs && one_in(random, 4))
		attr->timeout = 0;
	attr->retry_cnt = 7;
	attr->rnr_retry = 7;
}

void scenario_endpoint(struct world *world, struct endpoint *endpoint)
{
	static const uint32_t windows[] = { 1, 2, 3, 8, 16, 64, 256 };
	struct random_state *random = &world->random;
	const struct world_config *config = &world->config;
	struct frl_qp_attr *attr = &endpoint->attr;

	choose_pair(world, endpoint);
	endpoint->n_send = 1u << random_below(random, 6);
	endpoint->n_recv = 1u << random_below(random, 5);
	endpoint->window = pick(random, windows, 7);
	endpoint->patient = config->patient;
	endpoint->sig_all = one_in(random, 6);
	endpoint->rts_at_ns = one_in(random, 3) ? world->clock.now_ns + random_below(random, 100000)
						: 0;
	attr->port_num = 1;
	attr->qkey = world->qkey;
	attr->access_flags = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ |
		FRL_ACCESS_REMOTE_ATOMIC;
	attr->ah.hop_limit = 64;
	attr->ah.traffic_class = (uint8_t)random_u64(random);
	attr->ah.sl = one_in(random, 3) ? (uint8_t)random_below(random, 8) : 0;
	attr->ah.flow_label = one_in(random, 3) ? (uint32_t)random_below(random, 1 << 20) : 0;
	attr->sq_psn = choose_psn(random);
	attr->capabilities = config->no_icrc ? FRL_CAP_NO_ICRC : 0;
	choose_timers(world, endpoint);
	choose_memories(endpoint);
}

/* Called when both ends of all pairs are known. */
void scenario_scripts(struct world *world)
{
	for (uint32_t i = 0; i < world->n_endpoints; i++)
		choose_script(world, &world->endpoints[i]);
}
