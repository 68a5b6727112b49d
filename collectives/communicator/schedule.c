/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/communicator/schedule.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "lib/base/error.h"

enum { FORWARD_DISTANCE = 256 }; /* most steps between a receive and the send that forwards it */

size_t schedule_bytes(const struct schedule *schedule, const struct plan_range *range, size_t count)
{
	return range->encoded ? frl_wire_size(schedule->wire, count) : count * schedule->elem_size;
}

static enum lane_kind kind_of(const struct schedule *schedule, const struct plan_step *step)
{
	bool is_eager;

	if (step->kind == PLAN_LOCAL)
		return LANE_LOCAL;
	is_eager = schedule_payload(schedule, step, step->count) <= EAGER_BYTES;
	if (step->kind == PLAN_SENDS)
		return is_eager ? LANE_SEND_EAGER : LANE_SEND_BULK;
	return is_eager ? LANE_RECV_EAGER : LANE_RECV_BULK;
}

/* Maps (peer, kind) to a lane number plus one; 0: none yet. Used only while a schedule is made. */
struct lane_map {
	uint32_t *lanes;
	uint32_t ranks;
	uint32_t *last; /* step, by lane */
};

static void add_step(struct schedule *schedule, struct lane_map *map, uint32_t number)
{
	const struct plan_step *step = &schedule->plan.steps[number];
	enum lane_kind kind = kind_of(schedule, step);
	uint32_t *lane =
		&map->lanes[kind == LANE_LOCAL ? (size_t)map->ranks * LANE_PEER_KINDS
					       : (size_t)step->peer * LANE_PEER_KINDS + kind];

	assert(step->count > 0 && (kind == LANE_LOCAL || step->peer < map->ranks));
	if (*lane) {
		schedule->next_step[map->last[*lane - 1]] = number;
	} else {
		schedule->lanes[schedule->n_lanes] = (struct schedule_lane){
			.kind = kind, .peer = step->peer, .first = number
		};
		*lane = ++schedule->n_lanes;
	}
	map->last[*lane - 1] = number;
	schedule->lane_of[number] = *lane - 1;
	schedule->next_step[number] = PLAN_NOTHING;
	if (kind == LANE_SEND_EAGER || kind == LANE_RECV_EAGER)
		schedule->has_eager = true;
	if (kind == LANE_SEND_BULK)
		schedule->in_bulk[step->source.buffer] = true;
	if (kind == LANE_RECV_BULK) {
		schedule->in_bulk[step->target.buffer] = true;
		if (step->action == PLAN_REDUCE)
			schedule->in_bulk[step->operand.buffer] = true;
	}
}

static int sort_into_lanes(struct schedule *schedule, uint32_t ranks)
{
	uint32_t n = schedule->plan.n_steps;
	struct lane_map map = {
		.lanes = calloc((size_t)ranks * LANE_PEER_KINDS + 1, sizeof(*map.lanes)),
		.ranks = ranks,
		.last = calloc((size_t)n + 1, sizeof(*map.last)),
	};
	bool has_memory = map.lanes && map.last;

	for (uint32_t i = 0; has_memory && i < n; i++)
		add_step(schedule, &map, i);
	free(map.lanes);
	free(map.last);
	return has_memory ? 0 : -ENOMEM;
}

/* Counts the watchers of each step, then enters them. */
static int find_watchers(struct schedule *schedule)
{
	const struct plan *plan = &schedule->plan;
	uint32_t *at = schedule->watchers_at;
	uint32_t total = 0;

	for (uint32_t i = 0; i < plan->n_steps; i++) {
		for (int k = 0; k < PLAN_AFTER; k++) {
			uint32_t before = plan->steps[i].after[k].step;

			if (before == PLAN_NOTHING)
				continue;
			assert(before < i);
			at[before]++;
			total++;
		}
	}
	for (uint32_t i = 0, begin = 0; i <= plan->n_steps; i++) {
		begin += at[i];
		at[i] = begin; /* end of its watchers; decremented to their begin below */
	}
	schedule->watchers = calloc((size_t)total + 1, sizeof(*schedule->watchers));
	if (!schedule->watchers)
		return -ENOMEM;
	for (uint32_t i = 0; i < plan->n_steps; i++) {
		for (int k = 0; k < PLAN_AFTER; k++) {
			uint32_t before = plan->steps[i].after[k].step;

			if (before != PLAN_NOTHING)
				schedule->watchers[--at[before]] = schedule->lane_of[i];
		}
	}
	return 0;
}

