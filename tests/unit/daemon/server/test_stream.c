/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/server/stream.c and turns.c over socket pairs, without a core: which senders wait when
 * another daemon's stream is slow, and that no others do. And the loop does not sleep, whatever
 * descriptors a process sends.
 */
#include "daemon/server/stream.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <check.h>

#include "lib/base/clock.h"
#include "lib/control/frame.h"
#include "lib/control/socket.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/slow_file.h"

enum {
	PEER = 1,
	ASKER = 2,
	RANKS = 3, /* and up */
	N_RANKS = 48,
	PIECES = 2,
	PIECE = 1 << 20,
	OWNER_MAX = (32 << 20) / PIECE, /* pieces on their way */
	/* The capacity of a peer's stream and its socket, and a short message of each rank. */
	PEER_MAX = (2 << 20) + (1 << 19) + N_RANKS * 1024,
	/* Nothing moves any more if nothing has for that long, and that many turns. */
	SETTLE_MS = 150,
	SETTLE_TURNS = 100,
	GARBAGE = 100000, /* bytes, more than are read at once */
};

static struct event_base *base;
static struct streams *streams;
static int ends[RANKS + N_RANKS]; /* ours; the streams have the others */
static size_t sent[RANKS + N_RANKS];
static unsigned n_ended, n_pieces, n_pings, n_passed;
static bool peer_ended;
static bool without_question;
static uint8_t *piece;
static size_t piece_size;
static size_t most, held; /* bytes that the peer's stream has had at once */

/* ---- the handler: passes pieces on to the peer, answers pings */

static bool opened(void *ctx, struct stream *stream)
{
	uint64_t id = stream_id(stream);

	return id == PEER || stream_set_owner(stream, id < RANKS);
}

static struct stream *blocked_by(
	void *ctx, struct stream *stream, const Ctl__Envelope *envelope, size_t size)
{
	struct stream *peer = stream_find(streams, PEER);

	if (without_question || envelope->body_case != CTL__ENVELOPE__BODY_GROUP_PIECE || !peer)
		return NULL;
	return stream_has_room(peer, size) ? NULL : peer;
}

static void message(void *ctx, struct stream *stream, const Ctl__Envelope *envelope, int fd)
{
	struct stream *peer = stream_find(streams, PEER);

	if (fd >= 0) {
		n_passed++;
		close(fd);
	}
	if (envelope->body_case == CTL__ENVELOPE__BODY_GROUP_PIECE) {
		n_pieces++;
		if (peer) {
			held += frame_size(envelope);
			most = held > most ? held : most;
			stream_send(peer, envelope);
		}
	} else {
		n_pings++;
		stream_send(stream, envelope);
	}
}

static void ended(
	void *ctx, struct stream *stream, bool was_opened, enum core_end end, const char *why)
{
	n_ended++;
	peer_ended |= stream_id(stream) == PEER;
}

static void settled(void *ctx)
{
}

static void ask(int fd);

static void start(uint64_t id, const char *address)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	ends[id] = pair[0];
	ck_assert_ptr_nonnull(stream_start(streams, id, pair[1], NULL, address));
	/* An unknown peer may not send much. */
	if (!*address)
		ask(pair[0]);
}

static void make_piece(size_t size)
{
	static uint8_t member[UUID_SIZE];
	Ctl__GroupPiece group_piece = CTL__GROUP_PIECE__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_PIECE;
	envelope.group_piece = &group_piece;
	group_piece.member = (ProtobufCBinaryData){ sizeof(member), member };
	group_piece.data.len = size;
	group_piece.data.data = calloc(1, size);
	free(piece);
	piece_size = frame_size(&envelope);
	piece = malloc(piece_size);
	ck_assert_ptr_nonnull(piece);
	frame_pack(&envelope, piece);
	free(group_piece.data.data);
}

static void setup(void)
{
	static const struct stream_handler handler = { opened, blocked_by, message, ended, settled,
		NULL };

	signal(SIGPIPE, SIG_IGN);
	base = event_base_new();
	streams = streams_create(base, &handler, HANG_MS);
	memset(sent, 0, sizeof(sent));
	memset(ends, -1, sizeof(ends));
	n_ended = n_pieces = n_pings = n_passed = 0;
	most = held = 0;
	peer_ended = without_question = false;
	start(PEER, "192.0.2.1");
	start(ASKER, "");
	for (int i = 0; i < N_RANKS; i++)
		start((uint64_t)(RANKS + i), "");
	make_piece(PIECE);
}

static void teardown(void)
{
	streams_destroy(streams);
	event_base_free(base);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (ends[i] >= 0)
			close(ends[i]);
	free(piece);
	piece = NULL;
}

/* ---- the other ends */

