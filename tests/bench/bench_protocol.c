/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the cost of a packet in the protocol, without a port: two queue pairs in one process
 * exchange batches of packets, and each stage is measured separately. Prints nanoseconds per packet
 * (the median of many batches) and instructions. A child runs one batch step by step to count
 * these, because virtual machines often have no counters. --counts: only WRITEs of 4 KiB, and times
 * of few batches. --icrc KERNEL: computes the ICRC with this one of lib/wire/icrc_kernels.h.
 *
 *	requester	posts and qp_output(), acknowledgements or responses through qp_input() and
 *			qp_placed()
 *	responder	qp_input() of the requests, qp_output() of the responses
 *	encode		headers and ICRC of the packets with payload
 *	decode		their headers, ICRC checked
 *	place		payload copied to its destination
 *	icrc		the ICRC of the payload alone; encode and decode include it
 */
#include <elf.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/protocol/qp.h"
#include "lib/wire/icrc.h"
#include "lib/wire/icrc_kernels.h"
#include "tests/fixtures/qp_steps.h"

enum {
	BATCH = 64, /* packets */
	BATCHES = 20000,
	BATCHES_QUICK = 20,
	BATCHES_COUNTS = 1000,
	MTU = 4096,
	MEMORY = BATCH * MTU,
	FRAME = WIRE_MAX_HEADERS + MTU + 8,
	CQ_ENTRIES = 4 * BATCH,
};

enum stage { REQUESTER, RESPONDER, ENCODE, DECODE, PLACE, ICRC, STAGES };

static const char *const stage_names[STAGES] = { "requester", "responder", "encode", "decode",
	"place", "icrc" };

struct side {
	struct qp qp;
	struct cq cq;
	struct frl_wc wc[CQ_ENTRIES];
	struct region region;
	struct region_table table;
	struct region *slots[4];
	struct event_queues queues;
	struct frl_stats stats;
	struct wire_path path;
	struct frl_ip ip;
	uint8_t *memory;
	struct packet_out out[BATCH];
};

struct frame {
	uint32_t len;
	uint8_t bytes[FRAME];
};

static struct side sides[2];
static struct frame frames[BATCH];
static struct wire_packet packets[BATCH];
static struct placements placements[BATCH];
static volatile uint32_t checksum;   /* its value is not used */
static uint64_t (*costs)[STAGES];    /* nanoseconds of each batch */
static volatile enum stage *current; /* stage of this process; shared with the one that counts */

static void die(const char *why)
{
	fprintf(stderr, "bench_protocol: %s\n", why);
	exit(1);
}

static uint64_t begin(enum stage stage)
{
	*current = stage;
	return clock_now_ns();
}

static void end(uint64_t *ns, uint64_t start)
{
	*ns += clock_now_ns() - start;
	*current = STAGES;
}

