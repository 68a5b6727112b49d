/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens when offloads take less than comes: who is asked again, who goes on, who is
 * blamed. */
#include <stdlib.h>

#include "tests/unit/offload_fixture.h"

static struct offload_pair p;

enum { LENGTH = 4096, MESSAGES = 100 };

static void check_bytes(const uint8_t *bytes, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		ck_assert_uint_eq(bytes[i], offload_byte(i));
}

static void expect_all(struct cq *cq)
{
	for (unsigned k = 0; k < MESSAGES; k++)
		host_expect_wc(cq, 1, FRL_WC_SUCCESS);
}

static void post_all(struct host *host, unsigned i, struct frl_send_wr wr)
{
	for (unsigned k = 0; k < MESSAGES; k++)
		host_post(host, i, wr, 0, LENGTH, NULL);
}

/* Queue pairs that together send more than there is room for: no timer fires, however often packets
 * of one are thrown away. */
START_TEST(several_are_starved)
{
	static const uint32_t speeds[] = { 1, 7, 60 };
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_WRITE };

	offload_pair_open(&p, &(struct offload_config){ .in_place = _i >= 3 });
	for (unsigned i = 2; i < 6; i++)
		host_pair(p.a, i, p.b, i,
			&(struct host_qp_config){ .unlimited_retry = _i >= 3,
				.capabilities = _i >= 3 ? FRL_CAP_NO_ICRC : 0 });
	offload_fill(p.a->memory, LENGTH);
	wr.remote_addr = (uintptr_t)p.memory->there;
	wr.rkey = p.region.key;
	post_all(p.a, 0, wr);
	for (unsigned i = 2; i < 6; i++)
		post_all(p.a, i, wr);
	offload_settle(&p);
	ck_assert_uint_gt(p.b->engine.stats.offload_waits, 1);
	p.mock.speed = speeds[_i % 3];
	offload_settle(&p);
	expect_all(&p.a->cqs[0]);
	for (unsigned i = 2; i < 6; i++)
		expect_all(&p.a->cqs[i]);
	ck_assert_uint_eq(p.a->engine.stats.timeouts, 0);
	check_bytes(p.memory->view, LENGTH);
	offload_pair_close(&p);
}
END_TEST

START_TEST(several_are_starved_of_responses)
{
	static const uint32_t speeds[] = { 1, 7, 60 };
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_READ };
	const unsigned qps[] = { 1, 2, 3 };

	offload_pair_open(&p, &(struct offload_config){ .in_place = false });
	host_pair(p.a, 2, p.b, 2, NULL);
	host_pair(p.a, 3, p.b, 3, NULL);
	offload_fill(p.a->memory, 32768);
	wr.remote_addr = (uintptr_t)p.a->memory;
	wr.rkey = p.a->region.key;
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < 12; k++)
			offload_post(p.b, qps[i], wr, 0, 32768);
	offload_settle(&p);
	ck_assert_uint_gt(p.b->engine.stats.offload_waits, 1);
	p.mock.speed = speeds[_i];
	offload_settle(&p);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < 12; k++)
			host_expect_wc(&p.b->cqs[qps[i]], 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(p.b->engine.stats.timeouts, 0);
	check_bytes(p.memory->view, 32768);
	offload_pair_close(&p);
}
END_TEST

/* A peer that has answered is not to blame for the time that this end takes. */
START_TEST(own_time_is_not_the_peers)
{
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_READ };

	offload_pair_open(&p, &(struct offload_config){ .in_place = false });
	offload_fill(p.a->memory, 32768);
	wr.remote_addr = (uintptr_t)p.a->memory;
	wr.rkey = p.a->region.key;
	for (unsigned k = 0; k < 16; k++)
		offload_post(p.b, 1, wr, 0, 32768);
	offload_settle(&p);
	ck_assert_uint_gt(p.b->engine.stats.offload_waits, 0);
	for (unsigned k = 0; k < 200; k++) {
		p.a->now_ns += UINT64_C(100000000);
		p.b->now_ns = p.a->now_ns;
		offload_settle(&p);
	}
	ck_assert_int_eq(p.b->qps[1].qp.core.state, FRL_QPS_RTS);
	ck_assert_uint_eq(p.b->engine.stats.timeouts, 0);
	p.mock.speed = 50;
	offload_settle(&p);
	for (unsigned k = 0; k < 16; k++)
		host_expect_wc(&p.b->cqs[1], 1, FRL_WC_SUCCESS);
	check_bytes(p.memory->view, 32768);
	offload_pair_close(&p);
}
END_TEST

