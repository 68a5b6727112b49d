/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rights: to offer, to request and to act for others; limits; draining; and messages that are wrong
 * for the sender, the state or the connection.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/daemon/core/fixtures/conns_fixture.h"
#include "tests/fixtures/program.h"

static void drain(struct world *world, int host)
{
	struct process *root = world_operator(world, host, 0);
	Ctl__Drain message = CTL__DRAIN__INIT;
	Ctl__Envelope *answer;

	message.reason = (char *)"new kernel";
	answer = process_ask(root, CTL__ENVELOPE__BODY_DRAIN, &message);
	ck_assert_ptr_nonnull(answer);
	ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_REPORT);
	ctl__envelope__free_unpacked(answer, NULL);
	process_die(root);
	world_settle(world);
}

/* ---- services */

START_TEST(services_have_one_owner)
{
	struct ends ends = ends_new(ONE_HOST);
	struct process *stranger = conns_process(ends.world, 0, OTHER_UID, 33);
	Ctl__Listen listen = CTL__LISTEN__INIT;
	Ctl__Envelope envelope, *answer;

	ck_assert_int_eq(try_offer(ends.active, "echo", 1), EADDRINUSE);
	ck_assert_int_eq(try_offer(ends.active, "with blanks", 1), EINVAL);
	ck_assert_int_eq(try_offer(ends.active, "a/b", 1), EINVAL);
	ck_assert_int_eq(try_offer(ends.passive, "other", 1), EINVAL); /* number 1 is taken */
	ck_assert_int_eq(try_offer(ends.passive, "other", 2), 0);
	/* Other users do not learn the owner of a service. */
	listen.service = (char *)"echo";
	listen.port = PORT;
	listen.listener = 1;
	envelope = envelope_of(CTL__ENVELOPE__BODY_LISTEN, &listen);
	answer = process_call(stranger, &envelope);
	ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_FAILURE);
	ck_assert_str_eq(answer->failure->text, "another user offers service echo already");
	ctl__envelope__free_unpacked(answer, NULL);
	/* No port of this number. */
	listen.service = (char *)"third";
	listen.port = 9;
	answer = process_call(stranger, &envelope);
	ck_assert_int_eq((int)answer->failure->error, EINVAL);
	ctl__envelope__free_unpacked(answer, NULL);
	unlisten(ends.passive, 1);
	world_settle(ends.world);
	ck_assert_int_eq(try_offer(ends.active, "echo", 1), 0);
	process_die(ends.active);
	world_settle(ends.world);
	ck_assert_int_eq(try_offer(ends.passive, "echo", 1), 0);
	ends_free(&ends);
}
END_TEST

START_TEST(the_daemon_chooses_a_name)
{
	struct ends ends = ends_new(ONE_HOST);
	Ctl__Listen listen = CTL__LISTEN__INIT;
	Ctl__Envelope envelope, *first, *second;

	listen.service = (char *)"";
	listen.port = PORT;
	listen.listener = 2;
	envelope = envelope_of(CTL__ENVELOPE__BODY_LISTEN, &listen);
	first = process_call(ends.passive, &envelope);
	listen.listener = 3;
	second = process_call(ends.passive, &envelope);
	ck_assert_int_eq(first->body_case, CTL__ENVELOPE__BODY_LISTENING);
	ck_assert_int_eq(second->body_case, CTL__ENVELOPE__BODY_LISTENING);
	ck_assert_str_ne(first->listening->service, second->listening->service);
	establish(ends.active, ends.passive, 1, "", first->listening->service);
	end(ends.active, 1, true, ECONNRESET, "");
	world_settle(ends.world);
	expect_end(ends.passive, 1, ECONNRESET, "closed");
	ctl__envelope__free_unpacked(first, NULL);
	ctl__envelope__free_unpacked(second, NULL);
	ends_free(&ends);
}
END_TEST

/* A listener's process may still answer requests that arrived before it closed. */
START_LOOP_TEST(closed_listeners, WHERES)
{
	struct ends ends = ends_new((enum where)_i);

	request(ends.active, 1, ends.host, "echo");
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	unlisten(ends.passive, 1);
	unlisten(ends.passive, 1);
	request(ends.active, 2, ends.host, "echo");
	reply(ends.passive, 1, 5);
	world_settle(ends.world);
	expect_about(ends.active, CTL__ENVELOPE__BODY_CONN_REPLY, 1);
	expect_end(ends.active, 2, ECONNREFUSED, "nobody offers service echo on");
	end(ends.active, 1, true, ECONNRESET, "");
	world_settle(ends.world);
	expect_end(ends.passive, 1, ECONNRESET, "closed");
	ends_free(&ends);
}
END_TEST

