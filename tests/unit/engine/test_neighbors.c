/* SPDX-License-Identifier: BSD-3-Clause */
/* The neighbour table: its requests, and the answers that it accepts. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/wire/packet.h"
#include "tests/unit/engine/neighbors_fixture.h"
#include "tests/fixtures/program.h"

static const uint64_t interval_ns = NEIGHBOR_REQUEST_INTERVAL_MS * UINT64_C(1000000);
static const uint64_t probe_ns = NEIGHBOR_PROBE_INTERVAL_MS * UINT64_C(1000000);
static const uint64_t reachable_ns = NEIGHBOR_REACHABLE_MS * UINT64_C(1000000);

START_LOOP_TEST(asks_until_answered, FAMILIES)
{
	uint64_t now = 5000;
	int peer;

	start(OWN, families[_i].prefix_len, NULL);
	ck_assert_uint_eq(neighbors_next_deadline(&table), UINT64_MAX);
	expect_silence(now);
	peer = want(PEER, SGID, now);
	ck_assert(!resolved(peer));
	for (int round = 0; round < 300; round++, now += interval_ns) {
		ck_assert_uint_eq(neighbors_next_deadline(&table), now);
		expect_question(PEER, OWN, NULL, now);
		expect_silence(now);
		ck_assert_uint_eq(neighbors_next_deadline(&table), now + interval_ns);
		expect_silence(now + interval_ns - 1);
	}
	ck_assert_uint_eq(table.generation, 0);
	ck_assert_uint_eq(reply_at(PEER, peer_mac, OWN, now), 0);
	ck_assert_uint_eq(table.generation, 1);
	ck_assert(knows(peer, peer_mac));
	expect_silence(now);
	ck_assert_uint_eq(neighbors_next_deadline(&table), now + reachable_ns);
	expect_silence(now + reachable_ns - 1);
}
END_TEST

START_LOOP_TEST(several_deadlines, FAMILIES)
{
	start(OWN, families[_i].prefix_len, NULL);
	want(PEER, SGID, 1000);
	expect_question(PEER, OWN, NULL, 1000);
	expect_silence(1000);
	want(OTHER, SGID, 2000);
	/* The new one does not wait for the old one. */
	ck_assert_uint_eq(neighbors_next_deadline(&table), 2000);
	expect_question(OTHER, OWN, NULL, 2000);
	expect_silence(2000);
	ck_assert_uint_eq(neighbors_next_deadline(&table), 1000 + interval_ns);
	expect_question(PEER, OWN, NULL, 2000 + interval_ns);
	expect_question(OTHER, OWN, NULL, 2000 + interval_ns);
	expect_silence(2000 + interval_ns);
	ck_assert_uint_eq(neighbors_next_deadline(&table), 2000 + 2 * interval_ns);
}
END_TEST

START_LOOP_TEST(learns_only_what_was_asked_for, FAMILIES)
{
	uint8_t answer[NEIGHBOR_MAX_FRAME];
	int peer;

	start(OWN, families[_i].prefix_len, NULL);
	ck_assert_uint_eq(reply(PEER, peer_mac, OWN), 0);
	ck_assert_uint_gt(hear(true, PEER, peer_mac, OWN, answer), 0);
	ck_assert_uint_eq(used(), 0);
	peer = want(PEER, SGID, 0);
	ck_assert(!resolved(peer));
	/* Another one's answer is none to this question. */
	ck_assert_uint_eq(reply(OTHER, other_mac, OWN), 0);
	ck_assert_uint_eq(used(), 1);
	ck_assert(!resolved(peer));
	/* A question of the one that was asked for tells it as well. */
	ck_assert_uint_gt(hear(true, PEER, peer_mac, OWN, answer), 0);
	ck_assert(knows(peer, peer_mac));
	ck_assert_uint_eq(table.generation, 1);
	ck_assert_uint_eq(reply(PEER, peer_mac, OWN), 0);
	ck_assert_uint_eq(table.generation, 1);
	/* It has got another card. */
	ck_assert_uint_eq(reply(PEER, other_mac, OWN), 0);
	ck_assert(knows(peer, other_mac));
	ck_assert_uint_eq(table.generation, 2);
	ck_assert_uint_eq(used(), 1);
}
END_TEST

