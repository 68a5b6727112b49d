/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending from memory that the processor does not reach. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>

#include "lib/base/memory/fault.h"
#include "tests/unit/engine/offload/offload_fixture.h"
#include "tests/fixtures/program.h"

static struct offload_pair p;

static void open_pair(enum frl_qp_type type, bool loop)
{
	offload_pair_open(&p, &(struct offload_config){ .type = type, .loop = loop });
	offload_fill(p.memory->view, OFFLOAD_MEMORY);
}

static const struct frl_send_wr send = { .wr_id = 1, .opcode = FRL_WR_SEND };

/* Time passes, in which the peer that the test plays could answer. */
static void pass(uint64_t ns)
{
	p.a->now_ns += ns;
	p.b->now_ns = p.a->now_ns;
}

/* With an ICRC over the bytes that were fetched, of a short payload as well. */
START_LOOP_TEST(leaves_when_it_is_there, 10)
{
	static const uint32_t lengths[] = { 1, 3, 64, FRL_MAX_INLINE, 3 * HOST_MTU + 10 };
	uint32_t length = lengths[_i % 5];

	open_pair(FRL_QPT_RC, _i >= 5);
	host_post_recv(p.a, 0, 5, 0, length);
	offload_post(p.b, 1, send, 0, length);
	offload_settle(&p);
	host_expect_no_wc(&p.a->cqs[0]);
	ck_assert_uint_gt(p.mock.launched, 0);
	p.mock.speed = 1;
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[0], 5, FRL_WC_SUCCESS);
	host_expect_wc(&p.b->cqs[1], 1, FRL_WC_SUCCESS);
	offload_expect(p.a->memory, 0, length);
	ck_assert_uint_eq(p.a->engine.stats.drop_bad_icrc, 0);
	ck_assert_uint_eq(p.b->engine.stats.offload_gathered, length);
	offload_pair_close(&p);
}
END_TEST

/* Elements in both kinds of memory, one after the other. */
START_TEST(mixed_elements)
{
	struct frl_sge sges[3];
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND, .sge = sges, .n_sge = 3 };
	const struct wr_objects none = { 0 };
	const char *why = "";

	open_pair(FRL_QPT_RC, false);
	p.mock.speed = 1;
	sges[0] = (struct frl_sge){ p.memory->there, 30, p.region.key };
	sges[1] = (struct frl_sge){ p.b->memory, 30, p.b->region.key };
	sges[2] = (struct frl_sge){ p.memory->there + 60, 400, p.region.key };
	for (uint32_t i = 0; i < 30; i++)
		p.b->memory[i] = offload_byte(30 + i);
	host_post_recv(p.a, 0, 5, 0, 460);
	ck_assert_msg(qp_post_send(&p.b->qps[1].qp.core, &wr, &none, &why) == 0, "%s", why);
	engine_update(&p.b->engine, &p.b->qps[1].qp);
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[0], 5, FRL_WC_SUCCESS);
	offload_expect(p.a->memory, 0, 460);
	offload_pair_close(&p);
}
END_TEST

/* READ responses, of all lengths: short ones are not copied by the processor either. */
START_LOOP_TEST(read_from_it, 2)
{
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_READ };
	uint32_t length = _i ? 3 * HOST_MTU + 5 : 16;

	open_pair(FRL_QPT_RC, false);
	wr.remote_addr = (uintptr_t)p.memory->there;
	wr.rkey = p.region.key;
	host_post(p.a, 0, wr, 0, length, NULL);
	/* An acknowledgement that is made later stays behind the response. */
	host_post_recv(p.b, 1, 6, 0, 64);
	host_post(p.a, 0, send, 1024, 64, NULL);
	offload_settle(&p);
	ck_assert_uint_eq(p.a->engine.stats.implied_naks, 0);
	host_expect_wc(&p.b->cqs[1], 6, FRL_WC_SUCCESS);
	host_expect_no_wc(&p.a->cqs[0]);
	p.mock.speed = 1;
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_wc(&p.a->cqs[0], 1, FRL_WC_SUCCESS);
	offload_expect(p.a->memory, 0, length);
	ck_assert_uint_eq(p.a->engine.stats.implied_naks, 0);
	ck_assert_uint_eq(p.a->engine.stats.retransmits, 0);
	offload_pair_close(&p);
}
END_TEST

