/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues. */
#include <errno.h>
#include <stdlib.h>

#include "dropin/ibverbs/dropin.h"

/*
 * The service level of datagrams that were received, by the convention of mlx5: bit 3 says UDP, and
 * the other bits the version of IP. UCX drops datagrams without it. Address handles mask it again.
 */
enum { SL_UDP_IPV4 = 0xa, SL_UDP_IPV6 = 0x9 };

/* ---- creation */

static int open_cq(struct dropin_cq *cq, struct ibv_context *ibv, uint32_t cqe)
{
	struct ibv_comp_channel *channel = cq->ibv.channel;

	return frl_cq_create_on_channel(dropin_context(ibv)->frl, cqe,
		channel ? dropin_channel(channel)->frl : NULL, cq, &cq->frl);
}

struct dropin_cq *cq_create(struct ibv_context *ibv, uint32_t cqe, struct ibv_comp_channel *channel,
	int comp_vector, void *cq_context)
{
	struct dropin_cq *cq;
	int rc;

	if (comp_vector < 0 || comp_vector >= ibv->num_comp_vectors) {
		dropin_refuse(EINVAL, "ibv_create_cq: there is one completion vector, 0");
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	cq->process = process_now();
	cq->ibv.context = ibv;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = (int)cqe;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	pthread_mutex_init(&cq->poll_mutex, NULL);
	list_init(&cq->event_node);
	source_init(&cq->source, SOURCE_CQ, &cq->ibv);
	rc = open_cq(cq, ibv, cqe);
	if (rc) {
		free(cq);
		dropin_errno(rc);
		return NULL;
	}
	if (channel)
		__atomic_add_fetch(&channel->refcnt, 1, __ATOMIC_RELAXED);
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ibv, int cqe, void *cq_context,
	struct ibv_comp_channel *channel, int comp_vector)
{
	struct dropin_cq *cq;

	if (cqe < 1) {
		dropin_refuse(EINVAL, "ibv_create_cq: cqe must be at least 1");
		return NULL;
	}
	cq = cq_create(ibv, (uint32_t)cqe, channel, comp_vector, cq_context);
	return cq ? &cq->ibv : NULL;
}

int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	int rc;

	if (cqe < 1)
		return dropin_refuse(EINVAL, "ibv_resize_cq: cqe must be at least 1");
	rc = frl_cq_resize(dropin_cq(ibv)->frl, (uint32_t)cqe);
	if (rc)
		return dropin_errno(rc);
	ibv->cqe = cqe;
	return 0;
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct dropin_cq *cq = dropin_cq(ibv);
	int rc;

	if (cq->process != process_now())
		return 0;
	rc = frl_cq_destroy(cq->frl);
	if (rc)
		return dropin_errno(rc);
	/* The waits may be cancelled. Another call then does the rest. */
	cq->frl = NULL;
	channel_forget_cq(cq);
	async_forget(
		ibv->context, &cq->source, &ibv->mutex, &ibv->cond, &ibv->async_events_completed);
	if (ibv->channel)
		__atomic_sub_fetch(&ibv->channel->refcnt, 1, __ATOMIC_RELEASE);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	pthread_mutex_destroy(&cq->poll_mutex);
	free(cq);
	return 0;
}

/* ---- polling */

/* Verbs have no status for the end of the peer's process: to a NIC it is a peer that does not
 * answer. */
static enum ibv_wc_status status_of(enum frl_wc_status status)
{
	return status == FRL_WC_REM_ABORT_ERR ? IBV_WC_RETRY_EXC_ERR : (enum ibv_wc_status)status;
}

static void convert(const struct frl_wc *from, struct ibv_wc *wc)
{
	wc->wr_id = from->wr_id;
	wc->status = status_of(from->status);
	wc->opcode = (enum ibv_wc_opcode)from->opcode;
	wc->vendor_err = 0;
	wc->byte_len = from->byte_len;
	wc->imm_data = from->imm_data;
	wc->qp_num = from->qp_num;
	wc->src_qp = from->src_qp;
	wc->wc_flags = from->flags & (FRL_WC_GRH | FRL_WC_WITH_IMM | FRL_WC_WITH_INV);
	wc->pkey_index = from->pkey_index;
	wc->slid = 0;
	wc->sl = from->sl;
	wc->dlid_path_bits = 0;
	if (from->flags & FRL_WC_GRH)
		wc->sl = from->flags & FRL_WC_IPV4 ? SL_UDP_IPV4 : SL_UDP_IPV6;
}

int poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct dropin_cq *cq = dropin_cq(ibv);
	struct frl_wc batch[DROPIN_BATCH];
	int total = 0;

	while (total < n) {
		int wanted = n - total < DROPIN_BATCH ? n - total : DROPIN_BATCH;
		int got = frl_poll_cq(cq->frl, wanted, batch);

		if (got < 0)
			return total ? total : -dropin_errno(got);
		for (int i = 0; i < got; i++)
			convert(&batch[i], &wc[total + i]);
		total += got;
		if (got < wanted)
			break;
	}
	return total;
}

int cq_take_one(struct dropin_cq *cq, struct ibv_wc *ret_wc, uint16_t *ret_vlan)
{
	struct frl_wc wc;
	int n = frl_poll_cq(cq->frl, 1, &wc);

	if (n <= 0)
		return n ? -dropin_errno(n) : 0;
	convert(&wc, ret_wc);
	*ret_vlan = wc.vlan;
	return 1;
}

int req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	int rc;

	/* Hardware accepts this, and no event follows. */
	if (!ibv->channel)
		return 0;
	rc = frl_req_notify_cq(dropin_cq(ibv)->frl, solicited_only != 0);
	return rc ? dropin_errno(rc) : 0;
}
