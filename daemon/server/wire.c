/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <openssl/err.h>

#include "daemon/server/tls.h"
#include "lib/base/process/closer.h"
#include "lib/base/process/rights.h"

enum { TLS_CHUNK = 16384 };

void wire_init(struct wire *wire, int fd, SSL *ssl, bool local)
{
	*wire = (struct wire){ .fd = fd, .ssl = ssl, .local = local, .passed = -1 };
	list_init(&wire->given);
	if (local)
		rights_prepare(fd);
}

void wire_close(struct wire *wire)
{
	int passed = wire_take_fd(wire);

	if (passed >= 0)
		closer_close(passed);
	wire_drop_given(wire);
	SSL_free(wire->ssl);
	wire->ssl = NULL;
	if (wire->fd >= 0 && wire->local)
		rights_close(wire->fd);
	else if (wire->fd >= 0)
		close(wire->fd);
	wire->fd = -1;
}

int wire_take_fd(struct wire *wire)
{
	int fd = wire->passed;

	wire->passed = -1;
	return fd;
}

/* ---- plain TCP and Unix sockets */

static ssize_t tcp_read(struct wire *wire, uint8_t *to)
{
	ssize_t got = recv(wire->fd, to, WIRE_READ_SIZE, MSG_DONTWAIT);

	return got >= 0 ? got : errno == EINTR ? -EAGAIN : -errno;
}

static ssize_t refuse(struct wire *wire, int passed, const char *why)
{
	if (passed >= 0)
		closer_close(passed);
	snprintf(wire->why, sizeof(wire->why), "%s", why);
	return -EPROTO;
}

/* A page is a memfd: only those have seals. F_GET_SEALS does not block, unlike fstat(), which may
 * wait for a file system of the sender. */
static ssize_t local_read(struct wire *wire, uint8_t *to)
{
	int passed = -1;
	ssize_t got = rights_receive(wire->fd, to, WIRE_READ_SIZE, &passed);

	if (got == -EBADMSG)
		return refuse(wire, passed,
			"it sent several descriptors with a message, or ferruled has none left for "
			"one (raise LimitNOFILE)");
	if (passed < 0)
		return got == -EINTR ? -EAGAIN : got;
	if (wire->passed >= 0)
		return refuse(wire, passed, "it sent a descriptor before the last one was used");
	if (fcntl(passed, F_GET_SEALS) < 0)
		return refuse(wire, passed, "it sent a descriptor that is not a memfd");
	wire->passed = passed;
	return got;
}

/* ---- descriptors in the output */

/* The kernel may take some milliseconds to close the last descriptor of a packet socket. */
static void drop_given(struct wire_given *given)
{
	list_remove(&given->node);
	closer_close(given->fd);
	free(given);
}

void wire_drop_given(struct wire *wire)
{
	while (!list_empty(&wire->given))
		drop_given(container_of(wire->given.next, struct wire_given, node));
}

bool wire_give_fd(struct wire *wire, int fd, size_t at)
{
	struct wire_given *given = malloc(sizeof(*given));

	if (!given) {
		closer_close(fd);
		return false;
	}
	*given = (struct wire_given){ .fd = fd, .at = at };
	list_add_tail(&wire->given, &given->node);
	return true;
}

/* Sends up to `most` bytes, and the descriptor with the first of them. */
static ssize_t send_with_fd(int fd, struct evbuffer *out, int given, size_t most)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS,
			      .cmsg_len = CMSG_LEN(sizeof(int)) } };
	struct evbuffer_iovec first;
	struct iovec iov;
	struct msghdr message = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.room) };
	ssize_t sent;

	evbuffer_peek(out, -1, NULL, &first, 1);
	iov = (struct iovec){ first.iov_base, first.iov_len < most ? first.iov_len : most };
	memcpy(CMSG_DATA(&control.header), &given, sizeof(given));
	sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent > 0)
		evbuffer_drain(out, (size_t)sent);
	return sent;
}

static size_t given_at(const struct wire *wire, const struct list *node)
{
	return node == &wire->given ? SIZE_MAX : container_of(node, struct wire_given, node)->at;
}

