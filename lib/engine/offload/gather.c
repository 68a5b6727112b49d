/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Side packets: packets whose payload an offload must fetch. They wait beside the transmit queues,
 * so that they do not block other queue pairs. Later packets of the same stream of PSNs (requests
 * or responses) wait there too, which keeps the order.
 *
 * Payload is fetched into a buffer of the side packet, unless it was retained (retained.h). The
 * port takes the buffer by copy or by reference (loan.h). The ICRC therefore covers exactly the
 * bytes that are sent, and the source memory can change.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory/fault.h"
#include "lib/engine/offload/retained.h"
#include "lib/engine/offload/loan.h"
#include "lib/engine/offload/deferred.h"
#include "lib/engine/offload/transfers.h"
#include "lib/engine/stages.h"

enum {
	SIDE_PACKETS = 512,
	/* The first PROMISED_LINKS links and the loop link can always have SIDES_A_LINK packets,
	 * so a peer that takes nothing does not block the others. Further links share the rest. */
	PROMISED_LINKS = 128,
	SIDES_A_LINK = 2,
	SIDES_MAX = 64, /* of a link, including those in its transmit queue */
	SIDES_PROMISED = SIDES_A_LINK * (PROMISED_LINKS + 1),
	SIDES_SHARED = SIDE_PACKETS - SIDES_PROMISED,
};

static_assert((int)SIDES_PROMISED < (int)SIDE_PACKETS, "some packets are shared");

static uint32_t promised_to(uint16_t link)
{
	return link < PROMISED_LINKS || link == ENGINE_LOOP_LINK ? SIDES_A_LINK : 0;
}

size_t sides_size(const struct transfers *t)
{
	return loan_size(t, SIDE_PACKETS);
}

int sides_init(struct transfers *t, uint8_t *memory)
{
	t->side = calloc(SIDE_PACKETS, sizeof(t->side[0]));
	if (!t->side || loan_init(t, SIDE_PACKETS, memory))
		return -ENOMEM;
	list_init(&t->sides);
	t->n_promised = SIDES_PROMISED;
	t->n_free_sides = SIDE_PACKETS;
	for (uint32_t i = 0; i < SIDE_PACKETS; i++) {
		struct side_packet *side = &t->side[i];

		list_init(&side->node);
		side->buffer = &t->buffers[i];
		side->next = t->free_sides;
		t->free_sides = side;
	}
	return 0;
}

void sides_fini(struct transfers *t)
{
	free(t->side);
}

static void take_of_link(struct transfers *t, uint16_t link)
{
	if (t->sides_of[link]++ < promised_to(link))
		t->n_promised--;
	t->n_free_sides--;
}

static void give_to_link(struct transfers *t, uint16_t link)
{
	if (--t->sides_of[link] < promised_to(link))
		t->n_promised++;
	t->n_free_sides++;
}

/* Charges the packet to the offload that it waits for, directly or behind another packet. */
static void set_owner(struct side_packet *side, struct attached *a)
{
	side->owner = a;
	if (a->sides_of[side->link]++ >= promised_to(side->link))
		a->shared_sides++;
}

static void clear_owner(struct side_packet *side)
{
	struct attached *a = side->owner;

	if (--a->sides_of[side->link] >= promised_to(side->link))
		a->shared_sides--;
	side->owner = NULL;
}

static uint32_t at_most(uint32_t limit, uint32_t used)
{
	return used < limit ? limit - used : 0;
}

/* Returns how many more packets of the link this offload may have within its share. */
static uint32_t free_of(const struct transfers *t, uint16_t link, const struct attached *a)
{
	uint32_t has = a->sides_of[link];
	uint32_t n = at_most(transfers_share(t, SIDES_MAX), has);
	uint32_t shared = at_most(promised_to(link), has) +
		at_most(transfers_share(t, SIDES_SHARED), a->shared_sides);
	uint32_t room = transfers_room(a);

	if (n > shared)
		n = shared;
	return n < room ? n : room;
}

/* Returns how many more packets the link may have. Packets promised to other links are not free. */
static uint32_t free_for(const struct transfers *t, uint16_t link)
{
	uint32_t has = t->sides_of[link];
	uint32_t own = at_most(promised_to(link), has);
	uint32_t n = own + t->n_free_sides - t->n_promised;

	if (has >= SIDES_MAX)
		return 0;
	return n < SIDES_MAX - has ? n : SIDES_MAX - has;
}

