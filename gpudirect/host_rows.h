/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a GPU sees host memory: rows of addresses, sorted. They are looked up for each packet, by
 * any thread and without a lock, while one thread at a time changes them, seldom.
 */
#ifndef FERRULE_GPUDIRECT_HOST_ROWS_H
#define FERRULE_GPUDIRECT_HOST_ROWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rows;

/* All zeros: empty. */
struct gpu_rows {
	_Atomic(struct rows *) rows;
	_Atomic uint64_t version; /* odd while they are being changed */
	struct rows *next;        /* between begin and end: what is being filled in */
};

/* New rows take the place of those that there are: at most so many. False: no memory, they are as
 * they were; never if there have been as many before. Who looks meanwhile waits for the end. */
bool gpu_rows_begin(struct gpu_rows *rows, uint32_t most);
/* In ascending order. What is in a row on both sides becomes one. */
void gpu_rows_add(struct gpu_rows *rows, uintptr_t start, uintptr_t end, uint64_t device);
void gpu_rows_end(struct gpu_rows *rows);

/* 0: it is not all in one row. */
uint64_t gpu_rows_find(const struct gpu_rows *rows, uintptr_t start, size_t length);

/* Nobody looks any more. */
void gpu_rows_free(struct gpu_rows *rows);

#endif
