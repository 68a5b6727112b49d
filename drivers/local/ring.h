/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings in memory shared by two processes: one ring for each direction, with one producer and one
 * consumer each. This is a pure data structure over the memory; ring_memory.c makes links of it.
 *
 * A ring is a sequence of records, which begin at cache lines. A record is a word that describes
 * it, followed by the frame. The word is written last and read first, so a frame of up to 60 bytes
 * crosses between processors in one line. Before a record is published, the word of the next one is
 * zero, so the consumer needs to check only that word. The producer reads the consumer's position
 * only when the ring seems full, and the consumer updates it only occasionally.
 *
 * Most frames of a connection begin with the same 42 bytes (Ethernet, IPv4, UDP). Both ends store
 * some of these stems, and a frame with a stored stem is sent without it.
 *
 * A consumer that is about to sleep sets a word of its own, and checks the ring once more. The
 * producer checks that word after it has published. So at least one of them sees the other's store.
 *
 * Neither end trusts data from the other: each value is read once into private memory and
 * validated. Invalid data ends in -EPROTO. Only payload may be used in the ring, where the peer can
 * spoil what it sends itself.
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
	/* Records begin within this many bytes. The last record may extend past them. The
	 * lines of 1 MiB leave second-level caches before they are written again. */
	RING_BYTES = 1 << 20,
	RING_MEDIUM_BYTES = 256 << 10,
	RING_SMALL_BYTES = 64 << 10,
	RING_BEHIND = RING_MAX_FRAME + 2 * RING_LINE,
	RING_SHORT = 256,
	RING_STEM = 42,  /* bytes of a stem */
	RING_STEMS = 16, /* stored stems, indexed by a frame's length */
};

/* One direction, in shared memory. Members are aligned to pairs of lines, which processors fetch
 * together. */
struct ring_way {
	alignas(2 * RING_LINE) _Atomic(uint32_t)
		taken;            /* position up to which the consumer has taken frames */
	_Atomic(uint32_t) asleep; /* the consumer needs a wake-up: set by it, reset by either end */
	_Atomic(uint32_t) is_void; /* the producer has left the link: see ring_void() */
	/* A shorter ring has only the first bytes: its size + RING_BEHIND. */
	alignas(2 * RING_LINE) uint8_t records[RING_BYTES + RING_BEHIND];
};

struct ring_stem {
	uint8_t bytes[RING_STEM];
};

/* The producer's end. One thread at a time. */
struct ring_tx {
	struct ring_way *way;
	uint32_t bytes; /* size of the ring */
	uint32_t at;    /* start of the next record */
	uint32_t taken; /* last known position of the consumer */
	uint32_t next;  /* the record being written: start of the next one ... */
	uint32_t word;  /* ... and its word */
	struct ring_stem stems[RING_STEMS];
};

/* The consumer's end. One thread at a time. */
struct ring_rx {
	struct ring_way *way;
	uint32_t bytes;
	uint32_t at;
	uint32_t word;         /* word of the next record, as read */
	uint32_t unreported;   /* bytes taken since the last update of `taken` */
	bool has_rests_in_use; /* some of these are still in use: see ring_take_split() */
	struct ring_stem stems[RING_STEMS];
};

/* Returns the size of rings of a device's n-th link, counted from 1: one of the three above. */
uint32_t ring_bytes_for(uint32_t ordinal);
/* Returns the next shorter size, or the shortest one. */
uint32_t ring_shorter(uint32_t bytes);
/* Initialises an end over zeroed memory. `bytes`: one of the three sizes, equal at both ends. */
void ring_tx_init(struct ring_tx *tx, struct ring_way *way, uint32_t bytes);
void ring_rx_init(struct ring_rx *rx, struct ring_way *way, uint32_t bytes);

/*
 * Begins a frame of header_len + rest_len bytes, 1 to RING_MAX_FRAME. The caller writes everything
 * but the header to *ret_rest, and then calls ring_show(). Returns -EAGAIN if the ring is full.
 * Returns -EPROTO if the consumer's position is impossible; nothing more can be sent then. After 0,
 * ring_show() or ring_cancel() must follow, because the header's stem is stored already.
 */
int ring_begin(struct ring_tx *tx, const uint8_t *header, uint32_t header_len, uint32_t rest_len,
	uint8_t **ret_rest);
/* Call before ring_show() if all but the header may stay in the ring while the consumer uses it.
 * The header has RING_STEM bytes or more. */
void ring_split(struct ring_tx *tx, uint32_t header_len);
/* Publishes the frame to the consumer. */
void ring_show(struct ring_tx *tx);
/* Gives the frame up. Call it before ring_split() and instead of ring_show(). */
void ring_cancel(struct ring_tx *tx);
/* Call after publishing, before the producer does anything else. Returns true if the consumer must
 * be woken, once for each time that it falls asleep. A hostile consumer may cause a wake-up at each
 * call. */
bool ring_must_wake(struct ring_tx *tx);

/* Ends the producer's use of the link. Memory that frames in the ring refer to returns to the
 * application. Later writes to it are invisible in any frame that ring_is_void() has accepted. */
void ring_void(struct ring_tx *tx);
bool ring_is_void(const struct ring_rx *rx);

/*
 * Returns the length of the next frame, at most `max`, which is at least RING_STEM. Returns -EAGAIN
 * if there is none. Returns -EPROTO if the producer has written invalid data; ring_take() must not
 * follow then, and later frames are lost.
 */
int ring_look(struct ring_rx *rx, uint32_t max);
/* Copies the frame and advances. Call only after ring_look() has returned a length. For frames of
 * up to RING_SHORT bytes, writes up to RING_LINE - 1 bytes beyond the frame. */
void ring_take(struct ring_rx *rx, uint8_t *frame);
/*
 * The same, but leaves the rest of a split frame in the ring. Returns its address, and the length
 * of the header, which is copied. Returns NULL if the frame is not split; all of it is copied
 * then.
 * The rest is in use until ring_release(). The producer may change it meanwhile.
 */
const uint8_t *ring_take_split(struct ring_rx *rx, uint8_t *frame, uint32_t *ret_header_len);
/* Ends the use of all rests. */
void ring_release(struct ring_rx *rx);
/* Returns true if rests take so much of the ring that no more frames should be taken before
 * ring_release(): the producer may wait for room. */
bool ring_must_release(const struct ring_rx *rx);

/* Sets whether the consumer sleeps. Before it sleeps, it calls ring_fence() once for all of its
 * rings, and then ring_look() again at each. */
void ring_set_asleep(struct ring_rx *rx, bool asleep);
void ring_fence(void);

/* ring_memory.c: the memory. One end's view of both directions. */
struct ring_link {
	struct ring_tx tx;
	struct ring_rx rx;
	void *memory;
	size_t size;
};

/* Creates memory for a link's rings, with `bytes` as in ring_tx_init(). *ret_fd is for the other
 * end; the caller closes it. Returns -EAGAIN if no descriptor is free at the moment, -ENOMEM or
 * another errno. */
int ring_link_make(uint32_t bytes, struct ring_link **ret_link, int *ret_fd);
/* Maps the memory at the other end. Returns -EINVAL if the descriptor is not such memory, or is of
 * rings longer than `most_bytes`, else as above. */
int ring_link_join(int fd, uint32_t most_bytes, struct ring_link **ret_link);
void ring_link_destroy(struct ring_link *link);

#endif
