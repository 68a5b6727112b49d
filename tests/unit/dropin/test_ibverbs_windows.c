/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: memory windows of type 2, by lists of requests and by ibv_wr_*(). */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <errno.h>
#include <string.h>

enum {
	OPS = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV |
		IBV_QP_EX_WITH_RDMA_WRITE,
	AT = 4096, /* the window's place in b's memory, and its length */
	LENGTH = 512,
	BY_LIST = 0,
	BY_CALLS = 1,
	WAYS,
};

static struct ibv_mw *window;

static void start_window(void)
{
	start(&(struct wants){ .ops = OPS });
	window = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
	made(window);
	ck_assert_int_eq(window->type, IBV_MW_TYPE_2);
	ck_assert_ptr_eq(window->pd, b.pd);
}

static void finish_window(void)
{
	ok(ibv_dealloc_mw(window));
	finish();
}

/* Binds the window by b's queue pair. Returns the completion's status. */
static enum ibv_wc_status bind(int way, uint32_t rkey, unsigned rights)
{
	const struct ibv_mw_bind_info info = { b.mr, (uintptr_t)b.memory + AT, LENGTH, rights };
	struct ibv_send_wr wr = request(50, IBV_WR_BIND_MW, NULL);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(b.qp);
	struct ibv_wc wc;

	if (way == BY_LIST) {
		wr.bind_mw.mw = window;
		wr.bind_mw.rkey = rkey;
		wr.bind_mw.bind_info = info;
		post(&b, &wr);
	} else {
		ibv_wr_start(ex);
		ex->wr_id = 50;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_bind_mw(ex, window, rkey, &info);
		ok(ibv_wr_complete(ex));
	}
	wc = next_wc(&b);
	ck_assert_uint_eq(wc.wr_id, 50);
	if (wc.status == IBV_WC_SUCCESS)
		ck_assert_int_eq(wc.opcode, IBV_WC_BIND_MW);
	return wc.status;
}

static enum ibv_wc_status write_through(uint32_t rkey, uint32_t offset)
{
	struct ibv_sge sge = sge_of(&a, 0, 8);
	struct ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge);

	memset(a.memory, 0x77, 8);
	wr.wr.rdma.remote_addr = (uintptr_t)b.memory + offset;
	wr.wr.rdma.rkey = rkey;
	post(&a, &wr);
	return next_wc(&a).status;
}

/* Only the range of the window is writable by its key. The right of local write is ignored. */
START_LOOP_TEST(bound, PAIRS(WAYS, 2))
{
	const unsigned rights = IBV_ACCESS_REMOTE_WRITE | (_i % 2 ? IBV_ACCESS_LOCAL_WRITE : 0);
	uint32_t rkey;

	start_window();
	rkey = ibv_inc_rkey(window->rkey);
	ck_assert_int_eq(bind(_i / 2, rkey, rights), IBV_WC_SUCCESS);
	ck_assert_int_eq(write_through(rkey, AT + LENGTH - 8), IBV_WC_SUCCESS);
	ck_assert_uint_eq(b.memory[AT + LENGTH - 8], 0x77);
	ck_assert_int_eq(
		write_through(rkey, _i % 2 ? AT + LENGTH - 7 : AT - 8), IBV_WC_REM_ACCESS_ERR);
	ck_assert_uint_eq(b.memory[AT + LENGTH] | b.memory[AT - 8], 0);
	finish_window();
}
END_TEST

START_LOOP_TEST(lacks_right, 2)
{
	static const unsigned rights[] = { IBV_ACCESS_REMOTE_READ, IBV_ACCESS_LOCAL_WRITE };
	uint32_t rkey;

	start_window();
	rkey = ibv_inc_rkey(window->rkey);
	ck_assert_int_eq(bind(BY_LIST, rkey, rights[_i]), IBV_WC_SUCCESS);
	ck_assert_int_eq(write_through(rkey, AT), IBV_WC_REM_ACCESS_ERR);
	finish_window();
}
END_TEST

/* The key before the binding, and a key of another window, are no keys. */
START_TEST(old_key)
{
	start_window();
	ck_assert_int_eq(write_through(window->rkey, AT), IBV_WC_REM_ACCESS_ERR);
	finish_window();
}
END_TEST

