/* SPDX-License-Identifier: BSD-3-Clause */
/* How a communicator fails: once, with one text, naming the rank that is the cause. */
#include "collectives/communicator.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "lib/base/error.h"

enum {
	CULPRIT_WAIT_MS = 50,
	NS_PER_MS = 1000000,
};

int comm_error(const struct frl_comm *comm)
{
	return frl_fail(comm->error, "%s", comm->error_text);
}

int comm_fail(struct frl_comm *comm, int err, const char *format, ...)
{
	va_list args;

	if (comm->error)
		return comm_error(comm);
	va_start(args, format);
	vsnprintf(comm->error_text, sizeof(comm->error_text), format, args);
	va_end(args);
	comm->error = err < 0 ? err : -err;
	if (!comm->draining) {
		frl_log(FRL_LOG_ERROR, "communicator, rank %d: %s", comm->rank, comm->error_text);
		comm->bootstrap->abort(comm->bootstrap->ctx);
	}
	/* The buffers go back to the caller with the error: nothing may touch them from here on. */
	comm_destroy_queue_pairs(comm);
	return comm_error(comm);
}

/* The rank that the bootstrap holds to be gone, -1 for what connects the ranks; false: nobody. */
static bool find_gone(struct frl_comm *comm, int *ret_rank)
{
	struct frl_bootstrap *bootstrap = comm->bootstrap;
	int rank = -1;

	if (bootstrap->check(bootstrap->ctx, &rank) == 0)
		return false;
	*ret_rank = rank;
	return true;
}

/* A rank that sends on this lane and has left: what is still to come from it never will. */
static bool waits_in_vain(struct frl_comm *comm, const struct lane *lane)
{
	struct frl_bootstrap *bootstrap = comm->bootstrap;
	bool waits = false;

	for (struct frl_request *request = comm->active.first; request && !waits;
		request = request->next) {
		const struct lane_work *work = &request->work[lane->number];

		waits = work->receives_done != work->plan.receives;
	}
	return waits && bootstrap->has_left(bootstrap->ctx, lane->previous);
}

/*
 * Ranks may leave at different times, so one that has left is no failure to those who have all that
 * it sends; whoever waits for more of it fails and thereby tells the others.
 */
static int check_who_left(struct frl_comm *comm)
{
	if (comm->draining || !comm->bootstrap->has_left)
		return 0;
	for (unsigned i = 0; i < comm->lanes; i++) {
		if (waits_in_vain(comm, &comm->lane[i]))
			return comm_fail(comm, -ECONNRESET,
				"rank %d is gone: it has left, and this rank waits for it",
				comm->lane[i].previous);
	}
	return 0;
}

int comm_check_ranks(struct frl_comm *comm)
{
	int gone;

	if (!find_gone(comm, &gone))
		return check_who_left(comm);
	if (gone < 0)
		return comm_fail(comm, -ECONNRESET,
			"%s: no way to tell whether the ranks still live", frl_last_error());
	return comm_fail(comm, -ECONNRESET, "rank %d is gone: it ended or gave up", gone);
}

/*
 * Returns the culprit, or -1 when the bootstrap is gone as well and nobody can know.
 *
 * A link that breaks need not be the fault of the rank at its other end: that one may have given up
 * because of a third. The bootstrap knows who died, if only a moment later: a process that dies
 * closes its sockets one after the other.
 */
static int wait_for_culprit(struct frl_comm *comm, int peer)
{
	struct timespec ms = { .tv_nsec = NS_PER_MS };
	int gone;

	for (int i = 0; i < CULPRIT_WAIT_MS; i++) {
		if (find_gone(comm, &gone))
			return gone;
		nanosleep(&ms, NULL);
	}
	return peer;
}

int comm_fail_completion(struct frl_comm *comm, int peer, enum frl_wc_status status)
{
	int gone;

	switch (status) {
	case FRL_WC_SUCCESS: return 0;
	case FRL_WC_WR_FLUSH_ERR:
	case FRL_WC_RETRY_EXC_ERR:
	case FRL_WC_RNR_RETRY_EXC_ERR:
	case FRL_WC_REM_ABORT_ERR:
		gone = comm->draining ? peer : wait_for_culprit(comm, peer);
		if (gone < 0)
			return comm_fail(comm, -ECONNRESET,
				"the connection to rank %d broke (%s) and the bootstrap is gone: "
				"no way to tell which rank is the cause",
				peer, frl_wc_status_str(status));
		if (gone != peer)
			return comm_fail(comm, -ECONNRESET,
				"rank %d is gone: noticed on the connection to rank %d (%s)", gone,
				peer, frl_wc_status_str(status));
		return comm_fail(
			comm, -ECONNRESET, "rank %d is gone: %s", peer, frl_wc_status_str(status));
	case FRL_WC_LOC_LEN_ERR:
		return comm_fail(comm, -EPROTO,
			"rank %d sent more than was expected: do all ranks call the same "
			"operations "
			"with the same count?",
			peer);
	case FRL_WC_LOC_QP_OP_ERR:
	case FRL_WC_LOC_PROT_ERR:
	case FRL_WC_MW_BIND_ERR:
	case FRL_WC_BAD_RESP_ERR:
	case FRL_WC_LOC_ACCESS_ERR:
	case FRL_WC_REM_INV_REQ_ERR:
	case FRL_WC_REM_ACCESS_ERR:
	case FRL_WC_REM_OP_ERR:
	case FRL_WC_REM_INV_RD_REQ_ERR:
	case FRL_WC_FATAL_ERR:
	case FRL_WC_RESP_TIMEOUT_ERR:
	case FRL_WC_GENERAL_ERR: break;
	}
	return comm_fail(comm, -EIO, "the connection to rank %d failed: %s", peer,
		frl_wc_status_str(status));
}
