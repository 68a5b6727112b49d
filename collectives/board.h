/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The board: mail between ranks, through the bootstrap, for all communicators that share it.
 *
 * Mail arrives in a thread of the bootstrap. It is put into the post of the communicator that it is
 * for, which looks there when it makes progress; or kept for a while if there is no such
 * communicator yet. Questions about what a rank is doing are answered by that thread at once, so
 * also for a rank that computes, or sits somewhere else.
 *
 * Any thread may call these functions; one mutex protects the board and all posts.
 */
#ifndef FERRULE_COLLECTIVES_BOARD_H
#define FERRULE_COLLECTIVES_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/connect.h>

enum {
	COMM_ID_SIZE = 16,
	REASON_MAX = 320,
	MAIL_CHANNELS = 4, /* of a peer: RAILS_MAX */
	MAIL_BUCKETS = 64,
};

enum mail_type {
	MAIL_CONNECT = 1, /* its first byte is the channel; see channel.c */
	MAIL_FAILED,      /* a rank's communicator failed, and why; see failure.c */
	MAIL_QUESTION,    /* what are you doing? See stall.c */
	MAIL_REPORT,
	MAIL_MEASURED, /* all has arrived that was measured with; see measure.c */
};

/*
 * Of a member there is at most one mail of a kind in a post, for connections one a channel: the
 * newest, as it says all that earlier ones said. Only of failures the first counts. So a post needs
 * no limit, and nothing pushes a failure out.
 */
struct mail {
	struct mail *next;
	struct mail *next_alike; /* in the bucket */
	int member;              /* rank of the bootstrap */
	enum mail_type type;
	uint8_t channel; /* 0 but for MAIL_CONNECT */
	uint8_t id[COMM_ID_SIZE];
	size_t size;
	uint8_t bytes[];
};

struct mail_list {
	struct mail *first, **end;
	struct mail *buckets[MAIL_BUCKETS];
};

/* What a rank is doing: written now and then by the communicator's thread, read by the board's. */
struct state_note {
	_Atomic uint32_t number; /* collectives started */
	_Atomic uint32_t coll;   /* of the oldest operation that is not complete; FRL_COLLS: none */
	_Atomic uint32_t oldest; /* its number; SEND and RECV: the peer */
	_Atomic uint64_t count;  /* its elements */
	_Atomic int32_t awaited; /* a rank that it waits for; -1: none */
	_Atomic uint64_t since_ns;   /* nothing has moved */
	_Atomic uint64_t polled_ns;  /* somebody has looked after it */
	_Atomic uint32_t dead_rails; /* bit i: the port of rail i has no link */
};

/* Of a communicator: what other threads may touch. */
struct post {
	struct post *next; /* on the board */
	uint8_t id[COMM_ID_SIZE];
	atomic_bool is_waiting; /* there is mail, or somebody aborts */
	struct mail_list mails;
	bool is_aborted;
	char reason[REASON_MAX];
	struct state_note note;
	void (*on_connect)(void *arg); /* see board_watch(); may be NULL */
	void *on_connect_arg;
};

struct board;

/* For a bootstrap whose mail nobody else takes. -ENOMEM. */
int board_create(struct frl_bootstrap *bootstrap, struct board **ret_board);
struct board *board_get(struct board *board);
/* The last user takes it down. NULL is fine. */
void board_put(struct board *board);

/* From here on mail for post->id goes there, and what was kept of it. */
void board_add(struct board *board, struct post *post);
/* Calls `on_connect` in the bootstrap's thread, with the board's mutex held, after each mail about
 * a connection. */
void board_watch(struct board *board, struct post *post, void (*on_connect)(void *arg), void *arg);
/* No longer; what is in it is freed. */
void board_remove(struct board *board, struct post *post);

/* All mail of a post, oldest first, to be freed one by one. */
struct mail *board_take(struct board *board, struct post *post);

/* Best effort: who needs an answer asks again. */
void board_send(struct board *board, int member, enum mail_type type, const struct post *post,
	const void *bytes, size_t size);

/* Somebody wants the communicator to end. False: somebody did before, and that reason counts. */
bool board_abort(struct board *board, struct post *post, const char *reason);
bool board_is_aborted(struct board *board, struct post *post, char reason[REASON_MAX]);

static inline bool post_is_waiting(const struct post *post)
{
	return atomic_load_explicit(&post->is_waiting, memory_order_acquire);
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

/* A report, as mail: see stall.c. */
enum { REPORT_QUESTION_SIZE = 4, REPORT_SIZE = 45 };

#endif
