/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/cq.h"
#include "tests/unit/program.h"
#include "tests/unit/qp_fixture.h"

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

/* A success that nobody had asked for becomes an error. */
START_TEST(lost_payload_notifies)
{
	struct fixture *f = fixture_new(NULL);
	struct wire_packet packet = fixture_packet(f, OP_SEND_ONLY, 0, 16);

	fixture_recv(f, 1, 0, 64);
	f->recv_cq.armed = CQ_ARMED_SOLICITED;
	fixture_input(f, &packet);
	ck_assert_ptr_nonnull(f->placements.completion);
	ck_assert(list_empty(&f->recv_cq.notify));
	qp_payload_lost(&f->qp, &f->placements);
	ck_assert(!list_empty(&f->recv_cq.notify));
	ck_assert_int_eq(f->recv_cq.armed, CQ_NOT_ARMED);
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
