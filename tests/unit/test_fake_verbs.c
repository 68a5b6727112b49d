/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory does what a device does: messages and how they fail. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "tests/unit/fake_verbs_fixture.h"
#include "tests/unit/program.h"

static struct fixture fixture;
static struct fixture_end *const a = &fixture.ends[0], *const b = &fixture.ends[1];
static const struct fixture_wants connected = { .is_connected = true };

static void setup(void)
{
	fixture_plug(&fixture, 0xffff, IBV_MTU_4096);
}

static uint64_t word_of(const struct fixture_end *end, uint32_t offset)
{
	uint64_t word;

	memcpy(&word, end->bytes + offset, sizeof(word));
	return word;
}

static uint64_t at(const struct fixture_end *end, uint32_t offset)
{
	return (uintptr_t)end->bytes + offset;
}

/* --- Messages */

static const struct fixture_wants pairs[] = {
	{ .is_connected = true },
	{ .is_connected = true, .is_ex = true },
	{ .is_connected = true, .has_srq = true },
	{ .is_connected = true, .type = IBV_QPT_UC },
};

static void send_one(struct fixture_end *end, bool is_ex, const struct ibv_sge *sge)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(end->qp);

	ck_assert(is_ex == (ex != NULL));
	if (!is_ex) {
		ck_assert_int_eq(fixture_post(end, IBV_WR_SEND_WITH_IMM,
					 IBV_SEND_SIGNALED | IBV_SEND_INLINE, sge, 0, 0),
			0);
		return;
	}
	ibv_wr_start(ex);
	ex->wr_id = IBV_WR_SEND_WITH_IMM + 1000;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(ex, htobe32(0xcafe));
	ibv_wr_set_sge(ex, sge->lkey, sge->addr, sge->length);
	ck_assert_int_eq(ibv_wr_complete(ex), 0);
}

START_LOOP_TEST(ping_pong, ROWS(pairs))
{
	struct ibv_wc wc;

	fixture_open(&fixture, &pairs[_i]);
	for (uint32_t round = 0; round < 100; round++) {
		struct fixture_end *from = round % 2 ? b : a, *to = round % 2 ? a : b;
		struct ibv_sge sge = fixture_sge(from, 64 * round, 50);

		memset(from->bytes + 64 * round, (int)round + 1, 50);
		fixture_post_recv(to, round, 64 * round, 64);
		send_one(from, pairs[_i].is_ex, &sge);
		wc = fixture_expect(from, IBV_WC_SUCCESS);
		ck_assert_int_eq(wc.opcode, IBV_WC_SEND);
		ck_assert_uint_eq(wc.wr_id, IBV_WR_SEND_WITH_IMM + 1000);
		wc = fixture_expect(to, IBV_WC_SUCCESS);
		ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
		ck_assert_uint_eq(wc.wr_id, round);
		ck_assert_uint_eq(wc.byte_len, 50);
		ck_assert_uint_eq(wc.wc_flags, IBV_WC_WITH_IMM);
		ck_assert_uint_eq(be32toh(wc.imm_data), 0xcafe);
		ck_assert_mem_eq(to->bytes + 64 * round, from->bytes + 64 * round, 50);
	}
	fixture_close(&fixture);
}
END_TEST

/* The addresses of the two ends, and the offset of what the GRH's place has of them. */
static const struct {
	const char *name[2];
	int type;
	uint32_t offset, length;
	bool is_infiniband;
} families[] = {
	{ { "10.0.0.1", "10.0.0.2" }, IBV_GID_TYPE_ROCE_V2, 32, 4, false },
	{ { "2001:db8::1", "2001:db8::2" }, IBV_GID_TYPE_ROCE_V2, 8, 16, false },
	{ { "fe80::1", "fe80::2" }, IBV_GID_TYPE_IB, 8, 16, true },
};

