/* SPDX-License-Identifier: BSD-3-Clause */
/* The neighbour table: what it asks, what it believes, and what it answers. */
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/engine/neighbors.h"
#include "lib/wire/packet.h"

static const uint8_t own_mac[6] = { 2, 0, 0, 0, 0, 0x0a };
static const uint8_t peer_mac[6] = { 2, 0, 0, 0, 0, 0x0b };
static const uint8_t other_mac[6] = { 2, 0, 0, 0, 0, 0x0c };
static const uint64_t interval_ns = NEIGHBOR_ASK_INTERVAL_MS * UINT64_C(1000000);

static struct neighbors table;

static struct frl_ip ip(const char *text)
{
	struct frl_ip address = { { 0 } };
	uint8_t v4[4];

	if (inet_pton(AF_INET, text, v4) == 1)
		return ip_from_v4(v4);
	ck_assert_int_eq(inet_pton(AF_INET6, text, address.bytes), 1);
	return address;
}

static void start(const char *own, uint8_t prefix_len, const char *gateway)
{
	struct neighbors_config config = { .ip = ip(own), .prefix_len = prefix_len };

	memcpy(config.mac, own_mac, 6);
	if (gateway) {
		config.has_gateway = true;
		config.gateway = ip(gateway);
	}
	neighbors_init(&table, &config);
}

static bool lookup(const char *text, uint8_t mac[6], uint64_t now_ns)
{
	struct frl_ip address = ip(text);

	return neighbors_lookup(&table, &address, mac, now_ns);
}

static bool knows(const char *text, const uint8_t mac[6])
{
	uint8_t found[6] = { 0 };

	return lookup(text, found, 0) && mac_equal(found, mac);
}

/* A question that must be out now, for that address. */
static void expect_question(const char *text, uint64_t now_ns)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;
	struct frl_ip address = ip(text);
	size_t len = neighbors_output(&table, frame, now_ns);

	ck_assert_uint_gt(len, 0);
	ck_assert(neighbor_decode(&message, frame, len));
	ck_assert(message.request);
	ck_assert(ip_equal(&message.target_ip, &address));
	ck_assert(ip_equal(&message.sender_ip, &table.own.ip));
	ck_assert(mac_equal(message.sender_mac, own_mac));
}

static void expect_silence(uint64_t now_ns)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];

	ck_assert_uint_eq(neighbors_output(&table, frame, now_ns), 0);
}

/* Hears a message from a block of exactly its size. Returns the length of the answer. */
static size_t hear(bool request, const char *sender, const uint8_t mac[6], const char *target,
	uint8_t answer[NEIGHBOR_MAX_FRAME])
{
	struct neighbor_message message = {
		.request = request,
		.sender_ip = ip(sender),
		.target_ip = ip(target),
	};
	uint8_t frame[NEIGHBOR_MAX_FRAME], *exact;
	size_t len, answered;

	memcpy(message.sender_mac, mac, 6);
	memcpy(message.dst_mac, own_mac, 6);
	len = neighbor_encode(frame, &message);
	exact = malloc(len);
	ck_assert_ptr_nonnull(exact);
	memcpy(exact, frame, len);
	answered = neighbors_input(&table, exact, len, answer);
	free(exact);
	return answered;
}

static size_t reply(const char *sender, const uint8_t mac[6], const char *to)
{
	uint8_t answer[NEIGHBOR_MAX_FRAME];

	return hear(false, sender, mac, to, answer);
}

static unsigned used(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < NEIGHBORS_MAX; i++)
		n += table.entries[i].used;
	return n;
}

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
	{ "10.1.1.1", 32, "10.1.1.2", "10.1.1.3", "10.1.1.2" },
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

enum { N_HOPS = sizeof(hops) / sizeof(hops[0]) };

START_TEST(next_hop)
{
	struct frl_ip to = ip(hops[_i].to), hop = { { 0x77 } }, want;

	start(hops[_i].own, hops[_i].prefix_len, hops[_i].gateway);
	ck_assert_int_eq(neighbors_next_hop(&table, &to, &hop), hops[_i].hop != NULL);
	if (!hops[_i].hop) {
		ck_assert_uint_eq(hop.bytes[0], 0x77);
		return;
	}
	want = ip(hops[_i].hop);
	ck_assert(ip_equal(&hop, &want));
}
END_TEST

/* IPv4 and IPv6: ourselves, a neighbour, another one, nobody. */
static const struct {
	const char *own, *peer, *other, *nobody;
	uint8_t prefix_len;
} families[] = {
	{ "10.1.1.1", "10.1.1.2", "10.1.1.3", "0.0.0.0", 24 },
	{ "fd00::1", "fd00::2", "fd00::3", "::", 64 },
};

enum { FAMILIES = sizeof(families) / sizeof(families[0]) };

#define OWN    families[_i].own
#define PEER   families[_i].peer
#define OTHER  families[_i].other
#define NOBODY families[_i].nobody

