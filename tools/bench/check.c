/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers: contents before an operation, and checks after it. The result must be right. All other
 * memory must be unchanged: the inputs, gaps between blocks, and the memory around each buffer.
 * Each element of the result holds a wrong value before, so that missing writes are detected.
 */
#include "tools/bench/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/common/random.h"

enum {
	PAGE = 4096,
	GUARD = 64,        /* bytes checked on each side of a buffer */
	GUARD_BYTE = 0x5a, /* also between blocks */
	MAX_ERRORS_PRINTED = 10,
};

/* A buffer; out of place there are two. */
struct region {
	uint8_t *at;
	size_t count; /* elements */
};

static size_t round_up(size_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int allocate_on_gpu(struct bench *b, struct bench_slot *slot)
{
	int gpu, rc = gpu_of(&b->options->mem, b->session->rank, &gpu);

	if (!rc)
		rc = gpu_alloc(gpu, b->slot_size, &slot->gpu);
	slot->memory = slot->gpu.host;
	return rc;
}

void bench_check_size(struct bench *b)
{
	size_t edge = PAGE + (size_t)b->options->offset + GUARD;

	b->recv_place = round_up(edge + b->longest_send);
	b->slot_size = b->recv_place + round_up(edge + b->longest_recv);
}

int bench_check_allocate(struct bench *b)
{
	const struct bench_options *o = b->options;

	bench_check_size(b);
	for (uint64_t i = 0; i < o->in_flight; i++) {
		struct bench_slot *slot = &b->slots[i];

		if (o->mem.is_gpu) {
			int rc = allocate_on_gpu(b, slot);

			if (rc)
				return rc;
			continue;
		}
		slot->memory = o->use_malloc ? malloc(b->slot_size) : frl_mem_alloc(b->slot_size);
		if (slot->memory)
			continue;
		say_failure(-ENOMEM, "no memory for %zu bytes of buffers, %" PRIu64 " times",
			b->slot_size, o->in_flight);
		return -ENOMEM;
	}
	return 0;
}

void bench_check_release(struct bench *b)
{
	for (int i = 0; i < BENCH_IN_FLIGHT; i++) {
		struct bench_slot *slot = &b->slots[i];

		if (b->options->mem.is_gpu)
			gpu_free(&slot->gpu);
		else if (b->options->use_malloc)
			free(slot->memory);
		else if (slot->memory)
			frl_mem_free(slot->memory, b->slot_size);
		slot->memory = NULL;
	}
}

/* A rank that sends nothing passes NULL, so that an access of the library is detected. */
void bench_check_place(struct bench *b)
{
	const struct bench_layout *l = &b->layout;
	size_t bytes = frl_dtype_size(b->c.dtype), offset = (size_t)b->options->offset;
	bool empty = b->c.count == 0, shares = b->c.op == FRL_BROADCAST || b->c.op == FRL_REDUCE;

	for (uint64_t i = 0; i < b->options->in_flight; i++) {
		struct bench_slot *slot = &b->slots[i];
		uint8_t *recv = slot->memory + b->recv_place + PAGE + offset;
		uint8_t *send = l->in_place ? recv : slot->memory + PAGE + offset;
		bool both = empty || (l->in_place && shares);

		slot->send = l->send_count || both ? send + l->send_at * bytes : NULL;
		slot->recv = l->recv_count || both ? recv + l->recv_at * bytes : NULL;
	}
}

/* Lists the buffers of this rank. Returns their number. */
static int list_regions(
	const struct bench *b, const struct bench_slot *slot, struct region regions[2])
{
	const struct bench_layout *l = &b->layout;
	size_t bytes = b->values.elem_size, send_end = l->send_at + l->send_count;
	size_t recv_end = l->recv_at + l->recv_count;
	int n = 0;

	if (l->in_place) {
		uint8_t *at = slot->send ? slot->send - l->send_at * bytes
					 : slot->recv - l->recv_at * bytes;

		regions[n++] = (struct region){ at, send_end > recv_end ? send_end : recv_end };
		return n;
	}
	if (slot->send)
		regions[n++] = (struct region){ slot->send, l->send_count };
	if (slot->recv)
		regions[n++] = (struct region){ slot->recv, l->recv_count };
	return n;
}

/*
 * Finds the next elements, after `done` ones, that are contiguous in the table of values
 * (bench_values_of()). Returns their number and sets their position in the table.
 */
static size_t next_run(const struct bench_segment *segment, size_t done, size_t *ret_place)
{
	size_t left = segment->count - done, place = (segment->from + done) % BENCH_PERIOD;

	*ret_place = place;
	return left < BENCH_PERIOD - place ? left : BENCH_PERIOD - place;
}

static void fill_run(const struct bench *b, uint8_t *at, const uint8_t *from, size_t n, bool spoil)
{
	size_t bytes = n * b->values.elem_size;

	if (spoil && !b->values.is_exact) {
		memset(at, 0xff, bytes); /* NaN */
		return;
	}
	memcpy(at, from, bytes);
	for (size_t i = 0; i < bytes && spoil; i++)
		at[i] = (uint8_t)~at[i];
}

static void fill_segment(
	const struct bench *b, uint8_t *base, const struct bench_segment *segment, bool spoil)
{
	const uint8_t *table = bench_values_of(&b->values, segment->source);
	size_t bytes = b->values.elem_size;

	for (size_t i = 0, n, place; i < segment->count; i += n) {
		n = next_run(segment, i, &place);
		fill_run(b, base + (segment->at + i) * bytes, table + place * bytes, n, spoil);
	}
}

int bench_check_fill(struct bench *b, struct bench_slot *slot)
{
	const struct bench_layout *l = &b->layout;
	const struct bench_segment input = { 0, l->send_count, b->session->rank, 0 };
	struct region regions[2];
	int n = list_regions(b, slot, regions);

	for (int i = 0; i < n; i++)
		memset(regions[i].at - GUARD, GUARD_BYTE,
			regions[i].count * b->values.elem_size + 2 * (size_t)GUARD);
	for (int i = 0; i < l->n_segments; i++)
		fill_segment(b, slot->recv, &l->segments[i], true);
	if (l->send_count)
		fill_segment(b, slot->send, &input, false);
	return b->options->mem.is_gpu ? gpu_give(&slot->gpu, 0, b->slot_size) : 0;
}

static bool may_print_error(struct bench *b)
{
	b->errors_found++;
	if (b->errors_found == MAX_ERRORS_PRINTED + 1)
		say("further wrong elements are not printed");
	return b->errors_found <= MAX_ERRORS_PRINTED;
}

static void print_error(struct bench *b, const char *what)
{
	char text[160];

	if (!may_print_error(b))
		return;
	bench_describe(&b->c, text, sizeof(text));
	say("%s, %zu elements, %s: %s", text, b->c.count,
		b->layout.in_place ? "in place" : "out of place", what);
}

/* Parameters of a comparison. Results have an error bound, inputs have none. */
struct look {
	const char *at;
	const uint8_t *base;
	bool exact;
};

static void print_wrong_element(struct bench *b, const struct look *look, size_t index,
	const struct bench_segment *segment, size_t place, uint64_t bits)
{
	const struct bench_values *v = &b->values;
	const uint8_t *right = bench_values_of(v, segment->source) + place * v->elem_size;
	size_t i = (size_t)(segment->source + 1) * BENCH_PERIOD + place;
	int digits = 2 * (int)v->elem_size;
	char what[200];

	if (look->exact)
		snprintf(what, sizeof(what),
			"element %zu of the %s is 0x%0*" PRIx64 ", not 0x%0*" PRIx64, index,
			look->at, digits, bits, digits, number_load(right, v->elem_size));
	else
		snprintf(what, sizeof(what),
			"element %zu of the %s is %.9Lg, not %.9Lg within %.3Lg", index, look->at,
			number_decode(v->dtype, bits), v->expected[i], v->bound[i]);
	print_error(b, what);
}

/*
 * Compares `n` elements with the table of values (bench_values_of()) from `place` on. `done` is the
 * number of elements of the segment before them. Returns the number of wrong ones.
 */
static uint64_t count_run(struct bench *b, const struct look *look,
	const struct bench_segment *segment, size_t done, size_t n, size_t place)
{
	const struct bench_values *v = &b->values;
	const uint8_t *right = bench_values_of(v, segment->source) + place * v->elem_size;
	const uint8_t *at = look->base + (segment->at + done) * v->elem_size;
	uint64_t wrong = 0;

	if (look->exact && memcmp(at, right, n * v->elem_size) == 0)
		return 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t bits = number_load(at + i * v->elem_size, v->elem_size);

		if (look->exact ? bits == number_load(right + i * v->elem_size, v->elem_size)
				: bench_values_error(v, segment->source, place + i, bits) <= 1)
			continue;
		if (wrong++ == 0)
			print_wrong_element(
				b, look, segment->at + done + i, segment, place + i, bits);
	}
	return wrong;
}

