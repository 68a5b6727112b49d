/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection: one way, from who has called connect() to who has called accept(), over one or more
 * RC queue pairs, its paths.
 *
 *	receiver                                   sender
 *	irecv: SEND over path 0, of a struct
 *	       announcement ---------------------> into a slot; matched with isends by tag
 *	       <--------------------------------- isend: RDMA WRITE with immediate, in pieces,
 *	       one receive is used up for each     one for each path
 *	       piece; the immediate says of which
 *	       message it is, and how many pieces
 *	       that has
 *	test:  all pieces have come               test: all pieces are acknowledged
 *
 * Announcements are numbered, and a receiver has at most ANNOUNCEMENTS out whose data has not come.
 * They are sends into slots, and not writes to memory that the sender looks at: so all that a
 * thread learns comes from a completion queue, in order.
 *
 * A completion is the sign that all of a piece is in place. Until it has been written, a peer may
 * write the piece again with the same bytes; afterwards neither a hardware device nor Ferrule's own
 * places a packet twice: an RC responder takes a packet in PSN order, and once.
 */
#ifndef FERRULE_NCCL_COMM_H
#define FERRULE_NCCL_COMM_H

#include <stdatomic.h>
#include <stdbool.h>

#include <ferrule/cm.h>
#include <ferrule/queue.h>

#include "lib/base/time_budget.h"
#include "nccl/memory.h"
#include "nccl/net.h"
#include "nccl/reaper.h"

enum {
	ANNOUNCEMENTS = NCCL_MAX_REQUESTS,
	SEND_REQUESTS = ANNOUNCEMENTS * NET_MAX_RECEIVES,
	NUMBERS = 256, /* that an immediate tells apart */
	NET_MAX_PATHS = 16,
	PATH_SENDS = 256,    /* pieces of a path that are not acknowledged */
	PATH_RECEIVES = 320, /* pieces that can come */
	TELLINGS = 64,       /* announcements that are not acknowledged */
	TELLING_SIGNALS = 16,
	SLOT_ALIGNMENT = 64,
	RECEIVE_BATCH = 64, /* so many are posted again at a time */
	ALIGNMENT = 128,    /* of pieces, so that no line is torn between two paths */
	MIN_PIECE = 16384,  /* smaller messages take one path */
	MAX_PIECE = 1 << 28,
};

enum request_kind {
	REQUEST_FREE,
	REQUEST_SEND,
	REQUEST_RECEIVE,
};

/* What the peer wants to have in one place. */
struct target {
	uint64_t addr;
	uint64_t size;
	int32_t tag;
	uint32_t rkeys[NET_MAX_RAILS];
};

/* One message of a grouped receive. */
struct part {
	uint64_t size;     /* room */
	uint64_t got;      /* bytes */
	uint32_t n_pieces; /* 0: none has come */
	uint32_t n_come;
};

