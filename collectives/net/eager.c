/* SPDX-License-Identifier: BSD-3-Clause */
/* Small messages, and the credits and free slots that their headers report. */
#include "collectives/communicator/communicator.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "collectives/net/channel.h"
#include "lib/base/error.h"
#include "lib/base/memory/copy.h"

enum eager_type {
	EAGER_PAYLOAD = 1, /* payload of a step */
	EAGER_REPORT,      /* a header without payload */
	EAGER_PROBE,       /* the same, with the operation that the sender is in */
	/* the same, for a transfer whose length each end gives: `count` is the sender's, in
	 * elements, `op` the direction, enum transfer_way */
	EAGER_LENGTH,
};

/* Header of every message. Numbers are big-endian. */
struct eager_header {
	uint32_t type_bytes; /* type in the upper 8 bits, length of the payload in the others */
	uint32_t credits;    /* bulk receives posted */
	uint32_t returned;   /* free slots of messages with payload */
	uint32_t number;     /* of the operation; this field and those below are its signature */
	uint8_t coll, dtype, op, wire;
	uint32_t root;
	uint64_t count;
};

_Static_assert(sizeof(struct eager_header) == EAGER_HEADER, "the header has no holes");

static void header_init(struct eager_header *header, const struct channel *channel,
	enum eager_type type, const struct signature *signature, size_t bytes)
{
	*header = (struct eager_header){
		.type_bytes = htobe32((uint32_t)type << 24 | (uint32_t)bytes),
		.credits = htobe32(channel->receives_posted),
		.returned = htobe32(channel->arrivals_taken),
	};
	if (!signature)
		return;
	header->number = htobe32(signature->number);
	header->coll = signature->coll;
	header->dtype = signature->dtype;
	header->op = signature->op;
	header->wire = signature->wire;
	header->root = htobe32(signature->root);
	header->count = htobe64(signature->count);
}

static struct signature signature_of(const struct eager_header *header)
{
	return (struct signature){
		.number = be32toh(header->number),
		.coll = header->coll,
		.dtype = header->dtype,
		.op = header->op,
		.wire = header->wire,
		.root = be32toh(header->root),
		.count = be64toh(header->count),
	};
}

/* ---- sending */

static bool has_room(const struct channel *channel)
{
	return channel->eager_posted - channel->eager_acked < EAGER_SENDS;
}

static uint8_t *send_slot(const struct channel *channel, uint32_t number)
{
	return channel->slots + (size_t)(EAGER_RECEIVES + number % EAGER_DATA) * EAGER_SLOT;
}

static int post_pieces(
	struct channel *channel, struct frl_sge sges[], int n, bool is_inline, bool is_signaled)
{
	struct frl_send_wr wr = {
		.wr_id = work_id(channel, WORK_EAGER_SEND, channel->eager_posted % EAGER_SENDS),
		.opcode = FRL_WR_SEND,
		.flags = is_inline ? FRL_SEND_INLINE : 0,
		.sge = sges,
		.n_sge = n,
	};
	int err;

	if (channel->state == CHANNEL_FLUSHING)
		return 0; /* the next connection repeats it */
	if (is_signaled || channel->eager_posted % EAGER_SIGNALS == EAGER_SIGNALS - 1 ||
		channel->peer->comm->draining)
		wr.flags |= FRL_SEND_SIGNALED;
	err = frl_post_send(channel->eager, &wr, 1, NULL);
	if (err < 0)
		return channel_post_failed(channel, err);
	channel->eager_posted++;
	if (wr.flags & FRL_SEND_SIGNALED)
		channel->eager_signaled = channel->eager_posted;
	channel->reported_credits = channel->receives_posted;
	channel->reported_returned = channel->arrivals_taken;
	channel->peer->comm->rails[channel->rail].has_posted = true;
	return 0;
}

