/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups that this daemon keeps. The contents of pieces are opaque to it. It passes each piece of
 * an allgather to all other ranks as it arrives, and keeps it for ranks that have not joined yet.
 * No rank may be more than one round ahead of another rank that lives or is still to join, so one
 * piece a rank is kept. Once all ranks have joined nothing is kept: pieces that are lost on the way
 * are requested again (rejoin.c).
 */
#include "daemon/core/groups/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- notifications about other ranks */

static void send_piece(struct core *core, const struct member *to, uint32_t rank, uint32_t round,
	const ProtobufCBinaryData *data, bool all)
{
	Ctl__GroupPiece piece = CTL__GROUP_PIECE__INIT;

	member_name(&piece.member, to);
	piece.rank = rank;
	piece.round = round;
	piece.data = *data;
	piece.all = all;
	piece.group = to->group->id;
	member_send(core, to, &ENVELOPE(0, GROUP_PIECE, group_piece, &piece));
}

void kept_notify(struct core *core, const struct member *to, Ctl__GroupEventKind kind,
	uint32_t rank, const char *text)
{
	Ctl__GroupEvent event = CTL__GROUP_EVENT__INIT;

	member_name(&event.member, to);
	event.kind = kind;
	event.rank = rank;
	if (text)
		event.text = (char *)(uintptr_t)text;
	member_send(core, to, &ENVELOPE(0, GROUP_EVENT, group_event, &event));
}

void kept_notify_others(struct core *core, const struct member *about, Ctl__GroupEventKind kind)
{
	const struct group *group = about->group;

	for (uint32_t i = 0; i < group->ranks; i++)
		if (member_is_here(group->members[i]) && group->members[i] != about)
			kept_notify(core, group->members[i], kind, about->rank, about->about);
}

/* Sends a late rank all that it has missed. */
static void catch_up(struct core *core, const struct member *late)
{
	const struct group *group = late->group;

	for (uint32_t i = 0; i < group->ranks; i++) {
		const struct member *member = group->members[i];
		ProtobufCBinaryData data;

		if (!member || member == late)
			continue;
		if (member->piece) {
			data = (ProtobufCBinaryData){ member->piece_size, member->piece };
			send_piece(core, late, i, member->rounds - 1, &data, false);
		}
		if (member->aborted)
			kept_notify(
				core, late, CTL__GROUP_EVENT_KIND__GROUP_ABORTED, i, member->about);
		else if (member->dead)
			kept_notify(
				core, late, CTL__GROUP_EVENT_KIND__GROUP_DEAD, i, member->about);
		if (member->left)
			kept_notify(
				core, late, CTL__GROUP_EVENT_KIND__GROUP_LEFT, i, member->about);
	}
}

/* ---- pieces for late ranks */

static size_t kept_of_user(const struct core *core, uint32_t uid)
{
	size_t kept = 0;

	for (const struct group *group = core->groups; group; group = group->hh.next)
		kept += group->uid == uid ? group->kept : 0;
	return kept;
}

static bool keep_piece(
	const struct core *core, struct member *member, const ProtobufCBinaryData *data)
{
	struct group *group = member->group;

	if (member->piece || kept_of_user(core, group->uid) + data->len > GROUP_USER_KEPT_MAX)
		return false;
	member->piece = malloc(data->len ? data->len : 1);
	if (!member->piece)
		return false;
	if (data->len)
		memcpy(member->piece, data->data, data->len);
	member->piece_size = data->len;
	group->kept += data->len;
	return true;
}

/* ---- groups */

void group_free(struct core *core, struct group *group)
{
	for (uint32_t i = 0; i < group->ranks; i++) {
		struct member *member = group->members[i];

		if (member_lives(member))
			member_unlink(core, member, 0);
		if (member)
			member_free(member);
	}
	HASH_DEL(core->groups, group);
	free(group->members);
	free(group);
}

/* Returns true if the user may have another group of so many ranks. Returns false after refusing
 * it. */
static bool has_room(struct core *core, const struct joiner *joiner)
{
	uint32_t ranks = joiner->join->ranks, groups = 0;
	uint32_t limit = core->config->max_groups_per_user;

	for (const struct group *group = core->groups; group; group = group->hh.next) {
		if (group->uid == joiner->uid) {
			ranks += group->ranks;
			groups++;
		}
	}
	if (core->draining[0] && !joiner->join->resumes)
		joiner_refuse(core, joiner, EBUSY, "the host is draining: %s", core->draining);
	else if (groups >= limit)
		joiner_refuse(core, joiner, EDQUOT,
			"user %u has %u jobs here, as many as max_groups_per_user allows",
			joiner->uid, limit);
	else if (ranks > GROUP_USER_RANKS_MAX)
		joiner_refuse(core, joiner, EDQUOT,
			"the jobs of user %u would have more than %d ranks here", joiner->uid,
			GROUP_USER_RANKS_MAX);
	else
		return true;
	return false;
}

