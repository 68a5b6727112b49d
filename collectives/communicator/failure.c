/* SPDX-License-Identifier: BSD-3-Clause */
/* Failure of a communicator: once, with one text that names the rank that caused it. */
#include "collectives/communicator/communicator.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/text.h"
#include "lib/base/time_budget.h"

enum {
	/*
	 * The cause of a failure may arrive this much later than its effect. On a busy machine each
	 * nap counts for at most one step, since the process that reports the cause may get no
	 * processor time either.
	 */
	REASON_WAIT_MS = 50,
	REASON_STEP_MS = 5,
	REASON_SLEEP_MS = 1,
	ERRNO_SIZE = 4, /* in a mail, before the text */
	ERRNO_MAX = 4095,
};

int comm_error(const struct frl_comm *comm)
{
	return frl_fail(comm->error, "%s", comm->error_text);
}

/* Any thread: reads only fields that do not change. */
void comm_send_failure(const struct frl_comm *comm, int err, const char *text)
{
	uint8_t mail[ERRNO_SIZE + ERROR_TEXT];
	size_t length = strnlen(text, ERROR_TEXT);

	put_number(mail, ERRNO_SIZE, (uint64_t)-err);
	memcpy(mail + ERRNO_SIZE, text, length);
	for (int rank = 0; rank < comm->ranks; rank++) {
		if (rank != comm->rank)
			mailbox_send(comm->mailbox, comm_member(comm, rank), MAIL_FAILED,
				&comm->inbox, mail, ERRNO_SIZE + length);
	}
}

void comm_give_up_job(const struct frl_comm *comm, const char *why)
{
	if (!comm->is_child)
		comm->bootstrap->abort(comm->bootstrap->ctx, why);
}

/* Fails the communicator. `notifies`: reports the failure to the other ranks and aborts the job,
 * except while the communicator is being destroyed. */
static int fail(struct frl_comm *comm, int err, bool notifies, const char *format, va_list args)
{
	if (comm->error)
		return comm_error(comm);
	vsnprintf(comm->error_text, sizeof(comm->error_text), format, args);
	comm->error = err < 0 ? err : -err;
	if (!comm->draining)
		frl_log(FRL_LOG_ERROR, "communicator, rank %d: %s", comm->rank, comm->error_text);
	if (!comm->draining && notifies && comm->ranks > 1) {
		comm_send_failure(comm, comm->error, comm->error_text);
		comm_give_up_job(comm, comm->error_text);
	}
	/* Buffers return to the caller with the error, so nothing may access them from here on. */
	comm->hooks->stop(comm);
	return comm_error(comm);
}

int comm_fail(struct frl_comm *comm, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	err = fail(comm, err, true, format, args);
	va_end(args);
	return err;
}

int comm_fail_quietly(struct frl_comm *comm, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	err = fail(comm, err, false, format, args);
	va_end(args);
	return err;
}

int comm_fail_aborted(struct frl_comm *comm, const char *reason)
{
	int err;

	/* The aborting thread also sends the failure, but the failure of this rank may arrive
	 * first. */
	if (!comm->error)
		comm_send_failure(comm, -ECANCELED, reason);
	err = comm_fail_quietly(comm, -ECANCELED, "%s", reason);
	comm_give_up_job(comm, reason);
	return err;
}

/* ---- failures of other ranks */

/* The text describes the sender itself, unless the job was aborted or timed out. */
int comm_take_failure(struct frl_comm *comm, int rank, const uint8_t *bytes, size_t size)
{
	uint64_t error = size >= ERRNO_SIZE ? get_number(bytes, ERRNO_SIZE) : 0;
	char text[ERROR_TEXT] = "";

	if (error < 1 || error > ERRNO_MAX)
		return 0;
	bytes += ERRNO_SIZE;
	size -= ERRNO_SIZE;
	memcpy(text, bytes, size < sizeof(text) ? size : sizeof(text) - 1);
	text_clean(text);
	if (error == ECANCELED || error == ETIMEDOUT)
		return comm_fail_quietly(comm, -(int)error, "%s", text);
	return comm_fail_quietly(comm, -(int)error, "rank %d has failed: %s", rank, text);
}

/* Asks the bootstrap for a rank that is gone, or -1 if the bootstrap itself is broken. Returns
 * false if there is none. */
