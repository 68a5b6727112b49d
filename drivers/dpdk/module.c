/* SPDX-License-Identifier: BSD-3-Clause */
/* The module's side: the driver calls the library through the library's table. */
#include "drivers/dpdk/module.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "lib/base/memory/fault.h"
#include "lib/base/memory/share.h"

static _Atomic(const struct dpdk_host *) library;

int frl_fail(int err, const char *format, ...)
{
	char text[ERROR_TEXT_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return atomic_load(&library)->set_error(err, text);
}

void frl_log(enum frl_log_level level, const char *format, ...)
{
	char text[ERROR_TEXT_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	atomic_load(&library)->log(level, text);
}

const char *frl_strerror(int err)
{
	return atomic_load(&library)->strerror(err);
}

void error_save(char text[ERROR_TEXT_MAX])
{
	atomic_load(&library)->save_error(text);
}

void error_restore(const char text[ERROR_TEXT_MAX])
{
	atomic_load(&library)->restore_error(text);
}

void share_prefer_huge(void)
{
	atomic_load(&library)->prefer_huge();
}

bool fault_copy(void *to, const void *from, size_t n)
{
	return atomic_load(&library)->fault_copy(to, from, n);
}

static bool set_host(const struct dpdk_host *host)
{
	const struct dpdk_host *none = NULL;

	return atomic_compare_exchange_strong(&library, &none, host);
}

__attribute__((visibility("default"))) extern const struct dpdk_module ferrule_dpdk_module;

const struct dpdk_module ferrule_dpdk_module = {
	.version = FERRULE_VERSION,
	.set_host = set_host,
	.open = dpdk_driver_open,
};
