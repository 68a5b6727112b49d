/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Families: a communicator and all that were made out of it. They make progress together, so that
 * ranks may wait for them in different orders, and leave together, so that ranks may destroy them
 * in different orders.
 *
 * Whoever waits in one of them and finds nothing to do there looks after the others in turn. Each
 * is used by one thread at a time, its caller's or one that helps; a thread that helps passes over
 * those that are in use, and what it finds is kept for the caller.
 *
 * A rank whose callers are elsewhere may still be needed: it has completed an operation, and a rail
 * died with its acknowledgements, or with what it had sent last. The other rank then asks it by
 * mail to connect over another rail. A recovery thread makes these connections when no caller has
 * looked at the mail for a moment. It exists only while there is something to connect, and only
 * where devices make progress without calls.
 *
 * One that is destroyed stays until the other ranks have destroyed it too, looked after by those
 * who wait in its siblings. The last one of the family to be destroyed waits for all of these.
 */
#ifndef FERRULE_COLLECTIVES_FAMILY_H
#define FERRULE_COLLECTIVES_FAMILY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct family;
struct frl_comm;
struct frl_request;

/* Of a communicator: its place in the family. */
struct member {
	struct family *family;
	struct frl_comm *next; /* in a ring */
	atomic_bool is_used;
	uint32_t rounds;       /* of progress */
	uint32_t quiet_rounds; /* in a row, in which nothing happened */
	uint64_t helped_ns;
	/* While it leaves: */
	bool is_leaving;
	struct frl_request *barrier; /* NULL: it is over */
	uint64_t linger_ns, end_ns;
};

/* The first one of a family. -ENOMEM. */
int family_create(struct frl_comm *comm);
/* One more, made out of `parent`. */
void family_join(struct frl_comm *comm, const struct frl_comm *parent);

/* Every call of the caller's that changes the communicator is between these two. */
void comm_enter(struct frl_comm *comm);
void comm_leave(struct frl_comm *comm);

/* Makes progress once, and helps a sibling if there is nothing to do; as comm_progress(). */
int comm_round(struct frl_comm *comm);

/* The connection to rank `rank` over the rail broke: all of the family look whether others of
 * theirs are broken, too, and new ones avoid it for a minute. */
void family_suspect(struct frl_comm *comm, unsigned rail, int rank);
/* A connection to the rank over the rail works. */
void family_trust(struct frl_comm *comm, unsigned rail, int rank);
/* The rail's port has its link again. */
void family_forgive(struct frl_comm *comm, unsigned rail);
/* A new connection to the rank is better made over another rail. */
bool family_avoids(const struct frl_comm *comm, unsigned rail, int rank);
/* How often that has been said. */
uint32_t family_suspicions(const struct frl_comm *comm, unsigned rail);

/* The caller, who has entered, is done with it; it is gone sooner or later. */
void family_leave(struct frl_comm *comm);

#endif
