/* SPDX-License-Identifier: BSD-3-Clause */
/* Arriving messages that nothing answers: UC, UD and GSI. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include "lib/wire/checksum.h"

#include <string.h>

enum { MTU = 256, BASE = 0xfffffe, UC = TRANSPORT_UC, UD = TRANSPORT_UD };

static struct fixture *new_uc(bool srq)
{
	return fixture_new(&(struct fixture_config){
		.type = FRL_QPT_UC, .mtu = MTU, .rq_psn = BASE, .srq = srq });
}

/* Opcodes, by shorter names. */
enum step {
	END,
	FIRST,
	MIDDLE,
	LAST,
	LAST_IMM,
	ONLY,
	W_FIRST,
	W_MIDDLE,
	W_LAST,
	W_LAST_IMM,
	W_ONLY,
};

static const uint8_t opcodes[] = {
	[FIRST] = OP_SEND_FIRST,
	[MIDDLE] = OP_SEND_MIDDLE,
	[LAST] = OP_SEND_LAST,
	[LAST_IMM] = OP_SEND_LAST_IMM,
	[ONLY] = OP_SEND_ONLY,
	[W_FIRST] = OP_WRITE_FIRST,
	[W_MIDDLE] = OP_WRITE_MIDDLE,
	[W_LAST] = OP_WRITE_LAST,
	[W_LAST_IMM] = OP_WRITE_LAST_IMM,
	[W_ONLY] = OP_WRITE_ONLY,
};

/*
 * Packets, with PSNs from BASE on, and what becomes of each: '+' placed, 'c' placed and a receive
 * completes, '-' dropped. All have an MTU of payload; WRITEs are of three packets.
 */
struct arrival {
	enum step step;
	int psn;
	char fate;
};

static const struct arrival sequences[][9] = {
	{ { FIRST, 0, '+' }, { MIDDLE, 1, '+' }, { LAST, 2, 'c' }, { ONLY, 3, 'c' } },
	{ { FIRST, 0, '+' }, { LAST_IMM, 1, 'c' }, { ONLY, 2, 'c' } },
	/* A message starts with any PSN, */
	{ { ONLY, 100, 'c' }, { FIRST, -50, '+' }, { LAST, -49, 'c' } },
	/* and loses its middle, its start, or its end. */
	{ { FIRST, 0, '+' }, { LAST, 2, '-' }, { ONLY, 3, 'c' } },
	{ { FIRST, 0, '+' }, { MIDDLE, 2, '-' }, { MIDDLE, 3, '-' }, { LAST, 4, '-' },
		{ FIRST, 5, '+' }, { LAST, 6, 'c' } },
	{ { MIDDLE, 1, '-' }, { LAST, 2, '-' }, { ONLY, 3, 'c' } },
	{ { LAST, 0, '-' }, { ONLY, 1, 'c' } }, /* also when its PSN is the expected one */
	{ { FIRST, 0, '+' }, { MIDDLE, 1, '+' }, { FIRST, 3, '+' }, { LAST, 4, 'c' } },
	{ { FIRST, 0, '+' }, { ONLY, 3, 'c' }, { LAST, 4, '-' } },
	/* A packet twice ends the message, too. */
	{ { FIRST, 0, '+' }, { MIDDLE, 1, '+' }, { MIDDLE, 1, '-' }, { LAST, 2, '-' },
		{ ONLY, 3, 'c' } },
	/* WRITEs likewise. */
	{ { W_FIRST, 0, '+' }, { W_MIDDLE, 1, '+' }, { W_LAST, 2, '+' }, { ONLY, 3, 'c' } },
	{ { W_FIRST, 0, '+' }, { W_MIDDLE, 1, '+' }, { W_LAST_IMM, 2, 'c' } },
	{ { W_FIRST, 0, '+' }, { W_LAST_IMM, 2, '-' }, { W_FIRST, 3, '+' }, { W_MIDDLE, 4, '+' },
		{ W_LAST_IMM, 5, 'c' } },
	{ { W_FIRST, 0, '+' }, { W_LAST, 1, '-' }, { W_MIDDLE, 2, '-' } }, /* too few bytes */
	{ { W_FIRST, 0, '+' }, { W_MIDDLE, 1, '+' }, { W_MIDDLE, 2, '-' }, { ONLY, 3, 'c' } },
	/* Messages of one kind and then the other. */
	{ { FIRST, 0, '+' }, { W_MIDDLE, 1, '-' }, { LAST, 2, '-' } },
	{ { W_FIRST, 0, '+' }, { LAST, 1, '-' }, { W_LAST, 2, '-' }, { ONLY, 3, 'c' } },
	{ { FIRST, 0, '+' }, { W_ONLY, 1, '-' }, { FIRST, 2, '+' }, { LAST, 3, 'c' } },
};

