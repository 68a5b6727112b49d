/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/engine/offload/parked.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/engine/stages.h"

enum { STRIDE = (PARKED_SIZE + 63) / 64 * 64 };

static_assert((int)ETH_LEN + VLAN_LEN + IPV6_LEN + UDP_LEN + BTH_LEN + ATOMICETH_LEN <= PORT_SPLIT,
	"headers are in the near part");
static_assert((int)SLAB_MORE >= (int)ICRC_LEN, "the far part fits");

uint32_t parking_frames(const struct port_caps *caps)
{
	uint32_t half = caps->max_held / 2;

	if (!caps->has_far)
		return 0;
	return half < PARKED ? half : PARKED;
}

size_t parking_size(const struct port_caps *caps)
{
	return (size_t)parking_frames(caps) * STRIDE;
}

int parking_init(struct transfers *t, const struct port_caps *caps, uint8_t *memory)
{
	struct parking *parking;

	if (!caps->has_far)
		return 0;
	parking = calloc(1, sizeof(*parking));
	if (!parking)
		return -ENOMEM;
	list_init(&parking->order);
	parking->n = parking->n_free = parking_frames(caps);
	for (uint32_t i = 0; i < parking->n; i++) {
		struct parked *parked = &parking->entries[i];

		list_init(&parked->node);
		parked->slab.bytes = memory + (size_t)i * STRIDE + PARKED_OFFSET;
		parked->next = parking->free;
		parking->free = parked;
	}
	t->parking = parking;
	return 0;
}

void parking_fini(struct transfers *t)
{
	free(t->parking);
}

void parking_attach(struct engine *e, struct attached *a)
{
	struct parking *parking = transfers_of(e)->parking;

	if (parking && !parking->far && a->offload->gpu == e->port->caps.far_gpu)
		parking->far = a;
}

/* Returns the counter of deferred frames of the stream. */
static uint32_t *waiting(struct parking *parking, struct engine_qp *qp, unsigned stream)
{
	return qp ? &qp->offloads->parked[stream] : &parking->n_other;
}

static void put(struct transfers *t, struct parked *parked)
{
	if (--parked->slab.users == 0)
		parked_release(t, &parked->slab);
}

/* Unlinks the entry. The port has its frame back already. */
static void leave(struct engine *e, struct parked *parked)
{
	struct engine_qp *qp = NULL;

	list_remove(&parked->node);
	if (parked->qpn == PARKED_OTHER)
		transfers_of(e)->parking->n_other--;
	else if (parked->qpn)
		qp = engine_find_qp(e, parked->qpn);
	if (qp)
		qp->offloads->parked[parked->stream]--;
}

static void give_back(struct engine *e, struct parked *parked)
{
	if (parked->frame.far_len)
		e->port->ops->rx_free(e->port, &parked->frame, 1);
	parked->frame.far_len = 0;
}

void parking_detach(struct engine *e, struct attached *a)
{
	struct parking *parking = transfers_of(e)->parking;

	if (!parking || parking->far != a)
		return;
	while (!list_empty(&parking->order)) {
		struct parked *parked = container_of(parking->order.next, struct parked, node);

		give_back(e, parked);
		leave(e, parked);
		put(transfers_of(e), parked);
	}
	while (a->head != a->tail && a->ring[a->head % TRANSFERS].parked) {
		a->head++;
		a->gathers--;
	}
	parking->far = NULL;
}

void parked_release(struct transfers *t, struct slab *slab)
{
	struct parked *parked = container_of(slab, struct parked, slab);
	struct parking *parking = t->parking;

	parked->next = parking->free;
	parking->free = parked;
	parking->n_free++;
}

static bool is_half_taken(const struct parking *parking)
{
	return parking->n_free < (parking->n + 1) / 2;
}

bool parked_may_ask(const struct transfers *t, const struct attached *a)
{
	const struct parking *parking = t->parking;

	return !parking || parking->far != a || !is_half_taken(parking);
}

