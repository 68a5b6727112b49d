/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients of ferruled for tests/system/daemon-*.sh, well-behaved and not:
 *
 *	daemon-client ask SOCKET COUNT         requests one after another: median and longest, in us
 *	daemon-client stay SOCKET              a request now and then, until it is ended; prints
 *	                                       "there" when it is
 *	daemon-client flood SOCKET COUNT       COUNT clients at once that do all that one must not,
 *	                                       until SIGTERM and until the daemon has disconnected
 *	                                       some of each kind that it has to
 *	daemon-client slow SOCKET WAY          sends a descriptor that takes a day to close, in one
 *	                                       of the ways below, and waits for the daemon's end
 *	daemon-client join SOCKET HOST         joins a group at HOST: makes the daemon dial it
 *	daemon-client listen PATH|ADDR:PORT... -- COMMAND...
 *	                                       starts a command as systemd's socket activation does
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/control/frame.h"
#include "tests/fixtures/slow_file.h"

enum {
	MAX_CLIENTS = 1000,
	ANSWER_MS = 60000,
	PAUSE_MS = 20,
	FLOOD_BYTES = 4096,
	LARGE_BYTES = 1 << 20,
	RIGHTS = 20, /* descriptors in one message */
	GARBAGE_BYTES = 100000,
};

#define FLOOD_MAX_NS UINT64_C(600000000000) /* the test hangs */

static _Noreturn void give_up(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0)
		give_up("socket");
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* ---- one client that behaves */

static void send_message(int fd, const Ctl__Envelope *envelope)
{
	size_t size = frame_size(envelope), sent = 0;
	uint8_t *frame = malloc(size);

	if (!frame)
		give_up("malloc");
	frame_pack(envelope, frame);
	while (sent < size) {
		ssize_t now = send(fd, frame + sent, size - sent, MSG_NOSIGNAL);

		if (now < 0)
			give_up("send");
		sent += (size_t)now;
	}
	free(frame);
}

static void receive_bytes(int fd, uint8_t *to, size_t size)
{
	while (size) {
		struct pollfd readable = { fd, POLLIN, 0 };
		ssize_t got;

		if (poll(&readable, 1, ANSWER_MS) == 0) {
			fprintf(stderr, "no answer within %d ms\n", ANSWER_MS);
			exit(EXIT_FAILURE);
		}
		got = recv(fd, to, size, 0);
		if (got <= 0) {
			fprintf(stderr, "the daemon has closed the connection\n");
			exit(EXIT_FAILURE);
		}
		to += got;
		size -= (size_t)got;
	}
}

static Ctl__Envelope *receive_message(int fd)
{
	static uint8_t frame[FRAME_HEADER + FRAME_MAX];
	const char *why = "it is too long";
	Ctl__Envelope *envelope = NULL;
	uint32_t payload;

	receive_bytes(fd, frame, FRAME_HEADER);
	payload = get_be32(frame);
	if (payload <= FRAME_MAX) {
		receive_bytes(fd, frame + FRAME_HEADER, payload);
		envelope = frame_unpack(frame, FRAME_HEADER + payload, &why);
	}
	if (envelope)
		return envelope;
	fprintf(stderr, "a message of the daemon's: %s\n", why);
	exit(EXIT_FAILURE);
}

static void fill_hello(Ctl__Envelope *envelope, Ctl__Hello *hello)
{
	envelope_init(envelope);
	ctl__hello__init(hello);
	envelope->body_case = CTL__ENVELOPE__BODY_HELLO;
	envelope->hello = hello;
	hello->role = CTL__ROLE__ROLE_PROCESS;
	hello->name = (char *)"daemon-client";
	hello->instance = random_entropy();
	hello->pid = (uint32_t)getpid();
	hello->release = (char *)"0";
}

