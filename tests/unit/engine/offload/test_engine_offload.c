/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving into memory that the processor does not reach. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/wait.h>

#include "lib/engine/offload/transfers.h"
#include "tests/unit/engine/offload/offload_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/vectors/frame.h"

static struct offload_pair p;

/* Held in its frame, copied, or between queue pairs of one engine. */
enum way { HELD, COPIED, LOOP, WAYS };

static void open_pair(enum way way)
{
	offload_pair_open(&p, &(struct offload_config){ .loop = way == LOOP });
	if (way == COPIED)
		p.mock.reaches_one_in = 0;
}

/* A SEND of several packets: nothing tells of it before all of it is there. */
START_RANGE_TEST(receive_waits, HELD, WAYS)
{
	enum { LENGTH = 3 * HOST_MTU + 10 };

	open_pair((enum way)_i);
	offload_post_recv(p.b, 1, 5, 100, LENGTH);
	offload_fill(p.a->memory, LENGTH);
	host_post(
		p.a, 0, (struct frl_send_wr){ .opcode = FRL_WR_SEND, .wr_id = 1 }, 0, LENGTH, NULL);
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_no_wc(&p.b->cqs[1]);
	ck_assert_uint_eq(p.mock.launched, 4);
	/* All of a burst at once. */
	ck_assert_uint_eq(p.mock.launches, 1);
	ck_assert_uint_eq(p.b->port.n_out, _i == HELD ? 4 : 0);
	ck_assert(engine_offloads_busy(&p.b->engine));
	ck_assert_uint_le(engine_next_deadline(&p.b->engine), p.b->now_ns + 20000);
	for (uint32_t k = 0; k < 4; k++) {
		host_expect_no_wc(&p.b->cqs[1]);
		mock_offload_step(&p.mock, 1);
		offload_settle(&p);
	}
	host_expect_wc(&p.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(p.memory->view + 100, 0, LENGTH);
	ck_assert_uint_eq(p.memory->view[99], 0);
	ck_assert_uint_eq(p.memory->view[100 + LENGTH], 0);
	ck_assert_uint_eq(p.b->port.n_out, 0);
	ck_assert(!engine_offloads_busy(&p.b->engine));
	ck_assert_uint_eq(p.b->engine.stats.offload_placed, LENGTH);
	offload_pair_close(&p);
}
END_TEST

/* Work that could not be begun when it was given is begun when it can be, though nothing else
 * comes. */
START_RANGE_TEST(begins_later, HELD, WAYS)
{
	open_pair((enum way)_i);
	p.mock.launch_room = 0;
	offload_fill(p.a->memory, 128);
	for (uint32_t k = 0; k < 2; k++) {
		offload_post_recv(p.b, 1, 5 + k, 64 * k, 64);
		host_post(p.a, 0, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 64 * k, 64, NULL);
		offload_settle(&p);
	}
	ck_assert_uint_eq(p.mock.given, 2);
	ck_assert_uint_eq(p.mock.launched, 1);
	p.mock.speed = 1;
	offload_settle(&p);
	host_expect_wc(&p.b->cqs[1], 5, FRL_WC_SUCCESS);
	host_expect_wc(&p.b->cqs[1], 6, FRL_WC_SUCCESS);
	offload_expect(p.memory->view, 0, 128);
	offload_pair_close(&p);
}
END_TEST

/* Payload that is its sender's only until it is read is read once, before it is asked for. */
START_LOOP_TEST(in_place_payload_is_copied, 2)
{
	struct wire_headers h = { .bth = { .opcode = OP_SEND_ONLY, .pkey = PKEY_DEFAULT } };
	uint8_t payload[HOST_MTU];
	struct frame frame;

	offload_pair_open(&p, &(struct offload_config){ .in_place = true });
	offload_fill(payload, sizeof(payload));
	offload_post_recv(p.b, 1, 5, 0, HOST_MTU);
	h.bth.dest_qpn = p.b->qps[1].qp.core.qpn;
	h.bth.psn = psn_make(7000);
	frame = make_frame(0, &h, HOST_MTU, false);
	p.b->port.lost = _i;
	fake_port_receive_split(
		&p.b->port, 0, frame.bytes, (uint32_t)frame.payload, payload, HOST_MTU);
	host_poll(p.b);
	ck_assert_uint_eq(p.b->port.asked, 1);
	memset(payload, 0xee, sizeof(payload));
	host_expect_no_wc(&p.b->cqs[1]);
	mock_offload_step(&p.mock, 1);
	host_poll(p.b);
	host_expect_wc(&p.b->cqs[1], 5, _i ? FRL_WC_REM_ABORT_ERR : FRL_WC_SUCCESS);
	offload_expect(p.memory->view, 0, HOST_MTU);
	offload_pair_close(&p);
}
END_TEST

/* The results of READs and atomics. */
START_LOOP_TEST(results_wait, 2)
{
	const enum frl_wr_opcode opcodes[] = { FRL_WR_RDMA_READ, FRL_WR_ATOMIC_FETCH_AND_ADD };
	uint32_t length = _i ? 8 : 2 * HOST_MTU;
	struct frl_send_wr wr = { .wr_id = 3, .opcode = opcodes[_i], .compare_add = 1 };

	open_pair(HELD);
	offload_fill(p.a->memory, length);
	wr.remote_addr = (uintptr_t)p.a->memory;
	wr.rkey = p.a->region.key;
	offload_post(p.b, 1, wr, 40, length);
	offload_settle(&p);
	host_expect_no_wc(&p.b->cqs[1]);
	mock_offload_step(&p.mock, 10);
	offload_settle(&p);
	host_expect_wc(&p.b->cqs[1], 3, FRL_WC_SUCCESS);
	offload_expect(p.memory->view + 40, 0, length);
	offload_pair_close(&p);
}
END_TEST

/* By a window, which is gone when the bytes come; with an immediate, which tells of them. */
START_TEST(by_window)
{
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_WRITE_WITH_IMM };
	struct region window = { .is_window = true };
	struct frl_mw_bind bind;

	open_pair(HELD);
	window.pd = &p.b->pd;
	ck_assert_int_eq(engine_add_region(&p.b->engine, &window), 0);
	bind = (struct frl_mw_bind){ .addr = p.region.iova + 100,
		.length = 1000,
		.rkey = window.key ^ 1,
		.access = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_ATOMIC };
	ck_assert(!region_bind(
		&p.b->engine.regions, &window, &p.region, &bind, &p.b->qps[1].qp.core));
	bind.access = FRL_ACCESS_REMOTE_WRITE;
	ck_assert(
		region_bind(&p.b->engine.regions, &window, &p.region, &bind, &p.b->qps[1].qp.core));
	host_post_recv(p.b, 1, 5, 0, 0);
	offload_fill(p.a->memory, 600);
	wr.remote_addr = p.region.iova + 200;
	wr.rkey = window.key;
	host_post(p.a, 0, wr, 0, 600, NULL);
	offload_settle(&p);
	host_expect_no_wc(&p.b->cqs[1]);
	ck_assert(engine_region_queued(&p.b->engine, &p.region));
	engine_remove_region(&p.b->engine, &window);
	mock_offload_step(&p.mock, 10);
	host_poll(p.b);
	host_expect_wc(&p.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(p.memory->view + 200, 0, 600);
	offload_pair_close(&p);
}
END_TEST

START_TEST(datagram_with_its_header)
{
	struct engine_ah ah;

	offload_pair_open(&p, &(struct offload_config){ .type = FRL_QPT_UD });
	offload_add_ah(&p, &ah);
	offload_post_recv(p.b, 1, 5, 0, 300);
	offload_fill(p.a->memory, 200);
	host_post(p.a, 0,
		(struct frl_send_wr){ .opcode = FRL_WR_SEND,
			.remote_qpn = p.b->qps[1].qp.core.qpn,
			.remote_qkey = HOST_QKEY },
		0, 200, &ah);
	offload_settle(&p);
	host_expect_no_wc(&p.b->cqs[1]);
	mock_offload_step(&p.mock, 10);
	offload_settle(&p);
	host_expect_wc(&p.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(p.memory->view + WIRE_GRH_LEN, 0, 200);
	ck_assert_uint_eq(p.memory->view[20], 0x45);
	engine_remove_ah(&p.a->engine, &ah);
	offload_pair_close(&p);
}
END_TEST

START_LOOP_TEST(reduces_there, 2)
{
	enum { N = 100 };
	float in[N];

	open_pair(HELD);
	for (unsigned i = 0; i < N; i++) {
		in[i] = (float)i;
		((float *)(void *)p.memory->view)[i] = 1000;
		((float *)(void *)(p.memory->view + 4096))[i] = 2000;
	}
	memcpy(p.a->memory, in, sizeof(in));
	offload_post_reduce(p.b, 1, 5, 0, sizeof(in), _i ? (int32_t)4096 : -1);
	host_post(p.a, 0, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, sizeof(in), NULL);
	offload_settle(&p);
	host_expect_no_wc(&p.b->cqs[1]);
	mock_offload_step(&p.mock, 10);
	offload_settle(&p);
	host_expect_wc(&p.b->cqs[1], 5, FRL_WC_SUCCESS);
	for (unsigned i = 0; i < N; i++)
		ck_assert(((float *)(void *)p.memory->view)[i] ==
			(float)i + (_i ? 2000.0F : 1000.0F));
	offload_pair_close(&p);
}
END_TEST

/* Completions behind it in the same queue wait with it; those of another queue do not. */
START_TEST(order_of_completions)
{
	struct host_qp_config shared = { .recv_cq = NULL };

	open_pair(HELD);
	shared.recv_cq = &p.b->cqs[1];
	host_pair(p.a, 2, p.b, 2, &shared);
	host_pair(p.a, 3, p.b, 3, NULL);
	offload_post_recv(p.b, 1, 5, 0, 64);
	host_post_recv(p.b, 2, 6, 0, 64);
	host_post_recv(p.b, 3, 7, 0, 64);
	host_post(p.a, 0, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 64, NULL);
	offload_settle(&p);
	for (unsigned i = 2; i < 4; i++)
		host_post(p.a, i, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 64, NULL);
	offload_settle(&p);
	host_expect_no_wc(&p.b->cqs[1]);
	host_expect_wc(&p.b->cqs[3], 7, FRL_WC_SUCCESS);
	mock_offload_step(&p.mock, 1);
	host_poll(p.b);
	host_expect_wc(&p.b->cqs[1], 5, FRL_WC_SUCCESS);
	host_expect_wc(&p.b->cqs[1], 6, FRL_WC_SUCCESS);
	offload_pair_close(&p);
}
END_TEST

/* They wait in a queue that becomes deeper, or has just enough room for them. */
START_LOOP_TEST(queue_is_resized, 2)
{
	struct frl_wc entries[HOST_CQ * 2], *before;
	struct cq *cq;

	open_pair(HELD);
	cq = &p.b->cqs[1];
	/* The queue and its gate do not begin at 0. */
	for (uint64_t i = 1; i <= 3; i++) {
		offload_post_recv(p.b, 1, i, 0, 64);
		host_post(p.a, 0, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 64, NULL);
		offload_settle(&p);
		mock_offload_step(&p.mock, 1);
		host_poll(p.b);
		host_expect_wc(cq, i, FRL_WC_SUCCESS);
	}
	for (uint64_t i = 5; i <= 8; i++) {
		offload_post_recv(p.b, 1, i, 0, 64);
		host_post(p.a, 0, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 64, NULL);
		offload_settle(&p);
	}
	ck_assert_uint_eq(cq_used(cq), 4);
	ck_assert_int_eq(
		engine_resize_cq(&p.b->engine, cq, entries, _i ? HOST_CQ * 2 : 4, &before), 0);
	ck_assert_ptr_eq(before, p.b->wcs[1]);
	host_expect_no_wc(cq);
	for (uint64_t i = 5; i <= 8; i++) {
		mock_offload_step(&p.mock, 1);
		host_poll(p.b);
		host_expect_wc(cq, i, FRL_WC_SUCCESS);
		host_expect_no_wc(cq);
	}
	ck_assert(!cq->overrun);
	offload_pair_close(&p);
}
END_TEST

static bool take_notice(struct cq *cq)
{
	bool told = !list_empty(&cq->notify);

	list_remove(&cq->notify);
	return told;
}

/* Armed before the message comes, or after that and before the bytes are there. */
START_LOOP_TEST(told_when_it_can_be_taken, 3)
{
	struct cq *cq;

	open_pair(HELD);
	cq = &p.b->cqs[1];
	offload_post_recv(p.b, 1, 5, 0, 64);
	if (_i == 0)
		cq->armed = CQ_ARMED;
	if (_i == 1)
		cq->armed = CQ_ARMED_SOLICITED;
	host_post(p.a, 0,
		(struct frl_send_wr){ .opcode = FRL_WR_SEND, .flags = FRL_SEND_SOLICITED }, 0, 64,
		NULL);
	offload_settle(&p);
	ck_assert(!take_notice(cq));
	if (_i == 2)
		cq->armed = CQ_ARMED;
	mock_offload_step(&p.mock, 1);
	host_poll(p.b);
	ck_assert(take_notice(cq));
	ck_assert_uint_eq(cq->armed, CQ_NOT_ARMED);
	host_expect_wc(cq, 5, FRL_WC_SUCCESS);
	offload_pair_close(&p);
}
END_TEST

/* A receive that comes back when the queue pair fails is not free before its memory is not written
 * any more. */
START_TEST(flushed_receives_wait)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_ERR };

	open_pair(HELD);
	offload_post_recv(p.b, 1, 5, 0, 2 * HOST_MTU);
	offload_post_recv(p.b, 1, 6, 0, 64);
	host_post(p.a, 0, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 2 * HOST_MTU, NULL);
	host_poll(p.a);
	p.a->port.n_sent = 1;
	host_carry(p.a, p.b);
	host_poll(p.b);
	ck_assert_uint_eq(p.mock.given, 1);
	ck_assert_int_eq(host_modify(p.b, 1, &attr, FRL_QP_STATE, NULL), 0);
	host_expect_no_wc(&p.b->cqs[1]);
	ck_assert(engine_region_queued(&p.b->engine, &p.region));
	mock_offload_step(&p.mock, 1);
	host_poll(p.b);
	host_expect_wc(&p.b->cqs[1], 5, FRL_WC_WR_FLUSH_ERR);
	host_expect_wc(&p.b->cqs[1], 6, FRL_WC_WR_FLUSH_ERR);
	ck_assert(!engine_region_queued(&p.b->engine, &p.region));
	offload_pair_close(&p);
}
END_TEST

