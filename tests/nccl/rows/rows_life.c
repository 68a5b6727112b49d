/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: the state that is left when something ends: files, memory that a peer may write,
 * acknowledgements. */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/caller/row.h"

enum { ROUNDS = 4, HALVES = 6, HALF_NS = 3000000, BRIEF_ROUNDS = 12, BYTES = 50000, TAG = 3 };

static unsigned int count_files(void)
{
	unsigned int n = 0;
	DIR *folder = opendir("/proc/self/fd");

	REQUIRE(folder, "there is no /proc/self/fd");
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* The peer keeps connecting; the listener takes its request and is closed before that becomes a
 * connection. */
static void half_open(struct side *side, unsigned int steps)
{
	uint64_t handle[NCCL_HANDLE_BYTES / 8] = { 0 };
	void *listener = NULL, *send = NULL, *recv = NULL;
	uint64_t until_ns;

	MUST(plugin_listen(side->net, side->context, side->dev, handle, &listener));
	until_ns = now_ns() + steps * HALF_NS;
	do {
		MUST(plugin_connect(side->net, side->context, side->dev, handle, &send));
		sched_yield();
	} while (!send && now_ns() < until_ns);
	MUST(plugin_accept(side->net, listener, &recv));
	MUST(plugin_close_listen(side->net, listener));
	if (send)
		MUST(plugin_close_send(side->net, send));
	if (recv)
		MUST(plugin_close_recv(side->net, recv));
}

/* Counts open files while there is a connection, and at the end. */
static void live(struct side *side, unsigned int *ret_open, unsigned int *ret_left)
{
	struct plugin net = { 0 };
	void *send, *recv;

	side_open(side, &net);
	self_connect(side, &send, &recv);
	self_transfer(side, send, recv, 70000);
	*ret_open = count_files();
	for (unsigned int i = 1; i <= HALVES; i++)
		half_open(side, i);
	MUST(plugin_close_send(&net, send));
	MUST(plugin_close_recv(&net, recv));
	side_close(side);
	plugin_close(&net);
	*ret_left = count_files();
}

static void leaks(struct side *side)
{
	unsigned int open, left, first = 0;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		live(side, &open, &left);
		if (i == 0)
			first = left;
		REQUIRE(left < open,
			"%u files are open with a connection, and %u behind the last finalize",
			open, left);
		REQUIRE(left == first,
			"%u files were open behind the first life, %u behind life %u", first, left,
			i + 1);
	}
}

/* ---- memory that is deregistered while a request has it */

static void use_first(struct side *side)
{
	static const size_t sizes[] = { 100000, 64 };
	static const struct stream stream = { .n_messages = 20,
		.in_flight = 4,
		.sizes = sizes,
		.n_sizes = 2,
		.capacity = 100000,
		.key = 41 };
	struct side own;

	memcpy(&own, side, sizeof(own));
	own.n_comms = 1;
	(side->index == 0 ? stream_send : stream_recv)(&own, &stream);
}

static void need_global(const struct side *side)
{
	if (!side->properties.registration_is_global)
		skip("registrations are a connection's own");
}

/* Tests until the request fails. */
static void await_error(struct side *side, void *request)
{
	uint64_t until_ns = now_ns() + side->setup->dead_s * 1000000000ull;
	int done = 0;

	while (plugin_test(side->net, request, &done, NULL) == NCCL_SUCCESS) {
		REQUIRE(!done, "a request ended well with memory that was deregistered");
		REQUIRE(now_ns() < until_ns, "no error %u s after memory was deregistered",
			side->setup->dead_s);
		sched_yield();
	}
}

