/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: each operation of connected queue pairs moves its bytes, and completes
 * with the right members. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

enum { LONG = 100000 }; /* bytes: many packets, the last one not full */

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC };
static const uint32_t lengths[] = { 0, 1, 1024, 1025, LONG };

static void start_type(int type)
{
	start(&(struct wants){ .type = types[type] });
}

static void check_sent(struct ibv_wc wc, enum ibv_wc_opcode opcode)
{
	ck_assert_int_eq(wc.opcode, opcode);
	ck_assert_uint_eq(wc.vendor_err, 0);
}

static void check_received(
	struct ibv_wc wc, enum ibv_wc_opcode opcode, uint32_t length, unsigned flags)
{
	ck_assert_int_eq(wc.opcode, opcode);
	ck_assert_uint_eq(wc.byte_len, length);
	ck_assert_uint_eq(wc.wc_flags, flags);
}

START_LOOP_TEST(sends, PAIRS(ROWS(types), ROWS(lengths)))
{
	uint32_t length = lengths[_i % ROWS(lengths)];
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	start_type(_i / ROWS(lengths));
	sge = sge_of(&a, 8, length);
	wr = request(1, IBV_WR_SEND, &sge);
	fill(&a, 8, length, 3);
	post_recv(&b, 2, 40, length + 10);
	post(&a, &wr);
	check_sent(expect(&a, 1, IBV_WC_SUCCESS), IBV_WC_SEND);
	wc = expect(&b, 2, IBV_WC_SUCCESS);
	check_received(wc, IBV_WC_RECV, length, 0);
	check_filled(&b, 40, length, 3);
	ck_assert_uint_eq(b.memory[40 + length], 0);
	expect_none(&a);
	expect_none(&b);
	finish();
}
END_TEST

START_LOOP_TEST(send_with_immediate, ROWS(types))
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	start_type(_i);
	sge = sge_of(&a, 0, 100);
	wr = request(1, IBV_WR_SEND_WITH_IMM, &sge);
	wr.imm_data = htonl(0x01020304);
	fill(&a, 0, 100, 1);
	post_recv(&b, 2, 0, 100);
	post(&a, &wr);
	check_sent(expect(&a, 1, IBV_WC_SUCCESS), IBV_WC_SEND);
	wc = expect(&b, 2, IBV_WC_SUCCESS);
	check_received(wc, IBV_WC_RECV, 100, IBV_WC_WITH_IMM);
	ck_assert_uint_eq(wc.imm_data, htonl(0x01020304));
	check_filled(&b, 0, 100, 1);
	finish();
}
END_TEST

START_LOOP_TEST(writes, PAIRS(ROWS(types), ROWS(lengths)))
{
	uint32_t length = lengths[_i % ROWS(lengths)];
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	start_type(_i / ROWS(lengths));
	sge = sge_of(&a, 0, length);
	wr = request(1, IBV_WR_RDMA_WRITE, &sge);
	aim(&wr, &b, 24);
	fill(&a, 0, length, 9);
	post(&a, &wr);
	check_sent(expect(&a, 1, IBV_WC_SUCCESS), IBV_WC_RDMA_WRITE);
	sync_ends(&a, &b);
	check_filled(&b, 24, length, 9);
	ck_assert_uint_eq(b.memory[24 + length], 0);
	expect_none(&b);
	finish();
}
END_TEST

/* The receive gives no memory, and its completion the length of the WRITE. */
START_LOOP_TEST(write_with_immediate, PAIRS(ROWS(types), ROWS(lengths)))
{
	uint32_t length = lengths[_i % ROWS(lengths)];
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	start_type(_i / ROWS(lengths));
	sge = sge_of(&a, 0, length);
	wr = request(1, IBV_WR_RDMA_WRITE_WITH_IMM, &sge);
	wr.imm_data = htonl(0xfffefdfc);
	aim(&wr, &b, 0);
	fill(&a, 0, length, 5);
	post_recv(&b, 2, 0, 0);
	post(&a, &wr);
	check_sent(expect(&a, 1, IBV_WC_SUCCESS), IBV_WC_RDMA_WRITE);
	wc = expect(&b, 2, IBV_WC_SUCCESS);
	check_received(wc, IBV_WC_RECV_RDMA_WITH_IMM, length, IBV_WC_WITH_IMM);
	ck_assert_uint_eq(wc.imm_data, htonl(0xfffefdfc));
	check_filled(&b, 0, length, 5);
	finish();
}
END_TEST

