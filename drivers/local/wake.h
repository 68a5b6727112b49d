/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wakes whoever sleeps in poll(), in this process or in another one of its network namespace: by
 * datagrams between sockets without connections. No descriptor goes from one process to another,
 * so no peer can have this one's write block, raise a signal or go elsewhere, and none can be made
 * to close one. Who knows a name can wake its owner for nothing, which costs that one a round.
 *
 * A peer may tell the name of somebody else's socket. So a name is used only after its owner has
 * proved to be this peer: by a datagram from the socket with that name to a socket that this end
 * made for the purpose. The kernel tells the sender's name. The datagram holds the link's name and
 * which end sends it, so a peer cannot pass off a proof that another process has sent.
 *
 * Any thread.
 */
#ifndef FERRULE_DRIVERS_LOCAL_WAKE_H
#define FERRULE_DRIVERS_LOCAL_WAKE_H

#include <stdbool.h>
#include <stdint.h>

/* A nonblocking socket, which is readable when somebody has woken its owner, and its name, which
 * is not 0. -EMFILE and the like; where such sockets are forbidden -EPERM, -EAFNOSUPPORT and
 * others. */
int wake_open(uint32_t *ret_name);

/* The name that a peer has told, or 0 where that cannot be one. */
uint32_t wake_check(uint64_t told);

/* A socket for proofs of peers, and its name. With `told`, the name that is to be proved, no other
 * can send there and so keep the proof out. Without it, 0, any process can. Errors as wake_open().
 */
int wake_open_proof(uint64_t told, uint32_t *ret_name);

/* Proves to the socket `told`, if there is one, that the name of `fd` is this end's. */
void wake_prove(int fd, uint64_t told, const char *link, bool server);

/* The name that a peer has told if the other end of the link has proved it, or 0. */
uint32_t wake_proven(int proof_fd, uint64_t told, const char *link, bool server);

/* Wakes the one that has the name, from any such socket. When there is none, or it is 0, nothing
 * happens. */
void wake_up(int fd, uint32_t name);

/* The owner is awake. The socket stays readable when somebody floods it. */
void wake_drain(int fd);

#endif
