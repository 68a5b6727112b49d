/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files about other daemons share.
 *
 *	peers.c            which peer is meant by a name; Hello: who it is, which session stays
 *	peers_keepalive.c  dialled, pinged, silent, lost, idle
 *
 * A peer is one daemon. Several names may lead to it, which shows only by its Hello: the others are
 * then the same as the first one, and stay for the next who uses them. Where both daemons dial each
 * other at once, the session that the one with the smaller instance has dialled is used; the other
 * one is heard until nothing can be on its way any more.
 */
#ifndef FERRULE_DAEMON_CORE_PEERS_H
#define FERRULE_DAEMON_CORE_PEERS_H

#include "daemon/core/internal.h"

#define PEER_MS UINT64_C(1000000)

enum {
	REDIAL_MIN_MS = 200,
	REDIAL_MAX_MS = 2000,
	/* A daemon that is gone may be being started again: so long nothing is refused for it. */
	RESTART_MS = 2000,
	IDLE_MS = 30000,
	/* Two daemons dial each other "at once" within this. */
	COLLISION_MS = 5000,
	LINGER_MS = 2000,
	KEEPALIVE_MIN_MS = 100, /* whatever a peer says */
	SHARE_LEFT = 8,         /* of max_peers, one of so many is left for other users */
};

/* Dials, unless it is there, being dialled, or cannot be. */
void peer_dial(struct core *core, struct peer *peer, uint64_t now_ns);
/* DIALLING, CONNECTED or LOST: what follows from its sessions. */
void peer_set_state(struct peer *peer);
/* It has no session any more; what goes on stays, and it is dialled again. */
void peer_lost(struct core *core, struct peer *peer, const char *why, uint64_t now_ns);
/* A session to it has ended: none of it is to be closed. */
void peer_forget_session(struct peer *peer, uint64_t session);
/* Closes one that is no use any more, without complaint. */
void peer_close_session(struct core *core, uint64_t session, uint64_t now_ns);
/* Neither connections nor ranks need it. */
bool peer_is_idle(const struct peer *peer);
/* Its sessions are closed, its other names are names of nobody. */
void peer_free(struct core *core, struct peer *peer, uint64_t now_ns);

#endif
