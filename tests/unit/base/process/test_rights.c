/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib/base/process/rights.c and closer.c: no message from the other end of a Unix socket makes a
 * call sleep. A call that slept would sleep for a day, which the limit of a test ends.
 */
#include "lib/base/process/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>

#include "lib/base/process/closer.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/slow_file.h"

enum { STUCK = 8 };

static int pair[2], slow, reader;
static char bytes[16];

/* Odd: whole messages. */
static void set_up(int kind)
{
	int type = kind % 2 ? SOCK_SEQPACKET : SOCK_STREAM;

	ck_assert_int_eq(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair), 0);
	rights_prepare(pair[0]);
	slow = slow_file(&reader);
	ck_assert_int_ge(slow, 0);
}

/* From now on the message has the last one. */
static void send_slow(const char *text, size_t size, size_t n, int flags)
{
	ck_assert_int_eq(slow_file_send(pair[1], text, size, slow, n, flags), (ssize_t)size);
	close(slow);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

START_LOOP_TEST(bytes_alone, 2)
{
	int passed = 0;

	set_up(_i);
	ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes), &passed), -EAGAIN);
	ck_assert_int_eq(send(pair[1], "abc", 3, 0), 3);
	ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes), &passed), 3);
	ck_assert_int_eq(passed, -1);
	ck_assert_mem_eq(bytes, "abc", 3);
	ck_assert_int_eq(send(pair[1], "de", 2, 0), 2);
	ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes), NULL), 2);
	ck_assert_int_eq(send(pair[1], "0123456789abcdefgh", 18, 0), 18);
	ck_assert_int_eq(
		rights_receive(pair[0], bytes, sizeof(bytes), NULL), _i % 2 ? -EMSGSIZE : 16);
	close(pair[1]);
	if (_i % 2 == 0)
		ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes), NULL), 2);
}
END_TEST

START_LOOP_TEST(one_descriptor, 2)
{
	int passed = -1;

	set_up(_i);
	send_slow("abc", 3, 1, 0);
	ck_assert_int_eq(send(pair[1], "de", 2, 0), 2);
	ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes), &passed), 3);
	ck_assert_int_ge(passed, 0);
	ck_assert(fcntl(passed, F_GETFD) & FD_CLOEXEC);
	closer_close(passed);
	ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes), &passed), 2);
	ck_assert_int_eq(passed, -1);
}
END_TEST

/* The kernel shows descriptors of a later message to a peek that has filled its buffer. */
START_LOOP_TEST(descriptor_behind_many_bytes, 2)
{
	int passed = -1;

	set_up(_i);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(send(pair[1], "01234567", 8, 0), 8);
	send_slow("abc", 3, 1, 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(rights_receive(pair[0], bytes, 8, &passed), 8);
		ck_assert_int_eq(passed, -1);
	}
	ck_assert_int_eq(rights_receive(pair[0], bytes, 8, &passed), 3);
	ck_assert_mem_eq(bytes, "abc", 3);
	ck_assert_int_ge(passed, 0);
	closer_close(passed);
}
END_TEST

/* The number of descriptors, and whether one may come. */
static const struct {
	size_t n;
	bool may;
} refused[] = { { 1, false }, { 2, true }, { 3, true }, { SLOW_FILE_MOST, true } };

START_LOOP_TEST(descriptors_that_may_not_come, 2 * ROWS(refused))
{
	int passed = -1;

	set_up(_i);
	send_slow("abc", 3, refused[_i / 2].n, 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes),
					 refused[_i / 2].may ? &passed : NULL),
			-EBADMSG);
	ck_assert_int_eq(passed, -1);
	rights_close(pair[0]);
}
END_TEST

START_LOOP_TEST(no_room_for_a_descriptor, 2)
{
	struct rlimit files, none;
	int passed = -1, next;

	set_up(_i);
	next = dup(slow);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	none = files;
	none.rlim_cur = (rlim_t)next;
	send_slow("abc", 3, 1, 0);
	close(next);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes), &passed), -EBADMSG);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	ck_assert_int_eq(passed, -1);
	rights_close(pair[0]);
}
END_TEST

/* The kernel drops such a byte, and its descriptors, on the next read. */
START_LOOP_TEST(out_of_band, 2)
{
	int passed = -1;

	set_up(_i);
	if (_i % 2)
		return; /* SOCK_SEQPACKET has none */
	send_slow("!", 1, 1, MSG_OOB);
	ck_assert_int_eq(send(pair[1], "abc", 3, 0), 3);
	ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes), &passed), 1);
	ck_assert_int_ge(passed, 0);
	closer_close(passed);
	ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes), &passed), 3);
	ck_assert_int_eq(passed, -1);
}
END_TEST

/* For the kernel it is no end of the connection; for us it is. */
START_LOOP_TEST(empty_message_with_descriptor, 2)
{
	int passed = -1;

	set_up(_i);
	if (_i % 2 == 0)
		return; /* a stream has none */
	send_slow("", 0, 1, 0);
	ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes), &passed), 0);
	ck_assert_int_eq(passed, -1);
	rights_close(pair[0]);
}
END_TEST

/* Nothing can be in it: it is closed at once. */
START_LOOP_TEST(close_without_queue, 2)
{
	int passed;

	set_up(_i);
	ck_assert_int_eq(send(pair[1], "abc", 3, 0), 3);
	ck_assert_int_eq(rights_receive(pair[0], bytes, sizeof(bytes), &passed), 3);
	rights_close(pair[0]);
	if (_i % 2 == 0)
		ck_assert(!is_open(pair[0]));
	ck_assert_int_lt(send(pair[1], "abc", 3, MSG_NOSIGNAL), 0);
}
END_TEST

static void wait_until_closed(void)
{
	while (closer_pending())
		poll(NULL, 0, 1);
}

static void on_alarm(int number)
{
}

START_LOOP_TEST(signals_end_the_wait, 2)
{
	const struct sigaction action = { .sa_handler = on_alarm };

	set_up(_i);
	ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
	closer_interrupt_by(SIGALRM);
	send_slow("abc", 3, SLOW_FILE_MOST, 0);
	rights_close(pair[0]);
	wait_until_closed();
	ck_assert(!is_open(pair[0]));
}
END_TEST

/* Closes that never end do not block others. */
START_TEST(stuck_ones_are_passed)
{
	int ends[2], readers[STUCK];
	char byte;

	set_up(0);
	for (int i = 0; i < STUCK; i++) {
		closer_close(slow);
		slow = slow_file(&readers[i]);
		ck_assert_int_ge(slow, 0);
	}
	ck_assert_uint_eq(closer_pending(), STUCK);
	ck_assert_int_eq(pipe(ends), 0);
	closer_close(ends[1]);
	ck_assert_int_eq(read(ends[0], &byte, 1), 0);
	while (closer_pending() > STUCK)
		poll(NULL, 0, 1);
}
END_TEST

TEST_MAIN(rights)
{
	/* Some use all descriptors, or leave threads that close. */
	return run_suite_forked(all_tests(NULL, NULL));
}
