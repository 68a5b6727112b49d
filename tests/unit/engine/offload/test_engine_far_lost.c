/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames that continue in memory which the processor does not reach: too many of them, for no
 * receiver, or without the offload that reaches it. */
#include <stdlib.h>
#include <string.h>

#include "lib/engine/offload/deferred.h"
#include "lib/wire/checksum.h"
#include "tests/unit/engine/offload/engine_far.h"
#include "tests/fixtures/program.h"
#include "tests/vectors/frame.h"

enum loss { REMOVED, RESET, LINK, DETACHED, ERROR, LOSSES };

/* As it was, even to its PSNs: what came before is not of this connection. */
static void connect_again(void)
{
	const struct host_qp_config config = {
		.dest_qpn = pair.a->qps[0].qp.core.qpn,
		.dgid = pair.a->engine.gids.gids[HOST_GID_V4].ip,
		.dmac = pair.a->port.base.caps.mac,
		.psn = 7000,
	};

	ck_assert_uint_eq(pair.b->qps[1].qp.offloads->deferred[0], 0);
	host_connect(pair.b, 1, &config);
}

/* Frames that are deferred for a queue pair that is gone come back. */
START_LOOP_TEST(lost_while_deferred, LOSSES)
{
	struct frl_qp_attr attr = { .state = _i == ERROR ? FRL_QPS_ERR : FRL_QPS_RESET };

	open_far(true);
	offload_fill(pair.a->memory, 600);
	write_to(0, &pair.b->region, 2000, 600);
	offload_settle(&pair);
	ck_assert_uint_eq(pair.b->port.n_out, 3);
	switch (_i) {
	case REMOVED:
		engine_remove_qp(&pair.b->engine, &pair.b->qps[1].qp);
		memset(&pair.b->qps[1].qp, 0xee, sizeof(pair.b->qps[1].qp));
		break;
	case LINK: engine_drop_link(&pair.b->engine, 0); break;
	case DETACHED: engine_detach_offload(&pair.b->engine, &pair.mock.base); break;
	default: ck_assert_int_eq(host_modify(pair.b, 1, &attr, FRL_QP_STATE, NULL), 0);
	}
	if (_i == DETACHED) {
		ck_assert_uint_eq(pair.b->port.n_out, 0);
		mock_offload_step(&pair.mock, UINT32_MAX);
		engine_unmap_offload(&pair.b->engine, &pair.mock.base);
		/* Nobody reaches what comes now. */
		pair.a->now_ns += 100 * MS;
		offload_settle(&pair);
		ck_assert_uint_gt(pair.b->engine.stats.offload_waits, 0);
		ck_assert_uint_eq(pair.b->port.n_out, 0);
		ck_assert_int_eq(mock_offload_attach(&pair.mock, &pair.b->engine), 0);
	}
	if (_i == RESET)
		connect_again();
	release_all();
	ck_assert_uint_eq(pair.b->port.n_out, 0);
	ck_assert_uint_eq(pair.b->memory[2000], HOST_FILL);
	if (_i == DETACHED) {
		pair.a->now_ns += 500 * MS;
		offload_settle(&pair);
		host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	}
	offload_pair_close(&pair);
}
END_TEST

/* A queue pair whose packet cannot be read any more fails, with the reason; short packets go on. */
START_TEST(offload_fails)
{
	static const char why[] = "GPU 0 has fallen off the bus";
	const struct host_qp_config plain = { .capabilities = FRL_CAP_NO_ICRC };

	open_far(false);
	host_pair(pair.a, 2, pair.b, 2, &plain);
	host_pair(pair.a, 3, pair.b, 3, &plain);
	write_to(0, &pair.b->region, 2000, 600);
	offload_settle(&pair);
	pair.mock.error = why;
	pair.mock.still_runs = true;
	offload_settle(&pair);
	ck_assert_str_eq(pair.b->qps[1].qp.core.error, why);
	ck_assert_uint_eq(pair.b->port.n_out, 3);
	pair.mock.still_runs = false;
	offload_settle(&pair);
	ck_assert_uint_eq(pair.b->port.n_out, 0);
	ck_assert_uint_eq(pair.b->memory[2000], HOST_FILL);
	host_post_recv(pair.b, 3, 6, 0, 32);
	send_from_a(3, FRL_WR_SEND, 32);
	offload_settle(&pair);
	host_expect_wc(&pair.b->cqs[3], 6, FRL_WC_SUCCESS);
	write_to(2, &pair.b->region, 2000, 600);
	offload_settle(&pair);
	ck_assert_str_eq(pair.b->qps[2].qp.core.error, why);
	ck_assert_uint_eq(pair.b->port.n_out, 0);
	offload_pair_close(&pair);
}
END_TEST

