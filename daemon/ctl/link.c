/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/ctl/link.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/control/install.h"

#define SYSTEM_SOCKET "/run/ferrule/ferruled.sock"

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

/* ---- finding it */

static void tried(struct link *link, const char *path, const char *why)
{
	size_t length = strlen(link->error);

	snprintf(link->error + length, sizeof(link->error) - length, "\n  %s: %s", path, why);
}

static int try_path(struct link *link, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, error;

	if (strlen(path) >= sizeof(address.sun_path)) {
		tried(link, path, "the path is too long for a socket");
		return -EINVAL;
	}
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
		link->fd = fd;
		snprintf(link->path, sizeof(link->path), "%s", path);
		return 0;
	}
	error = errno;
	if (fd >= 0)
		close(fd);
	tried(link, path, error == ECONNREFUSED ? "nobody listens there" : strerror(error));
	return -error;
}

/* A folder in /tmp is anybody's to make: only one's own counts. */
static bool is_own(const char *folder)
{
	struct stat info;

	return lstat(folder, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
		(info.st_mode & 077) == 0;
}

static int search(struct link *link)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char folder[64], path[4096];
	int first;

	first = try_path(link, SYSTEM_SOCKET);
	if (first == 0)
		return 0;
	if (runtime && runtime[0] == '/') {
		snprintf(path, sizeof(path), "%s/ferrule/ferruled.sock", runtime);
		if (try_path(link, path) == 0)
			return 0;
	}
	snprintf(folder, sizeof(folder), "/tmp/ferrule-%u", (unsigned)geteuid());
	snprintf(path, sizeof(path), "%s/ferruled.sock", folder);
	if (access(folder, F_OK) == 0 && !is_own(folder))
		tried(link, path, "the folder is not this user's alone");
	else if (try_path(link, path) == 0)
		return 0;
	return first == -EACCES ? first : -ENOTCONN;
}

static int find(struct link *link, const char *path)
{
	const char *control = getenv("FRL_CONTROL");
	char tries[LINK_TEXT];
	int err;

	if (!path && control && control[0] && strcmp(control, "auto") != 0) {
		if (strcmp(control, "off") == 0)
			return fail(link, -ENOTCONN,
				"FRL_CONTROL=off: there is to be no daemon. Unset it, or name the "
				"socket with --socket PATH.");
		path = control;
	}
	err = path ? try_path(link, path) : search(link);
	if (err == 0)
		return 0;
	snprintf(tries, sizeof(tries), "%s", link->error);
	if (err == -EACCES)
		return fail(link, err,
			"this user may not connect to the daemon:%.1200s\nA private daemon is its "
			"user's alone; the system's lets everybody in.",
			tries);
	fail(link, err,
		"no daemon can be reached:%.1200s\n"
		"Start the system's with `systemctl start ferruled`, one of your own with "
		"`ferruled --private`,\nor name the socket with --socket PATH. (Programs that use "
		"Ferrule start a private one when they\nconnect; it ends when they have.)",
		tries);
	return -ENOTCONN;
}

/* ---- frames */

static int send_envelope(struct link *link, const Ctl__Envelope *envelope)
{
	size_t size = frame_size(envelope), done = 0;
	uint8_t *frame = malloc(size);

	if (!frame)
		return fail(link, -ENOMEM, "no memory");
	frame_pack(envelope, frame);
	while (done < size) {
		ssize_t sent = send(link->fd, frame + done, size - done, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			break;
		done += (size_t)sent;
	}
	free(frame);
	/* What it said before it hung up is still to be read: it may be the reason. */
	return 0;
}

/* Waits for more; -ETIMEDOUT, -ENOTCONN at the end of the stream. */
static int receive_more(struct link *link, uint64_t until_ns)
{
	struct pollfd wait = { .fd = link->fd, .events = POLLIN };
	uint64_t now_ns = clock_now_ns();
	ssize_t got;

	if (now_ns >= until_ns || poll(&wait, 1, (int)((until_ns - now_ns) / 1000000) + 1) == 0)
		return fail(link, -ETIMEDOUT,
			"the daemon at %s has not answered for %d s: it hangs, "
			"or is stopped",
			link->path, LINK_TIMEOUT_MS / 1000);
	if (link->room - link->size < 65536) {
		uint8_t *more = realloc(link->bytes, link->room + 262144);

		if (!more)
			return fail(link, -ENOMEM, "no memory");
		link->bytes = more;
		link->room += 262144;
	}
	got = recv(link->fd, link->bytes + link->size, link->room - link->size, 0);
	if (got < 0 && errno == EINTR)
		return 0;
	if (got <= 0)
		return fail(link, -ENOTCONN, "the daemon at %s has closed the connection%s%s",
			link->path, got < 0 ? ": " : "", got < 0 ? strerror(errno) : "");
	link->size += (size_t)got;
	return 0;
}

static int receive(struct link *link, uint64_t until_ns, Ctl__Envelope **ret)
{
	const char *why = "";
	int length;

	for (;;) {
		int err;

		length = frame_length(link->bytes, link->size, FRAME_MAX);
		if (length > 0)
			break;
		if (length < 0)
			return fail(link, -EPROTO, "%s does not speak the protocol of ferruled",
				link->path);
		err = receive_more(link, until_ns);
		if (err)
			return err;
	}
	*ret = frame_unpack(link->bytes, (size_t)length, &why);
	link->size -= (size_t)length;
	memmove(link->bytes, link->bytes + length, link->size);
	if (!*ret)
		return fail(
			link, -EPROTO, "the daemon at %s sent a bad message: %s", link->path, why);
	return 0;
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

	*link = (struct link){ .fd = -1 };
	err = find(link, path);
	if (err)
		return err;
	return send_hello(link);
}

void link_close(struct link *link)
{
	if (link->fd >= 0)
		close(link->fd);
	link->fd = -1;
	free(link->bytes);
	link->bytes = NULL;
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

/* What is no part of an answer is Hello, or Failure without seq: the daemon hangs up. */
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
			"the daemon speaks version %u of the protocol, this ferrulectl version %d",
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

		err = receive(
			link, clock_now_ns() + LINK_TIMEOUT_MS * UINT64_C(1000000), &envelope);
		if (!err)
			err = take(link, envelope, answer, &done);
	}
	return err;
}
