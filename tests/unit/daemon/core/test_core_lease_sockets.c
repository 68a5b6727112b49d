/* SPDX-License-Identifier: BSD-3-Clause */
/* Leases of packet sockets: any number an interface, and the rest of a lease whose socket a process
 * keeps. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "daemon/core/leases/leases.h"
#include "tests/unit/daemon/core/fixtures/ports_fixture.h"
#include "tests/fixtures/program.h"

/* Fabric "eth" has interfaces of the kernel; addresses are the limit. */
static struct town packet_town(void)
{
	struct town town = town_new();
	struct config_fabric *fabric = town.config->fabrics;

	for (unsigned i = 0; i < PORTS; i++)
		snprintf(fabric->ports[i].devargs, strlen("net_test0") + 1, "packet:e%u", i);
	town_limit_ports(&town, 2);
	return town;
}

static Ctl__Envelope *with_socket(struct process *process, uint32_t number)
{
	Ctl__Envelope *answer = must_open(process, number);

	ck_assert(answer->port_opened->has_socket);
	return answer;
}

START_TEST(interfaces_are_shared)
{
	static const char *const ports[] = { "packet:e0", "packet:e1", "packet:e0", "packet:e1" };
	struct town town = packet_town();

	for (uint32_t i = 0; i < ADDRESSES; i++) {
		Ctl__Envelope *answer = with_socket(town.process, i + 1);

		ck_assert_str_eq(answer->port_opened->lease->devargs, ports[i]);
		ck_assert_uint_eq(world_sockets(town.world), i + 1);
		drop(answer);
	}
	town.config->max_ports_per_user = 10;
	check_failure(
		open_port(town.process, 9, "eth", NULL), EBUSY, "all addresses of fabric eth");
	town_free(&town);
}
END_TEST

/* A MAC of its own belongs to one lease. */
START_TEST(a_mac_is_not_shared)
{
	struct town town = packet_town();
	struct config_fabric *fabric = town.config->fabrics;

	town_limit_ports(&town, 1);
	fabric->ports[0].has_mac = true;
	memcpy(fabric->ports[0].mac, (uint8_t[]){ 2, 0, 0, 9, 9, 9 }, 6);
	drop(with_socket(town.process, 1));
	check_failure(open_port(town.process, 2, "eth", NULL), EBUSY, "all 1 ports");
	town_free(&town);
}
END_TEST

START_TEST(other_devices_have_no_socket)
{
	struct town town = town_new();
	Ctl__Envelope *answer = must_open(town.process, 1);

	ck_assert(!answer->port_opened->has_socket);
	ck_assert_uint_eq(world_sockets(town.world), 0);
	drop(answer);
	town_free(&town);
}
END_TEST

START_TEST(programs_open_it_themselves)
{
	struct town town = packet_town();

	world_fail_sockets(town.world, -EPERM);
	for (uint32_t i = 1; i <= 2; i++) {
		Ctl__Envelope *answer = must_open(town.process, i);

		ck_assert(!answer->port_opened->has_socket);
		drop(answer);
	}
	ck_assert_uint_eq(world_warnings(town.world, 0), 1);
	ck_assert_ptr_nonnull(strstr(world_last_warning(town.world, 0), "CAP_NET_RAW"));
	town_free(&town);
}
END_TEST

/* The interface is not there, or the kernel has the address. */
START_LOOP_TEST(without_socket_no_lease, 2)
{
	static const int errors[] = { ENODEV, EADDRINUSE };
	struct town town = packet_town();

	world_fail_sockets(town.world, -errors[_i]);
	check_failure(open_port(town.process, 1, "eth", NULL), errors[_i], "packet:e0");
	ck_assert(list_empty(&world_core(town.world, 0)->leases));
	ck_assert_uint_eq(world_core(town.world, 0)->counters.leases_refused, 1);
	town_free(&town);
}
END_TEST

/* A process that has the socket reads frames for its addresses: nobody else gets them. */
START_TEST(kept_sockets_keep_addresses)
{
	struct town town = packet_town();
	struct core *core = world_core(town.world, 0);
	Ctl__Envelope *answer;

	for (uint32_t i = 1; i <= ADDRESSES; i++)
		drop(with_socket(town.process, i));
	process_die(town.process);
	world_run(town.world, 30 * WORLD_S);
	ck_assert_uint_eq(world_warnings(town.world, 0), ADDRESSES);
	ck_assert_ptr_nonnull(strstr(
		world_last_warning(town.world, 0), "still has the socket of an ended lease"));
	process_come_back(town.process);
	/* They still count as this user's ports. */
	check_failure(open_port(town.process, 1, "eth", NULL), EDQUOT, "max_ports_per_user");
	town.config->max_ports_per_user = 10;
	/* Nobody knows when the next one is free. */
	answer = open_port(town.process, 1, "eth", NULL);
	ck_assert_uint_eq(answer->failure->retry_ms, 0);
	check_failure(answer, EBUSY, "such as user 1000's, close their sockets");
	world_close_sockets(town.world);
	world_run(town.world, 1100 * WORLD_MS);
	ck_assert(list_empty(&core->leases));
	ck_assert_str_eq(world_kept(town.world, 0), "");
	drop(with_socket(town.process, 1));
	town_free(&town);
}
END_TEST

/* Also before hold_ms has passed: otherwise an open and a close for each socket would give any
 * number of them. */
