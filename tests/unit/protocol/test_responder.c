/* SPDX-License-Identifier: BSD-3-Clause */
/* Arriving requests. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <string.h>

enum { MTU = 256, BASE = 0xfffffe, ACK = 0x1f, RNR = 0x20 | 14 };

static const uint32_t bases[] = { 0, 0xfffffe, 0xffffff, 0x7ffffe, 0x123456 };

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
	{ OP_READ_REQUEST, { true, false, false } },
	{ OP_CMP_SWAP, { true, false, false } },
	{ OP_FETCH_ADD, { true, false, false } },
	{ OP_SEND_LAST_INV, { false, true, false } },
	{ OP_SEND_ONLY_INV, { true, false, false } },
};

/* The effect of the row's packet where it is accepted. */
static void check_accepted(struct fixture *f, const struct opcode_row *row, int state, uint32_t psn)
{
	const struct opcode_info *op = &opcode_table[row->opcode];
	bool last = op->flags & OPCODE_LAST;

	if (op->flags & OPCODE_NO_PAYLOAD) {
		ck_assert_uint_eq(f->placements.count, 0);
		ck_assert_int_eq(
			f->placements.atomic.addr != NULL, op->operation == OPERATION_ATOMIC);
		ck_assert_uint_eq(fixture_output(f), 1);
		expect_out(f, 0,
			op->operation == OPERATION_READ ? OP_READ_RESP_ONLY : OP_ATOMIC_ACK, psn,
			op->operation == OPERATION_READ ? MTU : 0, false);
		ck_assert_uint_eq(f->out[0].h.aeth.msn, 1);
		return;
	}
	ck_assert_ptr_null(f->placements.atomic.addr);
	ck_assert_uint_eq(f->placements.count, 1);
	ck_assert_ptr_eq(f->placements.list[0].dst, f->memory + (state ? MTU : 0));
	ck_assert_ptr_null(f->placements.list[0].action);
	if (last)
		expect_answer(f, ACK, psn, 1);
	else
		expect_silence(f);
	if (last && (op->operation == OPERATION_SEND || (op->headers & HEADER_IMMDT)))
		expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
}

START_LOOP_TEST(every_opcode_in_every_state, ROWS(opcode_rows))
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
		struct wire_packet packet = fixture_packet(
			f, row->opcode, psn, op->flags & OPCODE_NO_PAYLOAD ? 0 : MTU);

		if (op->headers & (HEADER_RETH | HEADER_ATOMICETH))
			packet.h.reth = (struct reth){ fixture_va(f, 0), f->local.key,
				last ? MTU : 3 * MTU };
		if (op->headers & HEADER_IETH)
			packet.h.invalidate_rkey = fixture_bind_window(f);
		fixture_recv(f, 1, 0, 8 * MTU);
		fixture_recv(f, 2, 0, 8 * MTU);
		if (state == SEND_STARTED)
			fixture_arrive(f, OP_SEND_FIRST, BASE, MTU);
		if (state == WRITE_STARTED)
			fixture_arrive_write(f, OP_WRITE_FIRST, BASE, MTU, fixture_va(f, 0),
				f->local.key, started);
		expect_silence(f);
		fixture_input(f, &packet);
		if (row->accepted[state]) {
			check_accepted(f, row, state, psn);
			expect_no_wc(&f->recv_cq);
			expect_no_event(&f->qp.events);
			continue;
		}
		expect_refused(f, 0x61, psn, 0);
		/* 9.9.3, class C: the receive request that was in use tells, or an event. */
		if (state == SEND_STARTED)
			expect_wc(&f->recv_cq, 1, FRL_WC_REM_INV_REQ_ERR);
		else {
			expect_wc(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR);
			expect_event(&f->qp.events, FRL_EVENT_QP_REQ_ERR);
		}
		expect_wc(&f->recv_cq, 2, FRL_WC_WR_FLUSH_ERR);
		expect_no_event(&f->qp.events);
	}
}
END_TEST

