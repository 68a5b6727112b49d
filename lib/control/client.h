/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's connection to the control daemon: one socket and one thread a process, started when
 * they are first needed. The thread finds the daemon (FRL_CONTROL, the system's daemon, or the
 * user's own one). It starts a private daemon if a handler requires one and none runs. It exchanges
 * Hello messages, and reconnects after the daemon was lost. Parts of the library register handlers,
 * which receive the messages.
 *
 * 	FRL_CONTROL=auto  /run/ferrule/ferruled.sock, else $XDG_RUNTIME_DIR/ferrule/ferruled.sock,
 * 	                  else /tmp/ferrule-UID/ferruled.sock. On demand a daemon is started at the
 * 	                  first of the last two that is possible, but never in place of a system's
 * 	                  daemon that was lost.
 * 	FRL_CONTROL=off   no daemon
 * 	FRL_CONTROL=PATH  only the daemon at this socket; it is never started
 *
 * The thread calls the handlers, one at a time, without any lock of the client. A handler may
 * therefore post while it holds a lock of its own: then "it is in my table" and "it is posted" are
 * one step for up(). Any thread may call the functions. After fork() the child has a new client,
 * without handlers.
 */
#ifndef FERRULE_CONTROL_CLIENT_H
#define FERRULE_CONTROL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/list.h"
#include "lib/control/control.pb-c.h"

enum control_want {
	CONTROL_IF_THERE, /* -ENOTCONN at once if no daemon runs */
	CONTROL_START,    /* the thread starts a daemon if none runs */
};

struct control_handler {
	/*
	 * A message of the daemon that does not answer a control_call(). A Failure with a seq of
	 * control_next_seq() arrives here too. Returns true if the message was for this handler.
	 */
	bool (*message)(struct control_handler *handler, const Ctl__Envelope *envelope);
	/*
	 * A daemon is connected. `again`: an earlier daemon was lost, so post the full state.
	 * Messages that were not sent before the loss, and those posted since, are lost. Called for
	 * each handler in the order of registration. Messages posted until all handlers have been
	 * called are sent before all earlier messages, and control_call() waits until then.
	 *
	 * A handler that registers while a daemon is connected is called too, with `again` false.
	 * Its messages are sent after those that were posted earlier.
	 */
	void (*up)(struct control_handler *handler, bool again);
	/*
	 * The daemon was lost, or none can be reached. `error` is 0 while the thread tries to
	 * connect again; negative, with the reason in `why`, if that has little chance. May be
	 * NULL.
	 */
	void (*down)(struct control_handler *handler, int error, const char *why);
	/*
	 * A timer. Called at once, and then at the time that the last call returned
	 * (CLOCK_MONOTONIC, ns); UINT64_MAX: never. control_wake() makes it due. May be NULL.
	 */
	uint64_t (*tick)(struct control_handler *handler, uint64_t now_ns);
	/* Private fields of the client. */
	struct list node;
	enum control_want want;
	bool registered;
	unsigned due; /* pending calls of up() and down() */
	uint64_t tick_ns;
	uint64_t offered; /* number of the last message that was offered to this handler */
};

/*
 * Registers a handler, and starts the thread if there is none. With CONTROL_START it does not wait:
 * posted messages are kept until a daemon is connected, and down() reports if none can be reached.
 * For a handler that is registered already, CONTROL_START raises its request to that, and tries
 * again if no daemon could be reached. Returns -ENOTCONN (no daemon, or FRL_CONTROL=off), -EINVAL
 * (FRL_CONTROL is not the path of a socket), -ENOMEM or -EAGAIN.
 */
int control_register(struct control_handler *handler, enum control_want want);

/*
 * Unregisters a handler. After the return none of its functions runs or will run. Do not call this
 * from a handler, or with a lock held that the handler takes. Does nothing for a handler that is
 * not registered. After the last handler the thread sends the posted messages and ends.
 */
void control_unregister(struct control_handler *handler);

/*
 * Sends a message, or queues it if the socket is full; exit() waits for the queue as long as the
 * daemon reads. `fd` is duplicated and sent with the message; -1: none. Returns 0 also if the
 * daemon is lost at that moment: see up(). Returns -ENOTCONN if no daemon can be reached, and
 * -ENOMEM without memory or if the queue is full because the daemon does not read.
 */
int control_post(const Ctl__Envelope *envelope, int fd);

/* Returns the number of posted bytes that have not been sent. */
size_t control_queued(void);

/* Returns a seq for a request that is posted; its answer is passed to message(). */
uint64_t control_next_seq(void);

/*
 * Fills in seq, sends a request and waits for the answer until `limit_ns` of CLOCK_MONOTONIC; also
 * waits until a daemon is connected. Free *ret_answer by ctl__envelope__free_unpacked(). If the
 * answer is a Failure, returns its errno, negative, and sets frl_last_error() to its text. Returns
 * -ETIMEDOUT, -ENOTCONN (with the reason why there is no daemon) or -ENOMEM. A handler must be
 * registered. Do not call this from a handler.
 */
int control_call(Ctl__Envelope *request, uint64_t limit_ns, Ctl__Envelope **ret_answer);
/*
 * As control_call(). *ret_fd is the descriptor of the answer, or -1; the caller closes it. After a
 * Failure the same request may succeed after *ret_retry_ms; 0: unknown.
 */
int control_call_fd(Ctl__Envelope *request, uint64_t limit_ns, Ctl__Envelope **ret_answer,
	int *ret_fd, uint32_t *ret_retry_ms);

/* Makes the timers of all handlers due. */
void control_wake(void);

/* Returns whether a daemon is connected now. */
bool control_is_up(void);

/* Copies the socket's path of the current or the last daemon. Returns false if there was none. */
bool control_place(char *path, size_t size);

#endif
