/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared receive queues. */
#include <errno.h>
#include <stdlib.h>

#include "lib/api/objects.h"
#include "lib/base/error.h"

static int check_config(const struct frl_srq_config *config)
{
	if (config->max_wr < 1 || config->max_wr > MAX_WR)
		return frl_fail(-EINVAL, "frl_srq_create: max_wr must be 1 to %d", MAX_WR);
	if (config->max_sge > FRL_MAX_SGE)
		return frl_fail(-EINVAL, "frl_srq_create: max_sge must be at most %d", FRL_MAX_SGE);
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
	rc = check_config(config);
	if (rc)
		return rc;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return frl_fail(-ENOMEM, "no memory for a shared receive queue");
	srq->pd = pd;
	srq->config = *config;
	if (!srq->config.max_sge)
		srq->config.max_sge = DEFAULT_SGE;
	srq->storage = calloc(1, recv_queue_storage(config->max_wr, srq->config.max_sge));
	if (!srq->storage) {
		free(srq);
		return frl_fail(-ENOMEM, "no memory for a shared receive queue of %u requests",
			config->max_wr);
	}
	device = pd->device;
	recv_queue_init(&srq->core.queue, srq->storage, config->max_wr, srq->config.max_sge, pd,
		&device->engine.regions);
	srq->core.limit = config->limit;
	event_source_init(&srq->core.events, EVENT_OF_SRQ);
	srq->core.queues = &device->engine.events;
	device_enter(device);
	pd->objects++;
	device_leave(device);
	*ret_srq = srq;
	return 0;
}

int frl_srq_destroy(struct frl_srq *srq)
{
	struct frl_device *device;

	if (!srq)
		return 0;
	device = srq->pd->device;
	device_enter(device);
	if (srq->qps) {
		device_leave(device);
		return frl_fail(-EBUSY, "the shared receive queue is still used by queue pairs");
	}
	events_forget(&srq->core.events);
	srq->pd->objects--;
	device_leave(device);
	free(srq->storage);
	free(srq);
	return 0;
}

int frl_srq_set_limit(struct frl_srq *srq, uint32_t limit)
{
	struct frl_device *device;

	if (!srq)
		return frl_fail(-EINVAL, "frl_srq_set_limit: srq is required");
	if (limit > srq->config.max_wr)
		return frl_fail(-EINVAL, "limit %u is more than the queue's max_wr %u", limit,
			srq->config.max_wr);
	device = srq->pd->device;
	device_enter(device);
	srq->core.limit = limit;
	device_leave(device);
	return 0;
}

void frl_srq_query(struct frl_srq *srq, struct frl_srq_config *ret_config)
{
	struct frl_device *device = srq->pd->device;

	device_enter(device);
	*ret_config = srq->config;
	ret_config->limit = srq->core.limit;
	device_leave(device);
}

void *frl_srq_context(const struct frl_srq *srq)
{
	return srq->config.context;
}

int frl_post_srq_recv(struct frl_srq *srq, const struct frl_recv_wr wr[], int n, int *ret_posted)
{
	int done = 0, rc = check_post("frl_post_srq_recv: srq", srq, wr, n, ret_posted);
	struct frl_device *device;
	const char *why = "";

	if (rc)
		return rc;
	device = srq->pd->device;
	device_enter(device);
	while (done < n && !(rc = recv_queue_post(&srq->core.queue, &wr[done], &why)))
		done++;
	device_leave(device);
	if (ret_posted)
		*ret_posted = done;
	if (rc)
		return frl_fail(rc, "shared receive queue, request %d: %s", done, why);
	return done;
}
