/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large messages. They are sent by reference and received in place, except for reductions that the
 * device cannot do. Nothing here waits, allocates or makes a system call, once there are enough
 * staging rings (staging.h).
 *
 * Payload may be sent by reference even if the plan overwrites it before the acknowledgement
 * arrives: the plan overwrites it only with data that the peer computed from it (see plan/plan.h),
 * so the peer has received the whole message by then. If packets of the message are retransmitted
 * later with other bytes, the peer drops them as duplicates without reading them.
 */
#include "collectives/communicator/communicator.h"

#include <errno.h>
#include <inttypes.h>

#include "collectives/communicator/gpu_ops.h"
#include "collectives/net/channel.h"
#include "collectives/net/staging.h"
#include "lib/base/error.h"

/*
 * Packets of a step that may be retained to be forwarded: half of the limit of a software device
 * (lib/engine/offload/loan.h), since a lane may receive further ahead of its sends than another
 * lane.
 */
enum { KEPT_PACKETS = 1024 };

/* Returns the immediate data of a message: its operation and its number in the lane. Between two
 * collectives there may be several SENDs; their index tells them apart. */
static uint32_t tag_of(const struct signature *signature, uint32_t number)
{
	uint32_t operation = signature->number;

	if (signature->coll == FRL_SEND)
		operation += signature->root;
	return (operation & 0xffff) << 16 | (uint32_t)signature->coll << 12 | (number & 0xfff);
}

/* `turn` is separate from the message number, whose wrap at 2^32 would break the order of the
 * rails. */
static struct channel *next_channel(const struct peer *peer, const struct flight *flight)
{
	return peer->channels[flight->turn];
}

/* Returns the length of the lane's next segment, in elements. */
static size_t next_count(const struct lane_work *work)
{
	const struct plan *plan = &work->run->schedule->plan;
	size_t left = plan->steps[work->step].count - work->begun;

	return left < plan->segment ? left : plan->segment;
}

static bool has_room(const struct flight *flight)
{
	return flight->next - flight->first < flight->size;
}

static struct segment *segment_at(const struct flight *flight, uint32_t number)
{
	return &flight->segments[number % flight->size];
}

static struct segment segment_of(const struct lane_work *work, size_t count)
{
	return (struct segment){
		.run = work->run, .step = work->step, .first = work->begun, .count = (uint32_t)count
	};
}

/* Returns the number of the added segment. */
static uint32_t flight_add(
	const struct peer *peer, struct flight *flight, const struct segment *segment)
{
	flight->turn = (flight->turn + 1) % peer->comm->n_rails;
	*segment_at(flight, flight->next) = *segment;
	return flight->next++;
}

static size_t segment_bytes(const struct segment *segment)
{
	return schedule_payload(
		segment->run->schedule, run_step(segment->run, segment->step), segment->count);
}

/* Several rails may complete segments out of order; a step completes elements in order. */
static void flight_settle(struct flight *flight)
{
	while (flight->first != flight->next) {
		struct segment *segment = segment_at(flight, flight->first);

		if (!segment->done)
			return;
		flight->first++;
		run_advance(segment->run, segment->step, segment->count);
	}
}

/* Returns the path MTU of the connection of a step, or 0 if the peer is not connected yet. */
static uint32_t path_mtu(const struct run *run, uint32_t step)
{
	const struct peer *peer = run->comm->peers[run_step(run, step)->peer];
	const struct channel *channel = peer ? peer->channels[0] : NULL;

	return channel ? channel->path_mtu : 0;
}

/*
 * Received packets can be forwarded only over a connection with the same path MTU. A device retains
 * a limited number of packets and discards the oldest first. If waiting_bytes exceed the limit,
 * only the first limit_bytes / waiting_bytes of each step are retained. A segment belongs to that
 * part if its middle does.
 */
static bool is_kept(const struct segment *segment)
{
	const struct run *run = segment->run;
	uint32_t mtu = path_mtu(run, segment->step);
	uint32_t other_mtu = path_mtu(run, run->schedule->forwards[segment->step]);
	double waiting_bytes = (double)run->schedule->forwarding;
	double limit_bytes = (double)KEPT_PACKETS * mtu;
	double elements = (double)run_step(run, segment->step)->count;
	double middle = (double)segment->first + (double)segment->count / 2;

	if (other_mtu && other_mtu != mtu)
		return false;
	return waiting_bytes <= limit_bytes || middle <= elements * limit_bytes / waiting_bytes;
}

