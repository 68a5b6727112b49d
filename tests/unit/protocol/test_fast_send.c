/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send requests for which takes_fast_post() is true take a fast path through posting and sending.
 * With an empty element behind the other one, which is left out, the same requests take the general
 * path. The results of both are the same in any sequence: packets, completions and every field of
 * the queue pair, after each step. FRL_SEED=n runs seed n alone.
 */
#include "tests/unit/protocol/fixtures/fast_trace.h"
#include "tests/fixtures/program.h"

#include <string.h>

enum {
	SEEDS = 150,
	STEPS = 500,
	REGIONS = 3,
	NONE_OF_THEM = 0x00aabbcc, /* no region's key */
	LONGEST = 40,              /* MTUs */
};

struct run {
	struct fixture *f;
	struct fixture_config config;
	struct random_state random;
	bool general;
	uint32_t n_fast;
};

/* They come and go; each is all of the fixture's memory, or nothing of it. */
static struct region regions[REGIONS];

static uint64_t below(struct run *run, uint64_t n)
{
	return random_below(&run->random, n);
}

static bool one_in(struct run *run, uint64_t n)
{
	return below(run, n) == 0;
}

static uint32_t any_key(struct run *run)
{
	const struct fixture *f = run->f;

	switch (below(run, 24)) {
	case 0: return f->read_only.key;
	case 1: return f->foreign.key;
	case 2: return f->moved.key;
	case 3: return f->window.key;
	case 4: return NONE_OF_THEM;
	case 5:
	case 6:
	case 7: return f->huge.key;
	case 8:
	case 9:
	case 10:
	case 11: return regions[below(run, REGIONS)].key;
	default: return f->local.key;
	}
}

static struct frl_sge any_element(struct run *run)
{
	struct fixture *f = run->f;
	uint32_t mtu = f->qp.path_mtu;
	struct frl_sge sge = { f->memory + below(run, 256), 0, any_key(run) };

	if (!one_in(run, 12))
		sge.length = 1 + (uint32_t)below(run, one_in(run, 2) ? mtu : LONGEST * mtu);
	if (sge.lkey == f->huge.key) {
		sge.addr = f->huge.addr + below(run, 256);
		/* Around the longest message, and what makes as many packets as may be queued. */
		if (one_in(run, 24))
			sge.length = (UINT32_C(1) << 31) + 1024 - (uint32_t)below(run, 2048);
	} else if (sge.lkey == f->moved.key && !one_in(run, 4)) {
		sge.addr = (void *)(uintptr_t)(F_IOVA + below(run, 256));
	}
	return sge;
}

static uint32_t any_flags(struct run *run)
{
	uint32_t flags = (one_in(run, 3) ? FRL_SEND_SIGNALED : 0) |
		(one_in(run, 3) ? FRL_SEND_SOLICITED : 0);

	return flags | (one_in(run, 12) ? FRL_SEND_FENCE : 0) |
		(one_in(run, 64) ? 1U << 20 : 0); /* unknown */
}

static enum frl_wr_opcode any_opcode(struct run *run)
{
	static const enum frl_wr_opcode often[] = { FRL_WR_RDMA_WRITE, FRL_WR_RDMA_WRITE,
		FRL_WR_RDMA_WRITE_WITH_IMM, FRL_WR_SEND, FRL_WR_SEND_WITH_IMM,
		FRL_WR_SEND_WITH_INV };

	if (one_in(run, 6)) /* or unknown */
		return (enum frl_wr_opcode)below(run, FRL_WR_SEND_WITH_INV + 2);
	return often[below(run, ROWS(often))];
}

/* Memory that exists: the payload is copied. */
static void make_inline(struct run *run, struct frl_send_wr *wr, struct frl_sge sges[])
{
	wr->flags |= FRL_SEND_INLINE;
	for (int i = 0; i < wr->n_sge; i++) {
		sges[i].addr = run->f->memory + i;
		sges[i].length = (uint32_t)below(run, FRL_MAX_INLINE);
	}
}

