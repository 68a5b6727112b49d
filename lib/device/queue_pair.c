/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs of the software device. lib/api has checked the arguments; the engine and the
 * protocol do the rest. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/net/ip.h"
#include "lib/base/settings.h"
#include "lib/base/memory/unmap_watch.h"
#include "lib/device/soft.h"

enum {
	FEW_REQUESTS = 2,
	LEAST_TIMEOUT = 16, /* of finite retries on the local fabric: 268 ms */
};

static struct soft_device *device_of(const struct frl_qp *qp)
{
	return soft_device(qp->pd->device);
}

static struct qp_config complete_config(const struct frl_qp *qp, const struct frl_qp_config *config)
{
	return (struct qp_config){
		.type = config->type,
		.pd = qp->pd,
		.send_cq = &soft_cq(qp->send_cq)->core,
		.recv_cq = &soft_cq(qp->recv_cq)->core,
		.srq = qp->srq ? &soft_srq(qp->srq)->core : NULL,
		.max_send_wr = config->max_send_wr,
		.max_recv_wr = config->max_recv_wr,
		.max_send_sge = config->max_send_sge,
		.max_recv_sge = config->max_recv_sge,
		.max_inline = config->max_inline,
		.sq_sig_all = config->sq_sig_all,
		.window = (uint32_t)settings_get()->window,
		.unlimited_retry = device_of(qp)->port->caps.on_demand && !config->as_hardware,
		.as_hardware = config->as_hardware,
	};
}

static int add_to_engine(struct soft_qp *qp, struct qp_config *config)
{
	struct frl_device *device = qp->base.pd->device;
	int rc;

	device_enter(device);
	rc = engine_add_qp(&soft_device(device)->engine, &qp->engine, config);
	if (!rc) {
		qp->engine.core.events.owner = &qp->base;
		qp->base.num = qp->engine.core.qpn;
	}
	device_leave(device);
	if (rc == -EBUSY)
		frl_fail(rc, "there is a GSI queue pair already: a device has one");
	else if (rc == -ENOMEM)
		frl_fail(rc, "no memory for a queue pair");
	else if (rc)
		frl_fail(rc, "no queue pair number is left (at most %u a device)",
			device->attr.max_qp);
	return rc;
}

int soft_qp_create(struct frl_qp *base, const struct frl_qp_config *config)
{
	struct qp_config engine = complete_config(base, config);
	struct soft_qp *qp = soft_qp(base);
	int rc;

	qp->storage = calloc(1, qp_storage_size(&engine));
	if (!qp->storage)
		return frl_fail(-ENOMEM, "no memory for queues of %u and %u requests",
			engine.max_send_wr, engine.max_recv_wr);
	engine.storage = qp->storage;
	rc = add_to_engine(qp, &engine);
	if (rc)
		free(qp->storage);
	return rc;
}

/* Unbinds windows of the queue pair, so that no later queue pair or peer can use them. */
static void unbind_windows(struct soft_device *device, const struct soft_qp *qp)
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

void soft_qp_destroy(struct frl_qp *base)
{
	struct soft_device *device = device_of(base);
	struct soft_qp *qp = soft_qp(base);

	device_enter(&device->base);
	unbind_windows(device, qp);
	engine_remove_qp(&device->engine, &qp->engine);
	qp_forget_completions(&qp->engine.core);
	list_remove(&qp->engine.core.events.node);
	device_leave(&device->base);
	free(qp->storage);
}

static int fail_modify(const struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask,
	int rc, const char *why)
{
	return frl_fail(rc, "queue pair 0x%x, %s to %s: %s", qp->num,
		frl_qp_state_str(soft_qp_state(qp)),
		mask & FRL_QP_STATE ? frl_qp_state_str(attr->state) : "the same state", why);
}

/* Completes attributes on the local fabric. Returns errors of fabric_find_route(). */
static int complete_attr(
	struct soft_device *device, const struct qp *qp, struct frl_qp_attr *attr, uint32_t *mask)
{
	bool is_named;
	int rc;

	/* Processes wait for processors, which losses of a network do not. */
	if ((*mask & FRL_QP_TIMEOUT) && !qp->unlimited_retry && attr->timeout &&
		attr->timeout < LEAST_TIMEOUT)
		attr->timeout = LEAST_TIMEOUT;
	if (!(*mask & FRL_QP_AV))
		return 0;
	is_named = fabric_names_link(&attr->ah);
	rc = fabric_find_route(device, &attr->ah);
	/* The caller may name a link that is not up yet, and does not wait for it. */
	if (rc || is_named || !(*mask & FRL_QP_STATE) || attr->state != FRL_QPS_RTR ||
		qp_is_datagram(qp) || (*mask & FRL_QP_CAPABILITIES))
		return rc;
	*mask |= FRL_QP_CAPABILITIES;
	return fabric_find_capabilities(device, &attr->ah, &attr->capabilities);
}