static int start_session(const char *path)
{
	Ctl__Envelope envelope, *answer;
	Ctl__Hello hello;
	int fd = connect_to(path);

	if (fd < 0)
		give_up(path);
	fill_hello(&envelope, &hello);
	send_message(fd, &envelope);
	answer = receive_message(fd);
	if (answer->body_case != CTL__ENVELOPE__BODY_HELLO) {
		fprintf(stderr, "no Hello from the daemon\n");
		exit(EXIT_FAILURE);
	}
	ctl__envelope__free_unpacked(answer, NULL);
	return fd;
}

static void fill_open(Ctl__Envelope *envelope, Ctl__OpenPort *open, uint64_t seq)
{
	envelope_init(envelope);
	ctl__open_port__init(open);
	envelope->body_case = CTL__ENVELOPE__BODY_OPEN_PORT;
	envelope->open_port = open;
	envelope->seq = seq;
	open->port = 1;
}

/* Opens and closes a port; measures the time of the answer. */
static uint64_t round_trip_ns(int fd, uint64_t seq)
{
	Ctl__ClosePort close_port = CTL__CLOSE_PORT__INIT;
	Ctl__Envelope envelope, *answer;
	uint64_t began_ns = clock_now_ns();
	Ctl__OpenPort open;

	fill_open(&envelope, &open, seq);
	send_message(fd, &envelope);
	answer = receive_message(fd);
	if (answer->body_case != CTL__ENVELOPE__BODY_PORT_OPENED || answer->seq != seq) {
		fprintf(stderr, "another answer than was asked for: %d\n", answer->body_case);
		exit(EXIT_FAILURE);
	}
	ctl__envelope__free_unpacked(answer, NULL);
	began_ns = clock_now_ns() - began_ns;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CLOSE_PORT;
	envelope.close_port = &close_port;
	close_port.port = 1;
	send_message(fd, &envelope);
	return began_ns;
}

static int compare(const void *a, const void *b)
{
	uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;

	return first < second ? -1 : first > second;
}

static int ask(const char *path, int count)
{
	uint64_t *times = calloc((size_t)count, sizeof(*times));
	int fd = start_session(path);

	if (!times || count < 1)
		give_up("ask");
	for (int i = 0; i < count; i++)
		times[i] = round_trip_ns(fd, (uint64_t)i + 1);
	qsort(times, (size_t)count, sizeof(*times), compare);
	printf("%llu %llu\n", (unsigned long long)(times[count / 2] / 1000),
		(unsigned long long)(times[count - 1] / 1000));
	free(times);
	close(fd);
	return EXIT_SUCCESS;
}

static _Noreturn void stay(const char *path)
{
	int fd = start_session(path);

	for (uint64_t seq = 1;; seq++) {
		round_trip_ns(fd, seq);
		if (seq == 1 && puts("there") >= 0)
			fflush(stdout);
		poll(NULL, 0, PAUSE_MS);
	}
}

static int join(const char *path, const char *host)
{
	uint8_t member[UUID_SIZE];
	Ctl__GroupJoin group = CTL__GROUP_JOIN__INIT;
	Ctl__Envelope envelope, *answer;
	int fd = start_session(path), status = EXIT_FAILURE;

	for (size_t i = 0; i < sizeof(member); i++)
		member[i] = (uint8_t)random_entropy();
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_JOIN;
	envelope.group_join = &group;
	envelope.seq = 1;
	group.member = (ProtobufCBinaryData){ sizeof(member), member };
	group.job = (char *)"job";
	group.host = (char *)(uintptr_t)host;
	group.ranks = 1;
	send_message(fd, &envelope);
	answer = receive_message(fd);
	if (answer->body_case == CTL__ENVELOPE__BODY_FAILURE) {
		printf("%s\n", answer->failure->text);
	} else if (answer->body_case == CTL__ENVELOPE__BODY_GROUP_JOINED) {
		puts("joined");
		status = EXIT_SUCCESS;
	} else {
		printf("another answer: %d\n", answer->body_case);
	}
	ctl__envelope__free_unpacked(answer, NULL);
	close(fd);
	return status;
}

/* ---- many that do not */

