/* SPDX-License-Identifier: BSD-3-Clause */
/* Acknowledgements, and what they do to the window and to requests. */
#include "lib/base/random.h"
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

enum { SENT = 6 }; /* packets before each row: requests 1 and 2 of three packets, acked up to 1 */

static const uint32_t bases[] = { 0, 0xfffffe, 0xfffffb, 0x7ffffd, 0xffffff };

enum event {
	NOTHING,
	WINDOW_MOVES,
	STALE,
	BAD,
	REWINDS,
	WAITS,
	FAILS,
};

/* Packets 0 to 5 are sent, packet 0 is acknowledged: una 1, sent_end 6. */
static const struct answer_row {
	uint8_t syndrome;
	int32_t psn;
	enum event event;
	uint32_t completed; /* with success */
	enum frl_wc_status status;
} rows[] = {
	{ 0x1f, -1, STALE, 0, 0 },
	{ 0x1f, -0x7fffff, STALE, 0, 0 },
	{ 0x1f, 0, STALE, 0, 0 }, /* again: what was acknowledged before */
	{ 0x1f, 1, WINDOW_MOVES, 0, 0 },
	{ 0x1f, 2, WINDOW_MOVES, 1, 0 },
	{ 0x1f, 4, WINDOW_MOVES, 1, 0 },
	{ 0x1f, 5, WINDOW_MOVES, 2, 0 }, /* coalesced: all at once */
	{ 0x1f, 6, STALE, 0, 0 },        /* never sent, though posted */
	{ 0x1f, 9, STALE, 0, 0 },
	{ 0x1f, 0x7fffff, STALE, 0, 0 },
	{ 0x1f, 0x800000, STALE, 0, 0 },
	{ 0x00, 5, WINDOW_MOVES, 2, 0 }, /* any credit code */
	{ 0x1e, 5, WINDOW_MOVES, 2, 0 },
	{ 0x9f, 5, BAD, 0, 0 }, /* reserved bit and type */
	{ 0xe0, 5, BAD, 0, 0 },
	{ 0x40, 5, BAD, 0, 0 },
	{ 0x5f, 5, BAD, 0, 0 },
	{ 0x60, 0, STALE, 0, 0 },
	{ 0x60, 1, REWINDS, 0, 0 },
	{ 0x60, 3, REWINDS, 1, 0 },
	{ 0x60, 5, REWINDS, 1, 0 },
	{ 0x60, 6, STALE, 0, 0 },
	{ 0x20, 0, STALE, 0, 0 },
	{ 0x20, 1, WAITS, 0, 0 },
	{ 0x3f, 3, WAITS, 1, 0 },
	{ 0x3f, 6, STALE, 0, 0 },
	{ 0x61, 1, FAILS, 0, FRL_WC_REM_INV_REQ_ERR },
	{ 0x62, 3, FAILS, 1, FRL_WC_REM_ACCESS_ERR },
	{ 0x63, 2, FAILS, 0, FRL_WC_REM_OP_ERR },
	{ 0x63, 5, FAILS, 1, FRL_WC_REM_OP_ERR },
	{ 0x61, 0, STALE, 0, 0 },
	{ 0x62, 6, STALE, 0, 0 },
	{ 0x64, 5, FAILS, 1, FRL_WC_REM_INV_RD_REQ_ERR },
	{ 0x65, 5, BAD, 0, 0 },
	{ 0x7f, 5, BAD, 0, 0 },
};

static void check_event(struct fixture *f, const struct answer_row *row, uint32_t base)
{
	enum event event = row->event;
	const struct requester *r = &f->qp.requester;
	bool moved = row->completed || (event == WINDOW_MOVES);
	uint32_t acked = event == STALE || event == BAD ? 1
		: event == WINDOW_MOVES                 ? (uint32_t)row->psn + 1
							: (uint32_t)row->psn;

	ck_assert_uint_eq(f->stats.stale_acks, event == STALE);
	ck_assert_uint_eq(f->stats.drop_bad_aeth, event == BAD);
	ck_assert_uint_eq(f->stats.naks_received_seq, event == REWINDS);
	ck_assert_uint_eq(f->stats.naks_received_rnr, event == WAITS);
	ck_assert_uint_eq(f->stats.naks_received_fatal, event == FAILS);
	if (moved)
		ck_assert_uint_ge(f->stats.rx_acks, 2);
	for (uint32_t i = 1; i <= row->completed; i++)
		expect_wc(&f->send_cq, i, FRL_WC_SUCCESS);
	if (event == FAILS) {
		ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
		for (uint32_t i = row->completed + 1; i <= 3; i++)
			expect_wc(&f->send_cq, i,
				i == row->completed + 1 ? row->status : FRL_WC_WR_FLUSH_ERR);
		expect_wc(&f->recv_cq, 9, FRL_WC_WR_FLUSH_ERR);
	} else {
		ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
		ck_assert_uint_eq(r->una.value, (base + acked) & PSN_MASK);
		ck_assert_uint_eq(r->next.value,
			(base + (event == REWINDS || event == WAITS ? acked : SENT)) & PSN_MASK);
		ck_assert_uint_eq(r->sent_end.value, (base + SENT) & PSN_MASK);
	}
	expect_no_wc(&f->send_cq);
	expect_no_wc(&f->recv_cq);
}