static bool find_lost_member(struct frl_comm *comm, int *ret_member)
{
	struct frl_bootstrap *bootstrap = comm->bootstrap;
	int member = -1;

	if (bootstrap->check(bootstrap->ctx, &member) == 0)
		return false;
	*ret_member = member;
	return true;
}

int comm_rank_of_member(const struct frl_comm *comm, int member)
{
	int low = 0, high = comm->ranks;

	if (!comm->members)
		return member < comm->ranks ? member : -1;
	while (low < high) {
		int middle = low + (high - low) / 2, rank = comm->rank_order[middle];

		if (comm->members[rank] == member)
			return rank;
		if (comm->members[rank] < member)
			low = middle + 1;
		else
			high = middle;
	}
	return -1;
}

/* Returns false, without a nap, when the time is over. */
static bool short_sleep(struct time_budget *waited)
{
	const struct timespec duration = { .tv_nsec = REASON_SLEEP_MS * NS_PER_MS };

	if (time_budget_spend(waited, (uint64_t)REASON_STEP_MS * NS_PER_MS, clock_now_ns()) >=
		(uint64_t)REASON_WAIT_MS * NS_PER_MS)
		return false;
	nanosleep(&duration, NULL);
	return true;
}

/* Returns the communicator's error if mail has made it fail, else 0. */
static int take_waiting_mail(struct frl_comm *comm)
{
	return inbox_is_waiting(&comm->inbox) ? comm->hooks->take_mail(comm) : 0;
}

/* Waits for mail that makes the communicator fail. Returns 0 if none arrives in time. */
static int wait_for_mail(struct frl_comm *comm)
{
	struct time_budget waited = { 0 };
	int err;

	do
		err = take_waiting_mail(comm);
	while (!err && short_sleep(&waited));
	return err;
}

/*
 * Fails because a member is gone, with the last error of the bootstrap. Waits a moment first: the
 * member may have mailed its reason.
 */
static int fail_lost_member(struct frl_comm *comm, int member, const char *how)
{
	int rank = member < 0 ? -1 : comm_rank_of_member(comm, member);
	char why[ERROR_TEXT / 2];
	const char *tail;
	int err;

	snprintf(why, sizeof(why), "%s", frl_last_error());
	err = comm->draining ? 0 : wait_for_mail(comm);
	if (err)
		return err;
	if (member < 0)
		return comm_fail_quietly(
			comm, -ECONNRESET, "%s: the state of the other ranks is unknown", why);
	if (rank < 0)
		return comm_fail_quietly(
			comm, -ECONNRESET, "the job of this communicator is broken: %s", why);
	/* The bootstrap's text may begin with "rank N is gone: ", where N is the member's
	 * number. */
	tail = strstr(why, "is gone: ");
	return comm_fail_quietly(comm, -ECONNRESET, "rank %d is gone: %s%s%s", rank,
		tail ? tail + strlen("is gone: ") : why, how ? "; " : "", how ? how : "");
}

/* Fails because a rank has left. Waits a moment first: the rank may have mailed its reason. */
static int fail_left(struct frl_comm *comm, int rank)
{
	int member, err;

	if (find_lost_member(comm, &member))
		return fail_lost_member(comm, member, NULL);
	err = wait_for_mail(comm);
	if (err)
		return err;
	if (find_lost_member(comm, &member))
		return fail_lost_member(comm, member, NULL);
	return comm_fail(comm, -ECONNRESET,
		"rank %d is gone: it has left, and rank %d waits for it", rank, comm->rank);
}

/*
 * Ranks may leave at different times. A rank that has left is a failure only for ranks that need
 * more data from it; they fail and notify the others.
 */
static int check_left_ranks(struct frl_comm *comm)
{
	int rank = comm->draining || !comm->bootstrap->has_left ? -1 : comm->hooks->find_left(comm);

	return rank < 0 ? 0 : fail_left(comm, rank);
}

int comm_check_ranks(struct frl_comm *comm)
{
	int member;

	if (!find_lost_member(comm, &member))
		return check_left_ranks(comm);
	return fail_lost_member(comm, member, NULL);
}

/*
 * A broken connection is not always the fault of its other end, which may have failed because of a
 * third rank. The bootstrap knows which process died, perhaps a moment later: a dying process
 * closes its sockets one by one. Returns the error if the communicator has failed because of that,
 * else 0.
 */
