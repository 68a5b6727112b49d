/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/api/siblings.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "collectives/api/driver.h"
#include "collectives/api/internal.h"
#include "collectives/communicator/rail_health.h"
#include "collectives/communicator/thread.h"
#include "collectives/net/channel.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	/* Help siblings only after a pause, to keep the latency of awaited messages low. */
	HELP_AFTER = 64, /* rounds without events */
	HELP_EVERY_US = 100,
	HELP_BUSY = 4096, /* rounds of a communicator that always has events */

	LEAVING_MAX = 16, /* communicators being destroyed before the next one waits for them */
	LINGER_LOSSLESS_MS = 1,
	LINGER_LOSSY_MS = 150, /* two local ACK timeouts of the default code, 14 */
	DRAIN_FACTOR = 4,      /* factor of the drain timeout with several rails */

	ABSENT_MS = 100, /* a caller that returns within this time handles the mail */
	RECOVER_EVERY_MS = 1,
	/* after the last mail; the other rank repeats its mail while it waits */
	RECOVER_MS = 10 * 1000,

};

struct siblings {
	pthread_mutex_t mutex;  /* protects all that follows, and the ring */
	struct frl_comm *next;  /* the next communicator to help */
	_Atomic unsigned count; /* communicators in the ring */
	unsigned leaving;       /* of them, communicators being destroyed */
	unsigned users;         /* communicators that have not been destroyed */
	bool is_recovering;     /* the recovery thread is running */
	bool has_mail;          /* mail has arrived since the recovery thread checked */
	bool is_ending;         /* the last communicator is being destroyed */
	struct rail_health *rail_health;
};

/* ---- entering and leaving */

static bool try_enter(struct frl_comm *comm)
{
	return !atomic_exchange_explicit(&comm->sibling.is_used, true, memory_order_acquire);
}

static void wait_for_helper(struct frl_comm *comm)
{
	struct frl_backoff backoff = { 0 };

	/* A helping thread leaves soon. */
	while (!try_enter(comm))
		frl_backoff_idle(&backoff);
}

/* Ends what try_enter() began. */
static void leave(struct frl_comm *comm)
{
	atomic_store_explicit(&comm->sibling.is_used, false, memory_order_release);
}

void comm_enter(struct frl_comm *comm)
{
	if (comm->driver)
		driver_enter(comm);
	wait_for_helper(comm);
}

void comm_enter_last(struct frl_comm *comm)
{
	driver_enter_last(comm);
	wait_for_helper(comm);
}

void comm_leave(struct frl_comm *comm)
{
	if (!comm->driver) {
		leave(comm);
		return;
	}
	driver_settle(comm);
	leave(comm);
	driver_leave(comm);
}

/* ---- the recovery thread */

static struct frl_comm *enter_next(struct siblings *siblings);
static int step(struct frl_comm *comm);

/* Used by an entry of the table. */
static bool has_to_connect(const struct frl_comm *comm)
{
	return !comm->error && (comm->connecting || inbox_is_waiting(&comm->inbox));
}

/* Makes progress once on all communicators that are not in use. Returns whether one of them must
 * connect. */
static bool recover_once(struct siblings *siblings)
{
	unsigned count = atomic_load_explicit(&siblings->count, memory_order_relaxed);
	bool has_to = false;

	for (unsigned i = 0; i < count; i++) {
		struct frl_comm *comm = enter_next(siblings);

		if (!comm)
			break;
		if (has_to_connect(comm)) {
			has_to = true;
			step(comm);
		} else {
			leave(comm);
		}
	}
	return has_to;
}

static void short_sleep(void)
{
	const struct timespec pause = { .tv_nsec = (long)RECOVER_EVERY_MS * NS_PER_MS };

	nanosleep(&pause, NULL);
}