START_LOOP_TEST(answers, ROWS(rows))
{
	const struct answer_row *row = &rows[_i];

	for (unsigned b = 0; b < 5; b++) {
		uint32_t base = bases[b];
		struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256,
			.sq_psn = base,
			.window = SENT,
			.retry_cnt = 1,
			.rnr_retry = 1 });

		fixture_recv(f, 9, 0, 10);
		for (uint32_t i = 1; i <= 3; i++)
			fixture_send(f, i, FRL_WR_SEND, 3 * 256);
		ck_assert_uint_eq(fixture_output(f), SENT);
		f->qp.requester.window = SENT; /* packets 6 to 8 stay behind */
		fixture_ack(f, 0x1f, base);
		ck_assert_uint_eq(f->stats.rx_acks, 1);
		fixture_ack(f, row->syndrome, base + (uint32_t)row->psn);
		check_event(f, row, base);
	}
}
END_TEST

/* An answer that is no ACKNOWLEDGE was never asked for. */
START_LOOP_TEST(other_responses, 5)
{
	static const uint8_t opcodes[] = { OP_READ_RESP_FIRST, OP_READ_RESP_MIDDLE,
		OP_READ_RESP_LAST, OP_READ_RESP_ONLY, OP_ATOMIC_ACK };
	struct fixture *f = fixture_new(NULL);

	fixture_send(f, 1, FRL_WR_SEND, 10);
	fixture_output(f);
	fixture_arrive(f, opcodes[_i], 0, 0);
	ck_assert_uint_eq(f->stats.drop_bad_aeth, 1);
	expect_no_wc(&f->send_cq);
	fixture_ack(f, 0x1f, 0);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
}
END_TEST

START_TEST(nothing_sent_nothing_taken)
{
	static const uint8_t syndromes[] = { 0x1f, 0x60, 0x20, 0x61, 0x62, 0x63 };

	for (unsigned i = 0; i < 6; i++) {
		struct fixture *f = fixture_new(NULL);

		fixture_ack(f, syndromes[i], 0);
		fixture_ack(f, syndromes[i], 0xffffff);
		ck_assert_uint_eq(f->stats.stale_acks, 2);
		fixture_send(f, 1, FRL_WR_SEND, 10);
		fixture_ack(f, syndromes[i], 0); /* posted, not sent */
		ck_assert_uint_eq(f->stats.stale_acks, 3);
		expect_no_wc(&f->send_cq);
		ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
		f = fixture_new(&(struct fixture_config){ .state = FRL_QPS_RTR });
		fixture_ack(f, syndromes[i], 0);
		ck_assert_uint_eq(f->stats.stale_acks, 1);
		ck_assert_int_eq(f->qp.state, FRL_QPS_RTR);
	}
}
END_TEST

/* Ten packets in two messages; NAK of packet 2; `resent` packets leave again; then an ACK of packet
 * `ack` comes, which the first round caused. The rest follows where it belongs. */
