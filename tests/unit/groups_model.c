/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/groups_model.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

bool model_is_in(const struct model *model)
{
	return model->state == MODEL_JOINED || model->state == MODEL_AWAY ||
		model->state == MODEL_BACK;
}

bool model_misses(const struct model *model, uint32_t other)
{
	return model->left[other] || model->dead_ns[other];
}

bool model_has_all(const struct model *model, const struct model *other)
{
	uint32_t last = other->given - 1;

	return other->given == 0 || (int32_t)(last - model->round) < 0 ||
		model->has[last % 2][other->rank.number];
}

static void end_badly(struct model *model, const char *why)
{
	model->state = MODEL_FAILED;
	snprintf(model->why, sizeof(model->why), "%s", why);
}

/* ---- what it says */

static void post_join(struct model *model)
{
	Ctl__GroupJoin join = CTL__GROUP_JOIN__INIT;
	uint8_t left = 0;

	set_member(&join.member, &model->rank);
	join.job = model->job;
	join.host = model->keeper;
	join.rank = model->rank.number;
	join.ranks = model->ranks;
	join.lost_s = model->lost_s;
	for (uint32_t i = 0; i < model->ranks; i++)
		left = (uint8_t)(left | (model->left[i] << i));
	if (model->state == MODEL_AWAY) {
		join.resumes = true;
		join.group = model->group;
		join.done = model->round;
		join.gives = model->given != model->round;
		join.met = model->met;
		join.left = (ProtobufCBinaryData){ 1, &left };
		join.aborted = model->gave_up;
	}
	process_say(model->rank.process, CTL__ENVELOPE__BODY_GROUP_JOIN, &join);
}

static void post_piece(struct model *model, uint32_t round)
{
	bool is_kept = round == model->round || round == model->round - 1;
	Ctl__GroupPiece piece = CTL__GROUP_PIECE__INIT;
	char text[64];

	set_member(&piece.member, &model->rank);
	piece.rank = model->rank.number;
	piece.round = round;
	piece.gone = !is_kept;
	snprintf(text, sizeof(text), "%u of %u", round, piece.rank);
	if (is_kept)
		piece.data = (ProtobufCBinaryData){ strlen(text), (uint8_t *)text };
	process_say(model->rank.process, CTL__ENVELOPE__BODY_GROUP_PIECE, &piece);
}

void model_join(struct model *model, struct world *world, int host, uint32_t pid, const char *job,
	const char *keeper, uint32_t number, uint32_t ranks)
{
	*model = (struct model){ .world = world, .ranks = ranks, .lost_s = model->lost_s };
	model->state = MODEL_JOINING;
	model->rank.process = world_process(world, host, USER, pid);
	model->rank.number = number;
	memcpy(model->rank.id, &pid, sizeof(pid));
	memcpy(model->rank.id + 8, job, strlen(job) < 8 ? strlen(job) : 8);
	snprintf(model->job, sizeof(model->job), "%s", job);
	snprintf(model->keeper, sizeof(model->keeper), "%s", keeper);
	post_join(model);
}

void model_give(struct model *model)
{
	if (model->state != MODEL_JOINED || model->given != model->round || model->gave_up)
		return;
	for (uint32_t i = 0; i < model->ranks; i++)
		if (model->aborted[i] || model->dead_ns[i])
			return;
	model->given++;
	post_piece(model, model->round);
}

void model_leave(struct model *model, bool aborts)
{
	Ctl__GroupLeave leave = CTL__GROUP_LEAVE__INIT;

	set_member(&leave.member, &model->rank);
	leave.aborts = aborts;
	process_say(model->rank.process, CTL__ENVELOPE__BODY_GROUP_LEAVE, &leave);
	model->gave_up = aborts;
	if (!aborts)
		model->state = MODEL_OVER;
}

void model_die(struct model *model)
{
	if (model->rank.process && !model->rank.process->ended)
		process_die(model->rank.process);
	model->state = MODEL_OVER;
}

/* ---- what it hears */

static void lose(struct model *model)
{
	model->state = MODEL_AWAY;
	model->lost_ns = world_now(model->world) + (model->lost_s ? model->lost_s : 15) * WORLD_S;
}

