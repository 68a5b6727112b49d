/* SPDX-License-Identifier: BSD-3-Clause */
/* The module with DPDK's ports: found when the first one is opened, and of the same release. */
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "drivers/dpdk/module.h"
#include "tests/fixtures/program.h"

/* The file in place of the module. */
static enum { MISSING, NEEDY, BROKEN, FOREIGN, OTHER_RELEASE, TAKEN, RIGHT } found;
static unsigned n_tried, n_hosts;
static const struct dpdk_host *given_host;

static bool set_host(const struct dpdk_host *host)
{
	given_host = host;
	n_hosts++;
	return found != TAKEN;
}

/* As the driver does. */
static int open_port(const struct dpdk_port_config *config, struct port **ret_port)
{
	char saved[ERROR_TEXT_MAX];

	(void)ret_port;
	given_host->save_error(saved);
	given_host->set_error(-EINVAL, "in vain");
	given_host->restore_error(saved);
	return given_host->set_error(-ENXIO, config->devargs);
}

static struct dpdk_module module = { .set_host = set_host, .open = open_port };

static bool is_module(const char *path)
{
	return path && strstr(path, "ferrule-dpdk.so");
}

void *__real_dlopen(const char *path, int flags);
void *__wrap_dlopen(const char *path, int flags);
void *__wrap_dlopen(const char *path, int flags)
{
	char nowhere[4096];

	if (!is_module(path))
		return __real_dlopen(path, flags);
	n_tried++;
	/* The loader gives the reason in dlerror(). An existing module lacks a library: the first
	 * one. */
	if (found == MISSING || (found == NEEDY && n_tried > 1)) {
		snprintf(nowhere, sizeof(nowhere), "%s.nowhere", path);
		return __real_dlopen(nowhere, flags);
	}
	if (found == NEEDY)
		return __real_dlopen("librte_of_nobody.so.1", flags);
	if (found == BROKEN)
		return __real_dlopen("/dev/null", flags);
	return &module;
}

void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name)
{
	if (handle != &module)
		return __real_dlsym(handle, name);
	ck_assert_str_eq(name, "ferrule_dpdk_module");
	module.version = found >= TAKEN ? FERRULE_VERSION : "0.0.1";
	return found == FOREIGN ? NULL : &module;
}

static int open_named(const char *devargs)
{
	const struct dpdk_port_config config = { .devargs = devargs };
	struct port *port;

	return dpdk_port_open(&config, &port);
}

START_LOOP_TEST(refused, 6)
{
	static const char *const words[] = {
		[MISSING] = "need ferrule-dpdk.so and DPDK",
		[NEEDY] = "librte_of_nobody",
		[BROKEN] = "/dev/null",
		[FOREIGN] = "of release (none)",
		[OTHER_RELEASE] = "of release 0.0.1",
		[TAKEN] = "another copy",
	};

	found = _i;
	for (int i = 0; i < 2; i++) {
		n_tried = 0;
		ck_assert_int_eq(open_named("net_null0"), _i == TAKEN ? -EBUSY : -ENODEV);
		ck_assert_msg(strstr(frl_last_error(), words[_i]), "%s", frl_last_error());
	}
	/* It is there by now. */
	found = RIGHT;
	ck_assert_int_eq(open_named("net_null0"), -ENXIO);
}
END_TEST

START_TEST(loaded_once)
{
	found = RIGHT;
	ck_assert_int_eq(open_named("a %s of it"), -ENXIO);
	ck_assert_str_eq(frl_last_error(), "a %s of it");
	found = MISSING;
	ck_assert_int_eq(open_named("another"), -ENXIO);
	ck_assert_uint_eq(n_tried, 1);
	ck_assert_uint_eq(n_hosts, 1);
}
END_TEST

TEST_MAIN(dpdk_load)
{
	/* A loaded module stays. */
	return run_suite_forked(all_tests(NULL, NULL));
}
