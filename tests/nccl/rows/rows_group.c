/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: grouped receives, as shared communicators (PXN) have them. */
#include "tests/nccl/caller/row.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const size_t sizes[] = { 70000, 1, 0, 131072, 128, 129, 5000, 65536, 3, 999 };

/* As many parts as the plugin takes, so both sides ask it. */
static void run(struct side *side, struct stream stream)
{
	stream.group = (unsigned int)side->properties.max_recvs;
	stream.sizes = sizes;
	stream.n_sizes = COUNT(sizes);
	stream.capacity = 131072;
	if (side->index == 0)
		stream_send(side, &stream);
	else
		stream_recv(side, &stream);
}

static void group(struct side *side)
{
	run(side, (struct stream){ .n_messages = 60, .in_flight = 4, .key = 21 });
}

static void mixed(struct side *side)
{
	run(side, (struct stream){ .n_messages = 90, .in_flight = 6, .is_mixed = true, .key = 22 });
}

static void same_tags(struct side *side)
{
	run(side,
		(struct stream){
			.n_messages = 40, .in_flight = 3, .has_same_tags = true, .key = 23 });
}

static void early(struct side *side)
{
	run(side,
		(struct stream){
			.n_messages = 24, .in_flight = 8, .first = FIRST_SEND, .key = 24 });
}

static void window(struct side *side)
{
	run(side,
		(struct stream){ .n_messages = 2 * NCCL_MAX_REQUESTS,
			.in_flight = NCCL_MAX_REQUESTS,
			.first = FIRST_RECV,
			.is_whole = true,
			.key = 25 });
}

#define BOTH(n, function, w)                                              \
	{                                                                 \
		.name = n, .what = w, .send = function, .recv = function, \
		.flags = ROW_GROUPS | ROW_GPU                             \
	}

const struct row group_rows[] = {
	BOTH("group", group, "grouped receives, tags out of order"),
	BOTH("group-mixed", mixed, "groups of one part to all"),
	BOTH("group-tags", same_tags, "one tag for all parts"),
	BOTH("group-early", early, "sends before any grouped receive"),
	BOTH("group-window", window, "32 grouped receives at once"),
	{ .name = NULL },
};
