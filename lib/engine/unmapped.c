/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of regions with FRL_ACCESS_MAY_UNMAP that turns out to be unmapped while the engine
 * accesses it. Its regions are marked as gone. The packets that need it then fail by the checks of
 * the protocol, as if the region had been deregistered.
 */
#include "lib/engine/stages.h"

#include "lib/engine/offload/hooks.h"
#include "lib/wire/packet.h"

void engine_lose_memory(struct engine *e, uintptr_t at)
{
	for (uint32_t i = 0; i < e->regions.capacity; i++) {
		struct region *region = e->regions.slots[i];

		if (region && !region->is_window && region_may_unmap(region) &&
			at - (uintptr_t)region->addr < region->length)
			atomic_store_explicit(&region->is_gone, true, memory_order_release);
	}
}

/* Reads the packet's payload. Marks the region of the first piece that cannot be read. */
static bool is_unreadable(struct engine *e, const struct port_packet *packet)
{
	uintptr_t at;

	for (uint8_t i = 0; i < packet->n_pieces; i++) {
		const struct port_piece *piece = &packet->pieces[i];

		if (!piece->may_fault || fault_read(piece->addr, piece->len, &at))
			continue;
		engine_lose_memory(e, at);
		return true;
	}
	return false;
}

/* Refuses the READ that the packet answers. */
static void refuse_answer(struct engine *e, const struct port_packet *packet)
{
	struct engine_qp *qp = engine_find_qp(e, packet->sender);
	uint32_t rest = packet->trailer_len;
	struct wire_packet decoded;

	for (uint8_t i = 0; i < packet->n_pieces; i++)
		rest += packet->pieces[i].len;
	/* The queue pair, or its connection, may have ended. */
	if (!qp ||
		wire_decode_part(&decoded, packet->header, packet->header_len, rest) != WIRE_OK ||
		decoded.h.bth.dest_qpn != qp->core.dest_qpn)
		return;
	qp_response_gone(&qp->core, decoded.h.bth.psn);
	engine_update(e, qp);
}

/* Takes back the packets of the request's queue pair. `n` of them are removed from the transmit
 * queue, and those that an offload fetches come after them. RC may send the latter: the peer drops
 * packets behind a gap. */
static void take_back(struct engine *e, uint32_t flow, uint16_t n, uint64_t now_ns)
{
	struct engine_qp *qp = engine_find_qp(e, flow);

	if (!qp)
		return;
	if (qp->queued && e->offloads)
		n += e->offloads->withdraw(e, flow);
	if (qp->queued)
		qp->queued -= n;
	qp_take_back(&qp->core, n, now_ns);
	engine_update(e, qp);
}

bool engine_drop_unreadable(struct engine *e, struct tx_queue *q, uint64_t now_ns)
{
	for (uint16_t at = q->head; at != q->tail; at++) {
		struct port_packet packet = q->packets[at % ENGINE_TX_QUEUE];
		uint16_t n;

		if (!is_unreadable(e, &packet))
			continue;
		/* Later packets of the queue pair are of no use without this one. */
		n = engine_remove_packets(e, q, at, packet.flow, packet.sender);
		if (packet.flow)
			take_back(e, packet.flow, n, now_ns);
		else
			refuse_answer(e, &packet);
		return true;
	}
	return false;
}
