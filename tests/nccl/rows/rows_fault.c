/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: failures. No call may block, and no side may wait for ever. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/nccl/caller/row.h"

enum { IN_FLIGHT = 6, BYTES = 4 << 20 };

/* Requests that are not awaited; their memory stays until the comm is closed. If the other side may
 * be gone by now, a request may be refused with an error. */
struct pile {
	struct slots slots;
	void *requests[IN_FLIGHT];
	unsigned int n;
};

static struct pile *pile_up(struct side *side)
{
	struct pile *pile = calloc(1, sizeof(*pile));
	void *comm = side->comms[0];
	size_t size = BYTES;
	int tag = 3;

	REQUIRE(pile, "no memory");
	slots_create(&pile->slots, IN_FLIGHT, BYTES);
	slots_register(&pile->slots, side, comm);
	while (pile->n < IN_FLIGHT) {
		void *data = slot_data(&pile->slots, pile->n);
		void *request = NULL;

		int result;

		if (side->index == 0)
			result = plugin_isend(
				side->net, comm, data, size, tag, pile->slots.mr, NULL, &request);
		else
			result = plugin_irecv(side->net, comm, 1, &data, &size, &tag,
				&pile->slots.mr, NULL, &request);
		/* A send without a receive may be refused; then nothing more is in flight. */
		if (result || !request)
			break;
		pile->requests[pile->n++] = request;
	}
	side->left = &pile->slots;
	return pile;
}

/* A few rounds of test(), so that bytes are on their way. */
static void stir(struct side *side, const struct pile *pile)
{
	int done = 0;

	for (unsigned int i = 0; pile->n && !done && i < 50; i++)
		if (plugin_test(side->net, pile->requests[0], &done, NULL))
			return;
}

static void say_who(struct side *side)
{
	pid_t own = getpid();

	say_bytes(side, &own, sizeof(own));
}

static void leave(struct side *side)
{
	struct pile *pile = pile_up(side);

	stir(side, pile);
	if (side->row->flags & ROW_NO_BARRIER)
		say_who(side);
	/* Not freed: the slots are part of it, and the side has yet to deregister them. */
}

/*
 * Continues until the plugin reports that the other side is gone. Requests that end well before
 * that are posted again.
 */
static void go_on(struct side *side)
{
	uint64_t until_ns = now_ns() + side->setup->dead_s * 1000000000ull;
	struct pile *pile = pile_up(side);
	int result = NCCL_SUCCESS;
	size_t size = BYTES;
	int tag = 3;

	for (unsigned int i = 0; result == NCCL_SUCCESS; i++) {
		void **request = &pile->requests[i % IN_FLIGHT];
		void *data = slot_data(&pile->slots, i % IN_FLIGHT);
		int done = 0;

		REQUIRE(now_ns() < until_ns, "%u s after the other side went there is no error yet",
			side->setup->dead_s);
		if (*request)
			result = plugin_test(side->net, *request, &done, NULL);
		else if (side->index == 0)
			result = plugin_isend(side->net, side->comms[0], data, size, tag,
				pile->slots.mr, NULL, request);
		else
			result = plugin_irecv(side->net, side->comms[0], 1, &data, &size, &tag,
				&pile->slots.mr, NULL, request);
		if (done && side->index == 1)
			plugin_consumed(side->net, side->comms[0], 1, *request);
		if (done)
			*request = NULL;
		sched_yield();
	}
}

/* Users of NCCL have one line to find the cause. */
static void check_log(const struct side *side, pid_t other)
{
	const char *pattern = expected(side, "failure");
	char who[64];

	REQUIRE(harness_has_warned("."), "a connection has failed, and the log says nothing");
	if (!pattern)
		return;
	snprintf(who, sizeof(who), "process %d ", (int)other);
	REQUIRE(harness_has_warned(pattern), "no line in the log matches \"%s\"", pattern);
	REQUIRE(harness_has_warned(who), "no line in the log names %s", who);
}

/* The failure is one comm's: others work, and so do new ones. */
static void survive(struct side *side)
{
	pid_t other;

	hear_bytes(side, &other, sizeof(other));
	go_on(side);
	check_log(side, other);
	self_try(side, 100000);
}

