/* SPDX-License-Identifier: BSD-3-Clause */
/* Detection of a launcher in an environment, and the errors for a bad one. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/api/launch/launch.h"

#include "tests/fixtures/program.h"

enum { VARIABLES = 16, TEXT = 600 };

/* "NAME=value", the end is NULL. */
static const char *const *environment;

static const char *lookup(const char *name)
{
	size_t length = strlen(name);

	for (const char *const *at = environment; *at; at++)
		if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
			return *at + length + 1;
	return NULL;
}

static bool has_prefix(const char *prefix)
{
	for (const char *const *at = environment; *at; at++)
		if (strncmp(*at, prefix, strlen(prefix)) == 0)
			return true;
	return false;
}

static bool is_guarded; /* the program has more rights than its user */

static int detect(const char *const *variables, struct frl_launch *ret_launch)
{
	struct settings settings;
	struct launch_env env = { &settings, lookup, has_prefix, is_guarded };
	char error[200];
	int err;

	environment = variables;
	ck_assert_int_eq(settings_read(&settings, lookup, error, sizeof(error)), 0);
	err = launch_detect(&env, ret_launch);
	settings_free(&settings);
	return err;
}

/* All variables of torchrun, except those that follow in a row. */
#define TORCHRUN "WORLD_SIZE=4", "RANK=2", "MASTER_ADDR=node-1", "MASTER_PORT=29500"
#define SLURM                                                                             \
	"SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=8", "SLURM_JOB_ID=77", "SLURM_STEP_ID=3", \
		"SLURM_LOCALID=1"

