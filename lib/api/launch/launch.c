/* SPDX-License-Identifier: BSD-3-Clause */
/* Detecting the launcher, and joining its job. */
#include "lib/api/launch/launch.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/api/bootstrap/bootstrap.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

static const struct source {
	const char *name;
	launch_source_fn detect;
} sources[] = {
	/* In the order of search; launch.h has the reasons. */
	{ "settings", launch_settings },
	{ "torchrun", launch_torchrun },
	{ "pmix", launch_pmix },
	{ "torchrun", launch_torchrun_by_hand },
	{ "hydra", launch_hydra },
	{ "slurm", launch_slurm },
};

enum { N_SOURCES = sizeof(sources) / sizeof(sources[0]) };

static bool is_pmix(const struct frl_launch *launch)
{
	return strcmp(launch->launcher, "pmix") == 0;
}

/*
 * The jobs of this process's bootstraps, by launch. Only successful bootstraps count, because a
 * rank repeats a failed one for the same job. Entries stay until the process exits.
 */
static struct count {
	struct count *next;
	unsigned made;
	char job[FRL_SERVICE_MAX + 1]; /* "" only with PMIx */
	char host[FRL_HOST_MAX + 1];
} * counts;
static pthread_mutex_t counts_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Settings of the user override the launcher. */
static int override(const struct settings *settings, struct frl_launch *launch)
{
	if (strlen(settings->job) > FRL_SERVICE_MAX)
		return frl_fail(-EINVAL, "FRL_JOB is \"%.64s...\"; a job has at most %d characters",
			settings->job, FRL_SERVICE_MAX);
	if (settings->job[strspn(settings->job, launch_characters)])
		return frl_fail(-EINVAL,
			"FRL_JOB is \"%s\"; a job consists of letters, digits, '.', '_' and '-' "
			"(its "
			"host is FRL_JOB_HOST)",
			settings->job);
	if (strlen(settings->job_host) > FRL_HOST_MAX)
		return frl_fail(-EINVAL,
			"FRL_JOB_HOST is \"%.64s...\"; a host has at most %d characters",
			settings->job_host, FRL_HOST_MAX);
	if (*settings->job)
		snprintf(launch->job, sizeof(launch->job), "%s", settings->job);
	if (*settings->job_host)
		snprintf(launch->host, sizeof(launch->host), "%s", settings->job_host);
	return 0;
}

static int detect_with(
	const struct source *source, const struct launch_env *env, struct frl_launch *ret_launch)
{
	struct frl_launch launch = { .local_rank = -1, .local_ranks = -1 };
	int err = source->detect(env, &launch);

	if (!err)
		err = override(env->settings, &launch);
	if (err) {
		frl_launch_close(&launch);
		return err;
	}
	snprintf(launch.launcher, sizeof(launch.launcher), "%s", source->name);
	*ret_launch = launch;
	return 0;
}

int launch_detect(const struct launch_env *env, struct frl_launch *ret_launch)
{
	const char *only = env->settings->launcher;
	bool any = strcmp(only, "auto") == 0;

	for (int i = 0; i < N_SOURCES; i++) {
		int err = -ENOENT;

		if (any || strcmp(only, sources[i].name) == 0)
			err = detect_with(&sources[i], env, ret_launch);
		if (err != -ENOENT)
			return err;
	}
	return frl_fail(-ENOENT,
		"nothing says which rank this process is. Looked for %s: RANK (torchrun), "
		"PMIX_RANK (mpirun, srun --mpi=pmix), PMI_RANK (MPICH), SLURM_STEP_ID (srun), "
		"FRL_RANK. By hand, set FRL_RANK, FRL_RANKS and FRL_JOB",
		any ? "all of these" : "one of these, which FRL_LAUNCHER names");
}

int frl_launch_detect(struct frl_launch *ret_launch)
{
	const struct launch_env env = {
		.settings = settings_get(),
		.lookup = settings_foreign,
		.has_prefix = settings_has_foreign,
		.is_guarded = settings_are_guarded(),
	};
	char why[ERROR_TEXT_MAX];
	int err;

	if (!ret_launch)
		return frl_fail(-EINVAL, "ret_launch is NULL");
	if (settings_error())
		return frl_fail(-EINVAL, "%s", settings_error());
	err = launch_detect(&env, ret_launch);
	if (err == -ENOENT && settings_misspelling()) {
		error_save(why);
		frl_fail(err, "%s. %s", settings_misspelling(), why);
	}
	return err;
}

void frl_launch_close(struct frl_launch *launch)
{
	if (!launch || !launch->ctx)
		return;
	launch->ctx = NULL;
	pmix_put();
}

/* ---- joining */

/* Without a name of the job: joins by a unique id, which rank 0 creates. */
static int join_by_pmix(const struct frl_launch *launch, unsigned number, int timeout_ms,
	struct frl_bootstrap *ret_bootstrap)
{
	uint64_t until_ns = clock_now_ns() + (uint64_t)timeout_ms * 1000000;
	struct frl_unique_id id = { "" };
	uint64_t now_ns;
	char key[40];
	int err;

