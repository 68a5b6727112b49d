/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions of the daemon's core: the allowed first messages, versions, limits, and that everything
 * of a session goes with it.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/internal.h"
#include "tests/unit/daemon/core/fixtures/core_world.h"
#include "tests/fixtures/program.h"

static struct config *small_config(void)
{
	struct config *config = config_new();

	ck_assert_ptr_nonnull(config);
	config->max_sessions = 4;
	config->max_sessions_per_user = 3;
	config->hello_ms = 500;
	return config;
}

static void say_hello(struct process *process, uint32_t version, Ctl__Role role, uint64_t instance)
{
	Ctl__Hello hello = CTL__HELLO__INIT;
	Ctl__Envelope envelope = envelope_of(CTL__ENVELOPE__BODY_HELLO, &hello);

	hello.role = role;
	hello.name = (char *)"train";
	hello.release = (char *)"9.9";
	hello.instance = instance;
	envelope.version = version;
	process_send(process, &envelope);
	world_settle(process->world);
}

/* A request that only operators may make. */
static void send_drain(struct process *process)
{
	Ctl__Drain drain = CTL__DRAIN__INIT;
	Ctl__Envelope envelope;

	envelope = envelope_of(CTL__ENVELOPE__BODY_DRAIN, &drain);
	envelope.seq = 5;
	process_send(process, &envelope);
	world_settle(process->world);
}

static void expect_failure(struct process *process, int error, const char *part)
{
	Ctl__Envelope *envelope = process_take(process, CTL__ENVELOPE__BODY_FAILURE);

	ck_assert_msg(envelope != NULL, "no Failure that says \"%s\"", part);
	ck_assert_int_eq((int)envelope->failure->error, error);
	ck_assert_msg(strstr(envelope->failure->text, part) != NULL, "\"%s\" lacks \"%s\"",
		envelope->failure->text, part);
	ctl__envelope__free_unpacked(envelope, NULL);
}

START_TEST(hello_is_answered)
{
	struct world *world = world_create(1);
	int host = world_add_host(world, "a", NULL);
	struct process *process = world_stranger(world, host, 1000, 7);
	Ctl__Envelope *answer;

	ck_assert_uint_eq(core_idle_since(world_core(world, host)), 0);
	say_hello(process, CONTROL_VERSION, CTL__ROLE__ROLE_PROCESS, 4);
	answer = process_take(process, CTL__ENVELOPE__BODY_HELLO);
	ck_assert_ptr_nonnull(answer);
	ck_assert_int_eq(answer->hello->role, CTL__ROLE__ROLE_DAEMON);
	ck_assert_str_eq(answer->hello->name, "a");
	ck_assert(answer->hello->instance != 0);
	ctl__envelope__free_unpacked(answer, NULL);
	ck_assert(!process->ended);
	process_die(process);
	world_settle(world);
	ck_assert_uint_eq(core_idle_since(world_core(world, host)), world_now(world));
	world_destroy(world);
}
END_TEST

static const struct {
	uint32_t version;
	Ctl__Role role;
	uint64_t instance;
	const char *says;
} bad_hellos[] = {
	{ CONTROL_VERSION + 1, CTL__ROLE__ROLE_PROCESS, 4, "release 9.9" },
	{ 0, CTL__ROLE__ROLE_OPERATOR, 4, "version 0" },
	{ CONTROL_VERSION, CTL__ROLE__ROLE_DAEMON, 4, "not allowed on this socket" },
	{ CONTROL_VERSION, CTL__ROLE__ROLE_PROCESS, 0, "not allowed on this socket" },
};

START_LOOP_TEST(bad_hello_is_refused, ROWS(bad_hellos))
{
	struct world *world = world_create(1);
	int host = world_add_host(world, "a", NULL);
	struct process *process = world_stranger(world, host, 1000, 7);

	say_hello(process, bad_hellos[_i].version, bad_hellos[_i].role, bad_hellos[_i].instance);
	expect_failure(process, EPROTO, bad_hellos[_i].says);
	ck_assert(process->ended);
	ck_assert_uint_eq(world_core(world, host)->counters.bad_messages, 1);
	ck_assert_uint_eq(HASH_COUNT(world_core(world, host)->sessions), 0);
	world_destroy(world);
}
END_TEST

