/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hosts whose daemons do not reach each other for a time: jobs and connections last for the
 * keepalive time in any case, and longer while they receive data.
 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "tests/unit/daemon/core/fixtures/conns_fixture.h"
#include "tests/unit/daemon/core/fixtures/groups_model.h"
#include "tests/fixtures/program.h"

enum { KEEPER, MEMBER, RANKS = 3, STEP_MS = 10 };

/* Rank 0 is on the host that keeps the job, the others on the other one. Only rank 1 has a network:
 * the other rank of its host talks to nobody else. */
static struct model ranks[RANKS + 1]; /* and one of another job */
static struct page *pages[RANKS + 1];
static bool flows; /* data comes all the time */

/* How often all slots of a page were read. */
static unsigned n_reads;

uint32_t __real_page_used_slots(const struct page_view *view);
uint32_t __wrap_page_used_slots(const struct page_view *view);

uint32_t __wrap_page_used_slots(const struct page_view *view)
{
	n_reads++;
	return __real_page_used_slots(view);
}

static struct port *port_of(struct world *world, const struct process *process)
{
	return port_find(session_find(world_core(world, process->host), process->session), PORT);
}

static struct page *give_page(struct world *world, struct process *process, uint32_t qpn)
{
	struct page *page = world_page(world, 4);

	port_of(world, process)->page = world_view(world, page);
	page->qp[1].qpn = qpn;
	atomic_store(&page->used_slots, 2);
	return page;
}

static void setup(void)
{
	groups_setup();
	world_add_host(group_world, "nodeb", NULL);
	memset(ranks, 0, sizeof(ranks));
	memset(pages, 0, sizeof(pages));
	for (uint32_t i = 0; i < RANKS; i++) {
		model_join(&ranks[i], group_world, i ? MEMBER : KEEPER, 500 + i, "train", "nodea",
			i, RANKS);
		if (i == 2)
			continue;
		process_open_port(ranks[i].rank.process, PORT);
		pages[i] = give_page(group_world, ranks[i].rank.process, 17);
	}
	flows = false;
}

/* Processes publish when they are asked to. */
static void publish(struct process *process, struct page *page, bool has_data)
{
	Ctl__Envelope *asked = process_take(process, CTL__ENVELOPE__BODY_PUBLISH), done;
	Ctl__Done body = CTL__DONE__INIT;

	if (!asked)
		return;
	if (has_data)
		page->qp[1].last_rx_ns = world_now(process->world);
	atomic_store(&page->published_ns, world_now(process->world));
	done = envelope_of(CTL__ENVELOPE__BODY_DONE, &body);
	done.seq = asked->seq;
	process_send(process, &done);
	ctl__envelope__free_unpacked(asked, NULL);
}

static void run(uint64_t ns)
{
	for (uint64_t i = 0; i < ns / (STEP_MS * WORLD_MS); i++) {
		world_run(group_world, STEP_MS * WORLD_MS);
		for (int k = 0; k <= RANKS; k++) {
			if (pages[k])
				publish(ranks[k].rank.process, pages[k], flows);
			model_hear(&ranks[k]);
		}
	}
}

static uint64_t keepalive_ns(void)
{
	return world_core(group_world, KEEPER)->config->keepalive_ms * WORLD_MS;
}

/* They have met a while ago, and know how to dial each other. */
static void meet(void)
{
	run(10 * WORLD_S);
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(ranks[i].state, MODEL_JOINED);
}

static void expect_all_well(void)
{
	for (uint32_t round = 0; round < 3; round++) {
		for (int i = 0; i < RANKS; i++)
			model_give(&ranks[i]);
		run(20 * WORLD_MS);
	}
	for (int i = 0; i < RANKS; i++) {
		ck_assert_msg(ranks[i].state == MODEL_JOINED && !ranks[i].why[0],
			"rank %d is in state %d: %s", i, (int)ranks[i].state, ranks[i].why);
		ck_assert_uint_eq(ranks[i].round, 3);
	}
}

/* Nothing of the job is lost, and soon after the outage the ranks receive each other again. */
START_LOOP_TEST(an_outage_of_the_keepalive_time, 20)
{
	meet();
	run((uint64_t)(_i % 10) * 40 * WORLD_MS);
	if (_i >= 10)
		model_give(&ranks[0]);
	world_stall(group_world, KEEPER, MEMBER, true);
	run(keepalive_ns());
	world_retransmit(group_world, KEEPER, MEMBER);
	run(keepalive_ns() / 3);
	expect_all_well();
}
END_TEST