static struct ibv_ah *handle_to(struct fixture_end *end, const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };

	attr.grh.dgid = *gid;
	attr.grh.sgid_index = (uint8_t)end->sgid_index;
	attr.grh.hop_limit = 9;
	attr.grh.traffic_class = 0x68;
	return ibv_create_ah(end->pd, &attr);
}

static void post_datagram(struct ibv_ah *ah, uint32_t qp_num, uint32_t qkey)
{
	struct ibv_sge sge = fixture_sge(a, 0, 100);
	struct ibv_send_wr wr = {
		.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND
	};
	struct ibv_send_wr *bad;

	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qp_num;
	wr.wr.ud.remote_qkey = qkey;
	ck_assert_int_eq(ibv_post_send(a->qp, &wr, &bad), 0);
}

static void send_datagram(struct ibv_ah *ah, uint32_t qp_num, uint32_t qkey)
{
	post_datagram(ah, qp_num, qkey);
	ck_assert_uint_eq(fixture_expect(a, IBV_WC_SUCCESS).wr_id, 7);
}

START_LOOP_TEST(datagrams, ROWS(families))
{
	struct fixture_wants wants = { .is_connected = true, .type = IBV_QPT_UD };
	struct fake_verbs_device device;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	fake_verbs_reset();
	for (int i = 0; i < 2; i++) {
		fake_verbs_device_init(&device, i ? "fake1" : "fake0", NULL);
		fake_verbs_gid_set(&device.ports[0].gids[families[_i].is_infiniband ? 0 : 3],
			families[_i].name[i], families[_i].type);
		if (families[_i].is_infiniband)
			fake_verbs_port_infiniband(&device.ports[0], (uint16_t)(i + 1));
		fake_verbs_add(&device);
	}
	fixture_open(&fixture, &wants);
	memset(a->bytes, 0x77, 100);
	ah = handle_to(a, &b->gid);
	ck_assert_ptr_nonnull(ah);
	send_datagram(ah, b->qp->qp_num, FIXTURE_QKEY);
	fixture_expect_none(b);
	/* Too short by a byte, for the GRH is in front. */
	fixture_post_recv(b, 1, 0, 139);
	send_datagram(ah, b->qp->qp_num, FIXTURE_QKEY);
	fixture_expect_none(b);
	ck_assert_int_eq(ibv_destroy_qp(b->qp), 0);
	ck_assert_int_eq(ibv_destroy_ah(ah), 0);
	ah = handle_to(a, &b->gid);
	b->qp = ibv_create_qp(b->pd,
		&(struct ibv_qp_init_attr){ .send_cq = b->cq,
			.recv_cq = b->cq,
			.cap = { 1, 1, 1, 1, 0 },
			.qp_type = IBV_QPT_UD });
	ck_assert_int_eq(fixture_move(b, a, &wants, 0, 0), 0);
	fixture_post_recv(b, 2, 1000, 140);
	send_datagram(ah, b->qp->qp_num, FIXTURE_QKEY + 1);
	fixture_expect_none(b);
	send_datagram(ah, b->qp->qp_num, FIXTURE_QKEY);
	wc = fixture_expect(b, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, 140);
	ck_assert_uint_eq(wc.wc_flags, IBV_WC_GRH);
	ck_assert_uint_eq(wc.src_qp, a->qp->qp_num);
	ck_assert_mem_eq(b->bytes + 1040, a->bytes, 100);
	ck_assert_mem_eq(b->bytes + 1000 + families[_i].offset,
		a->gid.raw + 16 - families[_i].length, families[_i].length);
	ck_assert_mem_eq(b->bytes + 1000 + families[_i].offset + families[_i].length,
		b->gid.raw + 16 - families[_i].length, families[_i].length);
	ck_assert_int_eq(ibv_destroy_ah(ah), 0);
	fixture_close(&fixture);
}
END_TEST

