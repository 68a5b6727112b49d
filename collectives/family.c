/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/family.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "collectives/communicator.h"
#include "collectives/thread.h"
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
	DRAIN_PATIENCE = 4,    /* factor of the drain timeout with several rails */

	ABSENT_MS = 100, /* a caller that returns within this time handles the mail */
	RECOVER_EVERY_MS = 1,
	/* after the last mail; the other rank repeats its mail while it waits */
	RECOVER_MS = 10 * 1000,

	AVOID_MS = 60 * 1000, /* time to avoid a suspected rail; its recovery may not be reported */
};

struct family {
	pthread_mutex_t mutex;  /* protects all that follows, and the ring */
	struct frl_comm *next;  /* the next communicator to help */
	_Atomic unsigned count; /* communicators in the ring */
	unsigned leaving;       /* of them, communicators being destroyed */
	unsigned users;         /* communicators that have not been destroyed */
	bool is_recovering;     /* the recovery thread is running */
	bool has_mail;          /* mail has arrived since the recovery thread checked */
	bool is_ending;         /* the last communicator is being destroyed */
	_Atomic uint32_t suspicions[RAILS_MAX];
	/* The suspicions below expire after AVOID_MS. 0: expired. */
	_Atomic uint64_t suspected_ns[RAILS_MAX];
	_Atomic uint32_t lost[RAILS_MAX]; /* ranks to which a connection over the rail broke */
	int members;
	_Atomic uint8_t broken[]; /* the same by rank of the bootstrap: bit i for rail i */
};

/* ---- entering and leaving */

static bool try_enter(struct frl_comm *comm)
{
	return !atomic_exchange_explicit(&comm->member.is_used, true, memory_order_acquire);
}

void comm_enter(struct frl_comm *comm)
{
	struct frl_backoff backoff = { 0 };

	/* A helping thread leaves soon. */
	while (!try_enter(comm))
		frl_backoff_idle(&backoff);
}

void comm_leave(struct frl_comm *comm)
{
	atomic_store_explicit(&comm->member.is_used, false, memory_order_release);
}

/* ---- the recovery thread */

static struct frl_comm *enter_next(struct family *family);
static int step(struct frl_comm *comm);

/* Used by an entry of the table. */
static bool has_to_connect(const struct frl_comm *comm)
{
	return !comm->error && (comm->connecting || post_is_waiting(&comm->post));
}

/* Makes progress once on all communicators that are not in use. Returns whether one of them must
 * connect. */
static bool recover_once(struct family *family)
{
	unsigned count = atomic_load_explicit(&family->count, memory_order_relaxed);
	bool has_to = false;

	for (unsigned i = 0; i < count; i++) {
		struct frl_comm *comm = enter_next(family);

		if (!comm)
			break;
		if (has_to_connect(comm)) {
			has_to = true;
			step(comm);
		} else {
			comm_leave(comm);
		}
	}
	return has_to;
}

static void nap(void)
{
	const struct timespec pause = { .tv_nsec = (long)RECOVER_EVERY_MS * NS_PER_MS };

	nanosleep(&pause, NULL);
}

/* Sleeps for a moment. Returns false, at once, at `end_ns` or if the siblings end. */
static bool pause_until(struct family *family, uint64_t end_ns)
{
	bool is_over;

	pthread_mutex_lock(&family->mutex);
	is_over = family->is_ending || clock_now_ns() >= end_ns;
	pthread_mutex_unlock(&family->mutex);
	if (!is_over)
		nap();
	return !is_over;
}

/* Returns false if there is more to do. After true, the thread must not access the family any
 * more. */
static bool may_end(struct family *family)
{
	bool is_over;

	pthread_mutex_lock(&family->mutex);
	is_over = family->is_ending || !family->has_mail;
	family->has_mail = false;
	family->is_recovering = !is_over;
	pthread_mutex_unlock(&family->mutex);
	return is_over;
}

static void recover(void *arg)
{
	struct family *family = arg;

	do {
		uint64_t now_ns = clock_now_ns();

		while (pause_until(family, now_ns + (uint64_t)ABSENT_MS * NS_PER_MS))
			;
		while (recover_once(family) &&
			pause_until(family, now_ns + (uint64_t)RECOVER_MS * NS_PER_MS))
			;
	} while (!may_end(family));
}

/* Called after each MAIL_CONNECT. */
static void on_connect(void *arg)
{
	struct frl_comm *comm = arg;
	struct family *family = comm->member.family;

	/* The thread that uses the communicator sees the mail. If that thread is just leaving,
	 * the repeated mail starts recovery. */
	if (atomic_load_explicit(&comm->member.is_used, memory_order_relaxed))
		return;
	pthread_mutex_lock(&family->mutex);
	family->has_mail = family->is_recovering;
	if (!family->is_recovering && !family->is_ending)
		family->is_recovering = comm_thread_start(recover, family) == 0;
	pthread_mutex_unlock(&family->mutex);
}

