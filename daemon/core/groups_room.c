/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a rank's piece goes, before it goes: pieces are long, there can be one of each rank of a
 * host, and another daemon may be at the end of a slow link.
 */
#include "daemon/core/internal.h"

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