static ssize_t local_write(struct wire *wire, struct evbuffer *out)
{
	struct list *first = wire->given.next;
	size_t at = given_at(wire, first);
	ssize_t sent;

	if (at == SIZE_MAX)
		return evbuffer_write(out, wire->fd);
	if (at)
		sent = evbuffer_write_atmost(out, wire->fd, (ev_ssize_t)at);
	else
		sent = send_with_fd(wire->fd, out, container_of(first, struct wire_given, node)->fd,
			given_at(wire, first->next));
	if (sent > 0 && at == 0)
		drop_given(container_of(first, struct wire_given, node));
	for (struct list *node = wire->given.next; sent > 0 && node != &wire->given;
		node = node->next)
		container_of(node, struct wire_given, node)->at -= (size_t)sent;
	return sent;
}

/* ---- TLS */

/* Converts the result of an SSL function: EV_READ, EV_WRITE, 0 for the end of the stream, or a
 * negative errno; -EPROTO comes with `why`. */
static int tls_result(struct wire *wire, int result)
{
	int error = errno;

	switch (SSL_get_error(wire->ssl, result)) {
	case SSL_ERROR_WANT_READ: return EV_READ;
	case SSL_ERROR_WANT_WRITE: return EV_WRITE;
	case SSL_ERROR_ZERO_RETURN: return 0;
	case SSL_ERROR_SYSCALL:
		if (ERR_peek_error() == 0)
			return error ? -error : -ECONNRESET;
		break;
	default: break;
	}
	/* A killed daemon sends no TLS alert. */
	if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
		ERR_clear_error();
		return -ECONNRESET;
	}
	tls_explain(wire->ssl, wire->why, sizeof(wire->why));
	ERR_clear_error();
	return -EPROTO;
}

int wire_handshake(struct wire *wire)
{
	int result;

	if (!wire->ssl)
		return 0;
	ERR_clear_error();
	errno = 0;
	result = SSL_do_handshake(wire->ssl);
	if (result == 1)
		return 0;
	result = tls_result(wire, result);
	if (result > 0 || result == -EPROTO)
		return result;
	snprintf(wire->why, sizeof(wire->why), "it closed the connection in the TLS handshake");
	return -EPROTO;
}

static ssize_t tls_read(struct wire *wire, uint8_t *to)
{
	size_t got = 0;

	while (got < WIRE_READ_SIZE) {
		int result;

		ERR_clear_error();
		errno = 0;
		result = SSL_read(wire->ssl, to + got, (int)(WIRE_READ_SIZE - got));
		if (result > 0) {
			got += (size_t)result;
			continue;
		}
		/* Return what has been read. The error will occur again. */
		if (got)
			break;
		result = tls_result(wire, result);
		return result > 0 ? -EAGAIN : result;
	}
	return (ssize_t)got;
}

static ssize_t tls_write(struct wire *wire, struct evbuffer *out)
{
	size_t length = evbuffer_get_contiguous_space(out);
	int result;

	/* TLS copies anyway: send a chunk at a time. */
	if (length > TLS_CHUNK)
		length = TLS_CHUNK;
	ERR_clear_error();
	errno = 0;
	result = SSL_write(wire->ssl, evbuffer_pullup(out, (ssize_t)length), (int)length);
	if (result > 0) {
		evbuffer_drain(out, (size_t)result);
		return result;
	}
	result = tls_result(wire, result);
	return result > 0 ? -EAGAIN : result < 0 ? result : -EPIPE;
}

/* ---- either */

ssize_t wire_read(struct wire *wire, uint8_t *to)
{
	if (wire->ssl)
		return tls_read(wire, to);
	return wire->local ? local_read(wire, to) : tcp_read(wire, to);
}

int wire_has_more(const struct wire *wire)
{
	return wire->ssl && SSL_pending(wire->ssl) > 0;
}

ssize_t wire_write(struct wire *wire, struct evbuffer *out)
{
	ssize_t sent, total = 0;

	while (evbuffer_get_length(out)) {
		if (wire->ssl) {
			sent = tls_write(wire, out);
		} else {
			sent = local_write(wire, out);
			if (sent < 0)
				sent = errno == EINTR ? -EAGAIN : -errno;
		}
		if (sent <= 0)
			return total ? total : sent;
		total += sent;
	}
	return total;
}

void wire_shutdown(struct wire *wire)
{
	if (wire->ssl)
		SSL_shutdown(wire->ssl);
	ERR_clear_error();
	shutdown(wire->fd, SHUT_WR);
}
