/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Costs of plans, for the tuner's model. They are computed by formulas, since making a plan of each
 * algorithm would take longer than many operations. docs/design/algorithms.md lists the numbers of
 * rounds and bytes, and test_plans_theory checks them on real plans.
 *
 * Links that are idle while other ranks catch up are modelled by factors, `overlap` and `stretch`,
 * which were determined with tests/sim/coll/coll_choice.c.
 */
#include "collectives/plan/algos.h"
#include "collectives/plan/direct_reduce.h"
#include "collectives/plan/hierarchical_rings.h"
#include "collectives/plan/rings.h"

enum {
	SLOTS_ENOUGH = 4,   /* ranks of a ring whose partial sums need not wait for scratch */
	LARGE_MESSAGES = 2, /* for one large message: the message and its credit */
};

/* part of the latency that overlaps with other segments */
static const double ring_overlap = 0.75;
/* factor for halves that are sent while others wait for theirs */
static const double halving_stretch = 1.4;
static const double bruck_stretch = 1.2; /* factor for blocks that wait for whole rounds */
static const double tree_stretch = 0.06; /* per level */

/* A cost being computed. */
struct count {
	const struct plan_job *job;
	struct plan_cost *cost;
	double n, bytes; /* ranks; bytes of a vector or block, as sent */
};

static bool has_hosts(const struct plan_job *job)
{
	return job->topology->hosts > 1;
}

static bool is_large(double bytes)
{
	return bytes > EAGER_BYTES;
}

/*
 * Adds `times` dependent messages of `bytes`. Large ones wait for a credit, except with `is_ahead`,
 * where credits were granted early.
 */
static void follow(struct count *c, bool is_far, double times, double bytes, bool is_ahead)
{
	struct plan_path *path = &c->cost->path[is_far];

	path->rounds += times;
	if (!is_large(bytes) || times <= 0)
		return;
	path->large += times;
	path->waits += is_ahead ? 1 : times;
}

/* Adds a number of messages to one rank, which receives large ones in turn. Short ones wait
 * there, in slots. */
static void follow_in_turn(struct count *c, double times, double bytes)
{
	follow(c, has_hosts(c->job), is_large(bytes) ? times : 1, bytes, false);
}

/* Adds bytes that are sent one after the other, within a host or between hosts (`is_far`). */
static void add_path_bytes(struct count *c, bool is_far, double bytes)
{
	c->cost->path[is_far].bytes += bytes;
}

/* Adds messages that a rank sends on average. A large one counts twice, for its credit. */
static void add_mean_messages(struct count *c, double messages, double bytes_each)
{
	c->cost->messages += messages * (is_large(bytes_each) ? LARGE_MESSAGES : 1);
	c->cost->volume += messages * bytes_each;
}

/* Adds rounds in which each rank sends one message. */
static void rounds(struct count *c, bool is_far, double times, double bytes, bool is_ahead)
{
	follow(c, is_far, times, bytes, is_ahead);
	add_path_bytes(c, is_far, times * bytes);
	add_mean_messages(c, times, bytes);
}

/* Returns whether ranks whose positions differ in the bit of `distance` are on different hosts. */
static bool is_far_at(const struct plan_job *job, uint32_t distance)
{
	const struct topology *topology = job->topology;
	uint32_t size = 1;

	if (topology->hosts == 1)
		return false;
	while (size < topology->ranks &&
		topology->locations[topology->order[size]].host ==
			topology->locations[topology->order[0]].host)
		size++;
	return 2 * distance > size || topology->ranks != size * topology->hosts;
}

static double segment_of(const struct count *c, size_t elements)
{
	return (double)plan_segment(c->job, elements) * (double)c->job->elem_size;
}

/* ---- ring and chains */

/* Adds `times` hops around the ring; one hop per host is between hosts. */
static void around(struct count *c, double times, double bytes, bool is_ahead)
{
	double hosts = c->job->topology->hosts;
	double far = has_hosts(c->job) ? times * hosts / c->n : 0;

	follow(c, true, far, bytes, is_ahead);
	follow(c, false, times - far, bytes, is_ahead);
	add_path_bytes(c, has_hosts(c->job), times * bytes);
	add_mean_messages(c, times, bytes);
}

/* Adds a chain of `hops` ranks; the last segment comes after all others. */
static void chain(struct count *c, bool is_far, double hops, double stages)
{
	double segment = segment_of(c, c->job->count);

	if (segment > c->bytes)
		segment = c->bytes;
	follow(c, is_far, hops, segment, true);
	add_path_bytes(c, is_far, c->bytes + (stages - 1) * segment);
}

