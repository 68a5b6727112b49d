/* SPDX-License-Identifier: BSD-3-Clause */
/* Multicast on the local fabric: to all links, of which some are full, coming up, or down. */
#include <errno.h>
#include <string.h>

#include "tests/unit/engine/engine_host.h"

#define MS_TO_NS(ms) ((ms)*UINT64_C(1000000))

enum {
	LENGTH = 100,
	SLOW = 3, /* a link with trouble */
	LAST = 6, /* the highest link that is known */
	PATIENCE_MS = 10,
	PATIENCE_CONNECTING_MS = 100,
};

static const struct host_config fabric = { .on_demand = true };
static const struct host_qp_config ud = { .type = FRL_QPT_UD };
static const struct frl_ip group_v4 = { { [10] = 0xff, 0xff, 239, 129, 2, 3 } };
static const struct frl_ip group_v6 = { { 0xff, 0x12, [15] = 0x77 } };
static struct engine_ah ah;

static int add_ah(const struct frl_ip *group, const uint8_t *dmac, uint16_t link)
{
	struct frl_ah_attr attr = {
		.dgid = *group,
		.sgid_index = ip_is_v4(group) ? HOST_GID_V4 : HOST_GID_V6,
		.link = link,
	};
	const char *why = "";

	if (dmac)
		memcpy(attr.dmac, dmac, sizeof(attr.dmac));
	ah = (struct engine_ah){ .core = { .pd = &host->pd } };
	return engine_add_ah(&host->engine, &ah, &attr, host->now_ns, &why);
}

static void set_links(enum port_link_state state)
{
	for (uint16_t i = 0; i < FAKE_LINKS; i++)
		host->port.state[i] = state;
}

/* Links 0, SLOW and LAST are up. No queue pair uses them. */
static void start(const struct frl_ip *group)
{
	const uint8_t mac[6] = { 2 };
	const struct frl_ip peer = { { [10] = 0xff, 0xff, 169, 254, 9, 9 } };

	host_restart(&fabric);
	for (unsigned i = 0; i < 2; i++)
		host_add(host, i, &ud);
	set_links(PORT_LINK_CLOSED);
	engine_set_peer(&host->engine, LAST, &peer, mac);
	host->port.state[0] = host->port.state[SLOW] = host->port.state[LAST] = PORT_LINK_UP;
	ck_assert_int_eq(add_ah(group, NULL, SLOW), 0);
}

static void finish(void)
{
	engine_remove_ah(&host->engine, &ah);
}

static void post(unsigned qp, uint64_t wr_id)
{
	const struct frl_send_wr wr = {
		.wr_id = wr_id,
		.opcode = FRL_WR_SEND,
		.remote_qpn = QPN_MULTICAST,
		.remote_qkey = HOST_QKEY,
	};

	memset(host->memory + wr_id * LENGTH, (int)wr_id, LENGTH);
	host_post(host, qp, wr, (uint32_t)wr_id * LENGTH, LENGTH, &ah);
}

static void poll_after_ms(uint64_t ms)
{
	host->now_ns += MS_TO_NS(ms);
	host_poll(host);
}

/* Packet `k` went over the link and has the content of the request. */
static void went(uint32_t k, uint16_t link, uint64_t wr_id)
{
	const uint8_t *frame;
	const struct wire_packet *packet = host_sent(host, k, &frame);

	ck_assert_uint_eq(host->port.sent[k].link, link);
	ck_assert_uint_eq(packet->h.bth.dest_qpn, QPN_MULTICAST);
	ck_assert_uint_eq(packet->payload[0], (uint8_t)wr_id);
}

START_LOOP_TEST(all_links, 2)
{
	const struct frl_ip *group = _i ? &group_v6 : &group_v4;
	const uint8_t *frame;
	uint8_t mac[6];

	start(group);
	for (uint64_t k = 0; k < 2; k++)
		post(0, k);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 6);
	for (uint32_t k = 0; k < 2; k++) {
		went(3 * k, 0, k);
		went(3 * k + 1, SLOW, k);
		went(3 * k + 2, LAST, k);
		host_expect_wc(&host->cqs[0], k, FRL_WC_SUCCESS);
	}
	host_sent(host, 0, &frame);
	ck_assert(wire_multicast_mac(group, mac) && mac_equal(frame, mac));
	ck_assert_uint_eq(host->engine.stats.tx_packets, 6);
	ck_assert_uint_eq(host->engine.stats.loopback_packets, 0);
	ck_assert(!engine_has_work(&host->engine));
	finish();
}
END_TEST

/* Without a link, and to members here. */
START_LOOP_TEST(members_here, 2)
{
	start(&group_v4);
	if (_i == 0)
		set_links(PORT_LINK_DOWN);
	host_attach(host, 1, &group_v4);
	host_post_recv(host, 1, 9, 0, 1000);
	post(0, 5);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, _i ? 3 : 0);
	host_expect_wc(&host->cqs[0], 5, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[1], 9, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->memory[FRL_GRH_SIZE], 5);
	finish();
}
END_TEST

