/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs of one device that are connected with each other, and of two devices: end to end. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/engine_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/vectors/frame.h"

enum {
	FROM = 0,     /* in the memory: what is sent */
	TO = 16384,   /* where it arrives */
	WORD = 32768, /* of atomics */
	LONG = 3 * HOST_MTU + 77,
};

static struct host *host;

static void fill(uint8_t *memory, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		memory[i] = (uint8_t)(i * 7 + 1);
}

static struct frl_send_wr remote(enum frl_wr_opcode opcode, struct host *peer, uint32_t offset)
{
	return (struct frl_send_wr){
		.wr_id = 100 + opcode,
		.opcode = opcode,
		.remote_addr = (uintptr_t)peer->memory + offset,
		.rkey = peer->region.key,
	};
}

/* The two ends: over loopback, on Ethernet and on the local fabric, or on two hosts. */
static const struct {
	const char *name;
	enum frl_qp_type type;
	uint8_t sgid_index;
	bool on_demand, in_place, second;
	uint32_t capabilities;
} ends[] = {
	{ "IPv4", FRL_QPT_RC, HOST_GID_V4, .second = false },
	{ "IPv6", FRL_QPT_RC, HOST_GID_V6, .second = false },
	{ "VLAN", FRL_QPT_RC, HOST_GID_VLAN_V6, .second = false },
	{ "local fabric", FRL_QPT_RC, HOST_GID_V4, .on_demand = true, .in_place = true,
		.capabilities = FRL_CAP_NO_ICRC },
	{ "two hosts, IPv4", FRL_QPT_RC, HOST_GID_V4, .second = true },
	{ "two hosts, VLAN", FRL_QPT_RC, HOST_GID_VLAN_V4, .second = true },
	{ "two hosts, IPv6", FRL_QPT_RC, HOST_GID_V6, .second = true },
	{ "UC", FRL_QPT_UC, HOST_GID_V4, .second = false },
	{ "UC, two hosts", FRL_QPT_UC, HOST_GID_VLAN_V6, .second = true },
};

enum { N_ENDS = sizeof(ends) / sizeof(ends[0]), N_RC_ENDS = 7 };

static struct host *start(int i)
{
	const struct host_config config = {
		.on_demand = ends[i].on_demand,
		.in_place = ends[i].in_place,
	};
	const struct host_qp_config qp = {
		.type = ends[i].type,
		.sgid_index = ends[i].sgid_index,
		.capabilities = ends[i].capabilities,
	};
	struct host *peer;

	host = host_new(&config);
	peer = ends[i].second ? host_new(&(struct host_config){ .second = true }) : host;
	host_pair(host, 0, peer, 1, &qp);
	fill(host->memory + FROM, LONG);
	return peer;
}

static void finish(struct host *peer)
{
	if (peer == host)
		ck_assert_uint_eq(host->port.n_sent, 0);
	else
		host_free(peer);
	host_free(host);
}

START_LOOP_TEST(send_and_write, N_ENDS)
{
	struct host *peer = start(_i);
	static const uint32_t lengths[] = { 0, 1, HOST_MTU, LONG };

	for (unsigned k = 0; k < 4; k++) {
		uint32_t length = lengths[k];

		memset(peer->memory + TO, HOST_FILL, 2 * LONG + 1);
		host_post_recv(peer, 1, k, TO, LONG);
		host_post(host, 0, remote(FRL_WR_SEND, peer, 0), FROM, length, NULL);
		host_post(host, 0, remote(FRL_WR_RDMA_WRITE, peer, TO + LONG), FROM, length, NULL);
		host_settle(host, peer);
		host_expect_wc(&host->cqs[0], 100 + FRL_WR_SEND, FRL_WC_SUCCESS);
		host_expect_wc(&host->cqs[0], 100 + FRL_WR_RDMA_WRITE, FRL_WC_SUCCESS);
		host_expect_wc(&peer->cqs[1], k, FRL_WC_SUCCESS);
		for (unsigned copy = 0; copy < 2; copy++) {
			const uint8_t *at = peer->memory + TO + copy * LONG;

			ck_assert_int_eq(memcmp(at, host->memory + FROM, length), 0);
			if (length < LONG)
				ck_assert_uint_eq(at[length], HOST_FILL);
		}
	}
	ck_assert_uint_eq(host->engine.stats.rx_packets == 0, peer == host || _i > N_RC_ENDS);
	ck_assert_uint_eq(host->engine.stats.loopback_packets != 0, peer == host);
	ck_assert_uint_eq(host->engine.stats.retransmits, 0);
	finish(peer);
}
END_TEST

