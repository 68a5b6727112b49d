/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/sim_port.h"

#include "lib/wire/packet.h"
#include "tests/sim/common/fail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct sim_port *port_of(struct port *port)
{
	return (struct sim_port *)(void *)port;
}

static struct sim_flow *find_flow(const struct sim_port *port, uint32_t flow)
{
	for (uint32_t i = 0; i < port->n_flows; i++)
		if (port->flows[i].flow == flow)
			return (struct sim_flow *)&port->flows[i];
	return NULL;
}

static uint32_t epoch_of(const struct sim_port *port, uint32_t flow)
{
	const struct sim_flow *found = find_flow(port, flow);

	return found ? found->epoch : 0;
}

static bool is_revoked(const struct frame *frame)
{
	return frame->payload && epoch_of(frame->owner, frame->flow) != frame->epoch;
}

static bool is_late(const struct frame *frame)
{
	for (uint32_t i = 0; i < SIM_PORT_IN_PLACE_MIN; i++)
		if (frame->payload[i] != SIM_PORT_AFTER_USE)
			return false;
	return true;
}

static struct frame **free_slot(struct sim_port *port)
{
	struct frame **slot = port->handed_out;

	while (*slot)
		slot++;
	return slot;
}

/* Each frame is a block of its own. */
static bool rx_memory(struct port *base, unsigned index, void **ret_addr, size_t *ret_len)
{
	return false;
}

static uint16_t rx_burst(struct port *base, struct port_frame frames[], uint16_t max)
{
	struct sim_port *port = port_of(base);
	uint16_t n = 0;

	SIM_CHECK(port->n_handed_out <= base->caps.max_held + base->caps.max_kept,
		"%s: a burst before the last one came back", port->name);
	SIM_CHECK(max <= PORT_BURST, "%s: asks for %u frames", port->name, max);
	if (random_below(&port->random, port->config.in_place ? 2 : 8) == 0)
		max = (uint16_t)(1 + random_below(&port->random, max));
	while (n < max && sim_port_has_rx(port)) {
		struct frame *frame = port->rx[port->rx_head++ % SIM_PORT_RX_RING], **slot;

		if (is_revoked(frame)) {
			port->revoked++;
			frame_destroy(frame);
			continue;
		}
		slot = free_slot(port);
		*slot = frame;
		port->n_handed_out++;
		frames[n++] = (struct port_frame){
			.data = frame->data,
			.len = frame->len,
			.payload = frame->payload,
			.payload_len = frame->payload_len,
			.handle = slot,
		};
		port->handed++;
		port->handed_bytes += frame->len + frame->payload_len;
		port->in_place += frame->payload != NULL;
		port->in_place_late += frame->payload && is_late(frame);
		port->on_receive(port->hook_arg, frame);
	}
	for (uint16_t i = 0; i < n; i++)
		if (frames[i].payload && port->on_read)
			port->on_read(port->hook_arg, *(struct frame **)frames[i].handle);
	return n;
}

static void rx_free(struct port *base, const struct port_frame frames[], uint16_t n)
{
	struct sim_port *port = port_of(base);

	for (uint16_t i = 0; i < n; i++) {
		struct frame **slot = frames[i].handle;

		SIM_CHECK(*slot != NULL, "%s: a frame comes back twice", port->name);
		frame_destroy(*slot);
		*slot = NULL;
		port->n_handed_out--;
	}
}

static void revoke(struct port *base, uint16_t link, uint32_t flow)
{
	struct sim_port *port = port_of(base);
	struct sim_flow *found = find_flow(port, flow);

	SIM_CHECK(link == 0 && port->config.in_place, "%s: nothing to revoke", port->name);
	if (!found) {
		SIM_CHECK(port->n_flows < SIM_PORT_FLOWS, "%s: too many flows", port->name);
		found = &port->flows[port->n_flows++];
		*found = (struct sim_flow){ .flow = flow };
	}
	found->epoch++;
}

static bool payload_intact(struct port *base, const struct port_frame *frame)
{
	struct sim_port *port = port_of(base);
	struct frame *own = *(struct frame **)frame->handle;

	SIM_CHECK(own && own->payload && own->payload == frame->payload,
		"%s: asks about what is not in place", port->name);
	if (port->on_read)
		port->on_read(port->hook_arg, own);
	if (!is_revoked(own))
		return true;
	port->lost++;
	port->on_lost(port->hook_arg, own);
	return false;
}

static uint32_t packet_len(const struct port_packet *packet)
{
	uint32_t len = packet->header_len + packet->trailer_len;

	for (unsigned i = 0; i < packet->n_pieces; i++)
		len += packet->pieces[i].len;
	return len;
}

