/* SPDX-License-Identifier: BSD-3-Clause */
/* States and attributes of queue pairs. */
#include <errno.h>

#include "dropin/ibverbs/dropin.h"

/* Attributes with the same bit and meaning in Ferrule. */
static const uint32_t same_bits = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY |
	IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_AV |
	IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN |
	IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	IBV_QP_DEST_QPN;

static uint32_t bytes_of(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? UINT32_C(128) << mtu : 0;
}

static enum ibv_mtu mtu_of(uint32_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && bytes_of(mtu) < bytes)
		mtu++;
	return mtu;
}

/* Returns an errno. */
static int check_mask(const struct ibv_qp_attr *attr, uint32_t mask)
{
	/* There is one path, so its only state is "migrated". */
	if ((mask & IBV_QP_PATH_MIG_STATE) && attr->path_mig_state != IBV_MIG_MIGRATED)
		return dropin_refuse(EOPNOTSUPP, "alternate paths are not supported");
	if (mask & ~(same_bits | IBV_QP_PATH_MIG_STATE))
		return dropin_refuse(EOPNOTSUPP,
			"ibv_modify_qp: alternate paths, rate limits and new queue sizes are not "
			"supported");
	return 0;
}

static struct frl_qp_attr to_frl(const struct ibv_qp_attr *attr)
{
	return (struct frl_qp_attr){
		.state = (enum frl_qp_state)attr->qp_state,
		.cur_state = (enum frl_qp_state)attr->cur_qp_state,
		.en_sqd_async_notify = attr->en_sqd_async_notify,
		/* The rights of local access and hints do not concern the peer. */
		.access_flags = (uint32_t)attr->qp_access_flags &
			(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC),
		.pkey_index = attr->pkey_index,
		.port_num = attr->port_num,
		.qkey = attr->qkey,
		.path_mtu = bytes_of(attr->path_mtu),
		.dest_qpn = attr->dest_qp_num & 0xffffff,
		.rq_psn = attr->rq_psn & 0xffffff,
		.sq_psn = attr->sq_psn & 0xffffff,
		.max_rd_atomic = attr->max_rd_atomic,
		.max_dest_rd_atomic = attr->max_dest_rd_atomic,
		.min_rnr_timer = attr->min_rnr_timer,
		.timeout = attr->timeout,
		.retry_cnt = attr->retry_cnt,
		.rnr_retry = attr->rnr_retry,
	};
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct dropin_qp *qp = dropin_qp(ibv);
	struct frl_qp_attr wanted = to_frl(attr);
	int rc, err = check_mask(attr, (uint32_t)mask);

	if (!err && (mask & IBV_QP_AV))
		err = ah_attr_to_frl(&attr->ah_attr, &wanted.ah);
	if (err)
		return err;
	rc = frl_qp_modify(qp->frl, &wanted, (uint32_t)mask & same_bits);
	if (rc)
		return dropin_errno(rc);
	if (mask & IBV_QP_STATE)
		ibv->state = attr->qp_state;
	return 0;
}

static void from_frl(const struct frl_qp_attr *from, struct ibv_qp_attr *attr)
{
	*attr = (struct ibv_qp_attr){
		.qp_state = (enum ibv_qp_state)from->state,
		.cur_qp_state = (enum ibv_qp_state)from->state,
		.path_mtu = mtu_of(from->path_mtu),
		.path_mig_state = IBV_MIG_MIGRATED,
		.qkey = from->qkey,
		.rq_psn = from->rq_psn,
		.sq_psn = from->sq_psn,
		.dest_qp_num = from->dest_qpn,
		.qp_access_flags = from->access_flags,
		.pkey_index = from->pkey_index,
		.en_sqd_async_notify = from->en_sqd_async_notify,
		.sq_draining = from->sq_draining,
		.max_rd_atomic = from->max_rd_atomic,
		.max_dest_rd_atomic = from->max_dest_rd_atomic,
		.min_rnr_timer = from->min_rnr_timer,
		.port_num = from->port_num,
		.timeout = from->timeout,
		.retry_cnt = from->retry_cnt,
		.rnr_retry = from->rnr_retry,
	};
	ah_attr_from_frl(&from->ah, &attr->ah_attr);
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *ret_attr, int mask,
	struct ibv_qp_init_attr *ret_init)
{
	struct dropin_qp *qp = dropin_qp(ibv);
	struct frl_qp_attr now;

	frl_qp_query(qp->frl, &now);
	from_frl(&now, ret_attr);
	ret_attr->cap = qp->cap;
	*ret_init = (struct ibv_qp_init_attr){
		.qp_context = ibv->qp_context,
		.send_cq = ibv->send_cq,
		.recv_cq = ibv->recv_cq,
		.srq = ibv->srq,
		.cap = qp->cap,
		.qp_type = ibv->qp_type,
		.sq_sig_all = qp->sq_sig_all,
	};
	ibv->state = ret_attr->qp_state;
	return 0;
}
