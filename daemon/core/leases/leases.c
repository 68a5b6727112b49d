/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases: a device of a fabric, an address of each of its ranges, a MAC address and queue pair
 * numbers from its pools. Leases with packet sockets may share an interface.
 *
 * Each pool is allocated in a circle: nothing is reused before all else had its turn. The addresses
 * of a lease that has ended rest for hold_ms: they stay reserved for the same user. Queue pair
 * numbers begin at a random one, and so do addresses after a crash, since it is unknown what the
 * previous daemon allocated last.
 *
 * A process that comes back says which lease it had. Only leases with sockets are saved
 * (sockets.c), so the daemon can check no more than this: the configuration could give it to
 * this user, it is free, and it does not rest after another user's lease. After a crash, therefore,
 * a user of a fabric could claim the lease of another user of this fabric who comes back later. To
 * separate users, give them fabrics of their own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/leases/leases.h"
#include "lib/base/net/ip.h"

enum {
	QPN_FIRST = 2,
	QPN_END = 0xffffff, /* the last number is that of multicast */
};

#define LOOK_AGAIN_NS UINT64_C(1000000000) /* interval of checks for open sockets */

/* Where the search for the next free one begins. */
struct pool {
	UT_hash_handle hh; /* core.pools */
	char fabric[CORE_NAME];
	uint64_t address[LEASE_ADDRESSES];
	uint64_t mac;
	uint64_t qpn;
};

static struct pool *pool_of(struct core *core, const char *fabric)
{
	struct pool *pool;

	HASH_FIND_STR(core->pools, fabric, pool);
	if (pool)
		return pool;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return NULL;
	copy_text(pool->fabric, sizeof(pool->fabric), fabric);
	pool->qpn = core->ops.random(core->ops.ctx);
	for (unsigned i = 0; core->relearn_until_ns && i < LEASE_ADDRESSES; i++)
		pool->address[i] = core->ops.random(core->ops.ctx);
	if (core->relearn_until_ns)
		pool->mac = core->ops.random(core->ops.ctx);
	HASH_ADD_STR(core->pools, fabric, pool);
	if (hash_added(&pool->hh))
		return pool;
	free(pool);
	return NULL;
}

const struct config_fabric *fabric_find(const struct core *core, const char *name)
{
	for (size_t i = 0; i < core->config->n_fabrics; i++) {
		if (strcmp(core->config->fabrics[i].name, name) == 0)
			return &core->config->fabrics[i];
	}
	return NULL;
}

bool may_use_fabric(
	const struct core *core, const struct session *session, const struct config_fabric *fabric)
{
	if (fabric->any_user || session->is_operator)
		return true;
	for (size_t i = 0; i < fabric->n_users; i++) {
		if (fabric->users[i] == session->uid)
			return true;
	}
	for (size_t i = 0; i < fabric->n_groups; i++) {
		if (session_in_group(session, fabric->groups[i]))
			return true;
	}
	/* A fabric without users and groups is for the daemon's own user. */
	return !fabric->n_users && !fabric->n_groups && session->uid == core->facts.uid;
}

/* ---- conflicts */

static bool address_taken(const struct core *core, const struct frl_ip *ip)
{
	LIST_EACH(struct lease, lease, &core->leases, node) {
		for (uint32_t i = 0; i < lease->n_addresses; i++) {
			if (memcmp(&lease->addresses[i], ip, sizeof(*ip)) == 0)
				return true;
		}
	}
	return false;
}

static bool mac_taken(const struct core *core, const uint8_t mac[6])
{
	LIST_EACH(struct lease, lease, &core->leases, node) {
		if (lease->has_mac && memcmp(lease->mac, mac, sizeof(lease->mac)) == 0)
			return true;
	}
	return false;
}

static bool qpns_taken(const struct core *core, const char *fabric, uint32_t first, uint32_t count)
{
	LIST_EACH(struct lease, lease, &core->leases, node) {
		if (lease->qpn_count && strcmp(lease->fabric, fabric) == 0 &&
			first < lease->qpn_first + lease->qpn_count &&
			lease->qpn_first < first + count)
			return true;
	}
	return false;
}

