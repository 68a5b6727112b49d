/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/process/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	USUAL_UNKNOWN = 65534, /* also the kernel's default */
};

/* Without memory of its own, as the process may be out of it. */
static bool read_file(const char *path, char text[static 128])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, 127);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* The id of all users without one. */
static uid_t unknown_user(void)
{
	char text[128];

	return read_file("/proc/sys/kernel/overflowuid", text) ? (uid_t)strtoul(text, NULL, 10)
							       : USUAL_UNKNOWN;
}

/* As in the first user namespace. Other maps may lack users. */
static bool has_all_users(void)
{
	char text[128];
	unsigned inside, outside, n;

	return read_file("/proc/self/uid_map", text) &&
		sscanf(text, "%u %u %u", &inside, &outside, &n) == 3 && inside == 0 &&
		outside == 0 && n == UINT32_MAX;
}

int user_of_peer(int fd, uid_t *ret_uid)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return -errno;
	if (peer.uid == unknown_user() && !has_all_users())
		return -EOVERFLOW;
	*ret_uid = peer.uid;
	return 0;
}
