/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures connection setup through the control daemon: two processes on the local fabric make
 * many frl_connect() calls at once, until each connection is established. Prints connections a
 * second, the median and the 99th percentile of the setup time, and the growth of the daemon's
 * memory. Measures bare TCP connections over loopback that carry as many bytes each way, too.
 *
 * bench_connect [--quick] [--daemon-pid PID]; FRL_CONTROL names the daemon.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ferrule/cm.h>
#include <ferrule/ferrule.h>

#include "lib/base/clock.h"

enum {
	MOST = 5000,
	TIMEOUT_MS = 60000,
	MESSAGE = FRL_ENDPOINT_SIZE + FRL_PRIVATE_DATA_MAX, /* bytes that TCP carries each way */
};

static const char service[] = "bench-connect";

struct row {
	unsigned at_once;
	unsigned rounds;
};

struct one {
	struct frl_qp *qp;
	struct frl_conn *conn;
	int fd; /* of the TCP row */
	uint64_t start_ns;
	uint64_t took_ns; /* 0: not yet */
};

static struct one ones[MOST];
static uint64_t times[200 * 100 + MOST];

static void die(const char *what, int rc)
{
	fprintf(stderr, "bench_connect: %s: %s: %s\n", what, strerror(rc < 0 ? -rc : rc),
		frl_last_error());
	exit(1);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static long resident_kib(long pid)
{
	char path[64], line[256];
	long kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%ld/status", pid);
	file = pid ? fopen(path, "r") : NULL;
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	}
	if (file)
		fclose(file);
	return kib;
}

/* ---- Ferrule */

struct side {
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_cq *cq;
};

static void open_side(struct side *side)
{
	int rc = frl_device_open(NULL, &side->device);

	if (!rc)
		rc = frl_pd_create(side->device, &side->pd);
	if (!rc)
		rc = frl_cq_create(side->device, 4096, &side->cq);
	if (rc)
		die("cannot open a device", rc);
}

static struct frl_qp *make_qp(const struct side *side)
{
	const struct frl_qp_config config = { .send_cq = side->cq,
		.recv_cq = side->cq,
		.max_send_wr = 1,
		.max_recv_wr = 1,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.max_inline = 1 };
	struct frl_qp *qp;
	int rc = frl_qp_create(side->pd, &config, &qp);

	if (rc)
		die("cannot create a queue pair", rc);
	return qp;
}

/* Removes closed connections among the first `used`. Returns how many are left. */
static unsigned drop_ended(unsigned used)
{
	for (unsigned i = 0; i < used;) {
		int rc = frl_conn_test(ones[i].conn);

		if (rc == 0 || rc == -EAGAIN) {
			i++;
			continue;
		}
		frl_conn_close(ones[i].conn);
		frl_qp_destroy(ones[i].qp);
		ones[i] = ones[--used];
	}
	return used;
}

/* Accepts connections, and drops them when the peer has closed them, until it is killed. */
static void serve(int ready)
{
	struct frl_listen_config config;
	struct frl_listener *listener;
	struct side side;
	unsigned used = 0;
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_side(&side);
	frl_listen_config_init(&config);
	config.backlog = MOST;
	rc = frl_listen(side.device, service, &config, &listener);
	if (rc)
		die("cannot listen", rc);
	if (write(ready, "", 1) != 1)
		exit(1);
	for (;;) {
		struct frl_conn *conn;
		struct one *one;

		rc = frl_wait_request(listener, 20, &conn);
		if (rc == -ETIMEDOUT) {
			used = drop_ended(used);
			continue;
		}
		if (rc)
			die("cannot take a request", rc);
		if (used == MOST)
			used = drop_ended(used);
		if (used == MOST)
			die("more connections than there is room for", ENOSPC);
		one = &ones[used++];
		one->qp = make_qp(&side);
		one->conn = conn;
		rc = frl_accept(conn, one->qp, NULL, 0, NULL);
		if (rc)
			die("cannot accept", rc);
	}
}

static void ferrule_round(const struct side *side, unsigned n, int epoll)
{
	struct epoll_event events[64];
	struct frl_connect_config config;
	unsigned done = 0;

	frl_connect_config_init(side->device, &config);
	config.timeout_ms = TIMEOUT_MS;
	for (unsigned i = 0; i < n; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = i };
		int rc;

		ones[i].qp = make_qp(side);
		ones[i].took_ns = 0;
		ones[i].start_ns = clock_now_ns();
		rc = frl_connect(ones[i].qp, "localhost", service, NULL, 0, &config, &ones[i].conn);
		if (rc)
			die("cannot connect", rc);
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, frl_conn_fd(ones[i].conn), &event))
			die("epoll", errno);
	}
	while (done < n) {
		int count = epoll_wait(epoll, events, 64, TIMEOUT_MS);
		uint64_t now_ns = clock_now_ns();

		if (count <= 0)
			die("no news of connections", ETIMEDOUT);
		for (int i = 0; i < count; i++) {
			struct one *one = &ones[events[i].data.u32];
			int rc = frl_conn_test(one->conn);

			if (rc == -EAGAIN || one->took_ns)
				continue;
			if (rc)
				die("not established", rc);
			one->took_ns = now_ns - one->start_ns;
			done++;
		}
	}
}

static void ferrule_close(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		frl_conn_close(ones[i].conn);
		frl_qp_destroy(ones[i].qp);
	}
}

/* ---- TCP */

static int tcp_listen(struct sockaddr_in *address)
{
	socklen_t size = sizeof(*address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*address = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0 || bind(fd, (struct sockaddr *)address, sizeof(*address)) ||
		listen(fd, SOMAXCONN) || getsockname(fd, (struct sockaddr *)address, &size))
		die("cannot listen on loopback", errno);
	return fd;
}

