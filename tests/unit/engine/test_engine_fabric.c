/* SPDX-License-Identifier: BSD-3-Clause */
/* Links of the local fabric: connections that end while the peer's process lives on, datagrams to
 * processes that have stopped or ended, and who may send over a link. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/engine_host.h"
#include "tests/vectors/frame.h"

#define MS_TO_NS(ms) ((ms)*UINT64_C(1000000))

enum {
	LENGTH = 100,
	TO = 16384,
	FAR = 100000, /* PSNs */
	OLD_PEER = HOST_PEER_QPN + 1,
	NEW_PEER = 0x700,
	NAK_OPERATIONAL = 0x63,
	PATIENCE_MS = 10, /* with a link that takes nothing */
};

static const struct host_config fabric = { .on_demand = true };
static const struct host_qp_config ud = { .type = FRL_QPT_UD };

static void modify(unsigned i, enum frl_qp_state state)
{
	struct frl_qp_attr attr = host_attr(i, NULL);

	attr.state = state;
	ck_assert_int_eq(
		host_modify(host, i, &attr, host_mask(host->qps[i].qp.core.type, state), NULL), 0);
}

static void receive(uint16_t link, const struct frame *frame)
{
	host->port.n_sent = 0;
	fake_port_receive(&host->port, link, frame->bytes, (uint32_t)frame->len);
	host_poll(host);
}

/* ---- connections that have ended ---- */

static struct frame make_request(uint32_t sender, uint32_t qpn, uint32_t psn)
{
	const struct wire_headers h = { .bth = { .opcode = OP_SEND_ONLY,
						.pkey = PKEY_DEFAULT,
						.ack_request = true,
						.dest_qpn = qpn,
						.psn = psn_make(HOST_RQ_PSN + psn) } };
	struct frame frame = make_frame(0, &h, 16, true);

	set_sender(&frame, sender);
	return frame;
}

static const struct {
	enum frl_qp_type type;
	enum frl_qp_state state;
} mute[] = {
	{ FRL_QPT_RC, FRL_QPS_RESET },
	{ FRL_QPT_RC, FRL_QPS_INIT },
	{ FRL_QPT_RC, FRL_QPS_ERR },
	{ FRL_QPT_UC, FRL_QPS_INIT },
	{ FRL_QPT_UC, FRL_QPS_ERR },
};

enum { N_MUTE = sizeof(mute) / sizeof(mute[0]) };

/* A queue pair without a peer sends nothing, even if it thinks that it was spoken to by one. */
START_LOOP_TEST(never_connected, N_MUTE)
{
	const struct host_qp_config config = { .type = mute[_i].type, .unlimited_retry = true };
	const struct frl_qp_attr attr = host_attr(0, NULL);
	struct engine_qp *qp;
	struct frame frame;

	host_restart(&fabric);
	host_add(host, 1, NULL);
	qp = host_create(host, 0, &config);
	for (int state = FRL_QPS_INIT; mute[_i].state && state <= FRL_QPS_ERR; state++)
		if (state == FRL_QPS_INIT || state == (int)mute[_i].state)
			modify(0, (enum frl_qp_state)state);
	qp->core.remote_ip = attr.ah.dgid;
	frame = make_request(HOST_PEER_QPN, qp->core.qpn, 0);
	receive(0, &frame);
	ck_assert_uint_eq(host->engine.stats.drop_qp_state, 1);
	ck_assert_uint_eq(host->port.n_sent, 0);
	qp->core.responder.ack_pending = true;
	engine_update(&host->engine, qp);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 0);
	ck_assert(!qp_wants_output(&qp->core));
}
END_TEST

/* The peer of queue pair 1 as it was before, over link 1. */
static void expect_refusal(bool has_icrc)
{
	const struct wire_packet *packet;

	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert_uint_eq(host->port.sent[0].link, 1);
	packet = host_sent(host, 0, NULL);
	ck_assert_uint_eq(packet->h.aeth.syndrome, NAK_OPERATIONAL);
	ck_assert_uint_eq(packet->h.bth.dest_qpn, OLD_PEER);
	ck_assert_uint_eq(packet->payload_len, has_icrc ? ICRC_LEN : 0);
}