static void bring_up(struct side *side, const struct frl_ip *peer_ip)
{
	const struct frl_qp_attr attr = {
		.port_num = 1,
		.access_flags = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ,
		.ah = { .dgid = *peer_ip, .hop_limit = 64 },
		.path_mtu = MTU,
		.dest_qpn = 0x11,
		.max_rd_atomic = 16,
		.max_dest_rd_atomic = 16,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
	const char *why = "";

	if (qp_steps_up(&side->qp, attr, &why))
		die(why);
}

static void init_side(struct side *side, const struct frl_ip *ip, const struct frl_ip *peer_ip)
{
	struct wire_path_config path = {
		.src_ip = *ip, .dst_ip = *peer_ip, .hop_limit = 64, .udp_src_port = 0xc000
	};
	struct qp_config config = {
		.type = FRL_QPT_RC,
		.qpn = 0x11,
		.pkey = PKEY_DEFAULT,
		.pd = &sides,
		.send_cq = &side->cq,
		.recv_cq = &side->cq,
		.regions = &side->table,
		.stats = &side->stats,
		.queues = &side->queues,
		.max_send_wr = BATCH,
		.max_recv_wr = BATCH,
		.max_send_sge = 4,
		.max_recv_sge = 4,
		.max_inline = 64,
		.window = 4 * BATCH,
	};

	side->memory = aligned_alloc(4096, MEMORY);
	config.storage = calloc(1, qp_storage_size(&config));
	if (!side->memory || !config.storage)
		die("no memory");
	memset(side->memory, 0x5a, MEMORY);
	event_queues_init(&side->queues);
	cq_init(&side->cq, side->wc, CQ_ENTRIES, &side->queues);
	region_table_extend(&side->table, side->slots, 4);
	side->region = (struct region){
		.addr = side->memory,
		.length = MEMORY,
		.iova = (uintptr_t)side->memory,
		.access = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ,
		.pd = &sides,
	};
	region_add(&side->table, &side->region, 0x1234);
	qp_init(&side->qp, &config);
	bring_up(side, peer_ip);
	wire_path_init(&side->path, &path);
}

/* Encodes as the engine does. The copy of the payload is not measured. */
static void encode(const struct side *side, uint32_t n, enum stage stage, uint64_t *ns)
{
	uint8_t trailer_len[BATCH];
	uint32_t header_len[BATCH];
	uint64_t start = begin(stage);

	for (uint32_t i = 0; i < n; i++) {
		const struct packet_out *out = &side->out[i];
		struct frame *frame = &frames[i];
		uint32_t crc;

		header_len[i] = (uint32_t)wire_encode(frame->bytes, &side->path, &out->h,
			out->payload_len, true, &trailer_len[i]);
		crc = icrc_whole(frame->bytes + side->path.l3_offset,
			header_len[i] - side->path.l3_offset, out->pieces[0].addr,
			out->n_pieces ? out->pieces[0].length : 0);
		for (uint32_t k = 1; k < out->n_pieces; k++)
			crc = icrc_update(crc, out->pieces[k].addr, out->pieces[k].length);
		frame->len = header_len[i] + out->payload_len + trailer_len[i];
		icrc_store(frame->bytes + frame->len - ICRC_LEN, crc);
	}
	end(ns, start);
	for (uint32_t i = 0; i < n; i++) {
		const struct packet_out *out = &side->out[i];
		uint8_t *at = frames[i].bytes + header_len[i];

		for (uint32_t k = 0; k < out->n_pieces; k++) {
			memcpy(at, out->pieces[k].addr, out->pieces[k].length);
			at += out->pieces[k].length;
		}
	}
}

static void decode(uint32_t n, enum stage stage, uint64_t *ns)
{
	uint64_t start = begin(stage);

	for (uint32_t i = 0; i < n; i++)
		if (wire_decode(&packets[i], frames[i].bytes, frames[i].len) != WIRE_OK ||
			wire_trim(&packets[i], true) != WIRE_OK || !wire_icrc_ok(&packets[i]))
			die("a packet does not decode");
	end(ns, start);
}

/* Payload is placed afterwards, so that the stage does not include it. */
static void take(struct side *side, uint32_t n, enum stage stage, uint64_t *ns)
{
	uint64_t start = begin(stage);

	for (uint32_t i = 0; i < n; i++) {
		qp_input(&side->qp, &packets[i], &placements[i], 1);
		if (placements[i].completes)
			qp_placed(&side->qp, &packets[i], &placements[i], 1);
	}
	end(ns, start);
}

static void place(uint32_t n, enum stage stage, uint64_t *ns)
{
	uint64_t start = begin(stage);

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < placements[i].count; k++)
			memcpy(placements[i].list[k].dst, placements[i].list[k].payload,
				placements[i].list[k].length);
	end(ns, start);
}

static uint32_t give(struct side *side, enum stage stage, uint64_t *ns)
{
	uint64_t start = begin(stage);
	uint32_t n = qp_output(&side->qp, side->out, BATCH, 1);

	end(ns, start);
	return n;
}

