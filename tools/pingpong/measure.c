/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two tests.
 *
 * Latency: one message at a time, there and back. A sample is half of a round trip.
 *
 * Bandwidth: as many messages in flight as there are slots. The server returns credits: messages
 * without data that contain the number of messages it has taken. So each message finds a posted
 * receive and a free slot. The last credit ends the measurement. WRITEs that are not verified need
 * no credits: only the last one completes at the server.
 *
 * No test waits for the completion of its last sends, because the peer may have continued. The next
 * test or link_sync() handles them.
 */
#include "tools/pingpong/pingpong.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LATENCY_DEPTH = 2 }; /* receives posted: the next one and its successor */

struct test {
	struct link *link;
	enum pp_op op;
	size_t size;
	bool verify;
};

static uint64_t first_word(const struct test *t, int sender, uint64_t message)
{
	return ((message << 2 | (uint64_t)t->op << 1 | (uint64_t)sender) + 1) * 0x9e3779b97f4a7c15u;
}

/* Each message, direction and operation has a pattern of its own. */
static uint64_t next_word(uint64_t word)
{
	return word + 0xbf58476d1ce4e5b9u;
}

static int fill(const struct test *t, uint64_t message)
{
	const uint8_t *slot = link_send_slot(t->link, t->size, message);
	uint8_t *at = link_host_slot(t->link, slot);
	uint64_t word = first_word(t, t->link->rank, message);
	size_t done = 0;

	for (; t->size - done >= sizeof(word); done += sizeof(word), word = next_word(word))
		memcpy(at + done, &word, sizeof(word));
	memcpy(at + done, &word, t->size - done);
	return link_give(t->link, slot, t->size);
}

static int compare(const struct test *t, uint64_t message)
{
	const uint8_t *slot = link_receive_slot(t->link, t->size, message);
	const uint8_t *at = link_host_slot(t->link, slot);
	uint64_t word = first_word(t, PEERS - 1 - t->link->rank, message);
	size_t done = 0;
	int rc = link_take(t->link, slot, t->size);

	if (rc)
		return rc;
	for (; t->size - done >= sizeof(word); done += sizeof(word), word = next_word(word))
		if (memcmp(at + done, &word, sizeof(word)) != 0)
			break;
	if (t->size - done < sizeof(word) && memcmp(at + done, &word, t->size - done) == 0)
		return 0;
	say("message %ju of %zu bytes: wrong data near byte %zu", (uintmax_t)message, t->size,
		done);
	return -EIO;
}

static int check_arrival(const struct test *t, const struct arrival *arrival, uint64_t message)
{
	if (arrival->length != t->size) {
		say("message %ju has %u bytes, not %zu", (uintmax_t)message, arrival->length,
			t->size);
		return -EIO;
	}
	if (arrival->with_imm != (t->op == PP_WRITE) ||
		(arrival->with_imm && arrival->imm != (uint32_t)message)) {
		say("message %ju has the wrong immediate data", (uintmax_t)message);
		return -EIO;
	}
	return t->verify ? compare(t, message) : 0;
}

/*
 * Posts a receive. For a WRITE with immediate it has no memory, because the data has its own
 * address.
 */
static int post_receive(const struct test *t, uint64_t message)
{
	return link_post_receive(t->link, t->op == PP_SEND ? t->size : 0, message);
}

/* Waits until no request reads the slot, then writes the message into it. */
static int prepare(const struct test *t, uint64_t message, unsigned in_flight)
{
	int rc = 0;

	while (!rc && t->link->posted - t->link->sent >= in_flight)
		rc = link_poll(t->link);
	if (!rc && t->verify)
		rc = fill(t, message);
	return rc;
}

static int post_one(const struct test *t, uint64_t message)
{
	const struct run run = {
		.op = t->op, .size = t->size, .first = message, .n = 1, .notify = true
	};

	return link_post(t->link, &run);
}

