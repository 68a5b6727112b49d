/* SPDX-License-Identifier: BSD-3-Clause */
/* The rings of local links: frames of all lengths go through as they are, a full ring takes no
 * more, a consumer that sleeps is woken, and what the other end writes into the memory does no
 * harm. */
#include "drivers/dpdk/ring.h"
#include "drivers/dpdk/wake.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/backoff.h"
#include "lib/base/clock.h"

enum {
	MAX = RING_MAX_FRAME,
	LINE_FRAME = RING_LINE - 4, /* the longest frame of one line */
	MANY = 100000,
	PASSED = 20000, /* between threads */
	NAPS = 20000,
	RACES = 1000000,
	RACE_NS = 2000000000,
	WAIT_MS = 30000, /* for what is sure to come */
	PATTERN = 251,
	MOST = 5000, /* bytes of a frame of one that writes anything */
	/* Of a word, as ring.c has them. */
	THERE = 1 << 16,
	SHORTENED = 1 << 17,
	KEPT = 1 << 18,
};

static struct ring_way *way;
static struct ring_tx tx;
static struct ring_rx rx;
static uint8_t sent[MAX], got[MAX + RING_LINE];
static uint8_t pattern[MAX + PATTERN];
/* The memory, and pages around it that nobody may touch. */
static uint8_t *mapping;
static size_t page, mapping_size, way_size;

static uint32_t mix(uint32_t n)
{
	n = (n ^ n >> 16) * 0x45d9f3bu;
	n = (n ^ n >> 16) * 0x45d9f3bu;
	return n ^ n >> 16;
}

