/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers: given to offloads, waited for, and what is done when they are. */
#include "lib/engine/transfers.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool offload_note_need(const void *arg, const struct offload *offload)
{
	const struct offload_needs *needs = arg;
	const struct attached *a = attached_of(needs->transfers, offload);

	*needs->mask |= UINT32_C(1) << (a - needs->transfers->attached);
	return false;
}

bool offload_is_any(const void *arg, const struct offload *offload)
{
	return true;
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

		if (transfer->side)
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
		struct attached *a = &e->transfers->attached[i];

		/* Also what it had no room for when it was told the last time. */
		if (a->head != a->given)
			a->offload->ops->launch(a->offload);
	}
}

static void put_frame(struct engine *e, struct held_frame *held)
{
	if (--held->users)
		return;
	e->port->ops->rx_free(e->port, &held->frame, 1);
	held->owner->held--;
	held->next = e->transfers->free_held;
	e->transfers->free_held = held;
}

static void put_slab(struct transfers *t, struct slab *slab)
{
	if (--slab->users)
		return;
	slab->owner->slabs--;
	slab->next = t->free_slabs;
	t->free_slabs = slab;
	t->n_free_slabs++;
}

static void finish(struct engine *e, struct attached *a)
{
	struct transfers *t = e->transfers;
	struct transfer *transfer = transfer_at(a, a->head++);
	uint64_t *bytes = transfer->side ? &e->stats.offload_gathered : &e->stats.offload_placed;

	if (!a->failed)
		*bytes += transfer->length;
	if (transfer->side) {
		a->gathers--;
		side_transfer_done(t, transfer->side);
		return;
	}
	a->placements--;
	if (transfer->held)
		put_frame(e, transfer->held);
	else
		put_slab(t, transfer->slab);
}

/* Everything that was placed before `seq` by this offload is there. */
static bool is_past(const struct attached *a, uint64_t seq)
{
	return a->head == a->tail || transfer_at(a, a->head)->seq > seq;
}

static bool is_there(const struct transfers *t, uint64_t seq, uint32_t mask)
{
	for (; mask; mask &= mask - 1)
		if (!is_past(&t->attached[__builtin_ctz(mask)], seq))
			return false;
	return true;
}

/* In the order in which they were written, whatever the queue pair. */
static void reveal(struct transfers *t, struct cq *cq)
{
	while (cq->hidden && cq->tail - cq->hidden != cq->marked) {
		const struct cq_wait *wait = &cq->waits[(cq->tail - cq->hidden) & cq->mask];

		if (!is_there(t, wait->seq, wait->mask))
			break;
		cq_reveal(cq);
	}
	if (!cq->hidden)
		list_remove(&cq->waiting);
	else if (list_empty(&cq->waiting))
		list_add_tail(&t->hidden, &cq->waiting);
}

static void mark(struct transfers *t, struct cq *cq, const struct engine_qp *qp)
{
	if (!cq->waits || cq->marked == cq->tail)
		return;
	for (; cq->marked != cq->tail; cq->marked++) {
		struct cq_wait *wait = &cq->waits[cq->marked & cq->mask];

		wait->seq = qp->placed_seq;
		wait->mask = qp->placed_mask;
	}
	reveal(t, cq);
}

/*
 * Completions of receives, READs and atomics wait for their bytes. What is flushed waits as well:
 * its memory is the application's again. Of what was sent there is nothing to wait for: it has been
 * fetched before it left.
 */
void offload_mark(struct engine *e, struct engine_qp *qp)
{
	struct transfers *t = e->transfers;

	if (qp->placed_mask && is_there(t, qp->placed_seq, qp->placed_mask))
		qp->placed_mask = 0;
	mark(t, qp->core.send_cq, qp);
	mark(t, qp->core.recv_cq, qp);
}

/* Those that were hidden in the beginning: it changes while one walks. */
static void reveal_all(struct transfers *t)
{
	struct list *node = t->hidden.next;

	while (node != &t->hidden) {
		struct list *next = node->next;

		reveal(t, container_of(node, struct cq, waiting));
		node = next;
	}
}

/* What they tell of never came. */
static void spoil(struct cq *cq, const struct attached *a, uint32_t bit)
{
	for (uint32_t at = cq->tail - cq->hidden; at != cq->marked; at++) {
		struct cq_wait *wait = &cq->waits[at & cq->mask];
		struct frl_wc *wc = &cq->entries[at & cq->mask];

		if (!(wait->mask & bit) || is_past(a, wait->seq) || wc->status != FRL_WC_SUCCESS)
			continue;
		wc->status = FRL_WC_LOC_PROT_ERR;
		wait->urgent = true;
	}
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
		return "a GPU whose memory it uses has failed";
	snprintf(failure->why, sizeof(failure->why), "%s", why);
	failure->next = t->failures;
	t->failures = failure;
	return failure->why;
}

/* Queue pairs that have not used it yet fail when they do. */
static void fail(struct engine *e, struct attached *a, const char *why)
{
	struct transfers *t = e->transfers;
	uint32_t bit = UINT32_C(1) << (a - t->attached);
	struct engine_qp *qp;

	a->failed = t->any_failed = true;
	a->why = keep(t, why);
	for (struct list *node = t->hidden.next; node != &t->hidden; node = node->next)
		spoil(container_of(node, struct cq, waiting), a, bit);
	sides_drop_failed(e, a);
	for (uint32_t i = 0; (qp = engine_next_qp(e, &i));)
		if (qp->used_mask & bit)
			offload_fail_qp(e, qp, a);
}

