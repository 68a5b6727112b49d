/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/engine/offload/retained.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/engine/offload/loan.h"

enum {
	/* Entries are hashed by the part of memory in which they begin. No entry is longer than a
	 * part, so an entry that overlaps a range begins in the parts of the range or in the part
	 * before. */
	PART_BITS = 14,
	BUCKETS = 2048,
	/* A buffer has the same alignment modulo this as the offload's memory, so the offload
	 * writes both with the same vector steps. */
	ALIGNMENT = 16,
	RETAINED_MAX = WIRE_MAX_MTU, /* payload of any packet */
	/* All that can exist, plus one that is added before the oldest is dropped. */
	RETAINED_ENTRIES = HELD_FRAMES / 2 + SLABS / 2 + RETAINED_BUFFERS + 1,
	LOOKS = 4, /* entries to examine for a buffer that is not being written */
};

static_assert((int)RETAINED_MAX <= 1 << PART_BITS, "an entry is in two parts at most");
static_assert((int)ALIGNMENT <= (int)SLAB_MORE, "a buffer has room for the alignment");

struct retained {
	struct list node;      /* in the list of its kind, oldest first */
	struct retained *next; /* in its bucket or in the free list */
	uint64_t keep;
	const uint8_t *there;
	uint32_t length;
	enum retained_kind kind;
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

struct retained_table {
	struct retained *buckets[BUCKETS];
	struct retained *free;
	struct list kinds[RETAINED_KINDS];
	uint32_t n[RETAINED_KINDS], max[RETAINED_KINDS];
	uint32_t n_all;
	uint32_t n_buffers; /* buffers of entries, or still being written */
	struct retained pool[RETAINED_ENTRIES];
};

int retained_init(struct transfers *t, uint32_t n_held)
{
	struct retained_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	for (unsigned i = 0; i < RETAINED_KINDS; i++)
		list_init(&table->kinds[i]);
	table->max[RETAINED_FRAME] = (n_held < HELD_FRAMES ? n_held : HELD_FRAMES) / 2;
	table->max[RETAINED_SLAB] = SLABS / 2;
	table->max[RETAINED_BUFFER] = RETAINED_BUFFERS;
	for (unsigned i = 0; i < RETAINED_ENTRIES; i++) {
		table->pool[i].next = table->free;
		table->free = &table->pool[i];
	}
	t->retained = table;
	return 0;
}

void retained_fini(struct transfers *t)
{
	free(t->retained);
}

static uint64_t part_of(const uint8_t *there)
{
	return (uintptr_t)there >> PART_BITS;
}

static struct retained **bucket_of(struct retained_table *table, uint64_t part)
{
	return &table->buckets[part % BUCKETS];
}

static void unlink_entry(struct retained_table *table, struct retained *entry)
{
	struct retained **at = bucket_of(table, part_of(entry->there));

	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	list_remove(&entry->node);
	table->n[entry->kind]--;
	table->n_all--;
	entry->next = table->free;
	table->free = entry;
}

static void give_back(struct transfers *t, struct side_buffer *buffer)
{
	t->retained->n_buffers--;
	loan_put_spare(t, buffer);
}

/* Releases the memory of the entry; it is free when no transfer uses it. */
static void let_go(struct engine *e, struct retained *entry)
{
	switch (entry->kind) {
	case RETAINED_FRAME: frame_unkeep(e, entry->held); break;
	case RETAINED_SLAB: slab_unkeep(transfers_of(e), entry->slab); break;
	default:
		entry->buffer->entry = NULL;
		if (!entry->buffer->is_written)
			give_back(transfers_of(e), entry->buffer);
	}
}

static void drop(struct engine *e, struct retained *entry)
{
	unlink_entry(transfers_of(e)->retained, entry);
	let_go(e, entry);
}

/* A slow offload still uses it; the next entry may belong to another offload. */
static void pass_over(struct list *list, struct retained *entry)
{
	list_remove(&entry->node);
	list_add_tail(list, &entry->node);
}

static void drop_oldest_alone(struct engine *e)
{
	struct list *list = &transfers_of(e)->retained->kinds[RETAINED_BUFFER];

	for (unsigned i = 0; i < LOOKS && !list_empty(list); i++) {
		struct retained *entry = container_of(list->next, struct retained, node);

		if (!entry->buffer->is_written) {
			drop(e, entry);
			return;
		}
		pass_over(list, entry);
	}
}

/* Returns NULL if the oldest buffers are still being written. */
static struct side_buffer *take_buffer(struct engine *e)
{
	struct retained_table *table = transfers_of(e)->retained;

