/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of messages, checked to the last byte; and a connection with oneself. See row.h. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/caller/row.h"
#include "tests/nccl/caller/unpack.h"

enum { MAX_IN_FLIGHT = NCCL_MAX_REQUESTS * NCCL_MAX_RECVS };

/* One comm's part of a stream. */
struct flow {
	struct slots slots;
	void *requests[MAX_IN_FLIGHT];
	unsigned int width; /* slots of a request */
	unsigned int in_flight;
	unsigned int posted; /* requests */
	unsigned int done;
	unsigned int group; /* sender: of the next message, */
	unsigned int turn;  /* and which of its sends */
};

static unsigned int group_size(const struct stream *stream, unsigned int group)
{
	if (stream->group < 2)
		return 1;
	return stream->is_mixed ? 1 + group % stream->group : stream->group;
}

/* The part that a group's n-th send is for. */
static unsigned int part_of(const struct stream *stream, unsigned int group, unsigned int turn)
{
	unsigned int n = group_size(stream, group);

	return stream->has_same_tags ? turn : (n - 1 - turn + group) % n;
}

static int tag_of(const struct stream *stream, unsigned int group, unsigned int part)
{
	return stream->has_same_tags ? 7 : (int)(100 + 13 * part + 1000 * (group % 3));
}

static size_t size_of(const struct stream *stream, unsigned int group, unsigned int part)
{
	return stream->sizes[(group + part) % stream->n_sizes];
}

static uint64_t key_of(
	const struct stream *stream, unsigned int comm, unsigned int group, unsigned int part)
{
	return stream->key * 0x10001 + ((uint64_t)comm << 48) + ((uint64_t)group << 8) + part;
}

static void open_flow(struct flow *flow, struct side *side, unsigned int comm,
	const struct stream *stream, unsigned int width)
{
	memset(flow, 0, sizeof(*flow));
	flow->width = width;
	flow->in_flight = stream->in_flight;
	if (side->index == 0 && stream->group > 1)
		flow->in_flight *= stream->group;
	slots_create(&flow->slots, flow->in_flight * width, stream->capacity);
	slots_register(&flow->slots, side, side->comms[comm]);
}

static void close_flow(struct flow *flow, struct side *side, unsigned int comm)
{
	for (unsigned int i = 0; side->index == 1 && i < flow->slots.n; i++) {
		slot_take(&flow->slots, i);
		slot_check(&flow->slots, i, 0, "after completion");
	}
	slots_deregister(&flow->slots, side, side->comms[comm]);
	slots_destroy(&flow->slots);
}

/* The group of the n-th request that was sent, and its index there. */
static void locate(const struct stream *stream, unsigned int request, unsigned int *ret_group,
	unsigned int *ret_turn)
{
	unsigned int group = 0;

	if (stream->group < 2 || !stream->is_mixed) {
		group = request / group_size(stream, 0);
		request %= group_size(stream, 0);
	} else {
		while (request >= group_size(stream, group))
			request -= group_size(stream, group++);
	}
	*ret_group = group;
	*ret_turn = request;
}

static bool post_send(
	struct flow *flow, struct side *side, unsigned int comm, const struct stream *stream)
{
	unsigned int slot = flow->posted % flow->in_flight;
	unsigned int part = part_of(stream, flow->group, flow->turn);
	size_t size = size_of(stream, flow->group, part);
	uint8_t *data = slot_data(&flow->slots, slot);

	pattern_fill(slot_at(&flow->slots, slot), size, key_of(stream, comm, flow->group, part));
	slot_give(&flow->slots, slot);
	MUST(plugin_isend(side->net, side->comms[comm], data, size,
		tag_of(stream, flow->group, part), flow->slots.mr, stream->has_events ? side : NULL,
		&flow->requests[slot]));
	if (!flow->requests[slot])
		return false;
	flow->posted++;
	if (++flow->turn == group_size(stream, flow->group)) {
		flow->turn = 0;
		flow->group++;
	}
	return true;
}

static bool end_send(
	struct flow *flow, struct side *side, unsigned int comm, const struct stream *stream)
{
	unsigned int slot = flow->done % flow->in_flight;
	unsigned int group, turn, part;
	int done = 0;
	int size = -1;
	size_t sent;

	MUST(plugin_test(side->net, flow->requests[slot], &done, &size));
	if (!done)
		return false;
	locate(stream, flow->done, &group, &turn);
	part = part_of(stream, group, turn);
	sent = size_of(stream, group, part);
	REQUIRE(size == -1 || (size_t)size == sent, "a send of %zu bytes says it was of %d", sent,
		size);
	slot_take(&flow->slots, slot);
	REQUIRE(pattern_find(slot_at(&flow->slots, slot), sent, key_of(stream, comm, group, part)) <
			0,
		"a buffer that was sent has changed");
	flow->done++;
	return true;
}

