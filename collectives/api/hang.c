/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hang detection: finds out whether a rank is gone, is in another operation, or exceeds the
 * timeout. In the last case all ranks are asked what they wait for, and the answers become the
 * error text.
 */
#include "collectives/api/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/net/channel.h"
#include "collectives/plan/shapes.h"
#include "collectives/shm/shm.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	CHECK_EVERY_MS = 5,
	AWAITED_MS = 20, /* time without progress after which a rank counts as awaited */
	PROBE_AFTER_MS = 200,
	PROBE_EVERY_MS = 1000,
	/* Reports are awaited for the timeout again, within these limits. */
	ANSWERS_LEAST_MS = 1000,
	ANSWERS_MOST_MS = 10000,
	ABSENT_MS = 1000, /* time without library calls after which a rank counts as absent */
};

/* The state that a rank reports; see struct state_note. */
struct report {
	bool has_answered;
	bool is_there; /* it has this communicator */
	uint32_t number, coll, oldest;
	uint64_t count;
	int32_t awaited;
	uint64_t since_ms, polled_ms;
	uint32_t down_rails; /* bit i: the port of rail i has no link */
};

static void note(_Atomic uint32_t *to, uint32_t value)
{
	atomic_store_explicit(to, value, memory_order_relaxed);
}

static uint32_t down_rails(const struct frl_comm *comm)
{
	uint32_t rails = 0;

	for (unsigned i = 0; i < RAILS_MAX; i++)
		rails |= (uint32_t)comm->rails[i].is_down << i;
	return rails;
}

/* Returns the collective as the caller named it. */
static enum frl_coll coll_of(const struct run *run)
{
	return run->signature.coll == FRL_SEND ? run->coll : (enum frl_coll)run->signature.coll;
}

static bool is_pair(uint32_t coll)
{
	return coll < FRL_COLLS && shape_is_pair(coll);
}

/* Returns the peer of a SEND or RECV. */
static uint32_t partner_of(const struct run *run)
{
	return run->schedule ? (uint32_t)run->schedule->key.root : (uint32_t)run->comm->rank;
}

void comm_note_operation(struct frl_comm *comm)
{
	const struct frl_request *request = comm->active.first;
	const struct run *run = request ? request->runs : NULL;
	struct state_note *to = &comm->inbox.note;

	while (run && run->left == 0 && run->next)
		run = run->next;
	note(&to->number, comm->started);
	note(&to->coll, run ? (uint32_t)coll_of(run) : FRL_COLLS);
	if (!run)
		return;
	note(&to->oldest, is_pair(coll_of(run)) ? partner_of(run) : run->signature.number);
	atomic_store_explicit(&to->count, run->signature.count, memory_order_relaxed);
}

/* Describes an operation; `number` is that of a collective, or the peer's rank. */
static void name_operation(
	char *text, size_t size, enum frl_coll coll, uint32_t number, uint64_t count)
{
	if (is_pair(coll))
		snprintf(text, size, "%s of %" PRIu64 " elements %s rank %" PRIu32,
			frl_coll_name(coll), count, coll == FRL_SEND ? "to" : "from", number);
	else
		snprintf(text, size, "%s #%" PRIu32, frl_coll_name(coll), number);
}

/* ---- awaited ranks */

/* Returns the peer of the first incomplete step, preferring receives; -1: none. */
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

/* Returns the first incomplete run of the oldest request, or NULL. */
static const struct run *oldest_run(const struct frl_comm *comm)
{
	const struct frl_request *request = comm->active.first;

	for (const struct run *run = request ? request->runs : NULL; run; run = run->next) {
		if (run->left > 0 || run->is_blocked)
			return run;
	}
	return NULL;
}

/* Returns the rank that this rank waits for: itself if a stream or a GPU is first. */
static int awaited(const struct frl_comm *comm)
{
	const struct run *run = oldest_run(comm);
	int rank = -1;

	if (run && run->is_shm && !run->is_blocked)
		return shm_awaited(comm->shm, run);
	if (run && (!run->schedule || run->is_blocked))
		return comm->rank;
	if (run)
		rank = awaited_by(run);
	return rank < 0 && comm->computes ? comm->rank : rank;
}