static void on_piece(struct model *model, const Ctl__GroupPiece *piece)
{
	int32_t ahead = (int32_t)(piece->round - model->round);
	char text[64];

	ck_assert_uint_lt(piece->rank, model->ranks);
	ck_assert_uint_ne(piece->rank, model->rank.number);
	ck_assert_int_le(ahead, 1);
	snprintf(text, sizeof(text), "%u of %u", piece->round, piece->rank);
	ck_assert_uint_eq(piece->data.len, strlen(text));
	ck_assert_mem_eq(piece->data.data, text, strlen(text));
	if (ahead < 0 || model->has[piece->round % 2][piece->rank]) {
		model->repeated++;
		return;
	}
	model->has[piece->round % 2][piece->rank] = true;
	model->pieces++;
}

static void on_again(struct model *model, const Ctl__GroupEvent *event)
{
	ck_assert_uint_ge(event->rounds, 1);
	ck_assert_uint_le(event->rounds, 2);
	ck_assert_int_le((int32_t)(event->round + event->rounds - model->given), 0);
	for (uint32_t i = 0; i < event->rounds; i++)
		post_piece(model, event->round + i);
}

static void on_event(struct model *model, const Ctl__GroupEvent *event)
{
	ck_assert_uint_lt(event->rank, MODEL_RANKS);
	switch ((int)event->kind) {
	case LEFT: model->left[event->rank] = true; return;
	case ABORTED: model->aborted[event->rank] = true; return;
	case DEAD:
		if (!model->why[0])
			snprintf(model->why, sizeof(model->why), "%s", event->text);
		model->dead_ns[event->rank] = world_now(model->world);
		return;
	case CTL__GROUP_EVENT_KIND__GROUP_REFUSED:
	case LOST: end_badly(model, event->text); return;
	case AWAY:
		if (model->state == MODEL_JOINED || model->state == MODEL_BACK) {
			lose(model);
			post_join(model);
		}
		return;
	case MET:
		model->met = true;
		if (model->state == MODEL_BACK)
			model->state = MODEL_JOINED;
		return;
	case AGAIN: on_again(model, event); return;
	default: ck_abort_msg("event %d", (int)event->kind);
	}
}

static void on_joined(struct model *model, const Ctl__GroupJoined *joined)
{
	ck_assert(model->state == MODEL_JOINING || model->state == MODEL_AWAY);
	model->state = model->state == MODEL_AWAY ? MODEL_BACK : MODEL_JOINED;
	model->group = joined->group;
}

/* A round is over when it has come from all who have not gone. */
static void go_on(struct model *model)
{
	bool *has = model->has[model->round % 2];

	if (!model_is_in(model) || model->given == model->round)
		return;
	for (uint32_t i = 0; i < model->ranks; i++)
		if (i != model->rank.number && !has[i] && !model_misses(model, i))
			return;
	memset(has, 0, sizeof(model->has[0]));
	model->round++;
}

void model_hear(struct model *model)
{
	Ctl__Envelope *envelope;

	if (!model->rank.process)
		return;
	while ((envelope = process_take_any(model->rank.process)) != NULL) {
		if (model->state == MODEL_OVER || model->state == MODEL_FAILED) {
			/* It does not listen any more. */
		} else if (envelope->body_case == CTL__ENVELOPE__BODY_GROUP_JOINED) {
			on_joined(model, envelope->group_joined);
		} else if (envelope->body_case == CTL__ENVELOPE__BODY_GROUP_PIECE) {
			on_piece(model, envelope->group_piece);
		} else if (envelope->body_case == CTL__ENVELOPE__BODY_GROUP_EVENT) {
			on_event(model, envelope->group_event);
		} else {
			ck_abort_msg("body %d", (int)envelope->body_case);
		}
		ctl__envelope__free_unpacked(envelope, NULL);
		go_on(model);
	}
	if (model->rank.process->ended &&
		(model->state == MODEL_JOINED || model->state == MODEL_BACK))
		lose(model);
	if (model->state == MODEL_AWAY && world_now(model->world) >= model->lost_ns)
		end_badly(model, "a daemon was not back in time");
	go_on(model);
}

void model_come_back(struct model *model)
{
	struct process *process = model->rank.process;

	model_hear(model);
	if (!process || !process->ended || model->state == MODEL_OVER ||
		model->state == MODEL_FAILED)
		return;
	process_come_back(process);
	post_join(model);
}
