/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/control/frame.h"

enum {
	LINE_SIZE = 1200,
	BURST = 100, /* lines about clients and peers at a time */
	A_SECOND = 20,
};

static const struct {
	const char *name;
	const char *syslog;
	const char *label;
} levels[] = {
	[CORE_LOG_ERROR] = { "error", "<3>", "error: " },
	[CORE_LOG_WARNING] = { "warning", "<4>", "warning: " },
	[CORE_LOG_INFO] = { "info", "<6>", "" },
	[CORE_LOG_DEBUG] = { "debug", "<7>", "debug: " },
};

static struct {
	enum core_log level;
	bool journal;
	uint64_t at_ns;
	double left; /* credit for lines about clients and peers */
	uint64_t left_out;
} the_log = { .level = CORE_LOG_INFO, .left = BURST };

/* The variable is inherited by programs whose output goes elsewhere. */
static bool is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat status;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
		fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device &&
		status.st_ino == inode;
}

void log_start(enum core_log level)
{
	the_log.level = level;
	the_log.journal = is_journal();
}

int log_level_of(const char *name)
{
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (strcmp(levels[i].name, name) == 0)
			return (int)i;
	return -1;
}

static void write_line(enum core_log level, const char *format, va_list arguments)
{
	char line[LINE_SIZE];

	vsnprintf(line, sizeof(line), format, arguments);
	frame_clean_text(line);
	if (the_log.journal)
		fprintf(stderr, "%s%s\n", levels[level].syslog, line);
	else
		fprintf(stderr, "ferruled: %s%s\n", levels[level].label, line);
}

void log_line(enum core_log level, const char *format, ...)
{
	va_list arguments;

	if (level > the_log.level)
		return;
	va_start(arguments, format);
	write_line(level, format, arguments);
	va_end(arguments);
}

void log_of_others(enum core_log level, const char *format, ...)
{
	uint64_t now_ns = clock_now_ns();
	va_list arguments;

	if (level > the_log.level)
		return;
	the_log.left += (double)(now_ns - the_log.at_ns) * A_SECOND / 1e9;
	the_log.at_ns = now_ns;
	if (the_log.left > BURST)
		the_log.left = BURST;
	if (the_log.left < 1) {
		the_log.left_out++;
		return;
	}
	the_log.left--;
	if (the_log.left_out) {
		log_line(CORE_LOG_WARNING, "%llu lines like these were omitted",
			(unsigned long long)the_log.left_out);
		the_log.left_out = 0;
	}
	va_start(arguments, format);
	write_line(level, format, arguments);
	va_end(arguments);
}
