/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans: which messages a rank sends and receives for a collective, in which order, and what has to
 * be there first. Pure arithmetic by message index: no I/O, no allocation, no state that changes.
 * Any thread.
 *
 * The ring: at step t (0 to 2n-3) the rank at ring position p sends chunk p-t to position p+1 and
 * receives chunk p-t-1 from position p-1, all modulo n. Steps below n-1 reduce (reduce-scatter),
 * the others copy (all-gather):
 *
 *     n = 4, position 1:  step   0   1   2 | 3   4   5
 *                         sends  1   0   3 | 2   1   0     chunk received at step t is sent at t+1
 *                         gets   0   3   2 | 1   0   3
 *
 * A chunk is cut into segments and a message is one segment; a step's segments follow each other in
 * order. Segment j of step t+1 may go as soon as segment j of step t is reduced, so a rank that has
 * several segments a chunk sends all the time.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_H
#define FERRULE_COLLECTIVES_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ring_direction {
	RING_FORWARD,  /* rank r sends to rank r+1 */
	RING_BACKWARD, /* rank r sends to rank r-1 */
};

enum ring_buffer {
	RING_SEND_BUFFER,
	RING_RECV_BUFFER,
};

enum ring_action {
	RING_REDUCE,
	RING_COPY,
};

struct ring_config {
	int rank;
	int ranks; /* 1 to 32768 */
	enum ring_direction direction;
	size_t first; /* the ring works on elements [first, first + count) of the buffers */
	size_t count;
	size_t elem_size;     /* bytes, not 0 */
	size_t segment_bytes; /* largest message; at least one element is sent in any case */
	bool in_place;
};

struct ring_plan {
	uint64_t sends;    /* messages that this rank sends */
	uint64_t receives; /* and receives */
	/* The rest is private to ring.c. */
	uint32_t ranks;
	uint32_t position;    /* the next rank of the ring has position + 1 */
	uint32_t previous;    /* position - 1, modulo ranks */
	uint32_t long_chunks; /* chunks below this number have one element more than the others */
	size_t first;
	size_t chunk;   /* elements of the shorter chunks; 0: they are skipped */
	size_t segment; /* elements */
	uint64_t segments_short;
	uint64_t segments_long;
	bool in_place;
};

/* `after` of a send that waits for no receive. */
#define RING_NOTHING UINT64_MAX

struct ring_send {
	size_t offset; /* elements, from the start of the buffer */
	size_t count;
	enum ring_buffer source;
	uint64_t after; /* the receive that must be complete before, or RING_NOTHING */
};

struct ring_receive {
	size_t offset; /* in the receive buffer */
	size_t count;
	enum ring_action action;
	enum ring_buffer operand; /* REDUCE: where the first operand lies, at the same offset */
};

void ring_plan_init(struct ring_plan *plan, const struct ring_config *config);

/* Message number `index` (below plan->sends, plan->receives) in the order of the connection. */
void ring_plan_send(const struct ring_plan *plan, uint64_t index, struct ring_send *ret_send);
void ring_plan_receive(
	const struct ring_plan *plan, uint64_t index, struct ring_receive *ret_receive);

/*
 * How long segments should be for a ring over `bytes`: `limit`, or less so that chunks which are
 * worth it are still cut into a few segments and steps overlap.
 */
size_t ring_segment_bytes(size_t bytes, int ranks, size_t limit);

/* The rank that this one sends to, and the one that it receives from. */
int ring_next(int rank, int ranks, enum ring_direction direction);
int ring_previous(int rank, int ranks, enum ring_direction direction);

#endif