static struct group *group_new(struct core *core, const struct joiner *joiner, const char *key)
{
	struct group *group;

	if (!has_room(core, joiner))
		return NULL;
	group = calloc(1, sizeof(*group));
	if (group)
		group->members = calloc(joiner->join->ranks, sizeof(struct member *));
	if (group && group->members) {
		copy_text(group->key, sizeof(group->key), key);
		HASH_ADD_STR(core->groups, key, group);
	}
	if (!group || !hash_added(&group->hh)) {
		if (group)
			free(group->members);
		free(group);
		joiner_refuse(core, joiner, ENOMEM, "no memory for another job");
		return NULL;
	}
	group->id = joiner->join->resumes ? joiner->join->group : core->ops.random(core->ops.ctx);
	group->uid = joiner->uid;
	group->ranks = joiner->join->ranks;
	core->counters.groups++;
	return group;
}

static void refuse_double(
	struct core *core, const struct joiner *joiner, const struct member *other)
{
	const Ctl__GroupJoin *join = joiner->join;

	if (join->resumes && other->dead && join->group == other->group->id)
		joiner_refuse(core, joiner, EEXIST, "rank %u of job '%s' has been given up: %s",
			join->rank, join->job, other->about ? other->about : "it was away");
	else
		joiner_refuse(core, joiner, EEXIST,
			"rank %u of job '%s' has joined before: is another job of that name "
			"running?",
			join->rank, join->job);
}

/* Returns the group with a place for this rank. Returns NULL after refusing it. */
static struct group *group_for(struct core *core, const struct joiner *joiner)
{
	const Ctl__GroupJoin *join = joiner->join;
	char key[sizeof(((struct group *)NULL)->key)];
	struct group *group;

	snprintf(key, sizeof(key), "%u/%s", joiner->uid, join->job);
	HASH_FIND_STR(core->groups, key, group);
	if (!group)
		return group_new(core, joiner, key);
	if (group->ranks != join->ranks)
		joiner_refuse(core, joiner, EINVAL, "job '%s' has %u ranks, not %u", join->job,
			group->ranks, join->ranks);
	else if (group->members[join->rank])
		refuse_double(core, joiner, group->members[join->rank]);
	else if (rejoin_allowed(core, group, joiner))
		return group;
	return NULL;
}

static void describe(const struct core *core, const struct joiner *joiner, struct member *member)
{
	const struct session *session = joiner->session;
	const Ctl__Who *who = joiner->join->who;

	if (session->kind == CORE_LOCAL)
		member_describe(member, "process %u (%s) on %s", session->who.pid,
			session->who.program, core->config->host);
	else
		member_describe(member, "process %u (%s) on %s", who->pid, who->program,
			who->host[0] ? who->host : session->address);
}

/* Creates a member in an unused place. Returns NULL after refusing it. */
static struct member *take_place(struct core *core, const struct joiner *joiner)
{
	struct group *group = group_for(core, joiner);
	struct member *member;

	if (!group)
		return NULL;
	member = member_new(core, joiner);
	if (!member) {
		joiner_refuse(core, joiner, ENOMEM, "no memory for another rank");
		if (!group->n_joined)
			group_free(core, group);
		return NULL;
	}
	member->group = group;
	member->joined = true;
	describe(core, joiner, member);
	group->members[member->rank] = member;
	group->n_joined++;
	group->n_present++;
	return member;
}

void kept_join(struct core *core, const struct joiner *joiner, uint64_t now_ns)
{
	struct member *member = member_find(core, &joiner->join->member);
	bool is_new = !member;

	if (member && !rejoin_is_member(core, member, joiner)) {
		joiner_refuse(core, joiner, EEXIST, "a member with this name exists already");
		return;
	}
	if (member)
		rejoin_reach(member, joiner);
	else
		member = take_place(core, joiner);
	if (!member)
		return;
	member->lost_s = joiner->join->lost_s;
	joiner_welcome(core, joiner, member->group->id);
	catch_up(core, member);
	if (joiner->join->resumes || !is_new)
		rejoin_done(core, member, joiner->join, is_new, now_ns);
	resend_check(core, member->group);
}

/* ---- the end of a rank */

static void rank_gone(
	struct core *core, struct member *member, Ctl__GroupEventKind kind, uint64_t now_ns)
{
	struct group *group = member->group;
	bool was_away = member->away;

