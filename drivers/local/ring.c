/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order of things, for one who wants to check it. The producer writes [at, next) and zeroes the
 * word at `next`, and then shows the word at `at` (release). It does so only if none of that,
 * the line at `next` included, is what the consumer has not taken: [taken, at) around the end.
 * So it never goes all the way around: at == taken means an empty ring. The consumer reads the word
 * (acquire), copies, and tells how far it is (release) when a quarter of the ring was taken since
 * the last time. The producer (acquire) therefore finds at least three quarters free when
 * all was taken, which is room for the longest frame wherever it begins.
 *
 * Sleeping: the consumer sets `asleep`, and then looks at the word; the producer shows the word,
 * and then looks at `asleep`; both with a full fence in between, so one of them sees what the other
 * has done. A producer that sees it set takes it back and wakes the consumer after that. It may
 * take back what the consumer, awake for another reason, has set anew: that one is woken, too.
 * On x86 the fence costs hardly anything: who shows a frame holds a mutex, and whoever lets go of
 * that waits for the same stores.
 */
#include "drivers/local/ring.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
	WORD_SIZE = sizeof(uint32_t),
	LENGTH = 0xffff,     /* of the frame: the low bits */
	THERE = 1 << 16,     /* set in every word of a record */
	SHORTENED = 1 << 17, /* the beginning is that of an earlier frame */
	KEPT = 1 << 18,      /* this one's beginning is to be kept */
};

static_assert(RING_SMALL_BYTES * 3 / 4 >= 2 * (RING_MAX_FRAME + 1) + 2 * RING_LINE,
	"the longest frame goes into an empty ring wherever it begins");
static_assert(sizeof(_Atomic(uint32_t)) == sizeof(uint32_t), "shared between processes");

static _Atomic(uint32_t) *word_at(struct ring_way *way, uint32_t at)
{
	return (_Atomic(uint32_t) *)(void *)(way->records + at);
}

/* Where the record behind one of that many bytes begins, before it is taken around the end. */
static uint32_t end_of(uint32_t at, uint32_t len)
{
	return at + ((WORD_SIZE + len + RING_LINE - 1) & ~(uint32_t)(RING_LINE - 1));
}

static struct ring_stem *stem_of(struct ring_stem *stems, uint32_t len)
{
	return &stems[len / 4 % RING_STEMS];
}

/* Has the line in this processor's cache, to be written to. */
static void fetch_to_write(const uint8_t *line)
{
#if defined(__x86_64__)
	/* What compilers make of the builtin for processors of the oldest kind fetches a copy. */
	__asm__ volatile("prefetchw %0" : : "m"(*line));
#else
	__builtin_prefetch(line, 1);
#endif
}

void ring_tx_init(struct ring_tx *tx, struct ring_way *way, uint32_t bytes)
{
	*tx = (struct ring_tx){ .way = way, .bytes = bytes };
}

void ring_rx_init(struct ring_rx *rx, struct ring_way *way, uint32_t bytes)
{
	*rx = (struct ring_rx){ .way = way, .bytes = bytes };
}

/* Room for a record up to `end`, and for the word behind it. */
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

void ring_show(struct ring_tx *tx)
{
	struct ring_way *way = tx->way;

	atomic_store_explicit(word_at(way, tx->next), 0, memory_order_relaxed);
	atomic_store_explicit(word_at(way, tx->at), tx->word, memory_order_release);
	/* The next frame is most often of two lines, and the word behind it. The first one is being
	 * looked at by the consumer. */
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
	uint32_t len = word & LENGTH;

	if (!word)
		return -EAGAIN;
	if (!(word & THERE) || len == 0 || len > max)
		return -EPROTO;
	if (word & (SHORTENED | KEPT) && len < RING_STEM)
		return -EPROTO;
	rx->word = word;
	return (int)len;
}

/* What is behind a word. Most frames are short: then by whole lines, which takes fewer instructions
 * than memcpy(), but not a byte of the next record. */
static void copy_record(uint8_t *to, const uint8_t *from, uint32_t len)
{
	enum { FIRST = RING_LINE - WORD_SIZE };

	if (len > RING_SHORT) {
		memcpy(to, from, len);
		return;
	}
	memcpy(to, from, FIRST);
	for (uint32_t at = FIRST; at < len; at += RING_LINE)
		memcpy(to + at, from + at, RING_LINE);
}

void ring_take(struct ring_rx *rx, uint8_t *frame)
{
	struct ring_way *way = rx->way;
	uint32_t len = rx->word & LENGTH;
	struct ring_stem *stem = stem_of(rx->stems, len);
	const uint8_t *from = way->records + rx->at + WORD_SIZE;
	uint32_t skipped = rx->word & SHORTENED ? RING_STEM : 0;
	uint32_t end = end_of(rx->at, len - skipped);
	uint32_t next = end < rx->bytes ? end : 0;

	rx->untold += end - rx->at;
	__builtin_prefetch(way->records + next);
	if (skipped)
		memcpy(frame, stem->bytes, RING_STEM);
	copy_record(frame + skipped, from, len - skipped);
	if (rx->word & KEPT)
		memcpy(stem->bytes, frame, RING_STEM);
	rx->at = next;
	if (rx->untold < rx->bytes / 4)
		return;
	rx->untold = 0;
	atomic_store_explicit(&way->taken, next, memory_order_release);
}
