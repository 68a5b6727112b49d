/* SPDX-License-Identifier: BSD-3-Clause */
/* Drops privileges that are not needed once everything is open. */
#ifndef FERRULE_DAEMON_SERVER_PRIVILEGES_H
#define FERRULE_DAEMON_SERVER_PRIVILEGES_H

#include <stdbool.h>
#include <stddef.h>

/* Raises the limit of descriptors to `wanted`, or as far as the system allows. Returns the
 * limit. */
size_t privileges_raise_files(size_t wanted);

/* Changes to `user` (NULL: no change) and drops all capabilities permanently. With `wants_raw` an
 * existing CAP_NET_RAW is kept. Returns false with a sentence in `error`. */
bool privileges_drop(const char *user, bool wants_raw, char *error, size_t size);

bool privileges_have_raw(void);

#endif
