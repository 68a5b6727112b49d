/* SPDX-License-Identifier: BSD-3-Clause */
/* Offloads that take less than arrives: which peers are asked again, which go on, which are blamed.
 * And ports that keep sent packets. */
#include <errno.h>
#include <stdlib.h>

#include "lib/base/error.h"
#include "lib/engine/offload/transfers.h"
#include "tests/unit/engine/offload/offload_fixture.h"
#include "tests/fixtures/program.h"

static struct offload_pair p;

enum { LENGTH = 4096, MESSAGES = 100 };

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
START_LOOP_TEST(several_are_starved, 6)
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
	offload_expect(p.memory->view, 0, LENGTH);
	offload_pair_close(&p);
}
END_TEST

START_LOOP_TEST(several_are_starved_of_responses, 3)
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
	offload_expect(p.memory->view, 0, 32768);
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
	offload_expect(p.memory->view, 0, 32768);
	offload_pair_close(&p);
}
END_TEST

/* A peer that was asked and is gone: the next one's turn comes. */
START_LOOP_TEST(asked_and_gone, 2)
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
	/* Polling shows what the engine waits for. */
	while (engine_offloads_busy(&p.b->engine)) {
		p.a->now_ns += 1000000;
		offload_settle(&p);
	}
	expect_all(&p.a->cqs[2]);
	offload_pair_close(&p);
}
END_TEST

/* The peer's timer has sent a dropped packet again: this end waits for it no longer. */
START_TEST(comes_again_by_itself)
{
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_WRITE };
	const struct requester *sender;
	unsigned n = 0;

	offload_pair_open(&p, &(struct offload_config){ .in_place = false });
	sender = &p.a->qps[0].qp.core.requester;
	offload_fill(p.a->memory, LENGTH);
	wr.remote_addr = (uintptr_t)p.memory->there;
	wr.rkey = p.region.key;
	for (; p.b->engine.stats.offload_waits == 0; n++) {
		host_post(p.a, 0, wr, 0, LENGTH, NULL);
		offload_settle(&p);
	}
	ck_assert(!list_empty(&p.b->qps[1].qp.offloads->dropped));
	/* Room for the message, but too little to ask for it. */
	mock_offload_step(&p.mock, OFFLOAD_HELD + 8);
	offload_settle(&p);
	ck_assert(!list_empty(&p.b->qps[1].qp.offloads->dropped));
	while (sender->head != sender->tail) {
		p.a->now_ns += 1000000;
		offload_settle(&p);
	}
	ck_assert(list_empty(&p.b->qps[1].qp.offloads->dropped));
	ck_assert(!p.b->qps[1].qp.offloads->loss.request);
	ck_assert_uint_eq(p.b->engine.stats.naks_sent_seq, 0);
	p.mock.speed = 50;
	offload_settle(&p);
	while (n-- > 0)
		host_expect_wc(&p.a->cqs[0], 1, FRL_WC_SUCCESS);
	offload_expect(p.memory->view, 0, LENGTH);
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
	other_region.owner = &other.base;
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
START_LOOP_TEST(another_stands_still, 2)
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
	offload_expect(other_memory->view, 0, LENGTH);
	offload_expect(p.a->memory + LENGTH, 0, LENGTH);
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

/* ---- ports that take less time to send than to say so */

static const struct frl_send_wr send = { .wr_id = 1, .opcode = FRL_WR_SEND };

static void open_pair(void)
{
	offload_pair_open(&p, &(struct offload_config){ 0 });
	offload_fill(p.memory->view, OFFLOAD_MEMORY);
}

enum {
	LENT = 256, /* buffers that the port has at most */
	MANY_PACKETS = 400,
};

static bool is_reference(uint32_t k)
{
	const struct port_packet *packet = &p.b->port.sent[k].packet;

	return !packet->copy && packet->pieces[0].mem;
}

/* Memory that the port still refers to stays unchanged, however late it is released, and nothing
 * waits for that: the rest is copied. */