/* Requests of the queue pair stay in order; its answers and other queue pairs do not wait. */
START_TEST(order)
{
	open_pair(FRL_QPT_RC, false);
	host_pair(p.a, 2, p.b, 2, NULL);
	for (unsigned k = 0; k < 3; k++)
		host_post_recv(p.a, 0, 5 + k, 1000 * k, 64);
	host_post_recv(p.a, 2, 9, 0, 64);
	host_post_recv(p.b, 1, 10, 0, 64);
	host_post(p.b, 1, send, 0, 64, NULL);
	offload_post(p.b, 1, send, 0, 64);
	host_post(p.b, 1, send, 0, 64, NULL);
	host_post(p.b, 2, send, 0, 64, NULL);
	host_post(p.a, 0, send, 0, 64, NULL);
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[0], 5, FRL_WC_SUCCESS);
	host_expect_wc(&p.a->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_no_wc(&p.a->cqs[0]);
	host_expect_wc(&p.a->cqs[2], 9, FRL_WC_SUCCESS);
	p.mock.speed = 1;
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[0], 6, FRL_WC_SUCCESS);
	host_expect_wc(&p.a->cqs[0], 7, FRL_WC_SUCCESS);
	ck_assert_uint_eq(p.a->engine.stats.out_of_sequence, 0);
	ck_assert_uint_eq(p.b->engine.stats.retransmits, 0);
	offload_expect(p.a->memory + 1000, 0, 64);
	offload_pair_close(&p);
}
END_TEST

/* Packets that wait behind such a packet are copied: their memory may be somebody else's when they
 * leave, or hold something else, and the ICRC is over what leaves. */
START_LOOP_TEST(host_memory_behind_it, 2)
{
	enum { LENGTH = 1024 }; /* longer than what goes into a packet's header */
	static const struct host_qp_config config = { .path_mtu = LENGTH };
	struct frl_send_wr read = { .wr_id = 1, .opcode = FRL_WR_RDMA_READ };

	open_pair(FRL_QPT_RC, false);
	host_pair(p.a, 2, p.b, 2, &config);
	if (_i) {
		read.remote_addr = (uintptr_t)p.memory->there;
		read.rkey = p.region.key;
		host_post(p.a, 2, read, 0, LENGTH, NULL);
		read.remote_addr = (uintptr_t)p.b->memory;
		read.rkey = p.b->region.key;
	} else {
		host_post_recv(p.a, 2, 5, 0, LENGTH);
		host_post_recv(p.a, 2, 6, 4096, 2 * LENGTH);
		offload_post(p.b, 2, send, 0, LENGTH);
	}
	offload_fill(p.b->memory, 2 * LENGTH);
	if (_i)
		host_post(p.a, 2, read, 4096, 2 * LENGTH, NULL);
	else
		host_post(p.b, 2, send, 0, 2 * LENGTH, NULL);
	offload_settle(&p);
	ck_assert(!engine_region_queued(&p.b->engine, &p.b->region));
	memset(p.b->memory, 0xee, HOST_MEMORY);
	p.mock.speed = 1;
	offload_settle(&p);
	for (unsigned k = 0; k < 2; k++)
		host_expect_wc(&p.a->cqs[2], _i ? 1 : 5 + k, FRL_WC_SUCCESS);
	for (uint32_t i = 0; i < 2 * LENGTH; i++)
		ck_assert_uint_eq(p.a->memory[4096 + i], offload_byte(i));
	ck_assert_uint_eq(p.a->engine.stats.drop_bad_icrc, 0);
	ck_assert_uint_eq(p.a->engine.stats.retransmits + p.b->engine.stats.retransmits, 0);
	offload_pair_close(&p);
}
END_TEST

