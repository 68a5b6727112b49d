/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames that go on in memory which the processor does not reach: received, and sent from there. */
#include <stdlib.h>
#include <string.h>

#include "lib/engine/offload/transfers.h"
#include "lib/wire/checksum.h"
#include "tests/unit/engine/offload/engine_far.h"
#include "tests/fixtures/program.h"
#include "tests/vectors/frame.h"

/* Nothing is fetched: the payload goes from both parts to where it belongs, and the frame stays
 * until it has. */
START_LOOP_TEST(goes_directly, 2)
{
	enum { LENGTH = 3 * HOST_MTU + 150 };

	open_far(false);
	if (_i)
		pair.mock.reaches_one_in = 0;
	offload_post_recv(pair.b, 1, 5, 100, LENGTH);
	offload_fill(pair.a->memory, LENGTH);
	send_from_a(0, FRL_WR_SEND, LENGTH);
	offload_settle(&pair);
	host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_no_wc(&pair.b->cqs[1]);
	ck_assert_uint_eq(pair.mock.given, 8);
	ck_assert_uint_eq(pair.b->port.n_out, 4);
	for (uint32_t k = 0; k < 8; k++) {
		host_expect_no_wc(&pair.b->cqs[1]);
		mock_offload_step(&pair.mock, 1);
		offload_settle(&pair);
	}
	host_expect_wc(&pair.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(pair.memory->view + 100, 0, LENGTH);
	ck_assert_uint_eq(pair.memory->view[99], 0);
	ck_assert_uint_eq(pair.memory->view[100 + LENGTH], 0);
	ck_assert_uint_eq(pair.b->port.n_out, 0);
	ck_assert_uint_eq(pair.b->engine.stats.offload_fetched, 0);
	ck_assert_uint_eq(pair.b->engine.stats.offload_direct, LENGTH - 4 * NEAR);
	ck_assert_uint_eq(pair.b->engine.stats.offload_placed, 4 * NEAR);
	offload_pair_close(&pair);
}
END_TEST

/* A WRITE, whose packets have different headers, and one that tells of itself. */
START_TEST(writes_directly)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_RDMA_WRITE_WITH_IMM, .wr_id = 1 };

	open_far(false);
	wr.remote_addr = pair.region.iova + 10;
	wr.rkey = pair.region.key;
	host_post_recv(pair.b, 1, 5, 0, 0);
	offload_fill(pair.a->memory, 2 * HOST_MTU + 91);
	host_post(pair.a, 0, wr, 0, 2 * HOST_MTU + 91, NULL);
	offload_settle(&pair);
	host_expect_no_wc(&pair.b->cqs[1]);
	release_all();
	host_expect_wc(&pair.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(pair.memory->view + 10, 0, 2 * HOST_MTU + 91);
	ck_assert_uint_eq(pair.b->engine.stats.offload_fetched, 0);
	ck_assert_uint_eq(pair.b->engine.stats.offload_direct,
		2 * HOST_MTU + 91 - NEAR_WRITE - NEAR - (NEAR - IMMDT_LEN));
	offload_pair_close(&pair);
}
END_TEST