static uint32_t start_reset(uint32_t capabilities)
{
	const struct host_qp_config config = {
		.link = 1,
		.unlimited_retry = true,
		.capabilities = capabilities,
	};
	uint32_t qpn;

	host_restart(&fabric);
	host_add(host, 0, NULL);
	qpn = host_add(host, 1, &config)->core.qpn;
	modify(1, FRL_QPS_RESET);
	return qpn;
}

/* Requests wait for as long as the peer's process lives: so they must be refused. */
START_LOOP_TEST(refused_after_reset, 8)
{
	uint32_t capabilities = _i % 2 ? FRL_CAP_NO_ICRC : 0;
	uint32_t qpn = start_reset(capabilities);
	struct frame frame = make_request(OLD_PEER, qpn, 0);

	if (_i / 2 > 0)
		modify(1, FRL_QPS_INIT);
	if (_i / 2 > 1)
		modify(1, FRL_QPS_ERR);
	if (_i / 2 > 2)
		engine_remove_qp(&host->engine, &host->qps[1].qp);
	receive(1, &frame);
	expect_refusal(!capabilities);
	/* Another process; another address; another connection. */
	receive(0, &frame);
	ck_assert_uint_eq(host->port.n_sent, 0);
	frame.bytes[frame.l3 + 15] ^= 0x40;
	fix_ip_checksum(&frame);
	receive(1, &frame);
	ck_assert_uint_eq(host->port.n_sent, 0);
	frame = make_request(OLD_PEER + 1, qpn, 0);
	receive(1, &frame);
	ck_assert_uint_eq(host->port.n_sent, 0);
	/* The next connection of the same two; but there is none for a number that is gone. */
	frame = make_request(OLD_PEER, qpn, FAR);
	receive(1, &frame);
	if (_i / 2 > 2)
		expect_refusal(!capabilities);
	else
		ck_assert_uint_eq(host->port.n_sent, 0);
}
END_TEST

