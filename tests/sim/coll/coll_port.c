/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of ranks, and the switch between them. */
#include "tests/sim/coll/coll_world.h"

#include "drivers/dpdk/dpdk.h"
#include "lib/base/bytes.h"
#include "lib/wire/ether.h"
#include "lib/wire/packet.h"
#include "tests/sim/common/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	RX_RING = 256, /* at first */
	ARP_TARGET_IP = ETH_LEN + 24,
};

int __real_dpdk_port_open(const struct dpdk_port_config *config, struct port **ret_port);
int __wrap_dpdk_port_open(const struct dpdk_port_config *config, struct port **ret_port);

static struct coll_port *port_of(struct port *port)
{
	return (struct coll_port *)(void *)port;
}

/* ---- what the engine asks for */

static uint16_t rx_burst(struct port *base, struct port_frame frames[], uint16_t max)
{
	struct coll_port *port = port_of(base);
	uint16_t n = 0;

	SIM_CHECK(port->n_handed_out == 0, "a burst before the last one came back");
	for (; n < max && port->rx_head != port->rx_tail; n++) {
		struct frame *frame = port->rx[port->rx_head++ & (port->rx_size - 1)];

		port->handed_out[n] = frame;
		frames[n] = (struct port_frame){
			.data = frame->data,
			.len = frame->len,
			.handle = &port->handed_out[n],
		};
		port->n_handed_out++;
	}
	return n;
}

static void rx_free(struct port *base, const struct port_frame frames[], uint16_t n)
{
	for (uint16_t i = 0; i < n; i++) {
		struct frame **slot = frames[i].handle;

		SIM_CHECK(*slot != NULL, "a frame comes back twice");
		frame_destroy(*slot);
		*slot = NULL;
		port_of(base)->n_handed_out--;
	}
}

static struct frame *serialise(const struct port_packet *packet, uint64_t *live_frames)
{
	uint32_t len = (uint32_t)packet->header_len + packet->trailer_len;
	struct frame *frame;
	uint8_t *at;

	for (unsigned i = 0; i < packet->n_pieces; i++)
		len += packet->pieces[i].len;
	frame = frame_create(live_frames, len);
	at = frame->data;
	memcpy(at, packet->header, packet->header_len);
	at += packet->header_len;
	for (unsigned i = 0; i < packet->n_pieces; i++) {
		memcpy(at, packet->pieces[i].addr, packet->pieces[i].len);
		at += packet->pieces[i].len;
	}
	memcpy(at, packet->trailer, packet->trailer_len);
	return frame;
}

static void unblock(void *owner, void *arg)
{
	struct coll_port *port = owner;

	(void)arg;
	port->is_blocked = false;
	coll_wake(port->rank);
}

static uint16_t tx_burst(
	struct port *base, uint16_t link, const struct port_packet packets[], uint16_t n)
{
	struct coll_port *port = port_of(base);
	struct clock *clock = &port->rank->world->clock;
	uint16_t i = 0;

	SIM_CHECK(link == 0, "there is no link %u", link);
	port->held_until_ns = clock->now_ns + port->rank->world->config.hold_ns;
	while (i < n && port->to.queued < COLL_TX_DEPTH)
		link_send(&port->to, serialise(&packets[i++], &port->rank->world->live_frames));
	if (i < n && !port->is_blocked) {
		port->is_blocked = true;
		clock_at(clock, clock->now_ns + (port->to.free_at_ns - clock->now_ns) / 2, unblock,
			port, NULL);
	}
	return i;
}

/* Payload is copied when it is taken, so no memory stays in use. */
static int mem_map(struct port *base, void *addr, size_t len, struct port_mem **ret_mem)
{
	(void)addr;
	(void)len;
	port_of(base)->n_mapped++;
	*ret_mem = (struct port_mem *)(void *)base;
	return 0;
}

static bool mem_idle(struct port *base, const struct port_mem *mem)
{
	const struct coll_port *port = port_of(base);

	(void)mem;
	return port->rank->world->clock.now_ns >= port->held_until_ns;
}

static void mem_unmap(struct port *base, struct port_mem *mem)
{
	(void)mem;
	port_of(base)->n_mapped--;
}

static int link_open(struct port *base, const struct port_link_request *request)
{
	(void)base;
	(void)request;
	return -1;
}

static void link_close(struct port *base, uint16_t link)
{
	(void)base;
	(void)link;
}

static enum port_link_state link_state(struct port *base, uint16_t link)
{
	if (port_of(base)->is_down)
		return PORT_LINK_DOWN;
	return link == 0 ? PORT_LINK_UP : PORT_LINK_CLOSED;
}

static void stats(struct port *base, struct port_stats *ret_stats)
{
	(void)base;
	*ret_stats = (struct port_stats){ 0 };
}

static void port_close(struct port *base)
{
	struct coll_port *port = port_of(base);

	SIM_CHECK(port->n_handed_out == 0, "frames were not given back");
	SIM_CHECK(port->n_mapped == 0, "memory is still mapped");
	port->is_open = false;
	while (port->rx_head != port->rx_tail)
		frame_destroy(port->rx[port->rx_head++ & (port->rx_size - 1)]);
}

