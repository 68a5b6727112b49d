/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of the rank: waiting for the other ranks' pieces, and looking at their state. */
#include "lib/api/bootstrap/bootstrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	GATHER_MAX = 1024 * 1024,
	NAMES_MAX = 16, /* missing ranks that an error names */
	NAMES_SIZE = NAMES_MAX * 12 + 8,
	/* Limit of bytes in flight to one rank: daemons buffer little for slow readers. */
	AHEAD_BYTES = 1024 * 1024,
};

/* Sets the caller's last error to the rank that is gone; returns 0 if none is. */
static int report_gone(const struct bootstrap *bootstrap, int *ret_rank)
{
	const struct bootstrap_loss *dead = &bootstrap->dead, *aborted = &bootstrap->aborted;

	/* A dead rank is the cause if other ranks gave up because of it. */
	if (dead->rank != BOOTSTRAP_NO_RANK) {
		*ret_rank = dead->rank;
		return frl_fail(-ECONNRESET, "rank %d is gone: %s", dead->rank,
			dead->text[0] ? dead->text : "its process ended without leaving the job");
	}
	if (aborted->rank != BOOTSTRAP_NO_RANK) {
		*ret_rank = aborted->rank;
		return frl_fail(-ECONNRESET, "rank %d is gone: %s", aborted->rank,
			aborted->text[0] ? aborted->text : "it gave up");
	}
	if (bootstrap->state == BOOTSTRAP_FAILED) {
		*ret_rank = -1;
		return frl_fail(-ECONNRESET, "%s", bootstrap->why);
	}
	return 0;
}

int bootstrap_check(void *ctx, int *ret_rank)
{
	struct bootstrap *bootstrap = ctx;
	int err;

	pthread_mutex_lock(&bootstrap->mutex);
	err = report_gone(bootstrap, ret_rank);
	pthread_mutex_unlock(&bootstrap->mutex);
	return err;
}

bool bootstrap_has_left(void *ctx, int rank)
{
	struct bootstrap *bootstrap = ctx;
	bool left;

	pthread_mutex_lock(&bootstrap->mutex);
	left = rank >= 0 && rank < bootstrap->ranks && bootstrap->left[rank];
	pthread_mutex_unlock(&bootstrap->mutex);
	return left;
}

/* ---- allgather */

static struct bootstrap_piece *piece_of(const struct bootstrap *bootstrap, int rank)
{
	return &bootstrap->pieces[bootstrap->round % 2][rank];
}

/* Returns the first rank in [rank, end) whose piece is missing, or `end`. */
static int next_missing(const struct bootstrap *bootstrap, int rank, int end)
{
	while (rank < end && (rank == bootstrap->rank || piece_of(bootstrap, rank)->bytes))
		rank++;
	return rank;
}

/* Writes the ranks whose pieces are missing: "1, 2, 5". */
static void name_missing(const struct bootstrap *bootstrap, char names[NAMES_SIZE])
{
	size_t length = 0;
	int rank = next_missing(bootstrap, 0, bootstrap->ranks);

	names[0] = '\0';
	for (int n = 0; rank < bootstrap->ranks;
		rank = next_missing(bootstrap, rank + 1, bootstrap->ranks)) {
		if (n++ == NAMES_MAX) {
			memcpy(names + length, ", ...", sizeof(", ..."));
			break;
		}
		length += (size_t)snprintf(
			names + length, NAMES_SIZE - length, "%s%d", n > 1 ? ", " : "", rank);
	}
}

/* In the first allgather some ranks may not be running yet, or run elsewhere. */
static void log_missing(const struct bootstrap *bootstrap)
{
	char names[NAMES_SIZE];

	name_missing(bootstrap, names);
	frl_log(FRL_LOG_WARNING, "job %s: waiting for rank %s of %d%s", bootstrap->job, names,
		bootstrap->ranks,
		bootstrap->round > 0 ? ", which has joined"
				     : ": all need the same user, job name and job host");
}

static void log_away(const struct bootstrap *bootstrap)
{
	frl_log(FRL_LOG_WARNING, "job %s: waiting for control daemons, or for ranks to join again",
		bootstrap->job);
}

static int report_missing(struct bootstrap *bootstrap)
{
	char names[NAMES_SIZE];

	/* Late pieces of this round may still arrive, so later rounds would be wrong. */
	bootstrap_fail(bootstrap, -ETIMEDOUT, "an earlier call timed out waiting for other ranks");
	name_missing(bootstrap, names);
	return frl_fail(-ETIMEDOUT, "waited %d ms for rank %s", bootstrap->timeout_ms, names);
}