static int wait_for_reason(struct frl_comm *comm, const char *how)
{
	struct time_budget waited = { 0 };
	int member, err;

	if (comm->draining)
		return 0;
	do {
		if (find_lost_member(comm, &member))
			return fail_lost_member(comm, member, how);
		err = take_waiting_mail(comm);
	} while (!err && short_sleep(&waited));
	return err;
}

bool comm_is_broken(enum frl_wc_status status)
{
	return status == FRL_WC_WR_FLUSH_ERR || status == FRL_WC_RETRY_EXC_ERR ||
		status == FRL_WC_RNR_RETRY_EXC_ERR || status == FRL_WC_REM_ABORT_ERR ||
		status == FRL_WC_REM_OP_ERR;
}

int comm_find_reason(struct frl_comm *comm, int peer, enum frl_wc_status status)
{
	char how[ERROR_TEXT / 2];

	snprintf(how, sizeof(how), "noticed on the connection to rank %d (%s)", peer,
		frl_wc_status_str(status));
	return wait_for_reason(comm, how);
}

int comm_fail_completion(struct frl_comm *comm, int peer, enum frl_wc_status status)
{
	int err;

	if (comm_is_broken(status)) {
		err = comm_find_reason(comm, peer, status);
		if (err)
			return err;
		return comm_fail(
			comm, -ECONNRESET, "rank %d is gone: %s", peer, frl_wc_status_str(status));
	}
	if (status == FRL_WC_LOC_LEN_ERR)
		return comm_fail(comm, -EPROTO,
			"rank %d sent more than rank %d expected: do all ranks call the same "
			"operations with the same arguments?",
			peer, comm->rank);
	return comm_fail(comm, -EIO, "the connection to rank %d failed: %s", peer,
		frl_wc_status_str(status));
}

int comm_fail_connecting(struct frl_comm *comm, int peer, int err)
{
	char why[ERROR_TEXT / 2];
	int reason;

	snprintf(why, sizeof(why), "%s", frl_last_error());
	reason = wait_for_reason(comm, why);
	if (reason)
		return reason;
	return comm_fail(comm, err, "rank %d cannot connect to rank %d: %s", comm->rank, peer, why);
}

/* The memory may be gone because the peer is. */
int comm_fail_reading(struct frl_comm *comm, int peer, int err)
{
	char why[ERROR_TEXT / 2];
	int reason;

	snprintf(why, sizeof(why), "%s", frl_last_error());
	reason = wait_for_reason(comm, why);
	if (reason)
		return reason;
	return comm_fail(comm, err,
		"rank %d cannot read the buffers of rank %d: %s; FRL_SHM=0 avoids this", comm->rank,
		peer, why);
}

/* The peer failed first and mails the reason. */
int comm_fail_taken_back(struct frl_comm *comm, int peer)
{
	int err = wait_for_reason(comm, "noticed in its memory");

	if (err)
		return err;
	return comm_fail(comm, -ECONNRESET,
		"rank %d has failed while rank %d was reading its buffers", peer, comm->rank);
}

/* ---- ranks in different operations */

int comm_compare(struct frl_comm *comm, int peer, const struct signature *theirs)
{
	const struct signature *mine = &comm->history[theirs->number % HISTORY];

	/* Not started here yet, dropped from the history, or not numbered. */
	if (theirs->coll == FRL_SEND || comm->started - theirs->number - 1 >= HISTORY ||
		theirs->number >= comm->started)
		return 0;
	if (memcmp(theirs, mine, sizeof(*mine)) == 0)
		return 0;
	return comm_fail_mismatch(comm, peer, theirs, mine);
}

static const char *dtype_name(unsigned dtype)
{
	const char *name = frl_dtype_name((enum frl_dtype)dtype);

	return name ? name : "?";
}

static const char *wire_name(unsigned wire)
{
	const char *name = frl_wire_name((enum frl_wire)wire);

	return name ? name : "?";
}