static void count_ring(struct count *c)
{
	double bytes = c->job->coll == FRL_ALLREDUCE ? c->bytes / c->n : c->bytes;

	switch (c->job->coll) {
	case FRL_ALLREDUCE:
		around(c, 2 * (c->n - 1), bytes, true);
		c->cost->reduced = (c->n - 1) / c->n * c->bytes;
		break;
	case FRL_REDUCE_SCATTER:
		around(c, c->n - 1, bytes, true);
		/* Partial sums have two slots, and wait for them. */
		if (is_large(bytes) && c->n > SLOTS_ENOUGH)
			c->cost->path[has_hosts(c->job)].waits += c->n - SLOTS_ENOUGH;
		c->cost->reduced = (c->n - 1) * c->bytes;
		break;
	case FRL_ALLGATHER:
		around(c, c->n - 1, bytes, true);
		c->cost->reduced = c->bytes;
		break;
	default:
		chain(c, has_hosts(c->job), c->n - 1, c->n - 1);
		add_mean_messages(c, (c->n - 1) / c->n, c->bytes);
		c->cost->reduced = c->bytes;
		return;
	}
	if (plan_ring_count(c->job) > 1 || bytes > segment_of(c, (size_t)bytes / c->job->elem_size))
		c->cost->overlap = ring_overlap;
}

/* ---- halving and doubling */

static uint32_t power_below(uint32_t n)
{
	uint32_t power = 1;

	while (2 * power <= n)
		power *= 2;
	return power;
}

/* Adds rounds with partners at all distances, each with its part of `all` bytes. */
static void exchange(struct count *c, uint32_t n, double all)
{
	for (uint32_t distance = 1; distance < n; distance *= 2) {
		double bytes = all * distance / n;
		double stretch = bytes > (double)c->job->segment_bytes ? halving_stretch : 1;
		bool is_far = is_far_at(c->job, distance);

		rounds(c, is_far, 1, bytes, false);
		add_path_bytes(c, is_far, (stretch - 1) * bytes);
	}
}

static void count_halving(struct count *c)
{
	uint32_t n = power_below((uint32_t)c->job->ranks);

	if (c->job->coll != FRL_ALLREDUCE) {
		exchange(c, n, c->n * c->bytes);
		c->cost->reduced = (c->job->coll == FRL_ALLGATHER ? 1 : c->n - 1) * c->bytes;
		return;
	}
	exchange(c, n, c->bytes);
	exchange(c, n, c->bytes);
	c->cost->reduced = (n - 1.0) / n * c->bytes;
	if (!plan_is_power_of_two((uint32_t)c->job->ranks)) {
		follow(c, has_hosts(c->job), 2, c->bytes, false);
		add_path_bytes(c, has_hosts(c->job), 2 * c->bytes);
		add_mean_messages(c, 2 * (c->n - n) / c->n, c->bytes);
		c->cost->reduced += c->bytes;
	}
}

/* ---- trees */

/* The root moves n - 1 blocks; half of them are forwarded by the ranks below it. */
static void count_binomial(struct count *c)
{
	double levels = plan_log2_up((uint32_t)c->job->ranks);
	bool is_far = has_hosts(c->job);

	c->cost->reduced = c->bytes;
	follow(c, is_far, levels, c->n / 2 * c->bytes, false);
	add_path_bytes(c, is_far, (c->n - 1) * c->bytes + c->n / 2 * c->bytes);
	add_mean_messages(c, (c->n - 1) / c->n, levels / 2 * c->bytes);
}

static void count_tree(struct count *c)
{
	double levels = plan_log2_up((uint32_t)c->job->ranks);
	double half = c->bytes / 2, segment = segment_of(c, c->job->count / 2);
	double ways = c->job->coll == FRL_ALLREDUCE ? 2 : 1;
	bool is_far = has_hosts(c->job);
	double most = c->n > 2 ? ways * c->bytes : c->bytes;

	if (shape_root_all_blocks(c->job->coll)) {
		count_binomial(c);
		return;
	}
	if (half > segment)
		most *= 1 + tree_stretch * levels;
	else
		segment = half;
	/* A node sends a half to two children; the last segment goes last, to the second child
	 * at each level. */
	follow(c, is_far, ways * levels, segment, false);
	/* Partial sums have two slots, and the second child waits for the first. */
	if (c->job->coll == FRL_REDUCE && half > segment)
		c->cost->path[is_far].waits += levels;
	add_path_bytes(c, is_far, most + 2 * ways * (levels - 1) * segment);
	c->cost->path[is_far].more = ways * levels;
	add_mean_messages(c, 2 * ways * (c->n - 1) / c->n, half);
	c->cost->reduced = c->bytes;
}

/* ---- direct and pairwise */

/* Adds one message to each other rank at once, or from one rank to all. */
static void at_once(struct count *c, double bytes, bool has_root)
{
	follow(c, has_hosts(c->job), 1, bytes, false);
	add_path_bytes(c, has_hosts(c->job), (c->n - 1) * bytes);
	c->cost->path[has_hosts(c->job)].more += c->n - 2;
	add_mean_messages(c, (c->n - 1) / (has_root ? c->n : 1), bytes);
}

