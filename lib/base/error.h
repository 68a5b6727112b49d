/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How library code reports a failure. `return frl_fail(-EINVAL, "count is %zu, ...", count);`
 * stores the text for frl_last_error() and returns the code. Log lines go to the application's
 * callback. Never called on the data path. Any thread.
 */
#ifndef FERRULE_BASE_ERROR_H
#define FERRULE_BASE_ERROR_H

#include <stdarg.h>

#include <ferrule/error.h>

/* Stores the formatted text as the thread's last error. Returns `err`, made negative. */
int frl_fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum { ERROR_TEXT_MAX = 512 };

/* Save and restore the thread's last error around an attempt that may fail although the call
 * succeeds or falls back. */
void error_save(char text[ERROR_TEXT_MAX]);
void error_restore(const char text[ERROR_TEXT_MAX]);

void frl_log(enum frl_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
