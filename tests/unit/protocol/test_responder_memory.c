/* SPDX-License-Identifier: BSD-3-Clause */
/* Arriving payload: its places, and forbidden ones. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include "lib/base/random.h"

#include <string.h>

enum { MTU = 256, BASE = 0xfffffe, ACK = 0x1f };

static void read_key(struct fixture *f, uint32_t psn, uint64_t at, uint32_t length, uint32_t key)
{
	fixture_arrive_write(f, OP_READ_REQUEST, psn, 0, at, key, length);
	ck_assert_uint_eq(f->placements.count, 0);
}

static void atomic_key(struct fixture *f, uint8_t opcode, uint32_t psn, uint64_t at,
	uint64_t swap_add, uint64_t compare, uint32_t key)
{
	struct wire_packet packet = fixture_packet(f, opcode, psn, 0);

	packet.h.atomic = (struct atomic_eth){ at, key, swap_add, compare };
	fixture_input(f, &packet);
}

enum key { LOCAL, READ_ONLY, FOREIGN, WRONG, UNBOUND };

static const struct access_row {
	enum key key;
	int32_t offset;
	uint32_t length;
	uint8_t answer;
} access_rows[] = {
	{ LOCAL, 0, MTU, ACK },
	{ LOCAL, F_MEMORY - MTU, MTU, ACK },
	{ LOCAL, F_MEMORY - MTU + 1, MTU, 0x62 },
	{ LOCAL, -1, MTU, 0x62 },
	{ LOCAL, F_MEMORY, 1, 0x62 },
	{ READ_ONLY, 0, MTU, 0x62 },
	{ FOREIGN, 0, MTU, 0x62 },
	{ WRONG, 0, MTU, 0x62 },
	{ WRONG, -1, 0, ACK }, /* without payload the key means nothing */
	{ READ_ONLY, F_MEMORY + 1, 0, ACK },
	{ UNBOUND, 0, 1, 0x62 },
};

START_LOOP_TEST(access_rights, ROWS(access_rows))
{
	const struct access_row *row = &access_rows[_i];
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });
	const uint32_t keys[] = { f->local.key, f->read_only.key, f->foreign.key,
		f->local.key ^ 0x10000, f->window.key };

	fixture_recv(f, 1, 0, 10);
	fixture_arrive_write(f, OP_WRITE_ONLY, BASE, row->length,
		(uintptr_t)f->memory + (uint64_t)(int64_t)row->offset, keys[row->key], row->length);
	if (row->answer == ACK) {
		expect_answer(f, ACK, BASE, 1);
		expect_no_wc(&f->recv_cq);
	} else {
		expect_refused(f, row->answer, BASE, 0);
		expect_wc(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR);
	}
}
END_TEST

/* 9.9.3, class C: a WRITE with immediate is for a receive, which then tells of it. */
START_TEST(refused_with_immediate)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });

	fixture_recv(f, 1, 0, 10);
	fixture_recv(f, 2, 0, 10);
	fixture_arrive_write(f, OP_WRITE_ONLY_IMM, 0, 8, fixture_va(f, 0), f->read_only.key, 8);
	expect_refused(f, 0x62, 0, 0);
	expect_wc(&f->recv_cq, 1, FRL_WC_REM_ACCESS_ERR);
	expect_wc(&f->recv_cq, 2, FRL_WC_WR_FLUSH_ERR);
	expect_no_event(&f->qp.events);
}
END_TEST

