/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Other daemons: named, dialled, lost, found again; and a lying one. The connections with them show
 * the results.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/daemon/core/fixtures/conns_fixture.h"
#include "tests/fixtures/program.h"

static unsigned peers_of(struct world *world, int host)
{
	return HASH_COUNT(world_core(world, host)->peers);
}

static struct peer *first_peer(struct world *world, int host)
{
	return world_core(world, host)->peers;
}

/* ---- names */

enum { BAD = -1, SELF = 0 };

static const struct {
	const char *text;
	int port; /* or BAD, SELF */
	const char *host;
} places[] = {
	{ "b", CONTROL_PORT, "b" },
	{ "B.Example", CONTROL_PORT, "b.example" },
	{ "b:80", 80, "b" },
	{ "b:65535", 65535, "b" },
	{ "10.1.2.3", CONTROL_PORT, "10.1.2.3" },
	{ "10.1.2.3:7", 7, "10.1.2.3" },
	{ "fe80::1%eth0", CONTROL_PORT, "fe80::1%eth0" },
	{ "[2001:db8::1]", CONTROL_PORT, "2001:db8::1" },
	{ "[2001:db8::1]:99", 99, "2001:db8::1" },
	{ "localhost:99", 99, "localhost" },
	{ "", SELF, NULL },
	{ "a", SELF, NULL },
	{ "A", SELF, NULL },
	{ "a:7476", SELF, NULL },
	{ "localhost", SELF, NULL },
	{ "127.0.0.1", SELF, NULL },
	{ "[::1]:7476", SELF, NULL },
	{ "b:", BAD, NULL },
	{ "b:0", BAD, NULL },
	{ "b:65536", BAD, NULL },
	{ "b:1x", BAD, NULL },
	{ "b:+1", BAD, NULL },
	{ ":80", BAD, NULL },
	{ "[::1", BAD, NULL },
	{ "[::1]80", BAD, NULL },
	{ "[]", BAD, NULL },
	{ "a b", BAD, NULL },
	{ "b/../c", BAD, NULL },
};

START_LOOP_TEST(names, ROWS(places))
{
	struct world *world = world_create(1);
	struct core *core;
	bool is_self = false;
	const char *why = NULL;
	struct peer *peer;
	int error = 0;

	world_add_host(world, "a", NULL);
	core = world_core(world, 0);
	peer = peer_get(core, places[_i].text, &is_self, &error, &why, world_now(world));
	ck_assert_int_eq(is_self, places[_i].port == SELF);
	ck_assert_int_eq(peer != NULL, places[_i].port > 0);
	if (places[_i].port == BAD)
		ck_assert_int_eq(error, EINVAL);
	if (peer) {
		ck_assert_str_eq(peer->host, places[_i].host);
		ck_assert_int_eq(peer->port, places[_i].port);
		/* The key leads there again. */
		ck_assert_ptr_eq(
			peer_get(core, peer->key, &is_self, &error, &why, world_now(world)), peer);
		ck_assert_int_eq(peer->state, PEER_DIALLING);
	}
	world_destroy(world);
}
END_TEST

/* A private daemon without settings reports that before it dials. */
START_LOOP_TEST(private_alone, 2)
{
	const struct core_facts facts = { .is_private = true, .has_system = _i == 1 };
	struct config *config = world_config("a");
	struct world *world = world_create(1);
	struct core *core;
	bool is_self = false;
	const char *why = NULL;
	int error = 0;

	config->insecure = false;
	world_add_host(world, "a", config);
	core = world_core(world, 0);
	core_set_facts(core, &facts);
	ck_assert_ptr_null(peer_get(core, "b", &is_self, &error, &why, world_now(world)));
	ck_assert_int_eq(error, EHOSTUNREACH);
	ck_assert_ptr_nonnull(
		strstr(why, _i ? "systemctl start ferruled" : "set up the system's ferruled"));
	ck_assert_ptr_null(peer_get(core, "a", &is_self, &error, &why, world_now(world)));
	ck_assert(is_self);
	config->insecure = true;
	ck_assert_ptr_nonnull(peer_get(core, "b", &is_self, &error, &why, world_now(world)));
	world_destroy(world);
	config_free(config);
}
END_TEST

