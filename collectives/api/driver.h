/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver of a communicator with FRL_PROGRESS_THREAD. It lets several threads use the
 * communicator, and makes progress while none of them waits.
 *
 * Each thread in a call holds the guard, and inside it the flag by which siblings help
 * (siblings.h). One thread at a time makes progress: the leader, a caller that waits, or else the
 * driver's own thread. The leader releases the guard between two rounds, except while it spins and
 * no other thread wants the guard. Other callers that wait sleep. A caller takes over from the
 * driver's thread at once, so that no thread must be woken when its request completes.
 *
 * No wake-up is lost:
 * - A waiter is in the list before it checks what is not protected by the flag: notices, and mail.
 *   A notice and an abort are visible before the list is searched for waiters.
 * - All else changes under the flag: a request completes, or the communicator fails. Threads that
 *   help a sibling hold only its flag, and wake its waiters as well.
 * - A thread that leaves the communicator checks that pending requests have a leader: itself, a
 *   waiter that is awake, or the driver's thread (driver_settle()).
 */
#ifndef FERRULE_COLLECTIVES_API_DRIVER_H
#define FERRULE_COLLECTIVES_API_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/list.h"

struct frl_backoff;
struct frl_comm;
struct frl_request;
struct notice;

/* A thread that waits in a call. */
struct waiter {
	struct frl_comm *comm;
	struct frl_request *request; /* what it waits for; NULL: a notice */
	struct notice *notice;       /* the notice that it has taken, or NULL */
	/* While it sleeps; protected by the driver's mutex: */
	struct list node;
	pthread_cond_t changed;
	bool is_woken;
};

/* Starts the thread of a communicator, which sleeps until it is needed. Fails with -ENOMEM or
 * -EAGAIN. */
int driver_create(struct frl_comm *comm);
/* Ends the thread. No other thread is in a call. Nothing happens without a driver. */
void driver_stop(struct frl_comm *comm);
/* Ends the thread, and the driver. The guard is free, and no thread helps: the flag is held, or no
 * sibling knows the communicator. */
void driver_free(struct frl_comm *comm);

/* For comm_enter() and comm_leave(). */
void driver_enter(struct frl_comm *comm);
/* Lets threads in driver_enter() go first. */
void driver_enter_last(struct frl_comm *comm);
void driver_leave(struct frl_comm *comm);
/* Ensures that pending requests have a leader. The flag is held. */
void driver_settle(struct frl_comm *comm);

/* Returns whether the waiter may make progress, as the leader: no other caller does. */
bool driver_lead(struct waiter *waiter);
/* Ends that. */
void driver_follow(struct waiter *waiter);

/* Leaves the communicator and sleeps until the waiter is woken, or until `end_ns`; then enters it
 * again. */
void driver_sleep(struct waiter *waiter, uint64_t end_ns);

/* Waits between two rounds of progress, of which the last had `events`. The communicator may be
 * left meanwhile. */
void comm_pause(struct frl_comm *comm, struct frl_backoff *backoff, int events);

/* Wakes a waiter. */
void driver_wake(struct waiter *waiter);
/* Any thread: wakes one thread that waits for a notice, or all waiters. Nothing happens without a
 * driver. */
void driver_wake_for_notice(struct frl_comm *comm);
void driver_wake_all(struct frl_comm *comm);

#endif
