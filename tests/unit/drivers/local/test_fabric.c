/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handshake of a link of the local fabric: a client that sends and leaves at once, ends without
 * descriptors, peers that send garbage, and other programs that connect to keep the server busy.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drivers/local/in_place.h"
#include "drivers/local/ring.h"
#include "lib/base/process/rights.h"
#include "tests/unit/drivers/local/fabric_fixture.h"
#include "tests/fixtures/limited_child.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/slow_file.h"

/* The client's end comes up, sends a frame and leaves, in one go. */
static void come_send_and_go(void)
{
	uint8_t frame[FRAME] = "the last words", *rest;

	step(&client);
	ck_assert(client.link.mapped);
	fabric_publish(&client.link);
	ck_assert_int_eq(client.link.stage, FABRIC_UP);
	ck_assert_int_eq(ring_begin(&client.link.ring->tx, frame, FRAME, 0, &rest), 0);
	ring_show(&client.link.ring->tx);
	/* Left unread: the kernel reports that before all else. */
	ck_assert_int_eq(in_place_send_mapped(&server.link), 0);
	close_side(&client);
}

/* Between a check for frames and one for the peer's presence. */
static bool goes_between;

bool __real_handshake_is_closed(int fd);
bool __wrap_handshake_is_closed(int fd);
bool __wrap_handshake_is_closed(int fd)
{
	if (goes_between && fd == server.link.peer_fd) {
		goes_between = false;
		come_send_and_go();
	}
	return __real_handshake_is_closed(fd);
}

START_LOOP_TEST(client_that_is_gone, 2)
{
	uint8_t frame[MAX_FRAME + RING_LINE];

	come_together();
	if (_i == 0)
		come_send_and_go();
	else
		goes_between = true;
	step(&server);
	ck_assert(!goes_between);
	fabric_publish(&server.link);
	ck_assert_int_eq(server.link.stage, FABRIC_UP);
	ck_assert_int_eq(server.port.links[0].state, PORT_LINK_UP);
	step(&server);
	ck_assert(server.link.to_drain);
	fabric_publish(&server.link);
	ck_assert_int_eq(server.link.stage, FABRIC_DRAIN);
	ck_assert(!server.port.links[0].drained);
	ck_assert_int_eq(ring_look(&server.port.links[0].ring->rx, MAX_FRAME), FRAME);
	ring_take(&server.port.links[0].ring->rx, frame);
	ck_assert_str_eq((const char *)frame, "the last words");
}
END_TEST

/* A client that leaves without having connected: the next one may. */
START_TEST(client_that_never_came)
{
	come_together();
	close_side(&client);
	step(&server);
	ck_assert_int_eq(server.link.stage, FABRIC_CONNECTING);
	ck_assert_int_eq(server.link.error, 0);
	open_side(&client, false);
	now_ns += 1000 * 1000 * 1000;
	come_together();
}
END_TEST

/* The ends agree on the features that both have. */
START_TEST(features)
{
	server.port.features = 3;
	client.port.features = 6;
	come_together();
	ck_assert_uint_eq(server.link.features, 2);
	ck_assert_uint_eq(client.link.features, 2);
}
END_TEST

/* A link with a time limit whose peer does not come: from either end. The time of a link that is
 * up is not limited. */
START_LOOP_TEST(time_limit, 3)
{
	struct side *side = _i == 0 ? &server : &client;

	if (_i == 1)
		handshake_close(&server.link.clients.listen_fd);
	side->link.give_up_ns = now_ns + 1000 * 1000;
	if (_i == 2) {
		come_together();
		step(&client);
		fabric_publish(&client.link);
		ck_assert_int_eq(client.link.stage, FABRIC_UP);
	}
	step(side);
	ck_assert(_i == 2 || pass.wake_ns <= side->link.give_up_ns);
	fabric_publish(&side->link);
	ck_assert_int_ne(side->link.stage, FABRIC_DOWN);
	now_ns += 1000 * 1000;
	step(side);
	fabric_publish(&side->link);
	ck_assert_int_eq(side->link.stage, _i == 2 ? FABRIC_UP : FABRIC_DOWN);
	ck_assert_int_eq(side->port.links[0].state, _i == 2 ? PORT_LINK_UP : PORT_LINK_DOWN);
}
END_TEST

/* Allows that many more descriptors, or with -1 as many as before. */
static void allow_files(int more)
{
	static struct rlimit before;
	struct rlimit limit;
	int next = dup(STDIN_FILENO);

	if (more >= 0)
		ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	if (more >= 0)
		limit.rlim_cur = (rlim_t)(next + more);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	if (next >= 0)
		close(next);
}

/* No memory to watch a socket: only while one lacks a watch. */
START_LOOP_TEST(sockets_are_watched_again, 2)
{
	struct side *side = _i ? &client : &server;

	come_together();
	side->link.watch.is_unwatched = true;
	step(side);
	ck_assert(!side->link.watch.is_unwatched);
}
END_TEST

