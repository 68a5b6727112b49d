/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: one end closes in good order while its process lives on. The other end must get an
 * error. */
#include <sched.h>

#include "tests/nccl/caller/row.h"

enum { SIZE = 4096, TAG = 4, NS_PER_MS = 1000000, ATTEMPTS = 8 };

/* ---- a receiver that closes, and calls nothing any more */

static const size_t sizes[] = { SIZE };
static const struct stream one = {
	.n_messages = 1, .in_flight = 1, .sizes = sizes, .n_sizes = 1, .capacity = SIZE, .key = 43
};

static void fall_silent(struct side *side)
{
	stream_recv(side, &one);
	side_disconnect(side);
	say(side, 'c');
	hear(side, 'k');
}

/* Completion is a valid end, too: a plugin may have sent the data before. */
static void send_in_vain(struct side *side)
{
	uint64_t until_ns = now_ns() + side->setup->dead_s * 1000000000ull;
	int done = 0, result = NCCL_SUCCESS;
	void *request = NULL;
	struct slots slots;

	stream_send(side, &one);
	slots_create(&slots, 1, SIZE);
	slots_register(&slots, side, side->comms[0]);
	hear(side, 'c');
	while (!done && result == NCCL_SUCCESS) {
		REQUIRE(now_ns() < until_ns, "%u s after the receiver closed there is no error yet",
			side->setup->dead_s);
		if (request)
			result = plugin_test(side->net, request, &done, NULL);
		else
			result = plugin_isend(side->net, side->comms[0], slot_at(&slots, 0), SIZE,
				TAG, slots.mr, NULL, &request);
		sched_yield();
	}
	say(side, 'k');
	slots_deregister(&slots, side, side->comms[0]);
	slots_destroy(&slots);
}

/* ---- a communicator that ends while it connects; another one of its process stays */

/* Waits until the receiver has its comm although connect() has returned none yet. Returns false if
 * connect() did. */
static bool connect_half(struct side *side, void *context, void **ret_recv)
{
	uint64_t handle[NCCL_HANDLE_BYTES / 8] = { 0 };
	void *listener = NULL, *send = NULL;
	uint64_t until_ns;

	*ret_recv = NULL;
	MUST(plugin_listen(side->net, side->context, side->dev, handle, &listener));
	while (!send && !*ret_recv) {
		MUST(plugin_connect(side->net, context, side->dev, handle, &send));
		until_ns = now_ns() + 100 * NS_PER_MS;
		while (!send && !*ret_recv && now_ns() < until_ns) {
			MUST(plugin_accept(side->net, listener, ret_recv));
			sched_yield();
		}
	}
	MUST(plugin_close_listen(side->net, listener));
	if (send)
		MUST(plugin_close_send(side->net, send));
	if (send && *ret_recv)
		MUST(plugin_close_recv(side->net, *ret_recv));
	return !send;
}

static void await_end(struct side *side, void *recv)
{
	uint64_t until_ns = now_ns() + side->setup->dead_s * 1000000000ull;
	int tag = TAG, done = 0, result = NCCL_SUCCESS;
	void *data, *request = NULL;
	struct slots slots;
	size_t size = SIZE;

	slots_create(&slots, 1, size);
	slots_register(&slots, side, recv);
	data = slot_at(&slots, 0);
	while (result == NCCL_SUCCESS) {
		REQUIRE(now_ns() < until_ns, "nobody sends any more, and after %u s no error",
			side->setup->dead_s);
		if (request)
			result = plugin_test(side->net, request, &done, NULL);
		else
			result = plugin_irecv(
				side->net, recv, 1, &data, &size, &tag, &slots.mr, NULL, &request);
		REQUIRE(!done, "a receive was done, and nobody has sent");
		sched_yield();
	}
	slots_deregister(&slots, side, recv);
	slots_destroy(&slots);
}

static void give_up(struct side *side)
{
	struct plugin net = { 0 };
	void *recv = NULL, *context = NULL;
	bool is_half = false;

	side_open(side, &net);
	for (unsigned int i = 0; i < ATTEMPTS && !is_half; i++) {
		MUST(plugin_init(&net, &context, harness_log, harness_profiler));
		is_half = connect_half(side, context, &recv);
		MUST(plugin_finalize(&net, context));
	}
	if (!is_half)
		skip("connect is done before the receiver has its comm");
	await_end(side, recv);
	MUST(plugin_close_recv(&net, recv));
	side_close(side);
	plugin_close(&net);
}

const struct row end_rows[] = {
	{ .name = "silent",
		.what = "a receiver that closes and calls nothing more",
		.send = send_in_vain,
		.recv = fall_silent },
	{ .name = "given-up",
		.what = "a communicator that ends while it connects",
		.solo = give_up,
		.min_version = 11 },
	{ .name = NULL },
};
