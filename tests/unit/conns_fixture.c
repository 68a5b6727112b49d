/* SPDX-License-Identifier: BSD-3-Clause */
/* See conns_fixture.h. */
#include "tests/unit/conns_fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"

struct uuid uuid_of(uint32_t number)
{
	struct uuid uuid = { { 0 } };

	put_be32(uuid.bytes, number);
	uuid.bytes[UUID_SIZE - 1] = 1;
	return uuid;
}

uint32_t uuid_number(const Ctl__Envelope *envelope)
{
	const ProtobufCBinaryData *uuid;

	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_CONN_REQUEST: uuid = &envelope->conn_request->uuid; break;
	case CTL__ENVELOPE__BODY_CONN_REPLY: uuid = &envelope->conn_reply->uuid; break;
	case CTL__ENVELOPE__BODY_CONN_READY: uuid = &envelope->conn_ready->uuid; break;
	case CTL__ENVELOPE__BODY_CONN_END: uuid = &envelope->conn_end->uuid; break;
	default: return 0;
	}
	ck_assert_uint_eq(uuid->len, UUID_SIZE);
	return get_be32(uuid->data);
}

uint32_t qpn_of(uint32_t number)
{
	return 100 + number % 100000;
}

struct process *conns_process(struct world *world, int host, uint32_t uid, uint32_t pid)
{
	struct process *process = world_process(world, host, uid, pid);

	process_open_port(process, PORT);
	return process;
}

struct ends ends_new(enum where where)
{
	struct ends ends = { .world = world_create(1), .host = where == TWO_HOSTS ? "b" : "" };

	world_add_host(ends.world, "a", NULL);
	ends.passive_host = where == TWO_HOSTS ? world_add_host(ends.world, "b", NULL) : 0;
	ends.active = conns_process(ends.world, 0, UID, 11);
	ends.passive = where == ONE_PROCESS ? ends.active
					    : conns_process(ends.world, ends.passive_host, UID, 22);
	offer(ends.passive, "echo", 1, false);
	return ends;
}

unsigned conns_of(struct world *world, int host)
{
	return HASH_COUNT(world_core(world, host)->conns);
}

void ends_free(struct ends *ends)
{
	ck_assert_uint_eq(conns_of(ends->world, 0), 0);
	ck_assert_uint_eq(conns_of(ends->world, ends->passive_host), 0);
	expect_nothing(ends->active);
	expect_nothing(ends->passive);
	world_destroy(ends->world);
}

/* ---- services */

static Ctl__Envelope *ask_to_listen(
	struct process *process, const char *service, uint32_t listener, bool any_user)
{
	Ctl__Listen listen = CTL__LISTEN__INIT;
	Ctl__Envelope *answer;

	listen.service = (char *)(uintptr_t)service;
	listen.port = PORT;
	listen.listener = listener;
	listen.backlog = 100000;
	listen.any_user = any_user;
	answer = process_ask(process, CTL__ENVELOPE__BODY_LISTEN, &listen);
	ck_assert_ptr_nonnull(answer);
	return answer;
}

int try_offer(struct process *process, const char *service, uint32_t listener)
{
	Ctl__Envelope *answer = ask_to_listen(process, service, listener, false);
	int error = 0;

	if (answer->body_case == CTL__ENVELOPE__BODY_FAILURE)
		error = (int)answer->failure->error;
	ctl__envelope__free_unpacked(answer, NULL);
	return error;
}

void offer(struct process *process, const char *service, uint32_t listener, bool any_user)
{
	Ctl__Envelope *answer = ask_to_listen(process, service, listener, any_user);

	ck_assert_msg(answer->body_case == CTL__ENVELOPE__BODY_LISTENING, "%s",
		answer->body_case == CTL__ENVELOPE__BODY_FAILURE ? answer->failure->text : "?");
	ck_assert_str_eq(answer->listening->service, service);
	ctl__envelope__free_unpacked(answer, NULL);
}

void unlisten(struct process *process, uint32_t listener)
{
	Ctl__Unlisten message = CTL__UNLISTEN__INIT;

	message.listener = listener;
	process_say(process, CTL__ENVELOPE__BODY_UNLISTEN, &message);
}

/* ---- what they say */

void request_of(struct process *process, uint32_t number, const char *host, const char *service,
	bool any_user)
{
	struct uuid uuid = uuid_of(number);
	Ctl__ConnRequest message = CTL__CONN_REQUEST__INIT;
	Ctl__ConnParams params = CTL__CONN_PARAMS__INIT;
	uint8_t endpoint[ENDPOINT_BYTES];
	Ctl__Who who = CTL__WHO__INIT;

	/* The daemon does not believe what a process writes about itself. */
	who.host = (char *)"liar";
	who.program = (char *)"liar";
	who.pid = 1;
	process_endpoint(process, PORT, qpn_of(number), endpoint);
	params.path_mtu = 1024;
	message.uuid = (ProtobufCBinaryData){ UUID_SIZE, uuid.bytes };
	message.host = (char *)(uintptr_t)host;
	message.service = (char *)(uintptr_t)service;
	message.port = PORT;
	message.endpoint = (ProtobufCBinaryData){ ENDPOINT_BYTES, endpoint };
	message.private_data = (ProtobufCBinaryData){ 5, (uint8_t *)"hello" };
	message.params = &params;
	message.timeout_ms = TIMEOUT_MS;
	message.who = &who;
	message.any_user = any_user;
	process_say(process, CTL__ENVELOPE__BODY_CONN_REQUEST, &message);
}