START_TEST(asks_until_answered)
{
	uint64_t now = 5000;
	uint8_t mac[6];

	start(OWN, families[_i].prefix_len, NULL);
	ck_assert_uint_eq(neighbors_next_deadline(&table), UINT64_MAX);
	expect_silence(now);
	ck_assert(!lookup(PEER, mac, now));
	for (int round = 0; round < 3; round++, now += interval_ns) {
		ck_assert_uint_eq(neighbors_next_deadline(&table), now);
		expect_question(PEER, now);
		expect_silence(now);
		ck_assert_uint_eq(neighbors_next_deadline(&table), now + interval_ns);
		ck_assert(!lookup(PEER, mac, now + 1));
		expect_silence(now + interval_ns - 1);
	}
	ck_assert_uint_eq(reply(PEER, peer_mac, OWN), 0);
	expect_silence(now);
	ck_assert_uint_eq(neighbors_next_deadline(&table), UINT64_MAX);
	ck_assert(lookup(PEER, mac, now));
	ck_assert(mac_equal(mac, peer_mac));
	expect_silence(now + 10 * interval_ns);
}
END_TEST

START_TEST(several_deadlines)
{
	uint8_t mac[6];

	start(OWN, families[_i].prefix_len, NULL);
	ck_assert(!lookup(PEER, mac, 1000));
	expect_question(PEER, 1000);
	expect_silence(1000);
	ck_assert(!lookup(OTHER, mac, 2000));
	/* The new one does not wait for the old one. */
	ck_assert_uint_eq(neighbors_next_deadline(&table), 2000);
	expect_question(OTHER, 2000);
	expect_silence(2000);
	ck_assert_uint_eq(neighbors_next_deadline(&table), 1000 + interval_ns);
	expect_question(PEER, 2000 + interval_ns);
	expect_question(OTHER, 2000 + interval_ns);
	expect_silence(2000 + interval_ns);
	ck_assert_uint_eq(neighbors_next_deadline(&table), 2000 + 2 * interval_ns);
}
END_TEST

START_TEST(learns_only_what_was_asked_for)
{
	uint8_t answer[NEIGHBOR_MAX_FRAME], mac[6];

	start(OWN, families[_i].prefix_len, NULL);
	ck_assert_uint_eq(reply(PEER, peer_mac, OWN), 0);
	ck_assert_uint_gt(hear(true, PEER, peer_mac, OWN, answer), 0);
	ck_assert_uint_eq(used(), 0);
	ck_assert(!lookup(PEER, mac, 0));
	/* Another one's answer is none to this question. */
	ck_assert_uint_eq(reply(OTHER, other_mac, OWN), 0);
	ck_assert_uint_eq(used(), 1);
	ck_assert(!lookup(PEER, mac, 0));
	/* A question of the one that was asked for tells it as well. */
	ck_assert_uint_gt(hear(true, PEER, peer_mac, OWN, answer), 0);
	ck_assert(knows(PEER, peer_mac));
	/* It has got another card. */
	ck_assert_uint_eq(reply(PEER, other_mac, OWN), 0);
	ck_assert(knows(PEER, other_mac));
	ck_assert_uint_eq(used(), 1);
}
END_TEST

START_TEST(forged_replies)
{
	static const uint8_t group[6] = { 3, 0, 0, 0, 0, 1 }, zero[6];
	uint8_t frame[NEIGHBOR_MAX_FRAME], answer[NEIGHBOR_MAX_FRAME], mac[6];
	struct neighbor_message message = {
		.sender_ip = ip(PEER),
		.target_ip = ip(OWN),
	};
	size_t len;

	start(OWN, families[_i].prefix_len, NULL);
	ck_assert(!lookup(PEER, mac, 0));
	reply(PEER, group, OWN);
	reply(PEER, zero, OWN);
	memcpy(message.sender_mac, peer_mac, 6);
	len = neighbor_encode(frame, &message);
	/* In the ARP or ICMPv6 header: of what, or its type. */
	frame[ETH_LEN + (_i ? IPV6_LEN : 1)] ^= 0x40;
	ck_assert_uint_eq(neighbors_input(&table, frame, len, answer), 0);
	frame[ETH_LEN + (_i ? IPV6_LEN : 1)] ^= 0x40;
	for (size_t cut = 0; cut < len; cut++)
		ck_assert_uint_eq(neighbors_input(&table, frame, cut, answer), 0);
	ck_assert(!lookup(PEER, mac, 0));
	ck_assert_uint_eq(used(), 1);
	neighbors_input(&table, frame, len, answer);
	ck_assert(knows(PEER, peer_mac));
}
END_TEST

static void expect_answer(const uint8_t *frame, size_t len, int family)
{
	struct frl_ip own = ip(families[family].own);
	struct neighbor_message message;

	ck_assert_uint_gt(len, 0);
	ck_assert(neighbor_decode(&message, frame, len));
	ck_assert(!message.request);
	ck_assert(ip_equal(&message.sender_ip, &own));
	ck_assert(mac_equal(message.sender_mac, own_mac));
}

