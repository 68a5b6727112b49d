/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels: what joins this rank with another one over one rail, two RC queue pairs.
 *
 * `bulk` carries large messages by reference: the receiver posts receives that place or reduce the
 * payload where it belongs, or place it in a ring (staging.h), in the order of the plan, and says
 * how many; the sender sends no more than that. A message is one segment of a step, its immediate
 * data says of which operation.
 *
 * `eager` carries messages of up to EAGER_BYTES into slots that wait for them, behind a header that
 * also tells how many bulk receives are posted and how many slots are free again. Headers that come
 * alone tell only that. They find receives of their own, and are not answered; should there be too
 * many, the transport sends them again.
 *
 * Lanes (run.h) lie over the channels of a peer: a lane's small messages take the first one, large
 * ones all of them in turn. A channel whose connection breaks while the peer lives goes on over the
 * next rail, where it stopped: see channel_restart().
 *
 * Counts are of messages since the channel was made, modulo 2^32.
 */
#ifndef FERRULE_COLLECTIVES_CHANNEL_H
#define FERRULE_COLLECTIVES_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/connect.h>

#include "collectives/run.h"

enum {
	BULK_RECEIVES = 64, /* posted at a time: the most credits that the peer has */
	BULK_SENDS = 128,   /* not acknowledged yet */
	BULK_SIGNALS = 16,  /* so many sends share a completion, unless a step waits for it */
	EAGER_DATA = 16,    /* slots for messages with payload */
	EAGER_ALONE = 8,    /* receives for headers that come alone */
	EAGER_RECEIVES = EAGER_DATA + EAGER_ALONE,
	EAGER_SENDS = 16, /* not acknowledged yet */
	EAGER_SIGNALS = 4,
	CHANNEL_COMPLETIONS = BULK_RECEIVES + BULK_SENDS + EAGER_RECEIVES + EAGER_SENDS,
	CHANNEL_HOST = 64, /* of a host's name */
	WORK_SLOTS = 32,
	CHANNEL_ALIGN = 4 * WORK_SLOTS, /* room for a work kind and a slot in a wr_id */
	TRANSFERS = 16,                 /* that are remembered of each peer and way */
};

#define CHANNEL_IS_POWER(number) (((number) & ((number)-1)) == 0)

_Static_assert(CHANNEL_IS_POWER(BULK_RECEIVES) && CHANNEL_IS_POWER(BULK_SENDS) &&
		CHANNEL_IS_POWER(EAGER_DATA) && CHANNEL_IS_POWER(EAGER_SENDS),
	"counts modulo 2^32 are places in a ring: its size divides that");

/* Which queue a completion is of. */
enum work_kind {
	WORK_BULK_SEND,
	WORK_BULK_RECEIVE,
	WORK_EAGER_SEND,
	WORK_EAGER_RECEIVE,
};

enum channel_state {
	CHANNEL_FLUSHING,   /* the connection broke; what it has still done is being found out */
	CHANNEL_ASKING,     /* the peer's endpoints are awaited */
	CHANNEL_CONNECTING, /* the queue pairs are on their way */
	CHANNEL_READY,      /* they are in RTS; the peer's are awaited */
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
	/* Of those that the device does not reduce, see staging.h: */
	uint8_t *chunk; /* where it arrives; NULL: in its place */
	struct channel *channel;
	struct segment *next; /* that has arrived */
};

/* Those of one direction, over all rails, in the lane's order: from `first` up to `next`. */
struct flight {
	struct segment *segments; /* by number modulo `size`, a power of two */
	uint32_t size;
	uint32_t first, next;
	uint32_t turn; /* the channel of the next one; those of equal ones at both ends */
};

/* A small message that waits for its step. */
struct arrival {
	uint8_t slot;
	uint32_t bytes;
};

/* Which way something goes, for this rank. */
enum transfer_way {
	TRANSFER_SENT,
	TRANSFER_RECEIVED,
	TRANSFER_WAYS,
};

/* What goes between two ranks where each end gives the length: SEND and RECV, and the pieces of
 * ALLTOALLV. See transfer.c. */
struct transfer {
	uint32_t number; /* of the operation */
	uint32_t index;  /* of the SEND and RECV between the two, that way */
	uint8_t coll, dtype, wire;
	uint64_t count; /* elements; TRANSFER_UNKNOWN: only the bytes are known */
	uint64_t bytes; /* 0: only the elements are known */
};

#define TRANSFER_UNKNOWN UINT64_MAX

/* The last ones of one way. */
struct transfers {
	uint32_t pairs;                  /* SENDs or RECVs so far */
	uint64_t noted;                  /* so far */
	struct transfer ring[TRANSFERS]; /* by `noted` modulo its size */
};

