/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fuzz/input_state.h"

static bool known_status(enum frl_wc_status status)
{
	switch (status) {
	case FRL_WC_SUCCESS:
	case FRL_WC_LOC_LEN_ERR:
	case FRL_WC_LOC_QP_OP_ERR:
	case FRL_WC_LOC_PROT_ERR:
	case FRL_WC_WR_FLUSH_ERR:
	case FRL_WC_MW_BIND_ERR:
	case FRL_WC_BAD_RESP_ERR:
	case FRL_WC_REM_INV_REQ_ERR:
	case FRL_WC_REM_ACCESS_ERR:
	case FRL_WC_REM_OP_ERR:
	case FRL_WC_RETRY_EXC_ERR:
	case FRL_WC_RNR_RETRY_EXC_ERR:
	case FRL_WC_REM_INV_RD_REQ_ERR:
	case FRL_WC_REM_ABORT_ERR: return true;
	default: return false;
	}
}

static void check_send_success(const struct frl_wc *wc, const struct request *request)
{
	static const uint8_t opcodes[] = { FRL_WC_RDMA_WRITE, FRL_WC_RDMA_WRITE, FRL_WC_SEND,
		FRL_WC_SEND, FRL_WC_RDMA_READ, FRL_WC_COMP_SWAP, FRL_WC_FETCH_ADD, FRL_WC_LOCAL_INV,
		FRL_WC_BIND_MW, FRL_WC_SEND };

	MUST(request->signaled && !s.send_error);
	MUST(wc->opcode == (enum frl_wc_opcode)opcodes[request->opcode]);
	MUST(wr_is_local(request->opcode) || wc->byte_len == request->length);
}

/* Requests of the queue before this position had no completion. */
static void pass_silent(uint32_t position)
{
	for (; s.sends.done != position; s.sends.done++) {
		const struct request *request = &s.requests[s.sends.ids[s.sends.done % POSITIONS]];

		MUST(s.send_cq.overrun || (!request->signaled && !s.send_error));
	}
}

static void check_send(const struct frl_wc *wc)
{
	uint32_t head = s.qp.requester.head, at;

	for (at = s.sends.done; at != head; at++)
		if (s.sends.ids[at % POSITIONS] == wc->wr_id)
			break;
	MUST(at != head);
	pass_silent(at);
	s.sends.done = at + 1;
	if (wc->status == FRL_WC_SUCCESS) {
		check_send_success(wc, &s.requests[wc->wr_id]);
		return;
	}
	MUST(s.qp.state == FRL_QPS_ERR || s.qp.state == FRL_QPS_SQE);
	MUST(wc->byte_len == 0);
	s.send_error = true;
	/* At most one has failed; the others are flushed. */
	if (wc->status == FRL_WC_WR_FLUSH_ERR)
		return;
	MUST(!s.send_failed);
	s.send_failed = true;
}

static uint32_t receives_done(void)
{
	const struct responder *r = &s.qp.responder;

	return r->srq ? r->srq->queue.head - (r->recv ? 1 : 0) : r->queue.head;
}

static void check_receive(const struct frl_wc *wc)
{
	const struct request *request = &s.requests[wc->wr_id];

	MUST(s.recvs.done != receives_done());
	MUST(s.recvs.ids[s.recvs.done++ % POSITIONS] == wc->wr_id);
	if (wc->status == FRL_WC_WR_FLUSH_ERR)
		MUST(s.qp.state == FRL_QPS_ERR);
	if (wc->status != FRL_WC_SUCCESS) {
		MUST(wc->byte_len <= (s.qp.type == FRL_QPT_RC ? request->length : 0));
		return;
	}
	MUST(wc->opcode == FRL_WC_RECV || wc->opcode == FRL_WC_RECV_RDMA_WITH_IMM);
	if (wc->opcode == FRL_WC_RECV)
		MUST(wc->byte_len <= request->length);
	MUST(!!(wc->flags & FRL_WC_GRH) == qp_is_datagram(&s.qp));
	MUST(qp_is_datagram(&s.qp) || !(wc->flags & FRL_WC_IPV4));
}

static void check_entry(const struct frl_wc *wc)
{
	MUST(wc->wr_id < s.n_requests && wc->qp_num == s.qp.qpn && known_status(wc->status));
	if (wc->wr_id == s.direct) {
		MUST(wc->status == FRL_WC_WR_FLUSH_ERR);
		MUST(s.qp.state == FRL_QPS_ERR || s.qp.state == FRL_QPS_SQE);
		s.direct = NOBODY;
	} else if (s.requests[wc->wr_id].send) {
		check_send(wc);
	} else {
		check_receive(wc);
	}
}

void check_completions(void)
{
	struct cq *const cqs[2] = { &s.send_cq, &s.recv_cq };

	for (int i = 0; i < 2; i++) {
		struct cq *cq = cqs[i];

		MUST(cq->tail - cq->head <= cq->mask + 1);
		for (; s.seen[i] != cq->tail; s.seen[i]++) {
			const struct frl_wc *wc = &cq->entries[s.seen[i] & cq->mask];

			check_entry(wc);
			/* A waiter for this completion is notified. */
			MUST(cq->armed != CQ_ARMED);
			MUST(cq->armed == CQ_NOT_ARMED || wc->status == FRL_WC_SUCCESS);
		}
	}
	pass_silent(s.qp.requester.head);
	if (s.recv_to->overrun)
		s.recvs.done = receives_done();
	MUST(s.recvs.done == receives_done());
	MUST(s.direct == NOBODY || s.send_cq.overrun || s.recv_to->overrun);
	s.direct = NOBODY;
}
