/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The double of libcuda: the threads that do the work of all streams. One does the GPU's work, one
 * piece at a time. The other calls functions of the host, which may take long while the GPU goes
 * on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fakes/cuda/fake_internal.h"

static pthread_t threads[2];
static bool is_running[2]; /* of the GPU's work, and of functions */

void fake_work_free(struct fake_work *work)
{
	/* Called also for work that is dropped: nobody waits for ever. */
	if (work->kind == FAKE_RECORD && work->event->done < work->generation)
		work->event->done = work->generation;
	if (work->event)
		fake_event_put(work->event);
	free(work->batch);
	free(work->staged);
	free(work);
}

unsigned fake_queued(void)
{
	unsigned n = 0;

	for (const struct fake_stream *s = fake.streams; s; s = s->next) {
		for (const struct fake_work *work = s->first; work; work = work->next)
			n++;
		n += s->running != NULL;
	}
	return n;
}

/* ---- what may run */

/* Whether a stream that this one waits for has earlier work. */
static bool waits_for_others(const struct fake_stream *stream, uint64_t sequence)
{
	if (stream->flags & CU_STREAM_NON_BLOCKING)
		return false;
	for (const struct fake_stream *s = fake.streams; s; s = s->next)
		if (s != stream && s->context == stream->context &&
			!(s->flags & CU_STREAM_NON_BLOCKING) &&
			(s->is_legacy || stream->is_legacy) &&
			((s->running && s->running->sequence < sequence) ||
				(s->first && s->first->sequence < sequence)))
			return true;
	return false;
}

static bool is_runnable(const struct fake_stream *stream)
{
	const struct fake_work *work = stream->first;

	if (!work || stream->running || stream->is_held)
		return false;
	if (fake.is_held && !stream->is_legacy && fake.steps == 0)
		return false;
	if (work->kind == FAKE_WAIT && work->event->done < work->generation)
		return false;
	return !waits_for_others(stream, work->sequence);
}

/* Returns a runnable piece of work, chosen at random: a function or other work; NULL: none may
 * run. */
static struct fake_stream *pick(bool is_function)
{
	struct fake_stream *found = NULL;
	unsigned n = 0;

	for (struct fake_stream *s = fake.streams; s; s = s->next)
		if (is_runnable(s) && (s->first->kind == FAKE_FUNCTION) == is_function &&
			fake_random() % ++n == 0)
			found = s;
	return found;
}

static bool is_any_runnable(void)
{
	for (const struct fake_stream *s = fake.streams; s; s = s->next)
		if (is_runnable(s))
			return true;
	return false;
}

/* ---- running */

static void sleep_us(unsigned us)
{
	struct timespec pause = { us / 1000000, us % 1000000 * 1000L };

	nanosleep(&pause, NULL);
}

static cu_result finish(struct fake_work *work)
{
	struct fake_range *range;

	switch (work->kind) {
	case FAKE_KERNEL:
		fake.stats.kernels++;
		fake.stats.pieces += work->batch->n_pieces;
		break;
	case FAKE_COPY:
	case FAKE_SET: fake.stats.copies++; break;
	case FAKE_FUNCTION: fake.stats.functions++; break;
	case FAKE_RECORD:
	case FAKE_WAIT: break;
	case FAKE_FREE:
		range = fake_range_at(work->dst, 1);
		if (!range || range->base != work->dst)
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		fake_range_free(range);
		break;
	}
	return CUDA_SUCCESS;
}

/* Stores the location of its bytes in the work; false: it must not touch them. */
static bool translate(const struct fake_context *context, struct fake_work *work)
{
	switch (work->kind) {
	case FAKE_KERNEL: return fake_kernel_translate(context, work->batch);
	case FAKE_COPY:
	case FAKE_SET:
		work->to = work->is_dst_host
			? (uint8_t *)(uintptr_t)work->dst
			: fake_reach(context, work->dst, work->size, true, "a copy's target");
		if (work->kind == FAKE_SET)
			return work->to != NULL;
		work->from = work->staged ? work->staged
			: work->is_src_host
			? (uint8_t *)(uintptr_t)work->src
			: fake_reach(context, work->src, work->size, false, "a copy's source");
		return work->to && work->from;
	default: return true;
	}
}