/* What one end of a channel has got and given until its connection broke. */
struct resume {
	uint32_t received; /* large messages */
	uint32_t partial;  /* bytes of the next one */
	uint32_t arrived;  /* small messages with payload */
	uint32_t credits;
	uint32_t returned;
};

struct channel {
	struct peer *peer;
	unsigned number;  /* of the peer's channels */
	unsigned rail;    /* over which it goes: its number's at first */
	uint32_t epoch;   /* connections that it had, or left out, before this one */
	uint32_t barren;  /* of them, in a row until this one: that carried nothing */
	uint32_t carried; /* messages, before this one */
	bool is_proven;   /* something has been acknowledged or has come over this one */
	enum channel_state state;
	bool is_connecting; /* in the list of those that are not up */
	struct channel *next_connecting;
	unsigned poller;
	bool has_room;       /* for its completions, in the poller's queue */
	uint32_t flushed_at; /* when its poller has been empty so often, all is found out */
	bool has_partial;
	uint32_t partial; /* bytes that the connection placed of a message that it did not finish */
	bool is_spoiled;  /* nobody knows how many */
	struct resume resume, their_resume;
	struct frl_qp *bulk, *eager;
	uint32_t path_mtu;                      /* of the connection; 0: there has been none */
	struct frl_endpoint mine[2], theirs[2]; /* of bulk and eager */
	bool has_theirs;
	char their_host[CHANNEL_HOST];
	bool peer_ready; /* its queue pairs can receive */
	bool is_asked;   /* it wants to hear of ours */
	uint64_t asked_ns;
	unsigned asks; /* without an answer that helps */

	/* Bulk, out. */
	uint32_t credits;                 /* receives that the peer has posted */
	struct signature their_operation; /* the last one that it has told */
	uint32_t sends_posted, sends_done;
	uint32_t send_numbers[BULK_SENDS]; /* by count: the segment in peer->sends */
	bool send_signaled[BULK_SENDS];
	/* Bulk, in. */
	uint32_t receives_posted, receives_done;
	uint32_t receive_numbers[BULK_RECEIVES];
	uint32_t short_at, short_by; /* of this receive's segment so many bytes have come before */
	uint32_t told_credits;
	/* Where chunks arrive, for runs on host memory, and on a GPU's; NULL: there are none. */
	struct staging_ring *ring, *gpu_ring;

	/* Eager, out. */
	uint32_t eager_posted, eager_acked;
	uint32_t eager_signaled;           /* eager_posted behind the last one that was */
	uint32_t data_sent, data_returned; /* messages with payload; those whose slots are free */
	bool is_telling;                   /* a header alone is not acknowledged yet: */
	uint32_t told_alone_at;            /* eager_posted behind it */
	/* Eager, in. */
	uint32_t arrivals_taken, arrivals_come;
	struct arrival arrivals[EAGER_DATA];
	uint32_t told_returned; /* of arrivals_taken */

	bool has_news; /* in the list of those that may have something to tell */
	struct channel *next_news;

	/* EAGER_RECEIVES, then EAGER_DATA to send from, and one for a header alone. */
	uint8_t *slots;
	uint32_t max_inline; /* bytes that the eager queue pair takes inline; may be 0 */
	struct frl_mr *mr;
};

struct peer {
	struct frl_comm *comm;
	int rank;
	struct peer *next; /* of all that there are */
	bool is_wanted;    /* its channels are being made, or are there */
	bool is_up;
	struct lane lanes[LANE_PEER_KINDS];
	struct flight sends, receives;
	struct transfers transfers[TRANSFER_WAYS];
	struct channel *channels[RAILS_MAX];
};

/* What two ranks can be in: `rank`, made when it is first asked for; NULL: no memory. */
struct peer *comm_peer(struct frl_comm *comm, int rank);
void peers_free(struct frl_comm *comm);

/* channel.c: begins to make the channels to the peer, if that has not happened. */
int peer_want(struct peer *peer);
/* A mail about a channel has come; `bytes` behind the mail's header. */
int channel_take_mail(struct frl_comm *comm, int rank, const uint8_t *bytes, size_t size);
/* Takes what steps can be taken towards connections. */
int channels_step(struct frl_comm *comm);
/* Asks those again who have not answered for long. */
int channels_ask_again(struct frl_comm *comm, uint64_t now_ns);
void channels_destroy_queue_pairs(struct frl_comm *comm);

/*
 * The connection is broken, or the peer says so, and the peer lives. Stops it for good; when it is
 * certain what has arrived over it, both ends tell each other, connect again over the next rail,
 * and go on there: nothing is lost, and nothing is placed or reduced twice. Lanes wait meanwhile.
 */