static void post(struct run *run, uint64_t wr_id)
{
	struct fixture *f = run->f;
	struct frl_sge sges[FRL_MAX_SGE + 1] = { { 0 } };
	struct frl_send_wr wr = {
		.wr_id = wr_id,
		.opcode = any_opcode(run),
		.flags = any_flags(run),
		.sge = sges,
		.n_sge = one_in(run, 8) ? (int)below(run, 5) : 1,
		.imm_data = (uint32_t)wr_id,
		.remote_addr = random_u64(&run->random) & ~UINT64_C(7),
		.rkey = (uint32_t)wr_id * 3,
		.compare_add = wr_id,
		.swap = wr_id + 1,
		.keep = below(run, 4),
		.bind = { .addr = fixture_va(f, 0),
			.length = 64,
			.rkey = frl_inc_rkey(f->window.key),
			.access = FRL_ACCESS_REMOTE_READ },
	};
	struct wr_objects objects = { .window = &f->window, .parent = &f->local };
	uint32_t tail = f->qp.requester.tail;

	for (int i = 0; i < wr.n_sge; i++)
		sges[i] = any_element(run);
	if (wr_is_atomic((uint8_t)wr.opcode) && wr.n_sge)
		sges[0].length = ATOMIC_SIZE;
	if (wr.opcode == FRL_WR_LOCAL_INV || wr.opcode == FRL_WR_SEND_WITH_INV)
		wr.invalidate_rkey = f->window.key;
	if (one_in(run, 16))
		make_inline(run, &wr, sges);
	if (run->general && wr.n_sge == 1)
		wr.n_sge = 2;
	trace_note("posted", (uint64_t)-fixture_try_post(f, &wr, &objects));
	if (f->qp.requester.tail != tail)
		run->n_fast += send_wqe_at(&f->qp.requester, tail)->fast;
}

static void output(struct run *run)
{
	struct fixture *f = run->f;
	uint32_t max = 1 + (uint32_t)below(run, 64), n;

	memset(f->out, 0xa5, max * sizeof(f->out[0]));
	n = qp_output(&f->qp, f->out, max, f->now_ns);
	check_invariants(f);
	trace_note("packets", n);
	for (uint32_t i = 0; i < n; i++)
		trace_packet(f, &f->out[i]);
}

/* The response to the oldest READ or atomic that was sent, if it is the oldest request. */
static bool respond(struct run *run)
{
	struct fixture *f = run->f;
	const struct requester *r = &f->qp.requester;
	const struct send_wqe *wqe = send_wqe_at(r, r->head);
	uint32_t k = (uint32_t)psn_diff(r->una, wqe->first_psn);
	bool last = k + 1 == wqe->packets;
	struct wire_packet packet;
	uint8_t opcode;

	if (r->head == r->tail || !wr_has_response(wqe->opcode) || psn_equal(r->una, r->sent_end))
		return false;
	opcode = k == 0 ? (last ? OP_READ_RESP_ONLY : OP_READ_RESP_FIRST)
			: (last ? OP_READ_RESP_LAST : OP_READ_RESP_MIDDLE);
	if (wr_is_atomic(wqe->opcode))
		packet = fixture_packet(f, OP_ATOMIC_ACK, r->una.value, 0);
	else
		packet = fixture_packet(f, opcode, r->una.value,
			last ? wqe->length - k * f->qp.path_mtu : f->qp.path_mtu);
	packet.h.atomic_original = f->now_ns;
	fixture_input(f, &packet);
	trace_placements(f);
	return true;
}

static uint8_t any_syndrome(struct run *run)
{
	switch (below(run, 24)) {
	case 0: return AETH_RNR_NAK | 1;
	case 1:
	case 2: return AETH_NAK | NAK_SEQUENCE;
	case 3: return one_in(run, 4) ? AETH_NAK | NAK_REMOTE_ACCESS : AETH_RESERVED;
	default: return AETH_ACK | AETH_CREDITS_NONE;
	}
}

