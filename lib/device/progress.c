/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress: threads that poll or wait drive the engine, and the progress thread if there is one. A
 * thread that used the engine reports the resulting events when it releases the guard.
 */
#include <sched.h>
#include <time.h>

#include "lib/base/process/backoff.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/process/thread.h"
#include "lib/device/soft.h"

enum {
	NS_PER_MS = 1000000,
	NS_PER_S = 1000000000,
	PAUSE_NS = NS_PER_MS, /* pause while the application polls; longest wait for an event */
	LAST_POLLS = 16,      /* polls allowed between a request for an event and the sleep */
	IDLE_ROUNDS = 32,     /* consecutive rounds without a read of the clock */
};

void soft_leaving(struct frl_device *device)
{
	struct list *completions = &soft_device(device)->engine.events.completions;

	while (!list_empty(completions)) {
		struct cq *core = container_of(completions->next, struct cq, notify);
		struct soft_cq *cq = container_of(core, struct soft_cq, core);
		struct soft_channel *channel = soft_channel(cq->base.channel);

		list_remove(&core->notify);
		soft_device(device)->has_reported = true;
		if (channel->base.on_event) {
			channel->base.on_event(&cq->base, channel->base.on_event_arg);
			continue;
		}
		list_add_tail(&channel->pending, &core->notify);
		event_fd_set(&channel->event_fd, true);
	}
	if (soft_device(device)->n_asleep)
		wake_waiters(soft_device(device));
}

/*
 * Returns true if a round can be skipped: nothing arrived, nothing waits and no deadline is near.
 * Reading the clock would cost more than the rest of the round. A tick of the kernel ends this,
 * for threads that poll rarely.
 */
static bool may_skip_round(struct soft_device *device)
{
	uint64_t tick_ns = clock_coarse_ns();

	if (tick_ns == device->tick_ns && ++device->idle_rounds < IDLE_ROUNDS &&
		tick_ns + CLOCK_COARSE_NS < engine_next_deadline(&device->engine))
		return true;
	device->tick_ns = tick_ns;
	device->idle_rounds = 0;
	return false;
}

uint32_t soft_poll(struct frl_device *base)
{
	struct soft_device *device = soft_device(base);
	struct engine *engine = &device->engine;
	uint32_t moved;

	if (!engine_has_work(engine) && !engine_fetch(engine) && may_skip_round(device))
		return 0;
	moved = engine_poll(engine, clock_now_ns());
	device->moved += moved;
	return moved;
}

/* Several threads call this without the guard. The counter never decreases; only the difference
 * since the last request for an event is used. */
void soft_note_poll(struct frl_device *device)
{
	atomic_fetch_add_explicit(&soft_device(device)->polls, 1, memory_order_relaxed);
}

/* Returns true while a thread is about to sleep. Such a thread requests an event, polls once more,
 * and sleeps; these polls must not count as polling. */
static bool has_waiter(struct soft_device *device)
{
	return atomic_load(&device->polls) - atomic_load(&device->sleep_polls) <= LAST_POLLS;
}

/* Pauses the thread while the application polls and does the work itself. */
static void pause_thread(struct soft_device *device)
{
	uint64_t until = clock_now_ns() + PAUSE_NS;
	const struct timespec deadline = {
		.tv_sec = (time_t)(until / NS_PER_S),
		.tv_nsec = (long)(until % NS_PER_S),
	};

	atomic_store(&device->pausing, true);
	if (!has_waiter(device) && !atomic_load(&device->stop))
		sem_clockwait(&device->wake, CLOCK_MONOTONIC, &deadline);
	atomic_store(&device->pausing, false);
}

static void end_pause(struct soft_device *device)
{
	if (atomic_exchange(&device->pausing, false))
		sem_post(&device->wake);
}

static void *progress_main(void *arg)
{
	struct awaited awaited = { .until_ns = UINT64_MAX };
	struct soft_device *device = arg;
	struct frl_backoff backoff;
	unsigned seen = 0;

	frl_backoff_reset(&backoff);
	while (!atomic_load_explicit(&device->stop, memory_order_relaxed)) {
		unsigned polls = atomic_load_explicit(&device->polls, memory_order_relaxed);
		bool transfers, has_reported;
		uint32_t moved;

		if (polls != seen && !has_waiter(device)) {
			seen = polls;
			pause_thread(device);
			continue;
		}
		seen = polls;
		device_enter(&device->base);
		moved = soft_poll(&device->base);
		transfers = engine_offloads_busy(&device->engine);
		has_reported = device->has_reported;
		device->has_reported = false;
		device_leave(&device->base);
		/* The notified thread may need this processor. */
		if (has_reported)
			sched_yield();
		if (moved)
			frl_backoff_reset(&backoff);
		else if (transfers)
			backoff_idle(&backoff, BACKOFF_GPU_US);
		else
			device_idle(&device->base, &backoff, &awaited);
	}
	return NULL;
}

int soft_start_thread(struct frl_device *base)
{
	struct soft_device *device = soft_device(base);
	int err;

	if (device->has_thread)
		return 0;
	err = thread_start(progress_main, device, 0, &device->thread);
	if (err)
		return frl_fail(err, "cannot start the progress thread: %s", frl_strerror(err));
	device->has_thread = device->base.attr.progresses = true;
	return 0;
}

void soft_stop_thread(struct soft_device *device)
{
	if (!device->has_thread)
		return;
	atomic_store(&device->stop, true);
	end_pause(device);
	device_enter_first(&device->base);
	wake_all_waiters(device);
	device_leave(&device->base);
	pthread_join(device->thread, NULL);
	device->has_thread = false;
}

void soft_expect_sleep(struct frl_device *base)
{
	struct soft_device *device = soft_device(base);

	atomic_store(&device->sleep_polls, atomic_load(&device->polls));
	end_pause(device);
}
