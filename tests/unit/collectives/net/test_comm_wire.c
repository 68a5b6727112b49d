/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of float32 in shorter formats. Copied elements must equal, to the last bit, each
 * block encoded and decoded once, on all ranks and for a rank's own block as well. Reduced elements
 * must be within the bound. Also all-to-all-v among other operations.
 */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum { COUNT_MAX = 5000, BLOCKS_MAX = COUNT_MAX * JOB_RANKS, PIECE_MAX = 3000 };

static const size_t counts[] = { 1, 127, 128, 129, 1000, COUNT_MAX };

/* All magnitudes; with int8 infinities and NaN make a block of NaN. */
static float input(int rank, size_t i)
{
	uint32_t bits = (uint32_t)(i * 2654435761u) ^ (uint32_t)rank * 40503u;

	if (bits % 1009 == 0)
		return bits % 2 ? INFINITY : -INFINITY;
	if (bits % 1013 == 0)
		return NAN;
	return ldexpf((float)(int32_t)(bits << 8) * 0x1p-31f, (int)(i / 300 % 40) - 20);
}

/* The values of `count` elements from `first` on of a rank's input at the other end. */
static void decoded(float *to, int rank, size_t first, size_t count, enum frl_wire wire)
{
	float *from = malloc(count * sizeof(*from) + 1);
	uint8_t *bytes = malloc(frl_wire_size(wire, count) + 1);

	ck_assert(from && bytes);
	for (size_t i = 0; i < count; i++)
		from[i] = input(rank, first + i);
	frl_wire_encode(bytes, from, count, wire);
	frl_wire_decode(to, bytes, count, wire);
	free(from);
	free(bytes);
}

/* ---- copies */

struct copy {
	enum frl_coll coll;
	size_t sent, received; /* blocks, at the ranks that have them */
	bool root_sends, root_receives;
};

static const struct copy copies[] = {
	{ FRL_ALLGATHER, 1, JOB_RANKS, false, false },
	{ FRL_BROADCAST, 1, 1, true, false },
	{ FRL_ALLTOALL, JOB_RANKS, JOB_RANKS, false, false },
	{ FRL_GATHER, 1, JOB_RANKS, false, true },
	{ FRL_SCATTER, JOB_RANKS, 1, true, false },
};

/* The block that rank `me` must have received at place `block`: its owner and its place there. */
static void block_of(
	const struct frl_collective *c, int me, int block, int *ret_from, size_t *ret_first)
{
	*ret_from = c->coll == FRL_BROADCAST || c->coll == FRL_SCATTER ? c->root : block;
	*ret_first = 0;
	if (c->coll == FRL_ALLTOALL || c->coll == FRL_SCATTER)
		*ret_first = (size_t)me * c->count;
}

static void check_blocks(struct rank *rank, const struct frl_collective *c, size_t blocks)
{
	static float expected[COUNT_MAX];
	const float *recv = c->recv;

	for (size_t block = 0; block < blocks; block++) {
		size_t first;
		int from;

		block_of(c, rank->number, (int)block, &from, &first);
		decoded(expected, from, first, c->count, c->wire);
		if (memcmp(recv + block * c->count, expected, c->count * sizeof(float)) != 0)
			complain(rank, "%s, wire %s, %zu elements, block %zu: not as encoded once",
				frl_coll_name(c->coll), frl_wire_name(c->wire), c->count, block);
	}
}

static void run_copy(struct rank *rank, const struct copy *copy, struct frl_collective c,
	bool in_place, float *memory)
{
	size_t ranks = (size_t)rank->ranks, own = (size_t)rank->number * c.count;
	bool is_root = rank->number == c.root;
	size_t sent = copy->sent > 1 ? ranks : 1, received = copy->received > 1 ? ranks : 1;
	float *send = memory, *recv = memory + BLOCKS_MAX;

	if (copy->root_sends && !is_root)
		sent = 0;
	if (copy->root_receives && !is_root)
		received = 0;
	if (in_place && sent > 0 && received > 0) {
		recv = memory + (sent > received ? own : 0);
		send = memory + (received > sent ? own : 0);
	}
	for (size_t i = 0; i < sent * c.count; i++)
		send[i] = input(rank->number, i);
	c.send = send;
	c.recv = recv;
	if (expect(rank, frl_run(rank->comm, &c) == 0))
		check_blocks(rank, &c, received);
}

