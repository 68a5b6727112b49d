/* SPDX-License-Identifier: BSD-3-Clause */
/* SENDs and WRITEs as they arrive: lengths, and how they complete. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

enum { MTU = 256, BASE = 0xfffffe, ACK = 0x1f, RNR = 0x20 | 14 };

static const uint32_t bases[] = { 0, 0xfffffe, 0xffffff, 0x7ffffe, 0x123456 };

/* C9-92 and following, with and without a receive request. The one before each starts a message. */
static const struct length_row {
	uint8_t opcode;
	uint32_t length;
	uint32_t total; /* DMALen of the message */
	uint8_t answer; /* 0xff: none, since no AckReq */
} length_rows[] = {
	{ OP_SEND_FIRST, MTU, 0, 0xff },
	{ OP_SEND_FIRST, MTU - 1, 0, 0x61 },
	{ OP_SEND_FIRST, MTU + 1, 0, 0x61 },
	{ OP_SEND_FIRST, 0, 0, 0x61 },
	{ OP_SEND_ONLY, 0, 0, ACK },
	{ OP_SEND_ONLY, 1, 0, ACK },
	{ OP_SEND_ONLY, MTU, 0, ACK },
	{ OP_SEND_ONLY, MTU + 1, 0, 0x61 },
	{ OP_SEND_ONLY_IMM, 0, 0, ACK },
	{ OP_SEND_ONLY_IMM, MTU + 1, 0, 0x61 },
	{ OP_SEND_MIDDLE, MTU, 0, 0xff },
	{ OP_SEND_MIDDLE, MTU - 1, 0, 0x61 },
	{ OP_SEND_MIDDLE, MTU + 1, 0, 0x61 },
	{ OP_SEND_LAST, 0, 0, 0x61 },
	{ OP_SEND_LAST, 1, 0, ACK },
	{ OP_SEND_LAST, MTU, 0, ACK },
	{ OP_SEND_LAST, MTU + 1, 0, 0x61 },
	{ OP_SEND_LAST_IMM, 0, 0, 0x61 },
	{ OP_SEND_LAST_IMM, 5, 0, ACK },
	{ OP_WRITE_FIRST, MTU, MTU + 1, 0xff },
	{ OP_WRITE_FIRST, MTU, MTU, 0x61 }, /* nothing would be left for the last */
	{ OP_WRITE_FIRST, MTU, MTU - 1, 0x61 },
	{ OP_WRITE_FIRST, MTU, 0, 0x61 },
	{ OP_WRITE_FIRST, MTU - 1, 3 * MTU, 0x61 },
	{ OP_WRITE_FIRST, MTU, 0x80000001, 0x61 },
	{ OP_WRITE_ONLY, 0, 0, ACK },
	{ OP_WRITE_ONLY, MTU, MTU, ACK },
	{ OP_WRITE_ONLY, MTU, MTU + 1, 0x61 },
	{ OP_WRITE_ONLY, MTU, MTU - 1, 0x61 },
	{ OP_WRITE_ONLY, MTU + 1, MTU + 1, 0x61 },
	{ OP_WRITE_ONLY, 1, 0, 0x61 },
	{ OP_WRITE_ONLY, 0, 1, 0x61 },
	{ OP_WRITE_ONLY_IMM, 0, 0, ACK },
	{ OP_WRITE_ONLY_IMM, 3, 4, 0x61 },
	{ OP_WRITE_MIDDLE, MTU, 3 * MTU, 0xff },
	{ OP_WRITE_MIDDLE, MTU, 2 * MTU, 0x61 },
	{ OP_WRITE_MIDDLE, MTU - 1, 3 * MTU, 0x61 },
	{ OP_WRITE_LAST, MTU, 2 * MTU, ACK },
	{ OP_WRITE_LAST, 1, MTU + 1, ACK },
	{ OP_WRITE_LAST, 0, MTU + 1, 0x61 },
	{ OP_WRITE_LAST, 2, MTU + 1, 0x61 },
	{ OP_WRITE_LAST, 1, MTU + 2, 0x61 },
	{ OP_WRITE_LAST, MTU + 1, 2 * MTU + 1, 0x61 },
	{ OP_WRITE_LAST_IMM, 7, MTU + 7, ACK },
	{ OP_WRITE_LAST_IMM, 6, MTU + 7, 0x61 },
	{ OP_READ_REQUEST, 4, MTU, 0x61 },
	{ OP_READ_REQUEST, 0, 0x80000001, 0x61 },
	{ OP_READ_REQUEST, 0, 0xffffffff, 0x61 },
	{ OP_READ_REQUEST, 0, 0x80000000, 0x61 }, /* 2^23 responses */
	{ OP_CMP_SWAP, 8, 0, 0x61 },
	{ OP_FETCH_ADD, 4, 0, 0x61 },
};

START_LOOP_TEST(lengths, ROWS(length_rows))
{
	const struct length_row *row = &length_rows[_i];
	const struct opcode_info *op = &opcode_table[row->opcode];
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });
	uint32_t psn = BASE;

	fixture_recv(f, 1, 100, 4 * MTU);
	if (!(op->flags & OPCODE_FIRST))
		fixture_arrive_write(f,
			op->operation == OPERATION_SEND ? OP_SEND_FIRST : OP_WRITE_FIRST, psn++,
			MTU, fixture_va(f, 100), f->local.key, row->total);
	fixture_arrive_write(
		f, row->opcode, psn, row->length, fixture_va(f, 100), f->local.key, row->total);
	if (row->answer == 0x61) {
		bool receives = op->operation == OPERATION_SEND || (op->headers & HEADER_IMMDT);

		expect_refused(f, 0x61, psn, 0);
		expect_wc(&f->recv_cq, 1, receives ? FRL_WC_REM_INV_REQ_ERR : FRL_WC_WR_FLUSH_ERR);
	} else {
		ck_assert_uint_eq(f->placements.count, row->length ? 1 : 0);
		if (row->answer == ACK)
			expect_answer(f, ACK, psn, 1);
		else
			expect_silence(f);
	}
}
END_TEST

