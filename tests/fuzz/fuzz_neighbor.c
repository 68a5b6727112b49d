/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer entry for what keeps a port reachable: ARP, neighbour discovery, echo and membership in
 * groups. A script of bytes brings frames to a neighbour table, wants neighbours and lets go of
 * them, and moves time; after each step everything that must always hold is looked at, and a
 * violation aborts. The corpus is replayed by tests/unit/fuzz/test_fuzz_corpus.c. To build:
 *   clang -std=gnu17 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. \
 *       -Ilib/include tests/fuzz/fuzz_neighbor.c lib/engine/neighbors.c lib/wire/neighbor.c \
 *       lib/wire/icmp.c lib/wire/group.c lib/wire/packet_encode.c lib/wire/opcode.c
 */
#include "tests/fuzz/fuzz_neighbor.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/engine/neighbors.h"
#include "lib/wire/checksum.h"
#include "lib/wire/group.h"
#include "lib/wire/icmp.h"
#include "lib/wire/packet.h"
#include "tests/fuzz/must.h"

enum {
	MAX_FRAME = 2048,
	MAX_WANTED = 64,
	HOPS = 16,
	MAX_DELAY_MS = 8387584, /* the maximum of a code */
};

/* Neighbours that may be requested, each with a GID. */
static const struct {
	struct frl_ip ip;
	uint8_t sgid_index;
} hops[HOPS] = {
	{ { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, 1 },
	{ { { [10] = 0xff, 0xff, 10, 9, 0, 3 } }, 1 },
	{ { { [10] = 0xff, 0xff, 10, 9, 0, 2 } }, 1 }, /* our own */
	{ { { [10] = 0xff, 0xff, 10, 10, 0, 1 } }, 2 },
	{ { { [10] = 0xff, 0xff, 10, 10, 0, 3 } }, 2 }, { { { [10] = 0xff, 0xff } }, 1 },
	{ { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, 2 },
	{ { { 0xfe, 0x80, [8] = 0x50, 0x54, 0, 0xff, 0xfe, 0xaa, 0, 1 } }, 0 },
	{ { { 0xfe, 0x80, [8] = 0x50, 0x54, 0, 0xff, 0xfe, 0xaa, 0, 2 } }, 0 }, /* our own */
	{ { { 0xfd, 0x09, [15] = 1 } }, 3 }, { { { 0xfd, 0x09, [15] = 3 } }, 3 },
	{ { { 0xfd, 0x0a, [15] = 1 } }, 4 }, { { { 0xfd, 0x0a, [15] = 2 } }, 4 }, /* our own */
	{ { { 0 } }, 3 }, { { { 0xfd, 0x09, [15] = 1 } }, 4 },
	{ { { 0xfd, 0x09, [15] = 4 } }, 99 }, /* no such GID */
};

static const uint8_t own_mac[6] = { 0x52, 0x54, 0, 0xaa, 0, 2 };

static const struct gid_table gids = {
	.n = 5,
	.gids = {
		{ { { 0xfe, 0x80, [8] = 0x50, 0x54, 0, 0xff, 0xfe, 0xaa, 0, 2 } }, 64, 0 },
		{ { { [10] = 0xff, 0xff, 10, 9, 0, 2 } }, 24, 0 },
		{ { { [10] = 0xff, 0xff, 10, 10, 0, 2 } }, 24, 10 },
		{ { { 0xfd, 0x09, [15] = 2 } }, 64, 0 },
		{ { { 0xfd, 0x0a, [15] = 2 } }, 64, 10 },
	},
};

struct script {
	const uint8_t *at;
	const uint8_t *end;
};

struct state {
	struct neighbors table;
	struct neighbor_entry before[MAX_WANTED];
	int wanted[MAX_WANTED]; /* what neighbors_get() returned */
	uint32_t n_wanted;
	uint64_t now_ns;
};

static struct state s;

static uint32_t take(struct script *script, int bytes)
{
	uint32_t value = 0;

	while (bytes--)
		value = value << 8 | (script->at < script->end ? *script->at++ : 0);
	return value;
}

static void start(void)
{
	struct neighbors_config config = {
		.gids = &gids,
		.has_gateway = { true, true },
		.gateway = { hops[0].ip, hops[7].ip },
	};

	memset(&s, 0, sizeof(s));
	memcpy(config.mac, own_mac, 6);
	neighbors_init(&s.table, &config);
	s.now_ns = 1000;
}

/* Corrects the checksums that the frame has, so that the code behind them is reached. */
static void fix_checksums(uint8_t *frame, size_t len)
{
	size_t at = len > 13 && get_be16(frame + 12) == ETHERTYPE_VLAN ? ETH_LEN + VLAN_LEN
								       : ETH_LEN;
	bool v4 = len > at && frame[at] >> 4 == 4;
	size_t message = at + (v4 ? (frame[at] & 15u) * 4 : IPV6_LEN), end;
	uint64_t sum = 0;

	if (len < at + (v4 ? IPV4_LEN : IPV6_LEN) || len < message + 4)
		return;
	if (v4) {
		end = at + get_be16(frame + at + 2);
		memset(frame + at + 10, 0, 2);
		checksum_store(frame + at + 10, checksum_add(0, frame + at, message - at));
	} else {
		uint8_t rest[4] = { 0, 0, 0, 58 };

		end = message + get_be16(frame + at + 4);
		if (frame[at + 6] == 0)
			message += (frame[message + 1] + (size_t)1) * 8;
		if (message > end)
			return;
		put_be16(rest, (uint16_t)(end - message));
		sum = checksum_add(checksum_add(0, frame + at + 8, 32), rest, 4);
	}
	if (end > len || message + 4 > end)
		return;
	memset(frame + message + 2, 0, 2);
	checksum_store(frame + message + 2, checksum_add(sum, frame + message, end - message));
}

/* Only the subject of the frame may have changed, and only as the frame says. */
static void check_learned(
	const struct neighbor_message *in, bool decoded, uint32_t generation_before)
{
	uint32_t changes = 0;

	for (uint32_t i = 0; i < s.table.n_end && i < MAX_WANTED; i++) {
		const struct neighbor_entry *old = &s.before[i], *new = &s.table.entries[i];

		MUST(new->users == old->users);
		if (!new->users || memcmp(old, new, sizeof(*old)) == 0)
			continue;
		MUST(decoded && ip_equal(&new->ip, &in->sender_ip) && new->vlan == in->vlan);
		MUST(gid_find(&gids, &new->ip, new->vlan) < 0);
		MUST(!in->unicast || mac_equal(in->dst_mac, own_mac));
		MUST(new->resolved >= old->resolved);
		if (new->resolved == old->resolved && mac_equal(new->mac, old->mac))
			continue;
		MUST(in->has_mac && mac_equal(new->mac, in->sender_mac));
		MUST(in->override || !old->resolved || old->probes > NEIGHBOR_UNICAST_PROBES);
		changes++;
	}
	MUST(s.table.generation == generation_before + changes);
}

static void check_answer(const struct neighbor_message *in, const uint8_t *answer, size_t len)
{
	struct neighbor_message out;

	MUST(len <= NEIGHBOR_MAX_FRAME && in->request);
	MUST(neighbor_decode(&out, answer, len));
	MUST(!out.request && out.vlan == in->vlan && out.has_mac);
	MUST(mac_equal(out.sender_mac, own_mac) && mac_equal(answer + 6, own_mac));
	MUST(ip_equal(&out.sender_ip, &in->target_ip));
	MUST(gid_find(&gids, &out.sender_ip, out.vlan) >= 0);
	MUST(out.unicast ? mac_equal(out.dst_mac, in->sender_mac) : !ip_is_v4(&out.sender_ip));
}

static void bring_neighbor(const uint8_t *frame, size_t len)
{
	uint32_t generation = s.table.generation;
	uint8_t answer[NEIGHBOR_MAX_FRAME];
	struct neighbor_message in = { 0 };
	bool decoded = neighbor_decode(&in, frame, len);
	size_t answer_len;

	if (decoded) {
		MUST(!(in.sender_mac[0] & 1) && in.vlan < 4095);
		MUST(!ip_is_multicast(&in.sender_ip));
	}
	memcpy(s.before, s.table.entries, sizeof(s.before));
	answer_len = neighbors_input(&s.table, frame, len, answer, s.now_ns);
	check_learned(&in, decoded, generation);
	MUST(decoded || answer_len == 0);
	if (answer_len)
		check_answer(&in, answer, answer_len);
}

static void bring_echo(const uint8_t *frame, size_t len, size_t room)
{
	struct icmp_echo echo;
	size_t reply_len;
	uint8_t *out;

	if (!icmp_echo_decode(&echo, frame, len))
		return;
	MUST(echo.message >= frame && echo.message + echo.message_len <= frame + len);
	MUST(ip_is_v4(&echo.src_ip) == ip_is_v4(&echo.dst_ip));
	MUST(!ip_is_multicast(&echo.src_ip) && !(echo.src_mac[0] & 1));
	out = malloc(room ? room : 1);
	MUST(out);
	reply_len = icmp_echo_reply(out, room, &echo);
	MUST(reply_len <= room && reply_len <= len);
	if (reply_len) {
		MUST(mac_equal(out, frame + 6) && mac_equal(out + 6, frame));
		MUST(!icmp_echo_decode(&echo, out, reply_len));
	}
	free(out);
}

static void bring_group(const uint8_t *frame, size_t len)
{
	struct group_report report = { .src_ip = hops[8].ip, .vlan = 10 };
	uint8_t out[GROUP_MAX_FRAME];
	struct group_query query;

	if (!group_decode_query(&query, frame, len))
		return;
	MUST(query.max_delay_ms <= MAX_DELAY_MS && query.vlan < 4095);
	MUST(ip_is_v4(&query.group) == query.ipv4);
	if (query.all)
		return;
	MUST(ip_is_multicast(&query.group));
	MUST(group_is_queried(&query, &query.group, query.vlan) == group_is_reported(&query.group));
	if (query.ipv4)
		report.src_ip = hops[2].ip;
	report.group = query.group;
	memcpy(report.src_mac, own_mac, 6);
	MUST(group_encode_report(out, &report) <= sizeof(out));
	report.leave = true;
	len = group_encode_report(out, &report);
	MUST(len <= sizeof(out) && !group_decode_query(&query, out, len));
}

/* From a block of exactly its size, so that the address sanitizer sees its end. */
static void bring_frame(struct script *script, uint32_t flags)
{
	size_t len = take(script, 2) % (MAX_FRAME + 1);
	uint8_t *frame;

	if (len > (size_t)(script->end - script->at))
		len = (size_t)(script->end - script->at);
	frame = malloc(len ? len : 1);
	MUST(frame);
	memcpy(frame, script->at, len);
	script->at += len;
	if (flags & 1)
		fix_checksums(frame, len);
	if (flags & 2 && len >= 6)
		memcpy(frame, own_mac, 6);
	bring_neighbor(frame, len);
	bring_echo(frame, len, flags & 4 ? len / 2 : MAX_FRAME);
	bring_group(frame, len);
	free(frame);
}

static void want(uint32_t which)
{
	uint32_t hop = which % HOPS;
	struct frl_ip next;
	int index;

	neighbors_next_hop(&s.table, hops[hop].sgid_index, &hops[which / HOPS].ip, &next);
	if (s.n_wanted == MAX_WANTED)
		return;
	index = neighbors_get(&s.table, &hops[hop].ip, hops[hop].sgid_index, s.now_ns);
	MUST((index < 0) == (hops[hop].sgid_index >= gids.n));
	s.wanted[s.n_wanted++] = index;
}

static void let_go(uint32_t which)
{
	if (!s.n_wanted)
		return;
	which %= s.n_wanted;
	neighbors_put(&s.table, s.wanted[which]);
	s.wanted[which] = s.wanted[--s.n_wanted];
}

static void ask(void)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;
	uint32_t asked = 0;
	size_t len;

	while ((len = neighbors_output(&s.table, frame, s.now_ns))) {
		MUST(++asked <= s.table.n_end && len <= sizeof(frame));
		MUST(neighbor_decode(&message, frame, len) && message.request);
		MUST(mac_equal(message.sender_mac, own_mac));
		MUST(gid_find(&gids, &message.sender_ip, message.vlan) >= 0);
		MUST(gid_find(&gids, &message.target_ip, message.vlan) < 0);
	}
	MUST(neighbors_next_deadline(&s.table) > s.now_ns);
}

static void check(void)
{
	uint32_t users = 0, wanted = 0;
	uint8_t mac[6];

	for (uint32_t i = 0; i < s.n_wanted; i++)
		wanted += s.wanted[i] >= 0;
	for (uint32_t i = 0; i < s.table.n_end; i++) {
		const struct neighbor_entry *entry = &s.table.entries[i];

		users += entry->users;
		if (!entry->users)
			continue;
		MUST(neighbors_next_deadline(&s.table) <= entry->request_at_ns);
		MUST(neighbors_mac(&s.table, (int)i, mac) == entry->resolved);
		MUST(!entry->resolved || !(mac[0] & 1));
		if (gid_find(&gids, &entry->ip, entry->vlan) >= 0)
			MUST(entry->resolved && mac_equal(mac, own_mac));
		else
			MUST(entry->request_at_ns != UINT64_MAX);
	}
	MUST(users == wanted);
	MUST(s.table.n_end <= HOPS);
	MUST(s.table.n_end == 0 || s.table.entries[s.table.n_end - 1].users);
}

static void step(struct script *script)
{
	uint32_t op = take(script, 1);

	switch (op & 7) {
	case 0: s.now_ns += take(script, 2) * UINT64_C(1000000); break;
	case 1:
		if (neighbors_next_deadline(&s.table) != UINT64_MAX &&
			neighbors_next_deadline(&s.table) > s.now_ns)
			s.now_ns = neighbors_next_deadline(&s.table);
		ask();
		break;
	case 2: want(take(script, 1)); break;
	case 3: let_go(take(script, 1)); break;
	default: bring_frame(script, op >> 3); break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, data + size };

	start();
	while (script.at < script.end) {
		step(&script);
		check();
	}
	while (s.n_wanted)
		let_go(0);
	check();
	ask();
	MUST(neighbors_next_deadline(&s.table) == UINT64_MAX);
	return 0;
}
