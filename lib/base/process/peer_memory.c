/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/process/peer_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lib/base/error.h"

#define YAMA "/proc/sys/kernel/yama/ptrace_scope"

static bool is_restricted_to_ancestors(void)
{
	int fd = open(YAMA, O_RDONLY | O_CLOEXEC);
	char scope = 0;
	bool is_read;

	if (fd < 0)
		return false;
	is_read = read(fd, &scope, 1) == 1;
	close(fd);
	return is_read && scope == '1';
}

void peer_memory_allow(void)
{
	if (is_restricted_to_ancestors())
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

static const char *explain(int err)
{
	switch (err) {
	case EPERM:
		return "the kernel forbids it: another user, a container (seccomp), or " YAMA
		       " above 1";
	case ESRCH: return "it has ended, or runs in another PID namespace";
	case EFAULT: return "the memory is not there, or is of a device";
	case ESTALE: return "another process has that number: it has ended";
	default: return strerror(err);
	}
}

int peer_memory_check(const struct peer_memory *peer)
{
	struct stat process;
	char path[32];
	uint64_t word;

	snprintf(path, sizeof(path), "/proc/%d", (int)peer->pid);
	if (stat(path, &process))
		return frl_fail(-ESRCH, "process %d: %s", (int)peer->pid, explain(ESRCH));
	if (process.st_uid != geteuid())
		return frl_fail(-EPERM, "process %d is of another user", (int)peer->pid);
	return peer_memory_read(peer, &word, peer->secret_at, sizeof(word));
}

int peer_memory_read(const struct peer_memory *peer, void *dst, uint64_t src, size_t n)
{
	uint64_t secret = 0;
	const struct iovec to[] = {
		{ .iov_base = &secret, .iov_len = sizeof(secret) },
		{ .iov_base = dst, .iov_len = n },
	};
	const struct iovec from[] = {
		{ .iov_base = (void *)(uintptr_t)peer->secret_at, .iov_len = sizeof(secret) },
		{ .iov_base = (void *)(uintptr_t)src, .iov_len = n },
	};
	ssize_t got = process_vm_readv(peer->pid, to, 2, from, 2, 0);
	int err = got < 0 ? errno : 0;

	if (!err && ((size_t)got < sizeof(secret) || secret != peer->secret))
		err = ESTALE;
	else if (!err && (size_t)got != sizeof(secret) + n)
		err = EFAULT;
	if (!err)
		return 0;
	return frl_fail(-err, "reading %zu bytes at 0x%" PRIx64 " of process %d: %s", n, src,
		(int)peer->pid, explain(err));
}