START_TEST(multicast)
{
	struct fixture_wants wants = { .is_connected = true, .type = IBV_QPT_UD };
	struct fake_verbs_gid group;
	struct ibv_ah *ah;

	fake_verbs_gid_set(&group, "239.1.2.3", 0);
	fixture_open(&fixture, &wants);
	ah = handle_to(a, &group.gid);
	ck_assert_ptr_nonnull(ah);
	ck_assert_int_eq(ibv_attach_mcast(b->qp, &b->gid, 0), EINVAL);
	ck_assert_int_eq(ibv_attach_mcast(a->qp, &group.gid, 0), 0);
	ck_assert_int_eq(ibv_attach_mcast(b->qp, &group.gid, 0), 0);
	ck_assert_int_eq(ibv_destroy_qp(b->qp), EBUSY);
	fixture_post_recv(b, 2, 0, 1000);
	send_datagram(ah, 0xffffff, FIXTURE_QKEY);
	ck_assert_uint_eq(fixture_expect(b, IBV_WC_SUCCESS).wr_id, 2);
	ck_assert_int_eq(ibv_detach_mcast(b->qp, &group.gid, 0), 0);
	ck_assert_int_eq(ibv_detach_mcast(b->qp, &group.gid, 0), EINVAL);
	fixture_post_recv(b, 3, 0, 1000);
	send_datagram(ah, 0xffffff, FIXTURE_QKEY);
	fixture_expect_none(b);
	/* A member hears itself. */
	fixture_post_recv(a, 4, 0, 1000);
	ck_assert_int_eq(ibv_detach_mcast(a->qp, &b->gid, 0), EINVAL);
	fake_verbs_hold(true);
	post_datagram(ah, 0xffffff, FIXTURE_QKEY);
	fixture_expect_none(a);
	fake_verbs_hold(false);
	ck_assert_uint_eq(fixture_expect(a, IBV_WC_SUCCESS).wr_id, 4);
	ck_assert_uint_eq(fixture_expect(a, IBV_WC_SUCCESS).wr_id, 7);
	ck_assert_int_eq(ibv_detach_mcast(a->qp, &group.gid, 0), 0);
	ck_assert_int_eq(ibv_destroy_ah(ah), 0);
	fixture_close(&fixture);
}
END_TEST

START_TEST(remote_memory)
{
	struct ibv_sge sge;
	struct ibv_wc wc;

	fixture_open(&fixture, &connected);
	for (int i = 0; i < FIXTURE_BYTES; i++)
		a->bytes[i] = (uint8_t)(i * 7);
	sge = fixture_sge(a, 0, 5000);
	ck_assert_int_eq(fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 3), b->mr->rkey), 0);
	fixture_expect_none(a);
	ck_assert_mem_eq(b->bytes + 3, a->bytes, 5000);
	sge = fixture_sge(a, 8000, 4000);
	ck_assert_int_eq(
		fixture_post(a, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, at(b, 103), b->mr->rkey),
		0);
	wc = fixture_expect(a, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_RDMA_READ);
	ck_assert_mem_eq(a->bytes + 8000, a->bytes + 100, 4000);
	memset(b->bytes, 0, 64);
	b->bytes[8] = 5;
	sge = fixture_sge(a, 0, 8);
	ck_assert_int_eq(fixture_post(a, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED, &sge,
				 at(b, 0), b->mr->rkey),
		0);
	ck_assert_int_eq(fixture_expect(a, IBV_WC_SUCCESS).opcode, IBV_WC_FETCH_ADD);
	ck_assert_uint_eq(word_of(a, 0), 0);
	ck_assert_uint_eq(word_of(b, 0), 5);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(fixture_post(a, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED, &sge,
					 at(b, 8), b->mr->rkey),
			0);
		ck_assert_int_eq(fixture_expect(a, IBV_WC_SUCCESS).opcode, IBV_WC_COMP_SWAP);
		ck_assert_uint_eq(word_of(a, 0), i ? 77 : 5);
		ck_assert_uint_eq(word_of(b, 8), 77);
	}
	fixture_post_recv(b, 9, 0, 0);
	sge = fixture_sge(a, 0, 16);
	ck_assert_int_eq(
		fixture_post(a, IBV_WR_RDMA_WRITE_WITH_IMM, 0, &sge, at(b, 64), b->mr->rkey), 0);
	wc = fixture_expect(b, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	ck_assert_uint_eq(wc.byte_len, 16);
	fixture_close(&fixture);
}
END_TEST