/*
 * Returns the token of a step that receives into GPU memory and whose data another step forwards
 * unchanged; both steps have the same token. Returns 0 if packets cannot be forwarded: with several
 * rails, since the other rail is another device and is chosen for each message; for data received
 * into a staging ring; and for a message that resumes in the middle on a new connection.
 */
static uint64_t keep_of(const struct segment *segment, uint32_t skip)
{
	const struct run *run = segment->run;
	uint32_t other = run->schedule->forwards[segment->step];
	uint32_t receive = other < segment->step ? other : segment->step;

	if (!run->compute || skip || other == PLAN_NOTHING || run->comm->n_rails > 1)
		return 0;
	if (run->comm->staging.is_needed && run_step(run, receive)->action == PLAN_REDUCE)
		return 0;
	return is_kept(segment) ? run->token + receive : 0;
}

/* ---- receiving */

/* Posts a receive for a segment of which `skip` bytes have arrived. Posts nothing on a
 * connection that is broken: the next connection does. */
static int post_receive(struct channel *channel, const struct segment *segment, uint32_t skip)
{
	const struct run *run = segment->run;
	const struct plan_step *step = run_step(run, segment->step);
	const struct frl_mr *mr = run->mr[channel->rail][step->target.buffer];
	struct frl_sge sge = { .addr = run_at(run, &step->target, segment->first) + skip,
		.length = (uint32_t)segment_bytes(segment) - skip };
	struct frl_recv_wr wr = {
		.wr_id = work_id(channel, WORK_BULK_RECEIVE, 0),
		.sge = &sge,
		.n_sge = 1,
		.keep = keep_of(segment, skip),
	};
	int err;

	if (channel->state == CHANNEL_FLUSHING)
		return 0;
	if (segment->chunk) {
		sge.addr = segment->chunk + skip;
		mr = channel_ring(channel, run->compute)->mr[channel->rail];
	} else if (step->action == PLAN_REDUCE) {
		wr.action = (struct frl_recv_action){
			.type = FRL_ACTION_REDUCE, .dtype = run->dtype, .op = run->op
		};
		wr.action.src = run_at(run, &step->operand, segment->first) + skip;
		if (wr.action.src == sge.addr)
			wr.action.src = NULL;
		else
			wr.action.src_lkey = frl_mr_lkey(
				run->mr[channel->rail][step->operand.buffer]);
	}
	sge.lkey = frl_mr_lkey(mr);
	err = frl_post_recv(channel->bulk, &wr, 1, NULL);
	return err < 0 ? channel_post_failed(channel, err) : 0;
}

int lane_receive_bulk(struct lane *lane)
{
	struct flight *flight = &lane->peer->receives;

	while (lane->first && has_room(flight)) {
		const struct lane_work *work = lane->first;
		struct channel *channel = next_channel(lane->peer, flight);
		size_t count = next_count(work);
		struct segment segment = segment_of(work, count);
		int err;

		if (channel->receives_posted - channel->receives_done == BULK_RECEIVES ||
			run_limit(work->run, work->step) < work->begun + count)
			return 0;
		if (lane->peer->comm->staging.is_needed &&
			run_step(work->run, work->step)->action == PLAN_REDUCE) {
			err = staging_get_for(channel, work->run->compute, segment_bytes(&segment),
				&segment.chunk);
			if (err || !segment.chunk)
				return err;
			segment.channel = channel;
		}
		err = post_receive(channel, &segment, 0);
		if (err)
			return err;
		channel->receive_numbers[channel->receives_posted++ % BULK_RECEIVES] = flight_add(
			lane->peer, flight, &segment);
		channel_needs_report(channel);
		lane_move(lane, count);
	}
	return 0;
}

/* Returns the peer's signature, as far as the tag of another operation identifies it. */
static struct signature signature_of(uint32_t tag, const struct signature *mine)
{
	struct signature theirs = *mine;
	uint32_t from = mine->number;

	theirs.coll = tag >> 12 & 0xf;
	theirs.count = TRANSFER_UNKNOWN;
	if (mine->coll == FRL_SEND && theirs.coll == FRL_SEND)
		theirs.root += (uint32_t)(int16_t)((tag >> 16) - from - mine->root);
	else
		theirs.number += (uint32_t)(int16_t)((tag >> 16) - from);
	return theirs;
}

