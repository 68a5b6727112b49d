/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases: which are given and to whom, which are in quarantine and for how long, and which return
 * after the daemon has crashed.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/leases/leases.h"
#include "tests/unit/daemon/core/fixtures/ports_fixture.h"
#include "tests/fixtures/program.h"

START_TEST(lease_has_everything)
{
	struct town town = town_new();
	Ctl__Envelope *first = must_open(town.process, 1), *second = must_open(town.process, 2);
	const Ctl__Lease *lease = first->port_opened->lease;

	ck_assert_uint_eq(first->port_opened->port, 1);
	ck_assert_str_eq(lease->fabric, "eth");
	ck_assert_str_eq(lease->devargs, "net_test0");
	ck_assert_str_eq(lease->ip, "10.1.0.254/16@7,fd00::1/64@7");
	ck_assert_str_eq(lease->gateway, "10.1.0.1");
	ck_assert_uint_eq(lease->path_mtu, 1024);
	ck_assert_uint_ge(lease->qpn_first, 2);
	ck_assert_uint_le(lease->qpn_first, 0xffffff - QPNS);
	ck_assert_uint_eq(lease->qpn_count, QPNS);
	ck_assert_uint_eq(lease->mac.len, 6);
	ck_assert_mem_eq(lease->mac.data, ((uint8_t[]){ 2, 0, 0, 0, 0, 0xff }), 6);
	lease = second->port_opened->lease;
	ck_assert_str_eq(lease->devargs, "net_test1");
	ck_assert_str_eq(lease->ip, "10.1.0.255/16@7,fd00::2/64@7");
	ck_assert_mem_eq(lease->mac.data, ((uint8_t[]){ 2, 0, 0, 0, 1, 0 }), 6);
	ck_assert_uint_eq(lease->qpn_first, first->port_opened->lease->qpn_first + QPNS);
	ck_assert_uint_ne(lease->id, first->port_opened->lease->id);
	drop(first);
	drop(second);
	town_free(&town);
}
END_TEST

START_TEST(rights_by_group_and_for_all)
{
	struct town town = town_new();
	struct config_fabric *fabric = town.config->fabrics;
	struct core *core = world_core(town.world, 0);
	struct session session = { .uid = OTHER_UID, .gids = { GROUP }, .n_gids = 1 };

	ck_assert(!may_use_fabric(core, &session, fabric));
	fabric->groups = calloc(1, sizeof(gid_t));
	fabric->groups[0] = GROUP;
	fabric->n_groups = 1;
	ck_assert(may_use_fabric(core, &session, fabric));
	session.gids[0] = GROUP + 1;
	ck_assert(!may_use_fabric(core, &session, fabric));
	fabric->any_user = true;
	ck_assert(may_use_fabric(core, &session, fabric));
	fabric->any_user = false;
	session.is_operator = true;
	ck_assert(may_use_fabric(core, &session, fabric));
	town_free(&town);
}
END_TEST

START_TEST(daemons_own_user_needs_no_right)
{
	struct town town = town_new();
	struct config_fabric *fabric = town.config->fabrics;
	const struct core_facts facts = { .uid = OTHER_UID };
	struct session session = { .uid = OTHER_UID };

	core_set_facts(world_core(town.world, 0), &facts);
	ck_assert(!may_use_fabric(world_core(town.world, 0), &session, fabric));
	fabric->n_users = 0;
	ck_assert(may_use_fabric(world_core(town.world, 0), &session, fabric));
	session.uid = UID;
	ck_assert(!may_use_fabric(world_core(town.world, 0), &session, fabric));
	town_free(&town);
}
END_TEST

START_TEST(ports_run_out)
{
	struct town town = town_new();
	Ctl__Envelope *answer;

	for (uint32_t i = 1; i <= PORTS; i++)
		drop(must_open(town.process, i));
	check_failure(open_port(town.process, PORTS + 1, "eth", NULL), EBUSY,
		"all 3 ports of fabric eth are leased");
	answer = open_port(town.process, PORTS + 1, "eth", NULL);
	ck_assert_uint_eq(answer->failure->retry_ms, 0);
	drop(answer);
	ck_assert_uint_eq(world_core(town.world, 0)->counters.leases, PORTS);
	ck_assert_uint_eq(world_core(town.world, 0)->counters.leases_refused, 2);
	town_free(&town);
}
END_TEST

