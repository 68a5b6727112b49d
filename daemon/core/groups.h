/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of groups do for each other:
 *
 *	groups.c          whom a message is for; mail
 *	groups_kept.c     what happens in the groups that this daemon keeps
 *	groups_back.c     their ranks that are out of reach and come back, to this daemon or to the
 *	                  one that is started after it; pieces that have got lost meanwhile
 *	groups_proxied.c  ranks of this host in groups of other daemons
 */
#ifndef FERRULE_DAEMON_CORE_GROUPS_H
#define FERRULE_DAEMON_CORE_GROUPS_H

#include "daemon/core/internal.h"

enum {
	GROUP_RANKS_MAX = 32768,
	/* Of one user, over all groups: ranks, whether they are there or not, and bytes of pieces
	 * that wait for ranks which have not joined. */
	GROUP_USER_RANKS_MAX = 4 * GROUP_RANKS_MAX,
	GROUP_USER_KEPT_MAX = 64 << 20,
	GROUP_USER_PROXIED_MAX = 4096, /* members in groups of other daemons */
	GROUP_WHY = 512,               /* of what a rank that gives up says */
};

/* Who wants to join: a process, or another daemon in the name of one. */
struct joiner {
	struct session *session; /* where the answer goes */
	uint64_t seq;
	uint32_t uid;
	const Ctl__GroupJoin *join;
};

/* It has not gone for good. */
static inline bool member_lives(const struct member *member)
{
	return member && !member->left && !member->dead;
}

/* And it can be told something. */
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
/* A member in core.members, of the session; without a piece, a group or anything to say. NULL: no
 * memory. */
struct member *member_new(struct core *core, const struct joiner *joiner);
/* Out of all lists: nothing is sent to it any more. */
void member_unlink(struct core *core, struct member *member, uint64_t now_ns);
void member_free(struct member *member);
/* Replaces the description; `about` itself may be an argument. */
void member_describe(struct member *member, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* To its process, over the daemon there if need be. */
void member_send(struct core *core, const struct member *member, Ctl__Envelope *envelope);
void member_send_to_process(
	struct core *core, const struct member *member, Ctl__Envelope *envelope);
void member_send_to_peer(struct core *core, const struct member *member, Ctl__Envelope *envelope);
void joiner_refuse(struct core *core, const struct joiner *joiner, int error, const char *format,
	...) __attribute__((format(printf, 4, 5)));
void joiner_welcome(struct core *core, const struct joiner *joiner, uint64_t group);
/* Mail for a process of ours, from the daemon that keeps the group. */
void mail_of_keeper(struct core *core, const struct member *member, const Ctl__GroupMail *mail);

/* ---- groups_kept.c */

void kept_join(struct core *core, const struct joiner *joiner, uint64_t now_ns);
void kept_piece(
	struct core *core, struct member *member, const Ctl__GroupPiece *piece, uint64_t now_ns);
/* It gives up and stays; `why`: a sentence, or empty. */
void kept_abort(struct core *core, struct member *member, const char *why);
void kept_leave(struct core *core, struct member *member, uint64_t now_ns);
/* It has ended without a word; `how` goes on from "process 12 (train) on nodea". The last one takes
 * the group with it. */
void kept_die(struct core *core, struct member *member, uint64_t now_ns, const char *how, ...)
	__attribute__((format(printf, 4, 5)));
void group_free(struct core *core, struct group *group);
void kept_tell(struct core *core, const struct member *to, Ctl__GroupEventKind kind, uint32_t rank,
	const char *text);
void kept_tell_others(struct core *core, const struct member *about, Ctl__GroupEventKind kind);

/* ---- groups_back.c */

/* May a rank that nobody here knows come (back) to this group? Or it has been refused. */
bool back_may_join(struct core *core, const struct group *group, const struct joiner *joiner);
/* Is this the member that had joined before, over a session that is broken, or seems not to be yet?
 * That knows its name, which is nobody else's business, and is of the same user and host. */
bool back_is_member(
	const struct core *core, const struct member *member, const struct joiner *joiner);
/* It is, and is reached over that session now. */
void back_reach(struct member *member, const struct joiner *joiner);
/* A rank has come back: what it knows of the others counts. `is_new`: to a group that is made anew,
 * else to the place that it had. */
void back_joined(struct core *core, struct member *member, const Ctl__GroupJoin *join, bool is_new,
	uint64_t now_ns);
/* The way to its process is broken. */
void back_lost(struct core *core, struct member *member, uint64_t now_ns);
/* Again, before it has come back. */
void back_unreachable(struct core *core, struct member *member);
/* There is a way again: it has not long to come. */
void back_reachable(struct core *core, struct member *member, uint64_t now_ns);

/* Somebody has come, or is not waited for any more. */
void again_check(struct core *core, struct group *group);
/* Somebody has come back: pieces from this round on may be missing. */
void again_from(struct group *group, uint32_t round);
/* A piece that the member has given before. False: it has not been asked for. */
bool again_take(struct member *member, const Ctl__GroupPiece *piece);
/* The member is not asked any more; others can be. */
void again_forget(struct member *member);
void again_go_on(struct core *core, struct group *group);

/* ---- groups_proxied.c */

void proxied_join(
	struct core *core, const struct joiner *joiner, struct peer *peer, uint64_t now_ns);
/* Nothing is said. */
void proxied_drop(struct core *core, struct member *member, uint64_t now_ns);
void proxied_leave(
	struct core *core, struct member *member, Ctl__Envelope *envelope, uint64_t now_ns);
/* Its process has ended. */
void proxied_die(struct core *core, struct member *member, uint64_t now_ns);
/* A message of the daemon that keeps the group, for a process of ours. */
void proxied_message(
	struct core *core, struct member *member, const Ctl__Envelope *envelope, uint64_t now_ns);
/* A piece for all members of a group that are of this host. */
void proxied_pieces(struct core *core, const struct session *session, const Ctl__GroupPiece *piece);
/* The way to the daemon that keeps the group is broken. */
void proxied_lost(struct core *core, struct member *member, const char *why, uint64_t now_ns);
/* That daemon can be spoken to. */
void proxied_up(struct core *core, struct member *member, uint64_t now_ns);
/* Its host is gone, or it refuses those who have never been there. */
void proxied_gone(
	struct core *core, struct member *member, bool all, const char *why, uint64_t now_ns);

#endif