static void arrive(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length)
{
	struct wire_packet packet = fixture_packet(f, UC | opcode, psn, length);

	if (packet.op->headers & HEADER_RETH)
		packet.h.reth = (struct reth){ fixture_va(f, 0), f->local.key, 3 * MTU };
	fixture_input(f, &packet);
}

START_LOOP_TEST(messages, ROWS(sequences))
{
	struct fixture *f = new_uc(false);
	uint32_t recv = 0, dropped = 0;

	for (uint32_t i = 0; i < 8; i++)
		fixture_recv(f, i, i * 1000, 3 * MTU);
	for (const struct arrival *a = sequences[_i]; a->step; a++) {
		arrive(f, opcodes[a->step], (uint32_t)(BASE + a->psn), MTU);
		ck_assert_int_eq(f->placements.count, a->fate == '-' ? 0 : 1);
		if (a->fate != '-' && opcode_table[opcodes[a->step]].operation == OPERATION_SEND)
			ck_assert_uint_eq(
				(size_t)(f->placements.list[0].dst - f->memory) / 1000, recv);
		ck_assert_int_eq(f->placements.completes != COMPLETES_NONE, a->fate == 'c');
		/* One after the other: what a lost message had taken serves the next. */
		if (a->fate == 'c')
			expect_wc(&f->recv_cq, recv++, FRL_WC_SUCCESS);
		expect_no_wc(&f->recv_cq);
		dropped += a->fate == '-';
		expect_silence(f);
		ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	}
	ck_assert_uint_eq(f->stats.drop_message, dropped);
	ck_assert_uint_eq(f->stats.drop_no_recv, 0);
}
END_TEST

/* 9.9.3, class E: a shared request is not kept for the next message. */
START_TEST(messages_with_srq)
{
	struct fixture *f = new_uc(true);

	for (uint32_t i = 0; i < 5; i++)
		fixture_recv(f, i, 0, 3 * MTU);
	arrive(f, OP_SEND_FIRST, BASE, MTU);
	arrive(f, OP_SEND_LAST, BASE + 2, MTU);
	expect_wc(&f->recv_cq, 0, FRL_WC_REM_INV_REQ_ERR);
	arrive(f, OP_SEND_FIRST, BASE, MTU);
	arrive(f, OP_SEND_ONLY, BASE + 2, MTU);
	expect_wc(&f->recv_cq, 1, FRL_WC_REM_INV_REQ_ERR);
	expect_wc(&f->recv_cq, 2, FRL_WC_SUCCESS);
	arrive(f, OP_WRITE_FIRST, BASE, MTU); /* has taken none */
	arrive(f, OP_WRITE_LAST_IMM, BASE + 2, MTU);
	expect_no_wc(&f->recv_cq);
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	/* In ERR what was taken comes back, and the rest stays for others. */
	arrive(f, OP_SEND_FIRST, BASE, MTU);
	fixture_move(f, FRL_QPS_ERR);
	expect_wc(&f->recv_cq, 3, FRL_WC_WR_FLUSH_ERR);
	expect_no_wc(&f->recv_cq);
	ck_assert_uint_eq(f->srq.queue.tail - f->srq.queue.head, 1);
	expect_event(&f->qp.events, FRL_EVENT_QP_LAST_WQE_REACHED);
}
END_TEST

