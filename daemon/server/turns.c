/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scheduling of messages: streams take turns, from two queues. Each stream in `quick` has one turn
 * a round. Streams whose last turn was long, or left messages over, are in `busy` and share some
 * milliseconds a round. Between rounds the loop polls for other events. So a client with few
 * requests waits for at most one round, whatever others do.
 */
#include <event2/buffer.h>

#include "daemon/server/stream_internal.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/control/frame.h"

enum {
	TURN_MESSAGES = 16,
	TURN_BYTES = 1 << 18,
	HEAVY_NS = 500000,     /* a longer turn moves the stream to `busy` */
	HEAVY_BYTES = 1 << 16, /* as does a longer message */
	ROUND_NS = 5000000,    /* for `busy`, a round */
	OUT_HOLD = 1 << 18,    /* a local client must read its output before it is read again */
	/* For the long messages of one owner: those of more than HEAVY_BYTES. */
	OWNER_ROOM = 32 << 20,
	/* Bytes queued for another daemon before senders must wait. */
	PEER_HOLD = 2 << 20,
};

static void wake_rows(struct streams *set)
{
	struct timeval at_once = { 0, 0 };

	/* A timer, so that the loop polls for other events first. */
	if (!evtimer_pending(&set->turn, NULL))
		event_add(&set->turn, &at_once);
}

void stream_queue_turn(struct stream *stream)
{
	struct streams *set = stream->set;

	event_del(&stream->read);
	list_remove(&stream->row);
	list_add_tail(stream->heavy ? &set->busy : &set->quick, &stream->row);
	wake_rows(set);
}

/* Returns the length of the first frame; 0 if it is incomplete. */
static int next_frame(struct stream *stream)
{
	size_t limit = stream->identified ? FRAME_MAX : FRAME_MAX_STRANGER;
	size_t size = evbuffer_get_length(stream->in);
	uint8_t header[FRAME_HEADER] = { 0 };
	int length;

	evbuffer_copyout(stream->in, header, sizeof(header));
	length = frame_length(header, size, limit);
	if (length >= 0)
		return length;
	if (!stream->identified && !stream->local && header[0] == 0x16 && header[1] == 3)
		stream_end(stream, CORE_END_BAD, "it speaks TLS, which is not configured here");
	else
		stream_end(stream, CORE_END_BAD, "its message is longer than the %zu bytes allowed",
			limit);
	return 0;
}

/* ---- streams of other daemons */

bool stream_has_room(const struct stream *stream, size_t size)
{
	return evbuffer_get_length(stream->out) + size <= PEER_HOLD;
}

static void wait_for(struct stream *stream, struct stream *full, size_t wants)
{
	stream->full = full;
	stream->wants = wants;
	list_add_tail(&full->waiters, &stream->waiting);
	event_add(&stream->closed, NULL);
}

void stream_block_sender(struct stream *stream)
{
	struct stream *taken = stream->set->taken;

	if (taken && taken->local && taken->state == STREAM_OPEN && !taken->full &&
		!stream_has_room(stream, 0))
		wait_for(taken, stream, 0);
}

void stream_wake_waiters(struct stream *stream)
{
	bool is_open = stream->state == STREAM_OPEN;
	size_t coming = 0;

	/* Wait until half of the room is free. */
	if (is_open && !stream_has_room(stream, PEER_HOLD / 2))
		return;
	while (!list_empty(&stream->waiters)) {
		struct stream *first = container_of(stream->waiters.next, struct stream, waiting);

		coming += first->wants;
		if (is_open && !stream_has_room(stream, coming))
			return;
		list_remove(&first->waiting);
		first->full = NULL;
		event_del(&first->closed);
		stream_queue_turn(first);
	}
}

/* ---- long messages */

/* Reserves room for the next message by the length in its header. Returns false if there is
 * none. */
static bool take_room(struct stream *stream)
{
	struct owner *owner = stream->owner;
	uint8_t header[FRAME_HEADER] = { 0 };
	size_t size;

	if (!owner || stream->taken)
		return true;
	evbuffer_copyout(stream->in, header, sizeof(header));
	size = get_be32(header);
	if (size <= HEAVY_BYTES)
		return true;
	if (owner->taken + size > OWNER_ROOM)
		return false;
	owner->taken += size;
	stream->taken = size;
	return true;
}

void stream_release_room(struct stream *stream)
{
	struct owner *owner = stream->owner;

	if (!stream->taken)
		return;
	owner->taken -= stream->taken;
	stream->taken = 0;
	while (!list_empty(&owner->waiters)) {
		struct stream *first = container_of(owner->waiters.next, struct stream, waiting);

		if (!take_room(first))
			return;
		list_remove(&first->waiting);
		event_del(&first->closed);
		stream_resume_reading(first, true);
	}
}

