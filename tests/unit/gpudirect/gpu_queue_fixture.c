/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/gpudirect/gpu_queue_fixture.h"
#include "tests/fixtures/patience.h"

#include <check.h>
#include <time.h>

#include "gpudirect/host.h"
#include "lib/base/clock.h"

struct gpu *gpu;
struct gpu_queue *queue;
cu_deviceptr arena;
uint64_t host;

void queue_begin(void)
{
	gpu = hold(0);
	arena = allocate(gpu->context, ARENA);
	is_ok(gpu_host_map(gpu, memory, (size_t)PAGES * PAGE));
	host = gpu_host_address(gpu, memory, ARENA);
	ck_assert_uint_ne(host, 0);
	is_ok(gpu_queue_new(gpu, &queue));
}

void queue_end(void)
{
	fake->fail_call(NULL, 0, 0, 0);
	fake->hold(false);
	gpu_queue_free(queue);
	gpu_host_unmap(gpu, memory, (size_t)PAGES * PAGE);
	release(gpu->context, arena);
	gpu_release(gpu);
}

void pause_us(unsigned us)
{
	nanosleep(&(struct timespec){ .tv_nsec = us * 1000L }, NULL);
}

void wait_done(struct gpu_queue *q, uint64_t ticket)
{
	uint64_t end_ns = hang_limit_ns();

	while (gpu_queue_done(q) < ticket) {
		ck_assert_msg(may_wait(end_ns), "%llu of %llu are done",
			(unsigned long long)gpu_queue_done(q), (unsigned long long)ticket);
		pause_us(100);
	}
}

const char *why(struct gpu_queue *q)
{
	const char *text = "";

	return gpu_queue_error(q, &text) ? text : "";
}

struct gpu_work copy(uint64_t dst, uint64_t src, uint64_t count)
{
	return (struct gpu_work){ .action = GPU_COPY, .dst = dst, .src = src, .count = count };
}

uint64_t add(struct gpu_work work)
{
	return gpu_queue_add(queue, &work);
}