static uint32_t leases_of_device(const struct core *core, const char *devargs)
{
	uint32_t n = 0;

	LIST_EACH(struct lease, lease, &core->leases, node) {
		n += lease->devargs && strcmp(lease->devargs, devargs) == 0;
	}
	return n;
}

/* ---- new leases */

static const char *take_addresses(struct core *core, const struct config_fabric *fabric,
	struct pool *pool, struct lease *lease)
{
	for (size_t i = 0; i < fabric->n_addresses && i < LEASE_ADDRESSES; i++) {
		const struct config_range *range = &fabric->addresses[i];
		uint64_t size = config_range_size(range), tried;

		/* At most as many are taken as there are leases. */
		for (tried = 0; tried < size; tried++) {
			uint64_t index = (pool->address[i] % size + tried) % size;

			lease->addresses[i] = range_at(range, index);
			if (address_taken(core, &lease->addresses[i]))
				continue;
			pool->address[i] = index + 1;
			break;
		}
		if (tried == size)
			return "addresses";
		lease->prefix_len[i] = range->prefix_len;
		lease->n_addresses++;
	}
	return NULL;
}

static const char *take_mac(struct core *core, const struct config_fabric *fabric,
	struct pool *pool, const struct config_port *port, struct lease *lease)
{
	if (port->has_mac) {
		lease->has_mac = true;
		memcpy(lease->mac, port->mac, sizeof(lease->mac));
		return NULL;
	}
	if (!fabric->has_macs)
		return NULL;
	for (uint64_t tried = 0; tried < fabric->n_macs; tried++) {
		uint64_t index = (pool->mac % fabric->n_macs + tried) % fabric->n_macs;

		pool_mac(fabric, index, lease->mac);
		if (mac_taken(core, lease->mac))
			continue;
		pool->mac = index + 1;
		lease->has_mac = true;
		return NULL;
	}
	return "MAC addresses";
}

static const char *take_qpns(struct core *core, const struct config_fabric *fabric,
	struct pool *pool, struct lease *lease)
{
	uint64_t ranges = fabric->qpns ? (QPN_END - QPN_FIRST) / fabric->qpns : 0;

	if (!fabric->qpns)
		return NULL;
	for (uint64_t tried = 0; tried < ranges; tried++) {
		uint64_t index = (pool->qpn % ranges + tried) % ranges;
		uint32_t first = QPN_FIRST + (uint32_t)index * fabric->qpns;

		if (qpns_taken(core, fabric->name, first, fabric->qpns))
			continue;
		pool->qpn = index + 1;
		lease->qpn_first = first;
		lease->qpn_count = fabric->qpns;
		return NULL;
	}
	return "ranges of queue pair numbers";
}

/* Returns the device with the fewest leases. A device that is not shared has at most one. */
static const struct config_port *free_device(
	const struct core *core, const struct config_fabric *fabric)
{
	const struct config_port *best = NULL;
	uint32_t least = UINT32_MAX;

	for (size_t i = 0; i < fabric->n_ports; i++) {
		const struct config_port *port = &fabric->ports[i];
		uint32_t n = leases_of_device(core, port->devargs);

		if (n < least && (n == 0 || config_is_shared(port))) {
			best = port;
			least = n;
		}
	}
	return best;
}

/* Describes what a lease lacks. *ret_error is EAGAIN if it will be free after hold_ms. */
static void describe_lack(const struct core *core, const char *fabric, const char *lack,
	uint64_t now_ns, int *ret_error, char *why, size_t size)
{
	uint32_t rest_ms = lease_rest_ms(core, fabric, now_ns), n_kept = 0;
	uid_t uid = 0;

	LIST_EACH(const struct lease, lease, &core->leases, node) {
		if (!lease->waits_for_socket || lease->port || strcmp(lease->fabric, fabric) != 0)
			continue;
		uid = lease->uid;
		n_kept++;
	}
	*ret_error = rest_ms ? EAGAIN : EBUSY;
	if (rest_ms)
		snprintf(why, size,
			"all %s of fabric %s are in use or reserved after use (hold_ms): the next "
			"is free in %.1f s",
			lack, fabric, rest_ms / 1e3);
	else if (n_kept)
		snprintf(why, size,
			"all %s of fabric %s are in use; %u stay reserved until processes, such as "
			"user %u's, close their sockets: see ferrulectl ports",
			lack, fabric, n_kept, uid);
	else
		snprintf(why, size, "all %s of fabric %s are in use: give the fabric more", lack,
			fabric);
}

