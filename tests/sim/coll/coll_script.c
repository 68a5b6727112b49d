/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's part of a script: buffers, the operations, and checks of the results. */
#include "tests/sim/coll/coll_script.h"

#include "collectives/communicator/communicator.h"
#include "tests/sim/coll/coll_world.h"
#include "tests/sim/common/fail.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	AT_ONCE = 4,
	GUARD = 64, /* bytes around buffers that must stay as they are */
	GUARD_BYTE = 0xa5,
	OUTSIDE_MAX_NS = 2000000000,
	TIMEOUT_MS = 60000, /* a dead rail takes 5 s to be noticed, by one peer after the other */
};

struct buffer {
	uint8_t *memory, *at;
	size_t size;
};

/* An operation under way. */
struct work {
	struct coll_op op;
	int me, ranks;
	size_t sends, receives; /* elements */
	struct buffer send, recv;
	size_t *counts[4]; /* of ALLTOALLV: counts and places to send, and to receive */
	uint8_t scalar[8];
	struct frl_request *request;
};

/* Offset by `skew` bytes, as alignment is not guaranteed. */
static void buffer_init(struct buffer *buffer, size_t size, unsigned skew)
{
	buffer->memory = sim_alloc(size + skew + 2 * GUARD, 1);
	buffer->at = buffer->memory + GUARD + skew;
	buffer->size = size;
	memset(buffer->memory, GUARD_BYTE, size + skew + 2 * GUARD);
}

static bool buffer_is_guarded(const struct buffer *buffer)
{
	for (int i = 1; i <= GUARD; i++)
		if (buffer->at[-i] != GUARD_BYTE || buffer->at[buffer->size + i - 1] != GUARD_BYTE)
			return false;
	return true;
}

/* ---- what goes where */

static size_t times(size_t count, int ranks)
{
	return count * (size_t)ranks;
}

static void count_elements(struct work *w)
{
	const struct coll_op *op = &w->op;
	bool is_root = w->me == op->root;

	w->sends = w->receives = op->count;
	switch (op->coll) {
	case FRL_REDUCE_SCATTER: w->sends = times(op->count, w->ranks); break;
	case FRL_ALLGATHER: w->receives = times(op->count, w->ranks); break;
	case FRL_ALLTOALL: w->sends = w->receives = times(op->count, w->ranks); break;
	case FRL_REDUCE: w->receives = is_root ? op->count : 0; break;
	case FRL_BROADCAST: w->sends = is_root ? op->count : 0; break;
	case FRL_GATHER: w->receives = is_root ? times(op->count, w->ranks) : 0; break;
	case FRL_SCATTER: w->sends = is_root ? times(op->count, w->ranks) : 0; break;
	case FRL_BARRIER: w->sends = w->receives = 0; break;
	case FRL_ALLTOALLV:
		w->sends = w->counts[1][w->ranks - 1] + w->counts[0][w->ranks - 1];
		w->receives = w->counts[3][w->ranks - 1] + w->counts[2][w->ranks - 1];
		break;
	case FRL_ALLREDUCE:
	case FRL_SEND:
	case FRL_RECV:
	case FRL_COLLS: break;
	}
}

/* Pieces one behind the other, with some holes. */
static void make_counts(struct work *w)
{
	size_t at[2] = { 0 };

	for (int i = 0; i < 4; i++)
		w->counts[i] = sim_alloc((size_t)w->ranks, sizeof(size_t));
	for (int rank = 0; rank < w->ranks; rank++) {
		w->counts[0][rank] = coll_piece(&w->op, w->me, rank);
		w->counts[1][rank] = at[0];
		w->counts[2][rank] = coll_piece(&w->op, rank, w->me);
		w->counts[3][rank] = at[1];
		at[0] += w->counts[0][rank] + (rank == 1);
		at[1] += w->counts[2][rank] + 2 * (rank == 0);
	}
}

/* In place, the two buffers are one: the shorter one lies within the longer one. */
static size_t own_piece(const struct work *w)
{
	switch (w->op.coll) {
	case FRL_REDUCE_SCATTER:
	case FRL_ALLGATHER:
	case FRL_GATHER:
	case FRL_SCATTER: return times(w->op.count, w->me);
	default: return 0;
	}
}

static void make_buffers(struct work *w, struct random_state *random)
{
	size_t size = frl_dtype_size(w->op.dtype);

	buffer_init(&w->send, w->sends * size, (unsigned)random_below(random, 8));
	/* An operation with one buffer has no variant in place. */
	w->op.in_place = w->op.in_place && w->sends && w->receives;
	if (!w->op.in_place) {
		buffer_init(&w->recv, w->receives * size, (unsigned)random_below(random, 8));
	} else if (w->sends >= w->receives) {
		w->recv.at = w->send.at + own_piece(w) * size;
	} else {
		free(w->send.memory);
		w->send.memory = NULL;
		buffer_init(&w->recv, w->receives * size, (unsigned)random_below(random, 8));
		w->send.at = w->recv.at + own_piece(w) * size;
	}
	for (size_t i = 0; i < w->sends; i++)
		coll_put(w->send.at + i * size, w->op.dtype, coll_value(&w->op, w->me, i));
}

