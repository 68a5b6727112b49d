/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What Linux' rxe said to each other, played again with a queue pair of ours in the place of one of
 * them. As responder it is fed the recorded requests, and must answer with what was recorded: the
 * same packets, down to READ data and the originals of atomics. As requester it posts what the
 * recorded requests add up to, must send the same packets, and is fed the recorded answers.
 */
#ifndef FERRULE_TESTS_REPLAY_H
#define FERRULE_TESTS_REPLAY_H

#include "lib/protocol/qp_internal.h"
#include "tests/unit/qp_fixture.h"
#include "tests/vectors/flows.h"

enum {
	REGIONS = 16,
	SLOT = 64 * 1024, /* memory of a request */
	REQUESTS = 256,   /* in a flow */
	CQ_DEPTH = 2048,
	BURST = 512, /* packets that are answered with, or sent, at once */
};

enum answer_rule {
	EXACT,     /* the same answers */
	SOME_LOST, /* the recorded ones are among ours, in order */
	DIFFERENT, /* rxe does otherwise, as the row says; our answers are tested elsewhere */
};

/* How a file is replayed; all zero: the defaults. */
struct special {
	const char *file;
	enum answer_rule rule;
	uint32_t deny;             /* in access_flags of the responder */
	uint32_t deny_region;      /* in the rights of its regions */
	bool memory_changes;       /* while the flow goes on: READ data is not compared */
	bool no_regions;           /* the rkeys are unknown */
	bool no_rd_atomic;         /* max_dest_rd_atomic is 0 */
	uint32_t mtu;              /* if the packets do not tell */
	enum frl_wc_status status; /* of the requester's first failing request */
};

extern const struct special replay_defaults;

/* The files with RC requests in them. */
extern const char *const replay_files[];
enum { REPLAY_FILES = 58 };

const struct special *special_of(const char *file);

/* The flows of a file, with the MTU that its row says; must succeed. */
struct flows *replay_load(const char *file);

/* A queue pair of ours in the place of one end of a flow. */
struct end {
	struct qp qp;
	struct cq cq;
	struct event_queues queues;
	struct frl_wc wc[CQ_DEPTH];
	struct region_table table;
	struct region *slots[REGION_MAX];
	struct region regions[REGIONS], parent, local;
	void *memories[REGIONS]; /* of the regions */
	uint32_t n_regions;
	struct frl_stats stats;
	struct packet_out out[BURST];
	uint32_t n_out;
	uint64_t now_ns;
	uint8_t *memory; /* of `local`: a slot for each request */
};

/* One at a time. */
extern struct end end;

/* Knows a region by a key that the other implementation chose. */
void end_add_region(struct region *region, uint32_t key);
void end_open(const struct flow *flow, const struct special *special, bool responder);
void end_close(void);

/* Gives the packet to the queue pair, carries out what comes of it, and fills end.out. */
void end_feed(const struct wire_packet *packet);

/* The first answer of this kind with this PSN, or NULL. */
const struct wire_packet *answer_to(const struct flow *flow, struct psn psn, uint8_t operation);

/* The payload of a packet of ours is that of the recorded one. */
bool payload_is(const struct packet_out *out, const struct wire_packet *packet);

/* Answer `i` is one of those that rxe gives for what follows a packet which found no receive
 * request: a second refusal of the same PSN. */
bool is_second_refusal(const struct flow *flow, uint32_t i);

#endif
