/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows: receives that NCCL's kernels unpack, with FERRULE_UNPACK=1 and buffers of receives on a
 * GPU. Rows of other files run in this mode, too: a completed receive is then fetched as a kernel
 * would.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/rows/rows_unpack.h"

enum {
	MESSAGES = 240,
	IN_FLIGHT = 6,
	LAG = 3,
	SIZE = 70000,
	SMALL = 9000,
	TRIES = 200,
	LL = 16,
	AFTER = 3
};

void need_unpack(const struct side *side)
{
	if (side->properties.device_type != NCCL_DEVICE_UNPACK)
		skip("nothing is unpacked here");
}

void *post_receive(struct side *side, const struct slots *slots, unsigned int slot, size_t size)
{
	void *data = slot_data(slots, slot), *mr = slots->mr, *request = NULL;
	int tag = UNPACK_TAG;

	MUST(plugin_irecv(side->net, side->comms[0], 1, &data, &size, &tag, &mr, NULL, &request));
	return request;
}

void *post_receive_now(struct side *side, const struct slots *slots, unsigned int slot, size_t size)
{
	void *request = NULL;

	while (!request)
		request = post_receive(side, slots, slot, size);
	return request;
}

void fetch_receive(struct side *side, struct slots *slots, unsigned int slot, size_t size,
	uint64_t key, const char *when)
{
	if (slots->gpu)
		unpack_fetch(side->comms[0], slot_data(slots, slot), size);
	slot_take(slots, slot);
	REQUIRE(pattern_find(slot_at(slots, slot), size, key) < 0, "%s: wrong bytes in message %u",
		when, (unsigned int)key);
	slot_check(slots, slot, size, when);
	slot_poison(slots, slot);
	slot_give(slots, slot);
}

void send_messages(struct side *side, size_t most, unsigned int n, size_t (*size_of)(unsigned int))
{
	struct slots slots;

	slots_create(&slots, 1, most);
	slots_register(&slots, side, side->comms[0]);
	for (unsigned int i = 0; i < n; i++) {
		void *request = NULL;

		pattern_fill(slot_at(&slots, 0), size_of(i), i);
		slot_give(&slots, 0);
		while (!request)
			MUST(plugin_isend(side->net, side->comms[0], slot_data(&slots, 0),
				size_of(i), UNPACK_TAG, slots.mr, NULL, &request));
		await(side, request, NULL, "a send");
	}
	slots_deregister(&slots, side, side->comms[0]);
	slots_destroy(&slots);
}

static void send_all(struct side *side, unsigned int n, size_t (*size_of)(unsigned int))
{
	send_messages(side, SIZE, n, size_of);
}

/* ---- what devices say */

static void properties(struct side *side)
{
	struct plugin net = { 0 };
	const char *wanted, *warning;
	bool unpacks;
	int n = 0;

	side_open(side, &net);
	wanted = expected(side, "unpack");
	unpacks = wanted && wanted[0] == '1' && net.version >= 7;
	warning = net.version == 6 && wanted && wanted[0] == '1' ? "off, .*table v6"
								 : expected(side, "warning");
	MUST(net.devices(&n));
	for (int i = 0; i < n; i++) {
		struct nccl_properties_v12 is;

		MUST(plugin_properties(&net, i, &is));
		REQUIRE(is.device_type == unpacks && is.device_version == (unpacks ? 7 : 0),
			"%s: device type %d, version %d", is.name, is.device_type,
			is.device_version);
		REQUIRE(!unpacks || is.pointers == (NCCL_POINTER_HOST | NCCL_POINTER_CUDA),
			"%s: ptrSupport %d", is.name, is.pointers);
		REQUIRE(!unpacks || !is.pci_path, "%s: pciPath %s", is.name, is.pci_path);
		REQUIRE(is.max_recvs == (unpacks ? 1 : 8), "%s: maxRecvs %d", is.name,
			is.max_recvs);
		REQUIRE(net.version < 8 || is.registration_is_global == !unpacks,
			"%s: regIsGlobal %d", is.name, is.registration_is_global);
	}
	REQUIRE(!warning || harness_has_warned(warning), "no warning matches \"%s\"", warning);
	REQUIRE(warning || !harness_has_warned("UNPACK"), "UNPACK is warned of");
	side_close(side);
	plugin_close(&net);
}

