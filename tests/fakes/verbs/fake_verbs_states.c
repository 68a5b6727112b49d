/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: the allowed changes of a QP's state and attributes. */
#include <errno.h>

#include "tests/fakes/verbs/fake_verbs_internal.h"

enum {
	RC = 1,
	UC = 2,
	UD = 4,
	RAW = 8,
	CONNECTED = RC | UC,
	MAY = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS,
	MAY_LATER = MAY | IBV_QP_CUR_STATE | IBV_QP_PATH_MIG_STATE,
};

/* InfiniBand specification, "Modify Queue Pair": required and optional attributes. Every QP may go
 * to RESET and to ERR, with nothing but its state. */
static const struct {
	enum ibv_qp_state from, to;
	int types, required, optional;
} changes[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, CONNECTED,
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0 },
	{ IBV_QPS_RESET, IBV_QPS_INIT, UD, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0 },
	{ IBV_QPS_RESET, IBV_QPS_INIT, RAW, IBV_QP_PORT, 0 },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RAW, 0, 0 },
	{ IBV_QPS_RTR, IBV_QPS_RTS, RAW, 0, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, CONNECTED, 0,
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
	{ IBV_QPS_INIT, IBV_QPS_INIT, UD, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RC,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		MAY | IBV_QP_PKEY_INDEX },
	{ IBV_QPS_INIT, IBV_QPS_RTR, UC,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
		MAY | IBV_QP_PKEY_INDEX },
	{ IBV_QPS_INIT, IBV_QPS_RTR, UD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
	{ IBV_QPS_RTR, IBV_QPS_RTS, RC,
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC,
		MAY_LATER | IBV_QP_MIN_RNR_TIMER },
	{ IBV_QPS_RTR, IBV_QPS_RTS, UC, IBV_QP_SQ_PSN, MAY_LATER },
	{ IBV_QPS_RTR, IBV_QPS_RTS, UD, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ IBV_QPS_RTS, IBV_QPS_RTS, RC, 0, MAY_LATER | IBV_QP_MIN_RNR_TIMER },
	{ IBV_QPS_RTS, IBV_QPS_RTS, UC, 0, MAY_LATER },
	{ IBV_QPS_RTS, IBV_QPS_RTS, UD, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ IBV_QPS_RTS, IBV_QPS_SQD, RC | UC | UD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_SQD, IBV_QPS_RTS, RC, 0, MAY_LATER | IBV_QP_MIN_RNR_TIMER },
	{ IBV_QPS_SQD, IBV_QPS_RTS, UC, 0, MAY_LATER },
	{ IBV_QPS_SQD, IBV_QPS_RTS, UD, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ IBV_QPS_SQE, IBV_QPS_RTS, UC, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS },
	{ IBV_QPS_SQE, IBV_QPS_RTS, UD, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
};

static int bit_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC: return RC;
	case IBV_QPT_UC: return UC;
	case IBV_QPT_RAW_PACKET: return RAW;
	default: return UD;
	}
}

static bool is_change(enum ibv_qp_state from, enum ibv_qp_state to, enum ibv_qp_type type, int mask)
{
	int is = bit_of(type);

	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return (mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE)) == 0;
	mask &= ~IBV_QP_STATE;
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
		if (changes[i].from == from && changes[i].to == to && (changes[i].types & is))
			return (mask & changes[i].required) == changes[i].required &&
				(mask & ~(changes[i].required | changes[i].optional)) == 0;
	return false;
}

