/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ranks that fork while an allreduce reads their malloc() memory in place, below ferrule-run
 * --share-malloc. Status 0 if all sums are right, children see memory as it was at fork(), buffers
 * in use stay shared, and others do not.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ferrule/ferrule.h>

enum { WAIT_MS = 120000, COUNT = 1 << 20, TIMES = 20, OTHER = 1 << 20 };

struct rank {
	struct frl_bootstrap bootstrap;
	struct frl_device *device;
	struct frl_comm *comm;
	float *send, *recv;
	uint8_t *other;
	int started[2]; /* a pipe from the rank that forks, and to it */
};

static bool fail(const struct rank *rank, const char *what)
{
	fprintf(stderr, "rank %d: %s: %s\n", rank->bootstrap.rank, what, frl_last_error());
	return false;
}

/* Returns whether the memory is a shared mapping of a block. */
static bool is_shared(const void *addr)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end;
	bool is_shared = false;
	char line[4096], mode[5];

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &start, &end, mode) == 3 &&
			(uintptr_t)addr >= start && (uintptr_t)addr < end)
			is_shared = mode[3] == 's' && strstr(line, "ferrule-malloc");
	if (maps)
		fclose(maps);
	return is_shared;
}

/* Forks; the child checks its memory after the parent has changed it. */
static pid_t fork_checker(struct rank *rank, uint8_t value)
{
	int changed[2];
	char byte;
	pid_t pid;

	memset(rank->other, value, OTHER);
	if (pipe(changed))
		return -1;
	pid = fork();
	if (pid == 0) {
		bool is_right = true;

		close(changed[1]);
		is_right = read(changed[0], &byte, 1) == 0;
		for (size_t i = 0; i < OTHER; i++)
			is_right = is_right && rank->other[i] == value;
		/* The parent must not see that. */
		memset(rank->other, 0xee, OTHER);
		memset(rank->send, 0xee, COUNT * sizeof(float));
		_exit(!is_right);
	}
	memset(rank->other, value + 1, OTHER);
	close(changed[0]);
	close(changed[1]);
	return pid;
}

static bool is_sum(const float *at, float sum)
{
	for (size_t i = 0; i < COUNT; i++)
		if (at[i] != sum)
			return false;
	return true;
}

/* Starts an allreduce and publishes it. */
static bool start(struct rank *rank, float *to, struct frl_request **ret_request)
{
	bool is_done;

	if (frl_allreduce_start(
		    rank->comm, rank->send, to, COUNT, FRL_FLOAT32, FRL_SUM, ret_request))
		return fail(rank, "start");
	if (frl_request_test(*ret_request, &is_done))
		return fail(rank, "test");
	if (is_done)
		*ret_request = NULL;
	return true;
}

/* One allreduce, in place or not. One rank forks after it has started; the other rank starts when
 * that has happened. */
static bool reduce(struct rank *rank, int time)
{
	bool forks = time / 2 % 2 == rank->bootstrap.rank;
	float *to = time % 2 ? rank->send : rank->recv;
	struct frl_request *request;
	int status = 0;
	char byte = 0;
	pid_t pid;

	for (size_t i = 0; i < COUNT; i++)
		rank->send[i] = (float)(rank->bootstrap.rank + time);
	if (!forks && read(rank->started[0], &byte, 1) != 1)
		return fail(rank, "the other rank has ended");
	if (!start(rank, to, &request))
		return false;
	if (forks) {
		pid = fork_checker(rank, (uint8_t)time);
		if (pid < 0 || write(rank->started[1], &byte, 1) != 1)
			return fail(rank, "fork");
		if (waitpid(pid, &status, 0) != pid || status)
			return fail(rank, "the child does not see memory as it was");
	}
	if (request && frl_request_wait(request))
		return fail(rank, "wait");
	return is_sum(to, (float)(2 * time + 1)) || fail(rank, "a sum is wrong");
}

static bool run(struct rank *rank)
{
	int status;
	pid_t pid;

	for (int i = 0; i < TIMES; i++)
		if (!reduce(rank, i))
			return false;
	if (!is_shared(rank->send))
		return fail(rank, "a buffer in use did not stay shared");
	if (frl_barrier(rank->comm))
		return fail(rank, "barrier");
	pid = fork_checker(rank, 1);
	if (waitpid(pid, &status, 0) != pid || status)
		return fail(rank, "the child of an idle rank does not see memory as it was");
	if (is_shared(rank->send))
		return fail(rank, "a buffer that is not in use is shared with a child");
	return reduce(rank, TIMES);
}

static int be_rank(const char *job, int number, int from, int to)
{
	static struct rank rank;
	bool is_right;

	rank.started[0] = from;
	rank.started[1] = to;
	rank.send = malloc(COUNT * sizeof(float));
	rank.recv = malloc(COUNT * sizeof(float));
	rank.other = malloc(OTHER);
	rank.bootstrap.rank = number;
	if (!rank.send || !rank.recv || !rank.other ||
		frl_bootstrap_join(job, number, 2, WAIT_MS, &rank.bootstrap) ||
		frl_device_open(NULL, &rank.device) ||
		frl_comm_create(rank.device, &rank.bootstrap, &rank.comm))
		return !fail(&rank, "starting");
	is_right = run(&rank);
	frl_comm_destroy(rank.comm);
	frl_device_close(rank.device);
	rank.bootstrap.close(rank.bootstrap.ctx);
	return is_right ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(void)
{
	int status = EXIT_SUCCESS, ended, ends[2][2];
	char job[40];

	if (pipe(ends[0]) || pipe(ends[1]))
		return EXIT_FAILURE;
	snprintf(job, sizeof(job), "fork-peer-%d", (int)getpid());
	for (int i = 0; i < 2; i++) {
		if (fork() > 0)
			continue;
		/* Each has the ends that it uses, so that it notices when the other one ends. */
		close(ends[i][1]);
		close(ends[1 - i][0]);
		exit(be_rank(job, i, ends[i][0], ends[1 - i][1]));
	}
	for (int i = 0; i < 4; i++)
		close(ends[i / 2][i % 2]);
	while (wait(&ended) > 0)
		if (ended)
			status = EXIT_FAILURE;
	return status;
}
