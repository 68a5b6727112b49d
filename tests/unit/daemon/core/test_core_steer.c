/* SPDX-License-Identifier: BSD-3-Clause */
/* Actions of operators: kill-qp, drain; and why a queue pair waits. */
#include <check.h>
#include <errno.h>
#include <ferrule/queue.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/program.h"
#include "tests/unit/daemon/core/fixtures/query_fixture.h"

/* ---- kill-qp */

static void expect_fail_qp(struct process *process, uint32_t qpn, const char *words)
{
	Ctl__Envelope *told = expect(process, CTL__ENVELOPE__BODY_FAIL_QP);

	ck_assert_uint_eq(told->fail_qp->port, PORT);
	ck_assert_uint_eq(told->fail_qp->qpn, qpn);
	ck_assert_int_eq((int)told->fail_qp->error, ECANCELED);
	ck_assert_msg(strstr(told->fail_qp->reason, words), "%s", told->fail_qp->reason);
	ctl__envelope__free_unpacked(told, NULL);
}

static void kill_one(int other_host)
{
	struct process *active = conns_process(world, alpha, ALICE, 10);
	struct process *passive = conns_process(world, other_host, ALICE, 20);
	struct process *asks = world_operator(world, alpha, ALICE);
	struct page *page = give_page(active, SLOTS);
	const struct core *core = world_core(world, alpha);
	uint64_t seq;

	set_qp(page, 0, qpn_of(1));
	offer(passive, "store", 1, false);
	establish(active, passive, 1, other_host == alpha ? "" : "beta", "store");
	publish(page);
	seq = send_kill(asks, qpn_of(1), 0, "runs wild");
	ctl__envelope__free_unpacked(take_answer(asks, seq, CTL__ENVELOPE__BODY_DONE), NULL);
	expect_fail_qp(active, qpn_of(1), "killed by an operator (uid 1000): runs wild");
	expect_end(active, 1, ECANCELED, "killed by an operator (uid 1000): runs wild");
	expect_end(passive, 1, ECANCELED, "killed by an operator (uid 1000): runs wild");
	ck_assert_ptr_null(core->conns);
	ck_assert_uint_eq(core->counters.ends_killed, 1);
	ck_assert_uint_eq(core->counters.ends_closed, 0);
}

START_TEST(kill_on_one_host)
{
	kill_one(alpha);
}
END_TEST

START_TEST(kill_across_hosts)
{
	kill_one(beta);
}
END_TEST

START_TEST(kill_without_connection)
{
	struct process *owner = conns_process(world, alpha, ALICE, 10);
	struct process *asks = world_operator(world, alpha, ROOT);
	uint64_t seq;

	set_qp(give_page(owner, SLOTS), 0, 17);
	seq = send_kill(asks, 17, 10, "");
	ctl__envelope__free_unpacked(take_answer(asks, seq, CTL__ENVELOPE__BODY_DONE), NULL);
	expect_fail_qp(owner, 17, "killed by an operator (uid 0)");
	expect_nothing(owner);
}
END_TEST