/* ---- protocols in turns: LL is received into memory of the host, and takes no slot */

static bool is_ll(unsigned int message)
{
	return message % 5 == 1 || message % 5 == 2;
}

static size_t mixed_size(unsigned int message)
{
	if (is_ll(message))
		return 8 + message % 100 * 8;
	return message % 11 == 0 ? 0 : message * 977 % SIZE;
}

static void mixed_send(struct side *side)
{
	send_all(side, MESSAGES, mixed_size);
}

/* A kernel is some steps behind: receives that it has not fetched are not consumed, and LL may have
 * reused the requests. */
static void mixed_recv(struct side *side)
{
	void *requests[MESSAGES];
	unsigned int posted = 0, done = 0, consumed = 0;
	struct slots slots[2];

	need_unpack(side);
	for (unsigned int i = 0; i < 2; i++)
		slots_create(&slots[i], IN_FLIGHT, SIZE);
	slots_leave_gpu(&slots[1]);
	REQUIRE(unpack_has_handle(side->comms[0]), "accept gave no handle");
	slots_register(&slots[1], side, side->comms[0]);
	REQUIRE(!unpack_is_on(side->comms[0]), "it is on for memory of the host");
	slots_register(&slots[0], side, side->comms[0]);
	REQUIRE(unpack_is_on(side->comms[0]), "it is not on for memory of a GPU");
	while (consumed < MESSAGES) {
		if (posted < MESSAGES && posted < consumed + IN_FLIGHT) {
			requests[posted] = post_receive(
				side, &slots[is_ll(posted)], posted % IN_FLIGHT, SIZE);
			posted += requests[posted] != NULL;
		}
		if (done < posted) {
			int is_done = 0, bytes = -1;

			MUST(plugin_test(side->net, requests[done], &is_done, &bytes));
			REQUIRE(!is_done || (size_t)bytes == mixed_size(done),
				"message %u is of %d bytes", done, bytes);
			done += is_done ? 1 : 0;
		}
		if (consumed < done && (done - consumed >= LAG || done == MESSAGES)) {
			fetch_receive(side, &slots[is_ll(consumed)], consumed % IN_FLIGHT,
				mixed_size(consumed), consumed, "in turns");
			MUST(plugin_consumed(side->net, side->comms[0], 1, requests[consumed]));
			consumed++;
		}
	}
	REQUIRE(unpack_ready(side->comms[0]) == 0, "slots have pieces that were consumed");
	for (unsigned int i = 0; i < 2; i++) {
		slots_deregister(&slots[i], side, side->comms[0]);
		slots_destroy(&slots[i]);
	}
}

/* ---- a kernel that is late: nothing of what it has not fetched is given away */

static size_t late_size(unsigned int message)
{
	return SMALL - message;
}

static void late_send(struct side *side)
{
	hear(side, 'g');
	send_all(side, NCCL_UNPACK_SLOTS + LL + AFTER, late_size);
}

static void check_early(struct side *side, void *request)
{
	REQUIRE(plugin_consumed(side->net, side->comms[0], 1, request) == NCCL_INVALID_USAGE,
		"a receive was consumed before it was done");
	REQUIRE(harness_has_warned("before the receive was done"), "nothing was said of it");
	REQUIRE(unpack_ready(side->comms[0]) == 0, "a slot has pieces before test");
}

/* A sender has room for 32 announcements of any kind. */
static void post_ll(struct side *side, struct slots *slots, void **requests)
{
	slots_create(slots, LL + 1, SMALL);
	slots_leave_gpu(slots);
	slots_register(slots, side, side->comms[0]);
	for (unsigned int i = 0; i < LL; i++)
		requests[i] = post_receive_now(side, slots, i, SMALL);
	for (unsigned int i = 0; i < TRIES; i++)
		REQUIRE(!post_receive(side, slots, LL, SMALL), "33 receives at once");
}

