/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that other processes of this machine can map: what frl_mem_alloc() gives. Each allocation
 * is a memfd whose size is sealed and that nobody else can map for writing. Any thread.
 */
#ifndef FERRULE_BASE_SHARE_H
#define FERRULE_BASE_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One allocation. Who got it from share_find() may look at it until share_put(). */
struct share {
	struct share *next;
	uint8_t *addr;
	size_t size; /* whole pages */
	int fd;
	uint64_t id;       /* no other allocation of this process has it, or has had it */
	uint64_t inode;    /* of the memfd */
	bool is_huge;      /* other processes cannot count on its pages: see in_place_use() */
	uint32_t users;    /* share_find() without share_put(), and one while it is allocated */
	atomic_bool freed; /* share_free() was called: others should let go of it */
};

/* Zeroed memory, or NULL with errno; memfd_strerror() explains it. */
void *share_alloc(size_t size);

/* Later allocations use huge pages if enough are free. */
void share_prefer_huge(void);

/* False when `addr` is not the start of an allocation. */
bool share_free(void *addr);

/* The allocation that holds [addr, addr + len), or NULL. */
struct share *share_find(const void *addr, size_t len);
void share_put(struct share *share);

/* Whether the allocation with this id has not been freed. */
bool share_is_there(uint64_t id);
/* How many have been. */
uint64_t share_frees(void);

#endif
