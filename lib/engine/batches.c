/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches, for ports that send several packets as one frame of the kernel (GSO). A round sends
 * whole batches if there is enough to send. The port decides which packets form a batch, by their
 * length; this file only predicts it. A queue pair whose batches do not arrive sends single
 * packets.
 */
#include "lib/engine/stages.h"

#include "lib/base/error.h"

enum {
	PACKET_OVERHEAD = 16, /* BTH and ICRC */
	TRIAL_FAILURES = 3,   /* before packets are sent singly */
	TRIAL_FAILURES_MAX = 11,
	TRIAL_ALONE = 1 << 15, /* packets to send singly; doubles each time */
	TRIAL_LONG = 1 << 20,
};

static uint32_t frame_len(const struct port_packet *packet)
{
	uint32_t len = packet->header_len + packet->trailer_len;

	for (unsigned i = 0; i < packet->n_pieces; i++)
		len += packet->pieces[i].len;
	return len;
}

/* Returns the number of full-size packets in a batch; 1 if the port sends no batches. */
static uint32_t batch_packets(const struct engine *e, const struct engine_qp *qp)
{
	uint32_t n = e->port->caps.max_batch / (qp->core.path_mtu + PACKET_OVERHEAD);

	if (n > ENGINE_TX_QUEUE)
		n = ENGINE_TX_QUEUE;
	return n ? n : 1;
}

/* ---- detection of lost batches */

void batch_report(struct engine *e)
{
	if (!e->alone_qpn || e->alone_logged)
		return;
	e->alone_logged = true;
	frl_log(FRL_LOG_WARNING,
		"%s: %d batched frames in a row were lost (QP 0x%x), sending "
		"single packets: use packet: at both ends of a veth, or gso=off "
		"here",
		e->port->caps.kind, TRIAL_FAILURES, e->alone_qpn);
}

/*
 * Packets from `psn` on are sent again. Counts a failure if the first batched packet was lost;
 * losses after it are ordinary. An RNR NAK shows that the packet has arrived.
 */
static void went_back(
	struct engine *e, struct engine_qp *qp, struct batch_trial *trial, struct psn psn)
{
	bool is_refused = trial == &qp->trials[0] && qp->core.recovery.refused;

	if (trial->has_first && !is_refused) {
		if (psn_diff(psn, trial->first) > 0)
			trial->failures = 0;
		else if (trial->failures < TRIAL_FAILURES_MAX)
			trial->failures++;
		if (trial->failures >= TRIAL_FAILURES) {
			trial->alone_left = TRIAL_ALONE << (trial->failures - TRIAL_FAILURES);
			e->alone_qpn = qp->core.qpn;
		}
	}
	trial->has_first = false;
}

/* Sends retransmissions as single packets: the cause of the loss is not known. Returns true if the
 * packet must be sent alone. */
static bool trial_next(
	struct engine *e, struct engine_qp *qp, struct batch_trial *trial, struct psn psn)
{
	bool is_alone;

	if (trial->has_begun && psn_diff(psn, trial->at) < 0)
		went_back(e, qp, trial, psn);
	is_alone = trial->alone_left || (trial->has_begun && psn_diff(psn, trial->end) < 0);
	trial->alone_left -= trial->alone_left > 0;
	trial->at = psn_next(psn);
	if (!trial->has_begun || psn_diff(trial->at, trial->end) > 0)
		trial->end = trial->at;
	trial->has_begun = true;
	/* Too far ahead to be missing still, or to compare PSNs. */
	if (trial->has_first && psn_diff(psn, trial->first) > TRIAL_LONG)
		trial->has_first = false;
	return is_alone;
}

/* Returns NULL for packets without retransmission. */
static struct batch_trial *trial_of(struct engine_qp *qp, const struct packet_out *out)
{
	bool is_answer = opcode_table[out->h.bth.opcode].flags & OPCODE_RESPONSE;

	if (opcode_transport(out->h.bth.opcode) != TRANSPORT_RC || (is_answer && !out->response))
		return NULL;
	return &qp->trials[is_answer];
}

/* Appends the last packet of the queue to the batch at the tail, or starts a new one. */
void batch_follow(struct engine *e, struct engine_qp *qp, struct tx_queue *q,
	const struct packet_out *out, struct port_packet *packet)
{
	struct batch_trial *trial = trial_of(qp, out);
	uint32_t len = frame_len(packet);
	bool follows = q->n_batched && q->batch_flow == packet->flow && len <= q->batch_len;
	bool ends = follows && len < q->batch_len;

	packet->alone = trial && trial_next(e, qp, trial, out->h.bth.psn);
	if (packet->alone) {
		q->n_batched = 0;
		return;
	}
	if (trial && follows && !trial->has_first) {
		trial->has_first = true;
		trial->first = psn_add(out->h.bth.psn, PSN_MASK); /* first packet of the batch */
	}
	q->n_batched = follows ? q->n_batched + 1 : 1;
	q->batch_len = len;
	q->batch_flow = packet->flow;
	if (ends || q->n_batched >= batch_packets(e, qp))
		q->n_batched = 0;
}

/* Returns the number of requests that the window allows to send. */
static uint32_t ready_packets(const struct requester *r)
{
	uint32_t in_flight = (uint32_t)psn_diff(r->next, r->una);
	uint32_t posted = (uint32_t)psn_diff(r->end, r->next);
	uint32_t open = in_flight < r->window ? r->window - in_flight + r->slack : 0;

	return posted < open ? posted : open;
}

/*
 * Returns how many packets a queue pair may send in its turn. On a port with batches: the rest of
 * the last batch, or a whole one. If the queue has no room for it behind other packets, which
 * leave before the next round, 0. A queue pair with fewer packets uses the remaining room.
 */
uint32_t batch_turn(const struct engine *e, const struct engine_qp *qp)
{
	uint16_t link = qp->path.link;
	const struct tx_queue *q = link < ENGINE_LOOP_LINK ? e->tx[link] : NULL;
	uint32_t n = batch_packets(e, qp), room;

	if (n == 1 || !q)
		return ENGINE_EMIT_QUANTUM;
	room = ENGINE_TX_QUEUE - (uint16_t)(q->tail - q->head);
	if (q->n_batched && q->n_batched < n && q->batch_flow == qp->core.qpn)
		n -= q->n_batched;
	if (n <= room || !q->was_empty)
		return n;
	if (ready_packets(&qp->core.requester) > room)
		return 0;
	return room < ENGINE_EMIT_QUANTUM ? room : ENGINE_EMIT_QUANTUM;
}

/* Starts a round. Resets empty queues to their start, since a batch that wraps around would be
 * offered to the port in two parts. */
void batch_begin(struct engine *e)
{
	for (uint16_t i = 0; i < e->n_links; i++) {
		struct tx_queue *q = e->tx[i];

		if (!q)
			continue;
		q->was_empty = q->head == q->tail;
		q->n_batched = 0;
		if (q->was_empty)
			q->head = q->tail = 0;
	}
}
