/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that come back after the loss of this daemon, of another one, or of a session between them.
 *
 * The daemon that keeps a group marks ranks of other hosts as away and keeps their places. After
 * its own restart it knows nothing, and the ranks create their group again. If one of them knows
 * that all had joined, the group waits for all. In both cases a rank that does not come back in
 * time counts as dead, unless another rank knows that it had left.
 *
 * The time limit is how long ranks work without daemons (FRL_CONTROL_LOST_S). Once the daemon of a
 * rank is connected, the limit is how long its process should take to find that daemon.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/groups/groups.h"

enum {
	REJOIN_MIN_MS = 2000,
	LOST_S = 15, /* default of a rank's limit without daemons */
	LOST_MAX_S = 3600,
	MS_PER_S = 1000,
	RESEND_BYTES = 1 << 20, /* bytes of pieces that are requested again at a time */
	RESEND_MAX = 64,        /* and the largest number of such pieces */
};

#define NS_PER_MS UINT64_C(1000000)

bool rejoin_allowed(struct core *core, const struct group *group, const struct joiner *joiner)
{
	const Ctl__GroupJoin *join = joiner->join;

	if (!join->resumes && !group->all_joined)
		return true;
	/* Before its first allgather no rank can know which others were notified that they had
	 * joined. */
	if (join->resumes && ((!group->all_joined && join->done == 0) || join->group == group->id))
		return true;
	joiner_refuse(core, joiner, EEXIST, "another job of the name '%s' is running", join->job);
	return false;
}

bool rejoin_is_member(
	const struct core *core, const struct member *member, const struct joiner *joiner)
{
	const struct peer *peer = joiner->session->peer;
	const struct group *group = member->group;
	const Ctl__GroupJoin *join = joiner->join;
	char key[sizeof(group->key)];

	/* A member of this host ends with its session. */
	if (!group || member->session || !peer)
		return false;
	snprintf(key, sizeof(key), "%u/%s", joiner->uid, join->job);
	return !strcmp(group->key, key) && group->ranks == join->ranks &&
		member->rank == join->rank && !strcmp(member->peer->name, peer->name) &&
		(!join->resumes || join->group == group->id);
}

void rejoin_reach(struct member *member, const struct joiner *joiner)
{
	list_remove(&member->of_peer);
	member->peer = joiner->session->peer;
	list_add_tail(&member->peer->members, &member->of_peer);
	member->peer_session = joiner->session->id;
	member->group->away -= member->away;
	member->away = false;
	resend_cancel(member);
}

/* ---- deadlines */

static uint64_t rejoin_ns(const struct core *core)
{
	uint32_t wait_ms = core->config->relearn_ms;

	return (wait_ms > REJOIN_MIN_MS ? wait_ms : REJOIN_MIN_MS) * NS_PER_MS;
}

/* Returns how long the member's process, and with it all ranks, may be without daemons. */
static uint64_t rejoin_limit_ns(const struct core *core, const struct member *member)
{
	uint32_t lost_s = member->lost_s ? member->lost_s : LOST_S;
	uint64_t wait_ns = (lost_s < LOST_MAX_S ? lost_s : LOST_MAX_S) * MS_PER_S * NS_PER_MS;

	return wait_ns > rejoin_ns(core) ? wait_ns : rejoin_ns(core);
}

static void set_due(struct core *core, uint64_t due_ns)
{
	if (due_ns < core->groups_due_ns)
		core->groups_due_ns = due_ns;
}

void rejoin_route_lost(struct core *core, struct member *member, uint64_t now_ns)
{
	resend_cancel(member);
	member->away = true;
	member->group->away++;
	member->peer_session = 0;
	member->lost_until_ns = now_ns + rejoin_limit_ns(core, member);
	rejoin_route_failed(core, member);
}

void rejoin_route_failed(struct core *core, struct member *member)
{
	member->away_until_ns = member->lost_until_ns;
	set_due(core, member->away_until_ns);
}

void rejoin_route_up(struct core *core, struct member *member, uint64_t now_ns)
{
	uint64_t until_ns = now_ns + rejoin_ns(core);

	if (until_ns < member->away_until_ns)
		member->away_until_ns = until_ns;
	set_due(core, member->away_until_ns);
}