bool parked_kept_frame(struct transfers *t)
{
	bool took = t->parking && t->parking->took_frame;

	if (took)
		t->parking->took_frame = false;
	return took;
}

struct slab *parked_slab(
	const struct transfers *t, const struct attached *a, const uint8_t *payload)
{
	struct parked *parked = t->parking ? t->parking->delivering : NULL;

	if (!parked || payload < parked->slab.bytes || payload >= parked->slab.bytes + parked->len)
		return NULL;
	/* Copy for another offload, which may stall; the copy is counted for its own share. */
	if (a != t->parking->far && is_half_taken(t->parking))
		return NULL;
	return &parked->slab;
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
	struct attached *far = transfers_of(e)->parking->far;
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
	if (!qp || qp->core.type != FRL_QPT_RC || !list_empty(&qp->offloads->starved))
		return;
	qp_note_loss(&qp->core, packet, &qp->offloads->loss);
	qp->offloads->starved_mask = UINT32_C(1) << (t->parking->far - t->attached);
	list_add_tail(&t->starved, &qp->offloads->starved);
}

/* Any peer can send datagrams, so they leave half of the room to connections. */
static bool has_room(
	const struct parking *parking, const struct engine_qp *qp, const struct port_frame *frame)
{
	uint32_t least = qp && !qp_is_datagram(&qp->core) ? 1 : parking->n / 2 + 1;

	return parking->n_free >= least &&
		(!frame->far_len || parking->far->gathers < TRANSFERS_SHARE);
}

static void fetch(struct engine *e, struct engine_qp *qp, struct parked *parked,
	const struct port_frame *frame)
{
	struct transfers *t = transfers_of(e);
	struct attached *far = t->parking->far;
	struct transfer *transfer = transfer_add(t, far);

	transfer->dst = parked->slab.bytes + frame->len;
	transfer->payload = (const uint8_t *)(uintptr_t)frame->far;
	transfer->length = frame->far_len;
	transfer->parked = parked;
	far->gathers++;
	parked->frame = *frame;
	t->parking->took_frame = true;
	if (qp)
		qp->offloads->used_mask |= UINT32_C(1) << (far - t->attached);
	transfer_give(far);
}

static void park(
	struct engine *e, struct engine_qp *qp, const struct port_frame *frame, unsigned stream)
{
	struct parking *parking = transfers_of(e)->parking;
	struct parked *parked = parking->free;

	parking->free = parked->next;
	parking->n_free--;
	parked->frame = (struct port_frame){ .link = frame->link };
	parked->len = frame->len + frame->far_len;
	parked->qpn = qp ? qp->core.qpn : PARKED_OTHER;
	parked->stream = (uint8_t)stream;
	parked->is_dropped = false;
	parked->is_ready = !frame->far_len;
	parked->slab.users = 1;
	memcpy(parked->slab.bytes, frame->data, frame->len);
	list_add_tail(&parking->order, &parked->node);
	++*waiting(parking, qp, stream);
	if (frame->far_len)
		fetch(e, qp, parked, frame);
}

/* The far part cannot be read, nor that of any later frame. */
static void fail(struct engine *e, struct engine_qp *qp)
{
	e->stats.offload_waits++;
	if (qp && !qp_is_datagram(&qp->core))
		offload_fail_qp(e, qp, transfers_of(e)->parking->far);
}

/* Returns false if no offload can fetch the far part. The frame is then useless. */
static bool is_within_reach(struct engine *e, struct engine_qp *qp, const struct port_frame *frame)
{
	struct parking *parking = transfers_of(e)->parking;

	if (!parking || !parking->far || parking->far->is_leaving)
		e->stats.offload_waits++;
	else if (parking->far->failed)
		fail(e, qp);
	else if (frame->len + (uint64_t)frame->far_len > PARKED_FRAME)
		e->stats.drop_bad_length++;
	else
		return true;
	return false;
}

