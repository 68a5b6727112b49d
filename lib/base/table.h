/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hash tables: uthash, set up for what peers send.
 *
 * Keys (names of connections, services, jobs, queue pairs) come from other processes; who knows the
 * hash could have them all in one bucket, and slow everybody else down. So it is SipHash-1-3, with
 * a key that hash_seed() sets; the key is one of the process, since uthash knows of no table's own.
 *
 * No memory for a table does not end the process: who adds something looks at hash_added().
 */
#ifndef FERRULE_BASE_TABLE_H
#define FERRULE_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HASH_NONFATAL_OOM               1
#define HASH_FUNCTION(key, size, value) ((value) = hash_bytes((key), (size)))
#include <uthash.h>

/* Before the first table; does nothing when the key is set. One thread at a time. */
void hash_seed(uint64_t a, uint64_t b);

unsigned hash_bytes(const void *key, size_t size);

/* Is it in its table, after HASH_ADD()? */
static inline bool hash_added(const UT_hash_handle *hh)
{
	return hh->tbl != NULL;
}

#endif