	if (table->n_buffers == RETAINED_BUFFERS)
		drop_oldest_alone(e);
	if (table->n_buffers == RETAINED_BUFFERS)
		return NULL;
	table->n_buffers++;
	return loan_take_spare(transfers_of(e));
}

/* Moves the bytes to a buffer to free their frame or slab. Ends the entry if there is no buffer. */
static void move(struct engine *e, struct retained *entry)
{
	struct retained_table *table = transfers_of(e)->retained;
	struct side_buffer *buffer = take_buffer(e);

	if (!buffer) {
		drop(e, entry);
		return;
	}
	memcpy(buffer->bytes, entry->bytes, entry->length);
	let_go(e, entry);
	list_remove(&entry->node);
	table->n[entry->kind]--;
	entry->kind = RETAINED_BUFFER;
	entry->buffer = buffer;
	entry->bytes = buffer->bytes;
	buffer->entry = entry;
	list_add_tail(&table->kinds[RETAINED_BUFFER], &entry->node);
	table->n[RETAINED_BUFFER]++;
}

bool retained_vacate(struct engine *e, enum retained_kind kind)
{
	const struct transfers *t = transfers_of(e);
	struct list *list = &t->retained->kinds[kind];
	struct retained *entry;

	if (!(kind == RETAINED_FRAME ? t->n_kept_frames : t->n_kept_slabs))
		return false;
	for (;;) {
		entry = container_of(list->next, struct retained, node);
		if ((kind == RETAINED_FRAME ? entry->held->users : entry->slab->users) == 1)
			break;
		pass_over(list, entry);
	}
	move(e, entry);
	return true;
}

/* Ends the entries that overlap the range and begin in one part of the memory. */
static void end_part(struct engine *e, uint64_t part, const uint8_t *there, uint64_t length)
{
	struct retained **at = bucket_of(transfers_of(e)->retained, part);

	while (*at) {
		struct retained *entry = *at;

		if (entry->there < there + length && there < entry->there + entry->length)
			drop(e, entry);
		else
			at = &entry->next;
	}
}

static void end_range(struct engine *e, const uint8_t *there, uint64_t length)
{
	uint64_t last = part_of(there + length - 1);

	for (uint64_t part = part_of(there) - 1; part != last + 1; part++)
		end_part(e, part, there, length);
}

void retained_end(struct engine *e, const uint8_t *there, uint64_t length)
{
	struct retained_table *table = transfers_of(e)->retained;

	if (!table->n_all || !length)
		return;
	if (length >> PART_BITS < BUCKETS) {
		end_range(e, there, length);
		return;
	}
	for (uint64_t part = 0; part < BUCKETS; part++)
		end_part(e, part, there, length);
}

void retained_end_placed(struct engine *e, const struct placements *placements)
{
	for (uint32_t i = 0; i < placements->count; i++)
		retained_end(e, placements->list[i].dst, placements->list[i].length);
}

static void end_if(struct engine *e, bool (*is_one)(const struct retained *entry, const void *arg),
	const void *arg)
{
	struct retained_table *table = transfers_of(e)->retained;

	for (unsigned i = 0; i < RETAINED_KINDS; i++) {
		struct list *node = table->kinds[i].next;

		while (node != &table->kinds[i]) {
			struct retained *entry = container_of(node, struct retained, node);

			node = node->next;
			if (is_one(entry, arg))
				drop(e, entry);
		}
	}
}

static bool is_of_offload(const struct retained *entry, const void *arg)
{
	return entry->owner == arg;
}

static bool is_of_qp(const struct retained *entry, const void *arg)
{
	return entry->qpn == *(const uint32_t *)arg;
}

static bool is_of_link(const struct retained *entry, const void *arg)
{
	return entry->link == *(const uint16_t *)arg;
}

void retained_end_offload(struct engine *e, const struct attached *a)
{
	end_if(e, is_of_offload, a);
}

void retained_end_qp(struct engine *e, const struct engine_qp *qp)
{
	end_if(e, is_of_qp, &qp->core.qpn);
}

void retained_end_link(struct engine *e, uint16_t link)
{
	end_if(e, is_of_link, &link);
}

uint8_t *retained_result(const struct transfer *transfer)
{
	return transfer->also->bytes + (uintptr_t)transfer->dst % ALIGNMENT;
}

/* Retains the result of the reduction in a second destination. Returns false without a buffer. */
static bool keep_result(struct engine *e, struct retained *entry, struct transfer *transfer)
{
	struct side_buffer *buffer = take_buffer(e);

	if (!buffer)
		return false;
	buffer->is_written = true;
	buffer->entry = entry;
	transfer->also = buffer;
	entry->is_result = true;
	entry->kind = RETAINED_BUFFER;
	entry->buffer = buffer;
	entry->bytes = retained_result(transfer);
	return true;
}

static bool keep_payload(
	struct transfers *t, struct retained *entry, const struct transfer *transfer)
{
	/* Frames that this engine sent to itself are neither slabs nor frames of the port. */
	if (transfer->held) {
		entry->kind = RETAINED_FRAME;
		entry->held = transfer->held;
	} else {
		entry->kind = RETAINED_SLAB;
		entry->slab = transfer->slab;
	}
	if (!t->retained->max[entry->kind])
		return false;
	if (transfer->held)
		frame_keep(transfer->held);
	else
		slab_keep(transfer->slab);
	entry->bytes = transfer->payload;
	entry->is_ready = true;
	return true;
}

static bool can_be_kept(
	const struct engine_qp *qp, const struct transfer *transfer, const struct placement *p)
{
	if (!p->keep || qp->core.type != FRL_QPT_RC || transfer->length > RETAINED_MAX)
		return false;
	/* Excludes payload that the processor cannot read, or that is in a deferred frame. */
	return transfer->has_action || transfer->held ? !transfer->is_there
						      : transfer->slab->owner != NULL;
}

void retained_place(struct engine *e, struct engine_qp *qp, struct transfer *transfer,
	const struct placement *p)
{
	struct transfers *t = transfers_of(e);
	struct retained_table *table = t->retained;
	struct retained **bucket = bucket_of(table, part_of(transfer->dst));
	struct retained *entry;

	retained_end(e, transfer->dst, transfer->length);
	if (!can_be_kept(qp, transfer, p))
		return;
	entry = table->free; /* never NULL: see RETAINED_ENTRIES */
	table->free = entry->next;
	*entry = (struct retained){
		.keep = p->keep,
		.there = transfer->dst,
		.length = transfer->length,
		.qpn = qp->core.qpn,
		.link = qp->path.link,
		.owner = attached_of(t, p->region->owner),
	};
	if (transfer->has_action ? !keep_result(e, entry, transfer)
				 : !keep_payload(t, entry, transfer)) {
		entry->next = table->free;
		table->free = entry;
		return;
	}
	entry->next = *bucket;
	*bucket = entry;
	list_init(&entry->node);
	list_add_tail(&table->kinds[entry->kind], &entry->node);
	table->n_all++;
	/* Too many frames or slabs: the oldest moves to a buffer. take_buffer() limits buffers. */
	if (++table->n[entry->kind] > table->max[entry->kind])
		move(e, container_of(table->kinds[entry->kind].next, struct retained, node));
}

void retained_written(struct transfers *t, struct side_buffer *buffer, bool ok)
{
	buffer->is_written = false;
	if (!buffer->entry)
		give_back(t, buffer);
	else
		buffer->entry->is_ready = ok;
}

static struct retained *find(struct retained_table *table, const struct packet_piece *piece,
	const struct attached *a, uint64_t keep)
{
	struct retained *entry = *bucket_of(table, part_of(piece->addr));

	for (; entry; entry = entry->next)
		if (entry->there == piece->addr && entry->keep == keep)
			break;
	if (!entry || entry->length != piece->length || entry->owner != a || !entry->is_ready)
		return NULL;
	return entry;
}

/* Gives the buffer of the entry to the packet. */
static const uint8_t *take_buffer_of(
	struct transfers *t, struct side_packet *side, struct retained *entry)
{
	struct side_buffer *own = side->buffer;

	side->buffer = entry->buffer;
	side->buffer->entry = NULL;
	unlink_entry(t->retained, entry);
	give_back(t, own);
	return entry->bytes;
}

/* Copies the bytes: frames belong to the port, and slabs are for received payload. */
static const uint8_t *take_payload(
	struct engine *e, struct side_packet *side, struct retained *entry)
{
	memcpy(side->buffer->bytes, entry->bytes, entry->length);
	drop(e, entry);
	return side->buffer->bytes;
}

bool retained_send(
	struct engine *e, struct side_packet *side, const struct packet_piece *piece, uint64_t keep)
{
	struct transfers *t = transfers_of(e);
	struct retained *entry = find(
		t->retained, piece, attached_of(t, piece->region->owner), keep);
	const uint8_t *bytes;

	if (!entry) {
		e->stats.retained_missed++;
		return false;
	}
	*(entry->is_result ? &e->stats.offload_fused
			   : &e->stats.offload_forwarded) += piece->length;
	bytes = entry->kind == RETAINED_BUFFER ? take_buffer_of(t, side, entry)
					       : take_payload(e, side, entry);
	side->packet.pieces[0] = (struct port_piece){ .addr = bytes, .len = piece->length };
	return true;
}