/* The caller's link, also of a group: with any MAC address. */
START_TEST(chosen_link)
{
	const uint8_t any[6] = { 2 };

	start(&group_v4);
	finish();
	ck_assert_int_eq(add_ah(&group_v4, any, FAKE_LINKS), -EINVAL);
	ck_assert_int_eq(add_ah(&group_v4, any, LAST), 0);
	post(0, 1);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	went(0, LAST, 1);
	finish();
}
END_TEST

static const struct {
	enum port_link_state state;
	uint32_t room;
	unsigned patience_ms;
} troubles[] = {
	{ PORT_LINK_UP, 0, PATIENCE_MS },
	{ PORT_LINK_CONNECTING, FAKE_UNLIMITED, PATIENCE_CONNECTING_MS },
};

static void make_trouble(int i)
{
	host->port.state[SLOW] = troubles[i].state;
	host->port.room[SLOW] = troubles[i].room;
}

static void end_trouble(void)
{
	host->port.state[SLOW] = PORT_LINK_UP;
	host->port.room[SLOW] = FAKE_UNLIMITED;
}

/* The link has its room in time. The memory is in use until then, and no link gets it twice. */
START_LOOP_TEST(waits, ROWS(troubles))
{
	start(&group_v4);
	make_trouble(_i);
	post(0, 1);
	host_poll(host);
	poll_after_ms(troubles[_i].patience_ms - 1);
	ck_assert_uint_eq(host->port.n_sent, 1);
	went(0, 0, 1);
	host_expect_no_wc(&host->cqs[0]);
	ck_assert(engine_has_work(&host->engine));
	ck_assert(engine_region_queued(&host->engine, &host->region));
	end_trouble();
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 3);
	went(1, SLOW, 1);
	went(2, LAST, 1);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert(!engine_region_queued(&host->engine, &host->region));
	ck_assert_uint_eq(host->engine.stats.drop_datagram, 0);
	finish();
}
END_TEST

/* The others get it at last, and later packets at once. When the link takes one again, it is waited
 * for as before. */
START_LOOP_TEST(loses, ROWS(troubles))
{
	start(&group_v4);
	make_trouble(_i);
	post(0, 1);
	host_poll(host);
	poll_after_ms(troubles[_i].patience_ms);
	ck_assert_uint_eq(host->port.n_sent, 2);
	went(1, LAST, 1);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->engine.stats.drop_datagram, 1);
	post(0, 2);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 4);
	host_expect_wc(&host->cqs[0], 2, FRL_WC_SUCCESS);
	end_trouble();
	post(0, 3);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 7);
	went(5, SLOW, 3);
	host_expect_wc(&host->cqs[0], 3, FRL_WC_SUCCESS);
	make_trouble(_i);
	post(0, 4);
	host_poll(host);
	host_expect_no_wc(&host->cqs[0]);
	ck_assert_uint_eq(host->engine.stats.drop_datagram, 2);
	finish();
}
END_TEST

/* Other links, and a new device behind the number, are waited for. */
START_LOOP_TEST(waits_for_each, 2)
{
	const uint8_t mac[6] = { 2 };
	const struct frl_ip peer = { { [10] = 0xff, 0xff, 169, 254, 9, 8 } };
	uint16_t link = _i ? LAST : SLOW;

	start(&group_v4);
	make_trouble(0);
	post(0, 1);
	host_poll(host);
	poll_after_ms(PATIENCE_MS);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	engine_set_peer(&host->engine, link, &peer, mac);
	host->port.room[link] = 0;
	post(0, 2);
	host_poll(host);
	host_expect_no_wc(&host->cqs[0]);
	poll_after_ms(PATIENCE_MS);
	host_expect_wc(&host->cqs[0], 2, FRL_WC_SUCCESS);
	finish();
}
END_TEST

/* The first packet is withdrawn after some links have it. The next one is sent to all. */
START_LOOP_TEST(sender_ends, 2)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_ERR };

	start(&group_v4);
	make_trouble(0);
	post(0, 1);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	post(1, 2);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	if (_i)
		engine_remove_qp(&host->engine, &host->qps[0].qp);
	else
		ck_assert_int_eq(host_modify(host, 0, &attr, FRL_QP_STATE, NULL), 0);
	end_trouble();
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 4);
	went(1, 0, 2);
	went(2, SLOW, 2);
	went(3, LAST, 2);
	host_expect_wc(&host->cqs[1], 2, FRL_WC_SUCCESS);
	finish();
	if (_i)
		host_create(host, 0, &ud);
}
END_TEST

/* A connection within the device does not wait with the packets of groups. */
START_TEST(loopback_goes_on)
{
	start(&group_v4);
	host_pair(host, 2, host, 3, NULL);
	make_trouble(0);
	post(0, 1);
	host_poll(host);
	host_post_recv(host, 3, 9, 1000, LENGTH);
	host_post(host, 2, (struct frl_send_wr){ .wr_id = 7, .opcode = FRL_WR_SEND }, 0, LENGTH,
		NULL);
	for (int i = 0; i < 4; i++)
		host_poll(host);
	host_expect_wc(&host->cqs[2], 7, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[3], 9, FRL_WC_SUCCESS);
	host_expect_no_wc(&host->cqs[0]);
	finish();
}
END_TEST

HOST_TEST_FILE(engine_all_links)