static bool post_recv(
	struct flow *flow, struct side *side, unsigned int comm, const struct stream *stream)
{
	unsigned int slot = flow->posted % flow->in_flight;
	unsigned int n = group_size(stream, flow->posted);
	void *data[NCCL_MAX_RECVS], *mrs[NCCL_MAX_RECVS], *parents[NCCL_MAX_RECVS];
	size_t sizes[NCCL_MAX_RECVS];
	int tags[NCCL_MAX_RECVS];
	void *request = stream->is_optional ? NCCL_OPTIONAL_RECV_COMPLETION : NULL;

	for (unsigned int i = 0; i < n; i++) {
		slot_take(&flow->slots, slot * flow->width + i);
		slot_check(&flow->slots, slot * flow->width + i, 0, "after completion");
		data[i] = slot_data(&flow->slots, slot * flow->width + i);
		sizes[i] = stream->capacity;
		tags[i] = tag_of(stream, flow->posted, i);
		mrs[i] = flow->slots.mr;
		parents[i] = stream->has_events ? side : NULL;
	}
	MUST(plugin_irecv(side->net, side->comms[comm], (int)n, data, sizes, tags, mrs,
		stream->has_events ? parents : NULL, &request));
	REQUIRE(request != NCCL_OPTIONAL_RECV_COMPLETION, "irecv left the hint as its request");
	flow->requests[slot] = request;
	if (request)
		flow->posted++;
	return request;
}

static bool end_recv(
	struct flow *flow, struct side *side, unsigned int comm, const struct stream *stream)
{
	unsigned int group = flow->done;
	unsigned int slot = group % flow->in_flight;
	unsigned int n = group_size(stream, group);
	int sizes[NCCL_MAX_RECVS];
	int done = 0;

	memset(sizes, 0xff, sizeof(sizes));
	MUST(plugin_test(side->net, flow->requests[slot], &done, sizes));
	if (!done)
		return false;
	for (unsigned int i = 0; i < n; i++) {
		unsigned int index = slot * flow->width + i;
		size_t size = size_of(stream, group, i);
		ssize_t wrong;

		REQUIRE(stream->is_optional || (size_t)sizes[i] == size,
			"receive %u, part %u: %zu bytes were sent, but it says %d", group, i, size,
			sizes[i]);
		if (flow->slots.gpu)
			unpack_fetch(side->comms[comm], slot_data(&flow->slots, index), size);
		slot_take(&flow->slots, index);
		wrong = pattern_find(
			slot_at(&flow->slots, index), size, key_of(stream, comm, group, i));
		REQUIRE(wrong < 0, "receive %u, part %u of %zu bytes: byte %zd is wrong", group, i,
			size, wrong);
		slot_check(&flow->slots, index, size, "at completion");
		slot_poison(&flow->slots, index);
		slot_give(&flow->slots, index);
	}
	MUST(plugin_consumed(side->net, side->comms[comm], (int)n, flow->requests[slot]));
	flow->done++;
	return true;
}

/* Posts as many as there is room for. Returns whether anything was posted. */
static bool post(
	struct flow *flow, struct side *side, unsigned int comm, const struct stream *stream)
{
	unsigned int old = flow->posted;

	while (flow->posted - flow->done < flow->in_flight) {
		if (side->index == 0 ? flow->group >= stream->n_messages
				     : flow->posted >= stream->n_messages)
			break;
		if (!(side->index == 0 ? post_send : post_recv)(flow, side, comm, stream))
			break;
	}
	return flow->posted != old;
}

static bool is_finished(
	const struct flow *flow, const struct side *side, const struct stream *stream)
{
	if (flow->done < flow->posted)
		return false;
	return (side->index == 0 ? flow->group : flow->done) >= stream->n_messages;
}

/* Fills the window by calls of isend alone: a plugin must not rely on test() for progress. */
static void post_whole(struct flow *flow, struct side *side, const struct stream *stream)
{
	uint64_t until_ns = now_ns() + 5000000000u;

	while (flow->posted < flow->in_flight && now_ns() < until_ns)
		if (!post(flow, side, 0, stream) && side->index == 1)
			break;
	REQUIRE(flow->posted == flow->in_flight, "%s takes %u requests; %u are to be had at once",
		side->index == 0 ? "isend" : "irecv", flow->posted, flow->in_flight);
}

