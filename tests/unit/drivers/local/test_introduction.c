/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Introductions on the local fabric, both ends in one process and a step at a time: other programs
 * that connect to a device, programs that answer in the name of one, and processes that stop.
 */
#include "drivers/local/introduction.h"

#include <check.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/process/rights.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/slow_file.h"
#include "tests/unit/drivers/local/introduction_fixture.h"

START_TEST(both_know_each_other)
{
	ask();
	step(&other);
	ck_assert_uint_eq(other.n_accepted, 1);
	ck_assert(is_peer(&other, &asker));
	ck_assert(!is_idle(&other));
	step(&asker);
	ck_assert_uint_eq(asker.n_answered, 1);
	ck_assert_int_eq(asker.err, 0);
	ck_assert(is_peer(&asker, &other));
	ck_assert(is_idle(&asker));
	step(&other);
	ck_assert(is_idle(&other));
}
END_TEST

/* The other end's client of the link retries at once when this end has opened its own. */
START_TEST(link_is_hurried)
{
	struct fabric_link link = {
		.number = LINK, .stage = FABRIC_CONNECTING, .retry_ns = UINT64_MAX
	};

	TAILQ_INSERT_TAIL(&other.port.all_links, &link, next);
	ask();
	step(&other);
	ck_assert(!link.watch.is_ready);
	step(&asker);
	step(&other);
	ck_assert(link.watch.is_ready);
	ck_assert_uint_eq(link.retry_ns, 0);
}
END_TEST

START_LOOP_TEST(refusals, 2)
{
	static const int errs[] = { -EAGAIN, -ENOSPC };

	other.accepts = errs[_i];
	ask();
	step(&other);
	step(&asker);
	ck_assert_uint_eq(asker.n_answered, 1);
	ck_assert_int_eq(asker.err, errs[_i]);
	ck_assert(is_idle(&asker) && is_idle(&other));
}
END_TEST

START_TEST(nobody_there)
{
	close_side(&other);
	ck_assert_int_eq(introductions_start(asker.introductions, &other.own.ip), -EHOSTUNREACH);
	ck_assert(strstr(frl_last_error(), "no device has the address"));
	ck_assert(is_idle(&asker));
}
END_TEST

/* In a forked child: the parent's device cannot ask, and goes without its thread. */
START_TEST(forked)
{
	asker.port.introductions = asker.introductions;
	ask();
	introductions_detach(asker.introductions);
	ck_assert_int_eq(introductions_ask(&asker.port.base, &other.own.ip), -EHOSTUNREACH);
	ck_assert(strstr(frl_last_error(), "fork()"));
	introductions_close(&asker.port.base);
	ck_assert_ptr_null(asker.port.introductions);
	asker.introductions = NULL;
}
END_TEST

/* ---- programs that connect to a device */

static void wrong_magic(struct introduction_message *message)
{
	message->magic++;
}

static void wrong_receiver(struct introduction_message *message)
{
	message->to.bytes[15]++;
}

static void wrong_sender(struct introduction_message *message)
{
	message->from.bytes[12] = 10;
	message->mac[2] = 10;
}

static void receivers_own_address(struct introduction_message *message)
{
	message->from = message->to;
	local_mac(&message->from, message->mac);
}

static void reserved_address(struct introduction_message *message)
{
	message->from.bytes[14] = 255;
	local_mac(&message->from, message->mac);
}

static void wrong_mac(struct introduction_message *message)
{
	message->mac[0] = 0;
}

static void receivers_nonce(struct introduction_message *message)
{
	memcpy(message->nonce, other.own.nonce, sizeof(message->nonce));
}

static void (*const damages[])(struct introduction_message *) = { wrong_magic, wrong_receiver,
	wrong_sender, receivers_own_address, reserved_address, wrong_mac, receivers_nonce };

START_LOOP_TEST(bad_questions, ROWS(damages))
{
	struct introduction_message message = question();
	int fd = connect_to_other();

	damages[_i](&message);
	ck_assert_int_eq(handshake_send(fd, &message, sizeof(message)), 0);
	is_refused(fd);
}
END_TEST

START_LOOP_TEST(questions_of_wrong_length, 3)
{
	struct introduction_message messages[2] = { question(), question() };
	const size_t lengths[] = { 1, sizeof(messages[0]) - 1, sizeof(messages[0]) + 1 };
	int fd = connect_to_other();

	ck_assert_int_eq(handshake_send(fd, messages, lengths[_i]), 0);
	is_refused(fd);
}
END_TEST

/* It learns the version, and nothing is opened for it. */
START_TEST(question_of_another_version)
{
	struct introduction_message message = question(), answer;
	int fd = connect_to_other();

	message.version++;
	ck_assert_int_eq(handshake_send(fd, &message, sizeof(message)), 0);
	step(&other);
	ck_assert_uint_eq(other.n_accepted, 0);
	ck_assert_int_eq(handshake_receive(fd, &answer, sizeof(answer)), 0);
	ck_assert_uint_eq(answer.version, INTRODUCTION_VERSION);
	ck_assert_int_eq(answer.status, -EPROTONOSUPPORT);
	ck_assert(is_idle(&other));
	close(fd);
}
END_TEST

/* Silent ones, and ones that leave: they keep nobody out, and have a second. */
START_TEST(silent_clients)
{
	int fds[3 * FABRIC_PENDING_CLIENTS];

	for (int i = 0; i < ROWS(fds); i++) {
		fds[i] = connect_to_other();
		if (i % 3 == 0)
			close(fds[i]);
	}
	ask();
	for (int i = 0; i < 4; i++)
		step(&other);
	ck_assert_uint_eq(other.n_accepted, 1);
	step(&asker);
	ck_assert_int_eq(asker.err, 0);
	ck_assert_uint_le(other.introductions->clients.n_pending, FABRIC_PENDING_CLIENTS);
	now_ns += SECOND_NS;
	step(&other);
	ck_assert(is_idle(&other));
	for (int i = 0; i < ROWS(fds); i++)
		if (i % 3)
			close(fds[i]);
}
END_TEST