START_TEST(hello_comes_first_and_once)
{
	struct world *world = world_create(1);
	int host = world_add_host(world, "a", NULL);
	struct process *process = world_stranger(world, host, 1000, 7);

	send_drain(process);
	expect_failure(process, EPROTO, "must be a Hello");
	ck_assert(process->ended);
	process = world_process(world, host, 1000, 8);
	say_hello(process, CONTROL_VERSION, CTL__ROLE__ROLE_PROCESS, 4);
	expect_failure(process, EPROTO, "only one Hello");
	ck_assert(process->ended);
	world_destroy(world);
}
END_TEST

START_TEST(stranger_has_little_time)
{
	struct config *config = small_config();
	struct world *world = world_create(1);
	int host = world_add_host(world, "a", config);
	struct process *slow = world_stranger(world, host, 1000, 7);
	struct process *process = world_process(world, host, 1000, 8);

	world_run(world, 499 * WORLD_MS);
	ck_assert(!slow->ended);
	world_run(world, 2 * WORLD_MS);
	expect_failure(slow, ETIMEDOUT, "no Hello came within 500 ms");
	ck_assert(slow->ended);
	world_run(world, 10 * WORLD_S);
	ck_assert(!process->ended);
	world_destroy(world);
	config_free(config);
}
END_TEST

START_TEST(messages_are_for_roles)
{
	struct world *world = world_create(1);
	int host = world_add_host(world, "a", NULL);
	struct process *process = world_process(world, host, 1000, 7);
	struct process *boss = world_operator(world, host, 1000);
	Ctl__ClosePort close = CTL__CLOSE_PORT__INIT;
	Ctl__Envelope envelope;

	send_drain(process);
	expect_failure(process, EOPNOTSUPP, "from a process");
	envelope = envelope_of(CTL__ENVELOPE__BODY_CLOSE_PORT, &close);
	envelope.seq = 9;
	process_send(boss, &envelope);
	world_settle(world);
	expect_failure(boss, EOPNOTSUPP, "from an operator");
	ck_assert(!process->ended && !boss->ended);
	/* frame_unpack() lets none through. */
	envelope.version = CONTROL_VERSION + 1;
	core_message(world_core(world, host), process->session, &envelope, world_now(world));
	world_settle(world);
	expect_failure(process, EPROTO, "has protocol version 2");
	ck_assert(process->ended);
	world_destroy(world);
}
END_TEST

START_TEST(sessions_are_limited)
{
	struct config *config = small_config();
	struct world *world = world_create(1);
	int host = world_add_host(world, "a", config);
	struct process *first = world_process(world, host, 1000, 1), *root;

	world_process(world, host, 1000, 2);
	world_process(world, host, 1000, 3);
	ck_assert_ptr_null(world_stranger(world, host, 1000, 4));
	world_process(world, host, 2000, 5);
	ck_assert_ptr_null(world_stranger(world, host, 2000, 6));
	/* Root can still look at the state. */
	root = world_operator(world, host, 0);
	ck_assert_uint_eq(world_core(world, host)->counters.sessions_refused, 2);
	ck_assert_uint_eq(world_core(world, host)->counters.sessions, 5);
	/* A flood of them does not fill the log. */
	ck_assert_uint_eq(world_warnings(world, host), 1);
	ck_assert_ptr_nonnull(strstr(world_last_warning(world, host), "max_sessions_per_user"));
	process_die(root);
	process_die(first);
	world_settle(world);
	world_process(world, host, 1000, 7);
	world_destroy(world);
	config_free(config);
}
END_TEST

static unsigned closed;

static void count_close(const struct page_view *page)
{
	closed++;
}

START_TEST(pages_do_not_leak)
{
	struct world *world = world_create(1);
	int host = world_add_host(world, "a", NULL);
	struct process *process = world_process(world, host, 1000, 1);
	const struct page_view handed = { .fd = -1, .close = count_close };
	Ctl__ClosePort close = CTL__CLOSE_PORT__INIT;

	closed = 0;
	core_page(world_core(world, host), process->session, &handed);
	core_page(world_core(world, host), process->session, &handed);
	ck_assert_uint_eq(closed, 1);
	core_page(world_core(world, host), 999, &handed);
	ck_assert_uint_eq(closed, 2);
	/* It came with another message than a DescribePort. */
	process_say(process, CTL__ENVELOPE__BODY_CLOSE_PORT, &close);
	world_settle(world);
	ck_assert_uint_eq(closed, 3);
	core_page(world_core(world, host), process->session, &handed);
	process_die(process);
	world_settle(world);
	ck_assert_uint_eq(closed, 4);
	world_destroy(world);
}
END_TEST

