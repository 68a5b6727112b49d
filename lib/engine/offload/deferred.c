/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/engine/offload/deferred.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/engine/stages.h"

enum { STRIDE = (DEFERRED_SIZE + 63) / 64 * 64 };

static_assert((int)ETH_LEN + VLAN_LEN + IPV6_LEN + UDP_LEN + BTH_LEN + ATOMICETH_LEN <= PORT_SPLIT,
	"headers are in the near part");
static_assert((int)SLAB_MORE >= (int)ICRC_LEN, "the far part fits");

uint32_t deferred_frames(const struct port_caps *caps)
{
	uint32_t half = caps->max_held / 2;

	if (!caps->has_far)
		return 0;
	return half < DEFERRED_MAX ? half : DEFERRED_MAX;
}

size_t deferred_size(const struct port_caps *caps)
{
	return (size_t)deferred_frames(caps) * STRIDE;
}

int deferred_init(struct transfers *t, const struct port_caps *caps, uint8_t *memory)
{
	struct deferred_queue *queue;

	if (!caps->has_far)
		return 0;
	queue = calloc(1, sizeof(*queue));
	if (!queue)
		return -ENOMEM;
	list_init(&queue->order);
	queue->n = queue->n_free = deferred_frames(caps);
	for (uint32_t i = 0; i < queue->n; i++) {
		struct deferred *deferred = &queue->entries[i];

		list_init(&deferred->node);
		deferred->slab.bytes = memory + (size_t)i * STRIDE + DEFERRED_OFFSET;
		deferred->next = queue->free;
		queue->free = deferred;
	}
	t->deferred = queue;
	return 0;
}

void deferred_fini(struct transfers *t)
{
	free(t->deferred);
}

void deferred_attach(struct engine *e, struct attached *a)
{
	struct deferred_queue *queue = transfers_of(e)->deferred;

	if (queue && !queue->far && a->offload->gpu == e->port->caps.far_gpu)
		queue->far = a;
}

/* Returns the counter of deferred frames of the stream. */
static uint32_t *waiting(struct deferred_queue *queue, struct engine_qp *qp, unsigned stream)
{
	return qp ? &qp->offloads->deferred[stream] : &queue->n_other;
}

static void put(struct transfers *t, struct deferred *deferred)
{
	if (--deferred->slab.users == 0)
		deferred_release(t, &deferred->slab);
}

/* Unlinks the entry. The port has its frame back already. */
static void leave(struct engine *e, struct deferred *deferred)
{
	struct engine_qp *qp = NULL;

	list_remove(&deferred->node);
	if (deferred->qpn == DEFERRED_OTHER)
		transfers_of(e)->deferred->n_other--;
	else if (deferred->qpn)
		qp = engine_find_qp(e, deferred->qpn);
	if (qp)
		qp->offloads->deferred[deferred->stream]--;
}

static void give_back(struct engine *e, struct deferred *deferred)
{
	if (deferred->frame.far_len)
		e->port->ops->rx_free(e->port, &deferred->frame, 1);
	deferred->frame.far_len = 0;
}

void deferred_detach(struct engine *e, struct attached *a)
{
	struct deferred_queue *queue = transfers_of(e)->deferred;

	if (!queue || queue->far != a)
		return;
	while (!list_empty(&queue->order)) {
		struct deferred *deferred = container_of(queue->order.next, struct deferred, node);

		give_back(e, deferred);
		leave(e, deferred);
		put(transfers_of(e), deferred);
	}
	while (a->head != a->tail && a->ring[a->head % TRANSFERS].deferred) {
		a->head++;
		a->gathers--;
	}
	queue->far = NULL;
}

void deferred_release(struct transfers *t, struct slab *slab)
{
	struct deferred *deferred = container_of(slab, struct deferred, slab);
	struct deferred_queue *queue = t->deferred;

	deferred->next = queue->free;
	queue->free = deferred;
	queue->n_free++;
}

static bool is_half_taken(const struct deferred_queue *queue)
{
	return queue->n_free < (queue->n + 1) / 2;
}

bool deferred_has_room(const struct transfers *t, const struct attached *a)
{
	const struct deferred_queue *queue = t->deferred;

	return !queue || queue->far != a || !is_half_taken(queue);
}

bool deferred_kept_frame(struct transfers *t)
{
	bool took = t->deferred && t->deferred->took_frame;

	if (took)
		t->deferred->took_frame = false;
	return took;
}

struct slab *deferred_slab(
	const struct transfers *t, const struct attached *a, const uint8_t *payload)
{
	struct deferred *deferred = t->deferred ? t->deferred->delivering : NULL;

	if (!deferred || payload < deferred->slab.bytes ||
		payload >= deferred->slab.bytes + deferred->len)
		return NULL;
	/* Copy for another offload, which may stall; the copy is counted for its own share. */
	if (a != t->deferred->far && is_half_taken(t->deferred))
		return NULL;
	return &deferred->slab;
}

