/* SPDX-License-Identifier: BSD-3-Clause */
/*
 *	stream_start --> HANDSHAKE --> OPEN --> ENDED --> handler notified --> freed
 *	                     |           |        \--> LEAVING, to send the reason
 *	                     \-----------+-- stream_close --> LEAVING --> freed
 *
 * A stream is freed in streams_settle() and in the callbacks of its own events, which do not
 * access it afterwards.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/buffer.h>

#include "daemon/server/log.h"
#include "daemon/server/stream_internal.h"
#include "lib/base/process/closer.h"
#include "lib/control/frame.h"

enum {
	LINGER_MS = 1000,       /* time limit for sending the rest */
	LINGER_BYTES = 1 << 20, /* bytes discarded meanwhile */
	OUT_MAX = 8 << 20,      /* unread bytes of a local stream */
	OUT_MAX_ALL = 64 << 20, /* of all streams; beyond it, local ones above OUT_FAIR end */
	OUT_FAIR = 1 << 20,
	/* The stream of another daemon has many users, and its link may be slow. turns.c keeps them
	 * from filling it. This much could still come from the ends of all its connections at
	 * once. */
	OUT_MAX_PEER = 32 << 20,
};

void stream_set_timer(struct stream *stream, uint32_t ms)
{
	struct timeval after = { ms / 1000, ms % 1000 * 1000 };

	event_add(&stream->timer, &after);
}

static void drop_output(struct stream *stream)
{
	size_t length = evbuffer_get_length(stream->out);

	evbuffer_drain(stream->out, length);
	wire_drop_given(&stream->wire);
	stream->set->out_total -= length;
}

static void leave_owner(struct stream *stream)
{
	struct owner *owner = stream->owner;

	if (!owner)
		return;
	stream_release_room(stream);
	stream->owner = NULL;
	if (--owner->streams)
		return;
	HASH_DEL(stream->set->owners, owner);
	free(owner);
}

static void release(struct stream *stream)
{
	struct streams *set = stream->set;

	event_del(&stream->read);
	event_del(&stream->write);
	event_del(&stream->timer);
	event_del(&stream->closed);
	list_remove(&stream->all);
	list_remove(&stream->row);
	list_remove(&stream->dirty);
	list_remove(&stream->gone);
	list_remove(&stream->waiting);
	leave_owner(stream);
	while (!list_empty(&stream->waiters)) {
		container_of(stream->waiters.next, struct stream, waiting)->full = NULL;
		list_remove(stream->waiters.next);
	}
	if (stream->state != STREAM_LEAVING)
		HASH_DEL(set->by_id, stream);
	if (stream->state == STREAM_HANDSHAKE)
		set->waiting--;
	set->count--;
	drop_output(stream);
	evbuffer_free(stream->in);
	evbuffer_free(stream->out);
	wire_close(&stream->wire);
	free(stream);
}

/* Stops reading from the stream and taking its messages. */
static void stop_turns(struct stream *stream)
{
	event_del(&stream->read);
	event_del(&stream->write);
	event_del(&stream->timer);
	list_remove(&stream->row);
	list_remove(&stream->waiting);
	stream->full = NULL;
	event_del(&stream->closed);
	stream_release_room(stream);
	if (stream->state == STREAM_HANDSHAKE)
		stream->set->waiting--;
}

void stream_end(struct stream *stream, enum core_end end, const char *format, ...)
{
	va_list arguments;

	if (stream->state == STREAM_ENDED || stream->state == STREAM_LEAVING)
		return;
	stop_turns(stream);
	stream->state = STREAM_ENDED;
	stream->end = end;
	va_start(arguments, format);
	vsnprintf(stream->why, sizeof(stream->why), format, arguments);
	va_end(arguments);
	frame_clean_text(stream->why);
	list_add_tail(&stream->set->ended, &stream->gone);
	stream_wake_waiters(stream);
}

static void mark_dirty(struct stream *stream)
{
	if (list_empty(&stream->dirty))
		list_add_tail(&stream->set->dirty, &stream->dirty);
}

/* ---- events */

