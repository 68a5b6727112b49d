/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fakes/fake_port.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/wire/packet.h"

static struct fake_port *fake_of(struct port *port)
{
	return (struct fake_port *)(void *)port;
}

/* The frame continues in a slot; false: none is free. */
static bool split(struct fake_port *port, struct port_frame *frame)
{
	uint8_t *near = malloc(PORT_SPLIT);
	uint32_t slot = 0, rest = frame->len - PORT_SPLIT;

	ck_assert_ptr_nonnull(near);
	ck_assert_uint_le(rest, FAKE_FAR_SLOT);
	while (slot < FAKE_FAR_SLOTS && port->far_used[slot])
		slot++;
	if (slot == FAKE_FAR_SLOTS) {
		free(near);
		return false;
	}
	port->far_used[slot] = true;
	memcpy(near, frame->data, PORT_SPLIT);
	memcpy(port->far_view + (size_t)slot * FAKE_FAR_SLOT, frame->data + PORT_SPLIT, rest);
	free(frame->data);
	frame->data = frame->handle = near;
	frame->len = PORT_SPLIT;
	frame->far = (uintptr_t)port->far_there + (uint64_t)slot * FAKE_FAR_SLOT;
	frame->far_len = rest;
	frame->is_checked = port->far_checked;
	return true;
}

/* A reader after that gets other bytes. */
static void free_slot(struct fake_port *port, const struct port_frame *frame)
{
	uint64_t slot = (frame->far - (uintptr_t)port->far_there) / FAKE_FAR_SLOT;

	ck_assert_uint_lt(slot, FAKE_FAR_SLOTS);
	ck_assert(port->far_used[slot]);
	port->far_used[slot] = false;
	memset(port->far_view + slot * FAKE_FAR_SLOT, 0xdd, FAKE_FAR_SLOT);
}

static uint16_t rx_burst(struct port *base, struct port_frame frames[], uint16_t max)
{
	struct fake_port *port = fake_of(base);
	uint32_t n = port->n_rx < max ? port->n_rx : max;

	ck_assert_uint_le(port->n_out, base->caps.max_held + base->caps.max_kept);
	for (uint32_t i = 0; i < n; i++)
		frames[i] = (struct port_frame){
			.data = port->rx[i].data,
			.len = port->rx[i].len,
			.link = port->rx[i].link,
			.payload = port->rx[i].payload,
			.payload_len = port->rx[i].payload_len,
			.handle = port->rx[i].data,
		};
	for (uint32_t i = 0; port->far_there && i < n; i++)
		if (frames[i].len > PORT_SPLIT && !split(port, &frames[i]))
			n = i;
	port->n_rx -= n;
	memmove(port->rx, port->rx + n, port->n_rx * sizeof(port->rx[0]));
	port->n_out += n;
	return (uint16_t)n;
}

static void rx_free(struct port *base, const struct port_frame frames[], uint16_t n)
{
	struct fake_port *port = fake_of(base);

	ck_assert_uint_ge(port->n_out, n);
	for (uint16_t i = 0; i < n; i++) {
		if (frames[i].far_len)
			free_slot(port, &frames[i]);
		free(frames[i].handle);
	}
	port->n_out -= n;
}

/* Each frame is a block of its own, but the pool needs some address. */
static bool rx_memory(struct port *base, unsigned index, void **ret_addr, size_t *ret_len)
{
	*ret_addr = fake_of(base)->copies;
	*ret_len = sizeof(fake_of(base)->copies);
	return index == 0;
}

static bool rx_take(struct port *base, struct port_frame *ret_frame)
{
	struct fake_port *port = fake_of(base);
	uint8_t *data;

	ck_assert_uint_gt(base->caps.max_kept, 0);
	if (port->has_no_buffer)
		return false;
	data = malloc(base->caps.max_frame);
	ck_assert_ptr_nonnull(data);
	*ret_frame = (struct port_frame){ .data = data, .handle = data };
	port->n_out++;
	return true;
}

static void copy_payload(struct port_packet *packet, uint8_t *copy)
{
	uint32_t len = 0;

	for (unsigned i = 0; i < packet->n_pieces; i++) {
		ck_assert_uint_le(packet->pieces[i].len, FAKE_MAX_FRAME - len);
		memcpy(copy + len, packet->pieces[i].addr, packet->pieces[i].len);
		len += packet->pieces[i].len;
	}
	if (packet->n_pieces)
		packet->pieces[0] = (struct port_piece){ .addr = copy, .len = len };
	packet->n_pieces = packet->n_pieces > 0;
}

/* As a driver that copies payload. */
static bool is_unreadable(const struct port_packet *packet)
{
	uintptr_t at;

	for (uint8_t i = 0; i < packet->n_pieces; i++)
		if (packet->pieces[i].may_fault &&
			!fault_read(packet->pieces[i].addr, packet->pieces[i].len, &at))
			return true;
	return false;
}

static uint16_t tx_burst(
	struct port *base, uint16_t link, const struct port_packet packets[], uint16_t n)
{
	struct fake_port *port = fake_of(base);
	uint16_t i;

