/* SPDX-License-Identifier: BSD-3-Clause */
/* Which host this is, for what never leaves one: shared memory, the local fabric. Reads /proc. Any
 * thread. */
#ifndef FERRULE_BASE_HOST_H
#define FERRULE_BASE_HOST_H

#include <stdbool.h>
#include <stdint.h>

enum { HOST_ID_SIZE = 16 };

/*
 * An id that is the same in all processes that share a kernel and its network namespace, and in no
 * others. Returns false where /proc lacks a part of it: then nothing follows from ids that differ.
 */
bool host_id(uint8_t ret_id[HOST_ID_SIZE]);

#endif
