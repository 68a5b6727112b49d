/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timeouts of the library itself: how long it waits for a daemon or a peer before it continues
 * without. This is a function so that a test can decide when one expires. Timeouts set by an
 * application or a setting, and periodic ones, use clock_now_ns() alone. Any thread.
 */
#ifndef FERRULE_BASE_LIMIT_H
#define FERRULE_BASE_LIMIT_H

#include <stdint.h>

/* Returns the end of a wait that begins at `now_ns`. */
uint64_t limit_after_ms(uint64_t now_ns, unsigned ms);

#endif