static void set_up(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	way_size = (sizeof(*way) + page - 1) / page * page;
	mapping_size = page + way_size + page;
	mapping = mmap(NULL, mapping_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(mapping != MAP_FAILED);
	ck_assert_int_eq(mprotect(mapping + page, way_size, PROT_READ | PROT_WRITE), 0);
	/* The records end where the page does. */
	way = (void *)(mapping + page + way_size - sizeof(*way));
	ring_tx_init(&tx, way);
	ring_rx_init(&rx, way);
	for (uint32_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)mix(i % PATTERN);
}

static void tear_down(void)
{
	munmap(mapping, mapping_size);
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

enum { N_LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

/* More than once around, as frames with and without their beginning, and with headers of several
 * lengths, each to an empty ring. */
START_TEST(length)
{
	const uint32_t len = lengths[_i];
	const uint32_t headers[] = { 0, 1, RING_STEM - 1, RING_STEM, 54, 86, len };

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

/* Frame number `n` of a mixture. */
static uint32_t shape(uint32_t n, uint32_t *ret_header_len)
{
	uint32_t draw = mix(n);
	uint32_t len = 1 + (draw >> 8) % (draw % 64 == 0 ? MAX : draw % 4 ? 200 : 5000);

	*ret_header_len = (draw >> 4) % 128 < len ? (draw >> 4) % 128 : len;
	fill(sent, len, n, draw % 3);
	return len;
}

/* Whatever is behind whatever else. Filled up and emptied, by more and by less. */
START_TEST(mixture)
{
	uint32_t n_sent = 0, n_got = 0, fulls = 0;

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

/* A full ring takes nothing and loses nothing; emptied it has room for the longest frame. */
START_TEST(full)
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
		/* But for the bytes that the consumer has not told of. */
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

START_TEST(wrong_word)
{
	memcpy(way->records, &words[_i].word, sizeof(words[_i].word));
	ck_assert_int_eq(ring_look(&rx, MOST), words[_i].result);
}
END_TEST

static const uint32_t places[] = { 1, RING_LINE - 1, RING_LINE + 4, RING_BYTES,
	RING_BYTES + RING_LINE, UINT32_MAX, UINT32_MAX - RING_LINE + 1 };

START_TEST(wrong_place)
{
	int err = 0;

	fill(sent, 200, 0, 0);
	atomic_store(&way->taken, places[_i]);
	for (uint32_t n = 0; n < RING_BYTES / RING_LINE && !err; n++)
		err = send_frame(54, 200);
	ck_assert_int_eq(err, -EPROTO);
}
END_TEST

/* A producer that scribbles: frames of the lengths that were asked for, or an end; the pages around
 * the memory and what is behind the frame stay untouched. */
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
		/* It is read once: what is written later counts no more. */
		memset(way->records + rx.at, 0xff, sizeof(word));
		ring_take(&rx, got);
		ck_assert_uint_eq(got[len + RING_LINE - 1], 0xee);
		taken++;
	}
	ck_assert_uint_gt(taken, MANY / 8);
}
END_TEST

/* A consumer that claims to be here and there. */
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

/* The producer's end is no use any more: said in the test's own thread. */
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

/* ---- sleeping */

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	return poll(&event, 1, timeout_ms) == 1;
}

/* Woken once for each time that it falls asleep, and not when it is awake. */
START_TEST(woken_once)
{
	ck_assert(!ring_must_wake(&tx));
	ring_set_asleep(&rx, true);
	ck_assert(ring_must_wake(&tx));
	ck_assert(!ring_must_wake(&tx));
	ring_set_asleep(&rx, true);
	ring_set_asleep(&rx, false);
	ck_assert(!ring_must_wake(&tx));
}
END_TEST

struct sleeper {
	int fd; /* the producer's own */
	uint32_t name;
	atomic_uint seen; /* frames that the consumer has taken */
};

/* One frame at a time, each as soon as the consumer, who has the one before, falls asleep. */
static void *wake_consumer(void *arg)
{
	struct sleeper *sleeper = arg;
	uint8_t byte = 1, *rest;

	for (uint32_t n = 0; n < NAPS; n++) {
		while (atomic_load_explicit(&sleeper->seen, memory_order_relaxed) < n)
			if (mix(n) % 64 == 0)
				sched_yield();
		/* So that it comes now before the consumer looks, now after, now just then. */
		for (uint32_t i = mix(~n) % 64; i > 0; i--)
			backoff_relax();
		if (ring_begin(&tx, &byte, 1, 0, &rest))
			return NULL; /* which the consumer waits for in vain */
		ring_show(&tx);
		if (ring_must_wake(&tx))
			wake_up(sleeper->fd, sleeper->name);
	}
	return NULL;
}

START_TEST(no_lost_wakeup)
{
	struct sleeper sleeper = { 0 };
	pthread_t producer;
	uint32_t name;
	int fd = wake_open(&sleeper.name);
	uint32_t slept = 0;

	sleeper.fd = wake_open(&name);
	ck_assert(fd >= 0 && sleeper.fd >= 0);
	ck_assert_int_eq(pthread_create(&producer, NULL, wake_consumer, &sleeper), 0);
	for (uint32_t n = 0; n < NAPS; n++) {
		for (;;) {
			ring_set_asleep(&rx, true);
			ring_fence();
			if (ring_look(&rx, MAX) != -EAGAIN)
				break;
			/* Nothing else ends this. */
			ck_assert_msg(is_readable(fd, WAIT_MS), "frame %u: not woken", n);
			wake_drain(fd);
			slept++;
		}
		ring_set_asleep(&rx, false);
		ring_take(&rx, got);
		atomic_store_explicit(&sleeper.seen, n + 1, memory_order_relaxed);
	}
	pthread_join(producer, NULL);
	ck_assert_uint_gt(slept, 0);
	close(fd);
	close(sleeper.fd);
}
END_TEST

/* Both at the same time, as nearly as can be: the consumer falls asleep and looks, the producer
 * shows a frame and asks. One of them sees what the other did. Rounds take long on a processor that
 * is busy otherwise: then there are fewer. */
static struct {
	atomic_uint round;    /* that both may begin */
	atomic_uint done;     /* that the producer has ended */
	atomic_bool is_woken; /* what the producer has found in it */
	atomic_bool is_over;
} race;

static void await(atomic_uint *count, uint32_t n)
{
	for (uint32_t i = 1; atomic_load_explicit(count, memory_order_acquire) < n; i++)
		if (i % 1024 == 0)
			sched_yield();
}

static void *show_in_race(void *arg)
{
	uint8_t byte = 1, *rest;

	for (uint32_t n = 1; n <= RACES; n++) {
		int err = ring_begin(&tx, &byte, 1, 0, &rest);

		await(&race.round, n);
		if (atomic_load_explicit(&race.is_over, memory_order_relaxed))
			return NULL;
		for (uint32_t i = mix(n) % 64; i > 0; i--)
			atomic_signal_fence(memory_order_seq_cst);
		if (!err)
			ring_show(&tx);
		atomic_store_explicit(&race.is_woken, ring_must_wake(&tx), memory_order_relaxed);
		atomic_store_explicit(&race.done, n, memory_order_release);
	}
	return NULL;
}

START_TEST(either_sees)
{
	uint64_t end_ns = clock_now_ns() + RACE_NS;
	uint32_t seen = 0, woken = 0, n;
	pthread_t producer;

	ck_assert_int_eq(pthread_create(&producer, NULL, show_in_race, NULL), 0);
	for (n = 1; n <= RACES && clock_now_ns() < end_ns; n++) {
		bool is_woken, is_seen;

		ring_set_asleep(&rx, false);
		atomic_store_explicit(&race.round, n, memory_order_release);
		for (uint32_t i = mix(~n) % 64; i > 0; i--)
			atomic_signal_fence(memory_order_seq_cst);
		ring_set_asleep(&rx, true);
		ring_fence();
		is_seen = ring_look(&rx, MAX) == 1;
		await(&race.done, n);
		is_woken = atomic_load_explicit(&race.is_woken, memory_order_relaxed);
		ck_assert_msg(is_seen || is_woken, "race %u: it sleeps for ever", n);
		seen += is_seen;
		woken += is_woken;
		ck_assert_int_eq(ring_look(&rx, MAX), 1);
		ring_take(&rx, got);
	}
	atomic_store(&race.is_over, true);
	atomic_store(&race.round, n);
	pthread_join(producer, NULL);
	ck_assert_uint_gt(seen + woken, 0);
}
END_TEST

/* Waking never waits, whoever has the name and whatever becomes of that one. */
START_TEST(waking)
{
	uint32_t name, other;
	int fd = wake_open(&name), from = wake_open(&other);

	ck_assert(fd >= 0 && from >= 0 && name && other && name != other);
	ck_assert(!is_readable(fd, 0));
	wake_up(from, name);
	ck_assert(is_readable(fd, 0));
	wake_drain(fd);
	ck_assert(!is_readable(fd, 0));
	/* Itself. */
	wake_up(fd, name);
	ck_assert(is_readable(fd, 0));
	/* Much more than it takes; then it is readable all the same, and again when it is empty. */
	for (int i = 0; i < PASSED; i++)
		wake_up(from, name);
	ck_assert(is_readable(fd, 0));
	for (int i = 0; i < PASSED && is_readable(fd, 0); i++)
		wake_drain(fd);
	wake_up(from, name);
	ck_assert(is_readable(fd, 0));
	/* Nobody. */
	close(fd);
	wake_up(from, name);
	wake_up(from, 0);
	wake_up(-1, other);
	ck_assert(!is_readable(from, 0));
	close(from);
	ck_assert_uint_eq(wake_check(UINT32_MAX), UINT32_MAX);
	ck_assert_uint_eq(wake_check(UINT64_C(1) << 32 | name), 0);
}
END_TEST

/* One that is woken again and again and never reads keeps nobody from waking others. */
START_TEST(wakes_others)
{
	uint32_t names[3];
	int fds[3];

	for (int i = 0; i < 3; i++) {
		fds[i] = wake_open(&names[i]);
		ck_assert_int_ge(fds[i], 0);
	}
	for (int i = 0; i < PASSED; i++)
		wake_up(fds[0], names[1]);
	wake_up(fds[0], names[2]);
	ck_assert(is_readable(fds[2], 0));
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}
END_TEST

/* Descriptors that somebody sends along would be this process's to close, which may take long. */
START_TEST(takes_no_descriptors)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);
	uint32_t name, other;
	int fd = wake_open(&name), from = wake_open(&other);
	struct iovec part = { .iov_base = (char[]){ 1 }, .iov_len = 1 };
	struct msghdr out = { .msg_name = &address,
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };

	ck_assert(fd >= 0 && from >= 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	out.msg_namelen = len;
	CMSG_FIRSTHDR(&out)->cmsg_level = SOL_SOCKET;
	CMSG_FIRSTHDR(&out)->cmsg_type = SCM_RIGHTS;
	CMSG_FIRSTHDR(&out)->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&out)), &from, sizeof(from));
	ck_assert_int_eq(sendmsg(from, &out, MSG_DONTWAIT), -1);
	ck_assert(!is_readable(fd, 0));
	/* The address was right. */
	out.msg_control = NULL;
	out.msg_controllen = 0;
	ck_assert_int_eq(sendmsg(from, &out, MSG_DONTWAIT), 1);
	ck_assert(is_readable(fd, 0));
	close(fd);
	close(from);
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

