/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * WRITEs on the responder's short path, and the same ones on the long path: the results must be the
 * same. A PSN with a bit above its 24 is the same PSN except in the comparison with the expected
 * one, which lets packets in.
 */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <string.h>

#include "lib/base/random.h"

enum { MTU = 256, PACKETS = 40, SEEDS = 2000, ABOVE_PSN = 1 << 24 };

/* The outcome of a packet. Cleared before it is filled in, since it is compared as a whole. */
struct outcome {
	enum frl_qp_state state;
	struct responder responder;
	struct frl_stats stats;
	struct qp_counts counts;
	uint32_t n_placements;
	struct placement placement;
	enum completed completes;
};

static uint32_t choose_length(struct random_state *random, bool last)
{
	switch (random_below(random, 64)) {
	case 0: return 0;
	case 1: return MTU + 4;
	case 2: return 1 + (uint32_t)random_below(random, MTU);
	default: return last ? 1 + (uint32_t)random_below(random, MTU) : MTU;
	}
}

static uint32_t choose_key(struct random_state *random, const struct fixture *f)
{
	switch (random_below(random, 64)) {
	case 0: return f->read_only.key;
	case 1: return f->foreign.key;
	case 2: return 0;
	default: return f->local.key;
	}
}

/* Mostly one that may follow what was before it. */
static uint8_t choose_opcode(struct random_state *random, const struct responder *r)
{
	static const uint8_t opcodes[] = { OP_WRITE_FIRST, OP_WRITE_ONLY, OP_WRITE_MIDDLE,
		OP_WRITE_LAST, OP_WRITE_LAST_IMM, OP_WRITE_ONLY_IMM };

	if (random_below(random, 32) == 0)
		return opcodes[random_below(random, sizeof(opcodes))];
	if (r->message == MESSAGE_WRITE)
		return r->write_length - r->offset > MTU ? OP_WRITE_MIDDLE : OP_WRITE_LAST;
	return opcodes[random_below(random, 2)];
}

static struct wire_packet choose_packet(struct random_state *random, struct fixture *f)
{
	const struct responder *r = &f->qp.responder;
	uint8_t opcode = choose_opcode(random, r);
	const struct opcode_info *op = &opcode_table[opcode];
	bool first = op->flags & OPCODE_FIRST, last = op->flags & OPCODE_LAST;
	uint32_t left = r->write_length - r->offset;
	uint32_t length = choose_length(random, last);
	uint32_t psn = r->epsn.value;
	struct wire_packet packet;

	if (!first && last && random_below(random, 32))
		length = left <= MTU || (left <= 2 * MTU && random_below(random, 2)) ? left : MTU;
	if (random_below(random, 16) == 0)
		psn += (uint32_t)random_below(random, 5) - 2;
	packet = fixture_packet(f, opcode, psn, length);
	packet.h.bth.ack_request = random_below(random, 3) == 0;
	if (!first)
		return packet;
	packet.h.reth = (struct reth){
		.va = fixture_va(f, 0) + random_below(random, F_MEMORY - 3 * MTU),
		.rkey = choose_key(random, f),
		.dma_length = last ? length : length + 1 + (uint32_t)random_below(random, 3 * MTU),
	};
	if (random_below(random, 64) == 0)
		packet.h.reth.va = fixture_va(f, F_MEMORY - length);
	if (random_below(random, 64) == 0)
		packet.h.reth.dma_length += (uint32_t)random_below(random, 3) - 1;
	if (random_below(random, 64) == 0)
		packet.h.reth = (struct reth){ f->huge.iova, f->huge.key, UINT32_MAX };
	return packet;
}

static void note_outcome(const struct fixture *f, struct outcome *ret)
{
	const struct placement *p = &f->placements.list[0];

	memset(ret, 0, sizeof(*ret));
	ret->state = f->qp.state;
	memcpy(&ret->responder, &f->qp.responder, sizeof(ret->responder));
	ret->responder.ack_psn.value &= PSN_MASK;
	ret->responder.write_rkey = 0; /* each run has keys of its own; a wrong one is refused */
	/* Between messages what the last one left there means nothing. */
	if (ret->responder.message == MESSAGE_NONE) {
		ret->responder.offset = 0;
		ret->responder.write_va = 0;
		ret->responder.write_length = 0;
	}
	memcpy(&ret->stats, &f->stats, sizeof(ret->stats));
	ret->counts = f->qp.counts;
	ret->n_placements = f->placements.count;
	ret->completes = f->placements.completes;
	if (!f->placements.count)
		return;
	ret->placement.dst = p->dst;
	ret->placement.payload = p->payload;
	ret->placement.length = p->length;
	ret->placement.region = p->region;
	ret->placement.action = p->action;
	ret->placement.keep = p->keep;
}

/* A sequence of packets, until one is refused; returns how many of them were accepted. */
static unsigned run(uint64_t seed, bool long_way, struct outcome outcomes[PACKETS], uint32_t *ret_n)
{
	struct fixture *f = fixture_new(&(struct fixture_config){
		.mtu = MTU,
		.rq_psn = 0xfffff0,
		.deny = seed % 16 ? 0 : FRL_ACCESS_REMOTE_WRITE,
	});
	struct random_state random;
	unsigned placed = 0;
	uint32_t n = 0;

	random_seed(&random, seed);
	for (uint32_t i = 0; i < PACKETS / 4; i++)
		fixture_recv(f, i, 0, MTU);
	while (n < PACKETS && f->qp.state == FRL_QPS_RTS) {
		struct wire_packet packet = choose_packet(&random, f);

		if (long_way) {
			packet.h.bth.psn.value |= ABOVE_PSN;
			ck_assert(!psn_equal(packet.h.bth.psn, f->qp.responder.epsn));
		}
		fixture_input(f, &packet);
		placed += f->placements.count;
		note_outcome(f, &outcomes[n++]);
		if (random_below(&random, 4) == 0)
			fixture_output(f);
	}
	*ret_n = n;
	return placed;
}

#define EXPECT_SAME(part)                                               \
	ck_assert_msg(memcmp(&a->part, &b->part, sizeof(a->part)) == 0, \
		"seed %d, packet %u: " #part, (int)seed, i)

static void expect_same(const struct outcome *a, const struct outcome *b, uint64_t seed, uint32_t i)
{
	EXPECT_SAME(state);
	EXPECT_SAME(responder);
	EXPECT_SAME(stats);
	EXPECT_SAME(counts);
	EXPECT_SAME(n_placements);
	EXPECT_SAME(placement);
	EXPECT_SAME(completes);
}

START_TEST(same_as_the_long_way)
{
	static struct outcome shorter[PACKETS], longer[PACKETS];
	uint64_t placed = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		uint32_t n, m;

		placed += run(seed, false, shorter, &n);
		run(seed, true, longer, &m);
		ck_assert_uint_eq(n, m);
		for (uint32_t i = 0; i < n; i++)
			expect_same(&shorter[i], &longer[i], seed, i);
	}
	/* Little of it is refused. */
	ck_assert_uint_gt(placed, 4 * SEEDS);
}
END_TEST

TEST_FILE(responder_short)
