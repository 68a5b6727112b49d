/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A one-way connection from the caller of connect() to the caller of accept(). It uses one or more
 * paths; each path is an RC queue pair.
 *
 *	receiver                                   sender
 *	irecv: SEND of a struct announcement
 *	       over path 0 ----------------------> into a slot; matched with isends by tag
 *	       <---------------------------------- isend: RDMA WRITE with immediate, one piece
 *	       each piece consumes one posted      for each path
 *	       receive; the immediate has the
 *	       message's number and its count
 *	       of pieces
 *	test:  all pieces are received            test: all pieces are acknowledged
 *
 * Announcements are numbered. A receiver has at most ANNOUNCEMENTS whose data is outstanding.
 * Announcements are sends into slots, not RDMA writes to memory that the sender polls. So a thread
 * learns of all events from a completion queue, in order.
 *
 * A completion means that the whole piece is in place. Before the completion, a peer may write the
 * same bytes of the piece again. After the completion, no device places a packet again: an RC
 * responder executes packets in PSN order, and each of them once.
 */
#ifndef FERRULE_NCCL_COMM_H
#define FERRULE_NCCL_COMM_H

#include <stdatomic.h>
#include <stdbool.h>

#include <ferrule/cm.h>
#include <ferrule/queue.h>

#include "lib/base/time_budget.h"
#include "nccl/connect/cleanup.h"
#include "nccl/data/memory.h"
#include "nccl/net.h"

enum {
	ANNOUNCEMENTS = NCCL_MAX_REQUESTS,
	SEND_REQUESTS = ANNOUNCEMENTS * NET_MAX_RECEIVES,
	NUMBERS = 256, /* that the immediate can distinguish */
	NET_MAX_PATHS = 16,
	PATH_SENDS = 256,        /* pieces of a path that are not acknowledged */
	PATH_RECEIVES = 320,     /* posted receives of a path */
	ANNOUNCEMENT_SENDS = 64, /* announcements that are not acknowledged */
	ANNOUNCEMENT_SIGNALS = 16,
	SLOT_ALIGNMENT = 64,
	RECEIVE_BATCH = 64, /* receives that are posted together */
	ALIGNMENT = 128,    /* of pieces, so that no line is split between two paths */
	MIN_PIECE = 16384,  /* smaller messages use one path */
	MAX_PIECE = 1 << 28,
};

enum request_kind {
	REQUEST_FREE,
	REQUEST_SEND,
	REQUEST_RECEIVE,
};

/* A destination buffer of the peer. */
struct target {
	uint64_t addr;
	uint64_t size;
	int32_t tag;
	uint32_t rkeys[NET_MAX_RAILS];
};

/* One message of a grouped receive. */
struct part {
	uint64_t size;     /* of the receive buffer */
	uint64_t got;      /* received bytes */
	uint32_t n_pieces; /* 0: none received yet */
	uint32_t n_received;
};

struct request {
	struct comm *comm;
	struct request *next; /* in the free, waiting or posting list */
	enum request_kind kind;
	bool is_done;
	bool is_unpacked; /* unpack.c: belongs to a slot, never in the free list */
	registration_user users[NET_MAX_RECEIVES]; /* registrations of the buffers */
	union {
		struct {
			struct net_buffer buffer;
			struct target target;
			uint8_t number, part; /* of the announcement that it matches */
			uint32_t n_pieces, n_posted, n_acknowledged;
			uint32_t first_path;
			uint64_t piece; /* bytes of each piece but the last */
			void *events[NET_MAX_PATHS];
		} send;
		struct {
			uint32_t number;
			int n, n_complete;
			struct part parts[NET_MAX_RECEIVES];
		} receive;
	};
};

struct path {
	struct frl_qp *qp;
	struct frl_conn *conn;
	int rail, their_rail;
	bool is_up;
	uint32_t max_inline; /* bytes */
	uint32_t n_sends;    /* posted and not completed */
	uint32_t n_used;     /* consumed receives that are to be posted again */
};

/* A group of receives that the receiver has announced. */
struct group {
	int n, n_matched;
	bool matched[NET_MAX_RECEIVES];
	struct target targets[NET_MAX_RECEIVES];
};

struct request_queue {
	struct request *first;
	struct request **end;
};

struct sender {
	struct group groups[ANNOUNCEMENTS]; /* indexed by number */
	uint32_t oldest, next;              /* numbers: oldest unmatched group; next to announce */
	struct request_queue waiting;       /* for an announcement */
	struct request_queue posting;       /* matched, with pieces that are not posted yet */
	uint32_t next_path;                 /* for small messages */
	struct request requests[SEND_REQUESTS];
};

