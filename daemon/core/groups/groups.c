/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups: routes of messages. A process talks to its own daemon. That daemon keeps the group, or
 * forwards messages between the process and the keeper, over its session with the keeper:
 *
 *	process <---> its daemon <---> the daemon that keeps the group (the keeper)
 *
 * Members have random names, so that neither side needs the other's numbers. When a part of the
 * route breaks, the messages on it are lost. The process then joins again, whichever part it was,
 * and states its progress (GroupJoin.resumes). The keeper waits some time for that.
 */
#include "daemon/core/groups/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	/* Limit for bytes queued on a session when mail is added. It is a fraction of the limit
	 * that ends a process's session, and of the one that delays pieces for another daemon. */
	MAIL_QUEUED_MAX = 512 << 10,
};

/* ---- members */

struct member *member_find(const struct core *core, const ProtobufCBinaryData *id)
{
	struct member *member = NULL;

	if (id->len == UUID_SIZE)
		HASH_FIND(hh, core->members, id->data, UUID_SIZE, member);
	return member;
}

struct member *member_new(struct core *core, const struct joiner *joiner)
{
	struct member *member = calloc(1, sizeof(*member));

	if (!member)
		return NULL;
	memcpy(member->id, joiner->join->member.data, UUID_SIZE);
	member->rank = joiner->join->rank;
	list_init(&member->of_session);
	list_init(&member->of_peer);
	HASH_ADD(hh, core->members, id, UUID_SIZE, member);
	if (!hash_added(&member->hh)) {
		free(member);
		return NULL;
	}
	if (joiner->session->kind == CORE_LOCAL) {
		member->session = joiner->session;
		list_add_tail(&joiner->session->members, &member->of_session);
	} else {
		member->peer = joiner->session->peer;
		member->peer_session = joiner->session->id;
		list_add_tail(&member->peer->members, &member->of_peer);
	}
	return member;
}

void member_unlink(struct core *core, struct member *member, uint64_t now_ns)
{
	struct peer *peer = member->peer;

	HASH_DEL(core->members, member);
	list_remove(&member->of_session);
	list_remove(&member->of_peer);
	if (peer && list_empty(&peer->members) && list_empty(&peer->conns))
		peer->idle_ns = now_ns;
	member->session = NULL;
	member->peer = NULL;
}

void member_describe(struct member *member, const char *format, ...)
{
	char *about = NULL;
	va_list arguments;

	va_start(arguments, format);
	if (vasprintf(&about, format, arguments) < 0)
		about = NULL;
	va_end(arguments);
	free(member->about);
	member->about = about;
}

void member_free(struct member *member)
{
	if (member->held)
		ctl__envelope__free_unpacked(member->held, NULL);
	free(member->about);
	free(member->piece);
	free(member);
}

void member_send_to_process(struct core *core, const struct member *member, Ctl__Envelope *envelope)
{
	if (member->session && !member->session->lost)
		session_send(core, member->session, envelope);
}

void member_send_to_peer(struct core *core, const struct member *member, Ctl__Envelope *envelope)
{
	struct session *session = session_find(core, member->peer_session);

	if (session && !session->lost)
		session_send(core, session, envelope);
}

void member_send(struct core *core, const struct member *member, Ctl__Envelope *envelope)
{
	if (member->session)
		member_send_to_process(core, member, envelope);
	else
		member_send_to_peer(core, member, envelope);
}

/* ---- answers to a join */

void joiner_refuse(
	struct core *core, const struct joiner *joiner, int error, const char *format, ...)
{
	char text[CORE_HOST + CORE_REASON];
	Ctl__GroupEvent event = CTL__GROUP_EVENT__INIT;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (joiner->seq) {
		session_fail(core, joiner->session, joiner->seq, error, "%s", text);
		return;
	}
	event.member = joiner->join->member;
	event.kind = CTL__GROUP_EVENT_KIND__GROUP_REFUSED;
	event.refusal = (uint32_t)error;
	event.text = text;
	session_send(core, joiner->session, &ENVELOPE(0, GROUP_EVENT, group_event, &event));
}