/*
 * Answers one message. The receive of the next message is posted already, so the one after it can
 * be posted after the answer.
 */
static int serve_round(const struct test *t, uint64_t message, uint64_t rounds)
{
	struct arrival arrival;
	int rc = link_receive(t->link, &arrival);

	if (!rc)
		rc = check_arrival(t, &arrival, message);
	if (!rc)
		rc = prepare(t, message, LATENCY_DEPTH);
	if (!rc)
		rc = post_one(t, message);
	if (!rc && message + LATENCY_DEPTH < rounds)
		rc = post_receive(t, message + LATENCY_DEPTH);
	return rc;
}

static int time_round(const struct test *t, uint64_t message, uint64_t rounds, double *ret_us)
{
	int rc = prepare(t, message, LATENCY_DEPTH);
	struct arrival arrival;
	uint64_t start;

	if (rc)
		return rc;
	start = now_ns();
	rc = post_one(t, message);
	if (!rc)
		rc = link_receive(t->link, &arrival);
	*ret_us = (double)(now_ns() - start) / 2e3;
	if (!rc)
		rc = check_arrival(t, &arrival, message);
	if (!rc && message + LATENCY_DEPTH < rounds)
		rc = post_receive(t, message + LATENCY_DEPTH);
	return rc;
}

static uint64_t latency_iters(const struct plan *plan, size_t size)
{
	uint64_t iters = ((uint64_t)256 << 20) / size;

	if (plan->iters)
		return plan->iters;
	return iters < 100 ? 100 : iters > 5000 ? 5000 : iters;
}

int measure_latency(struct link *link, const struct plan *plan, enum pp_op op, size_t size,
	struct latency *ret_latency)
{
	struct test t = { .link = link, .op = op, .size = size, .verify = plan->verify };
	uint64_t iters = latency_iters(plan, size), warmup = iters / 10 + 1;
	uint64_t rounds = warmup + iters;
	double *samples = malloc(iters * sizeof(*samples)), us = 0;
	int rc = samples ? 0 : -ENOMEM;

	if (rc)
		say("no memory for %ju samples", (uintmax_t)iters);
	for (uint64_t i = 0; i < LATENCY_DEPTH && i < rounds && !rc; i++)
		rc = post_receive(&t, i);
	if (!rc)
		rc = link_sync(link);
	for (uint64_t i = 0; i < rounds && !rc; i++) {
		if (link->rank == SERVER) {
			rc = serve_round(&t, i, rounds);
			continue;
		}
		rc = time_round(&t, i, rounds, &us);
		if (i >= warmup)
			samples[i - warmup] = us;
	}
	if (!rc && link->rank == CLIENT) {
		sort_doubles(samples, iters);
		*ret_latency = (struct latency){
			.iters = iters,
			.min = samples[0],
			.p50 = quantile(samples, iters, 0.5),
			.p99 = quantile(samples, iters, 0.99),
			.p999 = quantile(samples, iters, 0.999),
		};
	}
	free(samples);
	return rc;
}

/* Numbers that both ends compute in the same way. */
struct stream {
	uint64_t iters;
	uint64_t notices; /* messages with a completion at the server */
	unsigned slots;
	unsigned batch; /* notices per credit */
	unsigned run;   /* messages posted by one call */
	bool notify_all;
};

static struct stream plan_stream(const struct test *t, uint64_t iters)
{
	struct stream s = { .iters = iters, .slots = link_slots(t->link, t->size) };

	s.notify_all = t->op == PP_SEND || t->verify;
	s.notices = s.notify_all ? iters : 1;
	s.batch = s.slots / 4 ? s.slots / 4 : 1;
	s.run = s.batch < MAX_RUN ? s.batch : MAX_RUN;
	return s;
}

