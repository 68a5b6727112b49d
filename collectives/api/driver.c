/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/api/driver.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "collectives/api/internal.h"
#include "collectives/api/naps.h"
#include "collectives/api/notices.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/process/backoff.h"
#include "lib/base/process/condition.h"
#include "lib/base/process/guard.h"
#include "lib/base/process/thread.h"

enum rest { AWAKE, NAPPING, SLEEPING };

struct driver {
	struct guard guard;
	/* Set with the guard held: */
	struct waiter *leader;  /* the caller that makes progress, or NULL */
	_Atomic enum need need; /* for the thread; NO_NEED as long as a caller leads */
	atomic_uint oldest;     /* the number of the oldest pending request */
	atomic_uint leads;      /* how often a caller has become the leader */
	atomic_bool is_stopping;
	_Atomic enum rest rest; /* of the thread; set with the mutex held */
	pthread_mutex_t mutex;  /* protects all that follows; taken last */
	struct list waiters;    /* threads that sleep: struct waiter.node */
	pthread_cond_t changed; /* for the thread */
	bool is_woken;          /* the thread, from sleep */
	pthread_t thread;
};

/* ---- waking */

/* The mutex is held. */
static void wake(struct waiter *waiter)
{
	waiter->is_woken = true;
	pthread_cond_signal(&waiter->changed);
}

void driver_wake(struct waiter *waiter)
{
	struct driver *driver = waiter->comm->driver;

	pthread_mutex_lock(&driver->mutex);
	wake(waiter);
	pthread_mutex_unlock(&driver->mutex);
}

void driver_wake_for_notice(struct frl_comm *comm)
{
	struct driver *driver = comm->driver;
	bool is_found = false;

	if (!driver)
		return;
	pthread_mutex_lock(&driver->mutex);
	LIST_EACH(struct waiter, waiter, &driver->waiters, node) {
		if (!is_found && !waiter->request && !waiter->is_woken) {
			is_found = true;
			wake(waiter);
		}
	}
	pthread_mutex_unlock(&driver->mutex);
}

void driver_wake_all(struct frl_comm *comm)
{
	struct driver *driver = comm->driver;

	if (!driver)
		return;
	pthread_mutex_lock(&driver->mutex);
	LIST_EACH(struct waiter, waiter, &driver->waiters, node)
		wake(waiter);
	pthread_mutex_unlock(&driver->mutex);
}

static void wake_thread(struct driver *driver)
{
	pthread_mutex_lock(&driver->mutex);
	driver->is_woken = true;
	pthread_cond_signal(&driver->changed);
	pthread_mutex_unlock(&driver->mutex);
}

/* ---- the leader */

/* Returns whether requests need progress. After a failure, detached ones are still reported. */
static bool has_work(const struct frl_comm *comm)
{
	if (comm->error)
		return comm->detached > 0;
	return comm->active.first || comm->finishing.first;
}

/* Returns the number of the oldest pending request, or 0. */
static uint32_t oldest_of(const struct frl_comm *comm)
{
	const struct frl_request *request = comm->active.first;

	if (!request)
		request = comm->finishing.first;
	return request ? request->number : 0;
}

/* The guard is held. */
static void set_need(struct driver *driver, enum need need)
{
	if (need != atomic_load_explicit(&driver->need, memory_order_relaxed))
		atomic_store(&driver->need, need);
}

static bool may_lead(const struct waiter *waiter)
{
	return waiter->request || waiter->comm->detached > 0;
}

/* Returns whether a waiter will lead, after waking one if none is awake. */
static bool wake_leader(struct driver *driver)
{
	struct waiter *next = NULL;

	if (list_empty(&driver->waiters))
		return false;
	pthread_mutex_lock(&driver->mutex);
	LIST_EACH(struct waiter, waiter, &driver->waiters, node) {
		if (!next && may_lead(waiter))
			next = waiter;
		if (waiter->is_woken)
			next = waiter;
	}
	if (next && !next->is_woken)
		wake(next);
	pthread_mutex_unlock(&driver->mutex);
	return next;
}