/* Sleeps for a moment. Returns false, at once, at `end_ns` or if the siblings end. */
static bool pause_until(struct siblings *siblings, uint64_t end_ns)
{
	bool is_over;

	pthread_mutex_lock(&siblings->mutex);
	is_over = siblings->is_ending || clock_now_ns() >= end_ns;
	pthread_mutex_unlock(&siblings->mutex);
	if (!is_over)
		short_sleep();
	return !is_over;
}

/* Returns false if there is more to do. After true, the thread must not access the siblings any
 * more. */
static bool may_end(struct siblings *siblings)
{
	bool is_over;

	pthread_mutex_lock(&siblings->mutex);
	is_over = siblings->is_ending || !siblings->has_mail;
	siblings->has_mail = false;
	siblings->is_recovering = !is_over;
	pthread_mutex_unlock(&siblings->mutex);
	return is_over;
}

static void recover(void *arg)
{
	struct siblings *siblings = arg;

	do {
		uint64_t now_ns = clock_now_ns();

		while (pause_until(siblings, now_ns + (uint64_t)ABSENT_MS * NS_PER_MS))
			;
		while (recover_once(siblings) &&
			pause_until(siblings, now_ns + (uint64_t)RECOVER_MS * NS_PER_MS))
			;
	} while (!may_end(siblings));
}

/* Called after each MAIL_CONNECT. */
static void on_connect(void *arg)
{
	struct frl_comm *comm = arg;
	struct siblings *siblings = comm->sibling.siblings;

	/* The thread that uses the communicator sees the mail. If that thread is just leaving,
	 * the repeated mail starts recovery. */
	if (atomic_load_explicit(&comm->sibling.is_used, memory_order_relaxed))
		return;
	pthread_mutex_lock(&siblings->mutex);
	siblings->has_mail = siblings->is_recovering;
	if (!siblings->is_recovering && !siblings->is_ending)
		siblings->is_recovering = comm_thread_start(recover, siblings) == 0;
	pthread_mutex_unlock(&siblings->mutex);
}

/* Recovery needs another rail, and devices that make progress without calls: otherwise rails of
 * healthy peers would time out one by one. */
static void watch_mail(struct frl_comm *comm)
{
	bool progresses = comm->n_rails > 1;

	for (unsigned i = 0; i < comm->n_rails; i++)
		progresses = progresses && comm->rails[i].attr.progresses;
	if (progresses)
		mailbox_watch(comm->mailbox, &comm->inbox, on_connect, comm);
}

/* ---- the ring */

int siblings_create(struct frl_comm *comm)
{
	struct siblings *siblings = calloc(1, sizeof(*siblings));

	if (siblings)
		siblings->rail_health = rail_health_new(comm->ranks);
	if (!siblings || !siblings->rail_health) {
		free(siblings);
		return frl_fail(-ENOMEM, "no memory for a communicator");
	}
	pthread_mutex_init(&siblings->mutex, NULL);
	siblings->next = comm;
	siblings->users = 1;
	atomic_init(&siblings->count, 1);
	comm->rail_health = siblings->rail_health;
	comm->sibling.siblings = siblings;
	comm->sibling.next = comm;
	watch_mail(comm);
	return 0;
}

void siblings_join(struct frl_comm *comm, const struct frl_comm *parent)
{
	struct siblings *siblings = parent->sibling.siblings;

	pthread_mutex_lock(&siblings->mutex);
	comm->rail_health = siblings->rail_health;
	comm->sibling.siblings = siblings;
	comm->sibling.next = siblings->next->sibling.next;
	siblings->next->sibling.next = comm;
	siblings->users++;
	atomic_fetch_add_explicit(&siblings->count, 1, memory_order_relaxed);
	pthread_mutex_unlock(&siblings->mutex);
	watch_mail(comm);
}

