/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress: threads that poll or wait drive the engine, and the progress thread if there is one. A
 * thread that used the engine reports the resulting events when it releases the guard.
 */
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include "lib/base/process/backoff.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/process/thread.h"
#include "lib/base/memory/unmap_watch.h"
#include "lib/device/pace.h"
#include "lib/device/soft.h"

enum {
	NS_PER_S = 1000000000,
	SLACK_NS = 1000,  /* the kernel may prolong a sleep of the thread by so much */
	LAST_POLLS = 16,  /* polls allowed between a request for an event and the sleep */
	IDLE_ROUNDS = 32, /* consecutive rounds without a read of the clock */
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
	unmap_watch_settle();
	moved = engine_poll(engine, clock_now_ns());
	if (moved)
		atomic_store_explicit(&device->moved,
			atomic_load_explicit(&device->moved, memory_order_relaxed) + moved,
			memory_order_relaxed);
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
static void pause_thread(struct soft_device *device, uint32_t pause_ns)
{
	uint64_t until = clock_now_ns() + pause_ns;
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

/* State of the progress thread. */
struct progress {
	struct soft_device *device;
	struct frl_backoff backoff;
	struct awaited awaited;
	struct probe probe;
	uint32_t pause_ns; /* the last pause; 0: it has driven the device since */
	unsigned seen;     /* polls by the application */
	/* The last pause that ended, for first_pause_ns(). */
	uint32_t ended_ns;
	unsigned ended_polls;
	uint64_t end_ns;
	uint64_t moved; /* counter of the device before the first pause of the last ones */
};

static uint32_t choose_pause(struct progress *p)
{
	unsigned all = atomic_load_explicit(&p->device->polls, memory_order_relaxed);
	uint64_t moved = atomic_load_explicit(&p->device->moved, memory_order_relaxed);
	unsigned polls = all - p->seen;
	uint32_t first_ns = 0, next_ns;

	p->seen = all;
	if (p->pause_ns == 0 && polls) {
		first_ns = first_pause_ns(moved == p->moved ? p->ended_ns : 0, p->ended_polls,
			clock_now_ns() - p->end_ns);
		p->moved = moved;
	}
	next_ns = next_pause_ns(p->pause_ns, polls, first_ns);
	if (p->pause_ns && !next_ns) {
		p->ended_ns = p->pause_ns;
		p->ended_polls = polls;
		p->end_ns = clock_now_ns();
	}
	return next_ns;
}

/*
 * Enters the guard to drive the device, or sets the next pause and returns false. An application
 * that has few polls may spend its time in one of them, with the guard.
 */
static bool enter_to_drive(struct progress *p)
{
	uint32_t next_ns = choose_pause(p);
	bool is_inside = false;

	if (has_waiter(p->device)) {
		next_ns = 0;
	} else if (p->pause_ns && !next_ns) {
		is_inside = guard_try_enter(&p->device->base.guard);
		if (!is_inside)
			next_ns = longer_pause_ns(p->pause_ns);
	}
	p->pause_ns = next_ns;
	if (next_ns)
		return false;
	if (!is_inside)
		device_enter(&p->device->base);
	return true;
}

/*
 * Waits after a round without work. While other threads want the processor, the thread sleeps at
 * once: the kernel runs a thread soon that is woken, but one that yields only when the others have
 * run for milliseconds. A yield now and then shows whether they still want it.
 */
static void idle(struct progress *p)
{
	bool was_crowded = backoff_is_crowded(), is_crowded;

	if (was_crowded && !probe_is_due(&p->probe, clock_now_ns())) {
		backoff_lengthen(&p->backoff);
		device_idle(&p->device->base, &p->backoff, &p->awaited);
		return;
	}
	/* Otherwise the wait might sleep instead. */
	if (was_crowded)
		frl_backoff_reset(&p->backoff);
	device_idle(&p->device->base, &p->backoff, &p->awaited);
	is_crowded = backoff_is_crowded();
	if (was_crowded || is_crowded)
		probe_note(&p->probe, is_crowded, clock_now_ns());
}

/* Drives the device for one round. Guard held, and released. */
static void drive_once(struct progress *p)
{
	struct soft_device *device = p->device;
	uint32_t moved = soft_poll(&device->base);
	bool transfers = engine_offloads_busy(&device->engine);
	bool has_reported = device->has_reported;

	device->has_reported = false;
	device_leave(&device->base);
	if (transfers)
		p->ended_ns = 0;
	/* The notified thread may need this processor. */
	if (has_reported)
		sched_yield();
	if (moved)
		frl_backoff_reset(&p->backoff);
	else if (transfers)
		backoff_idle(&p->backoff, BACKOFF_GPU_US);
	else
		idle(p);
}

static void *progress_main(void *arg)
{
	struct soft_device *device = arg;
	struct progress p = { .device = device, .awaited.until_ns = UINT64_MAX };

	/* Otherwise each pause would last 50 us longer. A port that cannot wake the thread is
	 * polled between sleeps, which may be that long. */
	if (device->port->ops->arm)
		prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);
	frl_backoff_reset(&p.backoff);
	while (!atomic_load_explicit(&device->stop, memory_order_relaxed)) {
		if (enter_to_drive(&p))
			drive_once(&p);
		else
			pause_thread(device, p.pause_ns);
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