START_TEST(answers_for_itself_only)
{
	uint8_t answer[NEIGHBOR_MAX_FRAME];
	size_t len;

	start(OWN, families[_i].prefix_len, NULL);
	len = hear(true, PEER, peer_mac, OWN, answer);
	expect_answer(answer, len, _i);
	ck_assert(mac_equal(answer, peer_mac));
	ck_assert_uint_eq(hear(true, PEER, peer_mac, OTHER, answer), 0);
	/* A reply is not answered. */
	ck_assert_uint_eq(hear(false, PEER, peer_mac, OWN, answer), 0);
}
END_TEST

/* Somebody who has no address yet wants to know whether ours is free. */
START_TEST(probe)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME] = { 0 }, answer[NEIGHBOR_MAX_FRAME], mac[6];
	size_t len;

	start(OWN, families[_i].prefix_len, NULL);
	if (_i == 0) {
		len = hear(true, NOBODY, peer_mac, OWN, answer);
	} else {
		/* A solicitation without its option, RFC 4861 7.1.1: by hand. */
		static const uint8_t head[] = { 0x33, 0x33, 0xff, 0, 0, 1, 2, 0, 0, 0, 0, 0x0b,
			0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255 };
		static const uint8_t group[] = { 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0,
			1 };
		struct frl_ip own = ip(OWN);
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
		len = neighbors_input(&table, frame, 78, answer);
	}
	expect_answer(answer, len, _i);
	ck_assert_uint_eq(used(), 0);
	ck_assert(!lookup(NOBODY, mac, 0));
	ck_assert(!lookup(PEER, mac, 0));
}
END_TEST

START_TEST(full_table)
{
	char text[32], last[32];
	uint8_t mac[6];

	start("10.0.0.1", 8, NULL);
	for (unsigned i = 0; i < NEIGHBORS_MAX; i++) {
		snprintf(text, sizeof(text), "10.1.%u.%u", i / 256, i % 256);
		ck_assert(!lookup(text, mac, 0));
	}
	ck_assert_uint_eq(used(), NEIGHBORS_MAX);
	/* One that is resolved makes room before one that somebody waits for. */
	reply("10.1.0.77", peer_mac, "10.0.0.1");
	ck_assert(!lookup("10.2.0.1", mac, 0));
	ck_assert_uint_eq(used(), NEIGHBORS_MAX);
	for (unsigned i = 0; i < NEIGHBORS_MAX; i++) {
		snprintf(text, sizeof(text), "10.1.%u.%u", i / 256, i % 256);
		if (i != 77)
			ck_assert_uint_eq(reply(text, other_mac, "10.0.0.1"), 0);
		if (i != 77)
			ck_assert_msg(knows(text, other_mac), "%s was thrown out", text);
	}
	ck_assert_uint_eq(reply("10.2.0.1", peer_mac, "10.0.0.1"), 0);
	ck_assert(knows("10.2.0.1", peer_mac));
	/* And it goes on so: every new one is asked for. */
	for (unsigned i = 0; i < 3 * NEIGHBORS_MAX; i++) {
		snprintf(last, sizeof(last), "10.3.%u.%u", i / 256, i % 256);
		ck_assert(!lookup(last, mac, 0));
		ck_assert_uint_eq(reply(last, peer_mac, "10.0.0.1"), 0);
		ck_assert(knows(last, peer_mac));
		ck_assert_uint_eq(used(), NEIGHBORS_MAX);
	}
}
END_TEST

START_TEST(forget)
{
	struct frl_ip peer = ip(PEER), other = ip(OTHER);
	uint8_t mac[6];

	start(OWN, families[_i].prefix_len, NULL);
	ck_assert(!lookup(PEER, mac, 0));
	neighbors_forget(&table, &other); /* unknown: fine */
	neighbors_forget(&table, &peer);
	ck_assert_uint_eq(used(), 0);
	expect_silence(interval_ns);
	ck_assert_uint_eq(neighbors_next_deadline(&table), UINT64_MAX);
	/* What comes in for it now was not asked for. */
	reply(PEER, peer_mac, OWN);
	ck_assert_uint_eq(used(), 0);
	ck_assert(!lookup(PEER, mac, interval_ns));
	expect_question(PEER, interval_ns);
	reply(PEER, peer_mac, OWN);
	/* Also what is known: it is asked for anew, since it may have changed. */
	neighbors_forget(&table, &peer);
	ck_assert_uint_eq(used(), 0);
	ck_assert(!lookup(PEER, mac, 2 * interval_ns));
	expect_question(PEER, 2 * interval_ns);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("neighbors");
	TCase *tcase = tcase_create("neighbors");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_loop_test(tcase, next_hop, 0, N_HOPS);
	tcase_add_loop_test(tcase, asks_until_answered, 0, FAMILIES);
	tcase_add_loop_test(tcase, several_deadlines, 0, FAMILIES);
	tcase_add_loop_test(tcase, learns_only_what_was_asked_for, 0, FAMILIES);
	tcase_add_loop_test(tcase, forged_replies, 0, FAMILIES);
	tcase_add_loop_test(tcase, answers_for_itself_only, 0, FAMILIES);
	tcase_add_loop_test(tcase, probe, 0, FAMILIES);
	tcase_add_test(tcase, full_table);
	tcase_add_loop_test(tcase, forget, 0, FAMILIES);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
