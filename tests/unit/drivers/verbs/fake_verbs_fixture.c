/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ends on devices in memory. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <time.h>

#include "tests/unit/drivers/verbs/fake_verbs_fixture.h"
#include "tests/fixtures/patience.h"

enum {
	ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
};

void fixture_plug(struct fixture *fixture, uint16_t pkey, enum ibv_mtu active_mtu)
{
	struct fake_verbs_device device;

	fake_verbs_reset();
	memset(fixture, 0, sizeof(*fixture));
	fake_verbs_device_init(&device, "fake0", "10.0.0.1");
	fake_verbs_add(&device);
	fake_verbs_device_init(&device, "fake1", "10.0.0.2");
	device.ports[0].pkeys[0] = pkey;
	device.ports[0].active_mtu = active_mtu;
	fake_verbs_add(&device);
}

static void make_qp(struct fixture_end *end, const struct fixture_wants *wants)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.srq = end->srq,
		.cap = { 16, 16, 4, 4, 64 },
		.qp_type = wants->type ? wants->type : IBV_QPT_RC,
	};

	end->qp = ibv_create_qp(end->pd, &attr);
	ck_assert_ptr_nonnull(end->qp);
}

static void open_end(
	struct fixture_end *end, struct ibv_device *device, const struct fixture_wants *wants)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 4 } };

	end->context = ibv_open_device(device);
	ck_assert_ptr_nonnull(end->context);
	end->pd = ibv_alloc_pd(end->context);
	end->channel = ibv_create_comp_channel(end->context);
	end->cq = ibv_create_cq(end->context, 64, NULL, end->channel, 0);
	ck_assert(end->pd && end->channel && end->cq);
	end->srq = wants->has_srq ? ibv_create_srq(end->pd, &srq) : NULL;
	end->mr = ibv_reg_mr(end->pd, end->bytes, sizeof(end->bytes), ALL_ACCESS);
	ck_assert_ptr_nonnull(end->mr);
	/* RoCE v2 by IPv4, as fake_verbs_device_init() lays it; else the first entry. */
	end->sgid_index = 3;
	ck_assert_int_eq(ibv_query_gid(end->context, 1, 0, &end->gid), 0);
	if (ibv_query_gid(end->context, 1, end->sgid_index, &end->gid) != 0)
		end->sgid_index = 0;
	make_qp(end, wants);
}

void fixture_open(struct fixture *fixture, const struct fixture_wants *wants)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	ck_assert(list && n > 0);
	for (int i = 0; i < 2; i++)
		open_end(&fixture->ends[i], list[n > 1 ? i : 0], wants);
	ibv_free_device_list(list);
	if (wants->is_connected)
		fixture_connect(fixture, wants);
}

void fixture_close(struct fixture *fixture)
{
	for (int i = 0; i < 2; i++) {
		struct fixture_end *end = &fixture->ends[i];

		if (!end->context)
			continue;
		ck_assert_int_eq(ibv_destroy_qp(end->qp), 0);
		ck_assert_int_eq(end->srq ? ibv_destroy_srq(end->srq) : 0, 0);
		ck_assert_int_eq(ibv_destroy_cq(end->cq), 0);
		ck_assert_int_eq(ibv_destroy_comp_channel(end->channel), 0);
		ck_assert_int_eq(ibv_dereg_mr(end->mr), 0);
		ck_assert_int_eq(ibv_dealloc_pd(end->pd), 0);
		ck_assert_int_eq(ibv_close_device(end->context), 0);
	}
	ck_assert_str_eq(fake_verbs_leaks(), "");
}

