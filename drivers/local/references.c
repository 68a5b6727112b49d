/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * References in the data path. A reference frame consists of the packet's header, with an ethertype
 * of its own, and a block with the location of the payload. It never leaves the machine, so fields
 * are in host byte order.
 */
#include "drivers/local/in_place.h"
#include "drivers/local/ring.h"

#include <assert.h>
#include <string.h>

enum {
	MAGIC = 0x46524c70, /* "FRLp" */
	/* Shorter payload is copied faster than another process's cache lines are fetched. */
	MIN_REFERRED = 1024,
};

static const uint8_t reference_ethertype[2] = { 0x88, 0xb5 }; /* IEEE: local experiments */

struct reference {
	uint32_t id;
	uint32_t len;
	uint64_t offset;
	uint64_t epoch;
	uint16_t ethertype; /* the packet's own, as on the wire */
	uint16_t slot;      /* slot of the flow: the epoch is that of epochs[slot] */
	uint32_t magic;
};

static_assert((int)PORT_FLOWS <= UINT16_MAX + 1, "a slot for each flow");
static_assert(sizeof(struct reference) == 32, "no padding: all of it is sent");
static_assert(IN_PLACE_HEADER + sizeof(struct reference) == IN_PLACE_FRAME, "as long as it says");
static_assert((int)IN_PLACE_FRAME <= (int)PORT_HEADER_ROOM, "fits where a packet's headers do");

bool in_place_can_send(
	struct local_port *port, struct in_place *in_place, const struct port_packet *packet)
{
	const struct port_piece *piece = &packet->pieces[0];
	struct port_share *share;

	if (packet->n_pieces != 1 || packet->trailer_len || piece->len < MIN_REFERRED ||
		packet->header_len < ETH_HEADER || packet->header_len > IN_PLACE_HEADER)
		return false;
	share = piece->mem->share;
	if (!share)
		return false;
	if (share->id >= 0 && (in_place->ready >> share->id & 1))
		return true;
	in_place_request(port, in_place, share);
	return false;
}

uint32_t in_place_encode(const struct local_port *port, const struct port_packet *packet,
	uint8_t frame[static IN_PLACE_FRAME])
{
	const struct port_piece *piece = &packet->pieces[0];
	const struct port_share *share = piece->mem->share;
	struct reference reference = {
		.id = (uint32_t)share->id,
		.len = piece->len,
		.offset = (uint64_t)(piece->addr - share->share->addr),
		.slot = packet->flow % PORT_FLOWS,
		.magic = MAGIC,
	};

	reference.epoch = atomic_load_explicit(&port->epochs[reference.slot], memory_order_relaxed);
	memcpy(frame, packet->header, packet->header_len);
	memcpy(&reference.ethertype, frame + AT_ETHERTYPE, sizeof(reference.ethertype));
	memcpy(frame + AT_ETHERTYPE, reference_ethertype, sizeof(reference_ethertype));
	memcpy(frame + packet->header_len, &reference, sizeof(reference));
	return packet->header_len + (uint32_t)sizeof(reference);
}

bool in_place_is_reference(const struct port_frame *frame)
{
	return frame->len >= ETH_HEADER &&
		memcmp(frame->data + AT_ETHERTYPE, reference_ethertype,
			sizeof(reference_ethertype)) == 0;
}

/* The block stays in the buffer after the header, where in_place_intact() finds it again. */
static void load_reference(const struct packet_buffer *buffer, struct reference *ret_reference)
{
	memcpy(ret_reference, buffer->bytes + buffer->len - sizeof(*ret_reference),
		sizeof(*ret_reference));
}

static bool is_current(const struct local_port *port, uint16_t number,
	const struct reference *reference, memory_order order)
{
	const struct burst_link *link = &port->links[number];

	return !ring_is_void(&link->ring->rx) &&
		atomic_load_explicit(&link->in_place->peer_epochs[reference->slot], order) ==
		reference->epoch;
}

bool in_place_accept(const struct local_port *port, struct port_frame *frame)
{
	const struct in_place *in_place = port->links[frame->link].in_place;
	struct reference reference;
	uint64_t size;

	if (frame->len < ETH_HEADER + sizeof(reference) || !in_place->peer_epochs)
		return false;
	load_reference(frame->handle, &reference);
	if (reference.magic != MAGIC || reference.id >= IN_PLACE_MAX ||
		reference.slot >= PORT_FLOWS || reference.len == 0 ||
		reference.len > port->max_payload || !in_place->imported[reference.id].addr)
		return false;
	size = in_place->imported[reference.id].size;
	if (reference.offset > size || reference.len > size - reference.offset ||
		!is_current(port, frame->link, &reference, memory_order_acquire))
		return false;
	frame->len -= (uint32_t)sizeof(reference);
	memcpy(frame->data + AT_ETHERTYPE, &reference.ethertype, sizeof(reference.ethertype));
	frame->payload = in_place->imported[reference.id].addr + reference.offset;
	frame->payload_len = reference.len;
	return true;
}

void in_place_revoke(struct port *base, uint16_t link, uint32_t flow)
{
	struct local_port *port = (struct local_port *)base;

	if (!port->links[link].in_place || !port->epochs)
		return;
	atomic_fetch_add_explicit(&port->epochs[flow % PORT_FLOWS], 1, memory_order_relaxed);
	/* No peer can see later writes of the application before it sees the new epoch. */
	atomic_thread_fence(memory_order_seq_cst);
}

bool in_place_intact(struct port *base, const struct port_frame *frame)
{
	const struct local_port *port = (const struct local_port *)base;
	const struct in_place *in_place = port->links[frame->link].in_place;
	const struct packet_buffer *buffer = frame->handle;
	struct reference reference;

	/* Payload in a ring is the sender's copy. */
	if (!frame->payload || buffer->payload_in_ring)
		return true;
	if (!in_place || !in_place->peer_epochs)
		return false;
	load_reference(frame->handle, &reference);
	/* Order the reads of the payload before the read of the epoch. */
	atomic_thread_fence(memory_order_acquire);
	return is_current(port, frame->link, &reference, memory_order_relaxed);
}
