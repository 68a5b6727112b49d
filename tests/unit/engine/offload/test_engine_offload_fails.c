/* SPDX-License-Identifier: BSD-3-Clause */
/* Offloads that fail: the affected queue pairs, and their reports. */
#include <string.h>

#include "tests/unit/engine/offload/offload_fixture.h"
#include "tests/fixtures/program.h"

static struct offload_pair p;

/* The queue pair that it was at work for fails, and nothing is given back before it has let go of
 * it. */
START_LOOP_TEST(fails, 2)
{
	static const char why[] = "GPU 0 has fallen off the bus";

	offload_pair_open(&p, &(struct offload_config){ 0 });
	host_pair(p.a, 2, p.b, 2, NULL);
	host_pair(p.a, 3, p.b, 3, NULL);
	offload_post_recv(p.b, 1, 5, 0, 64);
	offload_post_recv(p.b, 3, 8, 0, 64);
	host_post(p.a, 0, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 64, NULL);
	offload_settle(&p);
	p.mock.error = why;
	p.mock.still_runs = _i;
	offload_settle(&p);
	ck_assert_int_eq(p.b->qps[1].qp.core.state, FRL_QPS_ERR);
	ck_assert_str_eq(p.b->qps[1].qp.core.error, why);
	ck_assert_int_eq(p.b->qps[2].qp.core.state, FRL_QPS_RTS);
	ck_assert_int_eq(p.b->qps[3].qp.core.state, FRL_QPS_RTS);
	ck_assert_uint_eq(p.b->port.n_out, _i);
	if (_i)
		host_expect_no_wc(&p.b->cqs[1]);
	p.mock.still_runs = false;
	offload_settle(&p);
	host_expect_wc(&p.b->cqs[1], 5, FRL_WC_LOC_PROT_ERR);
	ck_assert_uint_eq(p.b->port.n_out, 0);
	/* One that comes upon it later. */
	host_post(p.a, 3, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 64, NULL);
	offload_settle(&p);
	ck_assert_str_eq(p.b->qps[3].qp.core.error, why);
	host_expect_wc(&p.b->cqs[3], 8, FRL_WC_WR_FLUSH_ERR);
	host_post_recv(p.b, 2, 6, 0, 64);
	host_post(p.a, 2, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 64, NULL);
	offload_settle(&p);
	host_expect_wc(&p.b->cqs[2], 6, FRL_WC_SUCCESS);
	ck_assert_uint_eq(p.b->engine.stats.offload_placed, 0);
	offload_pair_close(&p);
}
END_TEST

/* Work from before RESET does not touch the queue pair after it. */
START_LOOP_TEST(fails_after_reset, 2)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_RESET };

	offload_pair_open(&p, &(struct offload_config){ 0 });
	offload_post_recv(p.b, 1, 5, 0, 64);
	host_post(p.a, 0, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 64, NULL);
	offload_settle(&p);
	if (_i) {
		p.mock.speed = 1;
		offload_settle(&p);
	}
	ck_assert_int_eq(host_modify(p.b, 1, &attr, FRL_QP_STATE, NULL), 0);
	p.mock.error = "GPU 0 has fallen off the bus";
	offload_settle(&p);
	ck_assert_int_eq(p.b->qps[1].qp.core.state, FRL_QPS_RESET);
	ck_assert_ptr_null(p.b->qps[1].qp.core.error);
	offload_pair_close(&p);
}
END_TEST

static struct mock_offload other;

/* Queue pair `i` comes upon memory of that one, which fails. */
static void fail_one(struct mock_offload *mock, unsigned i, const char *why)
{
	struct mock_memory *memory;
	struct region region;
	struct frl_sge sge;
	struct frl_recv_wr wr = { .sge = &sge, .n_sge = 1 };
	const char *refusal = "";

	mock_offload_init(mock, 1);
	ck_assert_int_eq(mock_offload_attach(mock, &p.b->engine), 0);
	memory = mock_offload_memory(mock, 4096);
	region = p.region;
	region.addr = memory->there;
	region.iova = (uintptr_t)memory->there;
	region.length = 4096;
	region.owner = &mock->base;
	ck_assert_int_eq(engine_add_region(&p.b->engine, &region), 0);
	sge = (struct frl_sge){ memory->there, 64, region.key };
	ck_assert_int_eq(qp_post_recv(&p.b->qps[i].qp.core, &wr, &refusal), 0);
	mock->error = why;
	offload_settle(&p);
	host_post(p.a, i, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 64, NULL);
	offload_settle(&p);
	ck_assert_int_eq(p.b->qps[i].qp.core.state, FRL_QPS_ERR);
	ck_assert_str_eq(p.b->qps[i].qp.core.error, why);
	engine_remove_region(&p.b->engine, &region);
	mock_offload_detach(mock, &p.b->engine);
	mock_offload_fini(mock);
}

/* Each queue pair tells of that which it has used, also when there are others in its place. */
START_TEST(several_fail)
{
	offload_pair_open(&p, &(struct offload_config){ 0 });
	host_pair(p.a, 2, p.b, 2, NULL);
	host_pair(p.a, 3, p.b, 3, NULL);
	p.mock.error = "GPU 0 has fallen off the bus";
	offload_settle(&p);
	fail_one(&other, 2, "GPU 1 has no memory left");
	fail_one(&other, 3, "GPU 2 was taken away");
	ck_assert_str_eq(p.b->qps[2].qp.core.error, "GPU 1 has no memory left");
	offload_pair_close(&p);
}
END_TEST

/* A stranger that does not know the Q_Key cannot have it come upon memory that has failed. */
START_TEST(stranger)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND };
	struct engine_ah ah;

	offload_pair_open(&p, &(struct offload_config){ .type = FRL_QPT_UD });
	offload_add_ah(&p, &ah);
	offload_post_recv(p.b, 1, 5, 0, 300);
	p.mock.error = "GPU 0 has fallen off the bus";
	offload_settle(&p);
	wr.remote_qpn = p.b->qps[1].qp.core.qpn;
	wr.remote_qkey = HOST_QKEY + 1;
	host_post(p.a, 0, wr, 0, 200, &ah);
	offload_settle(&p);
	ck_assert_uint_eq(p.b->engine.stats.drop_bad_qkey, 1);
	ck_assert_int_eq(p.b->qps[1].qp.core.state, FRL_QPS_RTS);
	wr.remote_qkey = HOST_QKEY;
	host_post(p.a, 0, wr, 0, 200, &ah);
	offload_settle(&p);
	ck_assert_int_eq(p.b->qps[1].qp.core.state, FRL_QPS_ERR);
	engine_remove_ah(&p.a->engine, &ah);
	offload_pair_close(&p);
}
END_TEST

TEST_FILE(engine_offload_fails)