/* A queue pair that is gone leaves what it has placed. */
START_LOOP_TEST(removed_while_placing, 2)
{
	open_pair(_i ? COPIED : HELD);
	offload_post_recv(p.b, 1, 5, 0, 64);
	offload_fill(p.a->memory, 64);
	host_post(p.a, 0, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 64, NULL);
	offload_settle(&p);
	engine_remove_qp(&p.b->engine, &p.b->qps[1].qp);
	memset(&p.b->qps[1].qp, 0xee, sizeof(p.b->qps[1].qp));
	mock_offload_step(&p.mock, 1);
	host_poll(p.b);
	host_expect_wc(&p.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(p.memory->view, 0, 64);
	ck_assert_uint_eq(p.b->port.n_out, 0);
	offload_pair_close(&p);
}
END_TEST

/* The response to a READ has what a WRITE before it, of another queue pair, has brought. */
START_LOOP_TEST(read_after_write, 2)
{
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_WRITE };

	open_pair(HELD);
	host_pair(p.a, 2, p.b, 2, NULL);
	offload_fill(p.a->memory, 1000);
	wr.remote_addr = (uintptr_t)p.memory->there + 64;
	wr.rkey = p.region.key;
	host_post(p.a, 0, wr, 0, 1000, NULL);
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(p.mock.done, 0);
	wr.opcode = FRL_WR_RDMA_READ;
	host_post(p.a, _i ? 2 : 0, wr, 4096, 1000, NULL);
	offload_settle(&p);
	p.mock.speed = 1;
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[_i ? 2 : 0], 1, FRL_WC_SUCCESS);
	for (uint32_t i = 0; i < 1000; i++)
		ck_assert_uint_eq(p.a->memory[4096 + i], offload_byte(i));
	offload_pair_close(&p);
}
END_TEST

