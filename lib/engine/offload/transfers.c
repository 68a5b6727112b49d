/* SPDX-License-Identifier: BSD-3-Clause */
/* Gives transfers to offloads and handles their end. */
#include "lib/engine/offload/transfers.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/engine/offload/retained.h"
#include "lib/engine/offload/loan.h"
#include "lib/engine/offload/deferred.h"
#include "lib/engine/stages.h"

struct attached *attached_of(const struct transfers *t, const struct offload *offload)
{
	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++)
		if (t->attached[i].offload == offload)
			return (struct attached *)&t->attached[i];
	return NULL;
}

uint32_t transfers_share(const struct transfers *t, uint32_t all)
{
	return t->n_attached ? all / t->n_attached : all;
}

bool offload_note_need(const void *arg, const struct region *region)
{
	const struct offload_needs *needs = arg;
	const struct attached *a;

	if (!region->owner)
		return false;
	a = attached_of(needs->transfers, region->owner);
	*needs->mask |= UINT32_C(1) << (a - needs->transfers->attached);
	return false;
}

bool offload_is_any(const void *arg, const struct region *region)
{
	return region->owner;
}

static struct transfer *transfer_at(const struct attached *a, uint64_t position)
{
	return &a->ring[position % TRANSFERS];
}

struct transfer *transfer_add(struct transfers *t, struct attached *a)
{
	struct transfer *transfer = transfer_at(a, a->tail);

	assert(a->tail - a->head < TRANSFERS);
	a->tail++;
	*transfer = (struct transfer){ .seq = ++t->seq };
	return transfer;
}

static uint64_t give_placement(struct offload *offload, const struct transfer *transfer)
{
	const struct offload_placement placement = {
		.dst = transfer->dst,
		.src = transfer->src,
		.payload = transfer->payload,
		.is_there = transfer->is_there,
		.also = transfer->also ? retained_result(transfer) : NULL,
		.length = transfer->length,
		.action = transfer->has_action ? &transfer->action : NULL,
	};

	return offload->ops->place(offload, &placement);
}

void transfer_give(struct attached *a)
{
	struct offload *offload = a->offload;

	while (a->given != a->tail && !a->failed) {
		struct transfer *transfer = transfer_at(a, a->given);

		if (transfer->side || transfer->deferred)
			transfer->ticket = offload->ops->gather(
				offload, transfer->dst, transfer->payload, transfer->length);
		else
			transfer->ticket = give_placement(offload, transfer);
		if (!transfer->ticket)
			return;
		a->given++;
	}
}

void offload_launch(struct engine *e)
{
	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++) {
		struct attached *a = &transfers_of(e)->attached[i];

		/* Includes transfers that the offload had no room for at the last launch. */
		if (a->head != a->given)
			a->offload->ops->launch(a->offload);
	}
}

static void free_frame(struct engine *e, struct held_frame *held)
{
	e->port->ops->rx_free(e->port, &held->frame, 1);
	held->next = transfers_of(e)->free_held;
	transfers_of(e)->free_held = held;
}

/* A frame that only retained payload uses counts for no share, and can be reclaimed. */
static void put_frame(struct engine *e, struct held_frame *held)
{
	held->users--;
	if (held->users > held->is_kept)
		return;
	held->owner->held--;
	if (held->is_kept)
		transfers_of(e)->n_kept_frames++;
	else
		free_frame(e, held);
}

void frame_keep(struct held_frame *held)
{
	held->is_kept = true;
	held->users++;
}

void frame_unkeep(struct engine *e, struct held_frame *held)
{
	held->is_kept = false;
	if (--held->users)
		return;
	transfers_of(e)->n_kept_frames--;
	free_frame(e, held);
}

static void free_slab(struct transfers *t, struct slab *slab)
{
	slab->next = t->free_slabs;
	t->free_slabs = slab;
	t->n_free_slabs++;
}

static void put_slab(struct transfers *t, struct slab *slab)
{
	slab->users--;
	if (slab->users > slab->is_kept)
		return;
	if (!slab->owner) {
		deferred_release(t, slab);
		return;
	}
	slab->owner->slabs--;
	if (slab->is_kept)
		t->n_kept_slabs++;
	else
		free_slab(t, slab);
}

void slab_keep(struct slab *slab)
{
	slab->is_kept = true;
	slab->users++;
}

void slab_unkeep(struct transfers *t, struct slab *slab)
{
	slab->is_kept = false;
	if (--slab->users)
		return;
	t->n_kept_slabs--;
	free_slab(t, slab);
}

static uint64_t *count_of(struct frl_stats *stats, const struct transfer *transfer)
{
	if (transfer->deferred)
		return &stats->offload_fetched;
	if (transfer->side)
		return &stats->offload_gathered;
	return transfer->is_there ? &stats->offload_direct : &stats->offload_placed;
}

