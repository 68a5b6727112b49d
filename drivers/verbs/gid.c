/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The addresses of a port: the RoCE v2 entries of its GID table. The kernel fills them from the IP
 * addresses of the port's network interface and of the VLANs on it. One is the main address, which
 * peers are given first.
 */
#include "drivers/verbs/internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/base/error.h"
#include "lib/base/net/ip.h"

enum { DEFAULT_HOP_LIMIT = 64 };

static uint8_t prefix_len_of(const struct frl_ip *ip)
{
	int len = netif_prefix_len(ip);

	if (len >= 0)
		return (uint8_t)len;
	if (ip_is_v4(ip))
		return 32;
	return ip_is_link_local(ip) ? 64 : 128;
}

static void take_entry(const struct ibv_gid_entry *entry, struct port_gid *to)
{
	*to = (struct port_gid){ .index = entry->gid_index, .ifindex = entry->ndev_ifindex };
	memcpy(&to->gid.ip, entry->gid.raw, sizeof(to->gid.ip));
	to->gid.prefix_len = prefix_len_of(&to->gid.ip);
	to->gid.vlan = netif_vlan(entry->ndev_ifindex);
}

/* The query returns the entries of all ports. */
static size_t room_for_gids(struct ibv_context *context, unsigned n_ports)
{
	size_t room = 0;

	for (unsigned num = 1; num <= n_ports; num++) {
		struct ibv_port_attr attr;

		if (!ibv_query_port(context, (uint8_t)num, &attr) && attr.gid_tbl_len > 0)
			room += (size_t)attr.gid_tbl_len;
	}
	return room;
}

/* A snapshot of a port's table. */
struct table {
	struct port_gid *gids; /* RoCE v2; allocated */
	unsigned n;
	unsigned n_entries; /* of all types */
};

static void take_entries(
	uint8_t port, const struct ibv_gid_entry entries[], size_t n, struct table *table)
{
	for (size_t i = 0; i < n; i++) {
		if (entries[i].port_num != port)
			continue;
		table->n_entries++;
		/* The index in a path has eight bits. */
		if (entries[i].gid_index <= UINT8_MAX &&
			entries[i].gid_type == IBV_GID_TYPE_ROCE_V2)
			take_entry(&entries[i], &table->gids[table->n++]);
	}
}

/* Returns 0 or an errno. */
static int read_table(
	struct ibv_context *context, uint8_t port, size_t room, struct table *ret_table)
{
	struct ibv_gid_entry *entries = calloc(room, sizeof(*entries));
	ssize_t n = 0;
	int err = 0;

	*ret_table = (struct table){ .gids = calloc(room, sizeof(*ret_table->gids)) };
	if (!entries || !ret_table->gids)
		err = ENOMEM;
	else
		n = ibv_query_gid_table(context, entries, room, 0);
	if (n < 0)
		err = verbs_errno((int)n);
	if (!err)
		take_entries(port, entries, (size_t)n, ret_table);
	free(entries);
	if (!err)
		return 0;
	free(ret_table->gids);
	ret_table->gids = NULL;
	return err;
}

int verbs_read_gids(struct verbs_port *port)
{
	struct table table = { 0 };
	int err = 0;

	if (!port->gid_room)
		port->gid_room = room_for_gids(port->context, port->n_ports);
	if (port->gid_room)
		err = read_table(port->context, port->num, port->gid_room, &table);
	if (err)
		return verbs_fail(err, "%s: cannot read its addresses (GIDs)", port->info.name);
	port->gids = table.gids;
	port->n_gids = table.n;
	if (table.n)
		return 0;
	return frl_fail(-ENODEV,
		"%s: none of %u GIDs is a RoCE v2 address: give its interface an IP address (ip "
		"addr add), and enable it (ip link set up)",
		port->info.name, table.n_entries);
}

/* Search criteria for a table. */
struct criteria {
	const struct frl_ip *ip; /* this address, or NULL */
	unsigned ifindex;        /* of this interface; 0: any */
	bool v4, v6, link_local; /* acceptable kinds */
};

static bool matches(const struct port_gid *gid, const struct criteria *criteria)
{
	const struct frl_ip *ip = &gid->gid.ip;

	if (criteria->ip)
		return ip_equal(ip, criteria->ip);
	if (criteria->ifindex && gid->ifindex != criteria->ifindex)
		return false;
	if (ip_is_link_local(ip))
		return criteria->link_local;
	return ip_is_v4(ip) ? criteria->v4 : criteria->v6;
}

static bool choose(struct verbs_port *port, const struct criteria *criteria, const char *why)
{
	for (unsigned i = 0; i < port->n_gids; i++) {
		if (!matches(&port->gids[i], criteria))
			continue;
		port->main = i;
		snprintf(port->why, sizeof(port->why), "%s", why);
		return true;
	}
	return false;
}