/* Addresses are the region's or the window's; memory is where those begin. */
START_TEST(translated_addresses)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	const struct frl_mw_bind bind = { .addr = F_IOVA + 3000,
		.length = 3 * MTU,
		.rkey = frl_inc_rkey(f->window.key),
		.access = FRL_ACCESS_REMOTE_WRITE };
	struct frl_sge sge = { (void *)(uintptr_t)(F_IOVA + 64), 100, f->moved.key };
	struct frl_recv_wr wr = { .wr_id = 1, .sge = &sge, .n_sge = 1 };
	const char *why;

	ck_assert(region_bind(&f->table, &f->window, &f->moved, &bind, &f->qp));
	fixture_arrive_write(f, OP_WRITE_ONLY, 0, 8, F_IOVA + 100, f->moved.key, 8);
	ck_assert_ptr_eq(f->placements.list[0].dst, f->memory + 100);
	fixture_arrive_write(f, OP_WRITE_FIRST, 1, MTU, bind.addr + 1, bind.rkey, 3 * MTU - 1);
	ck_assert_ptr_eq(f->placements.list[0].dst, f->memory + 3001);
	ck_assert_ptr_eq(f->placements.list[0].region, &f->window);
	fixture_arrive(f, OP_WRITE_MIDDLE, 2, MTU);
	ck_assert_ptr_eq(f->placements.list[0].dst, f->memory + 3001 + MTU);
	ck_assert_int_eq(qp_post_recv(&f->qp, &wr, &why), 0);
	/* Unbound in mid-message. */
	ck_assert(region_invalidate(&f->table, bind.rkey, &f->qp));
	fixture_arrive(f, OP_WRITE_LAST, 3, MTU - 1);
	expect_refused(f, 0x62, 3, 1);
	expect_wc(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR);
	f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	sge.lkey = f->moved.key;
	ck_assert_int_eq(qp_post_recv(&f->qp, &wr, &why), 0);
	fixture_arrive(f, OP_SEND_ONLY, 0, 100);
	ck_assert_ptr_eq(f->placements.list[0].dst, f->memory + 64);
	expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
}
END_TEST

START_TEST(access_of_long_writes)
{
	/* The whole range counts with the first packet, */
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });

	fixture_arrive_write(f, OP_WRITE_FIRST, 0, MTU, fixture_va(f, F_MEMORY - 2 * MTU),
		f->local.key, 2 * MTU + 1);
	expect_refused(f, 0x62, 0, 0);
	/* and a region may go in mid-message. */
	f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	fixture_arrive_write(f, OP_WRITE_FIRST, 0, MTU, fixture_va(f, 0), f->local.key, 3 * MTU);
	ck_assert_uint_eq(f->placements.count, 1);
	region_remove(&f->table, &f->local);
	fixture_arrive(f, OP_WRITE_MIDDLE, 1, MTU);
	expect_refused(f, 0x62, 1, 0);
	/* Without the right, any WRITE is an invalid request. */
	f = fixture_new(&(struct fixture_config){ .mtu = MTU, .deny = FRL_ACCESS_REMOTE_WRITE });
	fixture_arrive_write(f, OP_WRITE_ONLY, 0, 0, 0, 0, 0);
	expect_refused(f, 0x61, 0, 0);
}
END_TEST

START_TEST(scattered)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	uint8_t *m = f->memory;
	struct frl_sge sge[4] = { { m, 100, f->local.key }, { NULL, 0, 0 },
		{ m + 2000, 300, f->local.key }, { m + 3000, 200, f->local.key } };
	struct frl_recv_wr wr = { .sge = sge, .n_sge = 4 };
	static const struct {
		uint32_t at, length;
	} rows[3][2] = { { { 0, 100 }, { 2000, 156 } }, { { 2156, 144 }, { 3000, 112 } },
		{ { 3112, 88 } } };
	static const uint8_t opcodes[] = { OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST };
	const char *why;

	ck_assert_int_eq(qp_post_recv(&f->qp, &wr, &why), 0);
	for (uint32_t k = 0; k < 3; k++) {
		fixture_arrive(f, opcodes[k], k, k == 2 ? 88 : MTU);
		ck_assert_uint_eq(f->placements.count, k == 2 ? 1 : 2);
		for (uint32_t i = 0; i < f->placements.count; i++) {
			ck_assert_ptr_eq(f->placements.list[i].dst, m + rows[k][i].at);
			ck_assert_uint_eq(f->placements.list[i].length, rows[k][i].length);
			ck_assert_ptr_null(f->placements.list[i].action);
		}
	}
}
END_TEST

