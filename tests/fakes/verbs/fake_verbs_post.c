/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: work requests are posted, by lists and by ibv_wr_*(). */
#include <errno.h>

#include "tests/fakes/verbs/fake_verbs_internal.h"

/* --- Sends */

static bool is_allowed(const struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	enum ibv_qp_type type = qp->ibv.qp_type;

	if (type == IBV_QPT_RAW_PACKET)
		return wr->opcode == IBV_WR_SEND;
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM: return true;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM: return type != IBV_QPT_UD;
	case IBV_WR_RDMA_READ: return type == IBV_QPT_RC && !(wr->send_flags & IBV_SEND_INLINE);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return type == IBV_QPT_RC && !(wr->send_flags & IBV_SEND_INLINE) &&
			qp->object.device->is.attr.atomic_cap != IBV_ATOMIC_NONE;
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW: return type != IBV_QPT_UD && qp->object.device->is.has_mw;
	case IBV_WR_SEND_WITH_INV: return type == IBV_QPT_RC && qp->object.device->is.has_mw;
	default: return false;
	}
}

static bool has_room(const struct fake_qp *qp, unsigned staged)
{
	return qp->posted + staged - qp->freed < qp->init.cap.max_send_wr;
}

static struct fake_send *slot_of(struct fake_qp *qp, uint64_t index)
{
	return &qp->sends[index % qp->init.cap.max_send_wr];
}

/* Takes inline data now. Returns an errno value, or 0. */
static int set_data(const struct fake_qp *qp, struct fake_send *send, const struct ibv_sge *sges,
	uint32_t n, bool is_inline)
{
	send->length = 0;
	if (n > qp->init.cap.max_send_sge)
		return EINVAL;
	for (uint32_t i = 0; i < n; i++) {
		if (is_inline && sges[i].length > qp->init.cap.max_inline_data - send->length)
			return EINVAL;
		if (is_inline && sges[i].length > 0)
			memcpy(send->bytes + send->length, (const void *)(uintptr_t)sges[i].addr,
				sges[i].length);
		send->sges[i] = sges[i];
		send->length += sges[i].length;
	}
	send->wr.num_sge = (int)n;
	return 0;
}

static int set_address(const struct fake_qp *qp, struct fake_send *send, struct ibv_ah *ah)
{
	if (qp->ibv.qp_type != IBV_QPT_UD)
		return 0;
	if (!ah)
		return EINVAL;
	send->to = FAKE_OF(struct fake_ah, ibv, ah)->attr;
	send->ah_pd = ah->pd;
	return 0;
}

/* Writes behind the last one; the caller makes it count. */
static int stage(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	struct fake_send *send;
	int err;

	if (!is_allowed(qp, wr) || wr->num_sge < 0)
		return EINVAL;
	if (!has_room(qp, 0))
		return ENOMEM;
	send = slot_of(qp, qp->posted);
	send->wr = *wr;
	err = set_data(
		qp, send, wr->sg_list, (uint32_t)wr->num_sge, wr->send_flags & IBV_SEND_INLINE);
	return err != 0 ? err : set_address(qp, send, wr->wr.ud.ah);
}

static void count(const struct ibv_send_wr *wr, bool is_ex)
{
	fake_world.stats.posted++;
	fake_world.stats.wr_api += is_ex;
	fake_world.stats.inlined += (wr->send_flags & IBV_SEND_INLINE) != 0;
	fake_world.stats.signaled += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
}

/* A QP accepts sends once it can send. Sends of a QP that has failed are flushed. */
static bool takes_sends(const struct fake_qp *qp)
{
	return qp->ibv.state != IBV_QPS_RESET && qp->ibv.state != IBV_QPS_INIT &&
		qp->ibv.state != IBV_QPS_RTR;
}

static void go(struct fake_qp *qp)
{
	fake_world.stats.posts++;
	fake_qp_flush(qp);
	fake_wire_run();
}

int fake_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = FAKE_OF(struct fake_qp, ibv, ibv);
	int err;

	*bad = wr;
	pthread_mutex_lock(&qp->building);
	err = fake_enter("ibv_post_send", FAKE_CALL_MAKES, qp->object.device);
	if (err != 0) {
		pthread_mutex_unlock(&qp->building);
		return err;
	}
	if (!takes_sends(qp))
		err = EINVAL;
	for (; err == 0 && wr; wr = wr->next) {
		*bad = wr;
		err = stage(qp, wr);
		if (err != 0)
			break;
		count(wr, false);
		qp->posted++;
	}
	go(qp);
	fake_leave();
	pthread_mutex_unlock(&qp->building);
	return err;
}

