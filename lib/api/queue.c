/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues and queue pairs: arguments are checked here, the engine does the rest. */
#include <errno.h>
#include <stdlib.h>

#include "lib/api/objects.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"

enum {
	MAX_CQ_DEPTH = 65536,
	MAX_WR = 16384,
};

static uint32_t round_up_pow2(uint32_t n)
{
	uint32_t power = 1;

	while (power < n)
		power <<= 1;
	return power;
}

int frl_cq_create(struct frl_device *device, uint32_t depth, struct frl_cq **ret_cq)
{
	struct frl_wc *entries;
	struct frl_cq *cq;

	if (!device || !ret_cq || depth < 1 || depth > MAX_CQ_DEPTH)
		return frl_fail(-EINVAL,
			"frl_cq_create: a device and a depth of 1 to %d are required",
			MAX_CQ_DEPTH);
	depth = round_up_pow2(depth);
	cq = calloc(1, sizeof(*cq));
	entries = calloc(depth, sizeof(*entries));
	if (!cq || !entries) {
		free(cq);
		free(entries);
		return frl_fail(-ENOMEM, "no memory for a completion queue of %u entries", depth);
	}
	cq->device = device;
	cq_init(&cq->core, entries, depth);
	guard_enter(&device->guard);
	device->objects++;
	guard_leave(&device->guard);
	*ret_cq = cq;
	return 0;
}

int frl_cq_destroy(struct frl_cq *cq)
{
	struct frl_device *device;

	if (!cq)
		return 0;
	device = cq->device;
	guard_enter(&device->guard);
	if (cq->qps) {
		guard_leave(&device->guard);
		return frl_fail(-EBUSY, "the completion queue is still used by queue pairs");
	}
	device->objects--;
	guard_leave(&device->guard);
	free(cq->core.entries);
	free(cq);
	return 0;
}

static int take_completions(struct cq *cq, int max, struct frl_wc wc[])
{
	int n = 0;

	while (n < max && cq_pop(cq, &wc[n]))
		n++;
	if (n == 0 && cq->overrun)
		return frl_fail(-EOVERFLOW,
			"the completion queue overran: poll more often, or make it deeper than all "
			"requests that can be outstanding on its queue pairs");
	return n;
}

/* `ret_moved`: packets that the device handled. */
static int poll_once(struct frl_cq *cq, int max, struct frl_wc wc[], uint32_t *ret_moved)
{
	struct frl_device *device = cq->device;
	int n;

	atomic_fetch_add_explicit(&device->polls, 1, memory_order_relaxed);
	guard_enter(&device->guard);
	*ret_moved = device_poll(device);
	n = take_completions(&cq->core, max, wc);
	guard_leave(&device->guard);
	return n;
}

int frl_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[])
{
	uint32_t moved;

	return poll_once(cq, max, wc, &moved);
}

int frl_cq_wait(struct frl_cq *cq, int max, struct frl_wc wc[], int timeout_ms)
{
	uint64_t limit = timeout_ms < 0 ? UINT64_MAX
					: clock_now_ns() + (uint64_t)timeout_ms * UINT64_C(1000000);
	struct frl_backoff backoff;

	frl_backoff_reset(&backoff);
	for (;;) {
		uint32_t moved;
		int n = poll_once(cq, max, wc, &moved);

		if (n != 0)
			return n;
		if (moved)
			frl_backoff_reset(&backoff);
		else
			frl_backoff_idle(&backoff);
		if (limit != UINT64_MAX && clock_now_ns() >= limit)
			return 0;
	}
}

static int check_qp_config(const struct frl_pd *pd, const struct frl_qp_config *config)
{
	if (!pd || !config || !config->send_cq || !config->recv_cq)
		return frl_fail(-EINVAL,
			"frl_qp_create: pd, config with both completion queues and ret_qp are "
			"required");
	if (config->send_cq->device != pd->device || config->recv_cq->device != pd->device)
		return frl_fail(-EINVAL, "frl_qp_create: a completion queue is of another device");
	if (config->max_send_wr < 1 || config->max_send_wr > MAX_WR || config->max_recv_wr > MAX_WR)
		return frl_fail(-EINVAL,
			"frl_qp_create: max_send_wr must be 1 to %d, max_recv_wr 0 to %d", MAX_WR,
			MAX_WR);
	return 0;
}

