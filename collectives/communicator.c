/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/communicator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	LINGER_LOSSLESS_MS = 1,
	LINGER_LOSSY_MS = 150, /* two local ACK timeouts of the default code, 14 */
	STALE_TRIES = 10000,
	NS_PER_MS = 1000000,
};

static int create_queue_pairs(struct frl_comm *comm)
{
	struct frl_qp_config out = {
		.send_cq = comm->cq,
		.recv_cq = comm->cq,
		.max_send_wr = DATA_SENDS,
		.max_recv_wr = CREDIT_RECEIVES,
	};
	struct frl_qp_config in = {
		.send_cq = comm->cq,
		.recv_cq = comm->cq,
		.max_send_wr = CREDIT_SENDS,
		.max_recv_wr = DATA_RECEIVES,
	};

	for (unsigned i = 0; i < comm->lanes; i++) {
		struct lane *lane = &comm->lane[i];
		int err;

		lane->comm = comm;
		lane->number = i;
		lane->direction = i == 0 ? RING_FORWARD : RING_BACKWARD;
		lane->next = ring_next(comm->rank, comm->ranks, lane->direction);
		lane->previous = ring_previous(comm->rank, comm->ranks, lane->direction);
		out.context = lane;
		in.context = lane;
		err = frl_qp_create(comm->pd, &out, &lane->out);
		if (!err)
			err = frl_qp_create(comm->pd, &in, &lane->in);
		if (err)
			return err;
	}
	return 0;
}

static int create_objects(struct frl_comm *comm)
{
	/* Every request of every queue pair could be waiting here to be polled. */
	uint32_t depth = comm->lanes *
		(DATA_SENDS + CREDIT_RECEIVES + CREDIT_SENDS + DATA_RECEIVES);
	int err;

	err = frl_pd_create(comm->device, &comm->pd);
	if (!err)
		err = frl_cq_create(comm->device, depth, &comm->cq);
	return err ? err : create_queue_pairs(comm);
}

/* Setting up failed with the thread's last error; says so to the others, and who is to blame. */
static int give_up(struct frl_comm *comm, int err)
{
	struct frl_bootstrap *bootstrap = comm->bootstrap;
	int gone = -1;

	err = frl_fail(err, "rank %d cannot make a communicator: %s", comm->rank, frl_last_error());
	if (err == -ETIMEDOUT || err == -EHOSTUNREACH) {
		char text[ERROR_TEXT] = "";

		strncpy(text, frl_last_error(), sizeof(text) - 1);
		if (bootstrap->check(bootstrap->ctx, &gone) != 0 && gone >= 0)
			err = frl_fail(-ECONNRESET, "rank %d is gone; %s", gone, text);
		else
			err = frl_fail(err, "%s", text);
	}
	bootstrap->abort(bootstrap->ctx);
	return err;
}

static int check_bootstrap(const struct frl_bootstrap *bootstrap)
{
	if (bootstrap->ranks < 1 || bootstrap->ranks > 32768 || bootstrap->rank < 0 ||
		bootstrap->rank >= bootstrap->ranks)
		return frl_fail(-EINVAL, "the bootstrap says rank %d of %d", bootstrap->rank,
			bootstrap->ranks);
	if (!bootstrap->allgather || !bootstrap->check || !bootstrap->abort)
		return frl_fail(-EINVAL, "the bootstrap lacks allgather, check or abort");
	return 0;
}

int frl_comm_create(
	struct frl_device *device, struct frl_bootstrap *bootstrap, struct frl_comm **ret_comm)
{
	struct frl_comm *comm;
	int err;

	if (!device || !bootstrap || !ret_comm)
		return frl_fail(-EINVAL, "the device, the bootstrap or ret_comm is NULL");
	err = check_bootstrap(bootstrap);
	if (err)
		return err;
	comm = calloc(1, sizeof(*comm));
	if (!comm)
		return frl_fail(-ENOMEM, "no memory for a communicator");
	comm->device = device;
	comm->bootstrap = bootstrap;
	comm->rank = bootstrap->rank;
	comm->ranks = bootstrap->ranks;
	/* Two ranks have one link, and one ring uses both its directions already. */
	comm->lanes = comm->ranks == 1 ? 0 : comm->ranks == 2 ? 1 : 2;
	collective_config_init(&comm->config);
	if (comm->lanes > 0) {
		err = create_objects(comm);
		if (!err)
			err = comm_connect(comm);
		if (err)
			goto err_free;
	}
	*ret_comm = comm;
	return 0;

err_free:
	/* A failure while posting has told the others already. */
	err = comm->error ? comm_error(comm) : give_up(comm, err);
	comm_free(comm);
	return err;
}

