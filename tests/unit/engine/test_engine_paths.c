/* SPDX-License-Identifier: BSD-3-Clause */
/* Paths: what is refused, what stands in the headers, and neighbours that are looked for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/wire/neighbor.h"
#include "tests/unit/engine/engine_host.h"
#include "tests/vectors/frame.h"

static const uint8_t mac_c[6] = { 2, 0, 0, 0, 0, 3 };
static const uint8_t mac_group[6] = { 1, 0, 0x5e, 0, 0, 3 };
static const uint8_t no_mac[6];

static struct frl_ip v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	return ip_from_v4((const uint8_t[]){ a, b, c, d });
}

static enum frl_qp_state state_of(unsigned i)
{
	return host->qps[i].qp.core.state;
}

/* To INIT, from where the path is given. */
static void to_init(unsigned i, enum frl_qp_type type)
{
	const struct host_qp_config config = { .type = type };
	struct frl_qp_attr attr = host_attr(i, &config);

	host_create(host, i, &config);
	attr.state = FRL_QPS_INIT;
	ck_assert_int_eq(host_modify(host, i, &attr, host_mask(type, FRL_QPS_INIT), NULL), 0);
}

static const struct {
	const char *name;
	struct frl_ip dgid;
	uint8_t sgid_index;
	bool on_demand;
	uint16_t link;
	uint8_t sl;
	uint32_t flow_label;
	const uint8_t *dmac;
	uint32_t path_mtu;
	int rc;
} bad_paths[] = {
	{ "another family", { { 0xfd, 9, [15] = 1 } }, HOST_GID_V4, .rc = -EINVAL },
	{ "the other way round", { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, HOST_GID_V6,
		.rc = -EINVAL },
	{ "no such GID", { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, HOST_GIDS, .rc = -EINVAL },
	{ "IPv4 group", { { [10] = 0xff, 0xff, 224, 9, 0, 1 } }, HOST_GID_V4, .rc = -EINVAL },
	{ "IPv6 group", { { 0xff, 0x0e, [15] = 1 } }, HOST_GID_V6, .rc = -EINVAL },
	{ "unspecified", { { 0 } }, HOST_GID_V6, .rc = -EINVAL },
	{ "loopback", { { [15] = 1 } }, HOST_GID_V6, .rc = -EINVAL },
	{ "IPv4 unspecified", { { [10] = 0xff, 0xff } }, HOST_GID_V4, .rc = -EINVAL },
	{ "IPv4 loopback", { { [10] = 0xff, 0xff, 127, 0, 0, 1 } }, HOST_GID_V4, .rc = -EINVAL },
	{ "broadcast", { { [10] = 0xff, 0xff, 255, 255, 255, 255 } }, HOST_GID_V4, .rc = -EINVAL },
	{ "sl", { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, HOST_GID_V4, .sl = 8, .rc = -EINVAL },
	{ "flow label", { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, HOST_GID_V4, .flow_label = 1 << 20,
		.rc = -EINVAL },
	{ "MAC of a group", { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, HOST_GID_V4, .dmac = mac_group,
		.rc = -EINVAL },
	{ "path MTU", { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, HOST_GID_V4, .path_mtu = 4096,
		.rc = -EINVAL },
	{ "closed link", { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, HOST_GID_V4, .on_demand = true,
		.link = FAKE_LINKS, .rc = -EINVAL },
	{ "no such link", { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, HOST_GID_V4, .on_demand = true,
		.link = PORT_MAX_LINKS, .rc = -EINVAL },
	{ "local fabric without MAC", { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, HOST_GID_V4,
		.on_demand = true, .dmac = no_mac, .rc = -EINVAL },
	{ "no gateway", { { 0xfd, 0x0a, [15] = 1 } }, HOST_GID_V6, .dmac = no_mac,
		.rc = -EHOSTUNREACH },
	{ "link-local beyond the gateway", { { 0xfd, 0x0a, [15] = 1 } }, HOST_GID_LINK_LOCAL,
		.dmac = no_mac, .rc = -EHOSTUNREACH },
};

enum { N_BAD_PATHS = sizeof(bad_paths) / sizeof(bad_paths[0]) };

/* Refused with a reason; nothing has changed then, and a good path is taken. */
START_LOOP_TEST(bad_path, N_BAD_PATHS)
{
	struct host_config config = { .on_demand = bad_paths[_i].on_demand };
	struct frl_qp_attr attr = host_attr(0, NULL);
	const char *why = "";

	host_restart(&config);
	host->engine.mtu = 2048;
	to_init(0, FRL_QPT_RC);
	attr.state = FRL_QPS_RTR;
	attr.ah.dgid = bad_paths[_i].dgid;
	attr.ah.sgid_index = bad_paths[_i].sgid_index;
	attr.ah.link = bad_paths[_i].link;
	attr.ah.sl = bad_paths[_i].sl;
	attr.ah.flow_label = bad_paths[_i].flow_label;
	if (bad_paths[_i].dmac)
		memcpy(attr.ah.dmac, bad_paths[_i].dmac, 6);
	if (bad_paths[_i].path_mtu)
		attr.path_mtu = bad_paths[_i].path_mtu;
	ck_assert_msg(host_modify(host, 0, &attr, host_mask(FRL_QPT_RC, FRL_QPS_RTR), &why) ==
			bad_paths[_i].rc,
		"%s", bad_paths[_i].name);
	ck_assert_msg(*why, "%s: no reason", bad_paths[_i].name);
	ck_assert_int_eq(state_of(0), FRL_QPS_INIT);
	ck_assert_int_eq(host->engine.neighbors.n_end, 0);
	attr = host_attr(0, NULL);
	attr.state = FRL_QPS_RTR;
	ck_assert_int_eq(host_modify(host, 0, &attr, host_mask(FRL_QPT_RC, FRL_QPS_RTR), NULL), 0);
}
END_TEST

/* The same for address handles, where groups are fine and there is no path MTU. */
START_LOOP_TEST(bad_ah, N_BAD_PATHS)
{
	struct host_config config = { .on_demand = bad_paths[_i].on_demand };
	bool group = ip_is_multicast(&bad_paths[_i].dgid);
	struct frl_ah_attr attr = {
		.dgid = bad_paths[_i].dgid,
		.sgid_index = bad_paths[_i].sgid_index,
		.link = bad_paths[_i].link,
		.sl = bad_paths[_i].sl,
		.flow_label = bad_paths[_i].flow_label,
	};
	struct engine_ah ah = { 0 };
	const char *why = "";
	int rc;

	host_restart(&config);
	memcpy(attr.dmac, bad_paths[_i].dmac ? bad_paths[_i].dmac : mac_a, 6);
	rc = engine_add_ah(&host->engine, &ah, &attr, host->now_ns, &why);
	ck_assert_msg(rc == (group || bad_paths[_i].path_mtu ? 0 : bad_paths[_i].rc), "%s: %d",
		bad_paths[_i].name, rc);
	ck_assert_msg(!*why == !rc, "%s", bad_paths[_i].name);
	engine_remove_ah(&host->engine, &ah);
	ck_assert_int_eq(host->engine.neighbors.n_end, 0);
}
END_TEST

static const struct {
	uint8_t sgid_index;
	uint8_t sl;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint32_t flow_label;
} forms[] = {
	{ HOST_GID_V4, 0, 0, 0, 0 },
	{ HOST_GID_V4, 5, 0x6a, 3, 0x12345 },
	{ HOST_GID_V6, 0, 0x6a, 255, 0 },
	{ HOST_GID_V6, 7, 0, 1, 0xfffff },
	{ HOST_GID_VLAN_V4, 0, 0x20, 0, 0 },
	{ HOST_GID_VLAN_V4, 6, 0, 0, 7 },
	{ HOST_GID_VLAN_V6, 3, 1, 9, 0x54321 },
};

enum { N_FORMS = sizeof(forms) / sizeof(forms[0]) };

/* The attributes, as they are in a frame. */
START_LOOP_TEST(headers, N_FORMS)
{
	const struct host_qp_config config = { .sgid_index = forms[_i].sgid_index };
	struct frl_qp_attr attr = host_attr(0, &config);
	const struct frl_gid *gid;
	struct wire_packet packet;
	const uint8_t *frame;
	bool ipv4;

	gid = &host->engine.gids.gids[forms[_i].sgid_index];
	to_init(0, FRL_QPT_RC);
	attr.ah.sl = forms[_i].sl;
	attr.ah.traffic_class = forms[_i].traffic_class;
	attr.ah.hop_limit = forms[_i].hop_limit;
	attr.ah.flow_label = forms[_i].flow_label;
	for (attr.state = FRL_QPS_RTR; attr.state <= FRL_QPS_RTS; attr.state++)
		ck_assert_int_eq(
			host_modify(host, 0, &attr, host_mask(FRL_QPT_RC, attr.state), NULL), 0);
	host_post_send(host, 0, 1, 16, 0);
	host_poll(host);
	packet = *host_sent(host, 0, &frame);
	ipv4 = ip_is_v4(&gid->ip);
	ck_assert(mac_equal(frame, mac_a) && mac_equal(frame + 6, mac_b));
	ck_assert(ip_equal(&packet.src_ip, &gid->ip));
	ck_assert(ip_equal(&packet.dst_ip, &attr.ah.dgid));
	ck_assert_uint_eq(packet.n_tags, gid->vlan != 0);
	ck_assert_uint_eq(packet.vlan, gid->vlan);
	ck_assert_uint_eq(packet.priority, gid->vlan ? forms[_i].sl : 0);
	ck_assert_uint_eq(packet.traffic_class, forms[_i].traffic_class);
	ck_assert_uint_eq(packet.l3[ipv4 ? 8 : 7], forms[_i].hop_limit ? forms[_i].hop_limit : 64);
	ck_assert_uint_eq(get_be16(packet.l3 + (ipv4 ? IPV4_LEN : IPV6_LEN)),
		wire_udp_src_port(forms[_i].flow_label, host->qps[0].qp.core.qpn, HOST_PEER_QPN));
	if (!ipv4)
		ck_assert_uint_eq(get_be32(packet.l3) & 0xfffff, forms[_i].flow_label);
	ck_assert_int_eq(wire_trim(&packet, true), WIRE_OK);
	ck_assert(wire_icrc_ok(&packet));
}
END_TEST

/* ---- neighbours ---- */

/* Number `k` of what was sent asks for that address, from that GID. */
static void expect_question(uint32_t k, const struct frl_ip *ip, uint8_t gid)
{
	struct neighbor_message message;
	const struct port_packet *sent = &host->port.sent[k].packet;

	ck_assert_uint_lt(k, host->port.n_sent);
	ck_assert(neighbor_decode(&message, sent->header, sent->header_len));
	ck_assert(message.request);
	ck_assert(ip_equal(&message.target_ip, ip));
	ck_assert(ip_equal(&message.sender_ip, &host->engine.gids.gids[gid].ip));
	ck_assert_uint_eq(message.vlan, host->engine.gids.gids[gid].vlan);
}

static void answer(const struct frl_ip *ip, const uint8_t mac[6], uint8_t gid)
{
	struct neighbor_message message = {
		.sender_ip = *ip,
		.target_ip = host->engine.gids.gids[gid].ip,
		.vlan = host->engine.gids.gids[gid].vlan,
	};
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	size_t len;

	memcpy(message.sender_mac, mac, 6);
	memcpy(message.dst_mac, mac_b, 6);
	len = neighbor_encode(frame, &message);
	fake_port_receive(&host->port, 0, frame, (uint32_t)len);
	host_poll(host);
}

static const struct {
	uint8_t sgid_index;
	struct frl_ip dgid;
	struct frl_ip hop;
} ways[] = {
	{ HOST_GID_V4, { { [10] = 0xff, 0xff, 10, 9, 0, 1 } },
		{ { [10] = 0xff, 0xff, 10, 9, 0, 1 } } },
	{ HOST_GID_V4, { { [10] = 0xff, 0xff, 10, 8, 0, 1 } },
		{ { [10] = 0xff, 0xff, 10, 9, 0, 254 } } },
	{ HOST_GID_V6, { { 0xfd, 9, [15] = 1 } }, { { 0xfd, 9, [15] = 1 } } },
	{ HOST_GID_LINK_LOCAL, { { 0xfe, 0x80, [15] = 1 } }, { { 0xfe, 0x80, [15] = 1 } } },
	{ HOST_GID_VLAN_V4, { { [10] = 0xff, 0xff, 10, 9, 0, 1 } },
		{ { [10] = 0xff, 0xff, 10, 9, 0, 1 } } },
	{ HOST_GID_VLAN_V6, { { 0xfd, 9, [15] = 1 } }, { { 0xfd, 9, [15] = 1 } } },
};

enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };

static struct frl_qp_attr way_attr(int way)
{
	const struct host_qp_config config = {
		.sgid_index = ways[way].sgid_index,
		.dgid = ways[way].dgid,
		.resolve = true,
	};
	struct frl_qp_attr attr = host_attr(0, &config);

	attr.ah.sgid_index = ways[way].sgid_index;
	attr.state = FRL_QPS_RTR;
	return attr;
}

START_LOOP_TEST(resolve, N_WAYS)
{
	const uint32_t mask = host_mask(FRL_QPT_RC, FRL_QPS_RTR);
	struct frl_qp_attr attr = way_attr(_i);
	const uint8_t *frame;
	const char *why = "";

	to_init(0, FRL_QPT_RC);
	ck_assert_int_eq(host_modify(host, 0, &attr, mask, &why), -EAGAIN);
	ck_assert(*why);
	ck_assert_int_eq(state_of(0), FRL_QPS_INIT);
	ck_assert_uint_le(engine_next_deadline(&host->engine), host->now_ns);
	host_poll(host);
	expect_question(0, &ways[_i].hop, ways[_i].sgid_index);
	for (unsigned k = 0; k < 5; k++)
		ck_assert_int_eq(host_modify(host, 0, &attr, mask, &why), -EAGAIN);
	answer(&ways[_i].hop, mac_c, ways[_i].sgid_index);
	ck_assert_int_eq(host_modify(host, 0, &attr, mask, &why), 0);
	attr.state = FRL_QPS_RTS;
	ck_assert_int_eq(host_modify(host, 0, &attr, host_mask(FRL_QPT_RC, FRL_QPS_RTS), NULL), 0);
	host->port.n_sent = 0;
	host_post_send(host, 0, 1, 16, 0);
	host_poll(host);
	ck_assert(ip_equal(&host_sent(host, 0, &frame)->dst_ip, &ways[_i].dgid));
	ck_assert(mac_equal(frame, mac_c));
	/* Nobody is asked any more once the queue pair is gone. */
	ck_assert_uint_eq(host->engine.neighbors.n_end, 1);
	ck_assert_uint_eq(host->engine.neighbors.entries[0].users, 1);
	if (_i % 2)
		engine_remove_qp(&host->engine, &host->qps[0].qp);
	else
		host_modify(host, 0, &(struct frl_qp_attr){ .state = FRL_QPS_RESET }, FRL_QP_STATE,
			NULL);
	ck_assert_uint_eq(host->engine.neighbors.n_end, 0);
}
END_TEST

START_TEST(give_up)
{
	struct frl_qp_attr attr = way_attr(0);

	to_init(0, FRL_QPT_RC);
	ck_assert_int_eq(
		host_modify(host, 0, &attr, host_mask(FRL_QPT_RC, FRL_QPS_RTR), NULL), -EAGAIN);
	ck_assert_uint_eq(host->engine.neighbors.n_end, 1);
	engine_clear_path(&host->engine, &host->qps[0].qp);
	engine_clear_path(&host->engine, &host->qps[0].qp);
	ck_assert_uint_eq(host->engine.neighbors.n_end, 0);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 0);
	/* Another destination is another question. */
	ck_assert_int_eq(
		host_modify(host, 0, &attr, host_mask(FRL_QPT_RC, FRL_QPS_RTR), NULL), -EAGAIN);
	attr = way_attr(1);
	ck_assert_int_eq(
		host_modify(host, 0, &attr, host_mask(FRL_QPT_RC, FRL_QPS_RTR), NULL), -EAGAIN);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	expect_question(0, &ways[1].hop, HOST_GID_V4);
}
END_TEST

/* A neighbour moves to another MAC: connections and address handles follow with the next packet. */
START_TEST(neighbor_moves)
{
	const struct frl_ip peer = v4(10, 9, 0, 1);
	const struct frl_ah_attr ah_attr = { .dgid = peer, .sgid_index = HOST_GID_V4 };
	struct frl_send_wr datagram = { .opcode = FRL_WR_SEND, .remote_qpn = 5 };
	struct frl_qp_attr attr = way_attr(0);
	struct engine_ah ah = { 0 };
	const char *why = "";
	const uint8_t *frame;

	ah.core.pd = &host->pd;
	to_init(0, FRL_QPT_RC);
	host_add(host, 1, &(struct host_qp_config){ .type = FRL_QPT_UD });
	ck_assert_int_eq(engine_add_ah(&host->engine, &ah, &ah_attr, host->now_ns, &why), -EAGAIN);
	ck_assert(!engine_ah_ready(&host->engine, &ah));
	answer(&peer, mac_a, HOST_GID_V4);
	ck_assert(engine_ah_ready(&host->engine, &ah));
	for (attr.state = FRL_QPS_RTR; attr.state <= FRL_QPS_RTS; attr.state++)
		ck_assert_int_eq(
			host_modify(host, 0, &attr, host_mask(FRL_QPT_RC, attr.state), NULL), 0);
	for (unsigned k = 0; k < 2; k++) {
		const uint8_t *mac = k ? mac_c : mac_a;

		if (k)
			answer(&peer, mac_c, HOST_GID_V4);
		host->port.n_sent = 0;
		host_post_send(host, 0, k, 16, 0);
		host_post(host, 1, datagram, 0, 16, &ah);
		host_poll(host);
		ck_assert_uint_eq(host->port.n_sent, 2);
		for (unsigned i = 0; i < 2; i++) {
			host_sent(host, i, &frame);
			ck_assert_msg(mac_equal(frame, mac), "packet %u of round %u", i, k);
		}
	}
	engine_remove_ah(&host->engine, &ah);
	ck_assert_uint_eq(host->engine.neighbors.entries[0].users, 1);
}
END_TEST

/* In SQD a connection may be given another path, also to a neighbour that is to be found first. The
 * old one is asked for no more. */
START_TEST(new_path_in_sqd)
{
	struct frl_qp_attr attr = way_attr(0);
	const uint8_t *frame;

	to_init(0, FRL_QPT_RC);
	for (unsigned i = 0; i < 2; i++) {
		const uint32_t mask = i ? FRL_QP_AV : host_mask(FRL_QPT_RC, FRL_QPS_RTR);

		if (i) {
			attr.state = FRL_QPS_SQD;
			ck_assert_int_eq(host_modify(host, 0, &attr, FRL_QP_STATE, NULL), 0);
			attr = way_attr(1);
		}
		ck_assert_int_eq(host_modify(host, 0, &attr, mask, NULL), -EAGAIN);
		ck_assert_int_eq(state_of(0), i ? FRL_QPS_SQD : FRL_QPS_INIT);
		answer(&ways[i].hop, i ? mac_c : mac_a, HOST_GID_V4);
		ck_assert_int_eq(host_modify(host, 0, &attr, mask, NULL), 0);
		attr.state = FRL_QPS_RTS;
		ck_assert_int_eq(
			host_modify(host, 0, &attr,
				i ? (uint32_t)FRL_QP_STATE : host_mask(FRL_QPT_RC, FRL_QPS_RTS),
				NULL),
			0);
	}
	ck_assert_uint_eq(host->engine.neighbors.entries[0].users, 0);
	ck_assert_uint_eq(host->engine.neighbors.entries[1].users, 1);
	host->port.n_sent = 0;
	host_post_send(host, 0, 1, 16, 0);
	host_poll(host);
	ck_assert(ip_equal(&host_sent(host, 0, &frame)->dst_ip, &ways[1].dgid));
	ck_assert(mac_equal(frame, mac_c));
}
END_TEST

/* ---- what comes in ---- */

/* Connections take packets for their own GID only, on its VLAN. */
static const struct {
	uint8_t sgid_index;
	int variant; /* of the frame: IPv4, IPv6, both tagged */
	size_t drop; /* counter; 0: taken */
} arrivals[] = {
	{ HOST_GID_V4, 0, 0 },
	{ HOST_GID_V6, 1, 0 },
	{ HOST_GID_VLAN_V4, 2, 0 },
	{ HOST_GID_VLAN_V6, 3, 0 },
	{ HOST_GID_V4, 2, offsetof(struct frl_stats, drop_wrong_peer) },
	{ HOST_GID_VLAN_V4, 0, offsetof(struct frl_stats, drop_wrong_peer) },
	{ HOST_GID_V6, 3, offsetof(struct frl_stats, drop_wrong_peer) },
	{ HOST_GID_V4, 1, offsetof(struct frl_stats, drop_wrong_peer) },
};

enum { N_ARRIVALS = sizeof(arrivals) / sizeof(arrivals[0]) };

static uint64_t counter(size_t offset)
{
	uint64_t value;

	memcpy(&value, (const char *)&host->engine.stats + offset, sizeof(value));
	return value;
}

static struct frame make_send(int variant)
{
	struct wire_headers h = { .bth = { .opcode = OP_SEND_ONLY,
					  .pkey = PKEY_DEFAULT,
					  .ack_request = true,
					  .dest_qpn = host->qps[0].qp.core.qpn,
					  .psn = psn_make(HOST_RQ_PSN) } };

	return make_frame(variant, &h, 64, true);
}

START_LOOP_TEST(own_gid, N_ARRIVALS)
{
	const struct host_qp_config config = { .sgid_index = arrivals[_i].sgid_index };
	struct frame frame;

	host_add(host, 0, &config);
	host_post_recv(host, 0, 1, 0, 1024);
	frame = make_send(arrivals[_i].variant);
	fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
	host_poll(host);
	if (arrivals[_i].drop) {
		ck_assert_uint_eq(counter(arrivals[_i].drop), 1);
		host_expect_no_wc(&host->cqs[0]);
		ck_assert_uint_eq(host->port.n_sent, 0);
	} else {
		host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
		ck_assert_uint_eq(host->port.n_sent, 1);
		ck_assert_uint_eq(host_sent(host, 0, NULL)->vlan, is_tagged(_i) ? HOST_VLAN : 0);
	}
}
END_TEST

START_TEST(not_our_vlan)
{
	const struct host_qp_config config = { .sgid_index = HOST_GID_VLAN_V4 };
	struct frame frame;

	host_add(host, 0, &config);
	host_post_recv(host, 0, 1, 0, 1024);
	frame = make_send(2);
	put_be16(frame.bytes + ETH_LEN, HOST_VLAN + 1);
	fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
	frame = make_send(2);
	insert_tag(&frame);
	fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
	host_poll(host);
	/* The same number in the network of a provider. */
	frame = make_send(2);
	put_be16(frame.bytes + ETH_LEN - 2, ETHERTYPE_SERVICE_VLAN);
	fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
	host_poll(host);
	ck_assert_uint_eq(host->engine.stats.drop_not_for_us, 3);
	host_expect_no_wc(&host->cqs[0]);
}
END_TEST

START_LOOP_TEST(icrc_is_for_networks, 2)
{
	struct frl_qp_attr attr = host_attr(0, NULL);
	const char *why = "";

	attr.capabilities = FRL_CAP_NO_ICRC;
	host_restart(&(struct host_config){ .on_demand = _i });
	host_create(host, 0, NULL);
	attr.state = FRL_QPS_INIT;
	ck_assert_int_eq(host_modify(host, 0, &attr, host_mask(FRL_QPT_RC, attr.state), &why), 0);
	attr.state = FRL_QPS_RTR;
	ck_assert_int_eq(host_modify(host, 0, &attr, host_mask(FRL_QPT_RC, attr.state), &why),
		_i ? 0 : -EINVAL);
	ck_assert(_i || *why);
}
END_TEST

START_TEST(congestion_notification)
{
	struct wire_headers h = { .bth = { .opcode = TRANSPORT_CNP | 1,
					  .pkey = PKEY_DEFAULT,
					  .becn = true,
					  .dest_qpn = 0x123 } };
	struct frame frame;

	host_add(host, 0, NULL);
	for (unsigned k = 0; k < 3; k++) {
		if (k)
			h.bth.dest_qpn = host->qps[0].qp.core.qpn;
		frame = make_frame(0, &h, 16, true);
		if (k == 2)
			frame.bytes[frame.len - 1] ^= 1;
		fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
		host_poll(host);
	}
	ck_assert_uint_eq(host->engine.stats.drop_unknown_qp, 1);
	ck_assert_uint_eq(host->engine.stats.cnps_received, 1);
	ck_assert_uint_eq(host->engine.stats.drop_bad_icrc, 1);
	ck_assert_uint_eq(host->port.n_sent, 0);
}
END_TEST

HOST_TEST_FILE(engine_paths)
