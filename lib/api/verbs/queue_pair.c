/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs: checks arguments and calls the driver. */
#include "lib/api/objects.h"

#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/base/limit.h"

static int check_qp_limits(const struct frl_device_attr *attr, const struct frl_qp_config *config)
{
	if (config->type != 0 &&
		(config->type < FRL_QPT_GSI || (unsigned)config->type > FRL_QPT_UD))
		return frl_fail(-EINVAL, "frl_qp_create: unknown type %d", (int)config->type);
	if (config->max_send_wr < 1 || config->max_send_wr > attr->max_qp_wr ||
		(!config->srq && config->max_recv_wr > attr->max_qp_wr))
		return frl_fail(-EINVAL,
			"frl_qp_create: max_send_wr must be 1 to %u, max_recv_wr 0 to %u",
			attr->max_qp_wr, attr->max_qp_wr);
	if (config->max_send_sge > attr->max_sge || config->max_recv_sge > attr->max_sge)
		return frl_fail(-EINVAL,
			"frl_qp_create: max_send_sge and max_recv_sge must be at most %u",
			attr->max_sge);
	if (config->max_inline > attr->max_inline)
		return frl_fail(
			-EINVAL, "frl_qp_create: max_inline must be at most %u", attr->max_inline);
	return 0;
}

static int check_qp_config(const struct frl_pd *pd, const struct frl_qp_config *config)
{
	if (!pd || !config || !config->send_cq || !config->recv_cq)
		return frl_fail(-EINVAL,
			"frl_qp_create: pd, config with both completion queues and ret_qp are "
			"required");
	if (config->send_cq->device != pd->device || config->recv_cq->device != pd->device)
		return frl_fail(-EINVAL, "frl_qp_create: a completion queue is of another device");
	/* Its domain may be another one: receives are checked against that. */
	if (config->srq && config->srq->pd->device != pd->device)
		return frl_fail(
			-EINVAL, "frl_qp_create: the shared receive queue is of another device");
	return check_qp_limits(&pd->device->attr, config);
}

/* Replaces all defaults by values. */
static struct frl_qp_config complete_config(
	const struct frl_device_attr *attr, const struct frl_qp_config *wanted)
{
	struct frl_qp_config config = *wanted;

	if (!config.type)
		config.type = FRL_QPT_RC;
	if (config.srq)
		config.max_recv_wr = 0;
	if (!config.max_send_sge)
		config.max_send_sge = default_sge(attr->max_sge);
	if (!config.max_recv_sge)
		config.max_recv_sge = default_sge(attr->max_sge);
	if (!config.max_inline)
		config.max_inline = attr->max_inline < DEFAULT_INLINE ? attr->max_inline
								      : DEFAULT_INLINE;
	return config;
}

/*
 * Adds `change`, 1 or -1, to the reference counts of the queue pair's objects. With the guard held.
 */
static void count(struct frl_qp *qp, int change)
{
	qp->pd->objects += (unsigned)change;
	qp->send_cq->qps += (unsigned)change;
	qp->recv_cq->qps += (unsigned)change;
	if (qp->srq)
		qp->srq->qps += (unsigned)change;
}

/* `is_wish`: max_inline is a default; hardware may support fewer bytes, or none. */
static int create(struct frl_qp *qp, struct frl_qp_config *config, bool is_wish)
{
	const struct device_ops *ops = qp->pd->device->ops;
	int rc;

	for (;;) {
		qp->max_inline = config->max_inline;
		rc = ops->qp_create(qp, config);
		if (rc != -EINVAL || !is_wish || !config->max_inline)
			return rc;
		config->max_inline = config->max_inline > LEAST_INLINE ? config->max_inline / 2 : 0;
	}
}

int frl_qp_create(struct frl_pd *pd, const struct frl_qp_config *config, struct frl_qp **ret_qp)
{
	int rc = check_qp_config(pd, ret_qp ? config : NULL);
	struct frl_qp_config complete;
	struct frl_device *device;
	struct frl_qp *qp;

	if (rc)
		return rc;
	device = pd->device;
	qp = calloc(1, device->ops->qp_size);
	if (!qp)
		return frl_fail(-ENOMEM, "no memory for a queue pair");
	complete = complete_config(&device->attr, config);
	qp->pd = pd;
	qp->send_cq = config->send_cq;
	qp->recv_cq = config->recv_cq;
	qp->srq = config->srq;
	qp->context = config->context;
	qp->type = complete.type;
	rc = create(qp, &complete, !config->max_inline);
	if (mr_caches_make_room(rc))
		rc = create(qp, &complete, !config->max_inline);
	if (rc) {
		free(qp);
		return rc;
	}
	device_enter(device);
	count(qp, 1);
	device_leave(device);
	*ret_qp = qp;
	return 0;
}