static const struct refusal_row {
	uint8_t opcode;
	uint32_t length, total, deny;
	bool bad_key;
	bool no_recv;  /* counted as this, else as a dropped message */
	uint32_t recv; /* length of the receive; 0: none */
} refusal_rows[] = {
	{ OP_SEND_ONLY, 10, 0, 0, false, true, 0 },
	{ OP_SEND_ONLY, 10, 0, 0, false, true, 9 },
	{ OP_SEND_FIRST, MTU, 0, 0, false, true, 10 },
	{ OP_SEND_FIRST, MTU - 1, 0, 0, false, false, MTU },
	{ OP_SEND_ONLY, MTU + 1, 0, 0, false, false, 2 * MTU },
	{ OP_WRITE_ONLY, 8, 8, FRL_ACCESS_REMOTE_WRITE, false, false, 0 },
	{ OP_WRITE_ONLY, 8, 9, 0, false, false, 0 },
	{ OP_WRITE_ONLY, 8, 8, 0, true, false, 0 },
	{ OP_WRITE_FIRST, MTU, 0x80000001, 0, false, false, 0 },
	{ OP_WRITE_ONLY_IMM, 8, 8, 0, false, true, 0 },
};

START_LOOP_TEST(refusals, ROWS(refusal_rows))
{
	const struct refusal_row *row = &refusal_rows[_i];
	struct fixture *f = fixture_new(&(struct fixture_config){
		.type = FRL_QPT_UC, .mtu = MTU, .rq_psn = BASE, .deny = row->deny });
	struct wire_packet packet = fixture_packet(f, UC | row->opcode, BASE, row->length);

	if (row->recv)
		fixture_recv(f, 1, 0, row->recv);
	if (packet.op->headers & HEADER_RETH)
		packet.h.reth = (struct reth){ fixture_va(f, 0),
			f->local.key ^ (row->bad_key ? 1 : 0), row->total };
	fixture_input(f, &packet);
	ck_assert_uint_eq(f->placements.count, 0);
	ck_assert_uint_eq(f->stats.drop_no_recv, row->no_recv);
	ck_assert_uint_eq(f->stats.drop_message, !row->no_recv);
	/* The rest of it is dropped as well; nothing else has happened. */
	arrive(f, OP_SEND_LAST, BASE + 1, 1);
	ck_assert_uint_eq(f->stats.drop_message, row->no_recv ? 1 : 2);
	expect_silence(f);
	expect_no_wc(&f->recv_cq);
	expect_no_event(&f->qp.events);
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	if (!row->recv)
		fixture_recv(f, 1, 0, 10);
	arrive(f, OP_SEND_ONLY, BASE + 9, 9);
	expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
}
END_TEST

/* A receive whose memory has gone can take no message: it fails, with the queue pair if it is the
 * queue pair's own. One that reduces is not for messages that may be lost. */
START_TEST(useless_receives)
{
	for (int srq = 0; srq < 2; srq++) {
		struct fixture *f = new_uc(srq);

		fixture_recv(f, 1, 0, 10);
		fixture_recv(f, 2, 0, 10);
		region_remove(&f->table, &f->local);
		arrive(f, OP_SEND_ONLY, BASE, 10);
		ck_assert_uint_eq(f->placements.count, 0);
		expect_wc(&f->recv_cq, 1, FRL_WC_LOC_PROT_ERR);
		ck_assert_int_eq(f->qp.state, srq ? FRL_QPS_RTS : FRL_QPS_ERR);
		if (!srq)
			expect_wc(&f->recv_cq, 2, FRL_WC_WR_FLUSH_ERR);
		expect_no_wc(&f->recv_cq);
	}
}
END_TEST

START_TEST(reducing_receives)
{
	struct fixture *f = new_uc(true);
	struct frl_sge sge = { f->memory, 64, f->local.key };
	struct frl_recv_wr wr = {
		.wr_id = 1,
		.sge = &sge,
		.n_sge = 1,
		.action = { .type = FRL_ACTION_REDUCE, .dtype = FRL_FLOAT32 },
	};
	const char *why;

	ck_assert_int_eq(recv_queue_post(&f->srq.queue, &wr, &why), 0);
	arrive(f, OP_SEND_ONLY, BASE, 64);
	ck_assert_uint_eq(f->placements.count, 0);
	expect_wc(&f->recv_cq, 1, FRL_WC_LOC_QP_OP_ERR);
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
}
END_TEST

