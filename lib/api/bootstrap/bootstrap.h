/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank's end of a job: struct frl_bootstrap over the process's connection to the control daemon.
 * bootstrap.c joins, leaves and handles messages. rejoin.c joins again after a loss. Both run in
 * the thread of that connection; gather.c runs in the rank's own thread. The mutex protects what
 * they share. mail.c sends and receives mail.
 */
#ifndef FERRULE_API_BOOTSTRAP_BOOTSTRAP_H
#define FERRULE_API_BOOTSTRAP_BOOTSTRAP_H

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
	BOOTSTRAP_NO_RANK = -1,
	BOOTSTRAP_TEXT = 1024,
	BOOTSTRAP_WHY = 320, /* of a rank that gives up; fits into frl_last_error() */
};

enum bootstrap_state {
	BOOTSTRAP_JOINING,
	BOOTSTRAP_JOINED,
	BOOTSTRAP_AWAY,   /* lost a daemon; it may return until `lost_ns` */
	BOOTSTRAP_BACK,   /* joined again; sends nothing until all ranks have joined */
	BOOTSTRAP_FAILED, /* `error` and `why` are set */
};

struct bootstrap_piece {
	uint8_t *bytes; /* NULL: not received */
	size_t size;
};

/* The first rank with an event of this kind, and the daemon's text about it. */
struct bootstrap_loss {
	int rank; /* or BOOTSTRAP_NO_RANK */
	char text[BOOTSTRAP_TEXT];
};

/* Mail from other ranks, and its receiver. */
struct bootstrap_mail {
	pthread_mutex_t mutex; /* protects all following fields; taken alone */
	pthread_cond_t returned;
	void (*receive)(void *arg, int rank, const void *data, size_t size);
	void *arg;
	bool calls; /* the receiver is running, in thread: */
	pthread_t caller;
	uint64_t number;  /* of that call */
	struct list kept; /* struct kept_mail.node */
	size_t kept_size;
};

struct bootstrap {
	struct control_handler handler;
	uint8_t id[UUID_SIZE]; /* this rank's name towards daemons */
	char job[FRL_SERVICE_MAX + 1];
	char host[FRL_HOST_MAX + 1]; /* the host whose daemon keeps the job; "": this host */
	int rank;
	int ranks;
	struct bootstrap_mail mail;
	pthread_mutex_t mutex; /* protects all following fields */
	pthread_cond_t changed;
	enum bootstrap_state state;
	uint64_t lost_ns;
	char lost[BOOTSTRAP_TEXT]; /* which connection was lost */
	uint64_t group;            /* the daemon's number of the job */
	bool all_joined;           /* all ranks have joined */
	bool has_aborted;
	char abort_reason[BOOTSTRAP_WHY];
	int error; /* negative errno */
	char why[BOOTSTRAP_TEXT];
	int timeout_ms;  /* of an allgather; negative: none */
	uint32_t round;  /* the next allgather, or the one in progress */
	uint32_t n_sent; /* the number of pieces sent: `round`, or one more */
	/*
	 * By rank, of this round and the next one, because other ranks may be one round ahead. This
	 * rank's own pieces of this round and the last one, because other ranks may lack them.
	 */
	struct bootstrap_piece *pieces[2]; /* by round modulo 2 */
	bool *left;                        /* by rank */
	struct bootstrap_loss dead;
	struct bootstrap_loss aborted;
};

static inline void bootstrap_set_id(ProtobufCBinaryData *to, struct bootstrap *bootstrap)
{
	*to = (ProtobufCBinaryData){ .len = UUID_SIZE, .data = bootstrap->id };
}

/* Marks the bootstrap as failed. The first reason is kept. With the mutex held. */
void bootstrap_fail(struct bootstrap *bootstrap, int error, const char *why);

/* Waits for a change, with the mutex held. Returns false after the deadline. */
bool bootstrap_wait(struct bootstrap *bootstrap, uint64_t deadline_ns);
/*
 * Waits as bootstrap_wait(), and also returns true when `log_wait` is due, which logs what is
 * awaited.
 */
bool bootstrap_wait_logged(struct bootstrap *bootstrap, uint64_t deadline_ns,
	struct reminder *reminder, void (*log_wait)(const struct bootstrap *bootstrap));
/* Returns whether this rank has joined, but other ranks may be absent or not know of it. */
static inline bool bootstrap_is_away(const struct bootstrap *bootstrap)
{
	return bootstrap->state == BOOTSTRAP_AWAY || bootstrap->state == BOOTSTRAP_BACK;
}
/* Returns the deadline in ns; a negative timeout has none. */
uint64_t bootstrap_deadline(int timeout_ms);

/*
 * mail.c. Takes received mail, and delivers kept mail. Called by the thread of the
 * connection, without a lock.
 */
void bootstrap_take_mail(struct bootstrap *bootstrap, const Ctl__GroupMail *from);
void bootstrap_mail_deliver(struct bootstrap_mail *mail);
void bootstrap_mail_init(struct bootstrap_mail *mail);
void bootstrap_mail_fini(struct bootstrap_mail *mail);

/*
 * Handles a lost connection; `what` is a sentence like "the daemon ... has ended". With the mutex
 * held.
 */
void bootstrap_handle_loss(struct bootstrap *bootstrap, const char *what);
/* Posts the join, or the return, to the next daemon. With the mutex held. */
void bootstrap_post_join(struct bootstrap *bootstrap);
/* Tick of the handler: fails the bootstrap after too long an absence. */
uint64_t bootstrap_tick(struct control_handler *handler, uint64_t now_ns);

struct bootstrap_piece *bootstrap_own_piece(const struct bootstrap *bootstrap, uint32_t round);
/*
 * Posts this rank's piece of `round`, or a notice that it is no longer kept. Returns as
 * control_post(). With the mutex held.
 */
int bootstrap_post_piece(struct bootstrap *bootstrap, uint32_t round);
void bootstrap_resend(struct bootstrap *bootstrap, uint32_t round, uint32_t rounds);

/* Callbacks of struct frl_bootstrap. */
int bootstrap_allgather(void *ctx, const void *mine, size_t size, void *all);
int bootstrap_check(void *ctx, int *ret_rank);
bool bootstrap_has_left(void *ctx, int rank);
int bootstrap_post(void *ctx, int rank, const void *data, size_t size);
void bootstrap_set_receiver(
	void *ctx, void (*receive)(void *arg, int rank, const void *data, size_t size), void *arg);
void bootstrap_close(void *ctx);

#endif
