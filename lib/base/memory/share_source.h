/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory from outside of the library: the preloaded libferrule-malloc.so (lib/malloc)
 * exports a struct share_source under the name SHARE_SOURCE_SYMBOL, and share.c also searches its
 * blocks. A preloaded library of another version, or with another struct share, is ignored. Any
 * thread.
 */
#ifndef FERRULE_BASE_SHARE_SOURCE_H
#define FERRULE_BASE_SHARE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/memory/share.h"

#define SHARE_SOURCE_SYMBOL  "ferrule_malloc_source"
#define SHARE_SOURCE_VERSION UINT32_C(1)

/* This bit is set in the IDs of a source, and in no ID of share.c. */
#define SHARE_FROM_SOURCE ((uint64_t)1 << 63)

struct share_source {
	uint32_t version;
	uint32_t share_size; /* sizeof(struct share) */
	/* As the functions share_*(). */
	struct share *(*find)(const void *addr, size_t len);
	void (*put)(struct share *share);
	bool (*is_there)(uint64_t id);
	uint64_t (*frees)(void);
	void (*hold)(void);
	void (*release)(void);
};

#endif
