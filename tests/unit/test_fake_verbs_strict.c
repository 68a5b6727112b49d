/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory refuses what a device may refuse: ends that do not fit, foreign keys. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "tests/unit/fake_verbs_fixture.h"
#include "tests/unit/program.h"

static struct fixture fixture;
static struct fixture_end *const a = &fixture.ends[0], *const b = &fixture.ends[1];

static void setup(void)
{
	fixture_plug(&fixture, 0xffff, IBV_MTU_4096);
}

static uint64_t at(const struct fixture_end *end, uint32_t offset)
{
	return (uintptr_t)end->bytes + offset;
}

static const struct {
	const char *name;
	uint16_t pkey;
	struct fixture_wants wants;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	enum ibv_wc_status status;
} ends[] = {
	{ "one packet", 0xffff, { .mtu = IBV_MTU_512 }, IBV_WR_RDMA_WRITE, 512, IBV_WC_SUCCESS },
	{ "two", 0xffff, { .mtu = IBV_MTU_512 }, IBV_WR_RDMA_WRITE, 513, IBV_WC_REM_INV_REQ_ERR },
	{ "reads", 0xffff, { .max_rd_atomic = 5 }, IBV_WR_RDMA_READ, 8, IBV_WC_REM_INV_REQ_ERR },
	{ "no reads", 0xffff, { .max_rd_atomic = 255 }, IBV_WR_RDMA_READ, 8, IBV_WC_LOC_QP_OP_ERR },
	{ "limited member", 0x7fff, { 0 }, IBV_WR_RDMA_WRITE, 8, IBV_WC_SUCCESS },
	{ "partition", 0x8001, { 0 }, IBV_WR_RDMA_WRITE, 8, IBV_WC_RETRY_EXC_ERR },
};

START_LOOP_TEST(ends_that_do_not_fit, ROWS(ends))
{
	struct ibv_sge sge;
	struct ibv_wc wc;

	fixture_plug(&fixture, ends[_i].pkey, IBV_MTU_4096);
	fixture_open(&fixture, &ends[_i].wants);
	fixture_connect(&fixture, &ends[_i].wants);
	sge = fixture_sge(a, 0, ends[_i].length);
	ck_assert_int_eq(
		fixture_post(a, ends[_i].opcode, IBV_SEND_SIGNALED, &sge, at(b, 0), b->mr->rkey),
		0);
	wc = fixture_expect(a, ends[_i].status);
	/* Fields that are not valid are wrong. */
	if (ends[_i].status != IBV_WC_SUCCESS)
		ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
	fixture_close(&fixture);
}
END_TEST

START_TEST(mtu_of_the_port)
{
	struct fixture_wants wants = { .mtu = IBV_MTU_1024 };

	fixture_plug(&fixture, 0xffff, IBV_MTU_512);
	fixture_open(&fixture, &wants);
	ck_assert_int_eq(fixture_move(b, a, &wants, 0, 0), EINVAL);
	wants.mtu = IBV_MTU_512;
	ck_assert_int_eq(ibv_modify_qp(b->qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET },
				 IBV_QP_STATE),
		0);
	ck_assert_int_eq(fixture_move(b, a, &wants, 0, 0), 0);
	fixture_close(&fixture);
}
END_TEST

/* The responder was connected to somebody else. */
START_TEST(stranger)
{
	struct fixture_wants wants = { 0 };
	union ibv_gid own;
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	ck_assert_int_eq(fixture_move(a, b, &wants, 0, 0), 0);
	own = a->gid;
	a->gid = b->gid;
	ck_assert_int_eq(fixture_move(b, a, &wants, 0, 0), 0);
	a->gid = own;
	sge = fixture_sge(a, 0, 8);
	ck_assert_int_eq(fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 0), b->mr->rkey), 0);
	fixture_expect(a, IBV_WC_RETRY_EXC_ERR);
	fixture_close(&fixture);
}
END_TEST

START_LOOP_TEST(region_of_another_domain, 2)
{
	struct fixture_wants wants = { .is_connected = true };
	struct ibv_sge sge;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	fixture_open(&fixture, &wants);
	pd = ibv_alloc_pd(_i ? b->context : a->context);
	mr = ibv_reg_mr(
		pd, _i ? b->bytes : a->bytes, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	sge = fixture_sge(a, 0, 8);
	sge.lkey = _i ? sge.lkey : mr->lkey;
	ck_assert_int_eq(
		fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 0), _i ? mr->rkey : b->mr->rkey),
		0);
	fixture_expect(a, _i ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	fixture_close(&fixture);
}
END_TEST

/* There is nothing to invalidate: the receive ends, and nobody answers any more. */
START_TEST(invalid_key)
{
	struct fixture_wants wants = { .is_connected = true };
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	fixture_post_recv(b, 5, 0, 8);
	sge = fixture_sge(a, 0, 8);
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND_WITH_INV, 0, &sge, 0, 0), 0);
	ck_assert_uint_eq(fixture_expect(b, IBV_WC_REM_INV_REQ_ERR).wr_id, 5);
	fixture_expect(a, IBV_WC_RETRY_EXC_ERR);
	fixture_close(&fixture);
}
END_TEST

/* rnr_retry 7 waits for ever, not seven times. */
START_TEST(patience)
{
	struct fixture_wants wants = { .is_connected = true, .rnr_retry = 7 };
	struct timespec longer = { 0, 5000000 };
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, 8);
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0), 0);
	nanosleep(&longer, NULL);
	fixture_expect_none(a);
	fixture_post_recv(b, 0, 0, 8);
	fixture_expect(a, IBV_WC_SUCCESS);
	fixture_close(&fixture);
}
END_TEST

/* Places are free when somebody has seen the completion. */
START_TEST(places)
{
	struct fixture_wants wants = { .is_connected = true };
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, 0);
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), 0);
		ck_assert_int_eq(
			fixture_post(a, IBV_WR_SEND, i ? 0 : IBV_SEND_SIGNALED, &sge, 0, 0), 0);
	}
	ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), ENOMEM);
	ck_assert_ptr_eq(bad, &wr);
	fixture_expect(b, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), 0);
	ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), ENOMEM);
	fixture_expect(a, IBV_WC_SUCCESS);
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, 0, &sge, 0, 0), 0);
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, 0, &sge, 0, 0), ENOMEM);
	fixture_close(&fixture);
}
END_TEST

TEST_MAIN(fake_verbs_strict)
{
	return run_suite(all_tests(setup, fake_verbs_reset));
}
