/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting of send requests, with all checks of a request. IBTA volume 1, 10.8.2 and 11.4.1.1. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "lib/protocol/fast_path.h"

enum {
	KNOWN_FLAGS = FRL_SEND_FENCE | FRL_SEND_SIGNALED | FRL_SEND_SOLICITED | FRL_SEND_INLINE,
	ALL_OPCODES = (1 << (FRL_WR_SEND_WITH_INV + 1)) - 1,
	DATAGRAM_OPCODES = 1 << FRL_WR_SEND | 1 << FRL_WR_SEND_WITH_IMM,
	UNRELIABLE_OPCODES = DATAGRAM_OPCODES | 1 << FRL_WR_RDMA_WRITE |
		1 << FRL_WR_RDMA_WRITE_WITH_IMM | 1 << FRL_WR_LOCAL_INV | 1 << FRL_WR_BIND_MW,
	OWN_QKEY = 1u << 31, /* use the queue pair's Q_Key instead of the request's (10.2.5) */
};

static int refuse(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EINVAL;
}

static bool type_takes(const struct qp *qp, unsigned opcode)
{
	uint32_t opcodes = qp->type == FRL_QPT_RC ? ALL_OPCODES
		: qp->type == FRL_QPT_UC          ? UNRELIABLE_OPCODES
						  : DATAGRAM_OPCODES;

	return opcode <= FRL_WR_SEND_WITH_INV && (opcodes & UINT32_C(1) << opcode);
}

static const char *check_datagram(
	const struct qp *qp, const struct frl_send_wr *wr, const struct address_handle *ah)
{
	if (!ah)
		return "a datagram needs an address handle";
	if (ah->pd != qp->pd)
		return "the address handle is of another protection domain";
	if (wr->remote_qpn == 0 || wr->remote_qpn > QPN_MULTICAST)
		return "remote_qpn must be a queue pair number, 1 to 0xffffff";
	return NULL;
}

static const char *check_request(
	const struct qp *qp, const struct frl_send_wr *wr, const struct wr_objects *objects)
{
	uint8_t opcode = (uint8_t)wr->opcode;

	if (!type_takes(qp, wr->opcode))
		return "unknown opcode, or not one for this type of queue pair";
	if (wr->flags & ~(uint32_t)KNOWN_FLAGS)
		return "unknown send flags";
	if (qp_is_datagram(qp))
		return check_datagram(qp, wr, objects->ah);
	if ((wr->flags & FRL_SEND_INLINE) && (wr_has_response(opcode) || wr_is_local(opcode)))
		return "only SEND and RDMA_WRITE can carry their payload inline";
	if (wr_has_response(opcode) && qp->attr.max_rd_atomic == 0)
		return "READs and atomics need a max_rd_atomic that is not 0";
	if (wr_is_atomic(opcode) && wr->remote_addr % ATOMIC_SIZE != 0)
		return "the remote address of an atomic must be a multiple of 8";
	if (opcode == FRL_WR_BIND_MW && (!objects->window || !objects->parent))
		return "BIND_MW needs a window and a region";
	return NULL;
}

static int copy_inline(const struct qp *qp, struct send_wqe *wqe, const struct frl_send_wr *wr,
	const char **ret_why)
{
	uint64_t total = 0;

	for (int i = 0; i < wr->n_sge; i++) {
		const struct frl_sge *sge = &wr->sge[i];

		if (sge->length > qp->max_inline - total)
			return refuse(ret_why,
				"more inline bytes than the queue pair's max_inline allows");
		if (sge->length && !sge->addr)
			return refuse(ret_why, "the addr of an inline element is NULL");
		if (sge->length && !region_allows_inline(qp->regions, qp->pd, sge))
			return refuse(ret_why,
				"inline data must be host memory: post this without "
				"FRL_SEND_INLINE");
		if (sge->length)
			memcpy(wqe->inline_data + total, sge->addr, sge->length);
		total += sge->length;
	}
	wqe->length = (uint32_t)total;
	return 0;
}

