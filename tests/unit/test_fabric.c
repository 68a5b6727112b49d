/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links of the local fabric, both ends in one process and a step at a time: what a client sends
 * that comes and goes at once, ends without descriptors, peers that say nonsense, and others that
 * connect to keep the server busy.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drivers/dpdk/fabric.h"
#include "drivers/dpdk/in_place.h"
#include "drivers/dpdk/ring.h"
#include "drivers/dpdk/wake.h"
#include "lib/base/memfd.h"
#include "lib/base/rights.h"
#include "lib/base/share.h"
#include "tests/unit/program.h"
#include "tests/unit/slow_file.h"

enum { MAX_FRAME = 5000, FRAME = 100, MAGIC = 0x46524c36, LIMIT_S = 120 };

struct side {
	struct dpdk_port port;
	struct fabric_link link;
};

static struct side server, client;
static struct fabric_pass pass;
static uint64_t now_ns;
static struct rlimit files;

static void open_side(struct side *side, bool is_server)
{
	memset(side, 0, sizeof(*side));
	side->port.base.caps.max_frame = MAX_FRAME;
	side->port.base.caps.in_place = true;
	side->port.links[0].ethdev = NO_ETHDEV;
	side->link = (struct fabric_link){
		.port = &side->port,
		.request.server = is_server,
		.request.secret = "open sesame",
		.meet_fd = -1,
		.peer_fd = -1,
		.proof_fd = -1,
		.relay = { .listen_fd = -1, .client_fd = -1, .memif_fd = -1 },
		.ethdev = NO_ETHDEV,
		.deadline_ns = UINT64_MAX,
	};
	snprintf(side->link.request.name, sizeof(side->link.request.name), "test_fabric-%ld",
		(long)getpid());
}

static void set_up(void)
{
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	now_ns = 1000 * 1000 * 1000;
	open_side(&server, true);
	open_side(&client, false);
	ck_assert_int_eq(fabric_listen(&server.link), 0);
}

/* As when the owner lets go of it, and the gate comes. */
static void close_side(struct side *side)
{
	side->link.closing = true;
	fabric_publish(&side->link);
	ck_assert(fabric_take_apart(&side->link, &pass));
}

static void tear_down(void)
{
	close_side(&client);
	close_side(&server);
}

/* One step, in a turn of its own. */
static void step(struct side *side)
{
	pass = (struct fabric_pass){ .now_ns = now_ns, .wake_ns = UINT64_MAX };
	fabric_advance(&side->link, &pass);
}

/* Until the server has answered and the client has taken that up. */
static void come_together(void)
{
	step(&client);
	step(&server);
	ck_assert_int_eq(server.link.stage, FABRIC_SHAKE);
	ck_assert_uint_eq(pass.wake_ns, now_ns);
	step(&client);
	ck_assert_int_eq(client.link.stage, FABRIC_SHAKE);
	ck_assert_uint_eq(pass.wake_ns, now_ns);
}

/* The client's end comes up, sends a frame and goes, in one go. */
static void come_send_and_go(void)
{
	uint8_t frame[FRAME] = "the last words", *rest;

	step(&client);
	ck_assert(client.link.mapped);
	fabric_publish(&client.link);
	ck_assert_int_eq(client.link.stage, FABRIC_UP);
	ck_assert_int_eq(ring_begin(&client.link.ring->tx, frame, FRAME, 0, &rest), 0);
	ring_show(&client.link.ring->tx);
	/* What it does not hear any more: the kernel then says so before all else. */
	ck_assert_int_eq(in_place_say_leaving(&server.link), 0);
	close_side(&client);
}

/* In the moment between a look at what has come and one at whether the peer is there. */
static bool goes_between;

bool __real_meet_is_closed(int fd);
bool __wrap_meet_is_closed(int fd);
bool __wrap_meet_is_closed(int fd)
{
	if (goes_between && fd == server.link.peer_fd) {
		goes_between = false;
		come_send_and_go();
	}
	return __real_meet_is_closed(fd);
}

START_TEST(client_that_is_gone)
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
	fabric_drain(&server.link, &pass);
	ck_assert(!server.port.links[0].drained);
	ck_assert_int_eq(ring_look(&server.port.links[0].ring->rx, MAX_FRAME), FRAME);
	ring_take(&server.port.links[0].ring->rx, frame);
	ck_assert_str_eq((const char *)frame, "the last words");
}
END_TEST

