/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: races between NCCL's threads, best run under ThreadSanitizer. */
#include <string.h>
#include <unistd.h>

#include "tests/nccl/caller/row.h"

enum { REGIONS = 6, REGION_BYTES = 200000 };

static const size_t sizes[] = { 100000, 1, 4096, 65537, 0 };
static const struct stream stream = { .n_messages = 300,
	.in_flight = 4,
	.sizes = sizes,
	.n_sizes = 5,
	.capacity = 100000,
	.key = 31 };

/* User buffers come and go on the service thread, on the comm that the progress thread sends on. */
static void register_all_the_time(struct side *side)
{
	struct slots slots;
	void *mrs[REGIONS];

	slots_create(&slots, REGIONS, REGION_BYTES);
	do {
		for (unsigned int i = 0; i < REGIONS; i++)
			MUST(plugin_reg(side->net, side->comms[i % side->n_comms],
				slot_at(&slots, i) - i, REGION_BYTES, NCCL_POINTER_HOST, &mrs[i]));
		for (unsigned int i = 0; i < REGIONS; i++) {
			unsigned int other = (i + 2) % REGIONS;

			MUST(side->net->dereg_mr(side->comms[other % side->n_comms], mrs[other]));
		}
	} while (!side->is_finished);
	slots_destroy(&slots);
}

static void race_send(struct side *side)
{
	stream_send(side, &stream);
}

static void race_recv(struct side *side)
{
	stream_recv(side, &stream);
}

/* A second communicator of the process: it has one of the side's comms and a progress thread. */
struct other {
	struct side side;
};

static void *other_progress(void *argument)
{
	struct other *other = argument;

	if (other->side.index == 0)
		stream_send(&other->side, &stream);
	else
		stream_recv(&other->side, &stream);
	return NULL;
}

static void both(struct side *side)
{
	struct other other;
	struct side own;
	pthread_t thread;

	memcpy(&other.side, side, sizeof(other.side));
	memcpy(&own, side, sizeof(own));
	own.n_comms = 1;
	other.side.n_comms = 1;
	other.side.comms[0] = side->comms[1];
	REQUIRE(pthread_create(&thread, NULL, other_progress, &other) == 0, "no thread");
	if (side->index == 0)
		stream_send(&own, &stream);
	else
		stream_recv(&own, &stream);
	pthread_join(thread, NULL);
}

/* Meanwhile further communicators are made, used and ended. */
static void come_and_go(struct side *side)
{
	struct side third;
	void *send, *recv;

	memcpy(&third, side, sizeof(third));
	do {
		MUST(plugin_init(side->net, &third.context, harness_log, harness_profiler));
		self_connect(&third, &send, &recv);
		self_transfer(&third, send, recv, 30000);
		MUST(plugin_close_send(third.net, send));
		MUST(plugin_close_recv(third.net, recv));
		MUST(plugin_finalize(side->net, third.context));
	} while (!side->is_finished);
}

const struct row thread_rows[] = {
	{ .name = "race",
		.what = "registration beside sends",
		.send = race_send,
		.recv = race_recv,
		.service = register_all_the_time,
		.flags = ROW_THREADS },
	{ .name = "two-comms",
		.what = "two progress threads, a third comm comes and goes",
		.send = both,
		.recv = both,
		.service = come_and_go,
		.n_comms = 2,
		.flags = ROW_THREADS },
	{ .name = NULL },
};
