/* SPDX-License-Identifier: BSD-3-Clause */
/* The waits of send requests: fences, local requests and their order, a queue that drains. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <string.h>

static void post_flags(struct fixture *f, uint64_t wr_id, enum frl_wr_opcode opcode,
	uint32_t length, uint32_t flags)
{
	struct frl_sge sge = { f->memory, length, f->local.key };

	fixture_post(f,
		&(struct frl_send_wr){ .wr_id = wr_id,
			.opcode = opcode,
			.flags = FRL_SEND_SIGNALED | flags,
			.sge = &sge,
			.n_sge = 1 },
		NULL);
}

static void answer_read(struct fixture *f, uint32_t psn, uint32_t length)
{
	fixture_arrive(f, OP_READ_RESP_ONLY, psn, length);
}

/* Requests 1 to 3 are a SEND, a READ (or atomic) and a SEND; the fourth has a fence. */
START_LOOP_TEST(fence_waits_for_reads_and_atomics, 5)
{
	static const struct {
		enum frl_wr_opcode before, fenced;
		uint8_t opcode;
	} rows[] = {
		{ FRL_WR_RDMA_READ, FRL_WR_SEND, OP_SEND_ONLY },
		{ FRL_WR_RDMA_READ, FRL_WR_RDMA_WRITE, OP_WRITE_ONLY },
		{ FRL_WR_RDMA_READ, FRL_WR_RDMA_READ, OP_READ_REQUEST },
		{ FRL_WR_ATOMIC_FETCH_AND_ADD, FRL_WR_SEND, OP_SEND_ONLY },
		{ FRL_WR_ATOMIC_CMP_AND_SWP, FRL_WR_ATOMIC_FETCH_AND_ADD, OP_FETCH_ADD },
	};
	struct fixture *f = fixture_new(&(struct fixture_config){ .retry_cnt = 1 });
	bool read = rows[_i].before == FRL_WR_RDMA_READ;

	post_flags(f, 1, FRL_WR_SEND, 8, 0);
	post_flags(f, 2, rows[_i].before, 8, 0);
	post_flags(f, 3, FRL_WR_SEND, 8, 0);
	post_flags(f, 4, rows[_i].fenced, 8, FRL_SEND_FENCE);
	post_flags(f, 5, FRL_WR_SEND, 8, 0);
	ck_assert_uint_eq(fixture_output(f), 3);
	fixture_ack(f, 0x1f, 0);
	expect_silence(f);
	/* A retry does not get past it. */
	fixture_deadline(f);
	ck_assert_uint_eq(fixture_output(f), 2);
	fixture_arrive(f, read ? OP_READ_RESP_ONLY : OP_ATOMIC_ACK, 1, read ? 8 : 0);
	/* The SEND before it is not acknowledged: that does not matter. */
	ck_assert_uint_eq(fixture_output(f), 2);
	ck_assert_uint_eq(f->out[0].h.bth.opcode, rows[_i].opcode);
	ck_assert_uint_eq(f->out[0].h.bth.psn.value, 3);
	expect_out(f, 1, OP_SEND_ONLY, 4, 8, true);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
	expect_no_wc(&f->send_cq);
}
END_TEST

/* Only READs and atomics hold a fence back, and only at its first packet. */
START_LOOP_TEST(fence_is_free_otherwise, 2)
{
	struct fixture *f = fixture_new(&(struct fixture_config){
		.mtu = 256, .type = _i ? FRL_QPT_UC : FRL_QPT_RC, .window = 3 });

	post_flags(f, 1, FRL_WR_SEND, 1, 0);
	post_flags(f, 2, FRL_WR_SEND, 1024, FRL_SEND_FENCE);
	ck_assert_uint_eq(fixture_output(f), _i ? 5 : 3);
	if (_i)
		return;
	fixture_ack(f, 0x1f, 2);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_out(f, 1, OP_SEND_LAST, 4, 256, true);
}
END_TEST

static struct wr_objects bind_objects(struct fixture *f)
{
	return (struct wr_objects){ .window = &f->window, .parent = &f->local };
}

static void post_bind(struct fixture *f, uint64_t wr_id, uint32_t rkey, uint32_t access)
{
	struct wr_objects objects = bind_objects(f);

	fixture_post(f,
		&(struct frl_send_wr){ .wr_id = wr_id,
			.opcode = FRL_WR_BIND_MW,
			.flags = FRL_SEND_SIGNALED,
			.bind = { .addr = (uintptr_t)f->memory + 100,
				.length = 1000,
				.rkey = rkey,
				.access = access } },
		&objects);
}

static void post_invalidate(struct fixture *f, uint64_t wr_id, uint32_t rkey)
{
	fixture_post(f,
		&(struct frl_send_wr){ .wr_id = wr_id,
			.opcode = FRL_WR_LOCAL_INV,
			.flags = FRL_SEND_SIGNALED,
			.invalidate_rkey = rkey },
		NULL);
}

