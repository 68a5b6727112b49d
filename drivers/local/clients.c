/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients of the listening sockets: of links, and of introductions. Every process of the machine
 * can connect, so the number of clients and their time are limited.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "drivers/local/link.h"
#include "lib/base/process/closer.h"

enum {
	MESSAGE_NS = 1000 * 1000 * 1000,
	/* Limit of sockets still being closed before more connections are accepted. */
	MOST_CLOSING = 32,
	CLOSING_NS = 1000 * 1000,
	NO_DESCRIPTOR_NS = 100 * 1000 * 1000,
};

static void remove_client(struct fabric_clients *clients, uint32_t index)
{
	clients->n_pending--;
	memmove(&clients->pending[index], &clients->pending[index + 1],
		(clients->n_pending - index) * sizeof(clients->pending[0]));
}

static void drop_client(struct fabric_clients *clients, uint32_t index)
{
	handshake_close(&clients->pending[index].fd);
	remove_client(clients, index);
}

void fabric_clients_drop(struct fabric_clients *clients)
{
	while (clients->n_pending)
		drop_client(clients, clients->n_pending - 1);
}

void fabric_clients_close_copies(struct fabric_clients *clients)
{
	if (clients->listen_fd >= 0)
		close(clients->listen_fd);
	for (uint32_t i = 0; i < clients->n_pending; i++)
		close(clients->pending[i].fd);
	clients->listen_fd = -1;
	clients->n_pending = 0;
}

void fabric_clients_watch(const struct fabric_clients *clients, struct fabric_watch *watch)
{
	if (clients->listen_fd >= 0)
		link_thread_watch(watch, clients->listen_fd);
	for (uint32_t i = 0; i < clients->n_pending; i++)
		link_thread_watch(watch, clients->pending[i].fd);
}

static void add_client(struct fabric_clients *clients, int fd, struct fabric_watch *watch,
	const struct fabric_pass *pass)
{
	if (clients->same_user && handshake_check_user(fd)) {
		handshake_close(&fd);
		return;
	}
	link_thread_watch(watch, fd);
	if (clients->n_pending == FABRIC_PENDING_CLIENTS)
		drop_client(clients, 0);
	clients->pending[clients->n_pending++] = (struct fabric_pending_client){ .fd = fd,
		.deadline_ns = pass->now_ns + MESSAGE_NS };
}

/* A client sends its first message when it connects. Each accepted connection is read in the same
 * pass, so any number of silent connections cannot keep a client out. */
uint64_t fabric_clients_accept(
	struct fabric_clients *clients, struct fabric_watch *watch, struct fabric_pass *pass)
{
	for (int i = 0; i < FABRIC_PENDING_CLIENTS; i++) {
		int fd;

		if (closer_pending() >= MOST_CLOSING)
			return pass->now_ns + CLOSING_NS;
		fd = handshake_accept(clients->listen_fd);
		if (fd < 0)
			return fd == -EAGAIN ? 0 : pass->now_ns + NO_DESCRIPTOR_NS;
		add_client(clients, fd, watch, pass);
	}
	pass->wake_ns = pass->now_ns; /* more connections may be pending */
	return 0;
}

int fabric_clients_read(struct fabric_clients *clients, void *message, size_t len,
	bool (*is_valid)(void *arg, const void *message), void *arg, struct fabric_pass *pass)
{
	uint32_t i = 0;

	while (i < clients->n_pending) {
		const struct fabric_pending_client *client = &clients->pending[i];
		int fd = client->fd, err = handshake_receive(fd, message, len);

		if (err == -EAGAIN && pass->now_ns < client->deadline_ns) {
			pass->wake_ns = least(pass->wake_ns, client->deadline_ns);
			i++;
		} else if (!err && is_valid(arg, message)) {
			remove_client(clients, i);
			return fd;
		} else {
			drop_client(clients, i);
		}
	}
	return -1;
}
