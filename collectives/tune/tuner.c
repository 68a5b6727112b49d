/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses the algorithm with the least estimated time. */
#include "collectives/tune/tuner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "collectives/plan/shapes.h"
#include "collectives/plan/thresholds.h"
#include "lib/base/error.h"

enum { NAME = 32 };

/* If ranks share a processor, a message costs time at both ends, and for switching between them:
 * this many latencies. */
static const double oversubscribed_message = 2.5;

/* Costs of the local fabric; also used for networks that were not measured. */
static const double defaults[TUNER_COSTS] = {
	[TUNER_LATENCY] = 2500,
	[TUNER_BYTE] = 0.25,
	[TUNER_LARGE] = 1500,
	[TUNER_FAR_LATENCY] = 6000,
	[TUNER_FAR_BYTE] = 0.5,
	[TUNER_FAR_LARGE] = 2500,
	[TUNER_MESSAGE] = 700,
	[TUNER_REDUCE] = 0.1,
};

static bool find_coll(const char *name, enum frl_coll *ret_coll)
{
	for (enum frl_coll coll = 0; coll < FRL_COLLS; coll++)
		if (strcmp(name, frl_coll_name(coll)) == 0) {
			*ret_coll = coll;
			return true;
		}
	return false;
}

static bool find_algo(const char *name, enum frl_algo *ret_algo)
{
	for (enum frl_algo algo = 0; algo < FRL_ALGOS; algo++)
		if (strcmp(name, frl_algo_name(algo)) == 0) {
			*ret_algo = algo;
			return true;
		}
	return false;
}

/* Handles "ring" or "allreduce=ring". Entries with a collective take precedence, wherever they
 * are. */
static int force(struct tuner *tuner, const char *word)
{
	const char *equals = strchr(word, '=');
	char name[NAME] = "";
	enum frl_coll coll;
	enum frl_algo algo;

	if (!find_algo(equals ? equals + 1 : word, &algo))
		return frl_fail(-EINVAL,
			"FRL_ALGO: '%s' is not an algorithm; there are auto, ring, "
			"halving-doubling, "
			"tree, direct, pairwise, bruck and hierarchical",
			equals ? equals + 1 : word);
	if (equals) {
		snprintf(name, sizeof(name), "%.*s", (int)(equals - word), word);
		if (!find_coll(name, &coll))
			return frl_fail(-EINVAL,
				"FRL_ALGO: '%s' is not a collective; write, for example, "
				"allreduce=ring",
				name);
		tuner->forced[coll] = algo;
		tuner->is_strict[coll] = true;
		return 0;
	}
	for (coll = 0; coll < FRL_COLLS; coll++)
		if (!tuner->is_strict[coll])
			tuner->forced[coll] = algo;
	return 0;
}

void tuner_set_costs(struct tuner *tuner, const struct tuner_costs *costs, enum tuner_source source)
{
	for (int i = 0; i < TUNER_COSTS; i++)
		tuner->costs.step[i] = costs->step[i] ? costs->step[i] : tuner_step(defaults[i]);
	tuner->known = *costs;
	tuner->source = source;
}

void tuner_take_costs(struct tuner *tuner, const struct tuner *from)
{
	tuner->costs = from->costs;
	tuner->known = from->known;
	tuner->source = from->source;
	tuner->made_s = from->made_s;
	tuner->is_staged = from->is_staged;
	tuner->oversubscription = from->oversubscription;
}

int tuner_init(struct tuner *tuner, const char *algos, size_t segment_bytes)
{
	const struct tuner_costs none = { .step = { 0 } };

	*tuner = (struct tuner){ .segment_bytes = segment_bytes, .oversubscription = 1 };
	tuner_set_costs(tuner, &none, TUNER_DEFAULTS);
	while (algos && *algos != '\0') {
		size_t length = strcspn(algos, ",");
		char word[2 * NAME];
		int err;

		if (length >= sizeof(word))
			return frl_fail(-EINVAL, "FRL_ALGO: '%.*s' is too long for an algorithm",
				(int)length, algos);
		memcpy(word, algos, length);
		word[length] = '\0';
		err = force(tuner, word);
		if (err < 0)
			return err;
		algos += length + (algos[length] == ',');
	}
	return 0;
}

static double cost_ns(const struct tuner *tuner, enum tuner_cost cost)
{
	return tuner_step_ns(tuner->costs.step[cost]);
}

static double levels(int ranks)
{
	double n = 1;

	while (1 << (int)n < ranks)
		n++;
	return n;
}

/*
 * Chains and trees: short segments reach all ranks sooner, long ones need fewer messages. With h
 * hops and time b for all bytes, the best number of segments is sqrt(h * b / cost of one).
 */
