/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: the effect of a message at the QP where it arrives. */
#include <arpa/inet.h>

#include "tests/fakes/verbs/fake_verbs_internal.h"

/* A request at its responder. */
struct request {
	struct fake_qp *qp, *from;
	const struct fake_send *send;
	const struct fake_span *local;
	int n_local;
};

/* --- Errors */

/* A refused request: both QPs fail. On an unreliable QP it has no effect. */
static enum fake_verdict refuse(
	const struct request *request, enum ibv_wc_status status, enum ibv_wc_status *ret_status)
{
	if (request->qp->ibv.qp_type == IBV_QPT_UC) {
		fake_world.stats.lost++;
		return FAKE_DONE;
	}
	*ret_status = status;
	fake_event_raise(&request->qp->object,
		status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
	fake_qp_fail(request->qp, IBV_QPS_ERR);
	return FAKE_DONE;
}

/* --- Receives */

static struct fake_recv_ring *ring_of(const struct fake_qp *qp)
{
	return qp->ibv.srq ? &FAKE_OF(struct fake_srq, ibv, qp->ibv.srq)->ring
			   : (struct fake_recv_ring *)&qp->recvs;
}

static const struct fake_recv *first_recv(const struct fake_qp *qp)
{
	struct fake_recv_ring *ring = ring_of(qp);

	return ring->taken == ring->posted ? NULL : &ring->slots[ring->taken % ring->max_wr];
}

static uint64_t room_of(const struct fake_recv *recv)
{
	uint64_t room = 0;

	for (int i = 0; i < recv->n_sge; i++)
		room += recv->sges[i].length;
	return room;
}

/* Completes the first receive; `wc` has the other fields. */
static void complete_recv(struct fake_qp *qp, const struct ibv_wc *wc, bool is_solicited)
{
	struct fake_srq *srq = qp->ibv.srq ? FAKE_OF(struct fake_srq, ibv, qp->ibv.srq) : NULL;
	struct fake_recv_ring *ring = ring_of(qp);
	struct fake_cqe cqe = { .wc = *wc, .qp = qp, .srq = srq };

	cqe.wc.wr_id = first_recv(qp)->wr_id;
	cqe.wc.qp_num = qp->ibv.qp_num;
	cqe.wc.vendor_err = wc->status == IBV_WC_SUCCESS ? 0 : 0x80u + wc->status;
	ring->taken++;
	if (srq && ring->posted - ring->taken < srq->limit) {
		srq->limit = 0;
		fake_event_raise(&srq->object, IBV_EVENT_SRQ_LIMIT_REACHED);
	}
	fake_cq_add(FAKE_OF(struct fake_cq, ibv, qp->ibv.recv_cq), &cqe, is_solicited);
}

/* The receive is at fault, not the request: it ends, the QP fails with it, and the requester is
 * notified. */
static enum fake_verdict fail_recv(const struct request *request, enum ibv_wc_status status,
	enum ibv_wc_status theirs, enum ibv_wc_status *ret_status)
{
	complete_recv(
		request->qp, &(struct ibv_wc){ .status = status, .opcode = IBV_WC_RECV }, false);
	fake_qp_fail(request->qp, IBV_QPS_ERR);
	if (request->qp->ibv.qp_type == IBV_QPT_RC)
		*ret_status = theirs;
	return FAKE_DONE;
}

/* --- Requests */

static enum fake_verdict on_send(const struct request *request, enum ibv_wc_status *ret_status)
{
	struct fake_qp *qp = request->qp;
	const struct ibv_send_wr *wr = &request->send->wr;
	const struct fake_recv *recv = first_recv(qp);
	struct fake_span to[FAKE_MAX_SGE];
	struct ibv_wc wc = { .opcode = IBV_WC_RECV, .src_qp = request->from->ibv.qp_num };
	int n;

	if (!recv || (room_of(recv) < request->send->length && qp->ibv.qp_type == IBV_QPT_UC)) {
		fake_world.stats.lost += qp->ibv.qp_type == IBV_QPT_UC;
		return qp->ibv.qp_type == IBV_QPT_UC ? FAKE_DONE : FAKE_RNR;
	}
	if (room_of(recv) < request->send->length)
		return fail_recv(request, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR, ret_status);
	n = fake_spans(to, FAKE_OF(struct fake_pd, ibv, qp->ibv.pd), recv->sges, recv->n_sge,
		IBV_ACCESS_LOCAL_WRITE);
	if (n < 0)
		return fail_recv(request, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR, ret_status);
	fake_copy(to, n, request->local, request->n_local);
	wc.byte_len = (uint32_t)request->send->length;
	if (wr->opcode == IBV_WR_SEND_WITH_IMM) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = wr->imm_data;
	}
	if (wr->opcode == IBV_WR_SEND_WITH_INV) {
		/* A key that cannot be invalidated ends the receive. The requester receives nothing
		 * more. */
		if (!fake_invalidate(qp, wr->invalidate_rkey)) {
			fail_recv(request, IBV_WC_REM_INV_REQ_ERR, IBV_WC_SUCCESS, ret_status);
			return FAKE_LOST;
		}
		wc.wc_flags = IBV_WC_WITH_INV;
		wc.invalidated_rkey = wr->invalidate_rkey;
	}
	complete_recv(qp, &wc, wr->send_flags & IBV_SEND_SOLICITED);
	return FAKE_DONE;
}