/* Requests that the engine executes itself hide which memory the next packet is of. */
START_TEST(behind_local_requests)
{
	enum { LENGTH = 60 * HOST_MTU };
	struct frl_send_wr invalidate = { .wr_id = 2, .opcode = FRL_WR_LOCAL_INV };
	const struct wr_objects none = { 0 };
	struct region windows[2] = { { .is_window = true }, { .is_window = true } };
	struct engine *e;
	const char *why = "";
	uint64_t given;

	open_pair(FRL_QPT_RC, false);
	e = &p.b->engine;
	for (unsigned k = 2; k < 5; k++)
		host_pair(p.a, k, p.b, k, NULL);
	/* They take all that there is beside the link's queue. */
	for (unsigned k = 2; k < 5; k++) {
		host_post_recv(p.a, k, k, 0, LENGTH);
		offload_post(p.b, k, send, 0, LENGTH);
	}
	offload_settle(&p);
	host_post_recv(p.a, 0, 5, 0, 64);
	for (unsigned k = 0; k < 2; k++) {
		struct frl_mw_bind bind = {
			.addr = p.region.iova, .length = 100, .access = FRL_ACCESS_REMOTE_WRITE
		};

		windows[k].pd = &p.b->pd;
		ck_assert_int_eq(engine_add_region(e, &windows[k]), 0);
		bind.rkey = windows[k].key ^ 1;
		ck_assert(region_bind(
			&e->regions, &windows[k], &p.region, &bind, &p.b->qps[1].qp.core));
		invalidate.invalidate_rkey = windows[k].key;
		ck_assert_msg(qp_post_send(&p.b->qps[1].qp.core, &invalidate, &none, &why) == 0,
			"%s", why);
	}
	given = p.mock.given;
	offload_post(p.b, 1, send, 0, 64);
	offload_settle(&p);
	ck_assert_uint_eq(p.mock.given, given);
	p.mock.speed = 1;
	offload_settle(&p);
	for (unsigned k = 2; k < 5; k++)
		host_expect_wc(&p.a->cqs[k], k, FRL_WC_SUCCESS);
	host_expect_wc(&p.a->cqs[0], 5, FRL_WC_SUCCESS);
	offload_expect(p.a->memory, 0, 64);
	for (unsigned k = 0; k < 2; k++)
		engine_remove_region(e, &windows[k]);
	offload_pair_close(&p);
}
END_TEST

/* The peer is not to blame for the time that this end takes. */
START_TEST(own_time_is_not_the_peers)
{
	const uint64_t timeout_ns = UINT64_C(4096) << 14;

	open_pair(FRL_QPT_RC, false);
	host_post_recv(p.a, 0, 5, 0, 64);
	offload_post(p.b, 1, send, 0, 64);
	offload_settle(&p);
	for (unsigned k = 0; k < 41; k++) {
		pass(timeout_ns / 2);
		host_poll(p.b);
	}
	ck_assert_uint_eq(p.b->engine.stats.timeouts, 0);
	ck_assert_int_eq(p.b->qps[1].qp.core.state, FRL_QPS_RTS);
	p.mock.speed = 1;
	host_poll(p.b);
	host_poll(p.b);
	ck_assert_uint_eq(p.b->port.n_sent, 1);
	p.b->port.n_sent = 0;
	pass(timeout_ns - 10000);
	host_poll(p.b);
	ck_assert_uint_eq(p.b->engine.stats.timeouts, 0);
	/* But then it has had its time. */
	pass(20000);
	host_poll(p.b);
	ck_assert_uint_eq(p.b->engine.stats.timeouts, 1);
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[0], 5, FRL_WC_SUCCESS);
	host_expect_wc(&p.b->cqs[1], 1, FRL_WC_SUCCESS);
	offload_pair_close(&p);
}
END_TEST

