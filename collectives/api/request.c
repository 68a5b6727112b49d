/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: operations that callers start, and their end. */
#include "collectives/api/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/api/driver.h"
#include "collectives/gpu/bounce.h"
#include "collectives/gpu/compute.h"
#include "collectives/gpu/memory_kind.h"
#include "collectives/net/channel.h"
#include "collectives/plan/shapes.h"
#include "collectives/shm/shm.h"
#include "gpudirect/cuda/cuda.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

/* ---- life cycle */

static struct frl_request *request_get(struct frl_comm *comm)
{
	struct frl_request *request = comm->idle.first;

	if (request)
		request_unlink(request);
	else
		request = malloc(sizeof(*request));
	if (request)
		*request = (struct frl_request){ .comm = comm };
	return request;
}

static bool deregister(struct frl_request *request)
{
	bool is_done = true;

	for (struct run *run = request->runs; run; run = run->next)
		is_done = run_deregister(run) && is_done;
	return is_done;
}

static void release_run(struct run *run)
{
	run_return_borrowed(run);
	if (run->bounce || run->scratch || run->stream_wait)
		compute_release_run(run);
	run->is_blocked = false;
	if (run->is_shm)
		shm_put_run(run);
	else
		run_put(run);
}

static void drop_notice(struct frl_request *request)
{
	free(request->notice);
	request->notice = NULL;
	request->comm->detached--;
}

/* Frees the request now, or when its registrations can end. */
static void request_release(struct frl_request *request)
{
	struct frl_comm *comm = request->comm;

	request_unlink(request);
	if (request->notice)
		drop_notice(request);
	if (comm->error && comm->computes && !request->done)
		computes_settle(request);
	if (!deregister(request)) {
		request_append(&comm->stale, request);
		return;
	}
	while (request->runs) {
		struct run *run = request->runs;

		request->runs = run->next;
		release_run(run);
	}
	request_append(&comm->idle, request);
}

/* Tries again to free requests whose registrations were in use. */
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

static void release_all(struct request_list *list)
{
	while (list->first)
		request_release(list->first);
}

void requests_settle(struct frl_comm *comm)
{
	struct frl_backoff backoff;
	uint64_t until_ns;

	release_all(&comm->finishing);
	release_all(&comm->done);
	if (!comm->stale.first)
		return;
	/* A NIC's queue may use registrations until it has sent its packets. */
	until_ns = clock_now_ns() + (uint64_t)BUSY_MS * NS_PER_MS;
	frl_backoff_reset(&backoff);
	while (comm->stale.first && clock_now_ns() < until_ns) {
		int packets = 0;

		for (unsigned rail = 0; rail < comm->n_rails; rail++)
			packets += frl_progress(comm->rails[rail].device);
		if (packets <= 0)
			frl_backoff_idle(&backoff);
		release_stale(comm);
	}
}

void requests_free(struct frl_comm *comm)
{
	release_all(&comm->active);
	requests_settle(comm);
	while (comm->stale.first) {
		struct frl_request *request = comm->stale.first;

		request_unlink(request);
		free(request);
	}
	while (comm->idle.first) {
		struct frl_request *request = comm->idle.first;

		request_unlink(request);
		free(request);
	}
}

/* ---- starting */

static int find_schedule(
	struct frl_comm *comm, struct operation *operation, struct schedule **ret_schedule)
{
	/* Plans for many counts are not kept, since the same counts are unlikely to return. */
	bool is_kept = !shape_has_pieces(operation->key.coll);
	enum frl_algo algo;
	int err;

	*ret_schedule = is_kept ? schedule_find(&comm->schedules, &operation->key) : NULL;
	if (*ret_schedule)
		return 0;
	err = comm_choose(comm, &operation->job, &algo);
	return err ? err
		   : schedule_make(&comm->schedules, is_kept ? &operation->key : NULL, algo,
			     &operation->job, ret_schedule);
}

static int get_schedule(
	struct frl_comm *comm, struct operation *operation, struct schedule **ret_schedule)
{
	int err = find_schedule(comm, operation, ret_schedule);

	if (err || (*ret_schedule)->has_peers)
		return err;
	if (!peers_create(comm, *ret_schedule)) {
		schedule_put(*ret_schedule);
		return frl_fail(-ENOMEM, "no memory for %d peers", comm->ranks);
	}
	(*ret_schedule)->has_peers = true;
	return 0;
}