/* Checks that a message is of this rank's operation: by the tag, then by the length. */
static int check_segment(struct channel *channel, const struct segment *segment, uint32_t number,
	const struct frl_wc *wc)
{
	const struct run *run = segment->run;
	size_t bytes = segment_bytes(segment);

	if (channel->receives_done == channel->short_at)
		bytes -= channel->short_by;
	if (!(wc->flags & FRL_WC_WITH_IMM))
		return channel_malformed(channel);
	if (wc->imm_data != tag_of(&run->signature, number)) {
		const struct signature theirs = signature_of(wc->imm_data, &run->signature);

		return comm_fail_mismatch(run->comm, channel->peer->rank, &theirs, &run->signature);
	}
	if (wc->byte_len != bytes)
		return comm_fail(run->comm, -EPROTO,
			"rank %d sent %" PRIu32 " bytes where rank %d expected %zu: do all ranks "
			"call the same operations with the same arguments?",
			channel->peer->rank, wc->byte_len, run->comm->rank, bytes);
	return 0;
}

int bulk_received(struct channel *channel, const struct frl_wc *wc)
{
	struct peer *peer = channel->peer;
	uint32_t number = channel->receive_numbers[channel->receives_done % BULK_RECEIVES];
	struct segment *segment = segment_at(&peer->receives, number);
	int err = check_segment(channel, segment, number, wc);

	if (err)
		return err;
	if (channel->receives_done++ == channel->short_at)
		channel->short_by = 0;
	if (segment->chunk) {
		staging_append(&peer->comm->staging, segment);
	} else {
		segment->done = true;
		flight_settle(&peer->receives);
	}
	channel_needs_report(channel);
	lane_wake(peer->comm, &peer->lanes[LANE_RECV_BULK]);
	return 0;
}

static void bulk_reduced(struct segment *segment)
{
	struct peer *peer = segment->channel->peer;

	staging_put_for(
		segment->channel, segment->run->compute, segment->chunk + segment_bytes(segment));
	segment->done = true;
	flight_settle(&peer->receives);
	lane_wake(peer->comm, &peer->lanes[LANE_RECV_BULK]);
}

static void chunk_done(const struct gpu_task *task)
{
	bulk_reduced(task->segment);
}

bool bulk_reduce(struct frl_comm *comm)
{
	struct segment *segment = comm->staging.first;
	const struct gpu_task task = { .done = chunk_done, .segment = segment };
	struct run *run = segment->run;

	if (!run->compute)
		run_place(run, segment->step, segment->first, segment->count, segment->chunk);
	else if (!comm->gpu_ops->act(run, run_step(run, segment->step), segment->first,
			 segment->count, segment->chunk, &task))
		return false;
	staging_take(&comm->staging);
	if (!run->compute)
		bulk_reduced(segment);
	return true;
}

int bulk_resume_receives(struct channel *channel)
{
	const struct flight *flight = &channel->peer->receives;

	for (uint32_t i = channel->receives_done; i != channel->receives_posted; i++) {
		uint32_t number = channel->receive_numbers[i % BULK_RECEIVES];
		int err = post_receive(channel, segment_at(flight, number),
			i == channel->short_at ? channel->short_by : 0);

		if (err)
			return err;
	}
	return 0;
}

/* ---- sending */

/*
 * Requests a completion for every BULK_SIGNALS-th send, for sends that other steps wait for, and at
 * the end of the run's steps in the lane: there for the last sends on each rail.
 */
static bool is_signaled(const struct channel *channel, const struct lane_work *work, size_t count)
{
	const struct schedule *schedule = work->run->schedule;
	size_t after = (channel->peer->comm->n_rails - 1) * schedule->plan.segment;

	if (channel->sends_posted % BULK_SIGNALS == BULK_SIGNALS - 1 ||
		schedule_is_watched(schedule, work->step))
		return true;
	return work->begun + count + after >= schedule->plan.steps[work->step].count &&
		(after > 0 || schedule->next_step[work->step] == PLAN_NOTHING);
}

/* Posts a send of a segment of which the peer has `skip` bytes. As post_receive(). */
static int post_send(struct channel *channel, const struct segment *segment, uint32_t number,
	bool is_signaled, uint32_t skip)
{
	const struct run *run = segment->run;
	const struct plan_range *source = &run_step(run, segment->step)->source;
	struct frl_sge sge = { .addr = run_at(run, source, segment->first) + skip,
		.length = (uint32_t)segment_bytes(segment) - skip };
	struct frl_send_wr wr = {
		.wr_id = work_id(channel, WORK_BULK_SEND, 0),
		.opcode = FRL_WR_SEND_WITH_IMM,
		.flags = is_signaled ? FRL_SEND_SIGNALED : 0,
		.sge = &sge,
		.n_sge = 1,
		.imm_data = tag_of(&run->signature, number),
		.keep = keep_of(segment, skip),
	};
	int err;

	if (channel->state == CHANNEL_FLUSHING)
		return 0;
	sge.lkey = frl_mr_lkey(run->mr[channel->rail][source->buffer]);
	err = frl_post_send(channel->bulk, &wr, 1, NULL);
	run->comm->rails[channel->rail].has_posted = true;
	return err < 0 ? channel_post_failed(channel, err) : 0;
}

