/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pieces that have got lost when a daemon, or a session between two, went away. What a rank lacks
 * nobody knows but itself; but who has come back says how many allgathers it has completed, and no
 * rank lacks more than the pieces from there on. So when all are there again, each is asked for
 * those once more, and whoever has them already ignores them.
 *
 * That a rank has given its piece of round r shows that it has completed the rounds before r, so
 * everybody has given those. Thus a rank need not have more than the last two that it has given,
 * and of these only what it has given since it last completed a round, and the one of that round.
 *
 * Pieces are long and receivers may be slow: ranks are asked one after the other.
 */
#include "daemon/core/groups.h"

#include <stdlib.h>

enum {
	AGAIN_BYTES = 1 << 20, /* that may be asked for at a time */
	AGAIN_MAX = 64,        /* pieces likewise */
};

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

/* How many pieces may be asked for at a time; at first nobody knows how long they are. */
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
