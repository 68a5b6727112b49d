/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures memif without Ferrule: two processes, one link, only DPDK. tests/bench/run.sh compares
 * Ferrule with it.
 *
 *	bench_memif latency          half a round trip of 64 bytes
 *	bench_memif copy             4 KiB packets one way: header and payload by reference from
 *	                             64 MiB, copied once more by the receiver to its destination
 *	bench_memif sum              the same, the receiver adds float32
 *	bench_memif crc              as copy, and a CRC-32 over each payload at both ends
 *	bench_memif packets          64-byte packets one way
 *
 * Two further numbers are the processors of receiver and sender; default: the first two.
 * Unprivileged, without huge pages. Prints one line of JSON.
 */
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/wire/icrc.h"

enum {
	HEADER = 58, /* Ethernet to BTH, with ICRC */
	SMALL = 64,
	PAYLOAD = 4096,
	BURST = 32,
	N_MBUFS = 4096,
	PLACE = 64 << 20,
	WARM_UP = 20000,
	ROUND_TRIPS = 200000,
	MAX_SAMPLES = ROUND_TRIPS,
};

static const double seconds = 1.0;

struct end {
	uint16_t port;
	struct rte_mempool *pool;
	uint8_t *memory; /* PLACE bytes */
	struct rte_mbuf_ext_shared_info shared;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what, int rc)
{
	fprintf(stderr, "bench_memif: %s: %s\n", what, strerror(abs(rc)));
	exit(1);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void start_eal(int cpu)
{
	char lcores[32];
	const char *args[] = { "bench_memif", "--lcores", lcores, "--no-shconf", "--no-telemetry",
		"--no-huge", "-m64", "--no-pci", "--iova-mode=va", "--log-level=error",
		"--file-prefix=bench-memif" };
	char *argv[sizeof(args) / sizeof(args[0]) + 1] = { NULL };

	/* EAL reorders the arguments, and changes none. */
	memcpy(argv, args, sizeof(args));
	snprintf(lcores, sizeof(lcores), "0@%d", cpu);
	if (rte_eal_init((int)(sizeof(argv) / sizeof(argv[0])) - 1, argv) < 0)
		die("EAL", rte_errno);
}

static void is_free(void *addr, void *arg)
{
}

static void open_port(struct end *end, bool server, const char *socket)
{
	struct rte_eth_conf conf = { 0 };
	struct rte_eth_link link = { 0 };
	char args[160];
	int rc;

	snprintf(args, sizeof(args),
		"role=%s,id=1,socket=%s,socket-abstract=yes,bsize=8192,rsize=8",
		server ? "server" : "client", socket);
	rc = rte_eal_hotplug_add("vdev", "net_memif_bench", args);
	if (rc || rte_eth_dev_get_port_by_name("net_memif_bench", &end->port))
		die("memif", rc);
	end->pool = rte_pktmbuf_pool_create(
		"bench", N_MBUFS, 256, 0, 8192 + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
	if (!end->pool)
		die("mbufs", rte_errno);
	if (rte_eth_dev_configure(end->port, 1, 1, &conf) ||
		rte_eth_rx_queue_setup(end->port, 0, 256, SOCKET_ID_ANY, NULL, end->pool) ||
		rte_eth_tx_queue_setup(end->port, 0, 256, SOCKET_ID_ANY, NULL) ||
		rte_eth_dev_start(end->port))
		die("starting the port", rte_errno);
	while (link.link_status != RTE_ETH_LINK_UP) {
		rte_eth_link_get_nowait(end->port, &link);
		usleep(1000);
	}
	end->memory = mmap(NULL, PLACE, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (end->memory == MAP_FAILED)
		die("memory", errno);
	end->shared.free_cb = is_free;
	rte_mbuf_ext_refcnt_set(&end->shared, 1);
}

/* ---- latency */

static struct rte_mbuf *small_packet(const struct end *end)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(end->pool);

	if (!m)
		die("an mbuf", ENOMEM);
	memset(rte_pktmbuf_append(m, SMALL), 0, SMALL);
	return m;
}

static void send_one(const struct end *end, struct rte_mbuf *m)
{
	while (rte_eth_tx_burst(end->port, 0, &m, 1) == 0)
		;
}

static struct rte_mbuf *receive_one(const struct end *end)
{
	struct rte_mbuf *m;

	while (rte_eth_rx_burst(end->port, 0, &m, 1) == 0)
		;
	return m;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void latency(struct end *end, bool asks)
{
	static double samples[MAX_SAMPLES];

	for (int i = -WARM_UP; i < ROUND_TRIPS; i++) {
		double start = now();

		if (!asks) {
			send_one(end, receive_one(end));
			continue;
		}
		send_one(end, small_packet(end));
		rte_pktmbuf_free(receive_one(end));
		if (i >= 0)
			samples[i] = (now() - start) * 5e8;
	}
	if (!asks)
		return;
	qsort(samples, ROUND_TRIPS, sizeof(samples[0]), by_value);
	printf("{\"test\": \"latency\", \"p50_ns\": %.0f, \"p99_ns\": %.0f}\n",
		samples[ROUND_TRIPS / 2], samples[ROUND_TRIPS / 100 * 99]);
}

/* ---- one way */

static uint32_t crc_of(const uint8_t *bytes)
{
	return icrc_update(0, bytes, PAYLOAD);
}

static struct rte_mbuf *large_packet(struct end *end, size_t at, bool crc)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(end->pool), *payload = rte_pktmbuf_alloc(end->pool);
	uint8_t *header;

	if (!m || !payload)
		die("an mbuf", ENOMEM);
	header = (uint8_t *)rte_pktmbuf_append(m, HEADER);
	memset(header, 0, HEADER);
	if (crc) {
		uint32_t sum = crc_of(end->memory + at);

		memcpy(header + HEADER - 4, &sum, 4);
	}
	rte_mbuf_ext_refcnt_update(&end->shared, 1);
	rte_pktmbuf_attach_extbuf(payload, end->memory + at, 0, PAYLOAD, &end->shared);
	payload->data_len = PAYLOAD;
	payload->pkt_len = PAYLOAD;
	rte_pktmbuf_chain(m, payload);
	return m;
}

static void send_all(struct end *end, bool is_small, bool crc)
{
	struct rte_mbuf *burst[BURST];
	size_t at = 0;
	double end_at = now() + seconds + 0.2;

	for (;;) {
		uint16_t n = 0;

		for (int i = 0; i < BURST; i++) {
			burst[i] = is_small ? small_packet(end) : large_packet(end, at, crc);
			at = (at + PAYLOAD) % PLACE;
		}
		while (n < BURST) {
			n += rte_eth_tx_burst(end->port, 0, burst + n, BURST - n);
			if (now() > end_at)
				return;
		}
	}
}

static void add(float *to, const float *from)
{
	for (int i = 0; i < PAYLOAD / 4; i++)
		to[i] += from[i];
}

/* Returns true if the packet is as it was sent. */
static bool take(struct end *end, const struct rte_mbuf *m, const char *test, size_t at)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(m, const uint8_t *);
	uint32_t sum;

	if (strcmp(test, "packets") == 0)
		return true;
	if (strcmp(test, "sum") == 0)
		add((float *)(void *)(end->memory + at), (const void *)(bytes + HEADER));
	else
		memcpy(end->memory + at, bytes + HEADER, PAYLOAD);
	if (strcmp(test, "crc") != 0)
		return true;
	memcpy(&sum, bytes + HEADER - 4, 4);
	return sum == crc_of(bytes + HEADER);
}

static void receive_all(struct end *end, const char *test)
{
	struct rte_mbuf *burst[BURST];
	uint64_t packets = 0;
	double start = 0;
	size_t at = 0;

	for (;;) {
		uint16_t n = rte_eth_rx_burst(end->port, 0, burst, BURST);

		for (uint16_t i = 0; i < n; i++) {
			if (!take(end, burst[i], test, at))
				die("a packet came with another CRC", EIO);
			at = (at + PAYLOAD) % PLACE;
		}
		rte_pktmbuf_free_bulk(burst, n);
		/* The first fifth of a second is a warm-up. */
		if (n && !start)
			start = now() + 0.1;
		if (!start || now() < start)
			continue;
		packets += n;
		if (now() < start + seconds)
			continue;
		printf("{\"test\": \"%s\", \"packets_per_s\": %.0f, \"gbytes_per_s\": %.3f}\n",
			test, (double)packets / (now() - start),
			(double)packets * PAYLOAD / (now() - start) * 1e-9 *
				(strcmp(test, "packets") != 0));
		return;
	}
}

static void run(const char *test, bool receives, int cpu, const char *socket)
{
	struct end end = { 0 };

	pin(cpu);
	start_eal(cpu);
	open_port(&end, receives, socket);
	if (strcmp(test, "latency") == 0)
		latency(&end, receives);
	else if (receives)
		receive_all(&end, test);
	else
		send_all(&end, strcmp(test, "packets") == 0, strcmp(test, "crc") == 0);
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	static const char *const tests[] = { "latency", "copy", "sum", "crc", "packets" };
	int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN), status = 0;
	int receiver_cpu = argc == 4 ? atoi(argv[2]) : 0;
	int sender_cpu = argc == 4 ? atoi(argv[3]) : 1 % cpus;
	char socket[64];
	bool known = false;
	pid_t sender;

	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		known |= (argc == 2 || argc == 4) && strcmp(argv[1], tests[i]) == 0;
	if (!known) {
		fprintf(stderr, "usage: bench_memif latency|copy|sum|crc|packets [CPU CPU]\n");
		return 2;
	}
	snprintf(socket, sizeof(socket), "bench-memif-%ld", (long)getpid());
	sender = fork();
	if (sender == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		usleep(300000); /* the server must listen first */
		run(argv[1], false, sender_cpu, socket);
	}
	if (sender < 0)
		die("fork", errno);
	pid_t receiver = fork();
	if (receiver == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run(argv[1], true, receiver_cpu, socket);
	}
	if (receiver < 0 || waitpid(receiver, &status, 0) < 0)
		die("the receiver", errno);
	kill(sender, SIGKILL);
	waitpid(sender, NULL, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
