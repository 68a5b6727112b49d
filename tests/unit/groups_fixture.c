/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/groups_fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world *group_world;
char group_refusal[512];
static uint8_t next_id;

void groups_setup(void)
{
	group_world = world_create(7);
	world_add_host(group_world, "nodea", NULL);
	next_id = 0;
}

void groups_teardown(void)
{
	world_destroy(group_world);
}

void set_member(ProtobufCBinaryData *to, struct rank *rank)
{
	*to = (ProtobufCBinaryData){ .len = UUID_SIZE, .data = rank->id };
}

struct rank rank_on(int host, uint32_t uid)
{
	static uint32_t pid = 100;
	struct rank rank = { .process = world_process(group_world, host, uid, ++pid) };

	memset(rank.id, ++next_id, sizeof(rank.id));
	return rank;
}

int rank_join(struct rank *rank, const char *job, const char *host, uint32_t number, uint32_t ranks,
	bool with_seq)
{
	Ctl__GroupJoin join = CTL__GROUP_JOIN__INIT;
	Ctl__Envelope envelope, *answer;
	int error = 0;

	envelope = envelope_of(CTL__ENVELOPE__BODY_GROUP_JOIN, &join);
	set_member(&join.member, rank);
	join.job = (char *)(uintptr_t)job;
	join.host = (char *)(uintptr_t)host;
	join.rank = number;
	join.ranks = ranks;
	rank->number = number;
	if (with_seq) {
		answer = process_call(rank->process, &envelope);
	} else {
		process_send(rank->process, &envelope);
		world_settle(group_world);
		answer = process_take_any(rank->process);
	}
	ck_assert_msg(answer != NULL, "no answer to a join");
	if (answer->body_case == CTL__ENVELOPE__BODY_FAILURE) {
		error = (int)answer->failure->error;
		snprintf(group_refusal, sizeof(group_refusal), "%s", answer->failure->text);
	} else if (answer->body_case == CTL__ENVELOPE__BODY_GROUP_EVENT) {
		ck_assert_int_eq(answer->group_event->kind, CTL__GROUP_EVENT_KIND__GROUP_REFUSED);
		ck_assert_mem_eq(answer->group_event->member.data, rank->id, UUID_SIZE);
		error = (int)answer->group_event->refusal;
		snprintf(group_refusal, sizeof(group_refusal), "%s", answer->group_event->text);
	} else {
		ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_GROUP_JOINED);
		ck_assert_mem_eq(answer->group_joined->member.data, rank->id, UUID_SIZE);
	}
	ctl__envelope__free_unpacked(answer, NULL);
	return error;
}

/* A rank of user 1000 that has joined. */
struct rank rank_joined(
	int host, const char *job, const char *keeper, uint32_t number, uint32_t ranks)
{
	struct rank rank = rank_on(host, USER);
	int error = rank_join(&rank, job, keeper, number, ranks, true);

	ck_assert_msg(error == 0, "%s", group_refusal);
	return rank;
}

void rank_give(struct rank *rank, uint32_t round, const void *data, size_t size)
{
	Ctl__GroupPiece piece = CTL__GROUP_PIECE__INIT;

	set_member(&piece.member, rank);
	piece.round = round;
	piece.data = (ProtobufCBinaryData){ size, (uint8_t *)(uintptr_t)data };
	process_say(rank->process, CTL__ENVELOPE__BODY_GROUP_PIECE, &piece);
	world_settle(group_world);
}

void rank_give_text(struct rank *rank, uint32_t round, const char *text)
{
	rank_give(rank, round, text, strlen(text));
}

void expect_piece(struct rank *rank, uint32_t from, uint32_t round, const void *data, size_t size)
{
	Ctl__Envelope *envelope = process_take(rank->process, CTL__ENVELOPE__BODY_GROUP_PIECE);
	const Ctl__GroupPiece *piece;

	ck_assert_msg(envelope != NULL, "rank %u: no piece of %u", rank->number, from);
	piece = envelope->group_piece;
	ck_assert_mem_eq(piece->member.data, rank->id, UUID_SIZE);
	ck_assert_uint_eq(piece->rank, from);
	ck_assert_uint_eq(piece->round, round);
	ck_assert_uint_eq(piece->data.len, size);
	if (size)
		ck_assert_mem_eq(piece->data.data, data, size);
	ctl__envelope__free_unpacked(envelope, NULL);
}

