/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Being told instead of polling: completion channels and asynchronous events. Nouns, meanings and
 * numbers are those of libibverbs, but nothing needs to be acknowledged: destroying an object
 * also takes back the events about it that were not fetched yet.
 *
 * Descriptors here are for poll(), select() and the like, in whatever event loop: readable while an
 * event waits to be fetched. A software device with a completion channel, and one whose events are
 * asked for, gets a progress thread, since nobody polls while everybody sleeps.
 *
 * Any thread. IBTA volume 1, 11.5 (completion notification) and 11.6.3 (asynchronous events).
 */
#ifndef FERRULE_EVENT_H
#define FERRULE_EVENT_H

#include <stdbool.h>

#include <ferrule/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct frl_comp_channel;
struct frl_cq;
struct frl_device;
struct frl_qp;
struct frl_srq;

/* -EINVAL, -ENOMEM, -EMFILE. */
FRL_API int frl_comp_channel_create(
	struct frl_device *device, struct frl_comp_channel **ret_channel);

/* -EBUSY while completion queues use it. NULL is fine. */
FRL_API int frl_comp_channel_destroy(struct frl_comp_channel *channel);

/* The descriptor; it stays the channel's. */
FRL_API int frl_comp_channel_fd(const struct frl_comp_channel *channel);

/*
 * Asks for one event on the queue's channel: for the next completion that is written, or, with
 * `solicited_only`, for the next receive that the sender has flagged as solicited or that failed.
 * Completions that are in the queue already do not count: ask, then poll once more, then sleep.
 * Asking for all overrides asking for solicited ones. -EINVAL: the queue has no channel.
 */
FRL_API int frl_req_notify_cq(struct frl_cq *cq, bool solicited_only);

/*
 * Fetches an event: *ret_cq wants to be polled. Waits up to `timeout_ms` (0: not at all, negative:
 * without limit). -EAGAIN: none came. Of hardware a queue that overran, or whose device has failed,
 * has an event as well, asked for or not: polling it says what has happened.
 */
FRL_API int frl_get_cq_event(
	struct frl_comp_channel *channel, int timeout_ms, struct frl_cq **ret_cq);

/*
 * DEVICE_FATAL comes when a lease has ended under a device that is open: a control daemon that was
 * restarted gives the port to somebody else, or to nobody; of hardware when it has failed. Its
 * queue pairs have failed then, and frl_qp_error() says why; there is nothing left to do but to
 * close it. SRQ_ERR is hardware's alone. Linux' rxe raises neither it nor QP_FATAL, QP_REQ_ERR,
 * QP_ACCESS_ERR, COMM_EST and QP_LAST_WQE_REACHED.
 */
enum frl_event_type {
	FRL_EVENT_CQ_ERR = 0,             /* cq: overran; its queue pairs have failed */
	FRL_EVENT_QP_FATAL = 1,           /* qp: failed for a reason that no completion tells */
	FRL_EVENT_QP_REQ_ERR = 2,         /* qp: failed, the peer sent an invalid request */
	FRL_EVENT_QP_ACCESS_ERR = 3,      /* qp: failed, the peer had no right to what it wanted */
	FRL_EVENT_COMM_EST = 4,           /* qp: a packet arrived while in RTR */
	FRL_EVENT_SQ_DRAINED = 5,         /* qp: in SQD, and nothing is under way any more */
	FRL_EVENT_DEVICE_FATAL = 8,       /* the device is of no more use */
	FRL_EVENT_PORT_ACTIVE = 9,        /* the port's link is there (again) */
	FRL_EVENT_PORT_ERR = 10,          /* the port's link is gone */
	FRL_EVENT_SRQ_ERR = 14,           /* srq: failed */
	FRL_EVENT_SRQ_LIMIT_REACHED = 15, /* srq: fewer requests than its limit; disarmed now */
	FRL_EVENT_QP_LAST_WQE_REACHED = 16, /* qp: in ERR, takes no more from its srq */
};

struct frl_async_event {
	enum frl_event_type type;
	/* What it is about; the one that the type says. */
	struct frl_cq *cq;
	struct frl_qp *qp;
	struct frl_srq *srq;
};

/* A word for a type, like "QP_FATAL". Never NULL. */
FRL_API const char *frl_event_type_str(enum frl_event_type type);

/* The descriptor of the device's asynchronous events, or -errno. It stays the device's. */
FRL_API int frl_async_fd(struct frl_device *device);

/*
 * Fetches an event; waits as frl_get_cq_event() does. Events that happen before they are fetched
 * are kept, once for each object and type. -EAGAIN: none came.
 */
FRL_API int frl_get_async_event(
	struct frl_device *device, int timeout_ms, struct frl_async_event *ret_event);

#ifdef __cplusplus
}
#endif
#endif
