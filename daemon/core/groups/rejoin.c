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
	BACK_MIN_MS = 2000,
	LOST_S = 15, /* default of a rank's limit without daemons */
	LOST_MAX_S = 3600,
	MS_PER_S = 1000,
	AGAIN_BYTES = 1 << 20, /* bytes of pieces that are requested again at a time */
	AGAIN_MAX = 64,        /* and the largest number of such pieces */
};

#define NS_PER_MS UINT64_C(1000000)

bool back_may_join(struct core *core, const struct group *group, const struct joiner *joiner)
{
	const Ctl__GroupJoin *join = joiner->join;

	if (!join->resumes && !group->has_met)
		return true;
	/* Before its first allgather no rank can know which others were notified that they had
	 * joined. */
	if (join->resumes && ((!group->has_met && join->done == 0) || join->group == group->id))
		return true;
	joiner_refuse(core, joiner, EEXIST, "another job of the name '%s' is running", join->job);
	return false;
}

bool back_is_member(
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

void back_reach(struct member *member, const struct joiner *joiner)
{
	list_remove(&member->of_peer);
	member->peer = joiner->session->peer;
	list_add_tail(&member->peer->members, &member->of_peer);
	member->peer_session = joiner->session->id;
	member->group->away -= member->away;
	member->away = false;
	again_forget(member);
}

/* ---- deadlines */

static uint64_t back_ns(const struct core *core)
{
	uint32_t wait_ms = core->config->relearn_ms;

	return (wait_ms > BACK_MIN_MS ? wait_ms : BACK_MIN_MS) * NS_PER_MS;
}

/* Returns how long the member's process, and with it all ranks, may be without daemons. */
static uint64_t patience_ns(const struct core *core, const struct member *member)
{
	uint32_t lost_s = member->lost_s ? member->lost_s : LOST_S;
	uint64_t wait_ns = (lost_s < LOST_MAX_S ? lost_s : LOST_MAX_S) * MS_PER_S * NS_PER_MS;

	return wait_ns > back_ns(core) ? wait_ns : back_ns(core);
}

static void set_due(struct core *core, uint64_t due_ns)
{
	if (due_ns < core->groups_due_ns)
		core->groups_due_ns = due_ns;
}

void back_lost(struct core *core, struct member *member, uint64_t now_ns)
{
	again_forget(member);
	member->away = true;
	member->group->away++;
	member->peer_session = 0;
	member->lost_until_ns = now_ns + patience_ns(core, member);
	back_unreachable(core, member);
}

void back_unreachable(struct core *core, struct member *member)
{
	member->away_until_ns = member->lost_until_ns;
	set_due(core, member->away_until_ns);
}

void back_reachable(struct core *core, struct member *member, uint64_t now_ns)
{
	uint64_t until_ns = now_ns + back_ns(core);

	if (until_ns < member->away_until_ns)
		member->away_until_ns = until_ns;
	set_due(core, member->away_until_ns);
}

/* ---- ranks that come back */

/* Fills the place of a rank that will not come back. Returns NULL without memory. */
static struct member *mark(struct group *group, uint32_t rank, bool left)
{
	struct member *member = calloc(1, sizeof(*member));

	if (!member)
		return NULL;
	member->group = group;
	member->rank = rank;
	member->left = left;
	member->dead = !left;
	group->members[rank] = member;
	group->met++;
	return member;
}

void back_joined(struct core *core, struct member *member, const Ctl__GroupJoin *join, bool is_new,
	uint64_t now_ns)
{
	struct group *group = member->group;
	uint32_t from = join->done;

	/* Pieces that the rank gave and this daemon has not received are lost, as are pieces that
	 * the rank has not received. */
	if (!is_new && (int32_t)(member->rounds - from) < 0)
		from = member->rounds;
	again_from(group, from);
	member->rounds = join->done + join->gives;
	if (join->aborted)
		kept_abort(core, member, join->why);
	for (uint32_t rank = 0; rank < group->ranks && rank / 8 < join->left.len; rank++) {
		struct member *other = NULL;

		if (!group->members[rank] && join->left.data[rank / 8] >> rank % 8 & 1)
			other = mark(group, rank, true);
		if (other)
			kept_tell_others(core, other, CTL__GROUP_EVENT_KIND__GROUP_LEFT);
	}
	if ((join->done > 0 || join->met) && !group->has_met && !group->back_until_ns) {
		group->back_until_ns = now_ns + patience_ns(core, member);
		set_due(core, group->back_until_ns);
	}
	group->has_met = group->has_met || join->done > 0;
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
		member = mark(group, rank, false);
		if (!member) {
			complete = false;
			continue;
		}
		member_describe(member, "it did not come back after its daemon was started again");
		kept_tell_others(core, member, CTL__GROUP_EVENT_KIND__GROUP_DEAD);
	}
	if (!complete) {
		group->back_until_ns = now_ns + back_ns(core);
		return group->back_until_ns;
	}
	group->back_until_ns = 0;
	if (group->present == 0)
		group_free(core, group);
	else
		again_check(core, group);
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
	uint64_t back_until_ns = group->back_until_ns, due_ns = CORE_NEVER, missing_ns;

	if (group->away > 0)
		due_ns = give_up_away(core, group, now_ns);
	/* give_up_away() frees the group only if it has no back_until_ns. */
	if (!back_until_ns)
		return due_ns;
	missing_ns = back_until_ns <= now_ns ? give_up_missing(core, group, now_ns) : back_until_ns;
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
	return group->met == group->ranks && group->away == 0;
}