/* Elements of several regions, of which the seam is in one. */
START_LOOP_TEST(scatters_directly, 3)
{
	struct frl_sge sge[2];
	struct frl_recv_wr wr = { .wr_id = 5, .sge = sge, .n_sge = 2 };
	const char *why = "";

	open_far(false);
	/* Element by element: before the seam, across it, behind it; or one of them elsewhere. */
	sge[0] = (struct frl_sge){ pair.memory->there, _i == 1 ? 100 : 30, pair.region.key };
	sge[1] = (struct frl_sge){ pair.memory->there + 1000, 200, pair.region.key };
	if (_i == 2)
		sge[1] = (struct frl_sge){ pair.b->memory, 200, pair.b->region.key };
	ck_assert_msg(qp_post_recv(&pair.b->qps[1].qp.core, &wr, &why) == 0, "%s", why);
	offload_fill(pair.a->memory, 220);
	send_from_a(0, FRL_WR_SEND, 220);
	release_all();
	host_expect_wc(&pair.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(pair.memory->view, 0, sge[0].length);
	if (_i < 2)
		offload_expect(pair.memory->view + 1000, sge[0].length, 220 - sge[0].length);
	else
		for (uint32_t i = 30; i < 220; i++)
			ck_assert_uint_eq(pair.b->memory[i - 30], offload_byte(i));
	ck_assert_uint_eq(pair.b->engine.stats.offload_fetched > 0, _i == 2);
	offload_pair_close(&pair);
}
END_TEST

/* An element of a reduction that is in both parts cannot be added up there: it is fetched. */
START_LOOP_TEST(reduces, 4)
{
	enum { N = 24 };
	struct frl_send_wr wr = { .wr_id = 1,
		.opcode = _i & 1 ? FRL_WR_SEND_WITH_IMM : FRL_WR_SEND };
	struct frl_sge sge;
	struct frl_recv_wr recv = { .wr_id = 5, .sge = &sge, .n_sge = 1 };
	double *there, in[N];
	const char *why = "";

	open_far(false);
	sge = (struct frl_sge){ pair.memory->there, sizeof(in), pair.region.key };
	there = (double *)(void *)pair.memory->view;
	recv.action = (struct frl_recv_action){ .type = FRL_ACTION_REDUCE,
		.dtype = FRL_FLOAT64,
		.op = FRL_SUM,
		.src = _i & 2 ? pair.memory->there + 4096 : NULL,
		.src_lkey = pair.region.key };
	for (unsigned i = 0; i < N; i++) {
		in[i] = i;
		there[i] = there[i + 512] = 1000;
	}
	memcpy(pair.a->memory, in, sizeof(in));
	ck_assert_msg(qp_post_recv(&pair.b->qps[1].qp.core, &recv, &why) == 0, "%s", why);
	host_post(pair.a, 0, wr, 0, sizeof(in), NULL);
	release_all();
	host_expect_wc(&pair.b->cqs[1], 5, FRL_WC_SUCCESS);
	for (unsigned i = 0; i < N; i++)
		ck_assert(there[i] == 1000.0 + i);
	ck_assert_uint_eq(pair.b->engine.stats.offload_fetched > 0, _i & 1);
	offload_pair_close(&pair);
}
END_TEST

/* The results of READs: into memory there, and into host memory. */
START_LOOP_TEST(reads, 2)
{
	struct frl_send_wr wr = { .wr_id = 3, .opcode = FRL_WR_RDMA_READ };

	open_far(false);
	offload_fill(pair.a->memory, 3 * HOST_MTU);
	wr.remote_addr = (uintptr_t)pair.a->memory;
	wr.rkey = pair.a->region.key;
	if (_i)
		host_post(pair.b, 1, wr, 0, 3 * HOST_MTU, NULL);
	else
		offload_post(pair.b, 1, wr, 0, 3 * HOST_MTU);
	offload_settle(&pair);
	host_expect_no_wc(&pair.b->cqs[1]);
	release_all();
	host_expect_wc(&pair.b->cqs[1], 3, FRL_WC_SUCCESS);
	if (_i)
		offload_expect(pair.b->memory, 0, 3 * HOST_MTU);
	else
		offload_expect(pair.memory->view, 0, 3 * HOST_MTU);
	ck_assert_uint_eq(pair.b->engine.stats.offload_fetched > 0, _i);
	ck_assert_uint_eq(pair.b->engine.stats.timeouts, 0);
	offload_pair_close(&pair);
}
END_TEST

/* A WRITE into host memory is not acknowledged before its bytes are there. */
START_LOOP_TEST(host_memory_is_written_first, 2)
{
	open_far(_i);
	offload_fill(pair.a->memory, 300);
	write_to(0, &pair.b->region, 2000, 300);
	offload_settle(&pair);
	host_expect_no_wc(&pair.a->cqs[0]);
	ck_assert_uint_eq(pair.b->memory[2000], HOST_FILL);
	ck_assert(engine_offloads_busy(&pair.b->engine));
	release_all();
	host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	offload_expect(pair.b->memory + 2000, 0, 300);
	ck_assert_uint_eq(pair.b->memory[2300], HOST_FILL);
	ck_assert(!engine_offloads_busy(&pair.b->engine));
	offload_pair_close(&pair);
}
END_TEST

/* With an ICRC nothing is placed that has not been seen: it is fetched, and goes back. */
START_TEST(seen_before_it_is_placed)
{
	open_far(true);
	offload_post_recv(pair.b, 1, 5, 0, 2 * HOST_MTU);
	offload_fill(pair.a->memory, 2 * HOST_MTU);
	send_from_a(0, FRL_WR_SEND, 2 * HOST_MTU);
	offload_settle(&pair);
	host_expect_no_wc(&pair.a->cqs[0]);
	ck_assert_uint_eq(pair.mock.given, 2);
	mock_offload_step(&pair.mock, 2);
	offload_settle(&pair);
	/* Acknowledged: it has been taken in, and is on its way. */
	host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_no_wc(&pair.b->cqs[1]);
	ck_assert_uint_eq(pair.b->port.n_out, 0);
	release_all();
	host_expect_wc(&pair.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(pair.memory->view, 0, 2 * HOST_MTU);
	ck_assert_uint_eq(pair.b->engine.stats.offload_direct, 0);
	offload_pair_close(&pair);
}
END_TEST

/* A UDP checksum, which others may send: whether the NIC has verified it, and whether it is
 * right. */
static const struct {
	bool by_nic, is_right;
} checksums[] = { { false, true }, { false, false }, { true, true }, { true, false } };

/* Unverified payload is fetched, verified, and only then placed. */
START_LOOP_TEST(udp_checksum, ROWS(checksums))
{
	bool by_nic = checksums[_i].by_nic, is_taken = by_nic || checksums[_i].is_right;
	const struct frl_ip *from, *to;
	uint8_t *udp;
	uint16_t len;

	open_far(false);
	pair.b->port.far_checked = by_nic;
	offload_post_recv(pair.b, 1, 5, 0, 200);
	offload_fill(pair.a->memory, 200);
	send_from_a(0, FRL_WR_SEND, 200);
	host_poll(pair.a);
	host_carry(pair.a, pair.b);
	udp = pair.b->port.rx[0].data + ETH_LEN + IPV4_LEN;
	len = get_be16(udp + 4);
	ck_assert_uint_eq(get_be16(udp + 6), 0);
	from = &pair.a->engine.gids.gids[HOST_GID_V4].ip;
	to = &pair.b->engine.gids.gids[HOST_GID_V4].ip;
	checksum_store(udp + 6, checksum_add(checksum_pseudo(from, to, 17, len), udp, len));
	if (!checksums[_i].is_right)
		udp[7] ^= 1;
	release_all();
	ck_assert_uint_eq(pair.b->engine.stats.drop_bad_udp, !is_taken);
	ck_assert_uint_eq(pair.b->engine.stats.offload_fetched > 0, !by_nic);
	ck_assert_uint_eq(pair.b->engine.stats.offload_direct > 0, by_nic);
	if (!is_taken) {
		ck_assert_uint_eq(pair.memory->view[0], 0);
		pair.a->now_ns += 500 * MS;
		offload_settle(&pair);
	}
	host_expect_wc(&pair.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(pair.memory->view, 0, 200);
	offload_pair_close(&pair);
}
END_TEST

START_TEST(damaged_on_its_way)
{
	open_far(true);
	offload_post_recv(pair.b, 1, 5, 0, HOST_MTU);
	offload_fill(pair.a->memory, HOST_MTU);
	send_from_a(0, FRL_WR_SEND, HOST_MTU);
	host_poll(pair.a);
	host_carry(pair.a, pair.b);
	pair.b->port.rx[0].data[200] ^= 1;
	release_all();
	ck_assert_uint_eq(pair.b->engine.stats.drop_bad_icrc, 1);
	host_expect_no_wc(&pair.a->cqs[0]);
	ck_assert_uint_eq(pair.memory->view[0], 0);
	pair.a->now_ns += 500 * MS;
	offload_settle(&pair);
	host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_wc(&pair.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(pair.memory->view, 0, HOST_MTU);
	offload_pair_close(&pair);
}
END_TEST

/* A short packet behind one that is being fetched waits; that of another queue pair does not. */
START_TEST(order_of_a_stream)
{
	const struct host_qp_config plain = { .capabilities = FRL_CAP_NO_ICRC };

	open_far(false);
	host_pair(pair.a, 2, pair.b, 2, &plain);
	write_to(0, &pair.b->region, 2000, 200);
	host_post_recv(pair.b, 1, 5, 0, 16);
	host_post_recv(pair.b, 2, 6, 64, 16);
	send_from_a(0, FRL_WR_SEND, 16);
	send_from_a(2, FRL_WR_SEND, 16);
	offload_settle(&pair);
	host_expect_wc(&pair.b->cqs[2], 6, FRL_WC_SUCCESS);
	host_expect_no_wc(&pair.b->cqs[1]);
	ck_assert_uint_eq(pair.b->qps[1].qp.offloads->deferred[0], 2);
	/* So does one that could go directly. */
	offload_post_recv(pair.b, 1, 7, 0, 200);
	send_from_a(0, FRL_WR_SEND, 200);
	offload_settle(&pair);
	ck_assert_uint_eq(pair.b->qps[1].qp.offloads->deferred[0], 3);
	release_all();
	host_expect_wc(&pair.b->cqs[1], 5, FRL_WC_SUCCESS);
	host_expect_wc(&pair.b->cqs[1], 7, FRL_WC_SUCCESS);
	ck_assert_uint_eq(pair.b->qps[1].qp.offloads->deferred[0], 0);
	ck_assert_uint_eq(pair.b->engine.stats.out_of_sequence, 0);
	offload_pair_close(&pair);
}
END_TEST

/* The answers of the peer wait behind one of them, and its timer with them. */
START_TEST(answers_wait)
{
	struct frl_send_wr wr = { .wr_id = 3, .opcode = FRL_WR_RDMA_READ };

	open_far(false);
	wr.remote_addr = (uintptr_t)pair.a->memory;
	wr.rkey = pair.a->region.key;
	host_post(pair.b, 1, wr, 0, 200, NULL);
	wr.wr_id = 4;
	host_post(pair.b, 1, wr, 1000, 8, NULL);
	offload_settle(&pair);
	ck_assert_uint_eq(pair.b->qps[1].qp.offloads->deferred[1], 2);
	for (unsigned k = 0; k < 20; k++) {
		pair.a->now_ns += 500 * MS;
		offload_settle(&pair);
	}
	ck_assert_int_eq(pair.b->qps[1].qp.core.state, FRL_QPS_RTS);
	ck_assert_uint_eq(pair.b->engine.stats.timeouts, 0);
	release_all();
	host_expect_wc(&pair.b->cqs[1], 3, FRL_WC_SUCCESS);
	host_expect_wc(&pair.b->cqs[1], 4, FRL_WC_SUCCESS);
	offload_pair_close(&pair);
}
END_TEST

/* All of it comes twice while it is deferred. */
START_LOOP_TEST(twice, 2)
{
	open_far(_i);
	offload_fill(pair.a->memory, 3 * HOST_MTU);
	write_to(0, &pair.b->region, 2000, 3 * HOST_MTU);
	host_poll(pair.a);
	for (unsigned k = 0; k < 2; k++) {
		uint32_t n = pair.a->port.n_sent;

		host_carry(pair.a, pair.b);
		pair.a->port.n_sent = k ? 0 : n;
		host_poll(pair.b);
	}
	release_all();
	ck_assert_uint_eq(pair.b->engine.stats.duplicates, 3);
	host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	offload_expect(pair.b->memory + 2000, 0, 3 * HOST_MTU);
	offload_pair_close(&pair);
}
END_TEST

/* ---- sending out of memory that the NIC reaches */

static int port_mem;

static void make_region_sendable(void)
{
	pair.region.port_mem = &port_mem;
	fake_port_set_view(pair.memory->there, pair.memory->view, pair.memory->size);
}

/* By reference, without an ICRC; else as ever. */
START_LOOP_TEST(sends_directly, 2)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_RDMA_WRITE, .wr_id = 9 };

	open_far(_i);
	make_region_sendable();
	wr.remote_addr = pair.a->region.iova;
	wr.rkey = pair.a->region.key;
	offload_fill(pair.memory->view, 600);
	offload_post(pair.b, 1, wr, 0, 600);
	host_poll(pair.b);
	if (_i) {
		ck_assert_uint_eq(pair.mock.given, 3);
		release_all();
	} else {
		ck_assert_uint_eq(pair.mock.given, 0);
		ck_assert_uint_eq(pair.b->port.n_sent, 3);
		ck_assert(!pair.b->port.sent[0].packet.copy);
		ck_assert_ptr_eq(pair.b->port.sent[0].packet.pieces[0].mem, (void *)&port_mem);
		ck_assert_ptr_eq(pair.b->port.sent[0].packet.pieces[0].addr, pair.memory->there);
	}
	offload_settle(&pair);
	host_expect_wc(&pair.b->cqs[1], 9, FRL_WC_SUCCESS);
	for (uint32_t i = 0; i < 600; i++)
		ck_assert_uint_eq(pair.a->memory[i], offload_byte(i));
	offload_pair_close(&pair);
}
END_TEST

/* While it waits for the port the region stays. */
START_TEST(queued_by_reference)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_RDMA_WRITE, .wr_id = 9 };

	open_far(false);
	make_region_sendable();
	wr.remote_addr = pair.a->region.iova;
	wr.rkey = pair.a->region.key;
	pair.b->port.room[0] = 0;
	offload_post(pair.b, 1, wr, 0, 100);
	host_poll(pair.b);
	ck_assert(engine_region_queued(&pair.b->engine, &pair.region));
	pair.b->port.room[0] = FAKE_UNLIMITED;
	host_poll(pair.b);
	ck_assert(!engine_region_queued(&pair.b->engine, &pair.region));
	offload_settle(&pair);
	host_expect_wc(&pair.b->cqs[1], 9, FRL_WC_SUCCESS);
	offload_pair_close(&pair);
}
END_TEST

