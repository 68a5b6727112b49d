/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs: arguments are checked here, the engine and the protocol do the rest. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/api/objects.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"

static int check_qp_limits(const struct frl_qp_config *config)
{
	if (config->type != 0 &&
		(config->type < FRL_QPT_GSI || (unsigned)config->type > FRL_QPT_UD))
		return frl_fail(-EINVAL, "frl_qp_create: there is no type %d", (int)config->type);
	if (config->max_send_wr < 1 || config->max_send_wr > MAX_WR ||
		(!config->srq && config->max_recv_wr > MAX_WR))
		return frl_fail(-EINVAL,
			"frl_qp_create: max_send_wr must be 1 to %d, max_recv_wr 0 to %d", MAX_WR,
			MAX_WR);
	if (config->max_send_sge > FRL_MAX_SGE || config->max_recv_sge > FRL_MAX_SGE)
		return frl_fail(-EINVAL,
			"frl_qp_create: max_send_sge and max_recv_sge must be at most %d",
			FRL_MAX_SGE);
	if (config->max_inline > FRL_MAX_INLINE)
		return frl_fail(
			-EINVAL, "frl_qp_create: max_inline must be at most %d", FRL_MAX_INLINE);
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
	if (config->srq && config->srq->pd != pd)
		return frl_fail(-EINVAL,
			"frl_qp_create: the shared receive queue is of another protection domain");
	return check_qp_limits(config);
}

static struct qp_config complete_config(const struct frl_qp *qp, const struct frl_qp_config *config)
{
	return (struct qp_config){
		.type = config->type ? config->type : FRL_QPT_RC,
		.pd = qp->pd,
		.send_cq = &qp->send_cq->core,
		.recv_cq = &qp->recv_cq->core,
		.srq = qp->srq ? &qp->srq->core : NULL,
		.max_send_wr = config->max_send_wr,
		.max_recv_wr = config->srq ? 0 : config->max_recv_wr,
		.max_send_sge = config->max_send_sge ? config->max_send_sge : DEFAULT_SGE,
		.max_recv_sge = config->max_recv_sge ? config->max_recv_sge : DEFAULT_SGE,
		.max_inline = config->max_inline ? config->max_inline : DEFAULT_INLINE,
		.sq_sig_all = config->sq_sig_all,
		.window = (uint32_t)settings_get()->window,
		.unlimited_retry = qp->pd->device->port->caps.on_demand,
	};
}

static int add_to_engine(struct frl_qp *qp, struct qp_config *config)
{
	struct frl_device *device = qp->pd->device;
	int rc;

	device_enter(device);
	rc = engine_add_qp(&device->engine, &qp->engine, config);
	if (!rc) {
		qp->pd->objects++;
		qp->send_cq->qps++;
		qp->recv_cq->qps++;
		if (qp->srq)
			qp->srq->qps++;
	}
	device_leave(device);
	if (rc == -EBUSY)
		frl_fail(rc, "there is a GSI queue pair already: a device has one");
	else if (rc)
		frl_fail(rc, "no queue pair number is left (at most %u a device)",
			device->attr.max_qp);
	return rc;
}

int frl_qp_create(struct frl_pd *pd, const struct frl_qp_config *config, struct frl_qp **ret_qp)
{
	struct qp_config engine;
	struct frl_qp *qp;
	int rc = check_qp_config(pd, ret_qp ? config : NULL);

	if (rc)
		return rc;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return frl_fail(-ENOMEM, "no memory for a queue pair");
	qp->pd = pd;
	qp->send_cq = config->send_cq;
	qp->recv_cq = config->recv_cq;
	qp->srq = config->srq;
	qp->context = config->context;
	engine = complete_config(qp, config);
	qp->storage = calloc(1, qp_storage_size(&engine));
	engine.storage = qp->storage;
	if (qp->storage)
		rc = add_to_engine(qp, &engine);
	else
		rc = frl_fail(-ENOMEM, "no memory for queues of %u and %u requests",
			engine.max_send_wr, engine.max_recv_wr);
	if (rc) {
		free(qp->storage);
		free(qp);
		return rc;
	}
	*ret_qp = qp;
	return 0;
}

/* A window that was bound to the queue pair is for no other one that is made in its place, and for
 * no other peer. */
static void unbind_windows(struct frl_device *device, const struct frl_qp *qp)
{
	const struct region_table *table = &device->engine.regions;
	unsigned left = device->windows;

	for (uint32_t i = 0; left && i < table->capacity; i++) {
		const struct region *window = table->slots[i];

		if (!window || !window->is_window)
			continue;
		left--;
		if (window->parent && window->qp == &qp->engine.core)
			region_invalidate(&device->engine.regions, window->key, &qp->engine.core);
	}
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
	unbind_windows(device, qp);
	engine_remove_qp(&device->engine, &qp->engine);
	events_forget(&qp->engine.core.events);
	qp->pd->objects--;
	qp->send_cq->qps--;
	qp->recv_cq->qps--;
	if (qp->srq)
		qp->srq->qps--;
	device_leave(device);
	free(qp->storage);
	free(qp);
}

void *frl_qp_context(const struct frl_qp *qp)
{
	return qp->context;
}

uint32_t frl_qp_num(const struct frl_qp *qp)
{
	return qp->engine.core.qpn;
}

static int complain(const struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask, int rc,
	const char *why)
{
	return frl_fail(rc, "queue pair 0x%x, %s to %s: %s", qp->engine.core.qpn,
		frl_qp_state_str(qp->engine.core.state),
		mask & FRL_QP_STATE ? frl_qp_state_str(attr->state) : "the same state", why);
}

