/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/engine/offload/echo.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/engine/offload/lend.h"

enum {
	/* Entries are hashed by the part of memory in which they begin. No entry is longer than a
	 * part, so an entry that overlaps a range begins in the parts of the range or in the part
	 * before. */
	PART_BITS = 14,
	BUCKETS = 2048,
	/* A buffer has the same alignment modulo this as the offload's memory, so the offload
	 * writes both with the same vector steps. */
	ALIGNMENT = 16,
	ECHO_MAX = WIRE_MAX_MTU, /* payload of any packet */
	/* All that can exist, plus one that is added before the oldest is dropped. */
	ECHOES = HELD_FRAMES / 2 + SLABS / 2 + ECHO_BUFFERS + 1,
	LOOKS = 4, /* entries to examine for a buffer that is not being written */
};

static_assert((int)ECHO_MAX <= 1 << PART_BITS, "an entry is in two parts at most");
static_assert((int)ALIGNMENT <= (int)SLAB_MORE, "a buffer has room for the alignment");

struct echo {
	struct list node;  /* in the list of its kind, oldest first */
	struct echo *next; /* in its bucket or in the free list */
	uint64_t keep;
	const uint8_t *there;
	uint32_t length;
	enum echo_kind kind;
	uint32_t qpn;  /* queue pair that received it */
	uint16_t link; /* link over which it came */
	const struct attached *owner;
	const uint8_t *bytes;
	bool is_ready;  /* `bytes` is valid */
	bool is_result; /* result of a reduction */
	union {
		struct held_frame *held;
		struct slab *slab;
		struct side_buffer *buffer;
	};
};

struct echoes {
	struct echo *buckets[BUCKETS];
	struct echo *free;
	struct list kinds[ECHO_KINDS];
	uint32_t n[ECHO_KINDS], max[ECHO_KINDS];
	uint32_t n_all;
	uint32_t n_buffers; /* buffers of entries, or still being written */
	struct echo pool[ECHOES];
};

int echoes_init(struct transfers *t, uint32_t n_held)
{
	struct echoes *echoes = calloc(1, sizeof(*echoes));

	if (!echoes)
		return -ENOMEM;
	for (unsigned i = 0; i < ECHO_KINDS; i++)
		list_init(&echoes->kinds[i]);
	echoes->max[ECHO_FRAME] = (n_held < HELD_FRAMES ? n_held : HELD_FRAMES) / 2;
	echoes->max[ECHO_SLAB] = SLABS / 2;
	echoes->max[ECHO_BUFFER] = ECHO_BUFFERS;
	for (unsigned i = 0; i < ECHOES; i++) {
		echoes->pool[i].next = echoes->free;
		echoes->free = &echoes->pool[i];
	}
	t->echoes = echoes;
	return 0;
}

void echoes_fini(struct transfers *t)
{
	free(t->echoes);
}

static uint64_t part_of(const uint8_t *there)
{
	return (uintptr_t)there >> PART_BITS;
}

static struct echo **bucket_of(struct echoes *echoes, uint64_t part)
{
	return &echoes->buckets[part % BUCKETS];
}

static void unlink_echo(struct echoes *echoes, struct echo *echo)
{
	struct echo **at = bucket_of(echoes, part_of(echo->there));

	while (*at != echo)
		at = &(*at)->next;
	*at = echo->next;
	list_remove(&echo->node);
	echoes->n[echo->kind]--;
	echoes->n_all--;
	echo->next = echoes->free;
	echoes->free = echo;
}

static void give_back(struct transfers *t, struct side_buffer *buffer)
{
	t->echoes->n_buffers--;
	lend_put_spare(t, buffer);
}

/* Releases the memory of the entry; it is free when no transfer uses it. */
static void let_go(struct engine *e, struct echo *echo)
{
	switch (echo->kind) {
	case ECHO_FRAME: frame_unkeep(e, echo->held); break;
	case ECHO_SLAB: slab_unkeep(transfers_of(e), echo->slab); break;
	default:
		echo->buffer->echo = NULL;
		if (!echo->buffer->is_written)
			give_back(transfers_of(e), echo->buffer);
	}
}

static void drop(struct engine *e, struct echo *echo)
{
	unlink_echo(transfers_of(e)->echoes, echo);
	let_go(e, echo);
}

/* A slow offload still uses it; the next entry may belong to another offload. */
static void pass_over(struct list *list, struct echo *echo)
{
	list_remove(&echo->node);
	list_add_tail(list, &echo->node);
}

static void drop_oldest_alone(struct engine *e)
{
	struct list *list = &transfers_of(e)->echoes->kinds[ECHO_BUFFER];

	for (unsigned i = 0; i < LOOKS && !list_empty(list); i++) {
		struct echo *echo = container_of(list->next, struct echo, node);

		if (!echo->buffer->is_written) {
			drop(e, echo);
			return;
		}
		pass_over(list, echo);
	}
}