static void describe(char *text, size_t size, const struct signature *s, bool with_numbers)
{
	const char *name = frl_coll_name((enum frl_coll)s->coll);

	if (s->count == TRANSFER_UNKNOWN && s->coll != FRL_SEND)
		snprintf(text, size, "%s #%u", name ? name : "?", s->number);
	else if (s->count == TRANSFER_UNKNOWN)
		snprintf(text, size, "send or receive #%u between the two", s->root);
	else if (s->coll != FRL_SEND)
		snprintf(text, size, "%s #%u of %ju %s (operation %u, root %u, wire %u)",
			name ? name : "?", s->number, (uintmax_t)s->count, dtype_name(s->dtype),
			s->op, s->root, s->wire);
	else if (with_numbers)
		snprintf(text, size,
			"send or receive #%u between the two of %ju %s (wire %s, before collective "
			"#%u)",
			s->root, (uintmax_t)s->count, dtype_name(s->dtype), wire_name(s->wire),
			s->number);
	else
		snprintf(text, size, "a send or receive of %ju %s", (uintmax_t)s->count,
			dtype_name(s->dtype));
}

/* Rank `left` leaves where `rank` starts the operation. */
static int fail_left_early(
	struct frl_comm *comm, int left, int rank, const struct signature *operation)
{
	char text[160];

	describe(text, sizeof(text), operation, false);
	return comm_fail(comm, -ECONNRESET,
		"rank %d is gone: it has left, and rank %d runs %s: all ranks must start the same "
		"operations before they leave",
		left, rank, text);
}

int comm_fail_mismatch(struct frl_comm *comm, int peer, const struct signature *theirs,
	const struct signature *mine)
{
	const char *a = frl_coll_name((enum frl_coll)theirs->coll);
	const char *b = frl_coll_name((enum frl_coll)mine->coll);
	char there[160], here[160];

	if (signature_leaves(theirs) && !signature_leaves(mine))
		return fail_left_early(comm, peer, comm->rank, mine);
	if (signature_leaves(mine) && !signature_leaves(theirs))
		return fail_left_early(comm, comm->rank, peer, theirs);
	describe(there, sizeof(there), theirs, false);
	describe(here, sizeof(here), mine, false);
	if (theirs->coll == mine->coll &&
		(theirs->number != mine->number || theirs->root != mine->root ||
			strcmp(there, here) == 0)) {
		describe(there, sizeof(there), theirs, true);
		describe(here, sizeof(here), mine, true);
	}
	return comm_fail(comm, -EPROTO,
		"rank %d runs %s where rank %d runs %s (there %s, here %s): all ranks must start "
		"the same operations in the same order",
		peer, a ? a : "?", comm->rank, b ? b : "?", there, here);
}

static void describe_length(char *text, size_t size, const struct transfer *t)
{
	if (t->count == TRANSFER_UNKNOWN)
		snprintf(text, size, "%ju bytes of %s", (uintmax_t)t->bytes, dtype_name(t->dtype));
	else
		snprintf(text, size, "%ju %s%s%s", (uintmax_t)t->count, dtype_name(t->dtype),
			t->wire ? " as " : "", t->wire ? wire_name(t->wire) : "");
}

int comm_fail_transfer(struct frl_comm *comm, int peer, enum transfer_way way,
	const struct transfer *theirs, const struct transfer *mine)
{
	bool sends = way == TRANSFER_SENT;
	struct transfer sent = sends ? *mine : *theirs, received = sends ? *theirs : *mine;
	char out[64], in[64], where[96];

	/* Compare in bytes if one end does not know the elements. */
	if (theirs->count == TRANSFER_UNKNOWN)
		sent.count = received.count = TRANSFER_UNKNOWN;
	describe_length(out, sizeof(out), &sent);
	describe_length(in, sizeof(in), &received);
	if (mine->coll != FRL_SEND)
		snprintf(where, sizeof(where), "%s #%" PRIu32,
			frl_coll_name((enum frl_coll)mine->coll), mine->number);
	else if (theirs->number == mine->number)
		snprintf(where, sizeof(where), "SEND and RECV #%" PRIu32 " that way", mine->index);
	else
		snprintf(where, sizeof(where),
			"SEND and RECV #%" PRIu32 " that way, before collective #%" PRIu32
			" there and #%" PRIu32 " here",
			mine->index, theirs->number, mine->number);
	return comm_fail(comm, -EPROTO,
		"rank %d sends a message of %s to rank %d, which waits for one of %s (%s): both "
		"ends need the same length, type, wire type and order",
		sends ? comm->rank : peer, out, sends ? peer : comm->rank, in, where);
}
