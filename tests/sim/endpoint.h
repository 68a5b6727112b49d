/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a connection, or of a pair that exchanges datagrams: a queue pair with its memory, and
 * the application that uses it. The application posts the messages of its script, posts receives
 * for those of the peer, and polls, at random times.
 *
 * Memory:
 *	inbox    receives (inbox.h), or those of the node's shared queue
 *	target   | window for WRITE and READ | counters for atomics |: what the peer reaches
 *	source   slots of what is sent
 *	results  slots for what READs and atomics bring
 * A slot belongs to a request from post to poll.
 */
#ifndef FERRULE_SIM_ENDPOINT_H
#define FERRULE_SIM_ENDPOINT_H

#include "lib/engine/engine.h"
#include "tests/sim/inbox.h"
#include "tests/sim/memory.h"
#include "tests/sim/script.h"

enum {
	ENDPOINT_TOUCHED = 6 * PORT_BURST * FRL_MAX_SGE,
	ENDPOINT_EXPECTED = 256,
	ENDPOINT_ARRIVALS = 256,
	ENDPOINT_CQ = 1024, /* completions, at most */
	ENDPOINT_NO_RECV = UINT32_MAX,
	/* Completions of shared queues have it instead of an endpoint. */
	ENDPOINT_OF_SRQ = 0xffff,
};

struct node;
struct world;

struct sim_cq {
	struct cq cq;
	uint32_t scanned; /* completions before that have been checked */
	uint8_t armed;    /* as it should be: enum cq_armed */
	bool notifies;    /* its channel is to be told */
	/* Entries before that could be polled when they were checked, and notified then. enum
	 * sim_notice says which ones must be notified. */
	uint32_t noted;
	uint8_t notices[ENDPOINT_CQ];
};

enum sim_notice { NOTICE_PLAIN, NOTICE_URGENT, NOTICE_UNKNOWN };

