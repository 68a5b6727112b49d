/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections: creation and destruction, completions, requests. */
#include "nccl/comm.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/failure.h"
#include "nccl/log.h"
#include "nccl/connect/setup.h"
#include "nccl/data/unpack.h"

enum {
	POLLED = 16,     /* completions polled at once */
	POLL_ROUNDS = 8, /* rounds while completions arrive */
	PAGE = 4096,
	IDLE_TESTS = 4096, /* tests without a completion before a check for failures */
	NS_PER_MS = 1000000,
	/* How long a closed connection keeps answering a peer whose acknowledgement was lost,
	 * unless the peer has closed its end. */
	MIN_LINGER_MS = 1200,
	MAX_LINGER_MS = 3000,   /* a waiting sender does not notice a close for this long */
	CLOSING_PERIOD_MS = 20, /* period of checks of a closed connection */
	FLUSH_ROUNDS = 64,      /* polls of a port, until nothing waits to be sent */
};

static size_t slot_size(const struct comm *comm)
{
	int rails = comm->is_sender ? comm->n_their_rails : comm->device->n_rails;
	size_t size = ANNOUNCEMENT_HEAD +
		NET_MAX_RECEIVES * (ANNOUNCEMENT_PART + 4 * (size_t)rails);

	return (size + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
}

static int n_slots(const struct comm *comm)
{
	return comm->is_sender ? ANNOUNCEMENTS : ANNOUNCEMENT_SENDS;
}

static int make_slots(struct comm *comm)
{
	size_t size;

	comm->slot_size = slot_size(comm);
	size = (comm->slot_size * (size_t)n_slots(comm) + PAGE - 1) / PAGE * PAGE;
	comm->slots = aligned_alloc(PAGE, size);
	if (!comm->slots)
		return -ENOMEM;
	memset(comm->slots, 0, size);
	return frl_reg_mr(net_port_at(comm->device, comm->paths[0].rail)->pd, comm->slots, size,
		FRL_ACCESS_LOCAL_WRITE, &comm->slots_mr);
}

static uint32_t cq_depth(const struct comm *comm, int rail)
{
	uint32_t depth = 0;

	for (int i = 0; i < comm->n_paths; i++)
		if (comm->paths[i].rail == rail)
			depth += comm->is_sender ? PATH_SENDS + ANNOUNCEMENTS
						 : PATH_RECEIVES + ANNOUNCEMENT_SENDS;
	return depth;
}

static int make_queues(struct comm *comm)
{
	int err = 0;

	for (int i = 0; i < comm->n_paths; i++) {
		int theirs = i % comm->n_their_rails, ours = i % comm->device->n_rails;

		comm->paths[i].rail = ours;
		comm->paths[i].their_rail = theirs;
	}
	for (int i = 0; i < comm->device->n_rails && !err; i++) {
		uint32_t depth = cq_depth(comm, i);

		if (depth)
			err = frl_cq_create(
				net_port_at(comm->device, i)->device, depth, &comm->cqs[i]);
	}
	return err ? err : make_slots(comm);
}

struct request *net_comm_requests(struct comm *comm, int *ret_n)
{
	*ret_n = comm->is_sender ? SEND_REQUESTS : ANNOUNCEMENTS + NCCL_UNPACK_SLOTS;
	return comm->is_sender ? comm->send.requests : comm->receive.requests;
}

static void init_free_requests(struct comm *comm)
{
	int n;
	struct request *requests = net_comm_requests(comm, &n);

	while (n-- > 0) {
		requests[n].comm = comm;
		requests[n].is_unpacked = !comm->is_sender && n >= ANNOUNCEMENTS;
		if (requests[n].is_unpacked)
			continue;
		requests[n].next = comm->free_requests;
		comm->free_requests = &requests[n];
	}
}

int net_comm_create(struct net_device *device, int dev, bool is_sender, int n_paths,
	int n_their_rails, struct comm **ret_comm)
{
	struct comm *comm;
	int err = net_device_acquire(device);

	if (err)
		return err;
	comm = calloc(1, sizeof(*comm));
	if (!comm) {
		net_log_warning("cannot create a connection on %s: no memory", device->name);
		net_device_release(device);
		return -ENOMEM;
	}
	comm->device = device;
	comm->dev = dev;
	comm->is_sender = is_sender;
	comm->n_paths = n_paths;
	comm->n_their_rails = n_their_rails;
	init_free_requests(comm);
	err = make_queues(comm);
	if (err) {
		net_log_warning(
			"cannot create a connection on %s: %s", device->name, frl_last_error());
		net_comm_destroy(comm);
		return err;
	}
	*ret_comm = comm;
	return 0;
}

int net_comm_add_path(struct comm *comm, int index)
{
	struct path *path = &comm->paths[index];
	const struct frl_qp_config config = {
		.send_cq = comm->cqs[path->rail],
		.recv_cq = comm->cqs[path->rail],
		.max_send_wr = comm->is_sender ? PATH_SENDS : ANNOUNCEMENT_SENDS,
		.max_recv_wr = comm->is_sender ? ANNOUNCEMENTS : PATH_RECEIVES,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
	struct frl_qp_attr attr;
	int err = frl_qp_create(net_port_at(comm->device, path->rail)->pd, &config, &path->qp);

	if (err)
		return err;
	/* Some NICs support few inline bytes, or none. */
	frl_qp_query(path->qp, &attr);
	path->max_inline = attr.max_inline;
	return 0;
}

int net_comm_start(struct comm *comm)
{
	frl_conn_peer(comm->paths[0].conn, &comm->peer);
	registration_comm_starts(comm);
	return comm->is_sender ? net_send_start(comm) : net_receive_start(comm);
}

/* ---- closing */

static void free_pending_requests(struct comm *comm)
{
	int n;
	struct request *requests = net_comm_requests(comm, &n);

	for (int i = 0; i < n; i++)
		if (requests[i].kind != REQUEST_FREE)
			net_request_free(&requests[i]);
}

/* The queue pairs are gone, but a NIC may still hold packets that refer to the slots. */
static bool free_slots(struct comm *comm)
{
	frl_progress(net_port_at(comm->device, comm->paths[0].rail)->device);
	if (frl_dereg_mr(comm->slots_mr) == -EBUSY)
		return false;
	comm->slots_mr = NULL;
	free(comm->slots);
	return true;
}

/* Returns false if the destruction must be tried again. */
static bool destroy(struct comm *comm)
{
	registration_comm_ends(comm);
	free_pending_requests(comm);
	for (int i = 0; i < comm->n_paths; i++) {
		struct path *path = &comm->paths[i];

		frl_conn_close(path->conn);
		path->conn = NULL;
		frl_qp_destroy(path->qp);
		path->qp = NULL;
	}
	for (int i = 0; i < comm->device->n_rails; i++)
		if (frl_cq_destroy(comm->cqs[i]) == 0)
			comm->cqs[i] = NULL;
	net_unpack_end(comm);
	if (!free_slots(comm))
		return false;
	net_device_release(comm->device);
	free(comm);
	return true;
}

/* Returns whether no peer can ask for an acknowledgement any more: the peer has left, or a path has
 * no connection. */
static bool peer_has_left(const struct comm *comm)
{
	for (int i = 0; i < comm->n_paths; i++)
		if (!comm->paths[i].conn || frl_conn_test(comm->paths[i].conn))
			return true;
	return false;
}

/* A struct cleanup: called until it returns true. Counts at most a few periods between two calls: a
 * process that was stopped in between has answered no peer. */
static bool try_destroy(struct cleanup *cleanup)
{
	struct comm *comm = (struct comm *)(void *)((char *)cleanup -
		offsetof(struct comm, closing));
	const uint64_t step_ns = UINT64_C(4) * CLOSING_PERIOD_MS * NS_PER_MS;

	for (int i = 0; i < comm->device->n_rails; i++)
		frl_progress(net_port_at(comm->device, i)->device);
	if (time_budget_spend(&comm->lingering, step_ns, net_now_ns()) < comm->linger_ns &&
		!peer_has_left(comm))
		return false;
	return destroy(comm);
}

static void destroy_later(struct comm *comm, uint64_t linger_ns)
{
	comm->linger_ns = linger_ns;
	comm->closing = (struct cleanup){ .try_finish = try_destroy,
		.period_ms = CLOSING_PERIOD_MS };
	net_cleanup_add(&comm->closing);
}

void net_comm_destroy(struct comm *comm)
{
	if (!destroy(comm))
		destroy_later(comm, 0);
}

void net_comm_stop(struct comm *comm)
{
	static const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };

	atomic_store(&comm->is_stopped, true);
	for (int i = 0; i < comm->n_paths; i++)
		if (comm->paths[i].qp)
			frl_qp_modify(comm->paths[i].qp, &attr, FRL_QP_STATE);
}

static bool is_lossless(const struct comm *comm)
{
	for (int i = 0; i < comm->device->n_rails; i++)
		if (!net_port_at(comm->device, i)->attr.lossless)
			return false;
	return true;
}

/*
 * Returns the time in which a peer asks four times: Ferrule's devices wait one, two, four and eight
 * times the path's timeout. NICs, which have a longer timeout, may have asked two or three times.
 */
static uint64_t linger_ns(const struct comm *comm)
{
	uint64_t longest = (uint64_t)MIN_LINGER_MS * NS_PER_MS;

	for (int i = 0; i < comm->n_paths; i++) {
		struct frl_qp_attr attr = { .timeout = 0 };
		uint64_t ns;

		if (frl_conn_query(comm->paths[i].conn, &attr))
			continue;
		ns = UINT64_C(15) * (UINT64_C(4096) << attr.timeout);
		longest = ns > longest ? ns : longest;
	}
	return longest < (uint64_t)MAX_LINGER_MS * NS_PER_MS ? longest
							     : (uint64_t)MAX_LINGER_MS * NS_PER_MS;
}

/* Sends pending acknowledgements. On the local fabric the peer waits for nothing else. */
static void flush_acknowledgements(const struct comm *comm)
{
	for (int i = 0; i < comm->device->n_rails; i++)
		for (int round = 0; round < FLUSH_ROUNDS; round++)
			if (frl_progress(net_port_at(comm->device, i)->device) <= 0)
				break;
}

int net_close(struct comm *comm)
{
	bool is_complete = !comm->is_sender && !comm->n_requests && !comm->err;

	/* NCCL may reuse the requests' memory after this call. */
	if (comm->n_requests)
		net_comm_stop(comm);
	/* Release the packet buffers for other connections now, because this one may linger. */
	net_unpack_end(comm);
	registration_comm_ends(comm);
	if (is_complete)
		flush_acknowledgements(comm);
	/* A sender has received all acknowledgements. A receiver's last acknowledgement may be
	 * lost: the sender then asks again, and needs an answer. */
	if (is_complete && !is_lossless(comm))
		destroy_later(comm, linger_ns(comm));
	else
		net_comm_destroy(comm);
	return NCCL_SUCCESS;
}

/* ---- requests */

struct request *net_request_take(struct comm *comm, enum request_kind kind)
{
	struct request *request = comm->free_requests;

	if (!request)
		return NULL;
	comm->free_requests = request->next;
	net_request_begin(request, kind);
	return request;
}

void net_request_begin(struct request *request, enum request_kind kind)
{
	request->comm->n_requests++;
	request->next = NULL;
	request->kind = kind;
	request->is_done = false;
}

void net_request_free(struct request *request)
{
	struct comm *comm = request->comm;

	if (!request->is_done)
		net_request_end(request);
	request->kind = REQUEST_FREE;
	comm->n_requests--;
	if (request->is_unpacked)
		return;
	request->next = comm->free_requests;
	comm->free_requests = request;
}

void net_request_end(struct request *request)
{
	int n = request->kind == REQUEST_SEND ? 1 : request->receive.n;

	request->is_done = true;
	for (int i = 0; i < n; i++)
		registration_unuse(&request->users[i]);
}

static void fill_sizes(const struct request *request, int *sizes)
{
	if (request->kind == REQUEST_SEND) {
		sizes[0] = (int)(request->send.buffer.size < INT_MAX ? request->send.buffer.size
								     : INT_MAX);
		return;
	}
	for (int i = 0; i < request->receive.n; i++) {
		uint64_t got = request->receive.parts[i].got;

		sizes[i] = got < INT_MAX ? (int)got : INT_MAX;
	}
}

int net_test(struct request *request, int *ret_done, int *sizes)
{
	struct comm *comm = request->comm;

	*ret_done = 0;
	if (!request->is_done)
		net_comm_poll(comm);
	if (!request->is_done && !comm->err && ++comm->n_idle % IDLE_TESTS == 0)
		net_comm_check_qps(comm);
	if (!request->is_done)
		return comm->err ? net_comm_report(comm) : NCCL_SUCCESS;
	if (request->is_unpacked && net_unpack_publish(request))
		return net_comm_report(comm);
	if (sizes)
		fill_sizes(request, sizes);
	/* A receive that is unpacked stays a request until the kernel has read it. */
	if (!request->is_unpacked)
		net_request_free(request);
	*ret_done = 1;
	return NCCL_SUCCESS;
}

/* ---- completions */

static int complete(struct comm *comm, const struct frl_wc *wc)
{
	struct path *path = &comm->paths[WORK_PATH(wc->wr_id)];

	if (wc->status != FRL_WC_SUCCESS)
		return net_comm_fail_status(comm, path, wc->status);
	switch (WORK_OF(wc->wr_id)) {
	case WORK_PIECE_SENT:
		net_send_handle_acknowledgement(
			comm, path, WORK_INDEX(wc->wr_id), WORK_PIECE_OF(wc->wr_id));
		return 0;
	case WORK_ANNOUNCEMENT_RECEIVED:
		if (wc->opcode != FRL_WC_RECV)
			return net_comm_protocol_error(comm);
		return net_send_handle_announcement(comm, WORK_INDEX(wc->wr_id), wc->byte_len);
	case WORK_ANNOUNCEMENT_SENT:
		comm->receive.acknowledged = WORK_PIECE_OF(wc->wr_id);
		return 0;
	case WORK_PIECE_RECEIVED:
		path->n_used++;
		if (wc->opcode != FRL_WC_RECV_RDMA_WITH_IMM)
			return net_comm_protocol_error(comm);
		return net_receive_handle_piece(comm, wc->imm_data, wc->byte_len);
	}
	return 0;
}

static int poll_rail(struct comm *comm, int rail)
{
	struct frl_wc wc[POLLED];
	int n = POLLED;

	for (int round = 0; round < POLL_ROUNDS && n == POLLED; round++) {
		n = frl_poll_cq(comm->cqs[rail], POLLED, wc);
		if (n < 0)
			return net_comm_fail(comm, n, "%s", frl_last_error());
		if (n)
			comm->n_idle = 0;
		for (int i = 0; i < n; i++)
			complete(comm, &wc[i]);
	}
	return comm->err;
}

int net_comm_poll(struct comm *comm)
{
	for (int i = 0; i < comm->device->n_rails; i++)
		if (comm->cqs[i])
			poll_rail(comm, i);
	if (comm->err)
		return comm->err;
	return comm->is_sender ? net_send_continue(comm) : net_receive_continue(comm);
}
