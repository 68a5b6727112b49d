/* SPDX-License-Identifier: BSD-3-Clause */
/* A station's duties on a network besides RoCE: multicast groups, ICMP echo, its carrier. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/wire/checksum.h"
#include "tests/unit/engine/engine_host.h"
#include "tests/vectors/frame.h"

#define MS_TO_NS(ms) ((ms)*UINT64_C(1000000))

enum {
	LENGTH = 100,
	TO = 16384, /* queue pair i receives 1024 bytes after this */
	CARRIER_CHECK_MS = 100,
	BIG_ECHO = 8000,
	BIG_FRAME = 9100,
};

static const struct host_qp_config ud = { .type = FRL_QPT_UD };
static const struct frl_ip group_v4 = { { [10] = 0xff, 0xff, 239, 129, 2, 3 } };
static const struct frl_ip group_v6 = { { 0xff, 0x0e, [14] = 0x12, 0x34 } };
static const struct frl_ip other_group = { { [10] = 0xff, 0xff, 239, 1, 2, 3 } }; /* same MAC */

static uint32_t at(unsigned i)
{
	return TO + 1024 * i;
}

static void start(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		host_add(host, i, &ud);
		host_post_recv(host, i, i, at(i), 1024);
	}
}

/* A datagram of the peer to a group, on whatever VLAN. */
static struct frame make_datagram(const struct frl_ip *group, uint16_t vlan, uint32_t qpn)
{
	struct wire_headers h = { .bth = { .opcode = TRANSPORT_UD | OP_SEND_ONLY,
					  .pkey = PKEY_DEFAULT,
					  .dest_qpn = qpn },
		.deth = { HOST_QKEY, 0x55 } };
	struct wire_path_config config = {
		.src_ip = { { 0xfd, 9, [15] = 1 } },
		.dst_ip = *group,
		.vlan = vlan,
		.hop_limit = 1,
		.udp_src_port = 0xc000,
	};
	struct frame frame = { .ipv4 = ip_is_v4(group) };
	struct wire_path path;
	uint8_t trailer;
	uint32_t crc;

	if (frame.ipv4)
		config.src_ip = ip_from_v4((const uint8_t[]){ 10, 9, 0, 1 });
	memcpy(config.src_mac, mac_a, 6);
	ck_assert(wire_multicast_mac(group, config.dst_mac));
	wire_path_init(&path, &config);
	frame.payload = wire_encode(frame.bytes, &path, &h, LENGTH, true, &trailer);
	memset(frame.bytes + frame.payload, 0x77, LENGTH);
	frame.len = frame.payload + LENGTH + trailer;
	crc = icrc_headers(frame.bytes + path.l3_offset, frame.payload - path.l3_offset);
	crc = icrc_update(crc, frame.bytes + frame.payload, LENGTH);
	icrc_store(frame.bytes + frame.len - ICRC_LEN, crc);
	return frame;
}

static void arrive(const struct frame *frame)
{
	fake_port_receive(&host->port, 0, frame->bytes, (uint32_t)frame->len);
	host_poll(host);
}

START_LOOP_TEST(multicast, 4)
{
	const struct frl_ip *group = _i & 1 ? &group_v6 : &group_v4;
	uint16_t vlan = _i & 2 ? HOST_VLAN : 0;
	struct frame frame = make_datagram(group, vlan, QPN_MULTICAST);

	start(3);
	host_attach(host, 0, group);
	host_attach(host, 1, group);
	host_attach(host, 1, group); /* once is as good as twice */
	arrive(&frame);
	for (unsigned i = 0; i < 2; i++) {
		host_expect_wc(&host->cqs[i], i, FRL_WC_SUCCESS);
		host_expect_no_wc(&host->cqs[i]);
		ck_assert_uint_eq(host->memory[at(i) + FRL_GRH_SIZE], 0x77);
		ck_assert_uint_eq(host->memory[at(i) + FRL_GRH_SIZE + LENGTH - 1], 0x77);
		ck_assert_uint_eq(host->memory[at(i) + FRL_GRH_SIZE + LENGTH], HOST_FILL);
	}
	host_expect_no_wc(&host->cqs[2]);
	ck_assert_uint_eq(host->engine.stats.rx_requests, 2);
	/* One goes, one stays. */
	ck_assert_int_eq(host_detach(host, 1, group), 0);
	ck_assert_int_eq(host_detach(host, 1, group), -EINVAL);
	host_post_recv(host, 0, 7, at(0), 1024);
	host_post_recv(host, 1, 7, at(1), 1024);
	arrive(&frame);
	host_expect_wc(&host->cqs[0], 7, FRL_WC_SUCCESS);
	host_expect_no_wc(&host->cqs[1]);
	engine_remove_qp(&host->engine, &host->qps[0].qp);
	arrive(&frame);
	ck_assert_uint_eq(host->engine.stats.drop_not_for_us, 1);
}
END_TEST