/* ---- ranks that come back */

/* Fills the place of a rank that will not come back. Returns NULL without memory. */
static struct member *add_gone_member(struct group *group, uint32_t rank, bool left)
{
	struct member *member = calloc(1, sizeof(*member));

	if (!member)
		return NULL;
	member->group = group;
	member->rank = rank;
	member->left = left;
	member->dead = !left;
	group->members[rank] = member;
	group->n_joined++;
	return member;
}

void rejoin_done(struct core *core, struct member *member, const Ctl__GroupJoin *join, bool is_new,
	uint64_t now_ns)
{
	struct group *group = member->group;
	uint32_t from = join->done;

	/* Pieces that the rank gave and this daemon has not received are lost, as are pieces that
	 * the rank has not received. */
	if (!is_new && (int32_t)(member->rounds - from) < 0)
		from = member->rounds;
	resend_from(group, from);
	member->rounds = join->done + join->gives;
	if (join->aborted)
		kept_abort(core, member, join->why);
	for (uint32_t rank = 0; rank < group->ranks && rank / 8 < join->left.len; rank++) {
		struct member *other = NULL;

		if (!group->members[rank] && join->left.data[rank / 8] >> rank % 8 & 1)
			other = add_gone_member(group, rank, true);
		if (other)
			kept_notify_others(core, other, CTL__GROUP_EVENT_KIND__GROUP_LEFT);
	}
	if ((join->done > 0 || join->met) && !group->all_joined && !group->rejoin_until_ns) {
		group->rejoin_until_ns = now_ns + rejoin_limit_ns(core, member);
		set_due(core, group->rejoin_until_ns);
	}
	group->all_joined = group->all_joined || join->done > 0;
}

/* ---- ranks that do not come back */

/* Returns when it is due again, or CORE_NEVER. The group may have been freed. */
static uint64_t give_up_missing(struct core *core, struct group *group, uint64_t now_ns)
{
	bool complete = true;

	for (uint32_t rank = 0; rank < group->ranks; rank++) {
		struct member *member;

		if (group->members[rank])
			continue;
		member = add_gone_member(group, rank, false);
		if (!member) {
			complete = false;
			continue;
		}
		member_describe(member, "it did not come back after its daemon was started again");
		kept_notify_others(core, member, CTL__GROUP_EVENT_KIND__GROUP_DEAD);
	}
	if (!complete) {
		group->rejoin_until_ns = now_ns + rejoin_ns(core);
		return group->rejoin_until_ns;
	}
	group->rejoin_until_ns = 0;
	if (group->n_present == 0)
		group_free(core, group);
	else
		resend_check(core, group);
	return CORE_NEVER;
}

/* The same for ranks that are away. */
static uint64_t give_up_away(struct core *core, struct group *group, uint64_t now_ns)
{
	uint32_t rank = 0, ranks = group->ranks, away = group->away;
	uint64_t due_ns = CORE_NEVER;

	for (; away > 0 && rank < ranks; rank++) {
		struct member *member = group->members[rank];

		if (!member || !member->away)
			continue;
		away--;
		if (member->away_until_ns > now_ns) {
			due_ns = member->away_until_ns < due_ns ? member->away_until_ns : due_ns;
			continue;
		}
		/* The group is freed with its last member: do not touch it afterwards. */
		kept_die(core, member, now_ns,
			" is out of reach: the connection with its daemon broke, and it did not "
			"come back");
	}
	return due_ns;
}

static uint64_t tick(struct core *core, struct group *group, uint64_t now_ns)
{
	uint64_t rejoin_until_ns = group->rejoin_until_ns, due_ns = CORE_NEVER, missing_ns;

	if (group->away > 0)
		due_ns = give_up_away(core, group, now_ns);
	/* give_up_away() frees the group only if it has no rejoin_until_ns. */
	if (!rejoin_until_ns)
		return due_ns;
	missing_ns = rejoin_until_ns <= now_ns ? give_up_missing(core, group, now_ns)
					       : rejoin_until_ns;
	return missing_ns < due_ns ? missing_ns : due_ns;
}

