/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loops of perftest over frl_*, for comparison with perftest over the drop-in libibverbs.so.1.
 * Two processes on the local fabric use plain memory, a progress thread and a path MTU of 4096, and
 * connect by frl_qp_modify() with GID and queue pair number, as the drop-in library does.
 *
 *	bench_perftest send-lat SIZE N     ib_send_lat: the peers send in turns
 *	bench_perftest write-lat SIZE N    ib_write_lat: the same, and wait for a byte in memory
 *	bench_perftest write-bw SIZE N     ib_write_bw: up to 128 WRITEs in flight
 *
 * Prints one line of JSON: half a round trip in microseconds, or messages and gigabytes a second.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ferrule/ferrule.h>

/* Numbers of perftest 6.06, for RC and its defaults. */
enum {
	PAGE = 4096, /* also the range of addresses that short WRITEs use in turns */
	CACHE_LINE = 64,
	RECEIVES = 512,   /* posted at once */
	WRITES = 128,     /* in flight at once */
	BATCH = 16,       /* completions of one poll */
	MODERATION = 100, /* WRITEs for a completion ... */
	MODERATED = 8192, /* ... if they are at most so long */
	PATH_MTU = 4096,
	ACK_TIMEOUT = 14,
	RNR_TIMER = 12,
	MOST = 1 << 24,
};

struct address {
	struct frl_ip gid;
	uint32_t qpn;
	uint32_t rkey;
	uint64_t incoming;
};

struct end {
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_cq *send_cq, *recv_cq;
	struct frl_qp *qp;
	struct frl_mr *mr;
	char *outgoing, *incoming;
	struct address mine, theirs;
	uint32_t size;
	unsigned n;        /* messages */
	unsigned receives; /* posted so far */
	bool is_client;
	int peer;        /* the socket to the other process */
	uint64_t *times; /* when each message was posted, in ticks() */
};

static _Noreturn void die(const char *what, int rc)
{
	fprintf(stderr, "bench_perftest: %s: %s: %s\n", what, strerror(abs(rc)), frl_last_error());
	exit(1);
}

static void check(const char *what, int rc)
{
	if (rc < 0)
		die(what, rc);
}

/* ---- time */

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* perftest reads the processor's counter, which takes less time than the clock. */
static uint64_t ticks(void)
{
#ifdef __x86_64__
	return __builtin_ia32_rdtsc();
#else
	return (uint64_t)(now_s() * 1e9);
#endif
}

/* ---- the two ends */

static void send_all(const struct end *end, const void *data, size_t size)
{
	if (send(end->peer, data, size, MSG_NOSIGNAL) != (ssize_t)size)
		die("the other process", errno ? errno : EPIPE);
}

static void receive_all(const struct end *end, void *data, size_t size)
{
	if (recv(end->peer, data, size, MSG_WAITALL) != (ssize_t)size)
		die("the other process", errno ? errno : EPIPE);
}

/* Waits as perftest does, in a system call: meanwhile the progress thread handles packets. */
static void barrier(const struct end *end)
{
	char byte = 0;

	send_all(end, &byte, sizeof(byte));
	receive_all(end, &byte, sizeof(byte));
}

static void make_memory(struct end *end)
{
	size_t half = ((size_t)end->size + PAGE - 1) / PAGE * PAGE;

	end->outgoing = aligned_alloc(PAGE, 2 * half);
	end->times = calloc(end->n, sizeof(end->times[0]));
	if (!end->outgoing || !end->times)
		die("the memory", ENOMEM);
	memset(end->outgoing, 0, 2 * half);
	end->incoming = end->outgoing + half;
	check("the region",
		frl_reg_mr(end->pd, end->outgoing, 2 * half,
			FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, &end->mr));
}

static void open_end(struct end *end, uint32_t sends, uint32_t receives)
{
	struct frl_qp_config config = {
		.max_send_wr = sends,
		.max_recv_wr = receives,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.as_hardware = true,
	};
	struct frl_device_config device;
	struct frl_gid gid;

	frl_device_config_init(&device);
	device.fabric = "local";
	device.port = device.ip = NULL;
	device.path_mtu = PATH_MTU;
	device.progress = FRL_PROGRESS_THREAD;
	check("the device", frl_device_open(&device, &end->device));
	check("the protection domain", frl_pd_create(end->device, &end->pd));
	check("the queue", frl_cq_create(end->device, sends, &end->send_cq));
	if (receives)
		check("the queue", frl_cq_create(end->device, receives, &end->recv_cq));
	config.send_cq = end->send_cq;
	config.recv_cq = receives ? end->recv_cq : end->send_cq;
	check("the queue pair", frl_qp_create(end->pd, &config, &end->qp));
	make_memory(end);
	check("the GID", frl_query_gid(end->device, 1, &gid));
	end->mine = (struct address){
		.gid = gid.ip,
		.qpn = frl_qp_num(end->qp),
		.rkey = frl_mr_rkey(end->mr),
		.incoming = (uintptr_t)end->incoming,
	};
}

