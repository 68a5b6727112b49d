/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending: from queue pairs that have something to say into the transmit queues of their links. */
#include "lib/engine/stages.h"

#include <assert.h>
#include <string.h>

#include "lib/wire/icrc.h"

enum { EMIT_BUDGET = 64 }; /* packets a round, so that receiving gets its turn */

static uint16_t tx_free(const struct tx_queue *q)
{
	return (uint16_t)(ENGINE_TX_QUEUE - (uint16_t)(q->tail - q->head));
}

static struct port_packet *tx_slot(struct tx_queue *q, uint16_t position)
{
	return &q->packets[position % ENGINE_TX_QUEUE];
}

void engine_queue_frame(struct engine *e, uint16_t link, const uint8_t *frame, size_t len)
{
	struct tx_queue *q = e->tx[link];
	struct port_packet *packet;

	if (!q || tx_free(q) == 0)
		return;
	packet = tx_slot(q, q->tail++);
	packet->flow = 0;
	packet->header_len = (uint16_t)len;
	packet->trailer_len = 0;
	packet->n_pieces = 0;
	memcpy(packet->header, frame, len);
}

/* Over headers and payload; pad bytes are zero and covered as well. */
static void store_icrc(
	struct port_packet *packet, const struct wire_path *path, const struct packet_out *out)
{
	uint8_t pad = packet->trailer_len - ICRC_LEN;
	uint32_t crc = icrc_headers(
		packet->header + path->l3_offset, packet->header_len - path->l3_offset);

	for (uint32_t i = 0; i < out->n_pieces; i++)
		crc = icrc_update(crc, out->pieces[i].addr, out->pieces[i].length);
	crc = icrc_update(crc, packet->trailer, pad);
	icrc_store(packet->trailer + pad, crc);
}

static void encode(const struct wire_path *path, bool has_icrc, const struct packet_out *out,
	struct port_packet *packet)
{
	packet->header_len = (uint16_t)wire_encode(
		packet->header, path, &out->h, out->payload_len, has_icrc, &packet->trailer_len);
	packet->n_pieces = 0;
	memset(packet->trailer, 0, sizeof(packet->trailer));
	if (has_icrc)
		store_icrc(packet, path, out);
	for (uint32_t i = 0; i < out->n_pieces; i++) {
		const struct packet_piece *piece = &out->pieces[i];

		if (!piece->region) {
			/* Inline payload: its request may be gone before the port takes the packet.
			 */
			memcpy(packet->header + packet->header_len, piece->addr, piece->length);
			packet->header_len += (uint16_t)piece->length;
			continue;
		}
		packet->pieces[packet->n_pieces++] = (struct port_piece){
			.addr = piece->addr,
			.len = piece->length,
			.mem = piece->region->port_mem,
		};
	}
}

void engine_answer_for_gone(struct engine *e, const struct wire_packet *packet)
{
	for (unsigned i = 0; i < ENGINE_GRAVES; i++) {
		const struct engine_grave *grave = &e->graves[i];
		struct tx_queue *q = e->tx[grave->link];
		struct packet_out out;

		if (grave->qpn == 0 || grave->qpn != packet->h.bth.dest_qpn)
			continue;
		if (!q || tx_free(q) == 0)
			return;
		qp_refusal(&out, grave->dest_qpn, packet->h.bth.psn);
		tx_slot(q, q->tail)->flow = 0;
		encode(&grave->path, grave->has_icrc, &out, tx_slot(q, q->tail));
		q->tail++;
		return;
	}
}

static_assert(WIRE_MAX_HEADERS + FRL_MAX_INLINE <= PORT_HEADER_ROOM, "inline payload fits");

bool engine_region_queued(const struct engine *e, const struct region *region)
{
	for (uint16_t i = 0; i < e->n_links; i++) {
		const struct tx_queue *q = e->tx[i];

		for (uint16_t at = q ? q->head : 0; q && at != q->tail; at++) {
			const struct port_packet *packet = &q->packets[at % ENGINE_TX_QUEUE];

			for (unsigned k = 0; k < packet->n_pieces; k++)
				if (packet->pieces[k].mem == region->port_mem)
					return true;
		}
	}
	return false;
}

static uint32_t emit_qp(struct engine *e, struct engine_qp *qp, uint64_t now_ns)
{
	struct packet_out out[ENGINE_EMIT_QUANTUM];
	struct tx_queue *q = e->tx[qp->link];
	bool has_icrc = !(qp->core.capabilities & FRL_CAP_NO_ICRC);
	uint32_t max = tx_free(q), n;

	if (max > ENGINE_EMIT_QUANTUM)
		max = ENGINE_EMIT_QUANTUM;
	n = qp_output(&qp->core, out, max, now_ns);
	for (uint32_t i = 0; i < n; i++) {
		struct port_packet *packet = tx_slot(q, q->tail++);

		packet->flow = qp->core.qpn;
		encode(&qp->path, has_icrc, &out[i], packet);
	}
	engine_update(e, qp);
	return n;
}

uint32_t emit_packets(struct engine *e, uint64_t now_ns)
{
	struct list waiting; /* for room in their links' queues */
	uint32_t total = 0;

	list_init(&waiting);
	while (!list_empty(&e->ready) && total < EMIT_BUDGET) {
		struct engine_qp *qp = container_of(e->ready.next, struct engine_qp, ready);
		uint32_t n = emit_qp(e, qp, now_ns);

		total += n;
		list_remove(&qp->ready);
		if (qp_wants_output(&qp->core))
			list_add_tail(n ? &e->ready : &waiting, &qp->ready);
	}
	while (!list_empty(&waiting)) {
		struct list *node = waiting.next;

		list_remove(node);
		list_add_tail(&e->ready, node);
	}
	return total;
}

void engine_withdraw(struct engine *e, uint16_t link, uint32_t flow)
{
	struct tx_queue *q = e->tx[link];
	uint16_t to = q->head;

	for (uint16_t at = q->head; at != q->tail; at++) {
		const struct port_packet *packet = tx_slot(q, at);

		if (packet->flow == flow && packet->n_pieces)
			continue;
		if (at != to)
			*tx_slot(q, to) = *packet;
		to++;
	}
	q->tail = to;
}

static void count_sent(struct frl_stats *stats, const struct port_packet packets[], uint16_t n)
{
	stats->tx_packets += n;
	for (uint16_t i = 0; i < n; i++) {
		stats->tx_bytes += packets[i].header_len + packets[i].trailer_len;
		for (unsigned k = 0; k < packets[i].n_pieces; k++)
			stats->tx_bytes += packets[i].pieces[k].len;
	}
}

void flush_tx(struct engine *e)
{
	for (uint16_t i = 0; i < e->n_links; i++) {
		struct tx_queue *q = e->tx[i];

		while (q && q->head != q->tail) {
			uint16_t start = q->head % ENGINE_TX_QUEUE;
			uint16_t n = (uint16_t)(q->tail - q->head), taken;

			if (n > ENGINE_TX_QUEUE - start)
				n = ENGINE_TX_QUEUE - start;
			taken = e->port->ops->tx_burst(e->port, i, &q->packets[start], n);
			count_sent(&e->stats, &q->packets[start], taken);
			q->head += taken;
			if (taken < n)
				break;
		}
	}
}