/* Returns how many packets may be built for the link if each needs all these offloads. */
static uint32_t room_of(const struct transfers *t, uint16_t link, uint32_t mask)
{
	uint32_t n = free_for(t, link);

	for (; mask; mask &= mask - 1) {
		uint32_t of = free_of(t, link, &t->attached[__builtin_ctz(mask)]);

		if (n > of)
			n = of;
	}
	return n;
}

/* Returns the offloads that the next packet waits for. */
static uint32_t next_needs(const struct transfers *t, const struct engine_qp *qp)
{
	uint32_t mask = 0;
	const struct offload_needs needs = { t, &mask };

	qp_output_touches(&qp->core, offload_note_need, &needs);
	for (unsigned i = 0; i < 2; i++)
		if (qp->offloads->side_last[i])
			mask |= UINT32_C(1) << (qp->offloads->side_last[i]->owner - t->attached);
	return mask;
}

uint32_t side_room(
	struct engine *e, struct engine_qp *qp, uint16_t link, uint32_t max, bool *ret_waits)
{
	const struct transfers *t = transfers_of(e);
	uint32_t n = room_of(t, link, (UINT32_C(1) << ENGINE_OFFLOADS) - 1), mask;

	*ret_waits = false;
	if (offload_fails_output(e, qp)) {
		*ret_waits = true;
		return 0;
	}
	/* The packet after the next one may use any offload. */
	if (t->any_failed && max > 1)
		max = 1;
	if (n >= max)
		return max;
	if (n)
		return n;
	mask = next_needs(t, qp);
	if (!mask || room_of(t, link, mask))
		return 1;
	*ret_waits = true;
	return 0;
}

static struct side_packet *add(struct engine *e, struct engine_qp *qp, uint16_t link, bool answer)
{
	struct transfers *t = transfers_of(e);
	struct side_packet *side = t->free_sides;

	assert(side && t->sides_of[link] < SIDES_MAX);
	t->free_sides = side->next;
	take_of_link(t, link);
	side->qpn = qp->core.qpn;
	side->link = link;
	side->stream = answer;
	side->has_payload = side->has_icrc = false;
	side->prev_in_stream = qp->offloads->side_last[answer];
	side->next_in_stream = NULL;
	if (side->prev_in_stream)
		side->prev_in_stream->next_in_stream = side;
	if (side->prev_in_stream)
		set_owner(side, side->prev_in_stream->owner);
	qp->offloads->side_last[answer] = side;
	list_add_tail(&t->sides, &side->node);
	return side;
}

/* Charges the packet to the offload that owns the piece, and marks that as used. */
static struct attached *note_offload(struct engine *e, struct engine_qp *qp,
	struct side_packet *side, const struct packet_piece *piece)
{
	const struct transfers *t = transfers_of(e);
	struct attached *a = attached_of(t, piece->region->owner);

	if (!side->owner)
		set_owner(side, a);
	qp->offloads->used_mask |= UINT32_C(1) << (a - t->attached);
	return a;
}

static void fetch(struct engine *e, struct engine_qp *qp, struct side_packet *side,
	const struct packet_piece *piece, uint8_t *to)
{
	struct attached *a = note_offload(e, qp, side, piece);
	struct transfer *transfer = transfer_add(transfers_of(e), a);

	transfer->dst = to;
	transfer->payload = piece->addr;
	transfer->length = piece->length;
	transfer->side = side;
	a->gathers++;
	side->transfers++;
	transfer_give(a);
}

/* Gathers all pieces into one. Pieces of host memory are copied now. */
static void gather(struct engine *e, struct engine_qp *qp, struct side_packet *side,
	const struct packet_out *out)
{
	const struct packet_piece *first = &out->pieces[0];
	uint32_t used = 0;

	side->has_payload = true;
	side->packet.n_pieces = 1;
	if (!out->response && out->keep && out->n_pieces == 1 && first->region &&
		first->region->owner && retained_send(e, side, first, out->keep)) {
		note_offload(e, qp, side, first);
		transfers_of(e)->may_leave = true;
		return;
	}
	for (uint32_t i = 0; i < out->n_pieces; i++) {
		const struct packet_piece *piece = &out->pieces[i];

		if (piece->region && piece->region->owner)
			fetch(e, qp, side, piece, side->buffer->bytes + used);
		else
			memcpy(side->buffer->bytes + used, piece->addr, piece->length);
		used += piece->length;
	}
	side->packet.pieces[0] = (struct port_piece){ .addr = side->buffer->bytes, .len = used };
}