/* Returns whether data that the processor must access needs bounce buffers in host memory. */
static bool needs_bounce(const struct operation *o, const struct memory_kinds *kinds,
	const struct schedule *schedule)
{
	if (!kinds->on_gpu[PLAN_SEND] && !kinds->on_gpu[PLAN_RECV])
		return false;
	if (!schedule || schedule->has_eager)
		return true;
	return (!kinds->on_gpu[PLAN_SEND] && o->bytes[PLAN_SEND] > 0) ||
		(!kinds->on_gpu[PLAN_RECV] && o->bytes[PLAN_RECV] > 0);
}

static int get_run(struct frl_comm *comm, struct operation *operation,
	const struct memory_kinds *kinds, bool *ret_needs_bounce, struct run **ret_run)
{
	struct schedule *schedule = NULL;
	struct compute *compute;
	bool on_gpu = kinds->on_gpu[PLAN_SEND] || kinds->on_gpu[PLAN_RECV];
	bool is_shm = shm_can(comm, operation);
	int err = operation->to_self || is_shm ? 0 : get_schedule(comm, operation, &schedule);

	if (err)
		return err;
	*ret_needs_bounce = needs_bounce(operation, kinds, schedule);
	if (!schedule)
		return is_shm ? shm_get_run(comm, shm_is_long(comm, operation), ret_run)
			      : self_get(comm, ret_run);
	compute = on_gpu && !*ret_needs_bounce ? kinds->compute : NULL;
	err = run_get(comm, schedule, compute, ret_run);
	if (!err && compute) {
		err = compute_get_scratch(*ret_run);
		if (err)
			run_free(*ret_run);
	}
	if (err)
		schedule_put(schedule);
	return err;
}

static int register_run(struct run *run)
{
	int err = run->schedule ? run_register(run) : 0;

	if (!err && run->compute)
		compute_anchor(run->compute);
	return err;
}

/* Appends a run, ready to be started. After a failure the request may already contain the run. */
static int append_run(struct frl_request *request, struct operation *operation,
	const struct frl_collective *collective, struct memory_kinds *kinds)
{
	struct run **last = &request->runs;
	bool has_bounce;
	struct run *run;
	int err = get_run(request->comm, operation, kinds, &has_bounce, &run);

	if (err)
		return err;
	while (*last)
		last = &(*last)->next;
	run->stream_wait = kinds->stream_wait;
	kinds->stream_wait = NULL;
	run->request = request;
	run->signature = operation->signature;
	run->coll = collective->coll;
	run->dtype = operation->key.dtype;
	run->count = operation->key.count;
	run->op = operation->op;
	run->scaled = operation->key.op;
	if (operation->key.op == FRL_PREMUL_SUM)
		memcpy(run->scalar, collective->scalar, operation->job.elem_size);
	run->base[PLAN_SEND] = (uint8_t *)(uintptr_t)collective->send; /* only read */
	run->base[PLAN_RECV] = collective->recv;
	run->bytes[PLAN_SEND] = operation->bytes[PLAN_SEND];
	run->bytes[PLAN_RECV] = operation->bytes[PLAN_RECV];
	run->next = NULL;
	*last = run;
	request->left++;
	if (has_bounce)
		err = bounce_make(run, kinds->compute, kinds->on_gpu, operation->key.in_place);
	return err ? err : register_run(run);
}

/* Adds one more run to the request, to be started with the others. */
static int add_run(
	struct frl_request *request, const struct frl_collective *collective, bool has_cuda)
{
	struct operation operation;
	struct memory_kinds kinds;
	int err = operation_init(&operation, request->comm, collective);

	if (!err)
		err = memory_kinds_find(&kinds, request->comm, &operation, collective, has_cuda);
	if (err)
		return err;
	err = append_run(request, &operation, collective, &kinds);
	stream_wait_put(kinds.stream_wait);
	return err;
}

/*
 * Numbers the run. Collectives are numbered, including empty ones, which may not be empty on other
 * ranks. A SEND or RECV has the number of the next collective.
 */
static void give_number(struct frl_comm *comm, struct run *run)
{
	run->signature.number = comm->started;
	transfers_note(run);
	if (run->signature.coll == FRL_SEND)
		return;
	comm->history[comm->started++ % HISTORY] = run->signature;
}

static int enqueue(struct run *run)
{
	int err = 0;

	run->is_blocked = run->stream_wait || run->bounce;
	if (run->is_shm)
		shm_enqueue(run);
	else if (run->schedule)
		run_begin(run);
	else
		err = self_enqueue(run);
	if (!err && run->is_blocked)
		stream_wait_start(run);
	return err;
}

