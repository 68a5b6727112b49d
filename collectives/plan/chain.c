/* SPDX-License-Identifier: BSD-3-Clause */
/* Chains: data passes through all ranks in order, segment by segment. */
#include "collectives/plan/rings.h"

/* Scratch for two pieces in turn, and the steps that used it last. */
struct window {
	struct plan_range range[2];
	uint32_t used[2];
	uint32_t decoded[2];
};

static struct window window(const struct plan_chain *chain, size_t piece, bool encoded)
{
	struct window w = { .used = { PLAN_NOTHING, PLAN_NOTHING },
		.decoded = { PLAN_NOTHING, PLAN_NOTHING } };

	for (int i = 0; i < 2; i++)
		w.range[i] = encoded ? plan_scratch_encoded(chain->b, piece)
				     : plan_scratch(chain->b, piece);
	return w;
}

static size_t piece_elements(const struct plan_chain *chain)
{
	size_t piece = chain->piece;

	if (piece == 0 || piece > chain->count)
		piece = chain->count;
	if (plan_is_encoded(chain->b->job)) {
		piece += PLAN_WIRE_BLOCK - 1;
		piece -= piece % PLAN_WIRE_BLOCK;
	}
	return piece;
}

/* The state of a chain that reduces. */
struct reducing {
	const struct plan_chain *chain;
	struct window partial, in, out;
	size_t piece;
};

static uint32_t receive_piece(
	struct reducing *r, size_t first, size_t count, struct plan_range target)
{
	const struct plan_chain *chain = r->chain;
	struct plan_builder *b = chain->b;
	uint32_t peer = chain->group->ranks[chain->group->me + 1];
	uint32_t parity = first / r->piece % 2;
	struct plan_range operand = plan_plus(b, chain->input, first);
	uint32_t step;

	if (plan_is_encoded(b->job)) {
		uint32_t receive = plan_add_receive(b, peer, r->in.range[parity], count);

		plan_wait(b, receive, r->in.used[parity], 0);
		step = plan_add_local(b, PLAN_DECODE_REDUCE, target, r->in.range[parity], count);
		plan_set_operand(b, step, operand);
		plan_wait(b, step, receive, 0);
		r->in.used[parity] = step;
	} else {
		step = plan_add_receive_reduce(b, peer, target, operand, count);
		plan_wait(b, step, r->partial.used[parity], 0);
	}
	plan_wait(b, step, chain->ready, chain->ready_shift + (int64_t)first);
	return step;
}

static void send_piece(struct reducing *r, size_t first, size_t count, struct plan_range source,
	uint32_t made, int64_t shift)
{
	const struct plan_chain *chain = r->chain;
	struct plan_builder *b = chain->b;
	uint32_t peer = chain->group->ranks[chain->group->me - 1];
	uint32_t parity = first / r->piece % 2;
	uint32_t step;

	if (plan_is_encoded(b->job)) {
		uint32_t encode = plan_add_local(
			b, PLAN_ENCODE, r->out.range[parity], source, count);

		plan_wait(b, encode, made, shift);
		plan_wait(b, encode, r->out.used[parity], 0);
		step = plan_add_send(b, peer, r->out.range[parity], count);
		plan_wait(b, step, encode, 0);
	} else {
		step = plan_add_send(b, peer, source, count);
		plan_wait(b, step, made, shift);
		r->partial.used[parity] = step;
	}
	r->out.used[parity] = step;
}