void frl_qp_destroy(struct frl_qp *qp)
{
	struct frl_device *device;

	if (!qp)
		return;
	cm_forget_qp(qp);
	device = qp->pd->device;
	device_enter(device);
	connect_abandon(qp);
	device_leave(device);
	device->ops->qp_destroy(qp);
	device_enter(device);
	count(qp, -1);
	device_leave(device);
	free(qp);
}

void *frl_qp_context(const struct frl_qp *qp)
{
	return qp->context;
}

uint32_t frl_qp_num(const struct frl_qp *qp)
{
	return qp->num;
}

int modify_qp_once(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	int rc;

	if (mask == FRL_QP_STATE && attr->state == FRL_QPS_RESET)
		connect_abandon(qp);
	rc = qp->pd->device->ops->qp_modify(qp, attr, mask);
	if (!rc && (mask & FRL_QP_STATE) && attr->state == FRL_QPS_RESET)
		qp->has_endpoint = false;
	return rc;
}

struct modification {
	struct frl_qp *qp;
	struct frl_qp_attr attr;
	uint32_t mask;
};

static int try_modify(struct frl_device *device, void *arg)
{
	struct modification *m = arg;

	return modify_qp_once(m->qp, &m->attr, m->mask);
}

int frl_qp_modify(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	struct wait_limit limit = { .limit_ns = 0 };
	struct modification m = { .qp = qp, .mask = mask };
	struct frl_device *device;
	int rc;

	if (!qp || !attr)
		return frl_fail(-EINVAL, "frl_qp_modify: qp and attr are required");
	device = qp->pd->device;
	m.attr = *attr;
	if (!m.attr.ah.hop_limit)
		m.attr.ah.hop_limit = DEFAULT_HOP_LIMIT;
	device_enter(device);
	rc = try_modify(device, &m);
	device_leave(device);
	if (rc != -EAGAIN)
		return rc;
	limit.limit_ns = limit_after_ms(clock_now_ns(), RESOLVE_MS);
	rc = device_wait(device, try_modify, &m, &limit);
	if (rc != -ETIMEDOUT)
		return rc;
	device_enter(device);
	rc = device->ops->qp_unanswered(qp, &m.attr, mask);
	device_leave(device);
	return rc;
}

void frl_qp_query(struct frl_qp *qp, struct frl_qp_attr *ret_attr)
{
	qp->pd->device->ops->qp_query(qp, ret_attr);
	ret_attr->max_inline = qp->max_inline;
}

int frl_attach_mcast(struct frl_qp *qp, const struct frl_ip *group)
{
	if (!qp || !group)
		return frl_fail(-EINVAL, "frl_attach_mcast: qp and group are required");
	return qp->pd->device->ops->attach_mcast(qp, group);
}

int frl_detach_mcast(struct frl_qp *qp, const struct frl_ip *group)
{
	if (!qp || !group)
		return frl_fail(-EINVAL, "frl_detach_mcast: qp and group are required");
	return qp->pd->device->ops->detach_mcast(qp, group);
}

int frl_post_send(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted)
{
	int posted, rc = check_post("frl_post_send: qp", qp, wr, n, ret_posted);

	if (rc)
		return rc;
	return qp->pd->device->ops->post_send(qp, wr, n, ret_posted ? ret_posted : &posted);
}

int frl_post_send_all(struct frl_qp *qp, const struct frl_send_wr wr[], int n)
{
	int rc = check_post("frl_post_send_all: qp", qp, wr, n, NULL);

	return rc ? rc : qp->pd->device->ops->post_send_all(qp, wr, n);
}

int frl_post_recv(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted)
{
	int posted, rc = check_post("frl_post_recv: qp", qp, wr, n, ret_posted);

	if (rc)
		return rc;
	return qp->pd->device->ops->post_recv(qp, wr, n, ret_posted ? ret_posted : &posted);
}
