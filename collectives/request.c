/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: what callers start, test and wait for, from the arguments to the registrations. */
#include "collectives/communicator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"

void request_append(struct request_list *list, struct frl_request *request)
{
	request->list = list;
	request->next = NULL;
	request->previous = list->last;
	if (list->last)
		list->last->next = request;
	else
		list->first = request;
	list->last = request;
}

void request_unlink(struct frl_request *request)
{
	struct request_list *list = request->list;

	if (request->previous)
		request->previous->next = request->next;
	else
		list->first = request->next;
	if (request->next)
		request->next->previous = request->previous;
	else
		list->last = request->previous;
	request->list = NULL;
}

bool request_deregister(struct frl_request *request)
{
	for (int i = 0; i < 2; i++) {
		if (request->mr[i] && frl_dereg_mr(request->mr[i]) < 0)
			return false;
		request->mr[i] = NULL;
	}
	return true;
}

void request_release(struct frl_request *request)
{
	struct request_list *stale = &request->comm->stale;

	if (request->list)
		request_unlink(request);
	if (request_deregister(request))
		free(request);
	else
		request_append(stale, request);
}

/* Tries again to get rid of the requests that a busy registration kept. */
static void release_stale(struct frl_comm *comm)
{
	struct request_list stale = comm->stale;
	struct frl_request *request, *next;

	comm->stale = (struct request_list){ 0 };
	for (request = stale.first; request; request = next) {
		next = request->next;
		request->list = NULL;
		request_release(request);
	}
}

struct allreduce_args {
	const void *send;
	void *recv;
	size_t count;
	enum frl_dtype dtype;
	enum frl_op op;
};

static int check_args(const struct allreduce_args *args)
{
	uintptr_t send = (uintptr_t)args->send, recv = (uintptr_t)args->recv;
	size_t elem_size, bytes;

	if ((unsigned)args->dtype >= FRL_DTYPES)
		return frl_fail(-EINVAL, "%u is no element type", (unsigned)args->dtype);
	if ((unsigned)args->op >= FRL_OPS)
		return frl_fail(-EINVAL, "%u is no operation", (unsigned)args->op);
	if (args->count == 0)
		return 0;
	if (!args->send || !args->recv)
		return frl_fail(-EINVAL, "the %s buffer is NULL", args->send ? "receive" : "send");
	elem_size = frl_dtype_size(args->dtype);
	if (__builtin_mul_overflow(args->count, elem_size, &bytes) || bytes > UINTPTR_MAX - send ||
		bytes > UINTPTR_MAX - recv)
		return frl_fail(-EINVAL, "%zu elements do not fit the address space", args->count);
	if (send != recv && send < recv + bytes && recv < send + bytes)
		return frl_fail(
			-EINVAL, "the send and the receive buffer overlap, but are not the same");
	return 0;
}

/* Cuts the work into the lanes' plans. All ranks must come to the same. */
static void plan_work(struct frl_request *request, const struct allreduce_args *args)
{
	struct frl_comm *comm = request->comm;
	size_t bytes = args->count * request->elem_size;
	unsigned lanes = bytes >= comm->config.two_rings_bytes ? comm->lanes : 1;
	size_t first = 0;

	for (unsigned i = 0; i < lanes; i++) {
		size_t count = (args->count - first) / (lanes - i);

		ring_plan_init(&request->work[i].plan,
			&(struct ring_config){
				.rank = comm->rank,
				.ranks = comm->ranks,
				.direction = comm->lane[i].direction,
				.first = first,
				.count = count,
				.elem_size = request->elem_size,
				.segment_bytes = ring_segment_bytes(count * request->elem_size,
					comm->ranks, comm->config.segment_bytes),
				.in_place = args->send == args->recv,
			});
		first += count;
	}
}

static int register_buffers(struct frl_request *request, size_t bytes)
{
	uint8_t *send = request->buffer[RING_SEND_BUFFER];
	uint8_t *recv = request->buffer[RING_RECV_BUFFER];
	struct frl_pd *pd = request->comm->pd;
	int err;

	err = frl_reg_mr(pd, recv, bytes, FRL_ACCESS_LOCAL_WRITE, &request->mr[RING_RECV_BUFFER]);
	if (err || send == recv)
		return err;
	return frl_reg_mr(pd, send, bytes, 0, &request->mr[RING_SEND_BUFFER]);
}

