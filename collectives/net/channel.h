/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels. A channel connects this rank with one peer over one rail. It has two RC queue pairs.
 *
 * `bulk` carries large messages by reference. The receiver posts receives in the order of the plan;
 * each places or reduces the payload at its destination, or places it in a ring (staging.h). The
 * receiver grants credits for its posted receives, and the sender sends no more than that. A
 * message is one segment of a step; its immediate data identifies the operation.
 *
 * `eager` carries messages of up to EAGER_BYTES into preposted slots. Their header also reports how
 * many bulk receives are posted and how many slots are free again. A header without payload reports
 * only that. Such headers have receives of their own and are not answered; if there are too many,
 * RNR NAKs make the sender retransmit them.
 *
 * The lanes of a peer (communicator/run.h) share its channels: small messages use the first
 * channel, large messages use all channels in turn. If a connection breaks while the peer is alive,
 * the channel resumes over the next rail at the same position: see channel_restart().
 *
 * Counts are of messages since the channel was created, modulo 2^32.
 */
#ifndef FERRULE_COLLECTIVES_NET_CHANNEL_H
#define FERRULE_COLLECTIVES_NET_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/connect.h>

#include "collectives/communicator/run.h"
#include "collectives/net/steps.h"

enum {
	BULK_RECEIVES = 64, /* posted at a time: the most credits that the peer can have */
	BULK_SENDS = 128,   /* not acknowledged yet */
	BULK_SIGNALS = 16,  /* sends that share a completion, unless a step waits for one of them */
	EAGER_DATA = 16,    /* slots for messages with payload */
	EAGER_ALONE = 8,    /* receives for headers without payload */
	EAGER_RECEIVES = EAGER_DATA + EAGER_ALONE,
	EAGER_SENDS = 16, /* not acknowledged yet */
	EAGER_SIGNALS = 4,
	CHANNEL_COMPLETIONS = BULK_RECEIVES + BULK_SENDS + EAGER_RECEIVES + EAGER_SENDS,
	CHANNEL_HOST = 64, /* size of a host name */
	WORK_SLOTS = 32,
	CHANNEL_ALIGN = 4 * WORK_SLOTS, /* room for a work kind and a slot in a wr_id */
	TRANSFERS = 16,                 /* remembered for each peer and direction */
};

#define CHANNEL_IS_POWER(number) (((number) & ((number)-1)) == 0)

_Static_assert(CHANNEL_IS_POWER(BULK_RECEIVES) && CHANNEL_IS_POWER(BULK_SENDS) &&
		CHANNEL_IS_POWER(EAGER_DATA) && CHANNEL_IS_POWER(EAGER_SENDS),
	"counts modulo 2^32 are places in a ring: its size divides that");

/* The queue that a completion belongs to. */
enum work_kind {
	WORK_BULK_SEND,
	WORK_BULK_RECEIVE,
	WORK_EAGER_SEND,
	WORK_EAGER_RECEIVE,
};

enum channel_state {
	CHANNEL_FLUSHING,   /* the connection broke; its last completions are being collected */
	CHANNEL_EXCHANGING, /* waits for the peer's endpoints */
	CHANNEL_CONNECTING, /* the queue pairs are being connected */
	CHANNEL_READY,      /* the queue pairs are in RTS; waits for the peer's */
	CHANNEL_UP,
};

struct compute;

/* A large message under way. */
struct segment {
	struct run *run;
	uint32_t step;
	uint32_t count; /* elements */
	size_t first;
	bool done;
	/* Only for segments that the device does not reduce, see staging.h: */
	uint8_t *chunk; /* where it arrives; NULL: at its destination */
	struct channel *channel;
	struct segment *next; /* next one that has arrived */
};

/* Segments of one direction over all rails, in the order of the lane: from `first` up to `next`. */
struct flight {
	struct segment *segments; /* by number modulo `size`, a power of two */
	uint32_t size;
	uint32_t first, next;
	uint32_t turn; /* channel of the next segment; both ends use the same order */
};

/* A small message that waits for its step. */
struct arrival {
	uint8_t slot;
	uint32_t bytes;
};

/* The last transfers of one direction. */
struct transfers {
	uint32_t pairs;                  /* SENDs or RECVs so far */
	uint64_t noted;                  /* transfers so far */
	struct transfer ring[TRANSFERS]; /* by `noted` modulo its size */
};

/* The position of one end of a channel when its connection broke. */
struct resume {
	uint32_t received; /* large messages */
	uint32_t partial;  /* bytes of the next large message */
	uint32_t arrived;  /* small messages with payload */
	uint32_t credits;
	uint32_t returned;
};

