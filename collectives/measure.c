/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measuring between two ranks, with ordinary sends and receives of the communicator. One of them
 * leads: it sends an order, which the other one answers when it is ready for the burst that the
 * order announces; then the burst; and the answer when it has arrived. The lead's clock times both.
 * Of each number the least of several tries counts: what disturbs a try makes it longer.
 */
#include "collectives/measure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/communicator.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	ROUNDS = 6,
	ROUNDS_LEAST = 3,
	PINGS = 4, /* a round; the first round makes the connection and is not counted */
	BURST = 8, /* small messages at once */
	SMALL = 8, /* bytes */
	LARGE = 8 * 1024,
	LARGEST = 1024 * 1024,
	BUDGET_NS = 15 * 1000 * 1000,
	LARGEST_NS = 1000 * 1000, /* that the longest message may about take */
	LARGEST_LEAST = 4,        /* times LARGE, however slow */
	LINGER_MS = 150,          /* as in destroying a communicator */
	REDUCES = 4,
	REDUCE_BYTES = LARGEST / 2,
};

/* What the lead tells the other one; in host order, as all elements of collectives. */
struct order {
	uint32_t messages; /* that come in a burst; 0: none */
	uint32_t bytes;    /* of each */
	uint32_t is_last;
};

/* Between this rank and `peer`. */
struct test {
	struct frl_comm *comm;
	int peer;
	uint64_t deadline_ns;
	uint8_t *buffer; /* LARGEST */
	struct order order;
	uint8_t answer;
};

/* Nanoseconds of the shortest try; 0: none. */
struct times {
	uint64_t ping, burst, large, largest;
	uint32_t largest_bytes;
};

/* ---- doing */

static int wait_for(const struct test *t, struct frl_request *request)
{
	struct frl_backoff backoff = { 0 };
	bool done = false;

	frl_backoff_reset(&backoff);
	while (!done) {
		int err = frl_request_test(request, &done);

		if (err || done)
			return err;
		if (clock_now_ns() > t->deadline_ns)
			return comm_fail(t->comm, -ETIMEDOUT,
				"rank %d does not answer rank %d, which measures what messages "
				"cost: is it stopped, or is there no way between them?",
				t->peer, t->comm->rank);
		frl_backoff_idle(&backoff);
	}
	return 0;
}

static struct frl_collective transfer(
	const struct test *t, enum frl_coll coll, void *buffer, size_t bytes)
{
	return (struct frl_collective){ .coll = coll,
		.send = coll == FRL_SEND ? buffer : NULL,
		.recv = coll == FRL_RECV ? buffer : NULL,
		.count = bytes,
		.dtype = FRL_UINT8,
		.root = t->peer };
}

static int run(const struct test *t, const struct frl_collective transfers[], int n)
{
	struct frl_request *request;
	int err = frl_start_group(t->comm, transfers, n, &request);

	return err ? err : wait_for(t, request);
}

/* The messages of a burst go into, or come from, the same place: nobody looks at them. */
static int fill_burst(const struct test *t, enum frl_coll coll, struct frl_collective group[])
{
	uint32_t bytes = t->order.bytes, n = t->order.messages;

	for (uint32_t i = 0; i < n; i++)
		group[i] = transfer(t, coll, t->buffer + (size_t)i * bytes, bytes);
	return (int)n;
}

/* ---- the lead's side */

static void keep_least(uint64_t *least, uint64_t since_ns)
{
	uint64_t time_ns = clock_now_ns() - since_ns;

	if (*least == 0 || time_ns < *least)
		*least = time_ns > 0 ? time_ns : 1;
}

static int order(struct test *t, uint64_t *ping, uint64_t *burst)
{
	struct frl_collective group[BURST + 1];
	uint64_t since_ns = clock_now_ns();
	int n, err;

	group[0] = transfer(t, FRL_RECV, &t->answer, sizeof(t->answer));
	group[1] = transfer(t, FRL_SEND, &t->order, sizeof(t->order));
	err = run(t, group, 2);
	if (err)
		return err;
	if (t->order.messages == 0) {
		keep_least(ping, since_ns);
		return 0;
	}
	since_ns = clock_now_ns();
	n = fill_burst(t, FRL_SEND, group + 1);
	err = run(t, group, n + 1);
	if (!err)
		keep_least(burst, since_ns);
	return err;
}

static int try_burst(struct test *t, uint32_t messages, uint32_t bytes, uint64_t *burst)
{
	t->order = (struct order){ .messages = messages, .bytes = bytes };
	return order(t, NULL, burst);
}

static int try_all(struct test *t, struct times *times)
{
	int err = 0;

	for (int i = 0; i < PINGS && !err; i++) {
		t->order = (struct order){ .messages = 0 };
		err = order(t, &times->ping, NULL);
	}
	if (!err)
		err = try_burst(t, BURST, SMALL, &times->burst);
	if (!err)
		err = try_burst(t, 1, LARGE, &times->large);
	if (!err)
		err = try_burst(t, 1, times->largest_bytes, &times->largest);
	return err;
}

