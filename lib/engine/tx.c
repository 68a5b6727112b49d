/* SPDX-License-Identifier: BSD-3-Clause */
/* Transmit: from queue pairs with pending output to the transmit queues of their links. */
#include "lib/engine/stages.h"

#include <assert.h>
#include <string.h>

#include "lib/engine/offload/hooks.h"
#include "lib/wire/icrc.h"

enum {
	EMIT_BUDGET = 64,    /* packets a round, so that receiving gets its turn */
	SCRATCH_HEADER = 64, /* bytes of a frame in e->scratch that go into the packet's header */
};

static uint16_t tx_free(const struct tx_queue *q)
{
	return (uint16_t)(ENGINE_TX_QUEUE - (uint16_t)(q->tail - q->head));
}

static struct port_packet *tx_slot(struct tx_queue *q, uint16_t position)
{
	return &q->packets[position % ENGINE_TX_QUEUE];
}

bool engine_has_room(const struct engine *e, uint16_t link)
{
	return e->tx[link] && tx_free(e->tx[link]) > 0;
}

struct port_packet *engine_queue_slot(struct engine *e, uint16_t link)
{
	struct tx_queue *q = e->tx[link];

	q->n_batched = 0;
	e->unsent = true;
	return tx_slot(q, q->tail++);
}

bool engine_queue_frame(struct engine *e, uint16_t link, const uint8_t *frame, size_t len)
{
	size_t header_len = len <= PORT_HEADER_ROOM ? len : SCRATCH_HEADER;
	struct port_packet *packet;

	if (!engine_has_room(e, link))
		return false;
	packet = engine_queue_slot(e, link);
	packet->flow = packet->sender = 0;
	packet->header_len = (uint16_t)header_len;
	packet->trailer_len = 0;
	packet->n_pieces = 0;
	packet->copy = true;
	packet->alone = false;
	memcpy(packet->header, frame, header_len);
	if (len > header_len)
		packet->pieces[packet->n_pieces++] = (struct port_piece){
			.addr = frame + header_len,
			.len = (uint32_t)(len - header_len),
		};
	return true;
}

/* The scratch buffer has no region, so its address identifies it. */
bool engine_scratch_queued(const struct engine *e)
{
	const struct tx_queue *q = e->tx[0];

	for (uint16_t at = q->head; at != q->tail; at++) {
		const struct port_packet *packet = &q->packets[at % ENGINE_TX_QUEUE];

		if (packet->n_pieces && packet->pieces[0].addr == e->scratch + SCRATCH_HEADER)
			return true;
	}
	return false;
}

/* Covers headers and payload, including the pad bytes, which are zero. */
void engine_store_icrc(struct port_packet *packet, uint32_t l3_offset, uint32_t headers)
{
	const uint8_t *l3 = packet->header + l3_offset, *payload = packet->header + headers;
	uint32_t len = packet->header_len - headers, i = 0;
	uint8_t pad = packet->trailer_len - ICRC_LEN;
	uint32_t crc;

	/* The first block follows the headers and is usually the whole payload. */
	if (len == 0 && packet->n_pieces) {
		payload = packet->pieces[0].addr;
		len = packet->pieces[0].len;
		i = 1;
	}
	crc = icrc_whole(l3, headers - l3_offset, payload, len);
	for (; i < packet->n_pieces; i++)
		crc = icrc_update(crc, packet->pieces[i].addr, packet->pieces[i].len);
	if (pad)
		crc = icrc_update(crc, packet->trailer, pad);
	icrc_store(packet->trailer + pad, crc);
}

struct icrc_job {
	struct port_packet *packet;
	uint32_t l3_offset, headers;
};

static void store_icrc(void *arg)
{
	const struct icrc_job *job = arg;

	engine_store_icrc(job->packet, job->l3_offset, job->headers);
}

/* After a fault the ICRC is wrong. The port then cannot read the payload either. If it can, since
 * other memory is mapped there by then, the packet is lost. */
static void store_icrc_of_unmappable(
	struct port_packet *packet, uint32_t l3_offset, uint32_t headers)
{
	struct icrc_job job = { packet, l3_offset, headers };
	struct fault_area areas[PORT_MAX_PIECES];
	uintptr_t at;