static const struct {
	const char *variables[VARIABLES];
	const char *launcher, *job, *host;
	int rank, ranks, local_rank, local_ranks;
} good[] = {
	{ { "FRL_JOB=a.b-c_1", "FRL_RANK=0", "FRL_RANKS=1" }, "settings", "a.b-c_1", "", 0, 1, -1,
		-1 },
	{ { "FRL_JOB=train", "FRL_RANK=3", "FRL_RANKS=4", "FRL_JOB_HOST=node-9:7000" }, "settings",
		"train", "node-9:7000", 3, 4, -1, -1 },
	/* The user's settings have precedence. */
	{ { TORCHRUN, "FRL_JOB=train", "FRL_RANK=0", "FRL_RANKS=2" }, "settings", "train", "", 0, 2,
		-1, -1 },
	{ { TORCHRUN, "FRL_JOB=mine" }, "torchrun", "mine", "node-1", 2, 4, -1, -1 },
	{ { TORCHRUN, "FRL_JOB_HOST=other" }, "torchrun", "torchrun-29500-0-", "other", 2, 4, -1,
		-1 },
	{ { TORCHRUN, "FRL_JOB=mine", "FRL_RANK=0", "FRL_RANKS=1", "FRL_LAUNCHER=torchrun" },
		"torchrun", "mine", "node-1", 2, 4, -1, -1 },
	{ { TORCHRUN, "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2" }, "torchrun", "torchrun-29500-0-",
		"node-1", 2, 4, 0, 2 },
	{ { TORCHRUN, "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=3" }, "torchrun",
		"torchrun-29500-3-none", "node-1", 2, 4, -1, -1 },
	/* An id of 32 digits and hyphens, as torchrun --standalone makes it. */
	{ { TORCHRUN, "TORCHELASTIC_RUN_ID=ea5d2c1b-6f0e-4c3c-8a10-b4f3bd1e8a52" }, "torchrun",
		"torchrun-29500-0-ea5d2c1b-6f0e-4c3c-8a10-b4f3bd1e8a52", "node-1", 2, 4, -1, -1 },
	/* torchrun as a task of srun: the ranks of torchrun count, not the task. */
	{ { SLURM, TORCHRUN, "TORCHELASTIC_RUN_ID=x" }, "torchrun", "torchrun-29500-0-x", "node-1",
		2, 4, -1, -1 },
	{ { "PMIX_NAMESPACE=n", "PMIX_RANK=1", "PMIX_SERVER_URI4=u", TORCHRUN,
		  "TORCHELASTIC_RUN_ID=x" },
		"torchrun", "torchrun-29500-0-x", "node-1", 2, 4, -1, -1 },
	{ { SLURM }, "slurm", "slurm-77-3-0", "", 5, 8, 1, -1 },
	{ { SLURM, "SLURM_GTIDS=4,5,6" }, "slurm", "slurm-77-3-0", "", 5, 8, 1, 3 },
	{ { SLURM, "SLURM_RESTART_COUNT=2" }, "slurm", "slurm-77-3-2", "", 5, 8, 1, -1 },
	{ { SLURM, "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=n[0-1]" }, "slurm",
		"slurm-77-3-0", "n0", 5, 8, 1, -1 },
	{ { SLURM, "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=n[0-1]", "SLURMD_NODENAME=n0" },
		"slurm", "slurm-77-3-0", "", 5, 8, 1, -1 },
	{ { SLURM, "SLURM_STEP_NUM_NODES=9", "SLURM_STEP_NODELIST=rack[07,09-12]-n[003-4].x,login",
		  "SLURMD_NODENAME=n1" },
		"slurm", "slurm-77-3-0", "rack07-n003.x", 5, 8, 1, -1 },
	{ { SLURM, "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=alpha,beta" }, "slurm",
		"slurm-77-3-0", "alpha", 5, 8, 1, -1 },
	{ { SLURM, "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=[", "FRL_JOB_HOST=h" }, "slurm",
		"slurm-77-3-0", "h", 5, 8, 1, -1 },
	{ { "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_ID=1", "SLURM_STEP_ID=4294967290" },
		"slurm", "slurm-1-4294967290-0", "", 0, 2, -1, -1 },
	/* Several hosts of Hydra, with a name for the job. */
	{ { "PMI_RANK=1", "PMI_SIZE=4", "PMI_FD=1000", "HYDI_CONTROL_FD=7", "MPI_LOCALNRANKS=2",
		  "MPI_LOCALRANKID=1", "FRL_JOB=j", "FRL_JOB_HOST=h" },
		"hydra", "j", "h", 1, 4, 1, 2 },
	/* srun --mpi=pmi2 is not Hydra. */
	{ { SLURM, "PMI_RANK=1", "PMI_SIZE=4", "PMI_FD=11" }, "slurm", "slurm-77-3-0", "", 5, 8, 1,
		-1 },
};

START_LOOP_TEST(found, ROWS(good))
{
	struct frl_launch launch;
	int err = detect(good[_i].variables, &launch);

	ck_assert_msg(err == 0, "%s", frl_last_error());
	ck_assert_str_eq(launch.launcher, good[_i].launcher);
	ck_assert_str_eq(launch.job, good[_i].job);
	ck_assert_str_eq(launch.host, good[_i].host);
	ck_assert_int_eq(launch.rank, good[_i].rank);
	ck_assert_int_eq(launch.ranks, good[_i].ranks);
	ck_assert_int_eq(launch.local_rank, good[_i].local_rank);
	ck_assert_int_eq(launch.local_ranks, good[_i].local_ranks);
	ck_assert_ptr_null(launch.ctx);
	frl_launch_close(&launch);
}
END_TEST

