/* SPDX-License-Identifier: BSD-3-Clause */
/* UD, GSI and UC: packets on the wire, and requests that are done when the port has them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/engine_host.h"
#include "tests/vectors/frame.h"

enum {
	LENGTH = 100,
	TO = 16384,
	LINK_CHECK_NS = 1000000,
	CARRIER_CHECK_NS = 100000000,
	PATIENCE_NS = 10000000, /* with a link that takes nothing */
	NOISE = 20000,
};

static const struct host_qp_config ud = { .type = FRL_QPT_UD };
static const struct host_qp_config uc = { .type = FRL_QPT_UC };

static void fill(void)
{
	for (uint32_t i = 0; i < TO; i++)
		host->memory[i] = (uint8_t)(i * 7 + 1);
}

/* Not moved after that: it is in a list. */
static void add_ah_over(struct engine_ah *ah, uint8_t sgid_index, const struct frl_ip *dgid,
	uint8_t sl, uint16_t link)
{
	struct frl_ah_attr attr = {
		.sgid_index = sgid_index,
		.dgid = *dgid,
		.sl = sl,
		.link = link,
	};
	const char *why = "";

	memcpy(attr.dmac, mac_a, 6);
	*ah = (struct engine_ah){ .core = { .pd = &host->pd } };
	ck_assert_msg(engine_add_ah(&host->engine, ah, &attr, host->now_ns, &why) == 0, "%s", why);
}

static void add_ah_to(struct engine_ah *ah, uint8_t sgid_index, uint8_t last, uint8_t sl)
{
	struct frl_ip dgid = host->engine.gids.gids[sgid_index].ip;

	dgid.bytes[15] = last;
	add_ah_over(ah, sgid_index, &dgid, sl, 0);
}

static struct frl_send_wr send_to(uint32_t qpn)
{
	return (struct frl_send_wr){
		.wr_id = 1,
		.opcode = FRL_WR_SEND,
		.remote_qpn = qpn,
		.remote_qkey = HOST_QKEY,
	};
}

START_LOOP_TEST(ud_packet, 4)
{
	uint8_t sgid = (uint8_t)(HOST_GID_V4 + _i);
	struct wire_packet packet;
	const uint8_t *frame;
	struct engine_ah ah;

	fill();
	host_add(host, 0, &ud);
	add_ah_to(&ah, sgid, 1, 5);
	host_post(host, 0, send_to(0x77), 0, HOST_PORT_MTU, &ah);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert(host->port.sent[0].packet.copy);
	packet = *host_sent(host, 0, &frame);
	ck_assert(mac_equal(frame, mac_a));
	ck_assert_uint_eq(packet.h.bth.opcode, TRANSPORT_UD | OP_SEND_ONLY);
	ck_assert_uint_eq(packet.h.bth.dest_qpn, 0x77);
	ck_assert_uint_eq(packet.h.deth.qkey, HOST_QKEY);
	ck_assert_uint_eq(packet.h.deth.src_qpn, host->qps[0].qp.core.qpn);
	ck_assert_uint_eq(packet.vlan, host->engine.gids.gids[sgid].vlan);
	ck_assert_uint_eq(packet.priority, packet.vlan ? 5 : 0);
	ck_assert_uint_eq(get_be16(packet.l3 + packet.headers_len - DETH_LEN - BTH_LEN - UDP_LEN),
		wire_udp_src_port(0, host->qps[0].qp.core.qpn, 0x77));
	ck_assert_int_eq(wire_trim(&packet, true), WIRE_OK);
	ck_assert(wire_icrc_ok(&packet));
	ck_assert_uint_eq(packet.payload_len, HOST_PORT_MTU);
	ck_assert_int_eq(memcmp(packet.payload, host->memory, HOST_PORT_MTU), 0);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	engine_remove_ah(&host->engine, &ah);
}
END_TEST