/* Returns whether contributions are received in turn; small or encoded ones are received side by
 * side and added later. */
static bool is_in_turn(const struct plan_job *job)
{
	return !plan_direct_is_small(job) && !plan_is_encoded(job);
}

/* The same, where each rank (or only the root) adds up what it receives. */
static void at_once_to_reduce(struct count *c, double bytes, bool has_root)
{
	at_once(c, bytes, has_root);
	if (is_in_turn(c->job))
		follow_in_turn(c, c->n - 2, bytes);
}

static void count_direct(struct count *c)
{
	c->cost->reduced = c->bytes;
	switch (c->job->coll) {
	case FRL_ALLREDUCE:
		c->cost->reduced = (c->n - 1) * c->bytes;
		if (plan_direct_is_small(c->job)) {
			at_once(c, c->bytes, false);
			return;
		}
		c->cost->reduced /= c->n;
		at_once_to_reduce(c, c->bytes / c->n, false);
		at_once(c, c->bytes / c->n, false);
		return;
	case FRL_REDUCE_SCATTER:
	case FRL_REDUCE:
		at_once_to_reduce(c, c->bytes, c->job->coll == FRL_REDUCE);
		c->cost->reduced = (c->n - 1) * c->bytes;
		return;
	case FRL_BROADCAST:
	case FRL_GATHER:
	case FRL_SCATTER: break;
	case FRL_SEND:
	case FRL_RECV:
		rounds(c, has_hosts(c->job), 1, c->bytes, false);
		c->cost->reduced = 0;
		return;
	case FRL_BARRIER:
		at_once(c, c->bytes, false);
		c->cost->reduced = 0;
		return;
	default: at_once(c, c->bytes, false); return;
	}
	at_once(c, c->bytes, true);
}

static void count_pairwise(struct count *c)
{
	if (c->job->coll == FRL_REDUCE_SCATTER && is_large(c->bytes))
		follow_in_turn(c, c->n - 1, c->bytes);
	else /* two rounds overlap */
		follow(c, has_hosts(c->job), c->n / 2, c->bytes, false);
	add_path_bytes(c, has_hosts(c->job), (c->n - 1) * c->bytes);
	add_mean_messages(c, c->n - 1, c->bytes);
	c->cost->reduced = (c->job->coll == FRL_REDUCE_SCATTER ? c->n - 1 : 1) * c->bytes;
}

/* ---- bruck */

static void count_bruck(struct count *c)
{
	double levels = plan_log2_up((uint32_t)c->job->ranks);
	bool is_far = has_hosts(c->job);
	double bytes = c->bytes;

	switch (c->job->coll) {
	case FRL_ALLGATHER:
		for (double held = 1; held < c->n; held *= 2) {
			double sent = (2 * held < c->n ? held : c->n - held) * bytes;

			rounds(c, is_far, 1, sent, false);
			/* The round waits for the whole previous round. */
			if (held > 1 && is_large(sent)) {
				c->cost->path[is_far].waits++;
				add_path_bytes(c, is_far, (bruck_stretch - 1) * sent);
			}
		}
		c->cost->reduced = bytes;
		break;
	case FRL_ALLTOALL:
		rounds(c, is_far, levels, c->n / 2 * bytes, false);
		c->cost->reduced = c->n * (levels + 2) * bytes;
		break;
	case FRL_BARRIER: rounds(c, is_far, levels, bytes, false); break;
	default:
		if (c->job->coll == FRL_REDUCE_SCATTER)
			bytes *= c->n;
		rounds(c, is_far, levels, bytes / 2, false);
		if (c->job->coll != FRL_REDUCE_SCATTER) /* then the sums are shared */
			rounds(c, is_far, levels, bytes / levels, false);
		c->cost->reduced = (2 * levels + 2) * bytes;
		break;
	}
}

/* ---- hosts */

