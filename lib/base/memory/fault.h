/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accesses to memory that another thread may unmap at any time: an attempt fails, and the process
 * continues. fault_start() installs a handler for SIGSEGV and SIGBUS. The handler ends an attempt
 * whose own areas fault. It passes all other signals to the handler that was installed before, or
 * to the default action. Any thread; attempts do not nest.
 *
 * An attempt succeeds at memory that was unmapped and is mapped again: unmap_mark.h detects that.
 */
#ifndef FERRULE_BASE_FAULT_H
#define FERRULE_BASE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fault_area {
	const void *start;
	size_t length;
};

/* Installs the handlers, once in a process. They stay. */
void fault_start(void);

/*
 * Calls access(arg), which may fault in the areas. Returns true when it has returned. Returns false
 * if it was ended by a fault, and sets *ret_at to the address. `access` is then left in the middle:
 * it must neither hold nor take a lock, nor allocate. A thread that blocks the two signals is
 * killed by a fault.
 */
bool fault_try(void (*access)(void *arg), void *arg, const struct fault_area areas[], unsigned n,
	uintptr_t *ret_at);

/* copy_bulk() from memory that may be unmapped. Returns false if it is; a part may be copied. */
bool fault_copy(void *to, const void *from, size_t n);

/* Reads each page of the area. Returns false if one cannot be read, and sets *ret_at. */
bool fault_read(const void *start, size_t length, uintptr_t *ret_at);

#endif
