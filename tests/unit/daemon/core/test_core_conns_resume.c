/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Daemons that are started again: processes come back and report their state. A connection that
 * both ends have goes on; one that only one end has ends.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/daemon/core/fixtures/conns_fixture.h"
#include "tests/fixtures/program.h"

static uint32_t passive_qpn(uint32_t number)
{
	return qpn_of(number) + 100000;
}

static void restart(struct ends *ends, int host, bool crashed)
{
	world_kill_daemon(ends->world, host);
	world_run(ends->world, 10 * WORLD_MS);
	world_start_daemon(ends->world, host, crashed);
}

static void come_back(struct process *process)
{
	process_come_back(process);
	process_open_port(process, PORT);
}

static void resume_active(struct ends *ends, uint32_t number)
{
	resume(ends->active, number, false, qpn_of(number), ends->host, true);
}

static void resume_passive(struct ends *ends, uint32_t number, bool established)
{
	resume(ends->passive, number, true, passive_qpn(number), ends->passive_host == 0 ? "" : "a",
		established);
}

static void check_goes_on(struct ends *ends, uint32_t number)
{
	world_run(ends->world, 20 * WORLD_S);
	expect_nothing(ends->active);
	expect_nothing(ends->passive);
	end(ends->passive, number, false, ECONNRESET, "done");
	world_run(ends->world, WORLD_S);
	expect_end(ends->active, number, ECONNRESET, "done");
}

/* Bits of _i: in which order, after a crash or not. */
START_LOOP_TEST(both_come_back, 4)
{
	struct ends ends = ends_new(ONE_HOST);
	const struct conn *conn;

	establish(ends.active, ends.passive, 1, "", "echo");
	restart(&ends, 0, _i & 1);
	for (int i = 0; i < 2; i++) {
		if ((i == 0) == !(_i & 2)) {
			come_back(ends.active);
			resume_active(&ends, 1);
		} else {
			come_back(ends.passive);
			resume_passive(&ends, 1, true);
		}
		world_run(ends.world, 100 * WORLD_MS);
	}
	conn = conns_find(world_core(ends.world, 0), uuid_of(1).bytes, true);
	ck_assert_ptr_nonnull(conn);
	ck_assert_int_eq(conn->state, CONN_ESTABLISHED);
	ck_assert_uint_eq(conn->qpn, passive_qpn(1));
	ck_assert_str_eq(conn->service, "echo");
	/* Sent twice, it has the same effect. */
	resume_passive(&ends, 1, true);
	check_goes_on(&ends, 1);
	ends_free(&ends);
}
END_TEST

START_LOOP_TEST(one_comes_back, 2)
{
	struct ends ends = ends_new(ONE_HOST);

	establish(ends.active, ends.passive, 1, "", "echo");
	restart(&ends, 0, _i);
	come_back(ends.active);
	resume_active(&ends, 1);
	world_run(ends.world, 100 * WORLD_MS);
	expect_nothing(ends.active);
	world_run(ends.world, 20 * WORLD_S);
	expect_end(ends.active, 1, ECONNRESET, "did not come back");
	ends_free(&ends);
}
END_TEST

/* The passive end did not know yet that the connection was established. */
START_LOOP_TEST(is_told_that_it_is_established, 4)
{
	struct ends ends = ends_new(_i / 2 ? TWO_HOSTS : ONE_HOST);

	establish(ends.active, ends.passive, 1, ends.host, "echo");
	restart(&ends, ends.passive_host, true);
	for (int i = 0; i < 2; i++) {
		if (i == _i % 2) {
			come_back(ends.passive);
			resume_passive(&ends, 1, false);
		} else if (ends.passive_host == 0) {
			come_back(ends.active);
			resume_active(&ends, 1);
		}
		world_run(ends.world, WORLD_S);
	}
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_READY, 1);
	check_goes_on(&ends, 1);
	ends_free(&ends);
}
END_TEST

/* A daemon with this configuration knows itself by another name than other hosts. */
static struct config *config_inside(void)
{
	struct config *config = config_new();

	free(config->host);
	config->host = strdup("inside");
	config->listen_address = strdup("0.0.0.0");
	return config;
}

/* The passive end did not know yet that the connection was established. Its process knows the host
 * by a name that the daemon must dial to recognize. Bits of _i: the active end resumes first, the
 * active process knows the host by that name, too. */
START_LOOP_TEST(established_under_another_name, 4)
{
	struct config *config = config_inside();
	struct ends ends = { .world = world_create(1), .host = "outside" };

	world_add_host(ends.world, ends.host, config);
	ends.active = conns_process(ends.world, 0, UID, 11);
	ends.passive = conns_process(ends.world, 0, UID, 22);
	offer(ends.passive, "echo", 1, false);
	establish(ends.active, ends.passive, 1, "", "echo");
	restart(&ends, 0, true);
	come_back(ends.active);
	come_back(ends.passive);
	for (int i = 0; i < 2; i++) {
		if (i == _i % 2)
			resume(ends.passive, 1, true, passive_qpn(1), ends.host, false);
		else
			resume(ends.active, 1, false, qpn_of(1), _i & 2 ? ends.host : "", true);
	}
	world_run(ends.world, WORLD_S);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_READY, 1);
	check_goes_on(&ends, 1);
	ends_free(&ends);
	config_free(config);
}
END_TEST

