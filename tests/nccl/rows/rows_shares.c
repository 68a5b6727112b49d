/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows: the quotas of connections for receives that NCCL's kernels unpack: packet buffers of the
 * ports, and memory that the kernels read.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/cuda/fake_libcuda.h"
#include "tests/nccl/caller/cuda.h"
#include "tests/nccl/rows/rows_unpack.h"

enum { SMALL = 9000, SLICE = 1 << 20, KEPT = 4 };

/* ---- more connections than there are packet buffers */

static void idle_send(struct side *side)
{
	(void)side;
}

static void quota_recv(struct side *side)
{
	const char *wanted = expected(side, "on");
	unsigned int on = 0, refused = 0;
	struct slots slots;
	void *mrs[MAX_COMMS];

	need_unpack(side);
	slots_create(&slots, 1, SMALL);
	for (unsigned int i = 0; i < side->n_comms; i++) {
		int result = plugin_reg(side->net, side->comms[i], slots.gpu, slots.bytes,
			NCCL_POINTER_CUDA, &mrs[i]);

		REQUIRE(unpack_is_on(side->comms[i]) == (result == NCCL_SUCCESS),
			"regMr gave %s, and it is%s on", result_name(result),
			unpack_is_on(side->comms[i]) ? "" : " not");
		on += result == NCCL_SUCCESS;
		refused += result == NCCL_INVALID_USAGE;
	}
	REQUIRE(on + refused == side->n_comms && wanted && on == (unsigned int)atoi(wanted),
		"of %u connections %u are on, %u refused", side->n_comms, on, refused);
	REQUIRE(harness_has_warned("without UNPACK: .* "), "nobody says why");
	for (unsigned int i = 0; i < side->n_comms; i++)
		if (unpack_is_on(side->comms[i]))
			MUST(side->net->dereg_mr(side->comms[i], mrs[i]));
	slots_destroy(&slots);
}

/* ---- packet buffers that lie too far apart for a kernel, which has 32 bits for a place */

/* Counts calls of the driver, which is the double; 0 without it. */
static unsigned int calls(const char *function)
{
	const struct fake_cuda *fake = fake_cuda_find();

	return fake ? fake->calls(function) : 0;
}

static void refuse_far(struct side *side, const struct slots *slots)
{
	void *send, *recv, *mr;

	self_connect(side, &send, &recv);
	REQUIRE(plugin_reg(side->net, recv, slots->gpu, slots->bytes, NCCL_POINTER_CUDA, &mr) ==
			NCCL_INVALID_USAGE,
		"memory was registered whose packets no kernel finds");
	REQUIRE(!unpack_is_on(recv), "it is on");
	REQUIRE(harness_has_warned("outside of its window"), "nobody says why");
	MUST(plugin_close_send(side->net, send));
	MUST(plugin_close_recv(side->net, recv));
}

static void far(struct side *side)
{
	unsigned int mapped;
	void *send, *recv;
	struct plugin net = { 0 };
	struct slots slots;
	uint8_t *between;
	int n = 0;

	side_open(side, &net);
	need_unpack(side);
	MUST(net.devices(&n));
	if (n < 2)
		skip("one device");
	side->dev = 0;
	self_connect(side, &send, &recv);
	slots_create(&slots, 1, SMALL);
	slots_register(&slots, side, recv);
	REQUIRE(unpack_is_on(recv), "the first one is not on");
	between = cuda_alloc((size_t)5 << 30);
	side->dev = 1;
	refuse_far(side, &slots);
	mapped = calls("cuMemHostRegister");
	refuse_far(side, &slots);
	/* The driver frees memory when the GPU is idle, and others would wait for that. */
	REQUIRE(calls("cuMemHostRegister") == mapped && calls("cuMemHostUnregister") == 0,
		"what lies too far is mapped again for each connection");
	slots_deregister(&slots, side, recv);
	MUST(plugin_close_send(&net, send));
	MUST(plugin_close_recv(&net, recv));
	cuda_free(between);
	slots_destroy(&slots);
	side_close(side);
	plugin_close(&net);
}

