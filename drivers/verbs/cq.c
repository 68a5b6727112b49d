/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion channels and queues. poll.c takes the completions. */
#include "drivers/verbs/internal.h"

#include <fcntl.h>
#include <unistd.h>

#include <sys/epoll.h>

#include "lib/base/error.h"

enum {
	/* Fields requested for each completion. */
	WC_FLAGS = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
		IBV_WC_EX_WITH_SRC_QP,
};

static struct verbs_channel *verbs_channel(struct frl_comp_channel *channel)
{
	return container_of(channel, struct verbs_channel, base);
}

/* Readers of events never block: another thread may have taken the event. */
static int never_wait(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? errno : 0;
}

static int watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? errno : 0;
}

/* Creates its descriptors: libibverbs' own, one for queues that have failed, and one for both.
 * Returns 0 or an errno; *channel then has what was created. */
static int make_descriptors(struct verbs_channel *channel)
{
	int err = never_wait(channel->channel->fd);

	if (!err)
		err = -event_fd_create(&channel->event_fd);
	if (err)
		return err;
	channel->base.fd = epoll_create1(EPOLL_CLOEXEC);
	if (channel->base.fd < 0)
		return errno;
	err = watch(channel->base.fd, channel->channel->fd);
	return err ? err : watch(channel->base.fd, channel->event_fd.fd);
}

static void close_descriptors(struct verbs_channel *channel)
{
	if (channel->base.fd >= 0)
		close(channel->base.fd);
	event_fd_fini(&channel->event_fd);
}

int verbs_channel_create(struct frl_comp_channel *base)
{
	struct verbs_device *device = verbs_device(base->device);
	struct verbs_channel *channel = verbs_channel(base);
	int err;

	errno = 0;
	base->fd = channel->event_fd.fd = -1;
	channel->channel = ibv_create_comp_channel(device->context);
	if (!channel->channel)
		return verbs_fail(
			verbs_null_errno(), "%s: cannot make a completion channel", device->name);
	err = make_descriptors(channel);
	if (!err)
		return 0;
	close_descriptors(channel);
	ibv_destroy_comp_channel(channel->channel);
	return frl_fail(-err, "%s: cannot create a completion channel: %s", device->name,
		frl_strerror(err));
}

void verbs_channel_destroy(struct frl_comp_channel *base)
{
	struct verbs_channel *channel = verbs_channel(base);
	int rc;

	close_descriptors(channel);
	rc = ibv_destroy_comp_channel(channel->channel);
	verbs_destroyed(
		verbs_device(base->device), NULL, rc, "cannot destroy a completion channel");
}

/* Returns the first failed queue of the channel that was not reported yet. Guard held. */
static struct verbs_cq *find_failed(struct verbs_device *device, struct frl_comp_channel *channel)
{
	for (struct list *at = device->cqs.next; at != &device->cqs; at = at->next) {
		struct verbs_cq *cq = container_of(at, struct verbs_cq, node);

		if (cq->base.channel == channel && cq->has_error_to_report)
			return cq;
	}
	return NULL;
}

static void ring(struct frl_comp_channel *base)
{
	bool is_needed = find_failed(verbs_device(base->device), base) != NULL;

	event_fd_set(&verbs_channel(base)->event_fd, is_needed);
}

void verbs_cq_wake(struct verbs_cq *cq)
{
	if (!cq->base.channel)
		return;
	cq->has_error_to_report = true;
	ring(cq->base.channel);
}

static struct frl_cq *take_failed(struct frl_comp_channel *base)
{
	struct verbs_cq *cq;

	device_enter(base->device);
	cq = find_failed(verbs_device(base->device), base);
	if (cq) {
		cq->has_error_to_report = false;
		ring(base);
	}
	device_leave(base->device);
	return cq ? &cq->base : NULL;
}

struct frl_cq *verbs_channel_take(struct frl_comp_channel *base)
{
	struct verbs_cq *cq;
	struct ibv_cq *from;
	void *context;

	if (ibv_get_cq_event(verbs_channel(base)->channel, &from, &context))
		return take_failed(base);
	cq = context;
	/* Acknowledge events one at a time: destroying a queue must not wait for an event that was
	 * taken. */
	ibv_ack_cq_events(from, 1);
	return &cq->base;
}

