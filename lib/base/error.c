/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/error.h"

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/text.h"
#include "lib/base/thread_text.h"

static_assert((int)ERROR_TEXT_MAX == THREAD_TEXT_SIZE, "the text of an error fits");

/* The last failure of the thread had no memory for its text. */
static _Thread_local bool has_no_text;

static struct {
	frl_log_fn fn;
	enum frl_log_level level;
	void *arg;
} logger;

const char *frl_strerror(int err)
{
	int number = err < 0 && err != INT_MIN ? -err : err;
	char *text = thread_text(THREAD_TEXT_STRERROR);

	if (!text)
		return "an error (no memory for its text)";
	return strerror_r(number, text, THREAD_TEXT_SIZE);
}

const char *frl_last_error(void)
{
	return has_no_text ? "no memory for the text of the error"
			   : thread_text_peek(THREAD_TEXT_ERROR);
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
	error_restore(text);
	return err < 0 ? err : -err;
}

void error_save(char text[ERROR_TEXT_MAX])
{
	const char *last = frl_last_error();

	memcpy(text, last, strlen(last) + 1);
}

void error_restore(const char text[ERROR_TEXT_MAX])
{
	char *own = NULL;

	if (*text || *thread_text_peek(THREAD_TEXT_ERROR))
		own = thread_text(THREAD_TEXT_ERROR);
	has_no_text = *text && !own;
	if (own)
		memcpy(own, text, strlen(text) + 1);
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
