/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path: bursts of frames in and packets out. Guard held. No allocation and no log. The
 * only system calls are one to wake a sleeping peer and, after this end has slept, a few to drain
 * the wake-ups. Two of 61 copies of long payload read the clock (store_times.h).
 */
#include "drivers/local/internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "drivers/local/in_place.h"
#include "drivers/local/link.h"
#include "drivers/local/ring.h"
#include "drivers/local/wake.h"
#include "lib/base/memory/copy.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Bytes of payload from which it stays in the ring until the receiver has placed it. */
enum { SPLIT_LEAST = 1024 };

static const uint8_t vlan_ethertype[2] = { 0x81, 0x00 };

void local_set_state(struct local_port *port, uint16_t link, enum port_link_state state)
{
	port->links[link].state = state;
	port->n_active = 0;
	port->next_rx = 0;
	for (uint16_t i = 0; i < PORT_MAX_LINKS; i++)
		if (port->links[i].state == PORT_LINK_UP)
			port->active[port->n_active++] = i;
	local_wake_owner(port);
}

void local_wake_owner(struct local_port *port)
{
	if (port->armed)
		wake_up(port->wake_fd, port->wake);
}

void local_hide_ring(struct local_port *port, uint16_t link)
{
	struct burst_link *seen = &port->links[link];

	seen->ring = NULL;
	seen->broken = false;
	seen->draining = false;
}

/* The link thread takes the link down afterwards. */
static void break_ring(struct local_port *port, struct burst_link *link)
{
	link->broken = true;
	link_thread_notify(port);
}

/* ---- receive */

static void drop(struct local_port *port, struct packet_buffer *buffer)
{
	port->dropped.rx_dropped++;
	packet_pool_put(&port->pool, buffer);
}

static uint16_t rx_ring(
	struct local_port *port, uint16_t number, struct port_frame frames[], uint16_t max)
{
	struct burst_link *link = &port->links[number];
	struct ring_rx *rx = &link->ring->rx;
	uint16_t n = 0, looked = 0;
	int len = 0;

	if (unlikely(link->broken))
		return 0;
	/* Dropped frames count too: a peer may have filled the whole ring with them. */
	for (; looked < max && !ring_must_release(rx) &&
		(len = ring_look(rx, link->max_frame + VLAN_TAG)) > 0;
		looked++) {
		struct packet_buffer *buffer = packet_pool_get(&port->pool);
		struct port_frame *frame = &frames[n];
		const uint8_t *rest;
		uint32_t header_len;

		if (unlikely(!buffer))
			break;
		rest = ring_take_split(rx, buffer->bytes, &header_len);
		buffer->len = rest ? header_len : (uint32_t)len;
		buffer->payload_in_ring = rest;
		*frame = (struct port_frame){
			.data = buffer->bytes,
			.len = buffer->len,
			.link = number,
			.handle = buffer,
			.payload = rest,
			.payload_len = (uint32_t)len - buffer->len,
		};
		if (!rest && link->in_place && in_place_is_reference(frame) &&
			unlikely(!in_place_accept(port, frame)))
			drop(port, buffer);
		else
			n++;
	}
	if (unlikely(len == -EPROTO))
		break_ring(port, link);
	if (unlikely(link->draining))
		link->left -= looked;
	return n;
}

/* Receives from a link whose peer is gone. Once the ring is empty the link thread is notified and
 * sets the link DOWN. The owner has then seen the last frames. */
static uint16_t rx_last(
	struct local_port *port, uint16_t number, struct port_frame frames[], uint16_t max)
{
	struct burst_link *link = &port->links[number];
	uint16_t n;

	if (link->drained || link->broken)
		return 0;
	n = rx_ring(port, number, frames, (uint16_t)(max < link->left ? max : link->left));
	if (link->broken || link->left == 0 ||
		ring_look(&link->ring->rx, link->max_frame + VLAN_TAG) < 0) {
		link->drained = true;
		link_thread_notify(port);
	}
	return n;
}

uint16_t local_rx_burst(struct port *base, struct port_frame frames[], uint16_t max)
{
	struct local_port *port = (struct local_port *)base;
	uint16_t n = 0, at = port->next_rx;

	if (max > PORT_BURST)
		max = PORT_BURST;
	for (uint16_t i = 0; i < port->n_active && n < max; i++) {
		uint16_t number = port->active[at];

		if (likely(!port->links[number].draining))
			n += rx_ring(port, number, frames + n, max - n);
		else
			n += rx_last(port, number, frames + n, max - n);
		at = at + 1u == port->n_active ? 0 : at + 1;
	}
	/* Continue after the link served last, so that a busy link does not starve others. */
	port->next_rx = at;
	return n;
}

/* The link may be gone. */
static void release_payload(struct local_port *port, uint16_t link)
{
	struct ring_link *ring = port->links[link].ring;

	if (ring)
		ring_release(&ring->rx);
}

void local_rx_free(struct port *base, const struct port_frame frames[], uint16_t n)
{
	struct local_port *port = (struct local_port *)base;

	/* Free in reverse: the stack then returns buffers in the order in which they came. */
	for (uint16_t i = n; i > 0; i--) {
		struct packet_buffer *buffer = frames[i - 1].handle;

		/* Frames with payload elsewhere are not kept (keep() in fragments.c copies it), so
		 * the whole burst is freed by now. */
		if (unlikely(buffer->payload_in_ring))
			release_payload(port, frames[i - 1].link);
		packet_pool_put(&port->pool, buffer);
	}
}

/* Returns true if the link has frames, or may have. */
static bool has_frames(const struct burst_link *link)
{
	if (link->broken || (link->draining && link->drained))
		return false;
	return ring_look(&link->ring->rx, link->max_frame + VLAN_TAG) != -EAGAIN;
}

