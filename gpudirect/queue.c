/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One batch is open. All others are in the stream; they are numbered and complete in order. Each
 * kernel writes its batch's number to `done`. So the queue calls the driver only to launch, and
 * occasionally, if nothing completes, to check the stream.
 *
 * If the driver temporarily refuses a launch, the batch stays open. Later pieces may touch the same
 * bytes, so nothing overtakes the batch: pieces that do not fit into it are not accepted.
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
	LAUNCHES_MAX = 128, /* the most launches that are not done */
	/* The delay before a refused launch is retried: the first delay, and the longest. */
	RETRY_NS = 10000,
	RETRY_MAX_NS = 1000000,
	/* Check the stream if nothing has completed for this long. */
	LOOK_NS = 1000000,
};

static const uint64_t REFUSED_WARN_NS = 1000000000; /* refused for this long: warn */
/* Give up a GPU that has returned only unknown errors for this long. A GPU that still works would
 * have returned a known error that ends its work. */
static const uint64_t SILENCE_NS = 2000000000;

struct gpu_queue {
	struct gpu *gpu;
	struct launcher launcher;

	struct launch open;
	uint64_t given; /* tickets: the last one that was issued, */
	uint64_t done;  /* and the last one that is done */

	/* Batches up to `launched` were launched; those after `finished` are running. */
	uint64_t launched, finished;
	uint64_t last_ticket[LAUNCHES_MAX]; /* the last ticket of launch i, at i % LAUNCHES_MAX */
	uint64_t moved_ns;                  /* the time of the last launch, completion or check */

	/* The time of the first refusal and of the next retry; 0: launches are not refused. */
	uint64_t refused_ns, retry_ns;
	uint32_t pause_ns;
	bool refusal_is_logged;
	/* Since when the driver does not report whether launches still run: unknown_ns for unknown
	 * errors, delayed_ns for temporary failures. 0: the last answer was another one. */
	uint64_t unknown_ns, delayed_ns;
	bool delay_is_logged;

	bool has_failed;  /* or was dropped: no more launches */
	bool has_stopped; /* after has_failed: the GPU no longer touches the memory, */
	bool is_given_up; /* or this cannot be determined */
	char why[ERROR_TEXT_MAX];
	struct gpu_queue_stats stats;
};

/* ---- failures */

/* Stops the queue, with the last error as the reason. */
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

/* Handles a temporarily refused launch; the last error is the reason. */
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
	if (now - queue->refused_ns < REFUSED_WARN_NS || queue->refusal_is_logged)
		return;
	queue->refusal_is_logged = true;
	frl_log(FRL_LOG_WARNING, "%s; work has waited for a second and is retried",
		frl_last_error());
}

/* Returns false if the launch was refused, temporarily or for good. */
static bool launch(struct gpu_queue *queue, uint64_t now)
{
	enum launch_answer answer = launcher_launch(
		&queue->launcher, &queue->open, queue->launched + 1);

	if (answer == LAUNCH_TAKEN)
		return true;
	if (answer == LAUNCH_PUT_OFF)
		put_off(queue, now);
	else
		fail(queue, answer == LAUNCH_LOST);
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
	queue->refusal_is_logged = false;
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

/* ---- completion */

/* Ignores batch numbers that this process did not launch: they belong to its parent, before
 * fork(). */
static void collect(struct gpu_queue *queue, uint64_t now)
{
	uint64_t finished = atomic_load_explicit(
		&queue->launcher.shared->done, memory_order_acquire);

	if (finished == queue->finished ||
		finished - queue->finished > queue->launched - queue->finished)
		return;
	queue->finished = finished;
	/* After a failure, pieces count as done only when all work has stopped. */
	if (!queue->has_failed)
		queue->done = queue->last_ticket[finished % LAUNCHES_MAX];
	queue->moved_ns = now;
	queue->unknown_ns = queue->delayed_ns = 0;
}

/* Handles a temporary failure of the progress check; the last error is the reason. */
static void note_delay(struct gpu_queue *queue, uint64_t now)
{
	queue->unknown_ns = 0;
	if (!queue->delayed_ns) {
		queue->delayed_ns = now;
		queue->delay_is_logged = false;
	}
	if (now - queue->delayed_ns < REFUSED_WARN_NS || queue->delay_is_logged)
		return;
	queue->delay_is_logged = true;
	frl_log(FRL_LOG_WARNING,
		"%s; the progress of work has been unknown for a second; still waiting",
		frl_last_error());
}

/* Handles a result that does not tell whether launches still run. If this lasts, the work counts as
 * ended: callers would otherwise wait for ever, and a GPU that has fallen off the bus touches no
 * memory. */
static void note_silence(struct gpu_queue *queue, uint64_t now)
{
	queue->delayed_ns = 0;
	if (!queue->unknown_ns)
		queue->unknown_ns = now;
	if (now - queue->unknown_ns < SILENCE_NS) {
		fail(queue, false);
		return;
	}
	fail(queue, true);
	queue->is_given_up = true;
	frl_log(FRL_LOG_ERROR,
		"GPU %d is abandoned: the end of its work could not be determined for %llu ms (%s)",
		queue->gpu->ordinal, (unsigned long long)((now - queue->unknown_ns) / 1000000),
		frl_last_error());
}

/* A kernel that faults writes no number, so check the stream. */
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
		queue->unknown_ns = queue->delayed_ns = 0;
		return;
	}
	snprintf(what, sizeof(what), "work on GPU %d", queue->gpu->ordinal);
	if (result)
		cuda_fail(result, "cuStreamQuery", what);
	else
		frl_fail(-EIO, "%s ended without a completion: its last number is %llu, not %llu",
			what, (unsigned long long)queue->finished,
			(unsigned long long)queue->launched);
	if (!result || cuda_is_fatal(result) || launcher_context_is_lost(result))
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
		gpu_queue_launch(queue); /* a refused batch, or one for which the stream was full */
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
	snprintf(queue->why, sizeof(queue->why), "GPU %d: pending launches were dropped",
		queue->gpu->ordinal);
	queue->has_failed = true;
	queue->has_stopped = queue->finished == queue->launched;
}

/* ---- creation and destruction */

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

/* In the context. Leaves memory that a given-up GPU's kernel may still write. */
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
	launcher_free_memory(&queue->launcher);
	gpu_release(queue->gpu);
	free(queue);
}
