/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several rails: long messages are striped over them, and when connections break in the middle of
 * an operation the others finish it, with every element reduced exactly once.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "collectives/communicator/rail_health.h"
#include "collectives/net/channel.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum { LONG = JOB_SHARE == 8 ? 250000 : 400000, WRAPPING = 1000000, ROUNDS = 6, FLAPS = 16 };

/* As a port does whose queue pair is gone: everything that was posted comes back. */
static bool break_channel(struct frl_comm *comm, int peer, unsigned number)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	struct peer *to = comm->peers[peer];
	struct channel *channel = to ? to->channels[number] : NULL;

	if (!channel || channel->state != CHANNEL_UP)
		return false;
	frl_qp_modify(channel->bulk, &attr, FRL_QP_STATE);
	frl_qp_modify(channel->eager, &attr, FRL_QP_STATE);
	return true;
}

struct breaks {
	size_t count;
	int sums;        /* before, of those that are small */
	int after;       /* so many tests of the request */
	int by;          /* rank, or -1: all of them, each another connection */
	unsigned number; /* of the channel */
};

/* Tests the request to its end; breaks the channel as soon as that is possible. In virtual time
 * that is before the end. */
static int wait_and_break(
	struct rank *rank, struct frl_request *request, const struct breaks *breaks)
{
	bool breaks_one = breaks && (breaks->by < 0 || breaks->by == rank->number), done = false;
	struct frl_backoff backoff;
	int rc = 0;

	frl_backoff_reset(&backoff);
	for (int i = 0; !done && !rc; i++) {
		rc = frl_request_test(request, &done);
		if (breaks_one && !rc && !done && i >= breaks->after)
			breaks_one = !break_channel(
				rank->comm, (rank->number + 1) % rank->ranks, breaks->number);
		frl_backoff_idle(&backoff);
	}
	expect(rank, !breaks_one || !rank->job->is_simulated);
	return rc;
}

/* One allreduce, in the middle of which a channel to the next rank breaks. In place, so that an
 * element that is reduced twice is found. */
static bool sum_up(struct rank *rank, const struct breaks *breaks, size_t count)
{
	int32_t *sums = malloc(count * sizeof(*sums));
	struct frl_request *request;

	for (size_t i = 0; i < count; i++)
		sums[i] = job_input(rank->number, i);
	expect(rank,
		frl_allreduce_start(rank->comm, sums, sums, count, FRL_INT32, FRL_SUM, &request) ==
			0);
	expect(rank, wait_and_break(rank, request, breaks) == 0);
	for (size_t i = 0; i < count && !rank->failure[0]; i++) {
		if (sums[i] != job_sum(rank->ranks, i))
			complain(
				rank, "%zu: %d instead of %d", i, sums[i], job_sum(rank->ranks, i));
	}
	free(sums);
	return !rank->failure[0];
}

static void run_striped(struct rank *rank)
{
	static const size_t counts[] = { 1, 1000, 5000, 70001, 300000, LONG };

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		sum_up(rank, NULL, counts[i]);
}

JOB_TEST(striped, 5, job_simulate, .ranks = 2 + _i % 3, .main = run_striped, .rails = 2 + _i / 3);

static void run_broken(struct rank *rank)
{
	const struct breaks *breaks = rank->job->arg;
	bool works = sum_up(rank, NULL, 100) && sum_up(rank, breaks, breaks->count);

	for (int i = 0; i < ROUNDS && works; i++)
		works = sum_up(rank, NULL, i % 2 ? 300 : 100000);
}

/* At different moments, noticed by one end, by the other, or by both. */
START_LOOP_TEST(broken_while_long, 27)
{
	struct breaks breaks = { .count = LONG,
		.after = _i * 37 % 300,
		.by = _i % 2 ? _i % 3 - 1 : _i / 2 % 2,
		.number = _i / 3 % 2 };
	/* Then also where no device reduces, or where one rank's does not. */
	struct job job = { .ranks = 2 + _i % 2,
		.main = run_broken,
		.rails = 2,
		.arg = &breaks,
		.poor = _i < 18 ? 0 : 3 - _i % 3 };

	job_simulate(&job);
}
END_TEST

/* Small messages are repeated from their slots. */
static void run_broken_small(struct rank *rank)
{
	const struct breaks *breaks = rank->job->arg;

	for (int i = 0; i < 24 && !rank->failure[0]; i++)
		sum_up(rank, i == breaks->sums ? breaks : NULL, breaks->count);
}

START_LOOP_TEST(broken_while_small, 12)
{
	struct breaks breaks = { .count = 700,
		.sums = 8 + _i % 4,
		.after = _i % 2,
		.by = _i % 2 ? _i % 3 - 1 : _i / 2 % 2,
		.number = 0 };
	struct job job = {
		.ranks = 2 + _i % 2, .main = run_broken_small, .rails = 2, .arg = &breaks
	};

	job_simulate(&job);
}
END_TEST

/* The same channels break again and again, in operations and between them, and channels that broke
 * before work. */