void again_from(struct group *group, uint32_t round)
{
	if (!group->returns || (int32_t)(group->again_from - round) > 0)
		group->again_from = round;
	group->returns = true;
}

static void ask(struct core *core, struct member *member, uint32_t round, uint32_t rounds)
{
	Ctl__GroupEvent event = CTL__GROUP_EVENT__INIT;

	member->again += rounds;
	member->group->asked += rounds;
	member_name(&event.member, member);
	event.kind = CTL__GROUP_EVENT_KIND__GROUP_AGAIN;
	event.round = round;
	event.rounds = rounds;
	member_send(core, member, &ENVELOPE(0, GROUP_EVENT, group_event, &event));
}

static void ask_next(struct core *core, struct group *group)
{
	struct member *member = group->members[group->again_next++];
	uint32_t round = group->again_from;

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
	size_t pieces = group->again_size ? AGAIN_BYTES / group->again_size : 1;

	return pieces < 1 ? 1 : pieces > AGAIN_MAX ? AGAIN_MAX : (uint32_t)pieces;
}

void again_go_on(struct core *core, struct group *group)
{
	if (!group->returns || !is_complete(group))
		return;
	while (group->again_next < group->ranks && group->asked < room(group))
		ask_next(core, group);
	if (group->again_next == group->ranks && group->asked == 0)
		group->returns = false;
}

void again_check(struct core *core, struct group *group)
{
	if (group->met == group->ranks) {
		group->back_until_ns = 0;
		group->has_met = true;
		drop_pieces(group);
	}
	if (!is_complete(group))
		return;
	for (uint32_t i = 0; i < group->ranks; i++)
		if (member_is_here(group->members[i]))
			kept_tell(
				core, group->members[i], CTL__GROUP_EVENT_KIND__GROUP_MET, 0, NULL);
	group->again_size = 0;
	group->again_next = 0;
	again_go_on(core, group);
}

bool again_take(struct member *member, const Ctl__GroupPiece *piece)
{
	struct group *group = member->group;

	if (member->again == 0 || (int32_t)(piece->round - member->rounds) >= 0)
		return false;
	member->again--;
	group->asked--;
	if (piece->data.len >= group->again_size)
		group->again_size = piece->data.len + 1;
	return true;
}

void again_forget(struct member *member)
{
	member->group->asked -= member->again;
	member->again = 0;
}