static void die(struct side *side)
{
	struct pile *pile = pile_up(side);

	stir(side, pile);
	say_who(side);
	raise(SIGKILL);
}

/* Neither dead nor alive: its host's kernel does not report it. */
static void freeze(struct side *side)
{
	say_who(side);
	pile_up(side);
	raise(SIGSTOP);
}

static void thaw(struct side *side)
{
	pid_t other;

	hear_bytes(side, &other, sizeof(other));
	go_on(side);
	check_log(side, other);
	kill(other, SIGKILL);
}

/* The receive is too small: this side gets an error, and nothing is written behind the receive. */
static void truncated_recv(struct side *side)
{
	uint64_t until_ns = now_ns() + side->setup->dead_s * 1000000000ull;
	struct slots slots;
	void *data, *request = NULL;
	size_t size = 50000;
	int tag = 3, done = 0, result = NCCL_SUCCESS;

	slots_create(&slots, 1, size);
	slots_register(&slots, side, side->comms[0]);
	data = slot_data(&slots, 0);
	while (!request)
		MUST(plugin_irecv(side->net, side->comms[0], 1, &data, &size, &tag, &slots.mr, NULL,
			&request));
	while (!done && result == NCCL_SUCCESS) {
		REQUIRE(now_ns() < until_ns, "no error after %u s", side->setup->dead_s);
		result = plugin_test(side->net, request, &done, NULL);
	}
	REQUIRE(!done, "a receive of 50000 bytes took a message of 100000");
	slot_take(&slots, 0);
	slot_check(&slots, 0, size, "after the error");
	say(side, 't');
	slots_deregister(&slots, side, side->comms[0]);
}

static void truncated_send(struct side *side)
{
	struct slots slots;
	void *request = NULL;
	int done = 0, result = NCCL_SUCCESS;

	slots_create(&slots, 1, 100000);
	slots_register(&slots, side, side->comms[0]);
	while (!request && result == NCCL_SUCCESS)
		result = plugin_isend(side->net, side->comms[0], slot_data(&slots, 0), 100000, 3,
			slots.mr, NULL, &request);
	/* This side may get an error or completion; the other one reports its result. */
	while (!done && result == NCCL_SUCCESS && !has_news(side))
		result = plugin_test(side->net, request, &done, NULL);
	hear(side, 't');
	slots_deregister(&slots, side, side->comms[0]);
}

const struct row fault_rows[] = {
	{ .name = "truncated",
		.what = "a receive that is too small",
		.send = truncated_send,
		.recv = truncated_recv,
		.flags = ROW_GPU },
	{ .name = "abort",
		.what = "both close with requests in flight",
		.send = leave,
		.recv = leave,
		.flags = ROW_GPU },
	{ .name = "abort-send",
		.what = "the sender closes, the receiver waits",
		.send = leave,
		.recv = survive,
		.flags = ROW_NO_BARRIER | ROW_GPU,
		.seconds = 40 },
	{ .name = "abort-recv",
		.what = "the receiver closes, the sender goes on",
		.send = survive,
		.recv = leave,
		.flags = ROW_NO_BARRIER | ROW_GPU,
		.seconds = 40 },
	{ .name = "killed-send",
		.what = "the sender is killed",
		.send = die,
		.recv = survive,
		.flags = ROW_NO_BARRIER | ROW_PROCESSES | ROW_SENDER_DIES | ROW_GPU,
		.seconds = 40 },
	{ .name = "killed-recv",
		.what = "the receiver is killed",
		.send = survive,
		.recv = die,
		.flags = ROW_NO_BARRIER | ROW_PROCESSES | ROW_RECEIVER_DIES | ROW_GPU,
		.seconds = 40 },
	{ .name = "frozen-recv",
		.what = "the receiver answers no more",
		.send = thaw,
		.recv = freeze,
		.flags = ROW_NO_BARRIER | ROW_PROCESSES | ROW_RECEIVER_DIES | ROW_BY_NAME,
		.seconds = 40 },
	{ .name = NULL },
};
