/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring plan: all ranks are simulated in memory, driven by the dependencies alone. */
#include "collectives/plan.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 64 };

static const struct row {
	size_t count;
	size_t segment_bytes;
} rows[] = {
	{ 0, 64 },
	{ 1, 64 },
	{ 2, 64 },
	{ 3, 8 },
	{ 5, 16 },
	{ 15, 8 },
	{ 16, 8 },
	{ 17, 8 },
	{ 31, 24 },
	{ 64, 8 },
	{ 65, 8 },
	{ 97, 1 },
	{ 100, 40 },
	{ 128, 64 },
	{ 191, 1000000 },
	{ 240, 16 },
	{ 720, 24 },
	{ 1009, 56 },
};

/* One rank of the simulation; elements are double, so that sums of small integers are exact. */
struct node {
	struct ring_plan plan;
	double *send;
	double *recv;
	uint64_t sent;
	uint64_t received;
	uint64_t sent_elements;
	unsigned *reduced; /* how often each element was reduced here */
	unsigned *copied;
};

struct ring {
	int ranks;
	size_t first; /* elements before this one belong to nobody and must stay */
	size_t count;
	enum ring_direction direction;
	struct node node[RANKS_MAX];
};

/* A contribution that is different for each rank and element. */
static double contribution(int rank, size_t i)
{
	return (double)((rank + 1) * 1000003 % 65521) + (double)i * 4096;
}

static void ring_make(struct ring *ring, const struct row *row, int ranks,
	enum ring_direction direction, bool in_place)
{
	*ring = (struct ring){
		.ranks = ranks, .first = 3, .count = row->count, .direction = direction
	};
	for (int r = 0; r < ranks; r++) {
		struct node *node = &ring->node[r];
		size_t total = ring->first + row->count + 1;

		ring_plan_init(&node->plan,
			&(struct ring_config){ .rank = r,
				.ranks = ranks,
				.direction = direction,
				.first = ring->first,
				.count = row->count,
				.elem_size = sizeof(double),
				.segment_bytes = row->segment_bytes,
				.in_place = in_place });
		node->send = calloc(total, sizeof(double));
		node->recv = in_place ? node->send : calloc(total, sizeof(double));
		node->reduced = calloc(total, sizeof(unsigned));
		node->copied = calloc(total, sizeof(unsigned));
		for (size_t i = 0; i < total; i++)
			node->send[i] = contribution(r, i);
	}
}

static void ring_free(struct ring *ring)
{
	for (int r = 0; r < ring->ranks; r++) {
		struct node *node = &ring->node[r];

		if (node->recv != node->send)
			free(node->recv);
		free(node->send);
		free(node->reduced);
		free(node->copied);
	}
}

/*
 * ck_assert() reports each line that it passes to the parent process, which is far too slow for the
 * millions of checks in here.
 */
