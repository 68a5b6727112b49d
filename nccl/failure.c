/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection also fails when the peer closes it in the normal way, but this does not matter if no
 * request was pending. So the error text is generated only when NCCL asks for something that has
 * become impossible. By then the control daemon usually knows what happened to the peer.
 */
#include "nccl/failure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/net/ip.h"
#include "nccl/log.h"
#include "nccl/connect/setup.h"

enum {
	TEXT = 400,
	/* How long to wait for the control daemon's information about a peer. */
	REASON_WAIT_NS = 500 * 1000 * 1000,
};

static void close_paths(struct comm *comm)
{
	for (int i = 0; i < comm->n_paths; i++) {
		frl_conn_close(comm->paths[i].conn);
		comm->paths[i].conn = NULL;
	}
}

int net_comm_fail(struct comm *comm, int err, const char *format, ...)
{
	va_list args;

	if (comm->err)
		return comm->err;
	comm->err = err;
	va_start(args, format);
	vsnprintf(comm->why, sizeof(comm->why), format, args);
	va_end(args);
	/* Close the paths: the peer has not noticed the failure, and would wait. */
	if (*comm->why)
		close_paths(comm);
	return err;
}

int net_comm_protocol_error(struct comm *comm)
{
	return net_comm_fail(comm, -EPROTO,
		"the peer violates the plugin's protocol: do both ends have the same release of "
		"the plugin?");
}

static int error_of(enum frl_wc_status status)
{
	switch (status) {
	case FRL_WC_WR_FLUSH_ERR:
	case FRL_WC_RETRY_EXC_ERR:
	case FRL_WC_RNR_RETRY_EXC_ERR:
	case FRL_WC_REM_ABORT_ERR: return -ECONNRESET;
	default: return -EIO;
	}
}

int net_comm_fail_status(struct comm *comm, const struct path *path, enum frl_wc_status status)
{
	/* Record the first failed work request. Requests that were flushed after it give no
	 * reason. */
	if (!comm->err || comm->status == FRL_WC_WR_FLUSH_ERR) {
		comm->failed_path = (int)(path - comm->paths);
		comm->status = status;
	}
	if (!comm->err)
		comm->failed_ns = net_now_ns();
	return net_comm_fail(comm, error_of(status), "%s", "");
}

void net_comm_check_qps(struct comm *comm)
{
	char text[TEXT];

	for (int i = 0; i < comm->n_paths; i++) {
		struct path *path = &comm->paths[i];

		if (!path->qp || !*frl_qp_error(path->qp, text, sizeof(text)))
			continue;
		if (comm->has_unflushed_qp)
			net_comm_fail_status(comm, path, FRL_WC_WR_FLUSH_ERR);
		comm->has_unflushed_qp = true;
		return;
	}
}

/* Returns whether the peer's response may cause this status. This includes a peer that is exiting:
 * its memory may be freed before its queue pairs. */
static bool is_remote_error(enum frl_wc_status status)
{
	return status == FRL_WC_REM_ACCESS_ERR || status == FRL_WC_REM_OP_ERR ||
		status == FRL_WC_REM_INV_REQ_ERR;
}

/* Returns whether the control daemon may soon know more about the failure. */
static bool may_learn_reason(const struct comm *comm)
{
	const struct path *path = &comm->paths[comm->failed_path];
	int err;

	if (*comm->why || !is_remote_error(comm->status) || !path->conn)
		return false;
	err = frl_conn_test(path->conn);
	return (!err || err == -EAGAIN) && net_now_ns() < comm->failed_ns + REASON_WAIT_NS;
}

static void explain(struct comm *comm, struct path *path, char *text, size_t size)
{
	int err;

	if (atomic_load(&comm->is_stopped)) {
		snprintf(text, size, "memory of a pending request was deregistered");
		return;
	}
	err = path->conn ? frl_conn_test(path->conn) : 0;
	if (err && err != -EAGAIN && is_remote_error(comm->status))
		snprintf(text, size, "%s; %s", frl_wc_status_str(comm->status), frl_last_error());
	else if (err && err != -EAGAIN)
		snprintf(text, size, "%s", frl_last_error());
	else if (!path->qp || !*frl_qp_error(path->qp, text, size))
		snprintf(text, size, "%s", frl_wc_status_str(comm->status));
}

/* Returns the meaning of the queue pair's PSN. Hardware does not report which PSN is
 * acknowledged. */
static const char *psn_meaning(const struct comm *comm, const struct path *path)
{
	if (!comm->is_sender)
		return "expecting";
	return net_port_at(comm->device, path->rail)->info.is_hardware ? "sent up to"
								       : "unacknowledged from";
}

static void describe(struct comm *comm, struct path *path)
{
	const struct frl_conn_peer *peer = &comm->peer;
	/* If this path has no peer data, use those of the first path. */
	struct frl_qp_attr attr = { .dest_qpn = peer->qpn, .ah.dgid = peer->ip };
	char why[TEXT];

	if (path->qp)
		frl_qp_query(path->qp, &attr);
	if (*comm->why)
		snprintf(why, sizeof(why), "%s", comm->why);
	else
		explain(comm, path, why, sizeof(why));
	net_log_warning("%s %s (process %u on %s, %s) over %s, QP 0x%x to QP 0x%x, %s PSN %u: %s",
		comm->is_sender ? "sending to" : "receiving from",
		*peer->program ? peer->program : "a peer", peer->pid,
		*peer->host ? peer->host : "an unknown host", format_ip(&attr.ah.dgid),
		comm->device->name, path->qp ? frl_qp_num(path->qp) : 0, attr.dest_qpn,
		psn_meaning(comm, path), comm->is_sender ? attr.sq_psn : attr.rq_psn, why);
}

int net_comm_report(struct comm *comm)
{
	return !comm->is_reported && may_learn_reason(comm) ? NCCL_SUCCESS
							    : net_comm_report_now(comm);
}

int net_comm_report_now(struct comm *comm)
{
	if (!comm->is_reported) {
		describe(comm, &comm->paths[comm->failed_path]);
		/* The peer may not have noticed the failure, and NCCL may close this end much
		 * later. */
		close_paths(comm);
	}
	comm->is_reported = true;
	return net_result_of(comm->err);
}