/* Connected again, over another link or the same one, it speaks for itself. */
START_LOOP_TEST(connected_again, 2)
{
	const struct host_qp_config again = {
		.link = _i ? 1 : 2,
		.unlimited_retry = true,
		.dest_qpn = NEW_PEER,
	};
	uint32_t qpn = start_reset(0);
	struct frame frame = make_request(NEW_PEER, qpn, 0);

	host_connect(host, 1, &again);
	host_post_recv(host, 1, 5, TO, 1024);
	receive(again.link, &frame);
	host_expect_wc(&host->cqs[1], 5, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert_uint_eq(host->port.sent[0].link, again.link);
	ck_assert_uint_eq(host_sent(host, 0, NULL)->h.aeth.syndrome & 0x60, 0);
	ck_assert_uint_eq(host_sent(host, 0, NULL)->h.bth.dest_qpn, NEW_PEER);
	frame = make_request(OLD_PEER, qpn, 0);
	receive(1, &frame);
	expect_refusal(true);
	ck_assert_uint_eq(host->engine.stats.drop_wrong_peer, 1);
	ck_assert_int_eq(host->qps[1].qp.core.state, FRL_QPS_RTS);
	/* The new one's repetition is acknowledged. */
	frame = make_request(NEW_PEER, qpn, 0);
	receive(again.link, &frame);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert_uint_eq(host_sent(host, 0, NULL)->h.bth.dest_qpn, NEW_PEER);
	ck_assert_uint_eq(host_sent(host, 0, NULL)->h.aeth.syndrome & 0x60, 0);
}
END_TEST

/* The peer has given the place to another queue pair: the one before is gone. */
START_TEST(place_taken_over)
{
	const struct host_qp_config again = {
		.link = 1,
		.unlimited_retry = true,
		.dest_qpn = OLD_PEER + ENGINE_MAX_QPS,
	};
	uint32_t qpn = start_reset(0);
	struct frame frame = make_request(again.dest_qpn, qpn, 0);

	host_connect(host, 1, &again);
	host_post_recv(host, 1, 5, TO, 1024);
	/* The second time it is a repetition, whose PSN the old one could have used, too. */
	for (int i = 0; i < 2; i++) {
		receive(1, &frame);
		ck_assert_uint_eq(host->port.n_sent, 1);
		ck_assert_uint_eq(host_sent(host, 0, NULL)->h.bth.dest_qpn, again.dest_qpn);
		ck_assert_uint_eq(host_sent(host, 0, NULL)->h.aeth.syndrome & 0x60, 0);
	}
	host_expect_wc(&host->cqs[1], 5, FRL_WC_SUCCESS);
}
END_TEST

/* The link's next peer has nothing to do with it. */
START_TEST(forgotten_with_its_link)
{
	uint32_t qpn = start_reset(0);
	struct frame frame = make_request(OLD_PEER, qpn, 0);

	engine_drop_link(&host->engine, 1);
	receive(1, &frame);
	ck_assert_uint_eq(host->port.n_sent, 0);
}
END_TEST

/* Once is enough, but a new user of a link that is down must also get the event. */
START_TEST(down_is_dealt_with_once)
{
	static const struct host_qp_config config = { .link = 1 };

	host_restart(&fabric);
	host_add(host, 0, &config);
	host->port.state[1] = PORT_LINK_DOWN;
	host->now_ns += MS_TO_NS(1);
	host_poll(host);
	ck_assert_int_eq(host->qps[0].qp.core.state, FRL_QPS_ERR);
	host->engine.tx[1]->blocked = true; /* dealing with it would unset that */
	host->now_ns += MS_TO_NS(1);
	host_poll(host);
	ck_assert(host->engine.tx[1]->blocked);
	host_add(host, 1, &config);
	host->now_ns += MS_TO_NS(1);
	host_poll(host);
	ck_assert_int_eq(host->qps[1].qp.core.state, FRL_QPS_ERR);
	ck_assert(!host->engine.tx[1]->blocked);
}
END_TEST

/* ---- datagrams ---- */

static void add_ah(struct engine_ah *ah, uint16_t link)
{
	struct frl_ah_attr attr = {
		.sgid_index = HOST_GID_V4,
		.dgid = ip_from_v4((const uint8_t[]){ 10, 9, 0, 1 }),
		.link = link,
	};
	const char *why = "";

	memcpy(attr.dmac, mac_a, 6);
	*ah = (struct engine_ah){ .core = { .pd = &host->pd } };
	ck_assert_msg(engine_add_ah(&host->engine, ah, &attr, host->now_ns, &why) == 0, "%s", why);
}

static void post(uint64_t wr_id, const struct engine_ah *ah)
{
	const struct frl_send_wr wr = {
		.wr_id = wr_id,
		.opcode = FRL_WR_SEND,
		.remote_qpn = 7,
		.remote_qkey = HOST_QKEY,
	};

	host_post(host, 0, wr, 0, LENGTH, ah);
}

static void poll_for(uint64_t ms)
{
	for (uint64_t end = host->now_ns + MS_TO_NS(ms); host->now_ns < end;) {
		host->now_ns += MS_TO_NS(1) / 10;
		host_poll(host);
	}
}

static uint32_t sent_over(uint16_t link)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < host->port.n_sent; k++)
		n += host->port.sent[k].link == link;
	return n;
}

/* A process that has stopped keeps nobody waiting, whether its queue is full of a connection's
 * packets or not; for a little while it is waited for. */
START_LOOP_TEST(blocked, 2)
{
	static const struct host_qp_config rc = { .link = 1 };
	struct engine_ah ah[3];

	host_restart(&fabric);
	host_add(host, 0, &ud);
	host_add(host, 1, &rc);
	for (uint16_t i = 1; i < 3; i++)
		add_ah(&ah[i], i);
	host->port.room[1] = 0;
	for (unsigned k = 0; _i && k < ENGINE_TX_QUEUE; k++)
		host_post_send(host, 1, k, 16, 0);
	host_poll(host);
	for (uint64_t k = 0; k < 3; k++)
		post(k, &ah[1]);
	post(3, &ah[2]);
	poll_for(PATIENCE_MS - 1);
	ck_assert_uint_eq(host->port.n_sent, 0);
	ck_assert_uint_eq(host->engine.stats.drop_datagram, 0);
	host_expect_no_wc(&host->cqs[0]);
	poll_for(2);
	for (uint64_t k = 0; k < 4; k++)
		host_expect_wc(&host->cqs[0], k, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->engine.stats.drop_datagram, 3);
	ck_assert_uint_eq(sent_over(1), 0);
	ck_assert_uint_eq(sent_over(2), 1);
	/* From now on at once, until it moves again. */
	post(4, &ah[1]);
	post(5, &ah[2]);
	for (unsigned k = 0; k < 3; k++)
		host_poll(host);
	ck_assert_uint_eq(host->engine.stats.drop_datagram, 4);
	ck_assert_uint_eq(sent_over(2), 2);
	host->port.room[1] = FAKE_UNLIMITED;
	host_poll(host);
	post(6, &ah[1]);
	for (unsigned k = 0; k < 3; k++)
		host_poll(host);
	ck_assert_uint_eq(sent_over(1), (_i ? ENGINE_TX_QUEUE : 0) + 1);
	for (uint64_t k = 4; k < 7; k++)
		host_expect_wc(&host->cqs[0], k, FRL_WC_SUCCESS);
	/* Then it is waited for again. */
	host->port.room[1] = 0;
	post(7, &ah[1]);
	poll_for(PATIENCE_MS - 1);
	host_expect_no_wc(&host->cqs[0]);
	ck_assert_uint_eq(host->engine.stats.drop_datagram, 4);
	for (uint16_t i = 1; i < 3; i++)
		engine_remove_ah(&host->engine, &ah[i]);
}
END_TEST

