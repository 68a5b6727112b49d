/* SPDX-License-Identifier: BSD-3-Clause */
/* The rings of local links: frames of all lengths pass unchanged, a full ring takes no more, and
 * the other end's writes into the memory do no harm. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "drivers/local/ring.h"
#include "tests/fixtures/limited_child.h"
#include "tests/fixtures/program.h"
#include "tests/unit/drivers/local/ring_fixture.h"

enum {
	MAX = RING_MAX_FRAME,
	LINE_FRAME = RING_LINE - 4, /* the longest frame of one line */
	MANY = 100000,
	PASSED = 20000, /* between threads */
	PATTERN = 251,
	MOST = 5000, /* bytes of a frame of one that writes anything */
	/* Flags of a word, as in ring.c. */
	THERE = 1 << 16,
	SHORTENED = 1 << 17,
	KEPT = 1 << 18,
};

static uint8_t sent[MAX];
static uint8_t pattern[MAX + PATTERN];

static void set_up(void)
{
	ring_set_up();
	for (uint32_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)mix(i % PATTERN);
}

/* The beginning is that of a flow, the rest the frame's own. */
static void fill(uint8_t *frame, uint32_t len, uint32_t n, uint32_t flow)
{
	memcpy(frame, pattern + n % PATTERN, len);
	memcpy(frame, pattern + flow, len < RING_STEM ? len : RING_STEM);
}

static int send_frame(uint32_t header_len, uint32_t len)
{
	uint8_t *rest;
	int err = ring_begin(&tx, sent, header_len, len - header_len, &rest);

	if (err)
		return err;
	memcpy(rest, sent + header_len, len - header_len);
	ring_show(&tx);
	return 0;
}

static void expect_frame(uint32_t len)
{
	ck_assert_int_eq(ring_look(&rx, MAX), (int)len);
	memset(got, 0xee, len);
	ring_take(&rx, got);
	ck_assert_int_eq(memcmp(got, sent, len), 0);
}

static const uint32_t lengths[] = { 1, 2, RING_STEM - 1, RING_STEM, RING_STEM + 1, LINE_FRAME - 1,
	LINE_FRAME, LINE_FRAME + 1, LINE_FRAME + RING_STEM, LINE_FRAME + RING_STEM + 1, 120, 121,
	LINE_FRAME + RING_LINE, LINE_FRAME + RING_LINE + 1, RING_SHORT, RING_SHORT + 1,
	RING_SHORT + RING_STEM, 4096, MAX - 1, MAX };

/* More than once around, as frames with and without their beginning, and with headers of several
 * lengths, each to an empty ring. */
START_LOOP_TEST(length, 2 * ROWS(lengths))
{
	const uint32_t len = lengths[_i % ROWS(lengths)];
	const uint32_t headers[] = { 0, 1, RING_STEM - 1, RING_STEM, 54, 86, len };

	ring_choose(_i < ROWS(lengths) ? RING_BYTES : RING_SMALL_BYTES);
	ck_assert_int_eq(ring_look(&rx, MAX), -EAGAIN);
	for (uint32_t n = 0, at = 0; at < 3 * RING_BYTES; n++, at += len + RING_LINE) {
		uint32_t header_len = headers[n % 7] < len ? headers[n % 7] : len;

		fill(sent, len, n, n / 7 % 2);
		ck_assert_int_eq(send_frame(header_len, len), 0);
		expect_frame(len);
		ck_assert_int_eq(ring_look(&rx, MAX), -EAGAIN);
	}
}
END_TEST

/* The beginning of a frame that is given up is not known at the other end. */
START_TEST(cancelled)
{
	enum { LEN = 100 };
	uint8_t *rest;

	ring_choose(RING_BYTES);
	for (uint32_t flow = 0; flow < 3; flow++) {
		fill(sent, LEN, flow, flow);
		ck_assert_int_eq(ring_begin(&tx, sent, LEN - 10, 10, &rest), 0);
		memset(rest, 0xee, 5);
		ring_cancel(&tx);
		ck_assert_int_eq(ring_look(&rx, MAX), -EAGAIN);
		for (int i = 0; i < 3; i++) {
			ck_assert_int_eq(send_frame(LEN - 10, LEN), 0);
			expect_frame(LEN);
		}
	}
}
END_TEST