static void run_flapping(struct rank *rank)
{
	struct breaks breaks = { .count = LONG, .by = rank->job->ranks == 2 ? 0 : -1 };

	if (!sum_up(rank, NULL, 1))
		return;
	for (int i = 0; i < FLAPS && !rank->failure[0]; i++) {
		breaks.number = (unsigned)i / 2 % rank->comm->n_rails;
		sum_up(rank, &breaks, LONG / 4);
		if (rank->number == 1)
			break_channel(rank->comm, 0, breaks.number);
		expect(rank, frl_barrier(rank->comm) == 0);
	}
	expect(rank, rank->comm->peers[!rank->number]->channels[0]->epoch >= FLAPS / 4);
}

JOB_TEST(broken_again_and_again, 4, job_simulate, .ranks = 2 + _i % 2, .main = run_flapping,
	.rails = 2 + _i / 2);

/* Rank 1 sends a short message, which may be lost with the connection, and is elsewhere until rank
 * 0 has received it. */
static void run_absent(struct rank *rank)
{
	int32_t value = 7;
	const struct frl_collective c = { .coll = rank->number == 1 ? FRL_SEND : FRL_RECV,
		.send = &value,
		.recv = &value,
		.count = 1,
		.dtype = FRL_INT32,
		.root = !rank->number };

	for (unsigned i = 0; i < ROUNDS && !rank->failure[0]; i++) {
		expect(rank, frl_barrier(rank->comm) == 0);
		if (rank->number == 0)
			value = break_channel(rank->comm, 1, i % 2);
		expect(rank, frl_run(rank->comm, &c) == 0 && value == 7);
		job_meet(rank->job);
	}
}

JOB_TEST(broken_while_absent, 1, job_run, .ranks = 2, .main = run_absent, .rails = 2,
	.progress = FRL_PROGRESS_THREAD);

/* After a connection breaks: whether the channel may have another one. */
static bool moves_on(struct channel *channel)
{
	uint32_t epoch = channel_next_epoch(channel);

	channel->has_theirs = true;
	channel_count_move(channel);
	channel->epoch = epoch ? epoch : channel->epoch;
	return epoch != 0;
}

/* That many connections in a row may fail; a message that one of them carries resets the count. */
static void count_moves(struct rank *rank, struct channel *channel, unsigned rails)
{
	const struct channel before = *channel;

	for (int round = 0; round < 3; round++) {
		channel->receives_done++;
		expect(rank, moves_on(channel));
		for (unsigned i = 0; i < rails; i++)
			expect(rank, moves_on(channel));
		expect(rank, !moves_on(channel));
	}
	/* A working connection does not count either if something waits. */
	channel->sends_posted++;
	channel_prove(channel);
	expect(rank, !moves_on(channel));
	channel->sends_posted--;
	channel_prove(channel);
	expect(rank, moves_on(channel));
	/* If the peer has not come yet nothing was tried. */
	for (unsigned i = 0; i < 3 * rails; i++) {
		channel->has_theirs = false;
		channel_count_move(channel);
	}
	expect(rank, moves_on(channel));
	*channel = before;
}

static void run_counting(struct rank *rank)
{
	struct frl_comm *comm = rank->comm;
	struct channel *channel;

	if (!sum_up(rank, NULL, LONG))
		return;
	expect(rank, frl_barrier(comm) == 0);
	channel = comm->peers[!rank->number]->channels[0];
	count_moves(rank, channel, comm->n_rails);
	/* Over the best of the other rails. */
	expect(rank, channel_rail_in(channel, channel_next_epoch(channel)) == 1);
	comm->rails[1].is_down = true;
	expect(rank, channel_rail_in(channel, channel_next_epoch(channel)) == 2);
	rail_suspect(comm, 2, !rank->number);
	expect(rank, channel_rail_in(channel, channel_next_epoch(channel)) == 2);
	expect(rank, !channel_is_better_elsewhere(channel));
	comm->rails[1].is_down = false;
	expect(rank, channel_rail_in(channel, channel_next_epoch(channel)) == 1);
	rail_suspect(comm, 0, !rank->number);
	expect(rank, channel_is_better_elsewhere(channel));
	expect(rank, frl_barrier(comm) == 0);
}

JOB_TEST(moves_are_counted, 1, job_simulate, .ranks = 2, .main = run_counting, .rails = 3);

