/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The process of a test file, and all that it starts: processes of its group, and those that have a
 * session of their own, such as daemons. All of them have ended when file_process_run() returns,
 * also if a signal ends the caller meanwhile. One thread.
 */
#ifndef FERRULE_TESTS_UNIT_FILE_PROCESS_H
#define FERRULE_TESTS_UNIT_FILE_PROCESS_H

#include <stddef.h>

/* Calls `run` in a child process, which exits with what it returns. Returns the child's status, as
 * waitpid() has it, or -1. SIGINT, SIGTERM and SIGHUP end the caller, after `end` was called. */
int file_process_run(int (*run)(void *ctx), void (*end)(void), void *ctx);

/* Removes a folder and what is in it. */
void remove_tree(const char *path);

#endif
