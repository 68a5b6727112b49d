/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules: plans that are prepared for repeated runs. Their steps are sorted into lanes, and each
 * step knows the lanes that may proceed when it advances. Schedules are cached, since training
 * repeats the same operations. Used by the thread of the communicator.
 */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_SCHEDULE_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/plan/plan.h"
#include "collectives/plan/thresholds.h"

struct run;
struct written;

/*
 * There are four lanes between two ranks: to and from, for small and large messages. The lane of a
 * step depends only on its bytes, so both ends choose the same. The steps of a lane run in order;
 * steps of different lanes wait for each other only as the plan says.
 */
enum lane_kind {
	LANE_SEND_EAGER,
	LANE_SEND_BULK,
	LANE_RECV_EAGER,
	LANE_RECV_BULK,
	LANE_PEER_KINDS, /* kinds of lanes between two ranks: those above */
	LANE_LOCAL = LANE_PEER_KINDS,
};

enum {
	EAGER_HEADER = 32,
	EAGER_SLOT = EAGER_HEADER + EAGER_BYTES, /* header and payload of one small message */
	SCHEDULES_KEPT = 32,
	IDLE_RUNS = 16,
};

/* The key of a schedule. Compared by memcmp(): unused fields and padding are zero. */
struct schedule_key {
	size_t count;
	enum frl_coll coll;
	enum frl_dtype dtype;
	enum frl_op op;
	enum frl_wire wire;
	int root;
	bool in_place;
};

struct schedule_lane {
	enum lane_kind kind;
	uint32_t peer;  /* rank; not for LANE_LOCAL */
	uint32_t first; /* step */
};

struct schedule {
	struct schedule_key key;
	struct schedule *next; /* in the cache, most recently used first */
	bool kept;
	bool has_peers;        /* the state of all its peers exists */
	uint32_t users;        /* runs in progress */
	struct run *idle_runs; /* kept for reuse, at most IDLE_RUNS */
	uint32_t n_idle;
	struct plan plan;
	size_t elem_size;
	enum frl_wire wire;
	uint32_t n_lanes;
	struct schedule_lane *lanes;
	/* By step: its lane, and the next step in that lane (PLAN_NOTHING: none). The lanes of
	 * the steps that wait for it are in `watchers`, from watchers_at[step] to [step + 1]. */
	uint32_t *lane_of;
	uint32_t *next_step;
	uint32_t *watchers_at;
	uint32_t *watchers;
	/* By step, for large messages: of a receive, the send that forwards its data unchanged;
	 * of that send, the receive. PLAN_NOTHING: none. */
	uint32_t *forwards;
	/* most forwarded bytes that have arrived and not been sent, at one time */
	size_t forwarding;
	bool in_bulk[PLAN_BUFFERS]; /* buffers of large messages */
	bool has_eager;             /* it has small messages */
	/* Ranges of the caller's buffers that it writes, see gpu/bounce.c; NULL: not needed yet. */
	struct written *written;
	uint32_t n_written;
};

struct schedule_cache {
	struct schedule *first;
	unsigned n;
};

/*
 * Makes a schedule for `job` by `algo`, and caches it under `key` (NULL: not cached). The caller
 * becomes a user. Fails with -ENOMEM, or with -ENOTSUP and the thread's last error.
 */
int schedule_make(struct schedule_cache *cache, const struct schedule_key *key, enum frl_algo algo,
	const struct plan_job *job, struct schedule **ret_schedule);

/* Returns a cached schedule, or NULL. The caller becomes a user. */
struct schedule *schedule_find(struct schedule_cache *cache, const struct schedule_key *key);

/* Drops a user. Frees the schedule with the last user unless it is cached. */
void schedule_put(struct schedule *schedule);

/* Frees the cached schedules. They must have no users. */
void schedule_cache_fini(struct schedule_cache *cache);

/* Returns the bytes of `count` elements in a range. */
size_t schedule_bytes(
	const struct schedule *schedule, const struct plan_range *range, size_t count);

static inline size_t schedule_payload(
	const struct schedule *schedule, const struct plan_step *step, size_t count)
{
	return schedule_bytes(
		schedule, step->kind == PLAN_SENDS ? &step->source : &step->target, count);
}

static inline bool schedule_is_watched(const struct schedule *schedule, uint32_t step)
{
	return schedule->watchers_at[step] != schedule->watchers_at[step + 1];
}

#endif