/* ---- frames whose rest stays in the ring */

static int send_split(uint32_t header_len, uint32_t len)
{
	uint8_t *rest;
	int err = ring_begin(&tx, sent, header_len, len - header_len, &rest);

	if (err)
		return err;
	memcpy(rest, sent + header_len, len - header_len);
	ring_split(&tx, header_len);
	ring_show(&tx);
	return 0;
}

/* Headers of several lengths, with and without a stored beginning. Nothing behind the header is
 * copied. */
START_LOOP_TEST(split, 2)
{
	static const uint32_t headers[] = { RING_STEM, RING_STEM + 1, 54, LINE_FRAME, 86, 127 };
	uint32_t header_len;

	ring_choose(_i ? RING_SMALL_BYTES : RING_BYTES);
	for (uint32_t n = 0; n < 200; n++) {
		uint32_t len = 128 + n * 997 % (MAX - 128), header = headers[n % ROWS(headers)];
		const uint8_t *rest;

		fill(sent, len, n, n / 7 % 2);
		ck_assert_int_eq(send_split(header, len), 0);
		ck_assert_int_eq(ring_look(&rx, MAX), (int)len);
		memset(got, 0xee, len);
		rest = ring_take_split(&rx, got, &header_len);
		ck_assert_ptr_nonnull(rest);
		ck_assert_uint_eq(header_len, header);
		ck_assert_mem_eq(got, sent, header);
		ck_assert_mem_eq(rest, sent + header, len - header);
		ck_assert(len < RING_SHORT + header || got[header + RING_LINE] == 0xee);
		ring_release(&rx);
		/* Others are copied whole. */
		ck_assert_int_eq(send_frame(header, len), 0);
		ck_assert_int_eq(ring_look(&rx, MAX), (int)len);
		ck_assert_ptr_null(ring_take_split(&rx, got, &header_len));
		ck_assert_mem_eq(got, sent, len);
	}
}
END_TEST

/* The producer gets no room of a rest that is in use, however much is taken. */
START_LOOP_TEST(rests_in_use, 2)
{
	static uint8_t copy[MAX];
	const uint8_t *first;
	uint32_t header_len, n = 0;

	ring_choose(_i ? RING_SMALL_BYTES : RING_BYTES);
	fill(sent, MAX, 1, 0);
	memcpy(copy, sent, MAX);
	ck_assert_int_eq(send_split(54, MAX), 0);
	ck_assert_int_eq(ring_look(&rx, MAX), MAX);
	first = ring_take_split(&rx, got, &header_len);
	/* Until the ring is full although all of it was taken. */
	fill(sent, MAX, 2, 0);
	while (send_frame(54, MAX) == 0) {
		ck_assert_int_eq(ring_look(&rx, MAX), MAX);
		ring_take(&rx, got);
		ck_assert_uint_lt(++n, RING_BYTES / MAX + 1);
	}
	ck_assert(ring_must_release(&rx));
	ck_assert_mem_eq(first, copy + 54, MAX - 54);
	ring_release(&rx);
	ck_assert(!ring_must_release(&rx));
	ck_assert_int_eq(send_frame(54, MAX), 0);
	expect_frame(MAX);
}
END_TEST

static const uint32_t bad_headers[] = { 1, RING_STEM - 1, 200, 201, 0x1fff };

/* Headers that a frame of 200 bytes cannot have. */
START_LOOP_TEST(bad_header, ROWS(bad_headers))
{
	fill(sent, 200, 1, 0);
	ck_assert_int_eq(ring_begin(&tx, sent, 100, 100, &(uint8_t *){ NULL }), 0);
	ring_split(&tx, bad_headers[_i]);
	ring_show(&tx);
	ck_assert_int_eq(ring_look(&rx, MAX), -EPROTO);
}
END_TEST