static bool fits_in_place(const struct sim_port *port, const struct port_packet *packet)
{
	return port->config.in_place && !packet->copy && packet->n_pieces == 1 &&
		packet->trailer_len == 0 && packet->pieces[0].mem &&
		packet->pieces[0].len >= SIM_PORT_IN_PLACE_MIN;
}

static void tell_group(struct sim_port *port, const struct sim_tx *tx, uint32_t len)
{
	const struct port_packet *packet = &tx->packet;
	uint8_t *frame = sim_alloc(len, 1);
	uint32_t at = packet->header_len;

	memcpy(frame, packet->header, at);
	for (unsigned i = 0; i < packet->n_pieces; i++) {
		memcpy(frame + at, packet->pieces[i].addr, packet->pieces[i].len);
		at += packet->pieces[i].len;
	}
	memcpy(frame + at, packet->trailer, packet->trailer_len);
	port->on_send(port->hook_arg, frame, len);
	free(frame);
}

/* Mapped payload gets a reference, other payload a copy. */
static void take(struct sim_port *port, const struct port_packet *packet)
{
	struct sim_tx *tx = &port->tx[port->tx_tail++ % SIM_PORT_TX_RING];
	uint32_t len = packet_len(packet), used = 0;

	SIM_CHECK(packet->header_len <= PORT_HEADER_ROOM &&
			packet->trailer_len <= PORT_TRAILER_ROOM &&
			packet->n_pieces <= PORT_MAX_PIECES,
		"%s: a packet without form", port->name);
	SIM_CHECK(len <= port->base.caps.max_frame, "%s: a frame of %u bytes", port->name, len);
	*tx = (struct sim_tx){ .packet = *packet, .copied = sim_alloc(len, 1) };
	tx->in_place = fits_in_place(port, packet);
	tx->epoch = epoch_of(port, packet->flow);
	for (unsigned i = 0; i < packet->n_pieces; i++) {
		struct port_piece *piece = &tx->packet.pieces[i];
		struct port_mem *mem = piece->mem;

		SIM_CHECK(!mem ||
				(piece->addr >= mem->addr &&
					piece->addr + piece->len <= mem->addr + mem->len),
			"%s: a piece is not in its memory", port->name);
		if (mem && !port->config.copies && !packet->copy) {
			mem->refs++;
			continue;
		}
		piece->mem = NULL;
		if (tx->in_place)
			break;
		memcpy(tx->copied + used, piece->addr, piece->len);
		piece->addr = tx->copied + used;
		used += piece->len;
	}
	port->taken++;
	port->taken_bytes += len;
	if (packet->header[0] & 1)
		tell_group(port, tx, len);
}

static struct frame *serialise(struct sim_port *port, struct sim_tx *tx)
{
	const struct port_packet *packet = &tx->packet;
	uint32_t len = tx->in_place ? packet->header_len : packet_len(packet);
	struct frame *frame = frame_create(port->live_frames, len);
	uint8_t *at = frame->data;

	memcpy(at, packet->header, packet->header_len);
	if (tx->in_place) {
		frame->payload = packet->pieces[0].addr;
		frame->payload_len = packet->pieces[0].len;
		frame->owner = port;
		frame->flow = packet->flow;
		frame->epoch = tx->epoch;
		free(tx->copied);
		return frame;
	}
	at += packet->header_len;
	for (unsigned i = 0; i < packet->n_pieces; i++) {
		memcpy(at, packet->pieces[i].addr, packet->pieces[i].len);
		at += packet->pieces[i].len;
		if (packet->pieces[i].mem)
			packet->pieces[i].mem->refs--;
	}
	memcpy(at, packet->trailer, packet->trailer_len);
	free(tx->copied);
	return frame;
}

static void check_frame(struct sim_port *port, const struct frame *frame)
{
	struct wire_packet packet;
	enum wire_verdict verdict = wire_decode(&packet, frame->data, frame->len);

	if (frame->payload)
		verdict = wire_decode_split(
			&packet, frame->data, frame->len, frame->payload, frame->payload_len);
	SIM_CHECK(verdict == WIRE_OK || verdict == WIRE_ARP || verdict == WIRE_ICMP ||
			verdict == WIRE_IGMP || (frame->data[0] & 1),
		"%s sends a frame that is %s", port->name, wire_verdict_name(verdict));
	SIM_CHECK(memcmp(frame->data + 6, port->config.mac, 6) == 0, "%s sends in another's name",
		port->name);
}