/* Returns NULL if the oldest buffers are still being written. */
static struct side_buffer *take_buffer(struct engine *e)
{
	struct echoes *echoes = transfers_of(e)->echoes;

	if (echoes->n_buffers == ECHO_BUFFERS)
		drop_oldest_alone(e);
	if (echoes->n_buffers == ECHO_BUFFERS)
		return NULL;
	echoes->n_buffers++;
	return lend_take_spare(transfers_of(e));
}

/* Moves the bytes to a buffer to free their frame or slab. Ends the entry if there is no buffer. */
static void move(struct engine *e, struct echo *echo)
{
	struct echoes *echoes = transfers_of(e)->echoes;
	struct side_buffer *buffer = take_buffer(e);

	if (!buffer) {
		drop(e, echo);
		return;
	}
	memcpy(buffer->bytes, echo->bytes, echo->length);
	let_go(e, echo);
	list_remove(&echo->node);
	echoes->n[echo->kind]--;
	echo->kind = ECHO_BUFFER;
	echo->buffer = buffer;
	echo->bytes = buffer->bytes;
	buffer->echo = echo;
	list_add_tail(&echoes->kinds[ECHO_BUFFER], &echo->node);
	echoes->n[ECHO_BUFFER]++;
}

bool echo_vacate(struct engine *e, enum echo_kind kind)
{
	const struct transfers *t = transfers_of(e);
	struct list *list = &t->echoes->kinds[kind];
	struct echo *echo;

	if (!(kind == ECHO_FRAME ? t->n_kept_frames : t->n_kept_slabs))
		return false;
	for (;;) {
		echo = container_of(list->next, struct echo, node);
		if ((kind == ECHO_FRAME ? echo->held->users : echo->slab->users) == 1)
			break;
		pass_over(list, echo);
	}
	move(e, echo);
	return true;
}

/* Ends the entries that overlap the range and begin in one part of the memory. */
static void forget_part(struct engine *e, uint64_t part, const uint8_t *there, uint64_t length)
{
	struct echo **at = bucket_of(transfers_of(e)->echoes, part);

	while (*at) {
		struct echo *echo = *at;

		if (echo->there < there + length && there < echo->there + echo->length)
			drop(e, echo);
		else
			at = &echo->next;
	}
}

static void forget_range(struct engine *e, const uint8_t *there, uint64_t length)
{
	uint64_t last = part_of(there + length - 1);

	for (uint64_t part = part_of(there) - 1; part != last + 1; part++)
		forget_part(e, part, there, length);
}

void echo_forget(struct engine *e, const uint8_t *there, uint64_t length)
{
	struct echoes *echoes = transfers_of(e)->echoes;

	if (!echoes->n_all || !length)
		return;
	if (length >> PART_BITS < BUCKETS) {
		forget_range(e, there, length);
		return;
	}
	for (uint64_t part = 0; part < BUCKETS; part++)
		forget_part(e, part, there, length);
}

void echo_forget_placed(struct engine *e, const struct placements *placements)
{
	for (uint32_t i = 0; i < placements->count; i++)
		echo_forget(e, placements->list[i].dst, placements->list[i].length);
}

static void forget_if(
	struct engine *e, bool (*is_one)(const struct echo *echo, const void *arg), const void *arg)
{
	struct echoes *echoes = transfers_of(e)->echoes;

	for (unsigned i = 0; i < ECHO_KINDS; i++) {
		struct list *node = echoes->kinds[i].next;

		while (node != &echoes->kinds[i]) {
			struct echo *echo = container_of(node, struct echo, node);

			node = node->next;
			if (is_one(echo, arg))
				drop(e, echo);
		}
	}
}

static bool is_of_offload(const struct echo *echo, const void *arg)
{
	return echo->owner == arg;
}

static bool is_of_qp(const struct echo *echo, const void *arg)
{
	return echo->qpn == *(const uint32_t *)arg;
}

static bool is_of_link(const struct echo *echo, const void *arg)
{
	return echo->link == *(const uint16_t *)arg;
}

void echo_forget_offload(struct engine *e, const struct attached *a)
{
	forget_if(e, is_of_offload, a);
}

void echo_forget_qp(struct engine *e, const struct engine_qp *qp)
{
	forget_if(e, is_of_qp, &qp->core.qpn);
}

void echo_forget_link(struct engine *e, uint16_t link)
{
	forget_if(e, is_of_link, &link);
}

uint8_t *echo_result(const struct transfer *transfer)
{
	return transfer->also->bytes + (uintptr_t)transfer->dst % ALIGNMENT;
}