enum kind {
	KIND_DEAF,    /* asks without end and reads nothing */
	KIND_GREEDY,  /* asks without end */
	KIND_STALL,   /* stops in mid-message */
	KIND_GARBAGE, /* no messages at all */
	KIND_LONG,    /* a message of 4 GiB, so it says */
	KIND_RIGHTS,  /* descriptors that nobody asked for */
	KIND_SILENT,  /* says nothing */
	KIND_LARGE,   /* the longest messages, that cost most to take apart */
	KINDS,
};

static const char *const kind_names[KINDS] = { "deaf", "greedy", "stall", "garbage", "long",
	"rights", "silent", "large" };

struct client {
	enum kind kind;
	int fd;      /* or -1 */
	size_t sent; /* of what it sends first */
	bool began;
};

struct flood {
	struct client clients[MAX_CLIENTS];
	struct pollfd polls[MAX_CLIENTS];
	uint8_t hello[256];
	size_t hello_size;
	uint8_t requests[FLOOD_BYTES]; /* whole messages */
	size_t requests_size;
	uint8_t large[FRAME_HEADER + LARGE_BYTES];
	unsigned long closed[KINDS]; /* by the daemon */
	unsigned long long bytes;
};

static void fill_flood(struct flood *flood)
{
	Ctl__Envelope envelope;
	Ctl__OpenPort open;
	Ctl__Hello hello;
	size_t at = FRAME_HEADER, rest = LARGE_BYTES - 6;

	fill_hello(&envelope, &hello);
	flood->hello_size = frame_size(&envelope);
	frame_pack(&envelope, flood->hello);
	fill_open(&envelope, &open, 1);
	while (flood->requests_size + frame_size(&envelope) <= FLOOD_BYTES) {
		frame_pack(&envelope, flood->requests + flood->requests_size);
		flood->requests_size += frame_size(&envelope);
	}
	/* A Report of empty ports: two bytes each in the message, some hundred in memory. */
	put_be32(flood->large, LARGE_BYTES);
	flood->large[at++] = 0x08;
	flood->large[at++] = CONTROL_VERSION;
	flood->large[at++] = 0xba;
	flood->large[at++] = 0x04;
	rest = LARGE_BYTES - 7;
	flood->large[at++] = (uint8_t)(0x80 | (rest & 0x7f));
	flood->large[at++] = (uint8_t)(0x80 | (rest >> 7 & 0x7f));
	flood->large[at++] = (uint8_t)(rest >> 14);
	for (; at + 1 < sizeof(flood->large); at += 2)
		flood->large[at] = 0x0a;
}