/* Removes and frees a communicator that the calling thread has entered. */
static void remove_sibling(struct frl_comm *comm)
{
	struct siblings *siblings = comm->sibling.siblings;
	struct frl_comm *before = comm;

	pthread_mutex_lock(&siblings->mutex);
	while (before->sibling.next != comm)
		before = before->sibling.next;
	before->sibling.next = comm->sibling.next;
	siblings->next = before == comm ? NULL : before;
	siblings->leaving -= comm->sibling.is_leaving;
	atomic_fetch_sub_explicit(&siblings->count, 1, memory_order_relaxed);
	pthread_mutex_unlock(&siblings->mutex);
	comm_free(comm);
}

/* Enters the next communicator that is not in use. Returns NULL if there is none. */
static struct frl_comm *enter_next(struct siblings *siblings)
{
	unsigned count = atomic_load_explicit(&siblings->count, memory_order_relaxed);
	struct frl_comm *comm = NULL;

	pthread_mutex_lock(&siblings->mutex);
	for (unsigned i = 0; i < count && !comm && siblings->next; i++) {
		if (try_enter(siblings->next))
			comm = siblings->next;
		siblings->next = siblings->next->sibling.next;
	}
	pthread_mutex_unlock(&siblings->mutex);
	return comm;
}

/* ---- destroying */

/* Returns whether everything sent while draining is acknowledged; all of it was signaled. */
static bool is_acknowledged(const struct frl_comm *comm)
{
	for (const struct peer *peer = comm->first_peer; peer; peer = peer->next) {
		for (unsigned rail = 0; rail < comm->n_rails; rail++) {
			const struct channel *channel = peer->channels[rail];

			if (channel &&
				(int32_t)(channel->eager_signaled - channel->eager_acked) > 0)
				return false;
		}
	}
	return true;
}

static uint64_t linger_ns(const struct frl_comm *comm)
{
	uint64_t ms = LINGER_LOSSLESS_MS;

	for (unsigned i = 0; i < comm->n_rails; i++) {
		if (!comm->rails[i].attr.lossless)
			ms = LINGER_LOSSY_MS;
	}
	return ms * NS_PER_MS;
}

/*
 * Begins the destruction with a barrier, so that a rank leaves only when no other rank needs it. A
 * rank drains when its requests are complete. After the barrier, other ranks can wait only for
 * messages of the barrier itself, which this rank sees acknowledged, or for acknowledgements. This
 * rank lingers to answer retransmissions. If its acknowledgements are still lost, the drain of the
 * other rank fails, which its caller does not see.
 */
static bool begin_leaving(struct frl_comm *comm)
{
	const struct frl_collective barrier = { .coll = FRL_BARRIER };

	if (comm->error || comm->ranks == 1)
		return false;
	comm->draining = true;
	return request_start(comm, &barrier, 1, &comm->sibling.barrier) == 0;
}

/* Makes progress on a communicator being destroyed. Returns whether it can be freed. */
static bool has_left(struct frl_comm *comm, int *ret_events)
{
	struct sibling *sibling = &comm->sibling;
	uint64_t now_ns;
	bool done = false;

	*ret_events = comm_progress(comm);
	if (*ret_events < 0)
		return true;
	now_ns = clock_now_ns();
	if (sibling->barrier) {
		request_conclude(sibling->barrier, &done);
		if (!done)
			return false;
		sibling->barrier = NULL;
		sibling->end_ns = now_ns + linger_ns(comm);
	}
	return now_ns >= sibling->end_ns && is_acknowledged(comm);
}

/* Makes progress once on a communicator that was entered, and leaves it. */
static int step(struct frl_comm *comm)
{
	int events;

	if (comm->error && !comm->sibling.is_leaving) {
		events = 0; /* the next call returns the error */
	} else if (!comm->sibling.is_leaving) {
		events = comm_progress(comm);
		comm_flush(comm);
	} else if (has_left(comm, &events)) {
		remove_sibling(comm);
		return 1;
	}
	leave(comm);
	return events > 0 ? events : 0;
}