/* Peers that take nothing do not keep others from being sent to. */
START_TEST(blocked_peers)
{
	enum { LENGTH = 200 * HOST_MTU };
	static const struct host_config config = { .on_demand = true };
	struct host *host = host_new(&config);
	struct frl_sge sge;
	struct frl_send_wr wr = { .opcode = FRL_WR_RDMA_WRITE, .sge = &sge, .n_sge = 1 };
	const struct wr_objects none = { 0 };
	const char *why = "";
	struct mock_memory *memory;
	struct region region;
	uint32_t sent = 0;

	mock_offload_init(&p.mock, 1);
	p.mock.speed = UINT32_MAX;
	ck_assert_int_eq(mock_offload_attach(&p.mock, &host->engine), 0);
	memory = mock_offload_memory(&p.mock, OFFLOAD_MEMORY);
	region = (struct region){ .addr = memory->there,
		.length = OFFLOAD_MEMORY,
		.iova = (uintptr_t)memory->there,
		.pd = &host->pd,
		.owner = &p.mock.base };
	ck_assert_int_eq(engine_add_region(&host->engine, &region), 0);
	sge = (struct frl_sge){ memory->there, LENGTH, region.key };
	for (unsigned i = 0; i < FAKE_LINKS; i++) {
		const struct host_qp_config qp = { .link = (uint16_t)i };

		host_add(host, i, &qp);
		ck_assert_int_eq(qp_post_send(&host->qps[i].qp.core, &wr, &none, &why), 0);
		engine_update(&host->engine, &host->qps[i].qp);
		host->port.room[i] = i + 1 < FAKE_LINKS ? 0 : FAKE_UNLIMITED;
	}
	for (unsigned round = 0; round < 200; round++)
		host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, LENGTH / HOST_MTU);
	host->port.n_sent = 0;
	for (unsigned i = 0; i < FAKE_LINKS; i++)
		host->port.room[i] = FAKE_UNLIMITED;
	for (unsigned round = 0; round < 200; round++) {
		host->port.n_sent = 0;
		host_poll(host);
		sent += host->port.n_sent;
	}
	ck_assert_uint_eq(sent, (FAKE_LINKS - 1) * LENGTH / HOST_MTU);
	mock_offload_detach(&p.mock, &host->engine);
	host_free(host);
	mock_offload_fini(&p.mock);
}
END_TEST

/* Packets that wait beside a queue that has just become empty are work: the caller must not
 * sleep. */
START_TEST(waits_beside_a_full_queue)
{
	open_pair(FRL_QPT_RC, false);
	host_pair(p.a, 2, p.b, 2, NULL);
	host_post_recv(p.a, 0, 5, 0, 64);
	host_post_recv(p.a, 2, 9, 0, ENGINE_TX_QUEUE * HOST_MTU);
	p.b->port.room[0] = 0;
	offload_post(p.b, 1, send, 0, 64);
	host_poll(p.b);
	host_post(p.b, 2, send, 0, ENGINE_TX_QUEUE * HOST_MTU, NULL);
	for (unsigned round = 0; round < 8; round++)
		host_poll(p.b);
	p.mock.speed = 100;
	for (unsigned round = 0; round < 8; round++)
		host_poll(p.b);
	ck_assert_uint_eq(p.b->port.n_sent, 0);
	p.b->port.room[0] = FAKE_UNLIMITED;
	host_poll(p.b);
	ck_assert_uint_eq(p.b->port.n_sent, ENGINE_TX_QUEUE);
	ck_assert(engine_has_work(&p.b->engine));
	host_poll(p.b);
	ck_assert_uint_eq(p.b->port.n_sent, ENGINE_TX_QUEUE + 1);
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[2], 9, FRL_WC_SUCCESS);
	host_expect_wc(&p.a->cqs[0], 5, FRL_WC_SUCCESS);
	offload_pair_close(&p);
}
END_TEST

