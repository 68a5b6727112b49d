/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the public functions share. They check their arguments and count what depends on what; a
 * device's driver does the rest: see lib/device/device.h, where the structs behind the handles are.
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
#include "lib/base/ip.h"

enum {
	DEFAULT_SGE = 4,
	DEFAULT_INLINE = 64,
	LEAST_INLINE = 16, /* fewer are of no use */
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

/* By 1 or -1: how many objects need the domain. Counted before the object is made, so that the
 * domain stays while that takes its time. */
static inline void pd_count(struct frl_pd *pd, int change)
{
	device_enter(pd->device);
	pd->objects += (unsigned)change;
	device_leave(pd->device);
}

/* Scatter/gather elements where the caller did not say. */
static inline uint32_t default_sge(uint32_t most)
{
	return most < DEFAULT_SGE ? most : DEFAULT_SGE;
}

/* What every function that posts requests refuses; `what` names it and its queue. */
static inline int check_post(
	const char *what, const void *queue, const void *wr, int n, int *ret_posted)
{
	if (queue && n >= 0 && (wr || n == 0))
		return 0;
	if (ret_posted)
		*ret_posted = 0;
	return frl_fail(-EINVAL, "%s, an n of 0 or more and that many wr are required", what);
}

/* memory.c: deregisters a region of a cache, which nobody has any more. Only -EBUSY is worth
 * another try; what else goes wrong is logged, and the region is forgotten. */
int mr_end_cached(struct frl_mr *mr);

/* The same: a region of `pd` that is yet to be registered, by `reg`. Errors as frl_reg_mr(). */
int mr_make(struct frl_pd *pd, const struct frl_mr *wanted,
	int (*reg)(struct frl_mr *mr, void *arg), void *arg, struct frl_mr **ret_mr);

/* fragments.c: the region is gone. */
void mr_release_fragments(struct frl_mr *mr);

/* mr_cache.c: there are limits to what is pinned and to how many regions there are, so what is only
 * kept gives way to what is needed. True: `rc` told of such a limit, and there may be room now; try
 * once more. */
bool mr_caches_make_room(int rc);

/* queue_pair.c */

/* One try of what frl_qp_modify() does, with all attributes given and the guard held. -EAGAIN: the
 * next hop has been asked for its MAC; try again while polling, or give up by the driver's
 * qp_unanswered(). */
int modify_qp_once(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);

/* connect.c: the queue pair is reset or destroyed; what frl_qp_connect_start() began is given up.
 * With the guard held. */
void connect_abandon(struct frl_qp *qp);

/* failure.c */

/*
 * Moves a queue pair to ERR because of something outside of the protocol: flushes, raises
 * FRL_EVENT_QP_FATAL and keeps the sentence for frl_qp_error(), `error` (an errno) in words if
 * there is none. Of one that is in ERR without a sentence only that; of one in RESET nothing.
 */
void qp_fail_with(struct frl_qp *qp, int error, const char *reason);
/* The same with the guard held. */
void qp_fail_held(struct frl_qp *qp, int error, const char *reason);
/* The lease of its addresses has ended: fails all queue pairs, and raises FRL_EVENT_DEVICE_FATAL.
 * Without the guard. */
void device_revoke(struct frl_device *device, const char *reason);

/* publish.c */

/*
 * Makes sure that the daemon is, or will be, told of the device's port before what is posted after
 * this, and gives the port's number in messages. Starts the daemon if need be; does not wait. As
 * control_register(). Without the guard.
 */
int publish_require(struct frl_device *device, uint32_t *ret_port);

/* cm.c: the queue pair is about to be destroyed, so its connection ends. Without the guard. */
void cm_forget_qp(struct frl_qp *qp);

#endif
