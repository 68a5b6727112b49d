/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mailbox: which mail is kept for a communicator, however much comes, and how communicators use
 * it. Also operations whose time must not grow faster than the number of ranks or operations.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "collectives/net/channel.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

/* ---- a mailbox alone */

static void (*receiver)(void *arg, int rank, const void *data, size_t size);
static void *receiver_arg;
static unsigned posted;

static int post_nothing(void *ctx, int rank, const void *data, size_t size)
{
	posted++;
	return 0;
}

static void set_receiver(
	void *ctx, void (*receive)(void *arg, int rank, const void *data, size_t size), void *arg)
{
	receiver = receive;
	receiver_arg = arg;
}

static struct frl_bootstrap bootstrap = {
	.ranks = 1024, .post = post_nothing, .set_receiver = set_receiver
};

/* As another rank's mailbox sends it. */
static void arrive(
	int member, enum mail_type type, const struct inbox *to, const void *bytes, size_t size)
{
	uint8_t mail[FRL_MAIL_MAX] = { 'F', 'R', 'L', 'M', 1, (uint8_t)type };

	memcpy(mail + 8, to->id, COMM_ID_SIZE);
	memcpy(mail + 8 + COMM_ID_SIZE, bytes, size);
	receiver(receiver_arg, member, mail, 8 + COMM_ID_SIZE + size);
}

/* Mail about a channel: the newest counts. */
static void arrive_connect(int member, uint8_t channel, uint8_t number, const struct inbox *to)
{
	uint8_t bytes[200] = { channel, number };

	arrive(member, MAIL_CONNECT, to, bytes, sizeof(bytes));
}

static void arrive_failure(int member, const char *text, const struct inbox *to)
{
	uint8_t bytes[256] = { 0, 0, 0, EPROTO };

	memcpy(bytes + 4, text, strlen(text));
	arrive(member, MAIL_FAILED, to, bytes, 4 + strlen(text));
}

struct found {
	unsigned connects, failures, others;
	uint8_t last_number;
	char failure[256];
};

/* Takes all mail of the post; counts the kinds for `member`. */
static struct found take(struct mailbox *mailbox, struct inbox *inbox, int member)
{
	struct mail *mail = mailbox_take(mailbox, inbox);
	struct found found = { 0 };

	while (mail) {
		struct mail *next = mail->next;

		if (mail->member != member) {
			found.others++;
		} else if (mail->type == MAIL_CONNECT) {
			found.connects++;
			found.last_number = mail->bytes[1];
		} else if (mail->type == MAIL_FAILED) {
			found.failures++;
			memcpy(found.failure, mail->bytes + 4, mail->size - 4);
		}
		free(mail);
		mail = next;
	}
	return found;
}

/* A rank that does not poll for long, while another one asks again and again, and fails at last. */
START_TEST(a_failure_is_never_lost)
{
	struct inbox inbox = { .id = "a" };
	struct mailbox *mailbox;
	struct found found;

	ck_assert_int_eq(mailbox_create(&bootstrap, &mailbox), 0);
	mailbox_add(mailbox, &inbox);
	for (int i = 0; i < 20000; i++)
		arrive_connect(i % 500, (uint8_t)(i / 500 % 4), (uint8_t)i, &inbox);
	arrive_failure(3, "number 1", &inbox);
	arrive_failure(3, "number 2", &inbox);
	arrive_connect(3, 2, 77, &inbox);
	found = take(mailbox, &inbox, 3);
	ck_assert_uint_eq(found.failures, 1);
	ck_assert_str_eq(found.failure, "number 1");
	ck_assert_uint_eq(found.connects, 4);
	ck_assert_uint_eq(found.others, 4 * 499);
	found = take(mailbox, &inbox, 3);
	ck_assert_uint_eq(found.failures + found.connects + found.others, 0);
	mailbox_remove(mailbox, &inbox);
	mailbox_put(mailbox);
}
END_TEST