/* Frame number `n` of a mixture. */
static uint32_t shape(uint32_t n, uint32_t *ret_header_len)
{
	uint32_t draw = mix(n);
	uint32_t len = 1 + (draw >> 8) % (draw % 64 == 0 ? MAX : draw % 4 ? 200 : 5000);

	*ret_header_len = (draw >> 4) % 128 < len ? (draw >> 4) % 128 : len;
	fill(sent, len, n, draw % 3);
	return len;
}

/* All pairs of frames behind each other. Filled up and emptied, by more and by less. */
START_TEST(mixture)
{
	uint32_t n_sent = 0, n_got = 0, fulls = 0;

	ring_choose(RING_MEDIUM_BYTES);
	while (n_got < MANY / 4) {
		uint32_t header_len, len, goal = n_sent + 1 + mix(n_sent) % 300;
		int err = 0;

		for (; n_sent < goal && !err; n_sent += !err) {
			len = shape(n_sent, &header_len);
			err = send_frame(header_len, len);
		}
		/* Never full and empty at once. */
		ck_assert(err == 0 || (err == -EAGAIN && n_sent > n_got));
		fulls += err != 0;
		goal = n_got + (mix(n_got) % 4 ? 1 + mix(n_got) % 200 : MANY);
		for (; n_got < goal && n_got < n_sent; n_got++)
			expect_frame(shape(n_got, &header_len));
	}
	ck_assert_uint_gt(fulls, 10);
}
END_TEST

/* A full ring takes nothing and loses nothing; when empty it has room for the longest frame. */
START_LOOP_TEST(full, ROWS(lengths))
{
	const uint32_t len = lengths[_i];
	uint32_t n_sent, n_got;

	for (uint32_t round = 0; round < 5; round++) {
		for (n_sent = 0;; n_sent++) {
			fill(sent, len, round + n_sent, n_sent % 2);
			if (send_frame(len, len) == -EAGAIN)
				break;
			ck_assert_uint_lt(n_sent, RING_BYTES / RING_LINE);
		}
		ck_assert_int_eq(send_frame(len, len), -EAGAIN);
		/* Except the bytes that the consumer has not released. */
		ck_assert_uint_ge(n_sent * (len + RING_LINE + 4), RING_BYTES / 2);
		for (n_got = 0; n_got < n_sent; n_got++) {
			fill(sent, len, round + n_got, n_got % 2);
			expect_frame(len);
		}
		ck_assert_int_eq(ring_look(&rx, MAX), -EAGAIN);
		fill(sent, MAX, round, 2);
		ck_assert_int_eq(send_frame(54, MAX), 0);
		expect_frame(MAX);
	}
}
END_TEST

/* ---- what the other end writes */

static const struct {
	uint32_t word;
	int result;
} words[] = {
	{ 1, -EPROTO },
	{ 0x80000000u, -EPROTO },
	{ THERE, -EPROTO },
	{ THERE | 1, 1 },
	{ THERE | MOST, MOST },
	{ THERE | (MOST + 1), -EPROTO },
	{ THERE | 0xffff, -EPROTO },
	{ THERE | KEPT | (RING_STEM - 1), -EPROTO },
	{ THERE | SHORTENED | (RING_STEM - 1), -EPROTO },
	{ THERE | SHORTENED | RING_STEM, RING_STEM },
	{ 0xffffffffu, -EPROTO },
};

START_LOOP_TEST(wrong_word, ROWS(words))
{
	memcpy(way->records, &words[_i].word, sizeof(words[_i].word));
	ck_assert_int_eq(ring_look(&rx, MOST), words[_i].result);
}
END_TEST

static const uint32_t places[] = { 1, RING_LINE - 1, RING_LINE + 4, RING_BYTES,
	RING_BYTES + RING_LINE, UINT32_MAX, UINT32_MAX - RING_LINE + 1 };

START_LOOP_TEST(wrong_place, ROWS(places))
{
	int err = 0;

	fill(sent, 200, 0, 0);
	atomic_store(&way->taken, places[_i]);
	for (uint32_t n = 0; n < RING_BYTES / RING_LINE && !err; n++)
		err = send_frame(54, 200);
	ck_assert_int_eq(err, -EPROTO);
}
END_TEST