static void expect_local(struct fixture *f, uint64_t wr_id, enum frl_wc_opcode opcode)
{
	struct frl_wc wc;

	ck_assert(cq_pop(&f->send_cq, &wc));
	ck_assert_uint_eq(wc.wr_id, wr_id);
	ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, opcode);
	ck_assert_uint_eq(wc.byte_len, 0);
}

/* Local requests wait for everything before them, and everything behind waits for them. */
START_TEST(local_requests_in_order)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256 });
	uint32_t rkey = frl_inc_rkey(f->window.key);

	fixture_send(f, 1, FRL_WR_SEND, 300);
	fixture_send(f, 2, FRL_WR_RDMA_READ, 8);
	post_bind(f, 3, rkey, FRL_ACCESS_REMOTE_READ);
	fixture_send(f, 4, FRL_WR_SEND, 8);
	post_invalidate(f, 5, rkey);
	post_bind(f, 6, frl_inc_rkey(rkey), FRL_ACCESS_REMOTE_WRITE);
	fixture_send(f, 7, FRL_WR_SEND, 8);
	ck_assert_uint_eq(fixture_output(f), 3);
	fixture_ack(f, 0x1f, 1);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_silence(f);
	ck_assert_ptr_null(f->window.parent);
	answer_read(f, 2, 8);
	expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
	ck_assert_ptr_null(f->window.parent); /* nobody asked for output yet */
	/* Room for no packet: not even what needs none is done. */
	ck_assert_uint_eq(qp_output(&f->qp, f->out, 0, f->now_ns), 0);
	ck_assert(qp_wants_output(&f->qp));
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 3, 8, true);
	expect_local(f, 3, FRL_WC_BIND_MW);
	ck_assert_uint_eq(f->window.key, rkey);
	ck_assert_ptr_eq(f->window.parent, &f->local);
	ck_assert_ptr_eq(f->window.addr, f->memory + 100);
	ck_assert_uint_eq(f->window.length, 1000);
	ck_assert_ptr_eq(f->window.qp, &f->qp);
	expect_no_wc(&f->send_cq);
	fixture_ack(f, 0x1f, 3);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 4, 8, true);
	expect_wc(&f->send_cq, 4, FRL_WC_SUCCESS);
	expect_local(f, 5, FRL_WC_LOCAL_INV);
	expect_local(f, 6, FRL_WC_BIND_MW);
	ck_assert_uint_eq(f->window.key, frl_inc_rkey(rkey));
	ck_assert_uint_eq(f->window.access, FRL_ACCESS_REMOTE_WRITE);
	fixture_ack(f, 0x1f, 4);
	expect_wc(&f->send_cq, 7, FRL_WC_SUCCESS);
	expect_no_wc(&f->send_cq);
}
END_TEST

/* Going back does not carry a local request out before its time, nor twice. */
START_TEST(local_requests_and_retries)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .retry_cnt = 3 });
	uint32_t rkey = frl_inc_rkey(f->window.key);

	post_bind(f, 1, rkey, FRL_ACCESS_REMOTE_READ);
	fixture_send(f, 2, FRL_WR_SEND, 8);
	fixture_send(f, 3, FRL_WR_SEND, 8);
	post_invalidate(f, 4, rkey);
	fixture_send(f, 5, FRL_WR_SEND, 8);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_local(f, 1, FRL_WC_BIND_MW);
	fixture_ack(f, 0x60, 1);
	expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
	ck_assert_uint_eq(fixture_output(f), 1);
	fixture_deadline(f);
	ck_assert_uint_eq(fixture_output(f), 1);
	fixture_deadline(f);
	fixture_ack(f, 0x1f, 1); /* before it is sent again */
	expect_wc(&f->send_cq, 3, FRL_WC_SUCCESS);
	ck_assert_ptr_nonnull(f->window.parent);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 2, 8, true);
	expect_local(f, 4, FRL_WC_LOCAL_INV);
	ck_assert_ptr_null(f->window.parent);
	ck_assert_uint_eq(f->stats.retransmits, 2);
}
END_TEST

/* A local request that cannot be carried out, at the head of a queue of three. */
static const struct local_row {
	enum failure {
		NOT_BOUND, /* the window to invalidate */
		NO_RIGHT,  /* of the region: MW_BIND */
		OTHER_KEY, /* not of this window */
		OUT_OF_BOUNDS,
		WINDOW_GONE,
		REGION_GONE,
		REGION_REPLACED,
	} failure;
	enum frl_wc_status status;
} local_rows[] = {
	{ NOT_BOUND, FRL_WC_LOC_QP_OP_ERR },
	{ NO_RIGHT, FRL_WC_MW_BIND_ERR },
	{ OTHER_KEY, FRL_WC_MW_BIND_ERR },
	{ OUT_OF_BOUNDS, FRL_WC_MW_BIND_ERR },
	{ WINDOW_GONE, FRL_WC_MW_BIND_ERR },
	{ REGION_GONE, FRL_WC_MW_BIND_ERR },
	{ REGION_REPLACED, FRL_WC_MW_BIND_ERR },
};

