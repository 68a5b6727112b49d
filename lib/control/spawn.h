/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the control daemon of this process may be, and how a private one is started. Reads
 * settings, looks at folders, connects sockets; keeps nothing. Any thread.
 */
#ifndef FERRULE_CONTROL_SPAWN_H
#define FERRULE_CONTROL_SPAWN_H

#include <stdbool.h>
#include <stddef.h>

#define DAEMON_CONFIG "/etc/ferrule/ferruled.conf" /* of the system's */

enum {
	DAEMON_PATH = 108, /* of a Unix socket, with its end */
	DAEMON_PLACES = 3,
	/* Instead of a place to start it at. */
	DAEMON_NO_START = -1,
	DAEMON_BAD_PATH = -2, /* and FRL_CONTROL is no path */
};

struct daemon_place {
	char path[DAEMON_PATH];
	/* The user's own: its folder must be the user's, and nobody else's daemon is believed. */
	bool is_private;
};

struct daemon_places {
	struct daemon_place list[DAEMON_PLACES];
	unsigned n; /* 0: FRL_CONTROL=off, or a bad path */
	int start;  /* which of them is started on demand, or one of the above */
};

/* In the order of search. */
void daemon_find_places(struct daemon_places *ret_places);

/*
 * Returns true if this machine has a daemon of the system, running or not: its configuration file
 * or the folder of its socket is there. Processes may still start a private one for what concerns
 * this host alone (decision 66).
 */
bool daemon_is_configured(void);

/*
 * A connected socket, non-blocking and closed on exec. -ENOENT, -ECONNREFUSED: no daemon there;
 * -EAGAIN: there is one, which is busy; -EPERM: folder or daemon are somebody else's. A sentence in
 * `why`.
 */
int daemon_connect(const struct daemon_place *place, char *why, size_t size);

/*
 * Starts `ferruled --private --socket PATH` in the background, makes its folder if need be. It is
 * nobody's child and has none of this process's descriptors. Returns a descriptor that keeps other
 * processes from starting one: to be closed when the daemon can be reached; and *ret_alive for
 * daemon_has_ended(), or -1. -EALREADY: somebody else is starting it. Another negative errno with a
 * sentence in `why`.
 */
int daemon_start(const struct daemon_place *place, int *ret_alive, char *why, size_t size);

/* Whether the daemon that was started has ended; -1: that is not known, so no. */
bool daemon_has_ended(int alive);

#endif
