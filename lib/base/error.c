/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/error.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/text.h"

static _Thread_local char last_error[ERROR_TEXT_MAX];
static _Thread_local char strerror_text[128];

static struct {
	frl_log_fn fn;
	enum frl_log_level level;
	void *arg;
} logger;

const char *frl_strerror(int err)
{
	int number = err < 0 && err != INT_MIN ? -err : err;

	return strerror_r(number, strerror_text, sizeof(strerror_text));
}

const char *frl_last_error(void)
{
	return last_error;
}

void frl_set_log(frl_log_fn fn, enum frl_log_level level, void *arg)
{
	logger.fn = fn;
	logger.level = level;
	logger.arg = arg;
}

int frl_fail(int err, const char *format, ...)
{
	/* Formats into a second buffer: an argument may be the previous error's text. */
	char text[ERROR_TEXT_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* The text may quote untrusted input and is shown on terminals. */
	text_clean(text);
	memcpy(last_error, text, sizeof(text));
	return err < 0 ? err : -err;
}

void error_save(char text[ERROR_TEXT_MAX])
{
	memcpy(text, last_error, ERROR_TEXT_MAX);
}

void error_restore(const char text[ERROR_TEXT_MAX])
{
	memcpy(last_error, text, ERROR_TEXT_MAX);
}

void frl_log(enum frl_log_level level, const char *format, ...)
{
	char line[ERROR_TEXT_MAX];
	va_list args;

	if (!logger.fn || level > logger.level)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	text_clean(line);
	logger.fn(level, line, logger.arg);
}
