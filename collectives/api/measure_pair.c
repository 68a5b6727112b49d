/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures between two ranks with ordinary sends and receives of the communicator. One of them
 * leads: it sends an order, the other rank answers when it is ready for the burst that the order
 * announces, the lead sends the burst, and the other rank answers when it has arrived. The lead's
 * clock times both. The least of several tries counts, since disturbances only make a try longer.
 *
 * The two ranks need processors for a moment: on a busy machine even the least time may be a
 * thousand times too long. The measurement is therefore repeated until it was undisturbed. If it
 * never was, the results are used, but not kept.
 */
#include "collectives/api/measure.h"

#include <errno.h>

#include "collectives/api/internal.h"
#include "collectives/communicator/location.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	CALM_WAIT_NS = 60 * 1000 * 1000, /* until a window is calm */
	WINDOW_NS = 15 * 1000 * 1000,    /* of a window */
	ROUNDS = 48,                     /* in a window, at most */
	ROUNDS_LEAST = 3,
	ALIKE_PART = 8,   /* pings that exceed the least by up to this part count as equal */
	WAITED_PART = 10, /* part of the time that a rank may have waited for a processor */
	PINGS = 4,        /* in each round; the first round also connects, and is not counted */
	BURST = 8,        /* small messages in a burst */
	SMALL = 8,        /* bytes */
	LARGE = 8 * 1024,
	LARGEST = MEASURE_BUFFER,
	LARGEST_NS = 1000 * 1000, /* approximate limit for the longest message */
	LARGEST_LEAST = 4,        /* times LARGE, on the slowest link */
	LINGER_MS = 150,          /* as when a communicator is destroyed */
};

/* Sent by the lead to the other rank, in host byte order as all elements of collectives. */
struct order {
	uint32_t messages; /* in the burst; 0: no burst */
	uint32_t bytes;    /* of each */
	uint32_t is_last;
};

/* A measurement between this rank and `peer`. */
struct test {
	struct frl_comm *comm;
	int peer;
	uint64_t deadline_ns;
	uint8_t *buffer; /* of LARGEST bytes */
	struct order order;
	uint64_t answer; /* nanoseconds that the other rank has waited for a processor */
};

/* Nanoseconds of the shortest try; 0: none yet. */
struct times {
	uint64_t ping, burst, large, largest;
	uint32_t largest_bytes;
};

/* ---- transfers */

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
				"rank %d does not answer rank %d, which measures the costs of "
				"messages: is it stopped, or unreachable?",
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

/* Fills in the messages of a burst. Their contents do not matter. */
static int fill_burst(const struct test *t, enum frl_coll coll, struct frl_collective group[])
{
	uint32_t bytes = t->order.bytes, n = t->order.messages;

	for (uint32_t i = 0; i < n; i++)
		group[i] = transfer(t, coll, t->buffer + (size_t)i * bytes, bytes);
	return (int)n;
}

/* ---- the lead */

static void keep_least(uint64_t *least, uint64_t time_ns)
{
	if (*least == 0 || time_ns < *least)
		*least = time_ns > 0 ? time_ns : 1;
}

static void keep_time(uint64_t *least, uint64_t since_ns)
{
	keep_least(least, clock_now_ns() - since_ns);
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
		keep_time(ping, since_ns);
		return 0;
	}
	since_ns = clock_now_ns();
	n = fill_burst(t, FRL_SEND, group + 1);
	err = run(t, group, n + 1);
	if (!err)
		keep_time(burst, since_ns);
	return err;
}

static int try_burst(struct test *t, uint32_t messages, uint32_t bytes, uint64_t *burst)
{
	t->order = (struct order){ .messages = messages, .bytes = bytes };
	return order(t, NULL, burst);
}

/* The answers to the pings also report waits of the other rank during the bursts. */
static int try_all(struct test *t, struct times *times)
{
	int err = try_burst(t, BURST, SMALL, &times->burst);

	if (!err)
		err = try_burst(t, 1, LARGE, &times->large);
	if (!err)
		err = try_burst(t, 1, times->largest_bytes, &times->largest);
	for (int i = 0; i < PINGS && !err; i++) {
		t->order = (struct order){ .messages = 0 };
		err = order(t, &times->ping, NULL);
	}
	return err;
}

/* Returns the size of the longest message, which is shorter on slow links; a message of LARGE
 * takes `large_ns`. */
static uint32_t largest_for(uint64_t large_ns)
{
	uint32_t bytes = LARGEST_LEAST * LARGE;

	while (bytes < LARGEST && large_ns * (2 * bytes / LARGE) <= LARGEST_NS)
		bytes *= 2;
	return bytes;
}

/* Consecutive rounds. */
struct window {
	uint64_t pings[ROUNDS];
	unsigned rounds;
	/* waited_ns: for a processor, by the rank that waited longer */
	uint64_t passed_ns, waited_ns;
};

