/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who drives the engine: whoever polls or waits here, and the progress thread where there is one.
 * Whoever has done something with the engine tells the events that came of it as he leaves.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "lib/api/objects.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	NS_PER_MS = 1000000,
	NS_PER_S = 1000000000,
	PAUSE_NS = NS_PER_MS, /* while the application polls; also the longest wait for an event */
	LAST_POLLS = 16,      /* that are made between asking for an event and going to sleep */
};

void device_leave(struct frl_device *device)
{
	struct event_queues *events = &device->engine.events;

	while (!list_empty(&events->completions)) {
		struct cq *core = container_of(events->completions.next, struct cq, notify);
		struct frl_cq *cq = container_of(core, struct frl_cq, core);

		list_remove(&core->notify);
		list_add_tail(&cq->channel->pending, &core->notify);
		bell_set(&cq->channel->bell, true);
	}
	bell_set(&device->async, !list_empty(&events->async));
	guard_leave(&device->guard);
}

uint32_t device_poll(struct frl_device *device)
{
	uint32_t moved = engine_poll(&device->engine, clock_now_ns());

	if (device->engine.has_notes)
		fabric_take_notes(device);
	return moved;
}

int device_wait(struct frl_device *device, int (*try)(struct frl_device *, void *), void *arg,
	const struct patience *patience)
{
	uint64_t now_ns = clock_now_ns(), ask_ns = now_ns;
	uint64_t limit = now_ns + (uint64_t)patience->timeout_ms * NS_PER_MS;
	struct frl_backoff backoff;

	frl_backoff_reset(&backoff);
	for (;; now_ns = clock_now_ns()) {
		int rc;

		device_enter(device);
		device_poll(device);
		rc = try(device, arg);
		device_leave(device);
		if (rc != -EAGAIN)
			return rc;
		if (now_ns >= limit)
			return -ETIMEDOUT;
		if (patience->interrupt && now_ns >= ask_ns) {
			rc = patience->interrupt(patience->interrupt_arg);
			if (rc < 0)
				return rc;
			ask_ns = now_ns + NS_PER_MS;
		}
		frl_backoff_idle(&backoff);
	}
}

/* Who asks for an event, polls once more and sleeps would else be taken for somebody who polls. */
static bool somebody_sleeps(struct frl_device *device)
{
	return atomic_load(&device->polls) - atomic_load(&device->asked_at) <= LAST_POLLS;
}

/* While the application polls it does the work; a second poller would only be in its way. */
static void stand_back(struct frl_device *device)
{
	uint64_t until = clock_now_ns() + PAUSE_NS;
	const struct timespec deadline = {
		.tv_sec = (time_t)(until / NS_PER_S),
		.tv_nsec = (long)(until % NS_PER_S),
	};

	atomic_store(&device->pausing, true);
	if (!somebody_sleeps(device) && !atomic_load(&device->stop))
		sem_clockwait(&device->wake, CLOCK_MONOTONIC, &deadline);
	atomic_store(&device->pausing, false);
}

static void end_pause(struct frl_device *device)
{
	if (atomic_exchange(&device->pausing, false))
		sem_post(&device->wake);
}

static void *progress_main(void *arg)
{
	struct frl_device *device = arg;
	struct frl_backoff backoff;
	unsigned seen = 0;

	frl_backoff_reset(&backoff);
	while (!atomic_load_explicit(&device->stop, memory_order_relaxed)) {
		unsigned polls = atomic_load_explicit(&device->polls, memory_order_relaxed);
		uint32_t moved;

		if (polls != seen && !somebody_sleeps(device)) {
			seen = polls;
			stand_back(device);
			continue;
		}
		seen = polls;
		device_enter(device);
		moved = device_poll(device);
		device_leave(device);
		if (moved)
			frl_backoff_reset(&backoff);
		else
			frl_backoff_idle(&backoff);
	}
	return NULL;
}

int device_start_thread(struct frl_device *device)
{
	sigset_t all, saved;
	int err;

	if (device->has_thread)
		return 0;
	/* Signals are for the host's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	err = pthread_create(&device->thread, NULL, progress_main, device);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (err)
		return frl_fail(err, "cannot start the progress thread: %s", frl_strerror(err));
	device->has_thread = true;
	return 0;
}

void device_stop_thread(struct frl_device *device)
{
	if (!device->has_thread)
		return;
	atomic_store(&device->stop, true);
	end_pause(device);
	pthread_join(device->thread, NULL);
	device->has_thread = false;
}

void device_expect_sleep(struct frl_device *device)
{
	atomic_store(&device->asked_at, atomic_load(&device->polls));
	end_pause(device);
}

int frl_progress(struct frl_device *device)
{
	uint32_t moved;

	/* Before the guard: a progress thread that holds it is to stand back. */
	atomic_fetch_add_explicit(&device->polls, 1, memory_order_relaxed);
	device_enter(device);
	moved = device_poll(device);
	device_leave(device);
	return (int)moved;
}
