/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface between the files for groups.
 *
 *	groups.c   dispatch of messages; mail
 *	kept.c     groups that this daemon keeps
 *	rejoin.c   ranks of these groups that come back after a loss; lost pieces
 *	proxied.c  ranks of this host in groups of other daemons
 */
#ifndef FERRULE_DAEMON_CORE_GROUPS_GROUPS_H
#define FERRULE_DAEMON_CORE_GROUPS_GROUPS_H

#include "daemon/core/internal.h"

enum {
	GROUP_RANKS_MAX = 32768,
	/* Limits for one user over all groups: ranks, present or not, and bytes of pieces that are
	 * kept for ranks which have not joined. */
	GROUP_USER_RANKS_MAX = 4 * GROUP_RANKS_MAX,
	GROUP_USER_KEPT_MAX = 64 << 20,
	GROUP_USER_PROXIED_MAX = 4096, /* members in groups of other daemons */
	GROUP_WHY = 512,               /* bytes of the text of a rank that aborts */
};

/* A request to join, by a process or by another daemon on behalf of one. */
struct joiner {
	struct session *session; /* gets the answer */
	uint64_t seq;
	uint32_t uid;
	const Ctl__GroupJoin *join;
};

/* Returns true unless the member has left or died. */
static inline bool member_lives(const struct member *member)
{
	return member && !member->left && !member->dead;
}

/* Returns true if the member can also be reached. */
static inline bool member_is_here(const struct member *member)
{
	return member_lives(member) && !member->away;
}

static inline void member_name(ProtobufCBinaryData *to, const struct member *member)
{
	*to = (ProtobufCBinaryData){
		.len = UUID_SIZE,
		.data = (uint8_t *)(uintptr_t)member->id,
	};
}

/* ---- groups.c */

struct member *member_find(const struct core *core, const ProtobufCBinaryData *id);
/* Creates a member of the session and adds it to core.members. It has no piece, group or text yet.
 * Returns NULL without memory. */
struct member *member_new(struct core *core, const struct joiner *joiner);
/* Removes the member from all lists: nothing is sent to it any more. */
void member_unlink(struct core *core, struct member *member, uint64_t now_ns);
void member_free(struct member *member);
/* Replaces the description. `about` itself may be an argument. */
void member_describe(struct member *member, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Sends to the member's process, directly or through its daemon. */
void member_send(struct core *core, const struct member *member, Ctl__Envelope *envelope);
void member_send_to_process(
	struct core *core, const struct member *member, Ctl__Envelope *envelope);
void member_send_to_peer(struct core *core, const struct member *member, Ctl__Envelope *envelope);
void joiner_refuse(struct core *core, const struct joiner *joiner, int error, const char *format,
	...) __attribute__((format(printf, 4, 5)));
void joiner_welcome(struct core *core, const struct joiner *joiner, uint64_t group);
/* Passes mail from the keeper to a process of this host. */
void mail_of_keeper(struct core *core, const struct member *member, const Ctl__GroupMail *mail);

/* ---- kept.c */

void kept_join(struct core *core, const struct joiner *joiner, uint64_t now_ns);
void kept_piece(
	struct core *core, struct member *member, const Ctl__GroupPiece *piece, uint64_t now_ns);
/* The member aborts the job and stays. `why` is a sentence or empty. */
void kept_abort(struct core *core, struct member *member, const char *why);
void kept_leave(struct core *core, struct member *member, uint64_t now_ns);
/* The member has ended without leaving. `how` continues "process 12 (train) on nodea". The group
 * ends with its last member. */
void kept_die(struct core *core, struct member *member, uint64_t now_ns, const char *how, ...)
	__attribute__((format(printf, 4, 5)));
void group_free(struct core *core, struct group *group);
void kept_notify(struct core *core, const struct member *to, Ctl__GroupEventKind kind,
	uint32_t rank, const char *text);
void kept_notify_others(struct core *core, const struct member *about, Ctl__GroupEventKind kind);

/* ---- rejoin.c */

/* Returns true if an unknown rank may join this group, or join it again. Returns false after
 * refusing it. */
bool rejoin_allowed(struct core *core, const struct group *group, const struct joiner *joiner);
/* Returns true if the joiner is this member, which had joined over a session that is broken or
 * about to break. It must know the member's secret name, and have the same user and host. */
bool rejoin_is_member(
	const struct core *core, const struct member *member, const struct joiner *joiner);
/* Moves the member to the joiner's session. */
void rejoin_reach(struct member *member, const struct joiner *joiner);
/* A rank has come back: its knowledge of the others is taken over. `is_new`: the group was created
 * again; else the rank takes its previous place. */
void rejoin_done(struct core *core, struct member *member, const Ctl__GroupJoin *join, bool is_new,
	uint64_t now_ns);
/* The route to the member's process is broken. */
void rejoin_route_lost(struct core *core, struct member *member, uint64_t now_ns);
/* The route broke again before the member came back. */
void rejoin_route_failed(struct core *core, struct member *member);
/* The route works again: the member must come back soon. */
void rejoin_route_up(struct core *core, struct member *member, uint64_t now_ns);

/* A rank has joined, or is no longer waited for. */
void resend_check(struct core *core, struct group *group);
/* A rank has come back: pieces from this round on may be missing. */
void resend_from(struct group *group, uint32_t round);
/* Handles a piece that the member has given before. Returns false if it was not requested. */
bool resend_take(struct member *member, const Ctl__GroupPiece *piece);
/* Stops requesting pieces from this member, so that another one can be asked. */
void resend_cancel(struct member *member);
void resend_continue(struct core *core, struct group *group);

/* ---- proxied.c */

void proxied_join(
	struct core *core, const struct joiner *joiner, struct peer *peer, uint64_t now_ns);
/* Removes the member without notifying anybody. */
void proxied_drop(struct core *core, struct member *member, uint64_t now_ns);
void proxied_leave(
	struct core *core, struct member *member, Ctl__Envelope *envelope, uint64_t now_ns);
/* The member's process has ended. */
void proxied_die(struct core *core, struct member *member, uint64_t now_ns);
/* Handles a message of the keeper for a process of this host. */
void proxied_message(
	struct core *core, struct member *member, const Ctl__Envelope *envelope, uint64_t now_ns);
/* Passes a piece to all members of the group on this host. */
void proxied_pieces(struct core *core, const struct session *session, const Ctl__GroupPiece *piece);
/* The route to the keeper is broken. */
void proxied_lost(struct core *core, struct member *member, const char *why, uint64_t now_ns);
/* The keeper can be reached. */
void proxied_up(struct core *core, struct member *member, uint64_t now_ns);
/* The keeper's host is gone, or the keeper refuses members that never joined. */
void proxied_gone(
	struct core *core, struct member *member, bool all, const char *why, uint64_t now_ns);

#endif