void joiner_welcome(struct core *core, const struct joiner *joiner, uint64_t group)
{
	Ctl__GroupJoined joined = CTL__GROUP_JOINED__INIT;

	joined.member = joiner->join->member;
	joined.group = group;
	joined.carries_mail = true;
	session_send(
		core, joiner->session, &ENVELOPE(joiner->seq, GROUP_JOINED, group_joined, &joined));
}

/* A member that comes back over another daemon already has this name. */
static bool name_is_taken(const struct core *core, const struct joiner *joiner)
{
	const struct member *other = member_find(core, &joiner->join->member);

	return other && !(joiner->session->peer && other->group && !other->session);
}

/* Checks the job's name and the rank. Returns false after refusing the join. */
static bool is_valid_join(struct core *core, const struct joiner *joiner)
{
	static const char characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
					 "0123456789._-";
	const Ctl__GroupJoin *join = joiner->join;
	size_t length = strlen(join->job);

	if (length < 1 || length > CORE_NAME || strspn(join->job, characters) != length)
		joiner_refuse(core, joiner, EINVAL,
			"a job's name is 1 to %d letters, digits, '.', '_' and '-'", CORE_NAME);
	else if (join->ranks < 1 || join->ranks > GROUP_RANKS_MAX)
		joiner_refuse(core, joiner, EINVAL, "a job has 1 to %d ranks, not %u",
			GROUP_RANKS_MAX, join->ranks);
	else if (join->rank >= join->ranks)
		joiner_refuse(core, joiner, EINVAL, "rank %u is not one of 0 to %u", join->rank,
			join->ranks - 1);
	else if (name_is_taken(core, joiner))
		joiner_refuse(core, joiner, EEXIST, "a member with this name exists already");
	else
		return true;
	return false;
}

/* ---- mail
 *
 * Messages from rank to rank. They are forwarded at once by the daemons of the sender, of the group
 * and of the recipient, which may be the same one, and are not stored. Mail that the recipient or
 * the route cannot take at once is dropped. So neither a flood nor a process that does not read can
 * delay others, fill memory, or cost the recipient its session.
 */

static void pass_mail_on(struct core *core, const struct session *session, const uint8_t *member,
	uint32_t rank, const ProtobufCBinaryData *mail)
{
	Ctl__GroupMail message = CTL__GROUP_MAIL__INIT;

	if (!session || session->lost)
		return;
	if (core->ops.queued(core->ops.ctx, session->id) > MAIL_QUEUED_MAX) {
		core->counters.mail_dropped++;
		return;
	}
	message.member = (ProtobufCBinaryData){ UUID_SIZE, (uint8_t *)(uintptr_t)member };
	message.rank = rank;
	message.mail = *mail;
	session_send(core, session, &ENVELOPE(0, GROUP_MAIL, group_mail, &message));
}

static const struct session *session_of(struct core *core, const struct member *member)
{
	return member->session ? member->session : session_find(core, member->peer_session);
}

/* Forwards mail that a rank sends, from its process or from that process's daemon. */
static void mail_of_rank(struct core *core, const struct member *member, const Ctl__GroupMail *mail)
{
	const struct group *group = member->group;
	const struct member *to;

	if (!group) {
		pass_mail_on(core, session_find(core, member->peer_session), member->id, mail->rank,
			&mail->mail);
		return;
	}
	to = mail->rank < group->ranks ? group->members[mail->rank] : NULL;
	if (to && to != member && !to->left && !to->dead)
		pass_mail_on(core, session_of(core, to), to->id, member->rank, &mail->mail);
}

void mail_of_keeper(struct core *core, const struct member *member, const Ctl__GroupMail *mail)
{
	pass_mail_on(core, member->session, member->id, mail->rank, &mail->mail);
}

/* ---- messages of processes */

