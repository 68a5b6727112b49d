/* SPDX-License-Identifier: BSD-3-Clause */
/* State transitions and attributes of a queue pair. IBTA volume 1, 11.2.5.2. */
#include "lib/protocol/qp_internal.h"
#include "lib/protocol/recovery.h"

#include <errno.h>

#include "lib/base/qp_rules.h"

static enum frl_qp_state target(const struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	return mask & FRL_QP_STATE ? attr->state : qp->state;
}

const char *qp_check_modify(const struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	const struct qp_rules_subject subject = { qp->type, qp->state, requester_drained(qp) };

	return qp_rules_check(&subject, attr, mask);
}

static void take_path(struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	struct frl_qp_attr *own = &qp->attr;

	if (mask & FRL_QP_AV) {
		own->ah = attr->ah;
		qp->remote_ip = attr->ah.dgid;
	}
	if (mask & FRL_QP_PATH_MTU)
		own->path_mtu = qp->path_mtu = attr->path_mtu;
	if (mask & FRL_QP_DEST_QPN)
		own->dest_qpn = qp->dest_qpn = attr->dest_qpn;
	if (mask & FRL_QP_CAPABILITIES)
		own->capabilities = qp->capabilities = attr->capabilities;
	if (mask & FRL_QP_PKEY_INDEX)
		own->pkey_index = attr->pkey_index;
	if (mask & FRL_QP_PORT)
		own->port_num = attr->port_num;
	if (mask & FRL_QP_QKEY)
		own->qkey = attr->qkey;
	if (qp->type == FRL_QPT_GSI)
		own->qkey = QKEY_GSI;
	qp->qkey = own->qkey;
}

/* rxe rounds the negotiated number up to a power of two, and has as many outstanding. */
static uint32_t slots_for(uint32_t depth)
{
	uint32_t slots = 1;

	while (slots < depth)
		slots *= 2;
	return depth ? slots : 0;
}

static void take_responder(struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	struct frl_qp_attr *own = &qp->attr;

	if (mask & FRL_QP_ACCESS_FLAGS)
		own->access_flags = attr->access_flags;
	if (mask & FRL_QP_RQ_PSN) {
		own->rq_psn = attr->rq_psn;
		qp->responder.epsn = psn_make(attr->rq_psn);
	}
	if (mask & FRL_QP_MIN_RNR_TIMER)
		own->min_rnr_timer = attr->min_rnr_timer;
	if (mask & FRL_QP_MAX_DEST_RD_ATOMIC) {
		own->max_dest_rd_atomic = attr->max_dest_rd_atomic;
		qp->responder.n_resources = slots_for(attr->max_dest_rd_atomic);
	}
}

static void take_requester(struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	struct frl_qp_attr *own = &qp->attr;

	if (mask & FRL_QP_SQ_PSN) {
		struct requester *r = &qp->requester;

		own->sq_psn = attr->sq_psn;
		r->una = r->next = r->sent_end = r->end = psn_make(attr->sq_psn);
	}
	if (mask & FRL_QP_TIMEOUT)
		own->timeout = attr->timeout;
	if (mask & FRL_QP_RETRY_CNT)
		own->retry_cnt = attr->retry_cnt;
	if (mask & FRL_QP_RNR_RETRY)
		own->rnr_retry = attr->rnr_retry;
	if (mask & FRL_QP_MAX_QP_RD_ATOMIC)
		own->max_rd_atomic = attr->max_rd_atomic;
	/* No timer runs from RTR to RTS, or when drained. */
	if (mask & (FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY))
		recovery_init(qp);
}

static void reset(struct qp *qp)
{
	struct requester *r = &qp->requester;
	struct responder *q = &qp->responder;

	*r = (struct requester){
		.wqes = r->wqes,
		.mask = r->mask,
		.size = r->size,
		.window = r->window,
		.slack = r->slack,
	};
	qp_forget_completions(qp);
	resource_reset(qp);
	q->queue.head = q->queue.tail = 0;
	*q = (struct responder){
		.queue = q->queue,
		.srq = q->srq,
		.srq_wqe = { .sge = q->srq_wqe.sge },
		.resources = q->resources,
	};
	qp->attr = (struct frl_qp_attr){ 0 };
	qp->remote_ip = (struct frl_ip){ { 0 } };
	qp->dest_qpn = 0;
	if (!qp_is_datagram(qp))
		qp->path_mtu = 0;
	qp->capabilities = 0;
	qp->comm_est = false;
	qp->counts = (struct qp_counts){ 0 };
	qp->error = NULL;
	qp->error_status = FRL_WC_SUCCESS;
	recovery_stop(qp);
}

/* Changes the state, apart from the attributes. */
static void enter(struct qp *qp, enum frl_qp_state to)
{
	struct requester *r = &qp->requester;
	bool drains = to == FRL_QPS_SQD && qp->state != FRL_QPS_SQD;

	qp->state = qp->attr.state = to;
	if (drains) {
		r->stop = requester_started(r);
		r->draining = true;
		requester_check_drained(qp);
	} else if (to == FRL_QPS_RTS) {
		r->draining = false;
	}
}

int qp_modify(struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask, const char **ret_why)
{
	enum frl_qp_state to = target(qp, attr, mask);
	const char *why = qp_check_modify(qp, attr, mask);

	if (why) {
		*ret_why = why;
		return -EINVAL;
	}
	if (to == FRL_QPS_ERR) {
		qp_fail(qp, FRL_WC_WR_FLUSH_ERR);
		return 0;
	}
	if (to == FRL_QPS_RESET)
		reset(qp);
	if (to == FRL_QPS_SQD && qp->state != FRL_QPS_SQD)
		qp->attr.en_sqd_async_notify = (mask & FRL_QP_EN_SQD_ASYNC_NOTIFY) &&
			attr->en_sqd_async_notify;
	take_path(qp, attr, mask);
	take_responder(qp, attr, mask);
	take_requester(qp, attr, mask);
	enter(qp, to);
	return 0;
}

void qp_query(const struct qp *qp, struct frl_qp_attr *ret_attr)
{
	*ret_attr = qp->attr;
	ret_attr->cur_state = qp->state;
	ret_attr->path_mtu = qp->path_mtu;
	qp_note_psns(qp, ret_attr);
	ret_attr->sq_draining = qp->state == FRL_QPS_SQD && !requester_drained(qp);
}