START_TEST(text_is_cut_between_characters)
{
	char out[6];

	copy_text(out, sizeof(out), "abc");
	ck_assert_str_eq(out, "abc");
	copy_text(out, sizeof(out), "abcdefgh");
	ck_assert_str_eq(out, "abcde");
	copy_text(out, sizeof(out), "abcd\xc3\xa4");
	ck_assert_str_eq(out, "abcd");
	copy_text(out, sizeof(out), "abc\xc3\xa4");
	ck_assert_str_eq(out, "abc\xc3\xa4");
}
END_TEST

/* ---- a core alone, whose wishes are counted */

struct wishes {
	unsigned hellos, failures, others, closed;
	Ctl__Envelope *last; /* Failure */
	char line[1024];     /* of the log, the last one */
};

static void wish_send(void *ctx, uint64_t session, const Ctl__Envelope *envelope)
{
	struct wishes *wishes = ctx;
	uint8_t frame[FRAME_MAX_STRANGER];
	const char *why = NULL;

	ck_assert_uint_le(frame_size(envelope), sizeof(frame));
	frame_pack(envelope, frame);
	if (envelope->body_case == CTL__ENVELOPE__BODY_HELLO) {
		wishes->hellos++;
	} else if (envelope->body_case == CTL__ENVELOPE__BODY_FAILURE) {
		wishes->failures++;
		if (wishes->last)
			ctl__envelope__free_unpacked(wishes->last, NULL);
		wishes->last = frame_unpack(frame, frame_size(envelope), &why);
		ck_assert_msg(wishes->last != NULL, "%s", why);
	} else {
		wishes->others++;
	}
}

static void wish_close(void *ctx, uint64_t session)
{
	((struct wishes *)ctx)->closed++;
}

static void wish_dial(void *ctx, uint64_t session, const char *host, const char *address,
	uint16_t port, uid_t uid)
{
}

static void wish_log(void *ctx, enum core_log level, const char *line)
{
	struct wishes *wishes = ctx;

	snprintf(wishes->line, sizeof(wishes->line), "%s", line);
}

static uint64_t wish_random(void *ctx)
{
	return 0x123456789;
}

static size_t wish_queued(void *ctx, uint64_t session)
{
	return 0;
}

static bool wish_is_stuck(void *ctx, uint64_t session)
{
	return false;
}

static int wish_open_socket(void *ctx, uint64_t session, const struct core_socket *wanted,
	uint64_t *ret_id, char *why, size_t size)
{
	snprintf(why, size, "there are none");
	return -EPERM;
}

static bool wish_has_socket(void *ctx, uint64_t id)
{
	return false;
}

static void wish_keep(void *ctx, const char *text)
{
}

struct alone {
	struct config *config;
	struct core *core;
	struct wishes *wishes;
};

static struct alone alone_new(void)
{
	struct alone alone = { .config = small_config(),
		.wishes = calloc(1, sizeof(struct wishes)) };
	const struct core_ops ops = { wish_send, wish_close, wish_dial, wish_log, wish_random,
		wish_queued, wish_is_stuck, wish_open_socket, wish_has_socket, wish_keep,
		alone.wishes };

	ck_assert_ptr_nonnull(alone.wishes);
	alone.core = core_create(alone.config, &ops, false, 1);
	ck_assert_ptr_nonnull(alone.core);
	return alone;
}

static void alone_free(struct alone *alone)
{
	struct wishes before = *alone->wishes;

	core_destroy(alone->core);
	/* The end of the daemon is not reported to anyone. */
	ck_assert_mem_eq(&before, alone->wishes, sizeof(before));
	if (alone->wishes->last)
		ctl__envelope__free_unpacked(alone->wishes->last, NULL);
	free(alone->wishes);
	config_free(alone->config);
}