static void take_join(struct core *core, struct session *session, uint64_t seq,
	const Ctl__GroupJoin *join, uint64_t now_ns)
{
	struct joiner joiner = {
		.session = session, .seq = seq, .uid = session->uid, .join = join
	};
	const char *why = "";
	bool is_self = false;
	struct peer *peer = NULL;
	int error = 0;

	if (session->role == CTL__ROLE__ROLE_DAEMON) {
		if (!session->peer || !join->who)
			joiner_refuse(core, &joiner, EPROTO, "the join does not name its process");
		else if (is_valid_join(core, &joiner)) {
			joiner.uid = join->who->uid;
			kept_join(core, &joiner, now_ns);
		}
		return;
	}
	if (!is_valid_join(core, &joiner))
		return;
	if (join->host[0])
		peer = peer_get(core, join->host, &is_self, &error, &why, now_ns);
	if (peer && !peer->is_self)
		proxied_join(core, &joiner, peer, now_ns);
	else if (!join->host[0] || is_self || peer)
		kept_join(core, &joiner, now_ns);
	else
		joiner_refuse(core, &joiner, error ? error : EHOSTUNREACH, "host %s: %s",
			join->host, why);
}

/* Handles a rank that leaves, or that aborts and stays. A rank that leaves is freed. */
static void take_leave(
	struct core *core, struct member *member, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	const Ctl__GroupLeave *leave = envelope->group_leave;
	Ctl__Envelope on = *envelope;

	on.seq = 0;
	if (member->group && leave->aborts) {
		kept_abort(core, member, leave->why);
	} else if (member->group) {
		kept_leave(core, member, now_ns);
	} else {
		proxied_leave(core, member, &on, now_ns);
	}
}

/* Handles a message of a rank, from its process or from that process's daemon. */
static void rank_message(
	struct core *core, struct member *member, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	Ctl__Envelope on = *envelope;

	on.seq = 0;
	switch ((int)envelope->body_case) {
	case CTL__ENVELOPE__BODY_GROUP_PIECE:
		if (member->group)
			kept_piece(core, member, envelope->group_piece, now_ns);
		else
			member_send_to_peer(core, member, &on);
		return;
	case CTL__ENVELOPE__BODY_GROUP_LEAVE: take_leave(core, member, envelope, now_ns); return;
	case CTL__ENVELOPE__BODY_GROUP_MAIL:
		mail_of_rank(core, member, envelope->group_mail);
		return;
	case CTL__ENVELOPE__BODY_GROUP_EVENT:
		if (member->group &&
			envelope->group_event->kind == CTL__GROUP_EVENT_KIND__GROUP_DEAD)
			kept_die(core, member, now_ns, " ended without leaving the job");
		return;
	default: return;
	}
}

static const ProtobufCBinaryData *member_named(const Ctl__Envelope *envelope)
{
	switch ((int)envelope->body_case) {
	case CTL__ENVELOPE__BODY_GROUP_JOINED: return &envelope->group_joined->member;
	case CTL__ENVELOPE__BODY_GROUP_PIECE: return &envelope->group_piece->member;
	case CTL__ENVELOPE__BODY_GROUP_EVENT: return &envelope->group_event->member;
	case CTL__ENVELOPE__BODY_GROUP_LEAVE: return &envelope->group_leave->member;
	case CTL__ENVELOPE__BODY_GROUP_MAIL: return &envelope->group_mail->member;
	default: return NULL;
	}
}

void groups_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	bool leaves = envelope->body_case == CTL__ENVELOPE__BODY_GROUP_LEAVE;
	const ProtobufCBinaryData *id;
	struct member *member = NULL;

	if (envelope->body_case == CTL__ENVELOPE__BODY_GROUP_JOIN) {
		take_join(core, session, envelope->seq, envelope->group_join, now_ns);
		return;
	}
	if (envelope->body_case == CTL__ENVELOPE__BODY_GROUP_PIECE && session->peer &&
		envelope->group_piece->all) {
		proxied_pieces(core, session, envelope->group_piece);
		return;
	}
	id = member_named(envelope);
	if (id)
		member = member_find(core, id);
	/* The sender may not know yet that the member has gone. Its messages are ignored; a
	 * GroupLeave has then achieved what it asked for. */
	if (member && member->session == session &&
		envelope->body_case != CTL__ENVELOPE__BODY_GROUP_EVENT)
		rank_message(core, member, envelope, now_ns);
	else if (member && member->peer_session == session->id && member->group)
		rank_message(core, member, envelope, now_ns);
	else if (member && member->peer_session == session->id)
		proxied_message(core, member, envelope, now_ns);
	if (leaves && envelope->seq)
		session_done(core, session, envelope->seq);
}

