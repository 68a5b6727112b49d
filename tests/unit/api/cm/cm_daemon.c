/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/api/cm/cm_daemon.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/fixtures/program.h"

enum { SERVICES = 16, BODIES = 80, QUEUE = 4096 };

struct service {
	char name[80];
	uint32_t listener; /* 0: free */
};

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	char path[100];
	pthread_t thread;
	int listen_fd, fd, stop_fd[2];
	uint8_t in[1 << 16];
	size_t n_in;
	uint64_t hold;
	int refuse_listens;
	struct service services[SERVICES];
	unsigned counts[BODIES];
	Ctl__Envelope *last[BODIES];
	Ctl__Envelope *held[QUEUE];
	unsigned n_held;
} stub = { .mutex = PTHREAD_MUTEX_INITIALIZER, .listen_fd = -1, .fd = -1 };

/* Check's assertions are for the thread of the test. */
static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "the daemon of the test: %s\n", what);
	abort();
}

void stub_prepare(void)
{
	snprintf(stub.path, sizeof(stub.path), "%s/ferruled.sock", test_folder());
	setenv("FRL_CONTROL", stub.path, 1);
	pthread_cond_init(&stub.changed, NULL);
}

/* Called with the mutex held. */
static void send_frame(const Ctl__Envelope *envelope)
{
	size_t size = frame_size(envelope), done = 0;
	uint8_t *frame = malloc(size);

	frame_pack(envelope, frame);
	while (stub.fd >= 0 && done < size) {
		ssize_t n = send(stub.fd, frame + done, size - done, MSG_NOSIGNAL);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	free(frame);
}

static Ctl__Envelope *copy(const Ctl__Envelope *envelope)
{
	size_t size = frame_size(envelope);
	uint8_t *frame = malloc(size);
	const char *why;
	Ctl__Envelope *same;

	frame_pack(envelope, frame);
	same = frame_unpack(frame, size, &why);
	must(same, why);
	free(frame);
	return same;
}

void stub_send(const Ctl__Envelope *envelope)
{
	pthread_mutex_lock(&stub.mutex);
	send_frame(envelope);
	pthread_mutex_unlock(&stub.mutex);
}

static void answer(const Ctl__Envelope *to, Ctl__Envelope__BodyCase body, void *message)
{
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.seq = to->seq;
	envelope.body_case = body;
	envelope.done = message; /* a union of pointers */
	send_frame(&envelope);
}

static void answer_failure(const Ctl__Envelope *to, int error, const char *text)
{
	Ctl__Failure failure = CTL__FAILURE__INIT;

	failure.error = (uint32_t)error;
	failure.text = (char *)(uintptr_t)text;
	answer(to, CTL__ENVELOPE__BODY_FAILURE, &failure);
}

static void answer_hello(const Ctl__Envelope *to)
{
	Ctl__Hello hello = CTL__HELLO__INIT;
	char name[] = STUB_HOST, release[] = "0";

	hello.role = CTL__ROLE__ROLE_DAEMON;
	hello.name = name;
	hello.release = release;
	hello.instance = 1;
	answer(to, CTL__ENVELOPE__BODY_HELLO, &hello);
}

static void answer_open_port(const Ctl__Envelope *to)
{
	Ctl__PortOpened opened = CTL__PORT_OPENED__INIT;
	Ctl__Lease lease = CTL__LEASE__INIT;

	opened.port = to->open_port->port;
	opened.lease = &lease;
	answer(to, CTL__ENVELOPE__BODY_PORT_OPENED, &opened);
}

static struct service *find_service(const char *name, uint32_t listener)
{
	for (int i = 0; i < SERVICES; i++) {
		struct service *service = &stub.services[i];

		if (name ? service->listener && strcmp(service->name, name) == 0
			 : service->listener == listener)
			return service;
	}
	return NULL;
}

static void take_listen(const Ctl__Envelope *from)
{
	const Ctl__Listen *listen = from->listen;
	const char *name = *listen->service ? listen->service : "chosen";
	Ctl__Listening listening = CTL__LISTENING__INIT;
	struct service *service;

	if (stub.refuse_listens) {
		answer_failure(from, stub.refuse_listens, "the test does not want it");
		return;
	}
	if (find_service(name, 0)) {
		answer_failure(from, EADDRINUSE, "it is offered already");
		return;
	}
	service = find_service(NULL, 0);
	must(service, "too many services");
	snprintf(service->name, sizeof(service->name), "%s", name);
	service->listener = listen->listener;
	listening.service = service->name;
	answer(from, CTL__ENVELOPE__BODY_LISTENING, &listening);
}

static void take_unlisten(uint32_t listener)
{
	struct service *service = find_service(NULL, listener);

	if (service)
		service->listener = 0;
}

static void refuse_request(const Ctl__ConnRequest *request)
{
	Ctl__ConnEnd end = CTL__CONN_END__INIT;
	char reason[] = "there is no such service";
	Ctl__Envelope envelope;

	end.uuid = request->uuid;
	end.error = ECONNREFUSED;
	end.reason = reason;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CONN_END;
	envelope.conn_end = &end;
	send_frame(&envelope);
}

/* From one end to the other: both are here. */
static void lead(Ctl__Envelope *envelope)
{
	Ctl__Who who = CTL__WHO__INIT;
	char host[] = STUB_HOST, program[] = STUB_PROGRAM;
	struct service *service;

	who.host = host;
	who.program = program;
	who.pid = 4321;
	who.uid = 77;
	if (envelope->body_case == CTL__ENVELOPE__BODY_CONN_REQUEST) {
		service = find_service(envelope->conn_request->service, 0);
		if (!service) {
			refuse_request(envelope->conn_request);
			return;
		}
		envelope->conn_request->listener = service->listener;
		envelope->conn_request->who = &who;
		send_frame(envelope);
		envelope->conn_request->who = NULL;
	} else if (envelope->body_case == CTL__ENVELOPE__BODY_CONN_REPLY) {
		envelope->conn_reply->who = &who;
		send_frame(envelope);
		envelope->conn_reply->who = NULL;
	} else {
		send_frame(envelope);
	}
}

/* Takes ownership of the message when it is held. */
static bool hold(Ctl__Envelope *envelope)
{
	if (!(stub.hold >> envelope->body_case & 1))
		return false;
	must(stub.n_held < QUEUE, "too many messages are held");
	stub.held[stub.n_held++] = envelope;
	return true;
}

static void take(Ctl__Envelope *envelope)
{
	Ctl__Done done = CTL__DONE__INIT;

	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_HELLO: answer_hello(envelope); break;
	case CTL__ENVELOPE__BODY_OPEN_PORT: answer_open_port(envelope); break;
	case CTL__ENVELOPE__BODY_DESCRIBE_PORT:
		answer(envelope, CTL__ENVELOPE__BODY_DONE, &done);
		break;
	case CTL__ENVELOPE__BODY_LISTEN: take_listen(envelope); break;
	case CTL__ENVELOPE__BODY_UNLISTEN: take_unlisten(envelope->unlisten->listener); break;
	case CTL__ENVELOPE__BODY_CONN_REQUEST:
	case CTL__ENVELOPE__BODY_CONN_REPLY:
	case CTL__ENVELOPE__BODY_CONN_READY:
	case CTL__ENVELOPE__BODY_CONN_END:
		if (hold(envelope))
			return;
		lead(envelope);
		break;
	default: break;
	}
	ctl__envelope__free_unpacked(envelope, NULL);
}

