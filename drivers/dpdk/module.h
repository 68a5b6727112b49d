/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface between the library and the module with this driver. The module is the file
 * ferrule-dpdk.so beside the library, and is linked with DPDK. Processes without DPDK ports load
 * neither, and DPDK need not be installed.
 */
#ifndef FERRULE_DRIVERS_DPDK_MODULE_H
#define FERRULE_DRIVERS_DPDK_MODULE_H

#include "drivers/dpdk/dpdk.h"
#include "lib/base/error.h"

/* Functions of the library, through which the module reports errors and log lines. Texts are final,
 * not formats. */
struct dpdk_host {
	int (*set_error)(int err, const char *text);
	void (*log)(enum frl_log_level level, const char *text);
	const char *(*strerror)(int err);
	void (*save_error)(char text[ERROR_TEXT_MAX]);
	void (*restore_error)(const char text[ERROR_TEXT_MAX]);
	void (*prefer_huge)(void); /* lib/base/memory/share.h */
	/* lib/base/memory/fault.h: of the library whose handler is installed. */
	bool (*fault_copy)(void *to, const void *from, size_t n);
};

/* The module's symbol `ferrule_dpdk_module`. */
struct dpdk_module {
	/* Must equal the library's version: then all structs are the same. Never moves. */
	const char *version;
	/* Call first. Returns false if another copy of the library in this process has done so. The
	 * NCCL plugin contains a copy, and finds the same module. */
	bool (*set_host)(const struct dpdk_host *host);
	int (*open)(const struct dpdk_port_config *config, struct port **ret_port);
};

#define DPDK_MODULE_SYMBOL "ferrule_dpdk_module"

#endif
