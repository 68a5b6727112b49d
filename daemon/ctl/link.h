/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrulectl's connection to the daemon. The daemon is searched for like in the library
 * (lib/control/spawn.h), but never started. One request is sent and awaited at a time.
 */
#ifndef FERRULE_DAEMON_CTL_LINK_H
#define FERRULE_DAEMON_CTL_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "lib/control/frame.h"
#include "lib/control/socket.h"

enum {
	LINK_PATH = 108,
	LINK_TEXT = 2048,
	LINK_TIMEOUT_MS = 5000, /* for each answer */
};

struct link {
	struct control_socket socket;
	uint64_t seq;
	char path[LINK_PATH];
	char error[LINK_TEXT]; /* the last error: a sentence, and what to do */
};

/* Connects and sends Hello. `path` NULL: searches for the daemon. Returns 0, or a negative errno
 * with link->error: -ENOTCONN (no daemon), -EACCES, -EPROTO, -ETIMEDOUT. Call link_close() in any
 * case. */
int link_open(struct link *link, const char *path);
void link_close(struct link *link);

/* An answer: the rows of all parts of a report are combined. */
struct answer {
	Ctl__Envelope **parts;
	size_t n_parts;
	Ctl__Report report; /* refers to the parts */
};

/*
 * Sends a request and waits for its answer, Done or Report. `answer` may be NULL; otherwise call
 * answer_free() in any case. A Failure is returned as its negative errno, with its text in
 * link->error. Also fails with -ETIMEDOUT, -ENOTCONN, -EPROTO and -ENOMEM.
 */
int link_ask(struct link *link, Ctl__Envelope *request, struct answer *answer);
void answer_free(struct answer *answer);

#endif