/* As many elements as there may be, of lengths that have nothing to do with packets. */
START_TEST(many_elements)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	struct frl_sge sge[FRL_MAX_SGE];
	struct frl_recv_wr wr = { .wr_id = 9, .sge = sge, .n_sge = FRL_MAX_SGE };
	uint32_t total = 0, psn = 0, at = 0;
	const char *why;

	for (uint32_t i = 0; i < FRL_MAX_SGE; i++) {
		uint32_t length = i * i * 3 % 91 + (i % 4 == 1 ? 300 : 1);

		sge[i] = (struct frl_sge){ f->memory + 60000 - 1000 * i, length, f->local.key };
		total += length;
	}
	ck_assert_int_eq(qp_post_recv(&f->qp, &wr, &why), 0);
	for (uint32_t done = 0; done < total; done += MTU) {
		uint32_t left = total - done;

		memset(f->peer, (int)(0x40 + psn), MTU);
		fixture_arrive(f,
			left <= MTU    ? OP_SEND_LAST
				: done ? OP_SEND_MIDDLE
				       : OP_SEND_FIRST,
			psn++, left < MTU ? left : MTU);
		fixture_place(f);
	}
	expect_wc(&f->recv_cq, 9, FRL_WC_SUCCESS);
	for (uint32_t i = 0; i < FRL_MAX_SGE; i++) {
		const uint8_t *bytes = sge[i].addr;

		for (uint32_t k = 0; k < sge[i].length; k++, at++)
			ck_assert_uint_eq(bytes[k], 0x40 + at / MTU);
		ck_assert_uint_eq(bytes[sge[i].length], 0);
	}
}
END_TEST

START_TEST(region_of_a_receive_gone)
{
	for (int part = 0; part < 2; part++) { /* before the message, or inside it */
		struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });

		fixture_recv(f, 1, 0, 2 * MTU);
		fixture_recv(f, 2, 0, 2 * MTU);
		if (part)
			fixture_arrive(f, OP_SEND_FIRST, 0, MTU);
		region_remove(&f->table, &f->local);
		fixture_arrive(f, part ? OP_SEND_LAST : OP_SEND_FIRST, (uint32_t)part, MTU);
		expect_refused(f, 0x63, (uint32_t)part, 0);
		expect_wc(&f->recv_cq, 1, FRL_WC_LOC_PROT_ERR);
		expect_wc(&f->recv_cq, 2, FRL_WC_WR_FLUSH_ERR);
	}
}
END_TEST

/* A receive that was right when it was posted may be wrong later: the region was registered
 * anew. */
START_LOOP_TEST(region_of_a_receive_changed, 2)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });

	fixture_recv(f, 1, 1000, MTU);
	if (_i)
		f->local.access &= ~(uint32_t)FRL_ACCESS_LOCAL_WRITE;
	else
		f->local.length = 1000 + MTU - 1;
	fixture_arrive(f, OP_SEND_ONLY, 0, MTU);
	expect_refused(f, 0x63, 0, 0);
	expect_wc(&f->recv_cq, 1, FRL_WC_LOC_PROT_ERR);
}
END_TEST

static void post_reduce(struct fixture *f, uint32_t offset, uint32_t length, const void *src)
{
	struct frl_sge sge[2] = { { f->memory + offset, length / 8 * 4, f->local.key },
		{ f->memory + offset + length / 8 * 4, length - length / 8 * 4, f->local.key } };
	struct frl_recv_wr wr = { .wr_id = 7,
		.sge = sge,
		.n_sge = 2,
		.action = { .type = FRL_ACTION_REDUCE,
			.dtype = FRL_FLOAT32,
			.src = src,
			.src_lkey = f->read_only.key } };
	const char *why = "";

	ck_assert_msg(qp_post_recv(&f->qp, &wr, &why) == 0, "%s", why);
}

/* Each element once, whatever arrives how often; from dst itself, or from another place. */
START_LOOP_TEST(reduce_exactly_once, 2)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	float *dst = (float *)(void *)f->memory, *src = (float *)(void *)(f->memory + 8192);
	float *payload = (float *)(void *)f->peer;
	uint32_t psn = 0;

	for (int i = 0; i < 160; i++) {
		dst[i] = (float)i;
		src[i] = (float)(1000 + 2 * i);
	}
	for (int i = 0; i < 64; i++)
		payload[i] = 0.5f;
	post_reduce(f, 0, 640, _i ? src : NULL);
	for (int k = 0; k < 3; k++) {
		for (int again = 0; again < 3; again++) {
			fixture_arrive(f,
				k == 2      ? OP_SEND_LAST
					: k ? OP_SEND_MIDDLE
					    : OP_SEND_FIRST,
				psn, k == 2 ? 128 : MTU);
			if (again)
				ck_assert_uint_eq(f->placements.count, 0);
			fixture_place(f);
			fixture_arrive(f, OP_SEND_LAST, psn + 2, 128); /* ahead */
			ck_assert_uint_eq(f->placements.count, 0);
		}
		psn++;
	}
	for (int i = 0; i < 160; i++)
		ck_assert_float_eq(dst[i], (float)(_i ? 1000 + 2 * i : i) + 0.5f);
	expect_wc(&f->recv_cq, 7, FRL_WC_SUCCESS);
	expect_no_wc(&f->recv_cq);
}
END_TEST

