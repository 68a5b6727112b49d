/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's connection to the control daemon: one socket and one thread a process, started when
 * first wanted. The thread finds the daemon (FRL_CONTROL, the system's, the user's own), starts a
 * private one if it is asked to and none runs, says Hello, and connects again when the daemon goes
 * away. Parts of the library register handlers, to be told what arrives.
 *
 *	FRL_CONTROL=auto  /run/ferrule/ferruled.sock, else $XDG_RUNTIME_DIR/ferrule/ferruled.sock,
 *	                  else /tmp/ferrule-UID/ferruled.sock: the first of the latter two that can
 *	                  be is started on demand, but not in place of the system's that went away
 *	FRL_CONTROL=off   no daemon
 *	FRL_CONTROL=PATH  only that one, never started
 *
 * Handlers are called by the thread, one at a time, without any lock of the client's held. So a
 * handler may post while it holds a lock of its own, which makes "it is in my table" and "it is
 * posted" one step for up(). Any thread may call the functions. After fork() the child has a new
 * client, without handlers.
 */
#ifndef FERRULE_CONTROL_CLIENT_H
#define FERRULE_CONTROL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/list.h"
#include "lib/control/control.pb-c.h"

enum control_want {
	CONTROL_IF_THERE, /* -ENOTCONN at once when no daemon is there */
	CONTROL_START,    /* started if need be; the thread does that */
};

struct control_handler {
	/* A message of the daemon's that answers no control_call(); `true`: it was for this one.
	 * Failures, too, whose seq is one of control_next_seq(). */
	bool (*message)(struct control_handler *handler, const Ctl__Envelope *envelope);
	/*
	 * There is a daemon. `again`: after another one was lost, so tell it everything: what was
	 * posted and had not left then, or has been posted since, is gone. Called for each handler
	 * in the order of registering; what is posted until all have been called is sent before
	 * all that was posted earlier, and control_call() waits until then. A handler that
	 * registers while there is a daemon is called as well, without `again`: what it posts
	 * comes after what others have posted.
	 */
	void (*up)(struct control_handler *handler, bool again);
	/* It is gone, or there will be none. The thread tries to connect again; `error` (negative),
	 * `why` when that is hopeless at first sight: 0 while it goes on. May be NULL. */
	void (*down)(struct control_handler *handler, int error, const char *why);
	/* Called when the time it gave last has come, and at first; returns when it wants the next
	 * call, or UINT64_MAX. CLOCK_MONOTONIC, ns. May be NULL. control_wake() makes it be called
	 * soon. */
	uint64_t (*tick)(struct control_handler *handler, uint64_t now_ns);
	/* The client's. */
	struct list node;
	enum control_want want;
	bool registered;
	unsigned due; /* calls of up() and down() */
	uint64_t tick_ns;
	uint64_t offered; /* the last message that it was offered */
};

/*
 * Registers a handler, and starts the thread if there is none. -ENOTCONN (none is there, or
 * FRL_CONTROL=off), -ENOMEM, -EAGAIN. With CONTROL_START does not wait: what is posted is kept
 * until there is a daemon, and down() says if there will be none. To register a handler again that
 * is registered says that it wants more: CONTROL_START. If no daemon could be had before, that is
 * tried again. -EINVAL: FRL_CONTROL is no path of a socket.
 */
int control_register(struct control_handler *handler, enum control_want want);

/* None of the handler's functions runs, or will run, when this returns. Not from a handler, nor
 * with a lock held that it takes; nothing happens if it is not registered. When the last one has
 * gone the thread ends, having sent what was posted. */
void control_unregister(struct control_handler *handler);

/* Sends a message, or queues it if the socket is full; exit() waits for the queue as long as the
 * daemon reads. `fd` goes with it and is duplicated, or -1. 0 also when the daemon is lost at that
 * moment: see up(). -ENOTCONN: there is none, and will be none. -ENOMEM: no memory, or so much is
 * queued that the daemon does not seem to read. */
int control_post(const Ctl__Envelope *envelope, int fd);

/* Bytes that were posted and have not left. */
size_t control_queued(void);

/* A number for a request that is posted: the answer comes to message(). */
uint64_t control_next_seq(void);

/*
 * Sends a request and waits for its answer, until `limit_ns` of the monotonic clock; also until
 * there is a daemon. Fills in seq. 0 with *ret_answer, to be freed by
 * ctl__envelope__free_unpacked(); a Failure becomes its errno, negative, and frl_last_error() its
 * text. -ETIMEDOUT, -ENOTCONN (with the reason why there is no daemon), -ENOMEM. Not from a
 * handler; a handler must be registered.
 */
int control_call(Ctl__Envelope *request, uint64_t limit_ns, Ctl__Envelope **ret_answer);
/* The same; *ret_fd is the descriptor that came with the answer, the caller's, or -1. After a
 * Failure the request may succeed after *ret_retry_ms; 0: nobody can tell. */
int control_call_fd(Ctl__Envelope *request, uint64_t limit_ns, Ctl__Envelope **ret_answer,
	int *ret_fd, uint32_t *ret_retry_ms);

/* Ticks are due. */
void control_wake(void);

/* Whether there is a daemon at this moment. */
bool control_is_up(void);

/* The socket of the daemon to which this process is, or was last, connected. False: of none. */
bool control_place(char *path, size_t size);

#endif
