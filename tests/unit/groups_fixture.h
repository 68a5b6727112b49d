/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of jobs in a world of hosts (core_world.h): what they say, and what they are to hear. */
#ifndef FERRULE_TESTS_GROUPS_FIXTURE_H
#define FERRULE_TESTS_GROUPS_FIXTURE_H

#include "daemon/core/groups.h"
#include "tests/unit/core_world.h"

enum { USER = 1000, MIB = 1 << 20 };

#define LEFT    CTL__GROUP_EVENT_KIND__GROUP_LEFT
#define ABORTED CTL__GROUP_EVENT_KIND__GROUP_ABORTED
#define DEAD    CTL__GROUP_EVENT_KIND__GROUP_DEAD
#define LOST    CTL__GROUP_EVENT_KIND__GROUP_LOST
#define AWAY    CTL__GROUP_EVENT_KIND__GROUP_AWAY
#define MET     CTL__GROUP_EVENT_KIND__GROUP_MET
#define AGAIN   CTL__GROUP_EVENT_KIND__GROUP_AGAIN

/* A rank as its process knows it. */
struct rank {
	struct process *process;
	uint8_t id[UUID_SIZE];
	uint32_t number;
	bool gives, has_met; /* for rank_return() */
	const char *gave_up; /* why, for rank_return(); NULL: it has not */
	unsigned met; /* how often it has been told that all have met, as far as it has looked */
};

/* A world with one host, "nodea". */
extern struct world *group_world;
void groups_setup(void);
void groups_teardown(void);

/* A process of its own, that has not joined. */
struct rank rank_on(int host, uint32_t uid);

/* Returns 0, or the errno of a refusal, whose text is then in group_refusal. */
int rank_join(struct rank *rank, const char *job, const char *host, uint32_t number, uint32_t ranks,
	bool with_seq);
extern char group_refusal[512];

/* A rank of USER that has joined. */
struct rank rank_joined(
	int host, const char *job, const char *keeper, uint32_t number, uint32_t ranks);

void set_member(ProtobufCBinaryData *to, struct rank *rank);
void rank_give(struct rank *rank, uint32_t round, const void *data, size_t size);
void rank_give_text(struct rank *rank, uint32_t round, const char *text);
void rank_leave(struct rank *rank, bool aborts);
void rank_die(struct rank *rank);
/* To a daemon that was started again: it has completed `done` allgathers, and the ranks of the mask
 * `left` have left. 0, or the errno of a refusal. */
int rank_return(struct rank *rank, uint32_t ranks, uint32_t done, uint8_t left, uint64_t group);

/* The next piece. */
void expect_piece(struct rank *rank, uint32_t from, uint32_t round, const void *data, size_t size);
void expect_text(struct rank *rank, uint32_t from, uint32_t round, const char *text);
/* The next event; its text has `what` in it. */
void expect_event(struct rank *rank, Ctl__GroupEventKind kind, uint32_t about, const char *what);
/* Nothing has come, and its session is there. */
void expect_silence(struct rank *rank);

unsigned count_groups(int host);
unsigned count_members(int host);

#endif
