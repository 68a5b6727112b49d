/* SPDX-License-Identifier: BSD-3-Clause */
/* Queries of operators: reports, fresh pages, parts; and which users may see what. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/program.h"
#include "tests/unit/daemon/core/fixtures/query_fixture.h"

/* ---- queue pairs */

START_TEST(a_fresh_page_is_reported_at_once)
{
	struct process *owner = conns_process(world, alpha, ALICE, 10);
	struct process *asks = world_operator(world, alpha, ALICE);
	struct page *page = give_page(owner, SLOTS);
	struct page_qp *qp = set_qp(page, 3, 17);
	Ctl__Envelope *answer;
	Ctl__QpInfo *info;

	qp->waiting_since_ns = world_now(world) - 2 * WORLD_S;
	qp->deadline_ns = world_now(world) + 67 * WORLD_MS;
	qp->rtt_ns = 12500;
	strcpy(qp->error, "it stumbled");
	qp->error_ns = world_now(world) - WORLD_S;
	answer = report(asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	ck_assert_uint_eq(process_mail(owner), 0);
	ck_assert_uint_eq(answer->report->n_qps, 1);
	info = answer->report->qps[0];
	ck_assert_uint_eq(info->pid, 10);
	ck_assert_uint_eq(info->uid, ALICE);
	ck_assert_uint_eq(info->port, PORT);
	ck_assert_uint_eq(info->qpn, 17);
	ck_assert_str_eq(info->type, "RC");
	ck_assert_str_eq(info->state, "RTS");
	ck_assert_str_eq(info->peer_ip, "10.1.2.3");
	ck_assert_uint_eq(info->outstanding_packets, 4);
	ck_assert_str_eq(info->waits_for, "acknowledgement");
	ck_assert(info->waiting_s > 1.99 && info->waiting_s < 2.01);
	ck_assert(info->deadline_ms > 66 && info->deadline_ms <= 67);
	ck_assert(info->rtt_us > 12.4 && info->rtt_us < 12.6);
	ck_assert(info->idle_rx_s < 0);
	ck_assert_str_eq(info->last_error, "it stumbled");
	ck_assert(info->published_age_s >= 0 && info->published_age_s < 0.1);
	ctl__envelope__free_unpacked(answer, NULL);
}
END_TEST

/* Its process is a rank of a job, and has named the rank at the other end. */
START_TEST(a_queue_pair_of_a_job)
{
	struct process *owner = conns_process(world, alpha, ALICE, 10);
	struct process *asks = world_operator(world, alpha, ALICE);
	uint8_t id[2][UUID_SIZE] = { "first", "second" };
	Ctl__GroupJoin join = CTL__GROUP_JOIN__INIT;
	struct page *page = give_page(owner, SLOTS);
	struct page_qp *qp = set_qp(page, 3, 17);
	Ctl__Envelope *answer;

	qp->peer_rank = 2 + 1;
	strcpy(qp->peer_host, "node-2");
	join.member = (ProtobufCBinaryData){ UUID_SIZE, id[0] };
	join.job = (char *)"sum";
	join.rank = 1;
	join.ranks = 3;
	ctl__envelope__free_unpacked(
		process_ask(owner, CTL__ENVELOPE__BODY_GROUP_JOIN, &join), NULL);
	answer = report(asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	ck_assert_str_eq(answer->report->qps[0]->job, "sum");
	ck_assert_str_eq(answer->report->qps[0]->rank, "1");
	ck_assert_str_eq(answer->report->qps[0]->peer_rank, "2");
	ck_assert_str_eq(answer->report->qps[0]->peer_host, "node-2");
	ctl__envelope__free_unpacked(answer, NULL);
	/* It may be for either job now. */
	join.member.data = id[1];
	join.job = (char *)"other";
	ctl__envelope__free_unpacked(
		process_ask(owner, CTL__ENVELOPE__BODY_GROUP_JOIN, &join), NULL);
	answer = report(asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	ck_assert_str_eq(answer->report->qps[0]->job, "");
	ck_assert_str_eq(answer->report->qps[0]->rank, "");
	ck_assert_str_eq(answer->report->qps[0]->peer_rank, "2");
	ctl__envelope__free_unpacked(answer, NULL);
}
END_TEST

struct old {
	struct process *owner, *asks;
	struct page *page;
};

/* A process of ALICE with queue pair 17, whose page is a second old, and an operator. */
static struct old old_new(uint32_t uid)
{
	struct old old;

	old.owner = conns_process(world, alpha, ALICE, 10);
	old.asks = world_operator(world, alpha, uid);
	old.page = give_page(old.owner, SLOTS);
	set_qp(old.page, 0, 17);
	world_run(world, WORLD_S);
	return old;
}

START_TEST(an_old_page_is_published_first)
{
	struct old old = old_new(ROOT);
	Ctl__Envelope *answer;
	uint64_t seq;

	seq = send_query(old.asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	ck_assert_uint_eq(process_mail(old.asks), 0);
	set_qp(old.page, 1, 18);
	publish_when_told(old.owner, old.page);
	answer = take_answer(old.asks, seq, CTL__ENVELOPE__BODY_REPORT);
	ck_assert_uint_eq(answer->report->n_qps, 2);
	ck_assert(answer->report->qps[0]->published_age_s < 0.01);
	ctl__envelope__free_unpacked(answer, NULL);
}
END_TEST

START_TEST(a_stopped_process_delays_nobody_for_long)
{
	struct old old = old_new(ROOT);
	Ctl__Envelope *answer;
	uint64_t seq;

	seq = send_query(old.asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	world_run(world, 95 * WORLD_MS);
	ck_assert_uint_eq(process_mail(old.asks), 0);
	world_run(world, 10 * WORLD_MS);
	answer = take_answer(old.asks, seq, CTL__ENVELOPE__BODY_REPORT);
	ck_assert_uint_eq(answer->report->n_qps, 1);
	ck_assert(answer->report->qps[0]->published_age_s > 1);
	ctl__envelope__free_unpacked(answer, NULL);
	/* It has not answered: it is asked once, and not waited for again. */
	while (process_mail(old.asks))
		ctl__envelope__free_unpacked(process_take_any(old.asks), NULL);
	answer = report(old.asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	ctl__envelope__free_unpacked(answer, NULL);
	ck_assert_uint_eq(process_mail(old.owner), 1);
	publish_when_told(old.owner, old.page);
	answer = report(old.asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	ck_assert(answer->report->qps[0]->published_age_s < 0.01);
	ctl__envelope__free_unpacked(answer, NULL);
}
END_TEST

START_TEST(a_process_that_dies_is_not_waited_for)
{
	struct process *owner = conns_process(world, alpha, ALICE, 10);
	struct process *stays = conns_process(world, alpha, ALICE, 11);
	struct process *asks = world_operator(world, alpha, ROOT);
	struct page *page = give_page(stays, SLOTS);
	Ctl__Envelope *answer;
	uint64_t seq;

	set_qp(give_page(owner, SLOTS), 0, 17);
	set_qp(page, 0, 18);
	world_run(world, WORLD_S);
	seq = send_query(asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	publish_when_told(stays, page);
	ck_assert_uint_eq(process_mail(asks), 0);
	process_die(owner);
	world_settle(world);
	answer = take_answer(asks, seq, CTL__ENVELOPE__BODY_REPORT);
	ck_assert_uint_eq(answer->report->n_qps, 1);
	ck_assert_uint_eq(answer->report->qps[0]->qpn, 18);
	ctl__envelope__free_unpacked(answer, NULL);
}
END_TEST

START_TEST(who_asks_may_go)
{
	struct old old = old_new(ROOT);

	send_query(old.asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	process_die(old.asks);
	world_settle(world);
	publish_when_told(old.owner, old.page);
	world_run(world, WORLD_S);
}
END_TEST

START_TEST(requests_are_limited)
{
	struct old old = old_new(ALICE);
	uint64_t seq = 0;

	for (int i = 0; i < 17; i++)
		seq = send_query(old.asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	ck_assert_uint_eq(process_mail(old.asks), 1);
	expect_failure(old.asks, seq, EBUSY, "16 of your requests");
}
END_TEST

START_TEST(long_reports_come_in_parts)
{
	enum { MANY = 4000 };
	struct process *owner = conns_process(world, alpha, ALICE, 10);
	struct process *asks = world_operator(world, alpha, ALICE);
	struct page *page = give_page(owner, MANY);
	size_t rows = 0, parts = 0;
	bool more = true;
	uint64_t seq;
	uint32_t i;

	for (i = 0; i < MANY; i++) {
		struct page_qp *qp = set_qp(page, i, 1 + i);

		memset(qp->error, 'x', sizeof(qp->error) - 1);
	}
	seq = send_query(asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	while (more) {
		Ctl__Envelope *part = take_answer(asks, seq, CTL__ENVELOPE__BODY_REPORT);

		/* The next part is made when this one has arrived: it is checked every few ms. */
		world_run(world, 10 * WORLD_MS);
		for (i = 0; i < part->report->n_qps; i++)
			ck_assert_uint_eq(part->report->qps[i]->qpn, ++rows);
		ck_assert_uint_lt(frame_size(part), FRAME_MAX);
		more = part->report->more;
		parts++;
		ctl__envelope__free_unpacked(part, NULL);
	}
	ck_assert_uint_eq(rows, MANY);
	ck_assert_uint_gt(parts, 3);
	ck_assert_uint_eq(process_mail(asks), 0);
}
END_TEST

/* However long a report is, the queue of unread parts is short; and others get theirs meanwhile. */
START_TEST(long_reports_wait_for_their_readers)
{
	enum { MANY = 2500 };
	struct process *owner = conns_process(world, alpha, ALICE, 10);
	struct process *asks = world_operator(world, alpha, ALICE);
	struct process *other = world_operator(world, alpha, ALICE);
	struct page *page = give_page(owner, MANY);
	unsigned parts = 0;
	uint64_t seq;

	for (uint32_t i = 0; i < MANY; i++)
		memset(set_qp(page, i, 1 + i)->error, 'x', PAGE_REASON - 1);
	asks->is_deaf = true;
	seq = send_query(asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	world_run(world, 5 * WORLD_S);
	publish(page);
	ck_assert_uint_eq(process_mail(asks), 1);
	ctl__envelope__free_unpacked(report(other, CTL__QUERY_KIND__QUERY_STATS, 0, 0), NULL);
	asks->is_deaf = false;
	world_run(world, WORLD_S);
	while (process_mail(asks)) {
		ctl__envelope__free_unpacked(
			take_answer(asks, seq, CTL__ENVELOPE__BODY_REPORT), NULL);
		parts++;
	}
	ck_assert_uint_gt(parts, 3);
	/* An operator that does not wait for the end leaves nothing behind. */
	seq = send_query(asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	process_die(asks);
	world_run(world, WORLD_S);
	ck_assert(list_empty(&world_core(world, alpha)->requests));
}
END_TEST

static unsigned requests_left(void)
{
	const struct list *all = &world_core(world, alpha)->requests;
	unsigned count = 0;

	for (const struct list *node = all->next; node != all; node = node->next)
		count++;
	return count;
}

/* Many wait for one process: the answers do not all come at once. */
START_LOOP_TEST(requests_take_turns, 2)
{
	enum { ASKERS = 4, EACH = 8 };
	static const Ctl__QueryKind kinds[] = { CTL__QUERY_KIND__QUERY_QPS,
		CTL__QUERY_KIND__QUERY_WHY };
	struct process *owner = conns_process(world, alpha, ALICE, 10);
	struct process *bob = conns_process(world, alpha, BOB, 11), *asks[ASKERS + 1];
	struct page *page = give_page(owner, SLOTS), *bobs = give_page(bob, SLOTS);
	Ctl__Envelope done;

	set_qp(page, 0, 5);
	set_qp(bobs, 0, 5);
	world_run(world, WORLD_S);
	for (int i = 0; i <= ASKERS; i++)
		asks[i] = world_operator(world, alpha, i < ASKERS ? ALICE : BOB);
	for (int i = 0; i < ASKERS * EACH; i++)
		send_query(asks[i % ASKERS], kinds[_i], 5, 0);
	done = publish_done(owner, page);
	core_message(world_core(world, alpha), owner->session, &done, world_now(world));
	ck_assert_uint_ge(requests_left(), ASKERS * EACH - 1);
	send_query(asks[ASKERS], kinds[_i], 5, 0);
	publish_when_told(bob, bobs);
	world_run(world, WORLD_MS);
	ck_assert_uint_gt(process_mail(asks[ASKERS]), 0);
	world_run(world, 100 * WORLD_MS);
	for (int i = 0; i < ASKERS; i++)
		ck_assert_uint_ge(process_mail(asks[i]), EACH);
	ck_assert(list_empty(&world_core(world, alpha)->requests));
}
END_TEST

static uint32_t count_shown(struct process *asks)
{
	Ctl__Envelope *answer = report(asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	uint32_t count = (uint32_t)answer->report->n_qps;

	ctl__envelope__free_unpacked(answer, NULL);
	return count;
}

/* Pages can be large, and many: a query reads only pages that its user may see. */
START_TEST(slots_are_limited)
{
	struct process *first = conns_process(world, alpha, ALICE, 10), *second;
	struct process *asks = world_operator(world, alpha, ALICE);
	struct page *one = give_page(first, SLOTS), *two;

	((struct config *)(uintptr_t)world_core(world, alpha)->config)->max_qps_per_user = 10;
	for (uint32_t i = 0; i < 8; i++)
		set_qp(one, i, 1 + i);
	ck_assert_uint_eq(count_shown(asks), 8);
	ck_assert_uint_eq(world_warnings(world, alpha), 0);
	second = conns_process(world, alpha, ALICE, 20);
	two = give_page(second, SLOTS);
	for (uint32_t i = 0; i < 8; i++)
		set_qp(two, i, 101 + i);
	ck_assert_uint_eq(count_shown(asks), 10);
	ck_assert_uint_eq(count_shown(asks), 10);
	ck_assert_uint_eq(world_warnings(world, alpha), 1);
	ck_assert_ptr_nonnull(strstr(world_last_warning(world, alpha), "max_qps_per_user"));
	/* Slots that it no longer uses still exist. */
	atomic_store(&one->used_slots, 0);
	ck_assert_uint_eq(count_shown(asks), 2);
	process_die(first);
	world_settle(world);
	ck_assert_uint_eq(count_shown(asks), 8);
}
END_TEST

START_TEST(nothing_of_a_page_is_believed)
{
	struct process *owner = conns_process(world, alpha, ALICE, 10);
	struct process *asks = world_operator(world, alpha, ALICE);
	struct page *page = give_page(owner, SLOTS);
	struct page_qp *qp = &page->qp[SLOTS - 1];
	Ctl__Envelope *answer;

	memset(qp, 0xfe, sizeof(*qp));
	page->used_slots = UINT32_MAX;
	page->counters = UINT32_MAX;
	memset(page->counter, 0xfe, sizeof(page->counter));
	atomic_store(&qp->sequence, 2);
	answer = report(asks, CTL__QUERY_KIND__QUERY_QPS, 0, 0);
	ck_assert_uint_eq(answer->report->n_qps, 1);
	ck_assert_str_eq(answer->report->qps[0]->type, "?");
	ck_assert_str_eq(answer->report->qps[0]->state, "?");
	ck_assert_str_eq(answer->report->qps[0]->waits_for, "?");
	ctl__envelope__free_unpacked(answer, NULL);
	answer = report(asks, CTL__QUERY_KIND__QUERY_PORTS, 0, 0);
	ck_assert_uint_eq(answer->report->n_ports, 1);
	ck_assert_uint_eq(answer->report->ports[0]->n_counters, PAGE_COUNTERS);
	ctl__envelope__free_unpacked(answer, NULL);
}
END_TEST

/* ---- who may see and steer what */

START_TEST(other_users_see_nothing)
{
	static const Ctl__QueryKind kinds[] = { CTL__QUERY_KIND__QUERY_PORTS,
		CTL__QUERY_KIND__QUERY_QPS, CTL__QUERY_KIND__QUERY_CONNECTIONS,
		CTL__QUERY_KIND__QUERY_PEERS, CTL__QUERY_KIND__QUERY_STATS };
	struct process *active = conns_process(world, alpha, ALICE, 10);
	struct process *passive = conns_process(world, beta, ALICE, 20);
	struct process *asks = world_operator(world, alpha, BOB);
	size_t i;

	set_qp(give_page(active, SLOTS), 0, qpn_of(1));
	offer(passive, "store", 1, false);
	establish(active, passive, 1, "beta", "store");
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		Ctl__Envelope *answer = report(asks, kinds[i], 0, 0);
		const Ctl__Report *got = answer->report;

		ck_assert_uint_eq(got->n_ports + got->n_qps + got->n_connections + got->n_peers, 0);
		ck_assert_uint_eq(got->daemon->processes + got->daemon->ports +
				got->daemon->connections + got->daemon->peers,
			0);
		ck_assert_uint_eq(got->daemon->n_counters, 0);
		ctl__envelope__free_unpacked(answer, NULL);
	}
	ck_assert_uint_eq(process_mail(active), 0);
	expect_failure(asks, send_kill(asks, qpn_of(1), 0, ""), ENOENT, "you may see");
	expect_failure(asks, send_query(asks, CTL__QUERY_KIND__QUERY_WHY, qpn_of(1), 0), ENOENT,
		"you may see");
	ck_assert_uint_eq(process_mail(active), 0);
	ck_assert_uint_eq(process_mail(passive), 0);
}
END_TEST

START_TEST(operators_see_everything)
{
	struct process *active = conns_process(world, alpha, ALICE, 10);
	struct process *passive = conns_process(world, beta, ALICE, 20);
	struct process *asks = world_operator(world, alpha, ROOT);
	struct page *page = give_page(active, SLOTS);
	Ctl__Envelope *answer;

	set_qp(page, 0, qpn_of(1));
	page->counters = 1;
	strcpy(page->counter[0].name, "tx_packets");
	page->counter[0].value = 42;
	offer(passive, "store", 1, false);
	establish(active, passive, 1, "beta", "store");
	publish(page);
	answer = report(asks, CTL__QUERY_KIND__QUERY_CONNECTIONS, 0, 0);
	ck_assert_uint_eq(answer->report->n_connections, 1);
	ck_assert_str_eq(answer->report->connections[0]->state, "established");
	ck_assert_str_eq(answer->report->connections[0]->service, "store");
	ck_assert_str_eq(answer->report->connections[0]->peer_host, "beta");
	ck_assert_uint_eq(answer->report->connections[0]->peer_pid, 20);
	ck_assert_uint_eq(answer->report->connections[0]->qpn, qpn_of(1));
	ck_assert(!answer->report->connections[0]->passive);
	ck_assert_uint_eq(strlen(answer->report->connections[0]->uuid), 32);
	ctl__envelope__free_unpacked(answer, NULL);
	answer = report(asks, CTL__QUERY_KIND__QUERY_PEERS, 0, 0);
	ck_assert_uint_eq(answer->report->n_peers, 1);
	ck_assert_str_eq(answer->report->peers[0]->host, "beta");
	ck_assert_str_eq(answer->report->peers[0]->state, "connected");
	ck_assert_uint_eq(answer->report->peers[0]->connections, 1);
	ctl__envelope__free_unpacked(answer, NULL);
	answer = report(asks, CTL__QUERY_KIND__QUERY_PORTS, 0, 0);
	ck_assert_uint_eq(answer->report->n_ports, 1);
	ck_assert_str_eq(answer->report->ports[0]->state, "open");
	ck_assert_str_eq(answer->report->ports[0]->fabric, "local");
	ck_assert_uint_eq(answer->report->ports[0]->qps, 1);
	ck_assert_str_eq(answer->report->ports[0]->counters[0]->name, "tx_packets");
	ck_assert_uint_eq(answer->report->ports[0]->counters[0]->value, 42);
	ctl__envelope__free_unpacked(answer, NULL);
	answer = report(asks, CTL__QUERY_KIND__QUERY_STATS, 0, 0);
	ck_assert_uint_eq(answer->report->daemon->processes, 1);
	ck_assert_uint_eq(answer->report->daemon->connections, 1);
	ck_assert_str_eq(answer->report->daemon->host, "alpha");
	ck_assert_uint_gt(answer->report->daemon->n_counters, 5);
	ctl__envelope__free_unpacked(answer, NULL);
}
END_TEST

START_TEST(questions_without_sense)
{
	struct process *asks = world_operator(world, alpha, ALICE);

	expect_failure(asks, send_query(asks, CTL__QUERY_KIND__QUERY_WHY, 0, 0), EINVAL,
		"number of a queue pair");
	expect_failure(asks, send_query(asks, CTL__QUERY_KIND__QUERY_WHY, 5, 0), ENOENT,
		"no process has a queue pair 5 that you may see");
	expect_failure(asks, send_query(asks, CTL__QUERY_KIND__QUERY_WHY, 5, 77), ENOENT,
		"process 77 has no queue pair 5");
	expect_failure(asks, send_kill(asks, 0, 0, ""), EINVAL, "number of a queue pair");
	expect_failure(asks, send_kill(asks, 5, 0, ""), ENOENT, "queue pair 5");
}
END_TEST

TEST_MAIN(core_query)
{
	return run_suite(all_tests(query_set_up, query_tear_down));
}