static uint32_t progress(struct engine *e, struct attached *a)
{
	uint64_t before = a->head, done = 0;
	const char *why;

	if (a->head != a->given)
		done = a->offload->ops->done(a->offload);
	/* Not before: after a failure all of them count as done. */
	why = a->failed ? NULL : a->offload->ops->error(a->offload);
	if (why)
		fail(e, a, why);
	while (a->head != a->given && transfer_at(a, a->head)->ticket <= done)
		finish(e, a);
	/* What was never given touches nothing. */
	while (a->failed && a->head == a->given && a->head != a->tail) {
		a->given++;
		finish(e, a);
	}
	transfer_give(a);
	return (uint32_t)(a->head - before);
}

uint32_t offload_progress(struct engine *e, uint64_t now_ns)
{
	struct transfers *t = e->transfers;
	uint32_t n = 0;

	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++)
		if (t->attached[i].offload)
			n += progress(e, &t->attached[i]);
	if (n)
		reveal_all(t);
	if (!list_empty(&t->starved))
		offload_ask_starved(e, now_ns);
	return n + sides_leave(e, now_ns);
}

/* NULL: it cannot be held. */
static struct held_frame *hold(
	struct transfers *t, struct attached *a, const struct port_frame *frame)
{
	struct held_frame *held = t->free_held;

	if (t->rx_held)
		return t->rx_held;
	if (!frame->handle || !held || a->held >= transfers_share(t, t->n_held))
		return NULL;
	t->free_held = held->next;
	*held = (struct held_frame){ .frame = *frame, .users = 1, .owner = a };
	a->held++;
	t->rx_held = held;
	return held;
}

bool offload_kept_frame(struct engine *e)
{
	struct held_frame *held = e->transfers->rx_held;

	e->transfers->rx_held = NULL;
	if (held)
		put_frame(e, held);
	return held;
}

static uint8_t *copy(
	struct transfers *t, struct attached *a, const uint8_t *payload, uint32_t length)
{
	struct slab *slab = a->rx_slab;
	uint8_t *at;

	if (!slab) {
		slab = a->rx_slab = t->free_slabs;
		t->free_slabs = slab->next;
		t->n_free_slabs--;
		a->slabs++;
		slab->owner = a;
		slab->used = 0;
		slab->users = 1;
	}
	assert(length <= SLAB_SIZE - slab->used);
	at = slab->bytes + slab->used;
	memcpy(at, payload, length);
	slab->used += length;
	return at;
}

void offload_placed(struct transfers *t)
{
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

/* What the sender can take back, or is on the stack, is copied now; the caller asks after that
 * whether it was there still. */
void offload_place(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct placement *p)
{
	struct transfers *t = e->transfers;
	struct attached *a = attached_of(t, p->region->offload);
	struct transfer *transfer = transfer_add(t, a);

	transfer->dst = p->dst;
	transfer->length = p->length;
	transfer->has_action = p->action;
	if (p->action) {
		transfer->src = p->src;
		transfer->action = *p->action;
	}
	if (is_of(frame, p) && a->offload->ops->reaches(a->offload, p->payload, p->length))
		transfer->held = hold(t, a, frame);
	if (transfer->held) {
		transfer->held->users++;
		transfer->payload = p->payload;
	} else {
		transfer->payload = copy(t, a, p->payload, p->length);
		transfer->slab = a->rx_slab;
		transfer->slab->users++;
	}
	a->placements++;
	qp->placed_seq = transfer->seq;
	qp->placed_mask |= UINT32_C(1) << (a - t->attached);
	qp->used_mask |= UINT32_C(1) << (a - t->attached);
	transfer_give(a);
}

uint32_t transfers_room(const struct attached *a)
{
	return (TRANSFERS_SHARE - a->gathers) / FRL_MAX_SGE;
}

static bool overlaps(const struct region *region, const uint8_t *addr, uint32_t length)
{
	return addr && addr < region->addr + region->length && region->addr < addr + length;
}

/* Also by another key of the same memory, which does no harm. */
bool offload_region_busy(const struct engine *e, const struct region *region)
{
	const struct attached *a = attached_of(e->transfers, region->offload);

	for (uint64_t at = a ? a->head : 0; a && at != a->tail; at++) {
		const struct transfer *transfer = transfer_at(a, at);
		const uint8_t *there = transfer->side ? transfer->payload : transfer->dst;

		if (overlaps(region, there, transfer->length) ||
			overlaps(region, transfer->src, transfer->length))
			return true;
	}
	return false;
}

/* Who is starved is asked soon. */
bool engine_is_transferring(const struct engine *e)
{
	if (e->transfers && !list_empty(&e->transfers->starved))
		return true;
	for (unsigned i = 0; e->transfers && i < ENGINE_OFFLOADS; i++)
		if (e->transfers->attached[i].head != e->transfers->attached[i].tail)
			return true;
	return false;
}
