/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/engine/fragments.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory/copy.h"
#include "lib/engine/stages.h"

enum {
	INDEX_BITS = 4,     /* bits of a token for the index; the others count its uses */
	PAYLOAD_ALIGN = 64, /* of copies; received IPv4 payload is aligned like that, too */
};

static_assert(1 << INDEX_BITS == FRL_MAX_ARMED, "a token has the index in its low bits");
static_assert((int)WIRE_MAX_OVERHEAD >= (int)PAYLOAD_ALIGN, "a copy has room for any payload");

uint32_t fragments_left(const struct engine *e)
{
	return e->port->caps.max_kept - e->frames_shared;
}

int fragments_init(struct engine *e, struct fragments *f, uint32_t frames)
{
	if (frames > fragments_left(e))
		return -ENOSPC;
	*f = (struct fragments){ .quota = frames };
	f->memory = calloc(frames, sizeof(f->memory[0]));
	if (!f->memory)
		return -ENOMEM;
	for (uint32_t i = frames; i > 0; i--) {
		f->memory[i - 1].next = f->free;
		f->free = &f->memory[i - 1];
	}
	e->frames_shared += frames;
	return 0;
}

static void put_last(struct engine *e, struct fragments *f, struct armed *a)
{
	struct kept_frame *kept = a->kept;

	e->port->ops->rx_free(e->port, &kept->frame, 1);
	a->kept = kept->next;
	kept->next = f->free;
	f->free = kept;
}

static void disarm(struct engine *e, struct fragments *f, struct armed *a)
{
	while (a->kept)
		put_last(e, f, a);
	f->reserved -= a->frames;
	a->region = NULL;
	if (f->recent == a)
		f->recent = NULL;
}

void fragments_fini(struct engine *e, struct fragments *f)
{
	for (unsigned i = 0; i < FRL_MAX_ARMED; i++)
		if (f->armed[i].region)
			disarm(e, f, &f->armed[i]);
	e->frames_shared -= f->quota;
	free(f->memory);
}

static bool overlaps(const struct armed *a, const struct fragments_part *part)
{
	const uint8_t *addr = part->addr;

	return a->region == part->region && a->length && part->length &&
		addr < a->addr + a->length && a->addr < addr + part->length;
}

int fragments_arm(struct fragments *f, const struct fragments_part *part, uint32_t *ret_token)
{
	struct armed *place = NULL;

	for (unsigned i = 0; i < FRL_MAX_ARMED; i++) {
		struct armed *a = &f->armed[i];

		if (a->region && overlaps(a, part))
			return -EBUSY;
		/* The slot that was free for the longest time, so tokens repeat late. */
		if (!a->region && (!place || a->uses < place->uses))
			place = a;
	}
	if (!place || part->frames > f->quota - f->reserved)
		return -EAGAIN;
	f->reserved += part->frames;
	*place = (struct armed){
		.region = part->region,
		.addr = part->addr,
		.length = part->length,
		.list = part->list,
		.frames = part->frames,
		.uses = place->uses + 1,
	};
	*ret_token = place->uses << INDEX_BITS | (uint32_t)(place - f->armed);
	return 0;
}

static bool is_armed(const struct armed *a, uint32_t token)
{
	return a->region && a->uses << INDEX_BITS == (token & ~(uint32_t)(FRL_MAX_ARMED - 1));
}

const struct armed *fragments_find(const struct fragments *f, uint32_t token)
{
	const struct armed *a = &f->armed[token % FRL_MAX_ARMED];

	return is_armed(a, token) ? a : NULL;
}

int fragments_release(struct engine *e, struct fragments *f, uint32_t token)
{
	struct armed *a = &f->armed[token % FRL_MAX_ARMED];

	if (!is_armed(a, token))
		return -EINVAL;
	disarm(e, f, a);
	return 0;
}

bool fragments_region_armed(const struct region *region)
{
	for (unsigned i = 0; i < FRL_MAX_ARMED; i++)
		if (region->fragments->armed[i].region == region)
			return true;
	return false;
}

static bool is_for(const struct armed *a, const struct placement *p)
{
	return a->region == p->region && p->dst >= a->addr &&
		(size_t)(p->dst - a->addr) < a->length &&
		p->length <= a->length - (size_t)(p->dst - a->addr);
}

static struct armed *find_part(struct fragments *f, const struct placement *p)
{
	if (f->recent && is_for(f->recent, p))
		return f->recent;
	for (unsigned i = 0; i < FRL_MAX_ARMED; i++)
		if (is_for(&f->armed[i], p))
			return f->recent = &f->armed[i];
	return NULL;
}

static bool is_in(const struct port_frame *frame, const uint8_t *payload)
{
	return payload >= frame->data && payload < frame->data + frame->len;
}

/* Keeps the frame, or copies the payload into an empty one. Returns the address of the payload.
 * NULL: the port has no buffer, which cannot happen, since shares are limited to its buffers. */
static const uint8_t *keep(struct engine *e, const struct port_frame *frame,
	const struct placement *p, struct port_frame *ret_kept)
{
	uint8_t *copy;

	if (frame->handle && !frame->payload && is_in(frame, p->payload)) {
		*ret_kept = *frame;
		e->frame_kept = true;
		return p->payload;
	}
	if (!e->port->ops->rx_take(e->port, ret_kept))
		return NULL;
	copy = ret_kept->data + (-(uintptr_t)ret_kept->data & (PAYLOAD_ALIGN - 1));
	copy_bulk(copy, p->payload, p->length);
	return copy;
}

static const char *place_fragment(struct engine *e, struct fragments *f,
	const struct port_frame *frame, const struct placement *p)
{
	struct armed *a = find_part(f, p);
	struct kept_frame *kept = f->free;
	const uint8_t *at;

	if (!a)
		return "the peer wrote to a part of a fragments region that is not armed: "
		       "call frl_fragments_arm() first";
	if (a->n == a->frames)
		return "the peer wrote more packets than frl_fragments_arm() reserved: "
		       "its packets are smaller, or it wrote more than agreed";
	at = keep(e, frame, p, &kept->frame);
	if (!at)
		return "the port has no free packet buffer to keep the payload in";
	f->free = kept->next;
	kept->next = a->kept;
	a->kept = kept;
	a->list[a->n++] = (struct frl_fragment){
		.addr = at,
		.offset = (uint64_t)(p->dst - a->addr),
		.length = p->length,
	};
	a->bytes += p->length;
	f->placed = a;
	return NULL;
}

void fragments_place(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	struct placements *placements)
{
	const struct placement *p = &placements->list[0];
	struct fragments *f = p->region->fragments;
	const char *why;

	assert(placements->count == 1);
	f->placed = NULL;
	why = place_fragment(e, f, frame, p);
	if (why)
		qp_payload_refused(&qp->core, placements, why);
	else
		e->stats.bytes_placed += p->length;
}

bool fragments_take_back(struct engine *e, const struct placements *placements)
{
	struct fragments *f = placements->list[0].region->fragments;
	struct armed *a = f ? f->placed : NULL;

	if (!a)
		return f;
	f->placed = NULL;
	a->bytes -= a->list[--a->n].length;
	put_last(e, f, a);
	return false;
}

bool fragments_kept_frame(struct engine *e)
{
	bool kept = e->frame_kept;

	e->frame_kept = false;
	return kept;
}