/* The server cannot accept; the link comes up when it can. */
START_TEST(no_descriptor_to_accept)
{
	step(&client);
	allow_files(0);
	step(&server);
	allow_files(-1);
	ck_assert_int_eq(server.link.stage, FABRIC_CONNECTING);
	now_ns += 100 * 1000 * 1000;
	step(&server);
	step(&client);
	ck_assert_int_eq(server.link.stage, FABRIC_CONFIRMING);
	ck_assert_int_eq(client.link.stage, FABRIC_CONFIRMING);
}
END_TEST

/* At either end, for the rings: the link comes up when there are some again. */
START_LOOP_TEST(no_descriptors, 2)
{
	server.port.base.caps.in_place = client.port.base.caps.in_place = false;
	step(&client);
	if (_i == 0) {
		allow_files(1);
		step(&server);
		allow_files(-1);
		ck_assert_int_eq(server.link.stage, FABRIC_CONNECTING);
	} else {
		step(&server);
		allow_files(0);
	}
	step(&client);
	allow_files(-1);
	ck_assert_int_eq(client.link.stage, FABRIC_CONNECTING);
	step(&server);
	ck_assert_int_eq(server.link.stage, FABRIC_CONNECTING);
	ck_assert_int_eq(client.link.error, 0);
	ck_assert_int_eq(server.link.error, 0);
	now_ns += 1000 * 1000 * 1000;
	come_together();
}
END_TEST

/* ---- peers that are not ours */

/* A hello with frames too short, then an answer. */
START_LOOP_TEST(frames_too_short, 2)
{
	struct handshake_hello hello;
	struct handshake_answer answer = { .magic = LINK_MAGIC, .max_frame = RING_STEM };
	struct ring_link *rings;
	int fd, passed;

	step(&client);
	if (_i == 0) {
		client.port.base.caps.max_frame = RING_STEM;
		handshake_close(&client.link.peer_fd);
		client.link.stage = FABRIC_CONNECTING;
		step(&server);
		step(&server);
		step(&client);
		step(&server);
		step(&server);
		ck_assert_int_eq(server.link.stage, FABRIC_CONNECTING);
		ck_assert_int_eq(server.link.error, 0);
		return;
	}
	fd = handshake_accept(server.link.clients.listen_fd);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(handshake_receive(fd, &hello, sizeof(hello)), 0);
	ck_assert_int_eq(ring_link_make(RING_BYTES, &rings, &passed), 0);
	ck_assert_int_eq(handshake_send_fd(fd, &answer, sizeof(answer), passed), 0);
	ring_link_destroy(rings);
	close(passed);
	step(&client);
	ck_assert_int_eq(client.link.stage, FABRIC_CONNECTING);
	ck_assert_int_eq(client.link.error, 0);
	close(fd);
}
END_TEST

/* An unrelated descriptor does not end the link. */
START_TEST(wrong_descriptor)
{
	struct handshake_answer answer = { .magic = LINK_MAGIC, .max_frame = MAX_FRAME };
	int zero = open("/dev/zero", O_RDWR | O_CLOEXEC), fd;

	step(&client);
	fd = handshake_accept(server.link.clients.listen_fd);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(handshake_send_fd(fd, &answer, sizeof(answer), zero), 0);
	step(&client);
	ck_assert_int_eq(client.link.stage, FABRIC_CONNECTING);
	ck_assert_int_eq(client.link.error, 0);
	close(fd);
	close(zero);
	now_ns += 1000 * 1000 * 1000;
	come_together();
}
END_TEST

/* ---- others */

static int connect_to_server(void)
{
	char place[96];
	int fd;

	snprintf(place, sizeof(place), "ferrule-link/%s", server.link.request.name);
	fd = handshake_connect(place, true);
	ck_assert_int_ge(fd, 0);
	return fd;
}

/* More than the server has room for, some of which send other messages than a client. */
START_TEST(others_do_not_delay_the_client)
{
	const struct handshake_hello hello = { .magic = LINK_MAGIC, .secret = "open barley" };

	for (int i = 0; i < 2 * FABRIC_PENDING_CLIENTS; i++) {
		int fd = connect_to_server();

		if (i % 4 == 1)
			ck_assert_int_eq(handshake_send(fd, &hello, sizeof(hello)), 0);
		if (i % 4 == 2)
			ck_assert_int_eq(handshake_send(fd, "hello", 5), 0);
		if (i % 4 == 3)
			close(fd);
	}
	step(&client);
	for (int i = 0; i < 3; i++)
		step(&server);
	ck_assert_int_eq(server.link.stage, FABRIC_CONFIRMING);
	ck_assert_uint_eq(server.link.clients.n_pending, 0);
	step(&client);
	ck_assert_int_eq(client.link.stage, FABRIC_CONFIRMING);
}
END_TEST

