/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's side: finds the module when the first DPDK port is opened. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "drivers/dpdk/module.h"
#include "lib/base/memory/fault.h"
#include "lib/base/memory/share.h"

#define FILE_NAME "ferrule-dpdk.so"

static struct {
	pthread_mutex_t lock; /* protects the members below */
	const struct dpdk_module *module;
} loaded = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int set_error(int err, const char *text)
{
	return frl_fail(err, "%s", text);
}

static void log_line(enum frl_log_level level, const char *text)
{
	frl_log(level, "%s", text);
}

static const struct dpdk_host host = {
	.set_error = set_error,
	.log = log_line,
	.strerror = frl_strerror,
	.save_error = error_save,
	.restore_error = error_restore,
	.prefer_huge = share_prefer_huge,
	.fault_copy = fault_copy,
};

/* Returns the folder of the file that contains this code. */
static int own_folder(char path[PATH_MAX])
{
	Dl_info info;
	char *slash;

	/* A relative path may refer to another folder by now. */
	if (!dladdr(&loaded, &info) || !info.dli_fname || info.dli_fname[0] != '/')
		return -1;
	snprintf(path, PATH_MAX, "%s", info.dli_fname);
	slash = strrchr(path, '/');
	if (!slash)
		return -1;
	*slash = '\0';
	return 0;
}

/* Loads `path`. `why` describes the first file that exists, or the last one that does not.
 * `is_there`: a file existed. */
static void *try(const char *path, char *why, size_t size, bool *is_there)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *message = handle ? "" : dlerror();

	if (handle || *is_there)
		return handle;
	snprintf(why, size, "%s", message);
	/* Other errors name a library that this one needs, or describe a defect. */
	*is_there = strncmp(message, path, strlen(path)) != 0 || !strstr(message, "No such file");
	return NULL;
}

/* An installed module is in a folder below the library's. In a build tree it is beside the library,
 * or in the program's run path. */
static void *find(char *why, size_t size)
{
	char folder[PATH_MAX], path[PATH_MAX + 64];
	void *handle = NULL;
	bool is_there = false;

	if (own_folder(folder) == 0) {
		snprintf(path, sizeof(path), "%s/ferrule/" FILE_NAME, folder);
		handle = try(path, why, size, &is_there);
		snprintf(path, sizeof(path), "%s/" FILE_NAME, folder);
		if (!handle)
			handle = try(path, why, size, &is_there);
	}
	return handle ? handle : try(FILE_NAME, why, size, &is_there);
}

/* The module is never unloaded: DPDK cannot be started again. */
static int load(void)
{
	const struct dpdk_module *module;
	char why[300];
	void *handle = find(why, sizeof(why));

	if (!handle)
		return frl_fail(-ENODEV,
			"ports of DPDK need " FILE_NAME " and DPDK (%s): install them, or use a "
			"packet: port",
			why);
	module = dlsym(handle, DPDK_MODULE_SYMBOL);
	if (!module || strcmp(module->version, FERRULE_VERSION) != 0)
		return frl_fail(-ENODEV,
			FILE_NAME " is of release %s, the library is of " FERRULE_VERSION
				  ": install the same",
			module ? module->version : "(none)");
	if (!module->set_host(&host))
		return frl_fail(-EBUSY,
			"DPDK is used by another copy of Ferrule in this process (the NCCL plugin "
			"contains one): use DPDK ports in only one of them");
	loaded.module = module;
	return 0;
}

int dpdk_port_open(const struct dpdk_port_config *config, struct port **ret_port)
{
	int err = 0;

	pthread_mutex_lock(&loaded.lock);
	if (!loaded.module)
		err = load();
	pthread_mutex_unlock(&loaded.lock);
	return err ? err : loaded.module->open(config, ret_port);
}
