/* SPDX-License-Identifier: BSD-3-Clause */
/* What kind of memory is mapped in this process: for who must know whether its pages can leave by
 * another way than through this process' own addresses. Any thread. */
#ifndef FERRULE_BASE_MAPPING_H
#define FERRULE_BASE_MAPPING_H

#include <stddef.h>
#include <stdint.h>

/*
 * If all of [start, end) is private anonymous memory with pages of one size, that size. 0: some of
 * it is of another kind (files, also those in memory; shared memory; devices), or not mapped, or
 * the kernel does not say. May take some memory meanwhile. proc_pid_maps(5).
 */
size_t mapping_private_page(uintptr_t start, uintptr_t end);

#endif