START_LOOP_TEST(reads, ROWS(lengths))
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	start_type(0);
	sge = sge_of(&a, 16, lengths[_i]);
	wr = request(1, IBV_WR_RDMA_READ, &sge);
	aim(&wr, &b, 3);
	fill(&b, 3, lengths[_i], 77);
	post(&a, &wr);
	wc = expect(&a, 1, IBV_WC_SUCCESS);
	check_sent(wc, IBV_WC_RDMA_READ);
	ck_assert_uint_eq(wc.byte_len, lengths[_i]);
	check_filled(&a, 16, lengths[_i], 77);
	ck_assert_uint_eq(a.memory[16 + lengths[_i]], 0);
	finish();
}
END_TEST

static uint64_t word(const struct end *end, uint32_t offset)
{
	uint64_t value;

	memcpy(&value, end->memory + offset, sizeof(value));
	return value;
}

static void set_word(const struct end *end, uint32_t offset, uint64_t value)
{
	memcpy(end->memory + offset, &value, sizeof(value));
}

static void do_atomic(enum ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = sge_of(&a, 8, 8);
	struct ibv_send_wr wr = request(1, opcode, &sge);
	struct ibv_wc wc;

	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	aim(&wr, &b, 64);
	post(&a, &wr);
	wc = expect(&a, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, 8);
	check_sent(wc, opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD);
}

START_TEST(atomics)
{
	const uint64_t big = UINT64_C(0xfedcba9876543210);

	start_type(0);
	set_word(&b, 64, big);
	do_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0x10, 0);
	ck_assert_uint_eq(word(&a, 8), big);
	ck_assert_uint_eq(word(&b, 64), big + 0x10);
	do_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, big, 5);
	ck_assert_uint_eq(word(&a, 8), big + 0x10);
	ck_assert_uint_eq(word(&b, 64), big + 0x10);
	do_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, big + 0x10, 5);
	ck_assert_uint_eq(word(&a, 8), big + 0x10);
	ck_assert_uint_eq(word(&b, 64), 5);
	ck_assert_uint_eq(word(&b, 56) | word(&b, 72), 0);
	finish();
}
END_TEST

/* The program may change inline data after the call; it needs no region. */
START_LOOP_TEST(inline_data, ROWS(types))
{
	uint8_t data[2][100];
	struct ibv_sge sge[] = {
		{ (uintptr_t)data[0], sizeof(data[0]), 0 },
		{ (uintptr_t)data[1], sizeof(data[1]), 0xdead },
	};
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, sge);

	start(&(struct wants){ .type = types[_i], .max_inline = 200 });
	wr.num_sge = 2;
	wr.send_flags |= IBV_SEND_INLINE;
	memset(data[0], 1, sizeof(data[0]));
	memset(data[1], 2, sizeof(data[1]));
	post_recv(&b, 2, 0, 200);
	post(&a, &wr);
	memset(data, 3, sizeof(data));
	expect(&a, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(expect(&b, 2, IBV_WC_SUCCESS).byte_len, 200);
	for (int i = 0; i < 200; i++)
		ck_assert_uint_eq(b.memory[i], i < 100 ? 1 : 2);
	finish();
}
END_TEST

/* Elements of several lengths, some of them empty, at both ends. */
START_LOOP_TEST(elements, ROWS(types))
{
	struct ibv_sge from[4], to[3];
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = to, .num_sge = 3 }, *bad;
	struct ibv_send_wr wr;

	start_type(_i);
	from[0] = sge_of(&a, 5000, 1000);
	from[1] = (struct ibv_sge){ 0, 0, 0 };
	from[2] = sge_of(&a, 6000, 3000);
	from[3] = sge_of(&a, 9000, 1);
	to[0] = sge_of(&b, 1, 7);
	to[1] = sge_of(&b, 8, 3990);
	to[2] = sge_of(&b, 3998, 500);
	wr = request(1, IBV_WR_SEND, from);
	wr.num_sge = 4;
	fill(&a, 5000, 4001, 8);
	ok(ibv_post_recv(b.qp, &recv, &bad));
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(expect(&b, 2, IBV_WC_SUCCESS).byte_len, 4001);
	check_filled(&b, 1, 4001, 8);
	ck_assert_uint_eq(b.memory[4002], 0);
	finish();
}
END_TEST