/* A malicious producer: frames of the requested lengths, or an end; the pages around the memory and
 * the bytes behind the frame stay untouched. */
START_TEST(scribbling_producer)
{
	uint32_t taken = 0;

	for (uint32_t n = 0; n < MANY; n++) {
		uint32_t word = mix(n) & (mix(~n) % 4 ? 0x7ffff : UINT32_MAX);
		int len;

		if (mix(n) % 3)
			word = (word & ~0xffffu) | (word & 0xfff);
		memcpy(way->records + rx.at, &word, sizeof(word));
		len = ring_look(&rx, MOST);
		if (len < 0) {
			/* A link would end here. */
			ck_assert(len == -EAGAIN || len == -EPROTO);
			continue;
		}
		ck_assert_int_le(len, MOST);
		memset(got, 0xee, MOST + RING_LINE);
		/* It is read once: a later write has no effect. */
		memset(way->records + rx.at, 0xff, sizeof(word));
		ring_take(&rx, got);
		ck_assert_uint_eq(got[len + RING_LINE - 1], 0xee);
		taken++;
	}
	ck_assert_uint_gt(taken, MANY / 8);
}
END_TEST

/* A consumer that reports wrong positions. */
START_TEST(lying_consumer)
{
	uint32_t written = 0;

	for (uint32_t n = 0; n < MANY / 4; n++) {
		uint32_t header_len, len = shape(n, &header_len);

		atomic_store(&way->taken, mix(n) % (RING_BYTES / RING_LINE) * RING_LINE);
		written += send_frame(header_len, len) == 0;
	}
	ck_assert_uint_gt(written, MANY / 16);
}
END_TEST

/* ---- two threads */

/* The producer's end is unusable: set in the test's own thread. */
static atomic_int produce_error;

static void *produce(void *arg)
{
	static uint8_t bytes[MAX];

	for (uint32_t n = 0; n < PASSED; n++) {
		uint32_t draw = mix(n);
		uint32_t len = 1 + (draw >> 8) % (draw % 32 == 0 ? 9000 : 150);
		uint8_t *rest;

		fill(bytes, len, n, draw % 3);
		for (;;) {
			int err = ring_begin(&tx, bytes, len / 2, len - len / 2, &rest);

			if (!err)
				break;
			if (err != -EAGAIN) {
				atomic_store(&produce_error, err);
				return NULL;
			}
			sched_yield();
		}
		memcpy(rest, bytes + len / 2, len - len / 2);
		ring_show(&tx);
	}
	return NULL;
}

START_TEST(threads)
{
	pthread_t producer;

	atomic_store(&produce_error, 0);
	ck_assert_int_eq(pthread_create(&producer, NULL, produce, NULL), 0);
	for (uint32_t n = 0; n < PASSED; n++) {
		uint32_t draw = mix(n);
		uint32_t len = 1 + (draw >> 8) % (draw % 32 == 0 ? 9000 : 150);

		fill(sent, len, n, draw % 3);
		while (ring_look(&rx, MAX) == -EAGAIN) {
			ck_assert_int_eq(atomic_load(&produce_error), 0);
			sched_yield();
		}
		expect_frame(len);
	}
	ck_assert_int_eq(ring_look(&rx, MAX), -EAGAIN);
	pthread_join(producer, NULL);
}
END_TEST

/* ---- the memory */

static void pass(struct ring_link *from, struct ring_link *to, uint32_t n)
{
	uint8_t *rest;

	fill(sent, 100, n, n);
	ck_assert_int_eq(ring_begin(&from->tx, sent, 54, 46, &rest), 0);
	memcpy(rest, sent + 54, 46);
	ring_show(&from->tx);
	ck_assert_int_eq(ring_look(&to->rx, MAX), 100);
	ring_take(&to->rx, got);
	ck_assert_int_eq(memcmp(got, sent, 100), 0);
	ck_assert_int_eq(ring_look(&from->rx, MAX), -EAGAIN);
}

