/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/engine/neighbors.h"

#include <string.h>

#define MS_TO_NS(ms) ((ms)*UINT64_C(1000000))

static bool same_prefix(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned bytes = bits / 8, rest = bits % 8;

	if (memcmp(a, b, bytes) != 0)
		return false;
	return rest == 0 || ((a[bytes] ^ b[bytes]) >> (8 - rest)) == 0;
}

void neighbors_init(struct neighbors *n, const struct neighbors_config *config)
{
	*n = (struct neighbors){ .own = *config, .next_request_ns = UINT64_MAX };
}

/* Returns true if the address is in the subnet of a GID of that VLAN. */
static bool on_link(const struct neighbors *n, const struct frl_ip *ip, uint16_t vlan)
{
	bool v4 = ip_is_v4(ip);

	for (unsigned i = 0; i < n->own.gids->n; i++) {
		const struct frl_gid *gid = &n->own.gids->gids[i];

		if (gid->vlan == vlan && ip_is_v4(&gid->ip) == v4 &&
			same_prefix(gid->ip.bytes, ip->bytes, gid->prefix_len + (v4 ? 96u : 0u)))
			return true;
	}
	return false;
}

bool neighbors_next_hop(const struct neighbors *n, uint8_t sgid_index, const struct frl_ip *ip,
	struct frl_ip *ret_hop)
{
	bool v6 = !ip_is_v4(ip);
	const struct frl_gid *from;

	if (sgid_index >= n->own.gids->n)
		return false;
	from = &n->own.gids->gids[sgid_index];
	if (ip_is_v4(&from->ip) == v6)
		return false;
	if (on_link(n, ip, from->vlan)) {
		*ret_hop = *ip;
		return true;
	}
	/* Routers do not forward link-local addresses (RFC 4291, 2.5.6). */
	if (ip_is_link_local(&from->ip) || ip_is_link_local(ip))
		return false;
	if (!n->own.has_gateway[v6] || !on_link(n, &n->own.gateway[v6], from->vlan))
		return false;
	*ret_hop = n->own.gateway[v6];
	return true;
}

static int find(const struct neighbors *n, const struct frl_ip *ip, uint16_t vlan)
{
	for (uint32_t i = 0; i < n->n_end; i++) {
		const struct neighbor_entry *entry = &n->entries[i];

		if (entry->users && entry->vlan == vlan && ip_equal(&entry->ip, ip))
			return (int)i;
	}
	return -1;
}

static int find_free(struct neighbors *n)
{
	for (uint32_t i = 0; i < n->n_end; i++)
		if (!n->entries[i].users)
			return (int)i;
	return n->n_end < NEIGHBORS_MAX ? (int)n->n_end++ : -1;
}

static void request_at(struct neighbors *n, struct neighbor_entry *entry, uint64_t at_ns)
{
	entry->request_at_ns = at_ns;
	if (at_ns < n->next_request_ns)
		n->next_request_ns = at_ns;
}

static void set_mac(struct neighbors *n, struct neighbor_entry *entry, const uint8_t mac[6])
{
	if (!entry->resolved || !mac_equal(entry->mac, mac))
		n->generation++;
	memcpy(entry->mac, mac, sizeof(entry->mac));
	entry->resolved = true;
	entry->probes = 0;
}

int neighbors_get(
	struct neighbors *n, const struct frl_ip *hop, uint8_t sgid_index, uint64_t now_ns)
{
	struct neighbor_entry *entry;
	uint16_t vlan;
	int index;

	if (sgid_index >= n->own.gids->n)
		return -1;
	vlan = n->own.gids->gids[sgid_index].vlan;
	index = find(n, hop, vlan);
	if (index >= 0) {
		n->entries[index].users++;
		return index;
	}
	index = find_free(n);
	if (index < 0)
		return -1;
	entry = &n->entries[index];
	*entry = (struct neighbor_entry){
		.ip = *hop,
		.users = 1,
		.vlan = vlan,
		.sgid_index = sgid_index,
		.request_at_ns = UINT64_MAX,
	};
	if (gid_find(n->own.gids, hop, vlan) >= 0)
		set_mac(n, entry, n->own.mac);
	else
		request_at(n, entry, now_ns);
	return index;
}

void neighbors_put(struct neighbors *n, int index)
{
	if (index < 0)
		return;
	n->entries[index].users--;
	while (n->n_end > 0 && !n->entries[n->n_end - 1].users)
		n->n_end--;
}

