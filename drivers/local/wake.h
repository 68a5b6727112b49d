/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wakes a process that sleeps in poll(), in the same network namespace, by datagrams between
 * unconnected sockets. No descriptor passes between the processes. So no peer can make a write
 * block, raise a signal or go elsewhere, or force this process to close a descriptor. Any process
 * that knows a name can wake its owner needlessly, which costs the owner one round.
 *
 * A peer may claim the name of another process's socket. A name is therefore used only after its
 * owner has proved to be this peer: by a datagram from the named socket to a socket that this end
 * made for the purpose. The kernel reports the sender's name. The datagram contains the link's name
 * and the sending end, so a peer cannot reuse a proof of another process.
 *
 * Any thread.
 */
#ifndef FERRULE_DRIVERS_LOCAL_WAKE_H
#define FERRULE_DRIVERS_LOCAL_WAKE_H

#include <stdbool.h>
#include <stdint.h>

/* Opens a nonblocking socket that becomes readable when its owner is woken, and returns its name,
 * which is not 0. Returns -EMFILE or another errno; -EPERM, -EAFNOSUPPORT and others where such
 * sockets are forbidden. */
int wake_open(uint32_t *ret_name);

/* Returns the name that a peer has sent, or 0 if it is invalid. */
uint32_t wake_check(uint64_t claimed);

/* Opens a socket for a peer's proof, and returns its name. `claimed` is the name to be proved: no
 * other socket can send there and so block the proof. With `claimed` 0, any socket can. Returns
 * errors as wake_open() does. */
int wake_open_proof(uint64_t claimed, uint32_t *ret_name);

/* Proves to the socket `claimed`, if there is one, that the name of `fd` belongs to this end. */
void wake_prove(int fd, uint64_t claimed, const char *link, bool server);

/* Returns the name that a peer has sent if the other end of the link has proved it, or 0. */
uint32_t wake_proven(int proof_fd, uint64_t claimed, const char *link, bool server);

/* Wakes the owner of the name, from any such socket. Does nothing if there is no such socket, or
 * the name is 0. */
void wake_up(int fd, uint32_t name);

/* Call when the owner is awake. The socket stays readable if it is flooded. */
void wake_drain(int fd);

#endif
