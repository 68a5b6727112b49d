/* SPDX-License-Identifier: BSD-3-Clause */
/* For loops that wait by looking. Any thread. */
#ifndef FERRULE_BASE_BACKOFF_H
#define FERRULE_BASE_BACKOFF_H

#include <stdbool.h>

#include <ferrule/device.h>

/* Tells the processor that this is a spinning loop. */
static inline void backoff_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* So many looks and yields came to nothing that sleeping for long is right, where something ends
 * that early. */
bool backoff_is_long(const struct frl_backoff *backoff);
/* As frl_backoff_idle(), for who may be idle for hours: its sleeps are 100 us, and
 * longer by a 64th of what was slept since, up to 250 us. */
void backoff_idle_long(struct frl_backoff *backoff);

#endif