START_LOOP_TEST(inline_and_pieces, N_ENDS)
{
	struct host *peer = start(_i);
	struct frl_sge sge[FRL_MAX_SGE];
	struct frl_send_wr wr = remote(FRL_WR_RDMA_WRITE, peer, TO);
	const char *why = "";
	uint32_t at = TO;

	wr.flags = FRL_SEND_INLINE;
	host_post(host, 0, wr, FROM, HOST_MTU - 1, NULL);
	memset(host->memory + FROM, 0, HOST_MTU);
	host_settle(host, peer);
	ck_assert_uint_eq(peer->memory[TO + HOST_MTU - 2], (uint8_t)((HOST_MTU - 2) * 7 + 1));
	ck_assert_uint_eq(peer->memory[TO + HOST_MTU - 1], HOST_FILL);
	/* Pieces of 1, 2, 3, ... bytes, each from another place. */
	wr = remote(FRL_WR_RDMA_WRITE, peer, TO);
	for (unsigned k = 0; k < FRL_MAX_SGE; k++) {
		sge[k] = (struct frl_sge){ host->memory + 64 * k, k + 1, host->region.key };
		memset(sge[k].addr, (int)k + 1, k + 1);
	}
	wr.sge = sge;
	wr.n_sge = FRL_MAX_SGE;
	ck_assert_int_eq(
		qp_post_send(&host->qps[0].qp.core, &wr, &(struct wr_objects){ 0 }, &why), 0);
	engine_update(&host->engine, &host->qps[0].qp);
	host_settle(host, peer);
	for (unsigned k = 0; k < FRL_MAX_SGE; k++)
		for (unsigned i = 0; i <= k; i++)
			ck_assert_uint_eq(peer->memory[at++], k + 1);
	finish(peer);
}
END_TEST

START_LOOP_TEST(read, N_RC_ENDS)
{
	static const uint32_t lengths[] = { 0, 1, HOST_MTU, LONG };
	struct host *peer = start(_i);

	fill(peer->memory + TO, LONG);
	for (unsigned k = 0; k < 4; k++) {
		uint8_t *at = host->memory + FROM;

		memset(at, HOST_FILL, LONG + 1);
		host_post(host, 0, remote(FRL_WR_RDMA_READ, peer, TO), FROM, lengths[k], NULL);
		host_settle(host, peer);
		host_expect_wc(&host->cqs[0], 100 + FRL_WR_RDMA_READ, FRL_WC_SUCCESS);
		ck_assert_int_eq(memcmp(at, peer->memory + TO, lengths[k]), 0);
		ck_assert_uint_eq(at[lengths[k]], HOST_FILL);
	}
	ck_assert_uint_eq(peer->engine.stats.reads_served, 4);
	ck_assert_uint_eq(host->engine.stats.timeouts, 0);
	finish(peer);
}
END_TEST

