/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/engine/neighbors_fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

const uint8_t own_mac[6] = { 2, 0, 0, 0, 0, 0x0a };
const uint8_t peer_mac[6] = { 2, 0, 0, 0, 0, 0x0b };
const uint8_t other_mac[6] = { 2, 0, 0, 0, 0, 0x0c };

struct gid_table gids;
struct neighbors table;

const struct family families[FAMILIES] = {
	{ "10.1.1.1", "10.1.1.2", "10.1.1.3", "0.0.0.0", 24 },
	{ "fd00::1", "fd00::2", "fd00::3", "::", 64 },
};

void add_gid(const char *text, uint8_t prefix_len, uint16_t vlan)
{
	ck_assert_uint_lt(gids.n, FRL_MAX_GIDS);
	gids.gids[gids.n++] = (struct frl_gid){
		.ip = ip(text), .prefix_len = prefix_len, .vlan = vlan
	};
}

void start(const char *own, uint8_t prefix_len, const char *gateway)
{
	struct neighbors_config config = { .gids = &gids };

	gids.n = 1;
	gids.gids[0] = (struct frl_gid){ .ip = gid_link_local(own_mac), .prefix_len = 64 };
	add_gid(own, prefix_len, 0);
	memcpy(config.mac, own_mac, 6);
	if (gateway) {
		struct frl_ip address = ip(gateway);

		config.has_gateway[!ip_is_v4(&address)] = true;
		config.gateway[!ip_is_v4(&address)] = address;
	}
	neighbors_init(&table, &config);
}

int want(const char *text, uint8_t sgid_index, uint64_t now_ns)
{
	struct frl_ip address = ip(text);

	return neighbors_get(&table, &address, sgid_index, now_ns);
}

bool resolved(int index)
{
	uint8_t mac[6];

	return neighbors_mac(&table, index, mac);
}

bool knows(int index, const uint8_t mac[6])
{
	uint8_t found[6] = { 0 };

	return neighbors_mac(&table, index, found) && mac_equal(found, mac);
}

void expect_tagged_question(
	const char *text, const char *from, uint16_t vlan, const uint8_t *mac, uint64_t now_ns)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;
	struct frl_ip address = ip(text), own = ip(from);
	size_t len = neighbors_output(&table, frame, now_ns);

	ck_assert_msg(len > 0, "no question for %s", text);
	ck_assert(neighbor_decode(&message, frame, len));
	ck_assert(message.request);
	ck_assert_uint_eq(message.vlan, vlan);
	ck_assert(ip_equal(&message.target_ip, &address));
	ck_assert(ip_equal(&message.sender_ip, &own));
	ck_assert(mac_equal(message.sender_mac, own_mac));
	ck_assert_int_eq(message.unicast, mac != NULL);
	if (mac)
		ck_assert(mac_equal(message.dst_mac, mac));
}

void expect_question(const char *text, const char *from, const uint8_t *mac, uint64_t now_ns)
{
	expect_tagged_question(text, from, 0, mac, now_ns);
}

void expect_silence(uint64_t now_ns)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];

	ck_assert_uint_eq(neighbors_output(&table, frame, now_ns), 0);
}

size_t hear_frame(
	const uint8_t *frame, size_t len, uint8_t answer[NEIGHBOR_MAX_FRAME], uint64_t now_ns)
{
	uint8_t *exact = malloc(len);
	size_t answered;

	ck_assert_ptr_nonnull(exact);
	memcpy(exact, frame, len);
	answered = neighbors_input(&table, exact, len, answer, now_ns);
	free(exact);
	return answered;
}

size_t hear_tagged(uint16_t vlan, bool request, const char *sender, const uint8_t mac[6],
	const char *target, uint8_t answer[NEIGHBOR_MAX_FRAME], uint64_t now_ns)
{
	struct neighbor_message message = {
		.request = request,
		.vlan = vlan,
		.sender_ip = ip(sender),
		.target_ip = ip(target),
	};
	uint8_t frame[NEIGHBOR_MAX_FRAME];

	memcpy(message.sender_mac, mac, 6);
	memcpy(message.dst_mac, own_mac, 6);
	return hear_frame(frame, neighbor_encode(frame, &message), answer, now_ns);
}

size_t hear(bool request, const char *sender, const uint8_t mac[6], const char *target,
	uint8_t answer[NEIGHBOR_MAX_FRAME])
{
	return hear_tagged(0, request, sender, mac, target, answer, 0);
}

size_t reply_at(const char *sender, const uint8_t mac[6], const char *to, uint64_t now_ns)
{
	uint8_t answer[NEIGHBOR_MAX_FRAME];

	return hear_tagged(0, false, sender, mac, to, answer, now_ns);
}

size_t reply(const char *sender, const uint8_t mac[6], const char *to)
{
	return reply_at(sender, mac, to, 0);
}

unsigned used(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < NEIGHBORS_MAX; i++)
		n += table.entries[i].users != 0;
	return n;
}
