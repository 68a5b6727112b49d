/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server of a rendezvous: one thread, poll(2), no waiting but there. It understands nothing of
 * what the ranks tell each other: a piece of an allgather goes to all other ranks as it comes, also
 * to those that have not joined yet, whose outbox keeps it. A connection is a stranger until its
 * HELLO is accepted; strangers get little memory and little time.
 */
#include <errno.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ferrule/connect.h>

#include "collectives/rendezvous_address.h"
#include "collectives/rendezvous_wire.h"
#include "lib/base/error.h"

enum {
	STRANGERS_MAX = 64,
	STRANGER_MS = 5000,
	FINISH_MS = 3000,   /* how long a server that is stopped still gives answers */
	FINISH_TICK_MS = 2, /* no event says that TCP data was acknowledged */
	POLL_FIXED = 2,     /* the stop event and the listener come first */
	NOBODY = -1,
};

/* A frame on its way to several ranks. */
struct blob {
	int references;
	size_t size;
	uint8_t bytes[];
};

struct parcel {
	struct parcel *next;
	struct blob *blob;
};

struct outbox {
	struct parcel *first;
	struct parcel *last;
	size_t sent; /* bytes of the first */
};

enum slot_state {
	SLOT_ABSENT, /* has not joined */
	SLOT_JOINED,
	SLOT_LEFT,
	SLOT_DEAD,
};

struct slot {
	enum slot_state state;
	bool aborted;
	uint32_t rounds; /* allgathers that it has given its piece for */
	struct outbox outbox;
};

struct connection {
	int fd;
	int rank;             /* or NOBODY: a stranger */
	uint64_t deadline_ms; /* strangers only */
	struct inbox inbox;
};

/* After frl_rendezvous_start() all of this belongs to the thread, but for address and stop_fd. */
struct frl_rendezvous {
	char address[300];
	struct rendezvous_address bound;
	int ranks;
	int listener;
	int stop_fd;
	bool out_of_memory; /* ends the thread: every rank then notices */
	pthread_t thread;
	struct slot *slots;
	struct connection *connections;
	int connection_count;
	struct pollfd *polls;
};

static void outbox_pop(struct outbox *outbox)
{
	struct parcel *parcel = outbox->first;

	outbox->first = parcel->next;
	if (!outbox->first)
		outbox->last = NULL;
	outbox->sent = 0;
	if (--parcel->blob->references == 0)
		free(parcel->blob);
	free(parcel);
}

static void outbox_fini(struct outbox *outbox)
{
	while (outbox->first)
		outbox_pop(outbox);
}

static bool outbox_push(struct outbox *outbox, struct blob *blob)
{
	struct parcel *parcel = malloc(sizeof(*parcel));

	if (!parcel)
		return false;
	*parcel = (struct parcel){ .blob = blob };
	blob->references++;
	if (outbox->last)
		outbox->last->next = parcel;
	else
		outbox->first = parcel;
	outbox->last = parcel;
	return true;
}

