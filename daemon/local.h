/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The place of the Unix socket: one daemon at a time has it.
 *
 *	PATH       the socket
 *	PATH.lock  flock()ed by the daemon that has the place. Holds the boot ID while it runs, and
 *	           after an end with leases held: the next daemon of the same boot then waits for
 *	           processes (local_crashed())
 */
#ifndef FERRULE_DAEMON_LOCAL_H
#define FERRULE_DAEMON_LOCAL_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/core/core.h"

struct local;

enum { LOCAL_FOLDER = 128 };

enum local_result {
	LOCAL_TAKEN,
	LOCAL_BUSY, /* another daemon has the place, and is well */
	LOCAL_FAILED,
};

/*
 * Takes the place at `path`, and makes its folder if there is none. `is_private`: the folder
 * must be this user's alone. `user`: whom the daemon will become, or NULL; a folder that is made is
 * that user's. `fd`: a socket that listens there already (socket activation), or -1: one is made.
 * Every result but LOCAL_TAKEN has a sentence in `error`.
 */
enum local_result local_take(const char *path, bool is_private, const char *user, int fd,
	struct local **ret_local, char *error, size_t size);

/* Returns false if the files cannot be removed at the end: the daemon's user may not write to
 * `folder`. */
bool local_can_leave(const struct local *local, char folder[LOCAL_FOLDER]);

/* The socket, which listens; the caller's. */
int local_socket(const struct local *local);
bool local_crashed(const struct local *local);

/* Gives the place back in good order, and frees it. NULL is fine. The socket is closed by its
 * owner before. `held`: processes go on with what they have been leased, so the next daemon is to
 * wait for them as after a crash. */
void local_leave(struct local *local, bool held);

/* Who is at the other end: uid, groups, pid; and the program's name in `program`. False: it could
 * not be found out, so it must not be served. */
bool local_peer(int fd, struct core_session_info *info, char *program, size_t size);

#endif
