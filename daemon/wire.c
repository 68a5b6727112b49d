/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/wire.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <openssl/err.h>

#include "daemon/tls.h"

enum {
	MAX_RIGHTS = 253, /* SCM_MAX_FD: what one sendmsg() can carry */
	TLS_CHUNK = 16384,
};

void wire_init(struct wire *wire, int fd, SSL *ssl)
{
	*wire = (struct wire){ .fd = fd, .ssl = ssl };
}

void wire_close(struct wire *wire)
{
	wire_drop_fds(wire);
	SSL_free(wire->ssl);
	wire->ssl = NULL;
	if (wire->fd >= 0)
		close(wire->fd);
	wire->fd = -1;
}

int wire_take_fd(struct wire *wire)
{
	int fd;

	if (wire->n_fds == 0)
		return -1;
	fd = wire->fds[0];
	memmove(wire->fds, wire->fds + 1, --wire->n_fds * sizeof(int));
	return fd;
}

void wire_drop_fds(struct wire *wire)
{
	while (wire->n_fds)
		close(wire->fds[--wire->n_fds]);
}

/* ---- plain */

/* One descriptor comes with a message: the rest of them is closed. */
static void keep_rights(struct wire *wire, const struct cmsghdr *cmsg)
{
	size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (size_t i = 0; i < count; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(fd));
		if (i == 0 && wire->n_fds < WIRE_FDS)
			wire->fds[wire->n_fds++] = fd;
		else
			close(fd);
	}
}

static ssize_t plain_read(struct wire *wire, uint8_t *to)
{
	/* Room for as many as there can be: what does not fit would be lost to us, but it is the
	 * kernel that closes it. */
	union {
		struct cmsghdr align;
		uint8_t bytes[CMSG_SPACE(MAX_RIGHTS * sizeof(int))];
	} control;
	struct iovec iov = { to, WIRE_READ_SIZE };
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t got = recvmsg(wire->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (got < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message); cmsg;
		cmsg = CMSG_NXTHDR(&message, cmsg))
		if (cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS)
			keep_rights(wire, cmsg);
	return got;
}

/* ---- TLS */

/* What an SSL function's result means: EV_READ, EV_WRITE, 0 for the end of the stream, or a
 * negative errno, -EPROTO with `why`. */
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
	/* A daemon that is killed says no more than its kernel does. */
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
		/* What has come is used first; the reason why no more does comes again. */
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

	/* TLS records are copies anyway: a chunk at a time. */
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
	return wire->ssl ? tls_read(wire, to) : plain_read(wire, to);
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
			sent = evbuffer_write(out, wire->fd);
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
