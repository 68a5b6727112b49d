/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes of the harness: sessions, mail, and what they say. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/unit/core_world_internal.h"

void process_receive(struct process *process, Ctl__Envelope *envelope)
{
	struct process_mail *item = calloc(1, sizeof(*item));

	ck_assert_ptr_nonnull(item);
	item->envelope = envelope;
	if (process->last)
		process->last->next = item;
	else
		process->first = item;
	process->last = item;
}

/* A new local session of the process. False: refused. */
static bool join(struct process *process)
{
	struct world *world = process->world;
	struct world_host *host = &world->hosts[process->host];
	struct core_session_info info = { .kind = process->is_daemon ? CORE_PEER : CORE_LOCAL,
		.address = process->is_daemon ? "10.9.9.9" : NULL,
		.uid = process->uid,
		.pid = (pid_t)process->pid,
		.program = "test" };
	struct pipe *pipe = world_new_pipe(world);

	pipe->process = process;
	pipe->host[0] = process->host;
	pipe->host[1] = -1;
	pipe->session[0] = process->session = world->next_session++;
	pipe->open[0] = pipe->open[1] = true;
	process->ended = false;
	if (core_opened(host->core, process->session, &info, world->now_ns))
		return true;
	world_close_session(host, process->session);
	return false;
}

static struct process *new_process(
	struct world *world, int host, uint32_t uid, uint32_t pid, bool is_daemon)
{
	struct process *process = calloc(1, sizeof(*process));

	ck_assert_ptr_nonnull(process);
	process->is_daemon = is_daemon;
	process->world = world;
	process->host = host;
	process->uid = uid;
	process->pid = pid;
	process->next = world->processes;
	world->processes = process;
	return join(process) ? process : NULL;
}

struct process *world_stranger(struct world *world, int host, uint32_t uid, uint32_t pid)
{
	return new_process(world, host, uid, pid, false);
}

struct process *world_rogue(struct world *world, int host)
{
	return new_process(world, host, 0, 0, true);
}

static void say_hello(struct process *process, Ctl__Role role, bool resumes)
{
	Ctl__Hello hello = CTL__HELLO__INIT;
	Ctl__Envelope *answer;

	hello.role = role;
	hello.name = (char *)"test";
	hello.instance = process->pid * UINT64_C(0x9e3779b97f4a7c15);
	hello.pid = process->pid;
	hello.resumes = resumes;
	process_say(process, CTL__ENVELOPE__BODY_HELLO, &hello);
	world_settle(process->world);
	answer = process_take(process, CTL__ENVELOPE__BODY_HELLO);
	ck_assert_msg(answer != NULL, "the daemon does not answer a Hello");
	ctl__envelope__free_unpacked(answer, NULL);
}

struct process *world_process(struct world *world, int host, uint32_t uid, uint32_t pid)
{
	struct process *process = world_stranger(world, host, uid, pid);

	ck_assert_msg(process != NULL, "the daemon refuses a session");
	say_hello(process, CTL__ROLE__ROLE_PROCESS, false);
	return process;
}

struct process *world_operator(struct world *world, int host, uint32_t uid)
{
	struct process *process = world_stranger(world, host, uid, 99000);

	ck_assert_msg(process != NULL, "the daemon refuses a session");
	say_hello(process, CTL__ROLE__ROLE_OPERATOR, false);
	return process;
}

void process_come_back(struct process *process)
{
	ck_assert(join(process));
	say_hello(process, CTL__ROLE__ROLE_PROCESS, true);
}

void process_die(struct process *process)
{
	int side;
	struct pipe *pipe = world_pipe(process->world, process->host, process->session, &side);

	pipe->open[1] = false;
	world_schedule(process->world, EVENT_CLOSED, pipe, 0, 0)->end = CORE_END_CLOSED;
	process->ended = true;
}

void process_send(struct process *process, Ctl__Envelope *envelope)
{
	int side;
	struct pipe *pipe = world_pipe(process->world, process->host, process->session, &side);

	if (!process->ended)
		world_transmit(process->world, pipe, 0, envelope);
}

Ctl__Envelope envelope_of(Ctl__Envelope__BodyCase body, void *message)
{
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = body;
	envelope.hello = message; /* all members of the union are pointers to messages */
	return envelope;
}

void process_say(struct process *process, Ctl__Envelope__BodyCase body, void *message)
{
	Ctl__Envelope envelope = envelope_of(body, message);

	process_send(process, &envelope);
}

void process_page(struct process *process, const struct page *page)
{
	const struct page_view handed = world_view(process->world, page);

	core_page(process->world->hosts[process->host].core, process->session, &handed);
}

