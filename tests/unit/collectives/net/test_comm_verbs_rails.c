/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails of hardware that fail in the middle of an operation: the others finish it, with the right
 * sums. If none is left all ranks get the rail and the rank. Nobody waits in vain.
 */
#include <check.h>
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "collectives/net/channel.h"
#include "collectives/api/siblings.h"
#include "tests/unit/collectives/comm_verbs_fixture.h"
#include "tests/fixtures/program.h"

enum {
	SEGMENT_KB = 64 / JOB_SHARE,
	LONG = 2000000 / JOB_SHARE,
	MESSAGES = LONG * 4 / (SEGMENT_KB * 1024), /* for two ranks, each way */
	ROUNDS = 4,
	TIMEOUT_MS = 20000,
};

enum what {
	PORT_DOWN,
	PORT_FLAPS,
	DEVICE_FATAL,
	QP_FATAL,
	CABLE_CUT,  /* nobody is told of it */
	CQ_OVERRUN, /* nobody knows what has arrived */
	WHATS,
};

struct trouble {
	enum what what;
	uint32_t after; /* so many messages of the operation */
	int rank;       /* whose */
	int rail;       /* -1: all of them */
};

/* ---- making trouble */

static void cut(const struct rank *rank, int rail)
{
	for (int other = 0; other < rank->ranks; other++)
		fake_verbs_cut(plug_device(rank->number, rail), plug_device(other, rail), true);
}

/* Here and below: the recovery thread may be using the communicator unless it is entered. */
static bool fail_queue_pair(const struct rank *rank, int rail)
{
	int other = (rank->number + 1) % rank->ranks;
	const struct channel *channel;
	const struct peer *peer;
	uint32_t qpn = 0;

	comm_enter(rank->comm);
	peer = rank->comm->peers[other];
	channel = peer ? peer->channels[rail] : NULL;
	if (channel && channel->state == CHANNEL_UP)
		qpn = frl_qp_num(channel->bulk);
	comm_leave(rank->comm);
	if (!qpn)
		return false;
	fake_verbs_raise_qp(plug_device(rank->number, rail), qpn, IBV_EVENT_QP_FATAL);
	return true;
}

/* Returns false: not yet. */
static bool make_trouble(const struct rank *rank, enum what what, int rail)
{
	const char *device = plug_device(rank->number, rail);
	uint8_t port = plug_port_number(rail);

	switch (what) {
	case PORT_DOWN: fake_verbs_raise(device, IBV_EVENT_PORT_ERR, port); break;
	case PORT_FLAPS:
		fake_verbs_raise(device, IBV_EVENT_PORT_ERR, port);
		job_sleep_ms(rank->job->ranks == 2 ? 1 : 30);
		fake_verbs_raise(device, IBV_EVENT_PORT_ACTIVE, port);
		break;
	case DEVICE_FATAL: fake_verbs_raise(device, IBV_EVENT_DEVICE_FATAL, port); break;
	case QP_FATAL: return fail_queue_pair(rank, rail);
	case CABLE_CUT: cut(rank, rail); break;
	case CQ_OVERRUN: fake_verbs_overrun(device); break;
	case WHATS: break;
	}
	return true;
}

/* Large messages that this rank has received. */
static uint32_t received(struct frl_comm *comm)
{
	uint32_t n = 0;

	comm_enter(comm);
	for (const struct peer *peer = comm->first_peer; peer; peer = peer->next)
		n += peer->receives.first;
	comm_leave(comm);
	return n;
}

static bool make_all(const struct rank *rank, const struct trouble *trouble)
{
	bool is_made = true;

	for (int rail = 0; rail < rank->job->rails; rail++) {
		if (trouble->rail < 0 || trouble->rail == rail)
			is_made = make_trouble(rank, trouble->what, rail) && is_made;
	}
	return is_made;
}

/* One sum with a failure in the middle. */
static int sum_with(struct rank *rank, const struct trouble *trouble, int32_t *values)
{
	bool is_due = trouble->rank == rank->number, done = false;
	uint32_t before = received(rank->comm);
	struct frl_request *request;
	struct frl_backoff backoff;
	int err = plug_start(rank, values, LONG, &request);

	frl_backoff_reset(&backoff);
	while (!err && !done) {
		err = frl_request_test(request, &done);
		if (is_due && !err && !done && received(rank->comm) - before >= trouble->after)
			is_due = !make_all(rank, trouble);
		frl_backoff_idle(&backoff);
	}
	if (!err)
		plug_sums_are_right(rank, values, LONG);
	expect(rank, !is_due || err);
	return err;
}

