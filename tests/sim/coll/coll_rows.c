/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives in virtual time, where time is the point: ranks that wait for others, ranks that
 * compute, and how soon ranks continue when a rail dies. `test_sim_coll_rows NAME` runs one row,
 * with its log.
 */
#include "tests/sim/coll/coll_world.h"

#include "collectives/communicator/communicator.h"
#include "collectives/communicator/rail_health.h"
#include "collectives/net/channel.h"
#include "tests/sim/common/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	RANKS_MAX = 8,
	LONG = 1 << 18, /* elements */
	CUTS_APART_NS = 150001,
};

static const uint64_t ns_per_s = 1000000000;

struct row {
	const char *name;
	void (*run)(struct frl_comm *comm, int rank);
	struct coll_config config; /* 0: a default */
	int timeout_ms;
	int cuts; /* at so many moments; some cut a message off, to a device that does not reduce */
	uint64_t most_ms; /* from the beginning to the end, in virtual time */
};

static uint64_t start_ns, end_ns;
static int32_t numbers[RANKS_MAX][2][LONG];

/* ---- the domains of one rank cannot be had */

static int poor_rank = -1;

int __real_frl_pd_create(struct frl_device *device, struct frl_pd **ret_pd);
int __wrap_frl_pd_create(struct frl_device *device, struct frl_pd **ret_pd);

int __wrap_frl_pd_create(struct frl_device *device, struct frl_pd **ret_pd)
{
	return coll_world->current->number == poor_rank ? -ENOMEM
							: __real_frl_pd_create(device, ret_pd);
}

/* ---- operations */

#define EXPECT(condition) SIM_CHECK(condition, "%s", frl_last_error())

/* A sum of ones in one of the rank's two buffers. */
static struct frl_request *start(struct frl_comm *comm, int rank, int buffer, size_t count)
{
	struct frl_request *request = NULL;

	for (size_t i = 0; i < count; i++)
		numbers[rank][buffer][i] = 1;
	EXPECT(frl_allreduce_start(comm, numbers[rank][buffer], numbers[rank][buffer], count,
		       FRL_INT32, FRL_SUM, &request) == 0);
	return request;
}

static void finish(
	struct frl_comm *comm, struct frl_request *request, int rank, int buffer, size_t count)
{
	const int32_t *got = numbers[rank][buffer];

	EXPECT(frl_request_wait(request) == 0);
	for (size_t i = 0; i < count; i++)
		SIM_CHECK(got[i] == frl_comm_size(comm), "rank %d: %d", rank, got[i]);
}

/* ---- several communicators */

/* Each waits for an operation that the other one has yet to advance. */
static void test_crosswise(struct frl_comm *comm, int rank)
{
	struct frl_backoff backoff = { 0 };
	struct frl_comm *other;
	struct frl_request *requests[2];
	bool done = false;

	EXPECT(frl_comm_duplicate(comm, &other) == 0);
	requests[0] = start(comm, rank, 0, LONG);
	requests[1] = start(other, rank, 1, LONG);
	while (!done) {
		EXPECT(frl_request_test(requests[rank % 2], &done) == 0);
		frl_backoff_idle(&backoff);
	}
	finish(comm, requests[!(rank % 2)], rank, !(rank % 2), LONG);
	frl_comm_destroy(other);
}

/* Ended communicators make room for new ones. */
static void split_often(struct frl_comm *comm, int rank)
{
	for (int i = 0; i < 40; i++) {
		struct frl_comm *child;

		EXPECT(frl_comm_split(comm, (rank + i) % 2, -rank, &child) == 0);
		finish(child, start(child, rank, 0, 1), rank, 0, 1);
		frl_comm_destroy(child);
	}
}

/* A failure of one communicator does not affect others. */
static void abort_sibling(struct frl_comm *comm, int rank)
{
	struct frl_request *request, *lost;
	struct frl_comm *child;

	EXPECT(frl_comm_duplicate(comm, &child) == 0);
	request = start(comm, rank, 0, LONG);
	lost = start(child, rank, 1, LONG);
	if (rank == 0)
		frl_comm_abort(child, "for a try");
	finish(comm, request, rank, 0, LONG);
	EXPECT(frl_barrier(comm) == 0);
	SIM_CHECK(frl_request_wait(lost) == -ECANCELED && strstr(frl_last_error(), "for a try"),
		"rank %d: %s", rank, frl_last_error());
	frl_comm_destroy(child);
	EXPECT(frl_barrier(comm) == 0);
}

