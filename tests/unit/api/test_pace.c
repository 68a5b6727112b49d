/* SPDX-License-Identifier: BSD-3-Clause */
/* Pauses and yields of the progress thread. */
#include <check.h>
#include <limits.h>

#include "lib/device/pace.h"
#include "tests/fixtures/program.h"

/* The progress thread's pauses: one poll in 10 us continues them. */
static const struct {
	uint32_t before;
	unsigned polls;
	uint32_t next;
} pauses[] = {
	{ 0, 0, 0 },
	{ 0, 1, 20000 },
	{ 0, 1000000, 20000 },
	{ 20000, 0, 0 },
	{ 20000, 1, 0 },
	{ 20000, 2, 22500 },
	{ 20000, UINT_MAX, 22500 },
	{ 800000, 79, 0 },
	{ 800000, 80, 900000 },
	{ 900000, 90, 1000000 },
	{ 1000000, 99, 0 },
	{ 1000000, 100, 1000000 },
};

START_LOOP_TEST(pauses_of_the_thread, ROWS(pauses))
{
	ck_assert_uint_eq(
		next_pause_ns(pauses[_i].before, pauses[_i].polls, 20000), pauses[_i].next);
}
END_TEST

/* The first pause after drives: longer if nothing has moved since the last one, in which the
 * application has polled at least once in 100 us. */
static const struct {
	uint32_t before;
	unsigned polls;
	uint64_t since_ns;
	uint32_t next;
} first_pauses[] = {
	{ 0, 5, 10, 20000 },
	{ 20000, 0, 99999, 22500 },
	{ 20000, 1, 100000, 20000 },
	{ 400000, 3, 10, 20000 },
	{ 400000, 4, 10, 450000 },
	{ 1000000, 9, 10, 20000 },
	{ 1000000, 10, 10, 1000000 },
};

START_LOOP_TEST(first_pauses_of_the_thread, ROWS(first_pauses))
{
	ck_assert_uint_eq(first_pause_ns(first_pauses[_i].before, first_pauses[_i].polls,
				  first_pauses[_i].since_ns),
		first_pauses[_i].next);
	ck_assert_uint_eq(next_pause_ns(0, 1, first_pauses[_i].next), first_pauses[_i].next);
}
END_TEST

/* A pause is at most an eighth of the time in which the application has polled, and 20 us. */
START_TEST(pauses_grow_with_the_time_of_polls)
{
	uint32_t pause_ns = 0;
	uint64_t polled_ns = 0;

	for (int i = 0; i < 100; i++) {
		pause_ns = next_pause_ns(pause_ns, UINT_MAX, 20000);
		ck_assert_uint_le(pause_ns, 20000 + polled_ns / 8);
		polled_ns += pause_ns;
	}
	ck_assert_uint_eq(pause_ns, 1000000);
}
END_TEST

static uint64_t gap_after(struct probe *probe, bool is_crowded, uint64_t now_ns)
{
	probe_note(probe, is_crowded, now_ns);
	return (probe->next_ns - now_ns) / 1000000;
}

/* Yields of the progress thread on a crowded processor: each gap is twice as long as the one
 * before. The first one is short, also after a time without crowding. */
START_TEST(yields_on_a_crowded_processor)
{
	const uint64_t ms = 1000000;
	struct probe probe = { 0 };
	uint64_t now_ns = 0;

	ck_assert(probe_is_due(&probe, 0));
	for (int round = 0; round < 2; round++) {
		for (unsigned gap = 1; gap <= 1024; gap *= 2) {
			ck_assert_uint_eq(gap_after(&probe, true, now_ns), gap < 256 ? gap : 256);
			ck_assert(!probe_is_due(&probe, probe.next_ns - 1));
			ck_assert(probe_is_due(&probe, probe.next_ns));
			now_ns = probe.next_ns + 256 * ms - 1;
		}
		now_ns++;
	}
}
END_TEST

/* A thread that runs for a moment now and then does not keep the progress thread asleep. */
START_TEST(yields_on_a_processor_wanted_at_times)
{
	const uint64_t ms = 1000000;
	struct probe probe = { 0 };
	uint64_t now_ns = 5000 * ms;

	for (int i = 0; i < 20; i++, now_ns += 10 * ms) {
		ck_assert_uint_eq(gap_after(&probe, true, now_ns), 1);
		probe_note(&probe, false, probe.next_ns);
	}
	/* Most yields find such threads: the gaps grow. */
	for (int i = 0; i < 10; i++) {
		gap_after(&probe, true, probe.next_ns);
		gap_after(&probe, true, probe.next_ns);
		probe_note(&probe, false, probe.next_ns);
	}
	ck_assert_uint_eq(gap_after(&probe, true, probe.next_ns), 256);
}
END_TEST

TEST_FILE(pace)