static const struct {
	uint32_t ordinal, bytes;
} sizes[] = {
	{ 1, RING_BYTES },
	{ 8, RING_BYTES },
	{ 9, RING_MEDIUM_BYTES },
	{ 32, RING_MEDIUM_BYTES },
	{ 33, RING_SMALL_BYTES },
	{ UINT32_MAX, RING_SMALL_BYTES },
};

START_LOOP_TEST(size_by_ordinal, ROWS(sizes))
{
	ck_assert_uint_eq(ring_bytes_for(sizes[_i].ordinal), sizes[_i].bytes);
}
END_TEST

START_LOOP_TEST(both_ends, 3)
{
	static const uint32_t lengths_of_rings[] = { RING_BYTES, RING_MEDIUM_BYTES,
		RING_SMALL_BYTES };
	struct ring_link *server, *client;
	int fd;

	ck_assert_int_eq(ring_link_make(lengths_of_rings[_i], &server, &fd), 0);
	ck_assert_int_eq(ring_link_join(fd, lengths_of_rings[_i], &client), 0);
	ck_assert_uint_eq(client->rx.bytes, lengths_of_rings[_i]);
	/* Nobody removes pages. */
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	close(fd);
	for (uint32_t n = 0; n < 10; n++) {
		pass(server, client, n);
		pass(client, server, n);
	}
	/* One end leaves, its sent frames stay. */
	fill(sent, 100, 0, 0);
	ck_assert_int_eq(ring_begin(&server->tx, sent, 100, 0, &(uint8_t *){ NULL }), 0);
	ring_show(&server->tx);
	ring_link_destroy(server);
	ck_assert_int_eq(ring_look(&client->rx, MAX), 100);
	ring_link_destroy(client);
}
END_TEST

/* A peer cannot make this process allocate longer rings than it wants. */
START_TEST(longer_than_wanted)
{
	struct ring_link *server, *client = NULL;
	int fd;

	ck_assert_int_eq(ring_link_make(RING_MEDIUM_BYTES, &server, &fd), 0);
	ck_assert_int_eq(ring_link_join(fd, RING_SMALL_BYTES, &client), -EINVAL);
	ck_assert_ptr_null(client);
	ck_assert_int_eq(ring_link_join(fd, RING_BYTES, &client), 0);
	ck_assert_uint_eq(client->rx.bytes, RING_MEDIUM_BYTES);
	ring_link_destroy(client);
	ring_link_destroy(server);
	close(fd);
}
END_TEST

/* Memory that the peer could remove, that is too short, or that is not writable. */
START_LOOP_TEST(wrong_memory, 7)
{
	struct ring_link *link = NULL;
	off_t step = (off_t)ring_page;
	off_t size = ((off_t)(2 * sizeof(struct ring_way)) + step - 1) / step * step;
	int fd = _i == 0  ? -1
		: _i == 1 ? open("/dev/zero", O_RDWR)
			  : memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (_i > 1) {
		int seals = _i == 4 ? F_SEAL_GROW
			: _i == 5   ? F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE
			: _i == 6   ? F_SEAL_SHRINK
				    : F_SEAL_SHRINK | F_SEAL_GROW;

		size += _i == 2 ? -step : _i == 3 ? step : 0;
		ck_assert_int_eq(ftruncate(fd, size), 0);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	}
	ck_assert_int_eq(ring_link_join(fd, RING_BYTES, &link), -EINVAL);
	ck_assert_ptr_null(link);
	if (fd >= 0)
		close(fd);
}
END_TEST

static bool is_refused(void)
{
	struct ring_link *link = NULL;
	int fd = -1;

	return ring_link_make(RING_BYTES, &link, &fd) == -EFBIG && !link && fd == -1;
}

START_TEST(limit_of_file_sizes)
{
	check_in_limited_child(4096, is_refused);
}
END_TEST

TEST_MAIN(ring)
{
	return run_suite(all_tests(set_up, ring_tear_down));
}
