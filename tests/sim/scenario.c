/* SPDX-License-Identifier: BSD-3-Clause */
/* What a seed makes of a world: its size and shape, how bad its network is, and what breaks. */
#include "tests/sim/world.h"

#include "tests/sim/oracle.h"

const char *const fault_names[N_FAULTS] = {
	[FAULT_NONE] = "none",
	[FAULT_LINK_DOWN] = "link_down",
	[FAULT_SILENT] = "silent",
	[FAULT_DEREG_TARGET] = "dereg_target",
	[FAULT_DEREG_SOURCE] = "dereg_source",
	[FAULT_QP_ERROR] = "qp_error",
	[FAULT_QP_REMOVED] = "qp_removed",
	[FAULT_CQ_OVERRUN] = "cq_overrun",
	[FAULT_NO_RECEIVES] = "no_receives",
	[FAULT_SHORT_RECEIVE] = "short_receive",
	[FAULT_BAD_WRITE] = "bad_write",
	[FAULT_REVOKED] = "revoked",
};

enum {
	FINITE_LOSS_PPM = 3000, /* up to this, seven retries are enough for certain */
	REVOKE_ONE_IN = 3,      /* payloads that are being read */
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

void scenario_choose(struct world_config *config, struct random_state *random)
{
	static const uint32_t longest[] = { 300, 2000, 9000, SCRIPT_LONGEST };
	static const uint32_t thinks[] = { 500, 5000, 50000, 300000 };
	static const uint32_t late[] = { 1, 1, 2, 6 };
	static const uint32_t depths[] = { 1, 4, 32, SIM_PORT_TX_RING };

	*config = (struct world_config){
		.n_nodes = one_in(random, 2) ? 2 : 2 + (uint32_t)random_below(random, 3),
		.n_connections = 1 + (uint32_t)random_below(random, WORLD_MAX_CONNECTIONS),
		.ipv6 = one_in(random, 3),
		.resolve = one_in(random, 4),
		.shared_cqs = one_in(random, 3),
		.longest = pick(random, longest, 4),
		.think_ns = pick(random, thinks, 4),
		.late_receives = pick(random, late, 4),
		.poll_latency_ns = one_in(random, 2) ? 200 : 3000,
		.refuse_ppm = one_in(random, 3) ? 300000 : 0,
		.tx_depth = pick(random, depths, 4),
	};
	choose_network(config, random);
	config->no_icrc = config->clean && one_in(random, 2);
	config->patient = config->link.loss_ppm > FINITE_LOSS_PPM || config->link.loss_mask ||
		config->link.queue_frames < 1024 || config->link.corrupt_ppm > 1000 ||
		config->link.reorder_ppm > 1000 || one_in(random, 2);
	config->in_place = config->no_icrc && !one_in(random, 4);
	if (one_in(random, 3)) {
		config->fault = (enum fault)(1 + random_below(random, FAULT_REVOKED - 1));
		config->fault_after = (uint32_t)random_below(random, 12);
	} else if (config->in_place && one_in(random, 2)) {
		config->fault = FAULT_REVOKED;
		config->fault_after = (uint32_t)random_below(random, 6);
	}
	config->naps = config->in_place && config->fault != FAULT_LINK_DOWN && one_in(random, 2);
	/* A port whose link has a state is one of the local fabric, where there is no ARP. */
	if (config->fault == FAULT_LINK_DOWN)
		config->resolve = false;
}

static uint32_t choose_psn(struct random_state *random)
{
	if (one_in(random, 2))
		return (PSN_MASK - (uint32_t)random_below(random, 100)) & PSN_MASK;
	return (uint32_t)random_u64(random) & PSN_MASK;
}

void scenario_endpoint(struct world *world, struct endpoint *endpoint)
{
	static const uint32_t windows[] = { 1, 2, 3, 8, 16, 64, 256 };
	struct random_state *random = &world->random;
	const struct world_config *config = &world->config;
	struct script_config script = {
		.id = random_u64(random),
		.longest = config->longest,
		.n_messages = 1 + (uint32_t)random_below(random, 24),
	};

	endpoint->n_send = 1u << random_below(random, 6);
	endpoint->n_recv = 1u << random_below(random, 5);
	endpoint->window = pick(random, windows, 7);
	endpoint->window_size = config->longest + (uint32_t)random_below(random, 8192);
	endpoint->patient = config->patient;
	endpoint->rts_at_ns = one_in(random, 3) ? world->clock.now_ns + random_below(random, 100000)
						: 0;
	endpoint->attr.access_flags = FRL_ACCESS_REMOTE_WRITE;
	endpoint->attr.hop_limit = 64;
	endpoint->attr.traffic_class = (uint8_t)random_u64(random);
	endpoint->attr.sq_psn = choose_psn(random);
	endpoint->attr.min_rnr_timer = (uint8_t)(1 + random_below(random, 14));
	if (one_in(random, 20))
		endpoint->attr.min_rnr_timer = 0;
	endpoint->attr.timeout = (uint8_t)(8 + random_below(random, 7));
	/* Short timeouts are for those who may fire in vain. */
	if (!config->patient)
		endpoint->attr.timeout = 14;
	if (config->clean && config->fault == FAULT_NONE && !config->naps && one_in(random, 4))
		endpoint->attr.timeout = 0;
	endpoint->attr.retry_cnt = 7;
	endpoint->attr.rnr_retry = 7;
	endpoint->attr.capabilities = config->no_icrc ? FRL_CAP_NO_ICRC : 0;
	/* Both ends have the same MTU: the second takes it from the first. */
	endpoint->attr.path_mtu = endpoint->index % 2
		? world->endpoints[endpoint->index - 1].attr.path_mtu
		: 256u << random_below(random, 5);
	script.mtu = endpoint->attr.path_mtu;
	script.window_size = endpoint->index % 2 ? world->endpoints[endpoint->index - 1].window_size
						 : endpoint->window_size;
	if (endpoint->index % 2)
		endpoint->window_size = script.window_size;
	script_init(&endpoint->script, &script, random);
}

static void allow(struct endpoint *endpoint, enum frl_wc_status status)
{
	endpoint->allowed |= 1u << status;
}

static void doom(struct world *world, struct endpoint *endpoint)
{
	struct endpoint *ends[] = { endpoint, endpoint->peer };

	for (int i = 0; i < 2; i++) {
		if (ends[i]->doomed)
			continue;
		ends[i]->doomed = true;
		ends[i]->patient = false;
		ends[i]->attr.retry_cnt = (uint8_t)random_below(&world->random, 8);
		allow(ends[i], FRL_WC_RETRY_EXC_ERR);
	}
}

static bool spoil(struct world *world, struct script *script)
{
	bool write = world->config.fault == FAULT_BAD_WRITE;

	for (uint32_t i = world->config.fault_after % script->n_messages; i < script->n_messages;
		i++) {
		struct message *message = &script->messages[i];

		if (message->length == 0 || message_is_write(message) != write)
			continue;
		if (write) {
			message->bad = true;
		} else {
			message->reduce = message->reduce_src = false;
			message->recv = (struct layout){ .n = 1,
				.length = { message->length - 1 } };
		}
		return true;
	}
	return false;
}

/* Everybody on the node of the endpoint. */
static void doom_node(struct world *world, const struct node *node)
{
	for (uint32_t i = 0; i < world->n_endpoints; i++)
		if (world->endpoints[i].node == node)
			doom(world, &world->endpoints[i]);
}

void scenario_doom(struct world *world)
{
	struct endpoint *own = &world->endpoints[0], *peer = own->peer;

	if (world->config.fault == FAULT_NONE)
		return;
	doom(world, own);
	switch (world->config.fault) {
	case FAULT_LINK_DOWN:
		doom_node(world, own->node);
		for (uint32_t i = 0; i < world->n_endpoints; i++)
			if (world->endpoints[i].node == own->node)
				allow(&world->endpoints[i], FRL_WC_REM_ABORT_ERR);
		break;
	case FAULT_SILENT: doom_node(world, own->node); break;
	case FAULT_DEREG_TARGET:
		allow(peer, FRL_WC_REM_OP_ERR);
		allow(peer, FRL_WC_REM_ACCESS_ERR);
		allow(own, FRL_WC_LOC_PROT_ERR);
		break;
	case FAULT_DEREG_SOURCE: allow(own, FRL_WC_LOC_PROT_ERR); break;
	case FAULT_CQ_OVERRUN:
		own->lazy = true;
		if (world->config.shared_cqs) {
			doom_node(world, own->node);
			for (uint32_t i = 0; i < world->n_endpoints; i++)
				world->endpoints[i].lazy |= world->endpoints[i].node == own->node;
		}
		break;
	case FAULT_NO_RECEIVES:
		peer->silent = true;
		own->attr.rnr_retry = (uint8_t)random_below(&world->random, 7);
		allow(own, FRL_WC_RNR_RETRY_EXC_ERR);
		break;
	case FAULT_SHORT_RECEIVE:
		world->fault_done = spoil(world, &own->script);
		allow(own, FRL_WC_REM_INV_REQ_ERR);
		allow(peer, FRL_WC_LOC_LEN_ERR);
		break;
	case FAULT_BAD_WRITE:
		world->fault_done = spoil(world, &own->script);
		allow(own, FRL_WC_REM_ACCESS_ERR);
		break;
	case FAULT_REVOKED: allow(peer, FRL_WC_REM_ABORT_ERR); break;
	case FAULT_NONE:
	case FAULT_QP_ERROR:
	case FAULT_QP_REMOVED:
	case N_FAULTS: break;
	}
}

void scenario_break(struct world *world)
{
	struct endpoint *own = &world->endpoints[0];
	struct node *node = own->node;

	world->fault_done = true;
	world->fault_ns = world->clock.now_ns;
	trace_note(&world->trace, "fault: %s", fault_names[world->config.fault]);
	switch (world->config.fault) {
	case FAULT_LINK_DOWN:
		sim_port_set_down(&node->port);
		node->down.cut = true;
		break;
	case FAULT_SILENT: node->frozen = true; break;
	case FAULT_DEREG_TARGET: endpoint_deregister(own, &own->target); break;
	case FAULT_DEREG_SOURCE: endpoint_deregister(own, &own->source); break;
	case FAULT_QP_ERROR: endpoint_to_error(own); break;
	case FAULT_QP_REMOVED: endpoint_remove_qp(own); break;
	default: break;
	}
	oracle_check_node(node);
	world_poll_at(node, world->clock.now_ns);
}

/*
 * Once armed, the application of endpoint 0 gives up at the worst of moments: when the peer has got
 * the frame but not read it, or has placed it but not asked whether it was still good. Its memory
 * is used for something else as soon as it has seen the flushed completions.
 */
void scenario_on_read(void *arg, const struct frame *frame)
{
	const struct node *reader = arg;
	struct world *world = reader->world;
	struct endpoint *own = &world->endpoints[0];

	if (!world->fault_done || own->app_error || own->qp->core.state != FRL_QPS_RTS ||
		frame->owner != &own->node->port || frame->flow != own->qp->core.qpn ||
		!one_in(&world->random, REVOKE_ONE_IN))
		return;
	trace_note(&world->trace, "endpoint 0 takes its payload away from %s", reader->name);
	endpoint_to_error(own);
	oracle_check_node(own->node);
	endpoint_poll(own, UINT32_MAX);
	world_poll_at(own->node, world->clock.now_ns);
}

void scenario_on_lost(void *arg, const struct frame *frame)
{
	const struct node *reader = arg;
	struct world *world = reader->world;

	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		struct endpoint *endpoint = &world->endpoints[i];

		if (frame->owner == &endpoint->node->port && !endpoint->removed &&
			frame->flow == endpoint->qp->core.qpn)
			endpoint->peer->lost = true;
	}
}