START_TEST(both_ends)
{
	struct ring_link *server, *client;
	int fd;

	ck_assert_int_eq(ring_link_make(&server, &fd), 0);
	ck_assert_int_eq(ring_link_join(fd, &client), 0);
	/* Nobody takes pages away. */
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	close(fd);
	for (uint32_t n = 0; n < 10; n++) {
		pass(server, client, n);
		pass(client, server, n);
	}
	/* One end goes, what it has sent stays. */
	fill(sent, 100, 0, 0);
	ck_assert_int_eq(ring_begin(&server->tx, sent, 100, 0, &(uint8_t *){ NULL }), 0);
	ring_show(&server->tx);
	ring_link_destroy(server);
	ck_assert_int_eq(ring_look(&client->rx, MAX), 100);
	ring_link_destroy(client);
}
END_TEST

/* Memory that the peer could take away, that is too short, or that nobody can write to. */
START_TEST(wrong_memory)
{
	struct ring_link *link = NULL;
	off_t step = (off_t)page;
	off_t size = ((off_t)(2 * sizeof(struct ring_way)) + step - 1) / step * step;
	int fd = _i == 0  ? -1
		: _i == 1 ? open("/dev/zero", O_RDWR)
			  : memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (_i > 1) {
		int seals = _i == 4 ? F_SEAL_GROW
			: _i == 5   ? F_SEAL_SHRINK | F_SEAL_WRITE
				    : F_SEAL_SHRINK;

		size += _i == 2 ? -step : _i == 3 ? step : 0;
		ck_assert_int_eq(ftruncate(fd, size), 0);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	}
	ck_assert_int_eq(ring_link_join(fd, &link), -EINVAL);
	ck_assert_ptr_null(link);
	if (fd >= 0)
		close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ring");
	TCase *tcase = tcase_create("ring");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_loop_test(tcase, length, 0, N_LENGTHS);
	tcase_add_test(tcase, mixture);
	tcase_add_loop_test(tcase, full, 0, N_LENGTHS);
	tcase_add_loop_test(tcase, wrong_word, 0, sizeof(words) / sizeof(words[0]));
	tcase_add_loop_test(tcase, wrong_place, 0, sizeof(places) / sizeof(places[0]));
	tcase_add_test(tcase, scribbling_producer);
	tcase_add_test(tcase, lying_consumer);
	tcase_add_test(tcase, threads);
	tcase_add_test(tcase, woken_once);
	tcase_add_test(tcase, no_lost_wakeup);
	tcase_add_test(tcase, either_sees);
	tcase_add_test(tcase, waking);
	tcase_add_test(tcase, wakes_others);
	tcase_add_test(tcase, takes_no_descriptors);
	tcase_add_test(tcase, both_ends);
	tcase_add_loop_test(tcase, wrong_memory, 0, 6);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