/* A client that is introduced and does not go: it has a second, too, and many have no room. */
START_TEST(clients_that_stay)
{
	struct introduction_message message = question();
	int fds[INTRODUCTIONS_MOST + 10];

	for (int i = 0; i < ROWS(fds); i++) {
		fds[i] = connect_to_other();
		ck_assert_int_eq(handshake_send(fds[i], &message, sizeof(message)), 0);
		step(&other);
	}
	ck_assert_uint_eq(other.introductions->n_others, INTRODUCTIONS_MOST);
	ck_assert_uint_eq(other.n_accepted, INTRODUCTIONS_MOST);
	ck_assert_uint_eq(pass.wake_ns, now_ns + SECOND_NS);
	now_ns += SECOND_NS;
	step(&other);
	ck_assert(is_idle(&other));
	for (int i = 0; i < ROWS(fds); i++)
		close(fds[i]);
}
END_TEST

/* A file that takes a day to close, with the question: as on a kernel that lets everybody send
 * files, and one that does not. */
START_LOOP_TEST(slow_file_of_a_client, 2)
{
	struct introduction_message message = question();
	int reader, slow = slow_file(&reader), fd;

	ck_assert_int_ge(slow, 0);
	if (_i)
		rights_allow(other.introductions->clients.listen_fd, true);
	fd = connect_to_other();
	if (slow_file_send(fd, &message, sizeof(message), slow, 1, 0) >= 0)
		close(slow);
	step(&other);
	ask();
	step(&other);
	step(&asker);
	ck_assert_int_eq(asker.err, 0);
	close(fd);
}
END_TEST

/* No memory to watch a socket: only while one lacks a watch. */
START_TEST(sockets_are_watched_again)
{
	other.introductions->watch.is_unwatched = true;
	step(&other);
	ck_assert(!other.introductions->watch.is_unwatched);
}
END_TEST

/* A publish for another reason starts no step. */
START_TEST(deliveries)
{
	ck_assert(!introductions_deliver(other.introductions));
	ask();
	ck_assert(!introductions_deliver(asker.introductions));
	pass = (struct fabric_pass){ .now_ns = now_ns, .wake_ns = UINT64_MAX };
	introductions_advance(other.introductions, &pass);
	ck_assert(introductions_deliver(other.introductions));
	ck_assert(!introductions_deliver(other.introductions));
}
END_TEST

/* ---- programs that answer in the name of a device */

static int accept_as_other(void)
{
	struct introduction_message message;
	int fd = handshake_accept(other.introductions->clients.listen_fd);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(handshake_receive(fd, &message, sizeof(message)), 0);
	return fd;
}

static struct introduction_message answer(void)
{
	struct introduction_message message = {
		.magic = INTRODUCTION_MAGIC,
		.version = INTRODUCTION_VERSION,
		.from = other.own.ip,
		.to = asker.own.ip,
	};

	memcpy(message.mac, other.own.mac, sizeof(message.mac));
	memcpy(message.nonce, other.own.nonce, sizeof(message.nonce));
	return message;
}

static void askers_nonce(struct introduction_message *message)
{
	memcpy(message->nonce, asker.own.nonce, sizeof(message->nonce));
}

static void third_device(struct introduction_message *message)
{
	message->from.bytes[15] ^= 0x80;
	local_mac(&message->from, message->mac);
}

static void positive_status(struct introduction_message *message)
{
	message->status = 1;
}

static void other_version(struct introduction_message *message)
{
	message->version++;
}

static const struct {
	void (*damage)(struct introduction_message *message);
	int err;
} bad_answers[] = {
	{ wrong_magic, -EPROTO },
	{ wrong_receiver, -EPROTO },
	{ wrong_sender, -EPROTO },
	{ wrong_mac, -EPROTO },
	{ askers_nonce, -EPROTO },
	{ third_device, -EPROTO },
	{ positive_status, -EPROTO },
	{ other_version, -EPROTONOSUPPORT },
};

START_LOOP_TEST(wrong_answers, ROWS(bad_answers))
{
	struct introduction_message message = answer();
	int fd;

	ask();
	fd = accept_as_other();
	bad_answers[_i].damage(&message);
	ck_assert_int_eq(handshake_send(fd, &message, sizeof(message)), 0);
	step(&asker);
	ck_assert_uint_eq(asker.n_answered, 1);
	ck_assert_int_eq(asker.err, bad_answers[_i].err);
	ck_assert(is_idle(&asker));
	close(fd);
}
END_TEST

/* A short answer, or none because the other end has gone. While that is stopped, it has any time,
 * and this end need not look again. */
START_LOOP_TEST(no_answer, 2)
{
	int fd;

	ask();
	fd = accept_as_other();
	step(&asker);
	now_ns += UINT64_C(1000) * SECOND_NS;
	step(&asker);
	ck_assert_uint_eq(asker.n_answered, 0);
	ck_assert_uint_eq(pass.wake_ns, UINT64_MAX);
	if (_i == 0)
		ck_assert_int_eq(handshake_send(fd, "no", 2), 0);
	else
		close(fd);
	step(&asker);
	ck_assert_uint_eq(asker.n_answered, 1);
	ck_assert_int_eq(asker.err, _i == 0 ? -EPROTO : -EAGAIN);
	ck_assert(is_idle(&asker));
	if (_i != 1)
		close(fd);
}
END_TEST

TEST_MAIN(introduction)
{
	return run_suite_forked(all_tests(setup, teardown));
}
