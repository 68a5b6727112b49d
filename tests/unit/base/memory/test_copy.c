/* SPDX-License-Identifier: BSD-3-Clause */
/* All copies, and that the bytes of the one in order become visible in order. */
#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory/copy.h"
#include "tests/unit/base/memory/copy_litmus.h"
#include "tests/fixtures/program.h"

enum { LONGEST = 1400, SIZES = 600, SHIFTS = 33, GUARD = 64 };

static void (*const copies_of_the_data_path[])(void *, const void *, size_t) = {
	copy_in_order,
	copy_bulk,
	copy_nontemporal,
};

START_LOOP_TEST(copies, 3)
{
	void (*const copy)(void *, const void *, size_t) = copies_of_the_data_path[_i];
	uint8_t from[LONGEST + SHIFTS], to[LONGEST + SHIFTS + 2 * GUARD];

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 37 + 11);
	for (size_t n = 0; n < LONGEST; n++) {
		size_t src = n % SHIFTS, dst = GUARD + n * 7 % SHIFTS;

		memset(to, 0xee, sizeof(to));
		copy(to + dst, from + src, n);
		ck_assert_mem_eq(to + dst, from + src, n);
		for (size_t i = 0; i < sizeof(to); i++)
			if (i < dst || i >= dst + n)
				ck_assert_uint_eq(to[i], 0xee);
	}
}
END_TEST

enum { MESSAGES = 300, TEARS = 20000 };

START_TEST(words_are_whole)
{
	ck_assert_uint_eq(litmus_words(TEARS), 0);
}
END_TEST

START_TEST(last_words_come_last)
{
	ck_assert_uint_eq(litmus_message(MESSAGES), 0);
}
END_TEST

START_TEST(flags_come_last)
{
	ck_assert_uint_eq(litmus_lines(MESSAGES), 0);
}
END_TEST

/* ThreadSanitizer delays signals. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define CAN_STEP 1
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef CAN_STEP
#endif
#endif
#endif

#ifdef CAN_STEP

static struct {
	const uint8_t *to;
	size_t n;
	size_t looks, disordered, torn;
} stepped;

/* After each instruction of a copy of ones over zeros: only whole words, and in order. */
static void look(int signal)
{
	const volatile uint8_t *to = stepped.to;
	size_t n_new = 0;
	uintptr_t end;

	stepped.looks++;
	while (n_new < stepped.n && to[n_new])
		n_new++;
	for (size_t i = n_new; i < stepped.n; i++)
		stepped.disordered += to[i] != 0;
	end = (uintptr_t)to + n_new;
	for (uintptr_t size = 2; size <= 8; size *= 2) {
		uintptr_t word = end & ~(size - 1);

		stepped.torn += word != end && word >= (uintptr_t)to &&
			word + size <= (uintptr_t)to + stepped.n;
	}
}

/* The trap flag, which is off in signal handlers. The memory below the stack pointer is the
 * caller's. */
static inline void step(bool on)
{
	if (on)
		__asm__ volatile("lea -128(%%rsp), %%rsp\n pushfq\n orl $0x100, (%%rsp)\n popfq\n"
				 "lea 128(%%rsp), %%rsp" ::
					 : "memory", "cc");
	else
		__asm__ volatile("lea -128(%%rsp), %%rsp\n pushfq\n andl $~0x100, (%%rsp)\n popfq\n"
				 "lea 128(%%rsp), %%rsp" ::
					 : "memory", "cc");
}

static void copy_stepped(uint8_t *to, size_t n)
{
	static uint8_t ones[SIZES];

	memset(ones, 1, n);
	memset(to, 0, n);
	stepped.to = to;
	stepped.n = n;
	step(true);
	copy_in_order(to, ones, n);
	step(false);
	ck_assert_mem_eq(to, ones, n);
	ck_assert_msg(stepped.torn == 0 && stepped.disordered == 0,
		"%zu bytes to %zu of 128: %zu torn, %zu disordered", n, (uintptr_t)to % 128,
		stepped.torn, stepped.disordered);
}

/* Every size at every place of a line, whatever the load of the processors. */
START_TEST(each_instruction)
{
	static _Alignas(128) uint8_t to[SIZES + 128];
	struct sigaction action = { .sa_handler = look }, before;

	ck_assert_int_eq(sigaction(SIGTRAP, &action, &before), 0);
	for (size_t n = 1; n <= 40; n++)
		for (size_t at = 0; at < 16; at++)
			copy_stepped(to + at, n);
	for (size_t n = 120; n < SIZES; n += 37)
		for (size_t at = n % 3; at < 128; at += 11)
			copy_stepped(to + at, n);
	ck_assert_uint_gt(stepped.looks, 10000);
	sigaction(SIGTRAP, &before, NULL);
}
END_TEST

#endif

TEST_FILE(copy)