/* A peer that was asked and is gone: the next one's turn comes. */
START_TEST(asked_and_gone)
{
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_WRITE };
	struct frl_qp_attr attr = { .state = FRL_QPS_ERR };

	offload_pair_open(&p, &(struct offload_config){ .in_place = false });
	host_pair(p.a, 2, p.b, 2, NULL);
	offload_fill(p.a->memory, LENGTH);
	wr.remote_addr = (uintptr_t)p.memory->there;
	wr.rkey = p.region.key;
	post_all(p.a, 0, wr);
	offload_settle(&p);
	post_all(p.a, 2, wr);
	offload_settle(&p);
	if (_i)
		engine_remove_qp(&p.b->engine, &p.b->qps[1].qp);
	else
		ck_assert_int_eq(host_modify(p.a, 0, &attr, FRL_QP_STATE, NULL), 0);
	p.mock.speed = 100;
	offload_settle(&p);
	/* What the engine waits for is known to whoever polls it. */
	while (engine_is_transferring(&p.b->engine)) {
		p.a->now_ns += 1000000;
		offload_settle(&p);
	}
	expect_all(&p.a->cqs[2]);
	offload_pair_close(&p);
}
END_TEST

static struct mock_offload other;
static struct mock_memory *other_memory;
static struct region other_region;

static void add_other(void)
{
	mock_offload_init(&other, 2);
	ck_assert_int_eq(engine_prepare_offload(&p.b->engine), 0);
	ck_assert_int_eq(engine_map_offload(&p.b->engine, &other.base), 0);
	engine_attach_offload(&p.b->engine, &other.base);
	other_memory = mock_offload_memory(&other, OFFLOAD_MEMORY);
	other_region = p.region;
	other_region.addr = other_memory->there;
	other_region.iova = (uintptr_t)other_memory->there;
	other_region.offload = &other.base;
	ck_assert_int_eq(engine_add_region(&p.b->engine, &other_region), 0);
	other.speed = 5;
}

static void remove_other(void)
{
	engine_remove_region(&p.b->engine, &other_region);
	engine_detach_offload(&p.b->engine, &other.base);
	engine_unmap_offload(&p.b->engine, &other.base);
	mock_offload_fini(&other);
}

static void post_other(unsigned i)
{
	struct frl_sge sge = { other_memory->there, LENGTH, other_region.key };
	struct frl_send_wr wr = { .wr_id = 1,
		.opcode = FRL_WR_RDMA_WRITE,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
		.remote_addr = (uintptr_t)p.a->memory + LENGTH,
		.rkey = p.a->region.key };
	const struct wr_objects none = { 0 };
	const char *why = "";

	ck_assert_msg(qp_post_send(&p.b->qps[i].qp.core, &wr, &none, &why) == 0, "%s", why);
	engine_update(&p.b->engine, &p.b->qps[i].qp);
}

/* One that stands still does not keep another one from taking in and sending. */
START_TEST(another_stands_still)
{
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_WRITE };

	offload_pair_open(&p, &(struct offload_config){ .in_place = false });
	add_other();
	if (_i)
		p.mock.reaches_one_in = 0;
	for (unsigned i = 2; i < 5; i++)
		host_pair(p.a, i, p.b, i, NULL);
	offload_fill(p.a->memory, LENGTH);
	offload_fill(other_memory->view, LENGTH);
	wr.remote_addr = (uintptr_t)p.memory->there;
	wr.rkey = p.region.key;
	post_all(p.a, 0, wr);
	post_all(p.a, 4, wr);
	wr.remote_addr = (uintptr_t)p.a->memory;
	wr.rkey = p.a->region.key;
	for (unsigned k = 0; k < MESSAGES; k++)
		offload_post(p.b, 3, wr, 0, LENGTH);
	offload_settle(&p);
	ck_assert_uint_gt(p.b->engine.stats.offload_waits, 0);
	wr.remote_addr = (uintptr_t)other_memory->there;
	wr.rkey = other_region.key;
	post_all(p.a, 2, wr);
	for (unsigned k = 0; k < MESSAGES; k++)
		post_other(2);
	offload_settle(&p);
	expect_all(&p.a->cqs[2]);
	expect_all(&p.b->cqs[2]);
	host_expect_no_wc(&p.b->cqs[3]);
	check_bytes(other_memory->view, LENGTH);
	check_bytes(p.a->memory + LENGTH, LENGTH);
	p.mock.speed = 10;
	offload_settle(&p);
	expect_all(&p.a->cqs[0]);
	expect_all(&p.a->cqs[4]);
	expect_all(&p.b->cqs[3]);
	ck_assert_uint_eq(p.a->engine.stats.timeouts, 0);
	ck_assert_uint_eq(p.b->engine.stats.timeouts, 0);
	remove_other();
	offload_pair_close(&p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("engine_offload_full");
	TCase *tests = tcase_create("tests");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tests, 30);
	tcase_add_loop_test(tests, several_are_starved, 0, 6);
	tcase_add_loop_test(tests, several_are_starved_of_responses, 0, 3);
	tcase_add_test(tests, own_time_is_not_the_peers);
	tcase_add_loop_test(tests, asked_and_gone, 0, 2);
	tcase_add_loop_test(tests, another_stands_still, 0, 2);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