static int serve_stream(const struct test *t, const struct stream *s)
{
	struct arrival arrival;
	int rc = 0;

	for (uint64_t i = 0; i < s->slots && i < s->notices && !rc; i++)
		rc = post_receive(t, i);
	if (!rc)
		rc = link_sync(t->link);
	for (uint64_t i = 0; i < s->notices && !rc; i++) {
		bool last = i + 1 == s->notices;

		rc = link_receive(t->link, &arrival);
		if (!rc)
			rc = check_arrival(t, &arrival, s->notify_all ? i : s->iters - 1);
		if (!rc && i + s->slots < s->notices)
			rc = post_receive(t, i + s->slots);
		if (!rc && (last || (i + 1) % s->batch == 0))
			rc = link_post_credit(t->link, (uint32_t)(last ? s->iters : i + 1));
	}
	return rc;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Sends the messages that may be sent now, if there are enough for a call. */
static int send_more(const struct test *t, const struct stream *s, uint64_t taken, uint64_t *next)
{
	uint64_t pending = t->link->posted - t->link->sent, room = s->slots - pending;
	uint64_t left = s->iters - *next;
	struct run run = { .op = t->op, .size = t->size, .notify = s->notify_all };
	int rc = 0;

	/* More than the slots if sends of a test with smaller messages are not completed yet. */
	if (pending >= s->slots)
		return 0;
	if (s->notify_all)
		room = least(room, s->slots - (*next - taken));
	while (!rc && left && room >= least(s->run, left)) {
		run.first = *next;
		run.n = (unsigned)least(s->run, left);
		run.notify_last = run.n == left;
		for (unsigned i = 0; t->verify && i < run.n && !rc; i++)
			rc = fill(t, run.first + i);
		if (!rc)
			rc = link_post(t->link, &run);
		*next += run.n;
		left -= run.n;
		room -= run.n;
	}
	return rc;
}

static int time_stream(const struct test *t, const struct stream *s, double *ret_seconds)
{
	uint64_t credits = (s->notices + s->batch - 1) / s->batch, taken = 0, next = 0, start;
	uint64_t receives = credits < CREDIT_RECEIVES ? credits : CREDIT_RECEIVES;
	struct arrival arrival;
	int rc = 0;

	for (uint64_t i = 0; i < receives && !rc; i++)
		rc = link_post_receive(t->link, 0, i);
	if (!rc)
		rc = link_sync(t->link);
	start = now_ns();
	while (taken < s->iters && !rc) {
		rc = send_more(t, s, taken, &next);
		if (!rc)
			rc = link_poll(t->link);
		while (t->link->inbox_count && !rc) {
			rc = link_receive(t->link, &arrival);
			if (!rc && (!arrival.with_imm || arrival.imm > next || arrival.length)) {
				say("the server sent a credit for messages that were not sent");
				rc = -EPROTO;
			}
			taken = arrival.imm;
			/*
			 * Post as many receives as credits, so that the next test starts without
			 * any.
			 */
			if (!rc && receives < credits)
				rc = link_post_receive(t->link, 0, receives++);
		}
	}
	*ret_seconds = (double)(now_ns() - start) * 1e-9;
	return rc;
}

static uint64_t stream_iters(const struct plan *plan, size_t size)
{
	uint64_t iters = ((uint64_t)256 << 20) / size;

	if (plan->iters)
		return plan->iters;
	return iters < 64 ? 64 : iters > 100000 ? 100000 : iters;
}

int measure_bandwidth(struct link *link, const struct plan *plan, enum pp_op op, size_t size,
	struct bandwidth *ret_bandwidth)
{
	struct test t = { .link = link, .op = op, .size = size, .verify = plan->verify };
	uint64_t iters = stream_iters(plan, size);
	/* First a tenth, to warm up. */
	uint64_t rounds[] = { iters / 10 + 1, iters };
	double seconds = 0;
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		struct stream s = plan_stream(&t, rounds[i]);

		rc = link->rank == SERVER ? serve_stream(&t, &s) : time_stream(&t, &s, &seconds);
	}
	*ret_bandwidth = (struct bandwidth){ .iters = iters, .seconds = seconds };
	return rc;
}