static struct fixture *new_ud(enum frl_qp_type type, bool srq)
{
	return fixture_new(&(struct fixture_config){ .type = type, .srq = srq });
}

/* The header, then the payload, over whatever elements there are. */
START_TEST(datagrams)
{
	static const uint32_t lengths[] = { 0, 1, 3, 63, 1023, 1024 };
	static const uint32_t splits[] = { 1, 20, 40, 41, 64 };
	struct frl_wc wc;

	for (uint32_t i = 0; i < ROWS(lengths) * ROWS(splits); i++) {
		uint32_t length = lengths[i % ROWS(lengths)], split = splits[i / ROWS(lengths)];
		bool imm = i % 2, gsi = i % 3 == 0;
		struct fixture *f = new_ud(gsi ? FRL_QPT_GSI : FRL_QPT_UD, i % 5 == 0);
		struct wire_packet packet = fixture_packet(
			f, UD | (imm ? OP_SEND_ONLY_IMM : OP_SEND_ONLY), i * 77777, length);
		struct frl_sge sge[] = { { f->memory, split, f->local.key },
			{ f->memory + split, 1064 - split, f->local.key } };
		struct frl_recv_wr wr = { .wr_id = 5, .sge = sge, .n_sge = 2 };
		const char *why;

		ck_assert_int_eq(i % 5 == 0 ? recv_queue_post(&f->srq.queue, &wr, &why)
					    : qp_post_recv(&f->qp, &wr, &why),
			0);
		packet.vlan = 7;
		packet.priority = 3;
		memset(f->memory, 0xee, 2000);
		fixture_input(f, &packet);
		ck_assert_uint_ge(f->placements.count, 1);
		fixture_place(f);
		for (int k = 0; k < 20; k++)
			ck_assert_uint_eq(f->memory[k], 0);
		ck_assert_mem_eq(f->memory + 20, f->l3, 20);
		ck_assert_uint_eq(f->memory[20], 0x45);
		ck_assert_uint_eq(checksum_fold(checksum_add(0, f->memory + 20, 20)), 0xffff);
		if (length)
			ck_assert_mem_eq(f->memory + 40, f->peer, length);
		ck_assert_uint_eq(f->memory[40 + length], 0xee);
		ck_assert(cq_pop(&f->recv_cq, &wc));
		ck_assert_uint_eq(wc.wr_id, 5);
		ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
		ck_assert_int_eq(wc.opcode, FRL_WC_RECV);
		ck_assert_uint_eq(wc.byte_len, 40 + length);
		ck_assert_uint_eq(wc.flags, FRL_WC_GRH | FRL_WC_IPV4 | (imm ? FRL_WC_WITH_IMM : 0));
		ck_assert_uint_eq(wc.imm_data, imm ? 0x11223344 : 0);
		ck_assert_uint_eq(wc.src_qp, F_PEER_QPN);
		ck_assert_uint_eq(wc.vlan, 7);
		ck_assert_uint_eq(wc.sl, 3);
		ck_assert_uint_eq(wc.pkey_index, 0);
		expect_silence(f);
	}
}
END_TEST

START_TEST(datagram_over_ipv6)
{
	struct fixture *f = new_ud(FRL_QPT_UD, false);
	struct wire_packet packet = fixture_packet(f, UD | OP_SEND_ONLY, 0, 100);
	uint8_t header[IPV6_LEN];
	struct frl_wc wc;

	for (unsigned i = 0; i < sizeof(header); i++)
		header[i] = (uint8_t)(0x60 + i);
	packet.l3 = header;
	memcpy(packet.src_ip.bytes, header + 8, 16);
	fixture_recv(f, 1, 0, 140);
	fixture_input(f, &packet);
	fixture_place(f);
	ck_assert_mem_eq(f->memory, header, 40);
	ck_assert_mem_eq(f->memory + 40, f->peer, 100);
	ck_assert(cq_pop(&f->recv_cq, &wc));
	ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.flags, FRL_WC_GRH);
}
END_TEST

