/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The page that a rank shares with the other ranks of a machine, and its mapping. Only its owner
 * writes it. Readers validate its numbers as they do those of packets.
 *
 * Private to this folder.
 */
#ifndef FERRULE_COLLECTIVES_SHM_PAGE_H
#define FERRULE_COLLECTIVES_SHM_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "collectives/communicator/run.h"
#include "collectives/plan/thresholds.h"

enum {
	SHM_SLOTS = 8, /* operations under way, at most */
	SHM_HEADER = 48,
	SHM_SLOT_BYTES = SHM_HEADER + SHM_INLINE,
	/* Blocks of a ring. 16 blocks (1 MiB) exceed a second-level cache of that size: lines leave
	 * it before they are written again, which helps processors that share a third-level cache
	 * (decision 75). More ranks have more rings, so each is shorter. */
	SHM_RING_OF_TWO = 16,
	SHM_RING_OF_MORE = 4,
	SHM_RING_UNIT = 4 << 10, /* bytes: operations reserve multiples of a page of memory */
	SHM_EXPORTS = 128,
};

/* Memory of the rank from frl_mem_alloc(). */
struct shm_export {
	uint64_t id; /* never reused by this process; 0: none */
	uint64_t inode;
	uint64_t size;
	int32_t fd;
	uint32_t zero;
};

/* The location of a buffer. */
struct shm_location {
	struct shm_export export; /* id 0: the data comes through a ring */
	uint64_t offset;
};

/* The place in which a rank provides its input of a short operation. */
enum shm_input_kind {
	SHM_IN_SLOT,
	SHM_IN_PLACE, /* in the memory described by `send`, until all have read it */
	SHM_IN_RING,  /* also in the ring for all: a rank could not map it */
};

struct shm_slot {
	/* Number of the operation plus 1, which publishes all fields below. */
	_Alignas(64) _Atomic uint64_t sequence;
	struct signature signature;
	uint64_t history; /* hash of all earlier operations */
	/* Only for short operations: enum shm_input_kind. */
	_Atomic uint64_t input_kind;
	union {
		uint8_t data[SHM_INLINE];
		struct {
			/* The input, from which others reduce or take; and the result, which
			 * they take when it is made. */
			struct shm_location send, out;
			uint32_t keeps_send; /* all of `send` stays unchanged until the end */
			/* the rank supports non-temporal stores for this operation */
			uint32_t passes_cache;
		};
	};
};

_Static_assert(sizeof(struct shm_slot) == SHM_SLOT_BYTES, "the first line has some data, too");
_Static_assert(SHM_SLOT_BYTES == 32 << 10, "slots are whole pages");
_Static_assert(offsetof(struct shm_slot, data) == SHM_HEADER, "no holes");

/* Progress of a long operation, in rounds of one block of each part: SHM_AT(number, rounds). */
struct shm_progress {
	_Alignas(64) _Atomic uint64_t staged; /* this rank's input, in the rings */
	_Atomic uint64_t made;                /* this rank's part */
	_Atomic uint64_t taken;               /* results of all others */
	_Atomic uint64_t delivered;           /* of `made`: also in the results of all others */
};

struct shm_page {
	uint64_t magic;
	uint64_t secret; /* identifies the page */
	/* operations for which the rank has finished reading */
	_Alignas(64) _Atomic uint64_t finished;
	/* Number plus 1 of a short operation for which others must copy their input to a ring:
	 * this rank cannot map it. */
	_Atomic uint64_t copy_requested;
	/* The rank has failed, and its memory may have changed: readers discard what they have
	 * read. */
	_Alignas(64) _Atomic uint64_t failed;
	_Atomic uint64_t is_writing; /* to results of other ranks */
	_Atomic uint64_t exports_changed;
	_Atomic uint64_t exports[SHM_EXPORTS]; /* IDs of memory that readers may keep mapped */
	/* of the process, when the exports were last checked */
	uint64_t frees;
	struct shm_progress progress[SHM_SLOTS];
	_Alignas(4096) struct shm_slot slots[SHM_SLOTS];
	/* One ring for each destination rank, and one for all. */
	uint8_t rings[];
};

