/* SPDX-License-Identifier: BSD-3-Clause */
/* Formats each line as a whole, and passes it on with its source location. */
#include "nccl/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include <ferrule/error.h>

#include "nccl/settings.h"

enum { LINE = 1024 };

static _Atomic(nccl_log_fn) logger;

/* Prints a line that NCCL does not show: without NCCL_DEBUG it prints nothing. */
static void show(const char *text)
{
	char line[LINE + 32];
	int length = snprintf(line, sizeof(line), "NET/Ferrule [%d] %s\n", (int)getpid(), text);

	/* Use a single write(), so that lines of several processes do not mix. */
	if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0)
		return;
}

void net_log_line(enum nccl_log_level level, const char *file, int line, const char *format, ...)
{
	nccl_log_fn log = atomic_load(&logger);
	char text[LINE];
	va_list args;

	if (!log)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* NCCL keeps warnings for ncclGetLastError() even if it does not show them. */
	if (level == NCCL_LOG_WARN || !net_settings()->shows_info)
		log(level, NCCL_LOG_INIT | NCCL_LOG_NET, file, line, "NET/Ferrule : %s", text);
	if (level == NCCL_LOG_WARN ? net_settings()->shows_warnings : net_settings()->shows_info)
		show(text);
}

static void take_line(enum frl_log_level level, const char *line, void *arg)
{
	net_log_line(
		level <= FRL_LOG_WARNING ? NCCL_LOG_WARN : NCCL_LOG_INFO, "ferrule", 0, "%s", line);
}

void net_log_to(nccl_log_fn log)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool is_set;

	pthread_mutex_lock(&lock);
	atomic_store(&logger, log);
	/* Set the library's logger before any thread can call the library. */
	if (!is_set)
		frl_set_log(take_line, net_settings()->library_level, NULL);
	is_set = true;
	pthread_mutex_unlock(&lock);
}

enum nccl_result net_result_of(int err)
{
	switch (err) {
	case 0: return NCCL_SUCCESS;
	case -EINVAL: return NCCL_INVALID_ARGUMENT;
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -EHOSTDOWN:
	case -EHOSTUNREACH:
	case -ETIMEDOUT: return NCCL_REMOTE_ERROR;
	default: return NCCL_SYSTEM_ERROR;
	}
}
