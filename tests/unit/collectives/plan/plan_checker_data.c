/* SPDX-License-Identifier: BSD-3-Clause */
/* The plan checker's memory: symbols in the buffers, and the effects of steps on them. */
#include "tests/unit/collectives/plan/plan_checker_internal.h"

enum { INT8_BLOCK = 128, INT8_SCALE = 2 };

static uint64_t mix(uint64_t a, uint64_t b)
{
	struct random_state state;

	random_seed(&state, a * 0x9e3779b97f4a7c15u ^ (b + 0x7f4a7c159e3779b9u));
	return random_u64(&state);
}

/* An odd number, so that multiplication by it is reversible. */
static uint64_t scalar_of(const struct world *w, uint32_t rank)
{
	return (w->c->op == FRL_PREMUL_SUM ? mix(rank, 77) : mix(1, 78)) | 1;
}

static struct cell leaf(const struct check_case *c, uint32_t rank, size_t element)
{
	return (struct cell){ .sum = mix(mix(c->seed, rank), element),
		.expression = mix(mix(rank, element), 1),
		.weight = 1,
		.format = CELL_PLAIN };
}

static size_t size_of(const struct node *node, size_t elements, bool encoded)
{
	return encoded ? frl_wire_size(node->job.wire, elements) : elements * node->job.elem_size;
}

/* The start of element number `i` in a range, and its length. */
static size_t element_at(const struct node *node, bool encoded, size_t i, size_t *ret_size)
{
	*ret_size = node->job.elem_size;
	if (!encoded)
		return i * node->job.elem_size;
	if (node->job.wire == FRL_WIRE_INT8) {
		*ret_size = 1;
		return i + (i / INT8_BLOCK + 1) * INT8_SCALE;
	}
	*ret_size = 2;
	return 2 * i;
}

static bool read_cell(
	const struct node *node, size_t address, size_t size, bool encoded, struct cell *ret)
{
	const struct cell *cell = &node->memory[address];

	if (cell->format != (encoded ? CELL_ENCODED : CELL_PLAIN))
		return false;
	for (size_t i = 1; i < size; i++)
		if (cell[i].format != CELL_REST)
			return false;
	*ret = *cell;
	return true;
}

static void write_cell(
	struct node *node, size_t address, size_t size, bool encoded, const struct cell *value)
{
	struct cell *cell = &node->memory[address];

	*cell = *value;
	if (cell->format != CELL_NOTHING)
		cell->format = encoded ? CELL_ENCODED : CELL_PLAIN;
	for (size_t i = 1; i < size; i++)
		cell[i] = (struct cell){ .format = CELL_REST };
}

static bool has_source(const struct plan_step *s)
{
	return s->kind != PLAN_RECEIVES;
}

static bool has_target(const struct plan_step *s)
{
	return s->kind != PLAN_SENDS;
}

static bool has_operand(const struct plan_step *s)
{
	return has_target(s) && (s->action == PLAN_REDUCE || s->action == PLAN_DECODE_REDUCE);
}

static bool check_range(
	struct world *w, uint32_t rank, uint32_t step, const struct plan_range *range, bool writes)
{
	const struct node *node = &w->nodes[rank];
	const struct plan_step *s = check_step(w, step);
	size_t bytes = size_of(node, s->count, range->encoded);

	if (range->offset > node->size[range->buffer] ||
		bytes > node->size[range->buffer] - range->offset)
		return check_fail(w,
			"rank %u, step %u: %zu bytes at %zu of buffer %d, which has "
			"%zu",
			rank, step - node->first_step, bytes, range->offset, range->buffer,
			node->size[range->buffer]);
	if (writes && range->buffer == PLAN_SEND)
		return check_fail(w, "rank %u, step %u writes the send buffer", rank,
			step - node->first_step);
	if (range->encoded && (range->buffer != PLAN_SCRATCH || w->c->wire == FRL_WIRE_SAME))
		return check_fail(w, "rank %u, step %u: encoded data in buffer %d", rank,
			step - node->first_step, range->buffer);
	return true;
}

