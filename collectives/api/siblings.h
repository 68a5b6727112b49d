/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sibling communicators: a communicator and all that were split from it. They make progress
 * together, so that ranks may wait for them in different orders, and are freed together, so that
 * ranks may destroy them in different orders.
 *
 * A thread that waits on one communicator and finds no events makes progress on its siblings in
 * turn. Each communicator is used by one thread at a time: its caller's or a helping one. A helping
 * thread skips communicators that are in use, and keeps what it completes for the caller.
 *
 * A rank may be needed while its application is elsewhere. Example: it has completed an operation,
 * and a rail fails with its acknowledgements or its last messages. The other rank then mails a
 * request to connect over another rail. A recovery thread makes such connections if no caller
 * handles the mail within a moment. The thread exists only while there is something to connect, and
 * only with devices that make progress without calls.
 *
 * A destroyed communicator is kept until the other ranks have destroyed it as well. Threads that
 * wait on its siblings make progress on it. Destroying the last sibling waits for all of them.
 */
#ifndef FERRULE_COLLECTIVES_API_SIBLINGS_H
#define FERRULE_COLLECTIVES_API_SIBLINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct siblings;
struct frl_comm;
struct frl_request;

/* Creates the state of the siblings for their first communicator. Fails with -ENOMEM. */
int siblings_create(struct frl_comm *comm);
/* Adds a communicator that was split from `parent`. */
void siblings_join(struct frl_comm *comm, const struct frl_comm *parent);

/* Each public call that changes the communicator is between these two. */
void comm_enter(struct frl_comm *comm);
void comm_leave(struct frl_comm *comm);
/* As comm_enter(), for a thread that polls: lets waiting callers enter first (driver.h). */
void comm_enter_last(struct frl_comm *comm);

/* Makes progress once, and helps a sibling if there are no events. Returns as comm_progress(). */
int comm_round(struct frl_comm *comm);

/* Destroys a communicator that the caller has entered. It is freed now or later. */
void siblings_leave(struct frl_comm *comm);

#endif