static bool take_new(struct core *core, const struct config_fabric *fabric, struct lease *lease,
	uint64_t now_ns, int *ret_error, char *why, size_t size)
{
	const struct config_port *port = free_device(core, fabric);
	struct pool *pool = pool_of(core, fabric->name);
	const char *lack;

	*ret_error = EBUSY;
	if (!port) {
		snprintf(why, size,
			"all %zu ports of fabric %s are leased: ferrulectl ports shows to whom",
			fabric->n_ports, fabric->name);
		return false;
	}
	*ret_error = ENOMEM;
	lease->devargs = strdup(port->devargs);
	lease->is_shared = config_is_shared(port);
	if (!pool || !lease->devargs) {
		snprintf(why, size, "ferruled has no memory left");
		return false;
	}
	lack = take_addresses(core, fabric, pool, lease);
	if (!lack)
		lack = take_mac(core, fabric, pool, port, lease);
	if (!lack)
		lack = take_qpns(core, fabric, pool, lease);
	if (!lack)
		return true;
	describe_lack(core, fabric->name, lack, now_ns, ret_error, why, size);
	return false;
}

/* ---- leases that processes had */

/* Returns true if both leases have something that only one can have. */
static bool overlap(const struct lease *a, const struct lease *b)
{
	if (a->devargs && b->devargs && !(a->is_shared && b->is_shared) &&
		strcmp(a->devargs, b->devargs) == 0)
		return true;
	for (uint32_t i = 0; i < a->n_addresses; i++) {
		for (uint32_t j = 0; j < b->n_addresses; j++) {
			if (memcmp(&a->addresses[i], &b->addresses[j], sizeof(struct frl_ip)) == 0)
				return true;
		}
	}
	if (a->has_mac && b->has_mac && memcmp(a->mac, b->mac, sizeof(a->mac)) == 0)
		return true;
	return a->qpn_count && b->qpn_count && strcmp(a->fabric, b->fabric) == 0 &&
		a->qpn_first < b->qpn_first + b->qpn_count &&
		b->qpn_first < a->qpn_first + a->qpn_count;
}

/* Returns true if packet sockets of both leases would receive the same packets. */
static bool has_same_addresses(const struct lease *a, const struct lease *b)
{
	return a->n_addresses == b->n_addresses &&
		memcmp(a->addresses, b->addresses, a->n_addresses * sizeof(a->addresses[0])) == 0 &&
		a->has_mac == b->has_mac && memcmp(a->mac, b->mac, sizeof(a->mac)) == 0;
}

/* Removes the user's own resting leases that overlap with the wanted one, which takes over their
 * socket. Returns false if another lease is in the way. */
static bool free_overlaps(struct core *core, const struct session *session, struct lease *wanted)
{
	LIST_EACH(struct lease, lease, &core->leases, node) {
		if (overlap(lease, wanted) &&
			(lease->port || lease->uid != session->uid ||
				(lease->socket && !has_same_addresses(lease, wanted))))
			return false;
	}
	LIST_EACH(struct lease, lease, &core->leases, node) {
		if (!overlap(lease, wanted))
			continue;
		if (lease->socket)
			wanted->socket = lease->socket;
		list_remove(&lease->node);
		free(lease);
	}
	return true;
}

/* Cuts the text at a mark and returns the number behind it; 0 if there is none. */
static unsigned long number_behind(char *text, char mark)
{
	char *at = strchr(text, mark);

	if (!at)
		return 0;
	*at = '\0';
	return strtoul(at + 1, NULL, 10);
}

