/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that other processes of this machine can map, as returned by frl_mem_alloc(). Each
 * allocation is a memfd. Its size is sealed. Processes of the same user can map it for writing, as
 * they can attach to this process, until share_seal(). Blocks of the preloaded libferrule-malloc.so
 * are found as well (share_source.h). Any thread.
 */
#ifndef FERRULE_BASE_SHARE_H
#define FERRULE_BASE_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One allocation. A caller of share_find() may use it until share_put(). */
struct share {
	struct share *next;
	uint8_t *addr;
	size_t size; /* whole pages */
	int fd;
	uint64_t id;       /* unique in this process for all time */
	uint64_t inode;    /* inode of the memfd */
	bool is_huge;      /* its pages may be unavailable to other processes: see in_place_use() */
	uint32_t users;    /* share_find() without share_put(), plus one while it is allocated */
	atomic_bool freed; /* freed, or private: users should release it, and peers not read it */
	atomic_bool passed; /* its descriptor goes to a peer: see share_seal() */
};

/* Returns zeroed memory, or NULL with errno, which memfd_strerror() explains. */
void *share_alloc(size_t size);

/* Later allocations use huge pages if enough are free. */
void share_prefer_huge(void);

/* From now on no process can map the allocation for writing; mappings that exist stay. Call it
 * before its descriptor goes to a process that may be another user's. Returns 0 or a negative
 * errno. */
int share_seal(struct share *share);

/* Frees an allocation. Returns false if `addr` is not the start of one. */
bool share_free(void *addr);

/* Returns the allocation that contains [addr, addr + len), or NULL. */
struct share *share_find(const void *addr, size_t len);
void share_put(struct share *share);

/* Returns true if the allocation with this id has not been freed. */
bool share_is_there(uint64_t id);
/* Returns how many allocations have been freed. */
uint64_t share_frees(void);

/*
 * While holds last, a fork() makes no allocation private: peers may be reading any that was found.
 * Call before share_find(), and before a cached location is used. fork() matters for blocks of
 * libferrule-malloc.so alone: memory of frl_mem_alloc() is shared with children.
 */
void share_hold(void);
void share_release(void);

#endif
