/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of launchers do for each other. launch.c asks one source after the other, and
 * joins; launch_env.c are the sources, which read the environment; launch_pmix.c is the server
 * behind one of them (launch_pmix_stub.c where there is no PMIx); launch_id.c are unique ids,
 * launch_host.c is whether a host is this one.
 */
#ifndef FERRULE_API_LAUNCH_H
#define FERRULE_API_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/launch.h>

#include "lib/base/settings.h"

enum {
	LAUNCH_RANKS_MAX = 32768,
	/* Names that are made up leave room for the number of a later bootstrap. */
	LAUNCH_JOB_MAX = FRL_SERVICE_MAX - 8,
};

/* Where variables come from: a table in tests. */
struct launch_env {
	const struct settings *settings;
	settings_lookup_fn lookup;
	bool (*has_prefix)(const char *prefix);
	bool is_guarded; /* settings_are_guarded(): nothing may load code for these variables */
};

/* Fills in what it knows, all else being zero and local ranks -1. -ENOENT: it is another one. */
typedef int (*launch_source_fn)(const struct launch_env *env, struct frl_launch *launch);

/* ---- launch.c */

/* frl_launch_detect() in that environment. */
int launch_detect(const struct launch_env *env, struct frl_launch *ret_launch);

/* ---- launch_env.c */

int launch_settings(const struct launch_env *env, struct frl_launch *launch);
int launch_torchrun(const struct launch_env *env, struct frl_launch *launch);
int launch_torchrun_by_hand(const struct launch_env *env, struct frl_launch *launch);
int launch_pmix(const struct launch_env *env, struct frl_launch *launch);
int launch_hydra(const struct launch_env *env, struct frl_launch *launch);
int launch_slurm(const struct launch_env *env, struct frl_launch *launch);

/* Those of a job's name. */
extern const char launch_characters[];

/* A job's name out of a text of any length: what cannot be in one becomes '_', and a hash of the
 * text follows if it is not the name itself. Different texts have different names. */
void launch_name_job(const char *text, char job[FRL_SERVICE_MAX + 1]);

/* ---- launch_host.c */

/* Is it this host, by a name or an address that it has? May ask DNS. */
bool launch_is_this_host(const char *host);

/* ---- launch_id.c */

/* As frl_unique_id_create(), waiting until `limit_ns`. */
int unique_id_create(uint64_t limit_ns, struct frl_unique_id *ret_id);

/* ---- launch_pmix.c */

/* Connects to the server that the environment names, asks it for ranks and keeps the connection,
 * in launch->ctx. */
int pmix_open(struct frl_launch *launch);
/* Another one who needs the connection, and one less. */
void pmix_get(void);
void pmix_put(void);
/* Gives the other ranks what this one has to say under `key`; what rank 0 has. */
int pmix_tell(const char *key, const char *text);
int pmix_ask(const char *key, int timeout_ms, char *text, size_t size);

#endif