/* Mail that communicators handle; the mailbox answers requests itself. */
START_TEST(every_type_arrives)
{
	const enum mail_type types[] = { MAIL_FAILED, MAIL_REPORT, MAIL_MEASURED };
	struct inbox inbox = { .id = "a" };
	struct mailbox *mailbox;

	ck_assert_int_eq(mailbox_create(&bootstrap, &mailbox), 0);
	mailbox_add(mailbox, &inbox);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct mail *mail;

		arrive(7, types[i], &inbox, "text", 4);
		mail = mailbox_take(mailbox, &inbox);
		ck_assert_ptr_nonnull(mail);
		ck_assert_int_eq(mail->type, types[i]);
		ck_assert_ptr_null(mail->next);
		free(mail);
	}
	mailbox_remove(mailbox, &inbox);
	mailbox_put(mailbox);
}
END_TEST

START_TEST(the_newest_replaces)
{
	struct inbox inbox = { .id = "a" };
	struct mailbox *mailbox;
	struct found found;

	ck_assert_int_eq(mailbox_create(&bootstrap, &mailbox), 0);
	mailbox_add(mailbox, &inbox);
	for (int i = 0; i < 100; i++)
		arrive_connect(5, 1, (uint8_t)i, &inbox);
	arrive_connect(5, MAIL_CHANNELS, 1, &inbox); /* there is none */
	arrive(5, (enum mail_type)99, &inbox, "x", 1);
	found = take(mailbox, &inbox, 5);
	ck_assert_uint_eq(found.connects, 1);
	ck_assert_uint_eq(found.last_number, 99);
	mailbox_remove(mailbox, &inbox);
	mailbox_put(mailbox);
}
END_TEST

/* For a communicator that does not exist yet, among much mail for others that never will. */
START_TEST(kept_for_those_to_come)
{
	struct inbox inbox = { .id = "to come" }, other = { .id = "never" };
	struct mailbox *mailbox;
	struct found found;

	ck_assert_int_eq(mailbox_create(&bootstrap, &mailbox), 0);
	arrive_failure(7, "early", &inbox);
	arrive_failure(7, "and again", &inbox);
	for (int i = 0; i < 50000; i++) {
		snprintf((char *)other.id, sizeof(other.id), "never %d", i);
		arrive_connect(i % 1000, 0, 0, &other);
	}
	for (int i = 0; i < 100; i++)
		arrive_connect(7, 0, (uint8_t)i, &inbox);
	mailbox_add(mailbox, &inbox);
	ck_assert(inbox_is_waiting(&inbox));
	found = take(mailbox, &inbox, 7);
	ck_assert_uint_eq(found.failures, 1);
	ck_assert_str_eq(found.failure, "early");
	ck_assert_uint_eq(found.connects, 1);
	ck_assert_uint_eq(found.last_number, 99);
	ck_assert_uint_eq(found.others, 0);
	mailbox_remove(mailbox, &inbox);
	mailbox_put(mailbox);
}
END_TEST

/* Late mail for a communicator that has ended is not kept: ids are not reused. */
START_TEST(nothing_is_kept_for_those_that_ended)
{
	struct inbox inbox = { .id = "a" };
	struct mailbox *mailbox;
	struct found found;

	ck_assert_int_eq(mailbox_create(&bootstrap, &mailbox), 0);
	mailbox_add(mailbox, &inbox);
	mailbox_remove(mailbox, &inbox);
	arrive_failure(1, "late", &inbox);
	arrive_connect(1, 0, 0, &inbox);
	mailbox_add(mailbox, &inbox);
	found = take(mailbox, &inbox, 1);
	ck_assert_uint_eq(found.failures + found.connects + found.others, 0);
	mailbox_remove(mailbox, &inbox);
	mailbox_put(mailbox);
}
END_TEST

/* ---- communicators */

