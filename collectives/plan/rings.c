/* SPDX-License-Identifier: BSD-3-Clause */
/* Rings: reduce and gather parts, plain or encoded. */
#include "collectives/plan/rings.h"

/* Returns the index `steps` (at most n) behind this rank, in the direction of the ring. */
static uint32_t behind(const struct plan_ring *ring, uint32_t steps)
{
	uint32_t n = ring->group->n;

	return (ring->group->me + (ring->is_backward ? steps : n - steps)) % n;
}

static uint32_t next_rank(const struct plan_ring *ring)
{
	return ring->group->ranks[behind(ring, ring->group->n - 1)];
}

static uint32_t previous_rank(const struct plan_ring *ring)
{
	return ring->group->ranks[behind(ring, 1)];
}

static bool is_encoded(const struct plan_ring *ring)
{
	return plan_is_encoded(ring->b->job);
}

static size_t piece_count(const struct plan_ring *ring, uint32_t index, uint32_t piece)
{
	size_t count = ring->parts[index].count;
	size_t first = piece * ring->piece;

	if (first >= count)
		return 0;
	return count - first < ring->piece ? count - first : ring->piece;
}

static struct plan_range piece_of(
	const struct plan_ring *ring, struct plan_range range, uint32_t piece)
{
	return plan_plus(ring->b, range, piece * ring->piece);
}

/* Two rings may differ by an element and therefore by a piece, which is empty in one of them. */
static uint32_t most_pieces(const struct plan_ring rings[], uint32_t n_rings)
{
	uint32_t pieces = 1;

	for (uint32_t i = 0; i < n_rings; i++)
		if (rings[i].pieces > pieces)
			pieces = rings[i].pieces;
	return pieces;
}

static void set_last(uint32_t *last, uint32_t step)
{
	if (step != PLAN_NOTHING)
		*last = step;
}

void plan_ring_start(struct plan_ring *ring, size_t segment)
{
	size_t longest = 0;

	for (uint32_t i = 0; i < ring->group->n; i++)
		if (ring->parts[i].count > longest)
			longest = ring->parts[i].count;
	ring->pieces = 1;
	ring->piece = longest;
	ring->received = PLAN_NOTHING;
	for (int i = 0; i < PLAN_PIECES_MAX; i++) {
		ring->sent[0][i] = ring->sent[1][i] = PLAN_NOTHING;
		ring->decoded[0][i] = ring->decoded[1][i] = PLAN_NOTHING;
		ring->made[i] = PLAN_NOTHING;
	}
	if (is_encoded(ring)) {
		ring->pieces = (uint32_t)(longest / segment < PLAN_PIECES_MAX ? longest / segment
									      : PLAN_PIECES_MAX);
		if (ring->pieces == 0)
			ring->pieces = 1;
		ring->piece = (longest + ring->pieces - 1) / ring->pieces + PLAN_WIRE_BLOCK - 1;
		ring->piece -= ring->piece % PLAN_WIRE_BLOCK;
	}
	for (int i = 0; i < 2; i++) {
		if (ring->has_slots)
			ring->slot[i] = plan_scratch(ring->b, longest);
		if (is_encoded(ring)) {
			ring->out[i] = plan_scratch_encoded(ring->b, longest);
			ring->in[i] = plan_scratch_encoded(ring->b, longest);
		}
	}
	if (is_encoded(ring))
		ring->own = plan_scratch_encoded(ring->b, longest);
}

/* Step number `t` of a reduction: sends a piece of a partial sum. */
static void send_partial(struct plan_ring *ring, uint32_t t, uint32_t piece,
	struct plan_range source, uint32_t made, int64_t shift)
{
	struct plan_builder *b = ring->b;
	size_t count = piece_count(ring, behind(ring, t + 1), piece);
	uint32_t *sent = &ring->sent[t % 2][piece];
	uint32_t step;

	if (is_encoded(ring)) {
		struct plan_range out = piece_of(ring, ring->out[t % 2], piece);
		uint32_t encode = plan_add_local(b, PLAN_ENCODE, out, source, count);

		plan_wait(b, encode, made, shift);
		plan_wait(b, encode, *sent, 0);
		step = plan_add_send(b, next_rank(ring), out, count);
		plan_wait(b, step, encode, 0);
	} else {
		step = plan_add_send(b, next_rank(ring), source, count);
		plan_wait(b, step, made, shift);
	}
	set_last(sent, step);
}

/* Adds this rank's contribution to the piece that arrives at step `t`. Returns the step. */
static uint32_t receive_partial(
	struct plan_ring *ring, uint32_t t, uint32_t piece, struct plan_range target)
{
	struct plan_builder *b = ring->b;
	uint32_t index = behind(ring, t + 2);
	size_t count = piece_count(ring, index, piece);
	const struct plan_part *part = &ring->parts[index];
	struct plan_range operand = piece_of(ring, part->input, piece);
	uint32_t step;

	if (is_encoded(ring)) {
		struct plan_range in = piece_of(ring, ring->in[t % 2], piece);
		uint32_t receive = plan_add_receive(b, previous_rank(ring), in, count);

		plan_wait(b, receive, ring->decoded[t % 2][piece], 0);
		step = plan_add_local(b, PLAN_DECODE_REDUCE, target, in, count);
		plan_set_operand(b, step, operand);
		plan_wait(b, step, receive, 0);
		set_last(&ring->decoded[t % 2][piece], step);
		set_last(&ring->received, receive);
	} else {
		step = plan_add_receive_reduce(b, previous_rank(ring), target, operand, count);
		/* The slot's previous content was sent at the step before the last one. */
		if (ring->has_slots && t > 1 && t + 2 < ring->group->n)
			plan_wait(b, step, ring->sent[(t + 1) % 2][piece], 0);
		set_last(&ring->received, step);
	}
	plan_wait(b, step, part->ready, part->ready_shift + (int64_t)(piece * ring->piece));
	return step;
}

