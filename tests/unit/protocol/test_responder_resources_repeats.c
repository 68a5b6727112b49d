/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that arrive again, of any age, beside READs that were answered. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/resource_fixture.h"

/* A duplicate is answered with the last PSN, but not past READs and atomics: a requester would
 * believe their responses lost, and Linux that the last one of a READ has come. */
START_TEST(duplicates_before_reads)
{
	struct fixture *f = fixture_at(BASE);

	for (uint32_t i = 0; i < 2; i++)
		arrive_write(f, BASE + i, 0, f->local.key);
	arrive_read(f, BASE + 2, 0, 2 * MTU);
	ck_assert_uint_eq(fixture_output(f), 2);
	arrive_write(f, BASE, 0, f->local.key);
	expect_answer(f, ACK, BASE, 3);
	arrive_write(f, BASE, 0, f->local.key);
	arrive_write(f, BASE + 1, 0, f->local.key);
	arrive_write(f, BASE, 0, f->local.key);
	expect_answer(f, ACK, BASE + 1, 3);
	arrive_write(f, BASE + 4, 0, f->local.key);
	arrive_write(f, BASE + 5, 0, f->local.key);
	expect_answer(f, ACK, BASE + 5, 5);
	arrive_write(f, BASE + 1, 0, f->local.key);
	expect_answer(f, ACK, BASE + 1, 5);
	arrive_write(f, BASE + 4, 0, f->local.key);
	expect_answer(f, ACK, BASE + 5, 5);
	/* Ahead of an answer that waits, behind one that is older. */
	arrive_read(f, BASE + 2, 0, 2 * MTU);
	arrive_write(f, BASE + 1, 0, f->local.key);
	ck_assert_uint_eq(fixture_output(f), 3);
	expect_ack(f, 0, BASE + 1, ACK, 5);
	expect_read_response(f, 1, BASE + 2, 0, 2 * MTU);
	arrive_read(f, BASE + 2, 0, 2 * MTU);
	arrive_write(f, BASE + 4, 0, f->local.key);
	ck_assert_uint_eq(fixture_output(f), 3);
	expect_read_response(f, 0, BASE + 2, 0, 2 * MTU);
	expect_ack(f, 2, BASE + 5, ACK, 5);
}
END_TEST

enum { MOST_PACKETS = (1 << 23) - 1 };

/* A READ of so many packets whose responses the requester has but for the last one. */
static void read_long(struct fixture *f, uint32_t psn, uint32_t packets)
{
	const uint64_t va = f->huge.iova;

	arrive_read_key(f, psn, va, packets * MTU, f->huge.key);
	arrive_read_key(f, psn + packets - 1, va + (uint64_t)(packets - 1) * MTU, MTU, f->huge.key);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_READ_RESP_ONLY, psn + packets - 1, MTU, false);
}

/* PSNs come again: the newest READ may be from more than half of their circle ago, or a circle. */
START_TEST(duplicates_long_after_reads)
{
	for (unsigned b = 0; b < ROWS(bases); b++) {
		struct fixture *f = fixture_at(bases[b]);
		uint32_t psn = bases[b] + MOST_PACKETS;

		read_long(f, bases[b], MOST_PACKETS);
		for (uint32_t i = 0; i < 4; i++) {
			arrive_write(f, psn + i, 0, f->local.key);
			expect_answer(f, ACK, psn + i, i + 2);
		}
		for (uint32_t i = 0; i < 4; i++) {
			arrive_write(f, psn + i, 0, f->local.key);
			expect_answer(f, ACK, psn + 3, 5);
		}
	}
}
END_TEST

/* The READ that a PSN stood for a circle ago is not the one that is asked for again. */
START_TEST(reads_of_a_circle_ago)
{
	struct fixture *f = fixture_at(BASE);
	uint32_t psn = BASE + 2;

	arrive_read(f, BASE, 0, 2 * MTU);
	ck_assert_uint_eq(fixture_output(f), 2);
	for (uint32_t i = 0; i < 2; i++, psn += MOST_PACKETS)
		read_long(f, psn, MOST_PACKETS);
	for (uint32_t i = 0; i < 4; i++, psn++)
		arrive_write(f, psn, 0, f->local.key);
	ck_assert_uint_eq(psn & PSN_MASK, (BASE + 4) & PSN_MASK);
	fixture_output(f);
	arrive_read(f, BASE, 0, 2 * MTU);
	ck_assert_uint_eq(f->stats.drop_no_replay, 1);
	expect_silence(f);
}
END_TEST

/* Positions that do not come again, beside the PSNs. */
struct model {
	struct fixture *f;
	uint64_t end; /* of what was accepted */
	uint32_t msn;
	uint32_t n_resources;
	struct {
		uint64_t first;
		uint32_t packets;
	} resources[FRL_MAX_RD_ATOMIC];
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
	uint32_t packets = draw_size(m), slot = m->n_resources++ % FRL_MAX_RD_ATOMIC;

