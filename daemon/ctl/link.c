/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/ctl/link.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/control/install.h"
#include "lib/control/spawn.h"

static int fail(struct link *link, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(struct link *link, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(link->error, sizeof(link->error), format, args);
	va_end(args);
	return error;
}

/* ---- search for the daemon */

/* Connects to the first place with a daemon. The error is that of the first place. */
static int try_places(struct link *link, const struct daemon_places *places)
{
	int first = -ENOTCONN;

	for (unsigned i = 0; i < places->n; i++) {
		size_t length = strlen(link->error);
		char why[512];
		int fd = daemon_connect(&places->list[i], why, sizeof(why));

		if (fd >= 0) {
			link->socket.fd = fd;
			memcpy(link->path, places->list[i].path, sizeof(link->path));
			return 0;
		}
		if (i == 0)
			first = fd;
		snprintf(link->error + length, sizeof(link->error) - length, "\n  %s", why);
	}
	return first;
}

static int find(struct link *link, const char *path)
{
	struct daemon_places places = { .n = 1 };
	char tries[LINK_TEXT];
	int err;

	if (!path)
		daemon_find_places(&places);
	else if (snprintf(places.list[0].path, LINK_PATH, "%s", path) >= LINK_PATH)
		return fail(link, -ENOTCONN, "%s is too long for the path of a socket", path);
	if (places.start == DAEMON_BAD_PATH)
		return fail(link, -ENOTCONN, "FRL_CONTROL must be auto, off, or a socket's path");
	if (!places.n)
		return fail(link, -ENOTCONN,
			"FRL_CONTROL=off disables the daemon. Unset it, or name the socket with "
			"--socket PATH.");
	err = try_places(link, &places);
	if (err == 0)
		return 0;
	snprintf(tries, sizeof(tries), "%s", link->error);
	if (err == -EACCES)
		return fail(link, err,
			"this user may not connect to the daemon:%.1200s\nA private daemon accepts "
			"its own user only; the system's accepts all users.",
			tries);
	return fail(link, -ENOTCONN,
		"no daemon can be reached:%.1200s\n"
		"Start the system's with `systemctl start ferruled`, yours with `ferruled "
		"--private`,\nor name the socket with --socket PATH. (A program that connects "
		"starts one.)",
		tries);
}

/* ---- frames */

static bool await(struct link *link, short events, uint64_t until_ns)
{
	struct pollfd wait = { .fd = link->socket.fd, .events = events };
	uint64_t now_ns = clock_now_ns();

	return now_ns < until_ns && poll(&wait, 1, (int)((until_ns - now_ns) / 1000000) + 1) != 0;
}

static uint64_t time_limit(void)
{
	return clock_now_ns() + LINK_TIMEOUT_MS * UINT64_C(1000000);
}

static int send_envelope(struct link *link, const Ctl__Envelope *envelope)
{
	struct outgoing *out = outgoing_new(envelope, -1);
	uint64_t until_ns = time_limit();
	struct list queue;
	size_t bytes = 0;

	if (!out)
		return fail(link, -ENOMEM, "no memory");
	list_init(&queue);
	list_add_tail(&queue, &out->node);
	while (control_socket_send(&link->socket, &queue, &bytes) == -EAGAIN &&
		await(link, POLLOUT, until_ns))
		;
	outgoing_drop(&queue);
	/* The daemon may have sent the reason before it closed the connection: it is read next. */
	return 0;
}

static int receive(struct link *link, Ctl__Envelope **ret)
{
	uint64_t until_ns = time_limit();

	for (;;) {
		const char *why;
		int err;

		*ret = control_socket_next(&link->socket, &why);
		if (*ret)
			return 0;
		if (why)
			return fail(link, -EPROTO, "the daemon at %s sent a bad message: %s",
				link->path, why);
		err = control_socket_receive(&link->socket);
		if (err == -EAGAIN && !await(link, POLLIN, until_ns))
			return fail(link, -ETIMEDOUT,
				"the daemon at %s has not answered for %d s: it hangs, or is "
				"stopped",
				link->path, LINK_TIMEOUT_MS / 1000);
		if (err && err != -EAGAIN)
			return fail(link, err == -ENOMEM ? err : -ENOTCONN,
				"the daemon at %s has closed the connection: %s", link->path,
				strerror(-err));
	}
}

static int send_hello(struct link *link)
{
	Ctl__Hello hello = CTL__HELLO__INIT;

	hello.role = CTL__ROLE__ROLE_OPERATOR;
	hello.name = (char *)"ferrulectl";
	hello.instance = random_entropy();
	hello.pid = (uint32_t)getpid();
	hello.release = (char *)FERRULE_RELEASE;
	return send_envelope(link, &ENVELOPE(0, HELLO, hello, &hello));
}

int link_open(struct link *link, const char *path)
{
	int err;

	*link = (struct link){ .seq = 0 };
	control_socket_init(&link->socket);
	err = find(link, path);
	return err ? err : send_hello(link);
}

void link_close(struct link *link)
{
	control_socket_close(&link->socket);
}

/* ---- answers */

static int append(void ***list, size_t *count, void *const *more, size_t n_more)
{
	void **longer;

	if (!n_more)
		return 0;
	longer = realloc(*list, (*count + n_more) * sizeof(*longer));
	if (!longer)
		return -ENOMEM;
	memcpy(longer + *count, more, n_more * sizeof(*longer));
	*list = longer;
	*count += n_more;
	return 0;
}

#define APPEND(to, from, list)                                                              \
	append((void ***)(void *)&(to)->list, &(to)->n_##list, (void *const *)(from)->list, \
		(from)->n_##list)

static int add_part(struct link *link, struct answer *answer, Ctl__Envelope *part)
{
	void *const parts[] = { part };
	const Ctl__Report *from;

	if (append((void ***)(void *)&answer->parts, &answer->n_parts, parts, 1)) {
		ctl__envelope__free_unpacked(part, NULL);
		return fail(link, -ENOMEM, "no memory");
	}
	if (part->body_case != CTL__ENVELOPE__BODY_REPORT)
		return 0;
	from = part->report;
	if (APPEND(&answer->report, from, ports) || APPEND(&answer->report, from, qps) ||
		APPEND(&answer->report, from, connections) || APPEND(&answer->report, from, peers))
		return fail(link, -ENOMEM, "no memory");
	answer->report.daemon = from->daemon;
	answer->report.peer_view = from->peer_view;
	answer->report.peer_error = from->peer_error;
	return 0;
}

void answer_free(struct answer *answer)
{
	size_t i;

	for (i = 0; i < answer->n_parts; i++)
		ctl__envelope__free_unpacked(answer->parts[i], NULL);
	free(answer->parts);
	free(answer->report.ports);
	free(answer->report.qps);
	free(answer->report.connections);
	free(answer->report.peers);
	*answer = (struct answer){ .parts = NULL };
}

/* A message that does not answer the request is a Hello, or a Failure without seq: the daemon
 * closes the connection. */
static int take(struct link *link, Ctl__Envelope *envelope, struct answer *answer, bool *ret_done)
{
	int err = 0;

	*ret_done = false;
	if (envelope->body_case == CTL__ENVELOPE__BODY_FAILURE &&
		(envelope->seq == link->seq || envelope->seq == 0)) {
		err = fail(link, -(int)envelope->failure->error, "%s", envelope->failure->text);
		if (err == 0)
			err = -EPROTO;
	} else if (envelope->version != CONTROL_VERSION) {
		err = fail(link, -EPROTO,
			"the daemon has version %u of the protocol, this ferrulectl version %d: "
			"install matching releases",
			envelope->version, CONTROL_VERSION);
	} else if (envelope->seq == link->seq && envelope->seq) {
		*ret_done = envelope->body_case != CTL__ENVELOPE__BODY_REPORT ||
			!envelope->report->more;
		if (answer)
			return add_part(link, answer, envelope);
	}
	ctl__envelope__free_unpacked(envelope, NULL);
	return err;
}

int link_ask(struct link *link, Ctl__Envelope *request, struct answer *answer)
{
	bool done = false;
	int err;

	if (answer) {
		*answer = (struct answer){ .parts = NULL };
		ctl__report__init(&answer->report);
	}
	request->seq = ++link->seq;
	err = send_envelope(link, request);
	while (!err && !done) {
		Ctl__Envelope *envelope;

		err = receive(link, &envelope);
		if (!err)
			err = take(link, envelope, answer, &done);
	}
	return err;
}