/* A name that is too long is none; one that just fits is one. */
START_TEST(long_names)
{
	struct world *world = world_create(1);
	char name[CORE_HOST + 8];
	bool is_self;
	const char *why;
	int error;

	world_add_host(world, "a", NULL);
	memset(name, 'x', sizeof(name));
	name[CORE_HOST] = '\0';
	ck_assert_ptr_null(peer_get(world_core(world, 0), name, &is_self, &error, &why, 0));
	name[CORE_HOST - 1] = '\0';
	ck_assert_ptr_nonnull(
		peer_get(world_core(world, 0), name, &is_self, &error, &why, world_now(world)));
	world_destroy(world);
}
END_TEST

/* Several names of one daemon are one peer; a daemon's own name is none. */
START_TEST(other_names)
{
	struct ends ends = ends_new(TWO_HOSTS);

	offer(ends.active, "mine", 1, false);
	request(ends.active, 1, "b", "echo");
	request(ends.active, 2, "10.0.0.2", "echo");
	request(ends.active, 3, "10.0.0.1", "mine");
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 2);
	expect_about(ends.active, CTL__ENVELOPE__BODY_CONN_REQUEST, 3);
	ck_assert_uint_eq(peers_of(ends.world, 1), 1);
	ck_assert_uint_eq(peers_of(ends.world, 0), 3);
	for (const struct peer *peer = first_peer(ends.world, 0); peer; peer = peer->hh.next)
		ck_assert_int_eq(peer->session != 0, !peer->same_as && !peer->is_self);
	/* The second session is closed, with all its messages discarded. */
	world_run(ends.world, 5 * WORLD_S);
	ck_assert_uint_eq(HASH_COUNT(world_core(ends.world, 1)->sessions), 2);
	request(ends.active, 4, "10.0.0.2", "echo");
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 4);
	process_die(ends.active);
	world_settle(ends.world);
	expect_end(ends.passive, 1, ECONNRESET, "has ended");
	expect_end(ends.passive, 2, ECONNRESET, "has ended");
	expect_end(ends.passive, 4, ECONNRESET, "has ended");
	ends_free(&ends);
}
END_TEST

/* ---- not reached */

START_TEST(nobody_listens)
{
	struct ends ends = ends_new(TWO_HOSTS);

	world_refuse(ends.world, 1, true);
	request(ends.active, 1, "b", "echo");
	request(ends.active, 2, "b", "echo");
	world_settle(ends.world);
	expect_end(ends.active, 1, ECONNREFUSED, "no ferruled listens at b port 7476: start it");
	expect_end(ends.active, 2, ECONNREFUSED, "check listen_address");
	world_run(ends.world, WORLD_S);
	ck_assert_uint_eq(peers_of(ends.world, 0), 0);
	ends_free(&ends);
}
END_TEST

/* A daemon that was there a moment ago is being restarted: requests wait for it, but not long. */
START_LOOP_TEST(started_again, 2)
{
	struct ends ends = ends_new(TWO_HOSTS);

	establish(ends.active, ends.passive, 1, "b", "echo");
	world_kill_daemon(ends.world, 1);
	world_run(ends.world, 10 * WORLD_MS);
	request(ends.active, 2, "b", "echo");
	world_run(ends.world, WORLD_S);
	expect_nothing(ends.active);
	if (_i) {
		world_run(ends.world, 3 * WORLD_S);
		expect_end(ends.active, 2, ECONNREFUSED, "no ferruled listens at b");
	}
	world_start_daemon(ends.world, 1, true);
	process_come_back(ends.passive);
	process_open_port(ends.passive, PORT);
	resume(ends.passive, 1, true, qpn_of(1) + 100000, "a", true);
	offer(ends.passive, "echo", 1, false);
	world_run(ends.world, 3 * WORLD_S);
	if (!_i)
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 2);
	process_die(ends.active);
	world_run(ends.world, WORLD_S);
	expect_end(ends.passive, 1, ECONNRESET, "has ended");
	if (!_i)
		expect_end(ends.passive, 2, ECONNRESET, "has ended");
	ends_free(&ends);
}
END_TEST

START_TEST(no_such_host)
{
	struct ends ends = ends_new(TWO_HOSTS);

	request(ends.active, 1, "nosuchhost", "echo");
	world_run(ends.world, 3 * WORLD_S);
	expect_end(
		ends.active, 1, EHOSTUNREACH, "nosuchhost cannot be reached: closed by the test");
	ck_assert_uint_eq(peers_of(ends.world, 0), 0);
	ends_free(&ends);
}
END_TEST