START_TEST(reduce_refusals)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });

	post_reduce(f, 0, 640, NULL); /* no whole number of elements */
	fixture_arrive(f, OP_SEND_ONLY, 0, 10);
	expect_refused(f, 0x61, 0, 0);
	expect_wc(&f->recv_cq, 7, FRL_WC_LOC_LEN_ERR);
	f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	post_reduce(f, 0, 640, f->memory + 8192);
	region_remove(&f->table, &f->read_only);
	fixture_arrive(f, OP_SEND_ONLY, 0, 8);
	expect_refused(f, 0x63, 0, 0);
	expect_wc(&f->recv_cq, 7, FRL_WC_LOC_PROT_ERR);
	/* A receive of nothing needs no operand, whatever its key is. */
	f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	post_reduce(f, 0, 0, f->memory);
	region_remove(&f->table, &f->read_only);
	fixture_arrive(f, OP_SEND_ONLY, 0, 0);
	expect_answer(f, ACK, 0, 1);
	expect_wc(&f->recv_cq, 7, FRL_WC_SUCCESS);
}
END_TEST

static const struct refusal_row {
	uint8_t opcode;
	enum key key;
	int32_t offset;
	uint32_t length;
	uint32_t deny;
	uint8_t nak; /* 0: accepted */
} refusal_rows[] = {
	{ OP_READ_REQUEST, LOCAL, 0, F_MEMORY, 0, 0 },
	{ OP_READ_REQUEST, LOCAL, 1, F_MEMORY, 0, 0x62 },
	{ OP_READ_REQUEST, LOCAL, -1, 1, 0, 0x62 },
	{ OP_READ_REQUEST, LOCAL, F_MEMORY, 1, 0, 0x62 },
	{ OP_READ_REQUEST, LOCAL, 0, 0x7fffffff, 0, 0x61 },
	{ OP_READ_REQUEST, READ_ONLY, 0, 1, 0, 0x62 },
	{ OP_READ_REQUEST, FOREIGN, 0, 1, 0, 0x62 },
	{ OP_READ_REQUEST, WRONG, 0, 1, 0, 0x62 },
	{ OP_READ_REQUEST, WRONG, -1, 0, 0, 0 }, /* of nothing: the key means nothing */
	{ OP_READ_REQUEST, LOCAL, 0, 1, FRL_ACCESS_REMOTE_READ, 0x61 },
	{ OP_READ_REQUEST, LOCAL, 0, 0, FRL_ACCESS_REMOTE_READ, 0x61 },
	{ OP_READ_REQUEST, LOCAL, 0, 1, FRL_ACCESS_REMOTE_ATOMIC | FRL_ACCESS_REMOTE_WRITE, 0 },
	{ OP_FETCH_ADD, LOCAL, F_MEMORY - 8, 0, 0, 0 },
	{ OP_FETCH_ADD, LOCAL, F_MEMORY, 0, 0, 0x62 },
	{ OP_FETCH_ADD, LOCAL, -8, 0, 0, 0x62 },
	{ OP_FETCH_ADD, LOCAL, 4, 0, 0, 0x61 },
	{ OP_CMP_SWAP, LOCAL, 1, 0, 0, 0x61 }, /* peer_resp_atomic_misaligned */
	{ OP_CMP_SWAP, WRONG, 1, 0, 0, 0x62 },
	{ OP_CMP_SWAP, READ_ONLY, 0, 0, 0, 0x62 },
	{ OP_CMP_SWAP, FOREIGN, 0, 0, 0, 0x62 },
	{ OP_CMP_SWAP, LOCAL, 0, 0, FRL_ACCESS_REMOTE_ATOMIC, 0x61 },
	{ OP_FETCH_ADD, LOCAL, 0, 0, FRL_ACCESS_REMOTE_READ | FRL_ACCESS_REMOTE_WRITE, 0 },
};