/* Parses "10.1.1.5/24@7,fd00::5/64@7": one address of each range, in their order. */
static bool read_addresses(
	const struct config_fabric *fabric, const char *text, struct lease *lease)
{
	char copy[LEASE_TEXT], *rest = copy, *part;

	copy_text(copy, sizeof(copy), text);
	while (text[0] && (part = strsep(&rest, ",")) != NULL) {
		uint32_t n = lease->n_addresses++;

		if (n >= LEASE_ADDRESSES || n >= fabric->n_addresses ||
			number_behind(part, '@') != fabric->vlan ||
			parse_ip(part, &lease->addresses[n], &lease->prefix_len[n]) ||
			lease->prefix_len[n] != fabric->addresses[n].prefix_len ||
			!in_range(&fabric->addresses[n], &lease->addresses[n]))
			return false;
	}
	return lease->n_addresses ==
		(fabric->n_addresses < LEASE_ADDRESSES ? fabric->n_addresses : LEASE_ADDRESSES);
}

bool lease_read_ip(const char *text, struct lease *lease)
{
	char copy[LEASE_TEXT], *rest = copy, *part;

	copy_text(copy, sizeof(copy), text);
	while ((part = strsep(&rest, ",")) != NULL) {
		uint32_t n = lease->n_addresses++;

		if (n >= LEASE_ADDRESSES)
			return false;
		lease->vlan = (uint16_t)number_behind(part, '@');
		if (parse_ip(part, &lease->addresses[n], &lease->prefix_len[n]))
			return false;
	}
	return true;
}

static bool read_mac(const struct config_fabric *fabric, const struct config_port *port,
	const ProtobufCBinaryData *mac, struct lease *lease)
{
	if (mac->len != sizeof(lease->mac))
		return mac->len == 0 && !port->has_mac && !fabric->has_macs;
	lease->has_mac = true;
	memcpy(lease->mac, mac->data, sizeof(lease->mac));
	if (port->has_mac)
		return memcmp(lease->mac, port->mac, sizeof(lease->mac)) == 0;
	return pool_has_mac(fabric, lease->mac);
}

static const struct config_port *find_device(
	const struct config_fabric *fabric, const char *devargs)
{
	for (size_t i = 0; i < fabric->n_ports; i++) {
		if (strcmp(fabric->ports[i].devargs, devargs) == 0)
			return &fabric->ports[i];
	}
	return NULL;
}

/* Returns true if a daemon with this configuration could have given out this lease. */
static bool read_wanted(
	const struct config_fabric *fabric, const Ctl__Lease *wanted, struct lease *lease)
{
	const struct config_port *port = find_device(fabric, wanted->devargs);

	if (!port || !read_addresses(fabric, wanted->ip, lease) ||
		!read_mac(fabric, port, &wanted->mac, lease) || wanted->qpn_count != fabric->qpns)
		return false;
	lease->is_shared = config_is_shared(port);
	lease->qpn_count = wanted->qpn_count;
	lease->qpn_first = lease->qpn_count ? wanted->qpn_first : 0;
	return !lease->qpn_count ||
		(lease->qpn_first >= QPN_FIRST && lease->qpn_first <= QPN_END - lease->qpn_count);
}

static bool take_again(struct core *core, const struct session *session,
	const struct config_fabric *fabric, const Ctl__Lease *wanted, struct lease *lease,
	int *ret_error, char *why, size_t size)
{
	lease->devargs = strdup(wanted->devargs);
	if (!lease->devargs)
		return false;
	*ret_error = EINVAL;
	snprintf(why, size, "the lease that the process had is no longer valid for fabric %s",
		fabric->name);
	if (!read_wanted(fabric, wanted, lease))
		return false;
	*ret_error = EADDRINUSE;
	snprintf(why, size, "the lease that the process had belongs to another process now");
	return free_overlaps(core, session, lease);
}