struct touched {
	struct sim_memory *memory;
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

/* A type 2 window on the target: the application's view. The oracle checks the rest. */
enum window_state {
	WINDOW_UNBOUND,
	WINDOW_BINDING, /* posted */
	WINDOW_BOUND,
	WINDOW_INVALIDATING, /* posted, here or at the peer */
};

struct window {
	struct region region;
	enum window_state state;
	uint32_t offset; /* in the target, without its guard */
	uint32_t length;
	uint32_t access;
	uint32_t key;     /* bound, or to be bound */
	uint32_t request; /* that binds it, or invalidates it from here */
	uint32_t users;   /* messages of the peer with its key that are not over */
};

/* A receive completion that must come, for a complete message. */
struct expected {
	enum frl_wc_status status;
	uint32_t request;
	uint32_t byte_len;
	uint32_t flags; /* enum frl_wc_flags */
	uint32_t imm_data;
	uint32_t src_qp;
	uint32_t end; /* RC: packets of the flow by then */
	uint16_t vlan;
	uint8_t sl;
	bool write;
	bool solicited;
};

/* A packet of an unreliable flow that the engine received: packet `packet` of `from`. */
struct arrival {
	struct endpoint *from;
	uint32_t packet;
};

/* The application starts no requests for a while. */
struct drain {
	bool wanted;
	uint32_t after; /* messages posted */
	bool notify;
	bool started;
	bool notified;
	uint32_t limit; /* no packet of this number or above is sent meanwhile */
};

struct endpoint {
	struct world *world;
	struct node *node;
	struct endpoint *peer;
	uint32_t index;
	enum frl_qp_type type;
	bool doomed;      /* errors are allowed: those of `allowed` */
	bool lawless;     /* somebody speaks for the peer who knows all numbers */
	uint32_t allowed; /* bit n: status n */
	bool removed;     /* the queue pair is destroyed */
	bool silent;      /* never posts receives */
	bool lazy;        /* never polls */
	bool app_error;   /* the application itself moved it to ERR */
	bool lost;        /* payload was taken away while the last packet was placed */
	bool loop;        /* the peer is on the same node */
	struct engine_qp *qp;
	void *storage;
	uint32_t qpn;
	struct engine_ah ah, group_ah; /* datagrams */
	bool has_ah, has_group_ah;
	struct sim_cq own_cqs[2];
	struct sim_cq *send_cq, *recv_cq;
	uint32_t n_send, n_recv;
	struct frl_qp_attr attr;
	uint32_t window; /* packets */
	bool patient;
	bool sig_all;
	int own_pd;     /* its address is the protection domain */
	const void *pd; /* own or, with a shared receive queue, the node's */
	struct script script;
	bool shares; /* the node's inbox */
	struct inbox own_inbox, *inbox;
	/* These, and the own inbox, may be out of the processor's reach. */
	struct sim_memory target, source, results;
	struct region counter; /* names the node's, in the own domain */
	struct window *windows;
	uint32_t n_windows;
	uint32_t slot_size, window_size;
	uint32_t n_recv_total; /* receives that are posted in all */
	uint64_t rts_at_ns;
	uint64_t wait_ns;
	struct drain drain;
	struct progress send, recv; /* recv: with a shared queue only `checked` and what failed */
	uint32_t events;            /* bit n: enum frl_event_type n has been raised */
	/* requester, in packets and messages of the flow */
	uint32_t una;
	uint32_t acked; /* messages */
	/* responder: what the oracle has applied of the peer's flow */
	uint32_t accepted;     /* RC: packets */
	uint32_t message;      /* that the next packet belongs to */
	uint32_t recv_request; /* of the message that is arriving, or ENDPOINT_NO_RECV */
	uint32_t lost_receive; /* payload of a SEND that was taken away */
	uint32_t expect_from;  /* UC: the packet that continues a message */
	bool in_message;       /* UC: and it has not lost a packet */
	bool broken;           /* UC: the message lost a packet */
	uint32_t n_arrivals, n_expected, n_met, n_touched, n_seen;
	struct arrival arrivals[ENDPOINT_ARRIVALS];
	struct expected expected[ENDPOINT_EXPECTED];
	uint32_t seen[ENDPOINT_EXPECTED]; /* receives in new completions, in order */
	struct touched touched[ENDPOINT_TOUCHED];
	uint32_t posted_in_error;
};

/* Makes memory and queues; the queue pair is then in RESET. n_send, n_recv, window and the values
 * of the script have been chosen by then. */
void endpoint_init(struct endpoint *endpoint, uint32_t longest);
/* Moves from RESET to RTR, by `attr`. Returns false while an address is still being resolved. */
bool endpoint_connect(struct endpoint *endpoint);
/* From RTR to RTS. */
void endpoint_start(struct endpoint *endpoint);
/* Moves to SQD if it is time for that, or back to RTS when nothing is under way any more. */
void endpoint_drain(struct endpoint *endpoint);
void endpoint_to_error(struct endpoint *endpoint);
/* Destroys the queue pair while requests are in flight. */
void endpoint_remove_qp(struct endpoint *endpoint);
void endpoint_fini(struct endpoint *endpoint);

/* Returns true when the application has nothing left to wait for. */
bool endpoint_done(const struct endpoint *endpoint);

/* Takes up to `max` completions off each queue. Returns whether there were some. */
bool endpoint_poll(struct endpoint *endpoint, uint32_t max);

/* The end and request of a completion, by its identifier. */
uint64_t endpoint_wr_id(const struct endpoint *endpoint, bool recv, uint32_t sequence);
struct endpoint *endpoint_of(struct node *node, const struct frl_wc *wc);

static inline bool endpoint_is_reliable(const struct endpoint *endpoint)
{
	return endpoint->type == FRL_QPT_RC;
}

static inline bool wc_is_recv(const struct frl_wc *wc)
{
	return wc->wr_id >> 63;
}

static inline uint32_t wc_sequence(const struct frl_wc *wc)
{
	return (uint32_t)wc->wr_id;
}

/* For source and results. */
static inline uint32_t send_slot(const struct endpoint *endpoint, uint32_t k)
{
	return MEMORY_GUARD + (k & (endpoint->n_send - 1)) * endpoint->slot_size;
}

#endif