static bool choose_for_route(struct verbs_port *port, const struct verbs_route *route)
{
	bool v4 = ip_is_v4(&route->peer), near = ip_is_link_local(&route->peer);
	const struct criteria source = { .ip = route->has_source ? &route->source : &route->peer };
	const struct criteria own = { .ip = &route->peer };
	const struct criteria there = {
		.ifindex = route->ifindex, .v4 = v4, .v6 = !v4 && !near, .link_local = near
	};
	char why[128];

	snprintf(why, sizeof(why), "the kernel reaches %s from it", format_ip(&route->peer));
	if (choose(port, &source, why) || choose(port, &own, "it is the peer's own"))
		return true;
	snprintf(why, sizeof(why), "its interface leads to %s", format_ip(&route->peer));
	return choose(port, &there, why);
}

static int no_such_address(const struct verbs_port *port, const struct frl_ip *ip)
{
	char wanted[64], all[REASON_SIZE] = "";
	size_t len = 0;

	snprintf(wanted, sizeof(wanted), "%s", format_ip(ip));
	for (unsigned i = 0; i < port->n_gids && len < sizeof(all) - 64; i++)
		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s", i ? ", " : "",
			format_ip(&port->gids[i].gid.ip));
	return frl_fail(-EINVAL,
		"%s is no address of %s, which has %s: choose one of them, or give the interface "
		"another one (ip addr add)",
		wanted, port->info.name, all);
}

/* Requires at least one entry. */
static int choose_first(struct verbs_port *port)
{
	const struct criteria v4 = { .v4 = true }, v6 = { .v6 = true },
			      any = { .link_local = true };

	if (!choose(port, &v4, "it is the first IPv4 address") &&
		!choose(port, &v6, "it is the first IPv6 address, and there is no IPv4 one"))
		choose(port, &any, "there are only link-local ones");
	return 0;
}

int verbs_choose_gid(
	struct verbs_port *port, const struct frl_ip *ip, const struct verbs_route *route)
{
	const struct criteria wanted = { .ip = ip };
	char name[16];

	if (ip)
		return choose(port, &wanted, "it was requested") ? 0 : no_such_address(port, ip);
	if (route) {
		if (choose_for_route(port, route))
			return 0;
		netif_name(route->ifindex, name);
		return frl_fail(-ENODEV,
			"%s is not the port to %s, which the kernel reaches through %s",
			port->info.name, format_ip(&route->peer), name);
	}
	return choose_first(port);
}

int verbs_choose_family(struct verbs_port *port, const struct frl_ip *peer)
{
	bool v4 = ip_is_v4(peer);
	const struct criteria first = { .v4 = v4, .v6 = !v4 };

	if (choose(port, &first,
		    v4 ? "it is the first IPv4 address, as the peer's is"
		       : "it is the first IPv6 address, as the peer's is"))
		return 0;
	return choose_first(port);
}

/* The address derived from the MAC is the first in Linux' tables. */
static int find_link_local(const struct verbs_port *port)
{
	for (unsigned i = 0; i < port->n_gids; i++)
		if (ip_is_link_local(&port->gids[i].gid.ip) && !port->gids[i].gid.vlan)
			return (int)i;
	return -1;
}

static void add_gid(struct verbs_device *device, const struct port_gid *gid)
{
	struct gid_table *table = &device->base.gids;
	unsigned at = table->n++;

	table->gids[at] = gid->gid;
	device->gid_index[at] = gid->index;
	device->gid_ifindex[at] = gid->ifindex;
	device->has_gid[at] = true;
}

/* Recovers the MAC from a link-local address in EUI-64 form. */
static void mac_from_link_local(const struct frl_ip *ip, uint8_t mac[6])
{
	memcpy(mac, ip->bytes + 8, 3);
	memcpy(mac + 3, ip->bytes + 13, 3);
	mac[0] ^= 0x02;
}

/* Index 0 is the link-local address; if the port has none, it is computed from the MAC address and
 * has no GID in the hardware's table. Index 1 is the main address, and all others follow. */
void verbs_take_gids(struct verbs_device *device, const struct verbs_port *port)
{
	struct gid_table *table = &device->base.gids;
	const struct port_gid *first = &port->gids[port->main];
	int link_local = find_link_local(port);

	if (!netif_mac(first->ifindex, device->base.attr.mac) && link_local >= 0)
		mac_from_link_local(&port->gids[link_local].gid.ip, device->base.attr.mac);
	if (link_local >= 0) {
		add_gid(device, &port->gids[link_local]);
	} else {
		table->gids[table->n++] = (struct frl_gid){
			.ip = gid_link_local(device->base.attr.mac), .prefix_len = 64
		};
	}
	add_gid(device, first);
	for (unsigned i = 0; i < port->n_gids; i++) {
		if (i == port->main || (int)i == link_local)
			continue;
		if (table->n == FRL_MAX_GIDS) {
			frl_log(FRL_LOG_WARNING,
				"%s has more than %d addresses: the others are not used",
				device->name, FRL_MAX_GIDS);
			return;
		}
		add_gid(device, &port->gids[i]);
	}
}

