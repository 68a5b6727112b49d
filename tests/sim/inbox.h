/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receive requests and their memory: of one endpoint, or of the shared receive queue of a node.
 * Request n has slot n modulo the number of slots, from when it is posted until its completion has
 * been polled.
 *	| guard | slots | first operands of REDUCE | guard |
 */
#ifndef FERRULE_SIM_INBOX_H
#define FERRULE_SIM_INBOX_H

#include "tests/sim/memory.h"
#include "tests/sim/script.h"

enum inbox_state {
	INBOX_FREE,
	INBOX_POSTED,
	INBOX_TAKEN,     /* by a message */
	INBOX_COMPLETED, /* and not polled yet */
};

struct inbox_slot {
	enum inbox_state state;
	uint32_t request;
	struct layout layout;
	uint32_t capacity; /* UC, UD */
	bool reduce;
	bool reduce_src;
};

struct inbox {
	struct sim_memory memory;
	struct inbox_slot *slots;
	uint32_t n; /* a power of two */
	uint32_t slot_size;
	uint32_t posted;
	uint32_t next; /* number of the next one: of a shared queue some are left out */
	uint32_t taken;
	uint32_t operands; /* offset */
	/* of a shared queue */
	struct srq *srq;
	void *storage;
	uint32_t limit; /* as it should be */
	uint32_t taken_when_armed;
};

struct node;

/* Memory for `n` requests of up to `longest` bytes. */
void inbox_init(struct inbox *inbox, struct node *node, const void *pd, uint32_t n,
	uint32_t longest, struct random_state *random);
/* The same, as a shared receive queue. */
void inbox_share(struct inbox *inbox, struct node *node);
void inbox_fini(struct inbox *inbox);

static inline struct inbox_slot *inbox_slot(const struct inbox *inbox, uint32_t request)
{
	return &inbox->slots[request & (inbox->n - 1)];
}

static inline uint32_t inbox_offset(const struct inbox *inbox, uint32_t request)
{
	return MEMORY_GUARD + (request & (inbox->n - 1)) * inbox->slot_size;
}

/* Whether the next one may be posted. In a shared queue a request that a queue pair keeps does not
 * prevent it. */
static inline bool inbox_has_room(struct inbox *inbox)
{
	for (uint32_t i = 0; inbox->srq && i < inbox->n; i++, inbox->next++)
		if (inbox_slot(inbox, inbox->next)->state == INBOX_FREE)
			break;
	return inbox_slot(inbox, inbox->next)->state == INBOX_FREE;
}

#endif
