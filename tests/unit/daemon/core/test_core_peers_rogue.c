/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon that does not keep to the protocol: acts for connections of others, claims another
 * identity, omits fields, or falls silent.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/daemon/core/fixtures/conns_fixture.h"
#include "tests/fixtures/program.h"

enum { INSTANCE = 4711 };

static void hello(struct process *rogue, uint64_t instance, uint32_t keepalive_ms)
{
	Ctl__Hello message = CTL__HELLO__INIT;

	message.role = CTL__ROLE__ROLE_DAEMON;
	message.name = (char *)"rogue";
	message.instance = instance;
	message.port = 70000;
	message.keepalive_ms = keepalive_ms;
	process_say(rogue, CTL__ENVELOPE__BODY_HELLO, &message);
	world_settle(rogue->world);
}

/* One that has been welcomed. */
static struct process *rogue_new(struct world *world, int host)
{
	struct process *rogue = world_rogue(world, host);
	Ctl__Envelope *heard;

	ck_assert_ptr_nonnull(rogue);
	hello(rogue, INSTANCE, 0);
	heard = expect(rogue, CTL__ENVELOPE__BODY_HELLO);
	ck_assert_int_eq(heard->hello->role, CTL__ROLE__ROLE_DAEMON);
	ck_assert_str_eq(heard->hello->name, "a");
	ctl__envelope__free_unpacked(heard, NULL);
	ck_assert(!rogue->ended);
	return rogue;
}

/* Drops the messages that a daemon always sends at the beginning. */
static void ignore_greetings(struct process *rogue)
{
	const Ctl__Envelope__BodyCase bodies[] = { CTL__ENVELOPE__BODY_PING,
		CTL__ENVELOPE__BODY_SYNC };

	for (unsigned i = 0; i < 2; i++) {
		Ctl__Envelope *heard;

		while ((heard = process_take(rogue, bodies[i])) != NULL)
			ctl__envelope__free_unpacked(heard, NULL);
	}
}

static void sync(struct process *rogue, uint32_t number, bool passive)
{
	struct uuid uuid = uuid_of(number);
	Ctl__Sync message = CTL__SYNC__INIT;
	Ctl__Sync__Conn row = CTL__SYNC__CONN__INIT, *rows = &row;

	row.uuid = (ProtobufCBinaryData){ UUID_SIZE, uuid.bytes };
	row.passive = passive;
	row.state = CONN_ESTABLISHED;
	message.conns = &rows;
	message.n_conns = number != 0;
	process_say(rogue, CTL__ENVELOPE__BODY_SYNC, &message);
}

static void ask(struct process *rogue, uint32_t number, bool with_who, uint32_t uid)
{
	struct uuid uuid = uuid_of(number);
	Ctl__ConnRequest message = CTL__CONN_REQUEST__INIT;
	Ctl__ConnParams params = CTL__CONN_PARAMS__INIT;
	uint8_t endpoint[ENDPOINT_BYTES] = { 0 };
	Ctl__Who who = CTL__WHO__INIT;

	who.host = (char *)"a";
	who.program = (char *)"sshd";
	who.pid = 1;
	who.uid = uid;
	who.address = (char *)"trusted:1";
	who.instance = 1;
	message.uuid = (ProtobufCBinaryData){ UUID_SIZE, uuid.bytes };
	message.service = (char *)"echo";
	message.endpoint = (ProtobufCBinaryData){ ENDPOINT_BYTES, endpoint };
	message.params = &params;
	message.who = with_who ? &who : NULL;
	process_say(rogue, CTL__ENVELOPE__BODY_CONN_REQUEST, &message);
	world_settle(rogue->world);
}

/* Time passes, and it lives. */
static void live(struct process *rogue, unsigned seconds)
{
	Ctl__Pong pong = CTL__PONG__INIT;

	for (unsigned i = 0; i < 2 * seconds; i++) {
		process_say(rogue, CTL__ENVELOPE__BODY_PONG, &pong);
		world_run(rogue->world, WORLD_S / 2);
	}
}

/* In every state of a connection between others. */
START_LOOP_TEST(speaks_for_others, 2 * 3)
{
	struct ends ends = ends_new(_i % 2 ? ONE_HOST : TWO_HOSTS);
	struct process *rogue;
	int state = _i / 2;

	world_run(ends.world, 10 * WORLD_S);
	rogue = rogue_new(ends.world, 0);
	request(ends.active, 1, ends.host, "echo");
	world_settle(ends.world);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	if (state >= 1) {
		reply(ends.passive, 1, 5);
		world_settle(ends.world);
		expect_about(ends.active, CTL__ENVELOPE__BODY_CONN_REPLY, 1);
	}
	if (state >= 2) {
		ready(ends.active, 1);
		world_settle(ends.world);
		expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_READY, 1);
	}
	end(rogue, 1, true, ECONNRESET, "x");
	end(rogue, 1, false, ECONNRESET, "x");
	ready(rogue, 1);
	ask(rogue, 1, true, UID);
	sync(rogue, 1, false);
	sync(rogue, 1, true);
	sync(rogue, 0, false);
	world_settle(ends.world);
	expect_nothing(ends.active);
	expect_nothing(ends.passive);
	end(ends.active, 1, true, ECONNRESET, "bye");
	world_settle(ends.world);
	expect_end(ends.passive, 1, ECONNRESET, "bye");
	ends_free(&ends);
}
END_TEST