static bool overlap(const struct schedule *schedule, const struct plan_range *a, size_t a_count,
	const struct plan_range *b, size_t b_count)
{
	return a->buffer == b->buffer &&
		a->offset < b->offset + schedule_bytes(schedule, b, b_count) &&
		b->offset < a->offset + schedule_bytes(schedule, a, a_count);
}

static bool is_same(const struct plan_range *a, const struct plan_range *b)
{
	return a->buffer == b->buffer && a->offset == b->offset && a->encoded == b->encoded;
}

/* Returns whether no step between the two writes to the data that is sent. */
static bool is_untouched(const struct schedule *schedule, uint32_t receive, uint32_t send)
{
	const struct plan_step *steps = schedule->plan.steps, *sent = &steps[send];

	if (send - receive > FORWARD_DISTANCE)
		return false;
	for (uint32_t i = receive + 1; i < send; i++)
		if (steps[i].kind != PLAN_SENDS &&
			overlap(schedule, &steps[i].target, steps[i].count, &sent->source,
				sent->count))
			return false;
	return true;
}

/* Returns whether the send sends exactly what the receive it waits for has received. */
static bool forwards_unchanged(
	const struct schedule *schedule, const struct plan_after *after, uint32_t send)
{
	const struct plan_step *steps = schedule->plan.steps, *sent = &steps[send];
	const struct plan_step *step = &steps[after->step];

	return schedule->lanes[schedule->lane_of[after->step]].kind == LANE_RECV_BULK &&
		after->shift == 0 && step->count == sent->count &&
		is_same(&step->target, &sent->source) &&
		schedule->forwards[after->step] == PLAN_NOTHING &&
		is_untouched(schedule, after->step, send);
}

/* Pairs each receive with the first send that forwards it; there may be several. */
static void find_forwards(struct schedule *schedule)
{
	const struct plan *plan = &schedule->plan;

	for (uint32_t i = 0; i < plan->n_steps; i++) {
		schedule->forwards[i] = PLAN_NOTHING;
		if (schedule->lanes[schedule->lane_of[i]].kind != LANE_SEND_BULK)
			continue;
		for (int k = 0; k < PLAN_AFTER && schedule->forwards[i] == PLAN_NOTHING; k++) {
			const struct plan_after *after = &plan->steps[i].after[k];

			if (after->step == PLAN_NOTHING || !forwards_unchanged(schedule, after, i))
				continue;
			schedule->forwards[i] = after->step;
			schedule->forwards[after->step] = i;
		}
	}
}

/* Returns the bytes of a received step that wait for their send: what is before the send in its
 * lane, less what is before the receive in its own, if all lanes advance equally. */
static size_t waiting_of(const struct schedule *schedule, const size_t *begin, uint32_t receive)
{
	uint32_t send = schedule->forwards[receive];

	if (send == PLAN_NOTHING || schedule->plan.steps[receive].kind == PLAN_SENDS ||
		begin[send] <= begin[receive])
		return 0;
	return begin[send] - begin[receive];
}

/* Sums up the most waiting bytes of each lane, limited to all its forwarded bytes. */
static int find_forwarding(struct schedule *schedule)
{
	const struct plan *plan = &schedule->plan;
	size_t n = plan->n_steps, n_lanes = schedule->n_lanes;
	/* By step: its first byte in the lane. By lane: all bytes, the most waiting bytes, all
	 * forwarded bytes. */
	size_t *begin = calloc(n + 3 * n_lanes + 1, sizeof(*begin));
	size_t *bytes = begin + n, *most = bytes + n_lanes, *all = most + n_lanes;

	if (!begin)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t lane = schedule->lane_of[i];

		begin[i] = bytes[lane];
		if (plan->steps[i].kind != PLAN_LOCAL)
			bytes[lane] += schedule_payload(
				schedule, &plan->steps[i], plan->steps[i].count);
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t lane = schedule->lane_of[i];
		size_t waiting = waiting_of(schedule, begin, i);

		if (waiting > most[lane])
			most[lane] = waiting;
		if (waiting)
			all[lane] += schedule_payload(
				schedule, &plan->steps[i], plan->steps[i].count);
	}
	for (size_t i = 0; i < n_lanes; i++)
		schedule->forwarding += most[i] < all[i] ? most[i] : all[i];
	free(begin);
	return 0;
}