static size_t segment_for(const struct tuner *tuner, enum frl_algo algo, const struct plan_job *job)
{
	int far = job->topology->hosts > 1 ? TUNER_FAR : 0;
	double bytes = (double)job->count * (double)job->elem_size;
	double byte_ns = cost_ns(tuner, TUNER_BYTE + far);
	double segment_ns = cost_ns(tuner, TUNER_MESSAGE) + cost_ns(tuner, TUNER_LARGE + far);
	double hops = job->ranks;
	size_t segment = SEGMENT_LEAST;

	if (algo == FRL_ALGO_TREE)
		hops = levels(job->ranks);
	else if (algo != FRL_ALGO_RING || !shape_root_one_block(job->coll))
		return tuner->segment_bytes;
	/* The largest power of two below sqrt(bytes * segment_ns / (hops * byte_ns)). */
	while (segment < tuner->segment_bytes &&
		4 * (double)segment * (double)segment * hops * byte_ns <= bytes * segment_ns)
		segment *= 2;
	return segment < tuner->segment_bytes ? segment : tuner->segment_bytes;
}

static struct plan_job with_segment(
	const struct tuner *tuner, enum frl_algo algo, const struct plan_job *job)
{
	struct plan_job copy = *job;

	copy.segment_bytes = segment_for(tuner, algo, job);
	return copy;
}

/* Staged data is written to a ring first, which is another pass. */
static double local_ns(const struct tuner *tuner, const struct plan_cost *cost)
{
	double bytes = cost->reduced + (tuner->is_staged ? cost->staged : 0);

	return bytes * cost_ns(tuner, TUNER_REDUCE);
}

/* Returns the time of the longest chain of messages, with local work. */
static double path_ns(const struct tuner *tuner, const struct plan_cost *cost)
{
	double waiting = 0, sending = 0, hidden;

	for (int i = 0; i < 2; i++) {
		const struct plan_path *path = &cost->path[i];
		int far = i * TUNER_FAR;

		waiting += (path->rounds + path->waits) * cost_ns(tuner, TUNER_LATENCY + far) +
			path->large * cost_ns(tuner, TUNER_LARGE + far) +
			path->more * cost_ns(tuner, TUNER_MESSAGE);
		sending += path->bytes * cost_ns(tuner, TUNER_BYTE + far);
	}
	hidden = cost->overlap * (waiting < sending / 2 ? waiting : sending / 2);
	return waiting + sending - hidden + local_ns(tuner, cost);
}

/* Returns the processor time of all ranks that share a processor. */
static double work_ns(const struct tuner *tuner, const struct plan_cost *cost)
{
	return tuner->oversubscription *
		(cost->messages * oversubscribed_message * cost_ns(tuner, TUNER_LATENCY) +
			cost->volume * cost_ns(tuner, TUNER_BYTE) + local_ns(tuner, cost));
}

double tuner_time_ns(const struct tuner *tuner, enum frl_algo algo, const struct plan_job *job)
{
	struct plan_job copy = with_segment(tuner, algo, job);
	struct plan_cost cost;

	plan_cost(algo, &copy, &cost);
	return path_ns(tuner, &cost) + (tuner->oversubscription > 1 ? work_ns(tuner, &cost) : 0);
}

/* Returns the algorithm with the least time, or FRL_ALGO_AUTO if none can do the job. */
static enum frl_algo fastest(const struct tuner *tuner, const struct plan_job *job)
{
	enum frl_algo best = FRL_ALGO_AUTO;
	double least = 0;

	for (enum frl_algo algo = FRL_ALGO_AUTO + 1; algo < FRL_ALGOS; algo++) {
		double time;

		if (!plan_can(algo, job))
			continue;
		time = tuner_time_ns(tuner, algo, job);
		if (best == FRL_ALGO_AUTO || time < least) {
			best = algo;
			least = time;
		}
	}
	return best;
}

/* The model is not exact to a few percent, so among similar times the one with the fewest
 * connections is chosen: they take time and memory. */
static enum frl_algo choose(const struct tuner *tuner, const struct plan_job *job)
{
	enum frl_algo best = fastest(tuner, job);
	struct plan_cost cost;
	double most, peers;

	if (best == FRL_ALGO_AUTO)
		return best;
	most = tuner_time_ns(tuner, best, job) * (100 + ALIKE_PERCENT) / 100;
	plan_cost(best, job, &cost);
	peers = cost.peers;
	for (enum frl_algo algo = FRL_ALGO_AUTO + 1; algo < FRL_ALGOS; algo++) {
		if (!plan_can(algo, job) || tuner_time_ns(tuner, algo, job) > most)
			continue;
		plan_cost(algo, job, &cost);
		if (cost.peers < peers) {
			best = algo;
			peers = cost.peers;
		}
	}
	return best;
}