static bool arrive(
	struct alone *alone, uint64_t id, enum core_session_kind kind, const char *address)
{
	const struct core_session_info info = { .kind = kind, .uid = 1000, .address = address };

	return core_opened(alone->core, id, &info, 1);
}

static void introduce(struct alone *alone, uint64_t id, Ctl__Role role)
{
	Ctl__Hello hello = CTL__HELLO__INIT;
	Ctl__Envelope envelope;

	hello.role = role;
	hello.name = (char *)"b";
	hello.instance = id;
	hello.pid = 4321;
	envelope = envelope_of(CTL__ENVELOPE__BODY_HELLO, &hello);
	core_message(alone->core, id, &envelope, 2);
}

START_TEST(strangers_of_a_host_are_limited)
{
	struct alone alone = alone_new();

	for (uint64_t id = 1; id <= 16; id++)
		ck_assert(arrive(&alone, id, CORE_PEER, "10.1.1.1"));
	ck_assert(!arrive(&alone, 17, CORE_PEER, "10.1.1.1"));
	ck_assert_uint_eq(alone.wishes->failures, 1);
	ck_assert_int_eq((int)alone.wishes->last->failure->error, EDQUOT);
	ck_assert(arrive(&alone, 17, CORE_PEER, "10.1.1.2"));
	introduce(&alone, 1, CTL__ROLE__ROLE_DAEMON);
	ck_assert(arrive(&alone, 18, CORE_PEER, "10.1.1.1"));
	ck_assert_uint_eq(alone.wishes->hellos, 1);
	alone_free(&alone);
}
END_TEST

START_TEST(peers_are_limited)
{
	struct alone alone = alone_new();
	char address[32];

	alone.config->max_peers = 2;
	for (unsigned i = 0; i < 2 + 64; i++) {
		snprintf(address, sizeof(address), "10.1.2.%u", i);
		ck_assert(arrive(&alone, 1 + i, CORE_PEER, address));
	}
	ck_assert(!arrive(&alone, 99, CORE_PEER, "10.1.1.1"));
	ck_assert_ptr_nonnull(strstr(alone.wishes->last->failure->text, "max_peers"));
	/* Sessions that this daemon opened itself, and processes, are not affected. */
	ck_assert(arrive(&alone, CORE_DIALLED | 1, CORE_PEER_DIALLED, "10.1.1.1"));
	ck_assert(arrive(&alone, 100, CORE_LOCAL, NULL));
	alone_free(&alone);
}
END_TEST

START_TEST(who_dials_speaks_first)
{
	struct alone alone = alone_new();

	ck_assert(arrive(&alone, 5, CORE_PEER, "10.1.1.1"));
	ck_assert_uint_eq(alone.wishes->hellos, 0);
	ck_assert(arrive(&alone, CORE_DIALLED | 5, CORE_PEER_DIALLED, "10.1.1.1"));
	ck_assert_uint_eq(alone.wishes->hellos, 1);
	/* Over TCP only daemons may connect. */
	introduce(&alone, 5, CTL__ROLE__ROLE_PROCESS);
	ck_assert_uint_eq(alone.wishes->closed, 1);
	ck_assert_int_eq((int)alone.wishes->last->failure->error, EPROTO);
	alone_free(&alone);
}
END_TEST

START_TEST(operators_are_known)
{
	static gid_t wheel[] = { 10 };
	struct alone alone = alone_new();
	struct core_facts facts = { 0 };
	struct core_session_info info = { .uid = 1000, .gids = { 9, 10 }, .n_gids = 2 };
	struct session *session;

	ck_assert(core_opened(alone.core, 1, &info, 1));
	session = session_find(alone.core, 1);
	ck_assert(!session->is_operator);
	alone.config->operators = wheel;
	alone.config->n_operators = 1;
	ck_assert(!session->is_operator);
	core_configure(alone.core, alone.config, 2);
	ck_assert(session->is_operator);
	session->n_gids = 1;
	core_configure(alone.core, alone.config, 2);
	ck_assert(!session->is_operator);
	/* The operator of a private daemon is its user, and no other user of its socket. */
	facts.is_private = true;
	facts.uid = 999;
	core_set_facts(alone.core, &facts);
	ck_assert(!session->is_operator);
	facts.uid = 1000;
	core_set_facts(alone.core, &facts);
	ck_assert(session->is_operator);
	alone.config->operators = NULL;
	alone.config->n_operators = 0;
	alone_free(&alone);
}
END_TEST