START_TEST(too_many_peers)
{
	struct config *config = config_new();
	struct world *world = world_create(1);
	struct process *process, *other;

	free(config->host);
	config->host = strdup("a");
	config->max_peers = 2;
	world_add_host(world, "a", config);
	world_add_host(world, "b", NULL);
	process = conns_process(world, 0, UID, 11);
	other = conns_process(world, 1, UID, 22);
	offer(other, "echo", 1, false);
	request(process, 1, "x", "echo");
	request(process, 2, "y", "echo");
	request(process, 3, "b", "echo");
	world_settle(world);
	expect_end(process, 3, EDQUOT, "max_peers");
	world_run(world, 3 * WORLD_S);
	expect_end(process, 1, EHOSTUNREACH, "x");
	expect_end(process, 2, EHOSTUNREACH, "y");
	establish(process, other, 4, "b", "echo");
	world_destroy(world);
	config_free(config);
}
END_TEST

/* One user alone cannot block the others' hosts; nor can one who no longer waits for his. */
START_LOOP_TEST(nobody_has_all_peers, 2)
{
	struct config *config = config_new();
	struct world *world = world_create(1);
	struct process *greedy, *process, *other;
	char host[8];

	free(config->host);
	config->host = strdup("a");
	config->max_peers = 8;
	world_add_host(world, "a", config);
	world_add_host(world, "b", NULL);
	greedy = conns_process(world, 0, OTHER_UID, 11);
	process = conns_process(world, 0, UID, 12);
	other = conns_process(world, 1, UID, 22);
	offer(other, "echo", 1, false);
	for (uint32_t i = 1; i <= 8; i++) {
		snprintf(host, sizeof(host), "x%u", i);
		request(greedy, i, host, "echo");
		world_run(world, WORLD_MS / 10);
		if (_i && i < 8)
			end(greedy, i, true, ECANCELED, "no");
	}
	world_run(world, WORLD_MS);
	expect_end(greedy, 8, EDQUOT, "this user");
	expect_nothing(greedy);
	establish(process, other, 9, "b", "echo");
	world_destroy(world);
	config_free(config);
}
END_TEST

/* ---- lost and found */

/* The session breaks: the connection does not, and ends of that time show afterwards. */
START_TEST(broken_session)
{
	struct ends ends = ends_new(TWO_HOSTS);

	establish(ends.active, ends.passive, 1, "b", "echo");
	establish(ends.active, ends.passive, 2, "b", "echo");
	establish(ends.active, ends.passive, 3, "b", "echo");
	world_refuse(ends.world, 0, true);
	world_refuse(ends.world, 1, true);
	world_reset_sessions(ends.world, 0, 1);
	/* Far beyond the keepalive time: a host that refuses is alive. */
	world_run(ends.world, 60 * WORLD_S);
	expect_nothing(ends.active);
	expect_nothing(ends.passive);
	end(ends.active, 1, true, ECONNRESET, "");
	end(ends.passive, 2, false, ECONNRESET, "");
	world_run(ends.world, WORLD_S);
	expect_nothing(ends.active);
	expect_nothing(ends.passive);
	world_refuse(ends.world, 0, false);
	world_refuse(ends.world, 1, false);
	world_run(ends.world, 3 * WORLD_S);
	expect_end(ends.passive, 1, ECONNRESET, "ended while its daemon was out of reach");
	expect_end(ends.active, 2, ECONNRESET, "ended while its daemon was out of reach");
	expect_nothing(ends.active);
	end(ends.active, 3, true, ECONNRESET, "bye");
	world_settle(ends.world);
	expect_end(ends.passive, 3, ECONNRESET, "bye");
	ends_free(&ends);
}
END_TEST

