/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that a peer of the local fabric exports: which memory is refused, and how much is
 * mapped. */
#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "drivers/local/in_place.h"
#include "drivers/local/ring.h"
#include "lib/base/memory/memfd.h"
#include "lib/base/memory/share.h"
#include "tests/unit/drivers/local/fabric_fixture.h"
#include "tests/fixtures/program.h"

enum {
	EXPORT_MAGIC = 0x46524c74,
	EXPORT = 1,
	READY,
	REFUSED,
	WITHDRAW,
	RELEASED,
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
static bool plays_huge; /* memfd_make_huge() finds huge pages */

/* Waits until each has the other's default exports. */
static void come_together_for_exports(void)
{
	come_together();
	step(&server);
	step(&client);
	step(&server);
}

static void setup(void)
{
	fabric_setup();
	usual_limits = import_limits;
	come_together_for_exports();
}

static void teardown(void)
{
	fabric_teardown();
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

/* Sends a message and returns the type of the answer. */
static int tell(struct side *from, uint16_t type, uint16_t id, uint64_t size, int fd)
{
	struct side *to = from == &client ? &server : &client;
	struct export_message message = { EXPORT_MAGIC, type, id, size };

	ck_assert_int_eq(handshake_send_fd(from->link.peer_fd, &message, sizeof(message), fd), 0);
	for (int i = 0; i < 3; i++) {
		step(to);
		fabric_publish(&to->link);
	}
	do {
		int passed = -1, rc;

		rc = handshake_receive_fd(from->link.peer_fd, &message, sizeof(message), &passed);
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

/* Pages that this process would allocate by reading them, and memory that can shrink. */
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

/* A hole is a SIGBUS with strict accounting of memory, which is assumed in doubt. */
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

/* Own memory that the peer would refuse is exported once it has been written to. */
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
	in_place_request(&client.port, in_place, use);
	memset(memory, 1, size - PAGE);
	fabric_publish(&client.link);
	ck_assert_int_eq(in_place->exports[use->id], EXPORT_NONE);
	memset(memory, 1, size);
	fabric_publish(&client.link);
	ck_assert_int_eq(in_place->exports[use->id], EXPORT_TO_SEND);
	/* The peer may be another user's: it gets no descriptor that it can map for writing. */
	ck_assert(!(fcntl(use->share->fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE));
	step(&client);
	ck_assert_int_eq(in_place->exports[use->id], EXPORT_SENT);
	ck_assert(fcntl(use->share->fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE);
	share_free(memory);
}
END_TEST

/* A peer that fills its ring with references to nothing, and leaves: each burst handles no more
 * than requested, and the link ends after one pass over the ring. */
START_TEST(ring_of_wrong_references)
{
	struct local_port *port = &server.port;
	struct port_frame frames[PORT_BURST];
	uint8_t frame[ETH_HEADER + 46] = { [AT_ETHERTYPE] = 0x88, 0xb5 }, *rest;
	uint32_t n_sent = 0, n_bursts = 0;

	fabric_publish(&client.link);
	step(&client);
	fabric_publish(&client.link);
	step(&server);
	fabric_publish(&server.link);
	ck_assert_int_eq(port->links[0].state, PORT_LINK_UP);
	ck_assert_int_eq(packet_pool_create(&port->pool, PORT_BURST, MAX_FRAME), 0);
	while (ring_begin(&client.link.ring->tx, frame, sizeof(frame), 0, &rest) == 0) {
		ring_show(&client.link.ring->tx);
		n_sent++;
	}
	ck_assert_uint_gt(n_sent, 10 * PORT_BURST);
	ck_assert_uint_eq(local_rx_burst(&port->base, frames, PORT_BURST), 0);
	ck_assert_uint_eq(port->dropped.rx_dropped, PORT_BURST);
	close_side(&client);
	step(&server);
	fabric_publish(&server.link);
	ck_assert_int_eq(server.link.stage, FABRIC_DRAIN);
	while (!port->links[0].drained) {
		ck_assert_uint_eq(local_rx_burst(&port->base, frames, PORT_BURST), 0);
		ck_assert_uint_le(++n_bursts, RING_BYTES / RING_LINE / PORT_BURST);
	}
	fabric_publish(&server.link);
	ck_assert_int_eq(port->links[0].state, PORT_LINK_DOWN);
	packet_pool_destroy(&port->pool);
	open_side(&client, false);
}
END_TEST

/* Ordinary pages, so that none need be reserved. */
int __real_memfd_make_huge(const char *name, size_t *size);
int __wrap_memfd_make_huge(const char *name, size_t *size);
int __wrap_memfd_make_huge(const char *name, size_t *size)
{
	return plays_huge ? memfd_make(name, *size) : __real_memfd_make_huge(name, size);
}

/* Peers would refuse it, with a warning. */
START_TEST(huge_pages_are_not_exported)
{
	struct port_share *use = NULL;
	size_t size = PAGES * PAGE;
	char *memory, *huge;

	LIST_INIT(&client.port.shares);
	memory = share_alloc(size);
	plays_huge = true;
	share_prefer_huge();
	huge = share_alloc(size);
	ck_assert_int_eq(in_place_use(&client.port, huge, size, &use), 0);
	ck_assert_ptr_null(use);
	/* Existing memory is passed on as before. */
	ck_assert_int_eq(in_place_use(&client.port, memory, size, &use), 0);
	ck_assert_ptr_nonnull(use);
	in_place_unuse(&client.port, use);
	share_free(huge);
	share_free(memory);
}
END_TEST

/* The requested seals have their effect. */
START_TEST(sealed_memory_keeps_its_pages)
{
	int fd = make_memory(PAGES * PAGE, PAGES * PAGE, ALL_SEALS);

	ck_assert_int_ne(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), 0);
	ck_assert_int_ne(fallocate(fd, FALLOC_FL_KEEP_SIZE, PAGES * PAGE, PAGE), 0);
	ck_assert_int_ne(ftruncate(fd, PAGE), 0);
	close(fd);
}
END_TEST

/* More bytes behind the end than are missing before it: nobody needs that. */
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

/* A link's quota: released memory makes room. */
START_TEST(exports_of_one_peer)
{
	import_limits.link.bytes = server.link.in_place->mapped.bytes + 2 * PAGES * PAGE;
	ck_assert_int_eq(export_full(&client, 1), READY);
	ck_assert_int_eq(export_full(&client, 2), READY);
	ck_assert_int_eq(export_full(&client, 3), REFUSED);
	ck_assert_int_eq(tell(&client, WITHDRAW, 1, 0, -1), RELEASED);
	ck_assert_int_eq(export_full(&client, 3), READY);
	ck_assert_int_eq(export_full(&client, 1), REFUSED);
	/* The other one has a quota of its own. */
	ck_assert_int_eq(export_full(&server, 1), READY);
}
END_TEST

/* The process's quota: a link's share is free when the link is gone. */
START_TEST(exports_of_all_peers)
{
	uint64_t both = server.link.in_place->mapped.bytes + client.link.in_place->mapped.bytes;

	import_limits.process.bytes = both + PAGES * PAGE;
	ck_assert_int_eq(export_full(&client, 1), READY);
	ck_assert_int_eq(export_full(&server, 1), REFUSED);
	close_side(&client);
	close_side(&server);
	fabric_setup();
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
	ck_assert_int_eq(tell(&client, WITHDRAW, 1, 0, -1), RELEASED);
	ck_assert_int_eq(export(&client, 2, PAGES * PAGE, fd), READY);
}
END_TEST

TEST_MAIN(fabric_exports)
{
	/* Some leave threads that close. */
	return run_suite_forked(all_tests(setup, teardown));
}