int channel_restart(struct channel *channel);
/* The peer has done so, and has this epoch now. */
int channel_follow(struct channel *channel, uint32_t epoch);
/* A work request of a channel failed: restarts it, or fails the communicator. */
int channel_failed(struct channel *channel, enum work_kind kind, const struct frl_wc *wc,
	enum frl_wc_status cause);
/* bulk.c, eager.c: what was posted and is not done is posted again; what the peer has is done. */
int bulk_resume_receives(struct channel *channel);
int bulk_resume_sends(struct channel *channel);
int eager_resume_sends(struct channel *channel);
int channel_nonsense(const struct channel *channel);
/* It cannot be connected, with the thread's last error: goes on over another rail where that may
 * help, or fails the communicator. */
int channel_connecting_failed(struct channel *channel, int err);
/* Has a port lost its link, or did some connection of a rail break? All others of it are dealt with
 * at once, so that operations do not find one after the other broken. */
int channels_check_rails(struct frl_comm *comm);
/* All channels of a rail go on elsewhere. */
int channels_leave_rail(struct frl_comm *comm, unsigned rail);
/* Nothing can happen to a stopped channel any more: it gets new queue pairs. */
int channel_reopen(struct channel *channel);

/* channel_move.c: the rail of an epoch. */
unsigned channel_rail_in(const struct channel *channel, uint32_t epoch);
/* The one in which it goes on over another rail, the best; 0: there is none, or it has moved on too
 * often for nothing. */
uint32_t channel_next_epoch(const struct channel *channel);
/* That of the peer, or a later one if the rail has failed here; 0: all have. */
uint32_t channel_followed_epoch(const struct channel *channel, uint32_t epoch);
bool channel_is_better_elsewhere(const struct channel *channel);
/* It moves on. */
void channel_count_move(struct channel *channel);
/* Something went over its connection: it works. */
void channel_prove(struct channel *channel);

/* channel_open.c */
struct channel *channel_new(struct peer *peer, unsigned number);
void channel_free(struct channel *channel);
/* Should the rail fail by that, the channel is going on over another one then. */
int channel_create_queue_pairs(struct channel *channel);
void channel_destroy_queue_pairs(struct channel *channel);
/* -EBUSY: a NIC still holds some of them. */
int channel_deregister_slots(struct channel *channel);
/* channel.c: tells the peer where the channel is; `asks`: and wants to hear the same. */
void channel_send_mail(struct channel *channel, bool asks);
void channel_add_to_connecting(struct channel *channel);

/* That of runs whose local steps `compute` does, or the processor. */
static inline struct staging_ring *channel_ring(
	const struct channel *channel, const struct compute *compute)
{
	return compute ? channel->gpu_ring : channel->ring;
}

static inline uint64_t work_id(const struct channel *channel, enum work_kind kind, uint32_t slot)
{
	return (uint64_t)(uintptr_t)channel | (uint64_t)kind * WORK_SLOTS | slot;
}

/* bulk.c: go on as far as they can. */
int lane_send_bulk(struct lane *lane);
int lane_receive_bulk(struct lane *lane);
int bulk_sent(struct channel *channel);
int bulk_received(struct channel *channel, const struct frl_wc *wc);
/* Reduces the oldest chunk that waits for it, or has a GPU do it; there is one. False: the GPU
 * cannot take it just now. */
bool bulk_reduce(struct frl_comm *comm);
/* That has been done. */
void bulk_reduced(struct segment *segment);

/* eager.c */
int lane_send_eager(struct lane *lane);
int lane_receive_eager(struct lane *lane);
int eager_sent(struct channel *channel, uint32_t slot);
int eager_received(struct channel *channel, const struct frl_wc *wc, uint32_t slot);
int eager_post_receives(struct channel *channel);
/* Credits or slots have changed: to be told, with the next message or alone. */
void channel_has_news(struct channel *channel);
int channel_tell(struct channel *channel);
/* Says which operation this rank is in, so that the other finds out if it is in another, or means
 * another length. */
int channel_probe(struct channel *channel, const struct run *run, enum transfer_way way);
/* Sends something over the connection, unless something is under way: if it is broken, that comes
 * out. */
int channel_ping(struct channel *channel);
/* Looks whether a small message that nothing waits for can ever be waited for. */
int channel_check_arrivals(struct channel *channel);

/* transfer.c. The run starts: what goes to and from others is written down. */
void transfers_note(struct run *run);
/* What this rank sends to or receives from the peer in an operation; NULL: that is not known. */
const struct transfer *transfer_find(
	const struct peer *peer, enum transfer_way way, const struct signature *signature);
/* The peer means `theirs` for what this rank sends or receives: 0, or the communicator's error when
 * both ends cannot go together. */
int transfer_compare(struct peer *peer, enum transfer_way way, const struct transfer *theirs);

/* A post failed with the thread's last error: so does the communicator. */
int channel_post_failed(struct channel *channel, int err);

#endif
