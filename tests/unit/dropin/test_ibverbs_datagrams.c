/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: datagrams, address handles, multicast groups. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct ibv_ah *to_b;

static void start_datagrams(void)
{
	struct ibv_ah_attr path;

	start(&(struct wants){ .type = IBV_QPT_UD });
	path = own_path(a.context);
	to_b = ibv_create_ah(a.pd, &path);
	made(to_b);
	ck_assert_ptr_eq(to_b->pd, a.pd);
	ck_assert_ptr_eq(to_b->context, a.context);
}

static void finish_datagrams(void)
{
	ok(ibv_destroy_ah(to_b));
	finish();
}

static struct ibv_send_wr datagram(uint64_t wr_id, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = request(wr_id, IBV_WR_SEND, sge);

	wr.wr.ud.ah = to_b;
	wr.wr.ud.remote_qpn = b.qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	return wr;
}

/* Sends b a datagram that arrives: all earlier ones have been handled then. */
static struct ibv_wc send_one(uint64_t recv_id)
{
	struct ibv_sge sge = sge_of(&a, 0, 100);
	struct ibv_send_wr wr = datagram(1, &sge);

	fill(&a, 0, 100, 5);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	return expect(&b, recv_id, IBV_WC_SUCCESS);
}

/* UCX reads the network layer from the service level, as mlx5 has it: 0xa is IPv4, 9 is IPv6. */
START_LOOP_TEST(arrives, 2)
{
	struct ibv_ah_attr path;
	union ibv_gid gid;
	struct ibv_wc wc;

	start_datagrams();
	ok(ibv_query_gid(a.context, 1, _i, &gid));
	path = own_path(a.context);
	path.grh.sgid_index = (uint8_t)_i;
	path.grh.dgid = gid;
	path.grh.traffic_class = 32;
	ok(ibv_destroy_ah(to_b));
	to_b = ibv_create_ah(a.pd, &path);
	made(to_b);
	post_recv(&b, 2, 0, GRH + 120);
	wc = send_one(2);
	ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
	ck_assert_uint_eq(wc.byte_len, GRH + 100);
	ck_assert_uint_eq(wc.src_qp, a.qp->qp_num);
	ck_assert_uint_eq(wc.wc_flags, IBV_WC_GRH);
	ck_assert_uint_eq(wc.sl, _i ? 0xa : 0x9);
	ck_assert_uint_eq(wc.pkey_index, 0);
	check_filled(&b, GRH, 100, 5);
	if (_i) {
		/* The IPv4 header: source and destination. */
		ck_assert_uint_eq(b.memory[20], 0x45);
		ck_assert_uint_eq(b.memory[21], 32);
		ck_assert_mem_eq(b.memory + 32, gid.raw + 12, 4);
		ck_assert_mem_eq(b.memory + 36, gid.raw + 12, 4);
	} else {
		ck_assert_uint_eq(b.memory[0] >> 4, 6);
		ck_assert_mem_eq(b.memory + 8, gid.raw, 16);
		ck_assert_mem_eq(b.memory + 24, gid.raw, 16);
	}
	finish_datagrams();
}
END_TEST

START_TEST(immediate_and_inline)
{
	uint8_t text[] = "a datagram";
	struct ibv_sge sge = { (uintptr_t)text, sizeof(text), 0 };
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	start_datagrams();
	wr = datagram(1, &sge);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = htonl(9);
	wr.send_flags |= IBV_SEND_INLINE;
	post_recv(&b, 2, 0, 200);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	wc = expect(&b, 2, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	ck_assert_uint_eq(wc.imm_data, htonl(9));
	ck_assert_mem_eq(b.memory + GRH, text, sizeof(text));
	finish_datagrams();
}
END_TEST

/* A wrong Q_Key, an unknown queue pair, and a datagram without a receive are dropped. */
START_TEST(dropped)
{
	struct ibv_send_wr wr;

	start_datagrams();
	wr = datagram(7, NULL);
	post(&a, &wr);
	expect(&a, 7, IBV_WC_SUCCESS);
	post_recv(&b, 2, 0, 200);
	wr.wr.ud.remote_qkey = QKEY + 1;
	post(&a, &wr);
	expect(&a, 7, IBV_WC_SUCCESS);
	wr.wr.ud.remote_qkey = QKEY;
	wr.wr.ud.remote_qpn = 0xfffff0;
	post(&a, &wr);
	expect(&a, 7, IBV_WC_SUCCESS);
	ck_assert_uint_eq(send_one(2).byte_len, GRH + 100);
	expect_none(&b);
	/* Bit 31: the sender's own Q_Key. */
	wr = datagram(7, NULL);
	wr.wr.ud.remote_qkey = 0x80000000;
	post_recv(&b, 3, 0, 200);
	post(&a, &wr);
	expect(&a, 7, IBV_WC_SUCCESS);
	expect(&b, 3, IBV_WC_SUCCESS);
	finish_datagrams();
}
END_TEST

/* A datagram that is too long is dropped. The receive is for the next one (IBTA 9.9.3, class E). */
START_TEST(receive_too_short)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start_datagrams();
	sge = sge_of(&a, 0, 101);
	wr = datagram(1, &sge);
	post_recv(&b, 2, 0, GRH + 100);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(send_one(2).byte_len, GRH + 100);
	finish_datagrams();
}
END_TEST

START_TEST(refused_requests)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	start_datagrams();
	sge = sge_of(&a, 0, 8);
	wr = datagram(1, &sge);
	wr.wr.ud.ah = NULL;
	refused_send(&a, &wr, EINVAL);
	wr = datagram(1, &sge);
	wr.opcode = IBV_WR_RDMA_WRITE;
	refused_send(&a, &wr, EINVAL);
	sge = sge_of(&a, 0, 5000);
	wr = datagram(1, &sge);
	refused_send(&a, &wr, EINVAL);
	finish_datagrams();
}
END_TEST