static void finish(struct engine *e, struct attached *a)
{
	struct transfers *t = transfers_of(e);
	struct transfer *transfer = transfer_at(a, a->head++);

	if (!a->failed)
		*count_of(&e->stats, transfer) += transfer->length;
	if (transfer->side) {
		a->gathers--;
		side_transfer_done(t, transfer->side);
		return;
	}
	if (transfer->deferred) {
		a->gathers--;
		deferred_fetched(e, transfer->deferred);
		return;
	}
	a->placements--;
	if (transfer->also)
		retained_written(t, transfer->also, !a->failed);
	if (transfer->held)
		put_frame(e, transfer->held);
	else
		put_slab(t, transfer->slab);
}

/* Returns true if all transfers of the offload up to `seq` are done. */
static bool is_past(const struct attached *a, uint64_t seq)
{
	return a->head == a->tail || transfer_at(a, a->head)->seq > seq;
}

bool transfers_done(const struct transfers *t, uint64_t seq, uint32_t mask)
{
	for (; mask; mask &= mask - 1)
		if (!is_past(&t->attached[__builtin_ctz(mask)], seq))
			return false;
	return true;
}

void offload_fail_qp(struct engine *e, struct engine_qp *qp, const struct attached *a)
{
	qp_explain(&qp->core, a->why);
	qp_fail(&qp->core, FRL_WC_LOC_PROT_ERR);
	engine_update(e, qp);
}

static const char *keep(struct transfers *t, const char *why)
{
	struct failure *failure = malloc(sizeof(*failure));

	if (!failure)
		return "a GPU whose memory the queue pair uses has failed";
	snprintf(failure->why, sizeof(failure->why), "%s", why);
	failure->next = t->failures;
	t->failures = failure;
	return failure->why;
}

/* Queue pairs that have not used the offload yet fail at their first use. */
static void fail(struct engine *e, struct attached *a, const char *why)
{
	struct transfers *t = transfers_of(e);
	uint32_t bit = UINT32_C(1) << (a - t->attached);
	struct engine_qp *qp;

	a->failed = t->any_failed = true;
	a->why = keep(t, why);
	completions_spoil(t, a);
	sides_drop_failed(e, a);
	retained_end_offload(e, a);
	for (uint32_t i = 0; (qp = engine_next_qp(e, &i));)
		if (qp->offloads->used_mask & bit)
			offload_fail_qp(e, qp, a);
}

static uint32_t progress(struct engine *e, struct attached *a)
{
	uint64_t before = a->head, done = 0;
	const char *why;

	if (a->head != a->given)
		done = a->offload->ops->done(a->offload);
	/* Checked after done(): after a failure all transfers count as done. */
	why = a->failed ? NULL : a->offload->ops->error(a->offload);
	if (why)
		fail(e, a, why);
	while (a->head != a->given && transfer_at(a, a->head)->ticket <= done)
		finish(e, a);
	/* Transfers that the offload never got touch no memory. */
	while (a->failed && a->head == a->given && a->head != a->tail) {
		a->given++;
		finish(e, a);
	}
	transfer_give(a);
	return (uint32_t)(a->head - before);
}

uint32_t offload_progress(struct engine *e, uint64_t now_ns)
{
	struct transfers *t = transfers_of(e);
	uint32_t n = 0;

	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++)
		if (t->attached[i].offload)
			n += progress(e, &t->attached[i]);
	if (n)
		completions_pass_on(t);
	n += deferred_deliver(e, now_ns);
	if (!list_empty(&t->dropped))
		offload_request_dropped(e, now_ns);
	return n + sides_leave(e, now_ns);
}

/* Returns NULL if the frame cannot be held. */
static struct held_frame *hold(struct engine *e, struct attached *a, const struct port_frame *frame)
{
	struct transfers *t = transfers_of(e);
	struct held_frame *held;

	if (t->rx_held)
		return t->rx_held;
	if (!frame->handle || a->held >= transfers_share(t, t->n_held))
		return NULL;
	if (!t->free_held && !retained_vacate(e, RETAINED_FRAME))
		return NULL;
	held = t->free_held;
	t->free_held = held->next;
	*held = (struct held_frame){ .frame = *frame, .users = 1, .owner = a };
	a->held++;
	t->rx_held = held;
	return held;
}

bool offload_hold(struct engine *e, struct attached *a, const struct port_frame *frame)
{
	return hold(e, a, frame) != NULL;
}

bool offload_kept_frame(struct engine *e)
{
	struct held_frame *held = transfers_of(e)->rx_held;

	if (deferred_kept_frame(transfers_of(e)))
		return true;
	transfers_of(e)->rx_held = NULL;
	if (held)
		put_frame(e, held);
	return held;
}

static uint8_t *copy(struct engine *e, struct attached *a, const uint8_t *payload, uint32_t length)
{
	struct transfers *t = transfers_of(e);
	struct slab *slab = a->rx_slab;
	uint8_t *at;

	if (!slab) {
		if (!t->free_slabs)
			retained_vacate(e, RETAINED_SLAB);
		/* offload_admits() has checked that there is one. */
		assert(t->free_slabs);
		slab = a->rx_slab = t->free_slabs;
		t->free_slabs = slab->next;
		t->n_free_slabs--;
		a->slabs++;
		slab->owner = a;
		slab->used = 0;
		slab->users = 1;
	}
	assert(length <= t->slab_size - slab->used);
	at = slab->bytes + slab->used;
	memcpy(at, payload, length);
	slab->used += length;
	return at;
}

