/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings in memory that two processes share: one for each direction, a producer and a consumer each.
 * Pure data structure over the memory; ring_memory.c makes links of it.
 *
 * A ring is a row of records, which begin at cache lines. A record is a word that says what it is,
 * and behind it the frame. The word is written last and looked at first, so a frame of up to 60
 * bytes crosses between the processors in one line. Before a record is shown, the word of the next
 * one is zero: the consumer asks nothing but that. Where the consumer is the producer looks up only
 * when it takes the ring to be full, and it is told only now and then.
 *
 * Most frames of a connection begin with the same 42 bytes (Ethernet, IPv4, UDP), so both ends keep
 * some of these beginnings, and a frame that has one of them goes without.
 *
 * A consumer that is going to sleep says so in a word of its own, and looks once more. The producer
 * looks at that word behind what it has shown: so either the one or the other sees what was done.
 *
 * Nobody here trusts what the other end writes: it is read once, looked at in memory of one's own,
 * and nonsense ends in -EPROTO.
 */
#ifndef FERRULE_DRIVERS_LOCAL_RING_H
#define FERRULE_DRIVERS_LOCAL_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "drivers/local/local.h"

enum {
	RING_LINE = 64,
	RING_MAX_FRAME = LOCAL_MAX_PAYLOAD + 512,
	/* Records begin within so many bytes; the last one may go on behind that. */
	RING_BYTES = 256 << 10,
	RING_SMALL_BYTES = 64 << 10, /* of an end that has many links */
	RING_BEHIND = RING_MAX_FRAME + 2 * RING_LINE,
	RING_SHORT = 256,
	RING_STEM = 42,  /* bytes of a beginning */
	RING_STEMS = 16, /* beginnings, by a frame's length */
};

/* One direction, in shared memory. Pairs of lines, which processors fetch together. */
struct ring_way {
	alignas(2 * RING_LINE) _Atomic(uint32_t) taken; /* where the consumer says that it is */
	_Atomic(uint32_t) asleep;  /* it is to be woken: set by itself, and taken back by either */
	_Atomic(uint32_t) is_void; /* the producer is gone from the link: see ring_void() */
	/* A small ring has the first RING_SMALL_BYTES + RING_BEHIND alone. */
	alignas(2 * RING_LINE) uint8_t records[RING_BYTES + RING_BEHIND];
};

struct ring_stem {
	uint8_t bytes[RING_STEM];
};

/* The producer's end. One thread at a time. */
struct ring_tx {
	struct ring_way *way;
	uint32_t bytes; /* of the ring */
	uint32_t at;    /* where the next record begins */
	uint32_t taken; /* where the consumer was last seen */
	uint32_t next;  /* the record that is being written: what follows it ... */
	uint32_t word;  /* ... and its word */
	struct ring_stem stems[RING_STEMS];
};

/* The consumer's. One thread at a time. */
struct ring_rx {
	struct ring_way *way;
	uint32_t bytes;
	uint32_t at;
	uint32_t word;   /* of the record there, as it was read */
	uint32_t untold; /* bytes that were taken, and the producer does not know it */
	struct ring_stem stems[RING_STEMS];
};

/* Over zeroed memory. `bytes`: RING_BYTES or RING_SMALL_BYTES, the same at both ends. */
void ring_tx_init(struct ring_tx *tx, struct ring_way *way, uint32_t bytes);
void ring_rx_init(struct ring_rx *rx, struct ring_way *way, uint32_t bytes);

/*
 * Begins a frame of header_len + rest_len bytes, 1 to RING_MAX_FRAME. *ret_rest is where all of it
 * but the header has to be written to, before ring_show(). -EAGAIN: the ring is full. -EPROTO: the
 * consumer claims to be where nobody can be; nothing more can be sent. When it is 0, ring_show()
 * must be next: what the header begins with is kept already.
 */
int ring_begin(struct ring_tx *tx, const uint8_t *header, uint32_t header_len, uint32_t rest_len,
	uint8_t **ret_rest);
/* Hands it to the consumer. */
void ring_show(struct ring_tx *tx);
/* To be asked when something was shown, before the producer turns to anything else: true when the
 * consumer has to be woken. Once for each time that it falls asleep; a hostile one may have itself
 * woken whenever it is asked. */
bool ring_must_wake(struct ring_tx *tx);

/* The producer lets go of the link. What frames in the ring refer to elsewhere is the application's
 * again: it sees nothing written after this in a frame that ring_is_void() has let pass. */
void ring_void(struct ring_tx *tx);
bool ring_is_void(const struct ring_rx *rx);

/*
 * The length of the next frame, at most `max`, which is at least RING_STEM. -EAGAIN: there is none.
 * -EPROTO: the producer has written nonsense, and nothing that comes after it can be had:
 * ring_take() must not follow.
 */
int ring_look(struct ring_rx *rx, uint32_t max);
/* After a length alone: copies the frame and goes on to the next. Of up to RING_SHORT bytes: writes
 * up to RING_LINE - 1 bytes behind it. */
void ring_take(struct ring_rx *rx, uint8_t *frame);

/* The consumer is going to sleep, or awake. Before it sleeps there are ring_fence(), for all of its
 * rings together, and one more ring_look() at each. */
void ring_set_asleep(struct ring_rx *rx, bool asleep);
void ring_fence(void);

/* ring_memory.c: the memory. One end's view of both directions. */
struct ring_link {
	struct ring_tx tx;
	struct ring_rx rx;
	void *memory;
	size_t size;
};

/* Memory for a link's rings of `bytes`, as of ring_tx_init(); *ret_fd is for the other end, and the
 * caller's to close. -EAGAIN: there is no descriptor to be had for now; -ENOMEM and the like. */
int ring_link_make(uint32_t bytes, struct ring_link **ret_link, int *ret_fd);
/* At the other end. -EINVAL: the descriptor is not of such memory; otherwise as above. */
int ring_link_join(int fd, struct ring_link **ret_link);
void ring_link_destroy(struct ring_link *link);

#endif