/* Sends what the socket takes; false when the connection is of no more use. */
static bool outbox_flush(struct outbox *outbox, int fd)
{
	while (outbox->first) {
		struct blob *blob = outbox->first->blob;
		ssize_t n = send(fd, blob->bytes + outbox->sent, blob->size - outbox->sent,
			MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK;
		outbox->sent += (size_t)n;
		if (outbox->sent == blob->size)
			outbox_pop(outbox);
	}
	return true;
}

/* Tells all ranks that may still listen, but for `rank` itself: rank, then `size` bytes. */
static void broadcast(struct frl_rendezvous *server, enum frame_type type, int rank,
	const uint8_t *more, uint32_t size)
{
	struct blob *blob = malloc(sizeof(*blob) + FRAME_HEADER + 4 + size);

	if (!blob) {
		server->out_of_memory = true;
		return;
	}
	*blob = (struct blob){ .references = 1, .size = FRAME_HEADER + 4 + (size_t)size };
	frame_put_header(blob->bytes, type, 4 + size);
	wire_put32(blob->bytes + FRAME_HEADER, (uint32_t)rank);
	if (size > 0)
		memcpy(blob->bytes + FRAME_HEADER + 4, more, size);
	for (int i = 0; i < server->ranks; i++) {
		struct slot *slot = &server->slots[i];

		if (i == rank || slot->state == SLOT_LEFT || slot->state == SLOT_DEAD)
			continue;
		if (!outbox_push(&slot->outbox, blob))
			server->out_of_memory = true;
	}
	if (--blob->references == 0)
		free(blob);
}

/* Closes connection `index`; the last one takes its place. */
static void drop(struct frl_rendezvous *server, int index)
{
	struct connection *connection = &server->connections[index];
	int rank = connection->rank;

	close(connection->fd);
	inbox_fini(&connection->inbox);
	*connection = server->connections[--server->connection_count];
	if (rank == NOBODY)
		return;
	outbox_fini(&server->slots[rank].outbox);
	if (server->slots[rank].state != SLOT_JOINED)
		return;
	server->slots[rank].state = SLOT_DEAD;
	/* Those who gave up were reported, and may go without a good-bye. */
	if (!server->slots[rank].aborted)
		broadcast(server, FRAME_DEAD, rank, NULL, 0);
}

/* Handling frames: each returns whether the connection lives on. */

static bool refuse(struct connection *connection, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static bool refuse(struct connection *connection, int err, const char *format, ...)
{
	uint8_t bytes[FRAME_HEADER + 4 + REFUSAL_TEXT];
	char text[REFUSAL_TEXT];
	uint32_t length;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	length = (uint32_t)strlen(text);
	frame_put_header(bytes, FRAME_REFUSED, 4 + length);
	wire_put32(bytes + FRAME_HEADER, (uint32_t)err);
	memcpy(bytes + FRAME_HEADER + 4, text, length);
	/* Nothing was sent on this socket before, so there is room for so little. */
	send(connection->fd, bytes, FRAME_HEADER + 4 + length, MSG_DONTWAIT | MSG_NOSIGNAL);
	return false;
}

static bool handle_hello(
	struct frl_rendezvous *server, struct connection *connection, const struct frame *frame)
{
	uint8_t welcome[FRAME_HEADER];
	uint32_t rank, ranks;

	if (frame->type != FRAME_HELLO || frame->length != HELLO_SIZE)
		return false;
	rank = wire_get32(frame->payload);
	ranks = wire_get32(frame->payload + 4);
	if (!rendezvous_peer_may_join(connection->fd, &server->bound))
		return refuse(connection, EACCES, "it serves another user");
	if (ranks != (uint32_t)server->ranks)
		return refuse(connection, ECONNREFUSED, "this job has %d ranks, not %u",
			server->ranks, ranks);
	if (rank >= ranks)
		return refuse(connection, ECONNREFUSED, "rank %u is not one of 0 to %d", rank,
			server->ranks - 1);
	if (server->slots[rank].state != SLOT_ABSENT)
		return refuse(connection, EEXIST, "rank %u has joined before", rank);
	frame_put_header(welcome, FRAME_WELCOME, 0);
	if (send(connection->fd, welcome, sizeof(welcome), MSG_DONTWAIT | MSG_NOSIGNAL) !=
		(ssize_t)sizeof(welcome))
		return false;
	connection->rank = (int)rank;
	server->slots[rank].state = SLOT_JOINED;
	return true;
}

static bool handle_gather(struct frl_rendezvous *server, int rank, const struct frame *frame)
{
	struct slot *slot = &server->slots[rank];

	if (frame->length < 4 || wire_get32(frame->payload) != slot->rounds)
		return false;
	/* A rank cannot be more than one round ahead; this bounds what outboxes hold. */
	for (int i = 0; i < server->ranks; i++) {
		bool lives = server->slots[i].state <= SLOT_JOINED;

		if (lives && (int32_t)(slot->rounds - server->slots[i].rounds) > 0)
			return false;
	}
	slot->rounds++;
	broadcast(server, FRAME_PIECE, rank, frame->payload, frame->length);
	return true;
}

static bool handle_frame(
	struct frl_rendezvous *server, struct connection *connection, const struct frame *frame)
{
	int rank = connection->rank;

	if (rank == NOBODY)
		return handle_hello(server, connection, frame);
	switch (frame->type) {
	case FRAME_GATHER: return handle_gather(server, rank, frame);
	case FRAME_ABORT:
		if (!server->slots[rank].aborted)
			broadcast(server, FRAME_ABORTED, rank, NULL, 0);
		server->slots[rank].aborted = true;
		return true;
	case FRAME_BYE:
		server->slots[rank].state = SLOT_LEFT;
		broadcast(server, FRAME_LEFT, rank, NULL, 0);
		return false;
	default: return false;
	}
}

/* Reads once and handles all complete frames, so that no connection keeps others waiting. */
static bool read_connection(struct frl_rendezvous *server, struct connection *connection)
{
	int n = inbox_fill(&connection->inbox, connection->fd);
	struct frame frame;

	if (n < 0)
		return n == -EAGAIN;
	for (;;) {
		uint32_t limit = connection->rank == NOBODY ? HELLO_SIZE : 4 + GATHER_MAX;

		n = inbox_take(&connection->inbox, limit, &frame);
		if (n <= 0)
			return n == 0;
		if (!handle_frame(server, connection, &frame))
			return false;
	}
}

/* Makes room for a newcomer: of too many strangers the one that waits longest goes. */
static void evict_stranger(struct frl_rendezvous *server)
{
	int strangers = 0, oldest = NOBODY;

	for (int i = 0; i < server->connection_count; i++) {
		if (server->connections[i].rank != NOBODY)
			continue;
		strangers++;
		if (oldest == NOBODY ||
			server->connections[i].deadline_ms <
				server->connections[oldest].deadline_ms)
			oldest = i;
	}
	if (strangers >= STRANGERS_MAX)
		drop(server, oldest);
}

static void accept_connection(struct frl_rendezvous *server)
{
	int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		/* Out of descriptors, say: the listener stays readable, so do not spin on it. */
		if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
			poll(NULL, 0, 10);
		return;
	}
	rendezvous_tune(fd, &server->bound);
	evict_stranger(server);
	server->connections[server->connection_count++] = (struct connection){
		.fd = fd, .rank = NOBODY, .deadline_ms = rendezvous_now_ms() + STRANGER_MS
	};
}

/* Prepares poll(2); returns its timeout: until the next stranger's time is over. */
static int prepare_poll(struct frl_rendezvous *server)
{
	uint64_t now = rendezvous_now_ms();
	int timeout = -1;

	server->polls[0] = (struct pollfd){ .fd = server->stop_fd, .events = POLLIN };
	server->polls[1] = (struct pollfd){ .fd = server->listener, .events = POLLIN };
	for (int i = 0; i < server->connection_count; i++) {
		struct connection *connection = &server->connections[i];
		struct pollfd *entry = &server->polls[POLL_FIXED + i];

		*entry = (struct pollfd){ .fd = connection->fd, .events = POLLIN };
		if (connection->rank != NOBODY) {
			if (server->slots[connection->rank].outbox.first)
				entry->events |= POLLOUT;
			continue;
		}
		if (connection->deadline_ms <= now)
			timeout = 0;
		else if (timeout < 0 || connection->deadline_ms - now < (uint64_t)timeout)
			timeout = (int)(connection->deadline_ms - now);
	}
	return timeout;
}

/* One round, from the last connection to the first: drop() then moves only ones that are done. */
static void serve_connections(struct frl_rendezvous *server)
{
	uint64_t now = rendezvous_now_ms();

	for (int i = server->connection_count - 1; i >= 0; i--) {
		struct connection *connection = &server->connections[i];
		bool lives = true;

		if (server->polls[POLL_FIXED + i].revents & ~POLLOUT)
			lives = read_connection(server, connection);
		if (connection->rank == NOBODY && connection->deadline_ms <= now)
			lives = false;
		if (!lives)
			drop(server, i);
	}
	for (int i = server->connection_count - 1; i >= 0; i--) {
		struct connection *connection = &server->connections[i];

		if (connection->rank != NOBODY &&
			!outbox_flush(&server->slots[connection->rank].outbox, connection->fd))
			drop(server, i);
	}
}

/*
 * Is something on its way that closing the sockets now would lose? Also what a rank has sent and
 * the server has not taken yet: it is another one's answer.
 */
static bool answers_are_due(const struct frl_rendezvous *server)
{
	for (int i = 0; i < server->connection_count; i++) {
		const struct connection *connection = &server->connections[i];
		int unacked = 0, unread = 0;

		if (connection->rank == NOBODY)
			continue;
		if (server->slots[connection->rank].outbox.first)
			return true;
		if (connection->inbox.start != connection->inbox.end ||
			(ioctl(connection->fd, FIONREAD, &unread) == 0 && unread > 0))
			return true;
		/* TCP drops what the other host has not acknowledged when a close resets it. */
		if (server->bound.any.sa_family != AF_UNIX &&
			ioctl(connection->fd, SIOCOUTQ, &unacked) == 0 && unacked > 0)
			return true;
	}
	return false;
}

/* Before the end: gives the ranks that still listen what they were to get. */
static void finish_answers(struct frl_rendezvous *server)
{
	uint64_t deadline_ms = rendezvous_now_ms() + FINISH_MS;

	while (!server->out_of_memory && answers_are_due(server) &&
		rendezvous_now_ms() < deadline_ms) {
		prepare_poll(server);
		if (poll(server->polls + POLL_FIXED, (nfds_t)server->connection_count,
			    FINISH_TICK_MS) >= 0)
			serve_connections(server);
	}
}

static void *serve(void *arg)
{
	struct frl_rendezvous *server = arg;

	while (!server->out_of_memory) {
		int timeout = prepare_poll(server);
		int n = poll(
			server->polls, (nfds_t)(POLL_FIXED + server->connection_count), timeout);

		if (n < 0)
			continue; /* EINTR; ENOMEM passes */
		if (server->polls[0].revents)
			break;
		serve_connections(server);
		if (server->polls[1].revents)
			accept_connection(server);
	}
	finish_answers(server);
	while (server->connection_count > 0) {
		struct connection *connection = &server->connections[--server->connection_count];

		close(connection->fd);
		inbox_fini(&connection->inbox);
	}
	return NULL;
}

static int open_listener(struct frl_rendezvous *server, const char *address)
{
	struct rendezvous_addresses addresses;
	int fd = rendezvous_resolve(address, &addresses);

	if (!fd)
		fd = rendezvous_listen(&addresses, address, &server->bound);
	if (fd < 0)
		return fd;
	server->listener = fd;
	return 0;
}

/* The address as it was given, with the port that was chosen. */
static int name_address(struct frl_rendezvous *server, const char *address)
{
	const char *colon = strrchr(address, ':');
	struct sockaddr_storage name;
	socklen_t length = sizeof(name);
	in_port_t port;

	if (strlen(address) + 8 > sizeof(server->address))
		return frl_fail(-EINVAL, "the rendezvous address is too long");
	if (server->bound.any.sa_family == AF_UNIX) {
		memcpy(server->address, address, strlen(address) + 1);
		return 0;
	}
	if (getsockname(server->listener, (struct sockaddr *)(void *)&name, &length) < 0)
		return frl_fail(-errno, "%s: %s", address, frl_strerror(errno));
	port = name.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&name)->sin_port
					 : ((struct sockaddr_in6 *)(void *)&name)->sin6_port;
	snprintf(server->address, sizeof(server->address), "%.*s:%u", (int)(colon - address),
		address, ntohs(port));
	return 0;
}