static int to_rtr(struct fixture_end *end, const struct fixture_end *peer,
	const struct fixture_wants *wants, uint32_t rq_psn)
{
	enum ibv_qp_type type = end->qp->qp_type;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = wants->mtu ? wants->mtu : IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = rq_psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	int mask = IBV_QP_STATE;

	attr.ah_attr.grh.dgid = peer->gid;
	attr.ah_attr.grh.sgid_index = (uint8_t)end->sgid_index;
	attr.ah_attr.grh.hop_limit = 64;
	if (type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(end->qp, &attr, mask);
}

int fixture_move(struct fixture_end *end, const struct fixture_end *peer,
	const struct fixture_wants *wants, uint32_t sq_psn, uint32_t rq_psn)
{
	enum ibv_qp_type type = end->qp->qp_type;
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = FIXTURE_QKEY,
		.qp_access_flags = ALL_ACCESS & ~wants->access,
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = sq_psn,
		.timeout = wants->timeout ? wants->timeout : 1,
		.retry_cnt = wants->retry_cnt ? wants->retry_cnt : 1,
		.rnr_retry = wants->rnr_retry,
		.max_rd_atomic = wants->max_rd_atomic == 0 ? 4
			: wants->max_rd_atomic == 255      ? 0
							   : wants->max_rd_atomic,
	};
	int err = ibv_modify_qp(end->qp, &init,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));

	if (err == 0)
		err = to_rtr(end, peer, wants, rq_psn);
	if (err != 0)
		return err;
	return ibv_modify_qp(end->qp, &rts,
		IBV_QP_STATE | IBV_QP_SQ_PSN |
			(type == IBV_QPT_RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC
					    : 0));
}

void fixture_connect(struct fixture *fixture, const struct fixture_wants *wants)
{
	struct fixture_wants own = *wants;

	own.mtu = 0;
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_int_eq(fixture_move(&fixture->ends[i], &fixture->ends[1 - i],
					 i ? wants : &own, 100 + i, 101 - i + wants->psn_gap),
			0);
}

struct ibv_sge fixture_sge(const struct fixture_end *end, uint32_t offset, uint32_t length)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)end->bytes + offset, .length = length, .lkey = end->mr->lkey
	};
}

void fixture_post_recv(struct fixture_end *end, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = fixture_sge(end, offset, length);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (end->srq)
		ck_assert_int_eq(ibv_post_srq_recv(end->srq, &wr, &bad), 0);
	else
		ck_assert_int_eq(ibv_post_recv(end->qp, &wr, &bad), 0);
}

int fixture_post(struct fixture_end *end, enum ibv_wr_opcode opcode, unsigned flags,
	const struct ibv_sge *sge, uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge own = *sge;
	struct ibv_send_wr wr = {
		.wr_id = (uint64_t)opcode + 1000,
		.sg_list = &own,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = flags,
	};
	struct ibv_send_wr *bad;

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote_addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = 77;
	} else {
		wr.wr.rdma.remote_addr = remote_addr;
		wr.wr.rdma.rkey = rkey;
		wr.imm_data = htobe32(0xcafe);
	}
	return ibv_post_send(end->qp, &wr, &bad);
}

struct ibv_wc fixture_expect(struct fixture_end *end, enum ibv_wc_status status)
{
	struct timespec pause = { 0, 100000 };
	struct ibv_wc wc = { 0 };
	int n = 0;

	for (uint64_t limit_ns = hang_limit_ns(); n == 0 && may_wait(limit_ns);) {
		n = ibv_poll_cq(end->cq, 1, &wc);
		if (n == 0)
			nanosleep(&pause, NULL);
	}
	ck_assert_int_eq(n, 1);
	ck_assert_str_eq(ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
	ck_assert_uint_eq(wc.qp_num, end->qp->qp_num);
	return wc;
}

void fixture_expect_none(struct fixture_end *end)
{
	struct ibv_wc wc;

	ck_assert_int_eq(ibv_poll_cq(end->cq, 1, &wc), 0);
}

struct ibv_async_event fixture_event(struct fixture_end *end, enum ibv_event_type type)
{
	struct pollfd waits = { .fd = end->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	ck_assert_int_eq(poll(&waits, 1, HANG_MS), 1);
	ck_assert_int_eq(ibv_get_async_event(end->context, &event), 0);
	ck_assert_str_eq(ibv_event_type_str(event.event_type), ibv_event_type_str(type));
	ibv_ack_async_event(&event);
	return event;
}
