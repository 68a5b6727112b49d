/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver: announces its buffers, and counts the received pieces of each. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include <arpa/inet.h>

#include "nccl/failure.h"
#include "nccl/connect/setup.h"
#include "nccl/data/unpack.h"

static int post_receives(struct comm *comm, struct path *path, uint32_t n)
{
	struct frl_recv_wr wr[RECEIVE_BATCH];
	int rc = 0;

	for (uint32_t i = 0; i < RECEIVE_BATCH; i++)
		wr[i] = (struct frl_recv_wr){
			.wr_id = WORK_ID(WORK_PIECE_RECEIVED, path - comm->paths, 0, 0),
		};
	while (n && rc >= 0) {
		uint32_t now = n < RECEIVE_BATCH ? n : RECEIVE_BATCH;

		rc = frl_post_recv(path->qp, wr, (int)now, NULL);
		n -= now;
	}
	return rc < 0 ? net_comm_fail(comm, rc, "%s", frl_last_error()) : 0;
}

int net_receive_start(struct comm *comm)
{
	int err = 0;

	for (int i = 0; i < comm->n_paths && !err; i++)
		err = post_receives(comm, &comm->paths[i], PATH_RECEIVES);
	return err;
}

int net_receive_continue(struct comm *comm)
{
	int err = 0;

	for (int i = 0; i < comm->n_paths && !err; i++) {
		struct path *path = &comm->paths[i];

		if (path->n_used < RECEIVE_BATCH)
			continue;
		err = post_receives(comm, path, path->n_used);
		path->n_used = 0;
	}
	return err;
}

/* ---- arrived pieces */

int net_receive_handle_piece(struct comm *comm, uint32_t imm, uint32_t bytes)
{
	uint32_t word = ntohl(imm), n_pieces = word >> 11, at = word >> 8 & 7;
	struct request *request = comm->receive.by_number[word % NUMBERS];
	struct part *part;

	if (!request || (int)at >= request->receive.n)
		return net_comm_protocol_error(comm);
	part = &request->receive.parts[at];
	if (!n_pieces || (part->n_pieces && part->n_pieces != n_pieces) ||
		part->n_received == n_pieces || bytes > part->size - part->got)
		return net_comm_protocol_error(comm);
	part->n_pieces = n_pieces;
	part->got += bytes;
	if (++part->n_received < n_pieces || ++request->receive.n_complete < request->receive.n)
		return 0;
	comm->receive.by_number[word % NUMBERS] = NULL;
	net_request_end(request);
	return 0;
}

/* ---- announcements */

static uint8_t *put_u32(uint8_t *at, uint32_t value)
{
	value = htole32(value);
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static uint8_t *put_u64(uint8_t *at, uint64_t value)
{
	value = htole64(value);
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static uint32_t write_announcement(const struct comm *comm, uint8_t *slot, uint32_t number, int n,
	const struct net_buffer *buffers)
{
	uint8_t *at = put_u32(put_u32(slot, number), (uint32_t)n);

	for (int i = 0; i < n; i++) {
		const struct registration *registration = buffers[i].registration;

		at = put_u64(at, (uint64_t)(uintptr_t)buffers[i].data);
		at = put_u64(at, buffers[i].size);
		at = put_u32(at, (uint32_t)buffers[i].tag);
		for (int rail = 0; rail < comm->device->n_rails; rail++)
			at = put_u32(at, registration ? registration->rkeys[rail] : 0);
	}
	return (uint32_t)(at - slot);
}

/* Sends an announcement. Every ANNOUNCEMENT_SIGNALS-th is signaled: its completion acknowledges all
 * before it, too. */
static int announce(struct comm *comm, uint32_t number, int n, const struct net_buffer *buffers)
{
	struct receiver *receiver = &comm->receive;
	uint8_t *slot = comm->slots + receiver->posted % ANNOUNCEMENT_SENDS * comm->slot_size;
	uint32_t posted = receiver->posted + 1;
	struct frl_sge sge = { .addr = slot, .lkey = frl_mr_lkey(comm->slots_mr) };
	struct frl_send_wr wr = {
		.wr_id = WORK_ID(WORK_ANNOUNCEMENT_SENT, 0, 0, posted),
		.opcode = FRL_WR_SEND,
		.flags = posted % ANNOUNCEMENT_SIGNALS ? 0 : FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
	};
	int rc;

	sge.length = write_announcement(comm, slot, number, n, buffers);
	if (sge.length <= comm->paths[0].max_inline)
		wr.flags |= FRL_SEND_INLINE;
	rc = frl_post_send(comm->paths[0].qp, &wr, 1, NULL);
	if (rc < 0)
		return net_comm_fail(comm, rc, "%s", frl_last_error());
	receiver->posted = posted;
	return 0;
}

static bool has_room(const struct comm *comm)
{
	const struct receiver *receiver = &comm->receive;

	/* Unpacked receives have requests of their own, but share the sender's room for
	 * announcements. */
	return !receiver->by_number[receiver->next % NUMBERS] && comm->n_requests < ANNOUNCEMENTS &&
		receiver->posted - receiver->acknowledged < ANNOUNCEMENT_SENDS;
}

static bool is_unpacked(int n, const struct net_buffer *buffers)
{
	for (int i = 0; i < n; i++)
		if (buffers[i].registration && buffers[i].registration->unpack)
			return true;
	return false;
}

int net_receive(
	struct comm *comm, int n, const struct net_buffer *buffers, struct request **ret_request)
{
	struct receiver *receiver = &comm->receive;
	struct request *request = NULL;
	bool unpacks;

	*ret_request = NULL;
	if (comm->err)
		return net_comm_report(comm);
	if (n < 1 || n > NET_MAX_RECEIVES)
		return NCCL_INVALID_ARGUMENT;
	unpacks = is_unpacked(n, buffers);
	if (unpacks && net_unpack_check(comm, n, buffers))
		return NCCL_INVALID_USAGE;
	if (has_room(comm))
		request = unpacks ? net_unpack_take(comm, &buffers[0])
				  : net_request_take(comm, REQUEST_RECEIVE);
	if (!request) {
		net_comm_poll(comm);
		return comm->err ? net_comm_report(comm) : NCCL_SUCCESS;
	}
	request->receive.number = receiver->next;
	request->receive.n = n;
	request->receive.n_complete = 0;
	for (int i = 0; i < n; i++) {
		request->receive.parts[i] = (struct part){ .size = buffers[i].size };
		registration_use(&request->users[i], buffers[i].registration);
	}
	receiver->by_number[receiver->next % NUMBERS] = request;
	*ret_request = request;
	/* net_test() reports a failure. */
	if (!announce(comm, receiver->next++, n, buffers))
		net_comm_poll(comm);
	return NCCL_SUCCESS;
}