/* Bits of _i: the passive host's daemon, the active one's, crashed, processes come back after the
 * daemons have found each other. */
START_RANGE_TEST(on_two_hosts, 1, 16)
{
	struct ends ends = ends_new(TWO_HOSTS);

	establish(ends.active, ends.passive, 1, "b", "echo");
	world_run(ends.world, 10 * WORLD_S); /* who is not started again is not relearning */
	if (_i & 1)
		restart(&ends, 1, _i & 4);
	if (_i & 2)
		restart(&ends, 0, _i & 4);
	world_run(ends.world, _i & 8 ? WORLD_S : 100 * WORLD_MS);
	if (_i & 1) {
		come_back(ends.passive);
		resume_passive(&ends, 1, true);
	}
	if (_i & 2) {
		come_back(ends.active);
		resume_active(&ends, 1);
	}
	check_goes_on(&ends, 1);
	ends_free(&ends);
}
END_TEST

START_LOOP_TEST(other_host_does_not_come_back, 2)
{
	struct ends ends = ends_new(TWO_HOSTS);

	establish(ends.active, ends.passive, 1, "b", "echo");
	restart(&ends, 1, _i);
	world_run(ends.world, WORLD_S);
	expect_nothing(ends.active);
	world_run(ends.world, 20 * WORLD_S);
	expect_end(ends.active, 1, ECONNRESET, "while its daemon was out of reach");
	ends_free(&ends);
}
END_TEST

/* The end was reported while the other daemon was away. */
START_LOOP_TEST(ended_meanwhile, 2)
{
	struct ends ends = ends_new(TWO_HOSTS);

	establish(ends.active, ends.passive, 1, "b", "echo");
	world_kill_daemon(ends.world, 1);
	world_run(ends.world, 10 * WORLD_MS);
	if (_i)
		process_die(ends.active);
	else
		end(ends.active, 1, true, ECONNRESET, "bye");
	world_run(ends.world, 10 * WORLD_MS);
	world_start_daemon(ends.world, 1, true);
	come_back(ends.passive);
	resume_passive(&ends, 1, true);
	world_run(ends.world, 20 * WORLD_S);
	expect_end(ends.passive, 1, ECONNRESET, "ended while its daemon was out of reach");
	ends_free(&ends);
}
END_TEST

/* The passive process knows the other host only by the name that its daemon gives, which leads
 * nowhere: the other daemon comes by itself, before or after. */
START_LOOP_TEST(name_that_leads_nowhere, 2)
{
	struct config *config = config_new();
	struct ends ends = { .world = world_create(1), .passive_host = 1, .host = "b" };

	free(config->host);
	config->host = strdup("alpha");
	world_add_host(ends.world, "a", config);
	world_add_host(ends.world, "b", NULL);
	ends.active = conns_process(ends.world, 0, UID, 11);
	ends.passive = conns_process(ends.world, 1, UID, 22);
	offer(ends.passive, "echo", 1, false);
	establish(ends.active, ends.passive, 1, "b", "echo");
	world_run(ends.world, 10 * WORLD_S);
	restart(&ends, 1, true);
	if (_i)
		world_run(ends.world, WORLD_S);
	come_back(ends.passive);
	resume(ends.passive, 1, true, passive_qpn(1), "alpha", true);
	check_goes_on(&ends, 1);
	ends_free(&ends);
	config_free(config);
}
END_TEST

/* ---- what must not be resumed */

START_TEST(not_resumed)
{
	struct ends ends = ends_new(ONE_HOST);
	struct process *third = conns_process(ends.world, 0, UID, 33);

	establish(ends.active, ends.passive, 1, "", "echo");
	resume(third, 1, false, 5, "", true);
	world_settle(ends.world);
	expect_end(third, 1, EEXIST, "with this identifier");
	resume(ends.active, 2, false, qpn_of(1), "", true);
	world_settle(ends.world);
	expect_end(ends.active, 2, EINVAL, "has another connection");
	resume(ends.active, 2, false, 5, "bad host", true);
	world_settle(ends.world);
	expect_end(ends.active, 2, EINVAL, "a host must be");
	/* A connection that only one end ever had. */
	resume(ends.active, 3, false, 5, "", true);
	world_run(ends.world, 20 * WORLD_S);
	expect_end(ends.active, 3, ECONNRESET, "did not come back");
	check_goes_on(&ends, 1);
	ends_free(&ends);
}
END_TEST

/* ---- requests for services that come back */

