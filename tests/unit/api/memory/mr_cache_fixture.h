/* SPDX-License-Identifier: BSD-3-Clause */
/* A cache of registrations on a device of its own, and memory to register. */
#ifndef FERRULE_TESTS_UNIT_API_MEMORY_MR_CACHE_FIXTURE_H
#define FERRULE_TESTS_UNIT_API_MEMORY_MR_CACHE_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/device.h>
#include <ferrule/memory.h>

enum { SIZE = 1 << 20, PAGE = 4096, LOCAL = FRL_ACCESS_LOCAL_WRITE };

extern struct frl_device *device;
extern struct frl_pd *pd;
extern struct frl_mr_cache *cache;
extern char *memory; /* SIZE bytes, private */

void cache_setup(void);
void cache_teardown(void);
/* Replaces the current cache, whose destruction must succeed. */
void cache_again(const struct frl_mr_cache_config *config);

/* SIZE bytes of private memory, at `at` if that is not NULL. */
char *map(void *at);

struct frl_mr_cache_stats stats(void);
struct frl_mr *get_with(void *addr, size_t length, uint32_t access);
struct frl_mr *get(void *addr, size_t length);
/* Gets a region and puts it back at once. */
uint32_t key_of(void *addr, size_t length);

/* There is no userfaultfd here: nothing is kept, and nothing to test. */
bool is_kept(void);

#endif