static void name_awaited(char *text, size_t size, const struct frl_comm *comm)
{
	const struct run *run = oldest_run(comm);
	int rank = awaited(comm);

	if (run && run->stream_wait)
		snprintf(text, size, "it waits for earlier work in its stream");
	else if (rank == comm->rank && comm->computes && (!run || run->schedule || run->is_shm))
		snprintf(text, size, "it waits for its GPU");
	else
		snprintf(text, size, "it waits for rank %d", rank);
}

/* Updates the time of the request's last progress. */
static void note_moves(struct frl_request *request, uint64_t now_ns)
{
	if (request->seen_moves != request->moves || request->since_ns == 0) {
		request->seen_moves = request->moves;
		request->since_ns = now_ns;
	}
}

/* ---- ranks in other operations */

static const struct run *run_in(const struct peer *peer, enum lane_kind kind)
{
	const struct flight *flight = kind == LANE_SEND_BULK ? &peer->sends
		: kind == LANE_RECV_BULK                     ? &peer->receives
							     : NULL;

	if (flight && flight->first != flight->next)
		return flight->segments[flight->first % flight->size].run;
	return peer->lanes[kind].first ? peer->lanes[kind].first->run : NULL;
}

/* Sends the operation of the first lane that has one, starting with another lane each time. */
static int probe_peer(struct peer *peer, uint32_t turn)
{
	static const enum lane_kind kinds[LANE_PEER_KINDS] = { LANE_RECV_BULK, LANE_SEND_BULK,
		LANE_RECV_EAGER, LANE_SEND_EAGER };
	int err = channel_check_arrivals(peer->channels[0]);

	for (uint32_t i = 0; i < LANE_PEER_KINDS && !err; i++) {
		enum lane_kind kind = kinds[(turn + i) % LANE_PEER_KINDS];
		const struct run *run = run_in(peer, kind);

		if (run)
			return channel_probe(peer->channels[0], run,
				kind == LANE_SEND_BULK || kind == LANE_SEND_EAGER
					? TRANSFER_SENT
					: TRANSFER_RECEIVED);
	}
	return err;
}

/* Sends this rank's operation to all peers, which detect if they are in another one. */
static int probe(struct frl_comm *comm)
{
	uint32_t turn = comm->hang.probes++;

	for (struct peer *peer = comm->first_peer; peer; peer = peer->next) {
		int err = peer->is_up ? probe_peer(peer, turn) : 0;

		if (err)
			return err;
	}
	return 0;
}

/* ---- reports */

void comm_take_report(struct frl_comm *comm, int rank, const uint8_t *bytes, size_t size)
{
	if (size != REPORT_SIZE || !comm->hang.reports ||
		get_number(bytes, REPORT_QUESTION_SIZE) != comm->hang.question)
		return;
	comm->hang.reports[rank] = (struct report){
		.has_answered = true,
		.is_there = get_number(bytes + 4, 4) != 0,
		.number = (uint32_t)get_number(bytes + 8, 4),
		.coll = (uint32_t)get_number(bytes + 12, 4),
		.oldest = (uint32_t)get_number(bytes + 16, 4),
		.awaited = (int32_t)get_number(bytes + 20, 4),
		.since_ms = get_number(bytes + 24, 6),
		.polled_ms = get_number(bytes + 30, 6),
		.down_rails = (uint32_t)get_number(bytes + 36, 1),
		.count = get_number(bytes + 37, 8),
	};
}

/* Asks the other ranks for their reports. Without memory for these, fails the communicator with a
 * text that names no other rank. */
static int send_questions(struct frl_comm *comm, uint64_t now_ns)
{
	uint8_t question[REPORT_QUESTION_SIZE];

	comm->hang.reports = calloc((size_t)comm->ranks, sizeof(*comm->hang.reports));
	if (!comm->hang.reports)
		return comm_fail(comm, -ETIMEDOUT, "rank %d waited for %d ms", comm->rank,
			comm->config.timeout_ms);
	comm->hang.questioned_ns = now_ns;
	comm->hang.question++;
	put_number(question, sizeof(question), comm->hang.question);
	for (int rank = 0; rank < comm->ranks; rank++) {
		if (rank != comm->rank)
			mailbox_send(comm->mailbox, comm_member(comm, rank), MAIL_QUESTION,
				&comm->inbox, question, sizeof(question));
	}
	return 0;
}

