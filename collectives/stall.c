/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When nothing happens: is a rank gone, is one in another operation, or does it take too long? In
 * the last case all ranks are asked what they wait for, and the answers are the failure's text.
 */
#include "collectives/communicator.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	CHECK_EVERY_MS = 5,
	AWAITED_MS = 20, /* so long nothing has moved before somebody counts as awaited */
	PROBE_AFTER_MS = 200,
	PROBE_EVERY_MS = 1000,
	ANSWERS_MS = 1000, /* how long reports are awaited */
	ABSENT_MS = 1000,  /* since when nobody has called the library */
};

/* What a rank says it is doing; see struct state_note. */
struct report {
	bool has_answered;
	bool is_there; /* it has this communicator */
	uint32_t number, coll, oldest;
	int32_t awaited;
	uint64_t since_ms, polled_ms;
};

static void note(_Atomic uint32_t *to, uint32_t value)
{
	atomic_store_explicit(to, value, memory_order_relaxed);
}

void comm_note_operation(struct frl_comm *comm)
{
	const struct frl_request *request = comm->active.first;
	const struct run *run = request ? request->runs : NULL;
	struct state_note *to = &comm->post.note;

	note(&to->number, comm->started);
	note(&to->coll, run ? run->signature.coll : FRL_COLLS);
	note(&to->oldest, run ? run->signature.number : 0);
}

/* ---- who is awaited */

/* The peer of the first step that is not complete, preferably of one that receives; -1: none. */
static int awaited_by(const struct run *run)
{
	const struct plan *plan = run->schedule ? &run->schedule->plan : NULL;
	int sends_to = -1;

	for (uint32_t i = 0; plan && i < plan->n_steps; i++) {
		const struct plan_step *step = &plan->steps[i];

		if (run->done[i] == step->count || step->kind == PLAN_LOCAL)
			continue;
		if (step->kind == PLAN_RECEIVES)
			return (int)step->peer;
		if (sends_to < 0)
			sends_to = (int)step->peer;
	}
	return sends_to;
}

static int awaited(const struct frl_comm *comm)
{
	const struct frl_request *request = comm->active.first;

	for (const struct run *run = request ? request->runs : NULL; run; run = run->next) {
		if (run->left > 0)
			return run->schedule ? awaited_by(run) : comm->rank;
	}
	return -1;
}

/* Since when the request has not moved. */
static void note_moves(struct frl_request *request, uint64_t now_ns)
{
	if (request->seen_moves != request->moves || request->since_ns == 0) {
		request->seen_moves = request->moves;
		request->since_ns = now_ns;
	}
}

/* ---- ranks in other operations */

int comm_compare(struct frl_comm *comm, int peer, const struct signature *theirs)
{
	const struct signature *mine = &comm->history[theirs->number % HISTORY];

	/* Not started here yet, or forgotten, or not numbered. */
	if (theirs->coll == FRL_SEND || comm->started - theirs->number - 1 >= HISTORY ||
		theirs->number >= comm->started)
		return 0;
	if (memcmp(theirs, mine, sizeof(*mine)) == 0)
		return 0;
	return comm_fail_mismatch(comm, peer, theirs, mine);
}

static const struct signature *signature_in(const struct lane *lane, const struct flight *flight)
{
	if (flight && flight->first != flight->next)
		return &flight->segments[flight->first % flight->size].run->signature;
	return lane->first ? &lane->first->run->signature : NULL;
}

/* Tells those who are awaited what this rank is in: if they are in something else, they see it. */
static int probe(struct frl_comm *comm)
{
	for (struct peer *peer = comm->first_peer; peer; peer = peer->next) {
		const struct signature *signature = signature_in(
			&peer->lanes[LANE_RECV_BULK], &peer->receives);
		int err;

		if (!signature)
			signature = signature_in(&peer->lanes[LANE_SEND_BULK], &peer->sends);
		if (!signature)
			signature = signature_in(&peer->lanes[LANE_RECV_EAGER], NULL);
		if (!signature)
			signature = signature_in(&peer->lanes[LANE_SEND_EAGER], NULL);
		if (!signature || !peer->is_up)
			continue;
		err = channel_probe(peer->channels[0], signature);
		if (err)
			return err;
	}
	return 0;
}

