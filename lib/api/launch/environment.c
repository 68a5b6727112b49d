/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers' environment variables. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/api/launch/launch.h"
#include "lib/base/error.h"

const char launch_characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				 "0123456789._-";

static const char settings_whose[] = "FRL_RANK, FRL_RANKS and FRL_JOB belong together";
static const char torchrun_whose[] =
	"torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; for another launcher set "
	"FRL_LAUNCHER";
static const char pmix_whose[] =
	"launchers with PMIx set PMIX_NAMESPACE, PMIX_RANK and PMIX_SERVER_URI*; for another one "
	"set FRL_LAUNCHER";
static const char hydra_whose[] = "mpiexec of MPICH sets PMI_RANK and PMI_SIZE";
static const char slurm_whose[] = "srun sets SLURM_PROCID, SLURM_STEP_NUM_TASKS and the like";

/* Returns a variable's value, or NULL if it is not set or empty. */
static const char *variable(const struct launch_env *env, const char *name)
{
	const char *value = env->lookup(name);

	return value && *value ? value : NULL;
}

static bool parse_number(const char *text, int min, int max, int *ret_value)
{
	long value;
	char *end;

	if (!isdigit((unsigned char)*text)) /* strtol() would take blanks and signs */
		return false;
	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || *end || value < min || value > max)
		return false;
	*ret_value = (int)value;
	return true;
}

static int number_in(
	const char *name, const char *value, int min, int max, const char *whose, int *ret_value)
{
	if (!value || !*value)
		return frl_fail(-EINVAL, "%s is not set: %s", name, whose);
	if (!parse_number(value, min, max, ret_value))
		return frl_fail(-EINVAL, "%s is \"%.64s\"; it must be a number from %d to %d: %s",
			name, value, min, max, whose);
	return 0;
}

static int number(const struct launch_env *env, const char *name, int min, int max,
	const char *whose, int *ret_value)
{
	return number_in(name, env->lookup(name), min, max, whose, ret_value);
}

/* As number(), but the variable is optional. */
static int number_if_set(const struct launch_env *env, const char *name, int min, int max,
	const char *whose, int *ret_value)
{
	return variable(env, name) ? number(env, name, min, max, whose, ret_value) : 0;
}

/* Reads the number of ranks first, because it limits the rank. */
static int ranks_in(const struct launch_env *env, const char *rank, const char *ranks,
	const char *whose, struct frl_launch *launch)
{
	int err = number(env, ranks, 1, LAUNCH_RANKS_MAX, whose, &launch->ranks);

	return err ? err : number(env, rank, 0, launch->ranks - 1, whose, &launch->rank);
}

/* FNV-1a by Fowler, Noll and Vo: the same in each process. */
static uint64_t hash_of(const char *text)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
	return hash;
}

void launch_name_job(const char *text, char job[FRL_SERVICE_MAX + 1])
{
	enum { HASH = 17 }; /* "-0123456789abcdef" */
	size_t length = 0;
	bool is_same = strlen(text) <= LAUNCH_JOB_MAX;

	for (; text[length] && length < LAUNCH_JOB_MAX; length++) {
		bool is_good = strchr(launch_characters, text[length]) != NULL;

		job[length] = is_good ? text[length] : '_';
		is_same = is_same && is_good;
	}
	job[length] = '\0';
	if (is_same)
		return;
	if (length > LAUNCH_JOB_MAX - HASH)
		length = LAUNCH_JOB_MAX - HASH;
	snprintf(job + length, HASH + 1, "-%016" PRIx64, hash_of(text));
}

static int host_of(
	const char *name, const char *value, const char *whose, struct frl_launch *launch)
{
	if (!value || !*value)
		return frl_fail(-EINVAL, "%s is not set: %s", name, whose);
	if (strlen(value) > FRL_HOST_MAX)
		return frl_fail(-EINVAL, "%s is \"%.64s...\"; a host has at most %d characters: %s",
			name, value, FRL_HOST_MAX, whose);
	snprintf(launch->host, sizeof(launch->host), "%s", value);
	return 0;
}

/* ---- FRL_RANK, FRL_RANKS */

int launch_settings(const struct launch_env *env, struct frl_launch *launch)
{
	const struct settings *settings = env->settings;
	int err;

	if (!*settings->rank && !*settings->ranks)
		return -ENOENT;
	if (!*settings->job)
		return frl_fail(-EINVAL, "FRL_JOB is not set: %s", settings_whose);
	err = number_in(
		"FRL_RANKS", settings->ranks, 1, LAUNCH_RANKS_MAX, settings_whose, &launch->ranks);
	return err ? err
		   : number_in("FRL_RANK", settings->rank, 0, launch->ranks - 1, settings_whose,
			     &launch->rank);
}