/* ---- slices: what NCCL receives at most, which any connection that is on must take */

static const size_t slice_sizes[] = { SLICE, 1000000 };
static const struct stream slices = { .n_messages = 6,
	.in_flight = 4,
	.sizes = slice_sizes,
	.n_sizes = 2,
	.capacity = SLICE,
	.key = 77 };

static void slice_send(struct side *side)
{
	stream_send(side, &slices);
}

static void slice_recv(struct side *side)
{
	need_unpack(side);
	stream_recv(side, &slices);
}

/* ---- one keeps all that it has, until the others are through */

static size_t slice_size(unsigned int message)
{
	return slice_sizes[message % 2];
}

static void leave_first(struct side *side)
{
	side->n_comms--;
	memmove(&side->comms[0], &side->comms[1], side->n_comms * sizeof(side->comms[0]));
}

static void bring_first(struct side *side, void *first)
{
	memmove(&side->comms[1], &side->comms[0], side->n_comms * sizeof(side->comms[0]));
	side->comms[0] = first;
	side->n_comms++;
}

static void starve_send(struct side *side)
{
	void *first = side->comms[0];

	send_messages(side, SLICE, KEPT, slice_size);
	leave_first(side);
	stream_send(side, &slices);
	bring_first(side, first);
}

static void starve_recv(struct side *side)
{
	void *requests[KEPT], *first = side->comms[0];
	struct slots slots;

	need_unpack(side);
	slots_create(&slots, KEPT + 1, SLICE);
	slots_register(&slots, side, first);
	for (unsigned int i = 0; i < KEPT; i++)
		requests[i] = post_receive_now(side, &slots, i, SLICE);
	REQUIRE(!post_receive(side, &slots, KEPT, SLICE), "there is more to keep");
	for (unsigned int i = 0; i < KEPT; i++)
		await(side, requests[i], NULL, "a receive that is kept");
	leave_first(side);
	stream_recv(side, &slices);
	bring_first(side, first);
	for (unsigned int i = 0; i < KEPT; i++) {
		fetch_receive(side, &slots, i, slice_size(i), i, "kept");
		MUST(plugin_consumed(side->net, first, 1, requests[i]));
	}
	slots_deregister(&slots, side, first);
	slots_destroy(&slots);
}

/* ---- what kernels read of a connection that is over, which another one may get */

struct pair {
	void *send, *recv;
	struct slots slots;
	const struct nccl_unpack_handle *handle;
};

static void open_pair(struct side *side, struct pair *pair, const char *when)
{
	self_connect(side, &pair->send, &pair->recv);
	slots_create(&pair->slots, 2, SMALL);
	slots_register(&pair->slots, side, pair->recv);
	REQUIRE(unpack_is_on(pair->recv), "%s: it is not on", when);
	pair->handle = unpack_handle(pair->recv);
	REQUIRE(pair->handle->head == UINT64_MAX, "%s: kernels begin at %llu", when,
		(unsigned long long)pair->handle->head);
	REQUIRE(unpack_ready_at(pair->handle) == 0, "%s: slots have pieces at first", when);
}

static void close_pair(struct side *side, struct pair *pair)
{
	slots_deregister(&pair->slots, side, pair->recv);
	slots_destroy(&pair->slots);
	MUST(plugin_close_send(side->net, pair->send));
	MUST(plugin_close_recv(side->net, pair->recv));
	REQUIRE(unpack_ready_at(pair->handle) == 0, "slots have pieces after the close");
}

/* One receive is done and not consumed, another one never done. */
static void leave_slots(struct side *side, struct pair *pair)
{
	struct slots from;
	void *sending = NULL, *receiving[2];

	slots_create(&from, 1, SMALL);
	slots_register(&from, side, pair->send);
	side->comms[0] = pair->recv;
	for (unsigned int i = 0; i < 2; i++)
		receiving[i] = post_receive_now(side, &pair->slots, i, SMALL);
	while (!sending)
		MUST(plugin_isend(side->net, pair->send, slot_data(&from, 0), SMALL, UNPACK_TAG,
			from.mr, NULL, &sending));
	await(side, receiving[0], NULL, "a receive");
	await(side, sending, NULL, "a send");
	REQUIRE(unpack_ready_at(pair->handle) == 1, "%u slots have pieces",
		unpack_ready_at(pair->handle));
	slots_deregister(&from, side, pair->send);
	slots_destroy(&from);
}

