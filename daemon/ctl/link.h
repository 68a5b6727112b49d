/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrulectl's connection to the daemon: found where the library finds it (lib/control/spawn.h),
 * but never started. Requests are sent and waited for, one at a time.
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
	char error[LINK_TEXT]; /* what went wrong: a sentence and what to do */
};

/* Connects and says Hello. `path` NULL: searches. 0, or a negative errno with link->error:
 * -ENOTCONN (no daemon), -EACCES, -EPROTO, -ETIMEDOUT. Call link_close() in any case. */
int link_open(struct link *link, const char *path);
void link_close(struct link *link);

/* What was answered: the rows of all parts of a report as one. */
struct answer {
	Ctl__Envelope **parts;
	size_t n_parts;
	Ctl__Report report; /* refers to the parts */
};

/*
 * Sends a request and waits for its answer: Done or Report; `answer` may be NULL, else
 * answer_free() is to be called for it. A Failure becomes its errno, negative, with its text in
 * link->error. -ETIMEDOUT, -ENOTCONN, -EPROTO, -ENOMEM.
 */
int link_ask(struct link *link, Ctl__Envelope *request, struct answer *answer);
void answer_free(struct answer *answer);

#endif
