/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: requests by ibv_wr_*(). */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

enum {
	CONNECTED_OPS = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV |
		IBV_QP_EX_WITH_BIND_MW,
	ALL_OPS = CONNECTED_OPS | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV,
	DATAGRAM_OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	INLINE = 128,
};

static struct ibv_qp_ex *ex;

static void start_wr(enum ibv_qp_type type, uint64_t ops)
{
	start(&(struct wants){ .type = type, .ops = ops, .max_inline = INLINE, .max_send_wr = 32 });
	ex = ibv_qp_to_qp_ex(a.qp);
	ck_assert_ptr_nonnull(ex);
	ck_assert_ptr_eq(&ex->qp_base, a.qp);
}

static void begin(uint64_t wr_id)
{
	ex->wr_id = wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
}

static uint64_t remote(uint32_t offset)
{
	return (uintptr_t)b.memory + offset;
}

static void set_sge(uint32_t offset, uint32_t length)
{
	ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.memory + offset, length);
}

START_TEST(plain_queue_pair)
{
	start(&(struct wants){ 0 });
	ck_assert_ptr_null(ibv_qp_to_qp_ex(a.qp));
	finish();
}
END_TEST

/* Operations that a type lacks are refused when the queue pair is created. */
START_TEST(refused_operations)
{
	struct wants wants = { 0 };

	open_ends(&wants);
	wants.ops = IBV_QP_EX_WITH_TSO;
	refused_null(EOPNOTSUPP, create_qp(&a, &wants));
	wants.type = IBV_QPT_UC;
	wants.ops = IBV_QP_EX_WITH_RDMA_READ;
	refused_null(EOPNOTSUPP, create_qp(&a, &wants));
	wants.type = IBV_QPT_UD;
	wants.ops = IBV_QP_EX_WITH_RDMA_WRITE;
	refused_null(EOPNOTSUPP, create_qp(&a, &wants));
	finish();
}
END_TEST

