/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes a file wholly or not at all: to a temporary file in the same folder, which takes the name
 * only once everything is on disk. A symbolic link stays, what it points to is replaced. What is no
 * regular file (a FIFO, /dev/null) is not replaced but written to, and a folder is refused.
 *
 * Signals that end the process wait while there is a temporary file. One thread.
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

/* Contents that are complete and wait for their name; all zero: nothing waits. */
struct outfile {
	char *target;
	char *temporary; /* NULL: written in place, there is nothing left to do */
	sigset_t signals;
	bool pending;
};

/* 0 or a negative errno; then nothing of the new contents is left and the old file is as it was. */
int outfile_write(const char *path, const struct outfile_part parts[], int n);

/*
 * The same in two steps, for those who can tell only later whether the file is wanted: when
 * outfile_prepare() returns 0, outfile_commit() or outfile_discard() must follow, soon and in the
 * same thread. What is no regular file is written to at once.
 */
int outfile_prepare(
	struct outfile *file, const char *path, const struct outfile_part parts[], int n);
int outfile_commit(struct outfile *file);
void outfile_discard(struct outfile *file); /* also of nothing */

/* Could a file be written there? Changes nothing. 0 or a negative errno. */
int outfile_check(const char *path);

#endif