#define SHM_AT(number, rounds) ((uint64_t)(number) << 32 | (uint32_t)(rounds))

/* Returns the completed rounds of an operation; 0 if it has not begun. */
static inline uint32_t shm_rounds(const _Atomic uint64_t *progress, uint64_t number)
{
	uint64_t at = atomic_load_explicit(progress, memory_order_acquire);

	return at >> 32 == (number & UINT32_MAX) ? (uint32_t)at : 0;
}

/* Returns the number of blocks of a ring. */
static inline uint32_t shm_ring_blocks(uint32_t ranks)
{
	return ranks == 2 ? SHM_RING_OF_TWO : SHM_RING_OF_MORE;
}

static inline size_t shm_page_size(uint32_t ranks)
{
	return sizeof(struct shm_page) + (size_t)(ranks + 1) * shm_ring_blocks(ranks) * SHM_BLOCK;
}

/* Returns the offset of a round's block in the rings, for ring number `ring`. `position` is that of
 * round 0: it counts all bytes since the communicator was created, and never wraps. */
static inline size_t shm_ring_offset(
	uint32_t ranks, uint32_t ring, uint64_t position, uint32_t round)
{
	uint64_t bytes = (uint64_t)shm_ring_blocks(ranks) * SHM_BLOCK;

	return ring * bytes + (position + (uint64_t)round * SHM_BLOCK) % bytes;
}

/* ---- mappings of a peer */

struct shm_mapping {
	struct shm_export export;
	uint8_t *addr;
	bool is_writable;
	uid_t owner;   /* user that made the memory */
	uint64_t used; /* time of last use */
};

enum { SHM_MAPPINGS = SHM_EXPORTS };

struct shm_peer {
	int32_t pid;
	const struct shm_page *page;
	size_t page_size;
	uint64_t finished; /* last seen value */
	uint64_t exports_changed;
	uint64_t uses;
	bool may_write; /* its memory is mapped for writing where possible */
	struct shm_mapping mappings[SHM_MAPPINGS];
};

/* Maps mapping->export of a process: for writing if mapping->is_writable says so and the memory
 * permits it, else read-only. Sets is_writable, addr and owner. Fails with -errno and the thread's
 * last error. */
int shm_map(int32_t pid, struct shm_mapping *mapping);
/* Unmaps memory that the peer has freed. Not to be called between two buffers of one operation. */
void shm_drop_freed(struct shm_peer *peer);
/* Returns where a buffer of `bytes` bytes of the peer is mapped. Fails with -EPROTO, or with
 * -ENOENT, without an error text, if it is not mapped. */
int shm_find_mapped(struct shm_peer *peer, const struct shm_location *location, size_t bytes,
	const uint8_t **ret_addr);
/* The same, and maps it if needed. Fails with -EPROTO, and as shm_map(). */
int shm_find(struct shm_peer *peer, const struct shm_location *location, size_t bytes,
	const uint8_t **ret_addr);
/* Returns `addr`, which shm_find() has returned, or NULL if this rank may only read there. */
uint8_t *shm_writable(const struct shm_peer *peer, const uint8_t *addr);
void shm_unmap(struct shm_peer *peer);

/* Publishes that memory was freed, so that others unmap it. */
void shm_publish_freed(struct shm_page *page);
/* Exports the buffer [addr, addr + bytes). Returns false if others cannot read it. *ret_at is the
 * entry in page->exports, valid while it has the ID. */
bool shm_export(struct shm_page *page, const void *addr, size_t bytes,
	struct shm_location *ret_location, unsigned *ret_at);
/* The same, but returns false if another export would have to go. */
bool shm_export_if_room(struct shm_page *page, const void *addr, size_t bytes,
	struct shm_location *ret_location, unsigned *ret_at);

#endif
