/* SPDX-License-Identifier: BSD-3-Clause */
/* Responses to READs and atomics: which fit, and where they go. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <string.h>

/* Responses of the right PSN that are wrong otherwise. The READ has packets 0 to 2, of 2148 bytes;
 * `psn` of them have come. */
static const struct bad_row {
	uint8_t opcode;
	uint32_t psn;
	uint32_t length;
	bool good;
} bad_rows[] = {
	{ OP_READ_RESP_FIRST, 0, 1024, true },
	{ OP_READ_RESP_MIDDLE, 0, 1024, true },
	{ OP_READ_RESP_FIRST, 1, 1024, true },
	{ OP_READ_RESP_MIDDLE, 1, 1024, true },
	{ OP_READ_RESP_LAST, 2, 100, true },
	{ OP_READ_RESP_ONLY, 2, 100, true },
	{ OP_READ_RESP_FIRST, 0, 1023, false },
	{ OP_READ_RESP_FIRST, 0, 1025, false },
	{ OP_READ_RESP_FIRST, 0, 0, false },
	{ OP_READ_RESP_MIDDLE, 0, 100, false },
	{ OP_READ_RESP_LAST, 0, 1024, false },
	{ OP_READ_RESP_ONLY, 0, 1024, false },
	{ OP_READ_RESP_ONLY, 0, 100, false },
	{ OP_READ_RESP_MIDDLE, 1, 1028, false },
	{ OP_READ_RESP_LAST, 1, 100, false },
	{ OP_READ_RESP_LAST, 1, 1024, false },
	{ OP_READ_RESP_LAST, 2, 99, false },
	{ OP_READ_RESP_LAST, 2, 101, false },
	{ OP_READ_RESP_LAST, 2, 0, false },
	{ OP_READ_RESP_ONLY, 2, 1024, false },
	{ OP_READ_RESP_FIRST, 2, 100, false },
	{ OP_READ_RESP_MIDDLE, 2, 1024, false },
	{ OP_ATOMIC_ACK, 0, 0, false },
	{ OP_ATOMIC_ACK, 2, 0, false },
};

START_LOOP_TEST(response_does_not_fit, ROWS(bad_rows))
{
	const struct bad_row *row = &bad_rows[_i];
	struct fixture *f = fixture_new(NULL);

	fixture_send_flags(f, 1, 1, FRL_SEND_SIGNALED);
	fixture_send(f, 2, FRL_WR_RDMA_READ, 2148);
	fixture_send(f, 3, FRL_WR_SEND, 1);
	fixture_output(f);
	for (uint32_t psn = 0; psn < row->psn; psn++)
		fixture_arrive(f, OP_READ_RESP_MIDDLE, 1 + psn, 1024);
	fixture_arrive(f, row->opcode, 1 + row->psn, row->length);
	ck_assert_uint_eq(f->placements.count, row->good);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	if (row->good) {
		ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
		return;
	}
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_wc(&f->send_cq, 2, FRL_WC_BAD_RESP_ERR);
	expect_wc(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR);
}
END_TEST

START_LOOP_TEST(other_response_to_an_atomic, 4)
{
	static const uint8_t opcodes[] = { OP_READ_RESP_FIRST, OP_READ_RESP_MIDDLE,
		OP_READ_RESP_LAST, OP_READ_RESP_ONLY };
	struct fixture *f = fixture_new(NULL);

	fixture_send(f, 1, FRL_WR_ATOMIC_FETCH_AND_ADD, 8);
	fixture_output(f);
	fixture_arrive(f, opcodes[_i], 0, 8);
	ck_assert_uint_eq(f->placements.count, 0);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_wc(&f->send_cq, 1, FRL_WC_BAD_RESP_ERR);
}
END_TEST

/* A response has an ACK's syndrome, and an ATOMIC ACKNOWLEDGE no payload; others are dropped. */
START_TEST(response_with_another_syndrome)
{
	static const uint8_t syndromes[] = { 0x20, 0x3f, 0x40, 0x60, 0x62, 0x80, 0x9f, 0xff };
	struct fixture *f = fixture_new(NULL);
	struct wire_packet packet;

	fixture_send(f, 1, FRL_WR_RDMA_READ, 8);
	fixture_send(f, 2, FRL_WR_ATOMIC_CMP_AND_SWP, 8);
	fixture_output(f);
	for (uint32_t i = 0; i < sizeof(syndromes); i++) {
		packet = fixture_packet(f, OP_READ_RESP_ONLY, 0, 8);
		packet.h.aeth.syndrome = syndromes[i];
		fixture_input(f, &packet);
		ck_assert_uint_eq(f->stats.drop_bad_aeth, i + 1);
	}
	fixture_arrive(f, OP_READ_RESP_ONLY, 0, 8);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	fixture_arrive(f, OP_ATOMIC_ACK, 1, 8);
	expect_no_wc(&f->send_cq);
	packet = fixture_packet(f, OP_ATOMIC_ACK, 1, 0);
	packet.h.aeth.syndrome = 0; /* any credits */
	fixture_input(f, &packet);
	expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
}
END_TEST

