/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that wait for a stream of the application. They are blocked in their lanes meanwhile,
 * so that operations between two ranks keep their order, while operations between other ranks
 * proceed. The thread that makes progress polls the event. A stream that waited for the processor
 * would instead block everything that synchronizes with it, including Ferrule's own kernels.
 */
#include <errno.h>
#include <stdlib.h>

#include "collectives/communicator/communicator.h"
#include "collectives/gpu/bounce.h"
#include "collectives/gpu/compute.h"
#include "gpudirect/gpu.h"
#include "gpudirect/stream.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

/* A poll takes a microsecond or two. At first streams are polled in each round; after EAGER_NS
 * only every LOOK_NS, which costs other work little and delays the operation by as much. */
enum { EAGER_NS = 20000, LOOK_NS = 20000 };

static int get_stream_wait(struct compute *compute, struct stream_wait **ret_stream_wait)
{
	struct stream_wait *stream_wait = compute->idle_stream_waits;
	int err;

	if (stream_wait) {
		compute->idle_stream_waits = stream_wait->next;
		*ret_stream_wait = stream_wait;
		return 0;
	}
	stream_wait = calloc(1, sizeof(*stream_wait));
	if (!stream_wait)
		return frl_fail(-ENOMEM, "no memory for an event");
	stream_wait->compute = compute;
	err = gpu_event_new(compute->gpu, &stream_wait->event);
	if (err) {
		free(stream_wait);
		return err;
	}
	*ret_stream_wait = stream_wait;
	return 0;
}

void stream_wait_put(struct stream_wait *stream_wait)
{
	if (!stream_wait)
		return;
	stream_wait->next = stream_wait->compute->idle_stream_waits;
	stream_wait->compute->idle_stream_waits = stream_wait;
}

/*
 * A default stream belongs to the GPU of the buffers, if there is one. The driver reports the
 * context of other streams if any context is current; a thread without one uses that of an earlier
 * operation.
 */
static int find_compute(struct frl_comm *comm, void *stream, struct compute **compute)
{
	struct gpu *gpu = *compute ? (*compute)->gpu : NULL;
	cu_context context;
	int err, ordinal;

	if (gpu && gpu_stream_is_default(stream))
		return 0;
	err = gpu_stream_context(gpu, stream, &context);
	if (err == -EINVAL && !gpu && comm->computes && !gpu_stream_is_default(stream))
		err = gpu_stream_context(comm->computes->gpu, stream, &context);
	if (err || (gpu && context == gpu->context))
		return err;
	err = gpu_context_ordinal(context, &ordinal);
	return err ? err : compute_get(comm, context, ordinal, compute);
}

int stream_wait_make(struct frl_comm *comm, void *stream, struct compute *compute,
	struct stream_wait **ret_stream_wait)
{
	struct stream_wait *stream_wait = NULL;
	int err = find_compute(comm, stream, &compute);

	if (!err)
		err = get_stream_wait(compute, &stream_wait);
	if (err)
		return err;
	err = gpu_event_record(stream_wait->event, stream);
	if (err) {
		stream_wait_put(stream_wait);
		return err;
	}
	*ret_stream_wait = stream_wait;
	return 0;
}

/* ---- waiting */

static void pass(struct run *run)
{
	stream_wait_put(run->stream_wait);
	run->stream_wait = NULL;
	if (run->bounce)
		bounce_copy_in(run);
	else
		run->comm->hooks->open_run(run);
}

void stream_wait_start(struct run *run)
{
	struct frl_comm *comm = run->comm;
	struct run **end = &comm->stream_waiting;

	if (!run->stream_wait) {
		pass(run);
		return;
	}
	while (*end)
		end = &(*end)->next_stream_waiting;
	run->next_stream_waiting = NULL;
	*end = run;
	comm->stream_eager_ns = clock_now_ns() + EAGER_NS;
}

int stream_waits_poll(struct frl_comm *comm)
{
	struct run **at = &comm->stream_waiting;
	int events = 0;
	uint64_t now;

	if (!*at)
		return 0;
	now = clock_now_ns();
	if (now >= comm->stream_eager_ns) {
		if (now < comm->stream_poll_ns)
			return 0;
		comm->stream_poll_ns = now + LOOK_NS;
	}
	while (*at) {
		struct run *run = *at;
		int has_happened = gpu_event_has_happened(run->stream_wait->event);

		if (has_happened < 0)
			return comm_fail(comm, has_happened,
				"rank %d cannot begin %s #%u, which waits for a stream: %s",
				comm->rank, frl_coll_name(run->coll), run->signature.number,
				frl_last_error());
		if (!has_happened) {
			at = &run->next_stream_waiting;
			continue;
		}
		*at = run->next_stream_waiting;
		run->request->moves++;
		events++;
		pass(run);
	}
	return events;
}
