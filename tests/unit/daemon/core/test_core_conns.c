/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections through daemons: set up, refused, ended, timed out, on one host and between two, and
 * messages of processes at the wrong time or about others' objects.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/conns/conns.h"
#include "tests/unit/daemon/core/fixtures/conns_fixture.h"
#include "tests/fixtures/program.h"

static void check_private_data(const ProtobufCBinaryData *data, const char *text)
{
	ck_assert_uint_eq(data->len, strlen(text));
	ck_assert_mem_eq(data->data, text, data->len);
}

static void check_who(const Ctl__Who *who, const char *host, const struct process *process)
{
	ck_assert_ptr_nonnull(who);
	ck_assert_str_eq(who->host, host);
	ck_assert_str_eq(who->program, "test");
	ck_assert_uint_eq(who->pid, process->pid);
	ck_assert_uint_eq(who->uid, process->uid);
}

START_LOOP_TEST(is_set_up, WHERES)
{
	struct ends ends = ends_new((enum where)_i);
	const struct core *core = world_core(ends.world, 0);
	const struct conn *conn;
	Ctl__Envelope *heard;

	request(ends.active, 7, ends.host, "echo");
	world_settle(ends.world);
	heard = expect(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST);
	check_private_data(&heard->conn_request->private_data, "hello");
	check_who(heard->conn_request->who, "a", ends.active);
	ck_assert_uint_eq(heard->conn_request->listener, 1);
	ck_assert_uint_eq(heard->conn_request->params->path_mtu, 1024);
	ck_assert_uint_eq(endpoint_qpn(&heard->conn_request->endpoint), qpn_of(7));
	ctl__envelope__free_unpacked(heard, NULL);

	reply(ends.passive, 7, 4711);
	world_settle(ends.world);
	heard = expect(ends.active, CTL__ENVELOPE__BODY_CONN_REPLY);
	check_private_data(&heard->conn_reply->private_data, "welcome");
	check_who(heard->conn_reply->who, _i == TWO_HOSTS ? "b" : "a", ends.passive);
	ck_assert_str_eq(heard->conn_reply->who->address, _i == TWO_HOSTS ? "b:7476" : "");
	ck_assert_uint_eq(heard->conn_reply->params->path_mtu, 512);
	ctl__envelope__free_unpacked(heard, NULL);
	ck_assert_uint_eq(core->counters.connects_established, 0);

	ready(ends.active, 7);
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_READY, 7);
	conn = conns_find(core, uuid_of(7).bytes, false);
	ck_assert_ptr_nonnull(conn);
	ck_assert_int_eq(conn->state, CONN_ESTABLISHED);
	ck_assert_uint_eq(conn->qpn, qpn_of(7));
	ck_assert_uint_eq(conn->peer_qpn, 4711);
	ck_assert_ptr_eq(conn_of_qp(conn->session, conn->port, qpn_of(7)), conn);
	ck_assert_ptr_null(conn_of_qp(conn->session, conn->port, 5));
	ck_assert_uint_eq(core->counters.connects, 1);
	ck_assert_uint_eq(core->counters.connects_established, 1);
	ck_assert_ptr_null(conn->held);

	end(ends.active, 7, true, ECONNRESET, "");
	world_settle(ends.world);
	expect_end(ends.passive, 7, ECONNRESET, "process 11 (test) on a has closed");
	ends_free(&ends);
}
END_TEST

START_LOOP_TEST(is_closed_by_the_passive_end, WHERES)
{
	struct ends ends = ends_new((enum where)_i);
	Ctl__Envelope *heard;

	establish(ends.active, ends.passive, 1, ends.host, "echo");
	end(ends.passive, 1, false, ECONNABORTED, "that is enough");
	/* The end that has ended it gets no message. */
	end(ends.passive, 1, false, ECONNABORTED, "twice");
	world_settle(ends.world);
	heard = expect(ends.active, CTL__ENVELOPE__BODY_CONN_END);
	ck_assert_uint_eq(heard->conn_end->error, ECONNABORTED);
	ck_assert_str_eq(heard->conn_end->reason, "that is enough");
	ck_assert(!heard->conn_end->to_passive);
	check_private_data(&heard->conn_end->private_data, "bye");
	ctl__envelope__free_unpacked(heard, NULL);
	ends_free(&ends);
}
END_TEST

/* A reason is truncated at the end of a character: otherwise nobody could read the message. */
START_LOOP_TEST(long_reasons, WHERES)
{
	struct ends ends = ends_new((enum where)_i);
	Ctl__Envelope *heard;
	char reason[1001];

	/* One byte, so that characters of two begin at odd places: any even size cuts one. */
	strcpy(reason, "x");
	for (size_t i = 1; i < 999; i += 2)
		strcpy(reason + i, "\xc3\xa9");
	establish(ends.active, ends.passive, 1, ends.host, "echo");
	end(ends.passive, 1, false, ECONNABORTED, reason);
	world_settle(ends.world);
	heard = expect(ends.active, CTL__ENVELOPE__BODY_CONN_END);
	ck_assert_uint_gt(strlen(heard->conn_end->reason), 100);
	ctl__envelope__free_unpacked(heard, NULL);
	ends_free(&ends);
}
END_TEST