static int begin(struct frl_request *request)
{
	struct frl_comm *comm = request->comm;
	int err = 0;

	request->number = ++comm->requests;
	request_append(request->left > 0 ? &comm->active : &comm->finishing, request);
	for (struct run *run = request->runs; run; run = run->next)
		give_number(comm, run);
	for (struct run *run = request->runs; run && !err; run = run->next)
		err = enqueue(run);
	comm_note_operation(comm);
	if (!err)
		err = comm_advance(comm);
	if (!err)
		comm_finish_requests(comm);
	/* A rank that always arrives last would otherwise never poll. */
	if (!err && comm->shm && shm_is_due(comm->shm))
		err = comm_round(comm);
	return err < 0 ? err : 0;
}

int request_start(struct frl_comm *comm, const struct frl_collective collectives[], int n,
	struct frl_request **ret_request)
{
	struct frl_request *request;
	bool has_cuda;
	int err = 0;

	if (!comm->error && inbox_is_waiting(&comm->inbox))
		comm_take_mail(comm);
	if (comm->error)
		return comm_error(comm);
	if (comm->stale.first)
		release_stale(comm);
	request = request_get(comm);
	if (!request)
		return frl_fail(-ENOMEM, "no memory for a request");
	has_cuda = cuda_is_loaded();
	for (int i = 0; i < n && !err; i++)
		err = add_run(request, &collectives[i], has_cuda);
	if (!err)
		err = begin(request);
	if (err) {
		request_release(request);
		return err;
	}
	*ret_request = request;
	return 0;
}

/* Flushes, since the caller may do something else before it tests the request. */
int frl_start_group(struct frl_comm *comm, const struct frl_collective collectives[], int n,
	struct frl_request **ret_request)
{
	int err;

	if (!comm || !ret_request || n < 0 || (n > 0 && !collectives))
		return frl_fail(-EINVAL,
			"the communicator, the collectives or ret_request is NULL, or n negative");
	comm_enter(comm);
	err = request_start(comm, collectives, n, ret_request);
	if (!err)
		comm_flush(comm);
	comm_leave(comm);
	return err;
}

/* ---- completing */

/* Frees a detached request and reports it. */
static void report(struct frl_request *request, int err)
{
	struct frl_comm *comm = request->comm;
	struct notice *notice = request->notice;

	request->notice = NULL;
	comm->detached--;
	notice->err = err;
	request_release(request);
	notices_push(comm, notice);
}

/* Returns whether the registrations have ended, or the deadline for that has passed. */
static bool may_finish(struct frl_request *request)
{
	uint64_t now_ns;

	if (deregister(request))
		return true;
	now_ns = clock_now_ns();
	if (request->busy_by_ns == 0)
		request->busy_by_ns = now_ns + (uint64_t)BUSY_MS * NS_PER_MS;
	return now_ns >= request->busy_by_ns;
}

/*
 * A complete request returns the memory to the caller, so registrations end first; but a NIC that
 * delays a packet must not block the job.
 */
void comm_finish_requests(struct frl_comm *comm)
{
	struct frl_request *request, *next;

	if (!comm->finishing.first)
		return;
	comm_flush(comm);
	for (request = comm->finishing.first; request; request = next) {
		next = request->next;
		if (!may_finish(request))
			continue;
		request_unlink(request);
		request->done = true;
		request_append(&comm->done, request);
		comm_note_operation(comm);
		if (request->waiter)
			driver_wake(request->waiter);
		if (request->notice)
			report(request, 0);
	}
}

int request_conclude(struct frl_request *request, bool *ret_done)
{
	struct frl_comm *comm = request->comm;

	if (request->done) {
		request_release(request);
		*ret_done = true;
		return 0;
	}
	if (comm->error && computes_are_still(request)) {
		request_release(request);
		return comm_error(comm);
	}
	*ret_done = false;
	return 0;
}

/* Reports a request that is detached, if it is done or has failed. */
static void report_if_over(struct frl_request *request)
{
	struct frl_comm *comm = request->comm;

	if (request->done)
		report(request, 0);
	else if (comm->error && computes_are_still(request))
		report(request, comm->error);
}

void request_detach(struct frl_request *request, struct notice *notice)
{
	struct frl_comm *comm = request->comm;

	comm_enter(comm);
	request->notice = notice;
	comm->detached++;
	report_if_over(request);
	comm_leave(comm);
}

static void report_all(struct request_list *list)
{
	struct frl_request *request, *next;

	for (request = list->first; request; request = next) {
		next = request->next;
		if (request->notice)
			report_if_over(request);
	}
}

void requests_report_failed(struct frl_comm *comm)
{
	if (comm->detached == 0)
		return;
	report_all(&comm->active);
	report_all(&comm->finishing);
}