static void end_ll(struct side *side, struct slots *slots, void **requests)
{
	for (unsigned int i = 0; i < LL; i++) {
		unsigned int message = NCCL_UNPACK_SLOTS + i;

		await(side, requests[i], NULL, "a receive of LL");
		fetch_receive(side, slots, i, late_size(message), message, "of LL");
	}
	slots_deregister(slots, side, side->comms[0]);
	slots_destroy(slots);
}

static void late_recv(struct side *side)
{
	void *requests[NCCL_UNPACK_SLOTS + AFTER], *lls[LL];
	void *comm = side->comms[0];
	struct slots slots, host;
	int done = 0;

	need_unpack(side);
	slots_create(&slots, NCCL_UNPACK_SLOTS + AFTER, SMALL);
	slots_register(&slots, side, comm);
	for (unsigned int i = 0; i < NCCL_UNPACK_SLOTS; i++)
		requests[i] = post_receive_now(side, &slots, i, SMALL);
	check_early(side, requests[0]);
	post_ll(side, &host, lls);
	say(side, 'g');
	for (unsigned int i = 0; i < NCCL_UNPACK_SLOTS; i++)
		await(side, requests[i], NULL, "a receive");
	REQUIRE(unpack_ready(comm) == NCCL_UNPACK_SLOTS, "%u slots have pieces",
		unpack_ready(comm));
	end_ll(side, &host, lls);
	/* test() keeps returning done. */
	MUST(plugin_test(side->net, requests[0], &done, NULL));
	REQUIRE(done, "a receive that was done is not");
	for (unsigned int i = 0; i < TRIES; i++)
		REQUIRE(!post_receive(side, &slots, NCCL_UNPACK_SLOTS, SMALL),
			"17 receives, and 16 slots");
	for (unsigned int i = 0; i < NCCL_UNPACK_SLOTS; i++)
		fetch_receive(side, &slots, i, late_size(i), i, "late");
	/* Receives complete in any order; the next one needs the oldest. */
	MUST(plugin_consumed(side->net, comm, 1, requests[1]));
	REQUIRE(!post_receive(side, &slots, NCCL_UNPACK_SLOTS, SMALL),
		"the oldest slot is not free");
	for (unsigned int i = 0; i < NCCL_UNPACK_SLOTS; i++)
		MUST(plugin_consumed(side->net, comm, 1, requests[i]));
	REQUIRE(unpack_ready(comm) == 0, "slots have pieces that were consumed");
	for (unsigned int i = NCCL_UNPACK_SLOTS; i < NCCL_UNPACK_SLOTS + AFTER; i++) {
		requests[i] = post_receive_now(side, &slots, i, SMALL);
		await(side, requests[i], NULL, "a receive");
		fetch_receive(side, &slots, i, late_size(i + LL), i + LL, "afterwards");
		MUST(plugin_consumed(side->net, comm, 1, requests[i]));
	}
	slots_deregister(&slots, side, comm);
	slots_destroy(&slots);
}

/* ---- what is refused, with a reason; the connection goes on */

static size_t one_size(unsigned int message)
{
	return SMALL;
}

static void limit_send(struct side *side)
{
	send_all(side, 1, one_size);
}

static void refuse(struct side *side, void *comm, int n, const struct slots *slots, size_t size,
	void *hint, const char *reason)
{
	void *data[2] = { slot_data(slots, 0), slot_data(slots, 1) };
	void *mrs[2] = { slots->mr, slots->mr }, *request = hint;
	size_t sizes[2] = { size, size };
	int tags[2] = { UNPACK_TAG, UNPACK_TAG };
	int result = plugin_irecv(side->net, comm, n, data, sizes, tags, mrs, NULL, &request);

	REQUIRE(result == NCCL_INVALID_USAGE, "%s: irecv gave %s", reason, result_name(result));
	REQUIRE(harness_has_warned(reason), "no warning matches \"%s\"", reason);
}