/* ---- messages */

static void take_message(struct stream *stream, int length)
{
	const struct stream_handler *handler = &stream->set->handler;
	const uint8_t *frame = evbuffer_pullup(stream->in, length);
	const char *why = "no memory for its message";
	Ctl__Envelope *envelope = frame ? frame_unpack(frame, (size_t)length, &why) : NULL;
	struct stream *full = NULL;
	int fd = -1;

	if (!envelope) {
		stream_end(stream, CORE_END_BAD, "%s", why);
		return;
	}
	if (stream->local)
		full = handler->blocked_by(handler->ctx, stream, envelope, (size_t)length);
	if (full) {
		/* The message stays in the buffer, packed. */
		wait_for(stream, full, (size_t)length);
		ctl__envelope__free_unpacked(envelope, NULL);
		return;
	}
	evbuffer_drain(stream->in, (size_t)length);
	stream_release_room(stream);
	if (envelope->body_case == CTL__ENVELOPE__BODY_DESCRIBE_PORT)
		fd = wire_take_fd(&stream->wire);
	stream->set->taken = stream;
	handler->message(handler->ctx, stream, envelope, fd);
	stream->set->taken = NULL;
	ctl__envelope__free_unpacked(envelope, NULL);
	stream->identified = true;
}

/* Called after a turn that left no message over. */
void stream_resume_reading(struct stream *stream, bool began_anew)
{
	struct streams *set = stream->set;

	if (stream->wire.passed >= 0 && evbuffer_get_length(stream->in) == 0) {
		stream_end(stream, CORE_END_BAD, "it sent a descriptor without a message for it");
		return;
	}
	if (!take_room(stream)) {
		list_add_tail(&stream->owner->waiters, &stream->waiting);
		event_del(&stream->timer);
		stream->timed = false;
		event_add(&stream->closed, NULL);
		return;
	}
	if (evbuffer_get_length(stream->in) == 0) {
		event_del(&stream->timer);
		stream->timed = false;
	} else if (began_anew || !stream->timed) {
		stream_set_timer(stream, set->message_ms);
		stream->timed = true;
	}
	if (wire_has_more(&stream->wire))
		event_active(&stream->read, EV_READ, 0);
	else
		event_add(&stream->read, NULL);
}

static void take_turn(struct stream *stream)
{
	uint64_t began_ns = clock_now_ns();
	int length = 0, messages = 0;
	size_t bytes = 0;

	while (stream->state == STREAM_OPEN) {
		stream->throttled = stream->local && evbuffer_get_length(stream->out) > OUT_HOLD;
		if (stream->throttled || stream->full) {
			event_del(&stream->timer);
			stream->timed = false;
			return;
		}
		length = next_frame(stream);
		if (!length || messages == TURN_MESSAGES || bytes >= TURN_BYTES)
			break;
		/* A long message is taken in a turn of `busy`. */
		if (length > HEAVY_BYTES && !stream->heavy)
			break;
		take_message(stream, length);
		bytes += (size_t)length;
		messages++;
	}
	if (stream->state != STREAM_OPEN)
		return;
	stream->heavy = length || clock_now_ns() - began_ns > HEAVY_NS;
	if (length) {
		event_del(&stream->timer);
		stream->timed = false;
		stream_queue_turn(stream);
	} else {
		stream_resume_reading(stream, messages > 0);
	}
}

/* Gives the first stream of the queue its turn, and processes the results. */
static void next_turn(struct streams *set, struct list *row)
{
	struct stream *stream = container_of(row->next, struct stream, row);

	list_remove(&stream->row);
	take_turn(stream);
	streams_settle(set);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct streams *set = arg;
	struct list now;
	uint64_t began_ns;

	list_init(&now);
	while (!list_empty(&set->quick)) {
		struct list *node = set->quick.next;

		list_remove(node);
		list_add_tail(&now, node);
	}
	while (!list_empty(&now))
		next_turn(set, &now);
	began_ns = clock_now_ns();
	while (!list_empty(&set->busy) && clock_now_ns() - began_ns < ROUND_NS)
		next_turn(set, &set->busy);
	if (!list_empty(&set->quick) || !list_empty(&set->busy))
		wake_rows(set);
}

void streams_init_turns(struct streams *set)
{
	list_init(&set->quick);
	list_init(&set->busy);
	evtimer_assign(&set->turn, set->base, on_turn, set);
}

bool stream_has_read_output(const struct stream *stream)
{
	return evbuffer_get_length(stream->out) <= OUT_HOLD / 2;
}
