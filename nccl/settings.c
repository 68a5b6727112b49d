/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	DEFAULT_TIMEOUT_S = 10,
	MAX_TIMEOUT_S = 600,
	/* NCCL's default buffer size of a connection for protocol Simple, and its number of
	 * slices. */
	NCCL_BUFFER = 4 << 20,
	NCCL_SLICES = 4,
};

static struct {
	pthread_once_t once;
	struct net_settings values;
	char error[256];
} settings = { .once = PTHREAD_ONCE_INIT };

static void record_error(const char *name, const char *value, const char *allowed)
{
	if (!settings.error[0])
		snprintf(settings.error, sizeof(settings.error), "%s is \"%.64s\"; it may be %s",
			name, value, allowed);
}

/* An empty variable counts as not set. */
static const char *look_up(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

static int read_number(const char *name, int low, int high, int fallback)
{
	const char *value = look_up(name);
	char allowed[32], *end;
	long number;

	if (!value)
		return fallback;
	errno = 0;
	number = strtol(value, &end, 10);
	if (!errno && end != value && !*end && number >= low && number <= high)
		return (int)number;
	snprintf(allowed, sizeof(allowed), "%d to %d", low, high);
	record_error(name, value, allowed);
	return fallback;
}

static bool is_one_of(const char *value, const char *a, const char *b)
{
	return value && (strcasecmp(value, a) == 0 || strcasecmp(value, b) == 0);
}

/* Determines which lines NCCL shows: none without NCCL_DEBUG, not even its own failures. */
static void read_log(struct net_settings *values)
{
	const char *value = look_up("FERRULE_LOG"), *nccl = look_up("NCCL_DEBUG");
	bool has_info = is_one_of(nccl, "INFO", "TRACE") || is_one_of(nccl, "ABORT", "ABORT");

	values->library_level = FRL_LOG_WARNING;
	values->log = value ? value : "warn";
	values->shows_warnings = !has_info && !is_one_of(nccl, "WARN", "WARN");
	if (!value || strcmp(value, "warn") == 0)
		return;
	if (strcmp(value, "info") != 0 && strcmp(value, "debug") != 0) {
		record_error("FERRULE_LOG", value, "warn, info or debug");
		return;
	}
	values->library_level = *value == 'i' ? FRL_LOG_INFO : FRL_LOG_DEBUG;
	values->shows_info = !has_info;
}

/* Reads one of NCCL's settings as NCCL does. NCCL itself reports invalid values. */
static long long read_nccl(const char *name, long long fallback)
{
	const char *value = look_up(name);
	long long number;
	char *end;

	errno = 0;
	number = value ? strtoll(value, &end, 0) : fallback;
	return value && (errno || end == value) ? fallback : number;
}

static void read_unpack(struct net_settings *values)
{
	long long buffer = read_nccl("NCCL_BUFFSIZE", NCCL_BUFFER);
	long long pat = read_nccl("NCCL_PAT_ENABLE", 2);

	values->unpack = read_number("FERRULE_UNPACK", 0, 1, 0) != 0;
	net_protocols_read(look_up("NCCL_PROTO"), &values->nccl.protocols);
	/* -2: NCCL chooses. */
	values->nccl.shares_buffers = read_nccl("NCCL_NET_SHARED_BUFFERS", -2) != 0;
	values->nccl.has_ll_on_host = read_nccl("NCCL_ALLOC_P2P_NET_LL_BUFFERS", 0) != 0;
	values->nccl.reports_optional = read_nccl("NCCL_NET_OPTIONAL_RECV_COMPLETION", 1) != 0;
	/* 2: NCCL chooses, and does not choose PAT for devices that unpack. */
	values->nccl.forces_pat = pat && pat != 2;
	values->unpack_rule = net_unpack_rule(&values->nccl, &values->unpack_why);
	values->nccl_slice = (size_t)(buffer > 0 ? buffer : NCCL_BUFFER) / NCCL_SLICES;
}

static enum net_gpu read_which_gpus(bool *ret_is_forced)
{
	const char *value = look_up("FERRULE_GPU");

	*ret_is_forced = value && strcmp(value, "force") == 0;
	if (!value)
		return NET_GPU_NICS;
	if (*ret_is_forced || strcmp(value, "1") == 0)
		return NET_GPU_ALWAYS;
	if (strcmp(value, "0") != 0)
		record_error("FERRULE_GPU", value, "0, 1 or force");
	return NET_GPU_NEVER;
}

/* The library itself reports an invalid value of its setting. */
static void read_gpu(struct net_settings *values)
{
	const char *tier = look_up("FRL_GPU_TIER");

	values->gpu = read_which_gpus(&values->forces_gpu);
	values->gpu_tier = tier ? tier : "auto";
}

static bool is_named(void)
{
	const char *plugin = look_up("NCCL_NET_PLUGIN"), *net = look_up("NCCL_NET");

	return (plugin && strstr(plugin, "ferrule")) || (net && strcasecmp(net, "ferrule") == 0);
}

static void read_all(void)
{
	struct net_settings *values = &settings.values;
	const char *devices = look_up("FERRULE_DEVICES");

	values->devices = devices ? devices : "";
	values->qps = read_number("FERRULE_QPS", 1, NET_MAX_QPS, 1);
	values->timeout_s = read_number("FERRULE_TIMEOUT_S", 1, MAX_TIMEOUT_S, DEFAULT_TIMEOUT_S);
	/* An invalid value counts as set, because the user meant to set something. */
	values->is_required = read_number("FERRULE_REQUIRE", 0, 1, 1) && look_up("FERRULE_REQUIRE");
	values->is_named = values->is_required || is_named();
	values->keeps_plugin = read_nccl("NCCL_NET_PLUGIN_REF_COUNT", 0) != 0;
	values->is_relaxed = is_one_of(look_up("FRL_RELAXED_ORDERING"), "on", "on");
	read_gpu(values);
	read_unpack(values);
	read_log(values);
}

const struct net_settings *net_settings(void)
{
	pthread_once(&settings.once, read_all);
	return &settings.values;
}

const char *net_gpu_setting(void)
{
	static const char *const names[] = { "0", "", "1" };

	return net_settings()->forces_gpu ? "force" : names[net_settings()->gpu];
}

const char *net_settings_error(void)
{
	pthread_once(&settings.once, read_all);
	return settings.error[0] ? settings.error : NULL;
}