/* ---- who may ask */

static const struct {
	uint32_t uid;
	bool to_any, of_any; /* who listens, and who asks, has said any_user */
	const char *refusal;
} rights[] = {
	{ UID, false, false, NULL },
	{ OTHER_UID, false, true, "only for processes of the user" },
	{ OTHER_UID, true, true, NULL },
	/* Otherwise any user could take a name at which others expect another user. */
	{ OTHER_UID, true, false, "belongs to another user" },
	{ 0, false, true, NULL },
	{ 0, false, false, "belongs to another user" },
};

START_LOOP_TEST(users, 2 * ROWS(rights))
{
	struct ends ends = ends_new(_i % 2 ? TWO_HOSTS : ONE_HOST);
	struct process *process = conns_process(ends.world, 0, rights[_i / 2].uid, 33);

	offer(ends.passive, "other", 2, rights[_i / 2].to_any);
	request_of(process, 1, ends.host, "other", rights[_i / 2].of_any);
	world_settle(ends.world);
	if (rights[_i / 2].refusal) {
		expect_end(process, 1, EACCES, rights[_i / 2].refusal);
	} else {
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
		process_die(process);
		world_settle(ends.world);
		expect_end(ends.passive, 1, ECONNRESET, "has ended");
	}
	expect_nothing(process);
	ends_free(&ends);
}
END_TEST

START_LOOP_TEST(unknown_services, WHERES)
{
	struct ends ends = ends_new((enum where)_i);

	request(ends.active, 1, ends.host, "nowhere");
	request(ends.active, 2, ends.host, "");
	request(ends.active, 3, "bad host", "echo");
	request(ends.active, 4, "b:0", "echo");
	world_settle(ends.world);
	if (_i == TWO_HOSTS) /* what needs no peer comes first */
		expect_end(ends.active, 2, EINVAL, "name of a service");
	else
		expect_end(ends.active, 1, ECONNREFUSED, "nobody offers service nowhere on a");
	if (_i != TWO_HOSTS)
		expect_end(ends.active, 2, EINVAL, "name of a service");
	expect_end(ends.active, 3, EINVAL, "a host must be");
	expect_end(ends.active, 4, EINVAL, "a host must be");
	if (_i == TWO_HOSTS)
		expect_end(ends.active, 1, ECONNREFUSED, "nobody offers service nowhere on b");
	ends_free(&ends);
}
END_TEST

/* Sends a request with an endpoint of another process, or with a port that does not exist. */
static void request_as(struct process *process, const struct process *owner, uint32_t port)
{
	struct uuid uuid = uuid_of(1);
	Ctl__ConnRequest message = CTL__CONN_REQUEST__INIT;
	Ctl__ConnParams params = CTL__CONN_PARAMS__INIT;
	uint8_t endpoint[ENDPOINT_BYTES];

	process_endpoint(owner, PORT, 5, endpoint);
	message.uuid = (ProtobufCBinaryData){ UUID_SIZE, uuid.bytes };
	message.service = (char *)"echo";
	message.port = port;
	message.endpoint = (ProtobufCBinaryData){ ENDPOINT_BYTES, endpoint };
	message.params = &params;
	process_say(process, CTL__ENVELOPE__BODY_CONN_REQUEST, &message);
	world_settle(process->world);
}

START_TEST(endpoints_of_others)
{
	struct ends ends = ends_new(ONE_HOST);

	request_as(ends.active, ends.passive, PORT);
	expect_end(ends.active, 1, EACCES, "not one of the process's port 1");
	request_as(ends.active, ends.active, 9);
	expect_end(ends.active, 1, EINVAL, "no port 9");
	ends_free(&ends);
}
END_TEST

