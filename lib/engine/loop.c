/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loopback: packets between queue pairs of this engine. They are built like all others and wait in
 * a queue of their own. Its other end is the receiving stage; no port is involved.
 */
#include "lib/engine/stages.h"

#include <assert.h>
#include <string.h>

enum { LOOP_MAX_FRAME = PORT_HEADER_ROOM + WIRE_MAX_MTU + PORT_TRAILER_ROOM };

/* Copies the packet into one buffer: receiving it may change the memory that it refers to, and its
 * slot. Returns its length, or 0 if payload cannot be read. */
static uint32_t flatten(const struct port_packet *packet, uint8_t out[LOOP_MAX_FRAME])
{
	uint32_t len = packet->header_len;

	memcpy(out, packet->header, len);
	for (unsigned i = 0; i < packet->n_pieces; i++) {
		const struct port_piece *piece = &packet->pieces[i];

		assert(piece->len <= LOOP_MAX_FRAME - PORT_TRAILER_ROOM - len);
		if (!port_copy_piece(out + len, piece))
			return 0;
		len += piece->len;
	}
	memcpy(out + len, packet->trailer, packet->trailer_len);
	return len + packet->trailer_len;
}

static void receive(struct engine *e, uint8_t *bytes, uint32_t len, uint64_t now_ns)
{
	const struct port_frame frame = { .data = bytes, .len = len, .link = ENGINE_LOOP_LINK };

	e->stats.loopback_packets++;
	receive_frame(e, &frame, now_ns);
}

void flush_loop(struct engine *e, uint64_t now_ns)
{
	struct tx_queue *q = e->tx[ENGINE_LOOP_LINK];
	uint8_t bytes[LOOP_MAX_FRAME];
	/* Responses to these packets wait for the next round. A queue pair that fails withdraws
	 * its packets, so fewer may be left. */
	uint16_t n = q ? (uint16_t)(q->tail - q->head) : 0;

	for (; n && q->head != q->tail; n--) {
		uint32_t len = flatten(&q->packets[q->head % ENGINE_TX_QUEUE], bytes);

		if (!len) {
			engine_drop_unreadable(e, q, now_ns);
			continue;
		}
		engine_packets_taken(e, q, 1);
		receive(e, bytes, len, now_ns);
	}
	/* Payload that is mapped again by now. */
	if (q && q->head != q->tail)
		e->unsent = true;
}

void loop_multicast(struct engine *e, const struct port_packet *packet, uint64_t now_ns)
{
	uint8_t bytes[LOOP_MAX_FRAME];
	struct wire_packet decoded;
	uint32_t len;

	if (!e->groups.n_used)
		return;
	len = flatten(packet, bytes);
	if (len && wire_decode(&decoded, bytes, len) == WIRE_OK &&
		groups_find(&e->groups, &decoded.dst_ip) >= 0)
		receive(e, bytes, len, now_ns);
}