static void sum(uint32_t n, enum stage stage, uint64_t *ns)
{
	uint64_t start = begin(stage);

	for (uint32_t i = 0; i < n; i++)
		checksum = icrc_update(0, packets[i].payload, packets[i].payload_len);
	end(ns, start);
}

static void post(const struct frl_send_wr *template, uint32_t size, uint32_t n, uint64_t *ns)
{
	struct side *a = &sides[0];
	const struct wr_objects none = { 0 };
	struct frl_send_wr wr = *template;
	struct frl_sge sge = { .length = size, .lkey = a->region.key };
	const char *why = "";
	uint64_t start = begin(REQUESTER);

	wr.sge = &sge;
	wr.n_sge = 1;
	for (uint32_t i = 0; i < n; i++) {
		sge.addr = a->memory + (size_t)i * size;
		wr.remote_addr = (uintptr_t)sides[1].memory + (size_t)i * size;
		wr.flags = i + 1 == n ? FRL_SEND_SIGNALED : 0;
		if (qp_post_send(&a->qp, &wr, &none, &why))
			die(why);
	}
	end(ns, start);
}

/* Moves one side's packets to the other; with `counts` they count for the wire stages. */
static uint32_t carry(unsigned from, uint64_t ns[STAGES], bool counts)
{
	enum stage giver = from == 0 ? REQUESTER : RESPONDER;
	enum stage taker = from == 0 ? RESPONDER : REQUESTER;
	uint64_t unused = 0;
	uint32_t n = give(&sides[from], giver, &ns[giver]);

	encode(&sides[from], n, counts ? ENCODE : STAGES, counts ? &ns[ENCODE] : &unused);
	decode(n, counts ? DECODE : STAGES, counts ? &ns[DECODE] : &unused);
	if (counts)
		sum(n, ICRC, &ns[ICRC]);
	take(&sides[!from], n, taker, &ns[taker]);
	place(n, counts ? PLACE : STAGES, counts ? &ns[PLACE] : &unused);
	return n;
}

static void run_batch(const struct frl_send_wr *wr, uint32_t size, uint64_t batch[STAGES])
{
	bool reads = wr->opcode == FRL_WR_RDMA_READ;
	uint32_t total = 0;
	struct frl_wc wc;

	memset(batch, 0, STAGES * sizeof(*batch));
	post(wr, size, BATCH / (size > MTU ? size / MTU : 1), &batch[REQUESTER]);
	while (sides[0].qp.requester.head != sides[0].qp.requester.tail) {
		uint32_t n = carry(0, batch, !reads);
		uint32_t m = carry(1, batch, reads);

		total += reads ? m : n;
		if (n + m == 0)
			die("nothing moves any more");
	}
	if (total != BATCH)
		die("not as many packets as expected");
	while (cq_pop(&sides[0].cq, &wc))
		if (wc.status != FRL_WC_SUCCESS)
			die("a request failed");
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static double median(enum stage stage, uint32_t n)
{
	uint64_t *values = malloc(n * sizeof(*values));
	double middle;

	if (!values)
		die("no memory");
	for (uint32_t i = 0; i < n; i++)
		values[i] = costs[i][stage];
	qsort(values, n, sizeof(*values), compare);
	middle = (double)values[n / 2] / BATCH;
	free(values);
	return middle;
}

/* Returns the child's position, which a repeated string instruction does not change. */
static uint64_t position(pid_t child)
{
	struct user_regs_struct regs = { 0 };
	struct iovec where = { &regs, sizeof(regs) };

	ptrace(PTRACE_GETREGSET, child, NT_PRSTATUS, &where);
#if defined(__x86_64__)
	return regs.rip;
#else
	return regs.pc;
#endif
}

/* Runs a batch in a child, one instruction at a time. Returns false if that is not allowed. */
static bool count_instructions(
	const struct frl_send_wr *wr, uint32_t size, uint64_t ret_counts[STAGES + 1])
{
	uint64_t unused[STAGES];
	pid_t child = fork();
	uint64_t at, before = 0;
	int status;

	if (child < 0)
		return false;
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0)
			raise(SIGSTOP);
		run_batch(wr, size, unused);
		_exit(0);
	}
	memset(ret_counts, 0, (STAGES + 1) * sizeof(*ret_counts));
	while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
		at = position(child);
		ret_counts[*current] += at != before;
		before = at;
		if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0)
			kill(child, SIGKILL);
	}
	return WIFEXITED(status) && ret_counts[REQUESTER] != 0;
}

