/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports that send packets together: rounds of whole batches, and a window that splits none. */
#include <stdlib.h>

#include "lib/engine/stages.h"
#include "tests/unit/engine/engine_host.h"

enum {
	TRAIN = 15,                                  /* packets */
	BATCH_BYTES = TRAIN * (HOST_MTU + 16) + 100, /* BTH and ICRC */
	WINDOW = 1024,                               /* of the fixture */
	SMALL_WINDOW = 64,
	LONG = 60000, /* bytes: 235 packets */
	ROUNDS = 1000,
};

static void start(unsigned n_qps)
{
	host->port.base.caps.max_batch = BATCH_BYTES;
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

/* The first packet has a header that the others lack: with the one behind it, it is a batch. */
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
}
END_TEST

/* Queue pairs that have no batch to send do not wait until one has room. */
START_LOOP_TEST(crowd, 2)
{
	enum { EACH = 5 };
	uint16_t window = _i ? 1 : WINDOW;

	start(HOST_QPS);
	host->port.base.caps.max_batch = 65000; /* 238 packets: more than a round */
	for (unsigned i = 0; i < HOST_QPS; i++) {
		host->qps[i].qp.core.requester.window = window;
		host->qps[i].qp.core.requester.slack = 0;
		for (unsigned k = 0; k < EACH; k++)
			host_post_send(host, i, k, _i ? LONG : 1, 0);
	}
	ck_assert_uint_eq(round_of(), HOST_QPS * (_i ? 1 : EACH));
}
END_TEST

/* A batch does not continue after other packets, and loopback has none. */
START_LOOP_TEST(interrupted, 2)
{
	static const uint8_t frame[64];
	struct tx_queue *q;

	start(1);
	host_post_send(host, 0, 1, HOST_MTU, 0);
	host->port.room[0] = 0;
	host_poll(host);
	q = host->engine.tx[0];
	ck_assert_uint_eq(q->n_batched, 1);
	if (_i == 0)
		ck_assert(engine_queue_frame(&host->engine, 0, frame, sizeof(frame)));
	else
		engine_withdraw(&host->engine, &host->qps[0].qp);
	ck_assert_uint_eq(q->n_batched, 0);
	host_pair(host, 1, host, 2, NULL);
	host_post_send(host, 1, 1, LONG, 0);
	host_poll(host);
	ck_assert_uint_eq(host->engine.tx[ENGINE_LOOP_LINK]->n_batched, 0);
	ck_assert_uint_gt(host->engine.stats.loopback_packets, 1);
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

/* The last batch is not cut, and something in flight will have the window opened. */
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
}
END_TEST

/* ---- whether they arrive */

enum { MESSAGES = 6, TIMEOUT_NS = 100000000, FAILURES = 3 };

struct road {
	struct host *from, *to;
	bool cuts;         /* frames of many packets arrive as these */
	unsigned lost;     /* so many rounds lose their second packet yet */
	bool reads;        /* `to` reads, so that answers are on the road */
	bool is_not_ready; /* `to` has no receive at first */
};

/* The header of answers has room for it. */
static bool may_join(const struct port_packet *packet)
{
	return (packet->n_pieces > 0 || packet->header_len > HOST_MTU) && !packet->alone;
}

static bool is_joined(const struct host *from, uint32_t k)
{
	const struct fake_sent *sent = from->port.sent;

	return may_join(&sent[k].packet) &&
		((k > 0 && may_join(&sent[k - 1].packet)) ||
			(k + 1 < from->port.n_sent && may_join(&sent[k + 1].packet)));
}

static uint32_t carry_on(struct road *road)
{
	struct fake_port *port = &road->from->port;
	bool loses = road->lost && port->n_sent > 2;
	uint8_t frame[FAKE_MAX_FRAME];
	uint32_t n = port->n_sent;

	for (uint32_t k = 0; k < n; k++) {
		if ((!road->cuts && is_joined(road->from, k)) || (loses && k == 1))
			continue;
		fake_port_receive(&road->to->port, 0, frame,
			(uint32_t)fake_port_flatten(&port->sent[k].packet, frame));
	}
	road->lost -= loses;
	port->n_sent = 0;
	return n;
}

/* Until nothing moves, not even by time. Returns how many packets went to `to`. */
static uint32_t settle(struct road *road)
{
	struct host *from = road->from, *to = road->to;
	uint32_t n = 0;

	for (unsigned idle = 0; idle < 4;) {
		uint32_t moved, carried;

		from->now_ns += 1000;
		to->now_ns = from->now_ns;
		moved = engine_poll(&from->engine, from->now_ns);
		moved += engine_poll(&to->engine, to->now_ns);
		carried = carry_on(road);
		n += carried;
		moved += carried + host_carry(to, from);
		idle = moved ? 0 : idle + 1;
		from->now_ns += moved ? 0 : TIMEOUT_NS;
	}
	return n;
}

