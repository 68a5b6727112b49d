/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory ordering, for verification. The producer writes [at, next), zeroes the word at `next`, and
 * then publishes the word at `at` (release). It does so only if this range, including the line at
 * `next`, does not overlap the data that the consumer has not taken: [taken, at), modulo the ring.
 * The producer therefore never catches up with the consumer, and at == taken means an empty ring.
 * The consumer reads the word (acquire), copies, and updates `taken` (release) when it has taken a
 * quarter of the ring since the last update, and uses nothing of it any more. When all was taken
 * and released, the producer (acquire) thus finds at least three quarters free. That is room for
 * the longest frame at any position.
 *
 * Sleeping: the consumer sets `asleep` and then checks the word. The producer publishes the word
 * and then checks `asleep`. Both use a full fence in between, so at least one sees the other's
 * store. A producer that sees `asleep` set resets it, and then wakes the consumer. A consumer that
 * is awake for another reason may have set it again: that consumer is woken, too. On x86 the fence
 * costs hardly anything, because a producer holds a mutex, and unlocking it waits for the same
 * stores.
 */
#include "drivers/local/ring.h"
#include "lib/base/memory/copy.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
	WORD_SIZE = sizeof(uint32_t),
	LENGTH = 0xffff,     /* the low bits: length of the frame */
	THERE = 1 << 16,     /* set in every word of a record */
	SHORTENED = 1 << 17, /* the beginning equals that of an earlier frame */
	KEPT = 1 << 18,      /* this frame's beginning is stored for later frames */
	HEADER_SHIFT = 19,   /* bits from here on: length of a split frame's header; 0: not split */
	RING_LARGE_LINKS = 8,   /* the first links of a device have rings of RING_BYTES */
	RING_MEDIUM_LINKS = 32, /* links up to this one have rings of RING_MEDIUM_BYTES */
	REPORT_SHARE = 4,       /* `taken` is updated when this part of the ring was taken */
};

static_assert(RING_SMALL_BYTES * 3 / 4 >= 2 * (RING_MAX_FRAME + 1) + 2 * RING_LINE,
	"the longest frame goes into an empty ring wherever it begins");
static_assert(sizeof(_Atomic(uint32_t)) == sizeof(uint32_t), "shared between processes");

static _Atomic(uint32_t) *word_at(struct ring_way *way, uint32_t at)
{
	return (_Atomic(uint32_t) *)(void *)(way->records + at);
}

/* Returns where the next record begins after one of `len` bytes, before wrapping around. */
static uint32_t end_of(uint32_t at, uint32_t len)
{
	return at + ((WORD_SIZE + len + RING_LINE - 1) & ~(uint32_t)(RING_LINE - 1));
}

static struct ring_stem *stem_of(struct ring_stem *stems, uint32_t len)
{
	return &stems[len / 4 % RING_STEMS];
}

/* Prefetches the line into this processor's cache for writing. */
static void fetch_to_write(const uint8_t *line)
{
#if defined(__x86_64__)
	/* For generic processors, compilers translate the builtin to a prefetch for reading. */
	__asm__ volatile("prefetchw %0" : : "m"(*line));
#else
	__builtin_prefetch(line, 1);
#endif
}

uint32_t ring_bytes_for(uint32_t ordinal)
{
	if (ordinal <= RING_LARGE_LINKS)
		return RING_BYTES;
	return ordinal <= RING_MEDIUM_LINKS ? RING_MEDIUM_BYTES : RING_SMALL_BYTES;
}

uint32_t ring_shorter(uint32_t bytes)
{
	return bytes == RING_BYTES ? RING_MEDIUM_BYTES : RING_SMALL_BYTES;
}

void ring_tx_init(struct ring_tx *tx, struct ring_way *way, uint32_t bytes)
{
	*tx = (struct ring_tx){ .way = way, .bytes = bytes };
}

void ring_rx_init(struct ring_rx *rx, struct ring_way *way, uint32_t bytes)
{
	*rx = (struct ring_rx){ .way = way, .bytes = bytes };
}

/* Checks for room for a record up to `end`, and for the word after it. */
static bool has_room(const struct ring_tx *tx, uint32_t end)
{
	if (tx->at < tx->taken)
		return end < tx->taken;
	return end < tx->bytes || tx->taken > 0;
}

static int look_for_room(struct ring_tx *tx, uint32_t end)
{
	uint32_t taken = atomic_load_explicit(&tx->way->taken, memory_order_acquire);

	if (taken % RING_LINE || taken >= tx->bytes)
		return -EPROTO;
	tx->taken = taken;
	return has_room(tx, end) ? 0 : -EAGAIN;
}

int ring_begin(struct ring_tx *tx, const uint8_t *header, uint32_t header_len, uint32_t rest_len,
	uint8_t **ret_rest)
{
	uint32_t len = header_len + rest_len, skipped = 0, end;
	struct ring_stem *stem = stem_of(tx->stems, len);
	uint32_t word = THERE | len;
	uint8_t *to = tx->way->records + tx->at + WORD_SIZE;

	if (header_len >= RING_STEM) {
		if (memcmp(stem->bytes, header, RING_STEM) == 0) {
			skipped = RING_STEM;
			word |= SHORTENED;
		} else {
			word |= KEPT;
		}
	}
	end = end_of(tx->at, len - skipped);
	if (!has_room(tx, end)) {
		int err = look_for_room(tx, end);

		if (err)
			return err;
	}
	if (word & KEPT)
		memcpy(stem->bytes, header, RING_STEM);
	memcpy(to, header + skipped, header_len - skipped);
	tx->next = end < tx->bytes ? end : 0;
	tx->word = word;
	*ret_rest = to + header_len - skipped;
	return 0;
}

