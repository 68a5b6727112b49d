/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets for which takes_fast_write() is true take a fast path, by the opcode in the BTH; the
 * general path uses the description of wire_decode(). So the same packets take the general path
 * when the opcode in the BTH is an unused one. The results of both are the same in any sequence:
 * placements, completions, answers and every field of the queue pair, after each packet. Whole
 * WRITEs show the path: only the general path keeps their key. FRL_SEED=n runs seed n alone.
 */
#include "tests/unit/protocol/fixtures/fast_trace.h"
#include "tests/fixtures/program.h"

#include <string.h>

enum {
	SEEDS = 150,
	STEPS = 500,
	REGIONS = 3,
	UNUSED_OPCODE = 0x1f, /* of RC */
	LONGEST = 6,          /* MTUs */
};

struct run {
	struct fixture *f;
	struct fixture_config config;
	struct random_state random;
	bool general;
	uint32_t n_placed; /* WRITEs without immediate */
	uint32_t n_fast;   /* whole ones that took the fast path */
};

/* They come and go; each is all of the fixture's memory. */
static struct region regions[REGIONS];

static uint64_t below(struct run *run, uint64_t n)
{
	return random_below(&run->random, n);
}

static bool one_in(struct run *run, uint64_t n)
{
	return below(run, n) == 0;
}

static uint8_t any_opcode(struct run *run)
{
	static const uint8_t often[] = { OP_WRITE_ONLY, OP_WRITE_ONLY, OP_WRITE_ONLY, OP_WRITE_ONLY,
		OP_WRITE_FIRST, OP_WRITE_FIRST, OP_WRITE_FIRST, OP_WRITE_ONLY_IMM, OP_SEND_FIRST,
		OP_SEND_ONLY, OP_SEND_ONLY_IMM, OP_SEND_ONLY_INV, OP_READ_REQUEST, OP_FETCH_ADD };

	if (!one_in(run, 24))
		return often[below(run, ROWS(often))];
	return (uint8_t)below(run, OP_SEND_ONLY_INV + 1);
}

/* A packet that continues the arriving message, or starts one. */
static uint8_t next_opcode(struct run *run)
{
	const struct responder *r = &run->f->qp.responder;
	bool ends = one_in(run, 3);

	if (r->message == MESSAGE_NONE || one_in(run, 24))
		return any_opcode(run);
	if (r->message == MESSAGE_SEND)
		return ends ? OP_SEND_LAST : OP_SEND_MIDDLE;
	if (r->write_length - r->offset > run->f->qp.path_mtu)
		return OP_WRITE_MIDDLE;
	return ends ? OP_WRITE_LAST_IMM : OP_WRITE_LAST;
}

static uint32_t length_of(struct run *run, const struct opcode_info *op)
{
	const struct responder *r = &run->f->qp.responder;
	uint32_t mtu = run->f->qp.path_mtu;

	if (one_in(run, 24))
		return (uint32_t)below(run, mtu + 8);
	if (op->flags & OPCODE_NO_PAYLOAD || op->operation == OPERATION_READ)
		return 0;
	if (!(op->flags & OPCODE_LAST))
		return mtu;
	if (!(op->flags & OPCODE_FIRST) && r->message == MESSAGE_WRITE)
		return r->write_length - r->offset;
	return (uint32_t)below(run, mtu + 1);
}

static uint32_t any_key(struct run *run)
{
	const struct fixture *f = run->f;

	switch (below(run, 48)) {
	case 0: return f->read_only.key;
	case 1: return f->foreign.key;
	case 2: return f->huge.key;
	case 3: return f->moved.key;
	case 4: return f->local.key ^ 1;
	case 5:
	case 6:
	case 7:
	case 8: return f->window.key;
	case 9:
	case 10:
	case 11:
	case 12: return regions[below(run, REGIONS)].key;
	default: return f->local.key;
	}
}

static uint32_t dma_length(struct run *run, const struct opcode_info *op, uint32_t length)
{
	uint32_t mtu = run->f->qp.path_mtu;

	if (one_in(run, 32))
		return (uint32_t)random_u64(&run->random);
	if (one_in(run, 32))
		return length + (uint32_t)below(run, 3) - 1;
	if (op->operation == OPERATION_READ)
		return (uint32_t)below(run, LONGEST * mtu);
	return op->flags & OPCODE_LAST ? length : mtu + 1 + (uint32_t)below(run, LONGEST * mtu);
}

static struct reth any_reth(struct run *run, const struct opcode_info *op, uint32_t length)
{
	const struct fixture *f = run->f;
	struct reth reth = { .rkey = any_key(run), .dma_length = dma_length(run, op, length) };

	if (reth.rkey == f->huge.key) {
		reth.va = f->huge.iova;
		if (one_in(run, 2)) /* around the longest message */
			reth.dma_length = (UINT32_C(1) << 31) + 4 - (uint32_t)below(run, 8);
	} else {
		reth.va = (reth.rkey == f->moved.key ? F_IOVA : fixture_va(f, 0)) +
			below(run, 1024);
	}
	return reth;
}

static uint32_t any_psn(struct run *run)
{
	uint32_t psn = run->f->qp.responder.epsn.value;

	if (one_in(run, 20))
		psn += (uint32_t)below(run, 16) - 8;
	return psn & PSN_MASK;
}