START_LOOP_TEST(is_rejected, WHERES)
{
	struct ends ends = ends_new((enum where)_i);
	const struct listener *listener;
	Ctl__Envelope *heard;

	request(ends.active, 1, ends.host, "echo");
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	listener = world_core(ends.world, ends.passive_host)->listeners;
	ck_assert_uint_eq(listener->waiting, 1);
	end(ends.passive, 1, false, ECONNREFUSED, "not today");
	world_settle(ends.world);
	ck_assert_uint_eq(listener->waiting, 0);
	heard = expect(ends.active, CTL__ENVELOPE__BODY_CONN_END);
	ck_assert_uint_eq(heard->conn_end->error, ECONNREFUSED);
	ck_assert_str_eq(heard->conn_end->reason, "not today");
	check_private_data(&heard->conn_end->private_data, "bye");
	ctl__envelope__free_unpacked(heard, NULL);
	ck_assert_uint_eq(world_core(ends.world, 0)->counters.connects_refused, 1);
	ends_free(&ends);
}
END_TEST

START_LOOP_TEST(is_cancelled, WHERES)
{
	struct ends ends = ends_new((enum where)_i);

	request(ends.active, 1, ends.host, "echo");
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	/* Both send something at the same time. A process with both ends has sent it all itself. */
	end(ends.active, 1, true, ECANCELED, "no longer wanted");
	reply(ends.passive, 1, 5);
	world_settle(ends.world);
	expect_end(ends.passive, 1, ECANCELED, "no longer wanted");
	if (_i == TWO_HOSTS)
		ck_assert_uint_eq(world_warnings(ends.world, 0), 0);
	ends_free(&ends);
}
END_TEST

/* ---- a process ends */

enum { WHILE_REQUESTED, WHILE_REPLIED, WHILE_ESTABLISHED, WHILES };

static void go_to(struct ends *ends, int state)
{
	request(ends->active, 1, ends->host, "echo");
	world_settle(ends->world);
	expect_about(ends->passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	if (state == WHILE_REQUESTED)
		return;
	reply(ends->passive, 1, 5);
	world_settle(ends->world);
	expect_about(ends->active, CTL__ENVELOPE__BODY_CONN_REPLY, 1);
	if (state == WHILE_REPLIED)
		return;
	ready(ends->active, 1);
	world_settle(ends->world);
	expect_about(ends->passive, CTL__ENVELOPE__BODY_CONN_READY, 1);
}

START_LOOP_TEST(ends_with_a_process, 4 * WHILES)
{
	struct ends ends = ends_new(_i % 2 ? ONE_HOST : TWO_HOSTS);
	bool is_active = _i / 2 % 2;
	struct process *victim = is_active ? ends.active : ends.passive;
	struct process *other = is_active ? ends.passive : ends.active;
	char words[64];

	go_to(&ends, _i / 4);
	snprintf(words, sizeof(words), "process %u (test) on %s has ended", victim->pid,
		is_active || _i % 2 ? "a" : "b");
	process_die(victim);
	world_settle(ends.world);
	expect_end(other, 1, ECONNRESET, words);
	ends_free(&ends);
}
END_TEST

START_LOOP_TEST(ends_with_its_port, WHERES)
{
	struct ends ends = ends_new((enum where)_i);
	Ctl__ClosePort close = CTL__CLOSE_PORT__INIT;

	establish(ends.active, ends.passive, 1, ends.host, "echo");
	close.port = PORT;
	process_say(ends.passive, CTL__ENVELOPE__BODY_CLOSE_PORT, &close);
	world_settle(ends.world);
	expect_end(ends.active, 1, ECONNRESET, "closed its port 1");
	expect_end(ends.passive, 1, ECONNRESET, "closed its port 1");
	ck_assert_uint_eq(HASH_COUNT(world_core(ends.world, ends.passive_host)->listeners), 0);
	ends_free(&ends);
}
END_TEST

/* ---- time */

START_LOOP_TEST(times_out, 2 * (WHILES - 1))
{
	struct ends ends = ends_new(_i % 2 ? ONE_HOST : TWO_HOSTS);
	uint64_t began_ns = world_now(ends.world);

	go_to(&ends, _i / 2);
	world_run(ends.world, began_ns + (TIMEOUT_MS - 100) * WORLD_MS - world_now(ends.world));
	expect_nothing(ends.active);
	expect_nothing(ends.passive);
	world_run(ends.world, 200 * WORLD_MS);
	expect_end(ends.active, 1, ETIMEDOUT, "in time");
	expect_end(ends.passive, 1, ETIMEDOUT, "in time");
	ck_assert_uint_eq(world_core(ends.world, 0)->counters.connects_timed_out, 1);
	ends_free(&ends);
}
END_TEST

START_LOOP_TEST(established_ones_do_not_time_out, WHERES)
{
	struct ends ends = ends_new((enum where)_i);

	establish(ends.active, ends.passive, 1, ends.host, "echo");
	world_run(ends.world, 100 * WORLD_S);
	expect_nothing(ends.active);
	expect_nothing(ends.passive);
	end(ends.active, 1, true, ECONNRESET, "");
	world_settle(ends.world);
	expect_end(ends.passive, 1, ECONNRESET, "closed");
	ends_free(&ends);
}
END_TEST

START_TEST(latency_is_counted)
{
	struct ends ends = ends_new(ONE_HOST);
	const struct core_counters *counters = &world_core(ends.world, 0)->counters;
	uint64_t sum = 0;

	request(ends.active, 1, "", "echo");
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	world_run(ends.world, 30 * WORLD_MS);
	reply(ends.passive, 1, 5);
	world_settle(ends.world);
	expect_about(ends.active, CTL__ENVELOPE__BODY_CONN_REPLY, 1);
	ready(ends.active, 1);
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_READY, 1);
	for (unsigned i = 0; i <= LATENCY_BUCKETS; i++) {
		sum += counters->latency_count[i];
		if (counters->latency_count[i])
			ck_assert(latency_bounds_s[i - 1] < 0.03 && latency_bounds_s[i] >= 0.03);
	}
	ck_assert_uint_eq(sum, 1);
	ck_assert(counters->latency_sum_s > 0.03 && counters->latency_sum_s < 0.031);
	process_die(ends.active);
	world_settle(ends.world);
	expect_end(ends.passive, 1, ECONNRESET, "has ended");
	ends_free(&ends);
}
END_TEST

