/* SPDX-License-Identifier: BSD-3-Clause */
/* Describes a queue pair for operators. */
#include "lib/protocol/qp_stats.h"

#include "lib/protocol/qp_internal.h"
#include "lib/protocol/recovery.h"

/* Returns true if packets are retransmitted, or about to be. */
static bool repeats(const struct qp *qp)
{
	const struct requester *r = &qp->requester;

	return qp->recovery.backoff || qp->recovery.went_back || psn_diff(r->next, r->sent_end) < 0;
}

static enum qp_wait wait_of_requests(const struct qp *qp)
{
	const struct requester *r = &qp->requester;

	/* Also while the retry is in flight. */
	if (qp->recovery.refused)
		return QP_WAIT_RNR;
	if (qp->type == FRL_QPT_RC && !psn_equal(r->una, r->sent_end)) {
		if (repeats(qp))
			return QP_WAIT_RETRY;
		if (requester_held_back(qp))
			return QP_WAIT_FENCE;
		return wr_has_response(send_wqe_at(r, r->head)->opcode) ? QP_WAIT_READ
									: QP_WAIT_ACK;
	}
	return requester_drained(qp) ? QP_WAIT_DRAINING : QP_WAIT_PROGRESS;
}

static enum qp_wait wait_of(const struct qp *qp)
{
	switch (qp->state) {
	case FRL_QPS_RESET:
	case FRL_QPS_INIT: return QP_WAIT_NOT_CONNECTED;
	case FRL_QPS_SQE:
	case FRL_QPS_ERR: return QP_WAIT_ERROR;
	case FRL_QPS_RTR:
	case FRL_QPS_RTS:
	case FRL_QPS_SQD: break;
	}
	if (qp->requester.head != qp->requester.tail)
		return wait_of_requests(qp);
	return qp_wants_output(qp) ? QP_WAIT_PROGRESS : QP_WAIT_NOTHING;
}

/* Returns true for waits that began when the window last moved. */
static bool is_since_progress(enum qp_wait wait)
{
	return wait == QP_WAIT_RNR || wait == QP_WAIT_RETRY || wait == QP_WAIT_FENCE ||
		wait == QP_WAIT_READ || wait == QP_WAIT_ACK;
}

/* Returns the time of the next timeout or retry; a probe is neither. */
static uint64_t deadline_of(const struct recovery *r)
{
	uint64_t ack_ns = r->ack_deadline_ns == DEADLINE_NONE ? DEADLINE_NONE : r->ack_expires_ns;

	return ack_ns < r->rnr_deadline_ns ? ack_ns : r->rnr_deadline_ns;
}

uint32_t qp_awaited_length(const struct qp *qp)
{
	const struct requester *r = &qp->requester;
	const struct send_wqe *wqe = send_wqe_at(r, r->head);
	uint64_t offset;

	if (qp->type != FRL_QPT_RC || r->head == r->tail || psn_diff(r->una, wqe->first_psn) < 0)
		return 0;
	offset = (uint64_t)psn_diff(r->una, wqe->first_psn) * qp->path_mtu;
	if (offset >= wqe->length)
		return 0;
	return wqe->length - offset < qp->path_mtu ? (uint32_t)(wqe->length - offset)
						   : qp->path_mtu;
}

void qp_describe(const struct qp *qp, struct qp_stats *ret)
{
	const struct requester *r = &qp->requester;
	const struct recv_queue *queue = &qp->responder.queue;
	uint64_t deadline_ns = deadline_of(&qp->recovery);
	enum qp_wait wait = wait_of(qp);

	*ret = (struct qp_stats){
		.counts = qp->counts,
		.wait = wait,
		.waiting_since_ns = is_since_progress(wait) ? qp->counts.progress_ns : 0,
		.retries_left = qp->recovery.retries,
		.rnr_retries_left = qp->recovery.rnr_retries,
		.lossless = qp->unlimited_retry,
		.send_psn = r->next.value,
		.acked_psn = r->una.value,
		.recv_psn = qp->responder.epsn.value,
		.send_queue = r->tail - r->head,
		.recv_queue = queue->tail - queue->head,
		.deadline_ns = deadline_ns == DEADLINE_NONE ? 0 : deadline_ns,
		.give_up_ns = recovery_gives_up_after(qp),
		.error = qp->error,
		.error_status = qp->error_status,
	};
}
