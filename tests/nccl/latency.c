/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/nccl/latency.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	N_MESSAGES = 2000, /* of a size */
	N_LATE = 300,
	N_WARM = 100,
	N_SLOTS = 16, /* and sends that nobody has tested yet */
	LATE_NS = 50000,
};

/* A process's two connections. */
struct ends {
	struct side sides[2];
	struct side *to, *from;
	struct slots out, in;
	size_t size;
	void *sends[N_SLOTS];
	unsigned int sent, tested;
	void *receives[2]; /* at most one ahead */
	unsigned int posted, received;
};

static const size_t sizes[LATENCY_SIZES] = { 8, 64, 512, 2048, 4096, 16384 };
static struct latency *shared;

void latency_init(void)
{
	shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
}

static void post_receive(struct ends *ends)
{
	unsigned int index = ends->posted++;
	void *data = slot_at(&ends->in, index % N_SLOTS), **request = &ends->receives[index % 2];
	int tag = 1;

	for (*request = NULL; !*request;)
		MUST(plugin_irecv(ends->from->net, ends->from->comms[0], 1, &data, &ends->size,
			&tag, &ends->in.mr, NULL, request));
}

/* The oldest send that is not done. */
static void test_send(struct ends *ends)
{
	int done = 0;

	if (ends->tested == ends->sent)
		return;
	MUST(plugin_test(ends->to->net, ends->sends[ends->tested % N_SLOTS], &done, NULL));
	ends->tested += done ? 1 : 0;
}

/* The waiting side tests all requests, as NCCL does: a send may wait for its receive. */
static void receive(struct ends *ends)
{
	void *request = ends->receives[ends->received++ % 2];
	int done = 0, size;

	for (;;) {
		MUST(plugin_test(ends->from->net, request, &done, &size));
		if (done)
			break;
		test_send(ends);
		sched_yield();
	}
	REQUIRE((size_t)size == ends->size, "%d bytes came", size);
}

static void send_one(struct ends *ends)
{
	void **request = &ends->sends[ends->sent % N_SLOTS];

	while (ends->sent - ends->tested == N_SLOTS)
		test_send(ends);
	for (*request = NULL; !*request;)
		MUST(plugin_isend(ends->to->net, ends->to->comms[0],
			slot_at(&ends->out, ends->sent % N_SLOTS), ends->size, 1, ends->out.mr,
			NULL, request));
	ends->sent++;
}

static void finish_sends(struct ends *ends)
{
	while (ends->tested < ends->sent)
		test_send(ends);
}

/* One round trip of the first side. */
static void ping(struct ends *ends, enum latency_posted posted, bool is_last)
{
	bool is_ahead = posted != POSTED_TOGETHER;

	if (is_ahead && !is_last)
		post_receive(ends);
	send_one(ends);
	if (!is_ahead)
		post_receive(ends);
	receive(ends);
}

/* The time for which the second side waited for its message after it had posted. */
static uint64_t pong(struct ends *ends, enum latency_posted posted, bool is_last)
{
	uint64_t start_ns = now_ns();

	if (posted == POSTED_LATE)
		while (now_ns() - start_ns < LATE_NS)
			;
	start_ns = now_ns();
	if (posted != POSTED_AHEAD || !is_last)
		post_receive(ends);
	receive(ends);
	start_ns = now_ns() - start_ns;
	send_one(ends);
	return start_ns;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median(double *values, unsigned int n)
{
	qsort(values, n, sizeof(*values), compare);
	return values[n / 2];
}

static double measure(struct ends *ends, enum latency_posted posted, bool is_first)
{
	static double us[N_WARM + N_MESSAGES];
	unsigned int n = N_WARM + (posted == POSTED_LATE ? N_LATE : N_MESSAGES);

	if (posted == POSTED_AHEAD || (posted == POSTED_LATE && is_first))
		post_receive(ends);
	say(ends->to, 'm');
	hear(ends->to, 'm');
	for (unsigned int i = 0; i < n; i++) {
		uint64_t start_ns = now_ns();

		if (is_first) {
			ping(ends, posted, i + 1 == n);
			us[i] = (double)(now_ns() - start_ns) / 2e3;
		} else {
			us[i] = (double)pong(ends, posted, i + 1 == n) / 1e3;
		}
	}
	finish_sends(ends);
	return median(us + N_WARM, n - N_WARM);
}

static void measure_all(struct ends *ends, bool is_first)
{
	for (unsigned int i = 0; i < LATENCY_SIZES; i++) {
		ends->size = sizes[i];
		for (int posted = 0; posted < LATENCY_POSTED; posted++) {
			double us = measure(ends, (enum latency_posted)posted, is_first);

			if (is_first == (posted != POSTED_LATE))
				shared->us[i][posted] = us;
		}
	}
}

void latency_side(struct side *side)
{
	static struct ends ends;
	struct plugin net = { 0 };

	side_open(side, &net);
	for (unsigned int i = 0; i < 2; i++) {
		memcpy(&ends.sides[i], side, sizeof(*side));
		ends.sides[i].index = side->index ^ i;
		side_connect(&ends.sides[i], 1);
	}
	ends.to = &ends.sides[side->index];
	ends.from = &ends.sides[1 - side->index];
	slots_create(&ends.out, N_SLOTS, sizes[LATENCY_SIZES - 1]);
	slots_create(&ends.in, N_SLOTS, sizes[LATENCY_SIZES - 1]);
	slots_register(&ends.out, side, ends.to->comms[0]);
	slots_register(&ends.in, side, ends.from->comms[0]);
	measure_all(&ends, side->index == 0);
	slots_deregister(&ends.out, side, ends.to->comms[0]);
	slots_deregister(&ends.in, side, ends.from->comms[0]);
	for (unsigned int i = 0; i < 2; i++)
		side_disconnect(&ends.sides[i]);
	slots_destroy(&ends.out);
	slots_destroy(&ends.in);
	side_close(side);
	plugin_close(&net);
}

void latency_take(struct latency *ret)
{
	memcpy(ret, shared, sizeof(*ret));
}

void latency_print(const struct latency *const runs[2], unsigned int n, char names[2][64])
{
	static const char *const posted[] = { "ahead", "together", "late" };
	double *values = calloc(n, sizeof(*values));

	if (!values)
		return;
	printf("| bytes |");
	for (unsigned int i = 0; i < LATENCY_POSTED; i++)
		printf(" %s: %s | %s | ratio |", posted[i], names[0], names[1]);
	printf("\n|---:|");
	for (unsigned int i = 0; i < 3 * LATENCY_POSTED; i++)
		printf("---:|");
	for (unsigned int size = 0; size < LATENCY_SIZES; size++) {
		printf("\n| %zu |", sizes[size]);
		for (unsigned int i = 0; i < LATENCY_POSTED; i++) {
			double us[2];

			for (unsigned int which = 0; which < 2; which++) {
				for (unsigned int k = 0; k < n; k++)
					values[k] = runs[which][k].us[size][i];
				us[which] = median(values, n);
			}
			printf(" %.1f | %.1f | %.2f |", us[0], us[1], us[0] / us[1]);
		}
	}
	printf("\n");
	free(values);
}
