/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports what kind of memory is mapped in this process, for callers that must know whether its
 * pages can be removed other than through this process's own addresses. Any thread. */
#ifndef FERRULE_BASE_MAPPING_H
#define FERRULE_BASE_MAPPING_H

#include <stddef.h>
#include <stdint.h>

/*
 * Returns the page size if all of [start, end) is private anonymous memory with pages of one size.
 * Returns 0 if a part is of another kind (files, also those in memory; shared memory; devices), is
 * not mapped, or the kernel gives no answer. May allocate some memory during the call. See
 * proc_pid_maps(5).
 */
size_t mapping_private_page(uintptr_t start, uintptr_t end);

#endif
