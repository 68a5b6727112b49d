/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/malloc/next.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>

enum { EARLY_BYTES = 64 << 10, ALIGNMENT = 16 };

static struct next next;
static atomic_bool is_ready;
static __thread bool is_looking __attribute__((tls_model("initial-exec")));

static _Alignas(16) uint8_t early[EARLY_BYTES];
static _Atomic size_t early_used;

/* Threads may do this at the same time, and find the same. */
static void look_up(void)
{
	is_looking = true;
#define LOOK_UP(name) *(void **)&next.name = dlsym(RTLD_NEXT, #name)
	LOOK_UP(malloc);
	LOOK_UP(free);
	LOOK_UP(calloc);
	LOOK_UP(realloc);
	LOOK_UP(memalign);
	LOOK_UP(posix_memalign);
	LOOK_UP(aligned_alloc);
	LOOK_UP(malloc_usable_size);
	LOOK_UP(malloc_trim);
	LOOK_UP(madvise);
	LOOK_UP(mprotect);
#undef LOOK_UP
	is_looking = false;
	atomic_store_explicit(&is_ready, true, memory_order_release);
}

const struct next *next_get(void)
{
	if (__builtin_expect(atomic_load_explicit(&is_ready, memory_order_acquire), 1))
		return &next;
	if (is_looking)
		return NULL;
	look_up();
	return &next;
}

/* Each allocation has its size in front. */
void *next_early_alloc(size_t size)
{
	size_t whole = (size + 2 * ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1), at;

	if (size > EARLY_BYTES)
		return NULL;
	at = atomic_fetch_add(&early_used, whole);
	if (at + whole > EARLY_BYTES)
		return NULL;
	*(size_t *)(void *)&early[at] = size;
	return &early[at + ALIGNMENT];
}

size_t next_early_size(const void *addr)
{
	uintptr_t at = (uintptr_t)addr - (uintptr_t)early;

	if (at >= EARLY_BYTES)
		return 0;
	return *(const size_t *)(const void *)&early[at - ALIGNMENT];
}