	for (uint8_t i = 0; i < packet->n_pieces; i++)
		areas[i] = (struct fault_area){ packet->pieces[i].addr, packet->pieces[i].len };
	fault_try(store_icrc, &job, areas, packet->n_pieces, &at);
}

static bool is_readable(const struct packet_out *out)
{
	for (uint32_t i = 0; i < out->n_pieces; i++)
		if (out->pieces[i].region && out->pieces[i].region->owner)
			return false;
	return true;
}

bool packet_is_copied(const struct packet_out *out)
{
	return (out->n_pieces && !out->pieces[0].region) ||
		(out->response && out->payload_len <= FRL_MAX_INLINE && is_readable(out));
}

uint32_t engine_encode_headers(const struct wire_path *path, bool has_icrc,
	const struct packet_out *out, struct port_packet *packet)
{
	uint32_t headers = (uint32_t)wire_encode(
		packet->header, path, &out->h, out->payload_len, has_icrc, &packet->trailer_len);

	packet->header_len = (uint16_t)headers;
	packet->n_pieces = 0;
	memset(packet->trailer, 0, sizeof(packet->trailer));
	return headers;
}

void engine_encode(const struct wire_path *path, bool has_icrc, const struct packet_out *out,
	struct port_packet *packet)
{
	uint32_t headers = engine_encode_headers(path, has_icrc, out, packet);
	bool may_fault = false, is_copied = packet_is_copied(out);

	for (uint32_t i = 0; i < out->n_pieces; i++) {
		const struct packet_piece *piece = &out->pieces[i];
		struct port_piece *queued = &packet->pieces[packet->n_pieces];

		queued->addr = piece->addr;
		queued->len = piece->length;
		queued->may_fault = piece->region && region_may_unmap(piece->region);
		/* A response whose payload is gone keeps the piece, on which the port stops. */
		if (is_copied && port_copy_piece(packet->header + packet->header_len, queued)) {
			packet->header_len += (uint16_t)piece->length;
			continue;
		}
		queued->mem = piece->region->port_mem;
		may_fault |= queued->may_fault;
		packet->n_pieces++;
	}
	if (has_icrc && may_fault)
		store_icrc_of_unmappable(packet, path->l3_offset, headers);
	else if (has_icrc)
		engine_store_icrc(packet, path->l3_offset, headers);
}

static_assert((int)WIRE_MAX_HEADERS + FRL_MAX_INLINE <= PORT_HEADER_ROOM, "inline payload fits");
static_assert((int)FRL_MAX_SGE <= PORT_MAX_PIECES, "all elements fit a packet");

/* UC, UD, GSI: requests complete when the port has taken their packets. */
static bool completes_when_taken(const struct engine_qp *qp)
{
	return qp->core.type != FRL_QPT_RC;
}

static struct port_packet *enqueue_last(
	struct engine *e, struct engine_qp *qp, uint16_t link, const struct packet_out *out)
{
	bool has_icrc = !(qp->core.capabilities & FRL_CAP_NO_ICRC);
	struct port_packet *packet = tx_slot(e->tx[link], e->tx[link]->tail++);

	e->unsent = true;
	engine_encode(out->target ? &out->target->path : &qp->path.wire, has_icrc, out, packet);
	return packet;
}

static void enqueue(
	struct engine *e, struct engine_qp *qp, uint16_t link, const struct packet_out *out)
{
	struct port_packet *packet = e->offloads ? e->offloads->queue(e, qp, link, out) : NULL;
	bool is_queued = !packet; /* at once: the payload is in host memory */

	if (is_queued)
		packet = enqueue_last(e, qp, link, out);

	/* Answers have no flow, so they are not withdrawn when this queue pair ends. */
	packet->flow = packet_is_answer(out) ? 0 : qp->core.qpn;
	packet->sender = qp->core.qpn;
	packet->alone = false;
	/* A READ response is not passed in place: deregistration would wait for the peer. */
	packet->copy = !is_queued ||
		(out->response ? e->port->caps.in_place : completes_when_taken(qp));
	if (e->port->caps.max_batch && is_queued && link != ENGINE_LOOP_LINK)
		batch_follow(e, qp, e->tx[link], out, packet);
	if (completes_when_taken(qp)) {
		qp->queued++;
		qp->queued_link = link;
	}
}

