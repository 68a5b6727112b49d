/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: the states of queue pairs, their attributes, and what ends them. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <errno.h>
#include <string.h>

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

static void open_type(int type)
{
	open_ends(&(struct wants){ .type = types[type] });
}

static int init_mask(enum ibv_qp_type type)
{
	return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		(type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
}

/* Each attribute that a transition requires is left out once. */
START_LOOP_TEST(missing_attributes, ROWS(types))
{
	int init = init_mask(types[_i]), rtr = rtr_mask(types[_i]), rts = rts_mask(types[_i]);

	open_type(_i);
	for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
		if (bit & init & ~IBV_QP_STATE)
			refused(EINVAL, to_init(a.qp, 0, init & ~bit));
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_RESET);
	ok(to_init(a.qp, 0, init));
	for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
		if (bit & rtr & ~IBV_QP_STATE)
			refused(EINVAL, to_rtr(a.qp, b.qp, rtr & ~bit));
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_INIT);
	ok(to_rtr(a.qp, b.qp, rtr));
	for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
		if (bit & rts & ~IBV_QP_STATE)
			refused(EINVAL, to_rts(a.qp, 7, rts & ~bit));
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_RTR);
	ok(to_rts(a.qp, 7, rts));
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_RTS);
	finish();
}
END_TEST

/* Attributes that the transition, or the device, does not take. */
START_TEST(refused_attributes)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	const int init = init_mask(IBV_QPT_RC);

	open_type(0);
	refused(EINVAL, to_init(a.qp, 0, init | IBV_QP_QKEY));
	attr.port_num = 2;
	refused(EINVAL, ibv_modify_qp(a.qp, &attr, init));
	attr.port_num = 1;
	attr.pkey_index = 1;
	refused(EINVAL, ibv_modify_qp(a.qp, &attr, init));
	attr.pkey_index = 0;
	refused(EOPNOTSUPP, ibv_modify_qp(a.qp, &attr, init | IBV_QP_CAP));
	refused(EOPNOTSUPP, ibv_modify_qp(a.qp, &attr, init | IBV_QP_ALT_PATH));
	refused(EOPNOTSUPP, ibv_modify_qp(a.qp, &attr, init | IBV_QP_RATE_LIMIT));
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_RESET);
	/* Rights of local access and hints are accepted. */
	ok(to_init(a.qp, RIGHTS | IBV_ACCESS_RELAXED_ORDERING, init));
	finish();
}
END_TEST

static int modify_path(struct ibv_qp *qp, void (*change)(struct ibv_qp_attr *attr))
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.ah_attr = own_path(qp->context),
	};

	change(&attr);
	return ibv_modify_qp(qp, &attr, rtr_mask(qp->qp_type));
}

static void no_gid(struct ibv_qp_attr *attr)
{
	attr->ah_attr.is_global = 0;
}

static void other_port(struct ibv_qp_attr *attr)
{
	attr->ah_attr.port_num = 2;
}

static void no_such_gid_index(struct ibv_qp_attr *attr)
{
	attr->ah_attr.grh.sgid_index = 200;
}

static void multicast(struct ibv_qp_attr *attr)
{
	memset(attr->ah_attr.grh.dgid.raw, 0xff, 16);
}

static void no_mtu(struct ibv_qp_attr *attr)
{
	attr->path_mtu = 0;
}

static void large_mtu(struct ibv_qp_attr *attr)
{
	attr->path_mtu = IBV_MTU_4096 + 1;
}

static void no_peer(struct ibv_qp_attr *attr)
{
	attr->dest_qp_num = 0;
}

static void many_reads(struct ibv_qp_attr *attr)
{
	attr->max_dest_rd_atomic = 255;
}

START_TEST(refused_paths)
{
	static void (*const changes[])(struct ibv_qp_attr * attr) = { no_gid, other_port,
		no_such_gid_index, multicast, no_mtu, large_mtu, no_peer, many_reads };

	open_type(0);
	ok(to_init(a.qp, 0, 0));
	for (int i = 0; i < ROWS(changes); i++)
		ck_assert_msg(modify_path(a.qp, changes[i]) == EINVAL, "row %d", i);
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_INIT);
	finish();
}
END_TEST