static bool may_send(const struct channel *channel)
{
	return channel->sends_posted != channel->credits &&
		channel->sends_posted - channel->sends_done < BULK_SENDS;
}

/* Compares the operations if this rank had not started its own when the peer's header arrived. */
static int check_operation(const struct channel *channel, const struct lane_work *work)
{
	const struct signature *mine = &work->run->signature;
	const struct signature *theirs = &channel->their_operation;

	if (work->begun > 0 || theirs->number != mine->number || theirs->coll == mine->coll)
		return 0;
	if (theirs->coll == FRL_SEND || mine->coll == FRL_SEND)
		return 0;
	return comm_fail_mismatch(work->run->comm, channel->peer->rank, theirs, mine);
}

int lane_send_bulk(struct lane *lane)
{
	struct flight *flight = &lane->peer->sends;

	while (lane->first && has_room(flight)) {
		const struct lane_work *work = lane->first;
		struct channel *channel = next_channel(lane->peer, flight);
		size_t count = next_count(work);
		struct segment segment = segment_of(work, count);
		uint32_t at = channel->sends_posted % BULK_SENDS;
		bool signaled = is_signaled(channel, work, count);
		int err;

		if (!may_send(channel) || run_limit(work->run, work->step) < work->begun + count)
			return 0;
		err = check_operation(channel, work);
		if (!err)
			err = post_send(channel, &segment, flight->next, signaled, 0);
		if (err)
			return err;
		channel->send_signaled[at] = signaled;
		channel->send_numbers[at] = flight_add(lane->peer, flight, &segment);
		channel->sends_posted++;
		lane_move(lane, count);
	}
	return 0;
}

/* Returns whether the send was signaled. */
static bool send_is_done(struct channel *channel)
{
	uint32_t at = channel->sends_done++ % BULK_SENDS;

	segment_at(&channel->peer->sends, channel->send_numbers[at])->done = true;
	return channel->send_signaled[at];
}

int bulk_sent(struct channel *channel)
{
	struct peer *peer = channel->peer;

	/* A completion also completes all sends before it. */
	while (!send_is_done(channel))
		;
	flight_settle(&peer->sends);
	lane_wake(peer->comm, &peer->lanes[LANE_SEND_BULK]);
	return 0;
}

int bulk_resume_sends(struct channel *channel)
{
	const struct resume *theirs = &channel->their_resume;
	struct flight *flight = &channel->peer->sends;
	uint32_t pending = channel->sends_posted - theirs->received;

	/* The peer's NIC acknowledged messages, then failed before it reported them to the peer. */
	if ((int32_t)(theirs->received - channel->sends_done) < 0)
		return comm_fail(channel->peer->comm, -ECONNRESET,
			"rank %d has lost messages that it had received from rank %d, when the "
			"connection "
			"between them broke",
			channel->peer->rank, channel->peer->comm->rank);
	if (theirs->received - channel->sends_done > channel->sends_posted - channel->sends_done ||
		theirs->credits - channel->sends_posted > BULK_RECEIVES ||
		(pending == 0 && theirs->partial > 0))
		return channel_malformed(channel);
	while (channel->sends_done != theirs->received)
		send_is_done(channel);
	/* Headers on the new connection may have reported more credits already. */
	if ((int32_t)(theirs->credits - channel->credits) > 0)
		channel->credits = theirs->credits;
	for (uint32_t i = channel->sends_done; i != channel->sends_posted; i++) {
		uint32_t number = channel->send_numbers[i % BULK_SENDS];
		const struct segment *segment = segment_at(flight, number);
		uint32_t skip = i == channel->sends_done ? theirs->partial : 0;
		int err;

		if (skip > 0 && skip >= segment_bytes(segment))
			return channel_malformed(channel);
		err = post_send(
			channel, segment, number, channel->send_signaled[i % BULK_SENDS], skip);
		if (err)
			return err;
	}
	flight_settle(flight);
	return 0;
}
