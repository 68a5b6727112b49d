/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real daemon for bootstraps: every test has one of its own, at the same socket in a folder of
 * the test's.
 */
#ifndef FERRULE_TESTS_UNIT_BOOTSTRAP_FIXTURE_H
#define FERRULE_TESTS_UNIT_BOOTSTRAP_FIXTURE_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <ferrule/connect.h>

#include "tests/unit/patience.h"

enum { JOIN_MS = HANG_MS, GATHER_MAX = 1024 * 1024 };

extern char socket_path[64];
extern pid_t daemon_pid; /* 0: there is none */

/* In test_folder(), and where ranks find it. */
void set_socket_path(void);
uint64_t now_ms(void);
void start_daemon(void);
void kill_process(pid_t pid);
void stop_daemon(void);
/* Runs the suite, by one of the functions of program.h, beside a daemon. */
int run_with_daemon(int (*run)(Suite *suite), Suite *suite);
struct frl_bootstrap join(int rank, int ranks);
/* A rank in a process of its own, which has joined and does nothing any more. */
pid_t join_elsewhere(int rank, int ranks);
int wait_for_check(struct frl_bootstrap *bootstrap, int *ret_rank);

#endif
