/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/plan.h"

#include <assert.h>

enum {
	SEGMENTS_WANTED = 4, /* of a chunk, so that receiving, reducing and sending overlap */
	SEGMENT_SMALLEST = 16 * 1024, /* bytes; shorter ones cost more in messages than they hide */
};

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

int ring_next(int rank, int ranks, enum ring_direction direction)
{
	return direction == RING_FORWARD ? (rank + 1) % ranks : (rank + ranks - 1) % ranks;
}

int ring_previous(int rank, int ranks, enum ring_direction direction)
{
	return ring_next(rank, ranks, direction == RING_FORWARD ? RING_BACKWARD : RING_FORWARD);
}

size_t ring_segment_bytes(size_t bytes, int ranks, size_t limit)
{
	/* A multiple of 4 KiB: no packet of any MTU is left partly empty within a chunk. */
	size_t segment = (bytes / (size_t)ranks / SEGMENTS_WANTED + 4095) & ~(size_t)4095;

	if (segment < SEGMENT_SMALLEST)
		segment = SEGMENT_SMALLEST;
	return segment < limit ? segment : limit;
}

/* Segments of the chunks 0 to chunk-1. */
static uint64_t segments_below(const struct ring_plan *plan, uint32_t chunk)
{
	uint64_t long_ones = smaller(chunk, plan->long_chunks);

	return long_ones * plan->segments_long + (chunk - long_ones) * plan->segments_short;
}

/*
 * Messages that the rank at `position` sends in the steps 0 to steps-1. It sends the chunks
 * position, position-1, ... in this order, going round below 0.
 */
static uint64_t messages_before(const struct ring_plan *plan, uint32_t position, uint32_t steps)
{
	uint64_t total = segments_below(plan, plan->ranks);
	uint64_t messages = steps / plan->ranks * total;
	uint32_t rest = steps % plan->ranks;

	if (rest <= position + 1)
		return messages + segments_below(plan, position + 1) -
			segments_below(plan, position + 1 - rest);
	return messages + segments_below(plan, position + 1) + total -
		segments_below(plan, plan->ranks - (rest - position - 1));
}

void ring_plan_init(struct ring_plan *plan, const struct ring_config *config)
{
	uint32_t ranks = (uint32_t)config->ranks;
	uint32_t rank = (uint32_t)config->rank;
	size_t segment = config->segment_bytes / config->elem_size;
	uint32_t steps = 2 * ranks - 2;

	assert(ranks >= 1 && rank < ranks && config->elem_size > 0);
	*plan = (struct ring_plan){
		.ranks = ranks,
		.position = config->direction == RING_FORWARD ? rank : (ranks - rank) % ranks,
		.first = config->first,
		.chunk = config->count / ranks,
		.long_chunks = (uint32_t)(config->count % ranks),
		.segment = segment > 0 ? segment : 1,
		.in_place = config->in_place,
	};
	plan->previous = (plan->position + ranks - 1) % ranks;
	plan->segments_short = plan->chunk / plan->segment + (plan->chunk % plan->segment != 0);
	plan->segments_long = plan->chunk / plan->segment + 1;
	plan->sends = messages_before(plan, plan->position, steps);
	plan->receives = messages_before(plan, plan->previous, steps);
}

/* Where in the plan a message is. */
struct place {
	uint32_t step;
	uint64_t segment;
	size_t offset;
	size_t count;
};

/* Finds message `index` of those that the rank at `position` sends. */
static struct place locate(const struct ring_plan *plan, uint32_t position, uint64_t index)
{
	/* The last step with messages_before() <= index: steps of empty chunks are passed over. */
	uint32_t low = 0;
	uint32_t high = 2 * plan->ranks - 3;
	struct place place;
	uint32_t chunk;
	size_t elements, start;

	while (low < high) {
		uint32_t middle = low + (high - low + 1) / 2;

		if (messages_before(plan, position, middle) <= index)
			low = middle;
		else
			high = middle - 1;
	}
	place.step = low;
	place.segment = index - messages_before(plan, position, low);
	chunk = (position + 2 * plan->ranks - low) % plan->ranks;
	elements = plan->chunk + (chunk < plan->long_chunks);
	start = place.segment * plan->segment;
	assert(start < elements);
	place.offset = plan->first + chunk * plan->chunk + smaller(chunk, plan->long_chunks) +
		start;
	place.count = smaller(plan->segment, elements - start);
	return place;
}

void ring_plan_send(const struct ring_plan *plan, uint64_t index, struct ring_send *ret_send)
{
	struct place place;

	assert(index < plan->sends);
	place = locate(plan, plan->position, index);
	*ret_send = (struct ring_send){
		.offset = place.offset,
		.count = place.count,
		.source = RING_RECV_BUFFER,
		.after = RING_NOTHING,
	};
	if (place.step == 0 && !plan->in_place)
		ret_send->source = RING_SEND_BUFFER;
	/* What is sent at step t was received at step t-1, cut in the same way. */
	if (place.step > 0)
		ret_send->after = messages_before(plan, plan->previous, place.step - 1) +
			place.segment;
}

void ring_plan_receive(
	const struct ring_plan *plan, uint64_t index, struct ring_receive *ret_receive)
{
	struct place place;

	assert(index < plan->receives);
	place = locate(plan, plan->previous, index);
	*ret_receive = (struct ring_receive){
		.offset = place.offset,
		.count = place.count,
		.action = place.step < plan->ranks - 1 ? RING_REDUCE : RING_COPY,
		.operand = plan->in_place ? RING_RECV_BUFFER : RING_SEND_BUFFER,
	};
}