/* IPv4 and link-local GIDs, and each MTU. */
START_LOOP_TEST(paths, PAIRS(2, 5))
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)(IBV_MTU_256 + _i % 5),
		.max_dest_rd_atomic = 1,
		.rq_psn = 0x123,
	};
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct end *ends[] = { &a, &b };

	open_type(0);
	for (int i = 0; i < 2; i++) {
		ok(to_init(ends[i]->qp, 0, 0));
		attr.dest_qp_num = ends[1 - i]->qp->qp_num;
		attr.rq_psn = ends[1 - i]->qp->qp_num & 0xfff;
		attr.ah_attr = own_path(a.context);
		attr.ah_attr.grh.sgid_index = (uint8_t)(_i / 5);
		ok(ibv_query_gid(a.context, 1, _i / 5, &attr.ah_attr.grh.dgid));
		ok(ibv_modify_qp(ends[i]->qp, &attr, rtr_mask(IBV_QPT_RC)));
		ok(to_rts(ends[i]->qp, 7, 0));
	}
	ok(ibv_query_qp(a.qp, &attr, IBV_QP_PATH_MTU, &init));
	ck_assert_int_eq(attr.path_mtu, IBV_MTU_256 + _i % 5);
	sge = sge_of(&a, 0, 10000);
	wr = request(1, IBV_WR_RDMA_WRITE, &sge);
	aim(&wr, &b, 0);
	fill(&a, 0, 10000, 1);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	check_filled(&b, 0, 10000, 1);
	finish();
}
END_TEST

static void expect_attributes(void)
{
	const struct ibv_ah_attr path = own_path(a.context);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	memset(&attr, 0xee, sizeof(attr));
	ok(ibv_query_qp(a.qp, &attr, -1, &init));
	ck_assert_int_eq(attr.qp_state, IBV_QPS_RTS);
	ck_assert_int_eq(attr.cur_qp_state, IBV_QPS_RTS);
	ck_assert_int_eq(attr.path_mtu, IBV_MTU_1024);
	ck_assert_int_eq(attr.path_mig_state, IBV_MIG_MIGRATED);
	ck_assert_uint_eq(attr.rq_psn, b.qp->qp_num & 0xfff);
	ck_assert_uint_eq(attr.sq_psn, a.qp->qp_num & 0xfff);
	ck_assert_uint_eq(attr.dest_qp_num, b.qp->qp_num);
	ck_assert_uint_eq(attr.qp_access_flags,
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	ck_assert_uint_eq(attr.pkey_index, 0);
	ck_assert_uint_eq(attr.port_num, 1);
	ck_assert_uint_eq(attr.max_rd_atomic, 4);
	ck_assert_uint_eq(attr.max_dest_rd_atomic, 4);
	ck_assert_uint_eq(attr.min_rnr_timer, 1);
	ck_assert_uint_eq(attr.timeout, LEAST_TIMEOUT);
	ck_assert_uint_eq(attr.retry_cnt, 7);
	ck_assert_uint_eq(attr.rnr_retry, 7);
	ck_assert_uint_eq(attr.ah_attr.is_global, 1);
	ck_assert_uint_eq(attr.ah_attr.port_num, 1);
	ck_assert_uint_eq(attr.ah_attr.grh.sgid_index, 1);
	ck_assert_uint_eq(attr.ah_attr.grh.hop_limit, 64);
	ck_assert_mem_eq(&attr.ah_attr.grh.dgid, &path.grh.dgid, 16);
	ck_assert_uint_eq(attr.cap.max_send_wr, DEPTH);
	ck_assert_mem_eq(&attr.cap, &init.cap, sizeof(init.cap));
	ck_assert_ptr_eq(init.qp_context, &a);
	ck_assert_ptr_eq(init.send_cq, a.cq);
	ck_assert_ptr_eq(init.recv_cq, a.cq);
	ck_assert_ptr_null(init.srq);
	ck_assert_int_eq(init.qp_type, IBV_QPT_RC);
	ck_assert_int_eq(init.sq_sig_all, 0);
}

/* A reset queue pair works as a new one. */
START_TEST(query_and_reset)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	start(&(struct wants){ 0 });
	expect_attributes();
	post_recv(&a, 7, 0, 8);
	ok(to_state(a.qp, IBV_QPS_RESET));
	ok(to_state(b.qp, IBV_QPS_RESET));
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_RESET);
	ok(ibv_query_qp(a.qp, &attr, -1, &init));
	ck_assert_uint_eq(attr.dest_qp_num, 0);
	ck_assert_uint_eq(attr.qp_access_flags, 0);
	connect_qps(a.qp, b.qp);
	/* The receive from before the reset is gone. */
	sync_ends(&b, &a);
	sync_ends(&a, &b);
	expect_none(&a);
	finish();
}
END_TEST