/* From one device to another or to itself; the header that arrives with it, and on which VLAN. */
START_LOOP_TEST(ud_end_to_end, 8)
{
	uint8_t sgid = (uint8_t)(HOST_GID_V4 + _i / 2);
	bool loop = _i % 2;
	struct host *peer;
	struct engine_ah ah;
	struct frl_wc wc;
	uint8_t *grh;

	peer = loop ? host : host_new(&(struct host_config){ .second = true });
	fill();
	host_add(host, 0, &ud);
	host_add(peer, 1, &ud);
	host_post_recv(peer, 1, 9, TO, 8192);
	add_ah_to(&ah, sgid, loop ? 2 : 1, 3);
	host_post(host, 0, send_to(peer->qps[1].qp.core.qpn), 0, LENGTH, &ah);
	host_settle(host, peer);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert(cq_pop(&peer->cqs[1], &wc));
	ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, LENGTH + FRL_GRH_SIZE);
	ck_assert_uint_eq(wc.src_qp, host->qps[0].qp.core.qpn);
	ck_assert_uint_eq(wc.vlan, host->engine.gids.gids[sgid].vlan);
	ck_assert_uint_eq(wc.sl, wc.vlan ? 3 : 0);
	grh = peer->memory + TO;
	if (ah.core.path.ipv4)
		ck_assert_int_eq(
			memcmp(grh + 32, host->engine.gids.gids[sgid].ip.bytes + 12, 4), 0);
	else
		ck_assert_int_eq(memcmp(grh + 8, host->engine.gids.gids[sgid].ip.bytes, 16), 0);
	ck_assert_int_eq(memcmp(grh + FRL_GRH_SIZE, host->memory, LENGTH), 0);
	ck_assert_uint_eq(grh[FRL_GRH_SIZE + LENGTH], HOST_FILL);
	ck_assert_uint_eq(host->engine.stats.loopback_packets, loop);
	engine_remove_ah(&host->engine, &ah);
	if (!loop)
		host_free(peer);
}
END_TEST

START_TEST(gsi)
{
	static const struct host_qp_config config = { .type = FRL_QPT_GSI };
	struct host *peer;
	struct engine_ah ah;
	struct frl_send_wr wr = send_to(QPN_GSI);
	struct qp_config second = { .type = FRL_QPT_GSI };
	struct engine_qp qp;

	peer = host_new(&(struct host_config){ .second = true });
	ck_assert_uint_eq(host_add(host, 0, &config)->core.qpn, 1);
	ck_assert_uint_eq(host_add(peer, 1, &config)->core.qpn, 1);
	ck_assert_int_eq(engine_add_qp(&host->engine, &qp, &second), -EBUSY);
	host_post_recv(peer, 1, 9, TO, 1024);
	add_ah_to(&ah, HOST_GID_V4, 1, 0);
	wr.remote_qkey = QKEY_GSI;
	host_post(host, 0, wr, 0, 256, &ah);
	host_settle(host, peer);
	host_expect_wc(&peer->cqs[1], 9, FRL_WC_SUCCESS);
	engine_remove_qp(&host->engine, &host->qps[0].qp);
	ck_assert_uint_eq(host->engine.n_qps, 0);
	ck_assert_uint_eq(host_create(host, 0, &config)->core.qpn, 1);
	engine_remove_ah(&host->engine, &ah);
	host_free(peer);
}
END_TEST

/* ---- done when the port has them ---- */

START_TEST(done_when_taken)
{
	struct engine_ah ah;

	host_add(host, 0, &ud);
	host_add(host, 1, &uc);
	add_ah_to(&ah, HOST_GID_V4, 1, 0);
	host->port.room[0] = 0;
	for (unsigned k = 0; k < 3; k++)
		host_post(host, 0, send_to(7), 0, LENGTH, &ah);
	host_post_send(host, 1, 1, 2 * HOST_MTU, 0);
	host_post_send(host, 1, 2, 16, FRL_SEND_INLINE);
	host_poll(host);
	host_expect_no_wc(&host->cqs[0]);
	host_expect_no_wc(&host->cqs[1]);
	ck_assert_uint_eq(host->qps[0].qp.queued, 3);
	ck_assert_uint_eq(host->qps[1].qp.queued, 3);
	for (unsigned k = 0; k < 3; k++) {
		host->port.room[0] = 1;
		host_poll(host);
		host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
		host_expect_no_wc(&host->cqs[0]);
	}
	host->port.room[0] = 1;
	host_poll(host);
	host_expect_no_wc(&host->cqs[1]);
	host->port.room[0] = 1;
	host_poll(host);
	host_expect_wc(&host->cqs[1], 1, FRL_WC_SUCCESS);
	host_expect_no_wc(&host->cqs[1]);
	host->port.room[0] = 1;
	host_poll(host);
	host_expect_wc(&host->cqs[1], 2, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->qps[1].qp.queued, 0);
	engine_remove_ah(&host->engine, &ah);
}
END_TEST