/* Checks the values. Returns an errno value, or 0. */
static int check_values(struct fake_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct fake_device *device = qp->object.device;
	const struct ibv_device_attr *is = &device->is.attr;
	unsigned number = mask & IBV_QP_PORT ? attr->port_num : qp->attr.port_num;
	const struct fake_verbs_port *port = fake_port_of(device, number);

	if (!port && (mask & (IBV_QP_PORT | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_PKEY_INDEX)))
		return EINVAL;
	if ((mask & IBV_QP_PKEY_INDEX) &&
		(attr->pkey_index >= FAKE_VERBS_PKEYS || port->pkeys[attr->pkey_index] == 0))
		return EINVAL;
	if ((mask & IBV_QP_PATH_MTU) &&
		(attr->path_mtu < IBV_MTU_256 || attr->path_mtu > port->active_mtu))
		return EINVAL;
	if (((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > is->max_qp_init_rd_atom) ||
		((mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
			attr->max_dest_rd_atomic > is->max_qp_rd_atom))
		return EINVAL;
	if (((mask & IBV_QP_TIMEOUT) && attr->timeout > 31) ||
		((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31) ||
		((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > 7) ||
		((mask & IBV_QP_RNR_RETRY) && attr->rnr_retry > 7) ||
		((mask & IBV_QP_DEST_QPN) && attr->dest_qp_num >> 24 != 0) ||
		((mask & IBV_QP_ACCESS_FLAGS) &&
			(attr->qp_access_flags &
				~(unsigned)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
					IBV_ACCESS_MW_BIND)) != 0))
		return EINVAL;
	if (!(mask & IBV_QP_AV))
		return 0;
	if (attr->ah_attr.port_num != number)
		return EINVAL;
	return fake_check_path(device, &attr->ah_attr);
}

/* The path MTU is checked against the active MTU; rxe checks it against the largest one. */
static void set_values(struct fake_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *is = &qp->attr;

#define SET(bit, field)                          \
	do {                                     \
		if (mask & (bit))                \
			is->field = attr->field; \
	} while (0)
	SET(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
	SET(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	SET(IBV_QP_PKEY_INDEX, pkey_index);
	SET(IBV_QP_PORT, port_num);
	SET(IBV_QP_QKEY, qkey);
	SET(IBV_QP_AV, ah_attr);
	SET(IBV_QP_PATH_MTU, path_mtu);
	SET(IBV_QP_TIMEOUT, timeout);
	SET(IBV_QP_RETRY_CNT, retry_cnt);
	SET(IBV_QP_RNR_RETRY, rnr_retry);
	SET(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	SET(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	SET(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	SET(IBV_QP_DEST_QPN, dest_qp_num);
	SET(IBV_QP_RQ_PSN, rq_psn);
	SET(IBV_QP_SQ_PSN, sq_psn);
#undef SET
	if (mask & IBV_QP_RQ_PSN)
		qp->expected_psn = attr->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		qp->psn = attr->sq_psn & 0xffffff;
}

void fake_qp_flush(struct fake_qp *qp)
{
	struct fake_recv_ring *ring = &qp->recvs;
	struct fake_cqe cqe = { .qp = qp };

	if (qp->is_late)
		return;
	while ((qp->ibv.state == IBV_QPS_ERR || qp->ibv.state == IBV_QPS_SQE) &&
		qp->done != qp->posted)
		fake_complete_send(qp, IBV_WC_WR_FLUSH_ERR);
	cqe.wc.status = IBV_WC_WR_FLUSH_ERR;
	cqe.wc.opcode = IBV_WC_RECV;
	cqe.wc.qp_num = qp->ibv.qp_num;
	cqe.wc.vendor_err = 0x80u + IBV_WC_WR_FLUSH_ERR;
	for (; qp->ibv.state == IBV_QPS_ERR && ring->taken != ring->posted; ring->taken++) {
		cqe.wc.wr_id = ring->slots[ring->taken % ring->max_wr].wr_id;
		fake_cq_add(FAKE_OF(struct fake_cq, ibv, qp->ibv.recv_cq), &cqe, false);
	}
}

void fake_qp_fail(struct fake_qp *qp, enum ibv_qp_state state)
{
	enum ibv_qp_state was = qp->ibv.state;

	if (was == IBV_QPS_ERR)
		return;
	qp->ibv.state = state;
	qp->blocked = FAKE_RUNS;
	fake_qp_flush(qp);
	/* No more receives of the SRQ will be taken. */
	if (state == IBV_QPS_ERR && qp->ibv.srq && was != IBV_QPS_RESET && was != IBV_QPS_INIT)
		fake_event_raise(&qp->object, IBV_EVENT_QP_LAST_WQE_REACHED);
}

static void reset(struct fake_qp *qp)
{
	bool keep = qp->object.device->is.keeps_completions;

	fake_cq_forget(FAKE_OF(struct fake_cq, ibv, qp->ibv.send_cq), &qp->object, keep);
	fake_cq_forget(FAKE_OF(struct fake_cq, ibv, qp->ibv.recv_cq), &qp->object, keep);
	qp->posted = qp->done = qp->freed = 0;
	qp->recvs.posted = qp->recvs.taken = qp->recvs.polled = 0;
	qp->psn = qp->expected_psn = 0;
	qp->has_heard = false;
	qp->blocked = FAKE_RUNS;
	memset(&qp->attr, 0, sizeof(qp->attr));
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = FAKE_OF(struct fake_qp, ibv, ibv);
	enum ibv_qp_state from, to;
	int err = fake_enter(__func__, FAKE_CALL_MAKES, qp->object.device);

	if (err != 0)
		return err;
	from = ibv->state;
	to = mask & IBV_QP_STATE ? attr->qp_state : from;
	if (((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from) ||
		!is_change(from, to, ibv->qp_type, mask))
		err = EINVAL;
	else
		err = check_values(qp, attr, mask);
	if (err == 0) {
		set_values(qp, attr, mask);
		qp->is_late = to == IBV_QPS_ERR && qp->object.device->is.flushes_late;
		if (to == IBV_QPS_ERR)
			fake_qp_fail(qp, IBV_QPS_ERR);
		if (to == IBV_QPS_RESET)
			reset(qp);
		ibv->state = to;
		fake_wire_run();
	}
	fake_stand_still("ibv_modify_qp, done");
	fake_leave();
	return err;
}
