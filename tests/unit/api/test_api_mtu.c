/* SPDX-License-Identifier: BSD-3-Clause */
/* Path MTUs of the local fabric, which are longer than those of networks. */
#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"

enum { LOCAL = 16384, NETWORK = 4096, LENGTH = 2 * LOCAL + 5, THERE = MEMORY - LENGTH };

static uint32_t path_mtu_of(struct end *end)
{
	struct frl_qp_attr attr;

	frl_qp_query(end->qp, &attr);
	return attr.path_mtu;
}

static const struct {
	uint32_t wanted, held_frames, got;
} defaults[] = {
	{ 0, 0, LOCAL },
	{ 0, 8, NETWORK }, /* each packet buffer has room for any packet */
	{ LOCAL, 8, LOCAL },
	{ 8192, 0, 8192 },
	{ 256, 0, 256 },
};

START_LOOP_TEST(device, ROWS(defaults))
{
	struct frl_device_attr attr;

	open_end_with(
		&a, false, FRL_PROGRESS_INLINE, defaults[_i].wanted, defaults[_i].held_frames);
	frl_device_query(a.device, &attr);
	ck_assert_uint_eq(attr.path_mtu, defaults[_i].got);
}
END_TEST

/* For two devices: different ones agree on the lower MTU. */
static const struct {
	uint32_t a, b, both;
} pairs[] = {
	{ 0, 0, LOCAL },
	{ 0, NETWORK, NETWORK },
	{ 256, 0, 256 },
	{ NETWORK, 8192, NETWORK },
};

static void transfer(enum frl_wr_opcode opcode, uint64_t wr_id)
{
	struct frl_sge sge = sge_of(&a, 3, LENGTH);
	struct frl_send_wr wr = send_wr(wr_id, opcode, &sge);
	struct frl_stats stats;
	uint64_t packets;

	wr.remote_addr += THERE;
	for (uint32_t i = 0; i < LENGTH; i++) {
		a.memory[3 + i] = (uint8_t)(i * 7 + i / 251 + wr_id);
		b.memory[THERE + i] = (uint8_t)(i * 5 + i / 241 + wr_id);
	}
	frl_device_stats(b.device, &stats);
	packets = stats.rx_packets;
	if (opcode == FRL_WR_SEND)
		post_recv(wr_id, THERE, LENGTH, false);
	post_send(&wr);
	expect(&a, wr_id, FRL_WC_SUCCESS);
	if (opcode == FRL_WR_SEND)
		ck_assert_uint_eq(expect(&b, wr_id, FRL_WC_SUCCESS).byte_len, LENGTH);
	ck_assert_int_eq(memcmp(a.memory + 3, b.memory + THERE, LENGTH), 0);
	frl_device_stats(b.device, &stats);
	/* Nothing was lost, or cut. */
	if (opcode != FRL_WR_RDMA_READ)
		ck_assert_uint_eq(stats.rx_packets - packets,
			(LENGTH + path_mtu_of(&a) - 1) / path_mtu_of(&a));
}

/* In memory that the peer reads in place, and in other memory, whose packets are copies. */
START_LOOP_TEST(transfers, 2 * ROWS(pairs))
{
	bool shared = _i & 1;

	open_end_with(&a, shared, FRL_PROGRESS_INLINE, pairs[_i / 2].a, 0);
	open_end_with(&b, shared, FRL_PROGRESS_INLINE, pairs[_i / 2].b, 0);
	connect_both();
	ck_assert_uint_eq(path_mtu_of(&a), pairs[_i / 2].both);
	ck_assert_uint_eq(path_mtu_of(&b), pairs[_i / 2].both);
	for (uint64_t i = 0; i < 30; i += 3) {
		transfer(FRL_WR_SEND, i);
		transfer(FRL_WR_RDMA_WRITE, i + 1);
		transfer(FRL_WR_RDMA_READ, i + 2);
	}
}
END_TEST

/* A datagram longer than the peer's device takes is lost, and nothing else: the next one, and
 * connections over the same link, arrive. */
START_LOOP_TEST(datagrams, 2)
{
	const bool fits = _i;
	struct frl_ah_attr way = { .sgid_index = 1 };
	struct frl_qp *from, *to;
	struct frl_recv_wr recv = { .wr_id = 90, .n_sge = 1 };
	struct frl_sge sge, into;
	struct frl_send_wr wr;
	struct frl_gid gid;
	struct frl_ah *ah;

	open_end_with(&a, false, FRL_PROGRESS_INLINE, 0, 0);
	open_end_with(&b, false, FRL_PROGRESS_INLINE, fits ? 0 : NETWORK, 0);
	connect_both();
	from = add_datagram_qp(&a, FRL_QPT_UD, 7);
	to = add_datagram_qp(&b, FRL_QPT_UD, 7);
	ok(frl_query_gid(b.device, 1, &gid));
	way.dgid = gid.ip;
	ok(frl_ah_create(a.pd, &way, &ah));
	into = sge_of(&b, 0, FRL_GRH_SIZE + LOCAL);
	recv.sge = &into;
	ck_assert_int_eq(frl_post_recv(to, &recv, 1, NULL), 1);
	sge = sge_of(&a, 0, LOCAL);
	wr = send_wr(80, FRL_WR_SEND, &sge);
	wr.ah = ah;
	wr.remote_qpn = frl_qp_num(to);
	wr.remote_qkey = 7;
	post_on(from, &wr);
	next_wc(&a, 80, FRL_WC_SUCCESS);
	if (!fits) {
		sge.length = NETWORK;
		post_on(from, &wr);
		next_wc(&a, 80, FRL_WC_SUCCESS);
	}
	ck_assert_uint_eq(next_wc(&b, 90, FRL_WC_SUCCESS).byte_len, FRL_GRH_SIZE + sge.length);
	ck_assert_int_eq(memcmp(b.memory + FRL_GRH_SIZE, a.memory, sge.length), 0);
	sge.length = LOCAL + 1;
	refused(frl_post_send(from, &wr, 1, NULL), -EINVAL, "MTU");
	transfer(FRL_WR_RDMA_WRITE, 1);
	frl_ah_destroy(ah);
	frl_qp_destroy(from);
	frl_qp_destroy(to);
}
END_TEST

/* By hand, over an existing link: packets that the other end takes, or none. */
START_TEST(by_hand)
{
	const uint32_t init = FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS;
	const uint32_t rtr = FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
		FRL_QP_RQ_PSN | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER;
	struct frl_qp_attr attr;
	struct frl_qp *qp;

	open_end_with(&a, false, FRL_PROGRESS_INLINE, 0, 0);
	open_end_with(&b, false, FRL_PROGRESS_INLINE, NETWORK, 0);
	connect_both();
	frl_qp_query(a.qp, &attr);
	qp = add_qp(&a);
	attr.state = FRL_QPS_INIT;
	ok(frl_qp_modify(qp, &attr, init));
	attr.state = FRL_QPS_RTR;
	attr.path_mtu = 2 * NETWORK;
	refused(frl_qp_modify(qp, &attr, rtr), -EINVAL, "other end");
	attr.path_mtu = NETWORK;
	ok(frl_qp_modify(qp, &attr, rtr));
	frl_qp_destroy(qp);
}
END_TEST

TEST_MAIN(api_mtu)
{
	return run_rows(all_tests(NULL, close_ends));
}
