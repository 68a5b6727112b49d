/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The monotonic clock of a test program, which a case can stop and advance: for programs that are
 * linked with --wrap=clock_gettime. While it is stopped, no thread sees time pass; waits in the
 * kernel take as long as ever.
 */
#ifndef FERRULE_TESTS_UNIT_STOPPED_CLOCK_H
#define FERRULE_TESTS_UNIT_STOPPED_CLOCK_H

#include <stdint.h>

void clock_stop(void);
/* While it is stopped. */
void clock_advance_ms(uint64_t ms);
/* Goes on from there. */
void clock_go_on(void);

#endif