/* --- Refusals */

static const struct {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	int addr_off;
	bool is_lkey;
	unsigned taken_away; /* of the QP's rights */
	enum ibv_wc_status status;
	int event; /* at the peer; -1: none */
} refused[] = {
	{ "rkey", IBV_WR_RDMA_WRITE, 8, 0, true, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "below", IBV_WR_RDMA_WRITE, 8, -1, false, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "beyond", IBV_WR_RDMA_READ, 8, FIXTURE_BYTES - 7, false, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "crooked", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 4, false, 0, IBV_WC_REM_INV_REQ_ERR,
		IBV_EVENT_QP_REQ_ERR },
	{ "short atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 0, false, 0, IBV_WC_LOC_LEN_ERR, -1 },
	{ "no writes", IBV_WR_RDMA_WRITE, 8, 0, false, IBV_ACCESS_REMOTE_WRITE,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
	{ "no reads", IBV_WR_RDMA_READ, 8, 0, false, IBV_ACCESS_REMOTE_READ, IBV_WC_REM_INV_REQ_ERR,
		IBV_EVENT_QP_REQ_ERR },
	{ "no atomics", IBV_WR_ATOMIC_CMP_AND_SWP, 8, 0, false, IBV_ACCESS_REMOTE_ATOMIC,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
};

START_LOOP_TEST(access_errors, ROWS(refused))
{
	struct fixture_wants wants = { .is_connected = true, .access = refused[_i].taken_away };
	struct ibv_sge sge;
	uint64_t addr;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, refused[_i].length);
	addr = at(b, 0) + (uint64_t)(int64_t)refused[_i].addr_off;
	fixture_post_recv(a, 11, 0, 8);
	fixture_post_recv(b, 22, 0, 8);
	ck_assert_int_eq(fixture_post(a, refused[_i].opcode, 0, &sge, addr,
				 refused[_i].is_lkey ? b->mr->lkey : b->mr->rkey),
		0);
	ck_assert_uint_eq(fixture_expect(a, refused[_i].status).wr_id, refused[_i].opcode + 1000);
	ck_assert_uint_eq(fixture_expect(a, IBV_WC_WR_FLUSH_ERR).wr_id, 11);
	ck_assert_int_eq(a->qp->state, IBV_QPS_ERR);
	if (refused[_i].event >= 0) {
		fixture_event(b, (enum ibv_event_type)refused[_i].event);
		ck_assert_uint_eq(fixture_expect(b, IBV_WC_WR_FLUSH_ERR).wr_id, 22);
	} else {
		fixture_expect_none(b);
	}
	/* A QP that has failed takes sends, and flushes them. */
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, 0, &sge, 0, 0), 0);
	fixture_expect(a, IBV_WC_WR_FLUSH_ERR);
	fixture_close(&fixture);
}
END_TEST

static const struct {
	uint32_t room;
	bool is_foreign; /* the receive's key */
	enum ibv_wc_status send, recv;
} receives[] = {
	{ 7, false, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR },
	{ 8, true, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR },
};

START_LOOP_TEST(receive_errors, ROWS(receives))
{
	struct ibv_sge sge, into;
	struct ibv_recv_wr wr = { .wr_id = 4, .sg_list = &into, .num_sge = 1 }, *bad;

	fixture_open(&fixture, &connected);
	sge = fixture_sge(a, 0, 8);
	into = fixture_sge(b, 0, receives[_i].room);
	into.lkey ^= receives[_i].is_foreign ? 0x100000 : 0;
	ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), 0);
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, 0, &sge, 0, 0), 0);
	fixture_expect(a, receives[_i].send);
	ck_assert_uint_eq(fixture_expect(b, receives[_i].recv).wr_id, 4);
	fixture_close(&fixture);
}
END_TEST