/* The session breaks at every point of the set-up: messages under way are sent again. */
START_TEST(broken_setup)
{
	for (uint64_t after_ns = 0; after_ns < 9 * WORLD_REMOTE_NS; after_ns += 45000) {
		struct ends ends = ends_new(TWO_HOSTS);
		uint64_t began_ns;
		bool is_broken = false, is_asked = false, is_accepted = false;

		/* No daemon expects processes of its predecessor any more. */
		world_run(ends.world, 10 * WORLD_S);
		began_ns = world_now(ends.world);
		request(ends.active, 1, "b", "echo");
		for (int i = 0; i < 30000; i++) {
			Ctl__Envelope *heard;

			world_run(ends.world, WORLD_LOCAL_NS * 2);
			heard = process_take_any(ends.passive);
			if (heard && heard->body_case == CTL__ENVELOPE__BODY_CONN_REQUEST) {
				ck_assert(!is_asked);
				is_asked = true;
				reply(ends.passive, 1, 5);
			} else if (heard) {
				ck_assert_int_eq(heard->body_case, CTL__ENVELOPE__BODY_CONN_READY);
				ck_assert(!is_accepted);
				is_accepted = true;
			}
			if (heard)
				ctl__envelope__free_unpacked(heard, NULL);
			heard = process_take_any(ends.active);
			if (heard) {
				ck_assert_int_eq(heard->body_case, CTL__ENVELOPE__BODY_CONN_REPLY);
				ready(ends.active, 1);
				ctl__envelope__free_unpacked(heard, NULL);
			}
			if (!is_broken && world_now(ends.world) - began_ns >= after_ns) {
				world_reset_sessions(ends.world, 0, 1);
				is_broken = true;
			}
			if (is_broken && is_accepted)
				break;
		}
		ck_assert_msg(is_accepted, "broken after %u us", (unsigned)(after_ns / 1000));
		process_die(ends.passive);
		world_run(ends.world, 3 * WORLD_S);
		expect_end(ends.active, 1, ECONNRESET, "");
		ends_free(&ends);
	}
}
END_TEST

static uint32_t keepalive_ms(struct world *world)
{
	return world_core(world, 0)->config->keepalive_ms;
}

START_TEST(host_gone)
{
	struct ends ends = ends_new(TWO_HOSTS);
	uint64_t keepalive_ns = keepalive_ms(ends.world) * WORLD_MS;

	establish(ends.active, ends.passive, 1, "b", "echo");
	world_run(ends.world, 20 * WORLD_S);
	expect_nothing(ends.active);
	world_partition(ends.world, 0, 1, true);
	world_run(ends.world, keepalive_ns + keepalive_ns / 4);
	expect_nothing(ends.active);
	world_run(ends.world, keepalive_ns / 4 + WORLD_MS);
	expect_end(ends.active, 1, EHOSTDOWN, "host b is gone: no answer for");
	expect_end(ends.passive, 1, EHOSTDOWN, "host a is gone: no answer for");
	world_run(ends.world, 60 * WORLD_S);
	ck_assert_uint_eq(peers_of(ends.world, 0), 0);
	/* It comes back. */
	world_partition(ends.world, 0, 1, false);
	establish(ends.active, ends.passive, 2, "b", "echo");
	process_die(ends.passive);
	world_settle(ends.world);
	expect_end(ends.active, 2, ECONNRESET, "has ended");
	ends_free(&ends);
}
END_TEST

/* The daemon goes down with its host: redialling gets no answer. */
START_TEST(host_gone_after_its_daemon)
{
	struct ends ends = ends_new(TWO_HOSTS);
	uint64_t keepalive_ns = keepalive_ms(ends.world) * WORLD_MS;

	establish(ends.active, ends.passive, 1, "b", "echo");
	world_reset_sessions(ends.world, 0, 1);
	world_run(ends.world, 0);
	world_partition(ends.world, 0, 1, true);
	world_run(ends.world, keepalive_ns + keepalive_ns / 4);
	expect_nothing(ends.active);
	world_run(ends.world, keepalive_ns / 4 + 10 * WORLD_MS);
	expect_end(ends.active, 1, EHOSTDOWN, "host b is gone");
	expect_end(ends.passive, 1, EHOSTDOWN, "host a is gone");
	ends_free(&ends);
}
END_TEST

/* Packets are lost for up to the keepalive time, from every moment between two pings on. TCP's
 * back-off lasts longer. Nothing ends, and the daemons reconnect soon after that. */
