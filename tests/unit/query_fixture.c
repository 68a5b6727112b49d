/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/query_fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct world *world;
int alpha, beta;

void query_set_up(void)
{
	world = world_create(7);
	alpha = world_add_host(world, "alpha", NULL);
	beta = world_add_host(world, "beta", NULL);
}

void query_tear_down(void)
{
	world_destroy(world);
}

/* ---- processes with pages */

/* A page for the process's port, published now. */
struct page *give_page(struct process *process, uint32_t slots)
{
	struct session *session = session_find(world_core(world, process->host), process->session);
	struct port *port = port_find(session, PORT);
	struct page *page = world_page(world, slots);

	ck_assert(port && !port->page.close);
	port->page = world_view(world, page);
	return page;
}

/* A queue pair that has sent 0x10 to 0x15 and waits for the acknowledgement of 0x12. */
struct page_qp *set_qp(struct page *page, uint32_t slot, uint32_t qpn)
{
	struct page_qp *qp = &page->qp[slot];

	qp->qpn = qpn;
	qp->type = 2;
	qp->state = 3;
	qp->wait = PAGE_WAIT_ACK;
	qp->send_psn = 0x16;
	qp->acked_psn = 0x12;
	qp->recv_psn = 0x500;
	qp->dest_qpn = 99;
	qp->remote_ip[10] = qp->remote_ip[11] = 0xff;
	memcpy(qp->remote_ip + 12, "\x0a\x01\x02\x03", 4);
	qp->tx_bytes = 1 << 20;
	if (atomic_load(&page->used_slots) <= slot)
		atomic_store(&page->used_slots, slot + 1);
	return qp;
}

void publish(struct page *page)
{
	atomic_store(&page->published_ns, world_now(world));
}

Ctl__Envelope publish_done(struct process *process, struct page *page)
{
	static Ctl__Done body = CTL__DONE__INIT;
	Ctl__Envelope *told = expect(process, CTL__ENVELOPE__BODY_PUBLISH);
	Ctl__Envelope done = envelope_of(CTL__ENVELOPE__BODY_DONE, &body);

	ck_assert_uint_ne(told->seq, 0);
	publish(page);
	done.seq = told->seq;
	ctl__envelope__free_unpacked(told, NULL);
	return done;
}

void publish_when_told(struct process *process, struct page *page)
{
	Ctl__Envelope done = publish_done(process, page);

	process_send(process, &done);
	world_settle(world);
}

/* ---- operators */

static uint64_t next_seq = 1000000;

uint64_t send_request(struct process *asks, Ctl__Envelope__BodyCase body, void *message)
{
	Ctl__Envelope envelope = envelope_of(body, message);

	envelope.seq = next_seq++;
	process_send(asks, &envelope);
	world_settle(world);
	return envelope.seq;
}

uint64_t send_query(struct process *asks, Ctl__QueryKind kind, uint32_t qpn, uint32_t pid)
{
	Ctl__Query query = CTL__QUERY__INIT;

	query.kind = kind;
	query.qpn = qpn;
	query.pid = pid;
	return send_request(asks, CTL__ENVELOPE__BODY_QUERY, &query);
}

Ctl__Envelope *take_answer(struct process *asks, uint64_t seq, Ctl__Envelope__BodyCase body)
{
	Ctl__Envelope *answer = process_take_any(asks);

	ck_assert_msg(answer != NULL, "no answer");
	ck_assert_msg(answer->body_case == body, "answered by %d: %s", (int)answer->body_case,
		answer->body_case == CTL__ENVELOPE__BODY_FAILURE ? answer->failure->text : "");
	ck_assert_uint_eq(answer->seq, seq);
	return answer;
}

/* Everything is fresh: the answer comes at once, in one part. To be freed. */
Ctl__Envelope *report(struct process *asks, Ctl__QueryKind kind, uint32_t qpn, uint32_t pid)
{
	uint64_t seq = send_query(asks, kind, qpn, pid);
	Ctl__Envelope *answer = NULL;

	/* Rows come in a part of their own; the last part has none, but all of the daemon. They are
	 * put together. */
	for (;;) {
		Ctl__Envelope *part = take_answer(asks, seq, CTL__ENVELOPE__BODY_REPORT);
		bool more = part->report->more;

		ck_assert_ptr_nonnull(part->report->daemon);
		if (answer) {
			Ctl__DaemonInfo *daemon = answer->report->daemon;

			answer->report->daemon = part->report->daemon;
			part->report->daemon = daemon;
			ctl__envelope__free_unpacked(part, NULL);
		} else {
			answer = part;
		}
		if (!more)
			return answer;
	}
}

void expect_failure(struct process *asks, uint64_t seq, int error, const char *words)
{
	Ctl__Envelope *answer = take_answer(asks, seq, CTL__ENVELOPE__BODY_FAILURE);

	ck_assert_int_eq((int)answer->failure->error, error);
	ck_assert_msg(strstr(answer->failure->text, words), "\"%s\" is not in: %s", words,
		answer->failure->text);
	ctl__envelope__free_unpacked(answer, NULL);
}

uint64_t send_kill(struct process *asks, uint32_t qpn, uint32_t pid, const char *reason)
{
	Ctl__KillQp kill = CTL__KILL_QP__INIT;

	kill.qpn = qpn;
	kill.pid = pid;
	kill.reason = (char *)(uintptr_t)reason;
	return send_request(asks, CTL__ENVELOPE__BODY_KILL_QP, &kill);
}
