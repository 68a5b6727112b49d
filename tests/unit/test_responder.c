/* SPDX-License-Identifier: BSD-3-Clause */
/* What arriving requests do. */
#include "tests/unit/qp_fixture.h"

#include <string.h>

enum { MTU = 256, BASE = 0xfffffe, ACK = 0x1f, RNR = 0x20 | 14 };

static const uint32_t bases[] = { 0, 0xfffffe, 0xffffff, 0x7ffffe, 0x123456 };

static uint64_t va(const struct fixture *f, uint32_t offset)
{
	return (uintptr_t)f->memory + offset;
}

enum { SEND_STARTED = 1, WRITE_STARTED = 2 };

/* Every opcode of a request against every state: which states accept it; NAK 1 in the others. */
static const struct opcode_row {
	uint8_t opcode;
	bool accepted[3]; /* between messages, inside a SEND, inside a WRITE */
} opcode_rows[] = {
	{ OP_SEND_FIRST, { true, false, false } },
	{ OP_SEND_MIDDLE, { false, true, false } },
	{ OP_SEND_LAST, { false, true, false } },
	{ OP_SEND_LAST_IMM, { false, true, false } },
	{ OP_SEND_ONLY, { true, false, false } },
	{ OP_SEND_ONLY_IMM, { true, false, false } },
	{ OP_WRITE_FIRST, { true, false, false } },
	{ OP_WRITE_MIDDLE, { false, false, true } },
	{ OP_WRITE_LAST, { false, false, true } },
	{ OP_WRITE_LAST_IMM, { false, false, true } },
	{ OP_WRITE_ONLY, { true, false, false } },
	{ OP_WRITE_ONLY_IMM, { true, false, false } },
	{ OP_READ_REQUEST, { false, false, false } },
	{ OP_COMPARE_SWAP, { false, false, false } },
	{ OP_FETCH_ADD, { false, false, false } },
	{ OP_SEND_LAST_INVALIDATE, { false, false, false } },
	{ OP_SEND_ONLY_INVALIDATE, { false, false, false } },
};

START_TEST(every_opcode_in_every_state)
{
	const struct opcode_row *row = &opcode_rows[_i];
	const struct opcode_info *op = &opcode_table[row->opcode];
	bool last = op->flags & OPCODE_LAST;

	for (int state = 0; state < 3; state++) {
		struct fixture *f = fixture_new(
			&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });
		uint32_t psn = BASE + (state != 0);
		bool ends = last && !(op->flags & OPCODE_FIRST);
		uint32_t started = ends ? 2 * MTU : 3 * MTU;
		uint32_t total = last ? MTU : 3 * MTU;

		fixture_recv(f, 1, 0, 8 * MTU);
		fixture_recv(f, 2, 0, 8 * MTU);
		if (state == SEND_STARTED)
			fixture_arrive(f, OP_SEND_FIRST, BASE, MTU);
		if (state == WRITE_STARTED)
			fixture_arrive_write(
				f, OP_WRITE_FIRST, BASE, MTU, va(f, 0), f->local.key, started);
		expect_silence(f);
		fixture_arrive_write(f, row->opcode, psn, MTU, va(f, 0), f->local.key, total);
		if (!row->accepted[state]) {
			expect_refused(f, 0x61, psn, 0);
			expect_wc(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR);
			expect_wc(&f->recv_cq, 2, FRL_WC_WR_FLUSH_ERR);
			continue;
		}
		ck_assert_uint_eq(f->placements.count, 1);
		ck_assert_ptr_eq(f->placements.list[0].dst, f->memory + (state ? MTU : 0));
		ck_assert_ptr_null(f->placements.list[0].action);
		if (last)
			expect_answer(f, ACK, psn, 1);
		else
			expect_silence(f);
		if (last && (op->operation == OPERATION_SEND || (op->headers & HEADER_IMMDT)))
			expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
		expect_no_wc(&f->recv_cq);
	}
}
END_TEST

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
};

