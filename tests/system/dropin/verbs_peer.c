/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that speak plain verbs: only <infiniband/verbs.h>, no word of Ferrule.
 *
 *	verbs-peer all N        N processes, each connected with each: messages and their contents
 *	verbs-peer killed       the receiver is killed: the sender's requests fail, and it goes on
 *	verbs-peer idle         the peer ends: queue pairs without requests do not notice it
 *	verbs-peer users        a process of another user is refused
 *	verbs-peer missing      the peer's queue pair does not exist, or nobody has the address
 *	verbs-peer multicast N  N processes in a group: one joins late, all receive from all
 *	verbs-peer files        opening a device without descriptors left fails, and works later
 *
 * Prints what failed and exits with 1.
 */
#include "tests/system/dropin/verbs_peer.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OTHER_USER = 12345 };

struct shared *shared;

_Noreturn void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

void barrier(int n, unsigned round)
{
	atomic_fetch_add(&shared->arrived, 1);
	while (atomic_load(&shared->arrived) < (unsigned)n * round)
		sched_yield();
}

/* ---- a peer */

static struct ibv_qp *make_qp(const struct peer *peer)
{
	struct ibv_qp_init_attr init = {
		.send_cq = peer->cq,
		.recv_cq = peer->cq,
		.cap = { .max_send_wr = 64,
			.max_recv_wr = 64,
			.max_send_sge = 1,
			.max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp(peer->pd, &init);

	if (!qp ||
		ibv_modify_qp(qp, &attr,
			IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS))
		die("rank %d: no queue pair: %s", peer->rank, strerror(errno));
	return qp;
}

static struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	if (!list || !list[0])
		die("there is no device");
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	return context;
}

void open_peer(struct peer *peer, int rank, int n)
{
	size_t bytes = (size_t)n * 2 * SIZE;

	*peer = (struct peer){ .rank = rank, .n = n, .context = open_first() };
	if (!peer->context)
		die("rank %d: cannot open the device: %s", rank, strerror(errno));
	peer->pd = ibv_alloc_pd(peer->context);
	peer->cq = ibv_create_cq(peer->context, n * 128, NULL, NULL, 0);
	peer->memory = calloc(1, bytes);
	peer->mr = ibv_reg_mr(peer->pd, peer->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!peer->cq || !peer->mr)
		die("rank %d: no completion queue or region: %s", rank, strerror(errno));
	for (int i = 0; i < n; i++) {
		peer->qps[i] = make_qp(peer);
		shared->ranks[rank].qpn[i] = peer->qps[i]->qp_num;
	}
	if (ibv_query_gid(peer->context, 1, 1, &shared->ranks[rank].gid))
		die("rank %d: no GID", rank);
}

/* Returns the result of the step that meets the peer: INIT to RTR. */
static int connect_qp(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t qpn)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			.port_num = 1,
			.grh = { .dgid = *gid, .sgid_index = 1, .hop_limit = 1 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 10,
		.retry_cnt = 1,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	int err = ibv_modify_qp(qp, &rtr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

	if (err)
		return err;
	if (ibv_modify_qp(qp, &rts,
		    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("no RTS: %s", strerror(errno));
	return 0;
}

void close_peer(struct peer *peer)
{
	for (int i = 0; i < peer->n; i++)
		if (ibv_destroy_qp(peer->qps[i]))
			die("ibv_destroy_qp: %s", strerror(errno));
	if (ibv_dereg_mr(peer->mr) || ibv_destroy_cq(peer->cq) || ibv_dealloc_pd(peer->pd) ||
		ibv_close_device(peer->context))
		die("cannot close: %s", strerror(errno));
	free(peer->memory);
}

struct ibv_wc wait_completion(const struct peer *peer)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(peer->cq, 1, &wc)) == 0)
		sched_yield();
	if (n < 0)
		die("rank %d: polling: %d", peer->rank, n);
	return wc;
}

uint8_t *outgoing(const struct peer *peer, int to)
{
	return peer->memory + (size_t)to * 2 * SIZE;
}

uint8_t *incoming(const struct peer *peer, int from)
{
	return outgoing(peer, from) + SIZE;
}

static int post_recv(const struct peer *peer, int from)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)incoming(peer, from), .length = SIZE, .lkey = peer->mr->lkey
	};
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)from, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(peer->qps[from], &wr, &bad);
}

static int post_send(const struct peer *peer, int to)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)outgoing(peer, to), .length = SIZE, .lkey = peer->mr->lkey
	};
	struct ibv_send_wr wr = {
		.wr_id = MAX_RANKS + (uint64_t)to,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	return ibv_post_send(peer->qps[to], &wr, &bad);
}

static uint8_t content(int from, int to, int message, int at)
{
	return (uint8_t)(from * 31 + to * 17 + message * 7 + at);
}

/* ---- all to all */