struct request {
	struct comm *comm;
	struct request *next; /* free, waiting or being posted */
	enum request_kind kind;
	bool is_done;
	bool is_unpacked; /* unpack.c's: a slot's own, which is never among those that are free */
	registration_user users[NET_MAX_RECEIVES]; /* of the buffers */
	union {
		struct {
			struct net_buffer buffer;
			struct target target;
			uint8_t number, part; /* of the announcement that it answers */
			uint32_t n_pieces, n_posted, n_acknowledged;
			uint32_t first_path;
			uint64_t piece; /* bytes of each but the last */
			void *events[NET_MAX_PATHS];
		} send;
		struct {
			uint32_t number;
			int n, n_full;
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
	uint32_t n_sends;    /* under way */
	uint32_t n_used;     /* receives that are to be posted again */
};

/* A group that the receiver has announced. */
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
	struct group groups[ANNOUNCEMENTS]; /* by number */
	uint32_t oldest, next;              /* numbers: not all matched; to be announced */
	struct request_queue waiting;       /* for an announcement */
	struct request_queue posting;       /* matched; some pieces are not posted */
	uint32_t next_path;                 /* of small messages */
	struct request requests[SEND_REQUESTS];
};

struct receiver {
	uint32_t next;         /* number */
	uint32_t posted, told; /* announcements; those that have been acknowledged for certain */
	struct request *by_number[NUMBERS];
	struct request requests[ANNOUNCEMENTS + NCCL_UNPACK_SLOTS];
};

struct comm {
	bool is_sender;
	bool is_told;    /* of the failure: NCCL's log */
	bool is_suspect; /* a queue pair has failed and has not flushed */
	uint32_t n_idle; /* tests since the last completion */
	atomic_bool is_given_up;
	int err; /* a negative errno: it has failed */
	int failed_path;
	enum frl_wc_status status; /* of what failed there */
	uint64_t failed_ns;
	char why[200]; /* "": look at the path */
	struct net_device *device;
	int n_paths, n_their_rails;
	struct path paths[NET_MAX_PATHS];
	struct frl_cq *cqs[NET_MAX_RAILS];
	struct frl_conn_peer peer; /* of the first path, once it is up */
	nccl_profiler_fn profiler;
	int dev;
	struct request *free_requests;
	unsigned n_requests; /* that are not free */
	/* Announcements: to receive them in, or to send them from; of the first path's port. */
	uint8_t *slots;
	size_t slot_size;
	struct frl_mr *slots_mr;
	struct comm *next_started;
	bool has_comm_id; /* of NCCL's communicator: of receivers, from table v11 on */
	uint64_t comm_id;
	struct unpack *unpack; /* NULL: NCCL's kernels unpack nothing that comes here */
	uint32_t path_mtu;     /* the smallest; only with `unpack` */
	struct chore closing;  /* the reaper's, with the time that is left */
	struct time_budget lingering;
	uint64_t linger_ns;
	union {
		struct sender send;
		struct receiver receive;
	};
};

/* What a completion is of: in its wr_id, with the path and the request or slot. */
enum work {
	WORK_PIECE,        /* sender: sent */
	WORK_ANNOUNCEMENT, /* sender: has come */
	WORK_TELLING,      /* receiver: announced */
	WORK_ARRIVAL,      /* receiver: a piece has come */
};

#define WORK_ID(work, path, index, piece)                                            \
	((uint64_t)(piece) << 32 | (uint64_t)(index) << 16 | (uint64_t)(path) << 8 | \
		(uint64_t)(work))
#define WORK_OF(id)       ((enum work)((id)&0xff))
#define WORK_PATH(id)     ((unsigned)((id) >> 8 & 0xff))
#define WORK_INDEX(id)    ((uint32_t)((id) >> 16 & 0xffff))
#define WORK_PIECE_OF(id) ((uint32_t)((id) >> 32))

/* ---- comm.c */

/* With its completion queues and slots, and no paths; a user of the device. What went wrong is in
 * the log. -ENOMEM, ... */
int net_comm_create(struct net_device *device, int dev, bool is_sender, int n_paths,
	int n_their_rails, struct comm **ret_comm);
/* Path `index` gets its queue pair. */
int net_comm_add_path(struct comm *comm, int index);
/* All paths are up: posts what receives. */
int net_comm_start(struct comm *comm);
/* It is gone, or the reaper's if a NIC still holds some of its memory. */
void net_comm_destroy(struct comm *comm);
/* Nothing of it is under way any more when this returns. Any thread. */
void net_comm_stop(struct comm *comm);

/* Takes completions, and goes on with what waited for them. Returns comm->err. */
int net_comm_poll(struct comm *comm);
/* All that there are, used or not. */
struct request *net_comm_requests(struct comm *comm, int *ret_n);
struct request *net_request_take(struct comm *comm, enum request_kind kind);
/* One that is not in use is from now on. */
void net_request_begin(struct request *request, enum request_kind kind);
void net_request_free(struct request *request);
/* It is over: its memory is NCCL's again. */
void net_request_end(struct request *request);

/* ---- send.c */

int net_send_start(struct comm *comm);
int net_send_take_announcement(struct comm *comm, uint32_t slot, uint32_t bytes);
void net_send_acknowledged(struct comm *comm, struct path *path, uint32_t index, uint32_t piece);
/* Posts what there is room for again. */
int net_send_go_on(struct comm *comm);

/* ---- receive.c */

int net_receive_start(struct comm *comm);
int net_receive_arrived(struct comm *comm, uint32_t imm, uint32_t bytes);
int net_receive_go_on(struct comm *comm);

#endif