/* ---- sessions */

/* The route between a member and the other daemon is broken. */
static void route_lost(struct core *core, struct member *member, uint64_t now_ns)
{
	if (member->group)
		rejoin_route_lost(core, member, now_ns);
	else
		proxied_lost(core, member, "the connection with it broke", now_ns);
}

static void peer_session_lost(struct core *core, const struct session *session, uint64_t now_ns)
{
	struct member *member, *next;

	HASH_ITER(hh, core->members, member, next)
	{
		if (member->peer_session == session->id)
			route_lost(core, member, now_ns);
		else if (member->away && member->peer == session->peer)
			rejoin_route_failed(core, member);
	}
}

void groups_session_lost(struct core *core, struct session *session, uint64_t now_ns)
{
	struct member *member;

	if (session->kind != CORE_LOCAL) {
		peer_session_lost(core, session, now_ns);
		return;
	}
	while (!list_empty(&session->members)) {
		member = container_of(session->members.next, struct member, of_session);
		if (member->group)
			kept_die(core, member, now_ns, " ended without leaving the job");
		else
			proxied_die(core, member, now_ns);
	}
}

void groups_send_joins(struct core *core, struct peer *peer, uint64_t now_ns)
{
	LIST_EACH(struct member, member, &peer->members, of_peer) {
		if (!member->group && !session_find(core, member->peer_session))
			proxied_up(core, member, now_ns);
	}
}

void groups_peer_up(struct core *core, struct peer *peer, uint64_t now_ns)
{
	groups_send_joins(core, peer, now_ns);
	LIST_EACH(struct member, member, &peer->members, of_peer) {
		if (member->group && !session_find(core, member->peer_session))
			rejoin_route_up(core, member, now_ns);
	}
}

static bool is_first_join(const struct member *member)
{
	return member->held && !member->held->group_join->resumes;
}

void groups_peer_gone(
	struct core *core, struct peer *peer, bool all, const char *why, uint64_t now_ns)
{
	LIST_EACH(struct member, member, &peer->members, of_peer) {
		if (all && !is_first_join(member) &&
			job_receives(core, member, peer_since_ns(peer, now_ns)))
			continue;
		if (!member->group)
			proxied_gone(core, member, all, why, now_ns);
		else if (all)
			kept_die(core, member, now_ns, " is out of reach: %s", why);
	}
}

void groups_destroy(struct core *core)
{
	struct member *member, *next;
	struct group *group, *next_group;

	HASH_ITER(hh, core->members, member, next)
	{
		if (!member->group)
			proxied_drop(core, member, 0);
	}
	HASH_ITER(hh, core->groups, group, next_group)
	{
		group_free(core, group);
	}
}

/* ---- room
 *
 * Finds the sessions that a rank's piece will be sent to, before it is sent. Pieces are long, each
 * rank of a host may send one, and another daemon may be at the end of a slow link.
 */

static bool is_of_peer(const struct member *member)
{
	return member && !member->session && member->peer_session;
}

bool core_has_room(const struct core *core, uint64_t session, const Ctl__Envelope *envelope,
	bool (*has_room)(void *ctx, uint64_t peer), void *ctx)
{
	const struct member *member = NULL;

	if (envelope->body_case != CTL__ENVELOPE__BODY_GROUP_PIECE)
		return true;
	HASH_FIND(hh, core->members, envelope->group_piece->member.data, UUID_SIZE, member);
	if (!member || !member->session || member->session->id != session)
		return true;
	if (!member->group)
		return has_room(ctx, member->peer_session);
	for (uint32_t i = 0; i < member->group->ranks; i++)
		if (is_of_peer(member->group->members[i]) &&
			!has_room(ctx, member->group->members[i]->peer_session))
			return false;
	return true;
}