struct lease *lease_new(struct core *core, const struct session *session,
	const struct config_fabric *fabric, const Ctl__Lease *wanted, uint64_t now_ns,
	int *ret_error, char *why, size_t size)
{
	struct lease *lease = calloc(1, sizeof(*lease));
	bool taken;

	*ret_error = ENOMEM;
	snprintf(why, size, "ferruled has no memory left");
	if (!lease)
		return NULL;
	list_init(&lease->node);
	copy_text(lease->fabric, sizeof(lease->fabric), fabric->name);
	if (wanted)
		taken = take_again(core, session, fabric, wanted, lease, ret_error, why, size);
	else
		taken = take_new(core, fabric, lease, now_ns, ret_error, why, size);
	if (!taken) {
		free(lease->devargs);
		free(lease);
		return NULL;
	}
	lease->id = core->next_lease++;
	lease->uid = session->uid;
	lease->vlan = fabric->vlan;
	lease->path_mtu = fabric->path_mtu;
	lease->since_ns = now_ns;
	copy_text(lease->gateway, sizeof(lease->gateway), fabric->gateway ? fabric->gateway : "");
	list_add_tail(&core->leases, &lease->node);
	return lease;
}

void lease_print_ip(const struct lease *lease, char *out)
{
	size_t used = 0;

	out[0] = '\0';
	for (uint32_t i = 0; i < lease->n_addresses; i++) {
		char vlan[8] = "";

		if (lease->vlan)
			snprintf(vlan, sizeof(vlan), "@%u", lease->vlan);
		used += (size_t)snprintf(out + used, LEASE_TEXT - used, "%s%s/%u%s", i ? "," : "",
			format_ip(&lease->addresses[i]), lease->prefix_len[i], vlan);
	}
}

void lease_drop(struct core *core, struct lease *lease)
{
	list_remove(&lease->node);
	free(lease->devargs);
	free(lease);
}

void lease_end(struct core *core, struct lease *lease, uint64_t now_ns)
{
	lease->port = NULL;
	free(lease->devargs);
	lease->devargs = NULL;
	lease->free_ns = now_ns + core->config->hold_ms * UINT64_C(1000000);
}

uint32_t lease_rest_ms(const struct core *core, const char *fabric, uint64_t now_ns)
{
	uint64_t free_ns = UINT64_MAX;

	LIST_EACH(const struct lease, lease, &core->leases, node) {
		if (!lease->port && !lease->waits_for_socket &&
			strcmp(lease->fabric, fabric) == 0 && lease->free_ns < free_ns)
			free_ns = lease->free_ns;
	}
	if (free_ns == UINT64_MAX)
		return 0;
	return free_ns > now_ns ? (uint32_t)((free_ns - now_ns) / 1000000) + 1 : 1;
}

uint64_t leases_tick(struct core *core, uint64_t now_ns)
{
	uint64_t due_ns = CORE_NEVER;
	bool changed = false;

	LIST_EACH(struct lease, lease, &core->leases, node) {
		if (lease->port)
			continue;
		if (lease->free_ns <= now_ns && lease_socket_is_open(core, lease))
			lease->free_ns = now_ns + LOOK_AGAIN_NS;
		if (lease->free_ns > now_ns) {
			due_ns = lease->free_ns < due_ns ? lease->free_ns : due_ns;
			continue;
		}
		changed |= lease->socket != 0;
		lease_drop(core, lease);
	}
	if (changed)
		leases_save(core);
	return due_ns;
}

void leases_destroy(struct core *core)
{
	struct pool *pool, *next;

	LIST_EACH(struct lease, lease, &core->leases, node) {
		list_remove(&lease->node);
		free(lease->devargs);
		free(lease);
	}
	HASH_ITER(hh, core->pools, pool, next)
	{
		HASH_DEL(core->pools, pool);
		free(pool);
	}
}

bool core_has_leases(const struct core *core, uint64_t now_ns)
{
	if (now_ns < core->relearn_until_ns)
		return true;
	LIST_EACH(const struct lease, lease, &core->leases, node) {
		if (lease->port)
			return true;
	}
	return false;
}
