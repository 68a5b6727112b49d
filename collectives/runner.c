/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs the plans of the requests over the lanes: posts receives and sends in the order of the plans
 * and handles what completes. Never waits, allocates or makes a system call while all goes well.
 *
 * Why payload may be sent by reference although the all-gather overwrites what the reduce-scatter
 * sent, perhaps before the acknowledgement came: the final value of a segment is the sum of all
 * ranks, so it can only exist after the next rank has received our message about that segment whole
 * and passed it on. If packets of that message are sent again later, with other bytes in them, the
 * next rank has accepted their sequence numbers before and drops them as duplicates, unread.
 */
#include "collectives/communicator.h"

#include <errno.h>
#include <inttypes.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	CLOCK_EVERY = 32,         /* idle polls between two looks at the clock */
	CHECK_EVERY_NS = 5000000, /* between two questions to the bootstrap while nothing happens */
	BUSY_TRIES = 10000,
};

/* Which queue a completion belongs to; the rest of a wr_id is the lane and a sequence number. */
enum work_kind {
	WORK_DATA_SEND,
	WORK_DATA_RECEIVE,
	WORK_CREDIT_SEND,
	WORK_CREDIT_RECEIVE,
};

static uint64_t work_id(enum work_kind kind, const struct lane *lane, uint32_t sequence)
{
	return (uint64_t)kind << 48 | (uint64_t)lane->number << 32 | sequence;
}

static enum work_kind work_kind(uint64_t wr_id)
{
	return (enum work_kind)(wr_id >> 48);
}

static struct lane *work_lane(struct frl_comm *comm, uint64_t wr_id)
{
	return &comm->lane[wr_id >> 32 & 0xffff];
}

static bool on_out(enum work_kind kind)
{
	return kind == WORK_DATA_SEND || kind == WORK_CREDIT_RECEIVE;
}

static uint64_t sends_of(const struct frl_request *request, unsigned lane)
{
	return request->work[lane].plan.sends;
}

static uint64_t receives_of(const struct frl_request *request, unsigned lane)
{
	return request->work[lane].plan.receives;
}

/* Leaves requests behind that have no message left for the cursor. Every active request has
 * messages on lane 0, so none completes before its predecessors, but perhaps none on lane 1. */
static void settle(struct cursor *cursor, const struct lane *lane,
	uint64_t (*messages_of)(const struct frl_request *request, unsigned lane))
{
	while (cursor->request && cursor->index == messages_of(cursor->request, lane->number)) {
		cursor->request = cursor->request->next;
		cursor->index = 0;
	}
}

static void advance(struct cursor *cursor, const struct lane *lane,
	uint64_t (*messages_of)(const struct frl_request *request, unsigned lane))
{
	cursor->index++;
	settle(cursor, lane, messages_of);
}

static int post_failed(struct lane *lane, int peer, int err)
{
	return comm_fail(lane->comm, err, "posting to the connection to rank %d: %s", peer,
		frl_last_error());
}

/* Posting, receiving side */

static int post_receive(struct lane *lane)
{
	struct frl_request *request = lane->post.request;
	struct ring_receive receive;
	struct frl_sge sge;
	struct frl_recv_wr wr;
	int err;

	ring_plan_receive(&request->work[lane->number].plan, lane->post.index, &receive);
	sge = (struct frl_sge){
		.addr = request->buffer[RING_RECV_BUFFER] + receive.offset * request->elem_size,
		.length = (uint32_t)(receive.count * request->elem_size),
		.lkey = frl_mr_lkey(request->mr[RING_RECV_BUFFER]),
	};
	wr = (struct frl_recv_wr){
		.wr_id = work_id(WORK_DATA_RECEIVE, lane, lane->receives_posted),
		.sge = &sge,
		.n_sge = 1,
	};
	if (receive.action == RING_REDUCE) {
		wr.action = (struct frl_recv_action){
			.type = FRL_ACTION_REDUCE, .dtype = request->dtype, .op = request->op
		};
		if (receive.operand == RING_SEND_BUFFER) {
			wr.action.src = request->buffer[RING_SEND_BUFFER] +
				receive.offset * request->elem_size;
			wr.action.src_lkey = frl_mr_lkey(request->mr[RING_SEND_BUFFER]);
		}
	}
	err = frl_post_recv(lane->in, &wr, 1, NULL);
	if (err < 0)
		return post_failed(lane, lane->previous, err);
	lane->receives_posted++;
	advance(&lane->post, lane, receives_of);
	return 0;
}

/*
 * Tells the previous rank how many receives are posted, unless it has plenty of credits: messages
 * are fewer then, and it cannot stall, because this is looked at again after each receive.
 *
 * The previous rank has CREDIT_RECEIVES receives for these messages and posts each again before it
 * uses the credits. So when data arrives that it could only send after credit message k, the
 * receive of message k is there again; only messages that are not proven in this way
 * are counted. The last of the promised data proves all messages, so the limit delays credits
 * but cannot stop them.
 */