/* That many ms after the last request: whether it has been repeated. */
static bool asks_after(struct frl_comm *comm, uint64_t ms)
{
	struct channel *channel = comm->connecting;
	unsigned before = channel->mails_unanswered;

	channels_repeat_mail(comm, channel->mailed_ns + ms * NS_PER_MS);
	return channel->mails_unanswered != before;
}

/* Rank 1 does not come for long: requests become ever rarer, but never stop. */
static void ask_ever_later(struct rank *rank)
{
	static const unsigned patience_ms[] = { 500, 1000, 2000, 4000, 8000, 8000, 8000 };
	int32_t value = 5;
	struct frl_collective c = {
		.send = &value, .recv = &value, .count = 1, .dtype = FRL_INT32
	};
	struct frl_request *request = NULL;
	struct frl_comm *comm = NULL;

	/* A new one has no connections. */
	expect(rank, frl_comm_duplicate(rank->comm, &comm) == 0);
	c.coll = rank->number ? FRL_RECV : FRL_SEND;
	c.root = !rank->number;
	if (rank->number)
		job_meet(rank->job);
	if (comm)
		expect(rank, frl_start(comm, &c, &request) == 0);
	if (!rank->number && request && expect(rank, comm->connecting != NULL)) {
		for (size_t i = 0; i < sizeof(patience_ms) / sizeof(patience_ms[0]); i++) {
			expect(rank, !asks_after(comm, patience_ms[i]));
			expect(rank, asks_after(comm, patience_ms[i] + 1));
		}
	}
	if (!rank->number)
		job_meet(rank->job);
	if (request)
		expect(rank, frl_request_wait(request) == 0);
	frl_comm_destroy(comm);
}

JOB_TEST(asked_ever_later, 1, job_simulate, .ranks = 2, .main = ask_ever_later);

/* Rank 0 gives its own text for giving up. */
static void abort_in_words(struct rank *rank)
{
	const char *reason = rank->job->arg;
	int rc = 0;

	if (rank->number == 0)
		frl_comm_abort(rank->comm, reason);
	rc = frl_barrier(rank->comm);
	if (rc != -ECANCELED)
		complain(rank, "%d: %s", rc, frl_last_error());
	if (rank->number == 1 && !strstr(frl_last_error(), "Größe ∞ ≠ 0"))
		complain(rank, "%s", frl_last_error());
	if (rank->number == 1 && strpbrk(frl_last_error(), "\x1b\n\x9b"))
		complain(rank, "control characters: %s", frl_last_error());
}

START_TEST(reasons_keep_their_letters)
{
	static char reason[] = "Größe ∞ ≠ 0: \x1b[31mred\n, \x9b, half of one \xe2\x88";
	struct job job = { .ranks = 2, .main = abort_in_words, .arg = reason };

	job_simulate(&job);
}
END_TEST

/* ---- what differs only in its number */

static void differ_in_number(struct rank *rank)
{
	struct signature mine = { .number = 7, .coll = FRL_SEND, .root = 3, .count = 4 };
	struct signature theirs = mine;

	if (rank->job->arg)
		theirs.number++;
	else
		theirs.root++;
	expect(rank, comm_fail_mismatch(rank->comm, 0, &theirs, &mine) == -EPROTO);
	if (rank->job->arg)
		expect(rank,
			strstr(frl_last_error(), "collective #7") &&
				strstr(frl_last_error(), "collective #8"));
	else
		expect(rank,
			strstr(frl_last_error(), "receive #3") &&
				strstr(frl_last_error(), "receive #4"));
}

JOB_TEST(numbers_are_told_where_they_differ, 2, job_simulate, .ranks = 1, .main = differ_in_number,
	.arg = (void *)(intptr_t)_i);

/* ---- the table of algorithms is of what runs */

