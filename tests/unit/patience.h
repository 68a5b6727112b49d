/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one limit of every wait for something that must happen. It catches hangs, and is no measure
 * of speed: a test passes however long its machine is busy or stopped within it.
 */
#ifndef FERRULE_TESTS_UNIT_PATIENCE_H
#define FERRULE_TESTS_UNIT_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/clock.h"
#include "lib/base/settings.h"

enum { HANG_S = 120, HANG_MS = HANG_S * 1000 };

static inline uint64_t hang_limit_ns(void)
{
	return clock_now_ns() + HANG_S * UINT64_C(1000000000);
}

/* FRL_CONTROL_LOST_S of this process from now on: HANG_S and more unless the case waits for the end
 * of that time. ThreadSanitizer does not look: the control thread reads the number meanwhile, and
 * any value of it will do. */
__attribute__((noinline, no_sanitize("thread"), unused)) static void set_control_lost(
	unsigned seconds)
{
	((struct settings *)(uintptr_t)settings_get())->control_lost_s = seconds;
}

/* Within a limit of hang_limit_ns(). */
static inline bool may_wait(uint64_t limit_ns)
{
	return clock_now_ns() < limit_ns;
}

#endif
