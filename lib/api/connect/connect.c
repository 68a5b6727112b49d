/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints of queue pairs, and connecting to a peer's endpoint: in steps, or in one call. */
#include <errno.h>
#include <stdlib.h>

#include "lib/api/connect/connecting.h"
#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/base/settings.h"
#include "lib/wire/psn.h"

enum {
	DEFAULT_TIMEOUT = 14,          /* 67 ms */
	DEFAULT_TIMEOUT_LOSSLESS = 16, /* 268 ms: covers only packets sent before the peer was ready
				        */
	DEFAULT_TIMEOUT_MS = 10000,
	DEFAULT_RD_ATOMIC = 16,
	NS_PER_MS = 1000000,
};

int frl_qp_endpoint(struct frl_qp *qp, struct frl_endpoint *ret_endpoint)
{
	struct frl_device *device;
	struct endpoint endpoint;
	enum frl_qp_state state;

	if (!qp || !ret_endpoint)
		return frl_fail(-EINVAL, "frl_qp_endpoint: qp and ret_endpoint are required");
	if (!qp_is_connected_type(qp))
		return frl_fail(-EINVAL,
			"queue pair 0x%x is of a type that is not connected: send peers its "
			"number, Q_Key and a GID of the device",
			qp->num);
	device = qp->pd->device;
	device_enter(device);
	state = qp_state(qp);
	if (state == FRL_QPS_RESET && !qp->has_endpoint) {
		qp->local_psn = (uint32_t)random_entropy() & PSN_MASK;
		qp->has_endpoint = true;
	}
	device_leave(device);
	if (state != FRL_QPS_RESET)
		return frl_fail(-EINVAL,
			"queue pair 0x%x is in %s: it must be in RESET to be connected", qp->num,
			frl_qp_state_str(state));
	endpoint_describe(qp, &endpoint);
	endpoint_encode(&endpoint, ret_endpoint);
	return 0;
}

static uint8_t default_timeout(const struct frl_device *device)
{
	uint64_t wanted = settings_get()->ack_timeout;

	if (wanted)
		return (uint8_t)wanted;
	if (device->ack_timeout)
		return device->ack_timeout;
	return device->attr.lossless ? DEFAULT_TIMEOUT_LOSSLESS : DEFAULT_TIMEOUT;
}

static uint8_t default_rd_atomic(const struct frl_device *device)
{
	uint32_t most = device->attr.max_rd_atomic;

	return (uint8_t)(most < DEFAULT_RD_ATOMIC ? most : DEFAULT_RD_ATOMIC);
}

void frl_connect_config_init(struct frl_device *device, struct frl_connect_config *config)
{
	*config = (struct frl_connect_config){
		.access_flags = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ |
			FRL_ACCESS_REMOTE_ATOMIC,
		.timeout = default_timeout(device),
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
		.traffic_class = (uint8_t)settings_get()->traffic_class,
		.max_rd_atomic = default_rd_atomic(device),
		.timeout_ms = DEFAULT_TIMEOUT_MS,
	};
}

/* A setup that frl_qp_connect_start() has begun. */
struct attempt {
	struct connecting connecting;
	int timeout_ms;
	bool is_stepping;  /* a thread is in connecting_step(), which may release the guard */
	bool is_abandoned; /* set meanwhile: the stepping thread cleans up */
};

/* Frees a finished attempt, and releases the queue pair. With the guard held. */
static void free_attempt(struct frl_qp *qp)
{
	free(qp->attempt);
	qp->attempt = NULL;
	qp->connecting = false;
}

void connect_abandon(struct frl_qp *qp)
{
	if (!qp->attempt)
		return;
	if (qp->attempt->is_stepping) {
		qp->attempt->is_abandoned = true;
		return;
	}
	connecting_abandon(&qp->attempt->connecting);
	free_attempt(qp);
}

/* Returns -ECANCELED if another thread has abandoned the attempt. */
static int take_step(struct frl_qp *qp)
{
	struct attempt *attempt = qp->attempt;
	int rc;

	attempt->is_stepping = true;
	rc = connecting_step(&attempt->connecting);
	attempt->is_stepping = false;
	if (!attempt->is_abandoned)
		return rc;
	connecting_abandon(&attempt->connecting);
	return frl_fail(-ECANCELED,
		"queue pair 0x%x was reset or abandoned while it was being connected", qp->num);
}

