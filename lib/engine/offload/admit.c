/* SPDX-License-Identifier: BSD-3-Clause */
/* Decides which packets an engine with offloads receives, and handles the dropped ones. */
#include "lib/engine/offload/transfers.h"

#include <assert.h>

#include "lib/engine/offload/deferred.h"
#include "lib/engine/stages.h"

enum {
	/* Dropped packets are requested again when at most REQUEST_PLACEMENTS placements are under
	 * way and at least REQUEST_SLABS slabs are free. */
	REQUEST_PLACEMENTS = TRANSFERS_SHARE / 2,
	REQUEST_SLABS = 16,
	REQUESTED_NS = 5000000, /* how long room is reserved for a requested packet */
};

static_assert((int)SLABS / (int)ENGINE_OFFLOADS >= (int)REQUEST_SLABS,
	"dropped packets can be requested again");

static uint32_t slab_room(const struct transfers *t, const struct attached *a)
{
	uint32_t share = transfers_share(t, SLABS), n = share > a->slabs ? share - a->slabs : 0;
	uint32_t n_free = t->n_free_slabs + t->n_kept_slabs;

	return n < n_free ? n : n_free;
}

/* Returns true if there is room for a packet to this offload, and for `more` packets after it. */
static bool has_room(const struct transfers *t, const struct attached *a, uint32_t more)
{
	return a->placements + (1 + more) * TRANSFERS_A_PACKET <= TRANSFERS_SHARE &&
		slab_room(t, a) > more;
}

/* Returns true if there is room for a packet to any memory, and none is reserved. */
static bool all_have_room(const struct transfers *t)
{
	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++)
		if (t->attached[i].requested_qp || !has_room(t, &t->attached[i], 0))
			return false;
	return true;
}

static bool finds_room(const struct transfers *t, const struct engine_qp *qp, uint32_t mask)
{
	for (; mask; mask &= mask - 1) {
		const struct attached *a = &t->attached[__builtin_ctz(mask)];

		if (!has_room(t, a, a->requested_qp && a->requested_qp != qp))
			return false;
	}
	return true;
}

static bool may_be_requested(const struct transfers *t, uint32_t mask)
{
	for (; mask; mask &= mask - 1) {
		const struct attached *a = &t->attached[__builtin_ctz(mask)];

		if (a->requested_qp || a->placements > REQUEST_PLACEMENTS ||
			slab_room(t, a) < REQUEST_SLABS || !deferred_has_room(t, a))
			return false;
	}
	return true;
}

static void end_request(struct transfers *t, const struct engine_qp *qp)
{
	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++)
		if (t->attached[i].requested_qp == qp)
			t->attached[i].requested_qp = NULL;
}

void offload_clear_loss(struct engine *e, struct engine_qp *qp)
{
	list_remove(&qp->offloads->dropped);
	qp->offloads->loss = (struct qp_loss){ 0 };
	end_request(transfers_of(e), qp);
}

/* The request ends when the packet has arrived, or after REQUESTED_NS. */
static void request_dropped(struct engine *e, struct engine_qp *qp, uint64_t now_ns)
{
	const struct qp_loss loss = qp->offloads->loss;

	list_remove(&qp->offloads->dropped);
	qp->offloads->loss = (struct qp_loss){ 0 };
	for (uint32_t mask = qp->offloads->dropped_mask; mask; mask &= mask - 1) {
		struct attached *a = &transfers_of(e)->attached[__builtin_ctz(mask)];

		a->requested_qp = qp;
		a->requested_until_ns = now_ns + REQUESTED_NS;
	}
	qp_request_again(&qp->core, &loss, now_ns);
	engine_update(e, qp);
}

/* Returns true if an earlier packet of the stream is still deferred. The missing packet is not the
 * next one then, so a NAK would be too early. */
static bool is_behind_deferred(const struct engine_qp *qp)
{
	return (qp->offloads->loss.request && qp->offloads->deferred[0]) ||
		(qp->offloads->loss.response && qp->offloads->deferred[1]);
}

void offload_request_dropped(struct engine *e, uint64_t now_ns)
{
	struct transfers *t = transfers_of(e);
	struct list *node = t->dropped.next;

	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++)
		if (t->attached[i].requested_qp && now_ns >= t->attached[i].requested_until_ns)
			t->attached[i].requested_qp = NULL;
	while (node != &t->dropped) {
		struct engine_qp *qp = container_of(node, struct offload_qp, dropped)->qp;

		node = node->next;
		if (!qp_trim_loss(&qp->core, &qp->offloads->loss))
			offload_clear_loss(e, qp);
		else if (may_be_requested(t, qp->offloads->dropped_mask) && !is_behind_deferred(qp))
			request_dropped(e, qp, now_ns);
	}
}

struct search {
	const struct transfers *transfers;
	const struct attached **ret_found;
};

static bool is_failed(const void *arg, const struct region *region)
{
	const struct search *search = arg;
	const struct attached *a;

	if (!region->owner)
		return false;
	a = attached_of(search->transfers, region->owner);
	*search->ret_found = a;
	return a->failed;
}

bool offload_fails_output(struct engine *e, struct engine_qp *qp)
{
	const struct attached *failed;
	const struct search search = { transfers_of(e), &failed };

	if (!transfers_of(e)->any_failed || !qp_output_touches(&qp->core, is_failed, &search))
		return false;
	offload_fail_qp(e, qp, failed);
	return true;
}

/* Only datagrams can exceed the MTU and still be received. */
static bool is_too_long(
	const struct transfers *t, const struct engine_qp *qp, const struct wire_packet *packet)
{
	return packet->payload_len > t->slab_size - SLAB_MORE && qp_is_datagram(&qp->core);
}

/*
 * Drops a packet that may need room that is not there, as if the network had lost it. Not polling
 * the port would also stop queue pairs that do not use the offload, and no queue is long enough
 * for an offload that stalls. RC resends the packet. The peer's timer may be long on a lossless
 * link, so this end requests the packet with a NAK as soon as there is room. One queue pair is
 * served at a time, so that its packet finds room.
 */
bool offload_admits(
	struct engine *e, struct engine_qp *qp, const struct wire_packet *packet, uint64_t now_ns)
{
	struct transfers *t = transfers_of(e);
	const struct attached *failed;
	const struct search search = { t, &failed };
	bool room = all_have_room(t);
	uint32_t mask = 0;
	const struct offload_needs needs = { t, &mask };

	if (room && !t->any_failed && !is_too_long(t, qp, packet))
		return true;
	if (t->any_failed && qp_input_touches(&qp->core, packet, is_failed, &search)) {
		offload_fail_qp(e, qp, failed);
		return false;
	}
	if (is_too_long(t, qp, packet) &&
		qp_input_touches(&qp->core, packet, offload_is_any, NULL)) {
		e->stats.drop_bad_length++;
		return false;
	}
	if (room)
		return true;
	qp_input_touches(&qp->core, packet, offload_note_need, &needs);
	if (finds_room(t, qp, mask)) {
		if (mask)
			end_request(t, qp);
		return true;
	}
	e->stats.offload_waits++;
	qp_note_loss(&qp->core, packet, &qp->offloads->loss);
	qp->offloads->dropped_mask = mask;
	if (list_empty(&qp->offloads->dropped))
		list_add_tail(&t->dropped, &qp->offloads->dropped);
	return false;
}
