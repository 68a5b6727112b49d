/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mail from rank to rank: passed on as it comes, by the daemon of the sender, the one that keeps
 * the group and the one of the recipient, which may all be the same. Nothing is kept of it. What a
 * recipient or the way to it does not take at once is dropped, so that neither a flood nor a
 * process that does not read holds up others, fills memory or loses the recipient its session.
 */
#include "daemon/core/groups.h"

enum {
	/* That may wait for a session when mail is added: a fraction of what ends a process's
	 * session, and of what makes pieces wait for another daemon's. */
	MAIL_QUEUED_MAX = 512 << 10,
};

static void pass_on(struct core *core, const struct session *session, const uint8_t *member,
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

void mail_of_rank(struct core *core, const struct member *member, const Ctl__GroupMail *mail)
{
	const struct group *group = member->group;
	const struct member *to;

	if (!group) {
		pass_on(core, session_find(core, member->peer_session), member->id, mail->rank,
			&mail->mail);
		return;
	}
	to = mail->rank < group->ranks ? group->members[mail->rank] : NULL;
	if (to && to != member && !to->left && !to->dead)
		pass_on(core, session_of(core, to), to->id, member->rank, &mail->mail);
}

void mail_of_keeper(struct core *core, const struct member *member, const Ctl__GroupMail *mail)
{
	pass_on(core, member->session, member->id, mail->rank, &mail->mail);
}