static Ctl__Envelope *take(struct process *process, bool any, Ctl__Envelope__BodyCase body)
{
	struct process_mail *item, *before = NULL;
	Ctl__Envelope *envelope;

	for (item = process->first; item; before = item, item = item->next) {
		if (any || item->envelope->body_case == body)
			break;
	}
	if (!item)
		return NULL;
	if (before)
		before->next = item->next;
	else
		process->first = item->next;
	if (process->last == item)
		process->last = before;
	envelope = item->envelope;
	free(item);
	return envelope;
}

Ctl__Envelope *process_ask(struct process *process, Ctl__Envelope__BodyCase body, void *message)
{
	Ctl__Envelope envelope = envelope_of(body, message);

	return process_call(process, &envelope);
}

Ctl__Envelope *process_take(struct process *process, Ctl__Envelope__BodyCase body)
{
	return take(process, false, body);
}

Ctl__Envelope *process_take_any(struct process *process)
{
	return take(process, true, 0);
}

unsigned process_mail(const struct process *process)
{
	unsigned n = 0;

	for (const struct process_mail *item = process->first; item; item = item->next)
		n++;
	return n;
}

Ctl__Envelope *process_call(struct process *process, Ctl__Envelope *envelope)
{
	uint64_t seq = process->world->next_seq++;
	struct process_mail *item;

	envelope->seq = seq;
	process_send(process, envelope);
	world_settle(process->world);
	for (item = process->first; item; item = item->next) {
		if (item->envelope->seq == seq)
			break;
	}
	if (!item)
		return NULL;
	/* Nobody else has this seq: take the first that is the same message. */
	for (struct process_mail **at = &process->first; *at; at = &(*at)->next) {
		if (*at != item)
			continue;
		*at = item->next;
		break;
	}
	if (process->last == item) {
		process->last = process->first;
		while (process->last && process->last->next)
			process->last = process->last->next;
	}
	envelope = item->envelope;
	free(item);
	return envelope;
}

static void port_identity(const struct process *process, uint32_t number, uint8_t mac[6],
	uint8_t nonce[16], uint8_t ip[4])
{
	memset(nonce, 0, 16);
	put_be32(nonce, process->pid);
	put_be32(nonce + 4, number);
	put_be32(nonce + 8, (uint32_t)process->host);
	mac[0] = 2;
	mac[1] = (uint8_t)process->host;
	put_be32(mac + 2, process->pid << 4 | number);
	ip[0] = 169;
	ip[1] = 254;
	ip[2] = (uint8_t)(process->pid >> 8);
	ip[3] = (uint8_t)process->pid;
}

void process_open_port(struct process *process, uint32_t number)
{
	Ctl__DescribePort describe = CTL__DESCRIBE_PORT__INIT;
	Ctl__OpenPort open = CTL__OPEN_PORT__INIT;
	uint8_t mac[6], nonce[16], ip[4];
	char text[32], *addresses = text;
	Ctl__Envelope *answer;

	open.port = number;
	answer = process_ask(process, CTL__ENVELOPE__BODY_OPEN_PORT, &open);
	ck_assert(answer && answer->body_case == CTL__ENVELOPE__BODY_PORT_OPENED);
	ctl__envelope__free_unpacked(answer, NULL);
	port_identity(process, number, mac, nonce, ip);
	snprintf(text, sizeof(text), "%u.%u.%u.%u/16", ip[0], ip[1], ip[2], ip[3]);
	describe.port = number;
	describe.device = (char *)"memif";
	describe.mac = (ProtobufCBinaryData){ sizeof(mac), mac };
	describe.nonce = (ProtobufCBinaryData){ sizeof(nonce), nonce };
	describe.addresses = &addresses;
	describe.n_addresses = 1;
	describe.path_mtu = 4096;
	answer = process_ask(process, CTL__ENVELOPE__BODY_DESCRIBE_PORT, &describe);
	ck_assert(answer && answer->body_case == CTL__ENVELOPE__BODY_DONE);
	ctl__envelope__free_unpacked(answer, NULL);
}

/* As lib/api/endpoint.c lays it out. */
void process_endpoint(const struct process *process, uint32_t number, uint32_t qpn,
	uint8_t endpoint[ENDPOINT_BYTES])
{
	uint8_t *ip = endpoint + 24;

	memset(endpoint, 0, ENDPOINT_BYTES);
	put_be32(endpoint, 0x46524c45);
	put_be16(endpoint + 4, 2);
	put_be16(endpoint + 6, 1);
	put_be32(endpoint + 8, qpn);
	put_be32(endpoint + 12, 0x123456);
	put_be16(endpoint + 22, 4096);
	ip[10] = ip[11] = 0xff;
	port_identity(process, number, endpoint + 16, endpoint + 44, ip + 12);
	endpoint[60] = 2;
	endpoint[61] = 1;
	endpoint[62] = 16;
}
