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
	/* Who waits for an answer that is on its way is not to be held up by siblings. */
	HELP_AFTER = 64, /* quiet rounds */
	HELP_EVERY_US = 100,
	HELP_BUSY = 4096, /* rounds of one that is never quiet */

	LEAVING_MAX = 16, /* of a family, before the next one waits for them */
	LINGER_LOSSLESS_MS = 1,
	LINGER_LOSSY_MS = 150, /* two local ACK timeouts of the default code, 14 */
	DRAIN_PATIENCE = 4,    /* times as long with several rails */

	ABSENT_MS = 100, /* a caller who was elsewhere for a moment takes the mail himself */
	RECOVER_EVERY_MS = 1,
	RECOVER_MS = 10 * 1000, /* after the last mail: the other rank sends more while it waits */

	AVOID_MS = 60 * 1000, /* a rail; then it may be there again, and nobody says so */
};

struct family {
	pthread_mutex_t mutex;  /* for all that follows, and the ring */
	struct frl_comm *next;  /* whose turn it is */
	_Atomic unsigned count; /* in the ring */
	unsigned leaving;       /* of them */
	unsigned users;         /* that have not been destroyed */
	bool is_recovering;     /* there is a recovery thread */
	bool has_mail;          /* since it has last looked */
	bool is_ending;         /* nobody is left who could need the family */
	_Atomic uint32_t suspicions[RAILS_MAX];
	/* What follows is out of date some time after this. 0: it is. */
	_Atomic uint64_t suspected_ns[RAILS_MAX];
	_Atomic uint32_t lost[RAILS_MAX]; /* ranks to which a connection over it broke */
	int members;
	_Atomic uint8_t broken[]; /* the same by rank of the bootstrap: rails, as bits */
};

/* ---- who uses it */

static bool try_enter(struct frl_comm *comm)
{
	return !atomic_exchange_explicit(&comm->member.is_used, true, memory_order_acquire);
}

void comm_enter(struct frl_comm *comm)
{
	struct frl_backoff backoff = { 0 };

	/* Somebody is helping, which takes a moment. */
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

/* For an entry of the table. */
static bool has_to_connect(const struct frl_comm *comm)
{
	return !comm->error && (comm->connecting || post_is_waiting(&comm->post));
}

/* A round of all that nobody uses. Returns whether one of them has to connect. */
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

/* Sleeps for a moment. Returns false, at once, if the family ends, or at that time. */
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

/* Returns false if there is more to do. If not, the thread must not touch the family any more. */
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

/* Mail about a connection has come. */
static void on_connect(void *arg)
{
	struct frl_comm *comm = arg;
	struct family *family = comm->member.family;

	/* Its caller sees the mail; if he is about to leave, the next mail finds him gone. */
	if (atomic_load_explicit(&comm->member.is_used, memory_order_relaxed))
		return;
	pthread_mutex_lock(&family->mutex);
	family->has_mail = family->is_recovering;
	if (!family->is_recovering && !family->is_ending)
		family->is_recovering = comm_thread_start(recover, family) == 0;
	pthread_mutex_unlock(&family->mutex);
}

/* With one rail there is nothing to go on over; and peers whose packets nobody acknowledges would
 * lose one rail after the other. */
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

/* Takes one out that the calling thread has entered, and frees it. */
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

/* One that nobody uses, entered; each in its turn. NULL: there is none. */
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

/* ---- rails that are suspected; several threads at once may lose one suspicion, no more */

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

/* If two ranks were lost over it, it is this rank's end that is dead. */
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

/* ---- leaving */

/* What was sent while draining is acknowledged: all of it was signaled. */
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
 * Leaves only when no other rank can need us any more. A rank drains when its requests are
 * complete, so after this barrier nobody waits for a message of ours but perhaps for the barrier's
 * own, which we see acknowledged, or for acknowledgements. For these we linger, answering what is
 * sent again; if they still get lost, the other's drain fails, which is no failure to its caller.
 */
static bool begin_leaving(struct frl_comm *comm)
{
	const struct frl_collective barrier = { .coll = FRL_BARRIER };

	if (comm->error || comm->ranks == 1)
		return false;
	comm->draining = true;
	return request_start(comm, &barrier, 1, &comm->member.barrier) == 0;
}

/* A round of one that is leaving: is nothing left to do? */
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

/* A round of one that was entered, which it is not any more afterwards. */
static int step(struct frl_comm *comm)
{
	int events;

	if (comm->error && !comm->member.is_leaving) {
		events = 0; /* its caller is told when he comes */
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
	/* What this rank sent may be lost with a rail: that takes seconds to be found out. */
	uint64_t patience = comm->n_rails > 1 ? DRAIN_PATIENCE : 1;

	return patience * (uint64_t)comm->config.drain_timeout_ms * NS_PER_MS;
}

/* Looks after those that are leaving until no more than `most` are left, or `deadline_ns`. */
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

/* Nobody else uses any of the family. */
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
	/* Also when this one has failed: those that are leaving may be well. */
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