/* ---- what must be there */

/* The offset in ALLTOALLV at which rank `from` has the data for rank `to`. */
static size_t place_of(const struct work *w, int from, int to)
{
	size_t at = 0;

	for (int rank = 0; rank < to; rank++)
		at += coll_piece(&w->op, from, rank) + (rank == 1);
	return at;
}

/* Received element `i`; -1: none, it must be unchanged. */
static double expected(const struct work *w, size_t i)
{
	const struct coll_op *op = &w->op;
	size_t own = times(op->count, w->me) + (op->count ? i % op->count : 0);
	int block = op->count ? (int)(i / op->count) : 0;

	switch (op->coll) {
	case FRL_ALLREDUCE:
	case FRL_REDUCE: return coll_reduced(op, w->ranks, i);
	case FRL_REDUCE_SCATTER: return coll_reduced(op, w->ranks, own);
	case FRL_ALLGATHER:
	case FRL_GATHER: return coll_value(op, block, i % op->count);
	case FRL_BROADCAST: return coll_value(op, op->root, i);
	case FRL_SCATTER: return coll_value(op, op->root, own);
	case FRL_ALLTOALL: return coll_value(op, block, own);
	case FRL_SEND:
	case FRL_RECV: return coll_value(op, (w->me + w->ranks - op->root) % w->ranks, i);
	case FRL_ALLTOALLV:
		for (int rank = 0; rank < w->ranks; rank++)
			if (i - w->counts[3][rank] < w->counts[2][rank])
				return coll_value(op, rank,
					place_of(w, rank, w->me) + i - w->counts[3][rank]);
		return -1;
	case FRL_BARRIER:
	case FRL_COLLS: break;
	}
	return -1;
}

static void describe(const struct work *w, char *text, size_t size)
{
	const struct coll_op *op = &w->op;

	snprintf(text, size, "rank %d of %d: %s of %zu %s, %s, wire %s, root %d%s", w->me, w->ranks,
		frl_coll_name(op->coll), op->count, frl_dtype_name(op->dtype), frl_op_name(op->op),
		frl_wire_name(op->wire), op->root, op->in_place ? ", in place" : "");
}

/* Each value is within half a step of amax / 127; a sum of them is encoded once more. */
static bool is_near(const struct work *w, const uint8_t *element, double value)
{
	double bound = w->ranks * 7 * (1 + 1.0 / 64) / 254, amax = w->ranks * 7 + bound;
	float got;

	memcpy(&got, element, sizeof(got));
	return fabs(got - value) <= bound + amax * (1 + 1.0 / 64) / 254;
}

static void check_received(const struct work *w)
{
	size_t size = frl_dtype_size(w->op.dtype);
	char text[256];

	describe(w, text, sizeof(text));
	for (size_t i = 0; i < w->receives; i++) {
		const uint8_t *got = w->recv.at + i * size;
		double value = expected(w, i);
		uint8_t element[8];

		memset(element, GUARD_BYTE, sizeof(element));
		if (!(value < 0)) /* or NaN */
			coll_put(element, w->op.dtype, value);
		if (w->op.wire == FRL_WIRE_INT8 && is_near(w, got, value))
			continue;
		SIM_CHECK(memcmp(got, element, size) == 0,
			"%s: element %zu is %02x %02x..., and should be %g", text, i, got[0],
			got[size - 1], value);
	}
}

/* Sent data is unchanged, unless it was received into. */
static void check_sent(const struct work *w)
{
	size_t size = frl_dtype_size(w->op.dtype);
	uint8_t element[8];
	char text[256];

	describe(w, text, sizeof(text));
	SIM_CHECK(!w->send.memory || buffer_is_guarded(&w->send), "%s: wrote around it", text);
	SIM_CHECK(!w->recv.memory || buffer_is_guarded(&w->recv), "%s: wrote around it", text);
	for (size_t i = 0; i < w->sends && !w->op.in_place; i++) {
		coll_put(element, w->op.dtype, coll_value(&w->op, w->me, i));
		SIM_CHECK(memcmp(w->send.at + i * size, element, size) == 0,
			"%s: changed element %zu of what was sent", text, i);
	}
}

/* ---- operations */