static void copy_all(struct rank *rank)
{
	float *memory = calloc(2 * (size_t)BLOCKS_MAX, sizeof(*memory));

	for (int i = 0; i < ROWS(copies) * ROWS(counts) * (FRL_WIRES - 1) * 2; i++) {
		struct frl_collective c = { .coll = copies[i % ROWS(copies)].coll,
			.count = counts[i / ROWS(copies) % ROWS(counts)],
			.dtype = FRL_FLOAT32,
			.root = i % rank->ranks,
			.wire = (enum frl_wire)(1 + i / ROWS(copies) / ROWS(counts) / 2) };

		run_copy(rank, &copies[i % ROWS(copies)], c, i / ROWS(copies) / ROWS(counts) % 2,
			memory);
	}
	free(memory);
}

START_LOOP_TEST(copies_round_once, 4)
{
	static const int ranks[] = { 1, 2, 3, 5 };
	struct job job = { .ranks = ranks[_i], .main = copy_all };

	job_simulate(&job);
}
END_TEST

/* ---- sends */

/* Around in a ring, and to itself. */
static void send_around(struct rank *rank)
{
	static float inputs[JOB_RANKS][COUNT_MAX], outputs[JOB_RANKS][2 * COUNT_MAX];
	static float expected[COUNT_MAX];
	float *in = inputs[rank->number], *out = outputs[rank->number];
	int next = (rank->number + 1) % rank->ranks;
	int previous = (rank->number + rank->ranks - 1) % rank->ranks;

	for (size_t i = 0; i < COUNT_MAX; i++)
		in[i] = input(rank->number, i);
	for (int i = 0; i < ROWS(counts) * (FRL_WIRES - 1); i++) {
		struct frl_collective some[4];
		struct frl_request *request;
		size_t count = counts[i % ROWS(counts)];

		for (int k = 0; k < 4; k++)
			some[k] = (struct frl_collective){ .coll = k % 2 ? FRL_RECV : FRL_SEND,
				.send = in,
				.recv = out + (k < 2 ? 0 : COUNT_MAX),
				.count = count,
				.dtype = FRL_FLOAT32,
				.wire = (enum frl_wire)(1 + i / ROWS(counts)),
				.root = k < 2 ? (k ? previous : next) : rank->number };
		if (!expect(rank, frl_start_group(rank->comm, some, 4, &request) == 0) ||
			!expect(rank, frl_request_wait(request) == 0))
			return;
		decoded(expected, previous, 0, count, some[0].wire);
		expect(rank, memcmp(out, expected, count * sizeof(float)) == 0);
		decoded(expected, rank->number, 0, count, some[0].wire);
		expect(rank, memcmp(out + COUNT_MAX, expected, count * sizeof(float)) == 0);
	}
}

JOB_TEST(sends_round_once, 2, job_simulate, .ranks = 1 + 2 * _i, .main = send_around);

/* One end has float16, the other none; the receiver finds it. Short messages leave the sender
 * before that. */
struct formats {
	bool is_self;
	size_t count;
};

static void send_differently(struct rank *rank)
{
	static float numbers[2][COUNT_MAX];
	const struct formats *f = rank->job->arg;
	struct frl_collective some[2] = { { .coll = FRL_SEND,
						  .send = numbers[0],
						  .count = f->count,
						  .dtype = FRL_FLOAT32,
						  .wire = FRL_WIRE_FLOAT16 },
		{ .coll = FRL_RECV, .recv = numbers[1], .count = f->count, .dtype = FRL_FLOAT32 } };
	struct frl_request *request;
	const char *text;
	int rc;

	some[0].root = f->is_self ? rank->number : 1 - rank->number;
	some[1].root = some[0].root;
	if (f->is_self)
		rc = frl_start_group(rank->comm, some, 2, &request);
	else
		rc = frl_start_group(rank->comm, &some[rank->number], 1, &request);
	if (!rc)
		rc = frl_request_wait(request);
	if (rc == 0 && rank->number == 0 && !f->is_self && 2 * f->count <= EAGER_BYTES)
		return;
	text = frl_last_error();
	expect(rank, rc == -EPROTO);
	if (!strstr(text, "float16") || !strstr(text, "float32"))
		complain(rank, "'%s' does not name both", text);
}

