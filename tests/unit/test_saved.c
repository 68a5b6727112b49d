/* SPDX-License-Identifier: BSD-3-Clause */
/* READs and atomics that arrive: their answers, and what comes of repeating them. */
#include "tests/unit/program.h"
#include "tests/unit/qp_fixture.h"

#include <string.h>

enum { MTU = 256, BASE = 0xfffffe, ACK = 0x1f, RNR = 0x20 | 14, DEFAULTS = F_RD_ATOMIC };

static const uint32_t bases[] = { 0, 0xfffffe, 0xffffff, 0x7ffffe, 0x123456 };

static struct fixture *new_at(uint32_t psn)
{
	return fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = psn });
}

static void read_key(struct fixture *f, uint32_t psn, uint64_t at, uint32_t length, uint32_t key)
{
	fixture_arrive_write(f, OP_READ_REQUEST, psn, 0, at, key, length);
	ck_assert_uint_eq(f->placements.count, 0);
}

static void read_at(struct fixture *f, uint32_t psn, uint32_t offset, uint32_t length)
{
	read_key(f, psn, fixture_va(f, offset), length, f->local.key);
}

static void write_at(struct fixture *f, uint32_t psn, uint32_t offset, uint32_t key)
{
	fixture_arrive_write(f, OP_WRITE_ONLY, psn, 8, fixture_va(f, offset), key, 8);
}

static void atomic_key(struct fixture *f, uint8_t opcode, uint32_t psn, uint64_t at,
	uint64_t swap_add, uint64_t compare, uint32_t key)
{
	struct wire_packet packet = fixture_packet(f, opcode, psn, 0);

	packet.h.atomic = (struct atomic_eth){ at, key, swap_add, compare };
	fixture_input(f, &packet);
}

/* Arrives, and is carried out if it is to be. */
static void add(struct fixture *f, uint32_t psn, uint32_t offset, uint64_t value)
{
	atomic_key(f, OP_FETCH_ADD, psn, fixture_va(f, offset), value, 0, f->local.key);
	fixture_place(f);
}

static uint64_t word(const struct fixture *f, uint32_t offset)
{
	uint64_t value;

	memcpy(&value, f->memory + offset, sizeof(value));
	return value;
}

/* Packets `i` and on of the last output answer a READ of `length` bytes there. Returns how many. */
static uint32_t expect_read(
	const struct fixture *f, uint32_t i, uint32_t psn, uint32_t offset, uint32_t length)
{
	uint32_t count = packets_for(length, MTU), msn = f->out[i].h.aeth.msn;

	for (uint32_t k = 0; k < count; k++, i++) {
		const struct packet_out *out = &f->out[i];
		uint32_t bytes = k == count - 1 ? length - k * MTU : MTU;
		bool first = k == 0, last = k == count - 1;

		expect_out(f, i,
			first && last   ? OP_READ_RESP_ONLY
				: first ? OP_READ_RESP_FIRST
				: last  ? OP_READ_RESP_LAST
					: OP_READ_RESP_MIDDLE,
			psn + k, bytes, false);
		ck_assert_uint_eq(out->h.bth.dest_qpn, F_PEER_QPN);
		ck_assert_uint_eq(out->h.bth.pkey, 0xffff);
		ck_assert(out->response);
		ck_assert_uint_eq(out->n_pieces, bytes ? 1 : 0);
		if (first || last) {
			ck_assert_uint_eq(out->h.aeth.syndrome, ACK);
			ck_assert_uint_eq(out->h.aeth.msn, msn);
		}
		if (!bytes)
			continue;
		ck_assert_ptr_eq(out->pieces[0].addr, f->memory + offset + k * MTU);
		ck_assert_uint_eq(out->pieces[0].length, bytes);
		ck_assert_ptr_nonnull(out->pieces[0].region);
	}
	return count;
}

static void expect_atomic(const struct fixture *f, uint32_t i, uint32_t psn, uint64_t original)
{
	expect_out(f, i, OP_ATOMIC_ACK, psn, 0, false);
	ck_assert_uint_eq(f->out[i].h.aeth.syndrome, ACK);
	ck_assert_uint_eq(f->out[i].h.atomic_original, original);
	ck_assert_uint_eq(f->out[i].n_pieces, 0);
}