static void free_server(struct frl_rendezvous *server)
{
	if (server->listener >= 0)
		close(server->listener);
	if (server->stop_fd >= 0)
		close(server->stop_fd);
	if (server->listener >= 0 && server->bound.any.sa_family == AF_UNIX &&
		server->bound.un.sun_path[0])
		unlink(server->bound.un.sun_path);
	for (int i = 0; server->slots && i < server->ranks; i++)
		outbox_fini(&server->slots[i].outbox);
	free(server->slots);
	free(server->connections);
	free(server->polls);
	free(server);
}

static int start_thread(struct frl_rendezvous *server)
{
	sigset_t all, before;
	int err;

	/* Signals are for the host's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&server->thread, NULL, serve, server);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err ? frl_fail(-err, "starting the rendezvous thread: %s", frl_strerror(err)) : 0;
}

int frl_rendezvous_start(const char *address, int ranks, struct frl_rendezvous **ret_rendezvous)
{
	struct frl_rendezvous *server;
	size_t connections;
	int err;

	if (!address || !ret_rendezvous)
		return frl_fail(-EINVAL, "the address or ret_rendezvous is NULL");
	if (ranks < 1 || ranks > RENDEZVOUS_RANKS_MAX)
		return frl_fail(
			-EINVAL, "%d ranks: 1 to %d are possible", ranks, RENDEZVOUS_RANKS_MAX);
	server = calloc(1, sizeof(*server));
	if (!server)
		return frl_fail(-ENOMEM, "no memory for a rendezvous");
	connections = (size_t)ranks + STRANGERS_MAX;
	server->ranks = ranks;
	server->listener = -1;
	server->stop_fd = eventfd(0, EFD_CLOEXEC);
	server->slots = calloc((size_t)ranks, sizeof(*server->slots));
	server->connections = calloc(connections, sizeof(*server->connections));
	server->polls = calloc(POLL_FIXED + connections, sizeof(*server->polls));
	if (server->stop_fd < 0 || !server->slots || !server->connections || !server->polls) {
		err = frl_fail(-ENOMEM, "no memory or descriptor for a rendezvous");
		goto err_free;
	}
	err = open_listener(server, address);
	if (!err)
		err = name_address(server, address);
	if (!err)
		err = start_thread(server);
	if (err)
		goto err_free;
	*ret_rendezvous = server;
	return 0;

err_free:
	free_server(server);
	return err;
}

const char *frl_rendezvous_address(const struct frl_rendezvous *rendezvous)
{
	return rendezvous->address;
}

void frl_rendezvous_stop(struct frl_rendezvous *rendezvous)
{
	uint64_t one = 1;

	if (!rendezvous)
		return;
	/* Cannot fail: an event counter that nobody else writes takes a 1. */
	if (write(rendezvous->stop_fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
		pthread_join(rendezvous->thread, NULL);
	free_server(rendezvous);
}
