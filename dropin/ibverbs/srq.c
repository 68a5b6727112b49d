/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared receive queues. */
#include <errno.h>
#include <stdlib.h>

#include "dropin/ibverbs/dropin.h"

static struct ibv_srq *create(struct ibv_pd *pd, void *context, struct ibv_srq_attr *attr)
{
	struct dropin_srq *srq = calloc(1, sizeof(*srq));
	const struct frl_srq_config config = {
		.max_wr = attr->max_wr,
		.max_sge = attr->max_sge ? attr->max_sge : 1,
		.limit = 0, /* verbs ignore the limit here */
		.as_hardware = true,
		.context = srq,
	};
	int rc;

	if (!srq)
		return NULL;
	rc = frl_srq_create(pd_use(pd), &config, &srq->frl);
	if (rc) {
		pd_unuse(pd);
		free(srq);
		dropin_errno(rc);
		return NULL;
	}
	attr->max_sge = config.max_sge;
	srq->process = process_now();
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = context;
	srq->ibv.pd = pd;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	source_init(&srq->source, SOURCE_SRQ, &srq->ibv);
	return &srq->ibv;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return create(pd, attr->srq_context, &attr->attr);
}

struct ibv_srq *create_srq_ex(struct ibv_context *ibv, struct ibv_srq_init_attr_ex *attr)
{
	enum ibv_srq_type type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type
									  : IBV_SRQT_BASIC;

	if (type != IBV_SRQT_BASIC || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)) {
		dropin_refuse(type != IBV_SRQT_BASIC ? EOPNOTSUPP : EINVAL,
			"ibv_create_srq_ex: only basic queues with a protection domain are "
			"supported");
		return NULL;
	}
	return create(attr->pd, attr->srq_context, &attr->attr);
}

int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	int rc;

	if (mask & ~IBV_SRQ_LIMIT)
		return dropin_refuse(EOPNOTSUPP, "ibv_modify_srq: only the limit can be changed");
	if (!(mask & IBV_SRQ_LIMIT))
		return 0;
	rc = frl_srq_set_limit(dropin_srq(ibv)->frl, attr->srq_limit);
	return rc ? dropin_errno(rc) : 0;
}

int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *ret_attr)
{
	struct frl_srq_config config;

	frl_srq_query(dropin_srq(ibv)->frl, &config);
	*ret_attr = (struct ibv_srq_attr){
		.max_wr = config.max_wr,
		.max_sge = config.max_sge,
		.srq_limit = config.limit,
	};
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *ibv)
{
	struct dropin_srq *srq = dropin_srq(ibv);
	int rc;

	if (srq->process != process_now())
		return 0;
	rc = frl_srq_destroy(srq->frl);
	if (rc)
		return dropin_errno(rc);
	/* The wait may be cancelled. Another call then does the rest. */
	if (srq->frl)
		pd_unuse(ibv->pd);
	srq->frl = NULL;
	async_forget(ibv->context, &srq->source, &ibv->mutex, &ibv->cond, &ibv->events_completed);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	free(srq);
	return 0;
}