/* Retains the result of the reduction in a second destination. Returns false without a buffer. */
static bool keep_result(struct engine *e, struct echo *echo, struct transfer *transfer)
{
	struct side_buffer *buffer = take_buffer(e);

	if (!buffer)
		return false;
	buffer->is_written = true;
	buffer->echo = echo;
	transfer->also = buffer;
	echo->is_result = true;
	echo->kind = ECHO_BUFFER;
	echo->buffer = buffer;
	echo->bytes = echo_result(transfer);
	return true;
}

static bool keep_payload(struct transfers *t, struct echo *echo, const struct transfer *transfer)
{
	/* Frames that this engine sent to itself are neither slabs nor frames of the port. */
	if (transfer->held) {
		echo->kind = ECHO_FRAME;
		echo->held = transfer->held;
	} else {
		echo->kind = ECHO_SLAB;
		echo->slab = transfer->slab;
	}
	if (!t->echoes->max[echo->kind])
		return false;
	if (transfer->held)
		frame_keep(transfer->held);
	else
		slab_keep(transfer->slab);
	echo->bytes = transfer->payload;
	echo->is_ready = true;
	return true;
}

static bool can_be_kept(
	const struct engine_qp *qp, const struct transfer *transfer, const struct placement *p)
{
	if (!p->keep || qp->core.type != FRL_QPT_RC || transfer->length > ECHO_MAX)
		return false;
	/* Excludes payload that the processor cannot read, or that is in a deferred frame. */
	return transfer->has_action || transfer->held ? !transfer->is_there
						      : transfer->slab->owner != NULL;
}

void echo_place(struct engine *e, struct engine_qp *qp, struct transfer *transfer,
	const struct placement *p)
{
	struct transfers *t = transfers_of(e);
	struct echoes *echoes = t->echoes;
	struct echo **bucket = bucket_of(echoes, part_of(transfer->dst));
	struct echo *echo;

	echo_forget(e, transfer->dst, transfer->length);
	if (!can_be_kept(qp, transfer, p))
		return;
	echo = echoes->free;
	echoes->free = echo->next;
	*echo = (struct echo){
		.keep = p->keep,
		.there = transfer->dst,
		.length = transfer->length,
		.qpn = qp->core.qpn,
		.link = qp->path.link,
		.owner = attached_of(t, p->region->owner),
	};
	if (transfer->has_action ? !keep_result(e, echo, transfer)
				 : !keep_payload(t, echo, transfer)) {
		echo->next = echoes->free;
		echoes->free = echo;
		return;
	}
	echo->next = *bucket;
	*bucket = echo;
	list_init(&echo->node);
	list_add_tail(&echoes->kinds[echo->kind], &echo->node);
	echoes->n_all++;
	if (++echoes->n[echo->kind] > echoes->max[echo->kind])
		move(e, container_of(echoes->kinds[echo->kind].next, struct echo, node));
}

void echo_written(struct transfers *t, struct side_buffer *buffer, bool ok)
{
	buffer->is_written = false;
	if (!buffer->echo)
		give_back(t, buffer);
	else
		buffer->echo->is_ready = ok;
}

static struct echo *find(struct echoes *echoes, const struct packet_piece *piece,
	const struct attached *a, uint64_t keep)
{
	struct echo *echo = *bucket_of(echoes, part_of(piece->addr));

	for (; echo; echo = echo->next)
		if (echo->there == piece->addr && echo->keep == keep)
			break;
	if (!echo || echo->length != piece->length || echo->owner != a || !echo->is_ready)
		return NULL;
	return echo;
}

/* Gives the buffer of the entry to the packet. */
static const uint8_t *take_buffer_of(
	struct transfers *t, struct side_packet *side, struct echo *echo)
{
	struct side_buffer *own = side->buffer;

	side->buffer = echo->buffer;
	side->buffer->echo = NULL;
	unlink_echo(t->echoes, echo);
	give_back(t, own);
	return echo->bytes;
}

/* Copies the bytes: frames belong to the port, and slabs are for received payload. */
static const uint8_t *take_payload(struct engine *e, struct side_packet *side, struct echo *echo)
{
	memcpy(side->buffer->bytes, echo->bytes, echo->length);
	drop(e, echo);
	return side->buffer->bytes;
}

bool echo_send(
	struct engine *e, struct side_packet *side, const struct packet_piece *piece, uint64_t keep)
{
	struct transfers *t = transfers_of(e);
	struct echo *echo = find(t->echoes, piece, attached_of(t, piece->region->owner), keep);
	const uint8_t *bytes;

	if (!echo) {
		e->stats.echo_missed++;
		return false;
	}
	*(echo->is_result ? &e->stats.offload_fused : &e->stats.offload_forwarded) += piece->length;
	bytes = echo->kind == ECHO_BUFFER ? take_buffer_of(t, side, echo)
					  : take_payload(e, side, echo);
	side->packet.pieces[0] = (struct port_piece){ .addr = bytes, .len = piece->length };
	return true;
}
