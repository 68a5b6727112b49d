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

#include "lib/base/rights.h"

enum { MESSAGE_MAX = 256 }; /* memif's have 128 bytes */

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
	char message[MESSAGE_MAX];
	int n_messages = 0;

	for (;;) {
		int fd = -1, err;
		ssize_t n = rights_receive(from, message, sizeof(message), &fd);

		if (n == -EAGAIN || n == -EINTR)
			return n_messages;
		err = n > 0 ? meet_send_fd(to, message, (size_t)n, fd) : -EPIPE;
		meet_close_passed(fd, false);
		if (err)
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
		meet_hang_up(&relay->listen_fd);
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

	meet_hang_up(&relay->listen_fd);
	meet_hang_up(&relay->client_fd);
	if (relay->memif_fd >= 0 && !relay->heard)
		relay->heard = recv(relay->memif_fd, message, sizeof(message), MSG_DONTWAIT) >= 0;
	if (relay->memif_fd >= 0 && !relay->heard)
		return false;
	meet_hang_up(&relay->memif_fd);
	return true;
}
