/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines for NCCL's logger, which filters them by NCCL_DEBUG. Callable from any thread. */
#ifndef FERRULE_NCCL_LOG_H
#define FERRULE_NCCL_LOG_H

#include "nccl/api/abi.h"

/* Sets the logger, also for the library's lines. NULL: discard all lines. */
void net_log_to(nccl_log_fn log);

/* Use warnings for unexpected failures that every user must see, even without a log. */
#define net_log_warning(...) net_log_line(NCCL_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define net_log_info(...)    net_log_line(NCCL_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)

void net_log_line(enum nccl_log_level level, const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Converts an error of the library to NCCL's result. */
enum nccl_result net_result_of(int err);

#endif