static const struct {
	const char *variables[VARIABLES];
	int error;
	const char *says; /* each of them, separated by | */
} bad[] = {
	{ { NULL }, -ENOENT, "FRL_RANK|RANK (torchrun)|PMIX_RANK|PMI_RANK|SLURM_STEP_ID" },
	{ { "FRL_LAUNCHER=slurm", TORCHRUN }, -ENOENT, "FRL_LAUNCHER names" },
	{ { "FRL_JOB=train" }, -ENOENT, "FRL_RANK" },
	/* A user's script may set these for something else; a batch script has a rank. */
	{ { "MASTER_ADDR=node-1", "MASTER_PORT=29500" }, -ENOENT, "" },
	{ { "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=1" }, -ENOENT, "" },
	{ { "FRL_RANK=0", "FRL_RANKS=2" }, -EINVAL, "FRL_JOB is not set" },
	{ { "FRL_JOB=j", "FRL_RANK=0" }, -EINVAL, "FRL_RANKS is not set" },
	{ { "FRL_JOB=j", "FRL_RANKS=2" }, -EINVAL, "FRL_RANK is not set" },
	{ { "FRL_JOB=j", "FRL_RANK=2", "FRL_RANKS=2" }, -EINVAL, "FRL_RANK is \"2\"|from 0 to 1" },
	{ { "FRL_JOB=j", "FRL_RANK=0", "FRL_RANKS=0" }, -EINVAL, "FRL_RANKS is \"0\"|from 1 to" },
	{ { "FRL_JOB=j", "FRL_RANK=-1", "FRL_RANKS=2" }, -EINVAL, "FRL_RANK is \"-1\"" },
	{ { "FRL_JOB=j", "FRL_RANK=one", "FRL_RANKS=2" }, -EINVAL, "FRL_RANK is \"one\"" },
	{ { "FRL_JOB=j", "FRL_RANK=0", "FRL_RANKS=99999" }, -EINVAL,
		"FRL_RANKS is \"99999\"|32768" },
	{ { "FRL_JOB=1234567890123456789012345678901234567890123456789012345678901234x",
		  "FRL_RANK=0", "FRL_RANKS=2" },
		-EINVAL, "FRL_JOB is|at most 64" },
	{ { "FRL_JOB=j@localhost", "FRL_RANK=0", "FRL_RANKS=2" }, -EINVAL,
		"FRL_JOB is \"j@localhost\"|letters, digits|FRL_JOB_HOST" },
	{ { TORCHRUN, "FRL_JOB=a/b" }, -EINVAL, "FRL_JOB is \"a/b\"" },
	/* Text from outside has no effect on the terminal. */
	{ { "FRL_JOB=\033]0;x\a", "FRL_RANK=0", "FRL_RANKS=2" }, -EINVAL, "FRL_JOB is \"?]0;x?\"" },
	{ { "RANK=\033[2J", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=1" }, -EINVAL,
		"RANK is \"?[2J\"" },
	{ { "RANK=2" }, -EINVAL, "WORLD_SIZE is not set|torchrun" },
	{ { "WORLD_SIZE=2" }, -EINVAL, "RANK is not set" },
	{ { "RANK=0", "WORLD_SIZE=2", "MASTER_PORT=1" }, -EINVAL, "MASTER_ADDR is not set" },
	{ { "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h" }, -EINVAL, "MASTER_PORT is not set" },
	{ { "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=", "MASTER_PORT=1" }, -EINVAL,
		"MASTER_ADDR is not set" },
	{ { "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=65536" }, -EINVAL,
		"MASTER_PORT is \"65536\"|from 1 to 65535" },
	{ { "RANK=4", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=1" }, -EINVAL,
		"RANK is \"4\"|from 0 to 3" },
	{ { "RANK= 1", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=1" }, -EINVAL,
		"RANK is \" 1\"" },
	{ { TORCHRUN, "LOCAL_WORLD_SIZE=5" }, -EINVAL, "LOCAL_WORLD_SIZE is \"5\"" },
	{ { TORCHRUN, "LOCAL_WORLD_SIZE=2", "LOCAL_RANK=2" }, -EINVAL, "LOCAL_RANK is \"2\"" },
	{ { TORCHRUN, "TORCHELASTIC_RESTART_COUNT=x" }, -EINVAL,
		"TORCHELASTIC_RESTART_COUNT is \"x\"" },
	/* Half of PMIx, without a server. */
	{ { "PMIX_RANK=1" }, -EINVAL, "PMIX_NAMESPACE is not set" },
	{ { "PMIX_NAMESPACE=n" }, -EINVAL, "PMIX_RANK is not set" },
	{ { "PMIX_NAMESPACE=n", "PMIX_RANK=x", "PMIX_SERVER_URI4=u" }, -EINVAL,
		"PMIX_RANK is \"x\"" },
	{ { "PMIX_NAMESPACE=n", "PMIX_RANK=1" }, -EINVAL, "PMIX_SERVER_URI* is not set" },
	{ { "PMI_RANK=0", "PMI_SIZE=4", "PMI_FD=0", "HYDI_CONTROL_FD=7", "MPI_LOCALNRANKS=2" },
		-EINVAL, "several hosts|FRL_JOB|FRL_JOB_HOST|mpiexec -genv" },
	{ { "PMI_RANK=0", "PMI_SIZE=4", "PMI_FD=1000", "HYDI_CONTROL_FD=7", "MPI_LOCALNRANKS=4" },
		-EINVAL, "PMI_FD (1000)|FRL_JOB" },
	{ { "PMI_RANK=0", "HYDI_CONTROL_FD=7" }, -EINVAL, "PMI_SIZE is not set" },
	{ { "PMI_RANK=0", "PMI_SIZE=1", "HYDI_CONTROL_FD=7" }, -EINVAL, "PMI_FD is not set" },
	{ { "SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_JOB_ID=1" }, -EINVAL,
		"SLURM_NTASKS is not set" },
	{ { "SLURM_PROCID=8", "SLURM_NTASKS=8", "SLURM_STEP_ID=0", "SLURM_JOB_ID=1" }, -EINVAL,
		"SLURM_PROCID is \"8\"" },
	{ { "SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_STEP_ID=0" }, -EINVAL,
		"SLURM_JOB_ID is not set" },
	{ { SLURM, "SLURM_STEP_NUM_NODES=2" }, -EINVAL, "SLURM_STEP_NODELIST|FRL_JOB_HOST" },
	{ { SLURM, "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=n[0-" }, -EINVAL,
		"SLURM_STEP_NODELIST is \"n[0-\"" },
};

START_LOOP_TEST(refused, ROWS(bad))
{
	struct frl_launch launch = { .rank = 12345 };
	int err = detect(bad[_i].variables, &launch);
	char words[TEXT], *word, *rest = words;

	ck_assert_int_eq(err, bad[_i].error);
	ck_assert_int_eq(launch.rank, 12345);
	snprintf(words, sizeof(words), "%s", bad[_i].says);
	while ((word = strsep(&rest, "|")))
		ck_assert_msg(strstr(frl_last_error(), word) != NULL, "'%s' is not in: %s", word,
			frl_last_error());
}
END_TEST

#define PMIX "PMIX_NAMESPACE=n", "PMIX_RANK=1", "PMIX_SERVER_URI4=u"

static const struct {
	const char *variables[VARIABLES];
	int error;
	const char *launcher;
} guarded_rows[] = {
	/* No server: with PMIx it would be another error. */
	{ { PMIX }, -EPERM, "" },
	{ { PMIX, "FRL_LAUNCHER=pmix" }, -EPERM, "" },
	{ { PMIX, SLURM }, -EPERM, "" },
	{ { "PMIX_RANK=1" }, -EPERM, "" },
	/* The advice in the error works. */
	{ { PMIX, "FRL_JOB=j", "FRL_RANK=0", "FRL_RANKS=2" }, 0, "settings" },
	{ { PMIX, SLURM, "FRL_LAUNCHER=slurm" }, 0, "slurm" },
	{ { PMIX, TORCHRUN, "FRL_LAUNCHER=torchrun" }, 0, "torchrun" },
};

/* PMIx would load libraries that the user's variables name. */
START_LOOP_TEST(more_rights, ROWS(guarded_rows))
{
	struct frl_launch launch = { .launcher = "" };

	is_guarded = true;
	ck_assert_int_eq(detect(guarded_rows[_i].variables, &launch), guarded_rows[_i].error);
	is_guarded = false;
	ck_assert_str_eq(launch.launcher, guarded_rows[_i].launcher);
	if (guarded_rows[_i].error)
		ck_assert_ptr_nonnull(strstr(frl_last_error(), "more rights than its user"));
	frl_launch_close(&launch);
}
END_TEST

/* The proxy of Hydra is the process that made the socket: this one. */
START_TEST(hydra_on_one_host)
{
	char fd[40], expected[80];
	const char *variables[] = { "PMI_RANK=1", "PMI_SIZE=2", fd, "HYDI_CONTROL_FD=7",
		"MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1", NULL };
	struct frl_launch launch, again;
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	snprintf(fd, sizeof(fd), "PMI_FD=%d", fds[1]);
	ck_assert_msg(detect(variables, &launch) == 0, "%s", frl_last_error());
	ck_assert_str_eq(launch.launcher, "hydra");
	snprintf(expected, sizeof(expected), "hydra-%d-", (int)getpid());
	ck_assert_msg(strncmp(launch.job, expected, strlen(expected)) == 0, "%s", launch.job);
	ck_assert_uint_gt(strtoull(launch.job + strlen(expected), NULL, 10), 0);
	ck_assert_int_eq(launch.rank, 1);
	ck_assert_int_eq(launch.local_rank, 1);
	ck_assert_int_eq(launch.local_ranks, 2);
	ck_assert_int_eq(detect(variables, &again), 0);
	ck_assert_str_eq(again.job, launch.job);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* Names that differ only in characters that a job's name cannot have, or behind its end, stay
 * different. */
START_TEST(job_names)
{
	static const char *const texts[] = {
		"",
		"a",
		"a b",
		"a_b",
		"a/b",
		"a_b-",
		"\xc3\xa4",
		"\xc3\xb6",
		"123456789 123456789 123456789 123456789 123456789 123456",
		"12345678901234567890123456789012345678901234567890123456",
		"123456789012345678901234567890123456789012345678901234567",
		"123456789012345678901234567890123456789012345678901234568",
		"123456789012345678901234567890123456789012345678901234567-and-a-long-way-to-go",
	};
	enum { TEXTS = sizeof(texts) / sizeof(texts[0]) };
	static const char characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
					 "0123456789._-";
	char jobs[TEXTS][FRL_SERVICE_MAX + 1];

	for (int i = 0; i < TEXTS; i++) {
		launch_name_job(texts[i], jobs[i]);
		ck_assert_uint_le(strlen(jobs[i]), LAUNCH_JOB_MAX);
		ck_assert_uint_eq(strspn(jobs[i], characters), strlen(jobs[i]));
		for (int k = 0; k < i; k++)
			ck_assert_str_ne(jobs[i], jobs[k]);
	}
	ck_assert_str_eq(jobs[1], "a");
	ck_assert_str_eq(jobs[9], texts[9]);
}
END_TEST

static const struct {
	const char *host;
	bool is_here;
} host_rows[] = {
	{ "localhost", true }, { "LocalHost", true }, { "127.0.0.1", true }, { "127.9.9.9", true },
	{ "::1", true }, { "192.0.2.77", false }, /* for documentation, nobody's */
	{ "2001:db8::77", false }, { "no-such-host.invalid", false },
	{ "127.0.0.1:7476", false }, /* the daemon's to say */
};

START_LOOP_TEST(own_host, ROWS(host_rows))
{
	ck_assert_int_eq(launch_is_this_host(host_rows[_i].host), host_rows[_i].is_here);
}
END_TEST

START_TEST(own_name)
{
	char name[256] = "";

	ck_assert_int_eq(gethostname(name, sizeof(name) - 1), 0);
	ck_assert(launch_is_this_host(name));
}
END_TEST

START_TEST(arguments)
{
	struct frl_bootstrap bootstrap;
	struct frl_launch launch = { .job = "j", .ranks = 1 };
	struct frl_launch no_end = { .ranks = 1 };
	struct frl_unique_id id;

	memset(no_end.job, 'x', sizeof(no_end.job));
	ck_assert_int_eq(frl_launch_detect(NULL), -EINVAL);
	ck_assert_int_eq(frl_bootstrap_from_launch(NULL, 0, &bootstrap), -EINVAL);
	ck_assert_int_eq(frl_bootstrap_from_launch(&launch, 0, NULL), -EINVAL);
	ck_assert_int_eq(frl_bootstrap_from_launch(&launch, -1, &bootstrap), -EINVAL);
	ck_assert_int_eq(frl_bootstrap_from_launch(&no_end, 0, &bootstrap), -EINVAL);
	ck_assert_int_eq(frl_bootstrap_from_environment(0, NULL), -EINVAL);
	ck_assert_int_eq(frl_unique_id_create(NULL), -EINVAL);
	ck_assert_int_eq(frl_bootstrap_from_unique_id(NULL, 0, 1, 0, &bootstrap), -EINVAL);
	memset(&id, 'f', sizeof(id));
	ck_assert_int_eq(frl_bootstrap_from_unique_id(&id, 0, 1, 0, &bootstrap), -EINVAL);
	frl_launch_close(NULL);
	frl_launch_close(&launch);
	frl_launch_close(&launch);
}
END_TEST

#define ID_JOB   "0123456789abcdef0123456789abcdef"
#define ID_PLACE "0123456789abcdef"

static const char *const bad_ids[] = {
	"",
	"frl1:",
	"frl2:" ID_JOB ":" ID_PLACE ":host",
	"frl1:" ID_JOB ":" ID_PLACE,
	"frl1:" ID_JOB ":" ID_PLACE ":",
	"frl1:" ID_JOB "0:" ID_PLACE ":host",
	"frl1:" ID_JOB ":" ID_PLACE "0:host",
	"frl1:0123456789abcdef0123456789abcdeg:" ID_PLACE ":host",
	"frl1:0123456789ABCDEF0123456789abcdef:" ID_PLACE ":host",
	"frl1:" ID_JOB "::host",
	"frl1:" ID_JOB ":" ID_PLACE
	":a123456789012345678901234567890123456789012345678901234567890123456",
	"frl1:" ID_JOB ":" ID_PLACE ":-\033]0;x\a",
	"frl1:" ID_JOB ":" ID_PLACE ":h\nq",
	"\033[2Jfrl1:",
};

START_LOOP_TEST(bad_id, ROWS(bad_ids))
{
	struct frl_bootstrap bootstrap;
	struct frl_unique_id id = { "" };

	memcpy(id.text, bad_ids[_i], strlen(bad_ids[_i]));
	ck_assert_int_eq(frl_bootstrap_from_unique_id(&id, 0, 1, 0, &bootstrap), -EINVAL);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "not a unique id"));
	ck_assert_ptr_null(strchr(frl_last_error(), '\033'));
}
END_TEST

START_TEST(bad_place)
{
	static const char *const places[] = { NULL, "", ID_PLACE, ID_PLACE ":", ":host",
		"0123456789abcdeg:host", ID_PLACE ":h\nq", ID_PLACE "0:host",
		ID_PLACE ":a123456789012345678901234567890123456789012345678901234567890123456" };
	char host[FRL_HOST_MAX + 1];

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		ck_assert_int_eq(frl_host_of_place(places[i], host), -EINVAL);
		ck_assert_ptr_nonnull(strstr(frl_last_error(), "is not a place"));
	}
	/* Without a daemon a right id is useless, too. */
	ck_assert_int_eq(frl_host_of_place(ID_PLACE ":host", host), -ENOTCONN);
	ck_assert_int_eq(frl_place_create(host), -ENOTCONN);
}
END_TEST

TEST_FILE(launch)