/* The reason comes by mail, later than the news that the rank has left and that it gave up, unless
 * that comes later still. */
static void abort_and_leave(struct frl_comm *comm, int rank)
{
	int rc;

	if (rank == 1) {
		frl_comm_abort(comm, "for a try");
		return;
	}
	rc = frl_allreduce(comm, numbers[rank][0], numbers[rank][0], 1, FRL_INT32, FRL_SUM);
	SIM_CHECK(rc == -ECANCELED && strstr(frl_last_error(), "rank 1 aborted: for a try"),
		"rank %d: %d, %s", rank, rc, frl_last_error());
}

/* One rank has no memory for the new communicator: no rank gets it, and the old one continues. */
static void split_poor(struct frl_comm *comm, int rank)
{
	struct frl_comm *child = comm;
	int rc;

	poor_rank = 2;
	rc = frl_comm_split(comm, rank % 2, 0, &child);
	if (rank % 2)
		SIM_CHECK(rc == 0 && child, "rank %d: %s", rank, frl_last_error());
	else
		SIM_CHECK(rc == -ENOMEM && !child &&
				(rank == 2 || strstr(frl_last_error(), "rank 2 ")),
			"rank %d: %d, %s", rank, rc, frl_last_error());
	poor_rank = -1;
	EXPECT(frl_barrier(comm) == 0);
	frl_comm_destroy(child);
}

/* ---- timeouts */

/* The last rank of the line has not moved for long, and nothing is wrong. */
static void queue_up(struct frl_comm *comm, int rank)
{
	struct frl_request *requests[2][8];

	for (int i = 0; i < 8; i++)
		for (int buffer = 0; buffer < 2; buffer++)
			requests[buffer][i] = start(comm, rank, buffer, buffer ? LONG : 1);
	for (int i = 0; i < 8; i++)
		for (int buffer = 0; buffer < 2; buffer++)
			EXPECT(frl_request_wait(requests[buffer][i]) == 0);
}

static void compute(struct frl_comm *comm, int rank)
{
	struct frl_backoff backoff = { 0 };
	struct frl_request *request;
	uint64_t began_ns = coll_now();
	bool done = false;

	if (rank == 1)
		coll_compute(4500 * (uint64_t)NS_PER_MS);
	request = start(comm, rank, 0, LONG);
	while (!done && coll_now() - began_ns < 100 * NS_PER_MS) {
		EXPECT(frl_request_test(request, &done) == 0);
		frl_backoff_idle(&backoff);
	}
	if (rank == 0)
		coll_compute(4000 * (uint64_t)NS_PER_MS);
	finish(comm, request, rank, 0, LONG);
}

/* A NIC holds memory for long: operations end, and it is given back later. */
static void sum_held(struct frl_comm *comm, int rank)
{
	for (int i = 0; i < 4; i++)
		finish(comm, start(comm, rank, 0, LONG), rank, 0, LONG);
	coll_compute(2 * ns_per_s);
	if (rank == 0)
		coll_world->config.hold_ns /= 50;
	EXPECT(frl_barrier(comm) == 0);
}

/* Rank 1 lives, and its answer comes late. */
static void answer_late(struct frl_comm *comm, int rank)
{
	static const char *const text = "rank 1 has not started it";
	int rc;

	EXPECT(frl_barrier(comm) == 0);
	if (rank == 1)
		coll_compute(10 * ns_per_s);
	rc = frl_allreduce(comm, numbers[rank][0], numbers[rank][0], 1, FRL_INT32, FRL_SUM);
	SIM_CHECK(rc == -ETIMEDOUT && strstr(frl_last_error(), text), "rank %d: %d, %s", rank, rc,
		frl_last_error());
}

/* ---- rails */

