/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RLIMIT_FSIZE (`ulimit -f`), which also applies to files in memory. When a file grows beyond it,
 * the kernel sends SIGXFSZ, which ends the process. Check the limit first. Any thread.
 */
#ifndef FERRULE_BASE_FILE_LIMIT_H
#define FERRULE_BASE_FILE_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

/* Returns true if this process may create files of `size` bytes. */
static inline bool file_limit_allows(size_t size)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
		size <= limit.rlim_cur;
}

#endif