/* Ranges may be the same if elements are processed one by one; otherwise they must be disjoint. */
static bool are_apart(const struct node *node, size_t count, const struct plan_range *a,
	const struct plan_range *b, bool may_be_same)
{
	size_t a_low = node->base[a->buffer] + a->offset;
	size_t b_low = node->base[b->buffer] + b->offset;
	size_t a_high = a_low + size_of(node, count, a->encoded);
	size_t b_high = b_low + size_of(node, count, b->encoded);

	if (may_be_same && a_low == b_low && a->encoded == b->encoded)
		return true;
	return a_high <= b_low || b_high <= a_low;
}

static bool check_formats(struct world *w, uint32_t rank, uint32_t step)
{
	const struct plan_step *s = check_step(w, step);
	bool from = has_source(s) && s->source.encoded;
	bool to = has_target(s) && s->target.encoded;
	bool ok = true;

	if (s->kind == PLAN_RECEIVES)
		ok = s->action == PLAN_COPY || (s->action == PLAN_REDUCE && !to);
	if (s->kind == PLAN_LOCAL)
		switch (s->action) {
		case PLAN_COPY: ok = from == to; break;
		case PLAN_REDUCE:
		case PLAN_SCALE: ok = !from && !to; break;
		case PLAN_ENCODE: ok = !from && to; break;
		case PLAN_DECODE:
		case PLAN_DECODE_REDUCE: ok = from && !to; break;
		}
	if (has_operand(s) && s->operand.encoded)
		ok = false;
	if (from && w->nodes[rank].plan.segment % PLAN_WIRE_BLOCK != 0)
		ok = false;
	return ok ||
		check_fail(w, "rank %u, step %u: action %d with these formats", rank,
			step - w->nodes[rank].first_step, s->action);
}

bool check_ranges(struct world *w, uint32_t rank, uint32_t step)
{
	const struct node *node = &w->nodes[rank];
	const struct plan_step *s = check_step(w, step);
	bool same = s->action == PLAN_SCALE || s->action == PLAN_REDUCE;

	if (s->count == 0)
		return check_fail(w, "rank %u, step %u is empty", rank, step - node->first_step);
	for (int i = 0; i < PLAN_AFTER; i++)
		if (s->after[i].step != PLAN_NOTHING && s->after[i].step >= step - node->first_step)
			return check_fail(w, "rank %u, step %u waits for a later one", rank,
				step - node->first_step);
	if (has_source(s) && !check_range(w, rank, step, &s->source, false))
		return false;
	if (has_target(s) && !check_range(w, rank, step, &s->target, true))
		return false;
	if (has_operand(s) && !check_range(w, rank, step, &s->operand, false))
		return false;
	if (!check_formats(w, rank, step))
		return false;
	if (s->kind == PLAN_LOCAL && !are_apart(node, s->count, &s->source, &s->target, same))
		return check_fail(w, "rank %u, step %u: source and target overlap", rank,
			step - node->first_step);
	if (has_operand(s) && !are_apart(node, s->count, &s->operand, &s->target, true))
		return check_fail(w, "rank %u, step %u: operand and target overlap", rank,
			step - node->first_step);
	return true;
}

void check_addresses(const struct world *w, uint32_t rank, uint32_t step,
	const struct plan_range *range, uint32_t segment, size_t *ret_low, size_t *ret_high)
{
	const struct node *node = &w->nodes[rank];
	size_t length = node->plan.segment;
	size_t first = segment * length;
	size_t count = check_step(w, step)->count;
	size_t end = first + length < count ? first + length : count;
	size_t base = node->base[range->buffer] + range->offset;

	*ret_low = base + size_of(node, first, range->encoded);
	*ret_high = base + size_of(node, end, range->encoded);
}

static bool scale(struct world *w, uint32_t rank, struct cell *value)
{
	bool ok = !value->is_scaled;

	if (w->c->op == FRL_PREMUL_SUM || w->c->is_float_narrow)
		ok = ok && value->weight == 1;
	else
		ok = ok && w->c->op == FRL_AVG && value->weight == w->c->ranks;
	value->sum *= scalar_of(w, rank);
	value->is_scaled = true;
	value->expression = mix(value->expression, 0x5ca1e);
	return ok;
}