START_TEST(says_who_asks)
{
	struct ends ends = ends_new(ONE_HOST);
	struct process *rogue = rogue_new(ends.world, 0);
	Ctl__Envelope *heard;

	ask(rogue, 1, false, UID);
	expect_end(rogue, 1, EPROTO, "does not name its process");
	ask(rogue, 2, true, OTHER_UID);
	expect_end(rogue, 2, EACCES, "only for processes of the user");
	ask(rogue, 3, true, UID);
	ask(rogue, 3, true, UID); /* again, after a broken session: once is enough */
	heard = expect(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST);
	ck_assert_str_eq(heard->conn_request->who->host, "rogue");
	ck_assert_str_eq(heard->conn_request->who->address, "");
	ck_assert_uint_eq(heard->conn_request->who->instance, INSTANCE);
	ctl__envelope__free_unpacked(heard, NULL);
	expect_nothing(ends.passive);
	/* It does not reply for a connection that nobody has requested. */
	reply(rogue, 9, 5);
	world_settle(ends.world);
	expect_end(rogue, 9, ECONNRESET, "no longer waits");
	process_die(rogue);
	world_run(ends.world, WORLD_S);
	/* Its port cannot be dialled: after the keepalive time its host is gone. */
	expect_nothing(ends.passive);
	world_run(ends.world, 60 * WORLD_S);
	expect_end(ends.passive, 3, EHOSTDOWN, "host rogue is gone");
	ends_free(&ends);
}
END_TEST

START_TEST(says_that_it_is_us)
{
	struct ends ends = ends_new(ONE_HOST);
	struct process *rogue = world_rogue(ends.world, 0);

	hello(rogue, world_core(ends.world, 0)->instance, 0);
	ck_assert(rogue->ended);
	ck_assert_uint_eq(HASH_COUNT(world_core(ends.world, 0)->peers), 0);
	ends_free(&ends);
}
END_TEST

/* Its keepalive time is the shorter one, within limits. */
START_TEST(falls_silent)
{
	struct ends ends = ends_new(ONE_HOST);
	struct process *rogue = world_rogue(ends.world, 0);
	unsigned pings = 0;
	Ctl__Envelope *heard;

	hello(rogue, INSTANCE, 1);
	world_run(ends.world, 140 * WORLD_MS);
	ck_assert(!rogue->ended);
	world_run(ends.world, 20 * WORLD_MS);
	ck_assert(rogue->ended);
	while ((heard = process_take(rogue, CTL__ENVELOPE__BODY_PING)) != NULL) {
		pings++;
		ctl__envelope__free_unpacked(heard, NULL);
	}
	ck_assert_uint_eq(pings, 1); /* the first one waits for its answer */
	ends_free(&ends);
}
END_TEST

START_TEST(pings)
{
	struct ends ends = ends_new(ONE_HOST);
	struct process *rogue = rogue_new(ends.world, 0);
	Ctl__Ping ping = CTL__PING__INIT;
	Ctl__Pong pong = CTL__PONG__INIT;
	Ctl__Envelope *answer;

	ignore_greetings(rogue);
	process_say(rogue, CTL__ENVELOPE__BODY_PONG, &pong); /* nobody has asked: no measure */
	answer = process_ask(rogue, CTL__ENVELOPE__BODY_PING, &ping);
	ck_assert_ptr_nonnull(answer);
	ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_PONG);
	ctl__envelope__free_unpacked(answer, NULL);
	/* As long as it sends anything at all it lives. */
	live(rogue, 20);
	ck_assert(!rogue->ended);
	ends_free(&ends);
}
END_TEST

/* The same daemon again, and another one in its place. */
START_LOOP_TEST(comes_again, 2)
{
	struct ends ends = ends_new(ONE_HOST);
	struct process *first = rogue_new(ends.world, 0), *second;

	ask(first, 1, true, UID);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 1);
	ask(first, 2, true, UID);
	expect_about(ends.passive, CTL__ENVELOPE__BODY_CONN_REQUEST, 2);
	if (_i) /* the first session is no younger than a dial may take */
		live(first, 6);
	if (_i)
		sync(first, 1, false); /* it lives; the second one has ended */
	if (_i) {
		world_settle(ends.world);
		expect_end(ends.passive, 2, ECONNRESET, "has ended");
	}
	second = rogue_new(ends.world, 0);
	live(second, 3);
	ck_assert(first->ended);
	ck_assert(!second->ended);
	ck_assert_uint_eq(HASH_COUNT(world_core(ends.world, 0)->peers), 1);
	end(second, 1, true, ECONNRESET, "over the new one");
	world_settle(ends.world);
	expect_end(ends.passive, 1, ECONNRESET, "over the new one");
	if (!_i)
		end(second, 2, true, ECONNRESET, "over the new one");
	world_settle(ends.world);
	if (!_i)
		expect_end(ends.passive, 2, ECONNRESET, "over the new one");
	ends_free(&ends);
}
END_TEST

TEST_FILE(core_peers_rogue)