START_TEST(multicast_not_ours)
{
	static const struct frl_ip v6_like_v4 = { { 0xff, 0x0e, [13] = 1, 2, 3 } };
	struct frame frame;

	start(1);
	host_attach(host, 0, &group_v4);
	frame = make_datagram(&group_v6, 0, QPN_MULTICAST);
	arrive(&frame);
	frame = make_datagram(&v6_like_v4, 0, QPN_MULTICAST);
	arrive(&frame);
	frame = make_datagram(&other_group, 0, QPN_MULTICAST);
	arrive(&frame);
	frame = make_datagram(&group_v4, HOST_VLAN + 1, QPN_MULTICAST);
	arrive(&frame);
	frame = make_datagram(&group_v4, 0, QPN_MULTICAST);
	memcpy(frame.bytes, mac_b, 6);
	arrive(&frame);
	ck_assert_uint_eq(host->engine.stats.drop_not_for_us, 5);
	frame = make_datagram(&group_v4, 0, host->qps[0].qp.core.qpn);
	arrive(&frame);
	ck_assert_uint_eq(host->engine.stats.drop_unknown_qp, 1);
	frame = make_datagram(&group_v4, 0, QPN_MULTICAST);
	frame.bytes[frame.len - 1] ^= 1;
	arrive(&frame);
	ck_assert_uint_eq(host->engine.stats.drop_bad_icrc, 1);
	host_expect_no_wc(&host->cqs[0]);
}
END_TEST

/* Messages to a group go out, and to those here that are attached to it. */
START_LOOP_TEST(multicast_from_here, 2)
{
	const struct frl_ip *group = _i ? &group_v6 : &group_v4;
	const struct frl_ah_attr attr = {
		.dgid = *group,
		.sgid_index = _i ? HOST_GID_V6 : HOST_GID_V4,
	};
	const struct frl_send_wr wr = {
		.wr_id = 50,
		.opcode = FRL_WR_SEND,
		.remote_qpn = QPN_MULTICAST,
		.remote_qkey = HOST_QKEY,
	};
	const struct wire_packet *packet;
	const char *why = "";
	const uint8_t *frame;
	struct engine_ah ah;
	uint8_t mac[6];

	start(3);
	ah.core.pd = &host->pd;
	host_attach(host, 0, group);
	host_attach(host, 2, group);
	ck_assert_int_eq(engine_add_ah(&host->engine, &ah, &attr, host->now_ns, &why), 0);
	host_poll(host);
	host->port.n_sent = 0;
	host_post(host, 0, wr, 0, LENGTH, &ah);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	packet = host_sent(host, 0, &frame);
	ck_assert(wire_multicast_mac(group, mac) && mac_equal(frame, mac));
	ck_assert_uint_eq(packet->h.bth.dest_qpn, QPN_MULTICAST);
	host_expect_wc(&host->cqs[0], 50, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[0], 0, FRL_WC_SUCCESS);
	host_expect_no_wc(&host->cqs[1]);
	host_expect_wc(&host->cqs[2], 2, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->engine.stats.loopback_packets, 1);
	/* Somebody here is in a group, but not in that. */
	host_attach(host, 1, &other_group);
	ck_assert_int_eq(host_detach(host, 0, group) | host_detach(host, 2, group), 0);
	host_post(host, 0, wr, 0, LENGTH, &ah);
	host_poll(host);
	ck_assert_uint_eq(host->engine.stats.loopback_packets, 1);
	ck_assert_uint_eq(host->engine.stats.drop_not_for_us, 0);
	engine_remove_ah(&host->engine, &ah);
}
END_TEST