START_TEST(by_reference)
{
	uint32_t n_mapped;

	open_pair();
	p.mock.speed = UINT32_MAX;
	n_mapped = p.b->port.n_mapped;
	ck_assert_uint_gt(n_mapped, LENT);
	for (unsigned round = 0; round < 3; round++) {
		host_post_recv(p.a, 0, 5, 0, HOST_MEMORY);
		host_post_recv(p.a, 0, 6, 0, MANY_PACKETS * HOST_MTU - HOST_MEMORY);
		offload_post(p.b, 1, send, 0, HOST_MEMORY);
		offload_post(p.b, 1, send, HOST_MEMORY, MANY_PACKETS * HOST_MTU - HOST_MEMORY);
		for (unsigned k = 0; k < 4 * MANY_PACKETS; k++) {
			p.b->now_ns += 100;
			host_poll(p.b);
		}
		p.a->now_ns = p.b->now_ns;
		ck_assert_uint_eq(p.b->port.n_sent, MANY_PACKETS);
		for (uint32_t k = 0; k < MANY_PACKETS; k++) {
			const struct wire_packet *packet = host_sent(p.b, k, NULL);

			ck_assert(is_reference(k) == (k < LENT));
			for (uint32_t i = 0; i < HOST_MTU; i++)
				ck_assert_uint_eq(
					packet->payload[i], offload_byte(k * HOST_MTU + i));
		}
		offload_settle(&p);
		for (unsigned k = 0; k < 2; k++) {
			host_expect_wc(&p.a->cqs[0], 5 + k, FRL_WC_SUCCESS);
			host_expect_wc(&p.b->cqs[1], 1, FRL_WC_SUCCESS);
		}
	}
	ck_assert_uint_eq(p.a->engine.stats.drop_bad_icrc, 0);
	ck_assert_uint_eq(p.b->engine.stats.retransmits, 0);
	offload_pair_close(&p);
}
END_TEST

/* Packets that leave the queue and not by the port give back what they would have lent. */
START_TEST(withdrawn_references)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_ERR };

	open_pair();
	p.mock.speed = UINT32_MAX;
	for (unsigned k = 0; k < 2 * LENT / 32; k++) {
		host_pair(p.a, 2, p.b, 2, NULL);
		p.b->port.room[0] = 0;
		offload_post(p.b, 2, send, 0, 32 * HOST_MTU);
		for (unsigned round = 0; round < 8; round++)
			host_poll(p.b);
		ck_assert(engine_link_queued(&p.b->engine, 0));
		ck_assert_int_eq(host_modify(p.b, 2, &attr, FRL_QP_STATE, NULL), 0);
		ck_assert(!engine_link_queued(&p.b->engine, 0));
		host_expect_wc(&p.b->cqs[2], 1, FRL_WC_WR_FLUSH_ERR);
		for (unsigned end = 0; end < 2; end++) {
			struct host *host = end ? p.a : p.b;

			engine_remove_qp(&host->engine, &host->qps[2].qp);
			free(host->qps[2].storage);
			host->qps[2].storage = NULL;
		}
	}
	p.b->port.room[0] = FAKE_UNLIMITED;
	host_post_recv(p.a, 0, 5, 0, HOST_MTU);
	offload_post(p.b, 1, send, 0, HOST_MTU);
	for (unsigned round = 0; round < 4; round++)
		host_poll(p.b);
	ck_assert_uint_eq(p.b->port.n_sent, 1);
	ck_assert(is_reference(0));
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[0], 5, FRL_WC_SUCCESS);
	offload_pair_close(&p);
}
END_TEST

/* The port may look at them until it is closed, which is after the engine's end. */
START_LOOP_TEST(references_at_the_end, 2)
{
	open_pair();
	p.mock.speed = UINT32_MAX;
	offload_post(p.b, 1, send, 0, 4 * HOST_MTU);
	if (_i)
		engine_drop_link(&p.b->engine, 0);
	for (unsigned round = 0; round < 8; round++)
		host_poll(p.b);
	ck_assert_uint_eq(p.b->port.n_sent, _i ? 0 : 4);
	engine_remove_region(&p.b->engine, &p.region);
	mock_offload_detach(&p.mock, &p.b->engine);
	host_free(p.b);
	host_free(p.a);
	mock_offload_fini(&p.mock);
}
END_TEST

/* Ports that take no references to such memory, and those whose peers would read it in place. */
START_LOOP_TEST(not_by_reference, 2)
{
	frl_fail(-EIO, "before");
	offload_pair_open(&p, &(struct offload_config){ .in_place = _i, .copies = !_i });
	ck_assert_str_eq(frl_last_error(), "before"); /* that is no failure */
	offload_fill(p.memory->view, OFFLOAD_MEMORY);
	ck_assert_uint_eq(p.b->port.n_mapped, 0);
	p.mock.speed = UINT32_MAX;
	host_post_recv(p.a, 0, 5, 0, HOST_MTU);
	offload_post(p.b, 1, send, 0, HOST_MTU);
	for (unsigned round = 0; round < 4; round++)
		host_poll(p.b);
	ck_assert_uint_eq(p.b->port.n_sent, 1);
	ck_assert(!is_reference(0));
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[0], 5, FRL_WC_SUCCESS);
	offload_expect(p.a->memory, 0, HOST_MTU);
	offload_pair_close(&p);
}
END_TEST

TEST_FILE(engine_offload_full)
