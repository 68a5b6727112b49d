/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-pingpong: what its files share. Options and the order of a run are in pingpong.c, one
 * connection and how to wait on it in link.c, how the ends meet and agree in
 * side.c, the two tests in measure.c. Rank 0 is the server, rank 1 the client,
 * which decides what is measured and prints it.
 */
#ifndef FERRULE_TOOLS_PINGPONG_PINGPONG_H
#define FERRULE_TOOLS_PINGPONG_PINGPONG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/ferrule.h>

#include "tools/common/common.h"
#include "tools/common/gpu.h"

enum {
	SERVER = 0,
	CLIENT = 1,
	PEERS = 2,

	MAX_SIZES = 64,
	MAX_WAIT_S = 3600,
	MAX_SLOTS = 64,       /* messages in flight */
	MAX_SIZE = 1 << 30,   /* of one message */
	CREDIT_RECEIVES = 16, /* for messages without data */
	MAX_SENDS = 2 * MAX_SLOTS,
	MAX_RUN = 16, /* sends that are posted by one call */
	MAX_RECEIVES = MAX_SLOTS + CREDIT_RECEIVES,
	SIDE_BYTES = 1024,
};

enum pp_op { PP_SEND, PP_WRITE, PP_OPS };
enum pp_test { PP_LATENCY, PP_BANDWIDTH, PP_TESTS };

/* What the client wants measured. Sent to the server as it is, who checks it. */
struct plan {
	uint64_t magic;
	uint32_t ops;    /* bits 1 << enum pp_op */
	uint32_t tests;  /* bits 1 << enum pp_test */
	uint32_t verify; /* 0 or 1 */
	uint32_t n_sizes;
	uint64_t iters;  /* 0: by size */
	uint64_t places; /* 0: as many as there are slots */
	uint64_t sizes[MAX_SIZES];
};

/* A message that came in. */
struct arrival {
	uint32_t length;
	uint32_t imm;
	bool with_imm;
};

/* What either end says when a connection is made. */
struct greeting {
	uint64_t magic;
	uint64_t token; /* the client's */
	uint64_t addr;  /* of the receive area */
	uint64_t rkey;
};

/* The connection beside the one that is measured: a message each way at a time. */
struct side {
	struct frl_conn *conn;
	struct frl_qp *qp;
	struct frl_cq *cq;
	struct frl_mr *mr;
	uint8_t buffers[2][SIDE_BYTES]; /* to send from, to receive into */
};

/* One end of the connection. Messages of a test lie in slots, number k in slot k % slots; where
 * there are fewer places than slots, several of them share one. */
struct link {
	int rank;
	const char *host; /* of the server; "": this one */
	const char *service;
	int wait_ms;                   /* for the service to be offered, and for each connection */
	struct frl_listener *listener; /* the server's */
	uint64_t token;                /* names the client */
	struct side side;
	struct frl_conn *conn;
	struct frl_device *device;
	struct frl_device_attr attr;
	struct frl_pd *pd;
	struct frl_cq *cq;
	struct frl_qp *qp;
	struct frl_mr *mr;
	uint8_t *memory; /* area_size bytes to send from, area_size to receive into */
	uint8_t *shown;  /* the same, or of a GPU's memory a copy, as the processor sees it */
	size_t area_size;
	uint64_t places; /* as in the plan */
	struct mem_option mem;
	struct gpu_memory gpu;
	uint64_t remote_addr; /* of the peer's receive area */
	uint32_t rkey;

	uint64_t posted, sent; /* sends: posted and known to be completed, ever */
	struct arrival inbox[MAX_RECEIVES];
	unsigned inbox_first, inbox_count;
	struct frl_backoff backoff;
	unsigned idle_rounds; /* in which no completion came, ever */
	uint64_t next_check_ns;
};

/* All of these say what is wrong themselves and return 0 or a negative errno. */

/* Opens the device and meets the peer. */
int link_join(struct link *link, const struct device_options *options, bool announce);

/* Gives the server the client's plan. */
int link_share_plan(struct link *link, struct plan *plan);

/* Connects, with memory for messages of up to `max_size`. */
int link_connect(struct link *link, size_t max_size);

/* Tells the peer by that. */
void link_close(struct link *link);

/* How many messages of `size` the areas hold; slots are a cache line or more apart. */
unsigned link_slots(const struct link *link, size_t size);
uint8_t *link_send_slot(const struct link *link, size_t size, uint64_t message);
uint8_t *link_receive_slot(const struct link *link, size_t size, uint64_t message);

/* The processor's sight of them: to write the message there, which then goes to the GPU if that has
 * the slots; and to look at one that has come from there. */
uint8_t *link_host_slot(const struct link *link, const uint8_t *slot);
int link_give(const struct link *link, const uint8_t *slot, size_t size);
int link_take(const struct link *link, const uint8_t *slot, size_t size);

/* A receive for message number `message`; size 0: one that brings no data into it. */
int link_post_receive(struct link *link, size_t size, uint64_t message);

/* Messages that are posted by one call: `n` from number `first` on, at most MAX_RUN. */
struct run {
	enum pp_op op;
	size_t size;
	uint64_t first;
	unsigned n;
	bool notify;      /* WRITEs complete at the peer, too */
	bool notify_last; /* the last one does */
};

/* Sends from the slots of the messages into the peer's slots. */
int link_post(struct link *link, const struct run *run);

/* A message without data, `imm` says it all. */
int link_post_credit(struct link *link, uint32_t imm);

/* Drives the connection once; notices when the peer is gone. Never blocks for long. */
int link_poll(struct link *link);

/* Waits for a message. */
int link_receive(struct link *link, struct arrival *ret_arrival);

/* Waits until the peer is here too, driving the connection meanwhile. */
int link_sync(struct link *link);

/* Says when the peer is gone. */
int link_check_peer(struct link *link);
/* Says that a request of the queue pair has failed, and why. */
void link_say_failed(struct frl_qp *qp, const struct frl_wc *wc);

/* Connections of `qp`: the client asks, and tries again while the service is not there yet; the
 * server answers. `greeting` is this end's, and then the peer's. *ret_conn is to be closed whatever
 * comes of it. */
int link_ask(struct link *link, struct frl_qp *qp, struct greeting *greeting,
	struct frl_conn **ret_conn);
int link_answer(struct link *link, struct frl_qp *qp, struct greeting *greeting,
	struct frl_conn **ret_conn);

/* The connection beside: made; `announce`: the server says that it waits. */
int side_connect(struct link *link, bool announce);
/* Both ends call it alike: `size` bytes each way, up to SIDE_BYTES. */
int side_exchange(struct link *link, const void *mine, size_t size, void *theirs);
/* The client goes first, so that nobody leaves while the other still needs an acknowledgement. */
void side_farewell(struct link *link);
void side_close(struct link *link);

struct latency {
	uint64_t iters;
	double min, p50, p99, p999; /* us */
};

struct bandwidth {
	uint64_t iters;
	double seconds;
};

/* Both ends call them alike; only the client's numbers mean anything. */
int measure_latency(struct link *link, const struct plan *plan, enum pp_op op, size_t size,
	struct latency *ret_latency);
int measure_bandwidth(struct link *link, const struct plan *plan, enum pp_op op, size_t size,
	struct bandwidth *ret_bandwidth);

#endif
