/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Byte transport over one non-blocking socket: a Unix socket, plain TCP, or TLS. A Unix socket can
 * also carry descriptors, one with each message. One thread.
 */
#ifndef FERRULE_DAEMON_SERVER_WIRE_H
#define FERRULE_DAEMON_SERVER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <event2/buffer.h>
#include <openssl/ssl.h>

#include "lib/base/list.h"

enum {
	WIRE_READ_SIZE = 65536, /* the most that is read at once */
	WIRE_WHY = 240,
};

/* A descriptor in the output, behind the next `at` bytes. */
struct wire_given {
	struct list node;
	int fd;
	size_t at;
};

struct wire {
	int fd;
	SSL *ssl;           /* or NULL */
	bool local;         /* a Unix socket */
	int passed;         /* a memfd whose message has not come yet, or -1 */
	struct list given;  /* struct wire_given, in the order of the bytes */
	char why[WIRE_WHY]; /* the last error, if it has no errno */
};

/* `local`: `fd` is a Unix socket. */
void wire_init(struct wire *wire, int fd, SSL *ssl, bool local);

/* Closes everything. Never waits for descriptors that the other end has queued. */
void wire_close(struct wire *wire);

/* Continues the TLS handshake. Returns 0 if it is done, EV_READ or EV_WRITE to be called again when
 * that is possible, or -EPROTO with `why`. */
int wire_handshake(struct wire *wire);

/* Reads at most WIRE_READ_SIZE bytes. Returns 0 at the end, -EAGAIN, -EPROTO with `why` for a TLS
 * error or unexpected descriptors, or another negative errno. */
ssize_t wire_read(struct wire *wire, uint8_t *to);

/* Returns true if there are bytes that no socket event will report. */
int wire_has_more(const struct wire *wire);

/* Sends as much of the buffer as possible. Returns the number of bytes, or an error as
 * wire_read(). */
ssize_t wire_write(struct wire *wire, struct evbuffer *out);

/* Passes a descriptor over a Unix socket, with the byte behind the next `at` bytes of output. The
 * wire owns it. Returns false without memory, after closing it. */
bool wire_give_fd(struct wire *wire, int fd, size_t at);
/* Closes all descriptors that are queued: their bytes were discarded. */
void wire_drop_given(struct wire *wire);

/* Ends the output. */
void wire_shutdown(struct wire *wire);

/* Returns the memfd that has arrived, for the caller to close, or -1. */
int wire_take_fd(struct wire *wire);

#endif
