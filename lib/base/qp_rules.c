/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/qp_rules.h"

#include <stddef.h>

#include <ferrule/connect.h>

#include "lib/base/net/addr.h"

enum {
	MAX_MTU = 16384,
	MAX_PSN = 0xffffff,
	QPN_MULTICAST = 0xffffff,
};

/* Short names for the table. */
enum {
	CUR = FRL_QP_CUR_STATE,
	NOTIFY = FRL_QP_EN_SQD_ASYNC_NOTIFY,
	ACCESS = FRL_QP_ACCESS_FLAGS,
	PKEY = FRL_QP_PKEY_INDEX,
	PORT = FRL_QP_PORT,
	QKEY = FRL_QP_QKEY,
	AV = FRL_QP_AV,
	MTU = FRL_QP_PATH_MTU,
	TIMEOUT = FRL_QP_TIMEOUT,
	RETRY = FRL_QP_RETRY_CNT,
	RNR_RETRY = FRL_QP_RNR_RETRY,
	RQ_PSN = FRL_QP_RQ_PSN,
	RD_ATOMIC = FRL_QP_MAX_QP_RD_ATOMIC,
	RNR_TIMER = FRL_QP_MIN_RNR_TIMER,
	SQ_PSN = FRL_QP_SQ_PSN,
	DEST_RD_ATOMIC = FRL_QP_MAX_DEST_RD_ATOMIC,
	DEST_QPN = FRL_QP_DEST_QPN,
	CAPABILITIES = FRL_QP_CAPABILITIES,
};

/* UD includes GSI, except for the Q_Key: see check_transition(). */
enum service { RC, UC, UD, SERVICES };

/* Any state may change to RESET or ERR with the state attribute alone, except RESET to ERR. */
static const struct transition {
	uint8_t from;
	uint8_t to;
	uint32_t required[SERVICES];
	uint32_t optional[SERVICES];
} transitions[] = {
	{ FRL_QPS_RESET, FRL_QPS_INIT,
		{ PKEY | PORT | ACCESS, PKEY | PORT | ACCESS, PKEY | PORT | QKEY }, { 0, 0, 0 } },
	{ FRL_QPS_INIT, FRL_QPS_INIT, { 0, 0, 0 },
		{ PKEY | PORT | ACCESS, PKEY | PORT | ACCESS, PKEY | PORT | QKEY } },
	{ FRL_QPS_INIT, FRL_QPS_RTR,
		{ AV | MTU | DEST_QPN | RQ_PSN | DEST_RD_ATOMIC | RNR_TIMER,
			AV | MTU | DEST_QPN | RQ_PSN, 0 },
		{ ACCESS | PKEY | CAPABILITIES, ACCESS | PKEY | CAPABILITIES, PKEY | QKEY } },
	{ FRL_QPS_RTR, FRL_QPS_RTS,
		{ SQ_PSN | TIMEOUT | RETRY | RNR_RETRY | RD_ATOMIC, SQ_PSN, SQ_PSN },
		{ CUR | ACCESS | RNR_TIMER, CUR | ACCESS, CUR | QKEY } },
	{ FRL_QPS_RTS, FRL_QPS_RTS, { 0, 0, 0 },
		{ CUR | ACCESS | RNR_TIMER, CUR | ACCESS, CUR | QKEY } },
	{ FRL_QPS_RTS, FRL_QPS_SQD, { 0, 0, 0 }, { NOTIFY, NOTIFY, NOTIFY } },
	{ FRL_QPS_SQD, FRL_QPS_SQD, { 0, 0, 0 },
		{ PORT | AV | TIMEOUT | RETRY | RNR_RETRY | RD_ATOMIC | DEST_RD_ATOMIC | ACCESS |
				PKEY | RNR_TIMER,
			PORT | AV | ACCESS | PKEY, PKEY | QKEY } },
	{ FRL_QPS_SQD, FRL_QPS_RTS, { 0, 0, 0 },
		{ CUR | ACCESS | RNR_TIMER, CUR | ACCESS, CUR | QKEY } },
	/* RC has no SQE state. */
	{ FRL_QPS_SQE, FRL_QPS_RTS, { 0, 0, 0 }, { 0, CUR | ACCESS, CUR | QKEY } },
};

static enum service service_of(enum frl_qp_type type)
{
	switch (type) {
	case FRL_QPT_RC: return RC;
	case FRL_QPT_UC: return UC;
	default: return UD;
	}
}

static bool is_path_mtu(uint32_t mtu)
{
	return mtu >= 256 && mtu <= MAX_MTU && (mtu & (mtu - 1)) == 0;
}