static void connect_end(struct end *end)
{
	struct frl_qp_attr attr = {
		.state = FRL_QPS_INIT,
		.port_num = 1,
		.access_flags = FRL_ACCESS_REMOTE_WRITE,
		.path_mtu = PATH_MTU,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = RNR_TIMER,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};

	send_all(end, &end->mine, sizeof(end->mine));
	receive_all(end, &end->theirs, sizeof(end->theirs));
	check("INIT",
		frl_qp_modify(end->qp, &attr,
			FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS));
	attr.state = FRL_QPS_RTR;
	attr.dest_qpn = end->theirs.qpn;
	attr.ah = (struct frl_ah_attr){ .dgid = end->theirs.gid, .sgid_index = 1 };
	check("RTR",
		frl_qp_modify(end->qp, &attr,
			FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
				FRL_QP_RQ_PSN | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER));
	attr.state = FRL_QPS_RTS;
	check("RTS",
		frl_qp_modify(end->qp, &attr,
			FRL_QP_STATE | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
				FRL_QP_SQ_PSN | FRL_QP_MAX_QP_RD_ATOMIC));
}

static void close_end(struct end *end)
{
	frl_qp_destroy(end->qp);
	frl_dereg_mr(end->mr);
	frl_cq_destroy(end->send_cq);
	frl_cq_destroy(end->recv_cq);
	frl_pd_destroy(end->pd);
	frl_device_close(end->device);
	free(end->outgoing);
	free(end->times);
}

/* ---- requests */

/* `offset`: from the beginning of the memory, at both ends. */
static void post(const struct end *end, enum frl_wr_opcode opcode, size_t offset, uint32_t flags)
{
	struct frl_sge sge = { end->outgoing + offset, end->size, frl_mr_lkey(end->mr) };
	struct frl_send_wr wr = {
		.opcode = opcode,
		.flags = flags,
		.sge = &sge,
		.n_sge = 1,
		.remote_addr = end->theirs.incoming + offset,
		.rkey = end->theirs.rkey,
	};

	check("posting", frl_post_send(end->qp, &wr, 1, NULL));
}

static void post_receive(struct end *end)
{
	struct frl_sge sge = { end->incoming, end->size, frl_mr_lkey(end->mr) };
	struct frl_recv_wr wr = { .sge = &sge, .n_sge = 1 };

	check("posting a receive", frl_post_recv(end->qp, &wr, 1, NULL));
	end->receives++;
}

/* Returns the number of completions. */
static int poll_once(struct frl_cq *cq, int max)
{
	struct frl_wc wc[BATCH];
	int n = frl_poll_cq(cq, max, wc);

	check("polling", n);
	for (int i = 0; i < n; i++)
		if (wc[i].status != FRL_WC_SUCCESS)
			die(frl_wc_status_str(wc[i].status), EIO);
	return n;
}

static void wait_for_one(struct frl_cq *cq)
{
	while (!poll_once(cq, 1))
		;
}

/* ---- the loops */

static void send_in_turns(struct end *end)
{
	unsigned sent = 0, received = 0;

	while (sent < end->n || received < end->n) {
		if (received < end->n && (sent > 0 || !end->is_client)) {
			wait_for_one(end->recv_cq);
			received++;
			if (end->receives < end->n)
				post_receive(end);
		}
		if (sent < end->n) {
			end->times[sent++] = ticks();
			post(end, FRL_WR_SEND, 0, FRL_SEND_SIGNALED);
			wait_for_one(end->send_cq);
		}
	}
}

/* The last byte is the number of the message. */
static void write_in_turns(struct end *end)
{
	volatile char *mine = end->outgoing + end->size - 1;
	char *theirs = end->incoming + end->size - 1;
	unsigned sent = 0, received = 0;

	while (sent < end->n || received < end->n) {
		if (received < end->n && (sent > 0 || !end->is_client)) {
			received++;
			while (__atomic_load_n(theirs, __ATOMIC_ACQUIRE) != (char)received)
				;
		}
		if (sent < end->n) {
			end->times[sent++] = ticks();
			*mine = (char)sent;
			post(end, FRL_WR_RDMA_WRITE, 0, FRL_SEND_SIGNALED);
			wait_for_one(end->send_cq);
		}
	}
}

