/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/engine/neighbors.h"

#include <string.h>

static const uint64_t ask_interval_ns = NEIGHBOR_ASK_INTERVAL_MS * UINT64_C(1000000);

static bool same_prefix(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned bytes = bits / 8, rest = bits % 8;

	if (memcmp(a, b, bytes) != 0)
		return false;
	return rest == 0 || ((a[bytes] ^ b[bytes]) >> (8 - rest)) == 0;
}

void neighbors_init(struct neighbors *n, const struct neighbors_config *config)
{
	*n = (struct neighbors){ .own = *config, .next_ask_ns = UINT64_MAX };
}

bool neighbors_next_hop(const struct neighbors *n, const struct frl_ip *ip, struct frl_ip *ret_hop)
{
	bool v4 = ip_is_v4(&n->own.ip);
	unsigned bits = n->own.prefix_len + (v4 ? 96u : 0u);

	if (ip_is_v4(ip) != v4)
		return false;
	if (same_prefix(n->own.ip.bytes, ip->bytes, bits)) {
		*ret_hop = *ip;
		return true;
	}
	if (n->own.has_gateway)
		*ret_hop = n->own.gateway;
	return n->own.has_gateway;
}

static struct neighbor_entry *find(struct neighbors *n, const struct frl_ip *ip)
{
	for (unsigned i = 0; i < NEIGHBORS_MAX; i++)
		if (n->entries[i].used && ip_equal(&n->entries[i].ip, ip))
			return &n->entries[i];
	return NULL;
}

/* A free entry, or else one that is easily learnt again. */
static struct neighbor_entry *make_room(struct neighbors *n)
{
	struct neighbor_entry *victim = &n->entries[0];

	for (unsigned i = 0; i < NEIGHBORS_MAX; i++) {
		if (!n->entries[i].used)
			return &n->entries[i];
		if (n->entries[i].resolved)
			victim = &n->entries[i];
	}
	return victim;
}

bool neighbors_lookup(
	struct neighbors *n, const struct frl_ip *ip, uint8_t ret_mac[6], uint64_t now_ns)
{
	struct neighbor_entry *entry = find(n, ip);

	if (!entry) {
		entry = make_room(n);
		*entry = (struct neighbor_entry){ .ip = *ip, .used = true, .ask_at_ns = now_ns };
		if (now_ns < n->next_ask_ns)
			n->next_ask_ns = now_ns;
	}
	if (entry->resolved)
		memcpy(ret_mac, entry->mac, sizeof(entry->mac));
	return entry->resolved;
}

void neighbors_forget(struct neighbors *n, const struct frl_ip *ip)
{
	struct neighbor_entry *entry = find(n, ip);

	if (entry)
		entry->used = false;
}

size_t neighbors_input(
	struct neighbors *n, const uint8_t *frame, size_t len, uint8_t answer[NEIGHBOR_MAX_FRAME])
{
	struct neighbor_message in, out;
	struct neighbor_entry *entry;

	if (!neighbor_decode(&in, frame, len))
		return 0;
	/* Also a question tells its sender's address; it is believed only where it was asked for.
	 */
	entry = find(n, &in.sender_ip);
	if (entry) {
		memcpy(entry->mac, in.sender_mac, sizeof(entry->mac));
		entry->resolved = true;
	}
	if (!in.request || !ip_equal(&in.target_ip, &n->own.ip))
		return 0;
	out = (struct neighbor_message){
		.request = false,
		.sender_ip = n->own.ip,
		.target_ip = in.sender_ip,
	};
	memcpy(out.sender_mac, n->own.mac, sizeof(out.sender_mac));
	memcpy(out.dst_mac, in.sender_mac, sizeof(out.dst_mac));
	return neighbor_encode(answer, &out);
}

size_t neighbors_output(struct neighbors *n, uint8_t frame[NEIGHBOR_MAX_FRAME], uint64_t now_ns)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < NEIGHBORS_MAX; i++) {
		struct neighbor_entry *entry = &n->entries[i];
		struct neighbor_message out;

		if (!entry->used || entry->resolved)
			continue;
		if (entry->ask_at_ns > now_ns) {
			next = entry->ask_at_ns < next ? entry->ask_at_ns : next;
			continue;
		}
		entry->ask_at_ns = now_ns + ask_interval_ns;
		out = (struct neighbor_message){
			.request = true,
			.sender_ip = n->own.ip,
			.target_ip = entry->ip,
		};
		memcpy(out.sender_mac, n->own.mac, sizeof(out.sender_mac));
		return neighbor_encode(frame, &out);
	}
	n->next_ask_ns = next;
	return 0;
}