int soft_qp_modify(struct frl_qp *base, const struct frl_qp_attr *wanted, uint32_t mask)
{
	struct soft_device *device = device_of(base);
	struct soft_qp *qp = soft_qp(base);
	struct frl_qp_attr attr = *wanted;
	const char *why = "";
	int rc = 0;

	if (device->base.attr.local_fabric)
		rc = complete_attr(device, &qp->engine.core, &attr, &mask);
	if (rc)
		return rc;
	rc = engine_modify_qp(&device->engine, &qp->engine, &attr, mask, clock_now_ns(), &why);
	if (rc == -EAGAIN)
		return rc;
	if (rc) {
		/* Releases the neighbor entry that the failed change has requested. */
		soft_qp_clear_path(base);
		return fail_modify(base, &attr, mask, rc, why);
	}
	if ((mask & FRL_QP_STATE) && attr.state == FRL_QPS_RESET)
		unbind_windows(device, qp);
	return 0;
}

int soft_qp_unanswered(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	char no_answer[NO_ANSWER_SIZE];

	soft_qp_clear_path(qp);
	soft_describe_no_answer(device_of(qp), &attr->ah, no_answer, sizeof(no_answer));
	return fail_modify(qp, attr, mask, -EHOSTUNREACH, no_answer);
}

void soft_qp_clear_path(struct frl_qp *qp)
{
	engine_clear_path(&device_of(qp)->engine, &soft_qp(qp)->engine);
}

enum frl_qp_state soft_qp_state(const struct frl_qp *qp)
{
	return soft_qp(qp)->engine.core.state;
}

void soft_qp_query(struct frl_qp *qp, struct frl_qp_attr *ret_attr)
{
	device_enter(qp->pd->device);
	qp_query(&soft_qp(qp)->engine.core, ret_attr);
	device_leave(qp->pd->device);
}

void soft_qp_describe_error(const struct frl_qp *qp, char *text, size_t size)
{
	const struct qp *core = &soft_qp(qp)->engine.core;
	const char *sentence = "";

	if (core->error)
		sentence = core->error;
	else if (core->error_status != FRL_WC_SUCCESS)
		sentence = frl_wc_status_str(core->error_status);
	if (size)
		snprintf(text, size, "%s", sentence);
}

void soft_qp_fail(struct frl_qp *base, const char *reason)
{
	struct engine *engine = &device_of(base)->engine;
	struct soft_qp *qp = soft_qp(base);
	struct qp *core = &qp->engine.core;

	if (core->state == FRL_QPS_RESET)
		return;
	/* Keeps the reason of a queue pair that failed with one. In ERR without a reason the
	 * protocol has only seen the link end, and the caller knows more. */
	if (!core->error || core->state != FRL_QPS_ERR) {
		snprintf(qp->engine.error, sizeof(qp->engine.error), "%s", reason);
		core->error = qp->engine.error;
	}
	if (core->state == FRL_QPS_ERR)
		return;
	engine->now_ns = clock_now_ns();
	event_raise(&engine->events, &core->events, FRL_EVENT_QP_FATAL);
	qp_fail(core, FRL_WC_WR_FLUSH_ERR);
	engine_update(engine, &qp->engine);
}

struct frl_qp *soft_find_qp(struct frl_device *device, uint32_t num)
{
	struct engine_qp *qp = engine_find_qp(&soft_device(device)->engine, num);

	return qp ? &container_of(qp, struct soft_qp, engine)->base : NULL;
}

void soft_revoke(struct frl_device *device, const char *reason)
{
	struct engine *engine = &soft_device(device)->engine;

	for (uint32_t i = 0; i < engine->qp_end; i++)
		if (engine->qps[i])
			soft_qp_fail(&container_of(engine->qps[i], struct soft_qp, engine)->base,
				reason);
	engine_revoke(engine);
}

static int finish_membership(struct frl_qp *qp, const struct frl_ip *group, int rc, const char *why)
{
	if (rc)
		frl_fail(rc, "queue pair 0x%x, group %s: %s", qp->num, format_ip(group), why);
	return rc;
}

