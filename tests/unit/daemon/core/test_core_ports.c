/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of processes: opened, described, closed, limited; and the owner of an endpoint. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/leases/leases.h"
#include "lib/base/bytes.h"
#include "tests/unit/daemon/core/fixtures/ports_fixture.h"
#include "tests/fixtures/program.h"

START_LOOP_TEST(local_fabric_needs_nothing, 2)
{
	struct town town = town_new();
	static const char *const names[] = { "", "local" };
	Ctl__Envelope *answer = open_port(town.process, 1, names[_i], NULL);

	ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_PORT_OPENED);
	ck_assert_str_eq(answer->port_opened->lease->fabric, "local");
	ck_assert_str_eq(answer->port_opened->lease->devargs, "");
	ck_assert_uint_eq(answer->port_opened->lease->qpn_count, 0);
	drop(answer);
	town_free(&town);
}
END_TEST

START_TEST(bad_requests_are_refused)
{
	struct town town = town_new();
	struct process *other = world_process(town.world, 0, OTHER_UID, 12);

	check_failure(open_port(town.process, 0, "", NULL), EEXIST, "numbered from 1");
	check_failure(open_port(town.process, 1, "ib", NULL), ENOENT, "no fabric \"ib\"");
	check_failure(open_port(other, 1, "eth", NULL), EACCES, "user 2000 may not use");
	drop(must_open(town.process, 1));
	check_failure(open_port(town.process, 1, "eth", NULL), EEXIST, "each once: 1");
	town_free(&town);
}
END_TEST

/* A private daemon has no fabrics, and names the one that has. */
START_LOOP_TEST(private_without_fabrics, 2)
{
	struct town town = town_new();
	struct core_facts facts = { .is_private = true, .has_system = _i == 1, .uid = UID };
	size_t fabrics = town.config->n_fabrics;

	core_set_facts(world_core(town.world, 0), &facts);
	check_failure(open_port(town.process, 1, "ib", NULL), ENOENT, "there is no fabric \"ib\"");
	town.config->n_fabrics = 0;
	check_failure(open_port(town.process, 1, "eth", NULL), ENOENT,
		_i ? "systemctl start ferruled" : "set up the system's ferruled");
	town.config->n_fabrics = fabrics;
	town_free(&town);
}
END_TEST

START_TEST(limit_is_per_user)
{
	struct town town = town_new();
	struct process *same = world_process(town.world, 0, UID, 12);
	struct process *other = world_process(town.world, 0, OTHER_UID, 13);
	struct process *root = world_process(town.world, 0, 0, 14);

	for (uint32_t i = 1; i <= town.config->max_ports_per_user; i++) {
		drop(open_port(i % 2 ? town.process : same, i, "", NULL));
		drop(open_port(root, i, "", NULL));
	}
	check_failure(open_port(same, 10, "", NULL), EDQUOT, "max_ports_per_user");
	check_opened(open_port(other, 1, "", NULL));
	check_opened(open_port(root, 10, "", NULL));
	close_port(town.process, 1);
	check_opened(open_port(same, 10, "", NULL));
	town_free(&town);
}
END_TEST

START_TEST(closing_is_answered_if_asked)
{
	struct town town = town_new();
	Ctl__ClosePort close = CTL__CLOSE_PORT__INIT;
	Ctl__Envelope *answer;

	check_opened(open_port(town.process, 3, "", NULL));
	close.port = 3;
	for (unsigned i = 0; i < 2; i++) { /* what is closed can be closed */
		answer = process_ask(town.process, CTL__ENVELOPE__BODY_CLOSE_PORT, &close);
		ck_assert_ptr_nonnull(answer);
		ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_DONE);
		drop(answer);
	}
	check_opened(open_port(town.process, 3, "", NULL));
	close_port(town.process, 3);
	ck_assert_uint_eq(process_mail(town.process), 0);
	town_free(&town);
}
END_TEST

/* ---- endpoints */

static const struct {
	const char *what;
	unsigned at; /* byte that is changed; 128: none */
	bool owned;
} endpoints[] = {
	{ "as described", 128, true },
	{ "magic", 0, false },
	{ "queue pair number, another one", 11, true },
	{ "psn", 13, true },
	{ "mac", 18, false },
	{ "address", 39, false },
	{ "nonce", 50, false },
	{ "number of addresses", 61, false },
};