static void deregister_recv(struct side *side)
{
	struct slots slots;
	void *data, *request = NULL;
	size_t size = BYTES;
	int tag = TAG;

	need_global(side);
	slots_create(&slots, 1, size);
	slots_register(&slots, side, side->comms[0]);
	data = slot_data(&slots, 0);
	while (!request)
		MUST(plugin_irecv(side->net, side->comms[1], 1, &data, &size, &tag, &slots.mr, NULL,
			&request));
	say(side, 'p');
	hear(side, 'p');
	slots_deregister(&slots, side, side->comms[0]);
	say(side, 'd');
	await_error(side, request);
	say(side, 'e');
	hear(side, 'e');
	slot_take(&slots, 0);
	slot_check(&slots, 0, 0, "after it was deregistered");
	use_first(side);
	slot_take(&slots, 0);
	slot_check(&slots, 0, 0, "after it was deregistered");
	slots_destroy(&slots);
}

static void deregister_send(struct side *side)
{
	struct slots slots;
	void *request = NULL;
	int done = 0, result = NCCL_SUCCESS;

	need_global(side);
	slots_create(&slots, 1, BYTES);
	slots_register(&slots, side, side->comms[1]);
	say(side, 'p');
	hear(side, 'p');
	hear(side, 'd');
	while (!request && result == NCCL_SUCCESS)
		result = plugin_isend(side->net, side->comms[1], slot_data(&slots, 0), BYTES, TAG,
			slots.mr, NULL, &request);
	/* This side may get completion: its data need not have been taken. */
	while (request && !done && result == NCCL_SUCCESS && !has_news(side)) {
		result = plugin_test(side->net, request, &done, NULL);
		sched_yield();
	}
	hear(side, 'e');
	say(side, 'e');
	use_first(side);
	slots_deregister(&slots, side, side->comms[1]);
	slots_destroy(&slots);
}

/* ---- connections of one message; the receiver closes when it has it */

static void brief(struct side *side)
{
	static const size_t sizes[] = { 3000 };
	static const struct stream stream = { .n_messages = 1,
		.in_flight = 1,
		.sizes = sizes,
		.n_sizes = 1,
		.capacity = 3000,
		.key = 42 };

	for (unsigned int i = 0; i < BRIEF_ROUNDS; i++) {
		(side->index == 0 ? stream_send : stream_recv)(side, &stream);
		side_disconnect(side);
		side_connect(side, 1);
	}
}

/* ---- a device that cannot be used, and says so */

static void refused(struct side *side)
{
	const char *reason = expected(side, "failure");
	uint64_t handle[NCCL_HANDLE_BYTES / 8] = { 0 };
	struct plugin net = { 0 };
	void *listener = NULL;

	side_open(side, &net);
	REQUIRE(plugin_listen(&net, side->context, side->dev, handle, &listener) != NCCL_SUCCESS,
		"%s can be used", side->properties.name);
	REQUIRE(!reason || harness_has_warned(reason), "no line in the log matches \"%s\"", reason);
	side_close(side);
	plugin_close(&net);
}

static void absent(struct side *side)
{
	const char *reason = expected(side, "failure");
	struct plugin net = { 0 };
	const char *error = plugin_load(&net, side->setup->path, side->setup->version);

	REQUIRE(!error, "%s: %s", side->setup->path, error);
	REQUIRE(plugin_init(&net, &side->context, harness_log, harness_profiler) != NCCL_SUCCESS,
		"init found devices");
	REQUIRE(!reason || harness_has_warned(reason), "no line in the log matches \"%s\"", reason);
	plugin_close(&net);
}

const struct row life_rows[] = {
	{ .name = "leaks",
		.what = "files of a device that is closed",
		.solo = leaks,
		.flags = ROW_GPU,
		.min_version = 11 },
	{ .name = "deregister",
		.what = "memory of a receive, through another comm",
		.send = deregister_send,
		.recv = deregister_recv,
		.flags = ROW_GPU,
		.n_comms = 2 },
	{ .name = "brief",
		.what = "connections of one message",
		.send = brief,
		.recv = brief,
		.flags = ROW_GPU },
	{ .name = "refused",
		.what = "a device that cannot be used",
		.solo = refused,
		.flags = ROW_BY_NAME },
	{ .name = "absent",
		.what = "no device, so init fails",
		.solo = absent,
		.flags = ROW_BY_NAME },
	{ .name = NULL },
};