/* An offload that stands still does not keep host memory from being sent, however much waits. */
START_LOOP_TEST(stands_still, 2)
{
	open_pair(FRL_QPT_RC, false);
	p.mock.room = _i ? 5 : UINT32_MAX;
	host_pair(p.a, 2, p.b, 2, NULL);
	for (unsigned k = 0; k < 20; k++) {
		host_post_recv(p.a, 0, k, 0, OFFLOAD_MEMORY / 4);
		offload_post(p.b, 1, send, 0, OFFLOAD_MEMORY / 4);
	}
	offload_settle(&p);
	pass(UINT64_C(4096) << 18);
	offload_settle(&p);
	ck_assert_uint_eq(p.b->engine.stats.timeouts, 0);
	host_post_recv(p.a, 2, 9, 0, 64);
	host_post(p.b, 2, send, 0, 64, NULL);
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[2], 9, FRL_WC_SUCCESS);
	p.mock.speed = 100;
	offload_settle(&p);
	for (unsigned k = 0; k < 20; k++)
		host_expect_wc(&p.b->cqs[1], 1, FRL_WC_SUCCESS);
	offload_expect(p.a->memory, 0, OFFLOAD_MEMORY / 4);
	offload_pair_close(&p);
}
END_TEST

enum ending { TO_ERR, TO_RESET, REMOVED, LINK_GONE, ENDINGS };

/* Nothing of it is sent any more; its buffers stay until they are not written. */
START_LOOP_TEST(withdrawn, ENDINGS)
{
	struct frl_qp_attr attr = { .state = _i == TO_RESET ? FRL_QPS_RESET : FRL_QPS_ERR };

	open_pair(FRL_QPT_RC, false);
	host_pair(p.a, 2, p.b, 2, NULL);
	offload_post(p.b, 1, send, 0, 2 * HOST_MTU);
	host_post(p.b, 1, send, 0, 64, NULL);
	host_poll(p.b);
	ck_assert_uint_eq(p.mock.given, 2);
	if (_i == REMOVED)
		engine_remove_qp(&p.b->engine, &p.b->qps[1].qp);
	else if (_i == LINK_GONE)
		engine_drop_link(&p.b->engine, 0);
	else
		ck_assert_int_eq(host_modify(p.b, 1, &attr, FRL_QP_STATE, NULL), 0);
	ck_assert(engine_region_queued(&p.b->engine, &p.region));
	ck_assert(!engine_link_queued(&p.b->engine, 0));
	if (_i == TO_ERR) {
		host_expect_wc(&p.b->cqs[1], 1, FRL_WC_WR_FLUSH_ERR);
		host_expect_wc(&p.b->cqs[1], 1, FRL_WC_WR_FLUSH_ERR);
	}
	host_poll(p.b);
	mock_offload_step(&p.mock, 1);
	host_poll(p.b);
	ck_assert_uint_eq(p.b->port.n_sent, 0);
	mock_offload_step(&p.mock, 1);
	host_poll(p.b);
	host_poll(p.b);
	ck_assert_uint_eq(p.b->port.n_sent, 0);
	ck_assert(!engine_region_queued(&p.b->engine, &p.region));
	/* And then they are somebody's, each once. */
	if (_i != LINK_GONE) {
		host_post_recv(p.a, 2, 7, 0, OFFLOAD_MEMORY / 4);
		offload_post(p.b, 2, send, 0, OFFLOAD_MEMORY / 4);
		p.mock.speed = 1;
		offload_settle(&p);
		host_expect_wc(&p.a->cqs[2], 7, FRL_WC_SUCCESS);
		offload_expect(p.a->memory, 0, OFFLOAD_MEMORY / 4);
	}
	offload_pair_close(&p);
}
END_TEST