static int measure_window(struct test *t, struct window *window, struct times *times)
{
	uint64_t start_ns = clock_now_ns(), mine_ns = location_waited_ns(), theirs_ns = t->answer;
	int err = 0;

	*window = (struct window){ .rounds = 0 };
	while (!err && window->rounds < ROUNDS &&
		(window->rounds < ROUNDS_LEAST || window->passed_ns < WINDOW_NS)) {
		struct times round = { .largest_bytes = times->largest_bytes };

		err = try_all(t, &round);
		window->pings[window->rounds++] = round.ping;
		keep_least(&times->ping, round.ping);
		keep_least(&times->burst, round.burst);
		keep_least(&times->large, round.large);
		keep_least(&times->largest, round.largest);
		window->passed_ns = clock_now_ns() - start_ns;
	}
	mine_ns = location_waited_ns() - mine_ns;
	theirs_ns = t->answer - theirs_ns;
	window->waited_ns = mine_ns > theirs_ns ? mine_ns : theirs_ns;
	return err;
}

/*
 * Returns whether the least time is reliable: no rank waited for a processor for long, and several
 * pings were equally short. The latter shows that caches were warm and that no other virtual
 * machine had the processor, which cannot be seen directly.
 */
static bool is_calm(const struct window *window, uint64_t least_ns)
{
	unsigned alike = 0;

	for (unsigned i = 0; i < window->rounds; i++)
		alike += window->pings[i] - least_ns <= least_ns / ALIKE_PART;
	return alike >= ROUNDS_LEAST && window->waited_ns <= window->passed_ns / WAITED_PART;
}

static int lead(struct test *t, struct times *times, bool *ret_is_calm)
{
	struct times warm = { .largest_bytes = LARGEST_LEAST * LARGE };
	int err = try_all(t, &warm);
	/* The first round also connects. */
	uint64_t start_ns = clock_now_ns();

	*times = (struct times){ .largest_bytes = largest_for(warm.large) };
	*ret_is_calm = false;
	while (!err && !*ret_is_calm && clock_now_ns() - start_ns < CALM_WAIT_NS) {
		struct window window;

		err = measure_window(t, &window, times);
		*ret_is_calm = !err && is_calm(&window, times->ping);
	}
	t->order = (struct order){ .messages = 1, .bytes = LARGE, .is_last = 1 };
	/* A large message is acknowledged, so the other rank has everything afterwards. */
	if (!err)
		err = order(t, NULL, &warm.large);
	return err;
}

/* ---- the other rank */

static bool is_lossless(const struct frl_comm *comm)
{
	for (unsigned i = 0; i < comm->n_rails; i++) {
		if (!comm->rails[i].attr.lossless)
			return false;
	}
	return true;
}

/*
 * On lossy links the other rank must answer retransmissions until the lead has received everything,
 * which the lead reports by mail.
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
		mailbox_send(comm->mailbox, comm_member(comm, t->peer), MAIL_MEASURED, &comm->inbox,
			"", 0);
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
				"rank %d asks to measure %u messages of %u bytes: use the "
				"same Ferrule on all ranks",
				t->peer, n, t->order.bytes);
		/* Post the receives first: the answer reports that they are posted. */
		fill_burst(t, FRL_RECV, group);
		group[n] = transfer(t, FRL_SEND, &t->answer, sizeof(t->answer));
		err = run(t, group, (int)n + 1);
		if (!err && n > 0)
			err = run(t, &group[n], 1);
		/* Not before pings, which the system call would lengthen. */
		if (n > 0)
			t->answer = location_waited_ns();
	}
	return err;
}

/* ---- results */

/* Computes the costs from the measured times. `far` is TUNER_FAR or 0, and selects the costs to
 * set. A ping takes two latencies. The answer to a burst counts as one more message. */
static void evaluate(const struct times *times, int far, struct tuner_costs *costs)
{
	double latency = (double)times->ping / 2;
	/* If it is not above 0, the measurement was disturbed, and the cost is unknown. */
	double byte = ((double)times->largest - (double)times->large) /
		(double)(times->largest_bytes - LARGE);
	double large = (double)times->large - 2 * latency - LARGE * byte;
	double more = ((double)times->burst - 2 * latency) / (BURST - 1);

	costs->step[TUNER_LATENCY + far] = tuner_step(measure_least(latency));
	costs->step[TUNER_BYTE + far] = byte > 0 ? tuner_step(byte) : 0;
	costs->step[TUNER_LARGE + far] = tuner_step(measure_least(large));
	costs->step[TUNER_MESSAGE] = tuner_step(measure_least(more));
}

int measure_pair(struct frl_comm *comm, int lead_rank, int other, int far, uint8_t *buffer,
	struct measured *measured)
{
	bool leads = comm->rank == lead_rank;
	struct test t = { .comm = comm,
		.peer = leads ? other : lead_rank,
		.buffer = buffer,
		.deadline_ns = clock_now_ns() +
			(uint64_t)comm->config.connect_timeout_ms * NS_PER_MS };
	struct times times = { .ping = 0 };
	bool calm = false;
	int err;

	if (!leads && comm->rank != other)
		return 0;
	comm->measured_by = -1;
	err = leads ? lead(&t, &times, &calm) : follow(&t);
	if (!err)
		err = part(&t, leads);
	if (!err && leads) {
		evaluate(&times, far, &measured->costs);
		measured->is_calm = measured->is_calm && calm;
	}
	return err;
}
