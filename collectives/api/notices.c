/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/api/notices.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "collectives/api/driver.h"
#include "collectives/api/internal.h"
#include "lib/base/error.h"

void notices_init(struct frl_comm *comm)
{
	struct notices *notices = &comm->notices;

	pthread_mutex_init(&notices->mutex, NULL);
	notices->end = &notices->first;
	atomic_init(&notices->count, 0);
	notices->fd = -1;
}

void notices_close(struct frl_comm *comm)
{
	struct notices *notices = &comm->notices;

	pthread_mutex_lock(&notices->mutex);
	if (notices->fd >= 0)
		close(notices->fd);
	notices->fd = -1;
	pthread_mutex_unlock(&notices->mutex);
}

void notices_free(struct frl_comm *comm)
{
	notices_close(comm);
	while (comm->notices.first)
		free(notices_take(comm));
	pthread_mutex_destroy(&comm->notices.mutex);
}

/* Makes the descriptor readable or not. Cannot fail: the count of the descriptor is 0 or 1. */
static void raise_fd(const struct notices *notices, bool is_raised)
{
	uint64_t count = 1;
	ssize_t n;

	if (notices->fd < 0)
		return;
	n = is_raised ? write(notices->fd, &count, sizeof(count))
		      : read(notices->fd, &count, sizeof(count));
	(void)n;
}

bool notices_are_waiting(const struct frl_comm *comm)
{
	return atomic_load_explicit(&comm->notices.count, memory_order_acquire) > 0;
}

void notices_push(struct frl_comm *comm, struct notice *notice)
{
	struct notices *notices = &comm->notices;

	notice->next = NULL;
	pthread_mutex_lock(&notices->mutex);
	*notices->end = notice;
	notices->end = &notice->next;
	if (atomic_fetch_add(&notices->count, 1) == 0)
		raise_fd(notices, true);
	pthread_mutex_unlock(&notices->mutex);
	driver_wake_for_notice(comm);
}

struct notice *notices_take(struct frl_comm *comm)
{
	struct notices *notices = &comm->notices;
	struct notice *notice;

	if (!notices_are_waiting(comm))
		return NULL;
	pthread_mutex_lock(&notices->mutex);
	notice = notices->first;
	if (notice) {
		notices->first = notice->next;
		if (!notices->first)
			notices->end = &notices->first;
		if (atomic_fetch_sub(&notices->count, 1) == 1)
			raise_fd(notices, false);
	}
	pthread_mutex_unlock(&notices->mutex);
	return notice;
}

/* ---- the public functions */

static struct notice *notice_new(uint64_t id)
{
	struct notice *notice = malloc(sizeof(*notice));

	if (notice)
		*notice = (struct notice){ .id = id };
	else
		frl_fail(-ENOMEM, "no memory for the report of a request");
	return notice;
}

int frl_request_detach(struct frl_request *request, uint64_t id)
{
	struct notice *notice;

	if (!request)
		return frl_fail(-EINVAL, "the request is NULL");
	notice = notice_new(id);
	if (!notice)
		return -ENOMEM;
	request_detach(request, notice);
	return 0;
}

int frl_comm_next_done(struct frl_comm *comm, int timeout_ms, uint64_t *ret_id, int *ret_err)
{
	struct notice *notice;
	int err = 0;

	if (!comm || !ret_id || !ret_err)
		return frl_fail(-EINVAL, "the communicator, ret_id or ret_err is NULL");
	notice = notices_take(comm);
	if (!notice)
		err = comm_wait_for_notice(comm, timeout_ms, &notice);
	if (!notice)
		return err;
	*ret_id = notice->id;
	*ret_err = notice->err;
	if (notice->err)
		comm_error(comm);
	free(notice);
	return 1;
}

int frl_comm_post_done(struct frl_comm *comm, uint64_t id)
{
	struct notice *notice;

	if (!comm)
		return frl_fail(-EINVAL, "the communicator is NULL");
	notice = notice_new(id);
	if (!notice)
		return -ENOMEM;
	notices_push(comm, notice);
	return 0;
}

int frl_comm_fd(struct frl_comm *comm)
{
	struct notices *notices = comm ? &comm->notices : NULL;
	int ret;

	if (!comm || !comm->driver)
		return frl_fail(-EINVAL,
			"the communicator is NULL, or was not created with FRL_PROGRESS_THREAD");
	pthread_mutex_lock(&notices->mutex);
	if (notices->fd < 0) {
		notices->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (notices->first)
			raise_fd(notices, true);
	}
	ret = notices->fd >= 0
		? notices->fd
		: frl_fail(-errno, "cannot make a descriptor for notices: %s", frl_strerror(errno));
	pthread_mutex_unlock(&notices->mutex);
	return ret;
}