/* ---- torchrun */

int launch_torchrun_by_hand(const struct launch_env *env, struct frl_launch *launch)
{
	const char *run = variable(env, "TORCHELASTIC_RUN_ID");
	int port = 0, restarts = 0, err;
	char *text;

	if (!variable(env, "RANK") && !variable(env, "WORLD_SIZE"))
		return -ENOENT;
	err = ranks_in(env, "RANK", "WORLD_SIZE", torchrun_whose, launch);
	if (!err)
		err = host_of("MASTER_ADDR", env->lookup("MASTER_ADDR"), torchrun_whose, launch);
	if (!err)
		err = number(env, "MASTER_PORT", 1, 65535, torchrun_whose, &port);
	if (!err)
		err = number_if_set(
			env, "TORCHELASTIC_RESTART_COUNT", 0, INT32_MAX, torchrun_whose, &restarts);
	if (!err)
		err = number_if_set(env, "LOCAL_WORLD_SIZE", 1, launch->ranks, torchrun_whose,
			&launch->local_ranks);
	if (!err)
		err = number_if_set(env, "LOCAL_RANK", 0,
			launch->local_ranks > 0 ? launch->local_ranks - 1 : launch->ranks - 1,
			torchrun_whose, &launch->local_rank);
	if (err)
		return err;
	/*
	 * Two jobs of one host never have the same port at a time. A job that torchrun restarts may
	 * have the same port while old ranks still run, so the name includes the restart count.
	 */
	if (asprintf(&text, "torchrun-%d-%d-%s", port, restarts, run ? run : "") < 0)
		return frl_fail(-ENOMEM, "no memory for the name of the job");
	launch_name_job(text, launch->job);
	free(text);
	return 0;
}

int launch_torchrun(const struct launch_env *env, struct frl_launch *launch)
{
	return variable(env, "TORCHELASTIC_RUN_ID") ? launch_torchrun_by_hand(env, launch)
						    : -ENOENT;
}

/* ---- PMIx */

int launch_pmix(const struct launch_env *env, struct frl_launch *launch)
{
	int rank, err;

	if (!env->lookup("PMIX_NAMESPACE") && !env->lookup("PMIX_RANK"))
		return -ENOENT;
	/* PMIx reads its variables by getenv(), also those that name modules to load. */
	if (env->is_guarded)
		return frl_fail(-EPERM,
			"PMIx may load code that PMIX_* names, and this program has more rights "
			"than its user: set FRL_RANK, FRL_RANKS and FRL_JOB, or another "
			"FRL_LAUNCHER");
	if (!variable(env, "PMIX_NAMESPACE"))
		return frl_fail(-EINVAL, "PMIX_NAMESPACE is not set: %s", pmix_whose);
	err = number(env, "PMIX_RANK", 0, LAUNCH_RANKS_MAX - 1, pmix_whose, &rank);
	if (err)
		return err;
	if (!env->has_prefix("PMIX_SERVER_URI"))
		return frl_fail(-EINVAL, "PMIX_SERVER_URI* is not set: %s", pmix_whose);
	return pmix_open(launch);
}

/* ---- Hydra, mpiexec of MPICH */

/* Returns when a process was started, in ticks since boot, or 0 if unknown. */
static uint64_t started_at(pid_t pid)
{
	char path[40], line[1024];
	uint64_t started = 0;
	char *at;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	at = fgets(line, sizeof(line), file);
	fclose(file);
	/*
	 * The name may contain blanks and parentheses: search for the last one. Field 3 follows,
	 * and field 22 is the start time.
	 */
	at = at ? strrchr(line, ')') : NULL;
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (at)
		started = strtoull(at, NULL, 10);
	return started;
}

/*
 * Hydra's proxy starts the ranks of a host and keeps a socket to each, PMI_FD. The creator of that
 * socket is the proxy, even with a shell in between. If all ranks are of one proxy, the proxy's
 * process gives the job a unique name.
 */