START_LOOP_TEST(refusals, ROWS(refusal_rows))
{
	const struct refusal_row *row = &refusal_rows[_i];
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE, .deny = row->deny });
	const uint32_t keys[] = { f->local.key, f->read_only.key, f->foreign.key,
		f->local.key ^ 0x10000 };
	uint64_t at = (uintptr_t)f->memory + (uint64_t)(int64_t)row->offset;

	fixture_recv(f, 1, 0, 10);
	if (row->opcode == OP_READ_REQUEST)
		read_key(f, BASE, at, row->length, keys[row->key]);
	else
		atomic_key(f, row->opcode, BASE, at, 1, 2, keys[row->key]);
	if (row->nak) {
		ck_assert_ptr_null(f->placements.atomic.addr);
		expect_event(&f->qp.events,
			row->nak == 0x62 ? FRL_EVENT_QP_ACCESS_ERR : FRL_EVENT_QP_REQ_ERR);
		expect_refused(f, row->nak, BASE, 0);
		expect_wc(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR);
		return;
	}
	ck_assert_uint_eq(fixture_output(f), packets_for(row->length, MTU));
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	expect_no_event(&f->qp.events);
}
END_TEST

/* 9.7.5.2: a NAK in place of the response; whatever was to follow does not. */
START_LOOP_TEST(memory_gone_while_streaming, 3)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });

	fixture_recv(f, 1, 0, 10);
	read_key(f, BASE, fixture_va(f, 0), 3 * MTU, f->local.key);
	fixture_arrive_write(f, OP_WRITE_ONLY, BASE + 3, 8, fixture_va(f, 0), f->moved.key ^ 1, 8);
	if (_i == 0) { /* in ERR already, since another request was refused: the older NAK counts */
		ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
		expect_event(&f->qp.events, FRL_EVENT_QP_ACCESS_ERR);
	} else {
		f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });
		fixture_recv(f, 1, 0, 10);
		read_key(f, BASE, fixture_va(f, 0), 3 * MTU, f->local.key);
		read_key(f, BASE + 3, fixture_va(f, 0), 3 * MTU, f->local.key);
		atomic_key(f, OP_FETCH_ADD, BASE + 6, fixture_va(f, 0), 1, 0, f->local.key);
		fixture_arrive_write(
			f, OP_WRITE_ONLY, BASE + 7, 8, fixture_va(f, 0), f->local.key, 8);
	}
	ck_assert_uint_eq(qp_output(&f->qp, f->out, 1, f->now_ns), 1);
	f->n_out = 1;
	expect_out(f, 0, OP_READ_RESP_FIRST, BASE, MTU, false);
	if (_i == 2)
		f->local.access &= ~(uint32_t)FRL_ACCESS_REMOTE_READ;
	else
		region_remove(&f->table, &f->local);
	expect_answer(f, 0x62, BASE + 1, _i ? 4 : 1);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	if (_i)
		expect_event(&f->qp.events, FRL_EVENT_QP_ACCESS_ERR);
	expect_no_event(&f->qp.events);
	expect_silence(f);
	expect_wc(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR);
}
END_TEST

/* A READ through a window that a later SEND has invalidated. */
START_TEST(window_gone_while_streaming)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });
	const struct frl_mw_bind bind = { .addr = fixture_va(f, 4096),
		.length = 2 * MTU,
		.rkey = frl_inc_rkey(f->window.key),
		.access = FRL_ACCESS_REMOTE_READ };
	struct wire_packet packet = fixture_packet(f, OP_SEND_ONLY_INV, BASE + 4, 0);

	ck_assert(region_bind(&f->table, &f->window, &f->local, &bind, &f->qp));
	fixture_recv(f, 1, 0, 10);
	packet.h.invalidate_rkey = bind.rkey;
	read_key(f, BASE, fixture_va(f, 4096), 2 * MTU, bind.rkey);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_out(f, 1, OP_READ_RESP_LAST, BASE + 1, MTU, false);
	ck_assert_ptr_eq(f->out[1].pieces[0].addr, f->memory + 4096 + MTU);
	ck_assert_ptr_eq(f->out[1].pieces[0].region, &f->local);
	read_key(f, BASE + 2, fixture_va(f, 4096), 2 * MTU, bind.rkey);
	fixture_input(f, &packet);
	expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
	expect_answer(f, 0x62, BASE + 2, 3);
}
END_TEST