static void expect_ack(
	const struct fixture *f, uint32_t i, uint32_t psn, uint8_t syndrome, uint32_t msn)
{
	expect_out(f, i, OP_ACKNOWLEDGE, psn, 0, false);
	ck_assert_uint_eq(f->out[i].h.aeth.syndrome, syndrome);
	ck_assert_uint_eq(f->out[i].h.aeth.msn, msn);
}

START_TEST(sizes)
{
	static const uint32_t lengths[] = { 0, 1, 3, MTU - 1, MTU, MTU + 1, 2 * MTU, 3 * MTU + 77 };

	for (unsigned b = 0; b < ROWS(bases); b++) {
		struct fixture *f = new_at(bases[b]);
		uint32_t psn = bases[b];

		for (uint32_t i = 0; i < ROWS(lengths); i++) {
			uint32_t n = packets_for(lengths[i], MTU);

			read_at(f, psn, 100, lengths[i]);
			ck_assert_uint_eq(fixture_output(f), n);
			expect_read(f, 0, psn, 100, lengths[i]);
			ck_assert_uint_eq(f->out[0].h.aeth.msn, i + 1);
			psn += n;
			expect_silence(f);
		}
		write_at(f, psn, 0, f->local.key);
		expect_answer(f, ACK, psn, ROWS(lengths) + 1);
		ck_assert_uint_eq(f->stats.reads_served, ROWS(lengths));
	}
}
END_TEST

/* rc_read_mtu1024: several at once, up to the limit, counted when they come; the answers when the
 * port has room, one packet at a time. */
START_TEST(several_at_once)
{
	struct fixture *f = new_at(BASE);
	struct packet_out out[12];
	uint32_t n = 0;

	for (uint32_t i = 0; i < DEFAULTS; i++)
		read_at(f, BASE + 3 * i, 1000 * i, 2 * MTU + 9);
	while (qp_wants_output(&f->qp)) {
		ck_assert_uint_lt(n, 12);
		ck_assert_uint_eq(qp_output(&f->qp, &out[n++], 1, f->now_ns), 1);
		/* As soon as the first is answered, another may come; it waits its turn. */
		if (n == 3)
			read_at(f, BASE + 12, 0, 1);
		if (n == 12)
			break;
	}
	memcpy(f->out, out, sizeof(out));
	f->n_out = 12;
	for (uint32_t i = 0; i < DEFAULTS; i++) {
		expect_read(f, 3 * i, BASE + 3 * i, 1000 * i, 2 * MTU + 9);
		ck_assert_uint_eq(f->out[3 * i].h.aeth.msn, i + 1);
	}
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_read(f, 0, BASE + 12, 0, 1);
}
END_TEST

/* One more than max_dest_rd_atomic: NAK 1, after the answers to the others. */
START_LOOP_TEST(more_than_allowed, 2)
{
	struct fixture *f = new_at(BASE);

	for (uint32_t i = 0; i < 3; i++)
		read_at(f, BASE + 2 * i, 0, MTU + 1);
	add(f, BASE + 6, 64, 1);
	if (_i)
		read_at(f, BASE + 7, 0, 1);
	else
		add(f, BASE + 7, 64, 1);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_event(&f->qp.events, FRL_EVENT_QP_REQ_ERR);
	for (uint32_t i = 0; i < 100; i++) /* a flood is dropped */
		read_at(f, BASE + 7 + i, 0, 2000);
	ck_assert_uint_eq(f->stats.naks_sent_fatal, 1);
	ck_assert_uint_eq(fixture_output(f), 8);
	for (uint32_t i = 0; i < 3; i++)
		expect_read(f, 2 * i, BASE + 2 * i, 0, MTU + 1);
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
		read_at(f, 0, 0, 0);
	else
		add(f, 0, 0, 1);
	ck_assert_ptr_null(f->placements.atomic.addr);
	expect_refused(f, 0x61, 0, 0);
}
END_TEST

