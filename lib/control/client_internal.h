/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internal declarations of client.c (the public functions), client_thread.c (the thread) and
 * client_connect.c (connecting and loss).
 */
#ifndef FERRULE_CONTROL_CLIENT_INTERNAL_H
#define FERRULE_CONTROL_CLIENT_INTERNAL_H

#include <pthread.h>

#include "lib/control/client.h"
#include "lib/control/socket.h"
#include "lib/control/spawn.h"

enum {
	WHY_SIZE = 400,
	QUEUE_MAX_BYTES = 64 << 20, /* of posted messages that the daemon has not read */
	DUE_UP = 1 << 0,
	DUE_DOWN = 1 << 1,
};

enum client_state {
	CLIENT_DOWN,     /* no socket; next attempt at `retry_ns` */
	CLIENT_GREETING, /* connected; the daemon's Hello has not arrived */
	CLIENT_UP,
};

/* A control_call() that waits for its answer. */
struct call {
	struct list node;
	uint64_t seq;
	bool done;
	int rc;
	int fd; /* the descriptor of the answer, or -1 */
	Ctl__Envelope *answer;
};

struct client {
	pthread_mutex_t mutex; /* protects all fields but the socket's input */
	/*
	 * Signalled on changes of the state, `calling` and the calls, when the thread ends, and
	 * when all messages are sent.
	 */
	pthread_cond_t changed;
	bool has_thread;
	bool is_ending; /* the thread must end: no handlers are registered */
	pthread_t thread;
	int wake_fd; /* -1: none */
	bool woken;

	struct list handlers;
	const struct control_handler *calling;
	bool in_up;
	/*
	 * From a daemon's Hello until up() of all handlers has returned: messages posted meanwhile,
	 * by any thread, are sent before those posted earlier, in the order of posting.
	 */
	bool is_syncing;
	uint64_t messages;
	struct list calls;
	uint64_t next_seq;

	/* Lists of struct outgoing: being sent; to be sent first; all others. */
	struct list sending, first, queue;
	size_t queued; /* bytes in all three lists */

	enum client_state state;
	bool again; /* an earlier daemon was lost: the next one needs the full state */
	int error;  /* why a daemon is unlikely to be reached; 0: still trying */
	char why[WHY_SIZE];
	struct control_socket socket;
	struct daemon_places places;
	int place;         /* index of the current or the last daemon; -1: none yet */
	uint64_t instance; /* random id of this process */
	uint64_t retry_ns; /* in CLIENT_DOWN: time of the next attempt */
	uint64_t greet_by_ns;
	uint64_t lost_ns;     /* time of the last loss */
	unsigned refusals;    /* connections in a row that ended before the daemon's Hello */
	int start_fd, alive;  /* results of daemon_start(), or -1 */
	uint64_t start_by_ns; /* deadline of the daemon that is being started; 0: none */
	uint64_t end_by_ns;
};

/* The thread's function. Start it with the mutex held; `client` must be set up. */
void *client_main(void *client);

/* Returns the first handler with this bit in `due`, or NULL. With the mutex held. */
struct control_handler *client_first_due(const struct client *c, unsigned bit);

/* Takes a connected socket, and queues the Hello as its first message. With the mutex held. */
void client_greet(struct client *c, int fd, int place);

/* Wakes the thread. With the mutex held. */
void client_wake(struct client *c);

/*
 * Sends as many posted messages as the socket accepts, without waiting. Returns -EAGAIN if the
 * socket is full. After any other error the thread gets the same error and handles the loss. With
 * the mutex held.
 */
int client_send(struct client *c);

/* client_connect.c: all with the mutex held. client_check_time() may release it meanwhile. */

/*
 * Looks for a daemon when that is due, and disconnects from one that has not sent its Hello in
 * time.
 */
void client_check_time(struct client *c, uint64_t now_ns);
/* Handles the first message of a daemon. */
void client_handle_hello(struct client *c, const Ctl__Envelope *envelope, uint64_t now_ns);
/* Closes the socket and handles the loss of the daemon. */
void client_disconnect(struct client *c, const char *why, uint64_t now_ns);
void client_drop_queues(struct client *c);
/* Lets other processes start a daemon again. */
void client_end_start(struct client *c);

/*
 * Connects to the first daemon found. Returns a socket, 0 or more, with *ret_place; or a negative
 * errno. `only` is the index of the only place to look at; -1: all.
 */
int client_search(
	const struct daemon_places *places, int only, int *ret_place, char *why, size_t size);

#endif