static bool has_owned_pieces(const struct packet_out *out)
{
	for (uint32_t i = 0; i < out->n_pieces; i++)
		if (out->pieces[i].region && out->pieces[i].region->owner)
			return true;
	return false;
}

/* Copies a packet that is all in host memory. Returns false if some of it is unmapped. */
static bool copy_pieces(struct side_packet *side, const struct packet_out *out)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i < out->n_pieces; i++) {
		const struct packet_piece *piece = &out->pieces[i];
		uint8_t *to = side->buffer->bytes + used;

		if (!piece->region || !region_may_unmap(piece->region))
			memcpy(to, piece->addr, piece->length);
		else if (!fault_copy(to, piece->addr, piece->length))
			return false;
		used += piece->length;
	}
	side->has_payload = true;
	side->packet.n_pieces = 1;
	side->packet.pieces[0] = (struct port_piece){ .addr = side->buffer->bytes, .len = used };
	return true;
}

/* Builds a packet on which the port stops. Its region may end before it leaves. */
static void encode_unmapped(const struct wire_path *path, bool has_icrc,
	const struct packet_out *out, struct side_packet *side)
{
	side->has_icrc = false;
	engine_encode(path, has_icrc, out, &side->packet);
	for (uint8_t i = 0; i < side->packet.n_pieces; i++)
		side->packet.pieces[i].mem = NULL;
}

/* Builds a side packet. Its payload is fetched or copied now, as the application may change its
 * memory before the packet leaves. The ICRC must match the bytes sent. */
static struct port_packet *make(
	struct engine *e, struct engine_qp *qp, uint16_t link, const struct packet_out *out)
{
	const struct wire_path *path = out->target ? &out->target->path : &qp->path.wire;
	bool has_icrc = !(qp->core.capabilities & FRL_CAP_NO_ICRC);
	struct side_packet *side = add(e, qp, link, packet_is_answer(out));

	if (!out->n_pieces || packet_is_copied(out)) {
		engine_encode(path, has_icrc, out, &side->packet);
		return &side->packet;
	}
	side->headers = (uint16_t)engine_encode_headers(path, has_icrc, out, &side->packet);
	side->l3_offset = (uint16_t)path->l3_offset;
	side->has_icrc = has_icrc;
	if (has_owned_pieces(out))
		gather(e, qp, side, out);
	else if (!copy_pieces(side, out))
		encode_unmapped(path, has_icrc, out, side);
	return &side->packet;
}

struct port_packet *side_queue(
	struct engine *e, struct engine_qp *qp, uint16_t link, const struct packet_out *out)
{
	bool waits = qp->offloads->side_last[packet_is_answer(out)] ||
		(has_owned_pieces(out) && !can_send_far(e, qp, out));

	return waits ? make(e, qp, link, out) : NULL;
}

static void free_side(struct transfers *t, struct side_packet *side)
{
	give_to_link(t, side->link);
	clear_owner(side);
	side->next = t->free_sides;
	t->free_sides = side;
}

/* Unlinks the packet from its stream; the next packet waits for nothing in front of it then. */
static void unlink_side(struct engine *e, struct side_packet *side)
{
	struct engine_qp *qp = engine_find_qp(e, side->qpn);

	list_remove(&side->node);
	if (qp && qp->offloads->side_last[side->stream] == side)
		qp->offloads->side_last[side->stream] = side->prev_in_stream;
	if (side->next_in_stream)
		side->next_in_stream->prev_in_stream = side->prev_in_stream;
	if (side->prev_in_stream)
		side->prev_in_stream->next_in_stream = side->next_in_stream;
	side->next_in_stream = side->prev_in_stream = NULL;
}

/* The buffer stays in use until its transfers are done. */
static void drop(struct engine *e, struct side_packet *side)
{
	unlink_side(e, side);
	if (!side->transfers)
		free_side(transfers_of(e), side);
}

