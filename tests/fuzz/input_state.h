/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of tests/fuzz/fuzz_input.c: a queue pair with its queues and memory, and a record of
 * posted and completed requests. One at a time, static. Any violation aborts.
 */
#ifndef FERRULE_TESTS_FUZZ_INPUT_STATE_H
#define FERRULE_TESTS_FUZZ_INPUT_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/protocol/qp.h"
#include "lib/protocol/qp_internal.h"
#include "tests/fuzz/must.h"

enum {
	MEMORY = 16384, /* bytes of an area */
	GUARD = 64,
	SLOTS = 12,
	REQUESTS = 1024, /* posted by one script */
	POSITIONS = 64,  /* more than any queue has */
	MAX_CQ = 64,
	MAX_OUT = 16,
	QPN_OWN = 0x11,
	QPN_PEER = 0x22,
	QKEY = 0x01234567,
	NOBODY = UINT32_MAX, /* no request */
};

/* The regions, by their special property. */
enum {
	PLAIN,
	MOVED, /* has an iova */
	READ_ONLY,
	FOREIGN, /* of another protection domain */
	ODD,     /* where no atomic is aligned in both address spaces */
	AREAS,
	HUGE = AREAS, /* 4 GiB that do not exist */
	WINDOW_A,
	WINDOW_B,
	REGIONS, /* a power of two */
};

struct script {
	const uint8_t *at;
	const uint8_t *end;
};

struct request {
	bool send;
	bool signaled;
	uint8_t opcode;
	uint8_t n_sge;
	uint64_t length;
	struct frl_sge sge[FRL_MAX_SGE];
};

/* One queue's requests: the request at position p is ids[p % POSITIONS]. Requests before `done` are
 * completed, or need no completion. */
struct book {
	uint32_t ids[POSITIONS];
	uint32_t done;
};

struct area {
	uint8_t before[GUARD];
	_Alignas(64) uint8_t bytes[MEMORY];
	uint8_t after[GUARD];
};

struct state {
	struct qp qp;
	struct srq srq;
	struct cq send_cq, recv_cq;
	struct cq *recv_to; /* &recv_cq, or &send_cq */
	struct event_queues queues;
	struct frl_wc send_wc[MAX_CQ], recv_wc[MAX_CQ];
	uint32_t n_cq;
	uint32_t seen[2]; /* positions in the two queues: up to there, entries are checked */
	void *storage, *srq_storage;
	struct region_table table;
	struct region *slots[SLOTS];
	struct region *regions[REGIONS]; /* NULL: not there now */
	uint32_t keys[REGIONS];          /* also the last ones of those */
	uint32_t random;
	struct frl_stats stats;
	struct book sends, recvs;
	uint32_t direct; /* the request that this step posted where it is flushed at once */
	bool send_failed;
	bool send_error;        /* a send completed with an error: all others will, too */
	uint32_t untold;        /* not RC: packets that qp_transmitted() is to be told of */
	uint32_t max_resources; /* the largest n_resources of the responder since RESET */
	uint32_t n_requests;
	uint64_t now_ns;
	uint8_t setup[8];
	struct frl_ip peer_ip;
	struct address_handle handles[2]; /* own, foreign */
	struct request requests[REQUESTS];
};

extern struct state s;
extern struct area areas[AREAS];
extern int pds[2];

/* input_script.c */

/* The next bytes of the script, zeros after its end. */
uint32_t take(struct script *script, int bytes);
/* The path MTU, also before it is set. */
uint32_t mtu(void);
/* Returns a length near a boundary, or any length. */
uint32_t take_length(struct script *script);
/* Returns an address, mostly in a region: relative to its start or to its end. */
uint64_t take_address(struct script *script, unsigned region);
/* Mostly the region's key. */
uint32_t take_key(struct script *script, unsigned region);

/* input_setup.c */

/* Resets everything according to the script's first bytes. */
void start(struct script *script);
void finish(void);
/* The address that requests use for the start of a region, and its length; for a missing region the
 * values that it would have. */
uint64_t region_start(unsigned i);
uint64_t region_length(unsigned i);
void add_region(unsigned i);
/* Moves the queue pair from RESET to that state, at most RTS. */
void bring_up(enum frl_qp_state state);
/* Makes new, empty completion queues. */
void make_cqs(void);

/* input_packets.c */

/* Any request, or an invalid packet. */
void input_request(struct script *script);
/* A request that a well-behaved peer could send now: it continues the message that is arriving. */
void input_proper_request(struct script *script);
/* Any answer, with any PSN near the window. */
void input_answer(struct script *script);
/* The answer of a well-behaved peer: acknowledges `n` more packets, or is the missing response. */
void input_proper_answer(uint32_t n);

/* input_check.c */

/* Checks the result of a packet: placements are legal, and are carried out. `head` is where the
 * send queue started before. */
void check_placements(
	const struct placements *placements, const struct wire_packet *packet, uint32_t head);
/* A READ that was accepted. */
void check_read(const struct reth *reth);
/* A packet that was sent. */
void check_packet(const struct packet_out *out);
/* The last packet of an output: answers leave in order. */
void check_order(const struct packet_out *last);
/* Invariants between any two calls. */
void check_state(void);
/* Memory that nobody may write to is unchanged. */
void check_untouched(void);

/* input_completions.c */

/* Checks completions since the last call: each request once, in order. */
void check_completions(void);

#endif
