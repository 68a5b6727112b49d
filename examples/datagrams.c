/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send datagrams: a UD queue pair reaches any other one by an address handle, without a connection.
 *
 * Rank 1 repeats its question until an answer arrives, because networks may lose datagrams. Rank 0
 * finds the sender by the header (GRH) in front of the text. A SEND over a connection ends this.
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

enum { LIMIT_MS = 30000, REPEAT_MS = 1000, QKEY = 0x11223344, GID = 1, TEXT_SIZE = 32 };

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
static struct frl_sge room = { &memory, sizeof(memory.grh) + TEXT_SIZE, 0 };
static const struct frl_recv_wr receive = { .sge = &room, .n_sge = 1 };
static struct frl_qp_config queues = { .max_send_wr = 1, .max_recv_wr = 1 };
static struct frl_pd *pd;
static struct frl_qp *ud, *rc; /* rc is connected to the other rank */
static struct frl_wc wc;       /* the last completion */

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "datagrams: %s: %s\n", what, why);
	exit(EXIT_FAILURE);
}

/* Ends the program if a call failed. The library says what failed, why, and what to do. */
static void check(int err, const char *what)
{
	if (err < 0)
		fail(what, frl_last_error());
}

/* Waits for a successful completion. Returns false if none comes in time. */
static bool completes(struct frl_cq *cq, int limit_ms)
{
	int n = frl_cq_wait(cq, 1, &wc, limit_ms);

	check(n, "wait for a completion");
	if (n > 0 && wc.status != FRL_WC_SUCCESS)
		fail("a request failed", frl_wc_status_str(wc.status));
	return n > 0;
}

/* Sends to the peer of a connection, or with an address to any UD queue pair. */
static void send_text(struct frl_qp *qp, const char *text, struct frl_ah_attr *to, uint32_t qpn)
{
	struct frl_sge sge = { memory.sent, TEXT_SIZE, room.lkey };
	struct frl_send_wr wr = { .sge = &sge, .n_sge = 1, .remote_qpn = qpn, .remote_qkey = QKEY };

	wr.opcode = FRL_WR_SEND;
	wr.flags = FRL_SEND_SIGNALED;
	if (to)
		check(frl_ah_create(pd, to, &wr.ah), "create an address handle");
	snprintf(memory.sent, TEXT_SIZE, "%s", text);
	check(frl_post_send(qp, &wr, 1, NULL), "send");
	completes(queues.send_cq, -1);
	frl_ah_destroy(wr.ah);
}

static void ask(const struct card *to)
{
	struct frl_ah_attr address = { .dgid = to->gid.ip, .sgid_index = GID };
	int n = 0;

	do {
		if (n++ == LIMIT_MS / REPEAT_MS)
			fail("no answer", "rank 0 or the network does not work");
		send_text(ud, "question", &address, to->qpn);
	} while (!completes(queues.recv_cq, REPEAT_MS));
	printf("rank 1: received \"%.*s\"\n", TEXT_SIZE, memory.received);
	send_text(rc, "end", NULL, 0);
}

static void answer(struct frl_device *device)
{
	struct frl_ah_attr address;

	for (int n = 0; completes(queues.recv_cq, LIMIT_MS) && wc.qp_num != frl_qp_num(rc); n++) {
		if (n == 0)
			printf("rank 0: received \"%.*s\"\n", TEXT_SIZE, memory.received);
		check(frl_ah_attr_from_wc(device, &wc, memory.grh, &address), "find the sender");
		check(frl_post_recv(ud, &receive, 1, NULL), "post a receive");
		send_text(ud, "answer", &address, wc.src_qp);
	}
}

int main(void)
{
	const uint32_t init = FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_QKEY;
	struct frl_qp_attr attr = { .state = FRL_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct card mine = { 0 }, all[2];
	struct frl_bootstrap job;
	struct frl_device *device;
	struct frl_mr *mr;

	check(frl_bootstrap_from_environment(LIMIT_MS, &job), "join the job");
	if (job.ranks != 2)
		fail("start", "this example needs 2 ranks: set FRL_RANKS=2");
	check(frl_device_open(NULL, &device), "open a device");
	check(frl_pd_create(device, &pd), "create a protection domain");
	check(frl_reg_mr(pd, &memory, sizeof(memory), FRL_ACCESS_LOCAL_WRITE, &mr), "register");
	room.lkey = frl_mr_lkey(mr);
	check(frl_cq_create(device, 2, &queues.send_cq), "create a queue for SENDs");
	check(frl_cq_create(device, 2, &queues.recv_cq), "create a queue for receives");
	check(frl_qp_create(pd, &queues, &rc), "create a queue pair");
	queues.type = FRL_QPT_UD;
	check(frl_qp_create(pd, &queues, &ud), "create a queue pair");
	/* A UD queue pair needs no peer for RTS. It receives datagrams that carry its Q_Key. */
	check(frl_qp_modify(ud, &attr, init), "enter INIT");
	check(frl_post_recv(ud, &receive, 1, NULL), "post a receive");
	attr.state = FRL_QPS_RTR;
	check(frl_qp_modify(ud, &attr, FRL_QP_STATE), "enter RTR");
	attr.state = FRL_QPS_RTS;
	check(frl_qp_modify(ud, &attr, FRL_QP_STATE | FRL_QP_SQ_PSN), "enter RTS");
	check(frl_qp_endpoint(rc, &mine.endpoint), "get the endpoint");
	check(frl_query_gid(device, GID, &mine.gid), "get the address");
	mine.qpn = frl_qp_num(ud);
	check(job.allgather(job.ctx, &mine, sizeof(mine), all), "exchange addresses");
	/* Datagrams of the local fabric also use this link. From here on, rc accepts receives. */
	check(frl_qp_connect(rc, &all[1 - job.rank].endpoint, NULL), "connect");
	check(frl_post_recv(rc, &receive, 1, NULL), "post a receive");
	if (job.rank == 0)
		answer(device);
	else
		ask(&all[0]);
	check(job.allgather(job.ctx, &mine, sizeof(mine), all), "wait for the other rank");
	job.close(job.ctx);
	return EXIT_SUCCESS; /* the rest ends with the process */
}