/* A slot is reused when the peer has freed one for the message in it. */
static int post_slot(struct channel *channel, uint32_t number, size_t bytes)
{
	struct frl_sge sge = { .addr = send_slot(channel, number),
		.length = (uint32_t)(EAGER_HEADER + bytes),
		.lkey = frl_mr_lkey(channel->mr) };

	return post_pieces(channel, &sge, 1, false, false);
}

/*
 * Short messages are sent inline, others from a slot; the caller's buffer is free again in both
 * cases. With several rails all messages are sent from slots, since another rail may have to repeat
 * them.
 */
static int post_payload(struct channel *channel, const struct signature *signature,
	const uint8_t *payload, size_t bytes)
{
	struct eager_header header;
	struct frl_sge sges[2] = {
		{ .addr = &header, .length = EAGER_HEADER },
		{ .addr = (uint8_t *)(uintptr_t)payload,
			.length = (uint32_t)bytes }, /* only read */
	};
	uint8_t *slot = send_slot(channel, channel->data_sent);

	header_init(&header, channel, EAGER_PAYLOAD, signature, bytes);
	if (EAGER_HEADER + bytes <= channel->max_inline && channel->peer->comm->n_rails == 1)
		return post_pieces(channel, sges, 2, true, false);
	memcpy(slot, &header, EAGER_HEADER);
	copy_bulk(slot + EAGER_HEADER, payload, bytes);
	return post_slot(channel, channel->data_sent, bytes);
}

int lane_send_eager(struct lane *lane)
{
	struct channel *channel = lane->peer->channels[0];

	while (lane->first) {
		const struct lane_work *work = lane->first;
		struct run *run = work->run;
		uint32_t number = work->step;
		const struct plan_step *step = run_step(run, number);
		int err;

		if (!has_room(channel) ||
			channel->data_sent - channel->data_returned == EAGER_DATA ||
			run_limit(run, number) < step->count)
			return 0;
		err = post_payload(channel, &run->signature, run_at(run, &step->source, 0),
			schedule_bytes(run->schedule, &step->source, step->count));
		if (err)
			return err;
		channel->data_sent++;
		lane_move(lane, step->count);
		run_advance(run, number, step->count);
	}
	return 0;
}

int eager_sent(struct channel *channel, uint32_t slot)
{
	struct peer *peer = channel->peer;

	/* A completion also completes all sends before it. */
	channel->eager_acked += (slot + 1 - channel->eager_acked) % EAGER_SENDS;
	if ((int32_t)(channel->eager_acked - channel->reported_alone_at) >= 0)
		channel->is_reporting = false;
	channel_needs_report(channel);
	lane_wake(peer->comm, &peer->lanes[LANE_SEND_EAGER]);
	return 0;
}

static int post_alone(
	struct channel *channel, enum eager_type type, const struct signature *signature)
{
	/* At most one such header is under way, so one slot is enough when it is not inline. */
	uint8_t *slot = channel->slots + (size_t)(EAGER_RECEIVES + EAGER_DATA) * EAGER_SLOT;
	struct eager_header header;
	struct frl_sge sge = {
		.addr = slot, .length = EAGER_HEADER, .lkey = frl_mr_lkey(channel->mr)
	};
	int err;

	header_init(&header, channel, type, signature, 0);
	memcpy(slot, &header, EAGER_HEADER);
	err = post_pieces(channel, &sge, 1, EAGER_HEADER <= channel->max_inline, true);
	if (err)
		return err;
	channel->is_reporting = true;
	channel->reported_alone_at = channel->eager_posted;
	return 0;
}

/* Sends the operation of this rank, with the length if each end gives its own. */
static int post_operation(struct channel *channel, const struct run *run, enum transfer_way way)
{
	struct signature signature = run->signature;
	const struct transfer *mine = transfer_find(channel->peer, way, &signature);

	if (!mine)
		return post_alone(channel, EAGER_PROBE, &signature);
	signature.op = (uint8_t)way;
	signature.count = mine->count;
	return post_alone(channel, EAGER_LENGTH, &signature);
}