static void exchange(const struct peer *peer, int message)
{
	for (int i = 0; i < peer->n; i++) {
		for (int at = 0; at < SIZE; at++)
			outgoing(peer, i)[at] = content(peer->rank, i, message, at);
		if (post_recv(peer, i) || post_send(peer, i))
			die("rank %d: posting for %d: %s", peer->rank, i, strerror(errno));
	}
	for (int left = peer->n * 2; left; left--) {
		struct ibv_wc wc = wait_completion(peer);

		if (wc.status)
			die("rank %d: request %d: %s", peer->rank, (int)wc.wr_id,
				ibv_wc_status_str(wc.status));
	}
	for (int i = 0; i < peer->n; i++)
		for (int at = 0; at < SIZE; at++)
			if (incoming(peer, i)[at] != content(i, peer->rank, message, at))
				die("rank %d: wrong byte %d from %d", peer->rank, at, i);
}

static void be_one_of_all(int rank, int n)
{
	struct peer peer;

	open_peer(&peer, rank, n);
	barrier(n, 1);
	for (int i = 0; i < n; i++) {
		const struct address *other = &shared->ranks[i];
		int err = connect_qp(peer.qps[i], &other->gid, other->qpn[rank]);

		if (err)
			die("rank %d: cannot connect to %d: %s", rank, i, strerror(err));
	}
	barrier(n, 2);
	for (int message = 0; message < MESSAGES; message++)
		exchange(&peer, message);
	barrier(n, 3);
	close_peer(&peer);
}

pid_t start(void (*role)(int rank, int n), int rank, int n)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0) {
		role(rank, n);
		exit(0);
	}
	return pid;
}

void expect_success(pid_t pid)
{
	int status;

	waitpid(pid, &status, 0);
	if (status)
		die("a process ended with status 0x%x", (unsigned)status);
}

static void all(int n)
{
	pid_t pids[MAX_RANKS];

	for (int i = 0; i < n; i++)
		pids[i] = start(be_one_of_all, i, n);
	for (int i = 0; i < n; i++)
		expect_success(pids[i]);
}

/* ---- a peer is killed */

static void receive_until_killed(int rank, int n)
{
	struct peer peer;

	open_peer(&peer, rank, n);
	barrier(2, 1);
	if (connect_qp(peer.qps[0], &shared->ranks[0].gid, shared->ranks[0].qpn[rank]))
		die("the receiver cannot connect");
	if (post_recv(&peer, 0))
		die("the receiver cannot post");
	barrier(2, 2);
	for (;;) {
		wait_completion(&peer);
		if (post_recv(&peer, 0))
			die("the receiver cannot post again");
		atomic_fetch_add(&shared->sent, 1);
	}
}

static void send_until_failure(int rank, int n)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_wc wc;
	struct peer peer;

	open_peer(&peer, rank, n);
	barrier(2, 1);
	if (connect_qp(peer.qps[1], &shared->ranks[1].gid, shared->ranks[1].qpn[rank]))
		die("the sender cannot connect");
	barrier(2, 2);
	do {
		if (post_send(&peer, 1))
			die("the sender cannot post");
		wc = wait_completion(&peer);
	} while (wc.status == IBV_WC_SUCCESS);
	if (wc.status != IBV_WC_RETRY_EXC_ERR)
		die("status %s instead of retry exceeded", ibv_wc_status_str(wc.status));
	ibv_query_qp(peer.qps[1], &attr, IBV_QP_STATE, &init);
	if (attr.qp_state != IBV_QPS_ERR)
		die("the queue pair is in state %d", (int)attr.qp_state);
	/* The others work: a message to itself. */
	if (connect_qp(peer.qps[0], &shared->ranks[0].gid, peer.qps[0]->qp_num))
		die("cannot connect to itself");
	exchange(&(struct peer){ .rank = 0,
			 .n = 1,
			 .cq = peer.cq,
			 .mr = peer.mr,
			 .memory = peer.memory,
			 .qps = { peer.qps[0] } },
		0);
	close_peer(&peer);
}

static void killed(int n)
{
	pid_t sender = start(send_until_failure, 0, 2);
	pid_t receiver = start(receive_until_killed, 1, 2);

	while (atomic_load(&shared->sent) < 100)
		sched_yield();
	kill(receiver, SIGKILL);
	waitpid(receiver, NULL, 0);
	expect_success(sender);
}

/* ---- a peer ends while nothing is sent to it */

static void be_met_and_end(int rank, int n)
{
	struct peer peer;

	open_peer(&peer, rank, n);
	barrier(2, 1);
	for (int i = 0; i < n; i++)
		if (connect_qp(peer.qps[i], &shared->ranks[0].gid, shared->ranks[0].qpn[i]))
			die("the peer cannot connect");
	barrier(2, 2);
}

static void expect_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
	if (attr.qp_state != IBV_QPS_RTS)
		die("an idle queue pair is in state %d", (int)attr.qp_state);
}

