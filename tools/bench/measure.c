/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures a block of a row: checks a result, warms up, times iterations back to back, checks
 * again. Ranks exchange their numbers by small allgathers, because the communicator uses the
 * bootstrap.
 */
#include "tools/bench/bench.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum {
	MIN_ITERS = 5,
	MAX_ITERS = 200000, /* limit for short operations */
	WARM_UP_FACTOR = 4,
	LATE_US = 1000, /* delay of one rank in the check of a barrier */
};

static const double seconds_of_iters = 0.2;
static const double seconds_of_warm_up = 0.01; /* the last repetition takes at least this long */

/* The findings of a rank. Sent between processes unchanged. */
struct verdict {
	uint64_t wrong;
	uint64_t first_digest, last_digest;
	double seconds;
};

int bench_share(struct bench *b, const void *mine, size_t size, void *all)
{
	return frl_allgather(b->session->comm, mine, all, size, FRL_UINT8);
}

/* Returns the address for Ferrule that corresponds to a host address in a slot. */
static uint8_t *data_of(const struct bench_slot *slot, uint8_t *at)
{
	return at && slot->gpu.data ? slot->gpu.data + (at - slot->memory) : at;
}

void bench_fill_collective(
	const struct bench *b, const struct bench_slot *slot, struct frl_collective *ret_collective)
{
	const struct bench_layout *l = &b->layout;

	*ret_collective = (struct frl_collective){
		.coll = (enum frl_coll)b->c.op,
		.send = data_of(slot, slot->send),
		.recv = data_of(slot, slot->recv),
		.count = b->c.count,
		.dtype = b->c.dtype,
		.op = b->c.redop == FRL_OPS ? FRL_SUM : b->c.redop,
		.root = b->c.root < 0 ? 0 : b->c.root,
		.scalar = b->c.redop == FRL_PREMUL_SUM ? b->scalar : NULL,
		.wire = b->c.wire,
		.send_counts = l->send_counts,
		.send_displs = l->send_displs,
		.recv_counts = l->recv_counts,
		.recv_displs = l->recv_displs,
	};
}

/* Starts a SEND to the next rank and a RECV from the previous one. */
static int start_sendrecv(
	struct bench *b, const struct frl_collective *collective, struct frl_request **ret_request)
{
	int rank = b->session->rank, n = b->options->job.ranks;
	struct frl_collective both[2] = { *collective, *collective };

	both[0].coll = FRL_SEND;
	both[0].recv = NULL;
	both[0].root = (rank + 1) % n;
	both[1].coll = FRL_RECV;
	both[1].send = NULL;
	both[1].root = (rank + n - 1) % n;
	return frl_start_group(b->session->comm, both, 2, ret_request);
}

static int start(struct bench *b, const struct bench_slot *slot, struct frl_request **ret_request)
{
	struct frl_collective collective;

	bench_fill_collective(b, slot, &collective);
	return b->c.op == BENCH_SENDRECV ? start_sendrecv(b, &collective, ret_request)
					 : frl_start(b->session->comm, &collective, ret_request);
}

/* Runs `iters` operations, with as many requests in flight as there are slots. */
static int repeat(struct bench *b, uint64_t iters, double *ret_seconds)
{
	struct frl_request *requests[BENCH_IN_FLIGHT];
	uint64_t begin = now_ns(), k = b->options->in_flight, started = 0, done = 0;
	int rc = 0;

	while (done < iters && !rc) {
		if (started < iters && started - done < k) {
			rc = start(b, &b->slots[started % k], &requests[started % k]);
			started++;
		} else {
			rc = frl_request_wait(requests[done % k]);
			done++;
		}
	}
	*ret_seconds = (double)(now_ns() - begin) * 1e-9;
	return rc;
}

static void sleep_us(long us)
{
	const struct timespec time = { .tv_nsec = us * 1000 };

	nanosleep(&time, NULL);
}

/*
 * Checks that no rank leaves the barrier before all have entered. Compares times only on one host,
 * because hosts have different clocks.
 */
static int check_barrier(struct bench *b, struct verdict *verdict)
{
	int n = b->options->job.ranks, rc = 0;
	uint64_t mine[2], all[MAX_RANKS][2], last;

	for (int late = 0; late < n && !rc; late++) {
		double seconds;

		if (late == b->session->rank)
			sleep_us(LATE_US);
		mine[0] = now_ns();
		rc = repeat(b, 1, &seconds);
		mine[1] = now_ns();
		if (!rc)
			rc = bench_share(b, mine, sizeof(mine), all);
		last = 0;
		for (int r = 0; r < n && !rc; r++)
			last = all[r][0] > last ? all[r][0] : last;
		if (!rc && b->options->job.rank < 0)
			verdict->wrong += mine[1] < last;
	}
	return rc;
}