START_TEST(receive_completions)
{
	static const struct {
		uint8_t opcode;
		enum frl_wc_opcode wc;
		uint32_t flags;
	} rows[] = {
		{ OP_SEND_ONLY, FRL_WC_RECV, 0 },
		{ OP_SEND_ONLY_IMM, FRL_WC_RECV, FRL_WC_WITH_IMM },
		{ OP_WRITE_ONLY_IMM, FRL_WC_RECV_RDMA_WITH_IMM, FRL_WC_WITH_IMM },
		{ OP_SEND_ONLY_INV, FRL_WC_RECV, FRL_WC_WITH_INV },
	};
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	struct frl_wc wc;

	for (uint32_t i = 0; i < 4; i++) {
		struct wire_packet packet = fixture_packet(f, rows[i].opcode, i, 50 + i);
		uint32_t value = packet.h.imm_data;

		if (rows[i].opcode == OP_WRITE_ONLY_IMM)
			packet.h.reth = (struct reth){ fixture_va(f, 0), f->local.key, 50 + i };
		if (rows[i].opcode == OP_SEND_ONLY_INV)
			value = packet.h.invalidate_rkey = fixture_bind_window(f);
		fixture_recv(f, 10 + i, 0, MTU);
		fixture_input(f, &packet);
		ck_assert_int_eq(f->placements.completes, COMPLETES_MESSAGE);
		ck_assert(cq_pop(&f->recv_cq, &wc));
		ck_assert_uint_eq(wc.wr_id, 10 + i);
		ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
		ck_assert_int_eq(wc.opcode, rows[i].wc);
		ck_assert_uint_eq(wc.byte_len, 50 + i);
		ck_assert_uint_eq(wc.flags, rows[i].flags);
		ck_assert_uint_eq(wc.imm_data, rows[i].flags ? value : 0);
		ck_assert_uint_eq(wc.qp_num, F_QPN);
	}
	fixture_arrive_write(f, OP_WRITE_ONLY, 4, 50, fixture_va(f, 0), f->local.key, 50);
	ck_assert_int_eq(f->placements.completes, COMPLETES_NONE);
	expect_no_wc(&f->recv_cq);
}
END_TEST

/* The last packet of a message that completes a receive. */
START_TEST(solicited_events)
{
	static const struct {
		uint8_t opcode;
		bool solicited, wakes;
	} rows[] = {
		{ OP_SEND_ONLY, false, false },
		{ OP_SEND_FIRST, true, false },
		{ OP_SEND_LAST, false, false },
		{ OP_SEND_FIRST, false, false },
		{ OP_SEND_LAST, true, true },
		{ OP_WRITE_ONLY, true, false },
		{ OP_WRITE_ONLY_IMM, true, true },
		{ OP_SEND_ONLY, true, true },
	};
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct wire_packet packet = fixture_packet(f, rows[i].opcode, i, MTU);

		if (packet.op->operation == OPERATION_WRITE)
			packet.h.reth = (struct reth){ fixture_va(f, 0), f->local.key, MTU };
		packet.h.bth.solicited = rows[i].solicited;
		fixture_recv(f, i, 0, 2 * MTU);
		f->recv_cq.armed = CQ_ARMED_SOLICITED;
		fixture_input(f, &packet);
		ck_assert_int_eq(!list_empty(&f->recv_cq.notify), rows[i].wakes);
		list_remove(&f->recv_cq.notify);
	}
}
END_TEST

/* rc_write_mtu1024 seen from the other side: 3849 bytes with immediate. */
START_TEST(long_write_with_immediate)
{
	for (unsigned b = 0; b < 5; b++) {
		uint32_t p = bases[b];
		struct fixture *f = fixture_new(&(struct fixture_config){ .rq_psn = p });
		struct frl_wc wc;

		fixture_arrive_write(
			f, OP_WRITE_FIRST, p, 1024, fixture_va(f, 7), f->local.key, 3849);
		fixture_arrive(f, OP_WRITE_MIDDLE, p + 1, 1024);
		fixture_arrive(f, OP_WRITE_MIDDLE, p + 2, 1024);
		expect_silence(f);
		/* No receive yet: this packet is refused and not placed. */
		fixture_arrive(f, OP_WRITE_LAST_IMM, p + 3, 777);
		ck_assert_uint_eq(f->placements.count, 0);
		expect_answer(f, RNR, p + 3, 0);
		fixture_recv(f, 1, 0, 0);
		fixture_arrive(f, OP_WRITE_LAST_IMM, p + 3, 777);
		ck_assert_uint_eq(f->placements.count, 1);
		ck_assert_ptr_eq(f->placements.list[0].dst, f->memory + 7 + 3072);
		expect_answer(f, ACK, p + 3, 1);
		ck_assert(cq_pop(&f->recv_cq, &wc));
		ck_assert_int_eq(wc.opcode, FRL_WC_RECV_RDMA_WITH_IMM);
		ck_assert_uint_eq(wc.byte_len, 3849);
	}
}
END_TEST

TEST_FILE(message)