/* The rails that new connections avoid, and until when. */
static void run_suspecting(struct rank *rank)
{
	struct frl_comm *comm = rank->comm, *child;
	uint32_t suspicions;

	if (rank->number == 0) {
		rail_suspect(comm, 1, 1);
		rail_suspect(comm, 1, 1);
		expect(rank, rail_is_suspected(comm, 1, 1) && !rail_is_suspected(comm, 1, 2));
		expect(rank, !rail_is_suspected(comm, 0, 1));
		rail_suspect(comm, 1, 2);
		expect(rank, rail_is_suspected(comm, 1, 3));
		rail_clear_peer(comm, 1, 2);
		rail_clear_peer(comm, 1, 2);
		expect(rank, !rail_is_suspected(comm, 1, 2) && rail_is_suspected(comm, 1, 1));
		rail_clear(comm, 1);
		expect(rank, !rail_is_suspected(comm, 1, 1));
		rail_suspect(comm, 1, 3);
		expect(rank, rail_is_suspected(comm, 1, 3) && !rail_is_suspected(comm, 1, 1));
		rail_suspect(comm, 1, 1);
		expect(rank, rail_suspicions(comm, 1) == 5);
	}
	/* A channel that uses another rail from the beginning says nothing about the rail. */
	suspicions = rail_suspicions(comm, 1);
	expect(rank, frl_comm_duplicate(comm, &child) == 0);
	if (rank->failure[0])
		return;
	expect(rank, frl_barrier(child) == 0);
	if (rank->number == 0 && child->peers[1])
		expect(rank, child->peers[1]->channels[1]->epoch == 1);
	expect(rank, rail_suspicions(comm, 1) == suspicions);
	expect(rank, frl_barrier(child) == 0);
	frl_comm_destroy(child);
}

JOB_TEST(suspected, 1, job_simulate, .ranks = 4, .main = run_suspecting, .rails = 2);

/* ---- what is rare */

/* Each of two ranks sends to the other. Returns how many segments it took. */
static uint32_t exchange(struct rank *rank)
{
	static int32_t values[2][2][WRAPPING];
	struct peer *peer = comm_peer(rank->comm, !rank->number);
	uint32_t first = peer->sends.next;
	int32_t *out = values[rank->number][0], *in = values[rank->number][1];
	const struct frl_collective pair[2] = {
		{ .coll = FRL_SEND,
			.send = out,
			.count = WRAPPING,
			.dtype = FRL_INT32,
			.root = peer->rank },
		{ .coll = FRL_RECV,
			.recv = in,
			.count = WRAPPING,
			.dtype = FRL_INT32,
			.root = peer->rank },
	};
	struct frl_request *request;

	for (size_t i = 0; i < WRAPPING; i++)
		out[i] = job_input(rank->number, i);
	memset(in, 0, WRAPPING * sizeof(*in));
	expect(rank, frl_start_group(rank->comm, pair, 2, &request) == 0);
	if (!rank->failure[0])
		expect(rank, frl_request_wait(request) == 0);
	for (size_t i = 0; i < WRAPPING && !rank->failure[0]; i++)
		expect(rank, in[i] == job_input(peer->rank, i));
	return peer->sends.next - first;
}

/* Numbers of segments that wrap at 2^32 near the end of an operation: with three rails the turns
 * must continue. Both ends start from the same number. */
static void run_wrapping(struct rank *rank)
{
	struct peer *peer = comm_peer(rank->comm, !rank->number);
	struct flight *flights[] = { &peer->sends, &peer->receives };
	uint32_t segments = exchange(rank);

	expect(rank, segments > ROUNDS);
	for (uint32_t i = 0; i < ROUNDS && !rank->failure[0]; i++) {
		for (int way = 0; way < 2; way++)
			flights[way]->first = flights[way]->next = i - segments;
		exchange(rank);
		expect(rank, flights[0]->next == i);
	}
}

JOB_TEST(numbers_wrap, 1, job_simulate, .ranks = 2, .main = run_wrapping, .rails = 3,
	.timeout_ms = 20000);

/* Completions of a channel's queue, until it is empty. */
static int drain_queue(struct frl_comm *comm, const struct channel *channel)
{
	struct frl_wc wc[POLL_BATCH];
	int n, sum = 0;

	for (int tries = 0; tries < 100; tries++) {
		n = frl_poll_cq(comm->pollers[channel->poller].cq, POLL_BATCH, wc);
		sum += n > 0 ? n : 0;
	}
	return sum;
}

/* Messages that arrived before the connection broke are taken, but nothing is posted to it any
 * more: it would only come back. */
static void run_flushing(struct rank *rank)
{
	static const uint8_t news[EAGER_HEADER] = { 2 };
	const struct frl_wc wc = { .byte_len = EAGER_HEADER };
	struct channel *channel;
	int err = 0;

	if (!sum_up(rank, NULL, 1))
		return;
	if (rank->number == 1) {
		for (int i = 0; i < 2 && !err; i++)
			err = frl_barrier(rank->comm);
		expect(rank, err == -ECANCELED);
		return;
	}
	if (!expect(rank, frl_barrier(rank->comm) == 0))
		return;
	channel = rank->comm->peers[1]->channels[0];
	expect(rank, channel_restart(channel) == 0);
	expect(rank, drain_queue(rank->comm, channel) > 0);
	memcpy(channel->slots, news, sizeof(news));
	channel->credits = channel->data_returned = 0;
	channel->sends_posted = channel->data_sent = 0;
	expect(rank, eager_received(channel, &wc, 0) == 0);
	expect(rank, drain_queue(rank->comm, channel) == 0);
	frl_comm_abort(rank->comm, "its completions were taken away");
}

JOB_TEST(nothing_is_posted_to_what_broke, 1, job_simulate, .ranks = 2, .main = run_flushing,
	.rails = 2);

TEST_MAIN(comm_rails)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
