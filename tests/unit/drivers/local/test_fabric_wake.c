/* SPDX-License-Identifier: BSD-3-Clause */
/* The names by which the ends of a link of the local fabric wake each other. */
#include <check.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drivers/local/wake.h"
#include "tests/unit/drivers/local/fabric_fixture.h"
#include "tests/fixtures/program.h"

static void setup(void)
{
	fabric_setup();
	server.port.wake_fd = wake_open(&server.port.wake);
	client.port.wake_fd = wake_open(&client.port.wake);
	ck_assert(server.port.wake_fd >= 0 && client.port.wake_fd >= 0);
}

static void teardown(void)
{
	fabric_teardown();
	close(server.port.wake_fd);
	close(client.port.wake_fd);
}

/* The client has the answer. Both are up then. */
static void finish_shaking(void)
{
	step(&client);
	fabric_publish(&client.link);
	step(&server);
	fabric_publish(&server.link);
	ck_assert_int_eq(client.link.stage, FABRIC_UP);
	ck_assert_int_eq(server.link.stage, FABRIC_UP);
}

static void come_up(void)
{
	come_together();
	finish_shaking();
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

/* An end that sends another end's name is not woken, and neither is that other one. */
START_LOOP_TEST(names_of_strangers, 2)
{
	struct side *liar = _i ? &server : &client, *other = _i ? &client : &server;
	uint32_t name;
	int stranger = wake_open(&name);

	liar->port.wake = name;
	come_up();
	ck_assert_uint_eq(other->port.links[0].wake, 0);
	wake_up(other->port.wake_fd, other->port.links[0].wake);
	ck_assert(!is_woken(stranger));
	/* The client reports that it does not wake the server. */
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

/* Another process keeps the server's proof out: neither end waits to be woken. Nobody can keep the
 * client's out. */
START_LOOP_TEST(flooded_proofs, 2)
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
	finish_shaking();
	ck_assert_uint_eq(server.port.links[0].wake, flooded == &server ? client.port.wake : 0);
	ck_assert_uint_eq(client.port.links[0].wake, flooded == &server ? server.port.wake : 0);
	close(stranger);
}
END_TEST

TEST_MAIN(fabric_wake)
{
	return run_suite_forked(all_tests(setup, teardown));
}