static void note(const Ctl__Envelope *envelope)
{
	unsigned body = envelope->body_case;

	must(body < BODIES, "a body that the test does not know");
	stub.counts[body]++;
	if (stub.last[body])
		ctl__envelope__free_unpacked(stub.last[body], NULL);
	stub.last[body] = copy(envelope);
	pthread_cond_broadcast(&stub.changed);
}

static void take_frames(void)
{
	size_t at = 0;
	int length;

	while ((length = frame_length(stub.in + at, stub.n_in - at, FRAME_MAX)) > 0) {
		const char *why;
		Ctl__Envelope *envelope = frame_unpack(stub.in + at, (size_t)length, &why);

		must(envelope, why);
		at += (size_t)length;
		note(envelope);
		take(envelope);
	}
	memmove(stub.in, stub.in + at, stub.n_in - at);
	stub.n_in -= at;
}

static void end_session(void)
{
	if (stub.fd >= 0)
		close(stub.fd);
	stub.fd = -1;
	stub.n_in = 0;
	memset(stub.services, 0, sizeof(stub.services));
}

static void receive(void)
{
	/* Received descriptors are dropped. */
	ssize_t n = recv(stub.fd, stub.in + stub.n_in, sizeof(stub.in) - stub.n_in, 0);

	pthread_mutex_lock(&stub.mutex);
	if (n > 0) {
		stub.n_in += (size_t)n;
		take_frames();
	} else {
		end_session();
	}
	pthread_mutex_unlock(&stub.mutex);
}