static void send_next(void *owner, void *arg)
{
	struct sim_port *port = owner;
	struct frame *frame;

	port->sending = port->tx_head != port->tx_tail;
	if (!port->sending)
		return;
	frame = serialise(port, &port->tx[port->tx_head++ % SIM_PORT_TX_RING]);
	check_frame(port, frame);
	trace_frame(port->trace, port->name, "sends", frame->data, frame->len, frame->payload_len);
	clock_at(port->clock, link_send(port->out, frame), send_next, port, NULL);
}

static uint16_t tx_burst(
	struct port *base, uint16_t link, const struct port_packet packets[], uint16_t n)
{
	struct sim_port *port = port_of(base);
	uint16_t i = 0, max = n;

	SIM_CHECK(link == 0, "%s: there is no link %u", port->name, link);
	if (port->config.refuse_ppm &&
		random_below(&port->random, 1000000) < port->config.refuse_ppm)
		max = (uint16_t)random_below(&port->random, n + UINT64_C(1));
	while (i < max && port->tx_tail - port->tx_head < port->config.tx_depth)
		take(port, &packets[i++]);
	if (i < n)
		port->refused = true;
	if (i && !port->sending) {
		port->sending = true;
		clock_at(port->clock, port->clock->now_ns, send_next, port, NULL);
	}
	return i;
}

static int mem_map(struct port *base, void *addr, size_t len, struct port_mem **ret_mem)
{
	struct port_mem *mem = sim_alloc(1, sizeof(*mem));

	mem->addr = addr;
	mem->len = len;
	port_of(base)->n_mapped++;
	*ret_mem = mem;
	return 0;
}

static bool mem_idle(struct port *base, const struct port_mem *mem)
{
	return mem->refs == 0;
}

static void mem_unmap(struct port *base, struct port_mem *mem)
{
	struct sim_port *port = port_of(base);

	SIM_CHECK(mem->refs == 0, "%s: memory unmapped that is being sent", port->name);
	port->n_mapped--;
	free(mem);
}

static int link_open(struct port *base, const struct port_link_request *request)
{
	return -ENOTSUP;
}

static void link_close(struct port *base, uint16_t link)
{
}

static enum port_link_state link_state(struct port *base, uint16_t link)
{
	return link == 0 ? port_of(base)->state : PORT_LINK_CLOSED;
}

static void stats(struct port *base, struct port_stats *ret_stats)
{
	*ret_stats = (struct port_stats){ .rx_dropped = port_of(base)->rx_dropped };
}

static void port_close(struct port *base)
{
}

void sim_port_init(struct sim_port *port, const struct sim_port_config *config)
{
	static const struct port_ops ops = {
		.name = "sim",
		.rx_burst = rx_burst,
		.rx_free = rx_free,
		.rx_memory = rx_memory,
		.tx_burst = tx_burst,
		.revoke = revoke,
		.payload_intact = payload_intact,
		.mem_map = mem_map,
		.mem_idle = mem_idle,
		.mem_unmap = mem_unmap,
		.link_open = link_open,
		.link_close = link_close,
		.link_state = link_state,
		.stats = stats,
		.close = port_close,
	};

	port->config = *config;
	port->base.ops = &ops;
	port->base.caps = (struct port_caps){
		.max_frame = WIRE_MAX_MTU + WIRE_MAX_OVERHEAD,
		.on_demand = config->on_demand,
		.lossless = config->copies,
		.in_place = config->in_place,
		.max_held = config->max_held,
		.kind = "sim",
	};
	memcpy(port->base.caps.mac, config->mac, sizeof(config->mac));
	port->state = PORT_LINK_UP;
}

void sim_port_fini(struct sim_port *port)
{
	SIM_CHECK(port->n_handed_out == 0, "%s: frames were not given back", port->name);
	SIM_CHECK(port->n_mapped == 0, "%s: memory is still mapped", port->name);
	for (; sim_port_has_rx(port); port->rx_head++)
		frame_destroy(port->rx[port->rx_head % SIM_PORT_RX_RING]);
}

void sim_port_deliver(struct sim_port *port, struct frame *frame)
{
	if (port->state == PORT_LINK_DOWN || port->rx_tail - port->rx_head == SIM_PORT_RX_RING) {
		port->rx_dropped++;
		frame_destroy(frame);
		return;
	}
	port->rx[port->rx_tail++ % SIM_PORT_RX_RING] = frame;
}

void sim_port_set_down(struct sim_port *port)
{
	port->state = PORT_LINK_DOWN;
	port->out->cut = true;
}

void sim_port_set_up(struct sim_port *port)
{
	port->state = PORT_LINK_UP;
	port->out->cut = false;
}
