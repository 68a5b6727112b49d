/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sender. Sends match the receiver's announcements in posting order. In a group of
 * announcements the tag selects one. A send without an announcement waits for it, so NCCL need not
 * call again.
 *
 * Only the oldest group is matched. When all its parts are matched, the next group becomes the
 * oldest, and is compared with all waiting sends. Until then no waiting send can match, so each new
 * send is compared with one group only.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include "nccl/failure.h"
#include "nccl/data/profile.h"
#include "nccl/connect/setup.h"

static void queue_init(struct request_queue *queue)
{
	queue->first = NULL;
	queue->end = &queue->first;
}

static void queue_put(struct request_queue *queue, struct request *request)
{
	request->next = NULL;
	*queue->end = request;
	queue->end = &request->next;
}

/* Removes and returns the request that `link` points to. */
static struct request *queue_take(struct request_queue *queue, struct request **link)
{
	struct request *request = *link;

	*link = request->next;
	if (!request->next)
		queue->end = link;
	return request;
}

/* ---- pieces */

static void divide(struct request *request, const struct comm *comm)
{
	uint64_t size = request->send.buffer.size, most = 1, n;

	if (comm->n_paths > 1)
		most = (size + MIN_PIECE - 1) / MIN_PIECE;
	n = most < (uint64_t)comm->n_paths ? most : (uint64_t)comm->n_paths;
	if (n == 0)
		n = 1;
	if (size > n * MAX_PIECE)
		n = (size + MAX_PIECE - 1) / MAX_PIECE;
	request->send.piece = ((size + n - 1) / n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	request->send.n_pieces = size
		? (uint32_t)((size + request->send.piece - 1) / request->send.piece)
		: 1;
	request->send.n_posted = request->send.n_acknowledged = 0;
}

static struct path *path_of(struct comm *comm, const struct request *request, uint32_t piece)
{
	return &comm->paths[(request->send.first_path + piece) % (uint32_t)comm->n_paths];
}

static uint32_t immediate(const struct request *request)
{
	return htonl(request->send.number | (uint32_t)request->send.part << 8 |
		request->send.n_pieces << 11);
}

/* -ENOMEM would mean a full queue, that is, an error in the counts. */
static int post_piece(struct comm *comm, struct path *path, struct request *request)
{
	uint32_t index = (uint32_t)(request - comm->send.requests);
	uint32_t piece = request->send.n_posted;
	uint64_t offset = piece * request->send.piece;
	uint64_t left = request->send.buffer.size - offset;
	const struct registration *registration = request->send.buffer.registration;
	struct frl_sge sge = {
		.addr = (char *)request->send.buffer.data + offset,
		.length = (uint32_t)(left < request->send.piece ? left : request->send.piece),
		.lkey = registration ? registration->lkeys[path->rail] : 0,
	};
	struct frl_send_wr wr = {
		.wr_id = WORK_ID(WORK_PIECE_SENT, path - comm->paths, index, piece),
		.opcode = FRL_WR_RDMA_WRITE_WITH_IMM,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = sge.length ? 1 : 0,
		.imm_data = immediate(request),
		.remote_addr = request->send.target.addr + offset,
		.rkey = request->send.target.rkeys[path->their_rail],
	};
	int rc = frl_post_send(path->qp, &wr, 1, NULL);

	if (rc < 0)
		return rc;
	path->n_sends++;
	if (request->send.buffer.parent && piece < NET_MAX_PATHS)
		net_profile_start(comm, path, &wr, sge.length, request->send.buffer.parent,
			&request->send.events[piece]);
	return 0;
}

/* Posts as many pieces as there is room for. Returns 1 if all are posted. */
static int post(struct comm *comm, struct request *request)
{
	while (request->send.n_posted < request->send.n_pieces) {
		struct path *path = path_of(comm, request, request->send.n_posted);
		int err;

		if (path->n_sends == PATH_SENDS)
			return 0;
		err = post_piece(comm, path, request);
		if (err)
			return net_comm_fail(comm, err, "%s", frl_last_error());
		request->send.n_posted++;
	}
	return 1;
}

int net_send_continue(struct comm *comm)
{
	struct request_queue *posting = &comm->send.posting;

	while (posting->first) {
		int rc = post(comm, posting->first);

		if (rc <= 0)
			return rc;
		queue_take(posting, &posting->first);
	}
	return 0;
}

void net_send_handle_acknowledgement(
	struct comm *comm, struct path *path, uint32_t index, uint32_t piece)
{
	struct request *request = &comm->send.requests[index];

	path->n_sends--;
	if (piece < NET_MAX_PATHS && request->send.events[piece]) {
		net_profile_stop(comm, &request->send.events[piece]);
		request->send.events[piece] = NULL;
	}
	if (++request->send.n_acknowledged == request->send.n_pieces)
		net_request_end(request);
}

/* ---- matching */

static int find_part(const struct group *group, int tag)
{
	for (int i = 0; i < group->n; i++)
		if (!group->matched[i] && group->targets[i].tag == tag)
			return i;
	return -1;
}

static int match(struct comm *comm, struct group *group, int part, struct request *request)
{
	struct sender *sender = &comm->send;

	group->matched[part] = true;
	group->n_matched++;
	request->send.target = group->targets[part];
	request->send.number = (uint8_t)sender->oldest;
	request->send.part = (uint8_t)part;
	if (request->send.buffer.size > request->send.target.size)
		return net_comm_fail(comm, -EMSGSIZE,
			"a message of %zu bytes, tag 0x%x, exceeds its receive of %llu bytes",
			request->send.buffer.size, (unsigned)request->send.buffer.tag,
			(unsigned long long)request->send.target.size);
	divide(request, comm);
	request->send.first_path = sender->next_path;
	sender->next_path += request->send.n_pieces;
	queue_put(&sender->posting, request);
	return 0;
}

/* Matches waiting sends with the oldest group, and with the next one when a group is full. */
static int match_waiting(struct comm *comm)
{
	struct sender *sender = &comm->send;

	while (sender->oldest != sender->next) {
		struct group *group = &sender->groups[sender->oldest % ANNOUNCEMENTS];
		struct request **link = &sender->waiting.first;

		while (*link && group->n_matched < group->n) {
			int part = find_part(group, (*link)->send.buffer.tag);
			int err = 0;

			if (part < 0)
				link = &(*link)->next;
			else
				err = match(comm, group, part, queue_take(&sender->waiting, link));
			if (err)
				return err;
		}
		if (group->n_matched < group->n)
			return 0;
		sender->oldest++;
	}
	return 0;
}

/* ---- announcements */

static int post_slot(struct comm *comm, uint32_t slot)
{
	const struct frl_sge sge = {
		.addr = comm->slots + slot * comm->slot_size,
		.length = (uint32_t)comm->slot_size,
		.lkey = frl_mr_lkey(comm->slots_mr),
	};
	const struct frl_recv_wr wr = {
		.wr_id = WORK_ID(WORK_ANNOUNCEMENT_RECEIVED, 0, slot, 0),
		.sge = &sge,
		.n_sge = 1,
	};
	int rc = frl_post_recv(comm->paths[0].qp, &wr, 1, NULL);

	return rc < 0 ? net_comm_fail(comm, rc, "%s", frl_last_error()) : 0;
}

int net_send_start(struct comm *comm)
{
	int err = 0;

	queue_init(&comm->send.waiting);
	queue_init(&comm->send.posting);
	for (uint32_t i = 0; i < ANNOUNCEMENTS && !err; i++)
		err = post_slot(comm, i);
	return err;
}

static uint64_t read_u64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

static uint32_t read_u32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static void read_group(const struct comm *comm, const uint8_t *at, struct group *group)
{
	group->n_matched = 0;
	for (int i = 0; i < group->n; i++) {
		struct target *target = &group->targets[i];

		group->matched[i] = false;
		target->addr = read_u64(at);
		target->size = read_u64(at + 8);
		target->tag = (int32_t)read_u32(at + 16);
		at += ANNOUNCEMENT_PART;
		for (int rail = 0; rail < comm->n_their_rails; rail++, at += 4)
			target->rkeys[rail] = read_u32(at);
	}
}

int net_send_handle_announcement(struct comm *comm, uint32_t slot, uint32_t bytes)
{
	struct sender *sender = &comm->send;
	const uint8_t *at = comm->slots + slot * comm->slot_size;
	struct group *group = &sender->groups[sender->next % ANNOUNCEMENTS];
	uint32_t part = ANNOUNCEMENT_PART + 4 * (uint32_t)comm->n_their_rails;
	uint8_t n = bytes >= ANNOUNCEMENT_HEAD ? at[4] : 0;
	int err;

	if (n < 1 || n > NET_MAX_RECEIVES || bytes != ANNOUNCEMENT_HEAD + n * part ||
		read_u32(at) != sender->next || sender->next - sender->oldest == ANNOUNCEMENTS)
		return net_comm_protocol_error(comm);
	group->n = n;
	read_group(comm, at + ANNOUNCEMENT_HEAD, group);
	sender->next++;
	err = post_slot(comm, slot);
	return err ? err : match_waiting(comm);
}

/* ---- entry points */

static int start_send(struct comm *comm, struct request *request)
{
	struct sender *sender = &comm->send;
	struct group *group = &sender->groups[sender->oldest % ANNOUNCEMENTS];
	int part = -1, err;

	if (sender->oldest != sender->next)
		part = find_part(group, request->send.buffer.tag);
	if (part < 0) {
		queue_put(&sender->waiting, request);
		return 0;
	}
	err = match(comm, group, part, request);
	if (!err && group->n_matched == group->n) {
		sender->oldest++;
		err = match_waiting(comm);
	}
	return err;
}

int net_send(struct comm *comm, const struct net_buffer *buffer, struct request **ret_request)
{
	struct request *request;

	*ret_request = NULL;
	if (comm->err)
		return net_comm_report(comm);
	request = net_request_take(comm, REQUEST_SEND);
	if (!request) {
		net_comm_poll(comm);
		return comm->err ? net_comm_report(comm) : NCCL_SUCCESS;
	}
	request->send.buffer = *buffer;
	memset(request->send.events, 0, sizeof(request->send.events));
	registration_use(&request->users[0], buffer->registration);
	*ret_request = request;
	/* net_test() reports a failure. */
	if (!start_send(comm, request))
		net_comm_poll(comm);
	return NCCL_SUCCESS;
}