START_TEST(addresses_rest)
{
	static const char *const order[] = { "10.1.0.254", "10.1.0.255", "10.1.1.0", "10.1.1.1" };
	struct town town = town_new();
	Ctl__Envelope *answer;
	uint32_t retry_ms;

	for (unsigned i = 0; i < ADDRESSES; i++) {
		answer = must_open(town.process, 1);
		ck_assert_int_eq(
			strncmp(answer->port_opened->lease->ip, order[i], strlen(order[i])), 0);
		/* The device is free at once. */
		ck_assert_str_eq(answer->port_opened->lease->devargs, "net_test0");
		drop(answer);
		close_port(town.process, 1);
	}
	/* The error says when to try again. */
	world_run(town.world, 400 * WORLD_MS);
	answer = open_port(town.process, 1, "eth", NULL);
	ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_FAILURE);
	retry_ms = answer->failure->retry_ms;
	check_failure(answer, EBUSY, "the next is free in 0.6 s");
	world_run(town.world, (retry_ms - 2) * WORLD_MS);
	check_failure(open_port(town.process, 1, "eth", NULL), EBUSY, "the next is free in 0.0 s");
	world_run(town.world, 2 * WORLD_MS);
	answer = must_open(town.process, 1);
	ck_assert_str_eq(answer->port_opened->lease->ip, "10.1.0.254/16@7,fd00::1/64@7");
	drop(answer);
	town_free(&town);
}
END_TEST

START_TEST(death_ends_the_lease)
{
	struct town town = town_new();
	struct process *next = world_process(town.world, 0, UID, 12);

	for (uint32_t i = 1; i <= PORTS; i++)
		drop(must_open(town.process, i));
	process_die(town.process);
	world_settle(town.world);
	drop(must_open(next, 1));
	town_free(&town);
}
END_TEST

START_TEST(draining_leases_nothing)
{
	struct town town = town_new();

	copy_text(world_core(town.world, 0)->draining, CORE_REASON, "disk is full");
	check_failure(open_port(town.process, 1, "eth", NULL), EBUSY, "draining: disk is full");
	drop(open_port(town.process, 1, "", NULL));
	town_free(&town);
}
END_TEST

/* A process that claims an earlier lease does not get around that, unless it may. */
START_TEST(draining_lets_come_back)
{
	struct town town = town_new();
	Ctl__Envelope *before = must_open(town.process, 1), *again;
	Ctl__Lease *mine = before->port_opened->lease;
	struct process *other;

	copy_text(world_core(town.world, 0)->draining, CORE_REASON, "disk is full");
	world_run(town.world, 3 * WORLD_S); /* since the daemon was started */
	process_die(town.process);
	world_settle(town.world);
	process_come_back(town.process);
	again = open_port(town.process, 1, "eth", mine);
	ck_assert_int_eq(again->body_case, CTL__ENVELOPE__BODY_PORT_OPENED);
	drop(again);
	close_port(town.process, 1);
	town.config->fabrics->any_user = true;
	other = world_process(town.world, 0, OTHER_UID, 12);
	check_failure(open_port(other, 1, "eth", mine), EBUSY, "draining: disk is full");
	drop(before);
	town_free(&town);
}
END_TEST

START_TEST(macs_run_out)
{
	struct town town = town_new();

	town.config->fabrics->n_macs = 1;
	drop(must_open(town.process, 1));
	check_failure(open_port(town.process, 2, "eth", NULL), EBUSY, "all MAC addresses");
	town_free(&town);
}
END_TEST

START_TEST(device_has_its_own_mac)
{
	static const uint8_t mac[6] = { 2, 0, 0, 9, 9, 9 };
	struct town town = town_new();
	struct config_port *port = &town.config->fabrics->ports[0];
	Ctl__Envelope *answer;

	memcpy(port->mac, mac, sizeof(mac));
	port->has_mac = true;
	for (unsigned i = 0; i < 2; i++) { /* it does not rest: it is the device's */
		answer = must_open(town.process, 1);
		ck_assert_mem_eq(answer->port_opened->lease->mac.data, mac, sizeof(mac));
		drop(answer);
		close_port(town.process, 1);
	}
	town_free(&town);
}
END_TEST

