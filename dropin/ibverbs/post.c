/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that programs post as lists. They are converted on the stack, some at a time.
 */
#include <errno.h>

#include "dropin/ibverbs/dropin.h"

/* ibv_sge and frl_sge have one layout: see abi.h. */
static const struct frl_sge *elements(const struct ibv_sge *list)
{
	return (const struct frl_sge *)(const void *)list;
}

/* ---- send requests */

static void convert_bind(const struct ibv_send_wr *from, struct frl_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &from->bind_mw.bind_info;

	wr->bind = (struct frl_mw_bind){
		.mw = from->bind_mw.mw ? dropin_mw(from->bind_mw.mw)->frl : NULL,
		.mr = info->mr ? dropin_mr(info->mr)->frl : NULL,
		.addr = info->addr,
		.length = info->length,
		.rkey = from->bind_mw.rkey,
		.access = window_access(info),
	};
}

static void convert_datagram(const struct ibv_send_wr *from, struct frl_send_wr *wr)
{
	wr->ah = from->wr.ud.ah ? dropin_ah(from->wr.ud.ah)->frl : NULL;
	wr->remote_qpn = from->wr.ud.remote_qpn & 0xffffff;
	wr->remote_qkey = from->wr.ud.remote_qkey;
}

static void convert_atomic(const struct ibv_send_wr *from, struct frl_send_wr *wr)
{
	wr->rkey = from->wr.atomic.rkey;
	wr->compare_add = from->wr.atomic.compare_add;
	wr->swap = from->wr.atomic.swap;
}

/*
 * Programs may leave members uninitialised that the opcode does not use. Such values are copied,
 * and no code depends on them. Members that only some requests have are set for those alone.
 */
static void convert_send(
	const struct dropin_qp *qp, const struct ibv_send_wr *from, struct frl_send_wr *wr)
{
	wr->wr_id = from->wr_id;
	wr->opcode = (enum frl_wr_opcode)from->opcode;
	wr->flags = from->send_flags &
		(FRL_SEND_FENCE | FRL_SEND_SIGNALED | FRL_SEND_SOLICITED | FRL_SEND_INLINE);
	wr->sge = elements(from->sg_list);
	wr->n_sge = from->num_sge;
	wr->imm_data = from->imm_data; /* or the key to invalidate */
	wr->remote_addr = from->wr.rdma.remote_addr;
	wr->rkey = from->wr.rdma.rkey;
	wr->keep = 0;
	if (qp->is_datagram)
		convert_datagram(from, wr);
	if (from->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		from->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		convert_atomic(from, wr);
	else if (from->opcode == IBV_WR_BIND_MW)
		convert_bind(from, wr);
}

static struct ibv_send_wr *nth_send(struct ibv_send_wr *wr, int n)
{
	while (n-- > 0)
		wr = wr->next;
	return wr;
}

int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct dropin_qp *qp = dropin_qp(ibv);
	struct frl_send_wr batch[DROPIN_BATCH];

	while (wr) {
		struct ibv_send_wr *first = wr;
		int n = 0, posted = 0, rc;

		for (; wr && n < DROPIN_BATCH; wr = wr->next)
			convert_send(qp, wr, &batch[n++]);
		rc = frl_post_send(qp->frl, batch, n, &posted);
		if (rc < 0) {
			*bad_wr = nth_send(first, posted);
			return dropin_errno(rc);
		}
	}
	return 0;
}

/* ---- receive requests */

static int convert_recvs(struct ibv_recv_wr **next, struct frl_recv_wr batch[static DROPIN_BATCH])
{
	struct ibv_recv_wr *wr = *next;
	int n = 0;

	for (; wr && n < DROPIN_BATCH; wr = wr->next)
		batch[n++] = (struct frl_recv_wr){
			.wr_id = wr->wr_id,
			.sge = elements(wr->sg_list),
			.n_sge = wr->num_sge,
		};
	*next = wr;
	return n;
}

static struct ibv_recv_wr *nth_recv(struct ibv_recv_wr *wr, int n)
{
	while (n-- > 0)
		wr = wr->next;
	return wr;
}

int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct frl_recv_wr batch[DROPIN_BATCH];

	while (wr) {
		struct ibv_recv_wr *first = wr;
		int posted = 0;
		int n = convert_recvs(&wr, batch);
		int rc = frl_post_recv(dropin_qp(ibv)->frl, batch, n, &posted);

		if (rc < 0) {
			*bad_wr = nth_recv(first, posted);
			return dropin_errno(rc);
		}
	}
	return 0;
}

int post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct frl_recv_wr batch[DROPIN_BATCH];

	while (wr) {
		struct ibv_recv_wr *first = wr;
		int posted = 0;
		int n = convert_recvs(&wr, batch);
		int rc = frl_post_srq_recv(dropin_srq(ibv)->frl, batch, n, &posted);

		if (rc < 0) {
			*bad_wr = nth_recv(first, posted);
			return dropin_errno(rc);
		}
	}
	return 0;
}