int local_arm(struct port *base)
{
	struct local_port *port = (struct local_port *)base;

	for (uint16_t i = 0; i < port->n_active; i++)
		if (!port->links[port->active[i]].wake)
			return -ENOTSUP;
	if (port->wake_fd < 0)
		return -ENOTSUP;
	port->armed = true;
	for (uint16_t i = 0; i < port->n_active; i++)
		ring_set_asleep(&port->links[port->active[i]].ring->rx, true);
	ring_fence();
	for (uint16_t i = 0; i < port->n_active; i++)
		if (has_frames(&port->links[port->active[i]]))
			return -EAGAIN;
	return port->wake_fd;
}

void local_disarm(struct port *base)
{
	struct local_port *port = (struct local_port *)base;

	if (!port->armed)
		return;
	port->armed = false;
	for (uint16_t i = 0; i < port->n_active; i++)
		ring_set_asleep(&port->links[port->active[i]].ring->rx, false);
	wake_drain(port->wake_fd);
}

/* ---- send */

static uint32_t packet_len(const struct port_packet *packet)
{
	uint32_t len = packet->header_len + packet->trailer_len;

	for (uint8_t i = 0; i < packet->n_pieces; i++)
		len += packet->pieces[i].len;
	return len;
}

/* A VLAN tag does not count, as usual in Ethernet. */
static bool is_too_long(const struct burst_link *link, const struct port_packet *packet)
{
	uint32_t len = packet_len(packet);

	if (likely(len <= link->max_frame))
		return false;
	return len > link->max_frame + VLAN_TAG ||
		memcmp(packet->header + AT_ETHERTYPE, vlan_ethertype, sizeof(vlan_ethertype)) != 0;
}

static uint16_t discard(struct local_port *port, uint16_t n)
{
	port->dropped.tx_dropped += n;
	return n;
}

struct piece_copy {
	struct store_times *times;
	uint8_t *to;
	const struct port_piece *piece;
};

static void copy_piece(void *arg)
{
	const struct piece_copy *c = arg;

	store_times_copy(c->times, c->to, c->piece->addr, c->piece->len);
}

/* Returns false if payload cannot be read. */
static bool put_rest(struct burst_link *link, const struct port_packet *packet, uint8_t *to)
{
	for (uint8_t i = 0; i < packet->n_pieces; i++) {
		const struct port_piece *piece = &packet->pieces[i];
		struct piece_copy c = { &link->store_times, to, piece };
		const struct fault_area area = { piece->addr, piece->len };
		uintptr_t at;

		if (!piece->may_fault)
			copy_piece(&c);
		else if (!fault_try(copy_piece, &c, &area, 1, &at))
			return false;
		to += piece->len;
	}
	memcpy(to, packet->trailer, packet->trailer_len);
	return true;
}

/* The receiver then uses the payload in the ring, without a copy into a packet buffer. Payload
 * outside a frame has no pad and no ICRC. */
static bool may_split(const struct port_packet *packet, uint32_t rest_len)
{
	return rest_len >= SPLIT_LEAST && !packet->trailer_len && packet->header_len >= RING_STEM;
}

/* Writes the packet's parts into the ring. Returns as ring_begin() does, or -EFAULT if payload
 * cannot be read. */
static int put(struct local_port *port, struct burst_link *link, const struct port_packet *packet)
{
	struct ring_tx *tx = &link->ring->tx;
	uint8_t frame[IN_PLACE_FRAME], *rest;
	int err;

	if (link->in_place && !packet->copy && in_place_can_send(port, link->in_place, packet)) {
		uint32_t len = in_place_encode(port, packet, frame);

		err = ring_begin(tx, frame, len, 0, &rest);
	} else {
		uint32_t rest_len = packet_len(packet) - packet->header_len;

		err = ring_begin(tx, packet->header, packet->header_len, rest_len, &rest);
		if (!err && unlikely(!put_rest(link, packet, rest))) {
			ring_cancel(tx);
			err = -EFAULT;
		}
		if (!err && may_split(packet, rest_len))
			ring_split(tx, packet->header_len);
	}
	if (!err)
		ring_show(tx);
	return err;
}

static uint16_t put_all(struct local_port *port, struct burst_link *link,
	const struct port_packet packets[], uint16_t n)
{
	for (uint16_t i = 0; i < n; i++) {
		const struct port_packet *packet = &packets[i];
		int err;

		assert(packet->header_len <= PORT_HEADER_ROOM &&
			packet->trailer_len <= PORT_TRAILER_ROOM &&
			packet->n_pieces <= PORT_MAX_PIECES);
		if (unlikely(is_too_long(link, packet))) {
			discard(port, 1);
			continue;
		}
		err = put(port, link, packet);
		if (likely(!err))
			continue;
		if (err == -EPROTO)
			break_ring(port, link);
		port->base.is_unreadable = err == -EFAULT;
		return i;
	}
	return n;
}

uint16_t local_tx_burst(
	struct port *base, uint16_t number, const struct port_packet packets[], uint16_t n)
{
	struct local_port *port = (struct local_port *)base;
	struct burst_link *link = &port->links[number];
	uint16_t taken;

	if (unlikely(link->state == PORT_LINK_CONNECTING))
		return 0;
	if (unlikely(link->state != PORT_LINK_UP || link->draining || link->broken))
		return discard(port, n);
	taken = put_all(port, link, packets, n);
	if (taken > 0 && unlikely(ring_must_wake(&link->ring->tx)))
		wake_up(port->wake_fd, link->wake);
	return taken;
}
