/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports that send packets together: rounds of whole trains, and a window that cuts none. */
#include <stdlib.h>

#include "lib/engine/stages.h"
#include "tests/unit/engine_fixture.h"
#include "tests/unit/program.h"

enum {
	TRAIN = 15,                                  /* packets */
	TRAIN_BYTES = TRAIN * (HOST_MTU + 16) + 100, /* BTH and ICRC */
	WINDOW = 1024,                               /* of the fixture */
	SMALL_WINDOW = 64,
	LONG = 60000, /* bytes: 235 packets */
	ROUNDS = 1000,
};

static struct host *host;

static void start(unsigned n_qps)
{
	host = host_new(NULL);
	host->port.base.caps.train = TRAIN_BYTES;
	for (unsigned i = 0; i < n_qps; i++)
		host_add(host, i, NULL);
	host_poll(host);
	host->port.n_sent = 0;
}

static uint32_t round_of(void)
{
	uint32_t before = host->port.n_sent;

	host_poll(host);
	return host->port.n_sent - before;
}

static void expect_in_order(uint32_t n)
{
	ck_assert_uint_eq(host->port.n_sent, n);
	for (uint32_t k = 0; k < n; k++)
		ck_assert_uint_eq(host_sent(host, k, NULL)->h.bth.psn.value, HOST_SQ_PSN + k);
}

/* The first packet has a header that the others lack: with the one behind it, it is a train. */
START_TEST(whole)
{
	static const uint32_t expected[] = { 2 + 4 * TRAIN, 4 * TRAIN, 4 * TRAIN, 4 * TRAIN, 14 };

	start(1);
	host_post_send(host, 0, 1, HOST_MEMORY, 0);
	for (unsigned i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		ck_assert_uint_eq(round_of(), expected[i]);
		/* From the queue's start on: so it was offered to the port in one part. */
		ck_assert_uint_eq(host->engine.tx[0]->tail, expected[i]);
	}
	expect_in_order(HOST_MEMORY / HOST_MTU);
	ck_assert_uint_eq(round_of(), 0);
	host_free(host);
}
END_TEST

START_TEST(in_turns)
{
	start(2);
	host_post_send(host, 0, 1, LONG, 0);
	host_post_send(host, 1, 2, LONG, 0);
	ck_assert_uint_eq(round_of(), 4 * TRAIN);
	for (uint32_t k = 0; k < 4 * TRAIN; k++)
		ck_assert_uint_eq(
			host->port.sent[k].packet.flow, host->qps[k / TRAIN % 2].qp.core.qpn);
	host_free(host);
}
END_TEST

/* Queue pairs that have no train to send do not wait until one has room. */
START_LOOP_TEST(crowd, 2)
{
	enum { EACH = 5 };
	uint16_t window = _i ? 1 : WINDOW;

	start(HOST_QPS);
	host->port.base.caps.train = 65000; /* 238 packets: more than a round */
	for (unsigned i = 0; i < HOST_QPS; i++) {
		host->qps[i].qp.core.requester.window = window;
		host->qps[i].qp.core.requester.slack = 0;
		for (unsigned k = 0; k < EACH; k++)
			host_post_send(host, i, k, _i ? LONG : 1, 0);
	}
	ck_assert_uint_eq(round_of(), HOST_QPS * (_i ? 1 : EACH));
	host_free(host);
}
END_TEST

/* A train does not go on behind what came in between, and loopback has none. */
START_LOOP_TEST(interrupted, 2)
{
	static const uint8_t frame[64];
	struct tx_queue *q;

	start(1);
	host_post_send(host, 0, 1, HOST_MTU, 0);
	host->port.room[0] = 0;
	host_poll(host);
	q = host->engine.tx[0];
	ck_assert_uint_eq(q->n_coupled, 1);
	if (_i == 0)
		ck_assert(engine_queue_frame(&host->engine, 0, frame, sizeof(frame)));
	else
		engine_take_back(&host->engine, &host->qps[0].qp);
	ck_assert_uint_eq(q->n_coupled, 0);
	host_pair(host, 1, host, 2, NULL);
	host_post_send(host, 1, 1, LONG, 0);
	host_poll(host);
	ck_assert_uint_eq(host->engine.tx[ENGINE_LOOP_LINK]->n_coupled, 0);
	ck_assert_uint_gt(host->engine.stats.loopback_packets, 1);
	host_free(host);
}
END_TEST

/* Packets that the port does not take stay in front, and in order. */
START_TEST(not_taken)
{
	uint32_t rooms[] = { 20, 0, 3, 61, 1 };

	start(1);
	host_post_send(host, 0, 1, HOST_MEMORY, 0);
	for (unsigned i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
		host->port.room[0] = rooms[i];
		ck_assert_uint_eq(round_of(), rooms[i]);
	}
	host->port.room[0] = FAKE_UNLIMITED;
	for (unsigned i = 0; i < ROUNDS && engine_has_work(&host->engine); i++)
		host_poll(host);
	expect_in_order(HOST_MEMORY / HOST_MTU);
	host_free(host);
}
END_TEST

/* Polls until nothing moves. Returns how many packets have left; *ret_asked: the last one that asks
 * for an acknowledgement. */
static uint32_t send_all(uint32_t from, uint32_t *ret_asked)
{
	uint32_t n = from;

	for (unsigned i = 0; i < ROUNDS; i++) {
		host->port.n_sent = 0;
		host_poll(host);
		for (uint32_t k = 0; k < host->port.n_sent; k++, n++)
			if (host_sent(host, k, NULL)->h.bth.ack_request)
				*ret_asked = n;
	}
	return n;
}

/* The last train is not cut, and something in flight will have the window opened. */
START_TEST(window)
{
	uint32_t asked = 0, n, before;

	start(1);
	for (unsigned i = 0; i < 8; i++)
		host_post_send(host, 0, i, LONG, 0);
	n = send_all(0, &asked);
	ck_assert_uint_gt(n, WINDOW);
	ck_assert_uint_lt(n, WINDOW + TRAIN);
	for (unsigned i = 0; i < 20 && n < 8 * 235; i++) {
		before = n;
		host_acknowledge(host, 0, asked, true);
		n = send_all(n, &asked);
		ck_assert_uint_gt(n, before);
	}
	ck_assert_uint_eq(n, 8 * 235);
	ck_assert_uint_eq(asked, n - 1);
	ck_assert_uint_eq(host->engine.stats.timeouts, 0);
	host_free(host);
}
END_TEST

/* The last unsignaled message in the window asks for an acknowledgement. */
START_TEST(unsignaled)
{
	const struct wr_objects objects = { 0 };
	uint32_t asked = ROUNDS, n;

	start(1);
	host->qps[0].qp.core.requester.window = SMALL_WINDOW;
	for (unsigned i = 0; i < HOST_QUEUE; i++) {
		struct frl_sge sge = { host->memory, HOST_MTU, host->region.key };
		struct frl_send_wr wr = {
			.wr_id = i, .opcode = FRL_WR_RDMA_WRITE, .sge = &sge, .n_sge = 1
		};
		const char *why = "";

		ck_assert_int_eq(qp_post_send(&host->qps[0].qp.core, &wr, &objects, &why), 0);
	}
	engine_update(&host->engine, &host->qps[0].qp);
	n = send_all(0, &asked);
	ck_assert_uint_ge(n, SMALL_WINDOW);
	ck_assert_uint_lt(n, SMALL_WINDOW + TRAIN);
	ck_assert_uint_eq(asked, n - 1);
	host_free(host);
}
END_TEST

TEST_FILE(engine_trains)
