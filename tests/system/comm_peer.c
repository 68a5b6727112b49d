/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks, as processes on the local fabric, for tests of communicators:
 *
 *	comm-peer shuffle RANKS TIMES    uses so many communicators of all ranks one after the
 *	                                 other, each with the ranks in another order
 *	comm-peer pairs RANKS            all send to all others at once, and receive
 *	comm-peer abort RANKS            rank 1 aborts and ends at once: the others hear why
 *
 * Rank 0 says what has been done, a rank that fails says why. Status 1 if one has failed.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ferrule/ferrule.h>

enum { JOIN_MS = 120000, GATHER_MS = 120000, RANKS_MAX = 64, COUNT = 2000 };

struct rank {
	struct frl_bootstrap bootstrap;
	struct frl_device *device;
	struct frl_comm *comm;
	float send[COUNT], recv[RANKS_MAX * COUNT];
};

static int fail(const struct rank *rank, const char *what)
{
	fprintf(stderr, "rank %d: %s: %s\n", rank->bootstrap.rank, what, frl_last_error());
	return EXIT_FAILURE;
}

/* One of the kinds of plans each, short and long; returns 0 if all is right. */
static int use(struct rank *rank, struct frl_comm *comm)
{
	int ranks = frl_comm_size(comm), mine = frl_comm_rank(comm);

	for (int count = 1; count <= COUNT; count *= COUNT) {
		int each = count / ranks + 1;

		for (int i = 0; i < COUNT; i++)
			rank->send[i] = (float)mine;
		if (frl_allreduce(
			    comm, rank->send, rank->recv, (size_t)count, FRL_FLOAT32, FRL_SUM))
			return fail(rank, "allreduce");
		if (rank->recv[count - 1] != (float)(ranks * (ranks - 1) / 2))
			return fail(rank, "a sum is wrong");
		if (frl_allgather(comm, rank->send, rank->recv, (size_t)each, FRL_FLOAT32))
			return fail(rank, "allgather");
		for (int i = 0; i < ranks; i++)
			if (rank->recv[i * each] != (float)i)
				return fail(rank, "what was gathered is wrong");
		if (frl_broadcast(comm, rank->send, rank->recv, (size_t)count, FRL_FLOAT32, 1))
			return fail(rank, "broadcast");
		if (rank->recv[count - 1] != 1)
			return fail(rank, "what was broadcast is wrong");
		if (frl_barrier(comm))
			return fail(rank, "barrier");
	}
	return EXIT_SUCCESS;
}

/* The same in every process, and different each time. */
static int key_of(uint32_t rank, uint32_t time)
{
	uint32_t key = (rank + 1) * UINT32_C(2654435761) ^ time * UINT32_C(40503);

	key = (key ^ key >> 15) * UINT32_C(2246822519);
	return (int)((key ^ key >> 13) >> 1);
}

static int shuffle(struct rank *rank, int times)
{
	int status = EXIT_SUCCESS;

	for (int i = 0; i < times && !status; i++) {
		struct frl_comm *comm;
		int key = key_of((uint32_t)rank->bootstrap.rank, (uint32_t)i);

		if (frl_comm_split(rank->comm, 0, key, &comm))
			return fail(rank, "split");
		status = use(rank, comm);
		frl_comm_destroy(comm);
	}
	if (!status && rank->bootstrap.rank == 0)
		printf("%d ranks have agreed in %d communicators\n", rank->bootstrap.ranks, times);
	return status;
}

static int pairs(struct rank *rank)
{
	struct frl_collective transfers[2 * RANKS_MAX];
	struct frl_request *request;
	int n = 0;

	for (int i = 0; i < rank->bootstrap.ranks; i++) {
		if (i == rank->bootstrap.rank)
			continue;
		transfers[n++] = (struct frl_collective){ .coll = FRL_SEND,
			.send = rank->send,
			.count = 1,
			.dtype = FRL_FLOAT32,
			.root = i };
		transfers[n++] = (struct frl_collective){ .coll = FRL_RECV,
			.recv = &rank->recv[i],
			.count = 1,
			.dtype = FRL_FLOAT32,
			.root = i };
	}
	if (frl_start_group(rank->comm, transfers, n, &request) || frl_request_wait(request))
		return fail(rank, "pairs");
	return EXIT_SUCCESS;
}

static int abort_at_once(struct rank *rank)
{
	if (rank->bootstrap.rank == 1) {
		frl_comm_abort(rank->comm, "the disk is full");
		_exit(EXIT_SUCCESS);
	}
	if (frl_barrier(rank->comm) == -ECANCELED &&
		strcmp(frl_last_error(), "rank 1 aborted: the disk is full") == 0)
		return EXIT_SUCCESS;
	return fail(rank, "why rank 1 has aborted is not known");
}

static int be_rank(const char *job, int number, int ranks, int argc, char **argv)
{
	static struct rank rank;
	int status;

	rank.bootstrap.rank = number;
	if (frl_bootstrap_join(job, number, ranks, JOIN_MS, &rank.bootstrap))
		return fail(&rank, "join");
	frl_bootstrap_set_timeout(&rank.bootstrap, GATHER_MS);
	if (frl_device_open(NULL, &rank.device))
		return fail(&rank, "device");
	if (frl_comm_create(rank.device, &rank.bootstrap, &rank.comm))
		return fail(&rank, "communicator");
	if (strcmp(argv[1], "pairs") == 0)
		status = pairs(&rank);
	else if (strcmp(argv[1], "abort") == 0)
		status = abort_at_once(&rank);
	else
		status = shuffle(&rank, argc > 3 ? atoi(argv[3]) : 1);
	frl_comm_destroy(rank.comm);
	frl_device_close(rank.device);
	rank.bootstrap.close(rank.bootstrap.ctx);
	return status;
}

int main(int argc, char **argv)
{
	int ranks = argc > 2 ? atoi(argv[2]) : 0, status = EXIT_SUCCESS, ended;
	char job[40];

	if (ranks < 2 || ranks > RANKS_MAX) {
		fprintf(stderr, "comm-peer shuffle RANKS TIMES | pairs RANKS | abort RANKS\n");
		return 2;
	}
	snprintf(job, sizeof(job), "comm-peer-%d", (int)getpid());
	for (int i = 0; i < ranks; i++) {
		pid_t pid = fork();

		if (pid == 0)
			exit(be_rank(job, i, ranks, argc, argv));
		if (pid < 0)
			status = EXIT_FAILURE;
	}
	while (wait(&ended) > 0)
		if (ended)
			status = EXIT_FAILURE;
	return status;
}
