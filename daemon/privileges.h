/* SPDX-License-Identifier: BSD-3-Clause */
/* Giving up what is not needed once everything is open. */
#ifndef FERRULE_DAEMON_PRIVILEGES_H
#define FERRULE_DAEMON_PRIVILEGES_H

#include <stdbool.h>
#include <stddef.h>

/* As many descriptors as the system allows: raised to what `wanted` needs, or as far as it goes,
 * which is returned. */
size_t privileges_raise_files(size_t wanted);

/* Becomes `user` (NULL: stays who it is), and drops every capability and the way back to any; with
 * `wants_raw` CAP_NET_RAW stays, if it is there. False with a sentence in `error`. */
bool privileges_drop(const char *user, bool wants_raw, char *error, size_t size);

bool privileges_have_raw(void);

#endif