/* A client that goes without having come: the next one may. */
START_TEST(client_that_never_came)
{
	come_together();
	close_side(&client);
	step(&server);
	ck_assert_int_eq(server.link.stage, FABRIC_MEET);
	ck_assert_int_eq(server.link.error, 0);
	open_side(&client, false);
	now_ns += 1000 * 1000 * 1000;
	come_together();
}
END_TEST

/* So many more, or with -1 as many as there were. */
static void allow_files(int more)
{
	struct rlimit limit = files;
	int next = dup(STDIN_FILENO);

	if (more >= 0)
		limit.rlim_cur = (rlim_t)(next + more);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	if (next >= 0)
		close(next);
}

/* The server cannot accept; the link comes up when it can. */
START_TEST(no_descriptor_to_accept)
{
	step(&client);
	allow_files(0);
	step(&server);
	allow_files(-1);
	ck_assert_int_eq(server.link.stage, FABRIC_MEET);
	now_ns += 1000 * 1000;
	step(&server);
	step(&client);
	ck_assert_int_eq(server.link.stage, FABRIC_SHAKE);
	ck_assert_int_eq(client.link.stage, FABRIC_SHAKE);
}
END_TEST

/* At either end, for the rings: the link comes up when there are some again. */
START_TEST(no_descriptors)
{
	server.port.base.caps.in_place = client.port.base.caps.in_place = false;
	step(&client);
	if (_i == 0) {
		allow_files(1);
		step(&server);
		allow_files(-1);
		ck_assert_int_eq(server.link.stage, FABRIC_MEET);
	} else {
		step(&server);
		allow_files(0);
	}
	step(&client);
	allow_files(-1);
	ck_assert_int_eq(client.link.stage, FABRIC_MEET);
	step(&server);
	ck_assert_int_eq(server.link.stage, FABRIC_MEET);
	ck_assert_int_eq(client.link.error, 0);
	ck_assert_int_eq(server.link.error, 0);
	now_ns += 1000 * 1000 * 1000;
	come_together();
}
END_TEST

/* ---- peers that are not ours */

/* Of a hello, and of an answer. */
START_TEST(frames_too_short)
{
	struct meet_hello hello;
	struct meet_answer answer = { .magic = MAGIC, .max_frame = RING_STEM, .ring = 1 };
	struct ring_link *rings;
	int fd, passed;

	step(&client);
	if (_i == 0) {
		client.port.base.caps.max_frame = RING_STEM;
		meet_hang_up(&client.link.peer_fd);
		client.link.stage = FABRIC_MEET;
		step(&server);
		step(&server);
		step(&client);
		step(&server);
		step(&server);
		ck_assert_int_eq(server.link.stage, FABRIC_MEET);
		ck_assert_int_eq(server.link.error, 0);
		return;
	}
	fd = meet_accept(server.link.meet_fd);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(meet_receive(fd, &hello, sizeof(hello)), 0);
	ck_assert_int_eq(ring_link_make(&rings, &passed), 0);
	ck_assert_int_eq(meet_send_fd(fd, &answer, sizeof(answer), passed), 0);
	ring_link_destroy(rings);
	close(passed);
	step(&client);
	ck_assert_int_eq(client.link.stage, FABRIC_MEET);
	ck_assert_int_eq(client.link.error, 0);
	close(fd);
}
END_TEST

/* A descriptor of something else is no reason to give the link up. */
START_TEST(wrong_descriptor)
{
	struct meet_answer answer = { .magic = MAGIC, .max_frame = MAX_FRAME, .ring = 1 };
	int zero = open("/dev/zero", O_RDWR | O_CLOEXEC), fd;

	step(&client);
	fd = meet_accept(server.link.meet_fd);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(meet_send_fd(fd, &answer, sizeof(answer), zero), 0);
	step(&client);
	ck_assert_int_eq(client.link.stage, FABRIC_MEET);
	ck_assert_int_eq(client.link.error, 0);
	close(fd);
	close(zero);
	now_ns += 1000 * 1000 * 1000;
	come_together();
}
END_TEST

