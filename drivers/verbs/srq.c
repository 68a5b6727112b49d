/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared receive queues. post.c posts to them. */
#include "drivers/verbs/internal.h"

#include "lib/base/error.h"

static const char *name_of(const struct frl_srq *base)
{
	return device_of_pd(base->pd)->name;
}

/* Returns 0 or an errno. */
static int set_limit(struct verbs_srq *srq, uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };
	int rc = ibv_modify_srq(srq->srq, &attr, IBV_SRQ_LIMIT);

	return rc ? verbs_errno(rc) : 0;
}

int verbs_srq_create(struct frl_srq *base)
{
	const struct frl_device_attr *limits = &base->pd->device->attr;
	struct verbs_srq *srq = verbs_srq(base);
	struct ibv_srq_init_attr attr = {
		.srq_context = srq,
		.attr = { .max_wr = base->config.max_wr, .max_sge = base->config.max_sge },
	};
	int err;

	event_source_init(&srq->source, EVENT_OF_SRQ, base);
	errno = 0;
	srq->srq = ibv_create_srq(verbs_pd(base->pd)->pd, &attr);
	if (!srq->srq)
		return verbs_fail(verbs_null_errno(),
			"%s: no shared receive queue of %u requests with %u elements (at most %u "
			"with %u)",
			name_of(base), base->config.max_wr, base->config.max_sge,
			limits->max_srq_wr, limits->max_srq_sge);
	/* Creation does not arm the limit. */
	err = base->config.limit ? set_limit(srq, base->config.limit) : 0;
	if (!err)
		return 0;
	ibv_destroy_srq(srq->srq);
	return verbs_fail(err, "%s: no limit for a shared receive queue", name_of(base));
}

void verbs_srq_destroy(struct frl_srq *base)
{
	struct verbs_srq *srq = verbs_srq(base);
	struct ibv_srq *own = srq->srq;
	int rc = ibv_destroy_srq(own);

	verbs_destroyed(device_of_pd(base->pd), verbs_pd(base->pd), rc,
		"cannot destroy a shared receive queue");
	device_enter(base->pd->device);
	/* The thread for events reads it with the guard held. */
	if (rc)
		own->srq_context = NULL;
	list_remove(&srq->source.node);
	device_leave(base->pd->device);
}

int verbs_srq_set_limit(struct frl_srq *base, uint32_t limit)
{
	int err = set_limit(verbs_srq(base), limit);

	if (!err)
		return 0;
	return verbs_fail(err, "%s: cannot set the limit of a shared receive queue to %u",
		name_of(base), limit);
}

uint32_t verbs_srq_limit(struct frl_srq *base)
{
	struct ibv_srq_attr attr = { 0 };

	return ibv_query_srq(verbs_srq(base)->srq, &attr) ? 0 : attr.srq_limit;
}