static uint64_t count_segment(
	struct bench *b, const struct look *look, const struct bench_segment *segment)
{
	uint64_t wrong = 0;

	for (size_t i = 0, n, place; i < segment->count; i += n) {
		n = next_run(segment, i, &place);
		wrong += count_run(b, look, segment, i, n, place);
	}
	return wrong;
}

/*
 * Returns the number of changed input elements. In place, the result replaces a part of the input.
 */
static uint64_t count_changed(struct bench *b, const struct bench_slot *slot)
{
	const struct bench_layout *l = &b->layout;
	const struct look look = { "input", slot->send, true };
	size_t first = l->send_count, last = l->send_count; /* range that the result replaces */
	uint64_t wrong = 0;

	if (l->in_place && l->recv_count) {
		size_t end = l->recv_at + l->recv_count;

		first = l->recv_at > l->send_at ? l->recv_at - l->send_at : 0;
		last = end > l->send_at ? end - l->send_at : 0;
		if (last > l->send_count)
			last = l->send_count;
	}
	for (int i = 0; i < 2; i++) {
		size_t from = i ? last : 0, to = i ? l->send_count : first;
		const struct bench_segment kept = { from, to > from ? to - from : 0,
			b->session->rank, from };

		if (kept.count)
			wrong += count_segment(b, &look, &kept);
	}
	return wrong;
}