/* Every rank sends as many of `count` pieces as it can. */
static void push(size_t count)
{
	for (int i = RANKS; i < RANKS + N_RANKS; i++) {
		while (ends[i] >= 0 && sent[i] < count * piece_size) {
			size_t at = sent[i] % piece_size;
			ssize_t now = send(ends[i], piece + at, piece_size - at, MSG_NOSIGNAL);

			if (now < 0)
				break;
			sent[i] += (size_t)now;
		}
	}
}

static void turn(void)
{
	event_base_loop(base, EVLOOP_NONBLOCK);
}

/* The total of bytes and pieces moved so far. */
static size_t moved(void)
{
	size_t bytes = n_pieces;

	for (int i = RANKS; i < RANKS + N_RANKS; i++)
		bytes += sent[i];
	return bytes;
}

/* Runs until nothing moves any more. */
static void settle(size_t count)
{
	uint64_t last_ns = hang_limit_ns(), moved_ns = clock_now_ns();
	size_t before = moved(), turns = 0;

	while (turns < SETTLE_TURNS || clock_now_ns() < moved_ns + SETTLE_MS * UINT64_C(1000000)) {
		ck_assert_uint_lt(clock_now_ns(), last_ns);
		push(count);
		turn();
		turns++;
		if (moved() == before)
			continue;
		moved_ns = clock_now_ns();
		before = moved();
		turns = 0;
	}
}

static size_t drain(int fd)
{
	static uint8_t bytes[65536];
	ssize_t got = recv(fd, bytes, sizeof(bytes), 0);

	return got > 0 ? (size_t)got : 0;
}

static size_t pack_ping(uint8_t frame[64])
{
	Ctl__Ping ping = CTL__PING__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_PING;
	envelope.ping = &ping;
	frame_pack(&envelope, frame);
	return frame_size(&envelope);
}

/* A ping comes back. */
static void ask(int fd)
{
	uint64_t last_ns = hang_limit_ns();
	uint8_t frame[64];

	ck_assert_int_gt(send(fd, frame, pack_ping(frame), MSG_NOSIGNAL), 0);
	while (!drain(fd)) {
		ck_assert_uint_lt(clock_now_ns(), last_ns);
		turn();
	}
}

static void drain_all(size_t wanted)
{
	uint64_t last_ns = hang_limit_ns();
	size_t got = 0, now;

	while (got < wanted) {
		ck_assert_msg(clock_now_ns() < last_ns, "%zu of %zu bytes have come", got, wanted);
		push(PIECES);
		turn();
		now = drain(ends[PEER]);
		held -= now < held ? now : held;
		got += now;
	}
	ck_assert_uint_eq(got, wanted);
}

/* ---- tests */

START_TEST(slow_peer_is_not_filled)
{
	settle(PIECES);
	ck_assert(!peer_ended);
	ck_assert_uint_eq(n_ended, 0);
	ck_assert_uint_ge(n_pieces, 1);
	ck_assert_uint_le(most, PEER_MAX);
	/* No other sender waits. */
	ask(ends[ASKER]);
	/* Nothing is lost. */
	drain_all(PIECES * N_RANKS * piece_size);
	ck_assert_uint_eq(n_pieces, PIECES * N_RANKS);
	ck_assert_uint_eq(n_ended, 0);
	ck_assert_uint_le(most, PEER_MAX);
}
END_TEST

/* Short messages are not limited: a sender that has filled the stream waits afterwards. */
START_TEST(short_messages_wait_too)
{
	make_piece(1024);
	without_question = true;
	settle(8000);
	ck_assert(!peer_ended);
	ck_assert_uint_eq(n_ended, 0);
	ck_assert_uint_gt(n_pieces, 1000);
	ck_assert_uint_le(most, PEER_MAX);
	ask(ends[ASKER]);
}
END_TEST

START_TEST(end_of_the_peer_lets_all_go_on)
{
	uint64_t last_ns = hang_limit_ns();

	settle(PIECES);
	ck_assert_uint_lt(n_pieces, N_RANKS);
	close(ends[PEER]);
	ends[PEER] = -1;
	while (n_pieces < PIECES * N_RANKS) {
		ck_assert_uint_lt(clock_now_ns(), last_ns);
		push(PIECES);
		turn();
	}
	ck_assert(peer_ended);
	ck_assert_uint_eq(n_ended, 1);
}
END_TEST

/* The death of a process is noticed at once, though it is not read from. */
START_TEST(death_is_seen_while_it_waits)
{
	uint64_t last_ns = hang_limit_ns();

	settle(PIECES);
	for (int i = RANKS; i < RANKS + N_RANKS; i++) {
		close(ends[i]);
		ends[i] = -1;
	}
	while (n_ended < N_RANKS) {
		ck_assert_uint_lt(clock_now_ns(), last_ns);
		turn();
	}
	ck_assert(!peer_ended);
	ck_assert_uint_eq(streams_count(streams), 2);
	ask(ends[ASKER]);
}
END_TEST