/* More than can be deferred: the others come again when they are asked for, without a timer; also
 * where there is room again long before all that came first has been taken in. */
START_LOOP_TEST(no_room, 4)
{
	enum { LENGTH = 60000, PACKETS = (LENGTH + HOST_MTU - 1) / HOST_MTU };
	uint32_t room = _i & 1 ? 32 : 256;

	offload_pair_open(&pair,
		&(struct offload_config){
			.is_far = true, .has_icrc = _i & 1, .held = _i & 1 ? 64 : 1024 });
	offload_fill(pair.a->memory, LENGTH);
	write_to(0, &pair.b->region, 0, LENGTH);
	write_to(0, &pair.b->region, 0, LENGTH);
	offload_settle(&pair);
	ck_assert_uint_eq(pair.b->port.n_out, room);
	ck_assert_uint_eq(pair.b->engine.stats.offload_waits, 2 * PACKETS - room);
	pair.mock.speed = _i & 2 ? 1 : UINT32_MAX;
	/* One at a time and in any order: nothing moves for long. */
	for (unsigned k = 0; k < 10; k++)
		offload_settle(&pair);
	host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(pair.a->engine.stats.timeouts, 0);
	offload_expect(pair.b->memory, 0, LENGTH);
	ck_assert_uint_eq(pair.b->port.n_out, 0);
	offload_pair_close(&pair);
}
END_TEST

/* The network loses the one before the first that finds no room. */
START_TEST(no_room_behind_a_gap)
{
	enum { ROOM = 32, LENGTH = 40 * HOST_MTU };
	struct fake_port *port;

	offload_pair_open(&pair,
		&(struct offload_config){ .is_far = true, .has_icrc = true, .held = 2 * ROOM });
	port = &pair.b->port;
	offload_fill(pair.a->memory, LENGTH);
	write_to(0, &pair.b->region, 0, LENGTH);
	while (port->n_rx < LENGTH / HOST_MTU) {
		host_poll(pair.a);
		host_carry(pair.a, pair.b);
	}
	free(port->rx[ROOM].data);
	port->n_rx--;
	memmove(&port->rx[ROOM], &port->rx[ROOM + 1], (port->n_rx - ROOM) * sizeof(port->rx[0]));
	offload_settle(&pair);
	ck_assert_uint_eq(port->n_out, ROOM);
	release_all();
	host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(pair.a->engine.stats.timeouts, 0);
	offload_expect(pair.b->memory, 0, LENGTH);
	offload_pair_close(&pair);
}
END_TEST

