/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules: plans made ready to be run again and again. The steps are sorted into lanes, and each
 * knows whom it may set going when it advances. Schedules are kept, because training does the same
 * operations over and over. Used by the thread of the communicator.
 */
#ifndef FERRULE_COLLECTIVES_SCHEDULE_H
#define FERRULE_COLLECTIVES_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/plan.h"
#include "collectives/thresholds.h"

struct run;
struct written;

/*
 * Between two ranks there are four lanes: to and from, small messages and large ones. To which a
 * step belongs depends on its bytes alone, so both ends come to the same. The steps of a lane are
 * done in order; those of different lanes wait for each other only where the plan says so.
 */
enum lane_kind {
	LANE_SEND_EAGER,
	LANE_SEND_BULK,
	LANE_RECV_EAGER,
	LANE_RECV_BULK,
	LANE_PEER_KINDS, /* those above are between two ranks */
	LANE_LOCAL = LANE_PEER_KINDS,
};

enum {
	EAGER_HEADER = 32,
	EAGER_SLOT = EAGER_HEADER + EAGER_BYTES, /* header and payload of one small message */
	SCHEDULES_KEPT = 32,
	IDLE_RUNS = 16,
};

/* What a schedule is for. Compared as memory: unused fields and holes are zero. */
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
	uint32_t peer;  /* rank; not of LANE_LOCAL */
	uint32_t first; /* step */
};

struct schedule {
	struct schedule_key key;
	struct schedule *next; /* of those that are kept, the last one used first */
	bool kept;
	uint32_t users;        /* runs at work */
	struct run *idle_runs; /* of earlier operations, for the next ones; IDLE_RUNS at most */
	uint32_t n_idle;
	struct plan plan;
	size_t elem_size;
	enum frl_wire wire;
	uint32_t n_lanes;
	struct schedule_lane *lanes;
	/* By step: its lane, and the next one of the lane (PLAN_NOTHING: none); the lanes of the
	 * steps that come after it are in `watchers`, from watchers_at[step] to [step + 1]. */
	uint32_t *lane_of;
	uint32_t *next_step;
	uint32_t *watchers_at;
	uint32_t *watchers;
	/* By step, of large messages: the send that passes on what this step received, or made of
	 * it, as it is; and of a send that receive. PLAN_NOTHING: none. */
	uint32_t *passes;
	size_t passing;             /* bytes of that that have come and not gone yet, at one time */
	bool in_bulk[PLAN_BUFFERS]; /* buffers that large messages come from or go to */
	bool has_eager;             /* there are small messages */
	/* What it writes of the caller's buffers, NULL: nobody has asked. See shadow.c. */
	struct written *written;
	uint32_t n_written;
};

struct schedule_cache {
	struct schedule *first;
	unsigned n;
};

/*
 * The schedule for `job`, which is kept under `key` (NULL: not kept). It has one user more.
 * `algo`: how. -ENOMEM, -ENOTSUP with the thread's last error.
 */
int schedule_make(struct schedule_cache *cache, const struct schedule_key *key, enum frl_algo algo,
	const struct plan_job *job, struct schedule **ret_schedule);

/* One that is kept, or NULL. It has one user more. */
struct schedule *schedule_find(struct schedule_cache *cache, const struct schedule_key *key);

/* One user less; freed if nobody keeps it. */
void schedule_put(struct schedule *schedule);

/* Frees those that are kept. There are no users. */
void schedule_cache_fini(struct schedule_cache *cache);

/* Bytes that `count` elements take in a range. */
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
