/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of ferrule-run. All of it runs in one thread, before the program starts. Functions that
 * return int return 0, or, after printing what failed, the exit status of ferrule-run. Descriptors
 * that they open are closed again.
 */
#ifndef FERRULE_TOOLS_RUN_RUN_H
#define FERRULE_TOOLS_RUN_RUN_H

#include <net/if.h>
#include <stdbool.h>

/* Statuses of env(1) and of shells, and that of all failures of ferrule-run itself. */
enum { EXIT_USAGE = 2, EXIT_NO_RUN = 126, EXIT_NO_PROGRAM = 127 };

/* ---- files.c: files of the same installation, or of the same build */

/* Puts libferrule-malloc.so in front of LD_PRELOAD. */
int preload_malloc(void);
/* Puts the folder of Ferrule's libibverbs.so.1 in front of LD_LIBRARY_PATH, where it is once. */
int use_verbs_library(void);

/* ---- devices.c: FRL_VERBS_DEVICES */

/* As many as libibverbs.so.1 accepts. */
enum { MAX_DEVICES = 16 };

/* Device i is frl<i>. */
struct device_list {
	unsigned n;
	/* The network interface: "lo" for the local fabric. Empty if it is not known before the
	 * device is opened. */
	char interface[MAX_DEVICES][IFNAMSIZ];
};

/* Reads FRL_VERBS_DEVICES. Text that names no device is left to libibverbs.so.1, which refuses
 * it. */
void read_devices(struct device_list *ret_list);

/* ---- namespace.c */

/* Moves the process into a mount namespace of its own. Without CAP_SYS_ADMIN it is in a user
 * namespace, too, where its user and group keep their ids. Mounts of the machine still appear
 * there; its own mounts stay there. */
int enter_namespace(void);
/* Takes the capabilities from later programs that they did not have before enter_namespace(). */
void leave_capabilities(void);
/* Prints that `what` to `path` failed, why (errno), and what to do. Returns EXIT_USAGE. */
int refused(const char *what, const char *path);

/* ---- folder.c */

/* Covers a folder with an empty one that has the same entries: links are copied, all others are
 * bound, with what is mounted below. Entries whose name is `ours` and a number are left out, unless
 * `ours` is NULL. */
int cover_folder(const char *path, const char *ours);
/* Makes a folder of cover_folder() read-only. */
int seal_folder(const char *path);

/* ---- infiniband.c */

/* Gives the process device files (/dev/infiniband/uverbs_frl<i>) and attributes
 * (/sys/class/infiniband/frl<i>) that others do not see. Files that exist already, as below another
 * ferrule-run, stay. */
int show_devices(bool uverbs, bool sysfs);

#endif
