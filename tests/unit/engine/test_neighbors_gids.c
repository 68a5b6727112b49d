/* SPDX-License-Identifier: BSD-3-Clause */
/* The neighbour table of a port with many addresses: next hops, VLANs, and its answers. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/wire/packet.h"
#include "tests/unit/engine/neighbors_fixture.h"
#include "tests/fixtures/program.h"

static const uint64_t reachable_ns = NEIGHBOR_REACHABLE_MS * UINT64_C(1000000);

static const struct {
	const char *own;
	uint8_t prefix_len;
	const char *gateway, *to, *hop; /* NULL: no way there */
} hops[] = {
	{ "10.1.1.1", 24, NULL, "10.1.1.2", "10.1.1.2" },
	{ "10.1.1.1", 24, NULL, "10.1.1.255", "10.1.1.255" },
	{ "10.1.1.1", 24, NULL, "10.1.2.1", NULL },
	{ "10.1.1.1", 24, NULL, "10.1.0.255", NULL },
	{ "10.1.1.1", 24, "10.1.1.254", "10.1.2.1", "10.1.1.254" },
	{ "10.1.1.1", 24, "10.1.1.254", "10.1.1.3", "10.1.1.3" },
	{ "10.1.1.1", 0, NULL, "200.0.0.1", "200.0.0.1" },
	{ "10.1.1.1", 0, "10.9.9.9", "1.2.3.4", "1.2.3.4" },
	{ "10.1.1.1", 8, NULL, "10.255.0.1", "10.255.0.1" },
	{ "10.1.1.1", 8, NULL, "11.1.1.1", NULL },
	{ "10.1.1.1", 17, NULL, "10.1.127.255", "10.1.127.255" },
	{ "10.1.1.1", 17, NULL, "10.1.128.0", NULL },
	{ "10.1.1.1", 31, NULL, "10.1.1.0", "10.1.1.0" },
	{ "10.1.1.1", 31, NULL, "10.1.1.2", NULL },
	{ "10.1.1.1", 32, NULL, "10.1.1.1", "10.1.1.1" },
	{ "10.1.1.1", 32, NULL, "10.1.1.0", NULL },
	{ "10.1.1.1", 32, "10.1.1.2", "10.1.1.3", NULL }, /* who leads to the gateway? */
	{ "10.1.1.1", 24, "10.1.1.254", "fd00::1", NULL },
	{ "10.1.1.1", 0, "10.1.1.254", "fd00::1", NULL },
	{ "fd00::1", 64, NULL, "fd00::ffff:0:0:1", "fd00::ffff:0:0:1" },
	{ "fd00::1", 64, NULL, "fd00:0:0:1::1", NULL },
	{ "fd00::1", 64, "fd00::ff", "fd00:0:0:1::1", "fd00::ff" },
	{ "fd00::1", 127, NULL, "fd00::", "fd00::" },
	{ "fd00::1", 127, NULL, "fd00::2", NULL },
	{ "fd00::1", 128, NULL, "fd00::1", "fd00::1" },
	{ "fd00::1", 128, NULL, "fd00::2", NULL },
	{ "fd00::1", 0, NULL, "1234::", "1234::" },
	{ "fd00::1", 0, "fd00::ff", "10.1.1.1", NULL },
};

START_LOOP_TEST(next_hop, ROWS(hops))
{
	struct frl_ip to = ip(hops[_i].to), hop = { { 0x77 } }, wanted;

	start(hops[_i].own, hops[_i].prefix_len, hops[_i].gateway);
	ck_assert_int_eq(neighbors_next_hop(&table, SGID, &to, &hop), hops[_i].hop != NULL);
	if (!hops[_i].hop) {
		ck_assert_uint_eq(hop.bytes[0], 0x77);
		return;
	}
	wanted = ip(hops[_i].hop);
	ck_assert(ip_equal(&hop, &wanted));
}
END_TEST

enum { LINK_LOCAL, V4, V4_SECOND, V4_VLAN, V6, V6_VLAN, NO_SUCH_GID };

/* Two gateways and addresses of both families, some on VLAN 10. */
static void start_many(void)
{
	start("10.1.1.1", 24, "10.1.1.254");
	add_gid("10.2.2.1", 24, 0);
	add_gid("10.3.3.1", 24, 10);
	add_gid("fd00::1", 64, 0);
	add_gid("fd00:3::1", 64, 10);
	table.own.has_gateway[1] = true;
	table.own.gateway[1] = ip("fe80::254");
}

