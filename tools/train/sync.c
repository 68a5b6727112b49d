/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/train/sync.h"

#include "tools/common/common.h"

/* Returns the time since the latest call. */
static uint64_t lap(struct train_sync *sync)
{
	uint64_t now = now_ns(), passed = now - sync->lap_ns;

	sync->lap_ns = now;
	return passed;
}

static void account_compute(struct train_sync *sync)
{
	uint64_t passed = lap(sync);

	sync->times.compute_ns += passed;
	if (sync->started > sync->done)
		sync->times.hidden_ns += passed;
}

void train_sync_resume(struct train_sync *sync)
{
	lap(sync);
}

void train_sync_pause(struct train_sync *sync)
{
	account_compute(sync);
}

/* Waits for the oldest bucket. */
static int wait_for_one(struct train_sync *sync)
{
	int rc;

	sync->times.drive_ns += lap(sync);
	rc = frl_request_wait(sync->requests[sync->done++ % TRAIN_MAX_IN_FLIGHT]);
	sync->times.wait_ns += lap(sync);
	return rc;
}

static int start_one(struct train_sync *sync)
{
	size_t first = sync->started * sync->bucket, left = sync->count - first;
	float *at = sync->gradients + first;
	int rc = 0;

	if (sync->started - sync->done == TRAIN_MAX_IN_FLIGHT)
		rc = wait_for_one(sync);
	if (!rc)
		rc = frl_allreduce_start(sync->comm, at, at,
			left < sync->bucket ? left : sync->bucket, FRL_FLOAT32, FRL_SUM,
			&sync->requests[sync->started % TRAIN_MAX_IN_FLIGHT]);
	if (!rc)
		sync->started++;
	return rc;
}

/* Starts all buckets whose gradients are final. */
static int start_full(struct train_sync *sync, size_t final)
{
	int rc = 0;

	while (!rc && sync->started * sync->bucket < sync->count) {
		size_t end = (sync->started + 1) * sync->bucket;

		if ((end < sync->count ? end : sync->count) > final)
			break;
		rc = start_one(sync);
	}
	return rc;
}

/* Tests one request; this advances all of them. */
static int collect_done(struct train_sync *sync)
{
	bool done = true;
	int rc = 0;

	while (!rc && done && sync->done < sync->started) {
		rc = frl_request_test(sync->requests[sync->done % TRAIN_MAX_IN_FLIGHT], &done);
		sync->done += !rc && done;
	}
	return rc;
}

void train_sync_gradients_final(void *arg, size_t final)
{
	struct train_sync *sync = arg;

	if (!sync->overlap || sync->error)
		return;
	account_compute(sync);
	sync->error = start_full(sync, final);
	if (!sync->error)
		sync->error = collect_done(sync);
	sync->times.drive_ns += lap(sync);
}

int train_sync_finish(struct train_sync *sync)
{
	account_compute(sync);
	if (!sync->error)
		sync->error = start_full(sync, sync->count);
	sync->times.drive_ns += lap(sync);
	while (!sync->error && sync->done < sync->started)
		sync->error = wait_for_one(sync);
	sync->started = 0;
	sync->done = 0;
	return sync->error;
}