static void go_on_with_handshake(struct stream *stream)
{
	const struct stream_handler *handler = &stream->set->handler;
	int wanted = wire_handshake(&stream->wire);

	if (wanted < 0) {
		stream_end(stream, CORE_END_TLS, "%s", stream->wire.why);
	} else if (wanted) {
		event_add(&stream->read, NULL);
		if (wanted == EV_WRITE)
			event_add(&stream->write, NULL);
	} else {
		event_del(&stream->timer);
		stream->state = STREAM_OPEN;
		stream->set->waiting--;
		stream->opened = true;
		if (handler->opened(handler->ctx, stream))
			stream_resume_reading(stream, false);
		else
			stream_close(stream);
	}
}

static void throw_away(struct stream *stream)
{
	ssize_t got = wire_read(&stream->wire, stream->set->scratch);

	if (got > 0)
		stream->discarded += (size_t)got;
	if ((got <= 0 && got != -EAGAIN) || stream->discarded > LINGER_BYTES)
		release(stream);
}

static void take_bytes(struct stream *stream)
{
	ssize_t got = wire_read(&stream->wire, stream->set->scratch);

	if (got > 0) {
		if (evbuffer_add(stream->in, stream->set->scratch, (size_t)got) < 0)
			stream_end(stream, CORE_END_BAD, "no memory for its message");
		else
			stream_queue_turn(stream);
	} else if (got == -EPROTO && (stream->wire.ssl || stream->local)) {
		stream_end(stream, stream->local ? CORE_END_BAD : CORE_END_TLS, "%s",
			stream->wire.why);
	} else if (got == 0) {
		stream_end(stream, CORE_END_CLOSED, "it closed the connection%s",
			evbuffer_get_length(stream->in) ? " in the middle of a message" : "");
	} else if (got != -EAGAIN) {
		stream_end(stream, CORE_END_CLOSED, "%s", strerror((int)-got));
	}
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
	struct stream *stream = arg;
	struct streams *set = stream->set;

	switch (stream->state) {
	case STREAM_HANDSHAKE: go_on_with_handshake(stream); break;
	case STREAM_OPEN: take_bytes(stream); break;
	case STREAM_LEAVING: throw_away(stream); break;
	case STREAM_ENDED: break;
	}
	streams_settle(set);
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
	struct stream *stream = arg;
	struct streams *set = stream->set;

	if (stream->state == STREAM_HANDSHAKE)
		go_on_with_handshake(stream);
	else
		mark_dirty(stream);
	streams_settle(set);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct stream *stream = arg;
	struct streams *set = stream->set;

	stream->timed = false;
	if (stream->state == STREAM_LEAVING)
		release(stream);
	else if (stream->state == STREAM_HANDSHAKE)
		stream_end(stream, CORE_END_TLS, "its TLS handshake took longer than %u ms",
			set->message_ms);
	else if (list_empty(&stream->row)) /* else the loop has not processed it yet */
		stream_end(stream, CORE_END_BAD, "its message took longer than %u ms to arrive",
			set->message_ms);
	streams_settle(set);
}

static void on_closed(evutil_socket_t fd, short what, void *arg)
{
	struct stream *stream = arg;
	struct streams *set = stream->set;

	/* A client that ends normally waits for its last answer. So this one was killed. Its peers
	 * must not wait until its unread messages have been processed. */
	stream_end(stream, CORE_END_CLOSED, "it closed the connection");
	streams_settle(set);
}

/* ---- output */

static bool takes_output(const struct stream *stream)
{
	return stream->state != STREAM_ENDED && stream->state != STREAM_LEAVING &&
		!stream->tx_failed;
}

void stream_send(struct stream *stream, const Ctl__Envelope *envelope)
{
	struct streams *set = stream->set;
	size_t length = evbuffer_get_length(stream->out), size = frame_size(envelope);
	struct evbuffer_iovec room;

	if (!takes_output(stream))
		return;
	if (length + size > (stream->local ? OUT_MAX : OUT_MAX_PEER) ||
		(stream->local && set->out_total > OUT_MAX_ALL && length > OUT_FAIR)) {
		drop_output(stream);
		stream_end(stream, CORE_END_BAD, "it does not read its messages");
		return;
	}
	if (size > FRAME_HEADER + FRAME_MAX) {
		log_line(CORE_LOG_ERROR, "a message of %zu bytes is too long to be sent", size);
		stream_end(stream, CORE_END_BAD, "the message to it is too long");
		return;
	}
	if (evbuffer_reserve_space(stream->out, (ssize_t)size, &room, 1) < 1) {
		stream_end(stream, CORE_END_BAD, "no memory for messages to it");
		return;
	}
	frame_pack(envelope, room.iov_base);
	room.iov_len = size;
	evbuffer_commit_space(stream->out, &room, 1);
	set->out_total += size;
	mark_dirty(stream);
	if (!stream->local)
		stream_block_sender(stream);
}