static void again(struct side *side)
{
	const struct nccl_unpack_handle *first, *doubtful;
	struct plugin net = { 0 };
	struct pair pair;

	side_open(side, &net);
	need_unpack(side);
	open_pair(side, &pair, "new");
	first = pair.handle;
	for (unsigned int i = 0; i < 3; i++)
		self_transfer(side, pair.send, pair.recv, SMALL);
	REQUIRE(first->head == 2, "after three receives a kernel is at %llu",
		(unsigned long long)first->head);
	close_pair(side, &pair);
	open_pair(side, &pair, "used again");
	doubtful = pair.handle;
	REQUIRE(doubtful == first, "what a connection has left lies idle");
	leave_slots(side, &pair);
	close_pair(side, &pair);
	/* Its kernel may still run and rely on the packets. */
	open_pair(side, &pair, "after an abort");
	REQUIRE(pair.handle != doubtful, "a kernel that was aborted shares it with another one");
	close_pair(side, &pair);
	side_close(side);
	plugin_close(&net);
}

/* ---- messages call no function of the driver: it might wait for the kernel that waits for them */

static void quiet(struct side *side)
{
	void *sending = NULL, *receiving;
	struct plugin net = { 0 };
	unsigned int before;
	struct slots from;
	struct pair pair;

	side_open(side, &net);
	need_unpack(side);
	open_pair(side, &pair, "new");
	slots_create(&from, 1, SMALL);
	slots_register(&from, side, pair.send);
	side->comms[0] = pair.recv;
	before = calls(NULL);
	for (unsigned int i = 0; i < KEPT; i++) {
		receiving = post_receive_now(side, &pair.slots, 0, SMALL);
		while (!sending)
			MUST(plugin_isend(side->net, pair.send, slot_data(&from, 0), SMALL,
				UNPACK_TAG, from.mr, NULL, &sending));
		await(side, receiving, NULL, "a receive");
		await(side, sending, NULL, "a send");
		unpack_fetch(pair.recv, slot_data(&pair.slots, 0), SMALL);
		MUST(plugin_consumed(side->net, pair.recv, 1, receiving));
		sending = NULL;
	}
	REQUIRE(calls(NULL) == before, "%u calls of the driver", calls(NULL) - before);
	slots_deregister(&from, side, pair.send);
	slots_destroy(&from);
	close_pair(side, &pair);
	side_close(side);
	plugin_close(&net);
}

#define PAIR(n, function, w)                                                    \
	.name = n, .what = w, .send = function##_send, .recv = function##_recv, \
	.flags = ROW_BY_NAME | ROW_GPU, .min_version = 7

const struct row share_rows[] = {
	{ .name = "unpack-quota",
		.what = "more connections than packet buffers",
		.send = idle_send,
		.recv = quota_recv,
		.flags = ROW_BY_NAME | ROW_GPU,
		.n_comms = 5,
		.min_version = 7 },
	{ PAIR("unpack-slice", slice, "the largest receives of NCCL's") },
	{ PAIR("unpack-starve", starve, "seven connections beside one that keeps its packets"),
		.n_comms = 8 },
	{ .name = "unpack-again",
		.what = "what kernels read, after the connection",
		.solo = again,
		.flags = ROW_BY_NAME | ROW_GPU,
		.min_version = 7 },
	{ .name = "unpack-quiet",
		.what = "messages call no function of the driver",
		.solo = quiet,
		.flags = ROW_BY_NAME | ROW_GPU,
		.min_version = 7 },
	{ .name = "unpack-far",
		.what = "ports whose packet buffers lie far apart",
		.solo = far,
		.flags = ROW_BY_NAME | ROW_GPU,
		.min_version = 7 },
	{ .name = NULL },
};