/* Recovery needs another rail, and devices that make progress without calls: otherwise rails of
 * healthy peers would time out one by one. */
static void watch_mail(struct frl_comm *comm)
{
	bool progresses = comm->n_rails > 1;

	for (unsigned i = 0; i < comm->n_rails; i++)
		progresses = progresses && comm->rails[i].attr.progresses;
	if (progresses)
		board_watch(comm->board, &comm->post, on_connect, comm);
}

/* ---- the ring */

int family_create(struct frl_comm *comm)
{
	struct family *family = calloc(1, sizeof(*family) + (size_t)comm->ranks);

	if (!family)
		return frl_fail(-ENOMEM, "no memory for a communicator");
	pthread_mutex_init(&family->mutex, NULL);
	family->next = comm;
	family->users = 1;
	family->members = comm->ranks;
	atomic_init(&family->count, 1);
	comm->member.family = family;
	comm->member.next = comm;
	watch_mail(comm);
	return 0;
}

void family_join(struct frl_comm *comm, const struct frl_comm *parent)
{
	struct family *family = parent->member.family;

	pthread_mutex_lock(&family->mutex);
	comm->member.family = family;
	comm->member.next = family->next->member.next;
	family->next->member.next = comm;
	family->users++;
	atomic_fetch_add_explicit(&family->count, 1, memory_order_relaxed);
	pthread_mutex_unlock(&family->mutex);
	watch_mail(comm);
}

/* Removes and frees a communicator that the calling thread has entered. */
static void remove_member(struct frl_comm *comm)
{
	struct family *family = comm->member.family;
	struct frl_comm *before = comm;

	pthread_mutex_lock(&family->mutex);
	while (before->member.next != comm)
		before = before->member.next;
	before->member.next = comm->member.next;
	family->next = before == comm ? NULL : before;
	family->leaving -= comm->member.is_leaving;
	atomic_fetch_sub_explicit(&family->count, 1, memory_order_relaxed);
	pthread_mutex_unlock(&family->mutex);
	comm_free(comm);
}

/* Enters the next communicator that is not in use. Returns NULL if there is none. */
static struct frl_comm *enter_next(struct family *family)
{
	unsigned count = atomic_load_explicit(&family->count, memory_order_relaxed);
	struct frl_comm *comm = NULL;

	pthread_mutex_lock(&family->mutex);
	for (unsigned i = 0; i < count && !comm && family->next; i++) {
		if (try_enter(family->next))
			comm = family->next;
		family->next = family->next->member.next;
	}
	pthread_mutex_unlock(&family->mutex);
	return comm;
}

/* ---- rail health; concurrent updates may lose at most one suspicion */

static bool is_out_of_date(const struct family *family, unsigned rail)
{
	uint64_t since_ns = atomic_load_explicit(&family->suspected_ns[rail], memory_order_relaxed);

	return since_ns == 0 || clock_now_ns() - since_ns > (uint64_t)AVOID_MS * NS_PER_MS;
}

static void trust(struct family *family, unsigned rail, int member)
{
	uint8_t bit = (uint8_t)(1 << rail);

	if (atomic_fetch_and_explicit(
		    &family->broken[member], (uint8_t)~bit, memory_order_relaxed) &
		bit)
		atomic_fetch_sub_explicit(&family->lost[rail], 1, memory_order_relaxed);
}

void family_suspect(struct frl_comm *comm, unsigned rail, int rank)
{
	struct family *family = comm->member.family;
	_Atomic uint8_t *broken = &family->broken[comm_member(comm, rank)];
	uint8_t bit = (uint8_t)(1 << rail);

	for (int member = 0; is_out_of_date(family, rail) && member < family->members; member++)
		trust(family, rail, member);
	atomic_store_explicit(&family->suspected_ns[rail], clock_now_ns(), memory_order_relaxed);
	if (!(atomic_fetch_or_explicit(broken, bit, memory_order_relaxed) & bit))
		atomic_fetch_add_explicit(&family->lost[rail], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&family->suspicions[rail], 1, memory_order_relaxed);
}

void family_trust(struct frl_comm *comm, unsigned rail, int rank)
{
	trust(comm->member.family, rail, comm_member(comm, rank));
}

void family_forgive(struct frl_comm *comm, unsigned rail)
{
	atomic_store_explicit(&comm->member.family->suspected_ns[rail], 0, memory_order_relaxed);
}

/* If connections to two ranks broke, this rank's end of the rail is broken. */
bool family_avoids(const struct frl_comm *comm, unsigned rail, int rank)
{
	struct family *family = comm->member.family;
	int member = comm_member(comm, rank);

	if (is_out_of_date(family, rail))
		return false;
	return atomic_load_explicit(&family->lost[rail], memory_order_relaxed) > 1 ||
		(atomic_load_explicit(&family->broken[member], memory_order_relaxed) >> rail & 1);
}

uint32_t family_suspicions(const struct frl_comm *comm, unsigned rail)
{
	return atomic_load_explicit(&comm->member.family->suspicions[rail], memory_order_relaxed);
}