START_TEST(kept_sockets_count_at_once)
{
	struct town town = packet_town();

	town.config->max_ports_per_user = 2;
	for (uint32_t i = 1; i <= 2; i++) {
		drop(with_socket(town.process, i));
		close_port(town.process, i);
	}
	check_failure(open_port(town.process, 3, "eth", NULL), EDQUOT, "the sockets of");
	ck_assert_uint_eq(world_sockets(town.world), 2);
	world_close_sockets(town.world);
	drop(with_socket(town.process, 3));
	town_free(&town);
}
END_TEST

/* A user with the maximum of ports gets all of them back. */
START_TEST(claims_are_not_counted_twice)
{
	struct town town = packet_town();
	Ctl__Envelope *before[2];

	town.config->max_ports_per_user = 2;
	for (uint32_t i = 0; i < 2; i++)
		before[i] = with_socket(town.process, i + 1);
	process_die(town.process);
	world_settle(town.world);
	process_come_back(town.process);
	check_failure(open_port(town.process, 3, "eth", NULL), EDQUOT, "max_ports_per_user");
	for (uint32_t i = 0; i < 2; i++) {
		check_opened(open_port(town.process, i + 1, "eth", before[i]->port_opened->lease));
		drop(before[i]);
	}
	town_free(&town);
}
END_TEST

/* The lease continues when its process comes back, and no other is opened. */
START_TEST(sockets_go_on)
{
	struct town town = packet_town();
	Ctl__Envelope *before = with_socket(town.process, 1), *again;
	Ctl__Lease *mine = before->port_opened->lease;

	process_die(town.process);
	world_settle(town.world);
	process_come_back(town.process);
	again = open_port(town.process, 1, "eth", mine);
	ck_assert_int_eq(again->body_case, CTL__ENVELOPE__BODY_PORT_OPENED);
	ck_assert(!again->port_opened->has_socket);
	ck_assert_uint_eq(world_sockets(town.world), 1);
	close_port(town.process, 1);
	world_run(town.world, 5 * WORLD_S);
	ck_assert(!list_empty(&world_core(town.world, 0)->leases));
	drop(again);
	drop(before);
	town_free(&town);
}
END_TEST

static void crash(struct town *town)
{
	world_kill_daemon(town->world, 0);
	world_start_daemon(town->world, 0, true);
}

START_TEST(the_next_daemon_knows_them)
{
	struct town town = packet_town();
	Ctl__Envelope *before = with_socket(town.process, 1);
	Ctl__Lease *mine = before->port_opened->lease;
	struct process *thief;

	drop(with_socket(town.process, 2));
	ck_assert_ptr_nonnull(strstr(world_kept(town.world, 0),
		"1 1000 eth 10.1.0.254/16@7,fd00::1/64@7 0200000000ff\n"));
	town.config->fabrics->any_user = true;
	crash(&town);
	thief = world_process(town.world, 0, OTHER_UID, 12);
	check_failure(open_port(thief, 1, "eth", mine), EADDRINUSE, "belongs to another process");
	process_come_back(town.process);
	check_opened(open_port(town.process, 1, "eth", mine));
	/* The other one is not claimed: it is in quarantine until its socket is gone. */
	world_run(town.world, 30 * WORLD_S);
	for (uint32_t i = 1; i <= ADDRESSES - 2; i++)
		drop(with_socket(thief, i));
	check_failure(open_port(thief, 9, "eth", NULL), EBUSY, "all addresses");
	drop(before);
	town_free(&town);
}
END_TEST

/* Part of one lease and part of another one has no socket. */
START_TEST(claims_are_whole)
{
	struct town town = packet_town();
	Ctl__Envelope *one = with_socket(town.process, 1), *two = with_socket(town.process, 2);
	Ctl__Lease *mixed = one->port_opened->lease;
	char ip[] = "10.1.0.254/16@7,fd00::2/64@7", *whole = mixed->ip;

	process_die(town.process);
	world_settle(town.world);
	process_come_back(town.process);
	mixed->ip = ip;
	check_failure(
		open_port(town.process, 1, "eth", mixed), EADDRINUSE, "belongs to another process");
	mixed->ip = whole;
	check_opened(open_port(town.process, 1, "eth", mixed));
	drop(one);
	drop(two);
	town_free(&town);
}
END_TEST

/* A truncated line, as of a full disk, does not damage the next one. */
START_TEST(lines_are_restored_one_by_one)
{
	struct town town = packet_town();
	struct core *core = world_core(town.world, 0);

	core_restore(core, "1 1000 eth\n10.1.1.1/16 -\n", world_now(town.world));
	ck_assert(list_empty(&core->leases));
	core_restore(core, "1 1000 eth 10.1\n1 1000 eth 10.1.1.1/16 -", world_now(town.world));
	ck_assert(!list_empty(&core->leases));
	ck_assert(core->leases.next->next == &core->leases);
	lease_drop(core, container_of(core->leases.next, struct lease, node));
	town_free(&town);
}
END_TEST

START_TEST(nonsense_is_not_restored)
{
	static const char *const texts[] = { "", "\n\n", "1\n", "0 1000 eth 10.1.1.1/16 -\n",
		"1 1000 eth 10.1.1/16 -\n", "1 1000 eth 10.1.1.1/16 02\n",
		"x 1000 eth 10.1.1.1/16 -\n",
		"1 1000 eth 1.1.1.1/8,1.1.1.2/8,1.1.1.3/8,1.1.1.4/8,1.1.1.5/8 -\n" };
	struct town town = packet_town();
	struct core *core = world_core(town.world, 0);

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		core_restore(core, texts[i], world_now(town.world));
	ck_assert(list_empty(&core->leases));
	town_free(&town);
}
END_TEST

TEST_FILE(core_lease_sockets)