/* The side that posts first reports it; the other one waits for that. */
static void start_stream(struct flow *flows, struct side *side, const struct stream *stream)
{
	unsigned int first = stream->first == FIRST_SEND ? 0 : 1;

	if (stream->first == FIRST_NEITHER)
		return;
	if (first != side->index)
		hear(side, 'p');
	if (stream->is_whole)
		post_whole(&flows[0], side, stream);
	for (unsigned int i = 0; i < side->n_comms; i++)
		post(&flows[i], side, i, stream);
	if (first == side->index)
		say(side, 'p');
}

static void run_stream(struct side *side, const struct stream *stream, unsigned int width,
	bool (*end)(struct flow *, struct side *, unsigned int, const struct stream *))
{
	struct flow *flows = calloc(side->n_comms, sizeof(*flows));
	unsigned int unfinished = side->n_comms;

	REQUIRE(flows, "no memory");
	for (unsigned int i = 0; i < side->n_comms; i++)
		open_flow(&flows[i], side, i, stream, width);
	start_stream(flows, side, stream);
	while (unfinished) {
		bool is_idle = true;

		unfinished = 0;
		for (unsigned int i = 0; i < side->n_comms; i++) {
			if (post(&flows[i], side, i, stream))
				is_idle = false;
			while (flows[i].done < flows[i].posted && end(&flows[i], side, i, stream))
				is_idle = false;
			unfinished += !is_finished(&flows[i], side, stream);
		}
		if (is_idle)
			sched_yield();
	}
	for (unsigned int i = 0; i < side->n_comms; i++)
		close_flow(&flows[i], side, i);
	free(flows);
}

void stream_send(struct side *side, const struct stream *stream)
{
	run_stream(side, stream, 1, end_send);
}

void stream_recv(struct side *side, const struct stream *stream)
{
	run_stream(side, stream, stream->group > 1 ? stream->group : 1, end_recv);
}

void self_connect(struct side *side, void **ret_send, void **ret_recv)
{
	uint64_t handle[NCCL_HANDLE_BYTES / 8] = { 0 };
	void *listen_comm = NULL;

	*ret_send = NULL;
	*ret_recv = NULL;
	MUST(plugin_listen(side->net, side->context, side->dev, handle, &listen_comm));
	while (!*ret_send || !*ret_recv) {
		if (!*ret_send)
			MUST(plugin_connect(side->net, side->context, side->dev, handle, ret_send));
		if (!*ret_recv)
			MUST(plugin_accept(side->net, listen_comm, ret_recv));
	}
	MUST(plugin_close_listen(side->net, listen_comm));
}

void self_transfer(struct side *side, void *send, void *recv, size_t size)
{
	struct slots from, to;
	void *sending = NULL, *receiving = NULL;
	void *data;
	int tag = 1, sent = 0, received = 0, bytes = -1;

	slots_create(&from, 1, size);
	slots_create(&to, 1, size);
	slots_register(&from, side, send);
	slots_register(&to, side, recv);
	pattern_fill(slot_at(&from, 0), size, size);
	slot_give(&from, 0);
	data = slot_data(&to, 0);
	while (!sent || !received) {
		if (!receiving)
			MUST(plugin_irecv(
				side->net, recv, 1, &data, &size, &tag, &to.mr, NULL, &receiving));
		if (!sending)
			MUST(plugin_isend(side->net, send, slot_data(&from, 0), size, tag, from.mr,
				NULL, &sending));
		if (sending && !sent)
			MUST(plugin_test(side->net, sending, &sent, NULL));
		if (receiving && !received)
			MUST(plugin_test(side->net, receiving, &received, &bytes));
	}
	REQUIRE((size_t)bytes == size, "%zu bytes were sent, but the receive says %d", size, bytes);
	if (to.gpu)
		unpack_fetch(recv, slot_data(&to, 0), size);
	slot_take(&to, 0);
	REQUIRE(pattern_find(slot_at(&to, 0), size, size) < 0, "wrong bytes");
	slot_check(&to, 0, size, "at completion");
	MUST(plugin_consumed(side->net, recv, 1, receiving));
	slots_deregister(&from, side, send);
	slots_deregister(&to, side, recv);
	slots_destroy(&from);
	slots_destroy(&to);
}

void self_try(struct side *side, size_t size)
{
	void *send, *recv;

	self_connect(side, &send, &recv);
	self_transfer(side, send, recv, size);
	MUST(plugin_close_send(side->net, send));
	MUST(plugin_close_recv(side->net, recv));
}
