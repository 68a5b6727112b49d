/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous events. A thread sleeps until there is one, queues it for frl_get_async_event(), and
 * logs its meaning. It also updates state that only the hardware knows: the state of the port, and
 * queue pairs that entered ERR on their own.
 *
 * libibverbs destroys an object only after its events are acknowledged. That happens here after
 * they are queued, so the contexts of objects in events are valid until then.
 */
#include "drivers/verbs/internal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <sys/eventfd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/net/ip.h"

static const char fatal[] =
	"the device has failed: see dmesg; close it, and open it again when it is back";

static void raise_port(
	struct verbs_device *device, enum frl_event_type untrue, enum frl_event_type type)
{
	device->source.pending &= ~(UINT32_C(1) << untrue);
	device_raise(&device->base, &device->source, type);
}

static void port_changed(struct verbs_device *device, bool is_up)
{
	device->port_state = is_up ? FRL_PORT_ACTIVE : FRL_PORT_DOWN;
	if (!is_up)
		atomic_store(&device->down_ns, clock_now_ns());
	if (is_up) {
		raise_port(device, FRL_EVENT_PORT_ERR, FRL_EVENT_PORT_ACTIVE);
		frl_log(FRL_LOG_INFO, "%s: the link is up (again)", device->name);
	} else {
		raise_port(device, FRL_EVENT_PORT_ACTIVE, FRL_EVENT_PORT_ERR);
		frl_log(FRL_LOG_WARNING,
			"%s: the link is down: check cable, switch and ip link; connections go on "
			"if it comes back before their retries are exhausted",
			device->name);
	}
}

static void device_failed(struct verbs_device *device)
{
	atomic_store(&device->is_fatal, true);
	for (uint32_t i = 0; i < device->n_slots; i++) {
		struct verbs_qp *qp = device->slots[i];

		if (!qp || (qp_state_of(qp) == FRL_QPS_RESET && !qp->is_moving))
			continue;
		verbs_qp_note_error(qp, fatal);
		device_raise(&device->base, &qp->source, FRL_EVENT_QP_FATAL);
	}
	for (struct list *at = device->cqs.next; at != &device->cqs; at = at->next)
		verbs_cq_wake(container_of(at, struct verbs_cq, node));
	device->port_state = FRL_PORT_DOWN;
	device_raise(&device->base, &device->source, FRL_EVENT_DEVICE_FATAL);
	frl_log(FRL_LOG_ERROR, "%s: %s", device->name, fatal);
}

/* No completion of its outstanding requests would be reported. */
static void cq_failed(struct verbs_device *device, struct verbs_cq *cq)
{
	/* Some devices report this for each lost completion. */
	if (atomic_exchange(&cq->has_overrun, true))
		return;
	for (uint32_t i = 0; i < device->n_slots; i++) {
		struct verbs_qp *qp = device->slots[i];

		if (!qp || (qp->base.send_cq != &cq->base && qp->base.recv_cq != &cq->base))
			continue;
		if (qp_state_of(qp) != FRL_QPS_RESET)
			verbs_qp_to_error(qp);
		verbs_qp_note_error(qp, "its completion queue overran: " OVERRUN_ADVICE);
	}
	verbs_cq_wake(cq);
	device_raise(&device->base, &cq->source, FRL_EVENT_CQ_ERR);
	frl_log(FRL_LOG_ERROR,
		"%s: a completion queue has failed, most likely it overran: " OVERRUN_ADVICE,
		device->name);
}

static void qp_failed(
	struct verbs_device *device, struct verbs_qp *qp, enum frl_event_type type, const char *why)
{
	/* It may have been reset since, and be usable again. */
	if (verbs_qp_query_state(qp) == FRL_QPS_ERR)
		verbs_qp_note_error(qp, why);
	else if (qp->is_moving)
		qp->query_reason = why;
	device_raise(&device->base, &qp->source, type);
	frl_log(FRL_LOG_WARNING, "%s: queue pair 0x%x has failed: %s", device->name, qp->base.num,
		why);
}

static void srq_event(struct verbs_device *device, struct verbs_srq *srq, enum frl_event_type type)
{
	if (!srq)
		return;
	device_raise(&device->base, &srq->source, type);
	if (type == FRL_EVENT_SRQ_ERR)
		frl_log(FRL_LOG_ERROR,
			"%s: a shared receive queue has failed: destroy it and its queue pairs, "
			"and create new ones",
			device->name);
}