	member_unlink(core, member, now_ns);
	resend_cancel(member);
	group->away -= was_away;
	member->away = false;
	member->left = kind == CTL__GROUP_EVENT_KIND__GROUP_LEFT;
	member->dead = !member->left;
	/* The others know of a rank that has aborted; it may end without leaving. */
	if (member->left || !member->aborted)
		kept_notify_others(core, member, kind);
	/* A rank that comes back later must be notified. */
	if (--group->n_present == 0 && !group->rejoin_until_ns)
		group_free(core, group);
	else if (was_away)
		resend_check(core, group);
	else
		resend_continue(core, group);
}

void kept_leave(struct core *core, struct member *member, uint64_t now_ns)
{
	rank_gone(core, member, CTL__GROUP_EVENT_KIND__GROUP_LEFT, now_ns);
}

void kept_die(struct core *core, struct member *member, uint64_t now_ns, const char *how, ...)
{
	char text[CORE_REASON + CORE_HOST];
	va_list arguments;

	va_start(arguments, how);
	vsnprintf(text, sizeof(text), how, arguments);
	va_end(arguments);
	/* For a rank that has aborted the reason of the abort remains its description. */
	if (!member->aborted)
		member_describe(member, "%s%s", member->about ? member->about : "it", text);
	rank_gone(core, member, CTL__GROUP_EVENT_KIND__GROUP_DEAD, now_ns);
}

/* Removes a rank that violates the protocol. Its process and its daemon live on. */
static void remove_rank(struct core *core, struct member *member, const char *what, uint64_t now_ns)
{
	char text[CORE_REASON];

	snprintf(text, sizeof(text), "the daemon removed this rank from the job: it %s", what);
	kept_notify(core, member, CTL__GROUP_EVENT_KIND__GROUP_LOST, member->rank, text);
	core_say(core, CORE_LOG_WARNING, "job %s: rank %u %s", member->group->key, member->rank,
		what);
	kept_die(core, member, now_ns, " %s", what);
}

void kept_abort(struct core *core, struct member *member, const char *why)
{
	char text[GROUP_WHY];

	if (member->aborted)
		return;
	member->aborted = true;
	copy_text(text, sizeof(text), why);
	member_describe(member, "%s gave up%s%s", member->about ? member->about : "it",
		text[0] ? ": " : "", text);
	kept_notify_others(core, member, CTL__GROUP_EVENT_KIND__GROUP_ABORTED);
}

/* ---- allgathers */

/* Returns true if the member is a round ahead of a rank that lives or is still to join. */
static bool is_ahead(const struct member *member)
{
	const struct group *group = member->group;

	for (uint32_t i = 0; i < group->ranks; i++) {
		const struct member *other = group->members[i];
		uint32_t rounds = other ? other->rounds : 0;

		/* A rank that is to come back has completed as many rounds as the others. */
		if (!other && group->all_joined)
			continue;
		if ((!other || member_lives(other)) && (int32_t)(member->rounds - rounds) > 0)
			return true;
	}
	return false;
}

/* Sends a piece once to each other daemon, for all ranks there. */
static void pass_piece_on(
	struct core *core, const struct member *to, uint32_t rank, const Ctl__GroupPiece *piece)
{
	struct session *other = to->session ? NULL : session_find(core, to->peer_session);

	if (other && other->piece == core->pieces)
		return;
	if (other)
		other->piece = core->pieces;
	send_piece(core, to, rank, piece->round, &piece->data, other != NULL);
}

/* Handles a piece that was not requested again. It must be the next one of its rank, which must not
 * be ahead of others, and must have data: only the answer to a request can be `gone`. Returns false
 * if the member had to be removed. */
static bool take_new(
	struct core *core, struct member *member, const Ctl__GroupPiece *piece, uint64_t now_ns)
{
	const struct group *group = member->group;

	if (piece->round != member->rounds || piece->gone || is_ahead(member)) {
		remove_rank(core, member, "sent a piece out of turn", now_ns);
		return false;
	}
	if (group->n_joined < group->ranks && !keep_piece(core, member, &piece->data)) {
		remove_rank(core, member,
			"sent more data than is kept for ranks that have not joined", now_ns);
		return false;
	}
	member->rounds++;
	return true;
}

void kept_piece(
	struct core *core, struct member *member, const Ctl__GroupPiece *piece, uint64_t now_ns)
{
	struct group *group = member->group;
	bool is_again = resend_take(member, piece);

	if (!is_again && !take_new(core, member, piece, now_ns))
		return;
	core->pieces++;
	for (uint32_t i = 0; !piece->gone && i < group->ranks; i++)
		if (member_is_here(group->members[i]) && group->members[i] != member)
			pass_piece_on(core, group->members[i], member->rank, piece);
	if (is_again && member->to_resend == 0)
		resend_continue(core, group);
}
