/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows: protocols with flags in the data. A thread in place of the GPU polls the receive buffer
 * while data arrives, and detects a flag that becomes visible before its data. LL has 8-byte words,
 * half data and half flag. LL128 has 128-byte lines whose last 8 bytes are the flag.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/caller/row.h"

/* Lines enough for three pieces, in unequal shares. */
enum { SLOTS = 4, MESSAGES = 200, LINE_WORDS = 16, BYTES = 257 * LINE_WORDS * 8 };

struct watch {
	struct side *side;
	struct slots slots;
	bool has_lines; /* LL128 */
	_Atomic unsigned int posted;
	_Atomic unsigned int consumed;
};

static uint32_t datum(unsigned int message, size_t index)
{
	return (uint32_t)((message * 2654435761u) ^ (index * 40503u) ^ 0x1234567u);
}

/* Fills a message of `words` words, with flags in place. */
static void write_message(uint64_t *words, size_t n, unsigned int message, bool has_lines)
{
	for (size_t i = 0; i < n; i++) {
		if (!has_lines)
			words[i] = ((uint64_t)(message + 1) << 32) | datum(message, i);
		else if (i % LINE_WORDS == LINE_WORDS - 1)
			words[i] = message + 1;
		else
			words[i] = ((uint64_t)datum(message, i) << 32) | datum(message, i + 1);
	}
}

static void check_flag(uint64_t flag, unsigned int message)
{
	uint64_t old = message >= SLOTS ? message + 1 - SLOTS : 0;

	REQUIRE(flag == old, "flag %llu where message %u is awaited, after message %llu",
		(unsigned long long)flag, message, (unsigned long long)old);
}

static void watch_word(_Atomic uint64_t *words, size_t i, unsigned int message)
{
	uint64_t word;

	while ((word = atomic_load_explicit(&words[i], memory_order_relaxed)) >> 32 !=
		message + 1) {
		check_flag(word >> 32, message);
		sched_yield();
	}
	REQUIRE((uint32_t)word == datum(message, i),
		"message %u: word %zu has its flag, but not its data", message, i);
}

static void watch_line(_Atomic uint64_t *words, size_t first, unsigned int message)
{
	uint64_t flag;

	while ((flag = atomic_load_explicit(
			&words[first + LINE_WORDS - 1], memory_order_acquire)) != message + 1) {
		check_flag(flag, message);
		sched_yield();
	}
	for (size_t i = first; i < first + LINE_WORDS - 1; i++) {
		uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);

		REQUIRE((uint32_t)word == datum(message, i + 1) && word >> 32 == datum(message, i),
			"message %u: the line at byte %zu has its flag, but not all of its data",
			message, first * 8);
	}
}

static void *consume(void *argument)
{
	struct watch *watch = argument;

	for (unsigned int message = 0; message < MESSAGES; message++) {
		_Atomic uint64_t *words;

		while (watch->posted <= message)
			sched_yield();
		words = (_Atomic uint64_t *)(void *)slot_at(&watch->slots, message % SLOTS);
		for (size_t i = 0; i < BYTES / 8; i += watch->has_lines ? LINE_WORDS : 1) {
			if (watch->has_lines)
				watch_line(words, i, message);
			else
				watch_word(words, i, message);
		}
		watch->consumed = message + 1;
	}
	return NULL;
}

static void receive(struct side *side, bool has_lines)
{
	struct watch watch = { .side = side, .has_lines = has_lines };
	void *requests[SLOTS], *data;
	unsigned int done = 0;
	size_t size = BYTES;
	pthread_t thread;
	int tag = 9;

	slots_create(&watch.slots, SLOTS, BYTES);
	for (unsigned int i = 0; i < SLOTS; i++)
		memset(slot_at(&watch.slots, i), 0, BYTES);
	slots_register(&watch.slots, side, side->comms[0]);
	REQUIRE(pthread_create(&thread, NULL, consume, &watch) == 0, "no thread");
	while (done < MESSAGES) {
		unsigned int posted = watch.posted;
		int is_done = 0;

		/* As in NCCL: a slot is used again when the GPU has its data and test() says
		 * done. */
		if (posted < MESSAGES && posted < done + SLOTS && posted < watch.consumed + SLOTS) {
			void *request = NCCL_OPTIONAL_RECV_COMPLETION;

			data = slot_at(&watch.slots, posted % SLOTS);
			MUST(plugin_irecv(side->net, side->comms[0], 1, &data, &size, &tag,
				&watch.slots.mr, NULL, &request));
			requests[posted % SLOTS] = request;
			if (request)
				watch.posted = posted + 1;
		}
		if (done < watch.posted)
			MUST(plugin_test(side->net, requests[done % SLOTS], &is_done, NULL));
		done += is_done ? 1 : 0;
		if (!is_done)
			sched_yield();
	}
	pthread_join(thread, NULL);
	slots_deregister(&watch.slots, side, side->comms[0]);
	slots_destroy(&watch.slots);
}

static void transmit(struct side *side, bool has_lines)
{
	void *requests[SLOTS] = { 0 };
	struct slots slots;

	slots_create(&slots, SLOTS, BYTES);
	slots_register(&slots, side, side->comms[0]);
	for (unsigned int message = 0; message < MESSAGES + SLOTS; message++) {
		unsigned int slot = message % SLOTS;

		if (message >= SLOTS)
			await(side, requests[slot], NULL, "a send");
		if (message >= MESSAGES)
			continue;
		write_message(
			(uint64_t *)(void *)slot_at(&slots, slot), BYTES / 8, message, has_lines);
		requests[slot] = NULL;
		while (!requests[slot])
			MUST(plugin_isend(side->net, side->comms[0], slot_at(&slots, slot), BYTES,
				9, slots.mr, NULL, &requests[slot]));
	}
	slots_deregister(&slots, side, side->comms[0]);
	slots_destroy(&slots);
}

static void ll_send(struct side *side)
{
	transmit(side, false);
}

static void ll_recv(struct side *side)
{
	receive(side, false);
}

static void ll128_send(struct side *side)
{
	transmit(side, true);
}

static void ll128_recv(struct side *side)
{
	receive(side, true);
}

const struct row flag_rows[] = {
	{ .name = "ll", .what = "8-byte words with flags", .send = ll_send, .recv = ll_recv },
	{ .name = "ll128", .what = "128-byte lines", .send = ll128_send, .recv = ll128_recv },
	{ .name = NULL },
};
