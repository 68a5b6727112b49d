/* SPDX-License-Identifier: BSD-3-Clause */
/* For loops that wait by looking. Any thread. */
#ifndef FERRULE_BASE_BACKOFF_H
#define FERRULE_BASE_BACKOFF_H

/* Tells the processor that this is a spinning loop. */
static inline void backoff_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
