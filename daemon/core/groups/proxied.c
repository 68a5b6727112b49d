/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of this host in groups that other daemons keep: messages between a rank and the keeper are
 * forwarded. When the route to the keeper breaks, a rank that had joined is notified and joins
 * again. Such a join is held until the keeper can be reached, as is a first one without an answer.
 */
#include "daemon/core/groups/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *name_of(const struct peer *peer)
{
	return peer->name[0] ? peer->name : peer->host;
}

static struct joiner joiner_of(const struct member *member, const Ctl__GroupJoin *join)
{
	return (struct joiner){
		.session = member->session,
		.seq = member->seq,
		.uid = member->session->uid,
		.join = join,
	};
}

/* Removes a member of another daemon's group without notifying anybody. */
void proxied_drop(struct core *core, struct member *member, uint64_t now_ns)
{
	member_unlink(core, member, now_ns);
	member_free(member);
}

static void refuse_proxied(
	struct core *core, struct member *member, int error, const char *why, uint64_t now_ns)
{
	Ctl__GroupJoin join = CTL__GROUP_JOIN__INIT;
	struct joiner joiner = joiner_of(member, &join);

	member_name(&join.member, member);
	if (!member->session->lost)
		joiner_refuse(core, &joiner, error, "%s", why);
	proxied_drop(core, member, now_ns);
}

/* Sends the process an event about the keeper. */
static void say(
	struct core *core, const struct member *member, Ctl__GroupEventKind kind, const char *why)
{
	char text[2 * CORE_HOST + CORE_REASON];
	Ctl__GroupEvent event = CTL__GROUP_EVENT__INIT;

	snprintf(text, sizeof(text), "the daemon of %s, which keeps the job, is %s: %s",
		name_of(member->peer),
		kind == CTL__GROUP_EVENT_KIND__GROUP_LOST ? "gone" : "out of reach", why);
	member_name(&event.member, member);
	event.kind = kind;
	event.text = text;
	member_send_to_process(core, member, &ENVELOPE(0, GROUP_EVENT, group_event, &event));
}

void proxied_lost(struct core *core, struct member *member, const char *why, uint64_t now_ns)
{
	if (!member->joined) {
		member->peer_session = 0;
		return;
	}
	/* The process joins again, with all that the keeper needs to know. */
	say(core, member, CTL__GROUP_EVENT_KIND__GROUP_AWAY, why);
	proxied_drop(core, member, now_ns);
}

void proxied_gone(
	struct core *core, struct member *member, bool all, const char *why, uint64_t now_ns)
{
	if (member->joined && all) {
		say(core, member, CTL__GROUP_EVENT_KIND__GROUP_LOST, why);
		proxied_drop(core, member, now_ns);
	} else if (!member->joined && (all || !member->held->group_join->resumes)) {
		refuse_proxied(core, member, EHOSTUNREACH, why, now_ns);
	}
}

static void pass_join_on(struct core *core, struct member *member)
{
	member->peer_session = member->peer->session;
	member_send_to_peer(core, member, member->held);
}

/* Returns the join for the keeper: it names the asking process, and owns its memory. */
static Ctl__Envelope *join_to_pass_on(const struct core *core, const struct joiner *joiner)
{
	const struct who *who = &joiner->session->who;
	Ctl__GroupJoin join = *joiner->join;
	Ctl__Who sender = CTL__WHO__INIT;

	sender.host = core->config->host;
	sender.program = (char *)(uintptr_t)who->program;
	sender.pid = who->pid;
	sender.uid = joiner->uid;
	join.host = (char *)(uintptr_t) "";
	join.who = &sender;
	return envelope_copy(&ENVELOPE(0, GROUP_JOIN, group_join, &join));
}

static uint32_t count_proxied(const struct core *core, uint32_t uid)
{
	uint32_t count = 0;

	for (const struct member *member = core->members; member; member = member->hh.next)
		count += !member->group && member->session->uid == uid;
	return count;
}

void proxied_join(
	struct core *core, const struct joiner *joiner, struct peer *peer, uint64_t now_ns)
{
	struct member *member;