/* Returns NULL and sets errno on failure. A provider rejects all of a request that has an unknown
 * flag. */
static struct ibv_cq_ex *create_extended(
	struct verbs_cq *cq, uint32_t depth, struct ibv_comp_channel *channel, bool has_vlan)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = depth,
		.cq_context = cq,
		.channel = channel,
		.wc_flags = WC_FLAGS | (has_vlan ? IBV_WC_EX_WITH_CVLAN : 0),
	};

	errno = EOPNOTSUPP;
	if (verbs_device(cq->base.device)->is_rxe)
		return NULL;
	return ibv_create_cq_ex(verbs_device(cq->base.device)->context, &attr);
}

static bool is_unknown(int err)
{
	return err == EOPNOTSUPP || err == ENOSYS || err == EINVAL;
}

/* Returns 0 or an errno. */
static int create(struct verbs_cq *cq, uint32_t depth, struct ibv_comp_channel *channel)
{
	struct verbs_device *device = verbs_device(cq->base.device);
	int err;

	cq->ex = create_extended(cq, depth, channel, true);
	cq->has_vlan = cq->ex != NULL;
	if (!cq->ex && is_unknown(errno))
		cq->ex = create_extended(cq, depth, channel, false);
	if (cq->ex) {
		cq->cq = ibv_cq_ex_to_cq(cq->ex);
		return 0;
	}
	err = verbs_null_errno();
	if (!is_unknown(err))
		return err;
	errno = 0;
	cq->cq = ibv_create_cq(device->context, (int)depth, cq, channel, 0);
	return cq->cq ? 0 : verbs_null_errno();
}

int verbs_cq_create(struct frl_cq *base, uint32_t depth)
{
	struct verbs_cq *cq = verbs_cq(base);
	struct ibv_comp_channel *channel = base->channel ? verbs_channel(base->channel)->channel
							 : NULL;
	int err;

	event_source_init(&cq->source, EVENT_OF_CQ, base);
	list_init(&cq->node);
	atomic_init(&cq->has_overrun, false);
	atomic_init(&cq->poll_error, 0);
	atomic_init(&cq->datagrams, 0);
	atomic_init(&cq->connected, 0);
	err = create(cq, depth, channel);
	if (err)
		return verbs_fail(err, "%s: no completion queue of %u entries (at most %u)",
			verbs_device(base->device)->name, depth, base->device->attr.max_cqe);
	device_enter(base->device);
	if (channel)
		list_add_tail(&verbs_device(base->device)->cqs, &cq->node);
	device_leave(base->device);
	return 0;
}

void verbs_cq_destroy(struct frl_cq *base)
{
	struct verbs_cq *cq = verbs_cq(base);
	struct ibv_cq *own = cq->cq;
	int rc = ibv_destroy_cq(own);

	verbs_destroyed(verbs_device(base->device), NULL, rc, "cannot destroy a completion queue");
	device_enter(base->device);
	/* The queue still exists, and may have an event, which is then discarded. */
	if (rc)
		own->cq_context = NULL;
	list_remove(&cq->source.node);
	list_remove(&cq->node);
	if (base->channel)
		ring(base->channel);
	device_leave(base->device);
}

int verbs_cq_resize(struct frl_cq *base, uint32_t depth)
{
	struct verbs_device *device = verbs_device(base->device);
	int rc = ibv_resize_cq(verbs_cq(base)->cq, (int)depth);

	if (rc)
		return verbs_fail(verbs_errno(rc),
			"%s: cannot resize a completion queue to %u entries, of which some may be "
			"in use",
			device->name, depth);
	return 0;
}

int verbs_req_notify(struct frl_cq *base, bool solicited_only)
{
	struct verbs_device *device = verbs_device(base->device);
	struct verbs_cq *cq = verbs_cq(base);
	int rc = ibv_req_notify_cq(cq->cq, solicited_only);

	if (rc)
		return verbs_fail(verbs_errno(rc), "%s: cannot request an event", device->name);
	/* Not every device rejects arming for completions that can no longer come. */
	if (atomic_load(&cq->has_overrun) || atomic_load(&device->is_fatal)) {
		device_enter(&device->base);
		verbs_cq_wake(cq);
		device_leave(&device->base);
	}
	return 0;
}