/* Where a message of LARGE takes `large_ns`: shorter ones for slower links. */
static uint32_t largest_for(uint64_t large_ns)
{
	uint32_t bytes = LARGEST_LEAST * LARGE;

	while (bytes < LARGEST && large_ns * (2 * bytes / LARGE) <= LARGEST_NS)
		bytes *= 2;
	return bytes;
}

static int lead(struct test *t, struct times *times)
{
	struct times warm = { .largest_bytes = LARGEST_LEAST * LARGE };
	int err = try_all(t, &warm);
	/* That one has also made the connection. */
	uint64_t start_ns = clock_now_ns();

	*times = (struct times){ .largest_bytes = largest_for(warm.large) };
	for (int i = 0; i < ROUNDS && !err; i++) {
		if (i >= ROUNDS_LEAST && clock_now_ns() - start_ns > BUDGET_NS)
			break;
		err = try_all(t, times);
	}
	t->order = (struct order){ .messages = 1, .bytes = LARGE, .is_last = 1 };
	/* Acknowledged, as it is a large one: the other rank has all then. */
	if (!err)
		err = order(t, NULL, &warm.large);
	return err;
}

/* ---- the other side */

static bool is_lossless(const struct frl_comm *comm)
{
	for (unsigned i = 0; i < comm->n_rails; i++) {
		if (!comm->rails[i].attr.lossless)
			return false;
	}
	return true;
}

/*
 * Where messages get lost the lead may not know that its last one has come, and what it sends again
 * must be answered: it says by mail when it knows.
 */
static int part(struct test *t, bool leads)
{
	struct frl_comm *comm = t->comm;
	uint64_t end_ns = clock_now_ns() + (uint64_t)LINGER_MS * NS_PER_MS;
	struct frl_backoff backoff = { 0 };
	int err = 0;

	if (is_lossless(comm))
		return 0;
	if (leads) {
		board_send(
			comm->board, comm_member(comm, t->peer), MAIL_MEASURED, &comm->post, "", 0);
		return 0;
	}
	frl_backoff_reset(&backoff);
	while (comm->measured_by != t->peer && err >= 0 && clock_now_ns() < end_ns) {
		err = comm_progress(comm);
		frl_backoff_idle(&backoff);
	}
	return err < 0 ? err : 0;
}

static int follow(struct test *t)
{
	struct frl_collective group[BURST + 1];
	int err = 0;

	while (!err && !t->order.is_last) {
		uint32_t n;

		group[0] = transfer(t, FRL_RECV, &t->order, sizeof(t->order));
		err = run(t, group, 1);
		if (err)
			return err;
		n = t->order.messages;
		if (n > BURST || t->order.bytes > LARGEST / (n > 0 ? n : 1))
			return comm_fail(t->comm, -EPROTO,
				"rank %d wants to measure with %u messages of %u bytes: use the "
				"same Ferrule on all ranks",
				t->peer, n, t->order.bytes);
		/* The receives first: the answer says that they are posted. */
		fill_burst(t, FRL_RECV, group);
		group[n] = transfer(t, FRL_SEND, &t->answer, sizeof(t->answer));
		err = run(t, group, (int)n + 1);
		if (!err && n > 0)
			err = run(t, &group[n], 1);
	}
	return err;
}

/* ---- what is wanted, and between whom */

static double least_of(double ns)
{
	double least = tuner_step_ns(TUNER_STEP_LEAST);

	return ns > least ? ns : least;
}

/* To the answer of a burst it is one message more. */
static void evaluate(const struct times *times, int far, struct tuner_costs *costs)
{
	double latency = (double)times->ping / 2;
	/* Not above 0: something else was in the way, and nothing is known. */
	double byte = ((double)times->largest - (double)times->large) /
		(double)(times->largest_bytes - LARGE);
	double large = (double)times->large - 2 * latency - LARGE * byte;
	double more = ((double)times->burst - 2 * latency) / (BURST - 1);

	costs->step[TUNER_LATENCY + far] = tuner_step(least_of(latency));
	costs->step[TUNER_BYTE + far] = byte > 0 ? tuner_step(byte) : 0;
	costs->step[TUNER_LARGE + far] = tuner_step(least_of(large));
	costs->step[TUNER_MESSAGE] = tuner_step(least_of(more));
}

static int test_pair(struct frl_comm *comm, int lead_rank, int other, int far, uint8_t *buffer,
	struct tuner_costs *costs)
{
	bool leads = comm->rank == lead_rank;
	struct test t = { .comm = comm,
		.peer = leads ? other : lead_rank,
		.buffer = buffer,
		.deadline_ns = clock_now_ns() +
			(uint64_t)comm->config.connect_timeout_ms * NS_PER_MS };
	struct times times;
	int err;

	if (!leads && comm->rank != other)
		return 0;
	comm->measured_by = -1;
	err = leads ? lead(&t, &times) : follow(&t);
	if (!err)
		err = part(&t, leads);
	if (!err && leads)
		evaluate(&times, far, costs);
	return err;
}

