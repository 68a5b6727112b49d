/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer entry for the core of ferruled. A script of bytes opens sessions of processes,
 * operators and other daemons, sends messages over them (built by fuzz_message.c, or any
 * bytes), closes them, answers dials and moves time. Invariants: the core sends
 * only over sessions that are open, and nothing that a receiver would refuse; it gives back
 * every page; its metrics can be written; nothing is left when it is destroyed. The corpus is
 * replayed by tests/unit/fuzz/test_fuzz_corpus.c. To build, with the protocol from a build
 * folder:
 *   clang -std=gnu17 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined \
 *       -fno-sanitize-recover=all -DFERRULE_RELEASE='"0"' -I. -Ilib/include -Ibuild \
 *       tests/fuzz/fuzz_core.c tests/fuzz/fuzz_message.c \
 *       $(find daemon/core daemon/config -name "*.c" -not -name tls_check.c) \
 *       lib/control/frame.c lib/control/page.c build/lib/control/control.pb-c.c \
 *       build/libferrule_internal.a -lprotobuf-c -lconfig
 */
#include "tests/fuzz/fuzz_core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/core/core.h"
#include "tests/fuzz/fuzz_message.h"

enum {
	SESSIONS = 8,
	DIALS = 16,
	STEPS = 400,
	PAGE_QPS = 4,
};

struct open_session {
	uint64_t id; /* 0: none */
};

static struct state {
	struct config *config;
	struct core *core;
	uint64_t now_ns, next_id, random;
	struct open_session sessions[SESSIONS];
	uint64_t dials[DIALS]; /* that wait for their answer */
	unsigned n_dials;
	unsigned pages; /* that the core has */
	struct page *page;
	int page_fd;
} s;

static struct open_session *find(uint64_t id)
{
	for (int i = 0; i < SESSIONS; i++)
		if (s.sessions[i].id == id)
			return &s.sessions[i];
	return NULL;
}

/* ---- what the core wants */

static void op_send(void *ctx, uint64_t id, const Ctl__Envelope *envelope)
{
	size_t size = frame_size(envelope);
	uint8_t *frame = malloc(size);
	const char *why = "";
	Ctl__Envelope *got;

	MUST(frame && id && find(id));
	MUST(size <= FRAME_HEADER + FRAME_MAX);
	frame_pack(envelope, frame);
	got = frame_unpack(frame, size, &why);
	if (!got)
		fprintf(stderr, "sent, but not to be taken: %s\n", why);
	MUST(got);
	ctl__envelope__free_unpacked(got, NULL);
	free(frame);
}

static void op_close(void *ctx, uint64_t id)
{
	struct open_session *session = find(id);

	MUST(id);
	if (session) {
		session->id = 0;
		return;
	}
	for (unsigned i = 0; i < s.n_dials; i++) {
		if (s.dials[i] == id) {
			s.dials[i] = s.dials[--s.n_dials];
			return;
		}
	}
	MUST(!"a session is closed that is not open");
}

static void op_dial(
	void *ctx, uint64_t id, const char *host, const char *address, uint16_t port, uid_t uid)
{
	MUST(id & CORE_DIALLED && *host && port && !find(id));
	MUST(s.n_dials < DIALS);
	s.dials[s.n_dials++] = id;
}

static void op_log(void *ctx, enum core_log level, const char *line)
{
	MUST(*line);
}

static uint64_t op_random(void *ctx)
{
	return s.random += UINT64_C(0x9e3779b97f4a7c15);
}

/* Full every other time. */
static size_t op_queued(void *ctx, uint64_t id)
{
	return op_random(ctx) & 1 ? 1 << 20 : 0;
}

static bool op_is_stuck(void *ctx, uint64_t id)
{
	return op_random(ctx) & 1;
}

static int op_open_socket(void *ctx, uint64_t id, const struct core_socket *wanted,
	uint64_t *ret_id, char *why, size_t size)
{
	MUST(find(id) && *wanted->port && wanted->n_addresses);
	snprintf(why, size, "because");
	*ret_id = op_random(ctx) | 1;
	return *ret_id & 2 ? 0 : *ret_id & 4 ? -EADDRINUSE : -EPERM;
}

static bool op_has_socket(void *ctx, uint64_t id)
{
	MUST(id);
	return op_random(ctx) & 1;
}

static void op_keep(void *ctx, const char *text)
{
	MUST(!*text || text[strlen(text) - 1] == '\n');
}

static bool certified(void *ctx, uint64_t id, const char *name)
{
	return name[0] != 'x';
}

static void close_page(const struct page_view *page)
{
	MUST(s.pages && page->fd == s.page_fd);
	s.pages--;
}

/* ---- steps */

/* Most sessions begin correctly, to reach the rest of the core. */
static void say_hello(uint64_t id, enum core_session_kind kind, uint32_t flags)
{
	Ctl__Hello hello = CTL__HELLO__INIT;
	Ctl__Envelope envelope;

	if (!find(id) || flags & 128)
		return;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_HELLO;
	envelope.hello = &hello;
	hello.role = kind != CORE_LOCAL ? CTL__ROLE__ROLE_DAEMON
		: flags & 64            ? CTL__ROLE__ROLE_OPERATOR
					: CTL__ROLE__ROLE_PROCESS;
	hello.name = (char *)(uintptr_t)(flags & 1 ? "host2" : "10.0.0.2");
	hello.instance = 1 + (flags & 3);
	hello.port = 7476;
	hello.release = (char *)(uintptr_t) "0";
	hello.keepalive_ms = 1000;
	hello.resumes = flags & 16;
	core_message(s.core, id, &envelope, s.now_ns);
}