static void handle_qp(struct verbs_device *device, const struct ibv_async_event *event)
{
	struct verbs_qp *qp = event->element.qp->qp_context;

	if (!qp)
		return;
	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
		qp_failed(device, qp, FRL_EVENT_QP_FATAL,
			"the device cannot process it any more: see dmesg; reset it to use it "
			"again");
		break;
	case IBV_EVENT_QP_REQ_ERR:
		qp_failed(device, qp, FRL_EVENT_QP_REQ_ERR,
			"the peer sent a request that is invalid: check both ends' access_flags "
			"and max_dest_rd_atomic");
		break;
	case IBV_EVENT_QP_ACCESS_ERR:
		qp_failed(device, qp, FRL_EVENT_QP_ACCESS_ERR,
			"the peer accessed memory without permission: wrong rkey, range or access");
		break;
	case IBV_EVENT_COMM_EST:
		device_raise(&device->base, &qp->source, FRL_EVENT_COMM_EST);
		break;
	case IBV_EVENT_SQ_DRAINED:
		device_raise(&device->base, &qp->source, FRL_EVENT_SQ_DRAINED);
		break;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		device_raise(&device->base, &qp->source, FRL_EVENT_QP_LAST_WQE_REACHED);
		break;
	default: break;
	}
}

/* Queries the properties of the port that may have changed, without the guard. */
static void look_at_port(struct verbs_device *device, const struct ibv_async_event *event)
{
	bool is_active = event->event_type == IBV_EVENT_PORT_ACTIVE;
	struct ibv_port_attr port = { 0 };
	bool is_up;

	if ((!is_active && event->event_type != IBV_EVENT_GID_CHANGE) ||
		event->element.port_num != device->port)
		return;
	verbs_find_gids_again(device);
	is_up = !ibv_query_port(device->context, device->port, &port) &&
		port.state == IBV_PORT_ACTIVE;
	device_enter_first(&device->base);
	if (bytes_of_mtu(port.active_mtu))
		device->active_mtu = bytes_of_mtu(port.active_mtu);
	/* If its network interface disappears, rxe reports only a change of addresses. */
	if (!is_up && !is_active && device->port_state == FRL_PORT_ACTIVE)
		port_changed(device, false);
	device_leave(&device->base);
}

static void handle_port(struct verbs_device *device, const struct ibv_async_event *event)
{
	if (event->element.port_num != device->port)
		return;
	switch (event->event_type) {
	case IBV_EVENT_PORT_ACTIVE: port_changed(device, true); break;
	case IBV_EVENT_PORT_ERR: port_changed(device, false); break;
	default: break;
	}
}

/* An object that could not be destroyed has no owner any more. */
static void handle_cq(struct verbs_device *device, struct verbs_cq *cq)
{
	if (cq)
		cq_failed(device, cq);
}

static void handle(struct verbs_device *device, const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED: handle_qp(device, event); break;
	case IBV_EVENT_CQ_ERR: handle_cq(device, event->element.cq->cq_context); break;
	case IBV_EVENT_SRQ_ERR:
		srq_event(device, event->element.srq->srq_context, FRL_EVENT_SRQ_ERR);
		break;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		srq_event(device, event->element.srq->srq_context, FRL_EVENT_SRQ_LIMIT_REACHED);
		break;
	case IBV_EVENT_DEVICE_FATAL: device_failed(device); break;
	default: handle_port(device, event); break;
	}
}

/* Returns false if no event is left, or none can follow. */
static bool take_one(struct verbs_device *device)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(device->context, &event))
		return errno == EINTR;
	look_at_port(device, &event);
	device_enter_first(&device->base);
	handle(device, &event);
	device_leave(&device->base);
	ibv_ack_async_event(&event);
	return true;
}

/* A device that is gone reports no further events, and may not have reported its end. */
static void device_removed(struct verbs_device *device)
{
	device_enter_first(&device->base);
	if (!atomic_load(&device->is_fatal))
		device_failed(device);
	device_leave(&device->base);
}

static void *wait_for_events(void *arg)
{
	struct verbs_device *device = arg;
	struct pollfd fds[] = {
		{ .fd = device->stop_fd, .events = POLLIN },
		{ .fd = device->context->async_fd, .events = POLLIN },
	};

	for (;;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[0].revents)
			return NULL;
		while (take_one(device))
			;
		if (fds[1].revents & (POLLERR | POLLHUP | POLLNVAL)) {
			/* It would stay readable for ever. */
			fds[1].fd = -1;
			device_removed(device);
		}
	}
}

/* Signals are for the application's threads. */
static int start_thread(struct verbs_device *device)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&device->thread, NULL, wait_for_events, device);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}

int verbs_start_events(struct verbs_device *device)
{
	int fd = device->context->async_fd;
	int flags = fcntl(fd, F_GETFL);
	int err;

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return frl_fail(-errno, "%s: cannot wait for its events: %s", device->name,
			frl_strerror(errno));
	device->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (device->stop_fd < 0)
		return frl_fail(-errno, "%s: no descriptor for its thread: %s", device->name,
			frl_strerror(errno));
	err = start_thread(device);
	if (!err)
		return 0;
	close(device->stop_fd);
	return frl_fail(-err, "%s: cannot start a thread for its events: %s", device->name,
		frl_strerror(err));
}

void verbs_stop_events(struct verbs_device *device)
{
	uint64_t one = 1;

	/* It cannot fail: the count is 0. */
	if (write(device->stop_fd, &one, sizeof(one)) != sizeof(one))
		return;
	pthread_join(device->thread, NULL);
	close(device->stop_fd);
}