uint64_t groups_tick(struct core *core, uint64_t now_ns)
{
	struct group *group, *next;
	uint64_t due_ns = CORE_NEVER;

	if (now_ns < core->groups_due_ns)
		return core->groups_due_ns;
	HASH_ITER(hh, core->groups, group, next)
	{
		uint64_t group_ns = tick(core, group, now_ns);

		due_ns = group_ns < due_ns ? group_ns : due_ns;
	}
	core->groups_due_ns = due_ns;
	return due_ns;
}

/* ---- lost pieces
 *
 * Pieces may be lost when a daemon, or a session between two, is lost. Only a rank itself knows
 * what it lacks. A rank that comes back says how many allgathers it has completed, and no rank
 * lacks pieces of earlier rounds. So once all ranks are there, each is asked for its pieces from
 * that round on. Ranks ignore pieces that they have already.
 *
 * A rank that has given its piece of round r has completed the rounds before r, so all ranks have
 * given those. A rank therefore keeps at most the last two pieces that it has given: those given
 * since it last completed a round, and the one of that round.
 *
 * Pieces are long and receivers may be slow, so the ranks are asked one after the other.
 */

static void drop_pieces(struct group *group)
{
	for (uint32_t i = 0; i < group->ranks; i++) {
		free(group->members[i]->piece);
		group->members[i]->piece = NULL;
	}
	group->kept = 0;
}

static bool is_complete(const struct group *group)
{
	return group->n_joined == group->ranks && group->away == 0;
}

void resend_from(struct group *group, uint32_t round)
{
	if (!group->resending || (int32_t)(group->resend_from - round) > 0)
		group->resend_from = round;
	group->resending = true;
}

static void ask(struct core *core, struct member *member, uint32_t round, uint32_t rounds)
{
	Ctl__GroupEvent event = CTL__GROUP_EVENT__INIT;

	member->to_resend += rounds;
	member->group->resends_pending += rounds;
	member_name(&event.member, member);
	event.kind = CTL__GROUP_EVENT_KIND__GROUP_AGAIN;
	event.round = round;
	event.rounds = rounds;
	member_send(core, member, &ENVELOPE(0, GROUP_EVENT, group_event, &event));
}

static void ask_next(struct core *core, struct group *group)
{
	struct member *member = group->members[group->resend_next++];
	uint32_t round = group->resend_from;

	if (!member_is_here(member))
		return;
	if ((int32_t)(member->rounds - round) > 2)
		round = member->rounds - 2;
	if ((int32_t)(member->rounds - round) > 0)
		ask(core, member, round, member->rounds - round);
}

/* Returns how many pieces may be requested at a time: one until their size is known. */
static uint32_t room(const struct group *group)
{
	size_t pieces = group->resend_size ? RESEND_BYTES / group->resend_size : 1;

	return pieces < 1 ? 1 : pieces > RESEND_MAX ? RESEND_MAX : (uint32_t)pieces;
}

void resend_continue(struct core *core, struct group *group)
{
	if (!group->resending || !is_complete(group))
		return;
	while (group->resend_next < group->ranks && group->resends_pending < room(group))
		ask_next(core, group);
	if (group->resend_next == group->ranks && group->resends_pending == 0)
		group->resending = false;
}

void resend_check(struct core *core, struct group *group)
{
	if (group->n_joined == group->ranks) {
		group->rejoin_until_ns = 0;
		group->all_joined = true;
		drop_pieces(group);
	}
	if (!is_complete(group))
		return;
	for (uint32_t i = 0; i < group->ranks; i++)
		if (member_is_here(group->members[i]))
			kept_notify(
				core, group->members[i], CTL__GROUP_EVENT_KIND__GROUP_MET, 0, NULL);
	group->resend_size = 0;
	group->resend_next = 0;
	resend_continue(core, group);
}

bool resend_take(struct member *member, const Ctl__GroupPiece *piece)
{
	struct group *group = member->group;

	if (member->to_resend == 0 || (int32_t)(piece->round - member->rounds) >= 0)
		return false;
	member->to_resend--;
	group->resends_pending--;
	if (piece->data.len >= group->resend_size)
		group->resend_size = piece->data.len + 1;
	return true;
}

void resend_cancel(struct member *member)
{
	member->group->resends_pending -= member->to_resend;
	member->to_resend = 0;
}