/* ---- transitions */

START_LOOP_TEST(wrong_transitions, ROWS(types))
{
	open_type(_i);
	refused(EINVAL, to_rtr(a.qp, b.qp, 0));
	refused(EINVAL, to_rts(a.qp, 7, 0));
	refused(EINVAL, to_state(a.qp, IBV_QPS_SQD));
	ok(to_init(a.qp, 0, 0));
	refused(EINVAL, to_rts(a.qp, 7, 0));
	refused(EINVAL, to_state(a.qp, IBV_QPS_SQD));
	ok(to_init(a.qp, 0, 0));
	ok(to_rtr(a.qp, b.qp, 0));
	refused(EINVAL, to_rtr(a.qp, b.qp, 0));
	refused(EINVAL, to_init(a.qp, 0, 0));
	refused(EINVAL, to_state(a.qp, IBV_QPS_SQD));
	ok(to_rts(a.qp, 7, 0));
	refused(EINVAL, to_rtr(a.qp, b.qp, 0));
	refused(EINVAL, to_state(a.qp, (enum ibv_qp_state)99));
	ok(to_state(a.qp, IBV_QPS_ERR));
	refused(EINVAL, to_state(a.qp, IBV_QPS_RTS));
	ok(to_state(a.qp, IBV_QPS_ERR));
	ok(to_state(a.qp, IBV_QPS_RESET));
	finish();
}
END_TEST

START_TEST(current_state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_RTR };

	start(&(struct wants){ 0 });
	refused(EINVAL, ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
	attr.cur_qp_state = IBV_QPS_RTS;
	ok(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
	attr.min_rnr_timer = 9;
	ok(ibv_modify_qp(a.qp, &attr, IBV_QP_MIN_RNR_TIMER));
	ck_assert_int_eq(state_of(a.qp), IBV_QPS_RTS);
	finish();
}
END_TEST

/* Sends need RTS, receives INIT. */
START_LOOP_TEST(posting_by_state, ROWS(types))
{
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad;
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);

	open_type(_i);
	refused_send(&a, &wr, EINVAL);
	refused(EINVAL, ibv_post_recv(a.qp, &recv, &bad));
	ck_assert_ptr_eq(bad, &recv);
	ok(to_init(a.qp, 0, 0));
	refused_send(&a, &wr, EINVAL);
	ok(ibv_post_recv(a.qp, &recv, &bad));
	ok(to_rtr(a.qp, b.qp, 0));
	refused_send(&a, &wr, EINVAL);
	ok(ibv_post_recv(a.qp, &recv, &bad));
	finish();
}
END_TEST

