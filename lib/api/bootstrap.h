/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank's end of a job: struct frl_bootstrap over the process's connection to the control daemon.
 * bootstrap.c joins, leaves and takes what arrives, bootstrap_back.c joins again, in the thread of
 * that connection; bootstrap_gather.c is what the rank does meanwhile, in its own. They meet under
 * the mutex. bootstrap_mail.c carries mail, both ways.
 */
#ifndef FERRULE_API_BOOTSTRAP_H
#define FERRULE_API_BOOTSTRAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/cm.h>
#include <ferrule/connect.h>

#include "lib/base/reminder.h"
#include "lib/control/client.h"
#include "lib/control/frame.h"

enum {
	BOOTSTRAP_NOBODY = -1,
	BOOTSTRAP_TEXT = 1024,
	BOOTSTRAP_WHY = 320, /* of a rank that gives up, so that frl_last_error() holds it */
};

enum bootstrap_state {
	BOOTSTRAP_JOINING,
	BOOTSTRAP_JOINED,
	BOOTSTRAP_AWAY, /* a daemon went away; it may come back until `lost_ns` */
	BOOTSTRAP_BACK, /* joined again; until all ranks have it is not its turn to say anything */
	BOOTSTRAP_FAILED, /* `error` and `why` */
};

struct bootstrap_piece {
	uint8_t *bytes; /* NULL: not there */
	size_t size;
};

/* The first rank to which something happened, and what the daemon says of it. */
struct bootstrap_loss {
	int rank; /* or BOOTSTRAP_NOBODY */
	char text[BOOTSTRAP_TEXT];
};

/* What arrives from other ranks, and whom it is given to. */
struct bootstrap_mail {
	pthread_mutex_t mutex; /* for all that follows; taken alone */
	pthread_cond_t returned;
	void (*receive)(void *arg, int rank, const void *data, size_t size);
	void *arg;
	bool calls; /* the receiver is running, called by: */
	pthread_t caller;
	uint64_t number;  /* of that call */
	struct list kept; /* struct kept_mail.node */
	size_t kept_size;
};

struct bootstrap {
	struct control_handler handler;
	uint8_t id[UUID_SIZE]; /* what daemons call this rank */
	char job[FRL_SERVICE_MAX + 1];
	char host[FRL_HOST_MAX + 1]; /* whose daemon keeps the job; "": this one's */
	int rank;
	int ranks;
	struct bootstrap_mail mail;
	pthread_mutex_t mutex; /* for all that follows */
	pthread_cond_t changed;
	enum bootstrap_state state;
	uint64_t lost_ns;
	char lost[BOOTSTRAP_TEXT]; /* what went away */
	uint64_t group;            /* what the daemon calls the job */
	bool met;                  /* all ranks have joined */
	bool gave_up;
	char gave_up_why[BOOTSTRAP_WHY];
	int error; /* negative errno */
	char why[BOOTSTRAP_TEXT];
	int timeout_ms; /* of an allgather; negative: none */
	uint32_t round; /* the allgather that is next, or in progress */
	uint32_t given; /* how many pieces it has given: as many, or one more */
	/* By rank, of this round and of the next: others may be done with this one, and ahead. Its
	 * own of this round and of the last one: others may lack that. */
	struct bootstrap_piece *pieces[2]; /* by round modulo 2 */
	bool *left;                        /* by rank */
	struct bootstrap_loss dead;
	struct bootstrap_loss aborted;
};

static inline void bootstrap_set_id(ProtobufCBinaryData *to, struct bootstrap *bootstrap)
{
	*to = (ProtobufCBinaryData){ .len = UUID_SIZE, .data = bootstrap->id };
}

/* With the mutex held. It is of no more use; the first reason stays. */
void bootstrap_fail(struct bootstrap *bootstrap, int error, const char *why);

/* With the mutex held: until something has changed. False: the time is over. */
bool bootstrap_wait(struct bootstrap *bootstrap, uint64_t deadline_ns);
/* The same; returns true as well when it is time to say what is awaited, which `say` does. */
bool bootstrap_wait_and_say(struct bootstrap *bootstrap, uint64_t deadline_ns,
	struct reminder *reminder, void (*say)(const struct bootstrap *bootstrap));
/* Whether it has joined and others may not be there, or not know of it. */
static inline bool bootstrap_is_away(const struct bootstrap *bootstrap)
{
	return bootstrap->state == BOOTSTRAP_AWAY || bootstrap->state == BOOTSTRAP_BACK;
}
/* Negative: never. */
uint64_t bootstrap_deadline(int timeout_ms);

/* bootstrap_mail.c. Mail has come, and mail that was kept may be given out: by the thread of the
 * connection, without a lock. */
void bootstrap_take_mail(struct bootstrap *bootstrap, const Ctl__GroupMail *from);
void bootstrap_mail_deliver(struct bootstrap_mail *mail);
void bootstrap_mail_init(struct bootstrap_mail *mail);
void bootstrap_mail_fini(struct bootstrap_mail *mail);

/* With the mutex held. `what` went away: "the daemon ... has ended". */
void bootstrap_lost(struct bootstrap *bootstrap, const char *what);
/* With the mutex held: the join, or the return, to the next daemon. */
void bootstrap_post_join(struct bootstrap *bootstrap);
/* The handler's: whether it has been away for too long. */
uint64_t bootstrap_tick(struct control_handler *handler, uint64_t now_ns);

struct bootstrap_piece *bootstrap_own_piece(const struct bootstrap *bootstrap, uint32_t round);
/* With the mutex held: its own piece, or that nobody needs it any more; as control_post(). */
int bootstrap_post_piece(struct bootstrap *bootstrap, uint32_t round);
void bootstrap_give_again(struct bootstrap *bootstrap, uint32_t round, uint32_t rounds);

/* Those of struct frl_bootstrap. */
int bootstrap_allgather(void *ctx, const void *mine, size_t size, void *all);
int bootstrap_check(void *ctx, int *ret_rank);
bool bootstrap_has_left(void *ctx, int rank);
int bootstrap_post(void *ctx, int rank, const void *data, size_t size);
void bootstrap_set_receiver(
	void *ctx, void (*receive)(void *arg, int rank, const void *data, size_t size), void *arg);
void bootstrap_close(void *ctx);

#endif