/* ---- many */

enum { MANY = 2000 };

START_LOOP_TEST(thousands_are_pending, WHERES)
{
	struct ends ends = ends_new((enum where)_i);
	Ctl__Envelope *heard;

	for (uint32_t i = 1; i <= MANY; i++)
		request(ends.active, i, ends.host, "echo");
	world_settle(ends.world);
	for (uint32_t i = 1; i <= MANY; i++) {
		heard = expect(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST);
		reply(ends.passive, uuid_number(heard), qpn_of(uuid_number(heard)) + 100000);
		ctl__envelope__free_unpacked(heard, NULL);
	}
	world_settle(ends.world);
	for (uint32_t i = 1; i <= MANY; i++) {
		heard = expect(ends.active, CTL__ENVELOPE__BODY_CONN_REPLY);
		ready(ends.active, uuid_number(heard));
		ctl__envelope__free_unpacked(heard, NULL);
	}
	world_settle(ends.world);
	for (uint32_t i = 1; i <= MANY; i++)
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_READY, i);
	ck_assert_uint_eq(world_core(ends.world, 0)->counters.connects_established, MANY);
	process_die(ends.active);
	world_settle(ends.world);
	for (uint32_t i = 1; i <= MANY && _i != ONE_PROCESS; i++)
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_END, i);
	ends_free(&ends);
}
END_TEST

START_TEST(both_ask_at_once)
{
	struct ends ends = ends_new(TWO_HOSTS);

	offer(ends.active, "echo2", 1, false);
	for (uint32_t i = 1; i <= 20; i++) {
		request(ends.active, i, "b", "echo");
		request(ends.passive, 100 + i, "a", "echo2");
	}
	world_settle(ends.world);
	for (uint32_t i = 1; i <= 20; i++) {
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, i);
		expect_about(ends.active, CTL__ENVELOPE__BODY_CONN_REQUEST, 100 + i);
		reply(ends.passive, i, 1000 + i);
		reply(ends.active, 100 + i, 1000 + i);
	}
	world_settle(ends.world);
	for (uint32_t i = 1; i <= 20; i++) {
		expect_about(ends.active, CTL__ENVELOPE__BODY_CONN_REPLY, i);
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REPLY, 100 + i);
		ready(ends.active, i);
		ready(ends.passive, 100 + i);
	}
	world_settle(ends.world);
	for (uint32_t i = 1; i <= 20; i++) {
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_READY, i);
		expect_about(ends.active, CTL__ENVELOPE__BODY_CONN_READY, 100 + i);
	}
	/* One of the two sessions between the daemons stays, the same for both. */
	ck_assert_uint_eq(HASH_COUNT(world_core(ends.world, 0)->sessions), 3);
	world_run(ends.world, 10 * WORLD_S);
	ck_assert_uint_eq(HASH_COUNT(world_core(ends.world, 0)->sessions), 2);
	ck_assert_uint_eq(HASH_COUNT(world_core(ends.world, 1)->sessions), 2);
	ck_assert_uint_eq(world_core(ends.world, 0)->counters.peers_lost, 0);
	ck_assert_uint_eq(world_core(ends.world, 1)->counters.peers_lost, 0);
	expect_nothing(ends.active);
	process_die(ends.active);
	world_settle(ends.world);
	for (uint32_t i = 1; i <= 20; i++)
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_END, i);
	for (uint32_t i = 1; i <= 20; i++)
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_END, 100 + i);
	ends_free(&ends);
}
END_TEST

TEST_FILE(core_conns)
