/* SPDX-License-Identifier: BSD-3-Clause */
/* The two ends of api_fixture.h, connected step by step by GID and queue pair number. */
#ifndef FERRULE_TESTS_UNIT_API_CONNECT_GID_FIXTURE_H
#define FERRULE_TESTS_UNIT_API_CONNECT_GID_FIXTURE_H

#include "lib/base/net/addr.h"
#include "lib/device/soft.h"
#include "tests/fixtures/api_fixture.h"

enum {
	MTU = 1024,
	PSN_A = 0x123456,
	PSN_B = 0xfffffe,
	INIT = FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS,
	UC_RTR = FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN,
	RC_RTR = UC_RTR | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER,
	UC_RTS = FRL_QP_STATE | FRL_QP_SQ_PSN,
	RC_RTS = UC_RTS | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
		FRL_QP_MAX_QP_RD_ATOMIC,
};

static inline struct frl_ip gid_of(const struct end *end, unsigned index)
{
	struct frl_gid gid;

	ok(frl_query_gid(end->device, index, &gid));
	return gid.ip;
}

static inline struct frl_qp *add_qp_of(struct end *end, enum frl_qp_type type, bool as_hardware)
{
	const struct frl_qp_attr attr = {
		.state = FRL_QPS_INIT, .port_num = 1, .access_flags = FRL_ACCESS_REMOTE_WRITE
	};
	struct frl_qp_config config = {
		.type = type,
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.max_send_wr = DEPTH,
		.max_recv_wr = DEPTH,
		.as_hardware = as_hardware,
	};
	struct frl_qp *qp;

	ok(frl_qp_create(end->pd, &config, &qp));
	ok(frl_qp_modify(qp, &attr, INIT));
	return qp;
}

/* Replaces the end's queue pair. */
static inline void renew(struct end *end, enum frl_qp_type type, bool as_hardware)
{
	frl_qp_destroy(end->qp);
	end->qp = add_qp_of(end, type, as_hardware);
}

static inline int to_rtr(struct end *end, struct frl_ip dgid, uint32_t dest_qpn, uint32_t path_mtu)
{
	const struct frl_qp_attr attr = {
		.state = FRL_QPS_RTR,
		.ah.dgid = dgid,
		.ah.sgid_index = ip_is_v4(&dgid),
		.path_mtu = path_mtu,
		.dest_qpn = dest_qpn,
		.rq_psn = end == &a ? PSN_B : PSN_A,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
	};

	return frl_qp_modify(end->qp, &attr, end->qp->type == FRL_QPT_RC ? RC_RTR : UC_RTR);
}

static inline void to_rts(struct end *end, uint8_t timeout)
{
	const struct frl_qp_attr attr = {
		.state = FRL_QPS_RTS,
		.sq_psn = end == &a ? PSN_A : PSN_B,
		.timeout = timeout,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	ok(frl_qp_modify(end->qp, &attr, end->qp->type == FRL_QPT_RC ? RC_RTS : UC_RTS));
}

static inline struct end *other(const struct end *end)
{
	return end == &a ? &b : &a;
}

static inline void *connect_by_gid(void *arg)
{
	struct end *end = arg;

	end->rc = to_rtr(end, gid_of(other(end), 1), frl_qp_num(other(end)->qp), MTU);
	if (!end->rc)
		to_rts(end, 16);
	return NULL;
}

static inline void open_both(enum frl_qp_type type, bool as_hardware)
{
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	renew(&a, type, as_hardware);
	renew(&b, type, as_hardware);
}

static inline void wait_until_failed(struct end *end)
{
	uint64_t limit_ns = hang_limit_ns();
	struct frl_qp_attr attr;

	do {
		frl_progress(end->device);
		frl_qp_query(end->qp, &attr);
	} while (attr.state != FRL_QPS_ERR && may_wait(limit_ns));
	ck_assert_int_eq(attr.state, FRL_QPS_ERR);
}

/* One message from a to b. */
static inline void send_one(void)
{
	struct frl_sge sge = sge_of(&a, 0, MESSAGE);
	struct frl_send_wr wr = send_wr(7, FRL_WR_SEND, &sge);

	memset(a.memory, 0x5a, MESSAGE);
	memset(b.memory, 0, MESSAGE);
	post_recv(9, 0, MESSAGE, false);
	post_send(&wr);
	expect(&a, 7, FRL_WC_SUCCESS);
	expect(&b, 9, FRL_WC_SUCCESS);
	ck_assert_mem_eq(a.memory, b.memory, MESSAGE);
}

static inline unsigned links_of(const struct end *end)
{
	return soft_device(end->device)->n_links;
}

#endif