enum ending { TO_ERROR, TO_RESET, REMOVED, N_ENDINGS };

/* Requests that wait when a queue pair ends are taken back, also without payload, and count for
 * nothing that comes later. */
START_LOOP_TEST(taken_back, 2 * N_ENDINGS)
{
	const struct host_qp_config *config = _i % 2 ? &ud : &uc;
	enum ending ending = (enum ending)(_i / 2);
	struct frl_qp_attr attr = {
		.state = ending == TO_ERROR ? FRL_QPS_ERR : FRL_QPS_RESET,
	};
	struct engine_ah ah;

	host_add(host, 0, config);
	host_add(host, 1, &uc);
	add_ah_to(&ah, HOST_GID_V4, 1, 0);
	host->port.room[0] = 0;
	for (unsigned k = 0; k < 3; k++) {
		struct frl_send_wr wr = send_to(7);

		wr.flags = k == 1 ? FRL_SEND_INLINE : 0;
		host_post(host, 0, wr, 0, k == 2 ? 0 : LENGTH, _i % 2 ? &ah : NULL);
		host_post_send(host, 1, k, 16, FRL_SEND_INLINE);
	}
	host_poll(host);
	if (ending == REMOVED)
		engine_remove_qp(&host->engine, &host->qps[0].qp);
	else
		ck_assert_int_eq(host_modify(host, 0, &attr, FRL_QP_STATE, NULL), 0);
	ck_assert_uint_eq((uint16_t)(host->engine.tx[0]->tail - host->engine.tx[0]->head), 3);
	ck_assert_uint_eq(host->qps[0].qp.queued, 0);
	host->cqs[0].head = host->cqs[0].tail;
	if (ending == TO_RESET) {
		/* The same queue pair again, with requests of its own. */
		host_connect(host, 0, config);
		for (unsigned k = 0; k < 3; k++)
			host_post(host, 0, send_to(7), 0, LENGTH, _i % 2 ? &ah : NULL);
	}
	host->port.room[0] = 3;
	host_poll(host);
	for (unsigned k = 0; k < 3; k++)
		host_expect_wc(&host->cqs[1], k, FRL_WC_SUCCESS);
	host_expect_no_wc(&host->cqs[0]);
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	for (unsigned k = 0; ending == TO_RESET && k < 3; k++)
		host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_no_wc(&host->cqs[0]);
	ck_assert_uint_eq(host->port.n_sent, ending == TO_RESET ? 6 : 3);
	engine_remove_ah(&host->engine, &ah);
}
END_TEST

/* A queue pair fails while it is told what the port has taken, which is more of it. */
START_TEST(fails_while_it_is_told)
{
	static const unsigned order[] = { 0, 0, 1, 0 };
	struct engine_ah ah;

	cq_init(&host->cqs[7], host->wcs[7], 1, &host->engine.events);
	host_add(host, 0, &(struct host_qp_config){ .type = FRL_QPT_UD, .send_cq = &host->cqs[7] });
	host_add(host, 1, &ud);
	add_ah_to(&ah, HOST_GID_V4, 1, 0);
	host->port.room[0] = 0;
	for (unsigned k = 0; k < 4; k++) {
		host_post(host, order[k], send_to(7), 0, LENGTH, &ah);
		host_poll(host);
	}
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 4);
	ck_assert_int_eq(host->qps[0].qp.core.state, FRL_QPS_ERR);
	ck_assert_uint_eq(host->qps[0].qp.queued, 0);
	ck_assert_uint_eq(host->qps[1].qp.queued, 0);
	host_expect_wc(&host->cqs[1], 1, FRL_WC_SUCCESS);
	engine_remove_ah(&host->engine, &ah);
}
END_TEST

