/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: messages of all sizes, in pipelines like those of NCCL. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/nccl/caller/row.h"
#include "tests/nccl/caller/unpack.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { KIB = 1024, MIB = 1024 * 1024, WINDOW = 4 * MIB, SPARSE = 1 << 30 };

/* A row of one stream: both sides run the same code. */
#define STREAM_ROW(row, ...)                                                        \
	static const struct stream row##_stream = { .key = __LINE__, __VA_ARGS__ }; \
	static void row##_send(struct side *side)                                   \
	{                                                                           \
		stream_send(side, &row##_stream);                                   \
	}                                                                           \
	static void row##_recv(struct side *side)                                   \
	{                                                                           \
		stream_recv(side, &row##_stream);                                   \
	}
#define SIZES(list) .sizes = (list), .n_sizes = COUNT(list)

static const size_t all_sizes[] = { 0, 1, 2, 3, 7, 8, 127, 128, 129, 1000, 1023, 1024, 1025, 4095,
	4096, 4097, 8193, 16384, 65535, 65536, 65537, 128 * KIB, 128 * KIB + 1, 1000003, MIB,
	MIB + 1, 4 * MIB, 4 * MIB - 1 };
STREAM_ROW(sizes, .n_messages = COUNT(all_sizes), .in_flight = 1, SIZES(all_sizes),
	.capacity = 4 * MIB)
STREAM_ROW(mixed, .n_messages = 2 * COUNT(all_sizes), .in_flight = 5, SIZES(all_sizes),
	.capacity = 4 * MIB)

static const size_t small_sizes[] = { 8, 0, 1, 256, 17, 64, 129, 128, 3, 2000 };
STREAM_ROW(small, .n_messages = 3000, .in_flight = 8, SIZES(small_sizes), .capacity = 2000)

/* A ring of 8 steps of 512 KiB, two a slice, four slices in flight: AllReduce's Simple protocol. */
static const size_t slice_sizes[] = { MIB };
STREAM_ROW(pipeline, .n_messages = 64, .in_flight = 4, SIZES(slice_sizes), .capacity = MIB)

/* Send/Recv's chunks on eight channels, which one progress thread drives. */
static const size_t chunk_sizes[] = { 128 * KIB, 128 * KIB, 128 * KIB, 77777 };
STREAM_ROW(channels, .n_messages = 24, .in_flight = 4, SIZES(chunk_sizes), .capacity = 128 * KIB)

static const size_t short_sizes[] = { 5, 0, 1, 100, 65535, 300000, 0, 0, MIB - 1 };
STREAM_ROW(shorter, .n_messages = 36, .in_flight = 3, SIZES(short_sizes), .capacity = MIB)

static const size_t zero_sizes[] = { 0 };
STREAM_ROW(zero, .n_messages = 200, .in_flight = 8, SIZES(zero_sizes), .capacity = 64)

static const size_t early_sizes[] = { 40000, 64, 0, 128 * KIB };
STREAM_ROW(early, .n_messages = 64, .in_flight = 8, SIZES(early_sizes), .capacity = 128 * KIB,
	.first = FIRST_SEND)

static const size_t window_sizes[] = { 8192, 1, 128, 129 };
STREAM_ROW(window, .n_messages = 3 * NCCL_MAX_REQUESTS, .in_flight = NCCL_MAX_REQUESTS,
	SIZES(window_sizes), .capacity = 8192, .first = FIRST_RECV, .is_whole = true)

/* More than any plugin must take: a refused request is posted again. */
STREAM_ROW(full, .n_messages = 700, .in_flight = 256, SIZES(small_sizes), .capacity = 2000,
	.first = FIRST_SEND)

static const size_t optional_sizes[] = { 8, 128, 4096, 65536 };
STREAM_ROW(optional, .n_messages = 400, .in_flight = 8, SIZES(optional_sizes), .capacity = 65536,
	.is_optional = true)

static const size_t gib_sizes[] = { 1u << 30 };
STREAM_ROW(gib, .n_messages = 1, .in_flight = 1, SIZES(gib_sizes), .capacity = 1u << 30)

/* A gibibyte in four mebibytes of memory: the same pages are mapped many times in a row. */
static uint8_t *map_sparse(void)
{
	int fd = memfd_create("nccl-harness-sparse", MFD_CLOEXEC);
	uint8_t *all = mmap(NULL, SPARSE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(fd >= 0 && ftruncate(fd, WINDOW) == 0 && all != MAP_FAILED, "no memory");
	for (size_t at = 0; at < SPARSE; at += WINDOW)
		REQUIRE(mmap(all + at, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
				0) == all + at,
			"no memory");
	close(fd);
	return all;
}

/* The largest int, which is NCCL's limit with the tables that use int. */
static void move_sparse(struct side *side)
{
	void *comm = side->comms[0], *request = NULL, *mr, *data = map_sparse();
	int bytes = -1, tag = 6;
	size_t size = SPARSE;

	MUST(plugin_reg(side->net, comm, data, size, NCCL_POINTER_HOST, &mr));
	pattern_fill(data, WINDOW, side->index);
	while (!request && side->index == 0)
		MUST(plugin_isend(side->net, comm, data, size, tag, mr, NULL, &request));
	while (!request)
		MUST(plugin_irecv(side->net, comm, 1, &data, &size, &tag, &mr, NULL, &request));
	await(side, request, side->index == 0 ? NULL : &bytes, "a gibibyte");
	if (side->index == 1) {
		REQUIRE((size_t)bytes == size, "%zu bytes were sent, but it says %d", size, bytes);
		REQUIRE(pattern_find(data, WINDOW, 0) < 0, "wrong bytes");
	}
	MUST(side->net->dereg_mr(comm, mr));
	munmap(data, size);
}

static void sparse_send(struct side *side)
{
	move_sparse(side);
}

static void sparse_recv(struct side *side)
{
	move_sparse(side);
}

/* A receiver that has all data stops calling the plugin: the sender must finish without it. */
static const size_t idle_sizes[] = { 300000 };
static const struct stream idle_stream = {
	.n_messages = 4, .in_flight = 4, SIZES(idle_sizes), .capacity = 300000, .key = 99
};

static void idle_send(struct side *side)
{
	for (unsigned int i = 0; i < 5; i++) {
		stream_send(side, &idle_stream);
		say(side, 'i');
	}
}

static void idle_recv(struct side *side)
{
	for (unsigned int i = 0; i < 5; i++) {
		stream_recv(side, &idle_stream);
		hear(side, 'i');
	}
}

static const struct stream events_stream = { .n_messages = 40,
	.in_flight = 4,
	SIZES(chunk_sizes),
	.capacity = 128 * KIB,
	.key = 11,
	.has_events = true };

/* Registers all bytes that were sent, in pieces that split no line of LL128; receives may have
 * none. */
static void check_events(const struct side *side)
{
	struct events is = harness_events(side);
	unsigned int torn = 0;
	uint64_t bytes = 0;

	REQUIRE(is.started == is.stopped, "%u profiler events were started, %u stopped", is.started,
		is.stopped);
	if (side->index == 1)
		return;
	for (unsigned int i = 0; i < events_stream.n_messages; i++) {
		size_t size = events_stream.sizes[i % events_stream.n_sizes];

		bytes += size;
		torn += size % 128 != 0;
	}
	REQUIRE(is.started >= events_stream.n_messages, "%u profiler events of %u messages",
		is.started, events_stream.n_messages);
	REQUIRE(is.bytes == bytes, "%llu bytes were sent, but profiler events are of %llu",
		(unsigned long long)bytes, (unsigned long long)is.bytes);
	REQUIRE(is.torn <= torn, "%u pieces end within a line of 128 bytes, of %u messages",
		is.torn, torn);
}

static void events_send(struct side *side)
{
	stream_send(side, &events_stream);
	say(side, 'v');
	hear(side, 'v');
	check_events(side);
}

static void events_recv(struct side *side)
{
	stream_recv(side, &events_stream);
	say(side, 'v');
	hear(side, 'v');
	check_events(side);
}

/* Received, then flushed, as for memory of a GPU. A plugin for host memory alone may refuse it. */
static void flush_recv(struct side *side)
{
	bool has_gpu = side->properties.pointers & NCCL_POINTER_CUDA;
	void *comm = side->comms[0], *request = NULL, *received;
	struct slots slots;
	size_t size = 500000;
	int tag = 4, bytes = -1;
	void *data;
	int result;

	slots_create(&slots, 1, size);
	slots_register(&slots, side, comm);
	data = slot_data(&slots, 0);
	for (unsigned int i = 0; i < 8; i++) {
		request = NULL;
		while (!request)
			MUST(plugin_irecv(
				side->net, comm, 1, &data, &size, &tag, &slots.mr, NULL, &request));
		await(side, request, &bytes, "a receive");
		received = request;
		result = plugin_flush(side->net, comm, 1, &data, &bytes, &slots.mr, &request);
		REQUIRE(result == NCCL_SUCCESS || !has_gpu, "iflush gave %s", result_name(result));
		if (request && result == NCCL_SUCCESS)
			await(side, request, NULL, "a flush");
		if (slots.gpu)
			unpack_fetch(comm, data, size);
		MUST(plugin_consumed(side->net, comm, 1, received));
		slot_take(&slots, 0);
		REQUIRE(pattern_find(slot_at(&slots, 0), size, i) < 0, "wrong bytes after a flush");
		slot_poison(&slots, 0);
		slot_give(&slots, 0);
	}
	slots_deregister(&slots, side, comm);
	slots_destroy(&slots);
}

static void flush_send(struct side *side)
{
	struct slots slots;
	void *request;

	slots_create(&slots, 1, 500000);
	slots_register(&slots, side, side->comms[0]);
	for (unsigned int i = 0; i < 8; i++) {
		pattern_fill(slot_at(&slots, 0), 500000, i);
		slot_give(&slots, 0);
		request = NULL;
		while (!request)
			MUST(plugin_isend(side->net, side->comms[0], slot_data(&slots, 0), 500000,
				4, slots.mr, NULL, &request));
		await(side, request, NULL, "a send");
	}
	slots_deregister(&slots, side, side->comms[0]);
	slots_destroy(&slots);
}

#define PAIR(n, function, w) .name = n, .what = w, .send = function##_send, .recv = function##_recv

const struct row data_rows[] = {
	{ PAIR("sizes", sizes, "0 bytes to 4 MiB, one at a time"), .flags = ROW_GPU },
	{ PAIR("mixed", mixed, "the same, five in flight"), .flags = ROW_GPU },
	{ PAIR("small", small, "3000 small messages"), .flags = ROW_THREADS | ROW_GPU },
	{ PAIR("pipeline", pipeline, "1 MiB slices, four in flight"), .flags = ROW_GPU },
	{ PAIR("channels", channels, "eight comms of one thread"), .flags = ROW_GPU, .n_comms = 8 },
	{ PAIR("shorter", shorter, "messages shorter than their receives"), .flags = ROW_GPU },
	{ PAIR("zero", zero, "messages of no bytes"), .flags = ROW_GPU },
	{ PAIR("early", early, "sends before any receive"), .flags = ROW_GPU },
	{ PAIR("window", window, "32 requests at once"), .flags = ROW_GPU },
	{ PAIR("full", full, "more requests than there are"), .flags = ROW_GPU },
	{ PAIR("optional", optional, "receives that ask for no completion"), .min_version = 9,
		.flags = ROW_GPU },
	{ PAIR("idle", idle, "a receiver that calls no more"), .flags = ROW_GPU },
	{ PAIR("events", events, "profiler events"), .min_version = 10, .flags = ROW_GPU },
	{ PAIR("flush", flush, "iflush after each receive"), .flags = ROW_GPU },
	{ PAIR("gib-sparse", sparse, "1 GiB of few pages"), .flags = ROW_BY_NAME, .seconds = 60 },
	{ PAIR("gib", gib, "1 GiB"), .flags = ROW_SLOW, .seconds = 120 },
	{ .name = NULL },
};