static void limit_recv(struct side *side)
{
	const size_t large = 6 << 20;
	void *request, *comm = side->comms[0];
	struct slots slots;

	need_unpack(side);
	slots_create(&slots, 2, large);
	slots_register(&slots, side, comm);
	refuse(side, comm, 1, &slots, large, NULL, "6291456 bytes.*NCCL_BUFFSIZE");
	refuse(side, comm, 2, &slots, SMALL, NULL, "several messages, but maxRecvs is 1");
	refuse(side, side->comms[1], 1, &slots, SMALL, NULL, "registered for another connection");
	if (side->net->version >= 9)
		refuse(side, comm, 1, &slots, SMALL, NCCL_OPTIONAL_RECV_COMPLETION,
			"protocol LL or LL128.*NCCL_PROTO=Simple");
	request = post_receive_now(side, &slots, 0, SMALL);
	await(side, request, NULL, "a receive");
	fetch_receive(side, &slots, 0, SMALL, 0, "after what was refused");
	MUST(plugin_consumed(side->net, comm, 1, request));
	slots_deregister(&slots, side, comm);
	slots_destroy(&slots);
}

/* ---- memory that goes while receives are armed, or not fetched */

static void forget_send(struct side *side)
{
	send_all(side, 2, one_size);
	hear(side, 'f');
}

static void forget_recv(struct side *side)
{
	void *requests[4], *comm = side->comms[0];
	struct slots slots;
	int done = 0, result = NCCL_SUCCESS;

	need_unpack(side);
	slots_create(&slots, 4, SMALL);
	slots_register(&slots, side, comm);
	for (unsigned int i = 0; i < 4; i++)
		requests[i] = post_receive_now(side, &slots, i, SMALL);
	for (unsigned int i = 0; i < 2; i++)
		await(side, requests[i], NULL, "a receive");
	REQUIRE(unpack_ready(comm) == 2, "%u slots have pieces", unpack_ready(comm));
	say(side, 'f');
	slots_deregister(&slots, side, comm);
	REQUIRE(unpack_ready(comm) == 0, "a kernel that was aborted would not end");
	for (unsigned int i = 0; !result && i < 1000; i++) {
		result = plugin_test(side->net, requests[2], &done, NULL);
		REQUIRE(!done, "a receive without memory is done");
		sched_yield();
	}
	REQUIRE(result, "a receive whose memory was deregistered waits on");
	slots_destroy(&slots);
}

/* ---- memory of the host alone: all of it as without */

static void host_send(struct side *side)
{
	send_all(side, 20, late_size);
}

static void host_recv(struct side *side)
{
	struct slots slots;

	need_unpack(side);
	slots_create(&slots, 1, SMALL);
	slots_leave_gpu(&slots);
	slots_register(&slots, side, side->comms[0]);
	REQUIRE(unpack_has_handle(side->comms[0]) && !unpack_is_on(side->comms[0]),
		"it is on for memory of the host");
	for (unsigned int i = 0; i < 20; i++) {
		void *request = post_receive_now(side, &slots, 0, SMALL);

		await(side, request, NULL, "a receive");
		fetch_receive(side, &slots, 0, late_size(i), i, "on the host");
		MUST(plugin_consumed(side->net, side->comms[0], 1, request));
	}
	slots_deregister(&slots, side, side->comms[0]);
	slots_destroy(&slots);
}

#define PAIR(n, function, w)                                                    \
	.name = n, .what = w, .send = function##_send, .recv = function##_recv, \
	.flags = ROW_BY_NAME | ROW_GPU, .min_version = 7

const struct row unpack_rows[] = {
	{ .name = "unpack-properties",
		.what = "what devices say of receives that are unpacked",
		.solo = properties,
		.flags = ROW_BY_NAME | ROW_GPU },
	{ PAIR("unpack-mixed", mixed, "LL in turns with what is unpacked") },
	{ PAIR("unpack-late", late, "a kernel that is sixteen receives behind") },
	{ PAIR("unpack-limit", limit, "receives that cannot be unpacked"), .n_comms = 2 },
	{ PAIR("unpack-forget", forget, "memory that is deregistered too early") },
	{ PAIR("unpack-host", host, "receives into memory of the host alone") },
	{ .name = NULL },
};
