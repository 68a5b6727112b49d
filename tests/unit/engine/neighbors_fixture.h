/* SPDX-License-Identifier: BSD-3-Clause */
/* A neighbour table with its GIDs, its input and its output. */
#ifndef FERRULE_TESTS_UNIT_ENGINE_NEIGHBORS_FIXTURE_H
#define FERRULE_TESTS_UNIT_ENGINE_NEIGHBORS_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/engine/neighbors.h"
#include "tests/fixtures/ip_text.h"

enum { SGID = 1 }; /* the first address that start() was given */

extern const uint8_t own_mac[6], peer_mac[6], other_mac[6];
extern struct gid_table gids;
extern struct neighbors table;

/* IPv4 and IPv6: ourselves, a neighbour, another one, nobody. */
struct family {
	const char *own, *peer, *other, *nobody;
	uint8_t prefix_len;
};

enum { FAMILIES = 2 };

extern const struct family families[FAMILIES];

/* In a loop test over them. */
#define OWN   families[_i].own
#define PEER  families[_i].peer
#define OTHER families[_i].other

/* GID [0] is the link-local address, [1] the one given. `gateway` may be NULL. */
void start(const char *own, uint8_t prefix_len, const char *gateway);
void add_gid(const char *text, uint8_t prefix_len, uint16_t vlan);

int want(const char *text, uint8_t sgid_index, uint64_t now_ns);
bool resolved(int index);
bool knows(int index, const uint8_t mac[6]);
unsigned used(void);

/* A question that must be out now; NULL as `mac`: to all. */
void expect_question(const char *text, const char *from, const uint8_t *mac, uint64_t now_ns);
void expect_tagged_question(
	const char *text, const char *from, uint16_t vlan, const uint8_t *mac, uint64_t now_ns);
void expect_silence(uint64_t now_ns);

/* Delivers a frame in a block of exactly its size. Returns the length of the answer. */
size_t hear_frame(
	const uint8_t *frame, size_t len, uint8_t answer[NEIGHBOR_MAX_FRAME], uint64_t now_ns);
size_t hear(bool request, const char *sender, const uint8_t mac[6], const char *target,
	uint8_t answer[NEIGHBOR_MAX_FRAME]);
size_t hear_tagged(uint16_t vlan, bool request, const char *sender, const uint8_t mac[6],
	const char *target, uint8_t answer[NEIGHBOR_MAX_FRAME], uint64_t now_ns);
size_t reply(const char *sender, const uint8_t mac[6], const char *to);
size_t reply_at(const char *sender, const uint8_t mac[6], const char *to, uint64_t now_ns);

#endif