static void run(const char *name, enum frl_wr_opcode opcode, uint32_t size, uint32_t n_batches)
{
	const struct frl_send_wr wr = { .opcode = opcode, .rkey = sides[1].region.key };
	uint64_t counts[STAGES + 1];
	bool counted;

	for (uint32_t i = 0; i < n_batches; i++)
		run_batch(&wr, size, costs[i]);
	counted = n_batches != BATCHES_QUICK && count_instructions(&wr, size, counts);
	for (int stage = 0; stage < STAGES; stage++) {
		printf("%-12s %-10s %9.1f", name, stage_names[stage],
			median((enum stage)stage, n_batches));
		if (counted)
			printf(" %13.0f\n", (double)counts[stage] / BATCH);
		else
			printf(" %13s\n", "-");
	}
	fflush(stdout);
}

/* Selects the kernel of this name. Returns false, after a message, if that is not possible. */
static bool use_icrc(const char *name)
{
	const struct icrc_kernel *const *kernel = icrc_all_kernels;

	while (*kernel && strcmp((*kernel)->name, name) != 0)
		kernel++;
	if (!*kernel || !(*kernel)->supported()) {
		fprintf(stderr, "bench_protocol: %s ICRC kernel '%s'; these are there:",
			*kernel ? "this processor does not support" : "there is no", name);
		for (kernel = icrc_all_kernels; *kernel; kernel++)
			fprintf(stderr, " %s", (*kernel)->supported() ? (*kernel)->name : "");
		fprintf(stderr, "\n");
		return false;
	}
	icrc_use(*kernel);
	return true;
}

int main(int argc, char **argv)
{
	const struct frl_ip a = { { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 } };
	const struct frl_ip b = { { [10] = 0xff, [11] = 0xff, 10, 0, 0, 2 } };
	bool quick = false, only_counts = false;
	uint32_t n;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--quick") == 0) {
			quick = true;
		} else if (strcmp(argv[i], "--counts") == 0) {
			only_counts = true;
		} else if (strcmp(argv[i], "--icrc") == 0 && i + 1 < argc) {
			if (!use_icrc(argv[++i]))
				return 2;
		} else {
			fprintf(stderr,
				"usage: bench_protocol [--quick|--counts] [--icrc KERNEL]\n");
			return 2;
		}
	}
	n = quick ? BATCHES_QUICK : only_counts ? BATCHES_COUNTS : BATCHES;
	costs = malloc(n * sizeof(*costs));
	current = mmap(
		NULL, sizeof(*current), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!costs || current == MAP_FAILED)
		die("no memory");
	*current = STAGES;
	init_side(&sides[0], &a, &b);
	init_side(&sides[1], &b, &a);
	printf("%-12s %-10s %9s %13s\n", "packets", "stage", "ns", "instructions");
	fflush(stdout);
	run("WRITE 4 KiB", FRL_WR_RDMA_WRITE, MTU, n);
	if (!only_counts) {
		run("WRITE 16 KiB", FRL_WR_RDMA_WRITE, 4 * MTU, n);
		run("WRITE 64 B", FRL_WR_RDMA_WRITE, 64, n);
		/* As many READs as may be outstanding, of several packets each. */
		run("READ 16 KiB", FRL_WR_RDMA_READ, 4 * MTU, n);
	}
	free(costs);
	return 0;
}