int tuner_choose(const struct tuner *tuner, const struct plan_job *job, enum frl_algo *ret_algo,
	size_t *ret_segment_bytes)
{
	struct plan_job copy = with_segment(tuner, FRL_ALGO_AUTO, job);
	enum frl_algo algo = tuner->forced[job->coll];

	if (algo != FRL_ALGO_AUTO && !plan_can(algo, &copy)) {
		if (tuner->is_strict[job->coll])
			return frl_fail(-ENOTSUP, "FRL_ALGO says %s=%s, but %s %s",
				frl_coll_name(job->coll), frl_algo_name(algo), frl_algo_name(algo),
				plan_why_not(algo, &copy));
		algo = FRL_ALGO_AUTO;
	}
	if (algo == FRL_ALGO_AUTO)
		algo = choose(tuner, &copy);
	if (algo == FRL_ALGO_AUTO)
		return frl_fail(-ENOTSUP, "no algorithm can do %s of %d ranks with wire type %s",
			frl_coll_name(job->coll), job->ranks, frl_wire_name(job->wire));
	*ret_algo = algo;
	*ret_segment_bytes = segment_for(tuner, algo, job);
	return 0;
}

/* Returns why the algorithm was chosen. */
static const char *reason(const struct tuner *tuner, const struct plan_job *job, enum frl_algo algo)
{
	int others = 0;

	if (tuner->forced[job->coll] == algo)
		return "chosen: FRL_ALGO";
	for (enum frl_algo other = FRL_ALGO_AUTO + 1; other < FRL_ALGOS; other++)
		others += other != algo && plan_can(other, job);
	if (others == 0)
		return "chosen: the only one";
	return algo == fastest(tuner, job) ? "chosen: the least time"
					   : "chosen: about the least time, fewer connections";
}

static const char *source_text(const struct tuner *tuner, char *text, size_t size)
{
	static const char *const texts[TUNER_SOURCES] = {
		[TUNER_DEFAULTS] = "defaults",
		[TUNER_LOCAL] = "constants of the local fabric",
		[TUNER_MEASURED] = "measured when the communicator was created",
		[TUNER_GIVEN] = "FRL_TUNER_COSTS",
	};
	time_t made = (time_t)tuner->made_s;
	struct tm utc;

	if (tuner->source != TUNER_KEPT)
		return texts[tuner->source];
	snprintf(text, size, "kept");
	if (gmtime_r(&made, &utc))
		strftime(text, size, "from a file, measured on %Y-%m-%d at %H:%M UTC", &utc);
	return text;
}

/* Describes the origin of the times. */
static int explain_costs(const struct tuner *tuner, char *text, size_t size)
{
	char costs[TUNER_TEXT], source[80];

	tuner_write_costs(&tuner->costs, costs);
	return snprintf(text, size, "costs in ns: %s (%s); %.3g ranks per processor%s\n", costs,
		source_text(tuner, source, sizeof(source)), tuner->oversubscription,
		tuner->is_staged ? "; data to reduce is staged" : "");
}

/* Describes one algorithm. */
static int explain_one(const struct tuner *tuner, const struct plan_job *job, enum frl_algo algo,
	const char *why, char *text, size_t size)
{
	struct plan_job with = with_segment(tuner, algo, job);
	struct plan_cost cost;

	plan_cost(algo, &with, &cost);
	return snprintf(text, size,
		"%-16s %12.1f us  %5.0f rounds, %.0f bytes sent, %.0f worked on, "
		"%.0f connections%s%s\n",
		frl_algo_name(algo), tuner_time_ns(tuner, algo, job) / 1000,
		cost.path[0].rounds + cost.path[1].rounds, cost.path[0].bytes + cost.path[1].bytes,
		cost.reduced, cost.peers, why ? "  <- " : "", why ? why : "");
}

int tuner_explain(const struct tuner *tuner, const struct plan_job *job, char *text, size_t size)
{
	struct plan_job copy = with_segment(tuner, FRL_ALGO_AUTO, job);
	enum frl_algo chosen;
	size_t segment, used = 0;
	int err = tuner_choose(tuner, job, &chosen, &segment);

	if (err < 0)
		return err;
	for (enum frl_algo algo = FRL_ALGO_AUTO + 1; algo <= FRL_ALGOS; algo++) {
		char *at = used < size ? text + used : NULL;
		size_t room = used < size ? size - used : 0;
		int length = 0;

		if (algo == FRL_ALGOS)
			length = explain_costs(tuner, at, room);
		else if (plan_can(algo, &copy))
			length = explain_one(tuner, &copy, algo,
				algo == chosen ? reason(tuner, &copy, algo) : NULL, at, room);
		if (length < 0)
			return -EINVAL;
		used += (size_t)length;
	}
	return (int)used;
}