/* Names are words of a device's arguments: a comma would begin the next one. */
START_TEST(wrong_memif)
{
	static const struct {
		const char *socket, *secret;
	} rows[] = {
		{ "ferrule-memif/1-a,role=server", "secret" },
		{ "ferrule-memif/1-a", "secret,zero-copy=yes" },
		{ "/run/somebody", "secret" },
		{ "", "secret" },
		{ "ferrule-memif/1-a", "" },
	};
	struct meet_answer answer = { .magic = MAGIC, .max_frame = MAX_FRAME };
	int fd;

	step(&client);
	fd = meet_accept(server.link.meet_fd);
	ck_assert_int_ge(fd, 0);
	snprintf(answer.memif_socket, sizeof(answer.memif_socket), "%s", rows[_i].socket);
	snprintf(answer.memif_secret, sizeof(answer.memif_secret), "%s", rows[_i].secret);
	ck_assert_int_eq(meet_send_fd(fd, &answer, sizeof(answer), -1), 0);
	step(&client);
	ck_assert_int_eq(client.link.stage, FABRIC_MEET);
	ck_assert_int_eq(client.link.error, 0);
	close(fd);
}
END_TEST

/* ---- names by which ends wake each other */

static void set_up_wake(void)
{
	set_up();
	server.port.wake_fd = wake_open(&server.port.wake);
	client.port.wake_fd = wake_open(&client.port.wake);
	ck_assert(server.port.wake_fd >= 0 && client.port.wake_fd >= 0);
}

static void tear_down_wake(void)
{
	tear_down();
	close(server.port.wake_fd);
	close(client.port.wake_fd);
}

/* Both are up. */
static void come_up(void)
{
	come_together();
	step(&client);
	fabric_publish(&client.link);
	step(&server);
	fabric_publish(&server.link);
	ck_assert_int_eq(client.link.stage, FABRIC_UP);
	ck_assert_int_eq(server.link.stage, FABRIC_UP);
}

static bool is_woken(int fd)
{
	struct pollfd state = { .fd = fd, .events = POLLIN };

	return poll(&state, 1, 0) > 0;
}

START_TEST(names_of_peers)
{
	come_up();
	ck_assert_uint_eq(server.port.links[0].wake, client.port.wake);
	ck_assert_uint_eq(client.port.links[0].wake, server.port.wake);
	ck_assert(!is_woken(server.port.wake_fd) && !is_woken(client.port.wake_fd));
}
END_TEST

/* An end that tells somebody else's name is not woken, and neither is that one. */
START_TEST(names_of_strangers)
{
	struct side *liar = _i ? &server : &client, *other = _i ? &client : &server;
	uint32_t name;
	int stranger = wake_open(&name);

	liar->port.wake = name;
	come_up();
	ck_assert_uint_eq(other->port.links[0].wake, 0);
	wake_up(other->port.wake_fd, other->port.links[0].wake);
	ck_assert(!is_woken(stranger));
	/* The client tells the server that it does not wake it. */
	ck_assert((liar->port.links[0].wake == 0) == (liar == &server));
	close(stranger);
}
END_TEST

/* As many as its buffer takes. */
static void flood(int stranger, int proof_fd)
{
	struct sockaddr_nl to = { 0 };
	socklen_t len = sizeof(to);
	ssize_t n;

	ck_assert_int_eq(getsockname(proof_fd, (struct sockaddr *)&to, &len), 0);
	do
		n = sendto(stranger, "", 1, MSG_DONTWAIT, (struct sockaddr *)&to, len);
	while (n == 1);
}

/* A stranger keeps the server's proof out: neither end waits to be woken. Nobody can keep the
 * client's out. */
START_TEST(flooded_proofs)
{
	struct side *flooded = _i ? &server : &client;
	uint32_t name;
	int stranger = wake_open(&name);

	step(&client);
	if (flooded == &client)
		flood(stranger, client.link.proof_fd);
	step(&server);
	if (flooded == &server)
		flood(stranger, server.link.proof_fd);
	step(&client);
	step(&client);
	fabric_publish(&client.link);
	step(&server);
	fabric_publish(&server.link);
	ck_assert_int_eq(client.link.stage, FABRIC_UP);
	ck_assert_int_eq(server.link.stage, FABRIC_UP);
	ck_assert_uint_eq(server.port.links[0].wake, flooded == &server ? client.port.wake : 0);
	ck_assert_uint_eq(client.port.links[0].wake, flooded == &server ? server.port.wake : 0);
	close(stranger);
}
END_TEST

/* ---- memory that peers export */

enum {
	EXPORT_MAGIC = 0x46524c73,
	EXPORT = 1,
	READY,
	REFUSED,
	WITHDRAW,
	GONE,
	PAGE = 4096,
	PAGES = 16,
	ALL_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE,
};

struct export_message {
	uint32_t magic;
	uint16_t type, id;
	uint64_t size;
};

static struct import_limits usual_limits;

/* Until each has what the other exports by itself. */
static void come_together_for_exports(void)
{
	come_together();
	step(&server);
	step(&client);
	step(&server);
}

