/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One batch is open; the others are in the stream, numbered, and done in this order: the number
 * that the last one has written to `done` says how far it is. So nothing is asked of the driver but
 * to launch, and now and then, when nothing moves, whether the stream still lives.
 *
 * A launch that the driver refuses just now leaves the batch open. It may not be put behind others
 * that touch the same bytes, so nothing overtakes it: pieces that do not fit in wait outside.
 */
#include "gpudirect/queue.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpudirect/gpu.h"
#include "gpudirect/launcher.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	LAUNCHES_MAX = 128, /* launched and not done */
	/* How long after a refused launch the next one is tried: from, and up to. */
	RETRY_NS = 10000,
	RETRY_MAX_NS = 1000000,
	/* When nothing has moved for this long the stream is looked at. */
	LOOK_NS = 1000000,
};

static const uint64_t STALL_NS = 1000000000; /* refused for this long: that is told */
/* A GPU that has given no answer of any meaning for so long is given up: one that still does its
 * work would have answered, and have ended it. */
static const uint64_t SILENCE_NS = 2000000000;

struct gpu_queue {
	struct gpu *gpu;
	struct launcher launcher;

	struct launch open;
	uint64_t given; /* tickets: the last one that was given, */
	uint64_t done;  /* and that is done */

	/* Launched are the numbers up to `launched`; those after `finished` are under way. */
	uint64_t launched, finished;
	uint64_t last_ticket[LAUNCHES_MAX]; /* of launch i, at i % LAUNCHES_MAX */
	uint64_t moved_ns;                  /* when something was launched, done or looked at */

	/* Since when launches are refused, when the next one is tried; 0: they are not. */
	uint64_t refused_ns, retry_ns;
	uint32_t pause_ns;
	bool stall_is_told;
	/* Since when no answer says whether what was launched still runs: without one of any
	 * meaning, and while asking is refused for now; 0: the last answer was another one. */
	uint64_t silent_ns, delayed_ns;
	bool delay_is_told;

	bool has_failed;  /* or was dropped: nothing is launched any more */
	bool has_stopped; /* after that: the GPU touches nothing any more, */
	bool is_given_up; /* or that is not to be found out */
	char why[ERROR_TEXT_MAX];
	struct gpu_queue_stats stats;
};

/* ---- failures */

/* The last error is why. */
static void fail(struct gpu_queue *queue, bool has_stopped)
{
	if (!queue->has_failed) {
		snprintf(queue->why, sizeof(queue->why), "%s", frl_last_error());
		frl_log(FRL_LOG_ERROR, "%s", queue->why);
	}
	queue->has_failed = true;
	queue->has_stopped |= has_stopped || queue->finished == queue->launched;
}

/* ---- launching */

/* A launch was refused, but not for good; the last error says why. */
static void put_off(struct gpu_queue *queue, uint64_t now)
{
	queue->stats.retries++;
	if (!queue->refused_ns) {
		queue->refused_ns = now;
		queue->pause_ns = RETRY_NS;
	} else if (queue->pause_ns < RETRY_MAX_NS) {
		queue->pause_ns *= 2;
	}
	queue->retry_ns = now + queue->pause_ns;
	if (now - queue->refused_ns < STALL_NS || queue->stall_is_told)
		return;
	queue->stall_is_told = true;
	frl_log(FRL_LOG_WARNING, "%s; work has waited for a second and is tried again",
		frl_last_error());
}

/* False: not now, or never more. */
static bool launch(struct gpu_queue *queue, uint64_t now)
{
	enum launch_answer answer = launcher_launch(
		&queue->launcher, &queue->open, queue->launched + 1);

	if (answer == LAUNCH_TAKEN)
		return true;
	if (answer == LAUNCH_PUT_OFF)
		put_off(queue, now);
	else
		fail(queue, answer == LAUNCH_GONE);
	return false;
}

void gpu_queue_launch(struct gpu_queue *queue)
{
	uint64_t now;

	if (!queue->open.batch.n_pieces || queue->has_failed ||
		queue->launched - queue->finished >= LAUNCHES_MAX)
		return;
	now = clock_now_ns();
	if ((queue->refused_ns && now < queue->retry_ns) || !launch(queue, now))
		return;
	queue->refused_ns = 0;
	queue->stall_is_told = false;
	queue->moved_ns = now;
	queue->launched++;
	queue->last_ticket[queue->launched % LAUNCHES_MAX] = queue->given;
	queue->stats.launches++;
	launch_clear(&queue->open);
}

uint64_t gpu_queue_add(struct gpu_queue *queue, const struct gpu_work *work)
{
	if (queue->has_failed || queue->given - queue->done >= GPU_QUEUE_PIECES)
		return 0;
	if (!launch_takes(&queue->open, work)) {
		gpu_queue_launch(queue);
		if (queue->open.batch.n_pieces || queue->has_failed)
			return 0;
	}
	launch_add(&queue->open, work);
	queue->stats.pieces++;
	queue->stats.bytes += gpu_work_dst_bytes(work);
	queue->given++;
	if (queue->open.batch.n_pieces == queue->open.max_pieces)
		gpu_queue_launch(queue);
	return queue->given;
}

/* ---- what is done */

/* Numbers that were not launched by this process are of the one that it was forked from. */
static void collect(struct gpu_queue *queue, uint64_t now)
{
	uint64_t finished = atomic_load_explicit(
		&queue->launcher.shared->done, memory_order_acquire);

	if (finished == queue->finished ||
		finished - queue->finished > queue->launched - queue->finished)
		return;
	queue->finished = finished;
	/* After a failure nothing more counts as done until all has stopped. */
	if (!queue->has_failed)
		queue->done = queue->last_ticket[finished % LAUNCHES_MAX];
	queue->moved_ns = now;
	queue->silent_ns = queue->delayed_ns = 0;
}