void offload_placed(struct engine *e)
{
	struct transfers *t = transfers_of(e);

	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++) {
		struct attached *a = &t->attached[i];

		if (a->rx_slab)
			put_slab(t, a->rx_slab);
		a->rx_slab = NULL;
	}
}

static bool is_of(const struct port_frame *frame, const struct placement *p)
{
	return p->payload >= frame->data && p->payload < frame->data + frame->len;
}

/* Sets the payload of a transfer. Payload that the sender can reclaim, or that is on the stack, is
 * copied now; the caller then checks that it was still valid. */
static void set_payload(struct engine *e, struct attached *a, const struct port_frame *frame,
	const struct placement *p, struct transfer *transfer)
{
	transfer->payload = p->payload;
	transfer->slab = deferred_slab(transfers_of(e), a, p->payload);
	if (transfer->slab) {
		transfer->slab->users++;
		return;
	}
	if (is_of(frame, p) && a->offload->ops->reaches(a->offload, p->payload, p->length))
		transfer->held = hold(e, a, frame);
	if (transfer->held) {
		transfer->held->users++;
		return;
	}
	transfer->payload = copy(e, a, p->payload, p->length);
	transfer->slab = a->rx_slab;
	transfer->slab->users++;
}

/* The frame is held already. */
static void set_far_payload(struct transfers *t, const struct port_frame *frame,
	const struct placement *p, struct transfer *transfer)
{
	uint64_t at = (uint64_t)(p->payload - (frame->data + frame->len));

	transfer->payload = (const uint8_t *)(uintptr_t)(frame->far + at);
	transfer->is_there = true;
	transfer->held = t->rx_held;
	transfer->held->users++;
}

static void count_placement(struct attached *a, const struct placement *p)
{
	const uint8_t *end = p->dst + p->length;
	bool is_first = a->placements++ == 0;

	if (is_first || p->dst < a->placed_first)
		a->placed_first = p->dst;
	if (is_first || end > a->placed_end)
		a->placed_end = end;
}

/* Places payload that lies in one part of the frame. */
static void place_part(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct placement *p)
{
	struct transfers *t = transfers_of(e);
	struct attached *a = attached_of(t, p->region->owner);
	struct transfer *transfer = transfer_add(t, a);

	transfer->dst = p->dst;
	transfer->length = p->length;
	transfer->has_action = p->action;
	if (p->action) {
		transfer->src = p->src;
		transfer->action = *p->action;
	}
	if (frame->far_len && p->payload >= frame->data + frame->len)
		set_far_payload(t, frame, p, transfer);
	else
		set_payload(e, a, frame, p, transfer);
	retained_place(e, qp, transfer, p);
	count_placement(a, p);
	qp->offloads->placed_seq = transfer->seq;
	qp->offloads->placed_mask |= UINT32_C(1) << (a - t->attached);
	qp->offloads->used_mask |= UINT32_C(1) << (a - t->attached);
	transfer_give(a);
}

/* Payload that spans both parts of the frame becomes two transfers. */
void offload_place(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct placement *p)
{
	const uint8_t *end = frame->data + frame->len;
	struct placement rest = *p;

	if (frame->far_len && p->payload < end && p->length > (size_t)(end - p->payload)) {
		struct placement first = *p;

		first.length = (uint32_t)(end - p->payload);
		first.keep = rest.keep = 0;
		place_part(e, qp, frame, &first);
		rest.payload += first.length;
		rest.dst += first.length;
		if (rest.src)
			rest.src += first.length;
		rest.length -= first.length;
	}
	place_part(e, qp, frame, &rest);
}

uint32_t transfers_room(const struct attached *a)
{
	return (TRANSFERS_SHARE - a->gathers) / FRL_MAX_SGE;
}

static bool overlaps(const struct region *region, const uint8_t *addr, uint32_t length)
{
	return addr && addr < region->addr + region->length && region->addr < addr + length;
}

/* Also true if the transfer used another key for the same memory, which is harmless. */
bool offload_region_busy(const struct engine *e, const struct region *region)
{
	const struct attached *a = region->owner ? attached_of(transfers_of(e), region->owner)
						 : NULL;

	for (uint64_t at = a ? a->head : 0; a && at != a->tail; at++) {
		const struct transfer *transfer = transfer_at(a, at);
		const uint8_t *there = transfer->side ? transfer->payload : transfer->dst;

		if (overlaps(region, there, transfer->length) ||
			overlaps(region, transfer->src, transfer->length))
			return true;
	}
	return false;
}

/* Also true if packets are to be requested again or wait for room in their queue. */
bool offload_is_busy(const struct engine *e)
{
	const struct transfers *t = transfers_of(e);

	if (!list_empty(&t->dropped) || !list_empty(&t->sides))
		return true;
	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++)
		if (t->attached[i].head != t->attached[i].tail)
			return true;
	return false;
}