/* Buffers that are still written are nobody else's. */
START_TEST(withdrawn_buffers)
{
	enum { LENGTH = OFFLOAD_MEMORY / 4 };
	struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	struct frl_sge sge;
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND, .sge = &sge, .n_sge = 1 };
	const struct wr_objects none = { 0 };
	const char *why = "";

	open_pair(FRL_QPT_RC, false);
	host_pair(p.a, 2, p.b, 2, NULL);
	sge = (struct frl_sge){ p.memory->there + 1, LENGTH, p.region.key };
	ck_assert_int_eq(qp_post_send(&p.b->qps[1].qp.core, &wr, &none, &why), 0);
	engine_update(&p.b->engine, &p.b->qps[1].qp);
	offload_settle(&p);
	ck_assert_int_eq(host_modify(p.b, 1, &attr, FRL_QP_STATE, NULL), 0);
	for (unsigned k = 0; k < 8; k++) {
		host_post_recv(p.a, 2, k, 0, LENGTH);
		offload_post(p.b, 2, send, 0, LENGTH);
	}
	p.mock.speed = 1;
	offload_settle(&p);
	for (unsigned k = 0; k < 8; k++)
		host_expect_wc(&p.a->cqs[2], k, FRL_WC_SUCCESS);
	offload_expect(p.a->memory, 0, LENGTH);
	offload_pair_close(&p);
}
END_TEST

/* UC: complete when the port has them, which is after they were fetched. */
START_LOOP_TEST(unreliable, 2)
{
	open_pair(FRL_QPT_UC, false);
	host_post_recv(p.a, 0, 5, 0, 2 * HOST_MTU);
	offload_post(p.b, 1, send, 0, 2 * HOST_MTU);
	host_post(p.b, 1, send, 0, 64, NULL);
	offload_settle(&p);
	host_expect_no_wc(&p.b->cqs[1]);
	if (_i) {
		engine_drop_link(&p.b->engine, 0);
		host_expect_wc(&p.b->cqs[1], 1, FRL_WC_REM_ABORT_ERR);
		host_expect_wc(&p.b->cqs[1], 1, FRL_WC_WR_FLUSH_ERR);
	}
	p.mock.speed = 1;
	offload_settle(&p);
	if (!_i) {
		host_expect_wc(&p.b->cqs[1], 1, FRL_WC_SUCCESS);
		host_expect_wc(&p.b->cqs[1], 1, FRL_WC_SUCCESS);
		host_expect_wc(&p.a->cqs[0], 5, FRL_WC_SUCCESS);
		offload_expect(p.a->memory, 0, 2 * HOST_MTU);
	}
	offload_pair_close(&p);
}
END_TEST

static struct region unmappable;