void driver_settle(struct frl_comm *comm)
{
	struct driver *driver = comm->driver;
	enum need need = NO_NEED;
	enum rest rest;

	if (comm->error && comm->detached > 0)
		requests_report_failed(comm);
	/* After a failure the leader may leave while a GPU is still busy for the others. */
	if (comm->error && !driver->leader && !list_empty(&driver->waiters))
		driver_wake_all(comm);
	if (!driver->leader && has_work(comm) && !wake_leader(driver))
		need = comm->detached > 0 ? NEEDED_NOW : CALLER_MAY_COME;
	if (need != NO_NEED)
		atomic_store_explicit(&driver->oldest, oldest_of(comm), memory_order_relaxed);
	/* In this order: the thread stores `rest`, then loads `need`. */
	set_need(driver, need);
	if (need == NO_NEED)
		return;
	rest = atomic_load(&driver->rest);
	if (rest == SLEEPING || (rest == NAPPING && need == NEEDED_NOW))
		wake_thread(driver);
}

bool driver_lead(struct waiter *waiter)
{
	struct driver *driver = waiter->comm->driver;

	if (!driver)
		return true;
	if ((driver->leader && driver->leader != waiter) || !may_lead(waiter))
		return false;
	if (!driver->leader) {
		driver->leader = waiter;
		set_need(driver, NO_NEED);
		atomic_fetch_add_explicit(&driver->leads, 1, memory_order_relaxed);
	}
	return true;
}

void driver_follow(struct waiter *waiter)
{
	struct driver *driver = waiter->comm->driver;

	if (driver && driver->leader == waiter)
		driver->leader = NULL;
}

void comm_pause(struct frl_comm *comm, struct frl_backoff *backoff, int events)
{
	bool stays = !comm->driver ||
		((events > 0 || backoff_is_spinning(backoff)) &&
			!guard_is_wanted(&comm->driver->guard));

	if (!stays)
		comm_leave(comm);
	if (events > 0)
		frl_backoff_reset(backoff);
	else
		frl_backoff_idle(backoff);
	if (!stays)
		comm_enter_last(comm);
}

/* ---- sleeping waiters */

/* Returns whether there may be news that are not protected by the flag. A failed communicator takes
 * no mail. */
static bool has_news(const struct waiter *waiter, bool has_failed)
{
	return (!has_failed && inbox_is_waiting(&waiter->comm->inbox)) ||
		(!waiter->request && notices_are_waiting(waiter->comm));
}

void driver_sleep(struct waiter *waiter, uint64_t end_ns)
{
	struct frl_comm *comm = waiter->comm;
	struct driver *driver = comm->driver;
	bool has_failed = comm->error;

	driver_follow(waiter);
	pthread_cond_init(&waiter->changed, NULL);
	waiter->is_woken = false;
	if (waiter->request)
		waiter->request->waiter = waiter;
	pthread_mutex_lock(&driver->mutex);
	list_add_tail(&driver->waiters, &waiter->node);
	pthread_mutex_unlock(&driver->mutex);
	comm_leave(comm);

	pthread_mutex_lock(&driver->mutex);
	if (!has_news(waiter, has_failed)) {
		while (!waiter->is_woken &&
			condition_wait(&waiter->changed, &driver->mutex, end_ns))
			;
	}
	pthread_mutex_unlock(&driver->mutex);

	comm_enter(comm);
	pthread_mutex_lock(&driver->mutex);
	list_remove(&waiter->node);
	pthread_mutex_unlock(&driver->mutex);
	if (waiter->request)
		waiter->request->waiter = NULL;
	pthread_cond_destroy(&waiter->changed);
	if (!comm->error && inbox_is_waiting(&comm->inbox))
		comm_take_mail(comm);
}

/* ---- the thread */

