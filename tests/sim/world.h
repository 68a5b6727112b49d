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
#include "tests/sim/common/link.h"
#include "tests/sim/sim_port.h"
#include "tests/sim/spoofer.h"

enum {
	WORLD_MAX_NODES = 4,
	WORLD_MAX_CONNECTIONS = 6,
	WORLD_MAX_SHARED_OPS = 1024,
};

/* The routes between two nodes: index of the GID at both ends. */
enum route { ROUTE_LINK_LOCAL, ROUTE_IPV4, ROUTE_IPV6, ROUTE_IPV4_VLAN, ROUTE_IPV6_VLAN, N_ROUTES };

/* Deliberate faults: on connection 0, and on all that share the broken part. */
enum fault {
	FAULT_NONE,
	FAULT_LINK_DOWN,      /* the port of a node says so */
	FAULT_SILENT,         /* a node is not polled any more */
	FAULT_DEREG_TARGET,   /* the receiver's memory is no region any more */
	FAULT_DEREG_SOURCE,   /* the sender's */
	FAULT_QP_ERROR,       /* the application moves a queue pair to ERR */
	FAULT_QP_REMOVED,     /* ... destroys it, and frees its memory */
	FAULT_CQ_OVERRUN,     /* ... does not poll a completion queue that is too small */
	FAULT_NO_RECEIVES,    /* ... never posts one, and RNR retries are limited */
	FAULT_SHORT_RECEIVE,  /* a receive is too small for its message */
	FAULT_BAD_ACCESS,     /* a WRITE, READ or atomic that must not be */
	FAULT_BAD_INVALIDATE, /* a SEND that invalidates what is no window */
	FAULT_SPOOFED,        /* somebody speaks for a peer, and knows all numbers */
	FAULT_REVOKED,        /* in place: a sender fails while its payload is read */
	N_FAULTS
};

extern const char *const fault_names[N_FAULTS];

struct world_config {
	uint32_t n_nodes;
	uint32_t n_connections;
	bool resolve;    /* MAC addresses come from the engine's neighbour table */
	bool unreliable; /* some pairs are UC or UD */
	bool srq;        /* some queue pairs share the receives of their node */
	bool windows;    /* memory windows are used */
	bool flaps;      /* carriers come and go */
	bool spoofs;     /* somebody sends what must have no effect */
	bool clean;      /* the network does nothing wrong */
	bool no_icrc;
	bool in_place; /* payload is read where the sender keeps it */
	bool offloads; /* some nodes have memory that the processor does not reach */
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
	struct gid_table gids;
	int pd; /* of those that share receives */
	struct inbox inbox;
	_Alignas(8) uint64_t counter; /* that atomics of all flows change */
	uint64_t counter_due;
	uint32_t port_events; /* bit n: the last one was enum frl_event_type n */
	bool ready;           /* its endpoints are made */
	uint64_t poll_at_ns;
	uint64_t nap_until_ns;
	uint32_t idle_polls; /* in a row that moved nothing although they were due */
	bool frozen;
	struct sim_cq shared_cq;
	uint64_t rx_requests, placed_bytes, reduced_bytes; /* as they should be */
	uint64_t atomics;
	bool has_offload;
	struct mock_offload mock;
	uint64_t stands_until_ns;
	bool miscounts; /* a packet may have been accepted that the oracle does not know */
};

/* A FETCH_ADD of a node's shared counter, and the value it found. */
struct shared_op {
	const struct node *node;
	const struct endpoint *from;
	uint32_t message;
	uint64_t found;
	uint64_t add;
	bool known; /* what it found */
	bool linked;
};

/* Counts over all seeds: printed at the end. No fault may have zero. */
struct tally {
	uint64_t seeds, events, frames, messages, bytes;
	uint64_t lost, overflowed, reordered, duplicated, corrupted;
	uint64_t bad_icrc, rnr, seq_naks, fatal_naks, timeouts, retransmits, duplicates;
	uint64_t refused, cq_overruns, flushed, neighbor_requests;
	uint64_t in_place, in_place_late, revoked, payload_lost, begun_failed;
	uint64_t requests[FRL_WR_SEND_WITH_INV + 1]; /* completed, by opcode */
	uint64_t windowed, fenced, inlined, many_sges, solicited, notified;
	uint64_t implied_naks, replays, drop_no_replay, stale_acks;
	uint64_t uc_received, uc_broken, uc_no_recv, ud_received, ud_no_recv, too_small, multicast,
		bad_qkey;
	uint64_t srq_taken, srq_limits, drains, drains_told, flaps, port_events, shared_chains,
		loopback;
	uint64_t offload_placed, offload_gathered, offload_reduced, offload_waits;
	uint64_t offload_received, offload_results; /* completions that told of bytes there */
	uint64_t routes[N_ROUTES];
	uint64_t vices[N_VICES];
	uint64_t spoofs[N_LIES];
	uint64_t statuses[32];
	uint64_t faults[N_FAULTS];
};

struct world {
	struct clock clock;
	struct trace trace;
	struct random_state random;
	struct random_state offload_random; /* of what is about offloads alone */
	struct world_config config;
	struct node nodes[WORLD_MAX_NODES];
	struct endpoint endpoints[2 * WORLD_MAX_CONNECTIONS];
	uint32_t n_endpoints;
	uint64_t live_frames;
	uint64_t events;
	bool fault_done;
	uint64_t fault_ns;
	bool closing; /* the applications have stopped */
	uint32_t qkey;
	uint32_t spoofs; /* that have been made */
	uint32_t n_shared_ops;
	struct shared_op shared_ops[WORLD_MAX_SHARED_OPS];
	struct tally *tally;
};

/* scenario.c: everything that the seed decides about a world before it starts. */
void scenario_choose(struct world_config *config, struct random_state *random);
/* Offloads of some worlds, chosen after everything else. */
void scenario_choose_offloads(struct world *world);
/* Gives the node an offload if the world has some and the node is one with one. */
void scenario_add_offload(struct node *node);
/* Sets how much an offload does until the next call. */
void scenario_pace_offload(struct node *node);
/* The attributes of endpoint and script, except the peer's. */
void scenario_endpoint(struct world *world, struct endpoint *endpoint);

void scenario_scripts(struct world *world);
/* faults.c: the endpoints that the fault may affect. */
void scenario_doom(struct world *world);
/* Called when connection 0 has advanced far enough. */
void scenario_break(struct world *world);

/* A frame whose payload is in place was handed out or has been placed. */
void scenario_on_read(void *arg, const struct frame *frame);
/* The node's engine was notified that the payload of the frame was revoked. */
void scenario_on_lost(void *arg, const struct frame *frame);

/* Runs the world of `seed` from start to end. Returns the hash of its trace. */
uint64_t world_run_seed(uint64_t seed, bool verbose, struct tally *tally);

/* network.c */
void node_init(struct world *world, uint32_t index);
void node_fini(struct node *node);
void network_start(struct world *world);
struct frl_ip world_group(bool ipv4);

/* Polls the engine at that time, if not before. */
void world_poll_at(struct node *node, uint64_t at_ns);

#endif