static enum fake_verdict on_write(const struct request *request, enum ibv_wc_status *ret_status)
{
	struct fake_qp *qp = request->qp;
	const struct ibv_send_wr *wr = &request->send->wr;
	bool has_imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct fake_span to = { NULL, request->send->length };
	struct ibv_wc wc = {
		.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
		.byte_len = (uint32_t)request->send->length,
		.wc_flags = IBV_WC_WITH_IMM,
		.imm_data = wr->imm_data,
		.src_qp = request->from->ibv.qp_num,
	};

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
		return refuse(request, IBV_WC_REM_INV_REQ_ERR, ret_status);
	if (has_imm && !first_recv(qp)) {
		fake_world.stats.lost += qp->ibv.qp_type == IBV_QPT_UC;
		return qp->ibv.qp_type == IBV_QPT_UC ? FAKE_DONE : FAKE_RNR;
	}
	if (to.length > 0) {
		to.data = fake_remote(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, to.length,
			IBV_ACCESS_REMOTE_WRITE);
		if (!to.data)
			return refuse(request, IBV_WC_REM_ACCESS_ERR, ret_status);
		fake_copy(&to, 1, request->local, request->n_local);
	}
	if (has_imm)
		complete_recv(qp, &wc, wr->send_flags & IBV_SEND_SOLICITED);
	return FAKE_DONE;
}

static enum fake_verdict on_read(const struct request *request, enum ibv_wc_status *ret_status)
{
	const struct ibv_send_wr *wr = &request->send->wr;
	struct fake_span from = { NULL, request->send->length };

	if (!(request->qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ))
		return refuse(request, IBV_WC_REM_INV_REQ_ERR, ret_status);
	if (from.length == 0)
		return FAKE_DONE;
	from.data = fake_remote(request->qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, from.length,
		IBV_ACCESS_REMOTE_READ);
	if (!from.data)
		return refuse(request, IBV_WC_REM_ACCESS_ERR, ret_status);
	fake_copy(request->local, request->n_local, &from, 1);
	return FAKE_DONE;
}

static enum fake_verdict on_atomic(const struct request *request, enum ibv_wc_status *ret_status)
{
	const struct ibv_send_wr *wr = &request->send->wr;
	struct fake_qp *qp = request->qp;
	struct fake_span before;
	uint64_t *at, value;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) ||
		qp->object.device->is.attr.atomic_cap == IBV_ATOMIC_NONE ||
		wr->wr.atomic.remote_addr % 8 != 0)
		return refuse(request, IBV_WC_REM_INV_REQ_ERR, ret_status);
	at = (uint64_t *)(void *)fake_remote(
		qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, 8, IBV_ACCESS_REMOTE_ATOMIC);
	if (!at)
		return refuse(request, IBV_WC_REM_ACCESS_ERR, ret_status);
	if ((uintptr_t)at % 8 != 0)
		return refuse(request, IBV_WC_REM_INV_REQ_ERR, ret_status);
	value = wr->wr.atomic.compare_add;
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		value = __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
	else
		__atomic_compare_exchange_n(
			at, &value, wr->wr.atomic.swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	before = (struct fake_span){ (uint8_t *)&value, sizeof(value) };
	fake_copy(request->local, request->n_local, &before, 1);
	return FAKE_DONE;
}

static enum fake_verdict on_request(const struct request *request, enum ibv_wc_status *ret_status)
{
	const struct ibv_qp_attr *ours = &request->qp->attr, *theirs = &request->from->attr;

	switch (request->send->wr.opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV: return on_send(request, ret_status);
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM: return on_write(request, ret_status);
	default: break;
	}
	if (ours->max_dest_rd_atomic < theirs->max_rd_atomic)
		return refuse(request, IBV_WC_REM_INV_REQ_ERR, ret_status);
	if (request->send->wr.opcode == IBV_WR_RDMA_READ)
		return on_read(request, ret_status);
	return on_atomic(request, ret_status);
}

enum fake_verdict fake_respond(struct fake_qp *peer, struct fake_qp *from,
	const struct fake_send *send, const struct fake_span *local, int n_local,
	enum ibv_wc_status *ret_status)
{
	struct request request = { peer, from, send, local, n_local };
	enum ibv_mtu mtu = from->attr.path_mtu, their_mtu = peer->attr.path_mtu;
	uint32_t packets = fake_packets(send->length, mtu);
	enum fake_verdict verdict;

	if (peer->ibv.qp_type == IBV_QPT_RC && from->psn != peer->expected_psn)
		return FAKE_LOST;
	if (peer->ibv.state == IBV_QPS_RTR && !peer->has_heard)
		fake_event_raise(&peer->object, IBV_EVENT_COMM_EST);
	peer->has_heard = true;
	if (mtu != their_mtu && (packets > 1 || fake_packets(send->length, their_mtu) > 1))
		return refuse(&request, IBV_WC_REM_INV_REQ_ERR, ret_status);
	verdict = on_request(&request, ret_status);
	if (verdict == FAKE_DONE && *ret_status == IBV_WC_SUCCESS) {
		from->psn = (from->psn + packets) & 0xffffff;
		peer->expected_psn = from->psn;
	}
	return verdict;
}