static const struct port_gid *find_same(const struct table *table, const struct frl_gid *gid)
{
	for (unsigned i = 0; i < table->n; i++)
		if (table->gids[i].gid.vlan == gid->vlan &&
			ip_equal(&table->gids[i].gid.ip, &gid->ip))
			return &table->gids[i];
	return NULL;
}

/* Log lines about a change, written later without the guard. */
struct change {
	const struct frl_gid *gid;
	uint32_t index;
	bool is_there;
};

static unsigned note_table(
	struct verbs_device *device, const struct table *now, struct change changes[FRL_MAX_GIDS])
{
	const struct gid_table *table = &device->base.gids;
	unsigned n = 0;

	for (unsigned i = 0; i < table->n; i++) {
		const struct port_gid *is = find_same(now, &table->gids[i]);

		if (is && device->has_gid[i] && is->index == device->gid_index[i])
			continue;
		if (!is && !device->has_gid[i])
			continue;
		device->has_gid[i] = is != NULL;
		if (is) {
			device->gid_index[i] = is->index;
			device->gid_ifindex[i] = is->ifindex;
		}
		changes[n++] = (struct change){ &table->gids[i], device->gid_index[i], is != NULL };
	}
	return n;
}

static void log_change(const struct verbs_device *device, const struct change *change)
{
	const char *ip = format_ip(&change->gid->ip);

	if (change->is_there)
		frl_log(FRL_LOG_INFO,
			"%s: address %s is available again (GID %u): queue pairs connected from it "
			"may have to be connected again",
			device->name, ip, change->index);
	else
		frl_log(FRL_LOG_WARNING,
			"%s: address %s was removed: connections from it will fail; restore it (ip "
			"addr add), or open the device again without it",
			device->name, ip);
}

void verbs_find_gids_again(struct verbs_device *device)
{
	struct change changes[FRL_MAX_GIDS];
	size_t room = room_for_gids(device->context, device->n_ports);
	struct table now;
	unsigned n;

	/* Without an answer, indexes are assumed to be unchanged. */
	if (!room || read_table(device->context, device->port, room, &now))
		return;
	device_enter_first(&device->base);
	n = note_table(device, &now, changes);
	device_leave(&device->base);
	free(now.gids);
	for (unsigned i = 0; i < n; i++)
		log_change(device, &changes[i]);
}

static bool has_mac(const struct frl_ah_attr *attr)
{
	static const uint8_t none[6];

	return memcmp(attr->dmac, none, sizeof(none)) != 0;
}

int verbs_fill_path(const struct verbs_device *device, const struct frl_ah_attr *attr,
	struct ibv_ah_attr *ret_path, const char **ret_why)
{
	const struct gid_table *gids = &device->base.gids;
	struct ibv_ah_attr path = { .is_global = 1, .sl = attr->sl, .port_num = device->port };

	*ret_why = NULL;
	if (attr->sgid_index >= gids->n)
		*ret_why = "ah.sgid_index is no GID of the device";
	else if (!device->has_gid[attr->sgid_index])
		*ret_why = "ah.sgid_index: the port lacks this address (GID): restore it on its "
			   "interface (ip addr add, ip link set up)";
	else if (has_mac(attr) || attr->link)
		*ret_why = "ah.dmac and ah.link must be 0: with hardware the kernel finds the MAC";
	else if (ip_is_v4(&gids->gids[attr->sgid_index].ip) != ip_is_v4(&attr->dgid))
		*ret_why =
			"ah.sgid_index and ah.dgid: not of one family, one is IPv4, the other IPv6";
	else if (attr->sl > 7)
		*ret_why = "ah.sl must be 0 to 7";
	else if (attr->flow_label > 0xfffff)
		*ret_why = "ah.flow_label has 20 bits";
	if (*ret_why)
		return -EINVAL;
	memcpy(path.grh.dgid.raw, attr->dgid.bytes, sizeof(path.grh.dgid.raw));
	path.grh.sgid_index = (uint8_t)device->gid_index[attr->sgid_index];
	path.grh.flow_label = attr->flow_label;
	path.grh.hop_limit = attr->hop_limit ? attr->hop_limit : DEFAULT_HOP_LIMIT;
	path.grh.traffic_class = attr->traffic_class;
	*ret_path = path;
	return 0;
}
