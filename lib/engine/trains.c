/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports that send packets together, as one frame of the kernel: a round consists of whole trains,
 * as far as there is enough to send. How long packets are decides which are one train; here that is
 * a guess, the port decides.
 */
#include "lib/engine/stages.h"

enum { TRAIN_OVERHEAD = 16 /* BTH and ICRC */ };

static uint32_t frame_len(const struct port_packet *packet)
{
	uint32_t len = packet->header_len + packet->trailer_len;

	for (unsigned i = 0; i < packet->n_pieces; i++)
		len += packet->pieces[i].len;
	return len;
}

/* Of the queue pair's longest packets, so many make a train; 1 where there are none. */
static uint32_t train_packets(const struct engine *e, const struct engine_qp *qp)
{
	uint32_t n = e->port->caps.train / (qp->core.path_mtu + TRAIN_OVERHEAD);

	if (n > ENGINE_TX_QUEUE)
		n = ENGINE_TX_QUEUE;
	return n ? n : 1;
}

/* The last packet of the queue goes on with the train that ends there, or starts one. */
void train_follow(const struct engine *e, const struct engine_qp *qp, struct tx_queue *q,
	const struct port_packet *packet)
{
	uint32_t len = frame_len(packet);
	bool follows = q->n_coupled && q->coupled_flow == packet->flow && len <= q->coupled_len;
	bool ends = follows && len < q->coupled_len;

	q->n_coupled = follows ? q->n_coupled + 1 : 1;
	q->coupled_len = len;
	q->coupled_flow = packet->flow;
	if (ends || q->n_coupled >= train_packets(e, qp))
		q->n_coupled = 0;
}

/* Of requests, as far as the window is open. */
static uint32_t ready_packets(const struct requester *r)
{
	uint32_t in_flight = (uint32_t)psn_diff(r->next, r->una);
	uint32_t posted = (uint32_t)psn_diff(r->end, r->next);
	uint32_t open = in_flight < r->window ? r->window - in_flight + r->slack : 0;

	return posted < open ? posted : open;
}

/*
 * How many packets a queue pair sends before the next one's turn. Where the port sends trains: what
 * is missing of the last one, or all of one; if that has no room any more behind others, which
 * leave before the next round, none. Who has less to send, as an acknowledgement, does not wait for
 * that much room.
 */
uint32_t train_turn(const struct engine *e, const struct engine_qp *qp)
{
	uint16_t link = qp->path.link;
	const struct tx_queue *q = link < ENGINE_LOOP_LINK ? e->tx[link] : NULL;
	uint32_t n = train_packets(e, qp), room;

	if (n == 1 || !q)
		return ENGINE_EMIT_QUANTUM;
	room = ENGINE_TX_QUEUE - (uint16_t)(q->tail - q->head);
	if (q->n_coupled && q->n_coupled < n && q->coupled_flow == qp->core.qpn)
		n -= q->n_coupled;
	if (n <= room || !q->was_empty)
		return n;
	if (ready_packets(&qp->core.requester) > room)
		return 0;
	return room < ENGINE_EMIT_QUANTUM ? room : ENGINE_EMIT_QUANTUM;
}

/* Before a round: queues that have nothing to wait for begin at their start, for what goes around
 * their end is offered to the port in two parts. */
void train_begin(struct engine *e)
{
	for (uint16_t i = 0; i < e->n_links; i++) {
		struct tx_queue *q = e->tx[i];

		if (!q)
			continue;
		q->was_empty = q->head == q->tail;
		q->n_coupled = 0;
		if (q->was_empty)
			q->head = q->tail = 0;
	}
}
