/* SPDX-License-Identifier: BSD-3-Clause */
/* The path of a piece of a job: the sessions about which core_has_room() asks. */
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "daemon/core/internal.h"

#include "tests/fixtures/program.h"

enum { OWN = 3, PEER_A = 100, PEER_B = 200 };

static uint64_t asked[8], without_room;
static size_t n_asked;

static bool has_room(void *ctx, uint64_t peer)
{
	asked[n_asked++] = peer;
	return peer != without_room;
}

static bool ask(const struct core *core, uint64_t session, uint8_t *id)
{
	Ctl__GroupPiece piece = CTL__GROUP_PIECE__INIT;
	Ctl__Envelope envelope = CTL__ENVELOPE__INIT;

	n_asked = 0;
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_PIECE;
	envelope.group_piece = &piece;
	piece.member = (ProtobufCBinaryData){ UUID_SIZE, id };
	return core_has_room(core, session, &envelope, has_room, NULL);
}

START_TEST(asks_about_those_who_get_it)
{
	struct core *core = calloc(1, sizeof(*core));
	struct session session = { .id = OWN };
	struct member own = { .session = &session, .peer_session = PEER_A };
	struct member a = { .peer_session = PEER_A }, b = { .peer_session = PEER_B };
	struct member *first = &own, *members[] = { &own, &a, NULL, &b };
	struct group group = { .ranks = 4, .members = members };
	Ctl__Ping ping = CTL__PING__INIT;
	Ctl__Envelope envelope = CTL__ENVELOPE__INIT;
	uint8_t stranger[UUID_SIZE] = { 9 };

	own.id[0] = 1;
	HASH_ADD(hh, core->members, id, UUID_SIZE, first);
	/* Kept elsewhere: that daemon alone. */
	without_room = PEER_B;
	ck_assert(ask(core, OWN, own.id));
	ck_assert_uint_eq(n_asked, 1);
	ck_assert_uint_eq(asked[0], PEER_A);
	without_room = PEER_A;
	ck_assert(!ask(core, OWN, own.id));
	/* Kept here: each daemon that has ranks. */
	own.group = a.group = b.group = &group;
	own.peer_session = 0;
	without_room = PEER_B;
	ck_assert(!ask(core, OWN, own.id));
	ck_assert_uint_eq(n_asked, 2);
	without_room = 0;
	ck_assert(ask(core, OWN, own.id));
	/* Messages of others than members, and other than pieces, are dropped. */
	without_room = PEER_A;
	ck_assert(ask(core, OWN + 1, own.id));
	ck_assert(ask(core, OWN, stranger));
	envelope.body_case = CTL__ENVELOPE__BODY_PING;
	envelope.ping = &ping;
	ck_assert(core_has_room(core, OWN, &envelope, has_room, NULL));
	ck_assert_uint_eq(n_asked, 0);
	HASH_DEL(core->members, first);
	free(core);
}
END_TEST

TEST_FILE(core_room)