void side_transfer_done(struct transfers *t, struct side_packet *side)
{
	side->transfers--;
	if (!side->transfers && list_empty(&side->node))
		free_side(t, side);
}

/* Moves the packet to its queue and restarts the ACK timer: the time until now was not the peer's.
 */
static void leave(struct engine *e, struct side_packet *side, uint64_t now_ns)
{
	struct engine_qp *qp = side->packet.flow ? engine_find_qp(e, side->packet.flow) : NULL;

	unlink_side(e, side);
	if (side->has_payload)
		loan_offer(e, side);
	if (side->has_icrc)
		engine_store_icrc(&side->packet, side->l3_offset, side->headers);
	*engine_queue_slot(e, side->link) = side->packet;
	if (side->has_payload)
		side->buffer->side = side;
	else
		free_side(transfers_of(e), side);
	if (qp)
		qp_restart_timer(&qp->core, now_ns);
}

uint32_t sides_leave(struct engine *e, uint64_t now_ns)
{
	struct list *sides = &transfers_of(e)->sides, *node = sides->next;
	uint32_t n = 0;

	transfers_of(e)->may_leave = false;
	while (node != sides) {
		struct side_packet *side = container_of(node, struct side_packet, node);

		node = node->next;
		if (side->prev_in_stream || side->transfers || !engine_has_room(e, side->link))
			continue;
		leave(e, side, now_ns);
		n++;
	}
	return n;
}

void sides_leave_early(struct engine *e, uint64_t now_ns)
{
	if (transfers_of(e)->may_leave)
		sides_leave(e, now_ns);
}

bool side_is_fetching(const struct engine_qp *qp)
{
	for (const struct side_packet *side = qp->offloads->side_last[0]; side;
		side = side->prev_in_stream)
		if (side->transfers)
			return true;
	return false;
}

bool sides_wait(const struct engine *e, uint16_t link)
{
	const struct transfers *t = transfers_of(e);

	for (struct list *node = t->sides.next; node != &t->sides; node = node->next)
		if (container_of(node, struct side_packet, node)->link == link)
			return true;
	return false;
}

/* Returns NULL if the payload is in no buffer. */
static struct side_packet *side_of(const struct transfers *t, const struct port_packet *packet)
{
	uintptr_t at = packet->n_pieces == 1 ? (uintptr_t)packet->pieces[0].addr : 0;
	uintptr_t first = (uintptr_t)t->memory;

	if (at < first || at - first >= t->n_buffers * t->slab_size)
		return NULL;
	return t->buffers[(at - first) / t->slab_size].side;
}

/* The payload is not the application's memory, so the queue pair is notified as for a copied
 * packet. */
void side_release(struct engine *e, struct port_packet *packet, bool taken)
{
	struct side_packet *side = side_of(transfers_of(e), packet);

	if (!side)
		return;
	side->buffer->side = NULL;
	loan_settle(e, side, taken);
	free_side(transfers_of(e), side);
	packet->copy = true;
}

uint16_t sides_withdraw(struct engine *e, uint32_t flow)
{
	struct list *sides = &transfers_of(e)->sides, *node = sides->next;
	uint16_t n = 0;

	while (node != sides) {
		struct side_packet *side = container_of(node, struct side_packet, node);

		node = node->next;
		if (side->packet.flow != flow)
			continue;
		drop(e, side);
		n++;
	}
	return n;
}

void sides_drop_link(struct engine *e, uint16_t link)
{
	struct list *sides = &transfers_of(e)->sides, *node = sides->next;
	uint32_t flows[SIDES_MAX];
	uint32_t n = 0;

	while (node != sides) {
		struct side_packet *side = container_of(node, struct side_packet, node);

		node = node->next;
		if (side->link != link)
			continue;
		if (side->packet.flow && side->packet.copy)
			flows[n++] = side->packet.flow;
		drop(e, side);
	}
	for (uint32_t i = 0; i < n; i++)
		engine_report_sent(e, flows[i], 1);
}

/* Their queue pairs fail, but responses would still be sent. */
void sides_drop_failed(struct engine *e, const struct attached *a)
{
	for (uint64_t at = a->head; at != a->tail; at++) {
		struct side_packet *side = a->ring[at % TRANSFERS].side;

		if (side && !list_empty(&side->node))
			drop(e, side);
	}
}
