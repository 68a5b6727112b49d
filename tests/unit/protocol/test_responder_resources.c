/* SPDX-License-Identifier: BSD-3-Clause */
/* READs and atomics that arrive, and their responses. For repeated READs see
 * test_responder_resources_repeats.c. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/resource_fixture.h"

#include <string.h>

START_TEST(sizes)
{
	static const uint32_t lengths[] = { 0, 1, 3, MTU - 1, MTU, MTU + 1, 2 * MTU, 3 * MTU + 77 };

	for (unsigned b = 0; b < ROWS(bases); b++) {
		struct fixture *f = fixture_at(bases[b]);
		uint32_t psn = bases[b];

		for (uint32_t i = 0; i < ROWS(lengths); i++) {
			uint32_t n = packets_for(lengths[i], MTU);

			arrive_read(f, psn, 100, lengths[i]);
			ck_assert_uint_eq(fixture_output(f), n);
			expect_read_response(f, 0, psn, 100, lengths[i]);
			ck_assert_uint_eq(f->out[0].h.aeth.msn, i + 1);
			psn += n;
			expect_silence(f);
		}
		arrive_write(f, psn, 0, f->local.key);
		expect_answer(f, ACK, psn, ROWS(lengths) + 1);
		ck_assert_uint_eq(f->stats.reads_served, ROWS(lengths));
	}
}
END_TEST

/* rc_read_mtu1024: several at once, up to the limit, counted when they come; the answers when the
 * port has room, one packet at a time. */
START_TEST(several_at_once)
{
	struct fixture *f = fixture_at(BASE);
	struct packet_out out[12];
	uint32_t n = 0;

	for (uint32_t i = 0; i < DEFAULTS; i++)
		arrive_read(f, BASE + 3 * i, 1000 * i, 2 * MTU + 9);
	while (qp_wants_output(&f->qp)) {
		ck_assert_uint_lt(n, 12);
		ck_assert_uint_eq(qp_output(&f->qp, &out[n++], 1, f->now_ns), 1);
		/* As soon as the first is answered, another may come; it waits its turn. */
		if (n == 3)
			arrive_read(f, BASE + 12, 0, 1);
		if (n == 12)
			break;
	}
	memcpy(f->out, out, sizeof(out));
	f->n_out = 12;
	for (uint32_t i = 0; i < DEFAULTS; i++) {
		expect_read_response(f, 3 * i, BASE + 3 * i, 1000 * i, 2 * MTU + 9);
		ck_assert_uint_eq(f->out[3 * i].h.aeth.msn, i + 1);
	}
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_read_response(f, 0, BASE + 12, 0, 1);
}
END_TEST

/* One more than max_dest_rd_atomic: NAK 1, after the answers to the others. */
START_LOOP_TEST(more_than_allowed, 2)
{
	struct fixture *f = fixture_at(BASE);

	for (uint32_t i = 0; i < 3; i++)
		arrive_read(f, BASE + 2 * i, 0, MTU + 1);
	arrive_add(f, BASE + 6, 64, 1);
	if (_i)
		arrive_read(f, BASE + 7, 0, 1);
	else
		arrive_add(f, BASE + 7, 64, 1);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_event(&f->qp.events, FRL_EVENT_QP_REQ_ERR);
	for (uint32_t i = 0; i < 100; i++) /* a flood is dropped */
		arrive_read(f, BASE + 7 + i, 0, 2000);
	ck_assert_uint_eq(f->stats.naks_sent_fatal, 1);
	ck_assert_uint_eq(fixture_output(f), 8);
	for (uint32_t i = 0; i < 3; i++)
		expect_read_response(f, 2 * i, BASE + 2 * i, 0, MTU + 1);
	expect_out(f, 6, OP_ATOMIC_ACK, BASE + 6, 0, false);
	expect_ack(f, 7, BASE + 7, 0x61, 4);
	expect_silence(f);
}
END_TEST

START_LOOP_TEST(none_allowed, 2)
{
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .mtu = MTU, .no_rd_atomic = true });

	if (_i)
		arrive_read(f, 0, 0, 0);
	else
		arrive_add(f, 0, 0, 1);
	ck_assert_ptr_null(f->placements.atomic.addr);
	expect_refused(f, 0x61, 0, 0);
}
END_TEST

