/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints and addresses as text: no device is needed. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/api/connect/endpoint.h"
#include "lib/device/soft.h"
#include "tests/fixtures/program.h"

/* The addresses of two ends, and the pair that both must find; -1: none. */
static const struct {
	const char *left, *right;
	int left_index, right_index;
} pairs[] = {
	{ "10.1.1.1/24", "10.1.1.2/24", 0, 0 },
	{ "10.1.1.1/24", "10.2.2.2/24", 0, 0 },
	{ "10.1.1.1/24,10.2.2.1/24,10.3.3.1/24", "10.9.9.9/24,10.2.2.2/24", 1, 1 },
	{ "10.1.1.1/24,10.4.4.1/24", "fd00::2/64,10.1.1.2/24", 0, 1 },
	{ "10.1.1.1/24,fd00::1/64", "fd00::2/64", 1, 0 },
	{ "10.1.1.1/24,10.9.9.1/24", "10.9.9.2/24", 1, 0 },
	{ "10.1.1.1/24,10.9.9.1/24", "10.9.8.2/23", 0, 0 },
	{ "10.1.1.1/24,fd00::1/64,10.3.3.1/24", "fd00::2/64,10.3.3.2/24,10.1.1.2/24", 1, 0 },
	{ "10.1.1.1/24@5,10.1.2.1/24@6", "10.1.2.2/24@6", 1, 0 },
	{ "10.1.1.1/24", "fd00::1/64", -1, -1 },
	/* A fifth address is not sent. */
	{ "10.1.1.1/24,10.1.2.1/24,10.1.3.1/24,10.1.4.1/24,fd00::1/64", "fd00::2/64", -1, -1 },
};

static struct endpoint make(const char *addresses, uint8_t mac)
{
	struct endpoint endpoint = {
		.type = FRL_QPT_RC,
		.qpn = 5,
		.psn = 6,
		.path_mtu = 1024,
		.mac = { 2, [5] = mac },
	};
	struct gid_table gids;

	ck_assert_int_eq(parse_addresses(addresses, &gids), 0);
	for (unsigned i = 1; i < gids.n && endpoint.n_addresses < ENDPOINT_ADDRESSES; i++)
		endpoint.addresses[endpoint.n_addresses++] = gids.gids[i];
	return endpoint;
}

static struct endpoint sent(const struct endpoint *endpoint)
{
	struct frl_endpoint wire;
	struct endpoint got;

	endpoint_encode(endpoint, &wire);
	ck_assert_int_eq(endpoint_decode(&wire, &got), 0);
	ck_assert_uint_eq(got.qpn, endpoint->qpn);
	ck_assert_uint_eq(got.psn, endpoint->psn);
	ck_assert_int_eq(got.type, endpoint->type);
	ck_assert_uint_eq(got.n_addresses, endpoint->n_addresses);
	for (unsigned i = 0; i < got.n_addresses; i++) {
		ck_assert(ip_equal(&got.addresses[i].ip, &endpoint->addresses[i].ip));
		ck_assert_uint_eq(got.addresses[i].prefix_len, endpoint->addresses[i].prefix_len);
	}
	return got;
}

static void check_choice(
	const struct endpoint *own, const struct endpoint *remote, int want_own, int want_remote)
{
	struct endpoint got = sent(remote);
	unsigned i = 99, j = 99;
	bool found = endpoint_choose(own, &got, &i, &j);

	ck_assert_int_eq(found, want_own >= 0);
	if (found)
		ck_assert_msg((int)i == want_own && (int)j == want_remote, "%u, %u", i, j);
}

/* Both ends, whichever has the lower MAC, find the same pair. */
START_LOOP_TEST(choices, 2 * ROWS(pairs))
{
	struct endpoint left = make(pairs[_i / 2].left, _i & 1 ? 1 : 9);
	struct endpoint right = make(pairs[_i / 2].right, 5);

	check_choice(&left, &right, pairs[_i / 2].left_index, pairs[_i / 2].right_index);
	check_choice(&right, &left, pairs[_i / 2].right_index, pairs[_i / 2].left_index);
}
END_TEST

/* Two pairs are equally good: the ends must agree on one. */
START_LOOP_TEST(agreement, 2)
{
	struct endpoint left = make("10.1.1.1/24,10.2.2.1/24", _i ? 1 : 9);
	struct endpoint right = make("10.2.2.2/24,10.1.1.2/24", 5);
	unsigned i, j, k, l;

	ck_assert(endpoint_choose(&left, &right, &i, &j));
	ck_assert(endpoint_choose(&right, &left, &k, &l));
	ck_assert(i == l && j == k && i != j);
}
END_TEST

START_TEST(damaged)
{
	struct endpoint endpoint = make("10.1.1.1/24,fd00::1/64", 1), got;
	struct frl_endpoint wire, bad;

	endpoint_encode(&endpoint, &wire);
	bad = wire;
	bad.bytes[61] = 5; /* addresses */
	ck_assert_int_eq(endpoint_decode(&bad, &got), -EPROTO);
	bad.bytes[61] = 0;
	ck_assert_int_eq(endpoint_decode(&bad, &got), -EPROTO);
	bad = wire;
	bad.bytes[62] = 33; /* prefix length over IPv4 */
	ck_assert_int_eq(endpoint_decode(&bad, &got), -EPROTO);
	bad = wire;
	bad.bytes[63] = 129;
	ck_assert_int_eq(endpoint_decode(&bad, &got), -EPROTO);
	bad = wire;
	bad.bytes[5] = 1; /* version */
	ck_assert_int_eq(endpoint_decode(&bad, &got), -EPROTO);
}
END_TEST

START_TEST(addresses)
{
	struct neighbors_config neighbors = { 0 };
	const uint8_t mac[6] = { 0x52, 0x54, 0, 0xaa, 0, 1 };
	struct gid_table gids;

	ck_assert_int_eq(
		parse_addresses("10.1.1.1/24,fd00::1/64,10.1.7.1/24@7,10.1.1.1/24@7", &gids), 0);
	ck_assert_uint_eq(gids.n, 5);
	ck_assert_uint_eq(gids.gids[3].vlan, 7);
	ck_assert_uint_eq(gids.gids[3].prefix_len, 24);
	ck_assert_int_eq(gid_find(&gids, &gids.gids[1].ip, 7), 4);
	ck_assert_int_eq(parse_gateways("10.1.7.254,fe80::1", &gids, &neighbors), 0);
	ck_assert(neighbors.has_gateway[0] && neighbors.has_gateway[1]);
	ck_assert_uint_eq(neighbors.gateway[1].bytes[15], 1);
	ck_assert_int_eq(add_link_local(&gids, mac), 0);
	ck_assert_uint_eq(gids.gids[0].ip.bytes[8], 0x50);
	ck_assert_int_eq(parse_addresses("10.1.1.1/24,fe80::5054:ff:feaa:1/64", &gids), 0);
	ck_assert_int_eq(add_link_local(&gids, mac), -EINVAL);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "fe80::5054:ff:feaa:1"));
}
END_TEST

TEST_FILE(api_endpoint)