/* Packets of one queue pair over two links: in order, whatever links are busy. */
START_TEST(two_links_keep_order)
{
	struct engine_ah wire, loop;
	uint32_t self;

	self = host_add(host, 0, &ud)->core.qpn;
	host_post_recv(host, 0, 9, TO, 1024);
	add_ah_to(&wire, HOST_GID_V4, 1, 0);
	add_ah_to(&loop, HOST_GID_V4, 2, 0);
	host->port.room[0] = 0;
	host_post(host, 0, send_to(7), 0, LENGTH, &wire);
	host_post(host, 0, send_to(self), 0, LENGTH, &loop);
	for (unsigned k = 0; k < 5; k++)
		host_poll(host);
	host_expect_no_wc(&host->cqs[0]);
	host->port.room[0] = FAKE_UNLIMITED;
	for (unsigned k = 0; k < 3; k++)
		host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[0], 9, FRL_WC_SUCCESS);
	engine_remove_ah(&host->engine, &wire);
	engine_remove_ah(&host->engine, &loop);
}
END_TEST

/* On the local fabric datagrams to a process that has ended are lost, and the rest goes on. */
START_TEST(link_down)
{
	static const struct host_config config = { .on_demand = true };
	const struct frl_ip dgid = ip_from_v4((const uint8_t[]){ 10, 9, 0, 5 });
	struct engine_ah ah[2];

	host_restart(&config);
	host_add(host, 0, &ud);
	for (uint16_t i = 0; i < 2; i++) {
		add_ah_over(&ah[i], HOST_GID_V4, &dgid, 0, i);
		ck_assert(engine_link_used(&host->engine, i));
	}
	host->port.room[1] = 0;
	host_post(host, 0, send_to(7), 0, LENGTH, &ah[1]);
	host_post(host, 0, send_to(7), 0, LENGTH, &ah[0]);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 0);
	host->port.state[1] = PORT_LINK_DOWN;
	host->now_ns += LINK_CHECK_NS;
	for (unsigned k = 0; k < 3; k++)
		host_poll(host);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_int_eq(host->qps[0].qp.core.state, FRL_QPS_RTS);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert_uint_eq(host->port.sent[0].link, 0);
	for (unsigned i = 0; i < 2; i++) {
		engine_remove_ah(&host->engine, &ah[i]);
		ck_assert(!engine_link_used(&host->engine, (uint16_t)i));
	}
}
END_TEST

/* The same on a network while the carrier is gone: a waiter for such requests would wait as long.
 * They are not sent when it comes back; connections go on. */
START_LOOP_TEST(no_carrier, 2)
{
	struct engine_ah ah;
	uint32_t n = ENGINE_TX_QUEUE;

	host_add(host, 0, &ud);
	host_add(host, 1, &uc);
	host_add(host, 2, NULL);
	add_ah_to(&ah, HOST_GID_V4, 1, 0);
	host->port.room[0] = 0;
	if (_i)
		host_post_send(host, 2, 1, n * HOST_MTU, 0);
	for (unsigned k = 0; k < n / 2; k++)
		host_post(host, 0, send_to(7), 0, LENGTH, &ah);
	host_post_send(host, 1, 1, n * HOST_MTU, 0);
	for (unsigned k = 0; k < 8; k++) {
		host->now_ns += CARRIER_CHECK_NS;
		host_poll(host);
	}
	host_expect_no_wc(&host->cqs[0]);
	host->port.state[0] = PORT_LINK_DOWN;
	host->now_ns += CARRIER_CHECK_NS;
	for (unsigned k = 0; k < 2 * n; k++) {
		host_poll(host);
		host->now_ns += PATIENCE_NS;
	}
	for (unsigned k = 0; k < n / 2; k++)
		host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[1], 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->engine.stats.drop_datagram, n / 2 + n);
	host->port.state[0] = PORT_LINK_UP;
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	host_post(host, 0, send_to(7), 0, LENGTH, &ah);
	host_poll(host);
	host_poll(host);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->engine.stats.drop_datagram, n / 2 + n);
	ck_assert_int_eq(host->qps[2].qp.core.state, FRL_QPS_RTS);
	engine_remove_ah(&host->engine, &ah);
}
END_TEST

/* ---- what arrives ---- */

