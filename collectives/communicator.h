/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside of a communicator: rings of queue pairs, and requests that run over them in order.
 *
 * A lane is one ring of connections. In each lane a rank has two queue pairs: `out` carries data to
 * the next rank and credits back from it, `in` carries data from the previous rank and credits to
 * it. Lane 0 goes forward (rank r sends to r+1), lane 1, which exists for n > 2, backward:
 *
 *        lane 0:   rank 0 out ---data--> in rank 1 out ---data--> in rank 2 ...
 *                             <-credits-               <-credits-
 *
 * Flow control: a data message goes out only when the receiver has said that a receive is posted
 * for it. Credits count receives since the connection was made, modulo 2^32.
 *
 * Threads: one at a time, as the public header says; there is no lock in here.
 */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/collective.h>
#include <ferrule/memory.h>

#include "collectives/config.h"
#include "collectives/plan.h"

enum {
	LANES_MAX = 2,
	DATA_RECEIVES =
		64,        /* data receives posted on `in` at a time: the most credits a peer has */
	DATA_SENDS = 128,  /* data sends on `out` that are not acknowledged yet */
	SIGNAL_EVERY = 16, /* data sends that share a completion; divides DATA_SENDS */
	CREDIT_RECEIVES = 16, /* posted on `out`; the peer keeps to it, see tell_credits() */
	CREDIT_SENDS = 32,
	POLL_BATCH = 16,
	ERROR_TEXT = 512,
};

/* What a request does on one lane. */
struct lane_work {
	struct ring_plan plan;
	uint64_t receives_done;
	uint64_t sends_done; /* acknowledged */
};

struct request_list {
	struct frl_request *first;
	struct frl_request *last;
};

struct frl_request {
	struct frl_comm *comm;
	struct request_list *list; /* the one that it is in */
	struct frl_request *previous;
	struct frl_request *next;
	uint8_t *buffer[2]; /* by enum ring_buffer */
	struct frl_mr *mr[2];
	size_t elem_size;
	enum frl_dtype dtype;
	enum frl_op op;
	uint32_t busy_tries; /* to end the registrations */
	bool done;
	struct lane_work work[LANES_MAX];
};

/* A place in the sequence of messages of all requests, on one lane. */
struct cursor {
	struct frl_request *request; /* NULL: behind the last request */
	uint64_t index;              /* of the message, in the request's plan */
};

struct lane {
	struct frl_comm *comm;
	unsigned number;
	enum ring_direction direction;
	int next;
	int previous;
	struct frl_qp *out;
	struct frl_qp *in;

	/* Data to the next rank; all of these count modulo 2^32. */
	uint32_t credits; /* receives that it has posted */
	uint32_t sends_posted;
	uint32_t sends_acked;
	struct cursor send;
	struct cursor acked;

	/* Data from the previous rank. */
	uint32_t receives_posted;
	uint32_t receives_done;
	struct cursor post;
	struct cursor received;

	/* Credits to the previous rank: what it was told, and before each of the messages that it
	 * may not have taken yet (a ring of `unproven` entries that ends at `told_at`). */
	uint32_t told;
	uint32_t told_before[CREDIT_RECEIVES];
	uint32_t told_at;
	uint32_t unproven;
	uint32_t credit_sends; /* not acknowledged */
};

struct frl_comm {
	struct frl_device *device;
	struct frl_bootstrap *bootstrap;
	struct frl_pd *pd;
	struct frl_cq *cq;
	int rank;
	int ranks;
	unsigned lanes;
	struct collective_config config;
	struct lane lane[LANES_MAX];

	struct request_list active; /* in the order of starting */
	struct request_list done;   /* waiting to be tested */
	struct request_list stale;  /* gone for the caller, but a registration is still busy */

	uint32_t idle_polls; /* since the last look at the clock */
	uint64_t last_check_ns;
	bool draining; /* frl_comm_destroy(): the others are not to be disturbed by failures */
	int error;     /* 0: works */
	char error_text[ERROR_TEXT];
};

/* Frees all that frl_comm_create() made, as far as it got. */
void comm_free(struct frl_comm *comm);
void comm_destroy_queue_pairs(struct frl_comm *comm);

/* connect.c: tells the other ranks about our queue pairs and connects them. */
int comm_connect(struct frl_comm *comm);

/* runner.c: makes progress once. Returns how much happened, or the communicator's error. */
int comm_progress(struct frl_comm *comm);
/* Posts whatever can be posted now; 0 or the communicator's error. */
int comm_post(struct frl_comm *comm);
/* Fills the receives for credits; for comm_connect(). */
int comm_post_credit_receives(struct frl_comm *comm);

/* request.c */
void request_unlink(struct frl_request *request);
void request_append(struct request_list *list, struct frl_request *request);
/* Ends registrations; false while one is busy. */
bool request_deregister(struct frl_request *request);
/* Frees the request now, or puts it aside until its registrations can end. */
void request_release(struct frl_request *request);

/* failure.c: the first failure stops everything; later ones change nothing. Returns the error. */
int comm_fail(struct frl_comm *comm, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The error of a communicator that failed, with its text. */
int comm_error(const struct frl_comm *comm);
/* A completion with an error, on the connection to rank `peer`. */
int comm_fail_completion(struct frl_comm *comm, int peer, enum frl_wc_status status);
/* Asks the bootstrap who is gone; 0 or the communicator's error. */
int comm_check_ranks(struct frl_comm *comm);

#endif