/* The others wait in a child for rank 0, which waits for a repair that they must make. */
static void wait_in_child(struct frl_comm *comm, int rank)
{
	struct frl_comm *child;
	struct frl_request *request;

	EXPECT(frl_comm_duplicate(comm, &child) == 0);
	EXPECT(frl_barrier(child) == 0);
	request = start(comm, rank, 0, LONG);
	if (rank == 0)
		finish(comm, request, rank, 0, LONG);
	EXPECT(frl_barrier(child) == 0);
	if (rank != 0)
		finish(comm, request, rank, 0, LONG);
	frl_comm_destroy(child);
}

/* Rank 0 and one other exchange something long, while the others wait; then rank 0 and the next. */
static void exchange(struct frl_comm *comm, int rank)
{
	for (int peer = 1; peer < frl_comm_size(comm); peer++) {
		int to = rank == 0 ? peer : 0;
		const struct frl_collective pair[2] = {
			{ .coll = FRL_SEND, .send = numbers[rank][0], .count = LONG, .root = to },
			{ .coll = FRL_RECV, .recv = numbers[rank][1], .count = LONG, .root = to },
		};
		struct frl_request *request;

		if (rank == 0 || rank == peer) {
			EXPECT(frl_start_group(comm, pair, 2, &request) == 0);
			EXPECT(frl_request_wait(request) == 0);
		}
		EXPECT(frl_barrier(comm) == 0);
	}
}

/* All connections exist when the rail dies. */
static void lose_rail(struct frl_comm *comm, int rank)
{
	exchange(comm, rank);
	EXPECT(frl_barrier(comm) == 0);
	SIM_CHECK(!coll_world->cuts, "rank %d: the rail died too soon", rank);
	coll_compute(500 * (uint64_t)NS_PER_MS);
	SIM_CHECK(coll_world->cuts, "rank %d: the rail is there", rank);
	exchange(comm, rank);
}

/* A rail dies while sums are under way. */
static void sum_meanwhile(struct frl_comm *comm, int rank)
{
	for (int i = 0; i < 12; i++)
		finish(comm, start(comm, rank, 0, LONG), rank, 0, LONG);
	SIM_CHECK(coll_world->cuts, "rank %d: the rail is there", rank);
}

static int planned_cuts(void)
{
	int n = 0;

	while (n < COLL_CUTS && coll_world->config.cuts[n].ns)
		n++;
	return n;
}

/* The number of cuts so far, on which all ranks must agree. They ask each other by the library: a
 * rank whose acknowledgements are lost in a cut needs the others in it. */
static int32_t agree_on_cuts(struct frl_comm *comm)
{
	int32_t mine = coll_world->cuts, most = 0;

	EXPECT(frl_allreduce(comm, &mine, &most, 1, FRL_INT32, FRL_MAX) == 0);
	return most;
}

/* Polls as long as rails die and come back, and a little longer; slowly while nothing happens. */
static void sum_until_cut(struct frl_comm *comm, int rank)
{
	int cuts = 0, sums = 0, quiet = 0;

	for (int after = 0; after < 3; after += cuts == planned_cuts()) {
		int before = cuts;

		finish(comm, start(comm, rank, 0, LONG), rank, 0, LONG);
		cuts = agree_on_cuts(comm);
		quiet = cuts == before ? quiet + 1 : 0;
		sums++;
		if (quiet > 10)
			coll_compute(70 * (uint64_t)NS_PER_MS);
	}
	SIM_CHECK(sums > 3, "rank %d: all was over at once", rank);
}

/* The same without calls of the library between the cuts: nothing may be lost by that. */
static void sum_at_times(struct frl_comm *comm, int rank)
{
	finish(comm, start(comm, rank, 0, LONG), rank, 0, LONG);
	while (agree_on_cuts(comm) < planned_cuts()) {
		coll_compute(1100 * (uint64_t)NS_PER_MS);
		finish(comm, start(comm, rank, 0, 1000), rank, 0, 1000);
	}
	finish(comm, start(comm, rank, 0, LONG), rank, 0, LONG);
}