START_LOOP_TEST(local_errors, 2)
{
	struct fixture_wants wants = { .is_connected = true, .type = _i ? IBV_QPT_UC : IBV_QPT_RC };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, 8);
	ck_assert_int_eq(fixture_post(a, IBV_WR_RDMA_WRITE, IBV_SEND_INLINE,
				 &(struct ibv_sge){ .addr = sge.addr, .length = 65 }, 0, 0),
		EINVAL);
	sge.lkey++;
	ck_assert_int_eq(fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 0), b->mr->rkey), 0);
	fixture_expect(a, IBV_WC_LOC_PROT_ERR);
	ck_assert_int_eq(a->qp->state, _i ? IBV_QPS_SQE : IBV_QPS_ERR);
	ck_assert_int_eq(ibv_modify_qp(a->qp, &rts, IBV_QP_STATE), _i ? 0 : EINVAL);
	if (_i) {
		sge.lkey--;
		ck_assert_int_eq(fixture_post(a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
					 at(b, 0), b->mr->rkey),
			0);
		fixture_expect(a, IBV_WC_SUCCESS);
	}
	fixture_close(&fixture);
}
END_TEST

/* --- Waits */

START_LOOP_TEST(receiver_not_ready, 2)
{
	struct fixture_wants wants = { .is_connected = true, .rnr_retry = _i ? 7 : 2 };
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, 8);
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0), 0);
	if (_i) {
		fixture_expect_none(a);
		fixture_post_recv(b, 1, 0, 8);
		fixture_expect(a, IBV_WC_SUCCESS);
		fixture_expect(b, IBV_WC_SUCCESS);
	} else {
		fixture_expect(a, IBV_WC_RNR_RETRY_EXC_ERR);
	}
	fixture_close(&fixture);
}
END_TEST

enum lost { CUT, CUT_QP, PORT_DOWN, PSNS, GONE, DEAD };

START_RANGE_TEST(no_answer, CUT, DEAD + 1)
{
	struct fixture_wants wants = { .is_connected = true, .psn_gap = _i == PSNS };
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, 8);
	if (_i == CUT)
		fake_verbs_cut("fake0", "fake1", true);
	if (_i == CUT_QP)
		fake_verbs_cut_qp("fake1", b->qp->qp_num, true);
	if (_i == PORT_DOWN)
		fake_verbs_raise("fake1", IBV_EVENT_PORT_ERR, 1);
	if (_i == GONE)
		ck_assert_int_eq(ibv_modify_qp(b->qp, &reset, IBV_QP_STATE), 0);
	if (_i == DEAD)
		fake_verbs_raise("fake1", IBV_EVENT_DEVICE_FATAL, 1);
	ck_assert_int_eq(fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 0), b->mr->rkey), 0);
	fixture_expect(a, IBV_WC_RETRY_EXC_ERR);
	if (_i == PORT_DOWN)
		ck_assert_int_eq(fixture_event(b, IBV_EVENT_PORT_ERR).element.port_num, 1);
	if (_i == DEAD) {
		fixture_event(b, IBV_EVENT_DEVICE_FATAL);
		ck_assert_int_eq(fixture_post(b, IBV_WR_SEND, 0, &sge, 0, 0), EIO);
		ck_assert_int_eq(ibv_destroy_qp(b->qp), EIO);
		ck_assert_ptr_null(ibv_alloc_pd(b->context));
		ck_assert_int_eq(errno, EIO);
		ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_QP), 1);
	} else {
		fixture_close(&fixture);
	}
}
END_TEST