void comm_destroy_queue_pairs(struct frl_comm *comm)
{
	for (unsigned i = 0; i < comm->lanes; i++) {
		frl_qp_destroy(comm->lane[i].out);
		frl_qp_destroy(comm->lane[i].in);
		comm->lane[i].out = NULL;
		comm->lane[i].in = NULL;
	}
}

static void release_all(struct request_list *list)
{
	while (list->first)
		request_release(list->first);
}

void comm_free(struct frl_comm *comm)
{
	comm_destroy_queue_pairs(comm);
	release_all(&comm->active);
	release_all(&comm->done);
	/* Registrations that a NIC's queue still holds end when it has sent what it has. */
	for (int i = 0; i < STALE_TRIES && comm->stale.first; i++) {
		struct frl_request *request = comm->stale.first;

		frl_progress(comm->device);
		if (request_deregister(request))
			request_release(request);
	}
	if (frl_cq_destroy(comm->cq) < 0 || frl_pd_destroy(comm->pd) < 0)
		frl_log(FRL_LOG_WARNING, "communicator, rank %d: left behind: %s", comm->rank,
			frl_last_error());
	while (comm->stale.first) {
		struct frl_request *request = comm->stale.first;

		request_unlink(request);
		free(request);
	}
	free(comm);
}

/* Polls until the request is done or `deadline_ns`; true when it is done. */
static bool wait_until(struct frl_request *request, uint64_t deadline_ns)
{
	struct frl_backoff backoff = { 0 };
	bool done = false;

	frl_backoff_reset(&backoff);
	while (clock_now_ns() < deadline_ns) {
		if (frl_request_test(request, &done) < 0)
			return false;
		if (done)
			return true;
		frl_backoff_idle(&backoff);
	}
	return false;
}

/*
 * Leaves only when no other rank can need us any more. A rank drains when its requests are
 * complete, so after this barrier nobody waits for an acknowledgement of ours but perhaps for
 * those of the barrier itself. For these we linger, answering what is sent again; if they still get
 * lost, the other's drain fails, which is no failure to its caller.
 */
static void drain(struct frl_comm *comm)
{
	float value = 0;
	uint64_t now = clock_now_ns();
	uint64_t deadline_ns = now + (uint64_t)comm->config.drain_timeout_ms * NS_PER_MS;
	struct frl_device_attr attr;
	struct frl_request *request;
	struct frl_backoff backoff = { 0 };

	comm->draining = true;
	if (frl_allreduce_start(comm, &value, &value, 1, FRL_FLOAT32, FRL_SUM, &request) < 0)
		return;
	if (!wait_until(request, deadline_ns)) {
		/* `value` is about to go out of scope. */
		comm_destroy_queue_pairs(comm);
		return;
	}
	frl_device_query(comm->device, &attr);
	now = clock_now_ns();
	deadline_ns = now + (attr.lossless ? LINGER_LOSSLESS_MS : LINGER_LOSSY_MS) * NS_PER_MS;
	frl_backoff_reset(&backoff);
	while (clock_now_ns() < deadline_ns && comm_progress(comm) >= 0)
		frl_backoff_idle(&backoff);
}

void frl_comm_destroy(struct frl_comm *comm)
{
	if (!comm)
		return;
	if (comm->active.first && !comm->error)
		comm_fail(comm, -ECANCELED,
			"rank %d destroyed its communicator with requests in flight", comm->rank);
	if (!comm->error && comm->lanes > 0)
		drain(comm);
	comm_free(comm);
}

int frl_comm_rank(const struct frl_comm *comm)
{
	return comm->rank;
}

int frl_comm_size(const struct frl_comm *comm)
{
	return comm->ranks;
}
