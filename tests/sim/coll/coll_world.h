/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks over a simulated network. All of the library (devices, queue pairs, engine, collectives) is
 * the real one. Each rank is a coroutine of this one thread. When it would wait, in
 * frl_backoff_idle(), the others run; when all of them wait, virtual time advances to the next
 * event. The library's calls of its environment are answered here. The linker (--wrap) replaces
 * clock_gettime(), nanosleep(), getrandom(), location_host(), location_processors(),
 * location_waited_ns(), comm_measure(), comm_thread_start(), frl_poll_cq() and dpdk_port_open().
 * While no world runs, the real functions are called.
 *
 * The network is a switch that never blocks, with a link in each direction to every port. Frames
 * are serialised at both ends, and half of the delay belongs to each link.
 */
#ifndef FERRULE_SIM_COLL_WORLD_H
#define FERRULE_SIM_COLL_WORLD_H

#include <ferrule/collective.h>

#include <ucontext.h>

#include "drivers/port.h"
#include "tests/sim/common/clock.h"
#include "tests/sim/common/link.h"
#include "tests/sim/common/trace.h"

enum {
	COLL_RAILS = 4,
	COLL_CUTS = 24,
	COLL_TX_DEPTH = 64, /* frames that wait for the line */
	COLL_STACK = 256 * 1024,
	COLL_IDLE_NS = 1000000, /* the longest that a rank waits without looking */
};

/* A rail of a rank dies, both ways, with or without a link event of its port; or it is back. */
struct coll_cut {
	uint64_t ns; /* 0: it does not happen */
	int rank, rail;
	bool is_told;
	bool heals;
};

struct coll_config {
	uint64_t seed;
	int ranks;
	int rails;
	int ranks_per_host;
	uint32_t mtu;
	uint64_t poor;  /* ranks, a bit each, whose devices do not reduce on receive, and */
	bool poor_tell; /* tell how much of a message has come; hardware does not */
	bool is_traced;
	bool is_busy;            /* ranks wait for a processor half of the time */
	bool measures;           /* what messages cost; otherwise the defaults count */
	bool progresses;         /* devices make progress without calls: ranks use coll_attend() */
	uint64_t mail_ns;        /* from rank to rank by the bootstrap */
	unsigned mail_losses;    /* one of so many mails is lost; 0: none */
	uint64_t hold_ns;        /* ports have memory in use so long after they sent from it */
	uint64_t oversleep_ns;   /* every nanosleep() ends so much late: a busy machine */
	struct link_config to;   /* from the ranks to the switch */
	struct link_config from; /* and back */
	struct coll_cut cuts[COLL_CUTS];
	bool may_fail;        /* ranks may give up */
	bool tells_leaving;   /* the bootstrap says at once who has left, and who gave up: */
	uint64_t gone_ns;     /* that so much later */
	uint64_t deadline_ns; /* by then all ranks have returned */
	void (*run)(struct frl_bootstrap *bootstrap, struct frl_device *const devices[], void *arg);
	void *arg;
};

struct coll_rank;

/* One rail of one rank. */
struct coll_port {
	struct port base;
	struct coll_rank *rank;
	struct link to, from;
	struct frame **rx; /* a ring, of a power of two */
	uint32_t rx_size, rx_head, rx_tail;
	struct frame *handed_out[PORT_BURST];
	uint32_t n_handed_out;
	uint32_t n_mapped;
	uint64_t held_until_ns; /* memory that it has sent from */
	bool is_open;
	bool is_blocked; /* it is told when the line is half empty */
	bool is_down;    /* and says so */
};

struct coll_mail {
	struct coll_mail *next;
	int from;
	size_t size;
	uint8_t bytes[];
};

struct coll_rank {
	struct coll_world *world;
	int number;
	ucontext_t context;
	uint8_t *stack;
	void *fake_stack; /* the address sanitizer's */
	bool is_waiting, is_done;
	struct coll_rank *next_ready;
	uint64_t timer_ns; /* the earliest that is pending, or CLOCK_NEVER */
	uint64_t idled_ns; /* when it last did, with frames to receive */
	struct frl_device *devices[COLL_RAILS];
	struct coll_port ports[COLL_RAILS];
	struct frl_bootstrap bootstrap;
	void (*receive)(void *arg, int rank, const void *data, size_t size);
	void *receive_arg;
	struct coll_mail *kept, **kept_end;
	/* For a thread that the library has started in the rank `owner`: */
	struct coll_rank *owner, *next_thread;
	void (*thread)(void *arg);
	void *thread_arg;
};

struct coll_meeting {
	int arrived;
	uint64_t rounds;
	size_t size;
	uint8_t *pieces[2]; /* by round */
};

struct coll_world {
	struct coll_config config;
	struct clock clock;
	struct trace trace;
	struct random_state random;
	uint64_t live_frames;
	struct coll_rank *ranks;
	struct coll_rank *current; /* NULL: none of them is running */
	struct coll_rank *reading; /* whose mail is being received then */
	struct coll_rank *threads; /* of the library, with those that have ended */
	struct coll_rank *ready, **ready_end;
	int done;
	int gone; /* rank that gave up, or -1 */
	uint64_t gone_at_ns;
	unsigned mails;
	struct coll_meeting gather, meeting;
	ucontext_t main;
	const void *main_stack; /* the address sanitizer's */
	size_t main_stack_size;
	struct link_stats stats;
	int cuts;               /* that have happened while all ranks were there */
	uint64_t bytes_reduced; /* by devices */
	uint64_t poor_partials; /* messages to the other devices that were cut off */
};

/* The running rank, or NULL. */
extern struct coll_world *coll_world;

/* Runs all ranks to their end, and checks that nothing is left of them. */
void coll_world_run(struct coll_world *world, const struct coll_config *config);
void coll_world_free(struct coll_world *world);

/* For a rank: waits until all ranks have called it, and answers its peers meanwhile. */
void coll_meet(void);

/* For a rank: computes for that long, without using the library. */
void coll_compute(uint64_t ns);

/* The same, while progress threads drive the devices. */
void coll_stay_outside(uint64_t ns);

/* Nanoseconds of virtual time. */
uint64_t coll_now(void);

/* The rank, which may be running, must check for events. */
void coll_wake(struct coll_rank *rank);
/* For an idle rank: waits until it is woken, or its devices have work. */
void coll_idle(struct coll_rank *rank);
/* The same, and drives the devices, as a progress thread does. */
void coll_attend(struct coll_rank *rank);

/* coll_port.c */
void coll_ports_init(struct coll_rank *rank);
/* Closes all of them and adds up the counts of their links. */
void coll_ports_fini(struct coll_rank *rank);
bool coll_ports_have_rx(const struct coll_rank *rank);

/* coll_bootstrap.c */
void coll_bootstrap_init(struct coll_rank *rank);
void coll_bootstrap_fini(struct coll_rank *rank);

#endif
