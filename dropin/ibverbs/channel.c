/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion channels. Events are counted by an eventfd, which behaves as the kernel's descriptor
 * does: a read takes one event and blocks, or not, as the program has set it; signals interrupt it
 * as their handlers say; and it is a cancellation point.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "dropin/ibverbs/dropin.h"
#include "dropin/ibverbs/uncancelled.h"

/* ---- counting descriptors */

int events_open(void)
{
	return eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
}

void events_add(int fd, uint32_t n)
{
	/* Cannot block: the count of 2^64 - 2 is out of reach. */
	(void)eventfd_write(fd, n);
}

/* Takes an event if there is one. The descriptor may be blocking. */
static bool take_now(int fd)
{
	uint64_t one;
	const struct iovec part = { .iov_base = &one, .iov_len = sizeof(one) };
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	if (preadv2(fd, &part, 1, -1, RWF_NOWAIT) == sizeof(one))
		return true;
	/* Linux before 5.8. Nothing else takes events of a program with one thread. */
	return errno == EOPNOTSUPP && poll(&poll_fd, 1, 0) == 1 &&
		read(fd, &one, sizeof(one)) == sizeof(one);
}

void events_take_back(int fd, uint32_t n)
{
	/* A reader that took one of them meanwhile finds no event and continues. */
	while (n-- && take_now(fd))
		;
}

int events_wait(int fd)
{
	uint64_t one;

	return __real_read(fd, &one, sizeof(one)) == sizeof(one) ? 0 : -1;
}

/* ---- channels */

/* Called by Ferrule with its lock held. */
static void comp_event(struct frl_cq *frl, void *arg)
{
	struct dropin_channel *channel = arg;
	struct dropin_cq *cq = frl_cq_context(frl);

	pthread_mutex_lock(&channel->mutex);
	if (cq->events++ == 0)
		list_add_tail(&channel->events, &cq->event_node);
	pthread_mutex_unlock(&channel->mutex);
	events_add(channel->ibv.fd, 1);
}

static int open_channel(struct dropin_channel *channel, struct ibv_context *ibv)
{
	int rc;

	channel->ibv.fd = events_open();
	if (channel->ibv.fd < 0)
		return -1;
	rc = frl_comp_channel_create(dropin_context(ibv)->frl, &channel->frl);
	if (!rc)
		rc = frl_comp_channel_on_event(channel->frl, comp_event, channel);
	if (!rc)
		return 0;
	frl_comp_channel_destroy(channel->frl);
	close(channel->ibv.fd);
	dropin_errno(rc);
	return -1;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ibv)
{
	struct dropin_channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return NULL;
	channel->ibv.context = ibv;
	channel->process = process_now();
	pthread_mutex_init(&channel->mutex, NULL);
	list_init(&channel->events);
	if (open_channel(channel, ibv)) {
		free(channel);
		return NULL;
	}
	return &channel->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct dropin_channel *channel = dropin_channel(ibv);
	int rc;

	if (channel->process != process_now())
		return 0;
	if (__atomic_load_n(&ibv->refcnt, __ATOMIC_ACQUIRE))
		return dropin_refuse(EBUSY, "completion queues still use the completion channel");
	rc = frl_comp_channel_destroy(channel->frl);
	if (rc)
		return dropin_errno(rc);
	close(ibv->fd);
	pthread_mutex_destroy(&channel->mutex);
	free(channel);
	return 0;
}

static struct dropin_cq *take_event(struct dropin_channel *channel)
{
	struct dropin_cq *cq = NULL;

	pthread_mutex_lock(&channel->mutex);
	if (!list_empty(&channel->events)) {
		cq = container_of(channel->events.next, struct dropin_cq, event_node);
		list_remove(&cq->event_node);
		cq->reported++;
		if (--cq->events)
			list_add_tail(&channel->events, &cq->event_node);
	}
	pthread_mutex_unlock(&channel->mutex);
	return cq;
}

int ibv_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **ret_cq, void **ret_context)
{
	struct dropin_cq *cq;

	do {
		if (events_wait(ibv->fd))
			return -1;
		cq = take_event(dropin_channel(ibv));
	} while (!cq); /* its queue was destroyed */
	*ret_cq = &cq->ibv;
	*ret_context = cq->ibv.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *ibv, unsigned n)
{
	pthread_mutex_lock(&ibv->mutex);
	ibv->comp_events_completed += n;
	pthread_cond_broadcast(&ibv->cond);
	pthread_mutex_unlock(&ibv->mutex);
}

void channel_forget_cq(struct dropin_cq *cq)
{
	struct dropin_channel *channel;
	uint32_t left;

	if (!cq->ibv.channel)
		return;
	channel = dropin_channel(cq->ibv.channel);
	pthread_mutex_lock(&channel->mutex);
	left = cq->events;
	cq->events = 0;
	list_remove(&cq->event_node);
	pthread_mutex_unlock(&channel->mutex);
	events_take_back(channel->ibv.fd, left);
	await_acknowledged(
		&cq->ibv.mutex, &cq->ibv.cond, &cq->ibv.comp_events_completed, cq->reported);
}