uint32_t plan_chain_reduce(const struct plan_chain *chain)
{
	struct plan_builder *b = chain->b;
	uint32_t me = chain->group->me;
	bool is_first = me == 0;
	bool is_last = me + 1 == chain->group->n;
	bool in_slots = chain->has_slots && !is_first;
	struct reducing r = { .chain = chain, .piece = piece_elements(chain) };
	uint32_t step = PLAN_NOTHING;

	r.partial = window(chain, in_slots ? r.piece : 0, false);
	r.in = window(chain, plan_is_encoded(b->job) ? r.piece : 0, true);
	r.out = window(chain, plan_is_encoded(b->job) ? r.piece : 0, true);
	for (size_t first = 0; first < chain->count; first += r.piece) {
		size_t rest = chain->count - first;
		size_t count = rest < r.piece ? rest : r.piece;
		struct plan_range target = in_slots ? r.partial.range[first / r.piece % 2]
						    : plan_plus(b, chain->output, first);

		if (!in_slots)
			r.partial.used[0] = r.partial.used[1] = PLAN_NOTHING;
		if (!is_last)
			step = receive_piece(&r, first, count, target);
		if (is_first && !chain->is_partial)
			step = plan_finish(b, target, count, step);
		else if (is_first)
			continue;
		else if (is_last)
			send_piece(&r, first, count, plan_plus(b, chain->input, first),
				chain->ready, chain->ready_shift + (int64_t)first);
		else
			send_piece(&r, first, count, target, step, 0);
	}
	return step;
}

/* Encodes a piece at the first rank, which also decodes it to get the same values as the others. */
static uint32_t encode_own(const struct plan_chain *chain, size_t first, size_t count,
	struct plan_range target, uint32_t used)
{
	struct plan_builder *b = chain->b;
	uint32_t encode, decode;

	encode = plan_add_local(b, PLAN_ENCODE, target, plan_plus(b, chain->input, first), count);
	plan_wait(b, encode, chain->ready, chain->ready_shift + (int64_t)first);
	plan_wait(b, encode, used, 0);
	decode = plan_add_local(b, PLAN_DECODE, plan_plus(b, chain->output, first), target, count);
	plan_wait(b, decode, encode, 0);
	return encode;
}

/* Forwards a piece. Returns the step that puts it into the output. */
static uint32_t pass_encoded(
	const struct plan_chain *chain, struct window *w, size_t first, size_t count)
{
	struct plan_builder *b = chain->b;
	const struct plan_group *group = chain->group;
	uint32_t parity = first / piece_elements(chain) % 2;
	struct plan_range range = w->range[parity];
	uint32_t step, decode, send;

	if (group->me == 0) {
		step = encode_own(chain, first, count, range, w->used[parity]);
		decode = PLAN_NOTHING;
	} else {
		step = plan_add_receive(b, group->ranks[group->me - 1], range, count);
		plan_wait(b, step, w->used[parity], 0);
		plan_wait(b, step, w->decoded[parity], 0);
	}
	if (group->me + 1 < group->n) {
		send = plan_add_send(b, group->ranks[group->me + 1], range, count);
		plan_wait(b, send, step, 0);
		w->used[parity] = send;
	}
	if (group->me > 0) {
		decode = plan_add_local(
			b, PLAN_DECODE, plan_plus(b, chain->output, first), range, count);
		plan_wait(b, decode, step, 0);
		w->decoded[parity] = decode;
	}
	return decode;
}

uint32_t plan_chain_broadcast(const struct plan_chain *chain)
{
	struct plan_builder *b = chain->b;
	const struct plan_group *group = chain->group;
	bool is_first = group->me == 0;
	uint32_t step = PLAN_NOTHING, send;

	if (plan_is_encoded(b->job)) {
		size_t piece = piece_elements(chain);
		struct window w = window(chain, piece, true);

		for (size_t first = 0; first < chain->count; first += piece) {
			size_t rest = chain->count - first;

			step = pass_encoded(chain, &w, first, rest < piece ? rest : piece);
		}
		return step;
	}
	if (!is_first)
		step = plan_add_receive(
			b, group->ranks[group->me - 1], chain->output, chain->count);
	if (group->me + 1 < group->n) {
		send = plan_add_send(b, group->ranks[group->me + 1],
			is_first ? chain->input : chain->output, chain->count);
		if (is_first)
			plan_wait(b, send, chain->ready, chain->ready_shift);
		else
			plan_wait(b, send, step, 0);
		plan_wait_whole(b, send, chain->also);
	}
	return step;
}