START_TEST(process_is_known_by_the_system)
{
	struct alone alone = alone_new();
	struct core_session_info info = { .uid = 1000, .pid = 77, .program = "a\tb" };
	const struct session *session;

	ck_assert(core_opened(alone.core, 1, &info, 1));
	session = session_find(alone.core, 1);
	ck_assert_str_eq(session->who.program, "a?b");
	introduce(&alone, 1, CTL__ROLE__ROLE_PROCESS);
	ck_assert_uint_eq(session->who.pid, 77);
	ck_assert_str_eq(session->who.program, "b");
	info.pid = 0; /* of another PID namespace */
	ck_assert(core_opened(alone.core, 2, &info, 1));
	introduce(&alone, 2, CTL__ROLE__ROLE_PROCESS);
	ck_assert_uint_eq(session_find(alone.core, 2)->who.pid, 4321);
	alone_free(&alone);
}
END_TEST

START_TEST(long_words_can_be_read)
{
	struct alone alone = alone_new();
	char text[2000];
	struct session *session;

	ck_assert(arrive(&alone, 1, CORE_LOCAL, NULL));
	session = session_find(alone.core, 1);
	for (size_t i = 0; i < 2; i++) { /* wherever it is cut */
		memset(text, 'x', sizeof(text));
		for (size_t at = i; at + 3 < sizeof(text); at += 2)
			memcpy(text + at, "\xc3\xa4", 2);
		text[sizeof(text) - 1] = '\0';
		session_fail(alone.core, session, 5, EINVAL, "%s", text);
		ck_assert_uint_eq(alone.wishes->last->seq, 5);
		core_say(alone.core, CORE_LOG_INFO, "%s\n", text + i);
		ck_assert_ptr_null(strchr(alone.wishes->line, '\n'));
	}
	session_reject(alone.core, session, EPROTO, "%s", text);
	session_reject(alone.core, session, EPROTO, "twice");
	ck_assert_uint_eq(alone.wishes->closed, 1);
	ck_assert_uint_eq(alone.wishes->failures, 3);
	/* Nothing is sent to a lost session. */
	session_fail(alone.core, session, 6, EINVAL, "no");
	session_done(alone.core, session, 7);
	ck_assert_uint_eq(alone.wishes->failures + alone.wishes->others, 3);
	alone_free(&alone);
}
END_TEST

START_TEST(core_tells_when_it_is_idle)
{
	struct alone alone = alone_new();

	ck_assert_uint_eq(core_idle_since(alone.core), 1);
	ck_assert(arrive(&alone, 1, CORE_LOCAL, NULL));
	ck_assert_uint_eq(core_idle_since(alone.core), 0);
	ck_assert(arrive(&alone, 2, CORE_PEER, "10.1.1.1"));
	core_closed(alone.core, 1, CORE_END_CLOSED, "FIN", 50);
	ck_assert_uint_eq(core_idle_since(alone.core), 50);
	core_closed(alone.core, 1, CORE_END_CLOSED, "FIN", 60); /* nobody is there */
	ck_assert_uint_eq(core_idle_since(alone.core), 50);
	alone_free(&alone);
}
END_TEST

START_TEST(copies_are_deep)
{
	uint8_t bytes[UUID_SIZE] = { 1, 2, 3 };
	Ctl__ConnReady ready = CTL__CONN_READY__INIT;
	Ctl__Envelope envelope, *copy;

	ready.uuid = (ProtobufCBinaryData){ sizeof(bytes), bytes };
	envelope = envelope_of(CTL__ENVELOPE__BODY_CONN_READY, &ready);
	envelope.seq = 99;
	copy = envelope_copy(&envelope);
	ck_assert_ptr_nonnull(copy);
	bytes[0] = 7;
	ck_assert_uint_eq(copy->seq, 99);
	ck_assert_uint_eq(copy->conn_ready->uuid.data[0], 1);
	ctl__envelope__free_unpacked(copy, NULL);
}
END_TEST

TEST_FILE(core_sessions)
