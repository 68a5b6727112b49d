/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures what a verbs program waits for when it starts: opening the device, and the transition to
 * RTR of the first queue pair that is connected to a process, and of later ones. The other
 * processes are idle meanwhile. Prints one object of JSON; all times are medians.
 *
 *	bench_rtr [PEERS [QPS]]    processes (10), and queue pairs to each (20)
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	MAX_PEERS = 100,
	MAX_QPS = 100,
	GID_INDEX = 1, /* the IPv4 address */
};

struct address {
	union ibv_gid gid;
	uint32_t qpn[MAX_QPS];
	double open_us;
};

struct device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qps[MAX_PEERS * MAX_QPS];
	int n_qps;
};

struct peer {
	pid_t pid;
	int socket;
	struct address address;
};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "bench_rtr: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* ---- the device of a process */

/* Returns how long the program waited. */
static double open_device(struct device *device)
{
	double began = now_us();
	struct ibv_device **list = ibv_get_device_list(NULL);
	double took;

	if (!list || !list[0])
		die("there is no device");
	device->context = ibv_open_device(list[0]);
	if (!device->context)
		die("ibv_open_device");
	took = now_us() - began;
	ibv_free_device_list(list);
	device->pd = ibv_alloc_pd(device->context);
	device->cq = ibv_create_cq(device->context, 16, NULL, NULL, 0);
	if (!device->pd || !device->cq)
		die("no protection domain or completion queue");
	return took;
}

/* Returns a queue pair in INIT. */
static struct ibv_qp *add_qp(struct device *device)
{
	struct ibv_qp_init_attr init = {
		.send_cq = device->cq,
		.recv_cq = device->cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp = ibv_create_qp(device->pd, &init);

	if (!qp)
		die("ibv_create_qp");
	errno = ibv_modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	if (errno)
		die("INIT");
	device->qps[device->n_qps++] = qp;
	return qp;
}

/* Returns how long the transition took. */
static double to_rtr(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			.port_num = 1,
			.grh = { .dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 1 } },
	};
	double began = now_us();

	errno = ibv_modify_qp(qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (errno)
		die("RTR");
	return now_us() - began;
}

static void close_device(struct device *device)
{
	while (device->n_qps)
		ibv_destroy_qp(device->qps[--device->n_qps]);
	ibv_destroy_cq(device->cq);
	ibv_dealloc_pd(device->pd);
	ibv_close_device(device->context);
}

/* ---- processes */

/* Ends once the socket is closed. */
static void be_peer(int socket, int n_qps)
{
	static struct device device;
	struct address mine = { .open_us = open_device(&device) };
	char byte;

	if (ibv_query_gid(device.context, 1, GID_INDEX, &mine.gid))
		die("no GID");
	for (int i = 0; i < n_qps; i++)
		mine.qpn[i] = add_qp(&device)->qp_num;
	if (send(socket, &mine, sizeof(mine), MSG_NOSIGNAL) != sizeof(mine) ||
		recv(socket, &byte, 1, 0) < 0)
		die("the first process");
	close_device(&device);
}

/* Processes are made before this one opens a device. */
static void start_peer(struct peer *peers, int index, int n_qps)
{
	struct peer *peer = &peers[index];
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		die("socketpair");
	peer->pid = fork();
	if (peer->pid < 0)
		die("fork");
	if (peer->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < index; i++)
			close(peers[i].socket);
		close(pair[0]);
		be_peer(pair[1], n_qps);
		exit(0);
	}
	close(pair[1]);
	peer->socket = pair[0];
	if (recv(peer->socket, &peer->address, sizeof(peer->address), MSG_WAITALL) !=
		sizeof(peer->address))
		die("a process of this bench has ended");
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(values[0]), compare);
	return values[n / 2];
}

static void measure(const struct peer *peers, int n, int n_qps)
{
	static double opened[MAX_PEERS + 1], first[MAX_PEERS], later[MAX_PEERS * MAX_QPS];
	static struct device device;
	int n_later = 0;

	opened[n] = open_device(&device);
	for (int i = 0; i < n; i++) {
		const struct address *address = &peers[i].address;

		opened[i] = address->open_us;
		first[i] = to_rtr(add_qp(&device), &address->gid, address->qpn[0]);
		for (int k = 1; k < n_qps; k++)
			later[n_later++] = to_rtr(add_qp(&device), &address->gid, address->qpn[k]);
	}
	printf("{\"open_us\": %.1f, \"first_us\": %.1f, \"later_us\": %.1f}\n",
		median(opened, n + 1), median(first, n), median(later, n_later));
	close_device(&device);
}

int main(int argc, char **argv)
{
	static struct peer peers[MAX_PEERS];
	int n = argc > 1 ? atoi(argv[1]) : 10, n_qps = argc > 2 ? atoi(argv[2]) : 20;

	if (n < 1 || n > MAX_PEERS || n_qps < 2 || n_qps > MAX_QPS) {
		fprintf(stderr, "bench_rtr [PEERS, 1 to %d [QPS, 2 to %d]]\n", MAX_PEERS, MAX_QPS);
		return 2;
	}
	for (int i = 0; i < n; i++)
		start_peer(peers, i, n_qps);
	measure(peers, n, n_qps);
	for (int i = 0; i < n; i++) {
		close(peers[i].socket);
		waitpid(peers[i].pid, NULL, 0);
	}
	return 0;
}
