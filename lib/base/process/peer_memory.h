/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads memory of another process on this machine that is not shared, for example from malloc(), by
 * process_vm_readv(2). The kernel allows it to processes that may trace the other one: those of the
 * same user. Any thread.
 */
#ifndef FERRULE_BASE_PEER_MEMORY_H
#define FERRULE_BASE_PEER_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* The process, and an 8-byte word in its memory by which it is recognized: another process may get
 * its number after it has ended. Addresses are those of that process. */
struct peer_memory {
	int32_t pid;
	uint64_t secret_at;
	uint64_t secret;
};

/*
 * Allows other processes of this user to read this process's memory where Yama restricts it to
 * ancestors (kernel.yama.ptrace_scope is 1). Does nothing otherwise. Applies to the process until
 * it ends; debuggers may then attach as well, as without Yama.
 */
void peer_memory_allow(void);

/*
 * Checks that the peer is of this process's user, and that its memory can be read. A privileged
 * process could also read others, and must not do so for a peer that names them. Returns as
 * peer_memory_read().
 */
int peer_memory_check(const struct peer_memory *peer);

/*
 * Copies `n` bytes from `src` of the peer to `dst`. Returns 0, or a negative errno with the error
 * text of the thread: -EPERM if the kernel forbids it, -ESRCH if the process has ended, -ESTALE if
 * its number belongs to another process, -EFAULT if there is no readable memory, -ENOSYS.
 */
int peer_memory_read(const struct peer_memory *peer, void *dst, uint64_t src, size_t n);

#endif