/* New connections use rails that came back, and no rail is suspected without a reason. */
static void split_after(struct frl_comm *comm, int rank)
{
	struct frl_comm *child;
	uint32_t suspicions;

	sum_until_cut(comm, rank);
	coll_compute(100 * (uint64_t)NS_PER_MS);
	EXPECT(frl_barrier(comm) == 0);
	suspicions = rail_suspicions(comm, 0) + rail_suspicions(comm, 1);
	for (int ms = 0; ms < 70000; ms += 10000) {
		EXPECT(frl_comm_duplicate(comm, &child) == 0);
		finish(child, start(child, rank, 0, LONG), rank, 0, LONG);
		SIM_CHECK(rail_suspicions(comm, 0) + rail_suspicions(comm, 1) == suspicions,
			"rank %d: new suspicions", rank);
		for (int i = 0; ms >= 60000 && i < coll_world->config.rails; i++)
			SIM_CHECK(child->first_peer->channels[i]->epoch == 0,
				"rank %d: rail %d is not used any more", rank, i);
		frl_comm_destroy(child);
		coll_compute(10000 * (uint64_t)NS_PER_MS);
	}
}

/* Rail 0 of the rank dies, with the frames on their way to it. */
static void cut_rail(int rank)
{
	struct coll_port *port = &coll_world->ranks[rank].ports[0];

	port->to.cut = port->from.cut = true;
}

/* `sender` sends to the other. The first one to finish cuts the sender's or the receiver's rail and
 * stays outside, while the other one needs it to continue over the other rail. */
static void need_absent(struct frl_comm *comm, int rank, int first, int cut, size_t count)
{
	const struct frl_collective c = { .coll = rank == 0 ? FRL_SEND : FRL_RECV,
		.send = numbers[0][0],
		.recv = numbers[1][0],
		.count = count,
		.dtype = FRL_INT32,
		.root = !rank };
	uint64_t began_ns;

	EXPECT(frl_barrier(comm) == 0);
	began_ns = coll_now();
	EXPECT(frl_run(comm, &c) == 0);
	if (rank == first)
		cut_rail(cut);
	else
		SIM_CHECK(coll_now() - began_ns > ns_per_s && coll_now() - began_ns < 20 * ns_per_s,
			"that took %d ms", (int)((coll_now() - began_ns) / NS_PER_MS));
	coll_stay_outside(30 * ns_per_s);
	EXPECT(frl_barrier(comm) == 0);
}

/* Rank 1 has received all, and its acknowledgements are lost. */
static void lose_acks(struct frl_comm *comm, int rank)
{
	need_absent(comm, rank, 1, 0, LONG);
}

/* Rank 0 has sent a short message, which is lost. */
static void lose_data(struct frl_comm *comm, int rank)
{
	need_absent(comm, rank, 0, 1, 1);
}

/* Nothing is left: all ranks report so. */
static void lose_all(struct frl_comm *comm, int rank)
{
	int rc = 0;

	while (!rc) {
		struct frl_request *request;

		rc = frl_allreduce_start(comm, numbers[rank][0], numbers[rank][0], LONG, FRL_INT32,
			FRL_SUM, &request);
		if (!rc)
			rc = frl_request_wait(request);
	}
	SIM_CHECK(strstr(frl_last_error(), "rank 1") != NULL, "rank %d: %d, %s", rank, rc,
		frl_last_error());
}

#define MS(n) ((n) * (uint64_t)NS_PER_MS)

#define SUMS(mask)                                                                \
	.ranks = 3, .rails = 2, .poor = (mask), .to = { .rate_bps = 1000000000 }, \
	.cuts = { { .ns = MS(20), .rank = 1 } }

#define CUT(told) .cuts = { { .ns = MS(300), .rank = 0, .rail = 1, .is_told = (told) } }

/* Rail 0 of rank 1 is down for `ms`; a moment later rail 1 is. */
#define TURNS(from, ms, told)                                                              \
	{ .ns = MS(from), .rank = 1, .is_told = (told) },                                  \
		{ .ns = MS((from) + (ms)), .rank = 1, .is_told = (told), .heals = true },  \
		{ .ns = MS((from) + (ms) + 50), .rank = 1, .rail = 1, .is_told = (told) }, \
	{                                                                                  \
		.ns = MS((from) + 2 * (ms) + 50), .rank = 1, .rail = 1, .is_told = (told), \
		.heals = true                                                              \
	}

#define BACK(mask, ...)                                                           \
	.ranks = 3, .rails = 2, .poor = (mask), .to = { .rate_bps = 1000000000 }, \
	.cuts = { __VA_ARGS__ }