static void set_up_exports(void)
{
	set_up();
	usual_limits = import_limits;
	come_together_for_exports();
}

static void tear_down_exports(void)
{
	tear_down();
	import_limits = usual_limits;
}

static int make_memory(uint64_t size, uint64_t filled, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	if (filled)
		ck_assert_int_eq(fallocate(fd, 0, 0, (off_t)filled), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* What the other end answers to that message. */
static int tell(struct side *from, uint16_t type, uint16_t id, uint64_t size, int fd)
{
	struct side *to = from == &client ? &server : &client;
	struct export_message message = { EXPORT_MAGIC, type, id, size };

	ck_assert_int_eq(meet_send_fd(from->link.peer_fd, &message, sizeof(message), fd), 0);
	for (int i = 0; i < 3; i++) {
		step(to);
		fabric_publish(&to->link);
	}
	do {
		int passed = -1, rc;

		rc = meet_receive_fd(from->link.peer_fd, &message, sizeof(message), &passed);
		ck_assert_int_eq(rc, 0);
		if (passed >= 0)
			close(passed);
	} while (message.type == EXPORT || message.id != id);
	return message.type;
}

static int export(struct side *from, uint16_t id, uint64_t size, int fd)
{
	int answer = tell(from, EXPORT, id, size, fd);

	close(fd);
	return answer;
}

/* Pages that would be this process's when it reads them, and memory that could lose some. */
START_TEST(exports_with_holes)
{
	const uint64_t large = import_limits.link.holes;
	const struct {
		uint64_t size, filled;
		int seals, answer;
	} rows[] = {
		{ PAGES * PAGE, PAGES * PAGE, ALL_SEALS, READY },
		{ PAGES * PAGE, 0, ALL_SEALS, READY },
		{ large, 0, ALL_SEALS, REFUSED },
		{ large + PAGE, 0, ALL_SEALS, REFUSED },
		{ PAGES * PAGE, PAGES * PAGE, ALL_SEALS & ~F_SEAL_SHRINK, REFUSED },
		{ PAGES * PAGE, PAGES * PAGE, ALL_SEALS & ~F_SEAL_GROW, REFUSED },
		{ PAGES * PAGE, PAGES * PAGE, ALL_SEALS & ~F_SEAL_FUTURE_WRITE, REFUSED },
		{ PAGES * PAGE, PAGES * PAGE, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, READY },
	};

	for (uint16_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int fd = make_memory(rows[i].size, rows[i].filled, rows[i].seals);

		ck_assert_msg(export(&client, i, rows[i].size, fd) == rows[i].answer, "row %d", i);
	}
}
END_TEST

/* A hole is a SIGBUS where memory is accounted for strictly; in doubt it is. */
START_TEST(exports_with_strict_accounting)
{
	const char *usual = memfd_policy_file;
	uint64_t size = PAGES * PAGE;

	memfd_policy_file = "/nonexistent";
	ck_assert_int_eq(
		export(&client, 1, size, make_memory(size, size - PAGE, ALL_SEALS)), REFUSED);
	ck_assert_int_eq(export(&client, 1, size, make_memory(size, size, ALL_SEALS)), READY);
	memfd_policy_file = usual;
}
END_TEST

/* Own memory that the peer would refuse is exported when it has been written to. */
START_TEST(sparse_memory_waits)
{
	struct in_place *in_place = client.link.in_place;
	struct port_share *use = NULL;
	size_t size = PAGES * PAGE;
	char *memory = share_alloc(size);

	ck_assert_ptr_nonnull(memory);
	LIST_INIT(&client.port.shares);
	import_limits.link.holes = 0;
	ck_assert_int_eq(in_place_use(&client.port, memory, size, &use), 0);
	in_place_want(&client.port, in_place, use);
	memset(memory, 1, size - PAGE);
	fabric_publish(&client.link);
	ck_assert_int_eq(in_place->exports[use->id], EXPORT_NONE);
	memset(memory, 1, size);
	fabric_publish(&client.link);
	ck_assert_int_eq(in_place->exports[use->id], EXPORT_TO_SEND);
	share_free(memory);
}
END_TEST

/* The seals that are asked for do what they are asked for. */
START_TEST(sealed_memory_keeps_its_pages)
{
	int fd = make_memory(PAGES * PAGE, PAGES * PAGE, ALL_SEALS);

	ck_assert_int_ne(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), 0);
	ck_assert_int_ne(fallocate(fd, FALLOC_FL_KEEP_SIZE, PAGES * PAGE, PAGE), 0);
	ck_assert_int_ne(ftruncate(fd, PAGE), 0);
	close(fd);
}
END_TEST

/* More behind the end than is missing before it: nobody needs that. */
START_TEST(exports_with_pages_behind_the_end)
{
	uint64_t size = PAGES * PAGE;
	int fd = make_memory(size, size, F_SEAL_SHRINK);

	ck_assert_int_eq(fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)size, 4 << 20), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, ALL_SEALS), 0);
	ck_assert_int_eq(export(&client, 1, size, fd), REFUSED);
}
END_TEST