static bool add(struct world *w, struct cell *value, const struct cell *operand)
{
	bool first = w->c->op == FRL_PREMUL_SUM || (w->c->op == FRL_AVG && w->c->is_float_narrow);
	uint64_t low = value->expression < operand->expression ? value->expression
							       : operand->expression;
	uint64_t high = value->expression ^ operand->expression ^ low;

	value->sum += operand->sum;
	value->weight = (uint16_t)(value->weight + operand->weight);
	value->expression = mix(low, high);
	if (operand->coded > value->coded)
		value->coded = operand->coded;
	return value->is_scaled == first && operand->is_scaled == first;
}

/* Element number `i` of encoded data: with int8 the other elements of its block matter. */
static void encode(const struct check_case *c, size_t i, struct cell *value)
{
	size_t place = c->wire == FRL_WIRE_INT8 ? i % INT8_BLOCK : 0;

	value->expression = mix(value->expression, 0xc0de + place);
}

/* Element `i` of a step: `value` was read from the source. */
static bool apply(struct world *w, uint32_t rank, const struct plan_step *s, size_t i,
	struct cell *value, const struct cell *operand)
{
	switch (s->action) {
	case PLAN_COPY: return true;
	case PLAN_SCALE: return scale(w, rank, value);
	case PLAN_ENCODE:
		/* An element that was just decoded is encoded exactly. */
		value->coded++;
		encode(w->c, i, value);
		return true;
	case PLAN_DECODE: return true;
	case PLAN_REDUCE:
	case PLAN_DECODE_REDUCE: return add(w, value, operand);
	}
	return false;
}

bool check_move(struct world *w, uint32_t from_rank, uint32_t to_rank, uint32_t send, uint32_t step,
	uint32_t segment)
{
	const struct node *from = &w->nodes[from_rank];
	struct node *to = &w->nodes[to_rank];
	const struct plan_step *s = check_step(w, step);
	const struct plan_range *source = &check_step(w, send)->source;
	size_t end = (segment + 1) * to->plan.segment;

	for (size_t i = segment * to->plan.segment; i < end && i < s->count; i++) {
		struct cell value = { .format = CELL_NOTHING }, operand = value;
		size_t size;
		size_t at = element_at(from, source->encoded, i, &size);
		bool ok = read_cell(from, from->base[source->buffer] + source->offset + at, size,
			source->encoded, &value);

		if (!ok && s->action != PLAN_COPY)
			return check_fail(w,
				"rank %u, step %u, element %zu: the source is not "
				"made yet",
				to_rank, step - to->first_step, i);
		if (has_operand(s)) {
			at = element_at(to, false, i, &size);
			if (!read_cell(to, to->base[s->operand.buffer] + s->operand.offset + at,
				    size, false, &operand))
				return check_fail(w,
					"rank %u, step %u, element %zu: the operand "
					"is not made yet",
					to_rank, step - to->first_step, i);
		}
		if (!apply(w, to_rank, s, i, &value, &operand))
			return check_fail(w,
				"rank %u, step %u, element %zu: scaled at the wrong "
				"time",
				to_rank, step - to->first_step, i);
		at = element_at(to, s->target.encoded, i, &size);
		write_cell(to, to->base[s->target.buffer] + s->target.offset + at, size,
			s->target.encoded, &value);
	}
	return true;
}

/* The caller's data: a rank's contribution lies in the send buffer, wherever that is. */
void check_fill(struct world *w, uint32_t rank)
{
	struct node *node = &w->nodes[rank];
	size_t size = w->c->elem_size;

	if (w->c->coll == FRL_BARRIER || size == 0)
		return;
	for (size_t i = 0; i < node->size[PLAN_SEND] / size; i++) {
		struct cell value = leaf(w->c, rank, i);

		write_cell(node, node->base[PLAN_SEND] + i * size, size, false, &value);
	}
}

static bool is_right(struct world *w, uint32_t rank, size_t element, const struct cell *expected,
	bool compares_expression)
{
	struct node *node = &w->nodes[rank];
	size_t size = w->c->elem_size;
	struct cell value;

	if (!read_cell(node, node->base[PLAN_RECV] + element * size, size, false, &value))
		return check_fail(w, "rank %u has no result in element %zu", rank, element);
	if (value.weight != expected->weight || value.sum != expected->sum)
		return check_fail(w,
			"rank %u, element %zu: %u contributions instead of %u, or "
			"the wrong ones",
			rank, element, value.weight, expected->weight);
	if (value.is_scaled != expected->is_scaled)
		return check_fail(w, "rank %u, element %zu: not scaled", rank, element);
	if (compares_expression && value.expression != expected->expression)
		return check_fail(w, "rank %u, element %zu: made in another order", rank, element);
	if (w->c->wire == FRL_WIRE_INT8 && value.coded > 2)
		return check_fail(
			w, "rank %u, element %zu: encoded %u times", rank, element, value.coded);
	return true;
}