/* Answers leave in PSN order: an acknowledgement waits for the responses before it. */
START_TEST(order_of_answers)
{
	struct fixture *f = fixture_at(BASE);

	arrive_write(f, BASE, 0, f->local.key);
	arrive_read(f, BASE + 1, 0, 2 * MTU);
	arrive_write(f, BASE + 3, 0, f->local.key);
	arrive_add(f, BASE + 4, 64, 1);
	arrive_write(f, BASE + 5, 0, f->local.key);
	ck_assert_uint_eq(fixture_output(f), 4);
	expect_read_response(f, 0, BASE + 1, 0, 2 * MTU); /* acknowledges the WRITE, too */
	expect_out(f, 2, OP_ATOMIC_ACK, BASE + 4, 0, false);
	expect_ack(f, 3, BASE + 5, ACK, 5);
	expect_silence(f);
	/* A sequence NAK, and one for a missing receive, wait likewise, */
	arrive_read(f, BASE + 6, 0, 2 * MTU);
	arrive_write(f, BASE + 9, 0, f->local.key);
	ck_assert_uint_eq(fixture_output(f), 3);
	expect_ack(f, 2, BASE + 8, 0x60, 6);
	arrive_read(f, BASE + 8, 0, 1);
	fixture_arrive(f, OP_SEND_ONLY, BASE + 9, 1);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_ack(f, 1, BASE + 9, RNR, 7);
	/* and are taken back when what they refuse is accepted. */
	fixture_arrive(f, OP_SEND_ONLY, BASE + 9, 1);
	arrive_read(f, BASE + 9, 0, 1);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_read_response(f, 0, BASE + 9, 0, 1);
}
END_TEST

/* The answer to a READ acknowledges what was before it: the count of 64 starts again. */
START_TEST(reads_acknowledge)
{
	struct fixture *f = fixture_at(BASE);
	uint32_t psn = BASE;

	for (int i = 0; i < 126; i++) {
		struct wire_packet packet = fixture_packet(f, OP_WRITE_ONLY, psn++, 0);

		packet.h.reth = (struct reth){ 0 };
		packet.h.bth.ack_request = false;
		fixture_input(f, &packet);
		expect_silence(f);
		if (i == 62) {
			arrive_read(f, psn++, 0, 1);
			ck_assert_uint_eq(fixture_output(f), 1);
		}
	}
}
END_TEST

START_TEST(atomics_once)
{
	for (unsigned b = 0; b < ROWS(bases); b++) {
		uint32_t p = bases[b];
		struct fixture *f = fixture_at(p);
		const uint64_t value = memory_word(f, 64);

		arrive_add(f, p, 64, 5);
		ck_assert_uint_eq(memory_word(f, 64), value + 5);
		ck_assert_uint_eq(fixture_output(f), 1);
		expect_atomic_ack(f, 0, p, value);
		ck_assert_uint_eq(f->out[0].h.aeth.msn, 1);
		/* Equal: swapped; different: not. */
		for (uint32_t i = 1; i < 3; i++) {
			arrive_atomic(f, OP_CMP_SWAP, p + i, fixture_va(f, 64), 7, value + 5,
				f->local.key);
			fixture_place(f);
			ck_assert_uint_eq(memory_word(f, 64), 7);
		}
		ck_assert_uint_eq(fixture_output(f), 2);
		expect_atomic_ack(f, 0, p + 1, value + 5);
		expect_atomic_ack(f, 1, p + 2, 7);
		/* As often as they are repeated: nothing changes, the answer is the same. */
		for (int again = 0; again < 3; again++) {
			arrive_add(f, p, 64, 5);
			ck_assert_ptr_null(f->placements.atomic.addr);
			arrive_atomic(f, OP_CMP_SWAP, p + 1, fixture_va(f, 64), 7, value + 5,
				f->local.key);
			ck_assert_ptr_null(f->placements.atomic.addr);
			arrive_add(f, p, 64, 5);
			ck_assert_uint_eq(fixture_output(f), 2);
			expect_atomic_ack(f, 0, p, value);
			expect_atomic_ack(f, 1, p + 1, value + 5);
			ck_assert_uint_eq(f->out[0].h.aeth.msn, 3);
			ck_assert_uint_eq(memory_word(f, 64), 7);
		}
		ck_assert_uint_eq(f->stats.atomics_executed, 3);
		ck_assert_uint_eq(f->stats.replays, 9);
		/* It was no READ; and a READ is no atomic. */
		arrive_read(f, p, 64, 8);
		arrive_read_key(f, p, 0, 0, 0);
		expect_silence(f);
		arrive_read(f, p + 3, 64, 8);
		ck_assert_uint_eq(fixture_output(f), 1);
		arrive_add(f, p + 3, 64, 1);
		expect_silence(f);
		ck_assert_uint_eq(f->stats.drop_no_replay, 3);
	}
}
END_TEST