START_LOOP_TEST(local_invalidation, WAYS)
{
	struct ibv_send_wr wr = request(51, IBV_WR_LOCAL_INV, NULL);
	struct ibv_qp_ex *ex;
	uint32_t rkey;

	start_window();
	ex = ibv_qp_to_qp_ex(b.qp);
	rkey = ibv_inc_rkey(window->rkey);
	ck_assert_int_eq(bind(_i, rkey, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
	if (_i == BY_LIST) {
		wr.invalidate_rkey = rkey;
		post(&b, &wr);
	} else {
		ibv_wr_start(ex);
		ex->wr_id = 51;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_local_inv(ex, rkey);
		ok(ibv_wr_complete(ex));
	}
	ck_assert_int_eq(expect(&b, 51, IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
	/* It can be bound again, with a new key. */
	rkey = ibv_inc_rkey(rkey);
	ck_assert_int_eq(bind(_i, rkey, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
	ck_assert_int_eq(write_through(rkey, AT), IBV_WC_SUCCESS);
	ck_assert_int_eq(write_through(rkey - 1, AT), IBV_WC_REM_ACCESS_ERR);
	finish_window();
}
END_TEST

START_LOOP_TEST(invalidation_by_peer, WAYS)
{
	struct ibv_send_wr wr = request(2, IBV_WR_SEND_WITH_INV, NULL);
	struct ibv_qp_ex *ex;
	struct ibv_wc wc;
	uint32_t rkey;

	start_window();
	ex = ibv_qp_to_qp_ex(a.qp);
	rkey = ibv_inc_rkey(window->rkey);
	ck_assert_int_eq(bind(_i, rkey, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
	post_recv(&b, 3, 0, 8);
	if (_i == BY_LIST) {
		wr.invalidate_rkey = rkey;
		post(&a, &wr);
	} else {
		ibv_wr_start(ex);
		ex->wr_id = 2;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send_inv(ex, rkey);
		ok(ibv_wr_complete(ex));
	}
	expect(&a, 2, IBV_WC_SUCCESS);
	wc = expect(&b, 3, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.wc_flags, IBV_WC_WITH_INV);
	ck_assert_uint_eq(wc.invalidated_rkey, rkey);
	ck_assert_int_eq(write_through(rkey, AT), IBV_WC_REM_ACCESS_ERR);
	finish_window();
}
END_TEST

/* A bound window, or a key that is not the window's, cannot be bound: the queue pair fails. */
START_LOOP_TEST(refused_bindings, 3)
{
	uint32_t rkey;

	start_window();
	rkey = ibv_inc_rkey(window->rkey);
	if (_i == 0) {
		ck_assert_int_eq(bind(BY_LIST, rkey, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
		rkey = ibv_inc_rkey(rkey);
	} else if (_i == 1) {
		rkey ^= 0x100;
	} else {
		ok(ibv_dereg_mr(b.mr));
		b.mr = ibv_reg_mr(b.pd, b.memory, MEMORY, RIGHTS & ~IBV_ACCESS_MW_BIND);
		made(b.mr);
	}
	ck_assert_int_eq(bind(BY_LIST, rkey, IBV_ACCESS_REMOTE_WRITE), IBV_WC_MW_BIND_ERR);
	ck_assert_int_eq(state_of(b.qp), IBV_QPS_ERR);
	finish_window();
}
END_TEST

/* A region with bound windows stays, and a domain with windows. */
START_TEST(busy)
{
	start_window();
	ck_assert_int_eq(
		bind(BY_LIST, ibv_inc_rkey(window->rkey), IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
	refused(EBUSY, ibv_dereg_mr(b.mr));
	refused(EBUSY, ibv_dealloc_pd(b.pd));
	finish_window();
}
END_TEST

/* Type 1 is not supported. */
START_TEST(first_type)
{
	struct ibv_mw_bind how = { 0 };

	start_window();
	refused_null(EOPNOTSUPP, ibv_alloc_mw(a.pd, IBV_MW_TYPE_1));
	how.bind_info = (struct ibv_mw_bind_info){ b.mr, (uintptr_t)b.memory, 8, 0 };
	/* <infiniband/verbs.h> refuses windows of type 2 here by itself. */
	refused(EINVAL, ibv_bind_mw(b.qp, window, &how));
	window->type = IBV_MW_TYPE_1;
	refused(EOPNOTSUPP, ibv_bind_mw(b.qp, window, &how));
	window->type = IBV_MW_TYPE_2;
	finish_window();
}
END_TEST

TEST_FILE(ibverbs_windows)