/* Frames that cannot be held any more are fetched. */
START_TEST(too_many_to_hold)
{
	enum { LENGTH = 14 * HOST_MTU };

	open_far(false);
	offload_post_recv(pair.b, 1, 5, 0, LENGTH);
	offload_fill(pair.a->memory, LENGTH);
	send_from_a(0, FRL_WR_SEND, LENGTH);
	offload_settle(&pair);
	ck_assert_uint_eq(pair.b->port.n_out, 14);
	release_all();
	host_expect_wc(&pair.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(pair.memory->view, 0, LENGTH);
	ck_assert_uint_eq(pair.b->engine.stats.offload_fetched, 6 * (HOST_MTU - NEAR));
	offload_pair_close(&pair);
}
END_TEST

/* Another offload than that of the port. */
static struct mock_offload other;
static struct mock_memory *other_view;
static struct region other_region;

static void add_other(uint32_t length)
{
	mock_offload_init(&other, 3);
	other.base.gpu = 1;
	ck_assert_int_eq(mock_offload_attach(&other, &pair.b->engine), 0);
	other_view = mock_offload_memory(&other, length);
	other_region = pair.region;
	other_region.addr = other_view->there;
	other_region.iova = (uintptr_t)other_view->there;
	other_region.length = length;
	other_region.owner = &other.base;
	ck_assert_int_eq(engine_add_region(&pair.b->engine, &other_region), 0);
}

/* With `length` bytes in its memory. */
static void remove_other(uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		ck_assert_uint_eq(other_view->view[i], offload_byte(i));
	engine_remove_region(&pair.b->engine, &other_region);
	mock_offload_detach(&other, &pair.b->engine);
	mock_offload_fini(&other);
}

START_TEST(other_memory)
{
	open_far(false);
	add_other(4096);
	offload_fill(pair.a->memory, 700);
	write_to(0, &other_region, 0, 700);
	other.speed = UINT32_MAX;
	release_all();
	host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(pair.b->engine.stats.offload_fetched, 700 - 3 * NEAR + 16);
	remove_other(700);
	offload_pair_close(&pair);
}
END_TEST

/* One that stands still does not keep the frames that others need. */
START_TEST(other_stands_still)
{
	enum { LENGTH = 40 * HOST_MTU };

	offload_pair_open(&pair, &(struct offload_config){ .is_far = true, .held = 64 });
	add_other(LENGTH);
	pair.mock.speed = UINT32_MAX;
	offload_fill(pair.a->memory, LENGTH);
	write_to(0, &other_region, 0, LENGTH);
	offload_settle(&pair);
	host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_uint_ge(transfers_of(&pair.b->engine)->deferred->n_free, 16);
	write_to(0, &pair.b->region, 2000, 600);
	offload_settle(&pair);
	host_expect_wc(&pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	offload_expect(pair.b->memory + 2000, 0, 600);
	other.speed = UINT32_MAX;
	offload_settle(&pair);
	ck_assert_uint_eq(transfers_of(&pair.b->engine)->deferred->n_free, 32);
	remove_other(LENGTH);
	offload_pair_close(&pair);
}
END_TEST

static const struct frl_ip group = { { [10] = 0xff, 0xff, 239, 129, 2, 3 } };

/* Datagrams always have an ICRC, and those to a group several receivers. */
START_LOOP_TEST(datagrams, 2)
{
	struct engine_ah ah = { .core.pd = NULL };
	struct frl_ah_attr to = { .sgid_index = HOST_GID_V4 };
	struct host_qp_config ud = { .type = FRL_QPT_UD };
	const char *why;

	offload_pair_open(&pair,
		&(struct offload_config){ .type = FRL_QPT_UD, .is_far = true, .has_icrc = true });
	to.dgid = _i ? group : pair.b->engine.gids.gids[HOST_GID_V4].ip;
	if (!_i)
		memcpy(to.dmac, pair.b->port.base.caps.mac, 6);
	ah.core.pd = &pair.a->pd;
	ck_assert_int_eq(engine_add_ah(&pair.a->engine, &ah, &to, pair.a->now_ns, &why), 0);
	host_add(pair.b, 2, &ud);
	for (unsigned k = 1; _i && k < 3; k++)
		ck_assert_int_eq(engine_attach(&pair.b->engine, &pair.b->qps[k].qp, &group,
					 pair.b->now_ns, &why),
			0);
	offload_post_recv(pair.b, 1, 5, 0, 300);
	host_post_recv(pair.b, 2, 6, 0, 300);
	offload_fill(pair.a->memory, 200);
	host_post(pair.a, 0,
		(struct frl_send_wr){ .opcode = FRL_WR_SEND,
			.remote_qpn = _i ? QPN_MULTICAST : pair.b->qps[1].qp.core.qpn,
			.remote_qkey = HOST_QKEY },
		0, 200, &ah);
	offload_settle(&pair);
	host_expect_no_wc(&pair.b->cqs[1]);
	host_expect_no_wc(&pair.b->cqs[2]);
	release_all();
	host_expect_wc(&pair.b->cqs[1], 5, FRL_WC_SUCCESS);
	offload_expect(pair.memory->view + WIRE_GRH_LEN, 0, 200);
	ck_assert_uint_eq(pair.memory->view[20], 0x45);
	if (_i) {
		host_expect_wc(&pair.b->cqs[2], 6, FRL_WC_SUCCESS);
		offload_expect(pair.b->memory + WIRE_GRH_LEN, 0, 200);
	}
	engine_remove_ah(&pair.a->engine, &ah);
	offload_pair_close(&pair);
}
END_TEST

/* For others than the port, or for no queue pair: they are not fetched. A frame with a UDP checksum
 * that the NIC has not verified is, and then found wrong. */
START_LOOP_TEST(not_for_us, 4)
{
	struct wire_headers h = simple_headers(OP_SEND_ONLY);
	struct frame frame;

	open_far(true);
	h.bth.dest_qpn = _i ? pair.b->qps[1].qp.core.qpn : 0x77;
	frame = make_frame(0, &h, 300, true);
	if (_i == 1)
		frame.bytes[5] ^= 1;
	if (_i == 2) {
		frame.bytes[frame.l3 + 19] ^= 4;
		fix_ip_checksum(&frame);
	}
	if (_i == 3)
		put_be16(frame.bytes + frame.udp + 6, 0x55aa);
	fake_port_receive(&pair.b->port, 0, frame.bytes, (uint32_t)frame.len);
	host_poll(pair.b);
	ck_assert_uint_eq(pair.b->port.n_out, _i == 3);
	ck_assert_uint_eq(pair.mock.given, _i == 3);
	release_all();
	ck_assert_uint_eq(pair.b->port.n_out, 0);
	ck_assert_uint_eq(pair.b->engine.stats.drop_unknown_qp, _i == 0);
	ck_assert_uint_eq(pair.b->engine.stats.drop_bad_udp, _i == 3);
	offload_pair_close(&pair);
}
END_TEST

/* An echo request that does not fit the near part is answered in full. */
START_TEST(echo_request)
{
	enum { LENGTH = 400 };
	uint8_t frame[ETH_LEN + IPV4_LEN + 8 + LENGTH] = { 0 };
	uint8_t *ip = frame + ETH_LEN, *icmp = ip + IPV4_LEN;

	open_far(false);
	memcpy(frame, mac_b, 6);
	memcpy(frame + 6, mac_a, 6);
	put_be16(frame + 12, ETHERTYPE_IPV4);
	ip[0] = 0x45;
	put_be16(ip + 2, sizeof(frame) - ETH_LEN);
	ip[8] = 64;
	ip[9] = 1;
	memcpy(ip + 12, (const uint8_t[]){ 10, 9, 0, 1, 10, 9, 0, 2 }, 8);
	checksum_store(ip + 10, checksum_add(0, ip, IPV4_LEN));
	icmp[0] = 8;
	offload_fill(icmp + 8, LENGTH);
	checksum_store(icmp + 2, checksum_add(0, icmp, 8 + LENGTH));
	fake_port_receive(&pair.b->port, 0, frame, sizeof(frame));
	host_poll(pair.b);
	ck_assert_uint_eq(pair.b->engine.stats.echo_requests, 0);
	pair.mock.speed = 10;
	host_poll(pair.b);
	ck_assert_uint_eq(pair.b->engine.stats.echo_requests, 1);
	ck_assert_uint_eq(pair.b->port.n_sent, 1);
	pair.b->port.n_sent = 0;
	offload_pair_close(&pair);
}
END_TEST

/* ---- everything at once */

enum { SLOTS = 24, SLOT = 2048, LOSS_ONE_IN = 12, ROUNDS = 400000 };

static struct random_state dice;

/* Some frames are lost on their way to `to`. */
static void carry_some(struct host *from, struct host *to)
{
	uint32_t n = to->port.n_rx;

	host_carry(from, to);
	while (n < to->port.n_rx) {
		if (random_below(&dice, LOSS_ONE_IN)) {
			n++;
			continue;
		}
		free(to->port.rx[n].data);
		to->port.n_rx--;
		memmove(&to->port.rx[n], &to->port.rx[n + 1],
			(to->port.n_rx - n) * sizeof(to->port.rx[0]));
	}
}

static void turn(void)
{
	pair.a->now_ns += 20000 + random_below(&dice, 200000);
	pair.b->now_ns = pair.a->now_ns;
	pair.mock.speed = (uint32_t)random_below(&dice, 8);
	if (random_below(&dice, 10) == 0)
		pair.mock.speed = 0;
	engine_poll(&pair.a->engine, pair.a->now_ns);
	engine_poll(&pair.b->engine, pair.b->now_ns);
	carry_some(pair.a, pair.b);
	carry_some(pair.b, pair.a);
}

/* A's queue pair writes a slot of b's, there or here, and reads it again; or b's reads it from a's
 * memory. Slots are apart from each other: what is in them says what came. */
static void post_slot(unsigned slot, bool is_there, uint32_t length)
{
	const struct region *region = is_there ? &pair.region : &pair.b->region;
	struct frl_send_wr wr = { .opcode = FRL_WR_RDMA_WRITE, .rkey = region->key };
	unsigned i = slot % 2 ? 2 : 0;

	offload_fill(pair.a->memory, SLOT);
	wr.remote_addr = region->iova + slot * SLOT;
	if (slot % 3) {
		host_post(pair.a, i, wr, 0, length, NULL);
		wr.opcode = FRL_WR_RDMA_READ;
		host_post(pair.a, i, wr, HOST_MEMORY / 2, length, NULL);
		return;
	}
	wr = (struct frl_send_wr){ .opcode = FRL_WR_RDMA_READ, .rkey = pair.a->region.key };
	wr.remote_addr = pair.a->region.iova;
	if (is_there)
		offload_post(pair.b, i ? 2 : 1, wr, slot * SLOT, length);
	else
		host_post(pair.b, i ? 2 : 1, wr, slot * SLOT, length, NULL);
}

static unsigned take_completions(struct host *host, unsigned i)
{
	struct frl_wc wc;
	unsigned n = 0;

	while (cq_pop(&host->cqs[i], &wc)) {
		ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
		n++;
		/* A READ has brought the bytes of the WRITE before it. */
		if (host == pair.a && wc.opcode == FRL_WC_RDMA_READ)
			for (uint32_t k = 0; k < wc.byte_len; k++)
				ck_assert_uint_eq(
					host->memory[HOST_MEMORY / 2 + k], offload_byte(k));
	}
	return n;
}

START_LOOP_TEST(everything, 24)
{
	struct host_qp_config second = { .capabilities = _i & 1 ? 0 : FRL_CAP_NO_ICRC };
	uint32_t lengths[SLOTS];
	unsigned wanted = 0, done = 0;

	random_seed(&dice, (uint64_t)_i);
	offload_pair_open(&pair,
		&(struct offload_config){
			.is_far = true, .has_icrc = _i & 1, .held = 8u << random_below(&dice, 5) });
	host_pair(pair.a, 2, pair.b, 2, &second);
	if (_i & 2) {
		pair.region.port_mem = &pair;
		fake_port_set_view(pair.memory->there, pair.memory->view, pair.memory->size);
	}
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		lengths[slot] = 1 + (uint32_t)random_below(&dice, SLOT);
		post_slot(slot, random_below(&dice, 2) || slot >= 16, lengths[slot]);
		wanted += slot % 3 ? 2 : 1;
		for (uint64_t n = random_below(&dice, 30); n; n--)
			turn();
	}
	for (unsigned n = 0; n < ROUNDS && done < wanted; n++) {
		turn();
		done += take_completions(pair.a, 0) + take_completions(pair.a, 2) +
			take_completions(pair.b, 1) + take_completions(pair.b, 2);
	}
	ck_assert_uint_eq(done, wanted);
	release_all();
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		const uint8_t *there = pair.memory->view + slot * SLOT;
		bool is_there = there[0] == offload_byte(0);

		if (!is_there)
			there = pair.b->memory + slot * SLOT;
		for (uint32_t k = 0; k < lengths[slot]; k++)
			ck_assert_uint_eq(there[k], offload_byte(k));
		/* Behind it; but a whole slot is followed by the next one. */
		if (is_there && lengths[slot] < SLOT)
			ck_assert_uint_eq(there[lengths[slot]], 0);
	}
	ck_assert_uint_eq(pair.b->port.n_out, 0);
	offload_pair_close(&pair);
}
END_TEST

TEST_FILE(engine_far_lost)