static uint8_t reduce_step(uint8_t *buffer)
{
	uint64_t least = 0;

	for (int i = 0; i < REDUCES; i++) {
		uint64_t since_ns = clock_now_ns();

		frl_reduce_local(buffer, buffer, buffer + REDUCE_BYTES,
			REDUCE_BYTES / sizeof(float), FRL_FLOAT32, FRL_SUM);
		keep_least(&least, since_ns);
	}
	return tuner_step(least_of((double)least / REDUCE_BYTES));
}

/* The first two ranks, in the order of the topology, that share a host. */
static bool find_near(const struct topology *topology, int *ret_lead, int *ret_other)
{
	for (uint32_t i = 1; i < topology->ranks; i++) {
		uint32_t lead = topology->order[i - 1], other = topology->order[i];

		if (topology->places[lead].host != topology->places[other].host)
			continue;
		*ret_lead = (int)lead;
		*ret_other = (int)other;
		return true;
	}
	return false;
}

/* Rank 0, and the first one of another host. */
static bool find_far(const struct topology *topology, int *ret_other)
{
	for (uint32_t rank = 1; rank < topology->ranks; rank++) {
		if (topology->places[rank].host == topology->places[0].host)
			continue;
		*ret_other = (int)rank;
		return true;
	}
	return false;
}

/* ---- all of them */

struct pairs {
	bool has_near, has_far;
	int near_lead, near_other, far_other;
};

static bool is_known(const struct tuner *tuner, const struct pairs *pairs)
{
	if (tuner->source == TUNER_GIVEN)
		return true;
	return (!pairs->has_near || tuner->known.step[TUNER_LATENCY]) &&
		(!pairs->has_far || tuner->known.step[TUNER_FAR_LATENCY]);
}

static int measure(struct frl_comm *comm, const struct pairs *pairs, struct tuner_costs *costs)
{
	uint8_t *buffer = calloc(1, LARGEST);
	int err = 0;

	if (!buffer)
		return frl_fail(-ENOMEM, "no memory to measure with");
	if (comm->rank == 0)
		costs->step[TUNER_REDUCE] = reduce_step(buffer);
	if (pairs->has_near)
		err = test_pair(comm, pairs->near_lead, pairs->near_other, 0, buffer, costs);
	if (!err && pairs->has_far)
		err = test_pair(comm, 0, pairs->far_other, TUNER_FAR, buffer, costs);
	free(buffer);
	return err;
}

/* From those who have measured; what a file knew and nobody has measured stays. */
static int take(struct frl_comm *comm, const struct pairs *pairs, const struct tuner_costs all[])
{
	struct tuner_costs costs = comm->tuner.known;
	int near = pairs->has_near ? pairs->near_lead : 0;

	for (int i = 0; i < 2; i++) {
		const struct tuner_costs *from = &all[i == 0 ? near : 0];

		if (!tuner_costs_are_plausible(from))
			return frl_fail(-EPROTO,
				"rank %d has measured what cannot be: use the same Ferrule on all "
				"ranks",
				i == 0 ? near : 0);
		for (int c = 0; c < TUNER_COSTS; c++) {
			if (from->step[c] != 0)
				costs.step[c] = from->step[c];
		}
	}
	tuner_set_costs(&comm->tuner, &costs, TUNER_MEASURED);
	return 0;
}

/* Of a pair a latency was measured, but not what a byte costs. */
static bool is_incomplete(const struct tuner_costs *costs)
{
	return (costs->step[TUNER_LATENCY] && !costs->step[TUNER_BYTE]) ||
		(costs->step[TUNER_FAR_LATENCY] && !costs->step[TUNER_FAR_BYTE]);
}

static void keep(const struct frl_comm *comm)
{
	char key[MEASURE_KEY];

	if (is_incomplete(&comm->tuner.known))
		return;
	if (comm->rank != 0 || comm->config.tuner_folder[0] == '\0')
		return;
	measure_key(comm, key);
	measure_file_write(comm->config.tuner_folder, key, &comm->tuner.known, time(NULL));
}

int comm_measure(struct frl_comm *comm)
{
	const struct topology *topology = &comm->topology;
	struct pairs pairs = { .has_near = false };
	struct tuner_costs mine = { .step = { 0 } }, *all;
	int err;

	pairs.has_near = find_near(topology, &pairs.near_lead, &pairs.near_other);
	pairs.has_far = find_far(topology, &pairs.far_other);
	if (comm->ranks == 1 || is_known(&comm->tuner, &pairs))
		return 0;
	all = calloc((size_t)comm->ranks, sizeof(*all));
	if (!all)
		return frl_fail(-ENOMEM, "no memory for the costs of %d ranks", comm->ranks);
	err = measure(comm, &pairs, &mine);
	if (!err)
		err = comm->bootstrap->allgather(comm->bootstrap->ctx, &mine, sizeof(mine), all);
	if (!err)
		err = take(comm, &pairs, all);
	if (!err)
		keep(comm);
	else if (!comm->error)
		comm_fail(comm, err, "measuring what messages cost: %s", frl_last_error());
	free(all);
	return err;
}