static void tell_opened(uint64_t id, enum core_session_kind kind, uint32_t flags)
{
	static const uid_t uids[] = { 0, 1000, 1000, 1001 };
	struct core_session_info info = {
		.kind = kind,
		.uid = uids[flags & 3],
		.gids = { flags & 4 ? 100 : 200 },
		.n_gids = 1,
		.pid = (pid_t)(100 + (flags & 7)),
		.program = flags & 8 ? "program" : NULL,
		.address = kind == CORE_LOCAL ? "" : "10.0.0.2",
		.tls = flags & 16,
		.certified = certified,
	};
	struct open_session *session = find(0);

	if (!session)
		return;
	session->id = id;
	if (core_opened(s.core, id, &info, s.now_ns))
		say_hello(id, kind, flags);
	else if (session->id == id)
		session->id = 0;
}

static void open_session(struct script *script)
{
	uint32_t flags = script_take(script, 1);

	tell_opened(++s.next_id, flags & 32 ? CORE_PEER : CORE_LOCAL, flags);
}

static void answer_dial(struct script *script)
{
	uint32_t how = script_take(script, 1);
	uint64_t id;

	if (!s.n_dials)
		return;
	id = s.dials[how % s.n_dials];
	s.dials[how % s.n_dials] = s.dials[s.n_dials - 1];
	s.n_dials--;
	if (how & 64 && find(0))
		tell_opened(id, CORE_PEER_DIALLED, how);
	else
		core_closed(s.core, id, (enum core_end)(how >> 3 & 7) % (CORE_END_TLS + 1),
			"it did not work", s.now_ns);
}

static void hand_page(uint64_t id)
{
	struct page_view page = { s.page_fd, PAGE_QPS, close_page };

	s.pages++;
	core_page(s.core, id, &page);
}

static void send_message(struct script *script, bool built)
{
	struct open_session *session = &s.sessions[script_take(script, 1) % SESSIONS];
	Ctl__Envelope *envelope = built ? message_build(script) : message_take(script);
	uint64_t id = session->id;

	if (id && envelope) {
		if (envelope->body_case == CTL__ENVELOPE__BODY_DESCRIBE_PORT &&
			script_take(script, 1) & 3)
			hand_page(id);
		core_message(s.core, id, envelope, s.now_ns);
	}
	ctl__envelope__free_unpacked(envelope, NULL);
}

static void close_session(struct script *script)
{
	uint32_t how = script_take(script, 1);
	struct open_session *session = &s.sessions[how % SESSIONS];
	uint64_t id = session->id;

	if (!id)
		return;
	session->id = 0;
	core_closed(s.core, id, how & 8 ? CORE_END_CLOSED : CORE_END_BAD, "it has gone", s.now_ns);
}

static void pass_time(struct script *script)
{
	uint64_t due_ns = core_deadline(s.core);
	uint32_t how = script_take(script, 1);

	if (how & 1 && due_ns != CORE_NEVER && due_ns > s.now_ns)
		s.now_ns = due_ns;
	else
		s.now_ns += how * UINT64_C(20000000) + 512;
	core_tick(s.core, s.now_ns);
	MUST(core_deadline(s.core) > s.now_ns);
}

static void reconfigure(struct script *script)
{
	s.config->max_ports_per_user = script_take(script, 1);
	s.config->max_peers = 1 + script_take(script, 1) % 8;
	core_configure(s.core, s.config, s.now_ns);
}

static void step(struct script *script)
{
	switch (script_take(script, 1) & 15) {
	case 0:
	case 1: open_session(script); break;
	case 2: close_session(script); break;
	case 3:
	case 4: pass_time(script); break;
	case 5:
	case 6: answer_dial(script); break;
	case 7: send_message(script, false); break;
	case 8: reconfigure(script); break;
	default: send_message(script, true); break;
	}
}

/* ---- beginning and end */

static void fill_page(struct script *script)
{
	size_t size = page_size(PAGE_QPS);
	uint8_t *bytes;

	s.page = page_create(PAGE_QPS, &s.page_fd);
	MUST(s.page);
	bytes = (uint8_t *)s.page;
	for (size_t i = 0; i < size; i += 61)
		bytes[i] = (uint8_t)script_take(script, i < 4096 ? 1 : 0);
	s.page->magic = PAGE_MAGIC;
	s.page->version = PAGE_VERSION;
	s.page->slots = PAGE_QPS;
	s.page->used_slots = PAGE_QPS;
	for (uint32_t i = 0; i < PAGE_QPS; i++) {
		s.page->qp[i].qpn = 16 + i;
		s.page->qp[i].sequence &= ~1u;
	}
}

static void start(struct script *script)
{
	const struct core_ops ops = { op_send, op_close, op_dial, op_log, op_random, op_queued,
		op_is_stuck, op_open_socket, op_has_socket, op_keep, NULL };
	uint32_t flags = script_take(script, 1);
	struct core_facts facts = { .socket = "/s",
		.listen = "0.0.0.0:7476",
		.metrics = "",
		.is_private = flags & 2,
		.pid = 1 };

	s = (struct state){ .now_ns = UINT64_C(1000000000000) };
	s.config = message_config();
	MUST(s.config);
	s.core = core_create(s.config, &ops, flags & 1, s.now_ns);
	MUST(s.core);
	core_set_facts(s.core, &facts);
	fill_page(script);
}

static void finish(void)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	MUST(out);
	core_refresh(s.core, s.now_ns);
	core_write_metrics(s.core, out, s.now_ns);
	fclose(out);
	MUST(size && text[size - 1] == '\n');
	free(text);
	core_destroy(s.core);
	MUST(s.pages == 0);
	config_free(s.config);
	munmap(s.page, page_size(PAGE_QPS));
	close(s.page_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, data + size };

	start(&script);
	for (int i = 0; i < STEPS && script.at < script.end; i++)
		step(&script);
	finish();
	return 0;
}