static void expect_retry_exceeded(const struct peer *peer, int to)
{
	struct ibv_wc wc;

	if (post_send(peer, to))
		die("cannot post to a peer that has ended");
	wc = wait_completion(peer);
	if (wc.status != IBV_WC_RETRY_EXC_ERR || wc.wr_id != MAX_RANKS + (uint64_t)to)
		die("request %d: status %s instead of retry exceeded", (int)wc.wr_id,
			ibv_wc_status_str(wc.status));
}

static void stay_idle(int rank, int n)
{
	struct ibv_wc wc;
	struct peer peer;

	open_peer(&peer, rank, n);
	barrier(2, 1);
	for (int i = 0; i < n; i++)
		if (connect_qp(peer.qps[i], &shared->ranks[1].gid, shared->ranks[1].qpn[i]))
			die("cannot connect");
	/* A receive that the end of the peer must not flush. */
	if (post_recv(&peer, 1))
		die("cannot post a receive");
	barrier(2, 2);
	/* The end of the peer is known once this fails. */
	expect_retry_exceeded(&peer, 0);
	if (ibv_poll_cq(peer.cq, 1, &wc) != 0)
		die("a completion without a request");
	expect_rts(peer.qps[1]);
	expect_rts(peer.qps[2]);
	expect_retry_exceeded(&peer, 2);
	expect_rts(peer.qps[1]);
	close_peer(&peer);
}

static void idle(int n)
{
	pid_t pids[2] = { start(stay_idle, 0, 3), start(be_met_and_end, 1, 3) };

	expect_success(pids[1]);
	expect_success(pids[0]);
}

/* ---- a peer of another user */

static void be_other_user(int rank, int n)
{
	struct peer peer;

	if (setresuid(OTHER_USER, OTHER_USER, OTHER_USER))
		die("setresuid: %s", strerror(errno));
	open_peer(&peer, rank, n);
	barrier(2, 1);
	barrier(2, 2);
	close_peer(&peer);
}

static void be_refused(int rank, int n)
{
	struct peer peer;
	int err;

	open_peer(&peer, rank, n);
	barrier(2, 1);
	err = connect_qp(peer.qps[1], &shared->ranks[1].gid, shared->ranks[1].qpn[rank]);
	if (err != EACCES)
		die("a process of another user: %s", strerror(err));
	barrier(2, 2);
	close_peer(&peer);
}

static void users(int n)
{
	pid_t pids[2] = { start(be_refused, 0, 2), start(be_other_user, 1, 2) };

	expect_success(pids[0]);
	expect_success(pids[1]);
}

/* ---- nobody is there */

static void be_without_peer(int rank, int n)
{
	union ibv_gid nobody;
	struct ibv_wc wc;
	struct peer peer;

	open_peer(&peer, rank, n);
	/* An address that no device claims: the fabric's end in 1.0 to 254.255. */
	nobody = shared->ranks[rank].gid;
	nobody.raw[14] = 255;
	if (connect_qp(peer.qps[0], &nobody, 17) != EHOSTUNREACH)
		die("an address that nobody has: %s", strerror(errno));
	/* The peer is this process, its queue pair does not exist. */
	if (connect_qp(peer.qps[0], &shared->ranks[rank].gid, peer.qps[0]->qp_num ^ 1))
		die("cannot use its own address");
	if (post_send(&peer, 0))
		die("cannot post");
	wc = wait_completion(&peer);
	if (wc.status != IBV_WC_RETRY_EXC_ERR)
		die("status %s instead of retry exceeded", ibv_wc_status_str(wc.status));
	close_peer(&peer);
}

static void missing(int n)
{
	expect_success(start(be_without_peer, 0, 1));
}

/* ---- no descriptors */

static void files(int n)
{
	struct rlimit before, limit;
	struct ibv_context *context;
	int highest = dup(0);

	getrlimit(RLIMIT_NOFILE, &before);
	/* With each limit from "none is left" on, opening works or fails without a trace. */
	for (rlim_t more = 0; more < 40; more++) {
		limit = (struct rlimit){ (rlim_t)highest + more, before.rlim_max };
		setrlimit(RLIMIT_NOFILE, &limit);
		context = open_first();
		if (!context && errno != EMFILE)
			die("errno is %s instead of EMFILE", strerror(errno));
		if (context)
			ibv_close_device(context);
	}
	if (!context)
		die("40 descriptors do not suffice");
	setrlimit(RLIMIT_NOFILE, &before);
	if (dup(0) != highest + 1)
		die("descriptors are left open");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(int n);
	} roles[] = {
		{ "all", all },
		{ "killed", killed },
		{ "idle", idle },
		{ "users", users },
		{ "missing", missing },
		{ "multicast", multicast },
		{ "files", files },
	};
	int n = argc > 2 ? atoi(argv[2]) : 2;

	if (argc < 2 || n < 1 || n > MAX_RANKS)
		die("usage: verbs-peer ROLE [N]");
	shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if (strcmp(argv[1], roles[i].name) == 0) {
			roles[i].run(n);
			return 0;
		}
	die("there is no role %s", argv[1]);
}
