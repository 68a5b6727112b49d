/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast packets for all links of the local fabric. They wait in a queue of their own, and are
 * offered to one link after the other. The port copies the payload each time, so a request is
 * complete when its packets were offered to all links.
 *
 * A link without room delays a packet for a moment, and then loses it. Later packets are not
 * delayed by that link, until it takes one again. A link that connects delays packets for longer:
 * its peer may be a new member, which is ready and has said so.
 */
#include "lib/engine/stages.h"

enum { CONNECTING_TIMEOUT_NS = 100000000 };

void restart_groups(struct tx_queue *q)
{
	q->next_link = 0;
	q->blocked = false;
}

/* Returns true if the first packet need not wait any more for the link, which has no room. */
static bool is_lost(struct engine *e, struct tx_queue *q, uint64_t limit_ns, uint64_t now_ns)
{
	struct engine_peer *peer = &e->peers[q->next_link];

	if (!q->blocked) {
		q->blocked = true;
		q->blocked_at_ns = now_ns;
	}
	if (!peer->drops_groups && now_ns - q->blocked_at_ns < limit_ns)
		return false;
	peer->drops_groups = true;
	q->blocked = false;
	e->stats.drop_datagram++;
	return true;
}

/* Offers the first packet to the next link. Returns false if it must wait, or cannot be read. */
static bool offer(struct engine *e, struct tx_queue *q, uint64_t now_ns)
{
	const struct port_packet *packet = &q->packets[q->head % ENGINE_TX_QUEUE];
	struct port *port = e->port;

	switch (port->ops->link_state(port, q->next_link)) {
	case PORT_LINK_CLOSED:
	case PORT_LINK_DOWN: return true;
	case PORT_LINK_CONNECTING: return is_lost(e, q, CONNECTING_TIMEOUT_NS, now_ns);
	case PORT_LINK_UP: break;
	}
	if (port->ops->tx_burst(port, q->next_link, packet, 1)) {
		engine_count_sent(&e->stats, packet, 1);
		e->peers[q->next_link].drops_groups = false;
		q->blocked = false;
		return true;
	}
	return !port->is_unreadable && is_lost(e, q, DATAGRAM_TIMEOUT_NS, now_ns);
}

/* Returns true if the first packet was offered to all links. */
static bool offer_to_all(struct engine *e, struct tx_queue *q, uint64_t now_ns)
{
	for (; q->next_link < e->n_links; q->next_link++)
		if (!offer(e, q, now_ns))
			return false;
	return true;
}

void flush_groups(struct engine *e, uint64_t now_ns)
{
	struct tx_queue *q = e->tx[ENGINE_GROUP_LINK];

	while (q && q->head != q->tail) {
		const struct port_packet *packet = &q->packets[q->head % ENGINE_TX_QUEUE];

		if (offer_to_all(e, q, now_ns)) {
			restart_groups(q);
			engine_packets_taken(e, q, 1);
			/* Last, as in flush_link(). */
			loop_multicast(e, packet, now_ns);
			continue;
		}
		if (!e->port->is_unreadable)
			break;
		e->port->is_unreadable = false;
		if (!engine_drop_unreadable(e, q, now_ns))
			break;
	}
	if (q && q->head != q->tail)
		e->unsent = true;
}