/* Waits until the pieces of ranks [first, end) have arrived. */
static int collect(struct bootstrap *bootstrap, int first, int end, uint64_t deadline_ns)
{
	struct reminder reminder = reminder_start(clock_now_ns());
	bool in_time = true;

	for (;;) {
		int missing = next_missing(bootstrap, first, end), gone, err;

		if (missing == end)
			return 0;
		err = report_gone(bootstrap, &gone);
		if (err)
			return err;
		for (; missing < end; missing = next_missing(bootstrap, missing + 1, end)) {
			if (bootstrap->left[missing])
				return frl_fail(
					-ECONNRESET, "rank %d is gone: it has left", missing);
		}
		if (!in_time)
			return report_missing(bootstrap);
		in_time = bootstrap_wait_logged(bootstrap, deadline_ns, &reminder, log_missing);
	}
}

static void drop_piece(struct bootstrap_piece *piece)
{
	free(piece->bytes);
	*piece = (struct bootstrap_piece){ 0 };
}

/* Copies the pieces to the caller, and makes room for those of the next round. */
static int deliver(struct bootstrap *bootstrap, const void *mine, size_t size, uint8_t *all)
{
	int err = 0;

	for (int rank = 0; rank < bootstrap->ranks; rank++) {
		struct bootstrap_piece *piece = piece_of(bootstrap, rank);

		if (rank == bootstrap->rank) {
			if (size > 0)
				memcpy(all + (size_t)rank * size, mine, size);
			continue;
		}
		if (piece->size != size && !err)
			err = frl_fail(-EPROTO,
				"rank %d sent %zu bytes, this rank %zu: all ranks must make the "
				"same calls",
				rank, piece->size, size);
		else if (!err && size > 0)
			memcpy(all + (size_t)rank * size, piece->bytes, size);
		drop_piece(piece);
	}
	/*
	 * All ranks have sent their piece of this round, so they have all pieces of the last one.
	 */
	drop_piece(bootstrap_own_piece(bootstrap, bootstrap->round - 1));
	bootstrap->round++;
	return err;
}

/*
 * Limits the large pieces in flight: a rank sends its own after that of a rank some places before.
 */
static int await_turn(struct bootstrap *bootstrap, size_t size, uint64_t deadline_ns)
{
	size_t ahead = size > 0 ? AHEAD_BYTES / size : AHEAD_BYTES;
	int before = (size_t)bootstrap->rank >= ahead ? bootstrap->rank - (int)ahead : -1;

	return before < 0 ? 0 : collect(bootstrap, before, before + 1, deadline_ns);
}

/* Waits until messages to the other ranks are allowed. */
static int await_others(struct bootstrap *bootstrap, uint64_t deadline_ns)
{
	struct reminder reminder = reminder_start(clock_now_ns());
	bool in_time = true;
	int gone, err;

	while ((err = report_gone(bootstrap, &gone)) == 0 && bootstrap_is_away(bootstrap)) {
		if (!in_time)
			return frl_fail(-ETIMEDOUT,
				"waited %d ms for control daemons, and for ranks to join again",
				bootstrap->timeout_ms);
		in_time = bootstrap_wait_logged(bootstrap, deadline_ns, &reminder, log_away);
	}
	return err;
}

/* Keeps the piece after this round: other ranks may request it. */
static int keep_piece(struct bootstrap *bootstrap, const void *mine, size_t size)
{
	struct bootstrap_piece *piece = bootstrap_own_piece(bootstrap, bootstrap->round);

	drop_piece(piece);
	piece->bytes = malloc(size > 0 ? size : 1);
	if (!piece->bytes)
		return frl_fail(-ENOMEM, "no memory for a piece of %zu bytes", size);
	if (size > 0)
		memcpy(piece->bytes, mine, size);
	piece->size = size;
	return 0;
}

static int gather(struct bootstrap *bootstrap, const void *mine, size_t size, void *all)
{
	uint64_t deadline_ns = bootstrap_deadline(bootstrap->timeout_ms);
	int err;

	/* The daemon may be lost while this rank waits for its turn; then do not post. */
	do {
		err = await_others(bootstrap, deadline_ns);
		if (!err)
			err = await_turn(bootstrap, size, deadline_ns);
	} while (!err && bootstrap->state != BOOTSTRAP_JOINED);
	if (!err)
		err = keep_piece(bootstrap, mine, size);
	if (err)
		return err;
	bootstrap->n_sent = bootstrap->round + 1;
	err = bootstrap_post_piece(bootstrap, bootstrap->round);
	if (err == -ENOMEM)
		return frl_fail(err, "no memory for a message to the control daemon");
	/* The connection reports all other failures. */
	err = collect(bootstrap, 0, bootstrap->ranks, deadline_ns);
	return err ? err : deliver(bootstrap, mine, size, all);
}

int bootstrap_allgather(void *ctx, const void *mine, size_t size, void *all)
{
	struct bootstrap *bootstrap = ctx;
	int err;

	if (size > GATHER_MAX)
		return frl_fail(
			-EINVAL, "%zu bytes: an allgather carries at most %d", size, GATHER_MAX);
	pthread_mutex_lock(&bootstrap->mutex);
	err = gather(bootstrap, mine, size, all);
	pthread_mutex_unlock(&bootstrap->mutex);
	return err;
}