static const char *check_numbers(const struct frl_qp_attr *attr, uint32_t mask)
{
	if ((mask & MTU) && !is_path_mtu(attr->path_mtu))
		return "path_mtu must be a power of two from 256 to 16384";
	if ((mask & DEST_QPN) && (attr->dest_qpn == 0 || attr->dest_qpn >= QPN_MULTICAST))
		return "dest_qpn must be a queue pair number, 1 to 0xfffffe";
	if ((mask & RQ_PSN) && attr->rq_psn > MAX_PSN)
		return "rq_psn has 24 bits";
	if ((mask & SQ_PSN) && attr->sq_psn > MAX_PSN)
		return "sq_psn has 24 bits";
	if ((mask & RNR_TIMER) && attr->min_rnr_timer > 31)
		return "min_rnr_timer must be 0 to 31";
	if ((mask & TIMEOUT) && attr->timeout > 31)
		return "timeout must be 0 to 31";
	if ((mask & RETRY) && attr->retry_cnt > 7)
		return "retry_cnt must be 0 to 7";
	if ((mask & RNR_RETRY) && attr->rnr_retry > 7)
		return "rnr_retry must be 0 to 7";
	if ((mask & RD_ATOMIC) && attr->max_rd_atomic > FRL_MAX_RD_ATOMIC)
		return "max_rd_atomic must be 0 to 32";
	if ((mask & DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > FRL_MAX_RD_ATOMIC)
		return "max_dest_rd_atomic must be 0 to 32";
	return NULL;
}

static const char *check_ranges(const struct frl_qp_attr *attr, uint32_t mask)
{
	const uint32_t access = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE |
		FRL_ACCESS_REMOTE_READ | FRL_ACCESS_REMOTE_ATOMIC | FRL_ACCESS_MW_BIND;

	if ((mask & ACCESS) && (attr->access_flags & ~access))
		return "access_flags has unknown bits";
	if ((mask & PKEY) && attr->pkey_index != 0)
		return "pkey_index must be 0: there is one P_Key";
	if ((mask & PORT) && attr->port_num != 1)
		return "port_num must be 1: a device has one port";
	if ((mask & AV) && attr->ah.sl > 7)
		return "ah.sl must be 0 to 7";
	if ((mask & AV) && attr->ah.flow_label > 0xfffff)
		return "ah.flow_label has 20 bits";
	if ((mask & AV) && ip_is_multicast(&attr->ah.dgid))
		return "ah.dgid is a multicast group: a connection has one peer";
	if ((mask & CAPABILITIES) && (attr->capabilities & ~(uint32_t)FRL_CAP_NO_ICRC))
		return "capabilities has unknown bits";
	return check_numbers(attr, mask);
}

static const char *missing_attribute(uint32_t missing)
{
	static const struct {
		uint32_t bit;
		const char *sentence;
	} names[] = {
		{ ACCESS, "this transition needs access_flags" },
		{ PKEY, "this transition needs pkey_index" },
		{ PORT, "this transition needs port_num" },
		{ QKEY, "this transition needs qkey" },
		{ AV, "this transition needs the path (ah)" },
		{ MTU, "this transition needs path_mtu" },
		{ DEST_QPN, "this transition needs dest_qpn" },
		{ RQ_PSN, "this transition needs rq_psn" },
		{ DEST_RD_ATOMIC, "this transition needs max_dest_rd_atomic" },
		{ RNR_TIMER, "this transition needs min_rnr_timer" },
		{ SQ_PSN, "this transition needs sq_psn" },
		{ TIMEOUT, "this transition needs timeout" },
		{ RETRY, "this transition needs retry_cnt" },
		{ RNR_RETRY, "this transition needs rnr_retry" },
		{ RD_ATOMIC, "this transition needs max_rd_atomic" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (missing & names[i].bit)
			return names[i].sentence;
	return NULL;
}

/* Returns NULL if this QP type has no such transition. */
static const struct transition *find_transition(
	enum frl_qp_type type, enum frl_qp_state from, enum frl_qp_state to)
{
	for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		const struct transition *t = &transitions[i];

		if (t->from == from && t->to == to &&
			(t->from != FRL_QPS_SQE || type != FRL_QPT_RC))
			return t;
	}
	return NULL;
}

static const char *check_transition(
	const struct qp_rules_subject *qp, enum frl_qp_state to, uint32_t mask)
{
	enum service service = service_of(qp->type);
	const struct transition *t;
	uint32_t required;
	const char *why;

	if (to == FRL_QPS_RESET || (to == FRL_QPS_ERR && qp->state != FRL_QPS_RESET))
		return mask & ~(uint32_t)FRL_QP_STATE ? "to RESET and ERR, only the state is given"
						      : NULL;
	t = find_transition(qp->type, qp->state, to);
	if (!t)
		return "no such transition";
	required = t->required[service];
	/* The Q_Key of QP1 is well-known, and its port is fixed. */
	if (qp->type == FRL_QPT_GSI)
		required &= ~(uint32_t)(QKEY | PORT);
	why = missing_attribute(required & ~mask);
	if (why)
		return why;
	mask &= ~(uint32_t)FRL_QP_STATE;
	if (mask & ~(t->required[service] | t->optional[service]))
		return "this transition does not take one of the attributes given";
	if (qp->state == FRL_QPS_SQD && to == FRL_QPS_SQD && mask && !qp->drained)
		return "requests are still under way: wait for FRL_EVENT_SQ_DRAINED";
	return NULL;
}

const char *qp_rules_check(
	const struct qp_rules_subject *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	enum frl_qp_state to = mask & FRL_QP_STATE ? attr->state : qp->state;
	const char *why;

	if ((unsigned)to > FRL_QPS_ERR)
		return "no such state";
	if ((mask & CUR) && attr->cur_state != qp->state)
		return "the queue pair is not in cur_state";
	why = check_transition(qp, to, mask);
	return why ? why : check_ranges(attr, mask);
}
