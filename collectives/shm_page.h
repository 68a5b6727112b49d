/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ranks of one machine read of each other, and how it is mapped. A page is written by its rank
 * alone; whoever reads it trusts the numbers in it no more than those of a packet.
 *
 * Private to shm*.c.
 */
#ifndef FERRULE_COLLECTIVES_SHM_PAGE_H
#define FERRULE_COLLECTIVES_SHM_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/run.h"
#include "collectives/thresholds.h"

enum {
	SHM_SLOTS = 8, /* operations that are under way at most */
	SHM_HEADER = 48,
	SHM_SLOT_BYTES = SHM_HEADER + SHM_INLINE,
	SHM_RING = 4, /* blocks */
	SHM_EXPORTS = 128,
};

/* Memory of the rank, by frl_mem_alloc(). */
struct shm_export {
	uint64_t id; /* never used again by this process; 0: none */
	uint64_t inode;
	uint64_t size;
	int32_t fd;
	uint32_t zero;
};

/* A buffer. */
struct shm_place {
	struct shm_export export; /* id 0: what is needed of it comes through a ring */
	uint64_t offset;
};

/* What a rank brings to a short operation. */
enum shm_where {
	SHM_IN_SLOT,
	SHM_IN_PLACE, /* where `send` says, until all have read it */
	SHM_IN_RING,  /* also in the ring for all: somebody could not map it */
};

struct shm_slot {
	/* The operation's number and 1: all else here is of it then. */
	_Alignas(64) _Atomic uint64_t sequence;
	struct signature signature;
	uint64_t history; /* of all before it, in a number */
	/* Of a short one: enum shm_where. */
	_Atomic uint64_t where;
	union {
		uint8_t data[SHM_INLINE];
		struct {
			/* What others reduce, or take, of what this rank sends; and what they take
			 * when it is made. */
			struct shm_place send, out;
			uint32_t keeps_send;   /* all of that stays until it is over */
			uint32_t passes_cache; /* the rank has a function for that */
		};
	};
};

_Static_assert(sizeof(struct shm_slot) == SHM_SLOT_BYTES, "the first line has some data, too");
_Static_assert(SHM_SLOT_BYTES == 32 << 10, "slots are whole pages");
_Static_assert(offsetof(struct shm_slot, data) == SHM_HEADER, "no holes");

/* How far a long operation is, in rounds of one block of each part: SHM_AT(number, rounds). */
struct shm_progress {
	_Alignas(64) _Atomic uint64_t staged; /* in the rings, what this rank sends */
	_Atomic uint64_t made;                /* its part */
	_Atomic uint64_t taken;               /* from all others */
};

struct shm_page {
	uint64_t magic;
	uint64_t secret;                        /* which page this is */
	_Alignas(64) _Atomic uint64_t finished; /* operations that read from nobody any more */
	/* The number, and 1, of a short one for which others have to copy what they left where it
	 * is: this rank cannot map it. */
	_Atomic uint64_t begged;
	/* The rank has failed, and its memory may be anything: what others have read there since is
	 * nothing. */
	_Alignas(64) _Atomic uint64_t failed;
	_Atomic uint64_t exports_changed;
	_Atomic uint64_t exports[SHM_EXPORTS]; /* ids; what is not here others need not keep */
	uint64_t frees;                        /* of the process, when these were looked at */
	struct shm_progress progress[SHM_SLOTS];
	_Alignas(4096) struct shm_slot slots[SHM_SLOTS];
	/* By the rank that it is for, and one that is for all: SHM_RING blocks each. */
	uint8_t rings[];
};

#define SHM_AT(number, rounds) ((uint64_t)(number) << 32 | (uint32_t)(rounds))

/* Rounds of that operation; 0: it has not begun there. */
static inline uint32_t shm_rounds(const _Atomic uint64_t *progress, uint64_t number)
{
	uint64_t at = atomic_load_explicit(progress, memory_order_acquire);

	return at >> 32 == (number & UINT32_MAX) ? (uint32_t)at : 0;
}

static inline size_t shm_page_size(uint32_t ranks)
{
	return sizeof(struct shm_page) + (size_t)(ranks + 1) * SHM_RING * SHM_BLOCK;
}

/* Of the ring number `ring`. */
static inline size_t shm_ring_at(uint32_t ring, uint32_t round)
{
	return ((size_t)ring * SHM_RING + round % SHM_RING) * SHM_BLOCK;
}

/* ---- what is mapped of another process */

struct shm_mapping {
	struct shm_export export;
	uint8_t *addr;
	uint64_t used; /* when, for the one that has to go */
};

enum { SHM_MAPPINGS = SHM_EXPORTS };

struct shm_peer {
	int32_t pid;
	const struct shm_page *page;
	size_t page_size;
	uint64_t finished; /* as last seen */
	uint64_t exports_changed;
	uint64_t uses;
	struct shm_mapping mappings[SHM_MAPPINGS];
};

/* Maps memory of another process to be read. -errno, with its sentence. */
int shm_map(int32_t pid, const struct shm_export *export, uint8_t **ret_addr);
/* Lets go of what the peer has freed; not between two buffers of one operation. */
void shm_drop_freed(struct shm_peer *peer);
/* Where a buffer of the peer is, in what is mapped; it has `bytes`. -EPROTO; -ENOENT, without a
 * sentence: it is not mapped. */
int shm_find_mapped(struct shm_peer *peer, const struct shm_place *place, size_t bytes,
	const uint8_t **ret_addr);
/* The same, mapped if need be. -EPROTO, and as shm_map(). */
int shm_find(struct shm_peer *peer, const struct shm_place *place, size_t bytes,
	const uint8_t **ret_addr);
void shm_unmap(struct shm_peer *peer);

/* Lets others let go of what this process has freed. */
void shm_tell_freed(struct shm_page *page);
/* Fills in where [addr, addr + bytes) is, if others can read it there: true. */
bool shm_export(struct shm_page *page, const void *addr, size_t bytes, struct shm_place *ret_place);
/* The same, unless others would have to let go of something else for it. *ret_at: which one of
 * page->exports it is, as long as that has its id. */
bool shm_export_if_room(struct shm_page *page, const void *addr, size_t bytes,
	struct shm_place *ret_place, unsigned *ret_at);

#endif
