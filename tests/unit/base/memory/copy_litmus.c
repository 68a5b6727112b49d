/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/base/memory/copy_litmus.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/memory/copy.h"

enum {
	LINE = 128,
	LINES = 32,
	SPINS = 2000, /* before others may run */
};

/* Destinations of copies, from the start of an aligned page, and the size of their last word. */
struct shape {
	unsigned at, length, last;
};

static const struct shape shapes[] = { { 0, 2, 2 }, { 6, 2, 2 }, { 0, 4, 4 }, { 4, 4, 4 },
	{ 0, 8, 8 }, { 4, 8, 4 }, { 2, 10, 4 }, { 0, 12, 4 }, { 0, 14, 2 }, { 4, 20, 8 },
	{ 8, 24, 8 }, { 1, 31, 8 }, { 12, 52, 8 }, { 0, 62, 2 }, { 0, 132, 4 }, { 24, 300, 4 },
	{ 0, 1024, 8 }, { 4, 1018, 2 }, { 64, 1036, 4 } };

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static struct {
	_Alignas(4096) uint8_t bytes[4096];
	const struct shape *shape;
	unsigned rounds;
	atomic_uint started, done; /* rounds */
	atomic_uint wrong;
	atomic_bool is_over;
} shared;

static uint64_t load(const uint8_t *at, unsigned size)
{
	switch (size) {
	case 2: return __atomic_load_n((const uint16_t *)(const void *)at, __ATOMIC_ACQUIRE);
	case 4: return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_ACQUIRE);
	default: return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE);
	}
}

/* A word that consists of this byte. */
static uint64_t word_of(uint8_t byte, unsigned size)
{
	return byte * (UINT64_C(0x0101010101010101) >> (64 - 8 * size));
}

static void pause_sometimes(unsigned *spins)
{
	if (++*spins % SPINS == 0)
		sched_yield();
}

static unsigned run(void *(*reader)(void *), void (*writer)(void), unsigned rounds)
{
	pthread_t thread;

	memset(shared.bytes, 0, sizeof(shared.bytes));
	shared.rounds = rounds;
	atomic_store(&shared.wrong, 0);
	atomic_store(&shared.started, 0);
	atomic_store(&shared.done, 0);
	atomic_store(&shared.is_over, false);
	if (pthread_create(&thread, NULL, reader, NULL))
		return 1;
	writer();
	atomic_store(&shared.is_over, true);
	pthread_join(thread, NULL);
	return atomic_load(&shared.wrong);
}

static unsigned run_shapes(void *(*reader)(void *), void (*writer)(void), unsigned rounds)
{
	unsigned wrong = 0;

	for (unsigned i = 0; i < SHAPES; i++) {
		shared.shape = &shapes[i];
		wrong += run(reader, writer, rounds);
	}
	return wrong;
}

/* ---- words: the bytes of all are 0 or all ones */

static void *poll_words(void *arg)
{
	const struct shape *shape = shared.shape;

	atomic_store(&shared.started, 1);
	while (!atomic_load(&shared.is_over)) {
		for (unsigned size = 2; size <= 8; size *= 2) {
			unsigned at = (shape->at + size - 1) / size * size;

			for (; at + size <= shape->at + shape->length; at += size) {
				uint64_t word = load(shared.bytes + at, size);

				if (word != 0 && word != word_of(0xff, size))
					atomic_fetch_add(&shared.wrong, 1);
			}
		}
	}
	return arg;
}

static void write_words(void)
{
	static uint8_t from[sizeof(shared.bytes)];
	unsigned spins = 0;

	while (!atomic_load(&shared.started))
		pause_sometimes(&spins);
	for (unsigned i = 0; i < shared.rounds; i++) {
		memset(from, i % 2 ? 0 : 0xff, shared.shape->length);
		copy_in_order(shared.bytes + shared.shape->at, from, shared.shape->length);
		pause_sometimes(&spins);
	}
}

unsigned litmus_words(unsigned rounds)
{
	return run_shapes(poll_words, write_words, rounds);
}

/* ---- a message: all of its bytes are the number of the round; the last word is polled */

static void *poll_last(void *arg)
{
	const struct shape *shape = shared.shape;
	unsigned end = shape->at + shape->length, spins = 0;

	for (unsigned round = 1; round <= shared.rounds; round++) {
		const uint64_t flag = word_of((uint8_t)round, shape->last);

		while (load(shared.bytes + end - shape->last, shape->last) != flag)
			pause_sometimes(&spins);
		/* As any program reads data after a notification. */
		for (unsigned at = shape->at; at < end; at++)
			if (shared.bytes[at] != (uint8_t)round)
				atomic_fetch_add(&shared.wrong, 1);
		atomic_store_explicit(&shared.done, round, memory_order_release);
	}
	return arg;
}

/* Every other one by two copies. */
static void write_message(void)
{
	const struct shape *shape = shared.shape;
	unsigned body = shape->length - shape->last, spins = 0;
	uint8_t from[sizeof(shared.bytes)], *to = shared.bytes + shape->at;

	for (unsigned round = 1; round <= shared.rounds; round++) {
		memset(from, (uint8_t)round, shape->length);
		if (round % 2) {
			copy_in_order(to, from, shape->length);
		} else {
			copy_in_order(to, from, body);
			copy_in_order(to + body, from + body, shape->last);
		}
		while (atomic_load_explicit(&shared.done, memory_order_acquire) < round)
			pause_sometimes(&spins);
	}
}

unsigned litmus_message(unsigned rounds)
{
	return run_shapes(poll_last, write_message, rounds);
}

/* ---- lines: all words are the number of the round, the last one of each line is polled */

static void *poll_lines(void *arg)
{
	unsigned spins = 0;

	for (uint64_t round = 1; round <= shared.rounds; round++) {
		for (unsigned line = 0; line < LINES; line++) {
			const uint8_t *words = shared.bytes + (size_t)line * LINE;

			while (load(words + LINE - 8, 8) < round)
				pause_sometimes(&spins);
			for (unsigned at = 0; at < LINE; at += 8)
				if (load(words + at, 8) < round)
					atomic_fetch_add(&shared.wrong, 1);
		}
		atomic_store(&shared.done, (unsigned)round);
	}
	return arg;
}

static void write_lines(void)
{
	uint64_t from[LINES * LINE / 8];
	unsigned spins = 0;

	for (uint64_t round = 1; round <= shared.rounds; round++) {
		for (unsigned i = 0; i < LINES * LINE / 8; i++)
			from[i] = round;
		copy_in_order(shared.bytes, from, sizeof(from));
		while (atomic_load(&shared.done) < round)
			pause_sometimes(&spins);
	}
}

unsigned litmus_lines(unsigned rounds)
{
	return run(poll_lines, write_lines, rounds);
}
