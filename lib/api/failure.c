/* SPDX-License-Identifier: BSD-3-Clause */
/* Why a queue pair failed, and failing it, or all of a device, for reasons that are not the
 * protocol's. */
#include <errno.h>
#include <stdio.h>

#include "lib/api/objects.h"
#include "lib/base/clock.h"

void qp_describe_error(const struct frl_qp *qp, char *text, size_t size)
{
	const struct qp *core = &qp->engine.core;
	const char *sentence = "";

	if (core->error)
		sentence = core->error;
	else if (core->error_status != FRL_WC_SUCCESS)
		sentence = frl_wc_status_str(core->error_status);
	if (size)
		snprintf(text, size, "%s", sentence);
}

const char *frl_qp_error(struct frl_qp *qp, char *text, size_t size)
{
	struct frl_device *device = qp->pd->device;

	device_enter(device);
	qp_describe_error(qp, text, size);
	device_leave(device);
	return text;
}

void qp_fail_held(struct frl_qp *qp, int error, const char *reason)
{
	struct engine *engine = &qp->pd->device->engine;
	struct qp *core = &qp->engine.core;

	if (core->state == FRL_QPS_RESET)
		return;
	/* Who knows more than the protocol, which only saw the link end, may say so later. */
	if (!core->error || core->state != FRL_QPS_ERR) {
		snprintf(qp->error, sizeof(qp->error), "%s",
			reason && *reason ? reason : frl_strerror(error));
		core->error = qp->error;
	}
	if (core->state == FRL_QPS_ERR)
		return;
	engine->now_ns = clock_now_ns();
	event_raise(&engine->events, &core->events, FRL_EVENT_QP_FATAL);
	qp_fail(core, FRL_WC_WR_FLUSH_ERR);
	engine_update(engine, &qp->engine);
}

void qp_fail_with(struct frl_qp *qp, int error, const char *reason)
{
	struct frl_device *device = qp->pd->device;

	/* The control thread calls this: it must get in while others poll. */
	guard_enter_first(&device->guard);
	qp_fail_held(qp, error, reason);
	device_leave(device);
}

void device_revoke(struct frl_device *device, const char *reason)
{
	struct engine *engine = &device->engine;

	guard_enter_first(&device->guard);
	for (uint32_t i = 0; i < engine->qp_end; i++)
		if (engine->qps[i])
			qp_fail_held(container_of(engine->qps[i], struct frl_qp, engine), ENETDOWN,
				reason);
	engine_revoke(engine);
	device_leave(device);
}