static void start(struct frl_comm *comm, struct work *w)
{
	const struct coll_op *op = &w->op;
	struct frl_collective c = {
		.coll = op->coll,
		.send = w->sends ? w->send.at : NULL,
		.recv = w->receives ? w->recv.at : NULL,
		.count = op->count,
		.dtype = op->dtype,
		.op = op->op,
		.root = op->root,
		.scalar = w->scalar,
		.wire = op->wire,
		.send_counts = w->counts[0],
		.send_displs = w->counts[1],
		.recv_counts = w->counts[2],
		.recv_displs = w->counts[3],
	};
	struct frl_collective pair[2] = { c, c };
	char text[256];
	int rc;

	coll_put(w->scalar, op->dtype, 2);
	if (op->coll == FRL_SEND) {
		pair[0].root = (w->me + op->root) % w->ranks;
		pair[1].coll = FRL_RECV;
		pair[1].root = (w->me + w->ranks - op->root) % w->ranks;
		rc = frl_start_group(comm, pair, 2, &w->request);
	} else {
		rc = frl_start(comm, &c, &w->request);
	}
	describe(w, text, sizeof(text));
	SIM_CHECK(rc == 0, "%s: %s", text, frl_last_error());
}

static void finish(struct work *w)
{
	char text[256];

	describe(w, text, sizeof(text));
	SIM_CHECK(frl_request_wait(w->request) == 0, "%s: %s", text, frl_last_error());
	check_received(w);
	check_sent(w);
	free(w->send.memory);
	free(w->recv.memory);
	for (int i = 0; i < 4; i++)
		free(w->counts[i]);
}

static void count_op(struct script_tally *tally, const struct coll_op *op)
{
	tally->collectives[op->coll]++;
	tally->dtypes[op->dtype]++;
	tally->ops[op->op]++;
	tally->wires[op->wire]++;
	tally->in_place += op->in_place;
}

/* Started in one order, awaited in another one. */
static void run_batch(struct coll_script *script, struct frl_comm *comm, struct random_state *all,
	struct random_state *own)
{
	struct work works[AT_ONCE] = { 0 };
	int n = 1 + (int)random_below(all, AT_ONCE);

	for (int i = 0; i < n; i++) {
		struct work *w = &works[i];

		w->me = frl_comm_rank(comm);
		w->ranks = frl_comm_size(comm);
		coll_draw(all, w->ranks, script->bytes_max, &w->op);
		if (w->op.coll == FRL_ALLTOALLV)
			make_counts(w);
		count_elements(w);
		make_buffers(w, own);
		if (w->me == 0)
			count_op(&script->tally, &w->op);
		start(comm, w);
	}
	script->tally.at_once += n > 1;
	for (; n > 0; n--) {
		int i = (int)random_below(own, (uint64_t)n);

		finish(&works[i]);
		works[i] = works[n - 1];
	}
}

static void run_batches(struct coll_script *script, struct frl_comm *comm, uint64_t seed, int rank)
{
	struct random_state all, own;

	random_seed(&all, seed);
	random_seed(&own, seed + 1000 + (uint64_t)rank);
	for (int batch = 0; batch < script->batches; batch++) {
		run_batch(script, comm, &all, &own);
		if (script->stays_outside && random_below(&own, 4) == 0)
			coll_stay_outside(random_below(&own, OUTSIDE_MAX_NS));
	}
}

/* Half of the ranks, and in reverse order. */
static void run_split(struct coll_script *script, struct frl_comm *comm, int rank)
{
	struct frl_comm *half;

	SIM_CHECK(frl_comm_split(comm, rank % 2, -rank, &half) == 0, "split: %s", frl_last_error());
	run_batches(script, half, script->seed + (uint64_t)(rank % 2) + 1, rank);
	script->tally.rings += half->staging.n_rings;
	frl_comm_destroy(half);
	script->tally.splits += rank == 0;
}

void coll_script_run(struct frl_bootstrap *bootstrap, struct frl_device *const devices[], void *arg)
{
	struct coll_script *script = arg;
	struct frl_comm_config config;
	struct random_state random;
	struct frl_comm *comm;
	enum frl_algo algo;

	random_seed(&random, script->seed);
	algo = (enum frl_algo)random_below(&random, FRL_ALGOS);
	frl_comm_config_init(&config);
	config.devices = devices;
	config.n_devices = script->rails;
	config.timeout_ms = TIMEOUT_MS;
	config.algos = frl_algo_name(algo);
	script->tally.algos[algo] += bootstrap->rank == 0;
	SIM_CHECK(frl_comm_create_with(bootstrap, &config, &comm) == 0, "rank %d: %s",
		bootstrap->rank, frl_last_error());
	run_batches(script, comm, script->seed, bootstrap->rank);
	if (random_below(&random, 4) == 0)
		run_split(script, comm, bootstrap->rank);
	script->tally.rings += comm->staging.n_rings;
	frl_comm_destroy(comm);
}
