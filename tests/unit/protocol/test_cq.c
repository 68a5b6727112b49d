/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/cq.h"
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

static void fill_and_drain(uint32_t count, uint32_t start)
{
	struct frl_wc entries[16], wc;
	struct event_queues queues;
	struct cq cq;

	event_queues_init(&queues);
	cq_init(&cq, entries, count, &queues);
	cq.head = cq.tail = start;
	ck_assert(!cq_pop(&cq, &wc));
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < count; i++)
			ck_assert(cq_push(&cq, &(struct frl_wc){ .wr_id = i }, false));
		for (uint32_t i = 0; i < count; i++) {
			ck_assert(cq_pop(&cq, &wc));
			ck_assert_uint_eq(wc.wr_id, i);
		}
		ck_assert(!cq_pop(&cq, &wc));
	}
	ck_assert(!cq.overrun);
	for (uint32_t i = 0; i < count; i++)
		ck_assert(cq_push(&cq, &(struct frl_wc){ .wr_id = i }, false));
	ck_assert(!cq_push(&cq, &(struct frl_wc){ .wr_id = 99 }, false));
	ck_assert(cq.overrun);
	ck_assert_ptr_eq(queues.async.next, &cq.events.node);
	ck_assert_int_eq(event_take(&cq.events), FRL_EVENT_CQ_ERR);
	ck_assert(list_empty(&queues.async));
	/* Completions that fitted can be read; nothing is written any more. */
	for (uint32_t i = 0; i < count; i++) {
		ck_assert(cq_pop(&cq, &wc));
		ck_assert_uint_eq(wc.wr_id, i);
		ck_assert(!cq_push(&cq, &(struct frl_wc){ .wr_id = 99 }, false));
	}
	ck_assert(!cq_pop(&cq, &wc));
	ck_assert(list_empty(&queues.async));
}

static const struct {
	uint32_t start, read, written; /* of the entries before */
	uint32_t from, to;             /* sizes */
} moves[] = {
	{ 0, 0, 0, 4, 8 },
	{ 0, 0, 4, 4, 8 },
	{ 3, 2, 6, 4, 16 },
	{ 7, 5, 7, 8, 2 },
	{ 6, 0, 4, 16, 4 },
	{ UINT32_MAX - 1, 1, 5, 8, 4 },
	{ UINT32_MAX - 1, 0, 8, 8, 16 },
};

START_LOOP_TEST(moved, ROWS(moves))
{
	struct frl_wc before[16], after[16], wc;
	uint32_t next = moves[_i].read, written = moves[_i].written;
	struct event_queues queues;
	struct cq cq;

	event_queues_init(&queues);
	cq_init(&cq, before, moves[_i].from, &queues);
	cq.head = cq.tail = moves[_i].start;
	for (uint32_t i = 0; i < written; i++) {
		ck_assert(cq_push(&cq, &(struct frl_wc){ .wr_id = i }, false));
		ck_assert(i >= next || cq_pop(&cq, &wc));
	}
	ck_assert_ptr_eq(cq_move(&cq, after, moves[_i].to), before);
	memset(before, 0xee, sizeof(before));
	while (written - next < moves[_i].to)
		ck_assert(cq_push(&cq, &(struct frl_wc){ .wr_id = written++ }, false));
	ck_assert(!cq_push(&cq, &(struct frl_wc){ .wr_id = 99 }, false));
	for (; next < written; next++) {
		ck_assert(cq_pop(&cq, &wc));
		ck_assert_uint_eq(wc.wr_id, next);
	}
	ck_assert(cq_is_empty(&cq));
}
END_TEST

static const struct notify_row {
	enum cq_armed armed;
	enum frl_wc_status status;
	bool solicited;
	bool notified;
} notifies[] = {
	{ CQ_NOT_ARMED, FRL_WC_SUCCESS, true, false },
	{ CQ_NOT_ARMED, FRL_WC_WR_FLUSH_ERR, false, false },
	{ CQ_ARMED, FRL_WC_SUCCESS, false, true },
	{ CQ_ARMED_SOLICITED, FRL_WC_SUCCESS, false, false },
	{ CQ_ARMED_SOLICITED, FRL_WC_SUCCESS, true, true },
	{ CQ_ARMED_SOLICITED, FRL_WC_WR_FLUSH_ERR, false, true },
};

START_LOOP_TEST(notified_once, ROWS(notifies))
{
	const struct notify_row *row = &notifies[_i];
	const struct frl_wc wc = { .status = row->status };
	struct event_queues queues;
	struct frl_wc entries[4];
	struct cq cq;

	event_queues_init(&queues);
	cq_init(&cq, entries, 4, &queues);
	cq.armed = (uint8_t)row->armed;
	ck_assert(cq_push(&cq, &wc, row->solicited));
	ck_assert_int_eq(list_empty(&queues.completions), !row->notified);
	ck_assert_int_eq(cq.armed, row->notified ? CQ_NOT_ARMED : row->armed);
	if (!row->notified)
		return;
	list_remove(&cq.notify);
	ck_assert(cq_push(&cq, &wc, true));
	ck_assert(list_empty(&queues.completions));
}
END_TEST

