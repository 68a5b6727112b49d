/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames over a non-blocking socket, for the client's thread: packed messages to be sent, and
 * received bytes up to the next complete message. No thread, no lock: the caller serialises the
 * calls.
 */
#ifndef FERRULE_CONTROL_SOCKET_H
#define FERRULE_CONTROL_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/list.h"
#include "lib/control/control.pb-c.h"

/* A packed message to be sent. */
struct outgoing {
	struct list node;
	int fd; /* descriptor to be sent with it, or -1; a duplicate of the caller's */
	size_t size;
	size_t sent;
	uint8_t bytes[];
};

/*
 * Packs a message and duplicates the descriptor. Returns NULL without memory, or without a free
 * descriptor.
 */
struct outgoing *outgoing_new(const Ctl__Envelope *envelope, int fd);
void outgoing_free(struct outgoing *out);
/* Frees all messages of a list. Returns their number of bytes. */
size_t outgoing_drop(struct list *queue);

enum { CONTROL_PASSED = 16 };

struct control_socket {
	int fd; /* -1: none */
	/* Received descriptors of messages that have not been returned yet, oldest first. */
	int passed[CONTROL_PASSED];
	unsigned n_passed;
	uint8_t *in;
	size_t in_used;
	size_t in_room;
	size_t in_done; /* bytes of in_used that have been returned */
};

void control_socket_init(struct control_socket *s);
void control_socket_close(struct control_socket *s);

/*
 * Sends from the start of a queue, frees the sent messages and adds their bytes to *ret_bytes.
 * Returns 0 if the queue is empty, -EAGAIN if the socket is full; after any other negative errno
 * the connection is unusable.
 */
int control_socket_send(struct control_socket *s, struct list *queue, size_t *ret_bytes);

/*
 * Reads once. Returns -EAGAIN if there is no input, -EMFILE if there is no room for a received
 * descriptor, -ENOMEM, or -ECONNRESET if the peer has closed; after other errnos the connection is
 * unusable too.
 */
int control_socket_receive(struct control_socket *s);

/*
 * Returns the next received message; the caller owns it. Returns NULL if it is not complete, or
 * with a reason in *ret_why if it is invalid.
 */
Ctl__Envelope *control_socket_next(struct control_socket *s, const char **ret_why);

/* Returns the descriptor of a returned message that has one, or -1. The caller owns it. */
int control_socket_take_fd(struct control_socket *s);

#endif