/* In ERR all requests are flushed, in their order, and so are those that are posted later. */
START_LOOP_TEST(flush, ROWS(types))
{
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);

	start(&(struct wants){ .type = types[_i] });
	if (types[_i] == IBV_QPT_RC) {
		post(&a, &wr);
		wr.wr_id = 2;
		wr.send_flags = 0;
		post(&a, &wr);
	}
	post_recv(&a, 11, 0, 8);
	post_recv(&a, 12, 0, 8);
	ok(to_state(a.qp, IBV_QPS_ERR));
	ck_assert_int_eq(a.qp->state, IBV_QPS_ERR);
	if (types[_i] == IBV_QPT_RC) {
		expect(&a, 1, IBV_WC_WR_FLUSH_ERR);
		expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
	}
	expect(&a, 11, IBV_WC_WR_FLUSH_ERR);
	expect(&a, 12, IBV_WC_WR_FLUSH_ERR);
	post_recv(&a, 13, 0, 8);
	expect(&a, 13, IBV_WC_WR_FLUSH_ERR);
	wr.wr_id = 3;
	post(&a, &wr);
	expect(&a, 3, IBV_WC_WR_FLUSH_ERR);
	expect_none(&a);
	finish();
}
END_TEST

/* ---- SQD */

START_TEST(drained)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);
	struct ibv_async_event event;
	struct ibv_qp_init_attr init;

	start(&(struct wants){ 0 });
	/* It cannot complete before the peer has a receive. */
	post(&a, &wr);
	expect_none(&a);
	ok(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	ok(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init));
	ck_assert_int_eq(attr.qp_state, IBV_QPS_SQD);
	ck_assert_uint_eq(attr.sq_draining, 1);
	expect_no_event(a.context);
	wr.wr_id = 2;
	post(&a, &wr);
	post_recv(&b, 5, 0, 0);
	expect(&a, 1, IBV_WC_SUCCESS);
	event = next_event(a.context, IBV_EVENT_SQ_DRAINED);
	ck_assert_ptr_eq(event.element.qp, a.qp);
	ibv_ack_async_event(&event);
	ok(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init));
	ck_assert_uint_eq(attr.sq_draining, 0);
	expect(&b, 5, IBV_WC_SUCCESS);
	/* The second one waits for RTS. */
	post_recv(&b, 6, 0, 0);
	expect_none(&a);
	ok(to_state(a.qp, IBV_QPS_RTS));
	expect(&a, 2, IBV_WC_SUCCESS);
	expect(&b, 6, IBV_WC_SUCCESS);
	finish();
}
END_TEST

/* ---- events */

START_TEST(established)
{
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);
	struct ibv_async_event event;

	start_half(&(struct wants){ 0 });
	post_recv(&b, 2, 0, 0);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&b, 2, IBV_WC_SUCCESS);
	event = next_event(b.context, IBV_EVENT_COMM_EST);
	ck_assert_ptr_eq(event.element.qp, b.qp);
	ibv_ack_async_event(&event);
	ok(to_rts(b.qp, 7, 0));
	sync_ends(&b, &a);
	expect_no_event(a.context);
	expect_no_event(b.context);
	finish();
}
END_TEST

/* A queue pair in ERR takes no more from its shared queue. */
START_TEST(last_request_of_srq)
{
	struct ibv_async_event event;

	start(&(struct wants){ .has_srq = true });
	ok(to_state(a.qp, IBV_QPS_ERR));
	event = next_event(a.context, IBV_EVENT_QP_LAST_WQE_REACHED);
	ck_assert_ptr_eq(event.element.qp, a.qp);
	ibv_ack_async_event(&event);
	expect_no_event(b.context);
	finish();
}
END_TEST

/* ---- creation */

