/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank's end of a rendezvous: struct frl_bootstrap over one socket. What arrives is read only in
 * the calls of the bootstrap, so that there is no thread here; pieces that come before this rank
 * asks for them are kept, at most two of each rank.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <ferrule/connect.h>

#include "collectives/rendezvous_address.h"
#include "collectives/rendezvous_wire.h"
#include "lib/base/error.h"

enum {
	GATHER_TIMEOUT_MS = 60 * 1000,
	POLL_MS = 60 * 1000, /* of one poll(2), which takes no longer times than an int holds */
	RETRY_MS = 20,       /* between attempts to reach the server */
	BYE_MS = 500,        /* how long close waits for the server to see the good-bye */
	NAMES_MAX = 16,      /* missing ranks that an error names */
	NOBODY = -1,
};

struct piece {
	uint8_t *bytes; /* NULL: not there */
	uint32_t size;
};

struct client {
	int fd;
	int rank;
	int ranks;
	int timeout_ms; /* of an allgather; negative: none */
	uint32_t round; /* the allgather that is next, or in progress */
	struct inbox inbox;
	/* By rank, of this round and of the next: others may be done with this one, and ahead. */
	struct piece *pieces[2]; /* by round modulo 2 */
	bool *left;              /* by rank */
	int dead;                /* the first rank that died, or NOBODY */
	int aborted;             /* the first that gave up */
	int error; /* no more use: the server is gone, or what it said makes no sense */
};