/* The expected element i of `rank`'s receive buffer: from `source`'s element *ret_at. */
static uint32_t source_of(const struct world *w, uint32_t rank, size_t i, size_t *ret_at)
{
	const struct check_case *c = w->c;

	*ret_at = i;
	switch (c->coll) {
	case FRL_ALLGATHER:
	case FRL_GATHER: *ret_at = i % c->count; return (uint32_t)(i / c->count);
	case FRL_ALLTOALL:
		*ret_at = rank * c->count + i % c->count;
		return (uint32_t)(i / c->count);
	case FRL_SCATTER: *ret_at = rank * c->count + i; return c->root;
	default: return c->root;
	}
}

/* Copied elements are encoded once, a rank's own as well, and never again. */
static void round_once(const struct check_case *c, size_t i, struct cell *value)
{
	if (c->wire != FRL_WIRE_SAME)
		encode(c, i, value);
}

static bool check_v(struct world *w, uint32_t rank)
{
	const struct node *node = &w->nodes[rank];
	uint32_t n = w->c->ranks;

	for (uint32_t from = 0; from < n; from++)
		for (size_t i = 0; i < node->job.recv_counts[from]; i++) {
			size_t at = w->nodes[from].job.send_displs[rank] + i;
			struct cell expected = leaf(w->c, from, at);

			round_once(w->c, i, &expected);
			if (!is_right(w, rank, node->job.recv_displs[from] + i, &expected, true))
				return false;
		}
	return true;
}

/* The sum of all ranks' element `i`. */
static struct cell sum_of(const struct world *w, size_t i)
{
	const struct check_case *c = w->c;
	struct cell sum = { .weight = (uint16_t)c->ranks };

	sum.is_scaled = c->op == FRL_PREMUL_SUM || (c->op == FRL_AVG && c->ranks > 1);
	for (uint32_t rank = 0; rank < c->ranks; rank++)
		sum.sum += leaf(c, rank, i).sum * (sum.is_scaled ? scalar_of(w, rank) : 1);
	return sum;
}

static bool check_sums(struct world *w)
{
	const struct check_case *c = w->c;
	uint32_t first = c->coll == FRL_REDUCE ? c->root : 0;
	uint32_t end = c->coll == FRL_REDUCE ? c->root + 1 : c->ranks;

	for (size_t i = 0; i < c->count; i++) {
		struct cell sum = { .weight = 0 };

		for (uint32_t rank = first; rank < end; rank++) {
			bool is_block = c->coll == FRL_REDUCE_SCATTER;

			if (rank == first || is_block)
				sum = sum_of(w, is_block ? rank * c->count + i : i);
			if (!is_right(w, rank, i, &sum, rank > first && !is_block))
				return false;
			/* The others must have the same expression. */
			if (rank == first)
				sum = w->nodes[rank].memory[w->nodes[rank].base[PLAN_RECV] +
					i * c->elem_size];
		}
	}
	return true;
}

bool check_results(struct world *w)
{
	const struct check_case *c = w->c;

	if (c->coll == FRL_BARRIER || c->coll == FRL_SEND || c->coll == FRL_RECV)
		return true;
	if ((c->coll == FRL_ALLREDUCE || c->coll == FRL_REDUCE_SCATTER || c->coll == FRL_REDUCE))
		return check_sums(w);
	for (uint32_t rank = 0; rank < c->ranks; rank++) {
		const struct node *node = &w->nodes[rank];

		if (c->coll == FRL_ALLTOALLV && !check_v(w, rank))
			return false;
		if (c->coll == FRL_ALLTOALLV || c->count == 0)
			continue;
		for (size_t i = 0; i < node->size[PLAN_RECV] / c->elem_size; i++) {
			size_t at;
			uint32_t from = source_of(w, rank, i, &at);
			struct cell expected = leaf(c, from, at);

			round_once(c, i % c->count, &expected);
			if (!is_right(w, rank, i, &expected, true))
				return false;
		}
	}
	return true;
}