static void read_by(unsigned i, uint32_t offset, uint32_t length)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_RDMA_READ, .wr_id = 8 };

	wr.remote_addr = pair.region.iova + offset;
	wr.rkey = pair.region.key;
	host_post(pair.a, i, wr, 32768, length, NULL);
}

/* A READ, also of another queue pair, gets the bytes of an acknowledged WRITE that are still on
 * their way: they are fetched behind it. Other bytes of the region need not wait. */
START_LOOP_TEST(reads_what_was_written, 16)
{
	const struct host_qp_config plain = { .capabilities = FRL_CAP_NO_ICRC };
	uint32_t length = _i & 1 ? 8 : 100, offset = _i & 4 ? 400 : 10;

	open_far(false);
	make_region_sendable();
	host_pair(pair.a, 2, pair.b, 2, &plain);
	offload_fill(pair.a->memory, 512);
	/* The first half first, or last. */
	for (unsigned k = 0; k < 2; k++) {
		struct frl_send_wr wr = { .opcode = FRL_WR_RDMA_WRITE, .wr_id = 1 };
		uint32_t half = (k ^ (_i >> 3)) * 256;

		wr.remote_addr = pair.region.iova + half;
		wr.rkey = pair.region.key;
		host_post(pair.a, 0, wr, half, 256, NULL);
		offload_settle(&pair);
		host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	}
	ck_assert_uint_eq(pair.memory->view[0], 0);
	read_by(2, 2048, 64);
	offload_settle(&pair);
	host_expect_wc(&pair.a->cqs[2], 8, FRL_WC_SUCCESS);
	ck_assert_uint_eq(pair.mock.given, 4);
	read_by(_i & 2 ? 0 : 2, offset, length);
	offload_settle(&pair);
	host_expect_no_wc(&pair.a->cqs[_i & 2 ? 0 : 2]);
	ck_assert_uint_gt(pair.mock.given, 4);
	release_all();
	host_expect_wc(&pair.a->cqs[_i & 2 ? 0 : 2], 8, FRL_WC_SUCCESS);
	for (uint32_t i = 0; i < length; i++)
		ck_assert_uint_eq(pair.a->memory[32768 + i], offload_byte(offset + i));
	offload_pair_close(&pair);
}
END_TEST

TEST_FILE(engine_far)