/* An acceptance with another process's queue pair ends the connection. */
START_RANGE_TEST(replies_with_endpoints_of_others, ONE_HOST, WHERES)
{
	struct ends ends = ends_new((enum where)_i);
	struct process *third = conns_process(ends.world, ends.passive_host, UID, 33);
	struct uuid uuid = uuid_of(1);
	Ctl__ConnReply message = CTL__CONN_REPLY__INIT;
	Ctl__ConnParams params = CTL__CONN_PARAMS__INIT;
	uint8_t endpoint[ENDPOINT_BYTES];

	request(ends.active, 1, ends.host, "echo");
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	process_endpoint(third, PORT, 5, endpoint);
	message.uuid = (ProtobufCBinaryData){ UUID_SIZE, uuid.bytes };
	message.port = PORT;
	message.endpoint = (ProtobufCBinaryData){ ENDPOINT_BYTES, endpoint };
	message.params = &params;
	process_say(ends.passive, CTL__ENVELOPE__BODY_CONN_REPLY, &message);
	world_settle(ends.world);
	expect_end(ends.active, 1, EACCES, "not one of its port 1");
	expect_end(ends.passive, 1, EACCES, "not one of its port 1");
	ends_free(&ends);
}
END_TEST

/* ---- limits */

START_RANGE_TEST(backlog, ONE_HOST, WHERES)
{
	struct ends ends = ends_new((enum where)_i);
	Ctl__Listen listen = CTL__LISTEN__INIT;

	listen.service = (char *)"small";
	listen.port = PORT;
	listen.listener = 2;
	listen.backlog = 2;
	ctl__envelope__free_unpacked(
		process_ask(ends.passive, CTL__ENVELOPE__BODY_LISTEN, &listen), NULL);
	for (uint32_t i = 1; i <= 3; i++)
		request(ends.active, i, ends.host, "small");
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 2);
	expect_end(ends.active, 3, ECONNREFUSED, "2 requests wait");
	/* An answer makes room. */
	reply(ends.passive, 1, 5);
	end(ends.passive, 2, false, ECONNREFUSED, "no");
	world_settle(ends.world);
	request(ends.active, 4, ends.host, "small");
	request(ends.active, 5, ends.host, "small");
	world_settle(ends.world);
	expect_about(ends.active, CTL__ENVELOPE__BODY_CONN_REPLY, 1);
	expect_end(ends.active, 2, ECONNREFUSED, "no");
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 4);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 5);
	process_die(ends.passive);
	world_settle(ends.world);
	expect_end(ends.active, 1, ECONNRESET, "has ended");
	expect_end(ends.active, 4, ECONNRESET, "has ended");
	expect_end(ends.active, 5, ECONNRESET, "has ended");
	ends_free(&ends);
}
END_TEST

static struct config *small_config(void)
{
	struct config *config = config_new();

	ck_assert_ptr_nonnull(config);
	free(config->host);
	config->host = strdup("small");
	config->max_listeners_per_user = 2;
	config->max_connections_per_user = 4;
	return config;
}

START_TEST(quotas)
{
	struct config *config = small_config();
	struct world *world = world_create(1);
	int host = world_add_host(world, "small", config);
	struct process *a = conns_process(world, host, UID, 11);
	struct process *b = conns_process(world, host, UID, 22);
	struct process *other = conns_process(world, host, OTHER_UID, 33);

	offer(a, "one", 1, false);
	offer(b, "two", 1, true);
	ck_assert_int_eq(try_offer(a, "three", 2), EDQUOT);
	offer(other, "three", 1, true);
	/* Both ends count, at their users. */
	establish(a, b, 1, "", "two");
	establish(a, b, 2, "", "two");
	request(a, 3, "", "two");
	world_settle(world);
	expect_end(a, 3, EDQUOT, "max_connections_per_user");
	request_of(other, 4, "", "two", true);
	world_settle(world);
	expect_end(other, 4, EDQUOT, "max_connections_per_user");
	establish(other, other, 5, "localhost", "three");
	end(a, 1, true, ECONNRESET, "");
	world_settle(world);
	expect_end(b, 1, ECONNRESET, "closed");
	establish(a, b, 6, "small", "two");
	world_destroy(world);
	config_free(config);
}
END_TEST

START_RANGE_TEST(drained_hosts, ONE_HOST, WHERES)
{
	struct ends ends = ends_new((enum where)_i);

	establish(ends.active, ends.passive, 1, ends.host, "echo");
	drain(ends.world, ends.passive_host);
	ck_assert_int_eq(try_offer(ends.passive, "late", 2), EBUSY);
	request(ends.active, 2, ends.host, "echo");
	world_settle(ends.world);
	expect_end(ends.active, 2, EBUSY, "draining (new kernel)");
	/* Present connections continue. */
	expect_nothing(ends.passive);
	end(ends.passive, 1, false, ECONNRESET, "");
	world_settle(ends.world);
	expect_end(ends.active, 1, ECONNRESET, "closed");
	ends_free(&ends);
}
END_TEST