static bool is_far(const void *arg, const struct region *region)
{
	return region->owner == arg;
}

/*
 * Returns true if the frame can be received directly. Without an ICRC no code reads the payload
 * before it is placed, unless the NIC has not verified a UDP checksum. The destination is known
 * for certain only for the next packet of the stream. The offload reads from the frame, so the
 * frame must be held; otherwise it is fetched.
 */
static bool is_direct(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct wire_packet *packet)
{
	struct attached *far = transfers_of(e)->deferred->far;
	size_t near_len = (size_t)(frame->data + frame->len - packet->payload);
	uint32_t unit;

	if (!qp || !(qp->core.capabilities & FRL_CAP_NO_ICRC) ||
		(!frame->is_checked && wire_has_udp_checksum(packet)) ||
		!qp_input_within(&qp->core, packet, is_far, far->offload, &unit))
		return false;
	/* The offload cannot reduce an element that lies in both parts. */
	if (near_len % unit)
		return false;
	return offload_hold(e, far, frame);
}

/* Drops the packet as if the network had lost it. RC requests it again; see offload_admits(). */
static void refuse(struct engine *e, struct engine_qp *qp, const struct wire_packet *packet)
{
	struct transfers *t = transfers_of(e);

	e->stats.offload_waits++;
	/* Only the first missing packet is recorded. */
	if (!qp || qp->core.type != FRL_QPT_RC || !list_empty(&qp->offloads->dropped))
		return;
	qp_note_loss(&qp->core, packet, &qp->offloads->loss);
	qp->offloads->dropped_mask = UINT32_C(1) << (t->deferred->far - t->attached);
	list_add_tail(&t->dropped, &qp->offloads->dropped);
}

/* Any peer can send datagrams, so they leave half of the room to connections. */
static bool has_room(const struct deferred_queue *queue, const struct engine_qp *qp,
	const struct port_frame *frame)
{
	uint32_t least = qp && !qp_is_datagram(&qp->core) ? 1 : queue->n / 2 + 1;

	return queue->n_free >= least && (!frame->far_len || queue->far->gathers < TRANSFERS_SHARE);
}

static void fetch(struct engine *e, struct engine_qp *qp, struct deferred *deferred,
	const struct port_frame *frame)
{
	struct transfers *t = transfers_of(e);
	struct attached *far = t->deferred->far;
	struct transfer *transfer = transfer_add(t, far);

	transfer->dst = deferred->slab.bytes + frame->len;
	transfer->payload = (const uint8_t *)(uintptr_t)frame->far;
	transfer->length = frame->far_len;
	transfer->deferred = deferred;
	far->gathers++;
	deferred->frame = *frame;
	t->deferred->took_frame = true;
	if (qp)
		qp->offloads->used_mask |= UINT32_C(1) << (far - t->attached);
	transfer_give(far);
}

static void defer(
	struct engine *e, struct engine_qp *qp, const struct port_frame *frame, unsigned stream)
{
	struct deferred_queue *queue = transfers_of(e)->deferred;
	struct deferred *deferred = queue->free;

	queue->free = deferred->next;
	queue->n_free--;
	deferred->frame = (struct port_frame){ .link = frame->link };
	deferred->len = frame->len + frame->far_len;
	deferred->qpn = qp ? qp->core.qpn : DEFERRED_OTHER;
	deferred->stream = (uint8_t)stream;
	deferred->is_dropped = false;
	deferred->is_ready = !frame->far_len;
	deferred->slab.users = 1;
	memcpy(deferred->slab.bytes, frame->data, frame->len);
	list_add_tail(&queue->order, &deferred->node);
	++*waiting(queue, qp, stream);
	if (frame->far_len)
		fetch(e, qp, deferred, frame);
}

/* The far part cannot be read, nor that of any later frame. */
static void fail(struct engine *e, struct engine_qp *qp)
{
	e->stats.offload_waits++;
	if (qp && !qp_is_datagram(&qp->core))
		offload_fail_qp(e, qp, transfers_of(e)->deferred->far);
}

/* Returns false if no offload can fetch the far part. The frame is then useless. */
static bool is_within_reach(struct engine *e, struct engine_qp *qp, const struct port_frame *frame)
{
	struct deferred_queue *queue = transfers_of(e)->deferred;

	if (!queue || !queue->far || queue->far->is_leaving)
		e->stats.offload_waits++;
	else if (queue->far->failed)
		fail(e, qp);
	else if (frame->len + (uint64_t)frame->far_len > DEFERRED_FRAME)
		e->stats.drop_bad_length++;
	else
		return true;
	return false;
}