START_LOOP_TEST(service_comes_back, 2)
{
	struct ends ends = ends_new(_i ? TWO_HOSTS : ONE_HOST);

	restart(&ends, ends.passive_host, true);
	if (!_i)
		come_back(ends.active);
	request(ends.active, 1, ends.host, "echo");
	request(ends.active, 2, ends.host, "other");
	world_run(ends.world, 100 * WORLD_MS);
	expect_nothing(ends.active);
	come_back(ends.passive);
	offer(ends.passive, "echo", 1, false);
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	reply(ends.passive, 1, 5);
	world_settle(ends.world);
	expect_about(ends.active, CTL__ENVELOPE__BODY_CONN_REPLY, 1);
	ready(ends.active, 1);
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_READY, 1);
	expect_nothing(ends.active);
	world_run(ends.world, 9 * WORLD_S);
	expect_end(ends.active, 2, ECONNREFUSED, "nobody offers service other");
	ck_assert_uint_eq(world_core(ends.world, ends.passive_host)->deferred, 0);
	check_goes_on(&ends, 1);
	ends_free(&ends);
}
END_TEST

/* A process that waits for a service gives up, or may not have it. */
START_LOOP_TEST(service_comes_back_too_late, 2)
{
	struct ends ends = ends_new(_i ? TWO_HOSTS : ONE_HOST);
	struct process *other;

	restart(&ends, ends.passive_host, true);
	if (!_i)
		come_back(ends.active);
	request(ends.active, 1, ends.host, "echo");
	request(ends.active, 2, ends.host, "echo");
	world_run(ends.world, 10 * WORLD_MS);
	end(ends.active, 1, true, ECANCELED, "no");
	world_run(ends.world, 10 * WORLD_MS);
	other = conns_process(ends.world, ends.passive_host, OTHER_UID, 33);
	offer(other, "echo", 1, false);
	world_settle(ends.world);
	expect_nothing(other);
	expect_end(ends.active, 2, EACCES, "only for processes of the user");
	ck_assert_uint_eq(world_core(ends.world, ends.passive_host)->deferred, 0);
	ends_free(&ends);
}
END_TEST

/* The address of a requesting host later leads to the daemon itself: that host was behind NAT, or
 * the address has moved. The request ends, since its active end is not here. Row 0: a deferred
 * request; row 1: a request whose reply has not been received. */
START_LOOP_TEST(address_of_requester_leads_here, 2)
{
	struct config *config = config_inside();
	struct ends ends = { .world = world_create(1) };

	/* This name is the address of host 1. Dialled by host 0, it leads to host 0. */
	world_add_host(ends.world, "10.0.0.2", config);
	world_add_host(ends.world, "b", NULL);
	ends.passive = conns_process(ends.world, 0, UID, 22);
	ends.active = conns_process(ends.world, 1, UID, 11);
	restart(&ends, 0, true);
	come_back(ends.passive);
	if (_i)
		offer(ends.passive, "echo", 1, false);
	request(ends.active, 1, "10.0.0.1", "echo");
	world_run(ends.world, 10 * WORLD_MS);
	if (_i) {
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
		reply(ends.passive, 1, 5);
	}
	ck_assert_uint_eq(conns_of(ends.world, 0), 1);
	world_kill_daemon(ends.world, 1);
	world_run(ends.world, WORLD_S);
	ck_assert_uint_eq(conns_of(ends.world, 0), 0);
	ck_assert_uint_eq(world_core(ends.world, 0)->deferred, 0);
	if (_i)
		expect_end(ends.passive, 1, ECONNRESET,
			"its address 10.0.0.2:7476 leads to this host now");
	world_run(ends.world, 20 * WORLD_S);
	expect_nothing(ends.passive);
	world_destroy(ends.world);
	config_free(config);
}
END_TEST

/* Another host cannot fill this one's memory with requests for services that may come back. */
START_TEST(not_all_can_wait)
{
	struct ends ends = ends_new(TWO_HOSTS);
	struct config *config;

	restart(&ends, ends.passive_host, true);
	config = (struct config *)(uintptr_t)world_core(ends.world, ends.passive_host)->config;
	config->max_connections_per_user = 2;
	for (uint32_t i = 1; i <= 3; i++) {
		request(ends.active, i, ends.host, "echo");
		world_run(ends.world, 10 * WORLD_MS);
	}
	expect_end(ends.active, 3, ECONNREFUSED, "2 requests wait");
	expect_nothing(ends.active);
	come_back(ends.passive);
	offer(ends.passive, "echo", 1, false);
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 2);
	for (uint32_t i = 1; i <= 2; i++)
		end(ends.passive, i, false, ECANCELED, "no");
	world_run(ends.world, 10 * WORLD_MS);
	expect_end(ends.active, 1, ECANCELED, "no");
	expect_end(ends.active, 2, ECANCELED, "no");
	ends_free(&ends);
}
END_TEST

TEST_FILE(core_conns_resume)
