/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the control daemon of this process, and starts a private one. Reads settings, checks
 * folders and connects sockets; keeps no state. Any thread.
 */
#ifndef FERRULE_CONTROL_SPAWN_H
#define FERRULE_CONTROL_SPAWN_H

#include <stdbool.h>
#include <stddef.h>

#define DAEMON_CONFIG "/etc/ferrule/ferruled.conf" /* of the system's daemon */

enum {
	DAEMON_PATH = 108, /* size of a Unix socket's path, with the terminator */
	DAEMON_PLACES = 3,
	/* Values of `start` if no daemon can be started. */
	DAEMON_NO_START = -1,
	DAEMON_BAD_PATH = -2, /* FRL_CONTROL is not a path */
};

struct daemon_place {
	char path[DAEMON_PATH];
	/*
	 * The user's own daemon: its folder must belong to the user, its process to the user or
	 * root.
	 */
	bool is_private;
};

struct daemon_places {
	struct daemon_place list[DAEMON_PLACES];
	unsigned n; /* 0: FRL_CONTROL=off, or a bad path */
	int start;  /* index of the place where a daemon is started, or one of the above */
};

/* Fills in the places in the order of search. */
void daemon_find_places(struct daemon_places *ret_places);

/*
 * Returns true if this machine has a daemon of the system, running or not: its configuration file
 * or the folder of its socket exists. Processes may still start a private one for this host alone
 * (decision 66).
 */
bool daemon_is_configured(void);

/*
 * Returns a connected socket, non-blocking and closed on exec. On failure `why` has a sentence:
 * -ENOENT or -ECONNREFUSED: no daemon; -EAGAIN: it is busy; -EPERM: the folder or the daemon
 * belongs to another user.
 */
int daemon_connect(const struct daemon_place *place, char *why, size_t size);

/*
 * Starts `ferruled --private --socket PATH` in the background, and makes its folder if necessary.
 * The daemon is not a child of this process and has none of its descriptors. Returns a descriptor
 * that prevents other processes from starting one: close it when the daemon is reachable.
 * *ret_alive is for daemon_has_ended(), or -1. Returns -EALREADY if another process is starting it,
 * or another negative errno with a sentence in `why`.
 */
int daemon_start(const struct daemon_place *place, int *ret_alive, char *why, size_t size);

/* Returns whether the started daemon has ended; -1: unknown, returns false. */
bool daemon_has_ended(int alive);

#endif