START_TEST(pools_are_gone_through_in_a_circle)
{
	static const char *const order[] = { "10.1.0.254", "10.1.0.255", "10.1.1.0", "10.1.1.1" };
	struct town town = town_new();
	uint32_t qpns[3 * ADDRESSES];

	town.config->hold_ms = 0;
	for (unsigned i = 0; i < 3 * ADDRESSES; i++) {
		const char *address = order[i % ADDRESSES];
		Ctl__Envelope *answer = must_open(town.process, 1);
		const Ctl__Lease *lease = answer->port_opened->lease;

		ck_assert_int_eq(strncmp(lease->ip, address, strlen(address)), 0);
		qpns[i] = lease->qpn_first;
		for (unsigned j = 0; j < i; j++)
			ck_assert(qpns[i] >= qpns[j] + QPNS || qpns[j] >= qpns[i] + QPNS);
		drop(answer);
		close_port(town.process, 1);
		world_run(town.world, WORLD_MS);
	}
	town_free(&town);
}
END_TEST

START_TEST(leases_outlive_their_fabric)
{
	struct town town = town_new();
	struct core *core = world_core(town.world, 0);
	struct config *other = config_new();
	Ctl__Envelope *answer = must_open(town.process, 1);

	core_configure(core, other, world_now(town.world));
	config_free(town.config);
	town.config = other;
	check_failure(open_port(town.process, 2, "eth", NULL), ENOENT, "no fabric");
	ck_assert_str_eq(port_find(session_find(core, town.process->session), 1)->lease->devargs,
		answer->port_opened->lease->devargs);
	close_port(town.process, 1);
	world_run(town.world, 20 * WORLD_S);
	ck_assert(list_empty(&core->leases));
	drop(answer);
	town_free(&town);
}
END_TEST

/* ---- coming back */

/* A claim of an earlier lease. Rows differ in one thing from a lease that is free: the second
 * device, and the second one of everything else. */
struct claim {
	const char *devargs, *ip;
	uint8_t mac[6];
	uint32_t mac_size;
	int64_t qpn_first; /* beyond the range of the lease that is given out */
	uint32_t qpn_count;
	int error; /* 0: it is granted */
};

#define OTHER_IPS(text)                                                     \
	{                                                                   \
		"net_test1", text, { 2, 0, 0, 0, 1, 0 }, 6, 0, QPNS, EINVAL \
	}
#define OTHER_MAC(size, ...)                                                                    \
	{                                                                                       \
		"net_test1", "10.1.0.255/16@7,fd00::2/64@7", __VA_ARGS__, size, 0, QPNS, EINVAL \
	}
#define OTHER_QPNS(first, count, error)                                                      \
	{                                                                                    \
		"net_test1", "10.1.0.255/16@7,fd00::2/64@7", { 2, 0, 0, 0, 1, 0 }, 6, first, \
			count, error                                                         \
	}

static const struct claim claims[] = {
	OTHER_QPNS(0, QPNS, 0), /* it is free */
	{ "net_test9", "10.1.0.255/16@7,fd00::2/64@7", { 2, 0, 0, 0, 1, 0 }, 6, 0, QPNS, EINVAL },
	OTHER_IPS(""),
	OTHER_IPS("rubbish"),
	OTHER_IPS("10.1.0.255/16@7"),
	OTHER_IPS("10.1.0.255/16@7,fd00::2/64@7,10.1.1.0/16@7"),
	OTHER_IPS("fd00::2/64@7,10.1.0.255/16@7"),
	OTHER_IPS("10.1.1.2/16@7,fd00::2/64@7"),
	OTHER_IPS("10.1.0.253/16@7,fd00::2/64@7"),
	OTHER_IPS("10.1.0.255/16@7,fd00::5/64@7"),
	OTHER_IPS("10.1.0.255/16@7,fd00:0:0:1::2/64@7"),
	OTHER_IPS("10.1.0.255/24@7,fd00::2/64@7"),
	OTHER_IPS("10.1.0.255/16@8,fd00::2/64@7"),
	OTHER_IPS("10.1.0.255/16,fd00::2/64"),
	OTHER_MAC(6, { 2, 0, 0, 0, 0, 0xfe }),
	OTHER_MAC(6, { 2, 0, 0, 0, 1, 3 }),
	OTHER_MAC(6, { 3, 0, 0, 0, 1, 0 }),
	OTHER_MAC(0, { 0 }),
	OTHER_QPNS(INT64_MIN, QPNS, EINVAL), /* 0 */
	OTHER_QPNS(INT64_MAX, QPNS, EINVAL), /* up to the number of multicast */
	OTHER_QPNS(0, 0, EINVAL),
	OTHER_QPNS(0, UINT32_MAX, EINVAL),
	/* Values that another process has. */
	{ "net_test0", "10.1.0.255/16@7,fd00::2/64@7", { 2, 0, 0, 0, 1, 0 }, 6, 0, QPNS,
		EADDRINUSE },
	{ "net_test1", "10.1.0.254/16@7,fd00::2/64@7", { 2, 0, 0, 0, 1, 0 }, 6, 0, QPNS,
		EADDRINUSE },
	{ "net_test1", "10.1.0.255/16@7,fd00::1/64@7", { 2, 0, 0, 0, 1, 0 }, 6, 0, QPNS,
		EADDRINUSE },
	{ "net_test1", "10.1.0.255/16@7,fd00::2/64@7", { 2, 0, 0, 0, 0, 0xff }, 6, 0, QPNS,
		EADDRINUSE },
	OTHER_QPNS(-1, QPNS, EADDRINUSE),
	OTHER_QPNS(-2 * QPNS + 1, QPNS, EADDRINUSE),
	OTHER_QPNS(-2 * QPNS, QPNS, 0),
};