/* An offload that stands still: a queue pair that uses it has to send again, without waiting for a
 * timer; the others do not notice. */
START_LOOP_TEST(stands_still, 2)
{
	enum { LENGTH = 4096, MESSAGES = 100 };
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_WRITE };
	uint64_t start_ns;

	open_pair(HELD);
	p.mock.room = _i ? 10 : UINT32_MAX;
	host_pair(p.a, 2, p.b, 2, NULL);
	offload_fill(p.a->memory, LENGTH);
	wr.remote_addr = (uintptr_t)p.memory->there;
	wr.rkey = p.region.key;
	for (unsigned k = 0; k < MESSAGES; k++)
		host_post(p.a, 0, wr, 0, LENGTH, NULL);
	offload_settle(&p);
	ck_assert_uint_gt(p.b->engine.stats.offload_waits, 0);
	ck_assert_uint_le(p.b->port.n_out, OFFLOAD_HELD);
	host_post_recv(p.b, 2, 6, 0, 64);
	host_post(p.a, 2, (struct frl_send_wr){ .opcode = FRL_WR_SEND, .wr_id = 9 }, 0, 64, NULL);
	offload_settle(&p);
	host_expect_wc(&p.b->cqs[2], 6, FRL_WC_SUCCESS);
	host_expect_wc(&p.a->cqs[2], 9, FRL_WC_SUCCESS);
	start_ns = p.a->now_ns;
	p.mock.speed = 100;
	offload_settle(&p);
	ck_assert_uint_lt(p.a->now_ns - start_ns, 60000000);
	ck_assert_uint_eq(p.a->engine.stats.timeouts, 0);
	for (unsigned k = 0; k < MESSAGES; k++)
		host_expect_wc(&p.a->cqs[0], 1, FRL_WC_SUCCESS);
	offload_expect(p.memory->view, 0, LENGTH);
	ck_assert_uint_eq(p.b->port.n_out, 0);
	offload_pair_close(&p);
}
END_TEST