void channel_needs_report(struct channel *channel)
{
	struct frl_comm *comm = channel->peer->comm;

	if (channel->needs_report)
		return;
	channel->needs_report = true;
	channel->next_report = comm->reports_due;
	comm->reports_due = channel;
}

/*
 * Sends a header without payload only if the peer is short of credits or slots. The peer cannot
 * stall by that: each message from it leads to another check. At most one such header is under way,
 * because the peer has few receives for them; the check is repeated when it is acknowledged.
 */
int channel_report(struct channel *channel)
{
	const struct flight *receives = &channel->peer->receives;
	bool needs_credits = channel->receives_posted != channel->reported_credits &&
		channel->reported_credits - channel->receives_done <= BULK_RECEIVES / 2;
	bool needs_slots = channel->arrivals_taken - channel->reported_returned >= EAGER_DATA / 2;

	if (channel->state != CHANNEL_UP || channel->is_reporting || !has_room(channel) ||
		!(needs_credits || needs_slots))
		return 0;
	/* Include the operation that the credits are for, so that the peer can detect a
	 * mismatch. */
	if (needs_credits && receives->first != receives->next)
		return post_operation(channel,
			receives->segments[(receives->next - 1) % receives->size].run,
			TRANSFER_RECEIVED);
	return post_alone(channel, EAGER_REPORT, NULL);
}

int channel_probe(struct channel *channel, const struct run *run, enum transfer_way way)
{
	if (channel->state != CHANNEL_UP || channel->is_reporting || !has_room(channel))
		return 0;
	return post_operation(channel, run, way);
}

int channel_ping(struct channel *channel)
{
	if (channel->state != CHANNEL_UP || channel->is_reporting || !has_room(channel))
		return 0;
	return post_alone(channel, EAGER_REPORT, NULL);
}

/* ---- receiving */

/* Posts nothing on a broken connection: the next one posts all slots that are free then. */
static int post_receive(struct channel *channel, uint32_t slot)
{
	struct frl_sge sge = {
		.addr = channel->slots + (size_t)slot * EAGER_SLOT,
		.length = EAGER_SLOT,
		.lkey = frl_mr_lkey(channel->mr),
	};
	struct frl_recv_wr wr = {
		.wr_id = work_id(channel, WORK_EAGER_RECEIVE, slot), .sge = &sge, .n_sge = 1
	};
	int err;

	if (channel->state == CHANNEL_FLUSHING)
		return 0;
	err = frl_post_recv(channel->eager, &wr, 1, NULL);
	return err < 0 ? channel_post_failed(channel, err) : 0;
}

/* Posts all free slots. Slots of an earlier connection may hold messages that are not taken yet. */
int eager_post_receives(struct channel *channel)
{
	bool is_taken[EAGER_RECEIVES] = { false };

	for (uint32_t i = channel->arrivals_taken; i != channel->arrivals_received; i++)
		is_taken[channel->arrivals[i % EAGER_DATA].slot] = true;
	for (uint32_t slot = 0; slot < EAGER_RECEIVES; slot++) {
		int err = is_taken[slot] ? 0 : post_receive(channel, slot);

		if (err)
			return err;
	}
	return 0;
}

static const struct eager_header *header_at(const struct channel *channel, uint32_t slot)
{
	return (const struct eager_header *)(const void *)(channel->slots +
		(size_t)slot * EAGER_SLOT);
}