/* --- ibv_wr_*(): requests are put together behind the queue, and count at ibv_wr_complete(). */

static struct fake_qp *of_ex(struct ibv_qp_ex *ex)
{
	return FAKE_OF(struct fake_qp, ex, ex);
}

static void fail_build(struct fake_qp *qp, int err)
{
	if (qp->staged_error == 0)
		qp->staged_error = err;
}

/* Returns the next request; NULL if an earlier one of the list was wrong. */
static struct ibv_send_wr *begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct fake_qp *qp = of_ex(ex);
	struct ibv_send_wr wr = {
		.wr_id = ex->wr_id, .send_flags = ex->wr_flags, .opcode = opcode
	};
	struct fake_send *send = NULL;

	fake_enter_always("ibv_wr_*");
	if (!is_allowed(qp, &wr))
		fail_build(qp, EINVAL);
	else if (!has_room(qp, qp->n_staged))
		fail_build(qp, ENOMEM);
	if (qp->staged_error == 0) {
		send = slot_of(qp, qp->posted + qp->n_staged++);
		send->wr = wr;
		send->length = 0;
		send->ah_pd = NULL;
	}
	fake_leave();
	return send ? &send->wr : NULL;
}

/* The request being built, or NULL. */
static struct fake_send *last(struct fake_qp *qp)
{
	if (qp->n_staged == 0)
		fail_build(qp, EINVAL);
	return qp->staged_error != 0 ? NULL : slot_of(qp, qp->posted + qp->n_staged - 1);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
	struct ibv_send_wr *wr = begin(ex, IBV_WR_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm_data;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct ibv_send_wr *wr = begin(ex, IBV_WR_SEND_WITH_INV);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void begin_rdma(
	struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct ibv_send_wr *wr = begin(ex, opcode);

	if (!wr)
		return;
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = addr;
	wr->imm_data = imm;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	begin_rdma(ex, IBV_WR_RDMA_WRITE, rkey, addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	begin_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	begin_rdma(ex, IBV_WR_RDMA_READ, rkey, addr, 0);
}

static void begin_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
	uint64_t addr, uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = begin(ex, opcode);

	if (!wr)
		return;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(
	struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	begin_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	begin_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct ibv_send_wr *wr = begin(ex, IBV_WR_LOCAL_INV);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void wr_bind_mw(
	struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = begin(ex, IBV_WR_BIND_MW);

	if (!wr)
		return;
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void wr_set_ud_addr(
	struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct fake_qp *qp = of_ex(ex);
	struct fake_send *send = last(qp);

	if (!send)
		return;
	send->wr.wr.ud.ah = ah;
	send->wr.wr.ud.remote_qpn = remote_qpn;
	send->wr.wr.ud.remote_qkey = remote_qkey;
	if (set_address(qp, send, ah) != 0)
		fail_build(qp, EINVAL);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *sges)
{
	struct fake_qp *qp = of_ex(ex);
	struct fake_send *send = last(qp);

	if (send && set_data(qp, send, sges, (uint32_t)n, false) != 0)
		fail_build(qp, EINVAL);
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(
	struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *buffers)
{
	struct fake_qp *qp = of_ex(ex);
	struct fake_send *send = last(qp);
	uint64_t used = 0;

	for (size_t i = 0; send && i < n; i++) {
		if (buffers[i].length > qp->init.cap.max_inline_data - used) {
			fail_build(qp, EINVAL);
			return;
		}
		if (buffers[i].length > 0)
			memcpy(send->bytes + used, buffers[i].addr, buffers[i].length);
		used += buffers[i].length;
	}
	if (!send)
		return;
	if (qp->object.device->is.needs_inline_flag && !(send->wr.send_flags & IBV_SEND_INLINE))
		fail_build(qp, EINVAL);
	send->wr.send_flags |= IBV_SEND_INLINE;
	send->length = used;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buffer = { addr, length };

	wr_set_inline_data_list(ex, 1, &buffer);
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct fake_qp *qp = of_ex(ex);

	pthread_mutex_lock(&qp->building);
	qp->n_staged = 0;
	qp->staged_error = 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&of_ex(ex)->building);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct fake_qp *qp = of_ex(ex);
	int err = fake_enter("ibv_wr_complete", FAKE_CALL_MAKES, qp->object.device);

	if (err != 0) {
		pthread_mutex_unlock(&qp->building);
		return err;
	}
	err = qp->staged_error;
	for (unsigned i = 0; err == 0 && i < qp->n_staged; i++) {
		const struct fake_send *send = slot_of(qp, qp->posted + i);

		if (!is_allowed(qp, &send->wr) || (qp->ibv.qp_type == IBV_QPT_UD && !send->ah_pd))
			err = EINVAL;
	}
	if (!takes_sends(qp))
		err = EINVAL;
	for (unsigned i = 0; err == 0 && i < qp->n_staged; i++)
		count(&slot_of(qp, qp->posted++)->wr, true);
	go(qp);
	fake_leave();
	pthread_mutex_unlock(&qp->building);
	return err;
}

/* Operations that were not requested stay NULL, as with providers. */
void fake_qp_ex_init(struct fake_qp *qp, uint64_t ops)
{
	struct ibv_qp_ex *ex = &qp->ex;

	qp->has_ex = true;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_ud_addr = qp->ibv.qp_type == IBV_QPT_UD ? wr_set_ud_addr : NULL;
	ex->wr_send = ops & IBV_QP_EX_WITH_SEND ? wr_send : NULL;
	ex->wr_send_imm = ops & IBV_QP_EX_WITH_SEND_WITH_IMM ? wr_send_imm : NULL;
	ex->wr_send_inv = ops & IBV_QP_EX_WITH_SEND_WITH_INV ? wr_send_inv : NULL;
	ex->wr_rdma_write = ops & IBV_QP_EX_WITH_RDMA_WRITE ? wr_rdma_write : NULL;
	ex->wr_rdma_write_imm = ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM ? wr_rdma_write_imm : NULL;
	ex->wr_rdma_read = ops & IBV_QP_EX_WITH_RDMA_READ ? wr_rdma_read : NULL;
	ex->wr_atomic_cmp_swp = ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP ? wr_atomic_cmp_swp : NULL;
	ex->wr_atomic_fetch_add = ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD ? wr_atomic_fetch_add
									    : NULL;
	ex->wr_local_inv = ops & IBV_QP_EX_WITH_LOCAL_INV ? wr_local_inv : NULL;
	ex->wr_bind_mw = ops & IBV_QP_EX_WITH_BIND_MW ? wr_bind_mw : NULL;
	if (qp->object.device->is.lacks_wr_inv)
		ex->wr_local_inv = NULL, ex->wr_send_inv = NULL;
}

/* --- Receives */

static int add_recv(struct fake_recv_ring *ring, const struct ibv_recv_wr *wr)
{
	struct fake_recv *slot;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > ring->max_sge)
		return EINVAL;
	if (ring->posted - ring->polled >= ring->max_wr)
		return ENOMEM;
	slot = &ring->slots[ring->posted % ring->max_wr];
	slot->wr_id = wr->wr_id;
	slot->n_sge = wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++)
		slot->sges[i] = wr->sg_list[i];
	ring->posted++;
	fake_world.stats.recv_posted++;
	return 0;
}

static int add_recvs(
	struct fake_recv_ring *ring, const struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = 0;

	fake_world.stats.recv_posts++;
	for (; err == 0 && wr; wr = wr->next) {
		*bad = (struct ibv_recv_wr *)(uintptr_t)wr;
		err = add_recv(ring, wr);
	}
	return err;
}

int fake_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_qp *qp = FAKE_OF(struct fake_qp, ibv, ibv);
	int err = fake_enter("ibv_post_recv", FAKE_CALL_MAKES, qp->object.device);

	*bad = wr;
	if (err != 0)
		return err;
	if (ibv->srq || ibv->state == IBV_QPS_RESET)
		err = EINVAL;
	else
		err = add_recvs(&qp->recvs, wr, bad);
	fake_qp_flush(qp);
	fake_wire_run();
	fake_leave();
	return err;
}

int fake_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_srq *srq = FAKE_OF(struct fake_srq, ibv, ibv);
	int err = fake_enter("ibv_post_srq_recv", FAKE_CALL_MAKES, srq->object.device);

	*bad = wr;
	if (err != 0)
		return err;
	err = add_recvs(&srq->ring, wr, bad);
	fake_wire_run();
	fake_leave();
	return err;
}