static int export_full(struct side *from, uint16_t id)
{
	return export(from, id, PAGES * PAGE, make_memory(PAGES * PAGE, PAGES * PAGE, ALL_SEALS));
}

/* A link's share: what is taken back makes room. */
START_TEST(exports_of_one_peer)
{
	import_limits.link.bytes = server.link.in_place->mapped.bytes + 2 * PAGES * PAGE;
	ck_assert_int_eq(export_full(&client, 1), READY);
	ck_assert_int_eq(export_full(&client, 2), READY);
	ck_assert_int_eq(export_full(&client, 3), REFUSED);
	ck_assert_int_eq(tell(&client, WITHDRAW, 1, 0, -1), GONE);
	ck_assert_int_eq(export_full(&client, 3), READY);
	ck_assert_int_eq(export_full(&client, 1), REFUSED);
	/* The other one has a share of its own. */
	ck_assert_int_eq(export_full(&server, 1), READY);
}
END_TEST

/* The process' share, and what a link had is free when the link is gone. */
START_TEST(exports_of_all_peers)
{
	uint64_t both = server.link.in_place->mapped.bytes + client.link.in_place->mapped.bytes;

	import_limits.process.bytes = both + PAGES * PAGE;
	ck_assert_int_eq(export_full(&client, 1), READY);
	ck_assert_int_eq(export_full(&server, 1), REFUSED);
	close_side(&client);
	close_side(&server);
	set_up();
	come_together_for_exports();
	ck_assert_int_eq(export_full(&server, 1), READY);
	ck_assert_int_eq(export_full(&client, 1), REFUSED);
}
END_TEST

/* One memory is mapped once for a link. */
START_TEST(exports_of_the_same_memory)
{
	int fd = make_memory(PAGES * PAGE, PAGES * PAGE, ALL_SEALS);

	ck_assert_int_eq(tell(&client, EXPORT, 1, PAGES * PAGE, fd), READY);
	ck_assert_int_eq(tell(&client, EXPORT, 2, PAGES * PAGE, fd), REFUSED);
	ck_assert_int_eq(tell(&client, WITHDRAW, 1, 0, -1), GONE);
	ck_assert_int_eq(export(&client, 2, PAGES * PAGE, fd), READY);
}
END_TEST

/* ---- others */

static int connect_to_server(void)
{
	char place[96];
	int fd;

	snprintf(place, sizeof(place), "ferrule-link/%s", server.link.request.name);
	fd = meet_connect(place);
	ck_assert_int_ge(fd, 0);
	return fd;
}

/* More than the server has room for, some of which say something else than a client would. */
START_TEST(others_do_not_delay_the_client)
{
	const struct meet_hello hello = { .magic = MAGIC, .secret = "open barley" };

	for (int i = 0; i < 2 * FABRIC_STRANGERS; i++) {
		int fd = connect_to_server();

		if (i % 4 == 1)
			ck_assert_int_eq(meet_send(fd, &hello, sizeof(hello)), 0);
		if (i % 4 == 2)
			ck_assert_int_eq(meet_send(fd, "hello", 5), 0);
		if (i % 4 == 3)
			close(fd);
	}
	step(&client);
	for (int i = 0; i < 3; i++)
		step(&server);
	ck_assert_int_eq(server.link.stage, FABRIC_SHAKE);
	ck_assert_uint_eq(server.link.n_strangers, 0);
	step(&client);
	ck_assert_int_eq(client.link.stage, FABRIC_SHAKE);
}
END_TEST