static void end_question(struct frl_comm *comm)
{
	free(comm->hang.reports);
	comm->hang.reports = NULL;
	comm->hang.questioned_ns = 0;
}

static bool have_all_answered(const struct frl_comm *comm)
{
	for (int rank = 0; rank < comm->ranks; rank++) {
		if (rank != comm->rank && !comm->hang.reports[rank].has_answered)
			return false;
	}
	return true;
}

/* Describes one rank. Likely causes come first: see severity(). */
static void describe(char *text, size_t size, const struct frl_comm *comm, int rank,
	const struct signature *mine)
{
	const struct report *r = &comm->hang.reports[rank];
	bool has_name = frl_coll_name((enum frl_coll)r->coll) != NULL;
	double seconds = (double)r->since_ms / 1000;
	char name[80];

	if (has_name)
		name_operation(name, sizeof(name), (enum frl_coll)r->coll, r->oldest, r->count);
	if (!r->has_answered)
		snprintf(text, size, "rank %d: no answer (stopped, or cut off)", rank);
	else if (!r->is_there)
		snprintf(text, size, "rank %d: does not have this communicator (any more)", rank);
	else if (mine->coll != FRL_SEND && r->number <= mine->number)
		snprintf(text, size, "rank %d has not started it: %" PRIu32 " so far", rank,
			r->number);
	else if (!has_name)
		snprintf(text, size, "rank %d is done with it", rank);
	else if (r->polled_ms > ABSENT_MS)
		snprintf(text, size, "rank %d is in %s, and has not called the library for %.1f s",
			rank, name, (double)r->polled_ms / 1000);
	else if (r->awaited >= 0)
		snprintf(text, size, "rank %d waits for rank %d in %s since %.1f s", rank,
			r->awaited, name, seconds);
	else
		snprintf(text, size, "rank %d is in %s", rank, name);
}

/* Returns 0 for a likely cause, 1 for a possible cause, 2 for a rank that waits as this one
 * does. */
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
	unsigned omitted;
};

static void add(struct text *text, const char *separator, const char *part)
{
	size_t length = strlen(separator) + strlen(part);

	if (text->length + length + 32 > text->size) {
		text->omitted++;
		return;
	}
	text->length += (size_t)snprintf(
		text->at + text->length, text->size - text->length, "%s%s", separator, part);
}

/* Adds rails whose port has no link, a possible cause. */
static void add_down_rails(struct text *text, int rank, uint32_t rails)
{
	char line[80];
	size_t used = (size_t)snprintf(line, sizeof(line), "rank %d has no link on rail", rank);
	const char *separator = "";

	for (unsigned i = 0; i < RAILS_MAX; i++) {
		if (!(rails >> i & 1))
			continue;
		used += (size_t)snprintf(line + used, sizeof(line) - used, "%s %u", separator, i);
		separator = " and";
	}
	if (rails)
		add(text, "; ", line);
}

static int fail_timed_out(struct frl_comm *comm, const struct run *run)
{
	const struct signature *mine = &run->signature;
	char line[160], name[80], all[ERROR_TEXT];
	struct text text = { .at = all, .size = sizeof(all) };

	name_operation(name, sizeof(name), coll_of(run),
		is_pair(coll_of(run)) ? partner_of(run) : mine->number, mine->count);
	snprintf(line, sizeof(line), "%s made no progress on rank %d for %d ms", name, comm->rank,
		comm->config.timeout_ms);
	add(&text, "", line);
	name_awaited(line, sizeof(line), comm);
	add(&text, ": ", line);
	add_down_rails(&text, comm->rank, down_rails(comm));
	for (int pass = 0; pass < 3; pass++) {
		for (int rank = 0; rank < comm->ranks; rank++) {
			if (rank == comm->rank || severity(&comm->hang.reports[rank], mine) != pass)
				continue;
			describe(line, sizeof(line), comm, rank, mine);
			frl_log(FRL_LOG_ERROR, "communicator, rank %d: %s", comm->rank, line);
			add(&text, "; ", line);
			add_down_rails(&text, rank, comm->hang.reports[rank].down_rails);
		}
	}
	if (text.omitted)
		snprintf(all + text.length, sizeof(all) - text.length, "; and %u ranks more",
			text.omitted);
	end_question(comm);
	return comm_fail(comm, -ETIMEDOUT, "%s", all);
}

