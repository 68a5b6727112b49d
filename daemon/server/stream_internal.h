/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface between stream.c (start, output and end of streams) and turns.c (their messages).
 */
#ifndef FERRULE_DAEMON_SERVER_STREAM_INTERNAL_H
#define FERRULE_DAEMON_SERVER_STREAM_INTERNAL_H

#include <event2/event_struct.h>

#include "daemon/server/stream.h"
#include "daemon/server/wire.h"
#include "lib/base/table.h"

enum { ADDRESS_SIZE = 64 };

enum stream_state {
	STREAM_HANDSHAKE,
	STREAM_OPEN,
	STREAM_ENDED,
	STREAM_LEAVING,
};

/* The owner of streams: a user or a host. */
struct owner {
	uint64_t id;
	UT_hash_handle hh; /* streams.owners */
	unsigned streams;
	size_t taken;        /* bytes reserved by its long messages under way */
	struct list waiters; /* struct stream.waiting: streams without room for a long message */
};

struct stream {
	struct streams *set;
	uint64_t id;
	UT_hash_handle hh; /* streams.by_id, until LEAVING */
	struct list all;
	struct wire wire;
	enum stream_state state;
	bool local;       /* a Unix socket */
	bool opened;      /* the handler knows it */
	bool identified;  /* a message was taken: it has identified itself */
	bool heavy;       /* its last turn was long */
	bool throttled;   /* not read until it reads its output */
	bool tx_failed;   /* nothing can be sent to it; its messages are still taken */
	bool timed;       /* the timer runs for an incomplete message */
	size_t discarded; /* bytes discarded while LEAVING */
	struct event read, write, timer;
	struct evbuffer *in, *out;
	struct list row;   /* streams.quick or .busy: has messages */
	struct list dirty; /* streams.dirty: has output, or must be finished */
	struct list gone;  /* streams.ended */
	/* A local stream has filled the stream of another daemon. It is not read until that one has
	 * room for `wants` bytes. */
	struct stream *full;
	struct list waiting; /* full->waiters, or owner->waiters */
	size_t wants;
	struct event closed; /* detects its end meanwhile, although messages are unread */
	struct list waiters;
	struct owner *owner; /* or NULL */
	size_t taken;        /* bytes of its owner's reservation */
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
	struct stream *taken; /* whose message the handler is processing */
	struct event turn;
	size_t count, waiting;
	size_t out_total;
	uint8_t *scratch; /* WIRE_READ_SIZE */
};

/* Ends the stream. The next streams_settle() notifies the handler, once. */
void stream_end(struct stream *stream, enum core_end end, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void stream_set_timer(struct stream *stream, uint32_t ms);

/* ---- turns.c */

void streams_init_turns(struct streams *streams);

/* Bytes have arrived: schedules a turn. The stream is not read meanwhile. */
void stream_queue_turn(struct stream *stream);

/* The stream has no whole message left: reads on. `began_anew`: the bytes of the next message
 * arrived after the previous one was complete. */
void stream_resume_reading(struct stream *stream, bool began_anew);

/* Releases the reservation of a long message, so that other streams of its owner can have
 * theirs. */
void stream_release_room(struct stream *stream);

/* The stream of another daemon got output. If it is full, the sender of the current message
 * waits. */
void stream_block_sender(struct stream *stream);

/* Continues the streams that wait for room, as far as there is any; all of them if this one has
 * ended. */
void stream_wake_waiters(struct stream *stream);

/* Returns true if a local client has read most of its output. */
bool stream_has_read_output(const struct stream *stream);

#endif
