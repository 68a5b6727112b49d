/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sorted table of the GPU addresses of host memory. Any thread looks up rows for each packet,
 * without a lock. One thread at a time changes the table, rarely.
 */
#ifndef FERRULE_GPUDIRECT_HOST_ROWS_H
#define FERRULE_GPUDIRECT_HOST_ROWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rows;

/* Zero-initialized: empty. */
struct gpu_rows {
	_Atomic(struct rows *) rows;
	_Atomic uint64_t version; /* odd during a change */
	struct rows *next;        /* the new rows, between gpu_rows_begin() and gpu_rows_end() */
};

/* Starts to replace all rows by at most `most` new ones. Returns false, and keeps the old rows, if
 * memory is short. This cannot happen if the table has held as many rows before. Lookups spin until
 * gpu_rows_end(). */
bool gpu_rows_begin(struct gpu_rows *rows, uint32_t most);
/* Adds a row, in ascending order. Rows that are adjacent in host and GPU addresses are merged. */
void gpu_rows_add(struct gpu_rows *rows, uintptr_t start, uintptr_t end, uint64_t device);
void gpu_rows_end(struct gpu_rows *rows);

/* Returns the GPU address, or 0 if no single row contains the whole range. */
uint64_t gpu_rows_find(const struct gpu_rows *rows, uintptr_t start, size_t length);

/* Frees the table. No lookup may be running. */
void gpu_rows_free(struct gpu_rows *rows);

#endif