	snprintf(key, sizeof(key), "ferrule.job.%u", number);
	if (launch->rank == 0) {
		err = unique_id_create(until_ns, &id);
		if (!err)
			err = pmix_publish(key, id.text);
	} else {
		err = pmix_fetch(key, timeout_ms, id.text, sizeof(id.text));
	}
	if (err)
		return err;
	now_ns = clock_now_ns();
	timeout_ms = now_ns < until_ns ? (int)((until_ns - now_ns) / 1000000) : 0;
	return frl_bootstrap_from_unique_id(
		&id, launch->rank, launch->ranks, timeout_ms, ret_bootstrap);
}

/* Appends a number; shortens a name without room for it. */
static void number_job(const char *job, unsigned number, char name[FRL_SERVICE_MAX + 1])
{
	char digits[12];

	snprintf(name, FRL_SERVICE_MAX + 1, "%s", job);
	if (number == 0)
		return;
	if (strlen(job) > LAUNCH_JOB_MAX)
		launch_name_job(job, name);
	snprintf(digits, sizeof(digits), ".%u", number);
	strncat(name, digits, FRL_SERVICE_MAX - strlen(name));
}

/* Joins the n-th bootstrap of the job, from 0. */
static int join_numbered(const struct frl_launch *launch, unsigned number, int timeout_ms,
	struct frl_bootstrap *ret_bootstrap)
{
	char job[FRL_SERVICE_MAX + FRL_HOST_MAX + 2], name[FRL_SERVICE_MAX + 1];
	const char *host = launch->host;

	if (!launch->job[0] && is_pmix(launch) && launch->ctx)
		return join_by_pmix(launch, number, timeout_ms, ret_bootstrap);
	if (host[0] && launch_is_this_host(host))
		host = "";
	number_job(launch->job, number, name);
	snprintf(job, sizeof(job), "%s%s%s", name, host[0] ? "@" : "", host);
	return frl_bootstrap_join(job, launch->rank, launch->ranks, timeout_ms, ret_bootstrap);
}

static void close_with_pmix(void *ctx)
{
	bootstrap_close(ctx);
	pmix_put();
}

static struct count *find_count(const struct frl_launch *launch)
{
	struct count *count = counts;

	while (count && (strcmp(count->job, launch->job) || strcmp(count->host, launch->host)))
		count = count->next;
	return count;
}

/* Returns NULL without memory. */
static struct count *count_of(const struct frl_launch *launch)
{
	struct count *count;

	pthread_mutex_lock(&counts_mutex);
	count = find_count(launch);
	if (!count && (count = calloc(1, sizeof(*count)))) {
		memcpy(count->job, launch->job, sizeof(count->job));
		memcpy(count->host, launch->host, sizeof(count->host));
		count->next = counts;
		counts = count;
	}
	pthread_mutex_unlock(&counts_mutex);
	return count;
}

/* The bootstrap keeps the launcher connection, which is finalized after the bootstrap. */
static int bootstrap_of(
	const struct frl_launch *launch, int timeout_ms, struct frl_bootstrap *ret_bootstrap)
{
	struct count *count;
	int err;

	if (!memchr(launch->job, '\0', sizeof(launch->job)) ||
		!memchr(launch->host, '\0', sizeof(launch->host)) ||
		!memchr(launch->launcher, '\0', sizeof(launch->launcher)))
		return frl_fail(-EINVAL, "launcher, job or host of the launch is not terminated");
	if (timeout_ms < 0)
		return frl_fail(-EINVAL, "%d ms: out of range", timeout_ms);
	count = count_of(launch);
	if (!count)
		return frl_fail(-ENOMEM, "no memory for the name of the job");
	err = join_numbered(launch, count->made, timeout_ms, ret_bootstrap);
	if (err)
		return err;
	count->made++;
	if (launch->ctx) {
		pmix_get();
		ret_bootstrap->close = close_with_pmix;
	}
	return 0;
}

int frl_bootstrap_from_launch(
	const struct frl_launch *launch, int timeout_ms, struct frl_bootstrap *ret_bootstrap)
{
	if (!launch || !ret_bootstrap)
		return frl_fail(-EINVAL, "the launch or ret_bootstrap is NULL");
	return bootstrap_of(launch, timeout_ms, ret_bootstrap);
}

int frl_bootstrap_from_environment(int timeout_ms, struct frl_bootstrap *ret_bootstrap)
{
	struct frl_launch launch;
	int err;

	if (!ret_bootstrap)
		return frl_fail(-EINVAL, "ret_bootstrap is NULL");
	err = frl_launch_detect(&launch);
	if (err)
		return err;
	err = bootstrap_of(&launch, timeout_ms, ret_bootstrap);
	frl_launch_close(&launch);
	return err;
}