/* ---- reports */

void comm_take_report(struct frl_comm *comm, int rank, const uint8_t *bytes, size_t size)
{
	if (size != REPORT_SIZE || !comm->stall.reports ||
		get_number(bytes, REPORT_QUESTION_SIZE) != comm->stall.question)
		return;
	comm->stall.reports[rank] = (struct report){
		.has_answered = true,
		.is_there = get_number(bytes + 4, 4) != 0,
		.number = (uint32_t)get_number(bytes + 8, 4),
		.coll = (uint32_t)get_number(bytes + 12, 4),
		.oldest = (uint32_t)get_number(bytes + 16, 4),
		.awaited = (int32_t)get_number(bytes + 20, 4),
		.since_ms = get_number(bytes + 24, 6),
		.polled_ms = get_number(bytes + 30, 6),
	};
}

static int ask_all(struct frl_comm *comm, uint64_t now_ns)
{
	uint8_t question[REPORT_QUESTION_SIZE];

	comm->stall.reports = calloc((size_t)comm->ranks, sizeof(*comm->stall.reports));
	if (!comm->stall.reports)
		return comm_fail(comm, -ETIMEDOUT, "rank %d waited for %d ms", comm->rank,
			comm->config.timeout_ms);
	comm->stall.asked_ns = now_ns;
	comm->stall.question++;
	put_number(question, sizeof(question), comm->stall.question);
	for (int rank = 0; rank < comm->ranks; rank++) {
		if (rank != comm->rank)
			board_send(comm->board, comm_member(comm, rank), MAIL_QUESTION, &comm->post,
				question, sizeof(question));
	}
	return 0;
}

static void forget_question(struct frl_comm *comm)
{
	free(comm->stall.reports);
	comm->stall.reports = NULL;
	comm->stall.asked_ns = 0;
}

static bool have_all_answered(const struct frl_comm *comm)
{
	for (int rank = 0; rank < comm->ranks; rank++) {
		if (rank != comm->rank && !comm->stall.reports[rank].has_answered)
			return false;
	}
	return true;
}

/* One rank, in a few words. Those who are to blame come first: see severity(). */
static void describe(char *text, size_t size, const struct frl_comm *comm, int rank,
	const struct signature *mine)
{
	const struct report *r = &comm->stall.reports[rank];
	const char *name = frl_coll_name((enum frl_coll)r->coll);
	double seconds = (double)r->since_ms / 1000;

	if (!r->has_answered)
		snprintf(text, size, "rank %d: no answer (stopped, or cut off)", rank);
	else if (!r->is_there)
		snprintf(text, size, "rank %d: does not have this communicator (any more)", rank);
	else if (mine->coll != FRL_SEND && r->number <= mine->number)
		snprintf(text, size, "rank %d has not started it: %" PRIu32 " so far", rank,
			r->number);
	else if (!name)
		snprintf(text, size, "rank %d is done with it", rank);
	else if (r->polled_ms > ABSENT_MS)
		snprintf(text, size,
			"rank %d is in %s #%" PRIu32 ", and has not called the library for %.1f s",
			rank, name, r->oldest, (double)r->polled_ms / 1000);
	else if (r->awaited >= 0)
		snprintf(text, size, "rank %d waits for rank %d in %s #%" PRIu32 " since %.1f s",
			rank, r->awaited, name, r->oldest, seconds);
	else
		snprintf(text, size, "rank %d is in %s #%" PRIu32, rank, name, r->oldest);
}

/* 0: to blame; 1: it may be; 2: waits as this rank does. */
static int severity(const struct report *r, const struct signature *mine)
{
	if (!r->has_answered || !r->is_there ||
		(mine->coll != FRL_SEND && r->number <= mine->number))
		return 0;
	return r->coll >= FRL_COLLS || r->polled_ms > ABSENT_MS ? 1 : 2;
}

struct text {
	char *at;
	size_t size, length;
	unsigned left_out;
};

static void add(struct text *text, const char *separator, const char *part)
{
	size_t length = strlen(separator) + strlen(part);

	if (text->length + length + 32 > text->size) {
		text->left_out++;
		return;
	}
	text->length += (size_t)snprintf(
		text->at + text->length, text->size - text->length, "%s%s", separator, part);
}