START_TEST(ack_in_mid_rewind)
{
	for (uint32_t resent = 0; resent <= 8; resent++)
		for (uint32_t ack = 2; ack < 10; ack++) {
			struct fixture *f = fixture_new(&(struct fixture_config){
				.mtu = 256, .sq_psn = 0xfffffa, .retry_cnt = 1 });
			uint32_t from = 2 + resent > ack + 1 ? 2 + resent : ack + 1;

			fixture_send(f, 1, FRL_WR_SEND, 5 * 256);
			fixture_send(f, 2, FRL_WR_RDMA_WRITE, 5 * 256);
			ck_assert_uint_eq(fixture_output(f), 10);
			fixture_ack(f, 0x60, 0xfffffa + 2);
			ck_assert_uint_eq(qp_output(&f->qp, f->out, resent, f->now_ns), resent);
			fixture_ack(f, 0x1f, 0xfffffa + ack);
			ck_assert_uint_eq(fixture_output(f), 10 - from);
			for (uint32_t k = from; k < 10; k++)
				expect_out(f, k - from,
					k == 4           ? OP_SEND_LAST
						: k < 5  ? OP_SEND_MIDDLE
						: k == 5 ? OP_WRITE_FIRST
						: k == 9 ? OP_WRITE_LAST
							 : OP_WRITE_MIDDLE,
					0xfffffa + k, 256, k == 4 || k == 9);
			fixture_ack(f, 0x1f, 0xfffffa + 9);
			expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
			expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
			expect_no_wc(&f->send_cq);
		}
}
END_TEST

START_TEST(unsignaled_complete_in_silence)
{
	struct fixture *f = fixture_new(NULL);

	fixture_send_flags(f, 1, 10, 0);
	fixture_send_flags(f, 2, 10, FRL_SEND_SIGNALED);
	fixture_send_flags(f, 3, 10, 0);
	fixture_output(f);
	fixture_ack(f, 0x1f, 2);
	expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
	expect_no_wc(&f->send_cq);
	ck_assert_uint_eq(f->qp.requester.head, 3);
}
END_TEST

START_TEST(overrun_takes_all_to_error)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .n_cq = 4 });

	for (uint32_t i = 1; i <= 10; i++)
		fixture_send(f, i, FRL_WR_SEND, 10);
	for (uint32_t i = 1; i <= 3; i++)
		fixture_recv(f, i, 0, 10);
	fixture_output(f);
	fixture_ack(f, 0x1f, 8);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	ck_assert(f->send_cq.overrun);
	/* The fifth success and the five that were to be flushed. */
	ck_assert_uint_eq(f->stats.cq_overruns, 6);
	for (uint32_t i = 1; i <= 4; i++)
		expect_wc(&f->send_cq, i, FRL_WC_SUCCESS);
	expect_no_wc(&f->send_cq);
	for (uint32_t i = 1; i <= 3; i++)
		expect_wc(&f->recv_cq, i, FRL_WC_WR_FLUSH_ERR);
	ck_assert_uint_eq(f->stats.rx_acks, 0);
	expect_silence(f);
}
END_TEST

/* A message of nearly 2^23 packets whose last packets are acknowledged together with the next
 * message: both complete, although the ACK is 2^23 ahead of where the first one starts. */
START_TEST(ack_far_ahead_of_a_long_message)
{
	struct fixture *f = fixture_new(&(struct fixture_config){
		.mtu = 256, .sq_psn = 0xfffff0, .window = 500, .no_timeout = true });
	const uint32_t packets = (1 << 23) - 2;
	struct frl_sge sge = { f->huge.addr, packets * 256, f->huge.key };
	struct frl_send_wr wr = { .wr_id = 1,
		.opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1 };
	uint32_t sent = 0;

	fixture_post(f, &wr, NULL);
	while (sent < packets) {
		uint32_t n = qp_output(&f->qp, f->out, F_OUT, f->now_ns);

		ck_assert_uint_gt(n, 0);
		sent += n;
		/* The last ten stay unacknowledged. */
		fixture_ack(f, 0x1f, 0xfffff0 + (sent < packets ? sent : packets - 10) - 1);
	}
	expect_no_wc(&f->send_cq);
	sge.length = 3 * 256;
	wr.wr_id = 2;
	if (fixture_try_post(f, &wr, NULL)) /* there is no room for it yet: fine */
		fixture_ack(f, 0x1f, 0xfffff0 + packets - 1);
	else {
		fixture_output(f);
		fixture_ack(f, 0x1f, 0xfffff0 + packets + 2);
		expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
		expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
		return;
	}
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	fixture_post(f, &wr, NULL);
	ck_assert_uint_eq(fixture_output(f), 3);
	fixture_ack(f, 0x1f, 0xfffff0 + packets + 2);
	expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
}
END_TEST

