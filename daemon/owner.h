/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whose a TCP connection over loopback is. Daemons believe each other about who their processes'
 * users are; without TLS that holds only for those of root and of this daemon's own user, since any
 * process of the machine could connect.
 */
#ifndef FERRULE_DAEMON_OWNER_H
#define FERRULE_DAEMON_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * The user at the other end of a connected socket whose peer is on this machine: of the connection
 * itself where this end was connected to, else (`dialled`) of whoever listens there. False: it
 * cannot be told, for instance because the socket has no owner any more.
 */
bool owner_of_peer(int fd, bool dialled, uid_t *ret_uid);

#endif