START_LOOP_TEST(endpoint_is_the_ports_own, ROWS(endpoints))
{
	struct world *world = world_create(1);
	struct process *process;
	uint8_t endpoint[ENDPOINT_BYTES];
	struct port *port;
	uint32_t qpn = 0;

	world_add_host(world, "a", NULL);
	process = world_process(world, 0, UID, 11);
	process_open_port(process, 1);
	port = port_find(session_find(world_core(world, 0), process->session), 1);
	process_endpoint(process, 1, 0x40, endpoint);
	if (endpoints[_i].at < sizeof(endpoint))
		endpoint[endpoints[_i].at] ^= 4;
	ck_assert_msg(port_owns_endpoint(port, endpoint, &qpn) == endpoints[_i].owned, "%s",
		endpoints[_i].what);
	if (endpoints[_i].owned)
		ck_assert_uint_eq(qpn, endpoints[_i].at == 11 ? 0x44 : 0x40);
	put_be32(endpoint + 8, 0);
	ck_assert(!port_owns_endpoint(port, endpoint, &qpn));
	world_destroy(world);
}
END_TEST

START_TEST(description_is_the_leases)
{
	static const struct {
		uint32_t offset;
		bool owned;
	} in_range[] = { { 0, true }, { QPNS - 1, true }, { QPNS, false }, { UINT32_MAX, false } };
	static const uint8_t mac[6] = { 2, 0, 0, 0, 0, 0xff }, wrong[6] = { 2, 0, 0, 0, 9, 9 };
	static const uint8_t nonce[16] = { 1, 2, 3 };
	struct town town = town_new();
	struct process *thief = world_process(town.world, 0, UID, 12);
	uint8_t endpoint[ENDPOINT_BYTES];
	struct port *port;
	uint32_t qpn;

	drop(must_open(town.process, 1));
	port = port_find(session_find(world_core(town.world, 0), town.process->session), 1);
	process_endpoint(town.process, 1, 5, endpoint);
	ck_assert(!port_owns_endpoint(port, endpoint, &qpn));
	check_failure(describe(town.process, 2, "10.1.0.254/16", mac, nonce), EINVAL, "open it");
	check_failure(describe(town.process, 1, "10.1.0.254/16", wrong, nonce), EINVAL, "MAC");
	check_failure(describe(town.process, 1, "10.1.1.1/16", mac, nonce), EINVAL, "leased");
	check_failure(describe(town.process, 1, "10.1.1/16", mac, nonce), EINVAL, "read");
	drop(describe(town.process, 1, "10.1.0.254/16", mac, nonce));
	ck_assert(port->described);
	check_failure(describe(town.process, 1, "10.1.0.254/16", mac, nonce), EINVAL, "already");
	drop(open_port(thief, 1, "", NULL));
	check_failure(
		describe(thief, 1, "10.1.0.254/16", mac, nonce), EADDRINUSE, "another process");
	memcpy(endpoint + 16, mac, sizeof(mac));
	memcpy(endpoint + 44, nonce, sizeof(nonce));
	memcpy(endpoint + 24, port->ips[0].bytes, 16);
	/* The lease has numbers of its own. */
	for (unsigned i = 0; i < sizeof(in_range) / sizeof(in_range[0]); i++) {
		put_be32(endpoint + 8, port->lease->qpn_first + in_range[i].offset);
		ck_assert(port_owns_endpoint(port, endpoint, &qpn) == in_range[i].owned);
	}
	town_free(&town);
}
END_TEST

static unsigned closed;

static void count_close(const struct page_view *page)
{
	closed++;
}

/* The result of a page that came with a DescribePort. */
enum page_end { PORT_CLOSED, PROCESS_DEAD, DAEMON_ENDS, REFUSED };

START_RANGE_TEST(page_goes_with_its_port, PORT_CLOSED, REFUSED + 1)
{
	static const uint8_t mac[6] = { 2 }, nonce[16] = { 1 };
	const struct page_view handed = { .fd = -1, .close = count_close };
	struct town town = town_new();
	struct core *core = world_core(town.world, 0);
	struct port *port;

	closed = 0;
	check_opened(open_port(town.process, 1, "", NULL));
	core_page(core, town.process->session, &handed);
	drop(describe(town.process, _i == REFUSED ? 2 : 1, "169.254.1.1/16", mac, nonce));
	ck_assert_uint_eq(closed, _i == REFUSED);
	port = port_find(session_find(core, town.process->session), 1);
	ck_assert(port->described == (_i != REFUSED));
	ck_assert((port->page.close != NULL) == (_i != REFUSED));
	if (_i == PORT_CLOSED)
		close_port(town.process, 1);
	if (_i == PROCESS_DEAD)
		process_die(town.process);
	world_settle(town.world);
	ck_assert_uint_eq(closed, _i != DAEMON_ENDS);
	town_free(&town);
	ck_assert_uint_eq(closed, 1);
}
END_TEST

TEST_FILE(core_ports)