/* Lists that are longer than the drop-in converts at once. */
START_TEST(long_lists)
{
	struct ibv_recv_wr recvs[DEPTH], *bad_recv;
	struct ibv_send_wr list[DEPTH];
	struct ibv_sge from[DEPTH], to[DEPTH];

	start_type(0);
	for (uint32_t i = 0; i < DEPTH; i++) {
		from[i] = sge_of(&a, i * 64, 64);
		to[i] = sge_of(&b, i * 64, 64);
		list[i] = request(i, IBV_WR_SEND, &from[i]);
		list[i].next = i + 1 < DEPTH ? &list[i + 1] : NULL;
		recvs[i] = (struct ibv_recv_wr){ i, i + 1 < DEPTH ? &recvs[i + 1] : NULL, &to[i],
			1 };
		fill(&a, i * 64, 64, (uint8_t)i);
	}
	ok(ibv_post_recv(b.qp, recvs, &bad_recv));
	post(&a, list);
	for (uint32_t i = 0; i < DEPTH; i++) {
		expect(&a, i, IBV_WC_SUCCESS);
		expect(&b, i, IBV_WC_SUCCESS);
		check_filled(&b, i * 64, 64, (uint8_t)i);
	}
	finish();
}
END_TEST

/* Unsignaled requests complete without an entry, unless the queue pair signals all. */
START_LOOP_TEST(signaled, 2)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	start(&(struct wants){ .sq_sig_all = _i });
	sge = sge_of(&a, 0, 8);
	wr = request(1, IBV_WR_RDMA_WRITE, &sge);
	aim(&wr, &b, 0);
	wr.send_flags = 0;
	post(&a, &wr);
	if (_i)
		expect(&a, 1, IBV_WC_SUCCESS);
	sync_ends(&a, &b);
	expect_none(&a);
	finish();
}
END_TEST

/* The fenced WRITE sends what the READ before it has fetched. */
START_TEST(fence)
{
	struct ibv_send_wr read_wr, write_wr;
	struct ibv_sge sge;

	start_type(0);
	sge = sge_of(&a, 0, LONG);
	read_wr = request(1, IBV_WR_RDMA_READ, &sge);
	write_wr = request(2, IBV_WR_RDMA_WRITE, &sge);
	aim(&read_wr, &b, 0);
	aim(&write_wr, &b, LONG);
	read_wr.next = &write_wr;
	write_wr.send_flags |= IBV_SEND_FENCE;
	fill(&b, 0, LONG, 4);
	post(&a, &read_wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&a, 2, IBV_WC_SUCCESS);
	check_filled(&b, LONG, LONG, 4);
	finish();
}
END_TEST

/* Both ends are of one context; or one queue pair is connected to itself, as NCCL flushes. */
START_LOOP_TEST(loopback, 2)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	open_ends(&(struct wants){ .one_context = true });
	connect_qps(a.qp, _i ? a.qp : b.qp);
	sge = sge_of(&a, 0, LONG);
	wr = request(1, IBV_WR_RDMA_READ, &sge);
	aim(&wr, &b, 0);
	if (_i == 0) {
		fill(&b, 0, LONG, 6);
	} else {
		aim(&wr, &a, LONG);
		fill(&a, LONG, LONG, 6);
	}
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	check_filled(&a, 0, LONG, 6);
	finish();
}
END_TEST

/* Both directions at once, each message checked. */
START_TEST(both_directions)
{
	enum { ROUNDS = 20, EACH = 4000 };
	struct ibv_send_wr wr[2];
	struct ibv_sge sge[2];

	start_type(0);
	for (uint8_t i = 0; i < ROUNDS; i++) {
		fill(&a, 0, EACH, i);
		fill(&b, 0, EACH, (uint8_t)(i + 1));
		post_recv(&a, 2, EACH, EACH);
		post_recv(&b, 2, EACH, EACH);
		sge[0] = sge_of(&a, 0, EACH);
		sge[1] = sge_of(&b, 0, EACH);
		wr[0] = request(2, IBV_WR_SEND, &sge[0]);
		wr[1] = request(2, IBV_WR_SEND, &sge[1]);
		post(&a, &wr[0]);
		post(&b, &wr[1]);
		for (int k = 0; k < 2; k++) {
			expect(&a, 2, IBV_WC_SUCCESS);
			expect(&b, 2, IBV_WC_SUCCESS);
		}
		check_filled(&b, EACH, EACH, i);
		check_filled(&a, EACH, EACH, (uint8_t)(i + 1));
	}
	finish();
}
END_TEST

TEST_FILE(ibverbs_messages)