START_TEST(lengths)
{
	const struct length_row *row = &length_rows[_i];
	const struct opcode_info *op = &opcode_table[row->opcode];
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });
	uint32_t psn = BASE;

	fixture_recv(f, 1, 100, 4 * MTU);
	if (!(op->flags & OPCODE_FIRST))
		fixture_arrive_write(f,
			op->operation == OPERATION_SEND ? OP_SEND_FIRST : OP_WRITE_FIRST, psn++,
			MTU, va(f, 100), f->local.key, row->total);
	fixture_arrive_write(
		f, row->opcode, psn, row->length, va(f, 100), f->local.key, row->total);
	if (row->answer == 0x61) {
		expect_refused(f, 0x61, psn, 0);
		expect_wc(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR);
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
		bool imm;
	} rows[] = {
		{ OP_SEND_ONLY, FRL_WC_RECV, false },
		{ OP_SEND_ONLY_IMM, FRL_WC_RECV, true },
		{ OP_WRITE_ONLY_IMM, FRL_WC_RECV_RDMA_WITH_IMM, true },
	};
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	struct frl_wc wc;

	for (uint32_t i = 0; i < 3; i++) {
		fixture_recv(f, 10 + i, 0, MTU);
		fixture_arrive_write(f, rows[i].opcode, i, 50 + i, va(f, 0), f->local.key, 50 + i);
		ck_assert(cq_pop(&f->recv_cq, &wc));
		ck_assert_uint_eq(wc.wr_id, 10 + i);
		ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
		ck_assert_int_eq(wc.opcode, rows[i].wc);
		ck_assert_uint_eq(wc.byte_len, 50 + i);
		ck_assert_uint_eq(wc.flags, rows[i].imm ? FRL_WC_WITH_IMM : 0);
		ck_assert_uint_eq(wc.imm_data, rows[i].imm ? 0x11223344 : 0);
		ck_assert_uint_eq(wc.qp_num, F_QPN);
	}
	fixture_arrive_write(f, OP_WRITE_ONLY, 3, 50, va(f, 0), f->local.key, 50);
	expect_no_wc(&f->recv_cq);
}
END_TEST