/* ---- whose connection it is */

START_RANGE_TEST(others_cannot_speak_for_it, ONE_HOST, WHERES)
{
	struct ends ends = ends_new((enum where)_i);
	struct process *thief = conns_process(ends.world, 0, UID, 33);
	struct process *thief_there = conns_process(ends.world, ends.passive_host, UID, 44);
	unsigned warnings = world_warnings(ends.world, 0);

	request(ends.active, 1, ends.host, "echo");
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	reply(thief_there, 1, 5);
	ready(thief, 1);
	end(thief, 1, true, ECONNRESET, "mine");
	end(thief_there, 1, false, ECONNRESET, "mine");
	world_settle(ends.world);
	expect_nothing(ends.active);
	expect_nothing(ends.passive);
	reply(ends.passive, 1, 5);
	world_settle(ends.world);
	expect_about(ends.active, CTL__ENVELOPE__BODY_CONN_REPLY, 1);
	ready(thief, 1);
	world_settle(ends.world);
	expect_nothing(ends.passive);
	ck_assert_uint_gt(world_warnings(ends.world, 0), warnings);
	/* Its name for a connection of one's own. */
	request(thief, 1, ends.host, "echo");
	world_settle(ends.world);
	expect_end(thief, 1, EEXIST, "with this identifier");
	end(ends.active, 1, true, ECONNRESET, "");
	world_settle(ends.world);
	expect_end(ends.passive, 1, ECONNRESET, "closed");
	expect_nothing(thief);
	expect_nothing(thief_there);
	ends_free(&ends);
}
END_TEST

START_RANGE_TEST(two_of_one_name, ONE_HOST, WHERES)
{
	struct ends ends = ends_new((enum where)_i);
	struct process *third = conns_process(ends.world, 0, UID, 33);

	request(third, 1, ends.host, "echo");
	request(third, 1, ends.host, "echo");
	world_settle(ends.world);
	ck_assert(third->ended);
	/* Its first one may have arrived, and has ended with it. */
	while (process_mail(ends.passive))
		ctl__envelope__free_unpacked(process_take_any(ends.passive), NULL);
	ends_free(&ends);
}
END_TEST

enum said { REQUEST, REPLY, READY, END_ACTIVE, END_PASSIVE, SAIDS };

static void say(struct ends *ends, enum said said, bool wrong_one)
{
	struct process *active = wrong_one ? ends->passive : ends->active;
	struct process *passive = wrong_one ? ends->active : ends->passive;

	switch (said) {
	case REQUEST: break;
	case REPLY: reply(passive, 1, 5); break;
	case READY: ready(active, 1); break;
	case END_ACTIVE: end(active, 1, true, ECONNRESET, "x"); break;
	case END_PASSIVE: end(passive, 1, false, ECONNRESET, "x"); break;
	case SAIDS: break;
	}
	world_settle(ends->world);
}

/* In every state (none, requested, replied, established) the wrong end sends every message, or the
 * right end sends it at the wrong time: nobody receives it. */
START_LOOP_TEST(wrong_state, 2 * 4)
{
	struct ends ends = ends_new(_i % 2 ? ONE_HOST : TWO_HOSTS);
	int state = _i / 2;

	if (state >= 1) {
		request(ends.active, 1, ends.host, "echo");
		world_settle(ends.world);
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	}
	if (state >= 2)
		say(&ends, REPLY, false);
	if (state >= 2)
		expect_about(ends.active, CTL__ENVELOPE__BODY_CONN_REPLY, 1);
	if (state >= 3)
		say(&ends, READY, false);
	if (state >= 3)
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_READY, 1);
	for (int said = REPLY; said < SAIDS; said++)
		say(&ends, (enum said)said, true);
	if (state != 1)
		say(&ends, REPLY, false);
	if (state != 2)
		say(&ends, READY, false);
	if (state == 0)
		say(&ends, END_ACTIVE, false);
	if (state == 0)
		say(&ends, END_PASSIVE, false);
	expect_nothing(ends.active);
	expect_nothing(ends.passive);
	if (state) {
		say(&ends, END_ACTIVE, false);
		expect_end(ends.passive, 1, ECONNRESET, "x");
	}
	ends_free(&ends);
}
END_TEST

TEST_FILE(core_conns_rights)