static Ctl__Lease lease_of(const struct claim *claim, uint32_t qpn_end)
{
	Ctl__Lease lease = CTL__LEASE__INIT;

	lease.fabric = (char *)"eth";
	lease.devargs = (char *)(uintptr_t)claim->devargs;
	lease.ip = (char *)(uintptr_t)claim->ip;
	lease.mac.data = (uint8_t *)(uintptr_t)claim->mac;
	lease.mac.len = claim->mac_size;
	lease.qpn_count = claim->qpn_count;
	lease.qpn_first = claim->qpn_first == INT64_MIN ? 0
		: claim->qpn_first == INT64_MAX         ? 0x1000000 - QPNS
							: (uint32_t)(qpn_end + claim->qpn_first);
	return lease;
}

START_LOOP_TEST(claims_are_checked, ROWS(claims))
{
	struct town town = town_new();
	struct process *process = world_process(town.world, 0, UID, 12);
	Ctl__Envelope *other = must_open(town.process, 1), *answer;
	const struct claim *claim = &claims[_i];
	Ctl__Lease lease = lease_of(claim, other->port_opened->lease->qpn_first + QPNS);

	drop(other);
	answer = open_port(process, 1, "eth", &lease);
	if (claim->error) {
		check_failure(answer, claim->error, "lease");
	} else {
		ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_PORT_OPENED);
		ck_assert_str_eq(answer->port_opened->lease->devargs, lease.devargs);
		ck_assert_str_eq(answer->port_opened->lease->ip, lease.ip);
		ck_assert_mem_eq(answer->port_opened->lease->mac.data, claim->mac, 6);
		ck_assert_uint_eq(answer->port_opened->lease->qpn_first, lease.qpn_first);
		drop(answer);
		/* The next one gets the rest. */
		answer = must_open(process, 2);
		ck_assert_str_eq(answer->port_opened->lease->devargs, "net_test2");
		ck_assert_str_eq(answer->port_opened->lease->ip, "10.1.1.0/16@7,fd00::3/64@7");
		drop(answer);
	}
	town_free(&town);
}
END_TEST

START_TEST(own_lease_comes_back_while_it_rests)
{
	struct town town = town_new();
	Ctl__Envelope *answer = must_open(town.process, 1);
	Ctl__Lease *mine = answer->port_opened->lease;
	struct process *other;

	town.config->fabrics[0].any_user = true;
	other = world_process(town.world, 0, OTHER_UID, 12);
	close_port(town.process, 1);
	check_failure(open_port(other, 1, "eth", mine), EADDRINUSE, "belongs to another process");
	check_opened(open_port(town.process, 1, "eth", mine));
	/* It is not in quarantine and available at once. */
	ck_assert_ptr_eq(
		world_core(town.world, 0)->leases.next, world_core(town.world, 0)->leases.prev);
	close_port(town.process, 1);
	world_run(town.world, 1001 * WORLD_MS);
	check_opened(open_port(other, 1, "eth", mine));
	drop(answer);
	town_free(&town);
}
END_TEST

static void send_open(struct process *process, uint32_t number, uint64_t seq)
{
	Ctl__OpenPort open = CTL__OPEN_PORT__INIT;
	Ctl__Envelope envelope;

	open.port = number;
	open.fabric = (char *)"eth";
	envelope = envelope_of(CTL__ENVELOPE__BODY_OPEN_PORT, &open);
	envelope.seq = seq;
	process_send(process, &envelope);
	world_settle(process->world);
}