static const struct {
	uint8_t sgid_index;
	const char *to, *hop;
} many_hops[] = {
	{ V4, "10.1.1.2", "10.1.1.2" },
	{ V4, "10.2.2.2", "10.2.2.2" }, /* in the subnet of another GID */
	{ V4_SECOND, "10.1.1.2", "10.1.1.2" },
	{ V4, "10.3.3.2", "10.1.1.254" }, /* on another VLAN: to be routed */
	{ V4_SECOND, "8.8.8.8", "10.1.1.254" },
	{ V4_VLAN, "10.3.3.2", "10.3.3.2" },
	{ V4_VLAN, "10.1.1.2", NULL },
	{ V4_VLAN, "8.8.8.8", NULL }, /* the gateway is not on this VLAN */
	{ V4, "fd00::2", NULL },
	{ V6, "10.1.1.2", NULL },
	{ V6, "fd00::2", "fd00::2" },
	{ V6, "fd00:9::2", "fe80::254" },
	{ V6, "fe80::2", "fe80::2" },
	{ LINK_LOCAL, "fe80::2", "fe80::2" },
	{ LINK_LOCAL, "fd00::2", "fd00::2" },
	{ LINK_LOCAL, "fd00:9::2", NULL },
	{ V6_VLAN, "fd00:3::2", "fd00:3::2" },
	{ V6_VLAN, "fe80::2", NULL }, /* no link-local address there */
	{ V6_VLAN, "fd00::2", NULL },
	{ NO_SUCH_GID, "10.1.1.2", NULL },
	{ UINT8_MAX, "fd00::2", NULL },
};

START_LOOP_TEST(next_hop_of_many, ROWS(many_hops))
{
	struct frl_ip to = ip(many_hops[_i].to), hop, wanted;

	start_many();
	ck_assert_int_eq(neighbors_next_hop(&table, many_hops[_i].sgid_index, &to, &hop),
		many_hops[_i].hop != NULL);
	if (!many_hops[_i].hop)
		return;
	wanted = ip(many_hops[_i].hop);
	ck_assert(ip_equal(&hop, &wanted));
}
END_TEST

static void expect_answer(const uint8_t *frame, size_t len, const char *text, uint16_t vlan)
{
	struct frl_ip own = ip(text);
	struct neighbor_message message;

	ck_assert_msg(len > 0, "no answer for %s", text);
	ck_assert(neighbor_decode(&message, frame, len));
	ck_assert(!message.request);
	ck_assert_uint_eq(message.vlan, vlan);
	ck_assert(ip_equal(&message.sender_ip, &own));
	ck_assert(mac_equal(message.sender_mac, own_mac));
}

/* Link-local addresses are not for a gateway, not even where there are none. */
START_TEST(gateway_on_vlan)
{
	struct frl_ip far = ip("fd00:9::2"), local = ip("fe80::2"), hop;

	start_many();
	table.own.gateway[1] = ip("fd00:3::254");
	ck_assert(neighbors_next_hop(&table, V6_VLAN, &far, &hop));
	ck_assert(ip_equal(&hop, &table.own.gateway[1]));
	ck_assert(!neighbors_next_hop(&table, V6_VLAN, &local, &hop));
	ck_assert(!neighbors_next_hop(&table, V6, &far, &hop));
}
END_TEST

START_LOOP_TEST(answers_for_itself_only, FAMILIES)
{
	uint8_t answer[NEIGHBOR_MAX_FRAME];
	size_t len;

	start(OWN, families[_i].prefix_len, NULL);
	len = hear(true, PEER, peer_mac, OWN, answer);
	expect_answer(answer, len, OWN, 0);
	ck_assert(mac_equal(answer, peer_mac));
	ck_assert_uint_eq(hear(true, PEER, peer_mac, OTHER, answer), 0);
	/* A reply is not answered. */
	ck_assert_uint_eq(hear(false, PEER, peer_mac, OWN, answer), 0);
}
END_TEST

static const struct {
	uint16_t vlan;
	const char *sender, *target;
	bool answered;
} questions[] = {
	{ 0, "10.1.1.2", "10.1.1.1", true },
	{ 0, "10.1.1.2", "10.2.2.1", true },
	{ 0, "10.3.3.2", "10.3.3.1", false }, /* that one is on VLAN 10 */
	{ 10, "10.3.3.2", "10.3.3.1", true },
	{ 10, "10.1.1.2", "10.1.1.1", false },
	{ 11, "10.3.3.2", "10.3.3.1", false },
	{ 0, "fe80::2", "fe80::ff:fe00:a", true }, /* GID [0] */
	{ 10, "fe80::2", "fe80::ff:fe00:a", false },
	{ 0, "fd00::2", "fd00::1", true },
	{ 0, "fe80::2", "fd00::1", true },
	{ 10, "fd00:3::2", "fd00:3::1", true },
	{ 0, "fd00:3::2", "fd00:3::1", false },
	{ 0, "10.1.1.2", "0.0.0.0", false },
};

