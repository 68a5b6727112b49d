/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion channels and asynchronous events: an application sleeps on a descriptor instead of
 * polling. Names, meanings and numbers are those of libibverbs, with one difference: events need no
 * acknowledgement. Destroying an object also discards its events that were not fetched yet.
 *
 * The descriptors are for poll(), select() and event loops. A descriptor is readable while an event
 * waits to be fetched. A software device gets a progress thread when it has a completion channel or
 * its asynchronous events are used, because nobody polls while the application sleeps.
 *
 * Threads: any thread may call these functions. A thread may be cancelled (pthread_cancel()) while
 * it sleeps in frl_get_cq_event() or frl_get_async_event(), in no other function of the library.
 * IBTA volume 1, 11.5 (completion notification) and 11.6.3 (asynchronous events).
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

/*
 * Creates a completion channel of `device`. Destroy it with frl_comp_channel_destroy(). Returns
 * -EINVAL, -ENOMEM or -EMFILE on failure.
 */
FRL_API int frl_comp_channel_create(
	struct frl_device *device, struct frl_comp_channel **ret_channel);

/* Destroys a channel; NULL is fine. Returns -EBUSY while completion queues use the channel. */
FRL_API int frl_comp_channel_destroy(struct frl_comp_channel *channel);

/* Returns the channel's descriptor. The channel owns it; do not close it. */
FRL_API int frl_comp_channel_fd(const struct frl_comp_channel *channel);

/*
 * Requests one event on the queue's channel, for the next completion that is written. With
 * `solicited_only` the event is for the next receive that the sender marked as solicited, or that
 * failed. Completions that are in the queue already raise no event: request one, poll once more,
 * then sleep. A request for all completions overrides a request for solicited ones. Returns -EINVAL
 * if the queue has no channel.
 */
FRL_API int frl_req_notify_cq(struct frl_cq *cq, bool solicited_only);

/*
 * Fetches an event and sets *ret_cq to the queue to poll. Waits up to `timeout_ms` (0: not at all,
 * negative: without limit). Returns -EAGAIN if no event came. A queue of a hardware device that
 * overran, or whose device has failed, raises an event even if none was requested; frl_poll_cq()
 * then returns the reason.
 */
FRL_API int frl_get_cq_event(
	struct frl_comp_channel *channel, int timeout_ms, struct frl_cq **ret_cq);

/*
 * Calls `fn` for each event of the channel instead of keeping the event for frl_get_cq_event().
 * Each request for an event leads to exactly one call, also if earlier events of the queue were not
 * handled yet. Events that are kept already are passed to `fn` before the function returns. NULL
 * ends this: no call is in progress or follows once the function has returned.
 *
 * `fn` is called with the device's lock held, by the thread that drives the device, in the order of
 * the events. It must return soon, and must not call the library. Returns -EINVAL, or -ENOTSUP for
 * hardware.
 */
FRL_API int frl_comp_channel_on_event(
	struct frl_comp_channel *channel, void (*fn)(struct frl_cq *cq, void *arg), void *arg);

/*
 * DEVICE_FATAL is raised when the lease of an open device has ended: a restarted control daemon
 * leased the port to another process, or to none. A hardware device raises DEVICE_FATAL when it has
 * failed. All queue pairs of the device have failed then, frl_qp_error() says why, and the
 * application can only close the device.
 *
 * Only hardware raises SRQ_ERR. Linux' rxe does not raise SRQ_ERR, QP_FATAL, QP_REQ_ERR,
 * QP_ACCESS_ERR, COMM_EST and QP_LAST_WQE_REACHED.
 */
enum frl_event_type {
	FRL_EVENT_CQ_ERR = 0,               /* cq: overran; its queue pairs have failed */
	FRL_EVENT_QP_FATAL = 1,             /* qp: failed, and no completion reports why */
	FRL_EVENT_QP_REQ_ERR = 2,           /* qp: failed, the peer sent an invalid request */
	FRL_EVENT_QP_ACCESS_ERR = 3,        /* qp: failed, the peer had no access right */
	FRL_EVENT_COMM_EST = 4,             /* qp: a packet arrived while in RTR */
	FRL_EVENT_SQ_DRAINED = 5,           /* qp: in SQD, no request is in flight */
	FRL_EVENT_DEVICE_FATAL = 8,         /* the device has failed; close it */
	FRL_EVENT_PORT_ACTIVE = 9,          /* the port's link is up (again) */
	FRL_EVENT_PORT_ERR = 10,            /* the port's link is down */
	FRL_EVENT_SRQ_ERR = 14,             /* srq: failed */
	FRL_EVENT_SRQ_LIMIT_REACHED = 15,   /* srq: fewer requests than its limit; disarmed now */
	FRL_EVENT_QP_LAST_WQE_REACHED = 16, /* qp: in ERR, takes no more from its srq */
};

struct frl_async_event {
	enum frl_event_type type;
	/* The object that the event is about; `type` says which one is set. */
	struct frl_cq *cq;
	struct frl_qp *qp;
	struct frl_srq *srq;
};

/* Returns the name of a type, like "QP_FATAL". Never NULL. */
FRL_API const char *frl_event_type_str(enum frl_event_type type);

/*
 * Returns the descriptor of the device's asynchronous events, or -errno. The device owns the
 * descriptor; do not close it.
 */
FRL_API int frl_async_fd(struct frl_device *device);

/*
 * Fetches an asynchronous event. `timeout_ms` is as for frl_get_cq_event(). An event waits until it
 * is fetched; each object keeps one event of each type. Returns -EAGAIN if no event came.
 */
FRL_API int frl_get_async_event(
	struct frl_device *device, int timeout_ms, struct frl_async_event *ret_event);

/*
 * Calls `fn` for each asynchronous event instead of keeping the event for frl_get_async_event().
 * The rules are those of frl_comp_channel_on_event(). Supported by hardware, too: a thread of the
 * library makes the calls. Returns an error as frl_async_fd() does.
 */
FRL_API int frl_device_on_event(struct frl_device *device,
	void (*fn)(const struct frl_async_event *event, void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
