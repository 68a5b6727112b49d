/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sd-daemon(3), or in a build without libsystemd functions that do what those do where systemd has
 * not started the process. Any thread.
 */
#ifndef FERRULE_DAEMON_COMPAT_SYSTEMD_H
#define FERRULE_DAEMON_COMPAT_SYSTEMD_H

#ifdef FERRULE_SYSTEMD
#include <systemd/sd-daemon.h>
#else
#include <stddef.h>
#include <stdint.h>

#define SD_LISTEN_FDS_START 3

static inline int sd_listen_fds(int unset_environment)
{
	return 0;
}

static inline int sd_is_socket_unix(int fd, int type, int listening, const char *path, size_t len)
{
	return 0;
}

static inline int sd_notify(int unset_environment, const char *state)
{
	return 0;
}

__attribute__((format(printf, 2, 3))) static inline int sd_notifyf(
	int unset_environment, const char *format, ...)
{
	return 0;
}

static inline int sd_watchdog_enabled(int unset_environment, uint64_t *ret_us)
{
	return 0;
}
#endif

#endif