void stream_give_fd(struct stream *stream, int fd)
{
	if (!takes_output(stream))
		closer_close(fd);
	else if (!wire_give_fd(&stream->wire, fd, evbuffer_get_length(stream->out)))
		stream_end(stream, CORE_END_BAD, "no memory for messages to it");
}

size_t stream_queued(const struct stream *stream)
{
	return evbuffer_get_length(stream->out);
}

bool stream_is_stuck(const struct stream *stream)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);

	/* Without a route nothing is under way: probes are repeated instead. */
	return getsockopt(stream->wire.fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
		(info.tcpi_retransmits > 1 || info.tcpi_probes > 1);
}

/* All output has been sent. */
static void finish_leaving(struct stream *stream)
{
	if (stream->local || stream->tx_failed || !stream->opened) {
		release(stream);
		return;
	}
	/* If it were closed with unread bytes, TCP would reset the connection and discard the
	 * output. */
	wire_shutdown(&stream->wire);
	event_add(&stream->read, NULL);
}

static void flush(struct stream *stream)
{
	ssize_t sent = 0;

	if (stream->state == STREAM_HANDSHAKE || stream->state == STREAM_ENDED)
		return;
	if (!stream->opened)
		return release(stream);
	if (evbuffer_get_length(stream->out))
		sent = wire_write(&stream->wire, stream->out);
	if (sent > 0)
		stream->set->out_total -= (size_t)sent;
	if (sent < 0 && sent != -EAGAIN) {
		/* Its last messages may be unread: they end the stream. */
		stream->tx_failed = true;
		drop_output(stream);
	}
	if (evbuffer_get_length(stream->out))
		event_add(&stream->write, NULL);
	else if (stream->state == STREAM_LEAVING)
		return finish_leaving(stream);
	stream_wake_waiters(stream);
	if (stream->throttled && stream_has_read_output(stream)) {
		stream->throttled = false;
		stream_queue_turn(stream);
	}
}

static void start_leaving(struct stream *stream)
{
	HASH_DEL(stream->set->by_id, stream);
	stream->state = STREAM_LEAVING;
	stream_wake_waiters(stream);
	list_remove(&stream->gone);
	stream_set_timer(stream, LINGER_MS);
	mark_dirty(stream);
}

void stream_close(struct stream *stream)
{
	if (stream->state == STREAM_LEAVING)
		return;
	if (stream->state != STREAM_ENDED)
		stop_turns(stream);
	start_leaving(stream);
}

/* Sends a Failure with the reason to the sender of an invalid message, then closes the stream. */
static void send_reason(struct stream *stream)
{
	Ctl__Failure failure = CTL__FAILURE__INIT;

	failure.error = EPROTO;
	failure.text = stream->why;
	stream->state = STREAM_OPEN;
	stream_send(stream, &ENVELOPE(0, FAILURE, failure, &failure));
	start_leaving(stream);
}

static void report_end(struct stream *stream)
{
	const struct stream_handler *handler = &stream->set->handler;

	handler->ended(handler->ctx, stream, stream->opened, stream->end, stream->why);
	/* The handler may have closed it. */
	if (stream->state != STREAM_ENDED)
		return;
	if (stream->end == CORE_END_BAD && stream->opened)
		send_reason(stream);
	else
		release(stream);
}

void streams_settle(struct streams *set)
{
	while (!list_empty(&set->dirty) || !list_empty(&set->ended)) {
		struct list *node;

		if (!list_empty(&set->dirty)) {
			node = set->dirty.next;
			list_remove(node);
			flush(container_of(node, struct stream, dirty));
		} else {
			node = set->ended.next;
			list_remove(node);
			report_end(container_of(node, struct stream, gone));
		}
	}
	set->handler.settled(set->handler.ctx);
}