/* ---- address handles */

START_TEST(answer)
{
	struct ibv_ah_attr attr;
	struct ibv_send_wr wr;
	struct ibv_wc wc;
	struct ibv_ah *ah;
	union ibv_gid gid;

	start_datagrams();
	post_recv(&b, 2, 0, 200);
	wc = send_one(2);
	memset(&attr, 0xee, sizeof(attr));
	ok(ibv_init_ah_from_wc(b.context, 1, &wc, (struct ibv_grh *)(void *)b.memory, &attr));
	ok(ibv_query_gid(a.context, 1, 1, &gid));
	ck_assert_mem_eq(attr.grh.dgid.raw, gid.raw, 16);
	ck_assert_uint_eq(attr.grh.sgid_index, 1);
	ck_assert_uint_eq(attr.is_global, 1);
	ck_assert_uint_eq(attr.port_num, 1);
	ah = ibv_create_ah_from_wc(b.pd, &wc, (struct ibv_grh *)(void *)b.memory, 1);
	made(ah);
	wr = request(4, IBV_WR_SEND, NULL);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = wc.src_qp;
	wr.wr.ud.remote_qkey = QKEY;
	post_recv(&a, 3, 0, 200);
	post(&b, &wr);
	expect(&b, 4, IBV_WC_SUCCESS);
	ck_assert_uint_eq(expect(&a, 3, IBV_WC_SUCCESS).src_qp, b.qp->qp_num);
	ok(ibv_destroy_ah(ah));
	/* No datagram, no header, no such port. */
	refused_minus1(EINVAL,
		ibv_init_ah_from_wc(b.context, 2, &wc, (struct ibv_grh *)(void *)b.memory, &attr));
	wc.wc_flags = 0;
	refused_null(
		EINVAL, ibv_create_ah_from_wc(b.pd, &wc, (struct ibv_grh *)(void *)b.memory, 1));
	wc.wc_flags = IBV_WC_GRH;
	memset(b.memory, 0, GRH);
	refused_null(
		EINVAL, ibv_create_ah_from_wc(b.pd, &wc, (struct ibv_grh *)(void *)b.memory, 1));
	finish_datagrams();
}
END_TEST

START_TEST(refused_handles)
{
	struct ibv_ah_attr path;

	start_datagrams();
	path = own_path(a.context);
	path.is_global = 0;
	refused_null(EINVAL, ibv_create_ah(a.pd, &path));
	path = own_path(a.context);
	path.port_num = 2;
	refused_null(EINVAL, ibv_create_ah(a.pd, &path));
	path = own_path(a.context);
	path.grh.sgid_index = 99;
	refused_null(EINVAL, ibv_create_ah(a.pd, &path));
	/* A completion's service level, with bits that are none, is accepted. */
	path = own_path(a.context);
	path.sl = 0xa;
	ok(ibv_destroy_ah(to_b));
	to_b = ibv_create_ah(a.pd, &path);
	made(to_b);
	refused(EBUSY, ibv_dealloc_pd(a.pd));
	finish_datagrams();
}
END_TEST

/* ---- multicast */

/* Both queue pairs of the process have the group's datagrams, also the sender's own. */
START_LOOP_TEST(multicast, 2)
{
	/* Other programs on this machine may run the same test. */
	const union ibv_gid group = {
		.raw = { [10] = 0xff, 0xff, 239, 2, (uint8_t)(getpid() >> 8), (uint8_t)getpid() },
	};
	struct ibv_ah_attr path;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	start_datagrams();
	path = own_path(a.context);
	path.grh.dgid = group;
	ok(ibv_attach_mcast(a.qp, &group, 0));
	if (_i)
		ok(ibv_attach_mcast(b.qp, &group, 0));
	ok(ibv_destroy_ah(to_b));
	to_b = ibv_create_ah(a.pd, &path);
	made(to_b);
	if (!_i)
		ok(ibv_attach_mcast(b.qp, &group, 0));
	sge = sge_of(&a, 0, 64);
	wr = datagram(1, &sge);
	wr.wr.ud.remote_qpn = 0xffffff;
	fill(&a, 0, 64, 3);
	post_recv(&a, 2, 200, 200);
	post_recv(&b, 3, 0, 200);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&a, 2, IBV_WC_SUCCESS);
	ck_assert_uint_eq(expect(&b, 3, IBV_WC_SUCCESS).byte_len, GRH + 64);
	check_filled(&b, GRH, 64, 3);
	check_filled(&a, 200 + GRH, 64, 3);
	ok(ibv_detach_mcast(b.qp, &group, 0));
	post_recv(&b, 4, 0, 200);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	ok(ibv_detach_mcast(a.qp, &group, 0));
	ck_assert_int_ne(ibv_detach_mcast(a.qp, &group, 0), 0);
	expect_none(&b);
	finish_datagrams();
}
END_TEST

START_TEST(refused_groups)
{
	union ibv_gid gid;
	const union ibv_gid group = {
		.raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 },
	};

	start_datagrams();
	ok(ibv_query_gid(a.context, 1, 1, &gid));
	refused(EINVAL, ibv_attach_mcast(a.qp, &gid, 0));
	finish_datagrams();
	start(&(struct wants){ 0 });
	refused(EINVAL, ibv_attach_mcast(a.qp, &group, 0));
	finish();
}
END_TEST

TEST_FILE(ibverbs_datagrams)
