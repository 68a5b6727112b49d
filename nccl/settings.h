/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plugin's settings: environment variables, which are read once. The library's settings (FRL_*)
 * apply too.
 */
#ifndef FERRULE_NCCL_SETTINGS_H
#define FERRULE_NCCL_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include <ferrule/error.h>

#include "nccl/data/unpack_rule.h"

/* Which ports accept GPU memory. */
enum net_gpu {
	NET_GPU_NEVER,  /* 0 */
	NET_GPU_NICS,   /* not set: NICs that access it directly */
	NET_GPU_ALWAYS, /* 1, force: software ports as well */
};

struct net_settings {
	const char *devices; /* FERRULE_DEVICES; "": all ports */
	int qps;             /* FERRULE_QPS: queue pairs of a connection on each rail */
	int timeout_s;       /* FERRULE_TIMEOUT_S */
	bool is_required;    /* FERRULE_REQUIRE; also if its value is not valid */
	/* The user has selected this plugin by name. Otherwise NCCL may load it only because it is
	 * installed as libnccl-net.so, also for jobs of many hosts, which the local fabric cannot
	 * connect. */
	bool is_named;
	bool keeps_plugin;    /* NCCL_NET_PLUGIN_REF_COUNT is not 0 */
	bool is_relaxed;      /* FRL_RELAXED_ORDERING=on */
	enum net_gpu gpu;     /* FERRULE_GPU */
	bool forces_gpu;      /* FERRULE_GPU=force: even if CUDA loads modules lazily */
	bool unpack;          /* FERRULE_UNPACK */
	const char *gpu_tier; /* FRL_GPU_TIER */
	/* NCCL's own settings, and whether they allow UNPACK, with the reason. */
	struct net_unpack_settings nccl;
	enum net_unpack_rule unpack_rule;
	const char *unpack_why;
	size_t nccl_slice;   /* bytes of NCCL's largest receive with protocol Simple */
	const char *log;     /* FERRULE_LOG */
	bool shows_info;     /* FERRULE_LOG is info or debug, and NCCL does not show such lines */
	bool shows_warnings; /* NCCL does not show warnings */
	enum frl_log_level library_level; /* for the library's own lines */
};

enum { NET_MAX_QPS = 4 };

/* Returns the settings. They are the defaults if net_settings_error() returns an error. */
const struct net_settings *net_settings(void);

/* Returns FERRULE_GPU: "", "0", "1" or "force". */
const char *net_gpu_setting(void);

/* Returns a sentence about the first variable with an invalid value, or NULL. */
const char *net_settings_error(void);

#endif