START_LOOP_TEST(sends_in_other_formats, 4)
{
	static const size_t lengths[] = { 10, 1500, COUNT_MAX }; /* 1500: small only encoded */
	struct formats f = { .is_self = _i == 3, .count = lengths[_i % 3] };
	struct job job = { .ranks = f.is_self ? 1 : 2, .main = send_differently, .arg = &f };

	job_simulate(&job);
}
END_TEST

/* ---- what is not added */

static float positive(int rank, size_t i)
{
	uint32_t bits = (uint32_t)(i * 2654435761u) ^ (uint32_t)rank * 7919u;

	return 0.5f + (float)(bits >> 8) * 0x1p-24f; /* 0.5 to 1.5 */
}

static double reduced(int ranks, size_t i, enum frl_op op)
{
	double result = positive(0, i);

	for (int r = 1; r < ranks; r++) {
		double x = positive(r, i);

		result = op == FRL_PROD ? result * x
			: op == FRL_MAX ? fmax(result, x)
					: fmin(result, x);
	}
	return result;
}

static void reduce_others(struct rank *rank)
{
	static const double units[] = { 0, 0x1p-11, 0x1p-8, 1.5 / 254 * (1 + 0x1p-6) };
	static float inputs[JOB_RANKS][COUNT_MAX], outputs[JOB_RANKS][COUNT_MAX];
	float *in = inputs[rank->number], *out = outputs[rank->number];

	for (size_t i = 0; i < COUNT_MAX; i++)
		in[i] = positive(rank->number, i);
	for (int i = 0; i < ROWS(counts) * (FRL_WIRES - 1) * 3; i++) {
		struct frl_collective c = { .coll = FRL_ALLREDUCE,
			.send = in,
			.recv = out,
			.count = counts[i % ROWS(counts)],
			.dtype = FRL_FLOAT32,
			.op = (enum frl_op)(FRL_PROD + i / ROWS(counts) % 3),
			.wire = (enum frl_wire)(1 + i / ROWS(counts) / 3) };
		/* For MAX and MIN: each rank's number, and with int8 the result, which is at most
		 * 1.5; factors are at least 0.5, so an error is at most twice that much of the
		 * product. */
		double u = units[c.wire] * (c.wire == FRL_WIRE_INT8 ? 2 : 1.5);

		if (!expect(rank, frl_run(rank->comm, &c) == 0))
			return;
		for (size_t k = 0; k < c.count; k++) {
			double right = reduced(rank->ranks, k, c.op), bound = u;

			if (c.op == FRL_PROD)
				bound = right * expm1((rank->ranks + 1) * log1p(2 * u)) +
					ldexp(u, rank->ranks);
			if (!(fabs(out[k] - right) <= bound))
				complain(rank, "%s, wire %s, element %zu: %g instead of %g",
					frl_op_name(c.op), frl_wire_name(c.wire), k, out[k], right);
		}
	}
}

START_LOOP_TEST(what_is_not_added, 2)
{
	struct job job = { .ranks = 2 + 3 * _i, .main = reduce_others }; /* 2 or 5 */

	job_simulate(&job);
}
END_TEST

/* ---- all-to-all-v among other operations */

struct vector {
	size_t numbers[4][JOB_RANKS];
	size_t sent, received;
};

static size_t piece(int from, int to, size_t count)
{
	return (size_t)((from * 5 + to * 3 + from * to) % 4) * count / 3;
}

static void make_vector(struct vector *v, const struct rank *rank, size_t count)
{
	*v = (struct vector){ .sent = 0 };
	for (int r = 0; r < rank->ranks; r++) {
		v->numbers[0][r] = piece(rank->number, r, count);
		v->numbers[1][r] = v->sent + 1; /* with gaps */
		v->numbers[2][r] = piece(r, rank->number, count);
		v->numbers[3][r] = v->received + 2;
		v->sent = v->numbers[1][r] + v->numbers[0][r];
		v->received = v->numbers[3][r] + v->numbers[2][r];
	}
}