static void count_hosts(struct count *c)
{
	uint32_t largest, common = plan_hosts_common(c->job, &largest);
	double hosts = c->job->topology->hosts, local = largest;
	double ways = c->job->coll == FRL_ALLREDUCE ? 2 : 1;
	double bytes = c->bytes;

	switch (c->job->coll) {
	case FRL_ALLREDUCE:
		c->cost->reduced = (c->n - 1) / c->n * bytes;
		if (common == 0) {
			rounds(c, false, ways * (local - 1), bytes / (local - 1), true);
			rounds(c, true, ways * (hosts - 1), bytes / hosts, true);
			return;
		}
		rounds(c, false, ways * (local - 1), bytes / local, true);
		rounds(c, true, ways * (hosts - 1), bytes / c->n, true);
		return;
	case FRL_REDUCE_SCATTER:
	case FRL_ALLGATHER:
		rounds(c, false, local - 1, hosts * bytes, true);
		rounds(c, true, hosts - 1, bytes, true);
		c->cost->reduced = c->job->coll == FRL_ALLGATHER ? bytes
								 : (hosts * local - 1) * bytes;
		return;
	case FRL_BARRIER:
		rounds(c, false, 2, bytes, false);
		c->cost->path[0].more = local - 1;
		rounds(c, true, plan_log2_up((uint32_t)hosts), bytes, false);
		return;
	default:
		/* A leader sends all data twice: to the next leader and within its host. */
		chain(c, true, hosts - 1, hosts - 1);
		chain(c, false, local - 1, local - 1);
		add_mean_messages(c, (c->n - 1) / c->n, bytes);
		c->cost->reduced = bytes;
		return;
	}
}

/* ---- all algorithms */

/* Returns the peers of a rank of n at distances of powers of two, in both directions. */
static uint32_t bruck_peers(uint32_t n)
{
	uint32_t peers = 0;

	for (uint32_t places = 1; places < n; places++)
		peers += plan_is_power_of_two(places) || plan_is_power_of_two(n - places);
	return peers;
}

/* Returns the peers of the rank with the most. */
static double peers_of(enum frl_algo algo, const struct plan_job *job)
{
	uint32_t n = (uint32_t)job->ranks;
	uint32_t levels = plan_log2_up(n);
	uint32_t peers = n - 1, largest;

	switch (algo) {
	case FRL_ALGO_RING: peers = 2; break;
	case FRL_ALGO_HALVING_DOUBLING: peers = levels; break;
	case FRL_ALGO_TREE: peers = shape_root_all_blocks(job->coll) ? levels : 4; break;
	case FRL_ALGO_BRUCK: peers = bruck_peers(n); break;
	case FRL_ALGO_HIERARCHICAL:
		plan_hosts_common(job, &largest);
		peers = job->coll == FRL_BARRIER ? largest - 1 + bruck_peers(job->topology->hosts)
						 : 4;
		break;
	case FRL_ALGO_DIRECT:
		if (shape_is_pair(job->coll))
			peers = 1;
		break;
	case FRL_ALGO_AUTO:
	case FRL_ALGO_PAIRWISE:
	case FRL_ALGOS: break;
	}
	return peers < n - 1 ? peers : n - 1;
}

/* Returns whether large messages are reduced on arrival; others are reduced from slots or
 * scratch. */
static bool arrives_to_be_reduced(
	enum frl_algo algo, const struct plan_job *job, const struct plan_cost *cost)
{
	if (!shape_reduces(job->coll) || plan_is_encoded(job))
		return false;
	if (algo == FRL_ALGO_DIRECT && plan_direct_is_small(job))
		return false;
	return cost->path[0].large + cost->path[1].large > 0;
}

void plan_cost(enum frl_algo algo, const struct plan_job *job, struct plan_cost *ret_cost)
{
	struct count c = { .job = job, .cost = ret_cost, .n = job->ranks };
	double shrunk = 1;

	*ret_cost = (struct plan_cost){ .peers = 0 };
	if (job->ranks == 1 || !plan_can(algo, job) ||
		(job->count == 0 && shape_is_counted(job->coll)))
		return;
	c.bytes = plan_block_bytes(job);
	if (plan_is_encoded(job) && job->count > 0)
		shrunk = (double)frl_wire_size(job->wire, job->count) / c.bytes;
	c.bytes *= shrunk;
	switch (algo) {
	case FRL_ALGO_RING: count_ring(&c); break;
	case FRL_ALGO_HALVING_DOUBLING: count_halving(&c); break;
	case FRL_ALGO_TREE: count_tree(&c); break;
	case FRL_ALGO_DIRECT: count_direct(&c); break;
	case FRL_ALGO_PAIRWISE: count_pairwise(&c); break;
	case FRL_ALGO_BRUCK: count_bruck(&c); break;
	case FRL_ALGO_HIERARCHICAL: count_hosts(&c); break;
	case FRL_ALGO_AUTO:
	case FRL_ALGOS: break;
	}
	ret_cost->peers = peers_of(algo, job);
	if (arrives_to_be_reduced(algo, job, ret_cost))
		ret_cost->staged = ret_cost->reduced;
	/* The last message is complete at its sender only when it is acknowledged. */
	for (int i = 0; i < 2; i++) {
		if (ret_cost->path[i].large > 0)
			ret_cost->path[i].waits++;
	}
	/* The bytes so far are as sent. Each element counts at its full size, and twice: encoded,
	 * and decoded. A reduction is part of decoding. */
	if (plan_is_encoded(job))
		ret_cost->reduced *= 2 / shrunk;
}