	ck_assert_uint_lt(link, FAKE_LINKS);
	ck_assert_uint_gt(n, 0);
	for (i = 0; i < n && port->room[link]; i++) {
		ck_assert_uint_lt(port->n_sent, FAKE_SENT);
		if (is_unreadable(&packets[i])) {
			base->is_unreadable = true;
			break;
		}
		port->sent[port->n_sent] = (struct fake_sent){ link, packets[i] };
		if (packets[i].copy)
			copy_payload(&port->sent[port->n_sent].packet, port->copies[port->n_sent]);
		port->n_sent++;
		port->room[link]--;
	}
	return i;
}

static void revoke(struct port *base, uint16_t link, uint32_t flow)
{
	struct fake_port *port = fake_of(base);

	ck_assert(base->caps.in_place);
	ck_assert_uint_lt(link, FAKE_LINKS);
	ck_assert_uint_lt(port->n_revoked, FAKE_REVOKED);
	port->revoked[port->n_revoked++] = (struct fake_revoked){ link, flow };
}

static bool payload_intact(struct port *base, const struct port_frame *frame)
{
	struct fake_port *port = fake_of(base);

	ck_assert_ptr_nonnull(frame->payload);
	port->asked++;
	return !port->lost;
}

static int mem_map(struct port *base, void *addr, size_t len, struct port_mem **ret_mem)
{
	if (fake_of(base)->map_error)
		return frl_fail(fake_of(base)->map_error, "it maps nothing");
	fake_of(base)->n_mapped++;
	*ret_mem = addr;
	return 0;
}

/* Memory is idle when no unread sent frame refers to it. */
static bool mem_idle(struct port *base, const struct port_mem *mem)
{
	const struct fake_port *port = fake_of(base);

	for (uint32_t i = 0; i < port->n_sent; i++)
		for (unsigned k = 0; k < port->sent[i].packet.n_pieces; k++)
			if (port->sent[i].packet.pieces[k].mem == mem)
				return false;
	return true;
}

static void mem_unmap(struct port *base, struct port_mem *mem)
{
	ck_assert(mem_idle(base, mem));
	fake_of(base)->n_mapped--;
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
	return link < FAKE_LINKS ? fake_of(base)->state[link] : PORT_LINK_CLOSED;
}

static void stats(struct port *base, struct port_stats *ret_stats)
{
	*ret_stats = (struct port_stats){ 0 };
}

static void port_close(struct port *base)
{
}

void fake_port_init(struct fake_port *port, const uint8_t mac[6], bool on_demand, bool in_place)
{
	static const struct port_ops ops = {
		.name = "fake",
		.rx_burst = rx_burst,
		.rx_free = rx_free,
		.rx_memory = rx_memory,
		.rx_take = rx_take,
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

	memset(port, 0, sizeof(*port));
	port->base.ops = &ops;
	port->base.caps = (struct port_caps){
		.max_frame = WIRE_MAX_MTU + WIRE_MAX_OVERHEAD,
		.on_demand = on_demand,
		.in_place = in_place,
		.kind = "fake",
	};
	memcpy(port->base.caps.mac, mac, 6);
	for (unsigned i = 0; i < FAKE_LINKS; i++) {
		port->state[i] = PORT_LINK_UP;
		port->room[i] = FAKE_UNLIMITED;
	}
}

static uint8_t last_look[FAKE_MAX_FRAME];

void fake_port_fini(struct fake_port *port)
{
	ck_assert_uint_eq(port->n_out, 0);
	/* Memory that is still mapped counts as mapped for these frames. */
	for (uint32_t i = 0; port->n_mapped && i < port->n_sent; i++)
		fake_port_flatten(&port->sent[i].packet, last_look);
	while (port->n_rx)
		free(port->rx[--port->n_rx].data);
}

static struct {
	const uint8_t *there, *view;
	size_t size;
} seen;

void fake_port_set_view(const uint8_t *there, const uint8_t *view, size_t size)
{
	seen.there = there;
	seen.view = view;
	seen.size = size;
}

static const uint8_t *readable(const uint8_t *addr)
{
	bool is_there = seen.there && addr >= seen.there && addr < seen.there + seen.size;

	return is_there ? seen.view + (addr - seen.there) : addr;
}

size_t fake_port_flatten(const struct port_packet *sent, uint8_t frame[FAKE_MAX_FRAME])
{
	size_t len = sent->header_len;

	memcpy(frame, sent->header, len);
	for (unsigned i = 0; i < sent->n_pieces; i++) {
		ck_assert_uint_le(sent->pieces[i].len, FAKE_MAX_FRAME - len - PORT_TRAILER_ROOM);
		memcpy(frame + len, readable(sent->pieces[i].addr), sent->pieces[i].len);
		len += sent->pieces[i].len;
	}
	memcpy(frame + len, sent->trailer, sent->trailer_len);
	return len + sent->trailer_len;
}

void fake_port_receive_split(struct fake_port *port, uint16_t link, const uint8_t *headers,
	uint32_t len, const uint8_t *payload, uint32_t payload_len)
{
	uint8_t *copy = malloc(len ? len : 1);

	ck_assert_ptr_nonnull(copy);
	ck_assert_uint_lt(port->n_rx, FAKE_RX);
	memcpy(copy, headers, len);
	port->rx[port->n_rx++] = (struct fake_frame){ copy, len, link, payload, payload_len };
}

void fake_port_receive(struct fake_port *port, uint16_t link, const uint8_t *frame, uint32_t len)
{
	fake_port_receive_split(port, link, frame, len, NULL, 0);
}
