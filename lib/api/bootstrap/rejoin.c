/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joining again after the control daemon, or the one that keeps the job, was lost. The rank reports
 * its progress to the new daemon. Its pieces may have been lost on the way: it keeps each piece
 * until all other ranks are known to have it, and sends it again on request.
 */
#include "lib/api/bootstrap/bootstrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/base/settings.h"

#define NS_PER_S UINT64_C(1000000000)

void bootstrap_handle_loss(struct bootstrap *bootstrap, const char *what)
{
	bootstrap->state = BOOTSTRAP_AWAY;
	bootstrap->lost_ns = clock_now_ns() + settings_get()->control_lost_s * NS_PER_S;
	snprintf(bootstrap->lost, sizeof(bootstrap->lost), "%s", what);
}

uint64_t bootstrap_tick(struct control_handler *handler, uint64_t now_ns)
{
	struct bootstrap *bootstrap = container_of(handler, struct bootstrap, handler);
	char why[BOOTSTRAP_TEXT + 64];
	uint64_t next_ns = UINT64_MAX;

	bootstrap_mail_deliver(&bootstrap->mail);
	pthread_mutex_lock(&bootstrap->mutex);
	if (bootstrap->state == BOOTSTRAP_AWAY && now_ns < bootstrap->lost_ns) {
		next_ns = bootstrap->lost_ns;
	} else if (bootstrap->state == BOOTSTRAP_AWAY) {
		snprintf(why, sizeof(why), "%s and was not back within %u s (FRL_CONTROL_LOST_S)",
			bootstrap->lost, (unsigned)settings_get()->control_lost_s);
		bootstrap_fail(bootstrap, -ECONNRESET, why);
		pthread_cond_broadcast(&bootstrap->changed);
	}
	pthread_mutex_unlock(&bootstrap->mutex);
	return next_ns;
}

/* Posts a join with the complete state of the group. */
static int post_rejoin(struct bootstrap *bootstrap, Ctl__GroupJoin *join, Ctl__Envelope *envelope)
{
	size_t size = ((size_t)bootstrap->ranks + 7) / 8;
	uint8_t *left = calloc(1, size);
	int err;

	if (!left)
		return -ENOMEM;
	for (int rank = 0; rank < bootstrap->ranks; rank++)
		if (bootstrap->left[rank])
			left[rank / 8] |= (uint8_t)(1 << rank % 8);
	join->resumes = true;
	join->group = bootstrap->group;
	join->done = bootstrap->round;
	join->gives = bootstrap->n_sent != bootstrap->round;
	join->met = bootstrap->all_joined;
	join->left = (ProtobufCBinaryData){ size, left };
	join->aborted = bootstrap->has_aborted;
	join->why = bootstrap->abort_reason;
	err = control_post(envelope, -1);
	free(left);
	return err;
}

void bootstrap_post_join(struct bootstrap *bootstrap)
{
	Ctl__GroupJoin join = CTL__GROUP_JOIN__INIT;
	Ctl__Envelope envelope;
	int err;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_JOIN;
	envelope.group_join = &join;
	bootstrap_set_id(&join.member, bootstrap);
	join.job = bootstrap->job;
	join.host = bootstrap->host;
	join.rank = (uint32_t)bootstrap->rank;
	join.ranks = (uint32_t)bootstrap->ranks;
	join.lost_s = (uint32_t)settings_get()->control_lost_s;
	if (bootstrap->state == BOOTSTRAP_AWAY)
		err = post_rejoin(bootstrap, &join, &envelope);
	else
		err = control_post(&envelope, -1);
	/* The connection reports all other failures. */
	if (err == -ENOMEM)
		bootstrap_fail(bootstrap, err, "no memory for a message to the control daemon");
}

/* ---- pieces */

struct bootstrap_piece *bootstrap_own_piece(const struct bootstrap *bootstrap, uint32_t round)
{
	return &bootstrap->pieces[round % 2][bootstrap->rank];
}

int bootstrap_post_piece(struct bootstrap *bootstrap, uint32_t round)
{
	const struct bootstrap_piece *mine = bootstrap_own_piece(bootstrap, round);
	/* Pieces of this round and the last one are kept; no rank lacks earlier ones. */
	bool is_kept = mine->bytes && bootstrap->round - round <= 1;
	Ctl__GroupPiece piece = CTL__GROUP_PIECE__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_PIECE;
	envelope.group_piece = &piece;
	bootstrap_set_id(&piece.member, bootstrap);
	piece.rank = (uint32_t)bootstrap->rank;
	piece.round = round;
	piece.gone = !is_kept;
	if (is_kept)
		piece.data = (ProtobufCBinaryData){ mine->size, mine->bytes };
	return control_post(&envelope, -1);
}

void bootstrap_resend(struct bootstrap *bootstrap, uint32_t round, uint32_t rounds)
{
	for (uint32_t i = 0; i < rounds && i < 2; i++)
		if (bootstrap_post_piece(bootstrap, round + i) == -ENOMEM)
			bootstrap_fail(bootstrap, -ENOMEM, "no memory to resend lost pieces");
}