int __wrap_dpdk_port_open(const struct dpdk_port_config *config, struct port **ret_port)
{
	static const struct port_ops ops = {
		.name = "sim",
		.rx_burst = rx_burst,
		.rx_free = rx_free,
		.tx_burst = tx_burst,
		.mem_map = mem_map,
		.mem_idle = mem_idle,
		.mem_unmap = mem_unmap,
		.link_open = link_open,
		.link_close = link_close,
		.link_state = link_state,
		.stats = stats,
		.close = port_close,
	};
	struct coll_port *port;
	int rank, rail;

	if (!coll_world)
		return __real_dpdk_port_open(config, ret_port);
	SIM_CHECK(sscanf(config->devargs, "%d:%d", &rank, &rail) == 2, "a port '%s'",
		config->devargs);
	port = &coll_world->ranks[rank].ports[rail];
	port->base.ops = &ops;
	port->base.caps = (struct port_caps){
		.mac = { 2, 0, 0, (uint8_t)rail, (uint8_t)(rank >> 8), (uint8_t)rank },
		.max_frame = coll_world->config.mtu + WIRE_MAX_OVERHEAD,
		.kind = "sim",
	};
	port->is_open = true;
	*ret_port = &port->base;
	return 0;
}

/* ---- the switch */

static void deliver(void *arg, struct frame *frame)
{
	struct coll_port *port = arg;

	if (!port->is_open) {
		frame_destroy(frame);
		return;
	}
	if (port->rx_tail - port->rx_head == port->rx_size) {
		struct frame **larger = sim_alloc(2 * (size_t)port->rx_size, sizeof(*larger));
		uint32_t n = 0;

		for (; port->rx_head != port->rx_tail; port->rx_head++)
			larger[n++] = port->rx[port->rx_head & (port->rx_size - 1)];
		free(port->rx);
		port->rx = larger;
		port->rx_head = 0;
		port->rx_tail = n;
		port->rx_size *= 2;
	}
	port->rx[port->rx_tail++ & (port->rx_size - 1)] = frame;
	coll_wake(port->rank);
}

/* Finds the owner of the MAC, or for questions by ARP of the address. Other groups have no
 * members. */
static struct coll_port *find_port(const struct coll_world *world, const struct frame *frame)
{
	const uint8_t *to = frame->data;
	int rank = to[4] << 8 | to[5], rail = to[3];

	if (to[0] & 1) {
		if (frame->len < ARP_TARGET_IP + 4 ||
			get_be16(frame->data + ETH_LEN - 2) != ETHERTYPE_ARP)
			return NULL;
		to = frame->data + ARP_TARGET_IP;
		rail = to[1];
		rank = (to[2] << 8 | to[3]) - 1;
	}
	if (rank < 0 || rank >= world->config.ranks || rail >= world->config.rails)
		return NULL;
	return &world->ranks[rank].ports[rail];
}

static void forward(void *arg, struct frame *frame)
{
	struct coll_port *from = arg;
	struct coll_port *port = find_port(from->rank->world, frame);

	if (port)
		link_send(&port->from, frame);
	else
		frame_destroy(frame);
}

static void init_link(struct coll_port *port, struct link *link, const struct link_config *config)
{
	struct coll_world *world = port->rank->world;

	*link = (struct link){
		.config = *config,
		.name = link == &port->to ? "to" : "from",
		.clock = &world->clock,
		.trace = &world->trace,
		.deliver = link == &port->to ? forward : deliver,
		.arg = port,
	};
	random_seed(&link->random, random_u64(&world->random));
}

void coll_ports_init(struct coll_rank *rank)
{
	for (int rail = 0; rail < rank->world->config.rails; rail++) {
		struct coll_port *port = &rank->ports[rail];

		port->rank = rank;
		port->rx_size = RX_RING;
		port->rx = sim_alloc(port->rx_size, sizeof(struct frame *));
		init_link(port, &port->to, &rank->world->config.to);
		init_link(port, &port->from, &rank->world->config.from);
	}
}

static void add_stats(struct link_stats *sum, const struct link_stats *stats)
{
	sum->sent += stats->sent;
	sum->delivered += stats->delivered;
	sum->lost += stats->lost;
	sum->overflowed += stats->overflowed;
	sum->reordered += stats->reordered;
	sum->duplicated += stats->duplicated;
	sum->corrupted += stats->corrupted;
}

void coll_ports_fini(struct coll_rank *rank)
{
	for (int rail = 0; rail < rank->world->config.rails; rail++) {
		struct coll_port *port = &rank->ports[rail];

		SIM_CHECK(!port->is_open, "rank %d: a port is open", rank->number);
		add_stats(&rank->world->stats, &port->to.stats);
		add_stats(&rank->world->stats, &port->from.stats);
		free(port->rx);
	}
}

bool coll_ports_have_rx(const struct coll_rank *rank)
{
	for (int rail = 0; rail < rank->world->config.rails; rail++)
		if (rank->ports[rail].rx_head != rank->ports[rail].rx_tail)
			return true;
	return false;
}