static void post_failing(struct fixture *f, const struct local_row *row)
{
	struct wr_objects objects = bind_objects(f);
	struct frl_send_wr wr = { .wr_id = 2,
		.opcode = FRL_WR_BIND_MW,
		.bind = { .addr = (uintptr_t)f->memory,
			.length = 10,
			.rkey = frl_inc_rkey(f->window.key),
			.access = FRL_ACCESS_REMOTE_READ } };

	switch (row->failure) {
	case NOT_BOUND:
		wr.opcode = FRL_WR_LOCAL_INV;
		wr.invalidate_rkey = f->window.key;
		break;
	case NO_RIGHT: objects.parent = &f->read_only; break;
	case OTHER_KEY: wr.bind.rkey += 1 << REGION_TAG_BITS; break;
	case OUT_OF_BOUNDS: wr.bind.length = F_MEMORY + 1; break;
	default: break;
	}
	fixture_post(f, &wr, &objects);
	if (row->failure == WINDOW_GONE)
		region_remove(&f->table, &f->window);
	if (row->failure == REGION_GONE || row->failure == REGION_REPLACED)
		region_remove(&f->table, &f->local);
	if (row->failure == REGION_REPLACED)
		ck_assert(region_add(&f->table, &f->local, 0x4321));
}

START_LOOP_TEST(local_request_fails, 2 * ROWS(local_rows))
{
	const struct local_row *row = &local_rows[_i / 2];
	bool rc = _i % 2;
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .type = rc ? FRL_QPT_RC : FRL_QPT_UC });

	fixture_send(f, 1, FRL_WR_SEND, 8);
	ck_assert_uint_eq(fixture_output(f), 1);
	post_failing(f, row);
	fixture_send(f, 3, FRL_WR_SEND, 0);
	expect_silence(f);
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	if (rc)
		fixture_ack(f, 0x1f, 0);
	else
		fixture_transmitted(f, 1);
	expect_silence(f);
	ck_assert_int_eq(f->qp.state, rc ? FRL_QPS_ERR : FRL_QPS_SQE);
	ck_assert_ptr_null(f->window.parent);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_wc(&f->send_cq, 2, row->status);
	expect_wc(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR);
	expect_no_wc(&f->send_cq);
}
END_TEST

static void drain(struct fixture *f, bool notify)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_SQD, .en_sqd_async_notify = notify };
	const char *why = "";

	ck_assert_msg(
		qp_modify(&f->qp, &attr, FRL_QP_STATE | FRL_QP_EN_SQD_ASYNC_NOTIFY, &why) == 0,
		"%s", why);
	check_invariants(f);
}

/* Started requests are finished, lost packets and all; the others wait for RTS. */
START_TEST(drain_with_requests_under_way)
{
	struct fixture *f = fixture_new(&(struct fixture_config){
		.mtu = 256, .window = 4, .retry_cnt = 3, .sq_psn = 0xfffffe });

	fixture_send(f, 1, FRL_WR_SEND, 256);
	fixture_send(f, 2, FRL_WR_SEND, 5 * 256);
	fixture_send(f, 3, FRL_WR_SEND, 8);
	ck_assert_uint_eq(fixture_output(f), 4);
	drain(f, true);
	fixture_send(f, 4, FRL_WR_SEND, 8); /* taken, and waits too */
	expect_silence(f);
	fixture_ack(f, 0x60, 0xfffffe + 1);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(fixture_output(f), 4);
	expect_out(f, 0, OP_SEND_FIRST, 0xffffff, 256, false);
	fixture_deadline(f);
	ck_assert_uint_eq(fixture_output(f), 4);
	fixture_ack(f, 0x1f, 0xfffffe + 4);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_LAST, 0xfffffe + 5, 256, true);
	expect_no_event(&f->qp.events);
	ck_assert(!requester_drained(&f->qp));
	fixture_ack(f, 0x1f, 0xfffffe + 5);
	expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
	ck_assert(requester_drained(&f->qp));
	expect_event(&f->qp.events, FRL_EVENT_SQ_DRAINED);
	expect_silence(f);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	fixture_ack(f, 0x1f, 0xfffffe + 5);
	expect_no_event(&f->qp.events); /* once */
	fixture_move(f, FRL_QPS_RTS);
	ck_assert_uint_eq(fixture_output(f), 2);
	fixture_ack(f, 0x1f, 0xfffffe + 7);
	expect_wc(&f->send_cq, 3, FRL_WC_SUCCESS);
	expect_wc(&f->send_cq, 4, FRL_WC_SUCCESS);
	expect_no_event(&f->qp.events);
}
END_TEST