static int prepare(struct schedule *schedule, uint32_t ranks)
{
	size_t n = (size_t)schedule->plan.n_steps + 1;
	int err;

	schedule->lanes = calloc(n, sizeof(*schedule->lanes));
	schedule->lane_of = calloc(n, sizeof(*schedule->lane_of));
	schedule->next_step = calloc(n, sizeof(*schedule->next_step));
	schedule->watchers_at = calloc(n, sizeof(*schedule->watchers_at));
	schedule->forwards = calloc(n, sizeof(*schedule->forwards));
	if (!schedule->lanes || !schedule->lane_of || !schedule->next_step ||
		!schedule->watchers_at || !schedule->forwards)
		return -ENOMEM;
	err = sort_into_lanes(schedule, ranks);
	if (err)
		return err;
	find_forwards(schedule);
	err = find_forwarding(schedule);
	return err ? err : find_watchers(schedule);
}

static void schedule_free(struct schedule *schedule)
{
	while (schedule->idle_runs) {
		struct run *run = schedule->idle_runs;

		schedule->idle_runs = run->next;
		run->comm->idle_scratch -= run->bytes[PLAN_SCRATCH];
		run_free(run);
	}
	plan_free(&schedule->plan);
	free(schedule->lanes);
	free(schedule->lane_of);
	free(schedule->next_step);
	free(schedule->watchers_at);
	free(schedule->watchers);
	free(schedule->forwards);
	free(schedule->written);
	free(schedule);
}

/* Drops the least recently used schedule. */
static void drop_oldest(struct schedule_cache *cache)
{
	struct schedule **last = &cache->first;

	while ((*last)->next)
		last = &(*last)->next;
	(*last)->kept = false;
	cache->n--;
	if (!(*last)->users)
		schedule_free(*last);
	*last = NULL;
}

static void keep(struct schedule_cache *cache, struct schedule *schedule)
{
	if (cache->n == SCHEDULES_KEPT)
		drop_oldest(cache);
	schedule->next = cache->first;
	schedule->kept = true;
	cache->first = schedule;
	cache->n++;
}

int schedule_make(struct schedule_cache *cache, const struct schedule_key *key, enum frl_algo algo,
	const struct plan_job *job, struct schedule **ret_schedule)
{
	struct schedule *schedule = calloc(1, sizeof(*schedule));
	int err;

	if (!schedule)
		return frl_fail(-ENOMEM, "no memory for a plan");
	schedule->elem_size = job->elem_size;
	schedule->wire = job->wire;
	schedule->users = 1;
	err = plan_make(&schedule->plan, algo, job);
	if (err) {
		free(schedule);
		return frl_fail(err, "no plan for %s of %d ranks by %s", frl_coll_name(job->coll),
			job->ranks, frl_algo_name(algo));
	}
	err = prepare(schedule, (uint32_t)job->ranks);
	if (err) {
		schedule_free(schedule);
		return frl_fail(err, "no memory for a plan");
	}
	if (key) {
		schedule->key = *key;
		keep(cache, schedule);
	}
	*ret_schedule = schedule;
	return 0;
}

struct schedule *schedule_find(struct schedule_cache *cache, const struct schedule_key *key)
{
	for (struct schedule **at = &cache->first; *at; at = &(*at)->next) {
		struct schedule *schedule = *at;

		if (memcmp(&schedule->key, key, sizeof(*key)) != 0)
			continue;
		*at = schedule->next;
		schedule->next = cache->first;
		cache->first = schedule;
		schedule->users++;
		return schedule;
	}
	return NULL;
}

void schedule_put(struct schedule *schedule)
{
	if (--schedule->users == 0 && !schedule->kept)
		schedule_free(schedule);
}

void schedule_cache_fini(struct schedule_cache *cache)
{
	while (cache->first) {
		struct schedule *schedule = cache->first;

		cache->first = schedule->next;
		schedule_free(schedule);
	}
	cache->n = 0;
}
