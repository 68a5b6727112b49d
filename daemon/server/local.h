/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Unix socket's path: one daemon at a time serves it.
 *
 *	PATH       the socket
 *	PATH.lock  flock()ed by the daemon that serves PATH. It holds the boot ID while that daemon
 *	           runs, and after it ended with leases in use: the next daemon of the same boot
 *	           then waits for processes (local_crashed())
 */
#ifndef FERRULE_DAEMON_SERVER_LOCAL_H
#define FERRULE_DAEMON_SERVER_LOCAL_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/core/core.h"

struct local;

enum { LOCAL_FOLDER = 128 };

enum local_result {
	LOCAL_TAKEN,
	LOCAL_BUSY, /* another daemon serves the path */
	LOCAL_FAILED,
};

/*
 * Claims `path`, and creates its directory if there is none. `is_private`: only this user may have
 * access to the directory. `user`: the daemon's later user, or NULL; a new directory will belong to
 * that user. `fd`: a socket that listens there already (socket activation), or -1 to create one.
 * Every result but LOCAL_TAKEN comes with a sentence in `error`.
 */
enum local_result local_take(const char *path, bool is_private, const char *user, int fd,
	struct local **ret_local, char *error, size_t size);

/* Returns false if the files cannot be removed at the end: the daemon's user may not write to
 * `folder`. */
bool local_can_leave(const struct local *local, char folder[LOCAL_FOLDER]);

/* Returns the listening socket, which the caller owns. */
int local_socket(const struct local *local);
bool local_crashed(const struct local *local);

/* Releases the path after a clean end and frees the struct. NULL is allowed. The owner of the
 * socket closes it before. `held`: processes continue with their leases, so the next daemon must
 * wait for them as after a crash. */
void local_leave(struct local *local, bool held);

/* Determines uid, groups and pid of the process at the other end, and its program's name in
 * `program`. Returns false if that fails: such a process must not be served. */
bool local_peer(int fd, struct core_session_info *info, char *program, size_t size);

#endif