START_TEST(a_longer_one)
{
	meet();
	world_partition(group_world, KEEPER, MEMBER, true);
	run(keepalive_ns() * 3 / 2 + 20 * WORLD_MS);
	ck_assert(ranks[0].dead_ns[1] && ranks[0].dead_ns[2]);
	ck_assert_int_eq(ranks[1].state, MODEL_FAILED);
}
END_TEST

/* For as long as ranks may do without daemons. Dials hang, or fail at once. */
START_LOOP_TEST(a_longer_one_while_data_flows, 2)
{
	meet();
	flows = true;
	for (int host = 0; host < 2; host++)
		world_no_route(group_world, host, _i == 1);
	world_partition(group_world, KEEPER, MEMBER, true);
	run(14 * WORLD_S);
	for (int host = 0; host < 2; host++)
		world_no_route(group_world, host, false);
	for (int i = 0; i < RANKS; i++)
		ck_assert(model_is_in(&ranks[i]));
	ck_assert_ptr_nonnull(strstr(world_last_warning(group_world, KEEPER), "but data flows"));
	world_partition(group_world, KEEPER, MEMBER, false);
	run(3 * WORLD_S);
	expect_all_well();
}
END_TEST

START_TEST(data_ends_while_the_daemons_are_apart)
{
	meet();
	flows = true;
	world_partition(group_world, KEEPER, MEMBER, true);
	run(2 * keepalive_ns());
	ck_assert(!ranks[0].dead_ns[1]);
	flows = false;
	run(3 * keepalive_ns());
	ck_assert(ranks[0].dead_ns[1] && ranks[0].dead_ns[2]);
	ck_assert_ptr_nonnull(strstr(ranks[0].why, "host nodeb is gone"));
	for (int i = 1; i < RANKS; i++) {
		ck_assert_int_eq(ranks[i].state, MODEL_FAILED);
		ck_assert_ptr_nonnull(strstr(ranks[i].why, "host nodea is gone"));
	}
}
END_TEST

START_TEST(data_flows_for_longer_than_ranks_do_without_daemons)
{
	meet();
	flows = true;
	world_partition(group_world, KEEPER, MEMBER, true);
	run(15 * WORLD_S + 2 * keepalive_ns());
	ck_assert(ranks[0].dead_ns[1] && ranks[0].dead_ns[2]);
	ck_assert_ptr_nonnull(strstr(ranks[0].why, "did not come back"));
	for (int i = 1; i < RANKS; i++)
		ck_assert_int_eq(ranks[i].state, MODEL_FAILED);
}
END_TEST

/* Ranks of one host prove nothing about another one. */
START_TEST(data_of_the_local_fabric_does_not_count)
{
	meet();
	for (int i = 0; i < 2; i++)
		strcpy(port_of(group_world, ranks[i].rank.process)->device, "ring");
	flows = true;
	world_partition(group_world, KEEPER, MEMBER, true);
	run(2 * keepalive_ns());
	ck_assert(ranks[0].dead_ns[1]);
	ck_assert_int_eq(ranks[1].state, MODEL_FAILED);
}
END_TEST

/* A process that does not publish any more proves nothing. */
START_TEST(old_pages_do_not_count)
{
	Ctl__Envelope *heard;

	meet();
	world_partition(group_world, KEEPER, MEMBER, true);
	pages[0]->qp[1].last_rx_ns = world_now(group_world);
	world_run(group_world, 2 * keepalive_ns());
	heard = process_take(ranks[0].rank.process, CTL__ENVELOPE__BODY_GROUP_EVENT);
	ck_assert_ptr_nonnull(heard);
	ck_assert_int_eq(heard->group_event->kind, DEAD);
	ctl__envelope__free_unpacked(heard, NULL);
}
END_TEST

/* A process that joins a job for the first time is refused, whatever else it does. */
START_TEST(a_first_join_is_not_held)
{
	meet();
	flows = true;
	world_partition(group_world, KEEPER, MEMBER, true);
	model_join(&ranks[RANKS], group_world, MEMBER, 600, "other", "nodea", 0, 2);
	process_open_port(ranks[RANKS].rank.process, PORT);
	pages[RANKS] = give_page(group_world, ranks[RANKS].rank.process, 17);
	run(2 * keepalive_ns());
	ck_assert_int_eq(ranks[RANKS].state, MODEL_FAILED);
	ck_assert(model_is_in(&ranks[1]));
}
END_TEST

