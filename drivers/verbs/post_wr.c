/* SPDX-License-Identifier: BSD-3-Clause */
/* Posts send requests by ibv_wr_*(), which writes each directly into the hardware's queue. */
#include "drivers/verbs/internal.h"

static void bind(struct ibv_qp_ex *ex, const struct frl_mw_bind *bind)
{
	const struct ibv_mw_bind_info info = verbs_bind_info(bind);

	ibv_wr_bind_mw(ex, verbs_mw(bind->mw)->mw, bind->rkey, &info);
}

static void begin(struct ibv_qp_ex *ex, const struct frl_send_wr *wr)
{
	switch (wr->opcode) {
	case FRL_WR_RDMA_WRITE: ibv_wr_rdma_write(ex, wr->rkey, wr->remote_addr); break;
	case FRL_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(ex, wr->rkey, wr->remote_addr, wr->imm_data);
		break;
	case FRL_WR_SEND: ibv_wr_send(ex); break;
	case FRL_WR_SEND_WITH_IMM: ibv_wr_send_imm(ex, wr->imm_data); break;
	case FRL_WR_RDMA_READ: ibv_wr_rdma_read(ex, wr->rkey, wr->remote_addr); break;
	case FRL_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(ex, wr->rkey, wr->remote_addr, wr->compare_add, wr->swap);
		break;
	case FRL_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(ex, wr->rkey, wr->remote_addr, wr->compare_add);
		break;
	case FRL_WR_LOCAL_INV: ibv_wr_local_inv(ex, wr->invalidate_rkey); break;
	case FRL_WR_BIND_MW: bind(ex, &wr->bind); break;
	case FRL_WR_SEND_WITH_INV: ibv_wr_send_inv(ex, wr->invalidate_rkey); break;
	}
}

static void set_inline(struct ibv_qp_ex *ex, const struct post_wr *wr)
{
	struct ibv_data_buf bufs[FRL_MAX_SGE];

	for (int i = 0; i < wr->n_sge; i++)
		bufs[i] = (struct ibv_data_buf){ .addr = (void *)(uintptr_t)wr->sge[i].addr,
			.length = wr->sge[i].length };
	ibv_wr_set_inline_data_list(ex, (size_t)wr->n_sge, bufs);
}

static void set_payload(struct ibv_qp_ex *ex, const struct post_wr *wr)
{
	if (wr->wr->opcode == FRL_WR_LOCAL_INV || wr->wr->opcode == FRL_WR_BIND_MW)
		return;
	if (wr->flags & IBV_SEND_INLINE)
		set_inline(ex, wr);
	else if (wr->n_sge == 1)
		ibv_wr_set_sge(ex, wr->sge->lkey, wr->sge->addr, wr->sge->length);
	else
		ibv_wr_set_sge_list(ex, (size_t)wr->n_sge, wr->sge);
}

int verbs_post_by_wr(struct verbs_qp *qp, const struct post_wr wrs[], int n)
{
	struct ibv_qp_ex *ex = qp->ex;
	int rc;

	ibv_wr_start(ex);
	for (int i = 0; i < n; i++) {
		const struct frl_send_wr *wr = wrs[i].wr;

		ex->wr_id = wr->wr_id;
		/* Set the flag for inline, too: some providers check it instead of the call. */
		ex->wr_flags = wrs[i].flags;
		begin(ex, wr);
		if (is_datagram(&qp->base))
			ibv_wr_set_ud_addr(
				ex, verbs_ah(wr->ah)->ah, wr->remote_qpn, verbs_qkey_for(qp, wr));
		set_payload(ex, &wrs[i]);
	}
	rc = ibv_wr_complete(ex);
	return rc ? verbs_errno(rc) : 0;
}
