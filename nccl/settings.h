/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plugin's settings: variables of the environment, read once. Those of the library (FRL_*) hold
 * as well.
 */
#ifndef FERRULE_NCCL_SETTINGS_H
#define FERRULE_NCCL_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include <ferrule/error.h>

#include "nccl/unpack_rule.h"

/* Which ports take memory of GPUs. */
enum net_gpu {
	NET_GPU_NEVER,  /* 0 */
	NET_GPU_NICS,   /* not set: NICs that reach it by themselves */
	NET_GPU_ALWAYS, /* 1, force: software ports as well */
};

struct net_settings {
	const char *devices; /* FERRULE_DEVICES; "": all that there are */
	int qps;             /* FERRULE_QPS: queue pairs of a connection, for each rail */
	int timeout_s;       /* FERRULE_TIMEOUT_S */
	bool is_required;    /* FERRULE_REQUIRE; also if that makes no sense */
	/* The user has asked for this plugin. Without that NCCL loads it where it is installed as
	 * libnccl-net.so, for jobs of many hosts as well, which the local fabric does not
	 * connect. */
	bool is_named;
	bool keeps_plugin;    /* NCCL_NET_PLUGIN_REF_COUNT is not 0 */
	bool is_relaxed;      /* FRL_RELAXED_ORDERING=on */
	enum net_gpu gpu;     /* FERRULE_GPU */
	bool forces_gpu;      /* FERRULE_GPU=force: also if CUDA loads modules lazily */
	bool unpack;          /* FERRULE_UNPACK */
	const char *gpu_tier; /* FRL_GPU_TIER */
	/* NCCL's own settings, and what follows for UNPACK, with the reason. */
	struct net_unpack_settings nccl;
	enum net_unpack_rule unpack_rule;
	const char *unpack_why;
	size_t nccl_slice;   /* bytes of NCCL's largest receive by protocol Simple */
	const char *log;     /* FERRULE_LOG */
	bool shows_info;     /* FERRULE_LOG is info or debug, and NCCL shows no such lines */
	bool shows_warnings; /* NCCL shows none */
	enum frl_log_level library_level; /* of the library's own lines */
};

enum { NET_MAX_QPS = 4 };

/* The defaults, unless net_settings_error() says otherwise. */
const struct net_settings *net_settings(void);

/* FERRULE_GPU: "", "0", "1" or "force". */
const char *net_gpu_setting(void);

/* A sentence about the first variable that makes no sense, or NULL. */
const char *net_settings_error(void);

#endif