static void reduce_first(struct plan_ring *ring, uint32_t piece)
{
	const struct plan_part *part = &ring->parts[behind(ring, 1)];

	send_partial(ring, 0, piece, piece_of(ring, part->input, piece), part->ready,
		part->ready_shift + (int64_t)(piece * ring->piece));
}

static void reduce_step(struct plan_ring *ring, uint32_t t, uint32_t piece)
{
	const struct plan_part *part = &ring->parts[behind(ring, t + 2)];
	bool is_last = t + 2 == ring->group->n;
	struct plan_range target = ring->has_slots && !is_last ? ring->slot[t % 2] : part->output;
	uint32_t step;

	target = piece_of(ring, target, piece);
	step = receive_partial(ring, t, piece, target);
	if (is_last && ring->is_partial)
		ring->made[piece] = step;
	else if (is_last)
		ring->made[piece] = plan_finish(
			ring->b, target, piece_count(ring, ring->group->me, piece), step);
	else
		send_partial(ring, t + 1, piece, target, step, 0);
}

void plan_rings_reduce(struct plan_ring rings[], uint32_t n_rings)
{
	uint32_t n = rings[0].group->n;
	uint32_t pieces = most_pieces(rings, n_rings);

	for (uint32_t piece = 0; piece < pieces; piece++)
		for (uint32_t i = 0; i < n_rings; i++)
			reduce_first(&rings[i], piece);
	for (uint32_t t = 0; t + 1 < n; t++)
		for (uint32_t piece = 0; piece < pieces; piece++)
			for (uint32_t i = 0; i < n_rings; i++)
				reduce_step(&rings[i], t, piece);
}

/* Waits for the reduction of this rank's part, or else for the step that the caller gave for it. */
static void wait_made(struct plan_ring *ring, uint32_t step, uint32_t piece)
{
	const struct plan_part *part = &ring->parts[ring->group->me];

	if (ring->made[piece] != PLAN_NOTHING)
		plan_wait(ring->b, step, ring->made[piece], 0);
	else
		plan_wait(ring->b, step, part->ready,
			part->ready_shift + (int64_t)(piece * ring->piece));
	plan_wait_whole(ring->b, step, ring->also);
}

static void gather_first(struct plan_ring *ring, uint32_t piece)
{
	struct plan_builder *b = ring->b;
	const struct plan_part *part = &ring->parts[ring->group->me];
	size_t count = piece_count(ring, ring->group->me, piece);
	struct plan_range source = piece_of(ring, part->input, piece);
	struct plan_range own = piece_of(ring, ring->own, piece);
	uint32_t encode, decode, send;

	if (!is_encoded(ring)) {
		send = plan_add_send(b, next_rank(ring), source, count);
		wait_made(ring, send, piece);
		return;
	}
	encode = plan_add_local(b, PLAN_ENCODE, own, source, count);
	wait_made(ring, encode, piece);
	send = plan_add_send(b, next_rank(ring), own, count);
	plan_wait(b, send, encode, 0);
	/* All ranks use the decoded value, including this one. */
	decode = plan_add_local(b, PLAN_DECODE, piece_of(ring, part->output, piece), own, count);
	plan_wait(b, decode, encode, 0);
	ring->made[piece] = decode;
}

static void gather_step(struct plan_ring *ring, uint32_t t, uint32_t piece)
{
	struct plan_builder *b = ring->b;
	uint32_t index = behind(ring, t + 1);
	size_t count = piece_count(ring, index, piece);
	struct plan_range output = piece_of(ring, ring->parts[index].output, piece);
	struct plan_range target = output;
	uint32_t receive, send = PLAN_NOTHING, decode;

	if (is_encoded(ring))
		target = piece_of(ring, ring->in[t % 2], piece);
	receive = plan_add_receive(b, previous_rank(ring), target, count);
	if (ring->is_in_turn)
		plan_wait_whole(b, receive, ring->received);
	set_last(&ring->received, receive);
	ring->parts[index].made = receive;
	if (is_encoded(ring)) {
		plan_wait(b, receive, ring->decoded[t % 2][piece], 0);
		plan_wait(b, receive, ring->sent[t % 2][piece], 0);
	}
	if (t + 2 < ring->group->n) {
		send = plan_add_send(b, next_rank(ring), target, count);
		plan_wait(b, send, receive, 0);
	}
	if (!is_encoded(ring))
		return;
	decode = plan_add_local(b, PLAN_DECODE, output, target, count);
	plan_wait(b, decode, receive, 0);
	set_last(&ring->decoded[t % 2][piece], decode);
	set_last(&ring->sent[t % 2][piece], send);
}

void plan_rings_gather(struct plan_ring rings[], uint32_t n_rings)
{
	uint32_t n = rings[0].group->n;
	uint32_t pieces = most_pieces(rings, n_rings);

	for (uint32_t piece = 0; piece < pieces; piece++)
		for (uint32_t i = 0; i < n_rings; i++)
			gather_first(&rings[i], piece);
	for (uint32_t t = 0; t + 1 < n; t++)
		for (uint32_t piece = 0; piece < pieces; piece++)
			for (uint32_t i = 0; i < n_rings; i++)
				gather_step(&rings[i], t, piece);
}