static void run(struct job *job, const struct plug *plug)
{
	plug_in(plug);
	job->port = plug_port;
	job->timeout_ms = TIMEOUT_MS;
	job_run(job);
	plug_out();
}

/* ---- another rail takes over */

static void run_on(struct rank *rank)
{
	const struct trouble *trouble = rank->job->arg;
	struct frl_comm *whole = rank->comm;
	int32_t *values = malloc(LONG * sizeof(*values));
	bool works;

	works = expect(rank, plug_allreduce(rank, values, 100) == 0) &&
		expect(rank, sum_with(rank, trouble, values) == 0);
	for (int i = 0; i < ROUNDS && works; i++)
		works = expect(rank, plug_allreduce(rank, values, i % 2 ? 300 : 100000) == 0);
	/* Communicators made from it have the same rails. */
	if (works && expect(rank, frl_comm_duplicate(whole, &rank->comm) == 0)) {
		expect(rank, plug_allreduce(rank, values, 100000) == 0);
		frl_comm_destroy(rank->comm);
	}
	rank->comm = whole;
	free(values);
}

START_LOOP_TEST(goes_on, 25)
{
	struct trouble trouble = { .what = (enum what)(_i % CQ_OVERRUN),
		.after = (uint32_t)_i * 37 % (MESSAGES * 2 / 3),
		.rank = _i / 2 % 2,
		.rail = _i / CQ_OVERRUN % 2 };
	/* A device with both ports must not fail. */
	const struct plug plug = { .is_one_device = trouble.what < DEVICE_FATAL && _i / 3 % 2,
		.tells_late = _i / 5 % 2 };
	struct job job = { .ranks = 2 + _i / 4 % 2, .rails = 2, .main = run_on, .arg = &trouble };

	run(&job, &plug);
}
END_TEST

/* ---- completions that are not polled yet */

enum { PILE = 2 * LONG }; /* more messages than there are receives at a time */

/* Rank 1's messages have arrived, and rank 1 has the acknowledgement, before rank 0 polls. */
struct pile {
	enum what what;
	sem_t can_come, have_come;
};

/* The first channel: receives that the other knows of and has not used, and sends that are
 * done. */
static void look(const struct rank *rank, uint32_t *ret_receives, uint32_t *ret_sends)
{
	const struct channel *channel;

	comm_enter(rank->comm);
	channel = rank->comm->peers[1 - rank->number]->channels[0];
	*ret_receives = channel->reported_credits - channel->receives_done;
	*ret_sends = channel->sends_done;
	comm_leave(rank->comm);
}

/* Rank 0 has receives for more messages than one poll returns; then the device fails. */
static int let_come(struct rank *rank, struct frl_request *request, struct pile *pile)
{
	uint32_t receives, sends;
	bool done = false;
	int err = 0;

	look(rank, &receives, &sends);
	while (!err && receives < 2 * POLL_BATCH) {
		err = frl_request_test(request, &done);
		look(rank, &receives, &sends);
	}
	if (err)
		return err;
	sem_post(&pile->can_come);
	sem_wait(&pile->have_come);
	make_trouble(rank, pile->what, 0);
	return 0;
}

/* Rank 1 waits until that many have been acknowledged. */
static int come(struct rank *rank, struct frl_request *request, struct pile *pile, uint32_t before)
{
	uint32_t receives, sends;
	bool done = false;
	int err = 0;

	look(rank, &receives, &sends);
	while (!err && sends - before <= POLL_BATCH) {
		err = frl_request_test(request, &done);
		look(rank, &receives, &sends);
	}
	sem_post(&pile->have_come);
	return err;
}

static void run_piled(struct rank *rank)
{
	struct pile *pile = rank->job->arg;
	int32_t *values = malloc(PILE * sizeof(*values));
	const struct frl_collective message = { .coll = rank->number ? FRL_SEND : FRL_RECV,
		.send = values,
		.recv = values,
		.count = PILE,
		.dtype = FRL_INT32,
		.root = 1 - rank->number };
	struct frl_request *request;
	uint32_t receives, before;
	int err;

	expect(rank, plug_allreduce(rank, values, 100) == 0);
	look(rank, &receives, &before);
	for (int32_t i = 0; i < PILE; i++)
		values[i] = rank->number * i;
	if (rank->number == 1)
		sem_wait(&pile->can_come);
	err = frl_start(rank->comm, &message, &request);
	if (!err)
		err = rank->number ? come(rank, request, pile, before)
				   : let_come(rank, request, pile);
	if (!err)
		err = frl_request_wait(request);
	expect(rank, err == 0);
	for (int32_t i = 0; i < PILE && !err; i++)
		err = values[i] != i;
	expect(rank, err == 0);
	/* Nobody waits for a rank that has failed. */
	sem_post(&pile->can_come);
	sem_post(&pile->have_come);
	free(values);
}