#define REQUIRE(condition)                              \
	do {                                            \
		if (!(condition))                       \
			ck_abort_msg("%s", #condition); \
	} while (0)

static void check_range(const struct ring *ring, size_t offset, size_t count)
{
	REQUIRE(count > 0);
	REQUIRE(offset >= ring->first);
	REQUIRE(offset + count <= ring->first + ring->count);
}

static void receive(struct ring *ring, struct node *to, const double *payload, size_t count)
{
	struct ring_receive receive;
	const double *operand;

	REQUIRE(to->received < to->plan.receives);
	ring_plan_receive(&to->plan, to->received, &receive);
	check_range(ring, receive.offset, receive.count);
	REQUIRE(receive.count == count);
	operand = receive.operand == RING_SEND_BUFFER ? to->send : to->recv;
	for (size_t i = 0; i < count; i++) {
		size_t at = receive.offset + i;

		if (receive.action == RING_REDUCE) {
			REQUIRE(to->copied[at] == 0);
			to->reduced[at]++;
			to->recv[at] = operand[at] + payload[i];
		} else {
			to->copied[at]++;
			to->recv[at] = payload[i];
		}
	}
	to->received++;
}

/* Sends the next message of `rank` if its dependency is complete. */
static bool advance(struct ring *ring, int rank)
{
	struct node *node = &ring->node[rank];
	struct node *to = &ring->node[ring_next(rank, ring->ranks, ring->direction)];
	struct ring_send send;
	const double *source;

	if (node->sent == node->plan.sends)
		return false;
	ring_plan_send(&node->plan, node->sent, &send);
	if (send.after != RING_NOTHING) {
		struct ring_receive before;

		REQUIRE(send.after < node->plan.receives);
		ring_plan_receive(&node->plan, send.after, &before);
		REQUIRE(before.offset == send.offset);
		REQUIRE(before.count == send.count);
		if (send.after >= node->received)
			return false;
	}
	check_range(ring, send.offset, send.count);
	source = send.source == RING_SEND_BUFFER ? node->send : node->recv;
	receive(ring, to, source + send.offset, send.count);
	node->sent++;
	node->sent_elements += send.count;
	return true;
}

/* `eager`: a rank sends all that it can at its turn; otherwise one message. */
static void ring_run(struct ring *ring, bool eager)
{
	bool moved = true;

	while (moved) {
		moved = false;
		for (int r = ring->ranks - 1; r >= 0; r--) {
			while (advance(ring, r)) {
				moved = true;
				if (!eager)
					break;
			}
		}
	}
}

static void check_result(struct ring *ring)
{
	uint64_t elements = 0;

	for (int r = 0; r < ring->ranks; r++) {
		struct node *node = &ring->node[r];
		uint64_t share = 2 * ring->count * (uint64_t)(ring->ranks - 1);
		uint64_t sent = node->sent_elements * (uint64_t)ring->ranks;

		REQUIRE(node->sent == node->plan.sends);
		REQUIRE(node->received == node->plan.receives);
		elements += node->sent_elements;
		/* 2(n-1)/n of the vector, but for the rounding of two chunks. */
		REQUIRE(sent <= share + 2 * (uint64_t)ring->ranks);
		REQUIRE(share <= sent + 2 * (uint64_t)ring->ranks);
		if (ring->count % (size_t)ring->ranks == 0)
			REQUIRE(sent == share);
		for (size_t i = 0; i < ring->count && ring->ranks > 1; i++) {
			double sum = 0;
			size_t at = ring->first + i;

			for (int peer = 0; peer < ring->ranks; peer++)
				sum += contribution(peer, at);
			REQUIRE(node->recv[at] == sum);
			REQUIRE(node->reduced[at] <= 1);
			REQUIRE(node->copied[at] <= 1);
			REQUIRE(node->reduced[at] + node->copied[at] >= 1);
		}
		if (node->recv != node->send)
			REQUIRE(node->recv[0] == 0 && node->recv[ring->first + ring->count] == 0);
		REQUIRE(node->send[0] == contribution(r, 0));
	}
	REQUIRE(elements == 2 * ring->count * (uint64_t)(ring->ranks - 1));
}

/* Each element is reduced n-1 times in all, and copied n-1 times. */
static void check_work(struct ring *ring)
{
	for (size_t i = 0; i < ring->count; i++) {
		unsigned reduced = 0, copied = 0;

		for (int r = 0; r < ring->ranks; r++) {
			reduced += ring->node[r].reduced[ring->first + i];
			copied += ring->node[r].copied[ring->first + i];
		}
		REQUIRE(reduced == (unsigned)ring->ranks - 1);
		REQUIRE(copied == (unsigned)ring->ranks - 1);
	}
}

static void run_all_ways(const struct row *row, int ranks)
{
	for (int way = 0; way < 8; way++) {
		enum ring_direction direction = way & 1 ? RING_BACKWARD : RING_FORWARD;
		struct ring ring;

		ring_make(&ring, row, ranks, direction, way & 2);
		ring_run(&ring, way & 4);
		check_result(&ring);
		check_work(&ring);
		ring_free(&ring);
	}
}

START_TEST(every_element_reduced_once)
{
	for (int ranks = 1; ranks <= 16; ranks++)
		run_all_ways(&rows[_i], ranks);
	if (rows[_i].count <= 200) {
		run_all_ways(&rows[_i], 32);
		run_all_ways(&rows[_i], 64);
	}
}
END_TEST

START_TEST(both_ends_agree_on_messages)
{
	for (int ranks = 2; ranks <= 16; ranks++) {
		struct ring ring;

		ring_make(&ring, &rows[_i], ranks, RING_FORWARD, false);
		for (int r = 0; r < ranks; r++) {
			struct ring_plan *from = &ring.node[r].plan;
			struct ring_plan *to = &ring.node[(r + 1) % ranks].plan;
			uint64_t after = 0;

			REQUIRE(from->sends == to->receives);
			for (uint64_t i = 0; i < from->sends; i++) {
				struct ring_send send;
				struct ring_receive receive;

				ring_plan_send(from, i, &send);
				ring_plan_receive(to, i, &receive);
				REQUIRE(send.offset == receive.offset);
				REQUIRE(send.count == receive.count);
				/* Sends wait for receives in the order of the receives. */
				REQUIRE(send.after == RING_NOTHING ? i == 0 || after == 0
								   : send.after >= after);
				after = send.after == RING_NOTHING ? 0 : send.after;
			}
		}
		ring_free(&ring);
	}
}
END_TEST

START_TEST(steps_overlap)
{
	struct ring_plan plan;
	struct ring_send send;

	/* 4 chunks of 8 segments: a send needs one receive of the step before, not all. */
	ring_plan_init(&plan,
		&(struct ring_config){ .rank = 2,
			.ranks = 4,
			.count = 4 * 8 * 16,
			.elem_size = 4,
			.segment_bytes = 64 });
	ck_assert_uint_eq(plan.sends, 6 * 8);
	for (uint64_t i = 0; i < plan.sends; i++) {
		ring_plan_send(&plan, i, &send);
		ck_assert_uint_eq(send.count, 16);
		ck_assert(send.after == (i < 8 ? RING_NOTHING : i - 8));
		ck_assert_int_eq(send.source, i < 8 ? RING_SEND_BUFFER : RING_RECV_BUFFER);
	}
}
END_TEST

START_TEST(huge_counts)
{
	struct ring_plan plan;
	struct ring_send send;
	size_t count = (size_t)1 << 50;

	ring_plan_init(&plan,
		&(struct ring_config){ .rank = 6,
			.ranks = 7,
			.count = count,
			.elem_size = 4,
			.segment_bytes = 4,
			.in_place = true });
	ring_plan_send(&plan, plan.sends - 1, &send);
	ck_assert_uint_eq(send.count, 1);
	ck_assert_uint_lt(send.offset, count);
	ck_assert_uint_eq(send.after, plan.receives - count / 7 - 2);
}
END_TEST

static const struct segment_row {
	size_t bytes;
	int ranks;
	size_t limit;
	size_t expected;
} segment_rows[] = {
	{ 4, 2, 131072, 16384 },
	{ 131072, 2, 131072, 16384 },
	{ 1048576, 2, 131072, 131072 },
	{ 1048576, 8, 131072, 32768 },
	{ 1000000, 7, 131072, 36864 },
	{ 1 << 30, 4, 131072, 131072 },
	{ 1 << 30, 4, 1024, 1024 },
};

START_TEST(segment_lengths)
{
	const struct segment_row *row = &segment_rows[_i];

	ck_assert_uint_eq(ring_segment_bytes(row->bytes, row->ranks, row->limit), row->expected);
}
END_TEST

START_TEST(neighbours)
{
	ck_assert_int_eq(ring_next(3, 4, RING_FORWARD), 0);
	ck_assert_int_eq(ring_next(0, 4, RING_BACKWARD), 3);
	ck_assert_int_eq(ring_previous(0, 4, RING_FORWARD), 3);
	ck_assert_int_eq(ring_previous(3, 4, RING_BACKWARD), 0);
	ck_assert_int_eq(ring_next(0, 1, RING_FORWARD), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plan");
	TCase *tcase = tcase_create("ring");
	SRunner *runner = srunner_create(suite);
	int failures;

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(
		tcase, every_element_reduced_once, 0, (int)(sizeof(rows) / sizeof(rows[0])));
	tcase_add_loop_test(
		tcase, both_ends_agree_on_messages, 0, (int)(sizeof(rows) / sizeof(rows[0])));
	tcase_add_test(tcase, steps_overlap);
	tcase_add_test(tcase, huge_counts);
	tcase_add_loop_test(
		tcase, segment_lengths, 0, (int)(sizeof(segment_rows) / sizeof(segment_rows[0])));
	tcase_add_test(tcase, neighbours);
	srunner_run_all(runner, CK_NORMAL);
	failures = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
