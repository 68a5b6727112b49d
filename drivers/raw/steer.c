/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow rules for the frames that the NIC delivers. The rules match Ferrule's addresses, which the
 * kernel does not use, so the kernel loses no frames. Frames that both need go to both (DONT_TRAP):
 * multicast, broadcast, ARP, and IPv6 requests for the link-local address, which follows from the
 * MAC for both. No frame matches two rules. Never promiscuous. Tagged frames match like untagged
 * ones.
 */
#include "drivers/raw/internal.h"

#include <arpa/inet.h>
#include <string.h>

#include "lib/base/net/addr.h"
#include "lib/base/error.h"

enum {
	ETHERTYPE_ARP = 0x0806,
	NEXT_ICMPV6 = 58,
	ROCE_PORT = 4791,
};

/* The attributes and layers of a rule, as the kernel reads them. */
struct rule {
	struct ibv_flow_attr attr;
	uint8_t layers[3 * sizeof(struct ibv_flow_spec)];
};

static void begin(const struct raw_port *port, struct rule *rule, uint32_t flags)
{
	memset(rule, 0, sizeof(*rule));
	rule->attr.type = IBV_FLOW_ATTR_NORMAL;
	rule->attr.port = port->wanted.num;
	rule->attr.flags = flags;
	rule->attr.size = sizeof(rule->attr);
}

static void add_layer(struct rule *rule, const void *layer, uint16_t size)
{
	memcpy(rule->layers + (rule->attr.size - sizeof(rule->attr)), layer, size);
	rule->attr.size = (uint16_t)(rule->attr.size + size);
	rule->attr.num_of_specs++;
}

static void add_own_mac(const struct raw_port *port, struct rule *rule, uint16_t ether_type)
{
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth) };

	memcpy(eth.val.dst_mac, port->netdev.mac, sizeof(eth.val.dst_mac));
	memset(eth.mask.dst_mac, 0xff, sizeof(eth.mask.dst_mac));
	if (ether_type) {
		eth.val.ether_type = htons(ether_type);
		eth.mask.ether_type = 0xffff;
	}
	add_layer(rule, &eth, sizeof(eth));
}

static void add_ip(struct rule *rule, const struct frl_ip *ip, uint8_t next_header)
{
	struct ibv_flow_spec_ipv4 v4 = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof(v4) };
	struct ibv_flow_spec_ipv6 v6 = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof(v6) };

	if (ip_is_v4(ip)) {
		memcpy(&v4.val.dst_ip, ip->bytes + 12, sizeof(v4.val.dst_ip));
		v4.mask.dst_ip = UINT32_MAX;
		add_layer(rule, &v4, sizeof(v4));
		return;
	}
	memcpy(v6.val.dst_ip, ip->bytes, sizeof(v6.val.dst_ip));
	memset(v6.mask.dst_ip, 0xff, sizeof(v6.mask.dst_ip));
	if (next_header) {
		v6.val.next_hdr = next_header;
		v6.mask.next_hdr = 0xff;
	}
	add_layer(rule, &v6, sizeof(v6));
}

static void add_roce(struct rule *rule)
{
	struct ibv_flow_spec_tcp_udp udp = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof(udp) };

	udp.val.dst_port = htons(ROCE_PORT);
	udp.mask.dst_port = 0xffff;
	add_layer(rule, &udp, sizeof(udp));
}

static int refused(const struct raw_port *port, int err, const char *what)
{
	if (err == EOPNOTSUPP || err == ENOSYS || err == EPROTONOSUPPORT)
		return frl_fail(-ENOTSUP,
			"%s: no flow steering: the NIC or its driver rejects a rule for %s; use "
			"DPDK or the kernel's interface (net_af_packet0,iface=%s)",
			port->name, what, port->netdev.name);
	if (err == EPERM || err == EACCES)
		return frl_fail(-EPERM,
			"%s: flow rules need the capability CAP_NET_RAW: run as root, or `setcap "
			"cap_net_raw+ep` the program",
			port->name);
	return verbs_fail(err, "%s: the NIC rejects a rule for %s", port->name, what);
}

static int make(struct raw_port *port, struct rule *rule, const char *what)
{
	struct ibv_flow *flow;

	errno = 0;
	flow = ibv_create_flow(port->qp, &rule->attr);
	if (!flow)
		return refused(port, verbs_null_errno(), what);
	port->flows[port->n_flows++] = flow;
	return 0;
}

/* Accepts broadcasts, including ARP requests, and all multicast. */
static int take_many(struct raw_port *port)
{
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth) };
	struct rule rule;

	begin(port, &rule, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);
	eth.val.dst_mac[0] = eth.mask.dst_mac[0] = 1;
	add_layer(&rule, &eth, sizeof(eth));
	return make(port, &rule, "broadcast and multicast");
}

static int take_arp(struct raw_port *port)
{
	struct rule rule;

	begin(port, &rule, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);
	add_own_mac(port, &rule, ETHERTYPE_ARP);
	return make(port, &rule, "ARP");
}

/* The kernel has this address, too: only RoCE goes to Ferrule. */
static int take_link_local(struct raw_port *port)
{
	struct frl_ip ip = gid_link_local(port->netdev.mac);
	struct rule rule;
	int rc;

	begin(port, &rule, 0);
	add_own_mac(port, &rule, 0);
	add_ip(&rule, &ip, 0);
	add_roce(&rule);
	rc = make(port, &rule, "RoCE to the link-local address");
	if (rc)
		return rc;
	begin(port, &rule, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);
	add_own_mac(port, &rule, 0);
	add_ip(&rule, &ip, NEXT_ICMPV6);
	return make(port, &rule, "ICMPv6 to the link-local address");
}

/* Returns true if the same address on another VLAN has a rule already. */
static bool is_repeated(const struct gid_table *gids, unsigned index)
{
	for (unsigned i = 1; i < index; i++)
		if (ip_equal(&gids->gids[i].ip, &gids->gids[index].ip))
			return true;
	return false;
}

static int take_address(struct raw_port *port, const struct frl_ip *ip)
{
	struct rule rule;

	begin(port, &rule, 0);
	add_own_mac(port, &rule, 0);
	add_ip(&rule, ip, 0);
	return make(port, &rule, "its own address");
}

int raw_steer(struct raw_port *port, const struct gid_table *gids)
{
	int rc = take_many(port);

	if (!rc)
		rc = take_arp(port);
	if (!rc)
		rc = take_link_local(port);
	for (unsigned i = 1; !rc && i < gids->n; i++)
		if (!is_repeated(gids, i))
			rc = take_address(port, &gids->gids[i].ip);
	return rc;
}

void raw_steer_stop(struct raw_port *port)
{
	while (port->n_flows)
		raw_destroyed(port, ibv_destroy_flow(port->flows[--port->n_flows]),
			"cannot remove a flow rule");
}