/* Answers leave in PSN order: an acknowledgement waits for the responses before it. */
START_TEST(order_of_answers)
{
	struct fixture *f = new_at(BASE);

	write_at(f, BASE, 0, f->local.key);
	read_at(f, BASE + 1, 0, 2 * MTU);
	write_at(f, BASE + 3, 0, f->local.key);
	add(f, BASE + 4, 64, 1);
	write_at(f, BASE + 5, 0, f->local.key);
	ck_assert_uint_eq(fixture_output(f), 4);
	expect_read(f, 0, BASE + 1, 0, 2 * MTU); /* acknowledges the WRITE, too */
	expect_out(f, 2, OP_ATOMIC_ACK, BASE + 4, 0, false);
	expect_ack(f, 3, BASE + 5, ACK, 5);
	expect_silence(f);
	/* A sequence NAK, and one for a missing receive, wait likewise, */
	read_at(f, BASE + 6, 0, 2 * MTU);
	write_at(f, BASE + 9, 0, f->local.key);
	ck_assert_uint_eq(fixture_output(f), 3);
	expect_ack(f, 2, BASE + 8, 0x60, 6);
	read_at(f, BASE + 8, 0, 1);
	fixture_arrive(f, OP_SEND_ONLY, BASE + 9, 1);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_ack(f, 1, BASE + 9, RNR, 7);
	/* and are taken back when what they refuse is accepted. */
	fixture_arrive(f, OP_SEND_ONLY, BASE + 9, 1);
	read_at(f, BASE + 9, 0, 1);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_read(f, 0, BASE + 9, 0, 1);
}
END_TEST

/* The answer to a READ acknowledges what was before it: the count of 64 starts again. */
START_TEST(reads_acknowledge)
{
	struct fixture *f = new_at(BASE);
	uint32_t psn = BASE;

	for (int i = 0; i < 126; i++) {
		struct wire_packet packet = fixture_packet(f, OP_WRITE_ONLY, psn++, 0);

		packet.h.reth = (struct reth){ 0 };
		packet.h.bth.ack_request = false;
		fixture_input(f, &packet);
		expect_silence(f);
		if (i == 62) {
			read_at(f, psn++, 0, 1);
			ck_assert_uint_eq(fixture_output(f), 1);
		}
	}
}
END_TEST

/* Of a duplicate, the last PSN is acknowledged, but not past READs and atomics: a requester would
 * believe their responses lost, and Linux that the last one of a READ has come. */
START_TEST(duplicates_before_reads)
{
	struct fixture *f = new_at(BASE);

	for (uint32_t i = 0; i < 2; i++)
		write_at(f, BASE + i, 0, f->local.key);
	read_at(f, BASE + 2, 0, 2 * MTU);
	ck_assert_uint_eq(fixture_output(f), 2);
	write_at(f, BASE, 0, f->local.key);
	expect_answer(f, ACK, BASE, 3);
	write_at(f, BASE, 0, f->local.key);
	write_at(f, BASE + 1, 0, f->local.key);
	write_at(f, BASE, 0, f->local.key);
	expect_answer(f, ACK, BASE + 1, 3);
	write_at(f, BASE + 4, 0, f->local.key);
	write_at(f, BASE + 5, 0, f->local.key);
	expect_answer(f, ACK, BASE + 5, 5);
	write_at(f, BASE + 1, 0, f->local.key);
	expect_answer(f, ACK, BASE + 1, 5);
	write_at(f, BASE + 4, 0, f->local.key);
	expect_answer(f, ACK, BASE + 5, 5);
	/* Ahead of an answer that waits, behind one that is older. */
	read_at(f, BASE + 2, 0, 2 * MTU);
	write_at(f, BASE + 1, 0, f->local.key);
	ck_assert_uint_eq(fixture_output(f), 3);
	expect_ack(f, 0, BASE + 1, ACK, 5);
	expect_read(f, 1, BASE + 2, 0, 2 * MTU);
	read_at(f, BASE + 2, 0, 2 * MTU);
	write_at(f, BASE + 4, 0, f->local.key);
	ck_assert_uint_eq(fixture_output(f), 3);
	expect_read(f, 0, BASE + 2, 0, 2 * MTU);
	expect_ack(f, 2, BASE + 5, ACK, 5);
}
END_TEST

enum { MOST_PACKETS = (1 << 23) - 1 };

/* A READ of so many packets whose responses the requester has but for the last one. */
static void read_long(struct fixture *f, uint32_t psn, uint32_t packets)
{
	const uint64_t va = f->huge.iova;

	read_key(f, psn, va, packets * MTU, f->huge.key);
	read_key(f, psn + packets - 1, va + (uint64_t)(packets - 1) * MTU, MTU, f->huge.key);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_READ_RESP_ONLY, psn + packets - 1, MTU, false);
}

