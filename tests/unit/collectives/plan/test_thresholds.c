/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of thresholds: values fit each other, and its text names each of them. */
#include "collectives/plan/thresholds.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/fixtures/program.h"

static const struct {
	int (*write)(char *text, size_t size);
	const char *text;
} texts[] = {
	{ thresholds_of_packets,
		"thresholds: eager 4064 bytes, segment 16384 bytes, pipeline 4 segments, "
		"direct-whole 50% of segment, both-ways 8 segments, pieces 32 segments, alike "
		"5%\n" },
	{ thresholds_of_shm,
		"thresholds: ranks 16, short 32720 bytes, short-of-2 2048 bytes, "
		"in-place 1024 bytes, block 65536 bytes, "
		"whole-ranks 4, whole 65536 bytes, whole-of-2 8388608 bytes, "
		"non-temporal 4194304 bytes\n" },
};

START_LOOP_TEST(text_names_all, ROWS(texts))
{
	char text[512], small[16];
	int length = texts[_i].write(text, sizeof(text));

	ck_assert_str_eq(text, texts[_i].text);
	ck_assert_int_eq(length, (int)strlen(text));
	ck_assert_int_eq(texts[_i].write(small, sizeof(small)), length);
	ck_assert_int_eq(strncmp(small, text, sizeof(small) - 1), 0);
	ck_assert_int_eq(texts[_i].write(NULL, 0), length);
}
END_TEST

START_TEST(values_fit_each_other)
{
	/* Data that is short, or left in place, fits into a block of a ring. */
	ck_assert_int_lt(SHM_IN_PLACE_FROM, SHM_SHORT_OF_TWO);
	ck_assert_int_lt(SHM_SHORT_OF_TWO, SHM_INLINE);
	ck_assert_int_le(SHM_INLINE, SHM_BLOCK);
	ck_assert_int_le(SHM_BLOCK, SHM_WHOLE_BYTES);
	ck_assert_int_lt(SHM_WHOLE_BYTES, SHM_WHOLE_BYTES_OF_TWO);
	/* Non-temporal stores begin below the end of vectors that are reduced whole without
	 * them. */
	ck_assert_int_le(SHM_STREAM_BYTES, SHM_WHOLE_BYTES_OF_TWO);
	ck_assert_int_le(SHM_WHOLE_RANKS, SHM_RANKS_MAX);
	/* A segment is a large message. */
	ck_assert_int_lt(EAGER_BYTES, SEGMENT_LEAST);
	ck_assert_int_lt(RINGS_BOTH_WAYS, HOSTS_PIECES_FROM);
}
END_TEST

TEST_FILE(thresholds)