/* Empty elements need no region and are skipped. */
static int copy_elements(const struct qp *qp, struct send_wqe *wqe, const struct frl_send_wr *wr,
	const char **ret_why)
{
	uint32_t access = wr_has_response((uint8_t)wr->opcode) ? FRL_ACCESS_LOCAL_WRITE : 0;
	uint64_t total = 0;

	for (int i = 0; i < wr->n_sge; i++) {
		const struct frl_sge *sge = &wr->sge[i];

		if (sge->length == 0)
			continue;
		if (!qp->as_hardware && !region_local(qp->regions, qp->pd, sge, access))
			return refuse(ret_why, region_local_refusal(qp->regions, sge));
		total += sge->length;
		wqe->sge[wqe->n_sge++] = *sge;
	}
	if (total > WIRE_MAX_MESSAGE)
		return refuse(ret_why, "a message has at most 2^31 bytes");
	wqe->length = (uint32_t)total;
	return 0;
}

static int take_payload(const struct qp *qp, struct send_wqe *wqe, const struct frl_send_wr *wr,
	const char **ret_why)
{
	int rc;

	wqe->length = 0;
	wqe->n_sge = 0;
	if (wr_is_local((uint8_t)wr->opcode))
		return 0;
	if (wr->n_sge < 0 || (uint32_t)wr->n_sge > qp->max_send_sge || (wr->n_sge && !wr->sge))
		return refuse(ret_why,
			"a request has 0 to max_send_sge scatter/gather elements, in an array");
	if (wr->flags & FRL_SEND_INLINE)
		rc = copy_inline(qp, wqe, wr, ret_why);
	else
		rc = copy_elements(qp, wqe, wr, ret_why);
	if (rc)
		return rc;
	if (qp_is_datagram(qp) && wqe->length > qp->path_mtu)
		return refuse(ret_why, "a datagram can have at most MTU bytes");
	if (wr_is_atomic((uint8_t)wr->opcode) && wqe->length != ATOMIC_SIZE)
		return refuse(ret_why, "the elements of an atomic have 8 bytes together");
	return 0;
}

/* Counts from the start of the oldest request, not from `una`: all PSNs of queued requests must be
 * comparable. */
static uint32_t packets_queued(const struct requester *r)
{
	struct psn start = r->head == r->tail ? r->end : send_wqe_at(r, r->head)->first_psn;

	return (uint32_t)psn_diff(r->end, start);
}

static int take_psns(const struct qp *qp, struct send_wqe *wqe, const char **ret_why)
{
	const struct requester *r = &qp->requester;

	wqe->packets = wr_is_local(wqe->opcode) ? 0 : packets_for(wqe->length, qp->path_mtu);
	if (wqe->packets > MAX_QUEUED_PACKETS)
		return refuse(ret_why, "message too long for the path MTU: it needs 2^23 packets");
	if (wqe->packets + packets_queued(r) > MAX_QUEUED_PACKETS) {
		*ret_why = "2^23 packets are queued: poll for completions, then post again";
		return -ENOMEM;
	}
	return 0;
}

static void set_target(const struct qp *qp, struct datagram_target *target,
	const struct frl_send_wr *wr, const struct address_handle *ah)
{
	target->path = ah->path;
	wire_path_set_src_port(
		&target->path, wire_udp_src_port(ah->flow_label, qp->qpn, wr->remote_qpn));
	target->link = ah->link;
	target->qpn = wr->remote_qpn;
	target->qkey = wr->remote_qkey & OWN_QKEY ? qp->qkey : wr->remote_qkey;
}

/* Stores operands that only some opcodes have. */
static void take_operands(const struct qp *qp, struct send_wqe *wqe, const struct frl_send_wr *wr,
	const struct wr_objects *objects)
{
	if (qp_is_datagram(qp)) {
		set_target(qp, wqe->target, wr, objects->ah);
	} else if (wr_is_atomic(wqe->opcode)) {
		wqe->compare_add = wr->compare_add;
		wqe->swap = wr->swap;
	} else if (wqe->opcode == FRL_WR_BIND_MW) {
		wqe->bind = wr->bind;
		wqe->window = objects->window;
		wqe->parent_key = objects->parent->key;
	}
}