/* The wait is long enough for a living rank on a busy machine to answer. */
static bool has_awaited_answers(const struct frl_comm *comm, uint64_t now_ns)
{
	uint64_t ms = (uint64_t)comm->config.timeout_ms;

	if (ms < ANSWERS_LEAST_MS)
		ms = ANSWERS_LEAST_MS;
	if (ms > ANSWERS_MOST_MS)
		ms = ANSWERS_MOST_MS;
	return have_all_answered(comm) || now_ns - comm->hang.questioned_ns >= ms * NS_PER_MS;
}

/* Asks all ranks first, and fails when the answers are there. */
static int time_out(struct frl_comm *comm, const struct frl_request *request, uint64_t now_ns)
{
	const struct run *run = request->runs;

	if (comm->ranks > 1 && !comm->hang.questioned_ns)
		return send_questions(comm, now_ns);
	if (comm->ranks > 1 && !has_awaited_answers(comm, now_ns))
		return 0;
	while (run->left == 0 && run->next)
		run = run->next;
	return fail_timed_out(comm, run);
}

/* ---- the clock check */

/* Time in which this rank did not poll does not count against others. */
static void skip_absence(struct frl_comm *comm, uint64_t absent_ns)
{
	const uint64_t least_ns = (uint64_t)ABSENT_MS * NS_PER_MS;

	if (absent_ns <= least_ns)
		return;
	for (struct frl_request *r = comm->active.first; r; r = r->next) {
		if (r->since_ns)
			r->since_ns += absent_ns - least_ns;
	}
}

static int check_progress(struct frl_comm *comm, uint64_t now_ns)
{
	/* A rank that leaves has another deadline. */
	uint64_t timeout_ms = comm->draining ? 0 : (uint64_t)comm->config.timeout_ms;
	uint64_t longest = 0, moved_ns = 0;
	struct frl_request *late = NULL;
	struct state_note *to = &comm->inbox.note;

	for (struct frl_request *r = comm->active.first; r; r = r->next) {
		uint64_t ms;

		note_moves(r, now_ns);
		/* A request may only wait for an earlier one that makes progress. */
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
	/* Operations of a group may have completed since the note was written. */
	if (longest >= AWAITED_MS)
		comm_note_operation(comm);
	if (late)
		return time_out(comm, late, now_ns);
	if (comm->hang.questioned_ns)
		end_question(comm);
	if (longest < PROBE_AFTER_MS ||
		now_ns - comm->hang.probed_ns < (uint64_t)PROBE_EVERY_MS * NS_PER_MS)
		return 0;
	comm->hang.probed_ns = now_ns;
	note(&to->down_rails, down_rails(comm));
	return probe(comm);
}

int comm_check_clock(struct frl_comm *comm)
{
	uint64_t now_ns = clock_now_ns();
	int err;

	comm->hang.polls = comm->hang.idle_polls = 0;
	if (now_ns - comm->hang.checked_ns < (uint64_t)CHECK_EVERY_MS * NS_PER_MS)
		return 0;
	skip_absence(comm, now_ns - comm->hang.checked_ns);
	comm->hang.checked_ns = now_ns;
	atomic_store_explicit(&comm->inbox.note.polled_ns, now_ns, memory_order_relaxed);
	if (comm->ranks == 1)
		return check_progress(comm, now_ns);
	err = comm_check_ranks(comm);
	if (!err)
		err = channels_repeat_mail(comm, now_ns);
	if (!err && comm->n_rails > 1)
		err = channels_check_rails(comm);
	return err ? err : check_progress(comm, now_ns);
}