int eager_resume_sends(struct channel *channel)
{
	const struct resume *theirs = &channel->their_resume;

	if (channel->data_sent - theirs->arrived > EAGER_DATA ||
		theirs->arrived - theirs->returned > EAGER_DATA)
		return channel_malformed(channel);
	/* Headers on the new connection may have reported more already. */
	if ((int32_t)(theirs->returned - channel->data_returned) > 0)
		channel->data_returned = theirs->returned;
	for (uint32_t i = theirs->arrived; i != channel->data_sent; i++) {
		struct eager_header *header = (struct eager_header *)(void *)send_slot(channel, i);
		int err;

		/* Refresh stale credits before resending. */
		header->credits = htobe32(channel->receives_posted);
		header->returned = htobe32(channel->arrivals_taken);
		err = post_slot(channel, i, be32toh(header->type_bytes) & 0xffffff);
		if (err)
			return err;
	}
	return 0;
}

/* Returns the count of a message. The header of an ALLTOALLV has no count. */
static uint64_t count_of(const struct signature *theirs, size_t bytes)
{
	size_t size = frl_dtype_size((enum frl_dtype)theirs->dtype);

	if (theirs->coll == FRL_SEND)
		return theirs->count;
	return theirs->wire == FRL_WIRE_SAME && size > 0 && bytes % size == 0 ? bytes / size
									      : TRANSFER_UNKNOWN;
}

/* Compares a small message with this rank's transfer. */
static int compare_arrival(struct peer *peer, const struct signature *theirs, size_t bytes)
{
	const struct transfer transfer = { .number = theirs->number,
		.index = theirs->root,
		.coll = theirs->coll,
		.dtype = theirs->dtype,
		.wire = theirs->wire,
		.count = count_of(theirs, bytes),
		.bytes = bytes };

	if (!signature_has_two_lengths(theirs->coll))
		return 0;
	return transfer_compare(peer, TRANSFER_RECEIVED, &transfer);
}

static int check_arrival(const struct run *run, struct peer *peer,
	const struct eager_header *header, size_t bytes, size_t expected)
{
	struct signature theirs = signature_of(header);
	int err = 0;

	if (memcmp(&theirs, &run->signature, sizeof(theirs)) == 0 && bytes == expected)
		return 0;
	err = compare_arrival(peer, &theirs, bytes);
	if (err)
		return err;
	/* Prefer an error text that names this rank's own operation of that number. */
	err = comm_compare(run->comm, peer->rank, &theirs);
	if (err)
		return err;
	if (memcmp(&theirs, &run->signature, sizeof(theirs)) != 0)
		return comm_fail_mismatch(run->comm, peer->rank, &theirs, &run->signature);
	return comm_fail(run->comm, -EPROTO,
		"rank %d sent %zu bytes where %zu were expected: do all ranks use the same "
		"Ferrule with the same settings?",
		peer->rank, bytes, expected);
}

int channel_check_arrivals(struct channel *channel)
{
	struct peer *peer = channel->peer;
	const struct arrival *first = &channel->arrivals[channel->arrivals_taken % EAGER_DATA];
	const struct eager_header *header = header_at(channel, first->slot);
	struct signature theirs;

	if (channel->arrivals_taken == channel->arrivals_received ||
		peer->lanes[LANE_RECV_EAGER].first || !signature_has_two_lengths(header->coll))
		return 0;
	theirs = signature_of(header);
	return compare_arrival(peer, &theirs, first->bytes);
}

int lane_receive_eager(struct lane *lane)
{
	struct channel *channel = lane->peer->channels[0];

	while (lane->first && channel->arrivals_taken != channel->arrivals_received) {
		const struct lane_work *work = lane->first;
		struct run *run = work->run;
		uint32_t number = work->step;
		const struct plan_step *step = run_step(run, number);
		const struct arrival *arrival =
			&channel->arrivals[channel->arrivals_taken % EAGER_DATA];
		const struct eager_header *header = header_at(channel, arrival->slot);
		int err = check_arrival(run, lane->peer, header, arrival->bytes,
			schedule_bytes(run->schedule, &step->target, step->count));

		if (err)
			return err;
		if (run_limit(run, number) < step->count)
			return 0;
		run_place(run, number, 0, step->count, (const uint8_t *)(header + 1));
		err = post_receive(channel, arrival->slot);
		if (err)
			return err;
		channel->arrivals_taken++;
		channel_needs_report(channel);
		lane_move(lane, step->count);
		run_advance(run, number, step->count);
	}
	return 0;
}

