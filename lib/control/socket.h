/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames over a non-blocking socket, as the client's thread reads and writes them: messages that
 * wait to be sent, packed, and what has arrived of the next one. No thread, no lock: the caller
 * sees to that.
 */
#ifndef FERRULE_CONTROL_SOCKET_H
#define FERRULE_CONTROL_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/list.h"
#include "lib/control/control.pb-c.h"

/* A message on its way. */
struct outgoing {
	struct list node;
	int fd; /* that goes with it, or -1; its own */
	size_t size;
	size_t sent;
	uint8_t bytes[];
};

/* Packs it and duplicates the descriptor. NULL: no memory, or no descriptor left. */
struct outgoing *outgoing_new(const Ctl__Envelope *envelope, int fd);
void outgoing_free(struct outgoing *out);
/* Frees all that are in a list; returns how many bytes they had. */
size_t outgoing_drop(struct list *queue);

enum { CONTROL_PASSED = 16 };

struct control_socket {
	int fd; /* -1: none */
	/* Descriptors that came and whose messages have not been taken out yet, oldest first. */
	int passed[CONTROL_PASSED];
	unsigned n_passed;
	uint8_t *in;
	size_t in_used;
	size_t in_room;
	size_t in_done; /* of in_used: taken out already */
};

void control_socket_init(struct control_socket *s);
void control_socket_close(struct control_socket *s);

/* Sends from the start of a queue and frees what has left, counting its bytes in *ret_bytes. 0: all
 * of it has; -EAGAIN: when the socket takes more; another negative errno: the end. */
int control_socket_send(struct control_socket *s, struct list *queue, size_t *ret_bytes);

/* Reads once. -EAGAIN: nothing there; -ECONNRESET: the end, as other errnos; -ENOMEM; -EMFILE:
 * there is no room for a descriptor that came. */
int control_socket_receive(struct control_socket *s);

/* The next message of what was read, the caller's; NULL: it is not all there, or *ret_why says what
 * is wrong with it. */
Ctl__Envelope *control_socket_next(struct control_socket *s, const char **ret_why);

/* The descriptor of a message that was taken out and says that it has one; the caller's, or -1. */
int control_socket_take_fd(struct control_socket *s);

#endif