	m->resources[slot].first = m->end;
	m->resources[slot].packets = packets;
	read_long(m->f, (uint32_t)m->end, packets);
	m->end += packets;
	m->msn++;
}

static void model_write(struct model *m)
{
	arrive_write(m->f, (uint32_t)m->end, 0, m->f->local.key);
	m->end++;
	m->msn++;
	expect_answer(m->f, ACK, (uint32_t)m->end - 1, m->msn);
}

static void model_repeat_write(struct model *m, uint64_t at)
{
	bool newer = m->n_resources &&
		m->resources[(m->n_resources - 1) % FRL_MAX_RD_ATOMIC].first > at;

	arrive_write(m->f, (uint32_t)at, 0, m->f->local.key);
	expect_answer(m->f, ACK, (uint32_t)(newer ? at : m->end - 1), m->msn);
}

/* One packet of whatever was read there. */
static void model_repeat_read(struct model *m, uint64_t at)
{
	uint64_t alike = 0;
	bool known = false;

	for (uint32_t i = 0; i < FRL_MAX_RD_ATOMIC && i < m->n_resources; i++) {
		uint64_t offset = (at - m->resources[i].first) & PSN_MASK;

		if (offset >= m->resources[i].packets)
			continue;
		/* The READ at this position, or else one at the same PSN a circle ago. */
		known = known || at - m->resources[i].first == offset;
		if (!alike || at - m->resources[i].first == offset)
			alike = m->f->huge.iova + offset * MTU;
	}
	arrive_read_key(m->f, (uint32_t)at, alike, MTU, m->f->huge.key);
	if (!known) {
		expect_silence(m->f);
		return;
	}
	ck_assert_uint_eq(fixture_output(m->f), 1);
	expect_out(m->f, 0, OP_READ_RESP_ONLY, (uint32_t)at, MTU, false);
}

/* Requests of any age are repeated, beside READs of any age. */
START_LOOP_TEST(repeats_of_any_age, 8)
{
	struct fixture *f = fixture_at((uint32_t)_i * 0x123457);
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

/* Repeats of a READ of LENGTH bytes in four packets. */
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
		struct fixture *f = fixture_at(p);
		uint32_t n = packets_for(row->length, MTU);

		arrive_read(f, p, 1000, LENGTH);
		arrive_write(f, p + 4, 0, f->local.key);
		ck_assert_uint_eq(fixture_output(f), 5);
		ck_assert_uint_eq(f->out[0].h.aeth.msn, 1);
		arrive_read_key(f, p + row->k, fixture_va(f, 1000) + (uint64_t)(int64_t)row->offset,
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
		expect_read_response(f, 0, p + row->k, 1000 + row->k * MTU, row->length);
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
		arrive_read(f, BASE + rows[i].psn, rows[i].offset, rows[i].length);
		ck_assert_uint_eq(fixture_output(f), rows[i].packets);
		if (rows[i].packets)
			expect_out(f, 0, rows[i].opcode, BASE + rows[i].psn,
				rows[i].length < 1024 ? rows[i].length : 1024, false);
	}
	arrive_read_key(f, BASE + 3, 0, 0, 0);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_READ_RESP_ONLY, BASE + 3, 0, false);
	ck_assert_uint_eq(f->out[0].n_pieces, 0);
}
END_TEST

/* The answer that is being sent starts again from where the requester wants it. */
START_TEST(repeated_while_streaming)
{
	struct fixture *f = fixture_at(BASE);

	arrive_read(f, BASE, 0, 4 * MTU);
	arrive_read(f, BASE + 4, 5000, 2 * MTU);
	ck_assert_uint_eq(qp_output(&f->qp, f->out, 3, f->now_ns), 3);
	arrive_read(f, BASE + 1, MTU, 3 * MTU);
	ck_assert_uint_eq(f->qp.responder.n_pending, 2);
	ck_assert_uint_eq(fixture_output(f), 5);
	expect_read_response(f, 0, BASE + 1, MTU, 3 * MTU);
	expect_read_response(f, 3, BASE + 4, 5000, 2 * MTU);
	/* Two that are repeated in the wrong order. */
	arrive_read(f, BASE + 4, 5000, 2 * MTU);
	arrive_read(f, BASE, 0, 4 * MTU);
	ck_assert_uint_eq(fixture_output(f), 6);
	expect_read_response(f, 0, BASE, 0, 4 * MTU);
	expect_read_response(f, 4, BASE + 4, 5000, 2 * MTU);
	ck_assert_uint_eq(f->qp.responder.n_pending, 0);
}
END_TEST

TEST_FILE(responder_resources_repeats)
