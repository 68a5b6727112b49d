/* SPDX-License-Identifier: BSD-3-Clause */
/* The client as its functions (client.c) and its thread (client_thread.c) share it. */
#ifndef FERRULE_CONTROL_CLIENT_INTERNAL_H
#define FERRULE_CONTROL_CLIENT_INTERNAL_H

#include <pthread.h>

#include "lib/control/client.h"
#include "lib/control/socket.h"
#include "lib/control/spawn.h"

enum {
	WHY_SIZE = 400,
	QUEUE_MAX_BYTES = 64 << 20, /* posted and not taken by the daemon */
	DUE_UP = 1 << 0,
	DUE_DOWN = 1 << 1,
};

enum client_state {
	CLIENT_DOWN,     /* no socket; the next try is at `retry_ns` */
	CLIENT_GREETING, /* connected; the daemon's Hello has not come */
	CLIENT_UP,
};

/* Somebody who waits for an answer, in control_call(). */
struct call {
	struct list node;
	uint64_t seq;
	bool done;
	int rc;
	int fd; /* that came with the answer, or -1 */
	Ctl__Envelope *answer;
};

struct client {
	pthread_mutex_t mutex; /* protects all but the socket's input */
	/* State, `calling`, calls, the end of the thread, and that all has been sent. */
	pthread_cond_t changed;
	bool ready; /* mutex and the like are made */
	bool has_thread;
	bool ends; /* the thread is to end: it has no handlers left */
	pthread_t thread;
	int wake_fd; /* -1: none */
	bool woken;

	struct list handlers;
	const struct control_handler *calling;
	bool in_up;
	/* From a daemon's Hello until all handlers have been told: what is posted meanwhile, by
	 * whomever, goes before what was posted earlier, in the order of posting. */
	bool telling;
	uint64_t messages;
	struct list calls;
	uint64_t next_seq;

	/* struct outgoing: on their way; to be sent first; the rest. */
	struct list sending, first, queue;
	size_t queued; /* bytes in all of them */

	enum client_state state;
	bool again; /* the next daemon is to be told everything */
	int error;  /* why there is none, and trying is of little use; 0: it may come */
	char why[WHY_SIZE];
	struct control_socket socket;
	struct daemon_places places;
	int place;         /* where the daemon is, or was last; -1: nowhere yet */
	uint64_t instance; /* names the process */
	uint64_t retry_ns; /* CLIENT_DOWN */
	uint64_t greet_by_ns;
	uint64_t lost_ns;     /* when it was lost */
	unsigned refusals;    /* in a row: connections that ended before the daemon's Hello */
	int start_fd, alive;  /* of daemon_start(), or -1 */
	uint64_t start_by_ns; /* 0: none is being started */
	uint64_t end_by_ns;
};

/* The thread; started with the mutex held and `client` set up. */
void *client_main(void *client);

/* Mutex held. The first handler for which that is due, or NULL. */
struct control_handler *client_first_due(const struct client *c, unsigned bit);

/* Mutex held. A socket that is connected: Hello is the first thing that is sent. */
void client_greet(struct client *c, int fd, int place);

/* Mutex held. */
void client_wake(struct client *c);

/* Mutex held. Sends of what was posted as much as the socket takes, without waiting. -EAGAIN: it
 * takes no more now. Another error: the thread finds it, too, and loses the daemon. */
int client_send(struct client *c);

/* client_connect.c, all with the mutex held; client_keep() may release it meanwhile. */

/* Looks for a daemon when it is time, or gives one up that says nothing. */
void client_keep(struct client *c, uint64_t now_ns);
/* The first message. */
void client_take_hello(struct client *c, const Ctl__Envelope *envelope, uint64_t now_ns);
/* The socket is of no more use. */
void client_lose(struct client *c, const char *why, uint64_t now_ns);
void client_drop_queues(struct client *c);
/* Others may start a daemon again. */
void client_end_start(struct client *c);

/* Connects to the first daemon that is there: 0 and up with *ret_place. `only`: -1, or the one
 * place to look at. */
int client_search(
	const struct daemon_places *places, int only, int *ret_place, char *why, size_t size);

#endif