struct receiver {
	uint32_t next;                 /* number */
	uint32_t posted, acknowledged; /* announcements sent; those known to be acknowledged */
	struct request *by_number[NUMBERS];
	struct request requests[ANNOUNCEMENTS + NCCL_UNPACK_SLOTS];
};

struct comm {
	bool is_sender;
	bool is_reported;      /* NCCL's log has the failure */
	bool has_unflushed_qp; /* a queue pair failed without a flush */
	uint32_t n_idle;       /* tests since the last completion */
	atomic_bool is_stopped;
	int err; /* a negative errno after a failure */
	int failed_path;
	enum frl_wc_status status; /* of the failed work request */
	uint64_t failed_ns;
	char why[200]; /* "": the path has the reason */
	struct net_device *device;
	int n_paths, n_their_rails;
	struct path paths[NET_MAX_PATHS];
	struct frl_cq *cqs[NET_MAX_RAILS];
	struct frl_conn_peer peer; /* of the first path, once it is connected */
	nccl_profiler_fn profiler;
	int dev;
	struct request *free_requests;
	unsigned n_requests; /* requests in use */
	/* Slots to receive announcements in, or to send them from. They are registered with the
	 * first path's port. */
	uint8_t *slots;
	size_t slot_size;
	struct frl_mr *slots_mr;
	struct comm *next_started;
	bool has_comm_id; /* of NCCL's communicator: for receivers, since table v11 */
	uint64_t comm_id;
	struct unpack *unpack;  /* NULL: NCCL's kernels do not unpack this connection's receives */
	uint32_t path_mtu;      /* the smallest of all paths; only with `unpack` */
	struct cleanup closing; /* for the cleanup thread, with the remaining time */
	struct time_budget lingering;
	uint64_t linger_ns;
	union {
		struct sender send;
		struct receiver receive;
	};
};

/* The kind of a completion, in its wr_id with the path and the request or slot. */
enum work {
	WORK_PIECE_SENT,            /* sender: a piece was sent */
	WORK_ANNOUNCEMENT_RECEIVED, /* sender: an announcement was received */
	WORK_ANNOUNCEMENT_SENT,     /* receiver: an announcement was sent */
	WORK_PIECE_RECEIVED,        /* receiver: a piece was received */
};

#define WORK_ID(work, path, index, piece)                                            \
	((uint64_t)(piece) << 32 | (uint64_t)(index) << 16 | (uint64_t)(path) << 8 | \
		(uint64_t)(work))
#define WORK_OF(id)       ((enum work)((id)&0xff))
#define WORK_PATH(id)     ((unsigned)((id) >> 8 & 0xff))
#define WORK_INDEX(id)    ((uint32_t)((id) >> 16 & 0xffff))
#define WORK_PIECE_OF(id) ((uint32_t)((id) >> 32))

/* ---- comm.c */

/* Creates a connection with completion queues and slots, but without paths. It counts as a user of
 * the device. Fails with a negative errno such as -ENOMEM; the log has the reason. */
int net_comm_create(struct net_device *device, int dev, bool is_sender, int n_paths,
	int n_their_rails, struct comm **ret_comm);
/* Creates the queue pair of path `index`. */
int net_comm_add_path(struct comm *comm, int index);
/* Posts the initial receives, after all paths are connected. */
int net_comm_start(struct comm *comm);
/* Destroys the connection. If a NIC still holds some of its memory, the cleanup thread
 * destroys it later. */
void net_comm_destroy(struct comm *comm);
/* Stops the connection: no work request is pending when this returns. Callable from any thread. */
void net_comm_stop(struct comm *comm);

/* Polls completions, and continues the work that waited for them. Returns comm->err. */
int net_comm_poll(struct comm *comm);
/* Returns all requests, including free ones. */
struct request *net_comm_requests(struct comm *comm, int *ret_n);
struct request *net_request_take(struct comm *comm, enum request_kind kind);
/* Marks a request as in use. */
void net_request_begin(struct request *request, enum request_kind kind);
void net_request_free(struct request *request);
/* Ends a request and releases its buffers to NCCL. */
void net_request_end(struct request *request);

/* ---- send.c */

int net_send_start(struct comm *comm);
int net_send_handle_announcement(struct comm *comm, uint32_t slot, uint32_t bytes);
void net_send_handle_acknowledgement(
	struct comm *comm, struct path *path, uint32_t index, uint32_t piece);
/* Posts as many waiting pieces as there is room for. */
int net_send_continue(struct comm *comm);

/* ---- receive.c */

int net_receive_start(struct comm *comm);
int net_receive_handle_piece(struct comm *comm, uint32_t imm, uint32_t bytes);
int net_receive_continue(struct comm *comm);

#endif
