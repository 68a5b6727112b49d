/* SPDX-License-Identifier: BSD-3-Clause */
/* The user of the process at the other end of a Unix socket. Reads /proc. Any thread. */
#ifndef FERRULE_BASE_USER_H
#define FERRULE_BASE_USER_H

#include <sys/types.h>

/*
 * Writes the effective user of that process when it connected or listened. Negative errno:
 * -EOVERFLOW if the user has no id in the user namespace of this process. The kernel reports all
 * such users as one id (nobody), which this process may have, too.
 */
int user_of_peer(int fd, uid_t *ret_uid);

#endif