START_TEST(send_with_invalidate)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	uint32_t key = fixture_bind_window(f);
	struct wire_packet packet;

	for (uint32_t i = 1; i < 4; i++)
		fixture_recv(f, i, 0, 4 * MTU);
	fixture_arrive_write(f, OP_WRITE_ONLY, 0, MTU, fixture_va(f, 0), key, MTU);
	expect_answer(f, ACK, 0, 1);
	fixture_arrive(f, OP_SEND_FIRST, 1, MTU);
	ck_assert_ptr_nonnull(f->window.parent); /* not yet */
	packet = fixture_packet(f, OP_SEND_LAST_INV, 2, 5);
	packet.h.invalidate_rkey = key;
	fixture_input(f, &packet);
	ck_assert_ptr_null(f->window.parent);
	ck_assert_uint_eq(f->placements.count, 1);
	expect_answer(f, ACK, 2, 2);
	expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
	/* Again is a duplicate, and nothing happens. */
	fixture_input(f, &packet);
	expect_answer(f, ACK, 2, 2);
	expect_no_wc(&f->recv_cq);
	/* A window that is not bound, a region, and no key at all: class J. */
	for (int i = 0; i < 3; i++) {
		if (i) {
			f = fixture_new(&(struct fixture_config){ .mtu = MTU });
			fixture_recv(f, 2, 0, MTU);
			fixture_recv(f, 3, 0, MTU);
		}
		packet = fixture_packet(f, OP_SEND_ONLY_INV, i ? 0 : 3, 5);
		packet.h.invalidate_rkey = i == 0 ? key : i == 1 ? f->local.key : 0;
		fixture_input(f, &packet);
		expect_refused(f, 0x62, i ? 0 : 3, i ? 0 : 2);
		expect_wc(&f->recv_cq, 2, FRL_WC_REM_INV_REQ_ERR);
		expect_wc(&f->recv_cq, 3, FRL_WC_WR_FLUSH_ERR);
		expect_no_event(&f->qp.events);
	}
}
END_TEST

/* Another queue pair's window: its key is not valid here. */
START_LOOP_TEST(window_of_another_queue_pair, 2)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	struct wire_packet packet = fixture_packet(f, OP_SEND_ONLY_INV, 0, 5);

	packet.h.invalidate_rkey = fixture_bind_window(f);
	f->window.qp = &packet;
	fixture_recv(f, 1, 0, MTU);
	if (_i) {
		fixture_arrive_write(
			f, OP_WRITE_ONLY, 0, 4, fixture_va(f, 0), packet.h.invalidate_rkey, 4);
		expect_event(&f->qp.events, FRL_EVENT_QP_ACCESS_ERR);
	} else
		fixture_input(f, &packet);
	expect_refused(f, 0x62, 0, 0);
	ck_assert_ptr_nonnull(f->window.parent);
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
			OP_SEND_ONLY_INV };

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
	fixture_arrive_write(f, OP_WRITE_ONLY, BASE, 10, fixture_va(f, 0), f->local.key, 10);
	expect_answer(f, ACK, BASE, 1);
	fixture_recv(f, 1, 0, 10);
	fixture_arrive(f, OP_SEND_ONLY, BASE + 1, 10);
	expect_answer(f, ACK, BASE + 1, 2);
	expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
	/* A queue pair without receive queue. */
	f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	recv_queue_init(&f->qp.responder.queue, NULL, 0, 4, NULL, NULL);
	fixture_arrive(f, OP_SEND_FIRST, 0, MTU);
	expect_answer(f, RNR, 0, 0);
	fixture_arrive(f, OP_SEND_MIDDLE, 0, MTU);
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
	struct wire_packet packet;

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
	/* A NAK that was not sent yet is taken back by what it refused, asked for or not. */
	fixture_arrive(f, OP_SEND_ONLY, BASE + 5, 10);
	packet = fixture_packet(f, OP_WRITE_ONLY, BASE + 5, 0);
	packet.h.reth = (struct reth){ 0 };
	packet.h.bth.ack_request = false;
	fixture_input(f, &packet);
	expect_answer(f, ACK, BASE + 5, 6);
	/* Before requests of our own. */
	fixture_recv(f, 6, 0, 10);
	fixture_arrive(f, OP_SEND_ONLY, BASE + 6, 10);
	fixture_send(f, 7, FRL_WR_SEND, 10);
	ck_assert_uint_eq(qp_output(&f->qp, f->out, 1, f->now_ns), 1);
	ck_assert_uint_eq(f->out[0].h.bth.opcode, OP_ACKNOWLEDGE);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 0, 10, true);
}
END_TEST

/* Peers stop when too many packets are not acknowledged, also those that do not ask. */
START_TEST(every_64_packets_at_least)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });
	struct wire_packet packet;
	uint32_t psn = BASE;

	fixture_arrive_write(
		f, OP_WRITE_FIRST, psn++, MTU, fixture_va(f, 0), f->local.key, 200 * MTU);
	for (uint32_t i = 2; i < 200; i++) {
		fixture_arrive(f, OP_WRITE_MIDDLE, psn, MTU);
		if (i % 64 == 0)
			expect_answer(f, ACK, psn, 0);
		else
			expect_silence(f);
		psn++;
	}
	fixture_arrive(f, OP_WRITE_LAST, psn, MTU);
	expect_answer(f, ACK, psn++, 1);
	/* The count starts again with any answer; short messages count as well. */
	for (uint32_t i = 1; i <= 128; i++) {
		packet = fixture_packet(f, OP_WRITE_ONLY, psn, 0);
		packet.h.reth = (struct reth){ 0 };
		packet.h.bth.ack_request = i == 30;
		fixture_input(f, &packet);
		if (i == 30 || i == 94)
			expect_answer(f, ACK, psn, 1 + i);
		else
			expect_silence(f);
		psn++;
	}
}
END_TEST