START_LOOP_TEST(outages, 30)
{
	struct ends ends = ends_new(TWO_HOSTS);
	uint64_t keepalive_ns = keepalive_ms(ends.world) * WORLD_MS;
	uint64_t outage_ns = keepalive_ns * (uint64_t)(_i / 10 + 1) / 3;

	establish(ends.active, ends.passive, 1, "b", "echo");
	/* Daemons that have just met may have dialled each other at once. */
	world_run(ends.world, 7 * WORLD_S + (uint64_t)(_i % 10) * keepalive_ns / 80);
	world_stall(ends.world, 0, 1, true);
	world_run(ends.world, outage_ns);
	world_retransmit(ends.world, 0, 1);
	world_run(ends.world, keepalive_ns / 3);
	expect_nothing(ends.active);
	expect_nothing(ends.passive);
	establish(ends.active, ends.passive, 2, "b", "echo");
	world_run(ends.world, 10 * WORLD_S);
	for (uint32_t i = 1; i <= 2; i++)
		end(ends.active, i, true, ECONNRESET, "bye");
	world_settle(ends.world);
	for (uint32_t i = 1; i <= 2; i++)
		expect_end(ends.passive, i, ECONNRESET, "bye");
	ends_free(&ends);
}
END_TEST

START_TEST(idle_peers_are_closed)
{
	struct ends ends = ends_new(TWO_HOSTS);

	establish(ends.active, ends.passive, 1, "b", "echo");
	world_run(ends.world, 100 * WORLD_S);
	ck_assert_uint_eq(peers_of(ends.world, 0), 1);
	end(ends.active, 1, true, ECONNRESET, "");
	world_run(ends.world, 25 * WORLD_S);
	expect_end(ends.passive, 1, ECONNRESET, "");
	ck_assert_uint_eq(peers_of(ends.world, 0), 1);
	world_run(ends.world, 35 * WORLD_S);
	ck_assert_uint_eq(peers_of(ends.world, 0), 0);
	ck_assert_uint_eq(peers_of(ends.world, 1), 0);
	ends_free(&ends);
}
END_TEST

/* ---- certificates */

static const struct {
	const char *host, *certificate;
	bool is_right;
} certificates[] = {
	{ "b", "b", true },
	{ "b", "c", false },
	{ "10.0.0.2", "b", true }, /* it says that it is b, and is */
	{ "10.0.0.2", "c", false },
};

/* The other daemon refuses this one, with a reason. */
START_LOOP_TEST(not_welcome, 2)
{
	struct config *config = config_new();
	struct world *world = world_create(1);
	struct process *process;

	free(config->host);
	config->host = strdup("b");
	config->max_peers = 0;
	world_add_host(world, "a", NULL);
	world_add_host(world, "b", config);
	process = conns_process(world, 0, UID, 11);
	if (_i) {
		world_certificate(world, 0, "z");
		world_certificate(world, 1, "b");
	}
	request(process, 1, "b", "echo");
	world_settle(world);
	if (_i)
		expect_end(process, 1, EACCES, "the certificate is not for the host");
	else
		expect_end(process, 1, EDQUOT, "reached its limit of peers (max_peers)");
	world_destroy(world);
	config_free(config);
}
END_TEST

START_LOOP_TEST(certificates_name_the_host, ROWS(certificates))
{
	struct ends ends = ends_new(TWO_HOSTS);

	world_certificate(ends.world, 0, "a");
	world_certificate(ends.world, 1, certificates[_i].certificate);
	request(ends.active, 1, certificates[_i].host, "echo");
	world_settle(ends.world);
	if (certificates[_i].is_right) {
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
		process_die(ends.active);
		world_settle(ends.world);
		expect_end(ends.passive, 1, ECONNRESET, "has ended");
	} else {
		expect_end(ends.active, 1, EACCES, "certificate is for another host");
		ck_assert_ptr_nonnull(
			strstr(world_last_warning(ends.world, 0), ": the certificate is not for"));
	}
	ends_free(&ends);
}
END_TEST

/* A right certificate is not enough: it must be for the host that was dialled. */
START_TEST(certificates_of_another_host)
{
	struct config *config = config_new();
	struct world *world = world_create(1);
	struct process *process;

	free(config->host);
	config->host = strdup("beta");
	world_add_host(world, "a", NULL);
	world_add_host(world, "b", config);
	world_certificate(world, 0, "a");
	world_certificate(world, 1, "beta");
	process = conns_process(world, 0, UID, 11);
	request(process, 1, "b", "echo");
	world_settle(world);
	expect_end(process, 1, EACCES, "certificate is for another host");
	request(process, 2, "10.0.0.2", "echo");
	world_settle(world);
	expect_end(process, 2, ECONNREFUSED, "nobody offers service echo on beta");
	world_destroy(world);
	config_free(config);
}
END_TEST

TEST_FILE(core_peers)