static uint64_t drain_ns(const struct frl_comm *comm)
{
	/* A rail that fails may lose messages of this rank, and detecting that takes seconds. */
	uint64_t factor = comm->n_rails > 1 ? DRAIN_FACTOR : 1;

	return factor * (uint64_t)comm->config.drain_timeout_ms * NS_PER_MS;
}

/* Makes progress until at most `most` communicators are being destroyed, or until `deadline_ns`. */
static void wait_leaving(struct siblings *siblings, unsigned most, uint64_t deadline_ns)
{
	struct frl_backoff backoff = { 0 };
	unsigned leaving;

	frl_backoff_reset(&backoff);
	do {
		struct frl_comm *comm = enter_next(siblings);
		int events = comm ? step(comm) : 0;

		if (events > 0)
			frl_backoff_reset(&backoff);
		else
			frl_backoff_idle(&backoff);
		pthread_mutex_lock(&siblings->mutex);
		leaving = siblings->leaving;
		pthread_mutex_unlock(&siblings->mutex);
	} while (leaving > most && clock_now_ns() < deadline_ns);
}

static void end_recovery(struct siblings *siblings)
{
	bool is_recovering;

	do {
		pthread_mutex_lock(&siblings->mutex);
		siblings->is_ending = true;
		is_recovering = siblings->is_recovering;
		pthread_mutex_unlock(&siblings->mutex);
		if (is_recovering)
			short_sleep();
	} while (is_recovering);
}

/* Ends the siblings. No other thread uses any of them. */
static void siblings_end(struct siblings *siblings, uint64_t deadline_ns)
{
	if (siblings->leaving > 0)
		wait_leaving(siblings, 0, deadline_ns);
	end_recovery(siblings);
	while (siblings->next)
		remove_sibling(siblings->next);
	pthread_mutex_destroy(&siblings->mutex);
	rail_health_free(siblings->rail_health);
	free(siblings);
}

void siblings_leave(struct frl_comm *comm)
{
	struct siblings *siblings = comm->sibling.siblings;
	/* Needed even if this communicator has failed: others that are being destroyed may be
	 * healthy. */
	uint64_t deadline_ns = clock_now_ns() + drain_ns(comm);
	unsigned leaving;
	bool is_last;

	if (begin_leaving(comm)) {
		comm_flush(comm);
		pthread_mutex_lock(&siblings->mutex);
		comm->sibling.is_leaving = true;
		leaving = ++siblings->leaving;
		pthread_mutex_unlock(&siblings->mutex);
		leave(comm);
		if (leaving > LEAVING_MAX)
			wait_leaving(siblings, LEAVING_MAX, deadline_ns);
	} else {
		remove_sibling(comm);
	}
	pthread_mutex_lock(&siblings->mutex);
	is_last = --siblings->users == 0;
	pthread_mutex_unlock(&siblings->mutex);
	if (is_last)
		siblings_end(siblings, deadline_ns);
}

/* ---- helping */

static bool may_help(struct frl_comm *comm)
{
	struct sibling *sibling = &comm->sibling;
	uint64_t now_ns;

	if (atomic_load_explicit(&sibling->siblings->count, memory_order_relaxed) == 1)
		return false;
	if (sibling->quiet_rounds == 0)
		return ++sibling->rounds % HELP_BUSY == 0;
	if (sibling->quiet_rounds >= HELP_AFTER)
		return true;
	now_ns = clock_now_ns();
	if (now_ns - sibling->helped_ns < (uint64_t)HELP_EVERY_US * 1000)
		return false;
	sibling->helped_ns = now_ns;
	return true;
}

int comm_round(struct frl_comm *comm)
{
	int events = comm_progress(comm);
	struct frl_comm *sibling;

	if (events < 0 || !may_help(comm))
		return events;
	sibling = enter_next(comm->sibling.siblings);
	return sibling ? events + step(sibling) : events;
}