/* Returns how many packets it took. */
static uint32_t send_one(struct road *road, unsigned number)
{
	struct frl_send_wr wr = { .wr_id = number, .opcode = FRL_WR_SEND };
	uint32_t n = 0;

	if (road->reads) {
		wr.opcode = FRL_WR_RDMA_READ;
		wr.remote_addr = (uintptr_t)road->from->memory;
		wr.rkey = road->from->region.key;
		host_post(road->to, 0, wr, 0, LONG, NULL);
		n = settle(road);
		host_expect_wc(&road->to->cqs[0], number, FRL_WC_SUCCESS);
		return n;
	}
	if (!road->is_not_ready)
		host_post_recv(road->to, 0, number, 0, HOST_MEMORY);
	/* One round's, so that all of it is refused. */
	host_post(road->from, 0, wr, 0, road->is_not_ready ? 2 * TRAIN * HOST_MTU : LONG, NULL);
	if (road->is_not_ready) {
		host_step(road->from, road->to);
		host_step(road->from, road->to);
		host_post_recv(road->to, 0, number, 0, HOST_MEMORY);
	}
	n += settle(road);
	host_expect_wc(&road->from->cqs[0], number, FRL_WC_SUCCESS);
	host_expect_wc(&road->to->cqs[0], number, FRL_WC_SUCCESS);
	return n;
}

static void build(struct road *road)
{
	static const struct host_config second = { .second = true };

	road->from = host_new(NULL);
	road->to = host_new(&second);
	road->from->port.base.caps.max_batch = BATCH_BYTES;
	host_pair(road->from, 0, road->to, 0, NULL);
}

static void take_down(struct road *road)
{
	host_free(road->from);
	host_free(road->to);
}

/* Requests, or answers: nothing is lost, and after three messages nothing is sent twice. */
START_LOOP_TEST(not_taken_apart, 2)
{
	struct road road = { .reads = _i };
	struct batch_trial *trial;
	const uint32_t least = LONG / HOST_MTU + 1;

	build(&road);
	trial = &road.from->qps[0].qp.trials[_i];
	for (unsigned i = 0; i < MESSAGES; i++) {
		uint32_t n = send_one(&road, i);

		ck_assert_msg(i < FAILURES ? n > least : n <= least + 1, "%u: %u packets", i, n);
		ck_assert_uint_eq(trial->failures, i < FAILURES ? i + 1 : FAILURES);
	}
	ck_assert_uint_eq(road.from->engine.alone_qpn, road.from->qps[0].qp.core.qpn);
	ck_assert(road.from->engine.alone_logged);
	/* It is tried again later, then for less often. */
	trial->alone_left = 1;
	ck_assert_uint_gt(send_one(&road, MESSAGES), least + 1);
	ck_assert_uint_eq(trial->failures, FAILURES + 1);
	ck_assert_uint_gt(trial->alone_left, 1 << 15);
	trial->alone_left = 0;
	road.cuts = true;
	send_one(&road, MESSAGES + 1);
	road.lost = 1;
	send_one(&road, MESSAGES + 2);
	ck_assert_uint_eq(trial->failures, 0);
	take_down(&road);
}
END_TEST

/* Packets that are lost behind the first one, or find no receive, have been cut out. */
START_LOOP_TEST(lost_otherwise, 3)
{
	struct road road = { .cuts = true, .reads = _i == 1, .is_not_ready = _i == 2 };

	build(&road);
	for (unsigned i = 0; i < MESSAGES; i++) {
		road.lost = _i < 2;
		send_one(&road, i);
		ck_assert_uint_eq(road.lost, 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(road.from->qps[0].qp.trials[i].failures, 0);
		ck_assert_uint_eq(road.from->qps[0].qp.trials[i].alone_left, 0);
	}
	take_down(&road);
}
END_TEST

START_TEST(reset_forgets)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_RESET };
	struct road road = { .cuts = false };

	build(&road);
	send_one(&road, 0);
	ck_assert(road.from->qps[0].qp.trials[0].has_begun);
	ck_assert_int_eq(host_modify(road.from, 0, &attr, FRL_QP_STATE, NULL), 0);
	ck_assert(!road.from->qps[0].qp.trials[0].has_begun);
	ck_assert_uint_eq(road.from->qps[0].qp.trials[0].failures, 0);
	take_down(&road);
}
END_TEST

HOST_TEST_FILE(engine_batches)