/* The same for what comes back to a READ. */
START_TEST(stands_still_for_responses)
{
	enum { LENGTH = 32768, MESSAGES = 16 };
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_READ };

	open_pair(COPIED);
	offload_fill(p.a->memory, LENGTH);
	wr.remote_addr = (uintptr_t)p.a->memory;
	wr.rkey = p.a->region.key;
	for (unsigned k = 0; k < MESSAGES; k++)
		offload_post(p.b, 1, wr, 0, LENGTH);
	offload_settle(&p);
	ck_assert_uint_gt(p.b->engine.stats.offload_waits, 0);
	p.mock.speed = 50;
	offload_settle(&p);
	ck_assert_uint_eq(p.b->engine.stats.timeouts, 0);
	for (unsigned k = 0; k < MESSAGES; k++)
		host_expect_wc(&p.b->cqs[1], 1, FRL_WC_SUCCESS);
	offload_expect(p.memory->view, 0, LENGTH);
	offload_pair_close(&p);
}
END_TEST

static struct mock_offload others[ENGINE_OFFLOADS];

/* A child of the application's that writes to the engine's buffers, or has the parent write, does
 * not part them from what an offload reaches. */
START_TEST(buffers_are_shared)
{
	volatile uint8_t *byte;
	pid_t child;
	int status;

	open_pair(HELD);
	ck_assert_uint_ge(p.mock.n_maps, 1);
	byte = (volatile uint8_t *)(uintptr_t)p.mock.maps[0].addr;
	*byte = 1;
	child = fork();
	if (child == 0) {
		*byte = 2;
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_uint_eq(*byte, 2);
	offload_pair_close(&p);
}
END_TEST

START_TEST(refused)
{
	const char *why = "";
	struct frl_sge sge;
	struct frl_recv_wr recv = { .sge = &sge, .n_sge = 1 };
	struct frl_send_wr send = { .sge = &sge, .n_sge = 1 };
	const struct wr_objects none = { 0 };

	open_pair(HELD);
	sge = (struct frl_sge){ p.memory->there, 64, p.region.key };
	recv.action = (struct frl_recv_action){ .type = FRL_ACTION_REDUCE,
		.dtype = FRL_FLOAT32,
		.op = FRL_SUM,
		.src = p.b->memory,
		.src_lkey = p.b->region.key };
	ck_assert_int_eq(qp_post_recv(&p.b->qps[1].qp.core, &recv, &why), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "one accelerator"));
	send.opcode = FRL_WR_SEND;
	send.flags = FRL_SEND_INLINE;
	ck_assert_int_eq(qp_post_send(&p.b->qps[1].qp.core, &send, &none, &why), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "host memory"));
	send = (struct frl_send_wr){ .opcode = FRL_WR_ATOMIC_FETCH_AND_ADD,
		.remote_addr = (uintptr_t)p.memory->there,
		.rkey = p.region.key };
	host_post(p.a, 0, send, 0, 8, NULL);
	offload_settle(&p);
	host_expect_wc(&p.a->cqs[0], 0, FRL_WC_REM_ACCESS_ERR);
	offload_pair_close(&p);
}
END_TEST

START_LOOP_TEST(attach, 2)
{
	struct host *host = host_new(NULL);
	unsigned n_maps = _i ? 2 : 1;

	/* Frames that the port does not spare are not reached. */
	host->port.base.caps.max_held = _i;
	for (unsigned i = 0; i < n_maps; i++) {
		mock_offload_init(&others[0], 1);
		others[0].map_error = -ENOMEM;
		others[0].map_succeeds = i;
		ck_assert_int_eq(mock_offload_attach(&others[0], &host->engine), -ENOMEM);
		ck_assert_uint_eq(others[0].n_maps, 0);
	}
	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++) {
		mock_offload_init(&others[i], 1);
		ck_assert_int_eq(mock_offload_attach(&others[i], &host->engine), 0);
		ck_assert_uint_eq(others[i].n_maps, n_maps);
	}
	ck_assert_int_eq(mock_offload_attach(&p.mock, &host->engine), -ENOSPC);
	mock_offload_detach(&others[3], &host->engine);
	ck_assert_uint_eq(others[3].n_maps, 0);
	ck_assert_int_eq(mock_offload_attach(&others[3], &host->engine), 0);
	host_free(host);
	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++)
		mock_offload_fini(&others[i]);
}
END_TEST

TEST_FILE(engine_offload)