START_LOOP_TEST(forged_replies, FAMILIES)
{
	static const uint8_t group[6] = { 3, 0, 0, 0, 0, 1 }, zero[6];
	uint8_t frame[NEIGHBOR_MAX_FRAME], answer[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message = {
		.sender_ip = ip(PEER),
		.target_ip = ip(OWN),
	};
	size_t len;
	int peer;

	start(OWN, families[_i].prefix_len, NULL);
	peer = want(PEER, SGID, 0);
	reply(PEER, group, OWN);
	reply(PEER, zero, OWN);
	memcpy(message.sender_mac, peer_mac, 6);
	memcpy(message.dst_mac, other_mac, 6);
	len = neighbor_encode(frame, &message);
	ck_assert_uint_eq(hear_frame(frame, len, answer, 0), 0);
	ck_assert_msg(!resolved(peer), "sent to another station");
	memcpy(frame, own_mac, 6);
	/* In the ARP or ICMPv6 header: of what, or its type. */
	frame[ETH_LEN + (_i ? IPV6_LEN : 1)] ^= 0x40;
	ck_assert_uint_eq(hear_frame(frame, len, answer, 0), 0);
	frame[ETH_LEN + (_i ? IPV6_LEN : 1)] ^= 0x40;
	for (size_t cut = 1; cut < len; cut++)
		ck_assert_uint_eq(hear_frame(frame, cut, answer, 0), 0);
	ck_assert(!resolved(peer));
	ck_assert_uint_eq(used(), 1);
	hear_frame(frame, len, answer, 0);
	ck_assert(knows(peer, peer_mac));
}
END_TEST

/* An entry in use is confirmed: by the known neighbour, or else by asking everybody. */
START_LOOP_TEST(ageing, FAMILIES)
{
	uint64_t now = 7;
	int peer;

	start(OWN, families[_i].prefix_len, NULL);
	peer = want(PEER, SGID, now);
	expect_question(PEER, OWN, NULL, now);
	reply_at(PEER, peer_mac, OWN, now);
	for (int round = 0; round < 2; round++) {
		expect_silence(now + reachable_ns - 1);
		ck_assert_uint_eq(neighbors_next_deadline(&table), now + reachable_ns);
		now += reachable_ns;
		expect_question(PEER, OWN, peer_mac, now);
		expect_silence(now + probe_ns - 1);
		expect_question(PEER, OWN, peer_mac, now + probe_ns);
		now += probe_ns + 1;
		reply_at(PEER, peer_mac, OWN, now);
		ck_assert_uint_eq(table.generation, 1);
	}
	now += reachable_ns;
	for (int i = 0; i < NEIGHBOR_UNICAST_PROBES; i++, now += probe_ns)
		expect_question(PEER, OWN, peer_mac, now);
	for (int i = 0; i < 300; i++, now += probe_ns) {
		expect_question(PEER, OWN, NULL, now);
		expect_silence(now + probe_ns - 1);
	}
	ck_assert_msg(knows(peer, peer_mac), "until somebody answers the last known one stays");
	reply_at(PEER, other_mac, OWN, now);
	ck_assert(knows(peer, other_mac));
	ck_assert_uint_eq(table.generation, 2);
	now += reachable_ns;
	expect_question(PEER, OWN, other_mac, now);
}
END_TEST

/* Any message of the neighbour itself confirms it, so that it is not asked. */
START_LOOP_TEST(confirmed_by_its_questions, FAMILIES)
{
	uint8_t answer[NEIGHBOR_MAX_FRAME];
	uint64_t now = 0;

	start(OWN, families[_i].prefix_len, NULL);
	want(PEER, SGID, now);
	expect_question(PEER, OWN, NULL, now);
	reply(PEER, peer_mac, OWN);
	for (int i = 0; i < 5; i++) {
		now += reachable_ns - 1;
		expect_silence(now);
		ck_assert_uint_gt(hear_tagged(0, true, PEER, peer_mac, OWN, answer, now), 0);
	}
	expect_question(PEER, OWN, peer_mac, now + reachable_ns);
}
END_TEST

/* Sets flags and leaves out the option; RFC 4861, 4.4. */
static void hear_advertisement(const uint8_t mac[6], uint8_t flags, bool option, uint64_t now_ns)
{
	struct neighbor_message message = {
		.sender_ip = ip("fd00::2"),
		.target_ip = ip("fd00::1"),
	};
	uint8_t frame[NEIGHBOR_MAX_FRAME], answer[NEIGHBOR_MAX_FRAME], *icmp;
	uint32_t sum;
	size_t len;

	memcpy(message.sender_mac, mac, 6);
	memcpy(message.dst_mac, own_mac, 6);
	len = neighbor_encode(frame, &message);
	icmp = frame + ETH_LEN + IPV6_LEN;
	icmp[4] = flags;
	icmp[2] = icmp[3] = 0;
	if (!option) {
		len -= 8;
		frame[ETH_LEN + 5] = 24;
	}
	sum = frame[ETH_LEN + 5] + 58u;
	for (size_t i = ETH_LEN + 8; i < len; i += 2)
		sum += (uint32_t)frame[i] << 8 | frame[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	icmp[2] = (uint8_t)(~sum >> 8);
	icmp[3] = (uint8_t)~sum;
	ck_assert(neighbor_decode(&message, frame, len));
	ck_assert_uint_eq(hear_frame(frame, len, answer, now_ns), 0);
}

enum { SOLICITED = 0x40, OVERRIDE = 0x20 };

/* RFC 4861, 7.2.5. */
START_TEST(advertisements)
{
	uint64_t now = 10;
	int peer;

	start("fd00::1", 64, NULL);
	peer = want("fd00::2", SGID, now);
	expect_question("fd00::2", "fd00::1", NULL, now);
	hear_advertisement(peer_mac, SOLICITED | OVERRIDE, false, now);
	ck_assert_msg(!resolved(peer), "no MAC was told");
	hear_advertisement(peer_mac, 0, true, now);
	ck_assert_msg(knows(peer, peer_mac), "a first one overrides nothing");

	now += reachable_ns;
	expect_question("fd00::2", "fd00::1", peer_mac, now);
	hear_advertisement(peer_mac, SOLICITED, false, now);
	expect_silence(now + reachable_ns - 1);
	ck_assert_uint_eq(table.generation, 1);

	hear_advertisement(other_mac, SOLICITED, false, now);
	expect_silence(now);
	/* Another one answers, perhaps in its place: the one that is known decides. */
	for (int i = 0; i < 10; i++) {
		hear_advertisement(other_mac, SOLICITED, true, now);
		ck_assert(knows(peer, peer_mac));
		if (i == 0)
			expect_question("fd00::2", "fd00::1", peer_mac, now);
		expect_silence(now);
	}
	hear_advertisement(other_mac, OVERRIDE, true, now);
	ck_assert(knows(peer, other_mac));
	ck_assert_uint_eq(table.generation, 2);

	/* One that is silent, also when all are asked, has lost its place. */
	now += reachable_ns;
	for (int i = 0; i < NEIGHBOR_UNICAST_PROBES; i++, now += probe_ns) {
		expect_question("fd00::2", "fd00::1", other_mac, now);
		hear_advertisement(peer_mac, SOLICITED, true, now);
		ck_assert(knows(peer, other_mac));
	}
	expect_question("fd00::2", "fd00::1", NULL, now);
	hear_advertisement(peer_mac, SOLICITED, false, now);
	ck_assert(knows(peer, other_mac));
	hear_advertisement(peer_mac, SOLICITED, true, now);
	ck_assert(knows(peer, peer_mac));
	expect_silence(now + reachable_ns - 1);
}
END_TEST

START_TEST(full_table)
{
	char text[32];

	start("10.0.0.1", 8, NULL);
	for (int i = 0; i < NEIGHBORS_MAX; i++) {
		snprintf(text, sizeof(text), "10.1.%d.%d", i / 256, i % 256);
		ck_assert_int_eq(want(text, SGID, 0), i);
	}
	ck_assert_int_eq(want("10.9.0.1", SGID, 0), -1);
	ck_assert_int_eq(want("10.1.0.9", SGID, 0), 9);
	/* Everyone is asked in turn, each once. */
	for (int i = 0; i < NEIGHBORS_MAX; i++) {
		snprintf(text, sizeof(text), "10.1.%d.%d", i / 256, i % 256);
		expect_question(text, "10.0.0.1", NULL, 0);
	}
	expect_silence(0);
	for (int i = 0; i < NEIGHBORS_MAX; i++) {
		snprintf(text, sizeof(text), "10.1.%d.%d", i / 256, i % 256);
		reply(text, i % 2 ? other_mac : peer_mac, "10.0.0.1");
	}
	for (int i = 0; i < NEIGHBORS_MAX; i++)
		ck_assert(knows(i, i % 2 ? other_mac : peer_mac));
	neighbors_put(&table, 500);
	ck_assert_int_eq(want("10.9.0.1", SGID, 0), 500);
	ck_assert(!resolved(500));
	expect_question("10.9.0.1", "10.0.0.1", NULL, 0);
	for (int i = 0; i < NEIGHBORS_MAX; i++)
		neighbors_put(&table, i);
	ck_assert_uint_eq(used(), 1); /* the one with two users */
	ck_assert_uint_eq(table.n_end, 10);
	neighbors_put(&table, 9);
	ck_assert_uint_eq(table.n_end, 0);
	expect_silence(2 * reachable_ns);
	ck_assert_uint_eq(neighbors_next_deadline(&table), UINT64_MAX);
}
END_TEST

START_LOOP_TEST(users, FAMILIES)
{
	int peer;

	start(OWN, families[_i].prefix_len, NULL);
	neighbors_put(&table, -1);
	peer = want(PEER, SGID, 0);
	ck_assert_int_eq(want(PEER, SGID, 0), peer);
	neighbors_put(&table, peer);
	ck_assert_uint_eq(used(), 1);
	expect_question(PEER, OWN, NULL, 0);
	neighbors_put(&table, peer);
	ck_assert_uint_eq(used(), 0);
	expect_silence(interval_ns);
	ck_assert_uint_eq(neighbors_next_deadline(&table), UINT64_MAX);
	/* An answer that comes now was not asked for. */
	reply(PEER, peer_mac, OWN);
	ck_assert_uint_eq(used(), 0);
	ck_assert_uint_eq(table.generation, 0);
	peer = want(PEER, SGID, interval_ns);
	expect_question(PEER, OWN, NULL, interval_ns);
	reply(PEER, peer_mac, OWN);
	ck_assert(knows(peer, peer_mac));
	/* Also what was known: it is asked for anew, since it may have changed. */
	neighbors_put(&table, peer);
	peer = want(PEER, SGID, 2 * interval_ns);
	ck_assert(!resolved(peer));
	expect_question(PEER, OWN, NULL, 2 * interval_ns);
	/* Likewise when its entry is not the last one. */
	reply(PEER, peer_mac, OWN);
	want(OTHER, SGID, 3 * interval_ns);
	expect_question(OTHER, OWN, NULL, 3 * interval_ns);
	neighbors_put(&table, peer);
	ck_assert_uint_eq(used(), 1);
	reply(PEER, other_mac, OWN);
	peer = want(PEER, SGID, 3 * interval_ns);
	ck_assert(!resolved(peer));
	expect_question(PEER, OWN, NULL, 3 * interval_ns);
}
END_TEST

/* Nobody tells us where we are. */
START_LOOP_TEST(own_address, FAMILIES)
{
	int own;

	start(OWN, families[_i].prefix_len, NULL);
	own = want(OWN, SGID, 0);
	ck_assert(knows(own, own_mac));
	ck_assert_uint_eq(neighbors_next_deadline(&table), UINT64_MAX);
	expect_silence(100 * reachable_ns);
	reply(OWN, other_mac, OWN);
	ck_assert(knows(own, own_mac));
	ck_assert_uint_eq(neighbors_next_deadline(&table), UINT64_MAX);
}
END_TEST

TEST_FILE(neighbors)
