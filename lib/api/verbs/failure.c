/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failing a queue pair, or all of a device, for reasons outside of the protocol, and the reason of
 * a failure.
 */
#include "lib/api/objects.h"

#include <stdio.h>

const char *frl_qp_error(struct frl_qp *qp, char *text, size_t size)
{
	struct frl_device *device = qp->pd->device;

	device_enter(device);
	device->ops->qp_describe_error(qp, text, size);
	device_leave(device);
	return text;
}

void frl_qp_set_peer(struct frl_qp *qp, int rank, const char *host)
{
	struct frl_device *device = qp->pd->device;

	device_enter(device);
	qp->peer_rank = rank < 0 ? 0 : (uint32_t)rank + 1;
	snprintf(qp->peer_host, sizeof(qp->peer_host), "%s", rank < 0 ? "" : host);
	device_leave(device);
}

void qp_fail_held(struct frl_qp *qp, int error, const char *reason)
{
	qp->pd->device->ops->qp_fail(qp, reason && *reason ? reason : frl_strerror(error));
}

void qp_fail_with(struct frl_qp *qp, int error, const char *reason)
{
	struct frl_device *device = qp->pd->device;

	/* The control thread calls this, and must get the guard while other threads poll. */
	device_enter_first(device);
	qp_fail_held(qp, error, reason);
	device_leave(device);
}

void device_revoke(struct frl_device *device, const char *reason)
{
	device_enter_first(device);
	if (device->ops->revoke)
		device->ops->revoke(device, reason);
	device_leave(device);
}
