/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of frames over sockets, plain or TLS, on a libevent loop: frames come out of them, and
 * are put in. Takes care that no stream is at another one's cost:
 *
 *	- a stream is read only while no whole frame of it waits, so a flood waits in its sender;
 *	- streams take turns of a few messages; those whose turns take long, or leave messages over,
 *	  go into a second row that gets a few milliseconds a round, after all others;
 *	- a message is there in whole within a time, or the stream ends; so is what is sent to it
 *	  read, up to a size. A local client that does not read its answers is not listened to;
 *	- the long messages that are on their way in streams of one owner share some megabytes.
 *
 * A stream that ends is told to the handler once, from streams_settle(): never from within a call
 * that the handler made. One thread.
 */
#ifndef FERRULE_DAEMON_STREAM_H
#define FERRULE_DAEMON_STREAM_H

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
	/* It can be used: connected, and its TLS handshake done. False: it is one too many; what
	 * was sent to it leaves, and no more is heard of it. */
	bool (*opened)(void *ctx, struct stream *stream);
	/* Is there room where this message, of a process, will be passed on to? Else the stream
	 * that has none; the message is then taken later. */
	struct stream *(*passes_to)(
		void *ctx, struct stream *stream, const Ctl__Envelope *envelope, size_t size);
	/* `fd` is a memfd that came with it, the handler's to close, or -1. */
	void (*message)(void *ctx, struct stream *stream, const Ctl__Envelope *envelope, int fd);
	/* `opened`: it had been. It is freed, or lingers, afterwards. */
	void (*ended)(
		void *ctx, struct stream *stream, bool opened, enum core_end end, const char *why);
	/* At the end of each streams_settle(). */
	void (*settled)(void *ctx);
	void *ctx;
};

/* NULL: no memory. `message_ms`: how long a handshake, and a message, may take to arrive. */
struct streams *streams_create(
	struct event_base *base, const struct stream_handler *handler, uint32_t message_ms);
void streams_set_message_ms(struct streams *streams, uint32_t message_ms);
/* Ends all without telling anybody. */
void streams_destroy(struct streams *streams);

/* Sends what waits and tells of the streams that have ended. To be called after everything that
 * may have sent or closed something, outside the handler's functions. */
void streams_settle(struct streams *streams);

/*
 * Takes a connected socket that does not block, and the TLS of it (or NULL) with its side set. It
 * is opened later, from the loop. `address` is copied: numeric, empty for a Unix socket. NULL: no
 * memory, and both are still the caller's.
 */
struct stream *stream_start(
	struct streams *streams, uint64_t id, int fd, SSL *ssl, const char *address);

/* Once, before its first message: whose the stream is. False: no memory. */
bool stream_set_owner(struct stream *stream, uint64_t owner);

struct stream *stream_find(const struct streams *streams, uint64_t id);

/* Can it be given that many bytes more, with others waiting for their turn otherwise? */
bool stream_has_room(const struct stream *stream, size_t size);

/* Bytes that were put in and have not left. */
size_t stream_queued(const struct stream *stream);

/* Returns true if TCP has sent its bytes again twice and more without an answer. */
bool stream_is_stuck(const struct stream *stream);

/* Puts a message in. What cannot be sent ends the stream. */
void stream_send(struct stream *stream, const Ctl__Envelope *envelope);

/* Sends a descriptor with the next message of a local stream. The stream takes it over. */
void stream_give_fd(struct stream *stream, int fd);

/* Lets what was put in leave, for up to a second, and ends the stream; nobody is told. */
void stream_close(struct stream *stream);

uint64_t stream_id(const struct stream *stream);
int stream_fd(const struct stream *stream);
SSL *stream_ssl(const struct stream *stream);
const char *stream_address(const struct stream *stream);

/* How many there are, and how many of them have not been opened yet. */
size_t streams_count(const struct streams *streams);
size_t streams_waiting(const struct streams *streams);

/* Of those that were accepted from elsewhere and not opened yet the oldest one: the room is for
 * others. */
void streams_end_oldest_waiting(struct streams *streams);

#endif
