/* SPDX-License-Identifier: BSD-3-Clause */
/* Between stream.c, which knows how streams begin, send and end, and turns.c, which takes messages
 * out of them. */
#ifndef FERRULE_DAEMON_STREAM_INTERNAL_H
#define FERRULE_DAEMON_STREAM_INTERNAL_H

#include <event2/event_struct.h>

#include "daemon/stream.h"
#include "daemon/wire.h"
#include "lib/base/table.h"

enum { ADDRESS_SIZE = 64 };

enum stream_state {
	STREAM_HANDSHAKE,
	STREAM_OPEN,
	STREAM_ENDED,
	STREAM_LEAVING,
};

/* Who has streams. */
struct owner {
	uint64_t id;
	UT_hash_handle hh; /* streams.owners */
	unsigned streams;
	size_t taken;        /* bytes, by long messages of these that are on their way */
	struct list waiters; /* struct stream.waiting: there is no room for theirs */
};

struct stream {
	struct streams *set;
	uint64_t id;
	UT_hash_handle hh; /* streams.by_id, unless it leaves */
	struct list all;
	struct wire wire;
	enum stream_state state;
	bool local;    /* a Unix socket */
	bool opened;   /* the handler knows it */
	bool spoken;   /* a message of it has been taken: it is no stranger */
	bool heavy;    /* its last turn was long */
	bool held;     /* not listened to until it reads */
	bool deaf;     /* nothing can be sent to it; what it sent is still taken */
	bool timed;    /* the timer runs for a message that is there in part */
	size_t thrown; /* bytes thrown away while it leaves */
	struct event read, write, timer;
	struct evbuffer *in, *out;
	struct list row;   /* streams.quick or .busy: has messages */
	struct list dirty; /* streams.dirty: has something to send, or to be finished */
	struct list gone;  /* streams.ended */
	/* A local one sent what fills another daemon's stream, and is not listened to until that
	 * has room for `wants` bytes. */
	struct stream *full;
	struct list waiting; /* full->waiters, or owner->waiters */
	size_t wants;
	struct event closed; /* meanwhile: it has ended, with its last messages unread */
	struct list waiters;
	struct owner *owner; /* or NULL */
	size_t taken;        /* of its owner's room */
	enum core_end end;
	char why[WIRE_WHY + 64];
	char address[ADDRESS_SIZE];
};

struct streams {
	struct event_base *base;
	struct stream_handler handler;
	uint32_t message_ms;
	struct stream *by_id;
	struct owner *owners;
	struct list all, quick, busy, dirty, ended;
	struct stream *taken; /* whose message the handler has at the moment */
	struct event turn;
	size_t count, waiting;
	size_t out_total;
	uint8_t *scratch; /* WIRE_READ_SIZE */
};

/* Tells of the end at the next streams_settle(). Once. */
void stream_end(struct stream *stream, enum core_end end, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void stream_set_timer(struct stream *stream, uint32_t ms);

/* ---- turns.c */

void streams_init_turns(struct streams *streams);

/* Bytes have come: it gets a turn, and is not read meanwhile. */
void stream_get_in_row(struct stream *stream);

/* It has no whole message left: it is read on. `began_anew`: what is there of the next message came
 * after the last one was complete. */
void stream_listen(struct stream *stream, bool began_anew);

/* Its long message has been taken, or will not be: others of its owner may have theirs. */
void stream_give_room(struct stream *stream);

/* Something was sent to another daemon's stream: who caused that waits, if it is full. */
void stream_filled(struct stream *stream);

/* Who waits for the stream goes on, as far as there is room; all, where it has ended. */
void stream_let_in(struct stream *stream);

/* Has a local client read what was sent to it, but for a little? */
bool stream_may_be_heard(const struct stream *stream);

#endif