void engine_refuse(struct engine *e, uint16_t link, const struct time_wait *entry, struct psn psn)
{
	struct port_packet *packet;
	struct packet_out out;

	if (!engine_has_room(e, link))
		return;
	qp_refusal(&out, entry->dest_qpn, psn);
	packet = engine_queue_slot(e, link);
	packet->flow = packet->sender = 0;
	packet->copy = false;
	packet->alone = false;
	engine_encode(&entry->path, entry->has_icrc, &out, packet);
}

bool engine_region_queued(const struct engine *e, const struct region *region)
{
	if (e->offloads && e->offloads->region_busy(e, region))
		return true;
	if (region->owner && !region->port_mem)
		return false;
	for (uint16_t i = 0; i < ENGINE_LINKS; i++) {
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

/* Gets the link of the next packets. Returns false if there are none. */
static bool next_link(const struct engine_qp *qp, uint16_t *ret_link)
{
	const struct datagram_target *target;

	*ret_link = qp->path.link;
	if (!qp_is_datagram(&qp->core))
		return true;
	target = qp_next_target(&qp->core);
	if (target)
		*ret_link = target->link;
	return target != NULL;
}

/* Returns how many packets can be queued for the link. */
static uint32_t room_for(const struct engine *e, const struct engine_qp *qp, uint16_t link)
{
	const struct tx_queue *q = link < ENGINE_LINKS ? e->tx[link] : NULL;
	uint32_t room = q ? tx_free(q) : 0;

	if (qp->queued && qp->queued_link != link)
		return 0;
	return room;
}

/* Returns true for datagrams, and on a network also for UC. */
static bool may_be_lost(const struct engine *e, const struct engine_qp *qp)
{
	return qp_is_datagram(&qp->core) || (completes_when_taken(qp) && !e->port->caps.on_demand);
}

/* Returns true if the next packet must be dropped: there is no room and no hope of room. All
 * earlier packets must have been reported. */
static bool must_drop(const struct engine *e, const struct engine_qp *qp, uint16_t link)
{
	if (!may_be_lost(e, qp) || qp->queued)
		return false;
	return link == ENGINE_NO_LINK || (e->tx[link] && e->tx[link]->drops);
}

static void drop_packet(
	struct engine *e, struct engine_qp *qp, struct packet_out out[], uint64_t now_ns)
{
	if (!qp_output(&qp->core, out, 1, now_ns))
		return;
	e->stats.drop_datagram++;
	qp_transmitted(&qp->core, 1);
}

/* The peer's device is gone, and a network would discard the packets. Requests that wait for an
 * answer fail without the retries, since there is none. */
static void emit_nowhere(struct engine *e, struct engine_qp *qp, uint64_t now_ns)
{
	struct packet_out out[ENGINE_EMIT_QUANTUM];
	uint32_t n;

	if (qp->core.type == FRL_QPT_RC && qp_n_requests(&qp->core)) {
		qp_fail(&qp->core, FRL_WC_REM_ABORT_ERR);
	} else {
		n = qp_output(&qp->core, out, ENGINE_EMIT_QUANTUM, now_ns);
		if (n && completes_when_taken(qp))
			qp_transmitted(&qp->core, n);
	}
	engine_update(e, qp);
}

static uint32_t emit_qp(struct engine *e, struct engine_qp *qp, uint64_t now_ns)
{
	struct packet_out out[ENGINE_EMIT_QUANTUM];
	/* Each datagram may have another destination. */
	uint32_t most = qp_is_datagram(&qp->core) ? 1 : ENGINE_EMIT_QUANTUM;
	uint32_t turn = ENGINE_EMIT_QUANTUM;
	uint32_t total = 0, at_once = most, n;
	bool waits = false;
	uint16_t link;

	/* No path: completes local requests and discards packets. */
	if (!qp_is_datagram(&qp->core) && !engine_is_connected(qp)) {
		qp_output(&qp->core, out, at_once, now_ns);
		engine_update(e, qp);
		return 0;
	}
	if (!qp_is_datagram(&qp->core) && qp->path.link == ENGINE_NO_LINK) {
		emit_nowhere(e, qp, now_ns);
		return 0;
	}
	if (e->port->caps.max_batch && !qp_is_datagram(&qp->core))
		turn = batch_turn(e, qp);
	for (n = at_once; n == at_once && total < turn && next_link(qp, &link);) {
		uint32_t max = room_for(e, qp, link);

		if (at_once > turn - total)
			at_once = turn - total;
		if (max > at_once)
			max = at_once;
		if (max && e->offloads)
			max = e->offloads->room(e, qp, link, max, &waits);
		if (max) {
			n = qp_output(&qp->core, out, max, now_ns);
			for (uint32_t i = 0; i < n; i++)
				enqueue(e, qp, link, &out[i]);
			total += n;
		} else if (must_drop(e, qp, link)) {
			drop_packet(e, qp, out, now_ns);
			total++;
		} else {
			/* Not if this end is the reason for the delay. */
			if (!waits)
				qp_not_taken(&qp->core, now_ns);
			break;
		}
	}
	engine_update(e, qp);
	return total;
}

uint32_t emit_packets(struct engine *e, uint64_t now_ns)
{
	struct list waiting; /* queue pairs without room in their link's queue */
	uint32_t total = 0;

	list_init(&waiting);
	if (e->port->caps.max_batch)
		batch_begin(e);
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
	if (e->offloads)
		e->offloads->emitted(e, now_ns);
	return total;
}

/* Called when a packet leaves its queue. `taken`: by the port. */
static void release(struct engine *e, struct tx_queue *q, uint16_t position, bool taken)
{
	if (e->offloads)
		e->offloads->release(e, tx_slot(q, position), taken);
}

static void move(struct tx_queue *q, uint16_t to, uint16_t from)
{
	if (to != from)
		*tx_slot(q, to) = *tx_slot(q, from);
}

uint16_t engine_remove_packets(
	struct engine *e, struct tx_queue *q, uint16_t position, uint32_t flow, uint32_t sender)
{
	uint16_t to = position, n;

	for (uint16_t at = position; at != q->tail; at++) {
		const struct port_packet *packet = tx_slot(q, at);

		if (packet->flow != flow || packet->sender != sender) {
			move(q, to++, at);
			continue;
		}
		release(e, q, at, false);
		if (at == q->head && q == e->tx[ENGINE_GROUP_LINK])
			restart_groups(q);
	}
	n = (uint16_t)(q->tail - to);
	q->tail = to;
	q->n_batched = 0;
	return n;
}

void engine_withdraw(struct engine *e, struct engine_qp *qp)
{
	uint16_t link = qp->queued ? qp->queued_link : qp->path.link;

	if (link < ENGINE_LINKS && e->tx[link])
		engine_remove_packets(
			e, e->tx[link], e->tx[link]->head, qp->core.qpn, qp->core.qpn);
	if (e->offloads)
		e->offloads->withdraw(e, qp->core.qpn);
	qp->queued = 0;
	if (e->port->caps.in_place && !completes_when_taken(qp) && link < ENGINE_LOOP_LINK)
		e->port->ops->revoke(e->port, link, qp->core.qpn);
}

void engine_report_sent(struct engine *e, uint32_t flow, uint16_t n)
{
	struct engine_qp *qp = engine_find_qp(e, flow);

	/* An earlier report may have failed the queue pair, which has then withdrawn its packets.
	 */
	if (!qp || qp->queued < n)
		return;
	qp->queued -= n;
	qp_transmitted(&qp->core, n);
	engine_update(e, qp);
}

void engine_packets_taken(struct engine *e, struct tx_queue *q, uint16_t taken)
{
	uint16_t at = q->head;

	/* Advances the head first: a queue pair that fails withdraws the packets behind it. */
	q->head += taken;
	for (uint16_t i = 0; e->offloads && i < taken; i++)
		release(e, q, at + i, true);
	while (taken) {
		uint32_t flow = tx_slot(q, at)->flow;
		uint16_t n = 0;

		while (n < taken && tx_slot(q, at)->flow == flow && tx_slot(q, at)->copy) {
			n++;
			at++;
		}
		if (n && flow)
			engine_report_sent(e, flow, n);
		taken -= n;
		if (!n) {
			taken--;
			at++;
		}
	}
}

static bool is_dropped(const struct engine *e, const struct port_packet *packet)
{
	const struct engine_qp *qp = packet->flow ? engine_find_qp(e, packet->flow) : NULL;

	return qp && may_be_lost(e, qp);
}

void engine_drop_datagrams(struct engine *e, struct tx_queue *q)
{
	uint32_t flows[ENGINE_TX_QUEUE];
	uint16_t to = q->head;
	unsigned n = 0;

	for (uint16_t at = q->head; at != q->tail; at++) {
		const struct port_packet *packet = tx_slot(q, at);

		if (is_dropped(e, packet)) {
			flows[n++] = packet->flow;
			release(e, q, at, false);
			continue;
		}
		move(q, to++, at);
	}
	q->tail = to;
	q->n_batched = 0;
	e->stats.drop_datagram += n;
	for (unsigned i = 0; i < n; i++)
		engine_report_sent(e, flows[i], 1);
}

void engine_count_sent(struct frl_stats *stats, const struct port_packet packets[], uint16_t n)
{
	stats->tx_packets += n;
	for (uint16_t i = 0; i < n; i++) {
		stats->tx_bytes += packets[i].header_len + packets[i].trailer_len;
		for (unsigned k = 0; k < packets[i].n_pieces; k++)
			stats->tx_bytes += packets[i].pieces[k].len;
	}
}

static void loop_groups(
	struct engine *e, const struct port_packet packets[], uint16_t n, uint64_t now_ns)
{
	for (uint16_t i = 0; i < n; i++)
		if (packets[i].flow && (packets[i].header[0] & 1))
			loop_multicast(e, &packets[i], now_ns);
}

static void flush_link(struct engine *e, uint16_t link, struct tx_queue *q, uint64_t now_ns)
{
	while (q->head != q->tail) {
		uint16_t start = q->head % ENGINE_TX_QUEUE;
		uint16_t n = (uint16_t)(q->tail - q->head), taken;

		if (n > ENGINE_TX_QUEUE - start)
			n = ENGINE_TX_QUEUE - start;
		taken = e->port->ops->tx_burst(e->port, link, &q->packets[start], n);
		if (taken)
			q->blocked = q->drops = false;
		engine_count_sent(&e->stats, &q->packets[start], taken);
		engine_packets_taken(e, q, taken);
		/* After the queue was updated: a delivery may fail queue pairs, which withdraw
		 * packets. Released buffers are refilled only by new packets. */
		loop_groups(e, &q->packets[start], taken, now_ns);
		if (taken == n)
			continue;
		if (!e->port->is_unreadable)
			break;
		e->port->is_unreadable = false;
		if (!engine_drop_unreadable(e, q, now_ns))
			break;
	}
}

static void time_out_datagrams(struct engine *e, struct tx_queue *q, uint64_t now_ns)
{
	if (!q->blocked) {
		q->blocked = true;
		q->blocked_at_ns = now_ns;
	}
	q->drops = now_ns - q->blocked_at_ns >= DATAGRAM_TIMEOUT_NS;
	if (q->drops)
		engine_drop_datagrams(e, q);
}

void flush_tx(struct engine *e, uint64_t now_ns)
{
	if (!e->unsent)
		return;
	/* Set again by packets that are queued meanwhile. */
	e->unsent = false;
	for (uint16_t i = 0; i < e->n_links; i++) {
		struct tx_queue *q = e->tx[i];

		if (!q || q->head == q->tail)
			continue;
		flush_link(e, i, q, now_ns);
		/* A network has one link, whose queue stops only without a carrier. */
		if (q->head != q->tail && (e->port->caps.on_demand || !e->port_up))
			time_out_datagrams(e, q, now_ns);
		if (q->head != q->tail)
			e->unsent = true;
	}
	flush_groups(e, now_ns);
	flush_loop(e, now_ns);
}