void request(struct process *process, uint32_t number, const char *host, const char *service)
{
	request_of(process, number, host, service, false);
}

void reply(struct process *process, uint32_t number, uint32_t qpn)
{
	struct uuid uuid = uuid_of(number);
	Ctl__ConnReply message = CTL__CONN_REPLY__INIT;
	Ctl__ConnParams params = CTL__CONN_PARAMS__INIT;
	uint8_t endpoint[ENDPOINT_BYTES];
	Ctl__Who who = CTL__WHO__INIT;

	who.host = (char *)"liar";
	process_endpoint(process, PORT, qpn, endpoint);
	params.path_mtu = 512;
	message.uuid = (ProtobufCBinaryData){ UUID_SIZE, uuid.bytes };
	message.port = PORT;
	message.endpoint = (ProtobufCBinaryData){ ENDPOINT_BYTES, endpoint };
	message.private_data = (ProtobufCBinaryData){ 7, (uint8_t *)"welcome" };
	message.params = &params;
	message.who = &who;
	process_say(process, CTL__ENVELOPE__BODY_CONN_REPLY, &message);
}

void ready(struct process *process, uint32_t number)
{
	struct uuid uuid = uuid_of(number);
	Ctl__ConnReady message = CTL__CONN_READY__INIT;

	message.uuid = (ProtobufCBinaryData){ UUID_SIZE, uuid.bytes };
	process_say(process, CTL__ENVELOPE__BODY_CONN_READY, &message);
}

void end(struct process *process, uint32_t number, bool to_passive, int error, const char *reason)
{
	struct uuid uuid = uuid_of(number);
	Ctl__ConnEnd message = CTL__CONN_END__INIT;

	message.uuid = (ProtobufCBinaryData){ UUID_SIZE, uuid.bytes };
	message.to_passive = to_passive;
	message.error = (uint32_t)error;
	message.reason = (char *)(uintptr_t)reason;
	message.private_data = (ProtobufCBinaryData){ 3, (uint8_t *)"bye" };
	process_say(process, CTL__ENVELOPE__BODY_CONN_END, &message);
}

void resume(struct process *process, uint32_t number, bool passive, uint32_t qpn, const char *host,
	bool established)
{
	struct uuid uuid = uuid_of(number);
	Ctl__ConnResume message = CTL__CONN_RESUME__INIT;
	Ctl__Who who = CTL__WHO__INIT;

	message.uuid = (ProtobufCBinaryData){ UUID_SIZE, uuid.bytes };
	message.passive = passive;
	message.port = PORT;
	message.qpn = qpn;
	message.peer_host = (char *)(uintptr_t)host;
	message.service = (char *)"echo";
	message.who = &who;
	message.established = established;
	process_say(process, CTL__ENVELOPE__BODY_CONN_RESUME, &message);
}

/* ---- what they hear */

Ctl__Envelope *expect(struct process *process, Ctl__Envelope__BodyCase body)
{
	Ctl__Envelope *envelope = process_take(process, body);

	if (!envelope) {
		Ctl__Envelope *other = process_take_any(process);

		ck_abort_msg("no message %d, but %d: %s", (int)body,
			other ? (int)other->body_case : 0,
			other && other->body_case == CTL__ENVELOPE__BODY_CONN_END
				? other->conn_end->reason
				: "");
	}
	return envelope;
}

void expect_about(struct process *process, Ctl__Envelope__BodyCase body, uint32_t number)
{
	Ctl__Envelope *envelope = expect(process, body);

	ck_assert_uint_eq(uuid_number(envelope), number);
	ctl__envelope__free_unpacked(envelope, NULL);
}

void expect_end(struct process *process, uint32_t number, int error, const char *words)
{
	Ctl__Envelope *envelope = expect(process, CTL__ENVELOPE__BODY_CONN_END);
	const char *reason = envelope->conn_end->reason;

	ck_assert_uint_eq(uuid_number(envelope), number);
	ck_assert_msg((int)envelope->conn_end->error == error, "error %u (%s), not %d",
		envelope->conn_end->error, reason, error);
	ck_assert_msg(strstr(reason, words), "\"%s\" is not in \"%s\"", words, reason);
	ctl__envelope__free_unpacked(envelope, NULL);
}

void expect_nothing(struct process *process)
{
	Ctl__Envelope *envelope = process_take_any(process);

	ck_assert_msg(!envelope, "an unexpected message %d about %u: %s",
		envelope ? (int)envelope->body_case : 0, envelope ? uuid_number(envelope) : 0,
		envelope && envelope->body_case == CTL__ENVELOPE__BODY_CONN_END
			? envelope->conn_end->reason
			: "");
}

void establish(struct process *active, struct process *passive, uint32_t number, const char *host,
	const char *service)
{
	request_of(active, number, host, service, true);
	world_settle(active->world);
	expect_about(passive, CTL__ENVELOPE__BODY_CONN_REQUEST, number);
	reply(passive, number, qpn_of(number) + 100000);
	world_settle(active->world);
	expect_about(active, CTL__ENVELOPE__BODY_CONN_REPLY, number);
	ready(active, number);
	world_settle(active->world);
	expect_about(passive, CTL__ENVELOPE__BODY_CONN_READY, number);
}
