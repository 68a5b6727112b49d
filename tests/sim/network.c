/* SPDX-License-Identifier: BSD-3-Clause */
/* The nodes of a world, their addresses, and the switch between them. */
#include "tests/sim/world.h"

#include "tests/sim/common/fail.h"
#include "tests/sim/oracle/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FLAPS = 3,
	FLAP_LONGEST_NS = 400000000,
	FLAP_WITHIN_NS = 50000000,
};

static void deliver_to_port(void *arg, struct frame *frame)
{
	struct node *node = arg;

	sim_port_deliver(&node->port, frame);
	world_poll_at(node,
		node->world->clock.now_ns +
			random_below(&node->world->random, node->world->config.poll_latency_ns));
}

/* The switch: forwards by destination address, to all others for a group. */
static void deliver_to_switch(void *arg, struct frame *frame)
{
	struct node *from = arg;
	struct world *world = from->world;

	for (uint32_t i = 0; i < world->config.n_nodes; i++) {
		struct node *node = &world->nodes[i];
		struct frame *copy;

		if (node == from)
			continue;
		if (!(frame->data[0] & 1) && memcmp(frame->data, node->port.config.mac, 6) != 0)
			continue;
		copy = frame_create(&world->live_frames, frame->len);
		memcpy(copy->data, frame->data, frame->len);
		copy->ignored = frame->ignored;
		frame_refer(copy, frame);
		link_send(&node->down, copy);
	}
	frame_destroy(frame);
}

static void link_init(struct link *link, struct node *node, const char *name,
	void (*deliver)(void *arg, struct frame *frame))
{
	struct world *world = node->world;

	*link = (struct link){
		.config = world->config.link,
		.name = name,
		.clock = &world->clock,
		.trace = &world->trace,
		.deliver = deliver,
		.arg = node,
	};
	random_seed(&link->random, random_u64(&world->random));
}

static void choose_gids(struct node *node)
{
	uint8_t n = (uint8_t)(node->index + 1);

	node->gids.n = N_ROUTES;
	node->gids.gids[ROUTE_LINK_LOCAL] = (struct frl_gid){ gid_link_local(node->port.config.mac),
		64, 0 };
	node->gids.gids[ROUTE_IPV4] = (struct frl_gid){
		ip_from_v4((const uint8_t[]){ 10, 0, 0, n }), 24, 0
	};
	node->gids.gids[ROUTE_IPV6] = (struct frl_gid){ { { 0xfd, [15] = n } }, 64, 0 };
	node->gids.gids[ROUTE_IPV4_VLAN] = (struct frl_gid){
		ip_from_v4((const uint8_t[]){ 10, 1, 0, n }), 24, 10
	};
	node->gids.gids[ROUTE_IPV6_VLAN] = (struct frl_gid){ { { 0xfd, 1, [15] = n } }, 64, 11 };
}

struct frl_ip world_group(bool ipv4)
{
	return ipv4 ? ip_from_v4((const uint8_t[]){ 239, 1, 2, 3 })
		    : (struct frl_ip){ { 0xff, 0x15, [15] = 7 } };
}

static void on_receive(void *arg, const struct frame *frame)
{
	oracle_on_receive(arg, frame);
}

static void on_send(void *arg, const uint8_t *data, uint32_t len)
{
	oracle_on_send(arg, data, len);
}

/* A UC message whose end is lost may keep a receive for ever: there must be enough for all. */
static void share_receives(struct node *node)
{
	struct world *world = node->world;
	uint32_t n = 1u << random_below(&world->random, 5);

	if (world->config.unreliable && n < 2 * WORLD_MAX_CONNECTIONS)
		n = 16;
	inbox_init(&node->inbox, node, &node->pd, n, world->config.longest, &world->random);
	inbox_share(&node->inbox, node);
}

void node_init(struct world *world, uint32_t index)
{
	struct node *node = &world->nodes[index];
	struct sim_port_config port = {
		.mac = { 2, 0, 0, 0, 0, (uint8_t)(index + 1) },
		.tx_depth = world->config.tx_depth,
		.refuse_ppm = world->config.refuse_ppm,
		.on_demand = world->config.fault == FAULT_LINK_DOWN,
		.copies = world->config.no_icrc,
		.in_place = world->config.in_place,
		.max_held = world->config.offloads ? 100 : 0,
	};
	struct engine_config config = { .port = &node->port.base };

	node->world = world;
	node->index = index;
	node->poll_at_ns = CLOCK_NEVER;
	snprintf(node->name, sizeof(node->name), "%u", index);
	snprintf(node->up_name, sizeof(node->up_name), "%u up", index);
	snprintf(node->down_name, sizeof(node->down_name), "%u down", index);
	link_init(&node->up, node, node->up_name, deliver_to_switch);
	link_init(&node->down, node, node->down_name, deliver_to_port);
	sim_port_init(&node->port, &port);
	node->port.clock = &world->clock;
	node->port.trace = &world->trace;
	node->port.name = node->name;
	node->port.out = &node->up;
	node->port.live_frames = &world->live_frames;
	node->port.on_read = world->config.fault == FAULT_REVOKED ? scenario_on_read : NULL;
	node->port.on_lost = scenario_on_lost;
	node->port.on_receive = on_receive;
	node->port.on_send = on_send;
	node->port.hook_arg = node;
	random_seed(&node->port.random, random_u64(&world->random));
	choose_gids(node);
	config.gids = node->gids;
	config.pkey = PKEY_DEFAULT;
	config.mtu = WIRE_MAX_MTU;
	config.seed = random_u64(&world->random);
	SIM_CHECK(engine_init(&node->engine, &config) == 0, "engine_init");
	scenario_add_offload(node);
	if (world->config.srq)
		share_receives(node);
}

/* The carrier is gone for a while: the node reports both changes and continues. */
static void flap(void *owner, void *arg)
{
	struct node *node = owner;
	struct world *world = node->world;
	bool down = node->port.state == PORT_LINK_UP;

	if (world->closing || node->port.config.on_demand)
		return;
	if (down)
		sim_port_set_down(&node->port);
	else
		sim_port_set_up(&node->port);
	trace_note(&world->trace, "%s: carrier %s", node->name, down ? "lost" : "back");
	world->tally->flaps += down;
	if (down)
		clock_at(&world->clock,
			world->clock.now_ns + random_below(&world->random, FLAP_LONGEST_NS), flap,
			node, NULL);
}

void network_start(struct world *world)
{
	if (!world->config.flaps)
		return;
	for (uint32_t i = 0; i < FLAPS; i++)
		clock_at(&world->clock,
			world->clock.now_ns + random_below(&world->random, FLAP_WITHIN_NS), flap,
			&world->nodes[random_below(&world->random, world->config.n_nodes)], NULL);
}

void node_fini(struct node *node)
{
	if (node->inbox.srq)
		inbox_fini(&node->inbox);
	if (node->shared_cq.cq.entries)
		engine_remove_cq(&node->engine, &node->shared_cq.cq);
	free(node->shared_cq.cq.entries);
	engine_fini(&node->engine);
	if (node->has_offload)
		mock_offload_fini(&node->mock);
	sim_port_fini(&node->port);
}