START_LOOP_TEST(answers_for_every_gid, ROWS(questions))
{
	uint8_t answer[NEIGHBOR_MAX_FRAME];
	size_t len;

	start_many();
	len = hear_tagged(questions[_i].vlan, true, questions[_i].sender, peer_mac,
		questions[_i].target, answer, 0);
	if (questions[_i].answered)
		expect_answer(answer, len, questions[_i].target, questions[_i].vlan);
	else
		ck_assert_uint_eq(len, 0);
}
END_TEST

/* One address on two VLANs: two neighbours. */
START_TEST(vlans)
{
	uint8_t answer[NEIGHBOR_MAX_FRAME];
	int plain, tagged;

	start_many();
	add_gid("10.1.1.77", 24, 10);
	plain = want("10.1.1.2", V4, 0);
	tagged = want("10.1.1.2", gids.n - 1, 0);
	ck_assert_int_ne(plain, tagged);
	expect_question("10.1.1.2", "10.1.1.1", NULL, 0);
	expect_tagged_question("10.1.1.2", "10.1.1.77", 10, NULL, 0);
	hear_tagged(11, false, "10.1.1.2", other_mac, "10.1.1.1", answer, 0);
	ck_assert(!resolved(plain) && !resolved(tagged));
	hear_tagged(10, false, "10.1.1.2", other_mac, "10.1.1.77", answer, 0);
	ck_assert(!resolved(plain));
	ck_assert(knows(tagged, other_mac));
	hear_tagged(0, false, "10.1.1.2", peer_mac, "10.1.1.1", answer, 0);
	ck_assert(knows(plain, peer_mac));
	ck_assert(knows(tagged, other_mac));
	expect_tagged_question("10.1.1.2", "10.1.1.1", 0, peer_mac, reachable_ns);
	expect_tagged_question("10.1.1.2", "10.1.1.77", 10, other_mac, reachable_ns);
}
END_TEST

/* GIDs of one VLAN share what they know. */
START_TEST(gids_of_one_vlan)
{
	int first, second;

	start_many();
	first = want("10.2.2.2", V4_SECOND, 0);
	second = want("10.2.2.2", V4, 0);
	ck_assert_int_eq(first, second);
	expect_question("10.2.2.2", "10.2.2.1", NULL, 0);
	expect_silence(0);
	ck_assert_int_eq(want("10.2.2.2", NO_SUCH_GID, 0), -1);
}
END_TEST

/* Somebody who has no address yet wants to know whether ours is free. */
START_LOOP_TEST(probe, FAMILIES)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME] = { 0 }, answer[NEIGHBOR_MAX_FRAME];
	size_t len;

	start(families[_i].own, families[_i].prefix_len, NULL);
	want(families[_i].nobody, SGID, 0);
	want(families[_i].peer, SGID, 0);
	if (_i == 0) {
		len = hear(true, families[_i].nobody, peer_mac, families[_i].own, answer);
	} else {
		/* A solicitation without its option, RFC 4861 7.1.1: by hand. */
		static const uint8_t head[] = { 0x33, 0x33, 0xff, 0, 0, 1, 2, 0, 0, 0, 0, 0x0b,
			0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255 };
		static const uint8_t group[] = { 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0,
			1 };
		struct frl_ip own = ip(families[_i].own);
		uint32_t sum = 24 + 58;

		memcpy(frame, head, sizeof(head));
		memcpy(frame + 38, group, sizeof(group));
		frame[54] = 135;
		memcpy(frame + 62, own.bytes, 16);
		for (size_t i = 22; i < 78; i += 2)
			sum += (uint32_t)frame[i] << 8 | frame[i + 1];
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		frame[56] = (uint8_t)(~sum >> 8);
		frame[57] = (uint8_t)~sum;
		len = neighbors_input(&table, frame, 78, answer, 0);
	}
	expect_answer(answer, len, OWN, 0);
	ck_assert_uint_eq(table.generation, 0);
}
END_TEST

TEST_FILE(neighbors_gids)