static int step_attempt(struct frl_qp *qp)
{
	struct connecting *connecting = &qp->attempt->connecting;
	int rc;

	if (qp->attempt->is_stepping)
		return -EAGAIN;
	rc = take_step(qp);
	if (rc == -EAGAIN && clock_now_ns() < connecting->deadline_ns)
		return rc;
	if (rc == -EAGAIN)
		rc = connecting_time_out(connecting, qp->attempt->timeout_ms);
	free_attempt(qp);
	return rc;
}

static int test_attempt(struct frl_device *device, void *arg)
{
	struct frl_qp *qp = arg;
	enum frl_qp_state state = qp_state(qp);

	(void)device;
	if (qp->attempt)
		return step_attempt(qp);
	if (state == FRL_QPS_RTS && !qp->connecting)
		return 0;
	return frl_fail(-EINVAL,
		"queue pair 0x%x is in %s and not being connected: call frl_qp_connect_start()",
		qp->num, frl_qp_state_str(state));
}

static int begin_attempt(struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_connect_config *config, struct attempt *attempt)
{
	struct frl_device *device = qp->pd->device;
	struct frl_qp_attr terms;
	int rc;

	connecting_terms(qp, config, &terms);
	rc = connecting_begin(&attempt->connecting, qp, remote, &terms);
	if (rc) {
		connecting_unclaim(qp);
		free(attempt);
		return rc;
	}
	attempt->timeout_ms = config->timeout_ms;
	attempt->connecting.deadline_ns = clock_now_ns() + (uint64_t)config->timeout_ms * NS_PER_MS;
	device_enter(device);
	qp->attempt = attempt;
	rc = take_step(qp);
	if (rc && rc != -EAGAIN)
		free_attempt(qp);
	device_leave(device);
	return rc == -EAGAIN ? 0 : rc;
}

static int start(struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_connect_config *config)
{
	struct attempt *attempt;
	int rc;

	if (config->timeout_ms < 0)
		return frl_fail(-EINVAL, "timeout_ms is negative");
	attempt = calloc(1, sizeof(*attempt));
	if (!attempt)
		return frl_fail(-ENOMEM, "no memory to connect a queue pair");
	rc = connecting_claim(qp);
	if (rc) {
		free(attempt);
		return rc;
	}
	return begin_attempt(qp, remote, config, attempt);
}

int frl_qp_connect_start(struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_connect_config *config)
{
	struct frl_connect_config defaults;

	if (!qp || !remote)
		return frl_fail(-EINVAL, "frl_qp_connect_start: qp and remote are required");
	frl_connect_config_init(qp->pd->device, &defaults);
	return start(qp, remote, config ? config : &defaults);
}

int frl_qp_connect_test(struct frl_qp *qp)
{
	struct frl_device *device;
	int rc;

	if (!qp)
		return frl_fail(-EINVAL, "frl_qp_connect_test: qp is required");
	device = qp->pd->device;
	device_enter(device);
	device_poll(device);
	rc = test_attempt(device, qp);
	device_leave(device);
	return rc;
}

int frl_qp_connect(struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_connect_config *config)
{
	struct frl_connect_config defaults;
	struct wait_limit limit;
	int rc;

	if (!qp || !remote)
		return frl_fail(-EINVAL, "frl_qp_connect: qp and remote are required");
	frl_connect_config_init(qp->pd->device, &defaults);
	if (!config)
		config = &defaults;
	rc = start(qp, remote, config);
	if (rc)
		return rc;
	limit = (struct wait_limit){ clock_now_ns() + (uint64_t)config->timeout_ms * NS_PER_MS,
		config->interrupt, config->interrupt_arg };
	rc = device_wait(qp->pd->device, test_attempt, qp, &limit);
	if (!rc)
		return 0;
	/* The interrupt has set the error; in other cases the attempt has ended already. */
	device_enter(qp->pd->device);
	connect_abandon(qp);
	device_leave(qp->pd->device);
	return rc;
}