/* All but the last byte of a piece from every rank, and then the rest of it. */
START_TEST(long_messages_of_one_owner)
{
	size_t whole = piece_size;
	unsigned count = 0;

	close(ends[PEER]);
	ends[PEER] = -1;
	piece_size = whole - 1;
	settle(1);
	for (int i = RANKS; i < RANKS + N_RANKS; i++)
		count += sent[i] == whole - 1;
	ck_assert_uint_gt(count, OWNER_MAX / 2);
	ck_assert_uint_le(count, OWNER_MAX);
	/* Senders of another owner do not wait. */
	sent[RANKS] = 0;
	ends[0] = ends[RANKS];
	ends[RANKS] = ends[ASKER];
	push(1);
	ck_assert_uint_gt(sent[RANKS], 0);
	while (sent[RANKS] < whole - 1) {
		push(1);
		turn();
	}
	ends[RANKS] = ends[0];
	ends[0] = -1;
	sent[RANKS] = whole - 1;
	/* A sender that dies makes room, as do senders whose messages are complete. */
	close(ends[RANKS]);
	ends[RANKS] = -1;
	piece_size = whole;
	while (n_pieces < N_RANKS - 1) {
		push(1);
		turn();
	}
	ck_assert_uint_eq(n_ended, 2);
}
END_TEST

/* The slow stream ends together with the waiting ones. */
START_TEST(all_end_at_once)
{
	settle(PIECES);
}
END_TEST

/* ---- processes that send descriptors */

enum way {
	WAY_PING, /* with a message that has no use for it */
	WAY_PAGE, /* as if it were a page */
	WAY_TWO,
	WAY_MOST,
	WAY_OOB,    /* with a byte that is out of band */
	WAY_QUEUED, /* after what ends the stream: it is never read */
	WAY_FULL,   /* there is no descriptor left for it */
	WAYS,
};

static size_t pack_page(uint8_t frame[128])
{
	Ctl__DescribePort port = CTL__DESCRIBE_PORT__INIT;
	static uint8_t nonce[UUID_SIZE];
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_DESCRIBE_PORT;
	envelope.describe_port = &port;
	port.nonce = (ProtobufCBinaryData){ sizeof(nonce), nonce };
	ck_assert_uint_le(frame_size(&envelope), 128);
	frame_pack(&envelope, frame);
	return frame_size(&envelope);
}

static void send_garbage(int fd)
{
	static uint8_t garbage[GARBAGE];

	memset(garbage, 0xff, sizeof(garbage));
	ck_assert_int_eq(send(fd, garbage, sizeof(garbage), 0), GARBAGE);
}

static struct rlimit files;

static void leave_no_descriptor(void)
{
	int next = dup(STDIN_FILENO);
	struct rlimit none;

	none = files;
	none.rlim_cur = (rlim_t)next;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	close(next);
}

static void send_file(int to, int fd, enum way way)
{
	size_t n = way == WAY_TWO ? 2 : way == WAY_MOST ? SLOW_FILE_MOST : 1, size;
	uint8_t frame[128];

	size = way == WAY_PAGE ? pack_page(frame) : way == WAY_OOB ? 1 : pack_ping(frame);
	if (way == WAY_QUEUED)
		send_garbage(to);
	ck_assert_int_eq(slow_file_send(to, frame, size, fd, n, way == WAY_OOB ? MSG_OOB : 0),
		(ssize_t)size);
	if (way == WAY_OOB)
		ck_assert_int_eq(send(to, "more", 4, 0), 4);
	close(fd);
	if (way == WAY_FULL)
		leave_no_descriptor();
}

/* It ends with the next message, whichever that is; others are served meanwhile. */
START_LOOP_TEST(slow_file_ends_its_stream, WAYS)
{
	int reader, fd = slow_file(&reader);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	send_file(ends[RANKS], fd, (enum way)_i);
	ask(ends[ASKER]);
	while (!n_ended)
		turn();
	ask(ends[ASKER]);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	ck_assert_uint_eq(n_ended, 1);
	ck_assert_uint_eq(n_passed, 0);
}
END_TEST

/* As the daemon ends. */
START_TEST(slow_file_in_a_stream_at_the_end)
{
	int reader, fd = slow_file(&reader);

	ck_assert_int_ge(fd, 0);
	send_file(ends[RANKS], fd, WAY_PAGE);
}
END_TEST