static int tell_credits(struct lane *lane)
{
	struct frl_send_wr wr = {
		.wr_id = work_id(WORK_CREDIT_SEND, lane, 0),
		.opcode = FRL_WR_SEND_WITH_IMM,
		.flags = FRL_SEND_SIGNALED,
		.imm_data = lane->receives_posted,
	};
	int err;

	if (lane->receives_posted == lane->told ||
		lane->told - lane->receives_done > DATA_RECEIVES / 2)
		return 0;
	if (lane->unproven == CREDIT_RECEIVES || lane->credit_sends == CREDIT_SENDS)
		return 0;
	err = frl_post_send(lane->in, &wr, 1, NULL);
	if (err < 0)
		return post_failed(lane, lane->previous, err);
	lane->credit_sends++;
	lane->told_before[lane->told_at++ % CREDIT_RECEIVES] = lane->told;
	lane->unproven++;
	lane->told = lane->receives_posted;
	return 0;
}

/* Posting, sending side */

static bool may_send(const struct lane *lane, const struct ring_send *send)
{
	if (lane->sends_posted == lane->credits ||
		lane->sends_posted - lane->sends_acked == DATA_SENDS)
		return false;
	return send->after == RING_NOTHING ||
		send->after < lane->send.request->work[lane->number].receives_done;
}

static int post_send(struct lane *lane, const struct ring_send *send)
{
	struct frl_request *request = lane->send.request;
	struct frl_sge sge = {
		.addr = request->buffer[send->source] + send->offset * request->elem_size,
		.length = (uint32_t)(send->count * request->elem_size),
		.lkey = frl_mr_lkey(request->mr[send->source]),
	};
	struct frl_send_wr wr = {
		.wr_id = work_id(WORK_DATA_SEND, lane, lane->sends_posted),
		.opcode = FRL_WR_SEND,
		.sge = &sge,
		.n_sge = 1,
	};
	int err;

	/* The request must see its last send acknowledged, and a full queue some of its sends. */
	if (lane->send.index + 1 == sends_of(request, lane->number) ||
		lane->sends_posted % SIGNAL_EVERY == SIGNAL_EVERY - 1)
		wr.flags = FRL_SEND_SIGNALED;
	err = frl_post_send(lane->out, &wr, 1, NULL);
	if (err < 0)
		return post_failed(lane, lane->next, err);
	lane->sends_posted++;
	advance(&lane->send, lane, sends_of);
	return 0;
}

static int post_sends(struct lane *lane)
{
	while (lane->send.request) {
		struct ring_send send;
		int err;

		ring_plan_send(
			&lane->send.request->work[lane->number].plan, lane->send.index, &send);
		if (!may_send(lane, &send))
			break;
		err = post_send(lane, &send);
		if (err)
			return err;
	}
	return 0;
}

int comm_post(struct frl_comm *comm)
{
	for (unsigned i = 0; i < comm->lanes; i++) {
		struct lane *lane = &comm->lane[i];
		int err = 0;

		settle(&lane->post, lane, receives_of);
		settle(&lane->received, lane, receives_of);
		settle(&lane->send, lane, sends_of);
		settle(&lane->acked, lane, sends_of);
		while (!err && lane->post.request &&
			lane->receives_posted - lane->receives_done < DATA_RECEIVES)
			err = post_receive(lane);
		if (!err)
			err = tell_credits(lane);
		if (!err)
			err = post_sends(lane);
		if (err)
			return err;
	}
	return 0;
}

static int post_credit_receive(struct lane *lane)
{
	struct frl_recv_wr wr = { .wr_id = work_id(WORK_CREDIT_RECEIVE, lane, 0) };
	int err = frl_post_recv(lane->out, &wr, 1, NULL);

	return err < 0 ? post_failed(lane, lane->next, err) : 0;
}

int comm_post_credit_receives(struct frl_comm *comm)
{
	for (unsigned i = 0; i < comm->lanes; i++) {
		for (int n = 0; n < CREDIT_RECEIVES; n++) {
			int err = post_credit_receive(&comm->lane[i]);

			if (err)
				return err;
		}
	}
	return 0;
}

/* Completions */

static int data_sent(struct lane *lane, uint32_t sequence)
{
	/* One completion stands for all sends before it as well. */
	while (lane->sends_acked != sequence + 1) {
		lane->acked.request->work[lane->number].sends_done++;
		lane->sends_acked++;
		advance(&lane->acked, lane, sends_of);
	}
	return 0;
}

