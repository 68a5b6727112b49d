/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wakes whoever sleeps in poll(), in this process or in another one of its network namespace: by
 * datagrams between sockets without connections. No descriptor goes from one process to another,
 * so no peer can have this one's write block, raise a signal or go elsewhere, and none can be made
 * to close one. Who knows a name can wake its owner for nothing, which costs that one a round.
 *
 * Any thread.
 */
#ifndef FERRULE_DRIVERS_DPDK_WAKE_H
#define FERRULE_DRIVERS_DPDK_WAKE_H

#include <stdint.h>

/* A nonblocking socket, which is readable when somebody has woken its owner, and its name, which
 * is not 0. -EMFILE and the like; where such sockets are forbidden -EPERM, -EAFNOSUPPORT and
 * others. */
int wake_open(uint32_t *ret_name);

/* The name that a peer has told, or 0 where that cannot be one. */
uint32_t wake_check(uint64_t told);

/* Wakes the one that has the name, from any such socket. When there is none, or it is 0, nothing
 * happens. */
void wake_up(int fd, uint32_t name);

/* The owner is awake. The socket stays readable when somebody floods it. */
void wake_drain(int fd);

#endif