/* One of two connections receives data: it stays, for as long as it does. */
START_TEST(connections)
{
	struct ends ends = ends_new(TWO_HOSTS);
	uint64_t step_ns = keepalive_ns() / 10;
	struct page *page;

	establish(ends.active, ends.passive, 1, "b", "echo");
	establish(ends.active, ends.passive, 2, "b", "echo");
	page = give_page(ends.world, ends.active, qpn_of(1));
	world_partition(ends.world, 0, 1, true);
	for (int i = 0; i < 100; i++) {
		world_run(ends.world, step_ns);
		publish(ends.active, page, true);
		if (i == 20)
			expect_end(ends.active, 2, EHOSTDOWN, "host b is gone");
	}
	expect_nothing(ends.active);
	for (int i = 0; i < 30; i++) {
		world_run(ends.world, step_ns);
		publish(ends.active, page, false);
	}
	expect_end(ends.active, 1, EHOSTDOWN, "host b is gone");
	for (uint32_t i = 1; i <= 2; i++)
		expect_end(ends.passive, i, EHOSTDOWN, "host a is gone");
	ends_free(&ends);
}
END_TEST

/* A page is read once for all connections of a process: their number delays no other user. */
START_TEST(a_page_is_read_once)
{
	enum { CONNS = 20 };
	struct ends ends = ends_new(TWO_HOSTS);
	struct page *page;

	for (uint32_t i = 1; i <= CONNS; i++)
		establish(ends.active, ends.passive, i, "b", "echo");
	page = give_page(ends.world, ends.active, qpn_of(CONNS));
	world_partition(ends.world, 0, 1, true);
	n_reads = 0;
	world_run(ends.world, keepalive_ns());
	publish(ends.active, page, true);
	world_run(ends.world, keepalive_ns());
	ck_assert_uint_eq(n_reads, 1);
	ck_assert_uint_eq(conns_of(ends.world, 0), 1);
	world_run(ends.world, 3 * keepalive_ns());
	for (uint32_t i = 1; i <= CONNS; i++) {
		expect_end(ends.passive, i, EHOSTDOWN, "host a is gone");
		if (i == CONNS)
			publish(ends.active, page, false);
		expect_end(ends.active, i, EHOSTDOWN, "host b is gone");
	}
	ends_free(&ends);
}
END_TEST

/* Data proves nothing about a host that was never reached, or a connection that is not made. */
START_LOOP_TEST(requests_do_not_read_pages, 3)
{
	struct ends ends = ends_new(TWO_HOSTS);
	bool was_up = _i == 2;
	struct page *page;

	if (was_up)
		establish(ends.active, ends.passive, 1, "b", "echo");
	world_partition(ends.world, 0, 1, true);
	if (_i == 1)
		resume(ends.active, 2, false, qpn_of(2), "b", true);
	else
		request(ends.active, 2, "b", "echo");
	page = give_page(ends.world, ends.active, qpn_of(2));
	n_reads = 0;
	world_run(ends.world, keepalive_ns() * 4 / 5);
	page->qp[1].last_rx_ns = world_now(ends.world);
	world_run(ends.world, keepalive_ns() * 4 / 5);
	ck_assert_uint_eq(n_reads, was_up); /* for the first connection */
	if (was_up) {
		expect_end(ends.passive, 1, EHOSTDOWN, "host a is gone");
		publish(ends.active, page, false);
		expect_end(ends.active, 1, EHOSTDOWN, "host b is gone");
	}
	expect_end(ends.active, 2, was_up ? EHOSTDOWN : EHOSTUNREACH, "host b");
	ends_free(&ends);
}
END_TEST

/* It would keep a connection for ever. */
START_TEST(a_forged_time_does_not_count)
{
	struct ends ends = ends_new(TWO_HOSTS);
	struct page *page;

	establish(ends.active, ends.passive, 1, "b", "echo");
	page = give_page(ends.world, ends.active, qpn_of(1));
	page->qp[1].last_rx_ns = UINT64_MAX;
	world_partition(ends.world, 0, 1, true);
	world_run(ends.world, 2 * keepalive_ns());
	expect_end(ends.passive, 1, EHOSTDOWN, "host a is gone");
	publish(ends.active, page, false);
	expect_end(ends.active, 1, EHOSTDOWN, "host b is gone");
	ends_free(&ends);
}
END_TEST

TEST_MAIN(core_outages)
{
	return run_suite(all_tests(setup, groups_teardown));
}