/* An acknowledgement of some packet that is under way, or of none. */
static void acknowledge(struct run *run)
{
	struct fixture *f = run->f;
	const struct requester *r = &f->qp.requester;
	uint32_t under_way = (uint32_t)psn_diff(r->sent_end, r->una);
	uint32_t psn = r->una.value + (uint32_t)below(run, under_way + 1);

	if (one_in(run, 2) && respond(run))
		return;
	if (one_in(run, 16))
		psn = (uint32_t)random_u64(&run->random);
	fixture_ack(f, any_syndrome(run), psn & PSN_MASK);
}

static void pass_time(struct run *run)
{
	struct fixture *f = run->f;
	uint64_t deadline = qp_next_deadline(&f->qp);

	if (deadline != DEADLINE_NONE && one_in(run, 2))
		f->now_ns = f->now_ns > deadline ? f->now_ns : deadline;
	else
		f->now_ns += below(run, 200000);
	qp_on_deadline(&f->qp, f->now_ns);
	check_invariants(f);
}

static void change_region(struct run *run)
{
	struct fixture *f = run->f;
	struct region *region = &regions[below(run, REGIONS)];

	if (region_find(&f->table, region->key) == region) {
		if (one_in(run, 2)) /* registered anew, with its key */
			region->length = F_MEMORY - region->length;
		else
			region_remove(&f->table, region);
		return;
	}
	*region = f->local;
	region->windows = 0;
	ck_assert(region_add(&f->table, region, (uint32_t)random_u64(&run->random)));
}

static void change_state(struct run *run)
{
	struct fixture *f = run->f;
	const struct frl_qp_attr attr = {
		.state = f->qp.state == FRL_QPS_RTS ? FRL_QPS_SQD : FRL_QPS_RTS,
		.en_sqd_async_notify = one_in(run, 2),
	};
	const char *why = NULL;

	if (f->qp.state == FRL_QPS_ERR) {
		if (one_in(run, 2))
			return;
		fixture_move(f, FRL_QPS_RESET);
		fixture_bring_up(f, &run->config);
		return;
	}
	/* From SQD only when it is drained. */
	qp_modify(&f->qp, &attr,
		FRL_QP_STATE | (attr.state == FRL_QPS_SQD ? FRL_QP_EN_SQD_ASYNC_NOTIFY : 0), &why);
	trace_note("refused", why != NULL);
}

static void step(struct run *run, uint32_t number)
{
	struct fixture *f = run->f;
	uint64_t dice = below(run, 64);

	if (dice < 26)
		post(run, number);
	else if (dice < 44)
		output(run);
	else if (dice < 56)
		acknowledge(run);
	else if (dice < 60)
		pass_time(run);
	else if (dice < 63)
		change_region(run);
	if (dice == 63 || (f->qp.state != FRL_QPS_RTS && one_in(run, 4)))
		change_state(run);
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
		.sq_psn = 0xffff80,
		.window = 1 + (uint32_t)below(&run, one_in(&run, 2) ? 200 : 16),
		.slack = one_in(&run, 2) ? 0 : 1 + (uint32_t)below(&run, 96),
		.n_send = 1 + (uint32_t)below(&run, F_QUEUE),
		.n_cq = one_in(&run, 4) ? 8 : F_CQ,
		.max_rd_atomic = (uint8_t)(1 + below(&run, 4)),
		.retry_cnt = (uint8_t)below(&run, 8),
		.rnr_retry = (uint8_t)below(&run, 8),
		.no_timeout = one_in(&run, 4),
		.unlimited_retry = one_in(&run, 2),
		.sq_sig_all = one_in(&run, 8),
	};
	memset(regions, 0, sizeof(regions));
	run.f = fixture_new(&run.config);
	for (uint32_t i = 1; i <= STEPS; i++) {
		trace_step(i);
		step(&run, i);
	}
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

TEST_FILE(fast_send)
