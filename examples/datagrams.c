/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send datagrams: a UD queue pair reaches any other one by an address handle, without a connection.
 *
 * Rank 1 sends a question to rank 0, and repeats it, because a network may lose datagrams. Rank 0
 * makes the address handle for its answer from the header (GRH) in front of the received text.
 *
 * Build:   cc -o datagrams datagrams.c $(pkg-config --cflags --libs ferrule)
 * Run:     export FRL_JOB=datagrams FRL_RANKS=2
 *          FRL_RANK=0 ./datagrams &
 *          FRL_RANK=1 ./datagrams
 * Prints:  rank 0: received "question"
 *          rank 1: received "answer"
 */
#include <stdio.h>
#include <stdlib.h>

#include <ferrule/ferrule.h>

enum { JOIN_MS = 30000, REPEAT_MS = 1000, QKEY = 0x11223344, GID = 1, TEXT_SIZE = 32 };

/* Each rank sends this to the other one. */
struct card {
	struct frl_endpoint endpoint;
	struct frl_gid gid;
	uint32_t qpn;
};

static struct {
	uint8_t grh[FRL_GRH_SIZE];
	char received[TEXT_SIZE], sent[TEXT_SIZE];
} memory;
static struct frl_qp_config queues = { .max_send_wr = 1, .max_recv_wr = 1 };
static struct frl_pd *pd;
static struct frl_mr *mr;
static struct frl_qp *ud;

/* Ends the program if a call failed. The library says what failed, why, and what to do. */
static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "datagrams: %s: %s\n", what, frl_last_error());
	exit(EXIT_FAILURE);
}

/* A UD queue pair needs no peer for RTS. It receives datagrams that carry its Q_Key. */
static void start_queue(void)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_INIT, .port_num = 1, .qkey = QKEY };

	check(frl_qp_modify(
		      ud, &attr, FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_QKEY),
		"enter INIT");
	attr.state = FRL_QPS_RTR;
	check(frl_qp_modify(ud, &attr, FRL_QP_STATE), "enter RTR");
	attr.state = FRL_QPS_RTS;
	check(frl_qp_modify(ud, &attr, FRL_QP_STATE | FRL_QP_SQ_PSN), "enter RTS");
}

static void send_text(const char *text, struct frl_ah *ah, uint32_t qpn)
{
	struct frl_sge piece = { memory.sent, TEXT_SIZE, frl_mr_lkey(mr) };
	struct frl_send_wr request = { .opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &piece,
		.n_sge = 1,
		.ah = ah,
		.remote_qpn = qpn,
		.remote_qkey = QKEY };
	struct frl_wc wc;

	snprintf(memory.sent, TEXT_SIZE, "%s", text);
	check(frl_post_send(ud, &request, 1, NULL), "send");
	check(frl_cq_wait(queues.send_cq, 1, &wc, -1), "wait for the completion of a SEND");
}

static void ask(const struct card *to)
{
	struct frl_ah_attr way = { .dgid = to->gid.ip, .sgid_index = GID };
	struct frl_ah *ah;
	struct frl_wc wc;
	int n;

	check(frl_ah_create(pd, &way, &ah), "create an address handle");
	do {
		send_text("question", ah, to->qpn);
		n = frl_cq_wait(queues.recv_cq, 1, &wc, REPEAT_MS);
		check(n, "wait for the answer");
	} while (n == 0);
	printf("rank 1: received \"%s\"\n", memory.received);
	frl_ah_destroy(ah);
}

static void answer(struct frl_device *device)
{
	struct frl_ah_attr way;
	struct frl_ah *ah;
	struct frl_wc wc;

	check(frl_cq_wait(queues.recv_cq, 1, &wc, -1), "wait for a question");
	printf("rank 0: received \"%s\"\n", memory.received);
	check(frl_ah_attr_from_wc(device, &wc, memory.grh, &way), "find the sender");
	check(frl_ah_create(pd, &way, &ah), "create an address handle");
	send_text("answer", ah, wc.src_qp);
	frl_ah_destroy(ah);
}

int main(void)
{
	struct frl_sge room = { &memory, sizeof(memory.grh) + TEXT_SIZE, 0 };
	struct frl_recv_wr receive = { .sge = &room, .n_sge = 1 };
	struct card mine = { 0 }, all[2];
	char done[2];
	struct frl_bootstrap job;
	struct frl_device *device;
	struct frl_qp *rc;

	check(frl_bootstrap_from_environment(JOIN_MS, &job), "join the job");
	if (job.ranks != 2) {
		fprintf(stderr, "datagrams: this example needs 2 ranks, not %d\n", job.ranks);
		return 2;
	}
	check(frl_device_open(NULL, &device), "open a device");
	check(frl_pd_create(device, &pd), "create a protection domain");
	check(frl_reg_mr(pd, &memory, sizeof(memory), FRL_ACCESS_LOCAL_WRITE, &mr), "register");
	check(frl_cq_create(device, 2, &queues.send_cq), "create a queue for SENDs");
	check(frl_cq_create(device, 2, &queues.recv_cq), "create a queue for receives");
	check(frl_qp_create(pd, &queues, &rc), "create a queue pair");
	queues.type = FRL_QPT_UD;
	check(frl_qp_create(pd, &queues, &ud), "create a queue pair");
	start_queue();
	room.lkey = frl_mr_lkey(mr);
	check(frl_post_recv(ud, &receive, 1, NULL), "post a receive");

	check(frl_qp_endpoint(rc, &mine.endpoint), "get the endpoint");
	check(frl_query_gid(device, GID, &mine.gid), "get the address");
	mine.qpn = frl_qp_num(ud);
	check(job.allgather(job.ctx, &mine, sizeof(mine), all), "exchange addresses");
	/* Only the local fabric needs this: datagrams there use the link of a connection. */
	check(frl_qp_connect(rc, &all[1 - job.rank].endpoint, NULL), "connect");
	if (job.rank == 0)
		answer(device);
	else
		ask(&all[0]);
	check(job.allgather(job.ctx, "", 1, done), "wait for the other rank");
	job.close(job.ctx);
	return EXIT_SUCCESS; /* the rest ends with the process */
}