static void post_any(struct fixture *f, struct random_state *random, uint64_t wr_id)
{
	static const enum frl_wr_opcode opcodes[] = { FRL_WR_SEND, FRL_WR_RDMA_WRITE,
		FRL_WR_SEND_WITH_INV, FRL_WR_RDMA_READ, FRL_WR_ATOMIC_CMP_AND_SWP };
	enum frl_wr_opcode opcode = opcodes[random_below(random, 5)];
	uint32_t length = wr_is_atomic((uint8_t)opcode) ? 8 : (uint32_t)random_below(random, 1500);
	struct frl_sge sge = { f->memory, length, f->local.key };

	fixture_post(f,
		&(struct frl_send_wr){ .wr_id = wr_id,
			.opcode = opcode,
			.flags = FRL_SEND_SIGNALED | (random_below(random, 8) ? 0 : FRL_SEND_FENCE),
			.sge = &sge,
			.n_sge = 1 },
		NULL);
}

/* Mostly of a PSN that was sent, and half of the time one that fits. */
static void answer_any(struct fixture *f, struct random_state *random)
{
	static const uint8_t opcodes[] = { OP_ACKNOWLEDGE, OP_ACKNOWLEDGE, OP_READ_RESP_FIRST,
		OP_READ_RESP_MIDDLE, OP_READ_RESP_LAST, OP_READ_RESP_ONLY, OP_ATOMIC_ACK };
	static const uint8_t syndromes[] = { 0x1f, 0x1f, 0x1f, 0x1f, 0x1f, 0x60, 0x60, 0x2e, 0x40 };
	const struct requester *r = &f->qp.requester;
	const struct send_wqe *wqe = send_wqe_at(r, r->head);
	uint32_t window = (uint32_t)psn_diff(r->sent_end, r->una);
	struct psn psn = psn_add(r->una, (uint32_t)random_below(random, window + 3) - 1);
	uint8_t opcode = opcodes[random_below(random, 7)];
	struct wire_packet packet;
	uint32_t length = 0;

	if (random_below(random, 2) && r->head != r->tail && wr_has_response(wqe->opcode)) {
		uint32_t k = (uint32_t)psn_diff(r->una, wqe->first_psn);
		bool last = k + 1 == wqe->packets;

		psn = r->una;
		length = last ? wqe->length - k * f->qp.path_mtu : f->qp.path_mtu;
		opcode = last ? OP_READ_RESP_LAST : OP_READ_RESP_FIRST;
		if (wr_is_atomic(wqe->opcode)) {
			opcode = OP_ATOMIC_ACK;
			length = 0;
		}
	} else if (opcode != OP_ACKNOWLEDGE && psn_equal(psn, r->una) && random_below(random, 50)) {
		psn = psn_next(psn); /* which does not fail the queue pair */
	}
	packet = fixture_packet(f, opcode, psn.value, length);
	packet.h.aeth.syndrome = syndromes[random_below(random, 9)];
	fixture_input(f, &packet);
}

/* A peer that answers what it likes: requests come back once each and in order all the same. */
START_LOOP_TEST(made_up_answers, 200)
{
	struct random_state random;
	uint64_t posted = 0, completed = 0;
	struct fixture *f;
	struct frl_wc wc;

	random_seed(&random, (uint64_t)_i);
	f = fixture_new(&(struct fixture_config){ .mtu = 256,
		.sq_psn = PSN_MASK - (uint32_t)random_below(&random, 200),
		.window = 1 + (uint32_t)random_below(&random, 20),
		.retry_cnt = 7,
		.rnr_retry = 7,
		.unlimited_retry = _i & 1 });
	for (int step = 0; step < 500; step++) {
		switch (random_below(&random, 6)) {
		case 0:
			if (posted - completed < F_QUEUE)
				post_any(f, &random, posted++);
			break;
		case 1:
			qp_output(&f->qp, f->out, (uint32_t)random_below(&random, 5), f->now_ns);
			check_invariants(f);
			break;
		case 2:
			if (qp_next_deadline(&f->qp) != DEADLINE_NONE && !random_below(&random, 4))
				fixture_deadline(f);
			break;
		default: answer_any(f, &random); break;
		}
		while (cq_pop(&f->send_cq, &wc))
			ck_assert_uint_eq(wc.wr_id, completed++);
	}
	qp_fail(&f->qp, FRL_WC_GENERAL_ERR);
	while (cq_pop(&f->send_cq, &wc))
		ck_assert_uint_eq(wc.wr_id, completed++);
	ck_assert_uint_eq(posted, completed);
}
END_TEST

TEST_FILE(completer)