/* The same, invalidated in the output that sends the response: its packet stays good. */
START_TEST(window_gone_in_the_same_output)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });
	const struct frl_mw_bind bind = { .addr = fixture_va(f, 4096),
		.length = MTU,
		.rkey = frl_inc_rkey(f->window.key),
		.access = FRL_ACCESS_REMOTE_READ };

	ck_assert(region_bind(&f->table, &f->window, &f->local, &bind, &f->qp));
	read_key(f, BASE, fixture_va(f, 4096), MTU, bind.rkey);
	fixture_post(f,
		&(struct frl_send_wr){ .wr_id = 1,
			.opcode = FRL_WR_LOCAL_INV,
			.flags = FRL_SEND_SIGNALED,
			.invalidate_rkey = bind.rkey },
		NULL);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	ck_assert_ptr_null(f->window.parent);
	expect_out(f, 0, OP_READ_RESP_ONLY, BASE, MTU, false);
	ck_assert_ptr_eq(f->out[0].pieces[0].region, &f->local);
}
END_TEST

/* The peer may read what leaves; its size is bounded. */
static void check_answers(const struct fixture *f)
{
	uint32_t pending = 0;
	bool waits = resource_pending_until(&f->qp, f->qp.responder.epsn);

	for (uint32_t i = 0; i < f->n_out; i++)
		for (uint32_t k = 0; k < f->out[i].n_pieces; k++) {
			const struct packet_piece *piece = &f->out[i].pieces[k];

			ck_assert(f->out[i].response);
			ck_assert_ptr_nonnull(piece->region);
			ck_assert(piece->addr >= f->memory &&
				piece->addr + piece->length <= f->memory + F_MEMORY);
			ck_assert_uint_le(piece->length, MTU);
		}
	for (uint32_t i = 0; i < FRL_MAX_RD_ATOMIC; i++) {
		const struct responder_resource *resource = &f->qp.responder.resources[i];

		pending += resource->pending;
		/* The oldest comes first. */
		if (resource->pending)
			ck_assert(resource_pending_until(&f->qp, resource->next));
	}
	ck_assert_uint_eq(pending, f->qp.responder.n_pending);
	ck_assert_int_eq(pending != 0, waits);
}

/* A peer that tries keys, addresses, lengths and PSNs: nothing outside of the regions is reached,
 * and whatever it has sent, a queue pair that still works answers what comes in order. */
START_TEST(malicious_peer)
{
	static const uint8_t opcodes[] = { OP_READ_REQUEST, OP_READ_REQUEST, OP_FETCH_ADD,
		OP_CMP_SWAP, OP_WRITE_ONLY, OP_WRITE_FIRST, OP_SEND_ONLY, OP_SEND_ONLY_INV };
	struct random_state random;
	uint32_t failed = 0;

	random_seed(&random, 7);
	for (int round = 0; round < 300; round++) {
		struct fixture *f = fixture_new(
			&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });

		f->huge.access = 0; /* does not exist */
		f->qp.responder.resource_tail = f->qp.responder.resource_cursor = UINT32_MAX -
			(uint32_t)(round % 20);
		for (int i = 0; i < 60 && f->qp.state == FRL_QPS_RTS; i++) {
			uint64_t dice = random_u64(&random);
			uint32_t keys[] = { f->local.key, f->moved.key, f->local.key,
				(uint32_t)random_u64(&random), f->local.key + (dice >> 8 & 1) };
			uint32_t near = (uint32_t)(dice >> 16 & 0xff) < 200 ? 0 : (dice >> 24 & 15);
			struct wire_packet packet = fixture_packet(
				f, opcodes[dice & 7], f->qp.responder.epsn.value - near, 0);
			uint64_t at = (dice >> 32) % (F_MEMORY + 16) & ~UINT64_C(7);

			packet.h.reth = (struct reth){
				.va = (dice >> 12 & 1 ? fixture_va(f, 0) : F_IOVA) + at,
				.rkey = keys[(dice >> 9 & 7) % 5],
				.dma_length = (uint32_t)random_u64(&random) >> (dice >> 40 & 31),
			};
			if (packet.op->operation == OPERATION_WRITE)
				packet.payload_len = dice >> 20 & 1
					? MTU
					: packet.h.reth.dma_length % (MTU + 1);
			if (packet.h.bth.opcode == OP_WRITE_ONLY && (dice >> 21 & 3))
				packet.h.reth.dma_length = packet.payload_len;
			fixture_input(f, &packet);
			fixture_place(f);
			f->n_out = qp_output(&f->qp, f->out, dice >> 52 & 3, f->now_ns);
			check_answers(f);
		}
		f->n_out = qp_output(&f->qp, f->out, F_OUT, f->now_ns);
		check_answers(f);
		failed += f->qp.state == FRL_QPS_ERR;
	}
	ck_assert_uint_gt(failed, 0);
}
END_TEST

TEST_FILE(responder_memory)