static void explain_pieces(struct rank *rank)
{
	static const size_t lengths[] = { 1, 900, 70001 };
	size_t counts[JOB_RANKS], displs[JOB_RANKS];
	struct frl_collective c = { .coll = FRL_ALLTOALLV,
		.dtype = FRL_INT32,
		.send_counts = counts,
		.recv_counts = counts,
		.send_displs = displs,
		.recv_displs = displs };

	for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
		int32_t *memory = calloc((size_t)rank->ranks * 2, lengths[k] * sizeof(*memory));
		struct frl_request *request;
		char text[2048], sent[64], *arrow;

		for (int i = 0; i < rank->ranks; i++) {
			counts[i] = lengths[k];
			displs[i] = (size_t)i * lengths[k];
		}
		c.send = memory;
		c.recv = memory + (size_t)rank->ranks * lengths[k];
		expect(rank, frl_comm_explain(rank->comm, &c, text, sizeof(text)) > 0);
		snprintf(sent, sizeof(sent), "sends %zu bytes",
			(size_t)(rank->ranks - 1) * lengths[k] * sizeof(int32_t));
		expect(rank, strstr(text, sent) != NULL);
		arrow = strstr(text, "<-");
		if (expect(rank, frl_start(rank->comm, &c, &request) == 0) && arrow &&
			request->runs) {
			const char *ran = frl_algo_name(request->runs->schedule->plan.algo);

			while (arrow > text && arrow[-1] != '\n')
				arrow--;
			expect(rank, strncmp(arrow, ran, strlen(ran)) == 0);
			expect(rank, frl_request_wait(request) == 0);
		}
		expect(rank, arrow != NULL);
		free(memory);
	}
}

JOB_TEST(pieces_are_explained, 1, job_simulate, .ranks = 4, .main = explain_pieces);

/* ---- much at once: an algorithm of quadratic time would take minutes */

enum { QUEUED = 500000 / JOB_SHARE, MANY_HOSTS = 1 << 20 };

static void send_to_self(struct rank *rank)
{
	struct frl_request **requests = calloc(QUEUED, sizeof(struct frl_request *));
	int32_t *out = calloc(QUEUED, sizeof(*out)), in = 0;
	struct frl_collective c = { .count = 1, .dtype = FRL_INT32, .recv = &in };

	c.coll = FRL_SEND;
	for (int i = 0; i < QUEUED && !rank->failure[0]; i++) {
		out[i] = i;
		c.send = &out[i];
		expect(rank, frl_start(rank->comm, &c, &requests[i]) == 0);
	}
	c.coll = FRL_RECV;
	for (int i = 0; i < QUEUED && !rank->failure[0]; i++) {
		expect(rank, frl_run(rank->comm, &c) == 0);
		expect(rank, in == i);
		expect(rank, frl_request_wait(requests[i]) == 0);
	}
	free(requests);
	free(out);
}

JOB_TEST(many_to_itself, 1, job_simulate, .ranks = 1, .main = send_to_self);

START_LOOP_TEST(hosts_are_numbered, 3)
{
	struct topology_host *hosts = calloc(MANY_HOSTS, sizeof(*hosts));
	uint32_t *numbers = calloc(MANY_HOSTS, sizeof(*numbers));
	uint32_t per_host = _i ? 8 : 1, n = 0;

	/* Ids go down while ranks go up; the ranks of a host lie apart, or next to each other. */
	for (uint32_t rank = 0; rank < MANY_HOSTS; rank++) {
		uint32_t host = _i == 1 ? rank % (MANY_HOSTS / per_host) : rank / per_host;

		hosts[rank].rank = rank;
		put_number(hosts[rank].id + 3, 4, UINT32_MAX - host);
	}
	topology_number_hosts(hosts, MANY_HOSTS, numbers);
	for (uint32_t rank = 0; rank < MANY_HOSTS; rank++) {
		uint32_t host = _i == 1 ? rank % (MANY_HOSTS / per_host) : rank / per_host;

		ck_assert_uint_eq(numbers[rank], host);
		n = numbers[rank] >= n ? numbers[rank] + 1 : n;
	}
	ck_assert_uint_eq(n, MANY_HOSTS / per_host);
	free(hosts);
	free(numbers);
}
END_TEST

TEST_MAIN(comm_mail)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