static void send_rights(int fd)
{
	union {
		struct cmsghdr align;
		uint8_t bytes[CMSG_SPACE(RIGHTS * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { (void *)(uintptr_t) "\0", 1 };
	struct msghdr message = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
	int fds[RIGHTS];

	for (int i = 0; i < RIGHTS; i++)
		fds[i] = STDIN_FILENO;
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(cmsg), fds, sizeof(fds));
	sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void client_end(struct flood *flood, struct client *client)
{
	close(client->fd);
	client->fd = -1;
	flood->closed[client->kind]++;
}

/* The next message of this kind of client, and its length; 0: none. */
static size_t next_bytes(struct flood *flood, struct client *client, const uint8_t **ret)
{
	static const uint8_t garbage[] = "GET / HTTP/1.1\r\n\r\n",
			     huge[] = { 0xff, 0xff, 0xff, 0xff };

	switch (client->kind) {
	case KIND_DEAF:
	case KIND_GREEDY: *ret = flood->requests; return flood->requests_size;
	case KIND_LARGE: *ret = flood->large; return sizeof(flood->large);
	case KIND_STALL: *ret = flood->requests; return client->sent ? 0 : 10;
	case KIND_GARBAGE: *ret = garbage; return sizeof(garbage);
	case KIND_LONG: *ret = huge; return sizeof(huge);
	default: return 0;
	}
}

static void client_send(struct flood *flood, struct client *client)
{
	bool says_hello = client->kind <= KIND_STALL || client->kind == KIND_LARGE;
	const uint8_t *bytes = NULL;
	size_t size, at;
	ssize_t sent;

	if (!client->began) {
		client->began = true;
		if (says_hello)
			send(client->fd, flood->hello, flood->hello_size, MSG_NOSIGNAL);
		if (client->kind == KIND_RIGHTS)
			send_rights(client->fd);
		return;
	}
	size = next_bytes(flood, client, &bytes);
	if (!size)
		return;
	at = client->kind == KIND_STALL ? 0 : client->sent % size;
	sent = send(client->fd, bytes + at, size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent > 0) {
		client->sent += (size_t)sent;
		flood->bytes += (size_t)sent;
	} else if (sent < 0 && errno != EAGAIN) {
		client_end(flood, client);
	}
}

static void client_read(struct flood *flood, struct client *client)
{
	static uint8_t bytes[65536];
	ssize_t got = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (got == 0 || (got < 0 && errno != EAGAIN))
		client_end(flood, client);
}

static void client_go_on(struct flood *flood, struct client *client, short events)
{
	/* The kind that does not read would miss the end, too: it reads when it can write no
	 * more. */
	if (events & (POLLIN | POLLHUP | POLLERR) && client->kind != KIND_DEAF)
		client_read(flood, client);
	else if (events & (POLLHUP | POLLERR))
		client_end(flood, client);
	if (client->fd >= 0 && events & POLLOUT)
		client_send(flood, client);
}

static short wanted(const struct client *client)
{
	bool is_quiet = client->kind == KIND_SILENT || client->kind == KIND_RIGHTS ||
		(client->kind == KIND_STALL && client->sent);

	return (short)((client->kind == KIND_DEAF ? 0 : POLLIN) |
		(client->began && is_quiet ? 0 : POLLOUT));
}

static volatile sig_atomic_t enough;

static void on_enough(int number)
{
	enough = 1;
}

/* All kinds but those that only ask too much. */
static bool each_kind_was_closed(const struct flood *flood)
{
	for (int kind = KIND_STALL; kind < KINDS; kind++)
		if (!flood->closed[kind])
			return false;
	return true;
}

static int flood(const char *path, int count)
{
	static struct flood flood;
	uint64_t last_ns = clock_now_ns() + FLOOD_MAX_NS;

	if (count > MAX_CLIENTS)
		count = MAX_CLIENTS;
	signal(SIGTERM, on_enough);
	fill_flood(&flood);
	for (int i = 0; i < count; i++)
		flood.clients[i] = (struct client){ (enum kind)(i % KINDS), -1, 0, false };
	while (!(enough && each_kind_was_closed(&flood)) && clock_now_ns() < last_ns) {
		for (int i = 0; i < count; i++) {
			struct client *client = &flood.clients[i];

			if (client->fd < 0) {
				*client = (struct client){ client->kind, connect_to(path), 0,
					false };
				if (client->fd < 0)
					give_up(path);
			}
			flood.polls[i] = (struct pollfd){ client->fd, wanted(client), 0 };
		}
		poll(flood.polls, (nfds_t)count, 100);
		for (int i = 0; i < count; i++)
			client_go_on(&flood, &flood.clients[i], flood.polls[i].revents);
	}
	for (int i = 0; i < KINDS; i++)
		printf("%s %lu\n", kind_names[i], flood.closed[i]);
	printf("bytes %llu\n", flood.bytes);
	return EXIT_SUCCESS;
}

/* ---- one that sends what is slow to close */

enum { MESSAGE_SIZE = 128 };

static size_t pack_request(uint8_t frame[MESSAGE_SIZE], bool is_page)
{
	Ctl__DescribePort describe = CTL__DESCRIBE_PORT__INIT;
	uint8_t nonce[UUID_SIZE] = { 0 };
	Ctl__Envelope envelope;
	Ctl__OpenPort open;

	fill_open(&envelope, &open, 1);
	if (is_page) {
		describe.port = 1;
		describe.nonce = (ProtobufCBinaryData){ sizeof(nonce), nonce };
		envelope.body_case = CTL__ENVELOPE__BODY_DESCRIBE_PORT;
		envelope.describe_port = &describe;
	}
	frame_pack(&envelope, frame);
	return frame_size(&envelope);
}

/* Ends the session, with more bytes than the daemon reads at once: the rest stays queued. */
static void send_garbage(int fd)
{
	static uint8_t garbage[GARBAGE_BYTES];

	memset(garbage, 0xff, sizeof(garbage));
	if (send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL) != GARBAGE_BYTES)
		give_up("send");
}

/* A way is `request` (with a message that has no use for it), `page` (as if it were a port's page),
 * `many` (as many as one message can have), `oob` (with a byte out of band), or `queued` (behind a
 * message that ends the session). The daemon must be stopped until all is sent: otherwise this
 * process may be the last to close it. */
static int slow(const char *path, const char *way)
{
	bool is_oob = strcmp(way, "oob") == 0, is_queued = strcmp(way, "queued") == 0;
	size_t n = strcmp(way, "many") == 0 ? SLOW_FILE_MOST : 1, size;
	int fd = connect_to(path), reader, file = slow_file(&reader);
	uint8_t frame[MESSAGE_SIZE];
	Ctl__Envelope envelope;
	Ctl__Hello hello;

	if (fd < 0 || file < 0)
		give_up("slow");
	fill_hello(&envelope, &hello);
	send_message(fd, &envelope);
	size = is_oob ? 1 : pack_request(frame, strcmp(way, "page") == 0);
	if (is_queued)
		send_garbage(fd);
	if (slow_file_send(fd, frame, size, file, n, is_oob ? MSG_OOB : 0) != (ssize_t)size)
		give_up("sendmsg");
	close(file);
	if (is_oob)
		send(fd, frame, size, MSG_NOSIGNAL);
	puts("sent");
	fflush(stdout);
	while (recv(fd, frame, sizeof(frame), 0) > 0)
		;
	puts("ended");
	fflush(stdout);
	for (;;)
		pause();
}

/* ---- as systemd does it */

static int listen_unix(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(fd, 16) < 0)
		give_up(path);
	return fd;
}

static int listen_tcp(const char *place)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	char host[64];

	snprintf(host, sizeof(host), "%.*s", (int)strcspn(place, ":"), place);
	address.sin_port = htons((uint16_t)atoi(strchr(place, ':') + 1));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (inet_pton(AF_INET, host, &address.sin_addr) != 1 ||
		bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 16) < 0)
		give_up(place);
	return fd;
}

