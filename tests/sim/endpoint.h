/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a connection: a queue pair with its memory, and the application that uses it. The
 * application posts the messages of its script, posts receives for those of the peer, and polls, at
 * random times.
 *
 * Memory. What the peer may change, with a copy (the shadow) of how it should look:
 *	| guard | receive slots | window for WRITE | first operands of REDUCE | guard |
 * and what is sent:
 *	| guard | send slots | guard |
 * A slot belongs to a request from post to poll.
 */
#ifndef FERRULE_SIM_ENDPOINT_H
#define FERRULE_SIM_ENDPOINT_H

#include "lib/engine/engine.h"
#include "tests/sim/script.h"

enum {
	ENDPOINT_KEYS = 3, /* regions over the same memory */
	ENDPOINT_GUARD = 64,
	ENDPOINT_TOUCHED = 4 * PORT_BURST * FRL_MAX_SGE,
};

struct node;
struct world;

struct sim_cq {
	struct cq cq;
	uint32_t scanned; /* completions before that have been checked */
};

/* Memory with a region for each key. */
struct sim_memory {
	uint8_t *bytes; /* with the guards */
	uint8_t *shadow;
	uint32_t size;
	uint32_t n_keys;
	struct region regions[ENDPOINT_KEYS];
	bool registered;
};

struct touched {
	uint32_t offset;
	uint32_t length;
};

/* The requests of one queue as the application sees them: counts of [posted, checked, polled]. */
struct progress {
	uint32_t posted;
	uint32_t checked; /* as completed */
	uint32_t last;    /* behind the last one that has a completion */
	uint32_t polled;
	bool failed; /* the last one checked was an error */
	bool told;   /* an error that was not a flush has been seen */
};

struct endpoint {
	struct world *world;
	struct node *node;
	struct endpoint *peer;
	uint32_t index;
	bool doomed;      /* errors are allowed: those of `allowed` */
	uint32_t allowed; /* bit n: status n */
	bool removed;     /* the queue pair is destroyed */
	bool silent;      /* never posts receives */
	bool lazy;        /* never polls */
	bool app_error;   /* the application itself moved it to ERR */
	bool lost;        /* payload was taken away while the last packet was placed */
	struct engine_qp *qp;
	struct sim_cq own_cqs[2];
	struct sim_cq *send_cq, *recv_cq;
	struct send_wqe *send_wqes;
	struct recv_wqe *recv_wqes;
	uint32_t n_send, n_recv;
	struct frl_qp_attr attr;
	uint32_t window; /* packets */
	bool patient;
	int pd; /* its address is the protection domain */
	struct script script;
	struct sim_memory target, source;
	uint32_t slot_size, window_size, window_offset, src_offset;
	uint32_t n_recv_total; /* receives that are posted in all: more than the peer needs */
	uint64_t rts_at_ns;
	uint64_t wait_ns;
	struct progress send, recv;
	/* requester, in packets and messages of the flow */
	uint32_t una;
	uint32_t acked; /* messages */
	/* responder: what the oracle has applied of the peer's flow */
	uint32_t accepted; /* packets */
	uint32_t message;  /* that the next packet belongs to */
	uint32_t n_touched;
	struct touched touched[ENDPOINT_TOUCHED];
	uint32_t posted_in_error;
};

/* Memory and queues; the queue pair is then in RESET. n_send, n_recv, window and what the script
 * says have been chosen by then. */
void endpoint_init(struct endpoint *endpoint, uint32_t longest);
/* From RESET to RTR, by `attr`. */
void endpoint_connect(struct endpoint *endpoint);
/* From RTR to RTS. */
void endpoint_start(struct endpoint *endpoint);
void endpoint_to_error(struct endpoint *endpoint);
/* Destroys the queue pair in mid-flight. */
void endpoint_remove_qp(struct endpoint *endpoint);
void endpoint_deregister(struct endpoint *endpoint, struct sim_memory *memory);
void endpoint_fini(struct endpoint *endpoint);

/* True when the application has nothing to wait for any more. */
bool endpoint_done(const struct endpoint *endpoint);

/* Takes up to `max` completions off each queue. Returns whether there were some. */
bool endpoint_poll(struct endpoint *endpoint, uint32_t max);

/* Which end and request a completion is of; the identifier says it. */
uint64_t endpoint_wr_id(const struct endpoint *endpoint, bool recv, uint32_t sequence);
struct endpoint *endpoint_of(struct world *world, const struct frl_wc *wc);

static inline bool wc_is_recv(const struct frl_wc *wc)
{
	return wc->wr_id >> 63;
}

static inline uint32_t wc_sequence(const struct frl_wc *wc)
{
	return (uint32_t)wc->wr_id;
}

static inline uint8_t *memory_at(const struct sim_memory *memory, uint32_t offset)
{
	return memory->bytes + offset;
}

static inline uint32_t recv_slot(const struct endpoint *endpoint, uint32_t k)
{
	return ENDPOINT_GUARD + (k & (endpoint->n_recv - 1)) * endpoint->slot_size;
}

static inline uint32_t send_slot(const struct endpoint *endpoint, uint32_t k)
{
	return ENDPOINT_GUARD + (k & (endpoint->n_send - 1)) * endpoint->slot_size;
}

#endif
