/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes through one socket that does not block: a Unix socket, plain TCP or TLS. A Unix socket may
 * bring descriptors too, one with a message. One thread.
 */
#ifndef FERRULE_DAEMON_WIRE_H
#define FERRULE_DAEMON_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <event2/buffer.h>
#include <openssl/ssl.h>

#include "lib/base/list.h"

enum {
	WIRE_READ_SIZE = 65536, /* at most that much is read at once */
	WIRE_WHY = 240,
};

/* A descriptor on its way out, with the bytes behind the next `at` ones. */
struct wire_given {
	struct list node;
	int fd;
	size_t at;
};

struct wire {
	int fd;
	SSL *ssl;           /* or NULL */
	bool local;         /* a Unix socket */
	int passed;         /* a memfd that waits for its message, or -1 */
	struct list given;  /* struct wire_given, in the order of the bytes */
	char why[WIRE_WHY]; /* of what failed last, where that is not errno's text */
};

/* `local`: `fd` is a Unix socket. */
void wire_init(struct wire *wire, int fd, SSL *ssl, bool local);

/* Closes all. Never waits for what the other end has queued in the socket. */
void wire_close(struct wire *wire);

/* Goes on with the TLS handshake. 0: done; EV_READ or EV_WRITE: to be called again when that is
 * possible; -EPROTO with `why`. */
int wire_handshake(struct wire *wire);

/* At most WIRE_READ_SIZE bytes. 0: the end; -EAGAIN; -EPROTO with `why` when it is TLS that failed,
 * or descriptors came that nobody asked for; another negative errno. */
ssize_t wire_read(struct wire *wire, uint8_t *to);

/* Are there bytes that no event on the socket tells of? */
int wire_has_more(const struct wire *wire);

/* Takes as much out of the buffer as leaves at once: how much, or as wire_read(). */
ssize_t wire_write(struct wire *wire, struct evbuffer *out);

/* Sends a descriptor over a Unix socket, with the byte that follows the `at` ones that wait to be
 * written. The wire takes it over. False: no memory; the descriptor is closed. */
bool wire_give_fd(struct wire *wire, int fd, size_t at);
/* Closes all descriptors that wait to be written: their bytes were thrown away. */
void wire_drop_given(struct wire *wire);

/* Says that nothing more will be sent. */
void wire_shutdown(struct wire *wire);

/* The memfd that waits, the caller's then, or -1. */
int wire_take_fd(struct wire *wire);

#endif