static const struct row rows[] = {
	{ "test_crosswise", test_crosswise, { .ranks = 2 }, .most_ms = 1000 },
	{ "split_often", split_often, { .ranks = 4 }, .most_ms = 3000 },
	{ "abort_sibling", abort_sibling, { .ranks = 3 }, .most_ms = 1000 },
	{ "abort_and_leave", abort_and_leave,
		{ .ranks = 3, .mail_ns = MS(70), .may_fail = true, .tells_leaving = true },
		.most_ms = 1000 },
	{ "abort_and_leave_late", abort_and_leave,
		{ .ranks = 3,
			.mail_ns = MS(40),
			.gone_ns = MS(500),
			.may_fail = true,
			.tells_leaving = true },
		.most_ms = 1000 },
	{ "split_poor", split_poor, { .ranks = 5 }, .most_ms = 1000 },
	{ "queue_up", queue_up,
		{ .ranks = 2, .to = { .rate_bps = 100000000 }, .from = { .rate_bps = 100000000 } },
		.timeout_ms = 300, .most_ms = 3000 },
	{ "compute", compute, { .ranks = 2 }, .timeout_ms = 2000, .most_ms = 6000 },
	{ "answer_late", answer_late, { .ranks = 2, .mail_ns = MS(1000), .may_fail = true },
		.timeout_ms = 3000, .most_ms = 20000 },
	{ "nic_holds_memory", sum_held, { .ranks = 3, .hold_ns = MS(20) }, .most_ms = 2500 },
	{ "nic_holds_it_long", sum_held, { .ranks = 3, .hold_ns = MS(1000) }, .most_ms = 3000 },
	{ "wait_in_child", wait_in_child,
		{ .ranks = 4,
			.rails = 2,
			.cuts = { { .ns = 50 * NS_PER_MS, .rank = 1 } },
			.to = { .rate_bps = 100000000 } },
		.most_ms = 25000 },
	{ "rail_dies", lose_rail, { .ranks = 8, .rails = 2, CUT(false) }, .most_ms = 13000 },
	/* The search for the reason takes no longer than its limit, however late a nap ends. */
	{ "rail_dies_busy", lose_rail,
		{ .ranks = 8, .rails = 2, .oversleep_ns = MS(19), CUT(false) }, .most_ms = 14000 },
	{ "rail_dies_in_sums", sum_meanwhile, { SUMS(0) }, .most_ms = 13000 },
	{ "of_hardware", sum_meanwhile, { SUMS(7) }, .most_ms = 13000, .cuts = 12 },
	{ "of_some_hardware", sum_meanwhile, { SUMS(3) }, .most_ms = 13000, .cuts = 12 },
	{ "that_tells", sum_meanwhile, { SUMS(7), .poor_tell = true }, .most_ms = 13000,
		.cuts = 12 },
	{ "hardware_abort", abort_sibling, { .ranks = 3, .poor = 7 }, .most_ms = 1000 },
	{ "port_down", lose_rail, { .ranks = 8, .rails = 2, CUT(true) }, .most_ms = 1500 },
	{ "rail_back", sum_until_cut, { BACK(0, TURNS(20, 8000, false)) }, .most_ms = 25000 },
	{ "rail_back_hardware", sum_until_cut, { BACK(7, TURNS(20, 8000, false)) },
		.most_ms = 25000 },
	{ "port_back", sum_until_cut, { BACK(0, TURNS(20, 200, true), TURNS(520, 200, true)) },
		.most_ms = 3000 },
	{ "port_flaps", sum_until_cut,
		{ BACK(5, TURNS(20, 70, true), TURNS(260, 70, true), TURNS(500, 70, true),
			TURNS(740, 30, true), TURNS(900, 30, true), TURNS(1060, 30, true)) },
		.most_ms = 5000 },
	{ "port_flaps_idle", sum_at_times,
		{ BACK(0, TURNS(50, 1200, true), TURNS(2600, 1200, true), TURNS(5200, 1200, true),
			TURNS(7800, 1200, true)) },
		.most_ms = 20000 },
	{ "split_after", split_after, { BACK(0, TURNS(20, 8000, false)) }, .most_ms = 120000 },
	{ "acks_lost", lose_acks, { .ranks = 2, .rails = 2, .progresses = true },
		.most_ms = 50000 },
	{ "data_lost", lose_data, { .ranks = 2, .rails = 2, .progresses = true },
		.most_ms = 50000 },
	{ "no_rail_left", lose_all,
		{ .may_fail = true,
			BACK(0, { .ns = MS(20), .rank = 1 },
				{ .ns = MS(30), .rank = 1, .rail = 1 }) },
		.most_ms = 25000 },
	{ "no_common_rail", lose_all,
		{ .may_fail = true,
			BACK(0, { .ns = MS(20), .rank = 1, .is_told = true },
				{ .ns = MS(30), .rank = 2, .rail = 1, .is_told = true },
				{ .ns = MS(40), .rank = 0, .rail = 1, .is_told = true }) },
		.most_ms = 25000 },
};