/* After going back, `next` is before what was started: that is finished all the same. */
START_TEST(drain_after_going_back)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .retry_cnt = 1 });

	fixture_send(f, 1, FRL_WR_SEND, 8);
	fixture_send(f, 2, FRL_WR_RDMA_READ, 2000);
	fixture_send(f, 3, FRL_WR_SEND, 8);
	ck_assert_uint_eq(fixture_output(f), 3);
	fixture_send(f, 4, FRL_WR_SEND, 8);
	fixture_deadline(f);
	drain(f, true);
	ck_assert_uint_eq(fixture_output(f), 3);
	expect_no_event(&f->qp.events);
	fixture_arrive(f, OP_READ_RESP_FIRST, 1, 1024);
	fixture_arrive(f, OP_READ_RESP_LAST, 2, 976);
	expect_no_event(&f->qp.events);
	fixture_ack(f, 0x1f, 3);
	expect_event(&f->qp.events, FRL_EVENT_SQ_DRAINED);
	for (uint32_t i = 1; i <= 3; i++)
		expect_wc(&f->send_cq, i, FRL_WC_SUCCESS);
	expect_silence(f);
}
END_TEST

START_TEST(drain_with_nothing_under_way)
{
	struct fixture *f = fixture_new(NULL);
	uint32_t rkey = frl_inc_rkey(f->window.key);

	post_bind(f, 1, rkey, FRL_ACCESS_REMOTE_READ);
	fixture_send(f, 2, FRL_WR_SEND, 8);
	drain(f, true);
	expect_event(&f->qp.events, FRL_EVENT_SQ_DRAINED);
	expect_silence(f);
	ck_assert_ptr_null(f->window.parent); /* local requests are not started either */
	expect_no_wc(&f->send_cq);
	fixture_move(f, FRL_QPS_RTS);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_local(f, 1, FRL_WC_BIND_MW);
	fixture_ack(f, 0x1f, 0);
	expect_no_event(&f->qp.events);
	drain(f, false); /* not wanted */
	ck_assert(requester_drained(&f->qp));
	expect_no_event(&f->qp.events);
}
END_TEST

/* Fatal errors in SQD are as in RTS, and nothing was drained by them. */
START_TEST(failure_while_draining)
{
	struct fixture *f = fixture_new(NULL);

	fixture_send(f, 1, FRL_WR_SEND, 8);
	fixture_output(f);
	fixture_send(f, 2, FRL_WR_SEND, 8);
	drain(f, true);
	fixture_ack(f, 0x61, 0);
	expect_wc(&f->send_cq, 1, FRL_WC_REM_INV_REQ_ERR);
	expect_wc(&f->send_cq, 2, FRL_WC_WR_FLUSH_ERR);
	expect_no_event(&f->qp.events);
	ck_assert(!requester_drained(&f->qp));
}
END_TEST

START_LOOP_TEST(drain_unreliable, 2)
{
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .type = _i ? FRL_QPT_UD : FRL_QPT_UC, .mtu = 256 });

	fixture_send(f, 1, FRL_WR_SEND, 100);
	fixture_send(f, 2, FRL_WR_SEND, 100);
	ck_assert_uint_eq(fixture_output(f), 2);
	fixture_send(f, 3, FRL_WR_SEND, 100);
	drain(f, true);
	expect_silence(f);
	fixture_transmitted(f, 1);
	expect_no_event(&f->qp.events);
	fixture_transmitted(f, 1);
	expect_event(&f->qp.events, FRL_EVENT_SQ_DRAINED);
	expect_silence(f);
	fixture_move(f, FRL_QPS_RTS);
	ck_assert_uint_eq(fixture_output(f), 1);
}
END_TEST

/* A limit that is lowered in SQD holds for what is sent then; 0 fails what needs more. */
START_LOOP_TEST(depth_lowered_in_sqd, 3)
{
	struct fixture *f = fixture_new(NULL);
	struct frl_qp_attr attr = { .max_rd_atomic = (uint8_t)_i };
	const char *why = "";

	fixture_move(f, FRL_QPS_SQD);
	for (uint32_t i = 1; i <= 3; i++)
		fixture_send(f, i, FRL_WR_RDMA_READ, 8);
	ck_assert_msg(qp_modify(&f->qp, &attr, FRL_QP_MAX_QP_RD_ATOMIC, &why) == 0, "%s", why);
	fixture_move(f, FRL_QPS_RTS);
	ck_assert_uint_eq(fixture_output(f), (unsigned)_i);
	if (_i == 0)
		expect_wc(&f->send_cq, 1, FRL_WC_LOC_QP_OP_ERR);
}
END_TEST

TEST_FILE(send_order)
