/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plain requests (struct send_wqe) go a way of their own through posting and sending. With an empty
 * element behind the other one, which is left out, the same requests are not plain: whatever
 * happens to them, the same packets and completions must come of both.
 */
#include "tests/unit/program.h"
#include "tests/unit/qp_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"

enum { MTU = 256, STEPS = 600, SEEDS = 40, MAX_RECORDS = 64 * STEPS };

/* The visible part of a packet, or of a completion. */
struct record {
	struct bth bth;
	struct reth reth;
	uint32_t imm_data;
	uint32_t payload_len;
	uint64_t keep;
	uint64_t offset; /* of its payload; of a completion: wr_id */
};

static struct record records[2][MAX_RECORDS];
static uint32_t n_records[2];

static struct record *add(bool plain)
{
	ck_assert_uint_lt(n_records[plain], MAX_RECORDS);
	memset(&records[plain][n_records[plain]], 0, sizeof(struct record));
	return &records[plain][n_records[plain]++];
}

static void note_packet(const struct fixture *f, bool plain, const struct packet_out *out)
{
	struct record *record = add(plain);
	uint8_t headers = opcode_table[out->h.bth.opcode].headers;

	record->bth = out->h.bth;
	if (headers & HEADER_RETH)
		record->reth = out->h.reth;
	if (headers & (HEADER_IMMDT | HEADER_IETH))
		record->imm_data = out->h.imm_data;
	record->payload_len = out->payload_len;
	record->keep = out->keep;
	ck_assert(!out->response && !out->target);
	ck_assert_uint_eq(out->n_pieces, 1);
	ck_assert_uint_eq(out->pieces[0].length, out->payload_len);
	ck_assert_ptr_eq(out->pieces[0].region, &f->local);
	record->offset = (uint64_t)(out->pieces[0].addr - f->memory);
}

static void post(struct fixture *f, bool plain, struct random_state *random, uint64_t wr_id)
{
	static const enum frl_wr_opcode opcodes[] = { FRL_WR_RDMA_WRITE, FRL_WR_RDMA_WRITE,
		FRL_WR_RDMA_WRITE_WITH_IMM, FRL_WR_SEND, FRL_WR_SEND_WITH_IMM,
		FRL_WR_SEND_WITH_INV };
	uint64_t r = random_u64(random);
	uint32_t length = 1 + (uint32_t)random_below(random, r & 1 ? MTU : 40 * MTU);
	struct frl_sge sges[2] = { { f->memory + (r >> 8 & 0xff), length, f->local.key } };
	struct frl_send_wr wr = {
		.wr_id = wr_id,
		.opcode = opcodes[(r >> 16) % 6],
		.flags = (r >> 32 & 1 ? FRL_SEND_SIGNALED : 0) |
			(r >> 33 & 1 ? FRL_SEND_SOLICITED : 0),
		.sge = sges,
		.n_sge = plain ? 1 : 2,
		.imm_data = (uint32_t)wr_id,
		.remote_addr = r,
		.rkey = (uint32_t)(r >> 20),
		.keep = r >> 60,
	};

	fixture_try_post(f, &wr, NULL); /* the queue may be full */
}

/* An acknowledgement or a NAK of some packet that is under way. */
static void answer(struct fixture *f, struct random_state *random)
{
	const struct requester *r = &f->qp.requester;
	uint32_t under_way = (uint32_t)psn_diff(r->sent_end, r->una);
	uint32_t psn;

	if (under_way == 0)
		return;
	psn = r->una.value + (uint32_t)random_below(random, under_way);
	fixture_ack(f, random_below(random, 8) ? 0x1f : 0x60, psn & PSN_MASK);
}

static void run(bool plain, uint64_t seed)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU,
		.sq_psn = 0xffff80,
		.window = 1 + (uint32_t)seed % 67,
		.unlimited_retry = true });
	struct random_state random;
	struct frl_wc wc;

	random_seed(&random, seed);
	n_records[plain] = 0;
	for (uint64_t step = 1; step <= STEPS; step++) {
		uint64_t dice = random_below(&random, 8);
		uint32_t n = 0;

		if (dice < 3)
			post(f, plain, &random, step);
		else if (dice < 6)
			n = qp_output(
				&f->qp, f->out, 1 + (uint32_t)random_below(&random, 48), f->now_ns);
		else
			answer(f, &random);
		for (uint32_t i = 0; i < n; i++)
			note_packet(f, plain, &f->out[i]);
		while (cq_pop(&f->send_cq, &wc)) {
			ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
			add(plain)->offset = wc.wr_id;
		}
	}
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
}

START_LOOP_TEST(same_packets, SEEDS)
{
	run(false, (uint64_t)_i);
	run(true, (uint64_t)_i);
	ck_assert_uint_eq(n_records[false], n_records[true]);
	ck_assert_uint_gt(n_records[true], STEPS / 8);
	for (uint32_t i = 0; i < n_records[true]; i++)
		ck_assert_msg(
			memcmp(&records[false][i], &records[true][i], sizeof(struct record)) == 0,
			"record %u", i);
}
END_TEST

TEST_FILE(plain)