void expect_text(struct rank *rank, uint32_t from, uint32_t round, const char *text)
{
	expect_piece(rank, from, round, text, strlen(text));
}

/* That all have met is said each time that it is so again; few tests want to know. */
static Ctl__Envelope *take_event(struct rank *rank)
{
	Ctl__Envelope *envelope;

	while ((envelope = process_take(rank->process, CTL__ENVELOPE__BODY_GROUP_EVENT)) != NULL) {
		if (envelope->group_event->kind != MET)
			break;
		ck_assert_mem_eq(envelope->group_event->member.data, rank->id, UUID_SIZE);
		ctl__envelope__free_unpacked(envelope, NULL);
		rank->met++;
	}
	return envelope;
}

/* The next event; its text has `what` in it. */
void expect_event(struct rank *rank, Ctl__GroupEventKind kind, uint32_t about, const char *what)
{
	Ctl__Envelope *envelope = take_event(rank);
	const Ctl__GroupEvent *event;

	ck_assert_msg(envelope != NULL, "rank %u: no event about %u", rank->number, about);
	event = envelope->group_event;
	ck_assert_mem_eq(event->member.data, rank->id, UUID_SIZE);
	ck_assert_int_eq(event->kind, kind);
	ck_assert_uint_eq(event->rank, about);
	ck_assert_msg(strstr(event->text, what) != NULL, "'%s' lacks '%s'", event->text, what);
	ctl__envelope__free_unpacked(envelope, NULL);
}

void expect_silence(struct rank *rank)
{
	Ctl__Envelope *event = take_event(rank);

	if (event)
		ck_abort_msg("rank %u: event %d: %s", rank->number, (int)event->group_event->kind,
			event->group_event->text);
	ck_assert_uint_eq(process_mail(rank->process), 0);
	ck_assert(!rank->process->ended);
}

void rank_leave(struct rank *rank, bool aborts)
{
	Ctl__GroupLeave message = CTL__GROUP_LEAVE__INIT;
	Ctl__Envelope *answer;

	set_member(&message.member, rank);
	message.aborts = aborts;
	answer = process_ask(rank->process, CTL__ENVELOPE__BODY_GROUP_LEAVE, &message);
	ck_assert_ptr_nonnull(answer);
	ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_DONE);
	ctl__envelope__free_unpacked(answer, NULL);
}

void rank_die(struct rank *rank)
{
	process_die(rank->process);
	world_settle(group_world);
}

unsigned count_groups(int host)
{
	return HASH_COUNT(world_core(group_world, host)->groups);
}

unsigned count_members(int host)
{
	return HASH_COUNT(world_core(group_world, host)->members);
}

int rank_return(struct rank *rank, uint32_t ranks, uint32_t done, uint8_t left, uint64_t group)
{
	Ctl__GroupJoin join = CTL__GROUP_JOIN__INIT;
	Ctl__Envelope *answer;
	int error = 0;

	set_member(&join.member, rank);
	join.job = (char *)(uintptr_t) "train";
	join.rank = rank->number;
	join.ranks = ranks;
	join.resumes = true;
	join.done = done;
	join.group = group;
	join.left = (ProtobufCBinaryData){ 1, &left };
	join.gives = rank->gives;
	join.met = rank->has_met;
	join.aborted = rank->gave_up != NULL;
	if (rank->gave_up)
		join.why = (char *)(uintptr_t)rank->gave_up;
	answer = process_ask(rank->process, CTL__ENVELOPE__BODY_GROUP_JOIN, &join);
	ck_assert_ptr_nonnull(answer);
	if (answer->body_case == CTL__ENVELOPE__BODY_FAILURE)
		error = (int)answer->failure->error;
	ctl__envelope__free_unpacked(answer, NULL);
	return error;
}