static void open_unmappable(enum frl_qp_type type)
{
	void *memory = mmap(NULL, HOST_MTU, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	fault_start();
	open_pair(type, false);
	unmappable = p.b->region;
	unmappable.addr = memory;
	unmappable.iova = (uintptr_t)memory;
	unmappable.length = HOST_MTU;
	unmappable.port_mem = memory;
	unmappable.access |= FRL_ACCESS_MAY_UNMAP;
	ck_assert_int_eq(engine_add_region(&p.b->engine, &unmappable), 0);
}

static void post_unmappable(uint64_t wr_id)
{
	struct frl_sge sge = { unmappable.addr, HOST_MTU, unmappable.key };
	struct frl_send_wr wr = { .wr_id = wr_id,
		.opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1 };
	const struct wr_objects none = { 0 };
	const char *why = "";

	ck_assert_int_eq(qp_post_send(&p.b->qps[1].qp.core, &wr, &none, &why), 0);
	engine_update(&p.b->engine, &p.b->qps[1].qp);
}

static void close_unmappable(void)
{
	engine_remove_region(&p.b->engine, &unmappable);
	offload_pair_close(&p);
}

/* UC: a request before one that is fetched fails. Neither is sent, and neither succeeds. */
START_TEST(unmapped_before)
{
	open_unmappable(FRL_QPT_UC);
	p.b->port.room[0] = 0;
	post_unmappable(3);
	offload_post(p.b, 1, send, 0, 2 * HOST_MTU);
	offload_settle(&p);
	munmap(unmappable.addr, HOST_MTU);
	p.b->port.room[0] = FAKE_UNLIMITED;
	p.mock.speed = 1;
	offload_settle(&p);
	host_expect_wc(&p.b->cqs[1], 3, FRL_WC_LOC_PROT_ERR);
	host_expect_wc(&p.b->cqs[1], 1, FRL_WC_WR_FLUSH_ERR);
	host_expect_no_wc(&p.b->cqs[1]);
	ck_assert_uint_eq(p.a->engine.stats.rx_packets, 0);
	close_unmappable();
}
END_TEST

/* A request that waits behind one that is fetched: unmapped before it is copied, and after that. */
START_LOOP_TEST(unmapped_behind, PAIRS(2, 2))
{
	bool is_copied = _i / 2;

	open_unmappable(_i % 2 ? FRL_QPT_UC : FRL_QPT_RC);
	host_post_recv(p.a, 0, 5, 0, HOST_MTU);
	host_post_recv(p.a, 0, 6, 0, HOST_MTU);
	offload_post(p.b, 1, send, 0, HOST_MTU);
	post_unmappable(3);
	if (is_copied)
		offload_settle(&p);
	munmap(unmappable.addr, HOST_MTU);
	offload_settle(&p);
	p.mock.speed = 1;
	offload_settle(&p);
	host_expect_wc(&p.b->cqs[1], 1, FRL_WC_SUCCESS);
	host_expect_wc(&p.b->cqs[1], 3, is_copied ? FRL_WC_SUCCESS : FRL_WC_LOC_PROT_ERR);
	host_expect_no_wc(&p.b->cqs[1]);
	host_expect_wc(&p.a->cqs[0], 5, FRL_WC_SUCCESS);
	close_unmappable();
}
END_TEST

/* Packets that were not fetched do not leave; answers do not either. */
START_LOOP_TEST(fails, 2)
{
	static const char why[] = "GPU 0 has fallen off the bus";
	struct frl_send_wr read = { .wr_id = 1, .opcode = FRL_WR_RDMA_READ };

	open_pair(FRL_QPT_RC, false);
	host_pair(p.a, 2, p.b, 2, NULL);
	read.remote_addr = (uintptr_t)p.memory->there;
	read.rkey = p.region.key;
	offload_post(p.b, 1, send, 0, 64);
	host_post(p.a, 0, read, 0, 64, NULL);
	offload_settle(&p);
	p.mock.error = why;
	p.mock.still_runs = _i;
	offload_settle(&p);
	ck_assert_str_eq(p.b->qps[1].qp.core.error, why);
	host_expect_wc(&p.b->cqs[1], 1, FRL_WC_LOC_PROT_ERR);
	ck_assert(engine_region_queued(&p.b->engine, &p.region) == _i);
	p.mock.still_runs = false;
	offload_settle(&p);
	ck_assert(!engine_region_queued(&p.b->engine, &p.region));
	ck_assert_uint_eq(p.b->engine.stats.offload_gathered, 0);
	ck_assert_uint_eq(p.a->engine.stats.rx_packets, 0);
	/* One that comes upon it later. */
	offload_post(p.b, 2, send, 0, 64);
	offload_settle(&p);
	host_expect_wc(&p.b->cqs[2], 1, FRL_WC_LOC_PROT_ERR);
	ck_assert_str_eq(p.b->qps[2].qp.core.error, why);
	offload_pair_close(&p);
}
END_TEST

TEST_FILE(engine_offload_send)