static int add_to_engine(struct frl_qp *qp, uint32_t n_send, uint32_t n_recv)
{
	struct frl_device *device = qp->pd->device;
	struct qp_config config = {
		.pd = qp->pd,
		.send_cq = &qp->send_cq->core,
		.recv_cq = &qp->recv_cq->core,
		.send_wqes = qp->send_wqes,
		.n_send = n_send,
		.recv_wqes = qp->recv_wqes,
		.n_recv = n_recv,
		.window = (uint32_t)settings_get()->window,
		.unlimited_retry = device->port->caps.on_demand,
	};
	int rc;

	guard_enter(&device->guard);
	rc = engine_add_qp(&device->engine, &qp->engine, &config);
	if (!rc) {
		qp->pd->objects++;
		qp->send_cq->qps++;
		qp->recv_cq->qps++;
	}
	guard_leave(&device->guard);
	if (rc)
		frl_fail(rc, "no queue pair number is left (at most %d a device)", ENGINE_MAX_QPS);
	return rc;
}

int frl_qp_create(struct frl_pd *pd, const struct frl_qp_config *config, struct frl_qp **ret_qp)
{
	uint32_t n_send, n_recv;
	struct frl_qp *qp;
	int rc = check_qp_config(pd, ret_qp ? config : NULL);

	if (rc)
		return rc;
	n_send = round_up_pow2(config->max_send_wr);
	n_recv = config->max_recv_wr ? round_up_pow2(config->max_recv_wr) : 0;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return frl_fail(-ENOMEM, "no memory for a queue pair");
	qp->pd = pd;
	qp->send_cq = config->send_cq;
	qp->recv_cq = config->recv_cq;
	qp->context = config->context;
	qp->send_wqes = calloc(n_send, sizeof(qp->send_wqes[0]));
	qp->recv_wqes = calloc(n_recv ? n_recv : 1, sizeof(qp->recv_wqes[0]));
	if (!qp->send_wqes || !qp->recv_wqes)
		rc = frl_fail(
			-ENOMEM, "no memory for queues of %u and %u requests", n_send, n_recv);
	else
		rc = add_to_engine(qp, n_send, n_recv);
	if (rc)
		goto err_free;
	*ret_qp = qp;
	return 0;

err_free:
	free(qp->send_wqes);
	free(qp->recv_wqes);
	free(qp);
	return rc;
}

void frl_qp_destroy(struct frl_qp *qp)
{
	struct frl_device *device;

	if (!qp)
		return;
	device = qp->pd->device;
	guard_enter(&device->guard);
	engine_remove_qp(&device->engine, &qp->engine);
	qp->pd->objects--;
	qp->send_cq->qps--;
	qp->recv_cq->qps--;
	guard_leave(&device->guard);
	free(qp->send_wqes);
	free(qp->recv_wqes);
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

int frl_qp_modify(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	struct frl_device *device = qp->pd->device;
	const char *why = "";
	int rc;

	guard_enter(&device->guard);
	rc = engine_modify_qp(&device->engine, &qp->engine, attr, mask, &why);
	if (!rc && (mask & FRL_QP_STATE) && attr->state == FRL_QPS_RESET)
		qp->has_endpoint = false;
	if (rc)
		frl_fail(rc, "queue pair 0x%x, %s to %s: %s", qp->engine.core.qpn,
			frl_qp_state_str(qp->engine.core.state),
			mask & FRL_QP_STATE ? frl_qp_state_str(attr->state) : "the same state",
			why);
	guard_leave(&device->guard);
	return rc;
}

void frl_qp_query(struct frl_qp *qp, struct frl_qp_attr *ret_attr)
{
	guard_enter(&qp->pd->device->guard);
	*ret_attr = qp->engine.core.attr;
	guard_leave(&qp->pd->device->guard);
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

int frl_post_send(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted)
{
	struct frl_device *device = qp->pd->device;
	const char *why = "";
	int done = 0, rc = 0;

	guard_enter(&device->guard);
	while (done < n && !(rc = qp_post_send(&qp->engine.core, &wr[done], &why)))
		done++;
	engine_update(&device->engine, &qp->engine);
	guard_leave(&device->guard);
	return finish_post(qp, rc, done, why, ret_posted);
}

int frl_post_recv(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted)
{
	struct frl_device *device = qp->pd->device;
	const char *why = "";
	int done = 0, rc = 0;

	guard_enter(&device->guard);
	while (done < n && !(rc = qp_post_recv(&qp->engine.core, &wr[done], &why)))
		done++;
	guard_leave(&device->guard);
	return finish_post(qp, rc, done, why, ret_posted);
}