int soft_attach_mcast(struct frl_qp *qp, const struct frl_ip *group)
{
	const char *why = "";
	int rc;

	device_enter(qp->pd->device);
	rc = engine_attach(
		&device_of(qp)->engine, &soft_qp(qp)->engine, group, clock_now_ns(), &why);
	device_leave(qp->pd->device);
	if (!rc && qp->pd->device->attr.local_fabric)
		fabric_meet(device_of(qp));
	return finish_membership(qp, group, rc, why);
}

int soft_detach_mcast(struct frl_qp *qp, const struct frl_ip *group)
{
	const char *why = "";
	int rc;

	device_enter(qp->pd->device);
	rc = engine_detach(&device_of(qp)->engine, &soft_qp(qp)->engine, group, &why);
	device_leave(qp->pd->device);
	return finish_membership(qp, group, rc, why);
}

/* Guard held, since the text names the state. */
static int finish_post(const struct frl_qp *qp, int rc, int done, const char *why, int *ret_posted)
{
	*ret_posted = done;
	if (rc)
		return frl_fail(rc, "queue pair 0x%x (%s), request %d: %s", qp->num,
			frl_qp_state_str(soft_qp_state(qp)), done, why);
	return done;
}

/* Resolves the handles of a request; handles that its opcode does not use are not read. */
static struct wr_objects objects_of(const struct qp *qp, const struct frl_send_wr *wr)
{
	struct wr_objects objects = { 0 };

	if (qp_is_datagram(qp)) {
		objects.ah = wr->ah ? &soft_ah(wr->ah)->engine.core : NULL;
	} else if (wr->opcode == FRL_WR_BIND_MW) {
		objects.window = wr->bind.mw ? &soft_mw(wr->bind.mw)->region : NULL;
		objects.parent = wr->bind.mr ? &soft_mr(wr->bind.mr)->region : NULL;
	}
	return objects;
}

/*
 * Returns true if the call should send at once. A queue pair with few requests probably waits for
 * this one. With more requests the next round sends many together, which costs less. Packets that
 * wait already go first.
 */
static bool may_send_at_once(const struct soft_device *device, const struct soft_qp *qp)
{
	const struct engine *engine = &device->engine;

	/* A blocked link does not delay sends over other links. */
	return qp_n_requests(&qp->engine.core) < FEW_REQUESTS && list_empty(&engine->ready) &&
		!engine_link_queued(engine, qp->engine.path.link) && !engine->offloads;
}

/* `all`: posts all requests or none. */
static inline int post_sends(
	struct frl_qp *base, const struct frl_send_wr wr[], int n, bool all, int *ret_posted)
{
	struct soft_device *device = device_of(base);
	struct soft_qp *qp = soft_qp(base);
	const char *why = "";
	int done = 0, rc = 0;
	bool at_once;

	device_enter(&device->base);
	unmap_watch_settle();
	at_once = may_send_at_once(device, qp);
	while (done < n && !rc) {
		struct wr_objects objects = objects_of(&qp->engine.core, &wr[done]);

		rc = qp_post_send(&qp->engine.core, &wr[done], &objects, &why);
		done += !rc;
	}
	if (rc && all)
		qp_undo_posts(&qp->engine.core, (uint32_t)done);
	engine_update(&device->engine, &qp->engine);
	if (at_once)
		engine_send(&device->engine, clock_now_ns());
	rc = finish_post(base, rc, done, why, ret_posted);
	device_leave(&device->base);
	return rc;
}

int soft_post_send(struct frl_qp *base, const struct frl_send_wr wr[], int n, int *ret_posted)
{
	return post_sends(base, wr, n, false, ret_posted);
}

int soft_post_send_all(struct frl_qp *base, const struct frl_send_wr wr[], int n)
{
	int posted, rc = post_sends(base, wr, n, true, &posted);

	return rc < 0 ? rc : 0;
}

int soft_post_recv(struct frl_qp *base, const struct frl_recv_wr wr[], int n, int *ret_posted)
{
	struct soft_qp *qp = soft_qp(base);
	const char *why = "";
	int done = 0, rc = 0;

	device_enter(base->pd->device);
	unmap_watch_settle();
	while (done < n && !(rc = qp_post_recv(&qp->engine.core, &wr[done], &why)))
		done++;
	/* Only a queue pair in ERR has something to update: flushed requests. */
	if (qp->engine.core.state == FRL_QPS_ERR)
		engine_update(&device_of(base)->engine, &qp->engine);
	rc = finish_post(base, rc, done, why, ret_posted);
	device_leave(base->pd->device);
	return rc;
}