/* ---- a world */

static void run_rank(struct frl_bootstrap *bootstrap, struct frl_device *const devices[], void *arg)
{
	const struct row *row = arg;
	struct frl_comm_config config;
	struct frl_comm *comm;

	frl_comm_config_init(&config);
	config.devices = devices;
	config.n_devices = row->config.rails ? row->config.rails : 1;
	config.timeout_ms = row->timeout_ms;
	if (bootstrap->rank == 0)
		start_ns = coll_now();
	EXPECT(frl_comm_create_with(bootstrap, &config, &comm) == 0);
	row->run(comm, bootstrap->rank);
	frl_comm_destroy(comm);
	end_ns = coll_now();
}

static void init_link(struct link_config *link)
{
	link->delay_ns = 1000;
	link->queue_frames = 100000;
	if (!link->rate_bps)
		link->rate_bps = UINT64_C(10000000000);
}

/* Returns how many messages were cut off. */
static uint64_t run_world(const struct row *row, uint64_t moment)
{
	struct coll_config config = row->config;
	struct coll_world world;
	uint64_t ms, partials;

	config.seed = 1;
	config.rails = config.rails ? config.rails : 1;
	config.ranks_per_host = 2;
	config.mtu = 4096;
	config.mail_ns = config.mail_ns ? config.mail_ns : 200000;
	config.deadline_ns = 200 * ns_per_s;
	config.run = run_rank;
	config.arg = (void *)(uintptr_t)row; /* only read */
	init_link(&config.to);
	init_link(&config.from);
	config.cuts[0].ns += config.cuts[0].ns ? moment * CUTS_APART_NS : 0;
	printf("%-20s", row->name);
	coll_world_run(&world, &config);
	ms = (end_ns - start_ns) / NS_PER_MS;
	printf("%8d ms\n", (int)ms);
	SIM_CHECK(ms <= row->most_ms, "%s took %d ms, and should take %d", row->name, (int)ms,
		(int)row->most_ms);
	partials = world.poor_partials;
	coll_world_free(&world);
	return partials;
}

#ifdef __SANITIZE_ADDRESS__
enum { MOMENTS_APART = 3 }; /* five times as slow: the same code, for its memory errors */
#else
enum { MOMENTS_APART = 1 };
#endif

static void run_row(const struct row *row)
{
	uint64_t partials = 0;

	if (row->cuts == 0)
		run_world(row, 0);
	for (int i = 0; i < row->cuts; i += MOMENTS_APART)
		partials += run_world(row, (uint64_t)i);
	SIM_CHECK(row->cuts == 0 || partials > 0, "%s cut no message off", row->name);
}

static void print_log(enum frl_log_level level, const char *message, void *arg)
{
	printf("%6d ms: %s\n", coll_world ? (int)(coll_now() / NS_PER_MS) : 0, message);
}

int main(int argc, char **argv)
{
	setenv("FRL_CONTROL", "off", 1);
	setenv("FRL_SEGMENT_KB", "16", 1);
	setenv("FRL_TUNER_COSTS", "default", 1);
	if (argc > 1)
		frl_set_log(print_log, FRL_LOG_INFO, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (argc < 2 || strcmp(argv[1], rows[i].name) == 0)
			run_row(&rows[i]);
	}
	return 0;
}