/* A network takes its time. */
START_TEST(network_is_waited_for)
{
	struct engine_ah ah;

	host_add(host, 0, &ud);
	add_ah(&ah, 0);
	host->port.room[0] = 0;
	post(1, &ah);
	poll_for(100);
	host_expect_no_wc(&host->cqs[0]);
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert_uint_eq(host->engine.stats.drop_datagram, 0);
	engine_remove_ah(&host->engine, &ah);
}
END_TEST

/* Frames for a process that has ended do not reach the next one with its link's number. */
START_TEST(stale_handle)
{
	struct engine_ah stale, fresh;

	host_restart(&fabric);
	host_add(host, 0, &ud);
	add_ah(&stale, 1);
	ck_assert(engine_link_used(&host->engine, 1));
	host->port.room[1] = 0;
	for (uint64_t k = 0; k < HOST_QUEUE; k++)
		post(k, &stale);
	host_poll(host);
	engine_drop_link(&host->engine, 1);
	ck_assert(!engine_link_used(&host->engine, 1));
	host->port.room[1] = FAKE_UNLIMITED;
	add_ah(&fresh, 1);
	for (unsigned k = 0; k < 20; k++)
		host_poll(host);
	for (uint64_t k = 0; k < HOST_QUEUE; k++)
		host_expect_wc(&host->cqs[0], k, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->port.n_sent, 0);
	ck_assert_uint_eq(host->engine.stats.drop_datagram, HOST_QUEUE);
	post(1, &stale);
	post(2, &fresh);
	post(3, &stale);
	host_poll(host);
	host_poll(host);
	for (uint64_t k = 1; k < 4; k++)
		host_expect_wc(&host->cqs[0], k, FRL_WC_SUCCESS);
	ck_assert_uint_eq(sent_over(1), 1);
	ck_assert_uint_eq(host->engine.stats.drop_datagram, HOST_QUEUE + 2);
	engine_remove_ah(&host->engine, &fresh);
	ck_assert(!engine_link_used(&host->engine, 1));
	engine_remove_ah(&host->engine, &stale);
}
END_TEST

/* A link is a process with one address, or two. */
START_TEST(only_the_peer_speaks)
{
	const struct frl_ip other = ip_from_v4((const uint8_t[]){ 10, 9, 0, 3 });
	const struct frl_ip peer = host_attr(0, NULL).ah.dgid;
	struct wire_headers h = {
		.bth = { .opcode = TRANSPORT_UD | OP_SEND_ONLY, .pkey = PKEY_DEFAULT },
		.deth = { HOST_QKEY, 0x55 },
	};
	struct frame frame;

	host_restart(&fabric);
	h.bth.dest_qpn = host_add(host, 0, &ud)->core.qpn;
	host_post_recv(host, 0, 9, TO, 1024);
	frame = make_frame(0, &h, LENGTH, true);
	engine_set_peer(&host->engine, 1, &other, mac_b);
	engine_set_peer(&host->engine, 2, &peer, mac_a);
	receive(1, &frame);
	ck_assert_uint_eq(host->engine.stats.drop_wrong_peer, 1);
	host_expect_no_wc(&host->cqs[0]);
	receive(2, &frame);
	host_expect_wc(&host->cqs[0], 9, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->engine.stats.drop_wrong_peer, 1);
}
END_TEST

HOST_TEST_FILE(engine_fabric)