/* Asking how far the work is was refused, but not for good; the last error says why. */
static void note_delay(struct gpu_queue *queue, uint64_t now)
{
	queue->silent_ns = 0;
	if (!queue->delayed_ns) {
		queue->delayed_ns = now;
		queue->delay_is_told = false;
	}
	if (now - queue->delayed_ns < STALL_NS || queue->delay_is_told)
		return;
	queue->delay_is_told = true;
	frl_log(FRL_LOG_WARNING,
		"%s; how far work is has not been known for a second: it is waited for",
		frl_last_error());
}

/* The answer, in the last error, does not say whether what was launched still runs, and there is
 * nothing else to ask. When that lasts it is taken as ended: whoever waits for it would do so for
 * ever, and a GPU that has fallen off its bus touches nothing. */
static void note_silence(struct gpu_queue *queue, uint64_t now)
{
	queue->delayed_ns = 0;
	if (!queue->silent_ns)
		queue->silent_ns = now;
	if (now - queue->silent_ns < SILENCE_NS) {
		fail(queue, false);
		return;
	}
	fail(queue, true);
	queue->is_given_up = true;
	frl_log(FRL_LOG_ERROR,
		"GPU %d is given up: whether its work has ended was not to be found out for %llu "
		"ms (%s)",
		queue->gpu->ordinal, (unsigned long long)((now - queue->silent_ns) / 1000000),
		frl_last_error());
}

/* A kernel that fails writes no number: only the stream knows of it. */
static void look(struct gpu_queue *queue, uint64_t now)
{
	struct gpu_scope scope;
	cu_result result;
	char what[64];
	int rc;

	queue->moved_ns = now;
	rc = launcher_is_own(&queue->launcher) ? gpu_enter(queue->gpu, &scope) : -ENODEV;
	if (rc == -ENODEV)
		fail(queue, true);
	else if (cuda_is_passing_error(rc))
		note_delay(queue, now);
	else if (rc)
		note_silence(queue, now);
	if (rc)
		return;
	result = queue->gpu->cuda->cuStreamQuery(queue->launcher.stream);
	gpu_leave(&scope);
	collect(queue, now);
	if ((!result || cuda_is_passing(result)) && queue->finished == queue->launched)
		return;
	if (result == CUDA_ERROR_NOT_READY) {
		queue->silent_ns = queue->delayed_ns = 0;
		return;
	}
	snprintf(what, sizeof(what), "work on GPU %d", queue->gpu->ordinal);
	if (result)
		cuda_fail(result, "cuStreamQuery", what);
	else
		frl_fail(-EIO, "%s ended without saying so: its last number is %llu, not %llu",
			what, (unsigned long long)queue->finished,
			(unsigned long long)queue->launched);
	if (!result || cuda_is_fatal(result) || launcher_is_gone(result))
		fail(queue, true);
	else if (cuda_is_passing(result))
		note_delay(queue, now);
	else
		note_silence(queue, now);
}

uint64_t gpu_queue_done(struct gpu_queue *queue)
{
	uint64_t now;

	if (queue->has_stopped)
		return queue->given;
	if (queue->launched != queue->finished) {
		now = clock_now_ns();
		collect(queue, now);
		if (queue->launched != queue->finished && now - queue->moved_ns >= LOOK_NS)
			look(queue, now);
	}
	if (queue->has_failed)
		queue->has_stopped |= queue->launched == queue->finished;
	else
		gpu_queue_launch(queue); /* what was refused, or found no room in the stream */
	return queue->has_stopped ? queue->given : queue->done;
}

uint32_t gpu_queue_max_pieces(const struct gpu_queue *queue)
{
	return queue->open.max_pieces;
}

int gpu_queue_error(const struct gpu_queue *queue, const char **ret_why)
{
	if (!queue->has_failed)
		return 0;
	*ret_why = queue->why;
	return -EIO;
}

void gpu_queue_stats(const struct gpu_queue *queue, struct gpu_queue_stats *ret_stats)
{
	*ret_stats = queue->stats;
}

void gpu_queue_drop(struct gpu_queue *queue)
{
	launch_clear(&queue->open);
	if (queue->has_failed)
		return;
	snprintf(queue->why, sizeof(queue->why), "GPU %d: what was not launched yet was dropped",
		queue->gpu->ordinal);
	queue->has_failed = true;
	queue->has_stopped = queue->finished == queue->launched;
}

/* ---- beginning and end */

int gpu_queue_new(struct gpu *gpu, struct gpu_queue **ret_queue)
{
	struct gpu_queue *queue = calloc(1, sizeof(*queue));
	int rc;

	if (!queue)
		return frl_fail(-ENOMEM, "no memory for a GPU's queue");
	queue->gpu = gpu;
	rc = launcher_make(&queue->launcher, gpu);
	if (rc) {
		free(queue);
		return rc;
	}
	queue->open.max_pieces = queue->launcher.max_pieces;
	launch_clear(&queue->open);
	gpu_hold_again(gpu);
	*ret_queue = queue;
	return 0;
}

/* In the context. What a kernel of a GPU that was given up may still write stays as it is. */
static void end(struct gpu_queue *queue)
{
	struct launcher *launcher = &queue->launcher;

	if (!queue->is_given_up || !queue->gpu->cuda->cuStreamQuery(launcher->stream))
		launcher_end(launcher, queue->launched, queue->has_stopped);
}

void gpu_queue_free(struct gpu_queue *queue)
{
	struct gpu_scope scope;

	if (!queue)
		return;
	if (!gpu_enter(queue->gpu, &scope)) {
		end(queue);
		gpu_leave(&scope);
	}
	launcher_forget(&queue->launcher);
	gpu_release(queue->gpu);
	free(queue);
}