/* rc_write_mtu1024 seen from the other side: 3849 bytes with immediate. */
START_TEST(long_write_with_immediate)
{
	for (unsigned b = 0; b < 5; b++) {
		uint32_t p = bases[b];
		struct fixture *f = fixture_new(&(struct fixture_config){ .rq_psn = p });
		struct frl_wc wc;

		fixture_arrive_write(f, OP_WRITE_FIRST, p, 1024, va(f, 7), f->local.key, 3849);
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

START_TEST(sequence_errors_are_nakked_once)
{
	for (unsigned b = 0; b < 5; b++) {
		uint32_t p = bases[b];
		struct fixture *f = fixture_new(
			&(struct fixture_config){ .mtu = MTU, .rq_psn = p, .state = FRL_QPS_RTR });

		for (uint32_t i = 0; i < 8; i++)
			fixture_recv(f, i, i * MTU, MTU);
		fixture_arrive(f, OP_SEND_ONLY, p, MTU);
		expect_answer(f, ACK, p, 1);
		for (uint32_t ahead = 2; ahead < 6; ahead++) {
			fixture_arrive(f, OP_SEND_ONLY, p + ahead, MTU);
			ck_assert_uint_eq(f->placements.count, 0);
			if (ahead == 2)
				expect_answer(f, 0x60, p + 1, 1);
			else
				expect_silence(f);
		}
		fixture_arrive(f, OP_SEND_ONLY, p + 1 + 0x7fffff, MTU); /* as far as it goes */
		expect_silence(f);
		ck_assert_uint_eq(f->stats.out_of_sequence, 5);
		ck_assert_uint_eq(f->stats.naks_sent_seq, 1);
		/* A duplicate is acknowledged all the same, and NAKs stay off. */
		fixture_arrive(f, OP_SEND_ONLY, p, MTU);
		expect_answer(f, ACK, p, 1);
		fixture_arrive(f, OP_SEND_ONLY, p + 3, MTU);
		expect_silence(f);
		/* The missing one; then the next gap is a new one. */
		fixture_arrive(f, OP_SEND_ONLY, p + 1, MTU);
		ck_assert_ptr_eq(f->placements.list[0].dst, f->memory + MTU);
		expect_answer(f, ACK, p + 1, 2);
		fixture_arrive(f, OP_SEND_ONLY, p + 3, MTU);
		expect_answer(f, 0x60, p + 2, 2);
		expect_wc(&f->recv_cq, 0, FRL_WC_SUCCESS);
		expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
		expect_no_wc(&f->recv_cq);
	}
}
END_TEST

START_TEST(duplicates_are_acknowledged_again)
{
	for (unsigned b = 0; b < 5; b++) {
		uint32_t p = bases[b];
		struct fixture *f = fixture_new(
			&(struct fixture_config){ .mtu = MTU, .rq_psn = p });
		static const uint8_t any[] = { OP_SEND_FIRST, OP_SEND_MIDDLE, OP_WRITE_ONLY_IMM,
			OP_READ_REQUEST, OP_FETCH_ADD, OP_SEND_ONLY_INVALIDATE };

		fixture_recv(f, 1, 0, 4 * MTU);
		fixture_arrive(f, OP_SEND_FIRST, p, MTU);
		fixture_arrive(f, OP_SEND_MIDDLE, p + 1, MTU);
		expect_silence(f);
		for (unsigned i = 0; i < sizeof(any); i++) {
			fixture_arrive(f, any[i], p + i % 2, 99);
			ck_assert_uint_eq(f->placements.count, 0);
			expect_answer(f, ACK, p + 1, 0);
		}
		fixture_arrive(f, OP_SEND_ONLY, p + 2 - 0x800000, 1);
		expect_answer(f, ACK, p + 1, 0);
		ck_assert_uint_eq(f->stats.duplicates, sizeof(any) + 1);
		fixture_arrive(f, OP_SEND_LAST, p + 2, 5);
		expect_answer(f, ACK, p + 2, 1);
		expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
		fixture_arrive(f, OP_SEND_LAST, p + 2, 5);
		expect_answer(f, ACK, p + 2, 1);
		expect_no_wc(&f->recv_cq);
	}
}
END_TEST

START_TEST(receiver_not_ready)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });

	for (int round = 0; round < 3; round++) { /* each arrival of it is refused */
		fixture_arrive(f, OP_SEND_ONLY, BASE, 10);
		expect_answer(f, RNR, BASE, 0);
		fixture_arrive(f, OP_SEND_ONLY, BASE + 1, 10); /* silence behind it, unlike rxe */
		expect_silence(f);
	}
	ck_assert_uint_eq(f->stats.naks_sent_rnr, 3);
	/* Refused before its length is looked at; a WRITE needs no receive. */
	fixture_arrive(f, OP_SEND_ONLY, BASE, MTU + 1);
	expect_answer(f, RNR, BASE, 0);
	fixture_arrive_write(f, OP_WRITE_ONLY, BASE, 10, va(f, 0), f->local.key, 10);
	expect_answer(f, ACK, BASE, 1);
	fixture_recv(f, 1, 0, 10);
	fixture_arrive(f, OP_SEND_ONLY, BASE + 1, 10);
	expect_answer(f, ACK, BASE + 1, 2);
	expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
	/* A queue pair without receive queue. */
	f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	f->qp.responder.size = 0;
	f->qp.responder.mask = UINT32_MAX;
	f->qp.responder.wqes = NULL;
	fixture_arrive(f, OP_SEND_FIRST, 0, MTU);
	expect_answer(f, RNR, 0, 0);
	fixture_arrive(f, OP_READ_REQUEST, 0, 0);
	expect_answer(f, 0x61, 0, 0);
}
END_TEST

START_TEST(too_long_for_the_receive)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });

	fixture_recv(f, 1, 0, MTU + 10);
	fixture_recv(f, 2, 0, MTU);
	fixture_send_flags(f, 3, 10, 0);
	fixture_arrive(f, OP_SEND_FIRST, 0, MTU);
	ck_assert_uint_eq(f->placements.count, 1);
	fixture_arrive(f, OP_SEND_LAST, 1, 11);
	expect_refused(f, 0x61, 1, 0);
	expect_wc(&f->recv_cq, 1, FRL_WC_LOC_LEN_ERR);
	expect_wc(&f->recv_cq, 2, FRL_WC_WR_FLUSH_ERR);
	expect_wc(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR);
	f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	fixture_recv(f, 1, 0, 10);
	fixture_arrive(f, OP_SEND_ONLY, 0, 10);
	fixture_recv(f, 2, 0, 10);
	fixture_arrive(f, OP_SEND_ONLY, 1, 11);
	/* The NAK stands for the ACK that waited, too. */
	expect_refused(f, 0x61, 1, 1);
	expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
	expect_wc(&f->recv_cq, 2, FRL_WC_LOC_LEN_ERR);
}
END_TEST

