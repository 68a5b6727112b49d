/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes and descriptors through one socket that does not block, plain or TLS. One thread. */
#ifndef FERRULE_DAEMON_WIRE_H
#define FERRULE_DAEMON_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <event2/buffer.h>
#include <openssl/ssl.h>

enum {
	WIRE_READ_SIZE = 65536, /* at most that much is read at once */
	WIRE_FDS = 4,           /* descriptors that wait for their messages; more are closed */
	WIRE_WHY = 240,
};

struct wire {
	int fd;
	SSL *ssl; /* or NULL */
	int fds[WIRE_FDS];
	unsigned n_fds;
	char why[WIRE_WHY]; /* of what failed last, where that is not errno's text */
};

void wire_init(struct wire *wire, int fd, SSL *ssl);

/* Closes all. */
void wire_close(struct wire *wire);

/* Goes on with the TLS handshake. 0: done; EV_READ or EV_WRITE: to be called again when that is
 * possible; -EPROTO with `why`. */
int wire_handshake(struct wire *wire);

/* At most WIRE_READ_SIZE bytes. 0: the end; -EAGAIN; -EPROTO with `why` when it is TLS that failed;
 * another negative errno. Descriptors that come along are kept in `fds`. */
ssize_t wire_read(struct wire *wire, uint8_t *to);

/* Are there bytes that no event on the socket tells of? */
int wire_has_more(const struct wire *wire);

/* Takes as much out of the buffer as leaves at once: how much, or as wire_read(). */
ssize_t wire_write(struct wire *wire, struct evbuffer *out);

/* Says that nothing more will be sent. */
void wire_shutdown(struct wire *wire);

/* The first descriptor that waits, the caller's then, or -1. */
int wire_take_fd(struct wire *wire);

/* Closes those that no message wanted. */
void wire_drop_fds(struct wire *wire);

#endif