static int start_with_sockets(char **argv)
{
	int fds[8], count = 0;
	char text[16];

	for (; *argv && strcmp(*argv, "--") && count < 8; argv++)
		fds[count++] = **argv == '/' ? listen_unix(*argv) : listen_tcp(*argv);
	/* 3 and up, as sd_listen_fds(3) expects them. Move them out of each other's way first. */
	for (int i = 0; i < count; i++)
		fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 100);
	for (int i = 0; i < count; i++)
		dup2(fds[i], 3 + i);
	snprintf(text, sizeof(text), "%d", count);
	setenv("LISTEN_FDS", text, 1);
	snprintf(text, sizeof(text), "%d", (int)getpid());
	setenv("LISTEN_PID", text, 1);
	if (!*argv || !argv[1])
		return EXIT_FAILURE;
	execv(argv[1], argv + 1);
	give_up(argv[1]);
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "ask") == 0)
		return ask(argv[2], atoi(argv[3]));
	if (argc == 3 && strcmp(argv[1], "stay") == 0)
		stay(argv[2]);
	if (argc == 4 && strcmp(argv[1], "flood") == 0)
		return flood(argv[2], atoi(argv[3]));
	if (argc == 4 && strcmp(argv[1], "slow") == 0)
		return slow(argv[2], argv[3]);
	if (argc == 4 && strcmp(argv[1], "join") == 0)
		return join(argv[2], argv[3]);
	if (argc > 3 && strcmp(argv[1], "listen") == 0)
		return start_with_sockets(argv + 2);
	fprintf(stderr, "see the head of tests/system/daemon/daemon_client.c\n");
	return EXIT_FAILURE;
}