START_TEST(bad_attach)
{
	struct frl_ip group = group_v4;
	const char *why = "";

	host_add(host, 0, NULL);
	host_add(host, 1, &ud);
	ck_assert_int_eq(
		engine_attach(&host->engine, &host->qps[0].qp, &group_v4, 0, &why), -EINVAL);
	ck_assert(*why);
	ck_assert_int_eq(engine_attach(&host->engine, &host->qps[1].qp,
				 &host->engine.gids.gids[HOST_GID_V4].ip, 0, &why),
		-EINVAL);
	ck_assert_int_eq(host_detach(host, 1, &group_v4), -EINVAL);
	for (unsigned k = 0; k < GROUPS_MAX; k++) {
		group.bytes[15] = (uint8_t)k;
		host_attach(host, 1, &group);
	}
	group.bytes[15] = GROUPS_MAX;
	ck_assert_int_eq(engine_attach(&host->engine, &host->qps[1].qp, &group, 0, &why), -ENOMEM);
	engine_remove_qp(&host->engine, &host->qps[1].qp);
	ck_assert_int_eq(groups_find(&host->engine.groups, &group_v4), -1);
	for (unsigned k = 0; k < 2 * GROUPS_MAX; k++)
		host_poll(host);
	ck_assert_uint_eq(host->engine.groups.n_used, 0);
}
END_TEST

START_TEST(silent_on_the_local_fabric)
{
	static const struct host_config config = { .on_demand = true };
	const struct frl_ip peer = ip_from_v4((const uint8_t[]){ 10, 9, 0, 1 });
	struct frame frame = make_datagram(&group_v4, 0, QPN_MULTICAST);

	host_restart(&config);
	host_add(host, 0, &ud);
	host_post_recv(host, 0, 1, at(0), 1024);
	host_attach(host, 0, &group_v4);
	engine_set_peer(&host->engine, 0, &group_v6, mac_b);
	arrive(&frame);
	ck_assert_uint_eq(host->engine.stats.drop_wrong_peer, 1);
	host_expect_no_wc(&host->cqs[0]);
	engine_set_peer(&host->engine, 0, &peer, mac_b);
	arrive(&frame);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_int_eq(host_detach(host, 0, &group_v4), 0);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 0);
	ck_assert_uint_eq(host->engine.groups.n_used, 0);
}
END_TEST

/* ---- ICMP echo ---- */

/* A request of the peer with `length` bytes behind the echo header. */
static size_t make_echo(uint8_t *frame, const struct frl_ip *dst, uint32_t length)
{
	uint8_t *ip = frame + ETH_LEN, *icmp = ip + IPV4_LEN;

	memset(frame, 0, ETH_LEN + IPV4_LEN + 8);
	memcpy(frame, mac_b, 6);
	memcpy(frame + 6, mac_a, 6);
	put_be16(frame + 12, ETHERTYPE_IPV4);
	ip[0] = 0x45;
	put_be16(ip + 2, (uint16_t)(IPV4_LEN + 8 + length));
	ip[8] = 64;
	ip[9] = 1;
	memcpy(ip + 12, (const uint8_t[]){ 10, 9, 0, 1 }, 4);
	memcpy(ip + 16, dst->bytes + 12, 4);
	checksum_store(ip + 10, checksum_add(0, ip, IPV4_LEN));
	icmp[0] = 8;
	put_be16(icmp + 4, 0x1234);
	put_be16(icmp + 6, 7);
	for (uint32_t i = 0; i < length; i++)
		icmp[8 + i] = (uint8_t)(i * 3);
	checksum_store(icmp + 2, checksum_add(0, icmp, 8 + length));
	return ETH_LEN + IPV4_LEN + 8 + length;
}

static void expect_echo(uint32_t k, const uint8_t *request, size_t len)
{
	uint8_t frame[FAKE_MAX_FRAME];

	ck_assert_uint_lt(k, host->port.n_sent);
	ck_assert_uint_eq(fake_port_flatten(&host->port.sent[k].packet, frame), len);
	ck_assert(mac_equal(frame, mac_a) && mac_equal(frame + 6, mac_b));
	ck_assert_int_eq(memcmp(frame + ETH_LEN + 12, request + ETH_LEN + 16, 4), 0);
	ck_assert_int_eq(memcmp(frame + ETH_LEN + 16, request + ETH_LEN + 12, 4), 0);
	ck_assert_uint_eq(frame[ETH_LEN + IPV4_LEN], 0);
	ck_assert_int_eq(memcmp(frame + ETH_LEN + IPV4_LEN + 4, request + ETH_LEN + IPV4_LEN + 4,
				 len - ETH_LEN - IPV4_LEN - 4),
		0);
	ck_assert_uint_eq(checksum_fold(checksum_add(
				  0, frame + ETH_LEN + IPV4_LEN, len - ETH_LEN - IPV4_LEN)),
		0xffff);
}

/* A port of jumbo frames. */
static void start_jumbo(void)
{
	struct engine_config config = { .pkey = PKEY_DEFAULT, .mtu = HOST_PORT_MTU, .seed = 1 };

	config.gids = host->engine.gids;
	config.port = &host->port.base;
	engine_fini(&host->engine);
	host->port.base.caps.max_frame = BIG_FRAME;
	ck_assert_int_eq(engine_init(&host->engine, &config), 0);
}

