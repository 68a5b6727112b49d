/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that does what the library's does (lib/api/bootstrap*.c), without a thread: allgathers,
 * and the return after a daemon has gone away. Whatever it hears is checked: pieces are of the
 * right rank and round, and those that come again the same.
 */
#ifndef FERRULE_TESTS_GROUPS_MODEL_H
#define FERRULE_TESTS_GROUPS_MODEL_H

#include "tests/unit/groups_fixture.h"

enum { MODEL_RANKS = 8 };

enum model_state {
	MODEL_NONE,
	MODEL_JOINING,
	MODEL_JOINED,
	MODEL_AWAY,
	MODEL_BACK,
	MODEL_FAILED, /* `why` */
	MODEL_OVER,   /* it has left, or its process has ended */
};

struct model {
	struct world *world;
	struct rank rank;
	char job[16];
	char keeper[32];
	uint32_t ranks;
	uint32_t lost_s; /* set before it joins; 0: what daemons take for granted */
	enum model_state state;
	uint64_t lost_ns, group;
	bool met, gave_up;
	uint32_t round, given;
	bool has[2][MODEL_RANKS]; /* of this round and the next, by round modulo 2 */
	bool left[MODEL_RANKS], aborted[MODEL_RANKS];
	uint64_t dead_ns[MODEL_RANKS]; /* since when it knows; 0: it lives */
	char why[512];                 /* it has failed, or the first other one has died */
	unsigned pieces, repeated;
};

/* Asks to join; the answer is heard later. The process is a new one. */
void model_join(struct model *model, struct world *world, int host, uint32_t pid, const char *job,
	const char *keeper, uint32_t number, uint32_t ranks);
/* Takes and answers what has come. */
void model_hear(struct model *model);
/* Begins an allgather, if it may. */
void model_give(struct model *model);
void model_leave(struct model *model, bool aborts);
void model_die(struct model *model);
/* The daemon of its host has been started again. */
void model_come_back(struct model *model);
/* Is it in the job, or on its way back? */
bool model_is_in(const struct model *model);
/* Has this one learnt that the other one has gone? */
bool model_misses(const struct model *model, uint32_t other);
/* Has it all pieces that the other one has given? */
bool model_has_all(const struct model *model, const struct model *other);

#endif