/* PSNs come again: the newest READ may be from more than half of their circle ago, or a circle. */
START_TEST(duplicates_long_after_reads)
{
	for (unsigned b = 0; b < ROWS(bases); b++) {
		struct fixture *f = new_at(bases[b]);
		uint32_t psn = bases[b] + MOST_PACKETS;

		read_long(f, bases[b], MOST_PACKETS);
		for (uint32_t i = 0; i < 4; i++) {
			write_at(f, psn + i, 0, f->local.key);
			expect_answer(f, ACK, psn + i, i + 2);
		}
		for (uint32_t i = 0; i < 4; i++) {
			write_at(f, psn + i, 0, f->local.key);
			expect_answer(f, ACK, psn + 3, 5);
		}
	}
}
END_TEST

/* The READ that a PSN stood for a circle ago is not the one that is asked for again. */
START_TEST(reads_of_a_circle_ago)
{
	struct fixture *f = new_at(BASE);
	uint32_t psn = BASE + 2;

	read_at(f, BASE, 0, 2 * MTU);
	ck_assert_uint_eq(fixture_output(f), 2);
	for (uint32_t i = 0; i < 2; i++, psn += MOST_PACKETS)
		read_long(f, psn, MOST_PACKETS);
	for (uint32_t i = 0; i < 4; i++, psn++)
		write_at(f, psn, 0, f->local.key);
	ck_assert_uint_eq(psn & PSN_MASK, (BASE + 4) & PSN_MASK);
	fixture_output(f);
	read_at(f, BASE, 0, 2 * MTU);
	ck_assert_uint_eq(f->stats.drop_no_replay, 1);
	expect_silence(f);
}
END_TEST

/* Positions that do not come again, beside the PSNs. */
struct model {
	struct fixture *f;
	uint64_t end; /* of what was accepted */
	uint32_t msn;
	uint32_t n_saved;
	struct {
		uint64_t first;
		uint32_t packets;
	} saved[FRL_MAX_RD_ATOMIC];
	uint64_t random;
};

static uint32_t draw(struct model *m, uint32_t below)
{
	m->random = m->random * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)((m->random >> 32) * below >> 32);
}

/* From 1 to MOST_PACKETS, of any order of magnitude. */
static uint32_t draw_size(struct model *m)
{
	return 1 + draw(m, MOST_PACKETS >> draw(m, 23));
}

static void model_read(struct model *m)
{
	uint32_t packets = draw_size(m), slot = m->n_saved++ % FRL_MAX_RD_ATOMIC;

	m->saved[slot].first = m->end;
	m->saved[slot].packets = packets;
	read_long(m->f, (uint32_t)m->end, packets);
	m->end += packets;
	m->msn++;
}

static void model_write(struct model *m)
{
	write_at(m->f, (uint32_t)m->end, 0, m->f->local.key);
	m->end++;
	m->msn++;
	expect_answer(m->f, ACK, (uint32_t)m->end - 1, m->msn);
}

static void model_repeat_write(struct model *m, uint64_t at)
{
	bool newer = m->n_saved && m->saved[(m->n_saved - 1) % FRL_MAX_RD_ATOMIC].first > at;

	write_at(m->f, (uint32_t)at, 0, m->f->local.key);
	expect_answer(m->f, ACK, (uint32_t)(newer ? at : m->end - 1), m->msn);
}

/* One packet of whatever was read there. */
static void model_repeat_read(struct model *m, uint64_t at)
{
	uint64_t alike = 0;
	bool known = false;

	for (uint32_t i = 0; i < FRL_MAX_RD_ATOMIC && i < m->n_saved; i++) {
		uint64_t offset = (at - m->saved[i].first) & PSN_MASK;

		if (offset >= m->saved[i].packets)
			continue;
		/* What is there, or else what was there a circle ago. */
		known = known || at - m->saved[i].first == offset;
		if (!alike || at - m->saved[i].first == offset)
			alike = m->f->huge.iova + offset * MTU;
	}
	read_key(m->f, (uint32_t)at, alike, MTU, m->f->huge.key);
	if (!known) {
		expect_silence(m->f);
		return;
	}
	ck_assert_uint_eq(fixture_output(m->f), 1);
	expect_out(m->f, 0, OP_READ_RESP_ONLY, (uint32_t)at, MTU, false);
}

