/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulated world: up to four engines, each with a port and a link to and from one switch, and
 * connections between them. world_run() moves from event to event; after each of them the engine
 * concerned is polled and everything that must hold is checked (oracle.h).
 *
 *	engine 0 -- port --> link up --+          +-- link down --> port -- engine 1
 *	            port <-- link down-+- switch -+-- link up <---- port
 */
#ifndef FERRULE_SIM_WORLD_H
#define FERRULE_SIM_WORLD_H

#include "lib/engine/engine.h"
#include "tests/sim/endpoint.h"
#include "tests/sim/link.h"
#include "tests/sim/sim_port.h"

enum {
	WORLD_MAX_NODES = 4,
	WORLD_MAX_CONNECTIONS = 6,
};

/* What goes wrong on purpose; on connection 0, and with whatever shares the broken part. */
enum fault {
	FAULT_NONE,
	FAULT_LINK_DOWN,     /* the port of a node says so */
	FAULT_SILENT,        /* a node is not polled any more */
	FAULT_DEREG_TARGET,  /* the receiver's memory is no region any more */
	FAULT_DEREG_SOURCE,  /* the sender's */
	FAULT_QP_ERROR,      /* the application moves a queue pair to ERR */
	FAULT_QP_REMOVED,    /* ... destroys it, and frees its memory */
	FAULT_CQ_OVERRUN,    /* ... does not poll a completion queue that is too small */
	FAULT_NO_RECEIVES,   /* ... never posts one, and RNR retries are limited */
	FAULT_SHORT_RECEIVE, /* a receive is too small for its message */
	FAULT_BAD_WRITE,     /* a WRITE past the end of the region */
	FAULT_REVOKED,       /* in place: a sender fails while its payload is read */
	N_FAULTS
};

extern const char *const fault_names[N_FAULTS];

struct world_config {
	uint32_t n_nodes;
	uint32_t n_connections;
	bool ipv6;
	bool resolve; /* MAC addresses come from the engine's neighbour table */
	bool clean;   /* the network does nothing wrong */
	bool no_icrc;
	bool in_place; /* payload is read where the sender keeps it */
	bool naps;     /* engines are not polled for longer than the ACK timeout */
	bool shared_cqs;
	bool patient; /* queue pairs never give up on time alone */
	enum fault fault;
	uint32_t fault_after; /* messages that connection 0 has posted by then */
	uint32_t longest;
	uint32_t late_receives; /* one in so many chances is taken; 1: as early as can be */
	uint64_t think_ns;      /* an application looks in about so often */
	uint64_t poll_latency_ns;
	uint32_t refuse_ppm;
	uint32_t tx_depth;
	struct link_config link;
};

struct node {
	struct world *world;
	uint32_t index;
	char name[12], up_name[20], down_name[20];
	struct engine engine;
	struct sim_port port;
	struct link up, down;
	struct frl_ip ip;
	uint64_t poll_at_ns;
	uint64_t nap_until_ns;
	uint32_t idle_polls; /* in a row that moved nothing although they were due */
	bool frozen;
	struct sim_cq shared_cq;
	uint64_t rx_requests, placed_bytes, reduced_bytes; /* as they should be */
};

/* What happened, over all seeds: shown at the end, and none of the faults may be zero. */
struct tally {
	uint64_t seeds, events, frames, messages, bytes;
	uint64_t lost, overflowed, reordered, duplicated, corrupted;
	uint64_t bad_icrc, rnr, seq_naks, fatal_naks, timeouts, retransmits, duplicates;
	uint64_t refused, cq_overruns, flushed, neighbor_requests;
	uint64_t in_place, in_place_late, revoked, payload_lost;
	uint64_t statuses[32];
	uint64_t faults[N_FAULTS];
};

struct world {
	struct clock clock;
	struct trace trace;
	struct random_state random;
	struct world_config config;
	struct node nodes[WORLD_MAX_NODES];
	struct endpoint endpoints[2 * WORLD_MAX_CONNECTIONS];
	uint32_t n_endpoints;
	uint64_t live_frames;
	uint64_t events;
	bool fault_done;
	uint64_t fault_ns;
	bool closing; /* the applications have stopped */
	struct tally *tally;
};

/* scenario.c: everything that the seed decides about a world before it starts. */
void scenario_choose(struct world_config *config, struct random_state *random);
/* The attributes of endpoint and script, but for those that come from the peer. */
void scenario_endpoint(struct world *world, struct endpoint *endpoint);
/* Which endpoints the fault may hurt, and how. */
void scenario_doom(struct world *world);
/* Called when connection 0 has come far enough. */
void scenario_break(struct world *world);

/* A frame whose payload is in place was handed out or has been placed. */
void scenario_on_read(void *arg, const struct frame *frame);
/* The node's engine was told that the payload of the frame was revoked. */
void scenario_on_lost(void *arg, const struct frame *frame);

/* Runs the world of `seed` from start to end. Returns the hash of its trace. */
uint64_t world_run_seed(uint64_t seed, bool verbose, struct tally *tally);

/* workload.c: the application of an endpoint looks in, and will again. */
void workload_start(struct endpoint *endpoint);

/* Has the engine polled at that time, if not before. */
void world_poll_at(struct node *node, uint64_t at_ns);

#endif
