/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-pingpong: declarations that its files share. Options and the order of a run are in
 * pingpong.c, the measured connection in link.c, connection setup and the control connection in
 * side.c, the two tests in measure.c. Rank 0 is the server. Rank 1 is the client, which chooses the
 * tests and prints the results.
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
	MAX_SIZE = 1 << 30,   /* bytes of one message */
	CREDIT_RECEIVES = 16, /* for messages without data */
	MAX_SENDS = 2 * MAX_SLOTS,
	MAX_RUN = 16, /* sends posted by one call */
	MAX_RECEIVES = MAX_SLOTS + CREDIT_RECEIVES,
	SIDE_BYTES = 1024,
};

enum pp_op { PP_SEND, PP_WRITE, PP_OPS };
enum pp_test { PP_LATENCY, PP_BANDWIDTH, PP_TESTS };

/* The tests that the client chose. Sent to the server unchanged, which checks it. */
struct plan {
	uint64_t magic;
	uint32_t ops;    /* bits 1 << enum pp_op */
	uint32_t tests;  /* bits 1 << enum pp_test */
	uint32_t verify; /* 0 or 1 */
	uint32_t n_sizes;
	uint64_t iters;  /* 0: depends on the size */
	uint64_t places; /* 0: as many as slots */
	uint64_t sizes[MAX_SIZES];
};

/* A received message. */
struct arrival {
	uint32_t length;
	uint32_t imm;
	bool with_imm;
};

/* Private data of both ends when a connection is made. */
struct greeting {
	uint64_t magic;
	uint64_t token; /* of the client */
	uint64_t addr;  /* address of the receive area */
	uint64_t rkey;
};

/* The control connection: one message each way at a time. */
struct side {
	struct frl_conn *conn;
	struct frl_qp *qp;
	struct frl_cq *cq;
	struct frl_mr *mr;
	uint8_t buffers[2][SIDE_BYTES]; /* send buffer, receive buffer */
};

/*
 * One end of the measured connection. Message number k is in slot k % slots. If there are fewer
 * places than slots, several slots share a place.
 */
struct link {
	int rank;
	const char *host; /* host of the server; "": this host */
	const char *service;
	int wait_ms;                   /* limit for finding the service, and for each connection */
	struct frl_listener *listener; /* of the server */
	uint64_t token;                /* identifies the client */
	struct side side;
	struct frl_conn *conn;
	struct frl_device *device;
	struct frl_device_attr attr;
	struct frl_pd *pd;
	struct frl_cq *cq;
	struct frl_qp *qp;
	struct frl_mr *mr;
	uint8_t *memory; /* area_size bytes to send from, followed by area_size to receive into */
	uint8_t *shown;  /* the same, or the host copy of GPU memory */
	size_t area_size;
	uint64_t places; /* as in the plan */
	struct mem_option mem;
	bool use_malloc; /* host memory of malloc() */
	struct gpu_memory gpu;
	uint64_t remote_addr; /* address of the peer's receive area */
	uint32_t rkey;

	uint64_t posted, sent; /* sends in total: posted, and known to be completed */
	struct arrival inbox[MAX_RECEIVES];
	unsigned inbox_first, inbox_count;
	struct frl_backoff backoff;
	unsigned idle_rounds; /* rounds without a completion, in total */
	uint64_t next_check_ns;
};

/* All functions that return int print what failed and return 0 or a negative errno. */

/* Opens the device and connects to the peer. */
int link_join(struct link *link, const struct device_options *options, bool announce);

/* Sends the client's plan to the server. */
int link_share_plan(struct link *link, struct plan *plan);

/* Makes the measured connection, with memory for messages of up to `max_size` bytes. */
int link_connect(struct link *link, size_t max_size);

/* Closes the connection; the peer is notified. */
void link_close(struct link *link);

/*
 * Returns how many messages of `size` bytes the areas hold. Slots are at least a cache line apart.
 */
unsigned link_slots(const struct link *link, size_t size);
uint8_t *link_send_slot(const struct link *link, size_t size, uint64_t message);
uint8_t *link_receive_slot(const struct link *link, size_t size, uint64_t message);

/*
 * Returns the host address of a slot. A message is written there and then copied to the GPU, if
 * slots are GPU memory. A received message is read there after a copy from the GPU.
 */
uint8_t *link_host_slot(const struct link *link, const uint8_t *slot);
int link_give(const struct link *link, const uint8_t *slot, size_t size);
int link_take(const struct link *link, const uint8_t *slot, size_t size);

/*
 * Posts a receive for message number `message`. `size` 0: for a message without data in the
 * receive.
 */
int link_post_receive(struct link *link, size_t size, uint64_t message);

/* Messages posted by one call: `n` from number `first` on, at most MAX_RUN. */
struct run {
	enum pp_op op;
	size_t size;
	uint64_t first;
	unsigned n;
	bool notify;      /* WRITEs complete at the peer too */
	bool notify_last; /* only the last WRITE does */
};

/* Sends messages from their slots into the peer's slots. */
int link_post(struct link *link, const struct run *run);

/* Sends a message without data; `imm` is its content. */
int link_post_credit(struct link *link, uint32_t imm);

/* Drives the connection once and detects the end of the peer. Does not block for long. */
int link_poll(struct link *link);

/* Waits for a message. */
int link_receive(struct link *link, struct arrival *ret_arrival);

/* Waits until the peer has called this too, and drives the connection meanwhile. */
int link_sync(struct link *link);

/* Returns an error if the peer is gone, and prints it. */
int link_check_peer(struct link *link);
/*
 * Prints why a request of this connection's queue pair has failed. If the link has ended, waits
 * until the end of the peer would be known. Returns an error.
 */
int link_fail(struct link *link, struct frl_conn *conn, struct frl_qp *qp, const struct frl_wc *wc);

/*
 * Connect `qp`. The client asks, and tries again while the service does not exist yet; the server
 * answers. `greeting` is that of this end, and is replaced by that of the peer. The caller closes
 * *ret_conn also after a failure.
 */
int link_ask(struct link *link, struct frl_qp *qp, struct greeting *greeting,
	struct frl_conn **ret_conn);
int link_answer(struct link *link, struct frl_qp *qp, struct greeting *greeting,
	struct frl_conn **ret_conn);

/* Makes the control connection. `announce`: the server prints that it waits. */
int side_connect(struct link *link, bool announce);
/* Exchanges `size` bytes with the peer, up to SIDE_BYTES. Both ends call this. */
int side_exchange(struct link *link, const void *mine, size_t size, void *theirs);
/*
 * Ends the control connection. The client leaves first, so that no end leaves while the other needs
 * an acknowledgement.
 */
void side_farewell(struct link *link);
void side_close(struct link *link);

struct latency {
	uint64_t iters;
	double min, p50, p99, p999; /* microseconds */
};

struct bandwidth {
	uint64_t iters;
	double seconds;
};

/* Run a test. Both ends call these functions; only the client's results are valid. */
int measure_latency(struct link *link, const struct plan *plan, enum pp_op op, size_t size,
	struct latency *ret_latency);
int measure_bandwidth(struct link *link, const struct plan *plan, enum pp_op op, size_t size,
	struct bandwidth *ret_bandwidth);

#endif
