/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues whose work waits on the GPU, and what becomes of their process: it ends, is stopped,
 * forks, or asks for a mode by its environment. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ferrule/reduce.h>

#include "lib/base/clock.h"
#include "tests/unit/gpu_launch.h"

#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#endif

enum { MS = 1000000 };

static const struct {
	const char *environment;
	enum gpu_queue_mode mode;
} wanted[] = {
	{ "FRL_GPU_LAUNCH=batch", GPU_QUEUE_BATCH },
	{ "FRL_GPU_LAUNCH=memop", GPU_QUEUE_MEMOP },
	{ "FRL_GPU_LAUNCH=persistent", GPU_QUEUE_PERSISTENT },
	{ "FRL_GPU_LAUNCH=memop CUDA_LAUNCH_BLOCKING=0", GPU_QUEUE_MEMOP },
	{ "FRL_GPU_LAUNCH=memop CUDA_LAUNCH_BLOCKING=1", GPU_QUEUE_BATCH },
	{ "FRL_GPU_LAUNCH=persistent CUDA_LAUNCH_BLOCKING=1", GPU_QUEUE_BATCH },
};

START_LOOP_TEST(mode_is_wanted, ROWS(wanted))
{
	char command[160];
	int status;

	snprintf(command, sizeof(command), "%s exec /proc/%d/exe gpu_launch --mode",
		wanted[_i].environment, (int)getpid());
	status = system(command); /* NOLINT: the command is all ours */
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), wanted[_i].mode);
}
END_TEST

#ifndef HAS_TSAN
/* The status with which a child ends; within HANG_S. */
static int end_of(pid_t child)
{
	uint64_t end_ns = hang_limit_ns();
	int status = 0;
	pid_t ended;

	while ((ended = waitpid(child, &status, WNOHANG)) == 0 && clock_now_ns() < end_ns)
		pause_us(1000);
	if (ended == 0) {
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
		ck_abort_msg("the process did not end");
	}
	return status;
}

/* Nobody frees the queue. */
START_LOOP_TEST(exits, MODES)
{
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		launch_begin(_i);
		launch_count_from(0);
		launch_arm();
		exit(0);
	}
	ck_assert_int_eq(end_of(child), 0);
}
END_TEST

/* All its threads stand still, and go on. */
START_LOOP_TEST(is_stopped, MODES)
{
	pid_t child = fork();
	uint64_t end_ns;

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		int n = 0;

		launch_begin(_i);
		launch_count_from(0);
		end_ns = clock_now_ns() + UINT64_C(200) * MS;
		for (; clock_now_ns() < end_ns; n++) {
			launch_count();
			wait_done(queue, (uint64_t)n + 1);
		}
		_exit(launch_counted() == n && launch_is_quiet_soon() ? 0 : 1);
	}
	for (int i = 0; i < 5; i++) {
		pause_us(10000);
		kill(child, SIGSTOP);
		pause_us(10000);
		kill(child, SIGCONT);
	}
	ck_assert_int_eq(end_of(child), 0);
}
END_TEST

/* The ring is the parent's, whatever a child does with a queue that it has a copy of. */
START_LOOP_TEST(forks, MODES)
{
	uint64_t n;
	pid_t child;

	launch_begin(_i);
	launch_count_from(0);
	n = launch_arm();
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		struct gpu_work work = copy(arena, host, 8);

		for (int i = 0; i < 20; i++) {
			gpu_queue_add(queue, &work);
			gpu_queue_launch(queue);
			gpu_queue_done(queue);
		}
		gpu_queue_free(queue);
		_exit(0);
	}
	for (int i = 0; i < 200; i++) {
		launch_count();
		wait_done(queue, ++n);
	}
	ck_assert_int_eq(end_of(child), 0);
	ck_assert_int_eq(launch_counted(), (int)n);
	ck_assert_str_eq(why(queue), "");
	ck_assert(launch_is_quiet_soon());
	queue_end();
}
END_TEST

/* A child has no part in it, whatever a thread of the driver's was doing. */
static void use_in_child(uint64_t given)
{
	uint64_t end_ns = hang_limit_ns();

	if (add(copy(arena, host, 8)) != given + 1)
		_exit(1);
	gpu_queue_launch(queue);
	while (gpu_queue_done(queue) <= given && clock_now_ns() < end_ns)
		pause_us(100);
	if (gpu_queue_done(queue) != given + 1 || !*why(queue))
		_exit(2);
	gpu_queue_free(queue);
	_exit(0);
}

START_LOOP_TEST(forks_at_work, QUEUE_MODES)
{
	enum { LONG = 2 << 20, FORKS = 8 };
	struct gpu_work work = {
		.action = GPU_DIVIDE, .dtype = FRL_FLOAT8_E4M3, .divisor = 3, .count = LONG
	};
	pid_t child;

	queue_mode_of(_i);
	queue_begin();
	work.dst = work.src = allocate(gpu->context, LONG);
	for (uint64_t i = 1; i <= FORKS; i++) {
		ck_assert_uint_eq(add(work), i);
		gpu_queue_launch(queue);
		pause_us(500 * (unsigned)i);
		child = fork();
		ck_assert_int_ge(child, 0);
		if (child == 0)
			use_in_child(i);
		ck_assert_int_eq(end_of(child), 0);
		wait_done(queue, i);
		ck_assert_str_eq(why(queue), "");
	}
	release(gpu->context, work.dst);
	queue_end();
}
END_TEST
#endif

void launch_add_process_tests(Suite *suite)
{
	add_tests(suite, gpu_setup, gpu_teardown);
}
