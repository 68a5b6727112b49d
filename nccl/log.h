/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines to NCCL's logger, which drops them according to NCCL_DEBUG. Any thread. */
#ifndef FERRULE_NCCL_LOG_H
#define FERRULE_NCCL_LOG_H

#include "nccl/abi.h"

/* Where lines go from now on; those of the library come as well. NULL: nowhere. */
void net_log_to(nccl_log_fn log);

/* An unusual end of something, for the user to read even if he has not asked for a log. */
#define net_log_warning(...) net_log_line(NCCL_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define net_log_info(...)    net_log_line(NCCL_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)

void net_log_line(enum nccl_log_level level, const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* What NCCL is told about a failed call of the library. */
enum nccl_result net_result_of(int err);

#endif