/* Short WRITEs use one line after the other of a page, long ones the same addresses. */
static size_t next_offset(const struct end *end, size_t offset)
{
	size_t step = ((size_t)end->size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;

	return offset + step + end->size > PAGE ? 0 : offset + step;
}

static void write_stream(struct end *end)
{
	unsigned moderation = end->size <= MODERATED ? MODERATION : 1, posted = 0, done = 0;
	size_t offset = 0;

	while (end->is_client && done < end->n) {
		for (; posted < end->n && posted - done < WRITES; posted++) {
			bool is_last = posted % moderation == moderation - 1 ||
				posted == end->n - 1;

			post(end, FRL_WR_RDMA_WRITE, offset, is_last ? FRL_SEND_SIGNALED : 0);
			offset = next_offset(end, offset);
		}
		done += moderation * (unsigned)poll_once(end->send_cq, BATCH);
	}
}

/* ---- results */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Half of the time from one message to the next one, as perftest's t_typical. */
static void print_latency(struct end *end, double us_per_tick)
{
	unsigned n = end->n - 1;

	for (unsigned i = 0; i < n; i++)
		end->times[i] = end->times[i + 1] - end->times[i];
	qsort(end->times, n, sizeof(end->times[0]), compare);
	printf("{\"p50_us\": %.3f, \"p99_us\": %.3f}\n",
		(double)end->times[n / 2] * us_per_tick / 2,
		(double)end->times[(size_t)n * 99 / 100] * us_per_tick / 2);
}

static void print_rate(const struct end *end, double seconds)
{
	double rate = end->n / seconds;

	printf("{\"messages_per_s\": %.0f, \"gbytes_per_s\": %.4f}\n", rate,
		rate * end->size / 1e9);
}

struct loop {
	const char *name;
	void (*run)(struct end *end);
	uint32_t sends, receives;
	bool is_stream;
};

static void run(struct end *end, const struct loop *loop)
{
	uint64_t first_tick, n_ticks;
	double begin, seconds;

	open_end(end, loop->sends, loop->receives);
	connect_end(end);
	while (end->receives < end->n && end->receives < loop->receives)
		post_receive(end);
	barrier(end);
	begin = now_s();
	first_tick = ticks();
	loop->run(end);
	n_ticks = ticks() - first_tick;
	seconds = now_s() - begin;
	if (end->is_client && loop->is_stream)
		print_rate(end, seconds);
	else if (end->is_client)
		print_latency(end, seconds * 1e6 / (double)n_ticks);
	/* Neither end leaves before the other has received everything. */
	barrier(end);
	if (end->is_client)
		signal(SIGCHLD, SIG_DFL);
	barrier(end);
	close_end(end);
}

/* A process that waits for a byte in memory would not notice the end of the other one. */
static void on_end_of_peer(int number)
{
	_exit(number);
}

static int run_both(struct end *end, const struct loop *loop)
{
	int pair[2], status = 0;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair", errno);
	signal(SIGCHLD, on_end_of_peer);
	child = fork();
	if (child < 0)
		die("fork", errno);
	if (child == 0) {
		/* The kernel shares processors among sessions, and the two ends of perftest are
		 * usually two sessions. */
		setsid();
		signal(SIGCHLD, SIG_DFL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
	end->is_client = child != 0;
	end->peer = pair[child == 0];
	close(pair[child != 0]);
	run(end, loop);
	if (child)
		waitpid(child, &status, 0);
	return status ? 1 : 0;
}

int main(int argc, char **argv)
{
	static const struct loop loops[] = {
		{ "send-lat", send_in_turns, 1, RECEIVES, false },
		{ "write-lat", write_in_turns, 1, 0, false },
		{ "write-bw", write_stream, WRITES, 0, true },
	};
	unsigned long size = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
	unsigned long n = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	struct end end = { .size = (uint32_t)size, .n = (unsigned)n };

	for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++)
		if (argc == 4 && strcmp(argv[1], loops[i].name) == 0 && size > 0 && size <= MOST &&
			n > 1 && n <= MOST)
			return run_both(&end, &loops[i]);
	fprintf(stderr,
		"bench_perftest send-lat|write-lat|write-bw SIZE N; SIZE: 1 to %d, N: 2 "
		"to %d\n",
		MOST, MOST);
	return 2;
}