/* An error is urgent where the success would not have been. */
START_TEST(lost_payload_notifies)
{
	struct fixture *f = fixture_new(NULL);
	struct wire_packet packet = fixture_packet(f, OP_SEND_ONLY, 0, 16);

	fixture_recv(f, 1, 0, 64);
	f->recv_cq.armed = CQ_ARMED_SOLICITED;
	fixture_input_unplaced(f, &packet);
	ck_assert_int_eq(f->placements.completes, COMPLETES_MESSAGE);
	expect_no_wc(&f->recv_cq);
	qp_payload_lost(&f->qp, &f->packet, &f->placements);
	ck_assert(!list_empty(&f->recv_cq.notify));
	ck_assert_int_eq(f->recv_cq.armed, CQ_NOT_ARMED);
}
END_TEST

/* Keeps the last completion only. */
struct test_gate {
	struct cq_gate base;
	struct frl_wc last;
	bool is_urgent;
};

static void keep(struct cq *cq, const struct frl_wc *wc, bool urgent)
{
	struct test_gate *gate = (struct test_gate *)cq->gate;

	gate->last = *wc;
	gate->is_urgent = urgent;
	gate->base.held++;
}

/* A held completion takes room, is not there yet, and is notified of when it is passed on. */
START_TEST(gate_holds_back)
{
	struct test_gate gate = { .base.take = keep };
	struct frl_wc entries[4], wc;
	struct event_queues queues;
	struct cq cq;

	event_queues_init(&queues);
	cq_init(&cq, entries, 4, &queues);
	cq.gate = &gate.base;
	cq.armed = CQ_ARMED_SOLICITED;
	for (uint32_t i = 1; i <= 4; i++) {
		ck_assert(cq_push(&cq, &(struct frl_wc){ .wr_id = i }, i == 4));
		ck_assert_uint_eq(gate.last.wr_id, i);
		ck_assert_int_eq(gate.is_urgent, i == 4);
	}
	ck_assert(cq_is_empty(&cq));
	ck_assert_uint_eq(cq_used(&cq), 4);
	ck_assert(list_empty(&queues.completions));
	gate.base.held--;
	cq_put(&cq, &gate.last, gate.is_urgent);
	ck_assert(!list_empty(&queues.completions));
	ck_assert(!cq.overrun && !cq_push(&cq, &(struct frl_wc){ .wr_id = 5 }, false));
	ck_assert(cq.overrun);
	ck_assert(cq_pop(&cq, &wc));
	ck_assert_uint_eq(wc.wr_id, 4);
	ck_assert(cq_is_empty(&cq));
	ck_assert_uint_eq(cq_used(&cq), 3);
}
END_TEST

/* A receive, a READ and an atomic complete when their bytes are there, and not before. */
static const struct {
	enum frl_wr_opcode posted; /* or a receive */
	uint8_t opcode;
	uint32_t length;
	enum completed completes;
} completing[] = {
	{ FRL_WR_SEND, OP_SEND_ONLY, 16, COMPLETES_MESSAGE },
	{ FRL_WR_SEND, OP_SEND_ONLY, 0, COMPLETES_MESSAGE },
	{ FRL_WR_RDMA_READ, OP_READ_RESP_ONLY, 16, COMPLETES_RESPONSE },
	{ FRL_WR_ATOMIC_FETCH_AND_ADD, OP_ATOMIC_ACK, 0, COMPLETES_RESPONSE },
};

START_LOOP_TEST(completed_when_placed, ROWS(completing))
{
	struct fixture *f = fixture_new(NULL);
	struct wire_packet packet = fixture_packet(
		f, completing[_i].opcode, 0, completing[_i].length);
	bool receives = completing[_i].completes == COMPLETES_MESSAGE;
	struct cq *cq = receives ? &f->recv_cq : &f->send_cq;

	if (receives)
		fixture_recv(f, 1, 0, 64);
	else
		fixture_send(f, 1, completing[_i].posted, packet.payload_len ? 16 : 8);
	fixture_output(f);
	fixture_input_unplaced(f, &packet);
	ck_assert_int_eq(f->placements.completes, completing[_i].completes);
	expect_no_wc(cq);
	qp_placed(&f->qp, &packet, &f->placements, f->now_ns);
	expect_wc(cq, 1, FRL_WC_SUCCESS);
}
END_TEST

START_LOOP_TEST(fifo_until_overrun, 5)
{
	static const uint32_t starts[] = { 0, 5, UINT32_MAX, UINT32_MAX - 7 };

	for (unsigned i = 0; i < 4; i++)
		fill_and_drain(1u << _i, starts[i]);
}
END_TEST

TEST_FILE(cq)