static uint64_t count_overwritten(struct bench *b, const uint8_t *at, size_t n, const char *where)
{
	uint64_t wrong = 0;

	for (size_t i = 0; i < n; i++)
		wrong += at[i] != GUARD_BYTE;
	if (wrong)
		print_error(b, where);
	return wrong;
}

/* Returns the number of changed bytes around the buffers and between blocks. */
static uint64_t count_guards(struct bench *b, const struct bench_slot *slot)
{
	const struct bench_layout *l = &b->layout;
	size_t bytes = b->values.elem_size, end = 0;
	struct region regions[2];
	int n = list_regions(b, slot, regions);
	uint64_t wrong = 0;

	for (int i = 0; i < n; i++) {
		wrong += count_overwritten(b, regions[i].at - GUARD, GUARD,
			"bytes in front of a buffer were overwritten");
		wrong += count_overwritten(b, regions[i].at + regions[i].count * bytes, GUARD,
			"bytes behind a buffer were overwritten");
	}
	for (int i = 0; i < l->n_segments; i++) {
		wrong += count_overwritten(b, slot->recv + end * bytes,
			(l->segments[i].at - end) * bytes,
			"bytes between two blocks were overwritten");
		end = l->segments[i].at + l->segments[i].count;
	}
	return wrong;
}

/* Extends a digest by some bytes. It detects accidental differences, not attacks. */
static uint64_t digest_words(uint64_t digest, const uint8_t *at, size_t size)
{
	uint64_t word;

	for (; size >= sizeof(word); at += sizeof(word), size -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
		digest ^= digest >> 32;
	}
	return train_digest(digest, at, size);
}

int bench_check_count_wrong(
	struct bench *b, struct bench_slot *slot, uint64_t *wrong, uint64_t *digest)
{
	const struct bench_layout *l = &b->layout;
	const struct look look = { "result", slot->recv, b->values.is_exact };
	int rc = b->options->mem.is_gpu ? gpu_take(&slot->gpu, 0, b->slot_size) : 0;

	if (rc)
		return rc;
	*wrong += count_guards(b, slot) + count_changed(b, slot);
	for (int i = 0; i < l->n_segments; i++)
		*wrong += count_segment(b, &look, &l->segments[i]);
	if (l->recv_count)
		*digest = digest_words(*digest, slot->recv, l->recv_count * b->values.elem_size);
	return 0;
}