START_TEST(kill_of_what_is_in_reset)
{
	struct process *owner = conns_process(world, alpha, ALICE, 10);
	struct process *asks = world_operator(world, alpha, ROOT);
	struct page *page = give_page(owner, SLOTS);
	uint64_t seq;

	set_qp(page, 0, 17)->state = FRL_QPS_RESET;
	seq = send_kill(asks, 17, 10, "");
	expect_failure(asks, seq, EINVAL, "is in RESET");
	expect_nothing(owner);
	/* A queue pair that is being connected is in RESET, too; its connection can be ended. */
	offer(owner, "store", 1, false);
	set_qp(page, 1, qpn_of(1))->state = FRL_QPS_RESET;
	publish(page);
	request(owner, 1, "", "store");
	world_settle(world);
	expect_about(owner, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	seq = send_kill(asks, qpn_of(1), 10, "");
	ctl__envelope__free_unpacked(take_answer(asks, seq, CTL__ENVELOPE__BODY_DONE), NULL);
	expect_fail_qp(owner, qpn_of(1), "killed by an operator (uid 0)");
	expect_end(owner, 1, ECANCELED, "killed by an operator (uid 0)");
	expect_end(owner, 1, ECANCELED, "killed by an operator (uid 0)");
}
END_TEST

START_TEST(which_one_is_asked_back)
{
	struct process *first = conns_process(world, alpha, ALICE, 10);
	struct process *second = conns_process(world, alpha, ALICE, 11);
	struct process *others = conns_process(world, alpha, BOB, 12);
	struct process *asks = world_operator(world, alpha, ALICE);
	uint64_t seq;

	set_qp(give_page(first, SLOTS), 0, 17);
	set_qp(give_page(second, SLOTS), 5, 17);
	set_qp(give_page(others, SLOTS), 0, 17);
	seq = send_kill(asks, 17, 0, "");
	expect_failure(asks, seq, EINVAL, "10 (");
	seq = send_query(asks, CTL__QUERY_KIND__QUERY_WHY, 17, 0);
	expect_failure(asks, seq, EINVAL, "11 (");
	expect_nothing(first);
	expect_nothing(second);
	seq = send_kill(asks, 17, 11, "");
	ctl__envelope__free_unpacked(take_answer(asks, seq, CTL__ENVELOPE__BODY_DONE), NULL);
	expect_fail_qp(second, 17, "killed");
	expect_nothing(first);
	expect_nothing(others);
}
END_TEST

/* ---- why */

struct pair {
	struct process *active, *passive, *asks;
	struct page *pages[2];
};

static void count_drops(struct page *page, uint64_t drops)
{
	page->counters = 2;
	strcpy(page->counter[0].name, "rx_packets");
	page->counter[0].value = 1000;
	strcpy(page->counter[1].name, "drop_port");
	page->counter[1].value = drops;
}

static void check_drops(const Ctl__QpInfo *qp, uint64_t drops)
{
	ck_assert_uint_eq(qp->n_port_drops, 1);
	ck_assert_str_eq(qp->port_drops[0]->name, "drop_port");
	ck_assert_uint_eq(qp->port_drops[0]->value, drops);
}

static struct pair connect_pair(int other_host)
{
	struct pair pair = { .active = conns_process(world, alpha, ALICE, 10),
		.passive = conns_process(world, other_host, BOB, 20),
		.asks = world_operator(world, alpha, ALICE) };

	pair.pages[0] = give_page(pair.active, SLOTS);
	pair.pages[1] = give_page(pair.passive, SLOTS);
	set_qp(pair.pages[0], 0, qpn_of(1));
	set_qp(pair.pages[1], 0, qpn_of(1) + 100000)->recv_psn = 0x13;
	count_drops(pair.pages[0], 3);
	count_drops(pair.pages[1], 4);
	offer(pair.passive, "store", 1, true);
	establish(pair.active, pair.passive, 1, other_host == alpha ? "" : "beta", "store");
	world_run(world, WORLD_S);
	publish(pair.pages[0]);
	return pair;
}

static void expect_why(struct pair *pair, uint64_t seq, const char *error)
{
	Ctl__Envelope *answer = take_answer(pair->asks, seq, CTL__ENVELOPE__BODY_REPORT);
	const Ctl__Report *got = answer->report;

	ck_assert_uint_eq(got->n_qps, 1);
	ck_assert_uint_eq(got->qps[0]->qpn, qpn_of(1));
	if (error) {
		ck_assert_ptr_null(got->peer_view);
		ck_assert_msg(strstr(got->peer_error, error), "\"%s\" is not in: %s", error,
			got->peer_error);
	} else {
		ck_assert_msg(got->peer_view != NULL, "%s", got->peer_error);
		ck_assert_uint_eq(got->peer_view->qpn, qpn_of(1) + 100000);
		ck_assert_uint_eq(got->peer_view->recv_psn, 0x13);
		ck_assert_uint_eq(got->n_connections, 1);
		ck_assert_str_eq(got->connections[0]->service, "store");
		check_drops(got->qps[0], 3);
		check_drops(got->peer_view, 4);
	}
	ctl__envelope__free_unpacked(answer, NULL);
}

static void why_both_ends(int other_host)
{
	struct pair pair = connect_pair(other_host);
	uint64_t seq = send_query(pair.asks, CTL__QUERY_KIND__QUERY_WHY, qpn_of(1), 0);

	/* The other end's page is old: it is published before it is read. */
	publish_when_told(pair.passive, pair.pages[1]);
	expect_why(&pair, seq, NULL);
	ck_assert_uint_eq(process_mail(pair.active), 0);
}

START_TEST(why_on_one_host)
{
	why_both_ends(alpha);
}
END_TEST

START_TEST(why_across_hosts)
{
	why_both_ends(beta);
}
END_TEST

START_TEST(why_with_a_stopped_peer)
{
	struct pair pair = connect_pair(beta);
	uint64_t seq = send_query(pair.asks, CTL__QUERY_KIND__QUERY_WHY, qpn_of(1), 0);

	world_run(world, 110 * WORLD_MS);
	expect_why(&pair, seq, NULL);
}
END_TEST

START_TEST(why_with_a_silent_daemon)
{
	struct pair pair = connect_pair(beta);
	uint64_t seq;

	world_partition(world, alpha, beta, true);
	seq = send_query(pair.asks, CTL__QUERY_KIND__QUERY_WHY, qpn_of(1), 0);
	world_run(world, 900 * WORLD_MS);
	ck_assert_uint_eq(process_mail(pair.asks), 0);
	world_run(world, 200 * WORLD_MS);
	expect_why(&pair, seq, "has not answered for a second");
}
END_TEST

START_TEST(why_when_the_daemon_goes_away)
{
	struct pair pair = connect_pair(beta);
	uint64_t seq;

	seq = send_query(pair.asks, CTL__QUERY_KIND__QUERY_WHY, qpn_of(1), 0);
	world_kill_daemon(world, beta);
	world_run(world, 10 * WORLD_MS);
	expect_why(&pair, seq, "lost");
	publish(pair.pages[0]);
	seq = send_query(pair.asks, CTL__QUERY_KIND__QUERY_WHY, qpn_of(1), 0);
	expect_why(&pair, seq, "cannot be reached");
}
END_TEST

START_TEST(why_when_the_peer_publishes_nothing)
{
	struct pair pair = connect_pair(beta);
	uint64_t seq;

	pair.pages[1]->qp[0].qpn = 5;
	publish(pair.pages[1]);
	seq = send_query(pair.asks, CTL__QUERY_KIND__QUERY_WHY, qpn_of(1), 0);
	expect_why(&pair, seq, "publishes no queue pair");
}
END_TEST

/* The session of this core with another host's daemon. */
static uint64_t session_with(struct core *core, const char *host)
{
	struct session *session, *next;

	HASH_ITER(hh, core->sessions, session, next)
	{
		if (session->peer && strcmp(session->peer->name, host) == 0)
			return session->id;
	}
	ck_abort_msg("no session with %s", host);
}

/* A daemon may read its own connections, not others'. */
START_TEST(views_are_of_ones_own_connections)
{
	int gamma = world_add_host(world, "gamma", NULL);
	struct pair pair = connect_pair(beta);
	struct process *third = conns_process(world, gamma, BOB, 30);
	struct core *core = world_core(world, beta);
	Ctl__ViewRequest view = CTL__VIEW_REQUEST__INIT;
	struct uuid uuid = uuid_of(1);
	Ctl__Envelope envelope;

	establish(third, pair.passive, 2, "beta", "store");
	envelope = envelope_of(CTL__ENVELOPE__BODY_VIEW_REQUEST, &view);
	envelope.seq = 1000;
	view.uuid = (ProtobufCBinaryData){ UUID_SIZE, uuid.bytes };
	view.of_passive = true;
	core_message(core, session_with(core, "gamma"), &envelope, world_now(world));
	ck_assert(list_empty(&core->requests));
	world_settle(world);
	expect_nothing(pair.passive);
	core_message(core, session_with(core, "alpha"), &envelope, world_now(world));
	ck_assert(!list_empty(&core->requests));
	world_settle(world);
	publish_when_told(pair.passive, pair.pages[1]);
	ck_assert(list_empty(&core->requests));
}
END_TEST

START_TEST(why_without_connection)
{
	struct process *owner = conns_process(world, alpha, ALICE, 10);
	struct process *asks = world_operator(world, alpha, ROOT);
	struct pair pair = { .active = owner, .asks = asks };

	set_qp(give_page(owner, SLOTS), 0, qpn_of(1));
	expect_why(&pair, send_query(asks, CTL__QUERY_KIND__QUERY_WHY, qpn_of(1), 0),
		"not connected by frl_connect");
}
END_TEST

/* ---- drain */

static uint64_t send_drain(struct process *asks, bool undo, const char *reason)
{
	Ctl__Drain drain = CTL__DRAIN__INIT;

	drain.undo = undo;
	drain.reason = (char *)(uintptr_t)reason;
	return send_request(asks, CTL__ENVELOPE__BODY_DRAIN, &drain);
}

START_TEST(drained_and_undone)
{
	struct process *owner = conns_process(world, alpha, ALICE, 10);
	struct process *asks = world_operator(world, alpha, ROOT);
	Ctl__Envelope *answer;
	uint64_t seq;

	give_page(owner, SLOTS);
	world_run(world, WORLD_S);
	seq = send_drain(asks, false, "new kernel");
	answer = take_answer(asks, seq, CTL__ENVELOPE__BODY_REPORT);
	while (answer->report->more) {
		ctl__envelope__free_unpacked(answer, NULL);
		answer = take_answer(asks, seq, CTL__ENVELOPE__BODY_REPORT);
	}
	ck_assert_str_eq(answer->report->daemon->draining, "new kernel");
	ck_assert_uint_eq(answer->report->daemon->ports, 1);
	ctl__envelope__free_unpacked(answer, NULL);
	ck_assert_int_eq(try_offer(owner, "store", 1), EBUSY);
	seq = send_drain(asks, false, "");
	ck_assert_str_eq(world_core(world, alpha)->draining, "new kernel");
	seq = send_drain(asks, true, "");
	ck_assert_str_eq(world_core(world, alpha)->draining, "");
	ck_assert_int_eq(try_offer(owner, "store", 2), 0);
	seq = send_drain(asks, false, "");
	ck_assert_str_ne(world_core(world, alpha)->draining, "");
	(void)seq;
}
END_TEST

START_TEST(only_operators_drain)
{
	struct process *asks = world_operator(world, alpha, ALICE);

	expect_failure(asks, send_drain(asks, false, "x"), EPERM, "operators");
	ck_assert_str_eq(world_core(world, alpha)->draining, "");
}
END_TEST

TEST_MAIN(core_steer)
{
	return run_suite(all_tests(query_set_up, query_tear_down));
}