int modify_qp_once(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	struct frl_device *device = qp->pd->device;
	const char *why = "";
	int rc;

	if (mask == FRL_QP_STATE && attr->state == FRL_QPS_RESET)
		connect_abandon(qp);
	rc = engine_modify_qp(&device->engine, &qp->engine, attr, mask, clock_now_ns(), &why);
	if (rc == -EAGAIN)
		return rc;
	if (rc) {
		/* A failure may leave the neighbour that was asked, or found, for a path that is
		 * not taken. */
		engine_forget_path(&device->engine, &qp->engine);
		return complain(qp, attr, mask, rc, why);
	}
	if ((mask & FRL_QP_STATE) && attr->state == FRL_QPS_RESET) {
		qp->has_endpoint = false;
		unbind_windows(device, qp);
	}
	return 0;
}

int modify_qp_unanswered(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	struct frl_device *device = qp->pd->device;
	char silent[160];

	engine_forget_path(&device->engine, &qp->engine);
	describe_silence(device, &attr->ah, silent, sizeof(silent));
	return complain(qp, attr, mask, -EHOSTUNREACH, silent);
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
	static const struct patience patience = { .timeout_ms = RESOLVE_MS };
	struct modification m = { .qp = qp, .mask = mask };
	struct frl_device *device;
	int rc = 0;

	if (!qp || !attr)
		return frl_fail(-EINVAL, "frl_qp_modify: qp and attr are required");
	device = qp->pd->device;
	m.attr = *attr;
	if (!m.attr.ah.hop_limit)
		m.attr.ah.hop_limit = DEFAULT_HOP_LIMIT;
	device_enter(device);
	if (device->attr.local_fabric && (mask & FRL_QP_AV))
		rc = fabric_find_way(device, &m.attr.ah);
	if (!rc)
		rc = try_modify(device, &m);
	device_leave(device);
	if (rc == -EAGAIN)
		rc = device_wait(device, try_modify, &m, &patience);
	if (rc != -ETIMEDOUT)
		return rc;
	device_enter(device);
	rc = modify_qp_unanswered(qp, &m.attr, mask);
	device_leave(device);
	return rc;
}

void frl_qp_query(struct frl_qp *qp, struct frl_qp_attr *ret_attr)
{
	device_enter(qp->pd->device);
	qp_query(&qp->engine.core, ret_attr);
	device_leave(qp->pd->device);
}

static int finish_membership(struct frl_qp *qp, const struct frl_ip *group, int rc, const char *why)
{
	if (rc)
		frl_fail(rc, "queue pair 0x%x, group %s: %s", qp->engine.core.qpn, format_ip(group),
			why);
	return rc;
}

int frl_attach_mcast(struct frl_qp *qp, const struct frl_ip *group)
{
	struct frl_device *device;
	const char *why = "";
	int rc;

	if (!qp || !group)
		return frl_fail(-EINVAL, "frl_attach_mcast: qp and group are required");
	device = qp->pd->device;
	device_enter(device);
	rc = engine_attach(&device->engine, &qp->engine, group, clock_now_ns(), &why);
	device_leave(device);
	return finish_membership(qp, group, rc, why);
}

int frl_detach_mcast(struct frl_qp *qp, const struct frl_ip *group)
{
	struct frl_device *device;
	const char *why = "";
	int rc;

	if (!qp || !group)
		return frl_fail(-EINVAL, "frl_detach_mcast: qp and group are required");
	device = qp->pd->device;
	device_enter(device);
	rc = engine_detach(&device->engine, &qp->engine, group, &why);
	device_leave(device);
	return finish_membership(qp, group, rc, why);
}

static int finish_post(struct frl_qp *qp, int rc, int done, const char *why, int *ret_posted)
{
	if (ret_posted)
		*ret_posted = done;
	if (rc)
		return frl_fail(rc, "queue pair 0x%x (%s), request %d: %s", qp->engine.core.qpn,
			frl_qp_state_str(qp->engine.core.state), done, why);
	return done;
}

/* What a request's handles stand for. Of those that its kind does not use nothing is read. */
static struct wr_objects objects_of(const struct frl_qp *qp, const struct frl_send_wr *wr)
{
	struct wr_objects objects = { 0 };

	if (qp_is_datagram(&qp->engine.core)) {
		objects.ah = wr->ah ? &wr->ah->engine.core : NULL;
	} else if (wr->opcode == FRL_WR_BIND_MW) {
		objects.window = wr->bind.mw ? &wr->bind.mw->region : NULL;
		objects.parent = wr->bind.mr ? &wr->bind.mr->region : NULL;
	}
	return objects;
}

int frl_post_send(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted)
{
	int done = 0, rc = check_post("frl_post_send: qp", qp, wr, n, ret_posted);
	struct frl_device *device;
	const char *why = "";

	if (rc)
		return rc;
	device = qp->pd->device;
	device_enter(device);
	while (done < n && !rc) {
		struct wr_objects objects = objects_of(qp, &wr[done]);

		rc = qp_post_send(&qp->engine.core, &wr[done], &objects, &why);
		done += !rc;
	}
	engine_update(&device->engine, &qp->engine);
	device_leave(device);
	return finish_post(qp, rc, done, why, ret_posted);
}

int frl_post_recv(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted)
{
	int done = 0, rc = check_post("frl_post_recv: qp", qp, wr, n, ret_posted);
	struct frl_device *device;
	const char *why = "";

	if (rc)
		return rc;
	device = qp->pd->device;
	device_enter(device);
	while (done < n && !(rc = qp_post_recv(&qp->engine.core, &wr[done], &why)))
		done++;
	device_leave(device);
	return finish_post(qp, rc, done, why, ret_posted);
}