/* A silent client is disconnected after a second. */
START_TEST(silent_ones_have_a_second)
{
	char byte;
	int fd = connect_to_server();

	step(&server);
	ck_assert_uint_eq(server.link.clients.n_pending, 1);
	ck_assert_uint_eq(pass.wake_ns, now_ns + 1000 * 1000 * 1000);
	now_ns = pass.wake_ns;
	step(&server);
	ck_assert_uint_eq(server.link.clients.n_pending, 0);
	ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
}
END_TEST

static int make_slow(void)
{
	static int reader;
	int fd = slow_file(&reader);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* A link that is closed closes them, too, also those that it has not accepted. */
START_TEST(others_go_with_the_link)
{
	int silent, slow = make_slow();
	char byte;

	rights_allow(server.link.clients.listen_fd, true);
	silent = connect_to_server();
	step(&server);
	ck_assert_int_eq(slow_file_send(silent, "x", 1, slow, 1, 0), 1);
	ck_assert_int_eq(slow_file_send(connect_to_server(), "x", 1, slow, 1, 0), 1);
	close(slow);
	close_side(&server);
	ck_assert_int_le(recv(silent, &byte, 1, 0), 0); /* or it was reset */
	open_side(&server, true);
	snprintf(server.link.request.name, sizeof(server.link.request.name),
		"test_fabric-%ld-again", (long)getpid());
	ck_assert_int_eq(fabric_listen(&server.link), 0);
}
END_TEST

/* ---- files that take a day to close: a call that closed one would not return */

/* With a hello, more than one with a hello, with too little, with nothing. As on a kernel that lets
 * everybody send them: the second half of the rows is for one that does not. */
START_LOOP_TEST(slow_file_of_a_stranger, 8)
{
	const struct handshake_hello hello = { .magic = LINK_MAGIC };
	const size_t sizes[] = { sizeof(hello), sizeof(hello), 3, 0 };
	int fd, slow = make_slow();

	if (_i < 4)
		rights_allow(server.link.clients.listen_fd, true);
	fd = connect_to_server();
	if (slow_file_send(fd, &hello, sizes[_i % 4], slow, _i % 4 == 1 ? 2 : 1, 0) >= 0)
		close(slow);
	come_together();
}
END_TEST

/* As the memory of the rings. */
START_LOOP_TEST(slow_file_of_the_server, 2)
{
	struct handshake_answer answer = { .magic = LINK_MAGIC, .max_frame = MAX_FRAME };
	int fd, slow = make_slow();

	step(&client);
	fd = handshake_accept(server.link.clients.listen_fd);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(
		slow_file_send(fd, &answer, sizeof(answer), slow, _i ? 2 : 1, 0), sizeof(answer));
	close(slow);
	step(&client);
	ck_assert_int_eq(client.link.stage, FABRIC_CONNECTING);
	ck_assert_int_eq(client.link.error, 0);
	close(fd);
	now_ns += 1000 * 1000 * 1000;
	come_together();
}
END_TEST

/* A peer that knows the secret: as memory to be read in place, or with another message. */
START_LOOP_TEST(slow_file_of_the_peer, 4)
{
	const struct {
		uint32_t magic;
		uint16_t type, id;
		uint64_t size;
	} export = { 0x46524c74, (uint16_t)(_i / 2 ? 7 : 1), 0, 4096 };
	struct side *from = _i % 2 ? &client : &server, *to = _i % 2 ? &server : &client;
	int slow = make_slow();

	come_together();
	ck_assert_int_eq(
		slow_file_send(from->link.peer_fd, &export, sizeof(export), slow, 1, 0), 16);
	close(slow);
	step(to);
	ck_assert_int_eq(to->link.stage, FABRIC_CONFIRMING);
}
END_TEST

static const struct {
	uint16_t client, server; /* numbers of the link */
	size_t limit;            /* bytes of a file */
	uint32_t bytes;
} rings[] = {
	{ 0, 0, 4 << 20, RING_BYTES },
	{ 8, 0, 4 << 20, RING_MEDIUM_BYTES },
	{ 0, 8, 4 << 20, RING_MEDIUM_BYTES },
	{ 32, 8, 4 << 20, RING_SMALL_BYTES },
	/* The memory of longer rings exceeds the limit. */
	{ 0, 0, 1 << 20, RING_MEDIUM_BYTES },
	{ 0, 0, 256 << 10, RING_SMALL_BYTES },
};

static int ring_row;

static bool has_expected_rings(void)
{
	client.link.number = rings[ring_row].client;
	server.link.number = rings[ring_row].server;
	come_together();
	return client.link.ring->tx.bytes == rings[ring_row].bytes &&
		server.link.ring->rx.bytes == rings[ring_row].bytes;
}

START_LOOP_TEST(size_of_rings, ROWS(rings))
{
	ring_row = _i;
	check_in_limited_child(rings[_i].limit, has_expected_rings);
}
END_TEST

TEST_MAIN(fabric)
{
	/* Some leave threads that close. */
	return run_suite_forked(all_tests(fabric_setup, fabric_teardown));
}
