/* SPDX-License-Identifier: BSD-3-Clause */
/* Where arriving payload goes, and where it must not. */
#include "tests/unit/qp_fixture.h"

enum { MTU = 256, BASE = 0xfffffe, ACK = 0x1f };

static uint64_t va(const struct fixture *f, uint32_t offset)
{
	return (uintptr_t)f->memory + offset;
}

enum key { LOCAL, READ_ONLY, FOREIGN, WRONG };

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
};

START_TEST(access_rights)
{
	const struct access_row *row = &access_rows[_i];
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = BASE });
	const uint32_t keys[] = { f->local.key, f->read_only.key, f->foreign.key,
		f->local.key ^ 0x10000 };

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

START_TEST(access_of_long_writes)
{
	/* The whole range counts with the first packet, */
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });

	fixture_arrive_write(
		f, OP_WRITE_FIRST, 0, MTU, va(f, F_MEMORY - 2 * MTU), f->local.key, 2 * MTU + 1);
	expect_refused(f, 0x62, 0, 0);
	/* and a region may go in mid-message. */
	f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	fixture_arrive_write(f, OP_WRITE_FIRST, 0, MTU, va(f, 0), f->local.key, 3 * MTU);
	ck_assert_uint_eq(f->placements.count, 1);
	region_remove(&f->table, &f->local);
	fixture_arrive(f, OP_WRITE_MIDDLE, 1, MTU);
	expect_refused(f, 0x62, 1, 0);
	/* Without the right, any WRITE is an invalid request. */
	f = fixture_new(&(struct fixture_config){ .mtu = MTU, .no_remote_write = true });
	fixture_arrive_write(f, OP_WRITE_ONLY, 0, 0, 0, 0, 0);
	expect_refused(f, 0x61, 0, 0);
}
END_TEST

START_TEST(scatter)
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

static void post_reduce(struct fixture *f, uint32_t offset, uint32_t length, const void *src)
{
	struct frl_sge sge[2] = { { f->memory + offset, length / 8 * 4, f->local.key },
		{ f->memory + offset + length / 8 * 4, length - length / 8 * 4, f->local.key } };
	struct frl_recv_wr wr = { .wr_id = 7,
		.sge = sge,
		.n_sge = 2,
		.action = { .type = FRL_ACTION_REDUCE, .src = src, .src_lkey = f->read_only.key } };
	const char *why = "";

	ck_assert_msg(qp_post_recv(&f->qp, &wr, &why) == 0, "%s", why);
}

/* Each element once, whatever arrives how often; from dst itself, or from another place. */
START_TEST(reduce_exactly_once)
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

int main(void)
{
	Suite *suite = suite_create("responder_memory");
	TCase *tc = tcase_create("responder_memory");

	tcase_add_loop_test(tc, access_rights, 0, sizeof(access_rows) / sizeof(access_rows[0]));
	tcase_add_test(tc, access_of_long_writes);
	tcase_add_test(tc, scatter);
	tcase_add_test(tc, region_of_a_receive_gone);
	tcase_add_loop_test(tc, reduce_exactly_once, 0, 2);
	tcase_add_test(tc, reduce_refusals);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