/* Appends the request: the last step of posting. */
static inline void enter_queue(
	struct qp *qp, struct send_wqe *wqe, const struct frl_send_wr *wr, bool fast)
{
	struct requester *r = &qp->requester;

	wqe->wr_id = wr->wr_id;
	wqe->flags = (uint8_t)(wr->flags | (qp->sq_sig_all ? FRL_SEND_SIGNALED : 0));
	wqe->remote_addr = wr->remote_addr;
	wqe->rkey = wr->rkey;
	wqe->imm_data = wr->imm_data; /* or the key to invalidate */
	wqe->keep = wr->keep;
	wqe->fast = fast;
	wqe->first_psn = r->end;
	r->end = psn_add(r->end, wqe->packets);
	r->tail++;
}

static inline bool is_full(const struct qp *qp)
{
	return qp_n_requests(qp) + qp->held_slots >= qp->requester.size;
}

/* Posts a request on the fast path. Returns false if post() must handle it: other requests, too
 * long, or no room. */
static inline bool post_fast(struct qp *qp, const struct frl_send_wr *wr)
{
	struct requester *r = &qp->requester;
	const struct frl_sge *sge = wr->sge;
	struct send_wqe *wqe;
	uint32_t packets = 1;

	if (!takes_fast_post(qp, wr))
		return false;
	if (sge->length > qp->path_mtu) {
		if (sge->length > WIRE_MAX_MESSAGE)
			return false;
		packets = packets_for(sge->length, qp->path_mtu);
	}
	if (is_full(qp) || packets + packets_queued(r) > MAX_QUEUED_PACKETS)
		return false;
	wqe = send_wqe_at(r, r->tail);
	wqe->sge[0] = *sge;
	wqe->length = sge->length;
	wqe->packets = packets;
	wqe->opcode = (uint8_t)wr->opcode;
	wqe->n_sge = 1;
	enter_queue(qp, wqe, wr, true);
	return true;
}

static __attribute__((noinline)) int post(struct qp *qp, const struct frl_send_wr *wr,
	const struct wr_objects *objects, const char **ret_why)
{
	struct requester *r = &qp->requester;
	struct send_wqe *wqe = send_wqe_at(r, r->tail);
	const char *why;
	int rc;

	if (qp->state == FRL_QPS_ERR || qp->state == FRL_QPS_SQE) {
		qp_flush_one(qp, qp->send_cq, wr->wr_id, 0);
		return 0;
	}
	if (!qp_sends(qp))
		return refuse(ret_why, "send requests need the state RTS or SQD");
	why = check_request(qp, wr, objects);
	if (why)
		return refuse(ret_why, why);
	if (is_full(qp)) {
		*ret_why = "the send queue is full: poll for completions, then post again";
		return -ENOMEM;
	}
	wqe->opcode = (uint8_t)wr->opcode;
	rc = take_payload(qp, wqe, wr, ret_why);
	if (!rc)
		rc = take_psns(qp, wqe, ret_why);
	if (rc)
		return rc;
	enter_queue(qp, wqe, wr, false);
	take_operands(qp, wqe, wr, objects);
	return 0;
}

int qp_post_send(struct qp *qp, const struct frl_send_wr *wr, const struct wr_objects *objects,
	const char **ret_why)
{
	return post_fast(qp, wr) ? 0 : post(qp, wr, objects, ret_why);
}

/* A posted request has changed nothing but its slot and the end of the queue. */
void qp_undo_posts(struct qp *qp, uint32_t n)
{
	struct requester *r = &qp->requester;

	if (!n)
		return;
	assert(n <= r->tail - r->head);
	r->tail -= n;
	r->end = send_wqe_at(r, r->tail)->first_psn;
}