bool defer_frame(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct wire_packet *packet)
{
	unsigned stream = packet->op->flags & OPCODE_RESPONSE ? 1 : 0;
	struct deferred_queue *queue = transfers_of(e)->deferred;
	bool waits;

	if (frame->far_len && !is_within_reach(e, qp, frame))
		return true;
	/* Packets from this engine itself share no stream with those of the port. */
	if (!queue || queue->delivering || frame->link == ENGINE_LOOP_LINK)
		return false;
	waits = *waiting(queue, qp, stream) != 0;
	if (!waits && (!frame->far_len || is_direct(e, qp, frame, packet)))
		return false;
	if (!has_room(queue, qp, frame)) {
		refuse(e, qp, packet);
		return true;
	}
	if (qp && queue->far->requested_qp == qp)
		queue->far->requested_qp = NULL;
	defer(e, qp, frame, stream);
	return true;
}

bool defer_other_frame(struct engine *e, const struct port_frame *frame)
{
	if (!frame->far_len)
		return false;
	if (is_within_reach(e, NULL, frame) && has_room(transfers_of(e)->deferred, NULL, frame))
		defer(e, NULL, frame, 0);
	return true;
}

void deferred_fetched(struct engine *e, struct deferred *deferred)
{
	give_back(e, deferred);
	deferred->is_ready = true;
	if (transfers_of(e)->deferred->far->failed)
		deferred->is_dropped = true;
}

uint32_t deferred_deliver(struct engine *e, uint64_t now_ns)
{
	struct deferred_queue *queue = transfers_of(e)->deferred;
	uint32_t n = 0;

	while (queue && !list_empty(&queue->order)) {
		struct deferred *deferred = container_of(queue->order.next, struct deferred, node);
		const struct port_frame frame = {
			.data = deferred->slab.bytes,
			.len = deferred->len,
			.link = deferred->frame.link,
		};

		if (!deferred->is_ready)
			break;
		leave(e, deferred);
		queue->delivering = deferred;
		if (!deferred->is_dropped)
			receive_frame(e, &frame, now_ns);
		queue->delivering = NULL;
		put(transfers_of(e), deferred);
		n++;
	}
	return n;
}

void deferred_drop(struct engine *e, struct engine_qp *qp)
{
	struct deferred_queue *queue = transfers_of(e)->deferred;

	if (!queue || !(qp->offloads->deferred[0] + qp->offloads->deferred[1]))
		return;
	for (struct list *node = queue->order.next; node != &queue->order; node = node->next) {
		struct deferred *deferred = container_of(node, struct deferred, node);

		if (deferred->qpn != qp->core.qpn)
			continue;
		deferred->qpn = 0;
		deferred->is_dropped = true;
	}
	qp->offloads->deferred[0] = qp->offloads->deferred[1] = 0;
}

void deferred_drop_link(struct engine *e, uint16_t link)
{
	struct deferred_queue *queue = transfers_of(e)->deferred;

	if (!queue)
		return;
	for (struct list *node = queue->order.next; node != &queue->order; node = node->next) {
		struct deferred *deferred = container_of(node, struct deferred, node);

		if (deferred->frame.link == link)
			deferred->is_dropped = true;
	}
}

static bool overlaps(const struct transfer *transfer, const struct packet_piece *piece)
{
	return transfer->dst < piece->addr + piece->length &&
		piece->addr < transfer->dst + transfer->length;
}

/* Returns true if no unfinished placement overlaps the piece. The NIC reads the memory at once,
 * unlike an offload that gathers, which does all transfers in the order of the packets. Transfers
 * of packets to send (`side`) and of deferred frames only read the memory. */
static bool is_placed(const struct attached *a, const struct packet_piece *piece)
{
	if (!a->placements || piece->addr >= a->placed_end ||
		piece->addr + piece->length <= a->placed_first)
		return true;
	for (uint64_t at = a->head; at != a->tail; at++) {
		const struct transfer *transfer = &a->ring[at % TRANSFERS];

		if (!transfer->side && !transfer->deferred && overlaps(transfer, piece))
			return false;
	}
	return true;
}

/*
 * Restricted to RC without ICRC, over the port. Packets that the port copies, or that return to
 * this engine, cannot be sent this way.
 */
bool can_send_far(struct engine *e, struct engine_qp *qp, const struct packet_out *out)
{
	struct transfers *t = transfers_of(e);
	uint32_t used = 0;

	if (qp->core.type != FRL_QPT_RC || !(qp->core.capabilities & FRL_CAP_NO_ICRC) ||
		qp->path.link == ENGINE_LOOP_LINK)
		return false;
	for (uint32_t i = 0; i < out->n_pieces; i++) {
		const struct packet_piece *piece = &out->pieces[i];
		const struct attached *a;

		if (!piece->region || !piece->region->owner)
			continue;
		if (!piece->region->port_mem)
			return false;
		a = attached_of(t, piece->region->owner);
		if (a->failed || !is_placed(a, piece))
			return false;
		used |= UINT32_C(1) << (a - t->attached);
	}
	qp->offloads->used_mask |= used;
	return true;
}