static const struct {
	const char *name;
	uint8_t opcode;
	uint32_t qkey;
	int qpn; /* added to the right one */
	size_t counter;
} drops[] = {
	{ "Q_Key", TRANSPORT_UD | OP_SEND_ONLY, HOST_QKEY + 1, 0,
		offsetof(struct frl_stats, drop_bad_qkey) },
	{ "QP number", TRANSPORT_UD | OP_SEND_ONLY, HOST_QKEY, 1,
		offsetof(struct frl_stats, drop_unknown_qp) },
	{ "transport", OP_SEND_ONLY, HOST_QKEY, 0, offsetof(struct frl_stats, drop_bad_opcode) },
};

enum { N_DROPS = sizeof(drops) / sizeof(drops[0]) };

START_LOOP_TEST(drop, N_DROPS)
{
	struct wire_headers h = { .bth = { .opcode = drops[_i].opcode, .pkey = PKEY_DEFAULT },
		.deth = { drops[_i].qkey, 0x55 } };
	struct frame frame;
	uint64_t value;

	host_add(host, 0, &ud);
	host_post_recv(host, 0, 9, TO, 1024);
	h.bth.dest_qpn = host->qps[0].qp.core.qpn + (uint32_t)drops[_i].qpn;
	frame = make_frame(0, &h, LENGTH, true);
	fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
	host_poll(host);
	memcpy(&value, (const char *)&host->engine.stats + drops[_i].counter, sizeof(value));
	ck_assert_msg(value == 1, "%s", drops[_i].name);
	host_expect_no_wc(&host->cqs[0]);
	ck_assert_uint_eq(host->port.n_sent, 0);
	/* And the right one is taken. */
	h.bth.opcode = TRANSPORT_UD | OP_SEND_ONLY;
	h.bth.dest_qpn = host->qps[0].qp.core.qpn;
	h.deth.qkey = HOST_QKEY;
	frame = make_frame(0, &h, LENGTH, true);
	fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
	host_poll(host);
	host_expect_wc(&host->cqs[0], 9, FRL_WC_SUCCESS);
}
END_TEST

/* Any frames of a network: nothing breaks, and everything that was right still works. */
START_TEST(noise)
{
	static const uint8_t opcodes[] = { TRANSPORT_UD | OP_SEND_ONLY, OP_SEND_ONLY,
		OP_READ_REQUEST, OP_FETCH_ADD, OP_ACKNOWLEDGE, TRANSPORT_UC | OP_WRITE_ONLY,
		TRANSPORT_CNP | 1 };
	const struct frl_ip group = { { [10] = 0xff, 0xff, 239, 129, 2, 3 } };
	struct random_state random;
	const char *why = "";

	host_add(host, 0, &ud);
	host_add(host, 1, NULL);
	host_add(host, 2, &uc);
	ck_assert_int_eq(engine_attach(&host->engine, &host->qps[0].qp, &group, 0, &why), 0);
	random_seed(&random, 7);
	for (unsigned k = 0; k < NOISE; k++) {
		uint8_t opcode = opcodes[random_below(&random, sizeof(opcodes))];
		struct wire_headers h = { .bth = { .opcode = opcode, .pkey = PKEY_DEFAULT } };
		struct frame frame;

		h.bth.dest_qpn = host->qps[random_below(&random, 3)].qp.core.qpn;
		h.bth.psn = psn_make((uint32_t)random_u64(&random));
		frame = make_frame((int)random_below(&random, VARIANTS), &h,
			(uint32_t)random_below(&random, 2) * 64, true);
		for (uint64_t n = random_below(&random, 4); n > 0; n--) {
			uint64_t at = random_below(&random, n % 2 ? frame.payload : frame.len);

			frame.bytes[at] = (uint8_t)random_u64(&random);
		}
		if (random_below(&random, 8) == 0)
			frame.len = (size_t)random_below(&random, frame.len + 1);
		host->port.n_sent = 0;
		fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
		host_poll(host);
	}
	ck_assert_uint_eq(host->engine.stats.rx_packets, NOISE);
	ck_assert_int_eq(host->qps[0].qp.core.state, FRL_QPS_RTS);
}
END_TEST

HOST_TEST_FILE(engine_datagrams)