static int fail_timed_out(struct frl_comm *comm, const struct run *run)
{
	const struct signature *mine = &run->signature;
	char line[160], all[ERROR_TEXT];
	struct text text = { .at = all, .size = sizeof(all) };

	snprintf(line, sizeof(line), "%s #%" PRIu32 " made no progress on rank %d for %d ms",
		frl_coll_name((enum frl_coll)mine->coll), mine->number, comm->rank,
		comm->config.timeout_ms);
	add(&text, "", line);
	snprintf(line, sizeof(line), "it waits for rank %d", awaited(comm));
	add(&text, ": ", line);
	for (int pass = 0; pass < 3; pass++) {
		for (int rank = 0; rank < comm->ranks; rank++) {
			if (rank == comm->rank ||
				severity(&comm->stall.reports[rank], mine) != pass)
				continue;
			describe(line, sizeof(line), comm, rank, mine);
			frl_log(FRL_LOG_ERROR, "communicator, rank %d: %s", comm->rank, line);
			add(&text, "; ", line);
		}
	}
	if (text.left_out)
		snprintf(all + text.length, sizeof(all) - text.length, "; and %u ranks more",
			text.left_out);
	forget_question(comm);
	return comm_fail(comm, -ETIMEDOUT, "%s", all);
}

/* Asks first, and fails when the answers are there. */
static int time_out(struct frl_comm *comm, const struct frl_request *request, uint64_t now_ns)
{
	const struct run *run = request->runs;

	if (comm->ranks > 1 && !comm->stall.asked_ns)
		return ask_all(comm, now_ns);
	if (comm->ranks > 1 && !have_all_answered(comm) &&
		now_ns - comm->stall.asked_ns < (uint64_t)ANSWERS_MS * NS_PER_MS)
		return 0;
	while (run->left == 0)
		run = run->next;
	return fail_timed_out(comm, run);
}

/* ---- the look at the clock */

static int check_progress(struct frl_comm *comm, uint64_t now_ns)
{
	uint64_t timeout_ms = (uint64_t)comm->config.timeout_ms, longest = 0, moved_ns = 0;
	struct frl_request *late = NULL;
	struct state_note *to = &comm->post.note;

	for (struct frl_request *r = comm->active.first; r; r = r->next) {
		uint64_t ms;

		note_moves(r, now_ns);
		/* It may only wait for its turn behind an earlier one that goes on. */
		if (r->since_ns > moved_ns)
			moved_ns = r->since_ns;
		ms = (now_ns - moved_ns) / NS_PER_MS;
		if (ms > longest)
			longest = ms;
		if (timeout_ms && ms >= timeout_ms && !late)
			late = r;
	}
	atomic_store_explicit(
		&to->awaited, longest >= AWAITED_MS ? awaited(comm) : -1, memory_order_relaxed);
	atomic_store_explicit(&to->since_ns, now_ns - longest * NS_PER_MS, memory_order_relaxed);
	if (late)
		return time_out(comm, late, now_ns);
	if (comm->stall.asked_ns)
		forget_question(comm);
	if (longest < PROBE_AFTER_MS ||
		now_ns - comm->stall.probed_ns < (uint64_t)PROBE_EVERY_MS * NS_PER_MS)
		return 0;
	comm->stall.probed_ns = now_ns;
	return probe(comm);
}

int comm_look_at_clock(struct frl_comm *comm)
{
	uint64_t now_ns = clock_now_ns();
	int err;

	comm->stall.polls = comm->stall.idle_polls = 0;
	if (now_ns - comm->stall.checked_ns < (uint64_t)CHECK_EVERY_MS * NS_PER_MS)
		return 0;
	comm->stall.checked_ns = now_ns;
	atomic_store_explicit(&comm->post.note.polled_ns, now_ns, memory_order_relaxed);
	if (comm->ranks == 1)
		return check_progress(comm, now_ns);
	err = comm_check_ranks(comm);
	if (!err)
		err = channels_ask_again(comm, now_ns);
	return err ? err : check_progress(comm, now_ns);
}