bool neighbors_mac(const struct neighbors *n, int index, uint8_t ret_mac[6])
{
	const struct neighbor_entry *entry = &n->entries[index];

	if (entry->resolved)
		memcpy(ret_mac, entry->mac, sizeof(entry->mac));
	return entry->resolved;
}

/* Without the override flag an advertisement only fills in an unknown MAC address, or replaces one
 * that does not answer (RFC 4861, 7.2.5). */
static bool may_replace(const struct neighbor_entry *entry, const struct neighbor_message *in)
{
	if (!in->has_mac)
		return false;
	return in->override || !entry->resolved || entry->probes > NEIGHBOR_UNICAST_PROBES;
}

/* Learns the sender's MAC address from a request or a reply, if the address is in the table. */
static void learn(struct neighbors *n, const struct neighbor_message *in, uint64_t now_ns)
{
	int index = find(n, &in->sender_ip, in->vlan);
	struct neighbor_entry *entry;

	/* Other hosts cannot claim our own addresses. */
	if (index < 0 || gid_find(n->own.gids, &in->sender_ip, in->vlan) >= 0)
		return;
	entry = &n->entries[index];
	if ((entry->resolved && mac_equal(entry->mac, in->sender_mac)) || may_replace(entry, in)) {
		set_mac(n, entry, in->sender_mac);
		request_at(n, entry, now_ns + MS_TO_NS(NEIGHBOR_REACHABLE_MS));
	} else if (in->has_mac && entry->probes == 0) {
		/* Another host claims the address: probe the known MAC address now. */
		request_at(n, entry, now_ns);
	}
}

size_t neighbors_input(struct neighbors *n, const uint8_t *frame, size_t len,
	uint8_t answer[NEIGHBOR_MAX_FRAME], uint64_t now_ns)
{
	struct neighbor_message in, out;

	if (!neighbor_decode(&in, frame, len))
		return 0;
	if (in.unicast && !mac_equal(in.dst_mac, n->own.mac))
		return 0;
	learn(n, &in, now_ns);
	if (!in.request || gid_find(n->own.gids, &in.target_ip, in.vlan) < 0)
		return 0;
	out = (struct neighbor_message){
		.request = false,
		.vlan = in.vlan,
		.sender_ip = in.target_ip,
		.target_ip = in.sender_ip,
	};
	memcpy(out.sender_mac, n->own.mac, sizeof(out.sender_mac));
	memcpy(out.dst_mac, in.sender_mac, sizeof(out.dst_mac));
	return neighbor_encode(answer, &out);
}

/* Encodes a request. A known MAC address is probed by unicast first. */
static size_t encode_request(const struct neighbors *n, struct neighbor_entry *entry,
	uint8_t frame[NEIGHBOR_MAX_FRAME], uint64_t now_ns)
{
	struct neighbor_message out = {
		.request = true,
		.unicast = entry->resolved && entry->probes < NEIGHBOR_UNICAST_PROBES,
		.vlan = entry->vlan,
		.sender_ip = n->own.gids->gids[entry->sgid_index].ip,
		.target_ip = entry->ip,
	};

	memcpy(out.sender_mac, n->own.mac, sizeof(out.sender_mac));
	memcpy(out.dst_mac, entry->mac, sizeof(out.dst_mac));
	if (entry->probes < UINT8_MAX)
		entry->probes++;
	entry->request_at_ns = now_ns +
		(entry->resolved ? MS_TO_NS(NEIGHBOR_PROBE_INTERVAL_MS)
				 : MS_TO_NS(NEIGHBOR_REQUEST_INTERVAL_MS));
	return neighbor_encode(frame, &out);
}

size_t neighbors_output(struct neighbors *n, uint8_t frame[NEIGHBOR_MAX_FRAME], uint64_t now_ns)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t k = 0; k < n->n_end; k++) {
		uint32_t i = (n->request_cursor + k) % n->n_end;
		struct neighbor_entry *entry = &n->entries[i];

		if (!entry->users)
			continue;
		if (entry->request_at_ns <= now_ns) {
			n->request_cursor = i + 1;
			return encode_request(n, entry, frame, now_ns);
		}
		if (entry->request_at_ns < next)
			next = entry->request_at_ns;
	}
	n->next_request_ns = next;
	return 0;
}