static void *stub_main(void *arg)
{
	for (;;) {
		struct pollfd fds[3] = {
			{ .fd = stub.stop_fd[0], .events = POLLIN },
			{ .fd = stub.listen_fd, .events = POLLIN },
			{ .fd = stub.fd, .events = POLLIN },
		};

		poll(fds, 3, -1);
		if (fds[0].revents)
			return NULL;
		if (fds[2].revents)
			receive();
		if (fds[1].revents) {
			pthread_mutex_lock(&stub.mutex);
			end_session();
			stub.fd = accept(stub.listen_fd, NULL, NULL);
			pthread_mutex_unlock(&stub.mutex);
		}
	}
}

void stub_start(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	memset(stub.counts, 0, sizeof(stub.counts));
	stub.hold = 0;
	must(pipe(stub.stop_fd) == 0, "no pipe");
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", stub.path);
	stub.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(bind(stub.listen_fd, (struct sockaddr *)&address, sizeof(address)) == 0,
		"cannot bind the socket");
	must(listen(stub.listen_fd, 8) == 0, "cannot listen");
	must(pthread_create(&stub.thread, NULL, stub_main, NULL) == 0, "no thread");
}

void stub_stop(void)
{
	must(write(stub.stop_fd[1], "", 1) == 1, "cannot write to the pipe");
	pthread_join(stub.thread, NULL);
	unlink(stub.path);
	close(stub.listen_fd);
	close(stub.stop_fd[0]);
	close(stub.stop_fd[1]);
	stub.listen_fd = -1;
	stub.refuse_listens = 0;
	end_session();
	for (unsigned i = 0; i < stub.n_held; i++)
		ctl__envelope__free_unpacked(stub.held[i], NULL);
	stub.n_held = 0;
	for (unsigned i = 0; i < BODIES; i++) {
		if (stub.last[i])
			ctl__envelope__free_unpacked(stub.last[i], NULL);
		stub.last[i] = NULL;
	}
}

void stub_hold(uint64_t bits)
{
	unsigned n, kept = 0;

	pthread_mutex_lock(&stub.mutex);
	stub.hold = bits;
	n = stub.n_held;
	for (unsigned i = 0; i < n; i++) {
		Ctl__Envelope *envelope = stub.held[i];

		if (bits >> envelope->body_case & 1) {
			stub.held[kept++] = envelope;
			continue;
		}
		lead(envelope);
		ctl__envelope__free_unpacked(envelope, NULL);
	}
	stub.n_held = kept;
	pthread_mutex_unlock(&stub.mutex);
}

void stub_refuse_listens(int error)
{
	pthread_mutex_lock(&stub.mutex);
	stub.refuse_listens = error;
	pthread_mutex_unlock(&stub.mutex);
}

bool stub_wait(Ctl__Envelope__BodyCase body, unsigned n)
{
	struct timespec limit;
	bool enough;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += HANG_S;
	pthread_mutex_lock(&stub.mutex);
	while (stub.counts[body] < n)
		if (pthread_cond_timedwait(&stub.changed, &stub.mutex, &limit))
			break;
	enough = stub.counts[body] >= n;
	pthread_mutex_unlock(&stub.mutex);
	return enough;
}

unsigned stub_count(Ctl__Envelope__BodyCase body)
{
	unsigned count;

	pthread_mutex_lock(&stub.mutex);
	count = stub.counts[body];
	pthread_mutex_unlock(&stub.mutex);
	return count;
}

Ctl__Envelope *stub_last(Ctl__Envelope__BodyCase body)
{
	Ctl__Envelope *envelope;

	pthread_mutex_lock(&stub.mutex);
	must(stub.last[body], "there was no such message");
	envelope = copy(stub.last[body]);
	pthread_mutex_unlock(&stub.mutex);
	return envelope;
}