struct channel {
	struct peer *peer;
	unsigned number;       /* index in the peer's channels */
	unsigned rail;         /* rail of the connection: at first `number` */
	uint32_t epoch;        /* number of the connection; connections that were skipped count */
	uint32_t empty_epochs; /* connections in a row before this one that carried nothing */
	uint32_t carried;      /* messages before this connection */
	bool is_proven;        /* the connection has delivered something, in either direction */
	enum channel_state state;
	bool is_connecting; /* in the list of channels that are not up */
	struct channel *next_connecting;
	unsigned poller;
	bool has_room; /* the poller's completion queue has room for this channel */
	/* value of poller.emptied at which all completions have been collected */
	uint32_t flushed_at;
	bool has_partial;
	uint32_t partial; /* bytes of an unfinished message that the connection has placed */
	bool is_spoiled;  /* the number of placed bytes is unknown */
	struct resume resume, their_resume;
	struct frl_qp *bulk, *eager;
	uint32_t path_mtu;                      /* of the connection; 0: never connected */
	struct frl_endpoint mine[2], theirs[2]; /* of bulk and eager */
	bool has_theirs;
	char their_host[CHANNEL_HOST];
	bool peer_ready; /* the peer's queue pairs can receive */
	bool is_asked;   /* the peer asks for the state of this rank's queue pairs */
	uint64_t mailed_ns;
	unsigned mails_unanswered; /* mails without a useful answer */

	/* Bulk, out. */
	uint32_t credits;                 /* receives that the peer has posted */
	struct signature their_operation; /* the last operation that the peer has reported */
	uint32_t sends_posted, sends_done;
	uint32_t send_numbers[BULK_SENDS]; /* by count: the segment's number in peer->sends */
	bool send_signaled[BULK_SENDS];
	/* Bulk, in. */
	uint32_t receives_posted, receives_done;
	uint32_t receive_numbers[BULK_RECEIVES];
	/* receive `short_at` is shorter by `short_by` bytes, which arrived before */
	uint32_t short_at, short_by;
	uint32_t reported_credits;
	/* Staging rings for runs on host memory and on GPU memory; NULL: not used. */
	struct staging_ring *ring, *gpu_ring;

	/* Eager, out. */
	uint32_t eager_posted, eager_acked;
	uint32_t eager_signaled; /* eager_posted after the last signaled send */
	/* messages with payload sent; messages whose slots are free */
	uint32_t data_sent, data_returned;
	bool is_reporting;          /* a header without payload is not acknowledged yet */
	uint32_t reported_alone_at; /* eager_posted after that header */
	/* Eager, in. */
	uint32_t arrivals_taken, arrivals_received;
	struct arrival arrivals[EAGER_DATA];
	uint32_t reported_returned; /* value of arrivals_taken that the peer has been sent */

	bool needs_report; /* in the list of channels that may have something to report */
	struct channel *next_report;

	/* EAGER_RECEIVES slots, then EAGER_DATA slots to send from, and one for a header without
	 * payload. */
	uint8_t *slots;
	uint32_t max_inline; /* most bytes that the eager queue pair takes inline; may be 0 */
	struct frl_mr *mr;
};

struct peer {
	struct frl_comm *comm;
	int rank;
	struct peer *next; /* in the list of all peers */
	bool has_channels; /* its channels exist or are being created */
	bool is_up;
	struct lane lanes[LANE_PEER_KINDS];
	struct flight sends, receives;
	struct transfers transfers[TRANSFER_WAYS];
	struct channel *channels[RAILS_MAX];
};

/* Returns the state for peer `rank`, which is created at the first call; NULL if there is no
 * memory. */
struct peer *comm_peer(struct frl_comm *comm, int rank);
/* Creates the state of all peers of the schedule. Returns false if there is no memory. */
bool peers_create(struct frl_comm *comm, const struct schedule *schedule);
void peers_free(struct frl_comm *comm);
/* Returns whether an operation needs more from the peer. Operations that wait for a stream do not
 * count yet. */
bool peer_is_awaited(const struct peer *peer);

/* completions.c: polls all completion queues. Returns the number of completions, or the
 * communicator's error. */
int channels_poll(struct frl_comm *comm);

/* channel.c: starts to create the channels to the peer, at the first call. */
int peer_open_channels(struct peer *peer);
/* Handles a MAIL_CONNECT; `bytes` follow the mail's header. */
int channel_take_mail(struct frl_comm *comm, int rank, const uint8_t *bytes, size_t size);
/* Advances all channels that are connecting. */
int channels_step(struct frl_comm *comm);
/* Repeats the mail to peers that have not answered for long. */
int channels_repeat_mail(struct frl_comm *comm, uint64_t now_ns);
void channels_destroy_queue_pairs(struct frl_comm *comm);

/*
 * Stops a channel whose connection broke while the peer lives. When all completions of the
 * connection have been collected, both ends exchange their positions, connect over the next rail,
 * and resume there: nothing is lost, and nothing is placed or reduced twice. The lanes wait
 * meanwhile.
 */
int channel_restart(struct channel *channel);
/* Restarts a channel because the peer did; the peer's epoch is `epoch`. */
int channel_follow(struct channel *channel, uint32_t epoch);
/* Handles a work request of a channel that failed: restarts the channel or fails the
 * communicator. */
