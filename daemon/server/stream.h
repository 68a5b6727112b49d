/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of frames over sockets, plain or TLS, on a libevent loop. They are isolated from each
 * other:
 *
 *	- a stream is read only while it has no whole frame, so a flood waits in its sender;
 *	- streams take turns of a few messages. Streams with long turns, or with messages left over,
 *	  move to a second queue that gets a few milliseconds a round, after all others;
 *	- a message must arrive within a time limit, and output must be read, up to a size limit.
 *	  Otherwise the stream ends. A local client that does not read its answers is not read;
 *	- long messages under way in the streams of one owner share some megabytes.
 *
 * The handler is notified once of the end of a stream, from streams_settle(), and never from within
 * a call that the handler made. One thread.
 */
#ifndef FERRULE_DAEMON_SERVER_STREAM_H
#define FERRULE_DAEMON_SERVER_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <event2/event.h>
#include <openssl/ssl.h>

#include "daemon/core/core.h"
#include "lib/base/list.h"

struct stream;
struct streams;

struct stream_handler {
	/* The stream is connected, with its TLS handshake done. Returns false to refuse it: queued
	 * output is sent, and nothing more is read. */
	bool (*opened)(void *ctx, struct stream *stream);
	/* Checks the route of a process's message. Returns the stream on it that has no room, or
	 * NULL. The message then waits. */
	struct stream *(*blocked_by)(
		void *ctx, struct stream *stream, const Ctl__Envelope *envelope, size_t size);
	/* `fd`: a memfd that came with the message, which the handler closes, or -1. */
	void (*message)(void *ctx, struct stream *stream, const Ctl__Envelope *envelope, int fd);
	/* `opened`: opened() had been called. The stream is freed, or lingers, afterwards. */
	void (*ended)(
		void *ctx, struct stream *stream, bool opened, enum core_end end, const char *why);
	/* Called at the end of each streams_settle(). */
	void (*settled)(void *ctx);
	void *ctx;
};

/* `message_ms`: time limit for a handshake, and for a message to arrive. Returns NULL without
 * memory. */
struct streams *streams_create(
	struct event_base *base, const struct stream_handler *handler, uint32_t message_ms);
void streams_set_message_ms(struct streams *streams, uint32_t message_ms);
/* Ends all streams without calling the handler. */
void streams_destroy(struct streams *streams);

/* Sends queued output, and notifies the handler of streams that have ended. Call it after
 * everything that may have sent or closed something, outside the handler's functions. */
void streams_settle(struct streams *streams);

/*
 * Takes a connected non-blocking socket, and its TLS (or NULL) with its side set. opened() is
 * called later, from the loop. `address` is copied: numeric, empty for a Unix socket. Returns NULL
 * without memory; the caller then keeps both.
 */
struct stream *stream_start(
	struct streams *streams, uint64_t id, int fd, SSL *ssl, const char *address);

/* Sets the owner of the stream, once, before its first message. Returns false without memory. */
bool stream_set_owner(struct stream *stream, uint64_t owner);

struct stream *stream_find(const struct streams *streams, uint64_t id);

/* Returns true if so many more bytes can be queued. Otherwise senders wait for their turn. */
bool stream_has_room(const struct stream *stream, size_t size);

/* Returns the bytes that are queued. */
size_t stream_queued(const struct stream *stream);

/* Returns true if TCP has retransmitted twice and more without an answer. */
bool stream_is_stuck(const struct stream *stream);

/* Queues a message. A failure ends the stream. */
void stream_send(struct stream *stream, const Ctl__Envelope *envelope);

/* Passes a descriptor with the next message of a local stream. The stream owns it. */
void stream_give_fd(struct stream *stream, int fd);

/* Sends queued output, for up to a second, and ends the stream. The handler is not notified. */
void stream_close(struct stream *stream);

uint64_t stream_id(const struct stream *stream);
int stream_fd(const struct stream *stream);
SSL *stream_ssl(const struct stream *stream);
const char *stream_address(const struct stream *stream);

/* The number of streams, and of those that have not been opened yet. */
size_t streams_count(const struct streams *streams);
size_t streams_waiting(const struct streams *streams);

/* Ends the oldest accepted stream of another host that has not been opened, to make room. */
void streams_end_oldest_waiting(struct streams *streams);

#endif
