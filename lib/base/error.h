/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How library code reports a failure: `return frl_fail(-EINVAL, "count is %zu, ...", count);`
 * keeps the sentence for frl_last_error() and returns the code. Log lines go to the host's
 * callback. Never called on the data path. Any thread.
 */
#ifndef FERRULE_BASE_ERROR_H
#define FERRULE_BASE_ERROR_H

#include <stdarg.h>

#include <ferrule/error.h>

/* Records the formatted text as the thread's last error; returns `err`, made negative. */
int frl_fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum { ERROR_TEXT_MAX = 512 };

/* What was tried in vain by a call that succeeds, or goes on with something else, is no failed
 * call: around it, keep the thread's last error and take it back. */
void error_save(char text[ERROR_TEXT_MAX]);
void error_restore(const char text[ERROR_TEXT_MAX]);

void frl_log(enum frl_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
