/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared receive queues. */
#include "lib/api/objects.h"

#include <stdlib.h>

static int check_config(const struct frl_device_attr *attr, const struct frl_srq_config *config)
{
	if (config->max_wr < 1 || config->max_wr > attr->max_srq_wr)
		return frl_fail(
			-EINVAL, "frl_srq_create: max_wr must be 1 to %u", attr->max_srq_wr);
	if (config->max_sge > attr->max_srq_sge)
		return frl_fail(
			-EINVAL, "frl_srq_create: max_sge must be at most %u", attr->max_srq_sge);
	if (config->limit > config->max_wr)
		return frl_fail(-EINVAL, "frl_srq_create: limit %u is more than max_wr %u",
			config->limit, config->max_wr);
	return 0;
}

int frl_srq_create(struct frl_pd *pd, const struct frl_srq_config *config, struct frl_srq **ret_srq)
{
	struct frl_device *device;
	struct frl_srq *srq;
	int rc;

	if (!pd || !config || !ret_srq)
		return frl_fail(-EINVAL, "frl_srq_create: pd, config and ret_srq are required");
	device = pd->device;
	rc = check_config(&device->attr, config);
	if (rc)
		return rc;
	srq = calloc(1, device->ops->srq_size);
	if (!srq)
		return frl_fail(-ENOMEM, "no memory for a shared receive queue");
	srq->pd = pd;
	srq->config = *config;
	if (!srq->config.max_sge)
		srq->config.max_sge = default_sge(device->attr.max_srq_sge);
	pd_count(pd, 1);
	rc = device->ops->srq_create(srq);
	if (mr_caches_make_room(rc))
		rc = device->ops->srq_create(srq);
	if (rc) {
		pd_count(pd, -1);
		free(srq);
		return rc;
	}
	*ret_srq = srq;
	return 0;
}

int frl_srq_destroy(struct frl_srq *srq)
{
	struct frl_device *device;
	unsigned qps;

	if (!srq)
		return 0;
	device = srq->pd->device;
	device_enter(device);
	qps = srq->qps;
	device_leave(device);
	if (qps)
		return frl_fail(-EBUSY, "the shared receive queue is still used by queue pairs");
	device->ops->srq_destroy(srq);
	pd_count(srq->pd, -1);
	free(srq);
	return 0;
}

int frl_srq_set_limit(struct frl_srq *srq, uint32_t limit)
{
	if (!srq)
		return frl_fail(-EINVAL, "frl_srq_set_limit: srq is required");
	if (limit > srq->config.max_wr)
		return frl_fail(-EINVAL, "limit %u is more than the queue's max_wr %u", limit,
			srq->config.max_wr);
	return srq->pd->device->ops->srq_set_limit(srq, limit);
}

void frl_srq_query(struct frl_srq *srq, struct frl_srq_config *ret_config)
{
	*ret_config = srq->config;
	ret_config->limit = srq->pd->device->ops->srq_limit(srq);
}

void *frl_srq_context(const struct frl_srq *srq)
{
	return srq->config.context;
}

int frl_post_srq_recv(struct frl_srq *srq, const struct frl_recv_wr wr[], int n, int *ret_posted)
{
	int posted, rc = check_post("frl_post_srq_recv: srq", srq, wr, n, ret_posted);

	if (rc)
		return rc;
	return srq->pd->device->ops->srq_post(srq, wr, n, ret_posted ? ret_posted : &posted);
}
