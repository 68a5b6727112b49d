/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/common/session.h"

#include <string.h>

enum { JOIN_TIMEOUT_MS = 30000 };

int session_join(struct session *session, const char *job)
{
	const struct job_options *options = session->options;
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
	/*
	 * Open devices before waiting for other ranks, so that a port that cannot be opened is
	 * reported at once.
	 */
	for (int i = 0; i < device_count(&options->device) && !rc; i++) {
		rc = device_options_open(
			&options->device, i, session->rank, &session->devices[session->n_devices]);
		session->n_devices += rc == 0;
	}
	if (!rc)
		frl_device_query(session->devices[0], &session->attr);
	return rc;
}

int session_connect_with(struct session *session, const char *algos)
{
	struct frl_comm_config config;
	int rc;

	frl_comm_config_init(&config);
	config.devices = session->devices;
	config.n_devices = session->n_devices;
	if (algos)
		config.algos = algos;
	rc = frl_comm_create_with(&session->bootstrap, &config, &session->comm);
	if (rc)
		say_failure(rc, "cannot connect to the other ranks");
	return rc;
}

int session_connect(struct session *session)
{
	return session_connect_with(session, NULL);
}

void session_disconnect(struct session *session)
{
	frl_comm_destroy(session->comm);
	session->comm = NULL;
	for (int i = 0; i < session->n_devices; i++)
		frl_device_close(session->devices[i]);
	session->n_devices = 0;
}

void session_stats(const struct session *session, struct frl_stats *ret_stats)
{
	uint64_t *sums = (uint64_t *)ret_stats;

	/* All fields are counters of one type. */
	memset(ret_stats, 0, sizeof(*ret_stats));
	for (int i = 0; i < session->n_devices; i++) {
		struct frl_stats one;

		frl_device_stats(session->devices[i], &one);
		for (size_t k = 0; k < sizeof(one) / sizeof(*sums); k++)
			sums[k] += ((const uint64_t *)&one)[k];
	}
}

/* Prints why the ranks cannot reach each other, if the service that connects them has failed. */
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