static void crash(struct town *town)
{
	world_kill_daemon(town->world, 0);
	world_start_daemon(town->world, 0, true);
}

START_TEST(leases_come_back_after_a_crash)
{
	struct town town = town_new();
	Ctl__Envelope *before = must_open(town.process, 1), *answer;
	Ctl__Lease *mine = before->port_opened->lease;
	struct process *waits;

	crash(&town);
	waits = world_process(town.world, 0, UID, 12);
	send_open(waits, 1, 77);
	ck_assert_uint_eq(process_mail(waits), 0);
	/* The local fabric has nothing that could belong to another one. */
	check_opened(open_port(waits, 9, "", NULL));
	process_come_back(town.process);
	answer = open_port(town.process, 1, "eth", mine);
	ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_PORT_OPENED);
	ck_assert_str_eq(answer->port_opened->lease->ip, mine->ip);
	ck_assert_str_eq(answer->port_opened->lease->devargs, mine->devargs);
	ck_assert_uint_eq(answer->port_opened->lease->qpn_first, mine->qpn_first);
	drop(answer);
	world_run(town.world, 1990 * WORLD_MS);
	ck_assert_uint_eq(process_mail(waits), 0);
	world_run(town.world, 20 * WORLD_MS);
	answer = process_take(waits, CTL__ENVELOPE__BODY_PORT_OPENED);
	ck_assert_ptr_nonnull(answer);
	ck_assert_uint_eq(answer->seq, 77);
	ck_assert_str_ne(answer->port_opened->lease->devargs, mine->devargs);
	ck_assert_str_ne(answer->port_opened->lease->ip, mine->ip);
	drop(answer);
	/* From now on nobody waits. */
	drop(must_open(waits, 2));
	drop(before);
	town_free(&town);
}
END_TEST

/* Earlier leases may be claimed by users of that fabric, and not during their quarantine. */
START_TEST(claims_need_rights)
{
	struct town town = town_new();
	Ctl__Envelope *before = must_open(town.process, 1);
	Ctl__Lease *mine = before->port_opened->lease;
	struct process *thief;

	crash(&town);
	thief = world_process(town.world, 0, OTHER_UID, 12);
	check_failure(open_port(thief, 1, "eth", mine), EACCES, "may not use fabric eth");
	process_come_back(town.process);
	check_opened(open_port(town.process, 1, "eth", mine));
	town.config->fabrics->any_user = true;
	check_failure(
		open_port(thief, 1, "eth", mine), EADDRINUSE, "belongs to another process now");
	close_port(town.process, 1);
	check_failure(
		open_port(thief, 1, "eth", mine), EADDRINUSE, "belongs to another process now");
	drop(before);
	town_free(&town);
}
END_TEST

START_TEST(no_wait_after_a_good_end)
{
	struct town town = town_new();

	world_kill_daemon(town.world, 0);
	world_start_daemon(town.world, 0, false);
	process_come_back(town.process);
	drop(must_open(town.process, 1));
	town_free(&town);
}
END_TEST

START_TEST(who_waits_may_change_its_mind)
{
	struct town town = town_new();
	struct process *dies;
	Ctl__Envelope *answer;

	crash(&town);
	process_come_back(town.process);
	dies = world_process(town.world, 0, UID, 12);
	for (uint32_t i = 1; i <= 3; i++)
		send_open(town.process, i, 10 + i);
	check_failure(open_port(town.process, 2, "eth", NULL), EEXIST, "each once: 2");
	send_open(dies, 1, 20);
	check_failure(open_port(dies, 2, "eth", NULL), EDQUOT, "max_ports_per_user");
	close_port(town.process, 2);
	answer = process_take(town.process, CTL__ENVELOPE__BODY_FAILURE);
	ck_assert_ptr_nonnull(answer);
	ck_assert_uint_eq(answer->seq, 12);
	check_failure(answer, ECANCELED, "closed");
	process_die(dies);
	world_run(town.world, 2100 * WORLD_MS);
	ck_assert_uint_eq(process_mail(town.process), 2);
	ck_assert_uint_eq(world_core(town.world, 0)->counters.leases, 2);
	town_free(&town);
}
END_TEST

START_TEST(waiting_is_over_with_the_daemon)
{
	struct town town = town_new();

	crash(&town);
	process_come_back(town.process);
	send_open(town.process, 1, 10);
	ck_assert(!list_empty(&world_core(town.world, 0)->open_waits));
	town_free(&town); /* ASan sees whether anything is left */
}
END_TEST

TEST_FILE(core_leases)
