/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes a file completely or not at all. The contents go to a temporary file in the same folder,
 * which is renamed once all data is on disk. A symbolic link stays, and its target is replaced. A
 * file that is not regular (a FIFO, /dev/null) is written directly. A folder is refused.
 *
 * Signals that end the process are blocked while a temporary file exists. For one thread.
 */
#ifndef FERRULE_TOOLS_COMMON_OUTFILE_H
#define FERRULE_TOOLS_COMMON_OUTFILE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

struct outfile_part {
	const void *bytes;
	size_t size;
};

/* A complete temporary file that waits for its rename. All zero: none. */
struct outfile {
	char *target;
	char *temporary; /* NULL: the file was written directly */
	sigset_t signals;
	bool pending;
};

/* Writes a file. Returns 0, or a negative errno; the old file is then unchanged. */
int outfile_write(const char *path, const struct outfile_part parts[], int n);

/*
 * Write a file in two steps, if the decision comes after the data. If outfile_prepare() returns 0,
 * call outfile_commit() or outfile_discard() soon, in the same thread. A file that is not regular
 * is written by outfile_prepare().
 */
int outfile_prepare(
	struct outfile *file, const char *path, const struct outfile_part parts[], int n);
int outfile_commit(struct outfile *file);
void outfile_discard(struct outfile *file); /* an all-zero struct is fine */

/* Checks whether a file can be written, and changes nothing. Returns 0 or a negative errno. */
int outfile_check(const char *path);

#endif