int channel_failed(struct channel *channel, enum work_kind kind, const struct frl_wc *wc,
	enum frl_wc_status cause);
/* bulk.c, eager.c: complete what the peer has received, and post again what it has not. */
int bulk_resume_receives(struct channel *channel);
int bulk_resume_sends(struct channel *channel);
int eager_resume_sends(struct channel *channel);
int channel_malformed(const struct channel *channel);
/* Handles a channel that cannot be connected, with the thread's last error: tries another rail
 * if that may help, else fails the communicator. */
int channel_connecting_failed(struct channel *channel, int err);
/*
 * Checks whether a port has lost its link or a connection of a rail broke. If so, all channels of
 * the rail are moved or tested at once, so that operations do not find them broken one by one.
 */
int channels_check_rails(struct frl_comm *comm);
/* Moves all channels of a rail to other rails. */
int channels_leave_rail(struct frl_comm *comm, unsigned rail);
/* Gives new queue pairs to a stopped channel. All its completions must have been collected. */
int channel_reopen(struct channel *channel);

/* channel_move.c: returns the rail of an epoch. */
unsigned channel_rail_in(const struct channel *channel, uint32_t epoch);
/* Returns the epoch with the best other rail. Returns 0 if there is no other rail, or if the
 * channel has moved too often without carrying anything. */
uint32_t channel_next_epoch(const struct channel *channel);
/* Returns the peer's epoch, or a later one if that rail has failed here; 0 if all rails have
 * failed. */
uint32_t channel_followed_epoch(const struct channel *channel, uint32_t epoch);
bool channel_is_better_elsewhere(const struct channel *channel);
/* Counts a move to another rail. */
void channel_count_move(struct channel *channel);
/* Notes that the connection works: something was delivered over it. */
void channel_prove(struct channel *channel);

/* channel_open.c */
struct channel *channel_new(struct peer *peer, unsigned number);
void channel_free(struct channel *channel);
/* Creates the queue pairs. If the rail fails meanwhile, the channel resumes over another rail
 * and the call succeeds. */
int channel_create_queue_pairs(struct channel *channel);
void channel_destroy_queue_pairs(struct channel *channel);
/* Fails with -EBUSY while a NIC still uses a slot. */
int channel_deregister_slots(struct channel *channel);
/* channel.c: mails the state of the channel to the peer. `needs_answer`: requests the peer's state
 * as well. */
void channel_send_mail(struct channel *channel, bool needs_answer);
void channel_add_to_connecting(struct channel *channel);

/* Returns the staging ring for runs whose local steps `compute` does; NULL: the processor does. */
static inline struct staging_ring *channel_ring(
	const struct channel *channel, const struct compute *compute)
{
	return compute ? channel->gpu_ring : channel->ring;
}

static inline uint64_t work_id(const struct channel *channel, enum work_kind kind, uint32_t slot)
{
	return (uint64_t)(uintptr_t)channel | (uint64_t)kind * WORK_SLOTS | slot;
}

/* bulk.c: post as many messages as possible. */
int lane_send_bulk(struct lane *lane);
int lane_receive_bulk(struct lane *lane);
int bulk_sent(struct channel *channel);
int bulk_received(struct channel *channel, const struct frl_wc *wc);
/* Reduces the oldest waiting chunk, or starts its reduction on a GPU. There must be one. Returns
 * false if the GPU cannot accept it now. */
bool bulk_reduce(struct frl_comm *comm);

/* eager.c */
int lane_send_eager(struct lane *lane);
int lane_receive_eager(struct lane *lane);
int eager_sent(struct channel *channel, uint32_t slot);
int eager_received(struct channel *channel, const struct frl_wc *wc, uint32_t slot);
int eager_post_receives(struct channel *channel);
/* Notes that credits or slots have changed, to be reported with the next message or by a header
 * alone. */
void channel_needs_report(struct channel *channel);
int channel_report(struct channel *channel);
/* Sends a header with the operation of this rank, so that the peer detects if it is in another
 * operation or expects another length. */
int channel_probe(struct channel *channel, const struct run *run, enum transfer_way way);
/* Sends a header without payload unless one is under way, to detect a broken connection. */
int channel_ping(struct channel *channel);
/* Checks whether the first small message that has arrived can still match an operation. */
int channel_check_arrivals(struct channel *channel);

/* transfer.c: records the transfers of a run when it starts. */
void transfers_note(struct run *run);
/* Returns this rank's transfer with the peer in an operation, or NULL if it is not known. */
const struct transfer *transfer_find(
	const struct peer *peer, enum transfer_way way, const struct signature *signature);
/* Compares the peer's transfer with this rank's. Returns 0, or the communicator's error if the
 * two cannot match. */
int transfer_compare(struct peer *peer, enum transfer_way way, const struct transfer *theirs);

/* Handles a failed post, with the thread's last error: restarts the channel or fails the
 * communicator. */
int channel_post_failed(struct channel *channel, int err);

#endif