static struct frl_collective alltoallv_of(
	struct rank *rank, struct vector *v, size_t count, enum frl_wire wire)
{
	struct frl_collective c = { .coll = FRL_ALLTOALLV, .dtype = FRL_FLOAT32, .wire = wire };
	float *send;

	make_vector(v, rank, count);
	send = calloc(v->sent + 1, sizeof(*send));
	c.send = send;
	c.recv = calloc(v->received + 1, sizeof(float));
	c.send_counts = v->numbers[0];
	c.send_displs = v->numbers[1];
	c.recv_counts = v->numbers[2];
	c.recv_displs = v->numbers[3];
	for (int r = 0; r < rank->ranks; r++)
		for (size_t i = 0; i < c.send_counts[r]; i++)
			send[c.send_displs[r] + i] = input(rank->number, (size_t)r * 10007 + i);
	return c;
}

static void check_pieces(struct rank *rank, struct frl_collective *c)
{
	static float expected[PIECE_MAX];
	float *recv = c->recv;

	for (int r = 0; r < rank->ranks; r++) {
		decoded(expected, r, (size_t)rank->number * 10007, c->recv_counts[r], c->wire);
		if (memcmp(recv + c->recv_displs[r], expected, c->recv_counts[r] * sizeof(float)) !=
			0)
			complain(rank, "alltoallv, wire %s: what rank %d sent",
				frl_wire_name(c->wire), r);
	}
	expect(rank, recv[0] == 0 && recv[1] == 0);
	free((float *)(uintptr_t)c->send);
	free(recv);
}

/* Two at a time, and others before, between and behind them in the lanes. */
static void send_pieces(struct rank *rank)
{
	static const size_t lengths[] = { 0, 3, 300, PIECE_MAX };
	int32_t ones[3] = { 1, 1, 1 }, sums[3], token = rank->number, got = -1;
	int next = (rank->number + 1) % rank->ranks;
	int previous = (rank->number + rank->ranks - 1) % rank->ranks;

	for (int i = 0; i < 4 * FRL_WIRES; i++) {
		struct frl_request *requests[7];
		struct vector v[2];
		struct frl_collective c[7];

		for (int k = 0; k < 3; k++)
			c[k] = (struct frl_collective){ .coll = FRL_ALLREDUCE,
				.send = &ones[k],
				.recv = &sums[k],
				.count = 1,
				.dtype = FRL_INT32 };
		c[3] = (struct frl_collective){ .coll = FRL_SEND,
			.send = &token,
			.count = 1,
			.dtype = FRL_INT32,
			.root = next };
		c[4] = c[3];
		c[4].coll = FRL_RECV;
		c[4].recv = &got;
		c[4].root = previous;
		for (int k = 0; k < 2; k++)
			c[5 + k] = alltoallv_of(
				rank, &v[k], lengths[(i + k) % 4], (enum frl_wire)(i / 4));
		{
			struct frl_collective in_order[] = { c[0], c[5], c[1], c[3], c[4], c[6],
				c[2] };
			struct frl_request *group;

			/* Sometimes as one request. */
			if (i % 3 == 0) {
				if (!expect(rank,
					    !frl_start_group(rank->comm, in_order, 7, &group)) ||
					!expect(rank, frl_request_wait(group) == 0))
					return;
			}
			for (int k = 0; k < 7 && i % 3; k++)
				if (!expect(rank,
					    !frl_start(rank->comm, &in_order[k], &requests[k])))
					return;
			for (int k = 6; k >= 0 && i % 3; k--)
				if (!expect(rank, frl_request_wait(requests[k]) == 0))
					return;
		}
		for (int k = 0; k < 2; k++)
			check_pieces(rank, &c[5 + k]);
		expect(rank, got == previous && sums[0] == rank->ranks && sums[2] == rank->ranks);
	}
}

JOB_TEST(pieces_among_others, 1, job_simulate, .ranks = 6, .main = send_pieces);

TEST_FILE(comm_wire)