/* No frame begins with zeros, since these would be its destination. */
void ring_cancel(struct ring_tx *tx)
{
	if (tx->word & KEPT)
		memset(stem_of(tx->stems, tx->word & LENGTH)->bytes, 0, RING_STEM);
}

void ring_split(struct ring_tx *tx, uint32_t header_len)
{
	tx->word |= header_len << HEADER_SHIFT;
}

void ring_show(struct ring_tx *tx)
{
	struct ring_way *way = tx->way;

	atomic_store_explicit(word_at(way, tx->next), 0, memory_order_relaxed);
	atomic_store_explicit(word_at(way, tx->at), tx->word, memory_order_release);
	/* The next frame usually needs two lines, and the word after it. The consumer polls the
	 * first line. */
	fetch_to_write(way->records + tx->next + RING_LINE);
	fetch_to_write(way->records + tx->next + 2 * RING_LINE);
	tx->at = tx->next;
}

void ring_fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

bool ring_must_wake(struct ring_tx *tx)
{
	_Atomic(uint32_t) *asleep = &tx->way->asleep;

	ring_fence();
	if (!atomic_load_explicit(asleep, memory_order_relaxed))
		return false;
	atomic_store_explicit(asleep, 0, memory_order_relaxed);
	return true;
}

void ring_set_asleep(struct ring_rx *rx, bool asleep)
{
	atomic_store_explicit(&rx->way->asleep, asleep, memory_order_relaxed);
}

void ring_void(struct ring_tx *tx)
{
	atomic_store_explicit(&tx->way->is_void, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

bool ring_is_void(const struct ring_rx *rx)
{
	return atomic_load_explicit(&rx->way->is_void, memory_order_acquire);
}

int ring_look(struct ring_rx *rx, uint32_t max)
{
	uint32_t word = atomic_load_explicit(word_at(rx->way, rx->at), memory_order_acquire);
	uint32_t len = word & LENGTH, header = word >> HEADER_SHIFT;

	if (!word)
		return -EAGAIN;
	if (!(word & THERE) || len == 0 || len > max)
		return -EPROTO;
	if (word & (SHORTENED | KEPT) && len < RING_STEM)
		return -EPROTO;
	if (header && (header < RING_STEM || header >= len))
		return -EPROTO;
	rx->word = word;
	return (int)len;
}

/* Copies the frame of a record. Short frames, which are most, are copied by whole lines. That takes
 * fewer instructions than memcpy(), and does not reach the next record. */
static void copy_record(uint8_t *to, const uint8_t *from, uint32_t len)
{
	enum { FIRST = RING_LINE - WORD_SIZE };

	if (len > RING_SHORT) {
		copy_bulk(to, from, len);
		return;
	}
	memcpy(to, from, FIRST);
	for (uint32_t at = FIRST; at < len; at += RING_LINE)
		memcpy(to + at, from + at, RING_LINE);
}

static void report(struct ring_rx *rx)
{
	if (rx->has_rests_in_use || rx->unreported < rx->bytes / REPORT_SHARE)
		return;
	rx->unreported = 0;
	atomic_store_explicit(&rx->way->taken, rx->at, memory_order_release);
}

/* Copies the first `n` bytes of the next frame, and advances past all of it. Returns where it
 * continues. */
static const uint8_t *take(struct ring_rx *rx, uint8_t *frame, uint32_t n)
{
	struct ring_way *way = rx->way;
	uint32_t len = rx->word & LENGTH;
	struct ring_stem *stem = stem_of(rx->stems, len);
	const uint8_t *from = way->records + rx->at + WORD_SIZE;
	uint32_t skipped = rx->word & SHORTENED ? RING_STEM : 0;
	uint32_t end = end_of(rx->at, len - skipped);
	uint32_t next = end < rx->bytes ? end : 0;

	rx->unreported += end - rx->at;
	__builtin_prefetch(way->records + next);
	if (skipped)
		memcpy(frame, stem->bytes, RING_STEM);
	copy_record(frame + skipped, from, n - skipped);
	if (rx->word & KEPT)
		memcpy(stem->bytes, frame, RING_STEM);
	rx->at = next;
	return from + n - skipped;
}

void ring_take(struct ring_rx *rx, uint8_t *frame)
{
	take(rx, frame, rx->word & LENGTH);
	report(rx);
}

const uint8_t *ring_take_split(struct ring_rx *rx, uint8_t *frame, uint32_t *ret_header_len)
{
	uint32_t header = rx->word >> HEADER_SHIFT;

	*ret_header_len = header;
	if (!header) {
		ring_take(rx, frame);
		return NULL;
	}
	rx->has_rests_in_use = true;
	return take(rx, frame, header);
}

void ring_release(struct ring_rx *rx)
{
	rx->has_rests_in_use = false;
	report(rx);
}

bool ring_must_release(const struct ring_rx *rx)
{
	return rx->has_rests_in_use && rx->unreported >= rx->bytes / REPORT_SHARE;
}