/* Answers each message with one of the same length; closes with the client. */
static void tcp_serve(int listener)
{
	static char message[MESSAGE];
	struct epoll_event event = { .events = EPOLLIN, .data.fd = listener };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
	while (epoll_wait(epoll, &event, 1, -1) == 1) {
		int fd = event.data.fd;

		if (fd == listener) {
			fd = accept(listener, NULL, NULL);
			event = (struct epoll_event){ .events = EPOLLIN, .data.fd = fd };
			epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
		} else if (recv(fd, message, MESSAGE, MSG_WAITALL) != MESSAGE ||
			send(fd, message, MESSAGE, MSG_NOSIGNAL) != MESSAGE) {
			close(fd);
		}
	}
}

static void tcp_round(const struct sockaddr_in *address, unsigned n, int epoll)
{
	static char message[MESSAGE];
	struct epoll_event events[64];
	unsigned done = 0;

	for (unsigned i = 0; i < n; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = i };

		ones[i].took_ns = 0;
		ones[i].start_ns = clock_now_ns();
		ones[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(ones[i].fd, (const struct sockaddr *)address, sizeof(*address)) ||
			send(ones[i].fd, message, MESSAGE, MSG_NOSIGNAL) != MESSAGE ||
			epoll_ctl(epoll, EPOLL_CTL_ADD, ones[i].fd, &event))
			die("cannot connect over TCP", errno);
	}
	while (done < n) {
		int count = epoll_wait(epoll, events, 64, TIMEOUT_MS);

		if (count <= 0)
			die("no answer over TCP", ETIMEDOUT);
		for (int i = 0; i < count; i++) {
			struct one *one = &ones[events[i].data.u32];

			if (one->took_ns)
				continue;
			if (recv(one->fd, message, MESSAGE, MSG_WAITALL) != MESSAGE)
				die("short answer over TCP", errno);
			one->took_ns = clock_now_ns() - one->start_ns;
			done++;
		}
	}
}

static void tcp_close(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close(ones[i].fd);
}

/* ---- both */

struct result {
	double rate; /* a second */
	double p50_us, p99_us;
};

static void take(const struct one from[], unsigned n, unsigned *count)
{
	for (unsigned i = 0; i < n; i++)
		times[(*count)++] = from[i].took_ns;
}

static struct result sum_up(unsigned count, uint64_t ns)
{
	struct result result;

	qsort(times, count, sizeof(times[0]), compare);
	result.rate = count * 1e9 / (double)ns;
	result.p50_us = (double)times[count / 2] / 1e3;
	result.p99_us = (double)times[count * 99 / 100] / 1e3;
	return result;
}

static void run_row(const struct side *side, const struct sockaddr_in *address,
	const struct row *row, long daemon)
{
	struct result ferrule, tcp;
	uint64_t ns = 0, start_ns;
	unsigned count = 0;
	long before = resident_kib(daemon), most = before;

	for (unsigned round = 0; round < row->rounds; round++) {
		int epoll = epoll_create1(EPOLL_CLOEXEC);
		long now;

		start_ns = clock_now_ns();
		ferrule_round(side, row->at_once, epoll);
		ns += clock_now_ns() - start_ns;
		take(ones, row->at_once, &count);
		now = resident_kib(daemon);
		most = now > most ? now : most;
		close(epoll);
		ferrule_close(row->at_once);
	}
	ferrule = sum_up(count, ns);
	ns = count = 0;
	for (unsigned round = 0; round < row->rounds; round++) {
		int epoll = epoll_create1(EPOLL_CLOEXEC);

		start_ns = clock_now_ns();
		tcp_round(address, row->at_once, epoll);
		ns += clock_now_ns() - start_ns;
		take(ones, row->at_once, &count);
		close(epoll);
		tcp_close(row->at_once);
	}
	tcp = sum_up(count, ns);
	printf("%7u %7.0f %9.0f %9.0f %9.2f | %7.0f %9.0f %9.0f | %5.2f\n", row->at_once,
		ferrule.rate, ferrule.p50_us, ferrule.p99_us,
		(double)(most - before) / row->at_once, tcp.rate, tcp.p50_us, tcp.p99_us,
		ferrule.rate / tcp.rate);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const struct row rows[] = { { 1, 200 }, { 100, 20 }, { 5000, 1 } };
	static const struct row quick[] = { { 1, 5 }, { 20, 1 } };
	const struct row *list = rows;
	struct rlimit files = { 0 };
	struct sockaddr_in address;
	int ready[2], listener;
	pid_t children[2];
	size_t n = sizeof(rows) / sizeof(rows[0]);
	struct side side;
	long daemon = 0;
	char byte;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--quick") == 0) {
			list = quick;
			n = sizeof(quick) / sizeof(quick[0]);
		} else if (strcmp(argv[i], "--daemon-pid") == 0 && i + 1 < argc) {
			daemon = strtol(argv[++i], NULL, 10);
		}
	}
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	listener = tcp_listen(&address);
	if (pipe(ready))
		die("pipe", errno);
	/* fork() before this process has a device. */
	children[0] = fork();
	if (children[0] == 0)
		serve(ready[1]);
	children[1] = fork();
	if (children[1] == 0) {
		tcp_serve(listener);
		exit(0);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		return 1;
	open_side(&side);
	printf("%7s %7s %9s %9s %9s | %7s %9s %9s |\n", "at once", "conn/s", "p50 us", "p99 us",
		"KiB each", "TCP/s", "p50 us", "p99 us");
	for (size_t i = 0; i < n; i++)
		run_row(&side, &address, &list[i], daemon);
	for (int i = 0; i < 2; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
	frl_cq_destroy(side.cq);
	frl_pd_destroy(side.pd);
	frl_device_close(side.device);
	return 0;
}