static uint64_t load(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

START_LOOP_TEST(atomics, N_RC_ENDS)
{
	struct host *peer = start(_i);
	struct frl_send_wr add = remote(FRL_WR_ATOMIC_FETCH_AND_ADD, peer, WORD);
	struct frl_send_wr swap = remote(FRL_WR_ATOMIC_CMP_AND_SWP, peer, WORD);

	memset(peer->memory + WORD, 0xff, 8);
	add.compare_add = 3; /* wraps */
	host_post(host, 0, add, FROM, 8, NULL);
	swap.compare_add = 1;
	swap.swap = 99;
	host_post(host, 0, swap, FROM + 8, 8, NULL);
	swap.compare_add = 2;
	swap.swap = UINT64_C(0x1122334455667788);
	host_post(host, 0, swap, FROM + 16, 8, NULL);
	host_settle(host, peer);
	host_expect_wc(&host->cqs[0], 100 + FRL_WR_ATOMIC_FETCH_AND_ADD, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[0], 100 + FRL_WR_ATOMIC_CMP_AND_SWP, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[0], 100 + FRL_WR_ATOMIC_CMP_AND_SWP, FRL_WC_SUCCESS);
	ck_assert_uint_eq(load(host->memory + FROM), UINT64_MAX);
	ck_assert_uint_eq(load(host->memory + FROM + 8), 2);
	ck_assert_uint_eq(load(host->memory + FROM + 16), 2);
	ck_assert_uint_eq(load(peer->memory + WORD), UINT64_C(0x1122334455667788));
	ck_assert_uint_eq(peer->engine.stats.atomics_executed, 3);
	finish(peer);
}
END_TEST

/* The peer has no right: both ends fail, and hear why. */
START_LOOP_TEST(refused, N_RC_ENDS)
{
	struct host *peer = start(_i);
	struct frl_send_wr wr = remote(FRL_WR_RDMA_WRITE, peer, TO);

	wr.rkey ^= 0x1000;
	host_post(host, 0, wr, FROM, LONG, NULL);
	host_post(host, 0, wr, FROM, LONG, NULL);
	host_settle(host, peer);
	host_expect_wc(&host->cqs[0], wr.wr_id, FRL_WC_REM_ACCESS_ERR);
	host_expect_wc(&host->cqs[0], wr.wr_id, FRL_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(host->qps[0].qp.core.state, FRL_QPS_ERR);
	ck_assert_int_eq(peer->qps[1].qp.core.state, FRL_QPS_ERR);
	ck_assert_uint_eq(peer->memory[TO], HOST_FILL);
	finish(peer);
}
END_TEST

/* One queue pair that is its own peer. */
START_TEST(with_itself)
{
	struct host_qp_config config = { .psn = 500,
		.dgid = ip_from_v4((uint8_t[]){ 10, 9, 0, 2 }) };

	host = host_new(NULL);
	config.dest_qpn = host_create(host, 0, &config)->core.qpn;
	host_connect(host, 0, &config);
	fill(host->memory + FROM, LONG);
	host_post_recv(host, 0, 1, TO, LONG);
	host_post(host, 0, remote(FRL_WR_SEND, host, 0), FROM, LONG, NULL);
	host_post(host, 0, remote(FRL_WR_RDMA_READ, host, FROM), TO + LONG, LONG, NULL);
	host_settle(host, host);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[0], 100 + FRL_WR_SEND, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[0], 100 + FRL_WR_RDMA_READ, FRL_WC_SUCCESS);
	ck_assert_int_eq(memcmp(host->memory + TO, host->memory + FROM, LONG), 0);
	ck_assert_int_eq(memcmp(host->memory + TO + LONG, host->memory + FROM, LONG), 0);
	host_free(host);
}
END_TEST

/* Somebody on the network claims to be this device. */
START_TEST(network_does_not_speak_for_us)
{
	struct host *peer = start(0);
	struct wire_headers h = { .bth = { .opcode = OP_SEND_ONLY,
					  .pkey = PKEY_DEFAULT,
					  .dest_qpn = host->qps[1].qp.core.qpn,
					  .psn = psn_make(7000) } };
	struct frame frame = make_frame(0, &h, 64, true);
	uint32_t crc;

	ck_assert_ptr_eq(peer, host);
	memcpy(frame.bytes + frame.l3 + 12, frame.bytes + frame.l3 + 16, 4);
	fix_ip_checksum(&frame);
	crc = icrc_headers(frame.bytes + frame.l3, frame.payload - frame.l3);
	crc = icrc_update(crc, frame.bytes + frame.payload, 64);
	icrc_store(frame.bytes + frame.len - ICRC_LEN, crc);
	host_post_recv(host, 1, 1, TO, LONG);
	fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
	host_poll(host);
	ck_assert_uint_eq(host->engine.stats.drop_wrong_peer, 1);
	host_expect_no_wc(&host->cqs[1]);
	host_free(host);
}
END_TEST

/* On a link where nobody gives up on time alone, the other end must learn that its peer is gone. */
START_TEST(peer_removed)
{
	static const struct host_config config = { .on_demand = true };
	static const struct host_qp_config qp = { .unlimited_retry = true };

	host = host_new(&config);
	host_pair(host, 0, host, 1, &qp);
	engine_remove_qp(&host->engine, &host->qps[1].qp);
	host_post_send(host, 0, 1, 16, 0);
	host_settle(host, host);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_REM_OP_ERR);
	host_free(host);
}
END_TEST

TEST_FILE(engine_loop)
