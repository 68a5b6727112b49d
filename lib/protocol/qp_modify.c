/* SPDX-License-Identifier: BSD-3-Clause */
/* States and attributes of a queue pair. IBTA volume 1, 11.2.5.2 and table 94. */
#include "lib/protocol/qp_internal.h"
#include "lib/protocol/recovery.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

struct transition {
	bool legal;
	uint32_t required;
	uint32_t optional;
};

/* [from][to] for RC; RESET and ERR as targets take nothing but the state. */
static const struct transition transitions[FRL_QPS_ERR + 1][FRL_QPS_ERR + 1] = {
	[FRL_QPS_RESET] = {
		[FRL_QPS_RESET] = {true, 0, 0},
		[FRL_QPS_INIT] = {true, FRL_QP_ACCESS_FLAGS, 0},
	},
	[FRL_QPS_INIT] = {
		[FRL_QPS_RESET] = {true, 0, 0},
		[FRL_QPS_INIT] = {true, 0, FRL_QP_ACCESS_FLAGS},
		[FRL_QPS_RTR] = {true,
			FRL_QP_PATH | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN |
				FRL_QP_MIN_RNR_TIMER,
			FRL_QP_ACCESS_FLAGS | FRL_QP_CAPABILITIES},
		[FRL_QPS_ERR] = {true, 0, 0},
	},
	[FRL_QPS_RTR] = {
		[FRL_QPS_RESET] = {true, 0, 0},
		[FRL_QPS_RTS] = {true,
			FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY,
			FRL_QP_ACCESS_FLAGS | FRL_QP_MIN_RNR_TIMER},
		[FRL_QPS_ERR] = {true, 0, 0},
	},
	[FRL_QPS_RTS] = {
		[FRL_QPS_RESET] = {true, 0, 0},
		[FRL_QPS_RTS] = {true, 0, FRL_QP_ACCESS_FLAGS | FRL_QP_MIN_RNR_TIMER},
		[FRL_QPS_ERR] = {true, 0, 0},
	},
	[FRL_QPS_ERR] = {
		[FRL_QPS_RESET] = {true, 0, 0},
		[FRL_QPS_ERR] = {true, 0, 0},
	},
};

static const char *check_ranges(const struct frl_qp_attr *attr, uint32_t mask)
{
	uint32_t mtu = attr->path_mtu;

	if ((mask & FRL_QP_ACCESS_FLAGS) &&
		(attr->access_flags &
			~(uint32_t)(FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE)))
		return "access_flags has unknown bits";
	if ((mask & FRL_QP_PATH_MTU) && (mtu < 256 || mtu > WIRE_MAX_MTU || (mtu & (mtu - 1))))
		return "path_mtu must be 256, 512, 1024, 2048 or 4096";
	if ((mask & FRL_QP_DEST_QPN) && (attr->dest_qpn == 0 || attr->dest_qpn >= QPN_MULTICAST))
		return "dest_qpn must be a queue pair number, 1 to 0xfffffe";
	if ((mask & FRL_QP_RQ_PSN) && attr->rq_psn > PSN_MASK)
		return "rq_psn has 24 bits";
	if ((mask & FRL_QP_SQ_PSN) && attr->sq_psn > PSN_MASK)
		return "sq_psn has 24 bits";
	if ((mask & FRL_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31)
		return "min_rnr_timer must be 0 to 31";
	if ((mask & FRL_QP_TIMEOUT) && attr->timeout > 31)
		return "timeout must be 0 to 31";
	if ((mask & FRL_QP_RETRY_CNT) && attr->retry_cnt > 7)
		return "retry_cnt must be 0 to 7";
	if ((mask & FRL_QP_RNR_RETRY) && attr->rnr_retry > 7)
		return "rnr_retry must be 0 to 7";
	if ((mask & FRL_QP_CAPABILITIES) && (attr->capabilities & ~(uint32_t)FRL_CAP_NO_ICRC))
		return "capabilities has unknown bits";
	return NULL;
}

static const char *check_mask(const struct transition *t, uint32_t mask)
{
	static const struct {
		uint32_t bit;
		const char *missing;
	} names[] = {
		{ FRL_QP_ACCESS_FLAGS, "this transition needs access_flags" },
		{ FRL_QP_PATH, "this transition needs the path" },
		{ FRL_QP_PATH_MTU, "this transition needs path_mtu" },
		{ FRL_QP_DEST_QPN, "this transition needs dest_qpn" },
		{ FRL_QP_RQ_PSN, "this transition needs rq_psn" },
		{ FRL_QP_MIN_RNR_TIMER, "this transition needs min_rnr_timer" },
		{ FRL_QP_SQ_PSN, "this transition needs sq_psn" },
		{ FRL_QP_TIMEOUT, "this transition needs timeout" },
		{ FRL_QP_RETRY_CNT, "this transition needs retry_cnt" },
		{ FRL_QP_RNR_RETRY, "this transition needs rnr_retry" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if ((t->required & names[i].bit) && !(mask & names[i].bit))
			return names[i].missing;
	if (mask & ~(t->required | t->optional | FRL_QP_STATE))
		return "this transition does not take one of the attributes given";
	return NULL;
}

static void take_attributes(struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	struct frl_qp_attr *own = &qp->attr;

	if (mask & FRL_QP_ACCESS_FLAGS)
		own->access_flags = attr->access_flags;
	if (mask & FRL_QP_PATH) {
		own->remote_ip = qp->remote_ip = attr->remote_ip;
		memcpy(own->remote_mac, attr->remote_mac, sizeof(own->remote_mac));
		own->link = attr->link;
		own->traffic_class = attr->traffic_class;
		own->hop_limit = attr->hop_limit;
	}
	if (mask & FRL_QP_PATH_MTU)
		own->path_mtu = qp->path_mtu = attr->path_mtu;
	if (mask & FRL_QP_DEST_QPN)
		own->dest_qpn = qp->dest_qpn = attr->dest_qpn;
	if (mask & FRL_QP_RQ_PSN) {
		own->rq_psn = attr->rq_psn;
		qp->responder.epsn = psn_make(attr->rq_psn);
	}
	if (mask & FRL_QP_MIN_RNR_TIMER)
		own->min_rnr_timer = attr->min_rnr_timer;
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
	if (mask & FRL_QP_CAPABILITIES)
		own->capabilities = qp->capabilities = attr->capabilities;
}

static void reset(struct qp *qp)
{
	struct requester *r = &qp->requester;
	struct responder *q = &qp->responder;

	*r = (struct requester){ .wqes = r->wqes, .mask = r->mask, .window = r->window };
	*q = (struct responder){ .wqes = q->wqes, .mask = q->mask, .size = q->size };
	qp->attr = (struct frl_qp_attr){ 0 };
	qp->capabilities = 0;
	recovery_stop(qp);
}

static enum frl_qp_state target(const struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	return mask & FRL_QP_STATE ? attr->state : qp->state;
}

const char *qp_check_modify(const struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	enum frl_qp_state to = target(qp, attr, mask);
	const struct transition *t;
	const char *why;

	if ((unsigned)to > FRL_QPS_ERR)
		return "no such state";
	t = &transitions[qp->state][to];
	if (!t->legal)
		return "no such transition";
	why = check_mask(t, mask);
	return why ? why : check_ranges(attr, mask);
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
	take_attributes(qp, attr, mask);
	if (qp->state == FRL_QPS_RTR && to == FRL_QPS_RTS)
		recovery_init(qp);
	qp->state = qp->attr.state = to;
	return 0;
}
