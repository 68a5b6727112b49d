/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kernel stays on the GPU and looks for batches in host memory, so that one costs two stores and
 * no call of the driver. It ends by its own clock: soon after the last batch, and in any case when
 * its first block has been there for TOTAL_NS, with what is in work then. So whoever waits for
 * the GPU waits no longer than that, whatever becomes of this process. What it has left the next
 * one takes, which is launched when somebody looks at the queue; while there is nothing to do
 * nothing runs.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "gpudirect/launch_ring.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	IDLE_NS = 50000,
	TOTAL_NS = 2000000,
	PAUSE_NS = 100000, /* between two looks of whoever waits for the end */
};

/* Whoever waits for the end while the next kernel is refused, for now, does so for this long. */
static const uint64_t REFUSED_NS = 2000000000;

struct persistent_launcher {
	struct ring_launcher ring;
	uint64_t generation; /* of the last kernel that was launched */
	bool is_broken;      /* there will be no other one */
};

static struct persistent_launcher *of(struct launcher *launcher)
{
	return (struct persistent_launcher *)launcher;
}

static void forget(struct launcher *launcher)
{
	launch_ring_forget(&of(launcher)->ring);
	free(of(launcher));
}

static int make(struct gpu *gpu, struct launcher **ret_launcher)
{
	struct persistent_launcher *own;
	int rc;

	if (gpu->caps.needs_flush)
		return frl_fail(-ENOTSUP,
			"FRL_GPU_LAUNCH=persistent: a kernel that runs already may not see what a "
			"NIC has written to GPU %d: use FRL_GPU_LAUNCH=batch",
			gpu->ordinal);
	own = calloc(1, sizeof(*own));
	if (!own)
		return frl_fail(-ENOMEM, "no memory for a GPU's queue");
	rc = launch_ring_make(&own->ring, &launch_persistent_ops, gpu);
	if (rc) {
		forget(&own->ring.base);
		return rc;
	}
	*ret_launcher = &own->ring.base;
	return 0;
}

/* The last kernel is no more, by its own decision. It may have left batches. */
static bool has_ended(const struct persistent_launcher *own)
{
	return __atomic_load_n(&own->ring.ring->ended, __ATOMIC_ACQUIRE) == own->generation;
}

/* What a kernel has left when no other one can be launched stays undone. */
static bool rests(struct launcher *launcher)
{
	return !of(launcher)->is_broken && has_ended(of(launcher));
}

/* A kernel, unless there is one. */
static enum launch_answer poll(struct launcher *launcher)
{
	struct persistent_launcher *own = of(launcher);
	struct gpu_scope scope;
	cu_result result;
	enum launch_answer answer;

	if (!launch_ring_is_own(&own->ring))
		return LAUNCH_GONE;
	if (own->is_broken)
		return LAUNCH_BROKEN;
	if (!has_ended(own))
		return LAUNCH_TAKEN;
	answer = launcher_enter(launcher, &scope);
	if (answer == LAUNCH_TAKEN) {
		result = launch_ring_kernel(&own->ring,
			&(struct gpu_ring_call){ .generation = own->generation + 1,
				.idle_ns = IDLE_NS,
				.total_ns = TOTAL_NS });
		gpu_leave(&scope);
		answer = launcher_answer(launcher, result, "cuLaunchKernel");
	}
	if (answer == LAUNCH_TAKEN)
		own->generation++;
	own->is_broken = answer == LAUNCH_BROKEN || answer == LAUNCH_GONE;
	return answer;
}

/* The kernel first: where that is refused nothing is left behind. */
static enum launch_answer launch(struct launcher *launcher, struct launch *open, uint64_t sequence)
{
	struct ring_launcher *ring = &of(launcher)->ring;
	enum launch_answer answer = poll(launcher);
	uint64_t number = ring->next;

	if (answer != LAUNCH_TAKEN)
		return answer;
	__atomic_store_n(ring_word(ring->ring, number),
		launch_ring_fill(ring, number, open, sequence), __ATOMIC_RELAXED);
	__atomic_store_n(&ring->ring->head, number, __ATOMIC_RELEASE);
	ring->next++;
	return LAUNCH_TAKEN;
}

/* The next kernel is refused just now, and so no kernel runs: when that lasts, what was taken stays
 * undone, as whoever waits would wait for ever. */
static bool is_refused_for_long(const struct launcher *launcher, uint64_t *since_ns)
{
	uint64_t now = clock_now_ns();

	if (!*since_ns)
		*since_ns = now;
	if (now - *since_ns < REFUSED_NS)
		return false;
	frl_log(FRL_LOG_ERROR, "%s; work that GPU %d has not done when its queue is freed is left",
		frl_last_error(), launcher->gpu->ordinal);
	return true;
}

static void finish(struct launcher *launcher, uint64_t launched)
{
	const struct cuda_api *cuda = launcher->gpu->cuda;
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	uint64_t refused_ns = 0;

	while (atomic_load_explicit(&launcher->shared->done, memory_order_acquire) != launched) {
		enum launch_answer answer = poll(launcher);
		cu_result result = cuda->cuStreamQuery(launcher->stream);

		if ((answer != LAUNCH_TAKEN && answer != LAUNCH_PUT_OFF) ||
			(result && result != CUDA_ERROR_NOT_READY && !cuda_is_passing(result)))
			return;
		if (answer == LAUNCH_TAKEN)
			refused_ns = 0;
		else if (is_refused_for_long(launcher, &refused_ns))
			return;
		nanosleep(&pause, NULL);
	}
}

const struct launcher_ops launch_persistent_ops = {
	.max_launches = LAUNCHES_MAX,
	.make = make,
	.launch = launch,
	.poll = poll,
	.rests = rests,
	.finish = finish,
	.unmake = launch_ring_unmake,
	.forget = forget,
};