/* One that says nothing is sent away after a second. */
START_TEST(silent_ones_have_a_second)
{
	char byte;
	int fd = connect_to_server();

	step(&server);
	ck_assert_uint_eq(server.link.n_strangers, 1);
	ck_assert_uint_eq(pass.wake_ns, now_ns + 1000 * 1000 * 1000);
	now_ns = pass.wake_ns;
	step(&server);
	ck_assert_uint_eq(server.link.n_strangers, 0);
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

/* A link that is closed takes them along, also those that it has not accepted. */
START_TEST(others_go_with_the_link)
{
	int silent, slow = make_slow();
	char byte;

	rights_allow(server.link.meet_fd, true);
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
START_TEST(slow_file_of_a_stranger)
{
	const struct meet_hello hello = { .magic = MAGIC };
	const size_t sizes[] = { sizeof(hello), sizeof(hello), 3, 0 };
	int fd, slow = make_slow();

	if (_i < 4)
		rights_allow(server.link.meet_fd, true);
	fd = connect_to_server();
	if (slow_file_send(fd, &hello, sizes[_i % 4], slow, _i % 4 == 1 ? 2 : 1, 0) >= 0)
		close(slow);
	come_together();
}
END_TEST

/* As the memory of the rings. */
START_TEST(slow_file_of_the_server)
{
	struct meet_answer answer = { .magic = MAGIC, .max_frame = MAX_FRAME, .ring = 1 };
	int fd, slow = make_slow();

	step(&client);
	fd = meet_accept(server.link.meet_fd);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(
		slow_file_send(fd, &answer, sizeof(answer), slow, _i ? 2 : 1, 0), sizeof(answer));
	close(slow);
	step(&client);
	ck_assert_int_eq(client.link.stage, FABRIC_MEET);
	ck_assert_int_eq(client.link.error, 0);
	close(fd);
	now_ns += 1000 * 1000 * 1000;
	come_together();
}
END_TEST

/* A peer that knows the secret: as memory to be read in place, or with another message. */
START_TEST(slow_file_of_the_peer)
{
	const struct {
		uint32_t magic;
		uint16_t type, id;
		uint64_t size;
	} export = { 0x46524c73, (uint16_t)(_i / 2 ? 6 : 1), 0, 4096 };
	struct side *from = _i % 2 ? &client : &server, *to = _i % 2 ? &server : &client;
	int slow = make_slow();

	come_together();
	ck_assert_int_eq(
		slow_file_send(from->link.peer_fd, &export, sizeof(export), slow, 1, 0), 16);
	close(slow);
	step(to);
	ck_assert_int_eq(to->link.stage, FABRIC_SHAKE);
	ck_assert_int_eq(to->link.peer_leaves, _i / 2);
}
END_TEST

TEST_MAIN(fabric)
{
	TCase *exports = tcase_create("exports"), *wake = tcase_create("wake");
	Suite *suite = suite_create("fabric");
	TCase *tcase = tcase_create("fabric");

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, LIMIT_S);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_loop_test(tcase, client_that_is_gone, 0, 2);
	tcase_add_test(tcase, client_that_never_came);
	tcase_add_loop_test(tcase, no_descriptors, 0, 2);
	tcase_add_loop_test(tcase, frames_too_short, 0, 2);
	tcase_add_test(tcase, wrong_descriptor);
	tcase_add_loop_test(tcase, wrong_memif, 0, 5);
	tcase_add_test(tcase, no_descriptor_to_accept);
	tcase_add_test(tcase, others_do_not_delay_the_client);
	tcase_add_test(tcase, silent_ones_have_a_second);
	tcase_add_test(tcase, others_go_with_the_link);
	tcase_add_loop_test(tcase, slow_file_of_a_stranger, 0, 8);
	tcase_add_loop_test(tcase, slow_file_of_the_server, 0, 2);
	tcase_add_loop_test(tcase, slow_file_of_the_peer, 0, 4);
	suite_add_tcase(suite, wake);
	tcase_add_checked_fixture(wake, set_up_wake, tear_down_wake);
	tcase_add_test(wake, names_of_peers);
	tcase_add_loop_test(wake, names_of_strangers, 0, 2);
	tcase_add_loop_test(wake, flooded_proofs, 0, 2);
	suite_add_tcase(suite, exports);
	tcase_add_checked_fixture(exports, set_up_exports, tear_down_exports);
	tcase_add_test(exports, exports_with_holes);
	tcase_add_test(exports, exports_with_strict_accounting);
	tcase_add_test(exports, sparse_memory_waits);
	tcase_add_test(exports, sealed_memory_keeps_its_pages);
	tcase_add_test(exports, exports_with_pages_behind_the_end);
	tcase_add_test(exports, exports_of_one_peer);
	tcase_add_test(exports, exports_of_all_peers);
	tcase_add_test(exports, exports_of_the_same_memory);
	/* Some leave threads that close. */
	return run_suite_forked(suite);
}
