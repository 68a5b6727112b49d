/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hash tables: uthash, configured for untrusted keys.
 *
 * Keys (names of connections, services, jobs, queue pairs) come from other processes. A peer that
 * knows the hash function could put them all into one bucket and slow down every user. The hash is
 * therefore SipHash-1-3 with a secret key, set by hash_seed(). The key is per process, because
 * uthash has no key per table.
 *
 * If there is no memory for a table, the process continues: callers check hash_added().
 */
#ifndef FERRULE_BASE_TABLE_H
#define FERRULE_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HASH_NONFATAL_OOM               1
#define HASH_FUNCTION(key, size, value) ((value) = hash_bytes((key), (size)))
#include <uthash.h>

/* Sets the key. Call before the first table. Does nothing if the key is set. One thread at a
 * time. */
void hash_seed(uint64_t a, uint64_t b);

unsigned hash_bytes(const void *key, size_t size);

/* Returns true if HASH_ADD() has added the entry to its table. */
static inline bool hash_added(const UT_hash_handle *hh)
{
	return hh->tbl != NULL;
}

#endif
