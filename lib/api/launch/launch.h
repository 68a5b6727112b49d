/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internal declarations of the launcher files. launch.c tries the sources in order, and joins.
 * environment.c has the sources, which read the environment. pmix.c connects to a PMIx server
 * (pmix_stub.c without PMIx). unique_id.c has unique ids. host.c decides whether a host is this
 * one.
 */
#ifndef FERRULE_API_LAUNCH_LAUNCH_H
#define FERRULE_API_LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/launch.h>

#include "lib/base/settings.h"

enum {
	LAUNCH_RANKS_MAX = 32768,
	/* Generated names leave room for the number of a later bootstrap. */
	LAUNCH_JOB_MAX = FRL_SERVICE_MAX - 8,
};

/* The source of variables: a table in tests. */
struct launch_env {
	const struct settings *settings;
	settings_lookup_fn lookup;
	bool (*has_prefix)(const char *prefix);
	bool is_guarded; /* settings_are_guarded(): nothing may load code for these variables */
};

/*
 * Fills in the values of its launcher; all other fields are zero and local ranks -1. Returns
 * -ENOENT if it is another launcher.
 */
typedef int (*launch_source_fn)(const struct launch_env *env, struct frl_launch *launch);

/* ---- launch.c */

/* frl_launch_detect() in a given environment. */
int launch_detect(const struct launch_env *env, struct frl_launch *ret_launch);

/* ---- environment.c */

int launch_settings(const struct launch_env *env, struct frl_launch *launch);
int launch_torchrun(const struct launch_env *env, struct frl_launch *launch);
int launch_torchrun_by_hand(const struct launch_env *env, struct frl_launch *launch);
int launch_pmix(const struct launch_env *env, struct frl_launch *launch);
int launch_hydra(const struct launch_env *env, struct frl_launch *launch);
int launch_slurm(const struct launch_env *env, struct frl_launch *launch);

/* The valid characters of a job's name. */
extern const char launch_characters[];

/*
 * Makes a job's name of a text of any length. Invalid characters become '_', and a hash of the text
 * is appended unless the text is a valid name. Different texts give different names.
 */
void launch_name_job(const char *text, char job[FRL_SERVICE_MAX + 1]);

/* ---- host.c */

/* Returns whether `host` is this host, by name or address. May query DNS. */
bool launch_is_this_host(const char *host);

/* ---- unique_id.c */

/* As frl_unique_id_create(), but waits until `limit_ns`. */
int unique_id_create(uint64_t limit_ns, struct frl_unique_id *ret_id);

/* ---- pmix.c */

/*
 * Connects to the server that the environment names, requests the ranks and keeps the connection in
 * launch->ctx.
 */
int pmix_open(struct frl_launch *launch);
/* Add and drop a reference to the connection. */
void pmix_get(void);
void pmix_put(void);
/* Publish `text` of this rank under `key` for other ranks, and fetch the text of rank 0. */
int pmix_publish(const char *key, const char *text);
int pmix_fetch(const char *key, int timeout_ms, char *text, size_t size);

#endif