START_LOOP_TEST(echo, 7)
{
	static const uint32_t lengths[] = { 0, 1, 56, 318, 319, 1472, BIG_ECHO };
	uint8_t request[FAKE_MAX_FRAME];
	size_t len;

	start_jumbo();
	len = make_echo(request, &host->engine.gids.gids[HOST_GID_V4].ip, lengths[_i]);
	for (unsigned k = 0; k < 2; k++) {
		fake_port_receive(&host->port, 0, request, (uint32_t)len);
		host_poll(host);
		expect_echo(k, request, len);
		ck_assert_uint_eq(host->engine.stats.echo_requests, k + 1);
	}
}
END_TEST

/* Long ones are answered one at a time; more wait for nobody. */
START_TEST(long_echoes)
{
	uint8_t request[FAKE_MAX_FRAME];
	size_t len;

	start_jumbo();
	len = make_echo(request, &host->engine.gids.gids[HOST_GID_V4].ip, BIG_ECHO);
	host->port.room[0] = 0;
	for (unsigned k = 0; k < 5; k++)
		fake_port_receive(&host->port, 0, request, (uint32_t)len);
	host_poll(host);
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	expect_echo(0, request, len);
	fake_port_receive(&host->port, 0, request, (uint32_t)len);
	host_poll(host);
	expect_echo(1, request, len);
	/* Too long for the port: nobody could have sent it. */
	host->engine.scratch_size = 1000;
	fake_port_receive(&host->port, 0, request, (uint32_t)len);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 2);
	ck_assert_uint_eq(host->engine.stats.echo_requests, 2);
}
END_TEST

/* Requests that found no room in the queue were not answered. */
START_TEST(too_many_echoes)
{
	uint8_t request[256];
	size_t len;

	host->port.room[0] = 0;
	len = make_echo(request, &host->engine.gids.gids[HOST_GID_V4].ip, 56);
	for (unsigned k = 0; k < ENGINE_TX_QUEUE + 20; k++)
		fake_port_receive(&host->port, 0, request, (uint32_t)len);
	for (unsigned k = 0; k < 4; k++)
		host_poll(host);
	ck_assert_uint_eq(host->engine.stats.echo_requests, ENGINE_TX_QUEUE);
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, ENGINE_TX_QUEUE);
}
END_TEST

START_TEST(echo_of_others)
{
	const struct frl_ip other = ip_from_v4((const uint8_t[]){ 10, 9, 0, 3 });
	uint8_t request[256];
	size_t len;

	len = make_echo(request, &other, 56);
	fake_port_receive(&host->port, 0, request, (uint32_t)len);
	len = make_echo(request, &host->engine.gids.gids[HOST_GID_V4].ip, 56);
	request[5] ^= 0x40;
	fake_port_receive(&host->port, 0, request, (uint32_t)len);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 0);
	ck_assert_uint_eq(host->engine.stats.drop_not_for_us, 2);
}
END_TEST

/* ---- the carrier ---- */

static void pass_ms(uint64_t ms)
{
	host->now_ns += MS_TO_NS(ms);
	host_poll(host);
}

START_TEST(carrier)
{
	struct event_source *source;

	source = &host->engine.port_events;
	for (unsigned k = 0; k < 4; k++) {
		host->port.state[0] = k % 2 ? PORT_LINK_UP : PORT_LINK_DOWN;
		pass_ms(CARRIER_CHECK_MS / 2);
		pass_ms(CARRIER_CHECK_MS / 2);
		ck_assert_ptr_eq(host->engine.events.async.next, &source->node);
		ck_assert_int_eq(
			event_take(source), k % 2 ? FRL_EVENT_PORT_ACTIVE : FRL_EVENT_PORT_ERR);
		ck_assert(list_empty(&host->engine.events.async));
		pass_ms(CARRIER_CHECK_MS);
		ck_assert(list_empty(&host->engine.events.async));
	}
}
END_TEST

/* Nobody fetches events while it goes and comes back: one event is left, with the last state. */
START_TEST(carrier_flaps)
{
	for (unsigned k = 0; k < 4; k++) {
		host->port.state[0] = k % 2 ? PORT_LINK_UP : PORT_LINK_DOWN;
		pass_ms(CARRIER_CHECK_MS);
	}
	ck_assert_int_eq(event_take(&host->engine.port_events), FRL_EVENT_PORT_ACTIVE);
	ck_assert(list_empty(&host->engine.events.async));
}
END_TEST