/* Responses go into the elements in turn, wherever packets end; so does the value of an atomic. */
START_TEST(several_elements)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256 });
	uint8_t *m = f->memory;
	struct frl_sge sge[4] = { { m, 100, f->local.key }, { m, 0, 0xdead },
		{ (void *)(uintptr_t)(F_IOVA + 1000), 300, f->moved.key },
		{ m + 3000, 112, f->local.key } };
	struct frl_sge bytes[3] = { { m + 4001, 3, f->local.key }, { m + 4100, 4, f->local.key },
		{ m + 4200, 1, f->local.key } };
	const uint64_t value = UINT64_C(0x8877665544332211);
	uint8_t all[512];

	fixture_post(f,
		&(struct frl_send_wr){
			.opcode = FRL_WR_RDMA_READ, .sge = sge, .n_sge = 4, .rkey = 1 },
		NULL);
	fixture_post(f,
		&(struct frl_send_wr){
			.opcode = FRL_WR_ATOMIC_FETCH_AND_ADD, .sge = bytes, .n_sge = 3 },
		NULL);
	fixture_output(f);
	for (uint32_t psn = 0; psn < 2; psn++) {
		struct wire_packet packet = fixture_packet(
			f, psn ? OP_READ_RESP_LAST : OP_READ_RESP_FIRST, psn, 256);

		packet.payload = f->peer + psn * 256;
		fixture_input(f, &packet);
		fixture_place(f);
	}
	memcpy(all, m, 100);
	memcpy(all + 100, m + 1000, 300);
	memcpy(all + 400, m + 3000, 112);
	ck_assert_mem_eq(all, f->peer, 512);
	fixture_input(f,
		&(struct wire_packet){ .h.bth = fixture_packet(f, OP_ATOMIC_ACK, 2, 0).h.bth,
			.h.aeth.syndrome = 0x1f,
			.h.atomic_original = value,
			.op = &opcode_table[OP_ATOMIC_ACK],
			.src_ip = fixture_packet(f, OP_ATOMIC_ACK, 2, 0).src_ip });
	ck_assert_uint_eq(f->placements.count, 3);
	fixture_place(f);
	memcpy(all, m + 4001, 3);
	memcpy(all + 3, m + 4100, 4);
	memcpy(all + 7, m + 4200, 1);
	ck_assert_mem_eq(all, &value, 8);
}
END_TEST

/* The region of a READ or atomic goes while it is out: nothing is placed, and the request fails. */
START_LOOP_TEST(region_gone, 2)
{
	struct fixture *f = fixture_new(NULL);
	struct frl_sge sge = { (void *)(uintptr_t)F_IOVA, 8, f->moved.key };
	struct frl_send_wr wr = { .wr_id = 2, .sge = &sge, .n_sge = 1 };

	wr.opcode = _i ? FRL_WR_RDMA_READ : FRL_WR_ATOMIC_FETCH_AND_ADD;
	fixture_send(f, 1, FRL_WR_RDMA_READ, 8);
	fixture_post(f, &wr, NULL);
	fixture_send(f, 3, FRL_WR_SEND, 8);
	ck_assert_uint_eq(fixture_output(f), 3);
	region_remove(&f->table, &f->moved);
	fixture_arrive(f, OP_READ_RESP_ONLY, 0, 8);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	fixture_arrive(f, _i ? OP_READ_RESP_ONLY : OP_ATOMIC_ACK, 1, _i ? 8 : 0);
	ck_assert_uint_eq(f->placements.count, 0);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_wc(&f->send_cq, 2, FRL_WC_LOC_PROT_ERR);
	expect_wc(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR);
}
END_TEST

/* 2 GiB is one request, and the packet that asks for its last byte again too. */
START_TEST(longest_read)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 512, .retry_cnt = 1 });
	struct frl_sge sge = { f->huge.addr, 0x80000000, f->huge.key };
	struct frl_send_wr wr = { .wr_id = 1,
		.opcode = FRL_WR_RDMA_READ,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
		.remote_addr = UINT64_C(0xffffffff00000000) };
	const uint32_t packets = 1 << 22;

	fixture_post(f, &wr, NULL);
	ck_assert_uint_eq(fixture_output(f), 1);
	ck_assert_uint_eq(f->out[0].h.reth.dma_length, 0x80000000);
	for (uint32_t psn = 0; psn + 1 < packets; psn++) {
		struct wire_packet packet = fixture_packet(f, OP_READ_RESP_MIDDLE, psn, 512);

		qp_input(&f->qp, &packet, &f->placements, f->now_ns);
		ck_assert_uint_eq(f->placements.count, 1);
	}
	fixture_deadline(f);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_READ_REQUEST, packets - 1, 0, true);
	ck_assert_uint_eq(f->out[0].h.reth.dma_length, 512);
	ck_assert_uint_eq(f->out[0].h.reth.va, UINT64_C(0xffffffff7ffffe00));
	fixture_arrive(f, OP_READ_RESP_ONLY, packets - 1, 512);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
}
END_TEST

TEST_FILE(read_response)
