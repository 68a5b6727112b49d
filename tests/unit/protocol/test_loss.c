/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of loss for a stream of WRITEs, in virtual time. Two queue pairs are joined by a link
 * that takes its time for each packet, keeps the order, and drops at random, alone or in batches of
 * packets that leave together. Processors take no time. Deterministic: a random sequence of its
 * own.
 */
#include "lib/base/random.h"
#include "lib/protocol/qp.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/qp_steps.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	MTU = 4096,
	MESSAGE = 1 << 20,
	QUEUE = 64,
	CQ = 256,
	WINDOW = 256,
	PACKET_NS = 1400, /* some 24 Gb/s */
	DELAY_NS = 20000, /* each way */
	TRAIN_MAX = 15,
	FRAMES = 1024, /* under way, each way */
	TIMEOUT = 14,  /* 67 ms */
};

struct frame {
	uint64_t at_ns;
	struct wire_headers h;
	uint32_t length;
};

struct pipe {
	struct frame frames[FRAMES];
	uint32_t head, tail; /* run freely */
	uint64_t dropped;
};

struct end {
	struct qp qp;
	struct cq cq;
	struct frl_wc wc[CQ];
	struct event_queues queues;
	struct region_table table;
	struct region *slots[1];
	struct region memory;
	struct frl_stats stats;
	_Alignas(64) uint8_t storage[64 * 1024]; /* of the queue pair */
};

struct world {
	struct end end[2]; /* the first one sends */
	struct pipe there, back;
	struct random_state random;
	uint32_t loss_ppm, train;
	uint64_t now_ns, free_ns; /* from when on the link takes a packet */
	uint32_t posted, done, messages;
	uint64_t longest_ns; /* between two completions */
};

static struct world world;
static uint8_t memory[MESSAGE];
static int pd;
static const struct frl_ip ips[2] = { { { [15] = 1 } }, { { [15] = 2 } } };

static void bring_up(struct end *end, unsigned who)
{
	const struct frl_qp_attr attr = { .access_flags = FRL_ACCESS_REMOTE_WRITE,
		.port_num = 1,
		.ah.dgid = ips[!who],
		.path_mtu = MTU,
		.dest_qpn = 0x100 + !who,
		.timeout = TIMEOUT,
		.retry_cnt = 7,
		.rnr_retry = 7 };
	const char *why = "";

	ck_assert_msg(qp_steps_up(&end->qp, attr, &why) == 0, "%s", why);
}

static void make_end(struct world *w, unsigned who)
{
	struct end *end = &w->end[who];
	struct qp_config config = {
		.type = FRL_QPT_RC,
		.qpn = 0x100 + who,
		.pkey = PKEY_DEFAULT,
		.pd = &pd,
		.send_cq = &end->cq,
		.recv_cq = &end->cq,
		.regions = &end->table,
		.stats = &end->stats,
		.queues = &end->queues,
		.max_send_wr = QUEUE,
		.max_send_sge = 1,
		.window = WINDOW,
		.storage = end->storage,
	};

	event_queues_init(&end->queues);
	cq_init(&end->cq, end->wc, CQ, &end->queues);
	region_table_extend(&end->table, end->slots, 1);
	end->memory = (struct region){
		.addr = memory,
		.iova = (uintptr_t)memory,
		.length = sizeof(memory),
		.access = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE,
		.pd = &pd,
	};
	region_add(&end->table, &end->memory, 1);
	ck_assert_uint_le(qp_storage_size(&config), sizeof(end->storage));
	qp_init(&end->qp, &config);
	bring_up(end, who);
}

static void post(struct world *w)
{
	struct frl_sge sge = { memory, MESSAGE, w->end[0].memory.key };
	const struct frl_send_wr wr = { .wr_id = w->posted,
		.opcode = FRL_WR_RDMA_WRITE,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
		.remote_addr = (uintptr_t)memory,
		.rkey = w->end[1].memory.key };
	const struct wr_objects none = { 0 };
	const char *why;

	while (w->posted < w->messages && qp_post_send(&w->end[0].qp, &wr, &none, &why) == 0)
		w->posted++;
}

static bool is_lost(struct world *w)
{
	return random_below(&w->random, 1000000) < w->loss_ppm;
}

static void put(struct pipe *pipe, const struct packet_out *out, uint64_t at_ns, bool lost)
{
	ck_assert_uint_lt(pipe->tail - pipe->head, FRAMES);
	pipe->dropped += lost;
	if (!lost)
		pipe->frames[pipe->tail++ % FRAMES] = (struct frame){ at_ns, out->h,
			out->payload_len };
}