/* Called without the lock. */
static void execute(const struct fake_work *work, uint64_t seed)
{
	switch (work->kind) {
	case FAKE_KERNEL: fake_kernel_run(work->batch, work->grid, work->block, seed); break;
	case FAKE_COPY: memmove(work->to, work->from, work->size); break;
	case FAKE_SET: memset(work->to, work->value, work->size); break;
	case FAKE_FUNCTION: work->function(work->user_data); break;
	default: break;
	}
}

static void run(struct fake_stream *stream)
{
	struct fake_work *work = stream->first;
	struct fake_context *context = stream->context;
	cu_result result = fake_work_failure();
	uint64_t seed = fake_random();
	unsigned pause = fake.delay_us ? (unsigned)(fake_random() % (fake.delay_us + 1)) : 0;

	if (fake.is_held && !stream->is_legacy && fake.steps > 0)
		fake.steps--;
	stream->first = work->next;
	if (!stream->first)
		stream->last = &stream->first;
	stream->running = work;
	is_running[work->kind == FAKE_FUNCTION] = true;
	if (result == CUDA_SUCCESS && !translate(context, work))
		result = CUDA_ERROR_ILLEGAL_ADDRESS;
	if (result == CUDA_SUCCESS) {
		pthread_mutex_unlock(&fake.lock);
		if (pause)
			sleep_us(pause);
		execute(work, seed);
		pthread_mutex_lock(&fake.lock);
		result = finish(work);
	}
	stream->running = NULL;
	is_running[work->kind == FAKE_FUNCTION] = false;
	fake_work_free(work);
	if (result != CUDA_SUCCESS)
		fake_fatal(context, result);
	if (!stream->is_alive && !stream->first)
		fake_stream_free(stream);
	pthread_cond_broadcast(&fake.changed);
}

static void *worker(void *is_function)
{
	pthread_mutex_lock(&fake.lock);
	while (!fake.is_ending) {
		struct fake_stream *stream = fake.pausing > 0 ? NULL : pick(is_function != NULL);

		if (stream)
			run(stream);
		else
			pthread_cond_wait(&fake.changed, &fake.lock);
	}
	pthread_mutex_unlock(&fake.lock);
	return is_function;
}

void fake_worker_start(void)
{
	if (fake.is_thread_running)
		return;
	fake.is_ending = false;
	for (unsigned i = 0; i < 2; i++) {
		if (pthread_create(&threads[i], NULL, worker, i ? &threads : NULL) != 0) {
			fprintf(stderr, "fake_libcuda: no thread for the work of streams\n");
			abort();
		}
	}
	fake.is_thread_running = true;
}

void fake_worker_stop(void)
{
	if (!fake.is_thread_running)
		return;
	fake.is_ending = true;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pthread_mutex_lock(&fake.lock);
	fake.is_thread_running = false;
}

bool fake_is_worker(void)
{
	return fake.is_thread_running &&
		(pthread_equal(pthread_self(), threads[0]) ||
			pthread_equal(pthread_self(), threads[1]));
}

void fake_worker_pause(void)
{
	fake.pausing++;
	while (is_running[0])
		pthread_cond_wait(&fake.changed, &fake.lock);
	fake.pausing--;
	pthread_cond_broadcast(&fake.changed);
}

static bool is_busy(const struct fake_context *context)
{
	for (const struct fake_stream *s = fake.streams; s; s = s->next)
		if (s->context == context && s->running)
			return true;
	return false;
}

void fake_worker_pause_context(const struct fake_context *context)
{
	fake.pausing++;
	while (is_busy(context))
		pthread_cond_wait(&fake.changed, &fake.lock);
	fake.pausing--;
	pthread_cond_broadcast(&fake.changed);
}

unsigned fake_step(unsigned n)
{
	unsigned left;

	fake.steps = n;
	pthread_cond_broadcast(&fake.changed);
	while (is_running[0] || is_running[1] || (fake.steps > 0 && is_any_runnable()))
		pthread_cond_wait(&fake.changed, &fake.lock);
	left = fake.steps;
	fake.steps = 0;
	return n - left;
}

void fake_settle(void)
{
	while (is_running[0] || is_running[1] || is_any_runnable())
		pthread_cond_wait(&fake.changed, &fake.lock);
}

void fake_fatal(struct fake_context *context, cu_result result)
{
	context->fatal = result;
	for (struct fake_stream *s = fake.streams, *next; s; s = next) {
		next = s->next;
		if (s->context != context)
			continue;
		while (s->first) {
			struct fake_work *work = s->first;

			s->first = work->next;
			fake_work_free(work);
		}
		s->last = &s->first;
	}
	pthread_cond_broadcast(&fake.changed);
}