/* All operations in one batch. */
START_TEST(all_operations)
{
	uint64_t before = 1000, value;
	struct ibv_wc wc;

	start_wr(IBV_QPT_RC, ALL_OPS);
	fill(&a, 0, 100, 1);
	memcpy(b.memory + 2048, &before, 8);
	post_recv(&b, 1, 4096, 100);
	post_recv(&b, 2, 8192, 100);
	post_recv(&b, 3, 0, 0);
	ibv_wr_start(ex);
	begin(11);
	ibv_wr_send(ex);
	set_sge(0, 100);
	begin(12);
	ibv_wr_send_imm(ex, htonl(77));
	set_sge(0, 50);
	begin(13);
	ibv_wr_rdma_write(ex, b.mr->rkey, remote(0));
	set_sge(0, 100);
	begin(14);
	ibv_wr_rdma_write_imm(ex, b.mr->rkey, remote(100), htonl(78));
	set_sge(0, 10);
	begin(15);
	ibv_wr_rdma_read(ex, b.mr->rkey, remote(0));
	set_sge(512, 100);
	begin(16);
	ibv_wr_atomic_fetch_add(ex, b.mr->rkey, remote(2048), 5);
	set_sge(1024, 8);
	begin(17);
	ibv_wr_atomic_cmp_swp(ex, b.mr->rkey, remote(2048), 1005, 6);
	set_sge(1032, 8);
	ok(ibv_wr_complete(ex));
	for (uint64_t i = 11; i <= 17; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	check_filled(&a, 512, 100, 1);
	check_filled(&b, 4096, 100, 1);
	check_filled(&b, 8192, 50, 1);
	check_filled(&b, 100, 10, 1);
	memcpy(&value, a.memory + 1024, 8);
	ck_assert_uint_eq(value, 1000);
	memcpy(&value, a.memory + 1032, 8);
	ck_assert_uint_eq(value, 1005);
	memcpy(&value, b.memory + 2048, 8);
	ck_assert_uint_eq(value, 6);
	ck_assert_uint_eq(expect(&b, 1, IBV_WC_SUCCESS).wc_flags, 0);
	wc = expect(&b, 2, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.imm_data, htonl(77));
	ck_assert_uint_eq(wc.byte_len, 50);
	ck_assert_uint_eq(expect(&b, 3, IBV_WC_SUCCESS).imm_data, htonl(78));
	finish();
}
END_TEST

/* Data is copied by the setter; several elements, and a list of buffers. */
START_LOOP_TEST(inline_and_lists, 2)
{
	uint8_t data[2][50];
	struct ibv_data_buf bufs[] = { { data[0], 50 }, { NULL, 0 }, { data[1], 50 } };
	struct ibv_sge list[2];

	start_wr(_i ? IBV_QPT_UC : IBV_QPT_RC, _i ? CONNECTED_OPS : ALL_OPS);
	fill(&a, 0, 100, 9);
	memset(data[0], 1, sizeof(data[0]));
	memset(data[1], 2, sizeof(data[1]));
	list[0] = sge_of(&a, 0, 60);
	list[1] = sge_of(&a, 60, 40);
	ibv_wr_start(ex);
	begin(1);
	ibv_wr_rdma_write(ex, b.mr->rkey, remote(0));
	ibv_wr_set_inline_data(ex, data[0], 50);
	begin(2);
	ibv_wr_rdma_write(ex, b.mr->rkey, remote(50));
	ibv_wr_set_sge_list(ex, 2, list);
	begin(3);
	ibv_wr_rdma_write(ex, b.mr->rkey, remote(150));
	ibv_wr_set_inline_data_list(ex, 3, bufs);
	begin(4);
	ibv_wr_rdma_write(ex, b.mr->rkey, remote(250));
	ibv_wr_set_sge_list(ex, 0, NULL);
	memset(data, 3, sizeof(data));
	ok(ibv_wr_complete(ex));
	for (uint64_t i = 1; i <= 4; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	sync_ends(&a, &b);
	for (int i = 0; i < 50; i++) {
		ck_assert_uint_eq(b.memory[i], 1);
		ck_assert_uint_eq(b.memory[150 + i], 1);
		ck_assert_uint_eq(b.memory[200 + i], 2);
	}
	check_filled(&b, 50, 100, 9);
	ck_assert_uint_eq(b.memory[250], 0);
	finish();
}
END_TEST

/* Each request of a long batch has its own elements or inline data. */
START_TEST(long_batch)
{
	start_wr(IBV_QPT_RC, ALL_OPS);
	for (uint32_t i = 0; i < 32; i++)
		fill(&a, i * 32, 32, (uint8_t)i);
	ibv_wr_start(ex);
	for (uint32_t i = 0; i < 32; i++) {
		begin(i);
		ex->wr_flags = i % 4 == 3 ? IBV_SEND_SIGNALED : 0;
		ibv_wr_rdma_write(ex, b.mr->rkey, remote(i * 32));
		if (i % 3)
			ibv_wr_set_inline_data(ex, a.memory + i * 32, 32);
		else
			set_sge(i * 32, 32);
	}
	ok(ibv_wr_complete(ex));
	for (uint32_t i = 3; i < 32; i += 4)
		expect(&a, i, IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < 32; i++)
		check_filled(&b, i * 32, 32, (uint8_t)i);
	sync_ends(&a, &b);
	expect_none(&a);
	finish();
}
END_TEST

START_TEST(datagrams)
{
	struct ibv_ah_attr path;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	start_wr(IBV_QPT_UD, DATAGRAM_OPS);
	path = own_path(b.context);
	ah = ibv_create_ah(a.pd, &path);
	made(ah);
	fill(&a, 0, 100, 2);
	post_recv(&b, 1, 0, 200);
	post_recv(&b, 2, 200, 200);
	ibv_wr_start(ex);
	begin(11);
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, b.qp->qp_num, QKEY);
	set_sge(0, 100);
	begin(12);
	ibv_wr_send_imm(ex, htonl(5));
	ibv_wr_set_ud_addr(ex, ah, b.qp->qp_num, QKEY);
	ibv_wr_set_inline_data(ex, a.memory, 10);
	ok(ibv_wr_complete(ex));
	expect(&a, 11, IBV_WC_SUCCESS);
	expect(&a, 12, IBV_WC_SUCCESS);
	wc = expect(&b, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, GRH + 100);
	check_filled(&b, GRH, 100, 2);
	wc = expect(&b, 2, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, GRH + 10);
	ck_assert_uint_eq(wc.imm_data, htonl(5));
	/* Without an address nothing is posted. */
	ibv_wr_start(ex);
	begin(13);
	ibv_wr_send(ex);
	refused(EINVAL, ibv_wr_complete(ex));
	ok(ibv_destroy_ah(ah));
	finish();
}
END_TEST

START_TEST(abort_and_empty)
{
	start_wr(IBV_QPT_RC, ALL_OPS);
	ibv_wr_start(ex);
	begin(1);
	ibv_wr_rdma_write(ex, b.mr->rkey, remote(0));
	set_sge(0, 8);
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	ok(ibv_wr_complete(ex));
	sync_ends(&a, &b);
	expect_none(&a);
	finish();
}
END_TEST

/* ---- errors: complete reports them, and posts nothing */

static void write_one(void)
{
	ibv_wr_rdma_write(ex, b.mr->rkey, remote(0));
	set_sge(0, 8);
}

static void many_elements(void)
{
	struct ibv_sge list[5];

	for (int i = 0; i < 5; i++)
		list[i] = sge_of(&a, 0, 8);
	ibv_wr_rdma_write(ex, b.mr->rkey, remote(0));
	ibv_wr_set_sge_list(ex, 5, list);
}

static void far_too_many_elements(void)
{
	static struct ibv_sge list[100];

	ibv_wr_rdma_write(ex, b.mr->rkey, remote(0));
	ibv_wr_set_sge_list(ex, 100, list);
}

static void long_inline(void)
{
	ibv_wr_rdma_write(ex, b.mr->rkey, remote(0));
	ibv_wr_set_inline_data(ex, a.memory, INLINE + 1);
}

static void inline_overflow(void)
{
	const struct ibv_data_buf bufs[] = { { a.memory, SIZE_MAX }, { a.memory, 2 } };

	ibv_wr_rdma_write(ex, b.mr->rkey, remote(0));
	ibv_wr_set_inline_data_list(ex, 2, bufs);
}

static void inline_read(void)
{
	ibv_wr_rdma_read(ex, b.mr->rkey, remote(0));
	ibv_wr_set_inline_data(ex, a.memory, 8);
}

static void short_atomic(void)
{
	ibv_wr_atomic_fetch_add(ex, b.mr->rkey, remote(0), 1);
	set_sge(0, 4);
}

/* The bad request is between two good ones. */
START_LOOP_TEST(errors, 6)
{
	static void (*const bad[])(void) = { many_elements, far_too_many_elements, long_inline,
		inline_overflow, inline_read, short_atomic };

	start_wr(IBV_QPT_RC, ALL_OPS);
	memset(a.memory, 1, 8);
	ibv_wr_start(ex);
	begin(1);
	write_one();
	bad[_i]();
	write_one();
	refused(EINVAL, ibv_wr_complete(ex));
	sync_ends(&a, &b);
	expect_none(&a);
	ck_assert_uint_eq(b.memory[0], 0);
	/* The next batch is not affected. */
	ibv_wr_start(ex);
	begin(2);
	write_one();
	ok(ibv_wr_complete(ex));
	expect(&a, 2, IBV_WC_SUCCESS);
	ck_assert_uint_eq(b.memory[0], 1);
	finish();
}
END_TEST

START_TEST(setter_without_request)
{
	start_wr(IBV_QPT_RC, ALL_OPS);
	ibv_wr_start(ex);
	set_sge(0, 8);
	refused(EINVAL, ibv_wr_complete(ex));
	finish();
}
END_TEST

/* The batch does not fit: none of it is posted. */
START_TEST(queue_full)
{
	start_wr(IBV_QPT_RC, ALL_OPS);
	ibv_wr_start(ex);
	for (uint64_t i = 0; i < 33; i++) {
		begin(i);
		write_one();
	}
	refused(ENOMEM, ibv_wr_complete(ex));
	sync_ends(&a, &b);
	expect_none(&a);
	ibv_wr_start(ex);
	for (uint64_t i = 0; i < 32; i++) {
		begin(i);
		write_one();
	}
	ok(ibv_wr_complete(ex));
	for (uint64_t i = 0; i < 32; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	expect_none(&a);
	finish();
}
END_TEST

START_TEST(not_ready)
{
	const struct wants wants = { .ops = ALL_OPS };

	open_ends(&wants);
	ex = ibv_qp_to_qp_ex(a.qp);
	for (int state = 0; state < 3; state++) {
		if (state == 1)
			ok(to_init(a.qp, 0, 0));
		else if (state == 2)
			ok(to_rtr(a.qp, b.qp, 0));
		ibv_wr_start(ex);
		begin(1);
		write_one();
		refused(EINVAL, ibv_wr_complete(ex));
	}
	ok(to_state(a.qp, IBV_QPS_ERR));
	ibv_wr_start(ex);
	begin(2);
	write_one();
	ok(ibv_wr_complete(ex));
	expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
	expect_none(&a);
	finish();
}
END_TEST

/* Lists work on such queue pairs, too. */
START_TEST(lists_as_well)
{
	struct ibv_send_wr wr = request(3, IBV_WR_SEND, NULL);

	start_wr(IBV_QPT_RC, ALL_OPS);
	post_recv(&b, 4, 0, 0);
	post(&a, &wr);
	expect(&a, 3, IBV_WC_SUCCESS);
	expect(&b, 4, IBV_WC_SUCCESS);
	finish();
}
END_TEST

TEST_FILE(ibverbs_wr)
