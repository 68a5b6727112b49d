/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the cost of waiting, and the wake-up latency. One process waits for a message on the
 * local fabric. Another one sends eight bytes with the time in them, after 50 ms idle, many times.
 * Then nothing is sent for a while, and the processor time of the waiting process is counted.
 *
 *	bench_wake event [N]         waits for an event of a completion channel
 *	bench_wake wait [N]          waits in frl_cq_wait()
 *	bench_wake pipe [N]          without Ferrule, in read(): the kernel's latency
 *
 * N: messages (default 100). Prints one line of JSON: microseconds, and the share of a processor.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ferrule/event.h>
#include <ferrule/ferrule.h>

#include "lib/base/clock.h"

enum {
	SILENCE_MS = 50,
	IDLE_MS = 1000,
	WARM_UP = 3,
	MOST = 10000,
	DEPTH = 16,
	NS_PER_MS = 1000000,
};

enum how { BY_EVENT, BY_WAIT, BY_PIPE };

struct end {
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_comp_channel *channel;
	struct frl_cq *cq;
	struct frl_qp *qp;
	struct frl_mr *mr;
	uint64_t stamp; /* the time in a message: registered, sent from or received into */
	int peer;       /* the socket to the other process */
};

static void die(const char *what, int rc)
{
	fprintf(stderr, "bench_wake: %s: %s: %s\n", what, strerror(abs(rc)), frl_last_error());
	exit(1);
}

static void check(const char *what, int rc)
{
	if (rc < 0)
		die(what, rc);
}

static void sleep_ms(long ms)
{
	const struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_PER_MS };

	nanosleep(&time, NULL);
}

/* ---- the two ends */

static void send_all(int fd, const void *data, size_t size)
{
	if (send(fd, data, size, 0) != (ssize_t)size)
		die("the other process", errno ? errno : EPIPE);
}

static void receive_all(int fd, void *data, size_t size)
{
	if (recv(fd, data, size, MSG_WAITALL) != (ssize_t)size)
		die("the other process", errno ? errno : EPIPE);
}

static void open_end(struct end *end, enum how how)
{
	struct frl_qp_config config = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH };

	check("the device", frl_device_open(NULL, &end->device));
	check("the protection domain", frl_pd_create(end->device, &end->pd));
	if (how == BY_EVENT)
		check("the channel", frl_comp_channel_create(end->device, &end->channel));
	check("the queue",
		frl_cq_create_on_channel(end->device, 2 * DEPTH, end->channel, NULL, &end->cq));
	config.send_cq = end->cq;
	config.recv_cq = end->cq;
	check("the queue pair", frl_qp_create(end->pd, &config, &end->qp));
	check("the memory",
		frl_reg_mr(end->pd, &end->stamp, sizeof(end->stamp), FRL_ACCESS_LOCAL_WRITE,
			&end->mr));
}

static struct frl_sge sge_of(struct end *end)
{
	return (struct frl_sge){ &end->stamp, sizeof(end->stamp), frl_mr_lkey(end->mr) };
}

static void post_receive(struct end *end)
{
	struct frl_sge sge = sge_of(end);
	struct frl_recv_wr wr = { .sge = &sge, .n_sge = 1 };

	check("posting a receive", frl_post_recv(end->qp, &wr, 1, NULL));
}

static void connect_end(struct end *end, bool receives)
{
	struct frl_endpoint mine, theirs;
	char ready = 0;

	check("the endpoint", frl_qp_endpoint(end->qp, &mine));
	send_all(end->peer, &mine, sizeof(mine));
	receive_all(end->peer, &theirs, sizeof(theirs));
	check("connecting", frl_qp_connect(end->qp, &theirs, NULL));
	for (int i = 0; i < DEPTH && receives; i++)
		post_receive(end);
	send_all(end->peer, &ready, sizeof(ready));
	receive_all(end->peer, &ready, sizeof(ready));
}

static void close_end(struct end *end)
{
	frl_qp_destroy(end->qp);
	frl_dereg_mr(end->mr);
	frl_cq_destroy(end->cq);
	frl_comp_channel_destroy(end->channel);
	frl_pd_destroy(end->pd);
	frl_device_close(end->device);
}

/* ---- the waiting end */