/* 16 elements, the header's end inside of one: as many placements as there can be. */
START_TEST(datagram_over_many_elements)
{
	struct fixture *f = new_ud(FRL_QPT_UD, false);
	struct wire_packet packet = fixture_packet(f, UD | OP_SEND_ONLY, 0, 16 * 7 - 40);
	struct frl_sge sge[FRL_MAX_SGE];
	struct frl_recv_wr wr = { .sge = sge, .n_sge = FRL_MAX_SGE };
	const char *why;

	for (uint32_t i = 0; i < FRL_MAX_SGE; i++)
		sge[i] = (struct frl_sge){ f->memory + 7 * i, 7, f->local.key };
	ck_assert_int_eq(qp_post_recv(&f->qp, &wr, &why), 0);
	fixture_input(f, &packet);
	ck_assert_uint_eq(f->placements.count, FRL_MAX_SGE + 1);
	fixture_place(f);
	ck_assert_mem_eq(f->memory + 20, f->l3, 20);
	ck_assert_mem_eq(f->memory + 40, f->peer, 16 * 7 - 40);
}
END_TEST

static const struct datagram_row {
	enum frl_qp_type type;
	bool srq;
	uint32_t qkey, recv, length;
	bool bad_qkey, no_recv;
	enum frl_wc_status status; /* of the receive; SUCCESS: none completes */
} datagram_rows[] = {
	{ FRL_QPT_UD, false, F_QKEY + 1, 100, 10, true, false, FRL_WC_SUCCESS },
	{ FRL_QPT_UD, false, QKEY_GSI, 100, 10, true, false, FRL_WC_SUCCESS },
	{ FRL_QPT_GSI, false, F_QKEY, 100, 10, true, false, FRL_WC_SUCCESS },
	{ FRL_QPT_GSI, false, 0, 100, 10, true, false, FRL_WC_SUCCESS },
	{ FRL_QPT_UD, false, F_QKEY, 0, 10, false, true, FRL_WC_SUCCESS },
	{ FRL_QPT_UD, true, F_QKEY, 0, 10, false, true, FRL_WC_SUCCESS },
	{ FRL_QPT_UD, false, F_QKEY, 49, 10, false, true, FRL_WC_SUCCESS },
	{ FRL_QPT_UD, false, F_QKEY, 10, 10, false, true, FRL_WC_SUCCESS },
	{ FRL_QPT_UD, true, F_QKEY, 49, 10, false, true, FRL_WC_LOC_LEN_ERR },
	{ FRL_QPT_GSI, false, QKEY_GSI, 295, 256, false, true, FRL_WC_SUCCESS },
};

START_LOOP_TEST(datagrams_dropped, ROWS(datagram_rows))
{
	const struct datagram_row *row = &datagram_rows[_i];
	struct fixture *f = new_ud(row->type, row->srq);
	struct wire_packet packet = fixture_packet(f, UD | OP_SEND_ONLY, 0, row->length);

	if (row->recv)
		fixture_recv(f, 1, 0, row->recv);
	packet.h.deth.qkey = row->qkey;
	fixture_input(f, &packet);
	ck_assert_uint_eq(f->placements.count, 0);
	ck_assert_uint_eq(f->stats.drop_bad_qkey, row->bad_qkey);
	ck_assert_uint_eq(f->stats.drop_no_recv, row->no_recv);
	if (row->status)
		expect_wc(&f->recv_cq, 1, row->status);
	expect_no_wc(&f->recv_cq);
	expect_silence(f);
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
}
END_TEST

START_TEST(overruns)
{
	struct fixture *f = fixture_new(&(struct fixture_config){
		.type = FRL_QPT_UC, .mtu = MTU, .rq_psn = BASE, .srq = true, .n_cq = 1 });

	for (uint32_t i = 0; i < 4; i++)
		fixture_recv(f, i, 0, 3 * MTU);
	arrive(f, OP_SEND_ONLY, BASE, MTU);
	arrive(f, OP_SEND_FIRST, BASE + 1, MTU);
	/* Its error does not fit, and the one after it is not taken any more. */
	arrive(f, OP_SEND_ONLY, BASE + 3, MTU);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	ck_assert_uint_eq(f->placements.count, 0);
	ck_assert_uint_eq(f->srq.queue.tail - f->srq.queue.head, 2);
	expect_event(&f->recv_cq.events, FRL_EVENT_CQ_ERR);
}
END_TEST

TEST_FILE(unreliable)