/* An interruption shorter than the retries is not seen. */
START_TEST(late_answer)
{
	struct fixture_wants wants = { .is_connected = true, .timeout = 20, .retry_cnt = 7 };
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, 8);
	fake_verbs_cut("fake0", "fake1", true);
	ck_assert_int_eq(
		fixture_post(a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, at(b, 0), b->mr->rkey),
		0);
	fixture_expect_none(a);
	fake_verbs_cut("fake0", "fake1", false);
	fixture_expect(a, IBV_WC_SUCCESS);
	fixture_close(&fixture);
}
END_TEST

/* --- Queues */

START_TEST(send_queue_is_full)
{
	struct ibv_sge sge;

	fixture_open(&fixture, &connected);
	sge = fixture_sge(a, 0, 8);
	for (int i = 0; i < 15; i++)
		ck_assert_int_eq(
			fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 0), b->mr->rkey), 0);
	ck_assert_int_eq(
		fixture_post(a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, at(b, 0), b->mr->rkey),
		0);
	/* All are done, but nobody has seen it. */
	ck_assert_int_eq(
		fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 0), b->mr->rkey), ENOMEM);
	fixture_expect(a, IBV_WC_SUCCESS);
	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(
			fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 0), b->mr->rkey), 0);
	fixture_close(&fixture);
}
END_TEST

START_TEST(messages_can_be_held)
{
	struct fake_verbs_stats stats;
	struct ibv_sge sge;

	fixture_open(&fixture, &connected);
	sge = fixture_sge(a, 0, 8);
	fake_verbs_hold(true);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(fixture_post(a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
					 at(b, 0), b->mr->rkey),
			0);
	fixture_expect_none(a);
	ck_assert_uint_eq(fake_verbs_step(2), 2);
	fixture_expect(a, IBV_WC_SUCCESS);
	fixture_expect(a, IBV_WC_SUCCESS);
	fixture_expect_none(a);
	fake_verbs_hold(false);
	fixture_expect(a, IBV_WC_SUCCESS);
	fake_verbs_stats(&stats);
	ck_assert_uint_eq(stats.posted, 3);
	ck_assert_uint_eq(stats.signaled, 3);
	ck_assert_uint_eq(stats.polled, 3);
	fixture_close(&fixture);
}
END_TEST

/* --- Windows */

static struct ibv_wc bind_window(struct ibv_mw *mw, uint32_t rkey, enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr wr = { .opcode = opcode, .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (opcode == IBV_WR_LOCAL_INV) {
		wr.invalidate_rkey = rkey;
	} else {
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = rkey;
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ b->mr, at(b, 64), 64,
			IBV_ACCESS_REMOTE_WRITE };
	}
	ck_assert_int_eq(ibv_post_send(b->qp, &wr, &bad), 0);
	return fixture_wait(b);
}

START_TEST(windows)
{
	struct ibv_sge sge;
	struct ibv_mw *mw;
	uint32_t rkey;

	fixture_open(&fixture, &connected);
	sge = fixture_sge(a, 0, 8);
	mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
	rkey = ibv_inc_rkey(mw->rkey);
	ck_assert_int_eq(bind_window(mw, rkey, IBV_WR_BIND_MW).status, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_dereg_mr(b->mr), EBUSY);
	ck_assert_int_eq(
		fixture_post(a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, at(b, 64), rkey), 0);
	fixture_expect(a, IBV_WC_SUCCESS);
	ck_assert_int_eq(bind_window(mw, rkey, IBV_WR_LOCAL_INV).status, IBV_WC_SUCCESS);
	rkey = ibv_inc_rkey(mw->rkey);
	ck_assert_int_eq(bind_window(mw, rkey, IBV_WR_BIND_MW).status, IBV_WC_SUCCESS);
	/* The window ends before the region does. */
	ck_assert_int_eq(fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 121), rkey), 0);
	fixture_expect(a, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	fixture_close(&fixture);
}
END_TEST

TEST_MAIN(fake_verbs)
{
	return run_suite(all_tests(setup, fake_verbs_reset));
}
