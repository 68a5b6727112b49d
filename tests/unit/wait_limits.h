/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's own limits (lib/base/limit.h) in programs that are linked with
 * --wrap=limit_after_ms. However long a process is stopped, none of them is over, except where a
 * row wants that. On hardware (FRL_TEST_PORT) they are as in real life.
 */
#ifndef FERRULE_TESTS_UNIT_WAIT_LIMITS_H
#define FERRULE_TESTS_UNIT_WAIT_LIMITS_H

/* Each limit of exactly `ms` that begins from now on is over at once; 0: none is. In all threads of
 * the process, and in those of children. */
void limits_expire(unsigned ms);

#endif
