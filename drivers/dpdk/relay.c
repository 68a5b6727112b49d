/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stands between a client's memif and the server's, in the server's process: passes on the control
 * messages of the handshake, with their file descriptors.
 *
 * It is there for the sake of one bug of the memif PMD (22.11): a listener that accepts a client
 * which is gone already cannot send its hello, closes the socket, and leaves the callback behind
 * for a descriptor that no longer exists; EAL's interrupt thread then panics, and with it the host.
 * The relay is the only client that the PMD's listener ever sees, and it never goes before the
 * hello has come.
 */
#include "drivers/dpdk/fabric.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE_MAX = 256 }; /* memif's have 128 bytes */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int relay_listen(struct relay *relay, const char *name)
{
	int fd = meet_listen(name, true);

	if (fd < 0)
		return fd;
	*relay = (struct relay){ .listen_fd = fd, .client_fd = -1, .memif_fd = -1 };
	return 0;
}

/* Passes on what has come: the number of messages, or -EPIPE when the sender is gone. */
static int pass_on(int from, int to)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control, out_control;
	char message[MESSAGE_MAX];
	int n_messages = 0;

	for (;;) {
		struct iovec part = { .iov_base = message, .iov_len = sizeof(message) };
		struct msghdr in = { .msg_iov = &part,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control) };
		struct msghdr out = { .msg_iov = &part, .msg_iovlen = 1 };
		ssize_t n = recvmsg(from, &in, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		int fd = -1;

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return n_messages;
		if (n <= 0)
			return -EPIPE;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&in); c; c = CMSG_NXTHDR(&in, c))
			if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
				memcpy(&fd, CMSG_DATA(c), sizeof(fd));
		part.iov_len = (size_t)n;
		if (fd >= 0) {
			memset(&out_control, 0, sizeof(out_control));
			out.msg_control = &out_control;
			out.msg_controllen = CMSG_SPACE(sizeof(int));
			CMSG_FIRSTHDR(&out)->cmsg_level = SOL_SOCKET;
			CMSG_FIRSTHDR(&out)->cmsg_type = SCM_RIGHTS;
			CMSG_FIRSTHDR(&out)->cmsg_len = CMSG_LEN(sizeof(int));
			memcpy(CMSG_DATA(CMSG_FIRSTHDR(&out)), &fd, sizeof(fd));
		}
		n = sendmsg(to, &out, MSG_DONTWAIT | MSG_NOSIGNAL);
		close_fd(&fd);
		if (n < 0)
			return -EPIPE;
		n_messages++;
	}
}

int relay_step(struct relay *relay, const char *memif_socket)
{
	int n;

	if (relay->client_fd < 0) {
		int fd = meet_accept(relay->listen_fd);

		if (fd < 0)
			return 0;
		relay->client_fd = fd;
		close_fd(&relay->listen_fd);
	}
	if (relay->memif_fd < 0) {
		int fd = meet_connect(memif_socket);

		if (fd < 0)
			return fd == -EAGAIN ? 0 : fd;
		relay->memif_fd = fd;
	}
	n = pass_on(relay->memif_fd, relay->client_fd);
	relay->heard = relay->heard || n != 0;
	return n < 0 || !relay->heard ? n : RTE_MIN(0, pass_on(relay->client_fd, relay->memif_fd));
}

bool relay_close(struct relay *relay)
{
	char message[MESSAGE_MAX];

	close_fd(&relay->listen_fd);
	close_fd(&relay->client_fd);
	if (relay->memif_fd >= 0 && !relay->heard)
		relay->heard = recv(relay->memif_fd, message, sizeof(message), MSG_DONTWAIT) >= 0;
	if (relay->memif_fd >= 0 && !relay->heard)
		return false;
	close_fd(&relay->memif_fd);
	return true;
}