/* ---- the set of streams */

struct streams *streams_create(
	struct event_base *base, const struct stream_handler *handler, uint32_t message_ms)
{
	struct streams *set = calloc(1, sizeof(*set));

	if (!set)
		return NULL;
	set->scratch = malloc(WIRE_READ_SIZE);
	if (!set->scratch) {
		free(set);
		return NULL;
	}
	set->base = base;
	set->handler = *handler;
	set->message_ms = message_ms;
	list_init(&set->all);
	list_init(&set->dirty);
	list_init(&set->ended);
	streams_init_turns(set);
	return set;
}

void streams_set_message_ms(struct streams *set, uint32_t message_ms)
{
	set->message_ms = message_ms;
}

void streams_destroy(struct streams *set)
{
	if (!set)
		return;
	while (!list_empty(&set->all))
		release(container_of(set->all.next, struct stream, all));
	event_del(&set->turn);
	free(set->scratch);
	free(set);
}

struct stream *stream_start(struct streams *set, uint64_t id, int fd, SSL *ssl, const char *address)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->in = evbuffer_new();
	stream->out = evbuffer_new();
	stream->id = id;
	if (stream->in && stream->out)
		HASH_ADD(hh, set->by_id, id, sizeof(stream->id), stream);
	if (!hash_added(&stream->hh)) {
		if (stream->in)
			evbuffer_free(stream->in);
		if (stream->out)
			evbuffer_free(stream->out);
		free(stream);
		return NULL;
	}
	stream->set = set;
	stream->local = !*address;
	snprintf(stream->address, sizeof(stream->address), "%s", address);
	wire_init(&stream->wire, fd, ssl, stream->local);
	event_assign(&stream->read, set->base, fd, EV_READ | EV_PERSIST, on_read, stream);
	event_assign(&stream->write, set->base, fd, EV_WRITE, on_write, stream);
	event_assign(&stream->closed, set->base, fd, EV_CLOSED, on_closed, stream);
	evtimer_assign(&stream->timer, set->base, on_timer, stream);
	list_init(&stream->row);
	list_init(&stream->dirty);
	list_init(&stream->gone);
	list_init(&stream->waiting);
	list_init(&stream->waiters);
	list_add_tail(&set->all, &stream->all);
	set->count++;
	set->waiting++;
	stream_set_timer(stream, set->message_ms);
	event_active(&stream->read, EV_READ, 0);
	return stream;
}

bool stream_set_owner(struct stream *stream, uint64_t id)
{
	struct streams *set = stream->set;
	struct owner *owner;

	HASH_FIND(hh, set->owners, &id, sizeof(id), owner);
	if (!owner) {
		owner = calloc(1, sizeof(*owner));
		if (!owner)
			return false;
		owner->id = id;
		list_init(&owner->waiters);
		HASH_ADD(hh, set->owners, id, sizeof(owner->id), owner);
		if (!hash_added(&owner->hh)) {
			free(owner);
			return false;
		}
	}
	owner->streams++;
	stream->owner = owner;
	return true;
}

struct stream *stream_find(const struct streams *set, uint64_t id)
{
	struct stream *stream;

	HASH_FIND(hh, set->by_id, &id, sizeof(id), stream);
	return stream;
}

uint64_t stream_id(const struct stream *stream)
{
	return stream->id;
}

int stream_fd(const struct stream *stream)
{
	return stream->wire.fd;
}

SSL *stream_ssl(const struct stream *stream)
{
	return stream->wire.ssl;
}

const char *stream_address(const struct stream *stream)
{
	return stream->address;
}

size_t streams_count(const struct streams *set)
{
	return set->count;
}

size_t streams_waiting(const struct streams *set)
{
	return set->waiting;
}

void streams_end_oldest_waiting(struct streams *set)
{
	LIST_EACH(struct stream, stream, &set->all, all) {
		if (stream->state != STREAM_HANDSHAKE || stream->local || stream->id & CORE_DIALLED)
			continue;
		stream_end(stream, CORE_END_TLS, "too many connections wait for TLS handshakes");
		return;
	}
}
