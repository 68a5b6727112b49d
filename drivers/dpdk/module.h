/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract between the library and the module with this driver. The module is a file beside
 * the library, ferrule-dpdk.so, which is linked with DPDK: processes without DPDK ports load
 * neither, and need not have DPDK.
 */
#ifndef FERRULE_DRIVERS_DPDK_MODULE_H
#define FERRULE_DRIVERS_DPDK_MODULE_H

#include "drivers/dpdk/dpdk.h"
#include "lib/base/error.h"

/* The library's, by which the module's errors and lines become the library's. Sentences are ready:
 * they are no formats. */
struct dpdk_host {
	int (*set_error)(int err, const char *text);
	void (*log)(enum frl_log_level level, const char *text);
	const char *(*strerror)(int err);
	void (*save_error)(char text[ERROR_TEXT_MAX]);
	void (*restore_error)(const char text[ERROR_TEXT_MAX]);
	void (*prefer_huge)(void); /* lib/base/share.h */
};

/* The module's, under the name `ferrule_dpdk_module`. */
struct dpdk_module {
	/* The library's must be the same: then all structures are. Never moves. */
	const char *version;
	/* Before anything else. False: another copy of the library in this process has done so. The
	 * NCCL plugin has one inside, and finds the same module. */
	bool (*set_host)(const struct dpdk_host *host);
	int (*open)(const struct dpdk_port_config *config, struct port **ret_port);
};

#define DPDK_MODULE_SYMBOL "ferrule_dpdk_module"

#endif
