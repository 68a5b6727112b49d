/* SPDX-License-Identifier: BSD-3-Clause */
#include "examples/allreduce.h"

enum { JOIN_TIMEOUT_MS = 30000 };

int session_join(struct session *session, const char *job)
{
	const struct options *options = session->options;
	const char *name = job ? job : options->launch.job; /* "": not known yet */
	int rc;

	if (job)
		rc = frl_bootstrap_join(
			job, session->rank, options->ranks, JOIN_TIMEOUT_MS, &session->bootstrap);
	else
		rc = frl_bootstrap_from_launch(
			&options->launch, JOIN_TIMEOUT_MS, &session->bootstrap);
	if (rc) {
		say_failure(rc, "cannot join the job%s%s", *name ? " " : "", name);
		return rc;
	}
	session->joined = true;
	/* Before anything that waits for others: a port that cannot be opened is said at once. */
	rc = device_options_open(&session->options->device, &session->device);
	if (!rc)
		frl_device_query(session->device, &session->attr);
	return rc;
}

int session_connect(struct session *session)
{
	int rc = frl_comm_create(session->device, &session->bootstrap, &session->comm);

	if (rc)
		say_failure(rc, "cannot connect to the other ranks");
	return rc;
}

void session_disconnect(struct session *session)
{
	frl_comm_destroy(session->comm);
	session->comm = NULL;
	if (session->device)
		frl_device_close(session->device);
	session->device = NULL;
}

/* Who fails because it hears nothing of the others any more is told why that is. */
static void explain_loss(const struct session *session)
{
	int gone = 0;

	if (session->bootstrap.check(session->bootstrap.ctx, &gone) && gone < 0)
		say("%s", frl_last_error());
}

void session_give_up(struct session *session)
{
	if (session->joined && !session->gave_up) {
		explain_loss(session);
		session->bootstrap.abort(session->bootstrap.ctx, NULL);
	}
	session->gave_up = true;
}

void session_close(struct session *session, int rc)
{
	if (rc)
		session_give_up(session);
	session_disconnect(session);
	if (!session->joined)
		return;
	session->bootstrap.close(session->bootstrap.ctx);
	session->joined = false;
}
