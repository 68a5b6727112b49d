/* SPDX-License-Identifier: BSD-3-Clause */
/* How callers test and wait for requests and notices. */
#include "collectives/api/internal.h"

#include <errno.h>

#include "collectives/api/driver.h"
#include "collectives/gpu/compute.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/process/backoff.h"

/* Returns the end of a wait that begins now. */
static uint64_t end_after(int timeout_ms)
{
	return timeout_ms < 0 ? WAIT_FOREVER : clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
}

static bool has_passed(uint64_t end_ns)
{
	return end_ns != WAIT_FOREVER && clock_now_ns() >= end_ns;
}

/* Takes a notice. Returns whether it did, or there will be none. */
static bool take_notice(struct waiter *waiter)
{
	struct frl_comm *comm = waiter->comm;

	if (comm->error)
		requests_report_failed(comm);
	waiter->notice = notices_take(comm);
	return waiter->notice || (comm->detached == 0 && (comm->error || !comm->driver));
}

/* As request_conclude() will find it. */
static bool is_over(struct waiter *waiter)
{
	struct frl_request *request = waiter->request;

	if (!request)
		return take_notice(waiter);
	return request->done || (request->comm->error && computes_are_still(request));
}

/* Makes progress until the wait is over, or until `end_ns`. The communicator has been entered. */
static void wait(struct waiter *waiter, uint64_t end_ns)
{
	struct frl_comm *comm = waiter->comm;
	struct frl_backoff backoff;

	frl_backoff_reset(&backoff);
	while (!is_over(waiter)) {
		if (driver_lead(waiter)) {
			int events = comm_round(comm);

			if (is_over(waiter) || has_passed(end_ns))
				break;
			comm_pause(comm, &backoff, events);
		} else {
			if (has_passed(end_ns))
				break;
			driver_sleep(waiter, end_ns);
		}
	}
	driver_follow(waiter);
}

int frl_request_test(struct frl_request *request, bool *ret_done)
{
	struct frl_comm *comm = request ? request->comm : NULL;
	int events = 0, err;
	bool done = false;

	if (!request || !ret_done)
		return frl_fail(-EINVAL, "the request or ret_done is NULL");
	comm_enter(comm);
	if (!request->done)
		events = comm_round(comm);
	err = request_conclude(request, &done);
	comm_leave(comm);
	if (err)
		return err;
	/* The awaited rank may need this processor. */
	if (!done && events == 0)
		backoff_test();
	*ret_done = done;
	return 0;
}

/* The communicator has been entered. Sets *ret_done to false if the time has passed. */
static int wait_for_request(struct frl_request *request, uint64_t end_ns, bool *ret_done)
{
	struct waiter waiter; /* the rest is for sleeping: clearing it would cost each operation */

	waiter.comm = request->comm;
	waiter.request = request;
	wait(&waiter, end_ns);
	return request_conclude(request, ret_done);
}

int frl_request_wait_for(struct frl_request *request, int timeout_ms, bool *ret_done)
{
	struct frl_comm *comm = request ? request->comm : NULL;
	bool done;
	int err;

	if (!request || !ret_done)
		return frl_fail(-EINVAL, "the request or ret_done is NULL");
	if (timeout_ms == 0)
		return frl_request_test(request, ret_done);
	comm_enter(comm);
	err = wait_for_request(request, end_after(timeout_ms), &done);
	comm_leave(comm);
	if (!err)
		*ret_done = done;
	return err;
}

int frl_request_wait(struct frl_request *request)
{
	bool done;

	return frl_request_wait_for(request, -1, &done);
}

int frl_run(struct frl_comm *comm, const struct frl_collective *collective)
{
	struct frl_request *request;
	bool done;
	int err;

	if (!comm || !collective)
		return frl_fail(-EINVAL, "the communicator or the collective is NULL");
	comm_enter(comm);
	err = request_start(comm, collective, 1, &request);
	if (!err)
		err = wait_for_request(request, WAIT_FOREVER, &done);
	comm_leave(comm);
	return err;
}

int comm_wait_for_notice(struct frl_comm *comm, int timeout_ms, struct notice **ret_notice)
{
	struct waiter waiter = { .comm = comm };
	int err = 0;

	comm_enter(comm);
	if (!comm->error && inbox_is_waiting(&comm->inbox))
		comm_take_mail(comm);
	if (timeout_ms != 0) {
		wait(&waiter, end_after(timeout_ms));
	} else {
		/* Also if another thread leads, as callers that only look may keep it from the
		 * guard. */
		comm_round(comm);
		take_notice(&waiter);
	}
	if (!waiter.notice && comm->error && comm->detached == 0)
		err = comm_error(comm);
	comm_leave(comm);
	/* The awaited rank may need this processor. */
	if (timeout_ms == 0 && !waiter.notice && !err)
		backoff_test();
	*ret_notice = waiter.notice;
	return err;
}