static int data_received(struct lane *lane, const struct frl_wc *wc)
{
	struct frl_request *request = lane->received.request;
	struct lane_work *work = &request->work[lane->number];
	struct ring_receive receive;

	ring_plan_receive(&work->plan, lane->received.index, &receive);
	if (wc->byte_len != receive.count * request->elem_size)
		return comm_fail(lane->comm, -EPROTO,
			"rank %d sent %" PRIu32
			" bytes where %zu were expected: do all ranks call the "
			"same operations with the same count?",
			lane->previous, wc->byte_len, receive.count * request->elem_size);
	work->receives_done++;
	lane->receives_done++;
	advance(&lane->received, lane, receives_of);
	while (lane->unproven > 0) {
		uint32_t oldest =
			lane->told_before[(lane->told_at - lane->unproven) % CREDIT_RECEIVES];

		if ((int32_t)(lane->receives_done - oldest) <= 0)
			break;
		lane->unproven--;
	}
	return 0;
}

static int credits_received(struct lane *lane, const struct frl_wc *wc)
{
	/* Posted again before the credits are used: tell_credits() of the peer relies on it. */
	int err = post_credit_receive(lane);

	if (err)
		return err;
	if (wc->byte_len != 0 || !(wc->flags & FRL_WC_WITH_IMM) ||
		wc->imm_data - lane->sends_posted > DATA_RECEIVES ||
		(int32_t)(wc->imm_data - lane->credits) < 0)
		return comm_fail(
			lane->comm, -EPROTO, "rank %d sent credits that make no sense", lane->next);
	lane->credits = wc->imm_data;
	return 0;
}

static int handle_success(struct frl_comm *comm, const struct frl_wc *wc)
{
	struct lane *lane = work_lane(comm, wc->wr_id);

	switch (work_kind(wc->wr_id)) {
	case WORK_DATA_SEND: return data_sent(lane, (uint32_t)wc->wr_id);
	case WORK_DATA_RECEIVE: return data_received(lane, wc);
	case WORK_CREDIT_SEND: lane->credit_sends--; return 0;
	case WORK_CREDIT_RECEIVE: return credits_received(lane, wc);
	}
	return 0;
}

/* Fails because of the first completion that tells the reason; flushed ones only follow from it. */
static int handle_failure(struct frl_comm *comm, const struct frl_wc wc[], int n)
{
	const struct frl_wc *cause = &wc[0];
	struct lane *lane;

	for (int i = 0; i < n; i++) {
		if (wc[i].status != FRL_WC_SUCCESS && wc[i].status != FRL_WC_WR_FLUSH_ERR) {
			cause = &wc[i];
			break;
		}
	}
	lane = work_lane(comm, cause->wr_id);
	return comm_fail_completion(
		comm, on_out(work_kind(cause->wr_id)) ? lane->next : lane->previous, cause->status);
}

/* Moves requests that are complete from the active list to the done list. */
static void retire_requests(struct frl_comm *comm)
{
	struct frl_request *request;

	while ((request = comm->active.first)) {
		for (unsigned i = 0; i < comm->lanes; i++) {
			if (request->work[i].receives_done != receives_of(request, i) ||
				request->work[i].sends_done != sends_of(request, i))
				return;
		}
		/* Complete means for the caller that the memory is his again, so registrations end
		 * before; but a NIC that keeps a packet for long must not hold the job up. */
		if (!request_deregister(request) && request->busy_tries++ < BUSY_TRIES)
			return;
		request_unlink(request);
		request->done = true;
		request_append(&comm->done, request);
	}
}

/* Nothing completed: were packets handled at least? If not, do the ranks still live? */
static int idle(struct frl_comm *comm)
{
	int packets = frl_progress(comm->device);
	uint64_t now;

	if (packets > 0)
		return packets;
	if (++comm->idle_polls < CLOCK_EVERY)
		return 0;
	comm->idle_polls = 0;
	now = clock_now_ns();
	if (now - comm->last_check_ns < CHECK_EVERY_NS)
		return 0;
	comm->last_check_ns = now;
	return comm_check_ranks(comm);
}

int comm_progress(struct frl_comm *comm)
{
	struct frl_wc wc[POLL_BATCH];
	int n, err;

	if (comm->error)
		return comm_error(comm);
	if (comm->lanes == 0)
		return 0;
	n = frl_poll_cq(comm->cq, POLL_BATCH, wc);
	if (n < 0)
		return comm_fail(comm, n, "polling the completion queue: %s", frl_last_error());
	for (int i = 0; i < n; i++) {
		err = wc[i].status == FRL_WC_SUCCESS ? handle_success(comm, &wc[i])
						     : handle_failure(comm, &wc[i], n - i);
		if (err)
			return err;
	}
	if (n > 0) {
		err = comm_post(comm);
		if (err)
			return err;
	}
	retire_requests(comm);
	return n > 0 ? n : idle(comm);
}
