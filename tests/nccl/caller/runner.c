/* SPDX-License-Identifier: BSD-3-Clause */
/* See runner.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/nccl/caller/runner.h"

enum { MAX_PROCESSES = 2, DEFAULT_SECONDS = 20 };

void runner_init(void)
{
	report = mmap(
		NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (report == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
}

static void run_solo(struct side *side)
{
	side->row->solo(side);
}

static void run_one(struct side *side)
{
	side_run(side, NULL);
}

static void *run_in_thread(void *argument)
{
	struct side *side = argument;

	side_run(side, side->net);
	return NULL;
}

/* Both sides run in this process, which loads the plugin once. */
static void run_both(struct side *side)
{
	struct plugin net = { 0 };
	struct side sides[2];
	pthread_t thread;
	const char *error;
	int channels[2];

	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channels) == 0, "socketpair: %s",
		strerror(errno));
	error = plugin_load(&net, side->setup->path, side->setup->version);
	REQUIRE(!error, "%s: %s", side->setup->path, error);
	for (unsigned int i = 0; i < 2; i++) {
		memcpy(&sides[i], side, sizeof(*side));
		sides[i].index = i;
		sides[i].channel = channels[i];
		sides[i].net = &net;
	}
	REQUIRE(pthread_create(&thread, NULL, run_in_thread, &sides[1]) == 0, "no thread");
	side_run(&sides[0], &net);
	pthread_join(thread, NULL);
	plugin_close(&net);
	close(channels[0]);
	close(channels[1]);
}

static pid_t start_process(void (*body)(struct side *side), const struct side *side)
{
	struct side own;
	pid_t parent = getpid();
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	/* A harness that is killed leaves no process behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	memcpy(&own, side, sizeof(own));
	if (own.other_channel >= 0)
		close(own.other_channel);
	side_enter(own.setup, own.index);
	body(&own);
	if (own.channel >= 0)
		close(own.channel);
	exit(0);
}

static void start_pair(
	const struct setup *setup, const struct row *row, void (*body)(struct side *), pid_t *pids)
{
	struct side side = { .setup = setup, .row = row };
	int channels[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channels)) {
		perror("socketpair");
		exit(2);
	}
	for (unsigned int i = 0; i < 2; i++) {
		side.index = i;
		side.channel = channels[i];
		side.other_channel = channels[1 - i];
		pids[i] = start_process(body, &side);
	}
	close(channels[0]);
	close(channels[1]);
}

/* This side of a row; its id is in `pids`. */
static bool start_own(const struct setup *setup, const struct row *row, pid_t *pids)
{
	struct side side = { .setup = setup, .row = row, .index = setup->own_side };

	side.channel = meet_for(setup, row);
	if (side.channel < 0)
		return false;
	side.other_channel = -1;
	pids[side.index] = start_process(run_one, &side);
	close(side.channel);
	return true;
}

/* Waits until one of the processes ends, and returns which; ended ones have the id 0. */
static int await_one(const pid_t *pids, unsigned int n, uint64_t until_ns)
{
	uint64_t now = now_ns();
	int left_ms = now < until_ns ? (int)((until_ns - now) / 1000000) + 1 : 0;
	struct pollfd ended[MAX_PROCESSES];
	int which = -1;
	int n_ended;

	for (unsigned int i = 0; i < n; i++) {
		ended[i].fd = pids[i] ? (int)syscall(SYS_pidfd_open, pids[i], 0) : -1;
		ended[i].events = POLLIN;
		ended[i].revents = 0;
	}
	do
		n_ended = poll(ended, n, left_ms);
	while (n_ended < 0 && errno == EINTR);
	for (unsigned int i = 0; i < n; i++) {
		if (ended[i].revents && which < 0)
			which = (int)i;
		if (ended[i].fd >= 0)
			close(ended[i].fd);
	}
	return which;
}

static unsigned int count(const pid_t *pids, unsigned int n)
{
	unsigned int left = 0;

	for (unsigned int i = 0; i < n; i++)
		left += pids[i] != 0;
	return left;
}

static int reap(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static void say_why(const char *format, const char *what, int value)
{
	if (!report->text[0])
		snprintf(report->text, sizeof(report->text), format, what, value);
}

static enum outcome judge(const struct row *row, unsigned int index, int status)
{
	static const char *const who[] = { "the sender", "the receiver" };
	unsigned int death = index == 0 ? ROW_SENDER_DIES : ROW_RECEIVER_DIES;
	const char *name = row && row->solo ? "the process" : who[index];

	if (WIFSIGNALED(status)) {
		if (row && row->flags & death && WTERMSIG(status) == SIGKILL)
			return PASSED;
		say_why("%s ended by signal %d", name, WTERMSIG(status));
		return FAILED;
	}
	if (WEXITSTATUS(status) == 77)
		return SKIPPED;
	if (WEXITSTATUS(status) == 0)
		return PASSED;
	say_why("%s ended with status %d", name, WEXITSTATUS(status));
	return FAILED;
}

static enum outcome await_all(
	const struct row *row, pid_t *pids, unsigned int n, unsigned int seconds)
{
	uint64_t until_ns = now_ns() + seconds * 1000000000ull;
	enum outcome outcome = PASSED;

	for (unsigned int left = count(pids, n); left; left--) {
		int which = await_one(pids, n, until_ns);
		enum outcome one;

		if (which < 0) {
			say_why("%s not at its end after %d s", "the row is", (int)seconds);
			for (unsigned int i = 0; i < n; i++) {
				if (!pids[i])
					continue;
				kill(pids[i], SIGKILL);
				reap(pids[i]);
			}
			return FAILED;
		}
		one = judge(row, (unsigned int)which, reap(pids[which]));
		pids[which] = 0;
		if (one == FAILED) {
			/* The other process may wait for ever: it gets a moment to report. */
			outcome = FAILED;
			until_ns = now_ns() + 500000000;
		} else if (one == SKIPPED && outcome == PASSED) {
			outcome = SKIPPED;
		}
	}
	return outcome;
}

enum outcome run_pair(
	const struct setup *setup, void (*body)(struct side *side), unsigned int seconds)
{
	pid_t pids[MAX_PROCESSES];

	memset(report, 0, sizeof(*report));
	start_pair(setup, NULL, body, pids);
	return await_all(NULL, pids, 2, seconds);
}

enum outcome run_row(const struct setup *setup, const struct row *row, unsigned int seconds)
{
	struct side side = { .setup = setup, .row = row, .channel = -1, .other_channel = -1 };
	pid_t pids[MAX_PROCESSES] = { 0 };

	memset(report, 0, sizeof(*report));
	if (row->flags & ROW_PROCESSES && !setup->has_processes) {
		say_why("%s of their own (%d)", "the sides need processes", 2);
		return SKIPPED;
	}
	if (!seconds)
		seconds = row->seconds ? row->seconds : DEFAULT_SECONDS;
	if (setup->meet)
		return start_own(setup, row, pids) ? await_all(row, pids, 2, seconds) : FAILED;
	if (!row->solo && setup->has_processes) {
		start_pair(setup, row, run_one, pids);
		return await_all(row, pids, 2, seconds);
	}
	pids[0] = start_process(row->solo ? run_solo : run_both, &side);
	return await_all(row, pids, 1, seconds);
}