START_TEST(refused_creations)
{
	struct ibv_qp_init_attr attr;

	open_type(0);
	attr = (struct ibv_qp_init_attr){ .send_cq = a.cq, .recv_cq = a.cq };
	attr.cap = (struct ibv_qp_cap){ 1, 1, 1, 1, 0 };
	attr.qp_type = IBV_QPT_RAW_PACKET;
	refused_null(EOPNOTSUPP, ibv_create_qp(a.pd, &attr));
	attr.qp_type = IBV_QPT_XRC_SEND;
	refused_null(EOPNOTSUPP, ibv_create_qp(a.pd, &attr));
	attr.qp_type = IBV_QPT_RC;
	attr.cap.max_send_wr = 1 << 20;
	refused_null(EINVAL, ibv_create_qp(a.pd, &attr));
	attr.cap.max_send_wr = 1;
	attr.cap.max_recv_wr = 1 << 20;
	refused_null(EINVAL, ibv_create_qp(a.pd, &attr));
	attr.cap.max_recv_wr = 1;
	attr.cap.max_send_sge = 1000;
	refused_null(EINVAL, ibv_create_qp(a.pd, &attr));
	attr.cap.max_send_sge = 1;
	attr.cap.max_inline_data = 1 << 20;
	refused_null(EINVAL, ibv_create_qp(a.pd, &attr));
	attr.cap.max_inline_data = 0;
	attr.send_cq = NULL;
	refused_null(EINVAL, ibv_create_qp(a.pd, &attr));
	finish();
}
END_TEST

/* The limits that the device names are granted, and no room at all is too. */
START_TEST(capabilities)
{
	struct ibv_device_attr device;
	struct ibv_qp_init_attr attr;
	struct ibv_qp *qp;

	open_type(0);
	ok(ibv_query_device(a.context, &device));
	attr = (struct ibv_qp_init_attr){ .send_cq = a.cq, .recv_cq = b.cq, .qp_type = IBV_QPT_RC };
	attr.cap.max_send_wr = attr.cap.max_recv_wr = (uint32_t)device.max_qp_wr;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = (uint32_t)device.max_sge;
	attr.cap.max_inline_data = 236;
	qp = ibv_create_qp(a.pd, &attr);
	made(qp);
	ck_assert_uint_ge(attr.cap.max_inline_data, 236);
	ck_assert_uint_ge(attr.cap.max_send_wr, (uint32_t)device.max_qp_wr);
	ok(ibv_destroy_qp(qp));
	memset(&attr.cap, 0, sizeof(attr.cap));
	qp = ibv_create_qp(a.pd, &attr);
	made(qp);
	ck_assert_ptr_eq(qp->send_cq, a.cq);
	ck_assert_ptr_eq(qp->recv_cq, b.cq);
	ck_assert_ptr_eq(qp->pd, a.pd);
	ck_assert_ptr_eq(qp->context, a.context);
	ck_assert_int_eq(qp->state, IBV_QPS_RESET);
	ck_assert_uint_ne(qp->qp_num, a.qp->qp_num);
	ok(ibv_destroy_qp(qp));
	finish();
}
END_TEST

/* Completions that were not polled go with the queue pair, or with its reset. Other queue pairs
 * keep theirs. */
START_LOOP_TEST(completions_go, 2)
{
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);
	struct ibv_recv_wr recv = { .wr_id = 7 }, *bad;
	struct ibv_qp *qp;

	start(&(struct wants){ 0 });
	qp = create_qp(&b, &(struct wants){ 0 });
	ok(to_init(qp, RIGHTS, 0));
	ok(ibv_post_recv(qp, &recv, &bad));
	post_recv(&b, 2, 0, 0);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	/* Flushes the receive. */
	ok(to_state(qp, IBV_QPS_ERR));
	ok(_i ? ibv_destroy_qp(qp) : to_state(qp, IBV_QPS_RESET));
	expect(&b, 2, IBV_WC_SUCCESS);
	post_recv(&b, 3, 0, 0);
	post(&a, &wr);
	/* The message has arrived when it is acknowledged. */
	expect(&a, 1, IBV_WC_SUCCESS);
	if (_i) {
		destroy_qp(&b);
	} else {
		ok(to_state(b.qp, IBV_QPS_RESET));
		ok(ibv_destroy_qp(qp));
	}
	expect_none(&b);
	finish();
}
END_TEST

TEST_FILE(ibverbs_states)
