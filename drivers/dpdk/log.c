/* SPDX-License-Identifier: BSD-3-Clause */
/* Converts EAL's log to lines of frl_log: nothing is written to the application's stderr. */
#include "drivers/dpdk/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_log.h>

#include "lib/base/error.h"

enum { LINE_MAX_LEN = 256 };

/* The first line is the most specific: later ones name the callers that failed because of it. */
static _Thread_local char first_error[LINE_MAX_LEN];

static enum frl_log_level level_of(int dpdk_level)
{
	if (dpdk_level <= (int)RTE_LOG_ERR)
		return FRL_LOG_ERROR;
	if (dpdk_level == (int)RTE_LOG_WARNING)
		return FRL_LOG_WARNING;
	return dpdk_level == (int)RTE_LOG_NOTICE ? FRL_LOG_INFO : FRL_LOG_DEBUG;
}

/* stdio flushes after each message, which may contain several lines or a part of one. */
static void take_lines(enum frl_log_level level, const char *text, size_t len)
{
	size_t at = 0;

	while (at < len) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - text) - at : len - at;
		char line[LINE_MAX_LEN];

		snprintf(line, sizeof(line), "%.*s", (int)n, text + at);
		if (n && level == FRL_LOG_ERROR && !first_error[0])
			memcpy(first_error, line, sizeof(line));
		if (n)
			frl_log(level, "dpdk: %s", line);
		at += n + 1;
	}
}

static ssize_t log_write(void *cookie, const char *text, size_t len)
{
	take_lines(level_of(rte_log_cur_msg_loglevel()), text, len);
	return (ssize_t)len;
}

void log_take(const char *text, size_t len, bool is_error)
{
	static const char fatal[] = "EAL: FATAL: ", program[] = "ferrule: ";
	size_t fatal_len = sizeof(fatal) - 1, program_len = sizeof(program) - 1;

	/* EAL also logs this message. */
	if (len >= fatal_len && memcmp(text, fatal, fatal_len) == 0)
		return;
	/* getopt() prefixes the program's name. */
	if (len >= program_len && memcmp(text, program, program_len) == 0) {
		text += program_len;
		len -= program_len;
	}
	take_lines(is_error ? FRL_LOG_ERROR : FRL_LOG_DEBUG, text, len);
}

int log_open(void)
{
	static const cookie_io_functions_t functions = { .write = log_write };
	FILE *stream = fopencookie(NULL, "w", functions);

	if (!stream)
		return -ENOMEM;
	/* Never closed: EAL writes to it for the lifetime of the process. */
	return rte_openlog_stream(stream);
}

void log_clear_error(void)
{
	first_error[0] = '\0';
}

const char *log_error(void)
{
	return first_error[0] ? first_error : "no further detail";
}
