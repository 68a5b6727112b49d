/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mailbox: receives mail from other ranks through the bootstrap, for all communicators that
 * share the bootstrap.
 *
 * Mail arrives on a thread of the bootstrap, which puts it into the inbox of the communicator. The
 * communicator reads its inbox when it makes progress. Mail for a communicator that does not exist
 * yet is kept for a while. The bootstrap's thread answers questions about the state of a rank at
 * once, so a rank that computes or blocks elsewhere is answered for, too.
 *
 * Any thread may call these functions; one mutex protects the mailbox and all inboxes.
 */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_MAILBOX_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/connect.h>

enum {
	COMM_ID_SIZE = 16,
	REASON_MAX = 320,
	MAIL_CHANNELS = 4, /* channels of a peer: RAILS_MAX */
	MAIL_BUCKETS = 64,
};

enum mail_type {
	MAIL_CONNECT = 1, /* the first byte is the channel, see net/channel.c */
	MAIL_FAILED,      /* the sender's communicator failed, with the reason, see failure.c */
	MAIL_QUESTION,    /* asks for a MAIL_REPORT, see api/hang.c */
	MAIL_REPORT,
	MAIL_MEASURED, /* the sender has received all data of its measurement, see api/measure.c */
};

/*
 * An inbox has at most one mail of each type from each member (one per channel for MAIL_CONNECT).
 * The newest mail replaces earlier ones, since it includes their information. The first failure is
 * kept. An inbox therefore needs no limit, and no mail displaces a failure.
 */
struct mail {
	struct mail *next;
	struct mail *next_alike; /* next in the bucket */
	int member;              /* rank in the bootstrap */
	enum mail_type type;
	uint8_t channel; /* 0 except for MAIL_CONNECT */
	uint8_t id[COMM_ID_SIZE];
	size_t size;
	uint8_t bytes[];
};

struct mail_list {
	struct mail *first, **end;
	struct mail *buckets[MAIL_BUCKETS];
};

/* State of a rank. The communicator's thread writes it now and then; the bootstrap's thread
 * reads it. */
struct state_note {
	_Atomic uint32_t number; /* collectives started */
	_Atomic uint32_t coll;   /* of the oldest operation that is not complete; FRL_COLLS: none */
	_Atomic uint32_t oldest; /* number of that operation; for SEND and RECV the peer */
	_Atomic uint64_t count;  /* elements of that operation */
	_Atomic int32_t awaited; /* rank that the operation waits for; -1: none */
	_Atomic uint64_t since_ns;   /* time of the last progress */
	_Atomic uint64_t polled_ns;  /* time of the last poll by the application */
	_Atomic uint32_t down_rails; /* bit i: the port of rail i has no link */
};

/* Mail of one communicator, and state that other threads may access. */
struct inbox {
	struct inbox *next; /* in the mailbox */
	uint8_t id[COMM_ID_SIZE];
	atomic_bool is_waiting; /* there is mail, or an abort */
	struct mail_list mails;
	bool is_aborted;
	char reason[REASON_MAX];
	struct state_note note;
	void (*on_connect)(void *arg); /* see mailbox_watch(); may be NULL */
	void *on_connect_arg;
};

struct mailbox;

/* Creates the mailbox of a bootstrap and becomes its receiver of mail. Fails with -ENOMEM. */
int mailbox_create(struct frl_bootstrap *bootstrap, struct mailbox **ret_mailbox);
struct mailbox *mailbox_get(struct mailbox *mailbox);
/* Drops a reference and frees the mailbox with the last one. NULL is allowed. */
void mailbox_put(struct mailbox *mailbox);

/* Delivers mail for inbox->id to the inbox from now on, starting with the mail that was kept for
 * it. */
void mailbox_add(struct mailbox *mailbox, struct inbox *inbox);
/* Calls `on_connect` in the bootstrap's thread after each MAIL_CONNECT. The mailbox's mutex is
 * held during the call. */
void mailbox_watch(
	struct mailbox *mailbox, struct inbox *inbox, void (*on_connect)(void *arg), void *arg);
/* Removes an inbox and frees its mail. */
void mailbox_remove(struct mailbox *mailbox, struct inbox *inbox);

/* Returns all mail of an inbox, oldest first. The caller frees each mail. */
struct mail *mailbox_take(struct mailbox *mailbox, struct inbox *inbox);

/* Sends a mail, best effort. A sender that needs an answer repeats the mail. */
void mailbox_send(struct mailbox *mailbox, int member, enum mail_type type,
	const struct inbox *inbox, const void *bytes, size_t size);

/* Marks the communicator as aborted. Returns false if it was aborted before; the first reason is
 * kept. */
bool mailbox_abort(struct mailbox *mailbox, struct inbox *inbox, const char *reason);
bool mailbox_is_aborted(struct mailbox *mailbox, struct inbox *inbox, char reason[REASON_MAX]);

static inline bool inbox_is_waiting(const struct inbox *inbox)
{
	return atomic_load_explicit(&inbox->is_waiting, memory_order_acquire);
}

/* Numbers in mail are big-endian. */
static inline void put_number(uint8_t *to, size_t size, uint64_t value)
{
	for (size_t i = 0; i < size; i++)
		to[i] = (uint8_t)(value >> 8 * (size - 1 - i));
}

static inline uint64_t get_number(const uint8_t *from, size_t size)
{
	uint64_t value = 0;

	for (size_t i = 0; i < size; i++)
		value = value << 8 | from[i];
	return value;
}

/* A report as a mail, see api/hang.c. */
enum { REPORT_QUESTION_SIZE = 4, REPORT_SIZE = 45 };

#endif