/* Makes progress until no request is pending, or a caller leads. Returns whether it did any. */
static bool drive(struct frl_comm *comm)
{
	struct driver *driver = comm->driver;
	struct frl_backoff backoff;
	bool has_done = false;

	frl_backoff_reset(&backoff);
	comm_enter_last(comm);
	while (has_work(comm) && !driver->leader && !atomic_load(&driver->is_stopping)) {
		int events = comm_round(comm);

		has_done = has_done || events > 0;
		if (comm->error)
			requests_report_failed(comm);
		comm_pause(comm, &backoff, events);
	}
	comm_leave(comm);
	return has_done;
}

/* Returns whether the thread rests on. */
static bool rests_on(const struct driver *driver, bool naps)
{
	enum need need = atomic_load(&driver->need);

	if (atomic_load(&driver->is_stopping))
		return false;
	return naps ? need != NEEDED_NOW : need == NO_NEED && !driver->is_woken;
}

/* Naps, or sleeps until woken. */
static void take_rest(struct driver *driver, uint64_t rest_ns)
{
	bool naps = rest_ns != NAP_SLEEP, is_in_time = true;
	uint64_t end_ns = naps ? clock_now_ns() + rest_ns : WAIT_FOREVER;

	pthread_mutex_lock(&driver->mutex);
	driver->is_woken = false; /* it may have come late: what it was for is in `need` */
	atomic_store(&driver->rest, naps ? NAPPING : SLEEPING);
	while (is_in_time && rests_on(driver, naps))
		is_in_time = condition_wait(&driver->changed, &driver->mutex, end_ns);
	atomic_store(&driver->rest, AWAKE);
	pthread_mutex_unlock(&driver->mutex);
}

static void *run(void *arg)
{
	struct frl_comm *comm = arg;
	struct driver *driver = comm->driver;
	struct naps naps;

	naps_init(&naps);
	while (!atomic_load(&driver->is_stopping)) {
		enum need need = atomic_load(&driver->need);

		if (naps_look(&naps, need, atomic_load(&driver->oldest),
			    atomic_load(&driver->leads))) {
			bool has_done = drive(comm);

			naps_restart(&naps, has_done, atomic_load(&driver->leads));
		} else {
			take_rest(driver, naps_next(&naps));
		}
	}
	return NULL;
}

static void release(struct frl_comm *comm)
{
	struct driver *driver = comm->driver;

	comm->driver = NULL;
	pthread_cond_destroy(&driver->changed);
	pthread_mutex_destroy(&driver->mutex);
	guard_fini(&driver->guard);
	free(driver);
}

int driver_create(struct frl_comm *comm)
{
	struct driver *driver = calloc(1, sizeof(*driver));
	int err;

	if (!driver)
		return frl_fail(-ENOMEM, "no memory for a communicator");
	guard_init(&driver->guard);
	pthread_mutex_init(&driver->mutex, NULL);
	pthread_cond_init(&driver->changed, NULL);
	list_init(&driver->waiters);
	comm->driver = driver;
	err = thread_start(run, comm, 0, &driver->thread);
	if (err) {
		release(comm);
		return frl_fail(
			err, "cannot start a thread for a communicator: %s", frl_strerror(err));
	}
	return 0;
}

void driver_stop(struct frl_comm *comm)
{
	struct driver *driver = comm->driver;

	if (!driver || atomic_exchange(&driver->is_stopping, true))
		return;
	wake_thread(driver);
	pthread_join(driver->thread, NULL);
}

void driver_free(struct frl_comm *comm)
{
	if (!comm->driver)
		return;
	driver_stop(comm);
	release(comm);
}

void driver_enter(struct frl_comm *comm)
{
	guard_enter_first(&comm->driver->guard);
}

void driver_enter_last(struct frl_comm *comm)
{
	guard_enter(&comm->driver->guard);
}

void driver_leave(struct frl_comm *comm)
{
	guard_leave(&comm->driver->guard);
}