START_TEST(atomics_in_memory)
{
	struct fixture *f = fixture_at(0);

	arrive_atomic(f, OP_CMP_SWAP, 0, F_IOVA + 128, 1, 2, f->moved.key);
	ck_assert_ptr_eq(f->placements.atomic.addr, f->memory + 128);
	ck_assert_ptr_eq(f->placements.atomic.region, &f->moved);
	ck_assert(f->placements.atomic.compare_swap);
	ck_assert_uint_eq(f->placements.atomic.swap_add, 1);
	ck_assert_uint_eq(f->placements.atomic.compare, 2);
	ck_assert_uint_eq(f->placements.count, 0);
	/* The same for READs. */
	arrive_read_key(f, 1, F_IOVA + 1000, 10, f->moved.key);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_read_response(f, 1, 1, 1000, 10);
	/* Aligned in the peer's view, but not in memory. */
	f->moved.addr++;
	arrive_atomic(f, OP_FETCH_ADD, 2, F_IOVA + 128, 1, 2, f->moved.key);
	expect_refused(f, 0x61, 2, 2);
}
END_TEST

/* Requests before a refused one are answered before the NAK, although the state is ERR. */
START_TEST(nak_after_answers)
{
	struct fixture *f = fixture_at(BASE);
	const uint64_t value = memory_word(f, 64);

	arrive_read(f, BASE, 0, 2 * MTU);
	arrive_add(f, BASE + 2, 64, 1);
	arrive_write(f, BASE + 3, 0, 0x666);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	ck_assert_uint_eq(qp_output(&f->qp, f->out, 1, f->now_ns), 1);
	f->n_out = 1;
	expect_out(f, 0, OP_READ_RESP_FIRST, BASE, MTU, false);
	ck_assert_uint_eq(fixture_output(f), 3);
	expect_out(f, 0, OP_READ_RESP_LAST, BASE + 1, MTU, false);
	expect_atomic_ack(f, 1, BASE + 2, value);
	expect_ack(f, 2, BASE + 3, 0x62, 2);
	expect_silence(f);
}
END_TEST

/* A queue pair that fails for reasons of its own says nothing more, */
START_LOOP_TEST(nothing_after_own_failure, 2)
{
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .mtu = MTU, .unlimited_retry = _i == 1 });

	arrive_read(f, 0, 0, 2 * MTU);
	fixture_move(f, FRL_QPS_ERR);
	expect_silence(f);
	/* but on a link that tells of the dead alone, that it has failed; no READs all the same. */
	arrive_write(f, 2, 0, f->local.key);
	if (_i)
		expect_answer(f, 0x63, 2, 1);
	expect_silence(f);
	fixture_move(f, FRL_QPS_RESET);
	fixture_bring_up(f, &(struct fixture_config){ .mtu = MTU });
	expect_silence(f);
	/* Nothing is known of the time before. */
	f->qp.responder.epsn = psn_make(2);
	arrive_read(f, 0, 0, 2 * MTU);
	ck_assert_uint_eq(f->stats.drop_no_replay, 1);
	expect_silence(f);
}
END_TEST

/* Slots are used in turn; a repeated answer that still waits gives way. */
START_TEST(as_many_as_are_kept)
{
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .mtu = MTU, .max_dest_rd_atomic = FRL_MAX_RD_ATOMIC });
	uint64_t value;

	memset(f->memory, 0, 8);
	for (uint32_t i = 0; i < 3 * FRL_MAX_RD_ATOMIC; i++) {
		arrive_add(f, i, 0, 1);
		if (i % 7 == 0)
			fixture_output(f);
	}
	fixture_output(f);
	for (uint32_t i = 0; i < 3 * FRL_MAX_RD_ATOMIC; i++) {
		bool kept = i >= 2 * FRL_MAX_RD_ATOMIC;

		arrive_add(f, i, 0, 1);
		ck_assert_uint_eq(fixture_output(f), kept ? 1 : 0);
		if (kept)
			expect_atomic_ack(f, 0, i, i);
	}
	ck_assert_uint_eq(memory_word(f, 0), 3 * FRL_MAX_RD_ATOMIC);
	/* The oldest waits to be answered again, and so do all others. */
	value = memory_word(f, 0);
	for (uint32_t i = 2 * FRL_MAX_RD_ATOMIC; i < 3 * FRL_MAX_RD_ATOMIC; i++)
		arrive_add(f, i, 0, 1);
	ck_assert_uint_eq(f->qp.responder.n_pending, FRL_MAX_RD_ATOMIC);
	arrive_add(f, 3 * FRL_MAX_RD_ATOMIC, 0, 1);
	ck_assert_uint_eq(memory_word(f, 0), value + 1);
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	ck_assert_uint_eq(f->qp.responder.n_pending, FRL_MAX_RD_ATOMIC);
	ck_assert_uint_eq(fixture_output(f), FRL_MAX_RD_ATOMIC);
	expect_atomic_ack(f, 0, 2 * FRL_MAX_RD_ATOMIC + 1, 2 * FRL_MAX_RD_ATOMIC + 1);
	expect_atomic_ack(f, FRL_MAX_RD_ATOMIC - 1, 3 * FRL_MAX_RD_ATOMIC, value);
}
END_TEST

TEST_FILE(responder_resources)
