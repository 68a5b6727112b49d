/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RLIMIT_FSIZE (`ulimit -f`), also for files in memory. The kernel sends SIGXFSZ, which ends the
 * process, before the call that makes a file larger fails: so it is asked first. Any thread.
 */
#ifndef FERRULE_BASE_FILE_LIMIT_H
#define FERRULE_BASE_FILE_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

/* This process may make files of `size` bytes. */
static inline bool file_limit_allows(size_t size)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
		size <= limit.rlim_cur;
}

#endif
