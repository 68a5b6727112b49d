/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits of the library's own: how long it waits for a daemon, or for a peer, before it goes on
 * without. A function and no expression, so that a test can decide when one is over. What an
 * application or a setting says, and what comes again and again, goes by clock_now_ns() alone. Any
 * thread.
 */
#ifndef FERRULE_BASE_LIMIT_H
#define FERRULE_BASE_LIMIT_H

#include <stdint.h>

/* Returns the end of a wait that begins at `now_ns`. */
uint64_t limit_after_ms(uint64_t now_ns, unsigned ms);

#endif