static void arrive(struct run *run)
{
	struct fixture *f = run->f;
	uint8_t opcode = next_opcode(run);
	const struct opcode_info *op = &opcode_table[opcode];
	struct wire_packet packet;
	bool write = (opcode >= OP_WRITE_FIRST && opcode <= OP_WRITE_LAST) ||
		opcode == OP_WRITE_ONLY;
	struct responder *r = &f->qp.responder;
	bool whole = opcode == OP_WRITE_ONLY && r->message == MESSAGE_NONE;

	if (!op->name)
		return;
	packet = fixture_packet(f, opcode, any_psn(run), length_of(run, op));
	packet.h.bth.ack_request = one_in(run, 6);
	if (op->headers & HEADER_RETH)
		packet.h.reth = any_reth(run, op, packet.payload_len);
	if (op->headers & HEADER_ATOMICETH)
		packet.h.atomic = (struct atomic_eth){
			.va = fixture_va(f, 8 * (uint32_t)below(run, 64)),
			.rkey = any_key(run),
			.swap_add = f->now_ns,
		};
	if (op->headers & HEADER_IETH)
		packet.h.invalidate_rkey = f->window.key;
	if (run->general && write)
		packet.h.bth.opcode = UNUSED_OPCODE;
	memset(&f->placements, 0xa5, sizeof(f->placements));
	if (whole) /* of no meaning between messages */
		r->write_rkey = ~packet.h.reth.rkey;
	fixture_input(f, &packet);
	trace_placements(f);
	run->n_placed += write && f->placements.count;
	run->n_fast += whole && f->placements.count && r->write_rkey == ~packet.h.reth.rkey;
}

static void post(struct run *run, uint64_t wr_id)
{
	struct fixture *f = run->f;
	struct frl_sge sge = { f->memory + below(run, 4096), 1 + (uint32_t)below(run, 16384),
		one_in(run, 8) ? regions[0].key : f->local.key };
	struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };
	const char *why = "";
	int rc = run->config.srq ? recv_queue_post(&f->srq.queue, &wr, &why)
				 : qp_post_recv(&f->qp, &wr, &why);

	trace_note("posted", (uint64_t)-rc);
}

static void output(struct run *run)
{
	struct fixture *f = run->f;
	uint32_t max = 1 + (uint32_t)below(run, 8), n;

	memset(f->out, 0xa5, max * sizeof(f->out[0]));
	n = qp_output(&f->qp, f->out, max, f->now_ns);
	check_invariants(f);
	trace_note("packets", n);
	for (uint32_t i = 0; i < n; i++)
		trace_packet(f, &f->out[i]);
}

static void change_region(struct run *run)
{
	struct fixture *f = run->f;
	struct region *region = &regions[below(run, REGIONS)];

	if (one_in(run, 3)) {
		if (f->window.parent)
			ck_assert(region_invalidate(&f->table, f->window.key, f->window.qp));
		else
			fixture_bind_window(f);
	} else if (region_find(&f->table, region->key) == region) {
		region_remove(&f->table, region);
	} else {
		*region = f->local;
		region->windows = 0;
		ck_assert(region_add(&f->table, region, (uint32_t)random_u64(&run->random)));
	}
}

static void step(struct run *run, uint32_t number)
{
	struct fixture *f = run->f;
	uint64_t dice = below(run, 64);

	f->now_ns += 1000;
	if (dice < 44)
		arrive(run);
	else if (dice < 52)
		output(run);
	else if (dice < 60)
		post(run, number);
	else
		change_region(run);
	if (f->qp.state == FRL_QPS_ERR && one_in(run, 8)) {
		fixture_move(f, FRL_QPS_RESET);
		fixture_bring_up(f, &run->config);
	}
	if (!one_in(run, 4))
		trace_completions(f);
	trace_qp(f);
}

static void run_seed(bool general, uint64_t seed)
{
	static const uint32_t mtus[] = { 256, 1024, 4096 };
	struct run run = { .general = general };

	random_seed(&run.random, seed);
	run.config = (struct fixture_config){
		.mtu = mtus[below(&run, 3)],
		.rq_psn = 0xffff80,
		.n_cq = one_in(&run, 4) ? 8 : F_CQ,
		.deny = one_in(&run, 10) ? FRL_ACCESS_REMOTE_WRITE : 0,
		.max_dest_rd_atomic = (uint8_t)(1 + below(&run, 4)),
		.srq = one_in(&run, 4),
		.state = one_in(&run, 2) ? FRL_QPS_RTR : FRL_QPS_RTS,
	};
	memset(regions, 0, sizeof(regions));
	run.f = fixture_new(&run.config);
	for (uint32_t i = 1; i <= STEPS; i++) {
		trace_step(i);
		step(&run, i);
	}
	if (run.config.deny)
		return;
	ck_assert_uint_gt(run.n_placed, 0);
	/* Each run takes its path. */
	if (general)
		ck_assert_uint_eq(run.n_fast, 0);
	else
		ck_assert_uint_gt(run.n_fast, 0);
}

START_LOOP_TEST(both_paths_do_the_same, trace_cases(SEEDS))
{
	trace_compare(run_seed, trace_seed(_i));
}
END_TEST

TEST_FILE(fast_receive)