/* One after the other; of a batch all or none are lost. */
static void send(struct world *w)
{
	struct packet_out out[TRAIN_MAX];
	uint32_t n = qp_output(&w->end[0].qp, out, w->train, w->now_ns);
	bool lost = is_lost(w);

	for (uint32_t i = 0; i < n; i++) {
		w->free_ns = (w->free_ns > w->now_ns ? w->free_ns : w->now_ns) + PACKET_NS;
		put(&w->there, &out[i], w->free_ns + DELAY_NS, lost);
	}
}

static void answer(struct world *w)
{
	struct packet_out out[TRAIN_MAX];
	uint32_t n = qp_output(&w->end[1].qp, out, TRAIN_MAX, w->now_ns);

	for (uint32_t i = 0; i < n; i++)
		put(&w->back, &out[i], w->now_ns + DELAY_NS, is_lost(w));
}

/* All that has arrived at one end. */
static bool arrive(struct world *w, struct pipe *pipe, unsigned who)
{
	bool any = false;

	while (pipe->head != pipe->tail) {
		const struct frame *frame = &pipe->frames[pipe->head % FRAMES];
		struct wire_packet packet = { .h = frame->h,
			.op = &opcode_table[frame->h.bth.opcode],
			.src_ip = ips[!who],
			.payload = memory,
			.payload_len = frame->length };
		struct placements placements;

		if (frame->at_ns > w->now_ns)
			break;
		pipe->head++;
		qp_input(&w->end[who].qp, &packet, &placements, w->now_ns);
		if (placements.completes)
			qp_placed(&w->end[who].qp, &packet, &placements, w->now_ns);
		any = true;
	}
	return any;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t first_arrival(const struct pipe *pipe)
{
	return pipe->head == pipe->tail ? UINT64_MAX : pipe->frames[pipe->head % FRAMES].at_ns;
}

/* To the next moment at which something happens. */
static void advance(struct world *w)
{
	uint64_t next = earlier(first_arrival(&w->there), first_arrival(&w->back));

	next = earlier(next, qp_next_deadline(&w->end[0].qp));
	if (qp_wants_output(&w->end[0].qp))
		next = earlier(next, w->free_ns);
	ck_assert_msg(next != UINT64_MAX, "nothing will ever happen again");
	if (next > w->now_ns)
		w->now_ns = next;
}

static void take_completions(struct world *w, uint64_t *last_ns)
{
	struct frl_wc wc;

	while (cq_pop(&w->end[0].cq, &wc)) {
		ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
		w->done++;
		if (w->now_ns - *last_ns > w->longest_ns)
			w->longest_ns = w->now_ns - *last_ns;
		*last_ns = w->now_ns;
	}
}

/* How long so many messages take. */
static uint64_t stream(struct world *w, uint32_t messages, uint32_t loss_ppm, uint32_t train)
{
	uint64_t start_ns = 1000000000, last_ns = start_ns;

	*w = (struct world){
		.now_ns = start_ns, .loss_ppm = loss_ppm, .train = train, .messages = messages
	};
	random_seed(&w->random, 7);
	for (unsigned who = 0; who < 2; who++)
		make_end(w, who);
	while (w->done < messages) {
		post(w);
		if (w->free_ns <= w->now_ns && qp_wants_output(&w->end[0].qp))
			send(w);
		advance(w);
		if (arrive(w, &w->there, 1))
			answer(w);
		arrive(w, &w->back, 0);
		if (qp_next_deadline(&w->end[0].qp) <= w->now_ns)
			qp_on_deadline(&w->end[0].qp, w->now_ns);
		take_completions(w, &last_ns);
	}
	return w->now_ns - start_ns;
}

/* Loss per million, packets that are lost together, and the least share of what the link carries
 * that must be left. */
static const struct row {
	uint32_t loss_ppm, train, percent;
} rows[] = {
	{ 0, 1, 97 },
	{ 0, TRAIN_MAX, 97 },
	{ 1000, 1, 90 },
	{ 1000, TRAIN_MAX, 95 },
	{ 10000, 1, 50 },
	{ 10000, TRAIN_MAX, 85 },
	{ 50000, TRAIN_MAX, 40 },
};

START_LOOP_TEST(goodput, ROWS(rows))
{
	const struct row *row = &rows[_i];
	uint32_t messages = 200;
	uint64_t least_ns = (uint64_t)messages * (MESSAGE / MTU) * PACKET_NS;
	uint64_t took_ns = stream(&world, messages, row->loss_ppm, row->train);

	/* docs/reference/performance.md has these figures. */
	printf("%5u per million, %2u at once: %3u %% of the link, %u timeouts, longest silence "
	       "%.1f ms\n",
		row->loss_ppm, row->train, (unsigned)(100 * least_ns / took_ns),
		(unsigned)world.end[0].stats.timeouts, (double)world.longest_ns / 1e6);
	ck_assert_uint_ge(100 * least_ns / took_ns, row->percent);
}
END_TEST

TEST_FILE(loss)