int channel_malformed(const struct channel *channel)
{
	return comm_fail(channel->peer->comm, -EPROTO,
		"rank %d sent a malformed message: use the same Ferrule on all ranks",
		channel->peer->rank);
}

/* Takes credits and free slots. Both only grow, up to the number that exist. */
static int take_report(struct channel *channel, const struct eager_header *header)
{
	uint32_t credits = be32toh(header->credits), returned = be32toh(header->returned);
	struct peer *peer = channel->peer;

	if ((int32_t)(credits - channel->credits) < 0 ||
		credits - channel->sends_posted > BULK_RECEIVES ||
		(int32_t)(returned - channel->data_returned) < 0 ||
		(int32_t)(channel->data_sent - returned) < 0)
		return channel_malformed(channel);
	if (credits != channel->credits)
		lane_wake(peer->comm, &peer->lanes[LANE_SEND_BULK]);
	if (returned != channel->data_returned)
		lane_wake(peer->comm, &peer->lanes[LANE_SEND_EAGER]);
	channel->credits = credits;
	channel->data_returned = returned;
	return 0;
}

/* Compares lengths. The direction is the opposite one at this end. */
static int take_length(struct channel *channel, const struct signature *theirs)
{
	const struct transfer transfer = { .number = theirs->number,
		.index = theirs->root,
		.coll = theirs->coll,
		.dtype = theirs->dtype,
		.wire = theirs->wire,
		.count = theirs->count };

	if (theirs->op >= TRANSFER_WAYS || theirs->count == TRANSFER_UNKNOWN ||
		!signature_has_two_lengths(theirs->coll))
		return channel_malformed(channel);
	return transfer_compare(channel->peer,
		theirs->op == TRANSFER_SENT ? TRANSFER_RECEIVED : TRANSFER_SENT, &transfer);
}

static int take_operation(
	struct channel *channel, const struct signature *reported, bool has_length)
{
	struct peer *peer = channel->peer;
	struct signature theirs = *reported;
	int err;

	if (has_length)
		theirs.op = theirs.count = 0;
	channel->their_operation = theirs;
	err = comm_compare(peer->comm, peer->rank, &theirs);
	return err || !has_length ? err : take_length(channel, reported);
}

int eager_received(struct channel *channel, const struct frl_wc *wc, uint32_t slot)
{
	const struct eager_header *header = header_at(channel, slot);
	struct peer *peer = channel->peer;
	struct signature signature;
	uint32_t bytes;
	int err;

	if (wc->byte_len < EAGER_HEADER)
		return channel_malformed(channel);
	bytes = be32toh(header->type_bytes) & 0xffffff;
	if (wc->byte_len != EAGER_HEADER + bytes)
		return channel_malformed(channel);
	err = take_report(channel, header);
	if (err)
		return err;
	switch (be32toh(header->type_bytes) >> 24) {
	case EAGER_PAYLOAD:
		if (bytes == 0 ||
			channel->arrivals_received - channel->arrivals_taken == EAGER_DATA)
			return channel_malformed(channel);
		channel->arrivals[channel->arrivals_received++ % EAGER_DATA] = (struct arrival){
			.slot = (uint8_t)slot, .bytes = bytes
		};
		lane_wake(peer->comm, &peer->lanes[LANE_RECV_EAGER]);
		return channel_check_arrivals(channel);
	case EAGER_PROBE:
	case EAGER_LENGTH:
		signature = signature_of(header);
		err = take_operation(
			channel, &signature, be32toh(header->type_bytes) >> 24 == EAGER_LENGTH);
		return err ? err : post_receive(channel, slot);
	case EAGER_REPORT: return post_receive(channel, slot);
	}
	return channel_malformed(channel);
}