bool parked_defers(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct wire_packet *packet)
{
	unsigned stream = packet->op->flags & OPCODE_RESPONSE ? 1 : 0;
	struct parking *parking = transfers_of(e)->parking;
	bool waits;

	if (frame->far_len && !is_within_reach(e, qp, frame))
		return true;
	/* Packets from this engine itself share no stream with those of the port. */
	if (!parking || parking->delivering || frame->link == ENGINE_LOOP_LINK)
		return false;
	waits = *waiting(parking, qp, stream) != 0;
	if (!waits && (!frame->far_len || is_direct(e, qp, frame, packet)))
		return false;
	if (!has_room(parking, qp, frame)) {
		refuse(e, qp, packet);
		return true;
	}
	if (qp && parking->far->asked == qp)
		parking->far->asked = NULL;
	park(e, qp, frame, stream);
	return true;
}

bool parked_defers_other(struct engine *e, const struct port_frame *frame)
{
	if (!frame->far_len)
		return false;
	if (is_within_reach(e, NULL, frame) && has_room(transfers_of(e)->parking, NULL, frame))
		park(e, NULL, frame, 0);
	return true;
}

void parked_fetched(struct engine *e, struct parked *parked)
{
	give_back(e, parked);
	parked->is_ready = true;
	if (transfers_of(e)->parking->far->failed)
		parked->is_dropped = true;
}

uint32_t parked_deliver(struct engine *e, uint64_t now_ns)
{
	struct parking *parking = transfers_of(e)->parking;
	uint32_t n = 0;

	while (parking && !list_empty(&parking->order)) {
		struct parked *parked = container_of(parking->order.next, struct parked, node);
		const struct port_frame frame = {
			.data = parked->slab.bytes,
			.len = parked->len,
			.link = parked->frame.link,
		};

		if (!parked->is_ready)
			break;
		leave(e, parked);
		parking->delivering = parked;
		if (!parked->is_dropped)
			receive_frame(e, &frame, now_ns);
		parking->delivering = NULL;
		put(transfers_of(e), parked);
		n++;
	}
	return n;
}

void parked_forget(struct engine *e, struct engine_qp *qp)
{
	struct parking *parking = transfers_of(e)->parking;

	if (!parking || !(qp->offloads->parked[0] + qp->offloads->parked[1]))
		return;
	for (struct list *node = parking->order.next; node != &parking->order; node = node->next) {
		struct parked *parked = container_of(node, struct parked, node);

		if (parked->qpn != qp->core.qpn)
			continue;
		parked->qpn = 0;
		parked->is_dropped = true;
	}
	qp->offloads->parked[0] = qp->offloads->parked[1] = 0;
}

void parked_drop_link(struct engine *e, uint16_t link)
{
	struct parking *parking = transfers_of(e)->parking;

	if (!parking)
		return;
	for (struct list *node = parking->order.next; node != &parking->order; node = node->next) {
		struct parked *parked = container_of(node, struct parked, node);

		if (parked->frame.link == link)
			parked->is_dropped = true;
	}
}

static bool overlaps(const struct transfer *transfer, const struct packet_piece *piece)
{
	return transfer->dst < piece->addr + piece->length &&
		piece->addr < transfer->dst + transfer->length;
}

/* Returns true if no placement into this memory is under way. The NIC does not wait for
 * placements; an offload that gathers does. */
static bool is_there(const struct attached *a, const struct packet_piece *piece)
{
	if (!a->placements || piece->addr >= a->placed_end ||
		piece->addr + piece->length <= a->placed_first)
		return true;
	for (uint64_t at = a->head; at != a->tail; at++) {
		const struct transfer *transfer = &a->ring[at % TRANSFERS];

		if (!transfer->side && !transfer->parked && overlaps(transfer, piece))
			return false;
	}
	return true;
}

/*
 * Restricted to RC without ICRC, over the port. Packets that the port copies, or that return to
 * this engine, cannot be sent this way.
 */
bool parked_sends(struct engine *e, struct engine_qp *qp, const struct packet_out *out)
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
		if (a->failed || !is_there(a, piece))
			return false;
		used |= UINT32_C(1) << (a - t->attached);
	}
	qp->offloads->used_mask |= used;
	return true;
}