/* Waits for `events` until `deadline_ms`; 0, -ETIMEDOUT. */
static int wait_for(int fd, short events, uint64_t deadline_ms)
{
	for (;;) {
		struct pollfd entry = { .fd = fd, .events = events };
		uint64_t now = rendezvous_now_ms();
		uint64_t left_ms = now < deadline_ms ? deadline_ms - now : 0;
		int n = poll(&entry, 1, left_ms < POLL_MS ? (int)left_ms : POLL_MS);

		if (n > 0)
			return 0;
		if (n == 0 && left_ms <= POLL_MS)
			return -ETIMEDOUT;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

/* Sends a frame whose payload comes in two parts; changes nothing but the socket. */
static int send_frame(int fd, enum frame_type type, const void *head, uint32_t head_size,
	const void *body, uint32_t body_size, uint64_t deadline_ms)
{
	uint8_t header[FRAME_HEADER];
	struct iovec parts[] = {
		{ header, sizeof(header) },
		{ (void *)(uintptr_t)head, head_size },
		{ (void *)(uintptr_t)body, body_size },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };

	frame_put_header(header, type, head_size + body_size);
	while (message.msg_iovlen > 0) {
		ssize_t n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			int err = wait_for(fd, POLLOUT, deadline_ms);

			if (err)
				return err;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		while (message.msg_iovlen > 0 && (size_t)n >= message.msg_iov->iov_len) {
			n -= (ssize_t)message.msg_iov->iov_len;
			message.msg_iov++;
			message.msg_iovlen--;
		}
		if (message.msg_iovlen > 0) {
			message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + n;
			message.msg_iov->iov_len -= (size_t)n;
		}
	}
	return 0;
}

static struct piece *piece_of(const struct client *client, int rank)
{
	return &client->pieces[client->round % 2][rank];
}

/* What the server says; each returns 0 or the reason to believe it no more. */

static int take_piece(struct client *client, const struct frame *frame)
{
	uint32_t rank, round, size;
	struct piece *piece;

	if (frame->length < PIECE_HEADER)
		return -EPROTO;
	rank = wire_get32(frame->payload);
	round = wire_get32(frame->payload + 4);
	size = frame->length - PIECE_HEADER;
	if (rank >= (uint32_t)client->ranks || rank == (uint32_t)client->rank ||
		round - client->round > 1)
		return -EPROTO;
	piece = &client->pieces[round % 2][rank];
	if (piece->bytes)
		return -EPROTO;
	piece->bytes = malloc(size > 0 ? size : 1);
	if (!piece->bytes)
		return -ENOMEM;
	memcpy(piece->bytes, frame->payload + PIECE_HEADER, size);
	piece->size = size;
	return 0;
}

static int take_notice(struct client *client, const struct frame *frame)
{
	uint32_t rank;

	if (frame->length != 4)
		return -EPROTO;
	rank = wire_get32(frame->payload);
	if (rank >= (uint32_t)client->ranks)
		return -EPROTO;
	if (frame->type == FRAME_LEFT)
		client->left[rank] = true;
	else if (frame->type == FRAME_DEAD && client->dead == NOBODY)
		client->dead = (int)rank;
	else if (frame->type == FRAME_ABORTED && client->aborted == NOBODY)
		client->aborted = (int)rank;
	return 0;
}

/* Handles the frames that are complete; some may have come together with the welcome. */
static int take_frames(struct client *client)
{
	struct frame frame;
	int n;

	while ((n = inbox_take(&client->inbox, FRAME_MAX, &frame)) > 0) {
		int err;

		switch (frame.type) {
		case FRAME_PIECE: err = take_piece(client, &frame); break;
		case FRAME_LEFT:
		case FRAME_DEAD:
		case FRAME_ABORTED: err = take_notice(client, &frame); break;
		default: err = -EPROTO; break;
		}
		if (err)
			return err;
	}
	return n;
}

/* Reads all that has arrived. */
static void listen_to_server(struct client *client)
{
	while (!client->error) {
		int n = take_frames(client);

		if (n == 0)
			n = inbox_fill(&client->inbox, client->fd);
		if (n == -EAGAIN)
			return;
		if (n < 0)
			client->error = n;
	}
}

/* Who is gone, in the caller's last error; 0 while nobody is. */
static int report_gone(const struct client *client, int *ret_rank)
{
	/* The death of a rank is the cause when others gave up because of it. */
	if (client->dead != NOBODY) {
		*ret_rank = client->dead;
		return frl_fail(
			-ECONNRESET, "rank %d is gone: it ended without a good-bye", client->dead);
	}
	if (client->aborted != NOBODY) {
		*ret_rank = client->aborted;
		return frl_fail(-ECONNRESET, "rank %d is gone: it gave up", client->aborted);
	}
	if (client->error) {
		*ret_rank = -1;
		if (client->error == -EPROTO)
			return frl_fail(-ECONNRESET, "the rendezvous says what makes no sense");
		return frl_fail(-ECONNRESET, "the rendezvous is gone: %s",
			client->error == -EPIPE ? "it closed the connection"
						: frl_strerror(client->error));
	}
	return 0;
}

static int client_check(void *ctx, int *ret_rank)
{
	struct client *client = ctx;

	listen_to_server(client);
	return report_gone(client, ret_rank);
}

/* The first rank whose piece is missing, from `rank` on; client->ranks when none is. */
static int next_missing(const struct client *client, int rank)
{
	while (rank < client->ranks && (rank == client->rank || piece_of(client, rank)->bytes))
		rank++;
	return rank;
}

static int report_missing(struct client *client)
{
	char names[NAMES_MAX * 12 + 8] = "";
	size_t length = 0;
	int rank = next_missing(client, 0);

	client->error =
		-ETIMEDOUT; /* the pieces of this round may still come: nothing fits any more */
	for (int n = 0; rank < client->ranks; rank = next_missing(client, rank + 1)) {
		if (n++ == NAMES_MAX) {
			memcpy(names + length, ", ...", sizeof(", ..."));
			break;
		}
		length += (size_t)snprintf(
			names + length, sizeof(names) - length, "%s%d", n > 1 ? ", " : "", rank);
	}
	return frl_fail(-ETIMEDOUT, "waited %d s for rank %s", client->timeout_ms / 1000, names);
}

/* Waits until the pieces of all others are there. */
static int collect(struct client *client, uint64_t deadline_ms)
{
	for (;;) {
		int missing, gone, err;

		listen_to_server(client);
		missing = next_missing(client, 0);
		if (missing == client->ranks)
			return 0;
		err = report_gone(client, &gone);
		if (err)
			return err;
		for (; missing < client->ranks; missing = next_missing(client, missing + 1)) {
			if (client->left[missing])
				return frl_fail(
					-ECONNRESET, "rank %d is gone: it has left", missing);
		}
		err = wait_for(client->fd, POLLIN, deadline_ms);
		if (err == -ETIMEDOUT)
			return report_missing(client);
	}
}

/* Hands the pieces out, and makes room for those of the next round. */
static int deliver(struct client *client, const void *mine, size_t size, uint8_t *all)
{
	int err = 0;

	for (int rank = 0; rank < client->ranks; rank++) {
		struct piece *piece = piece_of(client, rank);

		if (rank == client->rank) {
			if (size > 0)
				memcpy(all + (size_t)rank * size, mine, size);
			continue;
		}
		if (piece->size != size && !err)
			err = frl_fail(-EPROTO,
				"rank %d gives %u bytes, this one %zu: do all ranks "
				"make the same calls?",
				rank, piece->size, size);
		else if (!err && size > 0)
			memcpy(all + (size_t)rank * size, piece->bytes, size);
		free(piece->bytes);
		*piece = (struct piece){ 0 };
	}
	client->round++;
	return err;
}

static int client_allgather(void *ctx, const void *mine, size_t size, void *all)
{
	struct client *client = ctx;
	uint64_t deadline_ms = client->timeout_ms < 0
		? UINT64_MAX
		: rendezvous_now_ms() + (uint64_t)client->timeout_ms;
	uint8_t round[4];
	int gone, err;

	if (size > GATHER_MAX)
		return frl_fail(
			-EINVAL, "%zu bytes: an allgather carries at most %d", size, GATHER_MAX);
	listen_to_server(client);
	err = report_gone(client, &gone);
	if (err)
		return err;
	wire_put32(round, client->round);
	err = send_frame(
		client->fd, FRAME_GATHER, round, sizeof(round), mine, (uint32_t)size, deadline_ms);
	if (err) {
		/* Half a frame may be out. Perhaps the server has told why it went. */
		listen_to_server(client);
		if (!client->error)
			client->error = err;
		return report_gone(client, &gone);
	}
	err = collect(client, deadline_ms);
	return err ? err : deliver(client, mine, size, all);
}

static bool client_has_left(void *ctx, int rank)
{
	struct client *client = ctx;

	listen_to_server(client);
	return rank >= 0 && rank < client->ranks && client->left[rank];
}

static void client_abort(void *ctx)
{
	struct client *client = ctx;

	/* If there is no room to say so, the end of the connection says it as well. */
	if (send_frame(client->fd, FRAME_ABORT, NULL, 0, NULL, 0, 0) < 0)
		shutdown(client->fd, SHUT_RDWR);
}

static void client_free(struct client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	inbox_fini(&client->inbox);
	for (int i = 0; i < 2; i++) {
		for (int rank = 0; client->pieces[i] && rank < client->ranks; rank++)
			free(client->pieces[i][rank].bytes);
		free(client->pieces[i]);
	}
	free(client->left);
	free(client);
}

static void client_close(void *ctx)
{
	struct client *client = ctx;
	uint64_t deadline_ms = rendezvous_now_ms() + BYE_MS;

	/*
	 * Closing a socket with unread data resets the connection, and the server could miss the
	 * good-bye: so read until the server, having seen it, closes its end.
	 */
	if (send_frame(client->fd, FRAME_BYE, NULL, 0, NULL, 0, deadline_ms) == 0) {
		uint8_t bytes[4096];

		while (wait_for(client->fd, POLLIN, deadline_ms) == 0) {
			ssize_t n = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

			if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
				break;
		}
	}
	client_free(client);
}

void frl_rendezvous_set_timeout(struct frl_bootstrap *bootstrap, int timeout_ms)
{
	struct client *client = bootstrap->ctx;

	client->timeout_ms = timeout_ms;
}

/* Joining */

static int connect_to_server(const struct rendezvous_address *address, uint64_t deadline_ms)
{
	int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t length = sizeof(int);
	int err = 0;

	if (fd < 0)
		return -errno;
	rendezvous_tune(fd, address);
	if (connect(fd, &address->any, address->length) < 0)
		err = -errno;
	if (err == -EINPROGRESS) {
		err = wait_for(fd, POLLOUT, deadline_ms);
		if (!err && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &length) == 0)
			err = -err;
	}
	if (!err)
		return fd;
	close(fd);
	return err;
}

/* The server's refusal as this call's error; its text is a stranger's, so only printable bytes. */
static int refused(const struct frame *frame)
{
	char text[REFUSAL_TEXT] = "";
	uint32_t length;

	if (frame->length < 4)
		return frl_fail(-EPROTO, "the rendezvous refused without a reason");
	length = frame->length - 4;
	if (length >= sizeof(text))
		length = sizeof(text) - 1;
	for (uint32_t i = 0; i < length; i++) {
		uint8_t c = frame->payload[4 + i];

		text[i] = (char)(c >= ' ' && c < 0x7f ? c : '?');
	}
	return frl_fail(wire_get32(frame->payload) == EEXIST ? -EEXIST : -ECONNREFUSED,
		"the rendezvous refused: %s", text);
}

/*
 * Says HELLO and waits for the answer. 0, -EAGAIN when the server ended the connection without one
 * (it may have been busy with strangers), -ETIMEDOUT, or the reason of a refusal.
 */
static int introduce(struct client *client, uint64_t deadline_ms)
{
	uint8_t hello[HELLO_SIZE];
	struct frame frame;
	int err;

	wire_put32(hello, (uint32_t)client->rank);
	wire_put32(hello + 4, (uint32_t)client->ranks);
	if (send_frame(client->fd, FRAME_HELLO, hello, sizeof(hello), NULL, 0, deadline_ms) < 0)
		return -EAGAIN;
	for (;;) {
		int n = inbox_take(&client->inbox, FRAME_MAX, &frame);

		if (n > 0)
			break;
		if (n < 0)
			return frl_fail(-EPROTO, "something else than a rendezvous answers there");
		err = wait_for(client->fd, POLLIN, deadline_ms);
		if (err)
			return err;
		n = inbox_fill(&client->inbox, client->fd);
		if (n < 0 && n != -EAGAIN)
			return -EAGAIN;
	}
	if (frame.type == FRAME_REFUSED)
		return refused(&frame);
	if (frame.type != FRAME_WELCOME)
		return frl_fail(-EPROTO, "the rendezvous answered with frame %u", frame.type);
	return 0;
}

/*
 * One attempt at one address: 0, or why not. *ret_final: another attempt would be no better, and
 * the thread's last error says why.
 */
static int try_address(struct client *client, const struct rendezvous_address *address,
	uint64_t deadline_ms, bool *ret_final)
{
	int err = connect_to_server(address, deadline_ms);

	*ret_final = false;
	if (err < 0)
		return err;
	client->fd = err;
	err = introduce(client, deadline_ms);
	if (!err)
		return 0;
	*ret_final = err != -EAGAIN && err != -ETIMEDOUT;
	close(client->fd);
	client->fd = -1;
	inbox_fini(&client->inbox);
	return err;
}

/* When to stop trying this address: the last of them may take all of the time that is left. */
static uint64_t share_of_time(uint64_t deadline_ms, int addresses)
{
	uint64_t now = rendezvous_now_ms();

	return deadline_ms > now ? now + (deadline_ms - now) / (uint64_t)addresses : deadline_ms;
}

static int join(struct client *client, const char *address, int timeout_ms)
{
	uint64_t deadline_ms = rendezvous_now_ms() + (uint64_t)timeout_ms;
	struct timespec pause = { .tv_nsec = RETRY_MS * 1000000L };
	struct rendezvous_addresses resolved;
	int err = rendezvous_resolve(address, &resolved);

	if (err)
		return err;
	for (;;) {
		for (int i = 0; i < resolved.n; i++) {
			uint64_t until = share_of_time(deadline_ms, resolved.n - i);
			bool final;

			err = try_address(client, &resolved.list[i], until, &final);
			if (!err || final)
				return err;
		}
		if (rendezvous_now_ms() + RETRY_MS >= deadline_ms)
			return frl_fail(-ETIMEDOUT, "no rendezvous at %s within %d ms: %s", address,
				timeout_ms,
				err == -EAGAIN ? "it did not answer" : frl_strerror(err));
		nanosleep(&pause, NULL);
	}
}

int frl_rendezvous_join(const char *address, int rank, int ranks, int timeout_ms,
	struct frl_bootstrap *ret_bootstrap)
{
	struct client *client;
	int err;

	if (!address || !ret_bootstrap)
		return frl_fail(-EINVAL, "the address or ret_bootstrap is NULL");
	if (ranks < 1 || ranks > RENDEZVOUS_RANKS_MAX || rank < 0 || rank >= ranks ||
		timeout_ms < 0)
		return frl_fail(
			-EINVAL, "rank %d of %d, %d ms: out of range", rank, ranks, timeout_ms);
	client = calloc(1, sizeof(*client));
	if (!client)
		return frl_fail(-ENOMEM, "no memory for a bootstrap");
	*client = (struct client){
		.fd = -1,
		.rank = rank,
		.ranks = ranks,
		.timeout_ms = GATHER_TIMEOUT_MS,
		.dead = NOBODY,
		.aborted = NOBODY,
		.pieces = { calloc((size_t)ranks, sizeof(struct piece)),
			calloc((size_t)ranks, sizeof(struct piece)) },
		.left = calloc((size_t)ranks, sizeof(*client->left)),
	};
	if (client->pieces[0] && client->pieces[1] && client->left)
		err = join(client, address, timeout_ms);
	else
		err = frl_fail(-ENOMEM, "no memory for a bootstrap of %d ranks", ranks);
	if (err) {
		client_free(client);
		return err;
	}
	*ret_bootstrap = (struct frl_bootstrap){
		.rank = rank,
		.ranks = ranks,
		.ctx = client,
		.allgather = client_allgather,
		.check = client_check,
		.abort = client_abort,
		.close = client_close,
		.has_left = client_has_left,
	};
	return 0;
}