/* Lets the deadlines of queue pair `i` fire, one after the other, until it fails or, if that comes
 * first, `retries` are left. */
static void fire_deadlines(unsigned i, unsigned retries)
{
	const struct qp *qp = &host->qps[i].qp.core;

	host_poll(host);
	while (qp->state == FRL_QPS_RTS && qp->recovery.retries > retries) {
		uint64_t deadline_ns = qp_next_deadline(qp);

		ck_assert_msg(deadline_ns != DEADLINE_NONE, "queue pair %u would wait for ever", i);
		ck_assert_uint_gt(deadline_ns, host->now_ns);
		ck_assert_uint_le(engine_next_deadline(&host->engine), deadline_ns);
		host->now_ns = deadline_ns;
		host_poll(host);
	}
}

/* Packets that the port does not take are tried as often as lost ones. So are those of queue pairs
 * that find the port's queue full of others' packets: the last one here. */
START_LOOP_TEST(port_takes_nothing, 2)
{
	static const uint64_t gives_up_ns = (UINT64_C(4096) << 14) * (1 + 2 + 4 + 8 + 4 * 16);
	unsigned last = ENGINE_TX_QUEUE / ENGINE_EMIT_QUANTUM;
	uint64_t start_ns;

	host->port.room[0] = 0;
	if (_i)
		host->port.state[0] = PORT_LINK_DOWN;
	for (unsigned i = 0; i <= last; i++) {
		host_add(host, i, NULL);
		host_post_send(host, i, i, ENGINE_EMIT_QUANTUM * HOST_MTU, 0);
	}
	host_poll(host); /* is busy with the others */
	start_ns = host->now_ns;
	fire_deadlines(last, 0);
	host->now_ns = qp_next_deadline(&host->qps[last].qp.core);
	ck_assert_uint_ge(host->now_ns - start_ns, gives_up_ns);
	ck_assert_uint_lt(host->now_ns - start_ns, gives_up_ns + MS_TO_NS(1));
	host_poll(host);
	for (unsigned i = 0; i <= last; i++) {
		const char *error = host->qps[i].qp.core.error;

		ck_assert_int_eq(host->qps[i].qp.core.state, FRL_QPS_ERR);
		host_expect_wc(&host->cqs[i], i, FRL_WC_RETRY_EXC_ERR);
		ck_assert_msg(_i ? error && strstr(error, "no link") : !error, "%s", error);
	}
	ck_assert(!engine_link_queued(&host->engine, 0));
}
END_TEST

/* It comes back before the last try is over. */
START_TEST(carrier_back_in_time)
{
	host_add(host, 0, NULL);
	host_post_send(host, 0, 1, 100 * HOST_MTU, 0);
	host->port.room[0] = 10;
	host_poll(host);
	host->port.state[0] = PORT_LINK_DOWN;
	fire_deadlines(0, 0);
	host->port.state[0] = PORT_LINK_UP;
	host->port.room[0] = FAKE_UNLIMITED;
	for (unsigned round = 0; round < 10; round++)
		host_poll(host);
	host_acknowledge(host, 0, 99, true);
	host_poll(host);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->qps[0].qp.core.recovery.retries, 7);
	ck_assert_uint_eq(qp_next_deadline(&host->qps[0].qp.core), DEADLINE_NONE);
}
END_TEST

/* On the local fabric a full queue says that the peer is slow, or stopped: it is waited for. */
START_TEST(slow_peer_is_waited_for)
{
	static const struct host_config config = { .on_demand = true };
	static const struct host_qp_config patient = { .unlimited_retry = true };

	host_restart(&config);
	host_add(host, 0, &patient);
	host->port.room[0] = 0;
	host_post_send(host, 0, 1, 2 * ENGINE_TX_QUEUE * HOST_MTU, 0);
	for (unsigned k = 0; k < 100; k++) {
		host->now_ns += MS_TO_NS(1000);
		host_poll(host);
	}
	ck_assert_int_eq(host->qps[0].qp.core.state, FRL_QPS_RTS);
	ck_assert_uint_le(host->engine.stats.timeouts, 1);
}
END_TEST

/* A queue pair that is removed leaves no event behind. */
START_TEST(events_go_with_their_object)
{
	host_add(host, 0, NULL);
	event_raise(&host->engine.events, &host->qps[0].qp.core.events, FRL_EVENT_COMM_EST);
	engine_remove_qp(&host->engine, &host->qps[0].qp);
	ck_assert(list_empty(&host->engine.events.async));
}
END_TEST

HOST_TEST_FILE(engine_network)