	if (core->draining[0] && !joiner->join->resumes) {
		joiner_refuse(core, joiner, EBUSY, "this host is draining: %s", core->draining);
		return;
	}
	if (count_proxied(core, joiner->uid) >= GROUP_USER_PROXIED_MAX) {
		joiner_refuse(core, joiner, EDQUOT, "user %u has %d ranks in jobs of other hosts",
			joiner->uid, GROUP_USER_PROXIED_MAX);
		return;
	}
	member = member_new(core, joiner);
	if (!member) {
		joiner_refuse(core, joiner, ENOMEM, "no memory for another rank");
		return;
	}
	member->peer = peer;
	list_add_tail(&peer->members, &member->of_peer);
	member->seq = joiner->seq;
	copy_text(member->job, sizeof(member->job), joiner->join->job);
	member->held = join_to_pass_on(core, joiner);
	if (!member->held)
		refuse_proxied(core, member, ENOMEM, "no memory for another rank", now_ns);
	else if (peer->state == PEER_CONNECTED)
		pass_join_on(core, member);
}

/* The member that the message names may have gone meanwhile; the others still get their piece. */
void proxied_pieces(struct core *core, const struct session *session, const Ctl__GroupPiece *piece)
{
	Ctl__GroupPiece copy = *piece;

	copy.all = false;
	LIST_EACH(const struct member, member, &session->peer->members, of_peer) {
		if (member->group || !member->joined || member->peer_session != session->id ||
			member->group_id != piece->group || member->rank == piece->rank)
			continue;
		member_name(&copy.member, member);
		member_send_to_process(core, member, &ENVELOPE(0, GROUP_PIECE, group_piece, &copy));
	}
}

void proxied_message(
	struct core *core, struct member *member, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	const Ctl__GroupEvent *event = envelope->group_event;
	Ctl__Envelope on = *envelope;

	on.seq = 0;
	switch ((int)envelope->body_case) {
	case CTL__ENVELOPE__BODY_GROUP_JOINED:
		if (member->joined)
			return;
		member->joined = true;
		ctl__envelope__free_unpacked(member->held, NULL);
		member->held = NULL;
		member->group_id = envelope->group_joined->group;
		on.seq = member->seq;
		member_send_to_process(core, member, &on);
		return;
	case CTL__ENVELOPE__BODY_GROUP_PIECE: member_send_to_process(core, member, &on); return;
	case CTL__ENVELOPE__BODY_GROUP_MAIL:
		mail_of_keeper(core, member, envelope->group_mail);
		return;
	case CTL__ENVELOPE__BODY_GROUP_EVENT:
		if (event->kind == CTL__GROUP_EVENT_KIND__GROUP_REFUSED && !member->joined) {
			/* A Failure needs a valid errno. */
			refuse_proxied(core, member,
				event->refusal > 0 && event->refusal < 4096 ? (int)event->refusal
									    : EPROTO,
				event->text, now_ns);
			return;
		}
		member_send_to_process(core, member, &on);
		if (event->kind == CTL__GROUP_EVENT_KIND__GROUP_LOST)
			proxied_drop(core, member, now_ns);
		return;
	default: return;
	}
}

/* Records the abort in the join that is sent once the keeper can be reached. */
static void hold_abort(Ctl__GroupJoin *join, const char *why)
{
	char *copy = join->aborted ? NULL : strdup(why);

	join->aborted = true;
	if (!copy)
		return;
	if (join->why != protobuf_c_empty_string)
		free(join->why);
	join->why = copy;
}

void proxied_leave(
	struct core *core, struct member *member, Ctl__Envelope *envelope, uint64_t now_ns)
{
	member_send_to_peer(core, member, envelope);
	if (!envelope->group_leave->aborts)
		proxied_drop(core, member, now_ns);
	else if (member->held)
		hold_abort(member->held->group_join, envelope->group_leave->why);
}

void proxied_die(struct core *core, struct member *member, uint64_t now_ns)
{
	Ctl__GroupEvent event = CTL__GROUP_EVENT__INIT;

	member_name(&event.member, member);
	event.kind = CTL__GROUP_EVENT_KIND__GROUP_DEAD;
	event.rank = member->rank;
	member_send_to_peer(core, member, &ENVELOPE(0, GROUP_EVENT, group_event, &event));
	proxied_drop(core, member, now_ns);
}

/* The peer turned out to be this daemon: the group is kept here. */
static void join_oneself(struct core *core, struct member *member, uint64_t now_ns)
{
	Ctl__Envelope *held = member->held;
	struct joiner joiner = joiner_of(member, held->group_join);

	member->held = NULL;
	proxied_drop(core, member, now_ns);
	kept_join(core, &joiner, now_ns);
	ctl__envelope__free_unpacked(held, NULL);
}

void proxied_up(struct core *core, struct member *member, uint64_t now_ns)
{
	if (member->joined)
		return;
	if (member->peer->is_self)
		join_oneself(core, member, now_ns);
	else
		pass_join_on(core, member);
}