static int name_after_proxy(const struct launch_env *env, struct frl_launch *launch)
{
	struct ucred proxy = { 0 };
	socklen_t size = sizeof(proxy);
	uint64_t started;
	int fd, err = number(env, "PMI_FD", 0, INT32_MAX, hydra_whose, &fd);

	if (err)
		return err;
	if (launch->local_ranks != launch->ranks)
		return frl_fail(-EINVAL,
			"mpiexec of MPICH started rank %d of %d on several hosts, without a common "
			"name of the job: run mpiexec -genv FRL_JOB NAME -genv FRL_JOB_HOST HOST",
			launch->rank, launch->ranks);
	started = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &proxy, &size) == 0 && proxy.pid > 0
		? started_at(proxy.pid)
		: 0;
	if (!started)
		return frl_fail(-EINVAL,
			"mpiexec of MPICH started this rank, but its proxy cannot be found by "
			"PMI_FD (%d): run mpiexec -genv FRL_JOB NAME",
			fd);
	snprintf(launch->job, sizeof(launch->job), "hydra-%d-%" PRIu64, (int)proxy.pid, started);
	return 0;
}

int launch_hydra(const struct launch_env *env, struct frl_launch *launch)
{
	int err;

	if (!variable(env, "PMI_RANK") || !variable(env, "HYDI_CONTROL_FD"))
		return -ENOENT;
	err = ranks_in(env, "PMI_RANK", "PMI_SIZE", hydra_whose, launch);
	if (!err)
		err = number_if_set(env, "MPI_LOCALNRANKS", 1, launch->ranks, hydra_whose,
			&launch->local_ranks);
	if (!err)
		err = number_if_set(env, "MPI_LOCALRANKID", 0, launch->ranks - 1, hydra_whose,
			&launch->local_rank);
	if (err || *env->settings->job)
		return err;
	return name_after_proxy(env, launch);
}

/* ---- Slurm */

/* Copies the first host of a list: "node07" of "node[07-12,20],login". */
static bool first_host(const char *list, char *host, size_t size)
{
	size_t length = 0;
	bool in_list = false, skips = false;

	for (; *list && (in_list || *list != ','); list++) {
		if (*list == '[' || *list == ']') {
			in_list = *list == '[';
			skips = false;
			continue;
		}
		skips = skips || (in_list && (*list == '-' || *list == ','));
		if (skips)
			continue;
		if (length + 1 >= size)
			return false;
		host[length++] = *list;
	}
	host[length] = '\0';
	return length > 0 && !in_list;
}

/* Counts the numbers in "0,4,8". */
static int count_tasks(const char *ids)
{
	int n = 0;

	for (; ids && *ids; ids = strchr(ids, ',') ? strchr(ids, ',') + 1 : NULL)
		n++;
	return n > 0 ? n : -1;
}

/*
 * Finds the first host of the step. It is "" if this process runs there, or if it is the only host.
 */
static int slurm_host(const struct launch_env *env, struct frl_launch *launch)
{
	const char *list = variable(env, "SLURM_STEP_NODELIST");
	const char *mine = variable(env, "SLURMD_NODENAME");
	int nodes = 1,
	    err = number_if_set(env, "SLURM_STEP_NUM_NODES", 1, INT32_MAX, slurm_whose, &nodes);

	if (err || nodes == 1 || *env->settings->job_host)
		return err;
	if (!list || !first_host(list, launch->host, sizeof(launch->host)))
		return frl_fail(-EINVAL,
			"SLURM_STEP_NODELIST is \"%.64s\", which has no first host: set "
			"FRL_JOB_HOST to a host of the job",
			list ? list : "");
	if (mine && strcmp(mine, launch->host) == 0)
		launch->host[0] = '\0';
	return 0;
}

int launch_slurm(const struct launch_env *env, struct frl_launch *launch)
{
	const char *job = variable(env, "SLURM_JOB_ID"), *step = variable(env, "SLURM_STEP_ID");
	const char *restarts = variable(env, "SLURM_RESTART_COUNT");
	char *text;
	int err;

	/* A batch script has a rank too, but no step. */
	if (!variable(env, "SLURM_PROCID") || !step)
		return -ENOENT;
	if (!job)
		return frl_fail(-EINVAL, "SLURM_JOB_ID is not set: %s", slurm_whose);
	err = ranks_in(env, "SLURM_PROCID",
		variable(env, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
		slurm_whose, launch);
	if (!err)
		err = number_if_set(env, "SLURM_LOCALID", 0, launch->ranks - 1, slurm_whose,
			&launch->local_rank);
	if (!err)
		err = slurm_host(env, launch);
	if (err)
		return err;
	launch->local_ranks = count_tasks(variable(env, "SLURM_GTIDS"));
	if (asprintf(&text, "slurm-%s-%s-%s", job, step, restarts ? restarts : "0") < 0)
		return frl_fail(-ENOMEM, "no memory for the name of the job");
	launch_name_job(text, launch->job);
	free(text);
	return 0;
}