/* Waits as an idle application does: requests an event, polls once more, sleeps. */
static int wait_by_event(struct end *end, struct frl_wc *wc)
{
	struct frl_cq *cq;
	int n;

	check("asking for an event", frl_req_notify_cq(end->cq, false));
	n = frl_poll_cq(end->cq, 1, wc);
	if (n)
		return n;
	check("waiting for an event", frl_get_cq_event(end->channel, -1, &cq));
	return frl_poll_cq(cq, 1, wc);
}

/* Returns the time at which the message was sent. */
static uint64_t wait_for_message(struct end *end, enum how how)
{
	struct frl_wc wc;
	uint64_t stamp;
	int n = 0;

	if (how == BY_PIPE) {
		receive_all(end->peer, &stamp, sizeof(stamp));
		return stamp;
	}
	while (n == 0)
		n = how == BY_EVENT ? wait_by_event(end, &wc) : frl_cq_wait(end->cq, 1, &wc, -1);
	check("waiting", n);
	if (wc.status != FRL_WC_SUCCESS)
		die(frl_wc_status_str(wc.status), EIO);
	stamp = end->stamp;
	post_receive(end);
	return stamp;
}

static double processor_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		(double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void wait_and_print(struct end *end, enum how how, int messages)
{
	static uint64_t late[MOST];
	double busy, seconds;
	uint64_t begin;

	for (int i = -WARM_UP; i < messages; i++) {
		uint64_t sent = wait_for_message(end, how), now = clock_now_ns();

		if (i >= 0)
			late[i] = now - sent;
	}
	busy = processor_seconds();
	begin = clock_now_ns();
	wait_for_message(end, how); /* the idle time without messages */
	busy = processor_seconds() - busy;
	seconds = (double)(clock_now_ns() - begin) * 1e-9;
	qsort(late, (size_t)messages, sizeof(late[0]), compare);
	printf("{\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"share\": %.5f}\n",
		(double)late[messages / 2] / 1000, (double)late[messages * 99 / 100] / 1000,
		(double)late[messages - 1] / 1000, busy / seconds);
}

/* ---- the sending end */

static void send_message(struct end *end)
{
	struct frl_sge sge = sge_of(end);
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED | FRL_SEND_INLINE,
		.sge = &sge,
		.n_sge = 1 };
	struct frl_wc wc;
	int n;

	check("sending", frl_post_send(end->qp, &wr, 1, NULL));
	n = frl_cq_wait(end->cq, 1, &wc, -1);
	check("waiting", n);
	if (wc.status != FRL_WC_SUCCESS)
		die(frl_wc_status_str(wc.status), EIO);
}

static void send_stamp(struct end *end, enum how how)
{
	end->stamp = clock_now_ns();
	if (how == BY_PIPE)
		send_all(end->peer, &end->stamp, sizeof(end->stamp));
	else
		send_message(end);
}

static void send_messages(struct end *end, enum how how, int messages)
{
	for (int i = -WARM_UP; i < messages; i++) {
		sleep_ms(SILENCE_MS);
		send_stamp(end, how);
	}
	sleep_ms(IDLE_MS);
	send_stamp(end, how);
}

static int run(enum how how, int messages)
{
	struct end end = { 0 };
	int pair[2], status = 0;
	char done = 0;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair", errno);
	child = fork();
	if (child < 0)
		die("fork", errno);
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	end.peer = pair[child == 0];
	close(pair[child != 0]);
	if (how != BY_PIPE) {
		/* The sender needs no events. */
		open_end(&end, child == 0 ? BY_WAIT : how);
		connect_end(&end, child != 0);
	}
	if (child)
		wait_and_print(&end, how, messages);
	else
		send_messages(&end, how, messages);
	/* Neither end leaves before the other has received everything. */
	send_all(end.peer, &done, sizeof(done));
	receive_all(end.peer, &done, sizeof(done));
	if (how != BY_PIPE)
		close_end(&end);
	if (child)
		waitpid(child, &status, 0);
	return status ? 1 : 0;
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "event", "wait", "pipe" };
	long messages = argc > 2 ? strtol(argv[2], NULL, 10) : 100;

	for (int how = 0; argc > 1 && how <= BY_PIPE; how++)
		if (strcmp(argv[1], names[how]) == 0 && messages > 0 && messages <= MOST)
			return run((enum how)how, (int)messages);
	fprintf(stderr, "bench_wake event|wait|pipe [MESSAGES, 1 to %d]\n", MOST);
	return 2;
}