START_LOOP_TEST(piled, 6)
{
	static const enum what whats[] = { PORT_DOWN, DEVICE_FATAL, QP_FATAL };
	struct pile pile = { .what = whats[_i % 3] };
	const struct plug plug = { .tells_late = _i / 3 };
	struct job job = { .ranks = 2, .rails = 2, .main = run_piled, .arg = &pile };

	sem_init(&pile.can_come, 0, 0);
	sem_init(&pile.have_come, 0, 0);
	run(&job, &plug);
	sem_destroy(&pile.can_come);
	sem_destroy(&pile.have_come);
}
END_TEST

/* ---- links come and go */

/* Rank 0's ports lose their links in turn, and get them back. */
static void run_to_and_fro(struct rank *rank)
{
	int32_t *values = malloc(LONG * sizeof(*values));
	struct trouble trouble = { .what = PORT_DOWN, .after = MESSAGES / 3 };

	for (int i = 0; i < ROUNDS && !rank->failure[0]; i++) {
		trouble.rail = i % 2;
		expect(rank, sum_with(rank, &trouble, values) == 0);
		if (rank->number == 0)
			fake_verbs_raise(plug_device(0, trouble.rail), IBV_EVENT_PORT_ACTIVE,
				plug_port_number(trouble.rail));
	}
	free(values);
}

START_LOOP_TEST(to_and_fro, 4)
{
	const struct plug plug = { .is_one_device = _i % 2, .tells_late = _i / 2 % 2 };
	struct job job = { .ranks = 2 + _i % 2, .rails = 2, .main = run_to_and_fro };

	run(&job, &plug);
}
END_TEST

/* ---- a rail that is dead before it is needed */

/* Rank 0 does not know it of its rail 1, which nobody has used so far. */
static void run_late(struct rank *rank)
{
	const struct trouble *trouble = rank->job->arg;
	int32_t *values = malloc(LONG * sizeof(*values));

	if (rank->number == trouble->rank)
		make_trouble(rank, trouble->what, trouble->rail);
	for (int i = 0; i < ROUNDS && !rank->failure[0]; i++)
		expect(rank, plug_allreduce(rank, values, i % 2 ? 300 : 100000) == 0);
	free(values);
}

START_LOOP_TEST(dead_before, 8)
{
	static const enum what whats[] = { PORT_DOWN, DEVICE_FATAL };
	struct trouble trouble = { .what = whats[_i % 2], .rank = _i / 2 % 2, .rail = _i / 4 };
	const struct plug plug = { .is_one_device = false };
	struct job job = { .ranks = 2, .rails = 2, .main = run_late, .arg = &trouble };

	run(&job, &plug);
}
END_TEST

/* ---- none is left */

static void run_to_the_end(struct rank *rank)
{
	const struct trouble *trouble = rank->job->arg;
	int32_t *values = malloc(LONG * sizeof(*values));
	char name[16], rail[16];
	int err;

	expect(rank, plug_allreduce(rank, values, 100) == 0);
	err = sum_with(rank, trouble, values);
	if (err == 0) /* it was over before */
		err = plug_allreduce(rank, values, LONG);
	snprintf(name, sizeof(name), "rank %d", trouble->rank);
	snprintf(rail, sizeof(rail), "(verbs:nic");
	if (err == 0 || err == -ETIMEDOUT || !strstr(frl_last_error(), name) ||
		!strstr(frl_last_error(), "rail ") || !strstr(frl_last_error(), rail))
		complain(rank, "%d: %s", err, frl_last_error());
	free(values);
}

START_LOOP_TEST(none_is_left, 2 * WHATS)
{
	struct trouble trouble = { .what = (enum what)(_i % WHATS),
		.after = (uint32_t)_i * 7,
		.rank = _i / 2 % 2,
		.rail = -1 };
	const struct plug plug = { .is_one_device = _i / 3 % 2 && trouble.what < CABLE_CUT };
	struct job job = { .ranks = 2 + _i / 4 % 2,
		.rails = 1 + _i / WHATS % 2,
		.main = run_to_the_end,
		.arg = &trouble };

	if (trouble.what != PORT_FLAPS && !(trouble.what == QP_FATAL && job.rails > 1))
		run(&job, &plug);
}
END_TEST

TEST_MAIN(comm_verbs_rails)
{
	char segment[16];

	/* Many messages, so that there is a middle. */
	snprintf(segment, sizeof(segment), "%d", SEGMENT_KB);
	setenv("FRL_SEGMENT_KB", segment, 1);
	return run_suite_unforked(all_tests(NULL, NULL));
}
