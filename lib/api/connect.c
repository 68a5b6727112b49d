/* SPDX-License-Identifier: BSD-3-Clause */
/* What a queue pair tells its peer, and how it is connected to one: the call that blocks. */
#include <errno.h>

#include "lib/api/connecting.h"
#include "lib/base/error.h"

enum {
	DEFAULT_TIMEOUT = 14,          /* 67 ms */
	DEFAULT_TIMEOUT_LOSSLESS = 16, /* 268 ms: only for what came before the peer was ready */
	DEFAULT_TIMEOUT_MS = 10000,
	DEFAULT_RD_ATOMIC = 16,
};

int frl_qp_endpoint(struct frl_qp *qp, struct frl_endpoint *ret_endpoint)
{
	struct frl_device *device;
	struct endpoint endpoint;
	enum frl_qp_state state;

	if (!qp || !ret_endpoint)
		return frl_fail(-EINVAL, "frl_qp_endpoint: qp and ret_endpoint are required");
	if (qp_is_datagram(&qp->engine.core))
		return frl_fail(-EINVAL,
			"queue pair 0x%x is not connected to another one: tell its number, Q_Key "
			"and a GID of the device to whom it may concern",
			qp->engine.core.qpn);
	device = qp->pd->device;
	device_enter(device);
	state = qp->engine.core.state;
	if (state == FRL_QPS_RESET && !qp->has_endpoint) {
		qp->local_psn = (uint32_t)random_u64(&device->engine.random) & PSN_MASK;
		qp->has_endpoint = true;
	}
	device_leave(device);
	if (state != FRL_QPS_RESET)
		return frl_fail(-EINVAL,
			"queue pair 0x%x is in %s: it must be in RESET to be connected",
			qp->engine.core.qpn, frl_qp_state_str(state));
	endpoint_describe(qp, &endpoint);
	endpoint_encode(&endpoint, ret_endpoint);
	return 0;
}

void frl_connect_config_init(struct frl_device *device, struct frl_connect_config *config)
{
	*config = (struct frl_connect_config){
		.access_flags = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ |
			FRL_ACCESS_REMOTE_ATOMIC,
		.timeout = device->attr.lossless ? DEFAULT_TIMEOUT_LOSSLESS : DEFAULT_TIMEOUT,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
		.max_rd_atomic = DEFAULT_RD_ATOMIC,
		.timeout_ms = DEFAULT_TIMEOUT_MS,
	};
}

static int try_step(struct frl_device *device, void *arg)
{
	return connecting_step(arg);
}

static int connect_qp(struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_connect_config *config)
{
	const struct patience patience = { config->timeout_ms, config->interrupt,
		config->interrupt_arg };
	struct frl_device *device = qp->pd->device;
	struct frl_qp_attr terms;
	struct connecting c;
	int rc;

	connecting_terms(qp, config, &terms);
	rc = connecting_begin(&c, qp, remote, &terms);
	if (rc)
		return rc;
	rc = device_wait(device, try_step, &c, &patience);
	if (!rc || c.stage == CONNECTING_FAILED)
		return rc;
	device_enter(device);
	if (rc == -ETIMEDOUT)
		rc = connecting_give_up(&c, config->timeout_ms);
	else
		connecting_abandon(&c); /* who interrupted has said why */
	device_leave(device);
	return rc;
}

int frl_qp_connect(struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_connect_config *config)
{
	struct frl_connect_config defaults;
	int rc;

	if (!qp || !remote)
		return frl_fail(-EINVAL, "frl_qp_connect: qp and remote are required");
	if (!config) {
		frl_connect_config_init(qp->pd->device, &defaults);
		config = &defaults;
	}
	if (config->timeout_ms < 0)
		return frl_fail(-EINVAL, "timeout_ms is negative");
	rc = connecting_claim(qp);
	if (rc)
		return rc;
	rc = connect_qp(qp, remote, config);
	connecting_unclaim(qp);
	return rc;
}
