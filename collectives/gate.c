/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that wait for a stream of the application. They are blocked in their lanes meanwhile,
 * so that operations between two ranks keep their order, while operations between other ranks
 * proceed. The thread that makes progress polls the event. A stream that waited for the processor
 * would instead block everything that synchronizes with it, including Ferrule's own kernels.
 */
#include <errno.h>
#include <stdlib.h>

#include "collectives/communicator.h"
#include "collectives/compute.h"
#include "collectives/shadow.h"
#include "gpudirect/gpu.h"
#include "gpudirect/stream.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

/* A poll takes a microsecond or two. At first streams are polled in each round; after EAGER_NS
 * only every LOOK_NS, which costs other work little and delays the operation by as much. */
enum { EAGER_NS = 20000, LOOK_NS = 20000 };

static int get_gate(struct compute *compute, struct gate **ret_gate)
{
	struct gate *gate = compute->idle_gates;
	int err;

	if (gate) {
		compute->idle_gates = gate->next;
		*ret_gate = gate;
		return 0;
	}
	gate = calloc(1, sizeof(*gate));
	if (!gate)
		return frl_fail(-ENOMEM, "no memory for an event");
	gate->compute = compute;
	err = gpu_event_new(compute->gpu, &gate->event);
	if (err) {
		free(gate);
		return err;
	}
	*ret_gate = gate;
	return 0;
}

void gate_put(struct gate *gate)
{
	if (!gate)
		return;
	gate->next = gate->compute->idle_gates;
	gate->compute->idle_gates = gate;
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

int gate_make(struct frl_comm *comm, void *stream, struct compute *compute, struct gate **ret_gate)
{
	struct gate *gate = NULL;
	int err = find_compute(comm, stream, &compute);

	if (!err)
		err = get_gate(compute, &gate);
	if (err)
		return err;
	err = gpu_event_record(gate->event, stream);
	if (err) {
		gate_put(gate);
		return err;
	}
	*ret_gate = gate;
	return 0;
}

/* ---- waiting */

static void pass(struct run *run)
{
	gate_put(run->gate);
	run->gate = NULL;
	if (run->shadow)
		shadow_pack(run);
	else
		run_open(run);
}

void gate_wait(struct run *run)
{
	struct frl_comm *comm = run->comm;
	struct run **end = &comm->gated;

	if (!run->gate) {
		pass(run);
		return;
	}
	while (*end)
		end = &(*end)->next_gated;
	run->next_gated = NULL;
	*end = run;
	comm->gate_eager_ns = clock_now_ns() + EAGER_NS;
}

int gates_poll(struct frl_comm *comm)
{
	struct run **at = &comm->gated;
	int events = 0;
	uint64_t now;

	if (!*at)
		return 0;
	now = clock_now_ns();
	if (now >= comm->gate_eager_ns) {
		if (now < comm->gate_look_ns)
			return 0;
		comm->gate_look_ns = now + LOOK_NS;
	}
	while (*at) {
		struct run *run = *at;
		int has_happened = gpu_event_has_happened(run->gate->event);

		if (has_happened < 0)
			return comm_fail(comm, has_happened,
				"rank %d cannot begin %s #%u, which waits for a stream: %s",
				comm->rank, frl_coll_name(run->coll), run->signature.number,
				frl_last_error());
		if (!has_happened) {
			at = &run->next_gated;
			continue;
		}
		*at = run->next_gated;
		run->request->moves++;
		events++;
		pass(run);
	}
	return events;
}