/* Section by section of what Linux was seen to do, in PSNs from BASE on, with an MTU of 1024. */
static const struct step {
	uint8_t opcode;
	uint32_t psn, length, total; /* total: of a WRITE */
	uint8_t answer;              /* NONE: silence */
	uint32_t answer_psn, msn;
} sequences[][8] = {
#define NONE 0xff
	/* SEND of 3849 bytes, of 2048, of none. */
	{ { OP_SEND_FIRST, 0, 1024, 0, NONE, 0, 0 }, { OP_SEND_MIDDLE, 1, 1024, 0, NONE, 0, 0 },
		{ OP_SEND_MIDDLE, 2, 1024, 0, NONE, 0, 0 }, { OP_SEND_LAST, 3, 777, 0, ACK, 3, 1 },
		{ OP_SEND_FIRST, 4, 1024, 0, NONE, 0, 0 }, { OP_SEND_LAST, 5, 1024, 0, ACK, 5, 2 },
		{ OP_SEND_ONLY, 6, 0, 0, ACK, 6, 3 } },
	/* A burst that lost its second packet: one NAK, and all over from there. */
	{ { OP_SEND_ONLY, 0, 9, 0, ACK, 0, 1 }, { OP_SEND_ONLY, 2, 9, 0, 0x60, 1, 1 },
		{ OP_SEND_ONLY, 3, 9, 0, NONE, 0, 0 }, { OP_SEND_ONLY, 4, 9, 0, NONE, 0, 0 },
		{ OP_SEND_ONLY, 1, 9, 0, ACK, 1, 2 }, { OP_SEND_ONLY, 2, 9, 0, ACK, 2, 3 },
		{ OP_SEND_ONLY, 3, 9, 0, ACK, 3, 4 }, { OP_SEND_ONLY, 4, 9, 0, ACK, 4, 5 } },
	/* The same, out of order: what is there already is a duplicate when it is sent again. */
	{ { OP_SEND_ONLY, 1, 9, 0, 0x60, 0, 0 }, { OP_SEND_ONLY, 0, 9, 0, ACK, 0, 1 },
		{ OP_SEND_ONLY, 0, 9, 0, ACK, 0, 1 }, { OP_SEND_ONLY, 1, 9, 0, ACK, 1, 2 } },
	/* peer_resp_basic */
	{ { OP_SEND_ONLY, 0, 5, 0, ACK, 0, 1 }, { OP_SEND_ONLY, 0, 5, 0, ACK, 0, 1 },
		{ OP_SEND_ONLY, 3, 5, 0, 0x60, 1, 1 }, { OP_SEND_ONLY, 4, 5, 0, NONE, 0, 0 },
		{ OP_SEND_ONLY, 1, 5, 0, ACK, 1, 2 } },
	/* peer_resp_lengths: nothing of what Linux 6.1 takes there is right */
	{ { OP_SEND_ONLY, 0, 2048, 0, 0x61, 0, 0 } },
	{ { OP_SEND_FIRST, 0, 512, 0, 0x61, 0, 0 } },
	{ { OP_SEND_FIRST, 0, 1024, 0, NONE, 0, 0 }, { OP_SEND_LAST, 1, 0, 0, 0x61, 1, 0 } },
	/* peer_resp_write_short, peer_resp_middle_first */
	{ { OP_WRITE_FIRST, 0, 100, 2048, 0x61, 0, 0 } },
	{ { OP_SEND_MIDDLE, 0, 1024, 0, 0x61, 0, 0 } },
};

START_LOOP_TEST(scripted_sequences, ROWS(sequences))
{
	for (unsigned b = 0; b < 5; b++) {
		struct fixture *f = fixture_new(&(struct fixture_config){ .rq_psn = bases[b] });
		const struct step *step = sequences[_i];

		for (uint32_t i = 0; i < 8; i++)
			fixture_recv(f, i, 0, 4096);
		for (; step < sequences[_i] + 8 && (step == sequences[_i] || step->answer);
			step++) {
			fixture_arrive_write(f, step->opcode, bases[b] + step->psn, step->length,
				fixture_va(f, 0), f->local.key, step->total);
			if (step->answer == NONE)
				expect_silence(f);
			else
				expect_answer(
					f, step->answer, bases[b] + step->answer_psn, step->msn);
		}
	}
}
END_TEST

/* peer_resp_noackreq */
START_TEST(no_answer_unless_asked)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });

	for (uint32_t i = 0; i < 3; i++) {
		struct wire_packet packet = fixture_packet(f, OP_SEND_ONLY, BASE + i, 10);

		packet.h.bth.ack_request = i == 2;
		fixture_recv(f, i, 0, 10);
		fixture_input(f, &packet);
		if (i < 2)
			expect_silence(f);
	}
	expect_answer(f, ACK, BASE + 2, 3);
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

TEST_FILE(responder)