START_TEST(memfd_comes_with_its_message)
{
	uint8_t frame[128];
	size_t size = pack_page(frame);
	int fd = memfd_create("test_stream", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	for (unsigned i = 1; i <= 3; i++) {
		ck_assert_int_eq(slow_file_send(ends[ASKER], frame, size, fd, 1, 0), (ssize_t)size);
		while (n_passed < i)
			turn();
		while (!drain(ends[ASKER]))
			turn();
	}
	/* And without any message. */
	size = pack_ping(frame);
	ck_assert_int_eq(slow_file_send(ends[ASKER], frame, size, fd, 1, 0), (ssize_t)size);
	while (!n_ended)
		turn();
	ck_assert_uint_eq(n_passed, 3);
}
END_TEST

/* ---- descriptors that the daemon sends */

enum { LEASES = 6, LONG_TEXT = 1000 };

/* A long answer, so that the socket takes few; with a memfd of `number` bytes, or none. */
static void give(struct stream *stream, uint32_t number, bool has_socket)
{
	Ctl__PortOpened opened = CTL__PORT_OPENED__INIT;
	Ctl__Lease lease = CTL__LEASE__INIT;
	char text[LONG_TEXT + 1];

	memset(text, 'x', LONG_TEXT);
	text[LONG_TEXT] = '\0';
	lease.devargs = text;
	opened.port = number;
	opened.lease = &lease;
	opened.has_socket = has_socket;
	if (has_socket) {
		int fd = memfd_create("test_stream", MFD_CLOEXEC);

		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(ftruncate(fd, number), 0);
		stream_give_fd(stream, fd);
	}
	stream_send(stream, &ENVELOPE(number, PORT_OPENED, port_opened, &opened));
}

static void check_given(struct control_socket *control, const Ctl__PortOpened *opened)
{
	int fd = opened->has_socket ? control_socket_take_fd(control) : -1;
	struct stat status;

	if (!opened->has_socket)
		return;
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &status), 0);
	ck_assert_uint_eq((uint32_t)status.st_size, opened->port);
	close(fd);
}

/* Also if the socket takes a part of a message, and if one follows the other. */
START_TEST(descriptors_go_with_their_messages)
{
	struct stream *stream = stream_find(streams, ASKER);
	struct control_socket control;
	int small = 4096;
	uint32_t seen = 0;

	control_socket_init(&control);
	control.fd = ends[ASKER];
	ends[ASKER] = -1;
	setsockopt(stream_fd(stream), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	for (uint32_t i = 1; i <= LEASES; i++)
		give(stream, i, i != 2);
	streams_settle(streams);
	while (seen < LEASES) {
		int rc = control_socket_receive(&control);
		Ctl__Envelope *envelope;
		const char *why;

		ck_assert(rc == 0 || rc == -EAGAIN);
		while ((envelope = control_socket_next(&control, &why)) != NULL) {
			ck_assert_uint_eq(envelope->port_opened->port, ++seen);
			check_given(&control, envelope->port_opened);
			ctl__envelope__free_unpacked(envelope, NULL);
		}
		turn();
	}
	ck_assert_int_eq(control_socket_take_fd(&control), -1);
	control_socket_close(&control);
}
END_TEST

/* Queued descriptors are closed with the stream. */
START_TEST(descriptors_end_with_their_stream)
{
	struct pollfd reader = { .events = POLLIN };
	int pipe_fds[2];

	ck_assert_int_eq(pipe(pipe_fds), 0);
	reader.fd = pipe_fds[0];
	stream_give_fd(stream_find(streams, ASKER), pipe_fds[1]);
	close(ends[ASKER]);
	ends[ASKER] = -1;
	while (!n_ended)
		turn();
	ck_assert_int_eq(poll(&reader, 1, HANG_MS), 1);
	ck_assert(reader.revents & POLLHUP);
	close(pipe_fds[0]);
}
END_TEST

/* A client that has shut down its reading side, and continues with its requests, queues nothing. */
START_TEST(descriptors_for_a_deaf_client_are_closed)
{
	struct stream *stream = stream_find(streams, ASKER);
	struct pollfd reader = { .events = POLLIN };
	int pipe_fds[2];

	ck_assert_int_eq(shutdown(ends[ASKER], SHUT_RD), 0);
	give(stream, 1, false);
	streams_settle(streams);
	ck_assert_int_eq(pipe(pipe_fds), 0);
	reader.fd = pipe_fds[0];
	stream_give_fd(stream, pipe_fds[1]);
	ck_assert_int_eq(poll(&reader, 1, HANG_MS), 1);
	ck_assert(reader.revents & POLLHUP);
	ck_assert_uint_eq(n_ended, 0);
	close(pipe_fds[0]);
}
END_TEST

TEST_MAIN(stream)
{
	/* Some use all descriptors, or leave threads that close. */
	return run_suite_forked(all_tests(setup, teardown));
}
