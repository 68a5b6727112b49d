/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface between the files for other daemons.
 *
 *	peers.c      names, Hello, choice between two sessions
 *	keepalive.c  dial, ping, silence, loss, idle time
 *	traffic.c    data that shows that a host lives
 *
 * A peer is one daemon. Several names may lead to it, which is known only after its Hello. The
 * other names then become aliases and are kept for later use. If two daemons dial each other at
 * once, they use the session that the daemon with the smaller instance has dialled. The other
 * session is read until no message can be under way any more.
 */
#ifndef FERRULE_DAEMON_CORE_PEERS_PEERS_H
#define FERRULE_DAEMON_CORE_PEERS_PEERS_H

#include "daemon/core/internal.h"

#define PEER_MS UINT64_C(1000000)

enum {
	REDIAL_MIN_MS = 200,
	REDIAL_MAX_MS = 2000,
	/* A lost daemon may be restarting: nothing is refused for this time. */
	RESTART_MS = 2000,
	IDLE_MS = 30000,
	/* Dials of two daemons within this time collide. */
	COLLISION_MS = 5000,
	LINGER_MS = 2000,
	KEEPALIVE_MIN_MS = 100, /* lower limit, whatever a peer asks for */
	SHARE_LEFT = 8,         /* one part in so many of max_peers is left to other users */
};

/* Dials the peer unless it is connected, being dialled, or has no port. */
void peer_dial(struct core *core, struct peer *peer, uint64_t now_ns);
/* Sets DIALLING, CONNECTED or LOST, according to its sessions. */
void peer_set_state(struct peer *peer);
/* The peer has no session any more: its connections stay, and it is dialled again. */
void peer_lost(struct core *core, struct peer *peer, const char *why, uint64_t now_ns);
/* A session of the peer has ended. It need not be closed. */
void peer_forget_session(struct peer *peer, uint64_t session);
/* Closes a session that is no longer needed. */
void peer_close_session(struct core *core, uint64_t session, uint64_t now_ns);
/* Returns true if neither connections nor ranks need the peer. */
bool peer_is_idle(const struct peer *peer);
/* Closes its sessions, frees the peer, and removes its aliases. */
void peer_free(struct core *core, struct peer *peer, uint64_t now_ns);

#endif
