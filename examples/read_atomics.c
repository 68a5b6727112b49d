/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * READ the memory of another process, and change it with atomic operations.
 *
 * Rank 0 owns a counter, a lock word and a text. It makes no calls while its memory is used: its
 * device has a progress thread that answers. Rank 1 READs the text, adds 5 to the counter, and
 * takes the lock by changing it from 0 to 1. Both atomics return the old value.
 *
 * The ranks find each other through a job, and exchange endpoints with the job's allgather.
 * (write.c connects by a service name instead.)
 *
 * Build:   cc -o read_atomics read_atomics.c $(pkg-config --cflags --libs ferrule)
 * Run:     export FRL_JOB=atomics FRL_RANKS=2
 *          FRL_RANK=0 ./read_atomics &
 *          FRL_RANK=1 ./read_atomics
 * Prints:  rank 1: read "text of rank 0", the counter was 100, the lock was 0
 *          rank 0: the counter is 105, the lock is 1
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <ferrule/ferrule.h>

enum { JOIN_MS = 30000 };

/* Rank 0: the memory that rank 1 uses. Rank 1: where results arrive. */
static struct shared {
	uint64_t counter, lock; /* atomics need 8 aligned bytes */
	char text[48];
} shared;

/* Each rank sends this to the other one. */
struct card {
	struct frl_endpoint endpoint;
	uint64_t addr;
	uint32_t rkey;
};

/* Ends the program if a call failed. The library says what failed, why, and what to do. */
static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "read_atomics: %s: %s\n", what, frl_last_error());
	exit(EXIT_FAILURE);
}

/* Posts a request whose result goes to `local`, and waits for its completion. */
static void run(struct frl_qp *qp, struct frl_cq *cq, uint32_t lkey, struct frl_send_wr request,
	void *local, uint32_t length)
{
	struct frl_sge piece = { .addr = local, .length = length, .lkey = lkey };
	struct frl_wc wc;

	request.flags = FRL_SEND_SIGNALED;
	request.sge = &piece;
	request.n_sge = 1;
	check(frl_post_send(qp, &request, 1, NULL), "post a request");
	check(frl_cq_wait(cq, 1, &wc, -1), "wait for a completion");
	if (wc.status != FRL_WC_SUCCESS) {
		fprintf(stderr, "read_atomics: request failed: %s\n", frl_wc_status_str(wc.status));
		exit(EXIT_FAILURE);
	}
}

static void use_memory(
	struct frl_qp *qp, struct frl_cq *cq, uint32_t lkey, const struct card *remote)
{
	struct frl_send_wr read = {
		.opcode = FRL_WR_RDMA_READ,
		.remote_addr = remote->addr + offsetof(struct shared, text),
		.rkey = remote->rkey,
	};
	struct frl_send_wr add = {
		.opcode = FRL_WR_ATOMIC_FETCH_AND_ADD,
		.remote_addr = remote->addr + offsetof(struct shared, counter),
		.rkey = remote->rkey,
		.compare_add = 5,
	};
	struct frl_send_wr swap = {
		.opcode = FRL_WR_ATOMIC_CMP_AND_SWP,
		.remote_addr = remote->addr + offsetof(struct shared, lock),
		.rkey = remote->rkey,
		.compare_add = 0,
		.swap = 1,
	};

	run(qp, cq, lkey, read, shared.text, sizeof(shared.text));
	run(qp, cq, lkey, add, &shared.counter, sizeof(shared.counter));
	run(qp, cq, lkey, swap, &shared.lock, sizeof(shared.lock));
	printf("rank 1: read \"%s\", the counter was %" PRIu64 ", the lock was %" PRIu64 "\n",
		shared.text, shared.counter, shared.lock);
}

int main(void)
{
	const uint32_t access = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_READ |
		FRL_ACCESS_REMOTE_ATOMIC;
	struct frl_qp_config queues = { .max_send_wr = 1 };
	struct frl_device_config config;
	struct frl_bootstrap job;
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_mr *mr;
	struct frl_qp *qp;
	struct card mine = { 0 }, all[2];
	char done[2];

	check(frl_bootstrap_from_environment(JOIN_MS, &job), "join the job");
	if (job.ranks != 2) {
		fprintf(stderr, "read_atomics: this example needs 2 ranks, not %d\n", job.ranks);
		return 2;
	}
	frl_device_config_init(&config);
	config.progress = FRL_PROGRESS_THREAD;
	check(frl_device_open(&config, &device), "open a device");
	check(frl_pd_create(device, &pd), "create a protection domain");
	check(frl_reg_mr(pd, &shared, sizeof(shared), access, &mr), "register memory");
	check(frl_cq_create(device, 1, &queues.send_cq), "create a completion queue");
	queues.recv_cq = queues.send_cq;
	check(frl_qp_create(pd, &queues, &qp), "create a queue pair");
	if (job.rank == 0)
		shared = (struct shared){ .counter = 100, .text = "text of rank 0" };

	check(frl_qp_endpoint(qp, &mine.endpoint), "get the endpoint");
	mine.addr = (uintptr_t)&shared;
	mine.rkey = frl_mr_rkey(mr);
	check(job.allgather(job.ctx, &mine, sizeof(mine), all), "exchange endpoints");
	check(frl_qp_connect(qp, &all[1 - job.rank].endpoint, NULL), "connect");
	if (job.rank == 1)
		use_memory(qp, queues.send_cq, frl_mr_lkey(mr), &all[0]);
	/* Rank 0 waits here until rank 1 has finished. */
	check(job.allgather(job.ctx, "", 1, done), "wait for the other rank");
	if (job.rank == 0)
		printf("rank 0: the counter is %" PRIu64 ", the lock is %" PRIu64 "\n",
			shared.counter, shared.lock);

	frl_qp_destroy(qp);
	check(frl_cq_destroy(queues.send_cq), "destroy the completion queue");
	check(frl_dereg_mr(mr), "deregister memory");
	check(frl_pd_destroy(pd), "destroy the protection domain");
	check(frl_device_close(device), "close the device");
	job.close(job.ctx);
	return EXIT_SUCCESS;
}