/* Whatever the age of what is repeated, and of what is kept. */
START_LOOP_TEST(repeats_of_any_age, 8)
{
	struct fixture *f = new_at((uint32_t)_i * 0x123457);
	struct model m = { .f = f, .random = (uint64_t)_i };

	m.end = f->qp.responder.epsn.value + UINT64_C(0x1000000);
	for (uint32_t i = 0; i < 3000; i++) {
		uint64_t back = draw_size(&m);

		/* Some are older than the connection. */
		if (draw(&m, 4) == 0) {
			if (draw(&m, 16) == 0)
				model_read(&m);
			else
				model_write(&m);
		} else if (draw(&m, 2))
			model_repeat_write(&m, m.end - back);
		else
			model_repeat_read(&m, m.end - back);
		ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	}
}
END_TEST

enum { KNOWN, OTHER_KEY };

/* Of a READ of LENGTH bytes in four packets. */
static const struct repeat_row {
	uint32_t k;     /* packets that the requester has */
	int32_t offset; /* bytes of them */
	uint32_t length;
	int key;
	bool answered;
} repeat_rows[] = {
#define LENGTH (3 * MTU + 100)
	{ 0, 0, LENGTH, KNOWN, true },
	{ 1, MTU, LENGTH - MTU, KNOWN, true },
	{ 2, 2 * MTU, LENGTH - 2 * MTU, KNOWN, true },
	{ 3, 3 * MTU, 100, KNOWN, true },
	{ 0, 0, MTU, KNOWN, true },
	{ 1, MTU, MTU + 1, KNOWN, true },
	{ 3, 3 * MTU, 99, KNOWN, true },
	{ 2, 0, 0, KNOWN, false }, /* whose key was not looked at */
	{ 0, 0, LENGTH + 1, KNOWN, false },
	{ 3, 3 * MTU, 101, KNOWN, false },
	{ 1, MTU, LENGTH, KNOWN, false },
	{ 0, -1, LENGTH, KNOWN, false },
	{ 0, 1, LENGTH - 1, KNOWN, false },
	{ 1, 0, MTU, KNOWN, false }, /* bytes of another packet */
	{ 0, MTU, MTU, KNOWN, false },
	{ 0, 0, LENGTH, OTHER_KEY, false },
	{ 0, 0, 0xffffffff, KNOWN, false },
	{ 3, 3 * MTU, 0x80000000, KNOWN, false },
};

START_LOOP_TEST(repeated_reads, ROWS(repeat_rows))
{
	const struct repeat_row *row = &repeat_rows[_i];

	for (unsigned b = 0; b < ROWS(bases); b++) {
		uint32_t p = bases[b];
		struct fixture *f = new_at(p);
		uint32_t n = packets_for(row->length, MTU);

		read_at(f, p, 1000, LENGTH);
		write_at(f, p + 4, 0, f->local.key);
		ck_assert_uint_eq(fixture_output(f), 5);
		ck_assert_uint_eq(f->out[0].h.aeth.msn, 1);
		read_key(f, p + row->k, fixture_va(f, 1000) + (uint64_t)(int64_t)row->offset,
			row->length, row->key == KNOWN ? f->local.key : f->moved.key);
		ck_assert_uint_eq(f->stats.duplicates, 1);
		ck_assert_uint_eq(f->stats.drop_no_replay, row->answered ? 0 : 1);
		ck_assert_uint_eq(f->stats.replays, row->answered ? 1 : 0);
		if (!row->answered) {
			expect_silence(f);
			continue;
		}
		/* FIRST or ONLY, wherever it starts; with the MSN as it is now. */
		ck_assert_uint_eq(fixture_output(f), n);
		expect_read(f, 0, p + row->k, 1000 + row->k * MTU, row->length);
		ck_assert_uint_eq(f->out[0].h.aeth.msn, 2);
		ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	}
}
END_TEST

/* peer_resp_reads; Linux starts the tails with MIDDLE and LAST. */
START_TEST(reads_of_the_scripted_peer)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .rq_psn = BASE });
	static const struct {
		uint32_t psn, offset, length, packets;
		uint8_t opcode;
	} rows[] = {
		{ 0, 0, 3000, 3, OP_READ_RESP_FIRST },
		{ 0, 0, 3000, 3, OP_READ_RESP_FIRST },
		{ 1, 1024, 1976, 2, OP_READ_RESP_FIRST },
		{ 2, 2048, 952, 1, OP_READ_RESP_ONLY },
		{ 0, 0, 4000, 0, 0 },
	};

	for (unsigned i = 0; i < ROWS(rows); i++) {
		read_at(f, BASE + rows[i].psn, rows[i].offset, rows[i].length);
		ck_assert_uint_eq(fixture_output(f), rows[i].packets);
		if (rows[i].packets)
			expect_out(f, 0, rows[i].opcode, BASE + rows[i].psn,
				rows[i].length < 1024 ? rows[i].length : 1024, false);
	}
	read_key(f, BASE + 3, 0, 0, 0);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_READ_RESP_ONLY, BASE + 3, 0, false);
	ck_assert_uint_eq(f->out[0].n_pieces, 0);
}
END_TEST

