/* SPDX-License-Identifier: BSD-3-Clause */
/* A logger as NCCL gives one to plugins, which remembers the warnings. */
#ifndef FERRULE_TESTS_UNIT_NCCL_NCCL_LOG_H
#define FERRULE_TESTS_UNIT_NCCL_NCCL_LOG_H

#include <check.h>
#include <pthread.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "nccl/api/abi.h"

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char warnings[16384]; /* a line each; with the lock held, or when nobody logs */

static void take_line(
	int level, unsigned long subsystems, const char *file, int line, const char *format, ...)
{
	char text[1024];
	size_t length;
	va_list args;

	if (level != NCCL_LOG_WARN)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	pthread_mutex_lock(&log_lock);
	length = strlen(warnings);
	snprintf(warnings + length, sizeof(warnings) - length, "%s\n", text);
	pthread_mutex_unlock(&log_lock);
}

/* A warning matches. */
static inline void expect_logged(const char *pattern)
{
	regex_t regex;
	int rc;

	ck_assert_int_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB | REG_NEWLINE), 0);
	pthread_mutex_lock(&log_lock);
	rc = regexec(&regex, warnings, 0, NULL, 0);
	pthread_mutex_unlock(&log_lock);
	regfree(&regex);
	ck_assert_msg(rc == 0, "'%s' does not match: %s", pattern, warnings);
}

#endif