/* Puts the request behind those that are in flight; cursors that had come to the end go on here. */
static void enqueue(struct frl_request *request)
{
	struct frl_comm *comm = request->comm;

	request_append(&comm->active, request);
	for (unsigned i = 0; i < comm->lanes; i++) {
		struct lane *lane = &comm->lane[i];
		struct cursor *cursors[] = { &lane->send, &lane->acked, &lane->post,
			&lane->received };

		for (size_t c = 0; c < sizeof(cursors) / sizeof(cursors[0]); c++) {
			if (!cursors[c]->request)
				*cursors[c] = (struct cursor){ .request = request };
		}
	}
}

static int start(
	struct frl_comm *comm, const struct allreduce_args *args, struct frl_request **ret_request)
{
	struct frl_request *request = calloc(1, sizeof(*request));
	size_t bytes;
	int err;

	if (!request)
		return frl_fail(-ENOMEM, "no memory for a request");
	request->comm = comm;
	request->dtype = args->dtype;
	request->op = args->op;
	request->elem_size = frl_dtype_size(args->dtype);
	request->buffer[RING_SEND_BUFFER] = (uint8_t *)(uintptr_t)args->send; /* only read */
	request->buffer[RING_RECV_BUFFER] = args->recv;
	bytes = args->count * request->elem_size;
	if (args->count == 0 || comm->ranks == 1) {
		if (bytes > 0 && args->send != args->recv)
			memcpy(args->recv, args->send, bytes);
		request->done = true;
		request_append(&comm->done, request);
		*ret_request = request;
		return 0;
	}
	err = register_buffers(request, bytes);
	if (err)
		goto err_release;
	plan_work(request, args);
	enqueue(request);
	err = comm_post(comm);
	if (err)
		goto err_release;
	*ret_request = request;
	return 0;

err_release:
	request_release(request);
	return err;
}

int frl_allreduce_start(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op, struct frl_request **ret_request)
{
	struct allreduce_args args = {
		.send = send, .recv = recv, .count = count, .dtype = dtype, .op = op
	};
	int err;

	if (!comm || !ret_request)
		return frl_fail(-EINVAL, "the communicator or ret_request is NULL");
	if (comm->error)
		return comm_error(comm);
	err = check_args(&args);
	if (err)
		return err;
	release_stale(comm);
	return start(comm, &args, ret_request);
}

/* Done, failed or neither, without making progress; frees the request unless neither. */
static int conclude(struct frl_request *request, bool *ret_done)
{
	struct frl_comm *comm = request->comm;

	if (request->done) {
		request_release(request);
		*ret_done = true;
		return 0;
	}
	if (comm->error) {
		request_release(request);
		return comm_error(comm);
	}
	*ret_done = false;
	return 0;
}

int frl_request_test(struct frl_request *request, bool *ret_done)
{
	if (!request || !ret_done)
		return frl_fail(-EINVAL, "the request or ret_done is NULL");
	if (!request->done)
		comm_progress(request->comm);
	return conclude(request, ret_done);
}

int frl_request_wait(struct frl_request *request)
{
	struct frl_backoff backoff = { 0 };
	bool done = false;
	int err = 0;

	if (!request)
		return frl_fail(-EINVAL, "the request is NULL");
	frl_backoff_reset(&backoff);
	while (!err && !done) {
		int events = request->done ? 0 : comm_progress(request->comm);

		err = conclude(request, &done);
		if (err || done)
			break;
		if (events > 0)
			frl_backoff_reset(&backoff);
		else
			frl_backoff_idle(&backoff);
	}
	return err;
}

int frl_allreduce(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op)
{
	struct frl_request *request;
	int err = frl_allreduce_start(comm, send, recv, count, dtype, op, &request);

	return err ? err : frl_request_wait(request);
}

int frl_barrier(struct frl_comm *comm)
{
	/* The sum of one element exists nowhere before every rank has given its part. */
	float value = 0;

	return frl_allreduce(comm, &value, &value, 1, FRL_FLOAT32, FRL_SUM);
}