/* The answer that is being sent starts again from where the requester wants it. */
START_TEST(repeated_while_streaming)
{
	struct fixture *f = new_at(BASE);

	read_at(f, BASE, 0, 4 * MTU);
	read_at(f, BASE + 4, 5000, 2 * MTU);
	ck_assert_uint_eq(qp_output(&f->qp, f->out, 3, f->now_ns), 3);
	read_at(f, BASE + 1, MTU, 3 * MTU);
	ck_assert_uint_eq(f->qp.responder.n_pending, 2);
	ck_assert_uint_eq(fixture_output(f), 5);
	expect_read(f, 0, BASE + 1, MTU, 3 * MTU);
	expect_read(f, 3, BASE + 4, 5000, 2 * MTU);
	/* Two that are repeated in the wrong order. */
	read_at(f, BASE + 4, 5000, 2 * MTU);
	read_at(f, BASE, 0, 4 * MTU);
	ck_assert_uint_eq(fixture_output(f), 6);
	expect_read(f, 0, BASE, 0, 4 * MTU);
	expect_read(f, 4, BASE + 4, 5000, 2 * MTU);
	ck_assert_uint_eq(f->qp.responder.n_pending, 0);
}
END_TEST

START_TEST(atomics_once)
{
	for (unsigned b = 0; b < ROWS(bases); b++) {
		uint32_t p = bases[b];
		struct fixture *f = new_at(p);
		const uint64_t value = word(f, 64);

		add(f, p, 64, 5);
		ck_assert_uint_eq(word(f, 64), value + 5);
		ck_assert_uint_eq(fixture_output(f), 1);
		expect_atomic(f, 0, p, value);
		ck_assert_uint_eq(f->out[0].h.aeth.msn, 1);
		/* Equal: swapped; different: not. */
		for (uint32_t i = 1; i < 3; i++) {
			atomic_key(f, OP_CMP_SWAP, p + i, fixture_va(f, 64), 7, value + 5,
				f->local.key);
			fixture_place(f);
			ck_assert_uint_eq(word(f, 64), 7);
		}
		ck_assert_uint_eq(fixture_output(f), 2);
		expect_atomic(f, 0, p + 1, value + 5);
		expect_atomic(f, 1, p + 2, 7);
		/* As often as they are repeated: nothing changes, the answer is the same. */
		for (int again = 0; again < 3; again++) {
			add(f, p, 64, 5);
			ck_assert_ptr_null(f->placements.atomic.addr);
			atomic_key(f, OP_CMP_SWAP, p + 1, fixture_va(f, 64), 7, value + 5,
				f->local.key);
			ck_assert_ptr_null(f->placements.atomic.addr);
			add(f, p, 64, 5);
			ck_assert_uint_eq(fixture_output(f), 2);
			expect_atomic(f, 0, p, value);
			expect_atomic(f, 1, p + 1, value + 5);
			ck_assert_uint_eq(f->out[0].h.aeth.msn, 3);
			ck_assert_uint_eq(word(f, 64), 7);
		}
		ck_assert_uint_eq(f->stats.atomics_executed, 3);
		ck_assert_uint_eq(f->stats.replays, 9);
		/* It was no READ; and a READ is no atomic. */
		read_at(f, p, 64, 8);
		read_key(f, p, 0, 0, 0);
		expect_silence(f);
		read_at(f, p + 3, 64, 8);
		ck_assert_uint_eq(fixture_output(f), 1);
		add(f, p + 3, 64, 1);
		expect_silence(f);
		ck_assert_uint_eq(f->stats.drop_no_replay, 3);
	}
}
END_TEST

