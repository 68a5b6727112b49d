/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of blocks. Private to this folder.
 *
 * The mutex protects all fields. Memory is unmapped and moved without it, except during fork(): a
 * watcher of unmapped memory (lib/base/memory/unmap_watch.h) may call back.
 */
#ifndef FERRULE_MALLOC_TABLE_H
#define FERRULE_MALLOC_TABLE_H

#include <pthread.h>
#include <stdatomic.h>

#include "lib/malloc/blocks.h"

enum { BLOCKS_MAX = 16384, BLOCKS_KEPT_MAX = 256 };

enum block_state {
	BLOCK_UNUSED,
	BLOCK_ALLOCATED,
	BLOCK_KEPT,
	BLOCK_FREED, /* libferrule has not put it yet */
};

struct block {
	struct share share; /* fd -1: closed */
	size_t wanted;
	enum block_state state;
	bool is_private;  /* its mapping is not the memfd's any more */
	bool was_found;   /* libferrule may have told peers about it */
	bool is_moving;   /* another mapping is about to replace the shared one */
	bool is_copied;   /* by the child of the fork() that is in progress */
	bool is_withheld; /* that child does not have its memory */
	uint32_t next_unused;
};

struct block_table {
	pthread_mutex_t mutex;
	struct block_limits limits;
	struct block blocks[BLOCKS_MAX];
	uint32_t n_touched;             /* blocks[] behind these were never used */
	uint32_t first_unused;          /* index plus 1; 0: none */
	uint32_t order[BLOCKS_MAX];     /* mapped blocks by address: indices */
	_Atomic uint32_t n;             /* of them */
	uint32_t kept[BLOCKS_KEPT_MAX]; /* indices, the oldest first */
	uint32_t n_kept;
	size_t kept_bytes;
	uint64_t n_ids;
	_Atomic uint64_t frees;
	_Atomic uint32_t holds;
};

extern struct block_table blocks;

/* blocks.c. Call with the mutex held. */
/* Returns the block that contains `addr`, also a kept one, or NULL. */
struct block *table_find(const void *addr);
/* Removes a block from the table, as block_free() does with one that is not kept. The caller unmaps
 * its memory. */
void table_remove(struct block *block);
/* Takes note that peers must not read the block any more. */
void table_stop_sharing(struct block *block);
/* Returns true if the program has not closed the descriptor. It may use the number for another
 * file. */
bool table_has_file(const struct block *block);
/* Closes the block's descriptor, unless the program has closed it and uses the number. */
void table_close(struct block *block);

#endif