/* ---- destroying */

/* Returns whether everything sent while draining is acknowledged; all of it was signaled. */
static bool is_quiet(const struct frl_comm *comm)
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
	return request_start(comm, &barrier, 1, &comm->member.barrier) == 0;
}

/* Makes progress on a communicator being destroyed. Returns whether it can be freed. */
static bool has_left(struct frl_comm *comm, int *ret_events)
{
	struct member *member = &comm->member;
	uint64_t now_ns;
	bool done = false;

	*ret_events = comm_progress(comm);
	if (*ret_events < 0)
		return true;
	now_ns = clock_now_ns();
	if (member->barrier) {
		request_conclude(member->barrier, &done);
		if (!done)
			return false;
		member->barrier = NULL;
		member->end_ns = now_ns + linger_ns(comm);
	}
	return now_ns >= member->end_ns && is_quiet(comm);
}

/* Makes progress once on a communicator that was entered, and leaves it. */
static int step(struct frl_comm *comm)
{
	int events;

	if (comm->error && !comm->member.is_leaving) {
		events = 0; /* the next call returns the error */
	} else if (!comm->member.is_leaving) {
		events = comm_progress(comm);
		comm_flush(comm);
	} else if (has_left(comm, &events)) {
		remove_member(comm);
		return 1;
	}
	comm_leave(comm);
	return events > 0 ? events : 0;
}

static uint64_t drain_ns(const struct frl_comm *comm)
{
	/* A rail that fails may lose messages of this rank, and detecting that takes seconds. */
	uint64_t patience = comm->n_rails > 1 ? DRAIN_PATIENCE : 1;

	return patience * (uint64_t)comm->config.drain_timeout_ms * NS_PER_MS;
}

/* Makes progress until at most `most` communicators are being destroyed, or until `deadline_ns`. */
static void wait_leaving(struct family *family, unsigned most, uint64_t deadline_ns)
{
	struct frl_backoff backoff = { 0 };
	unsigned leaving;

	frl_backoff_reset(&backoff);
	do {
		struct frl_comm *comm = enter_next(family);
		int events = comm ? step(comm) : 0;

		if (events > 0)
			frl_backoff_reset(&backoff);
		else
			frl_backoff_idle(&backoff);
		pthread_mutex_lock(&family->mutex);
		leaving = family->leaving;
		pthread_mutex_unlock(&family->mutex);
	} while (leaving > most && clock_now_ns() < deadline_ns);
}

static void end_recovery(struct family *family)
{
	bool is_recovering;

	do {
		pthread_mutex_lock(&family->mutex);
		family->is_ending = true;
		is_recovering = family->is_recovering;
		pthread_mutex_unlock(&family->mutex);
		if (is_recovering)
			nap();
	} while (is_recovering);
}

/* Ends the siblings. No other thread uses any of them. */
static void family_end(struct family *family, uint64_t deadline_ns)
{
	if (family->leaving > 0)
		wait_leaving(family, 0, deadline_ns);
	end_recovery(family);
	while (family->next)
		remove_member(family->next);
	pthread_mutex_destroy(&family->mutex);
	free(family);
}

void family_leave(struct frl_comm *comm)
{
	struct family *family = comm->member.family;
	/* Needed even if this communicator has failed: others that are being destroyed may be
	 * healthy. */
	uint64_t deadline_ns = clock_now_ns() + drain_ns(comm);
	unsigned leaving;
	bool is_last;

	if (begin_leaving(comm)) {
		comm_flush(comm);
		pthread_mutex_lock(&family->mutex);
		comm->member.is_leaving = true;
		leaving = ++family->leaving;
		pthread_mutex_unlock(&family->mutex);
		comm_leave(comm);
		if (leaving > LEAVING_MAX)
			wait_leaving(family, LEAVING_MAX, deadline_ns);
	} else {
		remove_member(comm);
	}
	pthread_mutex_lock(&family->mutex);
	is_last = --family->users == 0;
	pthread_mutex_unlock(&family->mutex);
	if (is_last)
		family_end(family, deadline_ns);
}

/* ---- helping */

static bool may_help(struct frl_comm *comm)
{
	struct member *member = &comm->member;
	uint64_t now_ns;

	if (atomic_load_explicit(&member->family->count, memory_order_relaxed) == 1)
		return false;
	if (member->quiet_rounds == 0)
		return ++member->rounds % HELP_BUSY == 0;
	if (member->quiet_rounds >= HELP_AFTER)
		return true;
	now_ns = clock_now_ns();
	if (now_ns - member->helped_ns < (uint64_t)HELP_EVERY_US * 1000)
		return false;
	member->helped_ns = now_ns;
	return true;
}

int comm_round(struct frl_comm *comm)
{
	int events = comm_progress(comm);
	struct frl_comm *sibling;

	if (events < 0 || !may_help(comm))
		return events;
	sibling = enter_next(comm->member.family);
	return sibling ? events + step(sibling) : events;
}
