/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/stream.c and turns.c over socket pairs, without a core: who has to wait for whom when
 * another daemon's stream is slow, and that nobody else does.
 */
#include "daemon/stream.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <check.h>

#include "lib/base/clock.h"
#include "lib/control/frame.h"
#include "tests/unit/program.h"

enum {
	PEER = 1,
	ASKER = 2,
	RANKS = 3, /* and up */
	N_RANKS = 48,
	PIECES = 2,
	PIECE = 1 << 20,
	OWNER_MAX = (32 << 20) / PIECE, /* pieces on their way */
	/* What a peer's stream and its socket may hold, and a short message of each rank. */
	PEER_MAX = (2 << 20) + (1 << 19) + N_RANKS * 1024,
	/* Nothing moves any more where nothing has for so long, and so many turns. */
	SETTLE_MS = 150,
	SETTLE_TURNS = 100,
};

static struct event_base *base;
static struct streams *streams;
static int ends[RANKS + N_RANKS]; /* ours; the streams have the others */
static size_t sent[RANKS + N_RANKS];
static unsigned n_ended, n_pieces, n_pings;
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

static struct stream *passes_to(
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
	/* A stranger may not send much. */
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
	static const struct stream_handler handler = { opened, passes_to, message, ended, settled,
		NULL };

	signal(SIGPIPE, SIG_IGN);
	base = event_base_new();
	streams = streams_create(base, &handler, 5000);
	memset(sent, 0, sizeof(sent));
	memset(ends, -1, sizeof(ends));
	n_ended = n_pieces = n_pings = 0;
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

/* Every rank sends what it can of `count` pieces. */
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

/* What has moved so far. */
static size_t moved(void)
{
	size_t bytes = n_pieces;

	for (int i = RANKS; i < RANKS + N_RANKS; i++)
		bytes += sent[i];
	return bytes;
}

/* Until nothing moves any more. */
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

/* A ping comes back. */
static void ask(int fd)
{
	uint64_t last_ns = hang_limit_ns();
	Ctl__Ping ping = CTL__PING__INIT;
	uint8_t frame[64];
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_PING;
	envelope.ping = &ping;
	frame_pack(&envelope, frame);
	ck_assert_int_gt(send(fd, frame, frame_size(&envelope), MSG_NOSIGNAL), 0);
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
	/* Nobody else waits. */
	ask(ends[ASKER]);
	/* Nothing is lost. */
	drain_all(PIECES * N_RANKS * piece_size);
	ck_assert_uint_eq(n_pieces, PIECES * N_RANKS);
	ck_assert_uint_eq(n_ended, 0);
	ck_assert_uint_le(most, PEER_MAX);
}
END_TEST

/* Short messages are not asked about: who has filled the stream waits afterwards. */
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

/* That a process has been killed is seen at once, though it is not listened to. */
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
	/* Another owner's do not wait. */
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
	/* One that dies makes room, as those do whose messages are complete. */
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

/* A stream that is waited for goes together with those that wait. */
START_TEST(all_end_at_once)
{
	settle(PIECES);
}
END_TEST

TEST_MAIN(stream)
{
	Suite *suite = suite_create("stream");
	TCase *tcase = tcase_create("peers");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, slow_peer_is_not_filled);
	tcase_add_test(tcase, short_messages_wait_too);
	tcase_add_test(tcase, end_of_the_peer_lets_all_go_on);
	tcase_add_test(tcase, death_is_seen_while_it_waits);
	tcase_add_test(tcase, long_messages_of_one_owner);
	tcase_add_test(tcase, all_end_at_once);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
