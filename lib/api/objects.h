/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Helpers that the public functions share. The public functions check their arguments and count the
 * references between objects. The device's driver does the rest: see lib/device/device.h, which has
 * the structs behind the handles.
 */
#ifndef FERRULE_API_OBJECTS_H
#define FERRULE_API_OBJECTS_H

#include <errno.h>
#include <stddef.h>

#include <ferrule/connect.h>
#include <ferrule/device.h>
#include <ferrule/event.h>
#include <ferrule/memory.h>

#include "lib/device/device.h"
#include "lib/base/error.h"
#include "lib/base/net/ip.h"

enum {
	DEFAULT_SGE = 4,
	DEFAULT_INLINE = 64,
	LEAST_INLINE = 16, /* smaller sizes are not useful */
	DEFAULT_HOP_LIMIT = 64,
};

static inline bool qp_is_connected_type(const struct frl_qp *qp)
{
	return qp->type == FRL_QPT_RC || qp->type == FRL_QPT_UC;
}

/* [guard] */
static inline enum frl_qp_state qp_state(const struct frl_qp *qp)
{
	return qp->pd->device->ops->qp_state(qp);
}

/*
 * Adds `change`, 1 or -1, to the number of objects that need the domain. Count before the object is
 * created, so that the domain cannot be destroyed meanwhile.
 */
static inline void pd_count(struct frl_pd *pd, int change)
{
	device_enter(pd->device);
	pd->objects += (unsigned)change;
	device_leave(pd->device);
}

/* Returns the default number of scatter/gather elements. */
static inline uint32_t default_sge(uint32_t most)
{
	return most < DEFAULT_SGE ? most : DEFAULT_SGE;
}

/*
 * Checks the arguments of a function that posts requests; `what` names the function and its queue.
 */
static inline int check_post(
	const char *what, const void *queue, const void *wr, int n, int *ret_posted)
{
	if (queue && n >= 0 && (wr || n == 0))
		return 0;
	if (ret_posted)
		*ret_posted = 0;
	return frl_fail(-EINVAL, "%s, an n of 0 or more and that many wr are required", what);
}

/*
 * memory.c: deregisters an unused region of a cache. Returns -EBUSY if the call should be repeated.
 * Other errors are logged, and the region is freed.
 */
int mr_dereg_cached(struct frl_mr *mr);

/*
 * memory.c: creates a region like `wanted` in `pd` and registers it by `reg`. Errors as
 * frl_reg_mr().
 */
int mr_make(struct frl_pd *pd, const struct frl_mr *wanted,
	int (*reg)(struct frl_mr *mr, void *arg), void *arg, struct frl_mr **ret_mr);

/* fragments.c: accounts for a region that was deregistered. */
void mr_release_fragments(struct frl_mr *mr);

/*
 * mr_cache.c: evicts unused cached regions if `rc` reports a limit of pinned memory or of regions.
 * Returns true if there may be room now; repeat the registration once.
 */
bool mr_caches_make_room(int rc);

/* queue_pair.c */

/*
 * Tries once what frl_qp_modify() does, with all attributes given and the guard held. Returns
 * -EAGAIN while the next hop's MAC is being resolved. Repeat while polling, or give up by the
 * driver's qp_unanswered().
 */
int modify_qp_once(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);

/*
 * connect.c: cancels frl_qp_connect_start(), because the queue pair is reset or destroyed. With the
 * guard held.
 */
void connect_abandon(struct frl_qp *qp);

/* failure.c */

/*
 * Moves a queue pair to ERR for a reason outside of the protocol: flushes, raises
 * FRL_EVENT_QP_FATAL and keeps `reason` for frl_qp_error(), or the text of `error` (an errno) if
 * `reason` is NULL. Only sets a missing reason if the queue pair is in ERR. Does nothing in RESET.
 */
void qp_fail_with(struct frl_qp *qp, int error, const char *reason);
/* qp_fail_with() with the guard held. */
void qp_fail_held(struct frl_qp *qp, int error, const char *reason);
/*
 * Ends a device whose lease has ended: fails all queue pairs, and raises FRL_EVENT_DEVICE_FATAL.
 * Without the guard.
 */
void device_revoke(struct frl_device *device, const char *reason);

/* publish.c */

/*
 * Ensures that the daemon learns of the device's port before any message that is posted later, and
 * returns the port's number for messages. Starts the daemon if necessary, without waiting. Errors
 * as control_register(). Without the guard.
 */
int publish_require(struct frl_device *device, uint32_t *ret_port);

/* cm.c: ends the connection of a queue pair that is about to be destroyed. Without the guard. */
void cm_forget_qp(struct frl_qp *qp);

#endif