/* Runs and checks one operation in each slot. */
static int check_once(struct bench *b, struct verdict *verdict)
{
	double seconds;
	int rc = 0;

	verdict->last_digest = 0;
	if (!b->options->check)
		return 0;
	if (b->c.op == FRL_BARRIER)
		return check_barrier(b, verdict);
	for (uint64_t i = 0; i < b->options->in_flight && !rc; i++)
		rc = bench_check_fill(b, &b->slots[i]);
	if (!rc)
		rc = repeat(b, b->options->in_flight, &seconds);
	for (uint64_t i = 0; i < b->options->in_flight && !rc; i++)
		rc = bench_check_count_wrong(
			b, &b->slots[i], &verdict->wrong, &verdict->last_digest);
	return rc;
}

/* Repeats on all ranks. Sets *ret_seconds to the time of the slowest rank. */
static int repeat_together(struct bench *b, uint64_t iters, double *ret_seconds)
{
	double seconds = 0, all[MAX_RANKS];
	int rc = repeat(b, iters, &seconds);

	*ret_seconds = 0;
	if (!rc)
		rc = bench_share(b, &seconds, sizeof(seconds), all);
	for (int rank = 0; rank < b->options->job.ranks && !rc; rank++)
		*ret_seconds = all[rank] > *ret_seconds ? all[rank] : *ret_seconds;
	return rc;
}

/*
 * Chooses the number of iterations, equal on all ranks. The first iterations are not
 * representative: ranks may share a processor, and the memory is new. The number grows until they
 * take long enough, and the last measurement counts.
 */
static int choose_iters(struct bench *b, uint64_t *ret_iters)
{
	const struct bench_options *o = b->options;
	uint64_t n = o->auto_iters && !o->warmup ? 1 : o->warmup;
	double seconds = 0, iters;
	int rc = frl_barrier(b->session->comm); /* or the first iteration waits for late ranks */

	*ret_iters = o->iters;
	if (!rc && !o->auto_iters)
		return repeat(b, n, &seconds);
	if (!rc)
		rc = repeat_together(b, n, &seconds);
	while (!rc && seconds < seconds_of_warm_up && n < MAX_ITERS) {
		n *= WARM_UP_FACTOR;
		rc = repeat_together(b, n, &seconds);
	}
	iters = seconds_of_iters * (double)n / (seconds + 1e-9);
	*ret_iters = rc             ? 0
		: iters > MAX_ITERS ? MAX_ITERS
		: iters > MIN_ITERS ? (uint64_t)iters
				    : MIN_ITERS;
	return rc;
}

static int take_times(struct bench *b, struct verdict *verdict, uint64_t *ret_iters)
{
	const struct bench_options *o = b->options;
	int rc;

	*ret_iters = 0;
	if (!o->iters && !o->auto_iters)
		return 0;
	rc = choose_iters(b, ret_iters);
	if (!rc)
		rc = frl_barrier(b->session->comm);
	if (!rc)
		rc = repeat(b, *ret_iters, &verdict->seconds);
	if (!rc)
		rc = check_once(b, verdict);
	return rc;
}

static void compare_digests(struct bench *b, const struct verdict all[])
{
	bool differs = false;

	for (int r = 0; r < b->options->job.ranks && b->options->check; r++) {
		if (all[r].first_digest != all[r].last_digest)
			differs = true;
		if (bench_op_is_alike(b->c.op) && all[r].last_digest != all[0].last_digest)
			differs = true;
	}
	if (!differs)
		return;
	b->different++;
	if (b->session->rank == 0 && b->different <= 10) {
		char text[160];

		bench_describe(&b->c, text, sizeof(text));
		say("%s, %zu elements: the ranks have different results, or not the same each time",
			text, b->c.count);
	}
}

int bench_measure(struct bench *b, struct bench_block *ret_block)
{
	struct verdict mine = { 0 }, all[MAX_RANKS];
	struct bench_block block = { .measured = true };
	double n = b->options->job.ranks, seconds = 0, bytes;
	int rc = check_once(b, &mine);

	mine.first_digest = mine.last_digest;
	if (!rc)
		rc = take_times(b, &mine, &block.iters);
	if (!rc)
		rc = bench_share(b, &mine, sizeof(mine), all);
	if (rc)
		return rc;
	for (int r = 0; r < b->options->job.ranks; r++) {
		seconds += all[r].seconds;
		block.wrong += all[r].wrong;
	}
	compare_digests(b, all);
	b->measured++;
	b->checked += b->options->check;
	b->wrong += block.wrong;
	if (block.iters) {
		bytes = (double)bench_size(&b->c, b->options->job.ranks);
		block.us = seconds / n / (double)block.iters * 1e6;
		block.algbw = bytes / block.us / 1e3;
		block.busbw = block.algbw * bench_bus_factor(&b->c, b->options->job.ranks);
	}
	*ret_block = block;
	return 0;
}