START_TEST(atomics_in_memory)
{
	struct fixture *f = new_at(0);

	atomic_key(f, OP_CMP_SWAP, 0, F_IOVA + 128, 1, 2, f->moved.key);
	ck_assert_ptr_eq(f->placements.atomic.addr, f->memory + 128);
	ck_assert_ptr_eq(f->placements.atomic.region, &f->moved);
	ck_assert(f->placements.atomic.compare_swap);
	ck_assert_uint_eq(f->placements.atomic.swap_add, 1);
	ck_assert_uint_eq(f->placements.atomic.compare, 2);
	ck_assert_uint_eq(f->placements.count, 0);
	/* The same for READs. */
	read_key(f, 1, F_IOVA + 1000, 10, f->moved.key);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_read(f, 1, 1, 1000, 10);
	/* Aligned in the peer's view, but not in memory. */
	f->moved.addr++;
	atomic_key(f, OP_FETCH_ADD, 2, F_IOVA + 128, 1, 2, f->moved.key);
	expect_refused(f, 0x61, 2, 2);
}
END_TEST

/* What came before a refused request is answered before the NAK, although the state is ERR. */
START_TEST(nak_after_answers)
{
	struct fixture *f = new_at(BASE);
	const uint64_t value = word(f, 64);

	read_at(f, BASE, 0, 2 * MTU);
	add(f, BASE + 2, 64, 1);
	write_at(f, BASE + 3, 0, 0x666);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	ck_assert_uint_eq(qp_output(&f->qp, f->out, 1, f->now_ns), 1);
	f->n_out = 1;
	expect_out(f, 0, OP_READ_RESP_FIRST, BASE, MTU, false);
	ck_assert_uint_eq(fixture_output(f), 3);
	expect_out(f, 0, OP_READ_RESP_LAST, BASE + 1, MTU, false);
	expect_atomic(f, 1, BASE + 2, value);
	expect_ack(f, 2, BASE + 3, 0x62, 2);
	expect_silence(f);
}
END_TEST

/* A queue pair that fails for reasons of its own says nothing more, */
START_LOOP_TEST(nothing_after_own_failure, 2)
{
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .mtu = MTU, .unlimited_retry = _i == 1 });

	read_at(f, 0, 0, 2 * MTU);
	fixture_move(f, FRL_QPS_ERR);
	expect_silence(f);
	/* but on a link that tells of the dead alone, that it has failed; no READs all the same. */
	write_at(f, 2, 0, f->local.key);
	if (_i)
		expect_answer(f, 0x63, 2, 1);
	expect_silence(f);
	fixture_move(f, FRL_QPS_RESET);
	fixture_bring_up(f, &(struct fixture_config){ .mtu = MTU });
	expect_silence(f);
	/* Nothing is known of the time before. */
	f->qp.responder.epsn = psn_make(2);
	read_at(f, 0, 0, 2 * MTU);
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
		add(f, i, 0, 1);
		if (i % 7 == 0)
			fixture_output(f);
	}
	fixture_output(f);
	for (uint32_t i = 0; i < 3 * FRL_MAX_RD_ATOMIC; i++) {
		bool kept = i >= 2 * FRL_MAX_RD_ATOMIC;

		add(f, i, 0, 1);
		ck_assert_uint_eq(fixture_output(f), kept ? 1 : 0);
		if (kept)
			expect_atomic(f, 0, i, i);
	}
	ck_assert_uint_eq(word(f, 0), 3 * FRL_MAX_RD_ATOMIC);
	/* The oldest waits to be answered again, and so do all others. */
	value = word(f, 0);
	for (uint32_t i = 2 * FRL_MAX_RD_ATOMIC; i < 3 * FRL_MAX_RD_ATOMIC; i++)
		add(f, i, 0, 1);
	ck_assert_uint_eq(f->qp.responder.n_pending, FRL_MAX_RD_ATOMIC);
	add(f, 3 * FRL_MAX_RD_ATOMIC, 0, 1);
	ck_assert_uint_eq(word(f, 0), value + 1);
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	ck_assert_uint_eq(f->qp.responder.n_pending, FRL_MAX_RD_ATOMIC);
	ck_assert_uint_eq(fixture_output(f), FRL_MAX_RD_ATOMIC);
	expect_atomic(f, 0, 2 * FRL_MAX_RD_ATOMIC + 1, 2 * FRL_MAX_RD_ATOMIC + 1);
	expect_atomic(f, FRL_MAX_RD_ATOMIC - 1, 3 * FRL_MAX_RD_ATOMIC, value);
}
END_TEST

TEST_FILE(saved)