/* --- Datagrams */

static uint16_t sum(const uint8_t *bytes, size_t size)
{
	uint32_t total = 0;

	for (size_t i = 0; i < size; i += 2)
		total += (uint32_t)bytes[i] << 8 | bytes[i + 1];
	total = (total & 0xffff) + (total >> 16);
	return (uint16_t) ~((total & 0xffff) + (total >> 16));
}

static void put16(uint8_t *at, unsigned value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* RoCE v2 over IPv4: the header is in the last 20 bytes; the bytes before it are undefined. */
static void make_v4(uint8_t grh[FAKE_GRH], const struct ibv_global_route *route,
	const union ibv_gid *from, size_t length)
{
	uint8_t *ip = grh + 20;

	/* Bytes before an IPv4 header are not written and may look like an IPv6 header. */
	memset(grh, 0x65, 20);
	memset(ip, 0, 20);
	ip[0] = 0x45;
	ip[1] = route->traffic_class;
	put16(ip + 2, (unsigned)(20 + length));
	put16(ip + 6, 0x4000);
	ip[8] = route->hop_limit;
	ip[9] = 17;
	memcpy(ip + 12, from->raw + 12, 4);
	memcpy(ip + 16, route->dgid.raw + 12, 4);
	put16(ip + 10, sum(ip, 20));
}

static void make_grh(
	uint8_t bytes[FAKE_GRH], const struct fake_qp *from, const struct fake_send *send)
{
	const struct fake_verbs_port *port = fake_port_of(from->object.device, from->attr.port_num);
	const struct ibv_global_route *route = &send->to.grh;
	const struct fake_verbs_gid *source = &port->gids[route->sgid_index];
	bool is_v2 = source->type == IBV_GID_TYPE_ROCE_V2;
	/* UDP, BTH, DETH, the data padded, the ICRC; without UDP in a GRH. */
	size_t length = 12 + 8 + ((send->length + 3) & ~UINT64_C(3)) + 4 + (is_v2 ? 8 : 0);
	struct ibv_grh grh = { .sgid = source->gid, .dgid = route->dgid };

	if (is_v2 && fake_is_v4(&source->gid)) {
		make_v4(bytes, route, &source->gid, length);
		return;
	}
	grh.version_tclass_flow = htonl(
		UINT32_C(6) << 28 | (uint32_t)route->traffic_class << 20 | route->flow_label);
	grh.paylen = htons((uint16_t)length);
	grh.next_hdr = is_v2 ? 17 : 0x1b;
	grh.hop_limit = route->hop_limit;
	memcpy(bytes, &grh, FAKE_GRH);
}

bool fake_receive_datagram(struct fake_qp *peer, struct fake_qp *from, const struct fake_send *send,
	const struct fake_span *local, int n_local)
{
	const struct fake_recv *recv = first_recv(peer);
	uint32_t qkey = send->wr.wr.ud.remote_qkey;
	uint8_t grh[FAKE_GRH];
	struct fake_span parts[FAKE_MAX_SGE + 1] = { { grh, FAKE_GRH } }, to[FAKE_MAX_SGE];
	struct ibv_wc wc = { .opcode = IBV_WC_RECV, .src_qp = from->ibv.qp_num };
	int n;

	if (qkey & UINT32_C(0x80000000))
		qkey = from->attr.qkey;
	if (qkey != peer->attr.qkey || !recv || room_of(recv) < send->length + FAKE_GRH)
		return false;
	n = fake_spans(to, FAKE_OF(struct fake_pd, ibv, peer->ibv.pd), recv->sges, recv->n_sge,
		IBV_ACCESS_LOCAL_WRITE);
	if (n < 0) {
		wc.status = IBV_WC_LOC_PROT_ERR;
		complete_recv(peer, &wc, false);
		fake_qp_fail(peer, IBV_QPS_ERR);
		return true;
	}
	memset(grh, 0xa5, sizeof(grh));
	if (send->to.is_global)
		make_grh(grh, from, send);
	memcpy(parts + 1, local, (size_t)n_local * sizeof(*local));
	fake_copy(to, n, parts, n_local + 1);
	wc.byte_len = (uint32_t)send->length + FAKE_GRH;
	wc.wc_flags = send->to.is_global ? IBV_WC_GRH : 0;
	wc.sl = send->to.sl | peer->object.device->is.wc_sl;
	wc.slid = fake_port_of(from->object.device, from->attr.port_num)->lid;
	wc.pkey_index = peer->attr.pkey_index;
	if (send->wr.opcode == IBV_WR_SEND_WITH_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = send->wr.imm_data;
	}
	complete_recv(peer, &wc, send->wr.send_flags & IBV_SEND_SOLICITED);
	return true;
}