/* A later answer says all that earlier ones did. */
START_TEST(answers_coalesce)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });

	for (uint32_t i = 0; i < 5; i++)
		fixture_recv(f, i, 0, 10);
	for (uint32_t i = 0; i < 4; i++)
		fixture_arrive(f, OP_SEND_ONLY, BASE + i, 10);
	expect_answer(f, ACK, BASE + 3, 4);
	fixture_arrive(f, OP_SEND_ONLY, BASE + 4, 10);
	fixture_arrive(f, OP_SEND_ONLY, BASE + 6, 10);
	fixture_arrive(f, OP_SEND_ONLY, BASE + 2, 10); /* does not hide the NAK */
	expect_answer(f, 0x60, BASE + 5, 5);
	fixture_arrive(f, OP_SEND_ONLY, BASE + 5, 10);
	fixture_arrive(f, OP_SEND_ONLY, BASE + 2, 10);
	expect_answer(f, RNR, BASE + 5, 5);
	ck_assert_uint_eq(f->stats.tx_acks, 3);
	/* Before requests of our own. */
	fixture_recv(f, 6, 0, 10);
	fixture_arrive(f, OP_SEND_ONLY, BASE + 5, 10);
	fixture_send(f, 7, FRL_WR_SEND, 10);
	ck_assert_uint_eq(qp_output(&f->qp, f->out, 1, f->now_ns), 1);
	ck_assert_uint_eq(f->out[0].h.bth.opcode, OP_ACKNOWLEDGE);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 0, 10, true);
}
END_TEST

START_TEST(msn_wraps)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });

	f->qp.responder.msn = 0xfffffe;
	for (uint32_t i = 0; i < 4; i++) {
		fixture_arrive_write(f, OP_WRITE_ONLY, BASE + i, 0, 0, 0, 0);
		expect_answer(f, ACK, BASE + i, 0xffffff + i);
	}
}
END_TEST

START_TEST(overrun_takes_all_to_error)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .n_cq = 2 });

	for (uint32_t i = 0; i < 5; i++)
		fixture_recv(f, i, 0, 10);
	fixture_send(f, 9, FRL_WR_SEND, 10);
	for (uint32_t i = 0; i < 3; i++)
		fixture_arrive(f, OP_SEND_ONLY, i, 10);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	/* The third of them, and the two that were to be flushed. */
	ck_assert_uint_eq(f->stats.cq_overruns, 3);
	expect_silence(f);
	expect_wc(&f->send_cq, 9, FRL_WC_WR_FLUSH_ERR);
	expect_wc(&f->recv_cq, 0, FRL_WC_SUCCESS);
	expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
	/* The error of a refused message may be what does not fit. */
	f = fixture_new(&(struct fixture_config){ .mtu = MTU, .n_cq = 1 });
	for (uint32_t i = 0; i < 3; i++)
		fixture_recv(f, i, 0, 10);
	fixture_arrive(f, OP_SEND_ONLY, 0, 10);
	fixture_arrive(f, OP_SEND_ONLY, 1, 11);
	expect_refused(f, 0x61, 1, 1);
}
END_TEST

#define ROWS(table) (int)(sizeof(table) / sizeof((table)[0]))

int main(void)
{
	Suite *suite = suite_create("responder");
	TCase *tc = tcase_create("responder");

	tcase_add_loop_test(tc, every_opcode_in_every_state, 0, ROWS(opcode_rows));
	tcase_add_loop_test(tc, lengths, 0, ROWS(length_rows));
	tcase_add_test(tc, receive_completions);
	tcase_add_test(tc, long_write_with_immediate);
	tcase_add_test(tc, sequence_errors_are_nakked_once);
	tcase_add_test(tc, duplicates_are_acknowledged_again);
	tcase_add_test(tc, receiver_not_ready);
	tcase_add_test(tc, too_long_for_the_receive);
	tcase_add_test(tc, answers_coalesce);
	tcase_add_test(tc, msn_wraps);
	tcase_add_test(tc, overrun_takes_all_to_error);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
